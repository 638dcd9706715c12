//! Models that loom runs in every order that threads and memory allow (up to a bound on preemptions).
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p mswitch-fabric --release --lib loom_models
//! ```
//!
//! `LOOM_MAX_PREEMPTIONS=4` searches further than the bound set here; `LOOM_LOG=1` shows a failing order. The models
//! run the crate's own code ([`TxRing`], [`Reservation`](crate::deliver::reservation::Reservation) under
//! [`SpinLock`](crate::sync::SpinLock), [`Quiescence`], [`PublishedBridge`], [`Doorbell`], [`Mailbox`], [`Retained`], [`Backlog`],
//! [`Handoff`], [`Transfer`], [`Reclaim`]); they model the receiver, the ring's shared memory, epoll, and the control plane. A ring
//! entry is a loom cell, so that loom itself rejects an order in which the receiver reads an entry before it is handed
//! over, or two workers fill one.

use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32 as StdAtomicU32, AtomicU64 as StdAtomicU64};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::Notify;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use loom::thread;

use crate::bridge::port::PortIndex;
use crate::bridge::published::PublishedBridge;
use crate::bridge::quiescence::{Quiescence, Reclaim};
use crate::bridge::state::BridgeState;
use crate::counters::{DropReason, QueueCounters};
use crate::decide::batch::Batch;
use crate::decide::logic::SwitchLogic;
use crate::deliver::egress::Egress;
use crate::deliver::tools::Tools;
use crate::deliver::tx_ring::{Buffer, RingBacking, TxRing};
use crate::fault::Fault;
use crate::lists::output::{NIL, OutputList, RunPool};
use crate::queueing::backlog::Backlog;
use crate::queueing::retained::{ClassQueue, Retained};
use crate::rx::{BatchLimits, HEADER_COPY, RxBatch};
use crate::wake::doorbell::{Bell, Doorbell};
use crate::wake::mailbox::Mailbox;
use crate::wake::notifier::Notifier;
use crate::worker::handoff::Handoff;
use crate::worker::request::Transfer;

/// Explores `f` with at most `preemptions` preemptions, and prints the number of orders.
fn explore(name: &str, preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    let orders = std::sync::Arc::new(StdAtomicU64::new(0));
    let counted = orders.clone();
    builder.check(move || {
        counted.fetch_add(1, RELAXED);
        f();
    });
    let orders = orders.load(RELAXED);
    eprintln!("{name}: {orders} orders, at most {:?} preemptions", builder.preemption_bound);
    assert!(orders > 1);
}

const RELAXED: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

/// Outcomes that occurred in some order: a model in which an outcome never occurs shows nothing about it.
struct Seen(StdAtomicU32);

impl Seen {
    const fn nothing() -> Self {
        Self(StdAtomicU32::new(0))
    }

    fn add(&self, outcome: usize) {
        self.0.fetch_or(1 << outcome, RELAXED);
    }

    #[track_caller]
    fn assert_all(&self, n: u32) {
        assert_eq!(self.0.load(RELAXED), (1 << n) - 1, "some outcome never occurred");
    }
}

/// Length of a packet: it is copied without the ring's lock, and does not fit into one buffer of [`SHORT`] bytes.
const LEN: usize = HEADER_COPY + 2;
const SHORT: u32 = 70;
/// Length of packets that are copied under the lock if they are few.
const LITTLE: usize = 20;

/// Content of an entry, as the receiver finds it.
#[derive(Clone, Copy, Default)]
struct Entry {
    /// Sender and number of the packet, from the bytes that arrived; 0: none.
    packet: u8,
    len: u32,
    more: bool,
}

/// A ring's shared memory. Holds all loom objects that a worker does not take from the fabric.
struct Ring {
    entries: Box<[UnsafeCell<Entry>]>,
    bytes: Box<[std::cell::UnsafeCell<[u8; LEN]>]>,
    capacity: u32,
    posted: AtomicU32,
    published: AtomicU32,
    wants_signal: AtomicBool,
    told: AtomicU32,
    /// The last published end, and most entries published at once. Hidden from loom.
    before: StdAtomicU32,
    leap: StdAtomicU32,
}

// SAFETY: loom runs its threads one at a time; accesses that it must check use its own cells and atomics.
unsafe impl Sync for Ring {}
// SAFETY: as above.
unsafe impl Send for Ring {}

impl Ring {
    fn new(size: u32, posted: u32, capacity: u32) -> Arc<Self> {
        Arc::new(Self {
            entries: (0..size).map(|_| UnsafeCell::new(Entry::default())).collect(),
            bytes: (0..size).map(|_| std::cell::UnsafeCell::new([0; LEN])).collect(),
            capacity,
            posted: AtomicU32::new(posted),
            published: AtomicU32::new(0),
            wants_signal: AtomicBool::new(false),
            told: AtomicU32::new(0),
            before: StdAtomicU32::new(0),
            leap: StdAtomicU32::new(0),
        })
    }

    fn at(&self, seq: u32) -> usize {
        seq as usize % self.entries.len()
    }

    /// The receiver: takes published entries from `next` on, and posts each buffer again if `repost`.
    fn take(&self, next: &mut u32, repost: bool, got: &mut Vec<Entry>) {
        let published = self.published.load(Ordering::Acquire);
        while *next != published {
            let entry = self.entries[self.at(*next)].with_mut(|entry| {
                // SAFETY: loom checks that no other thread accesses this cell.
                unsafe { std::mem::take(&mut *entry) }
            });
            assert!(entry.len > 0, "entry {next} was published empty");
            got.push(entry);
            *next += 1;
            if repost {
                // One by one: a sender may find room for some of its packets.
                self.posted.store(*next + self.entries.len() as u32, Ordering::Release);
            }
        }
    }
}

struct Backing(Arc<Ring>);

// SAFETY: buffers are cells that the ring keeps, and loom runs one thread at a time.
unsafe impl RingBacking for Backing {
    type Own = ();
    type Entry = ();

    fn size(&self) -> u32 {
        self.0.entries.len() as u32
    }

    fn posted(&self, (): &mut (), _: u32) -> Result<u32, Fault> {
        Ok(self.0.posted.load(Ordering::Acquire))
    }

    fn buffer(&self, (): &mut (), seq: u32, (): &mut ()) -> Result<Buffer, Fault> {
        let at = NonNull::new(self.0.bytes[self.0.at(seq)].get()).map_or(NonNull::dangling(), NonNull::cast);
        Ok(Buffer { at, capacity: self.0.capacity })
    }

    fn fill(&self, seq: u32, (): &mut (), len: u32, more: bool) {
        let i = self.0.at(seq);
        // SAFETY: one thread at a time; this thread has just written the bytes.
        let bytes = unsafe { *self.0.bytes[i].get() };
        self.0.entries[i].with_mut(|entry| {
            // SAFETY: loom checks that no other thread accesses this cell.
            let entry = unsafe { &mut *entry };
            assert_eq!(entry.len, 0, "entry {seq} was filled twice");
            *entry = Entry { packet: bytes[0], len, more };
        });
    }

    fn publish(&self, (): &mut (), seq: u32) {
        // Without loading loom's atomic: of several loads of one, loom tries other orders for the last only.
        let before = self.0.before.swap(seq, RELAXED);
        self.0.leap.fetch_max(seq.wrapping_sub(before), RELAXED);
        self.0.published.store(seq, Ordering::Release);
    }

    fn notify(&self) -> Option<RawFd> {
        // As a memif peer's flag: a plain load. The fence is the fabric's.
        if self.0.wants_signal.load(Ordering::Relaxed) {
            self.0.told.fetch_add(1, Ordering::Relaxed);
        }
        None
    }

    fn faulted(&self) -> bool {
        false
    }
}

/// A batch of packets of one length whose bytes all equal their number, made once and only read.
struct Packets(RxBatch);

// SAFETY: the batch is only read, and loom runs one thread at a time.
unsafe impl Sync for Packets {}

fn packets(numbers: &[u8], len: usize) -> &'static Packets {
    let mut batch = RxBatch::new(BatchLimits::default());
    for number in numbers {
        let bytes: &'static mut [u8] = vec![*number; len].leak();
        // SAFETY: the bytes are never freed.
        unsafe { batch.add_segment(NonNull::from(bytes).cast(), len as u32) }.unwrap();
        batch.end_packet(packet::Offload::NONE);
    }
    batch.load_headers();
    Box::leak(Box::new(Packets(batch)))
}

/// Kernel contexts are scarce and the models many: tools and run pools are passed from one to the next.
fn with_tools<R>(f: impl FnOnce(&mut (Tools, RunPool)) -> R) -> R {
    static POOL: Mutex<Vec<(Tools, RunPool)>> = Mutex::new(Vec::new());
    let tools = POOL.lock().unwrap().pop();
    let mut tools = tools.unwrap_or_else(|| (Tools::new(Notifier::new().unwrap()), RunPool::new(64)));
    let r = f(&mut tools);
    POOL.lock().unwrap().push(tools);
    r
}

fn deliver(ring: &impl Egress, counters: &QueueCounters, packets: &Packets) {
    let n = packets.0.len();
    with_tools(|(tools, runs)| {
        runs.clear();
        let head = (0..n as u16).rev().fold(NIL, |next, v| runs.add(v, next).unwrap());
        tools.deliver(ring, &mut OutputList::new(&packets.0, runs, head), counters).unwrap();
        tools.notifier.flush();
    });
}

/// The packets that entries hold, with chains joined; `len` gives a packet's length.
fn whole(entries: &[Entry], len: impl Fn(u8) -> usize) -> Vec<u8> {
    let mut packets = Vec::new();
    let mut got = 0;
    for entry in entries {
        got += entry.len;
        if !entry.more {
            assert_eq!(got, len(entry.packet) as u32, "half a packet");
            packets.push(entry.packet);
            got = 0;
        }
    }
    assert_eq!(got, 0, "half a packet");
    packets
}

/// Asserts that each sender's packets are in order (numbers ascend within 1x, within 2x), and none is doubled.
fn assert_in_order(got: &[u8]) {
    for sender in [1, 2] {
        let own: Vec<_> = got.iter().filter(|number| **number / 10 == sender).collect();
        assert!(own.windows(2).all(|pair| pair[0] < pair[1]), "{got:?}");
    }
}

/// Two senders whose copies finish in any order, and a receiver that looks meanwhile: it sees only whole packets, in
/// order, and all of them in the end.
#[test]
fn two_senders_fill_and_a_receiver_sees_only_what_is_filled() {
    static SEEN: Seen = Seen::nothing();
    let leap = two_senders_fill([LEN, LEN], &SEEN);
    assert_eq!(leap, 4, "no order completed the later run first");
}

/// One sender's packets are short, and wait for the other's run where that is unfinished.
#[test]
fn two_senders_fill_of_which_one_may_under_the_lock() {
    static SEEN: Seen = Seen::nothing();
    let leap = two_senders_fill([LEN, LITTLE], &SEEN);
    assert_eq!(leap, 4, "no order completed the later run first");
}

#[test]
fn two_senders_fill_under_the_lock() {
    static SEEN: Seen = Seen::nothing();
    let leap = two_senders_fill([LITTLE, LITTLE], &SEEN);
    assert_eq!(leap, 2, "a run was reserved before the other was complete");
}

/// Returns the most entries published at once.
fn two_senders_fill(lens: [usize; 2], seen: &'static Seen) -> u32 {
    let (ones, twos) = (packets(&[11, 12], lens[0]), packets(&[21, 22], lens[1]));
    let leap: &'static StdAtomicU32 = Box::leak(Box::default());
    explore("two senders", 5, move || {
        let shared = Ring::new(4, 4, LEN as u32);
        let ring = Arc::new(TxRing::new(Backing(shared.clone()), (), 0));
        let sender = |packets: &'static Packets| {
            let ring = ring.clone();
            thread::spawn(move || deliver(&*ring, &QueueCounters::default(), packets))
        };
        let senders = [sender(ones), sender(twos)];
        let (mut next, mut got) = (0, Vec::new());
        shared.take(&mut next, false, &mut got);
        shared.take(&mut next, false, &mut got);
        // A packet is published with its run: two at a time.
        assert!(got.len() % 2 == 0);
        seen.add(got.len() / 2);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        shared.take(&mut next, false, &mut got);
        let got = whole(&got, |packet| lens[usize::from(packet / 10 - 1)]);
        assert!(got == [11, 12, 21, 22] || got == [21, 22, 11, 12], "{got:?}");
        leap.fetch_max(shared.leap.load(RELAXED), RELAXED);
    });
    seen.assert_all(3);
    leap.load(RELAXED)
}

/// A ring of two buffers that the receiver posts again and again: entries are reused, and packets that found no room
/// are counted.
#[test]
fn entries_are_used_again_only_after_the_receiver_gave_them_back() {
    static SEEN: Seen = Seen::nothing();
    entries_are_used_again(LEN, &SEEN);
}

#[test]
fn entries_are_used_again_under_the_lock() {
    static SEEN: Seen = Seen::nothing();
    entries_are_used_again(LITTLE, &SEEN);
}

fn entries_are_used_again(len: usize, seen: &'static Seen) {
    let (ones, twos) = (packets(&[11, 12], len), packets(&[21, 22], len));
    explore("reuse", 3, move || {
        let shared = Ring::new(2, 2, LEN as u32);
        let ring = Arc::new(TxRing::new(Backing(shared.clone()), (), 0));
        let counters = std::sync::Arc::new(QueueCounters::default());
        let sender = |packets: &'static Packets| {
            let (ring, counters) = (ring.clone(), counters.clone());
            thread::spawn(move || deliver(&*ring, &counters, packets))
        };
        let senders = [sender(ones), sender(twos)];
        let (mut next, mut got) = (0, Vec::new());
        shared.take(&mut next, true, &mut got);
        shared.take(&mut next, true, &mut got);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        shared.take(&mut next, true, &mut got);
        let got = whole(&got, |_| len);
        assert_in_order(&got);
        let snapshot = counters.snapshot();
        assert_eq!(snapshot.packets, got.len() as u64);
        assert_eq!(snapshot.drops[DropReason::RingFull as usize], 4 - got.len() as u64);
        seen.add(got.len() - 2);
    });
    seen.assert_all(3);
}

/// Packets in chains of two short buffers: half a packet is never seen.
#[test]
fn chains_are_seen_whole() {
    let (ones, twos) = (packets(&[11], LEN), packets(&[21], LEN));
    static SEEN: Seen = Seen::nothing();
    explore("chains", 5, move || {
        let shared = Ring::new(4, 4, SHORT);
        let ring = Arc::new(TxRing::new(Backing(shared.clone()), (), 0));
        let other = ring.clone();
        let sender = thread::spawn(move || deliver(&*other, &QueueCounters::default(), twos));
        let reader = shared.clone();
        let receiver = thread::spawn(move || {
            let (mut next, mut got) = (0, Vec::new());
            reader.take(&mut next, false, &mut got);
            (next, got)
        });
        deliver(&*ring, &QueueCounters::default(), ones);
        let (mut next, mut got) = receiver.join().unwrap();
        SEEN.add(whole(&got, |_| LEN).len());
        sender.join().unwrap();
        shared.take(&mut next, false, &mut got);
        let got = whole(&got, |_| LEN);
        assert!(got == [11, 21] || got == [21, 11], "{got:?}");
    });
    SEEN.assert_all(3);
}

/// The receiver asks for notification, fences, looks, and sleeps if it saw nothing: then the publisher notifies it.
#[test]
fn no_wake_up_is_lost() {
    static SEEN: Seen = Seen::nothing();
    wakes_up(LEN, &SEEN);
}

#[test]
fn no_wake_up_is_lost_by_a_delivery_under_the_lock() {
    static SEEN: Seen = Seen::nothing();
    wakes_up(LITTLE, &SEEN);
}

fn wakes_up(len: usize, outcomes: &'static Seen) {
    let (ones, twos) = (packets(&[11], len), packets(&[21], len));
    explore("wake-up", 5, move || {
        let shared = Ring::new(2, 2, LEN as u32);
        let ring = Arc::new(TxRing::new(Backing(shared.clone()), (), 0));
        let other = ring.clone();
        let senders = [
            thread::spawn(move || deliver(&*ring, &QueueCounters::default(), ones)),
            thread::spawn(move || deliver(&*other, &QueueCounters::default(), twos)),
        ];
        shared.wants_signal.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let seen = shared.published.load(Ordering::Acquire);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert_eq!(shared.published.load(Ordering::Acquire), 2);
        let told = shared.told.load(Ordering::Relaxed);
        assert!(seen == 2 || told > 0, "the receiver saw {seen} of 2 and sleeps forever");
        outcomes.add(seen as usize);
    });
    outcomes.assert_all(3);
}

/// A logic that knows whether it may still be used; loom checks that use and drop do not overlap.
struct Mortal(UnsafeCell<bool>);

// SAFETY: loom checks the only access.
unsafe impl Sync for Mortal {}
// SAFETY: as above.
unsafe impl Send for Mortal {}

/// Use and drop of a [`Mortal`], expressed as ports: the trait has no method for them.
const USE: PortIndex = PortIndex(0);
const DIE: PortIndex = PortIndex(1);

impl SwitchLogic for Mortal {
    fn forward(&self, _: &mut Batch<'_>) {}

    fn port_removed(&self, what: PortIndex) {
        match what {
            // SAFETY: loom checks that no other thread writes meanwhile.
            USE => self.0.with(|alive| assert!(unsafe { *alive }, "used after it was dropped")),
            // SAFETY: loom checks that no other thread accesses this cell.
            _ => self.0.with_mut(|alive| unsafe { *alive = false }),
        }
    }
}

fn bridge_state() -> BridgeState {
    BridgeState::new(std::sync::Arc::new(Mortal(UnsafeCell::new(true))), Vec::new(), Vec::new())
}

/// One batch: loads the state and uses it twice.
fn batch(published: &PublishedBridge) {
    // SAFETY: the workers below are awake here; the model checks that this suffices.
    let state = unsafe { published.get() };
    state.logic.port_removed(USE);
    thread::yield_now();
    state.logic.port_removed(USE);
}

/// Replaces the state as the control plane does. The old one "dies" where it would be dropped; its memory is returned,
/// so that a wrong order fails by loom's verdict and not by a crash.
fn replace(published: &PublishedBridge, quiescence: &Quiescence) -> Box<BridgeState> {
    let old = published.swap(bridge_state());
    quiescence.wait().unwrap();
    old.logic.port_removed(DIE);
    old
}

/// A worker that passes quiescent points between batches.
#[test]
fn nothing_is_dropped_under_a_busy_worker() {
    explore("busy worker", 4, || {
        let (published, quiescence) =
            (Arc::new(PublishedBridge::new(bridge_state())), Arc::new(Quiescence::new(1)));
        let (its_published, its_quiescence) = (published.clone(), quiescence.clone());
        let worker = thread::spawn(move || {
            its_quiescence.wake(0);
            for _ in 0..2 {
                its_quiescence.pass(0);
                batch(&its_published);
            }
            its_quiescence.sleep(0);
        });
        let old = [replace(&published, &quiescence), replace(&published, &quiescence)];
        worker.join().unwrap();
        drop(old);
    });
}

/// A worker that sleeps and wakes while the state changes.
#[test]
fn nothing_is_dropped_under_a_waking_worker() {
    explore("waking worker", 4, || {
        let (published, quiescence) =
            (Arc::new(PublishedBridge::new(bridge_state())), Arc::new(Quiescence::new(1)));
        let (its_published, its_quiescence) = (published.clone(), quiescence.clone());
        let worker = thread::spawn(move || {
            for _ in 0..2 {
                its_quiescence.wake(0);
                // No quiescent point: the worker goes straight from sleep to a batch.
                batch(&its_published);
                its_quiescence.sleep(0);
            }
        });
        let old = [replace(&published, &quiescence), replace(&published, &quiescence)];
        worker.join().unwrap();
        drop(old);
    });
}

/// A worker that is removed, and a later one with its number.
#[test]
fn nothing_is_dropped_under_a_worker_that_takes_the_number_of_another() {
    explore("number used again", 4, || {
        let (published, quiescence) =
            (Arc::new(PublishedBridge::new(bridge_state())), Arc::new(Quiescence::new(1)));
        let start = |published: &Arc<PublishedBridge>, quiescence: &Arc<Quiescence>| {
            let (published, quiescence) = (published.clone(), quiescence.clone());
            thread::spawn(move || {
                quiescence.wake(0);
                batch(&published);
                quiescence.sleep(0);
            })
        };
        let (its_published, its_quiescence) = (published.clone(), quiescence.clone());
        let operator = thread::spawn(move || {
            start(&its_published, &its_quiescence).join().unwrap();
            start(&its_published, &its_quiescence).join().unwrap();
        });
        let old = replace(&published, &quiescence);
        operator.join().unwrap();
        drop(old);
    });
}

/// Two workers, one that works and one that wakes.
#[test]
fn nothing_is_dropped_under_either_of_two_workers() {
    explore("two workers", 2, || {
        let (published, quiescence) =
            (Arc::new(PublishedBridge::new(bridge_state())), Arc::new(Quiescence::new(2)));
        let workers = [0, 1].map(|i| {
            let (published, quiescence) = (published.clone(), quiescence.clone());
            thread::spawn(move || {
                quiescence.wake(i);
                batch(&published);
                if i == 0 {
                    quiescence.pass(i);
                } else {
                    quiescence.sleep(i);
                    quiescence.wake(i);
                }
                batch(&published);
                quiescence.sleep(i);
            })
        });
        let old = replace(&published, &quiescence);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        drop(old);
    });
}

/// Wakes a waiter of a model; a waiter that is never woken is a deadlock, which loom detects.
struct LoomBell(Notify);

impl LoomBell {
    fn new() -> Self {
        Self(Notify::new())
    }
}

impl Bell for LoomBell {
    fn wake(&self) {
        self.0.notify();
    }
}

/// Two threads that publish and ring, and a waiter that looks, arms, looks again, and blocks: it finds everything and
/// is not left asleep.
#[test]
fn a_doorbell_loses_no_ring() {
    static SLEPT: Seen = Seen::nothing();
    explore("doorbell", 4, || {
        let shared = Arc::new((AtomicU32::new(0), Doorbell::new(LoomBell::new())));
        let ringers = [(); 2].map(|()| {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.0.fetch_add(1, Ordering::Relaxed);
                shared.1.ring();
            })
        });
        let (mut seen, mut slept) = (0, 0);
        while seen < 2 {
            // As a worker does: it polls, asks to be signalled, looks once more, and only then sleeps.
            let _ = shared.1.arm();
            seen = shared.0.load(Ordering::Relaxed);
            if seen < 2 {
                shared.1.bell().0.wait();
                slept += 1;
            }
            let _ = shared.1.disarm();
        }
        SLEPT.add(slept.min(2));
        ringers.into_iter().for_each(|ringer| ringer.join().unwrap());
    });
    SLEPT.assert_all(3);
}

/// A worker that polls its mailbox and sleeps when it is empty, as in [`crate::worker::run`]: it executes every
/// command, including one sent while it falls asleep.
#[test]
fn a_worker_that_falls_asleep_misses_no_command() {
    explore("mailbox", 5, || {
        let mailbox = Arc::new(Mailbox::new(LoomBell::new()));
        let sender = mailbox.clone();
        let control = thread::spawn(move || {
            sender.send(1);
            sender.send(2);
        });
        let (mut obeyed, mut rung) = (Vec::new(), false);
        while obeyed.len() < 2 {
            if mailbox.doorbell.answer() || rung {
                rung = false;
                obeyed.extend(mailbox.take());
                continue;
            }
            rung = mailbox.doorbell.arm();
            if !rung {
                mailbox.doorbell.bell().0.wait();
            }
            rung |= mailbox.doorbell.disarm();
        }
        assert_eq!(obeyed, [1, 2]);
        control.join().unwrap();
    });
}

/// A caller that stops waiting while a worker gives it a task: either of them has the task, and sees its last batch.
#[test]
fn a_task_is_the_workers_or_the_callers() {
    static CAME: Seen = Seen::nothing();
    explore("transfer", 5, || {
        let transfer = Arc::new(Transfer::new());
        let worker = {
            let transfer = transfer.clone();
            thread::spawn(move || {
                let task = Box::new(UnsafeCell::new(0));
                // SAFETY: loom checks that no other thread accesses this cell.
                task.with_mut(|batches| unsafe { *batches += 1 });
                transfer.give(task).err()
            })
        };
        let came = transfer.close();
        let stayed = worker.join().unwrap();
        assert!(came.is_some() != stayed.is_some());
        CAME.add(usize::from(came.is_some()));
        let batches = came.or(stayed).map(|task| {
            // SAFETY: as above.
            task.with(|batches| unsafe { *batches })
        });
        assert_eq!(batches, Some(1));
        assert!(transfer.close().is_none());
    });
    CAME.assert_all(2);
}

/// A queue that moves to another worker: loom rejects an order in which both use it, or in which the second does not
/// see the first one's changes.
#[test]
fn a_queue_that_moves_is_never_used_by_two_workers() {
    /// The commands of [`crate::worker::handle`], with a queue that counts its batches.
    enum Order {
        Add(Box<UnsafeCell<u32>>),
        Remove,
        Stop,
    }
    type Orders = Arc<Mailbox<Order, LoomBell>>;
    fn work(orders: &Orders, given_back: &Mailbox<Box<UnsafeCell<u32>>, LoomBell>) -> Option<u32> {
        let mut owned: Option<Box<UnsafeCell<u32>>> = None;
        let batch = |queue: &UnsafeCell<u32>| {
            queue.with_mut(|batches| {
                // SAFETY: loom checks that no other thread accesses this cell.
                unsafe { *batches += 1 };
            });
        };
        loop {
            if orders.doorbell.answer() {
                for order in orders.take() {
                    match order {
                        Order::Add(queue) => owned = Some(queue),
                        Order::Remove => owned.take().into_iter().for_each(|queue| given_back.send(queue)),
                        Order::Stop => {
                            return owned.map(|queue| {
                                // SAFETY: as above.
                                queue.with(|batches| unsafe { *batches })
                            });
                        }
                    }
                    owned.iter().for_each(|queue| batch(queue));
                }
            } else if !orders.doorbell.arm() {
                orders.doorbell.bell().0.wait();
            } else {
                orders.doorbell.ring();
            }
        }
    }
    explore("queue swap", 2, || {
        let [old, new]: [Orders; 2] = [(); 2].map(|()| Arc::new(Mailbox::new(LoomBell::new())));
        let given_back = Arc::new(Mailbox::new(LoomBell::new()));
        let workers = [&old, &new].map(|orders| {
            let (orders, given_back) = (orders.clone(), given_back.clone());
            thread::spawn(move || work(&orders, &given_back))
        });
        old.send(Order::Add(Box::new(UnsafeCell::new(0))));
        old.send(Order::Remove);
        let mut moved = None;
        while moved.is_none() {
            if !given_back.doorbell.arm() {
                given_back.doorbell.bell().0.wait();
            }
            let _ = given_back.doorbell.disarm();
            moved = given_back.take().pop();
        }
        new.send(Order::Add(moved.unwrap()));
        [&old, &new].iter().for_each(|orders| orders.send(Order::Stop));
        let [left, batches] = workers.map(|worker| worker.join().unwrap());
        assert_eq!((left, batches), (None, Some(2)));
    });
}

/// A worker whose state is taken while it runs a task, just before, or just after: one thread owns the state, and a
/// task is run only by the thread that has it, until it is returned.
#[test]
fn a_workers_state_is_owned_by_one_thread_and_its_tasks_run_by_one() {
    /// A task, as a count of its runs, and a worker's state with two tasks, one of which may be lent.
    type Task = Box<UnsafeCell<u32>>;
    struct WorkerState(Task, Option<Task>);
    fn run(task: &Task) {
        task.with_mut(|runs| {
            // SAFETY: loom checks that no other thread accesses this cell.
            unsafe { *runs += 1 };
        });
    }
    fn runs(task: &Task) -> u32 {
        // SAFETY: as above.
        task.with(|runs| unsafe { *runs })
    }
    static RELIEVED: Seen = Seen::nothing();
    explore("relief", 3, || {
        let task = || Box::new(UnsafeCell::new(0));
        let (handoff, back) = (Arc::new(Handoff::new()), Arc::new(Mailbox::new(LoomBell::new())));
        let (its_handoff, its_back) = (handoff.clone(), back.clone());
        let worker = thread::spawn(move || {
            let mut state = Box::new(WorkerState(task(), Some(task())));
            for _ in 0..2 {
                let Some(lent) = state.1.take() else { break };
                its_handoff.put(state);
                run(&lent);
                match its_handoff.take() {
                    Some(mine) => {
                        state = mine;
                        run(&state.0);
                        state.1 = Some(lent);
                    }
                    None => {
                        its_back.send(lent);
                        return None;
                    }
                }
            }
            Some(state)
        });
        // The watchdog and the stand-in.
        let taken = if handoff.is_occupied() { handoff.take() } else { None };
        let relieved = taken.is_some();
        let stood_in = taken.map(|mut state| {
            run(&state.0);
            while state.1.is_none() {
                if !back.doorbell.arm() {
                    back.doorbell.bell().0.wait();
                }
                let _ = back.doorbell.disarm();
                state.1 = back.take().pop();
            }
            run(state.1.as_ref().unwrap());
            state
        });
        let kept = worker.join().unwrap();
        assert_eq!(kept.is_none(), relieved);
        let state = stood_in.or(kept).unwrap();
        // No run is lost. Either the worker alone runs both tasks twice, or the lent one is one ahead at the relief and
        // run once after it.
        let (rest, lent) = (runs(&state.0), runs(state.1.as_ref().unwrap()));
        assert!(if relieved { lent == rest + 1 } else { (rest, lent) == (2, 2) }, "{rest} {lent}");
        RELIEVED.add(usize::from(relieved));
    });
    RELIEVED.assert_all(2);
}

/// A worker that is marked as stuck during a batch, or by mistake: unpublished objects are kept until it has passed a
/// quiescent point, and then dropped.
#[test]
fn nothing_is_dropped_under_a_worker_that_is_stuck() {
    /// "Dies" when it is dropped.
    struct Dying(Box<BridgeState>);
    impl Drop for Dying {
        fn drop(&mut self) {
            self.0.logic.port_removed(DIE);
        }
    }
    static KEPT: Seen = Seen::nothing();
    explore("stuck", 3, || {
        let published = Arc::new(PublishedBridge::new(bridge_state()));
        let reclaim = Arc::new(Reclaim::new(std::sync::Arc::new(Quiescence::new(1))));
        let (its_published, its_reclaim) = (published.clone(), reclaim.clone());
        let worker = thread::spawn(move || {
            let quiescence = &its_reclaim.quiescence;
            quiescence.wake(0);
            batch(&its_published);
            quiescence.pass(0);
            batch(&its_published);
            quiescence.sleep(0);
            quiescence.set_stuck(0, false);
        });
        reclaim.quiescence.set_stuck(0, true);
        reclaim.retire(Dying(published.swap(bridge_state())));
        KEPT.add(usize::from(reclaim.has_held()));
        // Collects at once what may be dropped before the worker has ended: loom detects if that is too early.
        drop(reclaim.collect());
        worker.join().unwrap();
        drop(reclaim.collect());
        assert!(!reclaim.has_held());
    });
    KEPT.assert_all(2);
}

/// A worker that retains packets while the bridge's state names the queue, a drain that sleeps when it has taken all,
/// and a control plane that removes the queue: each packet is taken once, by the drain or by the closing thread, and
/// none comes after that.
#[test]
fn a_drain_loses_no_packet_and_gets_none_after_its_end() {
    let (first, second) = (packets(&[11], LEN), packets(&[12], LEN));
    static DRAINED: Seen = Seen::nothing();
    static RETAINED: Seen = Seen::nothing();
    explore("drain", 3, move || {
        let queue = Arc::new(ClassQueue::new(2));
        let (retained, doorbell) = (queue.retained.clone(), Arc::new(Doorbell::new(LoomBell::new())));
        let (named, stopped) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let quiescence = Arc::new(Quiescence::new(1));
        let worker = {
            let (named, doorbell, quiescence) = (named.clone(), doorbell.clone(), quiescence.clone());
            thread::spawn(move || {
                let mut sent = 0;
                for batch in [first, second] {
                    quiescence.wake(0);
                    if named.load(Ordering::Acquire) {
                        put(&queue, batch);
                        doorbell.ring();
                        sent += 1;
                    }
                    quiescence.sleep(0);
                }
                sent
            })
        };
        let drain = {
            let (retained, doorbell, stopped) = (retained.clone(), doorbell.clone(), stopped.clone());
            thread::spawn(move || {
                let mut got = Vec::new();
                while !stopped.load(Ordering::Acquire) {
                    let _ = doorbell.arm();
                    let taken = drained(&retained);
                    if taken.is_empty() && !stopped.load(Ordering::Acquire) {
                        doorbell.bell().0.wait();
                    }
                    let _ = doorbell.disarm();
                    got.extend(taken);
                }
                got
            })
        };
        // As `Switch::detach`: first the state, then the drain, then the remaining packets.
        named.store(false, Ordering::Release);
        quiescence.wait().unwrap();
        stopped.store(true, Ordering::Release);
        doorbell.ring();
        let mut got = drain.join().unwrap();
        DRAINED.add(got.len());
        got.extend(drained(&retained));
        let sent = worker.join().unwrap();
        RETAINED.add(sent);
        assert_eq!(got, [11, 12][..sent], "packets lost, doubled or out of order");
        assert!(drained(&retained).is_empty(), "retained after the end");
    });
    DRAINED.assert_all(3);
    RETAINED.assert_all(3);
}

/// A worker that lets a packet pass at once if none waits, and else has it wait, and the drain: what leaves is in the
/// order in which it came.
#[test]
fn packets_that_pass_at_once_do_not_overtake() {
    let batches = [packets(&[11], LEN), packets(&[12], LEN), packets(&[13], LEN)];
    static PASSED: Seen = Seen::nothing();
    explore("backlog", 3, move || {
        let (queue, backlog) = (Arc::new(ClassQueue::new(4)), Arc::new(Backlog::default()));
        let left = Arc::new(loom::sync::Mutex::new(Vec::new()));
        // The receiver has no room for the first one.
        backlog.begin(1);
        put(&queue, batches[0]);
        let worker = {
            let (queue, backlog, left) = (queue.clone(), backlog.clone(), left.clone());
            thread::spawn(move || {
                let mut passed = 0;
                for (number, batch) in [(12, batches[1]), (13, batches[2])] {
                    if backlog.is_none() {
                        left.lock().unwrap().push(number);
                        passed += 1;
                    } else {
                        backlog.begin(1);
                        put(&queue, batch);
                    }
                }
                passed
            })
        };
        let drain = || {
            for number in drained(&queue.retained) {
                left.lock().unwrap().push(number);
                backlog.end(1);
            }
        };
        drain();
        drain();
        PASSED.add(worker.join().unwrap());
        drain();
        assert_eq!(*left.lock().unwrap(), [11, 12, 13]);
        assert!(backlog.is_none());
    });
    PASSED.assert_all(3);
}

/// Puts the packets of a batch into a queue with room for them.
fn put(queue: &ClassQueue, packets: &Packets) {
    with_tools(|(tools, runs)| {
        let mut list = OutputList::of_all(&packets.0, runs, packets.0.len());
        assert_eq!(queue.put(&mut list, 0, tools).unwrap(), 0);
    });
}

/// Takes all packets out of the ring; returns their first bytes.
fn drained(retained: &Retained) -> Vec<u8> {
    let mut got = Vec::new();
    while let Some(packet) = retained.packet(retained.front()) {
        assert_eq!(packet.len, LEN as u32);
        retained.for_each_piece(&packet, |at, len| {
            assert_eq!(len, LEN as u32);
            // SAFETY: the piece has `len` bytes, and the packet is not released yet.
            got.push(unsafe { at.read() });
        });
        retained.release(packet.end());
    }
    got
}

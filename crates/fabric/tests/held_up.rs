//! Clients that hold a worker up: another thread goes on with all other queues, nothing of theirs is lost, doubled or put in
//! another order, and the worker comes back.
//!
//! A child that borrows the thread's memory until it has read from an empty pipe (`CLONE_VFORK`) stands for a page that the
//! kernel does not give: the thread sleeps, and no signal wakes it.
#![cfg(test)]
#![cfg(not(loom))]

mod support;

use std::ffi::{c_int, c_void};
use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fabric::switch::{BridgeId, PortRef, SwitchError, SwitchOptions};
use fabric::{
    AttachOptions, Attachment, Egress, Fault, OutputList, PortSettings, QueueCounters, RxBatch, RxQueue,
    SharedMemory, Switch, Tools,
};
use rustix::event::{EventfdFlags, eventfd};
use support::feed::{Feed, Sent};
use support::pair::Pair;
use support::rig::{self, ByFirstByte, Faults, attachment};
use support::{CallPort, frame, wait_until};

/// Withholds something from whoever asks, until it is let go.
struct Hold {
    page: PipeReader,
    gives: Mutex<Option<PipeWriter>>,
    on: AtomicBool,
    on_for_copies: AtomicBool,
    held: AtomicU64,
}

impl Hold {
    fn new() -> Arc<Self> {
        let (page, gives) = std::io::pipe().unwrap();
        Arc::new(Self {
            page,
            gives: Mutex::new(Some(gives)),
            on: AtomicBool::new(false),
            on_for_copies: AtomicBool::new(false),
            held: AtomicU64::new(0),
        })
    }

    fn touch(&self) {
        if self.on.load(Ordering::SeqCst) {
            self.held.fetch_add(1, Ordering::SeqCst);
            sleep_uninterruptibly(&self.page);
        }
    }

    /// From now on nobody is held up.
    fn let_go(&self) {
        self.on.store(false, Ordering::SeqCst);
        self.on_for_copies.store(false, Ordering::SeqCst);
        if let Some(gives) = self.gives.lock().unwrap().take() {
            let _ = (&gives).write(&[0; 64]);
        }
    }

    fn is_holding(&self) -> bool {
        self.held.load(Ordering::SeqCst) > 0
    }
}

/// Returns when something can be read.
fn sleep_uninterruptibly(from: &PipeReader) {
    extern "C" fn read(from: *mut c_void) -> c_int {
        let mut byte = 0u8;
        // SAFETY: a system call with a buffer of one byte; nothing else is done in the memory that is borrowed.
        unsafe { libc::read(from as c_int, (&raw mut byte).cast(), 1) };
        0
    }
    let mut stack = vec![0u128; 4096];
    let top = stack.as_mut_ptr_range().end;
    // SAFETY: the child has a stack of its own, which lives until it has ended: only then this returns.
    unsafe {
        let child = libc::clone(
            read,
            top.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            from.as_raw_fd() as *mut c_void,
        );
        assert!(child > 0, "{}", std::io::Error::last_os_error());
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}

/// A receiver that holds up who delivers to it.
struct HoldingEgress(Arc<Hold>, CallPort);

impl Egress for HoldingEgress {
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<(), Fault> {
        self.0.touch();
        self.1.deliver(list, counters, tools)
    }
}

/// A receiver to which a copy waits in the memory of some client.
struct CopyHeldBy(Arc<Hold>);

impl Egress for CopyHeldBy {
    fn deliver(&self, _: &mut OutputList<'_>, _: &QueueCounters, _: &mut Tools) -> Result<(), Fault> {
        if self.0.on_for_copies.load(Ordering::SeqCst) {
            // Whoever asks for its lock waits too.
            self.0.on.store(true, Ordering::SeqCst);
            self.0.touch();
        }
        Ok(())
    }
}

/// A sender that holds up who looks for its packets, or tells it something.
struct HoldingQueue(Arc<Hold>, Box<dyn RxQueue>);

impl RxQueue for HoldingQueue {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        self.0.touch();
        self.1.receive(batch)
    }

    fn complete(&mut self, tools: &mut Tools) -> Result<(), Fault> {
        self.1.complete(tools)
    }

    fn set_signalled(&mut self, on: bool) {
        self.1.set_signalled(on);
    }

    fn signal(&self) -> BorrowedFd<'_> {
        self.1.signal()
    }

    fn cheap_to_poll(&self) -> bool {
        self.1.cheap_to_poll()
    }
}

/// What a client shares.
struct Memory {
    hold: Arc<Hold>,
    /// Taking it away does not help.
    stubborn: bool,
}

impl SharedMemory for Memory {
    fn take_away(&self) {
        if !self.stubborn {
            self.hold.let_go();
        }
    }

    fn wait_for_holes(&self) {
        self.hold.touch();
    }
}

/// A client that holds workers up when it is told to, and lets go when its memory is taken away, or not even then.
struct Hostile {
    hold: Arc<Hold>,
    feed: Arc<Feed>,
    port: PortRef,
    faults: Faults,
}

impl Hostile {
    fn plug(switch: &Switch, bridge: BridgeId, name: &str, stubborn: bool) -> Self {
        let (hold, feed) = (Hold::new(), Feed::new());
        let port = switch.add_port(bridge, PortSettings::new(name)).unwrap();
        let queue = Box::new(HoldingQueue(hold.clone(), feed.queue()));
        let egress = Arc::new(HoldingEgress(hold.clone(), CallPort::default()));
        let (attachment, faults) = attachment(vec![queue], vec![egress]);
        let memory = Arc::new(Memory { hold: hold.clone(), stubborn });
        let options = AttachOptions { memory: Some(memory), ..AttachOptions::default() };
        switch.attach_with(port, attachment, options).unwrap();
        Self { hold, feed, port, faults }
    }

    fn start(&self) {
        self.hold.on.store(true, Ordering::SeqCst);
        // It is looked at because it sends.
        self.feed.send([Sent::whole(&frame(0, 60))]);
    }
}

fn relieved(switch: &Switch) -> u64 {
    switch.workers().iter().map(|worker| worker.counters.relieved).sum()
}

/// Exchanges packets until `done`, and returns the longest time without one.
fn exchange(pairs: &mut [Pair], done: impl Fn() -> bool) -> Duration {
    let deadline = Instant::now() + support::PATIENCE;
    let (mut longest, mut last, mut before) = (Duration::ZERO, Instant::now(), 0);
    while !done() {
        assert!(Instant::now() < deadline, "in vain");
        pairs.iter_mut().for_each(Pair::step);
        let received: u64 = pairs.iter().map(|pair| pair.received).sum();
        if received > before {
            longest = longest.max(last.elapsed());
            (last, before) = (Instant::now(), received);
        }
    }
    longest.max(last.elapsed())
}

/// Several clients, one after the other, hold up one of `workers` workers, whose other queues exchange packets all the time.
fn others_go_on(workers: usize, stubborn: bool) {
    let switch = rig::switch(workers);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let mut pairs: Vec<_> = (0..4).map(|i| Pair::plug(&switch, bridge, &format!("p{i}"))).collect();
    let hostile: Vec<_> =
        (0..3).map(|i| Hostile::plug(&switch, bridge, &format!("h{i}"), stubborn)).collect();
    for (number, client) in (1..).zip(&hostile) {
        client.start();
        let began = Instant::now();
        let pause = exchange(&mut pairs, || {
            client.faults.seen() == [Fault::Stalled] && began.elapsed() > Duration::from_millis(100)
        });
        assert!(client.hold.is_holding());
        assert!(relieved(&switch) >= number);
        // Far less than the thread was held up for: it still is, or it came out because somebody noticed.
        assert!(pause < Duration::from_millis(80), "nothing came for {pause:?}");
        switch.detach(client.port).unwrap();
    }
    hostile.iter().for_each(|client| client.hold.let_go());
    let until = Instant::now() + Duration::from_millis(50);
    exchange(&mut pairs, || Instant::now() > until);
    pairs.iter_mut().for_each(Pair::settle);
    assert!(pairs.iter().all(|pair| pair.received > 0));
}

#[test]
fn others_go_on_with_one_worker() {
    others_go_on(1, false);
}

#[test]
fn others_go_on_with_two_workers() {
    others_go_on(2, false);
}

/// As many at once as there are threads that stand in.
#[test]
fn others_go_on_while_threads_stay_stuck() {
    others_go_on(1, true);
}

/// The packets of a bystander that are in the batch come when it is over, in their place among the others.
#[test]
fn a_batch_that_is_held_up_ends_in_order() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let mut pair = Pair::plug(&switch, bridge, "p");
    let client = Hostile::plug(&switch, bridge, "h", true);
    client.hold.on.store(true, Ordering::SeqCst);
    let mut to_it = pair.packet(0);
    to_it[0] = client.port.port.0 as u8;
    // One for the hostile client among those for the other: it is delivered first, and holds up the rest.
    pair.feed.send([Sent::whole(&to_it)]);
    wait_until("a worker is held up", || client.hold.is_holding());
    (0..50).for_each(|_| {
        let packet = pair.packet(pair.sent);
        pair.feed.send([Sent::whole(&packet)]);
        pair.sent += 1;
    });
    wait_until("the port is told", || client.faults.seen() == [Fault::Stalled]);
    client.hold.let_go();
    pair.settle();
    assert_eq!(pair.received, 50);
    assert!(relieved(&switch) > 0);
}

/// A payload goes from one client's memory to another's, and either may hold up the thread that copies it.
fn the_culprit_is_found(sender: bool) {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let mut pair = Pair::plug(&switch, bridge, "p");
    let [from, to] = ["from", "to"].map(|name| Hostile::plug(&switch, bridge, name, true));
    let (culprit, innocent) = if sender { (&from, &to) } else { (&to, &from) };
    // The copy waits wherever the memory is.
    let copy = CopyHeldBy(culprit.hold.clone());
    let (attachment, _) = attachment(vec![], vec![Arc::new(copy)]);
    let options = AttachOptions {
        memory: Some(Arc::new(Memory { hold: to.hold.clone(), stubborn: true })),
        ..AttachOptions::default()
    };
    switch.detach(to.port).unwrap();
    switch
        .attach_with(to.port, Attachment { on_fault: to.faults.listener(), ..attachment }, options)
        .unwrap();
    let mut packet = frame(0, 200);
    packet[0] = to.port.port.0 as u8;
    culprit.hold.on_for_copies.store(true, Ordering::SeqCst);
    from.feed.send([Sent::whole(&packet)]);
    let pause = exchange(std::slice::from_mut(&mut pair), || culprit.faults.seen() == [Fault::Stalled]);
    assert!(pause < Duration::from_millis(80), "nothing came for {pause:?}");
    assert_eq!(innocent.faults.seen(), []);
    culprit.hold.let_go();
    pair.settle();
}

#[test]
fn a_sender_that_holds_a_copy_up_is_found() {
    the_culprit_is_found(true);
}

#[test]
fn a_receiver_that_holds_a_copy_up_is_found() {
    the_culprit_is_found(false);
}

/// Memory that was swapped out, say: who holds a worker up for some milliseconds is served again.
#[test]
fn who_lets_go_soon_keeps_its_port() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let mut pair = Pair::plug(&switch, bridge, "p");
    let client = Hostile::plug(&switch, bridge, "h", true);
    client.start();
    wait_until("another thread stands in", || relieved(&switch) > 0);
    client.hold.let_go();
    let mut to_it = pair.packet(0);
    to_it[0] = client.port.port.0 as u8;
    wait_until("it is served", || {
        pair.feed.send([Sent::whole(&to_it)]);
        pair.step();
        rig::packets(&switch, client.port).1 > 0
    });
    pair.settle();
    assert_eq!(client.faults.seen(), []);
}

/// Says when it is dropped.
struct Replaced(Arc<AtomicBool>);

impl Drop for Replaced {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Ports are added, replaced and removed while a thread is stuck, and nothing that it uses goes before it comes out.
#[test]
fn the_control_plane_waits_for_nobody() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let client = Hostile::plug(&switch, bridge, "h", true);
    client.start();
    wait_until("the port is told", || client.faults.seen() == [Fault::Stalled]);
    let dropped = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    switch.retire(Replaced(dropped.clone()));
    switch.remove_port(client.port).unwrap();
    let mut pair = Pair::plug(&switch, bridge, "p");
    (0..100).for_each(|_| pair.step());
    pair.settle();
    switch.set_logic(bridge, Arc::new(ByFirstByte)).unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "it took {:?}", began.elapsed());
    assert!(!dropped.load(Ordering::SeqCst), "dropped under a thread that may be using it");
    client.hold.let_go();
    wait_until("it is dropped after all", || dropped.load(Ordering::SeqCst));
}

/// Its queues are taken away, and come as soon as the thread does.
#[test]
fn a_bystander_that_leaves_waits_for_its_own_queue_alone() {
    let switch = Arc::new(rig::switch(1));
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let pair = Pair::plug(&switch, bridge, "p");
    let client = Hostile::plug(&switch, bridge, "h", true);
    client.hold.on.store(true, Ordering::SeqCst);
    let mut to_it = pair.packet(0);
    to_it[0] = client.port.port.0 as u8;
    pair.feed.send([Sent::whole(&to_it)]);
    wait_until("the port is told", || client.faults.seen() == [Fault::Stalled]);
    let (leaving, from) = (switch.clone(), pair.from);
    let left = std::thread::spawn(move || leaving.detach(from).unwrap());
    wait_until("the switch answers", || !switch.counters(pair.from).unwrap().up);
    assert!(!left.is_finished(), "its queue is in use");
    client.hold.let_go();
    left.join().unwrap();
    assert!(pair.feed.gone.load(Ordering::SeqCst), "its queue is left");
}

/// A worker whose thread is stuck does not keep the process from ending.
#[test]
fn the_switch_ends_without_who_is_stuck() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let client = Hostile::plug(&switch, bridge, "h", true);
    client.start();
    wait_until("the port is told", || client.faults.seen() == [Fault::Stalled]);
    let began = Instant::now();
    drop(switch);
    assert!(began.elapsed() < Duration::from_secs(4), "it took {:?}", began.elapsed());
    client.hold.let_go();
}

/// A receiver that wants to be told.
struct Ringing(OwnedFd, CallPort);

impl Egress for Ringing {
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<(), Fault> {
        tools.notifier.add(self.0.as_raw_fd());
        self.1.deliver(list, counters, tools)
    }
}

/// Who got a packet of a batch before the thread was held up is told at once, though the thread cannot.
#[test]
fn who_was_delivered_to_is_told_at_once() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let pair = Pair::plug(&switch, bridge, "p");
    let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let ringing = Arc::new(Ringing(bell.try_clone().unwrap(), CallPort::default()));
    let (listener, _) = rig::plug(&switch, bridge, "listener", vec![], vec![ringing]);
    let first = Hostile::plug(&switch, bridge, "h0", true);
    let second = Hostile::plug(&switch, bridge, "h1", true);
    first.start();
    wait_until("another thread stands in", || relieved(&switch) > 0);
    second.hold.on.store(true, Ordering::SeqCst);
    let (mut a, mut b) = (pair.packet(0), pair.packet(1));
    a[0] = listener.port.0 as u8;
    b[0] = second.port.port.0 as u8;
    pair.feed.send([Sent::whole(&a), Sent::whole(&b)]);
    wait_until("the stand-in is stuck", || second.hold.is_holding() && relieved(&switch) > 1);
    let mut count = [0; 8];
    wait_until("the listener is told", || rustix::io::read(&bell, &mut count).is_ok());
    second.hold.let_go();
    first.hold.let_go();
}

/// A queue whose batch is held up cannot move to another worker, and is not lost by the attempt.
#[test]
fn a_queue_that_is_held_up_stays() {
    let options = SwitchOptions { workers: vec![Some(0), Some(1)], ..SwitchOptions::default() };
    let switch = Switch::start(&options).unwrap();
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let mut pair = Pair::plug(&switch, bridge, "p");
    let client = Hostile::plug(&switch, bridge, "h", true);
    client.hold.on.store(true, Ordering::SeqCst);
    let mut to_it = pair.packet(0);
    to_it[0] = client.port.port.0 as u8;
    pair.feed.send([Sent::whole(&to_it)]);
    wait_until("relieved", || client.hold.is_holding() && relieved(&switch) > 0);
    let refused = (0..2).filter(|cpu| switch.pin(pair.from, 0, *cpu) == Err(SwitchError::HeldUp)).count();
    assert_eq!(refused, 1, "it is on one of them");
    client.hold.let_go();
    pair.step();
    pair.settle();
}

/// Waits until no thread is stuck any more.
fn wait_for_stuck(switch: &Switch) {
    let dropped = Arc::new(AtomicBool::new(false));
    switch.retire(Replaced(dropped.clone()));
    wait_until("the stuck thread comes out", || dropped.load(Ordering::SeqCst));
}

/// A thread that comes late writes nothing into the ring of a client that has gone.
#[test]
fn nothing_reaches_who_was_detached() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let mut pair = Pair::plug(&switch, bridge, "p");
    let client = Hostile::plug(&switch, bridge, "h", true);
    client.hold.on.store(true, Ordering::SeqCst);
    let mut to_it = pair.packet(0);
    to_it[0] = client.port.port.0 as u8;
    pair.feed.send([Sent::whole(&to_it), Sent::whole(&pair.packet(0))]);
    wait_until("relieved", || client.hold.is_holding() && relieved(&switch) > 0);
    let to = PortRef { bridge, port: fabric::PortIndex(u16::from(pair.to)) };
    switch.detach(to).unwrap();
    pair.step_receive();
    assert_eq!(pair.received, 0);
    client.hold.let_go();
    wait_for_stuck(&switch);
    pair.step_receive();
    assert_eq!(pair.received, 0, "written into the ring after detach had returned");
}

/// Two clients hold up the same batch, one after the other: each answers for itself.
#[test]
fn blame_moves_with_the_thread() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let pair = Pair::plug(&switch, bridge, "p");
    let honest = Hostile::plug(&switch, bridge, "swapped", true);
    let hostile = Hostile::plug(&switch, bridge, "h", true);
    honest.hold.on.store(true, Ordering::SeqCst);
    hostile.hold.on.store(true, Ordering::SeqCst);
    let (mut a, mut b) = (pair.packet(0), pair.packet(1));
    a[0] = honest.port.port.0 as u8;
    b[0] = hostile.port.port.0 as u8;
    pair.feed.send([Sent::whole(&a), Sent::whole(&b)]);
    wait_until("relieved", || honest.hold.is_holding() && relieved(&switch) > 0);
    honest.hold.let_go();
    wait_until("at the other", || hostile.hold.is_holding());
    wait_until("its port is told", || hostile.faults.seen() == [Fault::Stalled]);
    assert_eq!(honest.faults.seen(), []);
    hostile.hold.let_go();
}

/// What a thread brings late from a client that has gone does not enter at the port that another one has in its place.
#[test]
fn late_packets_enter_nowhere() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let listener = rig::plug(&switch, bridge, "listener", vec![], vec![Arc::new(CallPort::default())]).0;
    let client = Hostile::plug(&switch, bridge, "h", true);
    let mut packet = frame(0, 60);
    packet[0] = listener.port.0 as u8;
    client.hold.on.store(true, Ordering::SeqCst);
    client.feed.send([Sent::whole(&packet)]);
    wait_until("the port is told", || client.faults.seen() == [Fault::Stalled]);
    switch.remove_port(client.port).unwrap();
    let feed = Feed::new();
    let (other, _) = rig::plug(&switch, bridge, "other", vec![feed.queue()], vec![]);
    assert_eq!(other.port, client.port.port);
    client.hold.let_go();
    wait_for_stuck(&switch);
    assert_eq!(
        rig::packets(&switch, listener),
        (0, 0),
        "a packet of a removed port was taken for the new one's"
    );
}

/// Holds up who tells it that signals are not needed.
struct HoldingTold(Arc<Hold>, Box<dyn RxQueue>);

impl RxQueue for HoldingTold {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        self.1.receive(batch)
    }
    fn complete(&mut self, tools: &mut Tools) -> Result<(), Fault> {
        self.1.complete(tools)
    }
    fn set_signalled(&mut self, on: bool) {
        if !on {
            self.0.touch();
        }
        self.1.set_signalled(on);
    }
    fn signal(&self) -> BorrowedFd<'_> {
        self.1.signal()
    }
    fn cheap_to_poll(&self) -> bool {
        true
    }
}

/// One who was signalled in the same moment as the one who holds the thread up is not slept over.
#[test]
fn who_was_signalled_at_the_same_time_is_served() {
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        let switch = rig::switch(1);
        let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
        let mut pair = Pair::plug(&switch, bridge, "p");
        let (hold, feed) = (Hold::new(), Feed::new());
        let queue = Box::new(HoldingTold(hold.clone(), feed.queue()));
        rig::plug(&switch, bridge, "h", vec![queue], vec![]);
        wait_until("both queues are armed", || pair.feed.wants_signal() && feed.wants_signal());
        hold.on.store(true, Ordering::SeqCst);
        let (to_nobody, to_it) = (Sent::whole(&frame(0, 60)), Sent::whole(&pair.packet(0)));
        pair.feed.send([to_it]);
        feed.send([to_nobody]);
        pair.sent += 1;
        let began = Instant::now();
        while pair.received == 0 && began.elapsed() < Duration::from_millis(500) {
            pair.step_receive();
        }
        longest = longest.max(began.elapsed());
        hold.let_go();
        pair.settle();
    }
    assert!(longest < Duration::from_millis(80), "a bystander waited for {longest:?}");
}

//! Clients that hold a worker up: another thread takes over all other queues, none of their packets is lost, doubled or
//! reordered, and the worker comes back.
//!
//! A child that borrows the thread's memory until it has read from an empty pipe (`CLONE_VFORK`) stands for a page that
//! the kernel withholds: the thread sleeps, and no signal wakes it.
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
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use support::feed::{Feed, Sent};
use support::pair::Pair;
use support::rig::{self, ByFirstByte, Faults, attachment};
use support::{CallPort, frame, wait_until};

/// Blocks threads that enter it, until it is released.
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

    /// Blocks threads that enter from now on.
    fn hold(&self) {
        self.on.store(true, Ordering::SeqCst);
    }

    fn touch(&self) {
        if self.on.load(Ordering::SeqCst) {
            self.held.fetch_add(1, Ordering::SeqCst);
            sleep_uninterruptibly(&self.page);
        }
    }

    /// Releases all threads, and blocks none from now on.
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

/// Returns when the descriptor is readable.
fn sleep_uninterruptibly(from: &PipeReader) {
    extern "C" fn read(from: *mut c_void) -> c_int {
        let mut byte = 0u8;
        // SAFETY: system calls with a number and a one-byte buffer; the borrowed memory is not used otherwise.
        unsafe {
            // Leaves nothing behind if the test fails.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::read(from as c_int, (&raw mut byte).cast(), 1);
        }
        0
    }
    let mut stack = vec![0u128; 4096];
    let top = stack.as_mut_ptr_range().end;
    // SAFETY: the child has its own stack, which lives until the child has ended: only then this returns.
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

/// A receiver that blocks threads that deliver to it.
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

/// A receiver whose delivery copies from memory that blocks.
struct CopyHeldBy(Arc<Hold>);

impl Egress for CopyHeldBy {
    fn deliver(&self, _: &mut OutputList<'_>, _: &QueueCounters, _: &mut Tools) -> Result<(), Fault> {
        if self.0.on_for_copies.load(Ordering::SeqCst) {
            // A probe of its file lock waits too.
            self.0.hold();
            self.0.touch();
        }
        Ok(())
    }
}

/// A sender that blocks threads that poll it or notify it.
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

/// The memory that a client shares.
struct Memory {
    hold: Arc<Hold>,
    /// Taking the memory away does not release the thread.
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

/// A client that holds workers up on demand, and lets go when its memory is taken away, or not even then.
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
        self.hold.hold();
        // The worker polls it because it sends.
        self.feed.send([Sent::whole(&frame(0, 60))]);
    }

    /// Holds up the worker that switches the next batch of `pair`.
    fn hold_up_batch_of(&self, pair: &Pair) {
        self.hold.hold();
        pair.feed.send([to(self.port, &pair.packet(0))]);
    }
}

/// One switch of `workers` workers, with one bridge.
fn lab(workers: usize) -> (Switch, BridgeId) {
    let switch = rig::switch(workers);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    (switch, bridge)
}

/// A packet for another port.
fn to(port: PortRef, packet: &[u8]) -> Sent {
    let mut packet = packet.to_vec();
    packet[0] = port.port.0 as u8;
    Sent::whole(&packet)
}

fn relieved(switch: &Switch) -> u64 {
    switch.workers().iter().map(|worker| worker.counters.relieved).sum()
}

/// Exchanges packets until `done`, and returns the longest time without one.
fn exchange(pairs: &mut [Pair], done: impl Fn() -> bool) -> Duration {
    let deadline = Instant::now() + support::PATIENCE;
    let (mut longest, mut last, mut before) = (Duration::ZERO, Instant::now(), 0);
    while !done() {
        assert!(Instant::now() < deadline, "timed out");
        pairs.iter_mut().for_each(Pair::step);
        let received: u64 = pairs.iter().map(|pair| pair.received).sum();
        if received > before {
            longest = longest.max(last.elapsed());
            (last, before) = (Instant::now(), received);
        }
    }
    longest.max(last.elapsed())
}

/// Several clients in turn hold up one of `workers` workers, whose other queues exchange packets all the time.
fn others_go_on(workers: usize, stubborn: bool) {
    let (switch, bridge) = lab(workers);
    let mut pairs: Vec<_> = (0..4).map(|i| Pair::plug(&switch, bridge, &format!("p{i}"))).collect();
    let hostile: Vec<_> =
        (0..3).map(|i| Hostile::plug(&switch, bridge, &format!("h{i}"), stubborn)).collect();
    for (number, client) in (1..).zip(&hostile) {
        client.start();
        let began = Instant::now();
        let pause = exchange(&mut pairs, || {
            client.faults.seen() == [Fault::Stalled] && began.elapsed() > Duration::from_millis(600)
        });
        assert!(client.hold.is_holding());
        assert!(relieved(&switch) >= number);
        // Far less than the thread was held up for: it still is, or it came out because the watchdog noticed.
        assert!(pause < Duration::from_millis(400), "no packet for {pause:?}");
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

/// As many at once as there are stand-ins.
#[test]
fn others_go_on_while_threads_stay_stuck() {
    others_go_on(1, true);
}

/// A bystander's packets within the batch arrive when it is over, in their place among the others.
#[test]
fn a_batch_that_is_held_up_ends_in_order() {
    let (switch, bridge) = lab(1);
    let mut pair = Pair::plug(&switch, bridge, "p");
    let client = Hostile::plug(&switch, bridge, "h", true);
    client.hold_up_batch_of(&pair);
    wait_until("a worker is held up", || client.hold.is_holding());
    (0..50).for_each(|_| {
        let packet = pair.packet(pair.sent);
        pair.feed.send([Sent::whole(&packet)]);
        pair.sent += 1;
    });
    wait_until("the fault is reported", || client.faults.seen() == [Fault::Stalled]);
    client.hold.let_go();
    pair.settle();
    assert_eq!(pair.received, 50);
    assert!(relieved(&switch) > 0);
}

/// A payload goes from one client's memory to another's, and either may hold up the copying thread.
fn the_culprit_is_found(sender: bool) {
    let (switch, bridge) = lab(1);
    let mut pair = Pair::plug(&switch, bridge, "p");
    let [from, into] = ["from", "into"].map(|name| Hostile::plug(&switch, bridge, name, true));
    let (culprit, innocent) = if sender { (&from, &into) } else { (&into, &from) };
    // The copy waits in either memory.
    let copy = CopyHeldBy(culprit.hold.clone());
    let (attachment, _) = attachment(vec![], vec![Arc::new(copy)]);
    let options = AttachOptions {
        memory: Some(Arc::new(Memory { hold: into.hold.clone(), stubborn: true })),
        ..AttachOptions::default()
    };
    switch.detach(into.port).unwrap();
    switch
        .attach_with(into.port, Attachment { on_fault: into.faults.listener(), ..attachment }, options)
        .unwrap();
    culprit.hold.on_for_copies.store(true, Ordering::SeqCst);
    from.feed.send([to(into.port, &frame(0, 200))]);
    let pause = exchange(std::slice::from_mut(&mut pair), || culprit.faults.seen() == [Fault::Stalled]);
    assert!(pause < Duration::from_millis(400), "no packet for {pause:?}");
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

/// A client that holds a worker up for some milliseconds, with swapped-out memory for instance, is served again.
#[test]
fn a_client_that_lets_go_soon_keeps_its_port() {
    let (switch, bridge) = lab(1);
    let mut pair = Pair::plug(&switch, bridge, "p");
    let client = Hostile::plug(&switch, bridge, "h", true);
    client.start();
    wait_until("another thread stands in", || relieved(&switch) > 0);
    client.hold.let_go();
    wait_until("it is served", || {
        pair.feed.send([to(client.port, &pair.packet(0))]);
        pair.step();
        rig::packets(&switch, client.port).1 > 0
    });
    pair.settle();
    assert_eq!(client.faults.seen(), []);
}

/// Reports when it is dropped.
struct Replaced(Arc<AtomicBool>);

impl Drop for Replaced {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Ports are added, replaced and removed while a thread is stuck, and nothing that it uses is dropped before it comes
/// out.
#[test]
fn the_control_plane_does_not_wait_for_stuck_threads() {
    let (switch, bridge) = lab(1);
    let client = Hostile::plug(&switch, bridge, "h", true);
    client.start();
    wait_until("the fault is reported", || client.faults.seen() == [Fault::Stalled]);
    let dropped = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    switch.retire(Replaced(dropped.clone()));
    switch.remove_port(client.port).unwrap();
    let mut pair = Pair::plug(&switch, bridge, "p");
    (0..100).for_each(|_| pair.step());
    pair.settle();
    switch.set_logic(bridge, Arc::new(ByFirstByte)).unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "it took {:?}", began.elapsed());
    assert!(!dropped.load(Ordering::SeqCst), "dropped while a thread may be using it");
    client.hold.let_go();
    wait_until("it is dropped after all", || dropped.load(Ordering::SeqCst));
}

/// Its queues are taken away, and arrive as soon as the thread comes out.
#[test]
fn a_bystander_that_leaves_waits_for_its_own_queue_alone() {
    let switch = Arc::new(rig::switch(1));
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let pair = Pair::plug(&switch, bridge, "p");
    let client = Hostile::plug(&switch, bridge, "h", true);
    client.hold_up_batch_of(&pair);
    wait_until("the fault is reported", || client.faults.seen() == [Fault::Stalled]);
    let (leaving, from) = (switch.clone(), pair.from);
    let left = std::thread::spawn(move || leaving.detach(from).unwrap());
    wait_until("the switch answers", || !switch.counters(pair.from).unwrap().up);
    assert!(!left.is_finished(), "its queue is in use");
    client.hold.let_go();
    left.join().unwrap();
    assert!(pair.feed.gone.load(Ordering::SeqCst), "its queue was not dropped");
}

/// A worker whose thread is stuck does not keep the process from ending.
#[test]
fn the_switch_ends_despite_a_stuck_thread() {
    let (switch, bridge) = lab(1);
    let client = Hostile::plug(&switch, bridge, "h", true);
    client.start();
    wait_until("the fault is reported", || client.faults.seen() == [Fault::Stalled]);
    let began = Instant::now();
    drop(switch);
    assert!(began.elapsed() < Duration::from_secs(4), "it took {:?}", began.elapsed());
    client.hold.let_go();
}

/// A receiver that asks for notification.
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

/// A receiver of a delivery made before the thread was held up is notified at once, though that thread cannot.
#[test]
fn receivers_of_earlier_deliveries_are_notified_at_once() {
    let (switch, bridge) = lab(1);
    let pair = Pair::plug(&switch, bridge, "p");
    let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let ringing = Arc::new(Ringing(bell.try_clone().unwrap(), CallPort::default()));
    let (listener, _) = rig::plug(&switch, bridge, "listener", vec![], vec![ringing]);
    let first = Hostile::plug(&switch, bridge, "h0", true);
    let second = Hostile::plug(&switch, bridge, "h1", true);
    first.start();
    wait_until("another thread stands in", || relieved(&switch) > 0);
    second.hold.hold();
    pair.feed.send([to(listener, &pair.packet(0)), to(second.port, &pair.packet(1))]);
    wait_until("the stand-in is stuck", || second.hold.is_holding() && relieved(&switch) > 1);
    let mut count = [0; 8];
    wait_until("the listener is notified", || rustix::io::read(&bell, &mut count).is_ok());
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
    client.hold_up_batch_of(&pair);
    wait_until("relieved", || client.hold.is_holding() && relieved(&switch) > 0);
    let refused = (0..2).filter(|cpu| switch.pin(pair.from, 0, *cpu) == Err(SwitchError::HeldUp)).count();
    assert_eq!(refused, 1, "it is on one of them");
    client.hold.let_go();
    pair.step();
    pair.settle();
}

/// A worker whose queue is held up is not removed, nor is another one whose place the queue's worker would take. The
/// queue's worker can take the place of a worker without such a queue.
#[test]
fn a_worker_whose_queue_is_held_up_stays() {
    let options = SwitchOptions { workers: vec![Some(0), Some(1)], ..SwitchOptions::default() };
    let switch = Switch::start(&options).unwrap();
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let mut pair = Pair::plug(&switch, bridge, "p");
    switch.pin(pair.from, 0, 1).unwrap();
    switch.unpin(pair.from, 0).unwrap();
    let client = Hostile::plug(&switch, bridge, "h", true);
    client.hold_up_batch_of(&pair);
    wait_until("relieved", || client.hold.is_holding() && relieved(&switch) > 0);
    for cpu in 0..2 {
        assert_eq!(switch.remove_worker(Some(cpu)), Err(SwitchError::HeldUp));
    }
    let cpus = || switch.workers().iter().map(|worker| worker.cpu).collect::<Vec<_>>();
    assert_eq!(cpus(), [Some(0), Some(1)]);
    switch.add_worker(Some(0)).unwrap();
    switch.remove_worker(Some(1)).unwrap();
    assert_eq!(cpus(), [Some(0), Some(0)]);
    client.hold.let_go();
    pair.step();
    pair.settle();
    switch.remove_worker(Some(0)).unwrap();
    pair.step();
    pair.settle();
}

/// Waits until no thread is stuck any more.
fn wait_for_stuck(switch: &Switch) {
    let dropped = Arc::new(AtomicBool::new(false));
    switch.retire(Replaced(dropped.clone()));
    wait_until("the stuck thread comes out", || dropped.load(Ordering::SeqCst));
}

/// A thread that comes late writes nothing into the ring of a detached client.
#[test]
fn nothing_reaches_a_detached_client() {
    let (switch, bridge) = lab(1);
    let mut pair = Pair::plug(&switch, bridge, "p");
    let client = Hostile::plug(&switch, bridge, "h", true);
    client.hold.hold();
    pair.feed.send([to(client.port, &pair.packet(0)), Sent::whole(&pair.packet(0))]);
    wait_until("relieved", || client.hold.is_holding() && relieved(&switch) > 0);
    let receiver = PortRef { bridge, port: fabric::PortIndex(u16::from(pair.to)) };
    switch.detach(receiver).unwrap();
    pair.step_receive();
    assert_eq!(pair.received, 0);
    client.hold.let_go();
    wait_for_stuck(&switch);
    pair.step_receive();
    assert_eq!(pair.received, 0, "written into the ring after detach had returned");
}

/// Two clients hold up the same batch in turn: each answers for itself.
#[test]
fn blame_moves_with_the_thread() {
    let (switch, bridge) = lab(1);
    let pair = Pair::plug(&switch, bridge, "p");
    let honest = Hostile::plug(&switch, bridge, "swapped", true);
    let hostile = Hostile::plug(&switch, bridge, "h", true);
    honest.hold.hold();
    hostile.hold.hold();
    pair.feed.send([to(honest.port, &pair.packet(0)), to(hostile.port, &pair.packet(1))]);
    wait_until("relieved", || honest.hold.is_holding() && relieved(&switch) > 0);
    honest.hold.let_go();
    wait_until("the thread is stuck at the other client", || hostile.hold.is_holding());
    wait_until("its fault is reported", || hostile.faults.seen() == [Fault::Stalled]);
    assert_eq!(honest.faults.seen(), []);
    hostile.hold.let_go();
}

/// Packets that a thread brings late from a detached client do not enter at the port's next client.
#[test]
fn late_packets_do_not_enter_the_bridge() {
    let (switch, bridge) = lab(1);
    let listener = rig::plug(&switch, bridge, "listener", vec![], vec![Arc::new(CallPort::default())]).0;
    let client = Hostile::plug(&switch, bridge, "h", true);
    client.hold.hold();
    client.feed.send([to(listener, &frame(0, 60))]);
    wait_until("the fault is reported", || client.faults.seen() == [Fault::Stalled]);
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

/// Blocks the thread that disables its signals.
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

/// A queue signalled at the same moment as one whose client holds the thread up is not missed.
#[test]
fn a_queue_signalled_at_the_same_time_is_served() {
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        let (switch, bridge) = lab(1);
        let mut pair = Pair::plug(&switch, bridge, "p");
        let (hold, feed) = (Hold::new(), Feed::new());
        let queue = Box::new(HoldingTold(hold.clone(), feed.queue()));
        rig::plug(&switch, bridge, "h", vec![queue], vec![]);
        wait_until("both queues are armed", || pair.feed.wants_signal() && feed.wants_signal());
        hold.hold();
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
    assert!(longest < Duration::from_millis(400), "a bystander waited for {longest:?}");
}

/// An eventfd that takes `at_least` of CPU time to signal, because of the returned epoll instances that watch it.
fn expensive_bell(at_least: Duration) -> (OwnedFd, Vec<OwnedFd>) {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    // An instance watches a descriptor once, but one open file description can have many descriptors.
    let mut all: Vec<_> = (0..400).map(|_| bell.try_clone().unwrap()).collect();
    for _ in 0..3000 {
        let watcher = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        for fd in all.iter().take(400) {
            epoll::add(&watcher, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
        }
        all.push(watcher);
        let cpu_time = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
        let before = cpu_time();
        rustix::io::write(&bell, &1u64.to_ne_bytes()).unwrap();
        let took = cpu_time() - before;
        rustix::io::read(&bell, &mut [0; 8]).unwrap();
        if took >= at_least {
            return (bell, all);
        }
    }
    panic!("a million watches are cheap");
}

/// Waits until `bell` is signalled, and returns how often it was.
fn rung(bell: &OwnedFd) -> u64 {
    let patience = Timespec { tv_sec: support::PATIENCE.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&patience)).unwrap(), 1, "not notified");
    let mut count = [0; 8];
    rustix::io::read(bell, &mut count).unwrap();
    u64::from_ne_bytes(count)
}

/// A client that is expensive to signal gets its signals, whether a stand-in takes over meanwhile or not, and loses its
/// port for them. The other receivers are notified of all their packets.
#[test]
fn expensive_signals_cost_a_port() {
    let (expensive, _watchers) = expensive_bell(Duration::from_millis(8));
    for _ in 0..3 {
        let (switch, bridge) = lab(1);
        let pair = Pair::plug(&switch, bridge, "p");
        let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let [(slow, faults), (listener, _)] =
            [("slow", &expensive), ("listener", &bell)].map(|(name, bell)| {
                let ringing = Arc::new(Ringing(bell.try_clone().unwrap(), CallPort::default()));
                rig::plug(&switch, bridge, name, vec![], vec![ringing])
            });
        for packets in 1..=2 {
            pair.feed.send([slow, listener].map(|port| to(port, &pair.packet(0))));
            // The listener may be notified late of a packet that it has already received.
            while rung(&bell) > 0 && rig::packets(&switch, listener).1 < packets {}
        }
        let mut signals = 0;
        while signals < 2 {
            signals += rung(&expensive);
        }
        wait_until("the fault is reported", || {
            pair.feed.send([to(slow, &pair.packet(0))]);
            faults.seen() == [Fault::Signal]
        });
    }
}

/// A receiver that blocks delivering threads, with a lock that others wait for unless it is quarantined.
struct Locked {
    hold: Arc<Hold>,
    is_locked: AtomicBool,
    quarantined: AtomicBool,
}

impl Egress for Locked {
    fn deliver(&self, _: &mut OutputList<'_>, _: &QueueCounters, _: &mut Tools) -> Result<(), Fault> {
        while self.is_locked.swap(true, Ordering::SeqCst) {
            if self.quarantined.load(Ordering::SeqCst) {
                return Ok(());
            }
            std::thread::yield_now();
        }
        self.hold.touch();
        self.is_locked.store(false, Ordering::SeqCst);
        Ok(())
    }

    fn quarantine(&self, on: bool) {
        self.quarantined.store(on, Ordering::SeqCst);
    }
}

/// A worker that waits for a queue's lock, whose holder is stuck in the client's memory, goes on, without proof of the
/// culprit.
#[test]
fn no_worker_waits_for_the_lock_of_a_stuck_thread() {
    let (switch, bridge) = lab(2);
    let mut pairs: Vec<_> = (0..2).map(|i| Pair::plug(&switch, bridge, &format!("p{i}"))).collect();
    let hold = Hold::new();
    let queue =
        Locked { hold: hold.clone(), is_locked: AtomicBool::new(false), quarantined: AtomicBool::new(false) };
    let (receiver, faults) = rig::plug(&switch, bridge, "r", vec![], vec![Arc::new(queue)]);
    hold.hold();
    pairs[0].feed.send([to(receiver, &pairs[0].packet(0))]);
    wait_until("a worker is stuck", || hold.is_holding());
    let left = pairs.split_off(1);
    left[0].feed.send([to(receiver, &left[0].packet(0))]);
    let mut others = left;
    let until = Instant::now() + Duration::from_millis(600);
    let pause = exchange(&mut others, || Instant::now() > until);
    assert!(pause < Duration::from_millis(400), "no packet for {pause:?}");
    assert_eq!(faults.seen(), []);
    hold.let_go();
    others.iter_mut().chain(&mut pairs).for_each(Pair::settle);
}

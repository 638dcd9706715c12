//! Workers: when they sleep, what wakes them, how they handle faults, and what may come and go under traffic.
#![cfg(test)]
#![cfg(not(loom))]

mod support;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fabric::switch::{Assignment, Moved, PortRef, WorkerReport};
use fabric::worker::Pace;
use fabric::{
    AttachOptions, Batch, DropReason, Egress, Fault, OutputList, Placement, PortIndex, PortSettings,
    QueueCounters, RxBatch, RxQueue, Switch, SwitchError, SwitchLogic, SwitchOptions, Tools,
};
use rustix::event::{EventfdFlags, eventfd};
use support::feed::{Feed, Sent};
use support::mem_ring::MemRing;
use support::pair::{Pair, SIZE, Stop, two_cpus, while_traffic_flows};
use support::rig::{self, ByFirstByte, Hub, attachment};
use support::{CallPort, frame, id_of, wait_until};

fn wakeups(switch: &Switch) -> u64 {
    switch.workers().iter().map(|w| w.counters.wakeups).sum()
}

/// Waits until no queue is polled any more.
fn wait_asleep(feeds: &[Arc<Feed>]) {
    wait_until("all queues are armed", || feeds.iter().all(|feed| feed.wants_signal()));
    let looks = || feeds.iter().map(|feed| feed.looks()).collect::<Vec<_>>();
    let mut before = looks();
    wait_until("no queue is polled any more", || {
        std::thread::sleep(Duration::from_millis(5));
        std::mem::replace(&mut before, looks()) == before
    });
}

#[test]
fn an_idle_worker_sleeps_until_signalled_and_then_polls_only_signalled_queues() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let to = Arc::new(CallPort::default());
    rig::plug(&switch, bridge, "to", vec![], vec![to.clone()]);
    let feeds: Vec<_> = (0..64).map(|_| Feed::new()).collect();
    for (i, feed) in feeds.iter().enumerate() {
        let home: Arc<dyn Egress> = Arc::new(CallPort::default());
        rig::plug(&switch, bridge, &format!("p{i}"), vec![feed.queue()], vec![home]);
    }
    wait_asleep(&feeds);
    let looks = |i: usize| feeds[i].looks();
    let before: Vec<_> = (0..64).map(looks).collect();
    let woken = wakeups(&switch);

    // The idle window. A packet published without a signal is not seen either: the queue does sleep.
    let mut packet = frame(1, 60);
    packet[0] = 0;
    feeds[5].publish([Sent::whole(&packet)]);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(wakeups(&switch), woken);
    assert_eq!((0..64).map(looks).collect::<Vec<_>>(), before);
    assert_eq!(to.take().len(), 0);

    feeds[5].signal();
    wait_until("the packet is returned", || feeds[5].returned() == 1);
    assert_eq!(to.take()[0].bytes, packet);
    for id in 0..1000 {
        let mut packet = frame(id, 60);
        packet[0] = 0;
        feeds[5].send([Sent::whole(&packet)]);
        wait_until("the packet is returned", || feeds[5].returned() == id + 2);
    }
    assert_eq!(to.take().len(), 1000);
    let others = (0..64).filter(|i| *i != 5);
    assert!(others.clone().all(|i| looks(i) == before[i]), "idle queues were polled");
    assert!(wakeups(&switch) > woken);
}

/// A sender that reads our request before its packet is visible does not signal; its packet is seen all the same.
#[test]
fn a_packet_published_while_signals_are_asked_for_is_seen_without_one() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(Hub)).unwrap();
    let to = Arc::new(CallPort::default());
    rig::plug(&switch, bridge, "to", vec![], vec![to.clone()]);
    let feed = Feed::new();
    let home: Arc<dyn Egress> = Arc::new(CallPort::default());
    feed.publish_on_arm(Sent::whole(&frame(0, 60)));
    rig::plug(&switch, bridge, "from", vec![feed.queue()], vec![home]);
    for id in 1..200 {
        wait_until("the packet is returned", || feed.returned() == id);
        assert_eq!(to.take().iter().map(|called| id_of(&called.bytes)).collect::<Vec<_>>(), [id - 1]);
        wait_asleep(std::slice::from_ref(&feed));
        // A packet with a signal wakes the queue; the next is published silently when it arms again.
        feed.publish_on_arm(Sent::whole(&frame(id, 60)));
        feed.send([Sent::whole(&[0; 13])]);
        feed.returned.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The same for a packet that becomes visible later, while the queue is watched.
#[test]
fn a_silent_packet_is_seen_while_the_queue_is_watched() {
    let pace = Pace { watch: Duration::from_secs(3600), ..rig::quick() };
    let switch = Switch::start(&SwitchOptions { pace, ..SwitchOptions::default() }).unwrap();
    let bridge = switch.add_bridge("b", Arc::new(Hub)).unwrap();
    let feed = Feed::new();
    let home: Arc<dyn Egress> = Arc::new(CallPort::default());
    rig::plug(&switch, bridge, "from", vec![feed.queue()], vec![home]);
    for id in 0..100 {
        wait_until("the queue is armed", || feed.armed() == id + 1);
        feed.publish([Sent::whole(&frame(id, 60))]);
        wait_until("the packet is returned", || feed.returned() == id + 1);
    }
}

/// Devices cost a system call to poll: they are left to their signal at once, and lose nothing.
#[test]
fn a_device_is_polled_from_its_signal_until_it_is_dry() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(Hub)).unwrap();
    let feed = Feed::device();
    let home: Arc<dyn Egress> = Arc::new(CallPort::default());
    rig::plug(&switch, bridge, "from", vec![feed.queue()], vec![home]);
    wait_until("it was polled", || feed.looks() > 0);
    for id in 0..300 {
        let before = feed.looks();
        feed.send((0..200).map(|i| Sent::whole(&frame(id * 200 + i, 60))));
        wait_until("all are returned", || feed.returned() == (id + 1) * 200);
        // 200 packets are 4 batches; one more poll finds it dry.
        assert!(feed.looks() - before <= 6, "{} polls", feed.looks() - before);
    }
    assert_eq!(feed.armed(), 0);
}

/// A device all of whose packets are dropped, 64 at a time.
struct Unfit {
    left: Arc<AtomicU64>,
    event: OwnedFd,
}

impl RxQueue for Unfit {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        let left = self.left.load(Ordering::Acquire);
        (0..left.min(64)).for_each(|_| batch.count_drop(DropReason::BadOffload));
        self.left.store(left.saturating_sub(64), Ordering::Release);
        Ok(())
    }

    fn complete(&mut self, _: &mut Tools) -> Result<(), Fault> {
        Ok(())
    }

    fn set_signalled(&mut self, _: bool) {}

    fn signal(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn cheap_to_poll(&self) -> bool {
        false
    }
}

/// Its signal announces only later packets.
#[test]
fn a_device_is_polled_until_it_is_dry_although_all_packets_are_dropped() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(Hub)).unwrap();
    let left = Arc::new(AtomicU64::new(1000));
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let home: Arc<dyn Egress> = Arc::new(CallPort::default());
    let (from, _) =
        rig::plug(&switch, bridge, "from", vec![Box::new(Unfit { left: left.clone(), event })], vec![home]);
    wait_until("it is dry", || left.load(Ordering::Acquire) == 0);
    wait_until("all are counted", || rig::drops(&switch, from, DropReason::BadOffload) == 1000);
}

/// A receiver that sleeps on its eventfd after arm, fence, look misses nothing; one that polls is not notified.
#[test]
fn receivers_are_notified_on_request_only() {
    let switch = rig::switch(2);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let mut pairs = [Pair::plug(&switch, bridge, "a"), Pair::plug(&switch, bridge, "b")];
    let told = || switch.workers().iter().map(|w| w.counters.notifications).sum::<u64>();
    while pairs[0].sent < 5_000 {
        pairs[0].step();
    }
    pairs[0].settle();
    assert_eq!(told(), 0);
    let [_, pair] = &mut pairs;
    for id in 0..5_000 {
        pair.feed.send([Sent::whole(&pair.packet(id))]);
        pair.sent += 1;
        while !pair.ring.arm() {
            assert!(pair.ring.sleep(support::PATIENCE), "packet {id}: the receiver was not notified");
        }
        pair.ring.disarm();
        pair.step_receive();
    }
    pair.settle();
    assert!(pair.ring.asked.load(Ordering::Relaxed) > 0);
}

#[test]
fn faults_are_reported_once_and_cost_only_their_port() {
    type Play = fn(&Feed, &MemRing);
    let index: Play = |_, ring| ring.index_fault.store(true, Ordering::Release);
    let descriptor: Play = |_, ring| ring.bad_descriptor.store(true, Ordering::Release);
    let memory: Play = |_, ring| ring.memory_gone.store(true, Ordering::Release);
    let receive: Play = |feed, _| feed.fail_receive(Fault::ZeroLength { index: 3 });
    let complete: Play = |feed, _| feed.fail_complete(Fault::Memory);
    for workers in [1, 2] {
        for (name, play) in [
            ("index", index),
            ("descriptor", descriptor),
            ("memory", memory),
            ("receive", receive),
            ("complete", complete),
        ] {
            let switch = rig::switch(workers);
            let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
            let mut good = Pair::plug(&switch, bridge, "good");
            // Two senders, on two workers, to the bad port; and the bad port sends.
            let senders = [Feed::new(), Feed::new()];
            for (i, feed) in senders.iter().enumerate() {
                let home: Arc<dyn Egress> = Arc::new(CallPort::default());
                rig::plug(&switch, bridge, &format!("sender{i}"), vec![feed.queue()], vec![home]);
            }
            let (feed, ring) = (Feed::new(), MemRing::new(0, &[SIZE; 256]));
            let (bad, faults) = rig::plug(&switch, bridge, "bad", vec![feed.queue()], vec![ring.tx()]);
            let flood = |id: u64, to: u8| {
                let mut bytes = frame(id, 60);
                bytes[0] = to;
                [Sent::whole(&bytes)]
            };
            let mut round = 0;
            let mut traffic = |good: &mut Pair| {
                for sender in &senders {
                    sender.send(flood(round, bad.port.0 as u8));
                }
                feed.send(flood(round, 0));
                good.step();
                ring.take(|| SIZE);
                round += 1;
            };
            (0..200).for_each(|_| traffic(&mut good));
            assert_eq!(faults.seen(), [], "{name}");
            play(&feed, &ring);
            let deadline = Instant::now() + support::PATIENCE;
            while faults.seen().is_empty() {
                assert!(Instant::now() < deadline, "{name}: no fault was reported");
                traffic(&mut good);
            }
            (0..200).for_each(|_| traffic(&mut good));
            good.settle();
            for (i, sender) in senders.iter().enumerate() {
                wait_until("the senders' packets are returned", || sender.waiting() == 0);
                assert!(sender.returned() > 0, "sender {i}");
            }
            assert_eq!(faults.seen().len(), 1, "{name}: {:?}", faults.seen());
            assert_eq!(
                feed.trespasses.load(Ordering::Acquire),
                0,
                "{name}: the queue was used after its fault"
            );
            if name != "receive" && name != "complete" {
                // The ring is never used again, even once it is valid.
                let published = ring.published();
                ring.heal();
                for sender in &senders {
                    let returned = sender.returned();
                    sender.send(flood(round, bad.port.0 as u8));
                    wait_until("it is returned", || sender.returned() > returned);
                }
                assert_eq!(ring.published(), published, "{name}: the ring was used after its fault");
            }
            let drops = rig::all_drops(&switch, good.from);
            assert_eq!(drops, 0, "{name}: the good pair lost packets");

            // The client can come back.
            switch.detach(bad).unwrap();
            // A worker without a CPU counts as stuck, and drops them late.
            wait_until("the queues are dropped", || {
                feed.gone.load(Ordering::Acquire) && ring.gone.load(Ordering::Acquire)
            });
            let (feed, ring) = (Feed::new(), MemRing::new(0, &[SIZE; 256]));
            let (again, faults) = attachment(vec![feed.queue()], vec![ring.tx()]);
            switch.attach(bad, again).unwrap();
            senders[0].send(flood(77, bad.port.0 as u8));
            wait_until("the port works again", || !ring.take(|| SIZE).is_empty());
            assert_eq!(faults.seen(), []);
        }
    }
}

/// A queue that is moved after its fault is not used on the other worker either.
#[test]
fn a_dead_queue_stays_dead_wherever_it_is_pinned() {
    let Some((a, b)) = two_cpus() else {
        eprintln!("one CPU: nothing to move between");
        return;
    };
    let workers = vec![Some(a), Some(b)];
    let switch = Switch::start(&SwitchOptions { workers, ..SwitchOptions::default() }).unwrap();
    let bridge = switch.add_bridge("b", Arc::new(Hub)).unwrap();
    let feed = Feed::new();
    let home: Arc<dyn Egress> = Arc::new(CallPort::default());
    let (at, faults) = rig::plug(&switch, bridge, "from", vec![feed.queue()], vec![home]);
    feed.fail_receive(Fault::Chain { max: 1 });
    feed.send([Sent::whole(&frame(1, 60))]);
    wait_until("the fault is reported", || !faults.seen().is_empty());
    let looks = feed.looks();
    for round in 0..20 {
        feed.send([Sent::whole(&frame(2, 60))]);
        feed.signal();
        switch.pin(at, 0, if round % 2 == 0 { b } else { a }).unwrap();
    }
    // A worker handles requests in order: by now it has polled the queue, if it does so at all.
    switch.detach(at).unwrap();
    assert_eq!((feed.looks(), feed.trespasses.load(Ordering::Acquire)), (looks, 0));
    assert_eq!(faults.seen().len(), 1);
}

/// A client's fault detected by several queues at once is reported once.
#[test]
fn a_fault_of_many_queues_is_reported_once() {
    for _ in 0..50 {
        let switch = rig::switch(2);
        let bridge = switch.add_bridge("b", Arc::new(Hub)).unwrap();
        let rings: Vec<_> = (0..4).map(|_| MemRing::new(0, &[SIZE; 256])).collect();
        let feeds: Vec<_> = (0..2).map(|_| Feed::new()).collect();
        for (i, feed) in feeds.iter().enumerate() {
            let home: Arc<dyn Egress> = Arc::new(CallPort::default());
            rig::plug(&switch, bridge, &format!("s{i}"), vec![feed.queue()], vec![home]);
        }
        let tx = rings.iter().map(|ring| ring.tx() as Arc<dyn Egress>).collect();
        let (_, faults) = rig::plug(&switch, bridge, "bad", vec![], tx);
        rings.iter().for_each(|ring| ring.memory_gone.store(true, Ordering::Release));
        feeds.iter().for_each(|feed| feed.send((0..64).map(|id| Sent::whole(&frame(id, 60)))));
        wait_until("all are returned", || feeds.iter().all(|feed| feed.returned() == 64));
        assert_eq!(faults.seen(), [Fault::Memory]);
    }
}

/// Detects being dropped while in use, or used after its drop.
#[derive(Default)]
struct Guard {
    users: AtomicU64,
    uses: AtomicU64,
    gone: AtomicBool,
    wrongs: AtomicU64,
}

impl Guard {
    /// Stays inside for some microseconds, so that a caller that does not wait is caught.
    fn used(&self) {
        self.users.fetch_add(1, Ordering::SeqCst);
        self.uses.fetch_add(1, Ordering::SeqCst);
        let until = Instant::now() + Duration::from_micros(30);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        if self.gone.load(Ordering::SeqCst) {
            self.wrongs.fetch_add(1, Ordering::SeqCst);
        }
        self.users.fetch_sub(1, Ordering::SeqCst);
    }

    fn dropped(&self) {
        self.gone.store(true, Ordering::SeqCst);
        if self.users.load(Ordering::SeqCst) > 0 {
            self.wrongs.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[track_caller]
    /// Waits until the object is dropped. Returns 1 if it was not yet: a worker that waits for a CPU with a lock counts
    /// as stuck, and what it uses is dropped late.
    fn wait_gone_in_peace(&self) -> u32 {
        let late = u32::from(!self.gone.load(Ordering::SeqCst));
        wait_until("it is dropped", || self.gone.load(Ordering::SeqCst));
        assert_eq!(self.wrongs.load(Ordering::SeqCst), 0, "dropped in use, or used after");
        late
    }
}

struct GuardedPort(Arc<Guard>);

impl Egress for GuardedPort {
    fn deliver(&self, list: &mut OutputList<'_>, to: &QueueCounters, _: &mut Tools) -> Result<(), Fault> {
        self.0.used();
        to.add_batch(list.len() as u64, 0);
        Ok(())
    }
}

impl Drop for GuardedPort {
    fn drop(&mut self) {
        self.0.dropped();
    }
}

/// When `detach` returns, no worker uses the client's queues, whichever worker did so before.
#[test]
fn detaching_under_traffic_leaves_no_worker_inside() {
    let switch = rig::switch(2);
    let bridge = switch.add_bridge("b", Arc::new(Hub)).unwrap();
    let stop = AtomicBool::new(false);
    let senders: Vec<_> = (0..2).map(|_| Feed::new()).collect();
    for (i, feed) in senders.iter().enumerate() {
        let home: Arc<dyn Egress> = Arc::new(CallPort::default());
        rig::plug(&switch, bridge, &format!("s{i}"), vec![feed.queue()], vec![home]);
    }
    let at = switch.add_port(bridge, PortSettings::new("guest")).unwrap();
    std::thread::scope(|scope| {
        for feed in &senders {
            let stop = &stop;
            scope.spawn(move || {
                let mut id = 0;
                while !stop.load(Ordering::Acquire) {
                    if feed.waiting() < 100 {
                        feed.send([Sent::whole(&frame(id, 60))]);
                        id += 1;
                    } else {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let _stop = Stop(&stop);
        let mut late = 0;
        for round in 0..100 {
            let (guard, ring, feed) = (Arc::new(Guard::default()), MemRing::new(0, &[SIZE; 16]), Feed::new());
            let tx: Vec<Arc<dyn Egress>> = vec![Arc::new(GuardedPort(guard.clone())), ring.tx()];
            let (attachment, _) = attachment(vec![feed.queue(), Feed::new().queue()], tx);
            switch.attach(at, attachment).unwrap();
            wait_until("the port is in use", || {
                ring.take(|| SIZE);
                feed.send([Sent::whole(&frame(round, 60))]);
                guard.uses.load(Ordering::SeqCst) > 2 && feed.returned() > 2
            });
            wait_until("a worker is inside", || guard.users.load(Ordering::SeqCst) > 0);
            switch.detach(at).unwrap();
            late += guard.wait_gone_in_peace();
            wait_until("the queues are dropped", || {
                feed.gone.load(Ordering::Acquire) && ring.gone.load(Ordering::Acquire)
            });
            assert_eq!(feed.trespasses.load(Ordering::Acquire), 0);
            ring.assert_no_wrongs();
        }
        assert!(late < 10, "{late} of 100 detached clients were still in use");
    });
}

#[test]
fn a_queue_goes_to_its_hinted_worker_or_the_least_loaded() {
    let Some((first, second)) = two_cpus() else { return };
    let options = SwitchOptions { workers: vec![Some(first), Some(second)], ..SwitchOptions::default() };
    let switch = Switch::start(&options).unwrap();
    let bridge = switch.add_bridge("b", Arc::new(Hub)).unwrap();
    let plug = |name: &str, placement| {
        let at = switch.add_port(bridge, PortSettings::new(name)).unwrap();
        let (attachment, _) = attachment(vec![Feed::new().queue(), Feed::new().queue()], vec![]);
        switch.attach_with(at, attachment, AttachOptions { placement, ..AttachOptions::default() }).unwrap();
        at
    };
    let owned = || switch.workers().iter().map(|worker| worker.queues.len()).collect::<Vec<_>>();
    let near = plug("near", Placement { cpu: Some(second), ..Placement::default() });
    assert_eq!(owned(), [0, 2]);
    // No worker suits: the hint has no effect.
    plug("far", Placement { cpu: Some(usize::MAX), node: Some(usize::MAX) });
    assert_eq!(owned(), [2, 2]);
    plug("any", Placement::default());
    assert_eq!(owned(), [3, 3]);
    switch.detach(near).unwrap();
    plug("next", Placement::default());
    assert_eq!(owned(), [3, 3]);
}

/// Takes time for each batch, as if packets cost much, but no CPU time from other tests.
struct Slow;

impl SwitchLogic for Slow {
    fn forward(&self, batch: &mut Batch<'_>) {
        ByFirstByte.forward(batch);
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Number of queues of these ports at each worker.
fn spread(switch: &Switch, ports: &[PortRef]) -> Vec<usize> {
    let of = |worker: WorkerReport| worker.queues.iter().filter(|queue| ports.contains(&queue.port)).count();
    switch.workers().into_iter().map(of).collect()
}

#[test]
fn queues_follow_load_without_losing_order_and_pinned_ones_stay() {
    let Some((a, b)) = two_cpus() else { return };
    let workers = vec![Some(a), Some(b)];
    let options = SwitchOptions { workers, pace: rig::quick(), ..SwitchOptions::default() };
    let switch = Switch::start(&options).unwrap();
    let bridge = switch.add_bridge("b", Arc::new(Slow)).unwrap();
    let told = Arc::new(AtomicU64::new(0));
    let counter = told.clone();
    switch.on_load(Box::new(move || {
        counter.fetch_add(1, Ordering::AcqRel);
    }));
    let mut pairs = ["a", "b", "c", "d"].map(|name| Pair::plug(&switch, bridge, name));
    let ports = pairs.each_ref().map(|pair| pair.from);
    // All load is at one worker, two queues of it fixed.
    ports.iter().for_each(|port| switch.pin(*port, 0, a).unwrap());
    assert_eq!(spread(&switch, &ports), [4, 0]);
    while_traffic_flows(&switch, &mut pairs, |some_pass| {
        let balance = || {
            let looked = told.load(Ordering::Acquire);
            wait_until("the next look is due", || told.load(Ordering::Acquire) > looked);
            switch.balance()
        };
        for _ in 0..8 {
            assert_eq!(balance(), [], "all are pinned");
        }
        assert_eq!(switch.unpin(ports[0], 0), Ok(true));
        assert_eq!(switch.unpin(ports[1], 0), Ok(true));
        assert_eq!(switch.unpin(ports[1], 0), Ok(false));
        let mut moved = Vec::new();
        wait_until("a queue has moved", || {
            moved = balance();
            !moved.is_empty()
        });
        let is_free = |moved: &Moved| ports[..2].contains(&moved.port);
        assert!(moved.iter().all(is_free), "{moved:?}");
        assert_eq!((moved[0].from, moved[0].to), (Some(a), Some(b)));
        let queues = switch.workers()[1].queues.clone();
        let queue = queues.iter().find(|queue| queue.port == moved[0].port).unwrap();
        let explained = Assignment::Moved { from: Some(a), busy: moved[0].busy };
        assert_eq!(queue.assignment, explained);
        assert!(queue.cycles > 0 && moved[0].busy >= 50, "{moved:?}");
        some_pass();
        // The pins of the others hold for their next client, too.
        let pinned = |port: &PortRef| {
            let at_a = switch.workers()[0].queues.clone();
            at_a.iter().any(|queue| queue.port == *port && queue.assignment == Assignment::Pinned)
        };
        assert!(ports[2..].iter().all(pinned));
    });
    switch.detach(ports[3]).unwrap();
    let (attachment, _) = attachment(vec![Feed::new().queue()], vec![]);
    switch.attach(ports[3], attachment).unwrap();
    assert_eq!(spread(&switch, &ports[3..]), [1, 0]);
}

#[test]
fn a_pinned_queue_changes_worker_without_losing_order() {
    let Some((a, b)) = two_cpus() else {
        eprintln!("one CPU: nothing to move between");
        return;
    };
    let workers = vec![Some(a), Some(b)];
    let options = SwitchOptions { workers, pace: rig::quick(), ..SwitchOptions::default() };
    let switch = Switch::start(&options).unwrap();
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let mut pairs = [Pair::plug(&switch, bridge, "a"), Pair::plug(&switch, bridge, "b")];
    let moved = pairs[0].from;
    let owner = || {
        switch
            .workers()
            .into_iter()
            .find(|w| w.queues.iter().any(|queue| queue.port == moved))
            .and_then(|w| w.cpu)
    };
    while_traffic_flows(&switch, &mut pairs, |some_pass| {
        for round in 0..100 {
            let cpu = if round % 2 == 0 { b } else { a };
            switch.pin(moved, 0, cpu).unwrap();
            assert_eq!(owner(), Some(cpu));
            if round % 10 == 0 {
                some_pass();
            }
        }
    });
    for pair in &pairs {
        assert_eq!(pair.feed.trespasses.load(Ordering::Acquire), 0);
    }
    // A sleeping queue is woken on the other worker.
    for round in 0..20 {
        wait_asleep(&[pairs[0].feed.clone(), pairs[1].feed.clone()]);
        switch.pin(moved, 0, if round % 2 == 0 { a } else { b }).unwrap();
        pairs[0].step();
        pairs[0].settle();
    }
    assert!(matches!(switch.pin(moved, 0, 9999), Err(SwitchError::NoWorker(9999, _))));
    assert_eq!(switch.pin(moved, 1, a), Err(SwitchError::Gone("queue")));
}

#[test]
fn ports_and_bridges_come_and_go_while_others_lose_nothing() {
    let switch = rig::switch(2);
    let bridge = switch.add_bridge("stays", Arc::new(ByFirstByte)).unwrap();
    let mut pairs = [Pair::plug(&switch, bridge, "a"), Pair::plug(&switch, bridge, "b")];
    while_traffic_flows(&switch, &mut pairs, |some_pass| {
        for round in 0..60 {
            // In the same bridge, with its own packets.
            let (feed, guard) = (Feed::new(), Arc::new(Guard::default()));
            let tx: Arc<dyn Egress> = Arc::new(GuardedPort(guard.clone()));
            let (at, faults) = rig::plug(&switch, bridge, "guest", vec![feed.queue()], vec![tx]);
            assert!(matches!(
                switch.add_port(bridge, PortSettings::new("guest")),
                Err(SwitchError::PortExists(_))
            ));
            // To itself, to a neighbour that does not listen, to no port.
            feed.send((0..50).map(|id| {
                let mut bytes = frame(id, 60);
                bytes[0] = [at.port.0 as u8, 200][id as usize % 2];
                Sent::whole(&bytes)
            }));
            // In its own bridge.
            let other = switch.add_bridge("guest", Arc::new(Hub)).unwrap();
            let mut pair = Pair::plug(&switch, other, "x");
            for _ in 0..5 {
                pair.step();
            }
            pair.settle();
            wait_until("the guest's packets are returned", || feed.returned() == 50);
            if round % 2 == 0 {
                switch.remove_bridge(other).unwrap();
                switch.remove_port(at).unwrap();
            } else {
                for port in switch.ports(other).unwrap() {
                    switch.remove_port(PortRef { bridge: other, port }).unwrap();
                }
                switch.detach(at).unwrap();
                switch.remove_port(at).unwrap();
                switch.remove_bridge(other).unwrap();
            }
            let _late = guard.wait_gone_in_peace();
            wait_until("the queues are dropped", || {
                feed.gone.load(Ordering::Acquire) && pair.ring.gone.load(Ordering::Acquire)
            });
            assert_eq!(faults.seen(), []);
            assert!(matches!(switch.counters(at), Err(SwitchError::Gone(_))));
            if round % 10 == 0 {
                some_pass();
            }
        }
    });
    assert_eq!(switch.ports(bridge).unwrap().len(), 4);
}

/// Marks each packet with its own number and sends it to port 1.
struct Marker {
    number: u8,
    guard: Arc<Guard>,
}

impl SwitchLogic for Marker {
    fn forward(&self, batch: &mut Batch<'_>) {
        self.guard.used();
        for v in batch.packets() {
            if let Some(header) = batch.header_mut(v) {
                header[1] = self.number;
            }
            batch.send(v, PortIndex(1));
        }
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        self.guard.dropped();
    }
}

#[test]
fn replacing_the_logic_loses_nothing() {
    let marker = |number| {
        let guard = Arc::new(Guard::default());
        (Marker { number, guard: guard.clone() }, guard)
    };
    let switch = rig::switch(2);
    let (first, mut guard) = marker(0);
    let bridge = switch.add_bridge("b", Arc::new(first)).unwrap();
    let mut pair = Pair::plug(&switch, bridge, "a");
    let stop = AtomicBool::new(false);
    let passed = AtomicU64::new(0);
    let marks = std::thread::scope(|scope| {
        let (stop_ref, passed) = (&stop, &passed);
        let pair = &mut pair;
        let traffic = scope.spawn(move || {
            let mut marks = Vec::new();
            let mut take = |pair: &mut Pair| {
                for got in pair.ring.take(|| SIZE) {
                    let mut wanted = pair.packet(pair.received);
                    wanted[1] = got[1];
                    assert_eq!(got, wanted, "packets lost, doubled or out of order");
                    marks.push(got[1]);
                    pair.received += 1;
                    passed.fetch_add(1, Ordering::AcqRel);
                }
            };
            while !stop_ref.load(Ordering::Acquire) {
                let burst = 16.min(200 - (pair.sent - pair.received));
                pair.feed.send((pair.sent..pair.sent + burst).map(|id| Sent::whole(&pair.packet(id))));
                pair.sent += burst;
                take(pair);
            }
            let deadline = Instant::now() + support::PATIENCE;
            while pair.received < pair.sent {
                assert!(Instant::now() < deadline, "{} of {} packets arrived", pair.received, pair.sent);
                take(pair);
            }
            marks
        });
        let _stop = Stop(&stop);
        let mut late = 0;
        for number in 1..=200 {
            let (next, next_guard) = marker(number);
            wait_until("a worker is in the old one", || guard.users.load(Ordering::SeqCst) > 0);
            switch.set_logic(bridge, Arc::new(next)).unwrap();
            // No worker is in the old one any more, and none enters.
            late += guard.wait_gone_in_peace();
            guard = next_guard;
            let now = passed.load(Ordering::Acquire);
            wait_until("the new one is in use", || {
                guard.uses.load(Ordering::SeqCst) > 0 && passed.load(Ordering::Acquire) > now
            });
        }
        assert!(late < 20, "{late} of 200 logics were still in use when they had been replaced");
        drop(_stop);
        traffic.join().unwrap()
    });
    assert!(marks.is_sorted(), "a packet met a logic that had been replaced before an earlier packet's");
    assert!((0..=200).all(|number| marks.binary_search(&number).is_ok()), "a logic saw no packet");
    assert_eq!(rig::packets(&switch, pair.from).0, pair.sent);
    assert_eq!(rig::all_drops(&switch, pair.from), 0);
}

/// Port settings: a port that is down takes nothing and sends nothing; both are counted.
#[test]
fn a_port_that_is_down_is_counted() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let mut pair = Pair::plug(&switch, bridge, "a");
    pair.step();
    pair.settle();
    let to = PortRef { bridge, port: PortIndex(u16::from(pair.to)) };
    let settings = switch.settings(to).unwrap();
    for (at, name) in [(to, "a-to"), (pair.from, "a-from")] {
        let before = rig::drops(&switch, pair.from, fabric::DropReason::PortDown);
        switch.set_port(at, PortSettings { admin_up: false, ..PortSettings::new(name) }).unwrap();
        let returned = pair.feed.returned();
        pair.feed.send((0..10).map(|id| Sent::whole(&pair.packet(id))));
        wait_until("they are returned", || pair.feed.returned() == returned + 10);
        wait_until("they are counted", || {
            rig::drops(&switch, pair.from, fabric::DropReason::PortDown) == before + 10
        });
        assert_eq!(pair.ring.take(|| SIZE), [[0u8; 0]; 0]);
        switch.set_port(at, PortSettings { name: name.into(), ..settings.clone() }).unwrap();
        pair.step();
        pair.settle();
    }
}

/// A client whose link is down stays attached: its packets are dropped, and nothing is delivered to it.
#[test]
fn a_link_that_is_down_is_counted() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let mut pair = Pair::plug(&switch, bridge, "a");
    pair.step();
    pair.settle();
    let to = PortRef { bridge, port: PortIndex(u16::from(pair.to)) };
    for at in [to, pair.from] {
        let before = rig::drops(&switch, pair.from, fabric::DropReason::PortDown);
        switch.set_link(at, false).unwrap();
        switch.set_link(at, false).unwrap();
        assert!(!switch.counters(at).unwrap().up);
        pair.feed.send((0..10).map(|id| Sent::whole(&pair.packet(id))));
        wait_until("they are counted", || {
            rig::drops(&switch, pair.from, fabric::DropReason::PortDown) == before + 10
        });
        assert_eq!(pair.ring.take(|| SIZE), [[0u8; 0]; 0]);
        switch.set_link(at, true).unwrap();
        assert!(switch.counters(at).unwrap().up);
        pair.step();
        pair.settle();
    }
    // Queues that are replaced while the link is down do not take it up.
    switch.set_link(to, false).unwrap();
    switch.suspend(to).unwrap();
    assert!(!switch.counters(to).unwrap().up);
    assert!(matches!(switch.set_link(to, true), Err(SwitchError::Gone("client"))));
}

/// Sends everything of queue 0 back, drops packets of other queues, and records queue and time.
#[derive(Default)]
struct Notes(std::sync::Mutex<Vec<(u16, u64)>>);

impl SwitchLogic for Notes {
    fn forward(&self, batch: &mut Batch<'_>) {
        let (queue, at) = (batch.ingress_queue(), batch.now_ns());
        assert!((at / 1_000_000_000).abs_diff(batch.now().into()) <= 1, "the clocks differ");
        for v in batch.packets() {
            self.0.lock().unwrap().push((queue, at));
            match queue {
                0 => batch.reflect(v),
                1 => batch.discard(v, DropReason::Logic),
                _ => batch.discard(v, DropReason::LogicFault),
            }
        }
    }
}

#[test]
fn a_logic_reads_queue_and_time_and_gives_drop_reasons() {
    let (switch, logic) = (rig::switch(1), Arc::new(Notes::default()));
    let bridge = switch.add_bridge("br0", logic.clone()).unwrap();
    let feeds: [Arc<Feed>; 3] = std::array::from_fn(|_| Feed::new());
    let home: Arc<dyn Egress> = Arc::new(CallPort::default());
    let queues = feeds.iter().map(|feed| feed.queue()).collect();
    let (port, _) = rig::plug(&switch, bridge, "a", queues, vec![home]);
    for (i, feed) in feeds.iter().enumerate() {
        feed.send((0..=i as u64).map(|id| Sent::whole(&frame(id, 60))));
        wait_until("the packets to come back", || feed.returned() == i as u64 + 1);
    }
    let notes = logic.0.lock().unwrap().clone();
    assert_eq!(notes.iter().map(|(queue, _)| *queue).collect::<Vec<_>>(), [0, 1, 1, 2, 2, 2]);
    assert!(notes.is_sorted_by_key(|(_, at)| *at));
    let dropped = |reason| rig::drops(&switch, port, reason);
    assert_eq!((dropped(DropReason::Logic), dropped(DropReason::LogicFault)), (2, 3));
    assert_eq!((DropReason::Logic.name(), DropReason::LogicFault.name()), ("logic", "logic-fault"));
}

/// A ring that notes what the worker knows of rings after each delivery.
struct Noting(Arc<dyn Egress>, AtomicU64);

impl Egress for Noting {
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<(), Fault> {
        let delivered = self.0.deliver(list, counters, tools);
        self.1.store(tools.smallest_ring.into(), Ordering::SeqCst);
        delivered
    }
}

#[test]
fn the_smaller_ring_of_a_packet_counts_whichever_way_it_goes() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    // The queues of these ports have 256 entries.
    for (entries, smallest) in [(64, 64), (1024, 256)] {
        let noting = Arc::new(Noting(MemRing::new(0, &vec![2048; entries]).tx(), AtomicU64::new(0)));
        let feed = Feed::new();
        let to = rig::plug(&switch, bridge, "to", vec![], vec![noting.clone()]);
        let from = rig::plug(&switch, bridge, "from", vec![feed.queue()], vec![]);
        let mut packet = frame(1, 60);
        packet[0] = 0;
        feed.send([Sent::whole(&packet)]);
        wait_until("the packet is returned", || feed.returned() == 1);
        assert_eq!(noting.1.load(Ordering::SeqCst), smallest);
        for port in [from.0, to.0] {
            switch.remove_port(port).unwrap();
        }
    }
}

/// Wants periodic wake-ups, and counts the calls of each worker.
struct Ticking {
    period: Duration,
    calls: [AtomicU64; 2],
}

impl SwitchLogic for Ticking {
    fn forward(&self, batch: &mut Batch<'_>) {
        batch.packets().for_each(|v| batch.discard(v, DropReason::Logic));
    }

    fn period(&self) -> Option<Duration> {
        Some(self.period)
    }

    fn wake(&self, batch: &mut Batch<'_>) {
        self.calls[batch.worker()].fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn idle_and_busy_workers_call_a_logic_periodically_until_it_is_replaced() {
    let period = Duration::from_millis(3);
    let ticking = || Arc::new(Ticking { period, calls: Default::default() });
    let switch = rig::switch(2);
    let (first, start) = (ticking(), Instant::now());
    let bridge = switch.add_bridge("b", first.clone()).unwrap();
    // One worker always has work, the other one none.
    let feed = Feed::new();
    rig::plug(&switch, bridge, "busy", vec![feed.queue()], vec![]);
    let calls = |logic: &Ticking| [0, 1].map(|worker| logic.calls[worker].load(Ordering::SeqCst));
    let mut id = 0;
    wait_until("each worker has called ten times", || {
        feed.send([Sent::whole(&frame(id, 60))]);
        id += 1;
        calls(&first).into_iter().all(|calls| calls >= 10)
    });
    // Never early: at most as many calls as periods have passed.
    let most = calls(&first).into_iter().max().unwrap_or(0);
    let passed = start.elapsed().as_nanos() / period.as_nanos();
    assert!(u128::from(most) <= passed + 1, "{most} calls in {passed} periods");

    let second = ticking();
    switch.set_logic(bridge, second.clone()).unwrap();
    let before = calls(&first);
    wait_until("the next logic is called", || calls(&second).into_iter().all(|calls| calls >= 3));
    assert_eq!(calls(&first), before);
    switch.remove_bridge(bridge).unwrap();
    let before = calls(&second);
    std::thread::sleep(10 * period);
    assert_eq!(calls(&second), before);
}

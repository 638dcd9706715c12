//! Workers that are added and removed while traffic flows: nothing is lost, doubled or reordered. More workers than
//! CPUs, so that threads lose their CPU at any point.
#![cfg(test)]
#![cfg(not(loom))]

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fabric::protection::{EgressLimits, Waiting};
use fabric::switch::{Assignment, PortRef};
use fabric::worker::{PerThread, Threads};
use fabric::{
    AttachOptions, Batch, InjectError, Injection, Interest, Observer, Placement, PortIndex, PortSettings,
    Sightings, Switch, SwitchError, SwitchLogic, SwitchOptions,
};
use packet::offload::Offload;
use support::feed::{Feed, Sent};
use support::pair::{Pair, two_cpus, while_traffic_flows};
use support::rig::{self, ByFirstByte, attachment};
use support::{CallPort, frame, id_of, wait_until};

const WORKERS: usize = 8;

/// Data that each thread finds prepared: its batches and alarms.
#[derive(Default)]
struct Counted {
    threads: PerThread<[AtomicU64; 2]>,
    unprepared: AtomicBool,
}

impl Counted {
    fn prepare(&self, threads: Threads) {
        self.threads.prepare(threads, |_| Ok::<_, ()>(Default::default())).unwrap();
    }

    fn count(&self, thread: usize, what: usize) {
        match self.threads.get(thread) {
            Some(counts) => _ = counts[what].fetch_add(1, Ordering::Relaxed),
            None => self.unprepared.store(true, Ordering::Relaxed),
        }
    }

    /// What each worker has counted, 0 for one that did not exist yet.
    fn counts(&self, what: usize) -> Vec<u64> {
        let count =
            |number| self.threads.get(number).map_or(0, |counts| counts[what].load(Ordering::Relaxed));
        (0..WORKERS).map(count).collect()
    }
}

/// Counts batches and alarms of each worker, as logic and as observer.
#[derive(Default)]
struct Watching {
    decided: Counted,
    observed: Counted,
}

struct Logic(Arc<Watching>);

impl SwitchLogic for Logic {
    fn forward(&self, batch: &mut Batch<'_>) {
        self.0.decided.count(batch.worker(), 0);
        ByFirstByte.forward(batch);
    }

    fn period(&self) -> Option<Duration> {
        Some(Duration::from_millis(2))
    }

    fn wake(&self, batch: &mut Batch<'_>) {
        self.0.decided.count(batch.worker(), 1);
    }

    fn prepare(&self, threads: Threads) -> Result<(), String> {
        self.0.decided.prepare(threads);
        Ok(())
    }
}

impl Observer for Watching {
    fn interest(&self, _: PortIndex, _: &str) -> Interest {
        Interest { received: true, ..Interest::default() }
    }

    fn prepare(&self, threads: Threads) {
        self.observed.prepare(threads);
    }

    fn observe(&self, worker: usize, _: &Sightings<'_>) {
        self.observed.count(worker, 0);
    }
}

fn start(workers: &[usize]) -> Switch {
    let workers = workers.iter().copied().map(Some).collect();
    Switch::start(&SwitchOptions { workers, pace: rig::quick(), ..SwitchOptions::default() }).unwrap()
}

fn cpus(switch: &Switch) -> Vec<usize> {
    switch.workers().iter().map(|worker| worker.cpu.unwrap()).collect()
}

/// Repeats a change as long as a thread has no CPU to follow it with: the switch takes it for one that is held up.
fn until_accepted(what: &str, change: impl Fn() -> Result<(), SwitchError>) {
    wait_until(what, || match change() {
        Ok(()) => true,
        Err(SwitchError::HeldUp | SwitchError::WorkerEnds) => false,
        Err(error) => panic!("{error}"),
    });
}

/// CPU of a receive queue's worker, and the reason.
fn place(switch: &Switch, at: PortRef) -> (Option<usize>, Assignment) {
    let find = |worker: fabric::switch::WorkerReport| {
        let queue = worker.queues.iter().find(|queue| queue.port == at)?;
        Some((worker.cpu, queue.assignment))
    };
    switch.workers().into_iter().find_map(find).unwrap()
}

#[test]
fn workers_come_and_go_and_nothing_is_lost_or_reordered() {
    let Some((a, b)) = two_cpus() else { return };
    let switch = start(&[a, b]);
    let watching = Arc::new(Watching::default());
    let bridge = switch.add_bridge("b", Arc::new(Logic(watching.clone()))).unwrap();
    switch.observe(bridge, watching.clone()).unwrap();
    let mut pairs: Vec<_> = (0..6).map(|i| Pair::plug(&switch, bridge, &format!("p{i}"))).collect();
    let froms: Vec<_> = pairs.iter().map(|pair| pair.from).collect();
    // Packets of the control plane, and packets that wait in a queue of the switch's own, each to a port of its own.
    let listen = |name: &str, waiting| {
        let out = Arc::new(CallPort::default());
        let limits = EgressLimits { waiting, ..EgressLimits::default() };
        let egress = waiting.map(|_| Arc::new(limits));
        let at = switch.add_port(bridge, PortSettings { egress, ..PortSettings::new(name) }).unwrap();
        switch.attach(at, attachment(vec![], vec![out.clone()]).0).unwrap();
        (at, out)
    };
    let (injected_at, injected) = listen("injected", None);
    let (queued_at, queued) = listen("queued", Some(Waiting { buffers: 1 << 14 }));
    let feed = Feed::new();
    rig::plug(&switch, bridge, "feeds", vec![feed.queue()], vec![]);
    let (mut injections, mut sent) = (0, 0);
    while_traffic_flows(&switch, &mut pairs, |some_pass| {
        let mut aside = || {
            for _ in 0..50 {
                let packet = frame(injections, 60);
                match switch.inject(bridge, &packet, Offload::NONE, Injection::To(vec![injected_at.port])) {
                    Ok(()) => injections += 1,
                    Err(SwitchError::Inject(InjectError::Full)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            feed.send((sent..sent + 50).map(|id| {
                let mut packet = frame(id, 60);
                packet[0] = queued_at.port.0 as u8;
                Sent::whole(&packet)
            }));
            sent += 50;
        };
        for round in 0..6 {
            let before = watching.decided.counts(1);
            while cpus(&switch).len() < WORKERS {
                aside();
                let cpu = if cpus(&switch).len().is_multiple_of(2) { a } else { b };
                until_accepted("a worker is added", || switch.add_worker(Some(cpu)));
            }
            for (i, from) in froms.iter().enumerate() {
                aside();
                let cpu = if (i + round).is_multiple_of(2) { a } else { b };
                until_accepted("a queue is pinned", || switch.pin(*from, 0, cpu));
                switch.unpin(*from, 0).unwrap();
            }
            some_pass();
            wait_until("each worker's alarm goes off", || {
                watching.decided.counts(1).iter().zip(&before).all(|(now, before)| now > before)
            });
            while cpus(&switch).len() > 1 {
                aside();
                let cpus = cpus(&switch);
                let cpu = cpus[round % cpus.len()];
                until_accepted("a worker is removed", || switch.remove_worker(Some(cpu)));
            }
            some_pass();
            assert_eq!(switch.workers()[0].queues.len(), froms.len() + 1);
        }
    });
    wait_until("all are delivered", || {
        let count = |port: &CallPort| port.got.lock().unwrap().len() as u64;
        (count(&injected), count(&queued)) == (injections, sent)
    });
    for out in [injected, queued] {
        let ids: Vec<_> = out.take().iter().map(|called| id_of(&called.bytes)).collect();
        assert!(ids.iter().copied().eq(0..ids.len() as u64), "lost, doubled or out of order");
    }
    for counted in [&watching.decided, &watching.observed] {
        assert!(!counted.unprepared.load(Ordering::Relaxed), "a thread had not been prepared");
        let busy = counted.counts(0).into_iter().filter(|batches| *batches > 0).count();
        assert!(busy > 1, "one worker did everything");
    }
}

#[test]
fn queues_of_a_removed_worker_spread_and_say_why() {
    let Some((a, b)) = two_cpus() else { return };
    let switch = start(&[a, b, b]);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let ports: Vec<_> = (0..6)
        .map(|i| rig::plug(&switch, bridge, &format!("p{i}"), vec![Feed::new().queue()], vec![]).0)
        .collect();
    switch.pin(ports[0], 0, a).unwrap();
    // Worker 0 is replaced by worker 2.
    assert!(
        matches!(switch.remove_worker(Some(a)), Err(SwitchError::PinnedThere { queue: 0, cpu, .. }) if cpu == a)
    );
    switch.unpin(ports[0], 0).unwrap();
    switch.pin(ports[1], 0, b).unwrap();
    let at_a = ports.iter().copied().filter(|port| place(&switch, *port).0 == Some(a)).collect::<Vec<_>>();
    assert_eq!(at_a.len(), 2);
    switch.remove_worker(Some(a)).unwrap();
    assert_eq!(cpus(&switch), [b, b]);
    assert_eq!(switch.workers().iter().map(|worker| worker.queues.len()).collect::<Vec<_>>(), [3, 3]);
    for port in at_a {
        assert_eq!(place(&switch, port), (Some(b), Assignment::WorkerRemoved { cpu: Some(a) }));
    }
    assert_eq!(place(&switch, ports[1]), (Some(b), Assignment::Pinned));
    // Another worker is left there.
    switch.remove_worker(Some(b)).unwrap();
    assert_eq!(place(&switch, ports[1]), (Some(b), Assignment::Pinned));
    assert_eq!(switch.remove_worker(Some(b)), Err(SwitchError::LastWorker));
    assert_eq!(switch.remove_worker(Some(a)), Err(SwitchError::NoWorker(a, vec![b])));
    assert_eq!(switch.workers()[0].queues.len(), 6);
    // New clients find the new worker.
    switch.add_worker(Some(a)).unwrap();
    let (next, _) = rig::plug(&switch, bridge, "next", vec![Feed::new().queue()], vec![]);
    assert_eq!(place(&switch, next), (Some(a), Assignment::Fewest));
}

#[test]
fn a_queue_pinned_to_a_shared_cpu_stays_there_when_one_of_its_workers_goes() {
    let Some((a, b)) = two_cpus() else { return };
    let switch = start(&[a, a, b]);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let ports = ["x", "y"].map(|name| rig::plug(&switch, bridge, name, vec![Feed::new().queue()], vec![]).0);
    ports.iter().for_each(|port| switch.pin(*port, 0, a).unwrap());
    assert_eq!(switch.workers().iter().map(|worker| worker.queues.len()).collect::<Vec<_>>(), [1, 1, 0]);
    // Worker 1 goes to the other CPU, in place of worker 2; its pinned queue does not go along.
    switch.remove_worker(Some(a)).unwrap();
    assert_eq!(cpus(&switch), [a, b]);
    assert_eq!(switch.workers().iter().map(|worker| worker.queues.len()).collect::<Vec<_>>(), [2, 0]);
    for port in ports {
        assert_eq!(place(&switch, port), (Some(a), Assignment::Pinned));
    }
}

#[test]
fn a_queue_near_a_cpu_stays_there_when_its_worker_takes_another_ones_place() {
    let Some((a, b)) = two_cpus() else { return };
    let switch = start(&[a, a, b]);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let ports = ["x", "y", "z"].map(|name| {
        let at = switch.add_port(bridge, PortSettings::new(name)).unwrap();
        let placement = Placement { cpu: Some(if name == "z" { b } else { a }), node: None };
        let options = AttachOptions { placement, ..AttachOptions::default() };
        switch.attach_with(at, attachment(vec![Feed::new().queue()], vec![]).0, options).unwrap();
        at
    });
    assert_eq!(switch.workers().iter().map(|worker| worker.queues.len()).collect::<Vec<_>>(), [1, 1, 1]);
    // Worker 1 goes to the other CPU, in place of worker 2.
    switch.remove_worker(Some(a)).unwrap();
    assert_eq!(cpus(&switch), [a, b]);
    assert_eq!(ports.map(|port| place(&switch, port).0), [Some(a), Some(a), Some(b)]);
}

/// Notes on which CPUs worker 0 may run.
#[derive(Default)]
struct Affinity(Mutex<Vec<usize>>);

impl SwitchLogic for Affinity {
    fn forward(&self, _: &mut Batch<'_>) {}

    fn period(&self) -> Option<Duration> {
        Some(Duration::from_millis(2))
    }

    fn wake(&self, batch: &mut Batch<'_>) {
        if batch.worker() == 0 {
            *self.0.lock().unwrap() = allowed();
        }
    }
}

/// CPUs on which the calling thread may run.
fn allowed() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

#[test]
fn a_worker_in_place_of_an_unpinned_one_runs_where_the_switch_was_started() {
    let Some((a, b)) = two_cpus() else { return };
    let mut only = rustix::thread::CpuSet::new();
    only.set(b);
    rustix::thread::sched_setaffinity(None, &only).unwrap();
    let workers = vec![Some(a), None];
    let switch =
        Switch::start(&SwitchOptions { workers, pace: rig::quick(), ..SwitchOptions::default() }).unwrap();
    let affinity = Arc::new(Affinity::default());
    switch.add_bridge("b", affinity.clone()).unwrap();
    wait_until("worker 0 is pinned", || *affinity.0.lock().unwrap() == [a]);
    switch.remove_worker(Some(a)).unwrap();
    assert_eq!(switch.worker_cpus(), [None]);
    wait_until("worker 0 has been moved", || *affinity.0.lock().unwrap() != [a]);
    assert_eq!(*affinity.0.lock().unwrap(), [b]);
}

/// A logic whose alarm on worker 1 does not return.
#[derive(Default)]
struct Hangs {
    lets_go: AtomicBool,
    holds: AtomicBool,
    removed: Mutex<Vec<usize>>,
}

impl SwitchLogic for Hangs {
    fn forward(&self, _: &mut Batch<'_>) {}

    fn period(&self) -> Option<Duration> {
        Some(Duration::from_millis(2))
    }

    fn wake(&self, batch: &mut Batch<'_>) {
        while batch.worker() == 1 && !self.lets_go.load(Ordering::Relaxed) {
            self.holds.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn worker_removed(&self, worker: usize) {
        self.removed.lock().unwrap().push(worker);
    }
}

#[test]
fn a_worker_whose_alarm_does_not_return_stays() {
    let Some((a, b)) = two_cpus() else { return };
    let switch = start(&[a, b]);
    let logic = Arc::new(Hangs::default());
    switch.add_bridge("b", logic.clone()).unwrap();
    wait_until("the alarm goes off", || logic.holds.load(Ordering::Relaxed));
    for cpu in [a, b] {
        assert_eq!(switch.remove_worker(Some(cpu)), Err(SwitchError::HeldUp));
        assert_eq!(cpus(&switch), [a, b]);
    }
    assert!(logic.removed.lock().unwrap().is_empty());
    logic.lets_go.store(true, Ordering::Relaxed);
    wait_until("the worker is removed", || switch.remove_worker(Some(a)).is_ok());
    assert_eq!(cpus(&switch), [b]);
    assert_eq!(*logic.removed.lock().unwrap(), [1]);
}

#[test]
fn a_worker_that_cannot_start_leaves_the_others_as_they_are() {
    let Some((a, _)) = two_cpus() else { return };
    let switch = start(&[a]);
    let refused = switch.add_worker(Some(usize::MAX)).unwrap_err().to_string();
    assert_eq!(refused, format!("worker 1 cannot run on CPU {}: no such CPU", usize::MAX));
    assert_eq!(cpus(&switch), [a]);
    /// A logic that serves one worker.
    struct Single;
    impl SwitchLogic for Single {
        fn forward(&self, _: &mut Batch<'_>) {}

        fn prepare(&self, threads: Threads) -> Result<(), String> {
            if threads == Threads::of(1) { Ok(()) } else { Err("one worker at most".into()) }
        }
    }
    switch.add_bridge("b", Arc::new(Single)).unwrap();
    assert_eq!(switch.add_worker(Some(a)), Err(SwitchError::Logic("one worker at most".into())));
    assert_eq!(cpus(&switch), [a]);
}

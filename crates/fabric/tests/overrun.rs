//! A logic that does not return: the batch is reported, the worker's other queues go on, the control plane waits for nothing, and
//! everything recovers if the logic returns after all.
#![cfg(test)]
#![cfg(not(loom))]

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fabric::worker::Overrun;
use fabric::{Batch, SwitchLogic};
use support::feed::{Feed, Sent};
use support::pair::Pair;
use support::rig::{self, ByFirstByte, Hub};
use support::{CallPort, frame, wait_until};

/// Keeps the first batch until it is released, spinning or asleep.
struct Keeps {
    sleeps: bool,
    entered: AtomicU64,
    released: AtomicBool,
}

impl SwitchLogic for Keeps {
    fn forward(&self, _: &mut Batch<'_>) {
        self.entered.fetch_add(1, Ordering::SeqCst);
        while !self.released.load(Ordering::SeqCst) {
            match self.sleeps {
                true => std::thread::sleep(Duration::from_millis(50)),
                false => std::hint::spin_loop(),
            }
        }
    }
}

fn a_logic_that_keeps_its_batch(sleeps: bool) {
    let switch = rig::switch(1);
    let told = Arc::new(Mutex::new(Vec::<Vec<Overrun>>::new()));
    let to = told.clone();
    switch.on_overrun(Box::new(move |overruns| to.lock().unwrap().push(overruns.to_vec())));
    let good = switch.add_bridge("good", Arc::new(ByFirstByte)).unwrap();
    let mut pair = Pair::plug(&switch, good, "p");
    let logic = Arc::new(Keeps { sleeps, entered: AtomicU64::new(0), released: AtomicBool::new(false) });
    let bad = switch.add_bridge("bad", logic.clone()).unwrap();
    let feed = Feed::new();
    let (port, _) = rig::plug(&switch, bad, "x", vec![feed.queue()], vec![Arc::new(CallPort::default())]);
    let began = Instant::now();
    feed.send([Sent::whole(&frame(0, 60))]);
    wait_until("the batch overruns, and a stand-in takes over", || !switch.overruns().is_empty());
    let overrun = switch.overruns()[0];
    assert_eq!(switch.queue_of(&overrun), Some(("x".to_string(), 0)));
    assert_eq!(overrun.thread, 0, "the worker's own thread");
    assert!(overrun.since.elapsed() >= Duration::from_millis(900), "{:?}", overrun.since.elapsed());
    assert!(overrun.since >= began);
    let told_of = |overrun: &Overrun| (overrun.thread, overrun.since);
    let first: Vec<Vec<_>> =
        told.lock().unwrap().iter().map(|overruns| overruns.iter().map(told_of).collect()).collect();
    // When it began, and when it was listed.
    assert_eq!(first, [[told_of(&overrun)], [told_of(&overrun)]]);
    // The same worker's other queue is served, and the logic can be replaced.
    while pair.received < 10_000 {
        pair.step();
    }
    pair.settle();
    switch.set_logic(bad, Arc::new(Hub)).unwrap();
    assert_eq!(logic.entered.load(Ordering::SeqCst), 1);
    // It returns after all: its queue is served again, by the logic that the bridge has now.
    logic.released.store(true, Ordering::SeqCst);
    wait_until("the overrun ends", || switch.overruns().is_empty());
    feed.send([Sent::whole(&frame(1, 60))]);
    wait_until("the queue is served", || rig::packets(&switch, port).0 == 2);
    assert_eq!(told.lock().unwrap().last().unwrap(), &[]);
    pair.step();
    pair.settle();
}

#[test]
fn spinning() {
    a_logic_that_keeps_its_batch(false);
}

#[test]
fn asleep() {
    a_logic_that_keeps_its_batch(true);
}

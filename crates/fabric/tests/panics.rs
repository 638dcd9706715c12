//! A worker that panics ends the process, and does not leave the control plane waiting for it.
#![cfg(test)]
#![cfg(not(loom))]

mod support;

use std::io::Read;
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::{Batch, Egress, Fault, RxBatch, RxQueue, SwitchLogic, Tools};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use support::feed::{Feed, Sent};
use support::{CallPort, frame, rig};

/// Far more than a child needs to start and end, far less than for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// Panics at every batch.
struct Panics {
    caught: bool,
}

impl SwitchLogic for Panics {
    fn forward(&self, batch: &mut Batch<'_>) {
        let broken = || assert!(batch.packets().next().is_none(), "a packet nobody thought of");
        if self.caught {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(broken));
        } else {
            broken();
        }
    }
}

/// Runs a test of this file in a process of its own: how it ended, and what it wrote to standard error.
fn run(test: &str) -> (Option<ExitStatus>, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut ended = None;
    while ended.is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
        ended = child.try_wait().unwrap();
    }
    // Fails if it ended by itself.
    let _ = child.kill();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    (ended, said)
}

/// Has a worker meet the logic with a packet, and then waits for that worker as the control plane does.
fn meet(logic: Panics) {
    // A process that is to abort leaves no file behind.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(logic)).unwrap();
    let (feed, home): (_, Arc<dyn Egress>) = (Feed::new(), Arc::new(CallPort::default()));
    let (port, _) = rig::plug(&switch, bridge, "p", vec![feed.queue()], vec![home]);
    feed.send([Sent::whole(&frame(0, 60))]);
    // Of a worker that panics nothing more is heard; whether it did so before or during the next call is all one.
    let taken = Instant::now() + Duration::from_millis(100);
    while rig::packets(&switch, port).0 == 0 && Instant::now() < taken {
        std::thread::sleep(Duration::from_millis(1));
    }
    switch.remove_port(port).unwrap();
}

#[test]
fn a_panic_of_a_worker_ends_the_process_with_the_reason() {
    let (ended, said) = run("child_that_panics");
    let ended = ended.unwrap_or_else(|| panic!("still runs after {PATIENCE:?}, having said:\n{said}"));
    assert_eq!(ended.signal(), Some(Signal::ABORT.as_raw()), "{ended}:\n{said}");
    for part in ["mswitch-w0", file!(), "a packet nobody thought of", "worker 0 panicked"] {
        assert!(said.contains(part), "no {part:?} in:\n{said}");
    }
}

/// A queue that panics, and whose end takes longer than anybody waits: it may have to wait for its client.
struct Slow(Box<dyn RxQueue>);

impl RxQueue for Slow {
    fn receive(&mut self, _: &mut RxBatch) -> Result<(), Fault> {
        panic!("a ring that nobody thought of");
    }

    fn complete(&mut self, tools: &mut Tools) -> Result<(), Fault> {
        self.0.complete(tools)
    }

    fn set_signalled(&mut self, on: bool) {
        self.0.set_signalled(on);
    }

    fn signal(&self) -> BorrowedFd<'_> {
        self.0.signal()
    }

    fn cheap_to_poll(&self) -> bool {
        true
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        std::thread::sleep(2 * PATIENCE);
    }
}

#[test]
fn a_panic_over_a_queue_does_not_wait_for_its_end() {
    let (ended, said) = run("child_that_panics_over_a_queue");
    let ended = ended.unwrap_or_else(|| panic!("still runs after {PATIENCE:?}, having said:\n{said}"));
    assert_eq!(ended.signal(), Some(Signal::ABORT.as_raw()), "{ended}:\n{said}");
    assert!(said.contains("a ring that nobody thought of"), "{said}");
}

#[test]
fn a_panic_that_is_caught_ends_nothing() {
    let (ended, said) = run("child_that_catches_its_panic");
    assert!(ended.is_some_and(|ended| ended.success()), "{ended:?}:\n{said}");
    assert!(said.contains("a packet nobody thought of"), "{said}");
}

#[test]
#[ignore = "run by another test in a process of its own, which it ends"]
fn child_that_panics() {
    meet(Panics { caught: false });
}

#[test]
#[ignore = "run by another test in a process of its own"]
fn child_that_catches_its_panic() {
    meet(Panics { caught: true });
}

#[test]
#[ignore = "run by another test in a process of its own, which it ends"]
fn child_that_panics_over_a_queue() {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(rig::Hub)).unwrap();
    let feed = Feed::new();
    let (port, _) = rig::plug(&switch, bridge, "p", vec![Box::new(Slow(feed.queue()))], vec![]);
    switch.remove_port(port).unwrap();
}

//! Connected clients that do nothing cost nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use bench::idle::Idle;
use bench::port::Rings;
use e2e::{Daemon, PortView, config, long};

const CLIENTS: u32 = 1024;

#[test]
fn a_thousand_idle_clients_wake_nobody() {
    let ports: String = (0..CLIENTS).map(|id| config::memif(&format!("p{id}"), id, "")).collect();
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let mut idle = Idle::connect(&daemon.memif("memif", 0), CLIENTS, Rings::default()).unwrap();
    let up = daemon.ports("br0").unwrap().iter().filter(|port| PortView::is_up(port)).count();
    assert_eq!(up, CLIENTS as usize);
    let wakeups = daemon.wakeups().unwrap();
    // The question costs CPU time too, and so does what the daemon does after it: let that pass.
    std::thread::sleep(Duration::from_secs(1));
    let before = daemon.cpu_time().unwrap();
    let window = Duration::from_secs(if long() { 30 } else { 5 });
    idle.hold(window).unwrap();
    let used = daemon.cpu_time().unwrap().saturating_sub(before);
    assert!(used.as_secs_f64() < 1e-3 * window.as_secs_f64(), "{used:?} of CPU time in {window:?}");
    assert_eq!(daemon.wakeups().unwrap(), wakeups, "workers woke up");
}

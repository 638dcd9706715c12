//! Two workers: receive queues follow load; pinned ones stay.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bench::pace::Rate;
use bench::port::Rings;
use bench::session::{Options, Session};
use e2e::{Daemon, Running, config, exclusive, long, modules, seconds, until};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(20);
const QUEUES: u16 = 4;

/// CPU and reason of each receive queue.
fn queues(daemon: &Daemon) -> Vec<(u64, String)> {
    let shown = daemon.json(&["worker", "show"]).unwrap();
    let workers = shown["workers"].as_array().unwrap();
    let of = |worker: &Value| {
        let cpu = worker["cpu"].as_u64().unwrap();
        let queues = worker["queues"].as_array().cloned().unwrap_or_default();
        queues
            .into_iter()
            .map(|queue| (cpu, queue["reason"].as_str().unwrap().to_owned()))
            .collect::<Vec<_>>()
    };
    workers.iter().flat_map(of).collect()
}

/// Number of queues at CPU 1.
fn moved(daemon: &Daemon) -> usize {
    queues(daemon).iter().filter(|(cpu, _)| *cpu == 1).count()
}

fn each_queue(daemon: &Daemon, command: &str, cpu: &[&str]) {
    for port in ["a", "b"] {
        for queue in 0..QUEUES {
            daemon.run(&[&["worker", command, "br0", port, &queue.to_string()], cpu].concat()).unwrap();
        }
    }
}

#[test]
fn queues_follow_load_within_two_seconds_and_nothing_is_lost_or_reordered() {
    let _machine = exclusive();
    let folder = tempfile::tempdir().unwrap();
    let logic = modules::native("tests/modules/costly.c", folder.path(), &[]).unwrap();
    let ports = config::memif("a", 0, "") + &config::memif("b", 1, "");
    let daemon = Daemon::start_with(&(config::bridge("br0", &logic) + &ports), "0-1").unwrap();
    let events = folder.path().join("events");
    let file = std::fs::File::create(&events).unwrap();
    let mut follow = daemon.command(&["events", "--kind", "queue-moved"]).unwrap();
    let _events = Running::start(follow.stdout(file)).unwrap();
    let mut options = Options::new(vec![daemon.memif("memif", 0), daemon.memif("memif", 1)]);
    options.rings = Rings { queues: QUEUES, ..Rings::default() };
    options.flows = 16;
    options.cpu = Some(1);
    // More than one worker can do.
    options.rate = Rate::Pps(20_000.0);
    options.duration = seconds(15, 60);
    options.least = 1000;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| Session::connect(options).unwrap().run(&stop).unwrap());
        until("the clients to be connected", LIMIT, || Ok((queues(&daemon).len() == 8).then_some(())))
            .unwrap();
        let mut latest = Vec::new();
        for _ in 0..if long() { 10 } else { 2 } {
            each_queue(&daemon, "pin", &["0"]);
            assert!(queues(&daemon).iter().all(|(cpu, reason)| (*cpu, reason.as_str()) == (0, "pinned")));
            each_queue(&daemon, "unpin", &[]);
            let free = Instant::now();
            until("queues to follow load", LIMIT, || Ok((moved(&daemon) >= 2).then_some(()))).unwrap();
            latest.push(free.elapsed());
        }
        println!("queues followed after {latest:?}");
        assert!(latest.iter().all(|time| *time < Duration::from_secs(2)), "{latest:?}");
        let reasons: Vec<_> = queues(&daemon).into_iter().filter(|(cpu, _)| *cpu == 1).collect();
        let explained =
            |reason: &str| reason.starts_with("moved from CPU 0, which was ") && reason.ends_with(" % busy");
        assert!(reasons.iter().all(|(_, reason)| explained(reason)), "{reasons:?}");
        let shown = daemon.run(&["worker", "show", "--interval", "0.5"]).unwrap();
        assert!(shown.contains("WHY THERE") && shown.contains("moved from CPU 0, which was "), "{shown}");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let report = client.join().unwrap();
        assert!(report.ok, "{report}");
    });
    let told = std::fs::read_to_string(&events).unwrap();
    let line = told
        .lines()
        .find(|line| line.contains("CPU 0 -> CPU 1: the worker was"))
        .unwrap_or_else(|| panic!("{told}"));
    assert!(line.contains(": queue-moved: queue "), "{line}");
    let refused = daemon.cli(&["worker", "unpin", "br0", "a", "0"]).unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("bridge \"br0\", port \"a\": receive queue 0 is not pinned"), "{said}");
}

//! The verifying client from memif to memif: each packet arrives once, whole and in order, or is counted as dropped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::AtomicBool;

use bench::pace::Rate;
use bench::packet::Headers;
use bench::port::Rings;
use bench::report::Report;
use bench::session::{Options, Session};
use e2e::{Daemon, config, exclusive, seconds};

fn daemon(logic: &str) -> Daemon {
    let ports = config::memif("a", 0, "") + &config::memif("b", 1, "");
    Daemon::start(&(config::bridge("br0", logic) + &ports)).unwrap()
}

fn options(daemon: &Daemon) -> Options {
    let mut options = Options::new(vec![daemon.memif("memif", 0), daemon.memif("memif", 1)]);
    options.duration = seconds(3, 60);
    options.flows = 16;
    options.cpu = Some(1);
    options
}

fn run(options: Options) -> Report {
    // On its own thread, which is pinned.
    std::thread::spawn(move || Session::connect(options).unwrap().run(&AtomicBool::new(false)).unwrap())
        .join()
        .unwrap()
}

/// Sends all sizes and shapes at half the capacity.
fn verify_at_half_capacity(queues: u16, logic: &str) {
    let _machine = exclusive();
    let daemon = daemon(logic);
    let mut options = options(&daemon);
    options.rings = Rings { queues, ..Rings::default() };
    options.sizes = "60-65535".parse().unwrap();
    options.segments = "1-64".parse().unwrap();
    options.rate = Rate::Half;
    options.least = 501;
    let report = run(options);
    assert!(report.ok, "{report}");
    assert!(report.received() > 1000, "{report}");
    for port in &report.ports {
        assert!(
            port.received_by_queue.iter().all(|received| *received > 0),
            "queues without packets: {report}"
        );
    }
}

#[test]
fn every_size_and_shape_arrives_through_one_queue() {
    verify_at_half_capacity(1, "learning");
}

#[test]
fn every_size_and_shape_arrives_through_four_queues() {
    verify_at_half_capacity(4, "learning");
}

#[test]
fn every_size_and_shape_arrives_through_a_static_bridge() {
    verify_at_half_capacity(1, "static");
}

#[test]
fn short_packets_arrive_at_half_the_capacity() {
    let _machine = exclusive();
    let daemon = daemon("learning");
    let mut options = options(&daemon);
    options.sizes = "60-128".parse().unwrap();
    options.headers = Headers::Ethernet;
    options.rate = Rate::Half;
    options.least = 50_001;
    let report = run(options);
    assert!(report.ok, "{report}");
    assert!(report.received() > 100_000, "{report}");
}

#[test]
fn small_rings_and_buffers_work() {
    let _machine = exclusive();
    let daemon = daemon("learning");
    let mut options = options(&daemon);
    options.rings = Rings { queues: 2, log2_size: 4, buffer_size: 64 };
    options.sizes = "60-600".parse().unwrap();
    options.segments = "1-8".parse().unwrap();
    options.rate = Rate::Pps(2000.0);
    let report = run(options);
    assert!(report.ok, "{report}");
}

/// Asserts that sent packets equal received plus dropped packets.
fn verify_at_saturation(sizes: &str, queues: u16) {
    let _machine = exclusive();
    let daemon = daemon("learning");
    let mut options = options(&daemon);
    options.rings = Rings { queues, ..Rings::default() };
    options.sizes = sizes.parse().unwrap();
    options.rate = Rate::Max;
    options.allow_loss = true;
    let dropped = || daemon.ports("br0").unwrap().iter().map(|port| port.dropped()).sum::<u64>();
    // On its own thread, as in `run`.
    let (before, report) = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut session = Session::connect(options).unwrap();
            // Announcements sent before the other port was up have been dropped.
            (dropped(), session.run(&AtomicBool::new(false)).unwrap())
        });
        client.join().unwrap()
    });
    assert!(report.ok, "{report}");
    assert!(report.ports.iter().all(|port| port.unsent == 0), "{report}");
    assert_eq!(report.sent(), report.received() + dropped() - before, "{report}");
}

#[test]
fn drops_at_saturation_are_counted() {
    verify_at_saturation("64", 1);
}

#[test]
fn drops_of_large_packets_at_saturation_are_counted() {
    verify_at_saturation("60-65535", 4);
}

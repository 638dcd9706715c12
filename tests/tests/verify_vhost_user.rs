//! The verifying client with vhost-user devices: each packet arrives once, whole and in order, with every ring format
//! and feature, also between vhost-user and memif.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bench::pace::Rate;
use bench::port::{Device, PortSpec, Rings};
use bench::report::Report;
use bench::session::{Background, Options, Session};
use e2e::{Daemon, Error, config, exclusive, long, until};

fn vhost_user(daemon: &Daemon, port: &str, device: Device) -> PortSpec {
    PortSpec::vhost_user(&daemon.path(&format!("{port}.sock")), device)
}

/// Sends all sizes and shapes at half the capacity, in both directions between two ports.
fn verify_at_half_capacity(ports: Vec<PortSpec>, queues: u16) -> Report {
    let mut options = Options::new(ports);
    options.rings = Rings { queues, ..Rings::default() };
    options.sizes = "60-128,60-1600,60-65535".parse().unwrap();
    options.segments = "1-64".parse().unwrap();
    options.flows = 16;
    options.rate = Rate::Half;
    options.duration = if long() { Duration::from_secs(60) } else { Duration::from_millis(600) };
    options.least = 501;
    options.cpu = Some(1);
    // On its own thread, which is pinned.
    std::thread::spawn(move || {
        // The switch may not have noticed the end of the previous clients yet.
        let session = until("the ports to be free", Duration::from_secs(20), || {
            let errors = ["already connected", "the back-end closed the connection"];
            match Session::connect(options.clone()) {
                Err(error) if errors.iter().any(|busy| error.to_string().contains(busy)) => Ok(None),
                connected => Ok(Some(connected.map_err(|error| Error::new(error.to_string()))?)),
            }
        });
        session.unwrap().run(&AtomicBool::new(false)).unwrap()
    })
    .join()
    .unwrap()
}

fn check(daemon: &Daemon, setup: &str, report: &Report) {
    if long() {
        println!("{setup}: {report}");
    }
    let stats = || daemon.run(&["port", "stats", "--queues"]).unwrap();
    assert!(report.ok, "{setup}: {report}\n{}", stats());
    assert!(report.received() > 1000, "{setup}: {report}");
    for port in &report.ports {
        assert!(port.received_by_queue.iter().all(|count| *count > 0), "{setup}: idle queues: {report}");
    }
}

/// With and without mergeable buffers and indirect descriptors.
fn verify_devices(packed: bool, queues: u16) {
    let _machine = exclusive();
    let ports = config::vhost_user("a", "") + &config::vhost_user("b", "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    for (mergeable, indirect) in [(false, false), (false, true), (true, false), (true, true)] {
        // The other features, each combined with each of these settings.
        let event_idx = packed ^ mergeable ^ indirect ^ (queues > 1);
        let device = Device { packed, mergeable, indirect, event_idx, in_order: event_idx ^ indirect };
        let ports = ["a", "b"].map(|port| vhost_user(&daemon, port, device));
        let report = verify_at_half_capacity(ports.into(), queues);
        check(&daemon, &format!("{device:?}, {queues} queues"), &report);
    }
}

#[test]
fn split_rings_carry_everything() {
    verify_devices(false, 1);
}

#[test]
fn split_rings_of_four_queue_pairs_carry_everything() {
    verify_devices(false, 4);
}

#[test]
fn packed_rings_carry_everything() {
    verify_devices(true, 1);
}

#[test]
fn packed_rings_of_four_queue_pairs_carry_everything() {
    verify_devices(true, 4);
}

#[test]
fn the_end_of_the_switch_is_an_error() {
    let _machine = exclusive();
    let ports = config::vhost_user("a", "") + &config::vhost_user("b", "");
    let mut daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let ports = ["a", "b"].map(|port| vhost_user(&daemon, port, Device::default()));
    let mut options = Options::new(ports.into());
    options.duration = Duration::from_secs(3600);
    let background = Background::start(options).unwrap();
    daemon.kill().unwrap();
    let error = background.wait().unwrap_err().to_string();
    assert!(error.ends_with("disconnected: the switch closed the connection"), "{error}");
}

#[test]
fn memif_and_vhost_user_carry_everything_to_each_other() {
    let _machine = exclusive();
    let ports = config::memif("m", 0, "") + &config::vhost_user("v", "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    for (packed, queues) in [(false, 4), (true, 1)] {
        let device =
            Device { packed, mergeable: packed, indirect: packed, event_idx: true, in_order: packed };
        let ports = vec![daemon.memif("memif", 0), vhost_user(&daemon, "v", device)];
        check(
            &daemon,
            &format!("memif and {device:?}, {queues} queues"),
            &verify_at_half_capacity(ports, queues),
        );
    }
}

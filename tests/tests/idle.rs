//! Idle connected clients cause no wake-ups and almost no CPU time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use bench::idle::{Idle, allow_descriptors};
use bench::port::Rings;
use e2e::{Daemon, Netns, PortView, config, exclusive, long, until};
use rustix::process::{Resource, getrlimit};
use vhost_user::features::device::{PROTOCOL_FEATURES, VERSION_1};
use vhost_user::frontend::{Connection, DeviceConfig, NetDevice};

const CLIENTS: u32 = 1024;
const INTERFACES: usize = 200;
/// Files of a queue pair: kick and call of two rings, a socket and the memory file.
const FILES_OF_A_DEVICE: u64 = 6;
/// Files that the daemon reserves for a port.
const FILES_OF_A_PORT: u64 = 8;

#[test]
fn a_thousand_idle_clients_cause_no_wakeups() {
    let _machine = exclusive();
    let ports: String = (0..CLIENTS).map(|id| config::memif(&format!("p{id}"), id, "")).collect();
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let mut idle = Idle::connect(&daemon.memif("memif", 0), CLIENTS, Rings::default()).unwrap();
    wait_all_up(&daemon, CLIENTS as usize);
    assert_idle(&daemon, |window| idle.hold(window).unwrap());
}

/// Waits until all ports are up: a port comes up shortly after its client is connected.
fn wait_all_up(daemon: &Daemon, count: usize) {
    until("all ports to be up", Duration::from_secs(20), || {
        let up = daemon.ports("br0")?.iter().filter(|port| PortView::is_up(port)).count();
        Ok((up == count).then_some(()))
    })
    .unwrap();
}

/// Asserts that an idle daemon uses almost no CPU time and its workers sleep.
fn assert_idle(daemon: &Daemon, hold: impl FnOnce(Duration)) {
    // The last ports may still be announced to the workers.
    let mut before = None;
    let wakeups = until("the workers to sleep", Duration::from_secs(20), || {
        let (last, now) = (before, daemon.wakeups()?);
        before = Some(now);
        Ok((last == before).then_some(now))
    })
    .unwrap();
    // The request above and its aftermath cost CPU time too; let them pass.
    std::thread::sleep(Duration::from_secs(1));
    let before = daemon.cpu_time().unwrap();
    let window = Duration::from_secs(if long() { 30 } else { 3 });
    hold(window);
    let used = daemon.cpu_time().unwrap().saturating_sub(before);
    assert!(used.as_secs_f64() < 1e-3 * window.as_secs_f64(), "{used:?} of CPU time in {window:?}");
    assert_eq!(daemon.wakeups().unwrap(), wakeups, "workers woke up");
}

#[test]
fn two_hundred_idle_interfaces_cause_no_wakeups() {
    interfaces_cause_no_wakeups("driver = \"af-packet\"");
}

#[test]
fn two_hundred_idle_af_xdp_interfaces_cause_no_wakeups() {
    interfaces_cause_no_wakeups("driver = \"af-xdp\"");
}

fn interfaces_cause_no_wakeups(driver: &str) {
    let _machine = exclusive();
    let netns = Netns::new().unwrap();
    // Interfaces send nothing by themselves.
    netns.run(&["sysctl", "-q", "-w", "net.ipv6.conf.default.disable_ipv6=1"]).unwrap();
    let lines = (0..INTERFACES).map(|n| {
        format!("link add name v{n} type veth peer name p{n}\nlink set dev v{n} up\nlink set dev p{n} up\n")
    });
    let batch = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(batch.path(), lines.collect::<String>()).unwrap();
    netns.run(&["ip", "-batch", &batch.path().display().to_string()]).unwrap();
    let ports: String = (0..INTERFACES)
        .map(|n| config::netdev(&format!("v{n}"), &format!("v{n}"), netns.name(), driver))
        .collect();
    let mut daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    wait_all_up(&daemon, INTERFACES);
    assert_idle(&daemon, std::thread::sleep);
    // All of them close within the time of an end.
    assert!(daemon.terminate().unwrap().success(), "{}", daemon.log());
    assert!(!daemon.log().contains("detaching the interface"), "{}", daemon.log());
}

/// One socket for each port: a thousand, in long runs three thousand, or as many as the limit on files permits.
#[test]
fn a_thousand_idle_vhost_user_sockets_cause_no_wakeups() {
    let _machine = exclusive();
    let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let count = if long() { 3000.min(allowed.saturating_sub(256) / FILES_OF_A_PORT) } else { 1024 };
    println!("{count} ports");
    let ports: String = (0..count).map(|n| config::vhost_user(&format!("p{n}"), "")).collect();
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    allow_descriptors(count * FILES_OF_A_DEVICE + 256).unwrap();
    let features = VERSION_1 | PROTOCOL_FEATURES;
    let config =
        DeviceConfig { features, size: 64, send_buffers: 1, receive_buffers: 8, ..DeviceConfig::default() };
    let start = |n: u64| {
        let connection = Connection::dial(daemon.path(&format!("p{n}.sock")).as_ref()).unwrap();
        let mut device = NetDevice::start(connection, config).unwrap();
        // Like sleeping drivers.
        device.queue(0).unwrap().set_calls(true);
        device
    };
    let mut devices: Vec<_> = (0..count).map(start).collect();
    wait_all_up(&daemon, count as usize);
    assert_idle(&daemon, std::thread::sleep);
    // All are connected: a flooded frame of the first reaches each other one.
    let mut frame = vec![0x5a; 60];
    frame[..14].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    assert!(devices[0].send(0, &[0; 12], &frame).unwrap());
    for device in &mut devices[1..] {
        let found = until("the frame", Duration::from_secs(20), || Ok(device.receive(0).unwrap()));
        assert!(found.unwrap().1 == frame);
    }
}

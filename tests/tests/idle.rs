//! Connected clients that do nothing cost nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use bench::idle::{Idle, allow_descriptors};
use bench::port::Rings;
use e2e::{Daemon, PortView, config, exclusive, long, until};
use rustix::process::{Resource, getrlimit};
use vhost_user::features::device::{PROTOCOL_FEATURES, VERSION_1};
use vhost_user::frontend::{Connection, DeviceConfig, NetDevice};

const CLIENTS: u32 = 1024;
/// Queue pairs, kick and call of two rings each, a socket and the memory's file.
const FILES_OF_A_DEVICE: u64 = 6;
/// What the daemon wants to be allowed for a port.
const FILES_OF_A_PORT: u64 = 8;

#[test]
fn a_thousand_idle_clients_wake_nobody() {
    let _machine = exclusive();
    let ports: String = (0..CLIENTS).map(|id| config::memif(&format!("p{id}"), id, "")).collect();
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let mut idle = Idle::connect(&daemon.memif("memif", 0), CLIENTS, Rings::default()).unwrap();
    all_up(&daemon, CLIENTS as usize);
    costs_nothing(&daemon, |window| idle.hold(window).unwrap());
}

/// A port is up a moment after its client was told that it is connected.
fn all_up(daemon: &Daemon, count: usize) {
    until("all ports to be up", Duration::from_secs(20), || {
        let up = daemon.ports("br0")?.iter().filter(|port| PortView::is_up(port)).count();
        Ok((up == count).then_some(()))
    })
    .unwrap();
}

/// A daemon that nobody asks for anything uses no CPU time, and its workers sleep.
fn costs_nothing(daemon: &Daemon, hold: impl FnOnce(Duration)) {
    // They may still be told of the last ports.
    let mut before = None;
    let wakeups = until("the workers to rest", Duration::from_secs(20), || {
        let (last, now) = (before, daemon.wakeups()?);
        before = Some(now);
        Ok((last == before).then_some(now))
    })
    .unwrap();
    // The question costs CPU time too, and so does what the daemon does after it: let that pass.
    std::thread::sleep(Duration::from_secs(1));
    let before = daemon.cpu_time().unwrap();
    let window = Duration::from_secs(if long() { 30 } else { 3 });
    hold(window);
    let used = daemon.cpu_time().unwrap().saturating_sub(before);
    assert!(used.as_secs_f64() < 1e-3 * window.as_secs_f64(), "{used:?} of CPU time in {window:?}");
    assert_eq!(daemon.wakeups().unwrap(), wakeups, "workers woke up");
}

/// A socket for each port: a thousand of them, three thousand in long runs, or as many as the machine allows files for.
#[test]
fn a_thousand_idle_vhost_user_sockets_wake_nobody() {
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
        // As drivers do that sleep.
        device.queue(0).unwrap().set_calls(true);
        device
    };
    let mut devices: Vec<_> = (0..count).map(start).collect();
    all_up(&daemon, count as usize);
    costs_nothing(&daemon, std::thread::sleep);
    // They are all there: what the first floods comes to the last.
    let mut frame = vec![0x5a; 60];
    frame[..14].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    assert!(devices[0].send(0, &[0; 12], &frame).unwrap());
    for device in &mut devices[1..] {
        let found = until("the frame", Duration::from_secs(20), || Ok(device.receive(0).unwrap()));
        assert!(found.unwrap().1 == frame);
    }
}

//! Protection of ports against their clients: faults name the client, those found by workers hold the port off, and
//! honest clients are never delayed.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::{Batch, PortSettings, Switch, SwitchLogic, SwitchOptions};
use memif::client::{Client, ClientConfig, Direction};
use memif::message::Message;
use memif::socket::Address;
use ports::faults::Summary;
use ports::{Environment, Link, Port, Spec};
use vhost_user::driver::{Buffer, DriverMemory};
use vhost_user::frontend::{Connection, DeviceConfig, NetDevice};
use vhost_user::message::{Region, Request, RingNumber};

const PATIENCE: Duration = Duration::from_secs(20);

/// Sends every packet nowhere.
struct Sink;

impl SwitchLogic for Sink {
    fn forward(&self, _: &mut Batch<'_>) {}
}

struct Lab {
    dir: tempfile::TempDir,
    env: Environment,
    port: Option<Box<dyn Port>>,
    _runtime: tokio::runtime::Runtime,
}

impl Lab {
    fn new(kind: &str, more: &str) -> Lab {
        let switch = Arc::new(Switch::start(&SwitchOptions::default()).unwrap());
        let bridge = switch.add_bridge("br0", Arc::new(Sink)).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let env = Environment::new(switch, runtime.handle().clone());
        let dir = tempfile::tempdir().unwrap();
        let text = format!("path = {:?}\n{more}", dir.path().join("socket"));
        let spec = match kind {
            "memif" => Spec::Memif(toml::from_str(&text).unwrap()),
            _ => Spec::VhostUser(toml::from_str(&text).unwrap()),
        };
        let at = env.switch.add_port(bridge, PortSettings::new("a")).unwrap();
        let port = Some(ports::open(&spec, at, &env).unwrap());
        Lab { dir, env, port, _runtime: runtime }
    }

    fn port(&self) -> &dyn Port {
        self.port.as_deref().unwrap()
    }

    fn faults(&self) -> Option<Summary> {
        self.port().faults().unwrap().summary()
    }

    /// Waits until this many faults are recorded, and returns the last.
    fn faulted(&self, total: u64) -> Summary {
        let mut last = None;
        until("another fault", || {
            last = self.faults();
            last.as_ref().is_some_and(|summary| summary.total >= total)
        });
        let last = last.unwrap();
        assert_eq!(last.total, total, "{last:?}");
        last
    }

    fn down(&self) -> Option<String> {
        match self.port().status().link {
            Link::Up => None,
            Link::Down(reason) => Some(reason),
        }
    }

    fn memif(&self) -> Result<Client, String> {
        let config = ClientConfig::new(Address::Path(self.dir.path().join("socket")), 0);
        let client = Client::connect(&config).map_err(|error| error.to_string())?;
        until("the port to be up", || self.down().is_none());
        Ok(client)
    }

    fn vhost_user(&self) -> NetDevice {
        let connection = Connection::dial(&self.dir.path().join("socket")).unwrap();
        let device = NetDevice::start(connection, DeviceConfig::default()).unwrap();
        until("the port to be up", || self.down().is_none());
        device
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(self.port.take());
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the beginning of this process's description in a fault.
fn this_process() -> String {
    format!("process {} (", std::process::id())
}

/// Publishes more entries than the ring to the switch has, until the switch has seen it.
fn break_memif(client: &mut Client) {
    let ring = client.control.layout().ring(Direction::S2m, 0);
    // The head follows the cookie and the flags.
    let head = client.memory.translate(ring.region, ring.offset + 6, 2).unwrap();
    until("the fault", || {
        // Wakes the worker, which may fall asleep again before the head is wrong.
        client.tx[0].push(&[&[0; 60]]);
        client.tx[0].flush();
        // SAFETY: `translate` has checked it, and `client.memory` keeps it mapped.
        unsafe { head.cast::<u16>().write_volatile(40_000) };
        client.poll_disconnect().is_some()
    });
}

/// Takes away memory that the switch is about to read.
fn truncate(device: &mut NetDevice) {
    let file = rustix::fs::memfd_create("short", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 1 << 20).unwrap();
    let guest = 1 << 40;
    let region = Region { guest, size: 1 << 20, user: DriverMemory::user_address(guest), offset: 0 };
    device.connection().ask(&Request::AddMemReg(region), &[file.as_fd()], true).unwrap();
    rustix::fs::ftruncate(&file, 0).unwrap();
    let queue = device.queue(1).unwrap();
    queue.add(&[Buffer { address: guest, len: 200 }], &[], None).unwrap();
    queue.publish();
    device.send(0, &[0; 12], &[0; 60]).unwrap();
}

fn break_vhost_user(device: &mut NetDevice) {
    let queue = device.queue(1).unwrap();
    queue.add(&[Buffer { address: 0x1000, len: 60 }], &[], None).unwrap();
    queue.publish();
    device.send(0, &[0; 12], &[0; 60]).unwrap();
}

#[test]
fn a_memif_client_is_named_and_held_off() {
    let lab = Lab::new("memif", "");
    assert_eq!(lab.faults(), None);
    let mut client = lab.memif().unwrap();
    let detail = |name: &str| {
        lab.port().status().details.into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
    };
    assert!(detail("client").unwrap().starts_with(&this_process()));
    break_memif(&mut client);
    let fault = lab.faulted(1);
    assert!(fault.last.client.starts_with(&this_process()), "{fault:?}");
    assert!(fault.last.client.ends_with(", \"memif-client\""), "{fault:?}");
    assert_eq!(fault.last.kind.name(), "protocol");
    assert!(fault.last.reason.starts_with("ring index jumped: "), "{fault:?}");
    assert!(fault.hold_off > Duration::ZERO, "{fault:?}");
    drop(client);
    // A short hold-off delays the next client, and its fault lengthens the hold-off.
    break_memif(&mut lab.memif().unwrap());
    let second = lab.faulted(2);
    assert!(second.hold_off > fault.hold_off, "{second:?}");
}

#[test]
fn honest_clients_are_never_delayed() {
    let lab = Lab::new("memif", "");
    let start = Instant::now();
    for _ in 0..20 {
        drop(lab.memif().unwrap());
        until("the port to be free", || lab.down().is_some());
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(lab.faults(), None);
    let lab = Lab::new("vhost-user", "");
    for _ in 0..20 {
        drop(lab.vhost_user());
        until("the port to be free", || lab.down().is_some_and(|why| why.contains("closed the connection")));
    }
    assert_eq!(lab.faults(), None);
}

#[test]
fn faults_found_by_the_control_plane_cause_no_hold_off() {
    let lab = Lab::new("memif", "");
    let client = lab.memif().unwrap();
    memif::socket::send(client.control.as_fd(), &Message::Ack, None).unwrap();
    let fault = lab.faulted(1);
    assert_eq!(fault.last.reason, "unexpected ACK while connected");
    assert_eq!(fault.hold_off, Duration::ZERO);

    let lab = Lab::new("vhost-user", "");
    let mut device = lab.vhost_user();
    let wrong = Request::SetVringEnable(RingNumber { ring: 99, number: 1 });
    device.connection().tell(&wrong, &[]).unwrap();
    let fault = lab.faulted(1);
    assert!(fault.last.reason.starts_with("ring 99 does not exist"), "{fault:?}");
    assert!(fault.last.client.starts_with(&this_process()), "{fault:?}");
    assert_eq!(fault.hold_off, Duration::ZERO);
}

#[test]
fn a_vhost_user_front_end_is_named_and_held_off() {
    let lab = Lab::new("vhost-user", "");
    let mut device = lab.vhost_user();
    break_vhost_user(&mut device);
    let fault = lab.faulted(1);
    assert!(fault.last.client.starts_with(&this_process()), "{fault:?}");
    assert!(fault.last.reason.starts_with("ring 1: descriptor names 60 bytes"), "{fault:?}");
    assert!(fault.hold_off > Duration::ZERO, "{fault:?}");
    drop(device);
    // The next client waits for the hold-off, which is short.
    let start = Instant::now();
    drop(lab.vhost_user());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn repeated_faults_hold_the_port_off_until_the_operator_intervenes() {
    let lab = Lab::new("vhost-user", "");
    for fault in 1..=6 {
        let mut device = lab.vhost_user();
        truncate(&mut device);
        assert_eq!(lab.faulted(fault).last.kind.name(), "memory");
        until("the port to be free", || lab.down().is_some());
    }
    let held = lab.faults().unwrap().hold_off;
    assert!(held > Duration::from_secs(2), "{held:?}");
    let mut refused = Connection::dial(&lab.dir.path().join("socket")).unwrap();
    refused.wait_closed().unwrap();
    lab.port().faults().unwrap().lift();
    let start = Instant::now();
    drop(lab.vhost_user());
    assert!(start.elapsed() < held / 2, "{:?}", start.elapsed());
}

#[test]
fn a_flood_is_recorded_once_as_a_limit() {
    let lab = Lab::new("vhost-user", "message-rate = 100");
    let mut device = lab.vhost_user();
    for _ in 0..1100 {
        device.connection().tell(&Request::SetOwner, &[]).unwrap();
    }
    let fault = lab.faulted(1);
    assert_eq!(fault.last.limit.map(|limit| limit.to_string()).as_deref(), Some("message-rate = 100"));
    assert_eq!((fault.last.kind.name(), fault.hold_off), ("limit", Duration::ZERO));
    assert_eq!(lab.down(), None, "the client is served, at the limited pace");
    let runtime = lab.env.runtime.clone();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, lab.env.alarm.rung()).await }).unwrap();
    assert_eq!(lab.faults().map(|faults| faults.total), Some(1));
}

//! Depths of ports' queues, as logics see them: packets that receivers have not taken.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fabric::switch::{BridgeId, PortRef};
use fabric::{Batch, Injection, PortIndex, PortSettings, Switch, SwitchLogic, SwitchOptions};
use memif::client::{Client, ClientConfig};
use memif::socket::Address;
use packet::offload::Offload;
use ports::{Environment, Link, Port, Spec};
use vhost_user::features::device::*;
use vhost_user::frontend::{Connection, DeviceConfig, NetDevice};

const PATIENCE: Duration = Duration::from_secs(30);

/// Sends all packets to port 0, and records what waits there before each batch.
#[derive(Default)]
struct Asking(Mutex<Vec<u32>>);

impl SwitchLogic for Asking {
    fn forward(&self, batch: &mut Batch<'_>) {
        self.0.lock().unwrap().push(batch.depth(PortIndex(0)));
        batch.send_all(PortIndex(0));
    }
}

/// A bridge with one port.
struct Lab {
    dir: tempfile::TempDir,
    env: Environment,
    bridge: BridgeId,
    logic: Arc<Asking>,
    port: Option<Box<dyn Port>>,
    _runtime: tokio::runtime::Runtime,
}

impl Lab {
    fn new(spec: impl FnOnce(PathBuf) -> Spec) -> Lab {
        let (switch, logic) =
            (Arc::new(Switch::start(&SwitchOptions::default()).unwrap()), Arc::<Asking>::default());
        let bridge = switch.add_bridge("br0", logic.clone()).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let env = Environment::new(switch, runtime.handle().clone());
        let dir = tempfile::tempdir().unwrap();
        let at: PortRef = env.switch.add_port(bridge, PortSettings::new("a")).unwrap();
        let port = ports::open(&spec(dir.path().join("socket")), at, &env).unwrap();
        Lab { dir, env, bridge, logic, port: Some(port), _runtime: runtime }
    }

    fn wait_up(&self) {
        let start = Instant::now();
        let port = self.port.as_deref().unwrap();
        while port.status().link != Link::Up {
            assert!(start.elapsed() < PATIENCE, "{:?}", port.status());
            std::thread::yield_now();
        }
    }

    fn memif(&self) -> Client {
        let config = ClientConfig::new(Address::Path(self.dir.path().join("socket")), 0);
        let client = Client::connect(&config).unwrap();
        self.wait_up();
        client
    }

    fn vhost_user(&self, config: DeviceConfig) -> NetDevice {
        let connection = Connection::dial(&self.dir.path().join("socket")).unwrap();
        let device = NetDevice::start(connection, config).unwrap();
        self.wait_up();
        device
    }

    /// Sends a packet to the port; returns how many waited before it.
    fn send(&self, len: usize) -> u32 {
        let injector = self.env.switch.injector(self.bridge).unwrap();
        let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x88, 0xb5], &vec![7; len - 14]].concat();
        injector.inject(&frame, Offload::NONE, Injection::Logic).unwrap();
        let start = Instant::now();
        while !injector.is_idle() {
            assert!(start.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        self.logic.0.lock().unwrap().pop().unwrap()
    }

    fn send_all(&self, packets: usize) -> Vec<u32> {
        (0..packets).map(|_| self.send(60)).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(self.port.take());
    }
}

fn up_to(n: u32) -> Vec<u32> {
    (0..n).collect()
}

// ---- Memory ----------------------------------------------------------------------------------------------

#[test]
fn a_memif_client_that_takes_nothing_has_packets_waiting() {
    let lab = Lab::new(|path| Spec::Memif(toml::from_str(&format!("path = {path:?}")).unwrap()));
    assert_eq!(lab.send(60), 0);
    let mut client = lab.memif();
    assert_eq!(lab.send_all(50), up_to(50));
    let mut packet = Vec::new();
    for _ in 0..20 {
        packet.clear();
        assert!(client.rx[0].pop(&mut packet));
    }
    client.rx[0].refill();
    assert_eq!(lab.send_all(2), [30, 31]);
    while client.rx[0].pop(&mut packet) {}
    client.rx[0].refill();
    assert_eq!(lab.send(60), 0);
}

fn vhost_user() -> Lab {
    Lab::new(|path| Spec::VhostUser(toml::from_str(&format!("path = {path:?}")).unwrap()))
}

fn device(features: u64) -> DeviceConfig {
    DeviceConfig { features: VERSION_1 | PROTOCOL_FEATURES | features, ..DeviceConfig::default() }
}

#[test]
fn a_driver_that_returns_no_buffers_has_packets_waiting() {
    for features in [0, RING_PACKED, MRG_RXBUF, MRG_RXBUF | RING_PACKED] {
        let lab = vhost_user();
        // More than once around the ring.
        let mut guest = lab.vhost_user(DeviceConfig { size: 64, receive_buffers: 60, ..device(features) });
        for round in 0..5 {
            assert_eq!(lab.send_all(40), up_to(40), "{features:#x}, round {round}");
            for _ in 0..15 {
                guest.receive(0).unwrap().unwrap();
            }
            assert_eq!(lab.send(60), 25);
            while guest.receive(0).unwrap().is_some() {}
        }
        // It has no buffers left.
        lab.send_all(80);
        assert_eq!(lab.send(60), 60);
    }
}

#[test]
fn a_driver_that_keeps_processed_buffers_says_so_when_it_waits_for_a_signal() {
    for features in [EVENT_IDX, EVENT_IDX | RING_PACKED] {
        let lab = vhost_user();
        let mut guest = lab.vhost_user(device(features));
        let mut packet = Vec::new();
        for _ in 0..3 {
            assert_eq!(lab.send_all(30)[29], 29, "{features:#x}");
            while guest.pop(0, &mut packet).unwrap().is_some() {}
            // Until then, they may as well be waiting.
            assert_eq!(lab.send(60), 30);
            while guest.pop(0, &mut packet).unwrap().is_some() {}
            guest.queue(0).unwrap().set_calls(true);
            assert_eq!(lab.send_all(3), up_to(3));
            guest.queue(0).unwrap().set_calls(false);
            while guest.receive(0).unwrap().is_some() {}
        }
    }
}

// ---- The kernel ------------------------------------------------------------------------------------------

/// A namespace with a veth pair, of which one end sends a kilobit a second.
struct SlowLink(String);

impl SlowLink {
    fn new() -> Self {
        let netns = format!("msw-depth-{}", std::process::id());
        ip(&["netns", "add", &netns]);
        let link = Self(netns);
        let quiet = "net.ipv6.conf.default.disable_ipv6=1";
        ip(&["netns", "exec", &link.0, "sysctl", "-q", "-w", quiet]);
        ip(&["-n", &link.0, "link", "add", "name", "va", "type", "veth", "peer", "name", "vb"]);
        ["va", "vb"].iter().for_each(|end| ip(&["-n", &link.0, "link", "set", "dev", end, "up"]));
        link.limit(&["tbf", "rate", "1kbit", "burst", "2000", "limit", "1000000"]);
        link
    }

    fn limit(&self, discipline: &[&str]) {
        let replace = ["netns", "exec", &self.0, "tc", "qdisc", "replace", "dev", "va", "root"];
        ip(&[&replace[..], discipline].concat());
    }
}

impl Drop for SlowLink {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {}: {output:?}", arguments.join(" "));
}

/// Needs root.
#[test]
fn packets_wait_in_the_queue_of_an_interface() {
    let link = SlowLink::new();
    let lab = Lab::new(|_| {
        let netns = &link.0;
        let text = format!("interface = \"va\"\nnetns = {netns:?}\ndriver = \"af-packet\"");
        Spec::Netdev(toml::from_str(&text).unwrap())
    });
    lab.wait_up();
    // The link's burst is one packet, which may be on its way through the kernel for a moment.
    assert_eq!(lab.send(1514), 0);
    assert!(lab.send(1514) <= 1);
    for waiting in 1..100 {
        let depth = lab.send(1514);
        assert!(depth.abs_diff(waiting) <= 1 + waiting / 20, "{depth} instead of {waiting}");
    }
    // Without the limit everything leaves at once.
    link.limit(&["pfifo"]);
    let start = Instant::now();
    while lab.send(60) > 0 {
        assert!(start.elapsed() < PATIENCE);
    }
    link.limit(&["tbf", "rate", "1kbit", "burst", "2000", "limit", "1000000"]);
    let depths = lab.send_all(150);
    // The burst has room for 33 packets.
    assert!((100..150).contains(&depths[149]), "{depths:?}");
}

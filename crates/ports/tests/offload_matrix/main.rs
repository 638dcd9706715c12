//! vhost-user, memif, TAP and netdev (af-packet, af-xdp), each to each, with every combination of offloads that a receiver can
//! negotiate: unfinished work is done where the receiver cannot do it, and left to the receiver where it can. Every byte
//! is compared with packets that were built without the switch ([`shape`]). TAP interfaces, and veth pairs of netdev
//! ports, are read and written at the kernel's end, by packet sockets that see the kernel's view of the unfinished work
//! ([`ends`]). Needs root.
#![allow(clippy::unwrap_used, clippy::panic)]

mod ends;
mod shape;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use ends::{End, Netns, Offloads, PATIENCE, PacketSocket, Plug, memif_client, run};
use fabric::switch::{BridgeId, PortRef};
use fabric::{Batch, DropReason, PortIndex, PortSettings, Switch, SwitchLogic, SwitchOptions};
use memif::client::ClientConfig;
use memif::socket::Address;
use ports::netdev::{self, Driver};
use ports::{Environment, Link, Port, Spec, tap, vhost_user as vhost_user_port};
use shape::{Built, DATA_VALID, GSO_ECN, Job, Metadata, NEEDS_CSUM, Packet, Shape};
use vhost_user::features::device::*;
use vhost_user::frontend::{Connection, DeviceConfig, NetDevice};

const BASIC: u64 = VERSION_1 | PROTOCOL_FEATURES;
/// Largest MTU, so that it stops no long uncut packet.
const LONGEST_MTU: u32 = 65_521;

/// Sends all packets to one port.
#[derive(Default)]
struct ToOne(AtomicU32);

impl SwitchLogic for ToOne {
    fn forward(&self, batch: &mut Batch<'_>) {
        let to = PortIndex(self.0.load(Ordering::Acquire) as u16);
        for v in batch.packets() {
            batch.send(v, to);
        }
    }
}

struct Lab {
    dir: tempfile::TempDir,
    env: Environment,
    bridge: BridgeId,
    logic: Arc<ToOne>,
    netns: Netns,
    _runtime: tokio::runtime::Runtime,
}

impl Lab {
    fn new() -> Lab {
        let switch = Arc::new(Switch::start(&SwitchOptions::default()).unwrap());
        let logic = Arc::new(ToOne::default());
        let bridge = switch.add_bridge("br0", logic.clone()).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let env = Environment::new(switch, runtime.handle().clone());
        let dir = tempfile::tempdir().unwrap();
        Lab { dir, env, bridge, logic, netns: Netns::new(), _runtime: runtime }
    }

    /// Lists the switch's drops, for failure messages.
    fn drops(&self) -> String {
        let mut found = String::new();
        for port in self.env.switch.ports(self.bridge).unwrap() {
            let counters = self.env.switch.counters(PortRef { bridge: self.bridge, port }).unwrap();
            for queue in counters.rx.iter().chain(&counters.tx) {
                for (reason, count) in DropReason::ALL.iter().zip(queue.drops).filter(|(_, count)| *count > 0)
                {
                    found += &format!("port {}: {count} {reason:?}; ", port.0);
                }
            }
        }
        found
    }

    fn open(&self, name: &str, spec: &Spec) -> (Box<dyn Port>, PortIndex) {
        let at = self.env.switch.add_port(self.bridge, PortSettings::new(name)).unwrap();
        (ports::open(spec, at, &self.env).unwrap(), at.port)
    }

    fn end(&self, name: String, port: Box<dyn Port>, client: Plug, offloads: Offloads) -> End {
        let start = Instant::now();
        while port.status().link != Link::Up {
            assert!(start.elapsed() < PATIENCE, "{name}: {:?}", port.status());
            std::thread::yield_now();
        }
        End { name, client, offloads, port }
    }

    /// Opens a port with a device of these features in addition to those of every device.
    fn vhost_user(&self, number: usize, features: u64, offloads: Offloads) -> (End, PortIndex) {
        let socket = self.dir.path().join(format!("v{number}"));
        let options: vhost_user_port::Options = toml::from_str(&format!("path = {socket:?}")).unwrap();
        let (port, at) = self.open(&format!("v{number}"), &Spec::VhostUser(options));
        // The layout of rings and buffers does not matter here: each kind takes its turn.
        let other = [(RING_PACKED, 1), (MRG_RXBUF, 2), (INDIRECT_DESC, 4), (EVENT_IDX, 3)];
        let other = other.iter().filter(|(_, mask)| number & mask != 0).fold(0, |bits, (bit, _)| bits | bit);
        let config = DeviceConfig {
            features: BASIC | features | other,
            pairs: 1,
            size: 256,
            send_buffers: 16,
            receive_buffers: if other & MRG_RXBUF != 0 { 200 } else { 100 },
            receive_buffer: if other & MRG_RXBUF != 0 { 2048 } else { 65_600 },
            pieces: 2,
        };
        let config = match other & INDIRECT_DESC {
            0 => DeviceConfig { pieces: 1, ..config },
            _ => config,
        };
        let device = NetDevice::start(Connection::dial(&socket).unwrap(), config).unwrap();
        let name = format!("vhost-user with features {:#x}", config.features);
        (self.end(name, port, Plug::VhostUser(Box::new(device)), offloads), at)
    }

    fn memif(&self, number: u32) -> (End, PortIndex) {
        let socket = self.dir.path().join("memif");
        let options = toml::from_str(&format!("path = {socket:?}\nid = {number}")).unwrap();
        let (port, at) = self.open(&format!("m{number}"), &Spec::Memif(options));
        let client = memif_client(&ClientConfig::new(Address::Path(socket), number));
        (self.end("memif".to_string(), port, client, Offloads::default()), at)
    }

    fn tap(&self, name: &str, offloads: bool) -> (End, PortIndex) {
        let options = tap::Options {
            netns: Some(self.netns.0.parse().unwrap()),
            mtu: Some(LONGEST_MTU),
            offloads,
            ..Default::default()
        };
        let (port, at) = self.open(name, &Spec::Tap(options));
        let details = port.status().details;
        let crosses = details.iter().find(|(key, _)| key == "offloads").map(|(_, value)| value.as_str());
        let agreed = match (offloads, crosses.unwrap()) {
            (true, "csum,tso4,tso6,uso") => Offloads::ALL,
            // Kernels before 6.2.
            (true, "csum,tso4,tso6") => Offloads { udp: false, ..Offloads::ALL },
            (false, "none") => Offloads::default(),
            other => panic!("{other:?}"),
        };
        let client = Plug::Kernel(PacketSocket::open(&self.netns, name));
        let what = format!("TAP {}", if offloads { "with offloads" } else { "without offloads" });
        (self.end(what, port, client, agreed), at)
    }
}

impl Lab {
    /// Opens a port at one end of a veth pair; the client is at the other.
    fn netdev(&self, name: &str, driver: Driver) -> (End, PortIndex) {
        let (peer, mtu) = (format!("{name}-peer"), LONGEST_MTU.to_string());
        let add = ["-n", &self.netns.0, "link", "add", "name", name, "mtu", &mtu, "type", "veth"];
        run(&[&add[..], &["peer", "name", &peer, "mtu", &mtu]].concat());
        for end in [name, &peer] {
            run(&["-n", &self.netns.0, "link", "set", "dev", end, "up"]);
        }
        let netns = Some(self.netns.0.parse().unwrap());
        let options = netdev::Options { netns, driver, ..Default::default() };
        let (port, at) = self.open(name, &Spec::Netdev(options));
        let client = Plug::Kernel(PacketSocket::open(&self.netns, &peer));
        let offloads = if driver == Driver::AfXdp { Offloads::default() } else { Offloads::ALL };
        let end = self.end(format!("netdev with {driver}"), port, client, offloads);
        let details = end.port.status().details;
        let in_use = details.iter().find(|(key, _)| key == "driver").map_or("", |(_, value)| value.as_str());
        assert!(in_use.starts_with(&driver.to_string()), "{in_use}");
        (end, at)
    }
}

/// Returns all features that leave work to the receiver, in every sensible combination and one that is not.
fn receivers() -> Vec<u64> {
    let parts = [GUEST_TSO4, GUEST_TSO6, GUEST_USO4, GUEST_USO6];
    let mut sets = vec![0, GUEST_TSO4 | GUEST_TSO6 | GUEST_USO4 | GUEST_USO6];
    for chosen in 0..1 << parts.len() {
        let parts = parts.iter().enumerate().filter(|(i, _)| chosen & 1 << i != 0);
        let set = parts.fold(GUEST_CSUM, |set, (_, part)| set | part);
        sets.push(set);
        if set & (GUEST_TSO4 | GUEST_TSO6) != 0 {
            sets.push(set | GUEST_ECN);
        }
    }
    sets
}

const SENDERS: [u64; 6] = [
    0,
    CSUM,
    CSUM | HOST_TSO4,
    CSUM | HOST_TSO6,
    CSUM | HOST_USO,
    CSUM | HOST_TSO4 | HOST_TSO6 | HOST_ECN | HOST_USO,
];

#[test]
fn every_pair_of_ports_agrees_on_the_unfinished_work() {
    let lab = Lab::new();
    let packets: Vec<Built> = Shape::all().into_iter().map(Shape::build).collect();
    let mut senders = Vec::new();
    for (number, features) in SENDERS.into_iter().enumerate() {
        senders.push(lab.vhost_user(number, features, Offloads::of_sender(features)).0);
    }
    senders.push(lab.memif(0).0);
    senders.push(lab.tap("from-on", true).0);
    senders.push(lab.tap("from-off", false).0);
    senders.push(lab.netdev("from-veth", Driver::AfPacket).0);
    senders.push(lab.netdev("from-xdp", Driver::AfXdp).0);
    // The kernel sums up nothing for a veth pair, and tells an XDP program nothing of that.
    senders.last_mut().unwrap().offloads.checksum = true;

    let (mut checked, mut uncut) = (0, 0);
    let mut pairs = |(mut receiver, at): (End, PortIndex)| {
        lab.logic.0.store(at.0.into(), Ordering::Release);
        for sender in &mut senders {
            for built in &packets {
                if !can_send(sender, built) {
                    continue;
                }
                sender.send(&built.sent);
                uncut += u64::from(verify(&lab, sender, &mut receiver, built));
                checked += 1;
            }
            let more = std::iter::from_fn(|| receiver.try_receive());
            assert_eq!(more.count(), 0, "{} to {}: more than was sent", sender.name, receiver.name);
        }
        receiver.port.close();
    };
    for (number, features) in receivers().into_iter().enumerate() {
        pairs(lab.vhost_user(SENDERS.len() + number, features, Offloads::of_receiver(features)));
    }
    pairs(lab.memif(1));
    pairs(lab.tap("to-on", true));
    pairs(lab.tap("to-off", false));
    pairs(lab.netdev("to-veth", Driver::AfPacket));
    pairs(lab.netdev("to-xdp", Driver::AfXdp));
    assert!(uncut > 500 && checked > 10 * uncut, "{checked} packets, {uncut} of which arrived uncut");
}

/// Returns whether a sender may send a packet. The kernel does the work that an interface does not accept, and always
/// cuts the longest packets (`gso_max_size`); it drops packets marked for cutting that are short enough already.
fn can_send(sender: &End, built: &Built) -> bool {
    match sender.client {
        Plug::Kernel(_) if built.shape.is_cut() => built.sent.bytes.len() < 65_535,
        Plug::Kernel(_) => built.shape.job != Job::Short,
        _ => sender.offloads.take(&built.shape),
    }
}

/// Checks that the packet arrives as sent, uncut with the work that the receiver accepts, or finished. Returns whether
/// it was to be cut and arrived uncut.
fn verify(lab: &Lab, sender: &End, receiver: &mut End, built: &Built) -> bool {
    let shape = built.shape;
    let what = format!("{shape:?} from {} to {}", sender.name, receiver.name);
    // The kernel does the work that its interface does not accept.
    let left = sender.offloads.take(&shape);
    let uncut = shape.is_cut() && left && receiver.offloads.uncut(&shape);
    let partial = built.sent.metadata.flags & NEEDS_CSUM != 0
        && left
        && if shape.is_cut() { uncut } else { receiver.offloads.checksum };
    if !partial {
        for (number, expected) in built.plain.iter().enumerate() {
            let what = format!("{what}, segment {number}");
            let mut got =
                receiver.receive().unwrap_or_else(|| panic!("{what} does not arrive; {}", lab.drops()));
            if matches!(sender.client, Plug::Kernel(_)) && sender.offloads.checksum && shape.is_cut() {
                // Cut by the kernel, which leaves the checksums of segments too.
                got.sum_up();
            }
            compare(&what, receiver, &got, expected);
        }
        return false;
    }
    let mut expected = built.partial.clone();
    if !receiver.offloads.ecn {
        expected.metadata.gso_type &= !GSO_ECN;
    }
    let got = receiver.receive().unwrap_or_else(|| panic!("{what} does not arrive; {}", lab.drops()));
    compare(&what, receiver, &got, &expected);
    uncut
}

fn compare(what: &str, receiver: &End, got: &Packet, expected: &Packet) {
    if let Some(at) = got.bytes.iter().zip(&expected.bytes).position(|(got, wanted)| got != wanted) {
        let near = at.saturating_sub(4)..at + 8;
        let part = |bytes: &[u8]| format!("{:02x?}", &bytes[near.start..near.end.min(bytes.len())]);
        let (got, wanted) = (part(&got.bytes), part(&expected.bytes));
        panic!("{what}: byte {at} differs: {got} instead of {wanted}");
    }
    assert_eq!(got.bytes.len(), expected.bytes.len(), "{what}: length");
    let mut metadata = got.metadata;
    if receiver.offloads.checksum && metadata.flags & NEEDS_CSUM == 0 {
        // A receiver that verifies checksums may be told that they are right.
        metadata.flags &= !DATA_VALID;
    }
    let hdr_len = if receiver.tells_header_len() { expected.metadata.hdr_len } else { metadata.hdr_len };
    assert_eq!(metadata, Metadata { hdr_len, ..expected.metadata }, "{what}: metadata");
}

//! vhost-user ports with in-process front-ends that verify every packet.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::switch::{BridgeId, PortRef};
use fabric::{Batch, DropReason, PortIndex, PortSettings, Switch, SwitchLogic, SwitchOptions};
use packet::offload::{Gso, Offload};
use packet::virtio_net;
use ports::{Environment, Link, Port, Spec, vhost_user as port};
use rustix::event::{PollFd, PollFlags, poll};
use vhost_user::driver::{Buffer, DriverMemory};
use vhost_user::features::device::*;
use vhost_user::frontend::{Connection, DeviceConfig, HEADER_LEN, NetDevice};
use vhost_user::message::{Answer, Region, Request, RingDescriptor, RingNumber};

const PATIENCE: Duration = Duration::from_secs(20);
const BASIC: u64 = VERSION_1 | PROTOCOL_FEATURES;
const PLAIN: [u8; HEADER_LEN] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// Ports 0 and 1, 2 and 3, … are each other's peers.
struct Pairs;

impl SwitchLogic for Pairs {
    fn forward(&self, batch: &mut Batch<'_>) {
        let to = PortIndex(batch.ingress().0 ^ 1);
        for v in batch.packets() {
            batch.send(v, to);
        }
    }
}

struct Lab {
    dir: tempfile::TempDir,
    env: Environment,
    bridge: BridgeId,
    _runtime: tokio::runtime::Runtime,
}

struct Opened {
    port: Box<dyn Port>,
    at: PortRef,
    socket: PathBuf,
}

impl Lab {
    fn new() -> Lab {
        let switch = Arc::new(Switch::start(&SwitchOptions::default()).unwrap());
        let bridge = switch.add_bridge("br0", Arc::new(Pairs)).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let env = Environment::new(switch, runtime.handle().clone());
        Lab { dir: tempfile::tempdir().unwrap(), env, bridge, _runtime: runtime }
    }

    fn open(&self, name: &str, more: &str) -> Opened {
        let socket = self.dir.path().join(name);
        let text = format!("path = {socket:?}\n{more}");
        let options: port::Options = toml::from_str(&text).unwrap();
        let at = self.env.switch.add_port(self.bridge, PortSettings::new(name)).unwrap();
        let port = ports::open(&Spec::VhostUser(options), at, &self.env).unwrap();
        Opened { port, at, socket }
    }

    fn drops(&self, port: &Opened, reason: DropReason) -> u64 {
        let counters = self.env.switch.counters(port.at).unwrap();
        let at = DropReason::ALL.iter().position(|r| *r == reason).unwrap();
        counters.rx.iter().chain(&counters.tx).map(|queue| queue.drops[at]).sum()
    }
}

impl Opened {
    fn connect(&self, config: DeviceConfig) -> NetDevice {
        let device = NetDevice::start(Connection::dial(&self.socket).unwrap(), config).unwrap();
        wait_until("the port is up", || self.port.status().link == Link::Up);
        device
    }

    fn down(&self) -> Option<String> {
        match self.port.status().link {
            Link::Up => None,
            Link::Down(reason) => Some(reason),
        }
    }

    fn wait_down(&self, reason: &str) {
        let start = Instant::now();
        while !self.down().is_some_and(|found| found.contains(reason)) {
            assert!(start.elapsed() < PATIENCE, "{:?} instead of {reason:?}", self.port.status());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn detail(&self, name: &str) -> Option<String> {
        self.port.status().details.into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Makes a frame of `len` bytes that carries its number, with content that depends on both.
fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> =
        (0..len).map(|i| (i as u32).wrapping_mul(31).wrapping_add(number) as u8).collect();
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Sends frames of these lengths from one device to another, which must receive them unchanged and in order.
fn carry(from: &mut NetDevice, to: &mut NetDevice, lens: &[usize]) {
    let (mut sent, mut got, start) = (0, 0, Instant::now());
    while got < lens.len() {
        // At most as many in flight as the receiver has room for.
        while sent < lens.len()
            && sent - got < 3
            && from.send(0, &[0; 12], &frame(sent as u32, lens[sent])).unwrap()
        {
            sent += 1;
        }
        match to.receive(0).unwrap() {
            Some((header, packet)) => {
                assert!(packet == frame(got as u32, lens[got]), "packet {got} of {} bytes", lens[got]);
                assert_eq!(header[..10], PLAIN[..10]);
                got += 1;
            }
            None => assert!(start.elapsed() < PATIENCE, "{got} of {} came", lens.len()),
        }
    }
    assert_eq!(to.receive(0).unwrap(), None);
}

fn lengths() -> Vec<usize> {
    let odd = [60, 61, 64, 127, 128, 129, 1500, 1514, 2035, 2036, 2037, 4084, 9000, 65_000, 65_535];
    odd.into_iter().chain((0..200).map(|i| 60 + i * 13 % 3000)).collect()
}

/// Sends in both directions between a device of this kind and one with the other ring format.
fn matrix(features: u64, config: DeviceConfig) {
    let lab = Lab::new();
    let (a, b) = (lab.open("a", ""), lab.open("b", ""));
    let config = DeviceConfig { features: BASIC | features, ..config };
    let mut left = a.connect(config);
    let mut right = b.connect(DeviceConfig { features: config.features ^ RING_PACKED, ..config });
    carry(&mut left, &mut right, &lengths());
    carry(&mut right, &mut left, &lengths());
}

/// Receive buffers that hold the longest packet.
const LARGE: DeviceConfig = DeviceConfig {
    features: 0,
    pairs: 1,
    size: 64,
    send_buffers: 16,
    receive_buffers: 16,
    receive_buffer: 65_600,
    pieces: 1,
};

/// Receive buffers so small that long packets need many.
const SMALL: DeviceConfig = DeviceConfig { size: 256, receive_buffers: 200, receive_buffer: 2048, ..LARGE };

#[test]
fn split_and_packed_rings() {
    matrix(0, LARGE);
}

#[test]
fn split_and_packed_rings_with_everything() {
    matrix(EVENT_IDX | INDIRECT_DESC, DeviceConfig { pieces: 5, ..LARGE });
}

#[test]
fn split_and_packed_rings_in_order() {
    matrix(IN_ORDER | EVENT_IDX, LARGE);
    matrix(IN_ORDER | MRG_RXBUF | INDIRECT_DESC, SMALL);
}

#[test]
fn chains_of_descriptors() {
    matrix(0, DeviceConfig { pieces: 3, ..LARGE });
}

#[test]
fn mergeable_buffers() {
    matrix(MRG_RXBUF, SMALL);
}

#[test]
fn mergeable_buffers_with_everything() {
    matrix(MRG_RXBUF | EVENT_IDX | INDIRECT_DESC, DeviceConfig { pieces: 2, ..SMALL });
}

/// Without virtio 1 the header has 10 bytes, unless buffers are merged; without protocol features rings start enabled.
#[test]
fn legacy_front_ends() {
    let lab = Lab::new();
    let (a, b) = (lab.open("a", ""), lab.open("b", ""));
    let legacy = [0, ANY_LAYOUT | INDIRECT_DESC, MRG_RXBUF, MRG_RXBUF | EVENT_IDX | PROTOCOL_FEATURES];
    for features in legacy {
        let config = if features & MRG_RXBUF == 0 { LARGE } else { SMALL };
        let pieces = if features & ANY_LAYOUT == 0 { 1 } else { 3 };
        let mut left = a.connect(DeviceConfig { features, pieces, ..config });
        let mut right = b.connect(DeviceConfig { features: BASIC, ..LARGE });
        let names = a.detail("features").unwrap();
        assert!(!names.contains("version-1"), "{names}");
        carry(&mut left, &mut right, &lengths());
        carry(&mut right, &mut left, &lengths());
        // Two legacy front-ends.
        drop(right);
        b.wait_down("closed the connection");
        let mut right = b.connect(DeviceConfig { features, pieces, ..config });
        carry(&mut left, &mut right, &[60, 1514, 64]);
        drop((left, right));
        a.wait_down("closed the connection");
        b.wait_down("closed the connection");
    }
}

#[test]
fn a_packet_too_long_for_any_buffer_is_dropped_and_the_next_passes() {
    let lab = Lab::new();
    let (a, b) = (lab.open("a", ""), lab.open("b", ""));
    let mut left = a.connect(DeviceConfig::default());
    let mut right = b.connect(DeviceConfig::default());
    assert!(left.send(0, &[0; 12], &frame(9, 2037)).unwrap());
    carry(&mut left, &mut right, &[60, 2036, 60]);
    assert_eq!(lab.drops(&b, DropReason::ExceedsMtu), 1);
    assert_eq!(b.detail("features").as_deref(), Some("version-1"));
    assert_eq!(b.detail("rx-queues").as_deref(), Some("1 (ring size 256)"));
}

/// Makes an Ethernet frame of IPv4 and TCP with this much payload, and the metadata of a sender that leaves cutting to
/// others.
fn large_tcp(payload: usize) -> (Vec<u8>, Offload) {
    let mut packet = frame(0, 60);
    packet.truncate(14);
    packet[12..14].copy_from_slice(&[8, 0]);
    packet.extend([0x45, 0]);
    packet.extend((40 + payload as u16).to_be_bytes());
    packet.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend([0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    packet.resize(54 + payload, 0xab);
    let offload = Offload {
        gso: Gso::Tcp4,
        needs_csum: true,
        gso_size: 1448,
        csum_start: 34,
        csum_offset: 16,
        hdr_len: 54,
        ..Offload::NONE
    };
    (packet, offload)
}

fn receive(device: &mut NetDevice) -> ([u8; HEADER_LEN], Vec<u8>) {
    let mut found = None;
    wait_until("a packet", || {
        found = device.receive(0).unwrap();
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn large_segments_pass_uncut_or_are_cut_as_the_receiver_wants() {
    let lab = Lab::new();
    let (a, b) = (lab.open("a", ""), lab.open("b", ""));
    let sender = DeviceConfig { features: BASIC | CSUM | HOST_TSO4, ..DeviceConfig::default() };
    let mut left = a.connect(sender);
    let takes = DeviceConfig { features: BASIC | MRG_RXBUF | GUEST_CSUM | GUEST_TSO4, ..SMALL };
    let mut right = b.connect(takes);
    let (packet, offload) = large_tcp(60_000);
    assert!(left.send(0, &virtio_net::encode(&offload, 0), &packet).unwrap());
    let (header, got) = receive(&mut right);
    // 60,066 bytes in buffers of 2,048.
    assert_eq!(header, virtio_net::encode(&offload, 30));
    assert!(got == packet);

    drop(right);
    b.wait_down("closed the connection");
    let mut right = b.connect(DeviceConfig { features: BASIC | MRG_RXBUF, ..SMALL });
    assert!(left.send(0, &virtio_net::encode(&offload, 0), &packet).unwrap());
    let mut payload = 0;
    for _ in 0..60_000usize.div_ceil(1448) {
        let (header, segment) = receive(&mut right);
        assert_eq!(header, PLAIN);
        payload += segment.len() - 54;
    }
    assert_eq!(payload, 60_000);

    // Metadata for features that were not negotiated is ignored.
    drop(left);
    a.wait_down("closed the connection");
    let mut left = a.connect(DeviceConfig::default());
    assert!(left.send(0, &virtio_net::encode(&offload, 0), &packet[..1500]).unwrap());
    assert_eq!(receive(&mut right), (PLAIN, packet[..1500].to_vec()));
}

/// A ring looks ahead at a bounded number of chains with many segments.
#[test]
fn more_long_chains_than_fit_the_look_ahead_are_a_full_ring_and_no_fault() {
    let lab = Lab::new();
    let (a, b) = (lab.open("a", ""), lab.open("b", ""));
    let sender = DeviceConfig { features: BASIC | CSUM | HOST_TSO4, ..DeviceConfig::default() };
    let mut left = a.connect(sender);
    let long = DeviceConfig { pieces: 64, size: 2048, receive_buffers: 2000, receive_buffer: 1024, ..LARGE };
    let mut right = b.connect(DeviceConfig { features: BASIC | INDIRECT_DESC, ..long });
    let (packet, offload) = large_tcp(60_000);
    let header = virtio_net::encode(&Offload { gso_size: 512, ..offload }, 0);
    let (mut came, mut sent) = (0, 0);
    for _ in 0..3 {
        // Three at once are one batch: 354 segments for one list.
        for _ in 0..3 {
            assert!(left.push(0, &header, false, &[&packet]).unwrap());
            sent += 60_000usize.div_ceil(512) as u64;
        }
        left.flush(0).unwrap();
        wait_until("all segments came or were dropped", || {
            while let Some((header, segment)) = right.receive(0).unwrap() {
                assert_eq!((header, &segment[60..]), (PLAIN, &packet[60..segment.len()]));
                came += 1;
            }
            came + lab.drops(&b, DropReason::RingFull) == sent
        });
        // The chains in the way are gone.
        carry(&mut left, &mut right, &[60, 1000, 61]);
    }
    assert!(came >= 3 * 252 && came < sent, "{came} of {sent} came");
    assert_eq!(b.down(), None);
}

#[test]
fn packets_before_a_fault_leave_with_their_metadata() {
    let lab = Lab::new();
    let (a, b) = (lab.open("a", ""), lab.open("b", ""));
    let mut left = a.connect(DeviceConfig { features: BASIC | CSUM, ..DeviceConfig::default() });
    let mut right = b.connect(DeviceConfig::default());
    let (packet, offload) = large_tcp(100);
    let header = virtio_net::encode(&Offload { gso: Gso::None, gso_size: 0, ..offload }, 0);
    // Both are published at once: one batch.
    assert!(left.push(0, &header, false, &[&packet]).unwrap());
    let short = [Buffer { address: 1 << 28, len: 5 }];
    assert!(left.queue(1).unwrap().add(&short, &[], None).is_some());
    left.flush(0).unwrap();
    let (header, got) = receive(&mut right);
    a.wait_down("packet of 5 bytes, shorter than its header of 12");
    // The partial checksum was completed: the words of the TCP packet add up to all ones.
    let sum: u32 = got[34..].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    assert_eq!((header, (sum & 0xffff) + (sum >> 16)), (PLAIN, 0xffff));
}

#[test]
fn false_metadata_costs_its_packet() {
    let lab = Lab::new();
    let (a, b) = (lab.open("a", ""), lab.open("b", ""));
    let mut left = a.connect(DeviceConfig { features: BASIC | CSUM | HOST_TSO4, ..DeviceConfig::default() });
    let mut right = b.connect(DeviceConfig::default());
    let (packet, offload) = large_tcp(3000);
    for lie in [
        Offload { gso_size: 0, ..offload },
        Offload { csum_start: 60_000, ..offload },
        Offload { gso: Gso::Tcp6, ..offload },
    ] {
        assert!(left.send(0, &virtio_net::encode(&lie, 0), &packet).unwrap());
    }
    assert!(left.send(0, &[1, 3, 0, 0, 9, 0, 34, 0, 16, 0, 0, 0], &packet).unwrap());
    carry(&mut left, &mut right, &[60, 1500]);
    assert_eq!(lab.drops(&a, DropReason::BadOffload), 4);
}

#[test]
fn rings_stop_and_resume_where_they_were() {
    let lab = Lab::new();
    let (a, b) = (lab.open("a", ""), lab.open("b", ""));
    for packed in [0, RING_PACKED] {
        let config = DeviceConfig { features: BASIC | packed, ..DeviceConfig::default() };
        let (mut left, mut right) = (a.connect(config), b.connect(config));
        for round in 0..5 {
            carry(&mut left, &mut right, &[60; 50]);
            carry(&mut right, &mut left, &[60; 33]);
            left.restart(round % 2).unwrap();
            right.restart(1 - round % 2).unwrap();
            // All memory is mapped anew while rings run.
            let memory = left.memory().clone();
            let region = memory.specs().unwrap().pop().unwrap();
            let table = Request::SetMemTable(vec![Region {
                guest: region.guest_address,
                size: region.size,
                user: region.user_address,
                offset: region.mmap_offset,
            }]);
            let done = left.connection().ask(&table, &[memory.fd()], true).unwrap();
            assert_eq!(done, Answer::Number(0));
        }
        drop((left, right));
        a.wait_down("closed the connection");
        b.wait_down("closed the connection");
    }
}

#[test]
fn the_link_stays_up_while_rings_change() {
    let lab = Lab::new();
    let (told, changes) = std::sync::mpsc::channel();
    lab.env.switch.on_link(Box::new(move |change| told.send((change.port, change.up)).unwrap()));
    let (a, b) = (lab.open("a", ""), lab.open("b", ""));
    let mut left = a.connect(DeviceConfig::default());
    let mut right = b.connect(DeviceConfig::default());
    let ups: Vec<_> = (0..2).map(|_| changes.recv_timeout(PATIENCE).unwrap()).collect();
    assert_eq!(ups, [("a".into(), true), ("b".into(), true)]);

    let log = rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&log, 1 << 20).unwrap();
    left.log(log.as_fd(), 1 << 20).unwrap();
    carry(&mut left, &mut right, &[60; 5]);
    left.connection().ask(&Request::SendRarp([2, 0, 0, 0, 0, 0x77]), &[], true).unwrap();
    receive(&mut right);
    left.connection().ask(&Request::NetSetMtu(1200), &[], true).unwrap();
    for number in [0, 1] {
        let enable = Request::SetVringEnable(RingNumber { ring: 0, number });
        assert_eq!(left.connection().ask(&enable, &[], true).unwrap(), Answer::Number(0));
    }
    left.restart(1).unwrap();
    carry(&mut right, &mut left, &[60; 5]);
    carry(&mut left, &mut right, &[60; 5]);
    assert!(changes.try_recv().is_err(), "the link was changed");

    // With both rings stopped the link goes down, and likewise after the front-end has gone.
    for ring in [0, 1] {
        let stop = Request::GetVringBase(RingNumber { ring, number: 0 });
        left.connection().ask(&stop, &[], true).unwrap();
    }
    assert_eq!(changes.recv_timeout(PATIENCE).unwrap(), ("a".into(), false));
    drop(right);
    assert_eq!(changes.recv_timeout(PATIENCE).unwrap(), ("b".into(), false));
}

#[test]
fn a_port_that_is_administratively_down_leaves_the_rings_alone() {
    let lab = Lab::new();
    let (a, b) = (lab.open("a", ""), lab.open("b", ""));
    let features = BASIC | MRG_RXBUF;
    let mut from = a.connect(DeviceConfig { features, ..SMALL });
    let mut to = b.connect(DeviceConfig { features, ..SMALL });
    carry(&mut from, &mut to, &[60]);

    a.port.set_admin(false);
    a.wait_down("administratively down: the front-end's rings are stopped");
    for number in 0..3 {
        assert!(from.send(0, &PLAIN, &frame(number, 100)).unwrap());
    }
    assert_eq!(from.unsent(0).unwrap(), 3, "nothing is taken");
    assert_eq!(to.receive(0).unwrap(), None);

    a.port.set_admin(true);
    wait_until("the packets to be taken", || from.unsent(0).unwrap() == 0);
    for number in 0..3 {
        assert_eq!(receive(&mut to).1, frame(number, 100));
    }
}

#[test]
fn packets_from_a_ring_that_is_not_enabled_are_discarded() {
    let lab = Lab::new();
    let (a, b) = (lab.open("a", ""), lab.open("b", ""));
    let mut left = a.connect(DeviceConfig::default());
    let mut right = b.connect(DeviceConfig::default());
    let enable = |device: &mut NetDevice, number| {
        let request = Request::SetVringEnable(RingNumber { ring: 1, number });
        assert_eq!(device.connection().ask(&request, &[], true).unwrap(), Answer::Number(0));
    };
    enable(&mut left, 0);
    for _ in 0..5 {
        assert!(left.send(0, &[0; 12], &frame(7, 60)).unwrap());
    }
    wait_until("they are given back", || left.queue(1).unwrap().pop().unwrap().is_some());
    drop(left);
    a.wait_down("closed the connection");
    let mut left = a.connect(DeviceConfig::default());
    carry(&mut left, &mut right, &[60; 3]);
}

#[test]
fn a_driver_that_waits_for_sent_packets_is_signalled() {
    let lab = Lab::new();
    let a = lab.open("a", "");
    let mut left = a.connect(DeviceConfig::default());
    let told = |device: &NetDevice, wait: i64| {
        let mut fds = [PollFd::from_borrowed_fd(device.call(1).unwrap(), PollFlags::IN)];
        poll(&mut fds, Some(&rustix::time::Timespec { tv_sec: wait, tv_nsec: 0 })).unwrap() == 1
    };
    left.queue(1).unwrap().set_calls(true);
    assert!(left.send(0, &[0; 12], &frame(0, 60)).unwrap());
    assert!(told(&left, 20));

    // Another descriptor replaces it while the ring runs.
    let other: OwnedFd = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let call = Request::SetVringCall(RingDescriptor { ring: 1, present: true });
    assert_eq!(left.connection().ask(&call, &[other.as_fd()], true).unwrap(), Answer::Number(0));
    assert!(left.send(0, &[0; 12], &frame(0, 60)).unwrap());
    let mut fds = [PollFd::from_borrowed_fd(other.as_fd(), PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&rustix::time::Timespec { tv_sec: 20, tv_nsec: 0 })).unwrap(), 1);
}

#[test]
fn a_station_is_announced_and_the_mtu_is_kept() {
    let lab = Lab::new();
    let (a, b) = (lab.open("a", ""), lab.open("b", ""));
    let mut left = a.connect(DeviceConfig::default());
    let mut right = b.connect(DeviceConfig::default());
    let station = [2, 0, 0, 0, 0, 0x77];
    left.connection().ask(&Request::SendRarp(station), &[], true).unwrap();
    let (_, announcement) = receive(&mut right);
    assert_eq!(announcement[..14], [&[0xff; 6][..], &station, &[0x80, 0x35]].concat());
    assert_eq!(announcement.len(), 60);
    assert_eq!(announcement[20..28], [&[0, 3][..], &station].concat());

    right.connection().ask(&Request::NetSetMtu(1000), &[], true).unwrap();
    assert_eq!(b.detail("guest-mtu").as_deref(), Some("1000"));
    assert!(left.send(0, &[0; 12], &frame(9, 1100)).unwrap());
    carry(&mut left, &mut right, &[1014]);
    assert_eq!(lab.drops(&b, DropReason::ExceedsMtu), 1);
}

#[test]
fn a_dead_front_end_is_followed_by_the_next_and_others_wait() {
    let lab = Lab::new();
    let (a, b) = (lab.open("a", ""), lab.open("b", ""));
    let mut right = b.connect(DeviceConfig::default());
    for _ in 0..3 {
        let mut left = a.connect(DeviceConfig::default());
        carry(&mut left, &mut right, &[60; 10]);
        let mut stranger = Connection::dial(&a.socket).unwrap();
        stranger.wait_closed().unwrap();
        carry(&mut left, &mut right, &[60; 10]);
    }
    // A waiting front-end is served as soon as the other is gone.
    let waiting = Connection::dial(&a.socket).unwrap();
    let mut left = NetDevice::start(waiting, DeviceConfig::default()).unwrap();
    carry(&mut left, &mut right, &[60; 10]);

    // However long the present one has had the port, the waiting time of the next begins when it connects.
    let calm = Instant::now() + Duration::from_millis(1500);
    wait_until("no other front-end has come for a while", || {
        carry(&mut left, &mut right, &[60]);
        Instant::now() >= calm
    });
    let waiting = Connection::dial(&a.socket).unwrap();
    let soon = Instant::now() + Duration::from_millis(300);
    wait_until("no front-end has been refused", || {
        assert!(!waiting.is_closed());
        Instant::now() >= soon
    });
    drop(left);
    let mut left = NetDevice::start(waiting, DeviceConfig::default()).unwrap();
    carry(&mut left, &mut right, &[60; 10]);

    let Opened { port, socket, .. } = a;
    port.close();
    port.close();
    assert!(!socket.exists());
    left.connection().wait_closed().unwrap();
}

#[test]
fn the_switch_connects_to_a_front_end_that_listens() {
    let lab = Lab::new();
    let socket = lab.dir.path().join("theirs");
    let (b, theirs) = (lab.open("b", ""), lab.open("theirs", "role = \"client\""));
    theirs.wait_down("cannot connect to ");
    let mut right = b.connect(DeviceConfig::default());
    for _ in 0..2 {
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let connection = Connection::new(listener.accept().unwrap().0.into()).unwrap();
        let mut left = NetDevice::start(connection, DeviceConfig::default()).unwrap();
        wait_until("the port is up", || theirs.port.status().link == Link::Up);
        carry(&mut right, &mut left, &[60; 10]);
        drop((left, listener));
        std::fs::remove_file(&socket).unwrap();
        theirs.wait_down("");
    }
}

/// Violations by a front-end or its driver, and the port's descriptions of them; others lose nothing.
#[test]
fn faults_cost_their_own_port_only() {
    let lab = Lab::new();
    let (a, b) = (lab.open("a", ""), lab.open("b", ""));
    let (c, d) = (lab.open("c", ""), lab.open("d", ""));
    let (mut third, mut fourth) = (c.connect(DeviceConfig::default()), d.connect(DeviceConfig::default()));
    type Crime = Box<dyn Fn(&mut NetDevice, &mut NetDevice)>;
    let add = |buffers: Vec<Buffer>, writable: bool| -> Crime {
        Box::new(move |left, _| {
            let queue = left.queue(1).unwrap();
            let (readable, written) =
                if writable { (&[][..], &buffers[..]) } else { (&buffers[..], &[][..]) };
            queue.add(readable, written, None).unwrap();
            queue.publish();
            // Whether or not the switch sleeps, the next packet brings the kick.
            left.send(0, &[0; 12], &frame(0, 60)).unwrap();
        })
    };
    let tell = |request: Request| -> Crime {
        Box::new(move |left, _| left.connection().tell(&request, &[]).unwrap())
    };
    let crimes: Vec<(&str, Crime)> = vec![
        (
            "ring 1: descriptor names 60 bytes at guest address 0x1000",
            add(vec![Buffer { address: 0x1000, len: 60 }], false),
        ),
        (
            "ring 1: packet of 11 bytes, shorter than its header of 12",
            add(vec![Buffer { address: 1 << 28, len: 11 }], false),
        ),
        ("ring 1: packet of 0 bytes", add(vec![Buffer { address: 1 << 28, len: 64 }], true)),
        (
            "ring 1: ring index jumped",
            Box::new(|left, _| {
                let at = left.queue(1).unwrap().config().addresses.driver;
                left.send(0, &[0; 12], &frame(0, 60)).unwrap();
                assert!(left.memory().write(at + 2, &40_000u16.to_le_bytes()));
                let kick = Request::SetVringEnable(RingNumber { ring: 0, number: 0 });
                left.connection().tell(&kick, &[]).unwrap();
            }),
        ),
        (
            "ring 0: descriptor names",
            Box::new(|left, right| {
                let at = left.queue(0).unwrap().config().addresses.descriptors;
                for descriptor in 0..64 {
                    assert!(left.memory().write(at + descriptor * 16, &7u64.to_le_bytes()));
                }
                right.send(0, &[0; 12], &frame(0, 60)).unwrap();
            }),
        ),
        ("ring 99 does not exist", tell(Request::SetVringEnable(RingNumber { ring: 99, number: 1 }))),
        ("SET_FEATURES with bits that were not offered: 63", tell(Request::SetFeatures(1 << 63))),
        (
            "SET_VRING_NUM of ring 0 while it is started",
            tell(Request::SetVringNum(RingNumber { ring: 0, number: 8 })),
        ),
    ];
    for (reason, crime) in crimes {
        let mut left = a.connect(DeviceConfig::default());
        let mut right = b.connect(DeviceConfig::default());
        carry(&mut third, &mut fourth, &[60; 3]);
        crime(&mut left, &mut right);
        a.wait_down(reason);
        left.connection().wait_closed().unwrap();
        assert_eq!(b.port.status().link, Link::Up, "{reason}");
        carry(&mut third, &mut fourth, &[60; 3]);
        drop((left, right));
        b.wait_down("closed the connection");
    }
    assert_eq!((c.port.status().link, d.port.status().link), (Link::Up, Link::Up));
}

#[test]
fn memory_that_is_taken_away_costs_its_port() {
    let lab = Lab::new();
    let (a, b) = (lab.open("a", ""), lab.open("b", ""));
    let mut right = b.connect(DeviceConfig::default());
    // An unsealed file, with a region that no ring lies in.
    let file = rustix::fs::memfd_create("short", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 1 << 20).unwrap();
    let mut left = a.connect(DeviceConfig::default());
    let region =
        Region { guest: 1 << 40, size: 1 << 20, user: DriverMemory::user_address(1 << 40), offset: 0 };
    assert_eq!(
        left.connection().ask(&Request::AddMemReg(region), &[file.as_fd()], true).unwrap(),
        Answer::Number(0)
    );
    assert_eq!(a.detail("memory-regions").as_deref(), Some("2"));
    rustix::fs::ftruncate(&file, 0).unwrap();
    let queue = left.queue(1).unwrap();
    queue.add(&[Buffer { address: 1 << 40, len: 200 }], &[], None).unwrap();
    queue.publish();
    left.send(0, &[0; 12], &frame(0, 60)).unwrap();
    a.wait_down("shared memory was truncated or punched (SIGBUS)");
    assert_eq!(right.connection().number(&Request::GetQueueNum, "GET_QUEUE_NUM").unwrap(), 16);
}

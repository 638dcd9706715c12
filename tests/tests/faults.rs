//! Memif clients that send invalid data, break, vanish or flood. In each test a pair of bystanders sends through the
//! same worker and must lose nothing; the attacker's port goes down with a reason, and a correct client can use it
//! afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bench::pace::Rate;
use bench::port::{Error as PortError, PortSpec, Rings};
use bench::session::{Background, Options, Session};
use e2e::{
    Daemon, Error, Hostile, HostileConfig, HugePages, Peer, Running, binary, config, exclusive, memfd,
    seconds, send_bytes, until,
};
use memif::client::{Client, ClientConfig, Direction};
use memif::message::{AddRegion, AddRing, Init, MODE_ETHERNET, VERSION};
use memif::socket::Address;
use memif::{Descriptor, Message, Secret};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{
    FallocateFlags, MemfdFlags, OFlags, fallocate, fcntl_getfl, fcntl_setfl, ftruncate, memfd_create,
};

/// Interfaces on the common socket.
const BAD: u32 = 2;
const SINK: u32 = 3;
const FEEDER: u32 = 4;
const SECRET: u32 = 5;
const LIMIT: Duration = Duration::from_secs(20);
/// Packet rate of each bystander.
const BYSTANDER_PPS: f64 = 4000.0;

/// A daemon with bystanders on one bridge, and on another the attacker's port, a port that receives its packets, and a
/// port that sends to it.
struct Rig {
    daemon: Daemon,
    bystanders: Background,
    feeder: Client,
    stop: Arc<AtomicBool>,
    sink: Option<JoinHandle<Result<bench::echo::Echoed, PortError>>>,
}

impl Rig {
    fn start() -> Rig {
        let ports = config::bridge("br0", "learning")
            + &config::memif("left", 0, "")
            + &config::memif("right", 1, "")
            + &config::bridge("br1", "learning")
            + &config::memif("bad", BAD, "")
            + &config::memif("sink", SINK, "")
            + &config::memif("feeder", FEEDER, "")
            + &config::memif("secret", SECRET, "secret = \"hush\"")
            + &config::bridge("br2", "static")
            + &config::memif("k0", 6, "")
            + &config::memif("k1", 7, "");
        let daemon = Daemon::start(&ports).unwrap();
        let mut options = Options::new(vec![daemon.memif("memif", 0), daemon.memif("memif", 1)]);
        options.sizes = "60-1514".parse().unwrap();
        options.rate = Rate::Pps(BYSTANDER_PPS);
        options.duration = Duration::from_secs(3600);
        let bystanders = Background::start(options).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, spec) = (stop.clone(), daemon.memif("memif", SINK));
        // Its address is unused: it receives everything and returns nothing.
        let spec = PortSpec { mac: Some("02:00:00:00:aa:01".parse().unwrap()), ..spec };
        let sink = std::thread::spawn(move || bench::echo::echo(&spec, Rings::default(), &seen));
        let feeder =
            Client::connect(&ClientConfig::new(Address::new(&daemon.path("memif")), FEEDER)).unwrap();
        daemon.wait_up("br1", "sink").unwrap();
        Rig { daemon, bystanders, feeder, stop, sink: Some(sink) }
    }

    fn socket(&self) -> String {
        self.daemon.path("memif")
    }

    fn good(&self) -> HostileConfig {
        HostileConfig::new(&self.socket(), BAD)
    }

    /// A client on the attacker's port, still correct.
    fn connect(&self) -> Hostile {
        let hostile = self.good().connect().unwrap();
        self.daemon.wait_up("br1", "bad").unwrap();
        hostile
    }

    /// Sends broadcasts, which reach the attacker too.
    fn feed(&mut self, count: usize) {
        for _ in 0..count {
            self.feeder.tx[0].push(&[&frame(0xff)]);
        }
        self.feeder.tx[0].flush();
        self.feeder.rx[0].refill();
    }

    /// Waits until the bystanders have exchanged more packets.
    fn wait_bystanders(&self) {
        let left = || self.daemon.port("br0", "left").map(|port| port.received());
        let before = left().unwrap();
        until("the bystanders to continue", LIMIT, || Ok((left()? > before + 400).then_some(()))).unwrap();
    }

    /// Asserts that a correct client can use the attacker's port and its packets pass.
    fn assert_port_recovers(&self) {
        let delivered = || self.daemon.port("br1", "sink").map(|port| port.delivered());
        let before = delivered().unwrap();
        // The port may still be disconnecting the previous client.
        let mut good = until("the port to be free", LIMIT, || Ok(self.good().connect().ok())).unwrap();
        self.daemon.wait_up("br1", "bad").unwrap();
        for _ in 0..10 {
            assert!(good.send(&frame(0x02)));
        }
        until("its packets to pass", LIMIT, || Ok((delivered()? >= before + 10).then_some(()))).unwrap();
        drop(good);
        self.daemon.wait_down("br1", "bad", "").unwrap();
    }

    /// Asserts that the bystanders lost nothing and kept their rate.
    fn finish(mut self) {
        assert!(self.daemon.is_running().unwrap(), "the daemon ended: {}", self.daemon.log());
        self.wait_bystanders();
        assert!(self.bystanders.is_running(), "the bystanders ended");
        let report = self.bystanders.stop().unwrap();
        assert!(report.ok, "{report}");
        for direction in &report.directions {
            let pps = direction.sustained_pps();
            assert!(pps > 0.8 * BYSTANDER_PPS, "the rate dropped to {pps} packets/s: {report}");
        }
        self.stop.store(true, Ordering::Relaxed);
        self.sink.take().unwrap().join().unwrap().unwrap();
    }
}

/// A frame to an unknown destination: a group or a station, depending on the first byte.
fn frame(first: u8) -> [u8; 64] {
    let mut frame = [first; 64];
    frame[6..12].copy_from_slice(&[0x02, 0, 0, 0, 0xbb, first]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// Asserts that a file is refused for this reason.
fn assert_file_refused(rig: &Rig, file: OwnedFd, size: u64, reason: &str) {
    let config = HostileConfig { file: Some(file), region_size: Some(size), ..rig.good() };
    assert_refused(rig, config, reason);
}

/// Asserts that the handshake fails and both the client and `port show` see the reason.
fn assert_refused(rig: &Rig, config: HostileConfig, reason: &str) {
    let port = if config.id == SECRET { "secret" } else { "bad" };
    let error = config.connect().unwrap_err().to_string();
    assert!(error.contains(reason), "expected `{reason}`, found `{error}`");
    rig.daemon.wait_down("br1", port, reason).unwrap();
}

#[test]
fn wrong_versions_ids_and_secrets_are_refused() {
    let rig = Rig::start();
    for version in [0, 0x0100, 0x0201, 0x0300, 0xffff] {
        assert_refused(&rig, HostileConfig { version, ..rig.good() }, "version");
    }
    let unknown = HostileConfig { id: 999, ..rig.good() }.connect().unwrap_err().to_string();
    assert!(unknown.contains("999"), "{unknown}");
    // A second client does not displace the holder of the port.
    let holder = rig.connect();
    assert!(rig.good().connect().unwrap_err().to_string().contains("already connected"));
    assert!(rig.daemon.port("br1", "bad").unwrap().is_up());
    drop(holder);
    let secret = |secret| HostileConfig { id: SECRET, secret, ..rig.good() };
    assert_refused(&rig, secret(None), "secret required");
    assert_refused(&rig, secret(Secret::new("hust")), "incorrect secret");
    assert_refused(&rig, secret(Secret::new("hus")), "incorrect secret");
    let holder = secret(Secret::new("hush")).connect().unwrap();
    // A stranger's failure does not affect the port of a connected client.
    secret(Secret::new("hust")).connect().unwrap_err();
    assert!(rig.daemon.port("br1", "secret").unwrap().is_up());
    drop(holder);
    rig.assert_port_recovers();
    rig.finish();
}

#[test]
fn wrong_lengths_and_messages() {
    let rig = Rig::start();
    let good = Message::Ack.encode();
    for (bytes, expected) in [
        (&good[..1], "message of 1 bytes"),
        (&good[..127], "message of 127 bytes"),
        (&[good, good].concat()[..129], "longer than 128 bytes"),
        (&[0xff; 128][..], "type 65535"),
        (&[0; 128][..], "type 0"),
    ] {
        let peer = Peer::connect(&rig.socket()).unwrap();
        send_bytes(peer.socket(), bytes, &[]).unwrap();
        let reason = peer.refusal().unwrap();
        assert!(reason.contains(expected), "{reason}");
    }
    // Unexpected messages, and file descriptors in the wrong number.
    for message in [Message::Ack, Message::Connect { if_name: String::new() }] {
        let peer = Peer::connect(&rig.socket()).unwrap();
        peer.send_message(&message, None).unwrap();
        assert!(peer.refusal().unwrap().contains("unexpected"));
    }
    let init = Message::Init(Init {
        version: VERSION,
        id: BAD,
        mode: MODE_ETHERNET,
        secret: Secret::default(),
        name: "hostile".to_string(),
    });
    let stdin = std::io::stdin();
    let peer = Peer::connect(&rig.socket()).unwrap();
    peer.send_message(&init, Some(stdin.as_fd())).unwrap();
    assert!(peer.refusal().unwrap().contains("with a file descriptor"));
    let peer = Peer::connect(&rig.socket()).unwrap();
    send_bytes(peer.socket(), &init.encode(), &[stdin.as_fd(); 4]).unwrap();
    assert!(peer.refusal().unwrap().contains("more than one file descriptor"));
    let shown_by_port: [(Message, bool, &str); 4] = [
        (Message::AddRegion(AddRegion { index: 0, size: 4096 }), false, "without a file descriptor"),
        (Message::AddRegion(AddRegion { index: 3, size: 4096 }), true, "region index 3"),
        (Message::Connect { if_name: "x".to_string() }, false, "without any ring"),
        (init.clone(), false, "unexpected INIT"),
    ];
    for (message, with_file, expected) in shown_by_port {
        let peer = Peer::connect(&rig.socket()).unwrap();
        peer.ask(&init, None).unwrap();
        let file = memfd(4096).unwrap();
        peer.send_message(&message, with_file.then(|| file.as_fd())).unwrap();
        rig.daemon.wait_down("br1", "bad", expected).unwrap();
    }
    // Once connected, a client may send nothing but DISCONNECT.
    for message in [init, Message::Ack, Message::Connect { if_name: "again".to_string() }] {
        let hostile = rig.connect();
        hostile.peer.send_message(&message, None).unwrap();
        assert!(hostile.refusal().unwrap().contains("unexpected"));
        rig.daemon.wait_down("br1", "bad", "unexpected").unwrap();
    }
    let hostile = rig.connect();
    // A reason with control characters for the reader's terminal.
    hostile
        .peer
        .send_message(&Message::Disconnect { code: 7, reason: "\u{1b}[31mbye".to_string() }, None)
        .unwrap();
    let reason = rig.daemon.wait_down("br1", "bad", "bye").unwrap();
    assert!(!reason.contains('\u{1b}'), "{reason:?}");
    let hostile = rig.connect();
    send_bytes(hostile.peer.socket(), &[1, 2, 3], &[]).unwrap();
    rig.daemon.wait_down("br1", "bad", "message of 3 bytes").unwrap();
    rig.assert_port_recovers();
    rig.finish();
}

#[test]
fn wrong_regions_and_files() {
    let rig = Rig::start();
    let needed = rig.good().needed().unwrap();
    let file = || memfd(needed).unwrap();
    assert_file_refused(&rig, file(), 0, "region size is 0");
    assert_file_refused(&rig, file(), u64::MAX, "");
    assert_file_refused(&rig, file(), 1 << 62, "");
    assert_file_refused(&rig, file(), needed + 4096, "larger than its file");
    assert_file_refused(&rig, memfd(0).unwrap(), needed, "larger than its file");
    let (pipe, _writer) = rustix::pipe::pipe().unwrap();
    assert_file_refused(&rig, pipe, needed, "a pipe");
    let zero = File::options().read(true).write(true).open("/dev/zero").unwrap();
    assert_file_refused(&rig, zero.into(), needed, "a character device");
    assert_file_refused(&rig, File::open("/").unwrap().into(), needed, "a directory");
    assert_file_refused(
        &rig,
        Peer::silent(&rig.socket()).unwrap().socket().try_clone_to_owned().unwrap(),
        needed,
        "a socket",
    );
    assert_file_refused(&rig, eventfd(0, EventfdFlags::CLOEXEC).unwrap(), needed, "kernel object");
    // A file system that can block: the target directory's, unless that is a tmpfs.
    let disk = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    disk.set_len(needed).unwrap();
    if rustix::fs::fstatfs(&disk).unwrap().f_type != 0x0102_1994 {
        assert_file_refused(&rig, disk.into(), needed, "not on tmpfs");
    }
    let file = memfd(needed).unwrap();
    let read_only = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file))).unwrap();
    assert_file_refused(&rig, read_only.into(), needed, "reading and writing");
    rig.assert_port_recovers();
    rig.finish();
}

#[test]
fn wrong_rings_are_refused() {
    let rig = Rig::start();
    let region = 1 << 20;
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let file = memfd(region).unwrap();
    let good = AddRing { flags: 1, index: 0, region: 0, offset: 0, log2_ring_size: 8, private_hdr_size: 0 };
    let begin = || {
        let peer = Peer::connect(&rig.socket()).unwrap();
        let (version, mode, secret) = (VERSION, MODE_ETHERNET, Secret::default());
        let init = Init { version, id: BAD, mode, secret, name: "hostile".to_string() };
        peer.ask(&Message::Init(init), None).unwrap();
        let add = Message::AddRegion(AddRegion { index: 0, size: region });
        peer.ask(&add, Some(file.as_fd())).unwrap();
        peer
    };
    let wrong: [(AddRing, &str); 8] = [
        (AddRing { log2_ring_size: 0, ..good }, "2^0"),
        (AddRing { log2_ring_size: 15, ..good }, "2^15"),
        (AddRing { log2_ring_size: 255, ..good }, "2^255"),
        (AddRing { region: 1, ..good }, "region 1 does not exist"),
        (AddRing { offset: 4, ..good }, "multiple"),
        (AddRing { offset: region as u32 - 64, ..good }, "do not fit"),
        (AddRing { offset: u32::MAX - 7, ..good }, "do not fit"),
        (AddRing { index: 9, ..good }, "ring index 9"),
    ];
    for (ring, expected) in wrong {
        let peer = begin();
        peer.send_message(&Message::AddRing(ring), Some(event.as_fd())).unwrap();
        let reason = peer.refusal().unwrap();
        assert!(reason.contains(expected), "{reason}");
        rig.daemon.wait_down("br1", "bad", expected).unwrap();
    }
    // File descriptors other than eventfds.
    for fd in [std::io::stdin().as_fd(), file.as_fd()] {
        let peer = begin();
        peer.send_message(&Message::AddRing(good), Some(fd)).unwrap();
        assert!(peer.refusal().unwrap().contains("not an eventfd"));
        rig.daemon.wait_down("br1", "bad", "not an eventfd").unwrap();
    }
    // A ring without its cookie.
    let peer = begin();
    peer.ask(&Message::AddRing(good), Some(event.as_fd())).unwrap();
    peer.send_message(&Message::Connect { if_name: "x".to_string() }, None).unwrap();
    assert!(peer.refusal().unwrap().contains("cookie"));
    rig.daemon.wait_down("br1", "bad", "cookie").unwrap();
    // Rings until the limit is reached.
    let peer = begin();
    for index in 0.. {
        peer.send_message(&Message::AddRing(AddRing { index, ..good }), Some(event.as_fd())).unwrap();
        if let Some(Message::Disconnect { reason, .. }) = peer.receive().unwrap() {
            assert!(reason.contains("more than"), "{reason}");
            break;
        }
        assert!(index < 1000, "no limit");
    }
    rig.assert_port_recovers();
    rig.finish();
}

/// Sends these descriptors after some valid packets; the port must fail for this reason.
fn assert_broken_by(rig: &Rig, descriptors: impl FnOnce(&mut Hostile) -> Vec<Descriptor>, reason: &str) {
    let mut hostile = rig.connect();
    for _ in 0..20 {
        assert!(hostile.send(&frame(0x02)));
    }
    let descriptors = descriptors(&mut hostile);
    for descriptor in &descriptors {
        hostile.put(descriptor);
    }
    hostile.publish();
    rig.daemon.wait_down("br1", "bad", reason).unwrap();
    assert!(hostile.refusal().unwrap().contains(reason));
}

#[test]
fn wrong_descriptors() {
    let rig = Rig::start();
    assert_broken_by(
        &rig,
        |h| vec![Descriptor { offset: u32::MAX - 10, ..h.descriptor(&frame(2)) }],
        "outside its region",
    );
    let end = |h: &mut Hostile| h.layout.total_size() as u32;
    assert_broken_by(
        &rig,
        |h| vec![Descriptor { offset: end(h) - 63, ..h.descriptor(&frame(2)) }],
        "outside its region",
    );
    assert_broken_by(
        &rig,
        |h| vec![Descriptor { region: 1, ..h.descriptor(&frame(2)) }],
        "outside its region",
    );
    assert_broken_by(
        &rig,
        |h| vec![Descriptor { region: 0xffff, ..h.descriptor(&frame(2)) }],
        "outside its region",
    );
    assert_broken_by(
        &rig,
        |h| vec![Descriptor { length: u32::MAX, ..h.descriptor(&frame(2)) }],
        "outside its region",
    );
    assert_broken_by(&rig, |h| vec![Descriptor { length: 0, ..h.descriptor(&frame(2)) }], "zero length");
    let next = |h: &mut Hostile| Descriptor { flags: 1, ..h.descriptor(&frame(2)) };
    assert_broken_by(&rig, |h| vec![next(h); 65], "chain");
    assert_broken_by(&rig, |h| vec![next(h); 200], "chain");
    // A valid packet and an invalid one in the same batch: the valid one is not lost.
    assert_broken_by(
        &rig,
        |h| vec![h.descriptor(&frame(2)), Descriptor { region: 9, ..Descriptor::default() }],
        "outside",
    );
    rig.assert_port_recovers();
    rig.finish();
}

#[test]
fn endless_chains_in_a_small_ring_are_faults() {
    let rig = Rig::start();
    let mut hostile = HostileConfig { log2_ring_size: 2, ..rig.good() }.connect().unwrap();
    rig.daemon.wait_up("br1", "bad").unwrap();
    let next = Descriptor { flags: 1, ..hostile.descriptor(&frame(2)) };
    for _ in 0..4 {
        hostile.put(&next);
    }
    hostile.publish();
    rig.daemon.wait_down("br1", "bad", "chain").unwrap();
    rig.assert_port_recovers();
    rig.finish();
}

#[test]
fn huge_packets_within_the_region_are_dropped_and_counted() {
    let rig = Rig::start();
    let mut hostile = rig.connect();
    let before = rig.daemon.port("br1", "bad").unwrap().dropped();
    let descriptor = Descriptor { offset: 0, length: 100_000, ..hostile.descriptor(&frame(2)) };
    hostile.put(&descriptor);
    hostile.publish();
    until("the drop to be counted", LIMIT, || {
        Ok((rig.daemon.port("br1", "bad")?.dropped() > before).then_some(()))
    })
    .unwrap();
    assert!(rig.daemon.port("br1", "bad").unwrap().is_up());
    drop(hostile);
    rig.assert_port_recovers();
    rig.finish();
}

#[test]
fn jumping_indices_are_faults() {
    let mut rig = Rig::start();
    for by in [257_u16, 1000, 0x8000, 0xffff] {
        let mut hostile = rig.connect();
        assert!(hostile.send(&frame(2)));
        // A jump back before the switch has read the index would go unnoticed.
        until("the switch to read the index", LIMIT, || {
            Ok((hostile.tx.tail() == hostile.tx.head()).then_some(()))
        })
        .unwrap();
        hostile.publish_head(hostile.tx.head().wrapping_add(by));
        rig.daemon.wait_down("br1", "bad", "index jumped").unwrap();
    }
    // The ring to the client: more buffers than its size, and fewer than were taken.
    for by in [257_u16, 0x8000, 0xfe00] {
        let hostile = rig.connect();
        hostile.rx.set_head(hostile.rx.tail().wrapping_add(by));
        rig.feed(8);
        rig.daemon.wait_down("br1", "bad", "index jumped").unwrap();
    }
    rig.assert_port_recovers();
    rig.finish();
}

#[test]
fn invalid_receive_buffers_are_faults() {
    let mut rig = Rig::start();
    let wrong: [(Descriptor, &str); 4] = [
        (Descriptor { length: 2048, offset: u32::MAX - 100, ..Descriptor::default() }, "outside its region"),
        (Descriptor { length: 2048, region: 5, ..Descriptor::default() }, "outside its region"),
        (Descriptor { length: u32::MAX, ..Descriptor::default() }, "outside its region"),
        (Descriptor { length: 0, ..Descriptor::default() }, "zero length"),
    ];
    for (descriptor, reason) in wrong {
        let hostile = rig.connect();
        for slot in 0..hostile.rx.size() {
            hostile.rx.write_desc(slot, &descriptor);
        }
        rig.feed(8);
        rig.daemon.wait_down("br1", "bad", reason).unwrap();
    }
    rig.assert_port_recovers();
    rig.finish();
}

#[test]
fn unused_fields_are_ignored() {
    let rig = Rig::start();
    for private_hdr_size in [1, 0x8000, 0xffff] {
        let mut hostile = HostileConfig { private_hdr_size, ..rig.good() }.connect().unwrap();
        rig.daemon.wait_up("br1", "bad").unwrap();
        let delivered = || rig.daemon.port("br1", "sink").map(|port| port.delivered());
        let before = delivered().unwrap();
        for number in 0..20_u32 {
            let metadata = number.wrapping_mul(0x9e37_79b9) | 1;
            let flags = (metadata as u16) & !1;
            let descriptor = Descriptor { metadata, flags, ..hostile.descriptor(&frame(2)) };
            hostile.put(&descriptor);
        }
        hostile.publish();
        until("the packets to pass", LIMIT, || Ok((delivered()? >= before + 20).then_some(()))).unwrap();
        assert!(rig.daemon.port("br1", "bad").unwrap().is_up());
        drop(hostile);
        rig.daemon.wait_down("br1", "bad", "").unwrap();
    }
    rig.finish();
}

/// Sends as fast as possible until stopped, whatever happens to the memory.
fn load(hostile: &mut Hostile, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..32 {
            hostile.send(&frame(2));
        }
        hostile.post_all();
        std::thread::yield_now();
    }
}

/// Attacks a client's memory file while the client sends and receives. Returns the reason that the port went down, or
/// `None` if it stayed up for `patience`.
fn attack_memory(
    rig: &mut Rig,
    mut hostile: Hostile,
    patience: Duration,
    attack: impl Fn(&OwnedFd),
) -> Option<String> {
    let stop = AtomicBool::new(false);
    let file = hostile.file.try_clone().unwrap();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            load(&mut hostile, &stop);
            hostile
        });
        let received = || rig.daemon.port("br1", "bad").map(|port| port.received());
        let before = received().unwrap();
        until("some load", LIMIT, || Ok((received()? > before + 2000).then_some(()))).unwrap();
        let end = Instant::now() + patience;
        let mut reason = None;
        while reason.is_none() && Instant::now() < end {
            attack(&file);
            rig.feeder.tx[0].push(&[&frame(0xff)]);
            rig.feeder.tx[0].flush();
            rig.feeder.rx[0].refill();
            let port = rig.daemon.port("br1", "bad").unwrap();
            reason = (!port.is_up()).then(|| port.reason().to_string());
        }
        stop.store(true, Ordering::Relaxed);
        drop(sender.join().unwrap());
        // Memory that reads as zeros can also appear as a jump of an index or an empty packet.
        let known = ["truncated or punched", "index jumped", "zero length"];
        assert!(reason.iter().all(|reason| known.iter().any(|known| reason.contains(known))), "{reason:?}");
        reason
    })
}

#[test]
fn memory_truncated_under_load() {
    let mut rig = Rig::start();
    for size in [0, 4096] {
        let hostile = rig.connect();
        attack_memory(&mut rig, hostile, LIMIT, |file| ftruncate(file, size).unwrap()).unwrap();
    }
    // The rings stay and the buffers go, so only copies hit the hole.
    let hostile = rig.connect();
    let buffers = u64::from(hostile.layout.buffer(Direction::S2m, 0, 0));
    let reason = attack_memory(&mut rig, hostile, LIMIT, |file| ftruncate(file, buffers).unwrap()).unwrap();
    assert!(reason.contains("truncated or punched"), "{reason}");
    rig.assert_port_recovers();
    rig.finish();
}

#[test]
fn memory_punched_under_load() {
    let mut rig = Rig::start();
    let hostile = rig.connect();
    let size = hostile.layout.total_size();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // In a tmpfs a hole reads as zeros and can be written again: the client harms only its own packets, so the port may
    // stay up.
    attack_memory(&mut rig, hostile, seconds(2, 20), |file| fallocate(file, punch, 0, size).unwrap());
    rig.wait_bystanders();
    rig.assert_port_recovers();
    rig.finish();
}

#[test]
fn huge_pages_punched_under_load() {
    const PAGE: u64 = 2 << 20;
    let _machine = exclusive();
    let mut rig = Rig::start();
    let needed = rig.good().needed().unwrap().next_multiple_of(PAGE);
    let _pages = HugePages::reserve(needed / PAGE + 2).unwrap();
    let huge =
        || memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB).unwrap();
    let file = huge();
    ftruncate(&file, needed).unwrap();
    let config = HostileConfig { file: Some(file), region_size: Some(needed), ..rig.good() };
    let hostile = config.connect().unwrap();
    rig.daemon.wait_up("br1", "bad").unwrap();
    let hog = huge();
    let hogged = std::cell::Cell::new(0);
    let take_all = || {
        while fallocate(&hog, FallocateFlags::empty(), hogged.get(), PAGE).is_ok() {
            hogged.set(hogged.get() + PAGE);
        }
    };
    // With an empty pool, a hole cannot be filled again: touching it raises SIGBUS.
    let reason = attack_memory(&mut rig, hostile, LIMIT, |file| {
        take_all();
        fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, needed).unwrap();
        take_all();
    });
    reason.unwrap();
    drop(hog);
    rig.assert_port_recovers();
    rig.finish();
}

/// Fills an eventfd and makes writes to it block.
fn clog(event: &OwnedFd) {
    let full = (u64::MAX - 1).to_ne_bytes();
    // It may already hold a value.
    let _ = rustix::io::read(event, &mut [0; 8]);
    rustix::io::write(event, &full).unwrap();
    let flags = fcntl_getfl(event).unwrap();
    fcntl_setfl(event, flags - OFlags::NONBLOCK).unwrap();
}

#[test]
fn eventfds_that_block() {
    let mut rig = Rig::start();
    let hostile = rig.connect();
    // Interrupts are requested and the counter is full: a plain write of the switch would block forever.
    hostile.rx.mask_interrupts(false);
    clog(&hostile.rx_event);
    for _ in 0..50 {
        rig.feed(4);
        std::thread::sleep(Duration::from_millis(2));
    }
    rig.wait_bystanders();
    drop(hostile);
    rig.daemon.wait_down("br1", "bad", "").unwrap();

    // The other eventfd becomes readable and empty again, which would block a plain read of the switch.
    let mut hostile = rig.connect();
    let flags = fcntl_getfl(&hostile.tx_event).unwrap();
    let end = Instant::now() + seconds(1, 20);
    while Instant::now() < end {
        hostile.send(&frame(2));
        fcntl_setfl(&hostile.tx_event, flags | OFlags::NONBLOCK).unwrap();
        let _ = rustix::io::read(&hostile.tx_event, &mut [0; 8]);
        fcntl_setfl(&hostile.tx_event, flags - OFlags::NONBLOCK).unwrap();
    }
    rig.wait_bystanders();
    fcntl_setfl(&hostile.tx_event, flags | OFlags::NONBLOCK).unwrap();
    let _ = rustix::io::read(&hostile.tx_event, &mut [0; 8]);
    clog(&hostile.tx_event);
    rig.wait_bystanders();
    drop(hostile);
    rig.assert_port_recovers();
    rig.finish();
}

#[test]
fn floods_of_the_control_socket() {
    let rig = Rig::start();
    let stop = AtomicBool::new(false);
    let socket = rig.socket();
    let connections = std::thread::scope(|scope| {
        let flood = |whole: bool| {
            let (stop, socket) = (&stop, socket.as_str());
            move || {
                let mut count = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    // The switch may delay accepting.
                    match whole {
                        true => count += u64::from(Peer::connect(socket).is_ok()),
                        false => count += u64::from(Peer::silent(socket).is_ok()),
                    }
                }
                count
            }
        };
        let floods = [scope.spawn(flood(true)), scope.spawn(flood(false))];
        std::thread::sleep(seconds(2, 30));
        rig.wait_bystanders();
        stop.store(true, Ordering::Relaxed);
        floods.map(|flood| flood.join().unwrap()).iter().sum::<u64>()
    });
    assert!(connections > 10, "only {connections} connections");
    rig.assert_port_recovers();
    rig.finish();
}

#[test]
fn silent_connections_do_not_block_the_port() {
    let rig = Rig::start();
    let mut silent = Vec::new();
    // As many as the switch accepts; the rest wait in the kernel's bounded queue.
    for _ in 0..200 {
        match Peer::silent(&rig.socket()) {
            Ok(peer) => silent.push(peer),
            Err(_) => break,
        }
    }
    assert!(silent.len() >= 64, "only {} connections", silent.len());
    // A client that stops within the handshake holds the port no longer than that either.
    let start = Instant::now();
    rig.assert_port_recovers();
    assert!(start.elapsed() < LIMIT, "a correct client waited for {:?}", start.elapsed());
    drop(silent);
    rig.finish();
}

#[test]
fn an_incomplete_handshake_releases_the_port() {
    let rig = Rig::start();
    let peer = Peer::connect(&rig.socket()).unwrap();
    let (version, mode, secret) = (VERSION, MODE_ETHERNET, Secret::default());
    let init = Init { version, id: BAD, mode, secret, name: "hostile".to_string() };
    peer.ask(&Message::Init(init), None).unwrap();
    rig.daemon.wait_down("br1", "bad", "no complete handshake").unwrap();
    rig.assert_port_recovers();
    rig.finish();
}

#[test]
fn packets_to_a_full_ring_are_dropped_and_counted() {
    let mut rig = Rig::start();
    let hostile = rig.connect();
    let before = rig.daemon.port("br1", "bad").unwrap().dropped();
    // Its ring is full after 256 packets.
    until("drops", LIMIT, || {
        rig.feed(32);
        Ok((rig.daemon.port("br1", "bad")?.dropped() > before + 1000).then_some(()))
    })
    .unwrap();
    assert!(rig.daemon.port("br1", "bad").unwrap().is_up());
    drop(hostile);
    rig.assert_port_recovers();
    rig.finish();
}

#[test]
fn a_client_killed_under_full_load_can_reconnect() {
    let _machine = exclusive();
    let rig = Rig::start();
    let check = || {
        let mut command = Command::new(binary("memif-check", "MEMIF_CHECK_BIN").unwrap());
        command.args(["run", "--rate", "max", "--allow-loss", "--size", "60-9000", "--seconds", "3600"]);
        for id in [6, 7] {
            command.arg("--port").arg(format!("{},id={id}", rig.socket()));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    };
    for _ in 0..3 {
        let received = || rig.daemon.port("br2", "k0").map(|port| port.received());
        let before = received().unwrap();
        // The ports may still be disconnecting the previous client: then it ends, and another one is started.
        let mut client = Running::start(&mut check()).unwrap();
        until("full load", LIMIT, || {
            if client.ended()?.is_some() {
                client = Running::start(&mut check())?;
            }
            Ok((received()? > before + 20_000).then_some(()))
        })
        .unwrap();
        client.kill().unwrap();
        for port in ["k0", "k1"] {
            rig.daemon.wait_down("br2", port, "closed").unwrap();
        }
    }
    let options = || Options::new(vec![rig.daemon.memif("memif", 6), rig.daemon.memif("memif", 7)]);
    let mut session = until("the ports to be free", LIMIT, || match Session::connect(options()) {
        Ok(session) => Ok(Some(session)),
        Err(PortError::Connect { .. }) => Ok(None),
        Err(other) => Err(Error::from(other)),
    })
    .unwrap();
    let report = session.run(&AtomicBool::new(false)).unwrap();
    assert!(report.ok, "{report}");
    rig.finish();
}

//! Memif clients that lie, break, vanish or flood. Each time a pair of bystanders keeps sending to each other through
//! the same worker, and must lose nothing; the port of the culprit goes down and says why, and a good client can have
//! it afterwards.
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

/// Interfaces on the one socket.
const BAD: u32 = 2;
const SINK: u32 = 3;
const FEEDER: u32 = 4;
const SECRET: u32 = 5;
const LIMIT: Duration = Duration::from_secs(20);
/// What each bystander sends.
const BYSTANDER_PPS: f64 = 4000.0;

/// A daemon with bystanders on one bridge, and on another the port of the culprit, with one that takes all it sends and
/// one that sends to it.
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
        // Its address is nobody's: it takes everything and returns nothing.
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

    /// A client on the culprit's port that has done nothing wrong yet.
    fn connect(&self) -> Hostile {
        let hostile = self.good().connect().unwrap();
        self.daemon.wait_up("br1", "bad").unwrap();
        hostile
    }

    /// Sends broadcasts, which go to the culprit too.
    fn feed(&mut self, count: usize) {
        for _ in 0..count {
            self.feeder.tx[0].push(&[&frame(0xff)]);
        }
        self.feeder.tx[0].flush();
        self.feeder.rx[0].refill();
    }

    /// Waits until the bystanders have exchanged some more packets.
    fn bystanders_go_on(&self) {
        let left = || self.daemon.port("br0", "left").map(|port| port.received());
        let before = left().unwrap();
        until("the bystanders to go on", LIMIT, || Ok((left()? > before + 400).then_some(()))).unwrap();
    }

    /// A good client gets the culprit's port, and its packets pass.
    fn comes_back(&self) {
        let delivered = || self.daemon.port("br1", "sink").map(|port| port.delivered());
        let before = delivered().unwrap();
        // The port may be busy taking leave of the last one.
        let mut good = until("the port to be free", LIMIT, || Ok(self.good().connect().ok())).unwrap();
        self.daemon.wait_up("br1", "bad").unwrap();
        for _ in 0..10 {
            assert!(good.send(&frame(0x02)));
        }
        until("its packets to pass", LIMIT, || Ok((delivered()? >= before + 10).then_some(()))).unwrap();
        drop(good);
        self.daemon.wait_down("br1", "bad", "").unwrap();
    }

    /// The bystanders lost nothing and kept their rate.
    fn finish(mut self) {
        assert!(self.daemon.is_running().unwrap(), "the daemon ended: {}", self.daemon.log());
        self.bystanders_go_on();
        assert!(self.bystanders.is_running(), "bystanders gave up");
        let report = self.bystanders.stop().unwrap();
        assert!(report.ok, "{report}");
        for direction in &report.directions {
            let pps = direction.sustained_pps();
            assert!(pps > 0.8 * BYSTANDER_PPS, "the rate was not kept, {pps} packets/s: {report}");
        }
        self.stop.store(true, Ordering::Relaxed);
        self.sink.take().unwrap().join().unwrap().unwrap();
    }
}

/// A frame whose destination is not learned: a group or a station's address by the first byte.
fn frame(first: u8) -> [u8; 64] {
    let mut frame = [first; 64];
    frame[6..12].copy_from_slice(&[0x02, 0, 0, 0, 0xbb, first]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// What must not be accepted of a file, by why not.
fn refused_file(rig: &Rig, file: OwnedFd, size: u64, reason: &str) {
    let config = HostileConfig { file: Some(file), region_size: Some(size), ..rig.good() };
    refused(rig, config, reason);
}

/// The handshake fails; the client is told why, and `port show` tells it too.
fn refused(rig: &Rig, config: HostileConfig, reason: &str) {
    let port = if config.id == SECRET { "secret" } else { "bad" };
    let error = config.connect().unwrap_err().to_string();
    assert!(error.contains(reason), "`{error}` instead of `{reason}`");
    rig.daemon.wait_down("br1", port, reason).unwrap();
}

#[test]
fn wrong_versions_ids_and_secrets() {
    let rig = Rig::start();
    for version in [0, 0x0100, 0x0201, 0x0300, 0xffff] {
        refused(&rig, HostileConfig { version, ..rig.good() }, "version");
    }
    let unknown = HostileConfig { id: 999, ..rig.good() }.connect().unwrap_err().to_string();
    assert!(unknown.contains("999"), "{unknown}");
    // One who has the port is not thrown out by another who wants it.
    let holder = rig.connect();
    assert!(rig.good().connect().unwrap_err().to_string().contains("already connected"));
    assert!(rig.daemon.port("br1", "bad").unwrap().is_up());
    drop(holder);
    let secret = |secret| HostileConfig { id: SECRET, secret, ..rig.good() };
    refused(&rig, secret(None), "secret required");
    refused(&rig, secret(Secret::new("hust")), "incorrect secret");
    refused(&rig, secret(Secret::new("hus")), "incorrect secret");
    let holder = secret(Secret::new("hush")).connect().unwrap();
    // A stranger's failure says nothing about the port of a client that is connected.
    secret(Secret::new("hust")).connect().unwrap_err();
    assert!(rig.daemon.port("br1", "secret").unwrap().is_up());
    drop(holder);
    rig.comes_back();
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
    // Out of turn, and with descriptors where none or one belong.
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
    let told_by_port: [(Message, bool, &str); 4] = [
        (Message::AddRegion(AddRegion { index: 0, size: 4096 }), false, "without a file descriptor"),
        (Message::AddRegion(AddRegion { index: 3, size: 4096 }), true, "region index 3"),
        (Message::Connect { if_name: "x".to_string() }, false, "without any ring"),
        (init.clone(), false, "unexpected INIT"),
    ];
    for (message, with_file, expected) in told_by_port {
        let peer = Peer::connect(&rig.socket()).unwrap();
        peer.ask(&init, None).unwrap();
        let file = memfd(4096).unwrap();
        peer.send_message(&message, with_file.then(|| file.as_fd())).unwrap();
        rig.daemon.wait_down("br1", "bad", expected).unwrap();
    }
    // Once connected there is nothing left to say.
    for message in [init, Message::Ack, Message::Connect { if_name: "again".to_string() }] {
        let hostile = rig.connect();
        hostile.peer.send_message(&message, None).unwrap();
        assert!(hostile.refusal().unwrap().contains("unexpected"));
        rig.daemon.wait_down("br1", "bad", "unexpected").unwrap();
    }
    let hostile = rig.connect();
    // A reason that would paint the terminal of who reads it.
    hostile
        .peer
        .send_message(&Message::Disconnect { code: 7, reason: "\u{1b}[31mbye".to_string() }, None)
        .unwrap();
    let reason = rig.daemon.wait_down("br1", "bad", "bye").unwrap();
    assert!(!reason.contains('\u{1b}'), "{reason:?}");
    let hostile = rig.connect();
    send_bytes(hostile.peer.socket(), &[1, 2, 3], &[]).unwrap();
    rig.daemon.wait_down("br1", "bad", "message of 3 bytes").unwrap();
    rig.comes_back();
    rig.finish();
}

#[test]
fn wrong_regions_and_files() {
    let rig = Rig::start();
    let needed = rig.good().needed().unwrap();
    let file = || memfd(needed).unwrap();
    refused_file(&rig, file(), 0, "region size is 0");
    refused_file(&rig, file(), u64::MAX, "");
    refused_file(&rig, file(), 1 << 62, "");
    refused_file(&rig, file(), needed + 4096, "larger than its file");
    refused_file(&rig, memfd(0).unwrap(), needed, "larger than its file");
    let (pipe, _writer) = rustix::pipe::pipe().unwrap();
    refused_file(&rig, pipe, needed, "a pipe");
    let zero = File::options().read(true).write(true).open("/dev/zero").unwrap();
    refused_file(&rig, zero.into(), needed, "a character device");
    refused_file(&rig, File::open("/").unwrap().into(), needed, "a directory");
    refused_file(
        &rig,
        Peer::silent(&rig.socket()).unwrap().socket().try_clone_to_owned().unwrap(),
        needed,
        "a socket",
    );
    refused_file(&rig, eventfd(0, EventfdFlags::CLOEXEC).unwrap(), needed, "kernel object");
    // A file on a file system that can block: whatever the target directory lies on, unless that is a tmpfs.
    let disk = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    disk.set_len(needed).unwrap();
    if rustix::fs::fstatfs(&disk).unwrap().f_type != 0x0102_1994 {
        refused_file(&rig, disk.into(), needed, "not on tmpfs");
    }
    let file = memfd(needed).unwrap();
    let read_only = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file))).unwrap();
    refused_file(&rig, read_only.into(), needed, "reading and writing");
    rig.comes_back();
    rig.finish();
}

#[test]
fn wrong_rings() {
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
    // Descriptors that are no eventfd.
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
    // Rings one after another until there are too many.
    let peer = begin();
    for index in 0.. {
        peer.send_message(&Message::AddRing(AddRing { index, ..good }), Some(event.as_fd())).unwrap();
        if let Some(Message::Disconnect { reason, .. }) = peer.receive().unwrap() {
            assert!(reason.contains("more than"), "{reason}");
            break;
        }
        assert!(index < 1000, "no limit");
    }
    rig.comes_back();
    rig.finish();
}

/// Breaks the ring to the server with these descriptors, after some good packets.
fn broken_by(rig: &Rig, descriptors: impl FnOnce(&mut Hostile) -> Vec<Descriptor>, reason: &str) {
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
    broken_by(
        &rig,
        |h| vec![Descriptor { offset: u32::MAX - 10, ..h.descriptor(&frame(2)) }],
        "outside its region",
    );
    let end = |h: &mut Hostile| h.layout.total_size() as u32;
    broken_by(
        &rig,
        |h| vec![Descriptor { offset: end(h) - 63, ..h.descriptor(&frame(2)) }],
        "outside its region",
    );
    broken_by(&rig, |h| vec![Descriptor { region: 1, ..h.descriptor(&frame(2)) }], "outside its region");
    broken_by(&rig, |h| vec![Descriptor { region: 0xffff, ..h.descriptor(&frame(2)) }], "outside its region");
    broken_by(
        &rig,
        |h| vec![Descriptor { length: u32::MAX, ..h.descriptor(&frame(2)) }],
        "outside its region",
    );
    broken_by(&rig, |h| vec![Descriptor { length: 0, ..h.descriptor(&frame(2)) }], "zero length");
    let next = |h: &mut Hostile| Descriptor { flags: 1, ..h.descriptor(&frame(2)) };
    broken_by(&rig, |h| vec![next(h); 65], "chain");
    broken_by(&rig, |h| vec![next(h); 200], "chain");
    // A good packet, then a bad one in the same breath: the good one is not lost for it.
    broken_by(
        &rig,
        |h| vec![h.descriptor(&frame(2)), Descriptor { region: 9, ..Descriptor::default() }],
        "outside",
    );
    rig.comes_back();
    rig.finish();
}

#[test]
fn chains_that_never_end_in_a_small_ring() {
    let rig = Rig::start();
    let mut hostile = HostileConfig { log2_ring_size: 2, ..rig.good() }.connect().unwrap();
    rig.daemon.wait_up("br1", "bad").unwrap();
    let next = Descriptor { flags: 1, ..hostile.descriptor(&frame(2)) };
    for _ in 0..4 {
        hostile.put(&next);
    }
    hostile.publish();
    rig.daemon.wait_down("br1", "bad", "chain").unwrap();
    rig.comes_back();
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
    rig.comes_back();
    rig.finish();
}

#[test]
fn indices_that_jump() {
    let mut rig = Rig::start();
    for by in [257_u16, 1000, 0x8000, 0xffff] {
        let mut hostile = rig.connect();
        assert!(hostile.send(&frame(2)));
        // An index that goes back before the switch has looked is none that jumps.
        until("the switch to look", LIMIT, || Ok((hostile.tx.tail() == hostile.tx.head()).then_some(())))
            .unwrap();
        hostile.publish_head(hostile.tx.head().wrapping_add(by));
        rig.daemon.wait_down("br1", "bad", "index jumped").unwrap();
    }
    // The ring to the client: more buffers than it has, fewer than were taken.
    for by in [257_u16, 0x8000, 0xfe00] {
        let hostile = rig.connect();
        hostile.rx.set_head(hostile.rx.tail().wrapping_add(by));
        rig.feed(8);
        rig.daemon.wait_down("br1", "bad", "index jumped").unwrap();
    }
    rig.comes_back();
    rig.finish();
}

#[test]
fn buffers_that_are_none() {
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
    rig.comes_back();
    rig.finish();
}

#[test]
fn what_has_no_meaning_is_ignored() {
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

/// Sends as fast as it goes until told to stop, whatever becomes of the memory.
fn under_load(hostile: &mut Hostile, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..32 {
            hostile.send(&frame(2));
        }
        hostile.post_all();
        std::thread::yield_now();
    }
}

/// Does something to a client's memory file while the client sends and is sent to. Returns why the port went down; if it
/// did not within `patience`, nothing.
fn memory_taken(
    rig: &mut Rig,
    mut hostile: Hostile,
    patience: Duration,
    take: impl Fn(&OwnedFd),
) -> Option<String> {
    let stop = AtomicBool::new(false);
    let file = hostile.file.try_clone().unwrap();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            under_load(&mut hostile, &stop);
            hostile
        });
        let received = || rig.daemon.port("br1", "bad").map(|port| port.received());
        let before = received().unwrap();
        until("some load", LIMIT, || Ok((received()? > before + 2000).then_some(()))).unwrap();
        let end = Instant::now() + patience;
        let mut reason = None;
        while reason.is_none() && Instant::now() < end {
            take(&file);
            rig.feeder.tx[0].push(&[&frame(0xff)]);
            rig.feeder.tx[0].flush();
            rig.feeder.rx[0].refill();
            let port = rig.daemon.port("br1", "bad").unwrap();
            reason = (!port.is_up()).then(|| port.reason().to_string());
        }
        stop.store(true, Ordering::Relaxed);
        drop(load.join().unwrap());
        // Memory that reads as zeros is an index that jumps or a packet of no bytes as well.
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
        memory_taken(&mut rig, hostile, LIMIT, |file| ftruncate(file, size).unwrap()).unwrap();
    }
    // The rings stay, the buffers go: only copying meets the hole.
    let hostile = rig.connect();
    let buffers = u64::from(hostile.layout.buffer(Direction::S2m, 0, 0));
    let reason = memory_taken(&mut rig, hostile, LIMIT, |file| ftruncate(file, buffers).unwrap()).unwrap();
    assert!(reason.contains("truncated or punched"), "{reason}");
    rig.comes_back();
    rig.finish();
}

#[test]
fn memory_punched_under_load() {
    let mut rig = Rig::start();
    let hostile = rig.connect();
    let size = hostile.layout.total_size();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // In a tmpfs a hole reads as zeros and can be written again: the client harms its own packets, and may get away with it.
    memory_taken(&mut rig, hostile, seconds(2, 20), |file| fallocate(file, punch, 0, size).unwrap());
    rig.bystanders_go_on();
    rig.comes_back();
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
    // When the pool is empty, a hole cannot be filled again: touching it is a SIGBUS.
    let reason = memory_taken(&mut rig, hostile, LIMIT, |file| {
        take_all();
        fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, needed).unwrap();
        take_all();
    });
    reason.unwrap();
    drop(hog);
    rig.comes_back();
    rig.finish();
}

/// Lets writes to an eventfd block, and fills it.
fn clog(event: &OwnedFd) {
    let full = (u64::MAX - 1).to_ne_bytes();
    // It may hold something already.
    let _ = rustix::io::read(event, &mut [0; 8]);
    rustix::io::write(event, &full).unwrap();
    let flags = fcntl_getfl(event).unwrap();
    fcntl_setfl(event, flags - OFlags::NONBLOCK).unwrap();
}

#[test]
fn eventfds_that_block() {
    let mut rig = Rig::start();
    let hostile = rig.connect();
    // Interrupts are wanted, and the counter is full: a plain write of the switch would never return.
    hostile.rx.mask_interrupts(false);
    clog(&hostile.rx_event);
    for _ in 0..50 {
        rig.feed(4);
        std::thread::sleep(Duration::from_millis(2));
    }
    rig.bystanders_go_on();
    drop(hostile);
    rig.daemon.wait_down("br1", "bad", "").unwrap();

    // The other one: it becomes readable and empty again, in the hope that the switch reads when there is nothing.
    let mut hostile = rig.connect();
    let flags = fcntl_getfl(&hostile.tx_event).unwrap();
    let end = Instant::now() + seconds(1, 20);
    while Instant::now() < end {
        hostile.send(&frame(2));
        fcntl_setfl(&hostile.tx_event, flags | OFlags::NONBLOCK).unwrap();
        let _ = rustix::io::read(&hostile.tx_event, &mut [0; 8]);
        fcntl_setfl(&hostile.tx_event, flags - OFlags::NONBLOCK).unwrap();
    }
    rig.bystanders_go_on();
    fcntl_setfl(&hostile.tx_event, flags | OFlags::NONBLOCK).unwrap();
    let _ = rustix::io::read(&hostile.tx_event, &mut [0; 8]);
    clog(&hostile.tx_event);
    rig.bystanders_go_on();
    drop(hostile);
    rig.comes_back();
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
                    // The switch may take its time to accept.
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
        rig.bystanders_go_on();
        stop.store(true, Ordering::Relaxed);
        floods.map(|flood| flood.join().unwrap()).iter().sum::<u64>()
    });
    assert!(connections > 10, "{connections} connections are no flood");
    rig.comes_back();
    rig.finish();
}

#[test]
fn connections_that_never_speak() {
    let rig = Rig::start();
    let mut silent = Vec::new();
    // As many as are let in; the rest waits in the kernel's queue, which has an end.
    for _ in 0..200 {
        match Peer::silent(&rig.socket()) {
            Ok(peer) => silent.push(peer),
            Err(_) => break,
        }
    }
    assert!(silent.len() >= 64, "only {} connections", silent.len());
    // Half of a handshake, and then silence, holds the port no longer than that either.
    let waits = Instant::now();
    rig.comes_back();
    assert!(waits.elapsed() < LIMIT, "a good client had to wait for {:?}", waits.elapsed());
    drop(silent);
    rig.finish();
}

#[test]
fn a_handshake_that_stops_half_way_gives_the_port_back() {
    let rig = Rig::start();
    let peer = Peer::connect(&rig.socket()).unwrap();
    let (version, mode, secret) = (VERSION, MODE_ETHERNET, Secret::default());
    let init = Init { version, id: BAD, mode, secret, name: "hostile".to_string() };
    peer.ask(&Message::Init(init), None).unwrap();
    rig.daemon.wait_down("br1", "bad", "no complete handshake").unwrap();
    rig.comes_back();
    rig.finish();
}

#[test]
fn clients_that_do_not_take_their_packets() {
    let mut rig = Rig::start();
    let hostile = rig.connect();
    let before = rig.daemon.port("br1", "bad").unwrap().dropped();
    // Its ring is full after 256.
    until("drops", LIMIT, || {
        rig.feed(32);
        Ok((rig.daemon.port("br1", "bad")?.dropped() > before + 1000).then_some(()))
    })
    .unwrap();
    assert!(rig.daemon.port("br1", "bad").unwrap().is_up());
    drop(hostile);
    rig.comes_back();
    rig.finish();
}

#[test]
fn a_client_killed_under_full_load_comes_back() {
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
        // The ports may be busy taking leave of the last one: then it gives up, and another one is started.
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

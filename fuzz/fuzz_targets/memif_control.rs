//! The memif control channel: messages and descriptors of a hostile peer.
//!
//! The input is a list of messages, raw or built from the fields of a valid handshake with a few changes, each with a
//! descriptor of some kind or none. Between messages the files may be truncated.
//!
//! Invariants:
//! - No panic and no leaked descriptor: all received ones are closed at the end of the session.
//! - A message survives encoding; its text is bounded and printable.
//! - Regions and rings never exceed the limits. After a refusal or a disconnect, everything is refused.
//! - A connection's rings lie within its regions, aligned and accessible, each with an eventfd.
//! - The client's handshake answers any server within the limits of its HELLO.
#![no_main]

use std::os::fd::{AsFd, OwnedFd};

use libfuzzer_sys::fuzz_target;
use memif::client::{Attachment, ClientConfig, Direction, Handshake, Layout, Progress};
use memif::message::{
    AddRegion, AddRing, Hello, Init, MAX_LOG2_RING_SIZE, MESSAGE_SIZE, Message, RING_S2M, Secret, VERSION,
};
use memif::ring::{COOKIE, size_in_bytes};
use memif::server::{Interface, Limits, Refusal, Session, Step};
use memif::socket::Address;
use memif::{Connection, message};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{MemfdFlags, Mode, OFlags, ftruncate, memfd_create, open};
use support::Bytes;

/// Size of the memory file, sufficient for all announcements of a correct client here.
const FILE: u64 = 64 << 10;
const SECRET: &str = "hush";

/// Descriptors to send, created once.
struct Files {
    /// Filled with cookies, so that a ring may lie anywhere in it.
    memory: OwnedFd,
    others: Vec<OwnedFd>,
}

thread_local! {
    static FILES: Files = match files() {
        Ok(files) => files,
        Err(error) => panic!("cannot create descriptors: {error}"),
    };
}

fn files() -> rustix::io::Result<Files> {
    let memory = memory()?;
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let odd = memfd_create("odd", MemfdFlags::CLOEXEC)?;
    ftruncate(&odd, 4097)?;
    let (reader, writer) = rustix::pipe::pipe()?;
    let open = |path: &str, flags| open(path, flags | OFlags::CLOEXEC, Mode::empty());
    let proc = |fd: &OwnedFd| format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(fd));
    let others = vec![
        event,
        eventfd(5, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?,
        odd,
        memfd_create("empty", MemfdFlags::CLOEXEC)?,
        open(&proc(&memory), OFlags::RDONLY)?,
        open(&proc(&memory), OFlags::PATH)?,
        reader,
        writer,
        open("/dev/zero", OFlags::RDWR)?,
        open("/dev/null", OFlags::RDWR)?,
        open("/proc/self/exe", OFlags::RDONLY)?,
        open("/proc/self/mem", OFlags::RDWR)?,
        open("/", OFlags::DIRECTORY | OFlags::RDONLY)?,
        epoll::create(epoll::CreateFlags::CLOEXEC)?,
    ];
    Ok(Files { memory, others })
}

fn memory() -> rustix::io::Result<OwnedFd> {
    let file = memfd_create("memory", MemfdFlags::CLOEXEC)?;
    let content: Vec<u8> = (0..FILE / 8).flat_map(|_| u64::from(COOKIE).to_le_bytes()).collect();
    rustix::io::write(&file, &content)?;
    Ok(file)
}

fuzz_target!(|data: &[u8]| {
    let mut from = Bytes::new(data);
    if from.flag() { server(&mut from) } else { client(&mut from) }
});

/// Interface 0 has no secret, 1 has one, 2 is connected.
fn lookup(id: u32) -> Result<Interface, Refusal> {
    match id {
        0 => Ok(Interface { name: "vm0".into(), secret: None }),
        1 => Ok(Interface { name: "vm1".into(), secret: Secret::new(SECRET) }),
        2 => Err(Refusal::AlreadyConnected { id }),
        _ => Err(Refusal::UnknownInterface { id }),
    }
}

/// Decodes a message and checks its round trip.
fn through_the_wire(bytes: &[u8; MESSAGE_SIZE]) -> Option<Message> {
    let message = Message::decode(bytes).ok()?;
    let again = message.encode();
    let Ok(decoded) = Message::decode(&again) else { panic!("{message:?} does not decode after encoding") };
    assert_eq!(decoded.encode(), again);
    // Invalid UTF-8 becomes longer replacement characters, which may not all fit again.
    let texts = match &message {
        Message::Hello(m) => vec![(&m.name, message::NAME_SIZE)],
        Message::Init(m) => vec![(&m.name, message::NAME_SIZE)],
        Message::Connect { if_name } | Message::Connected { if_name } => vec![(if_name, message::NAME_SIZE)],
        Message::Disconnect { reason, .. } => vec![(reason, message::REASON_SIZE)],
        _ => vec![],
    };
    for (text, size) in &texts {
        assert!(text.chars().count() <= *size && !text.chars().any(char::is_control));
    }
    if texts.iter().all(|(text, size)| text.len() < *size) {
        assert_eq!(decoded, message);
    }
    Some(message)
}

/// Progress of the handshake, from which the next valid message follows.
#[derive(Default)]
struct Progressed {
    regions: u16,
    s2m: u16,
    m2s: u16,
}

fn server(from: &mut Bytes<'_>) {
    let [limits, regions] = from.array();
    let limits = Limits {
        max_regions: u16::from(regions % 5),
        max_memory: if limits & 1 == 0 { 4 * FILE } else { FILE + 4096 },
        max_rings: u16::from(limits >> 1 & 3),
        max_log2_ring_size: limits >> 3 & 15,
    };
    let mut session = Session::new(limits, "mswitch");
    assert!(matches!(through_the_wire(&session.hello().encode()), Some(Message::Hello(_))));
    let mut progressed = Progressed::default();
    let mut fresh: Option<OwnedFd> = None;
    let mut over = false;
    for step in 0..48 {
        if from.is_empty() {
            break;
        }
        let (bytes, kind) = message(from, step, &progressed);
        let fd = descriptor(from, kind, &mut fresh);
        if from.u8() == 0xa5
            && let Some(file) = &fresh
        {
            // The file may be mapped already.
            let _ = ftruncate(file, u64::from(from.u16()));
        }
        let Some(message) = through_the_wire(&bytes) else { continue };
        let announced = message.clone();
        match session.handle(message, fd, &lookup) {
            Ok(_) if over => panic!("{announced:?} was accepted after the end"),
            Ok(Step::Reply(reply)) => {
                assert_eq!(reply, Message::Ack);
                match announced {
                    Message::AddRegion(_) => progressed.regions += 1,
                    Message::AddRing(ring) if ring.is_s2m() => progressed.s2m += 1,
                    Message::AddRing(_) => progressed.m2s += 1,
                    Message::Init(_) => {}
                    other => panic!("{other:?} was acknowledged"),
                }
                assert!(progressed.regions <= limits.max_regions.max(1));
                assert!(progressed.s2m.max(progressed.m2s) <= limits.max_rings.max(1));
            }
            Ok(Step::Connected { reply, connection }) => {
                assert!(through_the_wire(&reply.encode()).is_some());
                connected(&connection, &limits, &progressed);
            }
            Ok(Step::PeerDisconnected(reason)) => {
                assert!(reason.chars().count() <= message::REASON_SIZE);
                over = true;
            }
            Err(refusal) => {
                assert!(matches!(refusal.to_message(), Message::Disconnect { code: 0, .. }));
                assert!(through_the_wire(&refusal.to_message().encode()).is_some());
                over = true;
            }
        }
    }
}

/// Kind of descriptor that a message expects.
#[derive(Clone, Copy)]
enum Kind {
    None,
    Memory,
    Event,
}

/// Builds a message, mostly the next one of a handshake and mostly valid.
fn message(from: &mut Bytes<'_>, step: u32, progressed: &Progressed) -> ([u8; MESSAGE_SIZE], Kind) {
    let [choice, variant] = from.array();
    let (message, kind) = match (choice % 16, step) {
        (0, _) => {
            let mut bytes = from.array::<MESSAGE_SIZE>();
            bytes[0] %= 10;
            bytes[1] = 0;
            return (bytes, Kind::None);
        }
        (1, _) => return (from.array(), Kind::Memory),
        (2, _) => (Message::disconnect(String::from_utf8_lossy(from.slice(100))), Kind::None),
        (3, _) => (Message::Ack, Kind::None),
        (4, _) => (Message::Connected { if_name: "x".into() }, Kind::None),
        (5, _) | (_, 0) => {
            let id = u32::from(variant % 4);
            let secret = if id == 1 { Secret::new(SECRET).unwrap_or_default() } else { Secret::default() };
            (Message::Init(Init { version: VERSION, id, mode: 0, secret, name: "fuzz".into() }), Kind::None)
        }
        (6..=8, _) | (_, 1) => {
            let size = match variant % 4 {
                0 => 4096 * (1 + u64::from(from.u8() % 16)),
                1 => u64::from(from.u16()),
                2 => from.u64(),
                _ => FILE,
            };
            (Message::AddRegion(AddRegion { index: progressed.regions, size }), Kind::Memory)
        }
        (9..=13, _) => {
            let (s2m, log2) = (variant & 1 == 0, from.u8() % 16);
            let ring = AddRing {
                flags: if s2m { RING_S2M } else { 0 },
                index: if s2m { progressed.s2m } else { progressed.m2s },
                region: u16::from(variant >> 1) % (progressed.regions + 1).max(2),
                offset: if variant & 0x80 == 0 { u32::from(from.u16()) & !7 } else { from.u32() },
                log2_ring_size: log2,
                private_hdr_size: u16::from(variant),
            };
            (Message::AddRing(ring), Kind::Event)
        }
        _ => (Message::Connect { if_name: String::from_utf8_lossy(from.slice(6)).into() }, Kind::None),
    };
    let mut bytes = message.encode();
    if choice & 0xf0 == 0xf0 {
        let [at, value] = from.array();
        bytes[usize::from(at) % MESSAGE_SIZE] = value;
    }
    (bytes, kind)
}

/// Returns the descriptor that the message expects, unless the input chooses another.
fn descriptor(from: &mut Bytes<'_>, kind: Kind, fresh: &mut Option<OwnedFd>) -> Option<OwnedFd> {
    let choice = from.u8();
    FILES.with(|files| {
        let file = match (kind, choice) {
            (Kind::None, 0..=250) => return None,
            (Kind::Memory, 0..=160) => &files.memory,
            (Kind::Memory, 161..=220) => {
                *fresh = memory().ok();
                fresh.as_ref()?
            }
            (Kind::Event, 0..=220) => files.others.first()?,
            (_, 255) => return None,
            _ => files.others.get(usize::from(choice) % files.others.len())?,
        };
        file.try_clone().ok()
    })
}

/// Checks the guarantees of a connection.
fn connected(connection: &Connection, limits: &Limits, progressed: &Progressed) {
    let regions = connection.memory.regions();
    assert_eq!(regions.len(), usize::from(progressed.regions));
    assert!(regions.iter().map(|region| region.len()).sum::<u64>() <= limits.max_memory);
    assert_eq!((connection.s2m.len(), connection.m2s.len()), (progressed.s2m.into(), progressed.m2s.into()));
    assert!(!connection.s2m.is_empty() || !connection.m2s.is_empty());
    for parts in connection.s2m.iter().chain(&connection.m2s) {
        let ring = &parts.ring;
        let first = ring.desc_ptr(0) as usize - memif::ring::HEADER_SIZE;
        let log2 = ring.size().trailing_zeros() as u8;
        assert!(ring.size().is_power_of_two() && (1..=MAX_LOG2_RING_SIZE).contains(&log2));
        let end = first + size_in_bytes(log2);
        assert!(first.is_multiple_of(8));
        assert!(regions.iter().any(|region| {
            let base = region.base().as_ptr() as usize;
            base <= first && end <= base + region.len() as usize
        }));
        assert!(clientmem::is_eventfd(parts.eventfd.as_fd()));
        // All of it is accessible, also after truncation of the file.
        let (head, tail) = (ring.head(), ring.tail());
        for index in [0, 1, ring.mask(), ring.size(), head, tail, u16::MAX] {
            let d = ring.desc(index);
            if let Some(at) = connection.memory.translate(d.region, d.offset, d.length) {
                let at = at.as_ptr() as usize;
                assert!(regions.iter().any(|region| {
                    let base = region.base().as_ptr() as usize;
                    base <= at && at + d.length as usize <= base + region.len() as usize
                }));
            }
        }
        ring.mask_interrupts(true);
        let _ = connection.memory.faulted();
        // The next input uses the same file.
        ring.initialise();
    }
}

/// A hostile server, from the client's point of view.
fn client(from: &mut Bytes<'_>) {
    let mut config = ClientConfig::new(Address::new("@nowhere"), from.u32());
    config.tx_queues = from.u16() % 300;
    config.rx_queues = from.u16() % 300;
    config.log2_ring_size = from.u8() % 20;
    config.buffer_size = from.u32();
    if from.flag() {
        config.secret = Secret::new(SECRET);
    }
    let (tx_queues, rx_queues) = (config.tx_queues, config.rx_queues);
    let mut handshake = Handshake::new(config);
    let mut offered: Option<Hello> = None;
    let mut over = false;
    for step in 0..1024 {
        if from.is_empty() {
            break;
        }
        let choice = from.u8();
        let bytes = match (choice % 32, step) {
            (0, _) => from.array(),
            (1, _) => Message::Connected { if_name: String::from_utf8_lossy(from.slice(40)).into() }.encode(),
            (2, _) => Message::disconnect(String::from_utf8_lossy(from.slice(100))).encode(),
            (3, _) | (_, 0) => Message::Hello(Hello {
                name: "server".into(),
                min_version: if choice & 0x40 == 0 { VERSION } else { from.u16() },
                max_version: if choice & 0x80 == 0 { VERSION } else { from.u16() },
                max_region: from.u16(),
                max_m2s_ring: if choice & 0x20 == 0 { u16::from(from.u8() % 8) } else { from.u16() },
                max_s2m_ring: if choice & 0x20 == 0 { u16::from(from.u8() % 8) } else { from.u16() },
                max_log2_ring_size: from.u8(),
            })
            .encode(),
            _ => Message::Ack.encode(),
        };
        let Some(message) = through_the_wire(&bytes) else { continue };
        if let (Message::Hello(hello), None) = (&message, &offered) {
            offered = Some(hello.clone());
        }
        match handshake.handle(message) {
            Ok(_) if over => panic!("the handshake continues after its end"),
            Ok(Progress::Connected) => over = true,
            Ok(Progress::Send(outgoing)) => {
                assert!(through_the_wire(&outgoing.message.encode()).is_some());
                let (Some(hello), Some(layout)) = (&offered, handshake.layout()) else { panic!("no hello") };
                assert!(layout.rings(Direction::S2m) <= hello.max_s2m_ring.saturating_add(1).min(tx_queues));
                assert!(layout.rings(Direction::M2s) <= hello.max_m2s_ring.saturating_add(1).min(rx_queues));
                announced(&outgoing.message, outgoing.attachment, layout, hello);
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                over = true;
            }
        }
    }
}

/// Checks that announcements lie in the client's region and within the server's limits.
fn announced(message: &Message, attachment: Attachment, layout: &Layout, hello: &Hello) {
    match (message, attachment) {
        (Message::AddRegion(region), Attachment::Region) => {
            assert_eq!((region.index, region.size), (0, layout.total_size()));
            assert!(region.size <= 1 << 32);
        }
        (Message::AddRing(ring), Attachment::Ring(direction, index)) => {
            assert_eq!(ring.is_s2m(), direction == Direction::S2m);
            assert_eq!(ring.index, index);
            assert!(ring.log2_ring_size <= hello.max_log2_ring_size);
            let end = u64::from(ring.offset) + size_in_bytes(ring.log2_ring_size) as u64;
            assert!(end <= layout.total_size());
            let last = layout.buffer(direction, index, layout.ring_size() - 1);
            assert!(u64::from(last) + u64::from(layout.buffer_size()) <= layout.total_size());
        }
        (Message::Init(_) | Message::Connect { .. }, Attachment::None) => {}
        other => panic!("{other:?}"),
    }
}

//! Feeds the server's handshake by hand with every mistake that a client can make.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::fd::{AsFd, OwnedFd};

use clientmem::{MapError, Region};
use memif::client::{Direction, Layout};
use memif::message::{AddRegion, AddRing, Hello, Init, Message, Secret, VERSION};
use memif::ring::{COOKIE, RingError};
use memif::server::{Interface, Limits, Refusal, Session, Step};
use rustix::event::{EventfdFlags, eventfd};

const LIMITS: Limits = Limits { max_regions: 2, max_memory: 1 << 20, max_rings: 2, max_log2_ring_size: 8 };

/// Interface 7 has a secret, 8 has none, 9 is in use.
fn lookup(id: u32) -> Result<Interface, Refusal> {
    match id {
        7 => Ok(Interface { name: "vm7".into(), secret: Secret::new("hush") }),
        8 => Ok(Interface { name: "vm8".into(), secret: None }),
        9 => Err(Refusal::AlreadyConnected { id }),
        _ => Err(Refusal::UnknownInterface { id }),
    }
}

/// A session and the memory of an honest client: one ring each way.
struct Peer {
    session: Session,
    layout: Layout,
    file: OwnedFd,
    region: Region,
}

impl Peer {
    fn new() -> Peer {
        let layout = Layout::new(1, 1, 4, 64).unwrap();
        let (region, file) = Region::create("test", layout.total_size()).unwrap();
        Peer { session: Session::new(LIMITS, "mswitch"), layout, file, region }
    }

    fn send(&mut self, message: Message, fd: Option<OwnedFd>) -> Result<Step, Refusal> {
        self.session.handle(message, fd, &lookup)
    }

    fn init(mut self) -> Peer {
        acked(self.send(init(8), None));
        self
    }

    fn region(mut self) -> Peer {
        let (message, fd) = self.add_region();
        acked(self.send(message, fd));
        self
    }

    fn ring(mut self, direction: Direction) -> Peer {
        let message = Message::AddRing(self.layout.ring(direction, 0));
        acked(self.send(message, Some(event())));
        self
    }

    fn add_region(&self) -> (Message, Option<OwnedFd>) {
        let message = Message::AddRegion(AddRegion { index: 0, size: self.layout.total_size() });
        (message, Some(self.file.try_clone().unwrap()))
    }

    fn set_cookies(&self) {
        for direction in [Direction::S2m, Direction::M2s] {
            let at = u64::from(self.layout.ring(direction, 0).offset);
            let cookie = self.region.at(at, 4).unwrap().cast::<u32>();
            // SAFETY: in bounds and aligned; the region stays mapped.
            unsafe { cookie.as_ptr().write_volatile(COOKIE) };
        }
    }

    /// Sends a message that must be refused, and checks that the session is over.
    fn refused(mut self, message: Message, fd: Option<OwnedFd>) -> Refusal {
        let refusal = match self.send(message, fd) {
            Err(refusal) => refusal,
            Ok(step) => panic!("accepted: {step:?}"),
        };
        // The text arrives complete, and the session is over.
        assert_eq!(
            Message::decode(&refusal.to_message().encode()),
            Ok(Message::disconnect(refusal.to_string()))
        );
        assert!(matches!(self.send(init(8), None), Err(Refusal::Unexpected { state: "disconnected", .. })));
        refusal
    }

    /// Adds a ring that differs from an honest one by `change`, and returns the refusal.
    fn ring_refused(self, change: impl Fn(&mut AddRing)) -> Refusal {
        let mut ring = self.layout.ring(Direction::S2m, 0);
        change(&mut ring);
        self.refused(Message::AddRing(ring), Some(event()))
    }
}

fn init(id: u32) -> Message {
    init_with(id, |_| {})
}

fn init_with(id: u32, change: impl Fn(&mut Init)) -> Message {
    let mut init =
        Init { version: VERSION, id, mode: 0, secret: Secret::default(), name: "client".to_string() };
    change(&mut init);
    Message::Init(init)
}

fn connect() -> Message {
    Message::Connect { if_name: "eth0".into() }
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

fn acked(result: Result<Step, Refusal>) {
    match result {
        Ok(Step::Reply(Message::Ack)) => {}
        other => panic!("not acknowledged: {other:?}"),
    }
}

#[test]
fn an_honest_client_connects() {
    let mut peer = Peer::new();
    let expected = Hello {
        name: "mswitch".into(),
        min_version: VERSION,
        max_version: VERSION,
        max_region: 1,
        max_m2s_ring: 1,
        max_s2m_ring: 1,
        max_log2_ring_size: 8,
    };
    assert_eq!(peer.session.hello(), Message::Hello(expected));
    assert_eq!(peer.session.interface(), None);
    acked(peer.send(init_with(7, |i| i.secret = Secret::new("hush").unwrap()), None));
    assert_eq!(peer.session.interface(), Some(7));
    let mut peer = peer.region().ring(Direction::S2m).ring(Direction::M2s);
    peer.set_cookies();
    let Ok(Step::Connected { reply, connection }) = peer.send(connect(), None) else {
        panic!("not connected")
    };
    assert_eq!(reply, Message::Connected { if_name: "vm7".into() });
    assert_eq!((connection.id, connection.s2m.len(), connection.m2s.len()), (7, 1, 1));
    assert_eq!((connection.peer_name.as_str(), connection.peer_if_name.as_str()), ("client", "eth0"));
    assert_eq!(connection.s2m[0].ring.size(), 16);
    assert_eq!(connection.memory.regions().len(), 1);
    match peer.send(Message::disconnect("enough"), None) {
        Ok(Step::PeerDisconnected(reason)) => assert_eq!(reason, "enough"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_direction_is_enough() {
    for direction in [Direction::S2m, Direction::M2s] {
        let mut peer = Peer::new().init().region().ring(direction);
        peer.set_cookies();
        assert!(matches!(peer.send(connect(), None), Ok(Step::Connected { .. })));
    }
}

#[test]
fn an_unrequired_secret_is_ignored() {
    let mut peer = Peer::new();
    acked(peer.send(init_with(8, |i| i.secret = Secret::new("whatever").unwrap()), None));
}

#[test]
fn wrong_inits_are_refused() {
    let refused = |message| Peer::new().refused(message, None);
    assert!(matches!(refused(init_with(8, |i| i.version = 0x0102)), Refusal::Version { version: 0x0102 }));
    assert!(matches!(refused(init_with(8, |i| i.mode = 1)), Refusal::Mode { mode: 1 }));
    assert!(matches!(refused(init(5)), Refusal::UnknownInterface { id: 5 }));
    assert!(matches!(refused(init(9)), Refusal::AlreadyConnected { id: 9 }));
    assert!(matches!(refused(init(7)), Refusal::SecretRequired));
    let wrong = init_with(7, |i| i.secret = Secret::new("hushh").unwrap());
    assert!(matches!(refused(wrong), Refusal::SecretIncorrect));
    assert_eq!(
        refused(init_with(8, |i| i.version = 0x0102)).to_string(),
        "incompatible memif version 1.2, expected 2.0"
    );
}

#[test]
fn messages_out_of_order_are_refused() {
    let unexpected = |peer: Peer, message: Message, fd| match peer.refused(message.clone(), fd) {
        Refusal::Unexpected { message: name, .. } => assert_eq!(name, message.type_name()),
        other => panic!("{other}"),
    };
    let (add_region, file) = Peer::new().add_region();
    unexpected(Peer::new(), add_region.clone(), file);
    let add_ring = Message::AddRing(Peer::new().layout.ring(Direction::S2m, 0));
    unexpected(Peer::new(), add_ring, Some(event()));
    unexpected(Peer::new(), connect(), None);
    unexpected(Peer::new(), Message::Ack, None);
    unexpected(Peer::new(), Session::new(LIMITS, "x").hello(), None);
    unexpected(Peer::new().init(), init(8), None);
    unexpected(Peer::new().init(), Message::Connected { if_name: String::new() }, None);
    let connected = || {
        let mut peer = Peer::new().init().region().ring(Direction::S2m);
        peer.set_cookies();
        assert!(matches!(peer.send(connect(), None), Ok(Step::Connected { .. })));
        peer
    };
    unexpected(connected(), connect(), None);
    let (_, file) = Peer::new().add_region();
    unexpected(connected(), add_region, file);
}

#[test]
fn a_disconnect_is_accepted_at_any_time() {
    for mut peer in [Peer::new(), Peer::new().init(), Peer::new().init().region()] {
        assert!(matches!(peer.send(Message::disconnect("no"), None), Ok(Step::PeerDisconnected(_))));
        assert!(matches!(peer.send(connect(), None), Err(Refusal::Unexpected { .. })));
    }
}

#[test]
fn descriptors_only_with_messages_that_need_them() {
    let stray = Peer::new().refused(init(8), Some(event()));
    assert!(matches!(stray, Refusal::StrayDescriptor { message: "INIT" }));
    let stray = Peer::new().init().refused(connect(), Some(event()));
    assert!(matches!(stray, Refusal::StrayDescriptor { message: "CONNECT" }));
    let (add_region, _) = Peer::new().add_region();
    let missing = Peer::new().init().refused(add_region, None);
    assert!(matches!(missing, Refusal::NoDescriptor { message: "ADD_REGION" }));
    let peer = Peer::new().init().region();
    let add_ring = Message::AddRing(peer.layout.ring(Direction::M2s, 0));
    let missing = peer.refused(add_ring, None);
    assert!(matches!(missing, Refusal::NoDescriptor { message: "ADD_RING" }));
}

#[test]
fn wrong_regions_are_refused() {
    let add = |peer: Peer, index, size, fd: Option<OwnedFd>| {
        let fd = fd.unwrap_or_else(|| peer.file.try_clone().unwrap());
        peer.refused(Message::AddRegion(AddRegion { index, size }), Some(fd))
    };
    let refusal = add(Peer::new().init(), 1, 4096, None);
    assert!(matches!(refusal, Refusal::RegionIndex { index: 1, expected: 0 }));
    let refusal = add(Peer::new().init().region(), 0, 4096, None);
    assert!(matches!(refusal, Refusal::RegionIndex { index: 0, expected: 1 }));
    let mut peer = Peer::new().init().region();
    let second = Message::AddRegion(AddRegion { index: 1, size: 1 });
    let fd = peer.file.try_clone().unwrap();
    acked(peer.send(second, Some(fd)));
    assert!(matches!(add(peer, 2, 4096, None), Refusal::TooManyRegions { max: 2 }));
    let refusal = add(Peer::new().init(), 0, 0, None);
    assert!(matches!(refusal, Refusal::Region { index: 0, source: MapError::Empty }));
    let refusal = add(Peer::new().init(), 0, 1 << 20, None);
    assert!(matches!(refusal, Refusal::Region { source: MapError::BeyondFile { .. }, .. }));
    for size in [(1 << 20) + 1, u64::MAX] {
        assert!(matches!(add(Peer::new().init(), 0, size, None), Refusal::TooMuchMemory { max: 0x10_0000 }));
    }
    // Regions added before count.
    let rest = (1 << 20) - Peer::new().layout.total_size();
    let refusal = add(Peer::new().init().region(), 1, rest + 1, None);
    assert!(matches!(refusal, Refusal::TooMuchMemory { .. }));
    let pipe = std::io::pipe().unwrap().0.into();
    let refusal = add(Peer::new().init(), 0, 4096, Some(pipe));
    assert!(matches!(refusal, Refusal::Region { source: MapError::NotRegular { .. }, .. }));
    let on_disk = std::fs::File::open("/proc/self/maps").unwrap();
    let refusal = add(Peer::new().init(), 0, 1, Some(on_disk.into()));
    assert!(matches!(refusal, Refusal::Region { source: MapError::WrongFileSystem, .. }));
}

#[test]
fn wrong_rings_are_refused() {
    let peer = || Peer::new().init().region();
    let source = |refusal| match refusal {
        Refusal::Ring { direction: "S2M", index: 0, source } => source,
        other => panic!("{other}"),
    };
    assert!(matches!(
        peer().ring_refused(|r| r.index = 1),
        Refusal::RingIndex { direction: "S2M", index: 1, expected: 0 }
    ));
    // The same index again.
    assert!(matches!(
        peer().ring(Direction::S2m).ring_refused(|_| {}),
        Refusal::RingIndex { direction: "S2M", index: 0, expected: 1 }
    ));
    let mut full = peer().ring(Direction::S2m);
    let second = AddRing { index: 1, ..full.layout.ring(Direction::S2m, 0) };
    acked(full.send(Message::AddRing(second), Some(event())));
    assert!(matches!(full.ring_refused(|r| r.index = 2), Refusal::TooManyRings { direction: "S2M", max: 2 }));
    assert_eq!(source(peer().ring_refused(|r| r.log2_ring_size = 0)), RingError::Size { log2: 0 });
    for log2 in [9, 15, 64, 255] {
        let refusal = peer().ring_refused(|r| r.log2_ring_size = log2);
        assert!(matches!(refusal, Refusal::RingSize { direction: "S2M", index: 0, max: 8, .. }), "{refusal}");
    }
    assert_eq!(source(peer().ring_refused(|r| r.region = 1)), RingError::NoRegion { region: 1 });
    assert_eq!(source(peer().ring_refused(|r| r.region = 0xffff)), RingError::NoRegion { region: 0xffff });
    assert_eq!(source(peer().ring_refused(|r| r.offset += 4)), RingError::Misaligned { offset: 4 });
    let size = peer().layout.total_size();
    for offset in [size as u32, size as u32 - 64, u32::MAX - 7] {
        assert_eq!(
            source(peer().ring_refused(|r| r.offset = offset)),
            RingError::OutOfBounds { offset, needed: 128 + 16 * 16, size }
        );
    }
    // The last offset at which the ring fits.
    let mut fits = peer();
    let ring = AddRing { offset: (size as u32) - 128 - 16 * 16, ..fits.layout.ring(Direction::S2m, 0) };
    acked(fits.send(Message::AddRing(ring), Some(event())));
}

#[test]
fn an_interrupt_descriptor_must_be_an_eventfd() {
    let others: [OwnedFd; 3] = [
        std::io::pipe().unwrap().1.into(),
        std::os::unix::net::UnixDatagram::unbound().unwrap().into(),
        rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap(),
    ];
    for fd in others {
        let peer = Peer::new().init().region();
        let message = Message::AddRing(peer.layout.ring(Direction::S2m, 0));
        let refusal = peer.refused(message, Some(fd));
        assert!(matches!(refusal, Refusal::NotEventfd { direction: "S2M", index: 0 }));
    }
}

#[test]
fn connecting_needs_rings_with_cookies() {
    assert!(matches!(Peer::new().init().refused(connect(), None), Refusal::NoRings));
    assert!(matches!(Peer::new().init().region().refused(connect(), None), Refusal::NoRings));
    match Peer::new().init().region().ring(Direction::M2s).refused(connect(), None) {
        Refusal::Ring { direction: "M2S", index: 0, source } => {
            assert_eq!(source, RingError::Cookie { found: 0 })
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_file_that_shrinks_during_the_handshake_has_no_cookie() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let mut peer = Peer::new().init();
    let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, peer.layout.total_size()).unwrap();
    let message = Message::AddRegion(AddRegion { index: 0, size: peer.layout.total_size() });
    acked(peer.send(message, Some(file.as_fd().try_clone_to_owned().unwrap())));
    let peer = peer.ring(Direction::S2m);
    ftruncate(&file, 0).unwrap();
    assert!(matches!(
        peer.refused(connect(), None),
        Refusal::Ring { source: RingError::Cookie { found: 0 }, .. }
    ));
}

#[test]
fn limits_out_of_range_are_brought_into_range() {
    let session =
        Session::new(Limits { max_regions: 0, max_memory: 0, max_rings: 0, max_log2_ring_size: 99 }, "");
    let Message::Hello(hello) = session.hello() else { panic!("not a hello") };
    assert_eq!((hello.max_region, hello.max_s2m_ring, hello.max_log2_ring_size), (0, 0, 14));
}

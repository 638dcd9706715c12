//! A client and a server exchange packets through the rings over real sockets.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::thread::JoinHandle;
use std::time::Duration;

use memif::client::{Advance, Attaching, Client, ClientConfig, ConnectError, Direction, HandshakeError};
use memif::message::Hello;
use memif::server::{Interface, Limits, Refusal, Session, Step};
use memif::socket::{Address, Closer, Listener, recv, send};
use memif::{Connection, Descriptor, Message, Ring, Secret};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

const ID: u32 = 3;

fn readable(fd: BorrowedFd<'_>) {
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
}

fn lookup(id: u32) -> Result<Interface, Refusal> {
    match id {
        ID => Ok(Interface { name: "port3".into(), secret: Secret::new("hush") }),
        id => Err(Refusal::UnknownInterface { id }),
    }
}

/// Performs the server's handshake on one socket, blocking.
fn serve<S: AsFd>(socket: S, limits: Limits) -> Result<(Connection, S), Refusal> {
    let mut session = Session::new(limits, "server");
    send(socket.as_fd(), &session.hello(), None).unwrap();
    loop {
        readable(socket.as_fd());
        let (message, fd) = recv(socket.as_fd(), &Closer::default()).unwrap().unwrap();
        match session.handle(message, fd, &lookup) {
            Ok(Step::Reply(reply)) => send(socket.as_fd(), &reply, None).unwrap(),
            Ok(Step::Connected { reply, connection }) => {
                send(socket.as_fd(), &reply, None).unwrap();
                return Ok((connection, socket));
            }
            Ok(Step::PeerDisconnected(reason)) => return Err(Refusal::Other(reason)),
            Err(refusal) => {
                send(socket.as_fd(), &refusal.to_message(), None).unwrap();
                return Err(refusal);
            }
        }
    }
}

fn config() -> ClientConfig {
    let mut config = ClientConfig::new(Address::new("@unused"), ID);
    config.secret = Secret::new("hush");
    config.log2_ring_size = 4;
    config.buffer_size = 128;
    config
}

type Served = Result<(Connection, OwnedFd), Refusal>;

fn start(config: ClientConfig, limits: Limits) -> (Result<Client, ConnectError>, JoinHandle<Served>) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let server = std::thread::spawn(move || serve(theirs, limits));
    (Client::drive(Attaching::over(ours, config)), server)
}

fn connected(config: ClientConfig) -> (Client, Connection, OwnedFd) {
    let (client, server) = start(config, Limits::default());
    let (connection, socket) = server.join().unwrap().unwrap();
    (client.unwrap(), connection, socket)
}

/// Receives one packet from an S2M ring, as a switch does.
fn server_receive(connection: &Connection, ring: &Ring, tail: &mut u16) -> Option<Vec<u8>> {
    let head = ring.head();
    let mut packet = Vec::new();
    while *tail != head {
        let descriptor = ring.desc(*tail);
        *tail = tail.wrapping_add(1);
        let Descriptor { region, offset, length, .. } = descriptor;
        let from = connection.memory.translate(region, offset, length).unwrap();
        let mut part = vec![0; length as usize];
        // SAFETY: `translate` checked the range.
        unsafe { part.as_mut_ptr().copy_from_nonoverlapping(from.as_ptr(), part.len()) };
        packet.extend(part);
        if !descriptor.has_next() {
            ring.set_tail(*tail);
            return Some(packet);
        }
    }
    assert!(packet.is_empty(), "an incomplete packet was published");
    None
}

/// Sends one packet into an M2S ring, as a switch does; `false` when the client has posted too few buffers.
fn server_send(connection: &Connection, ring: &Ring, tail: &mut u16, packet: &[u8]) -> bool {
    let head = ring.head();
    let (mut at, mut rest) = (*tail, packet);
    loop {
        if at == head {
            return false;
        }
        let mut descriptor = ring.desc(at);
        let length = rest.len().min(descriptor.length as usize);
        let to = connection.memory.translate(descriptor.region, descriptor.offset, length as u32).unwrap();
        // SAFETY: `translate` checked the range.
        unsafe { to.as_ptr().copy_from_nonoverlapping(rest.as_ptr(), length) };
        rest = &rest[length..];
        descriptor.length = length as u32;
        descriptor.flags = u16::from(!rest.is_empty());
        ring.write_desc(at, &descriptor);
        at = at.wrapping_add(1);
        if rest.is_empty() {
            *tail = at;
            ring.set_tail(at);
            return true;
        }
    }
}

/// Makes a packet whose content identifies its number.
fn packet(number: u32, length: usize) -> Vec<u8> {
    (0..length).map(|i| (number as usize).wrapping_mul(31).wrapping_add(i) as u8).collect()
}

#[test]
fn names_and_sizes_arrive() {
    let (client, connection, _socket) = connected(config());
    assert_eq!((client.peer_name.as_str(), client.peer_if_name.as_str()), ("server", "port3"));
    assert_eq!((connection.peer_name.as_str(), connection.peer_if_name.as_str()), ("memif-client", "memif3"));
    assert_eq!((client.tx.len(), client.rx.len()), (1, 1));
    assert_eq!(connection.s2m[0].ring.size(), 16);
    // All buffers are posted, none is filled, and interrupts are masked.
    let m2s = &connection.m2s[0].ring;
    assert_eq!((m2s.head(), m2s.tail()), (16, 0));
    assert!(m2s.interrupts_masked());
    assert_eq!(m2s.desc(5).offset, client.control.layout().buffer(Direction::M2s, 0, 5));
}

#[test]
fn packets_both_ways_until_the_indices_wrap() {
    let (mut client, connection, _socket) = connected(config());
    let (s2m, m2s) = (&connection.s2m[0].ring, &connection.m2s[0].ring);
    let (mut s2m_tail, mut m2s_tail) = (0u16, 0u16);
    let (mut wraps, mut out) = (0, Vec::new());
    for number in 0..60_000u32 {
        // Each packet takes one to three buffers.
        let sent = packet(number, 1 + number as usize % 384);
        assert!(client.tx[0].push(&[&sent]));
        client.tx[0].flush();
        let before = s2m_tail;
        assert_eq!(server_receive(&connection, s2m, &mut s2m_tail).as_deref(), Some(sent.as_slice()));
        wraps += u32::from(s2m_tail < before);
        assert!(server_send(&connection, m2s, &mut m2s_tail, &sent));
        assert!(client.rx[0].pop(&mut out));
        assert_eq!(out, sent);
        assert!(!client.rx[0].pop(&mut out));
        client.rx[0].refill();
    }
    assert!(wraps > 0);
    assert_eq!(client.rx[0].malformed(), 0);
    assert!(!connection.memory.faulted());
}

#[test]
fn two_threads_move_packets_at_speed() {
    const COUNT: u32 = 200_000;
    let (mut client, connection, _socket) = connected(config());
    let echo = std::thread::spawn(move || {
        let (s2m, m2s) = (&connection.s2m[0].ring, &connection.m2s[0].ring);
        let (mut s2m_tail, mut m2s_tail) = (0u16, 0u16);
        for _ in 0..COUNT {
            let packet = loop {
                match server_receive(&connection, s2m, &mut s2m_tail) {
                    Some(packet) => break packet,
                    None => std::thread::yield_now(),
                }
            };
            while !server_send(&connection, m2s, &mut m2s_tail, &packet) {
                std::thread::yield_now();
            }
        }
    });
    let (mut sent, mut received, mut out) = (0, 0, Vec::new());
    while received < COUNT {
        while sent < COUNT && client.tx[0].push(&[&packet(sent, 60 + sent as usize % 200)]) {
            sent += 1;
        }
        client.tx[0].flush();
        while client.rx[0].pop(&mut out) {
            assert_eq!(out, packet(received, 60 + received as usize % 200));
            received += 1;
        }
        client.rx[0].refill();
        std::thread::yield_now();
    }
    echo.join().unwrap();
    assert_eq!(client.rx[0].malformed(), 0);
}

#[test]
fn segments_become_descriptors() {
    let (mut client, connection, _socket) = connected(config());
    let tx = &mut client.tx[0];
    assert!(tx.push(&[&packet(1, 14), &[], &packet(2, 300)]));
    // Packets are invisible before the flush.
    let ring = &connection.s2m[0].ring;
    assert_eq!(ring.head(), 0);
    tx.flush();
    assert_eq!(ring.head(), 4);
    let shape: Vec<_> = (0..4).map(|i| (ring.desc(i).length, ring.desc(i).has_next())).collect();
    assert_eq!(shape, [(14, true), (128, true), (128, true), (44, false)]);
    let mut expected = packet(1, 14);
    expected.extend(packet(2, 300));
    assert_eq!(server_receive(&connection, ring, &mut 0), Some(expected));
    // An empty packet, one larger than the ring, and one larger than the free slots are refused.
    assert_eq!(tx.free_slots(), 16);
    assert!(!tx.push(&[]));
    assert!(!tx.push(&[&[]]));
    assert!(!tx.push(&[&[0; 16 * 128 + 1]]));
    assert!(tx.push(&[&[0; 15 * 128]]));
    assert!(!tx.push(&[&[0; 129]]));
    assert!(tx.push(&[&[0; 128]]));
    assert_eq!(tx.free_slots(), 0);
    assert!(!tx.push(&[&[0]]));
}

#[test]
fn prefixes_and_held_buffers() {
    let (mut client, connection, _socket) = connected(config());
    let (ring, mut tail) = (&connection.m2s[0].ring, 0);
    let mut out = Vec::new();
    for number in 0..8 {
        assert!(server_send(&connection, ring, &mut tail, &packet(number, 200)));
    }
    // The client has taken no packet yet, so the ring is full.
    assert!(!server_send(&connection, ring, &mut tail, &packet(8, 1)));
    assert_eq!(client.rx[0].pop_prefix(&mut out, 150), Some(200));
    assert_eq!(out, packet(0, 200)[..150]);
    assert_eq!(client.rx[0].pop_prefix(&mut out, 0), Some(200));
    assert!(out.is_empty());
    // Packets are taken, but their buffers are not returned.
    assert!(!server_send(&connection, ring, &mut tail, &packet(8, 1)));
    client.rx[0].refill();
    assert!(server_send(&connection, ring, &mut tail, &packet(8, 512)));
    assert!(!server_send(&connection, ring, &mut tail, &packet(9, 1)));
}

#[test]
fn interrupts_are_sent_only_when_unmasked() {
    let (mut client, connection, _socket) = connected(config());
    // Towards the server, which has interrupts unmasked by default.
    assert!(client.tx[0].push(&[&[1]]));
    assert!(client.tx[0].flush());
    let mut count = [0u8; 8];
    rustix::io::read(&connection.s2m[0].eventfd, &mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), 1);
    connection.s2m[0].ring.mask_interrupts(true);
    assert!(client.tx[0].push(&[&[1]]));
    assert!(!client.tx[0].flush());

    // Towards the client.
    let rx = &mut client.rx[0];
    assert!(connection.m2s[0].ring.interrupts_masked());
    assert!(!rx.wait(Duration::from_millis(1)).unwrap());
    rx.set_interrupts(true);
    assert!(!connection.m2s[0].ring.interrupts_masked());
    assert!(!rx.pop(&mut Vec::new()));
    let server = std::thread::spawn(move || {
        assert!(server_send(&connection, &connection.m2s[0].ring, &mut 0, &[9]));
        fence(Ordering::SeqCst);
        if !connection.m2s[0].ring.interrupts_masked() {
            rustix::io::write(&connection.m2s[0].eventfd, &1u64.to_ne_bytes()).unwrap();
        }
    });
    assert!(rx.wait(Duration::from_secs(10)).unwrap());
    let mut out = Vec::new();
    assert!(rx.pop(&mut out));
    assert_eq!(out, [9]);
    assert!(!rx.clear_event().unwrap());
    server.join().unwrap();
}

#[test]
fn a_lying_server_does_no_harm() {
    let (mut client, connection, _socket) = connected(config());
    let mut out = Vec::new();
    // More buffers filled than posted.
    connection.m2s[0].ring.set_tail(17);
    assert!(!client.rx[0].pop(&mut out));
    assert_eq!(client.rx[0].malformed(), 1);
    // A length beyond the buffer, at an offset beyond the region.
    let lie = Descriptor { flags: 0, region: 9, length: u32::MAX, offset: u32::MAX, metadata: 0 };
    connection.m2s[0].ring.write_desc(0, &lie);
    // A packet without an end.
    for slot in 1..16 {
        connection.m2s[0].ring.write_desc(slot, &Descriptor { flags: 1, ..lie });
    }
    connection.m2s[0].ring.set_tail(16);
    assert_eq!(client.rx[0].pop_prefix(&mut out, usize::MAX), Some(128));
    assert_eq!(client.rx[0].pop_prefix(&mut out, usize::MAX), Some(15 * 128));
    assert!(!client.rx[0].pop(&mut out));
    // A tail beyond head only makes the ring look full.
    connection.s2m[0].ring.set_tail(40000);
    assert_eq!(client.tx[0].free_slots(), 0);
    assert!(!client.tx[0].push(&[&[1]]));
}

#[test]
fn a_client_that_truncates_its_memory_is_noticed() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, 1 << 20).unwrap();
    let region = clientmem::Region::map(file.as_fd(), 1 << 20).unwrap();
    let memory = std::sync::Arc::new(memif::Memory::new(vec![region]));
    let parameters = memif::message::AddRing {
        flags: 1,
        index: 0,
        region: 0,
        offset: 0,
        log2_ring_size: 4,
        private_hdr_size: 0,
    };
    let ring = Ring::new(memory.clone(), &parameters).unwrap();
    ring.initialise();
    ring.set_head(5);
    ftruncate(&file, 0).unwrap();
    assert!(!memory.faulted());
    assert_eq!((ring.head(), ring.desc(3)), (0, Descriptor::default()));
    assert!(memory.faulted());
    ring.set_tail(1);
    assert_eq!(ring.tail(), 1);
}

#[test]
fn the_server_s_limits_apply() {
    let requested = ClientConfig { tx_queues: 4, rx_queues: 3, log2_ring_size: 12, ..config() };
    let limits = Limits { max_regions: 1, max_rings: 2, max_log2_ring_size: 5, ..Limits::default() };
    let (client, server) = start(requested, limits);
    let (connection, _socket) = server.join().unwrap().unwrap();
    let client = client.unwrap();
    assert_eq!((client.tx.len(), client.rx.len()), (2, 2));
    assert_eq!((connection.s2m.len(), connection.m2s.len()), (2, 2));
    assert_eq!(connection.m2s[1].ring.size(), 32);
}

#[test]
fn refusals_reach_the_client() {
    let refused = |config: ClientConfig| match start(config, Limits::default()) {
        (Err(ConnectError::Handshake(HandshakeError::Refused(reason))), _) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(ClientConfig { id: 99, ..config() }), "no interface with id 99");
    assert_eq!(refused(ClientConfig { secret: None, ..config() }), "secret required");
    assert_eq!(refused(ClientConfig { secret: Secret::new("x"), ..config() }), "incorrect secret");
}

#[test]
fn a_failing_client_reports_the_reason() {
    let (client, server) = start(ClientConfig { tx_queues: 0, rx_queues: 0, ..config() }, Limits::default());
    let error = client.unwrap_err().to_string();
    assert_eq!(error, "no queues: at least one in one direction is needed");
    assert_eq!(server.join().unwrap().unwrap_err().to_string(), error);
}

#[test]
fn disconnecting_either_way() {
    let (mut client, connection, socket) = connected(config());
    assert_eq!(client.poll_disconnect(), None);
    send(socket.as_fd(), &Message::disconnect("port deleted"), None).unwrap();
    assert!(client.control_readable(Duration::from_secs(10)).unwrap());
    assert_eq!(client.poll_disconnect().as_deref(), Some("port deleted"));
    drop((client, connection, socket));

    let (mut client, _connection, socket) = connected(config());
    drop(socket);
    assert_eq!(client.poll_disconnect().as_deref(), Some("control connection closed"));

    let heard = |socket: OwnedFd| match recv(socket.as_fd(), &Closer::default()) {
        Ok(Some((Message::Disconnect { reason, .. }, None))) => reason,
        other => panic!("{other:?}"),
    };
    let (client, _connection, socket) = connected(config());
    client.disconnect("maintenance");
    assert_eq!(heard(socket), "maintenance");
    let (client, _connection, socket) = connected(config());
    drop(client);
    assert_eq!(heard(socket), "client closed the interface");
}

#[test]
fn queues_outlive_the_connection() {
    let (client, connection, _socket) = connected(config());
    let Client { mut tx, control, memory, .. } = client;
    drop((control, memory));
    assert!(tx[0].push(&[&[5; 100]]));
    tx[0].flush();
    let ring = &connection.s2m[0].ring;
    assert_eq!(server_receive(&connection, ring, &mut 0), Some(vec![5; 100]));
}

#[test]
fn connecting_through_a_listener() {
    let address = Address::new(&format!("@memif-traffic-{}", std::process::id()));
    let config = ClientConfig { socket: address.clone(), ..config() };
    let unreachable = Client::connect(&config).unwrap_err();
    assert!(matches!(unreachable, ConnectError::Dial { .. }), "{unreachable}");

    let listener = Listener::bind(&address).unwrap();
    // The server sends no HELLO.
    let hurried = ClientConfig { timeout: Duration::from_millis(20), ..config.clone() };
    assert!(matches!(Client::connect(&hurried), Err(ConnectError::Timeout { .. })));
    drop(listener.accept().unwrap());

    let server = std::thread::spawn(move || {
        readable(listener.as_fd());
        serve(listener.accept().unwrap(), Limits::default()).unwrap()
    });
    let mut client = Client::connect(&config).unwrap();
    let (connection, _socket) = server.join().unwrap();
    assert!(client.tx[0].push(&[b"hello"]));
    client.tx[0].flush();
    assert_eq!(server_receive(&connection, &connection.s2m[0].ring, &mut 0).as_deref(), Some(&b"hello"[..]));
}

#[test]
fn an_event_loop_can_drive_the_client() {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let attaching = Attaching::over(ours, config());
    // No message has arrived: `advance` returns at once.
    let Advance::Waiting(mut attaching) = attaching.advance().unwrap() else {
        panic!("connected without a server")
    };
    let server = std::thread::spawn(move || serve(theirs, Limits::default()).unwrap());
    let attached = loop {
        readable(attaching.as_fd());
        match attaching.advance().unwrap() {
            Advance::Waiting(again) => attaching = again,
            Advance::Done(attached) => break attached,
        }
    };
    let (connection, _socket) = server.join().unwrap();
    assert_eq!(attached.connection.s2m.len(), 1);
    // Both sides see the same ring.
    attached.connection.s2m[0].ring.set_head(9);
    assert_eq!(connection.s2m[0].ring.head(), 9);
    assert_eq!(attached.connection.m2s[0].ring.head(), 0);
}

#[test]
fn wrong_servers_are_refused() {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let against = |messages: &[Message]| {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        for message in messages {
            send(theirs.as_fd(), message, None).unwrap();
        }
        Attaching::over(ours, config()).advance().unwrap_err()
    };
    let hello = |min_version, max_version| {
        Message::Hello(Hello {
            name: "odd".into(),
            min_version,
            max_version,
            max_region: 0,
            max_m2s_ring: u16::MAX,
            max_s2m_ring: u16::MAX,
            max_log2_ring_size: 14,
        })
    };
    let too_new = against(&[hello(0x0300, 0x0400)]);
    assert!(matches!(too_new, ConnectError::Handshake(HandshakeError::Version { min: 0x0300, max: 0x0400 })));
    let unexpected = |error: ConnectError, expected: &str| match error {
        ConnectError::Handshake(HandshakeError::Unexpected { expected: e, .. }) => assert_eq!(e, expected),
        other => panic!("{other}"),
    };
    unexpected(against(&[Message::Ack]), "HELLO");
    unexpected(against(&[hello(0x0200, 0x0200), hello(0x0200, 0x0200)]), "ACK");
    let too_many: Vec<_> =
        std::iter::once(hello(0x0100, 0x0300)).chain(std::iter::repeat_n(Message::Ack, 6)).collect();
    unexpected(against(&too_many), "CONNECTED");
}

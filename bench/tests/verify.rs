//! Sessions with a deliberately faulty server: each fault is detected, and no other is reported.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bench::pace::Rate;
use bench::packet::Headers;
use bench::port::{Device, Error, PortSpec, Rings, connect};
use bench::report::Report;
use bench::session::{Background, Options, Session, Traffic};
use memif::server::{Interface, Limits, Refusal, Session as Handshake, Step};
use memif::socket::{Address, ClientFd, Closer, Listener, recv, send};
use memif::{Connection, Ring};
use rustix::event::{PollFd, PollFlags, poll};

/// The fault that the server commits with every 97th packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Drop,
    Duplicate,
    Swap,
    FlipBit,
    Cut,
    ToThirdPort,
    Reflect,
}

/// Interval between faults, in packets.
const EVERY: usize = 97;

/// A server of two or three ports on one socket that forwards between 0 and 1.
struct Server {
    socket: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
    _directory: tempfile::TempDir,
}

impl Server {
    fn start(ports: u32, fault: Fault) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("memif.sock");
        let listener = Listener::bind(&Address::Path(socket.clone())).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = std::thread::spawn(move || serve(&listener, ports, fault, &seen));
        Server { socket, stop, thread: Some(thread), _directory: directory }
    }

    fn port(&self, id: u32) -> PortSpec {
        PortSpec::new(self.socket.to_str().unwrap(), id)
    }

    /// Stops the server, and returns the number of faults.
    fn finish(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn readable(fd: BorrowedFd<'_>) {
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
}

fn accept(listener: &Listener) -> (Connection, ClientFd) {
    readable(listener.as_fd());
    let socket = listener.accept().unwrap();
    let mut session = Handshake::new(Limits::default(), "faulty server");
    send(socket.as_fd(), &session.hello(), None).unwrap();
    let lookup =
        |id: u32| -> Result<Interface, Refusal> { Ok(Interface { name: format!("p{id}"), secret: None }) };
    loop {
        readable(socket.as_fd());
        let (message, fd) = recv(socket.as_fd(), &Closer::default()).unwrap().unwrap();
        match session.handle(message, fd, &lookup).unwrap() {
            Step::Reply(reply) => send(socket.as_fd(), &reply, None).unwrap(),
            Step::Connected { reply, connection } => {
                send(socket.as_fd(), &reply, None).unwrap();
                return (connection, socket);
            }
            Step::PeerDisconnected(reason) => panic!("{reason}"),
        }
    }
}

fn serve(listener: &Listener, ports: u32, fault: Fault, stop: &AtomicBool) -> u64 {
    let mut connections: Vec<_> = (0..ports).map(|_| accept(listener)).collect();
    connections.sort_by_key(|(connection, _)| connection.id);
    let mut held: VecDeque<Vec<u8>> = VecDeque::new();
    let (mut seen, mut done) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let mut busy = false;
        for from in 0..connections.len() {
            let source = &connections[from].0;
            for queue in 0..source.s2m.len() {
                while let Some(mut packet) = take(source, &source.s2m[queue].ring) {
                    busy = true;
                    let announcement = packet[12..14] == [0x88, 0xb6];
                    let to = if fault == Fault::Reflect { from } else { from ^ 1 };
                    let mut copies = 1;
                    let mut also = None;
                    // Faults affect one direction only: the other shows that no other fault is reported.
                    seen += usize::from(!announcement && from == 0);
                    if !announcement && from == 0 && seen % EVERY == 0 {
                        done += 1;
                        match fault {
                            Fault::None | Fault::Reflect => done -= 1,
                            Fault::Drop => copies = 0,
                            Fault::Duplicate => copies = 2,
                            Fault::Swap => {
                                held.push_back(packet);
                                continue;
                            }
                            Fault::FlipBit => *packet.last_mut().unwrap() ^= 1,
                            Fault::Cut => drop(packet.pop()),
                            Fault::ToThirdPort => also = Some(2),
                        }
                    }
                    if fault == Fault::Reflect {
                        packet[..12].rotate_left(6);
                    }
                    // A held packet follows the next one, whatever the flow of that one.
                    let late = (from == 0 && !announcement).then(|| held.pop_front()).flatten();
                    for (to, packet) in std::iter::repeat_n((to, &packet), copies)
                        .chain(also.map(|to| (to, &packet)))
                        .chain(late.as_ref().map(|p| (to, p)))
                    {
                        let destination = &connections[to].0;
                        let parts = &destination.m2s[queue % destination.m2s.len()];
                        // Without room the packet is lost; a session that keeps to its window never causes this.
                        put(destination, &parts.ring, packet);
                        std::sync::atomic::fence(Ordering::SeqCst);
                        if !parts.ring.interrupts_masked() {
                            rustix::io::write(&parts.eventfd, &1u64.to_ne_bytes()).unwrap();
                        }
                    }
                }
            }
        }
        if !busy {
            std::thread::yield_now();
        }
    }
    done
}

fn take(connection: &Connection, ring: &Ring) -> Option<Vec<u8>> {
    let (mut tail, head) = (ring.tail(), ring.head());
    let mut packet = Vec::new();
    while tail != head {
        let descriptor = ring.desc(tail);
        tail = tail.wrapping_add(1);
        let from =
            connection.memory.translate(descriptor.region, descriptor.offset, descriptor.length).unwrap();
        let start = packet.len();
        packet.resize(start + descriptor.length as usize, 0);
        // SAFETY: `translate` checked the range.
        unsafe {
            packet[start..].as_mut_ptr().copy_from_nonoverlapping(from.as_ptr(), descriptor.length as usize)
        };
        if !descriptor.has_next() {
            ring.set_tail(tail);
            return Some(packet);
        }
    }
    None
}

fn put(connection: &Connection, ring: &Ring, mut packet: &[u8]) {
    let (mut tail, head) = (ring.tail(), ring.head());
    while !packet.is_empty() {
        if tail == head {
            return;
        }
        let descriptor = ring.desc(tail);
        let (part, rest) = packet.split_at(packet.len().min(descriptor.length as usize));
        let to =
            connection.memory.translate(descriptor.region, descriptor.offset, part.len() as u32).unwrap();
        // SAFETY: `translate` checked the range.
        unsafe { to.as_ptr().copy_from_nonoverlapping(part.as_ptr(), part.len()) };
        ring.set_used(tail, part.len() as u32, !rest.is_empty());
        tail = tail.wrapping_add(1);
        packet = rest;
    }
    ring.set_tail(tail);
}

fn options(server: &Server) -> Options {
    let mut options = Options::new(vec![server.port(0), server.port(1)]);
    options.rate = Rate::Pps(20_000.0);
    options.duration = Duration::from_millis(500);
    options.least = 501;
    // One flow: a held packet is overtaken by the next one of its own flow.
    options.flows = 1;
    options
}

fn run(options: Options) -> Report {
    Session::connect(options).unwrap().run(&AtomicBool::new(false)).unwrap()
}

/// Runs a session with a fault in the first direction, and checks that the second one is error-free.
fn after(fault: Fault) -> (Report, u64) {
    let server = Server::start(2, fault);
    let report = run(options(&server));
    let done = server.finish();
    assert!(done > 5, "only {done} faults, expected more than 5");
    assert!(!report.ok);
    let [first, second] = report.directions.as_slice() else { panic!("{report}") };
    assert!(first.sent > 500 && second.sent > 500);
    assert_eq!(second.received, second.sent);
    let clean = [second.lost, second.duplicated, second.reordered, second.stale, second.corrupted];
    assert_eq!(clean, [0; 5]);
    (report, done)
}

fn counts(report: &Report) -> [u64; 6] {
    let d = &report.directions[0];
    [d.lost, d.duplicated, d.reordered, d.stale, d.corrupted, d.misdelivered]
}

#[test]
fn a_correct_server_passes() {
    let shapes = [("60-65535", "1-64", 1, Headers::Udp), ("60-9000", "1", 4, Headers::Ethernet)];
    for (sizes, segments, queues, headers) in shapes {
        let server = Server::start(2, Fault::None);
        let mut options = options(&server);
        options.sizes = sizes.parse().unwrap();
        options.segments = segments.parse().unwrap();
        options.rings = Rings { queues, ..Rings::default() };
        options.flows = 8;
        options.headers = headers;
        options.rate = Rate::Pps(2000.0);
        let report = run(options);
        assert!(report.ok, "{report}");
        assert_eq!(counts(&report), [0; 6]);
        assert!(report.sent() > 500, "{report}");
        assert!(report.ports[0].received_by_queue.iter().all(|q| *q > 0));
        assert_eq!(report.ports[0].received_by_queue.len(), usize::from(queues));
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["ok"], true);
        server.finish();
    }
}

#[test]
fn drops_are_detected() {
    let (report, done) = after(Fault::Drop);
    assert_eq!(counts(&report), [done, 0, 0, 0, 0, 0]);
}

#[test]
fn duplicates_are_detected() {
    let (report, done) = after(Fault::Duplicate);
    assert_eq!(counts(&report), [0, done, 0, 0, 0, 0]);
}

#[test]
fn reordering_is_detected() {
    let (report, done) = after(Fault::Swap);
    let [lost, duplicated, reordered, rest @ ..] = counts(&report);
    // The last one may stay held.
    assert_eq!((lost + reordered, duplicated), (done, 0));
    assert!(lost <= 1);
    assert_eq!(rest, [0; 3]);
}

#[test]
fn changes_are_detected() {
    for fault in [Fault::FlipBit, Fault::Cut] {
        let (report, done) = after(fault);
        assert_eq!(counts(&report), [done, 0, 0, 0, done, 0]);
    }
}

#[test]
fn misdelivered_packets_are_detected() {
    let server = Server::start(4, Fault::ToThirdPort);
    let mut options = Options::new((0..4).map(|id| server.port(id)).collect());
    options.rate = Rate::Pps(5000.0);
    let report = run(options);
    let done = server.finish();
    assert!(done > 5);
    assert_eq!(counts(&report), [0, 0, 0, 0, 0, done]);
    assert!(!report.ok && report.lost() == 0);
}

#[test]
fn reflected_packets_are_verified() {
    let server = Server::start(2, Fault::Reflect);
    let mut options = options(&server);
    options.traffic = Traffic::Reflected("02:00:00:00:00:99".parse().unwrap());
    let report = run(options);
    assert!(report.ok, "{report}");
    server.finish();
}

#[test]
fn half_of_the_capacity_is_measured_and_applied() {
    // Other load may change the capacity between its measurement and the run, so this retries for a minute.
    let deadline = Instant::now() + Duration::from_secs(60);
    let kept = std::iter::repeat_with(|| {
        let server = Server::start(2, Fault::None);
        let mut options = options(&server);
        options.rate = Rate::Half;
        options.duration = Duration::from_secs(1);
        let report = run(options);
        server.finish();
        assert!(report.ok, "{report}");
        let (capacity, pps) = (report.capacity_pps.unwrap(), report.received() as f64 / report.seconds);
        println!("{report}");
        pps < capacity * 0.6 && pps > capacity * 0.4
    })
    .any(|kept| kept || Instant::now() > deadline);
    assert!(kept && Instant::now() < deadline, "the rate was never half of the capacity");
}

#[test]
fn odd_ports_and_long_chains_are_refused() {
    let ports: Vec<_> = (0..3).map(|id| PortSpec::new("@nowhere", id)).collect();
    let refused = |options| match Session::connect(options) {
        Err(Error::Options(reason)) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Options::new(vec![])), "no ports");
    assert_eq!(refused(Options::new(ports.clone())), "3 ports cannot be paired, expected an even number");
    let mut options = Options::new(ports[..2].to_vec());
    options.sizes = "65535".parse().unwrap();
    options.rings.buffer_size = 1000;
    assert_eq!(refused(options), "65535 bytes need more than 64 buffers");
}

#[test]
fn a_port_without_a_switch_is_named() {
    let refused = |spec: PortSpec| connect(&spec, Rings::default()).unwrap_err().to_string();
    let memif = refused(PortSpec::new("/nowhere/x", 3));
    assert!(memif.starts_with("interface 3 of /nowhere/x: cannot connect to "), "{memif}");
    let vhost_user = refused(PortSpec::vhost_user("/nowhere/x", Device::default()));
    assert!(
        vhost_user.starts_with("vhost-user device at /nowhere/x: control socket: No such file"),
        "{vhost_user}"
    );
}

#[test]
fn background_sessions_run_until_stopped() {
    let server = Server::start(2, Fault::None);
    let mut options = options(&server);
    options.duration = Duration::from_secs(3600);
    options.least = 500;
    let background = Background::start(options).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(background.is_running());
    let report = background.stop().unwrap();
    // A session stopped before its first packet has nothing to report.
    assert!(report.ok || report.sent() == 0, "{report}");
    assert!(report.seconds < 3600.0, "{report}");
    server.finish();
}

#[test]
fn a_lost_server_is_an_error() {
    let server = Server::start(2, Fault::None);
    let mut options = options(&server);
    options.duration = Duration::from_secs(3600);
    let background = Background::start(options).unwrap();
    server.finish();
    assert!(matches!(background.wait(), Err(Error::Disconnected { .. })));
}

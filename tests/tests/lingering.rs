//! Clients that pass descriptors whose `close` blocks for as long as they like: lingering TCP sockets whose peer does
//! not read. The control plane must not block, however the descriptors are passed and wherever they are when their
//! connection or port ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use e2e::{Daemon, Peer, Running, config, memfd, send_bytes, until};
use memif::Secret;
use memif::message::{AddRegion, AddRing, Hello, Init, MODE_ETHERNET, Message, VERSION};
use memif::socket::{Address, Listener};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Pid, Signal, kill_process};
use vhost_user::features::protocol::LOG_SHMFD;
use vhost_user::frontend::Connection;
use vhost_user::message::{LogArea, Region, Request, RingDescriptor};

/// Time allowed for the daemon to answer.
const ANSWER: Duration = Duration::from_secs(1);
/// Time allowed for a change and for the end of the daemon.
const CHANGE: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(20);

/// A daemon and the unread ends of lingering sockets.
struct Rig {
    daemon: Daemon,
    unread: Vec<TcpStream>,
}

impl Rig {
    fn start(ports: &[String]) -> Rig {
        let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports.concat())).unwrap();
        Rig { daemon, unread: Vec::new() }
    }

    /// Creates a socket whose last `close` waits for the reader in `self.unread`.
    fn lingering(&mut self) -> TcpStream {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        self.unread.push(listener.accept().unwrap().0);
        socket.set_nonblocking(true).unwrap();
        loop {
            match socket.write(&[0; 1 << 16]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        set_socket_linger(&socket, Some(Duration::from_secs(3600))).unwrap();
        socket
    }

    /// Sends bytes to the daemon on each of these sockets, with this number of descriptors of a lingering socket that
    /// the daemon alone then holds. Works once for a daemon: sockets that already linger end when it is stopped.
    fn pass(&mut self, messages: &[(BorrowedFd<'_>, Vec<u8>, usize)]) {
        // The daemon must close last, so it is stopped while this process closes its own.
        self.signal(Signal::STOP);
        until("the daemon to stop", LIMIT, || {
            Ok(self.tasks("stat").iter().all(|stat| stopped(stat)).then_some(()))
        })
        .unwrap();
        for (to, bytes, descriptors) in messages {
            let socket = self.lingering();
            send_bytes(*to, bytes, &vec![socket.as_fd(); *descriptors]).unwrap();
        }
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.daemon.pid()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Content of this file for each thread of the daemon.
    fn tasks(&self, file: &str) -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.daemon.pid())).unwrap();
        tasks.flatten().flat_map(|task| std::fs::read_to_string(task.path().join(file))).collect()
    }

    /// Runs the command line client, which must succeed within the limit.
    fn command(&self, arguments: &[&str], limit: Duration) {
        let start = Instant::now();
        let mut client =
            Running::start(self.daemon.command(arguments).unwrap().stdout(Stdio::null())).unwrap();
        assert!(client.wait(LIMIT).unwrap().success(), "{arguments:?}");
        assert!(start.elapsed() < limit, "{arguments:?} took {:?}", start.elapsed());
    }

    fn assert_answers(&self) {
        self.command(&["port", "list"], ANSWER);
    }

    /// Waits until this many threads of the daemon are blocked in close: proof that the sockets linger.
    fn wait_closing(&self, threads: usize) {
        let mut last = 0;
        let found = until("sockets to linger", LIMIT, || {
            last = self.tasks("comm").iter().filter(|name| name.trim_end() == "client-close").count();
            Ok((last == threads).then_some(()))
        });
        assert!(found.is_ok(), "{last} threads instead of {threads}");
    }

    fn assert_down(&self, port: &str, reason: &str) {
        self.assert_answers();
        self.daemon.wait_down("br0", port, reason).unwrap();
        self.assert_answers();
    }

    fn remove(&self, port: &str) {
        self.command(&["port", "del", "br0", port], CHANGE);
        self.assert_answers();
    }

    /// Asserts that SIGTERM ends the daemon in spite of lingering sockets.
    fn finish(mut self) {
        let start = Instant::now();
        assert!(self.daemon.terminate().unwrap().success(), "{}", self.daemon.log());
        assert!(start.elapsed() < CHANGE, "it took {:?} to end", start.elapsed());
    }

    fn dial(&self, port: &str) -> Connection {
        let socket = PathBuf::from(self.daemon.path(&format!("{port}.sock")));
        until("the socket to accept a connection", LIMIT, || Ok(Connection::dial(&socket).ok())).unwrap()
    }

    /// A client that has requested a memif port.
    fn memif(&self, id: u32) -> Peer {
        let peer = Peer::connect(&self.daemon.path("memif")).unwrap();
        peer.ask(&init(id), None).unwrap();
        peer
    }
}

/// Whether the thread of this `/proc/PID/stat` is stopped.
fn stopped(stat: &str) -> bool {
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
}

fn init(id: u32) -> Message {
    let (version, mode, secret) = (VERSION, MODE_ETHERNET, Secret::default());
    Message::Init(Init { version, id, mode, secret, name: "hostile".to_string() })
}

#[test]
fn vhost_user_requests_with_lingering_descriptors_do_not_block() {
    let absent = RingDescriptor { ring: 0, present: false };
    let ring = RingDescriptor { ring: 0, present: true };
    let region = Region { guest: 0, size: 1 << 20, user: 0, offset: 0 };
    let log = LogArea { size: 4096, offset: 0 };
    let requests = [
        ("kick", Request::SetVringKick(ring), 1, "is not an eventfd"),
        ("call", Request::SetVringCall(ring), 1, "is not an eventfd"),
        ("none", Request::SetVringErr(absent), 1, "expected 0"),
        ("surplus", Request::SetOwner, 1, "expected 0"),
        ("more", Request::SetVringKick(ring), 30, "more than 8 file descriptors"),
        ("region", Request::SetMemTable(vec![region]), 1, "memory file is a socket"),
        ("added", Request::AddMemReg(region), 1, "memory file is a socket"),
        ("log", Request::SetLogBase(log), 1, "memory file is a socket"),
    ];
    let ports: Vec<_> = requests.iter().map(|(port, ..)| config::vhost_user(port, "")).collect();
    let mut rig = Rig::start(&ports);
    let mut connections: Vec<_> = requests.iter().map(|(port, ..)| rig.dial(port)).collect();
    for connection in &mut connections {
        connection.tell(&Request::SetProtocolFeatures(LOG_SHMFD), &[]).unwrap();
    }
    let messages: Vec<_> = connections
        .iter()
        .zip(&requests)
        .map(|(connection, (_, request, descriptors, _))| {
            (connection.socket(), request.encode(false), *descriptors)
        })
        .collect();
    rig.pass(&messages);
    for (port, _, _, reason) in &requests {
        rig.assert_down(port, reason);
    }
    rig.wait_closing(requests.len());
    for connection in &mut connections {
        connection.wait_closed().unwrap();
    }
    // Another front-end can use the port.
    let mut next = rig.dial("kick");
    next.ask(&Request::GetFeatures, &[], false).unwrap();
    drop(next);
    for (port, ..) in &requests[1..] {
        rig.remove(port);
    }
    rig.wait_closing(requests.len());
    rig.finish();
}

/// Descriptors in the receive queue of a closed connection, and of a connection that was never accepted.
#[test]
fn unread_vhost_user_messages_with_lingering_descriptors_do_not_block() {
    let mut rig = Rig::start(&["turned", "backlog"].map(|port| config::vhost_user(port, "")));
    let owner = Request::SetOwner.encode(false);
    let mut holders = ["turned", "backlog"].map(|port| rig.dial(port));
    for holder in &mut holders {
        holder.ask(&Request::GetFeatures, &[], false).unwrap();
    }
    let mut others = ["turned", "backlog"].map(|port| rig.dial(port));
    let messages: Vec<_> = others.iter().map(|other| (other.socket(), owner.clone(), 1)).collect();
    rig.pass(&messages);
    rig.remove("backlog");
    for other in &mut others {
        other.wait_closed().unwrap();
    }
    rig.wait_closing(2);
    rig.remove("turned");
    // The sockets stop lingering when their readers close.
    rig.unread.clear();
    rig.wait_closing(0);
    rig.finish();
}

#[test]
fn memif_messages_with_lingering_descriptors_do_not_block() {
    let size = 1 << 20;
    let region = Message::AddRegion(AddRegion { index: 0, size });
    let ring = AddRing { flags: 1, index: 0, region: 0, offset: 0, log2_ring_size: 8, private_hdr_size: 0 };
    let ring = Message::AddRing(ring);
    let stray = Message::Connect { if_name: "x".into() };
    let messages = [
        ("region", &region, 1, "a socket"),
        ("ring", &ring, 1, "not an eventfd"),
        ("stray", &stray, 1, "with a file descriptor"),
        ("more", &region, 30, "more than one file descriptor"),
    ];
    let mut ports: Vec<_> =
        messages.iter().zip(0..).map(|((port, ..), id)| config::memif(port, id, "")).collect();
    ports.push(config::port("client", "memif", "path = \"{dir}/theirs\"\nrole = \"client\""));
    let mut rig = Rig::start(&ports);
    let file = memfd(size).unwrap();
    // A server that passes an unexpected descriptor.
    let listener = Listener::bind(&Address::new(&rig.daemon.path("theirs"))).unwrap();
    let server = until("the daemon to connect", LIMIT, || Ok(listener.accept().ok())).unwrap();
    let hello = Message::Hello(Hello {
        name: "hostile".into(),
        min_version: VERSION,
        max_version: VERSION,
        max_region: 0,
        max_m2s_ring: 0,
        max_s2m_ring: 0,
        max_log2_ring_size: 10,
    });
    let peers: Vec<_> = messages.iter().zip(0..).map(|(_, id)| rig.memif(id)).collect();
    peers[1].ask(&region, Some(file.as_fd())).unwrap();
    // A client that has not named its port yet.
    let stranger = Peer::connect(&rig.daemon.path("memif")).unwrap();
    let mut sent: Vec<_> = peers
        .iter()
        .zip(&messages)
        .map(|(peer, (_, message, descriptors, _))| (peer.socket(), message.encode().to_vec(), *descriptors))
        .collect();
    sent.push((stranger.socket(), init(0).encode().to_vec(), 1));
    sent.push((server.as_fd(), hello.encode().to_vec(), 1));
    rig.pass(&sent);
    for (peer, (port, _, _, reason)) in peers.iter().zip(&messages) {
        rig.assert_down(port, reason);
        assert!(peer.refusal().unwrap().contains(reason));
    }
    assert!(stranger.refusal().unwrap().contains("with a file descriptor"));
    rig.wait_closing(sent.len());
    rig.assert_answers();
    // Another client can use the port.
    drop(rig.memif(0));
    for port in ["region", "ring", "stray", "client"] {
        rig.remove(port);
    }
    rig.finish();
}

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Shutdown as Direction, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::*;

/// Longest time that dropping may take.
const AT_ONCE: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(10);

/// A socket whose last `close` waits until its peer, also returned, has read everything or is gone.
fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    loop {
        match socket.write(&[0; 1 << 16]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    socket.set_nonblocking(false).unwrap();
    set_socket_linger(&socket, Some(Duration::from_secs(600))).unwrap();
    (socket.into(), peer)
}

fn at_once(what: impl FnOnce()) {
    let start = Instant::now();
    what();
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
}

fn closed(closer: &Closer) {
    let start = Instant::now();
    while closer.unclosed() > 0 {
        assert!(start.elapsed() < LIMIT, "{} are open", closer.unclosed());
        sleep(Duration::from_millis(5));
    }
}

fn pass(to: &UnixStream, fd: &OwnedFd) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(to, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
}

#[test]
fn a_socket_that_lingers_is_closed_once_its_peer_reads() {
    let closer = Closer::default();
    let (socket, mut peer) = lingering();
    at_once(|| drop(closer.hold(socket)));
    sleep(Duration::from_millis(100));
    assert_eq!(closer.unclosed(), 1, "it did not linger");
    peer.set_read_timeout(Some(LIMIT)).unwrap();
    // The end arrives only when the last descriptor is closed.
    std::io::copy(&mut peer, &mut std::io::sink()).unwrap();
    drop(peer);
    closed(&closer);
}

#[test]
fn a_socket_that_lingers_is_closed_once_its_peer_dies() {
    let closer = Closer::default();
    let (socket, peer) = lingering();
    at_once(|| drop(closer.hold(socket)));
    sleep(Duration::from_millis(100));
    assert_eq!(closer.unclosed(), 1, "it did not linger");
    drop(peer);
    closed(&closer);
}

#[test]
fn more_than_threads_wait_and_then_the_client_is_refused() {
    let closer = Closer::default();
    let mut peers = Vec::new();
    for _ in 0..THREADS + 1 {
        let (socket, peer) = lingering();
        at_once(|| drop(closer.hold(socket)));
        peers.push(peer);
    }
    assert_eq!(closer.lock().threads, THREADS);
    let (other, _peer) = UnixStream::pair().unwrap();
    while closer.unclosed() < MOST_UNCLOSED {
        assert!(closer.check().is_ok());
        drop(closer.hold(other.try_clone().unwrap().into()));
    }
    assert_eq!(closer.check(), Err(Full { limit: MOST_UNCLOSED }));
    drop(peers);
    closed(&closer);
    assert!(!closer.is_full());
}

#[test]
fn a_connection_ends_at_once_whatever_is_in_its_queue() {
    let closer = Closer::default();
    let (socket, peer) = lingering();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    pass(&theirs, &socket);
    drop(socket);
    at_once(|| {
        drop(closer.connection(ours.into()));
        assert!(!matches!(theirs.read(&mut [0]), Ok(1..)));
    });
    sleep(Duration::from_millis(100));
    assert_eq!(closer.unclosed(), 1, "it did not linger");
    drop(peer);
    closed(&closer);
}

#[test]
fn a_listener_frees_its_address_at_once_whatever_is_in_its_backlog() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    let closer = Closer::default();
    let name = format!("clientmem-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    listener.set_nonblocking(true).unwrap();
    let (socket, peer) = lingering();
    let mut client = UnixStream::connect_addr(&address).unwrap();
    pass(&client, &socket);
    drop(socket);
    at_once(|| {
        drop(closer.listener(listener.into()));
        assert!(!matches!(client.read(&mut [0]), Ok(1..)));
        drop(UnixListener::bind_addr(&address).unwrap());
    });
    sleep(Duration::from_millis(100));
    assert_eq!(closer.unclosed(), 1, "it did not linger");
    drop(peer);
    closed(&closer);
}

#[test]
fn descriptors_that_close_at_once_need_no_thread() {
    let closer = Closer::default();
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    for fd in [event, file] {
        let raw = fd.as_raw_fd();
        let held = closer.hold(fd);
        assert_eq!(held.as_raw_fd(), raw);
        drop(held);
        assert_eq!(closer.unclosed(), 0);
    }
    let path = std::env::temp_dir().join(format!("clientmem-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    drop(closer.listener(listener.into()));
    assert_eq!(closer.unclosed(), 0);
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    assert!(closer.hold(event).into_eventfd().is_some());
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    assert!(closer.hold(theirs.into()).into_eventfd().is_none());
    // It is closed nevertheless.
    assert_eq!(ours.read(&mut [0]).unwrap(), 0);
    ours.shutdown(Direction::Both).unwrap();
}

#[test]
fn a_closer_keeps_to_its_own_limit() {
    let closer = Closer::with_limit(1);
    assert_eq!((closer.limit(), closer.check()), (1, Ok(())));
    let (socket, peer) = lingering();
    drop(closer.hold(socket));
    assert_eq!(closer.check(), Err(Full { limit: 1 }));
    drop(peer);
    closed(&closer);
    assert_eq!(closer.check(), Ok(()));
}

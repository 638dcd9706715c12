//! The control socket: addresses, listening, descriptors, and invalid messages.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use memif::Message;
use memif::socket::{Address, Closer, Listener, RecvError, dial, recv, send};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
    socketpair,
};

fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

fn send_raw(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// Returns a socket path that is unique to this process.
fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("memif-test-{}-{name}", std::process::id()))
}

#[test]
fn a_message_travels_with_its_descriptor() {
    let (a, b) = pair();
    let (read, write) = std::io::pipe().unwrap();
    send(a.as_fd(), &Message::disconnect("hello"), Some(write.as_fd())).unwrap();
    send(a.as_fd(), &Message::Ack, None).unwrap();
    let (message, fd) = recv(b.as_fd(), &Closer::default()).unwrap().unwrap();
    assert_eq!(message, Message::disconnect("hello"));
    drop(write);
    rustix::io::write(fd.unwrap(), b"x").unwrap();
    assert_eq!(rustix::io::read(&read, &mut [0u8; 4]).unwrap(), 1);
    assert!(matches!(recv(b.as_fd(), &Closer::default()), Ok(Some((Message::Ack, None)))));
    assert!(recv(b.as_fd(), &Closer::default()).unwrap_err().would_block());
    drop(a);
    assert!(matches!(recv(b.as_fd(), &Closer::default()), Ok(None)));
}

#[test]
fn sizes_and_types_are_checked() {
    let (a, b) = pair();
    send_raw(&a, &[1, 0], &[]);
    assert!(matches!(recv(b.as_fd(), &Closer::default()), Err(RecvError::TooShort(2))));
    send_raw(&a, &[1; 127], &[]);
    assert!(matches!(recv(b.as_fd(), &Closer::default()), Err(RecvError::TooShort(127))));
    send_raw(&a, &[0; 129], &[]);
    assert!(matches!(recv(b.as_fd(), &Closer::default()), Err(RecvError::TooLong)));
    send_raw(&a, &[0; 128], &[]);
    assert!(matches!(recv(b.as_fd(), &Closer::default()), Err(RecvError::Decode(_))));
    // Errors leave the socket usable.
    send_raw(&a, &Message::Ack.encode(), &[]);
    assert!(matches!(recv(b.as_fd(), &Closer::default()), Ok(Some((Message::Ack, None)))));
}

#[test]
fn surplus_descriptors_are_closed() {
    for count in [2, 3, 64] {
        for bytes in [Message::Ack.encode().as_slice(), &[1, 2, 3], &[0; 200]] {
            let (a, b) = pair();
            let (read, write) = std::io::pipe().unwrap();
            send_raw(&a, bytes, &vec![write.as_fd(); count]);
            drop(write);
            assert!(recv(b.as_fd(), &Closer::default()).is_err());
            // The read ends, because no copy of the pipe's other side is open any more.
            assert_eq!(rustix::io::read(&read, &mut [0u8; 4]).unwrap(), 0);
        }
    }
}

#[test]
fn a_peer_that_does_not_read_does_not_block_the_sender() {
    let (a, _b) = pair();
    let error = loop {
        if let Err(e) = send(a.as_fd(), &Message::Ack, None) {
            break e;
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let (a, b) = pair();
    drop(b);
    // The error is returned; SIGPIPE is not raised.
    assert_eq!(send(a.as_fd(), &Message::Ack, None).unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn listening_at_a_path() {
    let path = path("listen");
    let address = Address::Path(path.clone());
    let listener = Listener::bind(&address).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    let client = dial(&address).unwrap();
    let server = listener.accept().unwrap();
    send(server.as_fd(), &Message::Ack, None).unwrap();
    assert!(matches!(recv(client.as_fd(), &Closer::default()), Ok(Some((Message::Ack, None)))));
    // A path in use stays with its listener.
    assert_eq!(Listener::bind(&address).unwrap_err().kind(), ErrorKind::AddrInUse);
    drop(listener);
    assert!(!path.exists());
    assert_eq!(dial(&address).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_stale_socket_is_replaced_but_a_file_is_not() {
    let path = path("stale");
    let address = Address::Path(path.clone());
    // The file stays behind, as after the death of its process.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let first = Listener::bind(&address).unwrap();
    // Another program removes the file and listens: the first listener must not remove the new file.
    std::fs::remove_file(&path).unwrap();
    let second = Listener::bind(&address).unwrap();
    drop(first);
    assert!(dial(&address).is_ok());
    drop(second);
    assert!(!path.exists());

    std::fs::write(&path, "precious").unwrap();
    assert_eq!(Listener::bind(&address).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn abstract_addresses() {
    let name = format!("@memif-test-{}", std::process::id());
    let address = Address::new(&name);
    assert_eq!(address.to_string(), name);
    assert_eq!(Address::new(&name.replace('@', "\0")), address);
    let listener = Listener::bind(&address).unwrap();
    assert!(dial(&address).is_ok());
    assert!(Listener::bind(&address).is_err());
    drop(listener);
    assert!(dial(&address).is_err());
    assert!(Listener::bind(&Address::Path("x".repeat(200).into())).is_err());
}

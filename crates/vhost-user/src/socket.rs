//! The control socket: listening, connecting, and reassembling messages from a byte stream.
//!
//! The sockets are of type `SOCK_STREAM`, so a message may arrive in pieces; its descriptors come with one of them. A
//! [`Receiver`] reads no further than the end of the current message, so that the next one's descriptors stay with it.
//!
//! Invariants:
//! - No descriptor from a peer leaks: surplus ones are closed and make the message an error.
//! - Nothing here blocks: sockets made here are non-blocking, and every descriptor from a peer is a [`ClientFd`], so no
//!   thread waits for its close. A peer whose descriptors cannot be closed gets no further.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use clientmem::{Full, MOST_DESCRIPTORS};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recvmsg, sendmsg, socket_with,
};

pub use clientmem::{ClientFd, Closer};

use crate::message::{DecodeError, HEADER_LEN, Header, MAX_DESCRIPTORS, MAX_PAYLOAD};

/// Number of connections that may wait to be accepted.
const BACKLOG: i32 = 16;

/// A listening socket. Dropping it removes its socket file.
#[derive(Debug)]
pub struct Listener {
    fd: ClientFd,
    closer: Closer,
    path: PathBuf,
    /// The device and inode of the socket file: the listener removes only this file.
    file: (u64, u64),
}

impl Listener {
    /// Listens at `path`, non-blocking.
    ///
    /// A stale socket file, without a listener, is replaced. Any other file there is an error.
    pub fn bind(path: &Path) -> io::Result<Listener> {
        Listener::bind_with(path, Closer::default())
    }

    /// Does the same with a shared limit on descriptors of peers.
    pub fn bind_with(path: &Path, closer: Closer) -> io::Result<Listener> {
        let address = SocketAddrUnix::new(path)?;
        let fd = new_socket()?;
        match bind(&fd, &address) {
            Err(Errno::ADDRINUSE) => {
                remove_stale(path, &address)?;
                bind(&fd, &address)?;
            }
            other => other?,
        }
        listen(&fd, BACKLOG)?;
        Ok(Listener { fd: closer.listener(fd), closer, path: path.into(), file: identity(path)? })
    }

    /// Accepts one connection, which is non-blocking; `WouldBlock` when none is waiting. Fails while too many
    /// descriptors of peers, earlier connections included, cannot be closed.
    pub fn accept(&self) -> io::Result<ClientFd> {
        self.closer.check()?;
        let socket = accept_with(&self.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        Ok(self.closer.connection(socket))
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.file) {
            // Best effort: the file may be gone or the directory read-only.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|m| (m.dev(), m.ino()))
}

/// Removes a socket file without a listener.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> io::Result<()> {
    let in_use = |why: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, why));
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return in_use("the path is taken by a file that is not a socket");
    }
    match connect(new_socket()?, address) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        // Another program answers, is too busy to, or is out of reach.
        _ => in_use("another program already listens on this socket"),
    }
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Connects to the listener at `path`, non-blocking; `WouldBlock` when its queue of waiting connections is full.
pub fn dial(path: &Path) -> io::Result<OwnedFd> {
    let fd = new_socket()?;
    connect(&fd, &SocketAddrUnix::new(path)?)?;
    Ok(fd)
}

/// Sends a whole message; `WouldBlock` when the peer does not read.
pub fn send(socket: BorrowedFd<'_>, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many file descriptors for one message"));
    }
    match sendmsg(socket, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)? {
        sent if sent == message.len() => Ok(()),
        // A peer that leaves so much unread is disconnected.
        _ => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Reasons for a failed receive.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The socket failed, or has no more data yet ([`ReceiveError::would_block`]).
    #[error("control socket: {0}")]
    Io(#[from] io::Error),
    /// The peer disconnected in the middle of a message.
    #[error("the control connection ended within a message")]
    Cut,
    /// The message carries more descriptors than any needs.
    #[error("message with more than {MAX_DESCRIPTORS} file descriptors")]
    TooManyDescriptors,
    /// The message carries descriptors, and this process has reached its limit of open files.
    #[error(
        "no room for the message's file descriptors: the limit of open files is reached; raise it (`ulimit -n`)"
    )]
    NoRoom,
    /// Earlier descriptors of the peer cannot be closed.
    #[error(transparent)]
    Unclosed(#[from] Full),
    /// The peer sent an incomplete message, and the receiver's time limit has passed.
    #[error("the control connection stopped within a message")]
    Stalled,
    /// The header cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl ReceiveError {
    /// Whether the only problem is that no more data has arrived yet.
    pub fn would_block(&self) -> bool {
        matches!(self, ReceiveError::Io(e) if e.kind() == io::ErrorKind::WouldBlock)
    }
}

/// A received message.
#[derive(Debug)]
pub struct Received {
    /// Its header.
    pub header: Header,
    /// Its payload, of the length in the header.
    pub payload: Vec<u8>,
    /// The descriptors attached to it.
    pub descriptors: Vec<ClientFd>,
}

/// Reassembles messages.
#[derive(Debug)]
pub struct Receiver {
    bytes: [u8; HEADER_LEN + MAX_PAYLOAD],
    filled: usize,
    header: Option<Header>,
    descriptors: Vec<ClientFd>,
    closer: Closer,
}

impl Default for Receiver {
    fn default() -> Self {
        Receiver::new(Closer::default())
    }
}

impl Receiver {
    /// Makes a receiver whose descriptors count towards the limits of `closer`.
    pub fn new(closer: Closer) -> Self {
        let bytes = [0; HEADER_LEN + MAX_PAYLOAD];
        Receiver { bytes, filled: 0, header: None, descriptors: Vec::new(), closer }
    }

    /// Whether an incomplete message has arrived.
    pub fn is_within_message(&self) -> bool {
        self.filled > 0
    }

    /// Receives up to the end of the next message. Returns `None` when the peer has closed the connection. After an
    /// error other than [`ReceiveError::would_block`] the connection is unusable.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<Option<Received>, ReceiveError> {
        loop {
            let wanted = HEADER_LEN + self.header.map_or(0, |header| header.size as usize);
            if self.filled == wanted {
                let Some(header) = self.header else {
                    if let Some(bytes) = self.bytes.first_chunk() {
                        self.header = Some(Header::decode(bytes)?);
                    }
                    continue;
                };
                let payload = self.bytes.get(HEADER_LEN..wanted).unwrap_or_default().to_vec();
                (self.header, self.filled) = (None, 0);
                let descriptors = std::mem::take(&mut self.descriptors);
                return Ok(Some(Received { header, payload, descriptors }));
            }
            // `Header::decode` bounds `wanted` by the buffer's size.
            let room = self.bytes.get_mut(self.filled..wanted).unwrap_or_default();
            self.closer.check()?;
            let n = read(socket, room, &mut self.descriptors, &self.closer)?;
            self.filled += n;
            if n == 0 {
                return if self.filled == 0 { Ok(None) } else { Err(ReceiveError::Cut) };
            }
        }
    }
}

/// Reads bytes and the descriptors that lie with them; 0 at the end of the stream.
fn read(
    socket: BorrowedFd<'_>,
    room: &mut [u8],
    descriptors: &mut Vec<ClientFd>,
    closer: &Closer,
) -> Result<usize, ReceiveError> {
    // Room for all possible descriptors: the kernel closes excess ones on this thread.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let result = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(room)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other,
        }
    };
    // A peer that died with unread messages looks like one that closed.
    let received = match result {
        Err(Errno::CONNRESET) => return Ok(0),
        other => other.map_err(io::Error::from)?,
    };
    // All descriptors are owned before any check, so every return path closes them.
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds.map(|fd| closer.hold(fd)));
        }
    }
    // The kernel closes descriptors that exceed the table of open files, and sets this flag.
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(ReceiveError::NoRoom);
    }
    if descriptors.len() > MAX_DESCRIPTORS {
        return Err(ReceiveError::TooManyDescriptors);
    }
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::message::{Request, RingDescriptor};

    fn pair() -> (UnixStream, UnixStream) {
        let (a, b) = UnixStream::pair().unwrap();
        b.set_nonblocking(true).unwrap();
        (a, b)
    }

    fn request(received: Received) -> Request {
        Request::decode(&received.header, &received.payload).unwrap()
    }

    #[test]
    fn messages_in_pieces_keep_their_descriptors() {
        let (theirs, ours) = pair();
        let kick = Request::SetVringKick(RingDescriptor { ring: 1, present: true });
        let bytes = kick.encode(false);
        let mut receiver = Receiver::default();
        assert!(receiver.receive(ours.as_fd()).unwrap_err().would_block());
        assert!(!receiver.is_within_message());
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        send(theirs.as_fd(), &bytes[..5], &[event.as_fd()]).unwrap();
        assert!(receiver.receive(ours.as_fd()).unwrap_err().would_block());
        assert!(receiver.is_within_message());
        send(theirs.as_fd(), &bytes[5..], &[]).unwrap();
        send(theirs.as_fd(), &Request::SetFeatures(7).encode(true), &[]).unwrap();
        send(theirs.as_fd(), &bytes, &[event.as_fd(); 2]).unwrap();
        drop(theirs);
        let first = receiver.receive(ours.as_fd()).unwrap().unwrap();
        assert_eq!(first.descriptors.len(), 1);
        assert_eq!(request(first), kick);
        let second = receiver.receive(ours.as_fd()).unwrap().unwrap();
        assert!(second.header.need_reply && second.descriptors.is_empty());
        assert_eq!(request(second), Request::SetFeatures(7));
        assert_eq!(receiver.receive(ours.as_fd()).unwrap().unwrap().descriptors.len(), 2);
        assert!(receiver.receive(ours.as_fd()).unwrap().is_none());
    }

    #[test]
    fn invalid_messages() {
        let (theirs, ours) = pair();
        send(theirs.as_fd(), &Request::SetOwner.encode(false)[..7], &[]).unwrap();
        drop(theirs);
        let error = Receiver::default().receive(ours.as_fd()).unwrap_err();
        assert_eq!(error.to_string(), "the control connection ended within a message");

        let (theirs, ours) = pair();
        send(theirs.as_fd(), &[0xff; 12], &[]).unwrap();
        let error = Receiver::default().receive(ours.as_fd()).unwrap_err();
        assert_eq!(error.to_string(), "message of protocol version 3, expected 1");

        let (theirs, ours) = pair();
        let bytes = Request::SetOwner.encode(false);
        for byte in bytes.chunks(6) {
            send(theirs.as_fd(), byte, &[ours.as_fd(); 5]).unwrap();
        }
        let error = Receiver::default().receive(ours.as_fd()).unwrap_err();
        assert_eq!(error.to_string(), "message with more than 8 file descriptors");
    }

    #[test]
    fn a_stale_socket_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let listener = Listener::bind(&path).unwrap();
        let taken = Listener::bind(&path).unwrap_err();
        assert_eq!(taken.to_string(), "another program already listens on this socket");
        // Takes the connection that tested for a listener.
        drop(listener.accept().unwrap());
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(dial(&path).unwrap());
        assert!(listener.accept().is_ok());
        drop(listener);
        assert!(!path.exists());

        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "std leaves the file");
        drop(Listener::bind(&path).unwrap());

        std::fs::write(&path, "").unwrap();
        let file = Listener::bind(&path).unwrap_err();
        assert_eq!(file.to_string(), "the path is taken by a file that is not a socket");
    }
}

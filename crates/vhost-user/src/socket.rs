//! The control socket: listening, connecting, and whole messages out of a stream of bytes.
//!
//! The sockets are of type `SOCK_STREAM`, so a message may come in pieces; its descriptors come with one of them. A
//! [`Receiver`] reads no further than the end of the message it is at, so that the next one's descriptors stay with it.
//!
//! Invariants:
//! - No descriptor that a peer sends leaks: those that are too many are closed and make the message an error.
//! - Nothing here blocks: sockets made here are non-blocking, and what came from a peer is a [`ClientFd`], whose closing
//!   nobody waits for. A peer whose descriptors cannot be closed gets no further.

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

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 16;

/// A listening socket. Its file goes with it.
#[derive(Debug)]
pub struct Listener {
    fd: ClientFd,
    closer: Closer,
    path: PathBuf,
    /// The device and inode that the socket file had: only this one is ours to remove.
    file: (u64, u64),
}

impl Listener {
    /// Listens at `path`, non-blocking.
    ///
    /// A socket file on which nobody listens any more is replaced. Anything else in the way is an error.
    pub fn bind(path: &Path) -> io::Result<Listener> {
        Listener::bind_with(path, Closer::default())
    }

    /// The same with a limit on descriptors of peers that is shared with others.
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

    /// Accepts one connection, which is non-blocking. `WouldBlock` when there is none. Fails while too many descriptors
    /// of peers, earlier connections among them, cannot be closed.
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
            // The file may be gone or the directory read-only: then there is nothing to do about it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|m| (m.dev(), m.ino()))
}

/// Removes a socket file on which nobody listens.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> io::Result<()> {
    let in_use = |why: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, why));
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return in_use("a file that is not a socket is in the way");
    }
    match connect(new_socket()?, address) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        // Somebody answers, is too busy to, or is out of our reach.
        _ => in_use("another program listens there"),
    }
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Connects to whoever listens at `path`, non-blocking. `WouldBlock` when too many others wait to be accepted.
pub fn dial(path: &Path) -> io::Result<OwnedFd> {
    let fd = new_socket()?;
    connect(&fd, &SocketAddrUnix::new(path)?)?;
    Ok(fd)
}

/// Sends a message whole. `WouldBlock` when the peer does not read what it is sent.
pub fn send(socket: BorrowedFd<'_>, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("no room for so many descriptors"));
    }
    match sendmsg(socket, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)? {
        sent if sent == message.len() => Ok(()),
        // A peer that leaves so much unread is not served any further.
        _ => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Why no message was received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The socket failed, or has nothing more yet ([`ReceiveError::would_block`]).
    #[error("control socket: {0}")]
    Io(#[from] io::Error),
    /// The peer left in the middle of a message.
    #[error("the control connection ended within a message")]
    Cut,
    /// The message came with more descriptors than any needs.
    #[error("message with more than {MAX_DESCRIPTORS} file descriptors")]
    TooManyDescriptors,
    /// The message came with descriptors that this process has no room for.
    #[error("message with file descriptors, and as many are open as may be; raise the limit (`ulimit -n`)")]
    NoRoom,
    /// Descriptors that the peer sent before cannot be closed.
    #[error(transparent)]
    Unclosed(#[from] Full),
    /// The peer said half a message and then nothing, for as long as whoever receives waits.
    #[error("the control connection stopped within a message")]
    Stalled,
    /// The header cannot be understood.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl ReceiveError {
    /// Whether there is merely nothing more to receive yet.
    pub fn would_block(&self) -> bool {
        matches!(self, ReceiveError::Io(e) if e.kind() == io::ErrorKind::WouldBlock)
    }
}

/// A message as it came.
#[derive(Debug)]
pub struct Received {
    /// Its head.
    pub header: Header,
    /// What follows, as long as the head says.
    pub payload: Vec<u8>,
    /// The descriptors that came with it.
    pub descriptors: Vec<ClientFd>,
}

/// Puts messages together.
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
    /// A receiver whose descriptors count for the limits of `closer`.
    pub fn new(closer: Closer) -> Self {
        let bytes = [0; HEADER_LEN + MAX_PAYLOAD];
        Receiver { bytes, filled: 0, header: None, descriptors: Vec::new(), closer }
    }

    /// Whether a part of a message has come, and not all of it.
    pub fn is_within_message(&self) -> bool {
        self.filled > 0
    }

    /// Receives up to the end of the next message. `None` when the peer has closed the connection. After an error other
    /// than [`ReceiveError::would_block`] the connection is of no more use.
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
            // `Header::decode` bounds what is wanted by the buffer's size.
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

/// Reads some bytes and the descriptors that lie with them; 0 at the end.
fn read(
    socket: BorrowedFd<'_>,
    room: &mut [u8],
    descriptors: &mut Vec<ClientFd>,
    closer: &Closer,
) -> Result<usize, ReceiveError> {
    // For all that can come: those without room the kernel would close here.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let result = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(room)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other,
        }
    };
    // A peer that died with messages unread looks the same as one that closed.
    let received = match result {
        Err(Errno::CONNRESET) => return Ok(0),
        other => other.map_err(io::Error::from)?,
    };
    // Owning them all before any check makes every way out close them.
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds.map(|fd| closer.hold(fd)));
        }
    }
    // The kernel closes descriptors for which there is no room in the table of open files, and says so.
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
    fn what_is_not_a_message() {
        let (theirs, ours) = pair();
        send(theirs.as_fd(), &Request::SetOwner.encode(false)[..7], &[]).unwrap();
        drop(theirs);
        let error = Receiver::default().receive(ours.as_fd()).unwrap_err();
        assert_eq!(error.to_string(), "the control connection ended within a message");

        let (theirs, ours) = pair();
        send(theirs.as_fd(), &[0xff; 12], &[]).unwrap();
        let error = Receiver::default().receive(ours.as_fd()).unwrap_err();
        assert_eq!(error.to_string(), "message of protocol version 3, must be 1");

        let (theirs, ours) = pair();
        let bytes = Request::SetOwner.encode(false);
        for byte in bytes.chunks(6) {
            send(theirs.as_fd(), byte, &[ours.as_fd(); 5]).unwrap();
        }
        let error = Receiver::default().receive(ours.as_fd()).unwrap_err();
        assert_eq!(error.to_string(), "message with more than 8 file descriptors");
    }

    #[test]
    fn a_socket_file_that_nobody_serves_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let listener = Listener::bind(&path).unwrap();
        let taken = Listener::bind(&path).unwrap_err();
        assert_eq!(taken.to_string(), "another program listens there");
        // What looked whether somebody listens.
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
        assert_eq!(file.to_string(), "a file that is not a socket is in the way");
    }
}

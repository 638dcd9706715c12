//! The control socket: addresses, listening, and one message at a time.
//!
//! The sockets are of type `SOCK_SEQPACKET`: a message arrives whole or not at all, with its descriptor.
//!
//! Invariants:
//! - No descriptor that a peer sends leaks: one too many is closed and makes the message an error.
//! - What came from a peer is a [`ClientFd`], whose closing nobody waits for. A peer whose descriptors cannot be closed
//!   gets no further with more of them.
//! - Nothing here blocks on a socket that does not: sockets made here are non-blocking, and [`send`] and [`recv`] on
//!   others behave as those are set.

use std::fmt;
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

use crate::message::{DecodeError, MESSAGE_SIZE, Message};

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 64;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A socket file.
    Path(PathBuf),
    /// A name in the network namespace, without a file.
    Abstract(Vec<u8>),
}

impl Address {
    /// The address that `text` names: a path, or an abstract name after a leading `@` or NUL.
    ///
    /// ```
    /// use memif::socket::Address;
    /// assert_eq!(Address::new("@lab"), Address::Abstract(b"lab".to_vec()));
    /// assert_eq!(Address::new("/run/memif.sock").to_string(), "/run/memif.sock");
    /// ```
    pub fn new(text: &str) -> Address {
        match text.strip_prefix(['@', '\0']) {
            Some(name) => Address::Abstract(name.as_bytes().to_vec()),
            None => Address::Path(PathBuf::from(text)),
        }
    }

    fn to_sockaddr(&self) -> Result<SocketAddrUnix, Errno> {
        match self {
            Address::Path(path) => SocketAddrUnix::new(path.as_path()),
            Address::Abstract(name) => SocketAddrUnix::new_abstract_name(name),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Path(path) => path.display().fmt(f),
            Address::Abstract(name) => write!(f, "@{}", name.escape_ascii()),
        }
    }
}

/// A listening socket. Its file, if it has one, goes with it.
#[derive(Debug)]
pub struct Listener {
    fd: ClientFd,
    closer: Closer,
    /// The socket file and the device and inode it had: only this one is ours to remove.
    file: Option<(PathBuf, (u64, u64))>,
}

impl Listener {
    /// Listens at `address`, non-blocking.
    ///
    /// A socket file on which nobody listens any more is replaced. Anything else in the way is an error.
    pub fn bind(address: &Address) -> io::Result<Listener> {
        let sockaddr = address.to_sockaddr()?;
        let fd = new_socket()?;
        match bind(&fd, &sockaddr) {
            Err(Errno::ADDRINUSE) => {
                let Address::Path(path) = address else { return Err(Errno::ADDRINUSE.into()) };
                remove_stale(path, &sockaddr)?;
                bind(&fd, &sockaddr)?;
            }
            other => other?,
        }
        listen(&fd, BACKLOG)?;
        let file = match address {
            Address::Path(path) => Some((path.clone(), identity(path)?)),
            Address::Abstract(_) => None,
        };
        let closer = Closer::default();
        Ok(Listener { fd: closer.listener(fd), closer, file })
    }

    /// Accepts one connection, which is non-blocking. `WouldBlock` when there is none. Fails while too many earlier
    /// connections cannot be closed.
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
        if let Some((path, ours)) = &self.file
            && identity(path).is_ok_and(|found| found == *ours)
        {
            // The file may be gone or the directory read-only: then there is nothing to do about it.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|m| (m.dev(), m.ino()))
}

/// Removes a socket file on which nobody listens.
fn remove_stale(path: &Path, sockaddr: &SocketAddrUnix) -> io::Result<()> {
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "a file that is not a socket is in the way"));
    }
    match connect(new_socket()?, sockaddr) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        // Somebody answers, is too busy to, or is out of our reach.
        _ => Err(io::Error::new(io::ErrorKind::AddrInUse, "another program listens there")),
    }
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Connects to a server, non-blocking. `WouldBlock` when too many others wait to be accepted.
pub fn dial(address: &Address) -> io::Result<OwnedFd> {
    let fd = new_socket()?;
    connect(&fd, &address.to_sockaddr()?)?;
    Ok(fd)
}

/// Sends one message with at most one descriptor. `WouldBlock` when the peer lets its messages pile up.
pub fn send(socket: BorrowedFd<'_>, message: &Message, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let bytes = message.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.as_slice();
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Why no message was received.
#[derive(Debug, thiserror::Error)]
pub enum RecvError {
    /// The socket failed, or has nothing yet ([`RecvError::would_block`]).
    #[error("control socket: {0}")]
    Io(#[from] io::Error),
    /// The message has the wrong size.
    #[error("message of {0} bytes, must be {MESSAGE_SIZE}")]
    TooShort(usize),
    /// The message has the wrong size.
    #[error("message longer than {MESSAGE_SIZE} bytes")]
    TooLong,
    /// The message came with more than one descriptor.
    #[error("message with more than one file descriptor")]
    TooManyDescriptors,
    /// The message came with descriptors that this process has no room for.
    #[error("message with file descriptors, and as many are open as may be; raise the limit (`ulimit -n`)")]
    NoRoom,
    /// The message came with a descriptor, and some that the peer sent before cannot be closed.
    #[error(transparent)]
    Unclosed(#[from] Full),
    /// The message cannot be understood.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl RecvError {
    /// Whether there is merely nothing to receive yet.
    pub fn would_block(&self) -> bool {
        matches!(self, RecvError::Io(e) if e.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Receives one message and the descriptor that came with it, which counts for the limits of `closer`. `None` when the
/// peer has closed the connection.
pub fn recv(
    socket: BorrowedFd<'_>,
    closer: &Closer,
) -> Result<Option<(Message, Option<ClientFd>)>, RecvError> {
    if let Err(full) = closer.check()
        && has_descriptors(socket)
    {
        return Err(full.into());
    }
    let mut bytes = [0u8; MESSAGE_SIZE];
    // For all that can come: those without room the kernel would close here.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let result = loop {
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        match recvmsg(socket, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other,
        }
    };
    // A peer that died with messages unread looks the same as one that closed.
    let received = match result {
        Err(Errno::CONNRESET) => return Ok(None),
        other => other.map_err(io::Error::from)?,
    };
    // Owning them all before any check makes every way out close them.
    let mut fds: Vec<ClientFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .map(|fd| closer.hold(fd))
        .collect();
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(RecvError::TooLong);
    }
    match received.bytes {
        0 => return Ok(None),
        MESSAGE_SIZE => {}
        size => return Err(RecvError::TooShort(size)),
    }
    // The kernel closes descriptors for which there is no room in the table of open files, and says so.
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(RecvError::NoRoom);
    }
    if fds.len() > 1 {
        return Err(RecvError::TooManyDescriptors);
    }
    Ok(Some((Message::decode(&bytes)?, fds.pop())))
}

/// Whether the next message comes with descriptors. They stay in the socket.
fn has_descriptors(socket: BorrowedFd<'_>) -> bool {
    let mut control = RecvAncillaryBuffer::default();
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut [0; 1])], &mut control, flags);
    received.is_ok_and(|received| received.flags.contains(ReturnFlags::CTRUNC))
}

//! The control socket: addresses, listening, and sending and receiving one message at a time.
//!
//! The sockets are of type `SOCK_SEQPACKET`: a message arrives whole or not at all, with its descriptor.
//!
//! Invariants:
//! - No descriptor from a peer leaks: a surplus one is closed and makes the message an error.
//! - Every descriptor from a peer is a [`ClientFd`], so no thread waits for its close. A peer whose descriptors cannot
//!   be closed cannot send more of them.
//! - Nothing here makes a non-blocking socket block: sockets made here are non-blocking, and [`send`] and [`recv`] on
//!   other sockets follow their setting.

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

/// Number of connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A socket file.
    Path(PathBuf),
    /// A name in the network namespace's abstract socket namespace, without a file.
    Abstract(Vec<u8>),
}

impl Address {
    /// Parses an address: a path, or an abstract name after a leading `@` or NUL.
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

/// A listening socket. Dropping it removes its socket file, if it has one.
#[derive(Debug)]
pub struct Listener {
    fd: ClientFd,
    closer: Closer,
    /// The socket file with its device and inode: the listener removes only this file.
    file: Option<(PathBuf, (u64, u64))>,
}

impl Listener {
    /// Listens at `address`, non-blocking.
    ///
    /// A stale socket file, without a listener, is replaced. Any other file there is an error.
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

    /// Accepts one connection, which is non-blocking; `WouldBlock` when none is waiting. Fails while too many earlier
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
            // Best effort: the file may be gone or the directory read-only.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|m| (m.dev(), m.ino()))
}

/// Removes a socket file without a listener.
fn remove_stale(path: &Path, sockaddr: &SocketAddrUnix) -> io::Result<()> {
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "the path is taken by a file that is not a socket",
        ));
    }
    match connect(new_socket()?, sockaddr) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        // Another program answers, is too busy to, or is out of reach.
        _ => Err(io::Error::new(io::ErrorKind::AddrInUse, "another program already listens on this socket")),
    }
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Connects to a server, non-blocking; `WouldBlock` when its queue of waiting connections is full.
pub fn dial(address: &Address) -> io::Result<OwnedFd> {
    let fd = new_socket()?;
    connect(&fd, &address.to_sockaddr()?)?;
    Ok(fd)
}

/// Sends one message with at most one descriptor; `WouldBlock` when the peer's receive queue is full.
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

/// Reasons for a failed receive.
#[derive(Debug, thiserror::Error)]
pub enum RecvError {
    /// The socket failed, or no message has arrived ([`RecvError::would_block`]).
    #[error("control socket: {0}")]
    Io(#[from] io::Error),
    /// The message is too short.
    #[error("message of {0} bytes, expected {MESSAGE_SIZE}")]
    TooShort(usize),
    /// The message is too long.
    #[error("message longer than {MESSAGE_SIZE} bytes")]
    TooLong,
    /// The message carries more than one descriptor.
    #[error("message with more than one file descriptor")]
    TooManyDescriptors,
    /// The message carries descriptors, and this process has reached its limit of open files.
    #[error(
        "no room for the message's file descriptors: the limit of open files is reached; raise it (`ulimit -n`)"
    )]
    NoRoom,
    /// The message carries a descriptor while earlier ones from the peer cannot be closed.
    #[error(transparent)]
    Unclosed(#[from] Full),
    /// The message is invalid.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl RecvError {
    /// Whether the only problem is that no message has arrived yet.
    pub fn would_block(&self) -> bool {
        matches!(self, RecvError::Io(e) if e.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Receives one message and the descriptor that came with it, which counts towards the limits of `closer`. Returns
/// `None` when the peer has closed the connection.
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
    // Room for all possible descriptors: the kernel closes excess ones on this thread.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let result = loop {
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        match recvmsg(socket, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other,
        }
    };
    // A peer that died with unread messages looks like one that closed.
    let received = match result {
        Err(Errno::CONNRESET) => return Ok(None),
        other => other.map_err(io::Error::from)?,
    };
    // All descriptors are owned before any check, so every return path closes them.
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
    // The kernel closes descriptors that exceed the table of open files, and sets this flag.
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(RecvError::NoRoom);
    }
    if fds.len() > 1 {
        return Err(RecvError::TooManyDescriptors);
    }
    Ok(Some((Message::decode(&bytes)?, fds.pop())))
}

/// Whether the next message carries descriptors. They stay in the socket.
fn has_descriptors(socket: BorrowedFd<'_>) -> bool {
    let mut control = RecvAncillaryBuffer::default();
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut [0; 1])], &mut control, flags);
    received.is_ok_and(|received| received.flags.contains(ReturnFlags::CTRUNC))
}

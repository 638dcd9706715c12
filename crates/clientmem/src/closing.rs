//! Closes descriptors of clients on threads of their own.
//!
//! `close` waits for as long as a client likes if the descriptor is the last one of a TCP socket with `SO_LINGER` and
//! unsent data, or belongs to a file of a FUSE server that does not answer. The same holds for a Unix socket that is
//! closed with such descriptors unread in its queue, and for a listener with such a connection in its backlog.
//!
//! Invariants:
//! - Dropping a [`ClientFd`] never waits. Memory files and eventfds are closed at once, since nothing can delay that; a
//!   listener is closed at once after its backlog was emptied; a thread of the [`Closer`] closes everything else.
//! - A `Closer` has at most [`THREADS`] threads. A receiver of client messages stops while [`Closer::is_full`], so the
//!   number of open, unused descriptors is at most the limit plus those of the messages being received.
//! - No thread is ever joined: the process exits without waiting for a close.
//! - A descriptor leaves its `ClientFd` only as an eventfd.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::fcntl_get_seals;
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};

use crate::kind::is_eventfd;

/// Most descriptors in one message (Linux's `SCM_MAX_FD`). With room for fewer, `recvmsg` itself closes the rest, on
/// the receiving thread.
pub const MOST_DESCRIPTORS: usize = 253;

/// Default limit of a [`Closer`]: unclosed descriptors of a client beyond which it is refused more.
pub const MOST_UNCLOSED: usize = 128;

/// Most threads that close the descriptors of a client.
const THREADS: usize = 4;

/// Stack size. The threads only call `close`, but a thread's first allocation sets up the allocator's cache, which took
/// more than 64 KiB with jemalloc compiled without optimization.
const STACK: usize = 256 << 10;

/// Closes the descriptors of one client. Clones share its threads and limits.
///
/// One `Closer` serves everything under a common limit: all connections of a port, one after another.
#[derive(Debug, Clone)]
pub struct Closer {
    queue: Arc<Mutex<Queue>>,
    limit: usize,
}

impl Default for Closer {
    /// A closer with the limit [`MOST_UNCLOSED`].
    fn default() -> Self {
        Closer::with_limit(MOST_UNCLOSED)
    }
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<OwnedFd>,
    /// Running threads. Each closes a descriptor or is about to look for one.
    threads: usize,
}

impl Closer {
    /// A closer that refuses more while `limit` descriptors wait to be closed.
    pub fn with_limit(limit: usize) -> Self {
        Closer { queue: Arc::default(), limit }
    }

    /// Number of descriptors that may wait to be closed.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Takes ownership of a descriptor that a client passed.
    pub fn hold(&self, fd: OwnedFd) -> ClientFd {
        self.wrap(fd, Kind::Passed)
    }

    /// Takes ownership of a connection with a client. Dropping it ends the connection at once, and frees it later.
    pub fn connection(&self, socket: OwnedFd) -> ClientFd {
        self.wrap(socket, Kind::Connection)
    }

    /// Takes ownership of a non-blocking listening socket. Dropping it ends the connections in its backlog.
    pub fn listener(&self, socket: OwnedFd) -> ClientFd {
        self.wrap(socket, Kind::Listener)
    }

    fn wrap(&self, fd: OwnedFd, kind: Kind) -> ClientFd {
        ClientFd { fd: Some(fd), kind, closer: self.clone() }
    }

    /// Whether the limit is reached, so that the client is refused more.
    pub fn is_full(&self) -> bool {
        self.unclosed() >= self.limit
    }

    /// Number of descriptors not yet closed.
    fn unclosed(&self) -> usize {
        let queue = self.lock();
        queue.waiting.len() + queue.threads
    }

    /// Fails if the limit is reached, for a caller that must stop then.
    pub fn check(&self) -> Result<(), Full> {
        if self.is_full() { Err(Full { limit: self.limit }) } else { Ok(()) }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, fd: OwnedFd) {
        {
            let mut queue = self.lock();
            queue.waiting.push_back(fd);
            if queue.threads == THREADS {
                return;
            }
            queue.threads += 1;
        }
        // The thread takes descriptors from the queue and owns none: if it cannot be started, none is closed here.
        let closer = self.clone();
        let thread = std::thread::Builder::new().name("client-close".into()).stack_size(STACK);
        if thread.spawn(move || closer.run()).is_err() {
            // The descriptor waits for the next call, which tries again.
            self.lock().threads -= 1;
        }
    }

    /// Ends unaccepted connections. Returns whether none is left and none can arrive.
    fn empty_backlog(&self, listener: &OwnedFd) -> bool {
        if shutdown(listener, Shutdown::Both).is_err() {
            return false;
        }
        loop {
            match accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(socket) => drop(self.connection(socket)),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // Any other error, such as a full file table, says nothing about the backlog.
                Err(error) => return error == Errno::AGAIN,
            }
        }
    }

    fn run(&self) {
        while let Some(fd) = self.next() {
            drop(fd);
        }
    }

    fn next(&self) -> Option<OwnedFd> {
        let mut queue = self.lock();
        let next = queue.waiting.pop_front();
        if next.is_none() {
            queue.threads -= 1;
        }
        next
    }
}

/// Too many descriptors of a client wait to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{limit} descriptors from clients cannot be closed because their peers delay it; end the client that passed them"
)]
pub struct Full {
    /// Limit on descriptors that wait to be closed.
    pub limit: usize,
}

impl From<Full> for io::Error {
    fn from(full: Full) -> Self {
        io::Error::other(full)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Passed,
    Connection,
    Listener,
}

/// A descriptor whose closing a client may delay. Dropping it does not wait. See the module.
#[derive(Debug)]
pub struct ClientFd {
    /// `None` only while it is dropped or taken out.
    fd: Option<OwnedFd>,
    kind: Kind,
    closer: Closer,
}

impl ClientFd {
    /// The descriptor for signalling, if it is an eventfd.
    pub fn into_eventfd(mut self) -> Option<OwnedFd> {
        self.fd.take_if(|fd| is_eventfd(fd.as_fd()))
    }
}

impl From<OwnedFd> for ClientFd {
    /// A descriptor with a closer of its own.
    fn from(fd: OwnedFd) -> ClientFd {
        Closer::default().hold(fd)
    }
}

impl AsFd for ClientFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.fd {
            Some(fd) => fd.as_fd(),
            None => unreachable!("only `drop` and `into_eventfd` take it, and both consume `self`"),
        }
    }
}

impl AsRawFd for ClientFd {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for ClientFd {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        match self.kind {
            Kind::Passed => {
                if !closes_at_once(fd.as_fd()) {
                    self.closer.close(fd);
                }
            }
            Kind::Connection => {
                // The peer sees the end now. Fails only if there is no peer any more.
                let _ = shutdown(&fd, Shutdown::Both);
                self.closer.close(fd);
            }
            Kind::Listener => {
                // Closed here if possible: the address stays in use until then, and may be needed next.
                if !self.closer.empty_backlog(&fd) {
                    self.closer.close(fd);
                }
            }
        }
    }
}

/// Whether closing cannot be delayed: memory files (the only ones with seals) and eventfds.
fn closes_at_once(fd: BorrowedFd<'_>) -> bool {
    fcntl_get_seals(fd).is_ok() || is_eventfd(fd)
}

#[cfg(test)]
mod tests;

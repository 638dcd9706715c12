//! Watching sockets on the runtime.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use clientmem::{ClientFd, Closer};
use tokio::io::unix::AsyncFd;

/// A type with a descriptor to watch.
///
/// # Safety
///
/// A value always returns the same descriptor, and keeps it open until it is dropped.
pub(crate) unsafe trait Watchable: AsRawFd {}

// SAFETY: only dropping it, or taking the eventfd out of it, which takes it by value, changes what it holds.
unsafe impl Watchable for ClientFd {}
// SAFETY: it holds a ClientFd that it never changes.
unsafe impl Watchable for memif::socket::Listener {}
// SAFETY: as above.
unsafe impl Watchable for vhost_user::socket::Listener {}

/// Watches a socket of the switch's own.
pub(crate) fn watch<S: Watchable>(socket: S) -> io::Result<AsyncFd<S>> {
    // SAFETY: the descriptor of a Watchable stays the same and open until it is dropped, which AsyncFd does after
    // deregistering it.
    unsafe { AsyncFd::register(socket) }.map_err(io::Error::from)
}

/// Watches a connection that stays with its owner, through a duplicate of its descriptor.
pub(crate) fn watch_copy(socket: BorrowedFd<'_>, closer: &Closer) -> io::Result<AsyncFd<ClientFd>> {
    // Not as a connection, which would end it for its owner when it is dropped.
    watch(closer.hold(socket.try_clone_to_owned()?))
}

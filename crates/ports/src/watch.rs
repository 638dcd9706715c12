//! Waiting for a socket on the runtime.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use tokio::io::unix::AsyncFd;

/// Watches a socket that is ours.
pub(crate) fn watch(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd always gives the same descriptor, and keeps it open until it is dropped, which AsyncFd
    // does after deregistering it.
    unsafe { AsyncFd::register(socket) }.map_err(io::Error::from)
}

/// Watches a socket that stays with its owner, through a descriptor of our own.
pub(crate) fn watch_copy(socket: BorrowedFd<'_>) -> io::Result<AsyncFd<OwnedFd>> {
    watch(socket.try_clone_to_owned()?)
}

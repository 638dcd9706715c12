//! Notifications of the kernel: addresses and routes that somebody gives to the source, and addresses that the target
//! receives or that are renewed there.
//!
//! A daemon waits for the descriptor, and calls [`crate::Handover::follow`] when [`Changes::take`] reports a change.
//!
//! Invariant: a notification that was lost, because the socket's buffer was full, counts as a change.

use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::NetlinkBuffer;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;

use crate::Error;
use crate::attributes::u32_at;
use crate::link::Interface;
use crate::netlink::Refusal;
use crate::objects::Route;

/// Bits of `RTNLGRP_IPV4_IFADDR`, `RTNLGRP_IPV4_ROUTE`, `RTNLGRP_IPV6_IFADDR` and `RTNLGRP_IPV6_ROUTE`.
const GROUPS: u32 = 1 << 4 | 1 << 6 | 1 << 8 | 1 << 10;
/// Length of a message's header.
const HEADER: usize = 16;

/// A subscription to changes of a source and its target.
pub struct Changes {
    socket: Socket,
    source: Interface,
    target: Interface,
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Changes")
            .field("source", &self.source)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl AsFd for Changes {
    /// Returns a descriptor that is readable when there are notifications.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Changes {
    /// Subscribes to the changes of interfaces of the calling thread's network namespace.
    pub(crate) fn of(source: &Interface, target: &Interface) -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind(&SocketAddr::new(0, GROUPS))?;
            socket.set_non_blocking(true)?;
            Ok(socket)
        };
        let unreadable = |error: std::io::Error| Error::unreadable(&source.name)(Refusal::from(error));
        Ok(Self { socket: open().map_err(unreadable)?, source: source.clone(), target: target.clone() })
    }

    /// Reads all notifications. Returns whether an address of either interface, or a route of the source, was added or
    /// changed.
    pub fn take(&mut self) -> bool {
        let mut changed = false;
        loop {
            match self.socket.recv_from_full() {
                Ok((datagram, _)) => changed |= self.concerns(&datagram),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::NOBUFS) => changed = true,
                    Some(Errno::INTR) => {}
                    _ => return changed,
                },
            }
        }
    }

    fn concerns(&self, mut rest: &[u8]) -> bool {
        while let Ok(message) = NetlinkBuffer::new_checked(rest) {
            let length = message.length() as usize;
            let Some(body) = rest.get(HEADER..length) else { return false };
            let concerned = match message.message_type() {
                libc::RTM_NEWADDR => {
                    u32_at(body, 4).is_some_and(|on| on == self.source.index || on == self.target.index)
                }
                libc::RTM_NEWROUTE => {
                    Route::parse(body).is_some_and(|route| route.leaves_through(self.source.index))
                }
                _ => false,
            };
            if concerned {
                return true;
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        false
    }
}

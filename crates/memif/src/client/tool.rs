//! A client for tools and tests: connects, then sends and receives packets.
//!
//! Invariant: the parts are independent. Queues may move to other threads, and keep the memory mapped; the connection
//! lasts as long as [`Client::control`].

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::attach::{Advance, Attached, Attaching, ConnectError, Control};
use super::config::ClientConfig;
use super::layout::Layout;
use super::queue::{RxQueue, TxQueue};
use crate::connection::RingParts;
use crate::memory::Memory;

/// A connected client.
#[derive(Debug)]
pub struct Client {
    /// The queues to the server.
    pub tx: Vec<TxQueue>,
    /// The queues from the server, with all buffers posted.
    pub rx: Vec<RxQueue>,
    /// The control connection; dropping it disconnects.
    pub control: Control,
    /// The shared memory, for tests that inspect or corrupt it.
    pub memory: Arc<Memory>,
    /// The name of the server's program.
    pub peer_name: String,
    /// The server's name for the interface.
    pub peer_if_name: String,
}

impl Client {
    /// Connects, and waits until the connection is up or the configured timeout has passed.
    pub fn connect(config: &ClientConfig) -> Result<Client, ConnectError> {
        Client::drive(Attaching::start(config.clone())?)
    }

    /// Completes a handshake that was started elsewhere.
    pub fn drive(mut attaching: Attaching) -> Result<Client, ConnectError> {
        let deadline = Instant::now().checked_add(attaching.config().timeout);
        loop {
            attaching = match attaching.advance()? {
                Advance::Done(attached) => return Ok(Client::new(attached)),
                Advance::Waiting(attaching) => attaching,
            };
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(&attaching, PollFlags::IN)], timeout.as_ref()) {
                Ok(0) => return Err(ConnectError::Timeout { address: attaching.config().socket.clone() }),
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => {
                    let source = io::Error::from(e);
                    return Err(ConnectError::Io { operation: "cannot wait for the server", source });
                }
            }
        }
    }

    /// Makes the queues of an established connection.
    pub fn new(attached: Attached) -> Client {
        let Attached { connection, control } = attached;
        let layout = *control.layout();
        Client {
            tx: queues(connection.s2m, layout, TxQueue::new),
            rx: queues(connection.m2s, layout, RxQueue::new),
            control,
            memory: connection.memory,
            peer_name: connection.peer_name,
            peer_if_name: connection.peer_if_name,
        }
    }

    /// Returns the reason for the disconnect, or `None` while the connection is up. Does not block.
    pub fn poll_disconnect(&mut self) -> Option<String> {
        self.control.poll_disconnect()
    }

    /// Sends the server a reason and disconnects.
    pub fn disconnect(self, reason: &str) {
        self.control.disconnect(reason);
    }

    /// Waits until the control connection is readable: for tests that wait to be disconnected.
    pub fn control_readable(&self, timeout: std::time::Duration) -> io::Result<bool> {
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let ready = poll(&mut [PollFd::new(&self.control.as_fd(), PollFlags::IN)], Some(&timeout))?;
        Ok(ready > 0)
    }
}

fn queues<Q>(parts: Vec<RingParts>, layout: Layout, make: fn(RingParts, Layout, u16) -> Q) -> Vec<Q> {
    parts.into_iter().zip(0..).map(|(parts, index)| make(parts, layout, index)).collect()
}

//! The client's handshake on a non-blocking socket, and the control connection after it.
//!
//! Invariants:
//! - Nothing blocks: [`Attaching::advance`] processes the messages that have arrived and returns.
//! - Memory, rings and eventfds exist before the first message that announces them, and rings are initialised.
//! - The server receives the reason for a disconnect if the socket accepts it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use clientmem::{ClientFd, Closer, Region};
use rustix::event::{EventfdFlags, eventfd};

use super::config::ClientConfig;
use super::handshake::{Attachment, Handshake, HandshakeError, Outgoing, Progress};
use super::layout::{Direction, Layout};
use crate::connection::{Connection, RingParts};
use crate::memory::Memory;
use crate::message::Message;
use crate::ring::{Ring, RingError};
use crate::socket::{Address, RecvError, dial, recv, send};

/// Reasons for a failed connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server cannot be reached.
    #[error("cannot connect to {address}: {source}")]
    Dial {
        /// The server's address.
        address: Address,
        /// The cause.
        source: io::Error,
    },
    /// The handshake failed.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// Receiving the server's message failed.
    #[error(transparent)]
    Recv(#[from] RecvError),
    /// The server closed the connection without giving a reason.
    #[error("server closed the control connection")]
    Closed,
    /// Memory, eventfds or the socket failed.
    #[error("{operation}: {source}")]
    Io {
        /// The operation that failed.
        operation: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A ring does not fit the memory made for it.
    #[error("ring does not fit its own memory: {0}")]
    Ring(#[from] RingError),
    /// The server did not answer before the timeout.
    #[error("the server at {address} did not answer in time")]
    Timeout {
        /// The server's address.
        address: Address,
    },
}

fn failed(operation: &'static str) -> impl Fn(io::Error) -> ConnectError {
    move |source| ConnectError::Io { operation, source }
}

/// Resources that the client makes once the server's limits are known.
#[derive(Debug)]
struct Resources {
    memory: Arc<Memory>,
    region_fd: OwnedFd,
    s2m: Vec<RingParts>,
    m2s: Vec<RingParts>,
    layout: Layout,
}

impl Resources {
    fn new(layout: Layout) -> Result<Resources, ConnectError> {
        let (region, region_fd) =
            Region::create("memif", layout.total_size()).map_err(failed("cannot make memory to share"))?;
        let memory = Arc::new(Memory::new(vec![region]));
        let rings = |direction| -> Result<Vec<RingParts>, ConnectError> {
            (0..layout.rings(direction)).map(|index| make_ring(&memory, &layout, direction, index)).collect()
        };
        let (s2m, m2s) = (rings(Direction::S2m)?, rings(Direction::M2s)?);
        Ok(Resources { memory, region_fd, s2m, m2s, layout })
    }

    fn descriptor(&self, attachment: Attachment) -> Option<BorrowedFd<'_>> {
        let rings = match attachment {
            Attachment::None => return None,
            Attachment::Region => return Some(self.region_fd.as_fd()),
            Attachment::Ring(Direction::S2m, _) => &self.s2m,
            Attachment::Ring(Direction::M2s, _) => &self.m2s,
        };
        let Attachment::Ring(_, index) = attachment else { return None };
        rings.get(usize::from(index)).map(|parts| parts.eventfd.as_fd())
    }
}

fn make_ring(
    memory: &Arc<Memory>,
    layout: &Layout,
    direction: Direction,
    index: u16,
) -> Result<RingParts, ConnectError> {
    let ring = Ring::new(memory.clone(), &layout.ring(direction, index))?;
    ring.initialise();
    let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|e| failed("cannot make an eventfd")(e.into()))?;
    Ok(RingParts { ring, eventfd })
}

/// A connection in progress. Poll its descriptor for reading and call [`advance`](Attaching::advance) when it is ready.
#[derive(Debug)]
pub struct Attaching {
    socket: ClientFd,
    handshake: Handshake,
    resources: Option<Resources>,
}

/// Result of [`Attaching::advance`].
#[derive(Debug)]
pub enum Advance {
    /// The server has more messages to send.
    Waiting(Attaching),
    /// The connection is up.
    Done(Attached),
}

/// An established connection in the client's role.
///
/// The rings are empty: no buffers are posted to M2S rings, and interrupts are not masked. Slot `i` of a ring owns the
/// buffer at [`Layout::buffer`] of region 0.
#[derive(Debug)]
pub struct Attached {
    /// Memory, rings, eventfds, names.
    pub connection: Connection,
    /// The control connection; dropping it disconnects.
    pub control: Control,
}

impl Attaching {
    /// Connects to the server.
    pub fn start(config: ClientConfig) -> Result<Attaching, ConnectError> {
        let socket = dial(&config.socket)
            .map_err(|source| ConnectError::Dial { address: config.socket.clone(), source })?;
        Ok(Attaching::over(socket, config))
    }

    /// Continues on a non-blocking socket that is already connected to a server.
    pub fn over(socket: OwnedFd, config: ClientConfig) -> Attaching {
        Attaching {
            socket: config.closer.connection(socket),
            handshake: Handshake::new(config),
            resources: None,
        }
    }

    /// Returns the requested configuration.
    pub fn config(&self) -> &ClientConfig {
        self.handshake.config()
    }

    /// Processes and answers all messages that have arrived.
    pub fn advance(mut self) -> Result<Advance, ConnectError> {
        loop {
            let message = match recv(self.socket.as_fd(), &self.config().closer) {
                Ok(Some((message, _))) => message,
                Ok(None) => return Err(ConnectError::Closed),
                Err(e) if e.would_block() => return Ok(Advance::Waiting(self)),
                Err(e) => return Err(self.abort(e.into())),
            };
            match self.handshake.handle(message) {
                Ok(Progress::Send(outgoing)) => {
                    if let Err(e) = self.answer(&outgoing) {
                        return Err(self.abort(e));
                    }
                }
                Ok(Progress::Connected) => return self.finish().map(Advance::Done),
                Err(e @ HandshakeError::Refused(_)) => return Err(e.into()),
                Err(e) => return Err(self.abort(e.into())),
            }
        }
    }

    fn answer(&mut self, outgoing: &Outgoing) -> Result<(), ConnectError> {
        if self.resources.is_none()
            && let Some(layout) = self.handshake.layout()
        {
            self.resources = Some(Resources::new(*layout)?);
        }
        let descriptor = self.resources.as_ref().and_then(|r| r.descriptor(outgoing.attachment));
        send(self.socket.as_fd(), &outgoing.message, descriptor)
            .map_err(failed("cannot send on the control connection"))
    }

    fn abort(&self, error: ConnectError) -> ConnectError {
        // Best effort: the caller gets the error in any case.
        let _ = send(self.socket.as_fd(), &Message::disconnect(error.to_string()), None);
        error
    }

    fn finish(self) -> Result<Attached, ConnectError> {
        // CONNECTED answers CONNECT, which follows all announcements, so the resources exist.
        let Some(resources) = self.resources else { return Err(ConnectError::Closed) };
        let Resources { memory, region_fd, s2m, m2s, layout } = resources;
        let connection = Connection {
            id: self.handshake.config().id,
            memory,
            s2m,
            m2s,
            peer_name: self.handshake.peer_name().to_string(),
            peer_if_name: self.handshake.peer_if_name().to_string(),
        };
        let closer = self.handshake.config().closer.clone();
        let control = Control { socket: self.socket, closer, region_fd, layout, over: false };
        Ok(Attached { connection, control })
    }
}

impl AsFd for Attaching {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The control connection of an established connection. Dropping it disconnects.
#[derive(Debug)]
pub struct Control {
    socket: ClientFd,
    closer: Closer,
    region_fd: OwnedFd,
    layout: Layout,
    /// Whether either side has sent DISCONNECT.
    over: bool,
}

impl Control {
    /// Returns the reason for the disconnect, or `None` while the connection is up. Does not block.
    ///
    /// After a reason, the connection is unusable; a further call reports that the socket is closed.
    pub fn poll_disconnect(&mut self) -> Option<String> {
        let reason = match recv(self.socket.as_fd(), &self.closer) {
            Err(e) if e.would_block() => return None,
            Ok(Some((Message::Disconnect { reason, .. }, _))) => reason,
            Ok(Some((message, _))) => format!("unexpected {} while connected", message.type_name()),
            Ok(None) => "control connection closed".to_string(),
            Err(e) => e.to_string(),
        };
        self.over = true;
        Some(reason)
    }

    /// Sends the server a reason and disconnects.
    pub fn disconnect(mut self, reason: &str) {
        self.send_disconnect(reason);
    }

    /// Returns the file of the shared region.
    pub fn region_fd(&self) -> BorrowedFd<'_> {
        self.region_fd.as_fd()
    }

    /// Returns the layout of rings and buffers.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn send_disconnect(&mut self, reason: &str) {
        if !self.over {
            self.over = true;
            // Best effort: the server sees the socket close in any case.
            let _ = send(self.socket.as_fd(), &Message::disconnect(reason), None);
        }
    }
}

impl AsFd for Control {
    /// The control socket: readable when the server disconnects.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.send_disconnect("client closed the interface");
    }
}

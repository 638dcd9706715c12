//! The client's side of the handshake, without I/O.
//!
//! The client answers every message of the server with at most one of its own: HELLO with INIT, each ACK with the next
//! announcement, the last ACK with CONNECT.
//!
//! Invariant: the client announces nothing beyond the limits of the server's HELLO.

use super::config::ClientConfig;
use super::layout::{Direction, Layout, LayoutError};
use crate::message::{AddRegion, Hello, Init, MODE_ETHERNET, Message, VERSION};

/// Reasons for a failed handshake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The server does not support version 2.0.
    #[error("server supports memif versions {min:#06x} to {max:#06x}, this client {VERSION:#06x}")]
    Version {
        /// The server's lowest version.
        min: u16,
        /// The server's highest version.
        max: u16,
    },
    /// No layout fits the server's limits.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The server refused the client.
    #[error("refused by the server: {0}")]
    Refused(String),
    /// A message arrived out of order.
    #[error("unexpected {message} while waiting for {expected}")]
    Unexpected {
        /// The message.
        message: &'static str,
        /// The message that was expected.
        expected: &'static str,
    },
}

/// The descriptor sent with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// None.
    None,
    /// The region's file.
    Region,
    /// A ring's eventfd.
    Ring(Direction, u16),
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The message.
    pub message: Message,
    /// The descriptor sent with it.
    pub attachment: Attachment,
}

/// Next action after a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Send this message.
    Send(Outgoing),
    /// The connection is up.
    Connected,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    AwaitHello,
    /// This many of the region and the rings have been announced.
    AwaitAck(u32),
    AwaitConnected,
    Over,
}

/// One control connection from the client's side. The server speaks first.
#[derive(Debug)]
pub struct Handshake {
    config: ClientConfig,
    state: State,
    layout: Option<Layout>,
    peer_name: String,
    peer_if_name: String,
}

impl Handshake {
    /// Starts a handshake that requests `config`.
    pub fn new(config: ClientConfig) -> Handshake {
        Handshake {
            config,
            state: State::AwaitHello,
            layout: None,
            peer_name: String::new(),
            peer_if_name: String::new(),
        }
    }

    /// Returns the agreed layout: known once the server has sent HELLO, before any message carries a descriptor.
    pub fn layout(&self) -> Option<&Layout> {
        self.layout.as_ref()
    }

    /// Returns the name of the server's program; empty before HELLO.
    pub fn peer_name(&self) -> &str {
        &self.peer_name
    }

    /// Returns the server's name for the interface; empty before the connection is up.
    pub fn peer_if_name(&self) -> &str {
        &self.peer_if_name
    }

    /// Returns the requested configuration.
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Processes one message of the server.
    pub fn handle(&mut self, message: Message) -> Result<Progress, HandshakeError> {
        // A failure below leaves the handshake over.
        let state = std::mem::replace(&mut self.state, State::Over);
        match (state, message) {
            (_, Message::Disconnect { reason, .. }) => Err(HandshakeError::Refused(reason)),
            (State::AwaitHello, Message::Hello(hello)) => {
                self.layout = Some(self.agree(&hello)?);
                self.peer_name = hello.name;
                self.state = State::AwaitAck(0);
                Ok(send(Message::Init(self.init()), Attachment::None))
            }
            (State::AwaitAck(announced), Message::Ack) => {
                let next = self.layout.as_ref().and_then(|layout| announce(layout, announced));
                if let Some(outgoing) = next {
                    self.state = State::AwaitAck(announced + 1);
                    return Ok(Progress::Send(outgoing));
                }
                self.state = State::AwaitConnected;
                Ok(send(Message::Connect { if_name: self.config.if_name.clone() }, Attachment::None))
            }
            (State::AwaitConnected, Message::Connected { if_name }) => {
                self.peer_if_name = if_name;
                Ok(Progress::Connected)
            }
            (state, message) => {
                let expected = match state {
                    State::AwaitHello => "HELLO",
                    State::AwaitAck(_) => "ACK",
                    State::AwaitConnected => "CONNECTED",
                    State::Over => "nothing",
                };
                Err(HandshakeError::Unexpected { message: message.type_name(), expected })
            }
        }
    }

    fn agree(&self, hello: &Hello) -> Result<Layout, HandshakeError> {
        if !(hello.min_version..=hello.max_version).contains(&VERSION) {
            return Err(HandshakeError::Version { min: hello.min_version, max: hello.max_version });
        }
        // The server states the highest index. u16::MAX stands for 2^16 rings; u16::MAX of these are enough.
        let s2m = self.config.tx_queues.min(hello.max_s2m_ring.saturating_add(1));
        let m2s = self.config.rx_queues.min(hello.max_m2s_ring.saturating_add(1));
        let log2 = self.config.log2_ring_size.min(hello.max_log2_ring_size);
        Ok(Layout::new(s2m, m2s, log2, self.config.buffer_size)?)
    }

    fn init(&self) -> Init {
        Init {
            version: VERSION,
            id: self.config.id,
            mode: MODE_ETHERNET,
            secret: self.config.secret.unwrap_or_default(),
            name: self.config.name.clone(),
        }
    }
}

fn send(message: Message, attachment: Attachment) -> Progress {
    Progress::Send(Outgoing { message, attachment })
}

/// Returns the announcement after the first `announced` of the region and the rings, if any is left.
fn announce(layout: &Layout, announced: u32) -> Option<Outgoing> {
    let Some(ring) = announced.checked_sub(1) else {
        let region = AddRegion { index: 0, size: layout.total_size() };
        return Some(Outgoing { message: Message::AddRegion(region), attachment: Attachment::Region });
    };
    let s2m = u32::from(layout.rings(Direction::S2m));
    let (direction, index) = match ring.checked_sub(s2m) {
        None => (Direction::S2m, ring),
        Some(index) => (Direction::M2s, index),
    };
    let index = u16::try_from(index).ok().filter(|index| *index < layout.rings(direction))?;
    Some(Outgoing {
        message: Message::AddRing(layout.ring(direction, index)),
        attachment: Attachment::Ring(direction, index),
    })
}

//! The client's side of the handshake, without I/O.
//!
//! Every message of the server is answered by at most one of the client: HELLO by INIT, each ACK by the next thing to
//! announce, the last ACK by CONNECT.
//!
//! Invariant: nothing is announced that the server's HELLO did not allow.

use super::config::ClientConfig;
use super::layout::{Direction, Layout, LayoutError};
use crate::message::{AddRegion, Hello, Init, MODE_ETHERNET, Message, VERSION};

/// Why the handshake failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The server does not speak version 2.0.
    #[error("server speaks memif versions {min:#06x} to {max:#06x}, not {VERSION:#06x}")]
    Version {
        /// The server's lowest.
        min: u16,
        /// The server's highest.
        max: u16,
    },
    /// What the server allows cannot be laid out.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The server said no.
    #[error("refused by the server: {0}")]
    Refused(String),
    /// A message where it does not belong.
    #[error("unexpected {message} while waiting for {expected}")]
    Unexpected {
        /// The message.
        message: &'static str,
        /// What would have been right.
        expected: &'static str,
    },
}

/// The descriptor that goes with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// None.
    None,
    /// The file of the region.
    Region,
    /// The eventfd of a ring.
    Ring(Direction, u16),
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The message.
    pub message: Message,
    /// What goes with it.
    pub attachment: Attachment,
}

/// What to do after a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Send this.
    Send(Outgoing),
    /// The connection is up.
    Connected,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    AwaitHello,
    /// So many of the region and the rings have been announced.
    AwaitAck(u32),
    AwaitConnected,
    Over,
}

/// One control connection, seen by the client. The server speaks first.
#[derive(Debug)]
pub struct Handshake {
    config: ClientConfig,
    state: State,
    layout: Option<Layout>,
    peer_name: String,
    peer_if_name: String,
}

impl Handshake {
    /// A handshake that is to end in what `config` asks for.
    pub fn new(config: ClientConfig) -> Handshake {
        Handshake {
            config,
            state: State::AwaitHello,
            layout: None,
            peer_name: String::new(),
            peer_if_name: String::new(),
        }
    }

    /// What was agreed on: known once the server has said hello, before anything is attached to a message.
    pub fn layout(&self) -> Option<&Layout> {
        self.layout.as_ref()
    }

    /// The name of the server's program; empty before its hello.
    pub fn peer_name(&self) -> &str {
        &self.peer_name
    }

    /// The server's name for the interface; empty before the connection is up.
    pub fn peer_if_name(&self) -> &str {
        &self.peer_if_name
    }

    /// What was asked for.
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Takes one message of the server.
    pub fn handle(&mut self, message: Message) -> Result<Progress, HandshakeError> {
        // Whatever fails below leaves the handshake over.
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
        // The server states the highest index; u16::MAX stands for 2^16 rings, of which u16::MAX is enough.
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

/// The region, then the rings: what comes after `announced` of them, if anything.
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

//! The server's side of the handshake, without I/O.
//!
//! The owner of the socket sends [`Session::hello`], then passes every received message to [`Session::handle`] and
//! carries out the returned [`Step`]. On a [`Refusal`] it sends [`Refusal::to_message`] and closes the connection.
//!
//! Invariants:
//! - A client cannot make the server hold more than [`Limits`] allows: regions, their bytes, and rings with their
//!   descriptors are counted.
//! - A [`Connection`] is returned only after everything that the client announced has been checked.
//! - After a refusal, or a disconnect by the peer, the session refuses everything.

use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use clientmem::{ClientFd, FirstTouch, MapError, Region};

use crate::connection::{Connection, RingParts};
use crate::memory::Memory;
use crate::message::{
    AddRegion, AddRing, Hello, Init, MAX_LOG2_RING_SIZE, MODE_ETHERNET, Message, Secret, VERSION,
};
use crate::ring::{Ring, RingError, locate};

/// Resource limits of one client.
///
/// Clients share the process's address space, its mappings (65,530 by default, and as many regions as `clientmem` has
/// slots) and its file descriptors. These limits, times the number of clients, should fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Number of regions; at least 1.
    pub max_regions: u16,
    /// Total size of all regions in bytes.
    pub max_memory: u64,
    /// Number of rings in each direction; at least 1. Each holds a descriptor.
    pub max_rings: u16,
    /// The largest ring, as a power of two; at most [`MAX_LOG2_RING_SIZE`].
    pub max_log2_ring_size: u8,
}

impl Default for Limits {
    /// Returns limits that fit a thousand hostile clients: 16 regions with 64 GiB in total, 16 rings each way.
    fn default() -> Limits {
        Limits {
            max_regions: 16,
            max_memory: 64 << 30,
            max_rings: 16,
            max_log2_ring_size: MAX_LOG2_RING_SIZE,
        }
    }
}

/// An interface that clients can connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The name sent to the client.
    pub name: String,
    /// The secret that the client must know, if any.
    pub secret: Option<Secret>,
}

/// Finds an interface by its number, or refuses the client ([`Refusal::UnknownInterface`],
/// [`Refusal::AlreadyConnected`], [`Refusal::Other`]). Closures `Fn(u32) -> Result<Interface, Refusal>` implement it.
///
/// The lookup happens when the client names the interface, before its secret is checked. Several clients may be in
/// their handshake at once, so the receiver of the [`Connection`] must check again that the interface is still free.
pub trait Lookup {
    /// Returns the interface with this number.
    fn interface(&self, id: u32) -> Result<Interface, Refusal>;
}

impl<F: Fn(u32) -> Result<Interface, Refusal>> Lookup for F {
    fn interface(&self, id: u32) -> Result<Interface, Refusal> {
        self(id)
    }
}

/// Next action after a message.
#[derive(Debug)]
pub enum Step {
    /// Send this message.
    Reply(Message),
    /// Send the reply; the connection is up.
    Connected {
        /// The message to send.
        reply: Message,
        /// The established connection.
        connection: Connection,
    },
    /// Close the socket: the client has disconnected, for this reason.
    PeerDisconnected(String),
}

/// Reasons for refusing a client. The text fits in a [`Message::Disconnect`] in all but rare cases, where it is
/// truncated.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The client uses another version.
    #[error("incompatible memif version {}.{}, expected 2.0", version >> 8, version & 0xff)]
    Version {
        /// The client's version.
        version: u16,
    },
    /// No interface on this socket has the number.
    #[error("no interface with id {id}")]
    UnknownInterface {
        /// The number.
        id: u32,
    },
    /// Another client has the interface.
    #[error("interface id {id} is already connected")]
    AlreadyConnected {
        /// The number.
        id: u32,
    },
    /// The packets are not Ethernet frames.
    #[error("interface mode {mode} is not supported, only ethernet (0)")]
    Mode {
        /// The client's mode.
        mode: u8,
    },
    /// The client has no secret but needs one.
    #[error("secret required")]
    SecretRequired,
    /// The client's secret is wrong.
    #[error("incorrect secret")]
    SecretIncorrect,
    /// A message arrived out of order.
    #[error("unexpected {message} while {state}")]
    Unexpected {
        /// The message.
        message: &'static str,
        /// The state of the session.
        state: &'static str,
    },
    /// A message lacks its descriptor.
    #[error("{message} without a file descriptor")]
    NoDescriptor {
        /// The message.
        message: &'static str,
    },
    /// A message carries a descriptor that does not belong to it.
    #[error("{message} with a file descriptor")]
    StrayDescriptor {
        /// The message.
        message: &'static str,
    },
    /// A region is not the next one.
    #[error("region index {index}, expected {expected}")]
    RegionIndex {
        /// The announced index.
        index: u16,
        /// The next index.
        expected: usize,
    },
    /// Too many regions.
    #[error("more than {max} regions")]
    TooManyRegions {
        /// The limit.
        max: u16,
    },
    /// Too much memory.
    #[error("more than {max} bytes of memory")]
    TooMuchMemory {
        /// The limit.
        max: u64,
    },
    /// Mapping a region failed.
    #[error("region {index}: {source}")]
    Region {
        /// Its index.
        index: u16,
        /// The cause.
        source: MapError,
    },
    /// A ring is not the next one of its direction.
    #[error("{direction} ring index {index}, expected {expected}")]
    RingIndex {
        /// `S2M` or `M2S`.
        direction: &'static str,
        /// The announced index.
        index: u16,
        /// The next index.
        expected: usize,
    },
    /// Too many rings in a direction.
    #[error("more than {max} {direction} rings")]
    TooManyRings {
        /// `S2M` or `M2S`.
        direction: &'static str,
        /// The limit.
        max: u16,
    },
    /// A ring is larger than the server offered.
    #[error("{direction} ring {index}: size 2^{log2} is above the limit of 2^{max}")]
    RingSize {
        /// `S2M` or `M2S`.
        direction: &'static str,
        /// Its index.
        index: u16,
        /// The announced power of two.
        log2: u8,
        /// The limit.
        max: u8,
    },
    /// A ring is unusable.
    #[error("{direction} ring {index}: {source}")]
    Ring {
        /// `S2M` or `M2S`.
        direction: &'static str,
        /// Its index.
        index: u16,
        /// The cause.
        source: RingError,
    },
    /// The descriptor that came with a ring is not an eventfd.
    #[error("{direction} ring {index}: interrupt descriptor is not an eventfd")]
    NotEventfd {
        /// `S2M` or `M2S`.
        direction: &'static str,
        /// Its index.
        index: u16,
    },
    /// The client connects without having added a ring.
    #[error("CONNECT without any ring")]
    NoRings,
    /// A reason given by the owner of the interface.
    #[error("{0}")]
    Other(String),
}

impl Refusal {
    /// Returns the message that reports the refusal to the client.
    pub fn to_message(&self) -> Message {
        Message::disconnect(self.to_string())
    }
}

/// State of the handshake.
#[derive(Debug)]
enum State {
    /// HELLO is sent or about to be.
    AwaitInit,
    /// The client adds regions and rings.
    Building(Building),
    /// The connection is up.
    Connected,
    /// No further message is accepted.
    Over,
}

impl State {
    fn describe(&self) -> &'static str {
        match self {
            State::AwaitInit => "waiting for INIT",
            State::Building(_) => "waiting for regions, rings and CONNECT",
            State::Connected => "connected",
            State::Over => "disconnected",
        }
    }
}

/// Regions and rings that the client has announced so far.
#[derive(Debug)]
struct Building {
    id: u32,
    if_name: String,
    peer_name: String,
    regions: Vec<Region>,
    s2m: Vec<(AddRing, OwnedFd)>,
    m2s: Vec<(AddRing, OwnedFd)>,
}

/// One control connection from the server's side.
#[derive(Debug)]
pub struct Session {
    limits: Limits,
    first_touch: Option<FirstTouch>,
    name: String,
    state: State,
    interface: Option<u32>,
}

impl Session {
    /// Starts a session with a client that has just connected. `name` is the program name sent to the client. Limits
    /// that are out of range are brought into range.
    pub fn new(limits: Limits, name: impl Into<String>) -> Session {
        let limits = Limits {
            max_regions: limits.max_regions.max(1),
            max_memory: limits.max_memory,
            max_rings: limits.max_rings.max(1),
            max_log2_ring_size: limits.max_log2_ring_size.clamp(1, MAX_LOG2_RING_SIZE),
        };
        Session { limits, first_touch: None, name: name.into(), state: State::AwaitInit, interface: None }
    }

    /// Counts the allocation of the client's memory on first touch, for regions announced from now on.
    pub fn count_first_touch(&mut self, first_touch: FirstTouch) {
        self.first_touch = Some(first_touch);
    }

    /// Returns the message that opens the handshake, to be sent at once.
    pub fn hello(&self) -> Message {
        Message::Hello(Hello {
            name: self.name.clone(),
            min_version: VERSION,
            max_version: VERSION,
            // On the wire these are the highest index.
            max_region: self.limits.max_regions - 1,
            max_m2s_ring: self.limits.max_rings - 1,
            max_s2m_ring: self.limits.max_rings - 1,
            max_log2_ring_size: self.limits.max_log2_ring_size,
        })
    }

    /// Returns the number of the client's interface, once its request has been accepted.
    pub fn interface(&self) -> Option<u32> {
        self.interface
    }

    /// Processes one message and the descriptor that came with it.
    pub fn handle(
        &mut self,
        message: Message,
        fd: Option<impl Into<ClientFd>>,
        lookup: &dyn Lookup,
    ) -> Result<Step, Refusal> {
        let fd = fd.map(Into::into);
        // A failure below leaves the session over.
        let state = mem::replace(&mut self.state, State::Over);
        let name = message.type_name();
        if fd.is_some() && !matches!(message, Message::AddRegion(_) | Message::AddRing(_)) {
            return Err(Refusal::StrayDescriptor { message: name });
        }
        match (state, message) {
            (State::Over, _) => Err(Refusal::Unexpected { message: name, state: State::Over.describe() }),
            (_, Message::Disconnect { reason, .. }) => Ok(Step::PeerDisconnected(reason)),
            (State::AwaitInit, Message::Init(init)) => {
                let building = self.init(init, lookup)?;
                self.interface = Some(building.id);
                self.state = State::Building(building);
                Ok(Step::Reply(Message::Ack))
            }
            (State::Building(mut building), Message::AddRegion(region)) => {
                building.add_region(&self.limits, self.first_touch.as_ref(), region, fd)?;
                self.state = State::Building(building);
                Ok(Step::Reply(Message::Ack))
            }
            (State::Building(mut building), Message::AddRing(ring)) => {
                building.add_ring(&self.limits, ring, fd)?;
                self.state = State::Building(building);
                Ok(Step::Reply(Message::Ack))
            }
            (State::Building(building), Message::Connect { if_name }) => {
                let reply = Message::Connected { if_name: building.if_name.clone() };
                let connection = building.connect(if_name)?;
                self.state = State::Connected;
                Ok(Step::Connected { reply, connection })
            }
            (state, _) => Err(Refusal::Unexpected { message: name, state: state.describe() }),
        }
    }

    fn init(&self, init: Init, lookup: &dyn Lookup) -> Result<Building, Refusal> {
        // The interface comes first, so that its owner learns of every refusal.
        let interface = lookup.interface(init.id)?;
        if init.version != VERSION {
            return Err(Refusal::Version { version: init.version });
        }
        if init.mode != MODE_ETHERNET {
            return Err(Refusal::Mode { mode: init.mode });
        }
        if let Some(secret) = interface.secret {
            if init.secret.is_empty() {
                return Err(Refusal::SecretRequired);
            }
            if !secret.matches(&init.secret) {
                return Err(Refusal::SecretIncorrect);
            }
        }
        Ok(Building {
            id: init.id,
            if_name: interface.name,
            peer_name: init.name,
            regions: Vec::new(),
            s2m: Vec::new(),
            m2s: Vec::new(),
        })
    }
}

impl Building {
    fn add_region(
        &mut self,
        limits: &Limits,
        first_touch: Option<&FirstTouch>,
        add: AddRegion,
        fd: Option<ClientFd>,
    ) -> Result<(), Refusal> {
        let fd = fd.ok_or(Refusal::NoDescriptor { message: "ADD_REGION" })?;
        let AddRegion { index, size } = add;
        let expected = self.regions.len();
        if expected >= usize::from(limits.max_regions) {
            return Err(Refusal::TooManyRegions { max: limits.max_regions });
        }
        if usize::from(index) != expected {
            return Err(Refusal::RegionIndex { index, expected });
        }
        let used: u64 = self.regions.iter().map(Region::len).sum();
        if size > limits.max_memory.saturating_sub(used) {
            return Err(Refusal::TooMuchMemory { max: limits.max_memory });
        }
        let region = Region::map_counted(fd.as_fd(), 0, size, first_touch)
            .map_err(|source| Refusal::Region { index, source })?;
        self.regions.push(region);
        Ok(())
    }

    fn add_ring(&mut self, limits: &Limits, add: AddRing, fd: Option<ClientFd>) -> Result<(), Refusal> {
        let fd = fd.ok_or(Refusal::NoDescriptor { message: "ADD_RING" })?;
        let direction = direction(&add);
        let index = add.index;
        let rings = if add.is_s2m() { &mut self.s2m } else { &mut self.m2s };
        if rings.len() >= usize::from(limits.max_rings) {
            return Err(Refusal::TooManyRings { direction, max: limits.max_rings });
        }
        if usize::from(index) != rings.len() {
            return Err(Refusal::RingIndex { direction, index, expected: rings.len() });
        }
        let (log2, max) = (add.log2_ring_size, limits.max_log2_ring_size);
        if log2 > max {
            return Err(Refusal::RingSize { direction, index, log2, max });
        }
        // The check repeats when the ring is made; here it refuses the client at the message at fault.
        locate(&self.regions, &add).map_err(|source| Refusal::Ring { direction, index, source })?;
        let eventfd = fd.into_eventfd().ok_or(Refusal::NotEventfd { direction, index })?;
        rings.push((add, eventfd));
        Ok(())
    }

    fn connect(self, peer_if_name: String) -> Result<Connection, Refusal> {
        if self.s2m.is_empty() && self.m2s.is_empty() {
            return Err(Refusal::NoRings);
        }
        let memory = Arc::new(Memory::new(self.regions));
        let build = |rings: Vec<(AddRing, OwnedFd)>| -> Result<Vec<RingParts>, Refusal> {
            rings.into_iter().map(|(add, eventfd)| ring(&memory, &add, eventfd)).collect()
        };
        let (s2m, m2s) = (build(self.s2m)?, build(self.m2s)?);
        Ok(Connection { id: self.id, memory, s2m, m2s, peer_name: self.peer_name, peer_if_name })
    }
}

fn ring(memory: &Arc<Memory>, add: &AddRing, eventfd: OwnedFd) -> Result<RingParts, Refusal> {
    let refuse = |source| Refusal::Ring { direction: direction(add), index: add.index, source };
    let ring = Ring::new(memory.clone(), add).map_err(refuse)?;
    ring.check_cookie().map_err(refuse)?;
    Ok(RingParts { ring, eventfd })
}

fn direction(add: &AddRing) -> &'static str {
    if add.is_s2m() { "S2M" } else { "M2S" }
}

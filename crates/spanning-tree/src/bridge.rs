//! A bridge that runs either protocol, as the data path and the daemon see it.

use packet::MacAddr;

use crate::bpdu::Fault;
use crate::{Millis, rstp, stp};

/// Largest number of a port, and so the most ports of a bridge.
pub const MAX_PORTS: u8 = u8::MAX;

/// State of a port (IEEE 802.1D-1998 §8.4). RSTP has a single state, Discarding, for the first three; which one a port
/// has is told by its role (IEEE 802.1D-2004 table 17-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PortState {
    /// It takes no part: it has no link, or is switched off.
    #[default]
    Disabled,
    /// It would close a loop.
    Blocking,
    /// It is about to learn.
    Listening,
    /// It learns addresses, and is about to forward.
    Learning,
    /// It learns addresses and forwards.
    Forwarding,
}

impl PortState {
    /// Whether addresses are learned from packets that the port receives.
    pub fn learns(self) -> bool {
        matches!(self, Self::Learning | Self::Forwarding)
    }

    /// Whether packets are forwarded from and to the port.
    pub fn forwards(self) -> bool {
        self == Self::Forwarding
    }
}

/// The protocol that a bridge runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Spanning Tree Protocol.
    Stp,
    /// Rapid Spanning Tree Protocol.
    Rstp,
}

/// Stations to be forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Flush {
    /// None.
    #[default]
    Nothing,
    /// Those at ports with these numbers.
    Ports(Vec<u8>),
    /// All.
    All,
}

/// What a bridge does at a time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Frames to send, with the numbers of their ports.
    pub frames: Vec<(u8, Vec<u8>)>,
    /// Stations to be forgotten.
    pub flush: Flush,
}

/// BPDUs of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sent.
    pub sent: u64,
    /// Received, faulty ones included.
    pub received: u64,
    /// Received and ignored, since they are faulty.
    pub errors: u64,
}

/// A bridge with its protocol.
#[derive(Debug)]
pub enum Bridge {
    /// With STP.
    Stp(stp::Bridge),
    /// With RSTP.
    Rstp(rstp::Bridge),
}

/// Calls a method that both have.
macro_rules! each {
    ($bridge:expr, $it:ident => $call:expr) => {
        match $bridge {
            Bridge::Stp($it) => $call,
            Bridge::Rstp($it) => $call,
        }
    };
}

impl Bridge {
    /// The protocol.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Stp(_) => Protocol::Stp,
            Self::Rstp(_) => Protocol::Rstp,
        }
    }

    /// Sets whether a port has a link, and the address that it sends from.
    pub fn set_link(&mut self, port: u8, is_up: bool, address: MacAddr, now: Millis) {
        each!(self, it => it.set_link(port, is_up, address, now));
    }

    /// Processes a frame that a port has received.
    ///
    /// # Errors
    /// It is ignored: it is faulty.
    pub fn receive(&mut self, port: u8, frame: &[u8], now: Millis) -> Result<(), Fault> {
        each!(self, it => it.receive(port, frame, now))
    }

    /// Does what is due.
    pub fn run(&mut self, now: Millis) -> Outcome {
        each!(self, it => it.run(now))
    }

    /// Time of the next call of [`Bridge::run`], if nothing is received until then.
    pub fn next_due(&self) -> Option<Millis> {
        each!(self, it => it.next_due())
    }

    /// The state of a port.
    pub fn state(&self, port: u8) -> PortState {
        each!(self, it => it.state(port))
    }

    /// Counters of a port.
    pub fn counters(&self, port: u8) -> Counters {
        each!(self, it => it.counters(port))
    }

    /// Acts as if the topology had changed.
    pub fn change_topology(&mut self, now: Millis) {
        each!(self, it => it.change_topology(now));
    }

    /// Returns the bridge as text; `name`: the bridge's.
    pub fn show(&self, name: &str) -> String {
        each!(self, it => it.show(name))
    }
}

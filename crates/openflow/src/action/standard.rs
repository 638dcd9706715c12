//! Plain actions: outputs, resubmissions, addresses and the like.

use super::Content;
use crate::error::ErrorCode;
use crate::version::{Mac, PortNo, Version};
use crate::wire::{Coder, Step};

/// Sends the packet to a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Output {
    /// The port.
    pub port: PortNo,
    /// Bytes that a controller gets; 0xffff: all, unbuffered.
    pub max_len: u16,
}

impl Content for Output {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.port(&mut self.port)?;
        c.u16(&mut self.max_len)?;
        if c.version() == Version::V1_0 { Ok(()) } else { c.pad(6) }
    }
}

/// Sends the packet to a port's queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Enqueue {
    /// The port.
    pub port: PortNo,
    /// The queue.
    pub queue: u32,
}

impl Content for Enqueue {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.port16(&mut self.port)?;
        c.pad(6)?;
        c.u32(&mut self.queue)
    }
}

/// An Ethernet address to set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct EtherAddress(
    /// The address.
    pub Mac,
);

impl Content for EtherAddress {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.bytes(&mut self.0.0)?;
        c.pad(6)
    }
}

/// Looks the packet up again in the same table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Resubmit(
    /// The ingress port to pretend; [`PortNo::IN_PORT`]: the packet's own.
    pub PortNo,
);

impl Content for Resubmit {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.port16(&mut self.0)
    }
}

/// Looks the packet up in a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ResubmitTable {
    /// The ingress port to pretend; [`PortNo::IN_PORT`]: the packet's own.
    pub in_port: PortNo,
    /// The table; 0xff: the same.
    pub table: u8,
}

impl Content for ResubmitTable {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.port16(&mut self.in_port)?;
        c.u8(&mut self.table)?;
        c.zeros(3, ErrorCode::BacBadArgument)
    }
}

/// A comment.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Note(
    /// The bytes. Zeros are added up to the next multiple of 8 bytes of the action.
    pub Vec<u8>,
);

impl Content for Note {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.rest(&mut self.0)
    }
}

/// Sends part of the packet to a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OutputTrunc {
    /// The port.
    pub port: PortNo,
    /// Bytes to send.
    pub max_len: u32,
}

impl Content for OutputTrunc {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.port16(&mut self.port)?;
        c.u32(&mut self.max_len)
    }
}

/// One clause of a conjunctive match.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Conjunction {
    /// The clause, from 0.
    pub clause: u8,
    /// Clauses in all.
    pub clauses: u8,
    /// The conjunction's id.
    pub id: u32,
}

impl Content for Conjunction {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u8(&mut self.clause)?;
        c.u8(&mut self.clauses)?;
        c.u32(&mut self.id)
    }
}

/// Timeouts of the flow from the end of a TCP connection on, in seconds; 0: unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FinTimeout {
    /// Idle timeout.
    pub idle: u16,
    /// Hard timeout.
    pub hard: u16,
}

impl Content for FinTimeout {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u16(&mut self.idle)?;
        c.u16(&mut self.hard)?;
        c.pad(2)
    }
}

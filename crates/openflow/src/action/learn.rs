//! Learning: a packet that meets the action adds a flow made from the packet.

use super::Content;
use crate::error::ErrorCode;
use crate::oxm::{OxmHeader, Subfield};
use crate::wire::{Coder, Record, Step};

bitflags::bitflags! {
    /// Options of a learning action.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct LearnFlags: u16 {
        /// The learned flow reports its removal.
        const SEND_FLOW_REM = 1;
        /// The learned flows go away with the action's flow.
        const DELETE_LEARNED = 1 << 1;
        /// The action stores whether the flow is there ([`Learn2::result`]).
        const WRITE_RESULT = 1 << 2;
    }
}

/// Adds a flow made from the packet.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Learn {
    /// Idle timeout in seconds.
    pub idle_timeout: u16,
    /// Hard timeout in seconds.
    pub hard_timeout: u16,
    /// Priority.
    pub priority: u16,
    /// Cookie.
    pub cookie: u64,
    /// Options.
    pub flags: LearnFlags,
    /// Table.
    pub table: u8,
    /// Idle timeout after the end of a TCP connection.
    pub fin_idle_timeout: u16,
    /// Hard timeout after the end of a TCP connection.
    pub fin_hard_timeout: u16,
    /// The flow's match and actions.
    pub specs: Vec<LearnSpec>,
}

impl Learn {
    fn walk_head<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u16(&mut self.idle_timeout)?;
        c.u16(&mut self.hard_timeout)?;
        c.u16(&mut self.priority)?;
        c.u64(&mut self.cookie)?;
        c.flags16(&mut self.flags)?;
        c.u8(&mut self.table)?;
        c.zeros(1, ErrorCode::BacBadArgument)?;
        c.u16(&mut self.fin_idle_timeout)?;
        c.u16(&mut self.fin_hard_timeout)
    }

    /// The specs: a zero header, or the action's end, ends them.
    fn walk_specs<C: Coder>(&mut self, c: &mut C) -> Step {
        if !C::READS {
            return self.specs.iter_mut().try_for_each(|spec| spec.walk(c));
        }
        while c.more() {
            // Padding may be a single byte.
            if c.left() < 2 {
                return c.zeros(1, ErrorCode::BacBadArgument);
            }
            let mut spec = LearnSpec::default();
            if !spec.walk_header(c)? {
                break;
            }
            spec.walk_rest(c)?;
            self.specs.push(spec);
        }
        c.zeros(c.left(), ErrorCode::BacBadArgument)
    }
}

impl Content for Learn {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        self.walk_head(c)?;
        self.walk_specs(c)
    }
}

/// Adds a flow made from the packet, up to a limit of flows.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Learn2 {
    /// The flow.
    pub learn: Learn,
    /// Flows at most; 0: unlimited.
    pub limit: u32,
    /// The bit that tells whether the flow is there, if [`LearnFlags::WRITE_RESULT`] is set.
    pub result: Subfield,
}

impl Content for Learn2 {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        self.learn.walk_head(c)?;
        c.u32(&mut self.limit)?;
        c.u16(&mut self.result.offset)?;
        c.zeros(2, ErrorCode::NxBacMustBeZero)?;
        if self.learn.flags.contains(LearnFlags::WRITE_RESULT) {
            self.result.bits = 1;
            c.record(&mut self.result.header)?;
        } else {
            c.refuse_if(self.result.offset != 0, ErrorCode::BacBadArgument)?;
        }
        self.learn.walk_specs(c)
    }
}

/// Part of the learned flow.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct LearnSpec {
    /// Bits that the part is about.
    pub bits: u16,
    /// Where the value comes from.
    pub source: LearnSource,
    /// What it is for.
    pub destination: LearnDestination,
}

/// Where a learned value comes from. The number of bits is [`LearnSpec::bits`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LearnSource {
    /// A field of the packet, from a bit on.
    Field(OxmHeader, u16),
    /// A value: the low bits of a whole number of 16-bit words.
    Immediate(Vec<u8>),
}

impl Default for LearnSource {
    fn default() -> Self {
        LearnSource::Immediate(Vec::new())
    }
}

/// What a learned value is for. The number of bits is [`LearnSpec::bits`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum LearnDestination {
    /// The learned flow matches it in a field, from a bit on.
    Match(OxmHeader, u16),
    /// The learned flow sets a field to it, from a bit on.
    Load(OxmHeader, u16),
    /// The learned flow sends packets to this port.
    #[default]
    Output,
}

const BITS: u16 = 0x3ff;
const FROM_VALUE: u16 = 1 << 13;
const DESTINATION: u16 = 3 << 11;
const TO_LOAD: u16 = 1 << 11;
const TO_OUTPUT: u16 = 2 << 11;

impl LearnSpec {
    /// The spec's kind and bits. `false`: there is no further spec.
    fn walk_header<C: Coder>(&mut self, c: &mut C) -> Step<bool> {
        let mut header = self.bits
            | match self.source {
                LearnSource::Field(..) => 0,
                LearnSource::Immediate(_) => FROM_VALUE,
            }
            | match self.destination {
                LearnDestination::Match(..) => 0,
                LearnDestination::Load(..) => TO_LOAD,
                LearnDestination::Output => TO_OUTPUT,
            };
        c.refuse_if(!C::READS && (self.bits > BITS || header == 0), ErrorCode::BacBadArgument)?;
        c.u16(&mut header)?;
        if header == 0 {
            return Ok(false);
        }
        // Reserved bits are ignored, but nothing else would be left of this spec.
        c.refuse_if(header & (BITS | FROM_VALUE | DESTINATION) == 0, ErrorCode::BacBadArgument)?;
        if C::READS {
            self.bits = header & BITS;
            self.source = match header & FROM_VALUE {
                0 => LearnSource::Field(OxmHeader::default(), 0),
                _ => LearnSource::default(),
            };
            self.destination = match header & DESTINATION {
                0 => LearnDestination::Match(OxmHeader::default(), 0),
                TO_LOAD => LearnDestination::Load(OxmHeader::default(), 0),
                TO_OUTPUT if header & FROM_VALUE == 0 => LearnDestination::Output,
                _ => return c.refuse(ErrorCode::BacBadArgument),
            };
        }
        Ok(true)
    }

    fn walk_rest<C: Coder>(&mut self, c: &mut C) -> Step {
        match &mut self.source {
            LearnSource::Field(header, offset) => {
                header.walk32(c)?;
                c.u16(offset)?;
            }
            LearnSource::Immediate(value) => {
                let len = usize::from(self.bits).div_ceil(16) * 2;
                c.refuse_if(!C::READS && value.len() != len, ErrorCode::BacBadArgument)?;
                c.buffer(value, len)?;
            }
        }
        match &mut self.destination {
            LearnDestination::Match(header, offset) | LearnDestination::Load(header, offset) => {
                header.walk32(c)?;
                c.u16(offset)
            }
            LearnDestination::Output => Ok(()),
        }
    }
}

impl Record for LearnSpec {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        if self.walk_header(c)? { self.walk_rest(c) } else { Ok(()) }
    }
}

impl Learn {
    /// Refuses a flow that cannot be.
    pub(super) fn check(&self) -> Result<(), ErrorCode> {
        let flags = LearnFlags::SEND_FLOW_REM | LearnFlags::DELETE_LEARNED;
        if self.table == 0xff || !flags.contains(self.flags) {
            return Err(ErrorCode::BacBadArgument);
        }
        self.specs.iter().try_for_each(LearnSpec::check)
    }
}

impl Learn2 {
    /// Refuses a flow that cannot be.
    pub(super) fn check(&self) -> Result<(), ErrorCode> {
        if self.learn.table == 0xff || !LearnFlags::all().contains(self.learn.flags) {
            return Err(ErrorCode::BacBadArgument);
        }
        if self.learn.flags.contains(LearnFlags::WRITE_RESULT) {
            self.result.check_writable()?;
        }
        self.learn.specs.iter().try_for_each(LearnSpec::check)
    }
}

impl LearnSpec {
    fn check(&self) -> Result<(), ErrorCode> {
        let part = |header, offset| Subfield { header, offset, bits: self.bits };
        if let LearnSource::Field(header, offset) = self.source {
            part(header, offset).check()?;
        }
        match self.destination {
            LearnDestination::Match(header, offset) => part(header, offset).check().map(drop),
            LearnDestination::Load(header, offset) => part(header, offset).check_writable().map(drop),
            LearnDestination::Output => Ok(()),
        }
    }
}

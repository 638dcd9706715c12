//! Actions on fields: set, copy, push and pop, and outputs that a field chooses.

use super::Content;
use crate::error::ErrorCode;
use crate::oxm::{Oxm, OxmHeader, Subfield};
use crate::version::Version;
use crate::wire::{Coder, Step};

/// Sets a field: all of it, or since version 1.5 the bits of a mask.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct SetField(
    /// The field and its value.
    pub Oxm,
);

impl Content for SetField {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.record(&mut self.0)?;
        c.zeros(c.offset().next_multiple_of(8) - c.offset(), ErrorCode::BacBadSetArgument)
    }
}

/// Sets a field under a mask (Nicira's form of [`SetField`]).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct RegLoad2(
    /// The field and its value.
    pub Oxm,
);

impl Content for RegLoad2 {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.record(&mut self.0)?;
        c.zeros(c.offset().next_multiple_of(8) - c.offset(), ErrorCode::BacBadSetArgument)
    }
}

/// Sets up to 64 bits of a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RegLoad {
    /// The bits to set.
    pub destination: Subfield,
    /// The value.
    pub value: u64,
}

impl Content for RegLoad {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        self.destination.walk_range(c)?;
        self.destination.header.walk32(c)?;
        c.u64(&mut self.value)
    }
}

/// Copies bits between fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RegMove {
    /// The bits to read.
    pub source: Subfield,
    /// The bits to write, as many.
    pub destination: Subfield,
}

/// Walks the number of bits and both offsets of a copy.
fn walk_copy<C: Coder>(source: &mut Subfield, destination: &mut Subfield, c: &mut C) -> Step {
    c.refuse_if(!C::READS && source.bits != destination.bits, ErrorCode::BacBadArgument)?;
    c.u16(&mut source.bits)?;
    destination.bits = source.bits;
    c.u16(&mut source.offset)?;
    c.u16(&mut destination.offset)
}

/// Padding that Open vSwitch wants zero, up to the action's end or `len`.
fn must_be_zero<C: Coder>(c: &mut C, len: usize) -> Step {
    let end = c.offset().next_multiple_of(8).max(len);
    c.zeros(end - c.offset(), ErrorCode::NxBrcMustBeZero)
}

impl Content for RegMove {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        walk_copy(&mut self.source, &mut self.destination, c)?;
        c.record(&mut self.source.header)?;
        c.record(&mut self.destination.header)?;
        must_be_zero(c, 24)
    }
}

/// Copies bits between fields (ONF's extension in versions 1.3 and 1.4, the standard's action in 1.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CopyField {
    /// The bits to read.
    pub source: Subfield,
    /// The bits to write, as many.
    pub destination: Subfield,
}

impl Content for CopyField {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        if c.version() < Version::V1_5 {
            c.pad(2)?;
        }
        walk_copy(&mut self.source, &mut self.destination, c)?;
        c.pad(2)?;
        c.record(&mut self.source.header)?;
        c.record(&mut self.destination.header)?;
        must_be_zero(c, 24)
    }
}

/// Part of a field that is pushed to the stack or popped from it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stack(
    /// The bits.
    pub Subfield,
);

impl Content for Stack {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u16(&mut self.0.offset)?;
        c.record(&mut self.0.header)?;
        c.u16(&mut self.0.bits)?;
        must_be_zero(c, 24)
    }
}

/// Sends the packet to the port that a field names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OutputReg {
    /// The port's number.
    pub source: Subfield,
    /// Bytes that a controller gets.
    pub max_len: u16,
}

impl Content for OutputReg {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        self.source.walk_range(c)?;
        self.source.header.walk32(c)?;
        c.u16(&mut self.max_len)?;
        c.zeros(6, ErrorCode::BacBadArgument)
    }
}

/// Sends the packet to the port that a field names, of an experimenter's class too.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OutputReg2 {
    /// The port's number.
    pub source: Subfield,
    /// Bytes that a controller gets.
    pub max_len: u16,
}

impl Content for OutputReg2 {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        self.source.walk_range(c)?;
        c.u16(&mut self.max_len)?;
        c.record(&mut self.source.header)?;
        must_be_zero(c, 24)
    }
}

/// Stores whether the packet is longer than a limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CheckPacketLarger {
    /// The limit in bytes.
    pub limit: u16,
    /// The bit that is set.
    pub destination: Subfield,
}

impl Content for CheckPacketLarger {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u16(&mut self.limit)?;
        c.u16(&mut self.destination.offset)?;
        self.destination.bits = 1;
        c.record(&mut self.destination.header)?;
        must_be_zero(c, 24)
    }
}

/// Removes a field of variable length from the packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DeleteField(
    /// The field.
    pub OxmHeader,
);

impl Content for DeleteField {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.record(&mut self.0)?;
        c.pad(24usize.saturating_sub(c.offset()))
    }
}

/// Sets bits of the metadata.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct WriteMetadata {
    /// The value.
    pub value: u64,
    /// The bits to set.
    pub mask: u64,
}

impl Content for WriteMetadata {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.zeros(6, ErrorCode::NxBrcMustBeZero)?;
        c.u64(&mut self.value)?;
        c.u64(&mut self.mask)
    }
}

//! Adding and removing headers of any type. Decoded and kept; no switch of ours executes them.

use super::Content;
use crate::error::ErrorCode;
use crate::wire::{Coder, Record, Step};

/// A property of a header to add.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct EncapProperty {
    /// Who defines the property.
    pub class: u16,
    /// Its type there.
    pub kind: u8,
    /// Its content.
    pub body: Vec<u8>,
}

impl Record for EncapProperty {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        let fault = c.fault(ErrorCode::NxBacBadEdProp);
        let Ok(mut len) = u8::try_from(self.body.len() + 4) else { return Err(fault) };
        c.u16(&mut self.class)?;
        c.u8(&mut self.kind)?;
        c.u8(&mut len)?;
        let len = usize::from(len);
        let Some(body) = len.checked_sub(4) else { return Err(fault) };
        c.buffer(&mut self.body, body)?;
        c.pad(len.next_multiple_of(8) - len)
    }
}

/// Adds a header.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Encap {
    /// The header's size; 0: as the type has it.
    pub header_size: u16,
    /// Namespace and type of the new packet.
    pub packet_type: u32,
    /// Properties of the header.
    pub properties: Vec<EncapProperty>,
}

impl Content for Encap {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u16(&mut self.header_size)?;
        c.u32(&mut self.packet_type)?;
        c.reporting(ErrorCode::NxBacBadEdProp, |c| c.list(&mut self.properties))
    }
}

/// Removes the outermost header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Decap(
    /// Namespace and type of the new packet; 0x0000fffe: as the header says.
    pub u32,
);

impl Content for Decap {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.pad(2)?;
        c.u32(&mut self.0)?;
        c.refuse_if(C::READS && c.more(), ErrorCode::NxBacUnknownEdProp)
    }
}

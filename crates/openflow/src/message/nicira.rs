//! Nicira's own messages: formats, tunnel metadata, connection tracking.

use crate::error::ErrorCode;
use crate::property::{Bytes, properties};
use crate::wire::{Coder, Record, Step, layout, numbers};

/// Whether a flow-mod's command has a table in its upper byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowModTableId(
    /// Nonzero: it has.
    pub u8,
);

impl Record for FlowModTableId {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u8(&mut self.0)?;
        c.pad(7)
    }
}

/// A number of 16 bits behind zeros: a controller's id, or a zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Id16(
    /// The number.
    pub u16,
);

impl Record for Id16 {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.zeros(6, ErrorCode::NxBrcMustBeZero)?;
        c.u16(&mut self.0)
    }
}

numbers! {
    /// What to do with tunnel metadata.
    pub enum TlvTableCommand: u16 / u16 else NxTtmfcBadCommand {
        /// Maps options to fields.
        #[default]
        Add = 0,
        /// Removes maps.
        Delete = 1,
        /// Removes all maps.
        Clear = 2,
    }
}

/// A tunnel option and its field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TlvMap {
    /// The option's class.
    pub class: u16,
    /// The option's type.
    pub kind: u8,
    /// The option's length in bytes.
    pub length: u8,
    /// The field: `tun_metadata` with this number.
    pub index: u16,
}

layout!(TlvMap { class: u16, kind: u8, length: u8, index: u16, _: 2, });

/// Changes the maps of tunnel options.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TlvTableMod {
    /// What to do.
    pub command: TlvTableCommand,
    /// Maps.
    pub maps: Vec<TlvMap>,
}

layout!(TlvTableMod { command: record, _: 6, maps: list, });

impl TlvTableMod {
    /// Refuses maps that no switch accepts.
    pub(crate) fn check(&self) -> Result<(), ErrorCode> {
        if self.command != TlvTableCommand::Add {
            return Ok(());
        }
        self.maps.iter().try_for_each(|map| match map {
            TlvMap { index: 64.., .. } => Err(ErrorCode::NxTtmfcBadFieldIdx),
            TlvMap { length, .. } if *length == 0 || length % 4 != 0 || *length > 124 => {
                Err(ErrorCode::NxTtmfcBadOptLen)
            }
            _ => Ok(()),
        })
    }
}

/// The maps of tunnel options.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TlvTableReply {
    /// Bytes of options that fit.
    pub max_space: u32,
    /// Fields.
    pub max_fields: u16,
    /// Maps.
    pub maps: Vec<TlvMap>,
}

layout!(TlvTableReply { max_space: u32, max_fields: u16, _: 10, maps: list, });

properties! {
    /// What connections to forget.
    pub enum CtFlushProperty {
        /// The original direction's addresses: properties in turn.
        0 => Original(Bytes),
        /// The reply direction's addresses: properties in turn.
        1 => Reply(Bytes),
        /// The zone.
        2 => Zone(crate::property::Padded16),
        /// The mark.
        3 => Mark(u32),
        /// Bits of the mark.
        4 => MarkMask(u32),
        /// The label.
        5 => Labels(Bytes),
        /// Bits of the label.
        6 => LabelsMask(Bytes),
    }
}

/// Forgets connections.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct CtFlush {
    /// IP protocol; 0: any.
    pub protocol: u8,
    /// Which connections.
    pub properties: Vec<CtFlushProperty>,
}

impl Record for CtFlush {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u8(&mut self.protocol)?;
        c.zeros(7, ErrorCode::NxBrcMustBeZero)?;
        c.list(&mut self.properties)
    }
}

//! Tables: configuration, descriptions and features.

use crate::error::ErrorCode;
use crate::oxm::OxmHeader;
use crate::property::properties;
use crate::version::Version;
use crate::wire::{Coder, Record, Step, Text, layout};

bitflags::bitflags! {
    /// A table's configuration.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct TableConfig: u32 {
        /// What happens to packets without a match, up to version 1.2: 0 controller, 1 next table, 2 drop.
        const MISS_MASK = 3;
        /// Flows may be evicted, since version 1.4.
        const EVICTION = 1 << 2;
        /// Vacancy is reported, since version 1.4.
        const VACANCY_EVENTS = 1 << 3;
    }
}

/// Thresholds of a table's free space, in per cent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Vacancy {
    /// Reported when free space falls below.
    pub down: u8,
    /// Reported when free space rises above.
    pub up: u8,
    /// Free space, in descriptions.
    pub current: u8,
}

layout!(Vacancy { down: u8, up: u8, current: u8, _: 1, });

properties! {
    /// A property of a table's configuration.
    pub enum TableModProperty {
        /// What eviction goes by: bit 0 other, 1 importance, 2 lifetime.
        2 => Eviction(u32),
        /// Thresholds of free space.
        3 => Vacancy(Vacancy),
    }
}

/// Changes a table's configuration.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TableMod {
    /// The table, or all.
    pub table_id: u8,
    /// The new configuration.
    pub config: TableConfig,
    /// Properties, since version 1.4.
    pub properties: Vec<TableModProperty>,
}

impl Record for TableMod {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u8(&mut self.table_id)?;
        c.pad(3)?;
        c.flags32(&mut self.config)?;
        if c.version() >= Version::V1_4 { c.list(&mut self.properties) } else { Ok(()) }
    }
}

/// A table's description.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TableDesc {
    /// The table.
    pub table_id: u8,
    /// Its configuration.
    pub config: TableConfig,
    /// Properties.
    pub properties: Vec<TableModProperty>,
}

impl Record for TableDesc {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.entry(0, ErrorCode::BrcBadLen, |c| {
            c.pad(2)?;
            c.u8(&mut self.table_id)?;
            c.pad(1)?;
            c.flags32(&mut self.config)?;
            c.list(&mut self.properties)
        })
    }
}

/// A table has changed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TableStatus {
    /// What happened: 3 free space fell below its threshold, 4 it rose above.
    pub reason: u8,
    /// The table.
    pub table: TableDesc,
}

layout!(TableStatus { reason: u8, _: 7, table: record, });

/// The type of an action or instruction, with what an experimenter's has besides.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TypeId {
    /// The type.
    pub kind: u16,
    /// What follows type and length: padding, or an experimenter's id.
    pub body: Vec<u8>,
}

impl Record for TypeId {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.entry(2, ErrorCode::BpcBadLen, |c| {
            c.u16(&mut self.kind)?;
            c.pad(2)?;
            c.rest(&mut self.body)
        })
    }
}

macro_rules! lists {
    ($($(#[$doc:meta])* $name:ident($item:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name(
            /// The list.
            pub Vec<$item>,
        );

        impl Record for $name {
            fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
                c.list(&mut self.0)
            }
        }
    )*};
}

lists! {
    /// Types of actions or instructions.
    TypeIds(TypeId);
    /// Tables.
    TableIds(u8);
    /// Fields, as OXM headers; a header with a mask stands for one that may be masked.
    FieldIds(OxmHeader);
    /// 32-bit words.
    Words(u32);
}

properties! {
    /// What a table can do. A property with an odd number is for packets without a match.
    pub enum TableFeature {
        /// Instructions.
        0 => Instructions(TypeIds),
        /// Instructions without a match.
        1 => InstructionsMiss(TypeIds),
        /// Tables to continue in.
        2 => NextTables(TableIds),
        /// Tables to continue in without a match.
        3 => NextTablesMiss(TableIds),
        /// Actions in the action set.
        4 => WriteActions(TypeIds),
        /// Actions in the action set without a match.
        5 => WriteActionsMiss(TypeIds),
        /// Actions at once.
        6 => ApplyActions(TypeIds),
        /// Actions at once without a match.
        7 => ApplyActionsMiss(TypeIds),
        /// Fields to match.
        8 => Match(FieldIds),
        /// Fields that need not be matched.
        10 => Wildcards(FieldIds),
        /// Fields that the action set may set.
        12 => WriteSetField(FieldIds),
        /// Fields that the action set may set without a match.
        13 => WriteSetFieldMiss(FieldIds),
        /// Fields that may be set at once.
        14 => ApplySetField(FieldIds),
        /// Fields that may be set at once without a match.
        15 => ApplySetFieldMiss(FieldIds),
        /// Tables whose flows the table copies, since version 1.4.
        16 => SyncFrom(TableIds),
        /// Fields that the action set may copy, since version 1.5.
        18 => WriteCopyField(FieldIds),
        /// Fields that the action set may copy without a match, since version 1.5.
        19 => WriteCopyFieldMiss(FieldIds),
        /// Fields that may be copied at once, since version 1.5.
        20 => ApplyCopyField(FieldIds),
        /// Fields that may be copied at once without a match, since version 1.5.
        21 => ApplyCopyFieldMiss(FieldIds),
        /// Packet types, since version 1.5.
        22 => PacketTypes(Words),
    }
}

/// What a table can do.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TableFeatures {
    /// The table.
    pub table_id: u8,
    /// What a request asks for, since version 1.5: 0 replace, 1 modify, 2 enable, 3 disable.
    pub command: u8,
    /// Features, since version 1.5: bit 0 ingress, 1 egress, 4 first egress.
    pub features: u32,
    /// The name.
    pub name: Text,
    /// Bits of metadata to match.
    pub metadata_match: u64,
    /// Bits of metadata to write.
    pub metadata_write: u64,
    /// Configuration that the table supports; before version 1.4 its configuration.
    pub capabilities: TableConfig,
    /// Flows that it can hold.
    pub max_entries: u32,
    /// What it can do.
    pub properties: Vec<TableFeature>,
}

/// Bytes of a table's name.
pub(crate) const NAME: usize = 32;

impl Record for TableFeatures {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.entry(0, ErrorCode::BrcBadLen, |c| {
            c.pad(2)?;
            c.u8(&mut self.table_id)?;
            if c.version() >= Version::V1_5 {
                c.u8(&mut self.command)?;
                c.u32(&mut self.features)?;
            } else {
                c.pad(5)?;
            }
            c.text(&mut self.name, NAME)?;
            c.u64(&mut self.metadata_match)?;
            c.u64(&mut self.metadata_write)?;
            c.flags32(&mut self.capabilities)?;
            c.u32(&mut self.max_entries)?;
            c.list(&mut self.properties)
        })
    }
}

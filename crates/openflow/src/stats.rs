//! A flow's statistics: OXS in version 1.5, fixed fields before.

use crate::error::ErrorCode;
use crate::wire::{Coder, Record, Step};

/// A statistic.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Stat {
    /// The flow's age: seconds and nanoseconds.
    Duration(u32, u32),
    /// Time without packets: seconds and nanoseconds.
    IdleTime(u32, u32),
    /// Flows, in sums over several.
    FlowCount(u32),
    /// Packets.
    PacketCount(u64),
    /// Bytes.
    ByteCount(u64),
    /// An unknown statistic: class, number with the reserved bit, value.
    Other(u16, u8, Vec<u8>),
}

impl Default for Stat {
    fn default() -> Self {
        Stat::Other(0, 0, Vec::new())
    }
}

/// Class of the standard's statistics.
const BASIC: u16 = 0x8002;

impl Record for Stat {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        let (mut class, mut number, mut len) = match self {
            Stat::Duration(..) => (BASIC, 0, 8),
            Stat::IdleTime(..) => (BASIC, 1 << 1, 8),
            Stat::FlowCount(_) => (BASIC, 3 << 1, 4),
            Stat::PacketCount(_) => (BASIC, 4 << 1, 8),
            Stat::ByteCount(_) => (BASIC, 5 << 1, 8),
            Stat::Other(class, number, value) => match u8::try_from(value.len()) {
                Ok(len) => (*class, *number, len),
                Err(_) => return c.refuse(ErrorCode::BrcBadLen),
            },
        };
        c.u16(&mut class)?;
        c.u8(&mut number)?;
        c.u8(&mut len)?;
        if C::READS {
            *self = match (class, number, len) {
                (BASIC, 0, 8) => Stat::Duration(0, 0),
                (BASIC, 2, 8) => Stat::IdleTime(0, 0),
                (BASIC, 6, 4) => Stat::FlowCount(0),
                (BASIC, 8, 8) => Stat::PacketCount(0),
                (BASIC, 10, 8) => Stat::ByteCount(0),
                _ => Stat::Other(class, number, Vec::new()),
            };
        }
        match self {
            Stat::Duration(seconds, nanoseconds) | Stat::IdleTime(seconds, nanoseconds) => {
                c.u32(seconds)?;
                c.u32(nanoseconds)
            }
            Stat::FlowCount(count) => c.u32(count),
            Stat::PacketCount(count) | Stat::ByteCount(count) => c.u64(count),
            Stat::Other(_, _, value) => c.buffer(value, len.into()),
        }
    }
}

/// A flow's statistics. Before version 1.5, messages have some of them in fixed fields; absent ones are sent as zero.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowStats(
    /// The statistics.
    pub Vec<Stat>,
);

macro_rules! statistic {
    ($($(#[$doc:meta])* $get:ident $set:ident $variant:ident($($part:ident: $int:ty),+);)*) => {$(
        $(#[$doc])*
        pub fn $get(&self) -> Option<statistic!(@type $($int),+)> {
            self.0.iter().find_map(|stat| match stat {
                Stat::$variant($($part),+) => Some(statistic!(@value $($part),+)),
                _ => None,
            })
        }

        fn $set(&mut self, $($part: $int),+) {
            self.0.retain(|stat| !matches!(stat, Stat::$variant(..)));
            self.0.push(Stat::$variant($($part),+));
        }
    )*};
    (@type $int:ty) => { $int };
    (@type $a:ty, $b:ty) => { ($a, $b) };
    (@value $a:ident) => { *$a };
    (@value $a:ident, $b:ident) => { (*$a, *$b) };
}

impl FlowStats {
    /// The statistics that all versions have.
    pub fn new(duration: (u32, u32), packets: u64, bytes: u64) -> Self {
        FlowStats(vec![
            Stat::Duration(duration.0, duration.1),
            Stat::PacketCount(packets),
            Stat::ByteCount(bytes),
        ])
    }

    statistic! {
        /// The flow's age: seconds and nanoseconds.
        duration set_duration Duration(seconds: u32, nanoseconds: u32);
        /// Packets.
        packets set_packets PacketCount(count: u64);
        /// Bytes.
        bytes set_bytes ByteCount(count: u64);
        /// Flows, in sums over several.
        flows set_flows FlowCount(count: u32);
    }

    /// Time without packets: seconds and nanoseconds.
    pub fn idle_time(&self) -> Option<(u32, u32)> {
        self.0.iter().find_map(|stat| match stat {
            Stat::IdleTime(seconds, nanoseconds) => Some((*seconds, *nanoseconds)),
            _ => None,
        })
    }

    /// The duration in fixed fields.
    pub(crate) fn walk_duration<C: Coder>(&mut self, c: &mut C) -> Step {
        let (mut seconds, mut nanoseconds) = self.duration().unwrap_or_default();
        c.u32(&mut seconds)?;
        c.u32(&mut nanoseconds)?;
        self.set_duration(seconds, nanoseconds);
        Ok(())
    }

    /// Packets and bytes in fixed fields.
    pub(crate) fn walk_counts<C: Coder>(&mut self, c: &mut C) -> Step {
        let mut packets = self.packets().unwrap_or_default();
        let mut bytes = self.bytes().unwrap_or_default();
        c.u64(&mut packets)?;
        c.u64(&mut bytes)?;
        self.set_packets(packets);
        self.set_bytes(bytes);
        Ok(())
    }

    /// The number of flows in a fixed field.
    pub(crate) fn walk_flows<C: Coder>(&mut self, c: &mut C) -> Step {
        let mut flows = self.flows().unwrap_or_default();
        c.u32(&mut flows)?;
        self.set_flows(flows);
        Ok(())
    }

    /// Statistics as OXS, with their header and padding.
    pub(crate) fn walk_typed<C: Coder>(&mut self, c: &mut C) -> Step {
        c.padded_entry(2, ErrorCode::BrcBadLen, |c| {
            c.pad(4)?;
            c.list(&mut self.0)
        })
    }
}

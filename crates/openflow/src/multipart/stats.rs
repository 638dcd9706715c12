//! Statistics of tables, ports, queues, groups and meters.

use crate::error::ErrorCode;
use crate::message::table::NAME;
use crate::property::{Property, properties};
use crate::version::{PortNo, Version, vendor};
use crate::wire::{Coder, Record, Step, Text, layout};

/// A switch's description.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Desc {
    /// Manufacturer.
    pub manufacturer: Text,
    /// Hardware.
    pub hardware: Text,
    /// Software.
    pub software: Text,
    /// Serial number.
    pub serial: Text,
    /// This switch.
    pub datapath: Text,
}

layout!(Desc {
    manufacturer: text(256),
    hardware: text(256),
    software: text(256),
    serial: text(32),
    datapath: text(256),
});

/// A table's statistics, and up to version 1.2 what it can do.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TableStats {
    /// The table.
    pub table_id: u8,
    /// Flows.
    pub active: u32,
    /// Packets looked up.
    pub lookups: u64,
    /// Packets with a match.
    pub matched: u64,
    /// Flows that it can hold, up to version 1.2.
    pub max_entries: u32,
    /// The name, up to version 1.2.
    pub name: Text,
    /// Fields to match, as a bitmap, in versions 1.1 and 1.2.
    pub match_fields: u64,
    /// Fields that need not be matched, as a bitmap, up to version 1.2.
    pub wildcards: u64,
    /// Instructions, as a bitmap, in versions 1.1 and 1.2.
    pub instructions: u32,
    /// Actions in the action set, as a bitmap, in versions 1.1 and 1.2.
    pub write_actions: u32,
    /// Actions at once, as a bitmap, in versions 1.1 and 1.2.
    pub apply_actions: u32,
    /// Fields that the action set may set, as a bitmap, in version 1.2.
    pub write_setfields: u64,
    /// Fields that may be set at once, as a bitmap, in version 1.2.
    pub apply_setfields: u64,
    /// Bits of metadata to match, in version 1.2.
    pub metadata_match: u64,
    /// Bits of metadata to write, in version 1.2.
    pub metadata_write: u64,
    /// Configuration, in versions 1.1 and 1.2.
    pub config: u32,
}

/// A 64-bit bitmap of which the wire has 32.
fn low32<C: Coder>(c: &mut C, field: &mut u64) -> Step {
    let Ok(mut low) = u32::try_from(*field) else {
        return Err(crate::error::Fault::Inexpressible("a bitmap of more than 32 bits"));
    };
    c.u32(&mut low)?;
    *field = low.into();
    Ok(())
}

impl Record for TableStats {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u8(&mut self.table_id)?;
        match c.version() {
            Version::V1_0 => {
                c.pad(3)?;
                c.text(&mut self.name, NAME)?;
                low32(c, &mut self.wildcards)?;
                c.u32(&mut self.max_entries)?;
            }
            Version::V1_1 => {
                c.pad(7)?;
                c.text(&mut self.name, NAME)?;
                low32(c, &mut self.wildcards)?;
                low32(c, &mut self.match_fields)?;
                c.u32(&mut self.instructions)?;
                c.u32(&mut self.write_actions)?;
                c.u32(&mut self.apply_actions)?;
                c.u32(&mut self.config)?;
                c.u32(&mut self.max_entries)?;
            }
            Version::V1_2 => {
                c.pad(7)?;
                c.text(&mut self.name, NAME)?;
                c.u64(&mut self.match_fields)?;
                c.u64(&mut self.wildcards)?;
                c.u32(&mut self.write_actions)?;
                c.u32(&mut self.apply_actions)?;
                c.u64(&mut self.write_setfields)?;
                c.u64(&mut self.apply_setfields)?;
                c.u64(&mut self.metadata_match)?;
                c.u64(&mut self.metadata_write)?;
                c.u32(&mut self.instructions)?;
                c.u32(&mut self.config)?;
                c.u32(&mut self.max_entries)?;
            }
            _ => c.pad(3)?,
        }
        c.u32(&mut self.active)?;
        c.u64(&mut self.lookups)?;
        c.u64(&mut self.matched)
    }
}

/// An Ethernet port's errors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct EthernetErrors {
    /// Frame alignment errors.
    pub frame: u64,
    /// Overruns.
    pub overrun: u64,
    /// Checksum errors.
    pub crc: u64,
    /// Collisions.
    pub collisions: u64,
}

impl Record for EthernetErrors {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        // As a property, the counters stand behind padding.
        if c.version() >= Version::V1_4 {
            c.pad(4)?;
        }
        c.u64(&mut self.frame)?;
        c.u64(&mut self.overrun)?;
        c.u64(&mut self.crc)?;
        c.u64(&mut self.collisions)
    }
}

properties! {
    /// A property of a port's statistics.
    pub enum PortStatsProperty {
        /// An Ethernet port's errors.
        0 => Ethernet(EthernetErrors),
    }
}

/// Type of Intel's property with named counters.
const NAMED_COUNTERS: u32 = 2;

impl PortStatsProperty {
    /// Counters that have names (Intel's extension, which Open vSwitch has for counters of single drivers). Names are cut
    /// after 255 bytes.
    pub fn named(counters: &[(String, u64)]) -> Self {
        let count = u16::try_from(counters.len()).unwrap_or(u16::MAX);
        let mut content = vec![0, 0];
        content.extend(count.to_be_bytes());
        for (name, value) in counters.iter().take(count.into()) {
            let name = name.as_bytes().get(..255).unwrap_or(name.as_bytes());
            content.push(name.len() as u8);
            content.extend(name);
            content.extend(value.to_be_bytes());
        }
        PortStatsProperty::Other(Property::experimenter(vendor::INTEL, NAMED_COUNTERS, &content))
    }
}

/// A port's statistics. A counter of all ones is not supported.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PortStats {
    /// The port.
    pub port: PortNo,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received packets that were dropped.
    pub rx_dropped: u64,
    /// Packets to send that were dropped.
    pub tx_dropped: u64,
    /// Errors on receive.
    pub rx_errors: u64,
    /// Errors on send.
    pub tx_errors: u64,
    /// The port's age, since version 1.3: seconds.
    pub duration_sec: u32,
    /// The port's age, since version 1.3: nanoseconds.
    pub duration_nsec: u32,
    /// Properties. Before version 1.4 there is exactly one, [`PortStatsProperty::Ethernet`].
    pub properties: Vec<PortStatsProperty>,
}

impl PortStats {
    fn walk_counters<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u64(&mut self.rx_packets)?;
        c.u64(&mut self.tx_packets)?;
        c.u64(&mut self.rx_bytes)?;
        c.u64(&mut self.tx_bytes)?;
        c.u64(&mut self.rx_dropped)?;
        c.u64(&mut self.tx_dropped)?;
        c.u64(&mut self.rx_errors)?;
        c.u64(&mut self.tx_errors)
    }

    fn walk_duration<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u32(&mut self.duration_sec)?;
        c.u32(&mut self.duration_nsec)
    }
}

impl Record for PortStats {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        let version = c.version();
        if version >= Version::V1_4 {
            return c.entry(0, ErrorCode::BrcBadLen, |c| {
                c.pad(4)?;
                c.port(&mut self.port)?;
                self.walk_duration(c)?;
                self.walk_counters(c)?;
                c.list(&mut self.properties)
            });
        }
        c.port(&mut self.port)?;
        c.pad(if version == Version::V1_0 { 6 } else { 4 })?;
        self.walk_counters(c)?;
        let mut errors = match self.properties.first() {
            Some(PortStatsProperty::Ethernet(errors)) => *errors,
            _ => EthernetErrors::default(),
        };
        c.record(&mut errors)?;
        self.properties = vec![PortStatsProperty::Ethernet(errors)];
        if version == Version::V1_3 { self.walk_duration(c) } else { Ok(()) }
    }
}

/// A queue's statistics.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct QueueStats {
    /// The port.
    pub port: PortNo,
    /// The queue.
    pub queue: u32,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped.
    pub tx_errors: u64,
    /// The queue's age, since version 1.3: seconds.
    pub duration_sec: u32,
    /// The queue's age, since version 1.3: nanoseconds.
    pub duration_nsec: u32,
    /// Properties, since version 1.4.
    pub properties: Vec<Property>,
}

impl QueueStats {
    fn walk_plain<C: Coder>(&mut self, c: &mut C) -> Step {
        c.port(&mut self.port)?;
        if c.version() == Version::V1_0 {
            c.pad(2)?;
        }
        c.u32(&mut self.queue)?;
        c.u64(&mut self.tx_bytes)?;
        c.u64(&mut self.tx_packets)?;
        c.u64(&mut self.tx_errors)?;
        if c.version() < Version::V1_3 {
            return Ok(());
        }
        c.u32(&mut self.duration_sec)?;
        c.u32(&mut self.duration_nsec)
    }
}

impl Record for QueueStats {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        if c.version() < Version::V1_4 {
            return self.walk_plain(c);
        }
        c.entry(0, ErrorCode::BrcBadLen, |c| {
            c.pad(8)?;
            self.walk_plain(c)?;
            c.list(&mut self.properties)
        })
    }
}

/// Packets and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

layout!(Counter { packets: u64, bytes: u64 });

/// A group's statistics.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct GroupStats {
    /// The group.
    pub group: u32,
    /// Flows and groups that refer to it.
    pub references: u32,
    /// What it processed.
    pub total: Counter,
    /// Its age, since version 1.3: seconds.
    pub duration_sec: u32,
    /// Its age, since version 1.3: nanoseconds.
    pub duration_nsec: u32,
    /// What each bucket processed.
    pub buckets: Vec<Counter>,
}

impl Record for GroupStats {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.entry(0, ErrorCode::BrcBadLen, |c| {
            c.pad(4)?;
            c.u32(&mut self.group)?;
            c.u32(&mut self.references)?;
            c.pad(4)?;
            c.record(&mut self.total)?;
            // Nicira's extension to version 1.0 has the layout of 1.3.
            if !matches!(c.version(), Version::V1_1 | Version::V1_2) {
                c.u32(&mut self.duration_sec)?;
                c.u32(&mut self.duration_nsec)?;
            }
            c.list(&mut self.buckets)
        })
    }
}

/// What groups a switch supports; arrays are by the number of [`GroupKind`](crate::message::GroupKind).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct GroupFeatures {
    /// Kinds of groups, as a bitmap.
    pub kinds: u32,
    /// Capabilities: bit 0 weights, 1 liveness, 2 chaining, 3 checks for loops.
    pub capabilities: u32,
    /// Groups of each kind at most.
    pub max_groups: [u32; 4],
    /// Actions of each kind, as bitmaps.
    pub actions: [u32; 4],
}

impl Record for GroupFeatures {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u32(&mut self.kinds)?;
        c.u32(&mut self.capabilities)?;
        self.max_groups.iter_mut().chain(&mut self.actions).try_for_each(|word| c.u32(word))
    }
}

/// A meter's statistics.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct MeterStats {
    /// The meter.
    pub meter: u32,
    /// Flows that refer to it.
    pub flows: u32,
    /// What it processed.
    pub total: Counter,
    /// Its age: seconds.
    pub duration_sec: u32,
    /// Its age: nanoseconds.
    pub duration_nsec: u32,
    /// What each band affected.
    pub bands: Vec<Counter>,
}

impl Record for MeterStats {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.entry(4, ErrorCode::BrcBadLen, |c| {
            c.u32(&mut self.meter)?;
            c.pad(8)?;
            c.u32(&mut self.flows)?;
            c.record(&mut self.total)?;
            c.u32(&mut self.duration_sec)?;
            c.u32(&mut self.duration_nsec)?;
            c.list(&mut self.bands)
        })
    }
}

/// What meters a switch supports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MeterFeatures {
    /// The last meter's number.
    pub max_meter: u32,
    /// Types of bands, as a bitmap.
    pub band_types: u32,
    /// Options, as a bitmap.
    pub capabilities: u32,
    /// Bands of a meter at most.
    pub max_bands: u8,
    /// Highest colour.
    pub max_color: u8,
}

impl Record for MeterFeatures {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u32(&mut self.max_meter)?;
        c.u32(&mut self.band_types)?;
        c.u32(&mut self.capabilities)?;
        c.u8(&mut self.max_bands)?;
        c.u8(&mut self.max_color)?;
        c.pad(2)
    }
}

/// Statistics of an IPFIX export (Open vSwitch's `nx_ipfix_stats_reply`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct IpfixStats {
    /// Flows that have begun.
    pub flows: u64,
    /// Flows that last.
    pub current: u64,
    /// Sampled packets.
    pub packets: u64,
    /// Sampled packets of IPv4 with a known transport protocol.
    pub ipv4: u64,
    /// Sampled packets of IPv6 with a known transport protocol.
    pub ipv6: u64,
    /// Sampled packets of IP with another transport protocol.
    pub errors: u64,
    /// Those of IPv4.
    pub ipv4_errors: u64,
    /// Those of IPv6.
    pub ipv6_errors: u64,
    /// Messages sent to collectors.
    pub sent: u64,
    /// Messages that could not be sent.
    pub send_errors: u64,
    /// The set of collectors; of a bridge's export, all ones.
    pub collectors: u32,
}

impl Record for IpfixStats {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        let packets = [&mut self.packets, &mut self.ipv4, &mut self.ipv6];
        let errors = [&mut self.errors, &mut self.ipv4_errors, &mut self.ipv6_errors];
        let flows = [&mut self.flows, &mut self.current].into_iter();
        let numbers = flows.chain(packets).chain(errors).chain([&mut self.sent, &mut self.send_errors]);
        for number in numbers {
            c.u64(number)?;
        }
        c.u32(&mut self.collectors)?;
        c.pad(4)
    }
}

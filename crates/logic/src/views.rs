//! Views of a logic that the control plane has commands for: which stations there are (`mswitch fdb`) and who is in which
//! group (`mswitch bridge groups`).
//!
//! A logic offers those that it can; commands for the others say that it has none. What only one logic
//! knows about is shown through [`crate::Logic::tables`] instead, and needs no view.

use fabric::PortIndex;
use packet::MacAddr;

use crate::{FdbEntry, FdbError, FdbEvent, FdbStats, GroupEntry};

/// The views that a logic offers.
#[derive(Clone, Copy, Default)]
pub struct Views<'a> {
    /// Stations and their ports.
    pub stations: Option<&'a dyn MacTable>,
    /// Members of groups and their ports.
    pub groups: Option<&'a dyn GroupTable>,
}

impl Views<'_> {
    /// Returns these views and, for each that is missing, the other logic's.
    pub fn or(self, other: Self) -> Self {
        Self { stations: self.stations.or(other.stations), groups: self.groups.or(other.groups) }
    }
}

/// A filtering database (IEEE 802.1Q §8.8): stations, learned or static, by VLAN and address.
pub trait MacTable {
    /// Lists the stations in no particular order. Workers go on meanwhile: each entry was true at some instant.
    fn entries(&self) -> Vec<FdbEntry>;

    /// Adds a static station (IEEE 802.1Q §8.8.1), which replaces what was known about it.
    fn add_static(&self, vid: u16, mac: MacAddr, port: PortIndex) -> Result<(), FdbError>;

    /// Removes a station, static or learned. Returns whether it was known.
    fn remove(&self, vid: u16, mac: MacAddr) -> bool;

    /// Removes the stations of a port, or all, sticky ones included. Returns their number.
    fn flush(&self, port: Option<PortIndex>, keep_static: bool) -> usize;

    /// Returns the number of stations.
    fn len(&self) -> usize;

    /// Whether no station is known.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the largest number of stations.
    fn capacity(&self) -> usize;

    /// Returns the number of stations at a port.
    fn stations_at(&self, port: PortIndex) -> u32;

    /// Returns the largest number of stations that can be learned at a port without a setting of its own.
    fn port_limit(&self) -> u32;

    /// Lists the ports that reached that limit and were not well below it since.
    fn ports_at_limit(&self) -> Vec<PortIndex>;

    /// Returns statistics since the table was made.
    fn stats(&self) -> FdbStats;

    /// Switches the recording of events for [`MacTable::drain_events`] on or off.
    fn watch(&self, on: bool);

    /// Takes the events since the last call, in order, and the number of those for which there was no room.
    fn drain_events(&self) -> (Vec<FdbEvent>, u64);
}

/// Memberships of multicast groups, as heard through IGMP and MLD.
pub trait GroupTable {
    /// Lists members and routers by VLAN, group and port.
    fn entries(&self) -> Vec<GroupEntry>;
}

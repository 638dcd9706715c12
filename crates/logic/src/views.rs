//! Views of a logic that the control plane has commands for: stations (`mswitch fdb`) and members of groups (`mswitch
//! bridge groups`).
//!
//! A logic offers any of them; the commands of the others report that it has none. Data that only one logic has is
//! shown through [`crate::Logic::tables`] instead, and needs no view.

use std::collections::BTreeSet;

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
    /// Lists the stations in no particular order. Workers continue meanwhile: each entry was true at some instant.
    fn entries(&self) -> Vec<FdbEntry>;

    /// Lists the stations with these addresses in all VLANs, in no particular order.
    fn entries_of(&self, macs: &BTreeSet<MacAddr>) -> Vec<FdbEntry>;

    /// Adds a static station (IEEE 802.1Q §8.8.1), replacing its earlier entry.
    fn add_static(&self, vid: u16, mac: MacAddr, port: PortIndex) -> Result<(), FdbError>;

    /// Returns a station's entry.
    fn entry(&self, vid: u16, mac: MacAddr) -> Option<FdbEntry>;

    /// Removes a station, static or learned. Returns whether it was known.
    fn remove(&self, vid: u16, mac: MacAddr) -> bool;

    /// Removes the stations of a port, or all, sticky ones included. Returns their number.
    fn flush(&self, port: Option<PortIndex>, keep_static: bool) -> usize;

    /// Removes the stations of a VLAN except static ones, sticky ones included, of a port or of all. Returns their
    /// number.
    fn flush_vlan(&self, vid: u16, port: Option<PortIndex>) -> usize;

    /// Returns the number of stations.
    fn len(&self) -> usize;

    /// Returns whether no station is known.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the largest number of stations.
    fn capacity(&self) -> usize;

    /// Returns the number of stations at a port.
    fn stations_at(&self, port: PortIndex) -> u32;

    /// Returns the largest number of stations learned at a port without a setting of its own.
    fn port_limit(&self) -> u32;

    /// Lists the ports that reached that limit and have not been well below it since.
    fn ports_at_limit(&self) -> Vec<PortIndex>;

    /// Returns statistics since the table was made.
    fn stats(&self) -> FdbStats;

    /// Switches the recording of events for [`MacTable::drain_events`] on or off.
    fn watch(&self, on: bool);

    /// Takes the events since the last call, in order, and the number of events lost.
    fn drain_events(&self) -> (Vec<FdbEvent>, u64);
}

/// Memberships of multicast groups, as heard through IGMP and MLD.
pub trait GroupTable {
    /// Lists members and routers by VLAN, group and port.
    fn entries(&self) -> Vec<GroupEntry>;

    /// Seconds for which a member or a router counts after it was heard.
    fn timeout(&self) -> u32;

    /// Forgets all members and routers.
    fn flush(&self);
}

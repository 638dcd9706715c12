//! IGMP and MLD snooping (RFC 4541): packets to a group go to the ports of its members and of routers.
//!
//! In each VLAN, separately for IPv4 and IPv6, hosts answer the queries of a router (the querier) with the groups that
//! they want; the bridge listens. Without a recent querier, members may have had no reason to answer, and nothing is
//! pruned. Groups are told apart by MAC address, of which 32 IPv4 groups share one: a packet may go to a port too many,
//! never to one too few.
//!
//! Invariants: queries, groups 224.0.0.x, ff02::1 and addresses of no IP group go everywhere; reports go to routers
//! only, so that no host suppresses its own report because it hears another's; a report that the tables have no room
//! for stops the pruning.

mod message;
mod table;

use std::net::IpAddr;

use fabric::port::MAX_PORTS;
use fabric::{Batch, PortIndex, Value, VersionId};
use packet::{IpVersion, MacAddr};

use crate::State;
use crate::handover::{Member, Router};
use crate::vlan::Frame;
use message::{Change, Kind};
use table::{Listed, Ports, Report, Table};

/// Seconds for which packets still go to a port whose member has left: time for others behind the port to answer the
/// router's last query, which it sends twice, a second apart (RFC 2236 §8.8, §8.9).
const LAST_MEMBER: u32 = 3;

/// Ports of a group's members and of routers, each once.
pub struct Destinations(Ports);

impl Destinations {
    /// Returns the ports.
    pub fn ports(&self) -> &[PortIndex] {
        self.0.as_slice()
    }
}

/// Snooping of one bridge: listens, and restricts groups to their ports.
#[derive(Debug)]
pub(crate) struct Snooping {
    table: Table,
    /// Seconds for which a member or a router counts after it was heard.
    pub(crate) timeout: u32,
    /// Whether groups without members go everywhere, or to routers only.
    pub(crate) flood_unregistered: bool,
}

/// A port that gets packets to a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupEntry {
    /// The VLAN, 0 for none.
    pub vid: u16,
    /// The group's MAC address; `None` means all groups of `version`, because a router is at the port.
    pub group: Option<MacAddr>,
    /// The group's IP address, as the port's members reported it last; `None` of routers, or if it was not heard since
    /// another logic handed the member over.
    pub address: Option<IpAddr>,
    /// IPv4 or IPv6.
    pub version: IpVersion,
    /// The port.
    pub port: PortIndex,
    /// Seconds until the entry expires unless it is renewed.
    pub expires_seconds: u32,
}

impl Snooping {
    pub(crate) fn new(timeout: u32, flood_unregistered: bool) -> Self {
        Self { table: Table::new(), timeout, flood_unregistered }
    }

    /// Returns the ports that get a packet to a group, which this listens to; `None`: all of them.
    pub(crate) fn destinations(
        &self,
        batch: &mut Batch<'_>,
        v: VersionId,
        group: MacAddr,
        vid: u16,
    ) -> Option<Destinations> {
        let mut ports = Ports::new();
        (!self.everywhere(batch, v, group, vid, &mut ports)).then_some(Destinations(ports))
    }

    /// Forgets all members and routers.
    pub(crate) fn flush(&self) {
        self.table.clear(fabric::clock::seconds());
    }

    /// Sends a frame to a group.
    pub(crate) fn forward(&self, batch: &mut Batch<'_>, v: VersionId, group: MacAddr, frame: &Frame) {
        let mut ports = Ports::new();
        if self.everywhere(batch, v, group, frame.vid, &mut ports) {
            batch.remark(v, "snooping does not restrict it: it is flooded", &[]);
            frame.flood(batch);
        } else {
            ports.retain(|port| batch.reaches(port));
            if batch.is_explained() {
                remark_members(batch, v, ports.as_slice());
            }
            frame.flood_among(batch, ports.as_slice());
        }
    }

    /// Returns whether the frame goes to all ports; if not, adds its destinations to `ports`.
    fn everywhere(
        &self,
        batch: &mut Batch<'_>,
        v: VersionId,
        group: MacAddr,
        vid: u16,
        ports: &mut Ports,
    ) -> bool {
        let Some(version) = version_of(group) else { return true };
        let now = batch.now();
        let map = self.table.load();
        match self.listen(batch, v, version, vid) {
            Kind::Query | Kind::AnonymousQuery => return true,
            Kind::LongReport if batch.is_rehearsal() => return true,
            Kind::Report | Kind::LongReport => {
                return !map.queriers(vid, version, now, ports) || self.table.is_full(now);
            }
            Kind::Other | Kind::TooShort => {}
        }
        if message::is_local_v4(group) || message::is_all_nodes(group) || self.table.is_full(now) {
            return true;
        }
        if !map.queriers(vid, version, now, ports) {
            return true;
        }
        !map.members(vid, group, now, ports) && self.flood_unregistered
    }

    /// Learns from a packet, and returns its kind.
    fn listen(&self, batch: &mut Batch<'_>, v: VersionId, version: IpVersion, vid: u16) -> Kind {
        let mut kind = self.hear(batch, v, version, vid);
        if kind == Kind::TooShort {
            batch.pull(v, message::LOOK);
            kind = self.hear(batch, v, version, vid);
        }
        kind
    }

    fn hear(&self, batch: &Batch<'_>, v: VersionId, version: IpVersion, vid: u16) -> Kind {
        let (port, now) = (batch.ingress(), batch.now());
        let until = now.saturating_add(self.timeout);
        let is_rehearsal = batch.is_rehearsal();
        let report = |report| {
            if !is_rehearsal {
                self.table.report(report);
            }
        };
        let kind = message::read(batch.header(v), batch.len(v), |group, change| match change {
            Change::Join => {
                let address = Some(group.address);
                report(Report::Join { vid, group: group.mac, address, port, until })
            }
            Change::Leave => {
                report(Report::Leave { vid, group: group.mac, port, until: now.saturating_add(LAST_MEMBER) })
            }
        });
        match kind {
            Kind::Query => report(Report::Query { vid, version, port, until }),
            Kind::LongReport if !is_rehearsal => self.table.overflow(until),
            _ => {}
        }
        kind
    }

    /// Starts the table's thread.
    pub(crate) fn start(&self) -> Result<(), String> {
        self.table.start().map_err(|error| format!("cannot start the snooping thread: {error}"))
    }

    pub(crate) fn port_removed(&self, port: PortIndex) {
        self.table.forget(port, fabric::clock::seconds());
    }

    /// Returns members and routers; nothing if the tables had no room for some of them, since then nothing may be
    /// pruned.
    pub(crate) fn hand_over(&self, now: u32) -> Vec<State> {
        let map = self.table.settled(now);
        if self.table.is_full(now) {
            return Vec::new();
        }
        let member = |(vid, group, port, until, _): Listed| Member { group, vid, port, until };
        let router = |(vid, version, port, until)| {
            let version = if version == IpVersion::V4 { 4 } else { 6 };
            Router { vid, version, port, until }
        };
        vec![
            Member::hand_over(map.list(now).into_iter().map(member)),
            Router::hand_over(map.list_routers(now).into_iter().map(router)),
        ]
    }

    /// Takes over members and routers; none counts for longer than if it were heard now.
    pub(crate) fn take_over(&self, states: &[State], now: u32) {
        let latest = now.saturating_add(self.timeout);
        let members = Member::take_over(states).filter_map(|Member { group, vid, port, until }| {
            let known = fits(vid, port) && version_of(group).is_some();
            known.then_some(Report::Join { vid, group, address: None, port, until: until.min(latest) })
        });
        let routers = Router::take_over(states).filter_map(|Router { vid, version, port, until }| {
            let version = match version {
                4 => IpVersion::V4,
                6 => IpVersion::V6,
                _ => return None,
            };
            fits(vid, port).then_some(Report::Query { vid, version, port, until: until.min(latest) })
        });
        self.table.adopt(members.chain(routers), now);
    }

    pub(crate) fn tick(&self, now: u32) {
        self.table.sweep(now);
    }
}

impl Snooping {
    pub(crate) fn entries(&self) -> Vec<GroupEntry> {
        let now = fabric::clock::seconds();
        let map = self.table.settled(now);
        let routers = map.list_routers(now).into_iter().map(|(vid, version, port, until)| GroupEntry {
            vid,
            group: None,
            address: None,
            version,
            port,
            expires_seconds: until - now,
        });
        let members = map.list(now).into_iter().filter_map(|(vid, group, port, until, address)| {
            let version = version_of(group)?;
            let (group, expires_seconds) = (Some(group), until - now);
            Some(GroupEntry { vid, group, address, version, port, expires_seconds })
        });
        let mut all: Vec<_> = routers.chain(members).collect();
        all.sort_by_key(|entry| (entry.vid, entry.group, entry.version == IpVersion::V6, entry.port));
        all
    }
}

/// Explains how many ports get a packet to a group.
#[cold]
fn remark_members(batch: &mut Batch<'_>, v: VersionId, ports: &[PortIndex]) {
    let ingress = batch.ingress();
    match ports.iter().filter(|port| **port != ingress).count() {
        0 => batch.remark(v, "no other port has a member of the group or a router behind it", &[]),
        1 => batch.remark(v, "one other port has a member of the group or a router behind it", &[]),
        count => {
            let text = "{} other ports have a member of the group or a router behind them";
            batch.remark(v, text, &[Value::Number(count as u64)]);
        }
    }
}

/// Returns whether such a VLAN and such a port are possible.
fn fits(vid: u16, port: PortIndex) -> bool {
    vid < 4096 && usize::from(port.0) < MAX_PORTS
}

/// Returns the IP version whose groups have such addresses (RFC 1112 §6.4, RFC 2464 §7).
fn version_of(group: MacAddr) -> Option<IpVersion> {
    match group.0 {
        [1, 0, 0x5e, high, ..] if high < 0x80 => Some(IpVersion::V4),
        [0x33, 0x33, ..] => Some(IpVersion::V6),
        _ => None,
    }
}

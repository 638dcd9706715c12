//! State of a bridge as workers see it: an immutable view of its ports and logic.
//!
//! The control plane never changes a state: it publishes a new one and drops the old one after every worker has passed
//! a quiescent point ([`crate::bridge::quiescence`]). So a batch meets one logic and one set of ports from its first
//! packet to its last.

use std::sync::Arc;

use packet::ether::MacAddr;

use crate::bridge::port::{Caps, PortIndex, PortSettings, VlanEgress, VlanMode};
use crate::counters::{DropReason, QueueCounters};
use crate::decide::logic::SwitchLogic;
use crate::deliver::client::Client;
use crate::deliver::egress::Egress;
use crate::observe::explain::Text;
use crate::observe::mirror::{Copied, Mirror, Mirrors};
use crate::observe::observer::Observer;
use crate::observe::observers::Observers;
use crate::protect::marking::Marks;
use crate::protect::policing::RateLimits;
use crate::protect::protection::Claim;
use crate::protect::violations::Violations;
use crate::rx::RxBatch;
use crate::rx::arena::Arena;

/// A port in the state.
#[derive(Clone)]
pub struct PortEntry {
    /// Whether a client is connected and the port administratively up: only then are its packets switched.
    pub(crate) up: bool,
    /// Receive queues that the client uses.
    pub(crate) queues: u32,
    pub(crate) first_lane: u32,
    /// Number of transmit queues; 0 while the port is not up or its client only sends.
    pub(crate) lanes: u32,
    pub(crate) caps: Caps,
    /// Longest frame that it takes, in bytes with link header.
    pub(crate) max_frame: u32,
    /// Drop reason for packets to a port without lanes, and from a port that is not up.
    pub(crate) closed: DropReason,
    /// Violations of port security; `None` if the settings let every station send.
    pub(crate) violations: Option<Arc<Violations>>,
    /// Rate limits of packets from the port.
    pub(crate) rate_limits: Option<Arc<RateLimits>>,
    /// Code points of packets to the port.
    pub(crate) marks: Option<Arc<Marks>>,
    /// Whether queues are chosen by class, not by number: the port's own limits have them.
    pub(crate) has_classes: bool,
    /// The mirror that the port belongs to.
    pub(crate) mirror: Option<Arc<str>>,
    pub(crate) settings: Arc<PortSettings>,
}

impl PortEntry {
    /// The same port as all but its own mirror see it.
    pub(crate) fn owned_by(self, mirror: &Mirror) -> Self {
        let name = Some(mirror.name.as_str().into());
        match self.up {
            true => Self { up: false, lanes: 0, closed: DropReason::MirrorPort, mirror: name, ..self },
            false => self,
        }
    }

    /// The reason, in words that follow the port's name, for which a port without lanes takes nothing.
    pub(crate) fn obstacle(&self) -> Text {
        match (&self.mirror, self.closed) {
            (Some(mirror), _) => Text::of(format_args!("belongs to the mirror {mirror}")),
            (_, DropReason::Isolated) => Text::of("is isolated, and so is the port where the packet came in"),
            _ if !self.settings.admin_up => Text::of("is administratively down"),
            _ if self.up => Text::of("has a client that only sends"),
            _ => Text::of("has no client"),
        }
    }

    /// Lane for queue number `queue`, or the last lane if the port has fewer; without a number, that of the
    /// [steering](Destination::steered).
    #[inline(always)]
    pub(crate) fn lane(&self, queue: Option<u16>, rx: &RxBatch, hash: impl FnOnce() -> u32) -> u32 {
        let destination = Destination::of(self).steered(rx);
        match (destination.lanes, queue) {
            (_, Some(queue)) => self.first_lane + u32::from(queue).min(self.lanes.saturating_sub(1)),
            (0 | 1, None) => destination.lane,
            (_, None) => destination.lane_of(hash()),
        }
    }
}

/// A transmit queue in the state; all queues of the bridge are numbered in one sequence.
#[derive(Clone)]
pub struct Lane {
    pub(crate) port: PortIndex,
    pub(crate) egress: Arc<dyn Egress>,
    pub(crate) counters: Arc<QueueCounters>,
    pub(crate) client: Arc<Client>,
}

impl Lane {
    /// Packets that wait here; unknown, and 0, while the client's memory must not be touched.
    pub(crate) fn depth(&self) -> u32 {
        if self.client.is_quarantined() { 0 } else { self.egress.depth(&self.counters) }
    }
}

/// The few fields of a port that delivery of plain packets needs; the rest is in [`PortEntry`].
#[derive(Clone, Copy)]
pub(crate) struct Destination {
    /// The first lane,
    pub(crate) lane: u32,
    /// and the number of lanes.
    pub(crate) lanes: u32,
    /// Longest frame that it takes as it is; 0 if the port takes nothing, or marks what it takes.
    pub(crate) max_frame: u32,
}

impl Destination {
    const CLOSED: Destination = Destination { lane: 0, lanes: 0, max_frame: 0 };

    /// The destination of a batch. A client with at least as many queues as the receiver has spread its flows already:
    /// each receive queue has one lane, all of the batch. Flows of one with fewer queues are spread by their hashes.
    #[inline(always)]
    pub(crate) fn steered(self, rx: &RxBatch) -> Self {
        match self.lanes {
            0 | 1 => self,
            lanes if lanes <= rx.queues => {
                Self { lane: self.lane + u32::from(rx.queue) % lanes, lanes: 1, ..self }
            }
            _ => self,
        }
    }

    /// The lane for a packet with this flow hash.
    #[inline(always)]
    pub(crate) fn lane_of(&self, hash: u32) -> u32 {
        // Maps the hash to 0..lanes without a division.
        self.lane + ((u64::from(hash) * u64::from(self.lanes)) >> 32) as u32
    }

    fn of(entry: &PortEntry) -> Self {
        let max_frame = if entry.marks.is_some() { 0 } else { entry.max_frame };
        Destination { lane: entry.first_lane, lanes: entry.lanes, max_frame }
    }
}

/// The ports as destinations of packets.
pub(crate) struct View {
    ports: Box<[Option<PortEntry>]>,
    destinations: Box<[Destination]>,
    live: Box<[PortIndex]>,
}

impl View {
    fn new(ports: Vec<Option<PortEntry>>) -> Self {
        let live = (0u16..)
            .zip(&ports)
            .filter(|(_, entry)| entry.as_ref().is_some_and(|e| e.lanes > 0))
            .map(|(i, _)| PortIndex(i))
            .collect();
        let destinations =
            ports.iter().map(|entry| entry.as_ref().map_or(Destination::CLOSED, Destination::of)).collect();
        Self { ports: ports.into(), destinations, live }
    }

    /// The same ports as an isolated one sees them: other isolated ports take nothing.
    fn of_isolated(&self) -> Self {
        let close = |entry: &PortEntry| match entry.settings.isolated && entry.lanes > 0 {
            true => PortEntry { lanes: 0, closed: DropReason::Isolated, ..entry.clone() },
            false => entry.clone(),
        };
        Self::new(self.ports.iter().map(|entry| entry.as_ref().map(close)).collect())
    }

    #[inline(always)]
    pub(crate) fn port(&self, index: PortIndex) -> Option<&PortEntry> {
        self.ports.get(usize::from(index.0))?.as_ref()
    }

    #[inline(always)]
    pub(crate) fn destination(&self, index: PortIndex) -> Destination {
        self.destinations.get(usize::from(index.0)).copied().unwrap_or(Destination::CLOSED)
    }

    #[inline]
    pub(crate) fn live(&self) -> &[PortIndex] {
        &self.live
    }

    /// All ports, by index.
    pub(crate) fn ports(&self) -> impl Iterator<Item = PortIndex> {
        (0u16..).zip(&self.ports).filter(|(_, port)| port.is_some()).map(|(index, _)| PortIndex(index))
    }
}

/// State of a bridge. See the module.
pub struct BridgeState {
    pub(crate) logic: Arc<dyn SwitchLogic>,
    all: View,
    /// Destinations of packets from isolated ports; only if there are such ports.
    isolated: Option<View>,
    lanes: Box<[Lane]>,
    vlan_aware: bool,
    /// Stations that ports list (port security), in ascending order.
    listed: Box<[(MacAddr, PortIndex)]>,
    monitoring: Option<Box<Monitoring>>,
    /// Arenas that the logic wants for headers, by worker; empty if it has no preference.
    arenas: Box<[Option<Arena>]>,
}

/// Observers and mirrors of a bridge.
pub(crate) struct Monitoring {
    /// The observers.
    pub(crate) observers: Option<Observers>,
    /// The mirrors.
    pub(crate) mirrors: Option<Mirrors>,
}

impl Monitoring {
    /// The observers, if none of them sees packets received at this port and there are no mirrors: then a packet from
    /// there is seen where it leaves, if at all.
    #[inline]
    pub(crate) fn ignores_ingress(&self, ingress: PortIndex) -> Option<&Observers> {
        self.observers
            .as_ref()
            .filter(|observers| self.mirrors.is_none() && !observers.shows_received(ingress))
    }
}

impl BridgeState {
    pub(crate) fn new(logic: Arc<dyn SwitchLogic>, ports: Vec<Option<PortEntry>>, lanes: Vec<Lane>) -> Self {
        let vlan_aware = ports.iter().flatten().any(|e| e.settings.vlan != VlanMode::Transparent);
        let isolated = ports.iter().flatten().any(|e| e.settings.isolated);
        let listed = listed_stations(&ports);
        let all = View::new(ports);
        let isolated = isolated.then(|| all.of_isolated());
        Self {
            logic,
            all,
            isolated,
            lanes: lanes.into(),
            vlan_aware,
            listed,
            monitoring: None,
            arenas: Box::default(),
        }
    }

    /// The same for a switch of so many workers. With mirrors or observers, headers stay in the fabric's own memory: a
    /// logic could otherwise reach the copies made for them.
    pub(crate) fn with_arenas(self, workers: usize) -> Self {
        if self.monitoring.is_some() {
            return self;
        }
        let arenas: Vec<_> = (0..workers).map(|worker| self.logic.arena(worker)).collect();
        let wanted = arenas.iter().any(Option::is_some);
        Self { arenas: if wanted { arenas.into() } else { Box::default() }, ..self }
    }

    /// Arena where the logic wants this worker to keep headers.
    #[inline(always)]
    pub(crate) fn arena(&self, worker: usize) -> Option<Arena> {
        *self.arenas.get(worker)?
    }

    /// The same, with mirrors and observers; `counters` are those of a port's first transmit queue.
    pub(crate) fn with_monitoring<'o>(
        logic: Arc<dyn SwitchLogic>,
        mut ports: Vec<Option<PortEntry>>,
        lanes: Vec<Lane>,
        mirrors: &[(Mirror, Arc<Copied>)],
        observers: impl Iterator<Item = &'o Arc<dyn Observer>>,
        counters: impl Fn(PortIndex) -> Option<Arc<QueueCounters>>,
    ) -> Self {
        let observers = Observers::new(observers, &ports);
        let targets = Mirrors::new(mirrors, &ports, counters);
        for slot in &mut ports {
            let owner =
                |entry: &PortEntry| mirrors.iter().find(|(mirror, _)| mirror.owns(&entry.settings.name));
            *slot = slot.take().map(|entry| match owner(&entry) {
                Some((mirror, _)) => entry.owned_by(mirror),
                None => entry,
            });
        }
        let is_there = observers.is_some() || targets.is_some();
        let monitoring = is_there.then(|| Box::new(Monitoring { observers, mirrors: targets }));
        Self { monitoring, ..Self::new(logic, ports, lanes) }
    }

    /// Observers and mirrors, if any.
    #[inline(always)]
    pub(crate) fn monitoring(&self) -> Option<&Monitoring> {
        self.monitoring.as_deref()
    }

    #[inline(always)]
    pub(crate) fn port(&self, index: PortIndex) -> Option<&PortEntry> {
        self.all.port(index)
    }

    /// Destinations of packets from a port.
    #[inline]
    pub(crate) fn view(&self, ingress: &PortEntry) -> &View {
        match &self.isolated {
            Some(view) if ingress.settings.isolated => view,
            _ => &self.all,
        }
    }

    /// Destinations of packets that come from no port.
    pub(crate) fn everywhere(&self) -> &View {
        &self.all
    }

    #[inline]
    pub(crate) fn lane(&self, index: usize) -> Option<&Lane> {
        self.lanes.get(index)
    }

    /// Counts a packet that a port cannot take, at the port's first queue.
    #[cold]
    pub(crate) fn refuse(&self, entry: &PortEntry, reason: DropReason) {
        if let Some(lane) = self.lane(entry.first_lane as usize) {
            lane.counters.add_drop(reason);
        }
    }

    pub(crate) fn lane_count(&self) -> usize {
        self.lanes.len()
    }

    #[inline]
    pub(crate) fn vlan_aware(&self) -> bool {
        self.vlan_aware
    }

    /// The port that a station heard at `ingress` in VLAN `vid` belongs to. If several ports list it, any of them may
    /// have it.
    #[cold]
    pub(crate) fn claim(&self, ingress: PortIndex, vid: u16, mac: MacAddr) -> Claim {
        let from = self.listed.partition_point(|(listed, _)| *listed < mac);
        let ports = self.listed.iter().skip(from).take_while(|(listed, _)| *listed == mac);
        let mut claim = Claim::Nobody;
        for (_, port) in ports {
            if *port == ingress {
                return Claim::Ingress;
            }
            let carries = |entry: &PortEntry| entry.settings.vlan.egress(vid) != VlanEgress::Refused;
            if claim == Claim::Nobody && self.port(*port).is_some_and(carries) {
                claim = Claim::Other(*port);
            }
        }
        claim
    }
}

/// The stations that ports list, in ascending order.
fn listed_stations(ports: &[Option<PortEntry>]) -> Box<[(MacAddr, PortIndex)]> {
    let of_port = |(index, entry): (u16, &Option<PortEntry>)| {
        let stations = entry.iter().flat_map(|entry| &entry.settings.security.stations);
        stations.map(|mac| (*mac, PortIndex(index))).collect::<Vec<_>>()
    };
    let mut listed: Vec<_> = (0..).zip(ports).flat_map(of_port).collect();
    listed.sort_unstable();
    listed.into()
}

//! A bridge as workers see it: an immutable picture of its ports and logic.
//!
//! The control plane never changes a picture; it publishes a new one and drops the old after every worker
//! passed a quiescent point ([`crate::bridge::quiescence`]). So a batch meets one logic and one set of ports from
//! its first packet to its last.

use std::sync::Arc;

use crate::bridge::port::{Caps, PortIndex, PortSettings, VlanMode};
use crate::counters::{DropReason, QueueCounters};
use crate::decide::logic::SwitchLogic;
use crate::deliver::client::Client;
use crate::deliver::egress::Egress;
use crate::observe::mirror::{Copied, Mirror, Mirrors};
use crate::observe::observer::Observer;
use crate::observe::observers::Watch;
use crate::protect::policing::Guards;
use crate::protect::violations::Violations;
use crate::rx::arena::Arena;

/// A port in the picture.
#[derive(Clone)]
pub struct PortEntry {
    /// Whether a client is connected and the port administratively up: only then are its packets switched.
    pub(crate) up: bool,
    pub(crate) first_lane: u32,
    /// Transmit queues; none while the port is not up or its client only sends.
    pub(crate) lanes: u32,
    pub(crate) caps: Caps,
    /// Longest frame it takes, bytes with link header.
    pub(crate) max_frame: u32,
    /// Why it takes nothing when it has no lanes, and gives nothing when it is not up.
    pub(crate) closed: DropReason,
    /// Violations of port security; `None` if the settings let every station speak.
    pub(crate) violations: Option<Arc<Violations>>,
    /// What its own packets are held to, if anything.
    pub(crate) guards: Option<Arc<Guards>>,
    pub(crate) settings: Arc<PortSettings>,
}

impl PortEntry {
    /// The same port for everybody but the mirror that it belongs to.
    pub(crate) fn owned_by_mirror(self) -> Self {
        match self.up {
            true => Self { up: false, lanes: 0, closed: DropReason::MirrorPort, ..self },
            false => self,
        }
    }

    /// The reason, in words that follow the port's name, for which a port without lanes takes nothing.
    pub(crate) fn obstacle(&self) -> &'static str {
        match self.closed {
            DropReason::MirrorPort => "belongs to a mirror",
            DropReason::Isolated => "is isolated, and so is the port where the packet came in",
            _ if !self.settings.admin_up => "is administratively down",
            _ if self.up => "has a client that only sends",
            _ => "has no client",
        }
    }

    /// The queue of this number, the last one for a higher number; without a number, the one for a packet with this flow hash.
    #[inline(always)]
    pub(crate) fn lane(&self, queue: Option<u16>, hash: impl FnOnce() -> u32) -> u32 {
        match (self.lanes, queue) {
            (0 | 1, _) => self.first_lane,
            (lanes, Some(queue)) => self.first_lane + u32::from(queue).min(lanes - 1),
            (_, None) => Door::of(self).lane_of(hash()),
        }
    }
}

/// A transmit queue in the picture.
#[derive(Clone)]
pub struct Lane {
    pub(crate) port: PortIndex,
    pub(crate) egress: Arc<dyn Egress>,
    pub(crate) counters: Arc<QueueCounters>,
    pub(crate) client: Arc<Client>,
}

/// The little that a packet in the plain case asks of its destination; the rest is in [`PortEntry`].
#[derive(Clone, Copy)]
pub(crate) struct Door {
    /// The first queue,
    pub(crate) lane: u32,
    /// and the number of queues.
    pub(crate) lanes: u32,
    /// Longest frame that it takes; 0 of a port that takes nothing.
    pub(crate) max_frame: u32,
}

impl Door {
    const CLOSED: Door = Door { lane: 0, lanes: 0, max_frame: 0 };

    /// The queue for a packet with this flow hash.
    #[inline(always)]
    pub(crate) fn lane_of(&self, hash: u32) -> u32 {
        // Maps the hash to 0..lanes without a division.
        self.lane + ((u64::from(hash) * u64::from(self.lanes)) >> 32) as u32
    }

    fn of(entry: &PortEntry) -> Self {
        Door { lane: entry.first_lane, lanes: entry.lanes, max_frame: entry.max_frame }
    }
}

/// The ports as their packets' destinations.
pub(crate) struct View {
    ports: Box<[Option<PortEntry>]>,
    doors: Box<[Door]>,
    live: Box<[PortIndex]>,
}

impl View {
    fn new(ports: Vec<Option<PortEntry>>) -> Self {
        let live = (0u16..)
            .zip(&ports)
            .filter(|(_, entry)| entry.as_ref().is_some_and(|e| e.lanes > 0))
            .map(|(i, _)| PortIndex(i))
            .collect();
        let doors = ports.iter().map(|entry| entry.as_ref().map_or(Door::CLOSED, Door::of)).collect();
        Self { ports: ports.into(), doors, live }
    }

    /// The same ports as an isolated one sees them: others of its kind take nothing.
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
    pub(crate) fn door(&self, index: PortIndex) -> Door {
        self.doors.get(usize::from(index.0)).copied().unwrap_or(Door::CLOSED)
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

/// See the module.
pub struct BridgeState {
    pub(crate) logic: Arc<dyn SwitchLogic>,
    all: View,
    /// What packets from isolated ports meet; only where there are such.
    isolated: Option<View>,
    lanes: Box<[Lane]>,
    vlan_aware: bool,
    aside: Option<Box<Aside>>,
    /// Where the logic wants headers to be, by worker; empty where it does not care.
    arenas: Box<[Option<Arena>]>,
}

/// What else is done with the packets of some bridges.
pub(crate) struct Aside {
    /// Who observes them.
    pub(crate) watch: Option<Watch>,
    /// Where they are copied to.
    pub(crate) mirrors: Option<Mirrors>,
}

impl Aside {
    /// The observers, if none of them looks at this ingress port and there are no mirrors: a packet from there is seen at
    /// most where it leaves.
    #[inline]
    pub(crate) fn looks_past(&self, ingress: PortIndex) -> Option<&Watch> {
        self.watch.as_ref().filter(|watch| self.mirrors.is_none() && !watch.shows_received(ingress))
    }
}

impl BridgeState {
    pub(crate) fn new(logic: Arc<dyn SwitchLogic>, ports: Vec<Option<PortEntry>>, lanes: Vec<Lane>) -> Self {
        let vlan_aware = ports.iter().flatten().any(|e| e.settings.vlan != VlanMode::Transparent);
        let isolated = ports.iter().flatten().any(|e| e.settings.isolated);
        let all = View::new(ports);
        let isolated = isolated.then(|| all.of_isolated());
        Self { logic, all, isolated, lanes: lanes.into(), vlan_aware, aside: None, arenas: Box::default() }
    }

    /// The same for a switch of so many workers. Where copies are made for mirrors, or packets shown to observers, headers stay in the
    /// fabric's own memory: a logic could reach these copies too.
    pub(crate) fn with_arenas(self, workers: usize) -> Self {
        if self.aside.is_some() {
            return self;
        }
        let arenas: Vec<_> = (0..workers).map(|worker| self.logic.arena(worker)).collect();
        let wanted = arenas.iter().any(Option::is_some);
        Self { arenas: if wanted { arenas.into() } else { Box::default() }, ..self }
    }

    /// Where the logic wants this worker to keep headers.
    #[inline(always)]
    pub(crate) fn arena(&self, worker: usize) -> Option<Arena> {
        *self.arenas.get(worker)?
    }

    /// The same, mirrored and observed.
    pub(crate) fn with_aside<'o>(
        logic: Arc<dyn SwitchLogic>,
        mut ports: Vec<Option<PortEntry>>,
        lanes: Vec<Lane>,
        mirrors: &[(Mirror, Arc<Copied>)],
        observers: impl Iterator<Item = &'o Arc<dyn Observer>>,
    ) -> Self {
        let (watch, targets) = (Watch::new(observers, &ports), Mirrors::new(mirrors, &ports));
        for slot in &mut ports {
            let owns =
                |entry: &PortEntry| mirrors.iter().any(|(mirror, _)| mirror.owns(&entry.settings.name));
            *slot = slot.take().map(|entry| if owns(&entry) { entry.owned_by_mirror() } else { entry });
        }
        let is_there = watch.is_some() || targets.is_some();
        let aside = is_there.then(|| Box::new(Aside { watch, mirrors: targets }));
        Self { aside, ..Self::new(logic, ports, lanes) }
    }

    /// What else is to be done with packets.
    #[inline(always)]
    pub(crate) fn aside(&self) -> Option<&Aside> {
        self.aside.as_deref()
    }

    #[inline(always)]
    pub(crate) fn port(&self, index: PortIndex) -> Option<&PortEntry> {
        self.all.port(index)
    }

    /// Where packets from a port may go.
    #[inline]
    pub(crate) fn view(&self, ingress: &PortEntry) -> &View {
        match &self.isolated {
            Some(view) if ingress.settings.isolated => view,
            _ => &self.all,
        }
    }

    /// Where packets may go that come from no port.
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
}

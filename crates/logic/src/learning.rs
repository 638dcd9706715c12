//! `learning`: a transparent learning bridge with VLANs (IEEE 802.1Q §8.6 to §8.8, formerly IEEE 802.1D §7).
//!
//! A frame's source is learned at its ingress port. A frame to a learned station goes to that station's port, all
//! others go to every member of the VLAN. VLANs learn independently of each other.
//!
//! Invariant: facts remembered from one packet of a batch to the next agree with the table, except for changes that
//! other workers made meanwhile.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use fabric::port::VlanEgress;
use fabric::worker::Threads;
use fabric::{Batch, DropReason, PortIndex, PortSettings, SwitchLogic, Value, VersionId};
use packet::MacAddr;
use packet::ether;

use crate::fdb::{Fdb, Fixed, Key, MAX_STATIONS};
use crate::flow::Front;
use crate::security::{Explained, Heard, Restricted, Sources, Unrestricted};
use crate::snooping::{Destinations, Snooping};
use crate::vlan::{Frame, Vlans};
use crate::{
    GroupEntry, GroupTable, Logic, LogicError, LogicInfo, MacTable, ParamDescription, ParamKind, State,
    Station, Views, params,
};

pub(crate) const INFO: LogicInfo = LogicInfo {
    name: "learning",
    summary: "a learning bridge with VLANs: stations are found where they were last heard",
    params: param_descriptions,
    build: |params, _| Ok(Arc::new(Learning::new(params)?)),
};

/// Default share of the table that one port may fill, percent. In the default table an uplink has room for 6,144
/// stations, far more than a guest needs, and the other ports keep a quarter, where new stations find free slots
/// without a search while one port is flooded. A smaller share would hit uplinks behind which nearly all stations live,
/// and protect no other port more: room is never made at a port with fewer stations.
const PORT_SHARE: u32 = 75;

/// Default number of stations.
const STATIONS: u32 = 8192;

fn param_descriptions() -> Vec<ParamDescription> {
    let timeout = "time for which a group member or router counts after it was heard; with `snooping` only";
    let unregistered = "destination of groups without members: all ports, or routers only";
    vec![
        ParamDescription::new(
            "ageing",
            ParamKind::number(0..=1_000_000, "seconds"),
            "time after which a silent station is forgotten; 0: never",
        )
        .or(300),
        ParamDescription::new(
            "max-stations",
            ParamKind::number(1..=MAX_STATIONS.into(), "stations"),
            "largest number of stations; beyond it a new one replaces an old one",
        )
        .or(STATIONS),
        ParamDescription::new(
            "port-share",
            ParamKind::number(1..=100, "percent"),
            "largest share of `max-stations` at one port; beyond it a new station replaces one of the same port",
        )
        .or(PORT_SHARE),
        ParamDescription::new(
            "snooping",
            ParamKind::Switch,
            "packets to IP groups go only to ports with members, known from IGMP and MLD",
        )
        .or("off"),
        ParamDescription::new("snooping-timeout", ParamKind::number(2..=86_400, "seconds"), timeout).or(260),
        ParamDescription::new("unregistered", ParamKind::choice(&["flood", "routers"]), unregistered)
            .or("flood"),
    ]
}

/// The logic `learning`. See the module's documentation.
pub struct Learning {
    fdb: Fdb,
    /// Share of the table that one port may fill, percent.
    port_share: AtomicU32,
    /// Seconds; 0: never.
    ageing: AtomicU32,
    snooping: ArcSwapOption<Snooping>,
    /// Whether workers may use the logic already: snooping that is switched on later starts its thread at once.
    is_prepared: AtomicBool,
    take_over: Mutex<TakeOver>,
}

/// Settings of snooping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnoopingSettings {
    /// Seconds for which a member or a router counts after it was heard.
    pub timeout: u32,
    /// Whether groups without members go everywhere, or to routers only.
    pub flood_unregistered: bool,
}

/// The ports of a bridge and their settings.
type Ports = BTreeMap<PortIndex, Arc<PortSettings>>;

/// State of the control plane: the ports, and a take-over from the previous logic.
#[derive(Default)]
struct TakeOver {
    /// Ports of the bridge; `None` until they are known.
    ports: Option<Ports>,
    /// Number of the next ticks that discard stale stations.
    rechecks: u8,
    /// Stations inherited before the switch and their ports, sorted by key; `None` after the second pass.
    inherited: Option<Vec<(Key, PortIndex)>>,
}

/// Returns the largest number of stations at a port that may fill a share of a table, in percent.
fn port_limit(stations: u32, share: u32) -> u32 {
    u32::try_from((u64::from(stations) * u64::from(share)).div_ceil(100)).unwrap_or(u32::MAX)
}

/// Returns the port at which a station was inherited.
fn inherited_at(inherited: &[(Key, PortIndex)], key: Key) -> Option<PortIndex> {
    let at = inherited.binary_search_by_key(&key, |(key, _)| *key).ok()?;
    inherited.get(at).map(|(_, port)| *port)
}

/// Number of ticks after a change that discard stale stations. Workers learn with the old settings for a moment after
/// the new ones are announced, and the first tick may fall into that moment.
const RECHECKS: u8 = 2;

/// Returns whether new settings may leave stations at ports where they may not be: VLANs or lists of stations differ,
/// or stations are no longer sticky.
fn confine(before: &Ports, after: &Ports) -> bool {
    after.iter().any(|(port, settings)| match before.get(port) {
        None => !settings.security.stations.is_empty(),
        Some(before) => {
            let (was, is) = (&before.security, &settings.security);
            before.vlan != settings.vlan || was.stations != is.stations || (was.sticky && !is.sticky)
        }
    })
}

impl Learning {
    /// Makes the logic. Parameters: `ageing` in seconds (IEEE 802.1Q table 8-6: 300 by default, at most 1,000,000),
    /// `max-stations`, and `port-share` in percent of it.
    pub fn new(given: &[(String, String)]) -> Result<Self, LogicError> {
        let values = params::check(&INFO.describe(), given)?;
        // All of them are far below 2^32.
        let number = |name| values.number(name) as u32;
        let port_limit = port_limit(number("max-stations"), number("port-share"));
        let flood = values.text("unregistered") == "flood";
        let snooping = values.is_on("snooping").then(|| Snooping::new(number("snooping-timeout"), flood));
        Ok(Self {
            fdb: Fdb::new(number("max-stations")).with_port_limit(port_limit),
            port_share: AtomicU32::new(number("port-share")),
            ageing: AtomicU32::new(number("ageing")),
            snooping: ArcSwapOption::from_pointee(snooping),
            is_prepared: AtomicBool::new(false),
            take_over: Mutex::default(),
        })
    }
}

impl Learning {
    /// Returns the filtering database.
    pub fn fdb(&self) -> &Fdb {
        &self.fdb
    }

    /// Learns the source of a packet in VLAN `vid`, as forwarding does, for a logic that decides itself where the
    /// packet goes. Returns false if port security refuses the source: the packet was dropped and counted then.
    pub fn hear(&self, batch: &mut Batch<'_>, v: VersionId, vid: u16, src: MacAddr) -> bool {
        let key = Key::new(vid, src);
        let heard = match batch.security() {
            None => Unrestricted::of(batch).heard(&self.fdb, batch, v, src, key),
            Some(security) => Restricted::of(batch, security).heard(&self.fdb, batch, v, src, key),
        };
        !matches!(heard, Heard::Refused)
    }

    /// Sets the time after which a silent station is forgotten, in seconds; 0: never.
    pub fn set_ageing(&self, seconds: u32) {
        self.ageing.store(seconds, Relaxed);
    }

    /// Makes the logic with default parameters, and memory for so many stations if that is more.
    ///
    /// # Errors
    /// There are more than [`MAX_STATIONS`].
    pub fn with_room(stations: Option<u32>) -> Result<Self, LogicError> {
        let stations = stations.unwrap_or(0).max(STATIONS);
        Self::new(&[("max-stations".into(), stations.to_string())])
    }

    /// Sets the largest number of stations, all of which may be at one port; `None`: the default number, and the
    /// default share of a port. Returns the number in effect, which the memory of the table bounds.
    pub fn limit_stations(&self, stations: Option<u32>) -> u32 {
        let (share, at_port) = match stations {
            // Then the table's own limit is the only one: a port that fills it is not at a limit of its own.
            Some(_) => (100, u32::MAX),
            None => (PORT_SHARE, port_limit(STATIONS, PORT_SHARE)),
        };
        self.port_share.store(share, Relaxed);
        self.fdb.resize(stations.unwrap_or(STATIONS).min(MAX_STATIONS), at_port)
    }

    /// Switches snooping on, off, or to other settings; with others, members and routers are heard anew.
    ///
    /// # Errors
    /// The thread of the groups does not start.
    pub fn set_snooping(&self, wanted: Option<SnoopingSettings>) -> Result<(), String> {
        let present = self.snooping.load().as_ref().map(|snooping| SnoopingSettings {
            timeout: snooping.timeout,
            flood_unregistered: snooping.flood_unregistered,
        });
        if present == wanted {
            return Ok(());
        }
        let snooping = wanted.map(|wanted| Snooping::new(wanted.timeout, wanted.flood_unregistered));
        if let (Some(snooping), true) = (&snooping, self.is_prepared.load(SeqCst)) {
            snooping.start()?;
        }
        self.snooping.store(snooping.map(Arc::new));
        Ok(())
    }

    /// Returns the ports that get a packet to a group if snooping restricts it, and listens to the packet.
    pub fn destinations(
        &self,
        batch: &mut Batch<'_>,
        v: VersionId,
        group: MacAddr,
        vid: u16,
    ) -> Option<Destinations> {
        self.snooping.load().as_ref()?.destinations(batch, v, group, vid)
    }

    /// Forgets the groups of ports whose VLANs have changed.
    fn forget_groups(&self, before: Option<&Ports>, after: &Ports) {
        let (Some(snooping), Some(before)) = (&*self.snooping.load(), before) else { return };
        let vlan = |ports: &Ports, port| ports.get(port).map(|settings| settings.vlan.clone());
        for port in after.keys().filter(|port| before.contains_key(port)) {
            if vlan(before, port) != vlan(after, port) {
                snooping.port_removed(*port);
            }
        }
    }

    fn lock_take_over(&self) -> MutexGuard<'_, TakeOver> {
        self.take_over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Discards stations that are no longer valid. A static one stays as long as its port, a sticky one as long as its
    /// port is sticky and in its VLAN, others as long as their port is in their VLAN and no other port lists them.
    fn discard_stale(&self, ports: &Ports) {
        if self.fdb.is_empty() {
            return;
        }
        let mut owners: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (port, settings) in ports {
            for mac in &settings.security.stations {
                owners.entry(*mac).or_default().push((*port, settings));
            }
        }
        let carries = |settings: &PortSettings, vid| settings.vlan.egress(vid) != VlanEgress::Refused;
        let belongs_elsewhere = |key: Key, port: PortIndex| {
            owners.get(&key.mac()).is_some_and(|owners| {
                owners.iter().all(|(owner, _)| *owner != port)
                    && owners.iter().any(|(_, settings)| carries(settings, key.vid()))
            })
        };
        self.fdb.retain(|key, port, fixed| {
            let Some(settings) = ports.get(&port) else { return false };
            let is_carried = carries(settings, key.vid());
            match fixed {
                Some(Fixed::Static) => true,
                Some(_) => is_carried && settings.security.sticky,
                None => is_carried && !belongs_elsewhere(key, port),
            }
        });
    }

    #[inline(always)]
    fn switch<S: Sources>(&self, batch: &mut Batch<'_>, mut sources: S) {
        let vlans = Vlans::of(batch);
        // A run of packets of one flow is looked up once.
        let mut destination: Option<(Key, Option<PortIndex>)> = None;
        for v in batch.packets() {
            let Some((dst, src)) = ether::addresses(batch.header(v)) else { continue };
            let Some(frame) = vlans.enter(batch, v) else { continue };
            if frame.vid != 0 {
                sources.say(batch, v, "it belongs to VLAN {}", &[Value::Number(frame.vid.into())]);
            }

            match sources.heard(&self.fdb, batch, v, src, Key::new(frame.vid, src)) {
                Heard::Enter => {}
                Heard::Moved => destination = None,
                Heard::Refused => continue,
            }

            if dst.is_multicast() {
                sources.say(batch, v, "it is for a group, {}", &[Value::Mac(dst)]);
                self.send_group(batch, v, dst, &frame);
                continue;
            }
            let key = Key::new(frame.vid, dst);
            let port = match destination {
                Some((last, port)) if last == key => port,
                _ => sources.lookup(&self.fdb, key),
            };
            destination = Some((key, port));
            match port {
                Some(port) => {
                    sources.say_known(&self.fdb, batch, v, key, port);
                    frame.send(batch, port);
                }
                None => {
                    sources.say_unknown(&self.fdb, batch, v, key);
                    if batch.may_flood_unknown(v) {
                        sources.say(batch, v, "it is flooded", &[]);
                        frame.flood(batch);
                    }
                }
            }
        }
    }
}

/// Returns whether two consecutive frames are known to be of one flow.
#[inline(always)]
fn same_flow(front: Option<Front>, last: Option<Front>) -> bool {
    matches!((front, last), (Some(front), Some(last)) if front.is_of_flow(last))
}

/// Decision about the packets of a flow.
enum Towards {
    /// The port of a station.
    Port(PortIndex),
    /// A group, or a station that is not known.
    Others,
}

impl Learning {
    /// [`Learning::switch`] in the plain case: no port security at the ingress port, no VLAN settings at any port.
    /// Consecutive packets of one flow are decided once, and consecutive packets for one port are sent together.
    // A function of its own, so that the other cases do not change how this loop is compiled.
    #[inline(never)]
    fn switch_plain(&self, batch: &mut Batch<'_>) {
        let mut sources = Unrestricted::of(batch);
        // The packets `first..end` go to `port` and are not sent yet; `last` is the front of packet `end - 1`. Without
        // such packets, no packet has the number `end`.
        const NO_PACKET: u16 = u16::MAX;
        let (mut last, mut first, mut end, mut port) = (None, NO_PACKET, NO_PACKET, PortIndex::NONE);
        for v in batch.packets() {
            let (number, front) = (v.number() as u16, Front::of(batch.header(v)));
            if number == end && same_flow(front, last) {
                end += 1;
                continue;
            }
            let to = self.locate(&mut sources, batch, v);
            if let Towards::Port(same) = to
                && same == port
                && number == end
            {
                end += 1;
                last = front;
                continue;
            }
            batch.send_range(first, end, port);
            match to {
                Towards::Port(found) => (last, first, end, port) = (front, number, number + 1, found),
                Towards::Others => {
                    (first, end) = (NO_PACKET, NO_PACKET);
                    self.send_to_others(batch, v);
                }
            }
        }
        batch.send_range(first, end, port);
    }

    /// Learns a packet's source and looks up its destination.
    #[inline(never)]
    fn locate(&self, sources: &mut Unrestricted, batch: &mut Batch<'_>, v: VersionId) -> Towards {
        let header = batch.header(v);
        let Some((dst, src)) = ether::addresses(header) else { return Towards::Others };
        let vid = ether::vlan_tag(header).map_or(0, |tag| tag.vid);
        sources.heard(&self.fdb, batch, v, src, Key::new(vid, src));
        if dst.is_multicast() {
            return Towards::Others;
        }
        self.fdb.lookup(Key::new(vid, dst)).map_or(Towards::Others, Towards::Port)
    }

    /// Sends a packet to a group or an unknown station.
    #[cold]
    fn send_to_others(&self, batch: &mut Batch<'_>, v: VersionId) {
        let Some((dst, _)) = ether::addresses(batch.header(v)) else { return };
        let Some(frame) = Vlans::of(batch).enter(batch, v) else { return };
        if dst.is_multicast() {
            self.send_group(batch, v, dst, &frame);
        } else if batch.may_flood_unknown(v) {
            frame.flood(batch);
        }
    }

    /// Sends group addresses to all members of the VLAN, or to the group's members; drops those of bridge protocols
    /// (IEEE 802.1Q §8.6.3, table 8-1).
    fn send_group(&self, batch: &mut Batch<'_>, v: VersionId, dst: MacAddr, frame: &Frame) {
        if ether::is_reserved_group(dst) {
            return batch.discard(v, DropReason::ReservedGroup);
        }
        match &*self.snooping.load() {
            Some(snooping) if !dst.is_broadcast() => snooping.forward(batch, v, dst, frame),
            _ => frame.flood(batch),
        }
    }
}

impl GroupTable for Learning {
    fn entries(&self) -> Vec<GroupEntry> {
        self.snooping.load().as_ref().map(|snooping| snooping.entries()).unwrap_or_default()
    }

    fn timeout(&self) -> u32 {
        self.snooping.load().as_ref().map_or(0, |snooping| snooping.timeout)
    }

    fn flush(&self) {
        if let Some(snooping) = &*self.snooping.load() {
            snooping.flush();
        }
    }
}

impl SwitchLogic for Learning {
    fn forward(&self, batch: &mut Batch<'_>) {
        match batch.security() {
            None if !batch.vlan_aware() => self.switch_plain(batch),
            None => self.switch(batch, Unrestricted::of(batch)),
            Some(security) => self.switch(batch, Restricted::of(batch, security)),
        }
    }

    fn explain(&self, batch: &mut Batch<'_>) -> bool {
        self.switch(batch, Explained::of(batch));
        true
    }

    fn prepare(&self, _threads: Threads) -> Result<(), String> {
        self.is_prepared.store(true, SeqCst);
        self.snooping.load().as_ref().map_or(Ok(()), |snooping| snooping.start())
    }

    fn ports_changed(&self, ports: &[(PortIndex, Arc<PortSettings>)]) {
        let mut take_over = self.lock_take_over();
        let there: Ports = ports.iter().cloned().collect();
        if take_over.ports.as_ref().is_none_or(|before| confine(before, &there)) {
            self.discard_stale(&there);
            take_over.rechecks = RECHECKS;
        }
        self.forget_groups(take_over.ports.as_ref(), &there);
        take_over.ports = Some(there);
    }

    /// Forgets the port's learned stations, so that packets to them are flooded until they are heard again: a migrated
    /// guest is found at its new port before it sends anything.
    fn port_down(&self, port: PortIndex) {
        self.fdb.flush_learned(port);
    }

    fn port_removed(&self, port: PortIndex) {
        self.fdb.flush(Some(port), false);
        if let Some(snooping) = &*self.snooping.load() {
            snooping.port_removed(port);
        }
    }
}

impl Logic for Learning {
    fn name(&self) -> &str {
        INFO.name
    }

    fn params(&self) -> Vec<(String, String)> {
        let mut params = vec![
            ("ageing".into(), self.ageing.load(Relaxed).to_string()),
            ("max-stations".into(), self.fdb.capacity().to_string()),
            ("port-share".into(), self.port_share.load(Relaxed).to_string()),
            ("snooping".into(), if self.snooping.load().is_some() { "on" } else { "off" }.into()),
        ];
        if let Some(snooping) = &*self.snooping.load() {
            let unregistered = if snooping.flood_unregistered { "flood" } else { "routers" };
            params.push(("snooping-timeout".into(), snooping.timeout.to_string()));
            params.push(("unregistered".into(), unregistered.into()));
        }
        params
    }

    fn views(&self) -> Views<'_> {
        let groups = self.snooping.load().is_some().then_some(self as &dyn GroupTable);
        Views { stations: Some(&self.fdb), groups }
    }

    fn hand_over(&self) -> Vec<State> {
        let mut states = vec![Station::hand_over(self.fdb.hand_over())];
        if let Some(snooping) = &*self.snooping.load() {
            states.extend(snooping.hand_over(fabric::clock::seconds()));
        }
        states
    }

    fn take_over(&self, states: &[State]) {
        let now = fabric::clock::seconds();
        let mut stations: Vec<_> = Station::take_over(states).collect();
        // If there is not room for all, static stations come first, then sticky ones, then those heard last.
        stations.sort_by_key(|station| {
            let rank = (!station.is_static, !station.is_sticky);
            (rank, Reverse(station.seen))
        });
        let mut take_over = self.lock_take_over();
        let inherited = take_over.inherited.take();
        for station in &stations {
            match inherited.as_ref().and_then(|inherited| inherited_at(inherited, station.key)) {
                // It moved before the other logic's last batch.
                Some(port) if port != station.port => self.fdb.adopt_move(station, port, now),
                _ => _ = self.fdb.adopt(station, now),
            }
        }
        if let Some(snooping) = &*self.snooping.load() {
            snooping.take_over(states, now);
        }
        match &take_over.ports {
            Some(ports) => self.discard_stale(ports),
            None => {
                let mut inherited: Vec<_> =
                    stations.iter().map(|station| (station.key, station.port)).collect();
                inherited.sort_unstable();
                take_over.inherited = Some(inherited);
            }
        }
    }

    fn not_taken_over(&self, states: &[State]) -> Vec<String> {
        Station::not_taken_over("stations", states).into_iter().collect()
    }

    fn has_table(&self, name: &str) -> bool {
        name == crate::handover::FDB
    }

    fn tick(&self, now_seconds: u32) {
        self.fdb.rearm();
        let mut take_over = self.lock_take_over();
        if let Some(rechecks) = take_over.rechecks.checked_sub(1) {
            take_over.rechecks = rechecks;
            take_over.ports.iter().for_each(|ports| self.discard_stale(ports));
        }
        drop(take_over);
        // Skips the tables of an idle bridge.
        if self.fdb.is_empty() {
            return;
        }
        if let Some(snooping) = &*self.snooping.load() {
            snooping.tick(now_seconds);
        }
        let ageing = self.ageing.load(Relaxed);
        if ageing > 0 {
            self.fdb.expire(now_seconds, ageing);
        }
    }
}

//! Ports: their OpenFlow numbers, and the data path's view of them.
//!
//! The fabric tells which ports there are, the control plane the facts about them, controllers their configuration. A
//! port takes part once all but the last are known. [`Ports`] has it all; [`PortMap`] is the immutable extract that
//! packets see.
//!
//! Invariants: no two ports have the same number; a number stays with a port's name as long as the logic lives, unless
//! the configuration gives it to another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bond::View;
use fabric::port::VlanEgress;
use fabric::{Batch, PortIndex, PortSettings};
use ofswitch::PortInfo;
use openflow::PortNo;
use openflow::message::PortConfig;

use crate::bonds::{Bonds, Locks};
use crate::intercept::Selected;
use crate::pace::Pace;
use crate::tree::{self, Gate, PortState, Protocol, TreeView};

/// Facts about a port that only the control plane knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortFacts {
    /// The port.
    pub index: PortIndex,
    /// Number that the configuration asks for; `None`: the lowest free one from 1. A number that another port has is
    /// not given.
    pub number: Option<u16>,
    /// Whether the port is the bridge's own, [`PortNo::LOCAL`].
    pub is_local: bool,
    /// Ethernet address.
    pub address: [u8; 6],
    /// Whether it has a link.
    pub is_up: bool,
    /// Whether monitoring calls it faulty: it stays up, but is not live to controllers and groups.
    pub is_faulty: bool,
    /// Whether it counts as having one as long as it exists, whatever is at its other end.
    pub keeps_link: bool,
    /// Speed, kbit/s; 0: unknown.
    pub speed: u32,
    /// Whether it is a dummy: see [`PortInfo::is_dummy`].
    pub is_dummy: bool,
    /// Its queues.
    pub queues: Vec<u32>,
    /// Whether the configuration puts it into the bridge's spanning tree: it is blocked until its state is known
    /// ([`crate::OpenFlow::set_tree`]).
    pub in_tree: bool,
    /// Bond that the configuration puts it into: for `NORMAL` the bond is one port ([`crate::OpenFlow::set_bonds`]).
    pub bond: Option<String>,
}

/// A port's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link {
    /// The port's Ethernet address.
    pub address: [u8; 6],
    /// Whether it is up, and monitoring has found no fault on it.
    pub is_up: bool,
    /// Speed, kbit/s; 0: unknown.
    pub speed: u32,
}

/// A port with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedPort {
    /// The port.
    pub index: PortIndex,
    /// Its OpenFlow number.
    pub number: PortNo,
    /// Its name.
    pub name: String,
}

/// Largest number of a port.
const MAX_NUMBER: u32 = 0xfeff;
/// Names of removed ports whose numbers are remembered.
const REMEMBERED: usize = 4096;

/// A port of the bridge.
#[derive(Debug)]
struct Entry {
    name: String,
    settings: Arc<PortSettings>,
    facts: Option<PortFacts>,
    /// 0: none yet.
    number: u32,
    pace: Arc<Pace>,
}

/// All about ports.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    entries: BTreeMap<PortIndex, Entry>,
    /// Facts from before the fabric told of any port: the ports take part from the first packet on.
    early: BTreeMap<PortIndex, PortFacts>,
    configs: BTreeMap<u32, PortConfig>,
    /// Frames of ports that the control plane takes.
    selected: BTreeMap<PortIndex, Selected>,
    /// Numbers by name, of removed ports too.
    remembered: BTreeMap<String, u32>,
    /// Bonds by name.
    bonds: BTreeMap<String, View>,
    /// The spanning tree.
    tree: Option<TreeView>,
    /// Made with the first bond.
    locks: Option<Arc<Locks>>,
}

impl Ports {
    /// The bridge's ports as the fabric has them.
    pub(crate) fn set_existing(&mut self, ports: &[(PortIndex, Arc<PortSettings>)]) {
        self.entries.retain(|index, entry| {
            ports.iter().any(|(other, settings)| other == index && settings.name == entry.name)
        });
        self.selected.retain(|index, _| self.entries.contains_key(index));
        for (index, settings) in ports {
            let settings = settings.clone();
            let new = || Entry {
                name: settings.name.clone(),
                settings: settings.clone(),
                facts: None,
                number: 0,
                pace: Arc::default(),
            };
            let entry = self.entries.entry(*index).or_insert_with(new);
            entry.settings = settings.clone();
        }
        let early: Vec<PortFacts> = std::mem::take(&mut self.early).into_values().collect();
        if !early.is_empty() {
            self.set_facts(&early);
            self.early.clear();
        }
    }

    pub(crate) fn remove(&mut self, index: PortIndex) {
        self.entries.remove(&index);
        self.selected.remove(&index);
    }

    /// Sets the frames of ports that the control plane takes. Ports that are not named lose none.
    pub(crate) fn select(&mut self, selected: BTreeMap<PortIndex, Selected>) {
        self.selected = selected;
        self.selected.retain(|index, what| self.entries.contains_key(index) && !what.is_empty());
    }

    /// Whether the control plane takes frames from some port.
    pub(crate) fn has_selected(&self) -> bool {
        !self.selected.is_empty()
    }

    pub(crate) fn link_lost(&mut self, index: PortIndex) {
        if let Some(facts) = self.entries.get_mut(&index).and_then(|entry| entry.facts.as_mut()) {
            facts.is_up = facts.keeps_link;
        }
    }

    /// Facts from the control plane. Requested numbers are assigned first.
    pub(crate) fn set_facts(&mut self, facts: &[PortFacts]) {
        let early = self.entries.is_empty();
        for facts in facts {
            if early {
                self.early.insert(facts.index, facts.clone());
            } else if let Some(entry) = self.entries.get_mut(&facts.index) {
                entry.facts = Some(facts.clone());
            }
        }
        let indexes: Vec<PortIndex> = self.entries.keys().copied().collect();
        for index in &indexes {
            self.renumber(*index);
        }
        let mut used: BTreeSet<u32> = self
            .entries
            .values()
            .map(|entry| entry.number)
            .chain(self.remembered.values().copied())
            .collect();
        for index in &indexes {
            self.number(*index, &mut used);
        }
    }

    fn is_free(&self, number: u32, index: PortIndex) -> bool {
        !self.entries.iter().any(|(other, entry)| *other != index && entry.number == number)
    }

    /// Gives a port the number that the configuration asks for.
    fn renumber(&mut self, index: PortIndex) {
        let Some(facts) = self.entries.get(&index).and_then(|entry| entry.facts.as_ref()) else { return };
        let wanted = match facts.number {
            _ if facts.is_local => PortNo::LOCAL.0,
            Some(number) if (1..=MAX_NUMBER).contains(&u32::from(number)) => number.into(),
            _ => return,
        };
        if self.is_free(wanted, index) {
            self.give(index, wanted);
        }
    }

    /// Gives a port a number if it has none: that which its name had before, or the lowest that none has or had.
    fn number(&mut self, index: PortIndex, used: &mut BTreeSet<u32>) {
        let Some(entry) = self.entries.get(&index) else { return };
        let is_local = entry.facts.as_ref().is_some_and(|facts| facts.is_local);
        let stale = entry.number == PortNo::LOCAL.0 && !is_local;
        if entry.facts.is_none() || entry.number != 0 && !stale {
            return;
        }
        let before = self.remembered.get(&entry.name).copied().filter(|number| *number <= MAX_NUMBER);
        let number = before
            .filter(|number| self.is_free(*number, index))
            .or_else(|| (1..=MAX_NUMBER).find(|number| !used.contains(number)));
        if let Some(number) = number {
            used.insert(number);
            self.give(index, number);
        }
    }

    fn give(&mut self, index: PortIndex, number: u32) {
        let Some(entry) = self.entries.get_mut(&index) else { return };
        entry.number = number;
        self.remembered.retain(|name, other| *other != number || *name == entry.name);
        self.remembered.insert(entry.name.clone(), number);
        if self.remembered.len() > REMEMBERED + self.entries.len() {
            let there: BTreeSet<&String> = self.entries.values().map(|entry| &entry.name).collect();
            self.remembered.retain(|name, _| there.contains(name));
        }
    }

    /// Configuration by controllers.
    pub(crate) fn set_configs(&mut self, configs: &[(PortNo, PortConfig)]) {
        self.configs = configs.iter().map(|(number, config)| (number.0, *config)).collect();
    }

    /// Ports that take part, as the OpenFlow switch has them.
    pub(crate) fn infos(&self) -> BTreeMap<u32, PortInfo> {
        let numbered = self.entries.values().filter(|entry| entry.number != 0);
        let info = |entry: &Entry| {
            let facts = entry.facts.as_ref()?;
            let info = PortInfo {
                number: PortNo(entry.number),
                name: entry.name.clone(),
                address: facts.address,
                is_up: (facts.is_up || facts.keeps_link) && entry.settings.admin_up,
                is_enabled: self.is_enabled(entry) && !facts.is_faulty,
                speed: facts.speed,
                is_dummy: facts.is_dummy,
                queues: facts.queues.clone(),
                tree: self.tree_state(entry).and_then(tree::openflow_state),
            };
            Some((entry.number, info))
        };
        numbered.filter_map(info).collect()
    }

    /// The link of each port, by name.
    pub(crate) fn links(&self) -> BTreeMap<String, Link> {
        let infos = self.infos().into_values();
        let is_faulty = |name: &str| {
            let mut entries = self.entries.values();
            let entry = entries.find(|entry| entry.name == name);
            entry.and_then(|entry| entry.facts.as_ref()).is_some_and(|facts| facts.is_faulty)
        };
        let link = |info: &PortInfo| {
            let is_up = info.is_up && !is_faulty(&info.name);
            Link { address: info.address, is_up, speed: info.speed }
        };
        infos.map(|info| (info.name.clone(), link(&info))).collect()
    }

    pub(crate) fn numbered(&self) -> Vec<NumberedPort> {
        let numbered = self.entries.iter().filter(|(_, entry)| entry.number != 0);
        let show = |(index, entry): (&PortIndex, &Entry)| NumberedPort {
            index: *index,
            number: PortNo(entry.number),
            name: entry.name.clone(),
        };
        numbered.map(show).collect()
    }

    /// Bonds as the control side has them now.
    pub(crate) fn set_bonds(&mut self, bonds: Vec<View>) {
        self.bonds = bonds.into_iter().map(|view| (view.name.clone(), view)).collect();
    }

    /// The spanning tree as the control side has it now.
    pub(crate) fn set_tree(&mut self, tree: Option<TreeView>) {
        self.tree = tree;
    }

    /// The state of a port in the spanning tree, if it takes part.
    fn tree_state(&self, entry: &Entry) -> Option<PortState> {
        entry.facts.as_ref().filter(|facts| facts.in_tree)?;
        let known = self.tree.as_ref().and_then(|tree| tree.ports.get(&entry.name)).copied();
        Some(known.unwrap_or(PortState::Blocking))
    }

    /// Whether a port may carry packets as far as its bond is concerned.
    fn is_enabled(&self, entry: &Entry) -> bool {
        let bond = entry.facts.as_ref().and_then(|facts| facts.bond.as_ref());
        let view = match bond {
            Some(name) => self.bonds.get(name),
            None => self.bonds.values().find(|view| view.members.iter().any(|it| it.name == entry.name)),
        };
        let member = view.and_then(|view| view.members.iter().find(|member| member.name == entry.name));
        member.map_or(bond.is_none(), |member| member.is_live)
    }

    /// The port that has a name.
    pub(crate) fn named(&self, name: &str) -> Option<PortIndex> {
        self.entries.iter().find(|(_, entry)| entry.name == name).map(|(index, _)| *index)
    }

    /// The name of a port.
    pub(crate) fn name(&self, index: PortIndex) -> Option<&str> {
        self.entries.get(&index).map(|entry| entry.name.as_str())
    }

    /// The tag with which packets of a VLAN leave a port, if any; `None` if they may not.
    pub(crate) fn tag(&self, index: PortIndex, vid: u16) -> Option<Option<u16>> {
        match self.entries.get(&index)?.settings.vlan.egress(vid) {
            VlanEgress::Refused => None,
            VlanEgress::Tagged if vid != 0 => Some(Some(vid)),
            VlanEgress::Tagged | VlanEgress::Untagged => Some(None),
        }
    }

    /// The bonds for packets.
    fn map_bonds(&mut self) -> Option<Box<Bonds>> {
        let mut configured: BTreeMap<&str, BTreeMap<&str, PortIndex>> = BTreeMap::new();
        let mut all = BTreeMap::new();
        for (index, entry) in self.entries.iter().filter(|(_, entry)| entry.number != 0) {
            all.insert(entry.name.as_str(), *index);
            if let Some(bond) = entry.facts.as_ref().and_then(|facts| facts.bond.as_deref()) {
                configured.entry(bond).or_default().insert(&entry.name, *index);
            }
        }
        if configured.is_empty() && self.bonds.is_empty() {
            return None;
        }
        let locks = self.locks.get_or_insert_default();
        Bonds::new(&configured, &all, &self.bonds, locks)
    }

    /// The extract for packets.
    pub(crate) fn map(&mut self) -> PortMap {
        let bonds = self.map_bonds();
        let tree = self.tree.as_ref().map(|tree| tree.protocol);
        let mut map = PortMap { restricted: bonds.is_some(), bonds, tree, ..PortMap::default() };
        for (index, entry) in self.entries.iter().filter(|(_, entry)| entry.number != 0) {
            let config = self.configs.get(&entry.number).copied().unwrap_or_default();
            let at = usize::from(index.0);
            if map.by_index.len() <= at {
                map.by_index.resize(at + 1, MappedPort::NONE);
            }
            if let Some(slot) = map.by_index.get_mut(at) {
                let is_faulty = entry.facts.as_ref().is_some_and(|facts| facts.is_faulty);
                let is_enabled = self.is_enabled(entry) && !is_faulty;
                let state = self.tree_state(entry);
                let gate = state.map(Gate::of).unwrap_or_default();
                let sends = gate == Gate::Open && !config.intersects(NO_OUTPUT);
                let in_tree = state.is_some();
                *slot = MappedPort { number: entry.number, config, is_enabled, sends, gate, in_tree };
                map.is_gated |= gate != Gate::Open;
            }
            map.all.push(*index);
            map.paces.push((*index, entry.pace.clone()));
            map.restricted |= config.intersects(NORMAL_RESTRICTIONS);
            map.selected.extend(self.selected.get(index).map(|selected| (*index, selected.clone())));
            if entry.number == PortNo::LOCAL.0 {
                map.local = Some(*index);
                continue;
            }
            let at = entry.number as usize;
            if map.by_number.len() <= at {
                map.by_number.resize(at + 1, PortIndex::NONE);
            }
            if let Some(slot) = map.by_number.get_mut(at) {
                *slot = *index;
            }
        }
        map.restricted |= map.is_gated;
        map
    }
}

/// Configurations with which a port does not send.
const NO_OUTPUT: PortConfig = PortConfig::PORT_DOWN.union(PortConfig::NO_FWD);

/// Configurations that floods of `NORMAL` have to respect.
const NORMAL_RESTRICTIONS: PortConfig =
    PortConfig::PORT_DOWN.union(PortConfig::NO_FWD).union(PortConfig::NO_FLOOD);

/// A port as packets see it.
#[derive(Debug, Clone, Copy)]
struct MappedPort {
    number: u32,
    config: PortConfig,
    is_enabled: bool,
    /// Whether controllers and the spanning tree let it send.
    sends: bool,
    gate: Gate,
    in_tree: bool,
}

impl MappedPort {
    const NONE: MappedPort = MappedPort {
        number: 0,
        config: PortConfig::empty(),
        is_enabled: false,
        sends: false,
        gate: Gate::Open,
        in_tree: false,
    };
}

/// The ports as packets see them.
#[derive(Debug, Default)]
pub(crate) struct PortMap {
    by_index: Vec<MappedPort>,
    /// [`PortIndex::NONE`]: no port has this number.
    by_number: Vec<PortIndex>,
    local: Option<PortIndex>,
    all: Vec<PortIndex>,
    /// By index.
    paces: Vec<(PortIndex, Arc<Pace>)>,
    restricted: bool,
    selected: Vec<(PortIndex, Selected)>,
    bonds: Option<Box<Bonds>>,
    /// The spanning tree's protocol, if there is one.
    tree: Option<Protocol>,
    /// Whether the spanning tree keeps some port from forwarding.
    is_gated: bool,
}

impl PortMap {
    /// The frames of a port that the control plane takes.
    pub(crate) fn selected(&self, index: PortIndex) -> Option<&Selected> {
        let at = self.selected.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        self.selected.get(at).map(|(_, selected)| selected)
    }

    /// Whether one more frame of a link protocol that a port receives in this second may go to the control plane; if so,
    /// it counts.
    pub(crate) fn admits_frame(&self, index: PortIndex, second: u32) -> bool {
        let at = self.paces.binary_search_by_key(&index, |(index, _)| *index).ok();
        at.and_then(|at| self.paces.get(at)).is_some_and(|(_, pace)| pace.admits(second))
    }

    /// The number of a port that takes part.
    #[inline]
    pub(crate) fn number(&self, index: PortIndex) -> Option<u32> {
        self.by_index.get(usize::from(index.0)).map(|port| port.number).filter(|number| *number != 0)
    }

    /// The port of a number.
    #[inline]
    pub(crate) fn index(&self, number: u32) -> Option<PortIndex> {
        match self.by_number.get(number as usize) {
            Some(index) if *index != PortIndex::NONE => Some(*index),
            None if number == PortNo::LOCAL.0 => self.local,
            _ => None,
        }
    }

    fn config(&self, index: PortIndex) -> PortConfig {
        self.by_index.get(usize::from(index.0)).map_or(PortConfig::empty(), |port| port.config)
    }

    /// Whether controllers let the port receive packets.
    #[inline]
    pub(crate) fn receives(&self, index: PortIndex) -> bool {
        !self.config(index).intersects(PortConfig::PORT_DOWN.union(PortConfig::NO_RECV))
    }

    /// Whether controllers and the spanning tree let the port send packets.
    #[inline]
    pub(crate) fn sends(&self, index: PortIndex) -> bool {
        self.by_index.get(usize::from(index.0)).is_none_or(|port| port.sends)
    }

    /// How far the spanning tree lets packets in at a port.
    #[inline]
    pub(crate) fn gate(&self, index: PortIndex) -> Gate {
        self.by_index.get(usize::from(index.0)).map_or(Gate::Open, |port| port.gate)
    }

    /// Whether BPDUs that a port receives are for the spanning tree.
    pub(crate) fn hears_bpdus(&self, index: PortIndex) -> bool {
        let port = self.by_index.get(usize::from(index.0));
        port.is_some_and(|port| port.in_tree && !port.config.contains(PortConfig::NO_RECV_STP))
    }

    /// Whether ports take part in a spanning tree, or would.
    pub(crate) fn has_tree(&self) -> bool {
        self.tree.is_some() || self.is_gated
    }

    /// The spanning tree's protocol, if it keeps a port from sending.
    pub(crate) fn blocks(&self, index: PortIndex) -> Option<Protocol> {
        (self.gate(index) != Gate::Open).then(|| self.tree.unwrap_or(Protocol::Stp))
    }

    /// Whether `NORMAL` has to look at each port: there are bonds, or ports that the spanning tree blocks.
    pub(crate) fn restricts_all(&self) -> bool {
        self.bonds.is_some() || self.is_gated
    }

    /// Whether floods go to the port.
    pub(crate) fn floods(&self, index: PortIndex) -> bool {
        self.sends(index) && !self.config(index).contains(PortConfig::NO_FLOOD)
    }

    /// Whether a port can send, for groups that go by it.
    pub(crate) fn is_live(&self, number: u32, batch: &Batch<'_>) -> bool {
        self.index(number).is_some_and(|index| {
            let port = self.by_index.get(usize::from(index.0));
            batch.reaches(index)
                && port.is_some_and(|port| port.is_enabled && !port.config.contains(PortConfig::PORT_DOWN))
        })
    }

    /// Ports that take part.
    pub(crate) fn all(&self) -> &[PortIndex] {
        &self.all
    }

    /// Bonds, if there are any, or ports whose LACPDUs are for the control side.
    #[inline]
    pub(crate) fn bonds(&self) -> Option<&Bonds> {
        self.bonds.as_deref()
    }

    /// Whether a port is a member of a bond.
    pub(crate) fn is_bonded(&self, port: PortIndex) -> bool {
        self.bonds().is_some_and(|bonds| bonds.member(port).is_some())
    }

    /// Whether some port takes less than all packets of a learning bridge.
    pub(crate) fn is_restricted(&self) -> bool {
        self.restricted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(names: &[&str]) -> Ports {
        let mut ports = Ports::default();
        set(&mut ports, names);
        ports
    }

    /// `-` stands for an index without a port.
    fn set(ports: &mut Ports, names: &[&str]) {
        let settings = |(i, name): (u16, &&str)| (PortIndex(i), Arc::new(PortSettings::new(*name)));
        let existing: Vec<_> = (0..).zip(names).filter(|(_, name)| **name != "-").map(settings).collect();
        ports.set_existing(&existing);
    }

    fn facts(index: u16, number: Option<u16>) -> PortFacts {
        PortFacts {
            index: PortIndex(index),
            number,
            is_local: false,
            address: [2; 6],
            is_up: true,
            is_faulty: false,
            keeps_link: false,
            speed: 0,
            is_dummy: false,
            queues: vec![],
            bond: None,
            in_tree: false,
        }
    }

    fn numbers(ports: &Ports) -> Vec<(u16, u32)> {
        ports.numbered().iter().map(|port| (port.index.0, port.number.0)).collect()
    }

    #[test]
    fn facts_may_come_before_the_ports() {
        let mut ports = Ports::default();
        ports.set_facts(&[facts(0, None), facts(1, Some(7)), facts(5, None)]);
        assert_eq!(numbers(&ports), []);
        set(&mut ports, &["a", "b"]);
        assert_eq!(numbers(&ports), [(0, 1), (1, 7)]);
        set(&mut ports, &["a", "b", "c", "d", "e", "f"]);
        assert_eq!(numbers(&ports), [(0, 1), (1, 7)], "facts about ports that there were not are forgotten");
    }

    #[test]
    fn numbers_are_the_lowest_free_ones_or_those_asked_for() {
        let mut ports = ports(&["a", "b", "c", "d", "lo"]);
        assert_eq!(numbers(&ports), []);
        let local = PortFacts { is_local: true, ..facts(4, None) };
        ports.set_facts(&[facts(0, None), facts(1, Some(1)), facts(2, Some(0xff00)), local]);
        // A number out of range is not given; `d` has no facts.
        assert_eq!(numbers(&ports), [(0, 2), (1, 1), (2, 3), (4, PortNo::LOCAL.0)]);
        let map = ports.map();
        assert_eq!(map.index(1), Some(PortIndex(1)));
        assert_eq!(map.index(PortNo::LOCAL.0), Some(PortIndex(4)));
        assert_eq!((map.index(0), map.index(4), map.index(PortNo::ANY.0)), (None, None, None));
        assert_eq!((map.number(PortIndex(0)), map.number(PortIndex(3))), (Some(2), None));
        // A number that another port has is not given.
        ports.set_facts(&[facts(3, Some(1))]);
        assert_eq!(ports.map().number(PortIndex(3)), Some(4));
    }

    #[test]
    fn numbers_come_back_with_names() {
        let mut ports = ports(&["a", "b"]);
        ports.set_facts(&[facts(0, None), facts(1, None)]);
        set(&mut ports, &["-", "b"]);
        assert_eq!(numbers(&ports), [(1, 2)]);
        // Another port in its place does not get its number while there are others.
        set(&mut ports, &["x", "b"]);
        ports.set_facts(&[facts(0, None)]);
        assert_eq!(numbers(&ports), [(0, 3), (1, 2)]);
        set(&mut ports, &["x", "b", "a"]);
        ports.set_facts(&[facts(2, None)]);
        assert_eq!(numbers(&ports), [(0, 3), (1, 2), (2, 1)]);
    }

    #[test]
    fn configurations_decide_what_ports_do() {
        let mut ports = ports(&["a", "b"]);
        ports.set_facts(&[facts(0, None), facts(1, None)]);
        assert!(!ports.map().is_restricted());
        ports.set_configs(&[(PortNo(1), PortConfig::NO_RECV), (PortNo(2), PortConfig::NO_FLOOD)]);
        let (map, [a, b]) = (ports.map(), [PortIndex(0), PortIndex(1)]);
        assert_eq!((map.receives(a), map.sends(a), map.floods(a)), (false, true, true));
        assert_eq!((map.receives(b), map.sends(b), map.floods(b)), (true, true, false));
        assert!(map.is_restricted());
        ports.set_configs(&[(PortNo(1), PortConfig::PORT_DOWN), (PortNo(2), PortConfig::NO_FWD)]);
        let map = ports.map();
        assert!(!map.receives(a) && !map.sends(a) && map.receives(b) && !map.sends(b) && !map.floods(b));
    }
}

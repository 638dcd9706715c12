//! Ports: their P4 numbers, and the data path's view of them.
//!
//! The fabric tells which ports there are, the control plane their numbers. [`Ports`] has it all; [`PortMap`] is the
//! immutable extract that packets see.
//!
//! Invariants: no two ports have the same number; a number stays with a port's name as long as the logic lives, unless
//! the configuration gives it to another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fabric::{PortIndex, PortSettings};

/// What only the control plane knows of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortFacts {
    /// The port.
    pub index: PortIndex,
    /// Number that the configuration asks for; `None`: the lowest free one from 1. A number that another port has, and
    /// that of the CPU port, are not given.
    pub number: Option<u16>,
}

/// The link of a line card: a port that leads to the ports of other cards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub number: Option<u32>,
    /// Numbers of the ports behind it.
    pub behind: BTreeSet<u32>,
}

/// Names of removed ports whose numbers are remembered.
const REMEMBERED: usize = 4096;
/// The port to which programs for v1model send packets that are to be dropped.
const DROP_PORT: u32 = 511;

/// A port of the bridge.
#[derive(Debug)]
struct Entry {
    name: String,
    facts: Option<PortFacts>,
    number: Option<u32>,
    /// Whether nothing in its settings needs workers: it is up, without limits and guards.
    is_plain: bool,
}

/// Whether packets from and to a port may pass without a worker, which sees to these settings.
fn is_plain(settings: &PortSettings) -> bool {
    let free = PortSettings::new(settings.name.clone());
    *settings == PortSettings { vlan: settings.vlan.clone(), mtu: settings.mtu, ..free }
}

/// All about ports.
#[derive(Debug)]
pub(crate) struct Ports {
    entries: BTreeMap<PortIndex, Entry>,
    /// Facts from before the fabric told of any port: the ports take part from the first packet on.
    early: BTreeMap<PortIndex, PortFacts>,
    /// Numbers by name, of removed ports too.
    remembered: BTreeMap<String, u32>,
    /// A number that no port gets.
    cpu_port: u32,
    /// The link of a line card, and what is behind it: numbers that no port of the bridge gets.
    link: Link,
}

impl Ports {
    pub(crate) fn new(cpu_port: u32, link: Link) -> Self {
        Self { entries: BTreeMap::new(), early: BTreeMap::new(), remembered: BTreeMap::new(), cpu_port, link }
    }

    /// Sets the link. Ports that have numbers behind it get others.
    pub(crate) fn set_link(&mut self, link: Link) {
        let behind = &link.behind;
        self.remembered.retain(|_, number| !behind.contains(number));
        let lost = |entry: &&mut Entry| entry.number.is_some_and(|number| behind.contains(&number));
        self.entries.values_mut().filter(lost).for_each(|entry| entry.number = None);
        self.link = link;
        self.set_facts(&[]);
    }

    /// Sets the number that no port gets; the port that has it gets another one.
    pub(crate) fn set_cpu_port(&mut self, number: u32) {
        self.cpu_port = number;
        self.remembered.retain(|_, other| *other != number);
        self.entries
            .values_mut()
            .filter(|entry| entry.number == Some(number))
            .for_each(|entry| entry.number = None);
        self.set_facts(&[]);
    }

    /// The bridge's ports as the fabric has them.
    pub(crate) fn set_existing(&mut self, ports: &[(PortIndex, Arc<PortSettings>)]) {
        self.entries.retain(|index, entry| {
            ports.iter().any(|(other, settings)| other == index && settings.name == entry.name)
        });
        for (index, settings) in ports {
            let name = settings.name.clone();
            let new = || Entry { name, facts: None, number: None, is_plain: true };
            self.entries.entry(*index).or_insert_with(new).is_plain = is_plain(settings);
        }
        let early: Vec<PortFacts> = std::mem::take(&mut self.early).into_values().collect();
        if !early.is_empty() {
            self.set_facts(&early);
        }
    }

    pub(crate) fn remove(&mut self, index: PortIndex) {
        self.entries.remove(&index);
        self.early.remove(&index);
    }

    /// Facts from the control plane. Requested numbers are assigned first.
    pub(crate) fn set_facts(&mut self, facts: &[PortFacts]) {
        let is_early = self.entries.is_empty();
        for facts in facts {
            if is_early {
                self.early.insert(facts.index, facts.clone());
            } else if let Some(entry) = self.entries.get_mut(&facts.index) {
                entry.facts = Some(facts.clone());
            }
        }
        // A port that is to have another number leaves its own to others.
        for entry in self.entries.values_mut() {
            let wanted = entry.facts.as_ref().and_then(|facts| facts.number).map(u32::from);
            entry.number = entry.number.filter(|number| wanted.is_none_or(|wanted| wanted == *number));
        }
        let indexes: Vec<PortIndex> = self.entries.keys().copied().collect();
        indexes.iter().for_each(|index| self.renumber(*index));
        let remembered = self.remembered.values().copied();
        let mut used: BTreeSet<u32> =
            self.entries.values().filter_map(|entry| entry.number).chain(remembered).collect();
        used.extend([self.cpu_port, DROP_PORT]);
        used.extend(&self.link.behind);
        indexes.iter().for_each(|index| self.number(*index, &mut used));
    }

    fn is_free(&self, number: u32, index: PortIndex) -> bool {
        number != self.cpu_port
            && !self.link.behind.contains(&number)
            && !self.entries.iter().any(|(other, entry)| *other != index && entry.number == Some(number))
    }

    /// Gives a port the number that the configuration asks for.
    fn renumber(&mut self, index: PortIndex) {
        let Some(entry) = self.entries.get(&index) else { return };
        let Some(wanted) = entry.facts.as_ref().and_then(|facts| facts.number).map(u32::from) else { return };
        if self.is_free(wanted, index) {
            self.give(index, wanted);
        } else {
            tracing::warn!(port = %entry.name, "P4 port number {wanted} is taken: the port gets another one");
        }
    }

    /// Gives a port a number if it has none: that which its name had before, or the lowest that none has or had.
    fn number(&mut self, index: PortIndex, used: &mut BTreeSet<u32>) {
        let Some(entry) = self.entries.get(&index) else { return };
        if entry.facts.is_none() || entry.number.is_some() {
            return;
        }
        let before = self.remembered.get(&entry.name).copied();
        let number = before
            .filter(|number| self.is_free(*number, index))
            .or_else(|| (1..=u32::from(u16::MAX)).find(|number| !used.contains(number)));
        if let Some(number) = number {
            used.insert(number);
            self.give(index, number);
        }
    }

    fn give(&mut self, index: PortIndex, number: u32) {
        let Some(entry) = self.entries.get_mut(&index) else { return };
        entry.number = Some(number);
        self.remembered.retain(|name, other| *other != number || *name == entry.name);
        self.remembered.insert(entry.name.clone(), number);
        if self.remembered.len() > REMEMBERED + self.entries.len() {
            let there: BTreeSet<&String> = self.entries.values().map(|entry| &entry.name).collect();
            self.remembered.retain(|name, _| there.contains(name));
        }
    }

    /// Names of ports with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (&str, Option<u32>)> {
        self.entries.values().map(|entry| (entry.name.as_str(), entry.number))
    }

    /// The numbers of packets' destinations that a port leads to: its own first, then those behind the link. None of a
    /// port with settings that workers see to.
    pub(crate) fn numbers_of(&self, index: PortIndex) -> Option<Vec<u32>> {
        let own = self.entries.get(&index).filter(|entry| entry.is_plain)?.number?;
        let behind = (self.link.number == Some(own)).then_some(&self.link.behind);
        Some([own].into_iter().chain(behind.into_iter().flatten().copied()).collect())
    }

    /// The extract for packets.
    pub(crate) fn map(&self) -> PortMap {
        let mut map = PortMap::default();
        for (index, number) in self.entries.iter().filter_map(|(index, entry)| Some((*index, entry.number?)))
        {
            set(&mut map.by_index, usize::from(index.0), Some(number), None);
            set(&mut map.by_number, number as usize, index, PortIndex::NONE);
        }
        if let Some(link) = self.link.number.and_then(|number| map.index(number)) {
            for number in &self.link.behind {
                set(&mut map.by_number, *number as usize, link, PortIndex::NONE);
            }
        }
        map
    }
}

/// Sets an element of a list, which it lengthens with `none`.
fn set<T: Copy>(list: &mut Vec<T>, at: usize, value: T, none: T) {
    if list.len() <= at {
        list.resize(at + 1, none);
    }
    if let Some(slot) = list.get_mut(at) {
        *slot = value;
    }
}

/// The ports as packets see them.
#[derive(Debug, Default)]
pub(crate) struct PortMap {
    by_index: Vec<Option<u32>>,
    by_number: Vec<PortIndex>,
}

impl PortMap {
    /// The number of a port.
    #[inline]
    pub(crate) fn number(&self, index: PortIndex) -> Option<u32> {
        self.by_index.get(usize::from(index.0)).copied().flatten()
    }

    /// The port with a number, or the link to it.
    #[inline]
    pub(crate) fn index(&self, number: u32) -> Option<PortIndex> {
        self.by_number.get(number as usize).copied().filter(|index| *index != PortIndex::NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn existing(names: &[(u16, &str)]) -> Vec<(PortIndex, Arc<PortSettings>)> {
        names.iter().map(|(index, name)| (PortIndex(*index), Arc::new(PortSettings::new(*name)))).collect()
    }

    fn facts(index: u16, number: Option<u16>) -> PortFacts {
        PortFacts { index: PortIndex(index), number }
    }

    fn numbers(ports: &Ports) -> Vec<(String, u32)> {
        ports.numbered().filter_map(|(name, number)| Some((name.to_owned(), number?))).collect()
    }

    #[test]
    fn ports_that_need_workers_lead_nowhere_without_them() {
        let mut ports = Ports::new(510, Link { number: Some(500), behind: [7, 8].into() });
        let with = |change: fn(&mut PortSettings)| {
            let mut settings = PortSettings::new("a");
            change(&mut settings);
            [(PortIndex(0), Arc::new(settings))]
        };
        ports.set_existing(&with(|_| {}));
        ports.set_facts(&[PortFacts { index: PortIndex(0), number: Some(500) }]);
        assert_eq!(ports.numbers_of(PortIndex(0)), Some(vec![500, 7, 8]));
        ports.set_existing(&with(|settings| settings.mtu = 1400));
        assert_eq!(ports.numbers_of(PortIndex(0)), Some(vec![500, 7, 8]));
        for change in [(|settings| settings.admin_up = false) as fn(&mut PortSettings), |settings| {
            settings.isolated = true
        }] {
            ports.set_existing(&with(change));
            assert_eq!(ports.numbers_of(PortIndex(0)), None);
        }
    }

    fn named(list: &[(&str, u32)]) -> Vec<(String, u32)> {
        list.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect()
    }

    #[test]
    fn requested_numbers_come_first_and_others_are_the_lowest_free_ones() {
        let mut ports = Ports::new(2, Link::default());
        ports.set_existing(&existing(&[(0, "a"), (1, "b"), (2, "c"), (3, "d")]));
        ports.set_facts(&[facts(0, None), facts(1, Some(1)), facts(2, Some(0)), facts(3, Some(2))]);
        // 1 is asked for, 2 is the CPU port.
        assert_eq!(numbers(&ports), named(&[("a", 3), ("b", 1), ("c", 0), ("d", 4)]));
        let map = ports.map();
        assert_eq!(
            (map.index(0), map.index(1), map.index(2)),
            (Some(PortIndex(2)), Some(PortIndex(1)), None)
        );
        assert_eq!((map.number(PortIndex(0)), map.number(PortIndex(9))), (Some(3), None));
        assert_eq!((map.index(9), map.index(u32::MAX)), (None, None));
    }

    #[test]
    fn a_name_keeps_its_number() {
        let mut ports = Ports::new(510, Link::default());
        // Facts before the ports exist hold when they do.
        ports.set_facts(&[facts(0, None), facts(1, None)]);
        ports.set_existing(&existing(&[(0, "a"), (1, "b")]));
        assert_eq!(numbers(&ports), named(&[("a", 1), ("b", 2)]));
        ports.remove(PortIndex(0));
        ports.set_existing(&existing(&[(1, "b"), (2, "c"), (3, "a")]));
        ports.set_facts(&[facts(2, None), facts(3, None)]);
        assert_eq!(numbers(&ports), named(&[("b", 2), ("c", 3), ("a", 1)]));
        // The configuration may give it to another.
        ports.set_facts(&[facts(3, Some(9)), facts(2, Some(1))]);
        assert_eq!(numbers(&ports), named(&[("b", 2), ("c", 1), ("a", 9)]));
        ports.set_facts(&[facts(1, Some(9))]);
        assert_eq!(numbers(&ports), named(&[("b", 2), ("c", 1), ("a", 9)]));
    }

    #[test]
    fn only_ports_of_other_cards_are_behind_the_link() {
        let link = Link { number: Some(500), behind: [1, 3].into() };
        let mut ports = Ports::new(510, link);
        ports.set_existing(&existing(&[(0, "link"), (1, "a"), (2, "b"), (3, "c")]));
        // 3 is on another card; the lowest number that is free here is 2.
        ports.set_facts(&[facts(0, Some(500)), facts(1, Some(4)), facts(2, Some(3)), facts(3, None)]);
        let map = ports.map();
        let found = [500, 1, 3, 4, 2, 6].map(|number| map.index(number).map(|index| index.0));
        assert_eq!(&found[..4], [Some(0), Some(0), Some(0), Some(1)]);
        assert!(found[4] == Some(2) || found[4] == Some(3), "{found:?}");
        assert_eq!(found[5], None, "neither here nor there");
        // A port that is removed is not looked for on other cards.
        ports.remove(PortIndex(1));
        assert_eq!(ports.map().index(4), None);
        // Without a link, its ports are nowhere, and their numbers are free.
        ports.set_link(Link::default());
        assert_eq!(ports.map().index(1), None);
    }

    #[test]
    fn the_drop_port_is_not_given_unasked() {
        let mut ports = Ports::new(510, Link::default());
        let all: Vec<(u16, String)> = (0..600).map(|n| (n, format!("p{n}"))).collect();
        let names: Vec<(u16, &str)> = all.iter().map(|(n, name)| (*n, name.as_str())).collect();
        ports.set_existing(&existing(&names));
        ports.set_facts(&names.iter().map(|(n, _)| facts(*n, None)).collect::<Vec<_>>());
        let numbers: BTreeSet<u32> = ports.numbered().filter_map(|(_, number)| number).collect();
        assert_eq!(numbers, (1..=602).filter(|n| ![510, 511].contains(n)).collect());
    }
}

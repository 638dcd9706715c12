//! The model: everything that controllers put there, in their terms.
//!
//! A change that may fail half-way is tried: meanwhile the large parts of the model keep what the change replaces, and
//! the small ones are copied. So it costs what it changes, however much is there besides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashMap;
use pipeline::ir::Matches;
use pipeline::state::{Installed, TableState};

use crate::flows::{Flow, FlowKey, FlowTable};
use crate::groups::GroupEntry;
use crate::journal::{Journal, Journaled};
use crate::lower::Template;
use crate::meters::MeterEntry;
use crate::program::{BANDS, TABLES};
use crate::tables::TableSettings;
use crate::tunnels::Tunnels;
use crate::uses::{Object, User, Uses};

/// Everything that controllers put there. While a change is tried, its large parts keep what the change replaces.
#[derive(Debug)]
pub(crate) struct Model {
    tables: Vec<FlowTable>,
    /// Flows that the change which is being tried has replaced, in order. `None`: no change is being tried.
    replaced: Option<Vec<Replaced>>,
    groups: Journaled<u32, Arc<GroupEntry>>,
    uses: Uses,
    pub(crate) meters: Journaled<u32, Arc<MeterEntry>>,
    pub(crate) learns: Journaled<u32, Arc<Template>>,
    /// Flows whose timeouts the end of a TCP connection reduces, by the number of their `fin_timeout` action.
    pub(crate) fins: Journaled<u32, FlowKey>,
    /// Entries that stand for conjunctive flows, by table.
    pub(crate) conjunctive: Journaled<u8, Arc<Expansion>>,
    pub(crate) settings: Arc<Vec<TableSettings>>,
    pub(crate) bands: Bands,
    pub(crate) tunnels: Tunnels,
    pub(crate) sums: Sums,
}

/// A flow that a change has replaced.
#[derive(Debug)]
struct Replaced {
    table: u8,
    number: u64,
    /// The flow of this number before, if there was one.
    flow: Option<Arc<Flow>>,
}

/// Cells of meters' bands.
#[derive(Debug, Default)]
pub(crate) struct Bands {
    /// Those that are free again.
    free: Journaled<u32, ()>,
    /// The first one of those that have not been used.
    next: u32,
}

impl Bands {
    /// Number of cells that are not in use.
    pub(crate) fn free(&self) -> usize {
        self.free.len() + BANDS.saturating_sub(self.next) as usize
    }

    /// Takes a cell, if there is one.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if let Some(cell) = self.free.keys().next_back().copied() {
            self.free.remove(&cell);
            return Some(cell);
        }
        let next = (self.next < BANDS).then_some(self.next)?;
        self.next += 1;
        Some(next)
    }

    /// Gives a cell back.
    pub(crate) fn give_back(&mut self, cell: u32) {
        self.free.insert(cell, ());
    }
}

/// Numbers about a whole model.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sums {
    pub(crate) flows: usize,
    /// Flows that are clauses of conjunctive matches.
    pub(crate) clauses: usize,
    /// Whether the free space of some table is watched.
    pub(crate) watches: bool,
    /// Flows with a timeout.
    pub(crate) timed: usize,
    /// Buckets of all groups.
    pub(crate) buckets: usize,
    /// Bytes of the messages that describe flows and groups.
    pub(crate) bytes: usize,
}

/// The small parts of a model, as they were when a change began.
pub(crate) struct SmallParts {
    settings: Arc<Vec<TableSettings>>,
    next_band: u32,
    tunnels: Tunnels,
    sums: Sums,
}

impl Model {
    /// A model of tables without flows.
    pub(crate) fn new() -> Self {
        let tables = usize::from(TABLES);
        Self {
            tables: (0..tables).map(|_| FlowTable::default()).collect(),
            replaced: None,
            groups: Journaled::default(),
            uses: Uses::default(),
            meters: Journaled::default(),
            learns: Journaled::default(),
            fins: Journaled::default(),
            conjunctive: Journaled::default(),
            settings: Arc::new(vec![TableSettings::default(); tables]),
            bands: Bands::default(),
            tunnels: Tunnels::default(),
            sums: Sums::default(),
        }
    }

    /// The parts that keep what a change replaces, but for the tables.
    fn journals(&mut self) -> [&mut dyn Journal; 7] {
        // All by name, so that the compiler tells of a part that is forgotten. The last ones are in `SmallParts`.
        let Self {
            tables: _,
            replaced: _,
            groups,
            uses,
            meters,
            learns,
            fins,
            conjunctive,
            bands,
            settings: _,
            tunnels: _,
            sums: _,
        } = self;
        [groups, &mut uses.0, meters, learns, fins, conjunctive, &mut bands.free]
    }

    /// Begins to try a change, which ends with [`Model::keep`] or [`Model::take_back`].
    pub(crate) fn begin(&mut self) -> SmallParts {
        debug_assert!(self.replaced.is_none(), "one change at a time");
        self.replaced = Some(Vec::new());
        self.journals().into_iter().for_each(Journal::begin);
        SmallParts {
            settings: self.settings.clone(),
            next_band: self.bands.next,
            tunnels: self.tunnels.clone(),
            sums: self.sums,
        }
    }

    /// Ends a change that has succeeded.
    pub(crate) fn keep(&mut self) {
        self.replaced = None;
        self.journals().into_iter().for_each(Journal::keep);
    }

    /// Ends a change that has failed: everything is as it was at its beginning.
    pub(crate) fn take_back(&mut self, before: SmallParts) {
        for Replaced { table, number, flow } in self.replaced.take().into_iter().flatten().rev() {
            let Some(table) = self.tables.get_mut(usize::from(table)) else { continue };
            match flow {
                Some(flow) => drop(table.put(number, flow)),
                None => table.remove_number(number),
            }
        }
        self.journals().into_iter().for_each(Journal::take_back);
        let SmallParts { settings, next_band, tunnels, sums } = before;
        (self.settings, self.bands.next) = (settings, next_band);
        (self.tunnels, self.sums) = (tunnels, sums);
    }

    /// Flow tables, by number.
    pub(crate) fn tables(&self) -> &[FlowTable] {
        &self.tables
    }

    /// Groups, by number.
    pub(crate) fn groups(&self) -> &BTreeMap<u32, Arc<GroupEntry>> {
        &self.groups
    }

    /// Adds or replaces a group.
    pub(crate) fn put_group(&mut self, number: u32, entry: Arc<GroupEntry>) {
        let after = entry.objects();
        let before = self.groups.insert(number, entry);
        let before = before.map(|before| before.objects()).unwrap_or_default();
        self.uses.change(User::Group(number), &before, &after);
    }

    /// Removes a group; returns it.
    pub(crate) fn remove_group(&mut self, number: u32) -> Option<Arc<GroupEntry>> {
        let before = self.groups.remove(&number)?;
        self.uses.change(User::Group(number), &before.objects(), &BTreeSet::new());
        Some(before)
    }

    /// What refers to what.
    pub(crate) fn uses(&self) -> &Uses {
        &self.uses
    }

    /// Whether it knows what refers to what.
    pub(crate) fn knows_users(&self) -> bool {
        let by_groups = self.groups.iter().map(|(number, entry)| (User::Group(*number), entry.objects()));
        let by_table = |(table, flows): (usize, &FlowTable)| {
            flows.numbered().map(|(number, flow)| (User::Flow(table as u8, number), flow.objects())).collect()
        };
        let by_flows: Vec<Vec<_>> = self.tables.iter().enumerate().map(by_table).collect();
        let all = by_flows.into_iter().flatten().chain(by_groups);
        let all = all.flat_map(|(user, objects)| objects.into_iter().map(move |object| (object, user)));
        all.collect::<BTreeSet<_>>().iter().eq(self.uses.0.keys())
    }

    /// Flows that refer to some of these objects, in the order of their tables and numbers.
    pub(crate) fn flows_with(&self, objects: impl Iterator<Item = Object>) -> Vec<Arc<Flow>> {
        let users: BTreeSet<User> = objects.flat_map(|object| self.uses.of(object)).collect();
        let flow = |user: &User| match user {
            User::Flow(table, number) => self.tables.get(usize::from(*table))?.get(*number).cloned(),
            User::Group(_) => None,
        };
        users.iter().filter_map(flow).collect()
    }

    /// Adds a flow to its table, or replaces the one with the same match and priority ([`FlowTable::put`]).
    pub(crate) fn put(&mut self, number: u64, flow: Arc<Flow>) {
        self.in_table(flow.table, |table| {
            let (number, before) = table.put(number, flow.clone());
            Some((number, before, Some(&*flow)))
        });
    }

    /// Removes a flow from its table.
    pub(crate) fn remove(&mut self, flow: &Flow) {
        self.in_table(flow.table, |table| {
            let (number, before) = table.remove(flow)?;
            Some((number, Some(before), None))
        });
    }

    /// Changes a table: `change` returns the number of a flow, and the flows of this number before and after.
    fn in_table<'f>(
        &mut self,
        table: u8,
        change: impl FnOnce(&mut FlowTable) -> Option<(u64, Option<Arc<Flow>>, Option<&'f Flow>)>,
    ) {
        let Some(flows) = self.tables.get_mut(usize::from(table)) else { return };
        let clauses = flows.clauses();
        let changed = change(flows);
        self.sums.clauses = self.sums.clauses - clauses + flows.clauses();
        let Some((number, before, after)) = changed else { return };
        let objects = |flow: Option<&Flow>| flow.map(Flow::objects).unwrap_or_default();
        self.uses.change(User::Flow(table, number), &objects(before.as_deref()), &objects(after));
        if let Some(replaced) = &mut self.replaced {
            replaced.push(Replaced { table, number, flow: before });
        }
    }

    /// Whether some flow of a table is a clause of a conjunctive match.
    pub(crate) fn has_clauses(&self, number: u8) -> bool {
        self.tables.get(usize::from(number)).is_some_and(|table| table.clauses() > 0)
    }

    /// The flow with this key.
    pub(crate) fn flow(&self, (table, priority, conditions): &FlowKey) -> Option<&Arc<Flow>> {
        self.tables.get(usize::from(*table))?.find(*priority, conditions)
    }

    /// The flow that every packet meets, whatever it is: the only one of the first table, without conditions.
    pub(crate) fn only_flow(&self) -> Option<&Arc<Flow>> {
        let table = self.tables.first().filter(|table| table.len() == 1)?;
        table.iter().next().filter(|flow| flow.conditions.is_empty())
    }
}

/// The entries that stand for a table's conjunctive flows.
#[derive(Debug, Default)]
pub(crate) struct Expansion {
    pub(crate) entries: Vec<Joined>,
    /// Places of the entries with a flow's actions, by the flow's priority and match. There may be as many flows on
    /// `conj_id` as there are entries, and statistics ask for each.
    by_actor: HashMap<(u16, Matches), Vec<usize>>,
}

impl Expansion {
    pub(crate) fn push(&mut self, joined: Joined) {
        let actor = (joined.actor.priority, joined.actor.conditions.clone());
        self.by_actor.entry(actor).or_default().push(self.entries.len());
        self.entries.push(joined);
    }

    /// The entries with a flow's actions.
    pub(crate) fn of_actor(&self, flow: &Flow) -> impl Iterator<Item = &Joined> {
        let places = self.by_actor.get(&(flow.priority, flow.conditions.clone()));
        places.into_iter().flatten().filter_map(|place| self.entries.get(*place))
    }
}

/// An entry that stands for conjunctive flows, with the numbers of what belongs to it.
#[derive(Debug, Clone)]
pub(crate) struct Joined {
    pub(crate) conditions: Matches,
    pub(crate) priority: u16,
    /// The flow whose actions it has, and that counts its packets.
    pub(crate) actor: Arc<Flow>,
    pub(crate) copies: Vec<u32>,
    pub(crate) learns: Vec<u32>,
}

impl Joined {
    /// The entry, in its table.
    pub(crate) fn installed<'s>(&self, table: &'s TableState) -> Option<&'s Arc<Installed>> {
        table.find(&self.conditions, self.priority.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::Version;
    use openflow::message::FlowModFlags;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use crate::datapath::exact_match;
    use crate::flows::Before;

    /// A flow of a few that have different keys, told from others of the same key by its cookie.
    fn flow(key: u8, cookie: u64, is_clause: bool) -> Arc<Flow> {
        let group = cookie % 3;
        let actions =
            if is_clause { "conjunction(1,1/2)".to_owned() } else { format!("clone(group:{group})") };
        let parsed = openflow::text::parse_flow(
            &format!("actions={actions}"),
            openflow::message::FlowModCommand::Add,
            Version::V1_3,
        )
        .unwrap();
        Arc::new(Flow {
            table: key % 2,
            priority: u16::from(key / 4),
            conditions: exact_match(u32::from(key / 2 % 2)),
            fields: Arc::new([]),
            cookie,
            idle_timeout: 0,
            hard_timeout: 0,
            flags: FlowModFlags::empty(),
            importance: 0,
            instructions: Arc::new(parsed.instructions),
            version: Version::V1_3,
            created: 0,
            modified: 0,
            before: Before { used: 0, packets: 0 },
            copies: vec![],
            learns: vec![],
            size: 0,
        })
    }

    /// Tables and cookies of flows in order, cookies of the flows that are found by each key, and numbers of clauses.
    #[derive(Debug, PartialEq)]
    struct Told {
        flows: Vec<(u8, u64)>,
        found: Vec<Option<u64>>,
        clauses: [usize; 3],
    }

    fn told(model: &Model) -> Told {
        let flows = model.tables().iter().flat_map(FlowTable::iter);
        let found = (0..12).map(|key| model.flow(&flow(key, 0, false).key()).map(|flow| flow.cookie));
        let clauses = |table: usize| model.tables().get(table).map_or(0, FlowTable::clauses);
        Told {
            flows: flows.map(|flow| (flow.table, flow.cookie)).collect(),
            found: found.collect(),
            clauses: [clauses(0), clauses(1), model.sums.clauses],
        }
    }

    proptest! {
        #[test]
        fn a_failed_change_leaves_the_flows_as_they_were(
            changes in vec((any::<bool>(), vec((0u8..12, any::<bool>(), any::<bool>()), 0..20)), 1..10)
        ) {
            let (mut model, mut number) = (Model::new(), 0);
            for (fails, steps) in changes {
                let before = told(&model);
                let small = model.begin();
                for (key, puts, is_clause) in steps {
                    number += 1;
                    let flow = flow(key, number, is_clause);
                    match puts {
                        true => model.put(number, flow),
                        false => model.remove(&flow),
                    }
                }
                if fails {
                    model.take_back(small);
                    prop_assert_eq!(told(&model), before);
                } else {
                    model.keep();
                }
                prop_assert!(model.knows_users());
            }
        }
    }
}

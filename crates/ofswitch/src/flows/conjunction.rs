//! Conjunctive matches: flows that are clauses of a match, and flows on `conj_id` that say what packets do that fulfil
//! all clauses.
//!
//! The pipeline finds one entry per lookup. So the clauses of a conjunction are multiplied out: each combination of flows,
//! one per clause, is one entry with the actions of the flow on its `conj_id`, at the clauses' priority. Their number is
//! limited ([`crate::Limits::conjunctions`]), and so are the attempts to combine flows, which may contradict each other;
//! a change beyond that is refused as a full table.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use openflow::error::ErrorCode;
use openflow::field::FieldId;
use pipeline::ir::{Entry, EntryResult, KeyMatch, Match};
use pipeline::state::Update;

use super::Flow;
use crate::datapath::{Datapath, Transaction};
use crate::lower::matching::{Conditions, intersection};
use crate::lower::{Owner, instructions};
use crate::model::{Expansion, Joined};
use crate::program::{Layout, outputs};

/// A combination: what it matches, its priority, and the flow that acts.
type Combination = (Conditions, u16, Arc<Flow>);

/// The clauses of a conjunction: by number, how many there are to be, and the flows of each.
type Clauses = BTreeMap<u8, (u8, Vec<Arc<Flow>>)>;

/// Attempts to combine flows for each combination that a table permits.
const ATTEMPTS: usize = 16;

impl Datapath {
    /// Brings the entries that stand for a table's conjunctive flows up to date.
    pub(crate) fn expand_conjunctions(
        &mut self,
        table: u8,
        transaction: &mut Transaction,
    ) -> Result<(), ErrorCode> {
        let Some(id) = Layout::get().table(table) else { return Ok(()) };
        let wanted = self.combinations(table)?;
        self.withdraw_conjunctions(table, transaction);
        let mut installed = Expansion::default();
        for (conditions, priority, flow) in wanted {
            let owner = Owner { table, cookie: flow.cookie, reason: outputs::ACTION };
            let lowered = self.lower(None, |world| instructions(world, owner, &flow.instructions))?;
            let (call, copies, learns) = self.install(lowered, transaction)?;
            let entry = Entry {
                matches: conditions.clone(),
                priority: priority.into(),
                result: EntryResult::Action(call),
                idle: 0,
                hard: 0,
                cookie: flow.cookie,
            };
            transaction.updates.push(Update::Insert(id, entry));
            installed.push(Joined { conditions, priority, actor: flow, copies, learns });
        }
        if !installed.entries.is_empty() {
            self.model.conjunctive.insert(table, Arc::new(installed));
        }
        Ok(())
    }

    /// Removes the entries that stand for a table's conjunctive flows, before the table changes: they come again, unless
    /// a flow of the same match has taken their place.
    pub(super) fn withdraw_conjunctions(&mut self, table: u8, transaction: &mut Transaction) {
        let Some(id) = Layout::get().table(table) else { return };
        let Some(expansion) = self.model.conjunctive.remove(&table) else { return };
        for joined in &expansion.entries {
            if let Some(installed) = self.state.table(id).and_then(|state| joined.installed(state)) {
                let (packets, bytes) = installed.stats.hits();
                transaction.carried.push((joined.actor.clone(), packets, bytes));
            }
            let conditions = joined.conditions.clone();
            transaction.updates.push(Update::DeleteMatch(id, conditions, joined.priority.into()));
            self.uninstall(&joined.copies, &joined.learns, transaction);
            transaction.conjunctive.push(table);
        }
    }

    /// Packets, bytes and time of the last packet of the entries whose actions are a flow's, besides its own entry.
    pub(crate) fn joined_hits(&self, flow: &Flow) -> (u64, u64, u64) {
        let entries = Layout::get().table(flow.table).and_then(|id| self.state.table(id));
        let (Some(entries), Some(_)) = (entries, conj_id(&flow.conditions)) else { return (0, 0, 0) };
        let expansion = self.model.conjunctive.get(&flow.table);
        let of_flow = expansion.into_iter().flat_map(|expansion| expansion.of_actor(flow));
        of_flow.filter_map(|joined| joined.installed(entries)).fold((0, 0, 0), |sum, installed| {
            let (packets, bytes) = installed.stats.hits();
            let last = installed.stats.last_hit.load(std::sync::atomic::Ordering::Relaxed);
            (sum.0 + packets, sum.1 + bytes, sum.2.max(last))
        })
    }

    /// The combinations of a table, without those that an ordinary flow of the same priority already decides.
    fn combinations(&self, table: u8) -> Result<Vec<Combination>, ErrorCode> {
        let Some(flows) = self.model.tables().get(usize::from(table)) else { return Ok(vec![]) };
        // Clauses by priority, conjunction and clause.
        let mut clauses: BTreeMap<(u16, u32), Clauses> = BTreeMap::new();
        let mut results: BTreeMap<u32, Vec<Arc<Flow>>> = BTreeMap::new();
        for flow in flows.iter() {
            for clause in flow.clauses() {
                let of = clauses.entry((flow.priority, clause.id)).or_default();
                of.entry(clause.clause).or_insert((clause.clauses, vec![])).1.push(flow.clone());
            }
            if let Some(id) = conj_id(&flow.conditions) {
                results.entry(id).or_default().push(flow.clone());
            }
        }
        let mut all: Vec<Combination> = Vec::new();
        let mut seen: HashSet<(Conditions, u16)> = HashSet::new();
        let limit = self.limits.conjunctions as usize;
        let mut attempts = limit.saturating_mul(ATTEMPTS);
        let mut attempt = |number: usize| {
            attempts = attempts.checked_sub(number).ok_or(ErrorCode::FmfcTableFull)?;
            Ok(())
        };
        for ((priority, id), of) in &clauses {
            let wanted = of.values().map(|(clauses, _)| usize::from(*clauses)).max().unwrap_or(0);
            let Some(actors) = results.get(id).filter(|_| of.len() == wanted) else { continue };
            let mut products: Vec<Conditions> = vec![Conditions::default()];
            for (_, flows) in of.values() {
                let mut next = Vec::new();
                for product in &products {
                    attempt(flows.len())?;
                    next.extend(flows.iter().filter_map(|flow| intersection(product, &flow.conditions)));
                    if next.len() > limit {
                        return Err(ErrorCode::FmfcTableFull);
                    }
                }
                products = next;
            }
            // The results' own priorities decide among results.
            let mut actors = actors.clone();
            actors.sort_by_key(|flow| std::cmp::Reverse(flow.priority));
            for flow in &actors {
                let rest: Conditions = without_id(&flow.conditions);
                attempt(products.len())?;
                for product in &products {
                    let Some(conditions) = intersection(product, &rest) else { continue };
                    let taken = flows.find(*priority, &conditions);
                    if taken.is_some_and(|flow| !flow.is_clause()) {
                        continue;
                    }
                    if seen.insert((conditions.clone(), *priority)) {
                        all.push((conditions, *priority, flow.clone()));
                    }
                    if all.len() > limit {
                        return Err(ErrorCode::FmfcTableFull);
                    }
                }
            }
        }
        Ok(all)
    }
}

fn key_of_id() -> Option<u32> {
    Layout::get().keys.spot(FieldId::ConjId).map(|spot| spot.key)
}

/// The conjunction that a match asks for.
fn conj_id(conditions: &[Match]) -> Option<u32> {
    let key = key_of_id()?;
    let condition = conditions.iter().find(|condition| condition.key == key)?;
    match &condition.is {
        KeyMatch::Mask(value, _) => u32::try_from(value.low_u64()).ok(),
        _ => None,
    }
}

fn without_id(conditions: &[Match]) -> Conditions {
    let key = key_of_id();
    conditions.iter().filter(|condition| Some(condition.key) != key).cloned().collect()
}

//! Random changes by a control plane. Entries are made for keys that packets were looked up with, so that they are hit.

use std::collections::BTreeMap;

use pipeline::ir::{
    ActionCall, ActionId, Constant, Entry, EntryResult, KeyMatch, Match, MatchKind, MeterId, ProfileId,
    Program, RegisterId, ReplicasId, TableId, Type, ValueSetId,
};
use pipeline::state::{Choice, Rates, Replica, Replication, State, Update};
use pipeline::validate::expr_type;

use super::chance::Chance;

/// Most keys that are kept of a table.
const KEYS: usize = 32;

/// Keys that tables were looked up with.
#[derive(Default)]
pub(in crate::stf) struct Lookups(BTreeMap<TableId, Vec<Vec<Constant>>>);

impl Lookups {
    /// Keeps the keys of a lookup.
    pub(in crate::stf) fn learn(&mut self, table: TableId, keys: &[Constant], chance: &mut Chance) {
        let known = self.0.entry(table).or_default();
        if known.len() < KEYS {
            known.push(keys.to_vec());
        } else {
            let at = chance.below(KEYS);
            known.iter_mut().skip(at).take(1).for_each(|old| *old = keys.to_vec());
        }
    }

    /// Changes of a state; none of them need be possible.
    pub(in crate::stf) fn updates(&self, state: &State, chance: &mut Chance) -> Vec<Update> {
        let p: &Program = state.program();
        let mut updates = Vec::new();
        for (i, table) in p.tables.iter().enumerate() {
            let id = TableId::at(i);
            for _ in 0..chance.below(4) {
                let existing = state.table(id).into_iter().flat_map(|table| table.entries());
                let existing: Vec<_> = existing.map(|entry| (entry.id, entry.entry.clone())).collect();
                let old = chance.pick(&existing).cloned();
                updates.push(match (chance.below(8), old) {
                    (0, Some((number, _))) => Update::Delete(id, number),
                    (1, Some((_, entry))) => {
                        Update::Modify(id, Entry { result: self.result(p, id, chance), ..entry })
                    }
                    (2, Some((number, _))) if table.meter.is_some() => {
                        Update::EntryMeter(id, number, Some(rates(chance)))
                    }
                    (3, _) => {
                        let actions: Vec<_> =
                            table.actions.iter().chain(&table.default_only).copied().collect();
                        let action = chance.pick(&actions).copied();
                        Update::Default(id, action.map(|action| call(p, action, chance)))
                    }
                    _ => Update::Insert(id, self.entry(p, id, chance)),
                });
            }
        }
        self.objects(p, chance, &mut updates);
        updates
    }

    fn entry(&self, p: &Program, id: TableId, chance: &mut Chance) -> Entry {
        let known = self.0.get(&id).map_or(&[][..], Vec::as_slice);
        let seen = match chance.once_in(5) {
            true => None,
            false => chance.pick(known).cloned(),
        };
        let table = p.tables.get(id.index());
        let mut matches = Vec::new();
        for (i, key) in table.map_or(&[][..], |table| &table.keys).iter().enumerate() {
            let width = expr_type(p, &key.value).map_or(1, Type::width);
            let seen = seen.as_ref().and_then(|keys| keys.get(i)).map(|key| key.value.clone());
            let value = seen.unwrap_or_else(|| chance.value(width));
            let is = match key.kind {
                MatchKind::Exact => KeyMatch::Exact(value),
                _ if chance.once_in(4) => continue,
                MatchKind::Optional => KeyMatch::Exact(value),
                MatchKind::Lpm => {
                    let len = chance.below(usize::from(width) + 1) as u16;
                    let rest = u64::from(width - len);
                    KeyMatch::Prefix(value.shr(rest).shl(rest), len)
                }
                MatchKind::Ternary => {
                    let mask = chance.value(width);
                    let mask = if chance.once_in(2) { mask.not() } else { mask };
                    KeyMatch::Mask(value.and(&mask), mask)
                }
                MatchKind::Range => {
                    let other = chance.value(width);
                    KeyMatch::Range(value.clone().min(other.clone()), value.max(other))
                }
            };
            matches.push(Match { key: i as u32, is });
        }
        let has_priority = table.is_some_and(|table| table.has_priority());
        let priority = if has_priority { 1 + chance.below(4) as u32 } else { 0 };
        let result = self.result(p, id, chance);
        Entry { matches: matches.into(), priority, result, idle: 0, hard: 0, cookie: 0 }
    }

    fn result(&self, p: &Program, id: TableId, chance: &mut Chance) -> EntryResult {
        let table = p.tables.get(id.index());
        match table.map(|table| (table.profile, chance.once_in(2))) {
            Some((Some(_), true)) => EntryResult::Member(chance.below(4) as u32),
            Some((Some(_), false)) => EntryResult::Group(chance.below(3) as u32),
            _ => {
                let action = chance.pick(table.map_or(&[][..], |table| &table.actions)).copied();
                EntryResult::Action(call(p, action.unwrap_or(ActionId(0)), chance))
            }
        }
    }

    /// Everything but tables.
    fn objects(&self, p: &Program, chance: &mut Chance, updates: &mut Vec<Update>) {
        for (i, profile) in p.profiles.iter().enumerate() {
            let id = ProfileId::at(i);
            let member = chance.below(4) as u32;
            let action = chance.pick(&profile.actions).copied();
            updates.push(Update::Member(id, member, action.map(|action| call(p, action, chance))));
            let choices = (0..chance.below(4)).map(|member| Choice {
                member: member as u32,
                weight: chance.below(3) as u32,
                watch: None,
            });
            let choices = choices.collect();
            updates.push(Update::Selection(id, chance.below(3) as u32, Some(choices)));
        }
        for i in 0..p.replicas.len() {
            let replicas = (0..chance.below(4))
                .map(|_| Replica { port: chance.port(), instance: chance.below(4) as u16 })
                .collect();
            let limit = chance.once_in(4).then(|| 10 + chance.below(20) as u32);
            let list = Replication { replicas, class: None, limit };
            updates.push(Update::Replication(ReplicasId::at(i), chance.below(8) as u32, Some(list)));
        }
        for (i, set) in p.value_sets.iter().enumerate() {
            let tuple = |chance: &mut Chance| {
                let part = |ty: &Type| Some(KeyMatch::Exact(chance.value(ty.width())));
                set.types.iter().map(part).collect()
            };
            let values = (0..chance.below(4)).map(|_| tuple(chance)).collect();
            updates.push(Update::Values(ValueSetId::at(i), values));
        }
        for (i, meter) in p.meters.iter().enumerate() {
            let cell = chance.below(meter.size.min(8) as usize) as u32;
            updates.push(Update::Meter(MeterId::at(i), cell, Some(rates(chance))));
        }
        for (i, register) in p.registers.iter().enumerate() {
            let cell = chance.below(register.size.min(8) as usize) as u32;
            updates.push(Update::Register(RegisterId::at(i), cell, chance.value(register.ty.width())));
        }
    }
}

fn call(p: &Program, action: ActionId, chance: &mut Chance) -> ActionCall {
    let params = p.actions.get(action.index()).map_or(&[][..], |action| &action.params);
    let args = params.iter().map(|param| match (param.ty, chance.once_in(2)) {
        // Most arguments of nine bits are v1model's ports.
        (Type::Bit(width @ (9 | 32)), true) => Constant::bit(width, chance.port().into()),
        (ty, _) => chance.constant(ty),
    });
    ActionCall { action, args: args.collect() }
}

fn rates(chance: &mut Chance) -> Rates {
    let (rate, burst) = (chance.next() % 2_000_000, chance.next() % 200);
    match chance.once_in(2) {
        true => Rates::Single { rate, burst, excess: chance.next() % 200 },
        false => Rates::Two { rate, burst, peak_rate: 2 * rate, peak_burst: 2 * burst },
    }
}

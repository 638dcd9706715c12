//! Flows that go by themselves: timeouts, and eviction from full tables.

use std::sync::Arc;

use openflow::error::ErrorCode;
use pipeline::state::Expiry;

use super::{DELETED, Flow};
use crate::datapath::{Datapath, Event, Transaction};
use crate::program::Layout;

/// Reason of flow-removed messages: evicted.
const EVICTED: u8 = 5;

impl Datapath {
    /// Removes the flows whose time is over, and returns what happened.
    pub(crate) fn expire(&mut self, now: u64) -> Vec<Event> {
        if self.model.timed == 0 {
            return vec![];
        }
        let expired = self.expired(now);
        if !self.expands() {
            return self.remove_all(&expired, now).unwrap_or_default();
        }
        let before = self.model.clone();
        if let Ok(events) = self.remove_all(&expired, now) {
            return events;
        }
        // Without some flow a conjunction has more combinations than fit: that flow stays, the others go.
        self.model = before;
        let alone = |one| {
            let before = self.model.clone();
            let removed = self.remove_all(std::slice::from_ref(one), now);
            if removed.is_err() {
                self.model = before;
            }
            removed.unwrap_or_default()
        };
        expired.iter().flat_map(alone).collect()
    }

    /// Flows whose time is over, each with the reason as in a flow-removed message.
    fn expired(&self, now: u64) -> Vec<(Arc<Flow>, u8)> {
        let flow = |(table, entry, expiry)| {
            let installed = self.state.table(table)?.get(entry)?;
            let priority = u16::try_from(installed.entry.priority).ok()?;
            let conditions = Arc::new(installed.entry.matches.clone());
            let number = Layout::get().number(table)?;
            let flow = self.model.tables.get(usize::from(number))?.find(priority, &conditions)?;
            let reason = match expiry {
                Expiry::Idle => 0,
                Expiry::Hard => 1,
            };
            Some((flow.clone(), reason))
        };
        self.state.expired(now).into_iter().filter_map(flow).collect()
    }

    fn remove_all(&mut self, flows: &[(Arc<Flow>, u8)], now: u64) -> Result<Vec<Event>, ErrorCode> {
        let removed = self.change(now, |datapath, transaction| {
            flows.iter().for_each(|(flow, reason)| datapath.remove_flow(flow, *reason, now, transaction));
            Ok(())
        });
        removed.map(|((), events)| events)
    }

    /// Removes the flows that removed flows have taught, as their actions ask for, unless others teach them too.
    pub(crate) fn delete_learned(&mut self, now: u64, transaction: &mut Transaction) {
        while !transaction.unlearned.is_empty() {
            let mut gone = std::mem::take(&mut transaction.unlearned);
            for known in self.model.learns.values().filter_map(|template| template.deletes()) {
                gone.remove(&known);
            }
            let learned = |flow: &&Arc<Flow>| gone.contains(&(flow.table, flow.cookie));
            let flows: Vec<_> = self.flows().filter(learned).cloned().collect();
            flows.iter().for_each(|flow| self.remove_flow(flow, DELETED, now, transaction));
        }
    }

    /// Makes room for one more flow: a table that permits it loses its least important flow, of equal ones the one that
    /// would end first.
    pub(super) fn make_room(
        &mut self,
        table: u8,
        importance: u16,
        now: u64,
        transaction: &mut Transaction,
    ) -> Result<(), ErrorCode> {
        let at = usize::from(table);
        let found = self.model.tables.get(at).ok_or(ErrorCode::FmfcBadTableId)?;
        let limit = self.model.settings.get(at).map_or(0, |settings| settings.size(&self.limits));
        if found.len() < limit as usize && self.model.flows < self.limits.flows as usize {
            return Ok(());
        }
        if !self.model.settings.get(at).is_some_and(|settings| settings.evicts) {
            return Err(ErrorCode::FmfcTableFull);
        }
        let ends = |flow: &Flow| match flow.hard_timeout {
            0 => u64::MAX,
            seconds => flow.modified.saturating_add(u64::from(seconds) * 1_000_000_000),
        };
        let least = found.iter().min_by_key(|flow| (flow.importance, ends(flow))).cloned();
        match least.filter(|flow| flow.importance <= importance) {
            Some(flow) => {
                self.remove_flow(&flow, EVICTED, now, transaction);
                Ok(())
            }
            None => Err(ErrorCode::FmfcTableFull),
        }
    }
}

//! Flows that go by themselves: timeouts, and eviction from full tables.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use openflow::error::ErrorCode;
use openflow::oxm::Oxm;
use pipeline::state::Expiry;

use super::{DELETED, Flow, FlowTable};
use crate::datapath::{Datapath, Event, Transaction};
use crate::program::Layout;
use crate::tables::TableSettings;

/// Reason of flow-removed messages: evicted.
const EVICTED: u8 = 5;

impl Datapath {
    /// Removes the flows whose time is over, and returns what happened.
    pub(crate) fn expire(&mut self, now: u64) -> Vec<Event> {
        if self.model.sums.timed == 0 {
            return vec![];
        }
        let expired = self.expired(now);
        if expired.is_empty() {
            return vec![];
        }
        if let Ok(events) = self.remove_all(&expired, now) {
            return events;
        }
        // Without some flow a conjunction has more combinations than fit: that flow stays, the others go.
        let alone = |one| self.remove_all(std::slice::from_ref(one), now).unwrap_or_default();
        expired.iter().flat_map(alone).collect()
    }

    /// Flows whose time is over, each with the reason as in a flow-removed message.
    fn expired(&self, now: u64) -> Vec<(Arc<Flow>, u8)> {
        let flow = |(table, entry, expiry)| {
            let installed = self.state.table(table)?.get(entry)?;
            let priority = u16::try_from(installed.entry.priority).ok()?;
            let number = Layout::get().number(table)?;
            let flow =
                self.model.tables().get(usize::from(number))?.find(priority, &installed.entry.matches)?;
            let reason = match expiry {
                Expiry::Idle => 0,
                Expiry::Hard => 1,
            };
            Some((flow.clone(), reason))
        };
        // As in Open vSwitch, a flow is still there at the very end of its time.
        self.state.expired(now.saturating_sub(1)).into_iter().filter_map(flow).collect()
    }

    fn remove_all(&mut self, flows: &[(Arc<Flow>, u8)], now: u64) -> Result<Vec<Event>, ErrorCode> {
        let removed = self.change_many(now, |datapath, transaction| {
            flows.iter().for_each(|(flow, reason)| datapath.remove_flow(flow, *reason, now, transaction));
            Ok(())
        });
        removed.map(|((), events)| events)
    }

    /// Evicts flows from a table that has become smaller.
    pub(crate) fn shrink(&mut self, table: usize, now: u64, transaction: &mut Transaction) {
        let Some(settings) = self.model.settings.get(table).filter(|settings| settings.evicts()) else {
            return;
        };
        let size = settings.size(&self.limits) as usize;
        let excess = self.model.tables().get(table).map_or(0, |flows| flows.len().saturating_sub(size));
        for flow in self.losses(table, excess, now) {
            self.remove_flow(&flow, EVICTED, now, transaction);
        }
    }

    /// The flows that a table would lose first, as many as `count`. Only flows with a timeout go: of the largest group,
    /// the least important one, and of equal ones that which would end first.
    fn losses(&self, table: usize, count: usize, now: u64) -> Vec<Arc<Flow>> {
        let fields =
            self.model.settings.get(table).map(|settings| settings.group_fields()).unwrap_or_default();
        let ends = |flow: &&Arc<Flow>| flow.hard_timeout > 0 || flow.idle_timeout > 0;
        let flows = || self.model.tables().get(table).into_iter().flat_map(FlowTable::iter).filter(ends);
        let rank = |flow: &Arc<Flow>| (flow.importance, self.end(flow, now));
        if count == 0 || fields.is_empty() && count == 1 {
            return flows().min_by_key(|flow| rank(flow)).into_iter().take(count).cloned().collect();
        }
        let is_key = |oxm: &&Oxm| oxm.field().is_some_and(|field| fields.contains(&field.id));
        let mut groups: HashMap<Vec<Oxm>, Vec<_>> = HashMap::new();
        for (number, flow) in flows().enumerate() {
            let group = flow.fields.iter().filter(is_key).cloned().collect();
            groups.entry(group).or_default().push(((rank(flow), number), flow));
        }
        // The last of each is the one that goes first.
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.iter_mut().for_each(|group| group.sort_unstable_by_key(|(rank, _)| Reverse(*rank)));
        let place = |groups: &[Vec<_>], at: usize| {
            let group: &Vec<(_, _)> = groups.get(at)?;
            Some((group.len(), Reverse(group.last()?.0), at))
        };
        let mut largest: BinaryHeap<_> = (0..groups.len()).filter_map(|at| place(&groups, at)).collect();
        let mut losses = Vec::new();
        while losses.len() < count
            && let Some((.., at)) = largest.pop()
        {
            let lost = groups.get_mut(at).and_then(Vec::pop);
            losses.extend(lost.map(|(_, flow)| flow.clone()));
            largest.extend(place(&groups, at));
        }
        losses
    }

    /// The time at which a flow would end without further packets.
    fn end(&self, flow: &Flow, now: u64) -> u64 {
        let after = |seconds: u16, since: u64| match seconds {
            0 => u64::MAX,
            seconds => since.saturating_add(u64::from(seconds) * 1_000_000_000),
        };
        let used = now.saturating_sub(self.counts(flow, now).idle);
        after(flow.hard_timeout, flow.modified).min(after(flow.idle_timeout, used))
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

    /// Makes room for one more flow: a table that permits it loses a flow ([`Datapath::losses`]).
    pub(super) fn make_room(
        &mut self,
        table: u8,
        importance: u16,
        now: u64,
        transaction: &mut Transaction,
    ) -> Result<(), ErrorCode> {
        let at = usize::from(table);
        let found = self.model.tables().get(at).ok_or(ErrorCode::FmfcBadTableId)?;
        let limit = self.model.settings.get(at).map_or(0, |settings| settings.size(&self.limits));
        if found.len() < limit as usize && self.model.sums.flows < self.limits.flows as usize {
            return Ok(());
        }
        if !self.model.settings.get(at).is_some_and(TableSettings::evicts) {
            return Err(ErrorCode::FmfcTableFull);
        }
        match self.losses(at, 1, now).pop().filter(|flow| flow.importance <= importance) {
            Some(flow) => {
                self.remove_flow(&flow, EVICTED, now, transaction);
                Ok(())
            }
            None => Err(ErrorCode::FmfcTableFull),
        }
    }
}

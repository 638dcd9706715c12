//! A write: updates one by one, taken back or committed together.

use std::sync::Arc;

use p4runtime_proto::v1::{
    Entity, Update, entity, packet_replication_engine_entry::Type as Replicated, update::Type as Kind,
    write_request::Atomicity,
};
use pipeline::bits::Bits;
use pipeline::ir::{CounterId, MeterId, RegisterId, TableId};
use pipeline::state::{
    Bundle, Change, EntryStats, Rates, Savepoint, State, TableState, Transaction, Update as Step,
    UpdateProblem,
};

use super::Switch;
use super::book::{Book, Mark};
use crate::access::Quota;
use crate::schema::Schema;
use crate::{Access, Code, Failure, WriteFailure};

/// A write that goes on.
pub(super) struct Work<'a> {
    pub(super) schema: &'a Schema,
    pub(super) state: &'a mut State,
    pub(super) book: &'a mut Book,
    pub(super) now: u64,
    transaction: Transaction,
    /// What cannot fail and cannot be taken back: done at the end.
    pub(super) later: Vec<Later>,
    /// Cells of arrays that the write may still change.
    cells_left: u64,
    /// Entries of all tables.
    pub(super) entries: usize,
}

/// Most cells of arrays that a write changes: a few bytes can mean all cells of the largest array.
const MOST_CELLS: u64 = 1 << 24;

/// Cells of a register that are written under one lock.
const CELLS_AT_ONCE: u32 = 256;

/// Most entries of all tables together, and most members of a profile.
pub(super) const MOST_ENTRIES: usize = 2_000_000;

/// Changes of what packets change too.
pub(super) enum Later {
    /// Packets and bytes of an entry.
    Hits(Arc<EntryStats>, u64, u64),
    /// An entry's meter.
    EntryMeter(Arc<EntryStats>, Option<Rates>),
    /// Cells of counters: their packets and bytes.
    Counter(CounterId, std::ops::Range<u32>, u64, u64),
    /// Cells of meters.
    Meter(MeterId, std::ops::Range<u32>, Option<Rates>),
    /// Cells of registers.
    Register(RegisterId, std::ops::Range<u32>, Bits),
}

struct Point {
    state: Savepoint,
    book: Mark,
    later: usize,
    entries: usize,
}

/// Carries out a write.
pub(super) fn write(
    switch: &mut Switch,
    updates: &[Update],
    atomicity: Atomicity,
    access: Option<&Access>,
    now: u64,
) -> Result<(), WriteFailure> {
    let program = switch.program.clone();
    let quota = access.and_then(|access| Quota::new(access, &program.info, program.schema()));
    let transaction = switch.state.begin();
    let entries = entries(&switch.state);
    let mut work = Work {
        schema: program.schema(),
        state: &mut switch.state,
        book: &mut switch.book,
        now,
        transaction,
        later: Vec::new(),
        cells_left: MOST_CELLS,
        entries,
    };
    let start = work.point();
    let mut results = Vec::new();
    for (index, update) in updates.iter().enumerate() {
        let point = work.point();
        let permitted = access.map_or(Ok(()), |access| access.check(&program.info, update));
        let done = permitted.and_then(|()| work.update_within(quota.as_ref(), update));
        let Err(failure) = done else { continue };
        if atomicity != Atomicity::ContinueOnError {
            work.go_back(&start);
            work.book.keep();
            return Err(WriteFailure::Updates(all_aborted(updates.len(), index, failure)));
        }
        work.go_back(&point);
        results.resize_with(updates.len(), || Ok(()));
        results.iter_mut().skip(index).take(1).for_each(|result| *result = Err(failure.clone()));
    }
    let bundle = work.commit();
    switch.follow(&bundle);
    match results.is_empty() {
        true => Ok(()),
        false => Err(WriteFailure::Updates(results)),
    }
}

/// Entries of all tables.
fn entries(state: &State) -> usize {
    let tables = 0..state.program().tables.len();
    tables.filter_map(|table| state.table(TableId::at(table))).map(TableState::len).sum()
}

/// The results of a bundle in which one update failed.
fn all_aborted(len: usize, failed: usize, failure: Failure) -> Vec<Result<(), Failure>> {
    let aborted = format!("not carried out because update {failed} of the same request failed");
    let mut results = vec![Err(Failure::new(Code::Aborted, aborted)); len];
    results.iter_mut().skip(failed).take(1).for_each(|result| *result = Err(failure.clone()));
    results
}

impl Work<'_> {
    fn point(&mut self) -> Point {
        Point {
            state: self.state.savepoint(&self.transaction),
            book: self.book.mark(),
            later: self.later.len(),
            entries: self.entries,
        }
    }

    fn go_back(&mut self, point: &Point) {
        self.state.go_back(&mut self.transaction, point.state);
        self.book.go_back(&point.book);
        self.later.truncate(point.later);
        self.entries = point.entries;
    }

    fn commit(self) -> Bundle {
        let bundle = self.state.commit(self.transaction, self.now);
        self.book.keep();
        let arrays = self.state.arrays();
        for later in self.later {
            match later {
                Later::Hits(stats, packets, bytes) => stats.set_hits(packets, bytes),
                Later::EntryMeter(stats, rates) => {
                    stats.meter.iter().for_each(|meter| meter.configure(rates, self.now));
                }
                Later::Counter(id, cells, packets, bytes) => cells
                    .filter_map(|cell| arrays.counter(id, cell.into()))
                    .for_each(|cell| cell.set(packets, bytes)),
                Later::Meter(id, cells, rates) => {
                    cells.for_each(|cell| arrays.configure_meter(id, cell.into(), rates, self.now));
                }
                Later::Register(id, cells, value) => {
                    // Packets that use registers wait for the lock.
                    for start in cells.clone().step_by(CELLS_AT_ONCE as usize) {
                        let guard = arrays.lock();
                        for cell in start..start.saturating_add(CELLS_AT_ONCE).min(cells.end) {
                            arrays.write(&guard, id, cell.into(), &value);
                        }
                    }
                }
            }
        }
        bundle
    }

    /// Makes an update that leaves no more entries than a role may have.
    fn update_within(&mut self, quota: Option<&Quota<'_>>, update: &Update) -> Result<(), Failure> {
        let Some(quota) = quota else { return self.update(update) };
        let before = quota.used(self.state);
        self.update(update)?;
        quota.check(before, quota.used(self.state))
    }

    fn update(&mut self, update: &Update) -> Result<(), Failure> {
        let kind = Kind::try_from(update.r#type).unwrap_or(Kind::Unspecified);
        if kind == Kind::Unspecified {
            return Err(Failure::invalid(format!(
                "the update's type is {} (expected INSERT, MODIFY or DELETE)",
                update.r#type
            )));
        }
        let Some(Entity { entity: Some(entity) }) = &update.entity else {
            return Err(Failure::invalid("the update has no entity"));
        };
        match entity {
            entity::Entity::TableEntry(entry) => self.table_entry(kind, entry),
            entity::Entity::ActionProfileMember(member) => self.member(kind, member),
            entity::Entity::ActionProfileGroup(group) => self.group(kind, group),
            entity::Entity::MeterEntry(entry) => self.meter_entry(kind, entry),
            entity::Entity::DirectMeterEntry(entry) => self.direct_meter_entry(kind, entry),
            entity::Entity::CounterEntry(entry) => self.counter_entry(kind, entry),
            entity::Entity::DirectCounterEntry(entry) => self.direct_counter_entry(kind, entry),
            entity::Entity::PacketReplicationEngineEntry(entry) => match &entry.r#type {
                Some(Replicated::MulticastGroupEntry(group)) => self.multicast_group(kind, group),
                Some(Replicated::CloneSessionEntry(session)) => self.clone_session(kind, session),
                None => Err(Failure::invalid("the packet replication engine's entry is empty")),
            },
            entity::Entity::ValueSetEntry(entry) => self.value_set_entry(kind, entry),
            entity::Entity::RegisterEntry(entry) => self.register_entry(kind, entry),
            entity::Entity::DigestEntry(entry) => self.digest_entry(kind, entry),
            entity::Entity::ExternEntry(_) => {
                Err(Failure::unimplemented("the architecture has no extern objects of other types"))
            }
        }
    }

    /// Notes that cells of an array are to change.
    pub(super) fn spend(&mut self, cells: &std::ops::Range<u32>) -> Result<(), Failure> {
        match self.cells_left.checked_sub(cells.len() as u64) {
            Some(left) => {
                self.cells_left = left;
                Ok(())
            }
            None => {
                Err(Failure::exhausted(format!("the request changes more than {MOST_CELLS} cells: split it")))
            }
        }
    }

    /// Applies an update of the pipeline's state.
    pub(super) fn change(&mut self, step: Step) -> Result<Option<&Change>, UpdateProblem> {
        self.state.change(&mut self.transaction, step, self.now)
    }
}

impl Switch {
    /// Tells those that follow the state of a bundle.
    pub(super) fn follow(&mut self, bundle: &Bundle) {
        self.idle.follow(&self.state, bundle, &self.book);
        self.digests.configure(self.book.digests.iter());
        if let Some(follower) = &mut self.follower {
            follower.applied(&self.state, bundle);
        }
    }
}

/// Only MODIFY is possible.
pub(super) fn only_modify(kind: Kind, what: &str) -> Result<(), Failure> {
    match kind {
        Kind::Modify => Ok(()),
        _ => Err(Failure::invalid(format!("{what} can only be modified, not inserted or deleted"))),
    }
}

/// The refusal of an update of the pipeline's state.
pub(super) fn refusal(problem: UpdateProblem) -> Failure {
    let code = match &problem {
        UpdateProblem::Exists => Code::AlreadyExists,
        UpdateProblem::NotFound => Code::NotFound,
        UpdateProblem::Full(_) => Code::ResourceExhausted,
        UpdateProblem::Fixed => Code::PermissionDenied,
        UpdateProblem::NoObject => Code::Unimplemented,
        UpdateProblem::Entry(_) | UpdateProblem::Value => Code::InvalidArgument,
    };
    Failure::new(code, problem.to_string())
}

//! Reading: what was written comes back, numbers in their shortest form.
//!
//! Ids that are 0 and indices that are not set are wildcards. Answers come in parts that fit into messages.

mod arrays;
mod others;
mod tables;

use p4runtime_proto::v1::{Entity, entity, entity::Entity as Kind};
use prost::Message;

use super::Switch;
use super::book::Book;
use crate::Failure;
use crate::schema::Schema;
use pipeline::state::State;

/// Most entities of a part.
const MOST_ENTITIES: usize = 1000;
/// Bytes from which a part is full.
const FULL: usize = 1 << 20;

/// Nobody wants more.
pub(super) struct Stopped;

/// Why reading ended early.
pub(super) enum End {
    Stopped,
    Refused(Failure),
}

impl From<Stopped> for End {
    fn from(_: Stopped) -> Self {
        End::Stopped
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        End::Refused(failure)
    }
}

/// Collects entities into parts.
pub(super) struct Parts<'e> {
    part: Vec<Entity>,
    bytes: usize,
    emit: &'e mut dyn FnMut(Vec<Entity>) -> bool,
}

impl Parts<'_> {
    /// Adds an entity.
    pub(super) fn add(&mut self, entity: entity::Entity) -> Result<(), Stopped> {
        let entity = Entity { entity: Some(entity) };
        self.bytes += entity.encoded_len();
        self.part.push(entity);
        match self.part.len() >= MOST_ENTITIES || self.bytes >= FULL {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        self.bytes = 0;
        match self.part.is_empty() || (self.emit)(std::mem::take(&mut self.part)) {
            true => Ok(()),
            false => Err(Stopped),
        }
    }
}

/// What is read from.
pub(super) struct Reader<'a> {
    pub(super) schema: &'a Schema,
    pub(super) state: &'a State,
    pub(super) book: &'a Book,
    pub(super) now: u64,
}

/// Reads entities.
pub(super) fn read(
    switch: &Switch,
    entities: &[Entity],
    now: u64,
    emit: &mut dyn FnMut(Vec<Entity>) -> bool,
) -> Result<(), Failure> {
    let reader = Reader::of(switch, now);
    let mut parts = Parts { part: Vec::new(), bytes: 0, emit };
    for entity in entities {
        match reader.entity(entity, &mut parts) {
            Ok(()) => {}
            Err(End::Stopped) => return Ok(()),
            Err(End::Refused(failure)) => return Err(failure),
        }
    }
    // Nobody wants more, and there is no more.
    let _ = parts.flush();
    Ok(())
}

impl<'a> Reader<'a> {
    /// Reads from a switch.
    pub(super) fn of(switch: &'a Switch, now: u64) -> Self {
        Self { schema: switch.program.schema(), state: &switch.state, book: &switch.book, now }
    }

    fn entity(&self, entity: &Entity, parts: &mut Parts<'_>) -> Result<(), End> {
        let Some(entity) = &entity.entity else {
            return Err(Failure::invalid("an entity to read is empty").into());
        };
        match entity {
            Kind::TableEntry(entry) => self.table_entries(entry, parts),
            Kind::DirectCounterEntry(entry) => self.direct_counters(entry, parts),
            Kind::DirectMeterEntry(entry) => self.direct_meters(entry, parts),
            Kind::ActionProfileMember(member) => self.members(member, parts),
            Kind::ActionProfileGroup(group) => self.groups(group, parts),
            Kind::CounterEntry(entry) => self.counters(entry, parts),
            Kind::MeterEntry(entry) => self.meters(entry, parts),
            Kind::RegisterEntry(entry) => self.registers(entry, parts),
            Kind::PacketReplicationEngineEntry(entry) => self.replication(entry, parts),
            Kind::ValueSetEntry(entry) => self.value_sets(entry, parts),
            Kind::DigestEntry(entry) => self.digests(entry, parts),
            Kind::ExternEntry(_) => {
                Err(Failure::unimplemented("the architecture has no extern objects of other types").into())
            }
        }
    }
}

/// The objects that an id means, by id: 0 means all.
pub(super) fn chosen<'s, T>(
    objects: &'s std::collections::HashMap<u32, T>,
    what: &str,
    id: u32,
) -> Result<Vec<(u32, &'s T)>, Failure> {
    if id != 0 {
        return Ok(vec![(id, super::arrays::array(objects, what, id)?)]);
    }
    let mut all: Vec<_> = objects.iter().map(|(id, object)| (*id, object)).collect();
    all.sort_by_key(|(id, _)| *id);
    Ok(all)
}

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

/// The entry, member or cell up to which an entity has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// Id of the table, profile or array.
    pub(super) object: u32,
    /// Number of the entry, member or cell.
    pub(super) item: u64,
}

/// Why reading ended early.
pub(super) enum End {
    /// The part is full.
    Full,
    Refused(Failure),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        End::Refused(failure)
    }
}

/// Collects the entities of a part.
#[derive(Default)]
pub(super) struct Parts {
    part: Vec<Entity>,
    bytes: usize,
    next: Option<Cursor>,
}

impl Parts {
    /// Adds an entity of a kind of which there are few.
    pub(super) fn add(&mut self, entity: entity::Entity) {
        let entity = Entity { entity: Some(entity) };
        self.bytes += entity.encoded_len();
        self.part.push(entity);
    }

    /// Adds the entity at a place; the part ends there if it is full.
    pub(super) fn add_at(&mut self, entity: entity::Entity, object: u32, item: u64) -> Result<(), End> {
        self.add(entity);
        if self.part.len() < MOST_ENTITIES && self.bytes < FULL {
            return Ok(());
        }
        self.next = Some(Cursor { object, item });
        Err(End::Full)
    }
}

/// What is read from.
pub(super) struct Reader<'a> {
    pub(super) schema: &'a Schema,
    pub(super) state: &'a State,
    pub(super) book: &'a Book,
    pub(super) now: u64,
    /// What has been read in earlier parts.
    pub(super) from: Option<Cursor>,
}

/// Reads entities.
pub(super) fn read(
    switch: &Switch,
    entities: &[Entity],
    now: u64,
    emit: &mut dyn FnMut(Vec<Entity>) -> bool,
) -> Result<(), Failure> {
    for entity in entities {
        let mut from = None;
        loop {
            let (part, next) = part(switch, entity, from, now)?;
            if !part.is_empty() && !emit(part) {
                return Ok(());
            }
            match next {
                Some(next) => from = Some(next),
                None => break,
            }
        }
    }
    Ok(())
}

/// Reads a part of what an entity asks for, behind a cursor; returns the cursor for the next part.
pub(super) fn part(
    switch: &Switch,
    entity: &Entity,
    from: Option<Cursor>,
    now: u64,
) -> Result<(Vec<Entity>, Option<Cursor>), Failure> {
    let reader = Reader { from, ..Reader::of(switch, now) };
    let mut parts = Parts::default();
    match reader.entity(entity, &mut parts) {
        Ok(()) | Err(End::Full) => Ok((parts.part, parts.next)),
        Err(End::Refused(failure)) => Err(failure),
    }
}

impl<'a> Reader<'a> {
    /// Reads from a switch.
    pub(super) fn of(switch: &'a Switch, now: u64) -> Self {
        Self { schema: switch.program.schema(), state: &switch.state, book: &switch.book, now, from: None }
    }

    /// The objects that are not read yet.
    pub(super) fn rest<T>(&self, objects: Vec<T>, id: impl Fn(&T) -> u32) -> impl Iterator<Item = T> {
        let from = self.from;
        objects.into_iter().skip_while(move |object| from.is_some_and(|from| from.object != id(object)))
    }

    /// The number behind which an object is not read yet.
    pub(super) fn behind(&self, object: u32) -> Option<u64> {
        self.from.filter(|from| from.object == object).map(|from| from.item)
    }

    fn entity(&self, entity: &Entity, parts: &mut Parts) -> Result<(), End> {
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

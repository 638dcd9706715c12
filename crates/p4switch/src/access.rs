//! Access of a role: the objects whose entities it may write, and the number of its entries.
//!
//! Objects are listed by name, as operators know them, so that a list outlives a change of the program. A name is that
//! of the P4Info, or its alias.

use std::collections::{BTreeMap, BTreeSet};

use p4runtime_proto::P4Info;
use p4runtime_proto::v1::{Entity, Update, entity};
use pipeline::ir::{ProfileId, TableId};
use pipeline::state::State;

use crate::Failure;
use crate::schema::Schema;

/// Kinds of objects with entities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A table, with its direct counters and meters.
    Table,
    /// An action profile or selector.
    ActionProfile,
    /// An array of counters.
    Counter,
    /// An array of meters.
    Meter,
    /// A register.
    Register,
    /// A value set of a parser.
    ValueSet,
    /// A digest.
    Digest,
}

impl ObjectKind {
    /// All kinds.
    pub const ALL: [ObjectKind; 7] = [
        ObjectKind::Table,
        ObjectKind::ActionProfile,
        ObjectKind::Counter,
        ObjectKind::Meter,
        ObjectKind::Register,
        ObjectKind::ValueSet,
        ObjectKind::Digest,
    ];

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::Table => "table",
            ObjectKind::ActionProfile => "action profile",
            ObjectKind::Counter => "counter",
            ObjectKind::Meter => "meter",
            ObjectKind::Register => "register",
            ObjectKind::ValueSet => "value set",
            ObjectKind::Digest => "digest",
        }
    }

    /// Calls `see` with id, name and alias of each object of this kind.
    fn each<'i>(self, info: &'i P4Info, mut see: impl FnMut(u32, [&'i str; 2])) {
        macro_rules! each {
            ($($list:ident),*) => {
                $(for object in info.$list.iter().filter_map(|object| object.preamble.as_ref()) {
                    see(object.id, [&object.name, &object.alias]);
                })*
            };
        }
        match self {
            ObjectKind::Table => each!(tables),
            ObjectKind::ActionProfile => each!(action_profiles),
            ObjectKind::Counter => each!(counters),
            ObjectKind::Meter => each!(meters),
            ObjectKind::Register => each!(registers),
            ObjectKind::ValueSet => each!(value_sets),
            ObjectKind::Digest => each!(digests),
        }
    }
}

/// Access of a role.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// The role, for messages.
    pub role: String,
    /// Names or aliases of the objects whose entities the role may write.
    pub objects: BTreeMap<ObjectKind, BTreeSet<String>>,
    /// Largest number of table entries, members and groups in these tables and action profiles; `None` is unlimited.
    pub max_entries: Option<u64>,
    /// Whether it may write nothing.
    pub read_only: bool,
}

impl Access {
    /// Whether the role has an object.
    pub fn has(&self, info: &P4Info, kind: ObjectKind, id: u32) -> bool {
        let Some(listed) = self.objects.get(&kind) else { return false };
        let mut found = false;
        kind.each(info, |other, names| {
            found |= other == id && names.iter().any(|name| !name.is_empty() && listed.contains(*name));
        });
        found
    }

    /// Whether the role has the object of an entity. Multicast groups and clone sessions belong to no role.
    pub fn has_entity(&self, info: &P4Info, entity: &Entity) -> bool {
        object(entity).is_some_and(|(kind, id)| self.has(info, kind, id))
    }

    /// Checks that the role may make an update.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`: it may not.
    pub fn check(&self, info: &P4Info, update: &Update) -> Result<(), Failure> {
        if self.read_only {
            return Err(Failure::denied(format!("role {:?} is read-only", self.role)));
        }
        let Some(entity) = &update.entity else { return Ok(()) };
        let Some((kind, id)) = object(entity) else {
            return Err(Failure::denied(format!(
                "role {:?} may not write multicast groups, clone sessions or extern entries",
                self.role
            )));
        };
        if self.has(info, kind, id) {
            return Ok(());
        }
        let mut name = id.to_string();
        kind.each(info, |other, [full, _]| {
            if other == id {
                full.clone_into(&mut name);
            }
        });
        let listed = self.objects.get(&kind).into_iter().flatten().map(String::as_str).collect::<Vec<_>>();
        let listed = if listed.is_empty() { "none".into() } else { listed.join(", ") };
        let kind = kind.name();
        Err(Failure::denied(format!(
            "role {:?} may not write {kind} {name} (it has {kind}s: {listed})",
            self.role
        )))
    }

    /// Listed names that a program lacks, each with its kind.
    pub fn missing(&self, info: &P4Info) -> Vec<String> {
        let mut missing = Vec::new();
        for (kind, listed) in &self.objects {
            let mut known = BTreeSet::new();
            kind.each(info, |_, names| known.extend(names));
            let unknown = listed.iter().filter(|name| !known.contains(name.as_str()));
            missing.extend(unknown.map(|name| format!("{} {name}", kind.name())));
        }
        missing
    }
}

/// The object of an entity: kind and id.
fn object(entity: &Entity) -> Option<(ObjectKind, u32)> {
    use entity::Entity as Kind;
    Some(match entity.entity.as_ref()? {
        Kind::TableEntry(entry) => (ObjectKind::Table, entry.table_id),
        Kind::DirectCounterEntry(entry) => {
            (ObjectKind::Table, entry.table_entry.as_ref().map_or(0, |entry| entry.table_id))
        }
        Kind::DirectMeterEntry(entry) => {
            (ObjectKind::Table, entry.table_entry.as_ref().map_or(0, |entry| entry.table_id))
        }
        Kind::ActionProfileMember(member) => (ObjectKind::ActionProfile, member.action_profile_id),
        Kind::ActionProfileGroup(group) => (ObjectKind::ActionProfile, group.action_profile_id),
        Kind::CounterEntry(entry) => (ObjectKind::Counter, entry.counter_id),
        Kind::MeterEntry(entry) => (ObjectKind::Meter, entry.meter_id),
        Kind::RegisterEntry(entry) => (ObjectKind::Register, entry.register_id),
        Kind::ValueSetEntry(entry) => (ObjectKind::ValueSet, entry.value_set_id),
        Kind::DigestEntry(entry) => (ObjectKind::Digest, entry.digest_id),
        Kind::PacketReplicationEngineEntry(_) | Kind::ExternEntry(_) => return None,
    })
}

/// The entries that a role may have, of a program.
#[derive(Debug)]
pub(crate) struct Quota<'a> {
    role: &'a str,
    most: u64,
    tables: Vec<TableId>,
    profiles: Vec<ProfileId>,
}

impl<'a> Quota<'a> {
    /// The quota of a role; `None` if it has none.
    pub(crate) fn new(access: &'a Access, info: &P4Info, schema: &Schema) -> Option<Self> {
        let most = access.max_entries?;
        let tables: Vec<_> =
            schema.tables.values().filter(|table| access.has(info, ObjectKind::Table, table.id)).collect();
        // Entries with sets of actions bring members along.
        let own = |id: u32| {
            tables.iter().any(|table| table.profile == Some(id))
                || access.has(info, ObjectKind::ActionProfile, id)
        };
        let profiles =
            schema.profiles.values().filter(|profile| own(profile.id)).map(|profile| profile.ir).collect();
        let tables = tables.iter().map(|table| table.ir).collect();
        Some(Self { role: &access.role, most, tables, profiles })
    }

    /// Entries, members and groups that are there, whoever wrote them.
    pub(crate) fn used(&self, state: &State) -> u64 {
        let tables =
            self.tables.iter().filter_map(|table| state.table(*table)).map(|table| table.len() as u64);
        let profiles = self.profiles.iter().filter_map(|profile| state.profile(*profile));
        let parts = profiles.map(|profile| profile.members.len() as u64 + profile.groups.len() as u64);
        tables.chain(parts).sum()
    }

    /// Checks the number after an update.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`: it is larger than before and than the quota.
    pub(crate) fn check(&self, before: u64, after: u64) -> Result<(), Failure> {
        if after <= before || after <= self.most {
            return Ok(());
        }
        let (role, most) = (self.role, self.most);
        Err(Failure::exhausted(format!(
            "role {role:?} has {before} entries of {most} that it may have; delete some first"
        )))
    }
}

//! Ids of the program's objects, and entities with them.

use std::net::Ipv4Addr;

use p4runtime_proto::P4Info;
use p4runtime_proto::v1::field_match::{Exact, FieldMatchType};
use p4runtime_proto::v1::p4_data::Data;
use p4runtime_proto::v1::update::Type;
use p4runtime_proto::v1::{
    Action, CounterData, DigestEntry, DigestList, Entity, FieldMatch, P4Data, TableAction, TableEntry,
    Update, action, digest_entry, entity, table_action,
};

use crate::cache::{Change, Decision, Flow};
use crate::failure::Failure;

/// Nanoseconds after which a digest is sent, with others or alone.
const DIGEST_DELAY: i64 = 2_000_000;
/// Most digests in a list.
const DIGESTS: i32 = 256;
/// Nanoseconds for which a decision is not told again, until it is acknowledged.
const ACK_TIMEOUT: i64 = 1_000_000_000;

/// Ids of the objects of `cache.p4`.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    cache: u32,
    /// Match fields: source, destination, protocol, source port, destination port.
    keys: [u32; 5],
    cached: u32,
    /// Parameters of `cached`: port, generation.
    params: [u32; 2],
    current: u32,
    digest: u32,
}

impl Names {
    /// Finds the objects in a program's P4Info.
    pub(crate) fn new(info: &P4Info) -> Result<Self, Failure> {
        let missing = |what: String| Failure::Program(what);
        let table = |alias: &str| {
            let is_it = |name: &str| name == alias || name.rsplit('.').next() == Some(alias);
            let mut tables = info.tables.iter().filter_map(|table| Some((table, table.preamble.as_ref()?)));
            let found = tables.find(|(_, preamble)| is_it(&preamble.name) || is_it(&preamble.alias));
            found.ok_or_else(|| missing(format!("table `{alias}`")))
        };
        let (cache, preamble) = table("cache")?;
        let key = |name: &str| {
            let field = cache.match_fields.iter().find(|field| field.name == name);
            field.map(|field| field.id).ok_or_else(|| missing(format!("key `{name}` in table `cache`")))
        };
        let keys = [key("src")?, key("dst")?, key("protocol")?, key("sport")?, key("dport")?];
        let mut actions = info.actions.iter().filter_map(|action| Some((action, action.preamble.as_ref()?)));
        let action = actions.find(|(_, preamble)| preamble.name.rsplit('.').next() == Some("cached"));
        let (action, cached) = action.ok_or_else(|| missing("action `cached`".into()))?;
        let param = |name: &str| {
            let param = action.params.iter().find(|param| param.name == name);
            param.map(|param| param.id).ok_or_else(|| missing(format!("parameter `{name}` of `cached`")))
        };
        let params = [param("port")?, param("generation")?];
        let mut digests = info.digests.iter().filter_map(|digest| digest.preamble.as_ref());
        let digest = digests.find(|digest| digest.name == "decision_t");
        let digest = digest.ok_or_else(|| missing("digest `decision_t`".into()))?.id;
        let current = table("current")?.1.id;
        Ok(Self { cache: preamble.id, keys, cached: cached.id, params, current, digest })
    }

    /// The id of the digest.
    pub(crate) fn digest(&self) -> u32 {
        self.digest
    }

    /// The update that has the switch send decisions.
    pub(crate) fn subscription(&self, kind: Type) -> Update {
        let config = digest_entry::Config {
            max_timeout_ns: DIGEST_DELAY,
            max_list_size: DIGESTS,
            ack_timeout_ns: ACK_TIMEOUT,
        };
        let entry = DigestEntry { digest_id: self.digest, config: Some(config) };
        Update {
            r#type: kind.into(),
            entity: Some(Entity { entity: Some(entity::Entity::DigestEntry(entry)) }),
        }
    }

    /// What a reading asks for: the cache with its counters, the current generation, and the subscription.
    pub(crate) fn wanted(&self) -> Vec<Entity> {
        let cache = TableEntry {
            table_id: self.cache,
            counter_data: Some(CounterData::default()),
            ..TableEntry::default()
        };
        let current = TableEntry { table_id: self.current, is_default_action: true, ..TableEntry::default() };
        // All: to name one that nobody has subscribed to would be an error.
        let digest = DigestEntry::default();
        let all = [
            entity::Entity::TableEntry(cache),
            entity::Entity::TableEntry(current),
            entity::Entity::DigestEntry(digest),
        ];
        all.into_iter().map(|entity| Entity { entity: Some(entity) }).collect()
    }

    /// The update of a change.
    pub(crate) fn update(&self, change: &Change) -> Update {
        let (kind, flow, decision) = match change {
            Change::Insert(flow, decision) => (Type::Insert, flow, Some(decision)),
            Change::Modify(flow, decision) => (Type::Modify, flow, Some(decision)),
            Change::Evict(flow) | Change::Expire(flow) => (Type::Delete, flow, None),
        };
        let values = [
            flow.src.to_bits().into(),
            flow.dst.to_bits().into(),
            flow.protocol.into(),
            flow.sport.into(),
            flow.dport.into(),
        ];
        let field = |(id, value): (&u32, u64)| FieldMatch {
            field_id: *id,
            field_match_type: Some(FieldMatchType::Exact(Exact { value: bytes(value) })),
        };
        let action = decision.map(|decision| {
            let [port, generation] = self.params;
            let param = |param_id, value| action::Param { param_id, value: bytes(value) };
            let params =
                vec![param(port, decision.port.into()), param(generation, decision.generation.into())];
            let action = Action { action_id: self.cached, params };
            TableAction { r#type: Some(table_action::Type::Action(action)) }
        });
        let entry = TableEntry {
            table_id: self.cache,
            r#match: self.keys.iter().zip(values).map(field).collect(),
            action,
            ..TableEntry::default()
        };
        Update {
            r#type: kind.into(),
            entity: Some(Entity { entity: Some(entity::Entity::TableEntry(entry)) }),
        }
    }

    /// Adds what an entity of a reading says; others are ignored.
    pub(crate) fn read(&self, entity: Entity, reading: &mut Reading) {
        match entity.entity {
            Some(entity::Entity::TableEntry(entry))
                if entry.table_id == self.cache && !entry.is_default_action =>
            {
                reading.entries.extend(self.entry(&entry));
            }
            Some(entity::Entity::TableEntry(entry)) if entry.table_id == self.current => {
                let number = arguments(&entry).and_then(|action| number(&action.params.first()?.value));
                reading.generation = number.and_then(|number| u32::try_from(number).ok());
            }
            Some(entity::Entity::DigestEntry(entry)) if entry.digest_id == self.digest => {
                reading.is_subscribed = true;
            }
            _ => {}
        }
    }

    fn entry(&self, entry: &TableEntry) -> Option<(Flow, Decision, u64)> {
        let key = |id: u32| {
            let field = entry.r#match.iter().find(|field| field.field_id == id)?;
            match &field.field_match_type {
                Some(FieldMatchType::Exact(exact)) => number(&exact.value),
                _ => None,
            }
        };
        let [src, dst, protocol, sport, dport] = self.keys;
        let flow = flow([key(src)?, key(dst)?, key(protocol)?, key(sport)?, key(dport)?])?;
        let action = arguments(entry)?;
        let param = |id: u32| number(&action.params.iter().find(|param| param.param_id == id)?.value);
        let [port, generation] = self.params;
        let decision = decision(param(port)?, param(generation)?)?;
        let packets = entry.counter_data.as_ref().map_or(0, |data| data.packet_count);
        Some((flow, decision, u64::try_from(packets).unwrap_or(0)))
    }

    /// The decisions in a list of digests.
    pub(crate) fn decisions(&self, list: &DigestList) -> Vec<(Flow, Decision)> {
        let decision = |data: &P4Data| {
            let Some(Data::Struct(fields)) = &data.data else { return None };
            let number = |data: &P4Data| match &data.data {
                Some(Data::Bitstring(value)) => number(value),
                _ => None,
            };
            let numbers: Option<Vec<u64>> = fields.members.iter().map(number).collect();
            let [src, dst, protocol, sport, dport, port, generation] = *numbers?.as_slice() else {
                return None;
            };
            Some((flow([src, dst, protocol, sport, dport])?, self::decision(port, generation)?))
        };
        list.data.iter().filter_map(decision).collect()
    }
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Flows with their decisions and packets.
    pub(crate) entries: Vec<(Flow, Decision, u64)>,
    /// The current generation.
    pub(crate) generation: Option<u32>,
    /// Whether the switch sends digests.
    pub(crate) is_subscribed: bool,
}

fn arguments(entry: &TableEntry) -> Option<&Action> {
    match entry.action.as_ref()?.r#type.as_ref()? {
        table_action::Type::Action(action) => Some(action),
        _ => None,
    }
}

fn flow([src, dst, protocol, sport, dport]: [u64; 5]) -> Option<Flow> {
    let address = |value: u64| u32::try_from(value).ok().map(Ipv4Addr::from_bits);
    Some(Flow {
        src: address(src)?,
        dst: address(dst)?,
        protocol: protocol.try_into().ok()?,
        sport: sport.try_into().ok()?,
        dport: dport.try_into().ok()?,
    })
}

fn decision(port: u64, generation: u64) -> Option<Decision> {
    Some(Decision { port: port.try_into().ok()?, generation: generation.try_into().ok()? })
}

/// A number as P4Runtime writes it: in as few bytes as it needs, at least one.
fn bytes(value: u64) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let zeros = (value.leading_zeros() as usize / 8).min(bytes.len() - 1);
    bytes.get(zeros..).unwrap_or_default().to_vec()
}

/// The number of such bytes; `None` if it has more than 64 bits.
fn number(bytes: &[u8]) -> Option<u64> {
    let significant =
        bytes.iter().position(|byte| *byte != 0).map_or(&[][..], |at| bytes.get(at..).unwrap_or_default());
    if significant.len() > 8 {
        return None;
    }
    Some(significant.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        for (value, expected) in [(0, &[0][..]), (255, &[255]), (256, &[1, 0]), (0x0a00_0001, &[10, 0, 0, 1])]
        {
            assert_eq!(bytes(value), expected);
            assert_eq!(number(expected), Some(value));
        }
        assert_eq!(number(&[]), Some(0));
        assert_eq!(number(&[0; 9]), Some(0));
        assert_eq!(number(&[1; 9]), None);
    }
}

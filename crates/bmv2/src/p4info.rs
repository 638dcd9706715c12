//! What the P4Info adds to a document.

use std::collections::{HashMap, HashSet};

use p4::info::P4Info;
use p4::info::proto::{self, action_ref::Scope, counter_spec::Unit, match_field};
use pipeline::ir::{CounterKind, MatchKind};

use crate::document::{bounded, short};
use crate::operand;
use crate::refusal::{At, Refusal, Result};

/// Most parameters of the actions that tables refer to, those of an action for each reference.
const MOST_PARAMETERS: usize = 1 << 16;
/// Most headers of packets from and to controllers, and fields of one.
const MOST_CONTROLLER_HEADERS: usize = 16;
const MOST_CONTROLLER_FIELDS: usize = 256;

/// A P4Info by names.
#[derive(Debug)]
pub(crate) struct Info<'d> {
    tables: HashMap<&'d str, &'d proto::Table>,
    actions: HashMap<u32, &'d proto::Action>,
    counters: HashMap<&'d str, CounterKind>,
    direct: HashMap<u32, CounterKind>,
    sizes: HashMap<&'d str, u32>,
}

/// What the P4Info has of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableInfo<'d> {
    pub(crate) table: &'d proto::Table,
    info: &'d Info<'d>,
}

impl<'d> Info<'d> {
    /// # Errors
    /// There are too many objects of a kind, or two have the same name or id.
    pub(crate) fn new(info: &'d P4Info) -> Result<Self> {
        let params = info.actions.iter().map(|action| action.params.len());
        for (kind, count) in [
            ("tables", info.tables.len()),
            ("actions", info.actions.len()),
            ("action profiles", info.action_profiles.len()),
            ("counters", info.counters.len() + info.direct_counters.len()),
            ("meters", info.meters.len() + info.direct_meters.len()),
            ("registers", info.registers.len()),
            ("digests", info.digests.len()),
            ("value sets", info.value_sets.len()),
            ("keys", info.tables.iter().map(|table| table.match_fields.len()).sum()),
            ("references to actions", info.tables.iter().map(|table| table.action_refs.len()).sum()),
            ("parameters", params.sum()),
        ] {
            bounded(kind, count).at("P4Info")?;
        }
        distinct(info).at("P4Info")?;
        parameters(info).at("P4Info")?;
        controller_headers(&info.controller_packet_metadata).at("P4Info")?;
        let name = |preamble: &'d Option<proto::Preamble>| preamble.as_ref().map_or("", |p| p.name.as_str());
        let kind = |spec: &Option<proto::CounterSpec>| match spec.as_ref().map(proto::CounterSpec::unit) {
            Some(Unit::Packets) => CounterKind::Packets,
            Some(Unit::Bytes) => CounterKind::Bytes,
            _ => CounterKind::Both,
        };
        let id = |action: &'d proto::Action| Some((action.preamble.as_ref()?.id, action));
        Ok(Self {
            tables: info.tables.iter().map(|table| (name(&table.preamble), table)).collect(),
            actions: info.actions.iter().filter_map(id).collect(),
            counters: info.counters.iter().map(|c| (name(&c.preamble), kind(&c.spec))).collect(),
            direct: info.direct_counters.iter().map(|c| (c.direct_table_id, kind(&c.spec))).collect(),
            sizes: info
                .value_sets
                .iter()
                .map(|set| (name(&set.preamble), u32::try_from(set.size).unwrap_or(0)))
                .collect(),
        })
    }

    pub(crate) fn table(&'d self, name: &str) -> Option<TableInfo<'d>> {
        self.tables.get(name).map(|table| TableInfo { table, info: self })
    }

    /// Names of all tables.
    pub(crate) fn table_names(&self) -> impl Iterator<Item = &'d str> {
        self.tables.keys().copied()
    }

    pub(crate) fn counter(&self, name: &str) -> Option<CounterKind> {
        self.counters.get(name).copied()
    }

    pub(crate) fn value_set_size(&self, name: &str) -> Option<u32> {
        self.sizes.get(name).copied()
    }
}

/// # Errors
/// Two objects of a kind have one name or id, or a name is too long.
fn distinct(info: &P4Info) -> Result<()> {
    type Preambles<'d> = Vec<Option<&'d proto::Preamble>>;
    macro_rules! preambles {
        ($list:ident) => {
            info.$list.iter().map(|object| object.preamble.as_ref()).collect::<Preambles>()
        };
    }
    for (kind, preambles) in [
        ("tables", preambles!(tables)),
        ("actions", preambles!(actions)),
        ("action profiles", preambles!(action_profiles)),
        ("counters", preambles!(counters)),
        ("meters", preambles!(meters)),
        ("registers", preambles!(registers)),
        ("digests", preambles!(digests)),
        ("value sets", preambles!(value_sets)),
        ("controller headers", preambles!(controller_packet_metadata)),
    ] {
        let (mut names, mut ids) = (HashSet::new(), HashSet::new());
        for preamble in preambles.into_iter().flatten() {
            short(&preamble.name)?;
            if !names.insert(preamble.name.as_str()) {
                return Err(Refusal::of(format!("two {kind} are called {}", preamble.name)));
            }
            if !ids.insert(preamble.id) {
                return Err(Refusal::of(format!("two {kind} have id {:#x}", preamble.id)));
            }
        }
    }
    Ok(())
}

/// # Errors
/// The actions of tables have too many parameters, or a parameter or key has too long a name.
fn parameters(info: &P4Info) -> Result<()> {
    let mut counts = HashMap::new();
    for action in &info.actions {
        action.params.iter().try_for_each(|parameter| short(&parameter.name))?;
        counts.insert(action.preamble.as_ref().map_or(0, |preamble| preamble.id), action.params.len());
    }
    info.tables.iter().flat_map(|table| &table.match_fields).try_for_each(|field| short(&field.name))?;
    let references = info.tables.iter().flat_map(|table| &table.action_refs);
    let count = references.filter_map(|reference| counts.get(&reference.id)).sum();
    fits("parameters of the actions of all tables", count, MOST_PARAMETERS)
}

/// # Errors
/// There are more than can be.
fn fits(kind: &str, count: usize, most: usize) -> Result<()> {
    match count <= most {
        true => Ok(()),
        false => Err(Refusal::of(format!("{count} {kind}; at most {most} are supported"))),
    }
}

/// # Errors
/// There are too many headers or fields, or a field has no width that the pipeline has.
fn controller_headers(headers: &[proto::ControllerPacketMetadata]) -> Result<()> {
    fits("controller headers", headers.len(), MOST_CONTROLLER_HEADERS)?;
    for header in headers {
        fits("fields of a controller header", header.metadata.len(), MOST_CONTROLLER_FIELDS)?;
        for field in &header.metadata {
            short(&field.name)?;
            // A translated field has no width here.
            if field.bitwidth != 0 {
                let bits = u64::try_from(field.bitwidth).unwrap_or(0);
                operand::width(bits, format_args!("controller header field {}", field.name))?;
            }
        }
    }
    Ok(())
}

impl TableInfo<'_> {
    /// What each entry counts.
    pub(crate) fn counter(&self) -> Option<CounterKind> {
        let id = self.table.preamble.as_ref()?.id;
        self.info.direct.get(&id).copied()
    }

    /// Whether only the default may have an action.
    pub(crate) fn is_default_only(&self, action: &str) -> bool {
        let named = |reference: &&proto::ActionRef| {
            let known = self.info.actions.get(&reference.id).and_then(|action| action.preamble.as_ref());
            known.is_some_and(|preamble| preamble.name == action)
        };
        self.table
            .action_refs
            .iter()
            .find(named)
            .is_some_and(|reference| reference.scope() == Scope::DefaultOnly)
    }

    /// Name of a key, and how it is matched if that is one of the pipeline's ways.
    pub(crate) fn key(&self, index: usize) -> Option<(&str, Option<MatchKind>)> {
        use match_field::{Match, MatchType};
        let field = self.table.match_fields.get(index)?;
        let kind = match field.r#match {
            Some(Match::MatchType(number)) => match MatchType::try_from(number) {
                Ok(MatchType::Exact) => Some(MatchKind::Exact),
                Ok(MatchType::Lpm) => Some(MatchKind::Lpm),
                Ok(MatchType::Ternary) => Some(MatchKind::Ternary),
                Ok(MatchType::Range) => Some(MatchKind::Range),
                Ok(MatchType::Optional) => Some(MatchKind::Optional),
                _ => None,
            },
            _ => None,
        };
        Some((field.name.as_str(), kind))
    }
}

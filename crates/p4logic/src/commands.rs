//! Commands of the logic: entities as text, with names ([`p4switch::text`]).

use logic::{CommandInfo, LogicError};
use p4runtime_proto::v1::entity::Entity as Kind;
use p4runtime_proto::v1::packet_replication_engine_entry::Type as Replication;
use p4runtime_proto::v1::table_action::Type as ActionKind;
use p4runtime_proto::v1::update::Type;
use p4runtime_proto::v1::write_request::Atomicity;
use p4runtime_proto::v1::{
    ActionProfileGroup, ActionProfileMember, CloneSessionEntry, CounterData, CounterEntry, Entity,
    MeterEntry, MulticastGroupEntry, PacketReplicationEngineEntry, RegisterEntry, TableEntry, Update,
};
use p4switch::{Device, Program, WriteFailure, text};

use crate::P4;

const LIST: [(&str, &str, &str); 8] = [
    ("tables", "[TABLE]", "entries of tables, with their counts"),
    ("counters", "[COUNTER]", "counters that are not 0"),
    ("registers", "[REGISTER]", "cells of registers that are not 0"),
    ("meters", "[METER]", "meters that have rates"),
    ("groups", "", "multicast groups, clone sessions, members and groups of action profiles"),
    ("add", "ENTITY", "adds an entry, `TABLE KEY=VALUE... => ACTION(...)`, a group, a session or a member"),
    (
        "mod",
        "ENTITY",
        "changes one, a counter, a register, a meter or a default, `TABLE default => ACTION(...)`",
    ),
    ("del", "ENTITY", "deletes one"),
];

/// The commands.
pub fn list() -> Vec<CommandInfo> {
    let info = |(name, usage, help): (&str, &str, &str)| CommandInfo {
        name: name.into(),
        usage: usage.into(),
        help: help.into(),
    };
    LIST.into_iter().map(info).collect()
}

/// Runs a command.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn call(p4: &P4, command: &[String]) -> Result<String, LogicError> {
    let [verb, words @ ..] = command else { return Err(LogicError::unknown_command("p4", command, &list())) };
    let failed = |message: String| LogicError::Command { command: verb.clone(), message };
    let kind = match verb.as_str() {
        "add" => Some(Type::Insert),
        "mod" => Some(Type::Modify),
        "del" => Some(Type::Delete),
        _ => None,
    };
    if let Some(kind) = kind {
        return write(p4, kind, &words.join(" ")).map(|()| String::new()).map_err(failed);
    }
    let entities = match (verb.as_str(), words) {
        ("groups", _) => groups(),
        ("tables" | "counters" | "registers" | "meters", []) => all(verb),
        ("tables" | "counters" | "registers" | "meters", [name, ..]) => p4
            .program()
            .map_err(|failure| failure.to_string())
            .and_then(|it| named(&it, verb, name))
            .map_err(failed)?,
        _ => return Err(LogicError::unknown_command("p4", command, &list())),
    };
    read(p4, &entities).map_err(failed)
}

fn entity(kind: Kind) -> Entity {
    Entity { entity: Some(kind) }
}

/// All objects of a kind: entries of all tables, then their defaults, or the cells of all arrays.
fn all(verb: &str) -> Vec<Entity> {
    match verb {
        "counters" => vec![entity(Kind::CounterEntry(CounterEntry::default()))],
        "registers" => vec![entity(Kind::RegisterEntry(RegisterEntry::default()))],
        "meters" => vec![entity(Kind::MeterEntry(MeterEntry::default()))],
        _ => tables(0),
    }
}

/// The same of the one object with a name.
fn named(program: &Program, verb: &str, name: &str) -> Result<Vec<Entity>, String> {
    let array = match verb {
        "counters" => "counter",
        "registers" => "register",
        "meters" => "meter",
        _ => {
            // The dot tells a table from a kind of entities that is called alike.
            let found = text::parse(program, &format!(".{}", name.trim_matches(['"', '.'])))?;
            let id = if let Some(Kind::TableEntry(entry)) = found.entity { entry.table_id } else { 0 };
            return Ok(tables(id));
        }
    };
    Ok(vec![text::parse(program, &format!("{array} {name}"))?])
}

/// Entries of a table, or of all, then defaults.
fn tables(table_id: u32) -> Vec<Entity> {
    let of = |is_default_action| {
        let counter_data = Some(CounterData::default());
        let entry = TableEntry { table_id, is_default_action, counter_data, ..TableEntry::default() };
        entity(Kind::TableEntry(entry))
    };
    vec![of(false), of(true)]
}

fn groups() -> Vec<Entity> {
    let replication = |kind| {
        entity(Kind::PacketReplicationEngineEntry(PacketReplicationEngineEntry { r#type: Some(kind) }))
    };
    vec![
        replication(Replication::MulticastGroupEntry(MulticastGroupEntry::default())),
        replication(Replication::CloneSessionEntry(CloneSessionEntry::default())),
        entity(Kind::ActionProfileMember(ActionProfileMember::default())),
        entity(Kind::ActionProfileGroup(ActionProfileGroup::default())),
    ]
}

fn write(p4: &P4, kind: Type, line: &str) -> Result<(), String> {
    let program = p4.program().map_err(|failure| failure.to_string())?;
    let entity = text::parse(&program, line)?;
    let update = Update { r#type: kind.into(), entity: Some(entity) };
    p4.write(&[update], Atomicity::RollbackOnError, None).map_err(|failure| match failure {
        WriteFailure::Request(failure) => failure.to_string(),
        WriteFailure::Updates(results) => {
            let failures = results.into_iter().filter_map(Result::err).map(|failure| failure.to_string());
            failures.collect::<Vec<_>>().join("; ")
        }
    })
}

/// Reads entities as lines.
fn read(p4: &P4, entities: &[Entity]) -> Result<String, String> {
    let program = p4.program().map_err(|failure| failure.to_string())?;
    let mut lines = Vec::new();
    let mut collect = |part: Vec<Entity>| {
        lines.extend(
            part.iter().filter(|entity| is_shown(entity)).map(|entity| text::print(&program, entity)),
        );
        true
    };
    p4.read(entities, &mut collect).map_err(|failure| failure.to_string())?;
    Ok(lines.join("\n"))
}

/// Whether people want to see it: cells that are 0, and defaults that do nothing, are many.
fn is_shown(entity: &Entity) -> bool {
    match &entity.entity {
        Some(Kind::CounterEntry(counter)) => {
            counter.data.as_ref().is_some_and(|data| data.packet_count != 0 || data.byte_count != 0)
        }
        Some(Kind::RegisterEntry(register)) => register.data.as_ref().is_some_and(|data| !is_zero(data)),
        Some(Kind::MeterEntry(meter)) => meter.config.is_some(),
        Some(Kind::TableEntry(entry)) if entry.is_default_action => {
            let action = entry.action.as_ref().and_then(|action| action.r#type.as_ref());
            matches!(action, Some(ActionKind::Action(_)))
        }
        _ => true,
    }
}

fn is_zero(data: &p4runtime_proto::v1::P4Data) -> bool {
    use p4runtime_proto::v1::p4_data::Data;
    match &data.data {
        Some(Data::Bitstring(bytes)) => bytes.iter().all(|byte| *byte == 0),
        Some(Data::Bool(value)) => !value,
        _ => false,
    }
}

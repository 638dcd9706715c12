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
    let entities = match verb.as_str() {
        "tables" => tables(),
        "counters" => vec![entity(Kind::CounterEntry(CounterEntry::default()))],
        "registers" => vec![entity(Kind::RegisterEntry(RegisterEntry::default()))],
        "meters" => vec![entity(Kind::MeterEntry(MeterEntry::default()))],
        "groups" => groups(),
        _ => return Err(LogicError::unknown_command("p4", command, &list())),
    };
    read(p4, &entities, words).map_err(failed)
}

fn entity(kind: Kind) -> Entity {
    Entity { entity: Some(kind) }
}

/// Entries of all tables, then their defaults.
fn tables() -> Vec<Entity> {
    let of = |is_default_action| {
        let counter_data = Some(CounterData::default());
        entity(Kind::TableEntry(TableEntry { is_default_action, counter_data, ..TableEntry::default() }))
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
    p4.write(&[update], Atomicity::RollbackOnError).map_err(|failure| match failure {
        WriteFailure::Request(failure) => failure.to_string(),
        WriteFailure::Updates(results) => {
            let failures = results.into_iter().filter_map(Result::err).map(|failure| failure.to_string());
            failures.collect::<Vec<_>>().join("; ")
        }
    })
}

/// Reads entities as lines; of those that have names, the ones whose name is a word's.
fn read(p4: &P4, entities: &[Entity], words: &[String]) -> Result<String, String> {
    let program = p4.program().map_err(|failure| failure.to_string())?;
    let mut lines = Vec::new();
    let mut collect = |part: Vec<Entity>| {
        lines.extend(
            part.iter().filter(|entity| is_shown(entity)).map(|entity| text::print(&program, entity)),
        );
        true
    };
    p4.read(entities, &mut collect).map_err(|failure| failure.to_string())?;
    if let [name, ..] = words {
        if !is_known(&program, name) {
            return Err(format!("the program has no table, counter, register or meter `{name}`"));
        }
        lines.retain(|line| named(line).is_some_and(|found| is_end(found, name)));
    }
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

/// The name in a line: of the table, or of the array behind its kind.
fn named(line: &str) -> Option<&str> {
    let mut words = line.split([' ', '[']);
    match words.next()? {
        "counter" | "register" | "meter" => words.next(),
        table => Some(table),
    }
}

/// Whether a name is whole, or the end of another behind a dot.
fn is_end(whole: &str, name: &str) -> bool {
    whole == name
        || whole.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))
        || name.strip_suffix(whole).is_some_and(|rest| rest.ends_with('.'))
}

fn is_known(program: &Program, name: &str) -> bool {
    let info = &program.info;
    let names = info.tables.iter().filter_map(|it| it.preamble.as_ref());
    let names = names.chain(info.counters.iter().filter_map(|it| it.preamble.as_ref()));
    let names = names.chain(info.registers.iter().filter_map(|it| it.preamble.as_ref()));
    let mut names = names.chain(info.meters.iter().filter_map(|it| it.preamble.as_ref()));
    names.any(|preamble| is_end(&preamble.name, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_names() {
        assert_eq!(named("routes dst=10.0.0.0/8 => drop()"), Some("routes"));
        assert_eq!(named("counter ingress.seen[3] packets=1"), Some("ingress.seen"));
        assert!(is_end("ingress.seen", "seen") && is_end("seen", "ingress.seen"));
        assert!(!is_end("unseen", "seen"));
    }
}

//! A program with one of everything, and shorthands for what controllers send.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy exempts test functions, but not their helpers"
)]
#![allow(dead_code)] // Each test uses some of it.

use std::sync::{Arc, LazyLock};

use p4::preprocess::Options;
use p4runtime_proto::v1::{
    Entity, TableEntry, Update, entity::Entity as Kind, update::Type, write_request::Atomicity,
};
use p4switch::{Code, Program, Switch, WriteFailure, text};

/// Source of the program.
pub(crate) const SOURCE: &str = include_str!("../programs/everything.p4");

/// A program given as text.
pub(crate) fn program(text: &str) -> Arc<Program> {
    Arc::new(
        Program::text("everything.p4", text, &Options::default()).unwrap_or_else(|error| panic!("{error}")),
    )
}

static EVERYTHING: LazyLock<Arc<Program>> = LazyLock::new(|| program(SOURCE));

/// A switch that runs the program with everything.
pub(crate) fn switch() -> Switch {
    Switch::new(EVERYTHING.clone())
}

/// An update.
pub(crate) fn update(kind: Type, entity: Kind) -> Update {
    Update { r#type: kind.into(), entity: Some(Entity { entity: Some(entity) }) }
}

/// An update of what a text says.
pub(crate) fn of_text(switch: &Switch, kind: Type, line: &str) -> Update {
    let entity = text::parse(switch.program(), line).unwrap_or_else(|error| panic!("{line}: {error}"));
    Update { r#type: kind.into(), entity: Some(entity) }
}

/// The code and message of a single update.
pub(crate) fn write(switch: &mut Switch, update: Update) -> Result<(), (Code, String)> {
    match switch.write(&[update], Atomicity::ContinueOnError, 0) {
        Ok(()) => Ok(()),
        Err(WriteFailure::Updates(results)) => {
            let [Err(failure)] = &results[..] else { panic!("one refusal: {results:?}") };
            Err((failure.code, failure.message.clone()))
        }
        Err(WriteFailure::Request(failure)) => panic!("{failure}"),
    }
}

/// Writes what a text says; panics if it is refused.
pub(crate) fn put(switch: &mut Switch, kind: Type, line: &str) {
    let update = of_text(switch, kind, line);
    write(switch, update).unwrap_or_else(|(code, message)| panic!("{line}: {code:?} {message}"));
}

/// The code with which what a text says is refused.
pub(crate) fn refused(switch: &mut Switch, kind: Type, line: &str) -> (Code, String) {
    let update = of_text(switch, kind, line);
    let before = all(switch);
    let refusal = write(switch, update).expect_err(line);
    assert_eq!(all(switch), before, "{line}: what is refused changes nothing");
    refusal
}

/// Reads entities.
pub(crate) fn read(switch: &Switch, kind: Kind) -> Vec<Entity> {
    let mut found = Vec::new();
    let wanted = [Entity { entity: Some(kind) }];
    switch
        .read(&wanted, 0, &mut |part| {
            found.extend(part);
            true
        })
        .unwrap();
    found
}

/// Reads entities as text.
pub(crate) fn lines(switch: &Switch, kind: Kind) -> Vec<String> {
    read(switch, kind).iter().map(|entity| text::print(switch.program(), entity)).collect()
}

/// The entries of a table as text.
pub(crate) fn entries(switch: &Switch, table: &str) -> Vec<String> {
    let entity = text::parse(switch.program(), table).unwrap();
    let Some(Kind::TableEntry(entry)) = entity.entity else { panic!("{table}: no table") };
    lines(switch, Kind::TableEntry(entry))
}

/// All that can be read.
pub(crate) fn all(switch: &Switch) -> Vec<Entity> {
    let entry = TableEntry {
        counter_data: Some(Default::default()),
        meter_config: Some(Default::default()),
        ..Default::default()
    };
    let wanted = [
        Kind::TableEntry(entry.clone()),
        Kind::TableEntry(TableEntry { is_default_action: true, ..Default::default() }),
        Kind::DirectCounterEntry(Default::default()),
        Kind::DirectMeterEntry(Default::default()),
        Kind::ActionProfileMember(Default::default()),
        Kind::ActionProfileGroup(Default::default()),
        Kind::CounterEntry(Default::default()),
        Kind::MeterEntry(Default::default()),
        Kind::RegisterEntry(Default::default()),
        Kind::PacketReplicationEngineEntry(Default::default()),
        Kind::ValueSetEntry(Default::default()),
        Kind::DigestEntry(Default::default()),
    ];
    wanted.into_iter().flat_map(|kind| read(switch, kind)).collect()
}

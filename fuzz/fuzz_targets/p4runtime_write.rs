//! A P4Runtime request: an arbitrary message, written to a program with one of everything, then everything read.
//!
//! Invariants:
//! - No panic; time and memory are bounded.
//! - A request that is all or nothing and fails changes nothing.
//! - What is read is written again unchanged: entries of tables name themselves.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use p4::preprocess::Options;
use p4runtime_proto::v1::write_request::Atomicity;
use p4runtime_proto::v1::{Entity, TableEntry, Update, WriteRequest, entity::Entity as Kind, update::Type};
use p4switch::{Program, Switch, text};
use prost::Message;

static PROGRAM: LazyLock<Arc<Program>> = LazyLock::new(|| {
    let source = include_str!("../../crates/p4switch/tests/programs/everything.p4");
    Arc::new(Program::text("everything.p4", source, &Options::default()).expect("the program runs"))
});

fuzz_target!(|data: &[u8]| {
    let Ok(request) = WriteRequest::decode(data) else { return };
    let mut switch = Switch::new(PROGRAM.clone());
    let before = all(&switch);
    let failed = switch.write(&request.updates, request.atomicity(), 0).is_err();
    let after = all(&switch);
    if failed && request.atomicity() != Atomicity::ContinueOnError {
        assert_eq!(before, after);
    }
    for entity in &after {
        text::print(&PROGRAM, entity);
        let Some(Kind::TableEntry(entry)) = &entity.entity else { continue };
        if !entry.is_const && !entry.is_default_action {
            let again = Update { r#type: Type::Modify.into(), entity: Some(entity.clone()) };
            switch.write(&[again], Atomicity::ContinueOnError, 0).expect("an entry is what it reads as");
        }
    }
    assert_eq!(all(&switch), after);
    // The same message as what to read.
    let wanted: Vec<Entity> = request.updates.into_iter().filter_map(|update| update.entity).collect();
    let _ = switch.read(&wanted, 0, &mut |part| part.len() < 2);
});

/// All that can be read.
fn all(switch: &Switch) -> Vec<Entity> {
    let entry = TableEntry {
        counter_data: Some(Default::default()),
        meter_config: Some(Default::default()),
        ..Default::default()
    };
    let wanted = [
        Kind::TableEntry(entry),
        Kind::TableEntry(TableEntry { is_default_action: true, ..Default::default() }),
        Kind::ActionProfileMember(Default::default()),
        Kind::ActionProfileGroup(Default::default()),
        Kind::CounterEntry(Default::default()),
        Kind::MeterEntry(Default::default()),
        Kind::RegisterEntry(Default::default()),
        Kind::PacketReplicationEngineEntry(Default::default()),
        Kind::ValueSetEntry(Default::default()),
        Kind::DigestEntry(Default::default()),
    ];
    let wanted = wanted.map(|kind| Entity { entity: Some(kind) });
    let mut found = Vec::new();
    let read = switch.read(&wanted, 0, &mut |part| {
        found.extend(part);
        true
    });
    read.expect("wildcards are right");
    found
}

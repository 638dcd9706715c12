//! Reading in parts: between them, entries come and go.
#![allow(clippy::unwrap_used, reason = "clippy exempts test functions, but not their helpers")]

mod support;

use p4runtime_proto::v1::{
    CounterEntry, Entity, RegisterEntry, TableEntry, entity::Entity as Kind, update::Type,
};
use p4switch::{Switch, text};

use support::{SOURCE, program, put, read};

/// A switch with larger tables and arrays, and 2,500 entries in one of them.
fn large() -> Switch {
    let text = SOURCE
        .replace("size = 4;", "size = 5000;")
        .replace(
            "counter(8, CounterType.packets_and_bytes) seen",
            "counter(2200, CounterType.packets_and_bytes) seen",
        )
        .replace("register<bit<20>>(4) answer", "register<bit<20>>(1001) answer");
    let mut switch = Switch::new(program(&text));
    for i in 0..2500 {
        put(&mut switch, Type::Insert, &format!("exact_t a={} wide={} => forward(port=3)", i % 256, i / 256));
    }
    switch
}

/// Reads an entity in parts, with a change of the switch behind each; returns the parts' lengths and all lines.
fn in_parts(
    switch: &mut Switch,
    kind: Kind,
    mut change: impl FnMut(&mut Switch),
) -> (Vec<usize>, Vec<String>) {
    let entity = Entity { entity: Some(kind) };
    let (mut from, mut lengths, mut lines) = (None, Vec::new(), Vec::new());
    loop {
        let (part, next) = switch.read_part(&entity, from, 0).unwrap();
        lengths.push(part.len());
        lines.extend(part.iter().map(|entity| text::print(switch.program(), entity)));
        change(switch);
        match next {
            Some(next) => from = Some(next),
            None => return (lengths, lines),
        }
    }
}

#[test]
fn parts_together_are_the_whole() {
    let mut switch = large();
    let everything = [
        // Those of the program are 2 of `const_t`, 1 of `initial_t`.
        (Kind::TableEntry(TableEntry::default()), 3, 2503),
        // 2,200 of `seen`, 4 of `never_seen`.
        (Kind::CounterEntry(CounterEntry::default()), 3, 2204),
        // 1,001 of `answer`, 2 of `offset`.
        (Kind::RegisterEntry(RegisterEntry::default()), 2, 1003),
    ];
    for (kind, least, count) in everything {
        let whole = read(&switch, kind.clone());
        let whole: Vec<_> = whole.iter().map(|entity| text::print(switch.program(), entity)).collect();
        let (lengths, lines) = in_parts(&mut switch, kind, |_| ());
        assert_eq!(lines, whole);
        assert_eq!(lines.len(), count);
        let different: std::collections::BTreeSet<_> = lines.iter().collect();
        assert_eq!(different.len(), count, "each once");
        assert!(lengths.len() >= least && lengths.iter().all(|length| *length <= 1000), "{lengths:?}");
    }
}

#[test]
fn entries_that_stay_are_read_once_while_others_come_and_go() {
    let mut switch = large();
    let line = |i: u32| format!("exact_t a={} wide={} => forward(port=3)", i % 256, i / 256);
    let mut round = 0;
    // Entry 999 is the last of the first part: the next begins behind one that has gone.
    let (lengths, lines) = in_parts(&mut switch, Kind::TableEntry(TableEntry::default()), |switch| {
        let gone = [999, 2400].get(round).copied();
        if let Some(gone) = gone {
            put(switch, Type::Delete, line(gone).split(" =>").next().unwrap_or_default());
            put(switch, Type::Insert, &line(3000 + gone));
        }
        round += 1;
    });
    assert_eq!(lengths[0], 1000, "{lengths:?}");
    let count = |i: u32| {
        let name = format!("exact_t a={} wide={:#x} =>", i % 256, i / 256);
        lines.iter().filter(|line| line.starts_with(&name)).count()
    };
    let counts: Vec<_> = (0..2500).filter(|i| ![999, 2400].contains(i)).map(count).collect();
    assert!(counts.iter().all(|count| *count == 1), "{counts:?}");
    assert_eq!([999, 2400].map(count), [1, 0]);
}

//! A database server's bytes: the first one chooses the size of the parts in which they arrive.
//!
//! Invariants:
//! - No panic.
//! - The messages do not depend on the parts.
//! - A message, a schema's selection and a row encode to what decodes to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ovsdb::{AtomType, ColumnType, Format, Message, Replica, Schema, Splitter, Value, encode_row, vswitch};

const LIMIT: usize = 1024;

fn split(stream: &[u8], size: usize) -> Vec<Vec<u8>> {
    let mut splitter = Splitter::new(LIMIT);
    let mut messages = vec![];
    for part in stream.chunks(size) {
        splitter.push(part);
        loop {
            match splitter.next_message() {
                Ok(Some(message)) => messages.push(message.to_vec()),
                Ok(None) => break,
                Err(_) => return messages,
            }
        }
    }
    messages
}

/// A table with a column of each kind: its name says which.
fn schema() -> Schema {
    let column = |key, value, min, max| ColumnType { key, value, min, max };
    let columns = [
        ("i", column(AtomType::Integer, None, 1, Some(1))),
        ("o", column(AtomType::String, None, 0, Some(1))),
        ("s", column(AtomType::Real, None, 0, None)),
        ("u", column(AtomType::Uuid, None, 0, Some(2))),
        ("m", column(AtomType::String, Some(AtomType::Boolean), 0, None)),
    ];
    let columns = columns.into_iter().map(|(name, column)| (name.to_owned(), column)).collect();
    Schema { name: "D".into(), version: "1".into(), tables: [("T".to_owned(), columns)].into() }
}

fuzz_target!(|data: &[u8]| {
    let Some((size, stream)) = data.split_first() else { return };
    let messages = split(stream, usize::from(*size).max(1));
    assert_eq!(messages, split(stream, LIMIT));
    let mut replica = Replica::new(schema());
    for message in &messages {
        let Ok(message) = Message::decode(message) else { continue };
        let again = message.encode().to_string();
        assert_eq!(Message::decode(again.as_bytes()).as_ref(), Ok(&message));
        match message {
            Message::Reply { outcome: Ok(json), .. } => {
                if let Ok(schema) = Schema::decode(&json) {
                    let _ = schema.select(vswitch::TABLES);
                }
            }
            Message::Notification { method, params } => {
                let format = if method == "update" { Format::OldAndNew } else { Format::Differences };
                for updates in &params {
                    let _ = replica.apply(format, updates);
                }
            }
            _ => {}
        }
    }
    let schema = schema();
    for (_, row) in replica.rows("T") {
        assert!(row.keys().eq(schema.tables["T"].keys()), "{}", encode_row(row));
        for (name, value) in row {
            let column = ColumnType { min: 0, max: None, ..schema.tables["T"][name] };
            assert_eq!(Value::decode(&value.encode(), &column).as_ref(), Ok(value));
        }
    }
});

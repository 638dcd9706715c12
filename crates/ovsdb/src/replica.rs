//! A local replica of the monitored tables (RFC 7047 §4.1.5, §4.1.6; ovsdb-server(7) for `monitor_cond`, `update2`).
//!
//! Invariants:
//! - Every row has exactly the columns of the selected schema, with values of their types.
//! - After an error the replica is no longer that of the server: the caller monitors anew.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::schema::{Columns, Schema};
use crate::uuid::Uuid;
use crate::value::{Row, Value, ValueError, shortened};

/// The rows of a table.
pub type Rows = BTreeMap<Uuid, Row>;

/// The change of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The table.
    pub table: String,
    /// The row.
    pub uuid: Uuid,
    /// What happened to it.
    pub kind: ChangeKind,
}

/// Kinds of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// The row is new.
    Inserted,
    /// Some columns have other values.
    Modified {
        /// The columns.
        columns: Vec<String>,
    },
    /// The row is gone.
    Deleted,
}

/// The forms in which a server reports changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `<table-updates>`: old and new rows, of `monitor` and `update` (RFC 7047 §4.1.5).
    OldAndNew,
    /// `<table-updates2>`: differences, of `monitor_cond` and `update2`.
    Differences,
}

/// Reasons why an update cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// Something that should be there has another form.
    #[error("update: expected {expected}, found {found}")]
    Form {
        /// What should be there.
        expected: &'static str,
        /// The JSON found, shortened.
        found: String,
    },
    /// A table that is not monitored.
    #[error("update of the table `{0}`, which is not monitored")]
    Table(String),
    /// A column that is not monitored.
    #[error("update of the column `{table}.{column}`, which is not monitored")]
    Column {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// A value of another type.
    #[error("update of the column `{table}.{column}`: {error}")]
    Value {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// What is wrong.
        error: ValueError,
    },
    /// A change of a row that is not there.
    #[error("update of the row {uuid} of the table `{table}`, which does not exist")]
    Row {
        /// The table.
        table: String,
        /// The row.
        uuid: Uuid,
    },
}

fn form(expected: &'static str, found: &Json) -> UpdateError {
    UpdateError::Form { expected, found: shortened(found) }
}

/// A replica. See the module.
#[derive(Debug, Clone, Default)]
pub struct Replica {
    schema: Schema,
    tables: BTreeMap<String, Rows>,
}

impl Replica {
    /// Creates a replica without rows, with the tables and columns of a schema.
    pub fn new(schema: Schema) -> Self {
        let tables = schema.tables.keys().map(|table| (table.clone(), Rows::new())).collect();
        Self { schema, tables }
    }

    /// Returns the monitored tables and columns.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the rows of a table, none if it is not monitored.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = (Uuid, &Row)> {
        self.tables.get(table).into_iter().flatten().map(|(uuid, row)| (*uuid, row))
    }

    /// Returns a row.
    pub fn row(&self, table: &str, uuid: Uuid) -> Option<&Row> {
        self.tables.get(table)?.get(&uuid)
    }

    /// Applies an update. Returns the changes.
    pub fn apply(&mut self, format: Format, updates: &Json) -> Result<Vec<Change>, UpdateError> {
        let tables = updates.as_object().ok_or_else(|| form("an object of tables", updates))?;
        let mut changes = Vec::new();
        for (table, rows) in tables {
            let unknown = || UpdateError::Table(table.clone());
            let columns = self.schema.tables.get(table).ok_or_else(unknown)?;
            let mut target = Target { table, columns, rows: self.tables.entry(table.clone()).or_default() };
            for (uuid, update) in rows.as_object().ok_or_else(|| form("an object of rows", rows))? {
                let uuid = uuid.parse().map_err(|_| form("a UUID", &Json::String(uuid.clone())))?;
                let kind = match format {
                    Format::OldAndNew => target.old_and_new(uuid, update)?,
                    Format::Differences => target.difference(uuid, update)?,
                };
                changes.extend(kind.map(|kind| Change { table: table.clone(), uuid, kind }));
            }
        }
        Ok(changes)
    }
}

/// A table that an update changes.
struct Target<'a> {
    table: &'a str,
    columns: &'a Columns,
    rows: &'a mut Rows,
}

impl Target<'_> {
    /// Applies a `<row-update>`.
    fn old_and_new(&mut self, uuid: Uuid, update: &Json) -> Result<Option<ChangeKind>, UpdateError> {
        let update = update.as_object().ok_or_else(|| form("an object with `old` or `new`", update))?;
        match (update.get("old"), update.get("new")) {
            (_, Some(new)) => Ok(self.put(uuid, new)?),
            (Some(_), None) => Ok(self.rows.remove(&uuid).map(|_| ChangeKind::Deleted)),
            (None, None) => Err(form("an object with `old` or `new`", &Json::Object(update.clone()))),
        }
    }

    /// Applies a `<row-update2>`.
    fn difference(&mut self, uuid: Uuid, update: &Json) -> Result<Option<ChangeKind>, UpdateError> {
        const EXPECTED: &str = "an object with `initial`, `insert`, `modify` or `delete`";
        let entry = update.as_object().and_then(|update| update.iter().next());
        match entry.map(|(kind, row)| (kind.as_str(), row)) {
            Some(("initial" | "insert", row)) => self.put(uuid, row),
            Some(("modify", row)) => self.modify(uuid, row).map(Some),
            Some(("delete", _)) => Ok(self.rows.remove(&uuid).map(|_| ChangeKind::Deleted)),
            _ => Err(form(EXPECTED, update)),
        }
    }

    /// Replaces a whole row. Columns that are not given have their defaults.
    fn put(&mut self, uuid: Uuid, json: &Json) -> Result<Option<ChangeKind>, UpdateError> {
        let given = json.as_object().ok_or_else(|| form("a row", json))?;
        if let Some(column) = given.keys().find(|column| !self.columns.contains_key(*column)) {
            return Err(UpdateError::Column { table: self.table.into(), column: column.clone() });
        }
        let mut row = Row::new();
        for (column, column_type) in self.columns {
            let value = match given.get(column) {
                None => Value::default_of(column_type),
                Some(json) => {
                    Value::decode(json, column_type).map_err(|error| self.value_error(column, error))?
                }
            };
            row.insert(column.clone(), value);
        }
        let Some(before) = self.rows.insert(uuid, row) else { return Ok(Some(ChangeKind::Inserted)) };
        let after = self.rows.get(&uuid);
        let changed = |column: &&String| after.and_then(|row| row.get(*column)) != before.get(*column);
        let columns: Vec<_> = self.columns.keys().filter(changed).cloned().collect();
        Ok((!columns.is_empty()).then_some(ChangeKind::Modified { columns }))
    }

    fn modify(&mut self, uuid: Uuid, json: &Json) -> Result<ChangeKind, UpdateError> {
        let differences = json.as_object().ok_or_else(|| form("a row", json))?;
        let mut decoded = Vec::new();
        for (column, json) in differences {
            let unknown = || UpdateError::Column { table: self.table.into(), column: column.clone() };
            let column_type = self.columns.get(column).ok_or_else(unknown)?;
            // A difference has any number of elements, unless it replaces the value.
            let decode = if column_type.max == Some(1) { Value::decode } else { Value::decode_any_count };
            let difference = decode(json, column_type).map_err(|error| self.value_error(column, error))?;
            decoded.push((column, column_type, difference));
        }
        let unknown = || UpdateError::Row { table: self.table.into(), uuid };
        let row = self.rows.get_mut(&uuid).ok_or_else(unknown)?;
        for (column, column_type, difference) in decoded {
            if let Some(value) = row.get_mut(column) {
                value.apply_difference(difference, column_type);
            }
        }
        Ok(ChangeKind::Modified { columns: differences.keys().cloned().collect() })
    }

    fn value_error(&self, column: &str, error: ValueError) -> UpdateError {
        UpdateError::Value { table: self.table.into(), column: column.into(), error }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::schema::{AtomType, ColumnType};
    use crate::value::{Atom, strategies};

    const A: &str = "550e8400-e29b-41d4-a716-446655440000";

    fn schema(columns: &[(&str, ColumnType)]) -> Schema {
        let columns = columns.iter().map(|(name, column)| ((*name).to_owned(), *column)).collect();
        Schema { tables: [("T".to_owned(), columns)].into(), ..Schema::default() }
    }

    fn replica() -> Replica {
        let name = ColumnType { key: AtomType::String, value: None, min: 1, max: Some(1) };
        let tags = ColumnType { key: AtomType::Integer, value: None, min: 0, max: None };
        Replica::new(schema(&[("name", name), ("tags", tags)]))
    }

    fn shown(replica: &Replica) -> String {
        let rows = replica.rows("T").map(|(_, row)| crate::value::encode_row(row).to_string());
        rows.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn differences_are_applied() {
        let mut replica = replica();
        let mut apply = |row: Json| {
            let changes = replica.apply(Format::Differences, &json!({"T": {A: row}})).unwrap();
            (changes.into_iter().map(|change| change.kind).collect::<Vec<_>>(), shown(&replica))
        };
        let tags = || vec![ChangeKind::Modified { columns: vec!["tags".into()] }];
        let (inserted, row) = apply(json!({"initial": {"tags": ["set", [1, 2]]}}));
        assert_eq!(
            (inserted, row.as_str()),
            (vec![ChangeKind::Inserted], r#"{"name":"","tags":["set",[1,2]]}"#)
        );
        let (modified, row) = apply(json!({"modify": {"tags": ["set", [2, 3]]}}));
        assert_eq!((modified, row.as_str()), (tags(), r#"{"name":"","tags":["set",[1,3]]}"#));
        assert_eq!(apply(json!({"modify": {"name": "x"}})).1, r#"{"name":"x","tags":["set",[1,3]]}"#);
        assert_eq!(apply(json!({"delete": null})), (vec![ChangeKind::Deleted], String::new()));
    }

    #[test]
    fn old_and_new_rows_are_applied() {
        let mut replica = replica();
        let mut apply = |row: Json| {
            let changes = replica.apply(Format::OldAndNew, &json!({"T": {A: row}})).unwrap();
            (changes.into_iter().map(|change| change.kind).collect::<Vec<_>>(), shown(&replica))
        };
        let row = |name: &str| json!({"name": name, "tags": ["set", []]});
        assert_eq!(apply(json!({"new": row("a")})).0, [ChangeKind::Inserted]);
        let (kind, row) = apply(json!({"old": {"name": "a"}, "new": row("b")}));
        assert_eq!(kind, [ChangeKind::Modified { columns: vec!["name".into()] }]);
        assert_eq!(row, r#"{"name":"b","tags":["set",[]]}"#);
        assert_eq!(apply(json!({"old": {"name": "b"}})), (vec![ChangeKind::Deleted], String::new()));
    }

    #[test]
    fn updates_of_what_is_not_there_are_refused() {
        let refused = |update: Json| replica().apply(Format::Differences, &update).unwrap_err().to_string();
        assert_eq!(refused(json!([])), "update: expected an object of tables, found []");
        assert_eq!(refused(json!({"U": {}})), "update of the table `U`, which is not monitored");
        assert_eq!(refused(json!({"T": {"x": {}}})), "update: expected a UUID, found \"x\"");
        assert_eq!(
            refused(json!({"T": {A: {"initial": {"x": 1}}}})),
            "update of the column `T.x`, which is not monitored"
        );
        assert_eq!(
            refused(json!({"T": {A: {"initial": {"name": 1}}}})),
            "update of the column `T.name`: expected a string, found 1"
        );
        assert_eq!(
            refused(json!({"T": {A: {"modify": {"name": ["set", []]}}}})),
            "update of the column `T.name`: 0 elements, expected 1"
        );
        assert_eq!(
            refused(json!({"T": {A: {"modify": {}}}})),
            format!("update of the row {A} of the table `T`, which does not exist")
        );
        assert!(
            refused(json!({"T": {A: {"other": {}}}})).contains("`initial`, `insert`, `modify` or `delete`")
        );
    }

    /// Two values of one type.
    fn pair() -> impl Strategy<Value = (ColumnType, Value, Value)> {
        (strategies::typed_value(), any::<u64>()).prop_map(|((column, after), seed)| {
            // Drops and changes elements of `after` by the bits of `seed`.
            let bit = |at: usize| seed >> (at % 64) & 1 == 1;
            let before = match &after {
                Value::Set(set) => {
                    let kept = set.iter().enumerate().filter(|(at, _)| bit(*at));
                    let extra = bit(60).then(|| Atom::default_of(column.key));
                    Value::Set(kept.map(|(_, atom)| atom.clone()).chain(extra).collect())
                }
                Value::Map(map) => {
                    let kept = map.iter().enumerate().filter(|(at, _)| bit(2 * *at));
                    let default = Atom::default_of(column.value.unwrap());
                    Value::Map(
                        kept.map(|(at, (key, value))| {
                            let value = if bit(2 * at + 1) { value.clone() } else { default.clone() };
                            (key.clone(), value)
                        })
                        .collect(),
                    )
                }
            };
            (column, before, after)
        })
    }

    /// What a server reports for a change.
    fn difference(before: &Value, after: &Value) -> Value {
        match (before, after) {
            (Value::Set(before), Value::Set(after)) => {
                Value::Set(before.symmetric_difference(after).cloned().collect())
            }
            (Value::Map(before), Value::Map(after)) => {
                let gone = before.iter().filter(|(key, _)| !after.contains_key(*key));
                let new = after.iter().filter(|(key, value)| before.get(*key) != Some(*value));
                Value::Map(gone.chain(new).map(|(key, value)| (key.clone(), value.clone())).collect())
            }
            _ => unreachable!("both have one type"),
        }
    }

    proptest! {
        #[test]
        fn both_formats_lead_to_the_same_rows((column, before, after) in pair()) {
            let schema = schema(&[("c", column)]);
            let mut by_difference = Replica::new(schema.clone());
            let mut by_rows = Replica::new(schema);
            let (old, new) = (json!({"c": before.encode()}), json!({"c": after.encode()}));
            by_rows.apply(Format::OldAndNew, &json!({"T": {A: {"new": old}}})).unwrap();
            by_rows.apply(Format::OldAndNew, &json!({"T": {A: {"old": old, "new": new}}})).unwrap();
            by_difference.apply(Format::Differences, &json!({"T": {A: {"initial": old}}})).unwrap();
            let difference = difference(&before, &after).encode();
            by_difference.apply(Format::Differences, &json!({"T": {A: {"modify": {"c": difference}}}})).unwrap();
            prop_assert_eq!(shown(&by_difference), shown(&by_rows));
        }
    }
}

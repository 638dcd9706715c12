//! Schemas that `get_schema` returns (RFC 7047 §3.2), reduced to what a client needs.
//!
//! A caller lists the tables and columns that it uses as [`TableInfo`]; [`Schema::select`] compares them with the
//! server's. Tables and columns that the server lacks are left out, a column of another type is an error.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value as Json;

use crate::value::shortened;

/// The type of an atom (`<atomic-type>`, RFC 7047 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AtomType {
    /// An integer of 64 bits.
    Integer,
    /// A real number.
    Real,
    /// A truth value.
    Boolean,
    /// A string.
    String,
    /// A UUID.
    Uuid,
}

impl AtomType {
    /// All types.
    pub const ALL: [AtomType; 5] =
        [AtomType::Integer, AtomType::Real, AtomType::Boolean, AtomType::String, AtomType::Uuid];

    /// Returns its name in schemas.
    pub fn name(self) -> &'static str {
        match self {
            AtomType::Integer => "integer",
            AtomType::Real => "real",
            AtomType::Boolean => "boolean",
            AtomType::String => "string",
            AtomType::Uuid => "uuid",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|atom_type| atom_type.name() == name)
    }
}

impl fmt::Display for AtomType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            AtomType::Integer => "an integer",
            AtomType::Real => "a real number",
            AtomType::Boolean => "a boolean",
            AtomType::String => "a string",
            AtomType::Uuid => "a UUID",
        })
    }
}

/// The type of a column (`<type>`, RFC 7047 §3.2). Limits of atoms are the server's concern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnType {
    /// The type of elements, or of a map's keys.
    pub key: AtomType,
    /// The type of a map's values; `None` for a set.
    pub value: Option<AtomType>,
    /// The least number of elements: 0 or 1.
    pub min: usize,
    /// The greatest number of elements; `None` is unlimited.
    pub max: Option<usize>,
}

impl ColumnType {
    /// Returns the possible numbers of elements, for messages.
    pub(crate) fn count(&self) -> String {
        match self.max {
            None => format!("{} or more", self.min),
            Some(max) if max == self.min => max.to_string(),
            Some(max) => format!("{} to {max}", self.min),
        }
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.name();
        match self.value {
            None => write!(out, "{} of {key}", self.count()),
            Some(value) => write!(out, "{} of {key} to {}", self.count(), value.name()),
        }
    }
}

/// A table that a caller uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableInfo {
    /// Its name.
    pub name: &'static str,
    /// The columns in use.
    pub columns: &'static [ColumnInfo],
}

/// A column that a caller uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnInfo {
    /// Its name.
    pub name: &'static str,
    /// The type that the caller reads and writes.
    pub column_type: ColumnType,
}

/// Columns of a table, by name.
pub type Columns = BTreeMap<String, ColumnType>;

/// A database's schema, or a selection of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schema {
    /// The database's name.
    pub name: String,
    /// The schema's version, such as `8.3.1`.
    pub version: String,
    /// The columns of the tables.
    pub tables: BTreeMap<String, Columns>,
}

/// Reasons for not using a schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// Something that should be there is missing or has another form.
    #[error("schema: expected {expected} at `{at}`, found {found}")]
    Form {
        /// The place, such as `Interface.ofport`.
        at: String,
        /// What should be there.
        expected: &'static str,
        /// The JSON found, shortened.
        found: String,
    },
    /// The server's column has another type than the caller's.
    #[error("schema {version}: column `{column}` holds {found}, expected {expected}")]
    Mismatch {
        /// The schema's version.
        version: String,
        /// The column, with its table.
        column: String,
        /// The caller's type.
        expected: String,
        /// The server's type.
        found: String,
    },
}

impl SchemaError {
    fn form(at: &str, expected: &'static str, found: Option<&Json>) -> Self {
        let found = found.map_or_else(|| "nothing".into(), shortened);
        SchemaError::Form { at: at.into(), expected, found }
    }
}

impl Schema {
    /// Decodes a `<database-schema>`.
    pub fn decode(json: &Json) -> Result<Self, SchemaError> {
        let text = |key: &str| {
            let found = json.get(key);
            let text = found.and_then(Json::as_str).map(str::to_owned);
            text.ok_or_else(|| SchemaError::form(key, "a string", found))
        };
        let (name, version) = (text("name")?, text("version")?);
        let tables = json.get("tables");
        let tables = tables
            .and_then(Json::as_object)
            .ok_or_else(|| SchemaError::form("tables", "an object", tables))?;
        let mut decoded = BTreeMap::new();
        for (table, schema) in tables {
            let columns = schema.get("columns");
            let columns = columns
                .and_then(Json::as_object)
                .ok_or_else(|| SchemaError::form(&format!("{table}.columns"), "an object", columns))?;
            let mut types = Columns::new();
            for (column, schema) in columns {
                let at = format!("{table}.{column}");
                types.insert(column.clone(), decode_type(&at, schema.get("type"))?);
            }
            decoded.insert(table.clone(), types);
        }
        Ok(Schema { name, version, tables: decoded })
    }

    /// Returns the part of this schema that a caller uses.
    pub fn select(&self, tables: &[TableInfo]) -> Result<Self, SchemaError> {
        let mut selected =
            Schema { name: self.name.clone(), version: self.version.clone(), ..Schema::default() };
        for table in tables {
            let Some(columns) = self.tables.get(table.name) else { continue };
            let mut used = Columns::new();
            for column in table.columns {
                let Some(found) = columns.get(column.name) else { continue };
                let expected = column.column_type;
                let holds_more = expected.max == Some(1) && found.max != Some(1);
                if (found.key, found.value) != (expected.key, expected.value) || holds_more {
                    return Err(SchemaError::Mismatch {
                        version: self.version.clone(),
                        column: format!("{}.{}", table.name, column.name),
                        expected: expected.to_string(),
                        found: found.to_string(),
                    });
                }
                used.insert(column.name.into(), *found);
            }
            selected.tables.insert(table.name.into(), used);
        }
        Ok(selected)
    }

    /// Returns whether it has a column.
    pub fn has(&self, table: &str, column: &str) -> bool {
        self.column(table, column).is_some()
    }

    /// Returns the type of a column.
    pub fn column(&self, table: &str, column: &str) -> Option<&ColumnType> {
        self.tables.get(table)?.get(column)
    }
}

fn decode_type(at: &str, json: Option<&Json>) -> Result<ColumnType, SchemaError> {
    let scalar = |key| ColumnType { key, value: None, min: 1, max: Some(1) };
    let Some(object) = json.and_then(Json::as_object) else {
        return decode_base(at, json).map(scalar);
    };
    let key = decode_base(at, object.get("key"))?;
    let value = object.get("value").map(|value| decode_base(at, Some(value))).transpose()?;
    let number = |name: &str, json: &Json| {
        let found = json.as_u64().and_then(|number| usize::try_from(number).ok());
        found.ok_or_else(|| SchemaError::form(&format!("{at}.{name}"), "a number", Some(json)))
    };
    let min = object.get("min").map_or(Ok(1), |min| number("min", min))?;
    let max = match object.get("max") {
        None => Some(1),
        Some(Json::String(text)) if text == "unlimited" => None,
        Some(max) => Some(number("max", max)?),
    };
    Ok(ColumnType { key, value, min, max })
}

/// Decodes a `<base-type>`.
fn decode_base(at: &str, json: Option<&Json>) -> Result<AtomType, SchemaError> {
    let name = json.and_then(|json| json.get("type").unwrap_or(json).as_str());
    name.and_then(AtomType::named).ok_or_else(|| SchemaError::form(at, "an atomic type", json))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SCALAR: ColumnType = ColumnType { key: AtomType::String, value: None, min: 1, max: Some(1) };

    fn schema() -> Json {
        json!({"name": "D", "version": "1.2.3", "tables": {"T": {"columns": {
            "name": {"type": "string", "mutable": false},
            "tag": {"type": {"key": {"type": "integer", "maxInteger": 9}, "min": 0, "max": 1}},
            "tags": {"type": {"key": "integer", "min": 0, "max": "unlimited"}},
            "ids": {"type": {"key": "string", "value": {"type": "uuid", "refTable": "T"}, "min": 0, "max": 4}},
        }}}})
    }

    #[test]
    fn types_are_decoded() {
        let schema = Schema::decode(&schema()).unwrap();
        assert_eq!((schema.name.as_str(), schema.version.as_str()), ("D", "1.2.3"));
        let integer = ColumnType { key: AtomType::Integer, ..SCALAR };
        assert_eq!(schema.column("T", "name"), Some(&SCALAR));
        assert_eq!(schema.column("T", "tag"), Some(&ColumnType { min: 0, ..integer }));
        assert_eq!(schema.column("T", "tags"), Some(&ColumnType { min: 0, max: None, ..integer }));
        let ids = ColumnType { value: Some(AtomType::Uuid), min: 0, max: Some(4), ..SCALAR };
        assert_eq!(schema.column("T", "ids"), Some(&ids));
        assert_eq!(ids.to_string(), "0 to 4 of string to uuid");
    }

    #[test]
    fn a_selection_has_what_both_know() {
        const COLUMNS: &[ColumnInfo] = &[
            ColumnInfo { name: "name", column_type: SCALAR },
            ColumnInfo { name: "newer", column_type: SCALAR },
        ];
        let tables = [TableInfo { name: "T", columns: COLUMNS }, TableInfo { name: "U", columns: COLUMNS }];
        let selected = Schema::decode(&schema()).unwrap().select(&tables).unwrap();
        assert_eq!(selected.tables.keys().collect::<Vec<_>>(), ["T"]);
        assert!(selected.has("T", "name") && !selected.has("T", "newer") && !selected.has("T", "tag"));
    }

    #[test]
    fn another_type_is_refused_by_name() {
        const TAG: &[ColumnInfo] = &[ColumnInfo { name: "tag", column_type: SCALAR }];
        const TAGS: &[ColumnInfo] =
            &[ColumnInfo { name: "tags", column_type: ColumnType { key: AtomType::Integer, ..SCALAR } }];
        let refused = |columns| {
            let schema = Schema::decode(&schema()).unwrap();
            schema.select(&[TableInfo { name: "T", columns }]).unwrap_err().to_string()
        };
        assert_eq!(
            refused(TAG),
            "schema 1.2.3: column `T.tag` holds 0 to 1 of integer, expected 1 of string"
        );
        assert_eq!(
            refused(TAGS),
            "schema 1.2.3: column `T.tags` holds 0 or more of integer, expected 1 of integer"
        );
    }

    #[test]
    fn other_forms_are_refused_with_their_place() {
        let refused = |change: fn(&mut Json)| {
            let mut json = schema();
            change(&mut json);
            Schema::decode(&json).unwrap_err().to_string()
        };
        assert_eq!(refused(|json| *json = json!(null)), "schema: expected a string at `name`, found nothing");
        assert_eq!(
            refused(|json| json["tables"]["T"]["columns"]["name"]["type"] = json!("text")),
            "schema: expected an atomic type at `T.name`, found \"text\""
        );
        assert_eq!(
            refused(|json| json["tables"]["T"]["columns"]["tag"]["type"]["max"] = json!(-1)),
            "schema: expected a number at `T.tag.max`, found -1"
        );
    }
}

//! Atoms, sets and maps: the values of columns (RFC 7047 §5.1).
//!
//! Invariants:
//! - A set with one element has the same representation as that element, in memory and, as the RFC allows, in JSON.
//! - Elements of sets and keys of maps are in order and unique.
//! - Every value encodes to JSON that decodes, with its type, to the same value.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Value as Json, json};

use crate::schema::{AtomType, ColumnType};
use crate::uuid::Uuid;

/// A finite real number. Its order is total.
#[derive(Debug, Clone, Copy)]
pub struct Real(f64);

impl Real {
    /// Creates a real number; `None` if it is infinite or not a number.
    pub fn new(number: f64) -> Option<Self> {
        number.is_finite().then_some(Real(number))
    }

    /// Returns the number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Real {}

impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Real {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A scalar (`<atom>`, RFC 7047 §5.1).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Atom {
    /// An integer of 64 bits.
    Integer(i64),
    /// A real number.
    Real(Real),
    /// A truth value.
    Boolean(bool),
    /// A string.
    String(String),
    /// The UUID of a row.
    Uuid(Uuid),
    /// The name of a row that the same transaction inserts (`<named-uuid>`).
    NamedUuid(String),
}

/// A column's value (`<value>`, RFC 7047 §5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A set; a scalar is a set with one element.
    Set(BTreeSet<Atom>),
    /// A map.
    Map(BTreeMap<Atom, Atom>),
}

/// A row: columns by name (`<row>`, RFC 7047 §5.1).
pub type Row = BTreeMap<String, Value>;

/// JSON that is not a value of the expected type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// An atom of another type.
    #[error("expected {expected}, found {found}")]
    Atom {
        /// The expected type.
        expected: AtomType,
        /// The JSON found, shortened.
        found: String,
    },
    /// Neither an atom nor a set.
    #[error("expected a set of {expected}, found {found}")]
    Set {
        /// The type of elements.
        expected: AtomType,
        /// The JSON found, shortened.
        found: String,
    },
    /// Not a map.
    #[error("expected a map from {key} to {value}, found {found}")]
    Map {
        /// The type of keys.
        key: AtomType,
        /// The type of values.
        value: AtomType,
        /// The JSON found, shortened.
        found: String,
    },
    /// An element or key that occurs twice.
    #[error("duplicate element {0}")]
    Duplicate(String),
    /// A number of elements that the type excludes.
    #[error("{count} elements, expected {expected}")]
    Count {
        /// The number of elements.
        count: usize,
        /// The possible numbers.
        expected: String,
    },
}

/// Returns the beginning of some JSON, for messages.
pub(crate) fn shortened(json: &Json) -> String {
    const LIMIT: usize = 60;
    let text = json.to_string();
    match text.char_indices().nth(LIMIT) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

/// Returns the second element of a pair that is tagged by its first, such as `["set", […]]`.
fn tagged<'a>(json: &'a Json, tag: &str) -> Option<&'a Json> {
    match json.as_array()?.as_slice() {
        [Json::String(found), content] if found == tag => Some(content),
        _ => None,
    }
}

impl Atom {
    /// Returns its type.
    pub fn atom_type(&self) -> AtomType {
        match self {
            Atom::Integer(_) => AtomType::Integer,
            Atom::Real(_) => AtomType::Real,
            Atom::Boolean(_) => AtomType::Boolean,
            Atom::String(_) => AtomType::String,
            Atom::Uuid(_) | Atom::NamedUuid(_) => AtomType::Uuid,
        }
    }

    /// Returns the value that a column has unless one is given (RFC 7047 §5.2.1).
    pub fn default_of(atom_type: AtomType) -> Self {
        match atom_type {
            AtomType::Integer => Atom::Integer(0),
            AtomType::Real => Atom::Real(Real(0.0)),
            AtomType::Boolean => Atom::Boolean(false),
            AtomType::String => Atom::String(String::new()),
            AtomType::Uuid => Atom::Uuid(Uuid::default()),
        }
    }

    /// Decodes an atom of a given type.
    pub fn decode(json: &Json, atom_type: AtomType) -> Result<Self, ValueError> {
        let atom = match atom_type {
            AtomType::Integer => json.as_i64().map(Atom::Integer),
            AtomType::Real => json.as_f64().and_then(Real::new).map(Atom::Real),
            AtomType::Boolean => json.as_bool().map(Atom::Boolean),
            AtomType::String => json.as_str().map(|text| Atom::String(text.into())),
            AtomType::Uuid => tagged(json, "uuid")
                .and_then(|uuid| uuid.as_str()?.parse().ok())
                .map(Atom::Uuid)
                .or_else(|| tagged(json, "named-uuid")?.as_str().map(|name| Atom::NamedUuid(name.into()))),
        };
        atom.ok_or_else(|| ValueError::Atom { expected: atom_type, found: shortened(json) })
    }

    /// Encodes the atom.
    pub fn encode(&self) -> Json {
        match self {
            Atom::Integer(number) => json!(number),
            Atom::Real(number) => json!(number.get()),
            Atom::Boolean(truth) => json!(truth),
            Atom::String(text) => json!(text),
            Atom::Uuid(uuid) => json!(["uuid", uuid.to_string()]),
            Atom::NamedUuid(name) => json!(["named-uuid", name]),
        }
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Integer(number) => write!(out, "{number}"),
            Atom::Real(number) => write!(out, "{}", number.get()),
            Atom::Boolean(truth) => write!(out, "{truth}"),
            Atom::String(text) => write!(out, "\"{text}\""),
            Atom::Uuid(uuid) => write!(out, "{uuid}"),
            Atom::NamedUuid(name) => write!(out, "@{name}"),
        }
    }
}

impl Value {
    /// Returns the value that a column has unless one is given (RFC 7047 §5.2.1).
    pub fn default_of(column: &ColumnType) -> Self {
        let entries = usize::from(column.min > 0);
        match column.value {
            None => Value::Set(std::iter::repeat_n(Atom::default_of(column.key), entries).collect()),
            Some(value) => {
                let entry = (Atom::default_of(column.key), Atom::default_of(value));
                Value::Map(std::iter::repeat_n(entry, entries).collect())
            }
        }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match self {
            Value::Set(set) => set.len(),
            Value::Map(map) => map.len(),
        }
    }

    /// Returns whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Decodes a column's value, and checks its number of elements.
    pub fn decode(json: &Json, column: &ColumnType) -> Result<Self, ValueError> {
        let value = Self::decode_any_count(json, column)?;
        let count = value.len();
        if count < column.min || column.max.is_some_and(|max| count > max) {
            return Err(ValueError::Count { count, expected: column.count() });
        }
        Ok(value)
    }

    /// Decodes a value whose number of elements is not that of the column, such as a difference.
    pub(crate) fn decode_any_count(json: &Json, column: &ColumnType) -> Result<Self, ValueError> {
        match column.value {
            None => Self::decode_set(json, column.key).map(Value::Set),
            Some(value) => Self::decode_map(json, column.key, value).map(Value::Map),
        }
    }

    fn decode_set(json: &Json, element: AtomType) -> Result<BTreeSet<Atom>, ValueError> {
        let Some(elements) = tagged(json, "set") else {
            return Ok([Atom::decode(json, element)?].into());
        };
        let elements = elements
            .as_array()
            .ok_or_else(|| ValueError::Set { expected: element, found: shortened(json) })?;
        let mut set = BTreeSet::new();
        for json in elements {
            if !set.insert(Atom::decode(json, element)?) {
                return Err(ValueError::Duplicate(shortened(json)));
            }
        }
        Ok(set)
    }

    fn decode_map(json: &Json, key: AtomType, value: AtomType) -> Result<BTreeMap<Atom, Atom>, ValueError> {
        let error = || ValueError::Map { key, value, found: shortened(json) };
        let pairs = tagged(json, "map").and_then(Json::as_array).ok_or_else(error)?;
        let mut map = BTreeMap::new();
        for pair in pairs {
            let Some([first, second]) = pair.as_array().map(Vec::as_slice) else { return Err(error()) };
            if map.insert(Atom::decode(first, key)?, Atom::decode(second, value)?).is_some() {
                return Err(ValueError::Duplicate(shortened(first)));
            }
        }
        Ok(map)
    }

    /// Encodes the value.
    pub fn encode(&self) -> Json {
        match self {
            Value::Set(set) => match (set.len(), set.first()) {
                (1, Some(only)) => only.encode(),
                _ => json!(["set", set.iter().map(Atom::encode).collect::<Vec<_>>()]),
            },
            Value::Map(map) => {
                let pairs = map.iter().map(|(key, value)| json!([key.encode(), value.encode()]));
                json!(["map", pairs.collect::<Vec<_>>()])
            }
        }
    }

    /// Applies the difference that `update2` reports for a modified column: a column with at most one element is
    /// replaced; elements of a set appear or disappear; keys of a map appear, disappear or change their value.
    pub fn apply_difference(&mut self, difference: Value, column: &ColumnType) {
        match (self, difference) {
            (this, difference) if column.max == Some(1) => *this = difference,
            (Value::Set(set), Value::Set(difference)) => {
                for atom in difference {
                    if !set.remove(&atom) {
                        set.insert(atom);
                    }
                }
            }
            (Value::Map(map), Value::Map(difference)) => {
                for (key, value) in difference {
                    if map.get(&key) == Some(&value) {
                        map.remove(&key);
                    } else {
                        map.insert(key, value);
                    }
                }
            }
            // The type of the column gives both the same form.
            (this, difference) => *this = difference,
        }
    }
}

/// Encodes a row.
pub fn encode_row(row: &Row) -> Json {
    Json::Object(row.iter().map(|(column, value)| (column.clone(), value.encode())).collect())
}

#[cfg(test)]
pub(crate) mod strategies {
    use proptest::collection::{btree_map, btree_set};
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn atom_type() -> impl Strategy<Value = AtomType> {
        prop::sample::select(AtomType::ALL.to_vec())
    }

    pub(crate) fn atom(atom_type: AtomType) -> BoxedStrategy<Atom> {
        match atom_type {
            AtomType::Integer => any::<i64>().prop_map(Atom::Integer).boxed(),
            AtomType::Real => any::<f64>().prop_filter_map("finite", Real::new).prop_map(Atom::Real).boxed(),
            AtomType::Boolean => any::<bool>().prop_map(Atom::Boolean).boxed(),
            AtomType::String => any::<String>().prop_map(Atom::String).boxed(),
            AtomType::Uuid => prop_oneof![
                any::<[u8; 16]>().prop_map(|bytes| Atom::Uuid(Uuid(bytes))),
                "[a-z_][a-z0-9_]{0,8}".prop_map(Atom::NamedUuid),
            ]
            .boxed(),
        }
    }

    /// A type with a value of it.
    pub(crate) fn typed_value() -> impl Strategy<Value = (ColumnType, Value)> {
        let set = atom_type().prop_flat_map(|key| {
            let column = ColumnType { key, value: None, min: 0, max: None };
            btree_set(atom(key), 0..4).prop_map(move |set| (column, Value::Set(set)))
        });
        let map = (atom_type(), atom_type()).prop_flat_map(|(key, value)| {
            let column = ColumnType { key, value: Some(value), min: 0, max: None };
            btree_map(atom(key), atom(value), 0..4).prop_map(move |map| (column, Value::Map(map)))
        });
        prop_oneof![set, map]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(key: AtomType, max: Option<usize>) -> ColumnType {
        ColumnType { key, value: None, min: 0, max }
    }

    proptest! {
        #[test]
        fn values_round_trip((column, value) in strategies::typed_value()) {
            let text = value.encode().to_string();
            let json: Json = serde_json::from_str(&text).unwrap();
            let back = Value::decode(&json, &column).unwrap();
            prop_assert_eq!(&back, &value);
            prop_assert_eq!(back.encode().to_string(), text);
        }
    }

    #[test]
    fn json_round_trips() {
        let names = ColumnType { key: AtomType::String, value: Some(AtomType::Integer), min: 0, max: None };
        for (column, text) in [
            (set(AtomType::Integer, Some(1)), "-5"),
            (set(AtomType::Integer, Some(1)), r#"["set",[]]"#),
            (set(AtomType::Real, None), r#"["set",[0.5,1.0]]"#),
            (set(AtomType::Uuid, None), r#"["uuid","550e8400-e29b-41d4-a716-446655440000"]"#),
            (set(AtomType::Uuid, None), r#"["named-uuid","row1"]"#),
            (names, r#"["map",[["a",1],["b",-2]]]"#),
        ] {
            let json: Json = serde_json::from_str(text).unwrap();
            assert_eq!(Value::decode(&json, &column).unwrap().encode().to_string(), text);
        }
        let one = Value::decode(&json!(["set", [7]]), &set(AtomType::Integer, None)).unwrap();
        assert_eq!(one.encode(), json!(7));
        assert_eq!(Atom::decode(&json!(3), AtomType::Real).unwrap(), Atom::Real(Real(3.0)));
    }

    #[test]
    fn other_json_is_refused_with_what_was_expected() {
        let refused = |json: Json, column: &ColumnType| Value::decode(&json, column).unwrap_err().to_string();
        let integers = set(AtomType::Integer, None);
        assert_eq!(refused(json!("x"), &integers), "expected an integer, found \"x\"");
        assert_eq!(refused(json!(1.5), &integers), "expected an integer, found 1.5");
        assert_eq!(refused(json!(u64::MAX), &integers), format!("expected an integer, found {}", u64::MAX));
        assert_eq!(refused(json!(["set", 1]), &integers), "expected a set of an integer, found [\"set\",1]");
        assert_eq!(refused(json!(["set", [1, 1]]), &integers), "duplicate element 1");
        let one = ColumnType { min: 1, ..set(AtomType::String, Some(1)) };
        assert_eq!(refused(json!(["set", []]), &one), "0 elements, expected 1");
        assert_eq!(refused(json!(["set", ["a", "b"]]), &one), "2 elements, expected 1");
        let map = ColumnType { value: Some(AtomType::Uuid), ..integers };
        assert_eq!(refused(json!(1), &map), "expected a map from an integer to a UUID, found 1");
        assert_eq!(refused(json!(["map", [[1, "u"]]]), &map), "expected a UUID, found \"u\"");
        assert_eq!(refused(json!("y".repeat(99)), &integers).chars().count(), 88);
    }

    #[test]
    fn differences_are_applied_as_the_columns_type_says() {
        let numbers = |numbers: &[i64]| Value::Set(numbers.iter().copied().map(Atom::Integer).collect());
        let mut value = numbers(&[1, 2]);
        value.apply_difference(numbers(&[2, 3]), &set(AtomType::Integer, None));
        assert_eq!(value, numbers(&[1, 3]));
        value.apply_difference(numbers(&[5]), &set(AtomType::Integer, Some(1)));
        assert_eq!(value, numbers(&[5]));
        let map = |pairs: &[(i64, i64)]| {
            let pairs = pairs.iter().map(|(key, value)| (Atom::Integer(*key), Atom::Integer(*value)));
            Value::Map(pairs.collect())
        };
        let mut value = map(&[(1, 1), (2, 2), (3, 3)]);
        let column = ColumnType { value: Some(AtomType::Integer), ..set(AtomType::Integer, None) };
        value.apply_difference(map(&[(1, 1), (2, 9), (4, 4)]), &column);
        assert_eq!(value, map(&[(2, 9), (3, 3), (4, 4)]));
    }
}

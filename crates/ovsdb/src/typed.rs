//! Typed rows: Rust types for tables whose columns are known when a program is built.
//!
//! [`crate::vswitch`] has those of Open vSwitch's database. A column that the server lacks reads as its default, and
//! [`Column::set`] is the caller's to omit for it ([`crate::Schema::has`]).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use crate::replica::Replica;
use crate::schema::TableInfo;
use crate::uuid::Uuid;
use crate::value::{Atom, Row, Value};

/// Rust types of atoms.
pub trait Scalar: Sized + Ord {
    /// Reads an atom; `None` if it has another type.
    fn from_atom(atom: &Atom) -> Option<Self>;

    /// Returns the atom.
    fn into_atom(self) -> Atom;
}

impl Scalar for i64 {
    fn from_atom(atom: &Atom) -> Option<Self> {
        if let Atom::Integer(number) = atom { Some(*number) } else { None }
    }

    fn into_atom(self) -> Atom {
        Atom::Integer(self)
    }
}

impl Scalar for bool {
    fn from_atom(atom: &Atom) -> Option<Self> {
        if let Atom::Boolean(truth) = atom { Some(*truth) } else { None }
    }

    fn into_atom(self) -> Atom {
        Atom::Boolean(self)
    }
}

impl Scalar for String {
    fn from_atom(atom: &Atom) -> Option<Self> {
        if let Atom::String(text) = atom { Some(text.clone()) } else { None }
    }

    fn into_atom(self) -> Atom {
        Atom::String(self)
    }
}

impl Scalar for Uuid {
    fn from_atom(atom: &Atom) -> Option<Self> {
        if let Atom::Uuid(uuid) = atom { Some(*uuid) } else { None }
    }

    fn into_atom(self) -> Atom {
        Atom::Uuid(self)
    }
}

/// Rust types of columns.
pub trait Datum: Sized + Default {
    /// Reads a value; `None` if it has another type or number of elements.
    fn from_value(value: &Value) -> Option<Self>;

    /// Returns the value.
    fn into_value(self) -> Value;
}

macro_rules! scalar_columns {
    ($($scalar:ty),*) => {$(
        impl Datum for $scalar {
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    Value::Set(set) if set.len() == 1 => set.first().and_then(Scalar::from_atom),
                    _ => None,
                }
            }

            fn into_value(self) -> Value {
                self.into_atom().into()
            }
        }

        impl From<$scalar> for Value {
            fn from(scalar: $scalar) -> Self {
                scalar.into_atom().into()
            }
        }
    )*};
}

scalar_columns!(i64, bool, String, Uuid);

impl From<Atom> for Value {
    fn from(atom: Atom) -> Self {
        Value::Set([atom].into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl<T: Scalar> Datum for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Set(set) if set.len() <= 1 => match set.first() {
                None => Some(None),
                Some(atom) => T::from_atom(atom).map(Some),
            },
            _ => None,
        }
    }

    fn into_value(self) -> Value {
        Value::Set(self.map(Scalar::into_atom).into_iter().collect())
    }
}

impl<T: Scalar> Datum for BTreeSet<T> {
    fn from_value(value: &Value) -> Option<Self> {
        let Value::Set(set) = value else { return None };
        set.iter().map(T::from_atom).collect()
    }

    fn into_value(self) -> Value {
        Value::Set(self.into_iter().map(Scalar::into_atom).collect())
    }
}

impl<K: Scalar, V: Scalar> Datum for BTreeMap<K, V> {
    fn from_value(value: &Value) -> Option<Self> {
        let Value::Map(map) = value else { return None };
        map.iter().map(|(key, value)| Some((K::from_atom(key)?, V::from_atom(value)?))).collect()
    }

    fn into_value(self) -> Value {
        Value::Map(self.into_iter().map(|(key, value)| (key.into_atom(), value.into_atom())).collect())
    }
}

/// A column with its Rust type.
pub struct Column<T> {
    /// The table's name.
    pub table: &'static str,
    /// The column's name.
    pub name: &'static str,
    datum: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Column<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.table, self.name)
    }
}

/// A value that does not fit a column's Rust type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column `{table}.{column}` holds {found}")]
pub struct ReadError {
    /// The table.
    pub table: &'static str,
    /// The column.
    pub column: &'static str,
    /// The value, as JSON.
    pub found: String,
}

impl<T: Datum> Column<T> {
    /// Names a column.
    pub const fn new(table: &'static str, name: &'static str) -> Self {
        Self { table, name, datum: PhantomData }
    }

    /// Reads the column of a row; its default if the row does not have the column.
    pub fn get(&self, row: &Row) -> Result<T, ReadError> {
        let Some(value) = row.get(self.name) else { return Ok(T::default()) };
        T::from_value(value).ok_or_else(|| ReadError {
            table: self.table,
            column: self.name,
            found: crate::value::shortened(&value.encode()),
        })
    }

    /// Sets the column of a row.
    pub fn set(&self, row: &mut Row, value: T) {
        row.insert(self.name.into(), value.into_value());
    }
}

/// A table whose rows have a Rust type.
pub trait Table: Sized {
    /// The table and its columns.
    const INFO: TableInfo;

    /// Reads a row; a column that it lacks has its default.
    fn read(uuid: Uuid, row: &Row) -> Result<Self, ReadError>;

    /// Reads a row. Columns that hold other values than expected have their defaults; returns the errors.
    fn read_partly(uuid: Uuid, row: &Row) -> (Self, Vec<ReadError>) {
        let (mut rest, mut errors) = (Cow::Borrowed(row), Vec::new());
        loop {
            match Self::read(uuid, &rest) {
                Ok(read) => return (read, errors),
                Err(error) => {
                    rest.to_mut().remove(error.column);
                    errors.push(error);
                }
            }
        }
    }

    /// Reads all rows of a replica.
    fn all(replica: &Replica) -> Result<Vec<Self>, ReadError> {
        replica.rows(Self::INFO.name).map(|(uuid, row)| Self::read(uuid, row)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: Column<Option<i64>> = Column::new("Port", "tag");

    #[test]
    fn columns_are_read_and_written() {
        let mut row = Row::new();
        assert_eq!(TAG.get(&row), Ok(None), "a column that the server lacks");
        TAG.set(&mut row, Some(5));
        assert_eq!(TAG.get(&row), Ok(Some(5)));
        TAG.set(&mut row, None);
        assert_eq!(row["tag"], Value::Set(BTreeSet::new()));
        let map: BTreeMap<String, Uuid> = [("a".into(), Uuid([1; 16]))].into();
        assert_eq!(BTreeMap::from_value(&map.clone().into_value()), Some(map));
    }

    #[test]
    fn a_row_is_read_without_the_columns_that_cannot_be() {
        let entries = [("name", Value::from("p")), ("tag", "x".into()), ("trunks", "y".into())];
        let row: Row = entries.map(|(column, value)| (column.to_owned(), value)).into();
        let uuid = Uuid([1; 16]);
        let (port, errors) = crate::vswitch::Port::read_partly(uuid, &row);
        assert_eq!((port.uuid, port.name.as_str(), port.tag), (uuid, "p", None));
        let errors: Vec<_> = errors.iter().map(|error| error.column).collect();
        assert_eq!(errors, ["tag", "trunks"]);
    }

    #[test]
    fn other_values_are_refused_by_name() {
        let row: Row = [("tag".to_owned(), Value::from("x"))].into();
        assert_eq!(TAG.get(&row).unwrap_err().to_string(), "column `Port.tag` holds \"x\"");
        let two = [1, 2].map(Atom::Integer).into();
        let row: Row = [("tag".to_owned(), Value::Set(two))].into();
        assert_eq!(TAG.get(&row).unwrap_err().to_string(), "column `Port.tag` holds [\"set\",[1,2]]");
    }
}

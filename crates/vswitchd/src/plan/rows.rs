//! Rows of the database by UUID. A column that cannot be read has its default, and the row's fault says so: the object
//! that the row describes fails, and no other.

use std::collections::BTreeMap;

use ovsdb::typed::Table;
use ovsdb::{Replica, Uuid};

/// Reasons why rows could not be read, by row.
pub(super) type Faults = BTreeMap<Uuid, String>;

/// Reads the rows of a table.
pub(super) fn read<T: Table>(replica: &Replica, faults: &mut Faults) -> BTreeMap<Uuid, T> {
    let rows = replica.rows(T::INFO.name).map(|(uuid, row)| {
        let (row, errors) = T::read_partly(uuid, row);
        if let Some(error) = errors.first() {
            faults.insert(uuid, error.to_string());
        }
        (uuid, row)
    });
    rows.collect()
}

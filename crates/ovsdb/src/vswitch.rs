//! Tables of the database `Open_vSwitch`, as far as they are used; made from `schema/open_vswitch.toml`.

use std::collections::{BTreeMap, BTreeSet};

use crate::replica::Replica;
use crate::schema::{AtomType, ColumnInfo, ColumnType, TableInfo};
use crate::typed::{Column, ReadError, Table};
use crate::uuid::Uuid;
use crate::value::Row;

/// The database's name.
pub const DATABASE: &str = "Open_vSwitch";

include!(concat!(env!("OUT_DIR"), "/open_vswitch.rs"));

impl OpenVSwitch {
    /// Returns the only row of the table, if the database is initialised.
    pub fn only(replica: &Replica) -> Result<Option<Self>, ReadError> {
        let mut rows = replica.rows(Self::INFO.name);
        rows.next().map(|(uuid, row)| Self::read(uuid, row)).transpose()
    }
}

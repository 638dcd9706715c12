//! Forms of tables: the structure in which a table's entries are looked up, chosen by the entries.
//!
//! | form       | entries                                                             | a change                       |
//! |------------|---------------------------------------------------------------------|--------------------------------|
//! | scan       | up to [`FEW`]; or conditions that no other form has                    | a new list                     |
//! | exact      | all under one mask, no two equal                                      | data                           |
//! | prefix     | of a table whose only key is a prefix of up to 128 bits                | data                           |
//! | classifier | all others of up to [`WIDEST`] words                                   | data                           |
//!
//! A lookup gives a *handle*, an index of the table's [`slab::Slab`] of records. A change of form builds the new
//! structure beside the old one; packets meet it with their next view, and the old one until then.
//!
//! - `scan.rs`: the list; `structure.rs`: the structures of crate `tables` under one interface;
//! - `slab.rs`: records by handle; `order.rs`: precedence of entries as numbers;
//! - `writer.rs`: the control side of a table.

mod order;
mod scan;
mod slab;
mod structure;
mod writer;

use std::fmt;
use std::sync::Arc;

use tables::Lookup;

pub(crate) use writer::Writer;

use crate::view::Record;
use slab::Chunks;

/// Entries up to which a table is scanned.
pub(crate) const FEW: usize = 8;
/// Words of the widest key that structures have.
pub(crate) const WIDEST: usize = 8;

/// The form of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// Entries one after the other.
    Scan,
    /// A hash table under one mask.
    Exact,
    /// A trie of prefixes.
    Prefix,
    /// A decision tree over values and masks.
    Classifier,
}

/// Reads a table in any form.
pub(crate) struct Reader {
    pub(crate) lookup: Arc<dyn Lookup>,
    pub(crate) records: Arc<Chunks>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl Reader {
    pub(crate) fn find(&self, key: &[u64]) -> Option<&Record> {
        match self.lookup.find(key) {
            tables::MISS => None,
            handle => self.records.get(handle),
        }
    }
}

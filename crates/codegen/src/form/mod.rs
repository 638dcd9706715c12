//! Forms of tables: the structure in which a table's entries are looked up, chosen by the entries.
//!
//! | form       | entries                                                             | a change                       |
//! |------------|---------------------------------------------------------------------|--------------------------------|
//! | scan       | up to [`FEW`]; or conditions that no other form has                    | a new list                     |
//! | exact      | under one mask, no two equal, but for a few                           | data                           |
//! | prefix     | prefixes of one key of up to 128 bits, the longer before the shorter,  | data                           |
//! |            | with the same conditions on all other keys, but for a few              |                                |
//! | classifier | all others of up to [`WIDEST`] words                                   | data                           |
//!
//! A lookup gives a *handle*, an index of the table's [`slab::Slab`] of records. A change of form builds the new
//! structure beside the old one; packets meet it with their next view, and the old one until then.
//!
//! - `scan.rs`: the list; `structure.rs`: the structures of crate `tables` under one interface;
//! - `mixed.rs`: one of these with a few entries beside it;
//! - `slab.rs`: records by handle; `order.rs`: precedence of entries as numbers;
//! - `writer.rs`: the control side of a table; `rebuild.rs`: its structure built anew while it changes; `spare.rs`: the
//!   structure that packets read before, for the next bundle.

mod mixed;
mod order;
mod rebuild;
mod scan;
mod slab;
mod spare;
mod structure;
mod writer;

use std::fmt;
use std::sync::Arc;

use tables::{Held, Lookup};

pub use rebuild::Rebuild;
pub(crate) use writer::Writer;

use crate::keys::Narrow;
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
    /// A hash table under one mask, or an array if what it compares are small numbers.
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
    /// From keys of all of the table's keys to those that are looked up.
    pub(crate) narrow: Arc<Narrow>,
    /// Whether lookups miss the caches, so that it pays to look up a batch at once.
    pub(crate) is_large: bool,
    /// A hash's lookups of a batch are cheaper together even in the caches. Those of a classifier are not.
    pub(crate) form: Form,
}

/// Bytes from which on a structure is large.
const LARGE: usize = 256 << 10;

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl Reader {
    /// Looks up the keys that entries have conditions on, taken out of all of them.
    pub(crate) fn find_wide(&self, held: &mut Held, wide: &[u64]) -> Option<&Record> {
        let words = self.narrow.words;
        if words <= WIDEST {
            let mut key = [0; WIDEST];
            let key = key.get_mut(..words)?;
            self.narrow.apply(wide, key);
            return self.find(held, key);
        }
        let mut key = vec![0; words];
        self.narrow.apply(wide, &mut key);
        self.find(held, &key)
    }

    /// Looks up many keys at once, one behind the other; the records of a large table are in the caches then, with the
    /// entries' statistics if hits are `noted`.
    pub(crate) fn find_all(&self, held: &mut Held, keys: &[u64], handles: &mut [u32], noted: bool) {
        if !self.is_large && self.form != Form::Exact {
            let keys = keys.chunks_exact(self.narrow.words.max(1));
            return keys.zip(handles).for_each(|(key, handle)| *handle = self.lookup.find_held(held, key));
        }
        self.lookup.lookup_flat(keys, handles);
        if !self.is_large {
            return;
        }
        handles.iter().for_each(|handle| self.records.prefetch(*handle));
        let records = handles.iter().filter_map(|handle| self.records.get(*handle));
        records.for_each(|record| record.prefetch_rest(noted));
    }

    /// Looks up the keys that entries have conditions on.
    pub(crate) fn find(&self, held: &mut Held, key: &[u64]) -> Option<&Record> {
        match self.lookup.find_held(held, key) {
            tables::MISS => None,
            handle => self.records.get(handle),
        }
    }
}

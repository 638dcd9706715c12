//! Forms of tables: the structure in which a table's entries are looked up.
//!
//! - `scan.rs`: entries one after the other, by precedence: few of them, or conditions that nothing else has.

mod scan;

pub(crate) use scan::{Scan, ScanEntry};

use crate::view::Record;

/// Reads a table in one of the forms.
#[derive(Debug)]
pub(crate) enum Reader {
    Scan(Scan),
}

impl Reader {
    pub(crate) fn find(&self, key: &[u64]) -> Option<&Record> {
        match self {
            Reader::Scan(scan) => scan.find(key),
        }
    }
}

//! Versions that are held while a batch is looked up key by key.
//!
//! Loading a version and giving it back costs as much as looking up a key in the caches. So code that looks up one key
//! after the other keeps the version of each table from the first key on.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::publish::Shared;

/// The version of a table that [`Lookup::find_held`](crate::Lookup::find_held) looks up in: nothing at first, then that of
/// the first key. To be used with one reader, and dropped or [released](Held::release) at the end of the batch: it keeps
/// unlinked memory from being used again.
#[derive(Default)]
pub struct Held(Option<Arc<dyn Any + Send + Sync>>);

impl Held {
    /// Whether a version is held.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.0.is_some()
    }

    /// Lets go of the version.
    pub fn release(&mut self) {
        self.0 = None;
    }

    /// The version of a reader's table; `None` if that of another kind of table is held.
    #[inline]
    pub(crate) fn version<T: Any + Send + Sync>(&mut self, shared: &Shared<T>) -> Option<&T> {
        self.0.get_or_insert_with(|| shared.load_full()).downcast_ref()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.is_held()).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{Classifier, Exact, Lookup, Lpm, MISS, Prefix, Rule};

    /// More keys than a segment has slots.
    const MANY: u64 = 10_000;

    #[test]
    fn a_held_version_is_that_of_the_first_key_until_it_is_released() {
        let mut table = Exact::new([u64::MAX]);
        table.insert(&[0], 7).unwrap();
        let (reader, mut held) = (table.reader(), Held::default());
        assert_eq!((reader.find_held(&mut held, &[0]), held.is_held()), (7, true));
        for key in 1..MANY {
            table.insert(&[key], key as u32).unwrap();
        }
        // It went to a segment that the held version does not have.
        let last = MANY - 1;
        assert_eq!((reader.find(&[last]), reader.find_held(&mut held, &[last])), (last as u32, MISS));
        assert_eq!(reader.find_held(&mut held, &[0]), 7);
        held.release();
        assert_eq!((held.is_held(), reader.find_held(&mut held, &[last])), (false, last as u32));
    }

    #[test]
    fn each_kind_of_table_is_looked_up_in_its_version_or_in_the_current_one() {
        let mut prefixes = Lpm::<1>::new(32);
        prefixes.insert(Prefix::new(10 << 120, 8), 1).unwrap();
        let mut rules = Classifier::<1>::new();
        rules.insert(&Rule { value: [10 << 56], mask: [0xff << 56], priority: 1 }, 2).unwrap();
        let readers: [&dyn Lookup; 2] = [&prefixes.reader(), &rules.reader()];
        for (reader, handle) in readers.into_iter().zip([1, 2]) {
            let mut held = Held::default();
            assert_eq!((reader.find_held(&mut held, &[10 << 56 | 5]), held.is_held()), (handle, true));
            assert_eq!(reader.find_held(&mut held, &[11 << 56]), MISS);
            // The version of another kind of table does not matter.
            for (other, handle) in readers.into_iter().zip([1, 2]) {
                assert_eq!(other.find_held(&mut held, &[10 << 56]), handle);
            }
        }
    }
}

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

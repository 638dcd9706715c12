//! Table structures under the match-action pipeline.
//!
//! | structure | entries | a lookup reads |
//! | --- | --- | --- |
//! | [`Direct`] | small numbers | one word |
//! | [`Exact`] | keys under one mask | two cache lines, three for keys in their second bucket |
//! | [`Lpm`] | prefixes of up to 128 bits | one or two lines for each six bits of the longest match after the first 16 |
//! | [`Classifier`] | values under any masks, with priorities | one line a level of its tree, and the rules of one leaf or a few |
//!
//! A key is a fixed number of 64-bit words; an entry leads to a *handle*, the caller's index of an action record. The
//! structures know neither packets nor protocols.
//!
//! # One writer, many readers
//! The type itself is the writer's, for the control thread; [`Lookup`] readers are shared by the workers. Readers take
//! no lock, execute no locked instruction per key, never wait and never free memory:
//! - They load a *version* once per batch (see `publish.rs`), also where they look up key by key ([`Held`]). All memory is atomic words, replaced in place where one
//!   word says it all, or linked by a single store once complete. So each key meets an entry before or after a change,
//!   never a mix of both.
//! - Unlinked memory is reused after the last batch that may read it.
//!
//! # Bundles
//! `fork` returns a second writer with a reader of its own. It shares memory until either side writes to it: then that
//! page or segment is copied. Changes to it are invisible until its owner hands its reader to the workers, together
//! with those of all other tables in the bundle, by replacing one pointer that workers load once per batch. So a bundle
//! costs memory traffic in the control thread, at most one copy of the table, and nothing in lookups.
//!
//! There is no unsafe code but the prefetch hint, and calls of functions that are compiled for an instruction that the
//! processor has.

mod arena;
mod classifier;
mod direct;
mod exact;
mod hash;
mod held;
mod lpm;
mod prefetch;
mod publish;

pub use classifier::{Classifier, ClassifierReader, Rule};
pub use direct::{Direct, DirectReader};
pub use exact::{Exact, ExactReader};
pub use held::Held;
pub use lpm::{Lpm, LpmReader, Prefix};
pub use prefetch::prefetch;

/// Result of a lookup that found no entry. No entry can have this handle.
pub const MISS: u32 = u32::MAX;

/// Most keys that a lookup takes through its stages at once.
pub const BATCH: usize = 64;

/// Reasons for refusing an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// [`MISS`] means that there is no entry.
    #[error("handle {MISS} means \"no entry\"; use a lower one")]
    ReservedHandle,
    /// The table's index is exhausted.
    #[error("the table is full")]
    Full,
    /// The prefix is longer than the table's keys.
    #[error("the prefix has {found} bits, but the table's keys have {width}")]
    PrefixTooLong {
        /// Bits of the prefix.
        found: u8,
        /// Bits of a key.
        width: u8,
    },
}

/// A reader of a table, for code that knows the width of keys only at run time.
pub trait Lookup: Send + Sync {
    /// Returns the number of 64-bit words in a key.
    fn words(&self) -> usize;

    /// Looks up keys that lie one after the other. `out` receives one handle, or [`MISS`], for each whole key; surplus
    /// words and surplus room in `out` are ignored.
    fn lookup_flat(&self, keys: &[u64], out: &mut [u32]);

    /// Looks up one key: cheaper than a batch of one. Returns its handle or [`MISS`]; [`MISS`] too for less than a key.
    fn find(&self, key: &[u64]) -> u32;

    /// The same for one of several keys of a batch, in the version that is held: see [`Held`].
    fn find_held(&self, held: &mut Held, key: &[u64]) -> u32;
}

//! Publication of table versions, and reclamation of what readers may still use.
//!
//! A reader loads the current version once per batch and keeps it until the batch is done. The writer unlinks memory
//! first and publishes a new version afterwards: a reader of the new version cannot find that memory any more, and a
//! reader of an older one keeps that version's reference count above one. So memory is reused once all versions up to
//! the one it was unlinked from have no reader.
//!
//! Invariants: versions are retired in order; only the writer drops a version for the last time, so a reader never
//! frees memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};

/// Version cell shared by the writer and all readers.
pub(crate) struct Shared<T>(Arc<ArcSwap<T>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Shared<T> {
    /// Returns the current version. Wait-free; held for one batch.
    #[inline]
    pub(crate) fn load(&self) -> Guard<Arc<T>> {
        self.0.load()
    }

    /// Returns the current version, to be kept while several keys are looked up one by one.
    pub(crate) fn load_full(&self) -> Arc<T> {
        self.0.load_full()
    }
}

/// The writer's side of a version cell, with the garbage of type `G` that waits for readers.
pub(crate) struct Published<T, G> {
    shared: Shared<T>,
    retired: VecDeque<(Arc<T>, Vec<G>)>,
}

impl<T, G> Published<T, G> {
    pub(crate) fn new(first: T) -> Self {
        Self { shared: Shared(Arc::new(ArcSwap::from_pointee(first))), retired: VecDeque::new() }
    }

    pub(crate) fn shared(&self) -> Shared<T> {
        self.shared.clone()
    }

    /// Replaces the current version. `garbage` was unlinked before and is returned by [`Published::reclaim`] later.
    pub(crate) fn publish(&mut self, next: T, garbage: Vec<G>) {
        let old = self.shared.0.swap(Arc::new(next));
        self.retired.push_back((old, garbage));
    }

    /// Returns the garbage of the oldest version if no reader can hold it any more.
    pub(crate) fn reclaim(&mut self) -> Option<Vec<G>> {
        // `get_mut` acquires the last reader's release.
        Arc::get_mut(&mut self.retired.front_mut()?.0)?;
        self.retired.pop_front().map(|(_, garbage)| garbage)
    }

    /// Returns the garbage that waits for readers.
    pub(crate) fn garbage(&self) -> impl Iterator<Item = &G> {
        self.retired.iter().flat_map(|(_, garbage)| garbage)
    }
}

/// Returns a number that no other line of versions has.
pub(crate) fn new_lineage() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

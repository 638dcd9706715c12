//! An array whose cells come into being, a page at a time, when they are first used.
//!
//! A program may declare tens of thousands of meters of which a switch uses three, and a daemon has a switch for each of a
//! thousand bridges.

use std::sync::OnceLock;

/// Cells of a page.
const PAGE: usize = 256;

/// The array. Pages never move and stay until the end.
#[derive(Debug)]
pub(super) struct Pages<T> {
    len: usize,
    pages: Vec<OnceLock<Box<[T]>>>,
}

impl<T: Default> Pages<T> {
    /// An array of `len` cells.
    pub(super) fn new(len: usize) -> Self {
        Self { len, pages: (0..len.div_ceil(PAGE)).map(|_| OnceLock::new()).collect() }
    }

    /// Whether there is a cell at an index.
    pub(super) fn has(&self, index: u64) -> bool {
        index < self.len as u64
    }

    /// The cell at an index, if it has been used.
    #[inline]
    pub(super) fn used(&self, index: u64) -> Option<&T> {
        let index = usize::try_from(index).ok().filter(|index| *index < self.len)?;
        self.pages.get(index / PAGE)?.get()?.get(index % PAGE)
    }

    /// The cell at an index. Its page comes into being, which allocates: once for all of a page's cells.
    #[inline]
    pub(super) fn cell(&self, index: u64) -> Option<&T> {
        let index = usize::try_from(index).ok().filter(|index| *index < self.len)?;
        let page = self.pages.get(index / PAGE)?;
        page.get_or_init(|| (0..PAGE).map(|_| T::default()).collect()).get(index % PAGE)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[test]
    fn cells_exist_once_used_and_stay() {
        let cells: Pages<AtomicU64> = Pages::new(PAGE + 1);
        assert!(cells.has(PAGE as u64) && !cells.has(PAGE as u64 + 1) && !cells.has(u64::MAX));
        assert!(cells.used(0).is_none());
        cells.cell(3).unwrap().store(7, Relaxed);
        assert_eq!(cells.used(3).map(|cell| cell.load(Relaxed)), Some(7));
        assert_eq!(cells.used(4).map(|cell| cell.load(Relaxed)), Some(0), "of the same page");
        assert!(cells.used(PAGE as u64).is_none(), "of another page");
        assert!(cells.cell(PAGE as u64).is_some());
        assert!(cells.cell(PAGE as u64 + 1).is_none(), "the page is larger than the array");
    }
}

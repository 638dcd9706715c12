//! Bounded arena of a ring for the further segments of the chains that it has taken in advance: all but the first of
//! each chain.
//!
//! Most chains have one segment and leave nothing here. The arena bounds the others, not the ring, whose 32,768 chains
//! may have 65 further segments each: while the next chains might not fit, no more are taken from the ring until
//! packets are delivered. Nothing is allocated while packets pass.
//!
//! Invariants:
//! - Chains are stored and released in the order of their entries, so the arena is a ring too. Each cell names its
//!   entry.
//! - A cell is written while its chain is taken, and not again before the entry is handed over.

use std::ptr::NonNull;

use fabric::Slab;
use vhost_user::Segment;
use vhost_user::virtqueue::MAX_CHAIN;

/// Largest number of further segments of a chain.
const MOST: u32 = MAX_CHAIN as u32 - 1;
/// Largest number of cells in an arena, 256 KiB: the longest chains of four batches, usual ones of ten times as many.
const CELLS: u32 = 1 << 14;

/// A segment of the chain that is entry `seq`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Cell {
    at: NonNull<u8>,
    len: u32,
    seq: u32,
}

// The alignment of a slab.
const _: () = assert!(align_of::<Cell>() <= 16);

/// The arena's memory, which the kernel allocates at first use.
pub(super) struct SegmentArena {
    cells: Slab,
    mask: u32,
}

/// The cells in use: belongs to the holder of the ring's lock.
pub(super) struct InUse {
    /// First cell in use, and the one after the last, modulo 2^32.
    from: u32,
    to: u32,
    /// Number of further chains that fit, whatever their lengths.
    chains: u16,
}

/// Position of a chain's further segments.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    first: u16,
    /// Their number; mostly none.
    pub(super) count: u16,
}

impl SegmentArena {
    /// Makes the arena of a ring of `size` entries.
    pub(super) fn new(size: u32) -> (Self, InUse) {
        let cells = size
            .saturating_mul(MOST + 1)
            .next_power_of_two()
            .clamp(2 * (MOST + 1).next_power_of_two(), CELLS);
        let further = Self { cells: Slab::new(cells as usize * size_of::<Cell>()), mask: cells - 1 };
        let mut in_use = InUse { from: 0, to: 0, chains: 0 };
        further.count(&mut in_use);
        (further, in_use)
    }

    /// Returns the largest number of chains that may be taken, now that all entries before `published` are handed over.
    #[inline]
    pub(super) fn room(&self, in_use: &mut InUse, published: u32) -> u16 {
        if in_use.from != in_use.to {
            self.release(in_use, published);
        }
        in_use.chains
    }

    #[cold]
    fn release(&self, in_use: &mut InUse, published: u32) {
        while in_use.from != in_use.to {
            // SAFETY: the cell is in use, so it was written, and `in_use` is borrowed exclusively.
            let cell = unsafe { self.cell(in_use.from).read() };
            // Modulo 2^32: entries of up to half of all numbers before `published` are handed over.
            if published.wrapping_sub(cell.seq).cast_signed() <= 0 {
                break;
            }
            in_use.from = in_use.from.wrapping_add(1);
        }
        if in_use.from == in_use.to {
            // Starts over in memory that is allocated already.
            (in_use.from, in_use.to) = (0, 0);
        }
        self.count(in_use);
    }

    fn count(&self, in_use: &mut InUse) {
        let free = self.mask + 1 - in_use.to.wrapping_sub(in_use.from);
        in_use.chains = (free / MOST) as u16;
    }

    /// Stores the further segments of the chain that is entry `seq`. `None` if they do not fit, which happens only to
    /// more chains than [`SegmentArena::room`] allowed.
    #[cold]
    pub(super) fn store(&self, in_use: &mut InUse, seq: u32, segments: &[Segment]) -> Option<Place> {
        let count = u16::try_from(segments.len()).ok()?;
        let free = self.mask + 1 - in_use.to.wrapping_sub(in_use.from);
        if u32::from(count) > free {
            return None;
        }
        let first = (in_use.to & self.mask) as u16;
        for segment in segments {
            let cell = Cell { at: segment.at, len: segment.len, seq };
            // SAFETY: the cell is free, so no entry refers to it, and `in_use` is borrowed exclusively.
            unsafe { self.cell(in_use.to).write(cell) };
            in_use.to = in_use.to.wrapping_add(1);
        }
        self.count(in_use);
        Some(Place { first, count })
    }

    /// Returns the further segment `i` of a chain, if it has that many.
    ///
    /// # Safety
    /// [`SegmentArena::store`] of this arena returned the place earlier, and the entry has not been handed over since.
    #[inline]
    pub(super) unsafe fn get(&self, place: Place, i: usize) -> Option<Segment> {
        let i = u16::try_from(i).ok().filter(|i| *i < place.count)?;
        // SAFETY: by the caller's promise it was written and is not written now.
        let cell = unsafe { self.cell(u32::from(place.first) + u32::from(i)).read() };
        Some(Segment { at: cell.at, len: cell.len })
    }

    #[inline]
    fn cell(&self, at: u32) -> *mut Cell {
        // SAFETY: the slab has `mask + 1` cells.
        unsafe { self.cells.at((at & self.mask) as usize * size_of::<Cell>()) }.cast().as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(n: usize, len: u32) -> Vec<Segment> {
        (0..n)
            .map(|i| Segment { at: NonNull::without_provenance(std::num::NonZero::new(i + 1).unwrap()), len })
            .collect()
    }

    #[test]
    fn chains_come_and_go_in_order_and_never_exceed_the_arena() {
        // Close to where numbers of entries wrap.
        let (further, mut in_use) = SegmentArena::new(1 << 15);
        let (mut published, mut seq) = (u32::MAX - 500, u32::MAX - 500);
        let mut kept = std::collections::VecDeque::new();
        for round in 0..2000u32 {
            let room = further.room(&mut in_use, published);
            for _ in 0..room.min(40) {
                // Each third chain has no further segment, the others from 1 to 65.
                let count = if seq.is_multiple_of(3) { 0 } else { 1 + seq as usize % MOST as usize };
                let place = match count {
                    0 => Place::default(),
                    n => further.store(&mut in_use, seq, &segments(n, seq)).unwrap(),
                };
                kept.push_back((seq, count, place));
                seq = seq.wrapping_add(1);
            }
            // At times nothing is handed over, so that the arena fills.
            for _ in 0..if round % 64 < 32 { 20 } else { 60 } {
                let Some((seq, count, place)) = kept.pop_front() else { break };
                assert_eq!(usize::from(place.count), count);
                for (i, segment) in segments(count, seq).into_iter().enumerate() {
                    // SAFETY: it was stored and not handed over.
                    assert_eq!(unsafe { further.get(place, i) }, Some(segment));
                }
                // SAFETY: as above.
                assert_eq!(unsafe { further.get(place, count) }, None);
                published = published.wrapping_add(1);
            }
        }
        assert_ne!(further.room(&mut in_use, published), 0);
    }

    #[test]
    fn a_full_arena_has_room_again_once_entries_were_handed_over() {
        for size in [1, 2, 64, 256, 1 << 15] {
            let (further, mut in_use) = SegmentArena::new(size);
            let (longest, mut seq) = (segments(MOST as usize, 9), 0);
            while further.room(&mut in_use, 0) > 0 {
                assert!(further.store(&mut in_use, seq, &longest).is_some());
                seq += 1;
            }
            assert!(seq > 0 && seq <= CELLS / MOST, "{seq} chains in a ring of {size}");
            assert!(further.store(&mut in_use, seq, &longest).is_none());
            assert_eq!(further.room(&mut in_use, 1), 1);
            assert_eq!(u32::from(further.room(&mut in_use, seq)), (further.mask + 1) / MOST);
        }
    }
}

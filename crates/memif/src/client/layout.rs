//! Layout of rings and buffers in the client's region.
//!
//! All rings come first (S2M, then M2S), then all buffers in the same order: slot `i` of a ring owns buffer `i` of its
//! ring.
//!
//! Invariants:
//! - Rings and buffers start at multiples of 64 and do not overlap.
//! - All offsets fit in the 32 bits that descriptors have for them.

use crate::message::{AddRing, MAX_LOG2_RING_SIZE, RING_S2M};
use crate::ring::size_in_bytes;

const CACHE_LINE: u64 = 64;
/// Buffers start on a new page, away from the rings.
const PAGE: u64 = 4096;

/// Direction in which a ring carries packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Client to server.
    S2m,
    /// Server to client.
    M2s,
}

/// Reasons why no layout exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// No ring in either direction.
    #[error("no queues: at least one in one direction is needed")]
    NoRings,
    /// The ring size is out of range.
    #[error("ring size 2^{0} is not within 2^1 and 2^{MAX_LOG2_RING_SIZE}")]
    RingSize(u8),
    /// The buffer size is 0.
    #[error("buffer size is 0")]
    NoBuffer,
    /// Descriptors have 32 bits for offsets.
    #[error("rings and buffers take {0} bytes, more than the 4 GiB that descriptors can address")]
    TooLarge(u64),
}

/// Numbers and offsets of rings and buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    s2m: u16,
    m2s: u16,
    log2: u8,
    buffer_size: u32,
    ring_stride: u64,
    buffers_at: u64,
    total: u64,
}

impl Layout {
    /// Lays out `s2m` and `m2s` rings of 2^`log2` descriptors with a buffer of at least `buffer_size` bytes each.
    pub fn new(s2m: u16, m2s: u16, log2: u8, buffer_size: u32) -> Result<Layout, LayoutError> {
        let rings = u64::from(s2m) + u64::from(m2s);
        if rings == 0 {
            return Err(LayoutError::NoRings);
        }
        if !(1..=MAX_LOG2_RING_SIZE).contains(&log2) {
            return Err(LayoutError::RingSize(log2));
        }
        if buffer_size == 0 {
            return Err(LayoutError::NoBuffer);
        }
        // At most 2^17 rings of 2^14 buffers of 2^32 bytes: no overflow in 64 bits.
        let rounded = u64::from(buffer_size).next_multiple_of(CACHE_LINE);
        let ring_stride = (size_in_bytes(log2) as u64).next_multiple_of(CACHE_LINE);
        let buffers_at = (rings * ring_stride).next_multiple_of(PAGE);
        let total = buffers_at + (rings << log2) * rounded;
        let Ok(buffer_size) = u32::try_from(rounded) else { return Err(LayoutError::TooLarge(total)) };
        if total > 1 << 32 {
            return Err(LayoutError::TooLarge(total));
        }
        Ok(Layout { s2m, m2s, log2, buffer_size, ring_stride, buffers_at, total })
    }

    /// Returns the size of the region.
    pub fn total_size(&self) -> u64 {
        self.total
    }

    /// Returns the number of rings in a direction.
    pub fn rings(&self, direction: Direction) -> u16 {
        match direction {
            Direction::S2m => self.s2m,
            Direction::M2s => self.m2s,
        }
    }

    /// Returns the number of descriptors in each ring.
    pub fn ring_size(&self) -> u16 {
        1 << self.log2
    }

    /// Returns the size of each buffer: the requested size, rounded up.
    #[inline]
    pub fn buffer_size(&self) -> u32 {
        self.buffer_size
    }

    /// Returns the announcement of a ring.
    pub fn ring(&self, direction: Direction, index: u16) -> AddRing {
        AddRing {
            flags: if direction == Direction::S2m { RING_S2M } else { 0 },
            index,
            region: 0,
            offset: (self.ordinal(direction, index) * self.ring_stride) as u32,
            log2_ring_size: self.log2,
            private_hdr_size: 0,
        }
    }

    /// Returns the offset in the region of the buffer that a ring's slot owns. Slots count from 0 and are masked.
    #[inline]
    pub fn buffer(&self, direction: Direction, ring: u16, slot: u16) -> u32 {
        let slot = u64::from(slot & (self.ring_size() - 1));
        let ordinal = (self.ordinal(direction, ring) << self.log2) + slot;
        (self.buffers_at + ordinal * u64::from(self.buffer_size)) as u32
    }

    /// Returns the ring's number among all rings; wraps into range for an index that does not exist.
    #[inline]
    fn ordinal(&self, direction: Direction, index: u16) -> u64 {
        match direction {
            Direction::S2m => u64::from(index),
            Direction::M2s => u64::from(self.s2m) + u64::from(index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps() {
        let layout = Layout::new(2, 3, 4, 100).unwrap();
        let mut places = Vec::new();
        for (direction, count) in [(Direction::S2m, 2), (Direction::M2s, 3)] {
            for ring in 0..count {
                let at = u64::from(layout.ring(direction, ring).offset);
                places.push((at, at + size_in_bytes(4) as u64));
                for slot in 0..layout.ring_size() {
                    let at = u64::from(layout.buffer(direction, ring, slot));
                    places.push((at, at + u64::from(layout.buffer_size())));
                }
            }
        }
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        assert!(places.iter().all(|(at, _)| at % 64 == 0));
        assert_eq!(places.last().unwrap().1, layout.total_size());
    }

    #[test]
    fn impossible_layouts_are_refused() {
        assert_eq!(Layout::new(0, 0, 10, 2048), Err(LayoutError::NoRings));
        assert_eq!(Layout::new(1, 1, 0, 2048), Err(LayoutError::RingSize(0)));
        assert_eq!(Layout::new(1, 1, 15, 2048), Err(LayoutError::RingSize(15)));
        assert_eq!(Layout::new(1, 1, 10, 0), Err(LayoutError::NoBuffer));
        assert!(matches!(Layout::new(64, 64, 14, 65536), Err(LayoutError::TooLarge(_))));
        assert!(matches!(Layout::new(1, 1, 1, u32::MAX), Err(LayoutError::TooLarge(_))));
    }
}

//! The regions of one connection, and translation of a descriptor's (region, offset, length) to an address.
//!
//! Invariants:
//! - [`Memory::translate`] returns an address only when all of the requested bytes lie within one region.
//! - The set of regions does not change during a connection.

use std::ptr::NonNull;

use clientmem::Region;

/// The memory that a client shares, fixed once it connects.
///
/// Addresses taken from it are valid until it is dropped; see [`Region`] for the resulting duties of the owner. Rings
/// hold it by `Arc`.
#[derive(Debug)]
pub struct Memory {
    regions: Box<[Region]>,
}

impl Memory {
    /// Makes a memory of these regions, in the order of their index.
    pub fn new(regions: Vec<Region>) -> Memory {
        Memory { regions: regions.into_boxed_slice() }
    }

    /// Returns the address of `length` bytes at `offset` of a region, or `None` if they do not lie within it.
    #[inline]
    pub fn translate(&self, region: u16, offset: u32, length: u32) -> Option<NonNull<u8>> {
        self.regions.get(usize::from(region))?.at(u64::from(offset), u64::from(length))
    }

    /// Whether an access hit memory that the client has taken away; the client should then be disconnected.
    #[inline]
    pub fn faulted(&self) -> bool {
        self.regions.iter().any(Region::faulted)
    }

    /// Takes the memory away from all users; see [`Region::void`].
    pub fn void(&self) {
        self.regions.iter().for_each(Region::void);
    }

    /// Waits while another process punches holes into the memory; see [`Region::wait_for_holes`].
    pub fn wait_for_holes(&self) {
        self.regions.iter().for_each(Region::wait_for_holes);
    }

    /// Returns all regions.
    #[inline]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }
}

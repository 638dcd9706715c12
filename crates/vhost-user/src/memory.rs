//! The table of memory regions, and translation of guest addresses to addresses of this process.
//!
//! A region has two addresses: the guest's (*guest physical*), used by descriptors, and the front-end's (*user*), used
//! by ring addresses.
//!
//! Invariants:
//! - A table never changes: adding or removing regions makes a new one, which shares the mappings of the remaining
//!   regions.
//! - Regions overlap neither in guest nor in user addresses, and none wraps around.
//! - An address is returned only when all of the requested bytes lie within one region.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;

use clientmem::{ClientFd, FirstTouch, MapError, Region};

/// Maximum number of regions of a table: the number that QEMU can plug in.
pub const MAX_REGIONS: usize = 509;

/// One region, as announced by a front-end.
#[derive(Debug)]
pub struct RegionSpec {
    /// Its guest address.
    pub guest_address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Its user address: where the front-end has mapped it.
    pub user_address: u64,
    /// Its offset in the file.
    pub mmap_offset: u64,
    /// The file.
    pub fd: ClientFd,
}

/// Reasons for refusing a memory table. Regions are identified by guest address.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// More regions than [`MAX_REGIONS`].
    #[error("memory table has {count} regions (at most {MAX_REGIONS})")]
    TooMany {
        /// The resulting number of regions.
        count: usize,
    },
    /// A region of size 0.
    #[error("memory region at guest address {guest_address:#x} has size 0")]
    Empty {
        /// Its guest address.
        guest_address: u64,
    },
    /// A region that ends beyond the highest address or offset.
    #[error("memory region at guest address {guest_address:#x} of {size} bytes wraps around in its {space}")]
    Wraps {
        /// Its guest address.
        guest_address: u64,
        /// Its size in bytes.
        size: u64,
        /// The kind of address that wraps.
        space: &'static str,
    },
    /// Two regions overlap.
    #[error("memory regions at guest addresses {first:#x} and {second:#x} overlap in their {space}")]
    Overlap {
        /// The guest address of one.
        first: u64,
        /// The guest address of the other.
        second: u64,
        /// The kind of address in which they overlap.
        space: &'static str,
    },
    /// A region to remove is not in the table.
    #[error(
        "no memory region has guest address {guest_address:#x}, user address {user_address:#x} and {size} bytes"
    )]
    Unknown {
        /// The requested guest address.
        guest_address: u64,
        /// The requested user address.
        user_address: u64,
        /// The requested size.
        size: u64,
    },
    /// Mapping the file failed.
    #[error("memory region at guest address {guest_address:#x}: {reason}")]
    Map {
        /// The region's guest address.
        guest_address: u64,
        /// The cause.
        #[source]
        reason: MapError,
    },
}

/// Names of the kinds of addresses in messages.
const GUEST: &str = "guest addresses";
const USER: &str = "user addresses";
const FILE: &str = "file offsets";

/// One region of a table.
#[derive(Debug, Clone)]
struct Entry {
    guest: u64,
    size: u64,
    /// The address in this process; `size` bytes from it are mapped for as long as `mapping` lives.
    host: NonNull<u8>,
    user: u64,
    mapping: Arc<Region>,
}

impl Entry {
    /// Returns the address of `len` bytes at `offset`, and how many of them lie within the region; `None` beyond its
    /// end.
    #[inline]
    fn prefix(&self, offset: u64, len: u64) -> Option<(NonNull<u8>, u64)> {
        let room = self.size.checked_sub(offset)?;
        if room == 0 && len != 0 {
            return None;
        }
        // SAFETY: offset <= size, so the result lies within the mapping or one past the region's end.
        Some((unsafe { self.host.add(offset as usize) }, room.min(len)))
    }
}

/// The memory that a front-end shares.
///
/// Addresses taken from it are valid until the last table that holds their region is dropped; see [`Region`] for the
/// resulting duties of the owner.
#[derive(Debug, Clone, Default)]
pub struct GuestMemory {
    /// Sorted by guest address.
    entries: Box<[Entry]>,
    /// Counter of the regions' allocation on first touch.
    first_touch: Option<FirstTouch>,
}

// SAFETY: only its pointer keeps an Entry from being Send and Sync: the address of a mapping that `mapping` owns and
// that belongs to no thread; it is returned and never accessed here.
unsafe impl Send for GuestMemory {}
// SAFETY: as above; no method mutates.
unsafe impl Sync for GuestMemory {}

impl GuestMemory {
    /// Takes the memory away from all users; see [`Region::void`].
    pub fn void(&self) {
        self.entries.iter().for_each(|entry| entry.mapping.void());
    }

    /// Waits while another process punches holes into the memory; see [`Region::wait_for_holes`].
    pub fn wait_for_holes(&self) {
        self.entries.iter().for_each(|entry| entry.mapping.wait_for_holes());
    }

    /// Makes a table of these regions. An empty table is valid.
    pub fn from_regions(specs: Vec<RegionSpec>) -> Result<GuestMemory, MemoryError> {
        GuestMemory::default().with_regions(specs)
    }

    /// Makes an empty table, for [`with_region`](GuestMemory::with_region) and
    /// [`with_regions`](GuestMemory::with_regions), that counts allocation of the regions on first touch.
    pub fn counted(first_touch: Option<FirstTouch>) -> GuestMemory {
        GuestMemory { entries: Box::default(), first_touch }
    }

    /// Returns the table with one more region.
    pub fn with_region(&self, spec: RegionSpec) -> Result<GuestMemory, MemoryError> {
        self.with_regions(vec![spec])
    }

    /// Returns the table without a region. All three numbers must match its announcement.
    pub fn without_region(
        &self,
        guest_address: u64,
        user_address: u64,
        size: u64,
    ) -> Result<GuestMemory, MemoryError> {
        let found = |e: &Entry| (e.guest, e.user, e.size) == (guest_address, user_address, size);
        let entries: Box<[Entry]> = self.entries.iter().filter(|e| !found(e)).cloned().collect();
        if entries.len() == self.entries.len() {
            return Err(MemoryError::Unknown { guest_address, user_address, size });
        }
        Ok(GuestMemory { entries, first_touch: self.first_touch.clone() })
    }

    /// Returns the table with these regions added.
    pub fn with_regions(&self, specs: Vec<RegionSpec>) -> Result<GuestMemory, MemoryError> {
        let count = self.entries.len() + specs.len();
        if count > MAX_REGIONS {
            return Err(MemoryError::TooMany { count });
        }
        let mut entries = self.entries.to_vec();
        for spec in specs {
            check(&entries, &spec)?;
            entries.push(map(&spec, self.first_touch.as_ref())?);
        }
        entries.sort_by_key(|e| e.guest);
        Ok(GuestMemory { entries: entries.into_boxed_slice(), first_touch: self.first_touch.clone() })
    }

    /// Returns the number of regions.
    pub fn regions(&self) -> usize {
        self.entries.len()
    }

    /// Returns the address of `len` bytes at a guest address, or `None` unless they lie within one region.
    #[inline]
    pub fn guest(&self, address: u64, len: u64) -> Option<NonNull<u8>> {
        self.guest_near(&mut 0, address, len)
    }

    /// Translates as [`guest`](GuestMemory::guest) does, trying first the region at index `hint`, and updates `hint` to
    /// the region found. Any initial value is valid, even one from another table.
    #[inline]
    pub fn guest_near(&self, hint: &mut usize, address: u64, len: u64) -> Option<NonNull<u8>> {
        match self.prefix_near(hint, address, len)? {
            (at, found) if found == len => Some(at),
            _ => None,
        }
    }

    /// Returns the address of a guest address, and how many of `len` bytes lie in the same region; `None` if the first
    /// byte lies in no region.
    #[inline]
    pub fn guest_prefix(&self, address: u64, len: u64) -> Option<(NonNull<u8>, u64)> {
        self.prefix_near(&mut 0, address, len)
    }

    #[inline]
    fn prefix_near(&self, hint: &mut usize, address: u64, len: u64) -> Option<(NonNull<u8>, u64)> {
        if let Some(entry) = self.entries.get(*hint)
            // The difference wraps to a large number if the address lies before the region.
            && address.wrapping_sub(entry.guest) < entry.size
        {
            return entry.prefix(address.wrapping_sub(entry.guest), len);
        }
        self.search(hint, address, len)
    }

    #[inline(never)]
    fn search(&self, hint: &mut usize, address: u64, len: u64) -> Option<(NonNull<u8>, u64)> {
        let index = self.entries.partition_point(|e| e.guest <= address).checked_sub(1)?;
        let entry = self.entries.get(index)?;
        *hint = index;
        entry.prefix(address - entry.guest, len)
    }

    /// Returns the address of `len` bytes at a user address, or `None` unless they lie within one region.
    ///
    /// For ring addresses: the search is linear.
    pub fn user(&self, address: u64, len: u64) -> Option<NonNull<u8>> {
        self.entries.iter().find_map(|e| {
            let (at, found) = e.prefix(address.checked_sub(e.user)?, len)?;
            (found == len).then_some(at)
        })
    }

    /// Returns the guest address of the byte at `at` in this process, for logging writes. The search is linear.
    pub fn guest_address(&self, at: NonNull<u8>) -> Option<u64> {
        self.entries.iter().find_map(|e| {
            let offset = (at.addr().get() as u64).checked_sub(e.host.addr().get() as u64)?;
            (offset < e.size).then(|| e.guest + offset)
        })
    }

    /// Returns the first guest address after all regions.
    pub fn end(&self) -> u64 {
        // No end overflows: checked when the region was added.
        self.entries.last().map_or(0, |e| e.guest + e.size)
    }

    /// Whether an access hit memory that the front-end has taken away; the front-end should then be disconnected.
    #[inline]
    pub fn faulted(&self) -> bool {
        self.entries.iter().any(|e| e.mapping.faulted())
    }
}

/// Checks a region by itself and against those in the table.
fn check(entries: &[Entry], spec: &RegionSpec) -> Result<(), MemoryError> {
    let &RegionSpec { guest_address, size, user_address, mmap_offset, .. } = spec;
    if size == 0 {
        return Err(MemoryError::Empty { guest_address });
    }
    for (start, space) in [(guest_address, GUEST), (user_address, USER), (mmap_offset, FILE)] {
        if start.checked_add(size).is_none() {
            return Err(MemoryError::Wraps { guest_address, size, space });
        }
    }
    for e in entries {
        for (ours, theirs, space) in [(e.guest, guest_address, GUEST), (e.user, user_address, USER)] {
            // No end overflows: checked above, and for those in the table when they were added.
            if ours < theirs + size && theirs < ours + e.size {
                return Err(MemoryError::Overlap { first: e.guest, second: guest_address, space });
            }
        }
    }
    Ok(())
}

fn map(spec: &RegionSpec, first_touch: Option<&FirstTouch>) -> Result<Entry, MemoryError> {
    let &RegionSpec { guest_address, size, user_address, mmap_offset, .. } = spec;
    let wrong = |reason| MemoryError::Map { guest_address, reason };
    let mapping = Region::map_counted(spec.fd.as_fd(), mmap_offset, size, first_touch).map_err(wrong)?;
    Ok(Entry {
        guest: guest_address,
        size,
        host: mapping.base(),
        user: user_address,
        mapping: Arc::new(mapping),
    })
}

//! The table of memory regions, and the way from an address of the guest to one of this process.
//!
//! A region is known by two addresses: where the guest sees it (*guest physical*), which is what descriptors name, and
//! where the front-end has it mapped (*user*), which is what ring addresses name.
//!
//! Invariants:
//! - A table never changes: adding and removing regions makes another, which shares the mappings of those that stay.
//! - Regions overlap neither in guest nor in user addresses, and none wraps around.
//! - An address is handed out only when all of the asked bytes lie within one region.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;

use clientmem::{ClientFd, FirstTouch, MapError, Region};

/// Most regions of a table: what QEMU can plug in.
pub const MAX_REGIONS: usize = 509;

/// One region, as a front-end announces it.
#[derive(Debug)]
pub struct RegionSpec {
    /// Where the guest sees it.
    pub guest_address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Where the front-end has it mapped.
    pub user_address: u64,
    /// Where in the file it starts.
    pub mmap_offset: u64,
    /// The file.
    pub fd: ClientFd,
}

/// Why a memory table is refused. Regions are named by where the guest sees them.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// More regions than [`MAX_REGIONS`].
    #[error("memory table has {count} regions, {MAX_REGIONS} are possible")]
    TooMany {
        /// How many there would be.
        count: usize,
    },
    /// A region of no bytes.
    #[error("memory region at guest address {guest_address:#x} has size 0")]
    Empty {
        /// Where the guest would see it.
        guest_address: u64,
    },
    /// A region that ends beyond the highest address or offset.
    #[error("memory region at guest address {guest_address:#x} of {size} bytes wraps around in its {space}")]
    Wraps {
        /// Where the guest would see it.
        guest_address: u64,
        /// Its size in bytes.
        size: u64,
        /// Which of its addresses does.
        space: &'static str,
    },
    /// Two regions share addresses.
    #[error("memory regions at guest addresses {first:#x} and {second:#x} overlap in their {space}")]
    Overlap {
        /// Where the guest sees one.
        first: u64,
        /// Where the guest would see the other.
        second: u64,
        /// Which of their addresses do.
        space: &'static str,
    },
    /// A region to be removed is not in the table.
    #[error(
        "no memory region has guest address {guest_address:#x}, user address {user_address:#x} and {size} bytes"
    )]
    Unknown {
        /// The guest address that was named.
        guest_address: u64,
        /// The user address that was named.
        user_address: u64,
        /// The size that was named.
        size: u64,
    },
    /// The file cannot be mapped.
    #[error("memory region at guest address {guest_address:#x}: {reason}")]
    Map {
        /// Where the guest would see it.
        guest_address: u64,
        /// Why.
        #[source]
        reason: MapError,
    },
}

/// How the two kinds of addresses are called in messages.
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
    /// The address of `len` bytes at `offset`, and how many there are up to the region's end; `None` beyond it.
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
/// Addresses taken from it are valid until the last table that holds their region is dropped; see [`Region`] for what
/// that asks of the owner.
#[derive(Debug, Clone, Default)]
pub struct GuestMemory {
    /// Sorted by guest address.
    entries: Box<[Entry]>,
    /// What touching the regions first allocates is counted there.
    first_touch: Option<FirstTouch>,
}

// SAFETY: what keeps an Entry from being Send and Sync is its pointer, which is the address of a mapping that `mapping`
// owns and that no thread owns; it is handed out and never accessed here.
unsafe impl Send for GuestMemory {}
// SAFETY: as above; no method changes anything.
unsafe impl Sync for GuestMemory {}

impl GuestMemory {
    /// Takes it away from whoever uses it; see [`Region::void`].
    pub fn void(&self) {
        self.entries.iter().for_each(|entry| entry.mapping.void());
    }

    /// Waits while somebody punches holes into it; see [`Region::wait_for_holes`].
    pub fn wait_for_holes(&self) {
        self.entries.iter().for_each(|entry| entry.mapping.wait_for_holes());
    }

    /// The memory made of these regions. No region at all is a valid table.
    pub fn from_regions(specs: Vec<RegionSpec>) -> Result<GuestMemory, MemoryError> {
        GuestMemory::default().with_regions(specs)
    }

    /// A table without regions, for [`with_region`](GuestMemory::with_region) and
    /// [`with_regions`](GuestMemory::with_regions). What touching them first allocates is counted.
    pub fn counted(first_touch: Option<FirstTouch>) -> GuestMemory {
        GuestMemory { entries: Box::default(), first_touch }
    }

    /// The table with one region more.
    pub fn with_region(&self, spec: RegionSpec) -> Result<GuestMemory, MemoryError> {
        self.with_regions(vec![spec])
    }

    /// The table without a region. All three numbers must be as they were announced.
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

    /// The table with these regions too.
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

    /// The number of regions.
    pub fn regions(&self) -> usize {
        self.entries.len()
    }

    /// The address of `len` bytes that the guest has at `address`, or `None` where they are not all in one region.
    #[inline]
    pub fn guest(&self, address: u64, len: u64) -> Option<NonNull<u8>> {
        self.guest_near(&mut 0, address, len)
    }

    /// As [`guest`](GuestMemory::guest), looking first at the region where `hint` points, which is left pointing at the
    /// one that held the bytes. Any value will do for a start, also one from another table.
    #[inline]
    pub fn guest_near(&self, hint: &mut usize, address: u64, len: u64) -> Option<NonNull<u8>> {
        match self.prefix_near(hint, address, len)? {
            (at, found) if found == len => Some(at),
            _ => None,
        }
    }

    /// The address of what the guest has at `address`, and how many of `len` bytes lie in the same region; `None` where
    /// the first of them is in no region.
    #[inline]
    pub fn guest_prefix(&self, address: u64, len: u64) -> Option<(NonNull<u8>, u64)> {
        self.prefix_near(&mut 0, address, len)
    }

    #[inline]
    fn prefix_near(&self, hint: &mut usize, address: u64, len: u64) -> Option<(NonNull<u8>, u64)> {
        if let Some(entry) = self.entries.get(*hint)
            // Wraps to something large where the address lies before the region.
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

    /// The address of `len` bytes that the front-end has at `address`, or `None` where they are not all in one region.
    ///
    /// For ring addresses: it looks at one region after the other.
    pub fn user(&self, address: u64, len: u64) -> Option<NonNull<u8>> {
        self.entries.iter().find_map(|e| {
            let (at, found) = e.prefix(address.checked_sub(e.user)?, len)?;
            (found == len).then_some(at)
        })
    }

    /// Where the guest sees the byte that has the address `at` in this process: for logs of what was written. It looks
    /// at one region after the other.
    pub fn guest_address(&self, at: NonNull<u8>) -> Option<u64> {
        self.entries.iter().find_map(|e| {
            let offset = (at.addr().get() as u64).checked_sub(e.host.addr().get() as u64)?;
            (offset < e.size).then(|| e.guest + offset)
        })
    }

    /// The first guest address behind all regions.
    pub fn end(&self) -> u64 {
        // No end overflows: checked when they came.
        self.entries.last().map_or(0, |e| e.guest + e.size)
    }

    /// Whether the front-end took away memory that was accessed; it should then be disconnected.
    #[inline]
    pub fn faulted(&self) -> bool {
        self.entries.iter().any(|e| e.mapping.faulted())
    }
}

/// Checks a region by itself and against those that are there.
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
            // No end overflows: checked above, for those in the table when they came.
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

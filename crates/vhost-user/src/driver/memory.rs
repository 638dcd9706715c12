//! Memory that stands in for a guest's.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use clientmem::Region;

use crate::memory::RegionSpec;
use crate::virtqueue::{Addresses, Areas, ConfigError, Format};

/// Distance between user and guest addresses; nonzero, so that tests detect a mix-up.
const USER_OFFSET: u64 = 0x7000_0000_0000;
const PAGE: u64 = 4096;

/// A memory file with one or more regions of guest memory.
#[derive(Debug)]
pub struct DriverMemory {
    file: Region,
    fd: OwnedFd,
    regions: Vec<Part>,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    guest: u64,
    size: u64,
    offset: u64,
}

impl DriverMemory {
    /// Makes zeroed memory with regions at these guest addresses and of these sizes.
    pub fn create(name: &str, regions: &[(u64, u64)]) -> io::Result<DriverMemory> {
        let (regions, size) = layout(regions);
        let (file, fd) = Region::create(name, size)?;
        Ok(DriverMemory { file, fd, regions })
    }

    /// Does the same in a file of at least the given size that `make` makes, for files that are not sealed or that use
    /// other page sizes.
    pub fn create_in(
        regions: &[(u64, u64)],
        make: impl FnOnce(u64) -> io::Result<OwnedFd>,
    ) -> io::Result<DriverMemory> {
        let (regions, size) = layout(regions);
        let fd = make(size)?;
        let file = Region::map(fd.as_fd(), size).map_err(io::Error::other)?;
        Ok(DriverMemory { file, fd, regions })
    }

    /// Returns the region descriptions for a back-end.
    pub fn specs(&self) -> io::Result<Vec<RegionSpec>> {
        let spec = |part: &Part| {
            Ok(RegionSpec {
                guest_address: part.guest,
                size: part.size,
                user_address: DriverMemory::user_address(part.guest),
                mmap_offset: part.offset,
                fd: self.fd.try_clone()?.into(),
            })
        };
        self.regions.iter().map(spec).collect()
    }

    /// Returns the user address of a guest address; ring addresses are user addresses.
    pub fn user_address(guest: u64) -> u64 {
        guest.wrapping_add(USER_OFFSET)
    }

    /// Returns the user addresses of a queue's parts.
    pub fn user_addresses(guest: &Addresses) -> Addresses {
        Addresses {
            descriptors: DriverMemory::user_address(guest.descriptors),
            driver: DriverMemory::user_address(guest.driver),
            device: DriverMemory::user_address(guest.device),
        }
    }

    /// Returns the memory file.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the address in this process of `len` bytes, or `None` unless they lie within one region.
    pub fn at(&self, guest: u64, len: u64) -> Option<NonNull<u8>> {
        self.regions.iter().find_map(|part| {
            let offset = guest.checked_sub(part.guest)?;
            if offset.checked_add(len)? > part.size {
                return None;
            }
            self.file.at(part.offset + offset, len)
        })
    }

    /// Copies bytes to a guest address. Returns `false`, possibly after a partial write, unless all lie in the memory.
    pub fn write(&self, guest: u64, bytes: &[u8]) -> bool {
        if let Some(to) = self.at(guest, bytes.len() as u64) {
            // SAFETY: `to` has room for all of `bytes` within the mapping that `self` keeps. `bytes` is private memory
            // of this process and cannot overlap the mapping, because no reference to the mapping exists.
            unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            return true;
        }
        self.halves(bytes.len(), |half| {
            let (from, to) = bytes.split_at(half);
            self.write(guest, from)
                && guest.checked_add(half as u64).is_some_and(|guest| self.write(guest, to))
        })
    }

    /// Copies bytes from a guest address. Returns `false`, possibly after a partial read, unless all lie in the memory.
    pub fn read(&self, guest: u64, bytes: &mut [u8]) -> bool {
        if let Some(from) = self.at(guest, bytes.len() as u64) {
            // SAFETY: as in `write`, in the other direction.
            unsafe { from.as_ptr().copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
            return true;
        }
        self.halves(bytes.len(), |half| {
            let (from, to) = bytes.split_at_mut(half);
            self.read(guest, from) && guest.checked_add(half as u64).is_some_and(|guest| self.read(guest, to))
        })
    }

    /// Appends `len` bytes from a guest address to `bytes`; appends nothing unless they lie within one region.
    pub fn append(&self, guest: u64, len: usize, bytes: &mut Vec<u8>) {
        let Some(from) = self.at(guest, len as u64) else { return };
        bytes.reserve(len);
        // SAFETY: as in `read`: `from` has `len` bytes within the mapping, and `bytes` has room for them after its end.
        // The copied bytes are initialised, so the length may grow over them.
        unsafe {
            from.as_ptr().copy_to_nonoverlapping(bytes.as_mut_ptr().add(bytes.len()), len);
            bytes.set_len(bytes.len() + len);
        }
    }

    /// Copies a range that crosses regions in halves, recursively.
    fn halves(&self, len: usize, copy: impl FnOnce(usize) -> bool) -> bool {
        len > 1 && copy(len / 2)
    }

    /// Returns the areas of a queue.
    pub(super) fn locate(
        &self,
        format: Format,
        size: u16,
        addresses: &Addresses,
    ) -> Result<Areas, ConfigError> {
        let [descriptors, driver, device] = Areas::lengths(format, size).map(|len| len as u64);
        let find = |part, address, len| {
            self.at(address, len).ok_or(ConfigError::OutsideMemory { part, address, len })
        };
        Ok(Areas {
            descriptors: find("descriptor", addresses.descriptors, descriptors)?,
            driver: find("driver", addresses.driver, driver)?,
            device: find("device", addresses.device, device)?,
        })
    }
}

/// Places regions one after another in the file; returns them with the end of the last one.
fn layout(regions: &[(u64, u64)]) -> (Vec<Part>, u64) {
    let mut offset = 0;
    let mut place = |&(guest, size): &(u64, u64)| {
        let part = Part { guest, size, offset };
        offset = (offset + size).next_multiple_of(PAGE);
        part
    };
    let parts = regions.iter().map(&mut place).collect();
    (parts, offset)
}

//! Memory that plays a guest's.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use clientmem::Region;

use crate::memory::RegionSpec;
use crate::virtqueue::{Addresses, Areas, ConfigError, Format};

/// The distance between user and guest addresses, which must not be taken for each other.
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
    /// Makes memory with regions at these guest addresses and of these sizes, all zeros.
    pub fn create(name: &str, regions: &[(u64, u64)]) -> io::Result<DriverMemory> {
        let (regions, size) = layout(regions);
        let (file, fd) = Region::create(name, size)?;
        Ok(DriverMemory { file, fd, regions })
    }

    /// The same in a file that `make` makes, of so many bytes or more: for one that is not sealed against what a guest
    /// could do to it, or of other pages.
    pub fn create_in(
        regions: &[(u64, u64)],
        make: impl FnOnce(u64) -> io::Result<OwnedFd>,
    ) -> io::Result<DriverMemory> {
        let (regions, size) = layout(regions);
        let fd = make(size)?;
        let file = Region::map(fd.as_fd(), size).map_err(io::Error::other)?;
        Ok(DriverMemory { file, fd, regions })
    }

    /// What tells a back-end of the regions.
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

    /// The user address of a guest address: what names a ring.
    pub fn user_address(guest: u64) -> u64 {
        guest.wrapping_add(USER_OFFSET)
    }

    /// The user addresses of a queue's parts.
    pub fn user_addresses(guest: &Addresses) -> Addresses {
        Addresses {
            descriptors: DriverMemory::user_address(guest.descriptors),
            driver: DriverMemory::user_address(guest.driver),
            device: DriverMemory::user_address(guest.device),
        }
    }

    /// The memory file.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The address in this process of `len` bytes, or `None` where they are not all in one region.
    pub fn at(&self, guest: u64, len: u64) -> Option<NonNull<u8>> {
        self.regions.iter().find_map(|part| {
            let offset = guest.checked_sub(part.guest)?;
            if offset.checked_add(len)? > part.size {
                return None;
            }
            self.file.at(part.offset + offset, len)
        })
    }

    /// Copies bytes to a guest address; `false`, and maybe half of them written, where they are not all in the memory.
    pub fn write(&self, guest: u64, bytes: &[u8]) -> bool {
        if let Some(to) = self.at(guest, bytes.len() as u64) {
            // SAFETY: `to` has room for all of `bytes` within the mapping that `self` keeps. They are private memory of this
            // process: no reference to the mapping exists that they could be.
            unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            return true;
        }
        self.halves(bytes.len(), |half| {
            let (from, to) = bytes.split_at(half);
            self.write(guest, from)
                && guest.checked_add(half as u64).is_some_and(|guest| self.write(guest, to))
        })
    }

    /// Copies bytes from a guest address; `false`, and maybe half of them read, where they are not all in the memory.
    pub fn read(&self, guest: u64, bytes: &mut [u8]) -> bool {
        if let Some(from) = self.at(guest, bytes.len() as u64) {
            // SAFETY: as in `write`, the other way round.
            unsafe { from.as_ptr().copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
            return true;
        }
        self.halves(bytes.len(), |half| {
            let (from, to) = bytes.split_at_mut(half);
            self.read(guest, from) && guest.checked_add(half as u64).is_some_and(|guest| self.read(guest, to))
        })
    }

    /// Copies `len` bytes from a guest address behind what `bytes` has; nothing where they are not all in one region.
    pub fn append(&self, guest: u64, len: usize, bytes: &mut Vec<u8>) {
        let Some(from) = self.at(guest, len as u64) else { return };
        bytes.reserve(len);
        // SAFETY: as in `read`: `from` has `len` bytes within the mapping, and `bytes` has room for them after its end. What
        // was copied is initialised, so the length may grow over it.
        unsafe {
            from.as_ptr().copy_to_nonoverlapping(bytes.as_mut_ptr().add(bytes.len()), len);
            bytes.set_len(bytes.len() + len);
        }
    }

    /// What crosses regions is copied half by half.
    fn halves(&self, len: usize, copy: impl FnOnce(usize) -> bool) -> bool {
        len > 1 && copy(len / 2)
    }

    /// The parts of a queue.
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

/// Where regions lie in the file, one behind the other, and where the last one ends.
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

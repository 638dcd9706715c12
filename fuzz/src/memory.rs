//! A client's memory under the fuzzer's control: written at any moment, with a model of its permitted content.
//!
//! The model is a copy of every byte with a mark on bytes that the switch may write. The fuzzer writes to both; at the
//! end, memory and model may differ at marked bytes only, otherwise the switch has written where it must not. Guard
//! pages around each region end the process when touched.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use clientmem::Region;
use memif::Memory;
use memif::message::AddRing;
use memif::ring::Ring;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

const PAGE: usize = 4096;

/// A region and its expected content.
struct Shadow {
    base: *mut u8,
    len: usize,
    expected: Vec<u8>,
    may_change: Vec<bool>,
    /// Like `may_change`, but not reset by the client's writes.
    may_always_change: Vec<bool>,
    file: OwnedFd,
}

/// The regions of one client.
pub struct ClientMemory {
    memory: Arc<Memory>,
    shadows: Vec<Shadow>,
    truncated: bool,
}

// SAFETY: the pointers refer to mappings that `memory` keeps, and a target runs on one thread.
unsafe impl Send for ClientMemory {}

impl ClientMemory {
    /// Maps zeroed regions of these sizes.
    pub fn new(sizes: &[usize]) -> Self {
        let mut regions = Vec::new();
        let mut shadows = Vec::new();
        for size in sizes {
            let made = memfd_create("fuzz", MemfdFlags::CLOEXEC).and_then(|file| {
                ftruncate(&file, *size as u64)?;
                Ok(file)
            });
            let Ok(file) = made else { panic!("cannot create a memory file: {made:?}") };
            let region = match Region::map(file.as_fd(), *size as u64) {
                Ok(region) => region,
                Err(error) => panic!("cannot map a region: {error}"),
            };
            let base = region.base().as_ptr();
            guard(base.wrapping_sub(PAGE));
            guard(base.wrapping_add(size.next_multiple_of(PAGE)));
            // The last page's bytes behind the region are part of the model too.
            let len = size.next_multiple_of(PAGE);
            shadows.push(Shadow {
                base,
                len,
                expected: vec![0; len],
                may_change: vec![false; len],
                may_always_change: vec![false; len],
                file,
            });
            regions.push(region);
        }
        Self { memory: Arc::new(Memory::new(regions)), shadows, truncated: false }
    }

    /// Zeroes all regions and clears the marks. Remaps them if a file was truncated.
    pub fn reset(&mut self) {
        if self.truncated {
            let sizes: Vec<_> = self.memory.regions().iter().map(|region| region.len() as usize).collect();
            *self = Self::new(&sizes);
        }
        for shadow in &mut self.shadows {
            // SAFETY: the mapping has `len` bytes, and no reference to any of them exists.
            unsafe { shadow.base.write_bytes(0, shadow.len) };
            shadow.expected.fill(0);
            shadow.may_change.fill(false);
            shadow.may_always_change.fill(false);
        }
    }

    /// The memory as a connection uses it.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The file of a region.
    pub fn file(&self, region: usize) -> BorrowedFd<'_> {
        self.shadows[region % self.shadows.len()].file.as_fd()
    }

    /// Returns a ring if it is valid at this place.
    pub fn ring(&self, at: &AddRing) -> Option<Ring> {
        Ring::new(self.memory.clone(), at).ok()
    }

    /// Truncates the file of a region to `len` bytes. The model is void afterwards.
    pub fn truncate(&mut self, region: usize, len: u64) {
        self.truncated = true;
        let _ = ftruncate(self.file(region), len);
    }

    /// Writes as a client would, up to the end of the region.
    pub fn poke(&mut self, region: usize, at: usize, bytes: &[u8]) {
        let index = region % self.shadows.len();
        let shadow = &mut self.shadows[index];
        let at = at % shadow.len;
        let bytes = &bytes[..bytes.len().min(shadow.len - at)];
        // SAFETY: at + bytes.len() <= len; see `reset`.
        unsafe { shadow.base.add(at).copy_from(bytes.as_ptr(), bytes.len()) };
        shadow.expected[at..at + bytes.len()].copy_from_slice(bytes);
        // The switch's earlier writes are gone; new ones need a new permission.
        shadow.may_change[at..at + bytes.len()].fill(false);
    }

    /// Reads as a client would.
    pub fn peek<const N: usize>(&self, region: usize, at: usize) -> [u8; N] {
        let shadow = &self.shadows[region % self.shadows.len()];
        let mut out = [0; N];
        if at + N <= shadow.len {
            // SAFETY: in bounds; see `reset`.
            unsafe { out.as_mut_ptr().copy_from(shadow.base.add(at), N) };
        }
        out
    }

    /// Appends the bytes that a client reads there, up to the end of the region.
    pub fn read(&self, region: usize, at: usize, len: usize, out: &mut Vec<u8>) {
        let shadow = &self.shadows[region % self.shadows.len()];
        let at = at.min(shadow.len);
        let len = len.min(shadow.len - at);
        let start = out.len();
        out.resize(start + len, 0);
        // SAFETY: in bounds; see `reset`.
        unsafe { out[start..].as_mut_ptr().copy_from(shadow.base.add(at), len) };
    }

    /// Returns the region and offset of an address; panics unless a region contains all `len` bytes.
    pub fn place(&self, at: *const u8, len: usize) -> (usize, usize) {
        for (index, (shadow, region)) in self.shadows.iter().zip(self.memory.regions()).enumerate() {
            let offset = (at as usize).wrapping_sub(shadow.base as usize);
            if offset <= region.len() as usize && len <= region.len() as usize - offset {
                return (index, offset);
            }
        }
        panic!("{len} bytes at {at:?} are not within a region");
    }

    /// Allows the switch to write at any time: ring fields that the switch owns.
    pub fn allow_always(&mut self, at: *const u8, len: usize) {
        let (index, offset) = self.place(at, len);
        self.shadows[index].may_always_change[offset..offset + len].fill(true);
    }

    /// Allows the switch to write until the client writes there again.
    pub fn allow(&mut self, at: *const u8, len: usize) {
        let (index, offset) = self.place(at, len);
        self.shadows[index].may_change[offset..offset + len].fill(true);
    }

    /// Panics on a change that was not allowed.
    pub fn check(&self) {
        if self.truncated {
            return;
        }
        for (index, shadow) in self.shadows.iter().enumerate() {
            let mut found = vec![0; shadow.len];
            // SAFETY: the mapping has `len` bytes.
            unsafe { found.as_mut_ptr().copy_from(shadow.base, shadow.len) };
            if found == shadow.expected {
                continue;
            }
            for (at, (found, expected)) in found.iter().zip(&shadow.expected).enumerate() {
                assert!(
                    found == expected || shadow.may_change[at] || shadow.may_always_change[at],
                    "the switch wrote {found:#x} over {expected:#x} at {at} of region {index}"
                );
            }
        }
    }
}

/// Maps a guard page, unless another mapping is already there.
fn guard(at: *mut u8) {
    // SAFETY: MAP_FIXED_NOREPLACE takes the page only if it is free.
    let _ = unsafe {
        mmap_anonymous(
            at.cast(),
            PAGE,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE | MapFlags::NORESERVE,
        )
    };
}

//! Packet memory (UMEM): one region, divided into frames of equal size that are addressed by their offset.

use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::Error;

/// A region of packet memory. The kernel writes to frames in the fill ring and reads those in the transmit ring.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    frame: u32,
    frames: u32,
}

// SAFETY: the region is plain memory; who may use a frame is decided by rings, as the crate's documentation says.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Allocates `frames` frames of `frame` bytes, zeroed on first use. `frame` is a power of two from 2,048 to the
    /// page size, which the kernel checks.
    pub fn new(frames: u32, frame: u32) -> Result<Memory, Error> {
        let step = "allocating packet memory";
        let length = frames as usize * frame as usize;
        // SAFETY: a fresh mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let start = NonNull::new(start.map_err(Error::at(step))?.cast());
        let start = start.ok_or(Error { step, errno: rustix::io::Errno::NOMEM })?;
        Ok(Memory { start, frame, frames })
    }

    /// Returns the first byte of the region.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the region's length in bytes.
    pub fn len(&self) -> u64 {
        u64::from(self.frames) * u64::from(self.frame)
    }

    /// Returns whether the region has no frames.
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Returns the size of a frame in bytes.
    pub fn frame_size(&self) -> u32 {
        self.frame
    }

    /// Returns the number of frames.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Returns the address of the byte at `offset`, if `length` bytes from there lie within one frame.
    #[inline(always)]
    pub fn at(&self, offset: u64, length: u32) -> Option<NonNull<u8>> {
        let within = (offset as u32 & (self.frame - 1)).checked_add(length)?;
        if offset >= self.len() || within > self.frame {
            return None;
        }
        // SAFETY: the offset is within the region, checked above.
        Some(unsafe { self.start.add(offset as usize) })
    }

    /// Returns the offset of the frame that a byte lies in.
    #[inline(always)]
    pub fn frame_of(&self, offset: u64) -> u64 {
        offset & !u64::from(self.frame - 1)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the region was mapped by `new` with this length, and nobody refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len() as usize) };
    }
}

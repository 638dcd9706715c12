//! Rings shared with the kernel. In the receive and the completion ring the kernel produces; in the fill and the
//! transmit ring it consumes.
//!
//! Positions are free-running 32-bit numbers. Entries are written and read with relaxed atomics; the indices order them.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fd::BorrowedFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::XdpRingOffset;

use crate::Error;

/// The kernel waits for a system call before it goes on with the ring (`XDP_RING_NEED_WAKEUP`).
const NEED_WAKEUP: u32 = 1;
/// The packet continues in the next descriptor (`XDP_PKT_CONTD`).
const CONTINUED: u32 = 1;

/// A packet, or a part of one, in packet memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Offset in the packet memory.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    /// The packet continues in the next descriptor.
    pub continued: bool,
}

/// An entry of the receive or the transmit ring (`struct xdp_desc`).
#[repr(C)]
#[derive(Debug)]
pub struct Packet {
    address: AtomicU64,
    length: AtomicU32,
    options: AtomicU32,
}

/// A mapped ring.
#[derive(Debug)]
struct Ring<E> {
    start: NonNull<u8>,
    length: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    entries: NonNull<E>,
    mask: u32,
}

// SAFETY: everything in the mapping is accessed through atomics.
unsafe impl<E> Send for Ring<E> {}
// SAFETY: as above.
unsafe impl<E> Sync for Ring<E> {}

impl<E> Ring<E> {
    /// Maps a ring of `size` entries, a power of two. `E` consists of atomics and has the kernel's layout.
    fn map(fd: BorrowedFd<'_>, page: u64, at: &XdpRingOffset, size: u32) -> Result<Self, Error> {
        let length = at.desc as usize + size as usize * size_of::<E>();
        // SAFETY: a fresh mapping at an address that the kernel chooses touches no other memory.
        let mapped = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                fd,
                page,
            )
        };
        let step = "mapping a ring of the AF_XDP socket";
        let start = NonNull::new(mapped.map_err(Error::at(step))?.cast::<u8>());
        let start = start.ok_or(Error { step, errno: rustix::io::Errno::NOMEM })?;
        // SAFETY: the kernel's offsets lie within the mapping, suitably aligned.
        let at_offset = |offset: u64| unsafe { start.add(offset as usize) };
        Ok(Self {
            start,
            length,
            producer: at_offset(at.producer).cast(),
            consumer: at_offset(at.consumer).cast(),
            flags: at.flags.map(|flags| at_offset(flags).cast()),
            entries: at_offset(at.desc).cast(),
            mask: size - 1,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: it lies within the mapping, which lives as long as `self`.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    #[inline(always)]
    fn entry(&self, position: u32) -> &E {
        // SAFETY: the mapping has `mask + 1` entries and lives as long as `self`.
        unsafe { self.entries.add((position & self.mask) as usize).as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as above.
        self.flags.is_some_and(|flags| unsafe { flags.as_ref() }.load(Ordering::Relaxed) & NEED_WAKEUP != 0)
    }
}

impl<E> Drop for Ring<E> {
    fn drop(&mut self) {
        // SAFETY: the region was mapped by `map` with this length; references to it do not outlive `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// The receive ring: packets that the kernel put into frames of the fill ring.
#[derive(Debug, Clone)]
pub struct Rx(Arc<Ring<Packet>>);

/// The transmit ring: packets for the kernel to send.
#[derive(Debug, Clone)]
pub struct Tx(Arc<Ring<Packet>>);

/// The fill ring: frames for the kernel to receive into.
#[derive(Debug, Clone)]
pub struct Fill(Arc<Ring<AtomicU64>>);

/// The completion ring: frames whose packets were sent.
#[derive(Debug, Clone)]
pub struct Completion(Arc<Ring<AtomicU64>>);

impl Rx {
    pub(crate) fn map(fd: BorrowedFd<'_>, page: u64, at: &XdpRingOffset, size: u32) -> Result<Self, Error> {
        Ok(Self(Arc::new(Ring::map(fd, page, at, size)?)))
    }

    /// Returns the position behind the last packet.
    #[inline(always)]
    pub fn end(&self) -> u32 {
        self.0.producer().load(Ordering::Acquire)
    }

    /// Returns the packet at a position before [`Rx::end`].
    #[inline(always)]
    pub fn packet(&self, position: u32) -> Descriptor {
        let entry = self.0.entry(position);
        Descriptor {
            offset: entry.address.load(Ordering::Relaxed),
            length: entry.length.load(Ordering::Relaxed),
            continued: entry.options.load(Ordering::Relaxed) & CONTINUED != 0,
        }
    }

    /// Gives entries before `position` back to the kernel.
    #[inline(always)]
    pub fn consume(&self, position: u32) {
        self.0.consumer().store(position, Ordering::Release);
    }
}

impl Tx {
    pub(crate) fn map(fd: BorrowedFd<'_>, page: u64, at: &XdpRingOffset, size: u32) -> Result<Self, Error> {
        Ok(Self(Arc::new(Ring::map(fd, page, at, size)?)))
    }

    /// Returns the number of entries.
    pub fn size(&self) -> u32 {
        self.0.mask + 1
    }

    /// Returns the position up to which the kernel has taken packets.
    #[inline(always)]
    pub fn consumed(&self) -> u32 {
        self.0.consumer().load(Ordering::Acquire)
    }

    /// Writes an entry, which the kernel reads once it is published.
    #[inline(always)]
    pub fn write(&self, position: u32, packet: Descriptor) {
        let entry = self.0.entry(position);
        entry.address.store(packet.offset, Ordering::Relaxed);
        entry.length.store(packet.length, Ordering::Relaxed);
        entry.options.store(if packet.continued { CONTINUED } else { 0 }, Ordering::Relaxed);
    }

    /// Publishes the entries before `position`.
    #[inline(always)]
    pub fn publish(&self, position: u32) {
        self.0.producer().store(position, Ordering::Release);
    }

    /// Returns whether the kernel waits for [`Socket::wake`](crate::Socket::wake) before it sends.
    #[inline(always)]
    pub fn needs_wakeup(&self) -> bool {
        self.0.needs_wakeup()
    }
}

impl Fill {
    pub(crate) fn map(fd: BorrowedFd<'_>, page: u64, at: &XdpRingOffset, size: u32) -> Result<Self, Error> {
        Ok(Self(Arc::new(Ring::map(fd, page, at, size)?)))
    }

    /// Writes an entry, a frame's offset.
    #[inline(always)]
    pub fn write(&self, position: u32, frame: u64) {
        self.0.entry(position).store(frame, Ordering::Relaxed);
    }

    /// Publishes the entries before `position`. No more frames than the ring has entries may be with the kernel.
    #[inline(always)]
    pub fn publish(&self, position: u32) {
        self.0.producer().store(position, Ordering::Release);
    }

    /// Returns whether the driver waits for [`Socket::wake_receiver`](crate::Socket::wake_receiver) before it takes frames.
    #[inline(always)]
    pub fn needs_wakeup(&self) -> bool {
        self.0.needs_wakeup()
    }
}

impl Completion {
    pub(crate) fn map(fd: BorrowedFd<'_>, page: u64, at: &XdpRingOffset, size: u32) -> Result<Self, Error> {
        Ok(Self(Arc::new(Ring::map(fd, page, at, size)?)))
    }

    /// Returns the position behind the last frame.
    #[inline(always)]
    pub fn end(&self) -> u32 {
        self.0.producer().load(Ordering::Acquire)
    }

    /// Returns the frame at a position before [`Completion::end`].
    #[inline(always)]
    pub fn frame(&self, position: u32) -> u64 {
        self.0.entry(position).load(Ordering::Relaxed)
    }

    /// Gives entries before `position` back to the kernel.
    #[inline(always)]
    pub fn consume(&self, position: u32) {
        self.0.consumer().store(position, Ordering::Release);
    }
}

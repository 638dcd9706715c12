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

/// A ring that the kernel fills.
#[derive(Debug)]
pub struct Consumer<E>(Ring<E>);

/// A ring that the kernel empties.
#[derive(Debug)]
pub struct Producer<E>(Arc<Ring<E>>);

/// Not derived: that would ask for entries that can be cloned.
impl<E> Clone for Producer<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The receive ring: packets that the kernel put into frames of the fill ring.
pub type Rx = Consumer<Packet>;
/// The completion ring: frames whose packets were sent.
pub type Completion = Consumer<AtomicU64>;
/// The transmit ring: packets for the kernel to send.
pub type Tx = Producer<Packet>;
/// The fill ring: frames for the kernel to receive into. No more frames than it has entries may be with the kernel.
pub type Fill = Producer<AtomicU64>;

impl<E> Consumer<E> {
    pub(crate) fn map(fd: BorrowedFd<'_>, page: u64, at: &XdpRingOffset, size: u32) -> Result<Self, Error> {
        Ok(Self(Ring::map(fd, page, at, size)?))
    }

    /// Returns the position behind the last entry.
    #[inline(always)]
    pub fn end(&self) -> u32 {
        self.0.producer().load(Ordering::Acquire)
    }

    /// Gives entries before `position` back to the kernel.
    #[inline(always)]
    pub fn consume(&self, position: u32) {
        self.0.consumer().store(position, Ordering::Release);
    }
}

impl Rx {
    /// Returns the packet at a position before [`Consumer::end`].
    #[inline(always)]
    pub fn packet(&self, position: u32) -> Descriptor {
        let entry = self.0.entry(position);
        Descriptor {
            offset: entry.address.load(Ordering::Relaxed),
            length: entry.length.load(Ordering::Relaxed),
            continued: entry.options.load(Ordering::Relaxed) & CONTINUED != 0,
        }
    }
}

impl Completion {
    /// Returns the frame at a position before [`Consumer::end`].
    #[inline(always)]
    pub fn frame(&self, position: u32) -> u64 {
        self.0.entry(position).load(Ordering::Relaxed)
    }
}

impl<E> Producer<E> {
    pub(crate) fn map(fd: BorrowedFd<'_>, page: u64, at: &XdpRingOffset, size: u32) -> Result<Self, Error> {
        Ok(Self(Arc::new(Ring::map(fd, page, at, size)?)))
    }

    /// Returns the number of entries.
    pub fn size(&self) -> u32 {
        self.0.mask + 1
    }

    /// Returns the position up to which the kernel has taken entries.
    #[inline(always)]
    pub fn consumed(&self) -> u32 {
        self.0.consumer().load(Ordering::Acquire)
    }

    /// Returns the position up to which entries are published.
    #[inline(always)]
    pub fn published(&self) -> u32 {
        self.0.producer().load(Ordering::Acquire)
    }

    /// Publishes the entries before `position`.
    #[inline(always)]
    pub fn publish(&self, position: u32) {
        self.0.producer().store(position, Ordering::Release);
    }

    /// Returns whether the kernel waits for [`Socket::wake`](crate::Socket::wake) (transmit ring) or
    /// [`Socket::wake_receiver`](crate::Socket::wake_receiver) (fill ring) before it goes on.
    #[inline(always)]
    pub fn needs_wakeup(&self) -> bool {
        self.0.needs_wakeup()
    }
}

impl Tx {
    /// Writes an entry, which the kernel reads once it is published.
    #[inline(always)]
    pub fn write(&self, position: u32, packet: Descriptor) {
        let entry = self.0.entry(position);
        entry.address.store(packet.offset, Ordering::Relaxed);
        entry.length.store(packet.length, Ordering::Relaxed);
        entry.options.store(if packet.continued { CONTINUED } else { 0 }, Ordering::Relaxed);
    }
}

impl Fill {
    /// Writes an entry, a frame's offset.
    #[inline(always)]
    pub fn write(&self, position: u32, frame: u64) {
        self.0.entry(position).store(frame, Ordering::Relaxed);
    }
}

//! A ring of frames that the kernel fills while packets arrive (`PACKET_RX_RING`, version 2): taking one costs no system
//! call, and its copy was made on the CPU that received it, with veth that of its sender.
//!
//! A frame that does not fit in its slot is cut there, and lies in whole in the socket's queue: slots of such frames and
//! the frames in the queue have the same order.
//!
//! Invariants: the kernel owns a slot whose status is `TP_STATUS_KERNEL`, else the switch does; only the receive queue
//! gives slots back, in the order of the ring. The kernel is trusted.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use packet::virtio_net::HEADER_LEN;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::tag::Tag;
use super::{LEGACY_HEADER, socket};

/// Bytes of a slot: a usual frame fits in, and as an odd number of cache lines, the headers of a batch do not share a
/// few cache sets.
const SLOT: usize = 33 * 64;
/// Bytes of a block, a multiple of the page size. Slots do not cross blocks.
const BLOCK: usize = 128 << 10;
const SLOTS_OF_BLOCK: usize = BLOCK / SLOT;
const BLOCKS: usize = 17;
/// Slots of the ring, 2.1 MiB.
pub(super) const SLOTS: usize = BLOCKS * SLOTS_OF_BLOCK;
const LEN: usize = BLOCKS * BLOCK;

/// A mapped ring of a socket.
pub(super) struct Ring(NonNull<u8>);

// SAFETY: the memory is shared with the kernel anyway; a slot's status tells who may use the rest of it, and the receive
// queue is the only user on this side.
unsafe impl Send for Ring {}
// SAFETY: as above; others only read a status.
unsafe impl Sync for Ring {}

/// A slot that the switch owns.
pub(super) struct Slot {
    start: NonNull<u8>,
    header: libc::tpacket2_hdr,
}

impl Ring {
    /// Gives a socket a ring. To be called before it receives anything.
    pub(super) fn new(socket: &OwnedFd) -> Result<Self, Errno> {
        socket::set_ring(socket, BLOCK, BLOCKS, SLOT, SLOTS)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where the kernel chooses.
        let start = unsafe { mmap(std::ptr::null_mut(), LEN, access, MapFlags::SHARED, socket.as_fd(), 0) };
        let mapped = start.and_then(|start| NonNull::new(start.cast()).map(Self).ok_or(Errno::NOMEM));
        if mapped.is_err() {
            // Else frames would go on into a ring that nobody reads.
            socket::remove_ring(socket)?;
        }
        mapped
    }

    /// Returns the address of slot `n`, counted on over rounds of the ring.
    #[inline(always)]
    fn at(&self, n: u64) -> NonNull<u8> {
        let n = (n % SLOTS as u64) as usize;
        // SAFETY: within the mapping: fewer than `BLOCKS` blocks, and a slot lies within its block.
        unsafe { self.0.add(n / SLOTS_OF_BLOCK * BLOCK + n % SLOTS_OF_BLOCK * SLOT) }
    }

    #[inline(always)]
    fn status(&self, n: u64) -> &AtomicU32 {
        // SAFETY: a slot begins with its aligned status, which both sides access atomically.
        unsafe { AtomicU32::from_ptr(self.at(n).as_ptr().cast()) }
    }

    /// Returns whether the kernel owns slot `n`.
    pub(super) fn is_empty(&self, n: u64) -> bool {
        self.status(n).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0
    }

    /// Returns slot `n` if it is filled.
    #[inline(always)]
    pub(super) fn get(&self, n: u64) -> Option<Slot> {
        let start = self.at(n);
        if self.is_empty(n) {
            return None;
        }
        // SAFETY: a slot begins with this header, which the kernel wrote before it gave the slot away.
        let header = unsafe { start.cast::<libc::tpacket2_hdr>().read() };
        Some(Slot { start, header })
    }

    /// Gives slot `n` back to the kernel.
    #[inline(always)]
    pub(super) fn give_back(&self, n: u64) {
        self.status(n).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, and no pointer into it is left: batches end before their queue.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), LEN) };
    }
}

impl Slot {
    /// Returns the length of the frame on its way, which may be cut here.
    #[inline(always)]
    pub(super) fn frame_len(&self) -> usize {
        self.header.tp_len as usize
    }

    /// Returns whether the frame is cut here.
    #[inline(always)]
    pub(super) fn is_cut(&self) -> bool {
        self.header.tp_snaplen < self.header.tp_len
    }

    /// Returns whether the frame lies in whole in the socket's queue.
    #[inline(always)]
    pub(super) fn is_queued(&self) -> bool {
        self.header.tp_status & libc::TP_STATUS_COPY != 0
    }

    /// Returns the frame, behind enough room for a tag, and the `virtio_net_hdr` that it came with; `None` if the slot
    /// does not hold what it says.
    #[inline(always)]
    pub(super) fn frame(&self) -> Option<(NonNull<u8>, u32, [u8; HEADER_LEN])> {
        let (at, len) = (usize::from(self.header.tp_mac), self.header.tp_snaplen);
        if at < size_of::<libc::tpacket2_hdr>() + LEGACY_HEADER || at + len as usize > SLOT {
            return None;
        }
        let mut offload = [0; HEADER_LEN];
        // SAFETY: both lie within the slot, which the switch owns.
        unsafe {
            let frame = self.start.add(at);
            let header = frame.as_ptr().cast_const().sub(LEGACY_HEADER);
            std::ptr::copy_nonoverlapping(header, offload.as_mut_ptr(), LEGACY_HEADER);
            Some((frame, len, offload))
        }
    }

    /// Returns the VLAN tag that the kernel took out of the frame.
    #[inline(always)]
    pub(super) fn tag(&self) -> Option<Tag> {
        let libc::tpacket2_hdr { tp_status, tp_vlan_tpid, tp_vlan_tci, .. } = self.header;
        Tag::of(tp_status, tp_vlan_tpid, tp_vlan_tci)
    }
}

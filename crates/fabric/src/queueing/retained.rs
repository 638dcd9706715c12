//! A class's queue: a ring in the switch's own memory, into which packets are copied once.
//!
//! To the fabric the ring is like a client's, filled by [`TxRing`]: by several workers at once, in order, without
//! waiting. A packet takes as many slots of [`SLOT_LEN`] bytes as it needs, with a [`Prefix`](PREFIX) in front: its
//! offload metadata as virtio-net's header, its class, and the time at which it came. One reader takes packets out: a
//! worker's [drain](crate::worker::tasks).
//!
//! Invariants: slots before `taken` and after `published` belong to the workers that fill them, those between to the
//! reader. `published` is stored after the data that it publishes and loaded before they are read, `taken` the other
//! way round.

use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use packet::offload::Offload;
use packet::virtio_net;

use crate::counters::{DropReason, QueueCounters};
use crate::deliver::egress::Egress;
use crate::deliver::tools::Tools;
use crate::deliver::tx_ring::{Buffer, RingBacking, TxRing};
use crate::fault::Fault;
use crate::lists::output::{Output, OutputList};
use crate::rx::{MAX_PACKET, RxBatch};
use crate::slab::Slab;
use crate::sync::{AtomicU32, Ordering};

/// Bytes of a slot.
pub(crate) const SLOT_LEN: u32 = 2048;
/// Bytes from one slot to the next: an odd number of cache lines, so that slots begin in different sets of a cache.
const STRIDE: usize = SLOT_LEN as usize + 64;
/// Bytes in front of a packet: virtio-net's header, whose number of buffers has the class, and the time.
const PREFIX: usize = virtio_net::HEADER_LEN + 4;
/// Cycles of the unit of [`RetainedPacket::arrival`], as a power of two.
const TIME_SHIFT: u32 = 10;

/// The highest bit of a slot's length: the packet continues in the next slot.
const MORE: u32 = 1 << 31;

/// Ring of retained packets. See the module.
pub(crate) struct Retained {
    memory: Slab,
    /// Used bytes of each slot, and [`MORE`].
    lens: Box<[AtomicU32]>,
    published: AtomicU32,
    taken: AtomicU32,
}

/// A packet in the ring, until it is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetainedPacket {
    /// First slot.
    first: u32,
    /// Number of slots.
    slots: u32,
    /// Bytes of the packet.
    pub(crate) len: u32,
    pub(crate) offload: Offload,
    /// Traffic class.
    pub(crate) class: u16,
    /// When it came, in a unit of its own: see [`RetainedPacket::waited`].
    arrival: u32,
}

impl Retained {
    /// Creates a ring of so many slots, rounded up to a power of two.
    pub(crate) fn new(slots: u32) -> Arc<Self> {
        let slots = Self::slots(slots);
        Arc::new(Self {
            memory: Slab::new(slots as usize * STRIDE),
            lens: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            published: AtomicU32::new(0),
            taken: AtomicU32::new(0),
        })
    }

    /// Slots of a ring for which so many are wanted.
    pub(crate) fn slots(wanted: u32) -> u32 {
        wanted.clamp(1, 1 << 20).next_power_of_two()
    }

    /// Bytes of memory that a ring of so many slots takes.
    pub(crate) fn bytes(slots: u32) -> u64 {
        u64::from(Self::slots(slots)) * STRIDE as u64
    }

    /// Slots of the ring.
    pub(crate) fn size(&self) -> u32 {
        self.lens.len() as u32
    }

    /// Slots in use.
    pub(crate) fn used(&self) -> u32 {
        let used = self.published.load(Ordering::Relaxed).wrapping_sub(self.taken.load(Ordering::Relaxed));
        // `taken` may have moved beyond the earlier value of `published`.
        if used > self.size() { 0 } else { used }
    }

    /// Whether the reader finds a packet at slot `at`.
    #[inline]
    pub(crate) fn has_packet(&self, at: u32) -> bool {
        self.published.load(Ordering::Acquire) != at
    }

    /// First byte of slot `seq`.
    fn slot(&self, seq: u32) -> NonNull<u8> {
        let at = (seq as usize & (self.lens.len() - 1)) * STRIDE;
        // SAFETY: `at` is less than slots * STRIDE, which is the memory's length.
        unsafe { self.memory.at(at) }
    }

    fn len_of(&self, seq: u32) -> u32 {
        let len = self.lens.get(seq as usize & (self.lens.len() - 1));
        len.map_or(0, |len| len.load(Ordering::Relaxed))
    }

    /// Slot of the next unreleased packet. For the reader.
    pub(crate) fn front(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }

    /// The packet that starts in slot `at`, which is [`Retained::front`] or the end of a packet. For the reader.
    pub(crate) fn packet(&self, at: u32) -> Option<RetainedPacket> {
        let end = self.published.load(Ordering::Acquire);
        let (mut seq, mut len) = (at, 0);
        while seq != end {
            let field = self.len_of(seq);
            len += field & !MORE;
            seq = seq.wrapping_add(1);
            if field & MORE == 0 {
                // SAFETY: the slot belongs to the reader and starts with so many bytes, which were written.
                let [header @ .., a, b, c, d] = unsafe { self.slot(at).cast::<[u8; PREFIX]>().read() };
                // The header was encoded from valid metadata.
                let offload = virtio_net::decode(&header).unwrap_or(Offload::NONE);
                let len = len.saturating_sub(PREFIX as u32);
                let [.., low, high] = header;
                let class = u16::from_le_bytes([low, high]);
                let arrival = u32::from_le_bytes([a, b, c, d]);
                return Some(RetainedPacket {
                    first: at,
                    slots: seq.wrapping_sub(at),
                    len,
                    offload,
                    class,
                    arrival,
                });
            }
        }
        None
    }

    /// Calls `f` with each piece of a packet's bytes, in order.
    pub(crate) fn for_each_piece(&self, packet: &RetainedPacket, mut f: impl FnMut(NonNull<u8>, u32)) {
        for i in 0..packet.slots {
            let seq = packet.first.wrapping_add(i);
            let skip = if i == 0 { PREFIX as u32 } else { 0 };
            let len = (self.len_of(seq) & !MORE).saturating_sub(skip);
            // SAFETY: at least `skip` bytes of the slot are used.
            f(unsafe { self.slot(seq).add(skip as usize) }, len);
        }
    }

    /// Adds a packet to a batch. The reader releases its slots when the batch is delivered.
    #[inline]
    pub(crate) fn add_to(&self, batch: &mut RxBatch, packet: &RetainedPacket) {
        self.for_each_piece(packet, |piece, len| {
            // SAFETY: the slots of the packet belong to the reader until it releases them, which it does after the
            // batch. A packet has fewer pieces than a batch allows.
            let _ = unsafe { batch.add_segment(piece, len) };
        });
        batch.end_packet_in_class(packet.offload, packet.class);
    }

    /// Returns all slots before `to` to the workers. For the reader, when no reference to them is left.
    pub(crate) fn release(&self, to: u32) {
        self.taken.store(to, Ordering::Release);
    }
}

impl RetainedPacket {
    /// The slot after the packet.
    pub(crate) fn end(&self) -> u32 {
        self.first.wrapping_add(self.slots)
    }

    /// Whether it is longer than a packet of a batch may be, as one that a tag was added to.
    pub(crate) fn is_too_long(&self) -> bool {
        self.len > MAX_PACKET
    }

    /// Cycles that it has waited until `now`, to within a thousand.
    pub(crate) fn waited(&self, now: u64) -> u64 {
        u64::from(((now >> TIME_SHIFT) as u32).wrapping_sub(self.arrival)) << TIME_SHIFT
    }
}

/// The workers' end of the ring.
struct Filling {
    retained: Arc<Retained>,
    /// Time of the list that is being copied; with several at once, that of any of them.
    arrival: AtomicU32,
}

// SAFETY: `buffer` returns a slot of the ring's own memory, which lives as long as the ring, has SLOT_LEN bytes, and is
// only accessed through pointers.
unsafe impl RingBacking for Filling {
    type Own = ();
    type Entry = ();

    const PREFIX: usize = PREFIX;
    const FULL: DropReason = DropReason::QueueFull;

    fn size(&self) -> u32 {
        self.retained.size()
    }

    #[inline]
    fn posted(&self, (): &mut (), _published: u32) -> Result<u32, Fault> {
        Ok(self.retained.taken.load(Ordering::Acquire).wrapping_add(self.size()))
    }

    #[inline]
    fn buffer(&self, (): &mut (), seq: u32, (): &mut ()) -> Result<Buffer, Fault> {
        Ok(Buffer { at: self.retained.slot(seq), capacity: SLOT_LEN })
    }

    #[inline]
    fn prefix(&self, output: &Output<'_>, _entries: u16, to: &mut [u8]) {
        if let Some((header, arrival)) = to.split_first_chunk_mut() {
            // The header's buffer count has room for the class.
            *header = virtio_net::encode(&output.offload(), output.class());
            if let Some(to) = arrival.first_chunk_mut() {
                *to = self.arrival.load(Ordering::Relaxed).to_le_bytes();
            }
        }
    }

    #[inline]
    fn fill(&self, seq: u32, (): &mut (), len: u32, more: bool) {
        if let Some(field) = self.retained.lens.get(seq as usize & (self.retained.lens.len() - 1)) {
            field.store(if more { len | MORE } else { len }, Ordering::Relaxed);
        }
    }

    #[inline]
    fn publish(&self, (): &mut (), seq: u32) {
        self.retained.published.store(seq, Ordering::Release);
    }

    /// The doorbell of the drain is rung once after the batch.
    #[inline]
    fn notify(&self) -> Option<RawFd> {
        None
    }

    fn faulted(&self) -> bool {
        false
    }
}

/// The queue as workers fill it. See the module.
pub(crate) struct ClassQueue {
    ring: TxRing<Filling>,
    pub(crate) retained: Arc<Retained>,
}

/// What became of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Put {
    /// Packets that wait now.
    pub(crate) packets: u32,
    /// Packets without room.
    pub(crate) full: u32,
}

impl ClassQueue {
    /// A queue of so many slots, rounded up to a power of two.
    pub(crate) fn new(slots: u32) -> Self {
        let retained = Retained::new(slots);
        let filling = Filling { retained: retained.clone(), arrival: AtomicU32::new(0) };
        Self { ring: TxRing::new(filling, (), 0), retained }
    }

    /// Copies the packets of a list, as far as there is room. The caller rings the drain.
    pub(crate) fn put(&self, list: &mut OutputList<'_>, now: u64, tools: &mut Tools) -> Result<Put, Fault> {
        self.ring.backing().arrival.store((now >> TIME_SHIFT) as u32, Ordering::Relaxed);
        let counters = QueueCounters::default();
        let wanted = list.len() as u32;
        self.ring.deliver(list, &counters, tools)?;
        tools.published = false;
        // A list has at most as many outputs as a batch may have.
        let packets = counters.packets() as u32;
        Ok(Put { packets, full: wanted - packets })
    }
}

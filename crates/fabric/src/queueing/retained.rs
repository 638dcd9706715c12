//! A class's queue: a ring in the switch's own memory, into which packets are copied once.
//!
//! To the fabric the ring is like a client's, filled by [`TxRing`]: by several workers at once, in order, without
//! waiting. A packet takes as many slots of [`SLOT_LEN`] bytes as it needs; beside the slots are its class, the time at
//! which it came and its offload metadata, so that a short packet takes one cache line. One reader takes packets out: a
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
use crate::rx::{MAX_PACKET, MIN_PACKET, RxBatch};
use crate::slab::Slab;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Bytes of a slot.
pub(crate) const SLOT_LEN: u32 = 2048;
/// Bytes from one slot to the next: an odd number of cache lines, so that slots begin in different sets of a cache.
const STRIDE: usize = SLOT_LEN as usize + 64;
/// Cycles of the unit of [`RetainedPacket::arrival`], as a power of two.
const TIME_SHIFT: u32 = 10;

/// What is beside a slot.
#[derive(Debug, Default)]
#[repr(align(16))]
struct Beside {
    /// Used bytes of the slot; flags; of the packet that begins in the slot, its class, from bit [`CLASS`] on.
    packet: AtomicU64,
    /// When the packet that begins in the slot came.
    arrival: AtomicU32,
}

/// In [`Beside::packet`]: the packet continues in the next slot.
const MORE: u64 = 1 << 31;
/// In [`Beside::packet`]: the packet has offload metadata.
const WORK: u64 = 1 << 48;
/// First bit of the class in [`Beside::packet`].
const CLASS: u32 = 32;

/// The class in [`Beside::packet`].
#[inline(always)]
fn class_of(packet: u64) -> u16 {
    (packet >> CLASS) as u16
}

/// Ring of retained packets. See the module.
pub(crate) struct Retained {
    memory: Slab,
    /// A power of two of them.
    beside: Box<[Beside]>,
    /// Their number less one.
    mask: u32,
    /// Offload metadata, as virtio-net's header, of packets that have some, by their first slot.
    offloads: Box<[[AtomicU32; virtio_net::HEADER_LEN / 4]]>,
    published: OwnLine,
    taken: OwnLine,
}

/// A number that one side writes and the other one reads, in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct OwnLine(AtomicU32);

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

/// Packets taken out of a ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) packets: usize,
    pub(crate) bytes: u64,
    /// Cycles that they have waited, together,
    pub(crate) waited: u64,
    /// and at most.
    pub(crate) longest: u64,
}

impl Sum {
    fn add(&mut self, packet: &RetainedPacket, now: u64) {
        let waited = packet.waited(now);
        self.packets += 1;
        self.bytes += u64::from(packet.len);
        self.waited += waited;
        self.longest = self.longest.max(waited);
    }
}

impl Retained {
    /// Creates a ring of so many slots, rounded up to a power of two.
    pub(crate) fn new(slots: u32) -> Arc<Self> {
        let slots = Self::slots(slots);
        Arc::new(Self {
            memory: Slab::new(slots as usize * STRIDE),
            beside: (0..slots).map(|_| Beside::default()).collect(),
            mask: slots - 1,
            offloads: (0..slots).map(|_| Default::default()).collect(),
            published: OwnLine::default(),
            taken: OwnLine::default(),
        })
    }

    /// Slots of a ring for which so many are wanted.
    pub(crate) fn slots(wanted: u32) -> u32 {
        wanted.clamp(1, 1 << 20).next_power_of_two()
    }

    /// Bytes of memory that a ring of so many slots takes, what is beside the slots and [`TxRing`]'s view of them included.
    pub(crate) fn bytes(slots: u32) -> u64 {
        let beside = size_of::<Beside>() + virtio_net::HEADER_LEN + size_of::<Buffer>();
        u64::from(Self::slots(slots)) * (STRIDE + beside) as u64
    }

    /// Slots of the ring.
    pub(crate) fn size(&self) -> u32 {
        self.beside.len() as u32
    }

    /// Slots in use.
    pub(crate) fn used(&self) -> u32 {
        let used =
            self.published.0.load(Ordering::Relaxed).wrapping_sub(self.taken.0.load(Ordering::Relaxed));
        // `taken` may have moved beyond the earlier value of `published`.
        if used > self.size() { 0 } else { used }
    }

    /// Whether the reader finds a packet at slot `at`.
    #[inline]
    pub(crate) fn has_packet(&self, at: u32) -> bool {
        self.published.0.load(Ordering::Acquire) != at
    }

    /// First byte of slot `seq`.
    #[inline(always)]
    fn slot(&self, seq: u32) -> NonNull<u8> {
        // SAFETY: it is less than slots * STRIDE, which is the memory's length.
        unsafe { self.memory.at(self.index(seq) * STRIDE) }
    }

    /// What is beside slot `seq`.
    #[inline(always)]
    fn beside(&self, seq: u32) -> &Beside {
        // SAFETY: the mask is less than the number of slots.
        unsafe { self.beside.get_unchecked(self.index(seq)) }
    }

    #[inline(always)]
    fn index(&self, seq: u32) -> usize {
        (seq & self.mask) as usize
    }

    /// [`Beside::packet`] of slot `seq`.
    fn packet_of(&self, seq: u32) -> u64 {
        self.beside(seq).packet.load(Ordering::Relaxed)
    }

    /// Used bytes of slot `seq`.
    fn len_of(&self, seq: u32) -> u32 {
        (self.packet_of(seq) & (MORE - 1)) as u32
    }

    /// Slot of the next unreleased packet. For the reader.
    pub(crate) fn front(&self) -> u32 {
        self.taken.0.load(Ordering::Relaxed)
    }

    /// The packet that starts in slot `at`, which is [`Retained::front`] or the end of a packet. For the reader.
    pub(crate) fn packet(&self, at: u32) -> Option<RetainedPacket> {
        let end = self.published.0.load(Ordering::Acquire);
        let (mut seq, mut len) = (at, 0);
        while seq != end {
            len += self.len_of(seq);
            let is_last = self.packet_of(seq) & MORE == 0;
            seq = seq.wrapping_add(1);
            if is_last {
                let first = self.beside(at);
                let packet = first.packet.load(Ordering::Relaxed);
                let offload = if packet & WORK == 0 { Offload::NONE } else { self.offload(at) };
                let (class, arrival) = (class_of(packet), first.arrival.load(Ordering::Relaxed));
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

    /// Keeps the metadata of the packet that begins in slot `seq`. For the worker that fills it.
    #[cold]
    fn keep_offload(&self, seq: u32, offload: &Offload) {
        let header = virtio_net::encode(offload, 0);
        let words = self.offloads.get(self.index(seq)).into_iter().flatten();
        for (word, bytes) in words.zip(header.chunks_exact(4)) {
            word.store(bytes.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes)), Ordering::Relaxed);
        }
        let packet = &self.beside(seq).packet;
        packet.store(packet.load(Ordering::Relaxed) | WORK, Ordering::Relaxed);
    }

    /// Metadata of the packet that begins in slot `at`.
    #[cold]
    fn offload(&self, at: u32) -> Offload {
        let mut header = [0; virtio_net::HEADER_LEN];
        let words = self.offloads.get(self.index(at)).into_iter().flatten();
        for (bytes, word) in header.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        // The header was encoded from valid metadata.
        virtio_net::decode(&header).unwrap_or(Offload::NONE)
    }

    /// Calls `f` with each piece of a packet's bytes, in order.
    pub(crate) fn for_each_piece(&self, packet: &RetainedPacket, mut f: impl FnMut(NonNull<u8>, u32)) {
        for i in 0..packet.slots {
            let seq = packet.first.wrapping_add(i);
            f(self.slot(seq), self.len_of(seq));
        }
    }

    /// Adds packets to a batch, from the one at slot `at` on, which it moves: until it has added `budget` bytes or more, or
    /// there is none left, or no room, or the next one [does not fit](RetainedPacket::misfit). The reader releases their
    /// slots when the batch is delivered.
    #[inline]
    pub(crate) fn add_run(&self, batch: &mut RxBatch, at: &mut u32, budget: u64, now: u64) -> Sum {
        let end = self.published.0.load(Ordering::Acquire);
        let mut sum = Sum::default();
        while *at != end && sum.bytes < budget && batch.has_room() {
            self.add_plain(batch, at, end, budget, now, &mut sum);
            if *at == end || sum.bytes >= budget || !batch.has_room() {
                break;
            }
            // One in several slots, or with metadata.
            let Some(packet) = self.packet(*at).filter(|packet| packet.misfit().is_none()) else { break };
            self.add_to(batch, &packet);
            sum.add(&packet, now);
            *at = packet.end();
        }
        sum
    }

    /// The same for packets in one slot without metadata, up to the end of the ring's memory.
    #[inline]
    fn add_plain(&self, batch: &mut RxBatch, at: &mut u32, end: u32, budget: u64, now: u64, sum: &mut Sum) {
        let slots = end.wrapping_sub(*at) as usize;
        let (bytes, now, first) = (batch.bytes, time(now), self.index(*at));
        let Some(beside) = self.beside.get(first..) else { return };
        let longest = beside.first().map_or(0, |beside| since(beside.arrival.load(Ordering::Relaxed), now));
        let (mut beside, mut slot, mut waited) = (beside.iter(), self.slot(*at), 0i64);
        let piece = |_| {
            let beside = beside.next()?;
            let packet = beside.packet.load(Ordering::Relaxed);
            // Flags make it longer than any packet.
            let len = packet & !(u64::from(u16::MAX) << CLASS);
            if len.wrapping_sub(MIN_PACKET.into()) > u64::from(MAX_PACKET - MIN_PACKET) {
                return None;
            }
            // Other workers may have looked at the clock later.
            waited += i64::from(now.wrapping_sub(beside.arrival.load(Ordering::Relaxed)).cast_signed());
            let its = slot;
            // SAFETY: the slot has its entry in `beside`, so the memory goes on for a stride.
            slot = unsafe { slot.add(STRIDE) };
            Some((its, len as u32, class_of(packet)))
        };
        // SAFETY: the slots of the packets belong to the reader until it releases them, which it does after the batch;
        // `piece` has checked their lengths.
        let added = unsafe { batch.add_plain_in_class(slots, budget.saturating_sub(sum.bytes), piece) };
        *at = at.wrapping_add(added as u32);
        sum.packets += added;
        sum.bytes += batch.bytes - bytes;
        sum.waited += waited.max(0).cast_unsigned() << TIME_SHIFT;
        // Those behind the first have come later, but for what clocks of workers differ.
        sum.longest = sum.longest.max(u64::from(longest) << TIME_SHIFT);
    }

    /// The sum of so many packets from slot `at` on, which it moves.
    pub(crate) fn sum(&self, at: &mut u32, packets: usize, now: u64) -> Sum {
        let mut sum = Sum::default();
        for _ in 0..packets {
            let Some(packet) = self.packet(*at) else { break };
            sum.add(&packet, now);
            *at = packet.end();
        }
        sum
    }

    /// Adds a packet to a batch.
    #[inline]
    fn add_to(&self, batch: &mut RxBatch, packet: &RetainedPacket) {
        self.for_each_piece(packet, |piece, len| {
            // SAFETY: the slots of the packet belong to the reader until it releases them, which it does after the
            // batch. A packet has fewer pieces than a batch allows.
            let _ = unsafe { batch.add_segment(piece, len) };
        });
        batch.end_packet_in_class(packet.offload, packet.class);
    }

    /// Returns all slots before `to` to the workers. For the reader, when no reference to them is left.
    pub(crate) fn release(&self, to: u32) {
        self.taken.0.store(to, Ordering::Release);
    }
}

impl RetainedPacket {
    /// The slot after the packet.
    pub(crate) fn end(&self) -> u32 {
        self.first.wrapping_add(self.slots)
    }

    /// Why it has no place in a batch, if so: a logic may have made it shorter or longer than a received packet can be.
    pub(crate) fn misfit(&self) -> Option<DropReason> {
        match self.len {
            len if len < MIN_PACKET => Some(DropReason::Runt),
            len if len > MAX_PACKET => Some(DropReason::Oversize),
            _ => None,
        }
    }

    /// Cycles that it has waited until `now`, to within a thousand.
    pub(crate) fn waited(&self, now: u64) -> u64 {
        u64::from(since(self.arrival, time(now))) << TIME_SHIFT
    }
}

/// The time since a packet came; none if it came after the reader had looked at the clock.
#[inline(always)]
fn since(arrival: u32, now: u32) -> u32 {
    now.wrapping_sub(arrival).cast_signed().max(0).cast_unsigned()
}

/// A time as in [`RetainedPacket::arrival`].
#[inline(always)]
fn time(cycles: u64) -> u32 {
    (cycles >> TIME_SHIFT) as u32
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

    const FULL: DropReason = DropReason::QueueFull;
    const VIEWED: bool = false;
    /// The drain's doorbell is rung once after the batch.
    const SIGNALS: bool = false;

    fn size(&self) -> u32 {
        self.retained.size()
    }

    #[inline]
    fn posted(&self, (): &mut (), _published: u32) -> Result<u32, Fault> {
        Ok(self.retained.taken.0.load(Ordering::Acquire).wrapping_add(self.size()))
    }

    fn buffer(&self, (): &mut (), seq: u32, (): &mut ()) -> Result<Buffer, Fault> {
        Ok(self.own_buffer(seq))
    }

    #[inline(always)]
    fn own_buffer(&self, seq: u32) -> Buffer {
        Buffer { at: self.retained.slot(seq), capacity: SLOT_LEN }
    }

    fn describe(&self, seq: u32, output: &Output<'_>) {
        self.begin(seq, 0, output);
    }

    fn fill(&self, seq: u32, (): &mut (), len: u32, more: bool) {
        let described = self.retained.packet_of(seq) & !u64::from(u32::MAX);
        let len = u64::from(len) | if more { MORE } else { 0 };
        self.retained.beside(seq).packet.store(described | len, Ordering::Relaxed);
    }

    #[inline(always)]
    fn fill_packet(&self, seq: u32, (): &mut (), len: u32, output: &Output<'_>) {
        self.begin(seq, len, output);
    }

    #[inline]
    fn publish(&self, (): &mut (), seq: u32) {
        self.retained.published.0.store(seq, Ordering::Release);
    }

    fn notify(&self) -> Option<RawFd> {
        None
    }

    fn faulted(&self) -> bool {
        false
    }
}

impl Filling {
    /// Keeps what is beside a packet that begins in slot `seq`, which holds `len` bytes of it.
    #[inline(always)]
    fn begin(&self, seq: u32, len: u32, output: &Output<'_>) {
        let beside = self.retained.beside(seq);
        let packet = u64::from(output.class()) << CLASS | u64::from(len);
        beside.arrival.store(self.arrival.load(Ordering::Relaxed), Ordering::Relaxed);
        beside.packet.store(packet, Ordering::Relaxed);
        if !output.is_plain() {
            self.retained.keep_offload(seq, &output.offload());
        }
    }
}

/// The queue as workers fill it. See the module.
pub(crate) struct ClassQueue {
    ring: TxRing<Filling>,
    pub(crate) retained: Arc<Retained>,
}

impl ClassQueue {
    /// A queue of so many slots, rounded up to a power of two.
    pub(crate) fn new(slots: u32) -> Self {
        let retained = Retained::new(slots);
        let filling = Filling { retained: retained.clone(), arrival: AtomicU32::new(0) };
        Self { ring: TxRing::new(filling, (), 0), retained }
    }

    /// Copies the packets of a list, as far as there is room; returns the number of those without. The caller rings the
    /// drain.
    pub(crate) fn put(&self, list: &mut OutputList<'_>, now: u64, tools: &mut Tools) -> Result<u32, Fault> {
        self.ring.backing().arrival.store(time(now), Ordering::Relaxed);
        let counters = QueueCounters::default();
        let wanted = list.len() as u32;
        self.ring.deliver(list, &counters, tools)?;
        // A list has at most as many outputs as a batch may have.
        Ok(wanted.saturating_sub(counters.packets() as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_less_than_no_time() {
        assert_eq!((since(3, 5), since(u32::MAX, 2)), (2, 3));
        // It came after the reader had looked at the clock.
        assert_eq!((since(5, 3), since(2, u32::MAX)), (0, 0));
    }
}

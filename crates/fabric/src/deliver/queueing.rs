//! Packets that outlive their batch: [`Queued`] copies them once, into a ring in the switch's own memory.
//!
//! To the fabric the ring is like a client's, filled by [`TxRing`]: by several workers at once, in order, without
//! waiting; packets that do not fit are dropped and counted as `ring-full`. A packet takes as many slots of
//! [`SLOT_LEN`] bytes as it needs, with its offload metadata in front (as virtio-net's header). One reader takes
//! packets out: a worker's [drain](crate::worker::tasks).
//!
//! Invariants: slots before `taken` and after `published` belong to the workers that fill them, those between to the
//! reader. `published` is stored after the data that it publishes and loaded before they are read, `taken` the other
//! way round.

use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use packet::offload::Offload;
use packet::virtio_net;

use crate::counters::{DropReason, Drops, QueueCounters};
use crate::deliver::egress::Egress;
use crate::deliver::tools::Tools;
use crate::deliver::tx_ring::{Buffer, RingBacking, TxRing};
use crate::fault::Fault;
use crate::lists::output::{Output, OutputList};
use crate::slab::Slab;
use crate::sync::{AtomicU32, Ordering};
use crate::wake::doorbell::{Bell, Doorbell, Ring};

/// Bytes of a slot.
pub(crate) const SLOT_LEN: u32 = 2048;
/// The highest bit of a slot's length: the packet continues in the next slot.
const MORE: u32 = 1 << 31;

/// Ring of retained packets. See the module.
pub(crate) struct Retained<B> {
    memory: Slab,
    /// Used bytes of each slot, and [`MORE`].
    lens: Box<[AtomicU32]>,
    published: AtomicU32,
    taken: AtomicU32,
    /// Rung for the reader.
    pub(crate) doorbell: Doorbell<B>,
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
}

impl<B> Retained<B> {
    /// Creates a ring of so many slots, rounded up to a power of two.
    pub(crate) fn new(slots: u32, bell: B) -> Arc<Self> {
        let slots = slots.clamp(1, 1 << 20).next_power_of_two();
        Arc::new(Self {
            memory: Slab::new((slots * SLOT_LEN) as usize),
            lens: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            published: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            doorbell: Doorbell::new(bell),
        })
    }

    /// First byte of slot `seq`.
    fn slot(&self, seq: u32) -> NonNull<u8> {
        let at = (seq as usize & (self.lens.len() - 1)) * SLOT_LEN as usize;
        // SAFETY: `at` is less than slots * SLOT_LEN, which is the memory's length.
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
                let header = unsafe { self.slot(at).cast::<[u8; virtio_net::HEADER_LEN]>().read() };
                // The header was encoded from valid metadata.
                let offload = virtio_net::decode(&header).unwrap_or(Offload::NONE);
                let len = len.saturating_sub(virtio_net::HEADER_LEN as u32);
                let [.., low, high] = header;
                let class = u16::from_le_bytes([low, high]);
                return Some(RetainedPacket { first: at, slots: seq.wrapping_sub(at), len, offload, class });
            }
        }
        None
    }

    /// Calls `f` with each piece of a packet's bytes, in order.
    pub(crate) fn for_each_piece(&self, packet: &RetainedPacket, mut f: impl FnMut(NonNull<u8>, u32)) {
        for i in 0..packet.slots {
            let seq = packet.first.wrapping_add(i);
            let skip = if i == 0 { virtio_net::HEADER_LEN as u32 } else { 0 };
            let len = (self.len_of(seq) & !MORE).saturating_sub(skip);
            // SAFETY: at least `skip` bytes of the slot are used.
            f(unsafe { self.slot(seq).add(skip as usize) }, len);
        }
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
}

impl<B: Bell> Ring for Retained<B> {
    fn ring(&self) {
        self.doorbell.ring();
    }
}

/// The workers' end of the ring.
struct Filling<B>(Arc<Retained<B>>);

// SAFETY: `buffer` returns a slot of the ring's own memory, which lives as long as the ring, has SLOT_LEN bytes, and is
// only accessed through pointers.
unsafe impl<B: Bell> RingBacking for Filling<B> {
    type Own = ();
    type Entry = ();

    const PREFIX: usize = virtio_net::HEADER_LEN;

    fn size(&self) -> u32 {
        self.0.lens.len() as u32
    }

    #[inline]
    fn posted(&self, (): &mut (), _published: u32) -> Result<u32, Fault> {
        Ok(self.0.taken.load(Ordering::Acquire).wrapping_add(self.size()))
    }

    #[inline]
    fn buffer(&self, (): &mut (), seq: u32, (): &mut ()) -> Result<Buffer, Fault> {
        Ok(Buffer { at: self.0.slot(seq), capacity: SLOT_LEN })
    }

    fn prefix(&self, output: &Output<'_>, _entries: u16, to: &mut [u8]) {
        if let Some(to) = to.first_chunk_mut() {
            // The header's buffer count has room for the class.
            *to = virtio_net::encode(&output.offload(), output.class());
        }
    }

    #[inline]
    fn fill(&self, seq: u32, (): &mut (), len: u32, more: bool) {
        if let Some(field) = self.0.lens.get(seq as usize & (self.0.lens.len() - 1)) {
            field.store(if more { len | MORE } else { len }, Ordering::Relaxed);
        }
    }

    #[inline]
    fn publish(&self, (): &mut (), seq: u32) {
        self.0.published.store(seq, Ordering::Release);
    }

    /// [`Queued`] rings, once after the batch.
    #[inline]
    fn notify(&self) -> Option<RawFd> {
        None
    }

    fn faulted(&self) -> bool {
        false
    }
}

/// A destination whose packets are retained until a drain delivers them. Packets that do not fit are dropped and
/// counted; the rest are counted on delivery.
pub(crate) struct Queued<B: Bell> {
    ring: TxRing<Filling<B>>,
    retained: Arc<Retained<B>>,
    /// Where the drain delivers to.
    behind: Arc<dyn Egress>,
}

impl<B: Bell> Queued<B> {
    /// Retains packets for `behind` in this ring.
    pub(crate) fn new(retained: Arc<Retained<B>>, behind: Arc<dyn Egress>) -> Self {
        Self { ring: TxRing::new(Filling(retained.clone()), (), 0), retained, behind }
    }
}

impl<B: Bell + 'static> Egress for Queued<B> {
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<(), Fault> {
        let retained = QueueCounters::default();
        self.ring.deliver(list, &retained, tools)?;
        let retained = retained.snapshot();
        let mut drops = Drops::default();
        for (reason, n) in DropReason::ALL.iter().zip(retained.drops) {
            if n > 0 {
                // A list has at most as many outputs as a batch may have.
                drops.add(*reason, n as u32);
            }
        }
        counters.add_drops(&mut drops);
        if retained.packets > 0 {
            tools.notifier.add_bell(&self.retained);
        }
        Ok(())
    }

    /// What is retained, and what waits behind.
    fn depth(&self, counters: &QueueCounters) -> u32 {
        self.ring.depth(counters).saturating_add(self.behind.depth(counters))
    }
}

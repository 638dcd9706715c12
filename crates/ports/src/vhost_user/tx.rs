//! Packets to the driver: one ring as a destination of the fabric, by [`fabric::TxRing`].
//!
//! An entry of the fabric is a chain of the driver's, taken in advance. A packet goes after its header into one chain,
//! or, where buffers may be merged, into as many as it takes.
//!
//! Invariants:
//! - A chain is given back with a packet in it, in the order in which chains were taken. Unused chains are put back
//!   when the ring stops.
//! - Writes stay within the segments of chains that were taken.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use fabric::{Buffer, Egress, Fault, Output, RingBacking, TxRing};
use packet::offload::{Gso, Offload};
use packet::virtio_net;
use vhost_user::dirty_log::DirtyLog;
use vhost_user::session::GuestQueue;
use vhost_user::{Chain, GuestMemory, Segment};

use super::device::{Call, FaultReason, Form};
use super::segment_arena::{InUse, Place, SegmentArena};

/// Backing of a ring for the fabric; packets have a header of `HEADER` bytes in front.
struct Tx<const HEADER: usize> {
    ring: usize,
    form: Form,
    size: u16,
    call: Arc<Call>,
    /// Whether the driver waits for a signal that no worker has sent yet.
    wanted: AtomicBool,
    memory: Arc<GuestMemory>,
    /// Further segments of chains.
    further: SegmentArena,
    /// Log of writes during a migration.
    log: Option<Arc<DirtyLog>>,
    fault_reason: Arc<FaultReason>,
}

/// State that one worker at a time may use.
struct Own {
    queue: GuestQueue,
    chain: Box<Chain>,
    /// Chains taken and not given back, and their slots in the ring.
    taken: u32,
    slots: u16,
    /// Cells of the arena in use.
    further: InUse,
    position: Arc<AtomicU32>,
}

/// Data of a chain in addition to its first segment.
#[derive(Default)]
struct Entry {
    id: u16,
    slots: u16,
    /// Bytes written to it.
    written: u32,
    /// Its further segments; most have none.
    further: Place,
    /// Length of the whole chain in bytes, if it has further segments.
    capacity: u32,
}

/// Makes the destination for a ring of `size` entries.
pub(super) fn egress(
    ring: usize,
    size: u16,
    mut queue: GuestQueue,
    form: Form,
    call: Arc<Call>,
    position: Arc<AtomicU32>,
    fault_reason: Arc<FaultReason>,
) -> Arc<dyn Egress> {
    fn with<const HEADER: usize>(tx: Tx<HEADER>, own: Own) -> Arc<dyn Egress> {
        Arc::new(TxRing::new(tx, own, 0))
    }
    // Buffers are checked when there is a packet, so the driver need not signal new ones.
    queue.set_kicks(false);
    // It learns how many chains the driver posts.
    queue.unprocessed();
    let (memory, log, wanted) = (queue.memory().clone(), queue.log().cloned(), AtomicBool::new(false));
    let (further, in_use) = SegmentArena::new(size.into());
    let own = Own { queue, chain: Box::default(), taken: 0, slots: 0, further: in_use, position };
    match form.header {
        10 => with(Tx::<10> { ring, form, size, call, wanted, memory, further, log, fault_reason }, own),
        _ => with(Tx::<12> { ring, form, size, call, wanted, memory, further, log, fault_reason }, own),
    }
}

impl<const HEADER: usize> Tx<HEADER> {
    /// Limits the metadata of a packet to the features that the driver negotiated.
    #[inline]
    fn negotiated(&self, offload: &Offload) -> Offload {
        Offload {
            csum_valid: offload.csum_valid && self.form.verified,
            // A driver without this feature would at worst repeat CWR in each segment that it cuts itself.
            ecn: offload.ecn && self.form.ecn && offload.gso != Gso::None,
            ..*offload
        }
    }
}

impl<const HEADER: usize> Tx<HEADER> {
    /// Logs what was written to a chain.
    #[cold]
    fn log_written(&self, own: &Own, first: &Buffer, entry: &Entry) {
        let (mut segment, mut written) = (Segment { at: first.at, len: first.capacity }, entry.written);
        for i in 0.. {
            own.queue.log_written(&[segment], written);
            written = written.saturating_sub(segment.len);
            // SAFETY: `buffer` has set the place, and the entry is being handed over just now.
            let Some(next) = (unsafe { self.further.get(entry.further, i) }).filter(|_| written > 0) else {
                break;
            };
            segment = next;
        }
    }
}

// SAFETY: a buffer is a segment that was translated in the memory that `self.memory` keeps mapped; faults there are
// caught, and guest memory is never referred to, only copied to.
unsafe impl<const HEADER: usize> RingBacking for Tx<HEADER> {
    type Own = Own;
    type Entry = Entry;

    const PREFIX: usize = HEADER;
    const CHAINED: bool = true;
    const ONE_BY_ONE: bool = true;

    #[inline]
    fn size(&self) -> u32 {
        // A packed ring may have any size.
        u32::from(self.size).next_power_of_two()
    }

    #[inline]
    fn posted(&self, own: &mut Own, published: u32) -> Result<u32, Fault> {
        let available = own.queue.available().map_err(|error| self.fault_reason.set(self.ring, error))?;
        let available = available.min(self.further.room(&mut own.further, published));
        Ok(published.wrapping_add(own.taken).wrapping_add(available.into()))
    }

    #[inline(always)]
    fn buffer(&self, own: &mut Own, seq: u32, entry: &mut Entry) -> Result<Buffer, Fault> {
        let Own { queue, chain, taken, slots, further, .. } = own;
        if let Some((segment, id)) = queue.plain(0, true)
            && segment.len >= HEADER as u32
        {
            queue.take_plain(1);
            (*taken, *slots) = (*taken + 1, *slots + 1);
            (entry.id, entry.slots, entry.further) = (id, 1, Place::default());
            return Ok(Buffer { at: segment.at, capacity: segment.len });
        }
        // A chain that was available before is gone: only a misbehaving driver does this.
        if !queue.take(chain).map_err(|error| self.fault_reason.set(self.ring, error))? {
            return Err(self.fault_reason.set(self.ring, "a chain that was available has disappeared"));
        }
        *taken += 1;
        *slots += chain.slots();
        (entry.id, entry.slots, entry.further) = (chain.id(), chain.slots(), Place::default());
        let room = chain.writable_bytes();
        match chain.writable() {
            [first, rest @ ..] if room >= HEADER as u32 => {
                if !rest.is_empty() {
                    let stored = self.further.store(further, seq, rest);
                    // `posted` offers no more chains than fit.
                    entry.further = stored
                        .ok_or_else(|| self.fault_reason.set(self.ring, "more chains than were offered"))?;
                    entry.capacity = room;
                }
                Ok(Buffer { at: first.at, capacity: first.len })
            }
            _ => {
                let what = format_args!("receive buffer of {room} bytes, less than a header of {HEADER}");
                Err(self.fault_reason.set(self.ring, what))
            }
        }
    }

    #[inline(always)]
    fn expect_publish(&self, own: &mut Own, entries: u32) {
        own.queue.expect_publish(entries as u16);
    }

    #[inline]
    fn next_buffer(&self, entry: &Entry, i: usize) -> Option<Buffer> {
        // SAFETY: `buffer` has set the place, and the fabric asks only about entries that are not handed over.
        let segment = unsafe { self.further.get(entry.further, i.checked_sub(1)?) }?;
        Some(Buffer { at: segment.at, capacity: segment.len })
    }

    #[inline(always)]
    fn capacity(&self, entry: &Entry, first: &Buffer) -> u32 {
        if entry.further.count == 0 { first.capacity } else { entry.capacity }
    }

    #[inline]
    fn spans_entries(&self) -> bool {
        self.form.mergeable
    }

    #[inline(always)]
    fn prefix(&self, output: &Output<'_>, entries: u16, to: &mut [u8]) {
        let header = match output.is_plain() {
            true => virtio_net::encode(&Offload::NONE, entries),
            false => virtio_net::encode(&self.negotiated(&output.offload()), entries),
        };
        if let (Some(to), Some(header)) = (to.get_mut(..HEADER), header.get(..HEADER)) {
            to.copy_from_slice(header);
        }
    }

    #[inline(always)]
    fn fill(&self, _: u32, entry: &mut Entry, len: u32, _more: bool) {
        entry.written = len;
    }

    #[inline(always)]
    fn hand_over(&self, own: &mut Own, first: &Buffer, entry: &mut Entry) {
        own.taken = own.taken.saturating_sub(1);
        own.slots = own.slots.saturating_sub(entry.slots);
        if self.log.is_some() {
            self.log_written(own, first, entry);
        }
        own.queue.give_back(entry.id, entry.slots, entry.written);
    }

    #[inline]
    fn publish(&self, own: &mut Own, _: u32) {
        own.queue.publish();
        if own.queue.wants_call() {
            self.wanted.store(true, Ordering::Relaxed);
        }
    }

    fn waiting(&self, own: &mut Own, _published: u32) -> Result<u32, Fault> {
        Ok(own.queue.unprocessed().into())
    }

    fn close(&self, own: &mut Own) {
        own.settle();
    }

    #[inline]
    fn notify(&self) -> Option<RawFd> {
        // Several workers may have published: one of them signals.
        let wanted = self.wanted.load(Ordering::Relaxed) && self.wanted.swap(false, Ordering::Relaxed);
        if wanted { self.call.fd() } else { None }
    }

    #[inline]
    fn faulted(&self) -> bool {
        self.memory.faulted() || self.log.as_ref().is_some_and(|log| log.faulted())
    }
}

impl Own {
    /// Undoes the chains taken and not given back, and stores the ring's position.
    fn settle(&mut self) {
        // In a packed ring the first of these undoes all.
        for _ in 0..std::mem::take(&mut self.taken) {
            self.queue.untake(std::mem::take(&mut self.slots));
        }
        self.position.store(self.queue.base(), Ordering::Release);
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.settle();
    }
}

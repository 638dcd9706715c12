//! Packets to the driver: one ring as a destination of the fabric, by [`fabric::TxRing`].
//!
//! An entry of the fabric is a chain of the driver's, taken ahead of use. A packet goes behind its header into one chain,
//! or, where buffers may be merged, into as many as it takes.
//!
//! Invariants:
//! - A chain is given back with a packet in it, in the order in which chains were taken. Those that no packet went into
//!   are put back when the ring stops.
//! - Nothing is written but within the segments of chains that were taken.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use fabric::{Buffer, Egress, Fault, Output, RingBacking, TxRing};
use packet::offload::{Gso, Offload};
use packet::virtio_net;
use vhost_user::dirty_log::DirtyLog;
use vhost_user::session::GuestQueue;
use vhost_user::{Chain, GuestMemory, Segment};

use super::device::{Blame, Call, Form};
use super::further::{Further, InUse, Place};

/// A ring as the fabric sees it; packets have a header of so many bytes in front.
struct Tx<const HEADER: usize> {
    ring: usize,
    form: Form,
    size: u16,
    call: Arc<Call>,
    /// Whether the driver waits for a signal that nobody has given yet.
    wanted: AtomicBool,
    memory: Arc<GuestMemory>,
    /// What chains have beside their first segments.
    further: Further,
    /// Where what is written is logged, while a migration is under way.
    log: Option<Arc<DirtyLog>>,
    blame: Arc<Blame>,
}

/// What one worker at a time may use.
struct Own {
    queue: GuestQueue,
    chain: Box<Chain>,
    /// Chains that were taken and not given back, and the slots of the ring that they have.
    taken: u32,
    slots: u16,
    /// Of the arena of further segments.
    further: InUse,
    position: Arc<AtomicU32>,
}

/// What is known of a chain beside its first segment.
#[derive(Default)]
struct Entry {
    id: u16,
    slots: u16,
    /// Bytes written to it.
    written: u32,
    /// Its further segments; most have none.
    further: Place,
    /// Bytes of the whole chain, if it has further segments.
    capacity: u32,
}

/// A ring to deliver to. `size` are its entries.
pub(super) fn egress(
    ring: usize,
    size: u16,
    mut queue: GuestQueue,
    form: Form,
    call: Arc<Call>,
    position: Arc<AtomicU32>,
    blame: Arc<Blame>,
) -> Arc<dyn Egress> {
    fn with<const HEADER: usize>(tx: Tx<HEADER>, own: Own) -> Arc<dyn Egress> {
        Arc::new(TxRing::new(tx, own, 0))
    }
    // Buffers are looked for when there is a packet: that there are more is no news.
    queue.set_kicks(false);
    let (memory, log, wanted) = (queue.memory().clone(), queue.log().cloned(), AtomicBool::new(false));
    let (further, in_use) = Further::new(size.into());
    let own = Own { queue, chain: Box::default(), taken: 0, slots: 0, further: in_use, position };
    match form.header {
        10 => with(Tx::<10> { ring, form, size, call, wanted, memory, further, log, blame }, own),
        _ => with(Tx::<12> { ring, form, size, call, wanted, memory, further, log, blame }, own),
    }
}

impl<const HEADER: usize> Tx<HEADER> {
    /// What a driver is told of a packet: no more than it has agreed to hear.
    #[inline]
    fn claims(&self, offload: &Offload) -> Offload {
        Offload {
            csum_valid: offload.csum_valid && self.form.verified,
            // Who does not know of it would at worst repeat CWR in each segment that it cuts itself.
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

// SAFETY: a buffer is a segment that was translated in the memory that `self.memory` keeps mapped; faults there are caught,
// and guest memory is never referred to, only copied to.
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
        let available = own.queue.available().map_err(|error| self.blame.put(self.ring, error))?;
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
        // What was available a moment ago is not any more: that is no driver that means well.
        if !queue.take(chain).map_err(|error| self.blame.put(self.ring, error))? {
            return Err(self.blame.put(self.ring, "a chain that was available is not any more"));
        }
        *taken += 1;
        *slots += chain.slots();
        (entry.id, entry.slots, entry.further) = (chain.id(), chain.slots(), Place::default());
        let room = chain.writable_bytes();
        match chain.writable() {
            [first, rest @ ..] if room >= HEADER as u32 => {
                if !rest.is_empty() {
                    let kept = self.further.keep(further, seq, rest);
                    // `posted` offers no more chains than fit.
                    entry.further =
                        kept.ok_or_else(|| self.blame.put(self.ring, "more chains than were offered"))?;
                    entry.capacity = room;
                }
                Ok(Buffer { at: first.at, capacity: first.len })
            }
            _ => {
                let what = format_args!("receive buffer of {room} bytes, less than a header of {HEADER}");
                Err(self.blame.put(self.ring, what))
            }
        }
    }

    #[inline(always)]
    fn expect_publish(&self, own: &mut Own, entries: u32) {
        own.queue.expect_publish(entries as u16);
    }

    #[inline]
    fn next_buffer(&self, entry: &Entry, i: usize) -> Option<Buffer> {
        // SAFETY: `buffer` has set the place, and the fabric asks of no entry that was handed over.
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
            false => virtio_net::encode(&self.claims(&output.offload()), entries),
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

    fn close(&self, own: &mut Own) {
        own.settle();
    }

    #[inline]
    fn notify(&self) -> Option<RawFd> {
        // Several workers may have published: one of them tells.
        let wanted = self.wanted.load(Ordering::Relaxed) && self.wanted.swap(false, Ordering::Relaxed);
        if wanted { self.call.fd() } else { None }
    }

    #[inline]
    fn faulted(&self) -> bool {
        self.memory.faulted() || self.log.as_ref().is_some_and(|log| log.faulted())
    }
}

impl Own {
    /// Undoes what was taken and not given back, and says where the ring stands.
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

//! Packets to the driver: one ring as a destination of the fabric.
//!
//! A packet goes behind its header into one chain of the driver's, or, where buffers may be merged, into as many as it
//! takes. One worker at a time delivers: it takes chains, copies, gives them back and publishes them under one lock.
//! The lock is held for a list's copies and never while waiting for the driver.
//!
//! Invariants:
//! - A chain is given back with a packet in it, or not taken: what a packet that does not fit had taken is put back.
//! - Nothing is written but within the segments of chains that were taken.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use fabric::counters::Drops;
use fabric::{DropReason, Egress, Fault, Output, OutputList, QueueCounters, Tools};
use packet::offload::{Gso, Offload};
use packet::virtio_net;
use vhost_user::session::GuestQueue;
use vhost_user::{Chain, Segment};

use super::device::{Blame, Call, Form};

/// Most chains that one packet may take.
const MAX_MERGED: usize = 128;
/// Most segments in them.
const MAX_SEGMENTS: usize = 2 * MAX_MERGED;

pub(super) struct Tx {
    ring: usize,
    form: Form,
    call: Arc<Call>,
    state: Mutex<State>,
    position: Arc<AtomicU32>,
    blame: Arc<Blame>,
}

struct State {
    queue: GuestQueue,
    chain: Box<Chain>,
    /// Chains taken for a packet.
    merged: Vec<Merged>,
    /// Their segments, one after the other.
    segments: Vec<Segment>,
    dead: bool,
}

struct Merged {
    id: u16,
    slots: u16,
    capacity: u32,
}

/// Why a packet was not put into the ring.
enum Trouble {
    Drop(DropReason),
    Fault(Fault),
}

impl Tx {
    pub(super) fn new(
        ring: usize,
        queue: GuestQueue,
        form: Form,
        call: Arc<Call>,
        position: Arc<AtomicU32>,
        blame: Arc<Blame>,
    ) -> Self {
        let (merged, segments) = (Vec::with_capacity(MAX_MERGED), Vec::with_capacity(MAX_SEGMENTS));
        let state = State { queue, chain: Box::default(), merged, segments, dead: false };
        Self { ring, form, call, state: Mutex::new(state), position, blame }
    }

    /// Spins rather than sleeps: the holder copies a batch at most and waits for nobody.
    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut tries = 0u32;
        loop {
            match self.state.try_lock() {
                Ok(state) => return state,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    tries += 1;
                    if tries.is_multiple_of(256) {
                        std::thread::yield_now();
                    }
                    core::hint::spin_loop();
                }
            }
        }
    }

    /// Takes the chains that `len` bytes need.
    fn take(&self, state: &mut State, len: u32) -> Result<(), Trouble> {
        state.merged.clear();
        state.segments.clear();
        let mut capacity = 0u32;
        while capacity < len {
            match state.queue.take(&mut state.chain) {
                Ok(true) => {}
                Ok(false) => {
                    state.put_back();
                    return Err(Trouble::Drop(DropReason::RingFull));
                }
                Err(error) => return Err(Trouble::Fault(self.blame.put(self.ring, error))),
            }
            let room = state.chain.writable_bytes();
            if room < self.form.header {
                let needed = self.form.header;
                let what = format_args!("receive buffer of {room} bytes, less than a header of {needed}");
                return Err(Trouble::Fault(self.blame.put(self.ring, what)));
            }
            let (id, slots) = (state.chain.id(), state.chain.slots());
            let pieces = state.chain.writable();
            let full = state.merged.len() == MAX_MERGED || state.segments.len() + pieces.len() > MAX_SEGMENTS;
            let alone = !self.form.mergeable && room < len;
            if full || alone {
                state.queue.untake(slots);
                state.put_back();
                // Buffers that are too small are no matter of time.
                return Err(Trouble::Drop(DropReason::ExceedsMtu));
            }
            state.segments.extend_from_slice(pieces);
            state.merged.push(Merged { id, slots, capacity: room });
            capacity = capacity.saturating_add(room);
        }
        Ok(())
    }

    /// Puts one packet into the ring, staged to be published.
    #[inline]
    fn put(&self, state: &mut State, output: &Output<'_>) -> Result<(), Trouble> {
        let len = output.len() + self.form.header;
        self.take(state, len)?;
        let header = virtio_net::encode(&self.claims(output.offload()), state.merged.len() as u16);
        let mut to = Filling { segments: &state.segments, at: 0, used: 0 };
        if let Some(header) = header.get(..self.form.header as usize) {
            to.write(header.as_ptr(), header.len());
        }
        to.write(output.header().as_ptr(), output.header().len());
        output.for_each_payload(|from, n| to.write(from, n));
        let mut left = len;
        for merged in &state.merged {
            let written = left.min(merged.capacity);
            left -= written;
            state.queue.give_back(merged.id, merged.slots, written);
        }
        Ok(())
    }

    /// What the driver is told of a packet: no more than it has agreed to hear.
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

impl State {
    /// Undoes the taking of all chains of a packet.
    fn put_back(&mut self) {
        for merged in self.merged.drain(..).rev() {
            self.queue.untake(merged.slots);
        }
    }
}

/// Segments that are filled one after the other.
struct Filling<'a> {
    segments: &'a [Segment],
    /// The segment that is being filled, and how far.
    at: usize,
    used: u32,
}

impl Filling<'_> {
    /// Copies `n` bytes to where the last ones ended; what there is no room for is left out.
    #[inline]
    fn write(&mut self, mut from: *const u8, mut n: usize) {
        while n > 0 {
            let Some(segment) = self.segments.get(self.at) else { return };
            let now = n.min((segment.len - self.used) as usize);
            // SAFETY: `from` is readable for `n` bytes: private memory, or a sender's whose faults are caught. The segment was
            // translated and its memory is kept; `now` bytes from `used` on are within it. The two may overlap where a packet
            // goes back to its sender.
            unsafe {
                std::ptr::copy(from, segment.at.as_ptr().add(self.used as usize), now);
                from = from.add(now);
            }
            n -= now;
            self.used += now as u32;
            if self.used == segment.len {
                (self.at, self.used) = (self.at + 1, 0);
            }
        }
    }
}

impl Egress for Tx {
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<(), Fault> {
        let mut drops = Drops::default();
        let (mut packets, mut bytes, mut fault) = (0, 0, None);
        let mut state = self.lock();
        let state = &mut *state;
        list.retain(|output| {
            let reason = if state.dead {
                DropReason::PortDown
            } else {
                match self.put(state, output) {
                    Ok(()) => {
                        packets += 1;
                        bytes += u64::from(output.len());
                        return Ok(());
                    }
                    Err(Trouble::Drop(reason)) => reason,
                    Err(Trouble::Fault(found)) => {
                        (state.dead, fault) = (true, Some(found));
                        DropReason::PortDown
                    }
                }
            };
            drops.add(reason, 1);
            Err(reason)
        });
        if packets > 0 {
            state.queue.publish();
            counters.add_batch(packets, bytes);
            if state.queue.wants_call() {
                self.call.tell(tools);
            }
        }
        counters.add_drops(&mut drops);
        // Memory that was taken away reads as zeros, which looks like any other fault.
        if state.queue.faulted() && (fault.is_some() || !state.dead) {
            state.dead = true;
            return Err(Fault::Memory);
        }
        fault.map_or(Ok(()), Err)
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        self.position.store(self.lock().queue.base(), Ordering::Release);
    }
}

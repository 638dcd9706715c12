//! The copies that a switch makes, without the switch: packets in turn to rings in turn, with the C library's `memcpy`,
//! each buffer fetched in time. It shows the time that more memory costs.
//!
//! With locks, batches are delivered ring by ring, as by a switch of several workers: each ring's lock is taken, its packets
//! are copied, their lengths and the ring's index are stored, and the lock is released. Which packets are a ring's is known
//! beforehand. It shows the time that more rings of that kind cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fabric::{Slab, prefetch_write};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

use crate::memory;
use crate::replay::Packets;
use crate::rig::{Interval, Result, Subject, WARM_UP, cpu_time};
use crate::sink::{Shape, Sink};

/// Copies between two looks at the clock.
const BURST: u64 = 64;

/// Bytes of a packet's length, which is stored behind the packet.
const DESCRIPTOR: usize = 4;

/// Packets ahead of the copy for which buffers are fetched.
const AHEAD: u64 = 16;

/// Copies packets to the buffers of rings.
pub struct BareCopy {
    packets: Arc<Packets>,
    buffers: Slab,
    shape: Shape,
    rings: u64,
    cpu: usize,
    /// A lock and an index for each ring, and the packets of a batch; `None` without locks.
    locked: Option<(Box<[Index]>, u64)>,
}

/// Place of a packet.
#[derive(Clone, Copy)]
struct Place {
    /// Its ring,
    ring: u64,
    /// the number of packets that the ring has got before,
    turn: u64,
    /// and its number among the prepared ones, of which there are a multiple of the rings.
    packet: usize,
}

/// The state of a ring that its senders share.
#[derive(Default)]
#[repr(align(64))]
struct Index {
    locked: AtomicBool,
    published: AtomicU32,
}

impl BareCopy {
    /// Copies to so many rings on this CPU.
    pub fn new(packets: Arc<Packets>, shape: Shape, rings: usize, cpu: usize) -> Self {
        let len = rings * shape.entries as usize * shape.buffer;
        let buffers = Slab::new(len);
        memory::back(&buffers, len);
        Self { packets, buffers, shape, rings: rings as u64, cpu, locked: None }
    }

    /// Delivers batches of so many packets to so many rings, each with a lock.
    pub fn with_locks(packets: Arc<Packets>, shape: Shape, rings: usize, cpu: usize, batch: u64) -> Self {
        let indices = (0..rings).map(|_| Index::default()).collect();
        Self { locked: Some((indices, batch)), ..Self::new(packets, shape, rings, cpu) }
    }

    /// The place of the first packet.
    fn start(&self) -> Place {
        Place { ring: 0, turn: 0, packet: 0 }
    }

    /// The place of the next packet.
    fn advance(&self, Place { ring, turn, packet }: Place) -> Place {
        let packet = if packet + 1 == self.packets.count() { 0 } else { packet + 1 };
        match ring + 1 == self.rings {
            true => Place { ring: 0, turn: turn + 1, packet },
            false => Place { ring: ring + 1, turn, packet },
        }
    }

    /// The place `packets` places later: by arithmetic, which takes longer than one step.
    fn advance_by(&self, Place { ring, turn, packet }: Place, packets: u64) -> Place {
        let rings = ring + packets;
        let packet = (packet as u64 + packets) % self.packets.count() as u64;
        Place { ring: rings % self.rings, turn: turn + rings / self.rings, packet: packet as usize }
    }

    /// Offset of a ring's buffer, `turn` buffers after its first.
    fn buffer(&self, ring: u64, turn: u64) -> usize {
        let entries = u64::from(self.shape.entries);
        let entry = turn.wrapping_add(u64::from(Sink::first(ring as usize))) & (entries - 1);
        (ring * entries + entry) as usize * self.shape.buffer
    }

    /// Copies for a while, as the only user of the buffers; returns the number of copies.
    fn copy(&self, time: Duration) -> u64 {
        let (end, mut copies) = (Instant::now() + time, 0u64);
        let mut place = self.start();
        let mut later = (0..AHEAD).fold(place, |place, _| self.advance(place));
        while Instant::now() < end {
            for _ in 0..BURST {
                if let Some(buffer) = self.buffers.get(self.buffer(later.ring, later.turn), 1) {
                    prefetch_write(buffer.as_ptr());
                }
                let (from, len) = self.packets.get(place.packet);
                let to = self.buffers.get(self.buffer(place.ring, place.turn), len);
                if let (Some(from), Some(to)) = (from, to) {
                    // SAFETY: `len` bytes of two slabs; nobody writes the one or uses the other meanwhile.
                    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), len) };
                }
                (place, later) = (self.advance(place), self.advance(later));
            }
            copies += BURST;
        }
        copies
    }

    /// [`BareCopy::copy`] in batches, ring by ring.
    fn deliver(&self, time: Duration, indices: &[Index], batch: u64) -> u64 {
        let (end, mut copies) = (Instant::now() + time, 0u64);
        let mut place = self.start();
        while Instant::now() < end {
            let mut first = place;
            for passed in 0..batch.min(self.rings) {
                self.deliver_list(indices, first, (batch - passed).div_ceil(self.rings));
                first = self.advance(first);
            }
            place = self.advance_by(place, batch);
            copies += batch;
        }
        copies
    }

    /// Delivers `count` packets to the ring of `first`: that one and every `rings`th after it.
    fn deliver_list(&self, indices: &[Index], first: Place, count: u64) {
        let Place { ring, mut turn, mut packet } = first;
        let Some(index) = indices.get(ring as usize) else { return };
        while index.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {}
        for _ in 0..count {
            // The ring is used again after all others: what its next packets need is fetched until then.
            if let Some(next) = self.buffers.get(self.buffer(ring, turn + count), 1) {
                prefetch_write(next.as_ptr());
            }
            let (from, len) = self.packets.get(packet);
            if let (Some(from), Some(to)) =
                (from, self.buffers.get(self.buffer(ring, turn), len + DESCRIPTOR))
            {
                // SAFETY: `len` bytes of two slabs, and four more of the second; nobody writes the one or uses the other
                // meanwhile.
                unsafe {
                    std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), len);
                    to.add(len).cast::<u32>().write_unaligned(len as u32);
                }
            }
            packet += self.rings as usize;
            if packet >= self.packets.count() {
                packet -= self.packets.count();
            }
            turn += 1;
        }
        index.published.store(turn as u32, Ordering::Release);
        index.locked.store(false, Ordering::Release);
    }

    /// Delivers or copies for a while.
    fn work(&self, time: Duration) -> u64 {
        match &self.locked {
            Some((indices, batch)) => self.deliver(time, indices, *batch),
            None => self.copy(time),
        }
    }

    fn measure(&self, time: Duration) -> Result<Interval> {
        let mut set = CpuSet::new();
        set.set(self.cpu);
        sched_setaffinity(None, &set)?;
        self.work(WARM_UP);
        let thread = gettid().as_raw_nonzero().get();
        let (at, before) = (Instant::now(), cpu_time(thread)?);
        let copies = self.work(time);
        let (cpu, wall) = (cpu_time(thread)? - before, at.elapsed());
        let (_, len) = self.packets.get(0);
        let batch = self.locked.as_ref().map_or(1, |(_, batch)| *batch);
        Ok(Interval {
            packets: copies,
            bytes: copies * len as u64,
            batches: copies / batch,
            drops: 0,
            cpu,
            wall,
        })
    }
}

impl Subject for BareCopy {
    fn run(&self, time: Duration) -> Result<Interval> {
        // A thread of its own, since it stays on its CPU.
        let measured = std::thread::scope(|scope| {
            scope.spawn(|| self.measure(time).map_err(|error| error.to_string())).join()
        });
        Ok(measured.map_err(|_| "the copying thread has panicked")??)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_later_are_as_many_steps_away() {
        let shape = Shape { entries: 4, buffer: 64 };
        for (rings, packets) in [(1, 1), (1, 5), (3, 6), (4, 4), (250, 1250)] {
            let copy = BareCopy::new(Arc::new(Packets::new(packets, 60, |_, _| ())), shape, rings, 0);
            let mut place = copy.start();
            for batch in [1, 2, 3, 64, 250, 1024] {
                let stepped = (0..batch).fold(place, |place, _| copy.advance(place));
                place = copy.advance_by(place, batch);
                assert_eq!(
                    (place.ring, place.turn, place.packet),
                    (stepped.ring, stepped.turn, stepped.packet),
                    "{batch} packets of {packets} to {rings} rings"
                );
            }
        }
    }
}

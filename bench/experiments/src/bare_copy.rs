//! The copies that a switch makes, without the switch: packets in turn to rings in turn, with the C library's `memcpy`,
//! each buffer fetched in time. What it loses with more memory, the switch cannot keep.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::{Slab, prefetch_write};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

use crate::memory;
use crate::replay::Packets;
use crate::rig::{Interval, Result, Subject, WARM_UP, cpu_time};
use crate::sink::{Shape, Sink};

/// Copies between two looks at the clock.
const BURST: u64 = 64;

/// Packets ahead of the copy for which buffers are fetched.
const AHEAD: u64 = 16;

/// Copies packets to the buffers of rings.
pub struct BareCopy {
    packets: Arc<Packets>,
    buffers: Slab,
    shape: Shape,
    rings: u64,
    cpu: usize,
}

impl BareCopy {
    /// Copies to so many rings on this CPU.
    pub fn new(packets: Arc<Packets>, shape: Shape, rings: usize, cpu: usize) -> Self {
        let len = rings * shape.entries as usize * shape.buffer;
        let buffers = Slab::new(len);
        memory::back(&buffers, len);
        Self { packets, buffers, shape, rings: rings as u64, cpu }
    }

    /// Where packet `i` goes.
    fn buffer(&self, i: u64) -> usize {
        let (ring, entries) = (i % self.rings, u64::from(self.shape.entries));
        let entry = (i / self.rings + u64::from(Sink::first(ring as usize))) % entries;
        (ring * entries + entry) as usize * self.shape.buffer
    }

    /// Copies for a while, as the only user of the buffers; returns the number of copies.
    fn copy(&self, time: Duration) -> u64 {
        let (end, mut copies) = (Instant::now() + time, 0u64);
        while Instant::now() < end {
            for i in copies..copies + BURST {
                if let Some(later) = self.buffers.get(self.buffer(i + AHEAD), 1) {
                    prefetch_write(later.as_ptr());
                }
                let (from, len) = self.packets.get(i as usize % self.packets.count());
                if let (Some(from), Some(to)) = (from, self.buffers.get(self.buffer(i), len)) {
                    // SAFETY: `len` bytes of two slabs; nobody writes the one or uses the other meanwhile.
                    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), len) };
                }
            }
            copies += BURST;
        }
        copies
    }

    fn measure(&self, time: Duration) -> Result<Interval> {
        let mut set = CpuSet::new();
        set.set(self.cpu);
        sched_setaffinity(None, &set)?;
        self.copy(WARM_UP);
        let thread = gettid().as_raw_nonzero().get();
        let (at, before) = (Instant::now(), cpu_time(thread)?);
        let copies = self.copy(time);
        let (cpu, wall) = (cpu_time(thread)? - before, at.elapsed());
        let (_, len) = self.packets.get(0);
        Ok(Interval { packets: copies, bytes: copies * len as u64, batches: copies, drops: 0, cpu, wall })
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

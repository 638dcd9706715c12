//! A ring in the process's own memory with a correct receiver, and the expected content of the ring.
//!
//! Each entry's buffer is an allocation of its own, so that the address sanitizer detects an overrun by one byte. The
//! expectation handles packets one by one; the transmit ring also has a path for runs of packets that all fit alike.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric::{Buffer, DropReason, Fault, Output, RingBacking};

/// State of the ring and its receiver.
struct State {
    posted: u32,
    published: u32,
    /// Length of each filled entry, by its place, and whether the packet continues.
    filled: Vec<Option<(u32, bool)>>,
    /// Capacities of posted, unused entries.
    free: VecDeque<u32>,
}

/// A ring whose packets have a prefix of `PREFIX` bytes. See the module.
pub struct MemoryRing<const PREFIX: usize> {
    buffers: Vec<Box<[Cell<u8>]>>,
    spans: bool,
    state: Mutex<State>,
}

/// The side of the ring that a [`fabric::TxRing`] fills.
pub struct Backing<const PREFIX: usize>(pub Arc<MemoryRing<PREFIX>>);

// SAFETY: a target runs on one thread.
unsafe impl<const PREFIX: usize> Send for MemoryRing<PREFIX> {}
// SAFETY: as above.
unsafe impl<const PREFIX: usize> Sync for MemoryRing<PREFIX> {}

impl<const PREFIX: usize> MemoryRing<PREFIX> {
    /// Creates a ring of entries with these capacities, a power of two of them, starting at entry `start`. With
    /// `spans`, a packet may continue in the next entry.
    pub fn new(capacities: &[u32], spans: bool, start: u32) -> Arc<Self> {
        assert!(capacities.len().is_power_of_two());
        let buffers = capacities.iter().map(|n| vec![Cell::new(0); *n as usize].into()).collect();
        let filled = vec![None; capacities.len()];
        let state = State { posted: start, published: start, filled, free: VecDeque::new() };
        Arc::new(Self { buffers, spans, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, seq: u32) -> usize {
        seq as usize & (self.buffers.len() - 1)
    }

    /// Posts up to `n` entries, as the receiver.
    pub fn post(&self, n: usize) {
        let mut state = self.lock();
        let used = state.posted.wrapping_sub(state.published) as usize;
        for _ in 0..n.min(self.buffers.len() - used) {
            let capacity = self.buffers[self.place(state.posted)].len() as u32;
            state.free.push_back(capacity);
            state.posted = state.posted.wrapping_add(1);
        }
    }

    /// Returns the expected outcome of packets of these lengths: their number of entries, or the drop reason.
    pub fn expect(&self, lens: impl Iterator<Item = u32>) -> Vec<Result<u16, DropReason>> {
        let mut state = self.lock();
        let fate = |len: u32| {
            let (mut room, mut entries) = (0, 0);
            while room < len + PREFIX as u32 {
                let Some(capacity) = state.free.get(usize::from(entries)) else {
                    return Err(DropReason::RingFull);
                };
                room += capacity;
                entries += 1;
                if room < len + PREFIX as u32 && !self.spans {
                    return Err(DropReason::ExceedsMtu);
                }
            }
            state.free.drain(..usize::from(entries));
            Ok(entries)
        };
        lens.map(fate).collect()
    }

    /// Takes the published packets, as the receiver: the number of entries and the bytes with the prefix of each
    /// packet.
    pub fn take(&self, from: u32) -> Vec<(u16, Vec<u8>)> {
        let mut state = self.lock();
        let (mut seq, mut packets) = (from, Vec::new());
        while seq != state.published {
            let (mut entries, mut bytes) = (0, Vec::new());
            loop {
                assert_ne!(seq, state.published, "half a packet");
                let place = self.place(seq);
                let Some((len, more)) = state.filled[place].take() else {
                    panic!("entry {seq} was not filled")
                };
                bytes.extend(self.buffers[place][..len as usize].iter().map(Cell::get));
                (entries, seq) = (entries + 1, seq.wrapping_add(1));
                if !more {
                    break;
                }
            }
            packets.push((entries, bytes));
        }
        packets
    }

    /// End of the published entries.
    pub fn published(&self) -> u32 {
        self.lock().published
    }
}

// SAFETY: a buffer belongs to the ring, is writable through cells, and lives as long as the ring.
unsafe impl<const PREFIX: usize> RingBacking for Backing<PREFIX> {
    type Own = ();
    type Entry = ();

    const PREFIX: usize = PREFIX;

    fn size(&self) -> u32 {
        self.0.buffers.len() as u32
    }

    fn posted(&self, (): &mut (), published: u32) -> Result<u32, Fault> {
        let state = self.0.lock();
        assert_eq!(published, state.published);
        Ok(state.posted)
    }

    fn buffer(&self, (): &mut (), seq: u32, (): &mut ()) -> Result<Buffer, Fault> {
        let cells = &self.0.buffers[self.0.place(seq)];
        // Cells may be written through a shared reference.
        let at = NonNull::from(&cells[..]).cast();
        Ok(Buffer { at, capacity: cells.len() as u32 })
    }

    fn spans_entries(&self) -> bool {
        self.0.spans
    }

    fn prefix(&self, _: &Output<'_>, entries: u16, to: &mut [u8]) {
        assert_eq!(to.len(), PREFIX);
        to.fill(0xee);
        to[..2].copy_from_slice(&entries.to_le_bytes());
    }

    fn fill(&self, seq: u32, (): &mut (), len: u32, more: bool) {
        let mut state = self.0.lock();
        let place = self.0.place(seq);
        assert!(state.filled[place].is_none(), "filled twice");
        assert!(len as usize <= self.0.buffers[place].len());
        state.filled[place] = Some((len, more));
    }

    fn publish(&self, (): &mut (), seq: u32) {
        self.0.lock().published = seq;
    }

    fn notify(&self) -> Option<RawFd> {
        None
    }

    fn faulted(&self) -> bool {
        false
    }
}

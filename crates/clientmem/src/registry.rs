//! The table in which the SIGBUS handler finds the mapping of an address.
//!
//! It is a static array of slots made of atomics, because a signal handler may not lock or allocate. Each slot is a
//! sequence lock: `seq` cycles through free, claimed, live, so that the handler can tell a snapshot of one mapping from
//! a mixture of two.
//!
//! Invariants:
//! - A slot's fields change only while its `seq` is in phase [`CLAIMED`], which only one owner can be in.
//! - A mapping is registered after it is mapped and unregistered before it is unmapped, so live slots never overlap.
//! - `seq` only grows (64 bits: it does not wrap), so a snapshot with the same `seq` before and after is whole.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

use crate::first_touch::Budget;

/// Most mappings at once: half of those that Linux grants a process (`vm.max_map_count`, 65,530), and eight for each of
/// four thousand clients.
pub(crate) const SLOTS: usize = 32768;

/// `seq % 3`: unowned.
const FREE: u64 = 0;
/// `seq % 3`: the owner is writing the fields.
const CLAIMED: u64 = 1;
/// `seq % 3`: the fields describe a mapping.
const LIVE: u64 = 2;
/// Number of phases.
const PHASES: u64 = 3;

/// A mapping, or none.
#[derive(Debug)]
pub(crate) struct Slot {
    seq: AtomicU64,
    start: AtomicUsize,
    len: AtomicUsize,
    page_size: AtomicUsize,
    budget: AtomicPtr<Budget>,
    faulted: AtomicBool,
}

/// A consistent view of a live slot.
#[derive(Clone, Copy)]
pub(crate) struct Mapping {
    /// First address.
    pub(crate) start: usize,
    /// Length in bytes, a multiple of `page_size`.
    pub(crate) len: usize,
    /// Granularity in which parts can be replaced.
    pub(crate) page_size: usize,
    /// Budget for missing pages; null if the kernel allocates them without asking us.
    pub(crate) budget: *const Budget,
}

static TABLE: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];
/// All slots ever used are below this index: the handler searches no further.
static USED: AtomicUsize = AtomicUsize::new(0);

impl Slot {
    const fn new() -> Slot {
        Slot {
            seq: AtomicU64::new(FREE),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            page_size: AtomicUsize::new(0),
            budget: AtomicPtr::new(std::ptr::null_mut()),
            faulted: AtomicBool::new(false),
        }
    }

    /// Claims the slot if it is free. Returns its previous `seq`.
    fn claim(&self) -> Option<u64> {
        let seq = self.seq.load(Ordering::Relaxed);
        if seq % PHASES != FREE {
            return None;
        }
        self.seq.compare_exchange(seq, seq + CLAIMED, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // A reader that sees a field written below must also see that the slot was claimed.
        fence(Ordering::Release);
        Some(seq)
    }

    /// The mapping of this slot, if it is live and unchanged while it is read.
    fn snapshot(&self) -> Option<Mapping> {
        let seq = self.seq.load(Ordering::Acquire);
        if seq % PHASES != LIVE {
            return None;
        }
        let mapping = Mapping {
            start: self.start.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            page_size: self.page_size.load(Ordering::Relaxed),
            budget: self.budget.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        (self.seq.load(Ordering::Relaxed) == seq).then_some(mapping)
    }

    /// Whether part of the mapping was replaced by zeros.
    #[inline]
    pub(crate) fn faulted(&self) -> bool {
        self.faulted.load(Ordering::Acquire)
    }

    /// Notes that part of the mapping is being replaced by zeros.
    pub(crate) fn set_faulted(&self) {
        self.faulted.store(true, Ordering::Release);
    }

    /// Frees the slot. Called only by its owner, before it unmaps.
    pub(crate) fn unregister(&self) {
        // LIVE + 1 is the next FREE.
        self.seq.fetch_add(1, Ordering::Release);
    }
}

/// Registers a mapping, or returns `None` when the table is full.
pub(crate) fn register(mapping: Mapping) -> Option<&'static Slot> {
    for (index, slot) in TABLE.iter().enumerate() {
        let Some(seq) = slot.claim() else { continue };
        slot.start.store(mapping.start, Ordering::Relaxed);
        slot.len.store(mapping.len, Ordering::Relaxed);
        slot.page_size.store(mapping.page_size, Ordering::Relaxed);
        slot.budget.store(mapping.budget.cast_mut(), Ordering::Relaxed);
        slot.faulted.store(false, Ordering::Relaxed);
        // Before the slot turns live: the handler must not stop short of it.
        USED.fetch_max(index + 1, Ordering::AcqRel);
        slot.seq.store(seq + LIVE, Ordering::Release);
        return Some(slot);
    }
    None
}

/// The live mapping that contains `address`. Async-signal-safe.
///
/// The caller has just faulted at `address` and therefore uses the mapping, whose owner may not drop it while it has
/// users: the slot found stays live while the fault is handled.
pub(crate) fn find(address: usize) -> Option<(&'static Slot, Mapping)> {
    let used = USED.load(Ordering::Acquire);
    TABLE.iter().take(used).find_map(|slot| {
        let mapping = slot.snapshot()?;
        // For an address below the start, this wraps to a value larger than any length.
        (address.wrapping_sub(mapping.start) < mapping.len).then_some((slot, mapping))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Addresses that no real mapping of the test process has.
    const BASE: usize = 1 << 60;

    fn mapping(start: usize, len: usize) -> Mapping {
        Mapping { start, len, page_size: 4096, budget: std::ptr::null() }
    }

    #[test]
    fn finds_registered_mappings_only() {
        let a = register(mapping(BASE, 4096)).unwrap();
        let b = register(mapping(BASE + 8192, 4096)).unwrap();
        assert!(find(BASE - 1).is_none());
        assert!(std::ptr::eq(find(BASE).unwrap().0, a));
        assert!(std::ptr::eq(find(BASE + 4095).unwrap().0, a));
        assert!(find(BASE + 4096).is_none());
        assert!(std::ptr::eq(find(BASE + 8192).unwrap().0, b));
        a.unregister();
        assert!(find(BASE).is_none());
        b.unregister();
    }

    #[test]
    fn a_reused_slot_starts_clean() {
        let start = BASE + (1 << 30);
        let slot = register(mapping(start, 4096)).unwrap();
        slot.set_faulted();
        assert!(slot.faulted());
        slot.unregister();
        let again = register(mapping(start, 4096)).unwrap();
        assert!(!again.faulted());
        again.unregister();
    }

    #[test]
    fn concurrent_owners_never_mix() {
        std::thread::scope(|scope| {
            for thread in 0..2usize {
                scope.spawn(move || {
                    let start = BASE + (2 << 30) + thread * (1 << 20);
                    for round in 1..5000usize {
                        let len = 4096 * (1 + round % 7);
                        let slot = register(mapping(start, len)).unwrap();
                        let (found, mapping) = find(start + len - 1).unwrap();
                        assert!(std::ptr::eq(found, slot));
                        assert_eq!((mapping.start, mapping.len), (start, len));
                        assert!(find(start + len).is_none());
                        slot.unregister();
                    }
                });
            }
        });
    }
}

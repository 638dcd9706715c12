//! Packets on their way from a worker to a logic's thread.
//!
//! Each worker has a fixed number of slots, whose memory is used again. A packet that finds none free is dropped and
//! counted by the caller: a port that floods the controllers costs no memory and holds up no worker. Some slots are kept
//! for what must not be lost in such a flood, as frames of link protocols, whose links would count as broken.

use crossbeam_queue::ArrayQueue;

/// Slots of a worker, and those of them that are kept.
pub const SLOTS: usize = 256;
const KEPT: usize = 32;

/// The slots of a worker.
#[derive(Debug)]
pub struct Slots<T> {
    free: ArrayQueue<Box<T>>,
    filled: ArrayQueue<Box<T>>,
}

impl<T: Default> Default for Slots<T> {
    fn default() -> Self {
        let (free, filled) = (ArrayQueue::new(SLOTS), ArrayQueue::new(SLOTS));
        (0..SLOTS).for_each(|_| drop(free.push(Box::default())));
        Self { free, filled }
    }
}

impl<T> Slots<T> {
    /// Fills a slot, which still has its last content; false if none is free. Only the worker takes free slots, so that
    /// what they are kept for (`is_urgent`) always finds its own.
    pub fn push(&self, is_urgent: bool, fill: impl FnOnce(&mut T)) -> bool {
        if !is_urgent && self.free.len() <= KEPT {
            return false;
        }
        let Some(mut slot) = self.free.pop() else { return false };
        fill(&mut slot);
        // There are as many places as slots.
        self.filled.push(slot).is_ok()
    }

    /// Whether no packet is waiting or being processed.
    pub fn are_idle(&self) -> bool {
        self.free.is_full()
    }

    /// Filled slots.
    pub fn waiting(&self) -> usize {
        self.filled.len()
    }

    /// Takes the slot that was filled first.
    pub fn pop(&self) -> Option<Box<T>> {
        self.filled.pop()
    }

    /// Gives a slot back.
    pub fn release(&self, slot: Box<T>) {
        // There are as many places as slots.
        let _ = self.free.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_bounded_and_used_again() {
        let slots = Slots::<u32>::default();
        let push = |n: u32| slots.push(true, |slot| *slot = n);
        let others = (SLOTS - KEPT) as u32;
        assert!((0..others).all(|n| slots.push(false, |slot| *slot = n)));
        assert!(!slots.push(false, |_| {}));
        assert!((others..SLOTS as u32).all(push));
        assert!(!push(1));
        let first = slots.pop().unwrap();
        assert_eq!(*first, 0);
        assert!(!push(2));
        slots.release(first);
        assert!(push(3));
        let rest: Vec<u32> = std::iter::from_fn(|| slots.pop()).map(|slot| *slot).collect();
        assert_eq!((rest.len(), rest[0], rest[SLOTS - 1]), (SLOTS, 1, 3));
    }
}

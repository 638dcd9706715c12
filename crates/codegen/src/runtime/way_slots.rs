//! Memory of [`super::way_cache`]'s slots: each begins a cache line, and pages become real when they are first used.
//!
//! Invariant: behind the first `start` words there are `count` slots, the first of them aligned.

/// Words of a slot.
const SLOT: usize = 16;
/// Words of a cache line.
pub(super) const LINE: usize = 8;

/// A slot: two cache lines.
pub(super) type Slot = [u64; SLOT];

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Slots {
    words: Vec<u64>,
    start: usize,
    count: usize,
}

impl Slots {
    /// Slots of zeros.
    pub(super) fn new(count: usize) -> Self {
        let words = vec![0; count * SLOT + LINE];
        let beyond = words.as_ptr() as usize / size_of::<u64>() % LINE;
        Self { words, start: (LINE - beyond) % LINE, count }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    #[inline(always)]
    pub(super) fn get(&self, i: usize) -> Option<&Slot> {
        // SAFETY: slot `i` is one of `count` behind the first words, as the module says. They are initialised, borrowed
        // with `self`, and aligned as a slot has to be.
        (i < self.count).then(|| unsafe { &*self.words.as_ptr().add(self.start).cast::<Slot>().add(i) })
    }

    pub(super) fn get_mut(&mut self, i: usize) -> Option<&mut Slot> {
        self.words.get_mut(self.start..)?.as_chunks_mut().0.get_mut(i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_begin_cache_lines_and_lie_apart() {
        for count in [0, 1, 3, 4096] {
            let mut slots = Slots::new(count);
            assert_eq!(slots.len(), count);
            (0..count).for_each(|i| *slots.get_mut(i).expect("within") = [i as u64; SLOT]);
            for i in 0..count {
                let slot = slots.get(i).expect("within");
                assert_eq!((slot.as_ptr() as usize % 64, *slot), (0, [i as u64; SLOT]));
            }
            assert_eq!(slots.get(count), None);
        }
    }
}

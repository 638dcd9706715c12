//! Lookups in batches: each pass takes every key one level down, and asks for the memory of the next.
//!
//! Rests wait for the next round, when the match found so far may make them unnecessary.

use std::sync::atomic::Ordering;

use super::node::{Entry, Kind, Slot, leaf_head};
use crate::arena::{Ref, Space, View};
use crate::publish::Shared;
use crate::{BATCH, Held, Lookup, MISS};

/// Searches that wait for their turn; further ones are completed at once.
const QUEUE: usize = 4 * BATCH;
/// Rules of a leaf that are asked for ahead.
const AHEAD: usize = 6;

/// Reads a [`Classifier`](crate::Classifier).
#[derive(Clone)]
pub struct ClassifierReader<const N: usize>(Shared<View<Ref>>);

/// The best match of a key so far.
#[derive(Clone, Copy)]
struct Match {
    priority: Option<u32>,
    handle: u32,
}

const NONE: Match = Match { priority: None, handle: MISS };

impl Match {
    #[inline(always)]
    fn is_beaten_by(self, slot: Slot) -> bool {
        slot.kind() != Kind::Empty && self.priority.is_none_or(|priority| slot.may_exceed(priority))
    }
}

/// Searches by key number.
struct Queue {
    items: [(u8, Slot); QUEUE],
    len: usize,
}

impl Queue {
    fn new() -> Self {
        Self { items: [(0, Slot::EMPTY); QUEUE], len: 0 }
    }

    /// Returns false if there is no room.
    #[inline(always)]
    fn push(&mut self, number: u8, slot: Slot) -> bool {
        match self.items.get_mut(self.len) {
            Some(item) => {
                *item = (number, slot);
                self.len += 1;
                true
            }
            None => false,
        }
    }

    #[inline(always)]
    fn items(&mut self) -> &mut [(u8, Slot)] {
        self.items.get_mut(..self.len).unwrap_or_default()
    }
}

impl<const N: usize> ClassifierReader<N> {
    pub(super) fn new(shared: Shared<View<Ref>>) -> Self {
        Self(shared)
    }

    /// Looks up each key; `out` receives the handle of its rule of the highest priority or [`MISS`].
    pub fn lookup(&self, keys: &[[u64; N]], out: &mut [u32]) {
        let view = self.0.load();
        let (space, root) = &**view;
        for (keys, out) in keys.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
            Search { space, keys, found: [NONE; BATCH] }.run(*root, out);
        }
    }
}

struct Search<'a, const N: usize, const B: usize> {
    space: &'a Space,
    keys: &'a [[u64; N]],
    found: [Match; B],
}

impl<const N: usize, const B: usize> Search<'_, N, B> {
    fn run(mut self, root: Ref, out: &mut [u32]) {
        let root = Slot(self.space.load(root));
        let mut round = Queue::new();
        let mut next = Queue::new();
        for number in 0..self.keys.len() {
            round.push(number as u8, root);
        }
        while round.len > 0 {
            self.descend(&mut round, &mut next);
            self.read_leaves(&mut round);
            round.len = 0;
            std::mem::swap(&mut round, &mut next);
        }
        for (out, found) in out.iter_mut().zip(&self.found).take(self.keys.len()) {
            *out = found.handle;
        }
    }

    /// Takes all searches of a round down to their leaves; `next` receives the rests.
    fn descend(&mut self, round: &mut Queue, next: &mut Queue) {
        for (number, slot) in round.items() {
            let found = self.found.get(usize::from(*number)).copied();
            match found.is_some_and(|found| found.is_beaten_by(*slot)) {
                true => self.ask(*number, *slot),
                false => *slot = Slot::EMPTY,
            }
        }
        let mut cuts = true;
        while cuts {
            cuts = false;
            for (number, slot) in round.items() {
                if slot.kind() != Kind::Cut {
                    continue;
                }
                let Some(key) = self.keys.get(usize::from(*number)) else { continue };
                let rest = Slot(self.space.load(slot.rest()));
                let child = Slot(self.space.load(slot.child(slot.window().of(key))));
                // What may have the higher priority first: its match may make the other unnecessary.
                let (now, later) = order(child, rest);
                if later.kind() != Kind::Empty && !next.push(*number, later) {
                    self.search(*number, later);
                }
                *slot = now;
                cuts |= slot.kind() == Kind::Cut;
                self.ask(*number, *slot);
            }
        }
    }

    /// Asks for what the next pass reads.
    #[inline(always)]
    fn ask(&self, number: u8, slot: Slot) {
        let Some(key) = self.keys.get(usize::from(number)) else { return };
        match slot.kind() {
            Kind::Empty => {}
            Kind::Leaf => self.space.prefetch(slot.at()),
            Kind::Cut => {
                self.space.prefetch(slot.rest());
                self.space.prefetch(slot.child(slot.window().of(key)));
            }
        }
    }

    fn read_leaves(&mut self, round: &mut Queue) {
        for (_, slot) in round.items() {
            if slot.kind() == Kind::Leaf {
                let (len, _) = leaf_head(self.space.load(slot.at()));
                for word in self.space.words(slot.at() + 1, len.min(AHEAD)) {
                    self.space.prefetch(Entry::unpack(word.load(Ordering::Relaxed)).at);
                }
            }
        }
        for (number, slot) in round.items() {
            if slot.kind() == Kind::Leaf {
                self.read_leaf(*number, *slot);
            }
        }
    }

    fn read_leaf(&mut self, number: u8, slot: Slot) {
        let number = usize::from(number);
        let (Some(key), Some(found)) = (self.keys.get(number), self.found.get_mut(number)) else { return };
        let mut at = slot.at();
        while at != 0 {
            let (len, next) = leaf_head(self.space.load(at));
            for word in self.space.words(at + 1, len) {
                let entry = Entry::unpack(word.load(Ordering::Relaxed));
                if found.priority.is_some_and(|priority| entry.priority <= priority) {
                    return;
                }
                if let Some(handle) = matched(self.space, entry, key) {
                    *found = Match { priority: Some(entry.priority), handle };
                    return;
                }
            }
            at = next;
        }
    }

    /// Completes one search at once. Recursion is as deep as the tree, which its builder bounds.
    fn search(&mut self, number: u8, slot: Slot) {
        let index = usize::from(number);
        let Some(key) = self.keys.get(index) else { return };
        let mut slot = slot;
        while self.found.get(index).is_some_and(|found| found.is_beaten_by(slot)) {
            if slot.kind() == Kind::Leaf {
                return self.read_leaf(number, slot);
            }
            let rest = Slot(self.space.load(slot.rest()));
            let child = Slot(self.space.load(slot.child(slot.window().of(key))));
            let (now, later) = order(child, rest);
            self.search(number, now);
            slot = later;
        }
    }
}

/// Returns the child and the rest of a cut, the one with the higher bound first.
#[inline(always)]
fn order(child: Slot, rest: Slot) -> (Slot, Slot) {
    let rest_first =
        child.kind() == Kind::Empty || rest.kind() != Kind::Empty && rest.bound_below() > child.bound_below();
    if rest_first { (rest, child) } else { (child, rest) }
}

/// Returns the handle of a rule if the key matches it.
#[inline(always)]
fn matched<const N: usize>(space: &Space, entry: Entry, key: &[u64; N]) -> Option<u32> {
    let words = space.words(entry.at, 1 + 2 * N);
    let (handle, bits) = words.split_first()?;
    let (value, mask) = bits.split_at_checked(N)?;
    let differing = value.iter().zip(mask).zip(key).fold(0, |seen, ((value, mask), key)| {
        seen | (value.load(Ordering::Relaxed) ^ key) & mask.load(Ordering::Relaxed)
    });
    (differing == 0).then(|| handle.load(Ordering::Acquire) as u32)
}

impl<const N: usize> Lookup for ClassifierReader<N> {
    fn words(&self) -> usize {
        N
    }

    fn lookup_flat(&self, keys: &[u64], out: &mut [u32]) {
        self.lookup(keys.as_chunks::<N>().0, out);
    }

    fn find(&self, key: &[u64]) -> u32 {
        find::<N>(&self.0.load(), key)
    }

    fn find_held(&self, held: &mut Held, key: &[u64]) -> u32 {
        held.version(&self.0).map_or_else(|| self.find(key), |view| find::<N>(view, key))
    }
}

#[inline]
fn find<const N: usize>((space, root): &View<Ref>, key: &[u64]) -> u32 {
    let mut search = Search { space, keys: key.as_chunks::<N>().0, found: [NONE; 1] };
    search.search(0, Slot(space.load(*root)));
    let [found] = search.found;
    found.handle
}

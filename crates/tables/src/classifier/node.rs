//! Format of slots, cuts, leaves and rules in memory.
//!
//! A *slot* is one word: what it refers to, the window if that is a cut, and a bound of the priorities below. The
//! window is in the slot, not in the cut, so that a lookup computes the child's address without reading the cut.
//!
//! | block | words |
//! | --- | --- |
//! | cut | slot of the rest; rules when built and now; slots of the children |
//! | leaf | number of entries and the next leaf of the list; entries: rule and priority |
//! | rule | handle; value; mask |

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::{Classifier, Rule};
use crate::TableError;
use crate::arena::{Ref, Space};

/// Widest window.
pub(super) const MAX_WIDTH: u32 = 8;
/// Words of a cut before its children.
const CUT_HEAD: u32 = 2;
/// Most entries of a leaf; longer lists are chains of leaves.
const LEAF_ENTRIES: usize = crate::arena::MAX_BLOCK - 1;
const PRIORITY_AT: u32 = 32;
/// A bound that exceeds every priority.
const UNBOUNDED: u64 = 0xffff;
const KIND_AT: u32 = 48;
const WORD_AT: u32 = 50;
const SHIFT_AT: u32 = 55;
const WIDTH_AT: u32 = 61;

/// What a slot refers to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Empty,
    Cut,
    Leaf,
}

/// Bits of a key that a cut reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) word: u32,
    pub(super) shift: u32,
    /// 1 to [`MAX_WIDTH`].
    pub(super) width: u32,
    /// Open bits, 0 or 1, up to which a rule is copied into all matching children.
    pub(super) spread: u32,
}

impl Window {
    #[inline(always)]
    pub(super) fn of<const N: usize>(self, key: &[u64; N]) -> u32 {
        let word = key.get(self.word as usize).copied().unwrap_or(0);
        (word >> self.shift) as u32 & ((1 << self.width) - 1)
    }

    pub(super) fn fan_out(self) -> u32 {
        1 << self.width
    }

    /// Returns the children in which a rule lies; `None` if it belongs to the rest.
    #[inline]
    pub(super) fn children<const N: usize>(
        self,
        rule: &Rule<N>,
    ) -> Option<impl Iterator<Item = u32> + use<N>> {
        let (value, open) = (self.of(&rule.value), !self.of(&rule.mask) & (self.fan_out() - 1));
        let mut next = (open.count_ones() <= self.spread).then_some(0);
        next?;
        Some(std::iter::from_fn(move || {
            // Subsets of the open bits, in ascending order.
            let subset = next?;
            next = (subset != open).then(|| subset.wrapping_sub(open) & open);
            Some(value | subset)
        }))
    }
}

#[derive(Clone, Copy)]
pub(super) struct Slot(pub(super) u64);

impl Slot {
    pub(super) const EMPTY: Self = Self(0);

    fn bound(priority: u32) -> u64 {
        u64::from(priority).min(UNBOUNDED) << PRIORITY_AT
    }

    pub(super) fn leaf(at: Ref, priority: u32) -> Self {
        Self(u64::from(at) | Self::bound(priority) | 2 << KIND_AT)
    }

    pub(super) fn cut(at: Ref, priority: u32, window: Window) -> Self {
        let kind = 1 | u64::from(window.spread) << 1;
        let window = u64::from(window.word) << WORD_AT
            | u64::from(window.shift) << SHIFT_AT
            | u64::from(window.width - 1) << WIDTH_AT;
        Self(u64::from(at) | Self::bound(priority) | kind << KIND_AT | window)
    }

    /// Returns the slot with its bound raised to a priority.
    pub(super) fn with_priority(self, priority: u32) -> Self {
        let mask = UNBOUNDED << PRIORITY_AT;
        Self(self.0 & !mask | (self.0 & mask).max(Self::bound(priority)))
    }

    #[inline(always)]
    pub(super) fn kind(self) -> Kind {
        match self.0 >> KIND_AT & 3 {
            0 => Kind::Empty,
            2 => Kind::Leaf,
            _ => Kind::Cut,
        }
    }

    #[inline(always)]
    pub(super) fn at(self) -> Ref {
        self.0 as Ref
    }

    /// Returns the bound.
    #[inline(always)]
    pub(super) fn bound_below(self) -> u64 {
        self.0 >> PRIORITY_AT & UNBOUNDED
    }

    /// Returns whether a rule below may have a higher priority than this.
    #[inline(always)]
    pub(super) fn may_exceed(self, priority: u32) -> bool {
        let bound = self.bound_below();
        bound == UNBOUNDED || bound > u64::from(priority)
    }

    #[inline(always)]
    pub(super) fn window(self) -> Window {
        Window {
            word: (self.0 >> WORD_AT) as u32 & 31,
            shift: (self.0 >> SHIFT_AT) as u32 & 63,
            width: (self.0 >> WIDTH_AT) as u32 + 1,
            spread: (self.0 >> (KIND_AT + 1)) as u32 & 1,
        }
    }

    /// Returns the address of the slot of a cut's child.
    #[inline(always)]
    pub(super) fn child(self, value: u32) -> Ref {
        self.at() + CUT_HEAD + value
    }

    /// Returns the address of the slot of a cut's rest.
    #[inline(always)]
    pub(super) fn rest(self) -> Ref {
        self.at()
    }

    /// Returns the addresses of a cut's slots below which a rule lies.
    pub(super) fn children_of<const N: usize>(self, rule: &Rule<N>) -> Vec<Ref> {
        match self.window().children(rule) {
            Some(values) => values.map(|value| self.child(value)).collect(),
            None => vec![self.rest()],
        }
    }
}

/// A rule in a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub(super) at: Ref,
    pub(super) priority: u32,
}

impl Entry {
    #[inline(always)]
    pub(super) fn unpack(word: u64) -> Self {
        Self { at: word as Ref, priority: (word >> 32) as u32 }
    }

    fn pack(self) -> u64 {
        u64::from(self.at) | u64::from(self.priority) << 32
    }
}

/// A rule and where its handle, value and mask are stored.
#[derive(Clone, Copy)]
pub(super) struct Stored<const N: usize> {
    pub(super) at: Ref,
    pub(super) rule: Rule<N>,
}

/// Returns the words of a rule. Short rules have a cache line to themselves.
pub(super) fn rule_words(key: usize) -> usize {
    (1 + 2 * key).max(8)
}

/// Returns the number of entries in a leaf's first words, and its successor.
#[inline(always)]
pub(super) fn leaf_head(word: u64) -> (usize, Ref) {
    (word as u32 as usize, (word >> 32) as Ref)
}

impl<const N: usize> Classifier<N> {
    pub(super) fn write_rule(&mut self, rule: &Rule<N>, handle: u32) -> Result<Ref, TableError> {
        let mut words = vec![u64::from(handle)];
        words.extend(rule.value);
        words.extend(rule.mask);
        words.resize(rule_words(N), 0);
        self.arena.write(&words)
    }

    pub(super) fn read_rule(&self, entry: Entry) -> Stored<N> {
        let words =
            |from: usize| std::array::from_fn(|i| self.arena.space().load(entry.at + 1 + (from + i) as u32));
        Stored { at: entry.at, rule: Rule { value: words(0), mask: words(N), priority: entry.priority } }
    }

    /// Writes a leaf, or a chain of them, for entries of descending priority.
    pub(super) fn write_leaf(&mut self, entries: &[Entry]) -> Result<Slot, TableError> {
        let Some(highest) = entries.first() else { return Ok(Slot::EMPTY) };
        let mut next = 0;
        for part in entries.chunks(LEAF_ENTRIES).rev() {
            let mut words = vec![part.len() as u64 | u64::from(next) << 32];
            words.extend(part.iter().map(|entry| entry.pack()));
            next = self.arena.write(&words)?;
        }
        Ok(Slot::leaf(next, highest.priority))
    }

    /// Calls `f` with the address and words of each leaf in a chain.
    fn each_leaf(space: &Space, slot: Slot, mut f: impl FnMut(Ref, usize, &mut dyn Iterator<Item = Entry>)) {
        let mut at = if slot.kind() == Kind::Leaf { slot.at() } else { 0 };
        while at != 0 {
            let (len, next) = leaf_head(space.load(at));
            let words = space.words(at + 1, len).iter();
            f(at, len + 1, &mut words.map(|word| Entry::unpack(word.load(Ordering::Relaxed))));
            at = next;
        }
    }

    pub(super) fn read_leaf(&self, slot: Slot) -> Vec<Entry> {
        let mut entries = Vec::new();
        Self::each_leaf(self.arena.space(), slot, |_, _, words| entries.extend(words));
        entries
    }

    pub(super) fn retire_leaf(&mut self, slot: Slot) {
        let mut blocks = Vec::new();
        Self::each_leaf(self.arena.space(), slot, |at, words, _| blocks.push((at, words)));
        for (at, words) in blocks {
            self.arena.retire(at, words);
        }
    }

    /// Writes a cut for `rules` rules, with the slots of its children and its rest.
    pub(super) fn write_cut(
        &mut self,
        window: Window,
        rules: usize,
        priority: u32,
        rest: Slot,
        children: &[Slot],
    ) -> Result<Slot, TableError> {
        let rules = rules as u64;
        let mut words = vec![rest.0, rules | rules << 32];
        words.extend(children.iter().map(|slot| slot.0));
        Ok(Slot::cut(self.arena.write(&words)?, priority, window))
    }

    /// Changes the number of rules in a cut. Returns how many it was built for, and how many it has.
    pub(super) fn count(&self, slot: Slot, change: i32) -> (u32, u32) {
        let counts = self.arena.space().load(slot.at() + 1);
        let (built, now) = (counts as u32, ((counts >> 32) as u32).saturating_add_signed(change));
        self.arena.space().store(slot.at() + 1, u64::from(built) | u64::from(now) << 32);
        (built, now)
    }

    fn slots(&self, slot: Slot) -> Vec<Slot> {
        let fan_out = slot.window().fan_out();
        let slots = (0..fan_out).map(|value| slot.child(value)).chain([slot.rest()]);
        slots.map(|at| Slot(self.arena.space().load(at))).collect()
    }

    /// Collects the rules below a slot.
    pub(super) fn collect(&self, slot: Slot, entries: &mut HashSet<Entry>) {
        match slot.kind() {
            Kind::Empty => {}
            Kind::Leaf => entries.extend(self.read_leaf(slot)),
            Kind::Cut => self.slots(slot).into_iter().for_each(|slot| self.collect(slot, entries)),
        }
    }

    /// Retires what a slot referred to, but for the rules.
    pub(super) fn retire_tree(&mut self, slot: Slot) {
        match slot.kind() {
            Kind::Empty => {}
            Kind::Leaf => self.retire_leaf(slot),
            Kind::Cut => {
                self.slots(slot).into_iter().for_each(|slot| self.retire_tree(slot));
                self.arena.retire(slot.at(), (CUT_HEAD + slot.window().fan_out()) as usize);
            }
        }
    }
}

//! Ternary matches with priorities: a tree that cuts on windows of key bits.
//!
//! A *cut* reads a window of up to eight adjacent key bits and has a child for each of its values. A rule that leaves
//! bits of the window open would have to lie in several children. Cuts may copy it into two, [`SPREADS`] times on a path;
//! otherwise it goes to the cut's *rest*, a tree of its own that chooses other windows. A lookup takes one child and the
//! rest, the one with the higher priority bound first, and leaves out what the match so far exceeds. A *leaf* lists its rules by descending priority. So the cost depends on how
//! well bits separate rules, never on the number of different masks.
//!
//! - `node.rs`: the format of slots, cuts, leaves and rules in memory.
//! - `build.rs`: which window a cut reads.
//! - `lookup.rs`: readers.
//!
//! # Changes
//! A change rewrites the leaves of one rule, 2^[`SPREAD`] children of each cut on the way. A leaf that grows too long
//! becomes a cut. A tree of up to [`INLINE`] rules that has grown fourfold since it was built is built anew at once; a
//! larger one asks for [`Classifier::rebuild`], which the caller runs when it likes: until then lookups are slower, not
//! wrong.
//!
//! # Why readers see no mix
//! Each key passes one child of each cut, and a rule lies either in children of a cut or in its rest, so each key meets
//! a rule in one leaf. A leaf is replaced by one store to its slot. The priority bound in a slot is raised before a
//! rule is added below.
//!
//! # Invariants
//! The bound of a slot is at least the priority of each rule below. No two rules have the same value, mask and
//! priority. Value bits outside of the mask are zero.

use std::collections::{HashMap, HashSet};

use crate::arena::{Arena, Ref};
use crate::{MISS, TableError};

mod build;
mod lookup;
mod node;

pub use lookup::ClassifierReader;
use node::{Kind, Slot, Stored};

/// Cuts on one path that may copy rules. Each doubles the copies of a rule at most: without a limit, firewall rules
/// would be copied exponentially often.
const SPREADS: u32 = 3;
/// Rules of a leaf that is built.
const LEAF: usize = 8;
/// Rules of a leaf from which on a change cuts it.
const SPLIT: usize = 2 * LEAF;
/// Levels of cuts and rests on one path.
const MAX_DEPTH: u32 = 40;
/// Way from the root to a tree.
#[derive(Clone, Copy, Default)]
struct Path {
    /// Cuts and rests passed.
    depth: u32,
    /// Cuts among them that copy rules.
    spreads: u32,
}

impl Path {
    /// Returns the way `steps` further, through a cut that copies if `spread` is 1.
    fn below(self, spread: u32, steps: u32) -> Self {
        Self { depth: self.depth + steps, spreads: self.spreads + spread }
    }
}

/// Largest tree that a change builds anew, which takes some 10 ms.
const INLINE: u32 = 1024;
/// Growth since a tree was built that makes it worth building anew.
const GROWTH: u32 = 4;

/// A ternary match: the bits of `mask` equal those of `value`. Where several rules match a key, one of the highest
/// `priority` is found; which of them if several have it, is unspecified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rule<const N: usize> {
    /// Bits to be found; those outside of the mask are ignored.
    pub value: [u64; N],
    /// Bits that count.
    pub mask: [u64; N],
    /// Precedence: the higher, the earlier.
    pub priority: u32,
}

impl<const N: usize> Rule<N> {
    /// Returns whether a key matches.
    pub fn matches(&self, key: &[u64; N]) -> bool {
        let bits = self.value.iter().zip(&self.mask).zip(key);
        bits.fold(0, |differing, ((value, mask), key)| differing | (value ^ key) & mask) == 0
    }

    fn normal(&self) -> Self {
        let mut rule = *self;
        for (value, mask) in rule.value.iter_mut().zip(&rule.mask) {
            *value &= mask;
        }
        rule
    }
}

/// A ternary table of keys of `N` words; the writer's side.
pub struct Classifier<const N: usize> {
    arena: Arena<Ref>,
    rules: HashMap<Rule<N>, Ref>,
    /// Whether a large tree has outgrown its cuts.
    stale: bool,
}

impl<const N: usize> Default for Classifier<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Classifier<N> {
    /// Word of the root's slot: the first that can be a block's.
    const ROOT: Ref = 1;

    /// Makes an empty table.
    pub fn new() -> Self {
        let mut arena = Arena::new(Self::ROOT);
        // The first allocation of an arena succeeds, at its first word.
        let root = arena.write(&[Slot::EMPTY.0]);
        debug_assert_eq!(root, Ok(Self::ROOT));
        Self { arena, rules: HashMap::new(), stale: false }
    }

    /// Returns a reader. Readers of a fork differ from those of its origin.
    pub fn reader(&self) -> ClassifierReader<N> {
        ClassifierReader::new(self.arena.shared())
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the bytes that readers use.
    pub fn memory(&self) -> usize {
        self.arena.memory()
    }

    /// Returns the handle of a rule.
    pub fn get(&self, rule: &Rule<N>) -> Option<u32> {
        self.rules.get(&rule.normal()).map(|&at| self.arena.space().load(at) as u32)
    }

    /// Returns whether [`Classifier::rebuild`] would make lookups faster.
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// Adds a rule, or changes its handle. Returns the handle that it had.
    pub fn insert(&mut self, rule: &Rule<N>, handle: u32) -> Result<Option<u32>, TableError> {
        let Some(rule) = self.store(rule, handle)? else { return Ok(self.exchange(rule, handle)) };
        let added = self.add(Self::ROOT, &rule, Path::default());
        if let Err(error) = added {
            self.remove(&rule.rule)?;
            return Err(error);
        }
        self.arena.settle();
        Ok(None)
    }

    /// Adds many rules, or changes their handles, and builds the tree once: much faster than one by one. To readers, the
    /// new ones appear together.
    pub fn extend(&mut self, rules: impl IntoIterator<Item = (Rule<N>, u32)>) -> Result<(), TableError> {
        for (rule, handle) in rules {
            if self.store(&rule, handle)?.is_none() {
                self.exchange(&rule, handle);
            }
        }
        self.rebuild()
    }

    /// Removes a rule. Returns its handle.
    pub fn remove(&mut self, rule: &Rule<N>) -> Result<Option<u32>, TableError> {
        let rule = rule.normal();
        let Some(&at) = self.rules.get(&rule) else { return Ok(None) };
        let handle = self.arena.space().load(at) as u32;
        self.take(Self::ROOT, &Stored { at, rule })?;
        self.rules.remove(&rule);
        self.arena.retire(at, node::rule_words(N));
        self.arena.settle();
        Ok(Some(handle))
    }

    /// Builds the tree anew. Readers use the previous one meanwhile.
    pub fn rebuild(&mut self) -> Result<(), TableError> {
        let rules = self.rules.iter().map(|(rule, &at)| Stored { at, rule: *rule }).collect();
        let old = Slot(self.arena.space().load(Self::ROOT));
        let new = self.build(rules, Path::default())?;
        self.arena.space().store(Self::ROOT, new.0);
        self.retire_tree(old);
        self.stale = false;
        self.arena.settle();
        Ok(())
    }

    /// Returns a second writer with the same rules, whose changes stay invisible to readers of this one.
    pub fn fork(&mut self) -> Self {
        Self { arena: self.arena.fork(Self::ROOT), rules: self.rules.clone(), stale: self.stale }
    }

    /// Begins to prepare a table that no reader has, as a fork is.
    pub fn prepare(&mut self) {
        self.arena.prepare();
    }

    /// Ends a fork's preparation: its readers may be handed out.
    pub fn commit(&mut self) {
        self.arena.commit();
    }

    /// Records a new rule; `None` if it exists.
    fn store(&mut self, rule: &Rule<N>, handle: u32) -> Result<Option<Stored<N>>, TableError> {
        if handle == MISS {
            return Err(TableError::ReservedHandle);
        }
        let rule = rule.normal();
        if self.rules.contains_key(&rule) {
            return Ok(None);
        }
        let at = self.write_rule(&rule, handle)?;
        self.rules.insert(rule, at);
        Ok(Some(Stored { at, rule }))
    }

    fn exchange(&mut self, rule: &Rule<N>, handle: u32) -> Option<u32> {
        let &at = self.rules.get(&rule.normal())?;
        let old = self.arena.space().load(at) as u32;
        self.arena.space().store(at, u64::from(handle));
        Some(old)
    }

    /// Adds a rule below the slot at `at`.
    fn add(&mut self, at: Ref, rule: &Stored<N>, path: Path) -> Result<(), TableError> {
        let slot = Slot(self.arena.space().load(at));
        match slot.kind() {
            Kind::Cut => {
                let slot = slot.with_priority(rule.rule.priority);
                self.arena.space().store(at, slot.0);
                let (built, now) = self.count(slot, 1);
                if now > built.saturating_mul(GROWTH) {
                    if now <= INLINE {
                        return self.renew(at, slot, rule, path);
                    }
                    self.stale = true;
                }
                for child in slot.children_of(&rule.rule) {
                    let spread = if child == slot.rest() { 0 } else { slot.window().spread };
                    self.add(child, rule, path.below(spread, 1))?;
                }
                Ok(())
            }
            Kind::Leaf | Kind::Empty => {
                let mut entries = self.read_leaf(slot);
                let place = entries.partition_point(|entry| entry.priority >= rule.rule.priority);
                entries.insert(place, node::Entry { at: rule.at, priority: rule.rule.priority });
                // Rules that no window separates stay in one leaf: another try when it has doubled.
                let len = entries.len();
                let new = if len == SPLIT + 1 || len > SPLIT && len.is_power_of_two() {
                    let rules = entries.iter().map(|entry| self.read_rule(*entry)).collect();
                    self.build(rules, path)?
                } else {
                    self.write_leaf(&entries)?
                };
                self.arena.space().store(at, new.0);
                self.retire_leaf(slot);
                Ok(())
            }
        }
    }

    /// Builds the tree in a slot anew, with a further rule.
    fn renew(&mut self, at: Ref, slot: Slot, rule: &Stored<N>, path: Path) -> Result<(), TableError> {
        let mut entries = HashSet::from([node::Entry { at: rule.at, priority: rule.rule.priority }]);
        self.collect(slot, &mut entries);
        let rules = entries.into_iter().map(|entry| self.read_rule(entry)).collect();
        let new = self.build(rules, path)?;
        self.arena.space().store(at, new.0);
        self.retire_tree(slot);
        Ok(())
    }

    /// Removes a rule below the slot at `at`.
    fn take(&mut self, at: Ref, rule: &Stored<N>) -> Result<(), TableError> {
        let slot = Slot(self.arena.space().load(at));
        match slot.kind() {
            Kind::Empty => Ok(()),
            Kind::Cut => {
                self.count(slot, -1);
                for child in slot.children_of(&rule.rule) {
                    self.take(child, rule)?;
                }
                Ok(())
            }
            Kind::Leaf => {
                let mut entries = self.read_leaf(slot);
                let before = entries.len();
                entries.retain(|entry| entry.at != rule.at);
                if entries.len() < before {
                    let new = self.write_leaf(&entries)?;
                    self.arena.space().store(at, new.0);
                    self.retire_leaf(slot);
                }
                Ok(())
            }
        }
    }
}

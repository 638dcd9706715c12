//! Longest-prefix matches: a direct table for the first 16 bits, then a trie of six bits a level in the form of tree
//! bitmaps (Eatherton, Varghese and Dittia, "Tree bitmap").
//!
//! An entry of the direct table refers to a node and names the longest prefix of up to 16 bits that covers it. A node
//! is one block: a bitmap of its children, a bitmap of the prefixes that end in it, the references to the children and
//! the handles. A lookup remembers the last node with a matching prefix and reads one handle at its end.
//!
//! Prefixes are not pushed to the leaves, so a change rewrites one node (at most 129 words) and, where a branch begins
//! or ends, adds or removes the nodes down to it; a prefix of up to 16 bits rewrites at most 65,536 entries of the
//! direct table, each by one store. No change touches the prefixes below.
//!
//! # Why readers see no mix
//! A node never changes but for handles, one word each. A change stores the reference to a new node over that of the
//! old one: a key meets either.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::arena::{Arena, Ref, Space, View};
use crate::prefetch::prefetch;
use crate::publish::Shared;
use crate::{BATCH, Held, Lookup, MISS, TableError};

const DIRECT_BITS: u8 = 16;
const DIRECT: usize = 1 << DIRECT_BITS;
const STRIDE: u8 = 6;

/// For each value of a stride, the prefixes within a node that match it.
static MATCHING: [u64; 64] = matching();

const fn matching() -> [u64; 64] {
    let mut masks = [0; 64];
    let mut value = 0;
    while value < 64 {
        let mut len = 0;
        while len < STRIDE {
            masks[value] |= prefix_bit(len, value as u64);
            len += 1;
        }
        value += 1;
    }
    masks
}

/// Returns the bit of the prefix of `len` bits that begins a stride of this value.
const fn prefix_bit(len: u8, value: u64) -> u64 {
    1 << ((1 << len) - 1 + (value >> (STRIDE - len)))
}

/// A prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    bits: u128,
    len: u8,
}

impl Prefix {
    /// Makes the prefix of the first `len` bits (128 at most) of a key, which begins at the most significant bit of
    /// `bits`. Further bits are cleared.
    pub fn new(bits: u128, len: u8) -> Self {
        let len = len.min(128);
        let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
        Self { bits: bits & mask, len }
    }

    /// Returns the bits, at the most significant end.
    pub fn bits(self) -> u128 {
        self.bits
    }

    /// Returns the number of bits.
    pub fn len(self) -> u8 {
        self.len
    }

    /// Returns whether it matches every key.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The bits that the direct table is for.
    fn first(self) -> u64 {
        (self.bits >> (128 - DIRECT_BITS)) as u64
    }
}

/// The direct table: the reference to a node above the handle of the longest short prefix.
struct Direct(Box<[AtomicU64]>);

impl Direct {
    fn new() -> Self {
        Self((0..DIRECT).map(|_| AtomicU64::new(u64::from(MISS))).collect())
    }

    /// The entry of a value of the first bits.
    #[inline(always)]
    fn entry(&self, value: u64) -> Option<&AtomicU64> {
        self.0.get(value as usize)
    }
}

/// Returns the value of the stride that begins after `at` bits.
fn stride(bits: u128, at: u8) -> u64 {
    let rest = bits.checked_shl(u32::from(at)).unwrap_or(0);
    (rest >> (128 - STRIDE)) as u64
}

/// A key's bits that have not been looked at, from the most significant on. Taken a stride at a time: to shift 128 bits
/// by any number costs several times as much.
#[derive(Clone, Copy, Default)]
struct Rest {
    high: u64,
    low: u64,
}

impl Rest {
    #[inline(always)]
    fn of<const N: usize>(key: &[u64; N]) -> Self {
        Self { high: key.first().copied().unwrap_or(0), low: key.get(1).copied().unwrap_or(0) }
    }

    /// Takes so many bits, 1 to 63.
    #[inline(always)]
    fn take(&mut self, count: u8) -> u64 {
        let taken = self.high >> (64 - count);
        self.high = self.high << count | self.low >> (64 - count);
        self.low <<= count;
        taken
    }
}

/// Reads an [`Lpm`] table of keys of `N` words, 1 or 2. The first bit of a prefix is the most significant of the first
/// word.
#[derive(Clone)]
pub struct LpmReader<const N: usize>(Shared<View<Arc<Direct>>>);

#[derive(Clone, Copy)]
struct Lane {
    rest: Rest,
    node: Ref,
    /// Result so far, or the word that holds it.
    short: u32,
    at: Ref,
}

impl<const N: usize> LpmReader<N> {
    /// Looks up each key; `out` receives the handle of its longest prefix or [`MISS`].
    pub fn lookup(&self, keys: &[[u64; N]], out: &mut [u32]) {
        let view = self.0.load();
        let (space, direct) = &**view;
        for (keys, out) in keys.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
            lookup(space, direct, keys, out);
        }
    }
}

fn lookup<const N: usize>(space: &Space, direct: &Direct, keys: &[[u64; N]], out: &mut [u32]) {
    #[cfg(target_arch = "x86_64")]
    if counts_bits() {
        // SAFETY: the processor has the instructions.
        return unsafe { lookup_counting(space, direct, keys, out) };
    }
    lookup_all(space, direct, keys, out);
}

/// Whether the processor counts and finds bits, and shifts by any number, in one instruction each.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counts_bits() -> bool {
    is_x86_feature_detected!("popcnt")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
}

/// Compiled for such processors: a node takes three counts, each of which takes 15 or more instructions otherwise.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt,lzcnt,bmi1,bmi2")]
fn lookup_counting<const N: usize>(space: &Space, direct: &Direct, keys: &[[u64; N]], out: &mut [u32]) {
    lookup_all(space, direct, keys, out);
}

#[inline(always)]
fn lookup_all<const N: usize>(space: &Space, direct: &Direct, keys: &[[u64; N]], out: &mut [u32]) {
    let none = Lane { rest: Rest::default(), node: 0, short: MISS, at: 0 };
    let mut lanes = [none; BATCH];
    let mut firsts = [0u16; BATCH];
    // Lanes that are not at their last node.
    let mut open = [0u8; BATCH];
    let mut count = 0;
    for ((lane, first), key) in lanes.iter_mut().zip(&mut firsts).zip(keys) {
        lane.rest = Rest::of(key);
        let value = lane.rest.take(DIRECT_BITS);
        *first = value as u16;
        if let Some(entry) = direct.entry(value) {
            prefetch(entry);
        }
    }
    for (number, (lane, first)) in lanes.iter_mut().zip(firsts).enumerate().take(keys.len()) {
        let entry = direct.entry(first.into()).map_or(u64::from(MISS), |entry| entry.load(Ordering::Acquire));
        lane.node = (entry >> 32) as Ref;
        lane.short = entry as u32;
        if lane.node != 0 {
            space.prefetch(lane.node);
            keep(&mut open, &mut count, number);
        }
    }
    while count > 0 {
        let mut left = 0;
        for place in 0..count {
            let number = usize::from(open.get(place).copied().unwrap_or(0));
            let Some(lane) = lanes.get_mut(number) else { continue };
            step(space, lane);
            if lane.node != 0 {
                space.prefetch(lane.node);
                keep(&mut open, &mut left, number);
            } else if lane.at != 0 {
                space.prefetch(lane.at);
            }
        }
        count = left;
    }
    for (lane, out) in lanes.iter().zip(out).take(keys.len()) {
        *out = if lane.at == 0 { lane.short } else { space.load(lane.at) as u32 };
    }
}

#[inline]
fn find<const N: usize>(view: &View<Arc<Direct>>, key: &[u64]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if counts_bits() {
        // SAFETY: the processor has the instructions.
        return unsafe { find_counting::<N>(view, key) };
    }
    find_one::<N>(view, key)
}

/// As [`lookup_counting`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt,lzcnt,bmi1,bmi2")]
fn find_counting<const N: usize>(view: &View<Arc<Direct>>, key: &[u64]) -> u32 {
    find_one::<N>(view, key)
}

#[inline(always)]
fn find_one<const N: usize>((space, direct): &View<Arc<Direct>>, key: &[u64]) -> u32 {
    let Some(key) = key.as_chunks::<N>().0.first() else { return MISS };
    let mut rest = Rest::of(key);
    let entry = direct.entry(rest.take(DIRECT_BITS));
    let entry = entry.map_or(u64::from(MISS), |entry| entry.load(Ordering::Acquire));
    let mut lane = Lane { rest, node: (entry >> 32) as Ref, short: entry as u32, at: 0 };
    while lane.node != 0 {
        step(space, &mut lane);
    }
    if lane.at == 0 { lane.short } else { space.load(lane.at) as u32 }
}

#[inline(always)]
fn keep(open: &mut [u8; BATCH], count: &mut usize, number: usize) {
    if let Some(place) = open.get_mut(*count) {
        *place = number as u8;
        *count += 1;
    }
}

/// Takes a lane through its node.
#[inline(always)]
fn step(space: &Space, lane: &mut Lane) {
    let value = lane.rest.take(STRIDE);
    let [children, prefixes, words @ ..] = space.block(lane.node) else {
        lane.node = 0;
        return;
    };
    // Published by the store of the reference.
    let (children, prefixes) = (children.load(Ordering::Relaxed), prefixes.load(Ordering::Relaxed));
    let matching = prefixes & MATCHING.get(value as usize).copied().unwrap_or(0);
    if matching != 0 {
        let best = 1u64 << matching.ilog2();
        let before = (prefixes & (best - 1)).count_ones();
        lane.at = lane.node + 2 + children.count_ones() + before;
    }
    let child = 1u64 << value;
    lane.node = match children & child {
        0 => 0,
        _ => {
            let reference = words.get((children & (child - 1)).count_ones() as usize);
            reference.map_or(0, |reference| reference.load(Ordering::Acquire)) as Ref
        }
    };
}

impl<const N: usize> Lookup for LpmReader<N> {
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

/// The bitmaps of a node.
#[derive(Clone, Copy)]
struct Head {
    children: u64,
    prefixes: u64,
}

impl Head {
    fn read(space: &Space, at: Ref) -> Self {
        Self { children: space.load(at), prefixes: space.load(at + 1) }
    }

    /// Words of the whole node.
    fn len(self) -> usize {
        2 + (self.children.count_ones() + self.prefixes.count_ones()) as usize
    }

    /// Returns the place of a child's reference in the node.
    fn child_at(self, bit: u64) -> u32 {
        2 + (self.children & (bit - 1)).count_ones()
    }

    /// Returns the place of a prefix's handle in the node.
    fn prefix_at(self, bit: u64) -> u32 {
        2 + self.children.count_ones() + (self.prefixes & (bit - 1)).count_ones()
    }

    /// Returns the words of the node, to be changed: room for one more.
    fn node(self, space: &Space, at: Ref) -> Vec<u64> {
        let mut node = Vec::with_capacity(self.len() + 1);
        node.extend(space.words(at, self.len()).iter().map(|word| word.load(Ordering::Relaxed)));
        debug_assert_eq!(node.len(), self.len(), "a node is in one chunk");
        node
    }
}

/// The direct table's prefixes, in the writer.
#[derive(Clone)]
struct Short {
    /// A heap of all prefixes of up to 16 bits, [`MISS`] where there is none.
    handles: Vec<u32>,
    /// For each entry of the direct table, the bits of the prefix whose handle it has; 0 if none.
    lens: Vec<u8>,
}

impl Short {
    fn new() -> Self {
        Self { handles: vec![MISS; 2 * DIRECT], lens: vec![0; DIRECT] }
    }

    /// Returns the place in the heap of a prefix of `len` bits that covers an entry of the direct table.
    fn at(len: u8, entry: usize) -> usize {
        (1 << len) + (entry >> (DIRECT_BITS - len))
    }

    /// Returns the longest prefix of up to `most` bits that covers an entry: its length and its handle.
    fn longest(&self, entry: usize, most: u8) -> (u8, u32) {
        let mut lens = (0..=most).rev();
        lens.find_map(|len| {
            let handle = self.handles.get(Self::at(len, entry)).copied()?;
            (handle != MISS).then_some((len, handle))
        })
        .unwrap_or((0, MISS))
    }
}

/// A longest-prefix table of keys of `N` words, 1 or 2; the writer's side.
pub struct Lpm<const N: usize> {
    arena: Arena<Arc<Direct>>,
    short: Short,
    width: u8,
    len: usize,
}

/// Result of changing a node.
struct Changed {
    old: Option<u32>,
    /// Whether the node has nothing left and was removed.
    empty: bool,
}

impl<const N: usize> Lpm<N> {
    /// Makes an empty table of keys of `width` bits, at most 64 for each word and 128 in all.
    pub fn new(width: u8) -> Self {
        const { assert!(N == 1 || N == 2) };
        Self {
            arena: Arena::new(Arc::new(Direct::new())),
            short: Short::new(),
            width: width.min(64 * N as u8),
            len: 0,
        }
    }

    /// Returns a reader. Readers of a fork differ from those of its origin.
    pub fn reader(&self) -> LpmReader<N> {
        LpmReader(self.arena.shared())
    }

    /// Returns the number of prefixes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no prefixes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes that readers use.
    pub fn memory(&self) -> usize {
        self.arena.memory() + DIRECT * size_of::<AtomicU64>()
    }

    /// Returns the handle of a prefix, whatever longer and shorter ones there are.
    pub fn get(&self, prefix: Prefix) -> Option<u32> {
        if prefix.len <= DIRECT_BITS {
            let first = (prefix.bits >> (128 - DIRECT_BITS)) as usize;
            let handle = self.short.handles.get(Short::at(prefix.len, first)).copied();
            return handle.filter(|handle| *handle != MISS);
        }
        let word = self.arena.root().entry(prefix.first())?.load(Ordering::Relaxed);
        let (mut at, mut depth) = ((word >> 32) as Ref, DIRECT_BITS);
        let space = self.arena.space();
        while at != 0 && depth <= prefix.len {
            let head = Head::read(space, at);
            let (value, len) = (stride(prefix.bits, depth), prefix.len - depth);
            if len < STRIDE {
                let bit = prefix_bit(len, value);
                return (head.prefixes & bit != 0).then(|| space.load(at + head.prefix_at(bit)) as u32);
            }
            let bit = 1 << value;
            if head.children & bit == 0 {
                return None;
            }
            at = space.load(at + head.child_at(bit)) as Ref;
            depth += STRIDE;
        }
        None
    }

    /// Adds a prefix, or changes its handle. Returns the handle that it had.
    pub fn insert(&mut self, prefix: Prefix, handle: u32) -> Result<Option<u32>, TableError> {
        if handle == MISS {
            return Err(TableError::ReservedHandle);
        }
        if prefix.len > self.width {
            return Err(TableError::PrefixTooLong { found: prefix.len, width: self.width });
        }
        let old = self.set(prefix, Some(handle))?;
        if old.is_none() {
            self.len += 1;
        }
        Ok(old)
    }

    /// Removes a prefix. Returns its handle.
    pub fn remove(&mut self, prefix: Prefix) -> Result<Option<u32>, TableError> {
        let old = self.set(prefix, None)?;
        if old.is_some() {
            self.len -= 1;
        }
        Ok(old)
    }

    /// Returns a second writer with the same entries, whose changes stay invisible to readers of this one.
    pub fn fork(&mut self) -> Self {
        let direct = Direct::new();
        for (to, from) in direct.0.iter().zip(&self.arena.root().0) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Self { arena: self.arena.fork(Arc::new(direct)), short: self.short.clone(), ..*self }
    }

    /// Begins to prepare a table that no reader has, as a fork is.
    pub fn prepare(&mut self) {
        self.arena.prepare();
    }

    /// Ends a fork's preparation: its readers may be handed out.
    pub fn commit(&mut self) {
        self.arena.commit();
    }

    fn set(&mut self, prefix: Prefix, handle: Option<u32>) -> Result<Option<u32>, TableError> {
        let old = if prefix.len <= DIRECT_BITS {
            self.set_short(prefix, handle)
        } else {
            self.set_long(prefix, handle)?
        };
        self.arena.settle();
        Ok(old)
    }

    fn set_short(&mut self, prefix: Prefix, handle: Option<u32>) -> Option<u32> {
        let first = (prefix.bits >> (128 - DIRECT_BITS)) as usize;
        let cell = self.short.handles.get_mut(Short::at(prefix.len, first))?;
        let old = std::mem::replace(cell, handle.unwrap_or(MISS));
        let (new_len, new) = self.short.longest(first, prefix.len);
        let span = 1 << (DIRECT_BITS - prefix.len);
        let entries = self.arena.root().0.iter().zip(&mut self.short.lens).skip(first).take(span);
        for (word, len) in entries {
            // Entries of longer prefixes keep their handles.
            if *len <= prefix.len {
                let node = word.load(Ordering::Relaxed) & !u64::from(u32::MAX);
                word.store(node | u64::from(new), Ordering::Release);
                *len = new_len;
            }
        }
        (old != MISS).then_some(old)
    }

    fn set_long(&mut self, prefix: Prefix, handle: Option<u32>) -> Result<Option<u32>, TableError> {
        let direct = Arc::clone(self.arena.root());
        let Some(entry) = direct.entry(prefix.first()) else { return Ok(None) };
        let word = entry.load(Ordering::Relaxed);
        let link =
            |node: Ref| entry.store(u64::from(node) << 32 | word & u64::from(u32::MAX), Ordering::Release);
        let node = (word >> 32) as Ref;
        if node == 0 {
            if let Some(handle) = handle {
                link(self.branch(prefix, DIRECT_BITS, handle)?);
            }
            return Ok(None);
        }
        let changed = self.change(node, prefix, DIRECT_BITS, handle, &|_, node| link(node))?;
        if changed.empty {
            link(0);
        }
        Ok(changed.old)
    }

    /// Makes the nodes from `depth` bits on down to a prefix.
    fn branch(&mut self, prefix: Prefix, depth: u8, handle: u32) -> Result<Ref, TableError> {
        let value = stride(prefix.bits, depth);
        let len = prefix.len - depth;
        if len < STRIDE {
            return self.arena.write(&[0, prefix_bit(len, value), u64::from(handle)]);
        }
        let child = self.branch(prefix, depth + STRIDE, handle)?;
        self.arena.write(&[1 << value, 0, u64::from(child)])
    }

    /// Changes the handle of a prefix in or below a node that begins after `depth` bits. `link` stores the reference to
    /// the node that takes its place.
    fn change(
        &mut self,
        at: Ref,
        prefix: Prefix,
        depth: u8,
        handle: Option<u32>,
        link: &dyn Fn(&Space, Ref),
    ) -> Result<Changed, TableError> {
        let value = stride(prefix.bits, depth);
        let len = prefix.len - depth;
        let before = Head::read(self.arena.space(), at);
        let mut head = before;
        // What changes of the node: the place of a word that is new, or that goes.
        let (place, added, old) = if len < STRIDE {
            let bit = prefix_bit(len, value);
            let place = before.prefix_at(bit);
            let old = (before.prefixes & bit != 0).then(|| self.arena.space().load(at + place) as u32);
            match handle {
                Some(handle) if old.is_some() => {
                    self.arena.space().store(at + place, u64::from(handle));
                    return Ok(Changed { old, empty: false });
                }
                None if old.is_none() => return Ok(Changed { old, empty: false }),
                _ => {}
            }
            head.prefixes ^= bit;
            (place, handle.map(u64::from), old)
        } else {
            let bit = 1 << value;
            let place = before.child_at(bit);
            if before.children & bit != 0 {
                let child = self.arena.space().load(at + place) as Ref;
                let link = |space: &Space, node: Ref| space.store(at + place, u64::from(node));
                let changed = self.change(child, prefix, depth + STRIDE, handle, &link)?;
                if !changed.empty {
                    return Ok(changed);
                }
                head.children ^= bit;
                (place, None, changed.old)
            } else {
                let Some(handle) = handle else { return Ok(Changed { old: None, empty: false }) };
                let child = self.branch(prefix, depth + STRIDE, handle)?;
                head.children ^= bit;
                (place, Some(u64::from(child)), None)
            }
        };
        let mut node = before.node(self.arena.space(), at);
        match added {
            Some(word) => node.insert(place as usize, word),
            None => drop(node.remove(place as usize)),
        }
        node.iter_mut().zip([head.children, head.prefixes]).for_each(|(to, bitmap)| *to = bitmap);
        let empty = head.len() == 2;
        if !empty {
            let new = self.arena.write(&node)?;
            link(self.arena.space(), new);
        }
        self.arena.retire(at, before.len());
        Ok(Changed { old, empty })
    }
}

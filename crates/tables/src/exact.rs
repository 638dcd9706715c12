//! Exact matches under one mask: extendible hashing with segments of two-choice buckets.
//!
//! The upper bits of a key's keyed hash select a *segment* through the directory; the lower ones two buckets of eight
//! slots in it, and a tag. A bucket is one cache line of words: tag, incarnation and handle; the key lies beside, at
//! the slot's own place. A segment whose two buckets for a key are full is split in two, which rehashes at most 1,024
//! entries, whatever the size of the table. Entries never move within a segment.
//!
//! # Why readers see no mix
//! - A word is stored after its key (release), and cleared before the key of the slot changes. A reader loads the word,
//!   compares the key and loads the word again: if it is the same, the key belongs to it. The incarnation, which each
//!   reuse of the slot increments, tells a word from an equal later one; it would take 65,536 reuses between two loads
//!   of one reader, and a torn key with the right tag, to be deceived.
//! - A changed handle is one store.
//! - A split builds both halves aside and publishes a new directory. Readers of the old directory find the old segment
//!   as it was.
//!
//! # Invariants
//! A key occurs in at most one slot of the current version. A segment is written in place only by the line of versions
//! that made it (`owner`), others copy it first. Key words outside of the mask are zero.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::hash::Secret;
use crate::prefetch::prefetch;
use crate::publish::{Published, Shared, new_lineage};
use crate::{BATCH, Held, Lookup, MISS, TableError};

const WAYS: usize = 8;
const BUCKET_BITS: u32 = 7;
const BUCKETS: usize = 1 << BUCKET_BITS;
const SLOTS: usize = BUCKETS * WAYS;
/// Entries in the first bucket from which on a new entry goes to the emptier of both.
const BALANCE_FROM: usize = 6;
/// Most bits of a directory's index: 2^34 slots.
const MAX_DEPTH: u32 = 24;

const OCCUPIED: u64 = 1 << 63;
const TAG_AT: u32 = 48;
const TAG: u64 = 0x7fff << TAG_AT;
const INCARNATION_AT: u32 = 32;
const INCARNATION: u64 = 0xffff << INCARNATION_AT;

#[derive(Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; WAYS]);

impl Bucket {
    /// Returns the first slot and word with this tag.
    #[inline(always)]
    fn find(&self, tag: u64) -> Option<(usize, u64)> {
        self.0.iter().enumerate().find_map(|(slot, word)| {
            let word = word.load(Ordering::Acquire);
            is_of(word, tag).then_some((slot, word))
        })
    }

    fn load(&self) -> usize {
        self.0.iter().filter(|word| word.load(Ordering::Relaxed) & OCCUPIED != 0).count()
    }
}

#[inline(always)]
fn is_of(word: u64, tag: u64) -> bool {
    word & (OCCUPIED | TAG) == tag
}

#[inline(always)]
fn handle(word: u64) -> u32 {
    word as u32
}

/// Where a hash leads to within a segment.
#[derive(Clone, Copy, Default)]
struct Place {
    first: usize,
    second: usize,
    tag: u64,
}

impl Place {
    #[inline(always)]
    fn of(hash: u64) -> Self {
        let first = (hash >> 15) as usize % BUCKETS;
        let step = ((hash >> (15 + BUCKET_BITS)) as usize % BUCKETS) | 1;
        Self { first, second: first ^ step, tag: OCCUPIED | ((hash << TAG_AT) & TAG) }
    }
}

struct Segment<const N: usize> {
    owner: u64,
    depth: u32,
    buckets: [Bucket; BUCKETS],
    keys: [[AtomicU64; N]; SLOTS],
}

impl<const N: usize> Segment<N> {
    fn new(owner: u64, depth: u32) -> Self {
        Self {
            owner,
            depth,
            buckets: std::array::from_fn(|_| Bucket::default()),
            keys: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
        }
    }

    fn copy(&self, owner: u64) -> Self {
        let copy = Self::new(owner, self.depth);
        for (to, from) in copy.buckets.iter().zip(&self.buckets) {
            for (to, from) in to.0.iter().zip(&from.0) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        for (to, from) in copy.keys.iter().zip(&self.keys) {
            store_key(to, &load_key(from));
        }
        copy
    }

    /// Compares the key of a slot, whose word was loaded before.
    #[inline(always)]
    fn is_key(&self, bucket: usize, slot: usize, key: &[u64; N]) -> bool {
        self.keys.get(bucket * WAYS + slot).is_some_and(|stored| {
            let differing =
                stored.iter().zip(key).fold(0, |seen, (a, b)| seen | (a.load(Ordering::Relaxed) ^ b));
            differing == 0
        })
    }

    /// Returns whether the slot's word is still the same, so that the key compared since the word was loaded is its.
    #[inline(always)]
    fn confirm(&self, bucket: usize, slot: usize, word: u64) -> bool {
        fence(Ordering::Acquire);
        self.word(bucket, slot).is_some_and(|now| now.load(Ordering::Relaxed) == word)
    }

    #[inline(always)]
    fn word(&self, bucket: usize, slot: usize) -> Option<&AtomicU64> {
        self.buckets.get(bucket)?.0.get(slot)
    }

    /// Returns the slot of a key and its word.
    fn find(&self, place: Place, key: &[u64; N]) -> Option<(usize, usize, u64)> {
        for bucket in [place.first, place.second] {
            for slot in 0..WAYS {
                let cell = self.word(bucket, slot)?;
                let mut word = cell.load(Ordering::Acquire);
                while is_of(word, place.tag) && self.is_key(bucket, slot, key) {
                    if self.confirm(bucket, slot, word) {
                        return Some((bucket, slot, word));
                    }
                    // The writer changed this very slot since: each repetition is a change it completed.
                    word = cell.load(Ordering::Acquire);
                }
            }
        }
        None
    }

    /// Stores a key that the segment does not contain. Returns false if its buckets are full.
    fn place(&self, place: Place, key: &[u64; N], handle: u32) -> bool {
        let load = |bucket: usize| self.buckets.get(bucket).map_or(WAYS, Bucket::load);
        let (first, second) = (load(place.first), load(place.second));
        let bucket = if first < BALANCE_FROM || first <= second { place.first } else { place.second };
        for slot in 0..WAYS {
            let Some(cell) = self.word(bucket, slot) else { return false };
            let old = cell.load(Ordering::Relaxed);
            if old & OCCUPIED == 0 {
                // The slot may have been cleared by an earlier removal: keep the key's stores behind that.
                fence(Ordering::Release);
                if let Some(stored) = self.keys.get(bucket * WAYS + slot) {
                    store_key(stored, key);
                }
                let incarnation = old.wrapping_add(1 << INCARNATION_AT) & INCARNATION;
                cell.store(place.tag | incarnation | u64::from(handle), Ordering::Release);
                return true;
            }
        }
        false
    }

    /// Calls `f` with each key and handle. For the writer, which alone changes them.
    fn each(&self, f: &mut impl FnMut([u64; N], u32)) {
        for (word, key) in self.buckets.iter().flat_map(|bucket| &bucket.0).zip(&self.keys) {
            let word = word.load(Ordering::Relaxed);
            if word & OCCUPIED != 0 {
                f(load_key(key), handle(word));
            }
        }
    }
}

fn load_key<const N: usize>(key: &[AtomicU64; N]) -> [u64; N] {
    std::array::from_fn(|i| key.get(i).map_or(0, |word| word.load(Ordering::Relaxed)))
}

fn store_key<const N: usize>(to: &[AtomicU64; N], key: &[u64; N]) {
    for (to, &word) in to.iter().zip(key) {
        to.store(word, Ordering::Relaxed);
    }
}

struct View<const N: usize> {
    directory: Box<[Arc<Segment<N>>]>,
    /// Bits of the directory's index.
    depth: u32,
    secret: Secret<N>,
    mask: [u64; N],
}

impl<const N: usize> View<N> {
    #[inline(always)]
    fn segment(&self, hash: u64) -> Option<&Segment<N>> {
        self.directory.get(index(hash, self.depth)).map(|segment| &**segment)
    }
}

/// Returns the directory's index of a hash. Shifting twice keeps a depth of zero in range.
#[inline(always)]
fn index(hash: u64, depth: u32) -> usize {
    (hash >> 1 >> (63 - depth)) as usize
}

/// Reads an [`Exact`] table.
#[derive(Clone)]
pub struct ExactReader<const N: usize>(Shared<View<N>>);

/// A key on its way through the stages of a lookup.
#[derive(Clone, Copy)]
struct Lane<'a, const N: usize> {
    segment: Option<&'a Segment<N>>,
    key: [u64; N],
    place: Place,
    bucket: usize,
    found: Option<(usize, u64)>,
}

impl<const N: usize> ExactReader<N> {
    /// Looks up each key; `out` receives its handle or [`MISS`].
    pub fn lookup(&self, keys: &[[u64; N]], out: &mut [u32]) {
        let view = self.0.load();
        for (keys, out) in keys.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
            view.lookup(keys, out);
        }
    }
}

impl<const N: usize> View<N> {
    #[inline]
    fn find(&self, key: &[u64]) -> u32 {
        let Some(key) = key.as_chunks::<N>().0.first() else { return MISS };
        let mut masked = *key;
        for (word, mask) in masked.iter_mut().zip(&self.mask) {
            *word &= mask;
        }
        let hash = self.secret.hash(&masked);
        let found = self.segment(hash).and_then(|segment| segment.find(Place::of(hash), &masked));
        found.map_or(MISS, |(_, _, word)| handle(word))
    }

    fn lookup(&self, keys: &[[u64; N]], out: &mut [u32]) {
        const EMPTY: Place = Place { first: 0, second: 0, tag: 0 };
        let mut lanes = [Lane { segment: None, key: [0; N], place: EMPTY, bucket: 0, found: None }; BATCH];
        for (lane, key) in lanes.iter_mut().zip(keys) {
            for ((to, word), mask) in lane.key.iter_mut().zip(key).zip(&self.mask) {
                *to = word & mask;
            }
            let hash = self.secret.hash(&lane.key);
            lane.place = Place::of(hash);
            lane.segment = self.segment(hash);
            if let Some(bucket) = lane.segment.and_then(|segment| segment.buckets.get(lane.place.first)) {
                prefetch(bucket);
            }
        }
        for lane in lanes.iter_mut().take(keys.len()) {
            let Some(segment) = lane.segment else { continue };
            lane.bucket = lane.place.first;
            lane.found = segment.buckets.get(lane.bucket).and_then(|bucket| bucket.find(lane.place.tag));
            match lane.found {
                Some((slot, _)) => prefetch_key(segment, lane.bucket, slot),
                None => {
                    if let Some(bucket) = segment.buckets.get(lane.place.second) {
                        prefetch(bucket);
                    }
                }
            }
        }
        for lane in lanes.iter_mut().take(keys.len()) {
            let (Some(segment), None) = (lane.segment, lane.found) else { continue };
            lane.bucket = lane.place.second;
            lane.found = segment.buckets.get(lane.bucket).and_then(|bucket| bucket.find(lane.place.tag));
            if let Some((slot, _)) = lane.found {
                prefetch_key(segment, lane.bucket, slot);
            }
        }
        for (lane, out) in lanes.iter().zip(out).take(keys.len()) {
            *out = match (lane.segment, lane.found) {
                (Some(segment), Some((slot, word)))
                    if segment.is_key(lane.bucket, slot, &lane.key)
                        && segment.confirm(lane.bucket, slot, word) =>
                {
                    handle(word)
                }
                // Another key with the same tag, or a slot that just changed.
                (Some(segment), Some(_)) => {
                    segment.find(lane.place, &lane.key).map_or(MISS, |(_, _, word)| handle(word))
                }
                _ => MISS,
            };
        }
    }
}

#[inline(always)]
fn prefetch_key<const N: usize>(segment: &Segment<N>, bucket: usize, slot: usize) {
    let Some(key) = segment.keys.get(bucket * WAYS + slot) else { return };
    if let (Some(first), Some(last)) = (key.first(), key.last()) {
        prefetch(first);
        if N > 1 {
            prefetch(last);
        }
    }
}

impl<const N: usize> Lookup for ExactReader<N> {
    fn words(&self) -> usize {
        N
    }

    fn lookup_flat(&self, keys: &[u64], out: &mut [u32]) {
        self.lookup(keys.as_chunks::<N>().0, out);
    }

    fn find(&self, key: &[u64]) -> u32 {
        self.0.load().find(key)
    }

    fn find_held(&self, held: &mut Held, key: &[u64]) -> u32 {
        held.version(&self.0).map_or_else(|| self.find(key), |view| view.find(key))
    }
}

/// An exact-match table of keys of `N` words; the writer's side.
pub struct Exact<const N: usize> {
    published: Published<View<N>, ()>,
    directory: Vec<Arc<Segment<N>>>,
    depth: u32,
    secret: Secret<N>,
    mask: [u64; N],
    lineage: u64,
    len: usize,
    segments: usize,
    /// Whether the directory differs from the published one.
    changed: bool,
    /// Whether changes stay invisible until [`Exact::commit`].
    deferred: bool,
}

impl<const N: usize> Exact<N> {
    /// Makes an empty table that compares the bits in `mask`.
    pub fn new(mask: [u64; N]) -> Self {
        let lineage = new_lineage();
        let directory = vec![Arc::new(Segment::new(lineage, 0))];
        let secret = Secret::random();
        let view = View { directory: directory.clone().into(), depth: 0, secret: secret.clone(), mask };
        Self {
            published: Published::new(view),
            directory,
            depth: 0,
            secret,
            mask,
            lineage,
            len: 0,
            segments: 1,
            changed: false,
            deferred: false,
        }
    }

    /// Returns a reader. Readers of a fork differ from those of its origin.
    pub fn reader(&self) -> ExactReader<N> {
        ExactReader(self.published.shared())
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes that the current version occupies.
    pub fn memory(&self) -> usize {
        self.segments * size_of::<Segment<N>>() + self.directory.len() * 2 * size_of::<usize>()
    }

    /// Returns the handle of a key.
    pub fn get(&self, key: &[u64; N]) -> Option<u32> {
        let key = self.masked(key);
        let hash = self.secret.hash(&key);
        let (_, _, word) = self.directory.get(index(hash, self.depth))?.find(Place::of(hash), &key)?;
        Some(handle(word))
    }

    /// Adds an entry, or changes its handle. Returns the handle that it had.
    pub fn insert(&mut self, key: &[u64; N], new: u32) -> Result<Option<u32>, TableError> {
        if new == MISS {
            return Err(TableError::ReservedHandle);
        }
        let key = self.masked(key);
        let hash = self.secret.hash(&key);
        let place = Place::of(hash);
        let at = index(hash, self.depth);
        let old = self.own(at).and_then(|segment| {
            let (bucket, slot, word) = segment.find(place, &key)?;
            segment
                .word(bucket, slot)?
                .store(word & !u64::from(u32::MAX) | u64::from(new), Ordering::Release);
            Some(handle(word))
        });
        let done = if old.is_some() { Ok(()) } else { self.add(hash, &key, new) };
        self.publish();
        done.map(|()| old)
    }

    /// Removes an entry. Returns its handle.
    pub fn remove(&mut self, key: &[u64; N]) -> Option<u32> {
        let key = self.masked(key);
        let hash = self.secret.hash(&key);
        let at = index(hash, self.depth);
        let (bucket, slot, word) = self.directory.get(at)?.find(Place::of(hash), &key)?;
        self.own(at)?.word(bucket, slot)?.store(word & INCARNATION, Ordering::Release);
        self.len -= 1;
        self.publish();
        Some(handle(word))
    }

    /// Calls `f` with each key and handle.
    pub fn each(&self, mut f: impl FnMut([u64; N], u32)) {
        for (at, segment) in self.directory.iter().enumerate() {
            // A segment's entries in the directory are adjacent.
            let first = at.checked_sub(1).and_then(|before| self.directory.get(before));
            if !first.is_some_and(|first| Arc::ptr_eq(first, segment)) {
                segment.each(&mut f);
            }
        }
    }

    /// Returns a second writer with the same entries, whose changes stay invisible until [`Exact::commit`].
    pub fn fork(&mut self) -> Self {
        // Neither side may write to what both refer to.
        self.lineage = new_lineage();
        let view = View {
            directory: self.directory.clone().into(),
            depth: self.depth,
            secret: self.secret.clone(),
            mask: self.mask,
        };
        Self {
            published: Published::new(view),
            directory: self.directory.clone(),
            secret: self.secret.clone(),
            lineage: new_lineage(),
            deferred: true,
            changed: false,
            ..*self
        }
    }

    /// Makes later changes invisible until [`Exact::commit`], for a table that no reader has.
    pub fn prepare(&mut self) {
        self.deferred = true;
    }

    /// Makes the changes since [`Exact::fork`] visible to this writer's own readers; later ones are visible at once.
    pub fn commit(&mut self) {
        self.deferred = false;
        self.publish();
    }

    fn masked(&self, key: &[u64; N]) -> [u64; N] {
        let mut masked = *key;
        for (word, mask) in masked.iter_mut().zip(&self.mask) {
            *word &= mask;
        }
        masked
    }

    /// Returns a segment that this writer may change, copied if others refer to it.
    fn own(&mut self, at: usize) -> Option<&Segment<N>> {
        let segment = self.directory.get(at)?;
        if segment.owner != self.lineage {
            let copy = Arc::new(segment.copy(self.lineage));
            self.replace(at, |_| Arc::clone(&copy));
        }
        self.directory.get(at).map(|segment| &**segment)
    }

    /// Replaces the directory's entries of the segment at `at`; `new` gets each one's index.
    fn replace(&mut self, at: usize, new: impl Fn(usize) -> Arc<Segment<N>>) {
        let Some(depth) = self.directory.get(at).map(|segment| segment.depth) else { return };
        let span = 1usize << (self.depth - depth);
        let start = at & !(span - 1);
        for (at, entry) in self.directory.iter_mut().enumerate().skip(start).take(span) {
            *entry = new(at);
        }
        self.changed = true;
    }

    /// Adds a key that is not in the table; its segment is this writer's own.
    fn add(&mut self, hash: u64, key: &[u64; N], handle: u32) -> Result<(), TableError> {
        loop {
            let at = index(hash, self.depth);
            let Some(segment) = self.own(at) else { return Err(TableError::Full) };
            if segment.place(Place::of(hash), key, handle) {
                self.len += 1;
                return Ok(());
            }
            self.split(at)?;
        }
    }

    fn split(&mut self, at: usize) -> Result<(), TableError> {
        let Some(full) = self.directory.get(at).map(Arc::clone) else { return Err(TableError::Full) };
        let mut at = at;
        if full.depth == self.depth {
            if self.depth == MAX_DEPTH {
                return Err(TableError::Full);
            }
            self.directory = self
                .directory
                .iter()
                .flat_map(|segment| [Arc::clone(segment), Arc::clone(segment)])
                .collect();
            self.depth += 1;
            at *= 2;
        }
        let halves = [(); 2].map(|()| Arc::new(Segment::new(self.lineage, full.depth + 1)));
        let half_bit = self.depth - full.depth - 1;
        let [low, high] = &halves;
        self.replace(at, |at| Arc::clone(if at >> half_bit & 1 == 0 { low } else { high }));
        self.segments += 1;
        let mut entries = Vec::with_capacity(SLOTS);
        full.each(&mut |key, handle| entries.push((key, handle)));
        self.len -= entries.len();
        for (key, handle) in entries {
            self.add(self.secret.hash(&key), &key, handle)?;
        }
        Ok(())
    }

    fn publish(&mut self) {
        if self.changed && !self.deferred {
            let view = View {
                directory: self.directory.clone().into(),
                depth: self.depth,
                secret: self.secret.clone(),
                mask: self.mask,
            };
            self.published.publish(view, Vec::new());
            self.changed = false;
        }
        while self.published.reclaim().is_some() {}
    }
}

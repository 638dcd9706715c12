//! Remembered ways of one worker: for a flow key and an ingress port, the entries hit and the outcome.
//!
//! A slot is 16 words in two cache lines. The first has what is compared (the *tag*, of epoch, front and ingress port,
//! and the flow key, or the words of the front that it follows from) and the outcome, the second the statistics of the
//! entries hit and their tables. A way is in one of two neighbouring slots, or where these are taken in one of two
//! others.
//!
//! Invariants:
//! - ways of the current epoch were met in the view and after the changes that [`WayCache::begin`] was last given: any
//!   other view or change begins an epoch, and no slot of an earlier one is compared equal. So the addresses of a way
//!   that is found are those of live statistics, as long as the caller holds that view;
//! - the cache grows to at most [`Spared::most_slots`] slots, when ways of the current epoch displace each other, and
//!   does not shrink. It pauses while too few packets find theirs: traffic of ever new flows costs one of [`PAUSE`] windows what a miss
//!   costs.

use pipeline::interp::Dropped;
use pipeline::ir::{ReasonId, TableId};
use pipeline::state::EntryStats;

use super::fronts::MOST_FRONTS;
use super::way_slots::{LINE, Slot, Slots};
use crate::shortcut::Leaves;
use crate::special::flow_key::MOST_WORDS;
use crate::view::TableView;

/// Lookups of the longest way.
const MOST_LOOKUPS: usize = 6;
/// Place of the outcome in a slot, of the first entry's statistics, and of the tables.
const OUTCOME: usize = 7;
const STATS: usize = LINE;
const TABLES: usize = STATS + MOST_LOOKUPS;
/// Slots at first, 256 KiB, and the factor of each step but the last.
const FEWEST_SLOTS: usize = 2048;
const GROWTH: usize = 4;
/// Slots at most, 4 MiB, unless ways spare much.
const MANY_SLOTS: usize = 32_768;
/// Slots at most if they do: 32 MiB, for 200,000 flows. The last step is eightfold, because packets wait while the memory
/// of the cache before goes back to the kernel: 4 MiB, and 16 MiB if there were a step between.
const MOST_SLOTS: usize = 262_144;
/// Step between epochs: their low bits are left to the numbers of fronts.
const EPOCH: u32 = MOST_FRONTS as u32 + 1;
/// Windows that a pause lasts. A window is four lookups for each slot.
const PAUSE: u64 = 64;

/// What a packet that finds its way is spared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spared {
    /// Code, around a lookup that takes little longer than one in the cache.
    Code,
    /// Lookups that take several times as long.
    Lookups,
}

impl Spared {
    /// Eighths of the packets that must find their way for the lookups to pay.
    fn eighths(self) -> u64 {
        match self {
            Self::Code => 7,
            Self::Lookups => 4,
        }
    }

    /// Slots at most. More would spare little code: a hash of many entries waits for memory as a cache of many ways does.
    fn most_slots(self) -> usize {
        match self {
            Self::Code => MANY_SLOTS,
            Self::Lookups => MOST_SLOTS,
        }
    }
}

/// Tag and flow key; words behind the flow key are zero.
pub(super) type Key = [u64; 1 + MOST_WORDS];

/// The first slots of the two pairs that the way of a key may be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    first: u32,
    second: u32,
}

impl Place {
    /// The slots, in the order in which they are looked at.
    fn slots(self) -> [u32; 4] {
        let Self { first, second } = self;
        [first, first + 1, second, second + 1]
    }
}

/// A packet's lookups, as its code does them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Walk {
    /// Addresses of the statistics of the entries hit, or 0.
    stats: [u64; MOST_LOOKUPS],
    tables: [u16; MOST_LOOKUPS],
    /// Lookups; more than there is room for if the way cannot be kept.
    len: usize,
}

/// A lookup on a way.
#[derive(Debug, Clone, Copy)]
pub(super) struct WayLookup {
    pub(super) table: usize,
    /// Statistics of the entry hit, or null.
    pub(super) stats: *const EntryStats,
    /// Whether hits are counted.
    pub(super) counted: bool,
    /// Whether their time is kept.
    pub(super) timed: bool,
}

impl WayLookup {
    /// The lookup that is kept as a word for the entry's statistics and a half for the table.
    #[inline]
    fn of(stats: u64, table: u16) -> Self {
        Self {
            table: usize::from(table & !FLAGS),
            stats: stats as *const EntryStats,
            counted: table & COUNTED != 0,
            timed: table & TIMED != 0,
        }
    }
}

/// In the number of a table: whether its hits are counted, and timed, and whether the lookup hit.
const COUNTED: u16 = 1 << 15;
const TIMED: u16 = 1 << 14;
const HIT: u16 = 1 << 13;
const FLAGS: u16 = COUNTED | TIMED | HIT;

impl Walk {
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a lookup.
    #[inline]
    pub(super) fn add(&mut self, id: TableId, table: &TableView, hit: Option<&EntryStats>) {
        self.add_lookup(id, table.counted, table.timed, hit);
    }

    #[inline]
    pub(super) fn add_lookup(&mut self, id: TableId, counted: bool, timed: bool, hit: Option<&EntryStats>) {
        let (Some(stats), Some(slot), true) =
            (self.stats.get_mut(self.len), self.tables.get_mut(self.len), id.0 < HIT.into())
        else {
            self.len = MOST_LOOKUPS + 1;
            return;
        };
        *stats = hit.map_or(0, |stats| std::ptr::from_ref(stats) as u64);
        let flags = [(counted, COUNTED), (timed, TIMED), (hit.is_some(), HIT)];
        *slot = flags.iter().filter(|(is_set, _)| *is_set).fold(id.0 as u16, |slot, (_, flag)| slot | flag);
        self.len += 1;
    }

    /// Whether all lookups hit an entry whose hits are counted.
    fn is_all_counted(&self) -> bool {
        self.tables.iter().take(self.len).all(|table| table & (HIT | COUNTED) == HIT | COUNTED)
    }

    /// Whether the time of some hit is kept.
    fn is_timed(&self) -> bool {
        self.tables.iter().take(self.len).any(|table| table & TIMED != 0)
    }

    /// Its lookups; `None` if there are too many.
    pub(super) fn lookups(&self) -> Option<impl Iterator<Item = WayLookup>> {
        let (stats, tables) = (self.stats.get(..self.len)?, self.tables.get(..self.len)?);
        Some(stats.iter().zip(tables).map(|(stats, table)| WayLookup::of(*stats, *table)))
    }
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It leaves as it came.
    Leaves(Leaves),
    /// It is dropped, for a reason of the program or because nothing sends it.
    Drop(Dropped),
}

/// Kinds of outcomes, in a word whose low half is the port or the reason.
const LEAVES: u64 = 1 << 32;
const QUEUED: u64 = 2 << 32;
const REASON: u64 = 3 << 32;
const NOWHERE: u64 = 4 << 32;
const KINDS: u64 = 0xff << 32;
/// In the same word: [`Walk::is_all_counted`] and [`Walk::is_timed`].
const ALL_COUNTED: u64 = 1 << 40;
const IS_TIMED: u64 = 1 << 41;
/// Shift of the number of lookups.
const COUNT: u32 = 48;

impl Outcome {
    fn word(self) -> Option<u64> {
        Some(match self {
            Self::Leaves(Leaves { port, queue: false }) => LEAVES | u64::from(port),
            Self::Leaves(Leaves { port, queue: true }) => QUEUED | u64::from(port),
            Self::Drop(Dropped::Reason(id)) => REASON | u64::from(id.0),
            Self::Drop(Dropped::NoDestination) => NOWHERE,
            Self::Drop(Dropped::Limit(_) | Dropped::NoExtern(_)) => return None,
        })
    }

    #[inline]
    fn of(word: u64) -> Self {
        let number = word as u32;
        match word & KINDS {
            LEAVES => Self::Leaves(Leaves { port: number, queue: false }),
            QUEUED => Self::Leaves(Leaves { port: number, queue: true }),
            REASON => Self::Drop(Dropped::Reason(ReasonId(number))),
            _ => Self::Drop(Dropped::NoDestination),
        }
    }
}

/// The tables that packets of a way look up, and which of these lookups hit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tables {
    len: u64,
    words: [u64; 2],
}

impl PartialEq for Tables {
    /// Compared for every packet: with one branch instead of three.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let differ = |i: usize| self.words[i] ^ other.words[i];
        (self.len ^ other.len) | differ(0) | differ(1) == 0
    }
}

impl Tables {
    /// Each table, and whether the lookup hit.
    pub(super) fn iter(self) -> impl Iterator<Item = (usize, bool)> {
        (0..self.len as usize).map(move |i| {
            let table = self.table(i);
            (usize::from(table & !FLAGS), table & HIT != 0)
        })
    }

    #[inline]
    fn table(self, i: usize) -> u16 {
        (self.words[usize::from(i >= 4)] >> (16 * (i % 4))) as u16
    }
}

/// A way that was found.
pub(super) struct Way<'a>(&'a Slot);

impl Way<'_> {
    #[inline]
    pub(super) fn outcome(&self) -> Outcome {
        Outcome::of(self.0[OUTCOME])
    }

    /// How packets leave, if they do.
    #[inline]
    pub(super) fn leaves(&self) -> Option<Leaves> {
        let word = self.0[OUTCOME];
        let kind = word & KINDS;
        (kind == LEAVES || kind == QUEUED).then_some(Leaves { port: word as u32, queue: kind == QUEUED })
    }

    /// Number of lookups.
    #[inline]
    fn count(&self) -> usize {
        (self.0[OUTCOME] >> COUNT) as usize
    }

    #[inline]
    pub(super) fn tables(&self) -> Tables {
        Tables { len: self.0[OUTCOME] >> COUNT, words: [self.0[TABLES], self.0[TABLES + 1]] }
    }

    /// The statistics of the entries hit, if all lookups hit one whose hits are counted.
    #[inline]
    pub(super) fn all_counted(&self) -> Option<&[u64]> {
        self.0[STATS..TABLES].get(..self.count()).filter(|_| self.0[OUTCOME] & ALL_COUNTED != 0)
    }

    /// Whether the time of some hit is kept.
    #[inline]
    pub(super) fn is_timed(&self) -> bool {
        self.0[OUTCOME] & IS_TIMED != 0
    }

    /// Brings the statistics of the entries hit on their way from memory.
    #[inline]
    pub(super) fn prefetch(&self) {
        for stats in self.0[STATS..TABLES].iter().take(self.count()) {
            // SAFETY: null, or of a live entry, as the module says.
            let stats = unsafe { (*stats as *const EntryStats).as_ref() };
            stats.map(EntryStats::own).into_iter().for_each(tables::prefetch);
        }
    }

    /// Its lookups.
    #[inline]
    pub(super) fn lookups(&self) -> impl Iterator<Item = WayLookup> {
        let tables = self.tables();
        let lookup = move |(i, stats): (usize, &u64)| WayLookup::of(*stats, tables.table(i));
        self.0[STATS..TABLES].iter().take(tables.len as usize).enumerate().map(lookup)
    }
}

/// The ways.
#[derive(Debug, Default)]
pub(super) struct WayCache {
    /// A power of two below 2^32, once a batch has begun.
    slots: Slots,
    /// What distributes keys, so that nobody can choose packets that displace each other.
    seeds: [u64; LINE],
    /// The view that ways hold for, and the changes in it.
    of: (u64, u64),
    /// A multiple of [`EPOCH`].
    epoch: u32,
    /// Lookups of this window, those that found a way, and ways of this epoch that were displaced.
    lookups: u64,
    hits: u64,
    displaced: u64,
    /// Packets that go without lookup yet.
    pause: u64,
}

impl WayCache {
    /// Begins a batch in a view, after so many changes.
    pub(super) fn begin(&mut self, of: (u64, u64)) {
        if self.slots.len() == 0 {
            let random = std::hash::RandomState::new();
            self.seeds = std::array::from_fn(|i| std::hash::BuildHasher::hash_one(&random, i));
            self.resize(FEWEST_SLOTS);
        }
        if self.of != of {
            self.of = of;
            self.forget();
        }
    }

    /// Whether packets are not worth a lookup.
    pub(super) fn pauses(&self) -> bool {
        self.pause > 0
    }

    /// Counts packets that went without lookup.
    pub(super) fn pass(&mut self, packets: usize) {
        self.pause = self.pause.saturating_sub(packets as u64);
    }

    /// Forgets all ways.
    fn forget(&mut self) {
        match self.epoch.checked_add(EPOCH) {
            Some(epoch) => self.epoch = epoch,
            // Epochs are used up; slots of former ones must not come back.
            None => self.resize(self.slots.len()),
        }
    }

    /// Empty slots, of which memory becomes real when they are used.
    fn resize(&mut self, slots: usize) {
        (self.slots, self.epoch) = (Slots::new(slots), EPOCH);
    }

    /// The first word of the keys of packets from a port that have a front of this number; 0: of their flow keys.
    #[inline]
    pub(super) fn tag(&self, port: u32, front: u32) -> u64 {
        u64::from(self.epoch | front) << 32 | u64::from(port)
    }

    /// The place of a key; its first slots are on their way from memory then.
    #[inline]
    pub(super) fn place(&self, key: &Key) -> Place {
        let mix = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            product as u64 ^ (product >> 64) as u64
        };
        // Pairs of words side by side: both factors are unknown to whoever chooses the words.
        let [a, b, c, d, e, f, g] = key;
        let [s, t, u, v, w, x, y, z] = self.seeds;
        let hash = mix(a ^ s, b ^ t) ^ mix(c ^ u, d ^ v) ^ mix(e ^ w, f ^ x) ^ mix(g ^ y, z);
        let mask = (self.slots.len() as u32).wrapping_sub(1) & !1;
        let (first, second) = (hash as u32 & mask, (hash >> 32) as u32 & mask);
        let place = Place { first, second };
        // What is compared in both slots, and the rest of the first.
        let [one, other] = [first, first + 1].map(|i| self.slot(i));
        one.into_iter().flat_map(|slot| [&slot[0], &slot[LINE]]).for_each(tables::prefetch);
        other.into_iter().for_each(|slot| tables::prefetch(&slot[0]));
        place
    }

    #[inline]
    fn slot(&self, i: u32) -> Option<&Slot> {
        self.slots.get(i as usize)
    }

    /// The slot of a key at its place.
    #[inline(always)]
    pub(super) fn find(&self, key: &Key, place: Place) -> Option<u32> {
        // All words, without a branch for each.
        let differs = |slot: &Slot| key.iter().zip(slot).fold(0, |or, (a, b)| or | (a ^ b));
        let is_here = |i: u32| self.slot(i).is_some_and(|slot| differs(slot) == 0);
        let [first, others @ ..] = place.slots();
        if is_here(first) { Some(first) } else { others.into_iter().find(|i| is_here(*i)) }
    }

    /// Counts lookups, and how many of them found a way.
    pub(super) fn count(&mut self, lookups: usize, hits: usize) {
        self.lookups += lookups as u64;
        self.hits += hits as u64;
    }

    #[inline]
    pub(super) fn way(&self, slot: u32) -> Option<Way<'_>> {
        self.slot(slot).map(Way)
    }

    /// Keeps the way of a key at its place, if it is one that can be kept.
    pub(super) fn keep(&mut self, key: &Key, place: Place, walk: &Walk, outcome: Outcome) {
        let (Some(word), true) = (outcome.word(), walk.len <= MOST_LOOKUPS) else { return };
        let is_current = |cache: &Self, i| {
            cache.slot(i).is_some_and(|slot| slot[0] >> 32 & !u64::from(EPOCH - 1) == u64::from(cache.epoch))
        };
        let slots = place.slots();
        let free = slots.into_iter().find(|i| !is_current(self, *i));
        let to = free.unwrap_or_else(|| {
            self.displaced += 1;
            slots[self.displaced as usize % slots.len()]
        });
        let Some(slot) = self.slots.get_mut(to as usize) else { return };
        slot[..OUTCOME].copy_from_slice(key);
        let flags = [(walk.is_all_counted(), ALL_COUNTED), (walk.is_timed(), IS_TIMED)];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag);
        slot[OUTCOME] = word | flags | (walk.len as u64) << COUNT;
        slot[STATS..TABLES].copy_from_slice(&walk.stats);
        // Those behind the last lookup are of other walks.
        let mut tables = walk.tables;
        tables.iter_mut().skip(walk.len).for_each(|table| *table = 0);
        for (word, tables) in slot[TABLES..].iter_mut().zip(tables.chunks(4)) {
            *word = tables.iter().rev().fold(0, |word, table| word << 16 | u64::from(*table));
        }
    }

    /// Ends a batch. After a window, grows if many ways were displaced, or pauses if too few packets have found theirs.
    pub(super) fn end(&mut self, spared: Spared) {
        let slots = self.slots.len();
        if self.lookups < 4 * slots as u64 {
            return;
        }
        if self.displaced * 32 > self.lookups && slots < spared.most_slots() {
            self.resize(if slots < MANY_SLOTS { slots * GROWTH } else { MOST_SLOTS });
        } else if self.hits * 8 < self.lookups * spared.eighths() {
            self.pause = PAUSE * self.lookups;
        }
        (self.lookups, self.hits, self.displaced) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn cache() -> WayCache {
        let mut cache = WayCache::default();
        cache.begin((1, 0));
        cache
    }

    fn key(cache: &WayCache, port: u32, flow: u64) -> (Key, Place) {
        let key = [cache.tag(port, 0), flow, flow / 7, 0, 0, 0, 0];
        let place = cache.place(&key);
        (key, place)
    }

    fn leaves(port: u32) -> Outcome {
        Outcome::Leaves(Leaves { port, queue: false })
    }

    /// Looks a flow up, and keeps a way for it if it has none; whether it had one.
    fn meet(cache: &mut WayCache, flow: u64) -> bool {
        let (key, place) = key(cache, 1, flow);
        let found = cache.find(&key, place).is_some();
        cache.count(1, found.into());
        if !found {
            cache.keep(&key, place, &Walk::default(), leaves(1));
        }
        found
    }

    #[test]
    fn a_way_has_its_lookups_and_outcome() {
        let outcomes = [
            leaves(0xffff_fff8),
            Outcome::Leaves(Leaves { port: 3, queue: true }),
            Outcome::Drop(Dropped::Reason(ReasonId(0x1_0000))),
            Outcome::Drop(Dropped::NoDestination),
        ];
        let mut cache = cache();
        for (flow, outcome) in outcomes.into_iter().enumerate() {
            let walk = Walk {
                stats: [16, 0, 48, 64, 80, 96],
                tables: [1, 2 | COUNTED, 3 | TIMED, 4 | COUNTED | TIMED, 5, 6],
                len: 2 + flow,
            };
            let (key, place) = key(&cache, 1, flow as u64);
            cache.keep(&key, place, &walk, outcome);
            let slot = cache.find(&key, place).unwrap();
            let way = cache.way(slot).unwrap();
            assert_eq!(way.outcome(), outcome);
            assert_eq!(
                way.leaves().map(Outcome::Leaves),
                Some(outcome).filter(|it| matches!(it, Outcome::Leaves(_)))
            );
            let lookups: Vec<_> = way.lookups().map(|lookup| (lookup.table, lookup.stats as u64)).collect();
            let expected = [(1, 16), (2, 0), (3, 48), (4, 64), (5, 80), (6, 96)];
            assert_eq!(lookups, expected[..2 + flow]);
            let flags: Vec<_> = way.lookups().map(|lookup| (lookup.counted, lookup.timed)).collect();
            assert_eq!(
                flags,
                [(false, false), (true, false), (false, true), (true, true), (false, false)][..2 + flow]
            );
        }
    }

    #[test]
    fn ways_are_of_one_port_and_flow() {
        let mut cache = cache();
        assert!(!meet(&mut cache, 5));
        assert!(meet(&mut cache, 5));
        assert!(!meet(&mut cache, 6));
        let (key, place) = key(&cache, 2, 5);
        assert_eq!(cache.find(&key, place), None);
    }

    #[test]
    fn another_view_and_a_change_forget_all_ways() {
        let mut cache = cache();
        for of in [(1, 1), (2, 1), (1, 1)] {
            meet(&mut cache, 5);
            cache.begin(cache.of);
            assert!(meet(&mut cache, 5));
            cache.begin(of);
            assert!(!meet(&mut cache, 5), "{of:?}");
        }
    }

    #[test]
    fn epochs_do_not_come_back() {
        let mut cache = cache();
        meet(&mut cache, 5);
        let first = cache.epoch;
        cache.epoch = u32::MAX - (EPOCH - 1);
        cache.begin((1, 1));
        assert_eq!(cache.epoch, EPOCH);
        cache.epoch = first;
        assert!(!meet(&mut cache, 5));
    }

    #[test]
    fn long_ways_and_limits_are_not_kept() {
        let mut cache = cache();
        let (key, place) = key(&cache, 1, 5);
        cache.keep(&key, place, &Walk { len: MOST_LOOKUPS + 1, ..Walk::default() }, leaves(1));
        let limit = Outcome::Drop(Dropped::Limit(pipeline::interp::Limit::Effects));
        cache.keep(&key, place, &Walk::default(), limit);
        assert_eq!(cache.find(&key, place), None);
    }

    #[test]
    fn the_cache_grows_with_its_flows() {
        let mut cache = cache();
        let mut grown = |flows: u64, spared| {
            for flow in (0..flows).cycle().take(2_000_000) {
                if !cache.pauses() {
                    meet(&mut cache, flow);
                    cache.end(spared);
                }
            }
            let found = (0..flows).filter(|flow| meet(&mut cache, *flow)).count() as u64;
            (cache.slots.len(), cache.pauses(), found * 100 > flows * 98)
        };
        assert_eq!(grown(10_000, Spared::Code), (MANY_SLOTS, false, true));
        assert_eq!(grown(10_000, Spared::Lookups), (MANY_SLOTS, false, true));
        assert_eq!(grown(100_000, Spared::Lookups), (MOST_SLOTS, false, true));
    }

    #[test]
    fn a_cache_that_spares_little_stays_small() {
        let mut cache = cache();
        for flow in (0..100_000).cycle().take(2_000_000) {
            if cache.pauses() {
                break;
            }
            meet(&mut cache, flow);
            cache.end(Spared::Code);
        }
        assert!(cache.pauses());
        assert_eq!(cache.slots.len(), MANY_SLOTS);
    }

    #[test]
    fn half_of_the_slots_have_room_for_nearly_all_ways() {
        let mut cache = cache();
        let flows = FEWEST_SLOTS as u64 / 2;
        (0..2 * flows).for_each(|flow| _ = meet(&mut cache, flow % flows));
        let found = (0..flows).filter(|flow| meet(&mut cache, *flow)).count();
        assert!(found > 1000, "{found} of {flows}");
    }

    #[test]
    fn ever_new_flows_are_not_looked_up_for_long() {
        for spared in [Spared::Code, Spared::Lookups] {
            let mut cache = cache();
            let mut looked_up = 0;
            for flow in 0..10_000_000 {
                if cache.pauses() {
                    cache.pass(1);
                } else {
                    meet(&mut cache, flow);
                    cache.end(spared);
                    looked_up += 1;
                }
            }
            let slots = spared.most_slots();
            assert_eq!(cache.slots.len(), slots);
            // A window of each size, and one behind a pause.
            assert!(looked_up < 3 * 4 * slots as u64, "{looked_up}");
            // Flows that come back are found after the pause.
            for _ in 0..PAUSE * 4 * slots as u64 {
                cache.pass(1);
            }
            assert!(!cache.pauses());
        }
    }
}

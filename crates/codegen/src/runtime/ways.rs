//! Remembered ways: packets with the flow key of an earlier one take its way through the tables without code.
//!
//! Keys are laid out for a batch, then looked up in the worker's cache ([`super::way_cache`]): flow keys, or the bits
//! at packets' fronts that these follow from ([`super::fronts`]). A packet whose key is there is counted by all entries
//! on its way, and leaves or is dropped; the others run one after the other, and what happens to them is kept if it
//! follows from the key ([`crate::special::decided`]).
//!
//! Invariant: the cache begins with the view that the batch holds and the changes that were complete before its first
//! lookup. A change that follows is complete before the next batch, which forgets all ways then.

use std::sync::atomic::Ordering::Acquire;

use pipeline::env::Env;
use pipeline::interp::{Dropped, Received};
use smallvec::SmallVec;

use super::fronts::Fronts;
use super::way_cache::{Key, Outcome, Place, Spared, WayCache};
use super::{Effect, Effects, Fate, Form, Machine, Worker};
use crate::form;
use crate::layout::word;
use crate::shortcut::Leaves;
use crate::special::Special;
use crate::special::flow_key::MOST_WORDS;
use crate::view::View;

/// Packets whose ways are looked up together.
pub(super) const MOST: usize = 64;

/// A worker's ways, and memory for a batch's lookups.
#[derive(Debug, Default)]
pub(super) struct Ways {
    pub(super) cache: WayCache,
    pub(super) fronts: Fronts,
    /// Packets that have gone a remembered way.
    pub(super) followed: u64,
    /// Those of them that were found by their fronts.
    pub(super) unparsed: u64,
    packets: Vec<Lookup>,
    /// Whether all packets of the last batch found ways by their fronts and left by them.
    pub(super) all_leave: bool,
    /// [`Worker::remember_nothing`]
    pub(super) are_off: bool,
}

/// A packet's lookup.
#[derive(Debug, Clone, Copy, Default)]
struct Lookup {
    key: Key,
    /// Whether the key is that of a front.
    has_front: bool,
    /// `None` for a packet that the code is not for.
    place: Option<Place>,
    slot: Option<u32>,
}

impl Lookup {
    #[inline]
    fn find(&mut self, cache: &WayCache) {
        self.slot = self.place.and_then(|place| cache.find(&self.key, place));
    }

    /// Looks the key up after ways were kept in the same batch.
    #[inline(never)]
    fn find_again(&mut self, cache: &WayCache) {
        self.find(cache);
    }
}

/// Specialised code whose packets' ways are worth remembering.
#[derive(Clone, Copy)]
pub(super) struct Remembered<'a> {
    view: &'a View,
    pub(super) special: &'a Special,
    /// What they are spared.
    pub(super) spared: Spared,
}

impl<'a> Remembered<'a> {
    /// That of a view. One lookup in a list of few entries or in a hash takes little longer than one in the cache.
    pub(super) fn of(view: &'a View) -> Option<Self> {
        let special = view.special.as_deref()?;
        let (_, words) = special.code.flow_key()?;
        let first = special.first_table.and_then(|id| view.tables.get(id.index()));
        let spared = match first.map(|first| first.reader.form) {
            _ if special.looks_up_several() => Spared::Lookups,
            Some(form::Form::Classifier | form::Form::Prefix) => Spared::Lookups,
            Some(form::Form::Exact | form::Form::Scan) => Spared::Code,
            None => return None,
        };
        (words <= MOST_WORDS).then_some(Self { view, special, spared })
    }
}

impl Worker {
    /// Whether packets look for remembered ways in this batch.
    pub(super) fn remembers<'v>(&mut self, view: &'v View) -> Option<Remembered<'v>> {
        let remembered = Remembered::of(view)?;
        if self.ways.are_off || self.ways.cache.pauses() {
            return None;
        }
        self.ways.cache.begin((view.id, view.changes.load(Acquire)));
        Some(remembered)
    }

    /// Takes packets through a program whose ways are remembered; see [`Worker::run_batch`].
    pub(super) fn run_remembered<'r>(
        &mut self,
        remembered: Remembered<'_>,
        env: &mut dyn Env,
        mut packets: impl Iterator<Item = Received<'r>> + Clone,
        effects: &mut Effects,
        fates: &mut Vec<Fate>,
    ) {
        let mut ways = std::mem::take(&mut self.ways);
        ways.packets.resize(MOST, Lookup::default());
        let mut all_leave = true;
        loop {
            let count = self.look_up_ways(remembered, env, packets.clone().take(MOST), effects, &mut ways);
            if count == 0 {
                break;
            }
            let now = env.now();
            let Ways { cache, fronts, followed, packets: lookups, .. } = &mut ways;
            let mut is_stale = false;
            for (lookup, received) in lookups.iter_mut().take(count).zip(packets.by_ref()) {
                if is_stale {
                    lookup.find_again(cache);
                }
                if !lookup.has_front && lookup.place.is_some() && fronts.learns() {
                    fronts.learn(&remembered.special.code, received.visible);
                }
                let Lookup { key, place, slot, .. } = lookup;
                let way = slot.and_then(|slot| cache.way(slot));
                all_leave &= lookup.has_front && way.as_ref().is_some_and(|way| way.leaves().is_some());
                fates.push(match (way, *place) {
                    (Some(way), _) => {
                        *followed += 1;
                        self.follow(&way, &received, now, effects)
                    }
                    (None, Some(place)) => {
                        if let Some(outcome) = self.explore(remembered.view, env, &received, effects) {
                            cache.keep(key, place, &self.scratch.walk.borrow(), outcome);
                            // It may have taken the slot of another.
                            is_stale = true;
                        }
                        effects.fate()
                    }
                    (None, None) => {
                        let view = remembered.view;
                        self.frame.packet(&self.scratch, (view, env), &received, None, effects);
                        effects.fate()
                    }
                });
            }
        }
        ways.cache.end(remembered.spared);
        ways.all_leave = all_leave;
        self.ways = ways;
    }

    /// Lays out keys and looks them up; returns the number of packets.
    fn look_up_ways<'r>(
        &mut self,
        remembered: Remembered<'_>,
        env: &mut dyn Env,
        packets: impl Iterator<Item = Received<'r>> + Clone,
        effects: &mut Effects,
        ways: &mut Ways,
    ) -> usize {
        let special = remembered.special;
        let Ways { cache, fronts, packets: lookups, .. } = ways;
        fronts.begin(&special.code);
        let list = fronts.list();
        let (mut count, mut with_front) = (0, 0);
        for (received, lookup) in packets.clone().zip(lookups.iter_mut()) {
            count += 1;
            (lookup.place, lookup.has_front) = (None, false);
            if received.flags == special.flags
                && let Some((number, front)) = Fronts::of(list, received.visible)
            {
                let [tag, key @ ..] = &mut lookup.key;
                *tag = cache.tag(received.port, number);
                front.lay_out(received.visible, key);
                lookup.has_front = true;
                lookup.place = Some(cache.place(&lookup.key));
                with_front += 1;
            }
        }
        if with_front < count {
            self.lay_out_flow_keys(remembered, env, packets, effects, ways);
        }
        let Ways { cache, fronts, packets: lookups, .. } = ways;
        let (mut hits, mut with_front_hits) = (0, 0);
        for lookup in lookups.iter_mut().take(count) {
            lookup.find(cache);
            if let Some(way) = lookup.slot.and_then(|slot| cache.way(slot)) {
                way.prefetch();
                hits += 1;
                with_front_hits += u64::from(lookup.has_front);
            }
        }
        cache.count(count, hits);
        fronts.end(count as u64, with_front as u64, with_front_hits);
        ways.unparsed += with_front_hits;
        count
    }

    /// Lays out the flow keys of packets without a front.
    #[inline(never)]
    fn lay_out_flow_keys<'r>(
        &mut self,
        remembered: Remembered<'_>,
        env: &mut dyn Env,
        packets: impl Iterator<Item = Received<'r>> + Clone,
        effects: &mut Effects,
        ways: &mut Ways,
    ) {
        let Remembered { view, special, .. } = remembered;
        let code = &special.code;
        let (Some((function, _)), Some(stage), Some(one)) =
            (code.flow_key(), code.program.stages.first(), packets.clone().next())
        else {
            return;
        };
        // Whatever the first packet is, the machine is one of the specialised code.
        let any = Received { flags: special.flags, ..one };
        let packets: SmallVec<[_; MOST]> = packets.collect();
        let (machine, _) = self.frame.machine(&self.scratch, (view, env), &any, effects);
        machine.begin();
        for (received, lookup) in packets.iter().zip(&mut ways.packets) {
            if received.flags != special.flags || lookup.has_front {
                continue;
            }
            machine.received.set(received);
            let [tag, key @ ..] = &mut lookup.key;
            // Words behind the key are zero.
            *key = [0; MOST_WORDS];
            machine.parse_ahead(stage);
            machine.execute(function, key.as_mut_ptr().cast_const(), 0);
            *tag = ways.cache.tag(received.port, 0);
            lookup.place = Some(ways.cache.place(&lookup.key));
        }
    }

    /// A packet goes a remembered way.
    #[inline]
    fn follow(
        &mut self,
        way: &super::way_cache::Way<'_>,
        received: &Received<'_>,
        now: u64,
        effects: &mut Effects,
    ) -> Fate {
        let len = Form::received_len(received);
        // SAFETY: statistics of entries that were hit in the view that this batch holds, after the last change: the
        // records of such entries, which own them, live as long as the view is held.
        unsafe { self.scratch.tallies.get_mut().add_way(way, len.into(), now) };
        way.outcome().fate(effects)
    }

    /// Runs a packet; returns its outcome if it follows from the flow key. The lookups are in the scratch memory then.
    pub(super) fn explore(
        &mut self,
        view: &View,
        env: &mut dyn Env,
        received: &Received<'_>,
        effects: &mut Effects,
    ) -> Option<Outcome> {
        self.scratch.walk.get_mut().clear();
        let (mut machine, _) = self.frame.machine(&self.scratch, (view, env), received, effects);
        machine.walks = true;
        machine.begin();
        machine.only_pass();
        machine.outcome()
    }
}

impl Outcome {
    /// The fate of a packet that meets it.
    #[inline]
    pub(super) fn fate(self, effects: &mut Effects) -> Fate {
        match self {
            Self::Leaves(leaves) => Fate::Leaves(leaves),
            Self::Drop(reason) => {
                effects.add(|| Effect::Drop(reason));
                effects.fate()
            }
        }
    }
}

impl Machine<'_> {
    /// The outcome of a packet that has run, if others with its flow key meet the same.
    fn outcome(&self) -> Option<Outcome> {
        if self.word(word::UNKEYED) != 0 {
            return None;
        }
        let effects = self.effects.borrow();
        match effects.list.get(self.first_effect.get()..) {
            Some([Effect::Drop(reason @ (Dropped::Reason(_) | Dropped::NoDestination))]) => {
                Some(Outcome::Drop(*reason))
            }
            Some([effect]) if self.is_unchanged(&self.scratch.pass.borrow()) => {
                Leaves::of(effect, Form::received_len(self.received.get())).map(Outcome::Leaves)
            }
            _ => None,
        }
    }
}

//! Packets that all find remembered ways by their fronts and leave by them: they need neither what code needs nor a
//! list of their fates.
//!
//! Packets are asked for such ways if those of the batch before had them ([`Ways::all_leave`]). Where one does not, the
//! batch goes on from the first packet that has not followed, as [`super::ways`] describes.
//!
//! Invariant: as for [`super::ways`], of each block of packets that are looked up together; a [`Found`] borrows the
//! worker, so nothing is kept in the cache between the lookups and what follows them.

use super::Worker;
use super::fronts::Fronts;
use super::way_cache::{Key, Place, Spared};
use super::ways::{MOST, Ways};
use crate::code::Code;
use crate::shortcut::Leaves;
use crate::special::flow_key::MOST_WORDS;
use crate::view::View;

/// A packet's lookup.
#[derive(Debug, Clone, Copy)]
struct Lookup {
    key: Key,
    place: Place,
}

/// Memory for the lookups of [`MOST`] packets.
#[derive(Debug)]
pub(super) struct Lookups {
    packets: [Lookup; MOST],
    lens: [u32; MOST],
    slots: [u32; MOST],
}

impl Default for Lookups {
    fn default() -> Self {
        let none = Lookup { key: [0; 1 + MOST_WORDS], place: Place::default() };
        Self { packets: [none; MOST], lens: [0; MOST], slots: [0; MOST] }
    }
}

/// Packets whose ways have been found, and which have not followed them yet.
pub struct Found<'a> {
    worker: &'a mut Worker,
    view: &'a View,
    count: usize,
    spared: Spared,
}

impl Worker {
    /// Looks up the ways of the next packets of a port, with their lengths, bytes: of a block of them at most. `None`, and
    /// nothing has happened, unless all of them have ways that they leave by as they came, or if there are none.
    /// Packets are as those of [`Worker::run_batch`] with these flags; of their fronts, what is visible without effort
    /// suffices.
    #[inline]
    pub fn find_ways<'a, 'r>(
        &'a mut self,
        view: &'a View,
        (port, flags): (u32, u64),
        packets: impl Iterator<Item = (&'r [u8], u32)>,
    ) -> Option<Found<'a>> {
        if !self.ways.all_leave {
            return None;
        }
        let remembered = self.remembers(view).filter(|remembered| remembered.special.flags == flags)?;
        let count = self.found.find_all(&mut self.ways, &remembered.special.code, port, packets);
        self.ways.all_leave = count.is_some();
        Some(Found {
            view,
            count: count.filter(|count| *count > 0)?,
            spared: remembered.spared,
            worker: self,
        })
    }
}

impl Lookups {
    /// See [`Worker::find_ways`]; returns the number of packets.
    #[inline]
    fn find_all<'r>(
        &mut self,
        ways: &mut Ways,
        code: &Code,
        port: u32,
        packets: impl Iterator<Item = (&'r [u8], u32)>,
    ) -> Option<usize> {
        let (Self { packets: lookups, lens, slots }, Ways { cache, fronts, .. }) = (self, ways);
        fronts.begin(code);
        let list = fronts.list();
        let mut count = 0;
        for (((visible, len), lookup), to) in packets.zip(&mut *lookups).zip(&mut *lens) {
            let (number, front) = Fronts::of(list, visible)?;
            let [tag, key @ ..] = &mut lookup.key;
            *tag = cache.tag(port, number);
            front.lay_out(visible, key);
            lookup.place = cache.place(&lookup.key);
            *to = len;
            count += 1;
        }
        for (Lookup { key, place }, to) in lookups.iter().take(count).zip(slots) {
            let slot = cache.find(key, *place)?;
            let way = cache.way(slot)?;
            way.leaves()?;
            way.prefetch();
            *to = slot;
        }
        Some(count)
    }
}

impl Found<'_> {
    /// Returns the number of packets.
    #[expect(clippy::len_without_is_empty, reason = "there are some")]
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Counts the packets by all entries on their ways at time `now`, and tells how each leaves, in order.
    #[inline]
    pub fn follow(self, now: u64, mut leave: impl FnMut(Leaves)) {
        let Self { worker, view, count, spared } = self;
        worker.begin(view);
        let Lookups { lens, slots, .. } = &worker.found;
        let Ways { cache, fronts, followed, unparsed, .. } = &mut worker.ways;
        let tallies = worker.scratch.tallies.get_mut();
        for (slot, len) in slots.iter().zip(lens).take(count) {
            let Some(way) = cache.way(*slot) else { continue };
            // SAFETY: the way was met in this view, after the last change in it that `find_ways` saw: the records of
            // its entries, which own the statistics, live as long as the view is held, which `Found` borrows.
            unsafe { tallies.add_way(&way, (*len).into(), now) };
            way.leaves().into_iter().for_each(&mut leave);
        }
        cache.count(count, count);
        cache.end(spared);
        let packets = count as u64;
        fronts.end(packets, packets, packets);
        *followed += packets;
        *unparsed += packets;
        worker.end(view);
    }
}

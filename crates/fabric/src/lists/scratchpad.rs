//! List-based forwarding (mSwitch 3.3): a worker's scratchpad with one list of outputs per destination queue.
//!
//! Appending is O(1); a destination without packets costs nothing; lists keep the order in which the logic named them,
//! unicast and flooded packets alike. One packet may be on many lists, and on one list more than once. A list is a
//! chain of runs ([`crate::lists::output`]): an output that continues its list's last run only extends it.

use std::sync::Arc;

use crate::counters::{DropReason, Drops};
use crate::lists::output::{NIL, OUTPUTS, OutputList, Run, RunPool};
use crate::observe::notes::Notes;
use crate::rx::RxBatch;
use crate::worker::activity::Activity;

#[derive(Debug, Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
    /// Outputs counted so far: all but those from [`Open::uncounted`] on. A walk along the chain would wait for each run
    /// in turn.
    count: u32,
    /// The version that would continue its last run, as far as outputs are counted.
    end: u32,
}

const EMPTY: List = List { head: NIL, tail: NIL, count: 0, end: NIL };

/// The run that was extended last: most outputs continue it.
#[derive(Debug, Clone, Copy)]
struct Open {
    lane: u32,
    run: u32,
    /// The version that would continue it.
    next: u32,
    /// The first version not yet counted in [`Scratchpad::outputs`] and [`List::count`].
    uncounted: u32,
}

/// No lane has this number, so no output continues it.
const CLOSED: Open = Open { lane: NIL, run: NIL, next: 0, uncounted: 0 };

/// Sorts a list whose runs have one output each, by merging stretches already in order. Stable.
fn sort(runs: &mut RunPool, list: &mut List, packet: &impl Fn(u16) -> u16) {
    // Bin i holds the merger of up to 2^i ordered stretches, or nothing; earlier stretches are in higher bins.
    let mut bins = [NIL; 32];
    let mut rest = list.head;
    while rest != NIL {
        let mut stretch = rest;
        let mut last = rest;
        loop {
            rest = next(runs, last);
            if rest == NIL || key(runs, last, packet) > key(runs, rest, packet) {
                break;
            }
            last = rest;
        }
        if stretch == list.head && rest == NIL {
            return; // in order as it is
        }
        link(runs, last, NIL);
        for bin in &mut bins {
            if *bin == NIL {
                *bin = stretch;
                break;
            }
            stretch = merge(runs, std::mem::replace(bin, NIL), stretch, packet);
        }
    }
    let sorted = bins.into_iter().fold(NIL, |later, earlier| merge(runs, earlier, later, packet));
    (list.head, list.tail) = (sorted, sorted);
    while next(runs, list.tail) != NIL {
        list.tail = next(runs, list.tail);
    }
}

fn next(runs: &RunPool, at: u32) -> u32 {
    runs.get(at).map_or(NIL, |run| run.next)
}

fn link(runs: &mut RunPool, at: u32, next: u32) {
    if let Some(run) = runs.get_mut(at) {
        run.next = next;
    }
}

fn key(runs: &RunPool, at: u32, packet: &impl Fn(u16) -> u16) -> u16 {
    runs.get(at).map_or(0, |run| packet(run.first))
}

/// Merges two ordered lists; of equals, those of `a` come first.
fn merge(runs: &mut RunPool, mut a: u32, mut b: u32, packet: &impl Fn(u16) -> u16) -> u32 {
    let (mut head, mut tail) = (NIL, NIL);
    while a != NIL || b != NIL {
        let of_a = b == NIL || a != NIL && key(runs, a, packet) <= key(runs, b, packet);
        let from = if of_a { &mut a } else { &mut b };
        let taken = *from;
        *from = next(runs, taken);
        match tail {
            NIL => head = taken,
            tail => link(runs, tail, taken),
        }
        tail = taken;
    }
    head
}

/// A worker's lists. See the module.
pub struct Scratchpad {
    runs: RunPool,
    open: Open,
    /// Outputs of the batch, except those of the open run.
    outputs: usize,
    lists: Vec<List>,
    active: Vec<u32>,
    pub(crate) drops: Drops,
    pub(crate) notes: Notes,
    /// Nothing of the batch is counted at ports.
    pub(crate) rehearsal: bool,
    /// Activity of the thread.
    pub(crate) activity: Arc<Activity>,
}

impl Default for Scratchpad {
    fn default() -> Self {
        Self {
            runs: RunPool::of_batch(),
            open: CLOSED,
            outputs: 0,
            lists: Vec::new(),
            active: Vec::new(),
            drops: Drops::default(),
            notes: Notes::default(),
            rehearsal: false,
            activity: Arc::default(),
        }
    }
}

impl Scratchpad {
    /// Scratchpad of worker `index`, whose thread publishes this activity.
    pub(crate) fn of_worker(index: usize, activity: Arc<Activity>) -> Self {
        Self { notes: Notes::of_worker(index), activity, ..Self::default() }
    }

    /// Scratchpad of a batch that is never sent.
    pub(crate) fn for_rehearsal() -> Self {
        Self { rehearsal: true, ..Self::of_worker(0, Arc::default()) }
    }

    /// Empties all lists and makes room for a bridge's lanes. Allocates only after the bridge grew.
    #[inline]
    pub(crate) fn begin(&mut self, lanes: usize) {
        self.runs.clear();
        self.open = CLOSED;
        self.outputs = 0;
        while let Some(lane) = self.active.pop() {
            if let Some(list) = self.lists.get_mut(lane as usize) {
                *list = EMPTY;
            }
        }
        if self.lists.len() < lanes {
            self.lists.resize(lanes, EMPTY);
            self.active.reserve(lanes);
        }
    }

    /// Puts version `v` on the list of queue `lane`.
    #[inline(always)]
    pub(crate) fn append(&mut self, lane: u32, v: u16) {
        if lane == self.open.lane
            && u32::from(v) == self.open.next
            && let Some(run) = self.runs.get_mut(self.open.run)
        {
            run.count += 1;
            self.open.next += 1;
        } else {
            self.append_elsewhere(lane, v);
        }
    }

    /// [`Scratchpad::append`] of versions `first..end`, one after the other.
    #[inline]
    pub(crate) fn append_range(&mut self, lane: u32, first: u16, end: u16) {
        if first >= end {
            return;
        }
        self.append(lane, first);
        if lane == self.open.lane
            && let Some(run) = self.runs.get_mut(self.open.run)
        {
            run.count += end - first - 1;
            self.open.next = u32::from(end);
        } else {
            // The first was refused: so are the others.
            (first + 1..end).for_each(|v| self.append(lane, v));
        }
    }

    /// [`Scratchpad::append`] of the versions `first + i` for each bit `i` of a mask, in order.
    #[inline]
    pub(crate) fn append_mask(&mut self, lane: u32, first: u16, mut mask: u64) {
        self.close();
        let count = mask.count_ones() as usize;
        let fits = self.outputs + count <= OUTPUTS;
        while mask != 0 {
            let start = mask.trailing_zeros();
            let v = first.saturating_add(start as u16);
            let len = (!(mask >> start)).trailing_zeros();
            mask &= u64::MAX.checked_shl(start + len).unwrap_or(0);
            if !fits || self.add(lane, v, len as u16).is_none() {
                (v..v.saturating_add(len as u16)).for_each(|v| self.append(lane, v));
            }
        }
    }

    /// [`Scratchpad::append`] of an output that does not continue the open run.
    #[inline(never)]
    fn append_elsewhere(&mut self, lane: u32, v: u16) {
        self.count_open();
        if self.outputs < OUTPUTS
            && let Some(run) = self.add(lane, v, 1)
        {
            let next = u32::from(v) + 1;
            self.open = Open { lane, run, next, uncounted: next };
        } else {
            self.refuse(lane, v);
        }
    }

    /// Drops an output for which there is no room.
    #[cold]
    fn refuse(&mut self, lane: u32, v: u16) {
        self.open = CLOSED;
        self.drops.add(DropReason::BatchLimit, 1);
        self.notes.refused(v, lane, DropReason::BatchLimit);
    }

    /// Closes the open run.
    #[inline(always)]
    fn close(&mut self) {
        self.count_open();
        self.open = CLOSED;
    }

    /// Counts the outputs that have extended the open run, which the caller replaces.
    #[inline(always)]
    fn count_open(&mut self) {
        let Open { lane, next, uncounted, .. } = self.open;
        if next != uncounted
            && let Some(list) = self.lists.get_mut(lane as usize)
        {
            list.count += next - uncounted;
            list.end = next;
            self.outputs += (next - uncounted) as usize;
        }
    }

    /// Adds `len` versions from `v` on to the list and counts them; returns the run that ends with them. All outputs
    /// before are counted, and the caller replaces the open run.
    #[inline(always)]
    fn add(&mut self, lane: u32, v: u16, len: u16) -> Option<u32> {
        let list = self.lists.get_mut(lane as usize)?;
        // The runs of a rehearsal tell the order of its outputs.
        if list.end == u32::from(v) && !self.rehearsal {
            self.runs.get_mut(list.tail)?.count += len;
        } else {
            let run = self.runs.add_last(v, len)?;
            match self.runs.get_mut(list.tail) {
                Some(tail) => tail.next = run,
                None => {
                    // `begin` made room for each lane once. Without room the run stays in the pool, on no list.
                    if self.active.len() == self.active.capacity() {
                        return None;
                    }
                    self.active.push(lane);
                    list.head = run;
                }
            }
            list.tail = run;
        }
        list.count += u32::from(len);
        list.end = u32::from(v) + u32::from(len);
        self.outputs += usize::from(len);
        Some(list.tail)
    }

    /// Outputs of the batch so far.
    #[inline]
    pub(crate) fn used(&self) -> usize {
        self.outputs + (self.open.next - self.open.uncounted) as usize
    }

    /// Restores packet order within each list, after several logics have named outputs one after the other; `packet`
    /// returns a version's packet. The outputs of one packet keep their order.
    pub(crate) fn restore_order(&mut self, packet: impl Fn(u16) -> u16) {
        self.close();
        // The outputs of its one packet are in order.
        if self.rehearsal {
            return;
        }
        for lane in &self.active {
            let Some(list) = self.lists.get_mut(*lane as usize) else { continue };
            self.runs.split(list.head, &mut list.tail);
            sort(&mut self.runs, list, &packet);
            list.end = self.runs.get(list.tail).map_or(NIL, Run::end);
        }
    }

    /// Counts a packet that goes nowhere, or not everywhere, at the queue that it came from.
    #[inline]
    pub(crate) fn drop_packet(&mut self, packet: u16, reason: DropReason) {
        self.drops.add(reason, 1);
        self.notes.dropped(packet, reason);
    }

    /// Whether there is a list for a lane that `such` selects.
    #[inline]
    pub(crate) fn has_list(&self, such: impl Fn(u32) -> bool) -> bool {
        self.active.iter().any(|lane| such(*lane))
    }

    /// Notes where the lists start, for observers that look at them after delivery.
    pub(crate) fn note_lists(&mut self, shown: impl Fn(u32) -> bool) {
        let lists = self.active.iter().filter_map(|lane| Some((*lane, self.lists.get(*lane as usize)?.head)));
        self.notes.listed(shown, lists);
    }

    /// Number of lists, which are in the order in which destinations were first named.
    pub(crate) fn list_count(&self) -> usize {
        self.active.len()
    }

    /// Lane and first run of list `i`.
    pub(crate) fn list(&self, i: usize) -> Option<(u32, u32)> {
        let lane = *self.active.get(i)?;
        Some((lane, self.lists.get(lane as usize)?.head))
    }

    pub(crate) fn run(&self, at: u32) -> Option<Run> {
        self.runs.get(at).copied()
    }

    /// The versions of the list that starts at `head`, each with its refusal, if any.
    pub(crate) fn outputs_from(&self, head: u32) -> impl Iterator<Item = (u16, Option<DropReason>)> {
        let mut at = head;
        let runs = std::iter::from_fn(move || {
            let run = self.runs.get(at)?;
            at = run.next;
            Some(run)
        });
        runs.flat_map(|run| (u32::from(run.first)..run.end()).map(|v| (v as u16, run.refusal())))
    }

    /// The outputs of a rehearsal, each with its lane and its version, in the order in which they were named.
    pub(crate) fn outputs_in_order(&self) -> Vec<(u32, u16)> {
        let mut found = Vec::new();
        for i in 0..self.list_count() {
            let Some((lane, mut at)) = self.list(i) else { break };
            while let Some(run) = self.run(at) {
                found.extend((u32::from(run.first)..run.end()).map(|v| (at, lane, v as u16)));
                at = run.next;
            }
        }
        // Runs are added as outputs are named; nothing refuses outputs of a rehearsal, which would cut runs.
        found.sort_by_key(|(run, _, v)| (*run, *v));
        found.into_iter().map(|(_, lane, v)| (lane, v)).collect()
    }

    /// Empties all lists: calls `deliver` once for each, with the number of its lane, in the order in which
    /// destinations were first named. Returns the lanes for which it returned true.
    #[inline]
    pub(crate) fn take_lists(
        &mut self,
        batch: &RxBatch,
        mut deliver: impl FnMut(usize, &mut OutputList<'_>) -> bool,
    ) -> std::vec::Drain<'_, u32> {
        self.close();
        let mut chosen = 0;
        for i in 0..self.active.len() {
            let lane = self.active[i];
            let list = std::mem::replace(&mut self.lists[lane as usize], EMPTY);
            if deliver(lane as usize, &mut OutputList::counted(batch, &mut self.runs, list.head, list.count))
            {
                self.active[chosen] = lane;
                chosen += 1;
            }
        }
        self.active.truncate(chosen);
        self.active.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists in any order, with equals told apart by their versions.
    #[test]
    fn sorting_is_stable_and_complete() {
        let mut state = 1u32;
        let mut random = |n: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % n
        };
        let counted = |pad: &mut Scratchpad| {
            pad.close();
            pad.lists.iter().map(|list| list.count as usize).collect::<Vec<_>>()
        };
        for round in 0..500 {
            let n = random(120) + 1;
            let packets: Vec<u16> = (0..n).map(|_| random(1 + round % 70) as u16).collect();
            let mut pad = Scratchpad::default();
            pad.begin(2);
            (0..n as u16).for_each(|v| pad.append(1, v));
            pad.restore_order(|v| packets[usize::from(v)]);
            let mut expected: Vec<u16> = (0..n as u16).collect();
            expected.sort_by_key(|v| packets[usize::from(*v)]);
            let listed = |pad: &Scratchpad| {
                let (_, head) = pad.list(0).unwrap();
                pad.outputs_from(head).map(|(v, _)| v).collect::<Vec<_>>()
            };
            assert_eq!(listed(&pad), expected);
            assert_eq!(counted(&mut pad), [0, expected.len()]);
            // Later outputs go behind.
            pad.append(1, n as u16);
            expected.push(n as u16);
            assert_eq!(listed(&pad), expected);
            assert_eq!(counted(&mut pad), [0, expected.len()]);
        }
    }

    /// Masks give the lists that their versions would give one by one, whatever is named before and between them.
    #[test]
    fn masks_are_their_versions() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 20
        };
        for _ in 0..300 {
            let (mut masks, mut single) = (Scratchpad::default(), Scratchpad::default());
            masks.begin(3);
            single.begin(3);
            let mut first = 0;
            for _ in 0..4 {
                let mask = [random() << 40 ^ random(), u64::MAX << (random() % 64), u64::MAX, 0, 1 << 63];
                let (mask, lane) = (mask[random() as usize % 5], random() as u32 % 3);
                masks.append_mask(lane, first, mask);
                (0..64).filter(|i| mask >> i & 1 == 1).for_each(|i| single.append(lane, first + i));
                first += 64;
                if random().is_multiple_of(2) {
                    for pad in [&mut masks, &mut single] {
                        pad.append(lane, first);
                    }
                    first += 1;
                }
            }
            assert_eq!(masks.used(), single.used());
            let lists = |pad: &Scratchpad| {
                let lists = (0..pad.list_count()).filter_map(|i| pad.list(i));
                lists
                    .map(|(lane, head)| (lane, pad.outputs_from(head).collect()))
                    .collect::<Vec<(_, Vec<_>)>>()
            };
            assert_eq!(lists(&masks), lists(&single));
            for pad in [&mut masks, &mut single] {
                pad.close();
                for list in &pad.lists {
                    assert_eq!(list.count as usize, pad.outputs_from(list.head).count());
                }
            }
        }
    }
}

//! A worker's notes on its current batch, for observers and traces: headers as they came in, drops and their reasons,
//! lists.
//!
//! Invariant: nothing here allocates, except after a bridge has grown. Nothing is noted unless requested.

use crate::bridge::port::PortIndex;
use crate::clock;
use crate::counters::DropReason;
use crate::observe::explain::{Journal, Remark};
use crate::observe::interest::Interest;
use crate::rx::record::state;
use crate::rx::{MAX_BATCH, OFFLOAD_COPY, RxBatch};

/// Refusals by ports, before a list, kept of one batch; more are only counted.
const REFUSALS: usize = 1024;

/// Fate of a received packet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fate {
    pub(crate) header_len: u16,
    pub(crate) egress: Option<PortIndex>,
    pub(crate) deliveries: u32,
    /// The list that it was last found on: its segments on one list are one delivery.
    pub(crate) list: Option<u32>,
    pub(crate) dropped: Option<DropReason>,
}

/// A version that a port could not take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal {
    pub(crate) version: u16,
    pub(crate) lane: u32,
    pub(crate) reason: DropReason,
}

/// Notes on the current batch.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) worker: usize,
    pub(crate) taken: bool,
    pub(crate) at: Option<u64>,
    pub(crate) omitted: u32,
    /// For each observer, whether it picked the batch.
    pub(crate) picked: Vec<bool>,
    /// Headers as they came in and the packets' fates, if an observer wants to see the ingress port.
    pub(crate) headers: Box<[[u8; OFFLOAD_COPY]]>,
    pub(crate) fates: Box<[Fate]>,
    pub(crate) lists: Vec<(u32, u32)>,
    pub(crate) refusals: Vec<Refusal>,
    /// In a rehearsal: copies that a mirror's port without queues did not take.
    pub(crate) copies_refused: Vec<(PortIndex, DropReason)>,
    /// Packets dropped by rate limits, in order: reason and number.
    pub(crate) held: Vec<(DropReason, u32)>,
    /// Packets that came in, including those dropped by rate limits.
    pub(crate) arrived: usize,
    pub(crate) wanted: Interest,
    pub(crate) journal: Journal,
}

impl Notes {
    /// Notes of worker `index`.
    pub(crate) fn of_worker(index: usize) -> Self {
        Self {
            worker: index,
            // Zeroed: uses no memory until there is an observer.
            headers: vec![[0; OFFLOAD_COPY]; MAX_BATCH].into(),
            fates: vec![Fate::default(); MAX_BATCH].into(),
            refusals: Vec::with_capacity(REFUSALS),
            held: Vec::with_capacity(4),
            journal: Journal::new(),
            ..Self::default()
        }
    }

    /// Whether this batch is observed.
    #[inline]
    pub(crate) fn are_taken(&self) -> bool {
        self.taken
    }

    /// Notes that received packet `packet` was dropped.
    #[inline]
    pub(crate) fn dropped(&mut self, packet: u16, reason: DropReason) {
        if self.taken
            && let Some(fate) = self.fates.get_mut(usize::from(packet))
        {
            fate.dropped = Some(reason);
            self.journal.add(|| Remark::of_drop(packet, reason));
        }
    }

    /// Notes that version `version` could not be put on the list of queue `lane`.
    #[inline]
    pub(crate) fn refused(&mut self, version: u16, lane: u32, reason: DropReason) {
        if !self.taken {
            return;
        }
        if self.refusals.len() < self.refusals.capacity() {
            self.refusals.push(Refusal { version, lane, reason });
        } else {
            self.omitted += 1;
        }
    }

    /// Begins a batch; `wanted` is the interest in its ingress port.
    pub(crate) fn begin(&mut self, wanted: Interest, lanes: usize) {
        self.taken = true;
        self.wanted = wanted;
        self.at = wanted.received.then(clock::since_epoch);
        self.omitted = 0;
        self.lists.clear();
        self.lists.reserve(lanes);
        self.refusals.clear();
        self.held.clear();
        self.arrived = 0;
        self.journal.begin(wanted.explained);
    }

    /// Begins a batch from a port that no observer wants to see: only refusals by ports are noted.
    #[inline]
    pub(crate) fn begin_refusals(&mut self) {
        self.taken = true;
        self.omitted = 0;
        self.refusals.clear();
    }

    /// Called after [`Notes::begin_refusals`] and once all lists are complete: the batch may be shown where it leaves.
    pub(crate) fn begin_lists(&mut self, rx: &RxBatch, lanes: usize) {
        self.wanted = Interest::default();
        self.at = None;
        self.lists.clear();
        self.lists.reserve(lanes);
        self.arrived = rx.packets;
        self.journal.begin(false);
    }

    /// Notes packets dropped by rate limits; they follow those of the batch.
    pub(crate) fn held(&mut self, reason: DropReason, count: u32) {
        if self.taken && self.held.len() < self.held.capacity() {
            self.held.push((reason, count));
        }
    }

    /// Notes the packets that came in, before the logic sees them.
    pub(crate) fn arrived(&mut self, rx: &RxBatch) {
        if !self.taken {
            return;
        }
        if self.wanted.received {
            (0..rx.packets).for_each(|i| self.note_arrival(rx, i));
        }
        self.arrived = rx.packets;
        // The limit applied last removed packets from what the others had left.
        while let Some((reason, count)) = self.held.pop() {
            for _ in 0..count {
                self.note_arrival(rx, self.arrived);
                self.dropped(self.arrived as u16, reason);
                self.arrived += 1;
            }
        }
    }

    fn note_arrival(&mut self, rx: &RxBatch, i: usize) {
        let (Some(to), Some(fate)) = (self.headers.get_mut(i), self.fates.get_mut(i)) else { return };
        *fate = Fate::default();
        if self.wanted.received {
            // The rest of a longer header, from another bridge, stays in place.
            let header = rx.header(i);
            let header = header.get(..OFFLOAD_COPY).unwrap_or(header);
            if let Some(to) = to.get_mut(..header.len()) {
                to.copy_from_slice(header);
            }
            fate.header_len = header.len() as u16;
        }
    }

    /// Notes packets that the logic left undecided: they have no destination.
    pub(crate) fn forgotten(&mut self, rx: &RxBatch) {
        if self.wanted == Interest::default() {
            return;
        }
        for (i, record) in (0..rx.packets as u16).zip(&*rx.records) {
            if !record.has(state::HANDLED) {
                self.dropped(i, DropReason::NoDestination);
            }
        }
    }

    /// Refusals by ports: version, queue and reason.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (u16, u32, DropReason)> {
        self.refusals.iter().map(|refusal| (refusal.version, refusal.lane, refusal.reason))
    }

    /// Ends a batch that has been delivered.
    pub(crate) fn end(&mut self) {
        self.taken = false;
        self.journal.open = false;
    }

    /// Notes all lists, each by queue and first run; `shown` tells whether an observer wants to see a queue's packets.
    pub(crate) fn listed(&mut self, shown: impl Fn(u32) -> bool, lists: impl Iterator<Item = (u32, u32)>) {
        let mut wanted = false;
        for (lane, head) in lists {
            wanted |= shown(lane);
            if self.lists.len() < self.lists.capacity() {
                self.lists.push((lane, head));
            }
        }
        if wanted && self.at.is_none() {
            self.at = Some(clock::since_epoch());
        }
    }
}

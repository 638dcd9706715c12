//! Scanning a packet from the place where its flow is.
//!
//! The first match that decides ends a scan: of matches that end at one byte, that of the first rule. So a stream has
//! the same verdict however it is cut into segments.
//!
//! Bytes that were scanned before are scanned again by themselves, since a sender may send others under the same
//! numbers: a match decides, but nothing is counted and the stream's place stays.

use crate::automaton::{Automaton, Place};
use crate::flows::{Flow, Flows};
use crate::frame::{Key, Kind, View};
use crate::rule::{Action, Rule, Transport};
use crate::stream::{Position, Run, other, position};
use crate::tally::Own;

/// Attempts at replacing a run that another worker has replaced meanwhile.
const ATTEMPTS: usize = 4;

/// A payload in two pieces: of the packet's header, and of what follows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payload<'a> {
    pub(crate) front: &'a [u8],
    pub(crate) back: &'a [u8],
}

impl Payload<'_> {
    fn len(&self) -> usize {
        self.front.len() + self.back.len()
    }

    fn skip(self, bytes: usize) -> Self {
        let front = self.front.get(bytes..).unwrap_or_default();
        let back = self.back.get(bytes.saturating_sub(self.front.len())..).unwrap_or_default();
        Self { front, back }
    }
}

/// The result of a packet's scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The rule that decides, and the byte of the payload behind its match.
    pub(crate) decision: Option<(usize, usize)>,
    /// The first rule that only counts, likewise.
    pub(crate) counted: Option<(usize, usize)>,
    /// Where the segment is in its stream, if it is of one.
    pub(crate) position: Option<Position>,
    /// Whether it is to be dropped since bytes are missing in front of it.
    pub(crate) is_refused: bool,
}

/// The flow of a packet, which is added to the table when that is needed.
pub(crate) struct Tracked<'a> {
    pub(crate) flows: &'a Flows,
    pub(crate) key: Option<(Key, u64)>,
    pub(crate) flow: Option<Flow<'a>>,
    pub(crate) now: u32,
    pub(crate) own: Own<'a>,
    /// In a rehearsal, nothing is added or changed.
    pub(crate) is_rehearsal: bool,
}

impl<'a> Tracked<'a> {
    /// Returns the flow's place in the table; adds it if it has none.
    pub(crate) fn place(&mut self) -> Option<Flow<'a>> {
        if self.flow.is_none() && !self.is_rehearsal {
            let (key, tag) = self.key?;
            let Some((flow, added)) = self.flows.add(&key, tag, self.now) else {
                self.own.add(|tally| &tally.untracked, 1);
                return None;
            };
            self.own.add(|tally| &tally.evicted, u64::from(added == crate::flows::Added::Evicted));
            self.flow = Some(flow);
        }
        self.flow
    }

    /// Counts a match.
    fn count(&mut self, rule: usize) {
        if self.is_rehearsal {
            return;
        }
        self.own.add_match(rule);
        if self.place().is_some_and(|flow| flow.is_first_match(rule)) {
            self.own.add_flow(rule);
        }
    }

    /// Records the rule that decides about the flow.
    pub(crate) fn decide(&mut self, rule: usize) {
        self.count(rule);
        if let Some(flow) = self.place().filter(|_| !self.is_rehearsal) {
            flow.decide(rule);
        }
    }
}

/// Rules and their automaton.
#[derive(Clone, Copy)]
pub(crate) struct Scanner<'a> {
    pub(crate) rules: &'a [Rule],
    pub(crate) automaton: &'a Automaton,
    pub(crate) drops_gaps: bool,
}

impl Scanner<'_> {
    /// Scans a packet, and moves its stream's place.
    pub(crate) fn packet(&self, view: &View, payload: Payload<'_>, tracked: &mut Tracked<'_>) -> Found {
        let to = view.transport;
        match view.kind {
            Kind::Segment { seq, syn } => match tracked.place() {
                Some(flow) => self.segment(view, (seq, syn), payload, flow, tracked),
                None if syn => self.alone(self.automaton.begin(), payload, to, Some(tracked)).1,
                None => self.alone(self.automaton.middle(), payload, to, Some(tracked)).1,
            },
            Kind::Datagram => self.alone(self.automaton.begin(), payload, to, Some(tracked)).1,
            Kind::Fragment(_) | Kind::Odd => {
                self.alone(self.automaton.middle(), payload, to, Some(tracked)).1
            }
        }
    }

    /// Scans a segment where it is in its stream.
    fn segment(
        &self,
        view: &View,
        (seq, syn): (u32, bool),
        payload: Payload<'_>,
        flow: Flow<'_>,
        tracked: &mut Tracked<'_>,
    ) -> Found {
        let direction = view.direction;
        let len = payload.len() as u32;
        let mut found = Found::default();
        for _ in 0..ATTEMPTS {
            let Some(mut words) = flow.runs(direction) else { break };
            let mut runs = words.map(Run::of);
            // Also a segment without payload tells where the stream is.
            let is_new = match syn {
                true => runs.iter().flatten().all(|run| run.next != seq),
                false => len == 0 && runs == [None; 2],
            };
            if is_new {
                let place = if syn { self.automaton.begin() } else { self.automaton.middle() };
                let (number, run) = (other(runs), Run { place, next: seq });
                let (Some(word), Some(slot)) = (words.get_mut(number), runs.get_mut(number)) else { break };
                if !tracked.is_rehearsal && !flow.replace(direction, number, *word, run.word()) {
                    continue;
                }
                (*word, *slot) = (run.word(), Some(run));
            }
            if len == 0 {
                return found;
            }
            let (position, run) = self.position(runs, seq, payload, view.transport, tracked, &mut found);
            found.position = Some(position);
            let replaced = run.is_none_or(|(number, run)| {
                let old = words.get(number).copied().unwrap_or_default();
                tracked.is_rehearsal || flow.replace(direction, number, old, run.word())
            });
            if replaced {
                let own = tracked.own;
                own.add(|tally| &tally.gaps, u64::from(matches!(position, Position::Gap { .. })));
                let again = matches!(position, Position::Old | Position::Between)
                    || matches!(position, Position::Next { skip: 1.., .. });
                own.add(|tally| &tally.retransmitted, u64::from(again));
                return found;
            }
        }
        tracked.own.add(|tally| &tally.untracked, 1);
        found
    }

    /// Scans a segment; returns where it is, and the run that it leads to.
    fn position(
        &self,
        runs: [Option<Run>; 2],
        seq: u32,
        payload: Payload<'_>,
        to: Transport,
        tracked: &mut Tracked<'_>,
        found: &mut Found,
    ) -> (Position, Option<(usize, Run)>) {
        let len = payload.len() as u32;
        let next = seq.wrapping_add(len);
        let position = position(runs, seq, len);
        let middle = self.automaton.middle();
        let (number, place) = match position {
            Position::First => {
                let (place, own) = self.alone(middle, payload, to, Some(tracked));
                *found = own;
                (0, place)
            }
            Position::Next { run, skip } => {
                let from = runs.get(run).copied().flatten().map_or(middle, |run| run.place);
                let (place, own) = self.alone(from, payload.skip(skip as usize), to, Some(tracked));
                let shift = |(rule, end)| (rule, end + skip as usize);
                *found = Found { decision: own.decision.map(shift), counted: own.counted.map(shift), ..own };
                if skip > 0 && found.decision.is_none() {
                    found.decision = self.alone(middle, payload, to, None).1.decision;
                }
                (run, place)
            }
            Position::Gap { .. } if self.drops_gaps => {
                *found = Found { is_refused: true, ..Found::default() };
                return (position, None);
            }
            Position::Gap { run } => {
                let (place, own) = self.alone(middle, payload, to, Some(tracked));
                *found = own;
                (run, place)
            }
            Position::Between | Position::Old => {
                *found = self.alone(middle, payload, to, None).1;
                return (position, None);
            }
        };
        (position, Some((number, Run { place, next })))
    }

    /// Scans bytes from a place on. Matches are counted for `counts`, if given. Returns the place behind the bytes.
    fn alone(
        &self,
        from: Place,
        payload: Payload<'_>,
        to: Transport,
        mut counts: Option<&mut Tracked<'_>>,
    ) -> (Place, Found) {
        let mut found = Found::default();
        let mut place = from;
        for (piece, before) in [(payload.front, 0), (payload.back, payload.front.len())] {
            if found.decision.is_some() {
                break;
            }
            place = self.automaton.scan(place, piece, |number, end| {
                let end = before + end;
                let Some(rule) = self.rules.get(number).filter(|rule| rule.applies(to)) else { return true };
                if rule.action == Action::Count {
                    if let Some(tracked) = &mut counts {
                        tracked.count(number);
                        found.counted.get_or_insert((number, end));
                    }
                    return true;
                }
                if found.decision.is_none_or(|(first, at)| at == end && number < first) {
                    found.decision = Some((number, end));
                }
                false
            });
        }
        (place, found)
    }
}

//! Several logics in a row over one batch: what each of them is still asked about.
//!
//! A logic that is asked later sees the packets that no earlier one said anything about, in the headers that the earlier ones left
//! them. Nothing is moved for that: packets keep their places, and those that are left are *runs* of places.
//!
//! What they send is put in the order of the packets at the end, if more than one of them has sent something: the order between two
//! ports does not depend on who decided.
//!
//! Invariant: a batch that only one logic sees knows of no runs, and pays one look whether there are more when its packets
//! are at an end.

use crate::decide::batch::{Batch, VersionId};
use crate::rx::MAX_BATCH;
use crate::rx::record::state;

/// Places of packets: from the first, up to before the second.
type Run = (u16, u16);

/// Room for what is left of a batch, on the stack of who asks several logics in a row.
pub struct Rest {
    runs: [Run; MAX_BATCH / 2],
    count: usize,
    /// Outputs there were when it was looked last, and how often there were more.
    outputs: usize,
    speakers: usize,
}

impl Default for Rest {
    fn default() -> Self {
        Self { runs: [(0, 0); MAX_BATCH / 2], count: 0, outputs: 0, speakers: 0 }
    }
}

impl Rest {
    fn count_speakers(&mut self, outputs: usize) {
        self.speakers += usize::from(outputs > self.outputs);
        self.outputs = outputs;
    }

    /// Notes which of `packets` packets were not handled. Runs lie at least one place apart, so half as many as places are
    /// enough.
    fn note(&mut self, packets: usize, handled: impl Fn(usize) -> bool) {
        self.count = 0;
        let next = |from: usize, what: bool| (from..packets).find(|i| handled(*i) == what).unwrap_or(packets);
        let mut at = next(0, false);
        while at < packets {
            let end = next(at, true);
            if let Some(run) = self.runs.get_mut(self.count) {
                *run = (at as u16, end as u16);
                self.count += 1;
            }
            at = next(end, false);
        }
    }
}

/// Packets of a batch, in order.
#[derive(Debug, Clone)]
pub struct Packets<'a> {
    at: u16,
    end: u16,
    runs: &'a [Run],
}

impl<'a> Packets<'a> {
    /// All of a batch, or those of its runs.
    #[inline]
    pub(crate) fn of(packets: usize, left: Option<&'a [Run]>) -> Self {
        match left {
            None => Self { at: 0, end: packets as u16, runs: &[] },
            Some(runs) => Self { at: 0, end: 0, runs },
        }
    }
}

impl Iterator for Packets<'_> {
    type Item = VersionId;

    #[inline(always)]
    fn next(&mut self) -> Option<VersionId> {
        if self.at >= self.end {
            let (run, rest) = self.runs.split_first()?;
            (self.at, self.end, self.runs) = (run.0, run.1, rest);
        }
        let at = self.at;
        self.at += 1;
        Some(VersionId(at))
    }
}

impl Batch<'_> {
    /// What no logic has said anything about yet, for the next of several in a row. `None` if nothing is left.
    #[inline]
    pub fn rest<'b>(&'b mut self, rest: &'b mut Rest) -> Option<Batch<'b>> {
        rest.count_speakers(self.pad.used());
        let records = &self.rx.records[..self.rx.packets];
        rest.note(records.len(), |i| records[i].has(state::HANDLED));
        let left = rest.runs.get(..rest.count).filter(|left| !left.is_empty())?;
        let Batch { bridge, view, ingress, now, rehearsal, .. } = *self;
        Some(Batch { rx: self.rx, pad: self.pad, bridge, view, ingress, now, rehearsal, left: Some(left) })
    }

    /// The last of several logics in a row has spoken.
    #[inline]
    pub fn end_of_stages(&mut self, mut rest: Rest) {
        rest.count_speakers(self.pad.used());
        if rest.speakers > 1 {
            let records = &self.rx.records;
            self.pad.restore_order(|v| records.get(usize::from(v)).map_or(0, |record| record.packet));
        }
    }

    /// From which of several logics in a row the remarks are that follow: its number and name; `None`: from none of them.
    pub fn speaks(&mut self, stage: Option<(u16, &'static str)>) {
        self.pad.notes.journal.stage = stage;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(handled: &[bool]) -> Vec<u16> {
        let mut rest = Rest::default();
        rest.note(handled.len(), |i| handled[i]);
        Packets::of(handled.len(), Some(&rest.runs[..rest.count])).map(|v| v.0).collect()
    }

    #[test]
    fn runs_are_what_was_not_handled() {
        let mut rng = fastrand_like(7);
        for n in (0..MAX_BATCH).step_by(5).chain([MAX_BATCH]) {
            let every_other: Vec<bool> = (0..n).map(|i| i % 2 == 1).collect();
            let random: Vec<bool> = (0..n).map(|_| rng().is_multiple_of(3)).collect();
            for handled in [vec![false; n], vec![true; n], every_other, random] {
                let expected: Vec<u16> = (0..n as u16).filter(|i| !handled[usize::from(*i)]).collect();
                assert_eq!(left(&handled), expected);
            }
        }
    }

    /// Numbers that look random (a linear congruence).
    fn fastrand_like(mut state: u32) -> impl FnMut() -> u32 {
        move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        }
    }

    #[test]
    fn a_batch_without_runs_is_all_of_it() {
        assert_eq!(Packets::of(3, None).map(|v| v.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(Packets::of(0, None).count(), 0);
    }
}

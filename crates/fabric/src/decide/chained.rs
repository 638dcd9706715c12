//! Several logics in a row over one batch: tracks the packets that each of them still has to decide.
//!
//! A later logic sees the packets that no earlier one has decided, with the headers as the earlier ones left them. No
//! packet moves for that: packets keep their places, and the remaining ones are *runs* of places.
//!
//! If more than one logic has sent something, outputs are put in packet order at the end: the order between two ports
//! does not depend on which logic decided.
//!
//! Invariant: a batch that only one logic sees has no runs, and pays one check for more when its packets are at an end.

use crate::Text;
use crate::decide::batch::{Batch, VersionId};
use crate::rx::MAX_BATCH;
use crate::rx::record::state;

/// Places of packets: from the first, up to before the second.
type Run = (u16, u16);

/// Room for the remaining packets of a batch, on the caller's stack.
pub struct Rest {
    runs: [Run; MAX_BATCH / 2],
    count: usize,
    /// Outputs at the last check, and the number of stages that added some.
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

    /// Notes which of `packets` packets were not handled. Runs are at least one place apart, so half as many as places
    /// suffice.
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

/// Iterator over packets of a batch, in order.
#[derive(Debug, Clone)]
pub struct Packets<'a> {
    at: u16,
    end: u16,
    runs: &'a [Run],
}

impl<'a> Packets<'a> {
    /// All packets of a batch, or those of its runs.
    #[inline]
    pub(crate) fn of(packets: usize, left: Option<&'a [Run]>) -> Self {
        match left {
            None => Self { at: 0, end: packets as u16, runs: &[] },
            Some(runs) => Self { at: 0, end: 0, runs },
        }
    }

    /// Skips the next packets, one number after the other, as long as their headers are `alike`. Returns their number.
    #[inline(always)]
    pub fn pass_alike(&mut self, batch: &Batch<'_>, alike: impl Fn(&[u8]) -> bool) -> u16 {
        let headers = batch.rx.headers(self.at.into(), self.end.into());
        // A batch has fewer packets than that.
        let skipped = headers.take_while(|header| alike(header)).count() as u16;
        self.at += skipped;
        skipped
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
    /// The packets that no stage has decided yet, for the next stage. `None` if none are left.
    #[inline]
    pub fn rest<'b>(&'b mut self, rest: &'b mut Rest) -> Option<Batch<'b>> {
        rest.count_speakers(self.pad.used());
        let records = &self.rx.records[..self.rx.packets];
        rest.note(records.len(), |i| records[i].has(state::HANDLED));
        let left = rest.runs.get(..rest.count).filter(|left| !left.is_empty())?;
        let Batch { bridge, view, ingress, now, rehearsal, .. } = *self;
        Some(Batch { rx: self.rx, pad: self.pad, bridge, view, ingress, now, rehearsal, left: Some(left) })
    }

    /// Ends the chain, after its last stage.
    #[inline]
    pub fn end_of_stages(&mut self, mut rest: Rest) {
        rest.count_speakers(self.pad.used());
        if rest.speakers > 1 {
            let records = &self.rx.records;
            self.pad.restore_order(|v| records.get(usize::from(v)).map_or(0, |record| record.packet));
        }
    }

    /// Sets the stage that further remarks come from: its number and name, or `None` outside of stages.
    pub fn set_stage(&mut self, stage: Option<(u16, Text)>) {
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
    fn runs_hold_the_packets_not_handled() {
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

    /// Pseudo-random numbers (a linear congruence).
    fn fastrand_like(mut state: u32) -> impl FnMut() -> u32 {
        move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        }
    }

    #[test]
    fn without_runs_all_packets_of_a_batch_are_visited() {
        assert_eq!(Packets::of(3, None).map(|v| v.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(Packets::of(0, None).count(), 0);
    }
}

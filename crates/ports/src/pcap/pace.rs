//! Due times of frames, counted from the start of a replay. Times only: no clock, no waiting.
//!
//! Invariant: no frame is due before an earlier one, whatever the file's times say.

use std::time::Duration;

use super::speed::Speed;

/// Pause before the next round of a file whose timestamps give no distance between its frames.
const PAUSE: Duration = Duration::from_secs(1);

/// Computes due times. See the module's documentation.
#[derive(Debug)]
pub(super) struct Pacer {
    speed: Speed,
    /// Time at which the round began.
    begin: Duration,
    /// Time of the round's first frame, in nanoseconds.
    first: Option<u64>,
    /// Time at which the last frame was due.
    last: Duration,
    /// Frames of the round.
    in_round: u64,
    /// Frames and bits of all rounds.
    frames: u64,
    bits: u64,
}

impl Pacer {
    pub(super) fn new(speed: Speed) -> Self {
        let (begin, last) = (Duration::ZERO, Duration::ZERO);
        Self { speed, begin, first: None, last, in_round: 0, frames: 0, bits: 0 }
    }

    /// Returns the time at which the next frame is due, given its time (nanoseconds since any epoch; without one it
    /// follows the frame before) and its length in bytes. `None`: at once.
    pub(super) fn due(&mut self, at: Option<u64>, len: u32) -> Option<Duration> {
        let due = match self.speed {
            Speed::Full => return None,
            Speed::Recorded { thousandths } => {
                let since = at.map_or(0, |at| at.saturating_sub(*self.first.get_or_insert(at)));
                let due = u128::from(since) * 1000 / u128::from(thousandths.max(1));
                self.begin.saturating_add(nanoseconds(due))
            }
            Speed::Frames(rate) => nanoseconds(per_second(self.frames, rate)),
            Speed::Bits(rate) => nanoseconds(per_second(self.bits, rate)),
        };
        self.in_round += 1;
        self.frames += 1;
        self.bits = self.bits.saturating_add(u64::from(len) * 8);
        self.last = self.last.max(due);
        Some(self.last)
    }

    /// Begins another round of the file: at the recorded speed after the mean pause between its frames.
    pub(super) fn next_round(&mut self) {
        let span = self.last.saturating_sub(self.begin);
        let pauses = u32::try_from(self.in_round.saturating_sub(1)).unwrap_or(u32::MAX);
        let mean = span.checked_div(pauses).filter(|mean| !mean.is_zero());
        self.begin = self.last.saturating_add(mean.unwrap_or(PAUSE));
        self.first = None;
        self.in_round = 0;
    }
}

/// Returns the nanoseconds that `count` items take at `rate` a second.
fn per_second(count: u64, rate: u64) -> u128 {
    u128::from(count) * 1_000_000_000 / u128::from(rate.max(1))
}

fn nanoseconds(number: u128) -> Duration {
    Duration::from_nanos(u64::try_from(number).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn due(pacer: &mut Pacer, frames: &[(u64, u32)]) -> Vec<u64> {
        frames.iter().map(|(at, len)| pacer.due(Some(*at), *len).unwrap().as_nanos() as u64).collect()
    }

    fn pacer(speed: &str) -> Pacer {
        Pacer::new(speed.parse().unwrap())
    }

    #[test]
    fn recorded_times_count_from_the_first_frame_and_never_go_back() {
        let times = [(5000 * MS, 60), (5010 * MS, 60), (5004 * MS, 60), (4000 * MS, 60), (5030 * MS, 60)];
        assert_eq!(due(&mut pacer("recorded"), &times), [0, 10 * MS, 10 * MS, 10 * MS, 30 * MS]);
        assert_eq!(due(&mut pacer("2x"), &times), [0, 5 * MS, 5 * MS, 5 * MS, 15 * MS]);
        assert_eq!(due(&mut pacer("0.1x"), &times), [0, 100 * MS, 100 * MS, 100 * MS, 300 * MS]);
        let mut some = pacer("recorded");
        assert_eq!(some.due(None, 60), Some(Duration::ZERO));
        due(&mut some, &times);
        assert_eq!(some.due(None, 60), Some(Duration::from_millis(30)), "with the frame before");
    }

    #[test]
    fn rates_are_kept_over_all_rounds() {
        let mut frames = pacer("1000pps");
        assert_eq!(due(&mut frames, &[(9, 60), (0, 1500), (7, 60)]), [0, MS, 2 * MS]);
        frames.next_round();
        assert_eq!(due(&mut frames, &[(9, 60)]), [3 * MS]);
        let mut bits = pacer("1Mbit");
        // 125 bytes are 1,000 bits: a millisecond.
        assert_eq!(due(&mut bits, &[(0, 125), (0, 250), (0, 60)]), [0, MS, 3 * MS]);
        assert_eq!(pacer("full").due(Some(1), 60), None);
    }

    #[test]
    fn a_round_begins_after_the_mean_pause() {
        let times = [(100 * MS, 60), (101 * MS, 60), (120 * MS, 60)];
        let mut three = pacer("recorded");
        assert_eq!(due(&mut three, &times), [0, MS, 20 * MS]);
        three.next_round();
        assert_eq!(due(&mut three, &times), [30 * MS, 31 * MS, 50 * MS]);
        // Without a pause to average, a single frame would be sent as fast as possible.
        for times in [&[(7, 60)][..], &[(7, 60), (7, 60)]] {
            let mut pacer = pacer("recorded");
            due(&mut pacer, times);
            pacer.next_round();
            assert_eq!(due(&mut pacer, times)[0], 1000 * MS);
        }
    }

    #[test]
    fn absurd_times_do_not_overflow() {
        let mut slow = pacer("0.001x");
        assert_eq!(due(&mut slow, &[(0, 60), (u64::MAX, 60)]), [0, u64::MAX]);
        slow.next_round();
        due(&mut slow, &[(0, 60), (u64::MAX, u32::MAX)]);
        slow.next_round();
    }
}

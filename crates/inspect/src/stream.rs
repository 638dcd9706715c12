//! A segment's place in its stream: which of its bytes are new.
//!
//! A direction of a connection has up to two *runs*: the place in the patterns behind the bytes scanned so far, and the
//! sequence number of the next one (RFC 9293 §3.4). Usually there is one. Bytes that are missing leave it where it is,
//! and what follows them begins the other. A SYN begins one, too.
//!
//! Invariant: a run changes only by the bytes that follow it in order, each once.

use crate::automaton::Place;

/// The bytes of a direction that have been scanned in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// Place in the patterns.
    pub(crate) place: Place,
    /// Sequence number of the next byte.
    pub(crate) next: u32,
}

/// Place of a run that does not exist.
const NONE: u32 = u32::MAX;

impl Run {
    pub(crate) fn word(self) -> u64 {
        u64::from(self.place) << 32 | u64::from(self.next)
    }

    /// Reads a word; `None` is no run.
    pub(crate) fn of(word: u64) -> Option<Self> {
        let place = (word >> 32) as u32;
        (place != NONE).then_some(Self { place, next: word as u32 })
    }

    /// Returns the word of no run. `nonce` tells the words of different flows apart.
    pub(crate) fn none(nonce: u32) -> u64 {
        u64::from(NONE) << 32 | u64::from(nonce)
    }
}

/// A segment's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// It goes on where a run ends, behind its first `skip` bytes.
    Next {
        /// Number of the run.
        run: usize,
        /// Bytes that were scanned before.
        skip: u32,
    },
    /// The first of its direction.
    First,
    /// Bytes are missing in front of it; the run of this number is to be replaced.
    Gap {
        /// Number of the run.
        run: usize,
    },
    /// Between two runs.
    Between,
    /// All of its bytes were scanned before.
    Old,
}

/// Returns how far `a` is behind `b`; negative if it is in front.
fn behind(a: u32, b: u32) -> i32 {
    b.wrapping_sub(a) as i32
}

/// Finds the place of a segment of `len` bytes, at least one.
pub(crate) fn position(runs: [Option<Run>; 2], seq: u32, len: u32) -> Position {
    let offset = |run: &Run| run.next.wrapping_sub(seq);
    let known = || runs.iter().enumerate().filter_map(|(number, run)| Some((number, (*run)?)));
    // The run that is behind knows more of the bytes in front.
    let next = known().filter(|(_, run)| offset(run) < len).min_by_key(|(_, run)| offset(run));
    if let Some((run, found)) = next {
        return Position::Next { run, skip: offset(&found) };
    }
    if known().next().is_none() {
        return Position::First;
    }
    if known().all(|(_, run)| behind(run.next, seq) >= 0) {
        return Position::Gap { run: other(runs) };
    }
    let end = seq.wrapping_add(len);
    if known().all(|(_, run)| behind(end, run.next) >= 0) { Position::Old } else { Position::Between }
}

/// Returns the number of the run to replace by another one: one that does not exist, or the one behind.
pub(crate) fn other(runs: [Option<Run>; 2]) -> usize {
    match runs {
        [None, _] => 0,
        [_, None] => 1,
        [Some(a), Some(b)] => usize::from(behind(a.next, b.next) < 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(next: u32) -> Option<Run> {
        Some(Run { place: 5, next })
    }

    #[test]
    fn segments_find_their_place() {
        let one = [run(100), None];
        assert_eq!(position(one, 100, 10), Position::Next { run: 0, skip: 0 });
        assert_eq!(position(one, 95, 10), Position::Next { run: 0, skip: 5 });
        assert_eq!(position(one, 90, 10), Position::Old);
        assert_eq!(position(one, 101, 10), Position::Gap { run: 1 });
        assert_eq!(position([None, None], 7, 1), Position::First);
        let wrapped = [run(3), None];
        assert_eq!(position(wrapped, 0xffff_fffe, 10), Position::Next { run: 0, skip: 5 });
        assert_eq!(position(wrapped, 0xffff_fff0, 10), Position::Old);
        assert_eq!(position([run(0xffff_fff0), None], 1, 10), Position::Gap { run: 1 });
    }

    #[test]
    fn two_runs_hold_a_hole() {
        let hole = [run(100), run(300)];
        assert_eq!(position(hole, 100, 100), Position::Next { run: 0, skip: 0 });
        assert_eq!(position(hole, 300, 1), Position::Next { run: 1, skip: 0 });
        assert_eq!(position(hole, 90, 400), Position::Next { run: 0, skip: 10 });
        assert_eq!(position(hole, 150, 50), Position::Between);
        assert_eq!(position(hole, 150, 200), Position::Next { run: 1, skip: 150 });
        assert_eq!(position(hole, 50, 50), Position::Old);
        assert_eq!(position(hole, 301, 5), Position::Gap { run: 0 });
        assert_eq!((other([run(300), run(100)]), other([None, run(1)])), (1, 0));
    }

    #[test]
    fn words_hold_runs() {
        let run = Run { place: 7, next: u32::MAX };
        assert_eq!(Run::of(run.word()), Some(run));
        assert_eq!(Run::of(Run::none(9)), None);
    }
}

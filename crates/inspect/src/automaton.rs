//! Deterministic automaton of all patterns: one table look-up for each byte.
//!
//! The table of `regex-automata` tells of a match one byte late. Since no pattern looks ahead (`pattern.rs`), the match
//! is certain at its last byte: at the end of a piece, the automaton is asked for it, and the late report at the first
//! byte of the next piece is ignored.
//!
//! Invariants: a state is a number below `u32::MAX` that this automaton has returned; pieces of a stream, however cut,
//! give the matches of the whole.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use regex_automata::MatchKind;
use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_syntax::hir::Hir;

use crate::trie::{self, TooLarge};

/// Most bytes of the compiled form of one pattern that is not a literal, before it is made deterministic.
const EACH: usize = 1 << 20;

/// Automata that may be compiled at a time.
const MOST_AT_WORK: usize = 2;

/// Time for which the pattern that is too large is searched.
const SEARCH: Duration = Duration::from_secs(5);

static AT_WORK: AtomicUsize = AtomicUsize::new(0);

/// Place in the patterns: a state of [`Automaton`].
pub(crate) type Place = u32;

/// All patterns, compiled.
pub(crate) struct Automaton {
    table: dense::DFA<Vec<u32>>,
    begin: StateID,
    middle: StateID,
}

/// Reasons for refusing patterns.
#[derive(Debug)]
pub(crate) enum Refused {
    /// A pattern, by its place in the list.
    Pattern(usize, String),
    /// All together.
    List(String),
}

/// The right to compile, one of [`MOST_AT_WORK`].
struct Permit;

impl Permit {
    fn new() -> Option<Self> {
        let more = |at_work| (at_work < MOST_AT_WORK).then_some(at_work + 1);
        AT_WORK.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        AT_WORK.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Automaton {
    /// Compiles patterns into a table of at most so many MiB, with as much for the work.
    pub(crate) fn new(patterns: &[&Hir], memory: usize) -> Result<Self, Refused> {
        let Some(_permit) = Permit::new() else {
            return Err(Refused::List("other patterns are still being compiled; try again later".into()));
        };
        let limit = memory << 20;
        let advice = "shorten bounded repetitions such as `.{0,100}`, avoid `.*`, or raise `memory`";
        let nfa = trie::build(patterns, EACH, limit).map_err(|error| match error {
            TooLarge::Pattern(number) => Refused::Pattern(
                number,
                format!("compiled, it has more than {} KiB: shorten repetitions", EACH >> 10),
            ),
            TooLarge::List => Refused::List(format!("the patterns need more than {memory} MiB: {advice}")),
        })?;
        match determinize(&nfa, limit) {
            Ok(table) => Self::of(table).ok_or_else(|| Refused::List("the patterns have no start".into())),
            Err(error) if !error.is_size_limit_exceeded() => Err(Refused::List(error.to_string())),
            Err(_) => Err(match largest(patterns, limit) {
                Some(number) => Refused::Pattern(
                    number,
                    format!("alone, it needs more than {} MiB: {advice}", (memory / 2).max(1)),
                ),
                None => {
                    Refused::List(format!("the table of all patterns needs more than {memory} MiB: {advice}"))
                }
            }),
        }
    }

    fn of(table: dense::DFA<Vec<u32>>) -> Option<Self> {
        let begin = table.start_state(&start::Config::new()).ok()?;
        // Behind any byte, `^` does not hold.
        let middle = table.start_state(&start::Config::new().look_behind(Some(0))).ok()?;
        Some(Self { table, begin, middle })
    }

    /// Bytes of the table.
    pub(crate) fn memory(&self) -> usize {
        self.table.memory_usage()
    }

    /// The place at the beginning of a stream.
    pub(crate) fn begin(&self) -> Place {
        self.begin.as_u32()
    }

    /// The place in a stream of which nothing is known.
    pub(crate) fn middle(&self) -> Place {
        self.middle.as_u32()
    }

    /// Reads bytes from a place on. Each match is told: its pattern, and the number of bytes up to its end. `each`
    /// returns false to end the scan. Returns the place behind the bytes.
    #[inline]
    pub(crate) fn scan(
        &self,
        from: Place,
        bytes: &[u8],
        mut each: impl FnMut(usize, usize) -> bool,
    ) -> Place {
        let table = &self.table;
        let mut state = StateID::new(from as usize).unwrap_or(self.middle);
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            state = table.next_state(state, *byte);
            if table.is_special_state(state) {
                if table.is_dead_state(state) {
                    return state.as_u32();
                }
                if at > 0 && table.is_match_state(state) && !self.tell(state, at, &mut each) {
                    return state.as_u32();
                }
                if table.is_accel_state(state) {
                    let rest = bytes.get(at + 1..).unwrap_or_default();
                    match skip(table.accelerator(state), rest) {
                        Some(skipped) => at += skipped,
                        None => break,
                    }
                }
            }
            at += 1;
        }
        if !bytes.is_empty() {
            let end = table.next_eoi_state(state);
            if table.is_match_state(end) {
                self.tell(end, bytes.len(), &mut each);
            }
        }
        state.as_u32()
    }

    /// Tells of all patterns that end at one byte.
    #[inline]
    fn tell(&self, state: StateID, end: usize, each: &mut impl FnMut(usize, usize) -> bool) -> bool {
        let mut goes_on = true;
        for number in 0..self.table.match_len(state) {
            goes_on &= each(self.table.match_pattern(state, number).as_usize(), end);
        }
        goes_on
    }
}

/// Returns the number of bytes in front of the first one that leaves the state; `None` if none does.
fn skip(leaving: &[u8], bytes: &[u8]) -> Option<usize> {
    match *leaving {
        [a] => memchr::memchr(a, bytes),
        [a, b] => memchr::memchr2(a, b, bytes),
        [a, b, c] => memchr::memchr3(a, b, c, bytes),
        _ => Some(0),
    }
}

fn determinize(
    nfa: &regex_automata::nfa::thompson::NFA,
    limit: usize,
) -> Result<dense::DFA<Vec<u32>>, Box<dense::BuildError>> {
    let config = dense::Config::new()
        .match_kind(MatchKind::All)
        .start_kind(StartKind::Unanchored)
        .accelerate(true)
        .dfa_size_limit(Some(limit))
        .determinize_size_limit(Some(limit));
    dense::Builder::new().configure(config).build_from_nfa(nfa).map_err(Box::new)
}

/// Returns a pattern that alone needs more than half of the memory.
fn largest(patterns: &[&Hir], limit: usize) -> Option<usize> {
    let end = Instant::now() + SEARCH;
    let is_too_large = |pattern: &&Hir| match trie::build(&[*pattern], EACH, limit) {
        Ok(nfa) => determinize(&nfa, limit / 2).is_err(),
        Err(_) => true,
    };
    patterns.iter().take_while(|_| Instant::now() < end).position(is_too_large)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pattern;

    fn automaton(patterns: &[&str]) -> Automaton {
        let patterns: Vec<_> = patterns.iter().map(|text| pattern::read(text, false).unwrap()).collect();
        Automaton::new(&patterns.iter().collect::<Vec<_>>(), 16).unwrap()
    }

    /// All matches of pieces, as pattern and end.
    fn matches(automaton: &Automaton, begin: Place, pieces: &[&[u8]]) -> Vec<(usize, usize)> {
        let (mut place, mut before, mut found) = (begin, 0, Vec::new());
        for piece in pieces {
            place = automaton.scan(place, piece, |pattern, end| {
                found.push((pattern, before + end));
                true
            });
            before += piece.len();
        }
        found.sort_by_key(|(pattern, end)| (*end, *pattern));
        found
    }

    #[test]
    fn all_patterns_are_found_where_they_end() {
        let automaton = automaton(&["evil", "vi", "^ab+", "x.{2}y", "[0-9]z"]);
        let found = |bytes: &[u8]| matches(&automaton, automaton.begin(), &[bytes]);
        assert_eq!(found(b"an evil"), [(1, 6), (0, 7)]);
        assert_eq!(found(b"abb"), [(2, 2), (2, 3)]);
        assert_eq!(found(b" abb"), []);
        assert_eq!(found(b"x\xff\x00y7z"), [(3, 4), (4, 6)]);
        assert_eq!(matches(&automaton, automaton.middle(), &[b"abb"]), []);
        assert_eq!(matches(&automaton, automaton.begin(), &[b"ev", b"", b"il", b"!"]), [(1, 3), (0, 4)]);
    }

    #[test]
    fn thousands_of_literals_share_a_trie() {
        let texts: Vec<_> = (0..2000).map(|i| format!("word{i:x}-{}", i * 7919 % 1000)).collect();
        let automaton = automaton(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        for number in [0, 1, 999, 1999] {
            let bytes = format!("..{}.", texts[number]);
            let found = matches(&automaton, automaton.middle(), &[bytes.as_bytes()]);
            assert!(found.iter().any(|(pattern, _)| *pattern == number), "{number}: {found:?}");
        }
    }

    #[test]
    fn ignoring_case_shares_the_trie() {
        let patterns = ["EVIL", "Even"].map(|text| pattern::read(text, true).unwrap());
        let automaton = Automaton::new(&patterns.iter().collect::<Vec<_>>(), 1).unwrap();
        assert_eq!(matches(&automaton, automaton.middle(), &[b"eViL eVEN"]), [(0, 4), (1, 9)]);
    }

    #[test]
    fn large_patterns_are_refused_by_number() {
        let patterns = ["abc", "(?s)x.{18}y"].map(|text| pattern::read(text, false).unwrap());
        match Automaton::new(&patterns.iter().collect::<Vec<_>>(), 1).err() {
            Some(Refused::Pattern(1, message)) => assert!(message.contains("MiB"), "{message}"),
            other => panic!("{other:?}"),
        }
        let patterns = ["abc", "(a{900}){900}"].map(|text| pattern::read(text, false).unwrap());
        match Automaton::new(&patterns.iter().collect::<Vec<_>>(), 1).err() {
            Some(Refused::Pattern(1, message)) => assert!(message.contains("1024 KiB"), "{message}"),
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            bytes in proptest::collection::vec(prop::sample::select(b"abcx\n".to_vec()), 0..60),
            cuts in proptest::collection::vec(0usize..60, 0..6),
        ) {
            let automaton = automaton(&["ab", "b.c", "^a+x", "c[ab]{2,3}x", "abcab", "(?:ab|x)*c"]);
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([bytes.len()]) {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            for begin in [automaton.begin(), automaton.middle()] {
                prop_assert_eq!(matches(&automaton, begin, &pieces), matches(&automaton, begin, &[&bytes]));
            }
        }
    }
}

//! The fronts of one worker's packets ([`crate::special::front`]): keys of ways that need no parser.
//!
//! A worker learns a front from a packet that none of its fronts takes, a few times for each code and pause; that
//! allocates. Packets that have a front find their ways by it, others by their flow key. Fronts may tell packets apart
//! that have one flow key: while few find their way by them, they pause.
//!
//! Invariant: a front keeps its number as long as its code is used, since tags of keys name it.

use crate::code::Code;
use crate::special::front::Front;

/// Fronts of one code; their numbers, from 1 on, take the low bits of an epoch.
pub(super) const MOST_FRONTS: usize = 7;
/// Packets of one code that are examined in the time of a pause.
const ATTEMPTS: u32 = 32;
/// Packets after which it is decided whether fronts pause, and how many such windows the pause lasts.
const WINDOW: u64 = 8192;
const PAUSE: u64 = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Fronts {
    /// The code that they are for.
    code: u64,
    list: Vec<Front>,
    /// Packets that may still be examined, and packets since this was reset.
    attempts: u32,
    seen: u64,
    /// Packets of this window that had a front, and those that found their way.
    tried: u64,
    found: u64,
    /// Packets that go without yet.
    pause: u64,
}

impl Fronts {
    /// Begins a batch of packets for specialised code.
    pub(super) fn begin(&mut self, code: &Code) {
        if self.code != code.id {
            self.list.clear();
            *self = Self {
                code: code.id,
                list: std::mem::take(&mut self.list),
                attempts: ATTEMPTS,
                ..Self::default()
            };
        }
    }

    /// The fronts that packets may have now.
    pub(super) fn list(&self) -> &[Front] {
        if self.pause == 0 { &self.list } else { &[] }
    }

    /// The front of a packet that begins with these bytes, and its number.
    #[inline(always)]
    pub(super) fn of<'a>(list: &'a [Front], bytes: &[u8]) -> Option<(u32, &'a Front)> {
        list.iter().zip(1..).find(|(front, _)| front.takes(bytes)).map(|(front, number)| (number, front))
    }

    /// Whether packets without a front are worth a look.
    #[inline]
    pub(super) fn learns(&self) -> bool {
        self.attempts > 0 && self.list.len() < MOST_FRONTS && self.pause == 0
    }

    /// Learns the front of a packet that has none.
    #[cold]
    pub(super) fn learn(&mut self, code: &Code, bytes: &[u8]) {
        // Another packet of the batch may just have had it.
        if Self::of(&self.list, bytes).is_none() {
            self.attempts -= 1;
            self.list.extend(Front::learn(code, bytes));
        }
    }

    /// Ends a batch of packets, of which so many had a front and so many of these found their way by it.
    pub(super) fn end(&mut self, packets: u64, tried: u64, found: u64) {
        self.pause = self.pause.saturating_sub(packets);
        self.seen += packets;
        if self.seen >= PAUSE * WINDOW {
            (self.seen, self.attempts) = (0, ATTEMPTS);
        }
        self.tried += tried;
        self.found += found;
        if self.tried >= WINDOW {
            if self.found * 2 < self.tried {
                self.pause = PAUSE * WINDOW;
            }
            (self.tried, self.found) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fronts_by_which_few_ways_are_found_pause_for_some_time() {
        let mut fronts = Fronts::default();
        fronts.end(WINDOW, WINDOW, WINDOW / 2);
        assert_eq!(fronts.pause, 0);
        fronts.end(WINDOW, WINDOW, WINDOW / 2 - 1);
        assert_eq!(fronts.pause, PAUSE * WINDOW);
        (0..PAUSE).for_each(|_| fronts.end(WINDOW, 0, 0));
        assert_eq!(fronts.pause, 0);
    }
}

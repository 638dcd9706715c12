//! Predicts the effect of learning a station without changing the table, for traces of packets that are never sent.
//!
//! Invariant: unless another thread changes the table, the next [`Fdb::learn`] or [`Fdb::learn_within`] does what is
//! predicted here.

use std::sync::atomic::Ordering;

use fabric::PortIndex;

use super::eviction::{Newcomer, SWEEP};
use super::word::{self, Place, STATIC};
use super::{Fdb, Key};

/// Effect of hearing a station at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foresight {
    /// It is known at this port: nothing changes.
    Known,
    /// It is known at this port, which now has more stations than its limit: it is forgotten and refused.
    Surplus,
    /// It is known at this other port and moves.
    Moves(PortIndex),
    /// It has a static entry at this other port and stays there.
    Stays(PortIndex),
    /// It is known at this other port and refused here.
    Elsewhere(PortIndex),
    /// It is learned; the station named, if any, makes room for it.
    Learned(Option<Key>),
    /// It is not known and cannot be learned: the table or the port has no room.
    NoRoom,
}

impl Fdb {
    /// Predicts [`Fdb::learn`].
    pub fn foresee(&self, key: Key, port: PortIndex, now: u32) -> Foresight {
        let first = self.placer.first(key);
        match self.find(first) {
            None => self.foresee_insertion(first, self.newcomer(port, self.port_limit), now),
            Some((_, _, word)) if word::port(word) == port => Foresight::Known,
            Some((_, _, word)) if word & STATIC != 0 => Foresight::Stays(word::port(word)),
            Some((_, _, word)) => Foresight::Moves(word::port(word)),
        }
    }

    /// Predicts [`Fdb::learn_within`].
    pub fn foresee_within(&self, key: Key, port: PortIndex, now: u32, most: u32) -> Foresight {
        let first = self.placer.first(key);
        match self.find(first) {
            None if self.stations_at(port) >= most => Foresight::NoRoom,
            None => self.foresee_insertion(first, self.newcomer(port, self.limit_beside(most)), now),
            Some((_, _, word)) if word::port(word) != port => Foresight::Elsewhere(word::port(word)),
            Some((_, _, word)) if word & STATIC == 0 && self.stations_at(port) > most => Foresight::Surplus,
            Some(_) => Foresight::Known,
        }
    }

    fn newcomer(&self, port: PortIndex, limit: u32) -> Newcomer {
        Newcomer { port, stations: self.stations_at(port).saturating_add(1), limit }
    }

    fn foresee_insertion(&self, first: Place, new: Newcomer, now: u32) -> Foresight {
        let free = || self.candidates(first).any(|(_, slot)| slot.word.load(Ordering::Relaxed) == 0);
        if !new.exceeds_limit() && !self.is_full() && free() {
            return Foresight::Learned(None);
        }
        let hand = || self.counters.hand.load(Ordering::Relaxed);
        match self.victim(first, new, now, SWEEP, hand) {
            Some(victim) => Foresight::Learned(self.placer.key(victim.bucket, victim.word)),
            None => Foresight::NoRoom,
        }
    }
}

#[cfg(test)]
mod tests {
    use packet::MacAddr;
    use proptest::prelude::*;

    use super::*;
    use crate::MacTable;
    use crate::fdb::{Admission, FdbChange};

    fn key(n: u16) -> Key {
        let [high, low] = n.to_be_bytes();
        Key::new(0, MacAddr([2, 0, 0, 0, high, low]))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

        /// Tables are small or full, so stations move, make room and find none.
        #[test]
        fn predictions_hold(
            (capacity, others) in prop_oneof![(1u32..12, Just(0u16)), Just((4096, 4096))],
            limit in 1u32..16,
            steps in prop::collection::vec((0u16..24, 0u16..4, prop::option::of((0u32..5, any::<bool>())), 0u8..12), 1..120),
        ) {
            let fdb = Fdb::new(capacity).with_port_limit(if others > 0 { 4096 } else { limit });
            (0..others).for_each(|n| _ = fdb.learn(key(100 + n), PortIndex(5), u32::from(n % 7)));
            fdb.watch(true);
            for (now, (station, port, within, by_hand)) in (10u32..).zip(steps) {
                let (key, port) = (key(station), PortIndex(port));
                if by_hand == 0 {
                    let _ = fdb.add_static(0, key.mac(), port);
                }
                fdb.drain_events();
                let before = fdb.lookup(key);
                let (foreseen, admission) = match within {
                    None => {
                        let foreseen = fdb.foresee(key, port, now);
                        fdb.learn(key, port, now);
                        (foreseen, None)
                    }
                    Some((most, sticky)) => {
                        let foreseen = fdb.foresee_within(key, port, now, most);
                        (foreseen, Some(fdb.learn_within(key, port, now, most, sticky)))
                    }
                };
                let evicted = fdb.drain_events().0.into_iter().find(|e| e.change == FdbChange::Evicted);
                let evicted = evicted.map(|event| event.key);
                let after = fdb.lookup(key);
                match foreseen {
                    Foresight::Known => prop_assert_eq!((before, after), (Some(port), Some(port))),
                    Foresight::Surplus => prop_assert_eq!((before, after), (Some(port), None)),
                    Foresight::Moves(from) => prop_assert_eq!((before, after), (Some(from), Some(port))),
                    Foresight::Stays(at) | Foresight::Elsewhere(at) => {
                        prop_assert!(at != port);
                        prop_assert_eq!((before, after), (Some(at), Some(at)));
                    }
                    Foresight::Learned(other) => {
                        prop_assert_eq!((before, after), (None, Some(port)));
                        prop_assert_eq!(evicted, other);
                    }
                    Foresight::NoRoom => prop_assert_eq!((before, after), (None, None)),
                }
                if let Some(admission) = admission {
                    let expected = match foreseen {
                        Foresight::Known => Admission::Known,
                        Foresight::Learned(_) => Admission::Learned,
                        _ => Admission::Refused,
                    };
                    prop_assert_eq!(admission, expected);
                }
            }
        }
    }
}

//! Predicts the effect of learning a station without changing the table, for traces of packets that are never sent.
//!
//! Invariant: unless another thread changes the table, the next [`Fdb::learn_unclaimed`] or [`Fdb::learn_claimed`] does
//! what is predicted here.

use std::sync::atomic::Ordering;

use fabric::PortIndex;
use fabric::protection::Claim;

use super::eviction::{Newcomer, SWEEP};
use super::word::{self, Place, STATIC};
use super::{Fdb, Fixed, Key, is_at, owner};

/// Effect of hearing a station at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foresight {
    /// It is known at this port: nothing changes.
    Known,
    /// It is known at this port, which now has more stations than its limit: it is forgotten and refused.
    Surplus,
    /// It is known at this other port and moves.
    Moves(PortIndex),
    /// It belongs to this other port, and is not learned here.
    Stays(PortIndex, Fixed),
    /// It is at this other port, or belongs to it, and is refused here.
    Elsewhere(PortIndex, Option<Fixed>),
    /// It is learned; the station named, if any, makes room for it.
    Learned(Option<Key>),
    /// It is not known and cannot be learned: the table or the port has no room.
    NoRoom,
}

impl Fdb {
    /// Predicts [`Fdb::learn_unclaimed`].
    pub fn foresee(&self, key: Key, port: PortIndex, now: u32, claim: Claim) -> Foresight {
        let first = self.placer.first(key);
        let found = self.find(first);
        if !is_at(found, port)
            && let Some((owner, fixed)) = owner(found, claim)
        {
            return Foresight::Stays(owner, fixed);
        }
        match found {
            None => self.foresee_insertion(first, self.newcomer(port, self.port_limit()), now),
            Some((_, _, word)) if word::port(word) == port => Foresight::Known,
            Some((_, _, word)) => Foresight::Moves(word::port(word)),
        }
    }

    /// Predicts [`Fdb::learn_claimed`].
    pub fn foresee_within(&self, key: Key, port: PortIndex, now: u32, most: u32, claim: Claim) -> Foresight {
        let first = self.placer.first(key);
        let found = self.find(first);
        if !is_at(found, port)
            && let Some((owner, fixed)) = owner(found, claim)
        {
            return Foresight::Elsewhere(owner, Some(fixed));
        }
        match found {
            None if self.stations_at(port) >= most => Foresight::NoRoom,
            None => self.foresee_insertion(first, self.newcomer(port, self.limit_beside(most)), now),
            Some((_, _, word)) if word::port(word) != port => {
                match claim == Claim::Ingress && self.stations_at(port) < most {
                    true => Foresight::Moves(word::port(word)),
                    false => Foresight::Elsewhere(word::port(word), None),
                }
            }
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
        match self.victim(first, new, now, SWEEP, hand, false) {
            Some(victim) => Foresight::Learned(self.placer.key(victim.bucket, victim.word)),
            None => Foresight::NoRoom,
        }
    }
}

#[cfg(test)]
mod tests {
    use fabric::protection::Claim;
    use packet::MacAddr;
    use proptest::prelude::*;

    use super::*;
    use crate::MacTable;
    use crate::fdb::{Admission, FdbChange};

    fn key(n: u16) -> Key {
        let [high, low] = n.to_be_bytes();
        Key::new(0, MacAddr([2, 0, 0, 0, high, low]))
    }

    fn claim() -> impl Strategy<Value = Claim> {
        prop_oneof![
            4 => Just(Claim::Nobody),
            1 => Just(Claim::Ingress),
            1 => (0u16..4).prop_map(|port| Claim::Other(PortIndex(port))),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

        /// Tables are small or full, so stations move, make room and find none.
        #[test]
        fn predictions_hold(
            (capacity, others) in prop_oneof![(1u32..12, Just(0u16)), Just((4096, 4096))],
            limit in 1u32..16,
            steps in prop::collection::vec((0u16..24, 0u16..4, prop::option::of((0u32..5, any::<bool>())), 0u8..12, claim()), 1..120),
        ) {
            let fdb = Fdb::new(capacity).with_port_limit(if others > 0 { 4096 } else { limit });
            (0..others).for_each(|n| _ = fdb.learn(key(100 + n), PortIndex(5), u32::from(n % 7)));
            fdb.watch(true);
            for (now, (station, port, within, by_hand, claim)) in (10u32..).zip(steps) {
                let (key, port) = (key(station), PortIndex(port));
                if by_hand == 0 {
                    let _ = fdb.add_static(0, key.mac(), port);
                }
                let claim = if claim == Claim::Other(port) { Claim::Ingress } else { claim };
                fdb.drain_events();
                let before = fdb.lookup(key);
                let (foreseen, admission) = match within {
                    None => {
                        let foreseen = fdb.foresee(key, port, now, claim);
                        fdb.learn_unclaimed(key, port, now, |_| claim);
                        (foreseen, None)
                    }
                    Some((most, sticky)) => {
                        let foreseen = fdb.foresee_within(key, port, now, most, claim);
                        (foreseen, Some(fdb.learn_claimed(key, port, now, most, sticky, || claim)))
                    }
                };
                let evicted = fdb.drain_events().0.into_iter().find(|e| e.change == FdbChange::Evicted);
                let evicted = evicted.map(|event| event.key);
                let after = fdb.lookup(key);
                match foreseen {
                    Foresight::Known => prop_assert_eq!((before, after), (Some(port), Some(port))),
                    Foresight::Surplus => prop_assert_eq!((before, after), (Some(port), None)),
                    Foresight::Moves(from) => prop_assert_eq!((before, after), (Some(from), Some(port))),
                    Foresight::Stays(at, Fixed::Listed) | Foresight::Elsewhere(at, Some(Fixed::Listed)) => {
                        prop_assert_eq!(claim, Claim::Other(at));
                        prop_assert_eq!(before, after);
                    }
                    Foresight::Stays(at, _) | Foresight::Elsewhere(at, _) => {
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
                        Foresight::Learned(_) | Foresight::Moves(_) => Admission::Learned,
                        _ => Admission::Refused,
                    };
                    prop_assert_eq!(admission, expected);
                }
            }
        }
    }
}

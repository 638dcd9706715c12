//! Violations of port security, kept for the control plane.
//!
//! Each port has one place for each reason. A worker that finds it empty fills it; the control plane empties it. So a
//! client that breaks the rules a million times a second costs a load for each packet, and one event for each look.
//!
//! Invariant: a violation is one word, written and taken as a whole.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use packet::ether::MacAddr;

use crate::counters::DropReason;

/// A packet that port security dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    /// The reason: [`DropReason::StationLimit`] or [`DropReason::SourceGuard`].
    pub reason: DropReason,
    /// Its source address.
    pub mac: MacAddr,
    /// Its VLAN, 0 for none.
    pub vid: u16,
}

/// The reasons that are violations.
const REASONS: [DropReason; 2] = [DropReason::StationLimit, DropReason::SourceGuard];

/// Set in a word that holds a violation; the VLAN is in bits 48 to 59, the address below.
const FULL: u64 = 1 << 63;
const VID_SHIFT: u32 = 48;

/// Violations of one port.
#[derive(Debug, Default)]
pub(crate) struct Violations([AtomicU64; REASONS.len()]);

impl Violations {
    /// Keeps a violation, unless one for this reason is kept already or the reason is none of port security's.
    pub(crate) fn note(&self, reason: DropReason, packet: impl FnOnce() -> Option<(MacAddr, u16)>) {
        let place = REASONS.iter().zip(&self.0).find(|(known, _)| **known == reason);
        let Some((_, place)) = place.filter(|(_, place)| place.load(Relaxed) == 0) else { return };
        if let Some((mac, vid)) = packet() {
            place.store(FULL | u64::from(vid & 0xfff) << VID_SHIFT | mac.to_u64(), Relaxed);
        }
    }

    /// Takes the violations that are kept.
    pub(crate) fn take(&self) -> impl Iterator<Item = Violation> {
        REASONS.iter().zip(&self.0).filter_map(|(reason, place)| {
            // The load spares ports without violations, nearly all, the locked instruction.
            let word = if place.load(Relaxed) == 0 { 0 } else { place.swap(0, Relaxed) };
            let vid = (word >> VID_SHIFT) as u16 & 0xfff;
            (word != 0).then(|| Violation { reason: *reason, mac: MacAddr::from_u64(word), vid })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_reason_is_kept_until_it_is_taken() {
        let violations = Violations::default();
        let packet = |last, vid| move || Some((MacAddr([0xfe, 0xff, 0, 0, 0, last]), vid));
        assert_eq!(violations.take().count(), 0);
        violations.note(DropReason::StationLimit, packet(1, 4094));
        violations.note(DropReason::StationLimit, packet(2, 0));
        violations.note(DropReason::SourceGuard, packet(3, 0));
        violations.note(DropReason::Vlan, packet(4, 0));
        let violation =
            |reason, last, vid| Violation { reason, mac: MacAddr([0xfe, 0xff, 0, 0, 0, last]), vid };
        let first = [violation(DropReason::StationLimit, 1, 4094), violation(DropReason::SourceGuard, 3, 0)];
        assert_eq!(violations.take().collect::<Vec<_>>(), first);
        violations.note(DropReason::StationLimit, packet(5, 7));
        assert_eq!(violations.take().collect::<Vec<_>>(), [violation(DropReason::StationLimit, 5, 7)]);
    }
}

//! Violations of port security, kept for the control plane.
//!
//! Each port has one place for each reason. A worker that finds it empty fills it; the control plane empties it. So a
//! client that breaks the rules a million times a second costs a load for each packet, and one event for each look.
//!
//! Invariant: a place has one writer at a time: the worker that found it empty until it is full, then the control plane
//! until it is empty.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

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
    /// For [`DropReason::SourceGuard`], the IP address that is not allowed, if the packet has one.
    pub address: Option<IpAddr>,
}

/// The reasons that are violations.
const REASONS: [DropReason; 2] = [DropReason::StationLimit, DropReason::SourceGuard];

/// A violation, from the moment that `word` is [`FULL`]; the address is written before that.
#[derive(Debug, Default)]
struct Kept {
    /// State and family in the upper bits, the VLAN in bits 48 to 59, the station's address below; 0 if empty.
    word: AtomicU64,
    address: [AtomicU64; 2],
}

const FULL: u64 = 1 << 63;
/// A worker is writing the address. Set alone.
const WRITING: u64 = 1 << 62;
const IPV6: u64 = 1 << 61;
const IPV4: u64 = 1 << 60;
const VID_SHIFT: u32 = 48;

/// Violations of one port.
#[derive(Debug, Default)]
pub(crate) struct Violations([Kept; REASONS.len()]);

impl Violations {
    /// Keeps a violation, unless one for this reason is kept already or the reason is none of port security's.
    pub(crate) fn note(
        &self,
        reason: DropReason,
        packet: impl FnOnce() -> Option<(MacAddr, u16, Option<IpAddr>)>,
    ) {
        let place = REASONS.iter().zip(&self.0).find(|(known, _)| **known == reason);
        let Some((_, place)) = place.filter(|(_, place)| place.word.load(Relaxed) == 0) else { return };
        let Some((mac, vid, address)) = packet() else { return };
        // Acquire: the control plane has read the address of the violation before.
        if place.word.compare_exchange(0, WRITING, Acquire, Relaxed).is_err() {
            return;
        }
        let (family, bits) = match address {
            None => (0, 0),
            Some(IpAddr::V4(address)) => (IPV4, address.to_bits().into()),
            Some(IpAddr::V6(address)) => (IPV6, address.to_bits()),
        };
        let [high, low] = &place.address;
        high.store((bits >> 64) as u64, Relaxed);
        low.store(bits as u64, Relaxed);
        let word = FULL | family | u64::from(vid & 0xfff) << VID_SHIFT | mac.to_u64();
        place.word.store(word, Release);
    }

    /// Takes the violations that are kept. Only the control plane calls this, once at a time.
    pub(crate) fn take(&self) -> impl Iterator<Item = Violation> {
        REASONS.iter().zip(&self.0).filter_map(|(reason, place)| {
            let word = place.word.load(Acquire);
            if word & FULL == 0 {
                return None;
            }
            let [high, low] = &place.address;
            let bits = u128::from(high.load(Relaxed)) << 64 | u128::from(low.load(Relaxed));
            place.word.store(0, Release);
            let address = match word & (IPV4 | IPV6) {
                IPV4 => Some(Ipv4Addr::from_bits(bits as u32).into()),
                IPV6 => Some(Ipv6Addr::from_bits(bits).into()),
                _ => None,
            };
            let vid = (word >> VID_SHIFT) as u16 & 0xfff;
            Some(Violation { reason: *reason, mac: MacAddr::from_u64(word), vid, address })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_reason_is_kept_until_it_is_taken() {
        let violations = Violations::default();
        let addresses = [None, Some("10.0.0.6".parse().unwrap()), Some("fd00::1:2".parse().unwrap())];
        let packet = |last: u8, vid| {
            let address = addresses[usize::from(last % 3)];
            move || Some((MacAddr([0xfe, 0xff, 0, 0, 0, last]), vid, address))
        };
        assert_eq!(violations.take().count(), 0);
        violations.note(DropReason::StationLimit, packet(1, 4094));
        violations.note(DropReason::StationLimit, packet(2, 0));
        violations.note(DropReason::SourceGuard, packet(3, 0));
        violations.note(DropReason::Vlan, packet(4, 0));
        let violation = |reason, last: u8, vid| {
            let address = addresses[usize::from(last % 3)];
            Violation { reason, mac: MacAddr([0xfe, 0xff, 0, 0, 0, last]), vid, address }
        };
        let first = [violation(DropReason::StationLimit, 1, 4094), violation(DropReason::SourceGuard, 3, 0)];
        assert_eq!(violations.take().collect::<Vec<_>>(), first);
        violations.note(DropReason::StationLimit, packet(5, 7));
        assert_eq!(violations.take().collect::<Vec<_>>(), [violation(DropReason::StationLimit, 5, 7)]);
    }
}

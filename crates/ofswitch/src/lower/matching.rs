//! Matches as conditions.
//!
//! A match is its conditions: two matches that mean the same have equal ones, whatever the version, the order and the
//! classes of their fields. Flows are told apart by them.

use openflow::PortNo;
use openflow::error::ErrorCode;
use openflow::field::FieldId;
use openflow::oxm::Oxm;
use pipeline::bits::Bits;
use pipeline::ir::{KeyMatch, Match, Matches};

use crate::program::Layout;
use crate::tunnels::Tunnels;

/// Conditions in the order of the keys, each a value under a mask that is not zero. Flow and entry share them.
pub(crate) type Conditions = Matches;

/// The conditions of a match that has passed its check.
pub(crate) fn conditions(fields: &[Oxm], tunnels: &Tunnels) -> Result<Conditions, ErrorCode> {
    let mut found: Vec<Match> = Vec::with_capacity(fields.len());
    for oxm in fields {
        let Some(field) = oxm.field() else { return Err(ErrorCode::BmcBadField) };
        let (key, value, mask) = match field.id {
            // Only Ethernet packets are supported, and only those are accepted.
            FieldId::PacketType => continue,
            id if field.is_variable() => tunnels.condition(id, oxm)?,
            _ => condition(field.id, oxm).ok_or(ErrorCode::BmcBadField)?,
        };
        if mask.is_zero() {
            continue;
        }
        let value = value.and(&mask);
        match found.iter_mut().find(|other| other.key == key).map(|other| &mut other.is) {
            None => found.push(Match { key, is: KeyMatch::Mask(value, mask) }),
            // Parts of one register, as fields of different widths.
            Some(KeyMatch::Mask(other, before)) if before.and(&mask).is_zero() => {
                (*other, *before) = (other.or(&value), before.or(&mask));
            }
            Some(_) => return Err(ErrorCode::BmcDupField),
        }
    }
    found.sort_unstable_by_key(|condition| condition.key);
    Ok(found.into())
}

fn condition(id: FieldId, oxm: &Oxm) -> Option<(u32, Bits, Bits)> {
    let layout = Layout::get();
    let spot = layout.keys.spot(id)?;
    let width = layout.keys.list.get(spot.key as usize)?.width;
    let (mut value, mut mask) = (oxm.value_number(), oxm.mask_number());
    match id {
        FieldId::InPort => {
            value = PortNo::from_16_bits(value as u16).0.into();
            mask = if mask == 0 { 0 } else { u128::MAX };
        }
        // The lower two bits are another field's.
        FieldId::NwTos => mask &= 0xfc,
        _ => {}
    }
    let at = |number: u128| Bits::from_u128(spot.bits, number).resize(width).shl(spot.low.into());
    // Wildcarded exact fields have masks of zeros.
    Some((spot.key, at(value), at(mask)))
}

/// Whether each packet that `narrow` matches is matched by `wide`.
pub(crate) fn covers(wide: &[Match], narrow: &[Match]) -> bool {
    wide.iter().all(|wide| {
        let KeyMatch::Mask(value, mask) = &wide.is else { return false };
        narrow.binary_search_by_key(&wide.key, |condition| condition.key).is_ok_and(|at| {
            match narrow.get(at).map(|condition| &condition.is) {
                Some(KeyMatch::Mask(other, narrower)) => {
                    mask.and(narrower) == *mask && other.and(mask) == *value
                }
                _ => false,
            }
        })
    })
}

/// Whether some packet is matched by both.
pub(crate) fn overlap(one: &[Match], other: &[Match]) -> bool {
    one.iter().all(|a| {
        let same =
            other.binary_search_by_key(&a.key, |condition| condition.key).ok().and_then(|at| other.get(at));
        match (same.map(|b| &b.is), &a.is) {
            (Some(KeyMatch::Mask(other, theirs)), KeyMatch::Mask(value, ours)) => {
                let common = ours.and(theirs);
                value.and(&common) == other.and(&common)
            }
            _ => true,
        }
    })
}

/// The conditions of packets that both match; `None`: there are none.
pub(crate) fn intersection(one: &[Match], other: &[Match]) -> Option<Conditions> {
    if !overlap(one, other) {
        return None;
    }
    let mut all = one.to_vec();
    for condition in other {
        match all.binary_search_by_key(&condition.key, |condition| condition.key) {
            Err(at) => all.insert(at, condition.clone()),
            Ok(at) => {
                let (Some(Match { is: KeyMatch::Mask(value, mask), .. }), KeyMatch::Mask(more, wider)) =
                    (all.get_mut(at), &condition.is)
                else {
                    return None;
                };
                (*value, *mask) = (value.or(more), mask.or(wider));
            }
        }
    }
    Some(all.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::Version;

    fn of(fields: &[Oxm]) -> Conditions {
        conditions(fields, &Tunnels::default()).unwrap()
    }

    fn number(id: FieldId, value: u128) -> Oxm {
        Oxm::number(id, Version::V1_3, value)
    }

    #[test]
    fn numbers_of_different_classes_are_equal() {
        let oxm = Oxm::number(FieldId::InPortOxm, Version::V1_3, 0xffff_fffe);
        let nxm = Oxm::number(FieldId::InPort, Version::V1_0, 0xfffe);
        assert_eq!(of(&[oxm]), of(&[nxm]));
    }

    #[test]
    fn overlapping_registers_are_one_field() {
        let twice = [number(FieldId::Reg0, 1), number(FieldId::XReg0, 1)];
        assert_eq!(conditions(&twice, &Tunnels::default()), Err(ErrorCode::BmcDupField));
        let halves = of(&[number(FieldId::Reg0, 1), number(FieldId::Reg1, 2)]);
        assert_eq!(halves, of(&[number(FieldId::XReg0, 1 << 32 | 2)]));
    }

    #[test]
    fn covers_and_overlaps() {
        let all = of(&[]);
        let masked = Oxm::masked(FieldId::EthDst, Version::V1_3, &[1, 0, 0, 0, 0, 0], &[1, 0, 0, 0, 0, 0]);
        let group = of(&[masked]);
        let one = of(&[number(FieldId::EthDst, 0x0100_0000_0007)]);
        let port = of(&[number(FieldId::InPortOxm, 1)]);
        assert!(covers(&all, &group) && covers(&group, &one) && !covers(&one, &group) && covers(&one, &one));
        assert!(overlap(&one, &group) && overlap(&port, &one));
        assert!(!overlap(&one, &of(&[number(FieldId::EthDst, 3)])));
        let both = intersection(&port, &one).unwrap();
        assert!(covers(&port, &both) && covers(&one, &both));
    }
}

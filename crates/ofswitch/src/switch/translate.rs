//! Matches and instructions of flows in the version of the connection that asks for them.
//!
//! What a version has no form for is left out: a flow with `goto_table` is shown to version 1.0 by its actions alone.

use openflow::action::{Action, Nest, Track};
use openflow::field::FieldId;
use openflow::instruction::{Instruction, Instructions};
use openflow::matching::{Match, Match10};
use openflow::oxm::Oxm;
use openflow::{PortNo, Version};
use pipeline::bits::Bits;

/// A match in a version's numbers.
pub(super) fn fields(fields: &[Oxm], version: Version) -> Vec<Oxm> {
    fields.iter().flat_map(|oxm| one(oxm, version)).collect()
}

fn one(oxm: &Oxm, version: Version) -> Vec<Oxm> {
    let Some(field) = oxm.field() else { return vec![oxm.clone()] };
    let number = |id: FieldId, value: u128| Oxm::number(id, version, value);
    let exact = oxm.mask.as_ref().is_none_or(|mask| mask.iter().all(|byte| *byte == 0xff));
    let value = oxm.value_number();
    match (field.id, version >= Version::V1_2) {
        (FieldId::InPort, true) if exact => {
            vec![number(FieldId::InPortOxm, PortNo::from_16_bits(value as u16).0.into())]
        }
        (FieldId::InPortOxm, false) => match PortNo(value as u32).to_16_bits() {
            Some(port) => vec![number(FieldId::InPort, port.into())],
            None => vec![oxm.clone()],
        },
        (FieldId::NwTos, true) => vec![number(FieldId::IpDscp, value >> 2)],
        (FieldId::IpDscp, false) => vec![number(FieldId::NwTos, value << 2)],
        (FieldId::VlanTci, true) => tag(oxm, version),
        _ => vec![Oxm { id: field.number_in(version), ..oxm.clone() }],
    }
}

/// Tag control information as id and priority, if it can be told apart.
fn tag(oxm: &Oxm, version: Version) -> Vec<Oxm> {
    let (value, mask) = (oxm.value_number() as u16, (oxm.mask_number() & 0xffff) as u16);
    let vid = Oxm::number(FieldId::VlanVid, version, (value & 0x1fff).into());
    let vid_mask = mask & 0x1fff;
    let masked = Oxm::number(FieldId::VlanVid, version, vid_mask.into()).value;
    let vid = Oxm { mask: (vid_mask != 0x1fff).then_some(masked), ..vid };
    match (value & 0x1000 != 0, mask & 0xe000) {
        // No tag: no priority either.
        (false, _) if mask & 0x1000 != 0 => vec![Oxm::number(FieldId::VlanVid, version, 0)],
        (_, 0xe000) => vec![vid, Oxm::number(FieldId::VlanPcp, version, (value >> 13).into())],
        (_, 0) => vec![vid],
        _ => vec![oxm.clone()],
    }
}

/// A match in the form of a message; `by_fields` in Nicira's messages of version 1.0.
pub(super) fn matching(of: &[Oxm], version: Version, by_fields: bool) -> Match {
    match version {
        Version::V1_0 if !by_fields => Match::Fixed10(Match10::from_fields(of)),
        Version::V1_1 => Match::Fields(fields(of, Version::V1_2)),
        version => Match::Fields(fields(of, version)),
    }
}

fn actions(list: &[Action], version: Version) -> Vec<Action> {
    let convert = |action: &Action| match action {
        Action::Clone(nest) => Some(Action::Clone(Nest(actions(&nest.0, version)))),
        Action::Track(track) => {
            let nested = actions(&track.actions, version);
            Some(Action::Track(Track { actions: nested, ..track.clone() }))
        }
        action if action.exists_in(version) => Some(action.clone()),
        // One action in several numbers.
        Action::RegMove(copy) => Some(Action::CopyField(openflow::action::CopyField {
            source: copy.source,
            destination: copy.destination,
        })),
        Action::CopyField(copy) => Some(Action::RegMove(openflow::action::RegMove {
            source: copy.source,
            destination: copy.destination,
        })),
        Action::SetField(set) if version < Version::V1_2 => {
            Some(Action::RegLoad2(openflow::action::RegLoad2(set.0.clone())))
        }
        Action::RegLoad2(set) => Some(Action::SetField(openflow::action::SetField(set.0.clone()))),
        Action::RegLoad(load) => set_field(load, version),
        _ => None,
    };
    list.iter().filter_map(convert).filter(|action| action.exists_in(version)).collect()
}

/// `load` as `set_field`, which version 1.5 has instead.
fn set_field(load: &openflow::action::RegLoad, version: Version) -> Option<Action> {
    let field = load.destination.header.field()?;
    let part = &load.destination;
    let width = u16::try_from(part.header.width() * 8).ok().filter(|width| *width > 0)?;
    let bits = part.bits.clamp(1, 64);
    let place = |value: Bits| value.resize(width).shl(part.offset.into()).to_bytes();
    let value = place(Bits::from_u64(bits, load.value));
    let whole = part.offset == 0 && u32::from(part.bits) == u32::from(field.bits).min(width.into());
    let set = match whole {
        true => Oxm::exact(field.id, version, &value),
        false => Oxm::masked(field.id, version, &value, &place(Bits::ones(bits))),
    };
    Some(Action::SetField(openflow::action::SetField(set)))
}

/// Instructions as far as a version has them.
pub(super) fn instructions(of: &Instructions, version: Version) -> Instructions {
    let convert = |instruction: &Instruction| match (instruction, version) {
        (Instruction::ApplyActions(list), _) => Some(Instruction::ApplyActions(actions(list, version))),
        (_, Version::V1_0) => None,
        (Instruction::WriteActions(list), _) => Some(Instruction::WriteActions(actions(list, version))),
        (Instruction::Meter(_), Version::V1_3 | Version::V1_4) => Some(instruction.clone()),
        (Instruction::Meter(_), _) => None,
        _ => Some(instruction.clone()),
    };
    let mut list: Vec<Instruction> = of.0.iter().filter_map(convert).collect();
    // Version 1.5 has the meter as an action.
    let meter = of.0.iter().find_map(|instruction| match instruction {
        Instruction::Meter(meter) if version >= Version::V1_5 => Some(Action::Meter(*meter)),
        _ => None,
    });
    if let Some(meter) = meter {
        match list.iter_mut().find_map(|instruction| match instruction {
            Instruction::ApplyActions(list) => Some(list),
            _ => None,
        }) {
            Some(applied) => applied.insert(0, meter),
            None => list.insert(0, Instruction::ApplyActions(vec![meter])),
        }
    }
    Instructions(list)
}

/// A bucket's actions as far as a version has them.
pub(super) fn bucket(of: &openflow::message::Bucket, version: Version) -> openflow::message::Bucket {
    openflow::message::Bucket { actions: actions(&of.actions, version), ..of.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::oxm::OxmHeader;

    #[test]
    fn ports_and_tags_change_their_class() {
        let old = [
            Oxm::number(FieldId::InPort, Version::V1_0, 0xfffe),
            Oxm::number(FieldId::VlanTci, Version::V1_0, 0x7005),
        ];
        let new = fields(&old, Version::V1_3);
        let wanted = [
            Oxm::number(FieldId::InPortOxm, Version::V1_3, 0xffff_fffe),
            Oxm::number(FieldId::VlanVid, Version::V1_3, 0x1005),
            Oxm::number(FieldId::VlanPcp, Version::V1_3, 3),
        ];
        assert_eq!(new, wanted);
        assert_eq!(fields(&new[..1], Version::V1_0), old[..1]);
    }

    #[test]
    fn nested_actions_change_their_form_too() {
        let load = openflow::text::parse_instructions("load:1->NXM_NX_REG0[]", Version::V1_3).unwrap();
        let list = load.applied().to_vec();
        let nested = [
            Action::Clone(Nest(list.clone())),
            Action::Track(Track { actions: list.clone(), ..Track::default() }),
        ];
        for action in nested {
            let new = actions(&[action], Version::V1_5);
            let set = actions(&list, Version::V1_5);
            let inner = match new.as_slice() {
                [Action::Clone(nest)] => &nest.0,
                [Action::Track(track)] => &track.actions,
                other => panic!("{other:?}"),
            };
            assert!(matches!(inner[..], [Action::SetField(_)]));
            assert_eq!(*inner, set);
        }
    }

    #[test]
    fn a_load_into_a_wide_field_sets_its_bits() {
        let header = OxmHeader {
            id: FieldId::TunMetadata0.field().number_in(Version::V1_3),
            masked: false,
            length: 32,
        };
        let destination = openflow::oxm::Subfield { header, offset: 200, bits: 8 };
        let load = openflow::action::RegLoad { destination, value: 5 };
        let Some(Action::SetField(set)) = set_field(&load, Version::V1_5) else { panic!("no action") };
        let at = |value: u8| -> Vec<u8> { (0..32).map(|i| if i == 6 { value } else { 0 }).collect() };
        assert_eq!(set.0.value.to_vec(), at(5));
        assert_eq!(set.0.mask.map(|mask| mask.to_vec()), Some(at(0xff)));
    }

    #[test]
    fn a_meter_is_an_action_of_the_last_version() {
        let old = Instructions(vec![Instruction::Meter(3)]);
        let new = instructions(&old, Version::V1_5);
        assert_eq!(new, Instructions::apply(vec![Action::Meter(3)]));
        assert_eq!(instructions(&old, Version::V1_0), Instructions::default());
    }
}

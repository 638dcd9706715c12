//! Which actions a switch refuses, and with which code.

use super::{Action, Bundle, Nat, NatFlags, Track, Zone};
use crate::action::CtFlags;
use crate::error::ErrorCode;
use crate::field::{Access, Field, FieldId};
use crate::matching::Seen;
use crate::oxm::{Oxm, Subfield};
use crate::property::check_all;
use crate::version::{PortNo, Version, vendor};

/// Ports that a bundle can have.
const MAX_MEMBERS: usize = 2048;

/// Packet types that can be added.
const ETHERNET: u32 = 0;
const NSH: u32 = 0x0001_894f;
const MPLS: u32 = 0x0001_8847;
const MPLS_MULTICAST: u32 = 0x0001_8848;

type Checked = Result<(), ErrorCode>;

/// Refuses a list of actions that no switch accepts in a flow with the match `fields`.
///
/// Reading or setting a field asks for its prerequisites in the match, or from an action before. Other errors go before
/// packets that lack what an action changes.
pub fn check_list(actions: &[Action], version: Version, fields: &[Oxm]) -> Result<(), ErrorCode> {
    check_instructions(actions, &[], version, fields)
}

/// Refuses actions that are applied, and those that are added to the action set afterwards.
///
/// Other actions of the set may give packets what an action of the set changes, so only its fields are asked for.
pub(crate) fn check_instructions(
    applied: &[Action],
    written: &[Action],
    version: Version,
    fields: &[Oxm],
) -> Checked {
    applied.iter().chain(written).try_for_each(|action| action.check(version))?;
    if !written.iter().all(Action::fits_the_set) {
        return Err(ErrorCode::BacBadType);
    }
    let mut seen = Seen::of(fields);
    let mut suits = true;
    applied.iter().try_for_each(|action| action.check_with(version, &mut seen, &mut suits))?;
    written.iter().try_for_each(|action| action.check_with(version, &mut seen, &mut true))?;
    if suits { Ok(()) } else { Err(ErrorCode::BacMatchInconsistent) }
}

impl Action {
    /// Refuses an action that no switch accepts, whatever the match: unknown ones, wrong arguments.
    pub fn check(&self, version: Version) -> Result<(), ErrorCode> {
        self.check_arguments(version)?;
        match self {
            Action::Clone(nest) => nest.0.iter().try_for_each(|action| action.check(version)),
            Action::Track(track) => track.actions.iter().try_for_each(|action| action.check(version)),
            _ => Ok(()),
        }
    }

    /// Whether the action may be in an action set.
    fn fits_the_set(&self) -> bool {
        use Action as A;
        let changes_headers = matches!(
            self,
            A::CopyTtlIn
                | A::CopyTtlOut
                | A::DecNwTtl
                | A::DecTtlIds(_)
                | A::DecMplsTtl
                | A::PopVlan
                | A::PopPbb
                | A::PopMpls(_)
                | A::PushMpls(_)
                | A::PushPbb(_)
                | A::PushVlan(_)
        );
        let sets_a_field = matches!(
            self,
            A::SetField(_)
                | A::RegLoad(_)
                | A::RegLoad2(_)
                | A::SetVlanVid(_)
                | A::SetVlanPcp(_)
                | A::SetDlSrc(_)
                | A::SetDlDst(_)
                | A::SetNwSrc(_)
                | A::SetNwDst(_)
                | A::SetNwTos(_)
                | A::SetNwEcn(_)
                | A::SetNwTtl(_)
                | A::SetMplsLabel(_)
                | A::SetMplsTc(_)
                | A::SetMplsTtl(_)
                | A::SetTpSrc(_)
                | A::SetTpDst(_)
        );
        changes_headers || sets_a_field || matches!(self, A::SetQueue(_) | A::Group(_) | A::Output(_))
    }

    /// Checks the action where it stands. Clears `suits` if packets lack what it changes, which is reported last.
    fn check_with(&self, version: Version, seen: &mut Seen, suits: &mut bool) -> Checked {
        for field in self.fields() {
            if !seen.fulfil(field.prerequisite) {
                return Err(ErrorCode::BacMatchInconsistent);
            }
        }
        if !self.is_supported_by(seen) {
            return Err(ErrorCode::BacMatchInconsistent);
        }
        *suits &= self.suits(version, seen);
        match self {
            Action::SetVlanVid(_) | Action::SetVlanPcp(_) => seen.set_vlan(true),
            Action::PushVlan(_) => seen.push_vlan(),
            Action::PopVlan => seen.pop_vlan(),
            Action::PushMpls(eth_type) | Action::PushPbb(eth_type) => seen.set_payload(*eth_type),
            Action::PopMpls(eth_type) => seen.set_type(*eth_type),
            Action::SetField(set) if is_vlan_tci(set.0.field()) => {
                seen.set_vlan(is_tag(set.0.value_number()))
            }
            Action::RegLoad2(set) if is_vlan_tci(set.0.field()) => {
                seen.set_vlan(is_tag(set.0.value_number()))
            }
            Action::RegLoad(load) if is_vlan_tci(load.destination.header.field()) => {
                seen.set_vlan(is_tag(u128::from(load.value) << load.destination.offset));
            }
            Action::Encap(encap) if encap.packet_type >> 16 == 1 => {
                seen.set_payload(encap.packet_type as u16)
            }
            Action::Encap(_) | Action::Decap(_) => *seen = Seen::default(),
            // Actions on a copy leave the packet as it is.
            Action::Clone(nest) => check_nested(&nest.0, version, seen.clone(), suits)?,
            Action::Track(track) => check_nested(&track.actions, version, seen.clone(), suits)?,
            _ => {}
        }
        Ok(())
    }

    /// The fields that the action reads or writes.
    fn fields(&self) -> Vec<&'static Field> {
        let parts: &[&Subfield] = match self {
            Action::SetField(set) => return set.0.field().into_iter().collect(),
            Action::RegLoad2(set) => return set.0.field().into_iter().collect(),
            Action::CopyField(copy) => &[&copy.source, &copy.destination],
            Action::RegMove(copy) => &[&copy.source, &copy.destination],
            Action::RegLoad(load) => &[&load.destination],
            Action::StackPush(stack) | Action::StackPop(stack) => &[&stack.0],
            Action::OutputReg(output) => &[&output.source],
            Action::OutputReg2(output) => &[&output.source],
            Action::Multipath(multipath) => &[&multipath.destination],
            Action::BundleLoad(load) => &[&load.destination],
            _ => &[],
        };
        parts.iter().filter_map(|part| part.header.field()).collect()
    }

    /// Whether the packets that a flow matches have what the action needs in every version.
    fn is_supported_by(&self, seen: &Seen) -> bool {
        use crate::field::Prerequisite as P;
        let any = |prerequisites: &[P]| prerequisites.iter().any(|prerequisite| seen.fulfil(*prerequisite));
        match self {
            Action::SetField(set) if is_vlan_vid(set.0.field()) => any(&[P::VlanVid]),
            Action::RegLoad2(set) if is_vlan_vid(set.0.field()) => any(&[P::VlanVid]),
            Action::RegLoad(load) if is_vlan_vid(load.destination.header.field()) => any(&[P::VlanVid]),
            Action::ResubmitTableCt(_) => any(&[P::Ct]),
            Action::Nat(nat) => match (&nat.range.ipv4_min, &nat.range.ipv6_min) {
                (Some(_), _) => any(&[P::Ipv4]),
                (_, Some(_)) => any(&[P::Ipv6]),
                _ => any(&[P::Ip]),
            },
            _ => true,
        }
    }

    /// Whether the packets that a flow matches have what the action changes. Version 1.0 leaves others unchanged.
    fn suits(&self, version: Version, seen: &Seen) -> bool {
        use crate::field::Prerequisite as P;
        let any = |prerequisites: &[P]| prerequisites.iter().any(|prerequisite| seen.fulfil(*prerequisite));
        match self {
            _ if version == Version::V1_0 => true,
            Action::SetVlanVid(_) | Action::SetVlanPcp(_) | Action::PopVlan => any(&[P::VlanVid]),
            Action::SetNwSrc(_) | Action::SetNwDst(_) => any(&[P::Ipv4]),
            Action::SetNwTos(_)
            | Action::SetNwEcn(_)
            | Action::SetNwTtl(_)
            | Action::DecNwTtl
            | Action::DecTtlIds(_) => any(&[P::Ip]),
            Action::SetTpSrc(_) | Action::SetTpDst(_) => any(&[P::Tcp, P::Udp, P::Sctp]),
            Action::SetMplsLabel(_)
            | Action::SetMplsTc(_)
            | Action::SetMplsTtl(_)
            | Action::DecMplsTtl
            | Action::PopMpls(_) => any(&[P::Mpls]),
            Action::FinTimeout(_) => any(&[P::Tcp]),
            _ => true,
        }
    }

    fn check_arguments(&self, version: Version) -> Checked {
        match self {
            Action::Unknown(kind, body) => Err(refusal(*kind, body)),
            Action::Output(output) => check_output(output.port),
            Action::OutputTrunc(output) => check_output(output.port),
            Action::Enqueue(enqueue) => match enqueue.port {
                PortNo::IN_PORT | PortNo::LOCAL => Ok(()),
                port if port < PortNo::MAX => Ok(()),
                _ => Err(ErrorCode::BacBadOutPort),
            },
            Action::SetVlanVid(vid) => argument(*vid <= 0x0fff),
            Action::SetVlanPcp(pcp) => argument(*pcp <= 7),
            Action::PushVlan(eth_type) => argument(matches!(eth_type, 0x8100 | 0x88a8)),
            Action::PushMpls(eth_type) => argument(matches!(eth_type, 0x8847 | 0x8848)),
            Action::PushPbb(eth_type) => argument(*eth_type == 0x88e7),
            Action::SetNwTos(tos) => argument(tos & 3 == 0),
            Action::SetNwEcn(ecn) => argument(*ecn <= 3),
            Action::SetMplsLabel(label) => argument(*label <= 0xf_ffff),
            Action::SetMplsTc(tc) => argument(*tc <= 7),
            Action::SetField(set) => check_set(&set.0, Access::SetField, version >= Version::V1_5),
            Action::RegLoad2(set) => check_set(&set.0, Access::Settable, true),
            Action::RegLoad(load) => {
                load.destination.check_writable()?;
                argument(load.destination.bits == 64 || load.value >> load.destination.bits == 0)
            }
            Action::RegMove(copy) => check_copy(&copy.source, &copy.destination),
            Action::CopyField(copy) => check_copy(&copy.source, &copy.destination),
            Action::StackPush(stack) => {
                stack.0.header.check()?;
                stack.0.check().map(drop)
            }
            Action::StackPop(stack) => {
                stack.0.header.check()?;
                stack.0.check_writable().map(drop)
            }
            Action::OutputReg(output) => output.source.check().map(drop),
            Action::OutputReg2(output) => {
                output.source.header.check()?;
                output.source.check().map(drop)
            }
            Action::CheckPacketLarger(check) => {
                check.destination.header.check()?;
                check.destination.check_writable().map(drop)
            }
            Action::DeleteField(field) => field.0.check().map(drop),
            Action::Encap(encap) => match encap.packet_type {
                ETHERNET | NSH | MPLS | MPLS_MULTICAST => Ok(()),
                _ => Err(ErrorCode::NxBacBadHeaderType),
            },
            Action::ResubmitTable(_) | Action::ResubmitTableCt(_) | Action::Resubmit(_) => Ok(()),
            Action::Multipath(multipath) => {
                argument(multipath.algorithm <= 3)?;
                multipath.destination.check_writable()?;
                let bits = u32::from(multipath.destination.bits);
                argument(bits >= 16 || u32::from(multipath.max_link) < 1 << bits)
            }
            Action::Bundle(bundle) => check_bundle(bundle),
            Action::BundleLoad(load) => {
                check_bundle(&load.bundle)?;
                load.destination.check_writable()?;
                argument(load.destination.bits >= 16)
            }
            Action::Learn(learn) => learn.check(),
            Action::Learn2(learn) => learn.check(),
            Action::Controller2(controller) => check_all(&controller.0),
            Action::Sample(sample) => argument(sample.probability > 0),
            Action::Sample2(sample) => argument(sample.sample.probability > 0),
            Action::Sample3(sample) => argument(sample.sample.probability > 0),
            Action::Sample4(sample) => argument(sample.probability > 0),
            Action::Conjunction(conjunction) => {
                match (2..=64).contains(&conjunction.clauses) && conjunction.clause < conjunction.clauses {
                    true => Ok(()),
                    false => Err(ErrorCode::NxBacBadConjunction),
                }
            }
            Action::Track(track) => check_track(track),
            Action::Nat(nat) => check_nat(nat),
            _ => Ok(()),
        }
    }
}

fn check_nested(actions: &[Action], version: Version, mut seen: Seen, suits: &mut bool) -> Checked {
    actions.iter().try_for_each(|action| action.check_with(version, &mut seen, suits))
}

fn argument(right: bool) -> Checked {
    if right { Ok(()) } else { Err(ErrorCode::BacBadArgument) }
}

/// The reply to an action of unknown type.
fn refusal(kind: u16, body: &[u8]) -> ErrorCode {
    match body.first_chunk().map(|vendor| u32::from_be_bytes(*vendor)) {
        _ if kind != super::EXPERIMENTER => ErrorCode::BacBadType,
        Some(vendor::NICIRA | vendor::ONF) => ErrorCode::BacBadVendorType,
        _ => ErrorCode::BacBadVendor,
    }
}

fn check_output(port: PortNo) -> Checked {
    match port {
        PortNo::IN_PORT
        | PortNo::TABLE
        | PortNo::NORMAL
        | PortNo::FLOOD
        | PortNo::ALL
        | PortNo::CONTROLLER
        | PortNo::LOCAL => Ok(()),
        port if port < PortNo::MAX && port.to_16_bits().is_some() => Ok(()),
        _ => Err(ErrorCode::BacBadOutPort),
    }
}

fn check_set(oxm: &Oxm, by: Access, may_mask: bool) -> Checked {
    let field = oxm.field().ok_or(ErrorCode::BacBadSetType)?;
    if !field.has_length(oxm.value.len()) {
        return Err(ErrorCode::BacBadSetLen);
    }
    if !oxm.is_within_mask() {
        return Err(ErrorCode::BmcBadWildcards);
    }
    if oxm.mask.is_some() && !may_mask {
        return Err(ErrorCode::BacBadSetMask);
    }
    // The standard forbids to set the ingress port, which Nicira's field allows.
    let forbidden = field.access < by || field.id == FieldId::InPortOxm;
    // The standard's action on a VLAN's id also sets the bit that says that there is one.
    let tag = by == Access::SetField
        && field.id == FieldId::VlanVid
        && oxm.value_number() & oxm.mask_number() & 0x1000 == 0;
    if forbidden || tag || !field.accepts(&oxm.value) {
        return Err(ErrorCode::BacBadSetArgument);
    }
    Ok(())
}

fn check_copy(source: &Subfield, destination: &Subfield) -> Checked {
    source.header.check()?;
    destination.header.check()?;
    source.check()?;
    destination.check_writable()?;
    Ok(())
}

fn check_bundle(bundle: &Bundle) -> Checked {
    argument(bundle.algorithm <= 1 && bundle.members.len() <= MAX_MEMBERS)?;
    bundle.members.iter().try_for_each(|member| match *member {
        PortNo::LOCAL | PortNo::ANY => Ok(()),
        port if port < PortNo::MAX => Ok(()),
        _ => Err(ErrorCode::BacBadOutPort),
    })
}

fn check_track(track: &Track) -> Checked {
    let commits = track.flags.contains(CtFlags::COMMIT);
    argument(commits || !track.flags.contains(CtFlags::FORCE))?;
    if let Zone::Field(zone) = &track.zone {
        zone.check()?;
        if zone.bits != 16 {
            return Err(ErrorCode::BacBadSetLen);
        }
    }
    let allowed = |action: &Action| match action {
        Action::Nat(nat) => commits || *nat == Nat::default(),
        Action::SetField(set) => commits && is_connection_field(set.0.field()),
        Action::RegLoad(load) => commits && is_connection_field(load.destination.header.field()),
        Action::RegLoad2(set) => commits && is_connection_field(set.0.field()),
        Action::RegMove(copy) => commits && is_connection_field(copy.destination.header.field()),
        Action::CopyField(copy) => commits && is_connection_field(copy.destination.header.field()),
        _ => false,
    };
    argument(track.actions.iter().all(allowed))
}

/// Whether it is the id of a tag, which must be there.
fn is_vlan_vid(field: Option<&'static Field>) -> bool {
    field.is_some_and(|field| field.id == FieldId::VlanVid)
}

/// Whether it is a tag's control information, which adds and removes tags.
fn is_vlan_tci(field: Option<&'static Field>) -> bool {
    field.is_some_and(|field| field.id == FieldId::VlanTci)
}

/// Whether control information says that there is a tag.
fn is_tag(control: u128) -> bool {
    control & 0x1000 != 0
}

fn is_connection_field(field: Option<&'static Field>) -> bool {
    field.is_some_and(|field| matches!(field.id, FieldId::CtMark | FieldId::CtLabel))
}

fn check_nat(nat: &Nat) -> Checked {
    let Nat { flags, range } = nat;
    let excludes = |a, b| !(flags.contains(a) && flags.contains(b));
    argument(NatFlags::all().contains(*flags))?;
    argument(
        excludes(NatFlags::SRC, NatFlags::DST) && excludes(NatFlags::PROTO_HASH, NatFlags::PROTO_RANDOM),
    )?;
    let ipv4 = range.ipv4_min.is_some();
    let ipv6 = range.ipv6_min.is_some();
    argument(!(ipv4 && (ipv6 || range.ipv6_max.is_some())))?;
    argument(ipv4 || range.ipv4_max.is_none())?;
    argument(ipv6 || range.ipv6_max.is_none())?;
    argument(
        range.ipv4_min.is_none_or(|min| !min.is_unspecified() && range.ipv4_max.is_none_or(|max| max >= min)),
    )?;
    argument(
        range.ipv6_min.is_none_or(|min| !min.is_unspecified() && range.ipv6_max.is_none_or(|max| max >= min)),
    )?;
    argument(range.port_min.is_none() || ipv4 || ipv6)?;
    argument(range.port_min.is_some() || range.port_max.is_none())?;
    argument(range.port_min.is_none_or(|min| min != 0 && range.port_max.is_none_or(|max| max >= min)))
}

//! What a packet's way through the tables depends on: the parts of the packet that lookups compare and actions read.
//!
//! Packets that agree in these parts meet the same flows. Open vSwitch keeps such sets of packets in its flow cache, as
//! megaflows; here they explain traces.
//!
//! The switch is borrowed meanwhile, so lookups of one packet look at [`FLOWS`] flows at most. A packet whose lookups
//! would need more depends on everything that tables compare: that is more than necessary, and still true.

use openflow::PortNo;
use openflow::action::{Action, HashFields, LearnSource};
use openflow::field::FieldId;
use openflow::instruction::Instruction;
use openflow::oxm::{Oxm, Subfield};
use pipeline::bits::Bits;
use pipeline::interp::{Effect as Raw, Event, Exit};
use pipeline::ir::Constant;

use super::Switch;
use super::classify::{self, Masks, Row, add, consult};
use crate::program::Layout;

/// Flows that the lookups of one packet look at, all together.
const FLOWS: usize = 10_000;

/// A part of a packet that matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// The name of a field, or of what several fields share (`tp_src`, `vlan_tci`, `mpls`).
    pub key: &'static str,
    /// Its bits that matter.
    pub mask: u128,
}

impl Switch {
    /// Returns what the way of a packet from a port depends on beside the port, as far as it lies in the packet.
    /// Where the lookups' tables have more than 10,000 flows together, this is all that tables compare.
    pub fn dependencies(&self, port: PortNo, packet: &[u8], now: u64) -> Vec<Dependency> {
        let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let (events, effects) = self.rehearsed(port, packet, len, now);
        let layout = Layout::get();
        let mut way = Way { masks: classify::nothing(), kept: classify::nothing(), left: FLOWS };
        for id in [FieldId::EthType, FieldId::IpFrag] {
            way.read(id);
        }
        for event in &events {
            match event {
                Event::Lookup(id, keys, hit) => {
                    if let Some(table) = layout.number(*id) {
                        self.looked_up(table, keys, &mut way);
                        let flow = hit.and_then(|entry| self.flow_of(*id, table, entry));
                        flow.iter().for_each(|flow| way.instructions(&flow.instructions.0));
                    }
                }
                Event::Bucket(groups, group, at) if *groups == layout.groups => {
                    let entry = self.datapath.model.groups().get(group);
                    let bucket = entry.and_then(|entry| entry.buckets.get(*at));
                    bucket.iter().for_each(|bucket| way.actions(&bucket.actions));
                    let select = entry.filter(|it| it.kind == openflow::message::GroupKind::Select);
                    select.iter().flat_map(|it| it.hashed()).for_each(|id| way.read(id));
                }
                _ => {}
            }
        }
        let is_normal = |effect: &Raw| matches!(effect, Raw::Output { to: Exit::Fallback, .. });
        if effects.iter().any(is_normal) {
            [FieldId::EthSrc, FieldId::EthDst, FieldId::VlanTci].into_iter().for_each(|id| way.read(id));
        }
        let Way { mut masks, kept, .. } = way;
        kept.iter().enumerate().for_each(|(key, mask)| add(&mut masks, key, mask));
        let of_packet = |name| classify::is_in_packet(name);
        let found = layout.keys.list.iter().zip(masks);
        let found = found.filter(|(key, mask)| of_packet(key.name) && !mask.is_zero());
        found.map(|(key, mask)| Dependency { key: key.name, mask: mask.low_u128() }).collect()
    }

    /// Adds what a lookup depends on.
    fn looked_up(&self, table: u8, keys: &[Constant], way: &mut Way) {
        let Some(flows) = self.datapath.model.tables().get(usize::from(table)) else { return };
        let Some(left) = way.left.checked_sub(flows.len()) else {
            way.masks = classify::everything();
            return;
        };
        way.left = left;
        let rows = flows.iter().map(|flow| Row {
            priority: flow.priority,
            conditions: &flow.conditions,
            decides: !flow.is_clause(),
        });
        consult(rows, keys, &mut way.masks);
    }
}

/// What a packet's way has read so far.
struct Way {
    masks: Masks,
    /// What the action set will read.
    kept: Masks,
    /// Flows that lookups may still look at.
    left: usize,
}

impl Way {
    fn instructions(&mut self, instructions: &[Instruction]) {
        for instruction in instructions {
            if let Instruction::ApplyActions(actions) = instruction {
                self.actions(actions);
            }
        }
        if instructions.contains(&Instruction::ClearActions) {
            self.kept = classify::nothing();
        }
        for instruction in instructions {
            if let Instruction::WriteActions(actions) = instruction {
                let applied = std::mem::replace(&mut self.masks, std::mem::take(&mut self.kept));
                self.actions(actions);
                self.kept = std::mem::replace(&mut self.masks, applied);
            }
        }
    }

    fn actions(&mut self, actions: &[Action]) {
        actions.iter().for_each(|action| self.action(action));
    }

    fn action(&mut self, action: &Action) {
        use FieldId as F;
        match action {
            Action::SetField(set) => self.oxm(&set.0),
            Action::RegLoad2(set) => self.oxm(&set.0),
            Action::RegLoad(load) => self.write(&load.destination),
            Action::RegMove(copy) => {
                self.part(&copy.source);
                self.write(&copy.destination);
            }
            Action::CopyField(copy) => {
                self.part(&copy.source);
                self.write(&copy.destination);
            }
            Action::StackPush(part) => self.part(&part.0),
            Action::StackPop(part) => self.write(&part.0),
            Action::OutputReg(output) => self.part(&output.source),
            Action::OutputReg2(output) => self.part(&output.source),
            Action::SetVlanVid(_) | Action::SetVlanPcp(_) | Action::PopVlan | Action::PushVlan(_) => {
                self.read(F::VlanTci);
            }
            Action::SetDlSrc(_) => self.read(F::EthSrc),
            Action::SetDlDst(_) => self.read(F::EthDst),
            Action::SetNwSrc(_) => [F::NwProto, F::IpSrc].into_iter().for_each(|id| self.read(id)),
            Action::SetNwDst(_) => [F::NwProto, F::IpDst].into_iter().for_each(|id| self.read(id)),
            Action::SetNwTos(_) => self.read(F::IpDscp),
            Action::SetNwEcn(_) => self.read(F::NwEcn),
            Action::SetNwTtl(_) | Action::DecNwTtl | Action::DecTtlIds(_) => self.read(F::NwTtl),
            Action::SetTpSrc(_) => [F::NwProto, F::TcpSrc].into_iter().for_each(|id| self.read(id)),
            Action::SetTpDst(_) => [F::NwProto, F::TcpDst].into_iter().for_each(|id| self.read(id)),
            Action::CopyTtlIn | Action::CopyTtlOut => {
                [F::NwTtl, F::MplsTtl].into_iter().for_each(|id| self.read(id));
            }
            Action::SetMplsLabel(_) => self.read(F::MplsLabel),
            Action::SetMplsTc(_) => self.read(F::MplsTc),
            Action::SetMplsTtl(_) | Action::DecMplsTtl => self.read(F::MplsTtl),
            Action::PushMpls(_) => {
                let copied = [F::MplsLabel, F::MplsTc, F::MplsBos, F::MplsTtl, F::IpDscp, F::NwTtl];
                copied.into_iter().for_each(|id| self.read(id));
            }
            Action::PopMpls(_) => self.read(F::MplsBos),
            Action::FinTimeout(_) => [F::NwProto, F::TcpFlags].into_iter().for_each(|id| self.read(id)),
            Action::Learn(learn) => self.learned(&learn.specs),
            Action::Learn2(learn) => self.learned(&learn.learn.specs),
            Action::Multipath(multipath) => self.hashed(multipath.fields),
            Action::Bundle(bundle) => self.hashed(bundle.fields),
            Action::BundleLoad(bundle) => self.hashed(bundle.bundle.fields),
            Action::Clone(nest) => self.actions(&nest.0),
            _ => {}
        }
    }

    fn learned(&mut self, specs: &[openflow::action::LearnSpec]) {
        for spec in specs {
            if let LearnSource::Field(header, offset) = spec.source {
                self.part(&Subfield { header, offset, bits: spec.bits });
            }
        }
    }

    fn hashed(&mut self, fields: HashFields) {
        use FieldId::*;
        let ids: &[FieldId] = match fields {
            HashFields::EthSrc => &[EthSrc],
            HashFields::NwSrc => &[IpSrc, Ipv6Src],
            HashFields::NwDst => &[IpDst, Ipv6Dst],
            HashFields::SymmetricL3 => &[IpSrc, IpDst, Ipv6Src, Ipv6Dst],
            HashFields::SymmetricL3L4 | HashFields::SymmetricL3L4Udp => {
                &[IpSrc, IpDst, Ipv6Src, Ipv6Dst, NwProto, TcpSrc, TcpDst]
            }
            HashFields::SymmetricL4 => {
                &[EthSrc, EthDst, VlanTci, IpSrc, IpDst, Ipv6Src, Ipv6Dst, NwProto, TcpSrc, TcpDst]
            }
        };
        ids.iter().for_each(|id| self.read(*id));
    }

    fn oxm(&mut self, oxm: &Oxm) {
        let Some(field) = oxm.field() else { return };
        let mask = oxm.mask.as_ref().map_or(u128::MAX, |_| oxm.mask_number());
        self.bits(field.id, mask);
        self.around(field.id);
    }

    /// Adds what a change of a part of a field depends on: bits that stay the same need not be changed.
    fn write(&mut self, part: &Subfield) {
        self.part(part);
        part.header.field().iter().for_each(|field| self.around(field.id));
    }

    /// Adds the fields that tell what else changes with a field, or whether it is there.
    fn around(&mut self, id: FieldId) {
        use FieldId::*;
        match id {
            // Checksums of the protocol above cover the addresses.
            IpSrc | IpDst | Ipv6Src | Ipv6Dst | TcpSrc | TcpDst | UdpSrc | UdpDst | SctpSrc | SctpDst => {
                self.read(NwProto);
            }
            NdTarget | NdSll | NdTll | NdReserved | NdOptionsType => {
                [NwProto, Icmpv6Type, Icmpv6Code].into_iter().for_each(|id| self.read(id));
            }
            _ => {}
        }
    }

    fn part(&mut self, part: &Subfield) {
        let Some(field) = part.header.field() else { return };
        let ones = u128::MAX.checked_shr(128 - u32::from(part.bits.min(128))).unwrap_or(0);
        self.bits(field.id, ones.checked_shl(part.offset.into()).unwrap_or(0));
    }

    /// Adds a whole field.
    fn read(&mut self, id: FieldId) {
        self.bits(id, u128::MAX);
    }

    /// Adds bits of a field.
    fn bits(&mut self, id: FieldId, mask: u128) {
        let keys = &Layout::get().keys;
        let Some(spot) = keys.spot(id) else { return };
        let Some(key) = keys.list.get(spot.key as usize) else { return };
        let mask = Bits::from_u128(128, mask).resize(spot.bits).resize(key.width).shl(spot.low.into());
        add(&mut self.masks, spot.key as usize, &mask);
    }
}

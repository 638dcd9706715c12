//! Instructions, and the action set that `write_actions` fills.

use openflow::PortNo;
use openflow::action::Action;
use openflow::error::ErrorCode;
use openflow::field::FieldId;
use openflow::instruction::{Instruction, Instructions};
use openflow::oxm::Oxm;
use pipeline::ir::{Expr, Stmt, VarId};

use super::places::{constant, width_of};
use super::{Lowered, Lowering, Owner, Step, World};
use crate::program::terms::{bit, set, truth, var};

/// Lowers a flow's instructions, in the standard's order (OpenFlow 1.3.5, section 5.9).
pub(crate) fn instructions(
    world: &mut dyn World,
    owner: Owner,
    instructions: &Instructions,
) -> Result<Lowered, ErrorCode> {
    let mut lowering = Lowering::new(world, owner);
    let in_order = |wanted: fn(&Instruction) -> bool| instructions.0.iter().filter(move |i| wanted(i));
    for instruction in in_order(|i| matches!(i, Instruction::Meter(_))) {
        if let Instruction::Meter(meter) = instruction {
            lowering.meter(*meter)?;
        }
    }
    lowering.list(instructions.applied())?;
    if instructions.0.contains(&Instruction::ClearActions) {
        lowering.push(Stmt::Call(lowering.layout.kept.clear));
    }
    for instruction in in_order(|i| matches!(i, Instruction::WriteActions(_))) {
        if let Instruction::WriteActions(actions) = instruction {
            actions.iter().try_for_each(|action| lowering.keep(action))?;
        }
    }
    for instruction in &instructions.0 {
        if let Instruction::WriteMetadata { value, mask } = instruction {
            lowering.write_metadata(*value, *mask)?;
        }
    }
    for instruction in &instructions.0 {
        match instruction {
            Instruction::GotoTable(table) => lowering.goto(*table)?,
            Instruction::StatTrigger(_) => return Err(ErrorCode::BicUnsupInst),
            Instruction::Unknown(..) => return Err(ErrorCode::BicUnknownInst),
            _ => {}
        }
    }
    Ok(lowering.finish())
}

impl Lowering<'_> {
    fn goto(&mut self, table: u8) -> Step {
        let block = self.layout.lookup(table).ok_or(ErrorCode::BicBadTableId)?;
        let v = &self.layout.vars;
        self.push(set(v.match_port, var(v.in_port)));
        self.push(Stmt::Goto(block));
        Ok(())
    }

    fn mark(&mut self, flag: VarId) {
        self.push(set(flag, truth(true)));
    }

    /// Adds an action to the set.
    fn keep(&mut self, action: &Action) -> Step {
        use FieldId as F;
        let kept = &self.layout.kept;
        self.mark(kept.any);
        let typed = |lowering: &mut Self, place: VarId, kind: u16| {
            let kind = lowering.number(16, kind.into());
            lowering.push(set(place, kind));
        };
        match action {
            Action::CopyTtlIn => self.mark(kept.copy_in),
            Action::CopyTtlOut => self.mark(kept.copy_out),
            Action::PopVlan => self.mark(kept.pop_vlan),
            Action::PopPbb => self.mark(kept.pop_pbb),
            Action::DecNwTtl | Action::DecTtlIds(_) => {
                self.mark(kept.dec_ttl);
                self.sign();
            }
            Action::DecMplsTtl => {
                self.mark(kept.dec_mpls_ttl);
                self.sign();
            }
            Action::PopMpls(kind) => typed(self, kept.pop_mpls, *kind),
            Action::PushMpls(kind) => typed(self, kept.push_mpls, *kind),
            Action::PushPbb(kind) => typed(self, kept.push_pbb, *kind),
            Action::PushVlan(kind) => typed(self, kept.push_vlan, *kind),
            Action::SetQueue(queue) => {
                let queue = self.queue(*queue);
                self.push(set(kept.queue, queue));
                self.mark(kept.set_queue);
            }
            Action::Group(group) => {
                if !self.world.has_group(*group) {
                    return Err(ErrorCode::BacBadOutGroup);
                }
                let group = self.number(32, (*group).into());
                self.push(set(kept.group, group));
                self.sign();
                self.mark(kept.set_group);
            }
            Action::Output(output) => {
                if output.port == PortNo::TABLE {
                    return Err(ErrorCode::BacBadOutPort);
                }
                let port = self.number(32, output.port.0.into());
                let max_len = self.number(16, output.max_len.into());
                self.push(set(kept.output, port));
                self.push(set(kept.max_len, max_len));
                self.sign();
                self.mark(kept.set_output);
            }
            Action::SetField(set) => return self.keep_field(&set.0),
            Action::RegLoad2(set) => return self.keep_field(&set.0),
            Action::SetVlanVid(vid) => return self.keep_number(F::VlanTci, 0x1000 | u64::from(*vid), 0x1fff),
            Action::SetVlanPcp(pcp) => {
                return self.keep_number(F::VlanTci, 0x1000 | u64::from(*pcp) << 13, 0xf000);
            }
            Action::SetDlSrc(mac) => return self.keep_bytes(F::EthSrc, &mac.0.0),
            Action::SetDlDst(mac) => return self.keep_bytes(F::EthDst, &mac.0.0),
            Action::SetNwSrc(address) => return self.keep_number(F::IpSrc, (*address).into(), u64::MAX),
            Action::SetNwDst(address) => return self.keep_number(F::IpDst, (*address).into(), u64::MAX),
            Action::SetNwTos(tos) => return self.keep_number(F::IpDscp, u64::from(*tos) >> 2, u64::MAX),
            Action::SetNwEcn(ecn) => return self.keep_number(F::NwEcn, (*ecn).into(), u64::MAX),
            Action::SetNwTtl(ttl) => return self.keep_number(F::NwTtl, (*ttl).into(), u64::MAX),
            Action::SetMplsLabel(label) => return self.keep_number(F::MplsLabel, (*label).into(), u64::MAX),
            Action::SetMplsTc(tc) => return self.keep_number(F::MplsTc, (*tc).into(), u64::MAX),
            Action::SetMplsTtl(ttl) => return self.keep_number(F::MplsTtl, (*ttl).into(), u64::MAX),
            Action::SetTpSrc(port) => {
                let fields = [F::TcpSrc, F::UdpSrc, F::SctpSrc];
                return fields.into_iter().try_for_each(|id| self.keep_number(id, (*port).into(), u64::MAX));
            }
            Action::SetTpDst(port) => {
                let fields = [F::TcpDst, F::UdpDst, F::SctpDst];
                return fields.into_iter().try_for_each(|id| self.keep_number(id, (*port).into(), u64::MAX));
            }
            Action::RegLoad(load) => {
                let part = load.destination;
                let id = part.header.field().ok_or(ErrorCode::BacBadSetType)?.id;
                let mask = u64::MAX >> (64 - u32::from(part.bits.clamp(1, 64)));
                if part.offset + part.bits <= 64 {
                    return self.keep_number(id, load.value << part.offset, mask << part.offset);
                }
                return Err(ErrorCode::BacBadSetLen);
            }
            // The standard has no other actions in the set.
            _ => return Err(ErrorCode::BacBadType),
        }
        Ok(())
    }

    /// Notes the flow as the one that sends packets of the set to controllers.
    fn sign(&mut self) {
        let sender = self.sender(0);
        self.push(set(self.layout.kept.table, sender.table));
        self.push(set(self.layout.kept.cookie, sender.cookie));
    }

    fn keep_field(&mut self, oxm: &Oxm) -> Step {
        let field = oxm.field().ok_or(ErrorCode::BacBadSetType)?;
        let width = width_of(field);
        let ones = vec![0xff; oxm.value.len()];
        let mask = constant(width, oxm.mask.as_deref().unwrap_or(&ones));
        let value = self.param(constant(width, &oxm.value));
        let mask = self.param(mask);
        self.keep_value(field.id, value, mask)
    }

    fn keep_number(&mut self, id: FieldId, value: u64, mask: u64) -> Step {
        let width = width_of(id.field());
        let value = self.number(width, value);
        self.keep_value(id, value, bit(width, mask))
    }

    fn keep_bytes(&mut self, id: FieldId, bytes: &[u8]) -> Step {
        let width = width_of(id.field());
        let value = self.param(constant(width, bytes));
        self.keep_value(id, value, bit(width, u64::MAX))
    }

    /// A field in the set: bits that are set again replace those before.
    fn keep_value(&mut self, id: FieldId, value: Expr, mask: Expr) -> Step {
        use pipeline::ir::BinOp::{And, Or};
        let (id, value, mask) = match id {
            FieldId::NwTos => (FieldId::IpDscp, value.slice(7, 2), mask.slice(7, 2)),
            id => (id, value, mask),
        };
        let Some((kept_value, kept_mask)) = self.layout.kept.fields.get(&id).copied() else {
            // As where the field is set at once, packets are dropped there.
            return Err(ErrorCode::BacBadSetType);
        };
        let others = var(kept_value).op(And, crate::program::terms::complement(mask.clone()));
        self.push(set(kept_value, others.op(Or, value.op(And, mask.clone()))));
        self.push(set(kept_mask, var(kept_mask).op(Or, mask)));
        Ok(())
    }
}

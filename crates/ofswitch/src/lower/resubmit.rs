//! Looking packets up again, and nested lists.

use openflow::PortNo;
use openflow::action::Action;
use openflow::error::ErrorCode;
use pipeline::ir::{BinOp, Stmt};

use super::{Lowering, Step};
use crate::failure::{MAX_DEPTH, MAX_RESUBMITS};
use crate::program::outputs::PACKET_OUT;
use crate::program::terms::{bit, set, var, when};

impl Lowering<'_> {
    pub(super) fn resubmit_action(&mut self, action: &Action) -> Option<Step> {
        Some(match action {
            Action::Resubmit(port) => self.resubmit(port.0, self.owner.table),
            Action::ResubmitTable(to) => {
                let table = if to.table == 0xff { self.owner.table } else { to.table };
                self.resubmit(to.in_port, table)
            }
            Action::ResubmitTableCt(_) => self.drop_for(self.layout.reasons.tracking),
            Action::Exit => {
                // Nothing of the action set is executed, either.
                self.push(Stmt::Call(self.layout.kept.clear));
                self.push(Stmt::Exit);
                Ok(())
            }
            Action::Clone(nest) => self.copy_of(|lowering| lowering.list(&nest.0)),
            _ => return None,
        })
    }

    /// Looks the packet up, runs what is found, and continues. A miss has no consequence. Resubmissions are counted,
    /// and the depth of those that do not lead to a later table: others end by themselves.
    pub(super) fn resubmit(&mut self, port: PortNo, table: u8) -> Step {
        // A packet-out has no table of its own.
        let table = if table == 0xff { 0 } else { table };
        let block = self.layout.lookup(table).ok_or(ErrorCode::BrcBadTableId)?;
        let v = &self.layout.vars;
        let from = match port {
            PortNo::IN_PORT => var(v.in_port),
            port => self.number(32, port.0.into()),
        };
        let (v, reasons) = (&self.layout.vars, &self.layout.reasons);
        let deepens = self.owner.table == 0xff || table <= self.owner.table;
        if deepens {
            let is_deep = var(v.recursion).op(BinOp::Ge, bit(8, MAX_DEPTH.into()));
            self.push(when(is_deep, vec![Stmt::Drop(reasons.recursion)]));
            self.push(set(v.recursion, var(v.recursion).op(BinOp::Add, bit(8, 1))));
        }
        let are_many = var(v.resubmits).op(BinOp::Ge, bit(16, MAX_RESUBMITS.into()));
        self.push(when(are_many, vec![Stmt::Drop(reasons.resubmits)]));
        self.push(set(v.resubmits, var(v.resubmits).op(BinOp::Add, bit(16, 1))));
        self.push(set(v.match_port, from));
        self.push(set(v.nested, var(v.nested).op(BinOp::Add, bit(16, 1))));
        self.push(Stmt::Call(block));
        self.push(set(v.nested, var(v.nested).op(BinOp::Sub, bit(16, 1))));
        if deepens {
            self.push(set(v.recursion, var(v.recursion).op(BinOp::Sub, bit(8, 1))));
        }
        Ok(())
    }

    /// Outputs to the tables (OpenFlow 1.3.5, section 7.3.7): those of a packet-out take the packet as one from a port.
    pub(super) fn output_to_tables(&mut self) -> Step {
        if self.owner.reason != PACKET_OUT {
            return self.resubmit(PortNo::IN_PORT, 0);
        }
        let block = self.layout.lookup(0).ok_or(ErrorCode::BrcBadTableId)?;
        let v = &self.layout.vars;
        self.push(set(v.match_port, var(v.in_port)));
        self.push(set(v.nested, bit(16, 0x8000)));
        self.push(Stmt::Call(block));
        self.push(set(v.nested, bit(16, 0)));
        Ok(())
    }

    /// Runs a list on a copy of the packet: its changes are not seen behind it.
    pub(super) fn copy_of(&mut self, lower: impl FnOnce(&mut Self) -> Step) -> Step {
        let body = self.nested(lower)?;
        let number = self.world.number();
        self.copies.push((number, body));
        let id = self.number(32, number.into());
        self.push(Stmt::Group(self.layout.copies, id));
        Ok(())
    }

    /// Drops packets that reach what is only stored.
    pub(super) fn drop_for(&mut self, reason: pipeline::ir::ReasonId) -> Step {
        self.push(Stmt::Drop(reason));
        Ok(())
    }
}

//! Setting and copying fields, registers and the stack.

use openflow::action::Action;
use openflow::error::ErrorCode;
use openflow::field::FieldId;
use openflow::oxm::{Oxm, Subfield};
use pipeline::ir::{BinOp, Constant, Stmt, Type};

use super::places::constant;
use super::{Lowering, Step};
use crate::program::STACK;
use crate::program::terms::{bit, resize, set, var, when};

impl Lowering<'_> {
    pub(super) fn field_action(&mut self, action: &Action) -> Option<Step> {
        Some(match action {
            Action::SetField(set) => self.set_field(&set.0),
            Action::RegLoad2(set) => self.set_field(&set.0),
            Action::RegLoad(load) => {
                let value = self.number(load.destination.bits, load.value);
                self.write(&load.destination, value)
            }
            Action::RegMove(copy) => self.copy(&copy.source, &copy.destination),
            Action::CopyField(copy) => self.copy(&copy.source, &copy.destination),
            Action::StackPush(stack) => self.stack_push(&stack.0),
            Action::StackPop(stack) => self.stack_pop(&stack.0),
            Action::WriteMetadata(write) => self.write_metadata(write.value, write.mask),
            Action::SetTunnel(id) => self.set_tunnel((*id).into()),
            Action::SetTunnel64(id) => self.set_tunnel(*id),
            _ => return None,
        })
    }

    fn set_field(&mut self, oxm: &Oxm) -> Step {
        let field = oxm.field().ok_or(ErrorCode::BacBadSetType)?;
        let width = self.width(field)?;
        if field.is_variable() && oxm.value.len() * 8 > usize::from(width) {
            return Err(ErrorCode::NxFmfcInvalidTlvField);
        }
        let value = self.param(constant(width, &oxm.value));
        let mask = match &oxm.mask {
            Some(mask) => self.param(constant(width, mask)),
            None => pipeline::ir::Expr::Const(Constant {
                ty: Type::Bit(width),
                value: pipeline::bits::Bits::ones(width),
            }),
        };
        self.store(field, value, mask)
    }

    fn copy(&mut self, source: &Subfield, destination: &Subfield) -> Step {
        let value = self.read(source)?;
        self.write(destination, value)
    }

    /// Sets bits of the metadata.
    pub(super) fn write_metadata(&mut self, value: u64, mask: u64) -> Step {
        let (value, mask) = (self.number(64, value), self.number(64, mask));
        self.store(FieldId::Metadata.field(), value, mask)
    }

    fn set_tunnel(&mut self, id: u64) -> Step {
        let id = self.number(64, id);
        self.store(FieldId::TunId.field(), id, bit(64, u64::MAX))
    }

    fn stack_push(&mut self, part: &Subfield) -> Step {
        let value = resize(self.read(part)?, STACK * 128);
        let v = &self.layout.vars;
        let full = var(v.depth).op(BinOp::Ge, bit(8, STACK.into()));
        let stmts = [
            when(full, vec![Stmt::Drop(self.layout.reasons.stack)]),
            set(v.stack, var(v.stack).op(BinOp::Shl, bit(8, 128)).op(BinOp::Or, value)),
            set(v.depth, var(v.depth).op(BinOp::Add, bit(8, 1))),
        ];
        stmts.into_iter().for_each(|stmt| self.push(stmt));
        Ok(())
    }

    /// Pops; an empty stack leaves the field as it is.
    fn stack_pop(&mut self, part: &Subfield) -> Step {
        let v = &self.layout.vars;
        let value = var(v.stack).slice(part.bits.saturating_sub(1), 0);
        let body = self.aside(|lowering| lowering.write(part, value))?;
        let mut body = body;
        body.push(set(v.stack, var(v.stack).op(BinOp::Shr, bit(8, 128))));
        body.push(set(v.depth, var(v.depth).op(BinOp::Sub, bit(8, 1))));
        self.push(when(var(v.depth).op(BinOp::Ne, bit(8, 0)), body));
        Ok(())
    }

    /// The statements that `lower` adds, with parameters of this body.
    pub(super) fn aside(&mut self, lower: impl FnOnce(&mut Self) -> Step) -> Result<Vec<Stmt>, ErrorCode> {
        let before = std::mem::take(&mut self.body);
        let result = lower(self);
        let added = std::mem::replace(&mut self.body, before);
        result.map(|()| added)
    }
}

//! The bodies of actions.
//!
//! Branches are jumps in the document: forward, around the two branches of a condition, as p4c writes an `if`. They
//! become branches again; other jumps are refused.

use pipeline::ir::{Expr, HeaderRef, Item, LValue, Stmt, Type};
use serde_json::Value;

use crate::document::Operation;
use crate::expression::{HeaderOperand, not};
use crate::number::Number;
use crate::operand::{name, pair, small, typed};
use crate::refusal::{At, Refusal, Result};
use crate::storage::{Field, Instance, Storage};
use crate::switch::Kind;
use crate::{Lower, Scope};

/// Deepest nesting of branches.
const DEEPEST: usize = 48;

impl<'d> Lower<'d> {
    /// Lowers the primitives of an action.
    pub(crate) fn primitives(&mut self, list: &[Operation]) -> Result<()> {
        self.sequence(list, 0, list.len(), 0)
    }

    /// Lowers the primitives from one index up to another.
    fn sequence(&mut self, list: &[Operation], from: usize, to: usize, depth: usize) -> Result<()> {
        let mut at = from;
        while let Some(primitive) = list.get(at).filter(|_| at < to) {
            self.take(1)?;
            let place = || format!("primitive {} `{}`", at + 1, primitive.op);
            let parameters = primitive.parameters.as_slice();
            at = match (primitive.op.as_str(), parameters) {
                ("_jump_if_zero", [condition, offset]) => {
                    let target = self.jump(offset, at, to).within(place)?;
                    self.branch(list, at, (condition, target, to), depth).within(place)?
                }
                ("_jump", [offset]) if self.jump(offset, at, to).within(place)? == at + 1 => at + 1,
                ("_jump", _) => {
                    return Err(Refusal::unsupported("a jump other than around a branch is")).within(place);
                }
                _ => {
                    self.primitive(&primitive.op, parameters).within(place)?;
                    at + 1
                }
            };
        }
        Ok(())
    }

    /// The target of a jump, which leads forward.
    fn jump(&self, offset: &Value, at: usize, to: usize) -> Result<usize> {
        let target = usize::try_from(small(offset)?).ok().filter(|target| (at + 1..=to).contains(target));
        target.ok_or_else(|| Refusal::unsupported("a jump other than around a branch is"))
    }

    /// Lowers a branch; returns the index behind it.
    fn branch(
        &mut self,
        list: &[Operation],
        at: usize,
        (condition, target, to): (&Value, usize, usize),
        depth: usize,
    ) -> Result<usize> {
        if depth >= DEEPEST {
            return Err(Refusal::of(format!("branches are nested deeper than {DEEPEST}")));
        }
        let condition = self.number(condition)?.is_set()?;
        let over = list.get(target - 1).filter(|last| last.op == "_jump" && target > at + 1);
        let (yes_end, behind) = match over.map(|jump| jump.parameters.as_slice()) {
            Some([offset]) => (target - 1, self.jump(offset, target - 1, to)?),
            _ => (target, target),
        };
        let yes = self.block(|lower| lower.sequence(list, at + 1, yes_end, depth + 1))?;
        let no = self.block(|lower| lower.sequence(list, target, behind, depth + 1))?;
        if yes.is_empty() && no.is_empty() {
            return Ok(behind);
        }
        self.emit(if yes.is_empty() {
            Stmt::If(not(condition), no, yes)
        } else {
            Stmt::If(condition, yes, no)
        })?;
        Ok(behind)
    }

    /// Assigns a number to a field.
    pub(crate) fn assign(&mut self, to: Field, number: &Number) -> Result<()> {
        let value = number.of(to.ty)?;
        match value == to.value {
            true => Ok(()),
            false => self.emit(Stmt::Set(to.place, value)),
        }
    }

    /// Assigns an operand to a field, or to the validity of a header, which older compilers write as a field.
    pub(crate) fn assign_operand(&mut self, to: &Value, value: &Value) -> Result<()> {
        if let Ok(("field", place)) = typed(to)
            && let Ok((header, "$valid$")) = pair(place)
        {
            let Storage::Header(id) = self.header(header)?.storage else { return Ok(()) };
            let header = HeaderRef::Header(id);
            let (valid, invalid) = (Stmt::SetValid(header.clone()), Stmt::SetInvalid(header));
            let number = self.number(value)?;
            return match number.known() {
                Some(0) => self.emit(invalid),
                Some(_) => self.emit(valid),
                None => {
                    let condition = number.is_set()?;
                    self.emit(Stmt::If(condition, vec![valid], vec![invalid]))
                }
            };
        }
        let to = self.place(to)?;
        let number = self.number(value)?;
        self.assign(to, &number)
    }

    /// Lowers one primitive.
    pub(crate) fn primitive(&mut self, op: &str, parameters: &[Value]) -> Result<()> {
        match (op, parameters) {
            ("assign" | "modify_field", [to, value]) => self.assign_operand(to, value),
            ("add_to_field" | "subtract_from_field", [to, value]) => {
                let to = self.place(to)?;
                let before = Number::value(to.value.clone(), to.ty);
                let number = Number::binary(arithmetic(op), before, self.number(value)?)?;
                self.assign(to, &number)
            }
            (
                "add" | "subtract" | "bit_xor" | "bit_or" | "bit_and" | "shift_left" | "shift_right",
                [to, left, right],
            ) => {
                let to = self.place(to)?;
                let number = Number::binary(arithmetic(op), self.number(left)?, self.number(right)?)?;
                self.assign(to, &number)
            }
            ("no_op" | "log_msg", _) => Ok(()),
            ("assign_header" | "copy_header", [to, from]) => self.assign_header(to, from),
            ("assign_header_stack", [to, from]) => {
                let (to, from) = (self.elements(to)?, self.elements(from)?);
                self.copy_all(to, from)
            }
            ("assign_union", [to, from]) => {
                let kinds = &["header_union"];
                let (to, from) = (name(to, kinds)?, name(from, kinds)?);
                let (to, from) = (self.union_members(to)?, self.union_members(from)?);
                self.copy_all(to, from)
            }
            ("add_header" | "remove_header", [header]) => match self.header_operand(header)? {
                HeaderOperand::Header(header, _) if op == "add_header" => self.emit(Stmt::SetValid(header)),
                HeaderOperand::Header(header, _) => self.emit(Stmt::SetInvalid(header)),
                HeaderOperand::Metadata(_) => Ok(()),
            },
            ("push" | "pop", [stack, count]) => {
                let stack = self.stack(name(stack, &["header_stack"])?)?;
                let count = u32::try_from(small(count)?).unwrap_or(u32::MAX);
                self.emit(if op == "push" { Stmt::Push(stack, count) } else { Stmt::Pop(stack, count) })
            }
            ("mark_to_drop" | "drop", _) => self.mark_to_drop(),
            ("count", [counter, index]) => {
                let counter = name(counter, &["counter_array"])?;
                let id = self.counters.get(counter).copied();
                let id = id.ok_or_else(|| Refusal::unknown("counter array", counter))?;
                let index = self.number(index)?.whole()?;
                self.emit(Stmt::Count(id, index))
            }
            ("execute_meter", [meter, index, to]) => {
                let meter = name(meter, &["meter_array"])?;
                let id =
                    self.meters.get(meter).copied().ok_or_else(|| Refusal::unknown("meter array", meter))?;
                let index = self.number(index)?.whole()?;
                let place = self.unsigned_place(to)?.place;
                self.emit(Stmt::Meter(place, id, index, None))
            }
            ("register_read", [to, register, index]) => {
                let (id, ty) = self.register(register)?;
                let index = self.number(index)?.whole()?;
                let to = self.place(to)?;
                if to.ty == ty {
                    return self.emit(Stmt::RegisterRead(to.place, id, index));
                }
                let var = self.variable("register value", ty)?;
                self.emit(Stmt::RegisterRead(LValue::Var(var), id, index))?;
                self.assign(to, &Number::value(Expr::Var(var), ty))
            }
            ("register_write", [register, index, value]) => {
                let (id, ty) = self.register(register)?;
                let index = self.number(index)?.whole()?;
                let value = self.number(value)?.of(ty)?;
                self.emit(Stmt::RegisterWrite(id, index, value))
            }
            ("modify_field_with_hash_based_offset", [to, base, calculation, size]) => {
                self.hash(to, base, calculation, size)
            }
            ("modify_field_rng_uniform", [to, low, high]) => {
                let to = self.unsigned_place(to)?;
                let (low, high) = (self.number(low)?.of(to.ty)?, self.number(high)?.of(to.ty)?);
                self.emit(Stmt::Random(to.place, low, high))
            }
            ("clone_ingress_pkt_to_egress", [session, list, ..]) => {
                self.ask(Kind::CloneIngress, Some(session), list)
            }
            ("clone_egress_pkt_to_egress", [session, list, ..]) => {
                self.ask(Kind::CloneEgress, Some(session), list)
            }
            ("resubmit", [list]) => self.ask(Kind::Resubmit, None, list),
            ("recirculate", [list]) => self.ask(Kind::Recirculate, None, list),
            ("generate_digest", [_, list]) => {
                let (digest, values) = self.digest(small(list)?)?;
                self.take(values.len())?;
                self.emit(Stmt::Digest(digest, values))
            }
            ("truncate", [length]) => {
                let length = self.number(length)?.of(Type::Bit(32))?;
                self.emit(Stmt::Truncate(length))
            }
            ("exit", []) => self.emit(Stmt::Exit),
            ("assert" | "assume", [condition]) => {
                let condition = self.condition(condition)?;
                let reason = self.reason("a condition of the program does not hold");
                self.emit(Stmt::If(not(condition), vec![Stmt::Drop(reason)], vec![]))
            }
            ("modify_field", [_, _, _]) => Err(Refusal::unsupported("a mask is")),
            _ => Err(Refusal::unsupported(format!("this primitive with {} parameters is", parameters.len()))),
        }
    }

    /// A place for an unsigned number.
    fn unsigned_place(&mut self, operand: &Value) -> Result<Field> {
        let to = self.place(operand)?;
        match to.ty {
            Type::Bit(_) => Ok(to),
            _ => Err(Refusal::unsupported("a signed field here is")),
        }
    }

    fn register(&self, operand: &Value) -> Result<(pipeline::ir::RegisterId, Type)> {
        let register = name(operand, &["register_array"])?;
        let id = self.registers.get(register).copied();
        let id = id.ok_or_else(|| Refusal::unknown("register array", register))?;
        Ok((id, self.out.registers.get(id.index()).map_or(Type::Bit(1), |register| register.ty)))
    }

    fn assign_header(&mut self, to: &Value, from: &Value) -> Result<()> {
        match (self.header_operand(to)?, self.header_operand(from)?) {
            (HeaderOperand::Header(to, a), HeaderOperand::Header(from, b)) if a == b => {
                self.emit(Stmt::CopyHeader(to, from))
            }
            (HeaderOperand::Metadata(to), HeaderOperand::Metadata(from)) => {
                let (to, from): (Instance<'d>, Instance<'d>) =
                    (self.header(to)?.clone(), self.header(from)?.clone());
                let Storage::Metadata(vars) = &to.storage else { return Ok(()) };
                for number in 0..u16::try_from(vars.len()).unwrap_or(u16::MAX) {
                    let (to, from) = (self.field_at(&to, number)?, self.field_at(&from, number)?);
                    self.assign(to, &Number::value(from.value, from.ty))?;
                }
                Ok(())
            }
            _ => Err(Refusal::of("headers of different types are assigned")),
        }
    }

    /// The elements of a stack.
    fn elements(&self, operand: &Value) -> Result<Vec<pipeline::ir::HeaderId>> {
        let stack = self.stack(name(operand, &["header_stack"])?)?;
        let stack =
            self.out.stacks.get(stack.index()).ok_or_else(|| Refusal::unknown("header stack", stack.0))?;
        let first = stack.first.index();
        Ok((first..first + stack.size as usize).map(pipeline::ir::HeaderId::at).collect())
    }

    fn copy_all(&mut self, to: Vec<pipeline::ir::HeaderId>, from: Vec<pipeline::ir::HeaderId>) -> Result<()> {
        if to.len() != from.len() {
            return Err(Refusal::of("stacks or unions of different types are assigned"));
        }
        for (to, from) in to.into_iter().zip(from).filter(|(to, from)| to != from) {
            // A member of a union that is copied invalidates the others: only the valid one is.
            let copy = Stmt::CopyHeader(HeaderRef::Header(to), HeaderRef::Header(from));
            let copy = match self.union_of(to) {
                None => copy,
                Some(_) => Stmt::If(
                    Expr::Valid(HeaderRef::Header(from)),
                    vec![copy],
                    vec![Stmt::SetInvalid(HeaderRef::Header(to))],
                ),
            };
            self.emit(copy)?;
        }
        Ok(())
    }

    /// `to = base + hash mod size`, or `base` if `size` is 0.
    fn hash(&mut self, to: &Value, base: &Value, calculation: &Value, size: &Value) -> Result<()> {
        let (kind, items) = self.calculation(name(calculation, &["calculation"])?)?;
        let wide = Type::Bit(64);
        let (base, size) = (self.number(base)?, self.number(size)?);
        let (base_value, size_value) = (base.of(wide)?, size.of(wide)?);
        let to = self.place(to)?;
        let hashed = self.variable("hash", wide)?;
        self.hash_items(LValue::Var(hashed), kind, items)?;
        let rest = Expr::Var(hashed).op(pipeline::ir::BinOp::Rem, size_value.clone());
        let rest = match size.known().is_some_and(|size| size > 0) {
            true => rest,
            false => {
                let zero = Expr::bit(64, 0);
                Expr::Mux(Box::new((size_value.equals(zero.clone()), zero, rest)))
            }
        };
        let sum = base_value.op(pipeline::ir::BinOp::Add, rest);
        self.assign(to, &Number::value(sum, wide))
    }

    /// Computes a hash of a list.
    pub(crate) fn hash_items(
        &mut self,
        to: LValue,
        kind: pipeline::ir::HashKind,
        items: Vec<Item>,
    ) -> Result<()> {
        self.take(items.len())?;
        self.emit(Stmt::Hash(to, kind, items))
    }

    fn ask(&mut self, kind: Kind, session: Option<&Value>, list: &Value) -> Result<()> {
        if self.scope == Scope::Parser {
            return Err(Refusal::unsupported("this primitive in a parser is"));
        }
        let session = match session {
            Some(session) => Some(self.number(session)?.of(Type::Bit(32))?),
            None => None,
        };
        let carry = self.carried(small(list)?)?;
        self.request(kind, session, carry)
    }
}

fn arithmetic(op: &str) -> pipeline::ir::BinOp {
    use pipeline::ir::BinOp;
    match op {
        "subtract" | "subtract_from_field" => BinOp::Sub,
        "bit_xor" => BinOp::Xor,
        "bit_or" => BinOp::Or,
        "bit_and" => BinOp::And,
        "shift_left" => BinOp::Shl,
        "shift_right" => BinOp::Shr,
        _ => BinOp::Add,
    }
}

//! Expressions and places.
//!
//! A value carries its type, so that operators see whether they work on signed numbers.

use super::Machine;
use super::pass::Pass;
use crate::bits::Bits;
use crate::hash::BitString;
use crate::ir::{BinOp, Constant, ErrorId, Expr, FieldType, HeaderId, HeaderRef, Item, LValue, Type, UnOp};

impl Machine<'_> {
    /// The value of an expression. `params` are the arguments of the action that contains it.
    pub(super) fn eval(&self, expr: &Expr, pass: &mut Pass, params: &[Constant]) -> Constant {
        match expr {
            Expr::Const(constant) => constant.clone(),
            Expr::Var(var) => {
                let ty = self.program.vars.get(var.index()).map_or(Type::Bool, |var| var.ty);
                Constant::of(ty, pass.data.vars.get(var.index()).unwrap_or(&Bits::zero(1)))
            }
            Expr::Param(i) => params.get(usize::from(*i)).cloned().unwrap_or(Constant::bool(false)),
            Expr::Field(header, field) => {
                let ty = self.field_type(header, *field);
                let header = self.resolve(header, pass, params);
                let value = header.and_then(|header| field_of(pass, header, *field));
                Constant::of(ty, value.unwrap_or(&Bits::zero(1)))
            }
            Expr::Valid(header) => {
                let header = self.resolve(header, pass, params);
                let valid =
                    header.and_then(|header| pass.data.headers.get(header.index())).is_some_and(|h| h.valid);
                Constant::bool(valid)
            }
            Expr::LastIndex(stack) => {
                let next = pass.data.next.get(stack.index()).copied().unwrap_or(0);
                Constant::bit(32, next.wrapping_sub(1).into())
            }
            Expr::FieldLength(header, field) => {
                let header = self.resolve(header, pass, params);
                let width = header.and_then(|header| field_of(pass, header, *field)).map_or(0, Bits::width);
                Constant::bit(32, width.into())
            }
            Expr::Lookahead(ty, offset) => {
                let at = pass.at.saturating_add(*offset as usize);
                let found = crate::bits::read(&pass.window, at, ty.width());
                if found.is_none() {
                    pass.fault.get_or_insert(ErrorId::PACKET_TOO_SHORT);
                }
                Constant::of(*ty, &found.unwrap_or(Bits::zero(1)))
            }
            Expr::Remaining => {
                let parsed = u32::try_from(pass.at / 8).unwrap_or(u32::MAX);
                Constant::bit(32, pass.data.payload.len().saturating_sub(parsed).into())
            }
            Expr::Unary(op, operand) => {
                let Constant { ty, value } = self.eval(operand, pass, params);
                match op {
                    UnOp::Not => Constant::bool(value.is_zero()),
                    UnOp::Complement => Constant { ty, value: value.not() },
                    UnOp::Negate => Constant { ty, value: value.neg() },
                }
            }
            Expr::Binary(op, operands) => {
                let left = self.eval(&operands.0, pass, params);
                let right = self.eval(&operands.1, pass, params);
                binary(*op, left, right)
            }
            Expr::Slice(operand, hi, lo) => {
                let value = self.eval(operand, pass, params).value.slice(*hi, *lo);
                Constant { ty: Type::Bit(value.width()), value }
            }
            Expr::Mux(parts) => match self.eval(&parts.0, pass, params).value.is_zero() {
                false => self.eval(&parts.1, pass, params),
                true => self.eval(&parts.2, pass, params),
            },
            Expr::Cast(to, operand) => {
                let Constant { ty, value } = self.eval(operand, pass, params);
                let value = match (ty, to) {
                    (Type::Int(_), Type::Int(width)) => value.sign_extend(*width),
                    _ => value.resize(to.width()),
                };
                Constant { ty: *to, value }
            }
        }
    }

    /// The value as a truth value.
    pub(super) fn holds(&self, expr: &Expr, pass: &mut Pass, params: &[Constant]) -> bool {
        !self.eval(expr, pass, params).value.is_zero()
    }

    /// The value as a number; `u64::MAX` for larger ones.
    pub(super) fn number(&self, expr: &Expr, pass: &mut Pass, params: &[Constant]) -> u64 {
        self.eval(expr, pass, params).value.saturating_u64()
    }

    /// The value of a list.
    pub(super) fn list(&self, items: &[Item], pass: &mut Pass, params: &[Constant]) -> BitString {
        let mut string = BitString::default();
        for item in items {
            match item {
                Item::Payload => string.extend(&pass.data.payload.bytes(self.received)),
                // A field at its current width, which of a variable one is its length.
                Item::Value(Expr::Field(header, field)) => {
                    let header = self.resolve(header, pass, params);
                    if let Some(value) = header.and_then(|header| field_of(pass, header, *field)) {
                        string.push(value);
                    }
                }
                Item::Value(expr) => string.push(&self.eval(expr, pass, params).value),
            }
        }
        string
    }

    /// The header that a reference means; `None` for an element beyond its stack, which in a parser is an error.
    pub(super) fn resolve(
        &self,
        header: &HeaderRef,
        pass: &mut Pass,
        params: &[Constant],
    ) -> Option<HeaderId> {
        let (stack, index) = match header {
            HeaderRef::Header(id) => return Some(*id),
            HeaderRef::Element(stack, index) => (stack, self.number(index, pass, params)),
            HeaderRef::Next(stack) => (stack, u64::from(*pass.data.next.get(stack.index())?)),
            HeaderRef::Last(stack) => {
                let next = u64::from(*pass.data.next.get(stack.index())?);
                (stack, next.checked_sub(1).unwrap_or(u64::MAX))
            }
        };
        let stack = self.program.stacks.get(stack.index())?;
        if index < u64::from(stack.size) {
            return Some(HeaderId(stack.first.0.saturating_add(index as u32)));
        }
        if !matches!(header, HeaderRef::Element(..)) {
            pass.fault.get_or_insert(ErrorId::STACK_OUT_OF_BOUNDS);
        }
        None
    }

    /// The type of a field; `Bool` for a variable one, which has no value.
    fn field_type(&self, header: &HeaderRef, field: u16) -> Type {
        let ty = match header {
            HeaderRef::Header(id) => self.program.header_type(*id),
            HeaderRef::Element(stack, _) | HeaderRef::Next(stack) | HeaderRef::Last(stack) => {
                self.program.stack_type(*stack)
            }
        };
        match ty.and_then(|ty| ty.fields.get(usize::from(field))).map(|field| field.ty) {
            Some(FieldType::Scalar(ty)) => ty,
            _ => Type::Bool,
        }
    }

    /// The value of a place.
    pub(super) fn read_place(&self, place: &LValue, pass: &mut Pass, params: &[Constant]) -> Bits {
        match place {
            LValue::Var(var) => pass.data.vars.get(var.index()).cloned().unwrap_or(Bits::zero(1)),
            LValue::Field(header, field) => {
                let width = self.field_type(header, *field).width();
                let header = self.resolve(header, pass, params);
                let value = header.and_then(|header| field_of(pass, header, *field));
                value.cloned().unwrap_or(Bits::zero(width))
            }
            LValue::Slice(of, hi, lo) => self.read_place(of, pass, params).slice(*hi, *lo),
        }
    }

    /// The type of a place.
    pub(super) fn place_type(&self, place: &LValue) -> Type {
        match place {
            LValue::Var(var) => self.program.vars.get(var.index()).map_or(Type::Bool, |var| var.ty),
            LValue::Field(header, field) => self.field_type(header, *field),
            LValue::Slice(_, hi, lo) => Type::Bit((hi.saturating_add(1)).saturating_sub(*lo)),
        }
    }

    /// Assigns a value to a place of its width; ignored beyond a stack.
    pub(super) fn assign(&mut self, place: &LValue, value: &Bits, pass: &mut Pass, params: &[Constant]) {
        match place {
            LValue::Var(var) => {
                let Some(slot) = pass.data.vars.get_mut(var.index()) else { return };
                *slot = value.resize(slot.width());
                self.event(|| super::Event::Set(super::Place::Var(*var), value.clone()));
            }
            LValue::Field(header, field) => {
                let Some(id) = self.resolve(header, pass, params) else { return };
                let header = pass.data.headers.get_mut(id.index());
                let Some(slot) = header.and_then(|header| header.fields.get_mut(usize::from(*field))) else {
                    return;
                };
                *slot = value.resize(slot.width());
                self.event(|| super::Event::Set(super::Place::Field(id, *field), value.clone()));
            }
            LValue::Slice(of, hi, lo) => {
                let whole = self.read_place(of, pass, params).with_slice(*hi, *lo, value);
                self.assign(of, &whole, pass, params);
            }
        }
    }
}

fn field_of(pass: &Pass, header: HeaderId, field: u16) -> Option<&Bits> {
    pass.data.headers.get(header.index())?.fields.get(usize::from(field))
}

/// Applies an operator to two constants.
pub fn binary(op: BinOp, left: Constant, right: Constant) -> Constant {
    use BinOp::*;
    let (ty, signed) = (left.ty, matches!(left.ty, Type::Int(_)));
    let (a, b) = (&left.value, &right.value);
    let order = if signed { a.cmp_signed(b) } else { a.cmp(b) };
    let value = match op {
        Add => a.add(b),
        Sub => a.sub(b),
        Mul => a.mul(b),
        Div => a.div_rem(b).0,
        Rem => a.div_rem(b).1,
        SatAdd if signed => a.saturating_add_signed(b),
        SatAdd => a.saturating_add(b),
        SatSub if signed => a.saturating_sub_signed(b),
        SatSub => a.saturating_sub(b),
        OnesAdd => {
            let (sum, carry) = a.carrying_add(b);
            sum.add(&Bits::from_u64(sum.width(), carry.into()))
        }
        And => a.and(b),
        Or => a.or(b),
        Xor => a.xor(b),
        Shl => a.shl(b.saturating_u64()),
        Shr if signed => a.sar(b.saturating_u64()),
        Shr => a.shr(b.saturating_u64()),
        Concat => {
            let value = a.concat(b);
            let ty = if signed { Type::Int(value.width()) } else { Type::Bit(value.width()) };
            return Constant { ty, value };
        }
        Eq => return Constant::bool(a == b),
        Ne => return Constant::bool(a != b),
        Lt => return Constant::bool(order.is_lt()),
        Le => return Constant::bool(order.is_le()),
        Gt => return Constant::bool(order.is_gt()),
        Ge => return Constant::bool(order.is_ge()),
        LogicAnd => return Constant::bool(!a.is_zero() && !b.is_zero()),
        LogicOr => return Constant::bool(!a.is_zero() || !b.is_zero()),
    };
    Constant { ty, value }
}

//! Expressions: numbers, conditions, headers and places.
//!
//! Expressions have no effects. What has one, the read of a register, and what would stand in several places, an
//! index, is kept in a variable by statements in front.

use pipeline::ir::{BinOp, Expr, HeaderRef, Stmt, Type, UnOp};
use serde_json::Value;

use crate::number::Number;
use crate::operand::{self, name, pair, typed, unwrapped};
use crate::refusal::{Refusal, Result};
use crate::storage::{Field, Storage};
use crate::{Lower, Scope};

/// A header that an operand means.
#[derive(Debug, Clone)]
pub(crate) enum HeaderOperand<'d> {
    /// A header, with its type.
    Header(HeaderRef, &'d str),
    /// Metadata, with its name.
    Metadata(&'d str),
}

/// Whether an expression is a number, a condition or a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Number,
    Condition,
    Header,
}

fn class(operand: &Value) -> Class {
    let operand = unwrapped(operand);
    let op = operand.get("op").and_then(Value::as_str);
    let kind = operand.get("type").and_then(Value::as_str);
    match (op, kind) {
        (
            Some(
                "==" | "!=" | "<" | "<=" | ">" | ">=" | "and" | "or" | "not" | "valid" | "valid_union"
                | "d2b",
            ),
            _,
        )
        | (None, Some("bool")) => Class::Condition,
        (Some("dereference_header_stack" | "access_union_header"), _)
        | (None, Some("header" | "header_stack" | "header_union")) => Class::Header,
        (Some("?"), _) => operand.get("left").map_or(Class::Number, class),
        _ => Class::Number,
    }
}

fn part<'v>(operation: &'v Value, side: &str) -> Result<&'v Value> {
    let found = operation.get(side).filter(|value| !value.is_null());
    found.ok_or_else(|| Refusal::of(format!("an operation has no operand `{side}`")))
}

impl<'d> Lower<'d> {
    /// A number.
    pub(crate) fn number(&mut self, operand: &Value) -> Result<Number> {
        self.take(1)?;
        let operand = unwrapped(operand);
        if let Some(op) = operand.get("op").and_then(Value::as_str) {
            return self.operation(op, operand);
        }
        let (kind, value) = typed(operand)?;
        match kind {
            "hexstr" => Number::constant(value.as_str().unwrap_or_default()),
            "bool" => Ok(Number::value(self.condition(operand)?, Type::Bool)),
            "field" => self.field_number_of(value),
            "stack_field" => {
                let (stack, field) = pair(value)?;
                let field = self.last_field(stack, field)?;
                Ok(Number::value(field.value, field.ty))
            }
            "runtime_data" | "local" => {
                let index = value.as_u64().and_then(|index| u16::try_from(index).ok());
                let index = index.ok_or_else(|| Refusal::of("a parameter has no index"))?;
                let ty = self.params.get(usize::from(index)).copied();
                let ty = ty.ok_or_else(|| Refusal::unknown("parameter", index))?;
                Ok(Number::value(Expr::Param(index), ty))
            }
            "lookahead" => {
                let number = |at: usize| value.get(at).and_then(Value::as_u64);
                let (Some(offset), Some(width)) = (number(0), number(1)) else {
                    return Err(Refusal::of("a lookahead has no offset and width"));
                };
                let (Ok(offset), Scope::Parser) = (u32::try_from(offset), self.scope) else {
                    return Err(Refusal::unsupported("this lookahead is"));
                };
                let width = operand::width(width, "a lookahead")?;
                Ok(Number::value(Expr::Lookahead(Type::Bit(width), offset), Type::Bit(width)))
            }
            "register" => self.register_number(value),
            other => Err(Refusal::of(format!("an operand of type {other} is no number"))),
        }
    }

    fn register_number(&mut self, value: &Value) -> Result<Number> {
        let (Some(register), Some(index)) = (value.get(0).and_then(Value::as_str), value.get(1)) else {
            return Err(Refusal::of("a register has no name and index"));
        };
        let id = self.registers.get(register).copied();
        let id = id.ok_or_else(|| Refusal::unknown("register array", register))?;
        let ty = self.out.registers.get(id.index()).map_or(Type::Bit(1), |register| register.ty);
        let index = self.number(index)?.whole()?;
        let var = self.variable("register value", ty)?;
        self.emit(Stmt::RegisterRead(pipeline::ir::LValue::Var(var), id, index))?;
        Ok(Number::value(Expr::Var(var), ty))
    }

    /// The value of a field, or a header's validity. The header may be known only at run time.
    fn field_number_of(&mut self, value: &Value) -> Result<Number> {
        let field = match value.as_array().map(Vec::as_slice) {
            Some([Value::String(header), Value::String(field)]) if field == "$valid$" => {
                return match &self.header(header)?.storage {
                    Storage::Header(id) => Ok(Number::value(Expr::Valid(HeaderRef::Header(*id)), Type::Bool)),
                    Storage::Metadata(_) => Number::constant("0x1"),
                };
            }
            Some([Value::String(header), Value::String(field)]) => self.field(header, field)?,
            Some([header @ Value::Object(_), Value::String(field)]) => {
                match (self.header_operand(header)?, field) {
                    (HeaderOperand::Header(header, _), field) if field == "$valid$" => {
                        return Ok(Number::value(Expr::Valid(header), Type::Bool));
                    }
                    (HeaderOperand::Header(header, ty), field) => {
                        let number = self.field_number(ty, field)?;
                        self.field_of(header, ty, number)?
                    }
                    (HeaderOperand::Metadata(header), field) => self.field(header, field)?,
                }
            }
            _ => return Err(Refusal::of("a field is not written as a header and a name")),
        };
        Ok(Number::value(field.value, field.ty))
    }

    /// A field of the last extracted element of a stack.
    fn last_field(&self, stack: &str, field: &str) -> Result<Field> {
        let (id, ty) = (self.stack(stack)?, self.stack_type(stack)?);
        let number = self.field_number(ty, field)?;
        let element = match self.scope {
            Scope::Parser => HeaderRef::Last(id),
            Scope::Control => HeaderRef::Element(id, Box::new(Expr::LastIndex(id))),
        };
        self.field_of(element, ty, number)
    }

    fn operation(&mut self, op: &str, operation: &Value) -> Result<Number> {
        let arithmetic = match op {
            "+" => Some(BinOp::Add),
            "-" => Some(BinOp::Sub),
            "*" => Some(BinOp::Mul),
            "/" => Some(BinOp::Div),
            "%" => Some(BinOp::Rem),
            "<<" => Some(BinOp::Shl),
            ">>" => Some(BinOp::Shr),
            "&" => Some(BinOp::And),
            "|" => Some(BinOp::Or),
            "^" => Some(BinOp::Xor),
            _ => None,
        };
        if let Some(op) = arithmetic {
            let left = match operation.get("left").filter(|left| !left.is_null()) {
                Some(left) => self.number(left)?,
                None => Number::constant("0x0")?,
            };
            let right = self.number(part(operation, "right")?)?;
            return Number::binary(op, left, right);
        }
        match op {
            "~" => Ok(self.number(part(operation, "right")?)?.complement()),
            "b2d" => {
                let condition = self.condition(part(operation, "right")?)?;
                Ok(Number::value(condition, Type::Bool))
            }
            "two_comp_mod" | "usat_cast" | "sat_cast" => {
                let number = self.number(part(operation, "left")?)?;
                let width = self.number(part(operation, "right")?)?.known();
                let width = width.and_then(|width| u16::try_from(width).ok()).filter(|width| *width > 0);
                let width = width.ok_or_else(|| Refusal::unsupported(format!("the width of `{op}` is")))?;
                match op {
                    "two_comp_mod" => Ok(number.wrapped(width)),
                    "usat_cast" => number.saturated(Type::Bit(width)),
                    _ => number.saturated(Type::Int(width)),
                }
            }
            "?" => {
                let condition = self.condition(part(operation, "cond")?)?;
                let (yes, no) = (part(operation, "left")?, part(operation, "right")?);
                Ok(Number::choice(condition, self.number(yes)?, self.number(no)?))
            }
            "last_stack_index" => {
                let stack = name(part(operation, "right")?, &["header_stack"])?;
                Ok(Number::value(Expr::LastIndex(self.stack(stack)?), Type::Bit(32)))
            }
            "access_field" => {
                let number = part(operation, "right")?.as_u64().and_then(|number| u16::try_from(number).ok());
                let number = number.ok_or_else(|| Refusal::of("`access_field` has no number of a field"))?;
                let field = match self.header_operand(part(operation, "left")?)? {
                    HeaderOperand::Header(header, ty) => self.field_of(header, ty, number)?,
                    HeaderOperand::Metadata(name) => {
                        let instance = self.header(name)?.clone();
                        self.field_at(&instance, number)?
                    }
                };
                Ok(Number::value(field.value, field.ty))
            }
            "==" | "!=" | "<" | "<=" | ">" | ">=" | "and" | "or" | "not" | "valid" | "valid_union"
            | "d2b" => Ok(Number::value(self.condition(operation)?, Type::Bool)),
            _ => Err(Refusal::unsupported(format!("operation `{op}` is"))),
        }
    }

    /// A condition.
    pub(crate) fn condition(&mut self, operand: &Value) -> Result<Expr> {
        self.take(1)?;
        let operand = unwrapped(operand);
        let Some(op) = operand.get("op").and_then(Value::as_str) else {
            return match typed(operand)? {
                ("bool", Value::Bool(value)) => Ok(Expr::Const(pipeline::ir::Constant::bool(*value))),
                ("bool", _) => Err(Refusal::of("a truth value is neither true nor false")),
                _ => self.number(operand)?.is_set(),
            };
        };
        let relation = match op {
            "==" => BinOp::Eq,
            "!=" => BinOp::Ne,
            "<" => BinOp::Lt,
            "<=" => BinOp::Le,
            ">" => BinOp::Gt,
            ">=" => BinOp::Ge,
            "and" => BinOp::LogicAnd,
            "or" => BinOp::LogicOr,
            "not" => {
                let inner = self.condition(part(operand, "right")?)?;
                return Ok(not(inner));
            }
            "valid" => {
                return match self.header_operand(part(operand, "right")?)? {
                    HeaderOperand::Header(header, _) => Ok(Expr::Valid(header)),
                    HeaderOperand::Metadata(_) => Ok(Expr::Const(pipeline::ir::Constant::bool(true))),
                };
            }
            "valid_union" => {
                let union = name(part(operand, "right")?, &["header_union"])?;
                let members = self.union_members(union)?;
                let valid = members.into_iter().map(|id| Expr::Valid(HeaderRef::Header(id))).collect();
                return joined(BinOp::LogicOr, valid)
                    .ok_or_else(|| Refusal::of(format!("header union {union} has no members")));
            }
            "d2b" => return self.number(part(operand, "right")?)?.is_set(),
            "?" => {
                let condition = self.condition(part(operand, "cond")?)?;
                let (yes, no) = (part(operand, "left")?, part(operand, "right")?);
                return Ok(Expr::Mux(Box::new((condition, self.condition(yes)?, self.condition(no)?))));
            }
            _ => return self.operation(op, operand)?.is_set(),
        };
        let (left, right) = (part(operand, "left")?, part(operand, "right")?);
        if matches!(relation, BinOp::LogicAnd | BinOp::LogicOr) {
            return Ok(self.condition(left)?.op(relation, self.condition(right)?));
        }
        match (class(left), class(right)) {
            (Class::Header, Class::Header) => {
                let equal = self.equal_headers(left, right)?;
                match relation {
                    BinOp::Eq => Ok(equal),
                    BinOp::Ne => Ok(not(equal)),
                    _ => Err(Refusal::of("headers have no order")),
                }
            }
            (Class::Condition, Class::Condition) => {
                Ok(self.condition(left)?.op(relation, self.condition(right)?))
            }
            _ => {
                let (left, right) = (self.number(left)?, self.number(right)?);
                Number::compare(relation, &left, &right)
            }
        }
    }

    /// Whether two headers are both invalid, or both valid with equal fields.
    fn equal_headers(&mut self, left: &Value, right: &Value) -> Result<Expr> {
        let (left, right) = (self.header_operand(left)?, self.header_operand(right)?);
        let (HeaderOperand::Header(a, ty), HeaderOperand::Header(b, other)) = (left, right) else {
            return Err(Refusal::unsupported("a comparison of metadata is"));
        };
        if ty != other {
            return Err(Refusal::of(format!("a header of type {ty} is compared with one of {other}")));
        }
        let (left, right) = (Expr::Valid(a.clone()), Expr::Valid(b.clone()));
        let mut all = vec![left.clone()];
        self.take(self.field_count(ty))?;
        for number in 0..u16::try_from(self.field_count(ty)).unwrap_or(u16::MAX) {
            let (a, b) = (self.field_of(a.clone(), ty, number)?, self.field_of(b.clone(), ty, number)?);
            all.push(a.value.equals(b.value));
        }
        let same = joined(BinOp::LogicAnd, all).unwrap_or_else(|| left.clone());
        Ok(left.equals(right).op(BinOp::LogicAnd, not(Expr::Valid(a)).op(BinOp::LogicOr, same)))
    }

    /// A header.
    pub(crate) fn header_operand(&mut self, operand: &Value) -> Result<HeaderOperand<'d>> {
        let operand = unwrapped(operand);
        match operand.get("op").and_then(Value::as_str) {
            Some("dereference_header_stack") => {
                let stack = name(part(operand, "left")?, &["header_stack"])?;
                let (id, ty) = (self.stack(stack)?, self.stack_type(stack)?);
                let index = self.number(part(operand, "right")?)?.whole()?;
                let index = self.kept(index)?;
                Ok(HeaderOperand::Header(HeaderRef::Element(id, Box::new(index)), ty))
            }
            Some(op) => Err(Refusal::unsupported(format!("operation `{op}` on headers is"))),
            None => {
                let wanted = name(operand, &["header"])?;
                let instance = self.headers.get_key_value(wanted);
                let (known, instance) = instance.ok_or_else(|| Refusal::unknown("header", wanted))?;
                Ok(match &instance.storage {
                    Storage::Header(id) => HeaderOperand::Header(HeaderRef::Header(*id), instance.ty),
                    Storage::Metadata(_) => HeaderOperand::Metadata(known),
                })
            }
        }
    }

    /// An expression that may stand in several places: a variable or a constant.
    fn kept(&mut self, value: Expr) -> Result<Expr> {
        if matches!(value, Expr::Var(_) | Expr::Const(_) | Expr::Param(_)) {
            return Ok(value);
        }
        let ty = self.type_of(&value)?;
        let var = self.variable("index", ty)?;
        self.emit(Stmt::Set(pipeline::ir::LValue::Var(var), value))?;
        Ok(Expr::Var(var))
    }

    /// The type of an index.
    fn type_of(&self, value: &Expr) -> Result<Type> {
        let ty = match value {
            Expr::Cast(ty, _) => Some(*ty),
            Expr::Slice(_, high, low) => Some(Type::Bit(high - low + 1)),
            Expr::Mux(parts) => return self.type_of(&parts.1),
            Expr::Binary(BinOp::Concat, _) => None,
            Expr::Binary(_, parts) => return self.type_of(&parts.0),
            Expr::Unary(_, inner) => return self.type_of(inner),
            Expr::Param(index) => self.params.get(usize::from(*index)).copied(),
            Expr::Lookahead(ty, _) => Some(*ty),
            other => pipeline::validate::expr_type(&self.out, other),
        };
        ty.ok_or_else(|| Refusal::unsupported("this index is"))
    }

    /// A place for a number.
    pub(crate) fn place(&mut self, operand: &Value) -> Result<Field> {
        let operand = unwrapped(operand);
        if operand.get("op").and_then(Value::as_str) == Some("access_field") {
            let number = part(operand, "right")?.as_u64().and_then(|number| u16::try_from(number).ok());
            let number = number.ok_or_else(|| Refusal::of("`access_field` has no number of a field"))?;
            return match self.header_operand(part(operand, "left")?)? {
                HeaderOperand::Header(header, ty) => self.field_of(header, ty, number),
                HeaderOperand::Metadata(name) => {
                    let instance = self.header(name)?.clone();
                    self.field_at(&instance, number)
                }
            };
        }
        match typed(operand)? {
            ("field", value) => {
                let (header, field) = pair(value)?;
                self.field(header, field)
            }
            ("stack_field", value) => {
                let (stack, field) = pair(value)?;
                self.last_field(stack, field)
            }
            (other, _) => Err(Refusal::of(format!("nothing can be assigned to an operand of type {other}"))),
        }
    }
}

/// Logical negation.
pub(crate) fn not(condition: Expr) -> Expr {
    match condition {
        Expr::Unary(UnOp::Not, inner) => *inner,
        other => Expr::Unary(UnOp::Not, Box::new(other)),
    }
}

/// Joins conditions as a balanced tree: recursion over expressions follows their depth.
fn joined(op: BinOp, mut list: Vec<Expr>) -> Option<Expr> {
    while list.len() > 1 {
        let mut rest = list.into_iter();
        list = Vec::with_capacity(rest.len().div_ceil(2));
        while let Some(left) = rest.next() {
            list.push(match rest.next() {
                Some(right) => left.op(op, right),
                None => left,
            });
        }
    }
    list.pop()
}

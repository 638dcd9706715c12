//! Types of expressions and places.

use super::{Checker, MAX_DEPTH, MAX_LIST, Scope};
use crate::bits::MAX_WIDTH;
use crate::ir::{
    BinOp, Constant, Expr, FieldType, HeaderId, HeaderRef, HeaderType, Item, LValue, StackId, Type, UnOp,
};

/// The text of a type, for errors.
pub(crate) fn type_name(ty: Type) -> String {
    match ty {
        Type::Bool => "bool".into(),
        Type::Bit(width) => format!("bit<{width}>"),
        Type::Int(width) => format!("int<{width}>"),
    }
}

impl<'p> Checker<'p> {
    pub(super) fn check_type(&mut self, ty: Type) -> Option<Type> {
        if (1..=MAX_WIDTH).contains(&ty.width()) {
            return Some(ty);
        }
        self.error(format!("{} is no type: widths are 1 to {MAX_WIDTH}", type_name(ty)))
    }

    pub(super) fn check_type_of(&mut self, ty: Type) {
        let _ = self.check_type(ty);
    }

    pub(super) fn constant(&mut self, constant: &Constant) -> Option<Type> {
        let ty = self.check_type(constant.ty)?;
        if constant.value.width() == ty.width() {
            return Some(ty);
        }
        let width = constant.value.width();
        self.error(format!("constant of type {} has a value of {width} bits", type_name(ty)))
    }

    /// Checks an expression that must have this type.
    pub(super) fn expect(&mut self, expr: &'p Expr, ty: Type) {
        if let Some(found) = self.ty(expr) {
            self.require(found == ty, || format!("expected {}, found {}", type_name(ty), type_name(found)));
        }
    }

    /// Checks an expression that must be a `Bit` of any width.
    pub(super) fn expect_bit(&mut self, expr: &'p Expr) {
        if let Some(found) = self.ty(expr) {
            self.require(matches!(found, Type::Bit(_)), || {
                format!("expected an unsigned number, found {}", type_name(found))
            });
        }
    }

    /// Returns the type of an expression; `None` if it has none, which is recorded.
    pub(super) fn ty(&mut self, expr: &'p Expr) -> Option<Type> {
        self.typed(expr, 0)
    }

    fn typed(&mut self, expr: &'p Expr, depth: usize) -> Option<Type> {
        if depth > MAX_DEPTH {
            return self.error(format!("an expression is nested deeper than {MAX_DEPTH}"));
        }
        let depth = depth + 1;
        match expr {
            Expr::Const(constant) => self.constant(constant),
            Expr::Var(var) => Some(self.get("variable", &self.program.vars, var.index())?.ty),
            Expr::Param(i) => Some(self.get("parameter", self.params, (*i).into())?.ty),
            Expr::Field(header, field) => match self.field(header, *field, depth)? {
                FieldType::Scalar(ty) => Some(ty),
                FieldType::Varbit(_) => self.error("a variable field has no value in an expression"),
            },
            Expr::Valid(header) => self.header(header, depth).map(|_| Type::Bool),
            Expr::LastIndex(stack) => self.stack(*stack).map(|_| Type::Bit(32)),
            Expr::FieldLength(header, field) => match self.field(header, *field, depth)? {
                FieldType::Varbit(_) => Some(Type::Bit(32)),
                FieldType::Scalar(_) => self.error("only variable fields have a length"),
            },
            Expr::Lookahead(ty, _) => {
                self.only_in_parsers("lookahead");
                self.check_type(*ty)
            }
            Expr::Remaining => Some(Type::Bit(32)),
            Expr::Unary(op, operand) => {
                let ty = self.typed(operand, depth)?;
                match (op, ty) {
                    (UnOp::Not, Type::Bool) => Some(ty),
                    (UnOp::Complement | UnOp::Negate, Type::Bit(_) | Type::Int(_)) => Some(ty),
                    _ => self.error(format!("{op:?} does not apply to {}", type_name(ty))),
                }
            }
            Expr::Binary(op, operands) => {
                let left = self.typed(&operands.0, depth);
                let right = self.typed(&operands.1, depth);
                self.binary(*op, left?, right?)
            }
            Expr::Slice(operand, hi, lo) => {
                let ty = self.typed(operand, depth)?;
                self.slice(ty, *hi, *lo)
            }
            Expr::Mux(parts) => {
                let condition = self.typed(&parts.0, depth);
                let (yes, no) = (self.typed(&parts.1, depth)?, self.typed(&parts.2, depth)?);
                match (condition? == Type::Bool, yes == no) {
                    (true, true) => Some(yes),
                    (false, _) => self.error("the condition of a choice is not a bool"),
                    _ => self.error(format!("a choice between {} and {}", type_name(yes), type_name(no))),
                }
            }
            Expr::Cast(to, operand) => {
                let from = self.typed(operand, depth)?;
                let to = self.check_type(*to)?;
                let converts = match (from, to) {
                    (Type::Bool, Type::Bit(1)) | (Type::Bit(1), Type::Bool) => true,
                    (Type::Bit(_), Type::Bit(_)) | (Type::Int(_), Type::Int(_)) => true,
                    (Type::Bit(a), Type::Int(b)) | (Type::Int(a), Type::Bit(b)) => a == b,
                    _ => false,
                };
                if converts {
                    return Some(to);
                }
                self.error(format!("{} does not convert to {} in one step", type_name(from), type_name(to)))
            }
        }
    }

    fn binary(&mut self, op: BinOp, left: Type, right: Type) -> Option<Type> {
        use BinOp::*;
        let is_bit = |ty| matches!(ty, Type::Bit(_));
        let result = match (op, left) {
            (Shl | Shr, Type::Bit(_) | Type::Int(_)) => is_bit(right).then_some(left),
            (Concat, Type::Bit(a) | Type::Int(a)) if is_bit(right) => {
                let width = a.saturating_add(right.width());
                let ty = if is_bit(left) { Type::Bit(width) } else { Type::Int(width) };
                return self.check_type(ty);
            }
            (Eq | Ne, _) => (left == right).then_some(Type::Bool),
            (LogicAnd | LogicOr, Type::Bool) => (left == right).then_some(Type::Bool),
            (Lt | Le | Gt | Ge, Type::Bit(_) | Type::Int(_)) => (left == right).then_some(Type::Bool),
            (Div | Rem | OnesAdd, Type::Bit(_)) => (left == right).then_some(left),
            (Add | Sub | Mul | SatAdd | SatSub | And | Or | Xor, Type::Bit(_) | Type::Int(_)) => {
                (left == right).then_some(left)
            }
            _ => None,
        };
        match result {
            Some(ty) => Some(ty),
            None => {
                self.error(format!("{op:?} does not apply to {} and {}", type_name(left), type_name(right)))
            }
        }
    }

    fn slice(&mut self, ty: Type, hi: u16, lo: u16) -> Option<Type> {
        if ty != Type::Bool && lo <= hi && hi < ty.width() {
            return Some(Type::Bit(hi - lo + 1));
        }
        self.error(format!("{} has no bits {hi} to {lo}", type_name(ty)))
    }

    /// Returns the type of a place.
    pub(super) fn place_type(&mut self, place: &'p LValue) -> Option<Type> {
        self.placed(place, 0)
    }

    fn placed(&mut self, place: &'p LValue, depth: usize) -> Option<Type> {
        if depth > MAX_DEPTH {
            return self.error(format!("a place is nested deeper than {MAX_DEPTH}"));
        }
        match place {
            LValue::Var(var) => Some(self.get("variable", &self.program.vars, var.index())?.ty),
            LValue::Field(header, field) => match self.field(header, *field, depth + 1)? {
                FieldType::Scalar(ty) => Some(ty),
                FieldType::Varbit(_) => self.error("a variable field cannot be assigned"),
            },
            LValue::Slice(of, hi, lo) => {
                let ty = self.placed(of, depth + 1)?;
                self.slice(ty, *hi, *lo)
            }
        }
    }

    /// Checks a place that must be a `Bit` of any width.
    pub(super) fn place_bit(&mut self, place: &'p LValue) {
        if let Some(found) = self.place_type(place) {
            self.require(matches!(found, Type::Bit(_)), || {
                format!("expected an unsigned place, found {}", type_name(found))
            });
        }
    }

    pub(super) fn header_of(&mut self, header: HeaderId) -> Option<&'p HeaderType> {
        let header = self.get("header", &self.program.headers, header.index())?;
        self.get("header type", &self.program.header_types, header.ty.index())
    }

    pub(super) fn stack(&mut self, stack: StackId) -> Option<&'p HeaderType> {
        let first = self.get("stack", &self.program.stacks, stack.index())?.first;
        self.header_of(first)
    }

    pub(super) fn header_ref(&mut self, header: &'p HeaderRef) -> Option<&'p HeaderType> {
        self.header(header, 0)
    }

    fn header(&mut self, header: &'p HeaderRef, depth: usize) -> Option<&'p HeaderType> {
        match header {
            HeaderRef::Header(header) => self.header_of(*header),
            HeaderRef::Element(stack, index) => {
                if let Some(ty) = self.typed(index, depth) {
                    self.require(matches!(ty, Type::Bit(_)), || {
                        format!("an index must be an unsigned number, not {}", type_name(ty))
                    });
                }
                self.stack(*stack)
            }
            HeaderRef::Next(stack) | HeaderRef::Last(stack) => {
                self.only_in_parsers("the next or last element of a stack");
                self.stack(*stack)
            }
        }
    }

    fn field(&mut self, header: &'p HeaderRef, field: u16, depth: usize) -> Option<FieldType> {
        let ty = self.header(header, depth)?;
        let found = ty.fields.get(usize::from(field)).map(|field| field.ty);
        // Entries are checked by the types of keys: their names are put together only for errors.
        found.or_else(|| {
            self.get(&format!("field of {}:", ty.name), &ty.fields, field.into()).map(|field| field.ty)
        })
    }

    /// Checks a list; returns its length in bits unless it depends on the packet.
    pub(super) fn items(&mut self, items: &'p [Item]) -> Option<usize> {
        let (mut bits, mut known) = (Some(0), 0);
        for item in items {
            let width = match item {
                Item::Payload => None,
                Item::Value(Expr::Field(header, field)) => match self.field(header, *field, 0) {
                    Some(FieldType::Scalar(ty)) => Some(ty.width()),
                    _ => None,
                },
                Item::Value(expr) => self.ty(expr).map(Type::width),
            };
            known += width.map_or(0, usize::from);
            bits = bits.zip(width).map(|(bits, width): (usize, u16)| bits + usize::from(width));
        }
        self.require(known <= MAX_LIST, || {
            format!("a list of {known} bits; at most {MAX_LIST} are supported")
        });
        bits
    }

    fn only_in_parsers(&mut self, what: &str) {
        self.require(self.scope == Scope::Parser, || format!("{what} exists only in parsers"));
    }
}

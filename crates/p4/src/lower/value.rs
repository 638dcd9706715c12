//! Expressions.
//!
//! Statements that an expression needs (calls, tables, choices between headers) are appended before it is used; what is
//! left is an expression of the pipeline, which has no effects.

use num_bigint::{BigInt, Sign};
use pipeline::ir::{self, HeaderRef, LValue};

use super::storage::{Store, read};
use super::types::{base, parts, scalar};
use super::{Binding, Lower};
use crate::hir::{BinOp, Callee, Expr, ExprKind, Type, UnOp, Value, VarId};
use crate::source::Span;

/// A value.
#[derive(Debug, Clone)]
pub(super) enum Val {
    /// One number.
    Number(ir::Expr),
    /// What a place holds.
    Store(Store),
    /// A struct, tuple, stack or valid header, by its parts.
    Parts(Vec<Val>),
    /// An invalid header or union.
    Invalid,
    /// No bits; also strings and the like, which exist at compile time only.
    Nothing,
}

/// Deepest expression that is built: the pipeline bounds them.
const DEEPEST: usize = 24;

impl<'h> Lower<'h> {
    /// Lowers an expression.
    pub(super) fn value(&mut self, expr: &'h Expr) -> Val {
        match &expr.kind {
            ExprKind::Const(value) => self.constant_value(value, &expr.ty, expr.span),
            ExprKind::Var(var) => self.var(*var, expr),
            ExprKind::Field(inner, index) | ExprKind::Index(inner, index) => {
                let value = self.value(inner);
                self.val_part(&value, *index as usize, expr.span)
            }
            ExprKind::Element(stack, index) => {
                let stack = self.value(stack);
                let fixed = match &index.kind {
                    ExprKind::Const(Value::Integer(i)) => usize::try_from(i).ok(),
                    _ => None,
                };
                match (stack, fixed) {
                    (Val::Store(Store::Stack(_, elements)), Some(i)) if i < elements.len() => {
                        elements.get(i).cloned().map_or(Val::Nothing, Val::Store)
                    }
                    (Val::Store(Store::Stack(id, elements)), _) => {
                        let index = self.unsigned(index);
                        match elements.first() {
                            Some(Store::Header(_, ty)) => {
                                Val::Store(Store::Header(HeaderRef::Element(id, Box::new(index)), ty.clone()))
                            }
                            _ => Val::Nothing,
                        }
                    }
                    (Val::Parts(list), Some(i)) => list.get(i).cloned().unwrap_or(Val::Invalid),
                    _ => {
                        self.unsupported(expr.span, "this index is");
                        Val::Nothing
                    }
                }
            }
            ExprKind::Next(stack) => self.stack_end(stack, HeaderRef::Next),
            ExprKind::Last(stack) => self.stack_end(stack, HeaderRef::Last),
            ExprKind::LastIndex(stack) => match self.value(stack) {
                Val::Store(Store::Stack(id, _)) => Val::Number(ir::Expr::LastIndex(id)),
                _ => Val::Nothing,
            },
            ExprKind::Valid(inner) => {
                let value = self.value(inner);
                Val::Number(validity(&value))
            }
            ExprKind::Slice(inner, hi, lo) => {
                let inner = self.number(inner);
                Val::Number(slice(inner, *hi, *lo))
            }
            ExprKind::Unary(op, operand) => {
                let operand = self.number(operand);
                let op = match op {
                    UnOp::Not => ir::UnOp::Not,
                    UnOp::Complement => ir::UnOp::Complement,
                    UnOp::Negate => ir::UnOp::Negate,
                    UnOp::Plus => return Val::Number(operand),
                };
                Val::Number(ir::Expr::Unary(op, Box::new(operand)))
            }
            ExprKind::Binary(op, operands) => {
                let value = self.binary(*op, &operands.0, &operands.1, expr);
                Val::Number(self.bounded(value, &expr.ty))
            }
            ExprKind::Mux(of) => self.mux(&of.0, &of.1, &of.2, expr),
            ExprKind::Cast(inner) => self.cast(inner, &expr.ty),
            ExprKind::Aggregate(list) => {
                let last_effect = list.iter().rposition(has_effects).unwrap_or(0);
                let value = |(i, part): (usize, &'h Expr)| {
                    let value = self.value(part);
                    if i < last_effect { self.save(value, &part.ty, part.span) } else { value }
                };
                Val::Parts(list.iter().enumerate().map(value).collect())
            }
            ExprKind::Invalid => Val::Invalid,
            ExprKind::Call(call) => self.call(call, &expr.ty),
            ExprKind::Hit(call) => self.hit(call, true),
            ExprKind::Miss(call) => self.hit(call, false),
            ExprKind::Instance(_) | ExprKind::New(_) | ExprKind::Absent => Val::Nothing,
        }
    }

    fn var(&mut self, var: VarId, expr: &Expr) -> Val {
        match self.bindings.get(&var) {
            Some(Binding::Store(store)) => Val::Store(store.clone()),
            Some(Binding::Val(value)) => value.clone(),
            Some(Binding::Constant(value)) => {
                let value = value.clone();
                self.constant_value(&value, &expr.ty, expr.span)
            }
            Some(Binding::Object(_) | Binding::Packet) => Val::Nothing,
            None => {
                // A declaration that was not lowered: its error is known.
                let name = self.hir.vars.get(var.index()).map_or("", |v| v.name.as_str());
                let store = self.allocate(name, &expr.ty, expr.span);
                self.bindings.insert(var, Binding::Store(store.clone()));
                Val::Store(store)
            }
        }
    }

    fn stack_end(&mut self, stack: &'h Expr, end: fn(ir::StackId) -> HeaderRef) -> Val {
        match self.value(stack) {
            Val::Store(Store::Stack(id, elements)) => match elements.first() {
                Some(Store::Header(_, ty)) => Val::Store(Store::Header(end(id), ty.clone())),
                _ => Val::Nothing,
            },
            _ => Val::Nothing,
        }
    }

    /// Lowers a constant.
    pub(super) fn constant_value(&mut self, value: &Value, ty: &Type, span: Span) -> Val {
        match (value, base(ty)) {
            (Value::List(list), ty) => {
                let types = parts(ty);
                let each = list.iter().zip(&types).map(|(value, ty)| self.constant_value(value, ty, span));
                Val::Parts(each.collect())
            }
            (Value::Invalid, _) => Val::Invalid,
            (_, Type::String | Type::Bit(0) | Type::MatchKind | Type::List(_)) => Val::Nothing,
            (value, _) => match self.constant(value, ty, span) {
                Some(constant) => Val::Number(ir::Expr::Const(constant)),
                None => Val::Nothing,
            },
        }
    }

    /// Lowers an expression that is one number.
    pub(super) fn number(&mut self, expr: &'h Expr) -> ir::Expr {
        let value = self.value(expr);
        self.as_number(&value, &expr.ty)
    }

    /// Lowers an expression to an unsigned number: an index or a distance.
    pub(super) fn unsigned(&mut self, expr: &'h Expr) -> ir::Expr {
        let number = self.number(expr);
        match scalar(&expr.ty) {
            Some(ir::Type::Int(width)) => number.cast(ir::Type::Bit(width)),
            Some(ir::Type::Bool) => number.cast(ir::Type::Bit(1)),
            _ => number,
        }
    }

    /// Lowers an expression to an unsigned number of this width.
    pub(super) fn unsigned_of(&mut self, expr: &'h Expr, width: u16) -> ir::Expr {
        let number = self.unsigned(expr);
        let from = scalar(&expr.ty).map_or(32, ir::Type::width);
        if from == width { number } else { number.cast(ir::Type::Bit(width)) }
    }

    /// Returns the number that a value is; zero if it is none, for which there is an error already.
    pub(super) fn as_number(&mut self, value: &Val, ty: &Type) -> ir::Expr {
        match value {
            Val::Number(expr) => expr.clone(),
            Val::Store(Store::Scalar(place)) => {
                self.mark(place);
                read(place)
            }
            Val::Parts(list) if list.len() == 1 => {
                let (Some(part), Some(part_ty)) = (list.first(), parts(ty).into_iter().next()) else {
                    return zero(ty);
                };
                self.as_number(part, &part_ty)
            }
            _ => zero(ty),
        }
    }

    /// Records the use of a variable.
    pub(super) fn mark(&mut self, place: &LValue) {
        match place {
            LValue::Var(var) => {
                self.used.insert(*var);
            }
            LValue::Slice(place, ..) => self.mark(place),
            LValue::Field(..) => {}
        }
    }

    /// Returns a part of a value.
    pub(super) fn val_part(&mut self, value: &Val, index: usize, span: Span) -> Val {
        match value {
            Val::Store(store) => Val::Store(self.part(store, index, span)),
            Val::Parts(list) => list.get(index).cloned().unwrap_or(Val::Nothing),
            Val::Number(_) | Val::Invalid | Val::Nothing => Val::Nothing,
        }
    }

    /// Lowers a place that can be assigned to.
    pub(super) fn place(&mut self, expr: &'h Expr) -> Store {
        if let ExprKind::Slice(inner, hi, lo) = &expr.kind {
            return match (self.place(inner), u16::try_from(*hi), u16::try_from(*lo)) {
                (Store::Scalar(place), Ok(hi), Ok(lo)) => {
                    Store::Scalar(LValue::Slice(Box::new(place), hi, lo))
                }
                _ => Store::Nothing,
            };
        }
        match self.value(expr) {
            Val::Store(store) => {
                if let Store::Scalar(place) = &store {
                    self.mark(&place.clone());
                }
                store
            }
            _ => Store::Nothing,
        }
    }

    /// Saves a value in storage of its own, unless it is a constant.
    pub(super) fn save(&mut self, value: Val, ty: &Type, span: Span) -> Val {
        let constant = matches!(&value, Val::Number(ir::Expr::Const(_)) | Val::Invalid | Val::Nothing);
        if constant || matches!(value, Val::Store(Store::Nothing)) || matches!(ty, Type::Void | Type::Integer)
        {
            return value;
        }
        let store = self.allocate("saved", ty, span);
        self.assign(&store, &value, ty, span);
        Val::Store(store)
    }

    /// Saves a number that is nested too deeply.
    fn bounded(&mut self, value: ir::Expr, ty: &Type) -> ir::Expr {
        if depth(&value) <= DEEPEST {
            return value;
        }
        match scalar(ty) {
            Some(ty) => self.save_number(value, ty),
            None => value,
        }
    }

    /// Saves a number in a variable.
    pub(super) fn save_number(&mut self, value: ir::Expr, ty: ir::Type) -> ir::Expr {
        if matches!(value, ir::Expr::Const(_)) {
            return value;
        }
        let var = self.variable("saved", ty);
        self.emit(ir::Stmt::Set(LValue::Var(var), value));
        ir::Expr::Var(var)
    }

    fn binary(&mut self, op: BinOp, left: &'h Expr, right: &'h Expr, whole: &'h Expr) -> ir::Expr {
        let later = has_effects(right);
        if let (BinOp::LogicAnd | BinOp::LogicOr, true) = (op, later) {
            return self.short_circuit(op == BinOp::LogicAnd, left, right);
        }
        if let BinOp::Eq | BinOp::Ne = op {
            let mut a = self.value(left);
            if later {
                a = self.save(a, &left.ty, left.span);
            }
            let b = self.value(right);
            let equal = self.equal(&a, &b, &left.ty, whole.span);
            return if op == BinOp::Eq { equal } else { not(equal) };
        }
        let mut a = self.number(left);
        if later && let Some(ty) = scalar(&left.ty) {
            a = self.save_number(a, ty);
        }
        let op = match op {
            BinOp::Shl | BinOp::Shr => {
                let by = self.unsigned(right);
                let op = if op == BinOp::Shl { ir::BinOp::Shl } else { ir::BinOp::Shr };
                return a.op(op, by);
            }
            BinOp::Concat => {
                return match (base(&left.ty), base(&right.ty)) {
                    (Type::Bit(0), _) => {
                        let b = self.number(right);
                        match scalar(&whole.ty) {
                            Some(ty) if scalar(&right.ty) != Some(ty) => b.cast(ty),
                            _ => b,
                        }
                    }
                    (_, Type::Bit(0)) => a,
                    _ => {
                        let b = self.unsigned(right);
                        a.op(ir::BinOp::Concat, b)
                    }
                };
            }
            BinOp::Add => ir::BinOp::Add,
            BinOp::Sub => ir::BinOp::Sub,
            BinOp::Mul => ir::BinOp::Mul,
            BinOp::Div => ir::BinOp::Div,
            BinOp::Rem => ir::BinOp::Rem,
            BinOp::SatAdd => ir::BinOp::SatAdd,
            BinOp::SatSub => ir::BinOp::SatSub,
            BinOp::And => ir::BinOp::And,
            BinOp::Or => ir::BinOp::Or,
            BinOp::Xor => ir::BinOp::Xor,
            BinOp::Lt => ir::BinOp::Lt,
            BinOp::Le => ir::BinOp::Le,
            BinOp::Gt => ir::BinOp::Gt,
            BinOp::Ge => ir::BinOp::Ge,
            BinOp::LogicAnd => ir::BinOp::LogicAnd,
            BinOp::LogicOr => ir::BinOp::LogicOr,
            BinOp::Eq | BinOp::Ne => ir::BinOp::Eq,
        };
        let b = self.number(right);
        a.op(op, b)
    }

    fn short_circuit(&mut self, and: bool, left: &'h Expr, right: &'h Expr) -> ir::Expr {
        let var = self.variable("condition", ir::Type::Bool);
        let left = self.number(left);
        self.emit(ir::Stmt::Set(LValue::Var(var), left));
        let body = self.block(|lower| {
            let right = lower.number(right);
            lower.emit(ir::Stmt::Set(LValue::Var(var), right));
        });
        let (yes, no) = if and { (body, vec![]) } else { (vec![], body) };
        self.emit(ir::Stmt::If(ir::Expr::Var(var), yes, no));
        ir::Expr::Var(var)
    }

    fn mux(&mut self, condition: &'h Expr, yes: &'h Expr, no: &'h Expr, whole: &'h Expr) -> Val {
        let effects = has_effects(yes) || has_effects(no);
        let condition = self.number(condition);
        if !effects && scalar(&whole.ty).is_some() {
            let (yes, no) = (self.number(yes), self.number(no));
            let mux = ir::Expr::Mux(Box::new((condition, yes, no)));
            return Val::Number(self.bounded(mux, &whole.ty));
        }
        let store = self.allocate("choice", &whole.ty, whole.span);
        let branch = |lower: &mut Self, expr: &'h Expr| {
            let store = store.clone();
            lower.block(|lower| {
                let value = lower.value(expr);
                lower.assign(&store, &value, &whole.ty, whole.span);
            })
        };
        let yes = branch(self, yes);
        let no = branch(self, no);
        self.emit(ir::Stmt::If(condition, yes, no));
        Val::Store(store)
    }

    fn cast(&mut self, inner: &'h Expr, to: &Type) -> Val {
        let value = self.value(inner);
        let Some(target) = scalar(to) else { return value };
        if let (Some(constant), Type::Integer) = (self.compile_time(inner), &inner.ty) {
            return self.constant_value(&constant, to, inner.span);
        }
        let from = scalar(&inner.ty);
        let number = self.as_number(&value, &inner.ty);
        if let (Type::Integer, ir::Expr::Const(constant)) = (&inner.ty, &number) {
            // The argument for a parameter of a control that is an integer without a width.
            return Val::Number(ir::Expr::Const(ir::Constant::of(target, &constant.value)));
        }
        Val::Number(match from {
            Some(from) => convert(number, from, target),
            None => number,
        })
    }
}

/// Converts a number, in as many steps as the pipeline needs.
pub(super) fn convert(number: ir::Expr, from: ir::Type, to: ir::Type) -> ir::Expr {
    use ir::Type::{Bit, Bool, Int};
    match (from, to) {
        (a, b) if a == b => number,
        (Bool, Bit(1)) | (Bit(1), Bool) | (Bit(_), Bit(_)) | (Int(_), Int(_)) => number.cast(to),
        (Bit(a), Int(b)) | (Int(a), Bit(b)) if a == b => number.cast(to),
        (Bool, _) => convert(number.cast(Bit(1)), Bit(1), to),
        (_, Bool) => {
            let zero = ir::Constant { ty: from, value: pipeline::bits::Bits::zero(from.width()) };
            number.op(ir::BinOp::Ne, ir::Expr::Const(zero))
        }
        (Bit(_), Int(b)) => number.cast(Bit(b)).cast(to),
        (Int(_), Bit(b)) => number.cast(Int(b)).cast(to),
    }
}

/// Whether a value is valid: a header, or a union with a valid member.
pub(super) fn validity(value: &Val) -> ir::Expr {
    match value {
        Val::Store(Store::Header(header, _)) => ir::Expr::Valid(header.clone()),
        Val::Store(Store::Union(_, members)) => {
            let each = members.iter().map(|member| validity(&Val::Store(member.clone())));
            each.reduce(|a, b| a.op(ir::BinOp::LogicOr, b))
                .unwrap_or(ir::Expr::Const(ir::Constant::bool(false)))
        }
        Val::Invalid => ir::Expr::Const(ir::Constant::bool(false)),
        _ => ir::Expr::Const(ir::Constant::bool(true)),
    }
}

/// Logical negation.
pub(super) fn not(expr: ir::Expr) -> ir::Expr {
    ir::Expr::Unary(ir::UnOp::Not, Box::new(expr))
}

/// Bits of a number.
fn slice(value: ir::Expr, hi: u32, lo: u32) -> ir::Expr {
    let bit = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
    value.slice(bit(hi), bit(lo))
}

/// Zero of a type.
fn zero(ty: &Type) -> ir::Expr {
    let ty = scalar(ty).unwrap_or(ir::Type::Bit(32));
    ir::Expr::Const(ir::Constant { ty, value: pipeline::bits::Bits::zero(ty.width()) })
}

/// Depth of an expression.
fn depth(expr: &ir::Expr) -> usize {
    use ir::Expr::*;
    1 + match expr {
        Unary(_, a) | Slice(a, ..) | Cast(_, a) => depth(a),
        Binary(_, of) => depth(&of.0).max(depth(&of.1)),
        Mux(of) => depth(&of.0).max(depth(&of.1)).max(depth(&of.2)),
        Field(HeaderRef::Element(_, index), _) | Valid(HeaderRef::Element(_, index)) => depth(index),
        _ => 0,
    }
}

/// Whether evaluating an expression can change anything.
pub(super) fn has_effects(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Call(call) => match &call.callee {
            Callee::Method(_, name) => !matches!(name.as_str(), "lookahead" | "length"),
            _ => true,
        },
        ExprKind::Hit(_) | ExprKind::Miss(_) => true,
        ExprKind::Const(_) | ExprKind::Var(_) | ExprKind::Instance(_) | ExprKind::New(_) => false,
        ExprKind::Absent | ExprKind::Invalid => false,
        ExprKind::Field(a, _) | ExprKind::Index(a, _) | ExprKind::Next(a) | ExprKind::Last(a) => {
            has_effects(a)
        }
        ExprKind::LastIndex(a) | ExprKind::Valid(a) | ExprKind::Slice(a, ..) => has_effects(a),
        ExprKind::Unary(_, a) | ExprKind::Cast(a) => has_effects(a),
        ExprKind::Element(a, b) => has_effects(a) || has_effects(b),
        ExprKind::Binary(_, of) => has_effects(&of.0) || has_effects(&of.1),
        ExprKind::Mux(of) => has_effects(&of.0) || has_effects(&of.1) || has_effects(&of.2),
        ExprKind::Aggregate(list) => list.iter().any(has_effects),
    }
}

/// Computes an operator on a constant.
pub(super) fn fold_unary(op: UnOp, value: &Value, ty: &Type) -> Option<Value> {
    match (op, value) {
        (UnOp::Not, Value::Bool(value)) => Some(Value::Bool(!value)),
        (UnOp::Negate, Value::Integer(value)) => wrap(-value, ty),
        (UnOp::Complement, Value::Integer(value)) => wrap(-value - 1, ty),
        (UnOp::Plus, value) => Some(value.clone()),
        _ => None,
    }
}

/// Computes an operator on two constants.
pub(super) fn fold_binary(op: BinOp, left: &Value, right: &Value, ty: &Type) -> Option<Value> {
    match (op, left, right) {
        (BinOp::Eq, a, b) => Some(Value::Bool(a == b)),
        (BinOp::Ne, a, b) => Some(Value::Bool(a != b)),
        (BinOp::LogicAnd, Value::Bool(a), Value::Bool(b)) => Some(Value::Bool(*a && *b)),
        (BinOp::LogicOr, Value::Bool(a), Value::Bool(b)) => Some(Value::Bool(*a || *b)),
        (_, Value::Integer(a), Value::Integer(b)) => match op {
            BinOp::Lt => Some(Value::Bool(a < b)),
            BinOp::Le => Some(Value::Bool(a <= b)),
            BinOp::Gt => Some(Value::Bool(a > b)),
            BinOp::Ge => Some(Value::Bool(a >= b)),
            BinOp::Add => wrap(a + b, ty),
            BinOp::Sub => wrap(a - b, ty),
            BinOp::Mul => wrap(a * b, ty),
            BinOp::And => wrap(a & b, ty),
            BinOp::Or => wrap(a | b, ty),
            BinOp::Xor => wrap(a ^ b, ty),
            _ => None,
        },
        _ => None,
    }
}

/// Reduces a number to its type.
fn wrap(value: BigInt, ty: &Type) -> Option<Value> {
    match base(ty) {
        Type::Integer => Some(Value::Integer(value)),
        Type::Bit(width) => {
            let bits = super::types::integer(&value, u16::try_from(*width).ok()?, false);
            Some(Value::Integer(BigInt::from_bytes_be(Sign::Plus, &bits.to_bytes())))
        }
        Type::Int(width) => {
            let width = u16::try_from(*width).ok()?;
            let bits = super::types::integer(&value, width, false).sign_extend(width.next_multiple_of(8));
            Some(Value::Integer(BigInt::from_signed_bytes_be(&bits.to_bytes())))
        }
        _ => None,
    }
}

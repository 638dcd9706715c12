//! Assignments and comparisons of composite values.

use pipeline::ir::{self, HeaderRef};

use super::Lower;
use super::storage::{Leaf, Store, read};
use super::types::{base, parts, scalar};
use super::value::{Val, not, validity};
use crate::hir::Type;
use crate::source::Span;

impl Lower<'_> {
    /// Assigns a value of a type to a place of it.
    ///
    /// A value by its parts may read the place that it is assigned to: such parts are saved first.
    pub(super) fn assign(&mut self, to: &Store, value: &Val, ty: &Type, span: Span) {
        match (to, value) {
            (Store::Nothing, _) | (_, Val::Nothing | Val::Store(Store::Nothing)) => {}
            (Store::Scalar(place), value) => {
                let number = self.as_number(value, ty);
                self.mark(place);
                if number != read(place) {
                    self.emit(ir::Stmt::Set(place.clone(), number));
                }
            }
            (Store::Header(to, _), Val::Store(Store::Header(from, _))) => {
                if to != from {
                    self.emit(ir::Stmt::CopyHeader(to.clone(), from.clone()));
                }
            }
            (Store::Varbit(to, 0), Val::Store(Store::Varbit(from, 0))) if self.same_type(to, from) => {
                self.emit(ir::Stmt::CopyHeader(to.clone(), from.clone()));
            }
            (Store::Varbit(..), _) => {
                self.unsupported(span, "an assignment of `varbit` other than with its header is")
            }
            (_, Val::Invalid) => self.invalidate(to),
            (Store::Header(header, _), Val::Parts(list)) => {
                let list = self.apart_from(to, list, ty, span);
                self.emit(ir::Stmt::SetValid(header.clone()));
                self.assign_parts(to, &list, ty, span);
            }
            (Store::Parts(_) | Store::Stack(..), Val::Parts(list)) => {
                let list = self.apart_from(to, list, ty, span);
                self.assign_parts(to, &list, ty, span);
            }
            (
                Store::Parts(_) | Store::Stack(..) | Store::Union(..),
                Val::Store(Store::Parts(list) | Store::Stack(_, list) | Store::Union(_, list)),
            ) => {
                let list: Vec<_> = list.iter().cloned().map(Val::Store).collect();
                self.assign_parts(to, &list, ty, span);
            }
            _ => self.unsupported(span, "this assignment is"),
        }
    }

    fn assign_parts(&mut self, to: &Store, list: &[Val], ty: &Type, span: Span) {
        for (i, (value, ty)) in list.iter().zip(parts(ty)).enumerate() {
            let place = self.part(to, i, span);
            self.assign(&place, value, &ty, span);
        }
    }

    fn same_type(&self, a: &HeaderRef, b: &HeaderRef) -> bool {
        let ty = |header: &HeaderRef| match header {
            HeaderRef::Header(id) => self.out.header_type(*id).map(|ty| &ty.fields),
            _ => None,
        };
        ty(a).is_some() && ty(a) == ty(b)
    }

    /// Makes the headers of a place invalid.
    pub(super) fn invalidate(&mut self, store: &Store) {
        match store {
            Store::Header(header, _) => self.emit(ir::Stmt::SetInvalid(header.clone())),
            Store::Union(_, list) | Store::Parts(list) | Store::Stack(_, list) => {
                list.iter().for_each(|part| self.invalidate(part));
            }
            Store::Scalar(_) | Store::Varbit(..) | Store::Nothing => {}
        }
    }

    /// Returns parts that do not change while the place is assigned to.
    fn apart_from(&mut self, to: &Store, list: &[Val], ty: &Type, span: Span) -> Vec<Val> {
        let leaves = self.leaves(to);
        if !list.iter().any(|value| self.reads(value, &leaves)) {
            return list.to_vec();
        }
        list.iter().zip(parts(ty)).map(|(value, ty)| self.save(value.clone(), &ty, span)).collect()
    }

    /// Whether a value depends on one of these variables and headers.
    fn reads(&self, value: &Val, leaves: &[Leaf]) -> bool {
        match value {
            Val::Number(expr) => self.expr_reads(expr, leaves),
            Val::Store(store) => self.leaves(store).iter().any(|leaf| leaves.contains(leaf)),
            Val::Parts(list) => list.iter().any(|value| self.reads(value, leaves)),
            Val::Invalid | Val::Nothing => false,
        }
    }

    fn expr_reads(&self, expr: &ir::Expr, leaves: &[Leaf]) -> bool {
        use ir::Expr::*;
        let header = |header: &HeaderRef| {
            let mut of = Vec::new();
            self.header_leaves(header, &mut of);
            let by_index = match header {
                HeaderRef::Element(_, index) => self.expr_reads(index, leaves),
                _ => false,
            };
            by_index || of.iter().any(|leaf| leaves.contains(leaf))
        };
        match expr {
            Const(_) | Param(_) | LastIndex(_) | Lookahead(..) | Remaining => false,
            Var(var) => leaves.contains(&Leaf::Var(*var)),
            Field(of, _) | Valid(of) | FieldLength(of, _) => header(of),
            Unary(_, a) | Slice(a, ..) | Cast(_, a) => self.expr_reads(a, leaves),
            Binary(_, of) => self.expr_reads(&of.0, leaves) || self.expr_reads(&of.1, leaves),
            Mux(of) => [&of.0, &of.1, &of.2].into_iter().any(|e| self.expr_reads(e, leaves)),
        }
    }

    /// Returns whether two values of a type are equal. Headers are if both are invalid, or both valid with equal fields.
    pub(super) fn equal(&mut self, a: &Val, b: &Val, ty: &Type, span: Span) -> ir::Expr {
        if scalar(ty).is_some() || matches!(ty, Type::Integer) {
            let (a, b) = (self.as_number(a, ty), self.as_number(b, ty));
            return a.equals(b);
        }
        let truth = |value| ir::Expr::Const(ir::Constant::bool(value));
        match base(ty) {
            Type::Header(_) => {
                let (valid_a, valid_b) = (validity(a), validity(b));
                if matches!(a, Val::Invalid) || matches!(b, Val::Invalid) {
                    return valid_a.equals(valid_b);
                }
                let fields = self.parts_equal(a, b, ty, span);
                let both = valid_a.clone().equals(valid_b);
                both.op(ir::BinOp::LogicAnd, not(valid_a).op(ir::BinOp::LogicOr, fields))
            }
            Type::Struct(_) | Type::Tuple(_) | Type::Stack(..) | Type::Union(_) => {
                if let (Type::Union(_), Val::Invalid, other) | (Type::Union(_), other, Val::Invalid) =
                    (base(ty), a, b)
                {
                    return not(validity(other));
                }
                self.parts_equal(a, b, ty, span)
            }
            Type::Bit(0) => truth(true),
            _ => {
                self.unsupported(span, "this comparison is");
                truth(false)
            }
        }
    }

    fn parts_equal(&mut self, a: &Val, b: &Val, ty: &Type, span: Span) -> ir::Expr {
        let mut all: Option<ir::Expr> = None;
        for (i, ty) in parts(ty).iter().enumerate() {
            let (a, b) = (self.val_part(a, i, span), self.val_part(b, i, span));
            let equal = self.equal(&a, &b, ty, span);
            all = Some(match all {
                // Kept flat: long headers would nest too deeply.
                Some(before) => {
                    let before = self.save_number(before, ir::Type::Bool);
                    before.op(ir::BinOp::LogicAnd, equal)
                }
                None => equal,
            });
        }
        all.unwrap_or(ir::Expr::Const(ir::Constant::bool(true)))
    }
}

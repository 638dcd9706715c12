//! Keysets: of a `select`'s cases and of a table's entries.

use num_bigint::BigInt;
use num_traits::{One, Zero};

use super::scope::Symbol;
use super::ty::Ty;
use super::Checker;
use crate::ast::{Expr, ExprKind};
use crate::diagnostic::Diagnostic;
use crate::hir::{self, Keyset, Value, ValueSetId};

impl<'a> Checker<'a, '_> {
    /// The keysets for values of these types: one for each, or one for all of them.
    pub(super) fn keysets(&mut self, keyset: &'a Expr, types: &[Ty]) -> Option<Vec<Keyset>> {
        match (&keyset.kind, types) {
            (ExprKind::Default | ExprKind::DontCare, _) => Some(vec![Keyset::Any]),
            (ExprKind::List(parts, false), [Ty::Composite(_) | Ty::Tuple(_)]) if parts.len() != 1 => {
                let typed = self.expr(keyset);
                let ty = types.first()?.clone();
                let typed = self.coerce(typed, &ty);
                Some(vec![Keyset::Value(self.finish(typed))])
            }
            (ExprKind::List(parts, false), _) => {
                if parts.len() != types.len() {
                    let (found, wanted) = (parts.len(), types.len());
                    let message = format!("{found} {} for {wanted} {}", s(found, "keyset"), s(wanted, "value"));
                    self.report(Diagnostic::error(keyset.span, message).expected(format!("expected {wanted}")));
                    return None;
                }
                let keysets: Vec<Option<Keyset>> =
                    parts.iter().zip(types).map(|(part, ty)| self.keyset(part, ty)).collect();
                keysets.into_iter().collect()
            }
            (_, [ty]) => Some(vec![self.keyset(keyset, ty)?]),
            _ => {
                if let Some(set) = self.value_set_name(keyset) {
                    self.value_set_for(set, &Ty::Tuple(types.into()), keyset);
                    return Some(vec![Keyset::ValueSet(set)]);
                }
                let typed = self.expr(keyset);
                if !typed.ty.is_error() {
                    let wanted = types.len();
                    let message = format!("1 keyset for {wanted} {}", s(wanted, "value"));
                    self.report(Diagnostic::error(keyset.span, message).expected(format!("expected {wanted}")));
                }
                None
            }
        }
    }

    fn keyset(&mut self, keyset: &'a Expr, ty: &Ty) -> Option<Keyset> {
        match &keyset.kind {
            ExprKind::Default | ExprKind::DontCare => return Some(Keyset::Any),
            ExprKind::Mask(a, b) => {
                let (a, b) = self.bounds(a, b, ty, keyset)?;
                return Some(Keyset::Mask(a, b));
            }
            ExprKind::Range(a, b) => {
                let (a, b) = self.bounds(a, b, ty, keyset)?;
                return Some(Keyset::Range(a, b));
            }
            _ => {}
        }
        if let Some(set) = self.value_set_name(keyset) {
            self.value_set_for(set, ty, keyset);
            return Some(Keyset::ValueSet(set));
        }
        let typed = self.expr(keyset);
        let typed = self.coerce(typed, ty);
        (!typed.ty.is_error()).then(|| Keyset::Value(self.finish(typed)))
    }

    /// The two parts of a mask or range.
    fn bounds(&mut self, a: &'a Expr, b: &'a Expr, ty: &Ty, keyset: &'a Expr) -> Option<(hir::Expr, hir::Expr)> {
        let (a, b) = (self.expr(a), self.expr(b));
        if ty.is_error() {
            return None;
        }
        let number = match ty.representation() {
            Some(base) => base,
            None => ty.clone(),
        };
        if !matches!(number, Ty::Bit(_) | Ty::Int(_) | Ty::Integer | Ty::New(_)) {
            let what = if matches!(keyset.kind, ExprKind::Mask(..)) { "a mask" } else { "a range" };
            self.error(keyset.span, format!("{what} for a value of type `{}`, which is no number", self.show(ty)));
            return None;
        }
        let matching = if a.ty == *ty { ty } else { &number };
        let (a, b) = (self.coerce(a, matching), self.coerce(b, &number));
        if a.ty.is_error() || b.ty.is_error() {
            return None;
        }
        Some((self.finish(a), self.finish(b)))
    }

    fn value_set_name(&self, keyset: &Expr) -> Option<ValueSetId> {
        let ExprKind::Name { global, name } = &keyset.kind else { return None };
        match self.scopes.find(&name.text, *global) {
            Some((Symbol::ValueSet(id), _)) => Some(*id),
            _ => None,
        }
    }

    /// Checks that a value set has elements of a type; a struct or tuple of one value is as good as the value.
    fn value_set_for(&mut self, set: ValueSetId, ty: &Ty, keyset: &Expr) {
        let Some(element) = self.value_sets.get(set.index()).cloned() else { return };
        let parts = |ty: &Ty| -> Vec<Ty> {
            match ty {
                Ty::Composite(c) => c.fields.iter().map(|(_, ty)| ty.clone()).collect(),
                Ty::Tuple(parts) => parts.to_vec(),
                other => vec![other.clone()],
            }
        };
        if element != *ty && parts(&element) != parts(ty) {
            let message = format!("the value set has elements of type `{}`", self.show(&element));
            self.report(Diagnostic::error(keyset.span, message).expected(format!("expected `{}`", self.show(ty))));
        }
    }
}

/// Whether a mask is that of a prefix: ones in front of zeros.
pub(super) fn is_prefix(mask: &Value, width: u32) -> bool {
    let Value::Integer(mask) = mask else { return false };
    let full = (BigInt::one() << width) - 1;
    let rest: BigInt = full - mask;
    let next: BigInt = &rest + 1;
    (rest & next).is_zero()
}

fn s(n: usize, noun: &str) -> String {
    super::types::plural(n, noun)
}

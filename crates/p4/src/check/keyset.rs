//! Keysets: of a `select`'s cases and of a table's entries.

use num_bigint::BigInt;
use num_traits::{One, Zero};

use super::Checker;
use super::scope::Symbol;
use super::ty::Ty;
use super::types::plural;
use super::value::Kind;
use crate::ast::{Expr, ExprKind};
use crate::diagnostic::Diagnostic;
use crate::hir::{self, Keyset, Value, ValueSetId};

impl<'a> Checker<'a, '_> {
    /// The keysets for values of these types: one for each, or one for all of them.
    pub(super) fn keysets(&mut self, keyset: &'a Expr, types: &[Ty]) -> Option<Vec<Keyset>> {
        match (&keyset.kind, types) {
            (ExprKind::Default | ExprKind::DontCare, _) => Some(vec![Keyset::Any]),
            (ExprKind::List(parts, false), [Ty::Tuple(_)]) if parts.len() != 1 => {
                self.keyset(keyset, types.first()?)
            }
            (ExprKind::List(parts, false), _) => self.keyset_list(parts, types, keyset),
            (_, [ty]) => self.keyset(keyset, ty),
            _ => {
                if let Some(set) = self.value_set_name(keyset) {
                    self.value_set_for(set, &Ty::Tuple(types.into()), keyset);
                    return Some(vec![Keyset::ValueSet(set)]);
                }
                let typed = self.expr(keyset);
                if !typed.ty.is_error() {
                    let wanted = types.len();
                    let message = format!("1 keyset for {wanted} {}", plural(wanted, "value"));
                    self.report(
                        Diagnostic::error(keyset.span, message).expected(format!("expected {wanted}")),
                    );
                }
                None
            }
        }
    }

    fn keyset_list(&mut self, parts: &'a [Expr], types: &[Ty], keyset: &'a Expr) -> Option<Vec<Keyset>> {
        if parts.len() != types.len() {
            let (found, wanted) = (parts.len(), types.len());
            let (keysets, values) = (plural(found, "keyset"), plural(wanted, "value"));
            let message = format!("{found} {keysets} for {wanted} {values}");
            self.report(Diagnostic::error(keyset.span, message).expected(format!("expected {wanted}")));
            return None;
        }
        let keysets: Vec<Option<Vec<Keyset>>> =
            parts.iter().zip(types).map(|(part, ty)| self.keyset(part, ty)).collect();
        keysets.into_iter().collect::<Option<Vec<_>>>().map(|k| k.into_iter().flatten().collect())
    }

    /// The keysets for the scalars of one value.
    fn keyset(&mut self, keyset: &'a Expr, ty: &Ty) -> Option<Vec<Keyset>> {
        match (&keyset.kind, ty) {
            (ExprKind::List(parts, false), Ty::Tuple(types)) => {
                return self.keyset_list(parts, types, keyset);
            }
            (ExprKind::Default | ExprKind::DontCare, _) => return Some(vec![Keyset::Any; scalars(ty).len()]),
            (ExprKind::Mask(a, b), _) => {
                let (a, b) = self.bounds(a, b, ty, keyset)?;
                return Some(vec![Keyset::Mask(a, b)]);
            }
            (ExprKind::Range(a, b), _) => {
                let (a, b) = self.bounds(a, b, ty, keyset)?;
                return Some(vec![Keyset::Range(a, b)]);
            }
            _ => {}
        }
        if let Some(set) = self.value_set_name(keyset) {
            self.value_set_for(set, ty, keyset);
            return Some(vec![Keyset::ValueSet(set)]);
        }
        let typed = self.expr(keyset);
        if matches!(typed.kind, Kind::Expr(hir::ExprKind::Call(_))) {
            self.error(keyset.span, "a call in a keyset");
            return None;
        }
        let typed = self.coerce(typed, ty);
        (!typed.ty.is_error()).then(|| vec![Keyset::Value(self.finish(typed))])
    }

    /// The two parts of a mask or range.
    fn bounds(
        &mut self,
        a: &'a Expr,
        b: &'a Expr,
        ty: &Ty,
        keyset: &'a Expr,
    ) -> Option<(hir::Expr, hir::Expr)> {
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
            self.error(
                keyset.span,
                format!("{what} for a value of type `{}`, which is no number", self.show(ty)),
            );
            return None;
        }
        let matching = if a.ty == *ty { ty } else { &number };
        let (a, b) = (self.coerce(a, matching), self.coerce(b, &number));
        if a.ty.is_error() || b.ty.is_error() {
            return None;
        }
        if let Some(bound) = [&a, &b].into_iter().find(|t| !t.known) {
            let span = bound.span;
            self.not_constant(span, "a mask or the bound of a range");
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
        if element != *ty && scalars(&element) != scalars(ty) {
            let message = format!("the value set has elements of type `{}`", self.show(&element));
            self.report(
                Diagnostic::error(keyset.span, message).expected(format!("expected `{}`", self.show(ty))),
            );
        }
    }
}

/// The types of the scalars in a value.
fn scalars(ty: &Ty) -> Vec<Ty> {
    match ty {
        Ty::Composite(c) => c.fields.iter().flat_map(|(_, ty)| scalars(ty)).collect(),
        Ty::Tuple(parts) => parts.iter().flat_map(scalars).collect(),
        other => vec![other.clone()],
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

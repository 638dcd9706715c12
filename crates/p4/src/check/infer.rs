//! Type arguments that are not written: found by comparing the parameters' types with the arguments' types.
//!
//! An integer without a width, a list and the like leave room: `{ 1, x }` is as good as `tuple<bit<8>, bit<8>>`, if
//! another argument says so. [`Checker::join`] finds the type that two arguments agree on.

use std::sync::Arc;

use super::Checker;
use super::ty::{ParamId, Ty};
use super::types::Bindings;
use crate::hir;

/// Type parameters with what is known of them.
#[derive(Debug, Default)]
pub(super) struct Infer {
    params: Vec<(ParamId, Option<Ty>)>,
    /// Whether arguments are written; some may be `_`.
    written: bool,
}

impl Infer {
    /// Parameters of which nothing is known.
    pub(super) fn new(params: &[ParamId]) -> Self {
        Self { params: params.iter().map(|p| (*p, None)).collect(), written: false }
    }

    /// Binds the parameters to written arguments; `_` leaves one open.
    pub(super) fn bind(&mut self, args: &[Ty]) {
        self.written = true;
        for ((_, slot), arg) in self.params.iter_mut().zip(args) {
            *slot = (!matches!(arg, Ty::DontCare)).then(|| arg.clone());
        }
    }

    /// Whether arguments are written; some may be `_`.
    pub(super) fn is_written(&self) -> bool {
        self.written
    }

    /// The first parameter of which nothing is known.
    pub(super) fn open(&self) -> Option<ParamId> {
        self.params.iter().find(|(_, ty)| ty.is_none()).map(|(p, _)| *p)
    }

    /// What is known. Open parameters are any type.
    pub(super) fn bindings(&self) -> Vec<(ParamId, Ty)> {
        self.params.iter().map(|(p, ty)| (*p, ty.clone().unwrap_or(Ty::DontCare))).collect()
    }

    /// Gives lists their types.
    pub(super) fn settle(&mut self) {
        for (_, ty) in &mut self.params {
            *ty = ty.take().and_then(|ty| settle(&ty));
        }
    }
}

/// The type that an expression has if nothing else gives it one.
pub(super) fn settle(ty: &Ty) -> Option<Ty> {
    Some(match ty {
        Ty::Listing(parts, false) => Ty::Tuple(parts.iter().map(settle).collect::<Option<_>>()?),
        Ty::Listing(..) | Ty::Record(..) | Ty::Invalid | Ty::Dots => return None,
        other => other.clone(),
    })
}

impl Checker<'_, '_> {
    /// Learns from an argument of a type for a parameter of another, which names type parameters. Types that do not go
    /// together teach nothing; the conversion of the argument reports them.
    pub(super) fn learn(&mut self, pattern: &Ty, actual: &Ty, infer: &mut Infer) {
        if actual.is_error() || !pattern.has_params() {
            return;
        }
        match (pattern, actual) {
            (Ty::Param(id), _) => self.learn_param(*id, actual, infer),
            (Ty::Composite(p), Ty::Composite(a)) if p.decl == a.decl => {
                self.learn_all(&p.args, &a.args, infer)
            }
            (Ty::Composite(p), Ty::Listing(parts, _)) => {
                for ((_, field), part) in p.fields.iter().zip(parts.iter()) {
                    self.learn(field, part, infer);
                }
            }
            (Ty::Composite(_), Ty::Record(parts, _)) => {
                for (name, part) in parts.iter() {
                    if let Some((_, field)) = pattern.field(name) {
                        self.learn(field, part, infer);
                    }
                }
            }
            (Ty::Stack(p, _), Ty::Stack(a, _)) | (Ty::List(p), Ty::List(a)) => self.learn(p, a, infer),
            (Ty::Stack(p, _) | Ty::List(p), Ty::Listing(parts, _)) => {
                for part in parts.iter() {
                    self.learn(p, part, infer);
                }
            }
            (Ty::Tuple(p), Ty::Tuple(a) | Ty::Listing(a, _)) => self.learn_all(p, a, infer),
            (Ty::Extern(p, ps), Ty::Extern(a, args)) if p == a => self.learn_all(ps, args, infer),
            (Ty::Package(p, ps), Ty::Package(a, args)) if p == a => self.learn_all(ps, args, infer),
            (Ty::Abstract(p, ps), Ty::Abstract(a, args)) if p == a => self.learn_all(ps, args, infer),
            (Ty::Abstract(..), Ty::Parser(_) | Ty::Control(_) | Ty::Abstract(..)) => {
                if let (Some(p), Some(a)) = (self.apply_params(pattern), self.apply_params(actual)) {
                    for (p, a) in p.iter().zip(&a) {
                        self.learn(&p.ty, &a.ty, infer);
                    }
                }
            }
            _ => {}
        }
    }

    fn learn_all(&mut self, patterns: &[Ty], actual: &[Ty], infer: &mut Infer) {
        for (p, a) in patterns.iter().zip(actual) {
            self.learn(p, a, infer);
        }
    }

    fn learn_param(&mut self, id: ParamId, actual: &Ty, infer: &mut Infer) {
        let Some((_, slot)) = infer.params.iter_mut().find(|(p, _)| *p == id) else { return };
        match slot {
            None if matches!(actual, Ty::DontCare) => {}
            None => *slot = Some(actual.clone()),
            Some(known) => {
                if let Some(joined) = join(known, actual) {
                    *slot = Some(joined);
                }
            }
        }
    }

    /// Replaces type parameters by what is known of them.
    pub(super) fn resolve(&mut self, ty: &Ty, infer: &Infer) -> Ty {
        let bindings: &Bindings = &infer.bindings();
        self.subst(ty, bindings)
    }
}

/// The type that two expressions agree on: the more exact of both.
pub(super) fn join(a: &Ty, b: &Ty) -> Option<Ty> {
    Some(match (a, b) {
        (Ty::Listing(x, false), Ty::Listing(y, false)) if x.len() == y.len() => {
            Ty::Listing(join_all(x, y)?, false)
        }
        (Ty::Listing(x, _), Ty::Tuple(y)) | (Ty::Tuple(y), Ty::Listing(x, _)) if x.len() == y.len() => {
            Ty::Tuple(join_all(y, x)?)
        }
        (Ty::Listing(..), Ty::Composite(_) | Ty::Stack(..) | Ty::List(_)) => b.clone(),
        (Ty::Composite(_) | Ty::Stack(..) | Ty::List(_), Ty::Listing(..)) => a.clone(),
        (Ty::Record(..) | Ty::Invalid, Ty::Composite(_)) => b.clone(),
        (Ty::Composite(_), Ty::Record(..) | Ty::Invalid) => a.clone(),
        (Ty::Record(x, d), Ty::Record(y, e)) if x.len() == y.len() && d == e => {
            let joined = x
                .iter()
                .zip(y.iter())
                .map(|((n, x), (m, y))| (n == m).then(|| Some((n.clone(), join(x, y)?))));
            Ty::Record(joined.map(Option::flatten).collect::<Option<Arc<[_]>>>()?, *d)
        }
        (Ty::Dots, _) => b.clone(),
        (_, Ty::Dots) => a.clone(),
        (Ty::Integer, Ty::Bit(_) | Ty::Int(_)) => b.clone(),
        (Ty::Bit(_) | Ty::Int(_), Ty::Integer) => a.clone(),
        (Ty::Enum(e), Ty::Integer | Ty::Bit(_) | Ty::Int(_)) => join(&of_representation(e)?, b)?,
        (Ty::Integer | Ty::Bit(_) | Ty::Int(_), Ty::Enum(e)) => join(a, &of_representation(e)?)?,
        (Ty::Enum(x), Ty::Enum(y)) if !Arc::ptr_eq(x, y) => {
            join(&of_representation(x)?, &of_representation(y)?)?
        }
        (Ty::Error | Ty::DontCare, _) => b.clone(),
        _ if a == b => a.clone(),
        _ => return None,
    })
}

fn of_representation(e: &Arc<hir::Enum>) -> Option<Ty> {
    Ty::Enum(Arc::clone(e)).representation()
}

fn join_all(a: &[Ty], b: &[Ty]) -> Option<Arc<[Ty]>> {
    a.iter().zip(b).map(|(a, b)| join(a, b)).collect()
}

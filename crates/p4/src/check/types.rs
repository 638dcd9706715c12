//! From written types to types: names, widths, sizes, type arguments.

use std::rc::Rc;
use std::sync::Arc;

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive};

use super::Checker;
use super::declare::CompositeDecl;
use super::scope::{Symbol, TypeSymbol};
use super::ty::{
    Composite, CompositeId, CompositeKind, Extent, MAX_DEPTH, MAX_LEAVES, MAX_WIDTH, ParamId, Ty,
};
use crate::ast::{self, TypeKind};
use crate::diagnostic::Diagnostic;
use crate::hir::{self, Value};
use crate::source::Span;

/// Types that type parameters stand for.
pub(super) type Bindings = [(ParamId, Ty)];

impl<'a> Checker<'a, '_> {
    /// The type that is written. Type parameters' arguments must be given.
    pub(super) fn ty(&mut self, ty: &'a ast::Type) -> Ty {
        self.nested(ty.span, |c| c.ty_inner(ty)).unwrap_or(Ty::Error)
    }

    fn ty_inner(&mut self, ty: &'a ast::Type) -> Ty {
        match &ty.kind {
            TypeKind::Void => Ty::Void,
            TypeKind::Bool => Ty::Bool,
            TypeKind::Error if self.errors.is_empty() => {
                let found = Diagnostic::error(ty.span, "type `error` has no members");
                self.report(found.help("include core.p4, which declares some"));
                Ty::Error
            }
            TypeKind::Error => Ty::ErrorCode,
            TypeKind::MatchKind => Ty::MatchKind,
            TypeKind::String => Ty::String,
            TypeKind::Integer => Ty::Integer,
            TypeKind::DontCare => Ty::DontCare,
            TypeKind::Bit(None) => Ty::Bit(1),
            TypeKind::Bit(Some(width)) => self.width(width, 0).map_or(Ty::Error, Ty::Bit),
            TypeKind::Int(width) => self.width(width, 1).map_or(Ty::Error, Ty::Int),
            TypeKind::Varbit(width) => self.width(width, 0).map_or(Ty::Error, Ty::Varbit),
            TypeKind::Named { global, name } => match self.type_symbol(*global, name) {
                Some(symbol) => self.type_of_symbol(&symbol, name.span, &name.text),
                None => Ty::Error,
            },
            TypeKind::Specialized(base, args) => self.specialize(base, args, ty.span),
            TypeKind::Stack(element, size) => {
                let element = self.ty(element);
                let size = self.stack_size(size);
                self.stack(element, size, ty.span)
            }
            TypeKind::Tuple(parts) => {
                let parts = parts.iter().map(|p| self.part(p, "a tuple")).collect::<Vec<_>>();
                self.bounded(Ty::Tuple(parts.into()), ty.span)
            }
            TypeKind::List(element) => {
                let element = self.part(element, "a list");
                self.bounded(Ty::List(Arc::new(element)), ty.span)
            }
        }
    }

    fn stack(&mut self, element: Ty, size: Option<u32>, span: Span) -> Ty {
        let Some(size) = size else { return Ty::Error };
        let base = match &element {
            Ty::New(new) => new.base.clone(),
            other => other.clone(),
        };
        match base {
            Ty::Error => Ty::Error,
            Ty::Composite(_)
            | Ty::Bit(_)
            | Ty::Int(_)
            | Ty::Bool
            | Ty::Enum(_)
            | Ty::Stack(..)
            | Ty::Param(_) => self.bounded(Ty::Stack(Arc::new(element), size), span),
            Ty::Tuple(_) | Ty::ErrorCode => self.bounded(Ty::Stack(Arc::new(element), size), span),
            _ => {
                let message = format!("`{}` cannot be the type of a stack's elements", self.show(&element));
                self.report(
                    Diagnostic::error(span, message)
                        .expected("expected a header or another type of fixed size"),
                );
                Ty::Error
            }
        }
    }

    /// Type of a part of a tuple or list.
    fn part(&mut self, ty: &'a ast::Type, whole: &str) -> Ty {
        let part = self.ty(ty);
        if part.is_object() || matches!(part, Ty::Void) {
            self.error(ty.span, format!("`{}` cannot be a type in {whole}", self.show(&part)));
            return Ty::Error;
        }
        part
    }

    fn bounded(&mut self, ty: Ty, span: Span) -> Ty {
        if self.fits(ty.extent(), span) { ty } else { Ty::Error }
    }

    fn fits(&mut self, extent: Extent, span: Span) -> bool {
        if !extent.fits() {
            let limits = format!("at most {MAX_DEPTH} levels and {MAX_LEAVES} fields are supported");
            let message = format!("a type of {} levels and {} fields; {limits}", extent.depth, extent.leaves);
            self.error(span, message);
        }
        extent.fits()
    }

    /// A width, which is at least as given.
    fn width(&mut self, width: &'a ast::Expr, least: u32) -> Option<u32> {
        let value = self.constant_integer(width)?;
        match value.to_u32() {
            Some(width) if width <= MAX_WIDTH && width >= least => Some(width),
            _ => {
                let expected = format!("expected {least} to {MAX_WIDTH}");
                self.report(Diagnostic::error(width.span, format!("a width of {value}")).expected(expected));
                None
            }
        }
    }

    fn stack_size(&mut self, size: &'a ast::Expr) -> Option<u32> {
        let value = self.constant_integer(size)?;
        match value.to_u32() {
            Some(n) if u64::from(n) <= MAX_LEAVES => Some(n),
            _ => {
                let expected = format!("expected 0 to {MAX_LEAVES}");
                self.report(
                    Diagnostic::error(size.span, format!("a stack of size {value}")).expected(expected),
                );
                None
            }
        }
    }

    /// The value of an expression that must be an integer known at compile time.
    pub(super) fn constant_integer(&mut self, expr: &'a ast::Expr) -> Option<BigInt> {
        let typed = self.expr(expr);
        if typed.ty.is_error() {
            return None;
        }
        let is_number =
            matches!(typed.ty, Ty::Integer | Ty::Bit(_) | Ty::Int(_)) || typed.ty.representation().is_some();
        match typed.value() {
            Some(Value::Integer(n)) if is_number => Some(n.clone()),
            _ if is_number => {
                let found = Diagnostic::error(expr.span, "this number is not known at compile time");
                self.report(found.expected("expected a constant"));
                None
            }
            _ => {
                let message = format!("found a value of type `{}`", self.show(&typed.ty));
                self.report(Diagnostic::error(expr.span, message).expected("expected a number"));
                None
            }
        }
    }

    /// As [`Self::constant_integer`], from 0 to a bound.
    pub(super) fn constant_index(&mut self, expr: &'a ast::Expr, what: &str, most: u32) -> Option<u32> {
        let value = self.constant_integer(expr)?;
        match value.to_u32() {
            Some(n) if n <= most => Some(n),
            _ => {
                let sign = if value.is_negative() { "negative " } else { "" };
                let message = format!("{sign}{what} {value}");
                self.report(Diagnostic::error(expr.span, message).expected(format!("expected 0 to {most}")));
                None
            }
        }
    }

    /// What a type's name means.
    pub(super) fn type_symbol(&mut self, global: bool, name: &'a ast::Name) -> Option<TypeSymbol> {
        match self.scopes.find(&name.text, global) {
            Some((Symbol::Type(symbol), _)) => Some(symbol.clone()),
            Some((Symbol::Open(what), _)) => {
                let what = *what;
                self.error(name.span, format!("{what} `{}` contains itself", name.text));
                None
            }
            Some((_, span)) => {
                let message = format!("`{}` is not a type", name.text);
                self.report(Diagnostic::error(name.span, message).also(span, "declared here"));
                None
            }
            None => {
                self.not_found(name, "type", |symbol| matches!(symbol, Symbol::Type(_)));
                None
            }
        }
    }

    /// Reports a name that has no declaration.
    pub(super) fn not_found(&mut self, name: &ast::Name, what: &str, test: impl Fn(&Symbol<'a>) -> bool) {
        let mut found = Diagnostic::error(name.span, format!("{what} `{}` is not declared", name.text));
        found = found.expected("not found before this place");
        if let Some(like) = self.similar(&name.text, self.scopes.names(test)) {
            found = found.help(format!("did you mean `{like}`?"));
        }
        self.report(found);
    }

    /// The type of a name that has no type arguments.
    fn type_of_symbol(&mut self, symbol: &TypeSymbol, span: Span, name: &str) -> Ty {
        let (missing, ty) = match symbol {
            TypeSymbol::Plain(ty) => (0, ty.clone()),
            TypeSymbol::Generic(id) => {
                (self.composite_decl(*id).map_or(0, |d| d.type_params.len()), Ty::Error)
            }
            TypeSymbol::Extern(id) => {
                let params = self.externs.get(id.index()).map_or(0, |e| e.type_params.len());
                (params, Ty::Extern(*id, Ty::none()))
            }
            TypeSymbol::Parser(id) => (0, Ty::Parser(*id)),
            TypeSymbol::Control(id) => (0, Ty::Control(*id)),
            TypeSymbol::Abstract(id) => {
                let params = self.abstracts.get(id.0 as usize).map_or(0, |s| s.type_params.len());
                (params, Ty::Abstract(*id, Ty::none()))
            }
            TypeSymbol::Package(id) => {
                let params = self.packages.get(id.index()).map_or(0, |s| s.type_params.len());
                (params, Ty::Package(*id, Ty::none()))
            }
        };
        if missing > 0 {
            let list = vec!["…"; missing].join(", ");
            let message = format!("`{name}` needs {missing} type {}", plural(missing, "argument"));
            self.report(Diagnostic::error(span, message).expected(format!("expected `{name}<{list}>`")));
            return Ty::Error;
        }
        ty
    }

    fn composite_decl(&self, id: CompositeId) -> Option<Rc<CompositeDecl<'a>>> {
        self.composites.get(id.0 as usize).cloned()
    }

    /// Type parameters of a type's name.
    pub(super) fn params_of(&self, symbol: &TypeSymbol) -> Vec<ParamId> {
        match symbol {
            TypeSymbol::Generic(id) => self.composite_decl(*id).map(|d| d.type_params.clone()),
            TypeSymbol::Extern(id) => self.externs.get(id.index()).map(|e| e.type_params.clone()),
            TypeSymbol::Abstract(id) => self.abstracts.get(id.0 as usize).map(|s| s.type_params.clone()),
            TypeSymbol::Package(id) => self.packages.get(id.index()).map(|s| s.type_params.clone()),
            _ => None,
        }
        .unwrap_or_default()
    }

    fn specialize(&mut self, base: &'a ast::Type, args: &'a [ast::Type], span: Span) -> Ty {
        let args: Vec<Ty> = args.iter().map(|a| self.type_argument(a)).collect();
        let TypeKind::Named { global, name } = &base.kind else {
            self.error(base.span, "this type takes no type arguments");
            return Ty::Error;
        };
        let Some(symbol) = self.type_symbol(*global, name) else { return Ty::Error };
        self.apply_args(&symbol, args, name, span)
    }

    /// A type argument.
    pub(super) fn type_argument(&mut self, arg: &'a ast::Type) -> Ty {
        let ty = self.ty(arg);
        if matches!(ty, Ty::Parser(_) | Ty::Control(_) | Ty::Abstract(..) | Ty::Package(..)) {
            self.error(arg.span, format!("`{}` cannot be a type argument", self.show(&ty)));
            return Ty::Error;
        }
        ty
    }

    /// The type that a name with type arguments means.
    pub(super) fn apply_args(
        &mut self,
        symbol: &TypeSymbol,
        args: Vec<Ty>,
        name: &ast::Name,
        span: Span,
    ) -> Ty {
        let params = self.params_of(symbol).len();
        if params != args.len() {
            let message = if params == 0 {
                format!("`{}` takes no type arguments", name.text)
            } else {
                let plural = plural(params, "argument");
                format!("`{}` takes {params} type {plural}, found {}", name.text, args.len())
            };
            self.error(span, message);
            return Ty::Error;
        }
        if let Some(bad) = args.iter().find(|a| matches!(a, Ty::Void)) {
            self.error(span, format!("`{}` cannot be a type argument", self.show(bad)));
            return Ty::Error;
        }
        if matches!(symbol, TypeSymbol::Generic(_)) && args.iter().any(|a| matches!(a, Ty::DontCare)) {
            self.error(span, format!("`_` cannot be a type argument of `{}`", name.text));
            return Ty::Error;
        }
        let args: Arc<[Ty]> = args.into();
        let ty = match symbol {
            TypeSymbol::Generic(id) => return self.composite(*id, args, span),
            TypeSymbol::Extern(id) => Ty::Extern(*id, args),
            TypeSymbol::Abstract(id) => Ty::Abstract(*id, args),
            TypeSymbol::Package(id) => Ty::Package(*id, args),
            TypeSymbol::Plain(_) | TypeSymbol::Parser(_) | TypeSymbol::Control(_) => return Ty::Error,
        };
        self.bounded(ty, span)
    }

    /// A composite with its type arguments.
    pub(super) fn composite(&mut self, id: CompositeId, args: Arc<[Ty]>, span: Span) -> Ty {
        let Some(decl) = self.composite_decl(id) else { return Ty::Error };
        let key = (id.0, args.iter().map(|a| self.key(a)).collect::<Vec<_>>().join(","));
        if let Some(known) = self.specialized.get(&key) {
            return Ty::Composite(Arc::clone(known));
        }
        if !self.fits(Extent::sum(args.iter().map(Ty::extent)), span) {
            return Ty::Error;
        }
        let bindings: Vec<(ParamId, Ty)> =
            decl.type_params.iter().copied().zip(args.iter().cloned()).collect();
        let fields: Vec<(String, Ty)> =
            decl.fields.iter().map(|(f, ty)| (f.name.text.clone(), self.subst(ty, &bindings))).collect();
        for ((_, ty), (field, _)) in fields.iter().zip(&decl.fields) {
            if !decl.type_params.is_empty() && !self.may_be_field(decl.kind, ty) {
                let message = format!(
                    "field `{}` of {} `{}` cannot have the type `{}`",
                    field.name.text,
                    decl.kind.noun(),
                    decl.name.text,
                    self.show(ty)
                );
                self.report(Diagnostic::error(span, message).also(field.name.span, "the field"));
                return Ty::Error;
            }
        }
        let extents = fields.iter().map(|(_, ty)| ty.extent());
        let extent =
            if decl.kind == CompositeKind::Union { Extent::most(extents) } else { Extent::sum(extents) };
        let extent = extent.and_args(Extent::sum(args.iter().map(Ty::extent)));
        if !self.fits(extent, span) {
            return Ty::Error;
        }
        let name = self.applied_name(&decl.name.text, &args);
        let ground = !args.iter().any(Ty::has_params);
        let hir = Arc::new(hir::Composite {
            name: name.clone(),
            annotations: self.annotations(decl.annotations),
            fields: decl
                .fields
                .iter()
                .zip(&fields)
                .map(|((field, _), (name, ty))| hir::Field {
                    name: name.clone(),
                    ty: self.hir(ty),
                    annotations: self.annotations(&field.annotations),
                })
                .collect(),
        });
        let hir = match decl.kind {
            CompositeKind::Struct => hir::Type::Struct(hir),
            CompositeKind::Header => hir::Type::Header(hir),
            CompositeKind::Union => hir::Type::Union(hir),
        };
        if ground {
            self.out.types.push(hir.clone());
        }
        let index = fields.iter().enumerate().map(|(i, (name, _))| (name.clone(), super::index(i))).collect();
        let composite =
            Arc::new(Composite { kind: decl.kind, decl: id, args, name, fields, index, hir, extent });
        self.specialized.insert(key, Arc::clone(&composite));
        Ty::Composite(composite)
    }

    /// A type with other types in the place of type parameters.
    pub(super) fn subst(&mut self, ty: &Ty, bindings: &Bindings) -> Ty {
        if bindings.is_empty() || !ty.has_params() {
            return ty.clone();
        }
        let mut all = |args: &[Ty]| -> Arc<[Ty]> { args.iter().map(|a| self.subst(a, bindings)).collect() };
        match ty {
            Ty::Param(id) => {
                bindings.iter().find(|(p, _)| p == id).map_or_else(|| ty.clone(), |(_, bound)| bound.clone())
            }
            Ty::Composite(c) => {
                let args = all(&c.args);
                self.composite(c.decl, args, Span::default())
            }
            Ty::Stack(element, n) => Ty::Stack(Arc::new(self.subst(element, bindings)), *n),
            Ty::List(element) => Ty::List(Arc::new(self.subst(element, bindings))),
            Ty::Tuple(args) => Ty::Tuple(all(args)),
            Ty::Extern(id, args) => Ty::Extern(*id, all(args)),
            Ty::Abstract(id, args) => Ty::Abstract(*id, all(args)),
            Ty::Package(id, args) => Ty::Package(*id, all(args)),
            other => other.clone(),
        }
    }

    /// The checked form of a type. Type parameters, which are only in what is thrown away, become `void`.
    pub(super) fn hir(&mut self, ty: &Ty) -> hir::Type {
        match ty {
            Ty::Bool => hir::Type::Bool,
            Ty::Integer => hir::Type::Integer,
            Ty::Bit(w) => hir::Type::Bit(*w),
            Ty::Int(w) => hir::Type::Int(*w),
            Ty::Varbit(w) => hir::Type::Varbit(*w),
            Ty::String => hir::Type::String,
            Ty::ErrorCode => hir::Type::Error,
            Ty::MatchKind => hir::Type::MatchKind,
            Ty::Enum(e) => hir::Type::Enum(Arc::clone(e)),
            Ty::New(new) => hir::Type::New(Arc::clone(&new.hir)),
            Ty::Composite(c) => c.hir.clone(),
            Ty::Stack(element, n) => hir::Type::Stack(Arc::new(self.hir(element)), *n),
            Ty::Tuple(parts) => hir::Type::Tuple(parts.iter().map(|p| self.hir(p)).collect()),
            Ty::List(element) => hir::Type::List(Arc::new(self.hir(element))),
            Ty::Extern(id, args) => hir::Type::Extern(*id, args.iter().map(|a| self.hir(a)).collect()),
            Ty::Parser(id) => hir::Type::Parser(*id),
            Ty::Control(id) => hir::Type::Control(*id),
            Ty::Abstract(id, args) => self.abstract_hir(*id, args),
            Ty::Package(id, _) => hir::Type::Package(*id),
            Ty::Applied(id) => hir::Type::Applied(*id),
            Ty::ActionRun(id) => hir::Type::ActionRun(*id),
            Ty::Error
            | Ty::DontCare
            | Ty::Void
            | Ty::Param(_)
            | Ty::Listing(..)
            | Ty::Record(..)
            | Ty::Invalid
            | Ty::Dots => hir::Type::Void,
        }
    }
}

/// A noun with the ending for its number.
pub(super) fn plural(n: usize, noun: &str) -> String {
    if n == 1 { noun.to_owned() } else { format!("{noun}s") }
}

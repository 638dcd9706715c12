//! Declarations at the top level.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use num_bigint::BigInt;

use super::scope::{FunctionRef, Ordinal, Symbol, TypeSymbol};
use super::signature::{Role, Signature};
use super::ty::{AbstractId, CompositeId, CompositeKind, MAX_DEPTH, NewTy, ParamId, Ty};
use super::value::{Kind, Typed};
use super::{Checker, Here, Place, fold, index};
use crate::ast::{self, Declaration, DeclarationKind};
use crate::diagnostic::Diagnostic;
use crate::hir::{self, ExternId, FunctionId, PackageId, Value};
use crate::source::Span;

/// A declared structure, header or union.
#[derive(Debug)]
pub(super) struct CompositeDecl<'a> {
    pub(super) kind: CompositeKind,
    pub(super) name: &'a ast::Name,
    pub(super) annotations: &'a [ast::Annotation],
    pub(super) type_params: Vec<ParamId>,
    pub(super) fields: Vec<(&'a ast::Field, Ty)>,
}

/// A declared extern type.
#[derive(Debug)]
pub(super) struct ExternDecl<'a> {
    pub(super) type_params: Vec<ParamId>,
    pub(super) constructors: Vec<Rc<Signature<'a>>>,
    pub(super) methods: Vec<MethodDecl<'a>>,
}

/// A declared method.
#[derive(Debug, Clone)]
pub(super) struct MethodDecl<'a> {
    pub(super) signature: Rc<Signature<'a>>,
    pub(super) is_abstract: bool,
    /// Whether an instance need not implement it.
    pub(super) optional: bool,
}

/// A declared function.
#[derive(Debug)]
pub(super) struct FunctionDecl<'a> {
    pub(super) ast: &'a ast::Function,
    pub(super) name: &'a ast::Name,
    pub(super) signature: Rc<Signature<'a>>,
    /// Position among the global declarations.
    pub(super) ordinal: Ordinal,
}

/// An instantiated function whose body is not checked yet.
#[derive(Debug)]
pub(super) struct Pending {
    function: FunctionRef,
    args: Vec<Ty>,
    id: FunctionId,
}

/// Most operands of a constant that is not known before a constructor is called.
const MAX_OPEN_CONSTANT: u32 = 1000;
/// Most instantiations of generic functions.
const MAX_INSTANTIATIONS: usize = 10_000;

impl<'a> Checker<'a, '_> {
    /// Checks a program.
    pub(super) fn program(&mut self, program: &'a ast::Program) {
        for declaration in &program.declarations {
            match &declaration.kind {
                DeclarationKind::Error(names) => {
                    for name in names {
                        if let Some(earlier) = self.errors.insert(&name.text, name.span) {
                            self.duplicate(name, earlier);
                        } else {
                            self.out.errors.push(name.text.clone());
                        }
                    }
                }
                DeclarationKind::MatchKind(names) => {
                    for name in names {
                        if let Some(earlier) = self.match_kinds.insert(&name.text, name.span) {
                            self.duplicate(name, earlier);
                        }
                    }
                }
                _ => {}
            }
        }
        for declaration in &program.declarations {
            self.global(declaration);
        }
        while let Some(pending) = self.pending.pop() {
            self.instantiate(pending);
        }
        self.control_plane_names();
    }

    fn global(&mut self, declaration: &'a Declaration) {
        let name = &declaration.name;
        let annotations = declaration.annotations.as_slice();
        if name.text == "main"
            && !matches!(declaration.kind, DeclarationKind::Instance(_) | DeclarationKind::Function(_))
        {
            self.report(
                Diagnostic::error(name.span, "`main` is not a package")
                    .expected("expected an object of a package"),
            );
        }
        // Elsewhere, annotations are in the checked form.
        if matches!(
            declaration.kind,
            DeclarationKind::Constant(..)
                | DeclarationKind::TypeDef(_)
                | DeclarationKind::Function(_)
                | DeclarationKind::ExternFunction(_)
        ) {
            self.annotations(annotations);
        }
        match &declaration.kind {
            DeclarationKind::Constant(ty, value) => self.constant(name, ty, value),
            DeclarationKind::Instance(instance) => {
                if let Some(id) = self.instance(declaration, instance) {
                    self.out.globals.push(id);
                    if name.text == "main" {
                        self.main(id, name);
                    }
                }
            }
            DeclarationKind::Error(_) | DeclarationKind::MatchKind(_) => {}
            DeclarationKind::Header(c) => {
                self.composite_declaration(CompositeKind::Header, name, annotations, c)
            }
            DeclarationKind::HeaderUnion(c) => {
                self.composite_declaration(CompositeKind::Union, name, annotations, c)
            }
            DeclarationKind::Struct(c) => {
                self.composite_declaration(CompositeKind::Struct, name, annotations, c)
            }
            DeclarationKind::Enum(representation, members) => {
                self.enumeration(name, annotations, representation.as_ref(), members);
            }
            DeclarationKind::TypeDef(ty) => {
                let ty = self.ty(ty);
                self.declare(name, Symbol::Type(TypeSymbol::Plain(ty)));
            }
            DeclarationKind::NewType(ty) => self.new_type(name, annotations, ty),
            DeclarationKind::ParserType(signature) => self.abstract_type(name, signature, true),
            DeclarationKind::ControlType(signature) => self.abstract_type(name, signature, false),
            DeclarationKind::Package(signature) => self.package(name, annotations, signature),
            DeclarationKind::Extern(body) => self.extern_type(name, annotations, body),
            DeclarationKind::ExternFunction(function) | DeclarationKind::Function(function) => {
                self.function(name, function);
            }
            DeclarationKind::Action(action) => self.action(name, annotations, action, declaration.span),
            DeclarationKind::Parser(parser) => self.parser(name, annotations, parser, declaration.span),
            DeclarationKind::Control(control) => self.control(name, annotations, control, declaration.span),
            DeclarationKind::Variable(..) | DeclarationKind::Table(_) | DeclarationKind::ValueSet(..) => {
                self.misplaced(declaration, "at the top level");
            }
        }
    }

    /// Reports a declaration that is not allowed where it stands.
    pub(super) fn misplaced(&mut self, declaration: &Declaration, place: &str) {
        let what = match declaration.kind {
            DeclarationKind::Variable(..) => "a variable",
            DeclarationKind::Table(_) => "a table",
            DeclarationKind::ValueSet(..) => "a value set",
            DeclarationKind::Action(_) => "an action",
            DeclarationKind::Instance(_) => "an object",
            DeclarationKind::Function(_) => "a function",
            _ => "this",
        };
        let span = if declaration.name.text.is_empty() { declaration.span } else { declaration.name.span };
        self.error(span, format!("{what} cannot be declared {place}"));
    }

    /// A constant, of the program or of a block.
    pub(super) fn constant(&mut self, name: &'a ast::Name, ty: &'a ast::Type, value: &'a ast::Expr) {
        let declared = self.ty(ty);
        let declared = if declared.is_object() || matches!(declared, Ty::Void | Ty::DontCare) {
            self.error(ty.span, format!("a constant cannot have the type `{}`", self.show(&declared)));
            Ty::Error
        } else {
            declared
        };
        let typed = self.expr(value);
        let mut typed = self.coerce(typed, &declared);
        if !typed.known {
            self.not_constant(value.span, "the value of a constant");
        } else if typed.value().is_none() {
            // It depends on a constructor's parameters, and is computed wherever it is used.
            let mut room = MAX_OPEN_CONSTANT;
            if !small(&typed.kind, &mut room) {
                self.error(
                    value.span,
                    format!("a constant that is too large: more than {MAX_OPEN_CONSTANT} operands"),
                );
                typed = Typed::error(value.span);
            }
        }
        self.declare(name, Symbol::Const(Rc::new(typed)));
    }

    fn composite_declaration(
        &mut self,
        kind: CompositeKind,
        name: &'a ast::Name,
        annotations: &'a [ast::Annotation],
        body: &'a ast::Composite,
    ) {
        self.declare(name, Symbol::Open(kind.noun()));
        self.scopes.push();
        let type_params = self.type_params(&body.type_params);
        let mut fields = Vec::new();
        let mut names: HashMap<&str, Span> = HashMap::new();
        for field in &body.fields {
            if let Some(earlier) = names.insert(&field.name.text, field.name.span) {
                self.duplicate(&field.name, earlier);
                continue;
            }
            let mut ty = self.ty(&field.ty);
            if !self.may_be_field(kind, &ty) {
                let message = format!(
                    "field `{}` of {} `{}` cannot have the type `{}`",
                    field.name.text,
                    kind.noun(),
                    name.text,
                    self.show(&ty)
                );
                self.error(field.name.span, message);
                ty = Ty::Error;
            }
            fields.push((field, ty));
        }
        self.scopes.pop();
        let id = CompositeId(index(self.composites.len()));
        let generic = !type_params.is_empty();
        self.composites.push(Rc::new(CompositeDecl { kind, name, annotations, type_params, fields }));
        let symbol = if generic {
            TypeSymbol::Generic(id)
        } else {
            TypeSymbol::Plain(self.composite(id, Ty::none(), name.span))
        };
        self.declare(name, Symbol::Type(symbol));
    }

    /// Whether a field may have a type.
    pub(super) fn may_be_field(&self, kind: CompositeKind, ty: &Ty) -> bool {
        match kind {
            _ if matches!(ty, Ty::Error | Ty::Param(_)) => true,
            CompositeKind::Union => ty.is_header(),
            CompositeKind::Struct => {
                !ty.is_object() && !matches!(ty, Ty::Void | Ty::DontCare | Ty::Applied(_) | Ty::ActionRun(_))
            }
            CompositeKind::Header => match ty {
                Ty::Bit(_) | Ty::Int(_) | Ty::Bool | Ty::Varbit(_) => true,
                Ty::Enum(e) => e.representation.is_some(),
                Ty::New(new) => self.may_be_field(kind, &new.base),
                Ty::Stack(element, _) => self.may_be_field(kind, element),
                Ty::Composite(c) => {
                    c.kind == CompositeKind::Struct
                        && c.fields.iter().all(|(_, ty)| self.may_be_field(kind, ty))
                }
                _ => false,
            },
        }
    }

    fn enumeration(
        &mut self,
        name: &'a ast::Name,
        annotations: &'a [ast::Annotation],
        representation: Option<&'a ast::Type>,
        members: &'a [ast::EnumMember],
    ) {
        let ty = representation.map(|written| {
            let ty = self.ty(written);
            if ty.is_bits() || ty.is_error() {
                return ty;
            }
            let found = Diagnostic::error(
                written.span,
                format!("an enum cannot be represented by `{}`", self.show(&ty)),
            );
            self.report(found.expected("expected `bit<>` or `int<>`"));
            Ty::Error
        });
        let mut list: Vec<(String, BigInt, Vec<hir::Annotation>)> = Vec::new();
        // The values of members may use those before.
        self.scopes.push();
        let mut names: HashMap<&str, Span> = HashMap::new();
        for (at, member) in members.iter().enumerate() {
            if let Some(earlier) = names.insert(&member.name.text, member.name.span) {
                self.duplicate(&member.name, earlier);
                continue;
            }
            let value = match (&ty, &member.value) {
                (Some(ty), Some(value)) => self.member_value(member, ty, value),
                (Some(_), None) => {
                    let message = format!("`{}` has no value", member.name.text);
                    let found = Diagnostic::error(member.name.span, message);
                    self.report(found.expected("expected `= VALUE`, because the enum has a representation"));
                    None
                }
                (None, Some(value)) => {
                    let found = Diagnostic::error(value.span, "a value in an enum without a representation");
                    self.report(found.help(format!("give the enum a type: `enum bit<8> {}`", name.text)));
                    None
                }
                (None, None) => Some(BigInt::from(at)),
            };
            if let (Some(ty), Some(value)) = (&ty, &value) {
                let constant = Typed::constant(Value::Integer(value.clone()), ty.clone(), member.name.span);
                self.declare(&member.name, Symbol::Const(Rc::new(constant)));
            }
            let annotations = self.annotations(&member.annotations);
            list.push((member.name.text.clone(), value.unwrap_or_default(), annotations));
        }
        self.scopes.pop();
        let representation = ty.map(|ty| self.hir(&ty));
        let e = Arc::new(hir::Enum {
            name: name.text.clone(),
            annotations: self.annotations(annotations),
            representation,
            members: list,
        });
        self.out.types.push(hir::Type::Enum(Arc::clone(&e)));
        self.declare(name, Symbol::Type(TypeSymbol::Plain(Ty::Enum(e))));
    }

    fn member_value(&mut self, member: &ast::EnumMember, ty: &Ty, value: &'a ast::Expr) -> Option<BigInt> {
        let typed = self.expr(value);
        if let (Ty::Integer, Some(Value::Integer(n))) = (&typed.ty, typed.value())
            && !fold::fits(n, ty)
        {
            let message =
                format!("value {n} of `{}` does not fit into `{}`", member.name.text, self.show(ty));
            self.error(value.span, message);
            return None;
        }
        let typed = self.coerce(typed, ty);
        match typed.value() {
            Some(Value::Integer(n)) => Some(n.clone()),
            _ if typed.ty.is_error() => None,
            _ => {
                self.not_constant(value.span, "the value of a member");
                None
            }
        }
    }

    fn new_type(&mut self, name: &'a ast::Name, annotations: &'a [ast::Annotation], written: &'a ast::Type) {
        let base = self.ty(written);
        if !matches!(base, Ty::Bit(_) | Ty::Int(_) | Ty::Bool | Ty::New(_) | Ty::Error) {
            let message = format!("`type` cannot be applied to `{}`", self.show(&base));
            let found =
                Diagnostic::error(written.span, message).expected("expected `bit<>`, `int<>` or `bool`");
            self.report(found);
            self.declare(name, Symbol::Type(TypeSymbol::Plain(Ty::Error)));
            return;
        }
        if base.extent().depth >= MAX_DEPTH {
            let message =
                format!("a type of more than {MAX_DEPTH} levels; at most {MAX_DEPTH} are supported");
            self.error(written.span, message);
            return self.declare(name, Symbol::Type(TypeSymbol::Plain(Ty::Error)));
        }
        let hir = Arc::new(hir::NewType {
            name: name.text.clone(),
            annotations: self.annotations(annotations),
            base: self.hir(&base),
        });
        self.out.types.push(hir::Type::New(Arc::clone(&hir)));
        self.declare(name, Symbol::Type(TypeSymbol::Plain(Ty::New(Arc::new(NewTy { hir, base })))));
    }

    fn abstract_type(&mut self, name: &'a ast::Name, signature: &'a ast::Signature, is_parser: bool) {
        self.declare(name, Symbol::Open(if is_parser { "parser" } else { "control" }));
        self.scopes.push();
        let type_params = self.type_params(&signature.type_params);
        let params = self.params(&signature.params, Role::Apply);
        self.not_type_params(&signature.type_params, &signature.params);
        self.scopes.pop();
        let id = AbstractId(index(self.abstracts.len()));
        let result = Ty::Void;
        let signature = Signature {
            name: &name.text,
            type_params,
            params,
            result,
            span: name.span,
            is_parser,
            is_package: false,
        };
        self.abstracts.push(Rc::new(signature));
        self.declare(name, Symbol::Type(TypeSymbol::Abstract(id)));
    }

    /// Reports parameters that have the name of a type parameter.
    fn not_type_params(&mut self, types: &'a [ast::Name], params: &'a [ast::Param]) {
        for param in params {
            if let Some(earlier) = types.iter().find(|t| t.text == param.name.text) {
                self.duplicate(&param.name, earlier.span);
            }
        }
    }

    fn package(
        &mut self,
        name: &'a ast::Name,
        annotations: &'a [ast::Annotation],
        signature: &'a ast::Signature,
    ) {
        self.declare(name, Symbol::Open("package"));
        self.scopes.push();
        let type_params = self.type_params(&signature.type_params);
        let params = self.params(&signature.params, Role::Package);
        self.not_type_params(&signature.type_params, &signature.params);
        self.scopes.pop();
        let id = PackageId(index(self.packages.len()));
        let names = params.iter().map(|p| p.name.to_owned()).collect();
        let annotations = self.annotations(annotations);
        self.out.packages.push(hir::Package { name: name.text.clone(), annotations, params: names });
        let signature = Signature {
            name: &name.text,
            type_params,
            params,
            result: Ty::Void,
            span: name.span,
            is_parser: false,
            is_package: true,
        };
        self.packages.push(Rc::new(signature));
        self.declare(name, Symbol::Type(TypeSymbol::Package(id)));
    }

    fn extern_type(
        &mut self,
        name: &'a ast::Name,
        annotations: &'a [ast::Annotation],
        body: &'a ast::Extern,
    ) {
        let id = ExternId(index(self.externs.len()));
        let methods =
            body.methods.iter().filter(|m| !m.is_constructor).map(|m| m.name.text.clone()).collect();
        let annotations = self.annotations(annotations);
        self.out.externs.push(hir::Extern { name: name.text.clone(), annotations, methods });
        self.scopes.push();
        let type_params = self.type_params(&body.type_params);
        self.scopes.pop();
        let decl =
            ExternDecl { type_params: type_params.clone(), constructors: Vec::new(), methods: Vec::new() };
        self.externs.push(Rc::new(decl));
        self.declare(name, Symbol::Open("extern"));
        self.scopes.push();
        for (param, name) in type_params.iter().zip(&body.type_params) {
            // A repeated name was reported above.
            let _ = self.scopes.declare(
                &name.text,
                Symbol::Type(TypeSymbol::Plain(Ty::Param(*param))),
                name.span,
            );
        }
        let mut constructors = Vec::new();
        let mut methods: Vec<MethodDecl<'a>> = Vec::new();
        for method in &body.methods {
            let role = if method.is_constructor { Role::ExternConstructor } else { Role::Function };
            if !method.is_constructor && method.name.text == name.text {
                self.error(method.name.span, "a constructor has no type for its result");
            }
            let signature = self.prototype(&method.name, &method.function, role);
            let same = |s: &Rc<Signature<'a>>| s.name == signature.name && same_names(s, &signature);
            if method.is_constructor {
                let earlier = constructors.iter().find(|c| same(c)).map(|c| c.span);
                self.no_overload(&method.name, earlier);
                constructors.push(signature);
            } else {
                let earlier = methods.iter().find(|m| same(&m.signature)).map(|m| m.signature.span);
                self.no_overload(&method.name, earlier);
                let optional = method.annotations.iter().any(|a| a.name.text == "optional");
                methods.push(MethodDecl { signature, is_abstract: method.is_abstract, optional });
            }
        }
        self.scopes.pop();
        self.declare(name, Symbol::Type(TypeSymbol::Extern(id)));
        if let Some(slot) = self.externs.get_mut(id.index()) {
            *slot = Rc::new(ExternDecl { type_params, constructors, methods });
        }
    }

    fn no_overload(&mut self, name: &ast::Name, earlier: Option<Span>) {
        if let Some(earlier) = earlier {
            let message = format!("`{}` is declared twice with the same names of parameters", name.text);
            self.report(Diagnostic::error(name.span, message).also(earlier, "first declared here"));
        }
    }

    /// The signature of a function or method.
    fn prototype(
        &mut self,
        name: &'a ast::Name,
        function: &'a ast::Function,
        role: Role,
    ) -> Rc<Signature<'a>> {
        self.scopes.push();
        let type_params = self.type_params(&function.signature.type_params);
        let result = self.ty(&function.result);
        let result =
            if result.is_object() && !matches!(result, Ty::Extern(..)) || matches!(result, Ty::Integer) {
                self.error(
                    function.result.span,
                    format!("`{}` cannot be the type of a result", self.show(&result)),
                );
                Ty::Error
            } else {
                result
            };
        let params = self.params(&function.signature.params, role);
        self.not_type_params(&function.signature.type_params, &function.signature.params);
        self.scopes.pop();
        Rc::new(Signature {
            name: &name.text,
            type_params,
            params,
            result,
            span: name.span,
            is_parser: false,
            is_package: false,
        })
    }

    fn function(&mut self, name: &'a ast::Name, function: &'a ast::Function) {
        let signature = self.prototype(name, function, Role::Function);
        let mut overloads = match self.scopes.here(&name.text) {
            Some(Symbol::Functions(list)) => list.as_ref().clone(),
            _ => Vec::new(),
        };
        let others = overloads.iter().filter_map(|f| self.functions.get(f.0 as usize));
        let earlier = others.map(|f| &f.signature).find(|s| same_names(s, &signature)).cloned();
        let repeats =
            earlier.as_ref().is_some_and(|e| self.params_differ(&signature.params, &e.params).is_none());
        if !repeats {
            self.no_overload(name, earlier.map(|s| s.span));
        }
        let function_ref = FunctionRef(index(self.functions.len()));
        let generic = !signature.type_params.is_empty();
        let ordinal = self.scopes.ordinal();
        self.functions.push(Rc::new(FunctionDecl { ast: function, name, signature, ordinal }));
        // The body must not see the function itself.
        if function.body.is_some() {
            self.no_optional(&function.signature.params);
            if overloads.is_empty() && self.scopes.here(&name.text).is_none() {
                self.declare(name, Symbol::Open("function"));
            }
            if generic {
                self.check_generic(function_ref);
            } else {
                let id = self.function_id(function_ref, &[]);
                self.function_body(function_ref, &[], id);
            }
        }
        if repeats {
            return;
        }
        overloads.push(function_ref);
        let symbol = Symbol::Functions(Rc::new(overloads.clone()));
        if overloads.len() > 1 { self.scopes.replace(&name.text, symbol) } else { self.declare(name, symbol) }
    }

    /// Reports optional parameters of what has a body, which could not use them.
    pub(super) fn no_optional(&mut self, params: &'a [ast::Param]) {
        for param in params {
            if param.annotations.iter().any(|a| a.name.text == "optional") {
                self.error(
                    param.span,
                    format!("parameter `{}` of what has a body cannot be optional", param.name.text),
                );
            }
        }
    }

    /// Checks the body of a generic function for all types at once. Its checked form is thrown away.
    fn check_generic(&mut self, function: FunctionRef) {
        let Some(decl) = self.functions.get(function.0 as usize).cloned() else { return };
        let params: Vec<Ty> = decl.signature.type_params.iter().map(|p| Ty::Param(*p)).collect();
        self.function_body(function, &params, FunctionId(u32::MAX));
    }

    /// The number of a function with type arguments. Its body is checked later.
    pub(super) fn function_for(&mut self, function: FunctionRef, args: Vec<Ty>, span: Span) -> FunctionId {
        let key = (function.0, args.iter().map(|a| self.key(a)).collect::<Vec<_>>().join(","));
        if let Some(known) = self.instantiated.get(&key) {
            return *known;
        }
        if args.iter().any(Ty::has_params) {
            return FunctionId(0);
        }
        if self.instantiated.len() >= MAX_INSTANTIATIONS {
            self.error(span, format!("more than {MAX_INSTANTIATIONS} instantiations of functions"));
            return FunctionId(0);
        }
        let id = self.function_id(function, &args);
        self.pending.push(Pending { function, args, id });
        id
    }

    fn function_id(&mut self, function: FunctionRef, args: &[Ty]) -> FunctionId {
        let id = FunctionId(index(self.out.functions.len()));
        let key = (function.0, args.iter().map(|a| self.key(a)).collect::<Vec<_>>().join(","));
        self.instantiated.insert(key, id);
        let decl = self.functions.get(function.0 as usize).cloned();
        let span = decl.as_ref().map_or(Span::default(), |d| d.name.span);
        let name = decl.map_or(String::new(), |d| self.applied_name(&d.name.text, args));
        let (params, body, result) = (Vec::new(), Vec::new(), hir::Type::Void);
        self.out.functions.push(hir::Function { name, params, result, body, span });
        id
    }

    fn instantiate(&mut self, pending: Pending) {
        if let Some(decl) = self.functions.get(pending.function.0 as usize).cloned() {
            self.scopes.go_to(decl.ordinal);
            self.function_body(pending.function, &pending.args, pending.id);
        }
    }

    /// Checks a function's body with its type parameters bound.
    fn function_body(&mut self, function: FunctionRef, args: &[Ty], id: FunctionId) {
        let Some(decl) = self.functions.get(function.0 as usize).cloned() else { return };
        let signature = &decl.signature;
        let bindings: Vec<(ParamId, Ty)> =
            signature.type_params.iter().copied().zip(args.iter().cloned()).collect();
        let (params, body, result) = self.scoped(|c| {
            for (name, (_, ty)) in decl.ast.signature.type_params.iter().zip(&bindings) {
                // A repeated name was reported with the signature.
                let symbol = Symbol::Type(TypeSymbol::Plain(ty.clone()));
                let _ = c.scopes.declare(&name.text, symbol, name.span);
            }
            let mut resolved = signature.params.clone();
            for param in &mut resolved {
                param.ty = c.subst(&param.ty, &bindings);
            }
            let result = c.subst(&signature.result, &bindings);
            let params = c.param_vars(&decl.ast.signature.params, &resolved, false);
            let place = Place { here: Here::Function, result: Some(result.clone()), ..Place::TOP };
            let body = c.at(place, |c| c.body(decl.ast.body.as_ref(), &result, decl.name));
            (params, body, c.hir(&result))
        });
        if let Some(function) = self.out.functions.get_mut(id.index()) {
            (function.params, function.body, function.result) = (params, body, result);
        }
    }
}

/// Whether an expression has fewer parts than there is room for; takes them from it.
fn small(kind: &Kind<'_>, room: &mut u32) -> bool {
    match kind {
        Kind::Expr(kind) => small_expr(kind, room),
        _ => true,
    }
}

fn small_expr(kind: &hir::ExprKind, room: &mut u32) -> bool {
    use hir::ExprKind::*;
    if *room == 0 {
        return false;
    }
    *room -= 1;
    match kind {
        Unary(_, a) | Cast(a) | Field(a, _) | Index(a, _) | Slice(a, ..) => small_expr(&a.kind, room),
        Binary(_, both) => small_expr(&both.0.kind, room) && small_expr(&both.1.kind, room),
        Element(a, b) => small_expr(&a.kind, room) && small_expr(&b.kind, room),
        Mux(parts) => [&parts.0, &parts.1, &parts.2].into_iter().all(|e| small_expr(&e.kind, room)),
        Aggregate(parts) => parts.iter().all(|e| small_expr(&e.kind, room)),
        _ => true,
    }
}

/// Whether arguments cannot tell two signatures apart: they have the same names of parameters in any order.
fn same_names(a: &Signature<'_>, b: &Signature<'_>) -> bool {
    let names = |s: &Signature<'_>| {
        let mut names: Vec<String> = s.params.iter().map(|p| p.name.to_owned()).collect();
        names.sort_unstable();
        names
    };
    a.params.len() == b.params.len() && names(a) == names(b)
}

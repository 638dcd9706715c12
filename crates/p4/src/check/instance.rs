//! Objects: declared ones, and those that a constructor makes as an argument.

use std::rc::Rc;

use super::infer::Infer;
use super::scope::{Symbol, TypeSymbol};
use super::signature::{Role, Signature};
use super::ty::{ParamId, Ty};
use super::value::{Kind, Typed};
use super::{Checker, Container, Here, Place, index};
use crate::ast::{self, Argument, Declaration, DeclarationKind, Name};
use crate::diagnostic::Diagnostic;
use crate::hir::{self, ExprKind, FunctionId, InstanceId};
use crate::source::Span;

impl<'a> Checker<'a, '_> {
    /// Declares an object. At the top level, the caller keeps its number.
    pub(super) fn instance(
        &mut self,
        declaration: &'a Declaration,
        instance: &'a ast::Instance,
    ) -> Option<InstanceId> {
        let name = &declaration.name;
        if self.place.here != Here::Declarations {
            self.misplaced(declaration, "in a body; declare it in front of the body");
        }
        let object = self.named_type(&instance.ty).and_then(|(symbol, types, of)| {
            self.object(&symbol, types, of, &instance.args, declaration.span)
        });
        let Some((mut object, ty)) = object else {
            // Later uses of the name are no errors of their own.
            let stand_in = Rc::new(Typed::error(name.span));
            self.declare(name, Symbol::Const(stand_in));
            return None;
        };
        self.right_container(&ty, &instance.ty);
        object.name = name.text.clone();
        object.annotations = self.annotations(&declaration.annotations);
        let id = self.add_instance(object, ty.clone());
        if self.place.container.is_some() {
            self.declared.push(id);
        }
        let methods = self.implementations(id, &ty, instance, name);
        if let Some(object) = self.out.instances.get_mut(id.index()) {
            object.methods = methods;
        }
        self.declare(name, Symbol::Instance(id));
        Some(id)
    }

    fn right_container(&mut self, ty: &Ty, written: &'a ast::Type) {
        let wrong = match (self.place.container, ty) {
            (Some(Container::Control(_)), Ty::Parser(_)) => "a parser cannot be an object of a control",
            (Some(Container::Parser(_)), Ty::Control(_)) => "a control cannot be an object of a parser",
            (None, Ty::Parser(_) | Ty::Control(_)) => {
                "a parser or control cannot be an object of the program"
            }
            (Some(_), Ty::Package(..)) => "a package can only be an object of the program",
            _ => return,
        };
        self.error(written.span, wrong);
    }

    /// Adds an object to the program.
    pub(super) fn add_instance(&mut self, object: hir::Instance, ty: Ty) -> InstanceId {
        let id = InstanceId(index(self.out.instances.len()));
        self.out.instances.push(object);
        self.instances.push(ty);
        id
    }

    /// A constructor in an expression.
    pub(super) fn construct(
        &mut self,
        symbol: &TypeSymbol,
        types: Vec<Ty>,
        name: &'a Name,
        args: &'a [Argument],
        span: Span,
    ) -> Typed<'a> {
        let Some((object, ty)) = self.object(symbol, types, name, args, span) else {
            return Typed::error(span);
        };
        if matches!(self.place.here, Here::Function | Here::Method) {
            let message = format!("`{}` cannot be constructed in a function or method", name.text);
            return self.refuse(span, message);
        }
        if let Ty::Extern(id, _) = &ty {
            let lacks = self
                .externs
                .get(id.index())
                .and_then(|e| e.methods.iter().find(|m| m.is_abstract && !m.optional));
            if let Some(method) = lacks {
                let message = format!(
                    "`{}` has the abstract method `{}`; only a declaration can implement it",
                    name.text, method.signature.name
                );
                return self.refuse(span, message);
            }
        }
        if matches!(self.place.here, Here::Action | Here::State | Here::Control) {
            // The object exists once, and not once for each packet.
            let id = self.add_instance(object, ty.clone());
            self.declared.push(id);
            return Typed::new(ExprKind::Instance(id), ty, span).known(true);
        }
        Typed::new(ExprKind::New(Box::new(object)), ty, span).known(true)
    }

    /// An object that a constructor makes: it is named after its type.
    pub(super) fn object(
        &mut self,
        symbol: &TypeSymbol,
        types: Vec<Ty>,
        name: &'a Name,
        args: &'a [Argument],
        span: Span,
    ) -> Option<(hir::Instance, Ty)> {
        let (symbol, types) = match symbol {
            TypeSymbol::Plain(Ty::Extern(id, args)) if types.is_empty() => {
                (TypeSymbol::Extern(*id), args.to_vec())
            }
            TypeSymbol::Plain(Ty::Package(id, args)) if types.is_empty() => {
                (TypeSymbol::Package(*id), args.to_vec())
            }
            TypeSymbol::Plain(Ty::Parser(id)) if types.is_empty() => (TypeSymbol::Parser(*id), Vec::new()),
            TypeSymbol::Plain(Ty::Control(id)) if types.is_empty() => (TypeSymbol::Control(*id), Vec::new()),
            other => (other.clone(), types),
        };
        let constructors: Vec<Rc<Signature<'a>>> = match &symbol {
            TypeSymbol::Parser(id) => vec![Rc::clone(&self.parsers.get(id.index())?.constructor)],
            TypeSymbol::Control(id) => vec![Rc::clone(&self.controls.get(id.index())?.constructor)],
            TypeSymbol::Package(id) => vec![Rc::clone(self.packages.get(id.index())?)],
            TypeSymbol::Extern(id) => self.externs.get(id.index())?.constructors.clone(),
            TypeSymbol::Abstract(_) => {
                let message =
                    format!("`{}` has no body; it is a type that parsers and controls can have", name.text);
                self.error(span, message);
                return None;
            }
            TypeSymbol::Plain(Ty::Error) => return None,
            TypeSymbol::Plain(_) | TypeSymbol::Generic(_) => {
                let found = Diagnostic::error(span, format!("`{}` has no objects", name.text));
                self.report(found.expected("expected an extern, parser, control or package"));
                return None;
            }
        };
        if constructors.is_empty() {
            self.error(span, format!("extern `{}` has no constructor", name.text));
            return None;
        }
        let at = self.overload(&constructors, name, args, span)?;
        let signature = Rc::clone(constructors.get(at)?);
        let params = self.params_of(&symbol);
        let mut infer = Infer::new(&params);
        if !types.is_empty() {
            let named = Signature { type_params: params.clone(), ..signature.as_ref().clone() };
            self.bind(&mut infer, &named, &types, span)?;
        }
        let named = Signature { type_params: params, ..signature.as_ref().clone() };
        let passed = self.pass_with(&named, &[], infer, args, span)?;
        for (arg, param) in passed.args.iter().zip(&signature.params) {
            if !arg.known && !is_factory(arg) {
                self.not_constant(arg.span, &format!("the argument of `{}`", param.name));
                return None;
            }
        }
        let bound: Vec<Ty> = passed.infer.bindings().into_iter().map(|(_, ty)| ty).collect();
        let ty = match symbol {
            TypeSymbol::Parser(id) => Ty::Parser(id),
            TypeSymbol::Control(id) => Ty::Control(id),
            TypeSymbol::Package(id) => Ty::Package(id, bound.into()),
            TypeSymbol::Extern(id) => Ty::Extern(id, bound.into()),
            _ => return None,
        };
        let args = passed.args.into_iter().map(|a| self.argument(a)).collect();
        let object = hir::Instance {
            name: name.text.clone(),
            annotations: Vec::new(),
            ty: self.hir(&ty),
            args,
            constructor: index(at),
            methods: Vec::new(),
            span,
        };
        Some((object, ty))
    }

    /// The abstract methods that a declaration implements.
    fn implementations(
        &mut self,
        id: InstanceId,
        ty: &Ty,
        instance: &'a ast::Instance,
        name: &'a Name,
    ) -> Vec<(String, FunctionId)> {
        let (methods, outer) = match ty {
            Ty::Extern(extern_id, args) => match self.externs.get(extern_id.index()).cloned() {
                Some(decl) => {
                    let outer: Vec<(ParamId, Ty)> =
                        decl.type_params.iter().copied().zip(args.iter().cloned()).collect();
                    (decl.methods.iter().filter(|m| m.is_abstract).cloned().collect::<Vec<_>>(), outer)
                }
                None => return Vec::new(),
            },
            _ => (Vec::new(), Vec::new()),
        };
        let mut done: Vec<(String, FunctionId)> = Vec::new();
        if let Some(initializer) = &instance.initializer {
            if methods.is_empty() {
                let message = format!("`{}` has no abstract methods to implement", self.show(ty));
                self.error(name.span, message);
                return done;
            }
            self.scopes.push();
            for declaration in initializer {
                match &declaration.kind {
                    DeclarationKind::Function(function) => {
                        let candidates = methods.iter().filter(|m| m.signature.name == declaration.name.text);
                        let candidates = candidates.map(|m| Rc::clone(&m.signature)).collect::<Vec<_>>();
                        if let Some(f) =
                            self.implementation(id, &candidates, &outer, function, &declaration.name)
                        {
                            done.push((declaration.name.text.clone(), f));
                        }
                    }
                    DeclarationKind::Instance(inner) => {
                        self.instance(declaration, inner);
                    }
                    _ => self.misplaced(declaration, "in the initializer of an object"),
                }
            }
            self.scopes.pop();
        }
        for method in methods {
            if !method.optional && !done.iter().any(|(name, _)| name == method.signature.name) {
                let message = format!(
                    "`{}` does not implement the abstract method `{}`",
                    name.text, method.signature.name
                );
                let found = Diagnostic::error(name.span, message);
                self.report(found.also(method.signature.span, "declared here"));
            }
        }
        done
    }

    fn implementation(
        &mut self,
        this: InstanceId,
        candidates: &[Rc<Signature<'a>>],
        outer: &[(ParamId, Ty)],
        function: &'a ast::Function,
        name: &'a Name,
    ) -> Option<FunctionId> {
        let result = self.ty(&function.result);
        let params = self.params(&function.signature.params, Role::Function);
        let mut why = None;
        for candidate in candidates {
            let mut wanted = candidate.params.clone();
            for param in &mut wanted {
                param.ty = self.subst(&param.ty, outer);
            }
            let wanted_result = self.subst(&candidate.result, outer);
            let differs = if wanted_result == result {
                self.params_differ(&params, &wanted)
            } else {
                Some(format!(
                    "its result is `{}`, expected `{}`",
                    self.show(&result),
                    self.show(&wanted_result)
                ))
            };
            match differs {
                None => {
                    why = None;
                    break;
                }
                Some(text) => why = Some((text, candidate.span)),
            }
        }
        if candidates.is_empty() {
            self.error(name.span, format!("`{}` is no abstract method of the object's type", name.text));
            return None;
        }
        if let Some((text, span)) = why {
            let message = format!("`{}` is not like the abstract method: {text}", name.text);
            self.report(Diagnostic::error(name.span, message).also(span, "declared here"));
        }
        let (vars, body) = self.scoped(|c| {
            let vars = c.param_vars(&function.signature.params, &params, false);
            let place = Place {
                here: Here::Method,
                result: Some(result.clone()),
                this: Some(this),
                loops: 0,
                ..c.place.clone()
            };
            (vars, c.at(place, |c| c.body(function.body.as_ref(), &result, name)))
        });
        let id = FunctionId(index(self.out.functions.len()));
        let result = self.hir(&result);
        self.out.functions.push(hir::Function {
            name: name.text.clone(),
            params: vars,
            result,
            body,
            span: name.span,
        });
        Some(id)
    }

    /// The object that is the program.
    pub(super) fn main(&mut self, id: InstanceId, name: &'a Name) {
        if matches!(self.instances.get(id.index()), Some(Ty::Package(..))) {
            self.out.main = Some(id);
        } else {
            self.report(
                Diagnostic::error(name.span, "`main` is not a package").expected("expected a package"),
            );
        }
    }
}

/// Whether an argument comes from an extern function, which architectures use to make objects.
fn is_factory(arg: &Typed<'_>) -> bool {
    match &arg.kind {
        Kind::Expr(ExprKind::Call(call)) => matches!(call.callee, hir::Callee::Extern(_)),
        _ => false,
    }
}

//! Instantiation: parsers, controls and extern objects, each under the full name that a control plane knows.
//!
//! The full name of an object is the names of those that contain it, and its own, joined by dots. The annotation
//! `@name` replaces an object's own name, and with a leading dot all of it. An object without a declaration has the
//! name of its type (P4-16 1.2.5, section 18.3).

use std::collections::HashMap;

use super::{Binding, Lower};
use crate::diagnostic::Diagnostic;
use crate::hir::{self, Annotation, AnnotationBody, Expr, ExprKind, Instance, InstanceId, Type, Value};

/// An object: an index into [`Lower::objects`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ObjectId(pub(super) usize);

/// An object.
#[derive(Debug)]
pub(super) struct Object<'h> {
    /// Full name.
    pub(super) name: String,
    /// Its instantiation.
    pub(super) instance: &'h Instance,
    /// Arguments of its constructor.
    pub(super) args: Vec<Argument>,
    /// Objects declared in it.
    pub(super) children: HashMap<InstanceId, ObjectId>,
    /// Object that contains it.
    pub(super) parent: Option<ObjectId>,
    /// Calls of `apply` lowered so far.
    pub(super) applied: u32,
    /// What an extern object became, once something used it.
    pub(super) made: Option<Made>,
}

/// What an extern object became.
#[derive(Debug, Clone, Copy)]
pub(super) enum Made {
    /// An array of counters.
    Counter(pipeline::ir::CounterId),
    /// An array of meters.
    Meter(pipeline::ir::MeterId),
    /// An array of registers.
    Register(pipeline::ir::RegisterId),
    /// A profile.
    Profile(pipeline::ir::ProfileId),
    /// A checksum's sum.
    Sum(pipeline::ir::VarId),
    /// The counters or meters of a table's entries.
    Direct(pipeline::ir::TableId),
}

/// Argument of a constructor.
#[derive(Debug, Clone)]
pub(super) enum Argument {
    /// A constant.
    Constant(Value),
    /// An object.
    Object(ObjectId),
    /// None.
    Absent,
}

/// Most objects: instantiation multiplies.
const MOST_OBJECTS: usize = 10_000;

impl<'h> Lower<'h> {
    /// Makes an object and those declared in it.
    pub(super) fn instantiate(&mut self, instance: &'h Instance, prefix: &str) -> ObjectId {
        let own = match &instance.ty {
            Type::Package(_) => String::new(),
            _ => full_name(prefix, &instance.name, &instance.annotations),
        };
        let args: Vec<Argument> = instance.args.iter().map(|arg| self.constructor_arg(arg, prefix)).collect();
        let id = ObjectId(self.objects.len());
        if id.0 == MOST_OBJECTS {
            let text = format!("the program has more than {MOST_OBJECTS} objects");
            self.diagnostics.push(Diagnostic::error(instance.span, text));
        }
        self.objects.push(Object {
            name: own.clone(),
            instance,
            args,
            children: HashMap::new(),
            parent: self.here,
            applied: 0,
            made: None,
        });
        let children: &'h [InstanceId] = match &instance.ty {
            _ if id.0 >= MOST_OBJECTS => &[],
            Type::Parser(parser) => self.hir.parsers.get(parser.index()).map_or(&[], |p| &p.instances),
            Type::Control(control) => self.hir.controls.get(control.index()).map_or(&[], |c| &c.instances),
            _ => &[],
        };
        let before = self.here.replace(id);
        for child in children {
            self.bind_constructor(id);
            if let Some(instance) = self.hir.instances.get(child.index()) {
                let object = self.instantiate(instance, &own);
                if let Some(this) = self.objects.get_mut(id.0) {
                    this.children.insert(*child, object);
                }
            }
        }
        self.here = before;
        id
    }

    fn constructor_arg(&mut self, arg: &'h Expr, prefix: &str) -> Argument {
        match &arg.kind {
            ExprKind::New(instance) => Argument::Object(self.instantiate(instance, prefix)),
            ExprKind::Instance(_) | ExprKind::Var(_) if self.object(arg).is_some() => {
                self.object(arg).map_or(Argument::Absent, Argument::Object)
            }
            ExprKind::Absent => Argument::Absent,
            _ => match self.compile_time(arg) {
                Some(value) => Argument::Constant(value),
                None => {
                    self.unsupported(arg.span, "this argument of a constructor, which is not a constant, is");
                    Argument::Absent
                }
            },
        }
    }

    /// Returns the value of an expression of constants and parameters of constructors.
    pub(super) fn compile_time(&self, expr: &Expr) -> Option<Value> {
        match &expr.kind {
            ExprKind::Const(value) => Some(value.clone()),
            ExprKind::Var(var) => match self.bindings.get(var) {
                Some(Binding::Constant(value)) => Some(value.clone()),
                _ => None,
            },
            ExprKind::Cast(inner) => self.compile_time(inner),
            ExprKind::Aggregate(parts) => {
                parts.iter().map(|part| self.compile_time(part)).collect::<Option<_>>().map(Value::List)
            }
            ExprKind::Unary(op, operand) => {
                super::value::fold_unary(*op, &self.compile_time(operand)?, &expr.ty)
            }
            ExprKind::Binary(op, operands) => {
                let (left, right) = (self.compile_time(&operands.0)?, self.compile_time(&operands.1)?);
                super::value::fold_binary(*op, &left, &right, &expr.ty)
            }
            _ => None,
        }
    }

    /// Binds the parameters of an object's constructor to its arguments.
    pub(super) fn bind_constructor(&mut self, id: ObjectId) {
        let Some(object) = self.objects.get(id.0) else { return };
        let params: &'h [hir::VarId] = match &object.instance.ty {
            Type::Parser(parser) => self.hir.parsers.get(parser.index()).map_or(&[], |p| &p.constructor),
            Type::Control(control) => self.hir.controls.get(control.index()).map_or(&[], |c| &c.constructor),
            _ => &[],
        };
        for (param, arg) in params.iter().zip(object.args.clone()) {
            match arg {
                Argument::Constant(value) => self.bindings.insert(*param, Binding::Constant(value)),
                Argument::Object(object) => self.bindings.insert(*param, Binding::Object(object)),
                Argument::Absent => self.bindings.remove(param),
            };
        }
    }

    /// Returns the object that an expression means.
    pub(super) fn object(&self, expr: &Expr) -> Option<ObjectId> {
        match &expr.kind {
            ExprKind::Instance(id) => {
                let mut at = self.here;
                while let Some(object) = at.and_then(|at| self.objects.get(at.0)) {
                    if let Some(found) = object.children.get(id) {
                        return Some(*found);
                    }
                    at = object.parent;
                }
                self.globals.get(id).copied()
            }
            ExprKind::Var(var) => match self.bindings.get(var) {
                Some(Binding::Object(object)) => Some(*object),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the object that a property of a table means; one without a declaration is made.
    pub(super) fn property_object(&mut self, expr: &'h Expr, prefix: &str) -> Option<ObjectId> {
        if let ExprKind::New(instance) = &expr.kind {
            return Some(self.instantiate(instance, prefix));
        }
        let object = self.object(expr);
        if object.is_none() {
            self.diagnostics.push(Diagnostic::error(expr.span, "this property is not an object"));
        }
        object
    }

    /// Returns a numeric argument of an object's constructor.
    pub(super) fn number_arg(&self, object: ObjectId, index: usize) -> Option<u64> {
        match self.objects.get(object.0)?.args.get(index)? {
            Argument::Constant(Value::Integer(value)) => num_traits::ToPrimitive::to_u64(value),
            _ => None,
        }
    }

    /// Returns the name of an object's type.
    pub(super) fn type_name(&self, object: ObjectId) -> &'h str {
        match self.objects.get(object.0).map(|object| &object.instance.ty) {
            Some(Type::Extern(id, _)) => self.hir.externs.get(id.index()).map_or("", |e| e.name.as_str()),
            _ => "",
        }
    }

    /// Returns the number of an object's array, clamped to what the pipeline's arrays can have.
    pub(super) fn array_size(&self, object: ObjectId, index: usize) -> u32 {
        u32::try_from(self.number_arg(object, index).unwrap_or(0)).unwrap_or(u32::MAX)
    }
}

/// Returns the full name of a declaration.
pub(super) fn full_name(prefix: &str, name: &str, annotations: &[Annotation]) -> String {
    let own = annotated_name(annotations).unwrap_or_else(|| name.to_owned());
    match own.strip_prefix('.') {
        Some(absolute) => absolute.to_owned(),
        None if prefix.is_empty() => own,
        None => format!("{prefix}.{own}"),
    }
}

/// Returns what `@name` says.
pub(super) fn annotated_name(annotations: &[Annotation]) -> Option<String> {
    let name = annotations.iter().find(|a| a.name == "name")?;
    match &name.body {
        AnnotationBody::Tokens(tokens) => {
            let text = tokens.concat();
            Some(text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(&text).to_owned())
        }
        AnnotationBody::Values(values) => match values.as_slice() {
            [Value::String(name)] => Some(name.clone()),
            _ => None,
        },
        AnnotationBody::KeyValues(_) => None,
    }
}

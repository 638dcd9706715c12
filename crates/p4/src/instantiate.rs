//! The objects of a program: what `main` and the declarations at the top level bring into being.
//!
//! Parsers and controls of a checked program are templates. This walk instantiates them: each object has the arguments
//! of its constructor, and the name under which a controller knows it. What holds:
//! - An object's parent comes before it; `main` and what is declared at the top level have none.
//! - Parsers and controls that are arguments of a package have the names of their templates, whatever the objects are
//!   called; objects in them have these names in front of theirs. `@name` replaces an object's own name; with a leading
//!   dot, all of it.
//! - Objects, their depth and the length of their names are bounded: a small program can declare a great many.

use std::collections::HashMap;

use crate::constant::evaluate;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::hir::{
    Annotation, AnnotationBody, ControlId, Expr, ExprKind, Instance, InstanceId, ParserId, Program, Property,
    TableId, Type, Value, VarId,
};

/// Most objects of a program.
pub const MOST_OBJECTS: usize = 10_000;
/// Most parsers or controls inside each other.
pub const MOST_DEPTH: usize = 100;
/// Most bytes of an object's name.
pub const MOST_NAME: usize = 1024;

/// An object: an index into [`Objects`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u32);

/// An argument of a constructor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arg {
    /// A value.
    Value(Value),
    /// An object.
    Object(ObjectId),
    /// None, for an optional parameter.
    Absent,
}

/// An object.
#[derive(Debug, Clone)]
pub struct Object<'p> {
    /// Full name. A parser or control without a parent has the name of its template.
    pub name: String,
    /// Declaration, with type and annotations. Its arguments are unevaluated.
    pub instance: &'p Instance,
    /// Whether it has a declaration of its own, and is no argument or property.
    pub is_declared: bool,
    /// Arguments of the constructor.
    pub args: Vec<Arg>,
    /// Parser or control that contains it.
    pub parent: Option<ObjectId>,
    /// Property of a table that brings it into being: `implementation = action_profile(32)`.
    pub property: Option<&'p Property>,
    /// Values of the constructor's parameters, for parsers and controls.
    params: HashMap<VarId, Arg>,
    /// Objects declared in it.
    children: HashMap<InstanceId, ObjectId>,
    /// Objects in properties of its tables.
    properties: HashMap<(TableId, usize), ObjectId>,
}

impl<'p> Object<'p> {
    /// Annotations of its declaration, or of the property that brings it into being.
    pub fn annotations(&self) -> &'p [Annotation] {
        self.property.map_or(&self.instance.annotations, |property| &property.annotations)
    }

    /// The control's template, if this is one.
    pub fn control(&self) -> Option<ControlId> {
        if let Type::Control(id) = self.instance.ty { Some(id) } else { None }
    }

    /// The parser's template, if this is one.
    pub fn parser(&self) -> Option<ParserId> {
        if let Type::Parser(id) = self.instance.ty { Some(id) } else { None }
    }
}

/// The objects of a program.
#[derive(Debug, Clone, Default)]
pub struct Objects<'p> {
    list: Vec<Object<'p>>,
    globals: HashMap<InstanceId, ObjectId>,
    main: Option<ObjectId>,
}

impl<'p> Objects<'p> {
    /// Instantiates a program. Errors leave objects out.
    pub fn of(program: &'p Program, diagnostics: &mut Diagnostics) -> Objects<'p> {
        let mut walk = Walk { program, diagnostics, objects: Objects::default() };
        for id in program.globals.iter().copied().chain(program.main) {
            walk.global(id);
        }
        let mut objects = walk.objects;
        objects.main = program.main.and_then(|id| objects.globals.get(&id).copied());
        objects
    }

    /// The package that the program is.
    pub fn main(&self) -> Option<ObjectId> {
        self.main
    }

    /// An object.
    pub fn get(&self, id: ObjectId) -> Option<&Object<'p>> {
        self.list.get(id.0 as usize)
    }

    /// All objects, parents before what is in them.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectId, &Object<'p>)> {
        self.list.iter().enumerate().map(|(at, object)| (ObjectId(at as u32), object))
    }

    /// The argument for a constructor's parameter, seen from a parser or control.
    pub fn param(&self, scope: ObjectId, var: VarId) -> Option<&Arg> {
        self.get(scope)?.params.get(&var)
    }

    /// The value of an expression in a parser or control, if it is known once the constructor has its arguments.
    pub fn value(&self, scope: ObjectId, expr: &Expr) -> Option<Value> {
        self.value_in(Some(scope), expr)
    }

    /// The object that an expression in a parser or control names.
    pub fn object(&self, scope: ObjectId, expr: &Expr) -> Option<ObjectId> {
        self.object_in(Some(scope), expr)
    }

    /// The object that a property of a table brings into being or names, by the property's position.
    pub fn property(&self, scope: ObjectId, table: TableId, at: usize, value: &Expr) -> Option<ObjectId> {
        self.get(scope)?.properties.get(&(table, at)).copied().or_else(|| self.object(scope, value))
    }

    fn value_in(&self, scope: Option<ObjectId>, expr: &Expr) -> Option<Value> {
        evaluate(expr, &|var| match self.param(scope?, var)? {
            Arg::Value(value) => Some(value.clone()),
            Arg::Object(_) | Arg::Absent => None,
        })
    }

    fn object_in(&self, scope: Option<ObjectId>, expr: &Expr) -> Option<ObjectId> {
        match &expr.kind {
            ExprKind::Instance(id) => {
                let child =
                    scope.and_then(|scope| self.get(scope)).and_then(|object| object.children.get(id));
                child.or_else(|| self.globals.get(id)).copied()
            }
            ExprKind::Var(var) => match self.param(scope?, *var)? {
                Arg::Object(id) => Some(*id),
                Arg::Value(_) | Arg::Absent => None,
            },
            _ => None,
        }
    }
}

/// The name that `@name` gives, or else the declared one.
pub fn own_name<'a>(annotations: &'a [Annotation], declared: &'a str) -> &'a str {
    name_annotation(annotations).unwrap_or(declared)
}

/// The name that `@name` gives.
pub fn name_annotation(annotations: &[Annotation]) -> Option<&str> {
    let annotation = annotations.iter().find(|annotation| annotation.name == "name")?;
    match &annotation.body {
        AnnotationBody::Tokens(tokens) => match tokens.as_slice() {
            [token] => token.strip_prefix('"')?.strip_suffix('"'),
            _ => None,
        },
        AnnotationBody::Values(values) => match values.as_slice() {
            [Value::String(name)] => Some(name),
            _ => None,
        },
        AnnotationBody::KeyValues(_) => None,
    }
}

/// A name in a scope: behind the scope's, unless it starts with a dot.
pub fn full_name(scope: Option<&str>, name: &str) -> String {
    match (name.strip_prefix('.'), scope) {
        (Some(global), _) => global.to_owned(),
        (None, Some(scope)) => format!("{scope}.{name}"),
        (None, None) => name.to_owned(),
    }
}

struct Walk<'p, 'd> {
    program: &'p Program,
    diagnostics: &'d mut Diagnostics,
    objects: Objects<'p>,
}

impl<'p> Walk<'p, '_> {
    /// The object of a declaration at the top level, brought into being when it is first met.
    fn global(&mut self, id: InstanceId) -> Option<ObjectId> {
        if let Some(object) = self.objects.globals.get(&id) {
            return Some(*object);
        }
        let instance = self.program.instances.get(id.index())?;
        let name = match instance.ty {
            Type::Parser(id) => self.program.parsers.get(id.index())?.name.clone(),
            Type::Control(id) => self.program.controls.get(id.index())?.name.clone(),
            _ => full_name(None, own_name(&instance.annotations, &instance.name)),
        };
        let object = self.build(instance, name, None, None, 0)?;
        self.declared(object);
        self.objects.globals.insert(id, object);
        Some(object)
    }

    /// Brings an object into being, and those in it. `scope` is where its arguments are evaluated.
    fn build(
        &mut self,
        instance: &'p Instance,
        name: String,
        scope: Option<ObjectId>,
        parent: Option<ObjectId>,
        depth: usize,
    ) -> Option<ObjectId> {
        let refusal = if depth > MOST_DEPTH {
            Some(format!("objects are nested more than {MOST_DEPTH} deep"))
        } else if self.objects.list.len() >= MOST_OBJECTS {
            Some(format!("the program has more than {MOST_OBJECTS} objects"))
        } else if name.len() > MOST_NAME {
            Some(format!("the name of an object has {} bytes (at most {MOST_NAME})", name.len()))
        } else {
            None
        };
        if let Some(message) = refusal {
            self.diagnostics.push(Diagnostic::error(instance.span, message));
            return None;
        }
        let id = ObjectId(u32::try_from(self.objects.list.len()).ok()?);
        self.objects.list.push(Object {
            name: name.clone(),
            instance,
            is_declared: false,
            args: Vec::new(),
            parent,
            property: None,
            params: HashMap::new(),
            children: HashMap::new(),
            properties: HashMap::new(),
        });
        let args = self.args(instance, id, &name, scope, depth);
        let program = self.program;
        let (params, instances): (&[VarId], &[InstanceId]) = match instance.ty {
            Type::Parser(id) => {
                program.parsers.get(id.index()).map_or((&[], &[]), |p| (&p.constructor, &p.instances))
            }
            Type::Control(id) => {
                program.controls.get(id.index()).map_or((&[], &[]), |c| (&c.constructor, &c.instances))
            }
            _ => (&[], &[]),
        };
        let bound = params.iter().copied().zip(args.iter().cloned()).collect();
        if let Some(object) = self.objects.list.get_mut(id.0 as usize) {
            object.args = args;
            object.params = bound;
        }
        for inner in instances {
            let Some(declaration) = program.instances.get(inner.index()) else { continue };
            let inner_name = full_name(Some(&name), own_name(&declaration.annotations, &declaration.name));
            let child = self.build(declaration, inner_name, Some(id), Some(id), depth + 1);
            if let (Some(child), Some(object)) = (child, self.objects.list.get_mut(id.0 as usize)) {
                object.children.insert(*inner, child);
                self.declared(child);
            }
        }
        if let Type::Control(control) = instance.ty {
            self.properties(control, id, &name, depth);
        }
        Some(id)
    }

    fn declared(&mut self, id: ObjectId) {
        if let Some(object) = self.objects.list.get_mut(id.0 as usize) {
            object.is_declared = true;
        }
    }

    /// Evaluates the arguments of an object. Objects among them that have no declaration are named after parameters.
    fn args(
        &mut self,
        instance: &'p Instance,
        id: ObjectId,
        name: &str,
        scope: Option<ObjectId>,
        depth: usize,
    ) -> Vec<Arg> {
        let mut args = Vec::with_capacity(instance.args.len());
        for (at, arg) in instance.args.iter().enumerate() {
            let value = match &arg.kind {
                ExprKind::Absent => Some(Arg::Absent),
                ExprKind::New(inner) => {
                    let (inner_name, parent) = self.argument_name(instance, inner, id, name, at);
                    self.build(inner, inner_name, scope, parent, depth + 1).map(Arg::Object)
                }
                ExprKind::Instance(declaration) if scope.is_none() => {
                    self.global(*declaration).map(Arg::Object)
                }
                _ => {
                    let object = self.objects.object_in(scope, arg).map(Arg::Object);
                    let value = object.or_else(|| self.objects.value_in(scope, arg).map(Arg::Value));
                    if value.is_none() {
                        let message = format!(
                            "argument {} of `{}` is not known at compile time",
                            at + 1,
                            instance.name
                        );
                        self.diagnostics.push(Diagnostic::error(arg.span, message));
                    }
                    value
                }
            };
            args.push(value.unwrap_or(Arg::Absent));
        }
        args
    }

    /// Name and parent of an object that is an argument of another.
    fn argument_name(
        &self,
        of: &Instance,
        inner: &Instance,
        id: ObjectId,
        name: &str,
        at: usize,
    ) -> (String, Option<ObjectId>) {
        let constructor = match of.ty {
            Type::Parser(id) => self.program.parsers.get(id.index()).map(|parser| &parser.constructor),
            Type::Control(id) => self.program.controls.get(id.index()).map(|control| &control.constructor),
            _ => None,
        };
        if let Some(constructor) = constructor {
            let param = constructor.get(at).and_then(|var| self.program.vars.get(var.index()));
            let own = param.map_or(inner.name.as_str(), |var| &var.name);
            return (full_name(Some(name), own), Some(id));
        }
        let template = match inner.ty {
            Type::Parser(id) => self.program.parsers.get(id.index()).map(|parser| &parser.name),
            Type::Control(id) => self.program.controls.get(id.index()).map(|control| &control.name),
            _ => None,
        };
        (template.unwrap_or(&inner.name).clone(), None)
    }

    /// Brings the objects in properties of a control's tables into being.
    fn properties(&mut self, control: ControlId, id: ObjectId, name: &str, depth: usize) {
        let program = self.program;
        let tables = program.controls.get(control.index()).map_or(&[][..], |control| &control.tables);
        for table_id in tables {
            let Some(table) = program.tables.get(table_id.index()) else { continue };
            for (at, property) in table.properties.iter().enumerate() {
                let ExprKind::New(instance) = &property.value.kind else { continue };
                // The name of a property is not in the control's scope.
                let inner_name = match name_annotation(&property.annotations) {
                    Some(given) => full_name(None, given),
                    None => {
                        let table_name = full_name(Some(name), own_name(&table.annotations, &table.name));
                        full_name(Some(&table_name), &property.name)
                    }
                };
                let built = self.build(instance, inner_name, Some(id), Some(id), depth + 1);
                let Some(built) = built else { continue };
                if let Some(object) = self.objects.list.get_mut(built.0 as usize) {
                    object.property = Some(property);
                }
                if let Some(control) = self.objects.list.get_mut(id.0 as usize) {
                    control.properties.insert((*table_id, at), built);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! What of a program a controller can address: found by a walk from `main` over what is applied.
//!
//! Tables that are never applied are left out, as are actions that no applied table lists and no control calls, and all
//! that is in parsers and controls that are never applied. Extern objects are listed whether they are used or not. The
//! walk is bounded: many objects can share one body.

use std::collections::{HashMap, HashSet};

use super::arch::Arch;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::hir::{
    Action, ActionId, Call, Callee, Expr, ExprKind, FunctionId, Program, Stmt, StmtKind, Table, TableId,
    Type, Value, ValueSet,
};
use crate::instantiate::{Arg, MOST_NAME, ObjectId, Objects, full_name, own_name};
use crate::source::{Sources, Span};

/// Most tables, actions and value sets.
const MOST_ITEMS: usize = 1 << 16;
/// Most statements and expressions that the walk meets.
const MOST_STEPS: usize = 1 << 24;

/// A table that is applied.
pub(super) struct AppliedTable<'p> {
    /// Full name.
    pub(super) name: String,
    /// Control that contains it.
    pub(super) scope: ObjectId,
    /// Number of the declaration.
    pub(super) id: TableId,
    /// The declaration.
    pub(super) item: &'p Table,
}

/// An action that an applied table lists, or that a control calls.
pub(super) struct UsedAction<'p> {
    /// Full name.
    pub(super) name: String,
    /// The declaration.
    pub(super) item: &'p Action,
    /// Whether only controls call it, so that entries give it no arguments.
    pub(super) is_called: bool,
}

/// A value set with its name.
pub(super) struct Named<'p, T> {
    /// Full name.
    pub(super) name: String,
    /// Control or parser that contains it.
    pub(super) scope: ObjectId,
    /// The declaration.
    pub(super) item: &'p T,
}

/// What a controller can address.
#[derive(Default)]
pub(super) struct Inventory<'p> {
    /// Tables.
    pub(super) tables: Vec<AppliedTable<'p>>,
    /// Actions, one of each name.
    pub(super) actions: Vec<UsedAction<'p>>,
    /// Value sets.
    pub(super) value_sets: Vec<Named<'p, ValueSet>>,
    /// Extern objects that are declared.
    pub(super) externs: Vec<ObjectId>,
    /// Types that are sent by calls of an extern function.
    pub(super) digests: Vec<&'p Type>,
    /// Whether a control calls an extern function.
    pub(super) calls_extern_functions: bool,
}

impl<'p> Inventory<'p> {
    /// Walks a program.
    pub(super) fn of(
        program: &'p Program,
        sources: &Sources,
        objects: &Objects<'p>,
        arch: &Arch,
        diagnostics: &mut Diagnostics,
    ) -> Inventory<'p> {
        let mut walk = Walk {
            program,
            sources,
            objects,
            arch,
            inventory: Inventory::default(),
            containers: HashSet::new(),
            tables: HashSet::new(),
            actions: HashSet::new(),
            action_names: HashMap::new(),
            clashes: Vec::new(),
            called: Vec::new(),
            functions: HashSet::new(),
            place: Place::Control,
            steps: 0,
            refusal: None,
        };
        if let Some(main) = objects.main() {
            walk.arguments(main);
        }
        walk.called_actions();
        for (id, object) in objects.iter() {
            let is_reached = object.parent.is_none_or(|parent| walk.containers.contains(&parent));
            if is_reached && object.property.is_none() && matches!(object.instance.ty, Type::Extern(..)) {
                walk.inventory.externs.push(id);
            }
        }
        walk.clashes.into_iter().chain(walk.refusal).for_each(|d| diagnostics.push(d));
        walk.inventory
    }
}

/// Where the walk is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Parser,
    Control,
    Action,
}

struct Walk<'p, 'a> {
    program: &'p Program,
    sources: &'a Sources,
    objects: &'a Objects<'p>,
    arch: &'a Arch,
    inventory: Inventory<'p>,
    /// Parsers and controls that are applied.
    containers: HashSet<ObjectId>,
    tables: HashSet<(ObjectId, TableId)>,
    /// Actions whose bodies were met.
    actions: HashSet<(ObjectId, ActionId)>,
    /// Declarations of the actions listed.
    action_names: HashMap<String, ActionId>,
    /// Actions of one name.
    clashes: Vec<Diagnostic>,
    /// Actions that control bodies call.
    called: Vec<(ObjectId, ActionId)>,
    functions: HashSet<FunctionId>,
    place: Place,
    steps: usize,
    /// Why the walk ended early.
    refusal: Option<Diagnostic>,
}

impl<'p> Walk<'p, '_> {
    /// Parsers and controls that are arguments of a package are applied by the architecture.
    fn arguments(&mut self, package: ObjectId) {
        let objects = self.objects;
        for arg in objects.get(package).map_or(&[][..], |object| &object.args) {
            let Arg::Object(id) = arg else { continue };
            match objects.get(*id).map(|object| &object.instance.ty) {
                Some(Type::Package(_)) => self.arguments(*id),
                _ => self.container(*id),
            }
        }
    }

    /// Walks a parser or control that is applied.
    fn container(&mut self, id: ObjectId) {
        let program = self.program;
        let Some(object) = self.objects.get(id) else { return };
        match object.instance.ty {
            Type::Control(control) => {
                let Some(control) = program.controls.get(control.index()) else { return };
                if self.containers.insert(id) {
                    let before = std::mem::replace(&mut self.place, Place::Control);
                    self.stmts(&control.locals, id);
                    self.stmts(&control.body, id);
                    self.place = before;
                }
            }
            Type::Parser(parser) => {
                let Some(parser) = program.parsers.get(parser.index()) else { return };
                if !self.containers.insert(id) {
                    return;
                }
                for value_set in &parser.value_sets {
                    let Some(item) = program.value_sets.get(value_set.index()) else { continue };
                    let name = full_name(Some(&object.name), own_name(&item.annotations, &item.name));
                    if self.admits(&name, item.span) {
                        self.inventory.value_sets.push(Named { name, scope: id, item });
                    }
                }
                let before = std::mem::replace(&mut self.place, Place::Parser);
                self.stmts(&parser.locals, id);
                for state in &parser.states {
                    self.stmts(&state.body, id);
                }
                self.place = before;
            }
            _ => {}
        }
    }

    /// Lists a table that is applied, and its actions.
    fn table(&mut self, id: TableId, scope: ObjectId) {
        let program = self.program;
        let (Some(item), Some(object)) = (program.tables.get(id.index()), self.objects.get(scope)) else {
            return;
        };
        if !self.tables.insert((scope, id)) {
            return;
        }
        let name = full_name(Some(&object.name), own_name(&item.annotations, &item.name));
        if !self.admits(&name, item.span) {
            return;
        }
        self.inventory.tables.push(AppliedTable { name, scope, id, item });
        for key in &item.keys {
            self.expr(&key.value, scope);
        }
        for action in &item.actions {
            action.call.args.iter().for_each(|arg| self.expr(arg, scope));
            let id = action.call.action;
            self.list_action(id, scope, false);
            self.action(id, scope);
        }
    }

    /// Lists an action unless it is there.
    fn list_action(&mut self, id: ActionId, scope: ObjectId, is_called: bool) {
        let Some(item) = self.program.actions.get(id.index()) else { return };
        let name = action_name(self.program, self.objects, scope, id);
        if let Some(known) = self.action_names.get(&name) {
            // Programs that were translated from P4-14 declare one action in each control that uses it.
            if *known != id && !self.are_alike(*known, id) {
                let message =
                    format!("two actions have the name `{name}`: a controller cannot tell them apart");
                let help = "Give one of them another name with `@name`.";
                self.clashes.push(Diagnostic::error(item.span, message).help(help));
            }
        } else if self.admits(&name, item.span) {
            self.action_names.insert(name.clone(), id);
            self.inventory.actions.push(UsedAction { name, item, is_called });
        }
    }

    /// Whether two actions have the same parameters and the same body, as written.
    fn are_alike(&self, one: ActionId, other: ActionId) -> bool {
        let written = |id: ActionId| {
            let action = self.program.actions.get(id.index())?;
            let text = self.sources.text(action.span);
            // The annotations before it may have the name, too.
            text.match_indices(action.name.as_str()).find_map(|(at, name)| {
                let is_declared = text.get(..at)?.trim_end().ends_with("action");
                let behind = text.get(at + name.len()..)?.trim_start();
                let words = || behind.split_whitespace().collect::<Vec<_>>();
                (is_declared && behind.starts_with('(')).then(words)
            })
        };
        written(one).is_some_and(|text| written(other) == Some(text))
    }

    /// Lists the actions that controls call and no table has.
    fn called_actions(&mut self) {
        for (scope, id) in std::mem::take(&mut self.called) {
            self.list_action(id, scope, true);
        }
    }

    /// Walks an action's body.
    fn action(&mut self, id: ActionId, scope: ObjectId) {
        let Some(action) = self.program.actions.get(id.index()) else { return };
        if self.actions.insert((scope, id)) {
            let before = std::mem::replace(&mut self.place, Place::Action);
            self.stmts(&action.body, scope);
            self.place = before;
        }
    }

    /// Whether there is room for an item of a name.
    fn admits(&mut self, name: &str, span: Span) -> bool {
        let items =
            self.inventory.tables.len() + self.inventory.actions.len() + self.inventory.value_sets.len();
        let message = if name.len() > MOST_NAME {
            format!("a name has {} bytes (at most {MOST_NAME})", name.len())
        } else if items >= MOST_ITEMS {
            format!("the program has more than {MOST_ITEMS} tables, actions and value sets")
        } else {
            return true;
        };
        self.refusal.get_or_insert_with(|| Diagnostic::error(span, message));
        false
    }

    /// Counts a step of the walk; false once there were too many.
    fn step(&mut self, span: Span) -> bool {
        self.steps += 1;
        if self.steps > MOST_STEPS && self.refusal.is_none() {
            let message = "the program is too large: its parsers and controls are instantiated too often";
            self.refusal = Some(Diagnostic::error(span, message));
        }
        self.refusal.is_none()
    }

    fn stmts(&mut self, stmts: &'p [Stmt], scope: ObjectId) {
        for stmt in stmts {
            if !self.step(stmt.span) {
                return;
            }
            match &stmt.kind {
                StmtKind::Declare(_, None) | StmtKind::Break | StmtKind::Continue | StmtKind::Exit => {}
                StmtKind::Declare(_, Some(value)) => self.expr(value, scope),
                StmtKind::Assign(place, value) | StmtKind::AssignOp(_, place, value) => {
                    self.expr(place, scope);
                    self.expr(value, scope);
                }
                StmtKind::Call(call) => self.call(call, scope),
                StmtKind::If(condition, then, otherwise) => match self.objects.value(scope, condition) {
                    Some(Value::Bool(true)) => self.stmts(then, scope),
                    Some(Value::Bool(false)) => self.stmts(otherwise, scope),
                    _ => {
                        self.expr(condition, scope);
                        self.stmts(then, scope);
                        self.stmts(otherwise, scope);
                    }
                },
                StmtKind::Block(_, body) => self.stmts(body, scope),
                StmtKind::Return(value) => {
                    if let Some(value) = value {
                        self.expr(value, scope);
                    }
                    return;
                }
                StmtKind::SwitchAction(call, cases, default) => {
                    self.call(call, scope);
                    for (_, body) in cases {
                        self.stmts(body, scope);
                    }
                    self.stmts(default, scope);
                }
                StmtKind::Switch(value, cases, default) => {
                    self.expr(value, scope);
                    for (_, body) in cases {
                        self.stmts(body, scope);
                    }
                    self.stmts(default, scope);
                }
                StmtKind::For { init, condition, update, body } => {
                    self.stmts(init, scope);
                    self.expr(condition, scope);
                    self.stmts(body, scope);
                    self.stmts(update, scope);
                }
                StmtKind::ForRange(_, from, to, body) => {
                    self.expr(from, scope);
                    self.expr(to, scope);
                    self.stmts(body, scope);
                }
                StmtKind::ForEach(_, collection, body) => {
                    self.expr(collection, scope);
                    self.stmts(body, scope);
                }
            }
        }
    }

    fn expr(&mut self, expr: &'p Expr, scope: ObjectId) {
        if !self.step(expr.span) {
            return;
        }
        match &expr.kind {
            ExprKind::Const(_)
            | ExprKind::Var(_)
            | ExprKind::Instance(_)
            | ExprKind::New(_)
            | ExprKind::Absent
            | ExprKind::Invalid => {}
            ExprKind::Field(inner, _)
            | ExprKind::Index(inner, _)
            | ExprKind::Next(inner)
            | ExprKind::Last(inner)
            | ExprKind::LastIndex(inner)
            | ExprKind::Valid(inner)
            | ExprKind::Slice(inner, _, _)
            | ExprKind::Unary(_, inner)
            | ExprKind::Cast(inner) => self.expr(inner, scope),
            ExprKind::Element(inner, at) => {
                self.expr(inner, scope);
                self.expr(at, scope);
            }
            ExprKind::Binary(_, sides) => {
                self.expr(&sides.0, scope);
                self.expr(&sides.1, scope);
            }
            ExprKind::Mux(parts) => {
                self.expr(&parts.0, scope);
                self.expr(&parts.1, scope);
                self.expr(&parts.2, scope);
            }
            ExprKind::Aggregate(parts) => parts.iter().for_each(|part| self.expr(part, scope)),
            ExprKind::Call(call) | ExprKind::Hit(call) | ExprKind::Miss(call) => self.call(call, scope),
        }
    }

    fn call(&mut self, call: &'p Call, scope: ObjectId) {
        for arg in &call.args {
            self.expr(arg, scope);
        }
        match &call.callee {
            Callee::Function(id) => {
                let function = self.program.functions.get(id.index());
                if let (Some(function), true) = (function, self.functions.insert(*id)) {
                    self.stmts(&function.body, scope);
                }
            }
            Callee::Action(id) => {
                // What actions call becomes part of them.
                if self.place == Place::Control {
                    self.called.push((scope, *id));
                }
                self.action(*id, scope);
            }
            Callee::Extern(_) if self.place == Place::Parser => {}
            Callee::Extern(name) => {
                self.inventory.calls_extern_functions = true;
                if self.arch.digest_function == Some(name.as_str()) {
                    self.inventory.digests.extend(call.type_args.first());
                }
            }
            Callee::Method(object, _) => self.expr(object, scope),
            Callee::Apply(object) => {
                if let Some(object) = self.objects.object(scope, object) {
                    self.container(object);
                }
            }
            Callee::Table(id) => self.table(*id, scope),
            Callee::SetValid(place)
            | Callee::SetInvalid(place)
            | Callee::PushFront(place, _)
            | Callee::PopFront(place, _) => self.expr(place, scope),
        }
    }
}

/// The full name of an action, seen from a control.
pub(super) fn action_name(program: &Program, objects: &Objects<'_>, scope: ObjectId, id: ActionId) -> String {
    let Some(action) = program.actions.get(id.index()) else { return String::new() };
    let scope = action.control.and_then(|_| objects.get(scope)).map(|object| object.name.as_str());
    full_name(scope, own_name(&action.annotations, &action.name))
}

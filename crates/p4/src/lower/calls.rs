//! Inlining: the statements of what is called, with its parameters in places.
//!
//! A parameter is its argument's place itself where no difference can be seen: in calls of functions, parsers and
//! controls, which see nothing of their callers, unless two arguments share storage and one of them is written. Actions
//! see their control's variables, so theirs are copied. So are those of an object that is applied in several places:
//! its tables' keys have one place.

use pipeline::ir;

use super::leave::leaves;
use super::objects::ObjectId;
use super::storage::{Leaf, Store, is_fixed};
use super::types::base;
use super::value::{Val, has_effects};
use super::{Binding, Lower, Scope};
use crate::hir::{Call, Callee, ControlId, Direction, Expr, ExprKind, Stmt, StmtKind, Type, VarId};
use crate::source::Span;

/// A body that is being inlined, or a loop.
#[derive(Debug, Default)]
pub(super) struct Frame<'h> {
    /// Kind.
    pub(super) kind: FrameKind,
    /// Whether it is a block or action of its own, which the pipeline's `return` ends.
    pub(super) native: bool,
    /// Set once it has been left, if something waits for that.
    pub(super) flag: Option<ir::VarId>,
    /// Where the result goes.
    pub(super) result: Option<(Store, &'h Type)>,
    /// Places that parameters are copied to at the end: argument, parameter, type.
    pub(super) copies: Vec<(Store, Store, &'h Type)>,
}

/// Kinds of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum FrameKind {
    /// Function, action, parser or control: `return` leaves it.
    #[default]
    Body,
    /// Loop: `break` leaves it.
    Loop,
    /// Round of a loop: `continue` leaves it.
    Round,
}

/// Deepest nesting of inlined calls.
const DEEPEST: usize = 200;

/// Whether parameters may stand for their arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passing {
    Alias,
    Copy,
}

impl<'h> Lower<'h> {
    /// Lowers a call; returns its result.
    pub(super) fn call(&mut self, call: &'h Call, result: &'h Type) -> Val {
        if !self.take_step() {
            return Val::Nothing;
        }
        match &call.callee {
            Callee::Function(id) => {
                let Some(function) = self.hir.functions.get(id.index()) else { return Val::Nothing };
                let place = match &function.result {
                    Type::Void => None,
                    ty => Some((self.allocate(&function.name, ty, call.span), ty)),
                };
                let value = place.as_ref().map_or(Val::Nothing, |(store, _)| Val::Store(store.clone()));
                let copies = self.pass(&function.params, call, Passing::Alias, None);
                self.frame(Frame { result: place, copies, ..Frame::default() }, &function.body);
                value
            }
            Callee::Action(id) => {
                let Some(action) = self.hir.actions.get(id.index()) else { return Val::Nothing };
                let copies = self.pass(&action.params, call, Passing::Copy, None);
                self.frame(Frame { copies, ..Frame::default() }, &action.body);
                Val::Nothing
            }
            Callee::Extern(name) => self.extern_function(name, call, result),
            Callee::Method(object, name) => self.method(object, name, call, result),
            Callee::Apply(object) => {
                self.apply_object(object, call);
                Val::Nothing
            }
            Callee::Table(_) => {
                self.apply(call, ir::Applied::default());
                Val::Nothing
            }
            Callee::SetValid(header) => {
                if let Store::Header(header, _) = self.place(header) {
                    self.emit(ir::Stmt::SetValid(header));
                }
                Val::Nothing
            }
            Callee::SetInvalid(header) => {
                let place = self.place(header);
                self.invalidate(&place);
                Val::Nothing
            }
            Callee::PushFront(stack, count) | Callee::PopFront(stack, count) => {
                if let Store::Stack(id, _) = self.place(stack) {
                    self.emit(match &call.callee {
                        Callee::PushFront(..) => ir::Stmt::Push(id, *count),
                        _ => ir::Stmt::Pop(id, *count),
                    });
                }
                Val::Nothing
            }
        }
    }

    /// Lowers an inlined body.
    pub(super) fn frame(&mut self, frame: Frame<'h>, body: &'h [Stmt]) {
        if self.frames.len() >= DEEPEST {
            let span = body.first().map_or_else(Span::default, |stmt| stmt.span);
            return self.unsupported(span, format!("calls nested deeper than {DEEPEST} are"));
        }
        // Loops of the caller end here: `break` cannot leave them from inside.
        self.frames.push(frame);
        let before = self.scope;
        self.body(body);
        self.scope = before;
        let top = self.frames.len().saturating_sub(1);
        self.copy_out(top);
        self.frames.pop();
    }

    /// Copies the parameters of a frame to their arguments.
    pub(super) fn copy_out(&mut self, frame: usize) {
        let Some(frame) = self.frames.get(frame) else { return };
        let copies = frame.copies.clone();
        for (argument, parameter, ty) in copies {
            self.assign(&argument, &Val::Store(parameter), ty, Span::default());
        }
    }

    /// Binds parameters to arguments; returns what is copied at the end. An object's parameters keep their places.
    fn pass(
        &mut self,
        params: &'h [VarId],
        call: &'h Call,
        passing: Passing,
        object: Option<ObjectId>,
    ) -> Vec<(Store, Store, &'h Type)> {
        let last_effect = call.args.iter().rposition(has_effects).unwrap_or(0);
        // Arguments are evaluated before any parameter is bound: a call may be an argument of the same function's.
        let mut evaluated = Vec::new();
        for (i, (param, arg)) in params.iter().zip(&call.args).enumerate() {
            let Some(var) = self.hir.vars.get(param.index()) else { continue };
            let direction = call.directions.get(i).copied().unwrap_or(Direction::None);
            let argument = match &var.ty {
                Type::Extern(..)
                | Type::Parser(_)
                | Type::Control(_)
                | Type::Abstract(_)
                | Type::Package(_) => self.object_argument(arg),
                _ if matches!(arg.kind, ExprKind::Absent) => Passed::Absent,
                _ => match direction {
                    Direction::Out | Direction::InOut => {
                        let place = self.place(arg);
                        Passed::Place(if i < last_effect { self.fixed(place) } else { place })
                    }
                    Direction::In | Direction::None => {
                        let value = self.value(arg);
                        Passed::Value(if i < last_effect {
                            self.save(value, &arg.ty, arg.span)
                        } else {
                            value
                        })
                    }
                },
            };
            evaluated.push((*param, var, direction, argument));
        }
        let alone: Vec<bool> = (0..evaluated.len()).map(|i| self.is_alone(&evaluated, i)).collect();
        let mut copies = Vec::new();
        let mut bound = Vec::new();
        for ((param, var, direction, argument), alone) in evaluated.into_iter().zip(alone) {
            let alias = passing == Passing::Alias && alone;
            let binding = match argument {
                Passed::Packet => Binding::Packet,
                Passed::Object(object) => Binding::Object(object),
                Passed::Value(value) => match value {
                    Val::Store(store) if alias && is_fixed(&store) => {
                        self.alias(object, param, store, call.span)
                    }
                    Val::Number(ir::Expr::Const(_)) | Val::Nothing | Val::Invalid
                        if passing == Passing::Alias =>
                    {
                        Binding::Val(value)
                    }
                    value => {
                        let store = self.parameter(var, param, object);
                        self.assign(&store, &value, &var.ty, call.span);
                        Binding::Store(store)
                    }
                },
                Passed::Place(place) if alias && is_fixed(&place) && !is_slice(&place) => {
                    if direction == Direction::Out {
                        self.invalidate(&place);
                    }
                    self.alias(object, param, place, call.span)
                }
                Passed::Place(place) => {
                    let store = self.parameter(var, param, object);
                    let place = self.fixed(place);
                    match direction {
                        Direction::InOut => {
                            self.assign(&store, &Val::Store(place.clone()), &var.ty, call.span)
                        }
                        _ => self.invalidate(&store),
                    }
                    copies.push((place, store.clone(), &var.ty));
                    Binding::Store(store)
                }
                Passed::Absent => {
                    let store = self.parameter(var, param, object);
                    self.invalidate(&store);
                    Binding::Store(store)
                }
            };
            bound.push((param, binding));
        }
        self.bindings.extend(bound);
        copies
    }

    /// Storage of a copied parameter: the same for every call below one object, since no call is inside itself.
    fn parameter(&mut self, var: &crate::hir::Var, param: VarId, object: Option<ObjectId>) -> Store {
        self.local(object.or(self.here), param, &var.name, &var.ty, var.span)
    }

    /// Storage of a variable of an object: the same however often the object is applied, as its tables refer to it.
    pub(super) fn local(
        &mut self,
        object: Option<ObjectId>,
        var: VarId,
        name: &str,
        ty: &Type,
        span: Span,
    ) -> Store {
        if let Some(store) = self.locals.get(&(object, var)) {
            return store.clone();
        }
        let path = object.and_then(|id| self.objects.get(id.0)).map_or("", |object| object.name.as_str());
        let name = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let store = self.allocate(&name, ty, span);
        self.locals.insert((object, var), store.clone());
        store
    }

    /// Binds a parameter of an object to its argument's place; later calls must have the same argument.
    fn alias(&mut self, object: Option<ObjectId>, param: VarId, place: Store, span: Span) -> Binding {
        if let Some(id) = object {
            match self.aliases.get(&(id, param)) {
                Some(before) if self.leaves(before) != self.leaves(&place) => {
                    self.unsupported(
                        span,
                        "applying an object again with other arguments, inside one that is, is",
                    );
                }
                _ => {
                    self.aliases.insert((id, param), place.clone());
                }
            }
        }
        Binding::Store(place)
    }

    fn object_argument(&self, arg: &Expr) -> Passed {
        if let ExprKind::Var(var) = &arg.kind
            && matches!(self.bindings.get(var), Some(Binding::Packet))
        {
            return Passed::Packet;
        }
        self.object(arg).map_or(Passed::Absent, Passed::Object)
    }

    /// Whether an argument shares no storage with another, of which one is written.
    fn is_alone(&self, all: &[(VarId, &crate::hir::Var, Direction, Passed)], index: usize) -> bool {
        let leaves = |passed: &Passed| -> Vec<Leaf> {
            match passed {
                Passed::Place(store) | Passed::Value(Val::Store(store)) => self.leaves(store),
                _ => Vec::new(),
            }
        };
        let writes = |direction| matches!(direction, Direction::Out | Direction::InOut);
        let Some((_, _, direction, passed)) = all.get(index) else { return true };
        let own = leaves(passed);
        !all.iter().enumerate().any(|(i, (_, _, other_direction, other))| {
            i != index
                && (writes(*direction) || writes(*other_direction))
                && leaves(other).iter().any(|leaf| own.contains(leaf))
        })
    }

    /// Lowers `apply` of a parser or control.
    fn apply_object(&mut self, object: &'h Expr, call: &'h Call) {
        let Some(id) = self.object(object) else {
            self.unsupported(call.span, "this call of `apply` is");
            return;
        };
        let Some(instance) = self.objects.get(id.0).map(|object| object.instance) else { return };
        match base(&instance.ty) {
            Type::Control(control) => self.apply_control(id, *control, call),
            Type::Parser(parser) => {
                let Some(parser) = self.hir.parsers.get(parser.index()) else { return };
                self.bind_constructor(id);
                let copies = self.pass(&parser.params, call, Passing::Alias, None);
                self.frames.push(Frame { copies, ..Frame::default() });
                let before = self.here.replace(id);
                self.sub_parser(id, parser, call.span);
                self.here = before;
                let top = self.frames.len().saturating_sub(1);
                self.copy_out(top);
                self.frames.pop();
            }
            _ => self.unsupported(call.span, "`apply` of this object is"),
        }
    }

    fn apply_control(&mut self, id: ObjectId, control: ControlId, call: &'h Call) {
        let Some(control) = self.hir.controls.get(control.index()) else { return };
        let again = self.objects.get(id.0).is_some_and(|object| object.applied > 0);
        let again = again && self.aliases.keys().all(|(object, _)| *object != id);
        let several = again || self.is_applied_again(id, call);
        let passing = if several { Passing::Copy } else { Passing::Alias };
        let copies = self.pass(&control.params, call, passing, Some(id));
        if let Some(object) = self.objects.get_mut(id.0) {
            object.applied += 1;
        }
        self.control_body(id, copies);
    }

    /// Lowers the body of a control whose parameters are bound.
    pub(super) fn control_body(&mut self, id: ObjectId, copies: Vec<(Store, Store, &'h Type)>) {
        let Some(Type::Control(control)) = self.objects.get(id.0).map(|object| &object.instance.ty) else {
            return;
        };
        let Some(control) = self.hir.controls.get(control.index()) else { return };
        self.bind_constructor(id);
        let before = self.here.replace(id);
        self.frames.push(Frame { copies, ..Frame::default() });
        self.body(&control.locals);
        if self.scope == Scope::Control && leaves(&control.body).leaves(FrameKind::Body) {
            // A block of its own: the pipeline's `return` ends it.
            let name = self.objects.get(id.0).map_or(String::new(), |object| object.name.clone());
            let name = self.unique(&format!("{name}.apply"));
            let block = self.out.declare_block(&name);
            let code = self.apart(Scope::Control, |lower| lower.native(&control.body));
            self.out.define_block(block, code);
            self.emit(ir::Stmt::Call(block));
        } else {
            self.body(&control.body);
        }
        let top = self.frames.len().saturating_sub(1);
        self.copy_out(top);
        self.frames.pop();
        self.here = before;
    }

    /// Lowers a body that the pipeline's `return` ends.
    pub(super) fn native(&mut self, body: &'h [Stmt]) {
        self.frames.push(Frame { native: true, ..Frame::default() });
        self.body(body);
        self.frames.pop();
    }

    /// Whether an object is applied elsewhere in the body of the control that declares it.
    fn is_applied_again(&self, id: ObjectId, call: &'h Call) -> bool {
        let Some(parent) = self.objects.get(id.0).and_then(|object| object.parent) else { return true };
        let Some(Type::Control(control)) = self.objects.get(parent.0).map(|object| &object.instance.ty)
        else {
            return true;
        };
        let Some(control) = self.hir.controls.get(control.index()) else { return true };
        // The parent itself may be applied more than once.
        let applied = self.objects.get(parent.0).map_or(0, |object| object.applied);
        applied > 1 || count_applies(&control.body, call) > 1
    }
}

/// An evaluated argument.
#[derive(Debug)]
enum Passed {
    Packet,
    Object(ObjectId),
    Value(Val),
    Place(Store),
    Absent,
}

fn is_slice(store: &Store) -> bool {
    matches!(store, Store::Scalar(ir::LValue::Slice(..)))
}

/// Counts the calls of `apply` with the same object as this one.
fn count_applies(list: &[Stmt], call: &Call) -> usize {
    let target = |call: &Call| match &call.callee {
        Callee::Apply(object) => match &object.kind {
            ExprKind::Instance(id) => Some(*id),
            _ => None,
        },
        _ => None,
    };
    let wanted = target(call);
    list.iter()
        .map(|stmt| match &stmt.kind {
            StmtKind::Call(other) => usize::from(wanted.is_none() || target(other) == wanted),
            StmtKind::If(_, yes, no) => count_applies(yes, call) + count_applies(no, call),
            StmtKind::Block(_, body) => count_applies(body, call),
            StmtKind::SwitchAction(_, cases, default) => {
                cases.iter().map(|case| count_applies(&case.1, call)).sum::<usize>()
                    + count_applies(default, call)
            }
            StmtKind::Switch(_, cases, default) => {
                cases.iter().map(|case| count_applies(&case.1, call)).sum::<usize>()
                    + count_applies(default, call)
            }
            // Written out: as often as there are rounds.
            StmtKind::For { body, .. } | StmtKind::ForRange(.., body) | StmtKind::ForEach(.., body) => {
                2 * count_applies(body, call)
            }
            _ => 0,
        })
        .sum()
}

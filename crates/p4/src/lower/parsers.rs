//! Parser states.
//!
//! Sub-parsers are written out where they are applied: their `accept` leads to the state behind the call. A branch in
//! which something is extracted becomes states too.

use pipeline::ir::{self, ParserOp, ParserState};

use super::objects::ObjectId;
use super::types::{parts, scalar};
use super::value::Val;
use super::{Lower, Scope};
use crate::hir::{
    Call, Callee, Expr, ExprKind, Keyset, Parser, Stmt, StmtKind, Target, Transition, Type, Value,
};
use crate::source::Span;

/// Most states of a parser, those of its sub-parsers among them.
const MOST_STATES: usize = 4096;

/// A parser that is being lowered.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// States.
    states: Vec<ParserState>,
    /// The one that operations are appended to.
    at: usize,
}

impl<'h> Lower<'h> {
    /// Lowers a parser whose parameters are bound. `first` runs before it.
    pub(super) fn parser(&mut self, id: ObjectId, parser: &'h Parser, first: Vec<ir::Stmt>) -> ir::ParserId {
        let outside = std::mem::take(&mut self.graph);
        self.apart(Scope::Parser, |lower| {
            lower.bind_constructor(id);
            let before = lower.here.replace(id);
            lower.frames.push(super::Frame::default());
            lower.graph.at = lower.new_state("begin");
            lower.code = first;
            lower.states(id, parser, ir::Target::Accept);
            lower.frames.pop();
            lower.here = before;
        });
        let graph = std::mem::replace(&mut self.graph, outside);
        self.out.add_parser(&parser.name, graph.states)
    }

    fn new_state(&mut self, name: &str) -> usize {
        let name = self.unique(&format!("state {name}"));
        let name = name.strip_prefix("state ").unwrap_or(&name).to_owned();
        let next = ir::Transition::To(ir::Target::Reject);
        self.graph.states.push(ParserState { name, ops: vec![], next });
        self.graph.states.len() - 1
    }

    /// Appends an operation to the current state, behind the statements so far.
    pub(super) fn operation(&mut self, op: ParserOp, span: Span) {
        if self.scope != Scope::Parser || self.nesting > 0 {
            self.unsupported(span, "reading the packet here is");
            return;
        }
        self.flush();
        if let Some(state) = self.graph.states.get_mut(self.graph.at) {
            state.ops.push(op);
        }
    }

    fn flush(&mut self) {
        let code = std::mem::take(&mut self.code);
        if let Some(state) = self.graph.states.get_mut(self.graph.at) {
            state.ops.extend(code.into_iter().map(ParserOp::Do));
        }
    }

    /// Ends the current state.
    fn end(&mut self, next: ir::Transition) {
        self.flush();
        if let Some(state) = self.graph.states.get_mut(self.graph.at) {
            state.next = next;
        }
    }

    /// Lowers a parser's variables and states, from the current state on.
    fn states(&mut self, id: ObjectId, parser: &'h Parser, accept: ir::Target) {
        if self.graph.states.len() + parser.states.len() > MOST_STATES {
            self.unsupported(parser.span, format!("a parser of more than {MOST_STATES} states is"));
            return;
        }
        let name = self.objects.get(id.0).map_or("", |object| object.name.as_str()).to_owned();
        let list: Vec<usize> =
            parser.states.iter().map(|state| self.new_state(&format!("{name}.{}", state.name))).collect();
        self.body(&parser.locals);
        let target = |target: Target| match target {
            Target::State(i) => {
                let state = list.get(i as usize).copied().unwrap_or(0);
                ir::Target::State(u32::try_from(state).unwrap_or(u32::MAX))
            }
            Target::Accept => accept,
            Target::Reject => ir::Target::Reject,
        };
        let start = parser.states.iter().position(|state| state.name == "start").unwrap_or(0);
        self.end(ir::Transition::To(target(Target::State(u32::try_from(start).unwrap_or(0)))));
        for (state, at) in parser.states.iter().zip(&list) {
            self.graph.at = *at;
            self.body(&state.body);
            let next = match &state.next {
                Transition::To(to) => ir::Transition::To(target(*to)),
                Transition::Select { on, cases, span } => self.select(id, on, cases, *span, target),
            };
            self.end(next);
        }
    }

    /// Lowers a call of a sub-parser whose parameters are bound.
    pub(super) fn sub_parser(&mut self, id: ObjectId, parser: &'h Parser, span: Span) {
        if self.scope != Scope::Parser || self.nesting > 0 {
            self.unsupported(span, "applying a parser here is");
            return;
        }
        let behind = self.new_state(&format!("{} done", parser.name));
        self.states(id, parser, ir::Target::State(u32::try_from(behind).unwrap_or(u32::MAX)));
        self.graph.at = behind;
    }

    /// Branches between states.
    pub(super) fn parser_branch(&mut self, condition: ir::Expr, yes: &[&'h Stmt], no: &[&'h Stmt]) {
        let (yes_state, no_state) = (self.new_state("then"), self.new_state("else"));
        let behind = self.new_state("behind");
        let to = |state: usize| ir::Target::State(u32::try_from(state).unwrap_or(u32::MAX));
        let case = |set, state| ir::Case { sets: vec![set], to: to(state) };
        let is_true = ir::Keyset::Value(ir::Constant::bool(true));
        let cases = vec![case(is_true, yes_state), case(ir::Keyset::Any, no_state)];
        self.end(ir::Transition::Select(ir::Select { on: vec![condition], cases }));
        for (state, body) in [(yes_state, yes), (no_state, no)] {
            self.graph.at = state;
            self.list(body);
            self.end(ir::Transition::To(to(behind)));
        }
        self.graph.at = behind;
    }

    /// Whether statements read the packet, verify something or apply a parser.
    pub(super) fn reads_packet(&self, list: &[&'h Stmt]) -> bool {
        list.iter().any(|stmt| match &stmt.kind {
            StmtKind::Call(call) => self.call_reads_packet(call),
            StmtKind::Declare(_, Some(value))
            | StmtKind::Assign(_, value)
            | StmtKind::AssignOp(_, _, value) => self.expr_reads_packet(value),
            StmtKind::If(condition, yes, no) => {
                self.expr_reads_packet(condition)
                    || self.reads_packet(&yes.iter().collect::<Vec<_>>())
                    || self.reads_packet(&no.iter().collect::<Vec<_>>())
            }
            StmtKind::Block(_, body) | StmtKind::ForRange(.., body) | StmtKind::ForEach(.., body) => {
                self.reads_packet(&body.iter().collect::<Vec<_>>())
            }
            StmtKind::For { body, .. } => self.reads_packet(&body.iter().collect::<Vec<_>>()),
            _ => false,
        })
    }

    fn call_reads_packet(&self, call: &'h Call) -> bool {
        match &call.callee {
            Callee::Extern(name) => name == "verify",
            Callee::Method(_, name) => matches!(name.as_str(), "extract" | "advance"),
            Callee::Apply(_) => true,
            Callee::Function(id) => self
                .hir
                .functions
                .get(id.index())
                .is_some_and(|f| self.reads_packet(&f.body.iter().collect::<Vec<_>>())),
            _ => false,
        }
    }

    fn expr_reads_packet(&self, expr: &'h Expr) -> bool {
        match &expr.kind {
            ExprKind::Call(call) => self.call_reads_packet(call),
            ExprKind::Binary(_, of) => self.expr_reads_packet(&of.0) || self.expr_reads_packet(&of.1),
            ExprKind::Unary(_, a) | ExprKind::Cast(a) | ExprKind::Slice(a, ..) | ExprKind::Field(a, _) => {
                self.expr_reads_packet(a)
            }
            _ => false,
        }
    }

    fn select(
        &mut self,
        id: ObjectId,
        on: &'h [Expr],
        cases: &'h [(Vec<Keyset>, Target)],
        span: Span,
        target: impl Fn(Target) -> ir::Target,
    ) -> ir::Transition {
        let (mut values, mut types) = (Vec::new(), Vec::new());
        for expr in on {
            let value = self.value(expr);
            self.flatten(&value, &expr.ty, expr.span, &mut values);
            number_types(&expr.ty, &mut types);
        }
        let mut lowered = Vec::new();
        for (keysets, to) in cases {
            let sets = match keysets.as_slice() {
                [Keyset::Any] => vec![ir::Keyset::Any; values.len()],
                [Keyset::ValueSet(set)] => vec![ir::Keyset::Set(self.value_set(id, *set))],
                _ => {
                    let mut sets = Vec::new();
                    for (keyset, expr) in keysets.iter().zip(on) {
                        self.keyset(keyset, &expr.ty, span, &mut sets);
                    }
                    sets
                }
            };
            lowered.push(ir::Case { sets, to: target(*to) });
        }
        let on: Vec<ir::Expr> = values.into_iter().map(|(value, _)| value).collect();
        // The pipeline chooses by at least one value.
        if on.is_empty() {
            let first = lowered.first().map_or(ir::Target::Reject, |case| case.to);
            return ir::Transition::To(first);
        }
        ir::Transition::Select(ir::Select { on, cases: lowered })
    }

    /// Lowers the values of one expression, which may be a struct or tuple of several numbers.
    fn keyset(&mut self, keyset: &'h Keyset, ty: &Type, span: Span, sets: &mut Vec<ir::Keyset>) {
        let mut types = Vec::new();
        number_types(ty, &mut types);
        let mut numbers = |expr: &'h Expr| -> Vec<ir::Constant> {
            let mut list = Vec::new();
            match self.compile_time(expr) {
                Some(value) => self.constants(&value, ty, expr.span, &mut list),
                None => self.unsupported(expr.span, "a keyset that is not a constant is"),
            }
            list
        };
        let before = sets.len();
        match keyset {
            Keyset::Any => sets.extend(types.iter().map(|_| ir::Keyset::Any)),
            Keyset::Value(value) => sets.extend(numbers(value).into_iter().map(ir::Keyset::Value)),
            Keyset::Mask(value, mask) => {
                let (values, masks) = (numbers(value), numbers(mask));
                sets.extend(values.into_iter().zip(masks).map(|(value, mask)| ir::Keyset::Mask(value, mask)));
            }
            Keyset::Range(low, high) => {
                let (lows, highs) = (numbers(low), numbers(high));
                sets.extend(lows.into_iter().zip(highs).map(|(low, high)| ir::Keyset::Range(low, high)));
            }
            Keyset::ValueSet(_) => self.unsupported(span, "a value set beside other keysets is"),
        }
        sets.resize(before + types.len(), ir::Keyset::Any);
    }

    /// Lowers the numbers of a constant.
    pub(super) fn constants(&mut self, value: &Value, ty: &Type, span: Span, list: &mut Vec<ir::Constant>) {
        match value {
            Value::List(values) => {
                for (value, ty) in values.iter().zip(parts(ty)) {
                    self.constants(value, &ty, span, list);
                }
            }
            value => list.extend(self.constant(value, ty, span)),
        }
    }

    fn value_set(&mut self, id: ObjectId, set: crate::hir::ValueSetId) -> ir::ValueSetId {
        if let Some(made) = self.value_sets.get(&(id, set)) {
            return *made;
        }
        let made = ir::ValueSetId::at(self.out.value_sets.len());
        if let Some(declared) = self.hir.value_sets.get(set.index()) {
            let prefix = self.objects.get(id.0).map_or("", |object| object.name.as_str());
            let name = super::objects::full_name(prefix, &declared.name, &declared.annotations);
            let mut types = Vec::new();
            number_types(&declared.element, &mut types);
            let size =
                self.compile_time(&declared.size).as_ref().and_then(super::statements::small).unwrap_or(0);
            self.out.value_sets.push(ir::ValueSet { name, types, size });
        }
        self.value_sets.insert((id, set), made);
        made
    }

    /// Lists the numbers of a value with their types.
    pub(super) fn flatten(
        &mut self,
        value: &Val,
        ty: &Type,
        span: Span,
        list: &mut Vec<(ir::Expr, ir::Type)>,
    ) {
        match scalar(ty) {
            Some(number) => {
                let value = self.as_number(value, ty);
                list.push((value, number));
            }
            None => {
                for (i, ty) in parts(ty).iter().enumerate() {
                    let part = self.val_part(value, i, span);
                    self.flatten(&part, ty, span, list);
                }
            }
        }
    }
}

/// Lists the types of a value's numbers.
pub(super) fn number_types(ty: &Type, list: &mut Vec<ir::Type>) {
    match scalar(ty) {
        Some(ty) => list.push(ty),
        None => parts(ty).iter().for_each(|ty| number_types(ty, list)),
    }
}

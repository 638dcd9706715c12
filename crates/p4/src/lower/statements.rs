//! Statements.

use num_bigint::BigInt;
use num_traits::{One, ToPrimitive, Zero};
use pipeline::ir::{self, LValue};

use super::calls::{Frame, FrameKind};
use super::leave::leaves;
use super::storage::Store;
use super::types::{base, scalar};
use super::value::Val;
use super::{Binding, Lower, Scope};
use crate::hir::{Annotation, BinOp, Expr, ExprKind, Stmt, StmtKind, Type, Value, VarId};
use crate::source::Span;

/// Deepest nesting of branches: the pipeline bounds it.
const DEEPEST: usize = 56;
/// Most rounds of a loop, which are all written out.
const MOST_ROUNDS: usize = 1024;

impl<'h> Lower<'h> {
    /// Lowers statements.
    pub(super) fn body(&mut self, list: &'h [Stmt]) {
        let list: Vec<&'h Stmt> = list.iter().collect();
        self.list(&list);
    }

    /// Lowers a statement.
    pub(super) fn stmt(&mut self, stmt: &'h Stmt) {
        if !self.take_step() {
            return;
        }
        match &stmt.kind {
            StmtKind::Declare(var, value) => self.declare(*var, value.as_ref(), stmt.span),
            StmtKind::Assign(to, value) => self.assign_to(to, value, stmt.span),
            StmtKind::AssignOp(op, to, value) => self.assign_op(*op, to, value, stmt.span),
            StmtKind::Call(call) => {
                self.call(call, &Type::Void);
            }
            StmtKind::If(condition, yes, no) => {
                let (yes, no): (Vec<_>, Vec<_>) = (yes.iter().collect(), no.iter().collect());
                self.branch(condition, &yes, &no);
            }
            StmtKind::Block(annotations, body) => self.annotated_block(annotations, body),
            StmtKind::Exit => self.exit(),
            StmtKind::Return(value) => self.return_(value.as_ref(), stmt.span),
            StmtKind::Break => self.leave(FrameKind::Loop),
            StmtKind::Continue => self.leave(FrameKind::Round),
            StmtKind::SwitchAction(call, cases, default) => self.switch_action(call, cases, default),
            StmtKind::Switch(value, cases, default) => self.switch(value, cases, default),
            StmtKind::For { init, condition, update, body } => {
                self.for_(init, condition, update, body, stmt.span);
            }
            StmtKind::ForRange(var, low, high, body) => self.for_range(*var, low, high, body, stmt.span),
            StmtKind::ForEach(var, collection, body) => self.for_each(*var, collection, body),
        }
    }

    fn declare(&mut self, var: VarId, value: Option<&'h Expr>, span: Span) {
        let Some(declared) = self.hir.vars.get(var.index()) else { return };
        let value = value.map(|value| (self.value(value), value));
        let store = self.local(self.here, var, &declared.name, &declared.ty, span);
        self.bindings.insert(var, Binding::Store(store.clone()));
        match value {
            Some((value, _)) => self.assign(&store, &value, &declared.ty, span),
            None => self.invalidate(&store),
        }
    }

    fn assign_to(&mut self, to: &'h Expr, value: &'h Expr, span: Span) {
        // The place is determined first, then the value (P4-16 1.2.5, section 12.1).
        let place = self.place(to);
        let place = if super::value::has_effects(value) { self.fixed(place) } else { place };
        let value = self.value(value);
        self.assign(&place, &value, &to.ty, span);
    }

    fn assign_op(&mut self, op: BinOp, to: &'h Expr, value: &'h Expr, span: Span) {
        let place = self.place(to);
        let place = self.fixed(place);
        let (Store::Scalar(target), Some(ty)) = (&place, scalar(&to.ty)) else { return };
        let before = super::storage::read(target);
        let before = if super::value::has_effects(value) { self.save_number(before, ty) } else { before };
        let by = match op {
            BinOp::Shl | BinOp::Shr => self.unsigned(value),
            _ => self.number(value),
        };
        let Some(op) = arithmetic(op) else {
            self.unsupported(span, "this operator in an assignment is");
            return;
        };
        self.assign(&place, &Val::Number(before.op(op, by)), &to.ty, span);
    }

    /// Saves the indices in a place, so that it stays the same.
    pub(super) fn fixed(&mut self, place: Store) -> Store {
        let fix = |lower: &mut Self, header: ir::HeaderRef| match header {
            ir::HeaderRef::Element(stack, index) if !matches!(*index, ir::Expr::Const(_)) => {
                let width = pipeline::validate::expr_type(&lower.out, &index).map_or(32, ir::Type::width);
                let saved = lower.save_number(*index, ir::Type::Bit(width));
                ir::HeaderRef::Element(stack, Box::new(saved))
            }
            other => other,
        };
        fn fix_place<'h>(
            lower: &mut Lower<'h>,
            place: LValue,
            fix: impl Fn(&mut Lower<'h>, ir::HeaderRef) -> ir::HeaderRef,
        ) -> LValue {
            match place {
                LValue::Field(header, field) => LValue::Field(fix(lower, header), field),
                LValue::Slice(inner, hi, lo) => {
                    LValue::Slice(Box::new(fix_place(lower, *inner, fix)), hi, lo)
                }
                var => var,
            }
        }
        match place {
            Store::Scalar(place) => Store::Scalar(fix_place(self, place, fix)),
            Store::Header(header, ty) => Store::Header(fix(self, header), ty),
            Store::Varbit(header, field) => Store::Varbit(fix(self, header), field),
            other => other,
        }
    }

    /// Branches by a condition.
    pub(super) fn branch(&mut self, condition: &'h Expr, yes: &[&'h Stmt], no: &[&'h Stmt]) {
        if let Some(Value::Bool(known)) = self.compile_time(condition) {
            return self.list(if known { yes } else { no });
        }
        if let ExprKind::Hit(call) | ExprKind::Miss(call) = &condition.kind {
            let (hit, miss) = if matches!(condition.kind, ExprKind::Hit(_)) { (yes, no) } else { (no, yes) };
            let hit = self.block(|lower| lower.list(hit));
            let miss = self.block(|lower| lower.list(miss));
            self.apply(call, ir::Applied { hit, miss, ..ir::Applied::default() });
            return;
        }
        let span = condition.span;
        let condition = self.number(condition);
        if self.nesting > DEEPEST {
            return self
                .unsupported(span, format!("a branch within {DEEPEST} others, inlined ones among them, is"));
        }
        if self.scope == Scope::Parser
            && self.nesting == 0
            && (self.reads_packet(yes) || self.reads_packet(no))
        {
            return self.parser_branch(condition, yes, no);
        }
        let yes = self.block(|lower| lower.list(yes));
        let no = self.block(|lower| lower.list(no));
        if !yes.is_empty() || !no.is_empty() {
            self.emit(ir::Stmt::If(condition, yes, no));
        }
    }

    /// Runs statements under a condition of the pipeline.
    pub(super) fn when(&mut self, condition: ir::Expr, list: &[&'h Stmt]) {
        if self.scope == Scope::Parser && self.nesting == 0 && self.reads_packet(list) {
            return self.parser_branch(condition, list, &[]);
        }
        let body = self.block(|lower| lower.list(list));
        if !body.is_empty() {
            self.emit(ir::Stmt::If(condition, body, vec![]));
        }
    }

    fn annotated_block(&mut self, annotations: &[Annotation], body: &'h [Stmt]) {
        if !annotations.iter().any(|a| a.name == "atomic") {
            return self.body(body);
        }
        let code = self.block(|lower| lower.body(body));
        let plain = code.iter().all(is_plain);
        match plain {
            true => self.emit(ir::Stmt::Atomic(code)),
            // What an atomic statement cannot contain stays in order, with registers locked one access at a time.
            false => code.into_iter().for_each(|stmt| self.emit(stmt)),
        }
    }

    fn switch(&mut self, value: &'h Expr, cases: &'h [(Vec<Value>, Vec<Stmt>)], default: &'h [Stmt]) {
        let number = self.number(value);
        let lowered = cases.iter().map(|(labels, body)| {
            let constants = labels.iter().filter_map(|label| self.constant(label, &value.ty, value.span));
            let constants: Vec<_> = constants.collect();
            (constants, self.block(|lower| lower.body(body)))
        });
        let lowered = lowered.collect();
        let default = self.block(|lower| lower.body(default));
        self.emit(ir::Stmt::Switch(number, lowered, default));
    }

    fn exit(&mut self) {
        // Parameters are copied out, from the innermost call to the outermost.
        for i in (0..self.frames.len()).rev() {
            self.copy_out(i);
        }
        self.emit(ir::Stmt::Exit);
    }

    fn return_(&mut self, value: Option<&'h Expr>, span: Span) {
        let frame = self.frames.iter().rfind(|frame| frame.kind == FrameKind::Body);
        let result = frame.and_then(|frame| frame.result.clone());
        if let Some(value) = value {
            let lowered = self.value(value);
            if let Some((store, ty)) = result {
                self.assign(&store, &lowered, ty, span);
            }
        }
        self.leave(FrameKind::Body);
    }

    /// Runs one round of a loop.
    fn round(&mut self, body: &'h [Stmt]) {
        if !self.take_step() {
            return;
        }
        let ways = leaves(body);
        let still = self.still_here(ways);
        let frame = Frame { kind: FrameKind::Round, ..Frame::default() };
        let always = still == super::leave::truth(true);
        let run = |lower: &mut Self| {
            lower.frames.push(frame);
            lower.body(body);
            lower.frames.pop();
        };
        if always {
            return run(self);
        }
        let code = self.block(run);
        self.emit(ir::Stmt::If(still, code, vec![]));
    }

    fn in_loop(&mut self, body: &'h [Stmt], rounds: impl FnOnce(&mut Self)) {
        self.frames.push(Frame { kind: FrameKind::Loop, ..Frame::default() });
        self.arm_flags(leaves(body));
        rounds(self);
        self.frames.pop();
    }

    fn for_range(&mut self, var: VarId, low: &'h Expr, high: &'h Expr, body: &'h [Stmt], span: Span) {
        let (Some(Value::Integer(low)), Some(Value::Integer(high))) =
            (self.compile_time(low), self.compile_time(high))
        else {
            self.unsupported(span, "a loop between bounds that are not constants is");
            return;
        };
        let count: BigInt = &high - &low + 1;
        if count > BigInt::from(MOST_ROUNDS) {
            self.unsupported(span, format!("a loop of more than {MOST_ROUNDS} rounds is"));
            return;
        }
        let Some(declared) = self.hir.vars.get(var.index()) else { return };
        self.in_loop(body, |lower| {
            let mut at = low;
            while at <= high {
                let value = lower.constant_value(&Value::Integer(at.clone()), &declared.ty, span);
                lower.bindings.insert(var, Binding::Val(value));
                lower.round(body);
                at += BigInt::one();
            }
        });
    }

    fn for_each(&mut self, var: VarId, collection: &'h Expr, body: &'h [Stmt]) {
        let elements: Vec<Val> = match self.value(collection) {
            Val::Parts(list) => list,
            Val::Store(Store::Stack(_, list) | Store::Parts(list)) => {
                list.into_iter().map(Val::Store).collect()
            }
            _ => match self.compile_time(collection) {
                Some(Value::List(values)) => {
                    let element = match base(&collection.ty) {
                        Type::List(element) => (**element).clone(),
                        _ => Type::Void,
                    };
                    let lower = |value| self.constant_value(value, &element, collection.span);
                    values.iter().map(lower).collect()
                }
                _ => {
                    self.unsupported(collection.span, "a loop over this is");
                    return;
                }
            },
        };
        self.in_loop(body, |lower| {
            for element in elements {
                lower.bindings.insert(var, Binding::Val(element));
                lower.round(body);
            }
        });
    }

    /// A loop whose variable is a constant in each round: it is written out.
    fn for_(
        &mut self,
        init: &'h [Stmt],
        condition: &'h Expr,
        update: &'h [Stmt],
        body: &'h [Stmt],
        span: Span,
    ) {
        let mut counted = None;
        for stmt in init {
            if let StmtKind::Declare(var, Some(value)) = &stmt.kind
                && let Some(value) = self.compile_time(value)
                && counted.is_none()
            {
                counted = Some((*var, value));
            } else if let StmtKind::Assign(Expr { kind: ExprKind::Var(var), .. }, value) = &stmt.kind
                && let Some(value) = self.compile_time(value)
                && counted.is_none()
            {
                self.stmt(stmt);
                counted = Some((*var, value));
            } else {
                self.stmt(stmt);
            }
        }
        let Some((var, mut at)) = counted else {
            self.unsupported(span, "a loop whose first value is not a constant is");
            return;
        };
        let Some(declared) = self.hir.vars.get(var.index()) else { return };
        let outside = self.bindings.get(&var).cloned();
        self.in_loop(body, |lower| {
            for round in 0.. {
                lower.bindings.insert(var, Binding::Constant(at.clone()));
                match lower.compile_time(condition) {
                    Some(Value::Bool(true)) if round < MOST_ROUNDS => {}
                    Some(Value::Bool(false)) => break,
                    Some(_) => {
                        lower.unsupported(span, format!("a loop of more than {MOST_ROUNDS} rounds is"));
                        break;
                    }
                    None => {
                        lower.unsupported(condition.span, "a loop whose end depends on the packet is");
                        break;
                    }
                }
                lower.round(body);
                let next = update.iter().find_map(|stmt| match &stmt.kind {
                    StmtKind::Assign(Expr { kind: ExprKind::Var(v), .. }, value) if *v == var => {
                        lower.compile_time(value)
                    }
                    StmtKind::AssignOp(op, Expr { kind: ExprKind::Var(v), .. }, value) if *v == var => {
                        let by = lower.compile_time(value)?;
                        super::value::fold_binary(*op, &at, &by, &declared.ty)
                    }
                    _ => None,
                });
                match next {
                    Some(value) if value != at => at = value,
                    _ => {
                        lower.unsupported(span, "a loop whose next value is not a constant is");
                        break;
                    }
                }
            }
        });
        match outside {
            Some(Binding::Store(store)) => {
                let last = self.constant_value(&at, &declared.ty, span);
                self.assign(&store, &last, &declared.ty, span);
                self.bindings.insert(var, Binding::Store(store));
            }
            _ => {
                self.bindings.remove(&var);
            }
        }
    }
}

/// Operators of assignments.
fn arithmetic(op: BinOp) -> Option<ir::BinOp> {
    Some(match op {
        BinOp::Add => ir::BinOp::Add,
        BinOp::Sub => ir::BinOp::Sub,
        BinOp::Mul => ir::BinOp::Mul,
        BinOp::Div => ir::BinOp::Div,
        BinOp::Rem => ir::BinOp::Rem,
        BinOp::SatAdd => ir::BinOp::SatAdd,
        BinOp::SatSub => ir::BinOp::SatSub,
        BinOp::And => ir::BinOp::And,
        BinOp::Or => ir::BinOp::Or,
        BinOp::Xor => ir::BinOp::Xor,
        BinOp::Shl => ir::BinOp::Shl,
        BinOp::Shr => ir::BinOp::Shr,
        _ => return None,
    })
}

/// Whether an atomic statement may contain this one.
fn is_plain(stmt: &ir::Stmt) -> bool {
    use ir::Stmt::*;
    match stmt {
        Set(..) | CopyHeader(..) | SetValid(_) | SetInvalid(_) | Push(..) | Pop(..) | Hash(..) => true,
        UpdateChecksum(..) | Random(..) | RegisterRead(..) | RegisterWrite(..) | Count(..) => true,
        If(_, yes, no) => yes.iter().chain(no).all(is_plain),
        Switch(_, cases, default) => cases.iter().flat_map(|case| &case.1).chain(default).all(is_plain),
        _ => false,
    }
}

/// Returns a constant's number, if it is one that fits.
pub(super) fn small(value: &Value) -> Option<u32> {
    match value {
        Value::Integer(value) if *value >= BigInt::zero() => value.to_u32(),
        _ => None,
    }
}

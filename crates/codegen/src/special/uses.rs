//! What code reads.

use pipeline::ir::{
    Dest, EmitRef, Expr, ExternArg, HeaderId, HeaderRef, Item, LValue, Packet, Program, Send, StackId, Stmt,
    VarId,
};

/// Variables and headers that something reads. Elements of a stack and members of a union go together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reads {
    pub(crate) vars: Vec<bool>,
    pub(crate) headers: Vec<bool>,
    /// Whether the bytes behind the parsed headers matter.
    pub(crate) payload: bool,
}

impl Reads {
    pub(crate) fn none(program: &Program) -> Self {
        Self {
            vars: vec![false; program.vars.len()],
            headers: vec![false; program.headers.len()],
            payload: false,
        }
    }

    pub(crate) fn all(program: &Program) -> Self {
        Self {
            vars: vec![true; program.vars.len()],
            headers: vec![true; program.headers.len()],
            payload: true,
        }
    }

    pub(crate) fn var(&self, id: VarId) -> bool {
        self.vars.get(id.index()).copied().unwrap_or(true)
    }

    pub(crate) fn header(&self, id: HeaderId) -> bool {
        self.headers.get(id.index()).copied().unwrap_or(true)
    }

    pub(crate) fn add_var(&mut self, id: VarId) {
        self.vars.iter_mut().skip(id.index()).take(1).for_each(|read| *read = true);
    }

    fn add_range(&mut self, first: HeaderId, count: u32) {
        self.headers.iter_mut().skip(first.index()).take(count as usize).for_each(|read| *read = true);
    }

    /// Everything that sending the packet after changes needs.
    pub(super) fn add_packet(&mut self) {
        self.headers.fill(true);
        self.payload = true;
    }

    pub(super) fn add_stack(&mut self, program: &Program, id: StackId) {
        if let Some(stack) = program.stacks.get(id.index()) {
            self.add_range(stack.first, stack.size);
        }
    }

    pub(super) fn add_header(&mut self, program: &Program, header: &HeaderRef) {
        use pipeline::ir::HeaderPlace;
        match header {
            HeaderRef::Header(id) => match program.headers.get(id.index()).map(|header| header.place) {
                Some(HeaderPlace::Element(stack, _)) => self.add_stack(program, stack),
                Some(HeaderPlace::Member(union)) => {
                    if let Some(union) = program.unions.get(union.index()) {
                        self.add_range(union.first, union.size);
                    }
                }
                _ => self.add_range(*id, 1),
            },
            HeaderRef::Element(stack, index) => {
                self.add_stack(program, *stack);
                self.expr(program, index);
            }
            HeaderRef::Next(stack) | HeaderRef::Last(stack) => self.add_stack(program, *stack),
        }
    }

    pub(crate) fn expr(&mut self, program: &Program, expr: &Expr) {
        match expr {
            Expr::Var(id) => self.add_var(*id),
            Expr::Field(header, _) | Expr::Valid(header) | Expr::FieldLength(header, _) => {
                self.add_header(program, header);
            }
            Expr::LastIndex(stack) => self.add_stack(program, *stack),
            Expr::Remaining => self.payload = true,
            Expr::Const(_) | Expr::Param(_) | Expr::Lookahead(..) => {}
            Expr::Unary(_, operand) | Expr::Slice(operand, ..) | Expr::Cast(_, operand) => {
                self.expr(program, operand);
            }
            Expr::Binary(_, operands) => self.exprs(program, [&operands.0, &operands.1]),
            Expr::Mux(parts) => self.exprs(program, [&parts.0, &parts.1, &parts.2]),
        }
    }

    fn exprs<'e>(&mut self, program: &Program, exprs: impl IntoIterator<Item = &'e Expr>) {
        exprs.into_iter().for_each(|expr| self.expr(program, expr));
    }

    pub(super) fn items(&mut self, program: &Program, items: &[Item]) {
        for item in items {
            match item {
                Item::Value(expr) => self.expr(program, expr),
                Item::Payload => self.payload = true,
            }
        }
    }

    /// What assigning to a place reads besides the value.
    fn place(&mut self, program: &Program, place: &LValue) {
        match place {
            LValue::Var(_) => {}
            LValue::Field(header, _) => self.index(program, header),
            LValue::Slice(of, ..) => self.place(program, of),
        }
    }

    /// What finding a header reads, besides the header.
    fn index(&mut self, program: &Program, header: &HeaderRef) {
        if let HeaderRef::Element(_, index) = header {
            self.expr(program, index);
        }
    }

    fn send(&mut self, program: &Program, send: &Send) {
        self.exprs(program, [&send.class, &send.queue, &send.limit].into_iter().flatten());
        if let Dest::Port(to) | Dest::Replicas(_, to) = &send.to {
            self.expr(program, to);
        }
        send.carry.iter().for_each(|id| self.add_var(*id));
    }

    pub(crate) fn body(&mut self, program: &Program, body: &[Stmt]) {
        body.iter().for_each(|stmt| self.stmt(program, stmt));
    }

    /// What a statement reads, without the blocks, actions and tables that it names.
    pub(super) fn stmt(&mut self, program: &Program, stmt: &Stmt) {
        match stmt {
            Stmt::Set(place, value) => {
                self.place(program, place);
                self.expr(program, value);
            }
            Stmt::CopyHeader(to, from) => {
                self.index(program, to);
                self.add_header(program, from);
            }
            Stmt::SetValid(header) | Stmt::SetInvalid(header) => self.index(program, header),
            Stmt::Hash(place, _, items) => {
                self.place(program, place);
                self.items(program, items);
            }
            Stmt::UpdateChecksum(place, old, new) => {
                self.place(program, place);
                self.items(program, old);
                self.items(program, new);
            }
            Stmt::Random(place, low, high) => {
                self.place(program, place);
                self.exprs(program, [low, high]);
            }
            Stmt::RegisterRead(place, _, index) => {
                self.place(program, place);
                self.expr(program, index);
            }
            Stmt::RegisterWrite(_, index, value) => self.exprs(program, [index, value]),
            Stmt::Atomic(body) => self.body(program, body),
            Stmt::Count(_, index) => self.expr(program, index),
            Stmt::Meter(place, _, index, color) => {
                self.place(program, place);
                self.exprs(program, [index].into_iter().chain(color));
            }
            Stmt::MeterEntry(place, _, color) => {
                self.place(program, place);
                self.exprs(program, color);
            }
            Stmt::Send(send) => self.send(program, send),
            Stmt::Group(_, id) => self.expr(program, id),
            Stmt::Controller(reason, limit, items) => {
                self.exprs(program, [reason].into_iter().chain(limit));
                self.items(program, items);
            }
            Stmt::Digest(_, values) | Stmt::Do(_, values) => self.exprs(program, values),
            Stmt::Truncate(len) | Stmt::Remove(len) => self.expr(program, len),
            Stmt::Insert(items) => self.items(program, items),
            Stmt::Reparse => self.add_packet(),
            Stmt::Apply(_, applied) => {
                let bodies = applied.actions.iter().map(|(_, body)| body);
                let all = bodies.chain([&applied.hit, &applied.miss, &applied.other]);
                all.for_each(|body| self.body(program, body));
            }
            Stmt::If(condition, yes, no) => {
                self.expr(program, condition);
                self.body(program, yes);
                self.body(program, no);
            }
            Stmt::Switch(value, cases, default) => {
                self.expr(program, value);
                cases.iter().for_each(|(_, body)| self.body(program, body));
                self.body(program, default);
            }
            Stmt::Extern(_, args) => {
                for arg in args {
                    match arg {
                        ExternArg::In(value) => self.expr(program, value),
                        ExternArg::Out(place) => self.place(program, place),
                    }
                }
            }
            Stmt::Emit(EmitRef::Header(header)) => self.add_header(program, header),
            Stmt::Emit(_) => self.headers.fill(true),
            Stmt::Push(..)
            | Stmt::Pop(..)
            | Stmt::Drop(_)
            | Stmt::Call(_)
            | Stmt::Goto(_)
            | Stmt::Return
            | Stmt::Exit => {}
        }
    }
}

/// Places that a statement assigns to, without those of statements inside it.
pub(super) fn places(stmt: &Stmt) -> Vec<&LValue> {
    match stmt {
        Stmt::Set(place, _)
        | Stmt::Hash(place, ..)
        | Stmt::UpdateChecksum(place, ..)
        | Stmt::Random(place, ..)
        | Stmt::RegisterRead(place, ..)
        | Stmt::Meter(place, ..)
        | Stmt::MeterEntry(place, ..) => vec![place],
        Stmt::Extern(_, args) => {
            let outs = args.iter().filter_map(|arg| match arg {
                ExternArg::Out(place) => Some(place),
                ExternArg::In(_) => None,
            });
            outs.collect()
        }
        _ => vec![],
    }
}

/// Variables that a statement assigns to, without those of statements inside it.
pub(crate) fn assigned_vars(stmt: &Stmt) -> impl Iterator<Item = VarId> {
    places(stmt).into_iter().filter_map(|place| match base(place) {
        LValue::Var(id) => Some(*id),
        _ => None,
    })
}

/// The variable or field that a place is, or is part of.
pub(super) fn base(place: &LValue) -> &LValue {
    match place {
        LValue::Slice(of, ..) => base(of),
        whole => whole,
    }
}

/// Whether a statement changes what leaves when the packet is sent, by itself.
pub(super) fn changes(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::CopyHeader(..)
        | Stmt::SetValid(_)
        | Stmt::SetInvalid(_)
        | Stmt::Push(..)
        | Stmt::Pop(..)
        | Stmt::Truncate(_)
        | Stmt::Insert(_)
        | Stmt::Remove(_)
        | Stmt::Reparse => true,
        _ => places(stmt).into_iter().any(|place| matches!(base(place), LValue::Field(..))),
    }
}

/// Whether a statement may change the length of the headers or the payload.
pub(super) fn resizes(stmt: &Stmt) -> bool {
    matches!(
        stmt,
        Stmt::CopyHeader(..)
            | Stmt::SetValid(_)
            | Stmt::SetInvalid(_)
            | Stmt::Push(..)
            | Stmt::Pop(..)
            | Stmt::Insert(_)
            | Stmt::Remove(_)
            | Stmt::Reparse
    )
}

/// Whether a statement makes the packet's current bytes.
pub(super) fn deparses(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Send(send) => send.packet == Packet::Current,
        Stmt::Controller(..) | Stmt::Reparse => true,
        _ => false,
    }
}

/// Calls `f` for each statement of a body, nested ones too.
pub(crate) fn each<'s>(body: &'s [Stmt], f: &mut dyn FnMut(&'s Stmt)) {
    for stmt in body {
        f(stmt);
        match stmt {
            Stmt::If(_, yes, no) => [yes, no].iter().for_each(|body| each(body, f)),
            Stmt::Switch(_, cases, default) => {
                cases.iter().for_each(|(_, body)| each(body, f));
                each(default, f);
            }
            Stmt::Atomic(body) => each(body, f),
            Stmt::Apply(_, applied) => {
                let bodies = applied.actions.iter().map(|(_, body)| body);
                let all = bodies.chain([&applied.hit, &applied.miss, &applied.other]);
                all.for_each(|body| each(body, f));
            }
            _ => {}
        }
    }
}

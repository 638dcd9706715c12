//! Checks that a checked program keeps what [`crate::hir`] promises.

use crate::hir::*;

/// What a program does not keep.
pub(super) fn verify(program: &Program) -> Vec<String> {
    let mut v = Verifier { program, found: Vec::new() };
    for f in &program.functions {
        v.stmts(&f.body, &f.name);
    }
    for a in &program.actions {
        v.stmts(&a.body, &a.name);
    }
    for p in &program.parsers {
        v.stmts(&p.locals, &p.name);
        for state in &p.states {
            v.stmts(&state.body, &state.name);
            if let Transition::Select { on, cases, .. } = &state.next {
                for e in on {
                    v.expr(e);
                }
                for (keysets, target) in cases {
                    v.keysets(keysets, on);
                    if let Target::State(at) = target {
                        v.must((*at as usize) < p.states.len(), "a state out of range");
                    }
                }
            }
        }
    }
    for c in &program.controls {
        v.stmts(&c.locals, &c.name);
        v.stmts(&c.body, &c.name);
        v.must(
            c.tables.iter().all(|t| program.tables[t.index()].control.index() < program.controls.len()),
            "a table's control",
        );
    }
    for t in &program.tables {
        let keys: Vec<Expr> = t.keys.iter().map(|k| k.value.clone()).collect();
        for key in &keys {
            v.expr(key);
        }
        for a in &t.actions {
            let free = program.actions[a.call.action.index()].params.len();
            v.must(a.call.args.len() <= free, "too many bound arguments");
        }
        for call in t.entries.iter().map(|e| &e.call).chain(&t.default) {
            let params = &program.actions[call.action.index()].params;
            v.must(params.len() == call.args.len(), "an action call without all arguments");
            for (param, arg) in params.iter().zip(&call.args) {
                v.same(&program.vars[param.index()].ty, &arg.ty, "argument of an action");
            }
        }
        for e in &t.entries {
            v.must(e.keysets.len() == keys.len(), "an entry without a keyset for each key");
            v.keysets(&e.keysets, &keys);
        }
    }
    for i in &program.instances {
        for arg in &i.args {
            v.expr(arg);
        }
    }
    v.found
}

struct Verifier<'p> {
    program: &'p Program,
    found: Vec<String>,
}

impl Verifier<'_> {
    fn must(&mut self, holds: bool, what: &str) {
        if !holds {
            self.found.push(what.to_owned());
        }
    }

    fn same(&mut self, a: &Type, b: &Type, what: &str) {
        if a != b {
            self.found.push(format!("{what}: {a:?} and {b:?}"));
        }
    }

    fn keysets(&mut self, keysets: &[Keyset], on: &[Expr]) {
        if let [Keyset::Any | Keyset::ValueSet(_)] = keysets {
            return;
        }
        self.must(keysets.len() == on.len(), "a keyset for each value");
        for (keyset, on) in keysets.iter().zip(on) {
            match keyset {
                Keyset::Any | Keyset::ValueSet(_) => {}
                Keyset::Value(e) => self.same(&e.ty, &on.ty, "keyset"),
                Keyset::Mask(a, b) | Keyset::Range(a, b) => {
                    for e in [a, b] {
                        let fits = e.ty == on.ty
                            || matches!(&on.ty, Type::Enum(x) if x.representation.as_ref() == Some(&e.ty));
                        self.must(fits, "type of a mask or range");
                    }
                }
            }
        }
    }

    fn stmts(&mut self, stmts: &[Stmt], place: &str) {
        let before = self.found.len();
        for s in stmts {
            self.stmt(s, place);
        }
        for found in &mut self.found[before..] {
            if !found.starts_with("in ") {
                *found = format!("in {place}: {found}");
            }
        }
    }

    fn stmt(&mut self, s: &Stmt, at: &str) {
        match &s.kind {
            StmtKind::Declare(var, value) => {
                if let Some(value) = value {
                    self.expr(value);
                    self.same(&self.program.vars[var.index()].ty.clone(), &value.ty, "initial value");
                }
            }
            StmtKind::Assign(a, b) => {
                self.place(a);
                self.expr(b);
                self.same(&a.ty, &b.ty, "assignment");
            }
            StmtKind::AssignOp(op, a, b) => {
                self.place(a);
                self.expr(b);
                if !matches!(op, BinOp::Shl | BinOp::Shr) {
                    self.same(&a.ty, &b.ty, "assignment with an operator");
                }
            }
            StmtKind::Call(call) => self.call(call),
            StmtKind::If(c, a, b) => {
                self.expr(c);
                self.same(&c.ty, &Type::Bool, "condition");
                self.stmts(a, at);
                self.stmts(b, at);
            }
            StmtKind::Block(_, body) => self.stmts(body, at),
            StmtKind::Return(Some(e)) => self.expr(e),
            StmtKind::Exit | StmtKind::Return(None) | StmtKind::Break | StmtKind::Continue => {}
            StmtKind::SwitchAction(call, cases, default) => {
                self.call(call);
                self.must(matches!(call.callee, Callee::Table(_)), "switch without a table");
                for (_, body) in cases {
                    self.stmts(body, at);
                }
                self.stmts(default, at);
            }
            StmtKind::Switch(on, cases, default) => {
                self.expr(on);
                for (_, body) in cases {
                    self.stmts(body, at);
                }
                self.stmts(default, at);
            }
            StmtKind::For { init, condition, update, body } => {
                self.stmts(init, at);
                self.expr(condition);
                self.stmts(update, at);
                self.stmts(body, at);
            }
            StmtKind::ForRange(var, a, b, body) => {
                let ty = self.program.vars[var.index()].ty.clone();
                self.same(&ty, &a.ty, "loop from");
                self.same(&ty, &b.ty, "loop to");
                self.stmts(body, at);
            }
            StmtKind::ForEach(_, e, body) => {
                self.expr(e);
                self.stmts(body, at);
            }
        }
    }

    fn place(&mut self, e: &Expr) {
        self.expr(e);
        let is_place = matches!(
            e.kind,
            ExprKind::Var(_)
                | ExprKind::Field(..)
                | ExprKind::Element(..)
                | ExprKind::Next(_)
                | ExprKind::Last(_)
                | ExprKind::Slice(..)
                | ExprKind::Index(..)
        );
        self.must(is_place, &format!("a place: {:?}", e.kind));
    }

    fn expr(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Const(value) => {
                self.must(constant_fits(value, &e.ty), &format!("constant {value:?} of {:?}", e.ty))
            }
            ExprKind::Var(id) => self.same(&self.program.vars[id.index()].ty.clone(), &e.ty, "variable"),
            ExprKind::Instance(id) => {
                self.same(&self.program.instances[id.index()].ty.clone(), &e.ty, "object")
            }
            ExprKind::New(object) => {
                self.same(&object.ty, &e.ty, "new object");
                for arg in &object.args {
                    self.expr(arg);
                }
            }
            ExprKind::Absent | ExprKind::Invalid => {}
            ExprKind::Field(base, at) => {
                self.expr(base);
                match &base.ty {
                    Type::Struct(c) | Type::Header(c) | Type::Union(c) => {
                        self.same(&c.fields[*at as usize].ty, &e.ty, "field");
                    }
                    other => self.must(false, &format!("a field of {other:?}")),
                }
            }
            ExprKind::Index(base, at) => {
                self.expr(base);
                match &base.ty {
                    Type::Tuple(parts) => self.same(&parts[*at as usize], &e.ty, "part of a tuple"),
                    other => self.must(false, &format!("a part of {other:?}")),
                }
            }
            ExprKind::Element(base, at) => {
                self.expr(base);
                self.expr(at);
                self.element(base, e);
            }
            ExprKind::Next(base) | ExprKind::Last(base) => {
                self.expr(base);
                self.element(base, e);
            }
            ExprKind::LastIndex(base) | ExprKind::Valid(base) => self.expr(base),
            ExprKind::Slice(base, hi, lo) => {
                self.expr(base);
                self.same(&e.ty, &Type::Bit(hi - lo + 1), "slice");
                self.must(matches!(base.ty, Type::Bit(w) | Type::Int(w) if *hi < w), "bits of a slice");
            }
            ExprKind::Unary(op, a) => {
                self.expr(a);
                self.same(&a.ty, &e.ty, &format!("{op:?}"));
                self.must(!matches!(a.kind, ExprKind::Const(_)), "an operator on a constant");
            }
            ExprKind::Binary(op, both) => {
                let (a, b) = both.as_ref();
                self.expr(a);
                self.expr(b);
                if !matches!(op, BinOp::Shl | BinOp::Shr | BinOp::Concat) {
                    self.same(&a.ty, &b.ty, &format!("operands of {op:?}"));
                }
                let constants = [a, b].iter().all(|e| matches!(e.kind, ExprKind::Const(_)));
                self.must(!constants, "an operator on constants");
            }
            ExprKind::Mux(parts) => {
                let (c, a, b) = parts.as_ref();
                self.expr(c);
                self.expr(a);
                self.expr(b);
                self.same(&a.ty, &e.ty, "first result");
                self.same(&b.ty, &e.ty, "second result");
            }
            ExprKind::Cast(a) => {
                self.expr(a);
                self.must(!matches!(a.kind, ExprKind::Const(_)), "a conversion of a constant");
            }
            ExprKind::Aggregate(parts) => {
                let types: Vec<Type> = match &e.ty {
                    Type::Struct(c) | Type::Header(c) | Type::Union(c) => {
                        c.fields.iter().map(|f| f.ty.clone()).collect()
                    }
                    Type::Tuple(types) => types.to_vec(),
                    Type::List(ty) => parts.iter().map(|_| ty.as_ref().clone()).collect(),
                    Type::Stack(ty, n) => vec![ty.as_ref().clone(); *n as usize],
                    other => {
                        self.must(false, &format!("an aggregate of {other:?}"));
                        return;
                    }
                };
                self.must(types.len() == parts.len(), "parts of an aggregate");
                for (part, ty) in parts.iter().zip(&types) {
                    self.expr(part);
                    self.same(&part.ty, ty, "part of an aggregate");
                }
            }
            ExprKind::Call(call) | ExprKind::Hit(call) | ExprKind::Miss(call) => {
                self.must(e.ty != Type::Void, "a value of a call without a result");
                self.call(call);
            }
        }
        if e.ty == Type::Integer {
            let constructor = |id: &VarId| self.program.vars[id.index()].kind == VarKind::Constructor;
            let known = match &e.kind {
                ExprKind::Var(id) => constructor(id),
                ExprKind::Const(_) | ExprKind::Unary(..) | ExprKind::Binary(..) | ExprKind::Mux(_) => true,
                _ => false,
            };
            self.must(known, &format!("an integer without a width: {:?}", e.kind));
        }
        let known = matches!(e.kind, ExprKind::Const(_) | ExprKind::Absent);
        self.must(known || e.ty != Type::Void, &format!("a value without a type: {:?}", e.kind));
    }

    fn element(&mut self, base: &Expr, e: &Expr) {
        match &base.ty {
            Type::Stack(ty, _) => self.same(ty, &e.ty, "element"),
            other => self.must(false, &format!("an element of {other:?}")),
        }
    }

    fn call(&mut self, call: &Call) {
        self.must(call.args.len() == call.directions.len(), "an argument for each parameter");
        for (arg, direction) in call.args.iter().zip(&call.directions) {
            if matches!(arg.kind, ExprKind::Absent) {
                continue;
            }
            match direction {
                Direction::Out | Direction::InOut => self.place(arg),
                _ => self.expr(arg),
            }
        }
        let params: &[VarId] = match &call.callee {
            Callee::Function(id) => &self.program.functions[id.index()].params,
            Callee::Action(id) => &self.program.actions[id.index()].params,
            Callee::Apply(object) => match &object.ty {
                Type::Parser(id) => &self.program.parsers[id.index()].params,
                Type::Control(id) => &self.program.controls[id.index()].params,
                _ => return,
            },
            _ => return,
        };
        self.must(params.len() == call.args.len(), "arguments of a call");
        for (param, arg) in params.iter().zip(&call.args) {
            if !matches!(arg.kind, ExprKind::Absent) {
                self.same(&self.program.vars[param.index()].ty.clone(), &arg.ty, "argument");
            }
        }
    }
}

/// Whether a constant is a value of a type.
fn constant_fits(value: &Value, ty: &Type) -> bool {
    match (value, ty) {
        (_, Type::New(new)) => constant_fits(value, &new.base),
        (Value::Integer(n), Type::Bit(w)) => n.sign() != num_bigint::Sign::Minus && n.bits() <= u64::from(*w),
        (Value::Integer(n), Type::Int(w)) => n.bits() <= u64::from(*w),
        (Value::Bool(_), Type::Bool)
        | (Value::Integer(_), Type::Integer | Type::Enum(_))
        | (Value::String(_), Type::String)
        | (Value::Error(_), Type::Error)
        | (Value::MatchKind(_), Type::MatchKind)
        | (Value::Invalid, Type::Header(_) | Type::Union(_)) => true,
        (Value::List(parts), Type::Struct(c) | Type::Header(c) | Type::Union(c)) => {
            parts.len() == c.fields.len() && parts.iter().zip(&c.fields).all(|(p, f)| constant_fits(p, &f.ty))
        }
        (Value::List(parts), Type::Tuple(types)) => {
            parts.len() == types.len() && parts.iter().zip(types.iter()).all(|(p, t)| constant_fits(p, t))
        }
        (Value::List(parts), Type::List(ty)) => parts.iter().all(|p| constant_fits(p, ty)),
        (Value::List(parts), Type::Stack(ty, n)) => {
            parts.len() == *n as usize && parts.iter().all(|p| constant_fits(p, ty))
        }
        _ => false,
    }
}

//! Statements: their operands' types, and where they may stand.

use super::expr::type_name;
use super::{Checker, MAX_DEPTH, Scope};
use crate::ir::{
    Action, Dest, Direction, EmitRef, Expr, ExternArg, FieldType, HashKind, Item, LValue, Send, Stmt, Type,
    Via,
};

impl<'p> Checker<'p> {
    pub(super) fn action(&mut self, action: &'p Action) {
        self.at(format!("action {}", action.name), |c| {
            c.names("parameter", action.params.iter().map(|param| param.name.as_str()));
            for param in &action.params {
                c.check_type_of(param.ty);
            }
            c.params = &action.params;
            c.scope = Scope::Action;
            c.body(&action.body, 0);
            c.params = &[];
            c.scope = Scope::Value;
        });
    }

    pub(super) fn body_in(&mut self, scope: Scope, body: &'p [Stmt]) {
        self.scope = scope;
        self.body(body, 0);
        self.scope = Scope::Value;
    }

    fn body(&mut self, body: &'p [Stmt], depth: usize) {
        if depth > MAX_DEPTH {
            let _: Option<()> = self.error(format!("statements are nested deeper than {MAX_DEPTH}"));
            return;
        }
        for (i, stmt) in body.iter().enumerate() {
            self.at(format!("statement {}", i + 1), |c| {
                c.allowed(stmt);
                c.stmt(stmt, depth + 1);
            });
        }
    }

    /// Checks one statement of a parser's state.
    pub(super) fn parser_stmt(&mut self, stmt: &'p Stmt) {
        self.allowed(stmt);
        self.stmt(stmt, 0);
    }

    /// Checks that a statement may stand here.
    fn allowed(&mut self, stmt: &Stmt) {
        use Stmt::*;
        let data = matches!(
            stmt,
            Set(..)
                | CopyHeader(..)
                | SetValid(_)
                | SetInvalid(_)
                | Push(..)
                | Pop(..)
                | Hash(..)
                | UpdateChecksum(..)
                | Random(..)
                | RegisterRead(..)
                | RegisterWrite(..)
                | Extern(..)
                | Count(..)
                | If(..)
                | Switch(..)
        );
        let (fits, place) = match self.scope {
            Scope::Parser => (data, "a parser"),
            Scope::Deparser => (data || matches!(stmt, Emit(_) | Digest(..) | Atomic(_)), "a deparser"),
            Scope::Action => (!matches!(stmt, Emit(_) | Apply(..)), "an action"),
            Scope::Control | Scope::Value => (!matches!(stmt, Emit(_)), "a block"),
        };
        let name = crate::text::statement_name(stmt);
        self.require(fits, || format!("`{name}` may not stand in {place}"));
        self.require(!self.atomic || (data && !matches!(stmt, Extern(..))), || {
            format!("`{name}` may not stand in an atomic statement")
        });
    }

    fn stmt(&mut self, stmt: &'p Stmt, depth: usize) {
        match stmt {
            Stmt::Set(place, value) => {
                let (to, from) = (self.place_type(place), self.ty(value));
                if let (Some(to), Some(from)) = (to, from) {
                    self.require(to == from, || {
                        format!("a value of {} is assigned to a place of {}", type_name(from), type_name(to))
                    });
                }
            }
            Stmt::CopyHeader(to, from) => {
                let (to, from) = (self.header_ref(to), self.header_ref(from));
                if let (Some(to), Some(from)) = (to, from) {
                    self.require(to.name == from.name, || {
                        format!("a header of type {} is copied to one of {}", from.name, to.name)
                    });
                }
            }
            Stmt::SetValid(header) | Stmt::SetInvalid(header) => {
                self.header_ref(header);
            }
            Stmt::Push(stack, _) | Stmt::Pop(stack, _) => {
                self.stack(*stack);
            }
            Stmt::Hash(place, _, items) => {
                self.place_bit(place);
                self.items(items);
            }
            Stmt::UpdateChecksum(place, old, new) => {
                self.place_of(place, Type::Bit(16));
                let (old, new) = (self.items(old), self.items(new));
                let fits = old == new && old.is_some_and(|bits| bits % 8 == 0);
                self.require(fits, || {
                    "both lists of a checksum update have one fixed length in bytes".to_owned()
                });
            }
            Stmt::Random(place, low, high) => {
                if let Some(ty) = self.place_type(place) {
                    self.require(matches!(ty, Type::Bit(_)), || "random numbers are unsigned".to_owned());
                    self.expect(low, ty);
                    self.expect(high, ty);
                }
            }
            Stmt::RegisterRead(place, register, index) => {
                if let Some(register) = self.get("register", &self.program.registers, register.index()) {
                    self.place_of(place, register.ty);
                }
                self.expect_bit(index);
            }
            Stmt::RegisterWrite(register, index, value) => {
                self.expect_bit(index);
                if let Some(register) = self.get("register", &self.program.registers, register.index()) {
                    self.expect(value, register.ty);
                }
            }
            Stmt::Atomic(body) => {
                self.require(!self.atomic, || "atomic statements do not nest".to_owned());
                let outer = std::mem::replace(&mut self.atomic, true);
                self.body(body, depth);
                self.atomic = outer;
            }
            Stmt::Count(counter, index) => {
                self.get("counter", &self.program.counters, counter.index());
                self.expect_bit(index);
            }
            Stmt::Meter(place, meter, index, color) => {
                self.place_bit(place);
                self.get("meter", &self.program.meters, meter.index());
                self.expect_bit(index);
                self.optional_bit(color);
            }
            Stmt::MeterEntry(place, table, color) => {
                self.place_bit(place);
                if let Some(table) = self.get("table", &self.program.tables, table.index()) {
                    self.require(table.meter.is_some(), || format!("table {} has no meters", table.name));
                }
                self.optional_bit(color);
            }
            Stmt::Send(send) => self.send(send),
            Stmt::Group(groups, id) => {
                self.get("group table", &self.program.groups, groups.index());
                self.expect_bit(id);
            }
            Stmt::Controller(reason, limit, data) => {
                self.expect(reason, Type::Bit(8));
                if let Some(limit) = limit {
                    self.expect(limit, Type::Bit(16));
                }
                self.items(data);
            }
            Stmt::Digest(digest, values) => {
                if let Some(digest) = self.get("digest", &self.program.digests, digest.index()) {
                    self.all(&digest.types, values);
                }
            }
            Stmt::Drop(reason) => {
                self.get("drop reason", &self.program.reasons, reason.index());
            }
            Stmt::Truncate(len) | Stmt::Remove(len) => self.expect(len, Type::Bit(32)),
            Stmt::Insert(items) => {
                let bits = self.items(items);
                self.require(bits.is_none_or(|bits| bits % 8 == 0), || {
                    "inserted data takes whole bytes".to_owned()
                });
                self.require(!items.contains(&Item::Payload), || {
                    "the payload cannot be inserted in front of itself".to_owned()
                });
            }
            Stmt::Reparse | Stmt::Return | Stmt::Exit => {}
            Stmt::Apply(table, applied) => {
                self.get("table", &self.program.tables, table.index());
                self.body(&applied.hit, depth);
                self.body(&applied.miss, depth);
                for (action, body) in &applied.actions {
                    self.get("action", &self.program.actions, action.index());
                    self.body(body, depth);
                }
                self.body(&applied.other, depth);
            }
            Stmt::Do(action, args) => {
                if let Some(action) = self.get("action", &self.program.actions, action.index()) {
                    let types: Vec<_> = action.params.iter().map(|param| param.ty).collect();
                    self.all(&types, args);
                }
            }
            Stmt::If(condition, yes, no) => {
                self.expect(condition, Type::Bool);
                self.body(yes, depth);
                self.body(no, depth);
            }
            Stmt::Switch(value, cases, default) => {
                let ty = self.ty(value);
                for (constants, body) in cases {
                    for constant in constants {
                        let found = self.constant(constant);
                        self.require(found == ty || ty.is_none() || found.is_none(), || {
                            "a case has another type than the value".to_owned()
                        });
                    }
                    self.body(body, depth);
                }
                self.body(default, depth);
            }
            Stmt::Call(block) | Stmt::Goto(block) => {
                self.get("block", &self.program.blocks, block.index());
            }
            Stmt::Extern(function, args) => {
                let Some(function) = self.get("extern", &self.program.externs, function.index()) else {
                    return;
                };
                self.require(function.params.len() == args.len(), || {
                    format!("{} takes {} arguments, not {}", function.name, function.params.len(), args.len())
                });
                for ((direction, ty), arg) in function.params.iter().zip(args) {
                    match (direction, arg) {
                        (Direction::In, ExternArg::In(value)) => self.expect(value, *ty),
                        (Direction::Out, ExternArg::Out(place)) => self.place_of(place, *ty),
                        _ => self.require(false, || {
                            format!("an argument of {} has the wrong direction", function.name)
                        }),
                    }
                }
            }
            Stmt::Emit(EmitRef::Header(header)) => {
                self.header_ref(header);
            }
            Stmt::Emit(EmitRef::Stack(stack)) => {
                self.stack(*stack);
            }
            Stmt::Emit(EmitRef::Union(union)) => {
                self.get("union", &self.program.unions, union.index());
            }
        }
    }

    fn send(&mut self, send: &'p Send) {
        match &send.to {
            Dest::Port(port) => self.expect_bit(port),
            Dest::Replicas(replicas, id) => {
                self.get("replication list", &self.program.replicas, replicas.index());
                self.expect_bit(id);
            }
            Dest::Flood | Dest::All => {}
            Dest::Fallback => self.require(send.via == Via::Direct, || {
                "the fallback logic is reached directly, not through a stage".to_owned()
            }),
            Dest::Same => self.require(matches!(send.via, Via::Stage(_)), || {
                "only a packet that enters a stage again needs no destination".to_owned()
            }),
        }
        if let Via::Stage(stage) = send.via {
            self.get("stage", &self.program.stages, stage.index());
        }
        for value in [&send.class, &send.queue, &send.limit] {
            self.optional_bit(value);
        }
        for var in &send.carry {
            self.get("variable", &self.program.vars, var.index());
        }
    }

    fn optional_bit(&mut self, value: &'p Option<Expr>) {
        if let Some(value) = value {
            self.expect_bit(value);
        }
    }

    fn place_of(&mut self, place: &'p LValue, ty: Type) {
        if let Some(found) = self.place_type(place) {
            self.require(found == ty, || {
                format!("expected a place of {}, found {}", type_name(ty), type_name(found))
            });
        }
    }

    fn all(&mut self, types: &[Type], values: &'p [Expr]) {
        self.require(types.len() == values.len(), || {
            format!("expected {} values, found {}", types.len(), values.len())
        });
        for (ty, value) in types.iter().zip(values) {
            self.expect(value, *ty);
        }
    }

    /// Checks the input of a selection.
    pub(super) fn selection(&mut self, _hash: HashKind, input: &'p [Item]) {
        self.items(input);
    }

    /// Checks an extraction.
    pub(super) fn extract(&mut self, header: &'p crate::ir::HeaderRef, length: &'p Option<Expr>) {
        let Some(ty) = self.header_ref(header) else { return };
        let varbit = ty.fields.iter().any(|field| matches!(field.ty, FieldType::Varbit(_)));
        self.require(varbit == length.is_some(), || match varbit {
            true => format!("header type {} has a variable field, whose length is missing", ty.name),
            false => format!("header type {} has no variable field, but a length is given", ty.name),
        });
        if let Some(length) = length {
            self.expect(length, Type::Bit(32));
        }
    }
}

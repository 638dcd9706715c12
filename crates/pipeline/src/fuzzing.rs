//! Random programs, entries and environments from a string of bytes, for property tests, fuzz targets and comparisons
//! of the interpreter with other executions.
//!
//! Invariants:
//! - [`program`] is valid for every string, and contains any construct with some probability;
//! - [`updates`] fit the program, except that tables may be full and entries may collide;
//! - equal strings give equal results.

use crate::bits::{Bits, MAX_WIDTH};
use crate::env::Env;
use crate::ir::*;
use crate::state::{Bucket, Choice, Group, GroupKind, Rates, Replica, Replication, State, Update};

/// A source of choices: the bytes of a string, then zeros.
#[derive(Debug)]
pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    /// Choices from these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().map_or((0, self.0), |(first, rest)| (*first, rest));
        self.0 = rest;
        first
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        if n > 256 {
            return (usize::from(self.byte()) << 8 | usize::from(self.byte())) % n;
        }
        usize::from(self.byte()) % n.max(1)
    }

    /// True once in `n`, never when the bytes are used up.
    fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> Option<T> {
        let i = self.below(list.len());
        list.get(i).cloned()
    }

    /// A value: often an extreme one.
    fn bits(&mut self, width: u16) -> Bits {
        match self.below(4) {
            0 => Bits::from_u64(width, u64::from(self.byte() % 4)),
            1 => Bits::ones(width).shr(u64::from(self.byte() % 3)),
            2 => Bits::from_u64(width, 1).shl(u64::from(width - 1)),
            _ => {
                let bytes: Vec<u8> = (0..width.div_ceil(8)).map(|_| self.byte()).collect();
                Bits::from_bytes(width, &bytes)
            }
        }
    }

    fn constant(&mut self, ty: Type) -> Constant {
        Constant { ty, value: self.bits(ty.width()) }
    }

    fn width(&mut self) -> u16 {
        const WIDTHS: &[u16] =
            &[1, 2, 7, 8, 9, 16, 31, 32, 33, 48, 63, 64, 65, 127, 128, 129, 200, 513, MAX_WIDTH];
        self.pick(WIDTHS).unwrap_or(8)
    }

    fn ty(&mut self) -> Type {
        match self.below(5) {
            0 => Type::Bool,
            1 => Type::Int(self.width()),
            _ => Type::Bit(self.width()),
        }
    }
}

/// An environment that answers from a seed.
#[derive(Debug, Clone)]
pub struct World {
    /// Time, nanoseconds.
    pub now: u64,
    /// State of the random numbers.
    pub seed: u64,
}

impl Env for World {
    fn now(&mut self) -> u64 {
        self.now
    }

    fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.seed.rotate_left(32)
    }

    fn is_live(&self, port: u32) -> bool {
        !port.is_multiple_of(3)
    }

    fn ports(&self, ingress: u32, flood: bool) -> Vec<u32> {
        (1..=if flood { 3 } else { 4 }).filter(|port| *port != ingress).collect()
    }

    fn call(&mut self, function: &Extern, args: &[Constant], results: &mut [Constant]) -> bool {
        for (result, arg) in results.iter_mut().zip(args) {
            result.value = arg.value.resize(result.ty.width()).not();
        }
        function.name != "e1"
    }
}

/// Where statements stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    Parser,
    Block,
    Action,
    Deparser,
    Atomic,
}

struct Maker<'s, 'a> {
    s: &'s mut Source<'a>,
    p: Program,
    params: Vec<Type>,
    place: Where,
}

const BLOCKS: usize = 4;
const TABLES: usize = 3;
const ACTIONS: usize = 4;

/// Returns a valid program.
pub fn program(source: &mut Source<'_>) -> Program {
    let mut maker = Maker { s: source, p: Program::new("random"), params: vec![], place: Where::Block };
    maker.declare();
    maker.define();
    maker.p
}

impl Maker<'_, '_> {
    fn declare(&mut self) {
        for i in 0..3 {
            let mut fields = Vec::new();
            let mut bits = 0;
            for f in 0..1 + self.s.below(3) {
                let ty = if self.s.once_in(4) { self.s.ty() } else { Type::Bit(1 + self.s.below(40) as u16) };
                bits += usize::from(ty.width());
                fields.push((format!("f{f}"), FieldType::Scalar(ty)));
            }
            let pad = (8 - bits % 8) % 8;
            if pad > 0 {
                fields.push(("pad".into(), FieldType::Scalar(Type::Bit(pad as u16))));
            }
            if i == 2 {
                let at = self.s.below(fields.len() + 1);
                fields.insert(at, ("options".into(), FieldType::Varbit(64)));
            }
            let fields: Vec<_> = fields.iter().map(|(name, ty)| (name.as_str(), *ty)).collect();
            self.p.add_header_type(&format!("t{i}"), &fields);
        }
        let ty = |i| HeaderTypeId(i);
        self.p.add_header("h0", ty(0));
        self.p.add_stack("s0", ty(1), 1 + self.s.below(4) as u32);
        self.p.add_union("u0", &[("m0", ty(0)), ("m 1", ty(2))]);
        self.p.add_header("h1", ty(2));
        for (i, slot) in Slot::ALL.iter().enumerate() {
            if self.s.once_in(3) {
                let width = self.s.width();
                self.p.add_slot(&format!("slot{i}"), width, *slot);
            }
        }
        for i in 0..4 {
            let ty = self.s.ty();
            self.p.add_var(&format!("v{i}"), ty);
        }
        self.p.add_var("index", Type::Bit(8));
        self.p.add_var("if", Type::Bool);
        self.p.add_error("Own");
        self.p.add_reason("own reason");
        self.p.replicas.push("r0".into());
        let types = vec![self.s.ty(), self.s.ty()];
        self.p.value_sets.push(ValueSet { name: "vs0".into(), types, size: 4 });
        let types = vec![self.s.ty(), self.s.ty()];
        self.p.digests.push(Digest { name: "d0".into(), types });
        self.p.counters.push(Counter { name: "c0".into(), size: 4, kind: CounterKind::Both });
        self.p.meters.push(Meter { name: "m0".into(), size: 4, unit: MeterUnit::Bytes });
        let ty = self.s.ty();
        self.p.registers.push(Register { name: "r0".into(), size: 4, ty });
        for i in 0..2 {
            let params = vec![(Direction::In, self.s.ty()), (Direction::Out, self.s.ty())];
            self.p.externs.push(Extern { name: format!("e{i}"), params });
        }
        for i in 0..ACTIONS {
            let types: Vec<Type> = (0..self.s.below(3)).map(|_| self.s.ty()).collect();
            let names: Vec<String> = (0..types.len()).map(|i| format!("p{i}")).collect();
            let params: Vec<_> = names.iter().map(String::as_str).zip(types).collect();
            self.p.add_action(&format!("a{i}"), &params, vec![]);
        }
        for i in 0..BLOCKS {
            self.p.declare_block(&format!("b{i}"));
        }
        for i in 0..TABLES {
            self.p.add_table(Table::new(&format!("t{i}"), 8));
        }
        let select = Selection { hash: HashKind::Crc32, input: vec![] };
        let actions = (0..ACTIONS).map(ActionId::at).collect();
        self.p.profiles.push(Profile { name: "p0".into(), actions, size: 8, select: Some(select.clone()) });
        self.p.groups.push(GroupTable { name: "g0".into(), size: 4, select });
        let block = |i| BlockId(i);
        let second = Stage {
            name: "second".into(),
            parser: self.s.once_in(2).then_some(ParserId(0)),
            control: block(1),
            finish: None,
            deparser: self.s.once_in(2).then_some(block(3)),
            next: None,
        };
        self.p.add_stage(Stage {
            name: "first".into(),
            parser: Some(ParserId(0)),
            finish: Some(block(2)),
            control: block(0),
            deparser: Some(block(3)),
            next: self.s.once_in(2).then_some(StageId(1)),
        });
        self.p.add_stage(second);
    }

    fn define(&mut self) {
        for i in 0..TABLES {
            let mut table = Table::new(&format!("t{i}"), 8).actions(&[ActionId(0), ActionId(1)]);
            let mut lpm = false;
            for k in 0..self.s.below(4) {
                let kind = self.s.pick(MatchKind::ALL).filter(|kind| *kind != MatchKind::Lpm || !lpm);
                let kind = kind.unwrap_or(MatchKind::Exact);
                lpm |= kind == MatchKind::Lpm;
                let ty = match kind {
                    MatchKind::Lpm | MatchKind::Range => Type::Bit(self.s.width()),
                    _ => self.s.ty(),
                };
                let value = self.expr(ty, 3);
                table = table.key(&format!("k{k}"), kind, value);
            }
            table.counter = self.s.pick(&[None, Some(CounterKind::Both)]).flatten();
            table.timeouts = self.s.once_in(2);
            table.meter = Some(MeterUnit::Packets);
            if i == 2 {
                table.profile = Some(ProfileId(0));
            } else {
                table.open = self.s.once_in(2);
            }
            if self.s.once_in(2) {
                table.default = Some(self.call(0));
            }
            self.p.tables.iter_mut().skip(i).take(1).for_each(|slot| slot.clone_from(&table));
        }
        let input = self.items(2);
        self.p.groups.iter_mut().for_each(|groups| groups.select.input.clone_from(&input));
        self.parser();
        for i in 0..ACTIONS {
            self.place = Where::Action;
            self.params = self.p.actions.get(i).map_or(vec![], |a| a.params.iter().map(|p| p.ty).collect());
            let body = self.body(3);
            self.params.clear();
            self.p.actions.iter_mut().skip(i).take(1).for_each(|action| action.body.clone_from(&body));
        }
        for i in 0..BLOCKS {
            self.place = if i == 3 { Where::Deparser } else { Where::Block };
            let body = self.body(4);
            self.p.define_block(BlockId::at(i), body);
        }
    }

    fn call(&mut self, action: u32) -> ActionCall {
        let params = self.p.actions.get(action as usize).map_or(&[][..], |action| &action.params);
        let args = params.iter().map(|param| self.s.constant(param.ty)).collect();
        ActionCall { action: ActionId(action), args }
    }

    fn parser(&mut self) {
        self.place = Where::Parser;
        let count = 3;
        let mut states = Vec::new();
        for i in 0..count {
            let mut ops = Vec::new();
            // A state that extracts may lead back; others lead on.
            let consumes = self.s.once_in(2) || i == 0;
            if consumes {
                let (header, varbit) = self.header_ref(1);
                let length =
                    varbit.then(|| Expr::bit(32, 8).op(BinOp::Mul, Expr::bit(32, self.s.below(9) as u64)));
                ops.push(ParserOp::Extract(header, length));
            }
            for _ in 0..self.s.below(3) {
                ops.push(match self.s.below(4) {
                    0 => ParserOp::Advance(Expr::bit(32, self.s.below(5) as u64 * 8)),
                    1 => ParserOp::Verify(self.expr(Type::Bool, 2), ErrorId(7)),
                    _ => ParserOp::Do(self.stmt(1)),
                });
            }
            let target = |s: &mut Source<'_>| match s.below(4) {
                0 => Target::Accept,
                1 => Target::Reject,
                _ if consumes => Target::State(s.below(count) as u32),
                _ if i + 1 < count => Target::State(i as u32 + 1),
                _ => Target::Accept,
            };
            let next = if self.s.once_in(2) {
                let types = match self.s.once_in(2) {
                    true => self.p.value_sets.first().map_or(vec![], |set| set.types.clone()),
                    false => vec![self.s.ty()],
                };
                let is_set = types.len() == 2;
                let on = types.iter().map(|ty| self.expr(*ty, 2)).collect();
                let mut cases = Vec::new();
                for _ in 0..self.s.below(4) {
                    let sets = match is_set && self.s.once_in(3) {
                        true => vec![Keyset::Set(ValueSetId(0))],
                        false => types.iter().map(|ty| self.keyset(*ty)).collect(),
                    };
                    cases.push(Case { sets, to: target(self.s) });
                }
                Transition::Select(Select { on, cases })
            } else {
                Transition::To(target(self.s))
            };
            states.push(ParserState { name: format!("state{i}"), ops, next });
        }
        self.p.add_parser("in", states);
    }

    fn keyset(&mut self, ty: Type) -> Keyset {
        match self.s.below(4) {
            0 => Keyset::Any,
            1 => Keyset::Value(self.s.constant(ty)),
            2 => Keyset::Mask(self.s.constant(ty), self.s.constant(ty)),
            _ => Keyset::Range(self.s.constant(ty), self.s.constant(ty)),
        }
    }

    /// A header reference, and whether its type has a variable field.
    fn header_ref(&mut self, depth: usize) -> (HeaderRef, bool) {
        if self.s.once_in(2) {
            let stack = StackId(0);
            return match self.s.below(3) {
                0 if self.place == Where::Parser => (HeaderRef::Next(stack), false),
                1 if self.place == Where::Parser => (HeaderRef::Last(stack), false),
                _ => (
                    HeaderRef::Element(stack, Box::new(self.expr(Type::Bit(8), depth.saturating_sub(1)))),
                    false,
                ),
            };
        }
        let header = HeaderId::at(self.s.below(self.p.headers.len()));
        (HeaderRef::Header(header), self.p.header_type(header).is_some_and(HeaderType::has_varbit))
    }

    /// All fields of one type that lie in headers, and all variables of this type.
    fn places(&self, ty: Type) -> Vec<LValue> {
        let vars = self.p.vars.iter().enumerate().filter(|(_, var)| var.ty == ty);
        let vars = vars.map(|(i, _)| LValue::Var(VarId::at(i)));
        let fields = (0..self.p.headers.len()).map(HeaderId::at).flat_map(|header| {
            let fields = self.p.header_type(header).map_or(&[][..], |ty| &ty.fields);
            let fitting =
                fields.iter().enumerate().filter(move |(_, field)| field.ty == FieldType::Scalar(ty));
            fitting.map(move |(i, _)| LValue::Field(HeaderRef::Header(header), i as u16))
        });
        vars.chain(fields).collect()
    }

    /// A place of any type.
    fn place(&mut self) -> (LValue, Type) {
        let mut types: Vec<Type> = self.p.vars.iter().map(|var| var.ty).collect();
        let scalar = |field: &Field| match field.ty {
            FieldType::Scalar(ty) => Some(ty),
            FieldType::Varbit(_) => None,
        };
        types.extend(self.p.header_types.iter().flat_map(|ty| ty.fields.iter().filter_map(scalar)));
        let ty = self.s.pick(&types).unwrap_or(Type::Bool);
        let place = self.s.pick(&self.places(ty)).unwrap_or(LValue::Var(VarId(0)));
        if ty != Type::Bool && self.s.once_in(4) {
            let lo = self.s.below(ty.width().into()) as u16;
            let hi = lo + self.s.below((ty.width() - lo).into()) as u16;
            return (LValue::Slice(Box::new(place), hi, lo), Type::Bit(hi - lo + 1));
        }
        (place, ty)
    }

    /// A place of an unsigned type; the variable `index` if chance finds none.
    fn bit_place(&mut self) -> (LValue, Type) {
        match self.place() {
            (place, ty @ Type::Bit(_)) => (place, ty),
            _ => {
                let index = self.p.vars.iter().position(|var| var.name == "index").unwrap_or(0);
                (LValue::Var(VarId::at(index)), Type::Bit(8))
            }
        }
    }

    /// An expression of a type.
    fn expr(&mut self, ty: Type, depth: usize) -> Expr {
        if depth == 0 || self.s.once_in(4) {
            return self.leaf(ty);
        }
        let depth = depth - 1;
        match ty {
            Type::Bool => match self.s.below(6) {
                0 => Expr::Unary(UnOp::Not, Box::new(self.expr(Type::Bool, depth))),
                1 => {
                    let op = self.s.pick(&[BinOp::LogicAnd, BinOp::LogicOr]).unwrap_or(BinOp::LogicAnd);
                    self.expr(ty, depth).op(op, self.expr(ty, depth))
                }
                2 => Expr::Valid(self.header_ref(depth).0),
                3 => self.expr(Type::Bit(1), depth).cast(Type::Bool),
                _ => {
                    use BinOp::*;
                    let of = self.s.ty();
                    let ops: &[BinOp] = if of == Type::Bool { &[Eq, Ne] } else { &[Eq, Ne, Lt, Le, Gt, Ge] };
                    let op = self.s.pick(ops).unwrap_or(Eq);
                    self.expr(of, depth).op(op, self.expr(of, depth))
                }
            },
            Type::Bit(width) => match self.s.below(7) {
                0 => self.expr(Type::Bit(width), depth).op(BinOp::OnesAdd, self.expr(ty, depth)),
                1 => self.expr(ty, depth).op(BinOp::Div, self.expr(ty, depth)),
                2 => self.expr(ty, depth).op(BinOp::Rem, self.expr(ty, depth)),
                3 if width > 1 => {
                    let low = 1 + self.s.below(usize::from(width) - 1) as u16;
                    let high = self.expr(Type::Bit(width - low), depth);
                    high.op(BinOp::Concat, self.expr(Type::Bit(low), depth))
                }
                4 => {
                    let extra = self.s.below(usize::from(MAX_WIDTH - width).min(70) + 1) as u16;
                    let lo = self.s.below(usize::from(extra) + 1) as u16;
                    let of = self.s.pick(&[Type::Bit(width + extra), Type::Int(width + extra)]).unwrap_or(ty);
                    self.expr(of, depth).slice(lo + width - 1, lo)
                }
                5 => {
                    let from = if self.s.once_in(3) { Type::Int(width) } else { Type::Bit(self.s.width()) };
                    self.expr(from, depth).cast(ty)
                }
                _ => self.number(ty, depth),
            },
            Type::Int(width) => match self.s.below(4) {
                0 => self.expr(Type::Bit(width), depth).cast(ty),
                1 => {
                    let from = Type::Int(self.s.width());
                    self.expr(from, depth).cast(ty)
                }
                _ => self.number(ty, depth),
            },
        }
    }

    /// An operation that signed and unsigned numbers have.
    fn number(&mut self, ty: Type, depth: usize) -> Expr {
        use BinOp::*;
        match self.s.below(8) {
            0 => Expr::Unary(UnOp::Complement, Box::new(self.expr(ty, depth))),
            1 => Expr::Unary(UnOp::Negate, Box::new(self.expr(ty, depth))),
            2 => Expr::Mux(Box::new((
                self.expr(Type::Bool, depth),
                self.expr(ty, depth),
                self.expr(ty, depth),
            ))),
            3 => {
                let op = self.s.pick(&[Shl, Shr]).unwrap_or(Shl);
                let by = Type::Bit(1 + self.s.below(12) as u16);
                self.expr(ty, depth).op(op, self.expr(by, depth))
            }
            _ => {
                let op = self.s.pick(&[Add, Sub, Mul, SatAdd, SatSub, And, Or, Xor]).unwrap_or(Add);
                self.expr(ty, depth).op(op, self.expr(ty, depth))
            }
        }
    }

    fn leaf(&mut self, ty: Type) -> Expr {
        match self.s.below(5) {
            0 => return Expr::Const(self.s.constant(ty)),
            1 if self.place == Where::Parser => return Expr::Lookahead(ty, self.s.below(40) as u32),
            1 if ty == Type::Bit(32) => {
                let length = Expr::FieldLength(
                    HeaderRef::Header(HeaderId::at(self.p.headers.len() - 1)),
                    self.varbit(),
                );
                return self
                    .s
                    .pick(&[Expr::Remaining, Expr::LastIndex(StackId(0)), length])
                    .unwrap_or(Expr::Remaining);
            }
            2 => {
                let params: Vec<_> =
                    self.params.iter().enumerate().filter(|(_, param)| **param == ty).collect();
                if let Some((i, _)) = params.first() {
                    return Expr::Param(*i as u16);
                }
            }
            _ => {}
        }
        match self.s.pick(&self.places(ty)) {
            Some(LValue::Var(var)) => Expr::Var(var),
            Some(LValue::Field(header, field)) => Expr::Field(header, field),
            _ => Expr::Const(self.s.constant(ty)),
        }
    }

    /// The variable field of the last header.
    fn varbit(&self) -> u16 {
        let fields = self.p.header_types.last().map_or(&[][..], |ty| &ty.fields);
        fields.iter().position(|field| matches!(field.ty, FieldType::Varbit(_))).unwrap_or(0) as u16
    }

    fn items(&mut self, depth: usize) -> Vec<Item> {
        let mut items = Vec::new();
        for _ in 0..self.s.below(4) {
            items.push(match self.s.below(4) {
                0 => Item::Payload,
                1 => Item::Value(Expr::Field(
                    HeaderRef::Header(HeaderId::at(self.p.headers.len() - 1)),
                    self.varbit(),
                )),
                _ => {
                    let ty = self.s.ty();
                    Item::Value(self.expr(ty, depth))
                }
            });
        }
        items
    }

    fn body(&mut self, depth: usize) -> Vec<Stmt> {
        (0..self.s.below(4)).map(|_| self.stmt(depth)).collect()
    }

    fn stmt(&mut self, depth: usize) -> Stmt {
        let depth = depth.saturating_sub(1);
        if depth == 0 || self.place == Where::Parser || self.place == Where::Atomic || self.s.once_in(3) {
            return self.compute();
        }
        let bit8 = Type::Bit(8);
        let only_data = self.place == Where::Deparser;
        match self.s.below(18) {
            0 => Stmt::If(self.expr(Type::Bool, 2), self.body(depth), self.body(depth)),
            1 => {
                let ty = self.s.ty();
                let value = self.expr(ty, 2);
                let cases =
                    (0..self.s.below(3)).map(|_| (vec![self.s.constant(ty)], self.body(depth))).collect();
                Stmt::Switch(value, cases, self.body(depth))
            }
            2 if self.place != Where::Atomic => {
                let before = std::mem::replace(&mut self.place, Where::Atomic);
                let body = self.body(depth);
                self.place = before;
                Stmt::Atomic(body)
            }
            3 if self.place == Where::Deparser => Stmt::Emit(match self.s.below(3) {
                0 => EmitRef::Stack(StackId(0)),
                1 => EmitRef::Union(UnionId(0)),
                _ => EmitRef::Header(self.header_ref(1).0),
            }),
            4 => {
                let types = self.p.digests.first().map_or(vec![], |digest| digest.types.clone());
                Stmt::Digest(DigestId(0), types.iter().map(|ty| self.expr(*ty, 2)).collect())
            }
            _ if only_data => self.compute(),
            5..=7 => Stmt::Send(Box::new(self.send())),
            8 => Stmt::Group(GroupTableId(0), self.expr(bit8, 1)),
            9 => Stmt::Controller(self.expr(bit8, 1), Some(self.expr(Type::Bit(16), 1)), self.items(1)),
            10 => self
                .s
                .pick(&[Stmt::Drop(ReasonId(0)), Stmt::Exit, Stmt::Return, Stmt::Reparse])
                .unwrap_or(Stmt::Exit),
            11 => self
                .s
                .pick(&[Stmt::Call(BlockId(1)), Stmt::Goto(BlockId(2)), Stmt::Call(BlockId(0))])
                .unwrap_or(Stmt::Exit),
            12 => Stmt::Truncate(self.expr(Type::Bit(32), 1)),
            13 => Stmt::Remove(self.expr(Type::Bit(32), 1)),
            14 => Stmt::Insert(vec![Item::Value(self.expr(Type::Bit(48), 2))]),
            15 => {
                let action = self.s.below(ACTIONS);
                let params =
                    self.p.actions.get(action).map_or(vec![], |a| a.params.iter().map(|p| p.ty).collect());
                let args = params.iter().map(|ty| self.expr(*ty, 1)).collect();
                Stmt::Do(ActionId::at(action), args)
            }
            _ if self.place == Where::Action => self.compute(),
            _ => {
                let table = TableId::at(self.s.below(TABLES));
                let mut applied =
                    Applied { hit: self.body(depth), miss: self.body(depth), ..Applied::default() };
                if self.s.once_in(2) {
                    applied.actions.push((ActionId(0), self.body(depth)));
                    applied.other = self.body(depth);
                }
                Stmt::Apply(table, Box::new(applied))
            }
        }
    }

    /// A statement that may stand everywhere.
    fn compute(&mut self) -> Stmt {
        let index = Type::Bit(8);
        let register = self.p.registers.first().map_or(Type::Bool, |register| register.ty);
        match self.s.below(16) {
            0 => Stmt::CopyHeader(HeaderRef::Header(HeaderId(0)), HeaderRef::Header(self.member())),
            1 => Stmt::SetInvalid(self.header_ref(1).0),
            2 | 3 => Stmt::SetValid(self.header_ref(1).0),
            4 => Stmt::Push(StackId(0), self.s.below(5) as u32),
            5 => Stmt::Pop(StackId(0), self.s.below(5) as u32),
            6 => Stmt::Hash(
                self.bit_place().0,
                self.s.pick(HashKind::ALL).unwrap_or(HashKind::Crc32),
                self.items(2),
            ),
            7 => {
                let (place, ty) = self.bit_place();
                Stmt::Random(place, self.expr(ty, 1), self.expr(ty, 1))
            }
            8 => match self.s.pick(&self.places(register)) {
                Some(place) => Stmt::RegisterRead(place, RegisterId(0), self.expr(index, 1)),
                None => Stmt::Count(CounterId(0), self.expr(index, 1)),
            },
            9 => Stmt::RegisterWrite(RegisterId(0), self.expr(index, 1), self.expr(register, 2)),
            10 => Stmt::Count(CounterId(0), self.expr(index, 1)),
            11 if matches!(self.place, Where::Block | Where::Action) => {
                let place = self.bit_place().0;
                match self.s.once_in(2) {
                    true => Stmt::Meter(place, MeterId(0), self.expr(index, 1), Some(self.expr(index, 1))),
                    false => Stmt::MeterEntry(place, TableId(0), None),
                }
            }
            12 if self.place != Where::Atomic => {
                let function = self.s.below(2);
                let params = self.p.externs.get(function).map_or(vec![], |function| function.params.clone());
                if let [(_, input), (_, output)] = params[..]
                    && let Some(place) = self.s.pick(&self.places(output))
                {
                    let args = vec![ExternArg::In(self.expr(input, 2)), ExternArg::Out(place)];
                    return Stmt::Extern(ExternId::at(function), args);
                }
                Stmt::SetValid(HeaderRef::Header(HeaderId(0)))
            }
            13 => match self.s.pick(&self.places(Type::Bit(16))) {
                Some(place) => {
                    let list = |m: &mut Self| vec![Item::Value(m.expr(Type::Bit(32), 2))];
                    Stmt::UpdateChecksum(place, list(self), list(self))
                }
                None => Stmt::SetValid(HeaderRef::Header(HeaderId(0))),
            },
            _ => {
                let (place, ty) = self.place();
                Stmt::Set(place, self.expr(ty, 3))
            }
        }
    }

    /// The union's member that has the type of the first header.
    fn member(&self) -> HeaderId {
        self.p.unions.first().map_or(HeaderId(0), |union| union.first)
    }

    fn send(&mut self) -> Send {
        let via = self.s.pick(&[Via::Next, Via::Direct, Via::Stage(StageId(0)), Via::Stage(StageId(1))]);
        let via = via.unwrap_or(Via::Next);
        let to = match self.s.below(6) {
            0 => Dest::Flood,
            1 => Dest::All,
            2 if via == Via::Direct => Dest::Fallback,
            3 => Dest::Replicas(ReplicasId(0), self.expr(Type::Bit(8), 1)),
            4 if matches!(via, Via::Stage(_)) => Dest::Same,
            _ => Dest::Port(self.expr(Type::Bit(9), 1)),
        };
        Send {
            packet: self.s.pick(&[Packet::Current, Packet::Original]).unwrap_or(Packet::Current),
            to,
            via,
            instance: self.s.byte(),
            class: self.s.once_in(3).then(|| Expr::bit(3, 5)),
            queue: self.s.once_in(3).then(|| Expr::bit(3, 4)),
            limit: self.s.once_in(3).then(|| Expr::bit(16, 20)),
            carry: if self.s.once_in(2) { vec![VarId(0)] } else { vec![] },
        }
    }
}

/// Returns updates of a program's state.
pub fn updates(state: &State, source: &mut Source<'_>) -> Vec<Update> {
    let p = state.program();
    let mut updates = Vec::new();
    let call = |s: &mut Source<'_>, action: usize| {
        let params = p.actions.get(action).map_or(&[][..], |action| &action.params);
        ActionCall {
            action: ActionId::at(action),
            args: params.iter().map(|param| s.constant(param.ty)).collect(),
        }
    };
    for (i, table) in p.tables.iter().enumerate() {
        for _ in 0..source.below(6) {
            let mut matches = Vec::new();
            for (k, key) in table.keys.iter().enumerate() {
                let width = crate::validate::expr_type(p, &key.value).map_or(1, Type::width);
                let (a, b) = (source.bits(width), source.bits(width));
                let is = match key.kind {
                    MatchKind::Exact => KeyMatch::Exact(a),
                    _ if source.once_in(3) => continue,
                    MatchKind::Optional => KeyMatch::Exact(a),
                    MatchKind::Lpm => {
                        let len = source.below(usize::from(width) + 1) as u16;
                        KeyMatch::Prefix(a.and(&crate::validate::entry::prefix_mask(width, len)), len)
                    }
                    MatchKind::Ternary => KeyMatch::Mask(a.and(&b), b),
                    MatchKind::Range => KeyMatch::Range(a.clone().min(b.clone()), a.max(b)),
                };
                matches.push(Match { key: k as u32, is });
            }
            let result = match (table.profile, source.below(2)) {
                (None, action) => EntryResult::Action(call(source, action)),
                (Some(_), 0) => EntryResult::Member(source.below(3) as u32),
                (Some(_), _) => EntryResult::Group(source.below(2) as u32),
            };
            let priority = if table.has_priority() { source.below(3) as u32 } else { 0 };
            let entry = Entry { matches: matches.into(), priority, result, idle: 0, hard: 0, cookie: 0 };
            updates.push(Update::Insert(TableId::at(i), entry));
        }
    }
    for id in 0..2 {
        updates.push(Update::Member(ProfileId(0), id, Some(call(source, id as usize))));
        let choices =
            (0..2).map(|member| Choice { member, weight: source.below(3) as u32, watch: None }).collect();
        updates.push(Update::Selection(ProfileId(0), id, Some(choices)));
        let kinds = [GroupKind::All, GroupKind::Select, GroupKind::Indirect, GroupKind::Failover];
        let bucket = |s: &mut Source<'_>| {
            let action = s.below(ACTIONS);
            let watch_group = s.once_in(4).then_some(id);
            Bucket { weight: s.below(3) as u32, watch_port: Some(1), watch_group, call: call(s, action) }
        };
        let buckets = vec![bucket(source), bucket(source)];
        let group = Group { kind: source.pick(&kinds).unwrap_or(GroupKind::All), buckets };
        updates.push(Update::Group(GroupTableId(0), id, Some(group)));
        let replicas = (0..source.below(4)).map(|i| Replica { port: i as u32, instance: i as u16 }).collect();
        let list = Replication { replicas, class: None, limit: source.once_in(2).then_some(30) };
        updates.push(Update::Replication(ReplicasId(0), id, Some(list)));
        let rates = Rates::Single { rate: 1, burst: 100, excess: 50 };
        updates.push(Update::Meter(MeterId(0), id, Some(rates)));
    }
    if let Some(set) = p.value_sets.first() {
        let tuple = set.types.iter().map(|ty| Some(KeyMatch::Exact(source.bits(ty.width())))).collect();
        updates.push(Update::Values(ValueSetId(0), vec![tuple]));
    }
    updates
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::interp::{self, Effect, Limits, Received};
    use crate::{Checked, text, validate};

    fn bytes(len: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..len)
    }

    #[test]
    fn every_construct_occurs() {
        let mut world = World { now: 0, seed: 1 };
        let texts: Vec<String> = (0..300)
            .map(|_| {
                let bytes: Vec<u8> = (0..2000).map(|_| world.random() as u8).collect();
                text::print(&program(&mut Source::new(&bytes)))
            })
            .collect();
        let statements = [
            "copy",
            "valid",
            "invalid",
            "push",
            "pop",
            "hash",
            "checksum",
            "random",
            "read",
            "write",
            "atomic",
            "count",
            "meter",
            "meter_entry",
            "send",
            "group",
            "controller",
            "digest",
            "drop",
            "truncate",
            "insert",
            "remove",
            "reparse",
            "apply",
            "do",
            "if",
            "switch",
            "call",
            "goto",
            "return",
            "exit",
            "extern",
            "emit",
            "extract",
            "advance",
            "verify",
            "select",
        ];
        for word in statements.map(|word| format!(" {word}")) {
            assert!(
                texts
                    .iter()
                    .any(|text| text.contains(&format!("  {word} ")) || text.contains(&format!("  {word};"))),
                "{word}"
            );
        }
        let inside = [
            "lookahead(",
            "remaining",
            "last_index(",
            "length(",
            "valid(",
            "payload",
            " ? ",
            "s0.next",
            "s0.last",
            "+1c",
        ];
        for word in inside {
            assert!(texts.iter().any(|text| text.contains(word)), "{word}");
        }
    }

    proptest! {
        #[test]
        fn random_programs_are_valid_and_their_text_is_theirs(choices in bytes(4000)) {
            let program = program(&mut Source::new(&choices));
            prop_assert_eq!(validate(&program), vec![]);
            let printed = text::print(&program);
            let parsed = text::parse(&printed).map_err(|error| TestCaseError::fail(format!("{error}\n{printed}")))?;
            prop_assert_eq!(parsed, program, "{}", printed);
        }

        #[test]
        fn packets_end_within_the_limits_and_equal_runs_are_equal(choices in bytes(4000), packet in bytes(200), port in 0u32..5) {
            let mut source = Source::new(&choices);
            let checked = Checked::new(program(&mut source)).unwrap();
            let mut states = [State::new(checked.clone()), State::new(checked)];
            let updates = updates(&states[0], &mut source);
            for state in &mut states {
                for update in updates.clone() {
                    // Entries may collide.
                    let _ = state.apply(vec![update], 0);
                }
            }
            let limits = Limits { steps: 3000, ..Limits::default() };
            let received = Received { len: 300, ..Received::whole(&packet, port) };
            let run = |i: usize| {
                let mut world = World { now: 1_000_000, seed: 7 };
                interp::run(&states[i], &mut world, &received, &limits, true)
            };
            let outcome = run(0);
            prop_assert_eq!(&outcome, &run(1));
            prop_assert!(!outcome.effects.is_empty(), "every packet has a fate");
            let outputs = outcome.effects.iter().filter(|effect| !matches!(effect, Effect::Drop(_))).count();
            prop_assert!(outputs <= limits.effects);
            for effect in &outcome.effects {
                if let Effect::Output { packet, .. } | Effect::Controller { packet, .. } = effect {
                    prop_assert!(packet.head.len() <= limits.headers && packet.from <= packet.to && packet.to <= 300);
                }
            }
            for event in &outcome.trace {
                prop_assert!(!event.text(&states[0]).contains('?'));
            }
        }

        #[test]
        fn entries_round_trip(choices in bytes(3000)) {
            let mut source = Source::new(&choices);
            let state = State::new(Checked::new(program(&mut source)).unwrap());
            for update in updates(&state, &mut source) {
                if let Update::Insert(table, entry) = update {
                    let schema = &state.program().tables[table.index()];
                    let printed = text::print_entry(state.program(), schema, &entry, &|_| None);
                    let parsed = text::parse_entry(state.program(), table, &printed, &|_| None);
                    prop_assert_eq!(parsed, Ok(entry), "{}", printed);
                }
            }
        }

        #[test]
        fn texts_never_panic(text in "(program p \\{ )?([a-z]{1,4}|[0-9]{1,2}[ws]?[0-9]?|[-+.;:,(){}\\[\\]<>=&|` ]){0,60}") {
            if let Ok(program) = text::parse(&text) {
                prop_assert_eq!(text::parse(&text::print(&program)), Ok(program));
            }
        }
    }
}

//! Random expressions of all operators that a card has: a card against the interpreter.
//!
//! `MSWITCH_XDP_CASES` sets the number of programs, `MSWITCH_XDP_SEED` the first one's seed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use pipeline::Checked;
use pipeline::bits::Bits;
use pipeline::env::Env;
use pipeline::fuzzing::World;
use pipeline::interp::{self, Limits, Received};
use pipeline::ir::{
    BinOp, Constant, Dest, Expr, HashKind, HeaderId, HeaderRef, Item, LValue, Program, Send, Stmt, Type,
    UnOp, VarId, Via,
};
use pipeline::state::State;
use xdp::{Card, Setting, Verdict, reference};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

const WIDTHS: &[u16] = &[1, 3, 7, 8, 9, 16, 31, 32, 33, 48, 61, 62, 63, 64, 65, 96, 100, 127, 128];
/// Widths of signed numbers that saturate.
const SIGNED: &[u16] = &[1, 2, 8, 16, 31, 32, 33, 61, 62];
/// Operands of shifts: often too far.
const DISTANCES: &[u64] = &[0, 1, 7, 31, 32, 33, 63, 64, 65, 200, u64::MAX];

struct Chance(World);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        (self.0.random() >> 7) as usize % n.max(1)
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// Often an extreme value, or one of few bits.
    fn constant(&mut self, ty: Type) -> Expr {
        let width = ty.width();
        let value = match self.below(5) {
            0 => Bits::zero(width),
            1 => Bits::ones(width),
            2 => Bits::from_u64(width, 1).shl(u64::from(width - 1)),
            3 => Bits::from_u64(width, self.0.random() & 7),
            _ => Bits::from_limbs(width, &[self.0.random(), self.0.random()]),
        };
        Expr::Const(Constant { ty, value })
    }
}

/// The program that is being made: a header and variables of all widths.
struct Maker {
    chance: Chance,
    program: Program,
    vars: Vec<(VarId, Type)>,
    fields: Vec<(HeaderId, u16, Type)>,
}

impl Maker {
    fn ty(&mut self) -> Type {
        match self.chance.below(6) {
            0 => Type::Bool,
            1 => Type::Int(self.chance.pick(SIGNED)),
            _ => Type::Bit(self.chance.pick(WIDTHS)),
        }
    }

    /// An expression of this type.
    fn expr(&mut self, ty: Type, depth: usize) -> Expr {
        let leaf = depth == 0 || self.chance.below(8) == 0;
        if leaf {
            return self.leaf(ty);
        }
        let depth = depth - 1;
        if self.chance.below(8) == 0 {
            let parts = (self.expr(Type::Bool, depth), self.expr(ty, depth), self.expr(ty, depth));
            return Expr::Mux(Box::new(parts));
        }
        match ty {
            Type::Bool => self.truth(depth),
            Type::Bit(width) => self.unsigned(width, depth),
            Type::Int(_) => {
                use BinOp::*;
                match self.chance.below(4) {
                    0 => Expr::Unary(
                        self.chance.pick(&[UnOp::Complement, UnOp::Negate]),
                        Box::new(self.expr(ty, depth)),
                    ),
                    1 => self.shift(Shr, ty, depth),
                    2 => {
                        let width = self.chance.pick(SIGNED);
                        let value = self.expr(Type::Int(width), depth);
                        value.cast(ty)
                    }
                    _ => {
                        let op = self.chance.pick(&[Add, Sub, Mul, SatAdd, SatSub, And, Or, Xor]);
                        let left = self.expr(ty, depth);
                        left.op(op, self.expr(ty, depth))
                    }
                }
            }
        }
    }

    fn leaf(&mut self, ty: Type) -> Expr {
        let vars: Vec<_> = self.vars.iter().filter(|var| var.1 == ty).map(|var| Expr::Var(var.0)).collect();
        let fields =
            self.fields.iter().filter(|field| field.2 == ty).map(|field| Expr::field(field.0, field.1));
        let all: Vec<_> = vars.into_iter().chain(fields).collect();
        match self.chance.below(3) {
            0 => self.chance.constant(ty),
            _ if all.is_empty() => self.chance.constant(ty),
            _ => all[self.chance.below(all.len())].clone(),
        }
    }

    fn truth(&mut self, depth: usize) -> Expr {
        use BinOp::*;
        match self.chance.below(4) {
            0 => Expr::Unary(UnOp::Not, Box::new(self.expr(Type::Bool, depth))),
            1 => {
                let op = self.chance.pick(&[LogicAnd, LogicOr, Eq, Ne]);
                let left = self.expr(Type::Bool, depth);
                left.op(op, self.expr(Type::Bool, depth))
            }
            _ => {
                let ty = match self.ty() {
                    Type::Bool => Type::Bit(8),
                    ty => ty,
                };
                let op = self.chance.pick(&[Eq, Ne, Lt, Le, Gt, Ge]);
                let left = self.expr(ty, depth);
                // Often equal.
                let right = if self.chance.below(3) == 0 { left.clone() } else { self.expr(ty, depth) };
                left.op(op, right)
            }
        }
    }

    fn shift(&mut self, op: BinOp, ty: Type, depth: usize) -> Expr {
        let value = self.expr(ty, depth);
        let by = match self.chance.below(3) {
            0 => self.expr(Type::Bit(8), depth),
            1 => self.expr(Type::Bit(100), depth),
            _ => Expr::bit(64, self.chance.pick(DISTANCES)),
        };
        value.op(op, by)
    }

    fn unsigned(&mut self, width: u16, depth: usize) -> Expr {
        use BinOp::*;
        let ty = Type::Bit(width);
        match self.chance.below(7) {
            0 => Expr::Unary(
                self.chance.pick(&[UnOp::Complement, UnOp::Negate]),
                Box::new(self.expr(ty, depth)),
            ),
            1 if width <= 64 => {
                let op = self.chance.pick(&[Shl, Shr]);
                self.shift(op, ty, depth)
            }
            2 => {
                let from = self.chance.pick(WIDTHS);
                let value = self.expr(Type::Bit(from), depth);
                value.cast(ty)
            }
            3 => {
                let wider: Vec<u16> = WIDTHS.iter().copied().filter(|other| *other >= width).collect();
                let from = self.chance.pick(&wider);
                let lo = self.chance.below(usize::from(from - width) + 1) as u16;
                Expr::Slice(Box::new(self.expr(Type::Bit(from), depth)), lo + width - 1, lo)
            }
            4 if width > 1 => {
                let left = 1 + self.chance.below(usize::from(width - 1)) as u16;
                let high = self.expr(Type::Bit(left), depth);
                high.op(Concat, self.expr(Type::Bit(width - left), depth))
            }
            5 if width == 1 => {
                let truth = self.expr(Type::Bool, depth);
                truth.cast(ty)
            }
            _ => {
                let ops: &[BinOp] = match width {
                    0..=64 => &[Add, Sub, Mul, Div, Rem, SatAdd, SatSub, OnesAdd, And, Or, Xor],
                    _ => &[Add, Sub, And, Or, Xor],
                };
                let op = self.chance.pick(ops);
                let left = self.expr(ty, depth);
                left.op(op, self.expr(ty, depth))
            }
        }
    }

    /// An assignment to a variable, a field, or a part of one.
    fn assignment(&mut self) -> Stmt {
        let (place, ty) = if self.chance.below(2) == 0 {
            let (var, ty) = self.vars[self.chance.below(self.vars.len())];
            (LValue::Var(var), ty)
        } else {
            let (header, field, ty) = self.fields[self.chance.below(self.fields.len())];
            (LValue::Field(HeaderRef::Header(header), field), ty)
        };
        if let (Type::Bit(width), 0) = (ty, self.chance.below(2)) {
            let lo = self.chance.below(width.into()) as u16;
            let hi = lo + self.chance.below(usize::from(width - lo)) as u16;
            let value = self.expr(Type::Bit(hi - lo + 1), 2);
            return Stmt::Set(LValue::Slice(Box::new(place), hi, lo), value);
        }
        let value = self.expr(ty, 3);
        Stmt::Set(place, value)
    }
}

/// A program that computes much from a packet, and sends it to a port that all of it decides on.
fn program(seed: u64) -> Checked {
    // Fields of all widths, whose sum is filled up to whole bytes.
    let total: u16 = WIDTHS.iter().sum();
    let rest = 8 - total % 8;
    let fields = WIDTHS.iter().chain([&rest]).enumerate().map(|(i, width)| format!("f{i}: bit<{width}>;"));
    let fields: String = fields.collect();
    let text = format!(
        "program p {{ header h_t {{ {fields} }} instance h: h_t; parser prs {{ state start {{ extract h; goto accept; }} }}
         block control {{ }} stage s {{ parser prs; control control; }} }}"
    );
    let mut program = pipeline::text::parse(&text).unwrap();
    let header = HeaderId(0);
    let fields = WIDTHS.iter().enumerate().map(|(i, width)| (header, i as u16, Type::Bit(*width))).collect();
    let types =
        SIGNED.iter().map(|width| Type::Int(*width)).chain(WIDTHS.iter().map(|width| Type::Bit(*width)));
    let mut vars = Vec::new();
    for (i, ty) in types.chain([Type::Bool, Type::Bool]).enumerate() {
        vars.push((program.add_var(&format!("v{i}"), ty), ty));
    }
    let chance = Chance(World { now: 0, seed });
    let mut maker = Maker { chance, program, vars, fields };
    let mut body: Vec<Stmt> = (0..12).map(|_| maker.assignment()).collect();
    let Maker { mut program, vars, .. } = maker;
    let sum = program.add_var("sum", Type::Bit(32));
    let items = vars.iter().map(|(var, _)| Item::Value(Expr::Var(*var))).collect();
    body.push(Stmt::Hash(LValue::Var(sum), HashKind::Crc32, items));
    body.push(Send { via: Via::Direct, ..Send::current(Dest::Port(Expr::Var(sum))) }.into());
    program.blocks[0].1 = body;
    Checked::new(program).unwrap_or_else(|errors| panic!("{errors:?}"))
}

#[test]
fn expressions_agree() {
    let (first, cases) = (number("MSWITCH_XDP_SEED", 1), number("MSWITCH_XDP_CASES", 300));
    for seed in first..first + cases {
        let program = program(seed);
        let lowered = xdp::lower(&program, Setting::Test).unwrap_or_else(|refusals| panic!("{refusals:?}"));
        assert_eq!(lowered.to_cpu(), [], "seed {seed}");
        let state = State::new(program.clone());
        let mut card = Card::new(lowered, &state).unwrap();
        let mut chance = Chance(World { now: 0, seed: seed << 32 });
        for _ in 0..8 {
            let extreme = chance.pick(&[0, 1, 2]);
            let byte = |chance: &mut Chance| match extreme {
                0 => chance.0.random() as u8,
                1 => [0, 0xff][chance.below(2)],
                _ => chance.0.random() as u8 & chance.0.random() as u8,
            };
            let bytes: Vec<u8> = (0..140).map(|_| byte(&mut chance)).collect();
            let received = Received::whole(&bytes, 0);
            let found = card.run(0, &bytes).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert!(matches!(found.verdict, Verdict::Sent(_)), "seed {seed}: {found:?}");
            let outcome = interp::run(&state, &mut chance.0.clone(), &received, &Limits::default(), true);
            if !reference::is_right(&program, &outcome.effects, &received, &found) {
                let trace: Vec<_> = outcome.trace.iter().map(|event| event.text(&state)).collect();
                let text = pipeline::text::print(&program);
                panic!("seed {seed}: {found:x?}, but {:x?}\n{}\n{text}", outcome.effects, trace.join("\n"));
            }
        }
    }
}

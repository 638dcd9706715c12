//! Meters: the token buckets of [`pipeline::state::Meter`], in memory that workers share.
//!
//! Tokens are numbers of 128 bits, two words each. A meter is used under the lock of registers, and what it takes from its
//! buckets cannot be taken back: it is written like a register.

use bpf::assembler::{Alu, Cond, Size};
use bpf::{Label, Reg};
use pipeline::ir::{Expr, LValue, MeterId, MeterUnit, Slot};

use super::{A, B, C, ENTRY, Lowering, RESULT, Setting, helper};
use crate::layout::word;
use crate::tables::TOO_MANY_CELLS;
use crate::types;

/// Offsets of a meter's words ([`pipeline::state::METER_WORDS`]).
mod at {
    pub(super) const KIND: i16 = 0;
    pub(super) const RATES: [i16; 2] = [8, 16];
    pub(super) const MOST: [i16; 2] = [24, 40];
    pub(super) const TOKENS: [i16; 2] = [56, 72];
    pub(super) const LAST: i16 = 88;
}

/// Rates with a single rate.
const SINGLE: i32 = 1;
/// Tokens of a unit.
const UNIT: u64 = 1_000_000_000;
const GREEN: i32 = 0;
const YELLOW: i32 = 1;
const RED: i32 = 2;

const D: Reg = Reg(4);
const E: Reg = Reg(5);

/// Intermediate results of a packet that is metered.
struct Temps {
    color: i16,
    before: i16,
    /// Tokens that the packet takes: one word, as packets have less than 2^34 bytes.
    need: i16,
    elapsed: i16,
    /// A number of 128 bits.
    sum: [i16; 2],
}

impl Lowering<'_> {
    pub(super) fn meter(&mut self, place: &LValue, id: MeterId, index: &Expr, before: Option<&Expr>) {
        let Some(schema) = self.program.meters.get(id.index()) else { return };
        if !self.has_meters {
            return self.refuse("a meter");
        }
        let Some(map) = self.maps.meter(id) else { return self.refuse(TOO_MANY_CELLS) };
        self.uses_registers = true;
        let [key, color, prior, need, elapsed, low, high] = std::array::from_fn(|_| self.temp());
        let temps = Temps { color, before: prior, need, elapsed, sum: [low, high] };
        match before {
            Some(before) => {
                self.number(before);
                self.small(RED as u32);
            }
            None => self.asm.set(A, GREEN as u64),
        }
        self.store_word(prior, A);
        match schema.unit {
            MeterUnit::Bytes => self.load_word(A, word::LENGTH),
            MeterUnit::Packets => self.asm.set(A, 1),
        }
        self.asm.alu_imm(Alu::Mul, A, UNIT as i32);
        self.store_word(need, A);
        // Beyond the array, and without rates.
        let end = self.asm.label();
        self.store_number(color, GREEN);
        self.index(index, schema.size, end);
        self.store_word(key, A);
        self.look_up(map, key);
        self.asm.jump_if_imm(Cond::Eq, RESULT, 0, end);
        self.asm.load(Size::D, A, RESULT, at::KIND);
        self.asm.jump_if_imm(Cond::Eq, A, 0, end);
        self.asm.mov(ENTRY, RESULT);
        let name = format!("meter {}", schema.name);
        self.locked("a meter", |this| {
            this.refill(&temps);
            this.color(&temps);
            this.writes_to(name);
        });
        self.asm.bind(end);
        let width = types::place_width(self.program, place);
        self.assign_stored(place, color, width);
    }

    /// Adds the tokens of the time since the last packet.
    fn refill(&mut self, temps: &Temps) {
        match self.setting {
            Setting::Live => self.asm.call(helper::TIME),
            Setting::Test => self.load_word(RESULT, word::NOW),
        }
        let (later, known) = (self.asm.label(), self.asm.label());
        self.asm.load(Size::D, A, ENTRY, at::LAST);
        self.asm.jump_if(Cond::Gt, RESULT, A, later);
        self.store_number(temps.elapsed, 0);
        self.asm.jump(known);
        self.asm.bind(later);
        self.asm.store(Size::D, ENTRY, at::LAST, RESULT);
        self.asm.alu(Alu::Sub, RESULT, A);
        self.store_word(temps.elapsed, RESULT);
        self.asm.bind(known);

        let [committed, others] = at::TOKENS;
        let [most, most_others] = at::MOST;
        let (fits, two, others_full, end) =
            (self.asm.label(), self.asm.label(), self.asm.label(), self.asm.label());
        self.product(at::RATES[0], temps);
        self.add_to(committed, temps);
        self.jump_unless_more(committed, most, fits);
        // What a single rate has too much is the excess's.
        self.load_long(committed);
        self.asm.load(Size::D, C, ENTRY, most);
        self.asm.load(Size::D, D, ENTRY, most + 8);
        self.subtract();
        self.store_word(temps.sum[0], A);
        self.store_word(temps.sum[1], B);
        self.copy_long(most, committed);
        let spills = self.asm.label();
        self.asm.jump(spills);
        self.asm.bind(fits);
        temps.sum.into_iter().for_each(|temp| self.store_number(temp, 0));
        self.asm.bind(spills);
        self.asm.load(Size::D, A, ENTRY, at::KIND);
        self.asm.jump_if_imm(Cond::Ne, A, SINGLE, two);
        self.asm.jump(others_full);
        self.asm.bind(two);
        self.product(at::RATES[1], temps);
        self.asm.bind(others_full);
        self.add_to(others, temps);
        self.jump_unless_more(others, most_others, end);
        self.copy_long(most_others, others);
        self.asm.bind(end);
    }

    /// Takes the packet's tokens, and colours it.
    fn color(&mut self, temps: &Temps) {
        let [committed, others] = at::TOKENS;
        let [two, yellow, red, end] = std::array::from_fn(|_| self.asm.label());
        self.asm.load(Size::D, A, ENTRY, at::KIND);
        self.asm.jump_if_imm(Cond::Ne, A, SINGLE, two);
        // One rate: green takes committed tokens, yellow others.
        self.load_word(A, temps.before);
        self.asm.jump_if_imm(Cond::Ne, A, GREEN, yellow);
        self.jump_if_fewer(committed, temps, yellow);
        self.take(committed, temps);
        self.asm.jump(end);
        self.asm.bind(yellow);
        self.load_word(A, temps.before);
        self.asm.jump_if_imm(Cond::Gt, A, YELLOW, red);
        self.jump_if_fewer(others, temps, red);
        self.take(others, temps);
        self.store_number(temps.color, YELLOW);
        self.asm.jump(end);
        // Two rates: green and yellow take of the peak's, green takes committed ones, too.
        self.asm.bind(two);
        self.load_word(A, temps.before);
        self.asm.jump_if_imm(Cond::Gt, A, YELLOW, red);
        self.jump_if_fewer(others, temps, red);
        self.take(others, temps);
        self.store_number(temps.color, YELLOW);
        self.load_word(A, temps.before);
        self.asm.jump_if_imm(Cond::Eq, A, YELLOW, end);
        self.jump_if_fewer(committed, temps, end);
        self.take(committed, temps);
        self.store_number(temps.color, GREEN);
        self.asm.jump(end);
        self.asm.bind(red);
        self.store_number(temps.color, RED);
        self.asm.bind(end);
    }

    /// `A` and `B` = a number of 128 bits of the meter.
    fn load_long(&mut self, from: i16) {
        self.asm.load(Size::D, A, ENTRY, from);
        self.asm.load(Size::D, B, ENTRY, from + 8);
    }

    fn store_long(&mut self, to: i16) {
        self.asm.store(Size::D, ENTRY, to, A);
        self.asm.store(Size::D, ENTRY, to + 8, B);
    }

    fn copy_long(&mut self, from: i16, to: i16) {
        self.load_long(from);
        self.store_long(to);
    }

    /// The sum = a rate, times the nanoseconds that have passed: of halves of 32 bits.
    fn product(&mut self, rate: i16, temps: &Temps) {
        self.asm.load(Size::D, A, ENTRY, rate);
        self.load_word(B, temps.elapsed);
        self.asm.mov(C, A);
        self.asm.mov(D, B);
        self.asm.alu_imm(Alu::Rsh, C, 32);
        self.asm.alu_imm(Alu::Rsh, D, 32);
        self.asm.mask(A, u32::MAX.into(), E);
        self.asm.mask(B, u32::MAX.into(), E);
        // The low halves' product, and those of one half each with what the one before carries.
        self.asm.mov(RESULT, A);
        self.asm.alu(Alu::Mul, RESULT, B);
        self.asm.alu(Alu::Mul, A, D);
        self.asm.alu(Alu::Mul, B, C);
        self.asm.alu(Alu::Mul, C, D);
        self.asm.mov(D, RESULT);
        self.asm.alu_imm(Alu::Rsh, D, 32);
        for half in [A, B] {
            self.asm.mov(E, half);
            self.asm.mask(E, u32::MAX.into(), E);
            self.asm.alu(Alu::Add, D, E);
            self.asm.alu_imm(Alu::Rsh, half, 32);
            self.asm.alu(Alu::Add, C, half);
        }
        self.asm.mask(RESULT, u32::MAX.into(), E);
        self.asm.mov(E, D);
        self.asm.alu_imm(Alu::Lsh, E, 32);
        self.asm.alu(Alu::Or, RESULT, E);
        self.asm.alu_imm(Alu::Rsh, D, 32);
        self.asm.alu(Alu::Add, C, D);
        self.store_word(temps.sum[0], RESULT);
        self.store_word(temps.sum[1], C);
    }

    /// Adds the sum to tokens.
    fn add_to(&mut self, tokens: i16, temps: &Temps) {
        let done = self.asm.label();
        self.load_long(tokens);
        self.load_word(C, temps.sum[0]);
        self.load_word(D, temps.sum[1]);
        self.asm.alu(Alu::Add, A, C);
        self.asm.alu(Alu::Add, B, D);
        self.asm.jump_if(Cond::Ge, A, C, done);
        self.asm.alu_imm(Alu::Add, B, 1);
        self.asm.bind(done);
        self.store_long(tokens);
    }

    /// `A` and `B` less `C` and `D`.
    fn subtract(&mut self) {
        let done = self.asm.label();
        self.asm.alu(Alu::Sub, B, D);
        self.asm.jump_if(Cond::Ge, A, C, done);
        self.asm.alu_imm(Alu::Sub, B, 1);
        self.asm.bind(done);
        self.asm.alu(Alu::Sub, A, C);
    }

    /// Jumps unless a number of the meter is larger than another one.
    fn jump_unless_more(&mut self, number: i16, most: i16, to: Label) {
        let more = self.asm.label();
        self.load_long(number);
        self.asm.load(Size::D, C, ENTRY, most);
        self.asm.load(Size::D, D, ENTRY, most + 8);
        self.asm.jump_if(Cond::Gt, B, D, more);
        self.asm.jump_if(Cond::Ne, B, D, to);
        self.asm.jump_if(Cond::Le, A, C, to);
        self.asm.bind(more);
    }

    /// Jumps if there are fewer tokens than the packet takes.
    fn jump_if_fewer(&mut self, tokens: i16, temps: &Temps, to: Label) {
        let enough = self.asm.label();
        self.load_long(tokens);
        self.load_word(C, temps.need);
        self.asm.jump_if_imm(Cond::Ne, B, 0, enough);
        self.asm.jump_if(Cond::Lt, A, C, to);
        self.asm.bind(enough);
    }

    /// Takes the packet's tokens.
    fn take(&mut self, tokens: i16, temps: &Temps) {
        self.load_long(tokens);
        self.load_word(C, temps.need);
        self.asm.set(D, 0);
        self.subtract();
        self.store_long(tokens);
    }
}

/// Whether a program needs the lengths of packets in each stage for its meters.
pub(super) fn reads_length(program: &pipeline::ir::Program) -> bool {
    program.meters.iter().any(|meter| meter.unit == MeterUnit::Bytes)
        || program.vars.iter().any(|var| var.slot == Some(Slot::PacketLength))
}

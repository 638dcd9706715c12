//! Parsers.
//!
//! Each state is written once, and transitions jump. The position is in the layout, so the verifier sees a state once
//! whatever led there; in a parser with loops, it follows the number of states, which is bounded.

use bpf::Label;
use bpf::assembler::{Alu, Cond, Size};
use pipeline::ir::{
    ErrorId, Expr, FieldType, HeaderRef, Keyset, Parser, ParserId, ParserOp, ParserState, Select, Slot, Stmt,
    Target, Transition, Type, VarId,
};

use super::bits::Source;
use super::place::Location;
use super::{A, B, BASE, C, ENTRY, Lowering, POINTER};
use crate::layout::{is_narrow, word, words};
use crate::types;

/// States of one run, as in [`pipeline::interp::Limits::parser_states`].
const STATES: i32 = 256;

/// Where a parser's transitions lead.
struct Ways {
    states: Vec<Label>,
    /// Behind the parser.
    end: Label,
    /// One for each error that may end it.
    errors: Vec<(ErrorId, Label)>,
    /// The error that an expression met.
    fault: Label,
}

impl Lowering<'_> {
    pub(super) fn parser(&mut self, id: ParserId) {
        let Some(parser) = self.program.parsers.get(id.index()) else { return };
        let loops = has_loops(parser);
        let states = parser.states.iter().map(|_| self.asm.label()).collect();
        let mut ways = Ways { states, end: self.asm.label(), errors: Vec::new(), fault: self.asm.label() };
        if loops {
            self.asm.set(ENTRY, 0);
        }
        for (i, state) in parser.states.iter().enumerate() {
            self.begin_part(format!("parser {}, state {}", parser.name, state.name));
            if let Some(label) = ways.states.get(i) {
                self.asm.bind(*label);
            }
            if loops {
                let timeout = self.error_way(&mut ways, ErrorId::TIMEOUT);
                self.asm.jump_if_imm(Cond::Ge, ENTRY, STATES, timeout);
                self.asm.alu_imm(Alu::Add, ENTRY, 1);
            }
            self.state(state, &mut ways);
        }
        self.begin_part(format!("end of parser {}", parser.name));
        for (error, label) in std::mem::take(&mut ways.errors) {
            self.asm.bind(label);
            self.store_number(word::ERROR, error.0 as i32);
            self.asm.jump(ways.end);
        }
        self.asm.bind(ways.fault);
        self.load_word(A, word::FAULT);
        self.store_word(word::ERROR, A);
        self.asm.bind(ways.end);
        for (i, var) in self.program.vars.iter().enumerate() {
            if var.slot == Some(Slot::ParserError) {
                self.load_word(A, word::ERROR);
                self.mask_to(var.ty.width(), 32);
                let at = self.layout.var(VarId::at(i));
                self.store_word(at, A);
                (1..words(var.ty.width()) as i16).for_each(|word| self.store_number(at + 8 * word, 0));
            }
        }
    }

    fn error_way(&mut self, ways: &mut Ways, error: ErrorId) -> Label {
        if let Some((_, label)) = ways.errors.iter().find(|(known, _)| *known == error) {
            return *label;
        }
        let label = self.asm.label();
        ways.errors.push((error, label));
        label
    }

    /// Ends the parser if an expression met an error.
    fn check_fault(&mut self, ways: &Ways) {
        self.load_word(A, word::FAULT);
        self.asm.jump_if_imm(Cond::Ne, A, 0, ways.fault);
    }

    fn state(&mut self, state: &ParserState, ways: &mut Ways) {
        for op in &state.ops {
            match op {
                ParserOp::Extract(header, None) => self.extract(header, ways),
                ParserOp::Extract(_, Some(_)) => self.refuse("a header with a variable field"),
                ParserOp::Advance(by) => self.advance(by, ways),
                ParserOp::Verify(condition, error) => {
                    let failed = self.error_way(ways, *error);
                    if self.may_fault(condition) {
                        self.with_temps(|this| {
                            let temp = this.temp();
                            this.value(condition);
                            this.store_word(temp, A);
                            this.check_fault(ways);
                            this.load_word(A, temp);
                            this.asm.jump_if_imm(Cond::Eq, A, 0, failed);
                        });
                    } else {
                        self.branch(condition, false, failed);
                    }
                }
                ParserOp::Do(stmt) => {
                    self.stmt(stmt, false);
                    let is_safe = match stmt {
                        Stmt::Set(pipeline::ir::LValue::Var(_), value) => !self.may_fault(value),
                        _ => false,
                    };
                    if !is_safe {
                        self.check_fault(ways);
                    }
                }
            }
        }
        match &state.next {
            Transition::To(target) => {
                let label = target_label(*target, ways);
                self.asm.jump(label);
            }
            Transition::Select(select) => self.select(select, ways),
        }
    }

    fn advance(&mut self, by: &Expr, ways: &mut Ways) {
        self.value(by);
        if self.may_fault(by) {
            self.with_temps(|this| {
                let temp = this.temp();
                this.store_word(temp, A);
                this.check_fault(ways);
                this.load_word(A, temp);
            });
        }
        let odd = self.error_way(ways, ErrorId::INVALID_ARGUMENT);
        let short = self.error_way(ways, ErrorId::PACKET_TOO_SHORT);
        self.asm.mov(B, A);
        self.asm.alu_imm(Alu::And, B, 7);
        self.asm.jump_if_imm(Cond::Ne, B, 0, odd);
        self.asm.alu_imm(Alu::Rsh, A, 3);
        self.load_word(B, word::POSITION);
        self.asm.alu(Alu::Add, A, B);
        self.asm.jump_if_imm(Cond::Gt, A, super::value::WINDOW as i32, short);
        self.load_word(B, word::TOTAL);
        self.asm.jump_if(Cond::Gt, A, B, short);
        self.store_word(word::POSITION, A);
    }

    fn extract(&mut self, header: &HeaderRef, ways: &mut Ways) {
        let Some(ty) = types::header_type(self.program, header).cloned() else { return };
        if ty.has_varbit() {
            return self.refuse("a header with a variable field");
        }
        if let HeaderRef::Element(_, index) = header
            && self.may_fault(index)
        {
            return self.refuse("an element of a stack whose number is ahead in the packet");
        }
        let beyond = self.error_way(ways, ErrorId::STACK_OUT_OF_BOUNDS);
        let location = self.locate(header, beyond);
        let short = self.error_way(ways, ErrorId::PACKET_TOO_SHORT);
        let bytes = ty.fixed_bits() / 8;
        let packet = self.packet_at_position(bytes, short);
        let mut start = 0;
        for (i, field) in ty.fields.iter().enumerate() {
            let FieldType::Scalar(field_type) = field.ty else { continue };
            let width = usize::from(field_type.width());
            for w in 0..words(field_type.width()) {
                let n = (width - 64 * w).min(64);
                self.packet_part(A, packet, start + width - 64 * w - n, n, bytes);
                let offset = self.layout.field(&ty, i) + 8 * w as i16;
                match location {
                    Location::Fixed(at) => self.asm.store(Size::D, BASE, at + offset, A),
                    Location::Pointer => self.asm.store(Size::D, POINTER, offset, A),
                    Location::Beyond => {}
                }
            }
            start += width;
        }
        match (location, header) {
            (Location::Fixed(at), HeaderRef::Header(id)) => {
                self.invalidate_union(*id);
                self.store_number(at, 1);
            }
            (Location::Fixed(at), _) => self.store_number(at, 1),
            (Location::Pointer, _) => self.asm.store_imm(Size::D, POINTER, 0, 1),
            (Location::Beyond, _) => {}
        }
        if let HeaderRef::Next(stack) = header {
            let next = self.layout.next(*stack);
            self.count_word(next);
        }
        self.load_word(A, word::POSITION);
        self.asm.alu_imm(Alu::Add, A, bytes as i32);
        self.store_word(word::POSITION, A);
    }

    fn select(&mut self, select: &Select, ways: &mut Ways) {
        self.with_temps(|this| {
            // The values, in words, and their types.
            let mut values = Vec::new();
            for value in &select.on {
                let ty = this.ty(value);
                let temps: Vec<i16> = (0..words(ty.width())).map(|_| this.temp()).collect();
                for (i, temp) in temps.iter().enumerate() {
                    this.word(value, i);
                    this.store_word(*temp, A);
                }
                values.push((temps.first().copied().unwrap_or(0), ty));
            }
            if select.on.iter().any(|value| this.may_fault(value)) {
                this.check_fault(ways);
            }
            for case in &select.cases {
                let other = this.asm.label();
                for (set, (at, ty)) in case.sets.iter().zip(&values) {
                    this.is_in(set, *at, *ty, other);
                }
                if case.sets.iter().any(|set| matches!(set, Keyset::Set(_))) {
                    this.refuse("a value set");
                }
                let label = target_label(case.to, ways);
                this.asm.jump(label);
                this.asm.bind(other);
            }
            let none = this.error_way(ways, ErrorId::NO_MATCH);
            this.asm.jump(none);
        });
    }

    /// Jumps if a stored value is not in a set.
    fn is_in(&mut self, set: &Keyset, at: i16, ty: Type, other: Label) {
        match set {
            Keyset::Any | Keyset::Set(_) => {}
            Keyset::Value(wanted) => {
                for (i, word) in wanted.value.limbs().iter().enumerate() {
                    self.load_word(A, at + 8 * i as i16);
                    self.unequal(*word, other);
                }
            }
            Keyset::Mask(wanted, mask) => {
                let wanted = wanted.value.and(&mask.value);
                for (i, (word, mask)) in wanted.limbs().iter().zip(mask.value.limbs()).enumerate() {
                    if *mask == 0 {
                        continue;
                    }
                    self.load_word(A, at + 8 * i as i16);
                    self.asm.mask(A, *mask, C);
                    self.unequal(*word, other);
                }
            }
            Keyset::Range(low, high) if is_narrow(ty) && !matches!(ty, Type::Int(_)) => {
                self.bits(Source::Stored(at, ty.width()), 0, ty.width());
                self.asm.set(B, low.value.low_u64());
                self.asm.jump_if(Cond::Lt, A, B, other);
                self.asm.set(B, high.value.low_u64());
                self.asm.jump_if(Cond::Gt, A, B, other);
            }
            Keyset::Range(..) => self.refuse("a range of signed numbers or of more than 64 bits"),
        }
    }

    /// Jumps if `A` is not this number.
    fn unequal(&mut self, n: u64, other: Label) {
        match i32::try_from(n) {
            Ok(n) => self.asm.jump_if_imm(Cond::Ne, A, n, other),
            Err(_) => {
                self.asm.set(B, n);
                self.asm.jump_if(Cond::Ne, A, B, other);
            }
        }
    }
}

fn target_label(target: Target, ways: &Ways) -> Label {
    match target {
        Target::State(i) => ways.states.get(i as usize).copied().unwrap_or(ways.end),
        Target::Accept | Target::Reject => ways.end,
    }
}

/// Whether a state can lead to itself.
fn has_loops(parser: &Parser) -> bool {
    let next = |i: usize| -> Vec<usize> {
        let targets: Vec<Target> = match parser.states.get(i).map(|state| &state.next) {
            Some(Transition::To(target)) => vec![*target],
            Some(Transition::Select(select)) => select.cases.iter().map(|case| case.to).collect(),
            None => Vec::new(),
        };
        let state = |target: &Target| match target {
            Target::State(i) => Some(*i as usize),
            _ => None,
        };
        targets.iter().filter_map(state).collect()
    };
    (0..parser.states.len()).any(|start| {
        let (mut seen, mut open) = (vec![false; parser.states.len()], next(start));
        while let Some(i) = open.pop() {
            if i == start {
                return true;
            }
            if let Some(seen @ false) = seen.get_mut(i) {
                *seen = true;
                open.extend(next(i));
            }
        }
        false
    })
}

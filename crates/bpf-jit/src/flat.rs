//! Emission without branches, for short lists.
//!
//! Which way a packet takes through a list depends on the packet, so that processors guess its branches wrongly. A list
//! of few steps is cheaper when all of it is computed for every packet: each place of a path gets a *predicate*, a bit
//! that says whether the packet's own path leads there, and verdicts are chosen by predicates.
//!
//! All loads happen for every packet, so they must be safe for every packet. Hence:
//! - the code is only for packets whose header has all bytes that loads at constant offsets read, and as many as loads
//!   behind a header of length 0 would read; shorter ones take the code with branches;
//! - behind an IPv4 header, the header's length counts as 0 where any load behind it would end beyond the bytes that
//!   are there. A packet whose path reads there is *odd*: it takes the code with branches, too.
//!
//! Lists that do more are given up ([`Flat::failed`]), and emitted with branches alone.

use std::collections::BTreeMap;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, BlockArg, InstBuilder, types};

use crate::emit::Emitter;
use crate::outlook::Place;
use crate::state::{State, Value};

/// Most places of paths: beyond, computing all of them costs more than wrong guesses.
const MOST_PLACES: usize = 40;

/// Whether a packet's path leads to a place; `None`: that of every packet does.
type Predicate = Option<ir::Value>;

/// A list while it is emitted.
#[derive(Default)]
pub(crate) struct Flat {
    /// Places that paths lead to, in the order of their steps: all ways to a place come from places before.
    places: BTreeMap<Place, Vec<(State, Predicate)>>,
    /// The path that is being emitted.
    current: Predicate,
    /// Whether the packet is odd.
    odd: Predicate,
    /// Verdicts, and whether they are the packet's.
    found: Vec<(Predicate, ir::Value)>,
    /// The largest end of a load behind a header.
    pub(crate) end: u32,
    /// Places emitted.
    count: usize,
    /// Whether the list cannot be emitted without branches.
    failed: bool,
}

impl Emitter<'_, '_> {
    /// Emits a list for packets that have `checked` bytes. Returns false if the list has been given up.
    pub(crate) fn without_branches(&mut self, checked: u32) -> bool {
        self.flat = Some(Flat { end: self.outlook.reads_behind(), ..Flat::default() });
        self.reach(Place::first(0), State::new(checked));
        while let Some((place, states)) = self.flat.as_mut().and_then(|flat| flat.places.pop_first()) {
            for (state, predicate) in states {
                let Some(flat) = &mut self.flat else { return false };
                (flat.current, flat.count) = (predicate, flat.count + 1);
                if flat.failed || flat.count > MOST_PLACES {
                    return false;
                }
                self.path(place, state);
            }
        }
        let Some(flat) = self.flat.take().filter(|flat| !flat.failed) else { return false };
        if let Some(odd) = flat.odd {
            let [even, other] = [self.b.create_block(), self.b.create_block()];
            self.b.set_cold_block(other);
            self.b.ins().brif(odd, other, &[], even, &[]);
            self.b.switch_to_block(other);
            self.go(Place::first(0), State::new(checked));
            self.b.switch_to_block(even);
        }
        self.choose(flat.found);
        true
    }

    /// Ends with the verdict whose predicate holds.
    fn choose(&mut self, found: Vec<(Predicate, ir::Value)>) {
        let mut matched = self.b.ins().iconst(types::I8, 0);
        let mut word = self.b.ins().iconst(types::I64, 0);
        for (number, (predicate, verdict)) in found.into_iter().enumerate() {
            match predicate {
                None => (matched, word) = (self.b.ins().iconst(types::I8, 1), verdict),
                Some(predicate) => {
                    matched = self.b.ins().bor(matched, predicate);
                    // The word of a packet without a verdict may be any.
                    word = if number == 0 { verdict } else { self.b.ins().select(predicate, verdict, word) };
                }
            }
        }
        let bit = self.b.ins().uextend(types::I64, matched);
        self.b.ins().jump(self.current.flat, &[bit, word].map(BlockArg::Value));
    }

    /// Gives up.
    pub(crate) fn fail(&mut self) {
        if let Some(flat) = &mut self.flat {
            flat.failed = true;
        }
    }

    /// A bit for those packets of the current path that have another bit.
    fn and(&mut self, bit: ir::Value) -> ir::Value {
        match self.flat.as_ref().and_then(|flat| flat.current) {
            Some(current) => self.b.ins().band(current, bit),
            None => bit,
        }
    }

    /// The current path leads to a place.
    pub(crate) fn reach(&mut self, place: Place, state: State) {
        let current = self.flat.as_ref().and_then(|flat| flat.current);
        self.reach_if(current, place, state);
    }

    fn reach_if(&mut self, predicate: Predicate, place: Place, state: State) {
        let mut state = state.forget(&self.outlook, place);
        // Paths are emitted in turns, but there is one variable for a register.
        if state.registers().any(|(_, value)| *value == Value::Computed) {
            self.fail();
        }
        let Some(flat) = &mut self.flat else { return };
        let states = flat.places.entry(place).or_default();
        match states.iter_mut().find(|(there, _)| *there == state) {
            None => states.push((state, predicate)),
            Some((_, there)) => {
                *there = match (*there, predicate) {
                    (Some(one), Some(other)) => Some(self.b.ins().bor(one, other)),
                    _ => None,
                };
            }
        }
    }

    /// Makes a bit of a number: whether it is not zero.
    fn bit(&mut self, number: ir::Value) -> ir::Value {
        let ty = self.b.func.dfg.value_type(number);
        let zero = self.b.ins().iconst(ty, 0);
        self.b.ins().icmp(IntCC::NotEqual, number, zero)
    }

    /// The current path leads to one place where the condition holds, and to another where not.
    pub(crate) fn part(
        &mut self,
        condition: ir::Value,
        is_bit: bool,
        yes: (Place, State),
        no: (Place, State),
    ) {
        let holds = if is_bit { condition } else { self.bit(condition) };
        let fails = self.b.ins().bxor_imm_u(holds, 1);
        let (holds, fails) = (self.and(holds), self.and(fails));
        self.reach_if(Some(holds), yes.0, yes.1);
        self.reach_if(Some(fails), no.0, no.1);
    }

    /// The current path has a verdict.
    pub(crate) fn found(&mut self, word: ir::Value) {
        if let Some(flat) = &mut self.flat {
            flat.found.push((flat.current, word));
        }
    }

    /// The current path has a verdict where `number` is not zero, and goes on where it is.
    pub(crate) fn found_unless_zero(&mut self, number: ir::Value, word: ir::Value) {
        let has = self.bit(number);
        let lacks = self.b.ins().bxor_imm_u(has, 1);
        let (has, lacks) = (self.and(has), self.and(lacks));
        if let Some(flat) = &mut self.flat {
            flat.found.push((Some(has), word));
            flat.current = Some(lacks);
        }
    }

    /// Whether all loads behind a header of this length are within the bytes that are there.
    fn has_all(&mut self, x: ir::Value, end: u32) -> ir::Value {
        let end = self.b.ins().iadd_imm_s(x, i64::from(end));
        let header_len = self.b.ins().uextend(types::I64, self.current.header_len);
        self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, header_len, end)
    }

    /// The current path reads behind a header of this length.
    pub(crate) fn read_behind(&mut self, x: ir::Value, end: u32) {
        let has = self.has_all(x, end);
        let lacks = self.b.ins().bxor_imm_u(has, 1);
        let lacks = self.and(lacks);
        let odd = self.flat.as_ref().and_then(|flat| flat.odd);
        let odd = odd.map_or(lacks, |odd| self.b.ins().bor(odd, lacks));
        if let Some(flat) = &mut self.flat {
            flat.odd = Some(odd);
        }
    }

    /// A header's length, or 0: safe for all loads behind it.
    pub(crate) fn safe(&mut self, x: ir::Value, end: u32) -> ir::Value {
        let has = self.has_all(x, end);
        let zero = self.b.ins().iconst(types::I64, 0);
        self.b.ins().select(has, x, zero)
    }
}

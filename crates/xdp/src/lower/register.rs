//! Registers: cells that all CPUs and this process share, in the same memory.
//!
//! A cell is a word, so an access of its own is indivisible. Atomic sections take a lock, which is a word of that memory,
//! too; so does each access to a register that one of them uses. Whoever has it gives it back within microseconds, but a
//! worker of this process may be the one that the packet has interrupted. So a packet tries a few times, and then goes to
//! the CPU, as it came: workers wait.

use std::collections::BTreeSet;

use bpf::assembler::{Cond, Size};
use pipeline::ir::{Expr, LValue, Program, Register, RegisterId, Stmt};

use super::{A, B, C, Lowering, RESULT};
use crate::tables::TOO_MANY_CELLS;
use crate::types;

/// The construct that others may have the lock for.
pub(super) const ATOMIC: &str = "an atomic section";
/// Attempts to take the lock.
const ATTEMPTS: usize = 32;

/// Registers that atomic sections of a program use.
pub(super) fn indivisible(program: &Program) -> BTreeSet<RegisterId> {
    let mut used = BTreeSet::new();
    let blocks = program.blocks.iter().map(|(_, body)| body);
    let actions = program.actions.iter().map(|action| &action.body);
    blocks.chain(actions).for_each(|body| collect(body, false, &mut used));
    used
}

/// Collects the registers of atomic sections.
fn collect(body: &[Stmt], is_atomic: bool, used: &mut BTreeSet<RegisterId>) {
    for stmt in body {
        match stmt {
            Stmt::RegisterRead(_, register, _) | Stmt::RegisterWrite(register, ..) if is_atomic => {
                used.insert(*register);
            }
            Stmt::Atomic(body) => collect(body, true, used),
            Stmt::If(_, yes, no) => [yes, no].into_iter().for_each(|body| collect(body, is_atomic, used)),
            Stmt::Switch(_, cases, default) => {
                let bodies = cases.iter().map(|(_, body)| body).chain([default]);
                bodies.for_each(|body| collect(body, is_atomic, used));
            }
            Stmt::Apply(_, applied) => {
                let bodies = applied.actions.iter().map(|(_, body)| body);
                let bodies = bodies.chain([&applied.hit, &applied.miss, &applied.other]);
                bodies.for_each(|body| collect(body, is_atomic, used));
            }
            _ => {}
        }
    }
}

impl<'p> Lowering<'p> {
    /// Lowers what nothing else may interrupt that uses the same registers.
    pub(super) fn locked(&mut self, construct: &str, lower: impl FnOnce(&mut Self)) {
        if self.is_locked {
            return lower(self);
        }
        if self.past.written.is_some() {
            return self.refuse(construct);
        }
        self.takes_lock = true;
        let (taken, gives_up, end) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.map_value(B, self.maps.lock);
        self.asm.set(C, 1);
        for _ in 0..ATTEMPTS {
            self.asm.set(RESULT, 0);
            self.asm.compare_exchange(B, 0, C);
            self.asm.jump_if_imm(Cond::Eq, RESULT, 0, taken);
        }
        self.asm.jump(self.cpu);
        self.asm.bind(taken);
        let cpu = std::mem::replace(&mut self.cpu, gives_up);
        self.is_locked = true;
        lower(self);
        self.is_locked = false;
        self.cpu = cpu;
        self.unlock();
        self.asm.jump(end);
        self.asm.bind(gives_up);
        self.unlock();
        self.asm.jump(cpu);
        self.asm.bind(end);
    }

    fn unlock(&mut self) {
        self.asm.map_value(B, self.maps.lock);
        self.asm.set(A, 0);
        self.asm.exchange(B, 0, A);
    }

    /// Lowers an access to a register.
    fn access(&mut self, register: RegisterId, lower: impl FnOnce(&mut Self)) {
        match self.indivisible.contains(&register) {
            true => self.locked(ATOMIC, lower),
            false => lower(self),
        }
    }

    /// Records that a packet changes here what the CPU uses, too.
    pub(super) fn writes_to(&mut self, name: String) {
        let write = self.writes.len();
        self.writes.push((self.part.clone(), name));
        self.past.written.get_or_insert(write);
    }

    /// A register array with cells of at most 64 bits, which is used, and its map.
    fn narrow_register(&mut self, register: RegisterId) -> Option<(&'p Register, usize)> {
        let schema = self.program.registers.get(register.index())?;
        if schema.ty.width() > 64 {
            self.refuse("a register of more than 64 bits");
            return None;
        }
        let Some(map) = self.maps.register(register) else {
            self.refuse(TOO_MANY_CELLS);
            return None;
        };
        self.uses_registers = true;
        Some((schema, map))
    }

    pub(super) fn read_register(&mut self, place: &LValue, register: RegisterId, index: &Expr) {
        let Some((schema, map)) = self.narrow_register(register) else { return };
        self.access(register, |this| {
            let (key, value, beyond) = (this.temp(), this.temp(), this.asm.label());
            this.store_number(value, 0);
            this.index(index, schema.size, beyond);
            this.store_word(key, A);
            this.look_up(map, key);
            this.asm.jump_if_imm(Cond::Eq, RESULT, 0, beyond);
            this.asm.load(Size::D, A, RESULT, 0);
            this.store_word(value, A);
            this.asm.bind(beyond);
            let width = types::place_width(this.program, place);
            this.assign_stored(place, value, width);
        });
    }

    pub(super) fn write_register(&mut self, register: RegisterId, index: &Expr, value: &Expr) {
        let Some((schema, map)) = self.narrow_register(register) else { return };
        if self.is_parser {
            // States are not in the order of packets.
            return self.refuse("a register that a parser writes");
        }
        self.access(register, |this| {
            let (key, temp, beyond) = (this.temp(), this.temp(), this.asm.label());
            this.value(value);
            this.store_word(temp, A);
            this.index(index, schema.size, beyond);
            this.store_word(key, A);
            this.look_up(map, key);
            this.asm.jump_if_imm(Cond::Eq, RESULT, 0, beyond);
            this.load_word(A, temp);
            this.asm.store(Size::D, RESULT, 0, A);
            this.asm.bind(beyond);
            this.writes_to(format!("register {}", schema.name));
        });
    }
}

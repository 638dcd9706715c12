//! Writes BPF instructions (RFC 9669).
//!
//! Operations are on 64 bits unless their names say otherwise. Jumps go to [`Label`]s, which are bound before or behind
//! them. Maps are referred to by number: [`Program::with`] puts in the descriptors of those that exist.

use std::collections::BTreeSet;
use std::ops::Range;

/// An instruction (`struct bpf_insn`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// Operation.
    pub code: u8,
    /// Destination register in the low four bits, source register in the high ones.
    pub registers: u8,
    /// Offset of a load, a store or a jump.
    pub offset: i16,
    /// Immediate operand.
    pub immediate: i32,
}

/// A register. Calls take arguments in 1 to 5, which they destroy, and return their result in 0; 6 to 9 are kept; 10
/// points behind the stack frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reg(pub u8);

/// Size of a load or a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// 1 byte.
    B = 0x10,
    /// 2 bytes.
    H = 0x08,
    /// 4 bytes.
    W = 0x00,
    /// 8 bytes.
    D = 0x18,
}

impl Size {
    /// The size of so many bytes, a power of two up to 8.
    pub fn of(bytes: usize) -> Self {
        match bytes {
            1 => Size::B,
            2 => Size::H,
            4 => Size::W,
            _ => Size::D,
        }
    }
}

/// Arithmetic and logic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alu {
    /// Sum.
    Add = 0x00,
    /// Difference.
    Sub = 0x10,
    /// Product.
    Mul = 0x20,
    /// Quotient, unsigned; 0 if the divisor is 0.
    Div = 0x30,
    /// Bitwise or.
    Or = 0x40,
    /// Bitwise and.
    And = 0x50,
    /// Shift left, by the low 6 bits.
    Lsh = 0x60,
    /// Shift right, filling with zeros.
    Rsh = 0x70,
    /// Remainder, unsigned; the dividend if the divisor is 0.
    Mod = 0x90,
    /// Bitwise exclusive or.
    Xor = 0xa0,
    /// Copy.
    Mov = 0xb0,
    /// Shift right, filling with the sign.
    Arsh = 0xc0,
}

/// Conditions of jumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cond {
    /// Equal.
    Eq = 0x10,
    /// Greater, unsigned.
    Gt = 0x20,
    /// Greater or equal, unsigned.
    Ge = 0x30,
    /// Unequal.
    Ne = 0x50,
    /// Greater, signed.
    Sgt = 0x60,
    /// Greater or equal, signed.
    Sge = 0x70,
    /// Less, unsigned.
    Lt = 0xa0,
    /// Less or equal, unsigned.
    Le = 0xb0,
    /// Less, signed.
    Slt = 0xc0,
    /// Less or equal, signed.
    Sle = 0xd0,
}

impl Cond {
    /// The condition that holds when this one does not.
    pub fn negated(self) -> Self {
        match self {
            Cond::Eq => Cond::Ne,
            Cond::Ne => Cond::Eq,
            Cond::Gt => Cond::Le,
            Cond::Le => Cond::Gt,
            Cond::Ge => Cond::Lt,
            Cond::Lt => Cond::Ge,
            Cond::Sgt => Cond::Sle,
            Cond::Sle => Cond::Sgt,
            Cond::Sge => Cond::Slt,
            Cond::Slt => Cond::Sge,
        }
    }
}

/// A place in the program that jumps lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// Reasons for which a program cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A jump is longer than an instruction can express.
    #[error("a jump over more than 32,767 instructions")]
    FarJump,
    /// A label that a jump leads to was not bound.
    #[error("a jump to nowhere")]
    Unbound,
}

/// A number that is known when the program is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Later {
    Map(usize),
    Number(usize),
}

/// A program without the numbers that are known when it is loaded.
#[derive(Debug, Clone)]
pub struct Program {
    code: Vec<Instruction>,
    later: Vec<(usize, Later)>,
    parts: Vec<(usize, String)>,
}

impl Program {
    /// The instructions with the descriptors of maps and with other numbers, each list by the numbers that
    /// [`Assembler::map`] and [`Assembler::later`] were given. What is missing is 0, which the kernel refuses as a map.
    pub fn with(&self, maps: &[i32], numbers: &[i32]) -> Vec<Instruction> {
        let mut code = self.code.clone();
        for (at, later) in &self.later {
            let value = match later {
                Later::Map(map) => maps.get(*map),
                Later::Number(number) => numbers.get(*number),
            };
            if let Some(instruction) = code.get_mut(*at) {
                instruction.immediate = value.copied().unwrap_or(0);
            }
        }
        code
    }

    /// Number of instructions.
    pub fn len(&self) -> usize {
        self.code.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.code.is_empty()
    }

    /// Number of different maps.
    pub fn maps(&self) -> usize {
        let map = |later: &(usize, Later)| if let Later::Map(map) = later.1 { Some(map) } else { None };
        self.later.iter().filter_map(map).collect::<BTreeSet<_>>().len()
    }

    /// The name of the part that an instruction belongs to, see [`Assembler::part`].
    pub fn part(&self, instruction: usize) -> Option<&str> {
        let behind = self.parts.partition_point(|(from, _)| *from <= instruction);
        self.parts.get(behind.checked_sub(1)?).map(|(_, name)| name.as_str())
    }

    /// The parts with their instructions.
    pub fn parts(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        let ends = self.parts.iter().skip(1).map(|(from, _)| *from).chain([self.code.len()]);
        self.parts.iter().zip(ends).map(|((from, name), to)| (name.as_str(), *from..to))
    }
}

/// Writes a program.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<Instruction>,
    /// Where each label is.
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
    later: Vec<(usize, Later)>,
    parts: Vec<(usize, String)>,
}

const LD_IMM64: u8 = 0x18;
const ALU64: u8 = 0x07;
const ALU32: u8 = 0x04;
const BY_REGISTER: u8 = 0x08;
const JMP: u8 = 0x05;
const LDX: u8 = 0x61;
const ST: u8 = 0x62;
const STX: u8 = 0x63;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const JA: u8 = 0x05;
const TO_BIG_ENDIAN: u8 = 0xdc;
/// Source register of an [`LD_IMM64`] whose operand is a map's descriptor,
const MAP_DESCRIPTOR: u8 = 1;
/// and of one that loads the address of the map's only value.
const MAP_VALUE: u8 = 2;
/// An atomic operation on 8 bytes, which the immediate operand names.
const ATOMIC: u8 = 0xdb;
const EXCHANGE: i32 = 0xe1;
const COMPARE_EXCHANGE: i32 = 0xf1;

impl Assembler {
    /// A new label.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds a label to the place of the next instruction.
    pub fn bind(&mut self, label: Label) {
        let here = self.code.len();
        self.labels.iter_mut().skip(label.0).take(1).for_each(|place| *place = Some(here));
    }

    /// Names what follows, for people.
    pub fn part(&mut self, name: impl Into<String>) {
        self.parts.push((self.code.len(), name.into()));
    }

    fn push(&mut self, code: u8, destination: Reg, source: Reg, offset: i16, immediate: i32) {
        let registers = source.0 << 4 | destination.0;
        self.code.push(Instruction { code, registers, offset, immediate });
    }

    /// `to = to OP from`.
    pub fn alu(&mut self, op: Alu, to: Reg, from: Reg) {
        self.push(ALU64 | BY_REGISTER | op as u8, to, from, 0, 0);
    }

    /// `to = to OP n`; n's sign is extended.
    pub fn alu_imm(&mut self, op: Alu, to: Reg, n: i32) {
        self.push(ALU64 | op as u8, to, Reg(0), 0, n);
    }

    /// `to = from`.
    pub fn mov(&mut self, to: Reg, from: Reg) {
        if to != from {
            self.alu(Alu::Mov, to, from);
        }
    }

    /// `to = n`.
    pub fn set(&mut self, to: Reg, n: u64) {
        if let Ok(n) = i32::try_from(n.cast_signed()) {
            self.alu_imm(Alu::Mov, to, n);
        } else if let Ok(n) = u32::try_from(n) {
            // 32-bit operations clear the upper half.
            self.push(ALU32 | Alu::Mov as u8, to, Reg(0), 0, n.cast_signed());
        } else {
            self.push(LD_IMM64, to, Reg(0), 0, (n as u32).cast_signed());
            self.push(0, Reg(0), Reg(0), 0, ((n >> 32) as u32).cast_signed());
        }
    }

    /// `to = to & mask`.
    pub fn mask(&mut self, to: Reg, mask: u64, scratch: Reg) {
        match i32::try_from(mask.cast_signed()) {
            Ok(mask) => self.alu_imm(Alu::And, to, mask),
            Err(_) if mask == u64::from(u32::MAX) => {
                self.push(ALU32 | BY_REGISTER | Alu::Mov as u8, to, to, 0, 0)
            }
            Err(_) => {
                self.set(scratch, mask);
                self.alu(Alu::And, to, scratch);
            }
        }
    }

    /// `to = a number that is known when the program is loaded`; its sign is extended.
    pub fn later(&mut self, to: Reg, number: usize) {
        self.later.push((self.code.len(), Later::Number(number)));
        self.alu_imm(Alu::Mov, to, 0);
    }

    /// `to = a map`.
    pub fn map(&mut self, to: Reg, map: usize) {
        self.later.push((self.code.len(), Later::Map(map)));
        self.push(LD_IMM64, to, Reg(MAP_DESCRIPTOR), 0, 0);
        self.push(0, Reg(0), Reg(0), 0, 0);
    }

    /// `to = the address of the value of an array with one entry`, which needs no lookup.
    pub fn map_value(&mut self, to: Reg, map: usize) {
        self.later.push((self.code.len(), Later::Map(map)));
        self.push(LD_IMM64, to, Reg(MAP_VALUE), 0, 0);
        self.push(0, Reg(0), Reg(0), 0, 0);
    }

    /// Reverses the low 2, 4 or 8 bytes on a little-endian machine; bytes above become 0.
    pub fn to_big_endian(&mut self, to: Reg, bytes: usize) {
        self.push(TO_BIG_ENDIAN, to, Reg(0), 0, 8 * bytes as i32);
    }

    /// `to = size bytes at [base + offset]`, extended with zeros.
    pub fn load(&mut self, size: Size, to: Reg, base: Reg, offset: i16) {
        self.push(LDX | size as u8, to, base, offset, 0);
    }

    /// `size bytes at [base + offset] = from`.
    pub fn store(&mut self, size: Size, base: Reg, offset: i16, from: Reg) {
        self.push(STX | size as u8, base, from, offset, 0);
    }

    /// `size bytes at [base + offset] = n`; n's sign is extended.
    pub fn store_imm(&mut self, size: Size, base: Reg, offset: i16, n: i32) {
        self.push(ST | size as u8, base, Reg(0), offset, n);
    }

    /// Exchanges `value` and the 8 bytes at `[base + offset]`, as one step for all CPUs (Linux 5.12).
    pub fn exchange(&mut self, base: Reg, offset: i16, value: Reg) {
        self.push(ATOMIC, base, value, offset, EXCHANGE);
    }

    /// Writes `new` to the 8 bytes at `[base + offset]` if they are what register 0 has, and what they were to register
    /// 0, as one step for all CPUs (Linux 5.12).
    pub fn compare_exchange(&mut self, base: Reg, offset: i16, new: Reg) {
        self.push(ATOMIC, base, new, offset, COMPARE_EXCHANGE);
    }

    /// Jumps.
    pub fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JA, Reg(0), Reg(0), 0, 0);
    }

    /// Jumps if `a COND b`.
    pub fn jump_if(&mut self, cond: Cond, a: Reg, b: Reg, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JMP | BY_REGISTER | cond as u8, a, b, 0, 0);
    }

    /// Jumps if `a COND n`; n's sign is extended.
    pub fn jump_if_imm(&mut self, cond: Cond, a: Reg, n: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JMP | cond as u8, a, Reg(0), 0, n);
    }

    /// Calls a helper of the kernel.
    pub fn call(&mut self, helper: i32) {
        self.push(CALL, Reg(0), Reg(0), 0, helper);
    }

    /// Ends the program; register 0 is its result.
    pub fn exit(&mut self) {
        self.push(EXIT, Reg(0), Reg(0), 0, 0);
    }

    /// Number of instructions so far.
    pub fn len(&self) -> usize {
        self.code.len()
    }

    /// Whether there are none yet.
    pub fn is_empty(&self) -> bool {
        self.code.is_empty()
    }

    /// The program, without what cannot be reached: the kernel refuses that.
    ///
    /// # Errors
    /// Jumps that lead nowhere or too far.
    pub fn finish(self) -> Result<Program, Error> {
        let mut targets = vec![None; self.code.len()];
        for (at, label) in &self.jumps {
            let target = self.labels.get(label.0).copied().flatten().ok_or(Error::Unbound)?;
            targets.iter_mut().skip(*at).take(1).for_each(|to| *to = Some(target));
        }
        let is_reached = self.reached(&targets);
        // Where each instruction, and the end, goes.
        let mut places = Vec::with_capacity(self.code.len() + 1);
        let mut count = 0;
        for reached in &is_reached {
            places.push(count);
            count += usize::from(*reached);
        }
        places.push(count);
        let place = |at: usize| places.get(at).copied().unwrap_or(count);
        let mut code = Vec::with_capacity(count);
        for ((at, instruction), target) in self.code.iter().enumerate().zip(&targets) {
            if !is_reached.get(at).is_some_and(|reached| *reached) {
                continue;
            }
            let mut instruction = *instruction;
            if let Some(target) = target {
                let distance = place(*target) as i64 - place(at) as i64 - 1;
                instruction.offset = i16::try_from(distance).map_err(|_| Error::FarJump)?;
            }
            code.push(instruction);
        }
        let later = self.later.iter().filter(|(at, _)| is_reached.get(*at).is_some_and(|reached| *reached));
        let later = later.map(|(at, later)| (place(*at), *later)).collect();
        let parts = self.parts.into_iter().map(|(at, name)| (place(at), name)).collect();
        Ok(Program { code, later, parts })
    }

    /// Which instructions a program can come to; `targets` are those of jumps.
    fn reached(&self, targets: &[Option<usize>]) -> Vec<bool> {
        let mut reached = vec![false; self.code.len()];
        let mut open = vec![0];
        while let Some(mut at) = open.pop() {
            while let (Some(instruction), Some(known @ false)) = (self.code.get(at), reached.get_mut(at)) {
                *known = true;
                let target = targets.get(at).copied().flatten();
                open.extend(target);
                at += 1;
                if instruction.code == LD_IMM64 {
                    reached.iter_mut().skip(at).take(1).for_each(|second| *second = true);
                    at += 1;
                }
                if instruction.code == EXIT || (instruction.code == JA && target.is_some()) {
                    break;
                }
            }
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_reached_is_left_out_and_jumps_go_where_they_went() {
        let mut asm = Assembler::default();
        let (end, far) = (asm.label(), asm.label());
        asm.map(Reg(1), 0);
        asm.jump(end);
        asm.part("dead");
        asm.set(Reg(2), u64::MAX / 3);
        asm.bind(far);
        asm.set(Reg(0), 1);
        asm.jump(far);
        asm.part("end");
        asm.bind(end);
        asm.later(Reg(0), 0);
        asm.exit();
        let program = asm.finish().unwrap();
        assert_eq!(program.parts().collect::<Vec<_>>(), [("dead", 3..3), ("end", 3..5)]);
        let code = program.with(&[7], &[9]);
        let immediates: Vec<_> = code.iter().map(|instruction| instruction.immediate).collect();
        assert_eq!((immediates, code[2].offset), (vec![7, 0, 0, 9, 0], 0));
        assert_eq!(program.part(4), Some("end"));
    }

    #[test]
    fn jumps_to_nowhere_and_too_far_are_errors() {
        let mut asm = Assembler::default();
        let label = asm.label();
        asm.jump_if_imm(Cond::Eq, Reg(1), 0, label);
        assert_eq!(asm.finish().unwrap_err(), Error::Unbound);

        let mut asm = Assembler::default();
        let label = asm.label();
        asm.jump_if_imm(Cond::Eq, Reg(1), 0, label);
        (0..40_000).for_each(|_| asm.set(Reg(0), 0));
        asm.bind(label);
        asm.exit();
        assert_eq!(asm.finish().unwrap_err(), Error::FarJump);
    }
}

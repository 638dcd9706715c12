//! Packet filters in the classic BPF instruction set (McCanne and Jacobson, "The BSD Packet Filter", 1993, §3), the
//! target of `tcpdump` expressions.
//!
//! A [`Program`] exists only for code that passed [`Program::new`]: known instructions, forward jumps within the
//! program, a return at its end. A run therefore ends after at most as many steps as the program has instructions,
//! whatever the packet. As in every BPF machine, a load beyond the end of the packet rejects the packet.

use crate::bytes::chunk;

/// Maximum number of instructions of a program: the kernel's bound (`BPF_MAXINSNS`).
pub const MAX_INSTRUCTIONS: usize = 4096;

/// Words of scratch memory.
pub const SCRATCH: usize = 16;

/// An unchecked instruction (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// Operation code: class, size, mode, operation.
    pub code: u16,
    /// Instructions to skip if the condition holds.
    pub jt: u8,
    /// Instructions to skip if it does not.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// Reasons for rejecting code as a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The code is empty.
    #[error("the filter has no instructions")]
    Empty,
    /// The code has more than [`MAX_INSTRUCTIONS`].
    #[error("the filter has {0} instructions (at most {MAX_INSTRUCTIONS})")]
    TooLong(usize),
    /// An instruction is unknown.
    #[error("instruction {at} of the filter is unknown: {code:#06x}")]
    Unknown {
        /// Its position, from 0.
        at: usize,
        /// Its code.
        code: u16,
    },
    /// A jump ends outside the program.
    #[error("instruction {0} of the filter jumps past its end")]
    Jump(usize),
    /// An instruction uses a word beyond scratch memory.
    #[error("instruction {0} of the filter uses a word beyond scratch memory")]
    Scratch(usize),
    /// An instruction divides by a constant zero.
    #[error("instruction {0} of the filter divides by zero")]
    Division(usize),
    /// The last instruction is not a return.
    #[error("the filter does not end in a return")]
    NoReturn,
}

/// Width of a load, in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Size {
    /// 4 bytes.
    Word,
    /// 2 bytes.
    Half,
    /// 1 byte.
    Byte,
}

impl Size {
    /// Returns the number of bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Word => 4,
            Self::Half => 2,
            Self::Byte => 1,
        }
    }
}

/// Arithmetic on 32 bits, which wraps around. A division by zero rejects the packet; a shift by 32 or more gives 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "operations named by their names")]
pub enum Operation {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

impl Operation {
    /// Returns `a` with the operation applied; `None` for a division by zero.
    #[inline]
    pub fn apply(self, a: u32, with: u32) -> Option<u32> {
        Some(match self {
            Self::Add => a.wrapping_add(with),
            Self::Sub => a.wrapping_sub(with),
            Self::Mul => a.wrapping_mul(with),
            Self::Div => a.checked_div(with)?,
            Self::Mod => a.checked_rem(with)?,
            Self::And => a & with,
            Self::Or => a | with,
            Self::Xor => a ^ with,
            Self::ShiftLeft => a.checked_shl(with).unwrap_or(0),
            Self::ShiftRight => a.checked_shr(with).unwrap_or(0),
        })
    }
}

/// Condition of a branch, on A and the operand, unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// They are equal.
    Equal,
    /// A is greater.
    Greater,
    /// A is greater or equal.
    GreaterOrEqual,
    /// They have a bit in common.
    AnyBit,
}

impl Test {
    /// Returns whether the condition holds.
    #[inline]
    pub fn holds(self, a: u32, with: u32) -> bool {
        match self {
            Self::Equal => a == with,
            Self::Greater => a > with,
            Self::GreaterOrEqual => a >= with,
            Self::AnyBit => a & with != 0,
        }
    }
}

/// The second operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A constant; of a division, not zero.
    Constant(u32),
    /// The index register.
    X,
}

/// A checked instruction. A is the accumulator, X the index register; both, and the 16 words of scratch memory, are
/// zero at first. `usize` operands are in bounds: words of scratch memory, and steps of the program to skip.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// `A = packet[offset]`, `indexed`: `packet[X + offset]`, without wrapping around.
    Load {
        /// The width.
        size: Size,
        /// Bytes from the start of the packet.
        offset: u32,
        /// Whether X is added.
        indexed: bool,
    },
    /// A = constant.
    LoadConstant(u32),
    /// A = length of the packet.
    LoadLength,
    /// A = scratch word.
    LoadScratch(usize),
    /// X = constant.
    IndexConstant(u32),
    /// X = length of the packet.
    IndexLength,
    /// X = scratch word.
    IndexScratch(usize),
    /// `X = 4 * (packet[offset] & 15)`: the length of an IPv4 header.
    IndexHeaderLength(u32),
    /// Scratch word = A.
    Store(usize),
    /// Scratch word = X.
    StoreIndex(usize),
    /// A = A op operand.
    Compute(Operation, Operand),
    /// A = -A.
    Negate,
    /// Skips that many steps.
    Jump(usize),
    /// Skips `then` steps if the condition holds, `otherwise` steps if not.
    Branch {
        /// The condition.
        test: Test,
        /// What A is compared with.
        operand: Operand,
        /// Steps skipped if it holds.
        then: usize,
        /// Steps skipped if not.
        otherwise: usize,
    },
    /// Ends with this verdict.
    ReturnConstant(u32),
    /// Ends with A as verdict.
    ReturnAccumulator,
    /// X = A.
    IndexFromAccumulator,
    /// A = X.
    AccumulatorFromIndex,
}

/// A load beyond the bytes given but not beyond the packet: the verdict needs more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsMore;

/// A checked filter, ready to run.
#[derive(Clone, Debug)]
pub struct Program(Box<[Step]>);

impl Program {
    /// Checks `code` and compiles it to steps.
    pub fn new(code: &[Instruction]) -> Result<Self, ProgramError> {
        if code.is_empty() {
            return Err(ProgramError::Empty);
        }
        if code.len() > MAX_INSTRUCTIONS {
            return Err(ProgramError::TooLong(code.len()));
        }
        let steps = code.iter().enumerate().map(|(at, instruction)| check(at, instruction, code.len()));
        let steps = steps.collect::<Result<Box<[Step]>, _>>()?;
        match steps.last() {
            Some(Step::ReturnConstant(_) | Step::ReturnAccumulator) => Ok(Self(steps)),
            _ => Err(ProgramError::NoReturn),
        }
    }

    /// Returns the steps, in order. The last one returns.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Returns whether the filter keeps a packet that is `len` bytes long and starts with `bytes`. With fewer than
    /// `len` bytes, the result may be [`NeedsMore`].
    #[inline]
    pub fn keeps(&self, bytes: &[u8], len: u32) -> Result<bool, NeedsMore> {
        Ok(self.run(bytes, len)? != 0)
    }

    /// Returns the filter's verdict: the number of bytes of the packet to keep, 0 to reject it. Arguments as for
    /// [`Program::keeps`].
    pub fn run(&self, bytes: &[u8], len: u32) -> Result<u32, NeedsMore> {
        let (mut a, mut x, mut scratch) = (0u32, 0u32, [0u32; SCRATCH]);
        let mut steps = self.0.iter();
        while let Some(step) = steps.next() {
            match *step {
                Step::Load { size, offset, indexed } => {
                    let at = u64::from(offset) + if indexed { u64::from(x) } else { 0 };
                    match load(bytes, at, size) {
                        Some(value) => a = value,
                        None => return beyond(bytes, len, at, size),
                    }
                }
                Step::LoadConstant(k) => a = k,
                Step::LoadLength => a = len,
                Step::LoadScratch(word) => a = scratch.get(word).copied().unwrap_or(0),
                Step::IndexConstant(k) => x = k,
                Step::IndexLength => x = len,
                Step::IndexScratch(word) => x = scratch.get(word).copied().unwrap_or(0),
                Step::IndexHeaderLength(offset) => match load(bytes, offset.into(), Size::Byte) {
                    Some(value) => x = (value & 15) * 4,
                    None => return beyond(bytes, len, offset.into(), Size::Byte),
                },
                Step::Store(word) => put(&mut scratch, word, a),
                Step::StoreIndex(word) => put(&mut scratch, word, x),
                Step::Compute(operation, operand) => match operation.apply(a, value(operand, x)) {
                    Some(result) => a = result,
                    // A division by zero rejects the packet.
                    None => return Ok(0),
                },
                Step::Negate => a = a.wrapping_neg(),
                Step::Jump(skip) => skip_steps(&mut steps, skip),
                Step::Branch { test, operand, then, otherwise } => {
                    let with = value(operand, x);
                    skip_steps(&mut steps, if test.holds(a, with) { then } else { otherwise });
                }
                Step::ReturnConstant(k) => return Ok(k),
                Step::ReturnAccumulator => return Ok(a),
                Step::IndexFromAccumulator => x = a,
                Step::AccumulatorFromIndex => a = x,
            }
        }
        // Unreachable: the last step returns.
        Ok(0)
    }
}

#[inline(always)]
fn skip_steps(steps: &mut std::slice::Iter<'_, Step>, skip: usize) {
    if let Some(last) = skip.checked_sub(1) {
        steps.nth(last);
    }
}

#[inline(always)]
fn value(operand: Operand, x: u32) -> u32 {
    match operand {
        Operand::Constant(k) => k,
        Operand::X => x,
    }
}

#[inline(always)]
fn put(scratch: &mut [u32; SCRATCH], word: usize, value: u32) {
    if let Some(to) = scratch.get_mut(word) {
        *to = value;
    }
}

#[inline(always)]
fn load(bytes: &[u8], at: u64, size: Size) -> Option<u32> {
    let at = usize::try_from(at).ok()?;
    match size {
        Size::Word => chunk(bytes, at).map(|word| u32::from_be_bytes(*word)),
        Size::Half => chunk(bytes, at).map(|half| u16::from_be_bytes(*half).into()),
        Size::Byte => bytes.get(at).map(|byte| (*byte).into()),
    }
}

/// Returns the verdict when a load at `at` failed.
#[cold]
fn beyond(bytes: &[u8], len: u32, at: u64, size: Size) -> Result<u32, NeedsMore> {
    let end = at + u64::from(size.bytes());
    let in_packet = (bytes.len() as u64) < u64::from(len) && end <= u64::from(len);
    if in_packet { Err(NeedsMore) } else { Ok(0) }
}

// Fields of an instruction's code.
const CLASS: u16 = 0x07;
const SIZE: u16 = 0x18;
const MODE: u16 = 0xe0;
const OPERATION: u16 = 0xf0;
const FROM_X: u16 = 0x08;

/// Checks instruction `at` of `len` and returns its step.
fn check(at: usize, instruction: &Instruction, len: usize) -> Result<Step, ProgramError> {
    let Instruction { code, jt, jf, k } = *instruction;
    let unknown = Err(ProgramError::Unknown { at, code });
    let word = || match usize::try_from(k) {
        Ok(word) if word < SCRATCH => Ok(word),
        _ => Err(ProgramError::Scratch(at)),
    };
    // A jump to the last instruction of the program is allowed.
    let target = |skip: u32| match usize::try_from(skip) {
        Ok(skip) if skip < len - 1 - at => Ok(skip),
        _ => Err(ProgramError::Jump(at)),
    };
    if code & !0xff != 0 {
        return unknown;
    }
    let operand = if code & FROM_X != 0 { Operand::X } else { Operand::Constant(k) };
    Ok(match code & CLASS {
        0x00 => match (code & MODE, code & SIZE) {
            (0x00, 0x00) => Step::LoadConstant(k),
            (0x80, 0x00) => Step::LoadLength,
            (0x60, 0x00) => Step::LoadScratch(word()?),
            (mode @ (0x20 | 0x40), size) => {
                let size = match size {
                    0x00 => Size::Word,
                    0x08 => Size::Half,
                    0x10 => Size::Byte,
                    _ => return unknown,
                };
                Step::Load { size, offset: k, indexed: mode == 0x40 }
            }
            _ => return unknown,
        },
        0x01 => match code {
            0x01 => Step::IndexConstant(k),
            0x81 => Step::IndexLength,
            0x61 => Step::IndexScratch(word()?),
            0xb1 => Step::IndexHeaderLength(k),
            _ => return unknown,
        },
        0x02 if code == 0x02 => Step::Store(word()?),
        0x03 if code == 0x03 => Step::StoreIndex(word()?),
        0x04 => {
            let operation = match code & OPERATION {
                0x00 => Operation::Add,
                0x10 => Operation::Sub,
                0x20 => Operation::Mul,
                0x30 => Operation::Div,
                0x40 => Operation::Or,
                0x50 => Operation::And,
                0x60 => Operation::ShiftLeft,
                0x70 => Operation::ShiftRight,
                0x80 if code == 0x84 => return Ok(Step::Negate),
                0x90 => Operation::Mod,
                0xa0 => Operation::Xor,
                _ => return unknown,
            };
            if matches!(operation, Operation::Div | Operation::Mod) && operand == Operand::Constant(0) {
                return Err(ProgramError::Division(at));
            }
            Step::Compute(operation, operand)
        }
        0x05 => {
            let test = match code & OPERATION {
                0x00 if code == 0x05 => return Ok(Step::Jump(target(k)?)),
                0x10 => Test::Equal,
                0x20 => Test::Greater,
                0x30 => Test::GreaterOrEqual,
                0x40 => Test::AnyBit,
                _ => return unknown,
            };
            Step::Branch { test, operand, then: target(jt.into())?, otherwise: target(jf.into())? }
        }
        0x06 => match code {
            0x06 => Step::ReturnConstant(k),
            0x16 => Step::ReturnAccumulator,
            _ => return unknown,
        },
        0x07 => match code {
            0x07 => Step::IndexFromAccumulator,
            0x87 => Step::AccumulatorFromIndex,
            _ => return unknown,
        },
        _ => return unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(code: u16, k: u32) -> Instruction {
        Instruction { code, k, ..Instruction::default() }
    }

    fn branch(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
        Instruction { code, jt, jf, k }
    }

    const KEEP: Instruction = Instruction { code: 0x06, jt: 0, jf: 0, k: u32::MAX };
    const DROP: Instruction = Instruction { code: 0x06, jt: 0, jf: 0, k: 0 };

    fn run(code: &[Instruction], bytes: &[u8]) -> u32 {
        Program::new(code).unwrap().run(bytes, bytes.len() as u32).unwrap()
    }

    #[test]
    fn invalid_programs_are_refused() {
        let refused = |code: &[Instruction]| Program::new(code).unwrap_err();
        assert_eq!(refused(&[]), ProgramError::Empty);
        assert_eq!(refused(&[KEEP; 4097]), ProgramError::TooLong(4097));
        assert!(Program::new(&[KEEP; 4096]).is_ok());
        assert_eq!(refused(&[op(0x00, 0)]), ProgramError::NoReturn);
        for code in [0x18, 0x38, 0xff, 0x0e, 0x100, 0x8c, 0x0d, 0x09, 0xa1, 0x0a, 0x08, 0x16 | 0x08, 0xb4] {
            assert_eq!(refused(&[op(code, 1), KEEP]), ProgramError::Unknown { at: 0, code });
        }
        assert_eq!(refused(&[op(0x05, 1), KEEP]), ProgramError::Jump(0));
        assert_eq!(refused(&[op(0x05, u32::MAX), KEEP]), ProgramError::Jump(0));
        assert_eq!(refused(&[branch(0x15, 0, 0, 1), KEEP]), ProgramError::Jump(0));
        assert_eq!(refused(&[KEEP, branch(0x15, 0, 0, 0)]), ProgramError::Jump(1));
        for code in [0x02, 0x03, 0x60, 0x61] {
            assert_eq!(refused(&[op(code, 16), KEEP]), ProgramError::Scratch(0));
        }
        for code in [0x34, 0x94] {
            assert_eq!(refused(&[op(code, 0), KEEP]), ProgramError::Division(0));
        }
        assert_eq!(refused(&[]).to_string(), "the filter has no instructions");
        assert_eq!(refused(&[op(0x00, 0)]).to_string(), "the filter does not end in a return");
        assert!(refused(&[op(0x05, 1), KEEP]).to_string().contains("instruction 0 of the filter jumps"));
    }

    #[test]
    fn loads_and_their_bounds() {
        let bytes = [1, 2, 3, 4, 5];
        assert_eq!(run(&[op(0x20, 1), op(0x16, 0)], &bytes), 0x0203_0405);
        assert_eq!(run(&[op(0x28, 3), op(0x16, 0)], &bytes), 0x0405);
        assert_eq!(run(&[op(0x30, 4), op(0x16, 0)], &bytes), 5);
        assert_eq!(run(&[op(0x80, 0), op(0x16, 0)], &bytes), 5);
        assert_eq!(run(&[op(0x01, 2), op(0x50, 1), op(0x16, 0)], &bytes), 4);
        assert_eq!(run(&[op(0xb1, 4), op(0x87, 0), op(0x16, 0)], &bytes), 20);
        for load in [op(0x20, 2), op(0x28, 4), op(0x30, 5), op(0x20, u32::MAX), op(0xb1, 5)] {
            assert_eq!(run(&[load, KEEP], &bytes), 0, "{load:?}");
        }
        // X + k does not wrap around.
        assert_eq!(run(&[op(0x01, u32::MAX), op(0x50, 2), KEEP], &bytes), 0);
    }

    #[test]
    fn arithmetic() {
        let result = |code, k| run(&[op(0x00, 7), op(code, k), op(0x16, 0)], &[]);
        assert_eq!((result(0x04, 3), result(0x14, 8), result(0x24, 3)), (10, u32::MAX, 21));
        assert_eq!((result(0x34, 2), result(0x94, 4), result(0x44, 8)), (3, 3, 15));
        assert_eq!((result(0x54, 5), result(0xa4, 5), result(0x84, 0)), (5, 2, 7u32.wrapping_neg()));
        assert_eq!((result(0x64, 1), result(0x64, 32), result(0x74, 1), result(0x74, 99)), (14, 0, 3, 0));
        for by_x in [0x3c, 0x9c] {
            assert_eq!(run(&[op(0x00, 7), op(by_x, 0), KEEP], &[]), 0, "X is zero");
        }
    }

    #[test]
    fn jumps_and_scratch() {
        let code = [op(0x00, 9), op(0x02, 15), op(0x00, 1), op(0x61, 15), branch(0x3d, 0, 0, 1), DROP, KEEP];
        assert_eq!(run(&code, &[]), u32::MAX, "1 >= 9 does not hold");
        assert_eq!(run(&[op(0x05, 1), DROP, KEEP], &[]), u32::MAX);
        assert_eq!(run(&[op(0x00, 6), branch(0x45, 4, 0, 1), KEEP, DROP], &[]), u32::MAX);
        assert_eq!(run(&[op(0x00, 6), branch(0x25, 6, 0, 1), KEEP, DROP], &[]), 0);
    }

    #[test]
    fn verdicts_report_missing_bytes() {
        let program = Program::new(&[op(0x28, 12), KEEP]).unwrap();
        assert_eq!(program.keeps(&[0; 13], 60), Err(NeedsMore));
        assert_eq!(program.keeps(&[0; 14], 60), Ok(true));
        assert_eq!(program.keeps(&[0; 13], 13), Ok(false), "the packet itself is too short");
        assert_eq!(program.keeps(&[0; 10], 13), Ok(false), "the packet itself is too short");
    }
}

//! Values: loads, contents of registers, arithmetic, comparisons.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, MemFlagsData, types};
use packet::bpf::{Operand, Operation, Size, Test};

use super::Emitter;
use crate::outlook::{A, Place, X};
use crate::state::{State, Value};

/// Bytes of packets.
const BYTES: MemFlagsData = MemFlagsData::new().with_notrap().with_endianness(ir::Endianness::Little);

impl Emitter<'_, '_> {
    /// Emits a load. Returns its value; `None` if no packet gets past it.
    pub(super) fn load(
        &mut self,
        place: Place,
        state: &mut State,
        size: Size,
        at: u32,
        indexed: bool,
    ) -> Option<Value> {
        let end = u64::from(at) + u64::from(size.bytes());
        match state.x {
            Value::Constant(_) if !indexed => {}
            Value::Constant(x) => {
                let end = end + u64::from(x);
                return self.require(place, state, end).then(|| Value::Load(size, at.wrapping_add(x)));
            }
            Value::HeaderLength(base) if indexed => {
                let has = state.behind.filter(|(there, has)| *there == base && u64::from(*has) >= end);
                if has.is_none() {
                    let x = self.content(state.x, X);
                    let x = self.b.ins().uextend(types::I64, x);
                    self.require_behind(place, state, x, end);
                    // An end beyond the largest number is never there.
                    state.behind = u32::try_from(end).ok().map(|end| (base, end)).or(state.behind);
                }
                return Some(Value::Behind(size, at, base));
            }
            _ if indexed && self.flat.is_some() => {
                self.fail();
                return None;
            }
            x if indexed => {
                let x = self.content(x, X);
                let x = self.b.ins().uextend(types::I64, x);
                self.require_behind(place, state, x, end);
                let start = self.b.ins().iadd(self.current.start, x);
                let raw = self.raw(size, start, at);
                let value = self.in_order(size, raw);
                return Some(self.computed(value));
            }
            _ => {}
        }
        self.require(place, state, end).then_some(Value::Load(size, at))
    }

    /// Reads bytes as they are in memory.
    fn raw(&mut self, size: Size, start: ir::Value, at: u32) -> ir::Value {
        let ty = match size {
            Size::Byte => types::I8,
            Size::Half => types::I16,
            Size::Word => types::I32,
        };
        match i32::try_from(at) {
            Ok(at) => self.b.ins().load(ty, BYTES, start, at),
            Err(_) => {
                let start = self.b.ins().iadd_imm_s(start, i64::from(at));
                self.b.ins().load(ty, BYTES, start, 0)
            }
        }
    }

    /// Makes a number of bytes read: they are in network byte order.
    fn in_order(&mut self, size: Size, raw: ir::Value) -> ir::Value {
        match size {
            Size::Byte => self.b.ins().uextend(types::I32, raw),
            Size::Half => {
                let swapped = self.b.ins().bswap(raw);
                self.b.ins().uextend(types::I32, swapped)
            }
            Size::Word => self.b.ins().bswap(raw),
        }
    }

    /// The bytes of a value that reads the packet, as they are in memory.
    fn raw_of(&mut self, value: Value) -> Option<(Size, ir::Value)> {
        Some(match value {
            Value::Load(size, at) => (size, self.raw(size, self.current.start, at)),
            Value::Behind(size, at, base) => {
                let x = self.content(Value::HeaderLength(base), X);
                let mut x = self.b.ins().uextend(types::I64, x);
                if let Some(end) = self.flat.as_ref().map(|flat| flat.end) {
                    x = self.safe(x, end);
                }
                let start = self.b.ins().iadd(self.current.start, x);
                (size, self.raw(size, start, at))
            }
            _ => return None,
        })
    }

    /// The content of a register.
    pub(super) fn content(&mut self, value: Value, bit: u32) -> ir::Value {
        match value {
            Value::Dead => self.b.ins().iconst(types::I32, 0),
            Value::Constant(k) => self.b.ins().iconst(types::I32, i64::from(k)),
            Value::Computed => self.b.use_var(self.variable(bit)),
            Value::Length => self.current.len,
            Value::HeaderLength(at) => {
                let byte = self.raw(Size::Byte, self.current.start, at);
                let words = self.b.ins().band_imm_u(byte, 15);
                let words = self.b.ins().uextend(types::I32, words);
                self.b.ins().ishl_imm_u(words, 2)
            }
            Value::Load(..) | Value::Behind(..) => match self.raw_of(value) {
                Some((size, raw)) => self.in_order(size, raw),
                None => self.b.ins().iconst(types::I32, 0),
            },
        }
    }

    fn operand(&mut self, state: &State, operand: Operand) -> ir::Value {
        match operand {
            Operand::Constant(k) => self.b.ins().iconst(types::I32, i64::from(k)),
            Operand::X => self.content(state.x, X),
        }
    }

    /// Emits arithmetic. Returns false if no packet gets past it.
    pub(super) fn compute(
        &mut self,
        place: Place,
        state: &mut State,
        operation: Operation,
        operand: Operand,
    ) -> bool {
        let constant = match (operand, state.x) {
            (Operand::Constant(k), _) | (Operand::X, Value::Constant(k)) => Some(k),
            _ => None,
        };
        if let (Value::Constant(a), Some(with)) = (state.a, constant) {
            let result = operation.apply(a, with);
            match result {
                Some(result) => state.a = Value::Constant(result),
                None => self.reject(place, state.clone()),
            }
            return result.is_some();
        }
        let is_division = matches!(operation, Operation::Div | Operation::Mod);
        if is_division && constant == Some(0) {
            self.reject(place, state.clone());
            return false;
        }
        let a = self.content(state.a, A);
        let with = self.operand(state, operand);
        if is_division && constant.is_none() && self.flat.is_some() {
            self.fail();
            return false;
        }
        if is_division && constant.is_none() {
            // Rejecting may write the registers' variables: not on the way to the division.
            let [divides, rejects] = [self.b.create_block(), self.b.create_block()];
            self.b.ins().brif(with, divides, &[], rejects, &[]);
            self.b.switch_to_block(rejects);
            self.reject(place, state.clone());
            self.b.switch_to_block(divides);
        }
        let ins = self.b.ins();
        let result = match operation {
            Operation::Add => ins.iadd(a, with),
            Operation::Sub => ins.isub(a, with),
            Operation::Mul => ins.imul(a, with),
            Operation::Div => ins.udiv(a, with),
            Operation::Mod => ins.urem(a, with),
            Operation::And => ins.band(a, with),
            Operation::Or => ins.bor(a, with),
            Operation::Xor => ins.bxor(a, with),
            Operation::ShiftLeft => {
                let shifted = ins.ishl(a, with);
                self.unless_too_far(shifted, with, constant)
            }
            Operation::ShiftRight => {
                let shifted = ins.ushr(a, with);
                self.unless_too_far(shifted, with, constant)
            }
        };
        state.a = self.computed(result);
        true
    }

    /// A shift's result; 0 where it shifts by 32 or more.
    fn unless_too_far(&mut self, shifted: ir::Value, by: ir::Value, constant: Option<u32>) -> ir::Value {
        match constant {
            Some(k) if k < 32 => shifted,
            Some(_) => self.b.ins().iconst(types::I32, 0),
            None => {
                let fits = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, by, 32);
                let zero = self.b.ins().iconst(types::I32, 0);
                self.b.ins().select(fits, shifted, zero)
            }
        }
    }

    pub(super) fn condition(&mut self, test: Test, a: ir::Value, with: ir::Value) -> ir::Value {
        let code = match test {
            Test::AnyBit => return self.b.ins().band(a, with),
            Test::Equal => IntCC::Equal,
            Test::Greater => IntCC::UnsignedGreaterThan,
            Test::GreaterOrEqual => IntCC::UnsignedGreaterThanOrEqual,
        };
        self.b.ins().icmp(code, a, with)
    }

    /// Compares A with a constant. For equality and bits, the constant is put into the packet's order instead of the
    /// packet's bytes into ours.
    pub(super) fn compare(&mut self, a: Value, test: Test, with: u32) -> ir::Value {
        let ty = |size| match size {
            Size::Byte => (types::I8, u8::MAX.into()),
            Size::Half => (types::I16, u16::MAX.into()),
            Size::Word => (types::I32, u32::MAX),
        };
        if matches!(test, Test::Equal | Test::AnyBit)
            && let Some((size, raw)) = self.raw_of(a)
        {
            let (ty, most) = ty(size);
            // A constant beyond the width equals nothing, which is known before.
            let swapped = match size {
                Size::Byte => with & most,
                Size::Half => u32::from((with as u16).swap_bytes()),
                Size::Word => with.swap_bytes(),
            };
            let with = self.b.ins().iconst(ty, i64::from(swapped));
            return self.condition(test, raw, with);
        }
        let a = self.content(a, A);
        let with = self.b.ins().iconst(types::I32, i64::from(with));
        self.condition(test, a, with)
    }
}

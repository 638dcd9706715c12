//! Arithmetic on values of any width: one register for each 64 bits.
//!
//! Operands have equal widths unless stated otherwise; results have zeros above the width again. Products, quotients
//! and shifts by variable amounts of more than 64 bits are calls of the runtime.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use pipeline::bits::Bits;

use super::{Emit, limbs_of};
use crate::runtime::calls;

/// Bits of the highest limb.
fn top_mask(width: u16) -> u64 {
    match width % 64 {
        0 => u64::MAX,
        spare => (1 << spare) - 1,
    }
}

impl Emit<'_, '_> {
    pub(super) fn constant(&mut self, bits: &Bits) -> Vec<Value> {
        bits.limbs().iter().map(|limb| self.int(*limb)).collect()
    }

    pub(super) fn zeros(&mut self, width: u16) -> Vec<Value> {
        (0..limbs_of(width)).map(|_| self.zero()).collect()
    }

    /// Clears the bits above the width.
    pub(super) fn trim(&mut self, mut limbs: Vec<Value>, width: u16) -> Vec<Value> {
        if let Some(top) = limbs.last_mut() {
            *top = self.and_const(*top, top_mask(width));
        }
        limbs
    }

    /// Truncates or extends with zeros.
    pub(super) fn resize(&mut self, limbs: &[Value], width: u16) -> Vec<Value> {
        let count = limbs_of(width);
        let mut resized: Vec<Value> = limbs.iter().copied().take(count).collect();
        let truncated = resized.len() == count;
        while resized.len() < count {
            let zero = self.zero();
            resized.push(zero);
        }
        if truncated { self.trim(resized, width) } else { resized }
    }

    pub(super) fn each(
        &mut self,
        a: &[Value],
        b: &[Value],
        mut op: impl FnMut(&mut Self, Value, Value) -> Value,
    ) -> Vec<Value> {
        a.iter().zip(b).map(|(a, b)| op(self, *a, *b)).collect()
    }

    pub(super) fn not(&mut self, a: &[Value], width: u16) -> Vec<Value> {
        let limbs = a.iter().map(|a| self.b.ins().bnot(*a)).collect();
        self.trim(limbs, width)
    }

    /// The first where the condition holds, else the second.
    pub(super) fn choose(&mut self, condition: Value, a: &[Value], b: &[Value]) -> Vec<Value> {
        self.each(a, b, |e, a, b| e.b.ins().select(condition, a, b))
    }

    /// Sum with a carry in, a number; and the carry out, a number.
    pub(super) fn carrying_add(
        &mut self,
        a: &[Value],
        b: &[Value],
        carry: Value,
        width: u16,
    ) -> (Vec<Value>, Value) {
        let mut carry = carry;
        let mut sums = Vec::with_capacity(a.len());
        let last = a.len().saturating_sub(1);
        let spare = width % 64;
        for (i, (a, b)) in a.iter().zip(b).enumerate() {
            let partial = self.b.ins().iadd(*a, *b);
            let sum = self.b.ins().iadd(partial, carry);
            if i == last && spare != 0 {
                // No overflow: both have spare bits, into which the carry goes.
                carry = self.shr(sum, spare.into());
            } else {
                let first = self.b.ins().icmp(IntCC::UnsignedLessThan, partial, *a);
                let second = self.b.ins().icmp(IntCC::UnsignedLessThan, sum, partial);
                let either = self.b.ins().bor(first, second);
                carry = self.number_of(either);
            }
            sums.push(sum);
        }
        (self.trim(sums, width), carry)
    }

    pub(super) fn add(&mut self, a: &[Value], b: &[Value], width: u16) -> Vec<Value> {
        let zero = self.zero();
        self.carrying_add(a, b, zero, width).0
    }

    pub(super) fn sub(&mut self, a: &[Value], b: &[Value], width: u16) -> Vec<Value> {
        if let ([a], [b]) = (a, b) {
            let difference = self.b.ins().isub(*a, *b);
            return self.trim(vec![difference], width);
        }
        let (inverse, one) = (self.not(b, width), self.int(1));
        self.carrying_add(a, &inverse, one, width).0
    }

    pub(super) fn negate(&mut self, a: &[Value], width: u16) -> Vec<Value> {
        let zero = self.zeros(width);
        self.sub(&zero, a, width)
    }

    /// Calls a function of the runtime on two values: `(result, a, b, width)`.
    pub(super) fn wide(&mut self, function: *const (), a: &[Value], b: Value, width: u16) -> Vec<Value> {
        let (result, a) = (self.slot(limbs_of(width)), self.spill(a));
        let bits = self.int(width.into());
        self.call(function, &[result, a, b, bits]);
        self.unspill(result, limbs_of(width))
    }

    pub(super) fn mul(&mut self, a: &[Value], b: &[Value], width: u16) -> Vec<Value> {
        if let ([a], [b]) = (a, b) {
            let product = self.b.ins().imul(*a, *b);
            return self.trim(vec![product], width);
        }
        let b = self.spill(b);
        self.wide(calls::mul as *const (), a, b, width)
    }

    pub(super) fn divide(&mut self, a: &[Value], b: &[Value], width: u16, remainder: bool) -> Vec<Value> {
        if let ([a], [b]) = (a, b) {
            let is_zero = self.is(IntCC::Equal, *b, 0);
            let one = self.int(1);
            // The processor traps on zero.
            let divisor = self.b.ins().select(is_zero, one, *b);
            return vec![if remainder {
                let rest = self.b.ins().urem(*a, divisor);
                self.b.ins().select(is_zero, *a, rest)
            } else {
                let quotient = self.b.ins().udiv(*a, divisor);
                let ones = self.int(top_mask(width));
                self.b.ins().select(is_zero, ones, quotient)
            }];
        }
        let b = self.spill(b);
        let function = if remainder { calls::rem as *const () } else { calls::div as *const () };
        self.wide(function, a, b, width)
    }

    /// The sign bit, as a truth value of Cranelift's.
    pub(super) fn is_negative(&mut self, a: &[Value], width: u16) -> Value {
        let top = a.last().copied().unwrap_or(self.frame);
        let bit = self.and_const(top, 1 << ((width.max(1) - 1) % 64));
        self.is(IntCC::NotEqual, bit, 0)
    }

    /// The largest number for false, the smallest for true.
    fn extreme(&mut self, negative: Value, width: u16) -> Vec<Value> {
        let sign = Bits::from_u64(width, 1).shl(u64::from(width.max(1)) - 1);
        let (smallest, largest) = (self.constant(&sign), self.constant(&sign.not()));
        self.choose(negative, &smallest, &largest)
    }

    pub(super) fn saturating_add(
        &mut self,
        a: &[Value],
        b: &[Value],
        width: u16,
        signed: bool,
    ) -> Vec<Value> {
        let zero = self.zero();
        let (sum, carry) = self.carrying_add(a, b, zero, width);
        if !signed {
            let ones = self.constant(&Bits::ones(width));
            let over = self.is(IntCC::NotEqual, carry, 0);
            return self.choose(over, &ones, &sum);
        }
        let [x, y, z] = [a, b, &sum].map(|v| self.is_negative(v, width));
        let same = self.b.ins().icmp(IntCC::Equal, x, y);
        let turned = self.b.ins().icmp(IntCC::NotEqual, z, x);
        let over = self.b.ins().band(same, turned);
        let extreme = self.extreme(x, width);
        self.choose(over, &extreme, &sum)
    }

    pub(super) fn saturating_sub(
        &mut self,
        a: &[Value],
        b: &[Value],
        width: u16,
        signed: bool,
    ) -> Vec<Value> {
        let difference = self.sub(a, b, width);
        if !signed {
            let (below, zeros) = (self.less(a, b, width, false), self.zeros(width));
            return self.choose(below, &zeros, &difference);
        }
        let [x, y, z] = [a, b, &difference].map(|v| self.is_negative(v, width));
        let differ = self.b.ins().icmp(IntCC::NotEqual, x, y);
        let turned = self.b.ins().icmp(IntCC::NotEqual, z, x);
        let over = self.b.ins().band(differ, turned);
        let extreme = self.extreme(x, width);
        self.choose(over, &extreme, &difference)
    }

    /// Whether two values are equal, as a truth value of Cranelift's.
    pub(super) fn equal(&mut self, a: &[Value], b: &[Value]) -> Value {
        if let ([a], [b]) = (a, b) {
            return self.b.ins().icmp(IntCC::Equal, *a, *b);
        }
        let differing = self.each(a, b, |e, a, b| e.b.ins().bxor(a, b));
        let any = self.any(&differing);
        self.is(IntCC::Equal, any, 0)
    }

    /// All limbs or'ed.
    pub(super) fn any(&mut self, limbs: &[Value]) -> Value {
        let first = limbs.first().copied();
        let first = first.unwrap_or_else(|| self.zero());
        limbs.iter().skip(1).fold(first, |any, limb| self.b.ins().bor(any, *limb))
    }

    /// Whether the first is less, as a truth value of Cranelift's.
    pub(super) fn less(&mut self, a: &[Value], b: &[Value], width: u16, signed: bool) -> Value {
        let (mut a, mut b) = (a.to_vec(), b.to_vec());
        if signed {
            let sign = self.int(1 << ((width.max(1) - 1) % 64));
            for top in [a.last_mut(), b.last_mut()].into_iter().flatten() {
                *top = self.b.ins().bxor(*top, sign);
            }
        }
        let mut less: Option<Value> = None;
        for (a, b) in a.iter().zip(&b) {
            let here = self.b.ins().icmp(IntCC::UnsignedLessThan, *a, *b);
            less = Some(match less {
                None => here,
                Some(below) => {
                    let same = self.b.ins().icmp(IntCC::Equal, *a, *b);
                    self.b.ins().select(same, below, here)
                }
            });
        }
        less.unwrap_or(self.frame)
    }

    /// The value, or `u64::MAX` for a larger one.
    pub(super) fn saturated(&mut self, limbs: &[Value]) -> Value {
        let [low, high @ ..] = limbs else { return self.zero() };
        if high.is_empty() {
            return *low;
        }
        let any = self.any(high);
        let large = self.is(IntCC::NotEqual, any, 0);
        let max = self.int(u64::MAX);
        self.b.ins().select(large, max, *low)
    }

    /// Shifts left by a constant, into another width.
    pub(super) fn shl_const(&mut self, a: &[Value], by: u32, width: u16) -> Vec<Value> {
        let (skip, rest) = ((by / 64) as usize, by % 64);
        let mut shifted = Vec::new();
        for i in 0..limbs_of(width) {
            let high = i.checked_sub(skip).and_then(|i| a.get(i)).copied();
            let low = i.checked_sub(skip + 1).and_then(|i| a.get(i)).copied().filter(|_| rest > 0);
            let high = high.map(|high| self.shl(high, rest));
            let low = low.map(|low| self.shr(low, 64 - rest));
            let limb = self.joined(high, low);
            shifted.push(limb);
        }
        self.trim(shifted, width)
    }

    /// Shifts right by a constant, into another width.
    pub(super) fn shr_const(&mut self, a: &[Value], by: u32, width: u16) -> Vec<Value> {
        let (skip, rest) = ((by / 64) as usize, by % 64);
        let mut shifted = Vec::new();
        for i in 0..limbs_of(width) {
            let low = a.get(i + skip).copied().map(|low| self.shr(low, rest));
            let high = a.get(i + skip + 1).copied().filter(|_| rest > 0);
            let high = high.map(|high| self.shl(high, 64 - rest));
            let limb = self.joined(high, low);
            shifted.push(limb);
        }
        self.trim(shifted, width)
    }

    fn joined(&mut self, a: Option<Value>, b: Option<Value>) -> Value {
        match (a, b) {
            (Some(a), Some(b)) => self.b.ins().bor(a, b),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => self.zero(),
        }
    }

    /// Shifts by a number of bits that is known at run time.
    pub(super) fn shift(
        &mut self,
        a: &[Value],
        by: Value,
        width: u16,
        left: bool,
        signed: bool,
    ) -> Vec<Value> {
        let [limb] = a else {
            let function = match (left, signed) {
                (true, _) => calls::shl as *const (),
                (false, false) => calls::shr as *const (),
                (false, true) => calls::sar as *const (),
            };
            return self.wide(function, a, by, width);
        };
        let inside = self.is(IntCC::UnsignedLessThan, by, width.into());
        let shifted = if left {
            let shifted = self.b.ins().ishl(*limb, by);
            self.and_const(shifted, top_mask(width))
        } else if signed {
            let up = u32::from(64 - width);
            let (high, most) = (self.shl(*limb, up), self.int(63));
            let bits = self.int(up.into());
            let wide = self.b.ins().sshr(high, bits);
            let by = self.b.ins().select(inside, by, most);
            let shifted = self.b.ins().sshr(wide, by);
            return vec![self.and_const(shifted, top_mask(width))];
        } else {
            self.b.ins().ushr(*limb, by)
        };
        let zero = self.zero();
        vec![self.b.ins().select(inside, shifted, zero)]
    }

    /// Extends with the sign.
    pub(super) fn sign_extend(&mut self, a: &[Value], from: u16, to: u16) -> Vec<Value> {
        let low = self.resize(a, to);
        if to <= from {
            return low;
        }
        let (negative, zeros) = (self.is_negative(a, from), self.zeros(to));
        let high = self.constant(&Bits::ones(to).shl(from.into()));
        let fill = self.choose(negative, &high, &zeros);
        self.each(&low, &fill, |e, a, b| e.b.ins().bor(a, b))
    }

    /// Replaces bits `lo..=hi`.
    pub(super) fn with_slice(
        &mut self,
        a: &[Value],
        hi: u16,
        lo: u16,
        part: &[Value],
        width: u16,
    ) -> Vec<Value> {
        let mask = Bits::ones(hi - lo + 1).resize(width).shl(lo.into());
        let keep = self.constant(&mask.not());
        let kept = self.each(a, &keep, |e, a, b| e.b.ins().band(a, b));
        let moved = self.shl_const(part, lo.into(), width);
        self.each(&kept, &moved, |e, a, b| e.b.ins().bor(a, b))
    }
}

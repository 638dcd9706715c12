//! Values of 1 to 2,048 bits.
//!
//! A [`Bits`] is a width and that many bits, without a sign of its own: two's complement operations say so in their
//! name. Arithmetic wraps at the width; operands of one operation have the same width, except for shifts and
//! concatenation. Operands of different widths do not panic: the right one is resized to the left one.
//!
//! Up to 128 bits lie in the value itself, more on the heap; their bitwise operations and shifts are the processor's,
//! for control planes do them with each change of an entry. All other algorithms are the schoolbook's, over 64-bit
//! limbs, because this is the arithmetic that generated code is compared with.
//!
//! Invariants:
//! - `limbs` has `width / 64` elements, rounded up, least significant first;
//! - bits above the width are zero, so equal values have equal limbs.

use std::cmp::Ordering;
use std::fmt;

use smallvec::{SmallVec, smallvec};

/// Widest value, bits.
pub const MAX_WIDTH: u16 = 2048;

/// Widest value that lies in itself, bits.
const INLINE: u16 = 128;

/// A value of a fixed width.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Bits {
    width: u16,
    limbs: SmallVec<[u64; 2]>,
}

impl Bits {
    /// Returns zero. Widths above [`MAX_WIDTH`] are reduced to it, here and in all constructors.
    pub fn zero(width: u16) -> Self {
        if width <= INLINE {
            return Self::inline(width, 0);
        }
        let width = width.min(MAX_WIDTH);
        Self { width, limbs: smallvec![0; usize::from(width).div_ceil(64)] }
    }

    /// The low bits of `value`, no more than [`INLINE`].
    fn inline(width: u16, value: u128) -> Self {
        let width = width.min(INLINE);
        let value = if width < INLINE { value & ((1 << width) - 1) } else { value };
        let limbs = [value as u64, (value >> 64) as u64];
        Self { width, limbs: SmallVec::from_buf_and_len(limbs, usize::from(width).div_ceil(64)) }
    }

    /// Returns the value with all bits set.
    pub fn ones(width: u16) -> Self {
        Self::zero(width).not()
    }

    /// Returns the low `width` bits of `value`.
    pub fn from_u64(width: u16, value: u64) -> Self {
        Self::from_u128(width, value.into())
    }

    /// Returns the low `width` bits of `value`.
    pub fn from_u128(width: u16, value: u128) -> Self {
        if width <= INLINE {
            return Self::inline(width, value);
        }
        let mut bits = Self::zero(width);
        for (limb, part) in bits.limbs.iter_mut().zip([value as u64, (value >> 64) as u64]) {
            *limb = part;
        }
        bits.trimmed()
    }

    /// Returns one bit.
    pub fn from_bool(value: bool) -> Self {
        Self::from_u64(1, value.into())
    }

    /// Returns the low `width` bits of a number given as 64-bit limbs, least significant first.
    pub fn from_limbs(width: u16, limbs: &[u64]) -> Self {
        let mut bits = Self::zero(width);
        bits.limbs.iter_mut().zip(limbs).for_each(|(to, from)| *to = *from);
        bits.trimmed()
    }

    /// Returns the low `width` bits of a big-endian number.
    pub fn from_bytes(width: u16, bytes: &[u8]) -> Self {
        let mut bits = Self::zero(width);
        for (limb, chunk) in bits.limbs.iter_mut().zip(bytes.rchunks(8)) {
            *limb = chunk.iter().fold(0, |limb, byte| limb << 8 | u64::from(*byte));
        }
        bits.trimmed()
    }

    /// Returns the value as a big-endian number of `width / 8` bytes, rounded up.
    pub fn to_bytes(&self) -> Vec<u8> {
        let bytes = self.limbs.iter().rev().flat_map(|limb| limb.to_be_bytes());
        let len = usize::from(self.width).div_ceil(8);
        bytes.skip(self.limbs.len() * 8 - len).collect()
    }

    /// Width, bits.
    pub fn width(&self) -> u16 {
        self.width
    }

    /// The 64-bit limbs, least significant first.
    pub fn limbs(&self) -> &[u64] {
        &self.limbs
    }

    /// Returns whether all bits are zero.
    pub fn is_zero(&self) -> bool {
        self.limbs.iter().all(|limb| *limb == 0)
    }

    /// Returns bit `i`, 0 being the least significant; false beyond the width.
    pub fn bit(&self, i: u16) -> bool {
        self.limbs.get(usize::from(i / 64)).is_some_and(|limb| limb >> (i % 64) & 1 == 1)
    }

    /// The most significant bit: the sign in two's complement.
    pub fn is_negative(&self) -> bool {
        self.width > 0 && self.bit(self.width - 1)
    }

    /// Returns the low 64 bits.
    pub fn low_u64(&self) -> u64 {
        self.limbs.first().copied().unwrap_or(0)
    }

    /// Returns the low 128 bits.
    pub fn low_u128(&self) -> u128 {
        u128::from(self.low_u64()) | u128::from(self.limbs.get(1).copied().unwrap_or(0)) << 64
    }

    /// Returns the value, or `u64::MAX` for a larger one.
    pub fn saturating_u64(&self) -> u64 {
        match self.limbs.get(1..).unwrap_or_default().iter().any(|limb| *limb != 0) {
            true => u64::MAX,
            false => self.low_u64(),
        }
    }

    /// Truncates or extends with zeros.
    pub fn resize(&self, width: u16) -> Self {
        if width <= INLINE {
            return Self::inline(width, self.low_u128());
        }
        let mut bits = Self::zero(width);
        for (to, from) in bits.limbs.iter_mut().zip(&self.limbs) {
            *to = *from;
        }
        bits.trimmed()
    }

    /// Truncates or extends with the sign.
    pub fn sign_extend(&self, width: u16) -> Self {
        if self.is_negative() && width > self.width {
            return Self::ones(width).shl(self.width.into()).or(&self.resize(width));
        }
        self.resize(width)
    }

    /// Bitwise complement.
    pub fn not(&self) -> Self {
        if self.width <= INLINE {
            return Self::inline(self.width, !self.low_u128());
        }
        let limbs = self.limbs.iter().map(|limb| !limb).collect();
        Self { width: self.width, limbs }.trimmed()
    }

    /// Bitwise conjunction.
    pub fn and(&self, other: &Self) -> Self {
        self.each(other, |a, b| a & b)
    }

    /// Bitwise disjunction.
    pub fn or(&self, other: &Self) -> Self {
        self.each(other, |a, b| a | b)
    }

    /// Bitwise exclusive or.
    pub fn xor(&self, other: &Self) -> Self {
        self.each(other, |a, b| a ^ b)
    }

    /// Sum, and the carry out of the most significant bit.
    pub fn carrying_add(&self, other: &Self) -> (Self, bool) {
        let mut sum = self.clone();
        let carry = sum.add_in_place(&other.resize(self.width));
        (sum, carry)
    }

    /// Adds a value of the same width; returns the carry.
    fn add_in_place(&mut self, other: &Self) -> bool {
        let mut carry = false;
        for (to, b) in self.limbs.iter_mut().zip(&other.limbs) {
            let (partial, first) = to.overflowing_add(*b);
            let (total, second) = partial.overflowing_add(carry.into());
            (*to, carry) = (total, first || second);
        }
        let spare = self.width % 64;
        if spare != 0 {
            carry = self.limbs.last().is_some_and(|limb| limb >> spare != 0);
        }
        self.trim();
        carry
    }

    /// Sum.
    pub fn add(&self, other: &Self) -> Self {
        self.carrying_add(other).0
    }

    /// Difference.
    pub fn sub(&self, other: &Self) -> Self {
        self.add(&other.resize(self.width).neg())
    }

    /// Two's complement negation.
    pub fn neg(&self) -> Self {
        self.not().add(&Self::from_u64(self.width, 1))
    }

    /// Product.
    pub fn mul(&self, other: &Self) -> Self {
        let mut product = Self::zero(self.width);
        for (i, a) in self.limbs.iter().enumerate() {
            let mut carry = 0;
            for (to, b) in product.limbs.iter_mut().skip(i).zip(&other.limbs) {
                let wide = u128::from(*a) * u128::from(*b) + u128::from(*to) + carry;
                *to = wide as u64;
                carry = wide >> 64;
            }
            if let Some(to) = product.limbs.get_mut(i + other.limbs.len()) {
                *to = carry as u64;
            }
        }
        product.trimmed()
    }

    /// Unsigned quotient and remainder. Division by zero gives all ones and the dividend.
    pub fn div_rem(&self, divisor: &Self) -> (Self, Self) {
        let divisor = divisor.resize(self.width);
        if divisor.is_zero() {
            return (Self::ones(self.width), self.clone());
        }
        if *self < divisor {
            return (Self::zero(self.width), self.clone());
        }
        let negative = divisor.neg();
        let (mut quotient, mut rest) = (Self::zero(self.width), Self::zero(self.width));
        for i in (0..self.width).rev() {
            // The remainder is below the divisor, so that doubling it loses a bit only if it then exceeds the divisor.
            let lost = rest.double(self.bit(i));
            if lost || rest >= divisor {
                rest.add_in_place(&negative);
                if let Some(limb) = quotient.limbs.get_mut(usize::from(i / 64)) {
                    *limb |= 1 << (i % 64);
                }
            }
        }
        (quotient, rest)
    }

    /// Shifts left; bits beyond the width are lost.
    pub fn shl(&self, by: u64) -> Self {
        if self.width <= INLINE {
            let by = u32::try_from(by).unwrap_or(u32::MAX);
            return Self::inline(self.width, self.low_u128().checked_shl(by).unwrap_or(0));
        }
        let mut bits = Self::zero(self.width);
        let Some((limbs, rest)) = self.split(by) else { return bits };
        for i in limbs..bits.limbs.len() {
            let high = self.limbs.get(i - limbs).copied().unwrap_or(0) << rest;
            let low = match i.checked_sub(limbs + 1).and_then(|i| self.limbs.get(i)) {
                Some(limb) if rest > 0 => limb >> (64 - rest),
                _ => 0,
            };
            if let Some(to) = bits.limbs.get_mut(i) {
                *to = high | low;
            }
        }
        bits.trimmed()
    }

    /// Shifts right, filling with zeros.
    pub fn shr(&self, by: u64) -> Self {
        if self.width <= INLINE {
            let by = u32::try_from(by).unwrap_or(u32::MAX);
            return Self::inline(self.width, self.low_u128().checked_shr(by).unwrap_or(0));
        }
        let mut bits = Self::zero(self.width);
        let Some((limbs, rest)) = self.split(by) else { return bits };
        for (i, to) in bits.limbs.iter_mut().enumerate() {
            let low = self.limbs.get(i + limbs).copied().unwrap_or(0) >> rest;
            let high = match self.limbs.get(i + limbs + 1) {
                Some(limb) if rest > 0 => limb << (64 - rest),
                _ => 0,
            };
            *to = high | low;
        }
        bits
    }

    /// Shifts right, filling with the sign.
    pub fn sar(&self, by: u64) -> Self {
        match self.is_negative() {
            true => self.not().shr(by).not(),
            false => self.shr(by),
        }
    }

    /// Compares as two's complement numbers.
    pub fn cmp_signed(&self, other: &Self) -> Ordering {
        match (self.is_negative(), other.is_negative()) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            _ => self.cmp(other),
        }
    }

    /// Sum, at most all ones.
    pub fn saturating_add(&self, other: &Self) -> Self {
        match self.carrying_add(other) {
            (sum, false) => sum,
            (_, true) => Self::ones(self.width),
        }
    }

    /// Difference, at least zero.
    pub fn saturating_sub(&self, other: &Self) -> Self {
        match *self < other.resize(self.width) {
            true => Self::zero(self.width),
            false => self.sub(other),
        }
    }

    /// Two's complement sum, clamped to the smallest and the largest number.
    pub fn saturating_add_signed(&self, other: &Self) -> Self {
        let sum = self.add(other);
        match self.is_negative() == other.is_negative() && sum.is_negative() != self.is_negative() {
            true => Self::extreme(self.width, self.is_negative()),
            false => sum,
        }
    }

    /// Two's complement difference, clamped to the smallest and the largest number.
    pub fn saturating_sub_signed(&self, other: &Self) -> Self {
        let difference = self.sub(other);
        match self.is_negative() != other.is_negative() && difference.is_negative() != self.is_negative() {
            true => Self::extreme(self.width, self.is_negative()),
            false => difference,
        }
    }

    /// Returns bits `lo..=hi`; bits beyond the width read as zero.
    pub fn slice(&self, hi: u16, lo: u16) -> Self {
        self.shr(lo.into()).resize((hi.saturating_add(1)).saturating_sub(lo))
    }

    /// Returns the value with bits `lo..=hi` replaced by `part`.
    pub fn with_slice(&self, hi: u16, lo: u16, part: &Self) -> Self {
        let width = hi.saturating_add(1).saturating_sub(lo);
        let mask = Self::ones(width).resize(self.width).shl(lo.into());
        let part = part.resize(width).resize(self.width).shl(lo.into());
        self.and(&mask.not()).or(&part)
    }

    /// Returns `self` followed by `low`.
    pub fn concat(&self, low: &Self) -> Self {
        let width = self.width.saturating_add(low.width);
        self.resize(width).shl(low.width.into()).or(&low.resize(width))
    }

    /// Parses a decimal or, after `0x`, hexadecimal number; `None` if it is not one or does not fit.
    pub fn parse(width: u16, text: &str) -> Option<Self> {
        let (digits, radix) = match text.strip_prefix("0x") {
            Some(digits) => (digits, 16),
            None => (text, 10),
        };
        if digits.is_empty() || width > MAX_WIDTH {
            return None;
        }
        // Eight spare bits hold the overflow of one step.
        let mut bits = Self { width: width + 8, limbs: smallvec![0; usize::from(width + 8).div_ceil(64)] };
        let radix_bits = Self { width: width + 8, ..bits.small(radix) };
        for digit in digits.chars() {
            let digit = bits.small(digit.to_digit(radix as u32)?.into());
            bits = Self { width: width + 8, ..bits.mul_wide(&radix_bits) }.add_wide(&digit);
            if (width..width + 8).any(|i| bits.bit(i)) {
                return None;
            }
        }
        Some(bits.resize(width))
    }

    /// Shifts left by one, with a new lowest bit; returns the bit that is lost.
    fn double(&mut self, low: bool) -> bool {
        let lost = self.is_negative();
        let mut carry = u64::from(low);
        for limb in &mut self.limbs {
            (*limb, carry) = (*limb << 1 | carry, *limb >> 63);
        }
        self.trim();
        lost
    }

    fn small(&self, value: u64) -> Self {
        let mut limbs: SmallVec<[u64; 2]> = smallvec![0; self.limbs.len()];
        if let Some(limb) = limbs.first_mut() {
            *limb = value;
        }
        Self { width: self.width, limbs }
    }

    /// Product by one limb, at a width that may exceed [`MAX_WIDTH`].
    fn mul_wide(&self, other: &Self) -> Self {
        let (factor, mut carry) = (u128::from(other.low_u64()), 0);
        let mut limbs = self.limbs.clone();
        for limb in &mut limbs {
            let wide = u128::from(*limb) * factor + carry;
            *limb = wide as u64;
            carry = wide >> 64;
        }
        Self { width: self.width, limbs }.trimmed()
    }

    /// Sum with one limb, at a width that may exceed [`MAX_WIDTH`].
    fn add_wide(&self, other: &Self) -> Self {
        let (mut limbs, mut carry) = (self.limbs.clone(), other.low_u64());
        for limb in &mut limbs {
            let (sum, overflow) = limb.overflowing_add(carry);
            (*limb, carry) = (sum, overflow.into());
        }
        Self { width: self.width, limbs }.trimmed()
    }

    fn extreme(width: u16, negative: bool) -> Self {
        let sign = Self::from_u64(width, 1).shl(u64::from(width).saturating_sub(1));
        if negative { sign } else { sign.not() }
    }

    /// Splits a shift into limbs and bits; `None` if it shifts everything out.
    fn split(&self, by: u64) -> Option<(usize, u32)> {
        (by < u64::from(self.width)).then_some(((by / 64) as usize, (by % 64) as u32))
    }

    fn each(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        if self.width <= INLINE {
            let (a, b) = (self.low_u128(), other.low_u128());
            let limb = |at: u32| u128::from(f((a >> at) as u64, (b >> at) as u64)) << at;
            return Self::inline(self.width, limb(0) | limb(64));
        }
        let other = other.resize(self.width);
        let limbs = self.limbs.iter().zip(&other.limbs).map(|(a, b)| f(*a, *b)).collect();
        Self { width: self.width, limbs }
    }

    fn trimmed(mut self) -> Self {
        self.trim();
        self
    }

    /// Clears the bits above the width.
    fn trim(&mut self) {
        let spare = self.width % 64;
        if let Some(last) = self.limbs.last_mut().filter(|_| spare != 0) {
            *last &= (1 << spare) - 1;
        }
    }
}

/// Compares as unsigned numbers; of equal numbers the wider is greater.
impl Ord for Bits {
    fn cmp(&self, other: &Self) -> Ordering {
        let longest = self.limbs.len().max(other.limbs.len());
        let limb = |bits: &Self, i| bits.limbs.get(i).copied().unwrap_or(0);
        let order = (0..longest).rev().map(|i| limb(self, i).cmp(&limb(other, i))).find(|o| o.is_ne());
        order.unwrap_or(self.width.cmp(&other.width))
    }
}

impl PartialOrd for Bits {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Hexadecimal without leading zeros, with `0x`.
impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut limbs = self.limbs.iter().rev().skip_while(|limb| **limb == 0);
        write!(f, "0x{:x}", limbs.next().copied().unwrap_or(0))?;
        limbs.try_for_each(|limb| write!(f, "{limb:016x}"))
    }
}

impl fmt::Debug for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}w{self}", self.width)
    }
}

/// Reads `width` bits at bit `at` of a byte string, bit 0 being the most significant of the first byte. `None` if they
/// do not all lie in it.
pub fn read(bytes: &[u8], at: usize, width: u16) -> Option<Bits> {
    let end = at.checked_add(width.into())?;
    bytes.get(..end.div_ceil(8))?;
    let mut bits = Bits::zero(width);
    for position in at..end {
        let set = bytes.get(position / 8).is_some_and(|byte| byte << (position % 8) & 0x80 != 0);
        let i = end - 1 - position;
        if let Some(limb) = bits.limbs.get_mut(i / 64) {
            *limb |= u64::from(set) << (i % 64);
        }
    }
    Some(bits)
}

/// Writes a value at bit `at` of a byte string, counted as in [`read`]. Bits beyond its end are left out.
pub fn write(bytes: &mut [u8], at: usize, value: &Bits) {
    for i in 0..value.width() {
        let position = at + usize::from(i);
        if let Some(byte) = bytes.get_mut(position / 8) {
            let mask = 0x80 >> (position % 8);
            match value.bit(value.width() - 1 - i) {
                true => *byte |= mask,
                false => *byte &= !mask,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The model: a number as its bits, least significant first. Arithmetic is by hand, one bit at a time.
    fn model(bits: &Bits) -> Vec<bool> {
        (0..bits.width()).map(|i| bits.bit(i)).collect()
    }

    fn model_add(a: &[bool], b: &[bool]) -> (Vec<bool>, bool) {
        let mut carry = false;
        let sum = a.iter().zip(b).map(|(a, b)| {
            let bit = a ^ b ^ carry;
            carry = (*a && *b) || (carry && (a ^ b));
            bit
        });
        (sum.collect(), carry)
    }

    fn model_mul(a: &[bool], b: &[bool]) -> Vec<bool> {
        let mut product = vec![false; a.len()];
        for (i, _) in b.iter().enumerate().filter(|(_, bit)| **bit) {
            let shifted: Vec<bool> =
                std::iter::repeat_n(false, i).chain(a.iter().copied()).take(a.len()).collect();
            product = model_add(&product, &shifted).0;
        }
        product
    }

    /// A width, and two values of it.
    fn pair() -> impl Strategy<Value = (Bits, Bits)> {
        let width = prop_oneof![1..=130u16, Just(MAX_WIDTH), 1..=MAX_WIDTH];
        width.prop_flat_map(|width| {
            let value = prop_oneof![
                prop::collection::vec(any::<u8>(), usize::from(width).div_ceil(8)),
                Just(vec![0xff; usize::from(width).div_ceil(8)]),
                Just(vec![0]),
            ];
            (value.clone(), value)
                .prop_map(move |(a, b)| (Bits::from_bytes(width, &a), Bits::from_bytes(width, &b)))
        })
    }

    fn signed(bits: &Bits) -> i128 {
        bits.sign_extend(128).low_u128() as i128
    }

    proptest! {
        #[test]
        fn arithmetic_of_any_width((a, b) in pair()) {
            prop_assert_eq!(Bits::from_bytes(a.width(), &a.to_bytes()), a.clone());
            let (sum, carry) = a.carrying_add(&b);
            prop_assert_eq!((model(&sum), carry), model_add(&model(&a), &model(&b)));
            prop_assert_eq!(sum.sub(&b), a.clone());
            prop_assert_eq!(a.add(&a.neg()), Bits::zero(a.width()));
            prop_assert_eq!(model(&a.mul(&b)), model_mul(&model(&a), &model(&b)));
            let (quotient, rest) = a.div_rem(&b);
            if b.is_zero() {
                prop_assert_eq!((quotient, rest), (Bits::ones(a.width()), a.clone()));
            } else {
                prop_assert!(rest < b);
                prop_assert_eq!(quotient.mul(&b).add(&rest), a.clone());
                // No overflow in between: the quotient is not above the dividend.
                prop_assert!(quotient <= a);
            }
            let by_bits = model(&a).iter().rev().cmp(model(&b).iter().rev());
            prop_assert_eq!(a.cmp(&b), by_bits);
            prop_assert_eq!(a.saturating_add(&b), if carry { Bits::ones(a.width()) } else { sum });
            prop_assert_eq!(a.saturating_sub(&b), if a < b { Bits::zero(a.width()) } else { a.sub(&b) });
        }

        #[test]
        fn bits_move_as_in_the_model((a, b) in pair(), by in 0u64..2100, hi: u16, lo: u16) {
            let bits = model(&a);
            let at = |i: i64| usize::try_from(i).ok().and_then(|i| bits.get(i)).copied().unwrap_or(false);
            let all = 0..i64::from(a.width());
            prop_assert_eq!(model(&a.shl(by)), all.clone().map(|i| at(i - by as i64)).collect::<Vec<_>>());
            prop_assert_eq!(model(&a.shr(by)), all.clone().map(|i| at(i + by as i64)).collect::<Vec<_>>());
            let fill = |i: i64| if i < i64::from(a.width()) { at(i) } else { a.is_negative() };
            prop_assert_eq!(model(&a.sar(by)), all.map(|i| fill(i + by as i64)).collect::<Vec<_>>());
            let (hi, lo) = (hi % a.width(), lo % a.width());
            let (hi, lo) = (hi.max(lo), hi.min(lo));
            prop_assert_eq!(&model(&a.slice(hi, lo))[..], &bits[usize::from(lo)..=usize::from(hi)]);
            let changed = model(&a.with_slice(hi, lo, &b.slice(hi - lo, 0)));
            let expected: Vec<_> = (0..a.width()).map(|i| if (lo..=hi).contains(&i) { b.bit(i - lo) } else { a.bit(i) }).collect();
            prop_assert_eq!(changed, expected);
            if a.width() <= MAX_WIDTH / 2 {
                prop_assert_eq!(model(&a.concat(&b)), [model(&b), model(&a)].concat());
            }
            prop_assert_eq!(Bits::parse(a.width(), &a.to_string()), Some(a));
        }

        #[test]
        fn signed_numbers_agree_with_i128(width in 1u16..=127, a: i128, b: i128) {
            let of = |n: i128| Bits::from_u128(width, n as u128);
            let (a, b) = (of(a), of(b));
            let (min, max) = (-1i128 << (width - 1), (1i128 << (width - 1)) - 1);
            let clamped = |n: Option<i128>, low: bool| of(n.map_or(if low { min } else { max }, |n| n.clamp(min, max)));
            let (x, y) = (signed(&a), signed(&b));
            prop_assert_eq!(a.saturating_add_signed(&b), clamped(x.checked_add(y), x < 0));
            prop_assert_eq!(a.saturating_sub_signed(&b), clamped(x.checked_sub(y), x < 0));
            prop_assert_eq!(a.cmp_signed(&b), x.cmp(&y));
            prop_assert_eq!(signed(&a.sar(3)), x >> 3);
        }

        #[test]
        fn fields_of_packets((value, _) in pair(), mut bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0usize..200) {
            let before = bytes.clone();
            let bit = |bytes: &[u8], i: usize| bytes[i / 8] << (i % 8) & 0x80 != 0;
            let end = at + usize::from(value.width());
            if end > bytes.len() * 8 {
                prop_assert_eq!(read(&bytes, at, value.width()), None);
                return Ok(());
            }
            write(&mut bytes, at, &value);
            prop_assert_eq!(read(&bytes, at, value.width()), Some(value.clone()));
            for i in 0..bytes.len() * 8 {
                let expected = if (at..end).contains(&i) { value.bit((end - 1 - i) as u16) } else { bit(&before, i) };
                prop_assert_eq!(bit(&bytes, i), expected);
            }
        }
    }

    #[test]
    fn numbers_are_parsed_only_if_they_fit() {
        assert_eq!(Bits::parse(8, "255"), Some(Bits::from_u64(8, 255)));
        assert_eq!(Bits::parse(8, "256"), None);
        assert_eq!(Bits::parse(8, "0x1_0"), None);
        assert_eq!(Bits::parse(8, ""), None);
        assert_eq!(Bits::parse(MAX_WIDTH, &Bits::ones(MAX_WIDTH).to_string()), Some(Bits::ones(MAX_WIDTH)));
        assert_eq!(Bits::parse(64, "18446744073709551615"), Some(Bits::ones(64)));
        assert_eq!(Bits::parse(64, "18446744073709551616"), None);
    }
}

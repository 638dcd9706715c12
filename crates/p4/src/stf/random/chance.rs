//! Choices from a seed: equal seeds give equal choices.

use std::collections::BTreeMap;

use pipeline::bits::Bits;
use pipeline::ir::{Constant, Program, Type};
use pipeline::text;

/// Most constants that are kept of a width.
const CONSTANTS: usize = 64;

/// A source of choices. Values are often small, extreme, or constants that the program has.
pub(in crate::stf) struct Chance {
    seed: u64,
    constants: BTreeMap<u16, Vec<Bits>>,
}

impl Chance {
    pub(in crate::stf) fn new(program: &Program, seed: u64) -> Self {
        let mut constants: BTreeMap<u16, Vec<Bits>> = BTreeMap::new();
        // The text form writes a constant as its width, `w` and its value: `16w0x800`.
        let text = text::print(program);
        for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
            let Some((width, digits)) = word.split_once('w') else { continue };
            let Some(value) = width.parse().ok().and_then(|width| Bits::parse(width, digits)) else {
                continue;
            };
            let known = constants.entry(value.width()).or_default();
            if known.len() < CONSTANTS && !known.contains(&value) {
                known.push(value);
            }
        }
        // States of this generator that are near each other give similar first numbers.
        let mut chance = Self { seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), constants };
        (0..4).for_each(|_| _ = chance.next());
        chance
    }

    pub(super) fn next(&mut self) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.seed.rotate_left(32)
    }

    /// A number below `n`, or 0.
    pub(in crate::stf) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// True once in `n`.
    pub(super) fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(in crate::stf) fn pick<'l, T>(&mut self, list: &'l [T]) -> Option<&'l T> {
        let index = self.below(list.len());
        list.get(index)
    }

    /// One of a few ports, among them 0, the drop port of v1model and that of the controller.
    pub(in crate::stf) fn port(&mut self) -> u32 {
        match self.below(12) {
            0 => 510,
            1 => 511,
            n => n as u32 - 2,
        }
    }

    pub(super) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mask = *self.pick(&[0, 1, 7, 255, 255]).unwrap_or(&255);
        (0..count).map(|_| self.next() as u8 & mask).collect()
    }

    pub(super) fn value(&mut self, width: u16) -> Bits {
        match self.below(8) {
            0 | 1 => Bits::from_u64(width, self.next() % 8),
            2 => Bits::ones(width).shr(self.next() % 3),
            3 => Bits::from_u64(width, 1).shl(self.next() % u64::from(width.max(1))),
            4 | 5 => {
                let known = self.constants.get(&width).cloned().unwrap_or_default();
                self.pick(&known).cloned().unwrap_or_else(|| Bits::zero(width))
            }
            _ => {
                let bytes: Vec<u8> = (0..width.div_ceil(8)).map(|_| self.next() as u8).collect();
                Bits::from_bytes(width, &bytes)
            }
        }
    }

    pub(super) fn constant(&mut self, ty: Type) -> Constant {
        Constant { ty, value: self.value(ty.width()) }
    }
}

//! Strings of bits, built from values and from bits of bytes.

use pipeline::hash::{BitString, hash};
use pipeline::ir::HashKind;

/// A string of bits, most significant first; bits behind its end are zero.
#[derive(Debug, Default)]
pub(crate) struct List {
    bytes: Vec<u8>,
    bits: usize,
}

impl List {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bits = 0;
    }

    /// Bytes; the last one is filled with zeros.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends the low `n` bits of a number, 64 at most.
    pub(crate) fn push(&mut self, value: u64, n: u32) {
        if n == 0 {
            return;
        }
        let mut aligned = value << (64 - n);
        let mut left = n;
        let used = (self.bits % 8) as u32;
        self.bits += n as usize;
        if used > 0 {
            if let Some(last) = self.bytes.last_mut() {
                *last |= (aligned >> 56 >> used) as u8;
            }
            let taken = left.min(8 - used);
            aligned = aligned.checked_shl(taken).unwrap_or(0);
            left -= taken;
        }
        let whole = left.div_ceil(8) as usize;
        self.bytes.extend_from_slice(aligned.to_be_bytes().get(..whole).unwrap_or_default());
    }

    /// Appends `bits` bits that begin at bit `at` of a byte string which has them.
    pub(crate) fn push_bits(&mut self, source: &[u8], at: usize, bits: usize) {
        if self.bits.is_multiple_of(8) && at.is_multiple_of(8) && bits.is_multiple_of(8) {
            let start = at / 8;
            self.bytes.extend_from_slice(source.get(start..start + bits / 8).unwrap_or_default());
            self.bits += bits;
            return;
        }
        let (mut at, end) = (at, at + bits);
        while at < end {
            // Up to the end of a byte, then whole bytes.
            let n = (8 - at % 8).min(end - at);
            let byte = source.get(at / 8).copied().unwrap_or(0);
            let part = byte << (at % 8) >> (8 - n);
            self.push(part.into(), n as u32);
            at += n;
        }
    }

    /// The hash of the string.
    pub(crate) fn hash(&self, kind: HashKind) -> u64 {
        match kind {
            HashKind::Csum16 => packet::checksum::Sum::of(&self.bytes).finish().into(),
            HashKind::Identity => {
                let at = self.bits.saturating_sub(64);
                (at..self.bits).fold(0, |number, i| {
                    let bit = self.bytes.get(i / 8).is_some_and(|byte| byte << (i % 8) & 0x80 != 0);
                    number << 1 | u64::from(bit)
                })
            }
            _ => {
                let mut string = BitString::default();
                string.extend(&self.bytes);
                hash(kind, &string)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pipeline::bits::Bits;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lists_are_bit_strings(parts in prop::collection::vec((any::<u64>(), 0u32..=64, any::<bool>()), 0..20)) {
            let (mut list, mut model) = (List::default(), BitString::default());
            for (value, n, of_bytes) in parts {
                if of_bytes {
                    let (bytes, at) = (value.to_be_bytes(), (value % 9) as usize);
                    let bits = (n as usize).min(64 - at);
                    list.push_bits(&bytes, at, bits);
                    model.push(&pipeline::bits::read(&bytes, at, bits as u16).unwrap());
                } else {
                    list.push(if n == 64 { value } else { value & ((1 << n) - 1) }, n);
                    model.push(&Bits::from_u64(n as u16, value));
                }
            }
            prop_assert_eq!(list.bytes(), model.bytes());
            for kind in HashKind::ALL {
                prop_assert_eq!(list.hash(*kind), hash(*kind, &model));
            }
        }
    }
}

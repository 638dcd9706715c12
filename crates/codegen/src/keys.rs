//! Keys of tables as 64-bit words, in which generated code looks them up.
//!
//! Keys of up to 64 bits share words, the first one in the most significant bits. A wider one has words of its own, its
//! first bit the most significant of the first. So a prefix of the only key is a prefix of the words.

use pipeline::bits::Bits;
use pipeline::ir::{KeyMatch, Program, Table, Type};

/// Place of a key in the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed {
    /// First word.
    pub(crate) word: usize,
    /// Bits to the right of the key in its last word.
    pub(crate) shift: u32,
    /// Width of the key, bits.
    pub(crate) width: u16,
}

impl Placed {
    /// Words that the key has bits in.
    pub(crate) fn words(self) -> usize {
        super::emit::limbs_of(self.width)
    }
}

/// Places of all keys of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyLayout {
    /// In the order of the keys.
    pub(crate) keys: Vec<Placed>,
    /// Words of all keys, at least 1.
    pub(crate) words: usize,
}

/// A condition on all words: bits and which of them count.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Ternary {
    /// Bits; zero outside of the mask.
    pub(crate) value: Vec<u64>,
    /// Bits that count.
    pub(crate) mask: Vec<u64>,
}

impl KeyLayout {
    pub(crate) fn new(program: &Program, table: &Table) -> Self {
        let mut keys = Vec::new();
        let (mut words, mut free) = (0, 0);
        for key in &table.keys {
            let width = pipeline::validate::expr_type(program, &key.value).map_or(1, Type::width);
            if width > 64 {
                let count = usize::from(width.div_ceil(64));
                let shift = count as u32 * 64 - u32::from(width);
                keys.push(Placed { word: words, shift, width });
                words += count;
                free = 0;
                continue;
            }
            if free < u32::from(width) {
                words += 1;
                free = 64;
            }
            free -= u32::from(width);
            keys.push(Placed { word: words - 1, shift: free, width });
        }
        Self { keys, words: words.max(1) }
    }

    /// The condition of a table's entry; `None` if it has a range that is neither one value nor everything.
    pub(crate) fn ternary(&self, entry: &pipeline::ir::Entry) -> Option<Ternary> {
        let mut ternary = Ternary { value: vec![0; self.words], mask: vec![0; self.words] };
        for condition in &entry.matches {
            let placed = *self.keys.get(condition.key as usize)?;
            let ones = Bits::ones(placed.width);
            let (value, mask) = match &condition.is {
                KeyMatch::Exact(value) => (value.clone(), ones),
                KeyMatch::Prefix(value, len) => {
                    (value.clone(), ones.shl(u64::from(placed.width.saturating_sub(*len))))
                }
                KeyMatch::Mask(value, mask) => (value.clone(), mask.clone()),
                KeyMatch::Range(low, high) if low == high => (low.clone(), ones),
                KeyMatch::Range(low, high) if low.is_zero() && *high == ones => continue,
                KeyMatch::Range(..) => return None,
            };
            place(placed, &value, &mut ternary.value);
            place(placed, &mask, &mut ternary.mask);
        }
        Some(ternary)
    }

    /// Takes a key's value out of the words.
    pub(crate) fn value(&self, key: usize, words: &[u64]) -> Option<Bits> {
        let placed = self.keys.get(key)?;
        let own = words.get(placed.word..placed.word + placed.words())?;
        let bytes: Vec<u8> = own.iter().flat_map(|word| word.to_be_bytes()).collect();
        let whole = own.len() as u16 * 64;
        Some(Bits::from_bytes(whole, &bytes).shr(placed.shift.into()).resize(placed.width))
    }
}

/// Puts a value into its place.
fn place(placed: Placed, value: &Bits, words: &mut [u64]) {
    let whole = value.resize(placed.words() as u16 * 64).shl(placed.shift.into());
    let own = words.iter_mut().skip(placed.word).take(placed.words());
    own.zip(whole.limbs().iter().rev()).for_each(|(word, limb)| *word |= limb);
}

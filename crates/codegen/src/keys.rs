//! Keys of tables as 64-bit words, in which generated code looks them up.
//!
//! Keys of up to 64 bits share words, the first one in the most significant bits. A wider one has words of its own, its
//! first bit the most significant of the first. So a prefix of the only key is a prefix of the words.

use pipeline::bits::Bits;
use pipeline::ir::{KeyMatch, Program, Table, Type};
use smallvec::{SmallVec, smallvec};

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

/// Most conditions that one entry stands for.
pub(crate) const MOST_CONDITIONS: usize = 64;

/// Words of a key. Those of entries lie in the entry itself, where they are few: memory that is apart takes longer to
/// read than all that is done with them.
pub(crate) type Words = SmallVec<[u64; 2]>;

/// The conditions that an entry stands for: as a rule one.
pub(crate) type Ternaries = SmallVec<[Ternary; 1]>;

/// Places of all keys of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyLayout {
    /// In the order of the keys; `None` for one that has no place.
    pub(crate) keys: Vec<Option<Placed>>,
    /// Words of all keys, at least 1.
    pub(crate) words: usize,
}

/// A condition on all words: bits and which of them count.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Ternary {
    /// Bits; zero outside of the mask.
    pub(crate) value: Words,
    /// Bits that count.
    pub(crate) mask: Words,
}

impl Ternary {
    /// Adds a condition, on a key that has none yet.
    fn add(&mut self, placed: Placed, value: &Bits, mask: &Bits) {
        place(placed, value, &mut self.value);
        place(placed, mask, &mut self.mask);
    }

    /// The condition with a further one.
    fn with(&self, placed: Placed, (value, mask): &(Bits, Bits)) -> Self {
        let mut ternary = self.clone();
        ternary.add(placed, value, mask);
        ternary
    }

    /// Whether a key fulfils it.
    pub(crate) fn matches(&self, key: &[u64]) -> bool {
        key.iter().zip(self.value.iter().zip(&self.mask)).all(|(key, (value, mask))| key & mask == *value)
    }
}

/// The prefixes that together are the numbers from `low` to `high`, as values and masks.
fn prefixes(low: u64, high: u64, width: u16) -> Vec<(Bits, Bits)> {
    let (mut low, high) = (u128::from(low), u128::from(high));
    let mut found = Vec::new();
    while low <= high {
        // The largest block that begins here and does not exceed the range.
        let aligned = if low == 0 { u32::from(width) } else { low.trailing_zeros() };
        let fitting = (high - low + 1).ilog2();
        let bits = aligned.min(fitting);
        let ones = Bits::ones(width);
        found.push((Bits::from_u128(width, low), ones.shl(bits.into())));
        low += 1 << bits;
    }
    found
}

impl KeyLayout {
    /// The layout of all keys.
    pub(crate) fn new(program: &Program, table: &Table) -> Self {
        Self::of(program, table, |_| true)
    }

    /// The layout of some of the keys.
    pub(crate) fn of(program: &Program, table: &Table, has_place: impl Fn(usize) -> bool) -> Self {
        let width = |value| pipeline::validate::expr_type(program, value).map_or(1, Type::width);
        let keys = table.keys.iter().enumerate();
        Self::of_widths(keys.map(|(i, key)| has_place(i).then(|| width(&key.value))))
    }

    /// The layout of keys of these widths; one without has no place.
    pub(crate) fn of_widths(widths: impl Iterator<Item = Option<u16>>) -> Self {
        let mut keys = Vec::new();
        let (mut words, mut free) = (0, 0);
        for width in widths {
            let Some(width) = width else {
                keys.push(None);
                continue;
            };
            if width > 64 {
                let count = usize::from(width.div_ceil(64));
                let shift = count as u32 * 64 - u32::from(width);
                keys.push(Some(Placed { word: words, shift, width }));
                words += count;
                free = 0;
                continue;
            }
            if free < u32::from(width) {
                words += 1;
                free = 64;
            }
            free -= u32::from(width);
            keys.push(Some(Placed { word: words - 1, shift: free, width }));
        }
        Self { keys, words: words.max(1) }
    }

    /// The conditions that an entry stands for: a range is one for each of its prefixes. `None` if there would be more
    /// than [`MOST_CONDITIONS`], if a key wider than 64 bits has a range, or if a condition is on a key without a place.
    pub(crate) fn ternaries(&self, entry: &pipeline::ir::Entry) -> Option<Ternaries> {
        let nothing: Words = smallvec![0; self.words];
        let mut all: Ternaries = smallvec![Ternary { value: nothing.clone(), mask: nothing }];
        for condition in entry.matches.iter() {
            if matches_all(&condition.is) {
                continue;
            }
            let placed = (*self.keys.get(condition.key as usize)?)?;
            let ones = Bits::ones(placed.width);
            let (value, mask) = match &condition.is {
                KeyMatch::Exact(value) => (value, &ones),
                KeyMatch::Prefix(value, len) => {
                    (value, &ones.shl(u64::from(placed.width.saturating_sub(*len))))
                }
                KeyMatch::Mask(value, mask) => (value, mask),
                KeyMatch::Range(low, high) if low == high => (low, &ones),
                KeyMatch::Range(low, high) if placed.width <= 64 => {
                    let own = prefixes(low.low_u64(), high.low_u64(), placed.width);
                    if all.len() * own.len() > MOST_CONDITIONS {
                        return None;
                    }
                    let with = |before: &Ternary| -> Vec<_> {
                        own.iter().map(|own| before.with(placed, own)).collect()
                    };
                    all = all.iter().flat_map(with).collect();
                    continue;
                }
                KeyMatch::Range(..) => return None,
            };
            all.iter_mut().for_each(|ternary| ternary.add(placed, value, mask));
        }
        Some(all)
    }

    /// Takes a key's value out of the words.
    pub(crate) fn value(&self, key: usize, words: &[u64]) -> Option<Bits> {
        let placed = (*self.keys.get(key)?)?;
        let own = words.get(placed.word..placed.word + placed.words())?;
        let bytes: Vec<u8> = own.iter().flat_map(|word| word.to_be_bytes()).collect();
        let whole = own.len() as u16 * 64;
        Some(Bits::from_bytes(whole, &bytes).shr(placed.shift.into()).resize(placed.width))
    }
}

/// Whether a condition holds for all values.
pub(crate) fn matches_all(is: &KeyMatch) -> bool {
    match is {
        KeyMatch::Exact(_) => false,
        KeyMatch::Prefix(_, len) => *len == 0,
        KeyMatch::Mask(_, mask) => mask.is_zero(),
        KeyMatch::Range(low, high) => low.is_zero() && *high == Bits::ones(high.width()),
    }
}

/// Brings keys from the layout of all of them into that of some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Narrow {
    /// Places in the wide and in the narrow words.
    moves: Vec<(Placed, Placed)>,
    /// Narrow words.
    pub(crate) words: usize,
}

impl Narrow {
    pub(crate) fn new(wide: &KeyLayout, narrow: &KeyLayout) -> Self {
        let both = wide.keys.iter().zip(&narrow.keys);
        let moves = both.filter_map(|(wide, narrow)| Some(((*wide)?, (*narrow)?))).collect();
        Self { moves, words: narrow.words }
    }

    /// Fills narrow words, as many as there are.
    pub(crate) fn apply(&self, wide: &[u64], narrow: &mut [u64]) {
        narrow.fill(0);
        for (from, to) in &self.moves {
            if from.width > 64 {
                let count = from.words();
                let source = wide.get(from.word..from.word + count).unwrap_or_default();
                narrow.iter_mut().skip(to.word).zip(source).for_each(|(to, from)| *to = *from);
                continue;
            }
            let whole = wide.get(from.word).copied().unwrap_or(0) >> from.shift;
            let value = if from.width == 64 { whole } else { whole & ((1 << from.width) - 1) };
            narrow.iter_mut().skip(to.word).take(1).for_each(|word| *word |= value << to.shift);
        }
    }
}

/// Puts a value into its place.
fn place(placed: Placed, value: &Bits, words: &mut [u64]) {
    let whole = value.resize(placed.words() as u16 * 64).shl(placed.shift.into());
    let own = words.iter_mut().skip(placed.word).take(placed.words());
    own.zip(whole.limbs().iter().rev()).for_each(|(word, limb)| *word |= limb);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn prefixes_are_the_range(a in 0u64..200, b in 0u64..200, probe in 0u64..256) {
            let (low, high) = (a.min(b), a.max(b));
            let probe_bits = Bits::from_u64(8, probe);
            let within = prefixes(low, high, 8).iter().filter(|(value, mask)| probe_bits.and(mask) == *value).count();
            prop_assert_eq!(within, usize::from((low..=high).contains(&probe)));
        }
    }

    #[test]
    fn extreme_ranges_end() {
        assert_eq!(prefixes(0, u64::MAX, 64).len(), 1);
        assert_eq!(prefixes(1, u64::MAX, 64).len(), 64);
    }
}

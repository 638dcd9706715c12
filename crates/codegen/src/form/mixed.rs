//! A structure for all entries but a few: hosts or routes, and beside them ARP, packets for the controller, the entry
//! for what nothing else matches.
//!
//! The *main* entries are in a hash or, as prefixes of one key whose conditions are otherwise the same, in a trie. The
//! *others*, [`MOST_OTHERS`] at most, are compared one after the other: some before the main ones, some after a miss.
//!
//! Invariants: what is compared before precedes every main entry, and what is compared after; the latter is preceded by
//! every main entry, or matches no key that one of them matches. Of two main prefixes, the longer precedes. Where a
//! change would break one of these, it is refused ([`Misfit`]). What precedes what is told by main entries of each length
//! since the structure was built, those that were removed included.

use std::cmp::Reverse;
use std::ops::RangeInclusive;
use std::sync::Arc;

use hashbrown::HashMap;
use tables::{Exact, Held, Lookup, Lpm, LpmReader, MISS, Prefix};

use super::Form;
use super::structure::{Misfit, Structure, array};
use crate::keys::{KeyLayout, Placed, Ternary, Words};

/// Most entries beside the main ones.
pub(super) const MOST_OTHERS: usize = 8;
/// Longest prefix, bits.
const LONGEST: usize = 128;
/// Keys whose prefixes are looked up together.
const TOGETHER: usize = 64;

/// What main entries look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    /// They have this mask.
    Hash(Words),
    /// They are prefixes of a key, and have the same conditions on all others.
    Trie(Guard),
}

/// What prefixes of a key have in common: conditions on the bits beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Guard {
    condition: Ternary,
    key: Placed,
}

impl Guard {
    /// Whether a key of the table fulfils it.
    fn holds(&self, key: &[u64]) -> bool {
        self.condition.matches(key)
    }

    /// The prefix that a condition is, if it is as the guard says.
    fn prefix(&self, condition: &Ternary) -> Option<Prefix> {
        let (value, mask) = (beside(&condition.value, self.key), beside(&condition.mask, self.key));
        let is_guarded = mask == self.condition.mask && value == self.condition.value;
        let len = is_guarded.then(|| prefix_len(&condition.mask, self.key)).flatten()?;
        Some(Prefix::new(key_bits(&condition.value, self.key), len))
    }
}

/// The bits of a key of the table, from the most significant on.
#[inline]
fn key_bits(words: &[u64], key: Placed) -> u128 {
    let word = |i: usize| u128::from(words.get(key.word + i).copied().unwrap_or(0));
    if key.width <= 64 {
        // What other keys have in the same word goes.
        let bits = word(0) << (128 - u32::from(key.width) - key.shift);
        return bits & u128::MAX << (128 - u32::from(key.width));
    }
    word(0) << 64 | word(1)
}

/// The words without the bits of a key.
fn beside(words: &[u64], key: Placed) -> Words {
    let mut words = Words::from_slice(words);
    let own = if key.width < 64 { ((1 << key.width) - 1) << key.shift } else { u64::MAX };
    words.iter_mut().skip(key.word).take(key.words()).for_each(|word| *word &= !own);
    words
}

/// Length of the prefix that a mask selects of a key; `None` if the mask is not a prefix.
fn prefix_len(mask: &[u64], key: Placed) -> Option<u8> {
    let bits = key_bits(mask, key);
    let len = bits.leading_ones();
    let rest = bits.checked_shl(len).unwrap_or(0);
    u8::try_from(len.min(key.width.into())).ok().filter(|_| rest == 0)
}

impl Shape {
    /// The shape of all conditions but a few, given how many of them have each mask; `all` lists them. Fewer than
    /// `fewest` prefixes are no trie: it takes a mebibyte, and each fork copies it.
    pub(super) fn of<'t>(
        layout: &KeyLayout,
        masks: &HashMap<Words, usize>,
        all: impl Iterator<Item = &'t Ternary>,
        fewest: usize,
    ) -> Option<Self> {
        let total: usize = masks.values().sum();
        let is_most = |count: usize| count + MOST_OTHERS >= total && count > MOST_OTHERS;
        let most = masks.iter().max_by_key(|(_, count)| **count)?;
        if is_most(*most.1) {
            return Some(Self::Hash(most.0.clone()));
        }
        // Each place of a prefix and the mask beside it, with how many have them.
        let mut guards: HashMap<(usize, Words), usize> = HashMap::new();
        for (mask, count) in masks {
            for (i, key) in layout.keys.iter().enumerate() {
                if let Some(key) =
                    key.filter(|key| usize::from(key.width) <= LONGEST && prefix_len(mask, *key).is_some())
                {
                    *guards.entry((i, beside(mask, key))).or_default() += count;
                }
            }
        }
        let ((i, mask), count) = guards.into_iter().max_by_key(|(_, count)| *count)?;
        let key = layout.keys.get(i).copied().flatten().filter(|_| is_most(count) && count >= fewest)?;
        let mut values: HashMap<Words, usize> = HashMap::new();
        let guarded =
            all.filter(|one| beside(&one.mask, key) == mask && prefix_len(&one.mask, key).is_some());
        guarded.for_each(|one| *values.entry(beside(&one.value, key)).or_default() += 1);
        let (value, count) = values.into_iter().max_by_key(|(_, count)| *count)?;
        (is_most(count) && count >= fewest)
            .then_some(Self::Trie(Guard { condition: Ternary { value, mask }, key }))
    }

    pub(super) fn form(&self) -> Form {
        match self {
            Self::Hash(_) => Form::Exact,
            Self::Trie(_) => Form::Prefix,
        }
    }
}

/// An entry beside the main ones.
#[derive(Debug, Clone)]
struct Other {
    condition: Ternary,
    order: u32,
    handle: u32,
}

impl Other {
    fn is(&self, condition: &Ternary, order: u32) -> bool {
        self.order == order && self.condition == *condition
    }
}

/// Entries beside the main ones, by precedence.
#[derive(Debug, Clone, Default)]
struct Others {
    before: Vec<Other>,
    after: Vec<Other>,
}

impl Others {
    fn first(list: &[Other], key: &[u64]) -> Option<u32> {
        list.iter().find(|other| other.condition.matches(key)).map(|other| other.handle)
    }

    fn has(&self, condition: &Ternary, order: u32) -> bool {
        self.before.iter().chain(&self.after).any(|other| other.is(condition, order))
    }

    /// The handle of an entry that is there.
    fn handle(&mut self, condition: &Ternary, order: u32) -> Option<&mut u32> {
        let mut all = self.before.iter_mut().chain(&mut self.after);
        all.find(|other| other.is(condition, order)).map(|other| &mut other.handle)
    }

    fn remove(&mut self, condition: &Ternary, order: u32) {
        [&mut self.before, &mut self.after]
            .into_iter()
            .for_each(|list| list.retain(|other| !other.is(condition, order)));
    }
}

/// The main entries.
enum Main<const N: usize> {
    Hash { table: Exact<N>, mask: [u64; N] },
    Short { table: Lpm<1>, guard: Arc<Guard> },
    Long { table: Lpm<2>, guard: Arc<Guard> },
}

impl<const N: usize> Main<N> {
    fn new(shape: &Shape) -> Result<Self, Misfit> {
        Ok(match shape {
            Shape::Hash(mask) => {
                let mask = array(mask)?;
                Self::Hash { table: Exact::new(mask), mask }
            }
            Shape::Trie(guard) if guard.key.width <= 64 => {
                Self::Short { table: Lpm::new(guard.key.width as u8), guard: Arc::new(guard.clone()) }
            }
            Shape::Trie(guard) => {
                Self::Long { table: Lpm::new(guard.key.width as u8), guard: Arc::new(guard.clone()) }
            }
        })
    }

    /// The length of the prefix that a condition is, 0 in a hash; `None` if it is not one of a main entry.
    fn len_of(&self, condition: &Ternary) -> Option<usize> {
        match self {
            Self::Hash { mask, .. } => (condition.mask[..] == mask[..]).then_some(0),
            Self::Short { guard, .. } | Self::Long { guard, .. } => {
                guard.prefix(condition).map(|prefix| prefix.len().into())
            }
        }
    }

    /// Whether there is an entry with a condition.
    fn has(&self, condition: &Ternary) -> bool {
        match self {
            Self::Hash { table, .. } => {
                array(&condition.value).is_ok_and(|key: [u64; N]| table.get(&key).is_some())
            }
            Self::Short { table, guard } => {
                guard.prefix(condition).is_some_and(|prefix| table.get(prefix).is_some())
            }
            Self::Long { table, guard } => {
                guard.prefix(condition).is_some_and(|prefix| table.get(prefix).is_some())
            }
        }
    }

    /// Gives a handle to the entry with a condition.
    fn insert(&mut self, condition: &Ternary, handle: u32) -> Result<(), Misfit> {
        match self {
            Self::Hash { table, .. } => _ = table.insert(&array(&condition.value)?, handle)?,
            Self::Short { table, guard } => {
                _ = table.insert(guard.prefix(condition).ok_or(Misfit)?, handle)?
            }
            Self::Long { table, guard } => {
                _ = table.insert(guard.prefix(condition).ok_or(Misfit)?, handle)?
            }
        }
        Ok(())
    }

    fn remove(&mut self, condition: &Ternary) -> Result<(), Misfit> {
        match self {
            Self::Hash { table, .. } => _ = table.remove(&array(&condition.value)?),
            Self::Short { table, guard } => _ = table.remove(guard.prefix(condition).ok_or(Misfit)?)?,
            Self::Long { table, guard } => _ = table.remove(guard.prefix(condition).ok_or(Misfit)?)?,
        }
        Ok(())
    }

    /// Whether no key of a main entry fulfils a condition.
    fn is_apart(&self, condition: &Ternary) -> bool {
        let (Self::Short { guard, .. } | Self::Long { guard, .. }) = self else { return false };
        let own = guard.condition.value.iter().zip(&guard.condition.mask);
        let both = own.zip(condition.value.iter().zip(&condition.mask));
        both.into_iter().any(|((value, mask), (other, of))| (value ^ other) & mask & of != 0)
    }

    fn fork(&mut self) -> Self {
        match self {
            Self::Hash { table, mask } => Self::Hash { table: table.fork(), mask: *mask },
            Self::Short { table, guard } => Self::Short { table: table.fork(), guard: guard.clone() },
            Self::Long { table, guard } => Self::Long { table: table.fork(), guard: guard.clone() },
        }
    }
}

/// See the module.
pub(super) struct Mixed<const N: usize> {
    main: Main<N>,
    others: Arc<Others>,
    /// Whether they have changed since the last reader was made.
    has_changed: bool,
    /// For each length, the precedence of main entries since the structure was built.
    orders: Vec<Option<RangeInclusive<u32>>>,
}

impl<const N: usize> Mixed<N> {
    pub(super) fn new(shape: &Shape) -> Result<Self, Misfit> {
        let orders = vec![None; LONGEST + 1];
        Ok(Self { main: Main::new(shape)?, others: Arc::default(), has_changed: false, orders })
    }

    /// The lowest and the highest precedence of main entries.
    fn span(&self) -> Option<RangeInclusive<u32>> {
        let (low, high) = (
            self.orders.iter().flatten().map(RangeInclusive::start).min()?,
            self.orders.iter().flatten().map(RangeInclusive::end).max()?,
        );
        Some(*low..=*high)
    }

    /// Whether a main entry of a length may have a precedence.
    fn admits(&self, len: usize, order: u32) -> bool {
        let (shorter, longer) = self.orders.split_at(len.min(LONGEST));
        let mut longer = longer.iter().skip(1).flatten();
        let Others { before, after } = &*self.others;
        shorter.iter().flatten().all(|orders| *orders.end() < order)
            && longer.all(|orders| *orders.start() > order)
            && before.iter().all(|other| other.order > order)
            && after.iter().all(|other| other.order < order || self.main.is_apart(&other.condition))
    }

    fn insert_main(
        &mut self,
        condition: &Ternary,
        len: usize,
        order: u32,
        handle: u32,
    ) -> Result<(), Misfit> {
        self.main.insert(condition, handle)?;
        let orders = self.orders.get_mut(len).ok_or(Misfit)?;
        *orders = Some(match orders {
            None => order..=order,
            Some(orders) => order.min(*orders.start())..=order.max(*orders.end()),
        });
        Ok(())
    }

    fn insert_other(&mut self, condition: &Ternary, order: u32, handle: u32) -> Result<(), Misfit> {
        let span = self.span();
        if self.others() >= MOST_OTHERS {
            return Err(Misfit);
        }
        let others = Arc::make_mut(&mut self.others);
        let is_behind =
            span.as_ref().is_none_or(|span| order < *span.start()) || self.main.is_apart(condition);
        let is_ahead = span.is_none_or(|span| order > *span.end());
        let list = if is_behind && others.before.iter().all(|other| other.order > order) {
            &mut others.after
        } else if is_ahead && others.after.iter().all(|other| other.order < order) {
            &mut others.before
        } else {
            return Err(Misfit);
        };
        list.push(Other { condition: condition.clone(), order, handle });
        list.sort_by_key(|other| Reverse(other.order));
        self.has_changed = true;
        Ok(())
    }
}

impl<const N: usize> Structure for Mixed<N> {
    fn insert(&mut self, condition: &Ternary, order: u32, handle: u32) -> Result<(), Misfit> {
        // Of two equal conditions one has precedence, which main entries do not know.
        let fits = |len: &usize| self.admits(*len, order) && !self.main.has(condition);
        match self.main.len_of(condition).filter(fits) {
            Some(len) => self.insert_main(condition, len, order, handle),
            None => self.insert_other(condition, order, handle),
        }
    }

    fn fill(&mut self, entries: &mut dyn Iterator<Item = (&Ternary, u32, u32)>) -> Result<(), Misfit> {
        // The others last: then the precedence of the main ones is known. Both upwards: what precedes all routes but is
        // shorter than some is no route then, and not these.
        let mut all: Vec<_> = entries.collect();
        all.sort_by_key(|(condition, order, _)| (self.main.len_of(condition).is_none(), *order));
        all.into_iter().try_for_each(|(condition, order, handle)| self.insert(condition, order, handle))?;
        // Readers are made afterwards.
        self.has_changed = false;
        Ok(())
    }

    fn replace(&mut self, condition: &Ternary, order: u32, handle: u32) -> Result<(), Misfit> {
        if !self.others.has(condition, order) {
            return self.main.insert(condition, handle);
        }
        let old = Arc::make_mut(&mut self.others).handle(condition, order);
        old.into_iter().for_each(|old| *old = handle);
        self.has_changed = true;
        Ok(())
    }

    fn remove(&mut self, condition: &Ternary, order: u32) -> Result<(), Misfit> {
        if !self.others.has(condition, order) {
            return self.main.remove(condition);
        }
        Arc::make_mut(&mut self.others).remove(condition, order);
        self.has_changed = true;
        Ok(())
    }

    fn reader(&self) -> Arc<dyn Lookup> {
        let others = self.others.clone();
        match &self.main {
            Main::Hash { table, .. } => Arc::new(Reader { main: table.reader(), others }),
            Main::Short { table, guard } => Arc::new(Reader {
                main: Guarded::<N, 1> { guard: guard.clone(), trie: table.reader() },
                others,
            }),
            Main::Long { table, guard } => Arc::new(Reader {
                main: Guarded::<N, 2> { guard: guard.clone(), trie: table.reader() },
                others,
            }),
        }
    }

    fn others(&self) -> usize {
        self.others.before.len() + self.others.after.len()
    }

    fn needs_new_reader(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    fn fork(&mut self) -> Box<dyn Structure> {
        Box::new(Self {
            main: self.main.fork(),
            others: self.others.clone(),
            has_changed: self.has_changed,
            orders: self.orders.clone(),
        })
    }

    fn prepare(&mut self) {
        match &mut self.main {
            Main::Hash { table, .. } => table.prepare(),
            Main::Short { table, .. } => table.prepare(),
            Main::Long { table, .. } => table.prepare(),
        }
    }

    fn commit(&mut self) {
        match &mut self.main {
            Main::Hash { table, .. } => table.commit(),
            Main::Short { table, .. } => table.commit(),
            Main::Long { table, .. } => table.commit(),
        }
    }

    fn memory(&self) -> usize {
        match &self.main {
            Main::Hash { table, .. } => table.memory(),
            Main::Short { table, .. } => table.memory(),
            Main::Long { table, .. } => table.memory(),
        }
    }
}

/// Reads the main entries and the others.
struct Reader<M> {
    main: M,
    others: Arc<Others>,
}

impl<M> Reader<M> {
    /// The handle that a key finds, given that of the main entries.
    #[inline]
    fn among(&self, key: &[u64], main: impl FnOnce() -> u32) -> u32 {
        if let Some(handle) = Others::first(&self.others.before, key) {
            return handle;
        }
        match main() {
            MISS => Others::first(&self.others.after, key).unwrap_or(MISS),
            handle => handle,
        }
    }
}

impl<M: Lookup> Lookup for Reader<M> {
    fn words(&self) -> usize {
        self.main.words()
    }

    fn lookup_flat(&self, keys: &[u64], out: &mut [u32]) {
        self.main.lookup_flat(keys, out);
        for (key, out) in keys.chunks_exact(self.words()).zip(out) {
            if let Some(handle) = Others::first(&self.others.before, key) {
                *out = handle;
            } else if *out == MISS {
                *out = Others::first(&self.others.after, key).unwrap_or(MISS);
            }
        }
    }

    fn find(&self, key: &[u64]) -> u32 {
        self.among(key, || self.main.find(key))
    }

    fn find_held(&self, held: &mut Held, key: &[u64]) -> u32 {
        self.among(key, || self.main.find_held(held, key))
    }
}

/// Reads prefixes of `W` words in keys of `N` words.
struct Guarded<const N: usize, const W: usize> {
    guard: Arc<Guard>,
    trie: LpmReader<W>,
}

impl<const N: usize, const W: usize> Guarded<N, W> {
    /// The bits that prefixes are of.
    #[inline]
    fn words_of(&self, key: &[u64]) -> [u64; W] {
        let bits = key_bits(key, self.guard.key);
        let mut words = [(bits >> 64) as u64; W];
        words.iter_mut().skip(1).for_each(|word| *word = bits as u64);
        words
    }

    /// The same for a key that fulfils the guard.
    #[inline]
    fn guarded(&self, key: &[u64]) -> Option<[u64; W]> {
        (key.len() >= N && self.guard.holds(key)).then(|| self.words_of(key))
    }
}

impl<const N: usize, const W: usize> Lookup for Guarded<N, W> {
    fn words(&self) -> usize {
        N
    }

    fn lookup_flat(&self, keys: &[u64], out: &mut [u32]) {
        let mut prefixes = [[0; W]; TOGETHER];
        for (keys, out) in keys.chunks(TOGETHER * N).zip(out.chunks_mut(TOGETHER)) {
            let keys = || keys.chunks_exact(N);
            let count = keys().len().min(out.len());
            keys().zip(&mut prefixes).for_each(|(key, prefix)| *prefix = self.words_of(key));
            self.trie.lookup(prefixes.get(..count).unwrap_or_default(), out);
            for (_, out) in keys().zip(out).filter(|(key, _)| !self.guard.holds(key)) {
                *out = MISS;
            }
        }
    }

    fn find(&self, key: &[u64]) -> u32 {
        self.guarded(key).map_or(MISS, |words| self.trie.find(&words))
    }

    fn find_held(&self, held: &mut Held, key: &[u64]) -> u32 {
        self.guarded(key).map_or(MISS, |words| self.trie.find_held(held, &words))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use smallvec::smallvec;

    use super::*;

    /// Two keys in a word: 16 bits, then 32, of which prefixes are.
    fn layout() -> KeyLayout {
        KeyLayout::of_widths([Some(16), Some(32)].into_iter())
    }

    /// A condition on the first key, if it has one, and a prefix of the second.
    fn condition(first: Option<u16>, prefix: u32, len: u32) -> Ternary {
        let bits = u32::MAX.checked_shl(32 - len).unwrap_or(0);
        let (value, mask) = first.map_or((0, 0), |first| (first.into(), 0xffff));
        Ternary {
            value: smallvec![u64::from(value as u32) << 48 | u64::from(prefix & bits) << 16],
            mask: smallvec![mask << 48 | u64::from(bits) << 16],
        }
    }

    fn shape_of(all: &[(Ternary, u32, u32)]) -> Option<Shape> {
        let mut masks = HashMap::new();
        all.iter().for_each(|(one, ..)| *masks.entry(one.mask.clone()).or_default() += 1);
        Shape::of(&layout(), &masks, all.iter().map(|(one, ..)| one), 9)
    }

    fn built(all: &[(Ternary, u32, u32)]) -> Result<Box<dyn Structure>, Misfit> {
        let mut structure = super::super::structure::mixed(&shape_of(all).ok_or(Misfit)?, 1)?;
        structure.fill(&mut all.iter().map(|(one, order, handle)| (one, *order, *handle)))?;
        Ok(structure)
    }

    fn expected(all: &[(Ternary, u32, u32)], key: &[u64]) -> u32 {
        let matching = all.iter().filter(|(one, ..)| one.matches(key));
        matching.max_by_key(|(_, order, _)| *order).map_or(MISS, |(.., handle)| *handle)
    }

    fn check(reader: &dyn Lookup, all: &[(Ternary, u32, u32)], keys: &[u64]) {
        let mut found = vec![0; keys.len()];
        reader.lookup_flat(keys, &mut found);
        for (key, found) in keys.iter().zip(found) {
            assert_eq!(found, expected(all, &[*key]), "{key:x}");
            assert_eq!(reader.find(&[*key]), found, "{key:x}");
        }
    }

    /// Twenty routes behind the value 1 of the first key, the longer one before the shorter.
    fn routes() -> Vec<(Ternary, u32, u32)> {
        let route = |i: u32| {
            (condition(Some(1), i.wrapping_mul(0x0931_7a5f), i % 33), i % 33 * 1000 + i + 100_000, i)
        };
        (0..20).map(route).collect()
    }

    #[test]
    fn shapes_are_those_of_most_entries() {
        let miss = (condition(None, 0, 0), 1, 100);
        let with = |main: Vec<(Ternary, u32, u32)>, more: &[(Ternary, u32, u32)]| [&main[..], more].concat();
        let form = |all: &[(Ternary, u32, u32)]| shape_of(all).map(|shape| shape.form());
        assert_eq!(form(&with(routes(), std::slice::from_ref(&miss))), Some(Form::Prefix));
        let hosts: Vec<_> = (0..20).map(|i| (condition(None, i, 32), 7 + i, i)).collect();
        assert_eq!(form(&with(hosts.clone(), &[miss])), Some(Form::Exact));
        // Two networks of routes, and prefixes that are none.
        let other = routes().into_iter().map(|(mut one, order, handle)| {
            one.value = smallvec![one.value[0] ^ 3 << 48];
            (one, order + 1, handle + 50)
        });
        assert_eq!(form(&with(routes(), &other.collect::<Vec<_>>())), None);
        let holes = (0..20u32).map(|i| {
            let mask = smallvec![0xffff << 48 | 0x5000_0001 << i];
            (Ternary { value: smallvec![0], mask }, i, i)
        });
        assert_eq!(form(&holes.collect::<Vec<_>>()), None);
    }

    #[test]
    fn what_would_break_the_order_is_refused() {
        let mut structure = built(&routes()).unwrap();
        // A shorter prefix before longer ones, an entry in the middle of the routes, a copy of a route in it.
        assert!(structure.insert(&condition(Some(1), 0, 1), 110_500, 1).is_err());
        assert!(structure.insert(&condition(None, 0, 0), 110_000, 1).is_err());
        let (one, order, _) = &routes()[5];
        assert!(structure.insert(one, order + 1, 1).is_err());
        check(&*structure.reader(), &routes(), &[0, 1 << 48, 1 << 48 | 0x0931_7a5f << 16]);
        // With another first key it is in nobody's way.
        assert!(structure.insert(&condition(Some(2), 0, 0), 110_000, 1).is_ok());
        for i in 0..7 {
            assert!(structure.insert(&condition(Some(3 + i), 0, 0), 5, 1).is_ok());
        }
        assert!(structure.insert(&condition(Some(60), 0, 0), 5, 1).is_err(), "too many");
        // A short route that precedes all others.
        let first = (condition(Some(1), 0, 1), 500_000, 60);
        let all = [routes(), vec![first]].concat();
        check(
            &*built(&all).unwrap().reader(),
            &all,
            &[1 << 48, 1 << 48 | 0x0931_7a5f << 16, 1 << 48 | 1 << 47],
        );
        // A route that precedes what precedes all others, and one that follows it.
        let (mut structure, mut all) = (built(&routes()).unwrap(), routes());
        let more = [(None, 200_000, 50), (Some(1), 300_000, 51), (Some(1), 190_000, 52)];
        for (first, order, handle) in more {
            let one = (condition(first, handle, 32), order, handle);
            structure.insert(&one.0, order, handle).unwrap();
            all.push(one);
        }
        check(
            &*structure.reader(),
            &all,
            &[50 << 16, 1 << 48 | 50 << 16, 1 << 48 | 51 << 16, 1 << 48 | 52 << 16],
        );
    }

    type Change = (u8, Option<u16>, u32, u32, u32);

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let prefix = prop_oneof![any::<u32>(), 0u32..8, Just(0x0931_7a5f)];
        prop::collection::vec(
            (0u8..4, prop::option::weighted(0.9, 1u16..3), prefix, 0u32..=32, 0u32..1000),
            1..40,
        )
    }

    proptest! {
        #[test]
        fn lookups_are_those_of_a_list(hosts in any::<bool>(), changes in changes(), keys in prop::collection::vec((0u16..4, any::<u32>()), 20)) {
            let mut all = match hosts {
                true => (0..20).map(|i| (condition(Some(1), i % 10 * 77 + i, 32), 100_000 + i, i)).collect(),
                false => routes(),
            };
            all.push((condition(None, 0, 0), 1, 99));
            let mut structure = built(&all).unwrap();
            let mut reader = structure.reader();
            for (i, (kind, first, prefix, len, order)) in changes.into_iter().enumerate() {
                let (at, handle) = (order as usize % all.len(), 1000 + i as u32);
                match kind {
                    0 => {
                        let (one, order, _) = all.remove(at);
                        structure.remove(&one, order).unwrap();
                    }
                    1 => {
                        let (one, order, old) = &mut all[at];
                        structure.replace(one, *order, handle).unwrap();
                        *old = handle;
                    }
                    _ => {
                        // Most fit.
                        let (one, order) = (condition(first, prefix, len), 100_000 * u32::from(kind == 2) + len * 1000 + order);
                        let is_new = all.iter().all(|(_, other, _)| *other != order);
                        if is_new && structure.insert(&one, order, handle).is_ok() {
                            all.push((one, order, handle));
                        }
                    }
                }
                if i % 7 == 3 {
                    let mut fork = structure.fork();
                    fork.commit();
                    structure = fork;
                    reader = structure.reader();
                }
                if structure.needs_new_reader() {
                    reader = structure.reader();
                }
                let near = all.iter().map(|(one, ..)| one.value[0] | one.value[0] >> 9 & 0xff_0000);
                let keys: Vec<_> = near.chain(keys.iter().map(|(a, b)| u64::from(*a) << 48 | u64::from(*b) << 16)).collect();
                check(&*reader, &all, &keys);
                if all.is_empty() {
                    break;
                }
            }
        }
    }
}

//! The structures of crate `tables` under one interface, for keys of a width that is known at run time.

use std::sync::Arc;

use tables::{Classifier, Direct, Exact, Lookup, Lpm, Prefix, Rule, TableError};

use super::Form;
use super::mixed::{Mixed, Shape};
use crate::keys::Ternary;

/// A structure that changes by data.
pub(super) trait Structure: Send {
    /// Adds an entry with its precedence.
    ///
    /// # Errors
    /// It does not fit: the table needs another form.
    fn insert(&mut self, condition: &Ternary, order: u32, handle: u32) -> Result<(), Misfit>;

    /// Adds many entries to an empty structure.
    ///
    /// # Errors
    /// One of them does not fit.
    fn fill(&mut self, entries: &mut dyn Iterator<Item = (&Ternary, u32, u32)>) -> Result<(), Misfit> {
        for (condition, order, handle) in entries {
            self.insert(condition, order, handle)?;
        }
        Ok(())
    }

    /// Gives an entry that exists another handle: one store.
    fn replace(&mut self, condition: &Ternary, order: u32, handle: u32) -> Result<(), Misfit>;

    /// Removes an entry.
    fn remove(&mut self, condition: &Ternary, order: u32) -> Result<(), Misfit>;

    fn reader(&self) -> Arc<dyn Lookup>;

    /// Returns a copy whose changes are invisible to readers of this one.
    fn fork(&mut self) -> Box<dyn Structure>;

    /// Whether there has been a change, since this was last asked, that existing readers do not see: packets meet it only
    /// with a new reader.
    fn needs_new_reader(&mut self) -> bool {
        false
    }

    /// Begins to prepare it for readers again, of which there is none: as if it were a fork.
    fn prepare(&mut self);

    /// Ends the preparation.
    fn commit(&mut self);

    /// The most changes, with so many entries, that take less time to repeat than a copy takes.
    fn worth_repeating(&self, entries: usize) -> usize {
        256.max(entries / 4)
    }

    /// Whether it has outgrown its form, so that [`Structure::rebuild`] makes lookups faster.
    fn is_stale(&self) -> bool {
        false
    }

    /// Builds it anew.
    ///
    /// # Errors
    /// There is no memory: it is as before.
    fn rebuild(&mut self) -> Result<(), Misfit> {
        Ok(())
    }

    /// Entries that are compared one by one, beside those that a lookup finds at once.
    fn others(&self) -> usize {
        0
    }

    /// Bytes that readers use.
    fn memory(&self) -> usize;
}

/// An entry does not fit the structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Misfit;

impl From<TableError> for Misfit {
    fn from(_: TableError) -> Self {
        Self
    }
}

/// Makes an empty structure of a form, with keys of so many words; `mask` is what an exact one compares, `width` the
/// bits of a prefix. `None` if no structure has such keys.
pub(super) fn new(form: Form, words: usize, mask: &[u64], width: u16) -> Option<Box<dyn Structure>> {
    fn of<const N: usize>(form: Form, mask: &[u64]) -> Option<Box<dyn Structure>> {
        match form {
            Form::Exact => {
                let mask = array::<N>(mask).ok()?;
                Some(Box::new(Hash { table: Exact::new(mask), mask }))
            }
            Form::Classifier => Some(Box::new(Tree(Classifier::<N>::new()))),
            Form::Scan | Form::Prefix => None,
        }
    }
    match (form, words) {
        (Form::Prefix, 1) => Some(Box::new(Trie::<1> { table: Lpm::new(width.min(64) as u8), width })),
        (Form::Prefix, 2) => Some(Box::new(Trie::<2> { table: Lpm::new(width.min(128) as u8), width })),
        (_, 1) => of::<1>(form, mask),
        (_, 2) => of::<2>(form, mask),
        (_, 3) => of::<3>(form, mask),
        (_, 4) => of::<4>(form, mask),
        (_, 5) => of::<5>(form, mask),
        (_, 6) => of::<6>(form, mask),
        (_, 7) => of::<7>(form, mask),
        (_, 8) => of::<8>(form, mask),
        _ => None,
    }
}

/// Makes an empty array for keys of one word under a mask, if it has room for all of some conditions.
pub(super) fn direct<'t>(
    mask: &[u64],
    mut all: impl Iterator<Item = &'t Ternary>,
) -> Option<Box<dyn Structure>> {
    let &[mask] = mask else { return None };
    let table = Direct::new(mask)?;
    let fits = all.all(|condition| condition.value.first().is_some_and(|key| table.fits(*key)));
    fits.then(|| Box::new(Numbers { table, mask }) as _)
}

/// Makes an empty structure for entries of a shape beside a few others, with keys of so many words.
pub(super) fn mixed(shape: &Shape, words: usize) -> Result<Box<dyn Structure>, Misfit> {
    Ok(match words {
        1 => Box::new(Mixed::<1>::new(shape)?),
        2 => Box::new(Mixed::<2>::new(shape)?),
        3 => Box::new(Mixed::<3>::new(shape)?),
        4 => Box::new(Mixed::<4>::new(shape)?),
        5 => Box::new(Mixed::<5>::new(shape)?),
        6 => Box::new(Mixed::<6>::new(shape)?),
        7 => Box::new(Mixed::<7>::new(shape)?),
        8 => Box::new(Mixed::<8>::new(shape)?),
        _ => return Err(Misfit),
    })
}

pub(super) fn array<const N: usize>(words: &[u64]) -> Result<[u64; N], Misfit> {
    words.try_into().map_err(|_| Misfit)
}

struct Hash<const N: usize> {
    table: Exact<N>,
    mask: [u64; N],
}

impl<const N: usize> Structure for Hash<N> {
    fn insert(&mut self, condition: &Ternary, _: u32, handle: u32) -> Result<(), Misfit> {
        let key = array(&condition.value)?;
        // Of two equal conditions one has precedence, which a hash table does not know.
        if condition.mask[..] != self.mask || self.table.get(&key).is_some() {
            return Err(Misfit);
        }
        self.table.insert(&key, handle)?;
        Ok(())
    }

    fn replace(&mut self, condition: &Ternary, _: u32, handle: u32) -> Result<(), Misfit> {
        self.table.insert(&array(&condition.value)?, handle)?;
        Ok(())
    }

    fn remove(&mut self, condition: &Ternary, _: u32) -> Result<(), Misfit> {
        self.table.remove(&array(&condition.value)?);
        Ok(())
    }

    fn reader(&self) -> Arc<dyn Lookup> {
        Arc::new(self.table.reader())
    }

    fn fork(&mut self) -> Box<dyn Structure> {
        Box::new(Self { table: self.table.fork(), mask: self.mask })
    }

    fn prepare(&mut self) {
        self.table.prepare();
    }

    fn commit(&mut self) {
        self.table.commit();
    }

    fn memory(&self) -> usize {
        self.table.memory()
    }
}

/// Keys of one word that are small numbers.
struct Numbers {
    table: Direct,
    mask: u64,
}

impl Structure for Numbers {
    fn insert(&mut self, condition: &Ternary, _: u32, handle: u32) -> Result<(), Misfit> {
        let [key] = array(&condition.value)?;
        // As in a hash table.
        if condition.mask[..] != [self.mask] || self.table.get(key).is_some() {
            return Err(Misfit);
        }
        self.table.insert(key, handle)?;
        Ok(())
    }

    fn replace(&mut self, condition: &Ternary, _: u32, handle: u32) -> Result<(), Misfit> {
        let [key] = array(&condition.value)?;
        self.table.insert(key, handle)?;
        Ok(())
    }

    fn remove(&mut self, condition: &Ternary, _: u32) -> Result<(), Misfit> {
        let [key] = array(&condition.value)?;
        self.table.remove(key);
        Ok(())
    }

    fn reader(&self) -> Arc<dyn Lookup> {
        Arc::new(self.table.reader())
    }

    fn fork(&mut self) -> Box<dyn Structure> {
        Box::new(Self { table: self.table.fork(), mask: self.mask })
    }

    fn needs_new_reader(&mut self) -> bool {
        self.table.has_grown()
    }

    fn prepare(&mut self) {}

    fn commit(&mut self) {}

    fn memory(&self) -> usize {
        self.table.memory()
    }
}

struct Trie<const N: usize> {
    table: Lpm<N>,
    width: u16,
}

impl<const N: usize> Trie<N> {
    fn prefix(condition: &Ternary) -> Prefix {
        let word = |words: &[u64], i: usize| u128::from(words.get(i).copied().unwrap_or(0));
        let whole = |words: &[u64]| word(words, 0) << 64 | word(words, 1);
        Prefix::new(whole(&condition.value), whole(&condition.mask).leading_ones() as u8)
    }
}

impl<const N: usize> Structure for Trie<N> {
    fn insert(&mut self, condition: &Ternary, _: u32, handle: u32) -> Result<(), Misfit> {
        let prefix = Self::prefix(condition);
        match self.table.insert(prefix, handle)? {
            None => Ok(()),
            // No condition and a prefix of no bits are entries of their own, of which the older wins.
            Some(other) => {
                self.table.insert(prefix, other)?;
                Err(Misfit)
            }
        }
    }

    fn replace(&mut self, condition: &Ternary, _: u32, handle: u32) -> Result<(), Misfit> {
        self.table.insert(Self::prefix(condition), handle)?;
        Ok(())
    }

    fn remove(&mut self, condition: &Ternary, _: u32) -> Result<(), Misfit> {
        self.table.remove(Self::prefix(condition))?;
        Ok(())
    }

    fn reader(&self) -> Arc<dyn Lookup> {
        Arc::new(self.table.reader())
    }

    fn fork(&mut self) -> Box<dyn Structure> {
        Box::new(Self { table: self.table.fork(), width: self.width })
    }

    fn prepare(&mut self) {
        self.table.prepare();
    }

    fn commit(&mut self) {
        self.table.commit();
    }

    fn memory(&self) -> usize {
        self.table.memory()
    }
}

struct Tree<const N: usize>(Classifier<N>);

impl<const N: usize> Tree<N> {
    fn rule(condition: &Ternary, priority: u32) -> Result<Rule<N>, Misfit> {
        Ok(Rule { value: array(&condition.value)?, mask: array(&condition.mask)?, priority })
    }
}

impl<const N: usize> Structure for Tree<N> {
    fn insert(&mut self, condition: &Ternary, order: u32, handle: u32) -> Result<(), Misfit> {
        self.0.insert(&Self::rule(condition, order)?, handle)?;
        Ok(())
    }

    fn replace(&mut self, condition: &Ternary, order: u32, handle: u32) -> Result<(), Misfit> {
        self.insert(condition, order, handle)
    }

    fn fill(&mut self, entries: &mut dyn Iterator<Item = (&Ternary, u32, u32)>) -> Result<(), Misfit> {
        let rules = entries.map(|(condition, order, handle)| Ok((Self::rule(condition, order)?, handle)));
        let rules = rules.collect::<Result<Vec<_>, Misfit>>()?;
        Ok(self.0.extend(rules)?)
    }

    fn remove(&mut self, condition: &Ternary, order: u32) -> Result<(), Misfit> {
        self.0.remove(&Self::rule(condition, order)?)?;
        Ok(())
    }

    fn reader(&self) -> Arc<dyn Lookup> {
        Arc::new(self.0.reader())
    }

    fn fork(&mut self) -> Box<dyn Structure> {
        Box::new(Self(self.0.fork()))
    }

    fn prepare(&mut self) {
        self.0.prepare();
    }

    fn commit(&mut self) {
        self.0.commit();
    }

    fn worth_repeating(&self, entries: usize) -> usize {
        // A change takes 10 to 50 us, as a new rule changes many leaves.
        16.max(entries / 128)
    }

    fn is_stale(&self) -> bool {
        self.0.is_stale()
    }

    fn rebuild(&mut self) -> Result<(), Misfit> {
        Ok(self.0.rebuild()?)
    }

    fn memory(&self) -> usize {
        self.0.memory()
    }
}

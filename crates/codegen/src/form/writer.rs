//! The control side of a table: its entries, its form, and changes of both.
//!
//! Changes arrive between [`Writer::begin`] and [`Writer::finish`], which returns the reader for the next view. A
//! bundle of one change writes to the structure that packets read: one store makes it visible. Others write to one that no
//! packet reads, a spare one, a fork or a new one, which packets meet with their next view.

use std::sync::Arc;

use hashbrown::HashMap;
use pipeline::Checked;
use pipeline::ir::{ActionId, EntryResult, MatchKind, Table, TableId, Type};
use pipeline::state::{EntryId, Installed};
use tables::Lookup;

use super::mixed::Shape;
use super::order::{Order, rank};
use super::rebuild::{Log, Rebuild, Step};
use super::scan::Scan;
use super::slab::Slab;
use super::spare::Spare;
use super::structure::{self, Misfit, Structure};
use super::{FEW, Form, LARGE, Reader, WIDEST};
use crate::keys::{KeyLayout, Narrow, Placed, Ternaries, Ternary, Words, matches_all};
use crate::view::Record;

struct Entry {
    installed: Arc<Installed>,
    ternaries: Option<Ternaries>,
    handle: u32,
}

/// A structure of all entries.
struct Built {
    form: Form,
    structure: Box<dyn Structure>,
    order: Order,
    is_ordered: bool,
}

/// What notes changes of the structure, to repeat them.
struct Notes<'a> {
    log: &'a mut Log,
    spare: &'a mut Option<Spare>,
}

impl Notes<'_> {
    fn note(&mut self, step: impl Fn() -> Step) {
        self.log.note(&step);
        if self.spare.as_mut().is_some_and(|spare| !spare.note(step())) {
            *self.spare = None;
        }
    }
}

/// Fewest prefixes that make a trie with other entries beside it.
const FEWEST_PREFIXES: usize = 256;

/// A table's entries and the structure that they are in.
pub(crate) struct Writer {
    program: Checked,
    id: TableId,
    /// Places of all keys.
    wide: Arc<KeyLayout>,
    /// Places of the keys that entries have conditions on.
    layout: Arc<KeyLayout>,
    narrow: Arc<Narrow>,
    /// How many entries have a condition on each key.
    keys: Vec<usize>,
    /// How many entries have each action.
    actions: HashMap<ActionId, usize>,
    /// Width of the only key, if that is a prefix.
    prefix: Option<u16>,
    slab: Slab,
    entries: HashMap<EntryId, Entry>,
    /// How many conditions have each mask.
    masks: HashMap<Words, usize>,
    /// Entries that only a scan finds.
    odd: usize,
    /// Whether two entries had equal conditions since the table was last scanned.
    equal: bool,
    /// Whether entries that look alike, with few others, did not fit a structure for such since it was last considered.
    misfit: bool,
    form: Form,
    /// Whether the structure knows of each entry's precedence.
    is_ordered: bool,
    structure: Option<Box<dyn Structure>>,
    /// Changes that a copy of the structure has to repeat.
    log: Log,
    /// The structure that packets read before the last bundle.
    spare: Option<Spare>,
    order: Order,
    lookup: Arc<dyn Lookup>,
    /// Whether the last reader is of a large table.
    is_large: bool,
    /// Changes since it was considered which form suits the entries, and after how many it is again.
    changes: usize,
    settled: usize,
    /// Whether the bundle has one change in all.
    single: bool,
    in_place: bool,
    forked: bool,
    /// Whether the structure has to be built anew.
    stale: bool,
    /// Whether entries have conditions on keys without a place.
    misplaced: bool,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("form", &self.form).finish_non_exhaustive()
    }
}

/// The action of an entry.
fn action_of(installed: &Installed) -> Option<ActionId> {
    match &installed.entry.result {
        EntryResult::Action(call) => Some(call.action),
        _ => None,
    }
}

impl Writer {
    /// An empty table. `like`: another empty table of the program, with whose keys it shares memory if they are equal.
    pub(crate) fn new(program: &Checked, id: TableId, schema: &Table, like: Option<&Self>) -> Self {
        let keys = |writer: &Self| program.tables.get(writer.id.index()).map(|table| table.keys.as_slice());
        let (wide, layout, narrow, lookup) = match like.filter(|like| keys(like) == Some(&schema.keys)) {
            Some(like) => (like.wide.clone(), like.layout.clone(), like.narrow.clone(), like.lookup.clone()),
            None => {
                let wide = Arc::new(KeyLayout::new(program, schema));
                let layout = Arc::new(KeyLayout::of(program, schema, |_| false));
                let narrow = Arc::new(Narrow::new(&wide, &layout));
                let lookup: Arc<dyn Lookup> = Arc::new(Scan::new(layout.clone(), std::iter::empty()));
                (wide, layout, narrow, lookup)
            }
        };
        let prefix = match &schema.keys[..] {
            [key] if key.kind == MatchKind::Lpm => pipeline::validate::expr_type(program, &key.value)
                .map(Type::width)
                .filter(|width| *width <= 128),
            _ => None,
        };
        Self {
            program: program.clone(),
            id,
            wide,
            layout,
            narrow,
            keys: vec![0; schema.keys.len()],
            actions: HashMap::new(),
            prefix,
            slab: Slab::default(),
            entries: HashMap::new(),
            masks: HashMap::new(),
            odd: 0,
            equal: false,
            misfit: false,
            form: Form::Scan,
            is_ordered: false,
            structure: None,
            log: Log::default(),
            spare: None,
            order: Order::default(),
            lookup,
            is_large: false,
            changes: 0,
            settled: 0,
            single: false,
            in_place: false,
            forked: false,
            stale: false,
            misplaced: false,
        }
    }

    /// Whether it shares no keys with another one.
    pub(crate) fn is_of_other_keys(&self, other: Option<&Self>) -> bool {
        !other.is_some_and(|other| Arc::ptr_eq(&self.wide, &other.wide))
    }

    /// Words of a key of all of the table's keys.
    pub(crate) fn words(&self) -> usize {
        self.wide.words
    }

    /// Places of the keys that entries have conditions on.
    pub(crate) fn layout(&self) -> &Arc<KeyLayout> {
        &self.layout
    }

    /// For each key, whether it has a place.
    pub(crate) fn placed(&self) -> Vec<bool> {
        self.layout.keys.iter().map(Option::is_some).collect()
    }

    /// Actions of entries.
    pub(crate) fn actions(&self) -> impl Iterator<Item = ActionId> {
        self.actions.keys().copied()
    }

    pub(crate) fn form(&self) -> Form {
        self.form
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of different masks.
    pub(crate) fn masks(&self) -> usize {
        self.masks.len()
    }

    /// Entries that are compared one by one, beside those in a hash or a trie.
    pub(crate) fn others(&self) -> usize {
        self.structure.as_ref().map_or(0, |structure| structure.others())
    }

    /// Bytes that lookups read, without records.
    pub(crate) fn memory(&self) -> usize {
        self.structure.as_ref().map_or(0, |structure| structure.memory())
    }

    /// Begins a bundle; `single` if it has one change in all.
    pub(crate) fn begin(&mut self, single: bool) {
        (self.single, self.in_place, self.forked) = (single, single, false);
    }

    /// Adds an entry.
    pub(crate) fn add(&mut self, installed: &Arc<Installed>, record: Record) {
        let handle = self.store(record);
        self.count_keys(installed, true);
        self.count_action(installed, true);
        let ternaries = self.layout.ternaries(&installed.entry);
        self.count(ternaries.as_deref(), true);
        if self.insert(installed, ternaries.as_deref(), handle).is_err() {
            self.stale = true;
        }
        self.entries.insert(installed.id, Entry { installed: installed.clone(), ternaries, handle });
    }

    /// Replaces an entry by one with the same conditions and priority. Returns the handle that previous views may use.
    pub(crate) fn modify(&mut self, installed: &Arc<Installed>, record: Record) -> Option<u32> {
        let handle = self.store(record);
        let Some(entry) = self.entries.get_mut(&installed.id) else { return Some(handle) };
        let before = std::mem::replace(&mut entry.installed, installed.clone());
        let old = std::mem::replace(&mut entry.handle, handle);
        // Lent for the time in which the structure needs all of the writer.
        let ternaries = entry.ternaries.take();
        if action_of(&before) != action_of(installed) {
            self.count_action(&before, false);
            self.count_action(installed, true);
        }
        let order = self.order.get(rank(installed)).unwrap_or(0);
        if let Some((structure, mut notes)) = self.writable(ternaries.as_deref().map_or(0, <[_]>::len)) {
            let mut all = ternaries.iter().flatten();
            let done = all.try_for_each(|ternary| {
                notes.note(|| Step::Replace(ternary.clone(), order, handle));
                structure.replace(ternary, order, handle)
            });
            self.stale |= done.is_err();
        }
        if let Some(entry) = self.entries.get_mut(&installed.id) {
            entry.ternaries = ternaries;
        }
        Some(old)
    }

    /// Removes an entry. Returns the handle that previous views may use.
    pub(crate) fn remove(&mut self, id: EntryId) -> Option<u32> {
        let entry = self.entries.remove(&id)?;
        self.count_keys(&entry.installed, false);
        self.count_action(&entry.installed, false);
        self.count(entry.ternaries.as_deref(), false);
        if self.take(&entry.installed, entry.ternaries.as_deref()).is_err() {
            self.stale = true;
        }
        Some(entry.handle)
    }

    /// Stores a record. Packets of earlier views do not have a chunk that it begins, and must not meet its handle.
    fn store(&mut self, record: Record) -> u32 {
        let (handle, grown) = self.slab.insert(record);
        self.in_place &= !grown;
        handle
    }

    /// Frees a handle and its record, which no reader can use any more.
    pub(crate) fn release(&mut self, handle: u32) {
        self.slab.release(handle);
    }

    /// Frees what is kept for the next bundle if none has come since the last call.
    pub(crate) fn tidy(&mut self) {
        let idle = |spare: &mut Spare| std::mem::replace(&mut spare.is_idle, true);
        self.spare.take_if(idle);
    }

    fn count_keys(&mut self, installed: &Installed, added: bool) {
        for condition in installed.entry.matches.iter().filter(|condition| !matches_all(&condition.is)) {
            let key = condition.key as usize;
            let Some(count) = self.keys.get_mut(key) else { continue };
            *count = if added { *count + 1 } else { count.saturating_sub(1) };
            self.misplaced |= added && self.layout.keys.get(key).is_some_and(Option::is_none);
        }
    }

    fn count_action(&mut self, installed: &Installed, added: bool) {
        let Some(action) = action_of(installed) else { return };
        let count = self.actions.entry(action).or_default();
        *count = if added { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            self.actions.remove(&action);
        }
    }

    /// Gives places to the keys that entries have conditions on, and to no others.
    fn place_keys(&mut self) {
        self.misplaced = false;
        let Some(schema) = self.program.tables.get(self.id.index()) else { return };
        let is_used = |key: usize| self.keys.get(key).is_some_and(|count| *count > 0);
        self.layout = Arc::new(KeyLayout::of(&self.program, schema, is_used));
        self.narrow = Arc::new(Narrow::new(&self.wide, &self.layout));
        (self.odd, self.stale) = (0, true);
        self.masks.clear();
        let mut entries = std::mem::take(&mut self.entries);
        for entry in entries.values_mut() {
            entry.ternaries = self.layout.ternaries(&entry.installed.entry);
            self.count(entry.ternaries.as_deref(), true);
        }
        self.entries = entries;
    }

    /// Ends a bundle: a reader of the entries as they are now, if that is another than before.
    pub(crate) fn finish(&mut self) -> Option<Reader> {
        self.misfit &= self.changes <= self.settled;
        // Built once more, the next change of the kind would build it again.
        self.misfit |= self.stale && self.is_ordered && self.form != Form::Classifier;
        let unused = |(placed, count): (&Option<Placed>, &usize)| placed.is_some() && *count == 0;
        let rebuilds = self.stale || self.form == Form::Scan || self.wanted() != self.form;
        if self.misplaced || rebuilds && self.layout.keys.iter().zip(&self.keys).any(unused) {
            self.place_keys();
        }
        let wanted = self.wanted();
        let must_build = self.stale || wanted != self.form || self.form == Form::Scan;
        if must_build || self.changes > self.settled {
            (self.changes, self.settled) = (0, self.entries.len());
        }
        // A classifier that is as it should be stays, unless what suits its entries more takes all of them.
        let is_sound = !self.stale && self.form == Form::Classifier;
        let better = (must_build && is_sound && !self.is_plain(wanted)).then(|| self.filled(wanted));
        match better {
            Some(Ok(built)) => self.install(built),
            None if must_build => self.build(wanted),
            better => {
                self.misfit |= better.is_some();
                let Some(structure) = &mut self.structure else { return Some(self.reader()) };
                // As a new view does not follow from every growth, it does from this one.
                let is_outgrown = !self.is_large && structure.memory() >= LARGE;
                if !structure.needs_new_reader() && !self.forked && self.in_place && !is_outgrown {
                    return None;
                }
                if self.forked {
                    structure.commit();
                }
                self.lookup = structure.reader();
            }
        }
        Some(self.reader())
    }

    /// Whether a structure that is built anew would make lookups faster.
    pub(crate) fn is_outgrown(&self) -> bool {
        self.structure.as_ref().is_some_and(|structure| structure.is_stale())
    }

    /// A copy of the structure, to be built anew and given to [`Writer::swap`], if that makes lookups faster.
    pub(crate) fn rebuild(&mut self, engine: u64) -> Option<Rebuild> {
        let structure = self.structure.as_mut().filter(|structure| structure.is_stale())?;
        Some(self.log.begin(engine, self.id, structure.fork(), self.entries.len()))
    }

    /// Puts a copy in the structure's place: a reader, if it is still of use.
    ///
    /// # Errors
    /// The copy has to catch up first, without the table.
    pub(crate) fn swap(&mut self, mut rebuild: Rebuild) -> Result<Option<Reader>, Rebuild> {
        if !self.log.hand_over(&mut rebuild) {
            return Ok(None);
        }
        if rebuild.is_behind() {
            return Err(rebuild);
        }
        self.log.end();
        let Some(structure) = rebuild.finish() else { return Ok(None) };
        self.lookup = structure.reader();
        (self.structure, self.spare) = (Some(structure), None);
        Ok(Some(self.reader()))
    }

    pub(crate) fn reader(&mut self) -> Reader {
        let is_large = self.memory() >= LARGE;
        self.is_large = is_large;
        let (lookup, records, narrow) = (self.lookup.clone(), self.slab.chunks(), self.narrow.clone());
        Reader { lookup, records, narrow, is_large, form: self.form }
    }

    /// The structure, in a fork if packets must not see the change yet, and the notes that the change goes into.
    fn writable(&mut self, pieces: usize) -> Option<(&mut Box<dyn Structure>, Notes<'_>)> {
        self.changes += 1;
        if self.stale || self.misplaced {
            return None;
        }
        // An entry of several conditions must appear as a whole.
        if (!self.in_place || pieces > 1)
            && !self.forked
            && let Some(structure) = &mut self.structure
        {
            if self.single {
                // Most follow in place, which would have a spare repeat them for nothing.
                *structure = structure.fork();
            } else {
                let spare = self.spare.take().and_then(Spare::caught_up);
                let fork = spare.unwrap_or_else(|| structure.fork());
                let before = std::mem::replace(structure, fork);
                self.spare = Some(Spare::new(before, self.lookup.clone(), self.entries.len()));
            }
            self.forked = true;
        }
        let notes = Notes { log: &mut self.log, spare: &mut self.spare };
        self.structure.as_mut().map(|structure| (structure, notes))
    }

    fn insert(
        &mut self,
        installed: &Installed,
        ternaries: Option<&[Ternary]>,
        handle: u32,
    ) -> Result<(), Misfit> {
        let rank = rank(installed);
        let order = match self.is_ordered && !self.stale {
            true => self.order.insert(rank).ok_or(Misfit)?,
            false => 0,
        };
        let writable = self.writable(ternaries.map_or(0, <[_]>::len));
        let Some((structure, mut notes)) = writable else { return Ok(()) };
        ternaries.ok_or(Misfit)?.iter().try_for_each(|ternary| {
            notes.note(|| Step::Insert(ternary.clone(), order, handle));
            structure.insert(ternary, order, handle)
        })
    }

    fn take(&mut self, installed: &Installed, ternaries: Option<&[Ternary]>) -> Result<(), Misfit> {
        let rank = rank(installed);
        let order = self.order.get(rank).unwrap_or(0);
        self.order.remove(rank);
        let writable = self.writable(ternaries.map_or(0, <[_]>::len));
        let Some((structure, mut notes)) = writable else { return Ok(()) };
        ternaries.ok_or(Misfit)?.iter().try_for_each(|ternary| {
            notes.note(|| Step::Remove(ternary.clone(), order));
            structure.remove(ternary, order)
        })
    }

    fn count(&mut self, ternaries: Option<&[Ternary]>, added: bool) {
        let Some(ternaries) = ternaries else {
            self.odd = if added { self.odd + 1 } else { self.odd.saturating_sub(1) };
            return;
        };
        for ternary in ternaries {
            match self.masks.get_mut(&ternary.mask) {
                Some(count) if added => *count += 1,
                Some(count) if *count > 1 => *count -= 1,
                Some(_) => drop(self.masks.remove(&ternary.mask)),
                None if added => drop(self.masks.insert(ternary.mask.clone(), 1)),
                None => {}
            }
        }
    }

    /// The form that suits the entries.
    fn wanted(&self) -> Form {
        let (len, built) = (self.entries.len(), self.form != Form::Scan);
        // A table whose size changes around a limit stays as it is.
        let few = if built { FEW / 2 } else { FEW };
        if self.odd > 0 || self.layout.words > WIDEST || len <= few {
            return Form::Scan;
        }
        let keeps = built && !self.stale && self.changes <= self.settled;
        match self.form {
            Form::Classifier | Form::Prefix if keeps => self.form,
            Form::Exact if keeps && self.is_ordered => self.form,
            _ if self.masks.len() == 1 && !self.equal => Form::Exact,
            _ if self.is_prefix() && !self.equal => Form::Prefix,
            _ if self.is_plain(Form::Prefix) || self.misfit => Form::Classifier,
            _ => self.shape().map_or(Form::Classifier, |shape| shape.form()),
        }
    }

    /// Whether the structure of a form has no other entries beside it.
    fn is_plain(&self, form: Form) -> bool {
        matches!(form, Form::Scan | Form::Classifier) || self.masks.len() == 1 || self.is_prefix()
    }

    /// Whether entries are prefixes of the only key.
    fn is_prefix(&self) -> bool {
        self.prefix.is_some() && self.layout.keys.iter().all(Option::is_some)
    }

    /// What nearly all entries look like, if they look alike.
    fn shape(&self) -> Option<Shape> {
        let all = self.entries.values().flat_map(|entry| entry.ternaries.iter().flatten());
        Shape::of(&self.layout, &self.masks, all, FEWEST_PREFIXES)
    }

    /// Builds a structure of all entries, in this form or in one that suits more.
    fn build(&mut self, wanted: Form) {
        (self.stale, self.forked, self.is_ordered) = (false, false, false);
        self.order = Order::default();
        (self.structure, self.spare) = (None, None);
        self.log.end();
        self.form = Form::Scan;
        if wanted == Form::Scan {
            self.equal = false;
        }
        for form in [wanted, Form::Classifier] {
            if form == Form::Scan {
                break;
            }
            if let Ok(built) = self.filled(form) {
                return self.install(built);
            }
            let is_plain = self.is_plain(form);
            self.equal |= is_plain && form != Form::Classifier;
            self.misfit |= !is_plain;
        }
        let entries = self.entries.values();
        let entries = entries.map(|entry| (entry.installed.clone(), entry.ternaries.clone(), entry.handle));
        self.lookup = Arc::new(Scan::new(self.layout.clone(), entries));
    }

    /// A structure of all entries, in a form.
    fn filled(&self, form: Form) -> Result<Built, Misfit> {
        let mask = self.masks.keys().next().map_or(&[][..], Words::as_slice);
        let is_plain = self.is_plain(form);
        let conditions = || self.entries.values().flat_map(|entry| entry.ternaries.iter().flatten());
        let direct = (is_plain && form == Form::Exact).then(|| structure::direct(mask, conditions()));
        let mut structure = match direct.flatten() {
            Some(direct) => direct,
            None if is_plain => {
                structure::new(form, self.layout.words, mask, self.prefix.unwrap_or(0)).ok_or(Misfit)?
            }
            None => structure::mixed(&self.shape().ok_or(Misfit)?, self.layout.words)?,
        };
        let is_ordered = form == Form::Classifier || !is_plain;
        let mut order = Order::default();
        if is_ordered {
            order = Order::of(self.entries.values().map(|entry| rank(&entry.installed)));
        }
        let mut all = self.entries.values().flat_map(|entry| {
            let number = order.get(rank(&entry.installed)).unwrap_or(0);
            entry.ternaries.iter().flatten().map(move |ternary| (ternary, number, entry.handle))
        });
        structure.fill(&mut all)?;
        drop(all);
        Ok(Built { form, structure, order, is_ordered })
    }

    /// Puts a structure of all entries in the place of the one before.
    fn install(&mut self, built: Built) {
        self.log.end();
        self.forked = false;
        self.lookup = built.structure.reader();
        (self.form, self.order, self.is_ordered) = (built.form, built.order, built.is_ordered);
        (self.structure, self.spare) = (Some(built.structure), None);
    }
}

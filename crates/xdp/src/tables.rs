//! The maps that a program's tables, counters and registers become.
//!
//! | keys of a table        | maps                                                                                   |
//! |------------------------|----------------------------------------------------------------------------------------|
//! | exact                  | a hash                                                                                 |
//! | exact, and one prefix  | a trie: exact keys are leading bits that each entry has whole                          |
//! | others                 | an array of masks, and a hash of entries by mask and masked key: tuple space search      |
//!
//! An entry's value is its action (4 bytes), a place for its counts (4 bytes), and the action's arguments in words. In a
//! hash by masks, two words of rank are between: the larger wins, so the order of masks does not matter, and each update
//! of a map leaves tables that are right.

use bpf::map::{Kind, Shape};
use pipeline::ir::{ActionId, CounterId, MatchKind, MeterId, Program, RegisterId, Table};
use pipeline::state::METER_WORDS;

use crate::layout::words;
use crate::types;

/// Most masks of a table; fewer if there are many such tables.
pub(crate) const MASKS: u32 = 128;
/// Most bytes of a trie's key behind its length (`LPM_DATA_SIZE_MAX`).
const TRIE_KEY: usize = 256;
/// Entries of a map for each entry of a table with ranges.
const PREFIXES_OF_RANGE: u32 = 32;
/// Most cells of all arrays together: their memory is there from the start, 16 bytes a cell for each CPU.
const CELLS: u32 = 1 << 20;
/// Most bytes of a key, of any map.
const KEY: usize = 512;

/// The construct that arrays without a map are.
pub(crate) const TOO_MANY_CELLS: &str = "more than 1,048,576 cells of counters and registers";

/// How a table is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Without keys: its default.
    Default,
    /// By equality.
    Hash,
    /// By the longest prefix.
    Trie,
    /// By masks.
    Masks,
}

/// A key's place in the key of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyPart {
    /// Index in the table.
    pub(crate) key: usize,
    /// Bits.
    pub(crate) width: u16,
    /// First byte.
    pub(crate) at: usize,
    /// Bytes: 1, 2, 4 or a multiple of 8; of a trie's prefix, as few as it needs.
    pub(crate) bytes: usize,
    /// Whether it is a trie's prefix, in network order and at the left of its bytes.
    pub(crate) prefix: bool,
}

/// A table's form and maps, by their numbers.
#[derive(Debug, Clone)]
pub(crate) struct TableForm {
    pub(crate) form: Form,
    pub(crate) keys: Vec<KeyPart>,
    /// Bytes of the keys, without a trie's length or the number of a mask; by masks a multiple of 8.
    pub(crate) key_bytes: usize,
    /// Words of the arguments of the action with the most.
    pub(crate) arguments: usize,
    /// Entries.
    pub(crate) map: Option<usize>,
    pub(crate) masks: Option<usize>,
    /// Counts of entries.
    pub(crate) counts: Option<usize>,
    /// The reason for which packets that come to the table go to the CPU; it has no maps then.
    pub(crate) refused: Option<&'static str>,
}

impl TableForm {
    /// Bytes in front of an entry's arguments.
    pub(crate) fn head(&self) -> usize {
        if self.form == Form::Masks { 24 } else { 8 }
    }
}

/// All maps of a program.
#[derive(Debug, Clone)]
pub(crate) struct Maps {
    pub(crate) shapes: Vec<Shape>,
    pub(crate) scratch: usize,
    pub(crate) ports: usize,
    pub(crate) sockets: usize,
    pub(crate) defaults: usize,
    /// Words of a default's arguments.
    pub(crate) default_arguments: usize,
    /// Most masks of a table.
    pub(crate) masks: u32,
    pub(crate) tables: Vec<TableForm>,
    /// None where there are too many cells.
    pub(crate) counters: Vec<Option<usize>>,
    pub(crate) registers: Vec<Option<usize>>,
    pub(crate) meters: Vec<Option<usize>>,
    /// The lock of registers.
    pub(crate) lock: usize,
    /// Cells that there may be besides.
    free: u32,
}

/// Bytes that a key of this width takes.
fn key_bytes(width: u16) -> usize {
    match width {
        0..=8 => 1,
        9..=16 => 2,
        17..=32 => 4,
        _ => 8 * words(width),
    }
}

/// Words of an action's arguments.
pub(crate) fn argument_words(program: &Program, action: ActionId) -> usize {
    let params = program.actions.get(action.index()).map_or(&[][..], |action| &action.params);
    params.iter().map(|param| words(param.ty.width())).sum()
}

impl Maps {
    /// The maps of a program, whose tables have at most so many masks.
    pub(crate) fn new(program: &Program, masks: u32) -> Self {
        let mut maps = Self {
            shapes: Vec::new(),
            scratch: 0,
            ports: 0,
            sockets: 0,
            defaults: 0,
            default_arguments: 0,
            masks,
            tables: Vec::new(),
            counters: Vec::new(),
            registers: Vec::new(),
            meters: Vec::new(),
            lock: 0,
            free: CELLS,
        };
        // Its size is known when the layout is.
        maps.scratch = maps.add(Kind::PerCpuArray, "mswitch_scratch", 4, 8, 1);
        maps.ports = maps.add(Kind::DevMapHash, "mswitch_ports", 4, 4, 1024);
        // Each interface's own comes in its place.
        maps.sockets = maps.add(Kind::XskMap, "mswitch_sockets", 4, 4, 1);
        for table in &program.tables {
            let form = maps.table(program, table);
            maps.default_arguments = maps.default_arguments.max(form.arguments);
            maps.tables.push(form);
        }
        let entries = (program.tables.len() as u32).max(1);
        let value = 8 + 8 * maps.default_arguments as u32;
        maps.defaults = maps.add(Kind::Hash, "mswitch_defaults", 4, value, entries);
        for counter in &program.counters {
            let map = maps.array(Kind::PerCpuArray, &counter.name, 16, counter.size);
            maps.counters.push(map);
        }
        for register in &program.registers {
            let is_narrow = register.ty.width() <= 64;
            let map = is_narrow.then(|| maps.array(Kind::Array, &register.name, 8, register.size)).flatten();
            maps.share(map);
            maps.registers.push(map);
        }
        for meter in &program.meters {
            let map = maps.array(Kind::Array, &meter.name, 8 * METER_WORDS as u32, meter.size);
            maps.share(map);
            maps.meters.push(map);
        }
        maps.lock = maps.add(Kind::Array, "mswitch_lock", 4, 8, 1);
        maps.share(Some(maps.lock));
        maps
    }

    fn add(&mut self, kind: Kind, name: &str, key: u32, value: u32, entries: u32) -> usize {
        self.shapes.push(Shape::new(kind, name, key, value, entries.max(1)));
        self.shapes.len() - 1
    }

    /// Has this process use a map's memory, too.
    fn share(&mut self, map: Option<usize>) {
        let shape = map.and_then(|map| self.shapes.get_mut(map));
        shape.into_iter().for_each(|shape| shape.is_shared = true);
    }

    /// An array, if there may be as many cells.
    fn array(&mut self, kind: Kind, name: &str, value: u32, cells: u32) -> Option<usize> {
        self.free = self.free.checked_sub(cells)?;
        Some(self.add(kind, name, 4, value, cells))
    }

    fn table(&mut self, program: &Program, table: &Table) -> TableForm {
        let profile = table.profile.and_then(|profile| program.profiles.get(profile.index()));
        let mut refused = if table.cpu {
            Some("the mark @cpu")
        } else if table.open {
            Some("actions that are defined at run time")
        } else if table.meter.is_some() {
            Some("meters of entries")
        } else if table.timeouts {
            Some("timeouts of entries")
        } else if profile.is_some_and(|profile| profile.select.is_some()) {
            Some("a selector")
        } else if table.counter.is_some() && table.size > self.free {
            Some(TOO_MANY_CELLS)
        } else {
            None
        };
        let prefixes = table.keys.iter().filter(|key| key.kind == MatchKind::Lpm).count();
        let form = match (table.keys.len(), prefixes, table.has_priority()) {
            (0, ..) => Form::Default,
            (_, 0, false) => Form::Hash,
            (_, 1, false) => Form::Trie,
            _ => Form::Masks,
        };
        // A trie's prefix is behind what has to be equal.
        let is_prefix = |key: &usize| {
            form == Form::Trie && table.keys.get(*key).is_some_and(|k| k.kind == MatchKind::Lpm)
        };
        let mut order: Vec<usize> = (0..table.keys.len()).collect();
        order.sort_by_key(|key| is_prefix(key));
        let (mut keys, mut at) = (Vec::new(), 0);
        for key in order {
            let Some(schema) = table.keys.get(key) else { continue };
            let width = types::of(program, None, &schema.value).width();
            let prefix = is_prefix(&key);
            let bytes = if prefix { usize::from(width).div_ceil(8) } else { key_bytes(width) };
            keys.push(KeyPart { key, width, at, bytes, prefix });
            at += bytes;
        }
        let most = if form == Form::Trie { TRIE_KEY } else { KEY };
        if at > most {
            refused = refused.or(Some("keys of more bits than the kernel's maps have"));
        }
        let key_bytes = if form == Form::Masks { at.next_multiple_of(8) } else { at };
        let actions = profile.map_or(&table.actions, |profile| &profile.actions);
        let actions = actions.iter().chain(&table.default_only).copied();
        let arguments = actions.map(|action| argument_words(program, action)).max().unwrap_or(0);
        let (map, masks, counts) = (None, None, None);
        let mut form = TableForm { form, keys, key_bytes, arguments, map, masks, counts, refused };
        if refused.is_some() {
            return TableForm { keys: Vec::new(), key_bytes: 0, ..form };
        }
        let value = (form.head() + 8 * arguments) as u32;
        let bytes = key_bytes as u32;
        match form.form {
            Form::Default => {}
            Form::Hash => form.map = Some(self.add(Kind::Hash, &table.name, bytes, value, table.size)),
            Form::Trie => {
                // One more: some kernels need it to replace an entry of a full trie.
                let entries = table.size.saturating_add(1);
                form.map = Some(self.add(Kind::LpmTrie, &table.name, 4 + bytes, value, entries));
            }
            Form::Masks => {
                // A range is several entries, about as many as its bits.
                let ranges = table.keys.iter().any(|key| key.kind == MatchKind::Range);
                let entries = table.size.saturating_mul(if ranges { PREFIXES_OF_RANGE } else { 1 });
                form.map = Some(self.add(Kind::Hash, &table.name, 8 + bytes, value, entries));
                form.masks = Some(self.add(Kind::Array, &table.name, 4, 8 + bytes, self.masks));
            }
        }
        if table.counter.is_some() {
            form.counts = self.array(Kind::PerCpuArray, &table.name, 16, table.size);
        }
        form
    }

    /// The map of a register array, if it has one.
    pub(crate) fn register(&self, register: RegisterId) -> Option<usize> {
        self.registers.get(register.index()).copied().flatten()
    }

    /// The map of a meter array, if it has one.
    pub(crate) fn meter(&self, meter: MeterId) -> Option<usize> {
        self.meters.get(meter.index()).copied().flatten()
    }

    /// The map of a counter array, if it has one.
    pub(crate) fn counter(&self, counter: CounterId) -> Option<usize> {
        self.counters.get(counter.index()).copied().flatten()
    }
}

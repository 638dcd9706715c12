//! A line card: a program in the kernel, its maps, and what they hold.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bpf::syscall::{self, Refused};
use bpf::{Map, Words};
use pipeline::hash;
use pipeline::ir::{CounterId, HashKind, MeterId, RegisterId, Table, TableId};
use pipeline::state::{Bundle, Change, EntryId, Installed, Rates, SharedArrays, State, meter_words};
use rustix::io::Errno;

use crate::entries::{self, EntryError};
use crate::held::{Held, NotHeld, TableMaps};
use crate::layout::word;
use crate::lower::Lowered;
use crate::note::Finished;
use crate::tables::{Form, TableForm};

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Sent to this port.
    Sent(u32),
    /// Handed to the CPU, as it came.
    Cpu,
    /// Dropped, for a reason of the program by its number, or for one behind those: the packet went nowhere, or its
    /// headers did not fit.
    Dropped(usize),
}

impl Verdict {
    pub(crate) const SENT: i32 = 1;
    pub(crate) const DROPPED: i32 = 2;
    pub(crate) const CPU: i32 = 3;
}

/// A packet that has passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// What became of it.
    pub verdict: Verdict,
    /// Its bytes.
    pub packet: Vec<u8>,
    /// Traffic class that the program chose.
    pub class: Option<u8>,
    /// Egress queue that the program chose.
    pub queue: Option<u16>,
    /// What the program says of it to the CPU, if it has handed it over finished.
    pub finished: Option<Finished>,
}

/// How interfaces tell notes of their programs ([`xsk::note`]), and the programs of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// The interface's mark.
    pub interface: u64,
    /// Number of the program, of which notes have the low 31 bits.
    pub program: u32,
}

/// Errors of cards.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// A map cannot be made.
    #[error("BPF map {name}: {errno}; programs and maps need CAP_BPF and CAP_NET_ADMIN")]
    Map {
        /// Its name.
        name: String,
        /// The kernel's error.
        errno: Errno,
    },
    /// The kernel's verifier refuses the program.
    #[error("{part}: the kernel refuses the program: {errno}\n{log}")]
    Verifier {
        /// Part of the program.
        part: String,
        /// The kernel's error.
        errno: Errno,
        /// The end of the verifier's log.
        log: String,
    },
    /// Entries that maps cannot hold.
    #[error(transparent)]
    Entries(#[from] EntryError),
    /// A map refuses an entry.
    #[error("BPF map {name}: {errno}")]
    Update {
        /// Its name.
        name: String,
        /// The kernel's error.
        errno: Errno,
    },
    /// The kernel does not take the packet.
    #[error("running the program: {0}")]
    Run(Errno),
}

/// Lines of the verifier's log that an error shows.
const LOG_LINES: usize = 12;

/// A program in the kernel, for each port that packets come from, and maps that they share.
#[derive(Debug)]
pub struct Card {
    lowered: Lowered,
    maps: Vec<Map>,
    tables: Vec<Held>,
    /// For tests: loaded programs by port.
    programs: BTreeMap<u32, OwnedFd>,
    /// Packets that have passed each CPU.
    runs: Vec<u64>,
    /// Counts that [`Card::collect`] has added so far.
    collected: HashMap<Count, (u64, u64)>,
}

/// Something that a card counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Count {
    Lookups(TableId),
    Entry(TableId, EntryId),
    Counter(CounterId, u32),
}

/// Packets that a card has got.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Figures {
    /// All.
    pub packets: u64,
    /// Those that it has sent.
    pub sent: u64,
    /// Those that it has handed to the CPU as they came.
    pub to_cpu: u64,
    /// Those that it has finished, and handed to the CPU with a note. Dropped ones with a digest are among both.
    pub finished: u64,
    /// Those that it has dropped, by the program's reasons, then by those behind them ([`Verdict::Dropped`]).
    pub dropped: Vec<u64>,
}

impl Card {
    /// Makes the maps and fills them with the entries of a state of the same program.
    ///
    /// # Errors
    /// The kernel's, and those of entries.
    pub fn new(lowered: Lowered, state: &State) -> Result<Self, CardError> {
        let mut maps = Vec::new();
        for shape in &lowered.maps.shapes {
            let name = shape.name.clone();
            maps.push(Map::new(shape.clone()).map_err(|errno| CardError::Map { name, errno })?);
        }
        let tables = lowered.maps.tables.iter().map(|_| Held::default()).collect();
        let (programs, runs, collected) = Default::default();
        let mut card = Self { lowered, maps, tables, programs, runs, collected };
        card.prepare()?;
        for i in 0..card.tables.len() {
            card.fill(state, TableId::at(i))?;
            card.set_default(state, TableId::at(i))?;
        }
        Ok(card)
    }

    fn map(&self, i: usize) -> Result<&Map, CardError> {
        self.maps.get(i).ok_or(CardError::Run(Errno::INVAL))
    }

    fn update(&self, map: usize, key: &[u8], value: &[u8]) -> Result<(), CardError> {
        let map = self.map(map)?;
        map.update(key, value).map_err(|errno| CardError::Update { name: map.shape().name.clone(), errno })
    }

    fn remove(&self, map: usize, key: &[u8]) -> Result<(), CardError> {
        let map = self.map(map)?;
        let gone = map.remove(key).map(drop);
        gone.map_err(|errno| CardError::Update { name: map.shape().name.clone(), errno })
    }

    /// Puts in what programs only read.
    fn prepare(&mut self) -> Result<(), CardError> {
        let layout = &self.lowered.layout;
        let mut value = vec![0; layout.size];
        let kinds = [HashKind::Crc16, HashKind::Crc32, HashKind::Crc32c];
        let words = kinds.into_iter().filter_map(hash::table).flatten();
        let places = value.iter_mut().skip(layout.remainders as usize);
        for (to, byte) in places.zip(words.flat_map(|word| word.to_ne_bytes())) {
            *to = byte;
        }
        let scratch = self.map(self.lowered.maps.scratch)?;
        let name = || scratch.shape().name.clone();
        scratch.update_each(&[0; 4], &value).map_err(|errno| CardError::Update { name: name(), errno })
    }

    /// Follows changes of the state.
    ///
    /// # Errors
    /// Entries that maps cannot hold; those before have been entered.
    pub fn follow(&mut self, state: &State, bundle: &Bundle) -> Result<(), CardError> {
        for change in &bundle.changes {
            match change {
                Change::Added(table, entry) | Change::Modified(table, _, entry) => {
                    self.set_entry(state, *table, entry)?;
                }
                Change::Removed(table, entry) => self.remove_entry(state, *table, entry)?,
                Change::Default(table) => self.set_default(state, *table)?,
                Change::Profile(profile) => {
                    let tables = state.program().tables.iter().enumerate();
                    let of = tables.filter(|(_, table)| table.profile == Some(*profile));
                    of.map(|(i, _)| TableId::at(i)).try_for_each(|table| self.fill(state, table))?;
                }
                // No map has them: packets that come to such constructs go to the CPU.
                Change::Group(..) | Change::Replication(..) | Change::Values(_) => {}
            }
        }
        Ok(())
    }

    fn set_default(&mut self, state: &State, table: TableId) -> Result<(), CardError> {
        let (map, most) = (self.lowered.maps.defaults, self.lowered.maps.default_arguments);
        let key = table.0.to_ne_bytes();
        match entries::default(state, table, most) {
            Some(value) => self.update(map, &key, &value),
            None => self.remove(map, &key),
        }
    }

    /// Enters all entries of a table, or their values if they are there.
    fn fill(&mut self, state: &State, table: TableId) -> Result<(), CardError> {
        let entries = state.table(table).into_iter().flat_map(|table| table.entries());
        entries.into_iter().try_for_each(|entry| self.set_entry(state, table, entry))
    }

    fn set_entry(&mut self, state: &State, id: TableId, entry: &Installed) -> Result<(), CardError> {
        // A later change of the same bundle may have removed it.
        let is_there = state.table(id).is_some_and(|table| table.get(entry.id).is_some());
        self.change(state, id, |table, form, held, maps| {
            if !is_there {
                return Ok(());
            }
            let slot = if form.counts.is_some() { held.slot(entry.id) } else { 0 };
            let value = entries::value(state, table, form, entry, slot);
            let keys = entries::keys(table, form, entry)?;
            held.set(maps, entry.id, keys, &value).map_err(|error| not_held(error, table, maps))
        })
    }

    fn remove_entry(&mut self, state: &State, id: TableId, entry: &Installed) -> Result<(), CardError> {
        self.change(state, id, |table, form, held, maps| {
            let keys = entries::keys(table, form, entry)?;
            held.remove(maps, entry.id, keys).map_err(|error| not_held(error, table, maps))
        })?;
        self.collected.remove(&Count::Entry(id, entry.id));
        let counts = self.lowered.maps.tables.get(id.index()).and_then(|form| form.counts);
        let slot = self.tables.get(id.index()).and_then(|held| held.slot_of(entry.id));
        if let (Some(counts), Some(slot)) = (counts, slot) {
            let map = self.map(counts)?;
            let cleared = map.update_each(&slot.to_ne_bytes(), &[0; 16]);
            cleared.map_err(|errno| CardError::Update { name: map.shape().name.clone(), errno })?;
            self.tables.iter_mut().skip(id.index()).take(1).for_each(|held| held.free_slot(entry.id));
        }
        Ok(())
    }

    /// Changes what a table's maps hold; nothing if it has none.
    fn change(
        &mut self,
        state: &State,
        id: TableId,
        change: impl FnOnce(&Table, &TableForm, &mut Held, &TableMaps<'_>) -> Result<(), CardError>,
    ) -> Result<(), CardError> {
        let (Some(table), Some(form), Some(held)) = (
            state.program().tables.get(id.index()),
            self.lowered.maps.tables.get(id.index()),
            self.tables.get_mut(id.index()),
        ) else {
            return Ok(());
        };
        if form.form == Form::Default && form.refused.is_none() {
            return Err(EntryError::NoKeys(table.name.clone()).into());
        }
        let Some(entries) = form.map.and_then(|map| self.maps.get(map)) else { return Ok(()) };
        let masks = form.masks.and_then(|masks| self.maps.get(masks));
        change(table, form, held, &TableMaps { entries, masks })
    }

    /// Has a state keep its registers and meters in the card's memory, which must be those of the same program. To be called before
    /// packets meet either.
    ///
    /// # Errors
    /// The kernel's.
    pub fn share(&self, state: &State) -> Result<(), CardError> {
        let words = |map: usize| {
            let map = self.map(map)?;
            let refused = |errno| CardError::Map { name: map.shape().name.clone(), errno };
            map.words().map_err(refused)
        };
        let maps = &self.lowered.maps;
        let all = |maps: &[Option<usize>]| {
            maps.iter().map(|map| map.map(words).transpose()).collect::<Result<_, _>>()
        };
        let (cells, meters) = (all(&maps.registers)?, all(&maps.meters)?);
        let shared = Shared { cells, meters, lock: words(maps.lock)? };
        state.arrays().share(Box::new(shared));
        Ok(())
    }

    /// Loads the program for packets from a port, with the sockets of its interface, by queue, for those that go to the
    /// CPU.
    ///
    /// # Errors
    /// The verifier's.
    pub fn load(&self, port: u32, sockets: BorrowedFd<'_>, mark: Mark) -> Result<OwnedFd, CardError> {
        let mut maps: Vec<i32> = self.maps.iter().map(Map::raw).collect();
        let own = maps.iter_mut().skip(self.lowered.maps.sockets).take(1);
        own.for_each(|map| *map = sockets.as_raw_fd());
        let halves = [mark.interface as u32, (mark.interface >> 32) as u32];
        let [low, high] = halves.map(u32::cast_signed);
        let program = mark.program.cast_signed() & i32::MAX;
        let code = self.lowered.code.with(&maps, &[port.cast_signed(), program, low, high]);
        syscall::load_verified(&code, "mswitch_card", false).map_err(|refused| self.refused(refused))
    }

    /// The program for packets from a port, without sockets.
    fn program(&mut self, port: u32) -> Result<BorrowedFd<'_>, CardError> {
        if !self.programs.contains_key(&port) {
            let program = self.load(port, self.map(self.lowered.maps.sockets)?.as_fd(), Mark::default())?;
            self.programs.insert(port, program);
        }
        self.programs.get(&port).map(AsFd::as_fd).ok_or(CardError::Run(Errno::NOENT))
    }

    fn refused(&self, refused: Refused) -> CardError {
        let lines: Vec<&str> = refused.log.lines().collect();
        // An instruction begins with its number.
        let number =
            |line: &&str| line.split_once(": (").and_then(|(number, _)| number.parse::<usize>().ok());
        let at = lines.iter().rev().find_map(number);
        let part = at.and_then(|at| self.lowered.code.part(at)).unwrap_or("its beginning");
        let log = lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default().join("\n");
        CardError::Verifier { part: part.into(), errno: refused.errno, log }
    }

    /// The map of interfaces by port: packets leave through those that are entered, others go to the CPU.
    ///
    /// # Errors
    /// None of a card that was made.
    pub fn interfaces(&self) -> Result<BorrowedFd<'_>, CardError> {
        self.map(self.lowered.maps.ports).map(AsFd::as_fd)
    }

    /// Sends no packets to a port any more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn disconnect(&self, port: u32) -> Result<(), CardError> {
        self.remove(self.lowered.maps.ports, &port.to_ne_bytes())
    }

    /// The program.
    pub fn lowered(&self) -> &Lowered {
        &self.lowered
    }

    /// Packets so far.
    ///
    /// # Errors
    /// The kernel's.
    pub fn figures(&self) -> Result<Figures, CardError> {
        let layout = &self.lowered.layout;
        let mut figures = Figures { dropped: vec![0; layout.reasons], ..Figures::default() };
        for value in self.scratch()? {
            figures.packets += word_at(&value, word::RUNS);
            figures.sent += word_at(&value, word::SENT);
            figures.to_cpu += word_at(&value, word::TO_CPU);
            figures.finished += word_at(&value, word::FINISHED);
            for (i, dropped) in figures.dropped.iter_mut().enumerate() {
                *dropped += word_at(&value, layout.drops + 8 * i as i16);
            }
        }
        Ok(figures)
    }

    /// Adds what the card has counted since the last call to a state's counts, of packets that it has not handed over.
    ///
    /// # Errors
    /// The kernel's.
    pub fn collect(&mut self, state: &State) -> Result<(), CardError> {
        let program = state.program();
        for (i, schema) in program.tables.iter().enumerate() {
            let id = TableId::at(i);
            let Some(table) = state.table(id) else { continue };
            let (lookups, hits) = self.since(Count::Lookups(id), self.lookups(id)?);
            table.counts().add(lookups, hits);
            if schema.counter.is_none() {
                continue;
            }
            for entry in table.entries() {
                let (packets, bytes) = self.since(Count::Entry(id, entry.id), self.hits(id, entry.id)?);
                entry.stats.add(packets, bytes);
            }
        }
        for i in 0..program.counters.len() {
            let id = CounterId::at(i);
            let Some(map) = self.lowered.maps.counter(id) else { continue };
            let mut counted = Vec::new();
            let size = self.map(map)?.shape().value.next_multiple_of(8) as usize;
            let all = self.map(map)?.for_each(|cell, values| {
                let sum = values.chunks(size).fold((0, 0), |sum, value| add(sum, counts_at(value, 0)));
                if sum != (0, 0) {
                    counted.push((cell, sum));
                }
            });
            all.map_err(CardError::Run)?;
            for (cell, sum) in counted {
                let more = self.since(Count::Counter(id, cell), sum);
                if let Some(stats) = state.arrays().counter(id, cell.into()).filter(|_| more != (0, 0)) {
                    stats.packets.fetch_add(more.0, Relaxed);
                    stats.bytes.fetch_add(more.1, Relaxed);
                }
            }
        }
        Ok(())
    }

    /// What was counted since the last time.
    fn since(&mut self, count: Count, now: (u64, u64)) -> (u64, u64) {
        if now == (0, 0) {
            return now;
        }
        let before = self.collected.insert(count, now).unwrap_or_default();
        (now.0.wrapping_sub(before.0), now.1.wrapping_sub(before.1))
    }

    /// Sets the time of a program with a given clock, nanoseconds. No packet may pass meanwhile.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_time(&self, now: u64) -> Result<(), CardError> {
        let scratch = self.map(self.lowered.maps.scratch)?;
        let mut all = scratch.get(&[0; 4]).map_err(CardError::Run)?;
        for value in all.chunks_mut(self.lowered.layout.size.next_multiple_of(8)) {
            for (to, byte) in value.iter_mut().skip(word::NOW as usize).zip(now.to_ne_bytes()) {
                *to = byte;
            }
        }
        scratch.update(&[0; 4], &all).map_err(CardError::Run)
    }

    /// Runs the program on a packet that comes from a port. No packet may pass meanwhile.
    ///
    /// # Errors
    /// The verifier's, and the kernel's for packets that are shorter than an Ethernet header or too long.
    pub fn run(&mut self, port: u32, packet: &[u8]) -> Result<Passed, CardError> {
        let program = self.program(port)?;
        let ran = syscall::test_run(program, packet, 1).map_err(CardError::Run)?;
        let each = self.scratch()?;
        let runs: Vec<u64> = each.iter().map(|value| word_at(value, word::RUNS)).collect();
        let before = std::mem::replace(&mut self.runs, runs.clone());
        // The CPU that the packet passed.
        let passed = runs.iter().enumerate().find(|(i, runs)| before.get(*i).copied().unwrap_or(0) != **runs);
        let value = passed.and_then(|(i, _)| each.get(i)).ok_or(CardError::Run(Errno::NOENT))?;
        let detail = word_at(value, word::DETAIL);
        let verdict = match word_at(value, word::VERDICT) as i32 {
            Verdict::SENT => Verdict::Sent(detail as u32),
            Verdict::CPU => Verdict::Cpu,
            _ => Verdict::Dropped(detail as usize),
        };
        let chosen = |at| Some(word_at(value, at)).filter(|value| *value != u64::MAX);
        let class = chosen(word::CLASS).map(|class| class as u8);
        let queue = chosen(word::QUEUE).map(|queue| queue as u16);
        let mut packet = ran.packet;
        let note = Some(word_at(value, word::NOTE) as usize).filter(|_| self.lowered.is_stateful());
        let note = note.filter(|note| *note > 0 && *note <= packet.len());
        let note: Vec<u8> = note.map_or(Vec::new(), |note| packet.drain(..note).collect());
        let finished = xsk::note::split(0, &note).and_then(|(content, _)| Finished::of(content));
        Ok(Passed { verdict, packet, class, queue, finished })
    }

    /// The layout's value for each CPU.
    fn scratch(&self) -> Result<Vec<Vec<u8>>, CardError> {
        self.map(self.lowered.maps.scratch)?.get_each(&[0; 4]).map_err(CardError::Run)
    }

    /// Lookups of a table, and hits among them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn lookups(&self, table: TableId) -> Result<(u64, u64), CardError> {
        let at = self.lowered.layout.table_lookups(table.index());
        let add =
            |sum: (u64, u64), value: &Vec<u8>| (sum.0 + word_at(value, at), sum.1 + word_at(value, at + 8));
        Ok(self.scratch()?.iter().fold((0, 0), add))
    }

    /// Packets and bytes that have hit an entry, of a table that counts them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn hits(&self, table: TableId, entry: EntryId) -> Result<(u64, u64), CardError> {
        let counts = self.lowered.maps.tables.get(table.index()).and_then(|form| form.counts);
        let slot = self.tables.get(table.index()).and_then(|held| held.slot_of(entry));
        match (counts, slot) {
            (Some(counts), Some(slot)) => self.counts(counts, slot),
            _ => Ok((0, 0)),
        }
    }

    /// Packets and bytes of a cell of a counter array.
    ///
    /// # Errors
    /// The kernel's: no such cell.
    pub fn counter(&self, counter: CounterId, index: u32) -> Result<(u64, u64), CardError> {
        // Where there is no map, the CPU counts alone.
        self.lowered.maps.counter(counter).map_or(Ok((0, 0)), |map| self.counts(map, index))
    }

    fn counts(&self, map: usize, index: u32) -> Result<(u64, u64), CardError> {
        let each = self.map(map)?.get_each(&index.to_ne_bytes()).map_err(CardError::Run)?;
        Ok(each.iter().fold((0, 0), |sum, value| add(sum, counts_at(value, 0))))
    }

    /// Sets a cell of a counter array.
    ///
    /// # Errors
    /// The kernel's: no such cell.
    pub fn set_counter(
        &self,
        counter: CounterId,
        index: u32,
        packets: u64,
        bytes: u64,
    ) -> Result<(), CardError> {
        let map = self.lowered.maps.counter(counter);
        let map = self.map(map.ok_or(CardError::Run(Errno::NOENT))?)?;
        map.update_each(&index.to_ne_bytes(), &[0; 16]).map_err(CardError::Run)?;
        // The first CPU has all.
        let mut all = map.get(&index.to_ne_bytes()).map_err(CardError::Run)?;
        let bytes = packets.to_ne_bytes().into_iter().chain(bytes.to_ne_bytes());
        all.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        map.update(&index.to_ne_bytes(), &all).map_err(CardError::Run)
    }

    /// A cell of a register array.
    ///
    /// # Errors
    /// The kernel's: no such cell.
    pub fn register(&self, register: RegisterId, index: u32) -> Result<u64, CardError> {
        let Some(map) = self.lowered.maps.register(register) else { return Ok(0) };
        let map = self.map(map)?;
        Ok(word_at(&map.get(&index.to_ne_bytes()).map_err(CardError::Run)?, 0))
    }

    /// Configures a meter of an array, its buckets full at a time; does nothing if the card has no such meters.
    ///
    /// # Errors
    /// The kernel's: no such meter.
    pub fn set_meter(
        &self,
        meter: MeterId,
        index: u32,
        rates: Option<Rates>,
        now: u64,
    ) -> Result<(), CardError> {
        let Some(map) = self.lowered.maps.meter(meter) else { return Ok(()) };
        let words: Vec<u8> = meter_words(rates, now).iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.update(map, &index.to_ne_bytes(), &words)
    }

    /// Sets a cell of a register array.
    ///
    /// # Errors
    /// The kernel's: no such cell.
    pub fn set_register(&self, register: RegisterId, index: u32, value: u64) -> Result<(), CardError> {
        let map = self.lowered.maps.register(register).ok_or(CardError::Run(Errno::NOENT))?;
        self.update(map, &index.to_ne_bytes(), &value.to_ne_bytes())
    }
}

/// Registers and meters in the memory of maps.
#[derive(Debug)]
struct Shared {
    cells: Vec<Option<Words>>,
    meters: Vec<Option<Words>>,
    lock: Words,
}

impl SharedArrays for Shared {
    fn cells(&self, register: RegisterId) -> Option<&[AtomicU64]> {
        self.cells.get(register.index())?.as_deref()
    }

    fn meters(&self, meter: MeterId) -> Option<&[AtomicU64]> {
        self.meters.get(meter.index())?.as_deref()
    }

    fn lock(&self) -> &AtomicU64 {
        self.lock.first()
    }
}

fn word_at(value: &[u8], at: i16) -> u64 {
    let bytes = usize::try_from(at).ok().and_then(|at| value.get(at..at + 8)).and_then(|b| b.try_into().ok());
    bytes.map_or(0, u64::from_ne_bytes)
}

/// Two words: packets and bytes, or lookups and hits.
fn counts_at(value: &[u8], at: i16) -> (u64, u64) {
    (word_at(value, at), word_at(value, at + 8))
}

fn add(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.wrapping_add(b.0), a.1.wrapping_add(b.1))
}

fn not_held(error: NotHeld, table: &Table, maps: &TableMaps<'_>) -> CardError {
    match error {
        NotHeld::Masks(most) => EntryError::Masks(table.name.clone(), most).into(),
        NotHeld::Map(Errno::TOOBIG | Errno::NOSPC) => {
            EntryError::Full(table.name.clone(), maps.entries.shape().entries).into()
        }
        NotHeld::Map(errno) => CardError::Update { name: maps.entries.shape().name.clone(), errno },
    }
}

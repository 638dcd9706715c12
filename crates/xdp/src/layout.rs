//! Where a program keeps a packet's headers and variables: in a value of its own for each CPU, which nothing else uses
//! while a packet passes.
//!
//! The kernel's verifier does not follow what is stored there, so the ways through a program do not multiply for it, as
//! they would with the stack. All is in words of 8 bytes; wide values have their low word first.

use bpf::assembler::Size;
use pipeline::ir::{FieldType, HeaderId, HeaderType, Program, StackId, Type, VarId};
use xsk::note;

/// Words at the beginning, which this process reads, too.
pub(crate) mod word {
    /// Packets that have passed.
    pub(crate) const RUNS: i16 = 0;
    /// What became of the last one, a [`crate::Verdict`]'s number.
    pub(crate) const VERDICT: i16 = 8;
    /// Its port, or the reason of its drop.
    pub(crate) const DETAIL: i16 = 16;
    /// Traffic class that the program chose; all ones: none.
    pub(crate) const CLASS: i16 = 24;
    /// Egress queue that the program chose; all ones: none.
    pub(crate) const QUEUE: i16 = 32;
    /// Time, for programs that are given it, nanoseconds.
    pub(crate) const NOW: i16 = 40;
    /// Length of the packet as received, bytes.
    pub(crate) const TOTAL: i16 = 48;
    /// Length of the packet as it entered the stage, bytes.
    pub(crate) const LENGTH: i16 = 56;
    /// Bytes that the parser has consumed.
    pub(crate) const POSITION: i16 = 64;
    /// Bytes of headers that the deparser has written.
    pub(crate) const EMITTED: i16 = 72;
    /// Error that an expression of the parser met.
    pub(crate) const FAULT: i16 = 80;
    /// Error that the parser ended with.
    pub(crate) const ERROR: i16 = 88;
    /// How the packet entered the stage.
    pub(crate) const INSTANCE: i16 = 96;
    /// Port that it is going to.
    pub(crate) const EGRESS: i16 = 104;
    /// Packets that were sent.
    pub(crate) const SENT: i16 = 112;
    /// Packets that went to the CPU.
    pub(crate) const TO_CPU: i16 = 120;
    /// Packets that went to the CPU finished.
    pub(crate) const FINISHED: i16 = 128;
    /// Bytes of the note in front of the last one; 0: it has none.
    pub(crate) const NOTE: i16 = 136;
    /// Behind them.
    pub(crate) const END: usize = 144;
}

/// Most bytes of headers.
pub(crate) const HEADERS: usize = 576;
/// Words for intermediate results.
pub(crate) const TEMPS: usize = 96;
/// Most bytes of a value for each CPU (`PCPU_MIN_UNIT_SIZE`).
const LARGEST: usize = 32 << 10;

/// Words of a value of this width.
pub(crate) fn words(width: u16) -> usize {
    usize::from(width).div_ceil(64)
}

/// Offsets in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// For each table: lookups, and hits behind them.
    pub(crate) lookups: i16,
    /// Drops by the program's reasons, then by others.
    pub(crate) drops: i16,
    /// How many reasons these are.
    pub(crate) reasons: usize,
    /// What is zero when a packet arrives, to its end.
    pub(crate) zeroed: (i16, i16),
    next: i16,
    vars: Vec<i16>,
    headers: Vec<i16>,
    temps: i16,
    params: Vec<Vec<i16>>,
    /// A table's key, and room for a masked one.
    pub(crate) key: i16,
    pub(crate) masked: i16,
    /// An entry that was found, copied.
    pub(crate) found: i16,
    /// Headers that the deparser writes.
    pub(crate) out: i16,
    /// The note in front of a finished packet.
    pub(crate) note: i16,
    /// Remainders of cyclic redundancy checks, 256 words each.
    pub(crate) remainders: i16,
    counted: i16,
    /// Places of the code that count.
    pub(crate) marks: usize,
    /// Bytes of all.
    pub(crate) size: usize,
}

/// Drops that are not by one of the program's reasons, behind those.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtherDrop {
    /// The packet went nowhere.
    NoDestination = 0,
    /// The packet's headers are too long, or too short for Ethernet.
    Size = 1,
}

impl OtherDrop {
    pub(crate) const COUNT: usize = 2;
}

struct Room(usize);

impl Room {
    fn take(&mut self, words: usize) -> i16 {
        let at = self.0;
        self.0 = at.saturating_add(words.saturating_mul(8));
        i16::try_from(at).unwrap_or(i16::MAX)
    }
}

/// Words of a header: its validity, then its fields.
fn header_words(ty: &HeaderType) -> usize {
    1 + ty.fields.iter().map(|field| field_words(field.ty)).sum::<usize>()
}

fn field_words(ty: FieldType) -> usize {
    match ty {
        FieldType::Scalar(ty) => words(ty.width()),
        FieldType::Varbit(_) => 0,
    }
}

impl Layout {
    /// The layout of a program whose tables' keys and entries have at most so many words, and with so many
    /// words for what was counted; `None` if it is too large.
    pub(crate) fn new(program: &Program, key: usize, entry: usize, marks: usize) -> Option<Self> {
        let mut room = Room(word::END);
        let lookups = room.take(2 * program.tables.len());
        let drops = room.take(program.reasons.len() + OtherDrop::COUNT);
        let next = room.take(program.stacks.len());
        let vars = program.vars.iter().map(|var| room.take(words(var.ty.width()))).collect();
        let types = program.headers.iter().map(|header| program.header_types.get(header.ty.index()));
        let headers = types.map(|ty| room.take(ty.map_or(0, header_words))).collect();
        let end = room.take(0);
        let temps = room.take(TEMPS);
        let params = program
            .actions
            .iter()
            .map(|action| action.params.iter().map(|param| room.take(words(param.ty.width()))).collect());
        let params = params.collect();
        let layout = Self {
            lookups,
            drops,
            reasons: program.reasons.len() + OtherDrop::COUNT,
            zeroed: (next, end),
            next,
            vars,
            headers,
            temps,
            params,
            key: room.take(key + 1),
            masked: room.take(key + 1),
            found: room.take(entry),
            out: room.take(HEADERS / 8 + 1),
            note: room.take(note::LARGEST / 8),
            remainders: room.take(3 * 256),
            counted: room.take(2 * marks),
            marks,
            size: room.0,
        };
        (layout.size <= LARGEST).then_some(layout)
    }

    pub(crate) fn next(&self, stack: StackId) -> i16 {
        self.next + 8 * stack.index() as i16
    }

    pub(crate) fn var(&self, var: VarId) -> i16 {
        self.vars.get(var.index()).copied().unwrap_or(0)
    }

    /// Where a header begins, with its validity.
    pub(crate) fn header(&self, header: HeaderId) -> i16 {
        self.headers.get(header.index()).copied().unwrap_or(0)
    }

    /// Where a field begins, from where its header begins.
    pub(crate) fn field(&self, ty: &HeaderType, field: usize) -> i16 {
        let before: usize = ty.fields.iter().take(field).map(|field| field_words(field.ty)).sum();
        (8 * (1 + before)) as i16
    }

    /// Distance of a stack's elements.
    pub(crate) fn stride(&self, ty: &HeaderType) -> i16 {
        (8 * header_words(ty)) as i16
    }

    pub(crate) fn temp(&self, i: usize) -> i16 {
        self.temps + 8 * i as i16
    }

    pub(crate) fn param(&self, action: usize, param: usize) -> i16 {
        self.params.get(action).and_then(|params| params.get(param)).copied().unwrap_or(0)
    }

    /// The word for what is counted at a place of the code; the packet's length is in the one behind it.
    pub(crate) fn counted(&self, i: usize) -> i16 {
        self.counted + 16 * i.min(self.marks.saturating_sub(1)) as i16
    }

    pub(crate) fn table_lookups(&self, table: usize) -> i16 {
        self.lookups + 16 * table as i16
    }
}

/// Types that the layout keeps in one word.
pub(crate) fn is_narrow(ty: Type) -> bool {
    ty.width() <= 64
}

/// The largest access that goes evenly into so many bytes.
pub(crate) fn largest(bytes: usize) -> (Size, usize) {
    let n = match bytes {
        0 | 1 => 1,
        2 | 3 => 2,
        4..=7 => 4,
        _ => 8,
    };
    (Size::of(n), n)
}

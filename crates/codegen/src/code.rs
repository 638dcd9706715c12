//! Compiled programs and actions: machine code, and what it refers to by address.

use std::sync::Arc;

use exec_memory::Executable;
use pipeline::Checked;
use pipeline::interp::Limits;
use pipeline::ir::{ActionId, BlockId, ParserId, Send, Slot, StageId};

use crate::layout::Layout;

/// An operand that is too large for a register: code has its address.
#[derive(Debug)]
pub(crate) enum Operand {
    /// A destination.
    Send(Send),
}

/// The type of every function of generated code: frame, arguments, depth; returns how it ended ([`crate::flow`]), a
/// selection its hash.
pub(crate) type Function = unsafe extern "C" fn(*mut u64, *const u64, u64) -> i64;

/// Functions in one piece of memory.
#[derive(Debug)]
pub(crate) struct Functions {
    memory: Executable,
    /// Address of each function.
    addresses: Vec<usize>,
    /// Kept for the addresses in the code.
    _operands: Vec<Arc<Operand>>,
}

impl Functions {
    /// Makes functions of machine code, each at its offset.
    pub(crate) fn new(code: &[u8], offsets: &[usize], operands: Vec<Arc<Operand>>) -> std::io::Result<Self> {
        let memory = Executable::new(code)?;
        let addresses = offsets.iter().map(|offset| memory.at(*offset) as usize).collect();
        Ok(Self { memory, addresses, _operands: operands })
    }

    /// Bytes of memory.
    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    /// Address of a function.
    pub(crate) fn address(&self, i: usize) -> usize {
        self.addresses.get(i).copied().unwrap_or(0)
    }

    fn get(&self, i: usize) -> Option<Function> {
        let address = *self.addresses.get(i)?;
        // SAFETY: the address is that of a function that `compile` emitted with this signature, in memory that is
        // executable as long as `self` lives.
        Some(unsafe { std::mem::transmute::<usize, Function>(address) })
    }
}

/// A variable that the environment fills in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BoundVar {
    pub(crate) slot: Slot,
    /// First word in the frame.
    at: u32,
    /// Words behind it.
    more: u32,
    /// Bits of the first word.
    mask: u64,
}

impl BoundVar {
    pub(crate) fn new(slot: Slot, at: i32, width: u16) -> Self {
        let mask = if width < 64 { (1 << width) - 1 } else { u64::MAX };
        let more = u32::from(width.div_ceil(64)).saturating_sub(1);
        Self { slot, at: at.cast_unsigned() / 8, more, mask }
    }

    /// Whether all that it has to know is where the packet goes.
    pub(crate) fn follows_from_port(&self) -> bool {
        matches!(self.slot, Slot::EgressPort | Slot::Instance | Slot::Replica)
    }

    /// Bits of the first word.
    pub(crate) fn mask(&self) -> u64 {
        self.mask
    }

    /// Words with their values, for a number.
    #[inline]
    pub(crate) fn words(self, number: u64) -> impl Iterator<Item = (usize, u64)> {
        let at = self.at as usize;
        let rest = (1..=self.more as usize).map(move |i| (at + i, 0));
        std::iter::once((at, number & self.mask)).chain(rest)
    }
}

/// A function that writes the headers of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer {
    /// Its index.
    pub(crate) function: usize,
    /// Most bytes that it writes.
    pub(crate) most: usize,
}

/// A compiled program.
#[derive(Debug)]
pub struct Code {
    /// Tells code from any other.
    pub(crate) id: u64,
    pub(crate) program: Checked,
    pub(crate) limits: Limits,
    pub(crate) layout: Layout,
    /// Blocks, actions, parsers, selections of groups, selections of profiles, keys of tables, defined actions,
    /// preparations, the flow key, writers, the beginning of a pass, all stages.
    pub(crate) functions: Functions,
    /// Variables that the environment fills in.
    pub(crate) slots: Vec<BoundVar>,
    /// Whether one of them is the time in the stage.
    pub(crate) has_time: bool,
    /// For each stage, whether deparsing changes only the packet's form.
    pub(crate) emits_only: Vec<bool>,
    /// For each stage, the writer of its deparser, if it has one.
    pub(crate) writers: Vec<Option<Writer>>,
    /// For each parser and stage, whether a packet that nothing changes is deparsed to what was parsed.
    pub(crate) identity: Vec<Vec<bool>>,
    /// For each table, the index of the function that lays out all of its keys, in general code.
    pub(crate) keys: Vec<usize>,
    /// Whether the bytes behind the parsed headers are read.
    pub(crate) reads_payload: bool,
    /// Whether every packet leaves as it came.
    pub(crate) is_unchanging: bool,
    /// Whether the length of a packet is measured when it enters a stage with its headers.
    pub(crate) measures: bool,
    /// In specialised code: variables that the environment fills in again then.
    pub(crate) entered: Vec<BoundVar>,
    /// In specialised code: whether packets may enter a stage in passes of their own.
    pub(crate) sends_on: bool,
    /// Whether the clock or queues are asked for these.
    pub(crate) reads_env: bool,
    /// In specialised code: whether statements use the meter of an entry that was hit before.
    pub(crate) reads_hits: bool,
    /// The function that begins a pass and prepares the first lookup.
    pub(crate) arrival: Option<usize>,
    /// The function of all stages.
    pub(crate) all_stages: Option<usize>,
    /// Functions that prepare the first lookup, by block: they lay out its key at the address that is their argument.
    pub(crate) prepares: Vec<(BlockId, usize)>,
    /// Whether a packet's pass goes on with the headers and variables that such a function leaves behind.
    pub(crate) resumes: bool,
    /// The function that lays out a packet's flow key at the address that is its argument, and words of the key.
    pub(crate) flow_key: Option<(usize, usize)>,
    /// The parts of the flow key.
    pub(crate) flow_parts: Vec<pipeline::ir::Expr>,
    /// Whether a decided packet's way may follow from the ingress port, other than that it does not go back there.
    pub(crate) uses_ingress: bool,
    /// Addresses of actions by their slots, in specialised code.
    pub(crate) actions: Vec<usize>,
}

/// A number that no other code has.
pub(crate) fn new_id() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

impl Code {
    /// Bytes of machine code, in whole pages.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether there is no code. A program has at least one block.
    pub fn is_empty(&self) -> bool {
        self.functions.addresses.is_empty()
    }

    /// Address of the blocks' addresses, which those of actions follow.
    pub(crate) fn blocks(&self) -> *const usize {
        self.functions.addresses.as_ptr()
    }

    /// A block of the program: those of a checked one name each other only.
    #[inline]
    pub(crate) fn block(&self, id: BlockId) -> Option<Function> {
        debug_assert!(id.index() < self.program.blocks.len());
        self.functions.get(id.index())
    }

    /// What begins a pass of a received packet.
    pub(crate) fn arrival(&self) -> Option<Function> {
        self.functions.get(self.arrival?)
    }

    /// What takes a packet through all stages.
    pub(crate) fn all_stages(&self) -> Option<Function> {
        self.functions.get(self.all_stages?)
    }

    /// What prepares the first lookup of a block.
    pub(crate) fn preparation(&self, id: BlockId) -> Option<Function> {
        // They are few.
        let (_, function) = self.prepares.iter().find(|(block, _)| *block == id)?;
        self.functions.get(*function)
    }

    /// What lays out a packet's flow key, and words of the key.
    pub(crate) fn flow_key(&self) -> Option<(Function, usize)> {
        let (function, words) = self.flow_key?;
        Some((self.functions.get(function)?, words))
    }

    /// What writes the headers of a packet that leaves a stage, and the most bytes that it writes.
    pub(crate) fn writer(&self, stage: StageId) -> Option<(Function, usize)> {
        let writer = self.writers.get(stage.index()).copied().flatten()?;
        Some((self.functions.get(writer.function)?, writer.most))
    }

    pub(crate) fn action(&self, id: ActionId) -> Option<Function> {
        let own = id.index() < self.program.actions.len();
        self.functions.get(self.program.blocks.len() + id.index()).filter(|_| own)
    }

    pub(crate) fn parser(&self, id: ParserId) -> Option<Function> {
        self.functions.get(self.program.blocks.len() + self.program.actions.len() + id.index())
    }

    fn selections(&self) -> usize {
        self.program.blocks.len() + self.program.actions.len() + self.program.parsers.len()
    }

    /// The selection of a table of groups.
    pub(crate) fn group_selection(&self, table: usize) -> Option<Function> {
        self.functions.get(self.selections() + table)
    }

    /// The selection of a profile.
    pub(crate) fn profile_selection(&self, profile: usize) -> Option<Function> {
        self.functions.get(self.selections() + self.program.groups.len() + profile)
    }

    /// Whether a packet that nothing has changed since this parser leaves a stage as it came.
    pub(crate) fn is_identity(&self, parser: Option<ParserId>, stage: StageId) -> bool {
        let of_parser = parser.and_then(|id| self.identity.get(id.index()));
        of_parser.and_then(|stages| stages.get(stage.index())).copied().unwrap_or(false)
    }

    pub(crate) fn emits_only(&self, stage: StageId) -> bool {
        self.emits_only.get(stage.index()).copied().unwrap_or(false)
    }
}

/// A compiled action that the control plane defined at run time.
#[derive(Debug)]
pub(crate) struct ActionCode {
    pub(crate) functions: Functions,
    /// The action.
    pub(crate) action: pipeline::ir::Action,
    /// Its place among the addresses of actions in specialised code.
    pub(crate) slot: u32,
}

impl ActionCode {
    pub(crate) fn function(&self) -> Option<Function> {
        self.functions.get(0)
    }
}

/// A function, with its code if that is not the program's.
pub(crate) type Owned = (Function, Option<Arc<ActionCode>>);

/// Code of defined actions.
pub(crate) type Actions = std::collections::HashMap<ActionId, Arc<ActionCode>>;

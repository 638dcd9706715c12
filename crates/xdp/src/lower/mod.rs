//! From a program to BPF instructions.
//!
//! Code is as plain as the program: each state, statement and action becomes the instructions that do it, in its place;
//! blocks and actions are inlined. A packet passes from front to back, except for parsers with loops.
//!
//! Registers: [`CTX`] has the packet's `struct xdp_md`; [`BASE`] this CPU's [`Layout`]; [`ENTRY`] the entry that was
//! found, until its arguments are copied, and the number of states in a parser with loops; [`POINTER`] a header whose
//! number is known at run time. Values are computed in [`A`], with [`B`] and [`C`] beside.
//!
//! A card sends one packet for each one received, as the last thing that a stage does. Where a packet comes to a
//! construct without a counterpart here ([`Refusal`]), it goes to the CPU as it came, and what was counted for it is taken
//! back: the CPU counts it.
//!
//! What was written to a register cannot be taken back. So a program that uses some is refused if a packet may come to
//! such a construct behind a write; [`Past`] follows what may have happened, in the order of the code, which is that of
//! packets but for branches beside each other. Such a program finishes its packets: those for ports that are no interfaces
//! go to the CPU as they leave, with a note in front ([`crate::note`]), and so do those with a digest.
//!
//! - `value.rs`: expressions; `bits.rs`: parts of values and of the packet; `place.rs`: headers and assignments;
//! - `register.rs`: registers and their lock; `meter.rs`: meters; `note.rs`: digests, and packets that the CPU gets finished;
//! - `parser.rs`, `stmt.rs`, `table.rs`, `hash.rs`, `deparser.rs`: what their names say.

mod bits;
mod deparser;
mod hash;
mod meter;
mod note;
mod parser;
mod place;
mod register;
mod stmt;
mod table;
mod value;

use std::collections::BTreeSet;

use bpf::assembler::{self, Alu, Cond, Size};
use bpf::{Assembler, Label, Reg};
use pipeline::ir::{ActionId, BlockId, Program, ReasonId, RegisterId, Slot, StageId};

use crate::layout::{Layout, OtherDrop, word, words};
use crate::refusal::Refusal;
use crate::tables::{MASKS, Maps};

pub(crate) use table::mask;

/// Result and first operand.
const A: Reg = Reg(1);
/// Second operand.
const B: Reg = Reg(2);
/// Masks.
const C: Reg = Reg(3);
const CTX: Reg = Reg(6);
const BASE: Reg = Reg(7);
const ENTRY: Reg = Reg(8);
const POINTER: Reg = Reg(9);
const RESULT: Reg = Reg(0);

/// Helpers of the kernel, by their numbers.
mod helper {
    pub(super) const MAP_LOOKUP: i32 = 1;
    pub(super) const TIME: i32 = 5;
    pub(super) const ADJUST_HEAD: i32 = 44;
    pub(super) const REDIRECT_MAP: i32 = 51;
    pub(super) const STORE_BYTES: i32 = 190;
}

const XDP_ABORTED: u64 = 0;
const XDP_DROP: u64 = 1;
const XDP_PASS: u64 = 2;

/// Offsets in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const RX_QUEUE: i16 = 16;

/// Steps of searches by masks that a packet may come to: the verifier remembers up to 8,192 ways that it has not followed
/// yet (`BPF_COMPLEXITY_LIMIT_JMP_SEQ`), of which each step adds six.
const STEPS: u32 = 1200;
/// Most maps of a program (`MAX_USED_MAPS`).
const MAPS: usize = 64;

/// Name of the parts where packets leave or are dropped.
const VERDICTS: &str = "verdict";

/// Numbers that are known when the program is loaded.
pub(crate) mod later {
    /// The ingress port.
    pub(crate) const INGRESS_PORT: usize = 0;
    /// The program's number among those that interfaces run.
    pub(crate) const PROGRAM: usize = 1;
    /// The mark of notes, its low half,
    pub(crate) const MARK_LOW: usize = 2;
    /// and its high half.
    pub(crate) const MARK_HIGH: usize = 3;
}

/// What surrounds a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Setting {
    /// Interfaces. The time is the kernel's monotonic one; packets for ports that are not connected go to the CPU.
    #[default]
    Live,
    /// A test: time stands still but for [`crate::Card::set_time`], and packets leave to any port.
    Test,
}

/// A lowered program.
#[derive(Debug, Clone)]
pub struct Lowered {
    pub(crate) code: assembler::Program,
    pub(crate) maps: Maps,
    pub(crate) layout: Layout,
    pub(crate) to_cpu: Vec<Refusal>,
    is_stateful: bool,
}

impl Lowered {
    /// Whether packets use registers. Packets for the CPU may be finished then: they have a note in front.
    pub fn is_stateful(&self) -> bool {
        self.is_stateful
    }

    /// Constructs whose packets go to the CPU.
    pub fn to_cpu(&self) -> &[Refusal] {
        &self.to_cpu
    }

    /// Number of instructions.
    pub fn instructions(&self) -> usize {
        self.code.len()
    }
}

/// Lowers a program.
///
/// # Errors
/// Reasons for which no packet can stay on the card.
pub fn lower(program: &Program, setting: Setting) -> Result<Lowered, Vec<Refusal>> {
    // Once to find out whether packets go to the CPU, and what has to be taken back then.
    let mut plan = Plan { counted: None, masks: MASKS, is_stateful: has_arrays(program), meters: true };
    let mut first = pass(program, setting, &plan)?;
    if !first.late.is_empty() && !program.meters.is_empty() {
        // Better some packets on the CPU than all of them.
        plan.meters = false;
        first = pass(program, setting, &plan)?;
    }
    if plan.is_stateful && !first.uses_registers {
        plan.is_stateful = false;
        first = pass(program, setting, &plan)?;
    }
    if !first.late.is_empty() {
        return Err(first.late);
    }
    // However many searches a packet may come to, the verifier has to remember a way out of each of their steps.
    plan.masks = STEPS.checked_div(first.searches).unwrap_or(MASKS).min(MASKS);
    if first.to_cpu.is_empty() && !first.takes_lock && setting == Setting::Test {
        return if plan.masks == MASKS { first.finish() } else { pass(program, setting, &plan)?.finish() };
    }
    plan.counted = Some(first.counted.len());
    pass(program, setting, &plan)?.finish()
}

/// Whether a program has what packets write and workers share.
fn has_arrays(program: &Program) -> bool {
    !program.registers.is_empty() || !program.meters.is_empty()
}

/// What is known from a first attempt.
struct Plan {
    /// Places where packets are counted, if that may have to be taken back.
    counted: Option<usize>,
    /// Most masks of a table.
    masks: u32,
    /// Whether packets use registers or meters.
    is_stateful: bool,
    /// Whether packets are metered, which otherwise go to the CPU.
    meters: bool,
}

/// What may have happened to a packet so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Past {
    /// It has written to a register, first at this place ([`Lowering::writes`]): the CPU cannot have it as it came any
    /// more.
    written: Option<usize>,
    /// It has a digest.
    has_digest: bool,
}

impl Past {
    /// What may have happened on one of two ways.
    fn or(self, other: Self) -> Self {
        Self { written: self.written.or(other.written), has_digest: self.has_digest || other.has_digest }
    }
}

/// Lowers as planned.
fn pass<'p>(program: &'p Program, setting: Setting, plan: &Plan) -> Result<Lowering<'p>, Vec<Refusal>> {
    let whole = |construct: &str| vec![Refusal { part: "the program".into(), construct: construct.into() }];
    let mut maps = Maps::new(program, plan.masks);
    let key = maps.tables.iter().map(|table| table.key_bytes.div_ceil(8) + 1).max().unwrap_or(0);
    let layout = Layout::new(program, key, maps.default_arguments + 3, plan.counted.unwrap_or(0))
        .ok_or_else(|| whole("more headers and variables than a value for each CPU holds"))?;
    if let Some(scratch) = maps.shapes.get_mut(maps.scratch) {
        scratch.value = layout.size as u32;
    }
    let mut asm = Assembler::default();
    let (cpu, finished, digested) = (asm.label(), asm.label(), asm.label());
    let mut lowering = Lowering {
        program,
        setting,
        layout,
        maps,
        asm,
        cpu,
        finished,
        digested,
        to_cpu: Vec::new(),
        late: Vec::new(),
        is_stateful: plan.is_stateful,
        has_meters: plan.meters,
        past: Past::default(),
        writes: Vec::new(),
        is_parser: false,
        takes_back: plan.counted.is_some(),
        searches: 0,
        counted: Vec::new(),
        uses_registers: false,
        indivisible: register::indivisible(program),
        takes_lock: false,
        is_locked: false,
        part: "the program".into(),
        temps: 0,
        action: None,
        blocks: Vec::new(),
        actions: Vec::new(),
        flow: None,
        tail: None,
    };
    lowering.packet();
    Ok(lowering)
}

/// Where statements lead to that end what contains them.
#[derive(Debug, Clone, Copy)]
struct Flow {
    /// Behind the action or block.
    back: Label,
    /// Behind the block.
    block_end: Label,
    /// The stage's finish, or behind it.
    exit: Label,
}

/// The stage whose end is being lowered.
#[derive(Debug, Clone, Copy)]
struct Tail {
    stage: StageId,
    /// The stage's next one.
    next: Option<(StageId, Label)>,
    /// Deparses the packet and sends it.
    leave: Label,
    /// Sends the packet as it came.
    original: Label,
}

/// Something that is counted, at one place of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// A word of the layout.
    Word(i16),
    /// A cell of a map with counts for each CPU, and the packet's length.
    Cell(usize),
}

struct Lowering<'p> {
    program: &'p Program,
    setting: Setting,
    layout: Layout,
    maps: Maps,
    asm: Assembler,
    /// Sends the packet to the CPU.
    cpu: Label,
    /// Sends it there as it leaves,
    finished: Label,
    /// or, if it was dropped, for its digest.
    digested: Label,
    /// Constructs that lead to the CPU.
    to_cpu: Vec<Refusal>,
    /// Constructs that cannot lead there, behind a write to a register.
    late: Vec<Refusal>,
    /// Whether packets use registers or meters.
    is_stateful: bool,
    /// Whether packets are metered.
    has_meters: bool,
    past: Past,
    /// Places where registers and meters are changed: the part of the program, and what is changed.
    writes: Vec<(String, String)>,
    /// Whether a parser is being lowered.
    is_parser: bool,
    /// Whether counts are taken back then.
    takes_back: bool,
    /// Places where packets are counted.
    counted: Vec<Counted>,
    /// Places where tables are looked up by masks.
    searches: u32,
    /// Whether registers or meters are used.
    uses_registers: bool,
    /// Registers that atomic sections use: every access takes the lock.
    indivisible: BTreeSet<RegisterId>,
    /// Whether packets take the lock, which others may have.
    takes_lock: bool,
    /// Whether the lock is held.
    is_locked: bool,
    /// The part that is being lowered, for people.
    part: String,
    /// Words of intermediate results that are in use.
    temps: usize,
    /// The action that is being lowered.
    action: Option<ActionId>,
    /// Blocks and actions that are being inlined.
    blocks: Vec<BlockId>,
    actions: Vec<ActionId>,
    flow: Option<Flow>,
    /// Set where a packet may be sent: at the end of a stage.
    tail: Option<Tail>,
}

impl Lowering<'_> {
    /// The program, or the reasons for which it cannot be one.
    fn finish(self) -> Result<Lowered, Vec<Refusal>> {
        let Lowering { asm, maps, layout, mut to_cpu, is_stateful, .. } = self;
        let code = asm.finish().map_err(|error| {
            to_cpu.push(Refusal { part: "the program".into(), construct: error.to_string() });
            to_cpu.clone()
        })?;
        let used = code.maps();
        if used > MAPS {
            let construct =
                format!("{used} maps for tables, counters and registers, of which there may be {MAPS}");
            to_cpu.push(Refusal { part: "the program".into(), construct });
            return Err(to_cpu);
        }
        // Where packets leave or are dropped.
        if !code.parts().any(|(name, instructions)| name == VERDICTS && !instructions.is_empty()) {
            return Err(to_cpu);
        }
        Ok(Lowered { code, maps, layout, to_cpu, is_stateful })
    }

    /// Sends packets that come here to the CPU.
    fn refuse(&mut self, construct: impl Into<String>) {
        let (part, construct) = (self.part.clone(), construct.into());
        let write = self.past.written.and_then(|write| self.writes.get(write));
        let (list, refusal) = match write {
            None => (&mut self.to_cpu, Refusal { part, construct }),
            Some((writes, register)) => {
                let construct = format!("{register} is changed, and behind, in {part}, may come {construct}");
                (&mut self.late, Refusal { part: writes.clone(), construct })
            }
        };
        if !list.contains(&refusal) {
            list.push(refusal);
        }
        self.asm.jump(self.cpu);
    }

    /// Lowers branches beside each other: what happens in one has not happened in the next.
    fn alternatives<T>(
        &mut self,
        branches: impl IntoIterator<Item = T>,
        mut lower: impl FnMut(&mut Self, T),
    ) {
        let (before, mut behind) = (self.past, self.past);
        for branch in branches {
            self.past = before;
            lower(self, branch);
            behind = behind.or(self.past);
        }
        self.past = behind;
    }

    /// Names what follows.
    fn begin_part(&mut self, part: String) {
        self.asm.part(part.clone());
        self.part = part;
    }

    /// A word for an intermediate result, until `temps` is set back.
    fn temp(&mut self) -> i16 {
        let at = self.layout.temp(self.temps.min(crate::layout::TEMPS - 1));
        if self.temps >= crate::layout::TEMPS {
            self.refuse("an expression with too many intermediate results");
        }
        self.temps += 1;
        at
    }

    /// Runs with words for intermediate results that are free behind it.
    fn with_temps<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.temps;
        let result = run(self);
        self.temps = before;
        result
    }

    fn load_word(&mut self, to: Reg, offset: i16) {
        self.asm.load(Size::D, to, BASE, offset);
    }

    fn store_word(&mut self, offset: i16, from: Reg) {
        self.asm.store(Size::D, BASE, offset, from);
    }

    fn store_number(&mut self, offset: i16, n: i32) {
        self.asm.store_imm(Size::D, BASE, offset, n);
    }

    /// Records that something is counted here; for a cell, its index is in this word.
    fn counted(&mut self, counted: Counted, index: Option<i16>) {
        let mark = self.layout.counted(self.counted.len());
        self.counted.push(counted);
        if !self.takes_back {
            return;
        }
        match index {
            None => self.store_number(mark, 1),
            Some(index) => {
                self.load_word(A, index);
                self.asm.alu_imm(Alu::Add, A, 1);
                self.store_word(mark, A);
                // In another stage, it is another one.
                self.load_word(A, word::LENGTH);
                self.store_word(mark + 8, A);
            }
        }
    }

    /// Adds 1 to a word that the CPU counts for packets that it gets.
    fn count(&mut self, offset: i16) {
        self.count_word(offset);
        self.counted(Counted::Word(offset), None);
    }

    /// Adds 1 to a word.
    fn count_word(&mut self, offset: i16) {
        self.load_word(A, offset);
        self.asm.alu_imm(Alu::Add, A, 1);
        self.store_word(offset, A);
    }

    /// `RESULT = ` the value of the key at this offset in a map, or 0.
    fn look_up(&mut self, map: usize, key: i16) {
        self.asm.map(A, map);
        self.asm.mov(B, BASE);
        self.asm.alu_imm(Alu::Add, B, key.into());
        self.asm.call(helper::MAP_LOOKUP);
    }

    /// The whole program.
    fn packet(&mut self) {
        self.begin_part("entry".into());
        self.asm.mov(CTX, Reg(1));
        self.asm.store_imm(Size::W, Reg(10), -4, 0);
        self.asm.map(A, self.maps.scratch);
        self.asm.mov(B, Reg(10));
        self.asm.alu_imm(Alu::Add, B, -4);
        self.asm.call(helper::MAP_LOOKUP);
        let found = self.asm.label();
        self.asm.jump_if_imm(Cond::Ne, RESULT, 0, found);
        self.asm.set(RESULT, XDP_ABORTED);
        self.asm.exit();
        self.asm.bind(found);
        self.asm.mov(BASE, RESULT);
        self.count_word(word::RUNS);
        for offset in [word::CLASS, word::QUEUE] {
            self.store_number(offset, -1);
        }
        for offset in [word::POSITION, word::EMITTED, word::FAULT, word::ERROR, word::INSTANCE, word::EGRESS]
        {
            self.store_number(offset, 0);
        }
        if self.is_stateful {
            self.begin_note();
        }
        let (from, to) = self.layout.zeroed;
        for offset in (from..to).step_by(8) {
            self.store_number(offset, 0);
        }
        self.asm.load(Size::W, A, CTX, DATA_END);
        self.asm.load(Size::W, B, CTX, DATA);
        self.asm.alu(Alu::Sub, A, B);
        self.store_word(word::TOTAL, A);
        self.store_word(word::LENGTH, A);
        let reads_time = self.program.vars.iter().any(|var| var.slot == Some(Slot::IngressTime));
        if reads_time && self.setting == Setting::Live {
            self.asm.call(helper::TIME);
            self.store_word(word::NOW, RESULT);
        }
        for i in 0..if self.takes_back { self.layout.marks } else { 0 } {
            let mark = self.layout.counted(i);
            self.store_number(mark, 0);
        }

        // Stages that packets reach, each behind the one that leads to it.
        let mut next = Some(StageId(0));
        let mut label = None;
        while let Some(stage) = next {
            if let Some(label) = label {
                self.asm.bind(label);
            }
            let behind = self.program.stages.get(stage.index()).and_then(|stage| stage.next);
            let behind = behind.filter(|behind| behind.0 > stage.0);
            let entry = behind.map(|behind| (behind, self.asm.label()));
            self.stage(stage, entry);
            (next, label) = (behind, entry.map(|(_, label)| label));
        }
        self.hand_over();
        if self.is_stateful {
            self.hand_over_finished();
        }
    }

    /// Sends the packet to the CPU as it came, and takes back what was counted.
    fn hand_over(&mut self) {
        self.begin_part("to the CPU".into());
        self.asm.bind(self.cpu);
        for (i, counted) in self.counted.clone().into_iter().enumerate() {
            if !self.takes_back {
                break;
            }
            let (mark, done) = (self.layout.counted(i), self.asm.label());
            self.load_word(A, mark);
            self.asm.jump_if_imm(Cond::Eq, A, 0, done);
            match counted {
                Counted::Word(at) => {
                    self.load_word(A, at);
                    self.asm.alu_imm(Alu::Sub, A, 1);
                    self.store_word(at, A);
                }
                Counted::Cell(map) => {
                    self.asm.alu_imm(Alu::Sub, A, 1);
                    self.store_word(mark, A);
                    self.look_up(map, mark);
                    self.asm.jump_if_imm(Cond::Eq, RESULT, 0, done);
                    self.asm.load(Size::D, A, RESULT, 0);
                    self.asm.alu_imm(Alu::Sub, A, 1);
                    self.asm.store(Size::D, RESULT, 0, A);
                    self.asm.load(Size::D, A, RESULT, 8);
                    self.load_word(B, mark + 8);
                    self.asm.alu(Alu::Sub, A, B);
                    self.asm.store(Size::D, RESULT, 8, A);
                }
            }
            self.asm.bind(done);
        }
        self.count_word(word::TO_CPU);
        self.store_number(word::VERDICT, crate::Verdict::CPU);
        self.asm.map(A, self.maps.sockets);
        self.asm.load(Size::W, B, CTX, RX_QUEUE);
        // Of a queue without a socket, packets go to the host's stack, as without the program.
        self.asm.set(C, XDP_PASS);
        self.asm.call(helper::REDIRECT_MAP);
        self.asm.exit();
    }

    /// A stage; `next` is the one that sent packets enter.
    fn stage(&mut self, id: StageId, next: Option<(StageId, Label)>) {
        let Some(stage) = self.program.stages.get(id.index()) else { return };
        self.begin_part(format!("stage {}", stage.name));
        let (control, finish) = (stage.control, stage.finish);
        if id.0 > 0 {
            self.stage_length();
        }
        self.slots(id);
        if let Some(parser) = stage.parser {
            if id.0 > 0 {
                self.refuse("a stage with a parser of its own behind the first");
            }
            self.is_parser = true;
            self.parser(parser);
            self.is_parser = false;
        }
        let (leave, original) = (self.asm.label(), self.asm.label());
        let tail = Tail { stage: id, next, leave, original };
        let (exit, end) = (self.asm.label(), self.asm.label());
        self.tail = finish.is_none().then_some(tail);
        self.block(control, exit);
        self.asm.bind(exit);
        if let Some(finish) = finish {
            self.tail = Some(tail);
            self.block(finish, end);
        }
        self.tail = None;
        self.asm.bind(end);
        self.drop_packet(self.program.reasons.len() + OtherDrop::NoDestination as usize);
        self.asm.bind(leave);
        self.begin_part(format!("end of stage {}", stage.name));
        self.check_port();
        let out = self.asm.label();
        self.leave(stage.deparser);
        self.asm.jump(out);
        self.asm.bind(original);
        self.check_port();
        self.asm.bind(out);
        self.redirect();
    }

    /// Hands a packet for a port that is no interface's to the CPU, unless it is finished first.
    fn check_port(&mut self) {
        if self.setting == Setting::Live && !self.is_stateful {
            self.look_up(self.maps.ports, word::EGRESS);
            self.asm.jump_if_imm(Cond::Eq, RESULT, 0, self.cpu);
        }
    }

    /// `LENGTH = ` bytes behind the parser and of the valid headers.
    fn stage_length(&mut self) {
        let counts = !self.program.counters.is_empty() || self.maps.tables.iter().any(|t| t.counts.is_some());
        if !counts && !meter::reads_length(self.program) {
            return;
        }
        self.load_word(A, word::TOTAL);
        self.load_word(B, word::POSITION);
        self.asm.alu(Alu::Sub, A, B);
        for (i, header) in self.program.headers.iter().enumerate() {
            let Some(ty) = self.program.header_types.get(header.ty.index()) else { continue };
            let at = self.layout.header(pipeline::ir::HeaderId::at(i));
            self.load_word(B, at);
            self.asm.alu_imm(Alu::Mul, B, (ty.fixed_bits() / 8) as i32);
            self.asm.alu(Alu::Add, A, B);
        }
        self.store_word(word::LENGTH, A);
    }

    /// Sets the variables that are bound to intrinsic metadata.
    fn slots(&mut self, stage: StageId) {
        let program = self.program;
        for (i, var) in program.vars.iter().enumerate() {
            let Some(slot) = var.slot else { continue };
            match slot {
                // The parser sets it.
                Slot::ParserError => continue,
                Slot::IngressPort => self.asm.later(A, later::INGRESS_PORT),
                Slot::EgressPort => self.load_word(A, word::EGRESS),
                Slot::PacketLength => self.load_word(A, word::LENGTH),
                Slot::Instance => self.load_word(A, word::INSTANCE),
                Slot::IngressTime => self.load_word(A, word::NOW),
                Slot::StageTime => match self.setting {
                    Setting::Test => self.load_word(A, word::NOW),
                    Setting::Live => {
                        self.asm.call(helper::TIME);
                        self.asm.mov(A, RESULT);
                    }
                },
                Slot::Class if stage.0 > 0 => {
                    self.load_word(A, word::CLASS);
                    let chosen = self.asm.label();
                    self.asm.jump_if_imm(Cond::Ne, A, -1, chosen);
                    self.asm.set(A, 0);
                    self.asm.bind(chosen);
                }
                // Cards have one class and no queue to look at.
                Slot::Class
                | Slot::Replica
                | Slot::EnqueueDepth
                | Slot::DequeueDepth
                | Slot::QueueDelay
                | Slot::FlowHash
                | Slot::Flags => self.asm.set(A, 0),
            }
            self.mask_to(var.ty.width(), 64);
            let at = self.layout.var(pipeline::ir::VarId::at(i));
            self.store_word(at, A);
            (1..words(var.ty.width()) as i16).for_each(|word| self.store_number(at + 8 * word, 0));
        }
    }

    /// `A = A` modulo 2^width, if it may have more than that of its `bits`.
    fn mask_to(&mut self, width: u16, bits: u16) {
        if width < bits.min(64) {
            self.asm.mask(A, low_bits(width), C);
        }
    }

    /// Drops the packet for a reason of the program.
    fn drop_for(&mut self, reason: ReasonId) {
        self.drop_packet(reason.index());
    }

    fn drop_packet(&mut self, reason: usize) {
        let part = self.part.clone();
        self.begin_part(VERDICTS.into());
        let at = self.layout.drops + 8 * reason as i16;
        self.count_word(at);
        self.store_number(word::VERDICT, crate::Verdict::DROPPED);
        self.store_number(word::DETAIL, reason as i32);
        if self.past.has_digest {
            self.jump_if_digest(self.digested);
        }
        self.asm.set(RESULT, XDP_DROP);
        self.asm.exit();
        self.begin_part(part);
    }

    /// Sends the packet to the port.
    fn redirect(&mut self) {
        self.begin_part(VERDICTS.into());
        if self.is_stateful && self.setting == Setting::Live {
            self.look_up(self.maps.ports, word::EGRESS);
            self.asm.jump_if_imm(Cond::Eq, RESULT, 0, self.finished);
        }
        if self.past.has_digest {
            self.jump_if_digest(self.finished);
        }
        self.count_word(word::SENT);
        self.store_number(word::VERDICT, crate::Verdict::SENT);
        self.load_word(B, word::EGRESS);
        self.store_word(word::DETAIL, B);
        self.asm.map(A, self.maps.ports);
        // Of ports that no interface is, packets are dropped.
        self.asm.set(C, XDP_DROP);
        self.asm.call(helper::REDIRECT_MAP);
        self.asm.exit();
    }
}

/// A mask of so many low bits.
fn low_bits(width: u16) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

//! From a checked program to machine code.
//!
//! Compilation is for control threads: it allocates and takes milliseconds. It refuses what would exceed its bounds
//! ([`Options`]), and says why ([`Unsupported`]); the interpreter runs such programs.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{Function, UserFuncName};
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use pipeline::Checked;
use pipeline::interp::Limits;
use pipeline::ir::{
    Action, ActionId, BlockId, Expr, Param, ParserOp, Program, Selection, Slot, Stage, Stmt, TableId, VarId,
};

use crate::code::{ActionCode, BoundVar, Code, Functions, Writer, new_id};
use crate::emit::{Emit, Shared, can_arrive, can_fuse, most_written, signature};
use crate::layout::Layout;
use crate::special::decided::{Origin, Origins};
use crate::special::flow_key::FlowKey;
use crate::special::{Defined, Reads, assigned_vars, each, is_identity, may_repeat};

/// Bounds of compilation.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bounds of what a packet may cause; code has them as constants.
    pub limits: Limits,
    /// Most bytes of machine code of a program or of an action.
    pub code: usize,
    /// Most bytes of stack that a packet may need, at the deepest nesting that the limits allow.
    pub stack: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { limits: Limits::default(), code: 16 << 20, stack: 1 << 20 }
    }
}

/// Reasons for not compiling a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// Headers and variables need a larger frame than code can address.
    #[error("headers and variables exceed 16 MiB")]
    Frame,
    /// More machine code than permitted.
    #[error("the machine code has {found} bytes, more than the limit of {limit}")]
    Code {
        /// Bytes needed.
        found: usize,
        /// Bytes permitted.
        limit: usize,
    },
    /// More stack than permitted.
    #[error("nested calls may need {found} bytes of stack, more than the limit of {limit}")]
    Stack {
        /// Bytes needed.
        found: usize,
        /// Bytes permitted.
        limit: usize,
    },
    /// The compiler failed, or has no backend for this processor.
    #[error("the compiler failed: {0}")]
    Compiler(String),
    /// The system refused executable memory.
    #[error("no executable memory: {0}")]
    Memory(String),
}

/// Stack of the runtime's functions between two functions of generated code, bytes.
const RUNTIME_FRAME: usize = 1024;

/// Compiles a program.
///
/// # Errors
/// Why it is not compiled.
pub fn compile(program: &Checked, options: &Options) -> Result<Code, Unsupported> {
    let layout = Layout::new(program).ok_or(Unsupported::Frame)?;
    let Compiled { functions, .. } = functions(program, &layout, options, &Defined::new(), None)?;
    let fits = options.limits.window <= options.limits.headers;
    let identity = program.parsers.iter().map(|parser| {
        let stages = program.stages.iter();
        stages.map(|stage| fits && is_identity(program, parser, deparser(program, stage))).collect()
    });
    Ok(Code {
        id: new_id(),
        limits: options.limits,
        has_time: true,
        slots: slots(program, &layout, |_| true),
        emits_only: deparsers_emit_only(program),
        writers: vec![],
        identity: identity.collect(),
        keys: key_functions(program),
        reads_payload: true,
        is_unchanging: false,
        measures: true,
        sends_on: false,
        entered: vec![],
        reads_env: false,
        reads_hits: false,
        prepares: vec![],
        arrival: None,
        all_stages: None,
        resumes: false,
        flow_key: None,
        flow_parts: vec![],
        uses_ingress: true,
        actions: vec![],
        program: program.clone(),
        functions,
        layout,
    })
}

/// How packets pass through a residual program: the fields of [`Code`] with these names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Passage {
    pub(crate) is_unchanging: bool,
    pub(crate) measures: bool,
    pub(crate) sends_on: bool,
}

/// Compiles the residual of a program. `places` gives each action its place among the addresses of actions.
pub(crate) fn compile_residual(
    general: &Code,
    program: Program,
    actions: &Defined,
    (reads, tables): (&Reads, &BTreeSet<TableId>),
    Passage { is_unchanging, measures, sends_on }: Passage,
    options: &Options,
    places: &HashMap<ActionId, u32>,
) -> Result<Code, Unsupported> {
    let invalid = |errors| Unsupported::Compiler(format!("residual program: {errors:?}"));
    let program = Checked::new(program).map_err(invalid)?;
    let layout = Layout::of(&program, Some((reads, tables))).ok_or(Unsupported::Frame)?;
    let origins = Origins::of(&program, actions);
    let key = FlowKey::of(&program, actions, tables, &origins).filter(|_| parses_alone(&program));
    let words = key.as_ref().map(|key| key.layout.words);
    let flow_parts = key.as_ref().map(|key| key.parts.clone()).unwrap_or_default();
    let slots = slots(&program, &layout, |id| reads.var(id));
    let entered = if program.stages.len() > 1 { entered(&program, actions, &layout, reads) } else { vec![] };
    let reads_hits = has_entry_meters(&program, actions);
    let is_plain = !(sends_on || measures || reads_hits) && entered.iter().all(BoundVar::follows_from_port);
    let entered_plainly = is_plain.then_some(&entered[..]);
    let residual =
        Residual { origins: &origins, key, writes: !is_unchanging, slots: &slots, entered: entered_plainly };
    let Compiled { functions, first_defined, prepares, flow_key, writers, arrival, all_stages } =
        functions(&program, &layout, options, actions, Some(residual))?;
    let mut addresses = Vec::new();
    let own = (0..program.actions.len()).map(|i| (i, program.blocks.len() + i));
    let defined = actions.keys().enumerate();
    let defined = defined.filter_map(|(i, id)| Some((*places.get(id)? as usize, first_defined + i)));
    for (place, function) in own.chain(defined) {
        if addresses.len() <= place {
            addresses.resize(place + 1, 0);
        }
        if let Some(slot) = addresses.get_mut(place) {
            *slot = functions.address(function);
        }
    }
    Ok(Code {
        id: new_id(),
        limits: general.limits,
        has_time: slots.iter().any(|bound| bound.slot == Slot::StageTime),
        slots,
        emits_only: deparsers_emit_only(&program),
        writers,
        identity: general.identity.clone(),
        keys: vec![],
        reads_payload: reads.payload,
        is_unchanging,
        measures,
        sends_on,
        reads_env: entered.iter().any(|bound| {
            let slot = bound.slot;
            matches!(slot, Slot::StageTime | Slot::EnqueueDepth | Slot::DequeueDepth | Slot::QueueDelay)
        }),
        entered,
        reads_hits,
        resumes: !prepares.is_empty() && may_repeat(&program, &first_blocks(&program)),
        prepares,
        arrival,
        all_stages,
        flow_key: flow_key.zip(words),
        flow_parts,
        uses_ingress: origins.uses_ingress,
        actions: addresses,
        program,
        functions,
        layout,
    })
}

/// Functions in the order that [`Code`] has them.
struct Compiled {
    functions: Functions,
    /// Index of the first defined action.
    first_defined: usize,
    /// Those that prepare the first lookup.
    prepares: Vec<(BlockId, usize)>,
    /// The one that lays out the flow key.
    flow_key: Option<usize>,
    /// Writers of stages.
    writers: Vec<Option<Writer>>,
    /// The one that begins a pass.
    arrival: Option<usize>,
    /// The one of all stages.
    all_stages: Option<usize>,
}

/// What is known of a residual program.
struct Residual<'a> {
    origins: &'a Origins,
    key: Option<FlowKey>,
    /// Whether packets may leave with new headers.
    writes: bool,
    /// Variables that the environment fills in.
    slots: &'a [BoundVar],
    /// See [`Shared::entered`].
    entered: Option<&'a [BoundVar]>,
}

/// Compiles the functions of a program, then defined actions.
fn functions(
    program: &Checked,
    layout: &Layout,
    options: &Options,
    defined: &Defined,
    residual: Option<Residual<'_>>,
) -> Result<Compiled, Unsupported> {
    let mut compiler = Compiler::new(options)?;
    let special = residual.is_some();
    let origins = residual.as_ref().map(|residual| residual.origins);
    let entered = residual.as_ref().and_then(|residual| residual.entered);
    let writes = residual.as_ref().is_some_and(|residual| residual.writes);
    let slots = residual.as_ref().map_or(&[][..], |residual| residual.slots);
    let key = residual.and_then(|residual| residual.key);
    let keys = if special { vec![] } else { key_functions(program) };
    let limits = &options.limits;
    let cx = Shared { program, layout, limits, origins, keys: &keys, entered, constants: RefCell::default() };
    let args = |id| origins.map_or(Origin::Other, |origins| origins.args(id));
    for (_, body) in &program.blocks {
        compiler.body(&cx, &[], args(None), body)?;
    }
    for (i, action) in program.actions.iter().enumerate() {
        compiler.body(&cx, &action.params, args(Some(ActionId::at(i))), &action.body)?;
    }
    for parser in &program.parsers {
        compiler.function(&cx, &[], |e| e.parser(parser))?;
    }
    let none = Selection { hash: pipeline::ir::HashKind::Identity, input: vec![] };
    let of_groups = program.groups.iter().map(|groups| &groups.select);
    let of_profiles = program.profiles.iter().map(|profile| profile.select.as_ref().unwrap_or(&none));
    for select in of_groups.chain(of_profiles) {
        compiler.function(&cx, &[], |e| e.selection(select))?;
    }
    let mut done = compiler.offsets.len();
    for (schema, index) in program.tables.iter().zip(&keys) {
        if *index == done {
            compiler.function(&cx, &[], |e| e.key_function(schema))?;
            done += 1;
        }
    }
    let first_defined = compiler.offsets.len();
    for (id, action) in defined {
        compiler.body(&cx, &action.params, args(Some(*id)), &action.body)?;
    }
    let mut prepares = Vec::new();
    if special && parses_alone(program) {
        for id in first_blocks(program) {
            let Some((_, body)) = program.blocks.get(id.index()) else { continue };
            prepares.push((id, compiler.offsets.len()));
            compiler.function(&cx, &[], |e| e.preparation(body))?;
        }
    }
    let mut flow_key = None;
    if let Some(key) = &key {
        flow_key = Some(compiler.offsets.len());
        compiler.function(&cx, &[], |e| e.flow_key(key))?;
    }
    let mut writers = Vec::new();
    for stage in program.stages.iter().filter(|_| writes) {
        let body = deparser(program, stage);
        let most = most_written(program, layout, body).filter(|most| *most <= limits.headers);
        writers.push(most.map(|most| Writer { function: compiler.offsets.len(), most }));
        if most.is_some() {
            compiler.function(&cx, &[], |e| e.writer(body))?;
        }
    }
    let (mut arrival, mut all_stages) = (None, None);
    let bodies: Vec<_> =
        prepares.iter().filter_map(|(id, _)| Some(&program.blocks.get(id.index())?.1[..])).collect();
    if let Some(body) = bodies.first().filter(|_| can_arrive(program, layout.stacks, &bodies)) {
        let parser = program.stages.first().and_then(|stage| program.parsers.get(stage.parser?.index()));
        arrival = compiler.fused(&cx, |e| e.arrival(parser, slots, body));
    }
    if special && can_fuse(program, defined.values().map(|action| &action.body[..])) {
        all_stages = compiler.fused(&cx, |e| e.stages(args(None), &program.stages));
    }
    let operands = cx.constants.into_inner();
    let functions = compiler.finish(operands)?;
    Ok(Compiled { functions, first_defined, prepares, flow_key, writers, arrival, all_stages })
}

/// For each table, the index of the function that lays out its keys. These functions follow those of selections.
fn key_functions(program: &Program) -> Vec<usize> {
    let first = program.blocks.len()
        + program.actions.len()
        + program.parsers.len()
        + program.groups.len()
        + program.profiles.len();
    let mut seen: HashMap<Vec<&Expr>, usize> = HashMap::new();
    let tables = program.tables.iter().map(|table| {
        let values: Vec<_> = table.keys.iter().map(|key| &key.value).collect();
        let next = first + seen.len();
        *seen.entry(values).or_insert(next)
    });
    tables.collect()
}

/// Whether parsers do nothing but parse: then a packet may be parsed twice.
fn parses_alone(program: &Program) -> bool {
    let mut alone = true;
    for op in program.parsers.iter().flat_map(|parser| &parser.states).flat_map(|state| &state.ops) {
        if let ParserOp::Do(stmt) = op {
            each(std::slice::from_ref(stmt), &mut |stmt| {
                alone &= !matches!(
                    stmt,
                    Stmt::Random(..)
                        | Stmt::RegisterRead(..)
                        | Stmt::RegisterWrite(..)
                        | Stmt::Extern(..)
                        | Stmt::Count(..)
                );
            });
        }
    }
    alone
}

/// The first stage's control, and the blocks that it continues in by itself.
fn first_blocks(program: &Program) -> Vec<BlockId> {
    const MOST: usize = 8;
    let mut blocks: Vec<_> = program.stages.first().map(|stage| stage.control).into_iter().collect();
    let mut at = 0;
    while let Some((_, body)) = blocks.get(at).copied().and_then(|id| program.blocks.get(id.index())) {
        each(body, &mut |stmt| {
            if let Stmt::Goto(to) = stmt
                && !blocks.contains(to)
                && blocks.len() < MOST
            {
                blocks.push(*to);
            }
        });
        at += 1;
    }
    blocks
}

/// Variables that the environment fills in, of those that are read.
fn slots(program: &Program, layout: &Layout, is_read: impl Fn(VarId) -> bool) -> Vec<BoundVar> {
    let vars = program.vars.iter().enumerate().map(|(i, var)| (VarId::at(i), var));
    let bound = vars.filter(|(id, _)| is_read(*id));
    bound.filter_map(|(id, var)| Some(BoundVar::new(var.slot?, layout.var(id), var.ty.width()))).collect()
}

/// Of these variables, those that may have another value in the second stage.
fn entered(program: &Program, defined: &Defined, layout: &Layout, reads: &Reads) -> Vec<BoundVar> {
    let mut assigned = BTreeSet::new();
    each_of_all(program, defined, &mut |stmt| assigned.extend(assigned_vars(stmt)));
    for op in program.parsers.iter().flat_map(|parser| &parser.states).flat_map(|state| &state.ops) {
        if let ParserOp::Do(stmt) = op {
            each(std::slice::from_ref(stmt), &mut |stmt| assigned.extend(assigned_vars(stmt)));
        }
    }
    let changes = |id: VarId| {
        let slot = program.vars.get(id.index()).and_then(|var| var.slot);
        let differs = matches!(
            slot,
            Some(
                Slot::EgressPort
                    | Slot::Instance
                    | Slot::Replica
                    | Slot::PacketLength
                    | Slot::StageTime
                    | Slot::Class
                    | Slot::EnqueueDepth
                    | Slot::DequeueDepth
                    | Slot::QueueDelay
            )
        );
        // Without a parser, a stage keeps the error of the stage that parsed.
        slot != Some(Slot::ParserError) && (differs || assigned.contains(&id))
    };
    slots(program, layout, |id| reads.var(id) && changes(id))
}

/// Whether statements use the meter of an entry that was hit before.
fn has_entry_meters(program: &Program, defined: &Defined) -> bool {
    let mut has = false;
    each_of_all(program, defined, &mut |stmt| has |= matches!(stmt, Stmt::MeterEntry(..)));
    has
}

/// Calls `f` for each statement of blocks and actions, nested ones too.
fn each_of_all<'p>(program: &'p Program, defined: &'p Defined, f: &mut dyn FnMut(&'p Stmt)) {
    let actions = program.actions.iter().chain(defined.values()).map(|action| &action.body);
    program.blocks.iter().map(|(_, body)| body).chain(actions).for_each(|body| each(body, f));
}

fn deparsers_emit_only(program: &Program) -> Vec<bool> {
    program.stages.iter().map(|stage| deparser(program, stage).is_none_or(emits_only)).collect()
}

/// The statements of a stage's deparser, if it has one of its own.
fn deparser<'p>(program: &'p Program, stage: &Stage) -> Option<&'p [Stmt]> {
    let (_, body) = program.blocks.get(stage.deparser?.index())?;
    Some(body)
}

/// Compiles an action that was added to a compiled program.
pub(crate) fn compile_action(
    code: &Code,
    action: &Action,
    options: &Options,
    slot: u32,
) -> Result<ActionCode, Unsupported> {
    let mut compiler = Compiler::new(options)?;
    let cx = Shared {
        entered: None,
        program: &code.program,
        layout: &code.layout,
        limits: &code.limits,
        origins: None,
        keys: &code.keys,
        constants: RefCell::default(),
    };
    compiler.function(&cx, &action.params, |e| e.function(&action.body))?;
    let operands = cx.constants.into_inner();
    Ok(ActionCode { functions: compiler.finish(operands)?, action: action.clone(), slot })
}

/// Whether statements only emit headers: then deparsing needs no copy of the packet's data.
fn emits_only(body: &[Stmt]) -> bool {
    body.iter().all(|stmt| match stmt {
        Stmt::Emit(_) => true,
        Stmt::If(_, yes, no) => emits_only(yes) && emits_only(no),
        _ => false,
    })
}

struct Compiler {
    isa: OwnedTargetIsa,
    context: Context,
    builder: FunctionBuilderContext,
    code: Vec<u8>,
    offsets: Vec<usize>,
    largest_frame: u32,
    /// The largest frame of functions that no others call.
    outer_frame: u32,
    /// Offset of a function without statements.
    empty: Option<usize>,
    options: Options,
}

impl Compiler {
    fn new(options: &Options) -> Result<Self, Unsupported> {
        let failed = |error: &dyn std::fmt::Display| Unsupported::Compiler(error.to_string());
        let mut flags = settings::builder();
        flags.set("opt_level", "speed").map_err(|error| failed(&error))?;
        if !cfg!(debug_assertions) {
            flags.set("enable_verifier", "false").map_err(|error| failed(&error))?;
        }
        let isa = cranelift_native::builder().map_err(|error| failed(&error))?;
        let isa = isa.finish(settings::Flags::new(flags)).map_err(|error| failed(&error))?;
        Ok(Self {
            isa,
            context: Context::new(),
            builder: FunctionBuilderContext::new(),
            code: vec![],
            offsets: vec![],
            largest_frame: 0,
            outer_frame: 0,
            empty: None,
            options: *options,
        })
    }

    /// Compiles statements as a function; those that are none share one.
    fn body<'a>(
        &mut self,
        cx: &'a Shared<'a>,
        params: &'a [Param],
        args: Origin,
        body: &'a [Stmt],
    ) -> Result<(), Unsupported> {
        match self.empty.filter(|_| body.is_empty() && cx.is_special()) {
            Some(offset) => self.offsets.push(offset),
            None => self.function(cx, params, |e| e.function_of(args, body))?,
        }
        if body.is_empty() && cx.is_special() {
            self.empty = self.offsets.last().copied();
        }
        Ok(())
    }

    /// Compiles a function and appends its code.
    fn function<'a>(
        &mut self,
        cx: &'a Shared<'a>,
        params: &'a [Param],
        emit: impl FnOnce(&mut Emit<'a, '_>),
    ) -> Result<(), Unsupported> {
        self.context.clear();
        self.context.func =
            Function::with_name_signature(UserFuncName::default(), signature(self.isa.default_call_conv()));
        let mut emitter = Emit::new(&mut self.context.func, &mut self.builder, cx, params);
        emit(&mut emitter);
        emitter.finish(self.isa.frontend_config());
        let failed = |error: &dyn std::fmt::Debug| Unsupported::Compiler(format!("{error:?}"));
        let isa: &dyn TargetIsa = &*self.isa;
        let compiled =
            self.context.compile(isa, &mut ControlPlane::default()).map_err(|error| failed(&error.inner))?;
        // All addresses are constants: there is nothing to relocate.
        if !compiled.buffer.relocs().is_empty() {
            return Err(Unsupported::Compiler("code with relocations".into()));
        }
        let align = (compiled.buffer.alignment as usize).max(16);
        self.code.resize(self.code.len().next_multiple_of(align), 0);
        self.offsets.push(self.code.len());
        self.code.extend_from_slice(compiled.code_buffer());
        self.largest_frame =
            self.largest_frame.max(compiled.buffer.frame_layout().map_or(0, |l| l.frame_to_fp_offset));
        if self.code.len() > self.options.code {
            return Err(Unsupported::Code { found: self.code.len(), limit: self.options.code });
        }
        Ok(())
    }

    /// Compiles a function that only the runtime calls, if it fits; returns its index. Without it, packets run those
    /// that it is made of.
    fn fused<'a>(&mut self, cx: &'a Shared<'a>, emit: impl FnOnce(&mut Emit<'a, '_>)) -> Option<usize> {
        let (code, index) = (self.code.len(), self.offsets.len());
        let others = std::mem::take(&mut self.largest_frame);
        let compiled = self.function(cx, &[], emit);
        let own = std::mem::replace(&mut self.largest_frame, others).max(self.outer_frame);
        if compiled.is_err() || self.stack(own) > self.options.stack {
            self.code.truncate(code);
            self.offsets.truncate(index);
            return None;
        }
        self.outer_frame = own;
        Some(index)
    }

    /// Stack that functions take at most, bytes, below one with this frame.
    fn stack(&self, outer: u32) -> usize {
        // Each function of code is at least one level deeper than its caller.
        let depth = self.options.limits.depth as usize;
        depth.saturating_mul(self.largest_frame as usize + RUNTIME_FRAME).saturating_add(outer as usize)
    }

    fn finish(self, operands: Vec<Arc<crate::code::Operand>>) -> Result<Functions, Unsupported> {
        let found = self.stack(self.outer_frame);
        if found > self.options.stack {
            return Err(Unsupported::Stack { found, limit: self.options.stack });
        }
        Functions::new(&self.code, &self.offsets, operands)
            .map_err(|error| Unsupported::Memory(error.to_string()))
    }
}

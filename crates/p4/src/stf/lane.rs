//! One execution of a program: its state and its surroundings, in the interpreter or as machine code.
//!
//! Lanes get the same commands and packets in the same order, so that all they do must be equal.

use std::fmt::Write;
use std::sync::Arc;

use codegen::{Code, Effects, Engine, Views, Worker};
use pipeline::Checked;
use pipeline::bits::Bits;
use pipeline::env::{Env, Functions, Queue};
use pipeline::interp::{self, Effect, Exit, Limits, Outcome, Received};
use pipeline::ir::{Constant, CounterId, Extern, RegisterId, TableId};
use pipeline::state::{Bundle, State, Update, UpdateError};

use super::run::Options;
use super::stack::CODE_STACK;

/// Most bytes of machine code.
const CODE: usize = 256 << 20;
/// Seed of random numbers.
const SEED: u64 = 1;
/// Most cells of an array that are compared.
pub(super) const CELLS: u32 = 1 << 16;

/// Surroundings: a clock that the runner moves, queues, random numbers from a seed, and functions.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) now: u64,
    /// State of all queues.
    pub(super) queue: Queue,
    seed: u64,
    functions: Option<Arc<dyn Functions>>,
}

impl World {
    fn new(options: &Options) -> Self {
        Self { now: 0, queue: Queue::default(), seed: SEED, functions: options.functions.clone() }
    }

    /// Whether random numbers have been drawn.
    pub(super) fn has_drawn(&self) -> bool {
        self.seed != SEED
    }

    /// Whether as many random numbers have been drawn at the same time.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.now, self.queue, self.seed) == (other.now, other.queue, other.seed)
    }
}

impl Env for World {
    fn now(&mut self) -> u64 {
        self.now
    }

    fn random(&mut self) -> u64 {
        // A linear congruential generator with Knuth's constants; its high bits are the better ones.
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.seed.rotate_left(32)
    }

    fn is_live(&self, _: u32) -> bool {
        true
    }

    fn ports(&self, _: u32, _: bool) -> Vec<u32> {
        Vec::new()
    }

    fn queue(&mut self, _: u32, _: u8) -> Queue {
        self.queue
    }

    fn call(&mut self, function: &Extern, args: &[Constant], results: &mut [Constant]) -> bool {
        self.functions.as_ref().is_some_and(|functions| functions.call(function, args, results))
    }
}

/// The interpreter.
pub(super) struct Interpreter {
    pub(super) state: State,
    pub(super) world: World,
    pub(super) limits: Limits,
}

impl Interpreter {
    pub(super) fn new(state: State, options: &Options) -> Self {
        Self { state, world: World::new(options), limits: options.limits }
    }

    pub(super) fn run(&mut self, received: &Received<'_>, trace: bool) -> Outcome {
        interp::run(&self.state, &mut self.world, received, &self.limits, trace)
    }

    pub(super) fn apply(&mut self, updates: Vec<Update>) -> Result<Bundle, UpdateError> {
        self.state.apply(updates, self.world.now)
    }
}

/// Machine code.
pub(super) struct Compiled {
    /// Name for messages.
    pub(super) name: &'static str,
    pub(super) state: State,
    pub(super) world: World,
    engine: Engine,
    views: Views,
    worker: Worker,
}

/// Machine code, and machine code that [`Compiled::improve`] specialises.
pub(super) fn compile(program: &Checked, options: &Options) -> Result<[Compiled; 2], String> {
    let world = World::new(options);
    let options = codegen::Options { limits: options.limits, code: CODE, stack: CODE_STACK };
    let code = Arc::new(codegen::compile(program, &options).map_err(|error| error.to_string())?);
    let lane = |name| Compiled::new(name, State::new(program.clone()), world.clone(), code.clone(), options);
    Ok([lane("machine code")?, lane("specialised machine code")?])
}

impl Compiled {
    fn new(
        name: &'static str,
        state: State,
        world: World,
        code: Arc<Code>,
        options: codegen::Options,
    ) -> Result<Self, String> {
        let engine = Engine::with_code(&state, code, options).map_err(|error| error.to_string())?;
        let (views, worker) = (engine.views(), Worker::alone());
        Ok(Self { name, state, world, engine, views, worker })
    }

    /// Makes code for the entries that are there.
    pub(super) fn improve(&mut self) {
        self.engine.improve();
    }

    /// Whether packets run code for the entries that are there.
    pub(super) fn is_specialised(&self) -> bool {
        self.engine.is_specialised()
    }

    /// Makes lookups fast.
    pub(super) fn improve_tables(&mut self) {
        self.engine.improve_tables();
    }

    pub(super) fn run(&mut self, received: &Received<'_>) -> Vec<Effect> {
        let mut effects = Effects::default();
        self.worker.run(&self.views.load(), &mut self.world, received, &mut effects);
        effects.to_interp()
    }

    /// Effects of each packet.
    pub(super) fn run_batch(&mut self, batch: &[Received<'_>]) -> Vec<Vec<Effect>> {
        let (mut effects, mut fates) = (Effects::default(), Vec::new());
        let packets = batch.iter().copied();
        self.worker.run_batch(&self.views.load(), &mut self.world, packets, &mut effects, &mut fates);
        effects.to_interp_each(&fates, batch.iter().map(|packet| packet.len))
    }

    pub(super) fn apply(&mut self, updates: Vec<Update>) -> Result<(), String> {
        let bundle = self.state.apply(updates, self.world.now).map_err(|error| error.to_string())?;
        self.engine.follow(&self.state, &bundle).map_err(|error| error.to_string())
    }
}

/// An effect with all bytes, so that equal texts are equal effects.
pub(super) fn text(effect: &Effect, state: &State, received: &Received<'_>) -> String {
    let mut text = match effect {
        Effect::Output { to: Exit::Port(port), class, queue, .. } => {
            let mut text = format!("output to port {port}");
            // Writing to a string succeeds.
            class.iter().for_each(|class| _ = write!(text, ", class {class}"));
            queue.iter().for_each(|queue| _ = write!(text, ", queue {queue}"));
            text
        }
        effect => effect.text(state),
    };
    match effect {
        Effect::Output { packet, .. } | Effect::Controller { packet, .. } => {
            text += ": ";
            text += &hex(&packet.bytes(received));
        }
        Effect::Digest { .. } | Effect::Drop(_) => {}
    }
    if let Effect::Controller { data, .. } = effect {
        text += ", data ";
        text += &hex(data);
    }
    text
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string succeeds.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What packets have changed: counters, registers, counts of entries and tables. Cells that are 0 are left out.
pub(super) fn counts(state: &State) -> Vec<String> {
    let (program, arrays) = (state.program(), state.arrays());
    let mut lines = Vec::new();
    for (i, counter) in program.counters.iter().enumerate() {
        for cell in 0..counter.size.min(CELLS) {
            let count = arrays.counter(CounterId::at(i), cell.into()).map_or((0, 0), |stats| stats.get());
            if count != (0, 0) {
                lines.push(format!(
                    "counter {}[{cell}]: {} packets, {} bytes",
                    counter.name, count.0, count.1
                ));
            }
        }
    }
    let guard = arrays.lock();
    for (i, register) in program.registers.iter().enumerate() {
        for cell in 0..register.size.min(CELLS) {
            let value = arrays.read(&guard, RegisterId::at(i), cell.into());
            if let Some(value) = value.filter(|value: &Bits| !value.is_zero()) {
                lines.push(format!("register {}[{cell}]: {value}", register.name));
            }
        }
    }
    for (i, (schema, table)) in program
        .tables
        .iter()
        .enumerate()
        .filter_map(|(i, schema)| Some((i, (schema, state.table(TableId::at(i))?))))
    {
        let (lookups, hits) = table.lookups();
        lines.push(format!("table {} ({i}): {lookups} lookups, {hits} hits", schema.name));
        for entry in table.entries() {
            let (packets, bytes) = entry.stats.hits();
            lines.push(format!("entry {} of {}: {packets} packets, {bytes} bytes", entry.id.0, schema.name));
        }
    }
    lines
}

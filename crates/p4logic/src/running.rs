//! A program as packets see it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use match_action::{Compiled, Subject};
use p4switch::Program;
use pipeline::env::{Functions, check_functions};
use pipeline::interp::Limits;
use pipeline::ir::Slot;

use crate::ports::Link;
use crate::window::window;

/// What is compiled.
pub(crate) const SUBJECT: Subject = Subject {
    name: "P4 programs",
    limits: LIMITS,
    compile: |state, options| codegen::compile(state.program(), options).map(Arc::new),
};

/// Bounds of what a packet may cause.
pub(crate) const LIMITS: Limits = Limits {
    steps: 100_000,
    depth: 256,
    parser_states: 256,
    window: match_action::WINDOW,
    headers: 576,
    passes: 256,
    rounds: 16,
    effects: 4096,
};

/// CPU port of programs whose ports have 32 bits, as those for PSA.
const WIDE_CPU_PORT: u32 = 0xffff_fffd;
/// CPU port of other programs.
pub(crate) const CPU_PORT: u32 = 510;

/// Settings that programs depend on.
#[derive(Debug, Clone, Default)]
pub struct ProgramSettings {
    /// Number of the port that leads to controllers; `None`: the architecture's.
    pub cpu_port: Option<u32>,
    /// The link of a line card. Ports follow it at once, whatever runs.
    pub link: Link,
    /// Functions that programs may declare as `extern`.
    pub functions: Option<Arc<dyn Functions>>,
    /// Whether the interfaces of ports run programs in XDP.
    pub xdp: bool,
    /// The parameters that say so, for people.
    pub params: Vec<(String, String)>,
}

impl ProgramSettings {
    /// Checks that all extern functions of a program exist.
    pub(crate) fn check(&self, program: &Program) -> Result<(), String> {
        check_functions(&program.checked, self.functions.as_deref(), "`--param functions=FILE`")
    }

    /// Whether programs run alike with both. Functions that were loaded again are others.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let same = match (&self.functions, &other.functions) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        };
        self.cpu_port == other.cpu_port && self.xdp == other.xdp && same
    }
}

/// The number by which notes of packets that XDP has finished name a program ([`xdp::Finished`]).
pub(crate) fn of_notes(number: u64) -> u32 {
    number as u32 & i32::MAX as u32
}

/// A program as packets see it.
#[derive(Debug)]
pub(crate) struct Running {
    /// Tells it from any other of this logic; never 0.
    pub(crate) number: u64,
    pub(crate) program: Arc<Program>,
    pub(crate) compiled: Arc<Compiled>,
    /// Port that leads to controllers.
    pub(crate) cpu_port: u32,
    /// Functions that it declares.
    pub(crate) functions: Option<Arc<dyn Functions>>,
    /// Bytes of a packet that it may read.
    pub(crate) window: usize,
    /// Whether it sees the time to the nanosecond.
    pub(crate) reads_time: bool,
    /// Whether it sees how long queues are.
    pub(crate) reads_depth: bool,
    /// Whether packets are segmented and their checksums completed before it sees them; see [`crate::offload`].
    pub(crate) wants_plain: AtomicBool,
}

impl Running {
    pub(crate) fn new(
        number: u64,
        program: Arc<Program>,
        compiled: Arc<Compiled>,
        program_settings: &ProgramSettings,
    ) -> Self {
        let ir = &program.checked;
        let has_slot = |wanted: &[Slot], width: u16| {
            ir.vars
                .iter()
                .any(|var| var.slot.is_some_and(|slot| wanted.contains(&slot)) && var.ty.width() >= width)
        };
        let is_wide = has_slot(&[Slot::IngressPort], 32);
        let has_meters = !ir.meters.is_empty() || ir.tables.iter().any(|table| table.meter.is_some());
        Self {
            number,
            cpu_port: program_settings.cpu_port.unwrap_or(if is_wide { WIDE_CPU_PORT } else { CPU_PORT }),
            functions: program_settings.functions.clone(),
            window: window(ir),
            reads_time: has_meters || has_slot(&[Slot::IngressTime, Slot::StageTime], 0),
            reads_depth: has_slot(&[Slot::EnqueueDepth, Slot::DequeueDepth], 0),
            wants_plain: AtomicBool::new(false),
            compiled,
            program,
        }
    }
}

//! The reference interpreter: it is the meaning of programs.
//!
//! [`run`] takes a received packet through a program and returns what happens to it: a list of [`Effect`]s in their
//! order and, on request, a trace. It is written for reading: expressions are evaluated as trees, tables are searched
//! from first to last, headers are lists of values. Generated code must produce the same effects.
//!
//! A *pass* is one packet in one stage. The received packet is the first; packets that statements send through a stage
//! wait in a queue until the current pass ends. A pass that ends without any effect drops its packet, for
//! [`Dropped::NoDestination`].
//!
//! Nothing panics and everything ends, whatever the packet and the entries: [`Limits`] bound the statements of a
//! packet, the depth of calls, parser states, passes and rounds through stages. A pass that exceeds one ends and drops
//! its packet; effects so far remain.
//!
//! Decisions that programs can observe, in one place:
//! - Headers, variables and registers are zero until written. Invalid headers keep their content, and can be read and
//!   written; so nothing is undefined.
//! - A stack's element beyond the stack reads as zero, and writes to it are ignored; the same holds for registers,
//!   counters and meters beyond their arrays (a meter's colour there is green).
//! - Validating a member of a union invalidates the others, also when a parser extracts it.
//! - A parser that ends with an error leaves the headers extracted before; the payload starts behind the last bytes
//!   consumed. `control` runs in any case.
//! - Shifts by the width or more give zero, or the sign. Division by zero gives all ones; its remainder is the
//!   dividend.
//! - An action's parameters are constants. Assignments take effect in order.
//! - Sending captures headers, variables and payload at once; a later assignment does not change what was sent.
//! - A group's buckets work on copies: what they change is not seen behind the group.
//! - The deparser works on a copy too.
//!
//! - `packet.rs`: packets as bytes; `pass.rs`: headers, variables and the intrinsic metadata of a pass;
//! - `eval.rs`: expressions and places; `exec.rs`: statements that compute; `flow.rs`: statements that branch;
//! - `lookup.rs`: tables, selections, groups; `send.rs`: destinations; `parse.rs`, `deparse.rs`; `trace.rs`;
//! - `replay.rs`: packets that pause.

mod deparse;
mod eval;
mod exec;
mod flow;
mod lookup;
mod packet;
mod parse;
mod pass;
mod replay;
mod send;
mod trace;

use std::collections::VecDeque;

use crate::env::Env;
use crate::ir::{Constant, DigestId, ErrorId, ExternId, Program, ReasonId, StageId, TableId};
use crate::state::{EntryId, RegisterGuard, State};

pub use eval::binary;
pub use packet::{Form, Received};
pub use replay::{Replay, Resumed, resume};
pub use trace::{Event, Place};

use pass::{Arrival, Pass};

/// Bounds of what one received packet may cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Statements, parser operations and states, of all passes together.
    pub steps: u32,
    /// Statements, blocks, actions and groups within each other.
    pub depth: u32,
    /// States of one parser run.
    pub parser_states: u32,
    /// Bytes from a packet's start that parsers see: what the fabric can pull.
    pub window: usize,
    /// Bytes of headers and inserted data in front of what is left of the received packet.
    pub headers: usize,
    /// Passes.
    pub passes: u32,
    /// Times that a packet and those sent from it enter a stage that is not behind the current one.
    pub rounds: u32,
    /// Effects, not counting drops.
    pub effects: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps: 100_000,
            depth: 256,
            parser_states: 256,
            window: 512,
            headers: 576,
            passes: 256,
            rounds: 16,
            effects: 4096,
        }
    }
}

/// A limit that a pass exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// [`Limits::steps`].
    Steps,
    /// [`Limits::depth`].
    Depth,
    /// [`Limits::headers`].
    Headers,
    /// [`Limits::passes`].
    Passes,
    /// [`Limits::rounds`].
    Rounds,
    /// [`Limits::effects`].
    Effects,
}

/// Reasons for which a packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// The program says so.
    Reason(ReasonId),
    /// The pass ended without sending the packet anywhere.
    NoDestination,
    /// A limit.
    Limit(Limit),
    /// The environment has no such function.
    NoExtern(ExternId),
}

/// Where a packet leaves to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exit {
    /// A port.
    Port(u32),
    /// All ports except the ingress port and those excluded from flooding.
    Flood,
    /// All ports except the ingress port.
    All,
    /// The bridge's fallback logic.
    Fallback,
}

/// Something that happens to a packet or because of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A packet leaves.
    Output {
        /// Where to.
        to: Exit,
        /// Its bytes.
        packet: Form,
        /// Traffic class, if the program chose one.
        class: Option<u8>,
        /// Egress queue, if the program chose one.
        queue: Option<u16>,
    },
    /// A packet goes to the controller.
    Controller {
        /// Reason.
        reason: u8,
        /// Its bytes.
        packet: Form,
        /// Most bytes that the controller wants.
        limit: Option<u16>,
        /// The statement's data.
        data: Vec<u8>,
        /// Table that was looked up last, and the entry hit.
        origin: Option<(TableId, Option<EntryId>)>,
    },
    /// Values go to the control plane.
    Digest {
        /// Kind.
        digest: DigestId,
        /// Values.
        values: Vec<Constant>,
    },
    /// A packet is dropped.
    Drop(Dropped),
}

impl Effect {
    /// The same with the canonical form of its packet ([`Form::canonical`]): effects that mean the same are equal then.
    pub fn canonical(mut self, received: &Received<'_>) -> Self {
        if let Effect::Output { packet, .. } | Effect::Controller { packet, .. } = &mut self {
            *packet = std::mem::take(packet).canonical(received);
        }
        self
    }
}

/// What became of a received packet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Effects, in order.
    pub effects: Vec<Effect>,
    /// The trace, if one was requested.
    pub trace: Vec<Event>,
    /// Statements, parser operations and states executed.
    pub steps: u32,
}

/// Runs the program of `state` on a packet.
pub fn run(
    state: &State,
    env: &mut dyn Env,
    received: &Received<'_>,
    limits: &Limits,
    trace: bool,
) -> Outcome {
    execute(state, env, received, limits, Mode { trace, rehearsal: false }, None)
}

/// Runs the program of `state` on a packet as [`run`] does, with a trace, and leaves the state as it is: counts, times
/// of hits, meters and registers. What the packet would write to a register it does not read back.
pub fn rehearse(state: &State, env: &mut dyn Env, received: &Received<'_>, limits: &Limits) -> Outcome {
    execute(state, env, received, limits, Mode { trace: true, rehearsal: true }, None)
}

#[derive(Clone, Copy)]
struct Mode {
    trace: bool,
    /// Nothing in the state changes.
    rehearsal: bool,
}

fn execute(
    state: &State,
    env: &mut dyn Env,
    received: &Received<'_>,
    limits: &Limits,
    mode: Mode,
    progress: Option<replay::Progress<'_>>,
) -> Outcome {
    let mut machine = Machine {
        program: state.program(),
        state,
        env,
        received,
        limits,
        mode,
        outcome: Outcome::default(),
        waiting: VecDeque::new(),
        passes: 0,
        depth: 0,
        guard: None,
        groups: 0,
        progress,
    };
    machine.waiting.push_back(Arrival::received(received));
    while let Some(arrival) = machine.waiting.pop_front() {
        machine.pass(arrival);
    }
    if machine.is_astray() {
        machine.outcome.effects.clear();
    }
    machine.outcome
}

/// How a list of statements ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// At its end.
    Next,
    /// By `return`.
    Return,
    /// By `goto`.
    Goto(crate::ir::BlockId),
    /// By `exit`.
    Exit,
    /// The pass is over: dropped.
    Drop(Dropped),
}

struct Machine<'a> {
    program: &'a Program,
    state: &'a State,
    env: &'a mut dyn Env,
    received: &'a Received<'a>,
    limits: &'a Limits,
    mode: Mode,
    outcome: Outcome,
    /// Packets that enter a stage later.
    waiting: VecDeque<Arrival>,
    passes: u32,
    depth: u32,
    /// The registers' lock, in an atomic statement.
    guard: Option<RegisterGuard<'a>>,
    /// Groups that the current statement is in.
    groups: u32,
    progress: Option<replay::Progress<'a>>,
}

impl Machine<'_> {
    /// Takes one packet through one stage.
    fn pass(&mut self, arrival: Arrival) {
        self.passes += 1;
        if self.passes > self.limits.passes {
            self.record(Effect::Drop(Dropped::Limit(Limit::Passes)));
            return;
        }
        let Some(stage) = self.program.stages.get(arrival.stage.index()) else { return };
        self.event(|| Event::Stage(arrival.stage));
        let mut pass = self.enter(arrival, stage.parser);
        let mut flow = self.block(stage.control, &mut pass);
        if let (Some(finish), false) = (stage.finish, matches!(flow, Flow::Drop(_)) || self.is_over()) {
            flow = self.block(finish, &mut pass);
        }
        match flow {
            Flow::Drop(reason) => self.drop_packet(&mut pass, reason),
            _ if !pass.sent => self.drop_packet(&mut pass, Dropped::NoDestination),
            _ => {}
        }
    }

    /// Makes the pass of a packet that enters a stage, and parses it.
    fn enter(&mut self, arrival: Arrival, parser: Option<crate::ir::ParserId>) -> Pass {
        let mut pass = Pass::new(self.program, arrival);
        if parser.is_some() {
            pass.parser = parser;
        }
        pass.stage_time = self.env.now();
        if let Some(port) = pass.egress {
            pass.queue_state = self.env.queue(port, pass.class.unwrap_or(self.received.class));
        }
        pass.fill_slots(self.program, self.received);
        if pass.must_parse || parser.is_some() {
            self.parse(&mut pass);
        }
        pass
    }

    /// Counts a step; the reason to end if there were too many.
    fn step(&mut self) -> Option<Dropped> {
        self.steps(1)
    }

    /// Counts steps; the reason to end if there were too many.
    fn steps(&mut self, steps: u32) -> Option<Dropped> {
        self.outcome.steps = self.outcome.steps.saturating_add(steps);
        (self.outcome.steps > self.limits.steps).then_some(Dropped::Limit(Limit::Steps))
    }

    fn event(&mut self, event: impl FnOnce() -> Event) {
        // Each step adds a few events at most, and steps are bounded.
        if self.mode.trace {
            self.outcome.trace.push(event());
        }
    }

    /// Adds an effect; false if there are too many.
    fn effect(&mut self, effect: Effect) -> bool {
        let fits = self.outcome.effects.len() < self.limits.effects;
        if fits {
            self.record(effect);
        }
        fits
    }

    fn record(&mut self, effect: Effect) {
        self.event(|| Event::Effect(effect.clone()));
        self.outcome.effects.push(effect);
    }

    /// Drops the packet of a pass, or of a bucket. Passes and buckets are bounded, and a drop has to be seen: so it
    /// does not count as an effect.
    fn drop_packet(&mut self, pass: &mut Pass, reason: Dropped) {
        pass.sent = true;
        self.record(Effect::Drop(reason));
    }

    /// Records that a parser ended with an error.
    fn parser_error(&mut self, pass: &mut Pass, error: ErrorId) {
        pass.error = error;
        self.event(|| Event::ParserError(error));
    }
}

/// The first stage.
const FIRST: StageId = StageId(0);

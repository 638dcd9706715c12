//! Random comparison: interpreter and machine code get the same random packets and changes, and must do the same.
//!
//! A run begins with the commands and packets of a case, if there is one. Rounds of packets follow, now and then with
//! changes of tables before them. A run ends at its first difference, for the states differ from then on. Equal seeds
//! give equal runs.
//!
//! - `chance.rs`: choices; `packets.rs`: packets that parsers accept; `updates.rs`: entries that packets hit.

pub(super) mod chance;
pub(super) mod packets;
pub(super) mod updates;

use std::fmt;

use pipeline::Checked;
use pipeline::env::Queue;
use pipeline::interp::{Effect, Event, Outcome, Received};
use pipeline::state::{State, Update};

use self::chance::Chance;
use self::packets::Packets;
use self::updates::Lookups;
use super::configure::{Configurator, Request};
use super::lane::{Compiled, Interpreter, compile, counts, hex, text};
use super::parse::{Case, Command};
use super::run::{AFTER_COMMAND, Options};
use super::stack::with_stack;

/// Packets of a round.
const BATCH: usize = 8;
/// Rounds between changes, and between comparisons of what packets have counted.
const ROUNDS: usize = 12;

/// Result of a random comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Packets sent.
    pub packets: usize,
    /// Packets that left.
    pub outputs: usize,
    /// Lookups that hit an entry.
    pub hits: usize,
    /// Packets that specialised code was there for.
    pub specialised: usize,
    /// The difference that ended the run.
    pub difference: Option<String>,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { packets, outputs, hits, specialised, .. } = self;
        write!(f, "{packets} packets, {outputs} left, {hits} hits, {specialised} in specialised code")?;
        self.difference.iter().try_for_each(|difference| write!(f, "\n{difference}"))
    }
}

/// Compares interpreter and machine code by `count` random packets, after those of a case.
pub fn compare(
    program: &Checked,
    case: Option<&Case>,
    seed: u64,
    count: usize,
    options: &Options,
) -> Comparison {
    let run = || match Run::new(program, seed, options) {
        Ok(mut run) => {
            let difference = run.case(case).and_then(|()| run.rounds(count)).err();
            Comparison { difference, ..run.comparison }
        }
        Err(reason) => Comparison { difference: Some(reason), ..Comparison::default() },
    };
    let failed = |reason| Comparison { difference: Some(reason), ..Comparison::default() };
    with_stack(run).unwrap_or_else(failed)
}

/// A packet and its surroundings.
struct Sent {
    bytes: Vec<u8>,
    port: u32,
    class: u8,
    flow_hash: u32,
}

impl Sent {
    fn received(&self, time: u64) -> Received<'_> {
        let whole = Received::whole(&self.bytes, self.port);
        Received { time, class: self.class, flow_hash: self.flow_hash, ..whole }
    }
}

struct Run<'p> {
    interpreter: Interpreter,
    /// Machine code, packet by packet.
    general: Compiled,
    /// Machine code for the entries that are there, many packets at once.
    special: Compiled,
    configurator: Configurator,
    chance: Chance,
    packets: Packets<'p>,
    lookups: Lookups,
    comparison: Comparison,
}

impl<'p> Run<'p> {
    fn new(program: &'p Checked, seed: u64, options: &Options) -> Result<Self, String> {
        let options = super::Options { limits: options.limits, ..Default::default() };
        let [mut general, mut special] = compile(program, &options)?;
        let mut interpreter = Interpreter::new(State::new(program.clone()), &options);
        for world in [&mut interpreter.world, &mut general.world, &mut special.world] {
            world.queue = Queue { enqueue_depth: 3, dequeue_depth: 5, delay: 77_000 };
        }
        Ok(Self {
            interpreter,
            general,
            special,
            configurator: Configurator::new(program.clone()),
            chance: Chance::new(program, seed),
            packets: Packets::new(program),
            lookups: Lookups::default(),
            comparison: Comparison::default(),
        })
    }

    /// Carries a case out without its expectations.
    fn case(&mut self, case: Option<&Case>) -> Result<(), String> {
        for step in case.into_iter().flat_map(|case| &case.steps) {
            match &step.command {
                Command::Packet(port, bytes) => {
                    self.packets.learn(bytes.clone());
                    let sent = Sent { bytes: bytes.clone(), port: *port, class: 0, flow_hash: 0 };
                    self.round(&[sent])?;
                }
                command => {
                    // Commands that check or show something do not change the state.
                    let request = self.configurator.request(&self.interpreter.state, command);
                    if let Ok(Request::Updates(updates)) = request {
                        let bundle = self.apply(updates)?;
                        bundle.iter().for_each(|bundle| self.configurator.added(command, &bundle.changes));
                    }
                }
            }
        }
        Ok(())
    }

    /// Applies changes in all lanes, which must agree on whether that is possible.
    fn apply(&mut self, updates: Vec<Update>) -> Result<Option<pipeline::state::Bundle>, String> {
        let done = self.interpreter.apply(updates.clone());
        for lane in [&mut self.general, &mut self.special] {
            let found = lane.apply(updates.clone());
            if found.is_ok() != done.is_ok() {
                return Err(format!("{}: {found:?}, interpreter: {done:?}, for {updates:?}", lane.name));
            }
        }
        Ok(done.ok())
    }

    fn rounds(&mut self, count: usize) -> Result<(), String> {
        for round in 0..count.div_ceil(BATCH) {
            if round % ROUNDS == 1 {
                for update in self.lookups.updates(&self.interpreter.state, &mut self.chance) {
                    self.apply(vec![update])?;
                }
            }
            let mut batch: Vec<Sent> = Vec::with_capacity(BATCH);
            while batch.len() < BATCH {
                let bytes = match batch.last().filter(|_| self.chance.once_in(4)) {
                    Some(before) => before.bytes.clone(),
                    None => self.packets.packet(&mut self.chance),
                };
                let (class, flow_hash) = (self.chance.below(8) as u8, self.chance.next() as u32);
                batch.push(Sent { bytes, port: self.chance.port(), class, flow_hash });
            }
            self.round(&batch)?;
            if round % ROUNDS == 0 {
                self.compare_counts()?;
            }
        }
        self.compare_counts()
    }

    /// Sends packets in all lanes.
    fn round(&mut self, batch: &[Sent]) -> Result<(), String> {
        let passed = if self.chance.once_in(4) { AFTER_COMMAND } else { self.chance.next() % 1_000_000 };
        for world in [&mut self.interpreter.world, &mut self.general.world, &mut self.special.world] {
            world.now += passed;
        }
        let received: Vec<_> = batch.iter().map(|sent| sent.received(self.interpreter.world.now)).collect();
        self.comparison.packets += batch.len();
        let outcomes: Vec<_> = received.iter().map(|received| self.interpreter.run(received, true)).collect();
        for outcome in &outcomes {
            self.learn(outcome);
        }
        if self.chance.once_in(2) {
            self.general.improve_tables();
        }
        let general: Vec<_> = received.iter().map(|received| self.general.run(received)).collect();
        self.compare(&received, &outcomes, &general, self.general.name)?;
        // Some packets run the general code, as they do until the specialised one is ready.
        if self.chance.once_in(2) {
            self.special.improve();
        }
        self.comparison.specialised += if self.special.is_specialised() { batch.len() } else { 0 };
        let special = self.special.run_batch(&received);
        self.compare(&received, &outcomes, &special, self.special.name)?;
        let random = self.interpreter.world.clone();
        match self.general.world.is_like(&random) && self.special.world.is_like(&random) {
            true => Ok(()),
            false => {
                Err("machine code has drawn another number of random numbers than the interpreter".into())
            }
        }
    }

    fn learn(&mut self, outcome: &Outcome) {
        for event in &outcome.trace {
            if let Event::Lookup(table, keys, hit) = event {
                self.lookups.learn(*table, keys, &mut self.chance);
                self.comparison.hits += usize::from(hit.is_some());
            }
        }
        let leaves = |effect: &&Effect| matches!(effect, Effect::Output { .. });
        self.comparison.outputs += outcome.effects.iter().filter(leaves).count();
    }

    fn compare(
        &self,
        received: &[Received<'_>],
        outcomes: &[Outcome],
        found: &[Vec<Effect>],
        code: &str,
    ) -> Result<(), String> {
        for ((received, outcome), found) in received.iter().zip(outcomes).zip(found) {
            let short = |effects: &[Effect]| -> Vec<Effect> {
                effects.iter().map(|effect| effect.clone().canonical(received)).collect()
            };
            if short(&outcome.effects) == short(found) {
                continue;
            }
            let state = &self.interpreter.state;
            let lines = |effects: &[Effect]| {
                let line = |effect: &Effect| format!("\n    {}", text(effect, state, received));
                effects.iter().map(line).collect::<String>()
            };
            let trace: String =
                outcome.trace.iter().map(|event| format!("\n    {}", event.text(state))).collect();
            return Err(format!(
                "{code} differs for packet {} of port {}, class {}, flow hash {:#x}, time {}\n  \
                 interpreter:{}\n  code:{}\n  trace:{trace}",
                hex(received.visible),
                received.port,
                received.class,
                received.flow_hash,
                received.time,
                lines(&outcome.effects),
                lines(found)
            ));
        }
        Ok(())
    }

    fn compare_counts(&self) -> Result<(), String> {
        let expected = counts(&self.interpreter.state);
        for lane in [&self.general, &self.special] {
            let found = counts(&lane.state);
            if let Some((expected, found)) = expected.iter().zip(&found).find(|(a, b)| a != b) {
                return Err(format!("{}: counted {found}, interpreter: {expected}", lane.name));
            }
            if expected.len() != found.len() {
                return Err(format!("{}: {} counts, expected {}", lane.name, found.len(), expected.len()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pipeline::bits::Bits;
    use pipeline::ir::RegisterId;
    use pipeline::text;

    use super::*;

    fn program() -> Checked {
        let program = "program p {
            header h_t { kind: bit<16>; v: bit<8>; }
            instance h: h_t;
            register seen[1]: bit<8>;
            action set(v: bit<8>) { h.v = $v; }
            table t { key v: exact = h.v; actions set; size 64; }
            parser prs { state start { extract h; select(h.kind) { (16w0x800): accept; } } }
            block ingress { if (h.kind == 16w0x800) { apply t; read h.v = seen[8w0]; } send current port 9w1; }
            stage ingress { parser prs; control ingress; }
        }";
        Checked::new(text::parse(program).unwrap()).unwrap()
    }

    #[test]
    fn packets_are_accepted_and_hit_entries_that_are_made_for_them() {
        let done = compare(&program(), None, 1, 2000, &Options::default());
        assert_eq!((done.packets, done.outputs, &done.difference), (2000, 2000, &None));
        assert!(done.hits > 200 && done.specialised > 500, "{done}");
        assert_eq!(compare(&program(), None, 1, 2000, &Options::default()), done);
    }

    #[test]
    fn code_that_does_something_else_is_found() {
        let program = program();
        let mut run = Run::new(&program, 1, &Options::default()).unwrap();
        run.special.apply(vec![Update::Register(RegisterId(0), 0, Bits::from_u64(8, 7))]).unwrap();
        let difference = run.rounds(100).unwrap_err();
        assert!(difference.starts_with("specialised machine code differs for packet 0800"), "{difference}");
        assert!(difference.contains("\n    parser state start\n"), "{difference}");
    }
}

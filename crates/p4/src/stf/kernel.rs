//! A program in the kernel beside the interpreter: what XDP does to packets must be what the program means.
//!
//! [`compare`] lowers the program into XDP, gives both the packets and commands of a case, then random ones, and reports
//! the first difference: in verdicts, ports, bytes and classes of packets, and in what was counted. Packets do not leave:
//! the kernel runs the program on each alone (`BPF_PROG_TEST_RUN`), which needs the right to load programs.

use pipeline::Checked;
use pipeline::interp::{self, Effect, Event, Outcome, Received};
use pipeline::state::{State, Update};
use xdp::{Card, CardError, Refusal, Setting, Verdict, reference};

use super::configure::{Configurator, Request};
use super::lane::{CELLS, Interpreter, hex, text};
use super::parse::{Case, Command};
use super::random::chance::Chance;
use super::random::packets::Packets;
use super::random::updates::Lookups;
use super::run::{AFTER_COMMAND, AFTER_PACKET, Options};
use super::stack::with_stack;

/// Random packets between changes of tables.
const ROUND: usize = 64;
/// Ports of random packets: for each, a program is loaded.
const PORTS: usize = 4;

/// What came of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Packets that both have seen.
    pub packets: usize,
    /// Packets that are too short or too long for the kernel.
    pub left_out: usize,
    /// Packets that went to the CPU, as they came.
    pub handed_over: usize,
    /// Packets that left.
    pub outputs: usize,
    /// Lookups that hit an entry.
    pub hits: usize,
    /// Constructs whose packets go to the CPU.
    pub to_cpu: Vec<Refusal>,
    /// The first difference.
    pub difference: Option<String>,
}

/// Reasons for which nothing is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// All packets come to constructs without a counterpart in XDP.
    Refused(Vec<Refusal>),
    /// The kernel does not run it.
    Kernel(String),
}

/// Compares by the commands and packets of a case, then by `count` random packets.
///
/// # Errors
/// Reasons for which there is no such program in the kernel.
pub fn compare(program: &Checked, case: &Case, seed: u64, count: usize) -> Result<Comparison, Unfit> {
    let lowered = xdp::lower(program, Setting::Test).map_err(Unfit::Refused)?;
    let to_cpu = lowered.to_cpu().to_vec();
    let run = || {
        let options = Options { compiled: false, ..Options::default() };
        let interpreter = Interpreter::new(State::new(program.clone()), &options);
        let card =
            Card::new(lowered, &interpreter.state).map_err(|error| Unfit::Kernel(error.to_string()))?;
        let mut run = Run {
            program,
            interpreter,
            card,
            configurator: Configurator::new(program.clone()),
            chance: Chance::new(program, seed),
            packets: Packets::new(program),
            lookups: Lookups::default(),
            ports: Vec::new(),
            comparison: Comparison { to_cpu, ..Comparison::default() },
        };
        match run.case(case).and_then(|()| run.random(count)).and_then(|()| run.counts()) {
            Ok(()) | Err(Stop::Full) => Ok(run.comparison),
            Err(Stop::Different(difference)) => {
                Ok(Comparison { difference: Some(difference), ..run.comparison })
            }
            Err(Stop::Kernel(reason)) => Err(Unfit::Kernel(reason)),
        }
    };
    with_stack(run).unwrap_or_else(|reason| Err(Unfit::Kernel(reason)))
}

/// Reasons to end.
enum Stop {
    Different(String),
    /// Maps do not hold the entries.
    Full,
    Kernel(String),
}

impl From<CardError> for Stop {
    fn from(error: CardError) -> Self {
        match error {
            CardError::Entries(_) => Stop::Full,
            error => Stop::Kernel(error.to_string()),
        }
    }
}

struct Run<'p> {
    program: &'p Checked,
    interpreter: Interpreter,
    card: Card,
    configurator: Configurator,
    chance: Chance,
    packets: Packets<'p>,
    lookups: Lookups,
    ports: Vec<u32>,
    comparison: Comparison,
}

impl Run<'_> {
    fn case(&mut self, case: &Case) -> Result<(), Stop> {
        let mut waits = true;
        for step in &case.steps {
            match &step.command {
                Command::Packet(port, bytes) => {
                    self.packets.learn(bytes.clone());
                    let passed = if std::mem::take(&mut waits) { AFTER_COMMAND } else { AFTER_PACKET };
                    self.packet(*port, bytes, passed)?;
                }
                command => {
                    waits = true;
                    let request = self.configurator.request(&self.interpreter.state, command);
                    match request {
                        Ok(Request::Updates(updates)) => self.apply(updates, Some(command))?,
                        Ok(Request::Counter(id, index, packets, bytes)) => {
                            let cell = self.interpreter.state.arrays().counter(id, index.into());
                            cell.iter().for_each(|cell| cell.set(packets, bytes));
                            self.card.set_counter(id, index, packets, bytes)?;
                        }
                        // Commands that check or show something; a run of the case says what is wrong with it.
                        Ok(Request::Note(_)) | Err(_) => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn random(&mut self, count: usize) -> Result<(), Stop> {
        for i in 0..count {
            if i % ROUND == 0 {
                for update in self.lookups.updates(&self.interpreter.state, &mut self.chance) {
                    self.apply(vec![update], None)?;
                }
            }
            let bytes = self.packets.packet(&mut self.chance);
            let port = self.chance.port();
            if self.ports.len() < PORTS {
                self.ports.push(port);
            }
            let port = self.chance.pick(&self.ports).copied().unwrap_or(port);
            let passed = 1 + self.chance.below(1_000_000) as u64;
            self.packet(port, &bytes, passed)?;
        }
        Ok(())
    }

    fn apply(&mut self, updates: Vec<Update>, command: Option<&Command>) -> Result<(), Stop> {
        let Ok(bundle) = self.interpreter.apply(updates.clone()) else { return Ok(()) };
        if let Some(command) = command {
            self.configurator.added(command, &bundle.changes);
        }
        self.card.follow(&self.interpreter.state, &bundle)?;
        for update in updates {
            match update {
                Update::Register(register, index, value) => {
                    self.card.set_register(register, index, value.low_u64())?;
                }
                Update::Meter(meter, index, rates) => {
                    self.card.set_meter(meter, index, rates, self.interpreter.world.now)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn packet(&mut self, port: u32, bytes: &[u8], passed: u64) -> Result<(), Stop> {
        if !reference::LENGTHS.contains(&bytes.len()) {
            self.comparison.left_out += 1;
            return Ok(());
        }
        self.comparison.packets += 1;
        self.interpreter.world.now += passed;
        let now = self.interpreter.world.now;
        let received = Received { time: now, ..Received::whole(bytes, port) };
        self.card.set_time(now)?;
        let found = self.card.run(port, bytes)?;
        if found.verdict == Verdict::Cpu && found.packet == bytes {
            // Nothing has been counted; the CPU would.
            self.comparison.handed_over += 1;
            let Interpreter { state, world, limits } = &mut self.interpreter;
            let outcome = interp::rehearse(state, &mut world.clone(), &received, limits);
            self.learn(&outcome);
            return Ok(());
        }
        let outcome = self.interpreter.run(&received, true);
        self.learn(&outcome);
        if reference::is_right(self.program, &outcome.effects, &received, &found) {
            return Ok(());
        }
        let state = &self.interpreter.state;
        let lines = |lines: Vec<String>| lines.iter().map(|line| format!("\n    {line}")).collect::<String>();
        Err(Stop::Different(format!(
            "XDP differs for packet {} of port {port}, time {now}\n  interpreter:{}\n  XDP:\n    {:?}, class {:?}, \
             queue {:?}: {}\n  trace:{}",
            hex(bytes),
            lines(outcome.effects.iter().map(|effect| text(effect, state, &received)).collect()),
            found.verdict,
            found.class,
            found.queue,
            hex(&found.packet),
            lines(outcome.trace.iter().map(|event| event.text(state)).collect()),
        )))
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

    /// What packets have counted, and what registers have.
    fn counts(&self) -> Result<(), Stop> {
        let difference = reference::counts(&self.card, &self.interpreter.state, CELLS)?;
        difference.map_or(Ok(()), |difference| Err(Stop::Different(difference)))
    }
}

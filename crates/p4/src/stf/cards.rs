//! A program beside what it was split into: line cards around a fabric must do what the whole switch does.
//!
//! In the switch of line cards, a packet enters the card that has its port, and a carrier that leaves the card's link
//! goes to all other cards and the CPU, as in a fabric that has learned nothing, until it leaves through a port. Commands
//! of a case go to all programs that have tables. [`compare`] runs both and reports the first difference: packets by
//! port, in order, with their classes, digests, and at the end what was counted. Random packets may follow those of the
//! case.

use std::collections::{BTreeMap, VecDeque};

use pipeline::Checked;
use pipeline::interp::{Effect, Exit, Outcome, Received};
use pipeline::ir::{CounterId, TableId};
use pipeline::state::State;

use super::configure::{Configurator, Request};
use super::lane::{CELLS, Interpreter, hex};
use super::parse::{Case, Command};
use super::random::chance::Chance;
use super::random::packets::Packets;
use super::run::{AFTER_COMMAND, AFTER_PACKET, Options};
use super::stack::with_stack;
use crate::compile::Front;
use crate::diagnostic::render;
use crate::split::{self, CARRIER, Layout, OWN, Split};

/// Most passes through programs that one packet causes, copies included.
const PASSES: usize = 1000;

/// What came of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Packets sent.
    pub packets: usize,
    /// Packets of the case at ports that no card has, which were not sent.
    pub left_out: usize,
    /// Packets that left.
    pub outputs: usize,
    /// Packets that passed from card to card, or to the CPU and back.
    pub carried: usize,
    /// The first difference.
    pub difference: Option<String>,
}

/// Programs of cards and CPU, ready to run.
struct Programs {
    layout: Layout,
    cards: Vec<Checked>,
    cpu: Option<Checked>,
}

impl Programs {
    /// Compiles what a program was split into.
    fn of(split: &Split, layout: &Layout) -> Result<Self, String> {
        let cards = split.cards.iter().map(|text| split::lower("card.p4", text)).collect::<Result<_, _>>()?;
        let cpu = split.cpu.as_deref().map(|text| split::lower("cpu.p4", text)).transpose()?;
        Ok(Self { layout: layout.clone(), cards, cpu })
    }
}

/// One program, and what commands have made of it.
struct Element {
    interpreter: Interpreter,
    configurator: Configurator,
}

impl Element {
    fn new(program: &Checked, options: &Options) -> Self {
        let interpreter = Interpreter::new(State::new(program.clone()), options);
        Self { interpreter, configurator: Configurator::new(program.clone()) }
    }

    fn configure(&mut self, command: &Command) -> Result<(), String> {
        match self.configurator.request(&self.interpreter.state, command)? {
            Request::Note(_) => {}
            Request::Counter(id, index, packets, bytes) => {
                let cell = self.interpreter.state.arrays().counter(id, index.into());
                cell.iter().for_each(|cell| cell.set(packets, bytes));
            }
            Request::Updates(updates) => {
                let bundle = self.interpreter.apply(updates).map_err(|error| error.problem.to_string())?;
                self.configurator.added(command, &bundle.changes);
            }
        }
        Ok(())
    }

    fn run(&mut self, bytes: &[u8], port: u32, passed: u64, found: &mut Found) -> Vec<(u32, Packet)> {
        self.interpreter.world.now += passed;
        let received = Received { time: self.interpreter.world.now, ..Received::whole(bytes, port) };
        let Outcome { effects, .. } = self.interpreter.run(&received, false);
        let mut outputs = Vec::new();
        for effect in effects {
            match effect {
                Effect::Output { to: Exit::Port(port), packet, class, .. } => {
                    let packet = Packet { class: class.unwrap_or(0), bytes: packet.bytes(&received) };
                    outputs.push((port, packet));
                }
                Effect::Digest { digest, values } => {
                    let digest = &self.interpreter.state.program().digests[digest.index()].name;
                    let values: Vec<_> = values.iter().map(|value| value.value.to_string()).collect();
                    found.digests.push(format!("{digest} {}", values.join(" ")));
                }
                _ => {}
            }
        }
        outputs
    }
}

/// Adds what an element has counted: packets and bytes by counter or entry.
fn add_counts(element: &Element, sums: &mut BTreeMap<String, (u64, u64)>) {
    let state = &element.interpreter.state;
    let (program, arrays) = (state.program(), state.arrays());
    let mut add = |name: String, (packets, bytes): (u64, u64)| {
        if packets > 0 {
            let sum = sums.entry(name).or_default();
            *sum = (sum.0 + packets, sum.1 + bytes);
        }
    };
    for (i, counter) in program.counters.iter().enumerate() {
        for cell in 0..counter.size.min(CELLS) {
            let count = arrays.counter(CounterId::at(i), cell.into()).map_or((0, 0), |stats| stats.get());
            add(format!("counter {}[{cell}]", counter.name), count);
        }
    }
    for (i, schema) in program.tables.iter().enumerate().filter(|(_, schema)| !schema.name.starts_with(OWN)) {
        // Entries come in the same order everywhere; cards have some more in tables of their own.
        let entries = state.table(TableId::at(i)).into_iter().flat_map(|table| table.entries());
        for (number, entry) in entries.enumerate() {
            add(format!("entry {number} of {}", schema.name), entry.stats.hits());
        }
    }
}

/// A packet that leaves.
#[derive(Debug, PartialEq, Eq)]
struct Packet {
    class: u8,
    bytes: Vec<u8>,
}

/// What a switch does with packets.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Packets by port, in order.
    outputs: BTreeMap<u32, Vec<Packet>>,
    digests: Vec<String>,
}

impl Found {
    fn first_difference(&self, other: &Self) -> Option<String> {
        let ports = self.outputs.keys().chain(other.outputs.keys());
        let show = |packet: &Packet| match packet.class {
            0 => hex(&packet.bytes),
            class => format!("{} in class {class}", hex(&packet.bytes)),
        };
        let show = |packets: Option<&Vec<Packet>>| match packets {
            Some(packets) => packets.iter().map(show).collect::<Vec<_>>().join(", "),
            None => "none".into(),
        };
        for port in ports {
            let (one, two) = (self.outputs.get(port), other.outputs.get(port));
            if one != two {
                let (one, two) = (show(one), show(two));
                return Some(format!(
                    "packets to port {port}: the program sends {one}; the cards send {two}"
                ));
            }
        }
        let (one, two) = (self.digests.join(", "), other.digests.join(", "));
        (one != two).then(|| format!("digests: the program sends [{one}]; the cards send [{two}]"))
    }
}

/// A switch of line cards.
struct Switch<'p> {
    layout: &'p Layout,
    cards: Vec<Element>,
    cpu: Option<Element>,
    carried: usize,
}

impl<'p> Switch<'p> {
    fn new(programs: &'p Programs, options: &Options) -> Self {
        let cards = programs.cards.iter().map(|program| Element::new(program, options)).collect();
        let cpu = programs.cpu.as_ref().map(|program| Element::new(program, options));
        Self { layout: &programs.layout, cards, cpu, carried: 0 }
    }

    /// Cards that only carry have nothing to configure.
    fn configure(&mut self, command: &Command) -> Result<(), String> {
        match &mut self.cpu {
            Some(cpu) => cpu.configure(command),
            None => self.cards.iter_mut().try_for_each(|card| card.configure(command)),
        }
    }

    fn packet(&mut self, bytes: &[u8], port: u32, passed: u64, found: &mut Found) -> Result<(), String> {
        let Some(card) = self.layout.card_of(port) else { return Err(format!("no card has port {port}")) };
        let mut waiting = VecDeque::from([(card, port, bytes.to_vec())]);
        // Time passes everywhere.
        let others = self.cards.iter_mut().chain(&mut self.cpu);
        others.for_each(|element| element.interpreter.world.now += passed);
        for _ in 0..PASSES {
            let Some((place, port, bytes)) = waiting.pop_front() else { return Ok(()) };
            let element = match self.cards.get_mut(place) {
                Some(card) => card,
                None => self.cpu.as_mut().ok_or("a card sends to a CPU that has no program")?,
            };
            for (to, packet) in element.run(&bytes, port, 0, found) {
                let is_local = self.layout.cards.get(place).is_some_and(|ports| ports.contains(&to));
                if is_local {
                    found.outputs.entry(to).or_default().push(packet);
                    continue;
                }
                self.carried += 1;
                let others =
                    (0..self.cards.len() + usize::from(self.cpu.is_some())).filter(|at| *at != place);
                waiting.extend(others.map(|other| (other, self.layout.link, packet.bytes.clone())));
            }
        }
        Err(format!("a packet makes more than {PASSES} passes"))
    }
}

/// Runs a case, and then so many random packets from a seed, on a program and on what it is split into for a layout. A
/// program that draws random numbers gets none.
///
/// # Errors
/// The program cannot be lowered or split, or a command of the case cannot be carried out: what a user reads.
pub fn compare(
    front: &mut Front,
    layout: &Layout,
    case: &Case,
    random: (usize, u64),
) -> Result<Comparison, String> {
    let split = split::split(front, layout).map_err(|refused| render(&front.sources, &refused, false))?;
    compare_with(front, &split, layout, case, random)
}

/// The same for programs that a program was split into.
///
/// # Errors
/// A program cannot be lowered, or a command of the case cannot be carried out.
pub fn compare_with(
    front: &mut Front,
    split: &Split,
    layout: &Layout,
    case: &Case,
    random: (usize, u64),
) -> Result<Comparison, String> {
    let Some(whole) = front.lower() else { return Err(render(&front.sources, &front.diagnostics, false)) };
    let programs = Programs::of(split, layout)?;
    with_stack(|| run(&whole, &programs, case, random))?
}

fn run(
    whole: &Checked,
    programs: &Programs,
    case: &Case,
    (count, seed): (usize, u64),
) -> Result<Comparison, String> {
    let mut pair = Pair::new(whole, programs);
    pair.case(case)?;
    let ports: Vec<u32> = programs.layout.cards.iter().flatten().copied().collect();
    let (mut chance, mut packets) = (Chance::new(whole, seed), Packets::new(whole));
    for step in &case.steps {
        if let Command::Packet(_, bytes) = &step.command {
            packets.learn(bytes.clone());
        }
    }
    for number in 0..count {
        if pair.result.difference.is_some() || pair.whole.interpreter.world.has_drawn() {
            break;
        }
        let port = chance.pick(&ports).copied().unwrap_or_default();
        let bytes = packets.packet(&mut chance);
        pair.packet(&bytes, port, AFTER_PACKET, &format!("random packet {number}"))?;
    }
    Ok(pair.end())
}

/// A program, and the switch of line cards.
struct Pair<'p> {
    whole: Element,
    switch: Switch<'p>,
    result: Comparison,
}

impl<'p> Pair<'p> {
    fn new(whole: &Checked, programs: &'p Programs) -> Self {
        let options = Options::default();
        let (whole, switch) = (Element::new(whole, &options), Switch::new(programs, &options));
        Self { whole, switch, result: Comparison::default() }
    }

    fn case(&mut self, case: &Case) -> Result<(), String> {
        let mut waits = true;
        for step in &case.steps {
            match &step.command {
                Command::Packet(port, _) if self.switch.layout.card_of(*port).is_none() => {
                    self.result.left_out += 1;
                }
                Command::Packet(port, bytes) => {
                    let passed = if std::mem::take(&mut waits) { AFTER_COMMAND } else { AFTER_PACKET };
                    self.packet(bytes, *port, passed, &format!("line {}", step.line))?;
                    if self.result.difference.is_some() {
                        return Ok(());
                    }
                }
                Command::Expect(..) | Command::NoPacket | Command::ExpectDigest(..) => {}
                // Each card has a part of what was counted.
                Command::CheckCounter(..) | Command::CheckRegister(..) => {}
                Command::Wait => waits = true,
                command => {
                    waits = true;
                    // Cases contain commands that are to be refused.
                    if self.whole.configure(command).is_ok() {
                        self.switch
                            .configure(command)
                            .map_err(|text| format!("line {}: {text}", step.line))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A packet on a port that a card has.
    fn packet(&mut self, bytes: &[u8], port: u32, passed: u64, name: &str) -> Result<(), String> {
        let (mut expected, mut found) = (Found::default(), Found::default());
        for (port, packet) in self.whole.run(bytes, port, passed, &mut expected) {
            // A port that no card has does not exist.
            if self.switch.layout.card_of(port).is_some() {
                expected.outputs.entry(port).or_default().push(packet);
            }
        }
        self.switch.packet(bytes, port, passed, &mut found).map_err(|text| format!("{name}: {text}"))?;
        self.result.packets += 1;
        self.result.outputs += expected.outputs.values().map(Vec::len).sum::<usize>();
        self.result.difference = expected
            .first_difference(&found)
            .map(|text| format!("{name}, {} on port {port}: {text}", hex(bytes)));
        Ok(())
    }

    /// Compares what was counted.
    fn end(mut self) -> Comparison {
        self.result.carried = self.switch.carried;
        if self.result.difference.is_some() {
            return self.result;
        }
        let (mut expected, mut found) = (BTreeMap::new(), BTreeMap::new());
        add_counts(&self.whole, &mut expected);
        self.switch.cards.iter().chain(&self.switch.cpu).for_each(|element| add_counts(element, &mut found));
        if self.switch.cpu.is_some() {
            // The CPU's program counts carriers, too.
            let carriers = |packets: u64| packets * CARRIER as u64;
            found.values_mut().for_each(|(packets, bytes)| *bytes = bytes.saturating_sub(carriers(*packets)));
        }
        let differs = expected.iter().find(|(name, count)| found.get(*name) != Some(count));
        let more = found.iter().find(|(name, _)| !expected.contains_key(*name));
        self.result.difference = differs.or(more).map(|(name, _)| {
            let [one, two] = [&expected, &found].map(|counts| counts.get(name).copied().unwrap_or_default());
            format!("{name}: the program counts {one:?} (packets, bytes), the cards {two:?}")
        });
        self.result
    }
}

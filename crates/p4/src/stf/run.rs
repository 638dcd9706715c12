//! Runs a case in all lanes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use pipeline::Checked;
use pipeline::bits::Bits;
use pipeline::env::Functions;
use pipeline::interp::{Effect, Exit, Limits, Outcome, Received};
use pipeline::state::State;

use super::compare::{Difference, Expectations, Output};
use super::configure::{Configurator, Request};
use super::lane::{Compiled, Interpreter, compile, counts, text};
use super::literal::Literal;
use super::names::find;
use super::parse::{Case, Command, Step};
use super::stack::with_stack;

/// Time between commands and the next packet, and between packets.
pub(super) const AFTER_COMMAND: u64 = 1_000_000_000;
pub(super) const AFTER_PACKET: u64 = 1_000;

/// How a case is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether machine code runs beside the interpreter.
    pub compiled: bool,
    /// Whether the packets' ways are recorded.
    pub trace: bool,
    /// Bounds of what a packet may cause.
    pub limits: Limits,
    /// Functions that the program declares as `extern`.
    pub functions: Option<Arc<dyn Functions>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { compiled: true, trace: false, limits: Limits::default(), functions: None }
    }
}

/// What came of a case.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Differences; none if the case passes.
    pub differences: Vec<Difference>,
    /// Packets that were sent.
    pub packets: usize,
    /// What commands have shown, each with its line.
    pub notes: Vec<(u32, String)>,
    /// Steps of the packets, by line, if they were recorded.
    pub traces: BTreeMap<u32, Vec<String>>,
}

impl Report {
    /// Whether the program does what the case expects, and machine code the same.
    pub fn passes(&self) -> bool {
        self.differences.is_empty()
    }

    /// The differences as text, each with its place in the case's file, and traces where they were recorded.
    pub fn text(&self, file: &str) -> String {
        let mut text = String::new();
        for difference in &self.differences {
            // Writing to a string succeeds.
            let _ = match difference.line() {
                0 => writeln!(text, "{file}: {difference}"),
                line => writeln!(text, "{file}:{line}: {difference}"),
            };
            if let Some((line, trace)) = difference.cause().and_then(|line| self.traces.get_key_value(&line))
            {
                let _ = writeln!(text, "  trace of the packet in line {line}:");
                trace.iter().for_each(|step| _ = writeln!(text, "    {step}"));
            }
        }
        let explains = self.differences.iter().any(|difference| difference.cause().is_some());
        for (line, trace) in self.traces.iter().filter(|_| !explains && !self.passes()) {
            let _ = writeln!(text, "  trace of the packet in line {line}:");
            trace.iter().for_each(|step| _ = writeln!(text, "    {step}"));
        }
        text
    }
}

/// Runs a case on a program.
pub fn run(program: &Checked, case: &Case, options: &Options) -> Report {
    with_stack(|| Run::new(program, options).case(case)).unwrap_or_else(|message| Report {
        differences: vec![Difference::Command { line: 0, message }],
        ..Report::default()
    })
}

struct Run<'a> {
    program: &'a Checked,
    options: &'a Options,
    interpreter: Interpreter,
    compiled: Vec<Compiled>,
    configurator: Configurator,
    expectations: Expectations,
    /// Values that the control plane expects, and those that it got.
    digests: Vec<(u32, String, Vec<Literal>)>,
    sent: Vec<(usize, Vec<Bits>)>,
    outputs: Vec<Output>,
    /// Whether a command has come since the last packet.
    waits: bool,
    report: Report,
}

impl<'a> Run<'a> {
    fn new(program: &'a Checked, options: &'a Options) -> Self {
        let mut run = Self {
            program,
            options,
            interpreter: Interpreter::new(State::new(program.clone()), options),
            compiled: Vec::new(),
            configurator: Configurator::new(program.clone()),
            expectations: Expectations::default(),
            digests: Vec::new(),
            sent: Vec::new(),
            outputs: Vec::new(),
            waits: true,
            report: Report::default(),
        };
        if options.compiled {
            match compile(program, options) {
                Ok(lanes) => run.compiled.extend(lanes),
                Err(reason) => run.report.differences.push(Difference::NotCompiled(reason)),
            }
        }
        run
    }

    fn case(mut self, case: &Case) -> Report {
        for step in &case.steps {
            match &step.command {
                Command::Packet(port, bytes) => self.packet(step.line, *port, bytes),
                Command::Expect(port, digits) => self.expectations.expect(step.line, *port, digits.clone()),
                Command::NoPacket => self.expectations.watch_all(),
                Command::Wait => self.waits = true,
                Command::ExpectDigest(name, values) => {
                    self.digests.push((step.line, name.clone(), values.clone()));
                }
                _ => {
                    self.waits = true;
                    if let Err(message) = self.configure(step) {
                        self.differ(step.line, message);
                    }
                }
            }
        }
        let differences = self.expectations.differences(&self.outputs);
        self.report.differences.extend(differences);
        self.compare_digests();
        self.compare_counts();
        self.report
    }

    fn differ(&mut self, line: u32, message: String) {
        self.report.differences.push(Difference::Command { line, message });
    }

    fn configure(&mut self, step: &Step) -> Result<(), String> {
        match self.configurator.request(&self.interpreter.state, &step.command)? {
            Request::Note(note) => self.report.notes.push((step.line, note)),
            Request::Counter(id, index, packets, bytes) => {
                let compiled = self.compiled.iter().map(|lane| &lane.state);
                for state in compiled.chain([&self.interpreter.state]) {
                    let cell = state.arrays().counter(id, index.into());
                    cell.iter().for_each(|cell| cell.set(packets, bytes));
                }
            }
            Request::Updates(updates) if updates.is_empty() => {}
            Request::Updates(updates) => {
                let bundle =
                    self.interpreter.apply(updates.clone()).map_err(|error| error.problem.to_string())?;
                self.configurator.added(&step.command, &bundle.changes);
                for lane in &mut self.compiled {
                    lane.apply(updates.clone()).map_err(|error| format!("{}: {error}", lane.name))?;
                }
            }
        }
        Ok(())
    }

    fn packet(&mut self, line: u32, port: u32, bytes: &[u8]) {
        self.expectations.watch(port);
        self.report.packets += 1;
        let passed = if std::mem::take(&mut self.waits) { AFTER_COMMAND } else { AFTER_PACKET };
        self.interpreter.world.now += passed;
        let received = Received { time: self.interpreter.world.now, ..Received::whole(bytes, port) };
        let Outcome { effects, trace, .. } = self.interpreter.run(&received, self.options.trace);
        let state = &self.interpreter.state;
        if self.options.trace {
            let steps = trace.iter().map(|event| event.text(state)).collect();
            self.report.traces.insert(line, steps);
        }
        let texts: Vec<_> = effects.iter().map(|effect| text(effect, state, &received)).collect();
        // The second one is specialised.
        self.compiled.iter_mut().skip(1).for_each(Compiled::improve);
        for lane in &mut self.compiled {
            lane.world.now += passed;
            let found: Vec<_> = lane.run(&received).iter().map(|e| text(e, state, &received)).collect();
            if found != texts {
                let (code, interpreter) = (lane.name, texts.clone());
                self.report.differences.push(Difference::Code { line, code, interpreter, found });
            }
        }
        for effect in effects {
            match effect {
                Effect::Output { to: Exit::Port(port), packet, .. } => {
                    self.outputs.push(Output { port, bytes: packet.bytes(&received), cause: line });
                }
                Effect::Digest { digest, values } => {
                    self.sent.push((digest.index(), values.into_iter().map(|value| value.value).collect()));
                }
                _ => {}
            }
        }
    }

    /// Digests in order; those of a case that expects none are not watched.
    fn compare_digests(&mut self) {
        if self.digests.is_empty() {
            return;
        }
        let show = |values: &[Bits]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let names = self.program.digests.iter().map(|digest| digest.name.as_str());
        let mut wrong = Vec::new();
        let mut found = self.sent.iter();
        for (line, name, wanted) in &self.digests {
            let difference = match (find("digest", name, names.clone()), found.next()) {
                (Err(error), _) => Some(error),
                (Ok(_), None) => Some(format!("digest {name}: expected, and none found")),
                (Ok(digest), Some((kind, values))) => {
                    let fits = |(literal, value): (&Literal, &Bits)| {
                        literal.value(value.width()).as_ref() == Ok(value)
                    };
                    let equal = digest == *kind
                        && wanted.len() == values.len()
                        && wanted.iter().zip(values).all(fits);
                    let name = names.clone().nth(*kind).unwrap_or("?");
                    (!equal).then(|| format!("the digest differs: found {name} {}", show(values)))
                }
            };
            wrong.extend(difference.map(|message| (*line, message)));
        }
        for (kind, values) in found {
            let name = names.clone().nth(*kind).unwrap_or("?");
            wrong.push((0, format!("digest {name} {}: not expected", show(values))));
        }
        wrong.into_iter().for_each(|(line, message)| self.differ(line, message));
    }

    /// What packets have counted in each lane.
    fn compare_counts(&mut self) {
        let expected = counts(&self.interpreter.state);
        for lane in &self.compiled {
            let found = counts(&lane.state);
            if found != expected {
                let without = |all: &[String], others: &[String]| {
                    all.iter().filter(|line| !others.contains(line)).cloned().collect()
                };
                let (interpreter, found) = (without(&expected, &found), without(&found, &expected));
                self.report.differences.push(Difference::Code {
                    line: 0,
                    code: lane.name,
                    interpreter,
                    found,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_does_something_else_is_reported() {
        let program = "program p {
            header h_t { v: bit<8>; }
            instance h: h_t;
            counter seen[1]: packets;
            register answer[1]: bit<8>;
            parser prs { state start { extract h; goto accept; } }
            block ingress { count seen[8w0]; read h.v = answer[8w0]; send current port 9w1; }
            stage ingress { parser prs; control ingress; }
        }";
        let program = Checked::new(pipeline::text::parse(program).unwrap()).unwrap();
        let case = Case::parse("packet 0 00\nexpect 1 00").unwrap();
        let options = Options::default();
        let mut run = Run::new(&program, &options);
        let write = "register_write answer 0 7";
        let [lane, _] = &mut run.compiled[..] else { panic!("two kinds of code") };
        let write = run.configurator.request(&lane.state, &Case::parse(write).unwrap().steps[0].command);
        let Ok(Request::Updates(updates)) = write else { panic!("an update") };
        lane.apply(updates).unwrap();
        let text = run.case(&case).text("case.stf");
        let expected = "case.stf:1: machine code does not do what the interpreter does
  interpreter: output to port 1: 00
  code:        output to port 1: 07
case.stf: machine code does not do what the interpreter does
  code:        register answer[0]: 0x7
";
        assert_eq!(text, expected);
    }
}

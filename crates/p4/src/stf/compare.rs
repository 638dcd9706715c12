//! Outputs against expectations.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::lane::hex;
use super::parse::Digits;

/// A packet that came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Port.
    pub port: u32,
    /// Bytes.
    pub bytes: Vec<u8>,
    /// Line of the packet that caused it.
    pub cause: u32,
}

/// A difference between what a case expects and what the program does. `line` is always that of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// A command cannot be carried out, or what it checks does not hold.
    Command {
        /// Line of the command.
        line: u32,
        /// What is wrong.
        message: String,
    },
    /// A packet differs from the one expected.
    Packet {
        /// Line of the expectation.
        line: u32,
        /// Port.
        port: u32,
        /// Number of the packet at this port, from 0.
        number: usize,
        /// Digits expected.
        expected: String,
        /// Digits found.
        found: String,
        /// Index of the first digit that differs.
        digit: usize,
        /// Line of the packet that caused it.
        cause: u32,
    },
    /// No packet where one was expected.
    Missing {
        /// Line of the expectation.
        line: u32,
        /// Port.
        port: u32,
        /// Number of the packet at this port, from 0.
        number: usize,
    },
    /// A packet that was not expected.
    Unexpected {
        /// The packet.
        output: Output,
        /// Its number at this port, from 0.
        number: usize,
    },
    /// Machine code does not do what the interpreter does.
    Code {
        /// Line of the packet; 0 for what all of them have counted.
        line: u32,
        /// Kind of code.
        code: &'static str,
        /// What the interpreter does.
        interpreter: Vec<String>,
        /// What the code does.
        found: Vec<String>,
    },
    /// The program is not compiled.
    NotCompiled(String),
}

impl Difference {
    /// Line of the command that shows the difference; 0 if it is none's.
    pub fn line(&self) -> u32 {
        match self {
            Difference::Command { line, .. }
            | Difference::Packet { line, .. }
            | Difference::Missing { line, .. }
            | Difference::Code { line, .. } => *line,
            Difference::Unexpected { output, .. } => output.cause,
            Difference::NotCompiled(_) => 0,
        }
    }

    /// Line of the packet whose way explains the difference.
    pub fn cause(&self) -> Option<u32> {
        match self {
            Difference::Packet { cause, .. } => Some(*cause),
            Difference::Unexpected { output, .. } => Some(output.cause),
            Difference::Code { line, .. } if *line > 0 => Some(*line),
            _ => None,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Command { message, .. } => f.write_str(message),
            Difference::Packet { port, number, expected, found, digit, cause, .. } => {
                writeln!(
                    f,
                    "port {port}, packet {number} (sent in line {cause}) differs in byte {}",
                    digit / 2
                )?;
                writeln!(f, "  expected {expected}")?;
                writeln!(f, "  found    {found}")?;
                write!(f, "           {:>1$}", "^", digit + 1)
            }
            Difference::Missing { port, number, .. } => {
                write!(f, "port {port}, packet {number}: expected, and no packet found")
            }
            Difference::Unexpected { output, number } => {
                write!(
                    f,
                    "port {}, packet {number}: none expected, found {}",
                    output.port,
                    hex(&output.bytes)
                )
            }
            Difference::Code { code, interpreter, found, .. } => {
                write!(f, "{code} does not do what the interpreter does")?;
                interpreter.iter().try_for_each(|line| write!(f, "\n  interpreter: {line}"))?;
                found.iter().try_for_each(|line| write!(f, "\n  code:        {line}"))
            }
            Difference::NotCompiled(reason) => write!(f, "the program is not compiled: {reason}"),
        }
    }
}

/// What a case expects.
#[derive(Debug, Default)]
pub(super) struct Expectations {
    /// Packets by port, each with its line.
    packets: BTreeMap<u32, Vec<(u32, Option<Digits>)>>,
    /// Ports that are watched.
    watched: BTreeSet<u32>,
    /// Whether all are.
    watches_all: bool,
}

impl Expectations {
    pub(super) fn watch(&mut self, port: u32) {
        self.watched.insert(port);
    }

    pub(super) fn watch_all(&mut self) {
        self.watches_all = true;
    }

    pub(super) fn expect(&mut self, line: u32, port: u32, digits: Option<Digits>) {
        self.watch(port);
        self.packets.entry(port).or_default().push((line, digits));
    }

    /// The differences, port by port.
    pub(super) fn differences(&self, outputs: &[Output]) -> Vec<Difference> {
        let ports: BTreeSet<u32> = match self.watches_all {
            true => self.watched.iter().copied().chain(outputs.iter().map(|output| output.port)).collect(),
            false => self.watched.clone(),
        };
        let mut differences = Vec::new();
        for port in ports {
            let expected = self.packets.get(&port).map_or(&[][..], Vec::as_slice);
            let found: Vec<_> = outputs.iter().filter(|output| output.port == port).collect();
            for number in 0..expected.len().max(found.len()) {
                let difference = match (expected.get(number), found.get(number)) {
                    (Some((line, digits)), Some(output)) => {
                        digits.as_ref().and_then(|digits| compare(*line, number, digits, output))
                    }
                    (Some((line, _)), None) => Some(Difference::Missing { line: *line, port, number }),
                    (None, Some(output)) => {
                        Some(Difference::Unexpected { output: Output::clone(output), number })
                    }
                    (None, None) => None,
                };
                differences.extend(difference);
            }
        }
        differences
    }
}

fn compare(line: u32, number: usize, expected: &Digits, output: &Output) -> Option<Difference> {
    let found: Vec<u8> = output.bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).collect();
    let differs = |(i, digit): &(usize, &Option<u8>)| match (digit, found.get(*i)) {
        (Some(expected), Some(found)) => expected != found,
        (None, Some(_)) => false,
        (_, None) => true,
    };
    let first = expected.digits.iter().enumerate().find(differs).map(|(i, _)| i);
    let too_long = (expected.ends && found.len() > expected.digits.len()).then_some(expected.digits.len());
    let digit = first.or(too_long)?;
    let text = |digit: &Option<u8>| digit.and_then(|d| char::from_digit(d.into(), 16)).unwrap_or('*');
    let mut digits: String = expected.digits.iter().map(text).collect();
    if expected.ends {
        digits.push('$');
    }
    let (port, cause) = (output.port, output.cause);
    let found = hex(&output.bytes);
    Some(Difference::Packet { line, port, number, expected: digits, found, digit, cause })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stf::{Case, Command};

    fn differences(expected: &[&str], outputs: &[(u32, &[u8])]) -> Vec<String> {
        let case = Case::parse(&expected.join("\n")).unwrap();
        let mut expectations = Expectations::default();
        for step in case.steps {
            match step.command {
                Command::Expect(port, digits) => expectations.expect(step.line, port, digits),
                Command::Packet(port, _) => expectations.watch(port),
                Command::NoPacket => expectations.watch_all(),
                other => panic!("{other:?}"),
            }
        }
        let output = |(port, bytes): &(u32, &[u8])| Output { port: *port, bytes: bytes.to_vec(), cause: 9 };
        let outputs: Vec<_> = outputs.iter().map(output).collect();
        expectations.differences(&outputs).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn patterns_are_prefixes_unless_they_end() {
        assert_eq!(differences(&["expect 1 12*4"], &[(1, &[0x12, 0x34, 0x56])]), [""; 0]);
        assert_eq!(differences(&["expect 1 12*4 $"], &[(1, &[0x12, 0x34])]), [""; 0]);
        assert_eq!(differences(&["expect 1"], &[(1, &[0x12])]), [""; 0]);
        let longer = differences(&["expect 1 1234 $"], &[(1, &[0x12, 0x34, 0x56])]);
        let marked = "port 1, packet 0 (sent in line 9) differs in byte 2\n  expected 1234$\n  found    123456\n\
                      \x20              ^";
        assert_eq!(longer, [marked]);
        assert!(differences(&["expect 1 12**"], &[(1, &[0x12])])[0].contains("in byte 1"));
        assert!(differences(&["expect 1 2"], &[(1, &[0x12])])[0].contains("in byte 0"));
    }

    #[test]
    fn packets_are_counted_at_watched_ports() {
        let missing = "port 1, packet 1: expected, and no packet found";
        assert_eq!(differences(&["expect 1 12", "expect 1"], &[(1, &[0x12])]), [missing]);
        let unexpected = "port 2, packet 0: none expected, found 0a";
        assert_eq!(differences(&["packet 2 00"], &[(2, &[10])]), [unexpected]);
        assert_eq!(differences(&["packet 1 00"], &[(2, &[10])]), [""; 0]);
        assert_eq!(differences(&["packet 1 00", "no_packet"], &[(2, &[10])]), [unexpected]);
    }
}

//! Cases as written: a command a line.

use std::fmt;

use super::literal::{Literal, Pattern};

/// Rates are written in units per microsecond and kept in units per second.
pub const UNITS_PER_MICROSECOND: f64 = 1e6;

/// A case.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Case {
    /// Commands, in order.
    pub steps: Vec<Step>,
}

/// A command at its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Line, from 1.
    pub line: u32,
    /// Command.
    pub command: Command,
}

/// Commands.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Adds an entry.
    Add {
        /// Table.
        table: String,
        /// Priority.
        priority: Option<u32>,
        /// Conditions by key.
        keys: Vec<(String, Pattern)>,
        /// What the entry does.
        action: Action,
        /// Name of the entry for later commands.
        handle: Option<String>,
    },
    /// Sets a table's default action.
    SetDefault(String, Action),
    /// Deletes an entry.
    Remove(String),
    /// Sends a packet to a port of the program.
    Packet(u32, Vec<u8>),
    /// Expects a packet from a port.
    Expect(u32, Option<Digits>),
    /// Watches all ports.
    NoPacket,
    /// Lets time pass.
    Wait,
    /// Creates a multicast group.
    GroupCreate(u32),
    /// Creates a node: a replica number and ports.
    NodeCreate(u16, Vec<u32>),
    /// Replaces the ports of a node.
    NodeUpdate(u32, Vec<u32>),
    /// Adds a node to a group.
    NodeAssociate(u32, u32),
    /// Lets a mirror session copy to a port.
    MirrorToPort(u32, u32),
    /// Lets a mirror session copy to a multicast group.
    MirrorToGroup(u32, u32),
    /// Removes a mirror session.
    MirrorDelete(u32),
    /// Shows a mirror session.
    MirrorGet(u32),
    /// Compares a counter.
    CheckCounter(String, Cell, Option<(Quantity, Comparison, u64)>),
    /// Shows a counter.
    CounterRead(String, u32),
    /// Sets packets and bytes of a counter.
    CounterWrite(String, u32, u64, u64),
    /// Shows a register.
    RegisterRead(String, u32),
    /// Writes a register.
    RegisterWrite(String, u32, Literal),
    /// Sets all registers of an array to 0.
    RegisterReset(String),
    /// Compares a register.
    CheckRegister(String, u32, Literal),
    /// Configures a meter.
    MeterSetRates(String, Cell, Vec<Rate>),
    /// Configures all meters of an array.
    MeterArraySetRates(String, Vec<Rate>),
    /// Shows a meter's configuration.
    MeterGetRates(String, u32),
    /// Sets a member of an action profile.
    Member(String, u32, Action),
    /// Sets a group of an action profile: members with weights.
    Group(String, u32, Vec<(u32, u32)>),
    /// Adds a tuple to a value set.
    ValueSet(String, Vec<Pattern>),
    /// Expects values at the control plane.
    ExpectDigest(String, Vec<Literal>),
}

/// An action with arguments by parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Name.
    pub name: String,
    /// Arguments.
    pub args: Vec<(String, Literal)>,
}

/// A cell of an array, or an entry's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// By index.
    Index(u32),
    /// Of an entry.
    Entry(String),
}

/// What a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
}

/// Comparisons of a counter with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    const ALL: &[(&str, Comparison)] = &[
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<=", Comparison::LessOrEqual),
        ("<", Comparison::Less),
        (">=", Comparison::GreaterOrEqual),
        (">", Comparison::Greater),
    ];

    /// Whether the comparison holds.
    pub fn holds(self, left: u64, right: u64) -> bool {
        match self {
            Comparison::Equal => left == right,
            Comparison::NotEqual => left != right,
            Comparison::Less => left < right,
            Comparison::LessOrEqual => left <= right,
            Comparison::Greater => left > right,
            Comparison::GreaterOrEqual => left >= right,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.iter().find(|(_, comparison)| comparison == self).map_or("", |(text, _)| text))
    }
}

/// A rate of a meter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Units per second.
    pub rate: u64,
    /// Units.
    pub burst: u64,
}

/// Digits of a packet that are expected; `None` is any digit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digits {
    /// Digits, each 4 bits.
    pub digits: Vec<Option<u8>>,
    /// Whether the packet ends there.
    pub ends: bool,
}

/// Something wrong in a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1.
    pub line: u32,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.message)
    }
}

impl std::error::Error for Problem {}

impl Case {
    /// Reads a case.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        let (mut steps, mut problems) = (Vec::new(), Vec::new());
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split('#').next().unwrap_or("").trim();
            if text.is_empty() {
                continue;
            }
            match command(text) {
                Ok(command) => steps.push(Step { line, command }),
                Err(message) => problems.push(Problem { line, message }),
            }
        }
        if problems.is_empty() { Ok(Self { steps }) } else { Err(problems) }
    }
}

type Parsed<T> = Result<T, String>;

fn command(text: &str) -> Parsed<Command> {
    let mut line = Line { rest: text };
    let word = line.word("a command")?.to_ascii_lowercase();
    let command = match word.as_str() {
        "add" => line.add()?,
        "setdefault" => Command::SetDefault(line.name("a table")?, line.action()?),
        "remove" => Command::Remove(line.handle()?),
        "packet" => Command::Packet(line.number("a port")?, line.bytes()?),
        "expect" => Command::Expect(line.number("a port")?, line.digits()?),
        "no_packet" => Command::NoPacket,
        "wait" => Command::Wait,
        "mc_mgrp_create" => Command::GroupCreate(line.number("a group")?),
        "mc_node_create" => Command::NodeCreate(line.number("a replica number")?, line.numbers("a port")?),
        "mc_node_update" => Command::NodeUpdate(line.number("a node")?, line.numbers("a port")?),
        "mc_node_associate" => Command::NodeAssociate(line.number("a group")?, line.number("a node")?),
        "mirroring_add" => Command::MirrorToPort(line.number("a session")?, line.number("a port")?),
        "mirroring_add_mc" => Command::MirrorToGroup(line.number("a session")?, line.number("a group")?),
        "mirroring_delete" => Command::MirrorDelete(line.number("a session")?),
        "mirroring_get" => Command::MirrorGet(line.number("a session")?),
        "check_counter" => line.check_counter()?,
        "counter_read" => Command::CounterRead(line.name("a counter")?, line.number("an index")?),
        "counter_write" => Command::CounterWrite(
            line.name("a counter")?,
            line.number("an index")?,
            line.number("packets")?,
            line.number("bytes")?,
        ),
        "register_read" => Command::RegisterRead(line.name("a register")?, line.number("an index")?),
        "register_write" => {
            Command::RegisterWrite(line.name("a register")?, line.number("an index")?, line.literal()?)
        }
        "register_reset" => Command::RegisterReset(line.name("a register")?),
        "check_register" => {
            Command::CheckRegister(line.name("a register")?, line.number("an index")?, line.literal()?)
        }
        "meter_set_rates" => Command::MeterSetRates(line.name("a meter")?, line.cell()?, line.rates()?),
        "meter_array_set_rates" => Command::MeterArraySetRates(line.name("a meter")?, line.rates()?),
        "meter_get_rates" => Command::MeterGetRates(line.name("a meter")?, line.number("an index")?),
        "member" => {
            Command::Member(line.name("an action profile")?, line.number("a member")?, line.action()?)
        }
        "group" => Command::Group(line.name("an action profile")?, line.number("a group")?, line.members()?),
        "value_set" => Command::ValueSet(line.name("a value set")?, line.list(Pattern::parse)?),
        "expect_digest" => Command::ExpectDigest(line.name("a digest")?, line.list(Literal::parse)?),
        _ => return Err(format!("unknown command {word:?}")),
    };
    line.end()?;
    Ok(command)
}

/// What is left of a line.
struct Line<'a> {
    rest: &'a str,
}

impl<'a> Line<'a> {
    /// Takes characters up to the first at which a word ends.
    fn take(&mut self, ends: impl Fn(char) -> bool) -> &'a str {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| c.is_whitespace() || ends(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    fn skip(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn found(&self) -> String {
        match self.rest {
            "" => "the line's end".into(),
            rest => format!("{rest:?}"),
        }
    }

    fn expect(&mut self, text: &str) -> Parsed<()> {
        if self.skip(text) { Ok(()) } else { Err(format!("expected {text:?}, found {}", self.found())) }
    }

    fn end(&self) -> Parsed<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(format!("unexpected {}", self.found())) }
    }

    fn word(&mut self, what: &str) -> Parsed<&'a str> {
        match self.take(|_| false) {
            "" => Err(format!("expected {what}, found the line's end")),
            word => Ok(word),
        }
    }

    fn name(&mut self, what: &str) -> Parsed<String> {
        self.word(what).map(Into::into)
    }

    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Parsed<T> {
        let word = self.word(what)?;
        word.parse().map_err(|_| format!("expected {what} (a number), found {word:?}"))
    }

    /// All words that are left.
    fn list<T>(&mut self, parse: impl Fn(&str) -> Parsed<T>) -> Parsed<Vec<T>> {
        std::mem::take(&mut self.rest).split_whitespace().map(parse).collect()
    }

    fn numbers(&mut self, what: &str) -> Parsed<Vec<u32>> {
        self.list(|word| word.parse().map_err(|_| format!("expected {what} (a number), found {word:?}")))
    }

    fn literal(&mut self) -> Parsed<Literal> {
        Literal::parse(self.word("a number")?)
    }

    fn handle(&mut self) -> Parsed<String> {
        let word = self.word("an entry")?;
        match word.strip_prefix('$') {
            Some(name) if !name.is_empty() => Ok(name.into()),
            _ => Err(format!("expected an entry ($ and its name), found {word:?}")),
        }
    }

    fn cell(&mut self) -> Parsed<Cell> {
        match self.rest.starts_with('$') {
            true => self.handle().map(Cell::Entry),
            false => self.number("an index").map(Cell::Index),
        }
    }

    fn add(&mut self) -> Parsed<Command> {
        let table = self.name("a table")?;
        let (mut priority, mut keys) = (None, Vec::new());
        loop {
            let before = self.rest;
            let name = self.take(|c| c == ':' || c == '(');
            if self.skip(":") {
                let pattern = Pattern::parse(self.take(|_| false)).map_err(|e| format!("key {name}: {e}"))?;
                keys.push((name.into(), pattern));
            } else if self.rest.starts_with('(') {
                self.rest = before;
                break;
            } else if priority.is_none() && keys.is_empty() && !name.is_empty() {
                let expected = || format!("expected a priority, a key or an action, found {name:?}");
                priority = Some(name.parse().map_err(|_| expected())?);
            } else {
                return Err(format!("expected key:value or action(…), found {before:?}"));
            }
        }
        let action = self.action()?;
        let handle = if self.skip("=") { Some(self.name("a name of the entry")?) } else { None };
        Ok(Command::Add { table, priority, keys, action, handle })
    }

    fn action(&mut self) -> Parsed<Action> {
        let name = match self.take(|c| c == '(') {
            "" => return Err(format!("expected an action, found {}", self.found())),
            name => name.to_owned(),
        };
        self.expect("(")?;
        let mut args = Vec::new();
        while !self.skip(")") {
            if !args.is_empty() {
                self.expect(",")?;
            }
            let param = self.take(|c| ":,)".contains(c)).to_owned();
            self.expect(":")?;
            let value = self.take(|c| ",)".contains(c));
            args.push((param, Literal::parse(value)?));
        }
        Ok(Action { name, args })
    }

    fn bytes(&mut self) -> Parsed<Vec<u8>> {
        let digits = self.digits()?.unwrap_or(Digits { digits: vec![], ends: false });
        if digits.ends || digits.digits.contains(&None) {
            return Err("a packet to be sent has digits only (expected neither * nor $)".into());
        }
        if digits.digits.len() % 2 == 1 {
            return Err(format!("a packet to be sent has whole bytes, found {} digits", digits.digits.len()));
        }
        let byte = |pair: &[Option<u8>]| pair.iter().flatten().fold(0, |byte, digit| byte << 4 | digit);
        Ok(digits.digits.chunks(2).map(byte).collect())
    }

    fn digits(&mut self) -> Parsed<Option<Digits>> {
        let mut rest = std::mem::take(&mut self.rest).trim();
        if rest.is_empty() {
            return Ok(None);
        }
        let ends = rest.ends_with('$');
        rest = rest.strip_suffix('$').unwrap_or(rest);
        let digit = |c: char| match c {
            '*' => Ok(None),
            _ => c.to_digit(16).map(|d| Some(d as u8)).ok_or(format!("{c:?} is no hexadecimal digit")),
        };
        let digits: Result<_, _> = rest.chars().filter(|c| !c.is_whitespace()).map(digit).collect();
        Ok(Some(Digits { digits: digits?, ends }))
    }

    fn check_counter(&mut self) -> Parsed<Command> {
        let name = self.take(|c| c == '(').to_owned();
        self.expect("(")?;
        let cell = Line { rest: self.take(|c| c == ')') }.cell()?;
        self.expect(")")?;
        if self.rest.is_empty() {
            return Ok(Command::CheckCounter(name, cell, None));
        }
        let quantity = match self.take(|c| "=!<>".contains(c)) {
            "packets" => Quantity::Packets,
            "bytes" => Quantity::Bytes,
            other => return Err(format!("expected packets or bytes, found {other:?}")),
        };
        let comparison = Comparison::ALL.iter().find(|(text, _)| self.rest.starts_with(text));
        let (text, comparison) =
            comparison.ok_or_else(|| format!("expected a comparison, found {}", self.found()))?;
        self.expect(text)?;
        Ok(Command::CheckCounter(name, cell, Some((quantity, *comparison, self.number("a number")?))))
    }

    fn rates(&mut self) -> Parsed<Vec<Rate>> {
        let rates = self.list(|word| {
            let wrong = || format!("expected rate:burst, found {word:?}");
            let (rate, burst) = word.split_once(':').ok_or_else(wrong)?;
            let rate: f64 = rate.parse().map_err(|_| wrong())?;
            let burst = burst.parse().map_err(|_| wrong())?;
            // The cast saturates, and turns what is no number into 0.
            Ok(Rate { rate: (rate * UNITS_PER_MICROSECOND).round() as u64, burst })
        })?;
        if rates.is_empty() || rates.len() > 2 {
            return Err(format!("a meter has one or two rates, found {}", rates.len()));
        }
        Ok(rates)
    }

    fn members(&mut self) -> Parsed<Vec<(u32, u32)>> {
        self.list(|word| {
            let (member, weight) = word.split_once('*').unwrap_or((word, "1"));
            let wrong = |_| format!("expected member or member*weight, found {word:?}");
            Ok((member.parse().map_err(wrong)?, weight.parse().map_err(wrong)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Command {
        command(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn literal(text: &str) -> Literal {
        Literal::parse(text).unwrap()
    }

    #[test]
    fn entries_have_conditions_and_arguments() {
        let add = one("add ingress.t 503 data.f1:0x****0202 h$0.x : 3 ingress.setb1(val:7, port : 3) = A");
        let keys = vec![
            ("data.f1".into(), Pattern::Value(literal("0x****0202"))),
            ("h$0.x".into(), Pattern::Value(literal("3"))),
        ];
        let args = vec![("val".into(), literal("7")), ("port".into(), literal("3"))];
        let action = Action { name: "ingress.setb1".into(), args };
        let (table, handle) = ("ingress.t".into(), Some("A".into()));
        assert_eq!(add, Command::Add { table, priority: Some(503), keys, action, handle });
        let Command::Add { priority: None, keys, action, handle: None, .. } = one("add t drop()") else {
            panic!("an entry without keys");
        };
        assert_eq!((keys, action.args), (vec![], vec![]));
    }

    #[test]
    fn packets_may_have_blanks_and_patterns_wildcards() {
        assert_eq!(one("PACKET 3 00 1f A0"), Command::Packet(3, vec![0, 0x1f, 0xa0]));
        let digits = vec![Some(0), None, Some(15)];
        assert_eq!(one("expect 1 0* f $"), Command::Expect(1, Some(Digits { digits, ends: true })));
        assert_eq!(one("expect 1"), Command::Expect(1, None));
        assert_eq!(one("expect 1 $"), Command::Expect(1, Some(Digits { digits: vec![], ends: true })));
    }

    #[test]
    fn other_commands_are_read() {
        let check = Command::CheckCounter(
            "cnt".into(),
            Cell::Entry("A".into()),
            Some((Quantity::Bytes, Comparison::GreaterOrEqual, 12)),
        );
        assert_eq!(one("check_counter cnt($A) bytes >= 12"), check);
        assert_eq!(one("check_counter c(9)"), Command::CheckCounter("c".into(), Cell::Index(9), None));
        let rates = vec![Rate { rate: 5, burst: 4 }, Rate { rate: 20, burst: 5 }];
        let meter = Command::MeterSetRates("m".into(), Cell::Index(2), rates);
        assert_eq!(one("meter_set_rates m 2 0.000005:4 0.00002:5"), meter);
        assert_eq!(one("group p 1 2*3 4"), Command::Group("p".into(), 1, vec![(2, 3), (4, 1)]));
        assert_eq!(one("mc_node_create 257 6 8"), Command::NodeCreate(257, vec![6, 8]));
        assert_eq!(one("remove $A"), Command::Remove("A".into()));
    }

    #[test]
    fn errors_name_line_and_expectation() {
        let text = "\n# comment\npacket 1 0g\nadd t k:1\nexpect x\nfoo\npacket 0 123\nmc_node_associate 1 2 3\n\
                    add t a(x:1 y:2)\nmeter_set_rates m 1\nadd t x y:1 a()\nsetdefault t\npacket 0 12 # fine";
        let problems = Case::parse(text).unwrap_err();
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        let expected = [
            "3: 'g' is no hexadecimal digit",
            "4: expected key:value or action(…), found \"\"",
            "5: expected a port (a number), found \"x\"",
            "6: unknown command \"foo\"",
            "7: a packet to be sent has whole bytes, found 3 digits",
            "8: unexpected \"3\"",
            "9: expected \",\", found \"y:2)\"",
            "10: a meter has one or two rates, found 0",
            "11: expected a priority, a key or an action, found \"x\"",
            "12: expected an action, found the line's end",
        ];
        assert_eq!(problems, expected);
    }
}

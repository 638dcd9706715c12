//! `chain`: several logics in a row. Each stage sees the packets that no earlier stage has decided.
//!
//! A stage decides a packet by sending, broadcasting or dropping it. Any other packet goes on to the next stage, with
//! its headers as this stage left them. A packet that the last stage leaves has no destination.
//!
//! Each port gets its packets in the order in which they arrived, whichever stage sent them.
//!
//! Each parameter is a stage: its number, and a line quoted as in a shell: the logic's name, then `KEY=VALUE` for each
//! of the logic's own parameters. A chain cannot be a stage of a chain, so a packet meets each stage at most once.
//!
//! The control plane sees the stages apart: names of counters and tables begin with `stageN_`, commands with the
//! stage's number.
//!
//! Invariant: a chain has at least one stage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fabric::worker::{PerThread, Threads};
use fabric::{Arena, Batch, PortIndex, PortSettings, Rest, SwitchLogic, Text, Value};

use crate::{
    CommandInfo, Counter, Faults, Kind, Logic, LogicError, LogicInfo, ParamDescription, ParamKind, State,
    Table, TableSize, Views, handover, params,
};

pub(crate) const INFO: LogicInfo = LogicInfo {
    name: "chain",
    summary: "several logics in a row: each sees the packets that earlier ones leave undecided",
    params: param_descriptions,
    build: |params, kinds| Ok(Arc::new(Chain::new(params, kinds)?)),
};

fn param_descriptions() -> Vec<ParamDescription> {
    let help = "a stage, numbered from 1 to at most 16: a logic's name, then its parameters as KEY=VALUE, \
                separated by spaces and quoted as in a shell";
    let line = ParamKind::Text { max: MAX_LINE };
    vec![
        ParamDescription::new("N", line, help)
            .optional("the chain ends before it; stage 1 is required")
            .of_any_name(),
    ]
}

/// Longest text of a stage, bytes.
const MAX_LINE: u64 = 4096;

/// Largest number of stages in a chain.
pub const MAX_STAGES: usize = 16;

/// Description of a stage, for errors.
const STAGE: &str = "a logic's name and its parameters, such as `learning ageing=60`,";

struct Stage {
    logic: Arc<dyn Logic>,
    /// Time at which each worker wakes it next, nanoseconds.
    due: PerThread<AtomicU64>,
}

impl Stage {
    /// Returns whether to wake the stage now, where the chain is woken every `beat`.
    fn is_due(&self, worker: usize, now: u64, beat: Duration) -> bool {
        let (Some(period), Some(due)) = (self.logic.period(), self.due.get(worker)) else {
            return false;
        };
        // Half a beat early is closer than the rest of a beat late.
        let is_due = now.saturating_add(nanoseconds(beat / 2)) >= due.load(Ordering::Relaxed);
        if is_due {
            due.store(now.saturating_add(nanoseconds(period)), Ordering::Relaxed);
        }
        is_due
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The logic `chain`. See the module's documentation.
pub struct Chain {
    first: Stage,
    later: Vec<Stage>,
}

impl Chain {
    /// Makes a chain of the stages in `given`, numbered from 1 on. Logics from outside are of these `kinds`.
    pub fn new(given: &[(String, String)], kinds: &'static [Kind]) -> Result<Self, LogicError> {
        params::check(&INFO.describe(), given)?;
        for (name, _) in given {
            let number = name.parse().ok().filter(|number| (1..=MAX_STAGES).contains(number));
            if number.is_none_or(|number| number.to_string() != *name) {
                return Err(LogicError::StageNumber { name: name.clone() });
            }
        }
        let stage = |number: usize| {
            let missing = || LogicError::MissingStage { number };
            let (_, line) = given.iter().find(|(name, _)| *name == number.to_string()).ok_or_else(missing)?;
            stage(number, line, kinds)
        };
        let first = stage(1)?;
        Ok(Self { first, later: (2..=given.len()).map(stage).collect::<Result<_, _>>()? })
    }

    /// Returns the first stage among a chain's parameters whose logic is `name`.
    pub fn stage_of(given: &[(String, String)], name: &str) -> Option<usize> {
        let has =
            |line: &str| shell_words::split(line).is_ok_and(|words| words.first().is_some_and(|w| w == name));
        given.iter().filter(|(_, line)| has(line)).filter_map(|(number, _)| number.parse().ok()).min()
    }

    fn all(&self) -> impl Iterator<Item = (usize, &Stage)> {
        (1..).zip(std::iter::once(&self.first).chain(&self.later))
    }

    /// The stages that inherit: their numbers, their logics, and the states that each of them inherits.
    fn inheritances<'a>(&'a self, states: &'a [State]) -> Vec<(usize, &'a Arc<dyn Logic>, &'a [State])> {
        let stages = || (1..).zip(self.logics());
        if !states.iter().any(|state| state.stage().is_some()) {
            return stages().map(|(number, logic)| (number, logic, states)).collect();
        }
        let before = stages_of(states);
        let names: Vec<_> = self.logics().map(|logic| logic.name()).collect();
        let inherits = |((number, logic), old): ((usize, &'a Arc<dyn Logic>), Option<usize>)| {
            let (.., states) = before.get(old?)?;
            Some((number, logic, *states))
        };
        stages().zip(predecessors(&names, &before)).filter_map(inherits).collect()
    }

    fn logics(&self) -> impl Iterator<Item = &Arc<dyn Logic>> {
        self.all().map(|(_, stage)| &stage.logic)
    }
}

/// Builds a stage.
fn stage(number: usize, line: &str, kinds: &'static [Kind]) -> Result<Stage, LogicError> {
    let refused = |expected: &str| LogicError::bad_value(INFO.name, &number.to_string(), line, expected);
    let words = shell_words::split(line).map_err(|_| match open_quote(line) {
        Some((quote, rest)) => LogicError::OpenQuote { number, quote, rest: rest.into() },
        None => refused("a character behind the last backslash"),
    })?;
    let (name, own) = words.split_first().ok_or_else(|| refused(STAGE))?;
    if name == INFO.name {
        return Err(refused("a logic other than `chain` (write its stages here, one by one)"));
    }
    let own = own.iter().map(|word| match word.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(LogicError::StageWord { number, word: word.clone(), is_file: name.contains(':') }),
    });
    let own = own.collect::<Result<Vec<_>, _>>()?;
    let logic = crate::build(name, &own, kinds)
        .map_err(|error| LogicError::Stage { number, error: Box::new(error) })?;
    Ok(Stage { logic, due: PerThread::default() })
}

/// Returns the quote of a line that is not closed, and the text behind it.
fn open_quote(line: &str) -> Option<(char, &str)> {
    let mut open = None;
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        match (open, c) {
            (None | Some(('"', _)), '\\') => _ = chars.next(),
            (None, '\'' | '"') => open = Some((c, at)),
            (Some((quote, _)), c) if c == quote => open = None,
            _ => {}
        }
    }
    let (quote, at) = open?;
    Some((quote, line.get(at + 1..)?))
}

/// Writes the line that [`stage`] reads.
fn line(name: &str, params: &[(String, String)]) -> String {
    // Keys and values are quoted apart: `ageing=60` needs no quotes, though shells give `=` a meaning.
    params.iter().fold(shell_words::quote(name).into_owned(), |line, (key, value)| {
        format!("{line} {}={}", shell_words::quote(key), shell_words::quote(value))
    })
}

impl SwitchLogic for Chain {
    fn forward(&self, batch: &mut Batch<'_>) {
        self.first.logic.forward(batch);
        let mut rest = Rest::default();
        for stage in &self.later {
            let Some(mut left) = batch.rest(&mut rest) else { break };
            stage.logic.forward(&mut left);
        }
        batch.end_of_stages(rest);
    }

    fn explain(&self, batch: &mut Batch<'_>) -> bool {
        let mut rest = Rest::default();
        let mut explained = true;
        let mut stages = (1..).zip(std::iter::once(&self.first).chain(&self.later)).peekable();
        while let Some((number, stage)) = stages.next() {
            let Some(mut left) = batch.rest(&mut rest) else { break };
            left.set_stage(Some((number, Text::of(stage.logic.label()))));
            explained &= stage.logic.explain(&mut left);
            for v in left.packets() {
                match stages.peek() {
                    _ if !left.is_open(v) => left.remark(v, "decides", &[]),
                    Some((next, _)) => {
                        left.remark(v, "leaves the packet to stage {}", &[Value::Number(u64::from(*next))]);
                    }
                    None => left.remark(v, "leaves the packet undecided", &[]),
                }
            }
        }
        batch.set_stage(None);
        if let Some(mut left) = batch.rest(&mut rest) {
            left.packets().for_each(|v| left.remark(v, "no stage has decided where it goes", &[]));
        }
        batch.end_of_stages(rest);
        explained
    }

    fn prepare(&self, threads: Threads) -> Result<(), String> {
        self.all().try_for_each(|(number, stage)| {
            stage.logic.prepare(threads).map_err(|error| format!("stage {number}: {error}"))?;
            stage.due.prepare(threads, |_| Ok(AtomicU64::new(0)))
        })
    }

    fn worker_removed(&self, worker: usize) {
        self.logics().for_each(|logic| logic.worker_removed(worker));
    }

    /// Returns the shortest period of its stages; each stage is woken at its own times.
    fn period(&self) -> Option<Duration> {
        self.logics().filter_map(|logic| logic.period()).min()
    }

    fn wake(&self, batch: &mut Batch<'_>) {
        let Some(beat) = self.period() else { return };
        let (worker, now) = (batch.worker(), batch.now_ns());
        for (_, stage) in self.all().filter(|(_, stage)| stage.is_due(worker, now, beat)) {
            stage.logic.wake(batch);
        }
    }

    /// Returns the first stage's arena, if it has one. In an arena of its own, a later stage could reach headers of
    /// packets that earlier stages have sent.
    fn arena(&self, worker: usize) -> Option<Arena> {
        self.logics().next()?.arena(worker)
    }

    fn ports_changed(&self, ports: &[(PortIndex, Arc<PortSettings>)]) {
        self.logics().for_each(|logic| logic.ports_changed(ports));
    }

    fn port_down(&self, port: PortIndex) {
        self.logics().for_each(|logic| logic.port_down(port));
    }

    fn port_removed(&self, port: PortIndex) {
        self.logics().for_each(|logic| logic.port_removed(port));
    }
}

impl Logic for Chain {
    fn name(&self) -> &str {
        INFO.name
    }

    fn params(&self) -> Vec<(String, String)> {
        let stage = |(number, stage): (usize, &Stage)| {
            (number.to_string(), line(stage.logic.name(), &stage.logic.params()))
        };
        self.all().map(stage).collect()
    }

    /// Takes each view from the first stage that offers it.
    fn views(&self) -> Views<'_> {
        self.logics().fold(Views::default(), |views, logic| views.or(logic.views()))
    }

    fn called_on(&self, thread: usize) -> Option<String> {
        self.all()
            .find_map(|(number, stage)| Some(format!("stage {number}, {}", stage.logic.called_on(thread)?)))
    }

    fn faults(&self) -> Vec<Faults> {
        let of = |(number, stage): (usize, &Stage)| {
            let staged = move |faults: Faults| Faults {
                module: format!("stage {number}, {}", faults.module),
                ..faults
            };
            stage.logic.faults().into_iter().map(staged)
        };
        self.all().flat_map(of).collect()
    }

    fn is_outdated(&self) -> bool {
        self.logics().any(|logic| logic.is_outdated())
    }

    fn named_ports(&self) -> Vec<String> {
        self.logics().flat_map(|logic| logic.named_ports()).collect()
    }

    fn counters(&self) -> Vec<Counter> {
        let of = |(number, stage): (usize, &Stage)| {
            let named = move |counter: Counter| Counter { name: prefixed(number, &counter.name), ..counter };
            stage.logic.counters().into_iter().map(named)
        };
        self.all().flat_map(of).collect()
    }

    fn tables(&self) -> Vec<Table> {
        let of = |(number, stage): (usize, &Stage)| {
            let named = move |table: Table| Table { name: prefixed(number, &table.name), ..table };
            stage.logic.tables().into_iter().map(named)
        };
        self.all().flat_map(of).collect()
    }

    fn table_sizes(&self) -> Vec<TableSize> {
        let of = |(number, stage): (usize, &Stage)| {
            let named = move |size: TableSize| TableSize { name: prefixed(number, &size.name), ..size };
            stage.logic.table_sizes().into_iter().map(named)
        };
        self.all().flat_map(of).collect()
    }

    fn commands(&self) -> Vec<CommandInfo> {
        let of = |(number, stage): (usize, &Stage)| {
            let numbered =
                move |info: CommandInfo| CommandInfo { name: format!("{number} {}", info.name), ..info };
            stage.logic.commands().into_iter().map(numbered)
        };
        self.all().flat_map(of).collect()
    }

    /// Passes a command to the stage whose number is its first word.
    fn call(&self, command: &[String]) -> Result<String, LogicError> {
        let asked = command.split_first().and_then(|(number, command)| {
            let (number, stage) = self.all().find(|(own, _)| own.to_string() == *number)?;
            Some((number, stage, command))
        });
        match asked {
            Some((number, _, [])) => {
                let own =
                    |info: CommandInfo| info.name.strip_prefix(&format!("{number} ")).map(str::to_owned);
                let known = self.commands().into_iter().filter_map(own).collect();
                Err(LogicError::MissingCommand { stage: number, known })
            }
            Some((_, stage, command)) => stage.logic.call(command),
            None => Err(LogicError::unknown_command(INFO.name, command, &self.commands())),
        }
    }

    /// The states of all stages in order, each stage's behind a mark with its number and name. In another chain each
    /// stage inherits from one of them (`predecessors`); another logic takes the states that it understands.
    fn hand_over(&self) -> Vec<State> {
        let of = |(number, stage): (usize, &Stage)| {
            let states = stage.logic.hand_over();
            let marker = (!states.is_empty()).then(|| State::of_stage(number, stage.logic.name()));
            marker.into_iter().chain(states)
        };
        self.all().flat_map(of).collect()
    }

    fn take_over(&self, states: &[State]) {
        for (_, stage, states) in self.inheritances(states) {
            stage.take_over(states);
        }
    }

    fn not_taken_over(&self, states: &[State]) -> Vec<String> {
        let of = |(number, stage, states): (usize, &Arc<dyn Logic>, &[State])| {
            let notes = stage.not_taken_over(states).into_iter();
            notes.map(move |note| format!("stage {number}: {note}"))
        };
        self.inheritances(states).into_iter().flat_map(of).collect()
    }

    fn has_table(&self, name: &str) -> bool {
        self.logics().any(|logic| logic.has_table(name))
    }

    /// Looks for each table of a former stage in the stage that inherits from it.
    fn left_behind(&self, states: &[State]) -> Vec<String> {
        let before = stages_of(states);
        if before.is_empty() {
            return handover::left_behind(states, |name| self.has_table(name));
        }
        let names: Vec<_> = self.logics().map(|logic| logic.name()).collect();
        let heirs: Vec<_> = self.logics().zip(predecessors(&names, &before)).collect();
        let of = |(place, (number, name, states)): (usize, &Old<'_>)| {
            let heir = heirs.iter().find(|(_, old)| *old == Some(place)).map(|(logic, _)| logic);
            let mark = State::of_stage(*number, name);
            let states: Vec<_> = std::iter::once(mark).chain(states.iter().cloned()).collect();
            handover::left_behind(&states, |name| heir.is_some_and(|logic| logic.has_table(name)))
        };
        before.iter().enumerate().flat_map(of).collect()
    }

    fn stages(&self) -> Vec<(usize, &dyn Logic)> {
        (1..).zip(self.logics().map(|logic| &**logic)).collect()
    }

    fn set_bridge(&self, bridge: &str) {
        self.logics().for_each(|logic| logic.set_bridge(bridge));
    }

    fn tick(&self, now_seconds: u32) {
        self.logics().for_each(|logic| logic.tick(now_seconds));
    }
}

fn prefixed(number: usize, name: &str) -> String {
    format!("stage{number}_{name}")
}

/// A stage that hands over: its number, its logic's name, and its states.
type Old<'a> = (usize, &'a str, &'a [State]);

/// The stages that hand something over.
fn stages_of(states: &[State]) -> Vec<Old<'_>> {
    let mut stages = Vec::new();
    let mut rest = states;
    while let Some((mark, own)) = rest.split_first() {
        let end = own.iter().position(|state| state.stage().is_some()).unwrap_or(own.len());
        let (own, later) = own.split_at(end);
        if let Some((number, name)) = mark.stage() {
            stages.push((number, name, own));
        }
        rest = later;
    }
    stages
}

/// The stage before, by its place in `before`, that each of the stages with these logics inherits from: the one with
/// the same number and logic, else one with the same logic, else the one with the same number whose logic is gone.
/// Each hands over to one stage.
fn predecessors(names: &[&str], before: &[Old<'_>]) -> Vec<Option<usize>> {
    let mut found = vec![None; names.len()];
    let passes: [fn(usize, &str, &Old<'_>) -> bool; 3] = [
        |number, name, old| old.0 == number && old.1 == name,
        |_, name, old| old.1 == name,
        |number, _, old| old.0 == number,
    ];
    for suits in passes {
        for (i, name) in names.iter().enumerate() {
            let free = |old: &usize| !found.contains(&Some(*old));
            let mut olds = before.iter().enumerate().filter(|(_, old)| suits(i + 1, name, old));
            let old = olds.find_map(|(old, _)| Some(old).filter(free));
            if let Some(place) = found.get_mut(i)
                && place.is_none()
            {
                *place = old;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whitespace_splits_and_quotes_group() {
        for (line, words) in [
            ("", vec![]),
            ("  learning\tageing=60 ", vec!["learning", "ageing=60"]),
            (r#""wasm:/etc/my file.wasm" port=7000"#, vec!["wasm:/etc/my file.wasm", "port=7000"]),
            (r#"static a="my port" "b"=c 'd=e f'"#, vec!["static", "a=my port", "b=c", "d=e f"]),
            (r#"x "" "a\"b\\c\d" e\ f"#, vec!["x", "", r#"a"b\c\d"#, "e f"]),
        ] {
            assert_eq!(shell_words::split(line).unwrap(), words, "{line}");
        }
        for (open, message) in [
            (r#"static "a b"#, r#"stage 1: the quote " before `a b` is not closed"#),
            (r#"static "a\"#, r#"stage 1: the quote " before `a\` is not closed"#),
            (r#"static "x" 'a"#, "stage 1: the quote ' before `a` is not closed"),
        ] {
            let Err(error) = stage(1, open, &[]) else { panic!("{open} was accepted") };
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn quotes_are_written_only_where_needed() {
        let params = [("ageing", "60"), ("file", "/a b"), ("b", "")].map(|(k, v)| (k.into(), v.into()));
        assert_eq!(line("wasm:/etc/a.wasm", &params), "wasm:/etc/a.wasm ageing=60 file='/a b' b=''");
    }

    proptest! {
        #[test]
        fn a_written_line_splits_into_its_words(
            name in "[a#'\"\\\\ ]{1,6}",
            params in proptest::collection::vec(("[a#'\"\\\\ \n]{1,6}", "[=$#'\"\\\\ \t\n]{0,6}"), 0..5),
        ) {
            let params: Vec<(String, String)> = params;
            let mut words = vec![name.clone()];
            words.extend(params.iter().map(|(key, value)| format!("{key}={value}")));
            prop_assert_eq!(shell_words::split(&line(&name, &params)).unwrap(), words);
        }
    }
}

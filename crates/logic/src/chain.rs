//! `chain`: several logics in a row. Each sees the packets that no earlier one has said anything about.
//!
//! A stage has said something about a packet when it has sent, broadcast or dropped it; what it leaves goes on to the next one,
//! with the headers as the stage left them. What the last one leaves has no destination, as ever.
//!
//! To each port they go in the order in which they came, whichever stage sent them.
//!
//! Each parameter is a stage: its number, and a line of words quoted as in a shell: the logic's name, then `KEY=VALUE` for
//! each of the logic's own parameters. A chain is no stage of a chain, so a packet meets each stage at most once.
//!
//! Towards the control plane the stages stay apart: counters and tables begin with `stageN_`, commands with the stage's number.
//!
//! Invariant: there is at least one stage.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fabric::{Arena, Batch, PortIndex, PortSettings, Rest, SwitchLogic};

use crate::{
    CommandInfo, Counter, Kind, LIST, Logic, LogicError, LogicInfo, ParamDescription, ParamKind, State,
    Table, TableSize, Views, params,
};

pub(crate) const INFO: LogicInfo = LogicInfo {
    name: "chain",
    summary: "several logics in a row: each sees what the ones before it have left",
    params: described,
    build: |params, kinds| Ok(Arc::new(Chain::new(params, kinds)?)),
};

fn described() -> Vec<ParamDescription> {
    let help = "a stage, from 1 to at most 16: a logic's name and then its parameters as KEY=VALUE, with blanks between; \
                quotes, as in a shell, around what has blanks in it";
    let line = ParamKind::Text { max: MAX_LINE };
    vec![
        ParamDescription::new("N", line, help)
            .optional("the chain ends; stage 1 must be given")
            .of_any_name(),
    ]
}

/// Longest stage as it is written, bytes.
const MAX_LINE: u64 = 4096;

/// Most stages of a chain.
pub const MAX_STAGES: usize = 16;

/// What a stage is, in an error.
const STAGE: &str = "a logic's name and its parameters, such as `learning ageing=60`,";

/// The name of the state that says of which stage those are that follow it.
const MARK: &str = "chain-stage";

struct Stage {
    logic: Arc<dyn Logic>,
    /// Its name in traces.
    word: &'static str,
    /// When each worker is to wake it next, nanoseconds.
    due: OnceLock<Box<[AtomicU64]>>,
}

impl Stage {
    /// Whether it is to be woken now, where the chain is woken every `beat`.
    fn is_due(&self, worker: usize, now: u64, beat: Duration) -> bool {
        let (Some(period), Some(due)) = (self.logic.period(), self.due.get().and_then(|due| due.get(worker)))
        else {
            return false;
        };
        // Half a beat early is nearer than the rest of one late.
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
    /// Parameters: the stages by their numbers, which are those from 1 on. They may be of these `kinds`.
    pub fn new(given: &[(String, String)], kinds: &'static [Kind]) -> Result<Self, LogicError> {
        params::check(&INFO.describe(), given)?;
        for (name, _) in given {
            let number = name.parse().ok().filter(|number| (1..=MAX_STAGES).contains(number));
            if number.is_none_or(|number| number.to_string() != *name) {
                return Err(LogicError::unknown_param(&INFO.describe(), name));
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

    fn stages(&self) -> impl Iterator<Item = (usize, &Stage)> {
        (1..).zip(std::iter::once(&self.first).chain(&self.later))
    }

    fn logics(&self) -> impl Iterator<Item = &Arc<dyn Logic>> {
        self.stages().map(|(_, stage)| &stage.logic)
    }
}

/// Makes a stage.
fn stage(number: usize, line: &str, kinds: &'static [Kind]) -> Result<Stage, LogicError> {
    let refused = |expected: &str| LogicError::bad_value(INFO.name, &number.to_string(), line, expected);
    let words = shell_words::split(line).map_err(|_| refused("a closing quote"))?;
    let (name, own) = words.split_first().ok_or_else(|| refused(STAGE))?;
    if name == INFO.name {
        return Err(refused("a logic other than `chain` (write its stages here, one by one)"));
    }
    let own = own.iter().map(|word| match word.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(refused(&format!("KEY=VALUE in place of `{word}`"))),
    });
    let own = own.collect::<Result<Vec<_>, _>>()?;
    let logic = crate::build(name, &own, kinds)
        .map_err(|error| LogicError::Stage { number, error: Box::new(error) })?;
    let known = LIST.iter().map(|info| info.name).chain(kinds.iter().map(|kind| kind.prefix));
    let kind = name.split_once(':').map_or(name.as_str(), |(prefix, _)| prefix);
    let word = known.into_iter().find(|known| *known == kind).unwrap_or("logic");
    Ok(Stage { logic, word, due: OnceLock::new() })
}

/// The line that [`stage`] reads.
fn line(name: &str, params: &[(String, String)]) -> String {
    // Values are quoted apart from their keys: `ageing=60` needs no quotes, though shells have a use for `=`.
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
        for (number, stage) in (1..).zip(std::iter::once(&self.first).chain(&self.later)) {
            let Some(mut left) = batch.rest(&mut rest) else { break };
            left.speaks(Some((number, stage.word)));
            for v in left.packets() {
                left.remark(v, "this stage decides", &[]);
            }
            explained &= stage.logic.explain(&mut left);
        }
        batch.speaks(None);
        if let Some(mut left) = batch.rest(&mut rest) {
            left.packets().for_each(|v| left.remark(v, "no stage has decided where it goes", &[]));
        }
        batch.end_of_stages(rest);
        explained
    }

    fn prepare(&self, workers: usize) -> Result<(), String> {
        self.stages().try_for_each(|(number, stage)| {
            stage.logic.prepare(workers).map_err(|error| format!("stage {number}: {error}"))?;
            let _ = stage.due.set((0..workers).map(|_| AtomicU64::new(0)).collect());
            Ok(())
        })
    }

    /// That of the stage that wants it most often; each is woken when its own time has come.
    fn period(&self) -> Option<Duration> {
        self.logics().filter_map(|logic| logic.period()).min()
    }

    fn wake(&self, batch: &mut Batch<'_>) {
        let Some(beat) = self.period() else { return };
        let (worker, now) = (batch.worker(), batch.now_ns());
        for (_, stage) in self.stages().filter(|(_, stage)| stage.is_due(worker, now, beat)) {
            stage.logic.wake(batch);
        }
    }

    /// That of the first stage, if it has one. A later one could reach headers of packets there that earlier ones have sent.
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
        self.stages().map(stage).collect()
    }

    /// Each from the first stage that offers it.
    fn views(&self) -> Views<'_> {
        self.logics().fold(Views::default(), |views, logic| views.or(logic.views()))
    }

    fn is_outdated(&self) -> bool {
        self.logics().any(|logic| logic.is_outdated())
    }

    fn named_ports(&self) -> Vec<String> {
        self.logics().flat_map(|logic| logic.named_ports()).collect()
    }

    fn counters(&self) -> Vec<Counter> {
        let of = |(number, stage): (usize, &Stage)| {
            let named = move |counter: Counter| Counter { name: named(number, &counter.name), ..counter };
            stage.logic.counters().into_iter().map(named)
        };
        self.stages().flat_map(of).collect()
    }

    fn tables(&self) -> Vec<Table> {
        let of = |(number, stage): (usize, &Stage)| {
            let named = move |table: Table| Table { name: named(number, &table.name), ..table };
            stage.logic.tables().into_iter().map(named)
        };
        self.stages().flat_map(of).collect()
    }

    fn table_sizes(&self) -> Vec<TableSize> {
        let of = |(number, stage): (usize, &Stage)| {
            let named = move |size: TableSize| TableSize { name: named(number, &size.name), ..size };
            stage.logic.table_sizes().into_iter().map(named)
        };
        self.stages().flat_map(of).collect()
    }

    fn commands(&self) -> Vec<CommandInfo> {
        let of = |(number, stage): (usize, &Stage)| {
            let numbered =
                move |info: CommandInfo| CommandInfo { name: format!("{number} {}", info.name), ..info };
            stage.logic.commands().into_iter().map(numbered)
        };
        self.stages().flat_map(of).collect()
    }

    /// The first word is the stage's number.
    fn call(&self, command: &[String]) -> Result<String, LogicError> {
        let asked = command.split_first().and_then(|(number, command)| {
            let (_, stage) = self.stages().find(|(own, _)| own.to_string() == *number)?;
            Some((stage, command))
        });
        match asked {
            Some((stage, command)) => stage.logic.call(command),
            None => Err(LogicError::unknown_command(INFO.name, command, &self.commands())),
        }
    }

    /// What the stages know, one after the other, each behind a mark with its number and name: another chain gives it to the
    /// same stages, and other logics take what they understand, whose ever it is.
    fn hand_over(&self) -> Vec<State> {
        let of = |(number, stage): (usize, &Stage)| {
            let states = stage.logic.hand_over();
            let mark = (!states.is_empty()).then(|| mark(number, stage.logic.name()));
            mark.into_iter().chain(states)
        };
        self.stages().flat_map(of).collect()
    }

    fn take_over(&self, states: &[State]) {
        if !states.iter().any(|state| state.name == MARK) {
            return self.logics().for_each(|logic| logic.take_over(states));
        }
        for (number, stage) in self.stages() {
            let own = mark(number, stage.logic.name());
            let Some(at) = states.iter().position(|state| *state == own) else { continue };
            let own = states.get(at + 1..).unwrap_or_default();
            let end = own.iter().position(|state| state.name == MARK).unwrap_or(own.len());
            stage.logic.take_over(own.get(..end).unwrap_or_default());
        }
    }

    fn tick(&self, now_seconds: u32) {
        self.logics().for_each(|logic| logic.tick(now_seconds));
    }
}

fn named(number: usize, name: &str) -> String {
    format!("stage{number}_{name}")
}

fn mark(number: usize, name: &str) -> State {
    let entries = format!("{number} {name}").into_bytes();
    State { name: MARK.into(), key_len: 0, value_len: entries.len() as u32, entries }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blanks_part_words_and_quotes_hold_them_together() {
        for (line, words) in [
            ("", vec![]),
            ("  learning\tageing=60 ", vec!["learning", "ageing=60"]),
            (r#""wasm:/etc/my file.wasm" port=7000"#, vec!["wasm:/etc/my file.wasm", "port=7000"]),
            (r#"static a="my port" "b"=c 'd=e f'"#, vec!["static", "a=my port", "b=c", "d=e f"]),
            (r#"x "" "a\"b\\c\d" e\ f"#, vec!["x", "", r#"a"b\c\d"#, "e f"]),
        ] {
            assert_eq!(shell_words::split(line).unwrap(), words, "{line}");
        }
        for open in [r#"static "a b"#, r#"static "a\"#, "static 'a"] {
            let Err(error) = stage(1, open, &[]) else { panic!("{open} was accepted") };
            assert!(error.to_string().contains("a closing quote is expected"), "{error}");
        }
    }

    #[test]
    fn what_needs_no_quotes_has_none() {
        let params = [("ageing", "60"), ("file", "/a b"), ("b", "")].map(|(k, v)| (k.into(), v.into()));
        assert_eq!(line("wasm:/etc/a.wasm", &params), "wasm:/etc/a.wasm ageing=60 file='/a b' b=''");
    }

    proptest! {
        #[test]
        fn a_line_splits_into_what_it_was_made_of(
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

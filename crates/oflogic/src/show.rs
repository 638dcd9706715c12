//! Output of `logic show`: the form of each table with its reason, machine code, counters.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use codegen::TableInfo;
use logic::{Counter, Table, TableSize};
use match_action::{MOST_CODE, SLOTS};
use ofagent::SharedSwitch;
use ofswitch::{Limit, PerWhat};

use crate::shared::Core;
use crate::tally::Tally;

/// Name of the table of flow tables.
const TABLES: &str = "tables";

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

/// The form of a table, and why it has it.
fn form(info: Option<TableInfo>) -> (&'static str, String) {
    info.map_or_else(|| ("interpreter", "no machine code".to_owned()), |info| info.describe())
}

/// The flow tables in use.
pub(crate) fn tables(core: &Core, switch: &SharedSwitch) -> Table {
    let summaries = switch.with(|switch, _| switch.table_summaries());
    let infos = core.plane.compiled.tables(summaries.iter().map(|summary| summary.id));
    let row = |(summary, info): (&ofswitch::TableSummary, Option<TableInfo>)| {
        let (name, why) = form(info);
        vec![
            summary.number.to_string(),
            summary.name.clone().unwrap_or_default(),
            summary.flows.to_string(),
            name.to_owned(),
            why,
            summary.lookups.to_string(),
            summary.hits.to_string(),
            info.map_or_else(String::new, |info| info.memory.to_string()),
        ]
    };
    Table {
        name: TABLES.into(),
        columns: words(&["table", "name", "flows", "form", "why", "lookups", "hits", "bytes"]),
        rows: summaries.iter().zip(infos).map(row).collect(),
        capacity: ofswitch::TABLES.into(),
    }
}

/// Machine code in figures.
pub(crate) fn code(core: &Core) -> Table {
    let figures = core.plane.compiled.figures();
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let by = figures.failure.map_or("machine code".to_owned(), |why| format!("interpreter: {why}"));
    Table {
        name: "code".into(),
        columns: words(&["figure", "value"]),
        rows: vec![
            row("executed by", by),
            row("bytes of code", figures.bytes.to_string()),
            row("compiled actions", figures.actions.to_string()),
            row("specialised for the flows", if figures.is_specialised { "yes" } else { "no" }.to_owned()),
            row("time to start, compiling included", format!("{:.1?}", figures.program_time)),
            row("time to specialise", format!("{:.1?}", figures.special_time)),
            row("time for changes since", format!("{:.1?}", figures.follow_time)),
            row("interpreter took over", figures.failures.to_string()),
        ],
        capacity: 0,
    }
}

/// Limits of the data path, with their use.
pub(crate) fn limits(core: &Core) -> Vec<Limit> {
    let waiting = core.plane.locals.iter().map(|(_, local)| local.upcalls.waiting()).max();
    let code = core.plane.compiled.figures().bytes;
    vec![
        Limit::count("packets for controllers", PerWhat::Worker, waiting.unwrap_or(0), SLOTS),
        Limit::bytes("machine code", PerWhat::Bridge, code, MOST_CODE),
    ]
}

/// Sizes of the tables, without reading the code's figures.
pub(crate) fn sizes(switch: &SharedSwitch) -> Vec<TableSize> {
    let summaries = switch.with(|switch, _| switch.table_summaries());
    let size = |summary: &ofswitch::TableSummary| TableSize {
        name: format!("table{}", summary.number),
        entries: summary.flows as u64,
        capacity: summary.capacity.into(),
    };
    summaries.iter().map(size).collect()
}

/// A counter's name for a reason in words.
fn name(reason: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    format!("dropped_{}", reason.chars().map(letter).collect::<String>())
}

/// The logic's counters.
pub(crate) fn counters(core: &Core) -> Vec<Counter> {
    let tallies: Vec<&Tally> = core.plane.locals.iter().map(|(_, local)| &local.tally).collect();
    let sum = |of: fn(&Tally) -> &AtomicU64| tallies.iter().map(|tally| of(tally).load(Relaxed)).sum::<u64>();
    let counter =
        |name: &str, help: &str, value: u64| Counter { name: name.into(), help: help.into(), value };
    let figures = &core.figures;
    let mut counters = vec![
        counter("upcalls", "packets handed to the switch: for controllers, learning", sum(|t| &t.upcalls)),
        counter("upcalls_lost", "packets of these that found no room", sum(|t| &t.lost)),
        counter(
            "interpreted",
            "packets for the interpreter, for lack of machine code",
            sum(|t| &t.interpreted),
        ),
        counter("injected", "packets of controllers sent to ports", figures.injected.load(Relaxed)),
        counter("injected_lost", "packets of these that found no room", figures.not_injected.load(Relaxed)),
        counter(
            "samples",
            "packets that `sample` actions chose",
            figures.samples.load(Relaxed) + sum(|t| &t.samples),
        ),
    ];
    for (at, reason) in Tally::reasons().enumerate() {
        let dropped = tallies.iter().filter_map(|tally| tally.drops().nth(at)).sum();
        counters.push(counter(&name(reason), &format!("packets dropped: {reason}"), dropped));
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_names_of_lower_case_letters() {
        for reason in Tally::reasons() {
            let name = name(reason);
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{name}"
            );
        }
        assert_eq!(name("TTL expired"), "dropped_ttl_expired");
    }
}

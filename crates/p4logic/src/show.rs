//! Output of `logic show`: the form of each table with its reason, machine code, counters.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use codegen::TableInfo;
use logic::{Counter, Table, TableSize};
use pipeline::ir::TableId;

use crate::cards::Cards;
use crate::installed::Installed;
use crate::shared::Core;
use crate::tally::{LOST, Tally};

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

/// The form of a table, and why it has it.
fn form(info: Option<TableInfo>) -> (&'static str, String) {
    info.map_or_else(|| ("interpreter", "no machine code".to_owned()), |info| info.describe())
}

/// The program's tables, its code, and ports.
pub(crate) fn tables(core: &Core) -> Vec<Table> {
    match &core.control().installed {
        Some(installed) => {
            installed.collect();
            let card = installed.cards().map(|cards| card(&cards));
            [entries(installed), code(installed), ports(core)].into_iter().chain(card).collect()
        }
        None => vec![ports(core)],
    }
}

/// Numbers of ports.
fn ports(core: &Core) -> Table {
    let row = |(name, number): (&str, Option<u32>)| {
        vec![name.to_owned(), number.map_or("none".to_owned(), |number| number.to_string())]
    };
    let rows = core.ports().numbered().map(row).collect();
    Table { name: "ports".into(), columns: words(&["port", "number"]), rows, capacity: 0 }
}

fn entries(installed: &Installed) -> Table {
    let (state, compiled) = (installed.switch.state(), &installed.running.compiled);
    let schemas = &state.program().tables;
    let infos = compiled.tables((0..schemas.len()).map(TableId::at));
    let row = |(i, info): (usize, Option<TableInfo>)| {
        let (schema, table) = (schemas.get(i)?, state.table(TableId::at(i))?);
        let (name, why) = form(info);
        let (lookups, hits) = table.lookups();
        Some(vec![
            schema.name.clone(),
            table.len().to_string(),
            schema.size.to_string(),
            name.to_owned(),
            why,
            lookups.to_string(),
            hits.to_string(),
            info.map_or_else(String::new, |info| info.memory.to_string()),
        ])
    };
    Table {
        name: "tables".into(),
        columns: words(&["table", "entries", "size", "form", "why", "lookups", "hits", "bytes"]),
        rows: infos.into_iter().enumerate().filter_map(row).collect(),
        capacity: 0,
    }
}

/// Machine code in figures.
fn code(installed: &Installed) -> Table {
    let figures = installed.running.compiled.figures();
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let is_compiled = figures.failure.is_none();
    let by = figures.failure.map_or("machine code".to_owned(), |why| format!("interpreter: {why}"));
    let wants_plain = installed.running.wants_plain.load(Relaxed);
    let specialised = match (is_compiled, figures.can_specialise, figures.is_specialised) {
        (true, false, _) => "no: its stages cannot be joined",
        (true, true, true) => "yes",
        _ => "no",
    };
    let yes_or_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    Table {
        name: "code".into(),
        columns: words(&["figure", "value"]),
        rows: vec![
            row("program", installed.switch.state().program().name.clone()),
            row("executed by", by),
            row("bytes of code", figures.bytes.to_string()),
            row("specialised for the entries", specialised.to_owned()),
            row("bytes of a packet that it may read", installed.running.window.to_string()),
            row("gets packets without offloads", yes_or_no(wants_plain)),
            row("time to start, compiling included", format!("{:.1?}", figures.program_time)),
            row("time to specialise", format!("{:.1?}", figures.special_time)),
            row("time for changes since", format!("{:.1?}", figures.follow_time)),
            row("interpreter took over", figures.failures.to_string()),
        ],
        capacity: 0,
    }
}

/// The program in the kernel.
fn card(cards: &Cards) -> Table {
    let rows = cards.figures().into_iter().map(|(name, value)| vec![name, value]).collect();
    Table { name: "card".into(), columns: words(&["figure", "value"]), rows, capacity: 0 }
}

/// Sizes of the tables, without reading the code's figures.
pub(crate) fn sizes(core: &Core) -> Vec<TableSize> {
    let control = core.control();
    let Some(installed) = &control.installed else { return vec![] };
    let state = installed.switch.state();
    let size = |(i, schema): (usize, &pipeline::ir::Table)| TableSize {
        name: schema.name.clone(),
        entries: state.table(TableId::at(i)).map_or(0, |table| table.len() as u64),
        capacity: schema.size.into(),
    };
    state.program().tables.iter().enumerate().map(size).collect()
}

/// The logic's counters.
pub(crate) fn counters(core: &Core) -> Vec<Counter> {
    let workers = core.plane.locals.iter().map(|(_, local)| &local.tally);
    let tallies: Vec<&Tally> = workers.chain([&core.figures.tally]).collect();
    let sum = |of: fn(&Tally) -> &AtomicU64| tallies.iter().map(|tally| of(tally).load(Relaxed)).sum::<u64>();
    let counter =
        |name: &str, help: &str, value: u64| Counter { name: name.into(), help: help.into(), value };
    let figures = &core.figures;
    let mut counters = vec![
        counter("upcalls", "packets and digests for controllers", sum(|t| &t.upcalls)),
        counter("upcalls_lost", "packets and digests of these that found no room", sum(|t| &t.upcalls_lost)),
        counter(
            "upcalls_stale",
            "packets and digests of these whose program was replaced before",
            figures.stale.load(Relaxed),
        ),
        counter(
            "controllers_missed",
            "packets, digests and idle timeouts lost: a controller was too slow, its role's packet-rate was reached, or none was connected",
            figures.missed.load(Relaxed),
        ),
        counter(
            "interpreted",
            "packets for the interpreter, for lack of machine code",
            sum(|t| &t.interpreted),
        ),
        counter(
            "injected",
            "packets that controllers, or the interpreter, sent",
            figures.injected.load(Relaxed),
        ),
        counter("injected_lost", "packets of these that found no room", figures.not_injected.load(Relaxed)),
    ];
    for (at, (name, help)) in LOST.iter().enumerate() {
        let lost = tallies.iter().filter_map(|tally| tally.lost().nth(at)).sum();
        counters.push(counter(name, help, lost));
    }
    counters
}

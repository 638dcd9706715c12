//! Tables of a report.

use super::Document;
use super::block::Block;
use super::summary::figure;
use crate::sample::{Figures, Load, Task};
use crate::settings::SLEEPY;

/// Loads with round-trip times.
const PACED: [Load; 4] = [SLEEPY, Load::Share(10), Load::Share(50), Load::Share(99)];

/// Median with the lowest and highest value, divided by a unit.
fn spread(
    document: &Document,
    task: &Task,
    peer: &str,
    of: fn(&Figures) -> Option<f64>,
    unit: f64,
    digits: usize,
) -> String {
    let Some(summary) = document.summary(task, peer, of) else { return "–".into() };
    let number = |value: f64| format!("{:.digits$}", value / unit);
    if summary.count == 1 {
        return number(summary.median);
    }
    format!("{} ({}–{})", number(summary.median), number(summary.lowest), number(summary.highest))
}

/// Throughput of a scenario, a column for each size, with signs for what limits its meaning.
pub(super) fn throughput(document: &Document, scenario: &str, ways: u8) -> Block {
    let sizes = &document.header.settings.sizes;
    let row = |peer: &str| {
        let mut cells = vec![peer.to_owned()];
        for size in sizes {
            let task = Document::saturation(scenario, size, ways);
            let mut cell = spread(document, &task, peer, figure::rate, 1e6, 2);
            if cell != "–" {
                cell += if document.near_ceiling(&task, peer) { " *" } else { "" };
                cell += if document.unsettled(&task, peer) { " ±" } else { "" };
            }
            cells.push(cell);
        }
        cells
    };
    let direction = if ways == 1 { "one direction" } else { "both directions added up" };
    table(
        format!("Throughput in Mpps, {direction}"),
        std::iter::once("peer".to_owned()).chain(sizes.iter().map(|size| column(size))),
        document.peers_of(scenario).into_iter().map(row),
    )
}

/// Cycles per packet, packets per batch and loss at saturation: packets that are received and dropped cost little.
pub(super) fn cycles(document: &Document, scenario: &str, ways: u8) -> Block {
    let sizes = &document.header.settings.sizes;
    let row = |peer: &str| {
        let mut cells = vec![peer.to_owned()];
        for size in sizes {
            let task = Document::saturation(scenario, size, ways);
            let batch = document.summary(&task, peer, figure::batch);
            let batch = batch.map_or_else(String::new, |batch| format!("; {:.1}", batch.median));
            let loss = document.summary(&task, peer, figure::loss).filter(|loss| loss.median >= 0.0005);
            let loss = loss.map_or_else(String::new, |loss| format!("; {:.1} % lost", 100.0 * loss.median));
            cells.push(spread(document, &task, peer, figure::cycles, 1.0, 0) + &batch + &loss);
        }
        cells
    };
    let direction = if ways == 1 { "one direction" } else { "both directions" };
    table(
        format!(
            "TSC cycles of the switch for forwarding a packet once; packets per batch; packets lost, if 0.05 % or \
             more. {direction}, saturation"
        ),
        std::iter::once("peer".to_owned()).chain(sizes.iter().map(|size| column(size))),
        document.peers_of(scenario).into_iter().map(row),
    )
}

/// Round-trip times, as the comparison's tables 3 and 4 have them, with percentiles.
pub(super) fn round_trips(document: &Document, scenario: &str) -> Block {
    let row = |peer: &str| {
        let mut cells = vec![peer.to_owned()];
        for load in PACED {
            let task = document.share(scenario, load);
            let of = |figure| spread_median(document, &task, peer, figure);
            cells.push(format!(
                "{} / {} / {}{}",
                of(figure::rtt_mean),
                of(figure::rtt_median),
                of(figure::rtt_p99),
                if document.missed(&task, peer) { " †" } else { "" }
            ));
        }
        cells
    };
    table(
        "Round-trip time in µs: mean / median / 99th percentile; one direction".into(),
        ["peer", "1,000 per second", "0.10 R⁺", "0.50 R⁺", "0.99 R⁺"].map(String::from),
        document.peers_of(scenario).into_iter().map(row),
    )
}

/// CPUs at idle and under load.
pub(super) fn cpus(document: &Document, scenario: &str) -> Block {
    let loads = [Load::Idle, Load::Share(10), Load::Share(50), Load::Saturation];
    let row = |peer: &str| {
        let mut cells = vec![peer.to_owned()];
        for load in loads {
            let task = document.share(scenario, load);
            let own = document.summary(&task, peer, figure::cpus);
            let machine = document.summary(&task, peer, figure::machine);
            let shown = match (own, machine) {
                (Some(_), _) => spread(document, &task, peer, figure::cpus, 1.0, 3),
                (None, Some(machine)) => format!("machine {:.2}", machine.median),
                _ => "–".into(),
            };
            let missed = load != Load::Idle && document.missed(&task, peer);
            cells.push(shown + if missed { " †" } else { "" });
        }
        cells
    };
    table(
        "CPUs that the switch's process uses; where it has none, those of the machine with the generator"
            .into(),
        ["peer", "idle", "10 % of R⁺", "50 % of R⁺", "saturation"].map(String::from),
        document.peers_of(scenario).into_iter().map(row),
    )
}

fn spread_median(document: &Document, task: &Task, peer: &str, of: fn(&Figures) -> Option<f64>) -> String {
    document
        .summary(task, peer, of)
        .map_or_else(|| "–".into(), |summary| format!("{:.1}", summary.median / 1e3))
}

/// Name of a size's column.
pub(super) fn column(size: &str) -> String {
    if size.bytes().all(|byte| byte.is_ascii_digit()) { format!("{size} B") } else { size.to_owned() }
}

pub(super) fn table(
    caption: String,
    head: impl IntoIterator<Item = String>,
    rows: impl Iterator<Item = Vec<String>>,
) -> Block {
    Block::Table { caption, head: head.into_iter().collect(), rows: rows.collect() }
}

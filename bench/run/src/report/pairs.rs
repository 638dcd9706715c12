//! Pairs of measurements of one round: mswitch beside its counterpart in Open vSwitch, like with like. A ratio is that of
//! neighbours in time, so that drifts of the machine cancel out.

use super::Document;
use super::block::Block;
use super::summary::figure;
use super::tables::{self, column};
use crate::sample::{Figures, Load, Sample, Task};
use crate::settings::SLEEPY;
use crate::statistics::Summary;

/// A figure of a pair.
struct Figure {
    name: &'static str,
    of: fn(&Figures) -> Option<f64>,
    /// Loads at which it is compared.
    at: fn(Load) -> bool,
    /// How two values, ours and theirs, become one, and its unit.
    joined: fn(f64, f64) -> f64,
    unit: &'static str,
}

const FIGURES: [Figure; 6] = [
    Figure {
        name: "throughput, ours ÷ theirs",
        of: figure::rate_at_saturation,
        at: |load| load == Load::Saturation,
        joined: |ours, theirs| ours / theirs,
        unit: "",
    },
    Figure {
        name: "cycles per packet, theirs ÷ ours",
        of: figure::cycles,
        at: |load| load == Load::Saturation,
        joined: |ours, theirs| theirs / ours,
        unit: "",
    },
    Figure {
        name: "median round-trip time, ours ÷ theirs",
        of: figure::rtt_median,
        at: |load| matches!(load, Load::Share(_)),
        joined: |ours, theirs| ours / theirs,
        unit: "",
    },
    Figure {
        name: "99 % round-trip time, ours ÷ theirs",
        of: figure::rtt_p99,
        at: |load| matches!(load, Load::Share(_)),
        joined: |ours, theirs| ours / theirs,
        unit: "",
    },
    Figure {
        name: "median round-trip time, ours − theirs",
        of: figure::rtt_median,
        at: |load| load == SLEEPY,
        joined: |ours, theirs| (ours - theirs) / 1e3,
        unit: " µs",
    },
    Figure {
        name: "99 % round-trip time, ours − theirs",
        of: figure::rtt_p99,
        at: |load| load == SLEEPY,
        joined: |ours, theirs| (ours - theirs) / 1e3,
        unit: " µs",
    },
];

/// The peer that does the same in Open vSwitch.
fn counterpart(peer: &str) -> Option<&'static str> {
    match peer {
        "mswitch" | "mswitch-ovs" | "mswitch-poll" => Some("ovs"),
        "mswitch-learning" | "mswitch-ovs-learning" => Some("ovs-learning"),
        _ => None,
    }
}

/// All pairs of a scenario; `None` if there is none.
pub(super) fn table(document: &Document, scenario: &str) -> Option<Block> {
    let mut tasks: Vec<&Task> = document.samples.iter().map(|sample| &sample.task).collect();
    tasks.retain(|task| task.scenario == scenario);
    // In the order of their first samples, which is that of measuring.
    let mut seen = std::collections::BTreeSet::new();
    tasks.retain(|task| seen.insert(*task));
    let mut rows = Vec::new();
    for ours in document.peers_of(scenario) {
        let Some(theirs) = counterpart(ours) else { continue };
        for task in &tasks {
            for figure in FIGURES.iter().filter(|figure| (figure.at)(task.load)) {
                rows.extend(row(document, task, (ours, theirs), figure));
            }
        }
    }
    if rows.is_empty() {
        return None;
    }
    let wake = &document.header.ceilings.wake_up;
    Some(tables::table(
        format!(
            "mswitch (ours) beside Open vSwitch (theirs), ratios and differences of one round: median (lowest–highest). \
             Waking a thread through an eventfd took {:.1} µs in the median before these rounds, 1.5 times that are {:.1} µs",
            wake.p50_ns / 1e3,
            1.5 * wake.p50_ns / 1e3
        ),
        ["pair", "load", "figure", "median (lowest–highest)", "rounds"].map(String::from),
        rows.into_iter(),
    ))
}

fn row(document: &Document, task: &Task, pair: (&str, &str), figure: &Figure) -> Option<Vec<String>> {
    let (ours, theirs) = pair;
    let of = |sample: &Sample| sample.figures().and_then(figure.of);
    let others = document.of(task, theirs);
    let values = document.of(task, ours).into_iter().filter_map(|sample| {
        let other = others.iter().find(|other| other.round == sample.round)?;
        Some((figure.joined)(of(sample)?, of(other)?))
    });
    let summary = Summary::of(values)?;
    let ways = if task.ways == 1 { "one way" } else { "both ways" };
    Some(vec![
        format!("{ours}, {theirs}"),
        format!("{}, {ways}, {}", column(&task.size), task.load),
        figure.name.into(),
        format!("{:.2} ({:.2}–{:.2}){}", summary.median, summary.lowest, summary.highest, figure.unit),
        summary.count.to_string(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::PeerFacts;
    use crate::journal::tests::{header, sample};

    #[test]
    fn ratios_are_those_of_one_round() {
        let mut header = header();
        header.peers = ["mswitch", "ovs"]
            .map(|name| PeerFacts {
                name: name.into(),
                about: String::new(),
                version: "1".into(),
                commands: std::collections::BTreeMap::new(),
            })
            .into();
        // The machine is half as fast in the second round, and ovs has no third.
        let samples = vec![
            sample("mswitch", 1, 4e6),
            sample("ovs", 1, 2e6),
            sample("mswitch", 2, 2e6),
            sample("ovs", 2, 1e6),
            sample("mswitch", 3, 9e6),
        ];
        let document = Document { header, samples };
        let Some(Block::Table { rows, .. }) = table(&document, "v2v-memif") else { panic!("no table") };
        assert_eq!(
            rows,
            [["mswitch, ovs", "64 B, both ways, max", "throughput, ours ÷ theirs", "2.00 (2.00–2.00)", "2"]]
        );
    }
}

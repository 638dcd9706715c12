//! `mswitch bench compare`: what changed beyond noise, between two reports, or (`builds`) from an earlier program to the
//! present one where both were measured in the same rounds.
//!
//! Of two reports, a peer's figure has changed if three things hold: a rank test over all tasks, each of which is compared
//! only with itself, calls chance improbable; the change is larger than `LEAST`; and it is clearly larger than the change
//! in the same direction of every peer whose program is the same in both reports, because what changes them is the
//! machine. In the rounds of one report, the first two suffice.

mod builds;

use std::fmt::Write;

use serde::Serialize;

use crate::report::{Document, figure};
use crate::sample::{Figures, Task};
use crate::statistics::{discoveries, median, rank_test, ratio};

/// Probability of chance below which a figure has changed.
const CHANCE: f64 = 0.01;
/// Share of false findings among single tasks.
const FALSE_SHARE: f64 = 0.05;
/// Changes up to this are not reported, however certain.
const LEAST: f64 = 0.02;
/// Changes up to so many times that of a peer with the same program are the machine's.
const DRIFT: f64 = 1.25;

/// A figure, its name, and whether more is better.
struct Figure {
    name: &'static str,
    value: fn(&Figures) -> Option<f64>,
    more_is_better: bool,
}

const FIGURES: [Figure; 5] = [
    Figure { name: "throughput", value: figure::rate_at_saturation, more_is_better: true },
    Figure { name: "cycles per packet", value: figure::cycles, more_is_better: false },
    Figure { name: "median round-trip time", value: figure::rtt_median, more_is_better: false },
    Figure { name: "99 % round-trip time", value: figure::rtt_p99, more_is_better: false },
    Figure { name: "CPU time", value: figure::cpus, more_is_better: false },
];

pub use builds::{LEAST_ROUNDS, compare_builds};

/// What a comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// No change beyond noise.
    Same,
    /// The later one is better.
    Better,
    /// The later one is worse.
    Worse,
}

/// A figure of a peer over all tasks, or of one task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The peer.
    pub peer: String,
    /// The task; `None` for all together.
    pub task: Option<Task>,
    /// The figure.
    pub figure: &'static str,
    /// The later figure divided by the earlier one: B's by A's, or that of the present program by that of the one before.
    pub ratio: f64,
    /// Probability that chance makes a change as large.
    pub chance: f64,
    /// Number of tasks.
    pub tasks: usize,
    /// What follows.
    pub verdict: Verdict,
}

/// A comparison.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// The later and the earlier value of which ratios are.
    pub ratio_of: &'static str,
    /// What weakens the comparison.
    pub warnings: Vec<String>,
    /// Every figure of every peer, over all tasks.
    pub overall: Vec<Change>,
    /// Single tasks that changed.
    pub tasks: Vec<Change>,
}

/// Compares two reports.
pub fn compare(a: &Document, b: &Document) -> Comparison {
    let peers: Vec<&str> = a.peers().into_iter().filter(|peer| b.peers().contains(peer)).collect();
    let mut overall = Vec::new();
    let mut tasks = Vec::new();
    for figure in &FIGURES {
        let mut changes: Vec<Change> = peers.iter().filter_map(|peer| of_peer(a, b, peer, figure)).collect();
        let drifts: Vec<Drift> = peers.iter().map(|peer| drift(a, b, peer, &changes)).collect();
        for change in &mut changes {
            let drift = drifts.get(peers.iter().position(|peer| *peer == change.peer).unwrap_or(0)).copied();
            let drift = drift.unwrap_or_default();
            if change.chance <= CHANCE {
                change.verdict = verdict(change.ratio, drift, figure.more_is_better);
            }
            tasks.extend(of_tasks(a, b, &change.peer, figure, drift));
        }
        overall.extend(changes);
    }
    let chances: Vec<f64> = tasks.iter().map(|change| change.chance).collect();
    let found = discoveries(&chances, FALSE_SHARE);
    let tasks =
        tasks.into_iter().zip(found).filter(|(change, found)| *found && change.verdict != Verdict::Same);
    Comparison {
        ratio_of: "B/A",
        warnings: warnings(a, b, &peers),
        overall,
        tasks: tasks.map(|(change, _)| change).collect(),
    }
}

/// Tasks for which both reports have values, with these.
fn values(a: &Document, b: &Document, peer: &str, figure: &Figure) -> Vec<(Task, Vec<f64>, Vec<f64>)> {
    let mut tasks: Vec<&Task> = a.samples.iter().map(|sample| &sample.task).collect();
    tasks.sort();
    tasks.dedup();
    let of = |task: &Task| {
        let (old, new) = (a.values(task, peer, figure.value), b.values(task, peer, figure.value));
        (task.clone(), old, new)
    };
    let all = tasks.into_iter().map(of);
    all.filter(|(_, old, new)| !old.is_empty() && !new.is_empty() && ratio(old, new).is_some()).collect()
}

fn of_peer(a: &Document, b: &Document, peer: &str, figure: &Figure) -> Option<Change> {
    let values = values(a, b, peer, figure);
    let strata: Vec<(&[f64], &[f64])> = values.iter().map(|(_, old, new)| (&old[..], &new[..])).collect();
    let logarithms: Vec<f64> = strata.iter().filter_map(|(old, new)| Some(ratio(old, new)?.ln())).collect();
    Some(Change {
        peer: peer.to_owned(),
        task: None,
        figure: figure.name,
        ratio: median(&logarithms)?.exp(),
        chance: rank_test(&strata)?,
        tasks: strata.len(),
        verdict: Verdict::Same,
    })
}

fn of_tasks(a: &Document, b: &Document, peer: &str, figure: &Figure, drift: Drift) -> Vec<Change> {
    let change = |(task, old, new): (Task, Vec<f64>, Vec<f64>)| {
        let ratio = ratio(&old, &new)?;
        Some(Change {
            peer: peer.to_owned(),
            task: Some(task),
            figure: figure.name,
            ratio,
            chance: rank_test(&[(&old, &new)])?,
            tasks: 1,
            verdict: verdict(ratio, drift, figure.more_is_better),
        })
    };
    values(a, b, peer, figure).into_iter().filter_map(change).collect()
}

fn verdict(ratio: f64, drift: Drift, more_is_better: bool) -> Verdict {
    let machine = if ratio > 1.0 { drift.up } else { drift.down };
    // A change and its reverse are equally large.
    if ratio.max(1.0 / ratio) - 1.0 <= LEAST + DRIFT * machine {
        Verdict::Same
    } else if (ratio > 1.0) == more_is_better {
        Verdict::Better
    } else {
        Verdict::Worse
    }
}

/// Largest changes, in each direction, of the other peers whose program is the same in both reports; 0 if there are none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Drift {
    /// Of a figure that grew, as a share.
    up: f64,
    /// Of a figure that shrank, as the share by which it would have to grow again.
    down: f64,
}

fn drift(a: &Document, b: &Document, peer: &str, changes: &[Change]) -> Drift {
    let others = changes.iter().filter(|change| change.peer != peer && unchanged(a, b, &change.peer));
    others.fold(Drift::default(), |drift, change| Drift {
        up: drift.up.max(change.ratio - 1.0),
        down: drift.down.max(1.0 / change.ratio - 1.0),
    })
}

fn unchanged(a: &Document, b: &Document, peer: &str) -> bool {
    let version = |document: &Document| {
        let mut peers = document.header.peers.iter();
        peers.find(|facts| facts.name == peer).map(|facts| facts.version.clone())
    };
    version(a) == version(b)
}

fn warnings(a: &Document, b: &Document, peers: &[&str]) -> Vec<String> {
    let mut warnings = Vec::new();
    if peers.is_empty() {
        warnings.push("the reports have no peer in common".to_owned());
    }
    if a.header.machine != b.header.machine {
        warnings.push("the reports are of different machines, or of one that has changed".into());
    }
    if a.header.cpus != b.header.cpus {
        warnings.push(format!("the reports are of different CPUs: {}; {}", a.header.cpus, b.header.cpus));
    }
    let generator =
        |document: &Document| (document.header.generator.clone(), document.header.generator_build.clone());
    if generator(a) != generator(b) {
        warnings.push("the reports are of different generators, or of different builds of it".into());
    }
    if a.header.settings.seconds != b.header.settings.seconds {
        warnings.push("the reports have samples of different lengths".into());
    }
    for peer in peers {
        if !peers.iter().any(|other| other != peer && unchanged(a, b, other)) {
            warnings.push(format!(
                "{peer}: no other peer with the same program in both reports; what the machine changed counts as the peer's"
            ));
        }
    }
    for (name, document) in [("A", a), ("B", b)] {
        let rounds = document.samples.iter().map(|sample| sample.round).max().unwrap_or(0);
        if rounds < 5 {
            warnings
                .push(format!("{name} has {rounds} rounds: single tasks need 5 in both to be told apart"));
        }
    }
    warnings
}

impl Comparison {
    /// Lines for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for warning in &self.warnings {
            let _ = writeln!(text, "note: {warning}");
        }
        let mut peer = "";
        for change in self.sorted() {
            if change.peer != peer {
                peer = &change.peer;
                let _ = writeln!(text, "{peer}:");
            }
            let _ = writeln!(
                text,
                "  {:<24} {} {:.3}  {:<24} chance {:.4}, {} task{}",
                change.figure,
                self.ratio_of,
                change.ratio,
                change.verdict.words(),
                change.chance,
                change.tasks,
                if change.tasks == 1 { "" } else { "s" }
            );
        }
        if !self.tasks.is_empty() {
            text += "single tasks:\n";
        }
        for change in &self.tasks {
            let task = change.task.as_ref().map(Task::to_string).unwrap_or_default();
            let words = change.verdict.words();
            let _ = writeln!(
                text,
                "  {}: {task}: {} {} {:.3}  {words}",
                change.peer, change.figure, self.ratio_of, change.ratio
            );
        }
        text
    }

    fn sorted(&self) -> Vec<&Change> {
        let mut changes: Vec<&Change> = self.overall.iter().collect();
        // Stable: figures keep their order.
        changes.sort_by(|a, b| a.peer.cmp(&b.peer));
        changes
    }
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Verdict::Same => "no change beyond noise",
            Verdict::Better => "better",
            Verdict::Worse => "worse",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::PeerFacts;
    use crate::journal::tests::{header, sample};
    use crate::sample::Sample;

    const SIZES: [&str; 4] = ["64", "256", "1024", "imix"];

    /// Samples with the noise of a shared machine: 8 % up or down, now and then a third less.
    fn noisy(random: &mut fastrand::Rng, peer: &str, rounds: u32, speed: f64) -> Vec<Sample> {
        let mut samples = Vec::new();
        for (index, size) in SIZES.iter().enumerate() {
            for round in 1..=rounds {
                let hiccup = if random.u8(0..10) == 0 { 0.67 } else { 1.0 };
                let noise = 1.0 + 0.16 * (random.f64() - 0.5);
                let rate = speed * noise * hiccup * 1e7 / (index as f64 + 1.0);
                let mut sample = sample(peer, round, rate);
                sample.task.size = (*size).to_owned();
                samples.push(sample);
            }
        }
        samples
    }

    /// A report in which `mswitch` has this speed and version, and `testpmd` the machine's speed.
    fn report(random: &mut fastrand::Rng, rounds: u32, version: &str, speed: f64, machine: f64) -> Document {
        let facts = |name: &str, version: &str| PeerFacts {
            name: name.into(),
            about: String::new(),
            version: version.into(),
            commands: std::collections::BTreeMap::new(),
        };
        let mut header = header();
        header.peers = vec![facts("mswitch", version), facts("testpmd", "22.11")];
        let samples =
            [noisy(random, "mswitch", rounds, speed * machine), noisy(random, "testpmd", rounds, machine)];
        Document { header, samples: samples.concat() }
    }

    fn throughput(comparison: &Comparison, peer: &str) -> Verdict {
        let mut overall = comparison.overall.iter();
        overall.find(|change| change.peer == peer && change.figure == "throughput").unwrap().verdict
    }

    /// Share of comparisons with this verdict about mswitch.
    fn share(verdict: Verdict, rounds: u32, speed: f64, machine: f64) -> f64 {
        let mut random = fastrand::Rng::with_seed(11);
        let times = 200;
        let mut found = 0;
        for _ in 0..times {
            let a = report(&mut random, rounds, "old", 1.0, 1.0);
            let b = report(&mut random, rounds, "new", speed, machine);
            found += u32::from(throughput(&compare(&a, &b), "mswitch") == verdict);
        }
        f64::from(found) / f64::from(times)
    }

    #[test]
    fn a_slowdown_of_ten_percent_is_recognized() {
        let found = share(Verdict::Worse, 5, 0.9, 1.0);
        assert!(found > 0.8, "{found}");
        let found = share(Verdict::Better, 5, 1.1, 1.0);
        assert!(found > 0.8, "{found}");
    }

    #[test]
    fn one_distribution_is_not_called_two() {
        for rounds in [3, 5, 9] {
            let same = share(Verdict::Same, rounds, 1.0, 1.0);
            assert!(same > 0.97, "{rounds} rounds: {same}");
        }
    }

    #[test]
    fn a_slower_machine_is_not_a_slower_switch() {
        let same = share(Verdict::Same, 5, 1.0, 0.85);
        assert!(same > 0.9, "{same}");
        let mut random = fastrand::Rng::with_seed(3);
        let a = report(&mut random, 9, "old", 1.0, 1.0);
        let b = report(&mut random, 9, "new", 0.7, 0.85);
        assert_eq!(throughput(&compare(&a, &b), "mswitch"), Verdict::Worse);
    }

    #[test]
    fn a_switch_that_changes_against_the_machine_has_changed() {
        let mut random = fastrand::Rng::with_seed(3);
        let a = report(&mut random, 9, "old", 1.0, 1.0);
        // testpmd gains 20 %, and mswitch loses 16 %.
        let b = report(&mut random, 9, "new", 0.7, 1.2);
        assert_eq!(throughput(&compare(&a, &b), "mswitch"), Verdict::Worse);
        assert_eq!(verdict(0.9, Drift { up: 0.1, down: 0.0 }, true), Verdict::Worse);
        assert_eq!(verdict(1.1, Drift { up: 0.1, down: 0.0 }, true), Verdict::Same);
        assert_eq!(verdict(1.1, Drift { up: 0.0, down: 0.1 }, false), Verdict::Worse);
    }

    #[test]
    fn what_weakens_a_comparison_is_said() {
        let mut random = fastrand::Rng::with_seed(1);
        let a = report(&mut random, 3, "old", 1.0, 1.0);
        let b = report(&mut random, 5, "new", 1.0, 1.0);
        let text = compare(&a, &b).text();
        assert!(!text.contains("CPU 7") && !text.contains("generators"), "{text}");
        let mut other = b.clone();
        other.header.cpus.generator = 7;
        other.header.generator_build = "1".into();
        let warned = compare(&a, &other).text();
        assert!(warned.contains("generator on CPU 7") && warned.contains("different generators"), "{warned}");
        assert!(
            text.contains("note: A has 3 rounds: single tasks need 5 in both to be told apart"),
            "{text}"
        );
        assert!(text.contains("note: testpmd: no other peer with the same program"), "{text}");
        assert!(text.contains("mswitch:\n  throughput "), "{text}");
    }

    #[test]
    fn a_single_task_stands_out() {
        let mut random = fastrand::Rng::with_seed(5);
        let a = report(&mut random, 9, "old", 1.0, 1.0);
        let mut b = report(&mut random, 9, "new", 1.0, 1.0);
        for sample in
            b.samples.iter_mut().filter(|sample| sample.peer == "mswitch" && sample.task.size == "1024")
        {
            if let crate::sample::Outcome::Measured(figures) = &mut sample.outcome {
                figures.received_pps *= 0.5;
            }
        }
        let comparison = compare(&a, &b);
        let found: Vec<_> = comparison.tasks.iter().map(|change| change.task.clone().unwrap().size).collect();
        assert_eq!(found, ["1024"], "{}", comparison.text());
    }
}

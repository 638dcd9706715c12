//! Two programs measured in the same rounds: what changed from the earlier one, by the ratios within each round.
//!
//! A machine that changes its speed from minute to minute seldom changes it between two neighbours in a round, so no
//! other peer has to tell how much of a change is the machine's. If it does, all figures of that round change together: a
//! round therefore counts once, with the median of its tasks' ratios.

use std::collections::{BTreeMap, BTreeSet};

use super::{CHANCE, Change, Comparison, Drift, FALSE_SHARE, FIGURES, Figure, Verdict, verdict};
use crate::error::{Error, Result};
use crate::peers::{is_before, suffixed};
use crate::report::Document;
use crate::sample::{Sample, Task};
use crate::statistics::{discoveries, median, signed_rank_test};

/// Fewest rounds in which chance can be as small as `CHANCE`.
pub const LEAST_ROUNDS: u32 = 8;

/// Compares each peer of a report with its earlier program.
pub fn compare_builds(document: &Document) -> Result<Comparison> {
    let earlier: BTreeSet<&str> = document.peers().into_iter().filter(|peer| is_before(peer)).collect();
    let mut peers = document.peers();
    peers.retain(|peer| earlier.contains(suffixed(peer).as_str()));
    if peers.is_empty() {
        return Err(Error::new(
            "the report has no figures of an earlier program beside the present one: measure both with \
             `mswitch bench run --before FILE`, or name two reports",
        ));
    }
    let mut comparison = Comparison { ratio_of: "now/before", ..Comparison::default() };
    let mut tasks = Vec::new();
    for peer in &peers {
        for figure in &FIGURES {
            let ratios = ratios(document, peer, figure);
            comparison.overall.extend(overall(peer, figure, &ratios));
            tasks.extend(ratios.iter().filter_map(|(task, ratios)| single(peer, figure, task, ratios)));
        }
    }
    let chances: Vec<f64> = tasks.iter().map(|change| change.chance).collect();
    let found = discoveries(&chances, FALSE_SHARE);
    let found =
        tasks.into_iter().zip(found).filter(|(change, found)| *found && change.verdict != Verdict::Same);
    comparison.tasks = found.map(|(change, _)| change).collect();
    comparison.warnings = warnings(document, &peers);
    Ok(comparison)
}

/// Logarithms of a task's ratios, now to before, by round.
type Ratios = BTreeMap<u32, f64>;

/// The ratios of all tasks in rounds that have both values.
fn ratios<'a>(document: &'a Document, peer: &str, figure: &Figure) -> BTreeMap<&'a Task, Ratios> {
    let mut all: BTreeMap<&Task, Ratios> = BTreeMap::new();
    let value = |sample: &Sample| sample.figures().and_then(figure.value);
    for now in document.samples.iter().filter(|sample| sample.peer == peer) {
        let before =
            document.of(&now.task, &suffixed(peer)).into_iter().find(|other| other.round == now.round);
        let values = value(now).zip(before.and_then(value));
        let logarithm = values.map(|(now, before)| (now / before).ln()).filter(|value| value.is_finite());
        if let Some(logarithm) = logarithm {
            all.entry(&now.task).or_default().insert(now.round, logarithm);
        }
    }
    all
}

/// The change over all tasks.
fn overall(peer: &str, figure: &Figure, tasks: &BTreeMap<&Task, Ratios>) -> Option<Change> {
    let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (round, ratio) in tasks.values().flatten() {
        rounds.entry(*round).or_default().push(*ratio);
    }
    let rounds: Vec<f64> = rounds.values().filter_map(|ratios| median(ratios)).collect();
    let mut change = change(peer, figure, &rounds)?;
    change.tasks = tasks.len();
    if change.chance > CHANCE {
        change.verdict = Verdict::Same;
    }
    Some(change)
}

/// The change of one task.
fn single(peer: &str, figure: &Figure, task: &Task, ratios: &Ratios) -> Option<Change> {
    let rounds: Vec<f64> = ratios.values().copied().collect();
    Some(Change { task: Some(task.clone()), ..change(peer, figure, &rounds)? })
}

/// The change that these logarithms of ratios show, however probable chance is.
fn change(peer: &str, figure: &Figure, rounds: &[f64]) -> Option<Change> {
    let ratio = median(rounds)?.exp();
    Some(Change {
        peer: peer.to_owned(),
        task: None,
        figure: figure.name,
        ratio,
        chance: signed_rank_test(rounds)?,
        tasks: 1,
        verdict: verdict(ratio, Drift::default(), figure.more_is_better),
    })
}

fn warnings(document: &Document, peers: &[&str]) -> Vec<String> {
    let mut warnings = Vec::new();
    let version = |name: &str| {
        let mut facts = document.header.peers.iter();
        facts.find(|facts| facts.name == name).map(|facts| &facts.version)
    };
    for peer in peers.iter().filter(|peer| version(peer) == version(&suffixed(peer))) {
        warnings.push(format!("{peer} and {} are the same program", suffixed(peer)));
    }
    for peer in peers {
        let rounds = |name: &str| {
            let samples =
                document.samples.iter().filter(|sample| sample.peer == name && sample.figures().is_some());
            samples.map(|sample| sample.round).collect::<BTreeSet<u32>>()
        };
        let both = rounds(peer).intersection(&rounds(&suffixed(peer))).count();
        if both < LEAST_ROUNDS as usize {
            warnings
                .push(format!("{peer}: {both} rounds: fewer than {LEAST_ROUNDS} tell no change from chance"));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::PeerFacts;
    use crate::journal::tests::{header, sample};

    const SIZES: [&str; 2] = ["64", "256"];

    /// A report of a machine that halves its speed for some rounds, now and then between two neighbours.
    fn report(random: &mut fastrand::Rng, rounds: u32, speed: f64) -> Document {
        let facts = |name: &str, version: &str| PeerFacts {
            name: name.into(),
            about: String::new(),
            version: version.into(),
            commands: BTreeMap::new(),
        };
        let mut header = header();
        header.peers = vec![facts("mswitch", "new"), facts("mswitch-before", "old")];
        let mut samples = Vec::new();
        let mut machine = 1.0;
        for round in 1..=rounds {
            let mut peers = [("mswitch", speed), ("mswitch-before", 1.0)];
            peers.rotate_left(round as usize % 2);
            for (peer, speed) in peers {
                if random.u8(0..12) == 0 {
                    machine = 1.5 - machine;
                }
                for size in SIZES {
                    let noise = 1.0 + 0.16 * (random.f64() - 0.5);
                    let mut sample = sample(peer, round, 1e7 * machine * speed * noise);
                    sample.task.size = size.to_owned();
                    samples.push(sample);
                }
            }
        }
        Document { header, samples }
    }

    /// Share of reports with this verdict about the throughput.
    fn share(verdict: Verdict, rounds: u32, speed: f64) -> f64 {
        let mut random = fastrand::Rng::with_seed(11);
        let times = 300;
        let mut found = 0;
        for _ in 0..times {
            let comparison = compare_builds(&report(&mut random, rounds, speed)).unwrap();
            found += u32::from(comparison.overall[0].verdict == verdict);
        }
        f64::from(found) / f64::from(times)
    }

    #[test]
    fn a_slowdown_of_ten_percent_is_recognized_on_an_unsteady_machine() {
        let found = share(Verdict::Worse, 15, 0.9);
        assert!(found > 0.8, "{found}");
        let found = share(Verdict::Better, 15, 1.1);
        assert!(found > 0.8, "{found}");
    }

    #[test]
    fn one_speed_is_not_called_two_on_an_unsteady_machine() {
        for rounds in [8, 12, 30] {
            let same = share(Verdict::Same, rounds, 1.0);
            assert!(same > 0.97, "{rounds} rounds: {same}");
        }
    }

    #[test]
    fn a_single_task_stands_out() {
        let mut document = report(&mut fastrand::Rng::with_seed(2), 20, 1.0);
        for sample in &mut document.samples {
            if let (crate::sample::Outcome::Measured(figures), "mswitch", "256") =
                (&mut sample.outcome, sample.peer.as_str(), sample.task.size.as_str())
            {
                figures.received_pps *= 0.8;
            }
        }
        let comparison = compare_builds(&document).unwrap();
        let found: Vec<String> =
            comparison.tasks.iter().map(|change| change.task.clone().unwrap().size).collect();
        assert_eq!(found, ["256"], "{}", comparison.text());
        assert!(comparison.text().contains(" now/before 0."), "{}", comparison.text());
    }

    #[test]
    fn reports_that_tell_nothing_say_so() {
        let mut document = report(&mut fastrand::Rng::with_seed(2), 5, 0.5);
        document.header.peers[1].version = "new".into();
        let comparison = compare_builds(&document).unwrap();
        assert!(comparison.overall.iter().all(|change| change.verdict == Verdict::Same));
        let text = comparison.text();
        assert!(text.contains("note: mswitch: 5 rounds: fewer than 8 tell no change from chance"), "{text}");
        assert!(text.contains("note: mswitch and mswitch-before are the same program"), "{text}");
        document.samples.retain(|sample| sample.peer == "mswitch");
        let error = compare_builds(&document).unwrap_err().to_string();
        assert!(error.contains("mswitch bench run --before FILE"), "{error}");
    }
}

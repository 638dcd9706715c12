//! `mswitch bench run`: rounds of units, peers in turn, until the spread is small or time is up.
//!
//! Peers are interleaved: within a round, all peers run a scenario one after the other, so that what changes on the
//! machine meanwhile changes for all; the peer that begins is another one in each round. Rounds go through all
//! scenarios, so that an early end leaves something of everything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::ceilings::Ceilings;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::journal::{FORMAT, Header, Journal};
use crate::lab::Lab;
use crate::machine::Machine;
use crate::peers::is_before;
use crate::preflight::{self, Ready, supports};
use crate::report;
use crate::sample::{Load, Outcome, Sample, Task};
use crate::scenarios::Scenario;
use crate::settings::{Settings, Wishes};
use crate::statistics::uncertainty;
use crate::unit::{Bench, Unit};

/// What `mswitch bench run` is asked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// What is measured.
    pub wishes: Wishes,
    /// Folder of journal and reports.
    pub out: PathBuf,
    /// The program for the peers `mswitch…`.
    pub mswitch: PathBuf,
    /// An earlier program, measured beside that one in the same rounds.
    pub before: Option<PathBuf>,
}

/// Runs a benchmark, or continues an interrupted one; writes its reports. `say` gets a line for people at each step.
pub fn run(options: &Options, interrupt: &Interrupt, say: &mut dyn FnMut(&str)) -> Result<()> {
    let ready = preflight::check(&options.wishes, &options.mswitch, options.before.as_deref())?;
    // Its lock keeps two benchmarks away from one journal.
    let lab = Lab::open(interrupt)?;
    let journal = Journal::resume(&options.out, |header| same_benchmark(header, &ready, &options.out))?;
    if !lab.found().is_empty() {
        say(&format!("removed what a killed benchmark had left: {}", lab.found().join(", ")));
    }
    for (name, reason) in &ready.absent {
        say(&format!("without {name}: {reason}"));
    }
    let probe = preflight::check_in(&lab, &ready)?;
    let mut journal = match journal {
        Some(journal) => {
            say(&format!("continuing {} after {} samples", options.out.display(), journal.samples().len()));
            journal
        }
        None => {
            say("measuring the limits of this machine");
            let machine = Machine::look();
            let seconds = ready.settings.seconds.min(1.0);
            let ceilings = Ceilings::measure(&lab, &machine, ready.cpus, &ready.generator, seconds)?;
            let header = Header {
                format: FORMAT,
                began: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
                settings: ready.settings.clone(),
                machine,
                cpus: ready.cpus,
                tsc_hz: probe.tsc_hz,
                peers: preflight::facts(&lab, &ready),
                absent: ready.absent.clone(),
                generator: format!("DPDK {}", probe.dpdk),
                generator_build: ready.build.clone(),
                ceilings,
            };
            Journal::begin(&options.out, header)?
        }
    };
    if ready.cpus.shared() && ready.scenarios.iter().any(|scenario| scenario.kind == "loopback") {
        say(
            "two CPUs: functions of chains share one with the generator; rates and times of chains tell little, cycles do",
        );
    }
    let bench = Bench {
        lab: &lab,
        generator: &ready.generator,
        cpus: ready.cpus,
        seconds: ready.settings.seconds,
        tsc_hz: probe.tsc_hz,
    };
    let ended = rounds(&bench, &ready, &mut journal, say);
    drop(lab);
    // Also of an interrupted run: what there is can be looked at.
    if !journal.all().is_empty() {
        report::write(&options.out, &journal)?;
        say(&format!("reports: {}", options.out.join("report.{html,md,json}").display()));
        if options.before.is_some() {
            say(&format!(
                "changes from the earlier program: mswitch bench compare {}",
                options.out.display()
            ));
        }
    }
    match ended {
        Err(Error::Interrupted) => Err(Error::new(format!(
            "interrupted; the same command continues: the journal in {} holds {} samples",
            options.out.display(),
            journal.samples().len()
        ))),
        other => other,
    }
}

/// Fails if a journal is of another benchmark.
fn same_benchmark(header: &Header, ready: &Ready, out: &Path) -> Result<()> {
    let refuse = |what: String| {
        Err(Error::new(format!(
            "{}: {what}; give the same options to continue it, or another --out",
            out.join("journal.jsonl").display()
        )))
    };
    let differences = header.settings.differences(&ready.settings);
    if !differences.is_empty() {
        return refuse(format!("begun with another {}", differences.join(", another ")));
    }
    let machine = Machine::look();
    if machine.processor != header.machine.processor || machine.kernel != header.machine.kernel {
        return refuse(format!("begun on {}, Linux {}", header.machine.processor, header.machine.kernel));
    }
    if header.cpus != ready.cpus {
        return refuse(format!("begun on {} (now {})", header.cpus, ready.cpus));
    }
    if header.generator_build != ready.build {
        return refuse(format!(
            "begun with another build of mswitch-generator, {} (now {})",
            header.generator_build, ready.build
        ));
    }
    for (peer, version) in &ready.peers {
        let then = header.peers.iter().find(|facts| facts.name == peer.name()).map(|facts| &facts.version);
        if then.is_some_and(|then| then != version) {
            return refuse(format!("begun with another version of {} (now {version})", peer.name()));
        }
    }
    Ok(())
}

/// Progress: units done and to come.
struct Progress {
    began: Instant,
    done: usize,
    total: usize,
}

impl Progress {
    fn left(&self) -> String {
        // The current one is counted as done.
        let done = self.done.saturating_sub(1);
        if done == 0 {
            return String::new();
        }
        let each = self.began.elapsed() / u32::try_from(done).unwrap_or(u32::MAX);
        let left = each * u32::try_from(self.total.saturating_sub(done)).unwrap_or(0);
        format!(", {} left", minutes(left))
    }
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 90 { format!("{seconds} s") } else { format!("{} min", (seconds + 30) / 60) }
}

fn rounds(bench: &Bench<'_>, ready: &Ready, journal: &mut Journal, say: &mut dyn FnMut(&str)) -> Result<()> {
    let settings = &ready.settings;
    let runs = |scenario: &Scenario| {
        ready.peers.iter().filter(|(peer, _)| supports(peer.as_ref(), scenario)).count()
    };
    let each: usize = ready.scenarios.iter().map(runs).sum();
    let mut progress = Progress { began: Instant::now(), done: 0, total: each * settings.fewest as usize };
    let limit = Duration::try_from_secs_f64(settings.limit * 60.0).unwrap_or(Duration::MAX);
    let mut last = None;
    for round in 1..=settings.most {
        let open: Vec<&Scenario> = ready
            .scenarios
            .iter()
            .filter(|scenario| runs(scenario) > 0)
            .filter(|scenario| {
                round <= settings.fewest || !settled(journal.samples(), &scenario.name, settings.goal)
            })
            .collect();
        if open.is_empty() {
            break;
        }
        let began = progress.began.elapsed();
        if !fits(began, last, limit) {
            say(&format!("no round {round}: it would not end within {} minutes", settings.limit));
            break;
        }
        if round > settings.fewest {
            progress.total += open.iter().map(|scenario| runs(scenario)).sum::<usize>();
        }
        for scenario in open {
            for (peer, _) in in_turn(&ready.peers, round, |(peer, _)| is_before(peer.name())) {
                if supports(peer.as_ref(), scenario) {
                    progress.done += 1;
                    one(
                        bench,
                        settings,
                        journal,
                        Unit {
                            scenario,
                            peer: peer.as_ref(),
                            round,
                            reference: settings.reference(&scenario.name),
                            tasks: Vec::new(),
                            known: Vec::new(),
                        },
                        &progress,
                        say,
                    )?;
                }
            }
        }
        last = Some(progress.began.elapsed().saturating_sub(began));
    }
    for scenario in ready.scenarios.iter().filter(|scenario| runs(scenario) > 0) {
        let of_scenario = |sample: &&Sample| sample.task.scenario == scenario.name;
        if !journal.samples().iter().filter(of_scenario).any(|sample| sample.figures().is_some()) {
            say(&format!("{}: no figures; the report has the reasons", scenario.name));
        } else if !settled(journal.samples(), &scenario.name, settings.goal) {
            say(&format!(
                "{}: the spread stays above {:.0} %; see the report",
                scenario.name,
                settings.goal * 100.0
            ));
        }
    }
    Ok(())
}

/// Whether a round that takes as long as the last one ends before the limit; the first round always begins.
fn fits(elapsed: Duration, last: Option<Duration>, limit: Duration) -> bool {
    last.is_none_or(|last| elapsed.saturating_add(last) <= limit)
}

/// The peers, beginning with another one in each round. A peer and its earlier program stay neighbours, and begin by turns.
fn in_turn<T>(peers: &[T], round: u32, is_before: impl Fn(&T) -> bool) -> Vec<&T> {
    let mut pairs: Vec<Vec<&T>> =
        peers.chunk_by(|_, next| is_before(next)).map(|pair| pair.iter().collect()).collect();
    if round.is_multiple_of(2) {
        pairs.iter_mut().for_each(|pair| pair.reverse());
    }
    let first = (round as usize - 1) % pairs.len().max(1);
    pairs.rotate_left(first);
    pairs.concat()
}

/// Runs what is missing of a unit.
fn one(
    bench: &Bench<'_>,
    settings: &Settings,
    journal: &mut Journal,
    mut unit: Unit<'_>,
    progress: &Progress,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let of_unit = |sample: &&Sample| {
        sample.task.scenario == unit.scenario.name
            && sample.peer == unit.peer.name()
            && sample.round == unit.round
    };
    unit.known = journal.samples().iter().filter(of_unit).cloned().collect();
    let missing = |task: &Task| !unit.known.iter().any(|sample| sample.task == *task);
    unit.tasks = settings.tasks(&unit.scenario.name).into_iter().filter(missing).collect();
    if unit.tasks.is_empty() {
        return Ok(());
    }
    say(&format!(
        "round {}, {} of {}{}: {}, {}",
        unit.round,
        progress.done,
        progress.total,
        progress.left(),
        unit.scenario.name,
        unit.peer.name()
    ));
    bench.run(&unit, &mut |sample| {
        say(&format!("  {}", line(&sample)));
        journal.add(sample)
    })
}

/// A sample on one line.
fn line(sample: &Sample) -> String {
    let task = &sample.task;
    let ways = if task.ways == 1 { "one way" } else { "both ways" };
    let what = format!("{:>4} {ways:<9} {:>4}", task.size, task.load);
    let figures = match &sample.outcome {
        Outcome::Failed(reason) => return format!("{what}: failed: {reason}"),
        Outcome::Measured(figures) => figures,
    };
    let mut text = format!("{what}: ");
    if task.load != Load::Idle {
        text += &format!("{:.2} Mpps", figures.received_pps / 1e6);
    }
    let mut add = |value: Option<f64>, digits: usize, unit: &str| {
        if let Some(value) = value {
            let comma = if text.ends_with(": ") { "" } else { ", " };
            text += &format!("{comma}{value:.digits$} {unit}");
        }
    };
    add(figures.loss().filter(|loss| *loss >= 0.0005).map(|loss| 100.0 * loss), 1, "% lost");
    add(figures.cycles_per_packet, 0, "cycles per packet");
    add(figures.packets_per_batch, 1, "per batch");
    add(figures.rtt_ns.map(|rtt| rtt.p50 / 1e3), 1, "µs median");
    add(figures.rtt_ns.map(|rtt| rtt.p99 / 1e3), 1, "µs 99 %");
    add(figures.switch_cpus, 3, "CPUs");
    if figures.switch_cpus.is_none() {
        add(figures.machine_cpus, 2, "CPUs of the machine");
    }
    text
}

/// Whether rates and cycles at saturation are known well enough for all peers of a scenario. Not if all samples failed.
fn settled(samples: &[Sample], scenario: &str, goal: f64) -> bool {
    let mut values: BTreeMap<(&str, &Task), [Vec<f64>; 2]> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| sample.task.scenario == scenario) {
        let Some(figures) = sample.figures().filter(|_| sample.task.load == Load::Saturation) else {
            continue;
        };
        let [rates, cycles] = values.entry((&sample.peer, &sample.task)).or_default();
        rates.push(figures.received_pps);
        cycles.extend(figures.cycles_per_packet);
    }
    let known = |values: &[f64]| values.is_empty() || uncertainty(values).is_some_and(|share| share <= goal);
    !values.is_empty() && values.values().all(|[rates, cycles]| known(rates) && known(cycles))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::Cpus;
    use crate::generator::Generator;
    use crate::journal::tests::sample;

    #[test]
    fn a_scenario_is_settled_when_all_peers_are() {
        let rounds = |peer: &str, values: [f64; 3]| -> Vec<Sample> {
            values.iter().zip(1..).map(|(value, round)| sample(peer, round, *value)).collect()
        };
        let steady = rounds("a", [100.0, 101.0, 100.0]);
        assert!(settled(&steady, "v2v-memif", 0.02));
        assert!(!settled(&steady[..2], "v2v-memif", 0.02), "two samples say nothing about themselves");
        let both = [steady, rounds("b", [100.0, 130.0, 70.0])].concat();
        assert!(!settled(&both, "v2v-memif", 0.02));
        let failed: Vec<Sample> = (1..=3)
            .map(|round| Sample { outcome: Outcome::Failed("died".into()), ..sample("a", round, 0.0) })
            .collect();
        assert!(!settled(&failed, "v2v-memif", 0.02), "failures say nothing about rates");
    }

    #[test]
    fn a_benchmark_continues_only_where_it_began() {
        let header = crate::journal::tests::header();
        let ready = |cpus, build: &str| Ready {
            settings: header.settings.clone(),
            peers: Vec::new(),
            absent: Vec::new(),
            scenarios: Vec::new(),
            cpus,
            generator: Generator::at(PathBuf::new()),
            build: build.into(),
        };
        let of = |ready| same_benchmark(&header, &ready, Path::new("out")).map_err(|error| error.to_string());
        assert_eq!(of(ready(header.cpus, "0badcafe")), Ok(()));
        let other = of(ready(header.cpus, "12345678")).unwrap_err();
        assert!(other.contains("another build of mswitch-generator, 0badcafe (now 12345678)"), "{other}");
        let other = of(ready(Cpus { switch: 5, ..header.cpus }, "0badcafe")).unwrap_err();
        assert!(other.contains("generator on CPU 1, functions on CPU 1 (now switch on CPU 5"), "{other}");
    }

    #[test]
    fn a_round_begins_only_if_it_can_end_in_time() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert!(fits(minutes(0), None, minutes(0)));
        assert!(fits(minutes(4), Some(minutes(4)), minutes(8)));
        assert!(!fits(minutes(7), Some(minutes(2)), minutes(8)));
    }

    #[test]
    fn each_round_begins_with_another_peer() {
        let of = |peers: &[&str], round| {
            in_turn(peers, round, |peer| peer.ends_with('-')).into_iter().copied().collect::<String>()
        };
        let three = ["a", "b", "c"];
        assert_eq!([1, 2, 4].map(|round| of(&three, round)), ["abc", "bca", "abc"]);
        let pairs = ["a", "a-", "b", "b-", "c"];
        assert_eq!([1, 2, 3, 4].map(|round| of(&pairs, round)), ["aa-bb-c", "b-bca-a", "caa-bb-", "a-ab-bc"]);
        assert_eq!([1, 2, 3].map(|round| of(&pairs[..2], round)), ["aa-", "a-a", "aa-"]);
    }

    #[test]
    fn failures_are_shown_with_their_reason() {
        let failed = Sample { outcome: Outcome::Failed("no packets arrived".into()), ..sample("a", 1, 0.0) };
        assert_eq!(line(&failed), "  64 both ways  max: failed: no packets arrived");
        assert_eq!(line(&sample("a", 1, 1.5e6)), "  64 both ways  max: 1.50 Mpps");
    }
}

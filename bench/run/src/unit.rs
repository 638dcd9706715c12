//! One unit of a benchmark: a peer is started for a scenario, measured at all tasks of a round, and ended.

use crate::cpu_time::{Samples, Usage};
use crate::cpus::Cpus;
use crate::error::{Error, Result};
use crate::generator::{Generator, Report};
use crate::lab::{Lab, Namespace, Process};
use crate::machine::frequency_mhz;
use crate::network::Network;
use crate::peers::{Peer, Site, Switch, Work};
use crate::sample::{Figures, Load, Outcome, Sample, Task};
use crate::scenarios::{Scenario, Topology};
use crate::settings::generator_size;

/// Seconds of traffic before the measured time.
const WARM_UP: f64 = 0.2;
/// The same where there are many stations: Open vSwitch makes a flow for each pair of them.
const LONG_WARM_UP: f64 = 3.0;
/// Times that a switch is started for a unit if it dies.
const STARTS: u32 = 3;

/// What all units share.
#[derive(Debug)]
pub struct Bench<'a> {
    /// The laboratory.
    pub lab: &'a Lab,
    /// The generator.
    pub generator: &'a Generator,
    /// CPUs.
    pub cpus: Cpus,
    /// Measured seconds of each sample.
    pub seconds: f64,
    /// Frequency of the time stamp counter.
    pub tsc_hz: f64,
}

/// A unit.
pub struct Unit<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// The peer.
    pub peer: &'a dyn Peer,
    /// Round, from 1.
    pub round: u32,
    /// The task whose rate is R⁺ in one direction.
    pub reference: Option<Task>,
    /// What is to be measured, saturation before its shares.
    pub tasks: Vec<Task>,
    /// Samples of this unit from before an interruption.
    pub known: Vec<Sample>,
}

impl Bench<'_> {
    /// Measures all tasks of a unit; hands each sample to `done`. A task that fails gives a sample that says why, as do
    /// all remaining ones if the switch does not start or dies again and again. Fails only if interrupted, or if `done` fails.
    pub fn run(&self, unit: &Unit<'_>, done: &mut dyn FnMut(Sample) -> Result<()>) -> Result<()> {
        let mut left = unit.tasks.as_slice();
        let mut maximum = unit.known.iter().find_map(|sample| unit.maximum_of(sample));
        let mut starts = 0;
        let mut attempts = 0;
        loop {
            starts += 1;
            match self.measure_all(unit, &mut left, &mut maximum, &mut attempts, done) {
                // A switch that died is started again for what is left.
                Err(Error::Failed(_)) if starts < STARTS => {}
                Err(Error::Failed(reason)) => {
                    for task in left {
                        done(unit.sample(task, attempts, Outcome::Failed(reason.clone())))?;
                        attempts = 0;
                    }
                    return Ok(());
                }
                other => return other,
            }
        }
    }

    /// Starts everything and measures; tasks that have a sample are taken from `left`, the first of which was tried
    /// `attempts` times. Fails if a program does not start, or dies.
    fn measure_all(
        &self,
        unit: &Unit<'_>,
        left: &mut &[Task],
        maximum: &mut Option<f64>,
        attempts: &mut u32,
        done: &mut dyn FnMut(Sample) -> Result<()>,
    ) -> Result<()> {
        *attempts += 1;
        let topology = &unit.scenario.topology;
        let folder = self.lab.fresh_folder("switch")?;
        let network = Network::of(self.lab, topology)?;
        let namespace = network.as_ref().map(|network| &network.switch);
        let site = Site { lab: self.lab, topology, folder, namespace, cpus: self.cpus };
        let mut switch = unit.peer.start(&site)?;
        let mut functions = self.generator.functions(&site)?;
        let clients = network.as_ref().map(|network| &network.clients);
        while let Some((task, rest)) = left.split_first() {
            let rate = Rate { maximum: *maximum, announce: unit.peer.learns() || functions.is_some() };
            let mut measured = self.measure(&site, clients, switch.as_mut(), task, &rate);
            // Figures of a program that died meanwhile are those of less than the measured time.
            all_run(switch.as_mut(), functions.as_mut())?;
            if matches!(measured, Err(Error::Failed(_))) {
                *attempts += 1;
                // Once more: drivers of clients sometimes fail to connect.
                measured = self.measure(&site, clients, switch.as_mut(), task, &rate);
                all_run(switch.as_mut(), functions.as_mut())?;
            }
            let outcome = match measured {
                Ok(mut figures) => {
                    let limit = task.load == Load::Saturation
                        && !figures.generator_near_ceiling
                        && !self.hampered(&site);
                    if !unit.peer.counts() && limit {
                        let forwarded = figures.received_pps * topology.hops() as f64;
                        figures.cycles_per_packet = Some(self.tsc_hz / forwarded);
                    }
                    Outcome::Measured(Box::new(figures))
                }
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(Error::Failed(reason)) => Outcome::Failed(reason),
            };
            let sample = unit.sample(task, *attempts, outcome);
            *attempts = 1;
            *maximum = unit.maximum_of(&sample).or(*maximum);
            *left = rest;
            done(sample)?;
        }
        Ok(())
    }

    /// Whether functions share a CPU with the generator, so that the switch is not the limit.
    fn hampered(&self, site: &Site<'_>) -> bool {
        self.cpus.shared() && !site.topology.functions.is_empty()
    }

    fn measure(
        &self,
        site: &Site<'_>,
        clients: Option<&Namespace>,
        switch: &mut dyn Switch,
        task: &Task,
        rate: &Rate,
    ) -> Result<Figures> {
        switch.mark()?;
        let (report, samples) = Samples::during(switch.pid(), || match task.load {
            Load::Idle => self.generator.listen(site, clients, self.seconds.max(0.5)),
            _ => {
                let load = self.load(site.topology, task, rate)?;
                self.generator.send(site, clients, &load, self.seconds)
            }
        });
        let report = report?;
        let work = switch.work()?;
        if task.load != Load::Idle && report.received_pps() <= 0.0 {
            return Err(Error::new("no packets arrived"));
        }
        let damaged = report.damaged();
        if damaged > 0 {
            return Err(Error::new(format!("{damaged} packets arrived damaged or at a wrong port")));
        }
        Ok(figures(task, &report, work, samples.usage(report.began_ns, report.seconds)))
    }

    /// The generator's options for a task.
    fn load(&self, topology: &Topology, task: &Task, rate: &Rate) -> Result<Vec<String>> {
        let size =
            generator_size(&task.size).ok_or_else(|| Error::new(format!("unknown size {}", task.size)))?;
        let mut words: Vec<String> = vec!["--size".into(), size];
        let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
        option("--seconds", self.seconds.to_string());
        option("--warm-up", if topology.stations > 1 { LONG_WARM_UP } else { WARM_UP }.to_string());
        if topology.stations > 1 {
            let count = topology.stations.to_string();
            option("--macs", count.clone());
            option("--flows", count);
            option("--order", "uniform".into());
        }
        option("--announce", if rate.announce { "yes" } else { "no" }.into());
        if let Load::Share(percent) = task.load {
            let maximum =
                rate.maximum.ok_or_else(|| Error::new("the rate at saturation could not be measured"))?;
            option("--rate", format!("{percent}%"));
            // Of each direction: R⁺ is that of all pairs together.
            option("--maximum", format!("{:.0}", maximum / topology.ends.len() as f64));
            words.push("--rtt".into());
        } else if let Load::Rate(pps) = task.load {
            option("--rate", pps.to_string());
            words.push("--rtt".into());
        }
        if task.ways == 1 {
            words.push("--one-way".into());
        }
        Ok(words)
    }
}

/// Fails if the switch, or the functions of a chain, have died.
fn all_run(switch: &mut dyn Switch, functions: Option<&mut Process>) -> Result<()> {
    switch.must_run()?;
    functions.map_or(Ok(()), Process::must_run)
}

/// What a load depends on besides its task.
struct Rate {
    /// R⁺ in one direction.
    maximum: Option<f64>,
    /// Whether stations announce themselves, which also waits for the functions of a chain.
    announce: bool,
}

impl Unit<'_> {
    fn sample(&self, task: &Task, attempts: u32, outcome: Outcome) -> Sample {
        Sample { task: task.clone(), peer: self.peer.name().to_owned(), round: self.round, attempts, outcome }
    }

    /// R⁺ if this sample is the one that has it.
    fn maximum_of(&self, sample: &Sample) -> Option<f64> {
        let figures = sample.figures().filter(|_| self.reference.as_ref() == Some(&sample.task));
        figures.map(|figures| figures.received_pps)
    }
}

fn figures(task: &Task, report: &Report, work: Work, usage: Option<Usage>) -> Figures {
    let idle = task.load == Load::Idle;
    Figures {
        sent_pps: report.sent_pps(),
        received_pps: report.received_pps(),
        mean_size: report.mean_size,
        rtt_ns: report.directions.first().and_then(|direction| direction.rtt_ns),
        // Announcements and cycles of a few stray packets say nothing.
        cycles_per_packet: work.cycles_per_packet.filter(|_| !idle),
        packets_per_batch: work.packets_per_batch.filter(|_| !idle),
        busy_share: work.busy_share,
        switch_cpus: usage.and_then(|usage| usage.process),
        machine_cpus: usage.map(|usage| usage.machine),
        stolen_cpus: usage.map(|usage| usage.stolen),
        frequency_mhz: frequency_mhz(),
        offered_pps: report.offered_pps(),
        packets: Some(report.packets()),
        paced: task.load != Load::Saturation,
        generator_near_ceiling: report.core.near_ceiling && !idle,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::fs::PermissionsExt;
    use std::rc::Rc;

    use super::*;
    use crate::interrupt::Interrupt;
    use crate::sample::Packets;
    use crate::scenarios;
    use crate::settings::{Settings, Wishes};

    /// A generator that receives 64 million packets per second divided by their size, keeps its command lines, and is
    /// near its ceiling at 1,024 bytes; a tenth of its packets are lost.
    const GENERATOR: &str = r#"#!/bin/sh
echo "$*" >>"$(dirname "$0")/commands"
near=false
while [ $# -gt 0 ]; do
    case $1 in --size) size=$2 ;; esac
    shift
done
[ "$size" = 1024 ] && near=true
rate=$((64000000 / ${size:-64}))
printf '{"version":1,"dpdk":"22","seconds":0.1,"began_ns":1,"tsc_hz":1e9,"mean_size":64,'
printf '"core":{"idle_share":0,"cycles_per_packet":1,"near_ceiling":%s},' $near
printf '"directions":[{"sent_pps":%d,"received_pps":%d,"sent":100,"lost":10,"skipped":7,"duplicated":2,' $rate $rate
printf '"reordered":null,"offered_pps":null,"corrupted":0,"misdelivered":0}],"ports":[{"corrupted":0}]}\n'
"#;

    /// A switch that counts no cycles and dies in its first measurement as often as `deaths` says.
    struct Fragile {
        deaths: Rc<Cell<u32>>,
    }

    struct Running {
        dies: bool,
        worked: bool,
    }

    impl Peer for Fragile {
        fn name(&self) -> &str {
            "fragile"
        }
        fn about(&self) -> &str {
            "a switch for tests"
        }
        fn version(&self) -> Result<String> {
            Ok("1".into())
        }
        fn supports(&self, _: &scenarios::Topology) -> bool {
            true
        }
        fn learns(&self) -> bool {
            false
        }
        fn counts(&self) -> bool {
            false
        }
        fn commands(&self, _: &Site<'_>) -> Vec<String> {
            Vec::new()
        }
        fn start(&self, _: &Site<'_>) -> Result<Box<dyn Switch>> {
            let dies = self.deaths.get() > 0;
            self.deaths.set(self.deaths.get().saturating_sub(1));
            Ok(Box::new(Running { dies, worked: false }))
        }
    }

    impl Switch for Running {
        fn pid(&self) -> Option<u32> {
            None
        }
        fn mark(&mut self) -> Result<()> {
            Ok(())
        }
        fn work(&mut self) -> Result<Work> {
            self.worked = true;
            Ok(Work::default())
        }
        fn must_run(&mut self) -> Result<()> {
            if self.dies && self.worked { Err(Error::new("fragile: ended")) } else { Ok(()) }
        }
    }

    fn settings() -> Settings {
        let wishes = Wishes {
            set: scenarios::Set::Quick,
            scenarios: vec!["v2v-memif".into()],
            peers: vec!["fragile".into()],
            sizes: vec!["64".into(), "1024".into()],
            loads: Vec::new(),
            ways: Vec::new(),
            seconds: None,
            rounds: None,
            limit: None,
        };
        Settings::of(&wishes, &["fragile"]).unwrap()
    }

    /// Samples of a unit whose switch dies as often as `deaths` says and for which `known` are known; and the
    /// generator's command lines.
    fn measured(deaths: u32, known: Vec<Sample>) -> (Vec<Sample>, String) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("generator");
        std::fs::write(&program, GENERATOR).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let lab = Lab::open_at(&folder.path().join("lab"), &Interrupt::default()).unwrap();
        let bench = Bench {
            lab: &lab,
            generator: &Generator::at(program),
            cpus: Cpus { switch: 0, generator: 1, functions: 1 },
            seconds: 0.1,
            tsc_hz: 1e9,
        };
        let settings = settings();
        let missing = |task: &Task| !known.iter().any(|sample| sample.task == *task);
        let unit = Unit {
            scenario: &settings.scenarios()[0],
            peer: &Fragile { deaths: Rc::new(Cell::new(deaths)) },
            round: 1,
            reference: settings.reference("v2v-memif"),
            tasks: settings.tasks("v2v-memif").into_iter().filter(missing).collect(),
            known,
        };
        let mut samples = Vec::new();
        bench
            .run(&unit, &mut |sample| {
                samples.push(sample);
                Ok(())
            })
            .unwrap();
        let commands = std::fs::read_to_string(folder.path().join("commands")).unwrap();
        (samples, commands)
    }

    #[test]
    fn shares_are_those_of_the_first_size() {
        let (samples, commands) = measured(0, Vec::new());
        assert_eq!(samples.len(), settings().tasks("v2v-memif").len());
        assert_eq!(commands.matches("--maximum 1000000").count(), 3, "{commands}");
        // After an interruption, too, where the first task of what is left has another size.
        let known = samples[..2].to_vec();
        assert_eq!(known[0].task.size, "64");
        let (_, commands) = measured(0, known);
        assert_eq!(commands.matches("--maximum 1000000").count(), 3, "{commands}");
        assert_eq!(commands.matches("--maximum").count(), 3, "{commands}");
    }

    #[test]
    fn figures_of_a_switch_that_died_do_not_count() {
        let (samples, commands) = measured(1, Vec::new());
        assert!(samples.iter().all(|sample| sample.figures().is_some()), "{samples:?}");
        assert_eq!(commands.lines().count(), samples.len() + 1, "{commands}");
        let attempts = |samples: &[Sample]| samples.iter().map(|sample| sample.attempts).collect::<Vec<_>>();
        assert_eq!(attempts(&samples)[..3], [2, 1, 1]);
        let (samples, commands) = measured(STARTS, Vec::new());
        assert_eq!(attempts(&samples)[..3], [STARTS, 0, 0]);
        assert_eq!(samples.len(), settings().tasks("v2v-memif").len());
        let died = Outcome::Failed("fragile: ended".into());
        assert!(samples.iter().all(|sample| sample.outcome == died), "{samples:?}");
        assert_eq!(commands.lines().count(), STARTS as usize, "{commands}");
    }

    #[test]
    fn cycles_are_taken_from_the_rate_only_where_the_switch_is_the_limit() {
        let (samples, _) = measured(0, Vec::new());
        for sample in samples {
            let figures = sample.figures().unwrap();
            let limit = sample.task.load == Load::Saturation && sample.task.size == "64";
            assert_eq!(figures.cycles_per_packet, limit.then_some(1000.0), "{}", sample.task);
        }
    }

    #[test]
    fn what_became_of_the_packets_is_kept() {
        let (samples, _) = measured(0, Vec::new());
        let packets = Packets { sent: 100, lost: 10, skipped: 7, duplicated: 2, reordered: None };
        assert!(samples.iter().all(|sample| sample.figures().unwrap().packets == Some(packets)));
    }
}

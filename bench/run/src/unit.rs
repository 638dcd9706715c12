//! One unit of a benchmark: a peer is started for a scenario, measured at all tasks of a round, and ended.

use crate::cpu_time::{Samples, Usage};
use crate::cpus::Cpus;
use crate::error::{Error, Result};
use crate::generator::{Generator, Report};
use crate::lab::{Lab, Namespace, Process};
use crate::network::Network;
use crate::peers::{Peer, Site, Switch, Work};
use crate::sample::{Figures, Load, Outcome, Sample, Task};
use crate::scenarios::Scenario;
use crate::settings::generator_size;

/// Seconds of traffic before the measured time.
const WARM_UP: f64 = 0.2;
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
        let mut maximum = unit.known.iter().find_map(maximum_of);
        let mut starts = 0;
        loop {
            starts += 1;
            match self.measure_all(unit, &mut left, &mut maximum, done) {
                // A switch that died is started again for what is left.
                Err(Error::Failed(_)) if starts < STARTS => {}
                Err(Error::Failed(reason)) => {
                    for task in left {
                        done(unit.sample(task, Outcome::Failed(reason.clone())))?;
                    }
                    return Ok(());
                }
                other => return other,
            }
        }
    }

    /// Starts everything and measures; tasks that have a sample are taken from `left`. Fails if a program does not
    /// start, or dies.
    fn measure_all(
        &self,
        unit: &Unit<'_>,
        left: &mut &[Task],
        maximum: &mut Option<f64>,
        done: &mut dyn FnMut(Sample) -> Result<()>,
    ) -> Result<()> {
        let topology = &unit.scenario.topology;
        let folder = self.lab.fresh_folder("switch")?;
        let network = Network::of(self.lab, topology)?;
        let namespace = network.as_ref().map(|network| &network.switch);
        let site = Site { lab: self.lab, topology, folder, namespace, cpus: self.cpus };
        let mut switch = unit.peer.start(&site)?;
        let mut functions = self.generator.functions(&site)?;
        let clients = network.as_ref().map(|network| &network.clients);
        while let Some((task, rest)) = left.split_first() {
            // R⁺ in one direction with the first size.
            let first = unit.tasks.first().is_none_or(|first| first.size == task.size);
            let rate = Rate { maximum: *maximum, announce: unit.peer.learns() || functions.is_some() };
            let mut measured = self.measure(&site, clients, switch.as_mut(), task, &rate);
            if matches!(measured, Err(Error::Failed(_))) {
                switch.must_run()?;
                functions.as_mut().map_or(Ok(()), Process::must_run)?;
                // Once more: drivers of clients sometimes fail to connect.
                measured = self.measure(&site, clients, switch.as_mut(), task, &rate);
            }
            let outcome = match measured {
                Ok(mut figures) => {
                    if !unit.peer.counts() && task.load == Load::Saturation && !self.hampered(&site) {
                        let forwarded = figures.received_pps * topology.hops() as f64;
                        figures.cycles_per_packet = Some(self.tsc_hz / forwarded);
                    }
                    Outcome::Measured(figures)
                }
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(Error::Failed(reason)) => Outcome::Failed(reason),
            };
            let sample = unit.sample(task, outcome);
            if first {
                *maximum = maximum_of(&sample).or(*maximum);
            }
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
                let load = self.load(task, rate)?;
                self.generator.send(site, clients, &load, self.seconds)
            }
        });
        let report = report?;
        let work = switch.work()?;
        if task.load != Load::Idle && report.received_pps() <= 0.0 {
            return Err(Error::new("no packets arrived"));
        }
        let damaged: u64 = report.directions.iter().map(|way| way.corrupted + way.misdelivered).sum();
        if damaged > 0 {
            return Err(Error::new(format!("{damaged} packets arrived damaged or at a wrong port")));
        }
        Ok(figures(task, &report, work, samples.usage(report.began_ns, report.seconds)))
    }

    /// The generator's options for a task.
    fn load(&self, task: &Task, rate: &Rate) -> Result<Vec<String>> {
        let size =
            generator_size(&task.size).ok_or_else(|| Error::new(format!("unknown size {}", task.size)))?;
        let mut words: Vec<String> = vec!["--size".into(), size];
        let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
        option("--seconds", self.seconds.to_string());
        option("--warm-up", WARM_UP.to_string());
        option("--announce", if rate.announce { "yes" } else { "no" }.into());
        if let Load::Share(percent) = task.load {
            let maximum =
                rate.maximum.ok_or_else(|| Error::new("the rate at saturation could not be measured"))?;
            option("--rate", format!("{percent}%"));
            option("--maximum", format!("{maximum:.0}"));
            words.push("--rtt".into());
        }
        if task.ways == 1 {
            words.push("--one-way".into());
        }
        Ok(words)
    }
}

/// What a load depends on besides its task.
struct Rate {
    /// R⁺ in one direction.
    maximum: Option<f64>,
    /// Whether stations announce themselves, which also waits for the functions of a chain.
    announce: bool,
}

impl Unit<'_> {
    fn sample(&self, task: &Task, outcome: Outcome) -> Sample {
        Sample { task: task.clone(), peer: self.peer.name().to_owned(), round: self.round, outcome }
    }
}

/// R⁺ if this sample is one of saturation in one direction.
fn maximum_of(sample: &Sample) -> Option<f64> {
    let saturated = sample.task.load == Load::Saturation && sample.task.ways == 1;
    sample.figures().filter(|_| saturated).map(|figures| figures.received_pps)
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
        paced: task.load != Load::Saturation,
        generator_near_ceiling: report.core.near_ceiling && !idle,
    }
}

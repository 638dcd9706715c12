//! Medians of samples, by task and peer.

use super::Document;
use crate::sample::{Figures, Load, Sample, Task};
use crate::statistics::{Summary, uncertainty};

impl Document {
    /// Samples of a task and peer.
    pub(crate) fn of<'a>(&'a self, task: &Task, peer: &str) -> Vec<&'a Sample> {
        self.samples.iter().filter(|sample| sample.task == *task && sample.peer == peer).collect()
    }

    /// Values of a figure, in the order of rounds.
    pub(crate) fn values(&self, task: &Task, peer: &str, figure: fn(&Figures) -> Option<f64>) -> Vec<f64> {
        self.of(task, peer).into_iter().filter_map(Sample::figures).filter_map(figure).collect()
    }

    /// Summary of a figure; `None` without values.
    pub(crate) fn summary(
        &self,
        task: &Task,
        peer: &str,
        figure: fn(&Figures) -> Option<f64>,
    ) -> Option<Summary> {
        Summary::of(self.values(task, peer, figure))
    }

    /// Names of the peers that have figures for a scenario.
    pub(crate) fn peers_of(&self, scenario: &str) -> Vec<&str> {
        let names = self.header.peers.iter().map(|peer| peer.name.as_str());
        let has = |name: &&str| {
            let mut samples = self.samples.iter().filter(|sample| sample.task.scenario == scenario);
            samples.any(|sample| sample.peer == *name && sample.figures().is_some())
        };
        names.filter(has).collect()
    }

    /// Names of all peers with figures.
    pub(crate) fn peers(&self) -> Vec<&str> {
        let names = self.header.peers.iter().map(|peer| peer.name.as_str());
        names.filter(|name| self.samples.iter().any(|s| s.peer == *name && s.figures().is_some())).collect()
    }

    /// Whether the generator was near its ceiling in most samples.
    pub(crate) fn near_ceiling(&self, task: &Task, peer: &str) -> bool {
        let figures: Vec<&Figures> = self.of(task, peer).into_iter().filter_map(Sample::figures).collect();
        2 * figures.iter().filter(|figures| figures.generator_near_ceiling).count() > figures.len()
    }

    /// Whether a paced load was not what it should be in a sample: see [`Figures::missed`].
    pub(crate) fn missed(&self, task: &Task, peer: &str) -> bool {
        self.of(task, peer).into_iter().filter_map(Sample::figures).any(Figures::missed)
    }

    /// Whether the rate is known no better than the goal says.
    pub(crate) fn unsettled(&self, task: &Task, peer: &str) -> bool {
        let values = self.values(task, peer, |figures| Some(figures.received_pps));
        uncertainty(&values).is_none_or(|share| share > self.header.settings.goal)
    }

    /// The task of these samples at saturation.
    pub(crate) fn saturation(scenario: &str, size: &str, ways: u8) -> Task {
        Task { scenario: scenario.into(), size: size.into(), ways, load: Load::Saturation }
    }

    /// The task of a share of the rate at saturation: one way, first size.
    pub(crate) fn share(&self, scenario: &str, load: Load) -> Task {
        let size = self.header.settings.sizes.first().cloned().unwrap_or_default();
        Task { scenario: scenario.into(), size, ways: 1, load }
    }
}

/// Figures that reports and comparisons have.
pub(crate) mod figure {
    use crate::sample::Figures;

    pub(crate) fn rate(figures: &Figures) -> Option<f64> {
        Some(figures.received_pps).filter(|rate| *rate > 0.0)
    }

    /// The rate where the switch is the limit: a paced rate is the generator's.
    pub(crate) fn rate_at_saturation(figures: &Figures) -> Option<f64> {
        rate(figures).filter(|_| !figures.paced)
    }

    pub(crate) fn bits(figures: &Figures) -> Option<f64> {
        Some(figures.received_bps())
    }

    pub(crate) fn cycles(figures: &Figures) -> Option<f64> {
        figures.cycles_per_packet
    }

    pub(crate) fn batch(figures: &Figures) -> Option<f64> {
        figures.packets_per_batch
    }

    pub(crate) fn loss(figures: &Figures) -> Option<f64> {
        figures.loss()
    }

    pub(crate) fn cpus(figures: &Figures) -> Option<f64> {
        figures.switch_cpus
    }

    pub(crate) fn machine(figures: &Figures) -> Option<f64> {
        figures.machine_cpus
    }

    pub(crate) fn rtt_mean(figures: &Figures) -> Option<f64> {
        figures.rtt_ns.map(|rtt| rtt.mean)
    }

    pub(crate) fn rtt_median(figures: &Figures) -> Option<f64> {
        figures.rtt_ns.map(|rtt| rtt.p50)
    }

    pub(crate) fn rtt_p99(figures: &Figures) -> Option<f64> {
        figures.rtt_ns.map(|rtt| rtt.p99)
    }

    pub(crate) fn stolen(figures: &Figures) -> Option<f64> {
        figures.stolen_cpus
    }
}

//! The experiments, each with the figure of the mSwitch paper that it repeats.

mod batch;
mod destinations;
mod idle_ports;
mod incast;
mod large_packets;
mod middlebox;
mod modules;
mod ports_on_a_core;
mod rings;

use std::sync::Arc;

use fabric::{Egress, SwitchLogic, TxRing};
use serde::Serialize;

use crate::logics::address;
use crate::plots::Plot;
use crate::replay::Packets;
use crate::rig::{Result, Rig, Sender, Source};
use crate::samples::{Effort, Series, Spread};
use crate::sink::{Shape, Sink};

/// CPUs of the workers, and how much is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// One worker's CPU; experiments with two workers need a second.
    pub cpus: Vec<usize>,
    /// Turns and their length.
    pub effort: Effort,
}

impl Options {
    /// The first worker's CPU.
    fn cpu(&self) -> usize {
        self.cpus.first().copied().unwrap_or(0)
    }
}

/// A point of a curve.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// The curve.
    pub series: String,
    /// Where on the x axis.
    pub x: f64,
    /// Million packets per second of a worker's CPU time.
    pub mpps: Option<Spread>,
    /// Gbit/s of it.
    pub gbps: Option<Spread>,
    /// Ratio to the experiment's base, from neighbouring measurements.
    pub ratio: Option<Spread>,
    /// Packets in a batch, on average.
    pub batch: f64,
    /// Packets dropped on the way.
    pub drops: u64,
    /// Measurements that were repeated since a worker had lost its CPU.
    pub disturbed: usize,
}

impl Point {
    fn new(series: impl Into<String>, x: f64, measured: &Series, base: Option<&Series>) -> Self {
        let times = |factor: f64| {
            move |it: Spread| Spread {
                min: it.min * factor,
                median: it.median * factor,
                max: it.max * factor,
            }
        };
        Self {
            series: series.into(),
            x,
            mpps: measured.rate().map(times(1e-6)),
            gbps: measured.rate().map(times(8e-9 * measured.len)),
            ratio: base.and_then(|base| measured.ratio(base)),
            batch: measured.batch,
            drops: measured.drops,
            disturbed: measured.disturbed,
        }
    }
}

/// An experiment.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows, in a sentence.
    pub about: &'static str,
    /// What `x` of its points is.
    pub x: &'static str,
    /// What ratios are to.
    pub base: &'static str,
    /// Workers that it needs.
    pub workers: usize,
    /// Its pictures.
    pub plots: &'static [Plot],
    /// Measures; called with each point as soon as it is known.
    pub run: fn(&Options, &mut dyn FnMut(Point)) -> Result<()>,
}

/// All experiments.
pub const LIST: &[Experiment] = &[
    batch::EXPERIMENT,
    idle_ports::EXPERIMENT,
    destinations::EXPERIMENT,
    incast::EXPERIMENT,
    large_packets::EXPERIMENT,
    rings::EXPERIMENT,
    ports_on_a_core::EXPERIMENT,
    modules::EXPERIMENT,
    middlebox::EXPERIMENT,
];

/// Packets of a sender's cycle for so many destinations: enough for several batches, and the same for all.
fn cycle(destinations: usize) -> usize {
    destinations * 1024_usize.div_ceil(destinations)
}

/// Packets of `len` bytes to ports 0 to `destinations - 1` in turn.
fn round_robin(destinations: usize, len: usize) -> Arc<Packets> {
    let write = |i: usize, packet: &mut [u8]| address(packet, (i % destinations) as u16);
    Arc::new(Packets::new(cycle(destinations), len, write))
}

/// Rings as destinations.
fn as_egress(rings: Vec<Arc<TxRing<Sink>>>) -> Vec<Arc<dyn Egress>> {
    rings.into_iter().map(|ring| ring as Arc<dyn Egress>).collect()
}

/// One sender in batches of `burst` to the first `active` of `ports` ports, in turn.
fn fan_out(
    options: &Options,
    logic: Arc<dyn SwitchLogic>,
    ports: usize,
    active: usize,
    len: usize,
    burst: usize,
) -> Result<Rig> {
    let receivers = as_egress(Sink::rings(ports, Shape::DEFAULT, None));
    let sender = Sender { packets: Source::Repeated(round_robin(active, len)), burst, cpu: options.cpu() };
    Rig::new(&[options.cpu()], logic, receivers, vec![sender])
}

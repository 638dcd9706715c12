//! Batch size: the more packets share the work per batch, the less a packet costs (figure 5b of the paper).

use std::sync::Arc;

use super::{Experiment, Options, Point, fan_out};
use crate::logics::Addressed;
use crate::plots::{Horizontal, Measure, Plot};
use crate::rig::{Result, Subject};
use crate::samples::take_turns;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "batch",
    about: "throughput between two ports against the packets of a batch (figure 5b of the paper)",
    x: "packets in a batch",
    base: "batches of 256",
    workers: 1,
    plots: &[Plot {
        name: "batch",
        title: "Two ports, one worker: throughput by batch size",
        y: Measure::Gbps,
        logarithmic: true,
        x: Horizontal::Logarithmic(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]),
        group: "",
    }],
    run,
};

const SIZES: [usize; 4] = [60, 508, 1514, 65_000];
const BATCHES: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

fn run(options: &Options, show: &mut dyn FnMut(Point)) -> Result<()> {
    for size in SIZES {
        let rigs = BATCHES.iter().map(|burst| fan_out(options, Arc::new(Addressed), 1, 1, size, *burst));
        let rigs = rigs.collect::<Result<Vec<_>>>()?;
        let series =
            take_turns(&rigs.iter().map(|rig| rig as &dyn Subject).collect::<Vec<_>>(), options.effort)?;
        let base = series.last();
        for (burst, measured) in BATCHES.iter().zip(&series) {
            show(Point::new(format!("{size} B"), *burst as f64, measured, base));
        }
    }
    Ok(())
}

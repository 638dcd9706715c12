//! Rings and cores: two ports with as many rings each as there are workers (figure 6 of the paper).

use std::sync::Arc;

use super::{Experiment, Options, Point, as_egress, round_robin};
use crate::logics::RingByRing;
use crate::plots::{Horizontal, Measure, Plot};
use crate::rig::{Result, Rig, Rings, Subject};
use crate::samples::take_turns;
use crate::sink::{Shape, Sink};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "rings",
    about: "throughput between two ports with a ring for each worker (figure 6 of the paper)",
    x: "packet size, bytes",
    base: "one ring and worker",
    workers: 2,
    plots: &[Plot {
        name: "rings",
        title: "Two ports, a ring for each worker: throughput by packet size",
        y: Measure::Gbps,
        logarithmic: true,
        x: Horizontal::Logarithmic(&[60.0, 128.0, 252.0, 508.0, 1514.0, 8000.0, 64000.0]),
        group: "",
    }],
    run,
};

const SIZES: [usize; 7] = [60, 128, 252, 508, 1514, 8000, 64_000];

fn run(options: &Options, show: &mut dyn FnMut(Point)) -> Result<()> {
    for size in SIZES {
        let rig = |count: usize| {
            let cpus = options.cpus.get(..count).unwrap_or(&options.cpus);
            let shape = Shape { buffer: Shape::DEFAULT.buffer.max(size), ..Shape::DEFAULT };
            let rings = Rings { packets: round_robin(1, size), burst: 256, count };
            Rig::with_rings(cpus, Arc::new(RingByRing), as_egress(Sink::rings(count, shape, None)), &rings)
        };
        let rigs = (1..=options.cpus.len()).map(rig).collect::<Result<Vec<_>>>()?;
        let subjects: Vec<_> = rigs.iter().map(|rig| rig as &dyn Subject).collect();
        let series = take_turns(&subjects, options.effort)?;
        for (count, measured) in (1..).zip(&series) {
            let name =
                if count == 1 { "1 ring and worker".into() } else { format!("{count} rings and workers") };
            show(Point::new(name, size as f64, measured, series.first()));
        }
    }
    Ok(())
}

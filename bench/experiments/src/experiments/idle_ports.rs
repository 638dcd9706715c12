//! Idle ports: what ports without packets cost a pair that exchanges some (figure 10a and b of the paper).

use std::sync::Arc;

use fabric::SwitchLogic;

use super::{Experiment, Options, Point, fan_out};
use crate::logics::{Addressed, Scanning};
use crate::plots::{Horizontal, Measure, Plot};
use crate::rig::Result;
use crate::samples::take_turns;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "idle-ports",
    about: "throughput of one pair beside idle ports (figure 10a of the paper)",
    x: "idle ports",
    base: "mswitch without idle ports",
    workers: 1,
    plots: &[Plot {
        name: "idle-ports",
        title: "One active pair: throughput by idle ports, 60 B",
        y: Measure::Mpps,
        logarithmic: false,
        x: Horizontal::Logarithmic(&[1.0, 3.0, 10.0, 30.0, 100.0, 1000.0]),
        group: "",
    }],
    run,
};

const IDLE: [usize; 6] = [1, 3, 10, 30, 100, 1000];

fn run(options: &Options, show: &mut dyn FnMut(Point)) -> Result<()> {
    let rig = |logic: Arc<dyn SwitchLogic>, idle: usize| fan_out(options, logic, 1 + idle, 1, 60, 256);
    let alone = rig(Arc::new(Addressed), 0)?;
    for idle in IDLE {
        let (lists, scan) = (rig(Arc::new(Addressed), idle)?, rig(Arc::new(Scanning::BY_ADDRESS), idle)?);
        if let [base, lists, scan] = take_turns(&[&alone, &lists, &scan], options.effort)?.as_slice() {
            show(Point::new("alone", idle as f64, base, Some(base)));
            show(Point::new("mswitch", idle as f64, lists, Some(base)));
            show(Point::new("VALE's scan", idle as f64, scan, Some(base)));
        }
    }
    Ok(())
}

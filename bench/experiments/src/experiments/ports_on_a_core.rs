//! Ports on a core: one worker forwards to up to 120 ports with the learning bridge (figure 9 of the paper). Receivers take
//! packets for nothing, so their core's work, which the paper's figure includes, is left out.

use std::sync::Arc;

use fabric::SwitchLogic;
use logic::Learning;

use super::{Experiment, Options, Point, fan_out};
use crate::logics::{Addressed, Scanning, teach};
use crate::plots::{Horizontal, Measure, Plot};
use crate::rig::Result;
use crate::samples::take_turns;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ports-on-a-core",
    about: "throughput of one worker to up to 120 ports with the learning bridge (figure 9 of the paper)",
    x: "active ports",
    base: "the learning bridge with one port",
    workers: 1,
    plots: &[Plot {
        name: "ports-on-a-core",
        title: "One worker, packets to ports in turn: throughput by ports, 60 B",
        y: Measure::Mpps,
        logarithmic: false,
        x: Horizontal::Linear(&[0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]),
        group: "",
    }],
    run,
};

const PORTS: [usize; 8] = [1, 10, 20, 40, 60, 80, 100, 120];
/// Packets of a batch, as by default.
const BURST: usize = 64;

fn run(options: &Options, show: &mut dyn FnMut(Point)) -> Result<()> {
    let rig = |logic: Arc<dyn SwitchLogic>, ports: usize| fan_out(options, logic, ports, ports, 60, BURST);
    // Once its ports exist, the bridge keeps their stations.
    let learning = |ports: usize| {
        let learning = Arc::new(Learning::new(&[])?);
        let rig = rig(learning.clone(), ports)?;
        teach(&learning, ports);
        Result::Ok(rig)
    };
    let one = learning(1)?;
    for ports in PORTS {
        let learned = learning(ports)?;
        let (lists, scan) = (rig(Arc::new(Addressed), ports)?, rig(Arc::new(Scanning::BY_ADDRESS), ports)?);
        let series = take_turns(&[&one, &learned, &lists, &scan], options.effort)?;
        if let [base, learned, lists, scan] = series.as_slice() {
            show(Point::new("mswitch, learning", ports as f64, learned, Some(base)));
            show(Point::new("mswitch, by address", ports as f64, lists, Some(base)));
            show(Point::new("VALE's scan, by address", ports as f64, scan, Some(base)));
        }
    }
    Ok(())
}

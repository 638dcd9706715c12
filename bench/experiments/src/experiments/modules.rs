//! Modules: the same packets through logics of different complexity (figure 16 of the paper, which varies the frequency of
//! the CPU instead of the batch).

use std::sync::Arc;

use fabric::SwitchLogic;
use logic::{Chain, Dummy, Learning, StaticPairs};

use super::{Experiment, Options, Point, fan_out};
use crate::logics::{Addressed, teach};
use crate::plots::{Horizontal, Measure, Plot};
use crate::rig::{Result, Rig, Subject};
use crate::samples::take_turns;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "modules",
    about: "throughput between two ports by logic, 60 B (figure 16 of the paper)",
    x: "packets in a batch",
    base: "`dummy`",
    workers: 1,
    plots: &[Plot {
        name: "modules",
        title: "Two ports, one worker: throughput by logic, 60 B",
        y: Measure::Mpps,
        logarithmic: false,
        x: Horizontal::Groups("packets in a batch"),
        group: "",
    }],
    run,
};

const BURSTS: [usize; 3] = [1, 8, 64];
const LOGICS: [&str; 5] = ["dummy", "by address", "static", "learning", "chain of dummy"];

fn run(options: &Options, show: &mut dyn FnMut(Point)) -> Result<()> {
    for burst in BURSTS {
        let rigs = LOGICS.iter().map(|name| rig(options, name, burst)).collect::<Result<Vec<_>>>()?;
        let subjects: Vec<_> = rigs.iter().map(|rig| rig as &dyn Subject).collect();
        let series = take_turns(&subjects, options.effort)?;
        for (name, measured) in LOGICS.iter().zip(&series) {
            show(Point::new(*name, burst as f64, measured, series.first()));
        }
    }
    Ok(())
}

/// One sender to one port, in this order: `dummy` joins the first two ports.
fn rig(options: &Options, name: &str, burst: usize) -> Result<Rig> {
    let given = |key: &str, value: &str| [(key.to_owned(), value.to_owned())];
    let with = |logic: Arc<dyn SwitchLogic>| fan_out(options, logic, 1, 1, 60, burst);
    match name {
        "dummy" => with(Arc::new(Dummy::new(&[])?)),
        "static" => with(Arc::new(StaticPairs::new(&given("from0", "to0"))?)),
        "chain of dummy" => with(Arc::new(Chain::new(&given("1", "dummy"), &[])?)),
        "learning" => {
            let learning = Arc::new(Learning::new(&[])?);
            let rig = with(learning.clone())?;
            teach(&learning, 1);
            Ok(rig)
        }
        _ => with(Arc::new(Addressed)),
    }
}

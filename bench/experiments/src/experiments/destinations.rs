//! Many destinations: packets of a batch go to so many ports in turn, which the sender drains (figures 10c and d, 11 of
//! the paper); beside it what memory costs a bare copy.

use std::sync::Arc;

use fabric::SwitchLogic;

use super::{Experiment, Options, Point, fan_out, round_robin};
use crate::bare_copy::BareCopy;
use crate::logics::{Addressed, Scanning};
use crate::plots::{Horizontal, Measure, Plot};
use crate::rig::{Result, Subject};
use crate::samples::take_turns;
use crate::sink::Shape;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "destinations",
    about: "throughput of one sender to many active ports (figure 11 of the paper)",
    x: "active ports",
    base: "the same with one port (VALE's scan: mswitch)",
    workers: 1,
    plots: &[
        Plot {
            name: "destinations-60",
            title: "One sender to many ports, 60 B: throughput by active ports",
            y: Measure::Mpps,
            logarithmic: false,
            x: Horizontal::Logarithmic(PORTS),
            group: "60 B: ",
        },
        Plot {
            name: "destinations-1514",
            title: "One sender to many ports, 1,514 B: throughput by active ports",
            y: Measure::Mpps,
            logarithmic: false,
            x: Horizontal::Logarithmic(PORTS),
            group: "1514 B: ",
        },
    ],
    run,
};

const ACTIVE: [usize; 10] = [1, 2, 4, 8, 16, 60, 120, 250, 500, 1000];
const PORTS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 60.0, 120.0, 250.0, 500.0, 1000.0];
const SIZES: [usize; 2] = [60, 1514];

/// Packets of a batch, as in the paper's figure.
const BATCH: usize = 1024;

fn run(options: &Options, show: &mut dyn FnMut(Point)) -> Result<()> {
    for size in SIZES {
        let rig =
            |logic: Arc<dyn SwitchLogic>, active: usize| fan_out(options, logic, active, active, size, BATCH);
        let one = rig(Arc::new(Addressed), 1)?;
        let bare_one = BareCopy::new(round_robin(1, size), Shape::DEFAULT, 1, options.cpu());
        let locked = |active| {
            BareCopy::with_locks(
                round_robin(active, size),
                Shape::DEFAULT,
                active,
                options.cpu(),
                BATCH as u64,
            )
        };
        let locked_one = locked(1);
        for active in ACTIVE {
            let (lists, scan) =
                (rig(Arc::new(Addressed), active)?, rig(Arc::new(Scanning::BY_ADDRESS), active)?);
            let bare = BareCopy::new(round_robin(active, size), Shape::DEFAULT, active, options.cpu());
            let locked = locked(active);
            let subjects: [&dyn Subject; 7] = [&one, &lists, &scan, &bare_one, &bare, &locked_one, &locked];
            if let [base, lists, scan, bare_base, bare, locked_base, locked] =
                take_turns(&subjects, options.effort)?.as_slice()
            {
                show(Point::new(format!("{size} B: mswitch"), active as f64, lists, Some(base)));
                show(Point::new(format!("{size} B: VALE's scan"), active as f64, scan, Some(base)));
                show(Point::new(format!("{size} B: bare copy"), active as f64, bare, Some(bare_base)));
                let series = format!("{size} B: bare copy, with locks");
                show(Point::new(series, active as f64, locked, Some(locked_base)));
            }
        }
    }
    Ok(())
}

//! Many destinations: packets of a batch go to so many ports in turn, which the sender drains (figures 10c and d, 11 of
//! the paper); beside it what memory costs a bare copy.

use std::sync::Arc;

use fabric::SwitchLogic;

use super::{Experiment, Options, Point, fan_out, round_robin};
use crate::bare_copy::BareCopy;
use crate::logics::{Addressed, Scanning};
use crate::rig::{Result, Subject};
use crate::samples::take_turns;
use crate::sink::Shape;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "destinations",
    about: "throughput of one sender to many active ports (figure 11 of the paper)",
    x: "active ports",
    base: "the same with one port (VALE's scan: mswitch)",
    workers: 1,
    run,
};

const ACTIVE: [usize; 10] = [1, 2, 4, 8, 16, 60, 120, 250, 500, 1000];
const SIZES: [usize; 2] = [60, 1514];

fn run(options: &Options, show: &mut dyn FnMut(Point)) -> Result<()> {
    for size in SIZES {
        let rig =
            |logic: Arc<dyn SwitchLogic>, active: usize| fan_out(options, logic, active, active, size, 256);
        let one = rig(Arc::new(Addressed), 1)?;
        let bare_one = BareCopy::new(round_robin(1, size), Shape::DEFAULT, 1, options.cpu());
        for active in ACTIVE {
            let (lists, scan) = (rig(Arc::new(Addressed), active)?, rig(Arc::new(Scanning), active)?);
            let bare = BareCopy::new(round_robin(active, size), Shape::DEFAULT, active, options.cpu());
            let subjects: [&dyn Subject; 5] = [&one, &lists, &scan, &bare_one, &bare];
            if let [base, lists, scan, bare_base, bare] = take_turns(&subjects, options.effort)?.as_slice() {
                show(Point::new(format!("mswitch, {size} B"), active as f64, lists, Some(base)));
                show(Point::new(format!("VALE's scan, {size} B"), active as f64, scan, Some(base)));
                show(Point::new(format!("bare copy, {size} B"), active as f64, bare, Some(bare_base)));
            }
        }
    }
    Ok(())
}

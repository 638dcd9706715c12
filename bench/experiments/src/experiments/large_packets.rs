//! Large packets: from port to port against a bare copy between buffers like theirs, in the second-level cache and
//! beyond the last one (figures 6 and 5b of the paper show that large packets are bounded by memory).

use std::sync::Arc;

use super::{Experiment, Options, Point, as_egress};
use crate::bare_copy::BareCopy;
use crate::logics::{Addressed, address};
use crate::plots::{Horizontal, Measure, Plot};
use crate::replay::Packets;
use crate::rig::{Result, Rig, Sender, Source};
use crate::samples::take_turns;
use crate::sink::{Shape, Sink};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "large-packets",
    about: "64 KiB packets from port to port against memcpy",
    x: "working set, KiB",
    base: "memcpy",
    workers: 1,
    plots: &[Plot {
        name: "large-packets",
        title: "64 KiB packets from port to port",
        y: Measure::Gbps,
        logarithmic: false,
        x: Horizontal::Groups("KiB"),
        group: "",
    }],
    run,
};

/// A packet of 64 KiB less what an IP length cannot express.
const LEN: usize = 65_535;
const BUFFER: usize = 1 << 16;
/// Packets of the sender and buffers of the ring: 384 KiB, and 128 MiB.
const SETS: [(usize, u32); 2] = [(2, 4), (1024, 1024)];

fn run(options: &Options, show: &mut dyn FnMut(Point)) -> Result<()> {
    for (count, entries) in SETS {
        let shape = Shape { entries, buffer: BUFFER };
        let packets = || Arc::new(Packets::new(count, LEN, |_, packet| address(packet, 0)));
        let bare = BareCopy::new(packets(), shape, 1, options.cpu());
        let burst = count.min(entries as usize).min(16);
        let sender = Sender { packets: Source::Repeated(packets()), burst, cpu: options.cpu() };
        let rig = Rig::new(
            &[options.cpu()],
            Arc::new(Addressed),
            as_egress(Sink::rings(1, shape, None)),
            vec![sender],
        )?;
        let kibibytes = ((count + entries as usize) * BUFFER / 1024) as f64;
        if let [bare, switch] = take_turns(&[&bare, &rig], options.effort)?.as_slice() {
            show(Point::new("memcpy", kibibytes, bare, Some(bare)));
            show(Point::new("mswitch", kibibytes, switch, Some(bare)));
        }
    }
    Ok(())
}

//! Incast: senders on all workers into one port, against as many pairs that share nothing (figure 12 of the paper). A
//! further run of each point checks every packet at the receiver.

use std::sync::Arc;

use super::{Experiment, Options, Point, as_egress};
use crate::audit::{Audit, sign};
use crate::logics::{Addressed, address};
use crate::plots::{Horizontal, Measure, Plot};
use crate::replay::Packets;
use crate::rig::{Result, Rig, Sender, Source, Subject};
use crate::samples::take_turns;
use crate::sink::{Shape, Sink};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "incast",
    about: "senders on all workers into one port (figure 12 of the paper)",
    x: "senders",
    base: "as many pairs of their own",
    workers: 2,
    plots: &[
        Plot {
            name: "incast-64",
            title: "Senders into one port: throughput, batch 64, ring 1,024",
            y: Measure::Gbps,
            logarithmic: false,
            x: Horizontal::Groups("senders"),
            group: "batch 64: ",
        },
        Plot {
            name: "incast-256",
            title: "Senders into one port: throughput, batch 256, ring 512",
            y: Measure::Gbps,
            logarithmic: false,
            x: Horizontal::Groups("senders"),
            group: "batch 256: ",
        },
    ],
    run,
};

const SIZES: [usize; 3] = [60, 508, 1514];
/// Packets of a sender's cycle.
const CYCLE: usize = 1024;
/// Packets of a batch, and the ring of the destination: in the second case a batch takes half of the ring, as the
/// paper's 512 packets of 1,024.
const BATCHES: [(usize, u32); 2] = [(64, 1024), (256, 512)];

/// A point of the curves.
struct Case<'a> {
    cpus: &'a [usize],
    len: usize,
    burst: usize,
    shape: Shape,
}

impl Case<'_> {
    /// Two senders to `ports` ports.
    fn rig(&self, ports: usize, audit: Option<&Arc<Audit>>) -> Result<Rig> {
        let sender = |(i, cpu): (usize, &usize)| {
            let packets = Packets::new(CYCLE, self.len, |_, packet| {
                address(packet, (i % ports) as u16);
                sign(packet, i as u16);
            });
            let packets = match audit {
                Some(_) => Source::Numbered(packets),
                None => Source::Repeated(Arc::new(packets)),
            };
            Sender { packets, burst: self.burst, cpu: *cpu }
        };
        let senders = self.cpus.iter().enumerate().map(sender).collect();
        Rig::new(self.cpus, Arc::new(Addressed), as_egress(Sink::rings(ports, self.shape, audit)), senders)
    }

    /// Fails unless each packet arrives once and in order, or is counted as dropped.
    fn check(&self, options: &Options) -> Result<()> {
        let audit = Arc::new(Audit::new(self.cpus.len()));
        let rig = self.rig(1, Some(&audit))?;
        rig.run(options.effort.time)?;
        rig.settle()?;
        let (seen, drops) = (audit.seen(), rig.drops()?);
        if seen.disorder > 0 || seen.missing > drops {
            let len = self.len;
            return Err(
                format!("incast of {len} B: {seen:?}, of which {drops} are counted as dropped").into()
            );
        }
        Ok(())
    }
}

fn run(options: &Options, show: &mut dyn FnMut(Point)) -> Result<()> {
    for (burst, entries) in BATCHES {
        for len in SIZES {
            for senders in 1..=options.cpus.len() {
                let cpus = options.cpus.get(..senders).unwrap_or(&options.cpus);
                let case = Case { cpus, len, burst, shape: Shape { entries, ..Shape::DEFAULT } };
                let (pairs, incast) = (case.rig(senders, None)?, case.rig(1, None)?);
                if let [base, incast] = take_turns(&[&pairs, &incast], options.effort)?.as_slice() {
                    let x = senders as f64;
                    show(Point::new(format!("batch {burst}: {len} B, one port"), x, incast, Some(base)));
                    show(Point::new(format!("batch {burst}: {len} B, a port each"), x, base, Some(base)));
                }
                case.check(options)?;
            }
        }
    }
    Ok(())
}

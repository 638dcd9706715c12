//! Measures the cost of calling a bridge's logic through dynamic dispatch: TSC cycles per packet beyond those of a
//! logic that the compiler knows, both doing nothing.
//!
//! The two are measured in turns; prints the median and the quartiles of the differences. `make bench`.

use std::hint::black_box;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fabric::fuzzing::{Bridge, Port, Steps};
use fabric::rx::BatchLimits;
use fabric::{Batch, Caps, Fault, PortIndex, PortSettings, RxBatch, RxQueue, SwitchLogic, Tools, clock};
use packet::Offload;
use rustix::event::{EventfdFlags, eventfd};

/// Batches in a turn.
const TURN: u32 = 20_000;
const TURNS: usize = 201;

/// Decides nothing.
struct Nothing;

impl SwitchLogic for Nothing {
    #[inline]
    fn forward(&self, batch: &mut Batch<'_>) {
        black_box(batch);
    }
}

/// Receives so many packets of 60 bytes.
struct Packets(usize, OwnedFd);

impl RxQueue for Packets {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        (0..self.0).try_for_each(|_| {
            batch.landing();
            batch.landed(0, 60, Offload::NONE)
        })
    }

    fn complete(&mut self, _: &mut Tools) -> Result<(), Fault> {
        Ok(())
    }

    fn set_signalled(&mut self, _: bool) {}

    fn signal(&self) -> BorrowedFd<'_> {
        self.1.as_fd()
    }

    fn cheap_to_poll(&self) -> bool {
        true
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = |name: &str| Port {
        up: true,
        settings: PortSettings::new(name),
        tx: Vec::new(),
        caps: Caps::default(),
        max_frame: 9000,
    };
    let bridge = Bridge::new(Arc::new(Nothing), vec![port("a"), port("b")]);
    for packets in [1, 8, 64] {
        let mut steps = Steps::new(BatchLimits::default())?;
        steps.receive(&mut Packets(packets, eventfd(0, EventfdFlags::CLOEXEC)?))?;
        steps.load();
        let mut turn = |known: bool| {
            let start = clock::cycles();
            for _ in 0..TURN {
                match known {
                    true => steps.ask(black_box(&bridge), PortIndex(0), black_box(&Nothing)),
                    false => steps.ask_own(black_box(&bridge), PortIndex(0)),
                }
            }
            clock::cycles().wrapping_sub(start) as f64 / f64::from(TURN) / packets as f64
        };
        let mut differences: Vec<f64> = (0..TURNS).map(|_| -turn(true) + turn(false)).collect();
        differences.sort_by(f64::total_cmp);
        let at = |part: usize| differences.get(TURNS * part / 4).copied().unwrap_or(f64::NAN);
        println!("{packets:2} packets a batch: {:6.2} cycles a packet ({:.2} to {:.2})", at(2), at(1), at(3));
    }
    Ok(())
}

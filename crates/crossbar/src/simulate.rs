//! A simulator: packets of one slot each arrive at random, and a discipline forwards them.
//!
//! In a slot, packets arrive first and leave then, so a packet that never waits has a delay of 0. A run is repeatable: it
//! depends on the seed alone.

mod delays;
mod queues;
mod traffic;

pub use delays::Delays;
use queues::{Fifo, OutputQueues, Queues, VirtualOutputQueues};
pub use traffic::{Pattern, Traffic};

use crate::Arbiter;
use crate::patterns::Hairpins;

/// What decides which packets leave.
pub enum Discipline<'a> {
    /// Virtual output queues and an arbiter. Weights are packets that wait plus slots that the first of them has waited.
    Scheduled(&'a mut dyn Arbiter),
    /// One queue for each input: its first packet delays all others (head-of-line blocking). An output takes one of the
    /// packets for it at random.
    Fifo,
    /// Queues at the outputs, which take all packets at once: the bound that no scheduler beats.
    OutputQueues,
}

/// A run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setup {
    /// Number of inputs, and of outputs.
    pub ports: usize,
    /// Whether inputs send to the output of the same number.
    pub hairpins: Hairpins,
    /// Packets, by input and output.
    pub traffic: Traffic,
    /// Slots that count.
    pub slots: u32,
    /// Slots before them, in which queues fill.
    pub warm_up: u32,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Results of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Packets that arrived, for each slot and port.
    pub offered: f64,
    /// Packets that left, for each slot and port.
    pub carried: f64,
    /// Delays of the packets that left.
    pub delays: Delays,
    /// Packets that left, by input and output: that of input `i` and output `o` is at `i * ports + o`.
    pub served: Vec<u64>,
    /// The longest time that a packet at the head of a queue has waited, in slots.
    pub longest_wait: u32,
}

/// Runs a discipline on traffic.
pub fn run(setup: &Setup, discipline: Discipline<'_>) -> Outcome {
    let ports = setup.ports;
    let mut random = fastrand::Rng::with_seed(setup.seed);
    let mut arrivals = setup.traffic.arrivals(ports, setup.hairpins);
    let mut queues: Box<dyn Queues + '_> = match discipline {
        Discipline::Scheduled(arbiter) => Box::new(VirtualOutputQueues::new(ports, arbiter)),
        Discipline::Fifo => Box::new(Fifo::new(ports)),
        Discipline::OutputQueues => Box::new(OutputQueues::new(ports)),
    };
    let mut outcome = Outcome {
        offered: 0.0,
        carried: 0.0,
        delays: Delays::default(),
        served: vec![0; ports * ports],
        longest_wait: 0,
    };
    let (mut arrived, mut left) = (0u64, 0u64);
    for slot in 0..setup.warm_up.saturating_add(setup.slots) {
        let counts = slot >= setup.warm_up;
        for input in 0..ports {
            if let Some(output) = arrivals.next(input, &mut random) {
                queues.arrive(input, output, slot);
                arrived += u64::from(counts);
            }
        }
        queues.leave(slot, &mut random, &mut |input, output, since| {
            if counts {
                left += 1;
                outcome.delays.add(slot - since);
                outcome.longest_wait = outcome.longest_wait.max(slot - since);
                if let Some(served) = outcome.served.get_mut(input * ports + output) {
                    *served += 1;
                }
            }
        });
    }
    let oldest = queues.oldest().map_or(0, |since| setup.warm_up.saturating_add(setup.slots) - since);
    outcome.longest_wait = outcome.longest_wait.max(oldest);
    let each = f64::from(setup.slots.max(1)) * ports as f64;
    (outcome.offered, outcome.carried) = (arrived as f64 / each, left as f64 / each);
    outcome
}

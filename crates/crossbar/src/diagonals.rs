//! Two-dimensional round robin (LaMaire and Serpanos, "Two-dimensional round-robin schedulers for packet switches with
//! multiple input queues", 1994): the diagonals of the demand go first in turn.

use crate::Arbiter;
use crate::demand::Demand;
use crate::matching::Matching;
use crate::patterns::Hairpins;

/// Chooses pairs by diagonals: input `i` and output `i + d` for a distance `d`. Weights do not count.
///
/// The pairs of a diagonal do not conflict. The first one has all its pairs with demand, each following one those that
/// are left, so that no pair is left in the end. Each diagonal is the first in its turn: a queue waits for as many slots
/// as there are diagonals at most, and full queues have equal shares.
#[derive(Debug, Clone)]
pub struct Diagonals {
    hairpins: Hairpins,
    first: usize,
}

impl Diagonals {
    /// Makes an arbiter of any number of ports.
    pub fn new(hairpins: Hairpins) -> Self {
        Self { hairpins, first: 0 }
    }
}

impl Arbiter for Diagonals {
    fn extend(&mut self, demand: &Demand, matching: &mut Matching) {
        let ports = demand.ports();
        let shortest = usize::from(self.hairpins == Hairpins::Forbidden);
        let diagonals = ports.saturating_sub(shortest);
        if diagonals == 0 {
            return;
        }
        for step in 0..diagonals {
            let distance = shortest + (self.first + step) % diagonals;
            for input in 0..ports {
                let output = (input + distance) % ports;
                if demand.requests(input) >> output & 1 != 0 {
                    matching.connect(input, output);
                }
            }
        }
        self.first = (self.first + 1) % diagonals;
    }
}

//! Classes: the highest is matched first, the others share the inputs and outputs that it leaves.

use crate::Arbiter;
use crate::demand::Demand;
use crate::matching::Matching;

/// A pair of a matching, and the class that it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The input.
    pub input: usize,
    /// The output.
    pub output: usize,
    /// The class.
    pub class: usize,
}

/// Schedules classes in strict priority.
pub struct Scheduler {
    /// The arbiters of the classes: each has its own turns.
    arbiters: Vec<Box<dyn Arbiter + Send>>,
}

impl Scheduler {
    /// Makes a scheduler with the arbiters of the classes, from class 0 on.
    pub fn new(arbiters: Vec<Box<dyn Arbiter + Send>>) -> Self {
        Self { arbiters }
    }

    /// Finds the matching of a slot from the demand of each class, and calls `f` with its pairs. The last class is the
    /// highest.
    pub fn schedule(&mut self, demands: &[Demand], mut f: impl FnMut(Pair)) -> Matching {
        let mut matching = Matching::default();
        for (class, (arbiter, demand)) in self.arbiters.iter_mut().zip(demands).enumerate().rev() {
            let before = matching.clone();
            arbiter.extend(demand, &mut matching);
            let new = matching.pairs().filter(|(input, _)| before.is_input_free(*input));
            new.for_each(|(input, output)| f(Pair { input, output, class }));
        }
        matching
    }
}

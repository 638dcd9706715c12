//! Maximum-weight matching of few ports: every pattern is scored.

use std::sync::Arc;

use crate::Arbiter;
use crate::demand::Demand;
use crate::matching::Matching;
use crate::patterns::Patterns;

/// Chooses the pairs whose weights have the largest sum; of several such choices, each in its turn.
///
/// With the backlog as weight, it carries all traffic that the ports could carry (McKeown et al., "Achieving 100%
/// throughput in an input-queued switch", 1999), whatever its pattern. Cost: an addition for each pair of each pattern,
/// 356 without hairpins between five cards.
#[derive(Debug, Clone)]
pub struct Heaviest {
    patterns: Arc<Patterns>,
    /// The pattern to try first.
    first: usize,
    /// Weights of the free pairs, in the order of the patterns' pairs.
    weights: Vec<u32>,
}

impl Heaviest {
    /// Makes an arbiter for the ports of these patterns.
    pub fn new(patterns: Arc<Patterns>) -> Self {
        let weights = vec![0; patterns.ports() * patterns.ports()];
        Self { patterns, first: 0, weights }
    }
}

impl Arbiter for Heaviest {
    fn extend(&mut self, demand: &Demand, matching: &mut Matching) {
        let ports = self.patterns.ports();
        for (at, weight) in self.weights.iter_mut().enumerate() {
            let (input, output) = (at / ports, at % ports);
            let free = matching.is_input_free(input) && matching.outputs_taken() >> output & 1 == 0;
            *weight = if free { demand.get(input, output) } else { 0 };
        }
        let weight =
            |(input, output): (usize, usize)| self.weights.get(input * ports + output).copied().unwrap_or(0);
        let score = |pattern| self.patterns.pairs(pattern).map(|pair| u64::from(weight(pair))).sum::<u64>();
        let (mut best, mut most) = (None, 0);
        for step in 0..self.patterns.len() {
            let pattern = (self.first + step) % self.patterns.len();
            let score = score(pattern);
            if score > most {
                (best, most) = (Some(pattern), score);
            }
        }
        self.first = (self.first + 1) % self.patterns.len();
        let Some(best) = best else { return };
        for pair in self.patterns.pairs(best).filter(|pair| weight(*pair) > 0) {
            matching.connect(pair.0, pair.1);
        }
    }
}

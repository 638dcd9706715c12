//! Traffic: at which inputs packets arrive, and for which outputs.

use crate::patterns::Hairpins;

/// Shares of the outputs in an input's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// All outputs alike.
    Uniform,
    /// Two thirds of the packets for one output, one third for the next: each output hears two inputs.
    Diagonal,
    /// The first output is as loaded as the traffic says, all others half as much.
    Hotspot,
}

/// Traffic of all inputs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Traffic {
    /// Shares of the outputs.
    pub pattern: Pattern,
    /// Load of the busiest output, from 0 to 1. Above 1, its queues grow without end.
    pub load: f64,
    /// Mean number of packets that arrive in a row for one output; 1: each is independent of the last (Bernoulli).
    pub burst: f64,
}

/// Random arrivals.
pub(super) struct Arrivals {
    ports: usize,
    /// Probability that a burst starts in a slot without one, by input.
    starts: Vec<f64>,
    /// Probability that a burst ends with a packet.
    ends: f64,
    /// Cumulative rates of the outputs, by input.
    shares: Vec<f64>,
    /// Output of the burst at each input.
    bursts: Vec<Option<usize>>,
}

impl Traffic {
    pub(super) fn arrivals(self, ports: usize, hairpins: Hairpins) -> Arrivals {
        let mut rates = vec![0.0; ports * ports];
        let own = usize::from(hairpins == Hairpins::Forbidden);
        for input in 0..ports {
            let allowed = |output: usize| hairpins == Hairpins::Allowed || output != input;
            // Inputs that send to an output, for which its load is divided.
            let senders = (ports - own) as f64;
            let mut add = |output: usize, rate: f64| {
                if let Some(slot) = rates.get_mut(input * ports + output % ports) {
                    *slot += rate * self.load;
                }
            };
            match self.pattern {
                Pattern::Uniform => (0..ports).filter(|o| allowed(*o)).for_each(|o| add(o, 1.0 / senders)),
                Pattern::Diagonal => {
                    add(input + own, 2.0 / 3.0);
                    add(input + own + 1, 1.0 / 3.0);
                }
                Pattern::Hotspot => (0..ports)
                    .filter(|o| allowed(*o))
                    .for_each(|o| add(o, if o == 0 { 1.0 } else { 0.5 } / senders)),
            }
        }
        let (burst, mut starts, mut shares) = (self.burst.max(1.0), Vec::new(), Vec::new());
        for rates in rates.chunks(ports.max(1)) {
            let rate: f64 = rates.iter().sum();
            // On average, a burst follows `gap` empty slots: of `burst + gap` slots, `burst` have a packet.
            let gap = burst * (1.0 - rate) / rate.max(f64::MIN_POSITIVE);
            starts.push(if rate >= 1.0 { 1.0 } else { 1.0 / (1.0 + gap) });
            shares.extend(rates.iter().scan(0.0, |sum, rate| {
                *sum += rate;
                Some(*sum)
            }));
        }
        Arrivals { ports, starts, ends: 1.0 / burst, shares, bursts: vec![None; ports] }
    }
}

impl Arrivals {
    /// Returns the output of the packet that arrives at an input in this slot.
    pub(super) fn next(&mut self, input: usize, random: &mut fastrand::Rng) -> Option<usize> {
        let burst = self.bursts.get_mut(input)?;
        if burst.is_none() && random.f64() < *self.starts.get(input)? {
            let shares = self.shares.get(input * self.ports..(input + 1) * self.ports)?;
            let at = random.f64() * shares.last()?;
            *burst = shares.iter().position(|share| at < *share);
        }
        let output = *burst;
        if random.f64() < self.ends {
            *burst = None;
        }
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates that are measured, by input and output.
    fn measured(traffic: Traffic, ports: usize, hairpins: Hairpins) -> Vec<f64> {
        let (slots, mut random) = (400_000, fastrand::Rng::with_seed(5));
        let mut arrivals = traffic.arrivals(ports, hairpins);
        let mut rates = vec![0.0; ports * ports];
        for _ in 0..slots {
            for input in 0..ports {
                if let Some(output) = arrivals.next(input, &mut random) {
                    rates[input * ports + output] += 1.0 / f64::from(slots);
                }
            }
        }
        rates
    }

    #[test]
    fn rates_are_those_of_the_pattern() {
        for (pattern, hairpins, first) in [
            (Pattern::Uniform, Hairpins::Allowed, [0.2; 4]),
            (Pattern::Uniform, Hairpins::Forbidden, [0.0, 0.8 / 3.0, 0.8 / 3.0, 0.8 / 3.0]),
            (Pattern::Diagonal, Hairpins::Allowed, [1.6 / 3.0, 0.8 / 3.0, 0.0, 0.0]),
            (Pattern::Diagonal, Hairpins::Forbidden, [0.0, 1.6 / 3.0, 0.8 / 3.0, 0.0]),
            (Pattern::Hotspot, Hairpins::Allowed, [0.2, 0.1, 0.1, 0.1]),
        ] {
            for burst in [1.0, 16.0] {
                let rates = measured(Traffic { pattern, load: 0.8, burst }, 4, hairpins);
                for (rate, expected) in rates.iter().zip(first) {
                    let tolerance = 0.002 + 0.03 * expected * burst / 16.0;
                    assert!((rate - expected).abs() < tolerance, "{pattern:?} {burst}: {rates:?}");
                }
            }
        }
    }

    #[test]
    fn no_output_has_more_than_the_load() {
        for pattern in [Pattern::Uniform, Pattern::Diagonal, Pattern::Hotspot] {
            for hairpins in [Hairpins::Allowed, Hairpins::Forbidden] {
                let rates = measured(Traffic { pattern, load: 0.9, burst: 1.0 }, 5, hairpins);
                let sums: Vec<f64> = (0..5).map(|o| rates.iter().skip(o).step_by(5).sum()).collect();
                assert!(sums.iter().all(|sum| *sum < 0.91), "{pattern:?}: {sums:?}");
                assert!(sums.iter().any(|sum| *sum > 0.89), "{pattern:?}: {sums:?}");
            }
        }
    }

    #[test]
    fn full_load_fills_every_slot() {
        let rates =
            measured(Traffic { pattern: Pattern::Uniform, load: 1.0, burst: 8.0 }, 2, Hairpins::Allowed);
        assert!((rates.iter().sum::<f64>() - 2.0).abs() < 1e-6, "{rates:?}");
    }
}

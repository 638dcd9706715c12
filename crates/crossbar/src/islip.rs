//! iSLIP (McKeown, "The iSLIP scheduling algorithm for input-queued switches", 1999): arbiters of outputs and inputs that
//! go round-robin, in a few iterations. Its cost grows with the number of ports, not with that of matchings.

use crate::Arbiter;
use crate::demand::{Demand, MAX_PORTS};
use crate::matching::Matching;

/// Chooses pairs in iterations of three steps: inputs request, outputs grant, inputs accept. Weights do not count.
///
/// For ports with hairpins: the arbiters move apart until each output is granted another input. Without hairpins, one of
/// them comes to its own input in each slot, and may take the place of another. Of five line cards one is idle then,
/// for good. [`Diagonals`](crate::Diagonals) have no such state.
#[derive(Debug, Clone)]
pub struct Islip {
    iterations: usize,
    /// The input that an output grants first.
    grant: [u8; MAX_PORTS],
    /// The output that an input accepts first.
    accept: [u8; MAX_PORTS],
}

impl Islip {
    /// Makes an arbiter of so many iterations, at least one. About the binary logarithm of the number of ports is enough.
    pub fn new(iterations: usize) -> Self {
        Self { iterations: iterations.max(1), grant: [0; MAX_PORTS], accept: [0; MAX_PORTS] }
    }
}

/// Returns the first bit that is set, from bit `first` on and around; `None` if none is.
fn next(bits: u64, first: u8) -> Option<usize> {
    let turned = bits.rotate_right(first.into());
    (bits != 0).then(|| (turned.trailing_zeros() as usize + usize::from(first)) % MAX_PORTS)
}

impl Arbiter for Islip {
    fn extend(&mut self, demand: &Demand, matching: &mut Matching) {
        let ports = demand.ports();
        for iteration in 0..self.iterations {
            // Grants of the outputs, as a bitmap for each input.
            let mut granted = [0u64; MAX_PORTS];
            for (output, first) in self.grant.iter().enumerate().take(ports) {
                if matching.outputs_taken() >> output & 1 != 0 {
                    continue;
                }
                let requests = (0..ports)
                    .filter(|input| matching.is_input_free(*input))
                    .fold(0, |bits, input| bits | (demand.requests(input) >> output & 1) << input);
                if let Some(granted) = next(requests, *first).and_then(|input| granted.get_mut(input)) {
                    *granted |= 1 << output;
                }
            }
            let mut accepted = false;
            for (input, (grants, first)) in granted.iter().zip(&mut self.accept).enumerate().take(ports) {
                let Some(output) = next(*grants, *first) else { continue };
                accepted |= matching.connect(input, output);
                // Only the first iteration moves the arbiters, so that no queue starves.
                if iteration == 0 {
                    *first = ((output + 1) % ports) as u8;
                    if let Some(grant) = self.grant.get_mut(output) {
                        *grant = ((input + 1) % ports) as u8;
                    }
                }
            }
            if !accepted {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_bit_is_found_around_the_end() {
        assert_eq!(
            (next(0, 5), next(1, 0), next(1, 1), next(1 << 63 | 2, 2)),
            (None, Some(0), Some(0), Some(63))
        );
    }

    #[test]
    fn full_queues_are_served_in_turn() {
        // After as many slots as ports, the arbiters have moved apart, and all inputs send.
        let (ports, mut islip) = (16, Islip::new(1));
        let mut demand = Demand::new(ports);
        (0..ports * ports).for_each(|at| demand.set(at / ports, at % ports, 1));
        let mut served = vec![0; ports * ports];
        for slot in 0..ports * 9 {
            let mut matching = Matching::default();
            islip.extend(&demand, &mut matching);
            if slot >= ports {
                assert_eq!(matching.len(), ports);
                matching.pairs().for_each(|(input, output)| served[input * ports + output] += 1);
            }
        }
        assert!(served.iter().all(|times| *times == 8));
    }
}

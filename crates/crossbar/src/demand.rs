//! Demand: how much waits at each input for each output.

/// Largest number of inputs, and of outputs.
pub const MAX_PORTS: usize = 64;

/// Weights of the queues of one class; 0: an empty queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    ports: usize,
    /// Weight of input `i` to output `o` at `i * ports + o`.
    weights: Vec<u32>,
    /// Outputs with demand, a bitmap for each input.
    requests: Vec<u64>,
}

impl Demand {
    /// Makes the demand of empty queues between `ports` inputs and as many outputs, at most [`MAX_PORTS`].
    pub fn new(ports: usize) -> Self {
        let ports = ports.min(MAX_PORTS);
        Self { ports, weights: vec![0; ports * ports], requests: vec![0; ports] }
    }

    /// Returns the number of inputs, which is that of outputs.
    pub fn ports(&self) -> usize {
        self.ports
    }

    /// Sets the weight of a queue; ignores a port that does not exist.
    pub fn set(&mut self, input: usize, output: usize, weight: u32) {
        if output >= self.ports {
            return;
        }
        let (Some(slot), Some(requests)) =
            (self.weights.get_mut(input * self.ports + output), self.requests.get_mut(input))
        else {
            return;
        };
        *slot = weight;
        *requests = *requests & !(1 << output) | u64::from(weight > 0) << output;
    }

    /// Returns the weight of a queue; 0 for a port that does not exist.
    pub fn get(&self, input: usize, output: usize) -> u32 {
        if output >= self.ports {
            return 0;
        }
        self.weights.get(input * self.ports + output).copied().unwrap_or(0)
    }

    /// Returns the outputs for which something waits at an input, as a bitmap.
    pub fn requests(&self, input: usize) -> u64 {
        self.requests.get(input).copied().unwrap_or(0)
    }
}

/// Returns the weight of a queue: its bytes, and those that the link could have carried while its oldest packet waited.
///
/// The second part grows until all weights are [`u32::MAX`] and queues take turns, so that none starves behind longer
/// ones. `waited` is in nanoseconds, `rate` in bits per second. A queue with packets has a weight of at least 1.
pub fn weight(bytes: u64, waited: u64, rate: u64) -> u32 {
    if bytes == 0 {
        return 0;
    }
    let carried = u128::from(waited) * u128::from(rate) / 8_000_000_000;
    u32::try_from(u128::from(bytes) + carried).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_follow_weights() {
        let mut demand = Demand::new(5);
        demand.set(1, 3, 7);
        demand.set(1, 4, 1);
        assert_eq!((demand.get(1, 3), demand.requests(1)), (7, 0b11000));
        demand.set(1, 3, 0);
        assert_eq!((demand.get(1, 3), demand.requests(1)), (0, 0b10000));
    }

    #[test]
    fn ports_that_do_not_exist_have_no_demand() {
        let mut demand = Demand::new(3);
        demand.set(0, 3, 1);
        demand.set(3, 0, 1);
        demand.set(usize::MAX >> 8, 0, 1);
        assert_eq!(demand, Demand::new(3));
        assert_eq!((demand.get(0, 3), demand.get(9, 0), demand.requests(3)), (0, 0, 0));
    }

    #[test]
    fn a_packet_that_waits_outweighs_any_queue_in_the_end() {
        // 10 Gbit/s carry 1,250 bytes in a microsecond.
        assert_eq!(weight(64, 1_000, 10_000_000_000), 64 + 1_250);
        assert_eq!(weight(0, 1_000, 10_000_000_000), 0);
        assert!(weight(64, 2_000_000, 10_000_000_000) > weight(2_000_000, 0, 10_000_000_000));
        assert_eq!(weight(u64::MAX, u64::MAX, u64::MAX), u32::MAX);
    }
}

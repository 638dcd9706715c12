//! Matchings: pairs of an input and an output, each of which is in one pair at most.

use crate::demand::MAX_PORTS;

/// A matching of one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matching {
    /// Number of the output of each input, plus 1; 0: the input is free.
    outputs: [u8; MAX_PORTS],
    /// Inputs and outputs in a pair, as bitmaps.
    inputs_taken: u64,
    outputs_taken: u64,
}

impl Default for Matching {
    fn default() -> Self {
        Self { outputs: [0; MAX_PORTS], inputs_taken: 0, outputs_taken: 0 }
    }
}

impl Matching {
    /// Returns whether an input is in no pair. One that does not exist is not free.
    pub fn is_input_free(&self, input: usize) -> bool {
        input < MAX_PORTS && self.inputs_taken >> input & 1 == 0
    }

    /// Returns the outputs that are in a pair, as a bitmap.
    pub fn outputs_taken(&self) -> u64 {
        self.outputs_taken
    }

    /// Adds a pair. Returns false, and adds none, if one of the two is in a pair already or does not exist.
    pub fn connect(&mut self, input: usize, output: usize) -> bool {
        let free = self.is_input_free(input) && output < MAX_PORTS && self.outputs_taken >> output & 1 == 0;
        if let (true, Some(slot)) = (free, self.outputs.get_mut(input)) {
            *slot = output as u8 + 1;
            self.inputs_taken |= 1 << input;
            self.outputs_taken |= 1 << output;
        }
        free
    }

    /// Returns the output of an input.
    pub fn output(&self, input: usize) -> Option<usize> {
        self.outputs.get(input).and_then(|output| usize::from(*output).checked_sub(1))
    }

    /// Returns the pairs: inputs and their outputs.
    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..MAX_PORTS).filter_map(|input| self.output(input).map(|output| (input, output)))
    }

    /// Returns the number of pairs.
    pub fn len(&self) -> usize {
        self.inputs_taken.count_ones() as usize
    }

    /// Returns whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.inputs_taken == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_in_one_pair_at_most() {
        let mut matching = Matching::default();
        assert!(matching.is_empty() && matching.connect(63, 0) && matching.connect(0, 63));
        for (input, output) in [(63, 1), (1, 0), (1, 64), (64, 1)] {
            assert!(!matching.connect(input, output));
        }
        assert_eq!(matching.pairs().collect::<Vec<_>>(), [(0, 63), (63, 0)]);
        assert_eq!((matching.len(), matching.output(1), matching.outputs_taken()), (2, None, 1 << 63 | 1));
    }
}

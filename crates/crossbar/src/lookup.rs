//! Maximum matching of few ports by lookup, as HyMoS does: a table has the answer to every demand.

use std::sync::Arc;

use crate::Arbiter;
use crate::demand::Demand;
use crate::matching::Matching;
use crate::patterns::{Hairpins, Pattern, Patterns, permutations};

/// Largest number of ports with a table: 1 MiB for the 2^20 demands of five; that of six would have 1 GiB.
const MOST_PORTS: usize = 5;

/// The best pattern of every demand, without hairpins.
#[derive(Debug)]
struct Table {
    patterns: Patterns,
    /// Patterns by demand; the bit of input `i` and output `o` is [`bit`].
    best: Vec<u8>,
}

/// Returns the number of the bit of a pair in a demand. There are none for hairpins.
fn bit(ports: usize, input: usize, output: usize) -> usize {
    input * (ports - 1) + output - usize::from(output > input)
}

impl Table {
    fn new(ports: usize) -> Option<Self> {
        let patterns = Patterns::new(ports, Hairpins::Forbidden).filter(|_| ports <= MOST_PORTS)?;
        let mask = |pattern| {
            patterns.pairs(pattern).fold(0u32, |mask, (input, output)| mask | 1 << bit(ports, input, output))
        };
        let masks: Vec<u32> = (0..patterns.len()).map(mask).collect();
        let best = |demand: u32| {
            (0u8..)
                .zip(&masks)
                .max_by_key(|(_, mask)| (*mask & demand).count_ones())
                .map_or(0, |(pattern, _)| pattern)
        };
        let best = (0..1u32 << (ports * (ports - 1))).map(best).collect();
        Some(Self { patterns, best })
    }
}

/// Chooses as many pairs as possible. Weights do not count.
///
/// The table has one answer to a demand, which would starve queues that it leaves out. The ports are therefore numbered
/// anew for each slot: all numberings take turns.
#[derive(Debug, Clone)]
pub struct Lookup {
    table: Arc<Table>,
    numberings: Arc<[Pattern]>,
    numbering: usize,
}

impl Lookup {
    /// Makes an arbiter of 2 to 5 ports and its table; `None` for another number. Clones share the table.
    pub fn new(ports: usize) -> Option<Self> {
        Some(Self {
            table: Arc::new(Table::new(ports)?),
            numberings: permutations(ports).into(),
            numbering: 0,
        })
    }
}

impl Arbiter for Lookup {
    fn extend(&mut self, demand: &Demand, matching: &mut Matching) {
        let Table { patterns, best } = &*self.table;
        let ports = patterns.ports();
        let Some(numbering) = self.numberings.get(self.numbering) else { return };
        self.numbering = (self.numbering + 1) % self.numberings.len();
        let port = |number: usize| numbering.get(number).map_or(0, |port| usize::from(*port));
        let wanted = |input: usize, output: usize| {
            let free = matching.is_input_free(input) && matching.outputs_taken() >> output & 1 == 0;
            free && demand.requests(input) >> output & 1 != 0
        };
        let mut bits = 0;
        for input in 0..ports {
            for output in (0..ports).filter(|output| *output != input) {
                bits |= usize::from(wanted(port(input), port(output))) << bit(ports, input, output);
            }
        }
        let pattern = best.get(bits).copied().unwrap_or(0);
        for (input, output) in patterns.pairs(pattern.into()) {
            if bits >> bit(ports, input, output) & 1 != 0 {
                matching.connect(port(input), port(output));
            }
        }
    }
}

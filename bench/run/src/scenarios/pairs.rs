//! pairs: between the two ports of each of several pairs, which share the switch's thread.

use super::{Attachment, Scenario, Set, Topology};

/// Numbers of pairs: one generator has at most 32 ports.
const COUNTS: [usize; 4] = [2, 4, 8, 16];

pub(super) fn scenarios() -> Vec<Scenario> {
    let of = |count: usize| Scenario {
        name: format!("pairs-{count}-memif"),
        kind: "pairs",
        about: format!("between the memif ports of each of {count} pairs"),
        topology: Topology::pairs(Attachment::Memif, count),
        set: Set::Full,
    };
    COUNTS.map(of).into()
}

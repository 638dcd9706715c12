//! loopback: through a chain of 1 to 5 functions and out again. The switch forwards each packet once more than there
//! are functions. Both ends of the chain are ports of the functions' kind, so that the switch, not an interface, is
//! measured.

use super::{Attachment, Scenario, Set, Topology};

/// Functions of the longest chain.
const LONGEST: usize = 5;

pub(super) fn scenarios() -> Vec<Scenario> {
    let kinds = [Attachment::Memif, Attachment::VhostUser];
    kinds.iter().flat_map(|kind| (1..=LONGEST).map(|length| of(*kind, length))).collect()
}

/// Ports 0 and 2N+1 are the ends; function k has ports 2k-1 and 2k.
fn of(kind: Attachment, length: usize) -> Scenario {
    let last = 2 * length + 1;
    let set = match (kind, length) {
        (Attachment::Memif, 1 | 3) => Set::Quick,
        (Attachment::Memif, _) => Set::Core,
        _ => Set::Full,
    };
    Scenario {
        name: format!("loopback-{length}-{}", kind.name()),
        kind: "loopback",
        about: format!(
            "through {length} function{} at {} ports",
            if length == 1 { "" } else { "s" },
            kind.name()
        ),
        topology: Topology {
            ports: vec![kind; last + 1],
            wires: (0..=length).map(|hop| (2 * hop, 2 * hop + 1)).collect(),
            ends: vec![(0, last)],
            functions: (1..=length).map(|function| (2 * function - 1, 2 * function)).collect(),
            stations: 1,
        },
        set,
    }
}

//! stations: between two virtual ports, each with thousands of stations whose packets come in random order. A learning
//! switch has no other cache than its table then.

use super::{Attachment, Scenario, Set, Topology};

/// Stations at each port.
const STATIONS: u32 = 10_000;

pub(super) fn scenarios() -> Vec<Scenario> {
    let of = |virt: Attachment, set| Scenario {
        name: format!("stations-{}", virt.name()),
        kind: "stations",
        about: format!("between two {} ports with 10,000 stations each, in random order", virt.name()),
        topology: Topology { stations: STATIONS, ..Topology::pair(virt, virt) },
        set,
    };
    vec![of(Attachment::Memif, Set::Core), of(Attachment::VhostUser, Set::Full)]
}

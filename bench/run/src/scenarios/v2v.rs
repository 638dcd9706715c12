//! v2v: between two virtual machines or containers.

use super::{Attachment, Scenario, Set, Topology};

pub(super) fn scenarios() -> Vec<Scenario> {
    let of = |virt: Attachment| Scenario {
        name: format!("v2v-{}", virt.name()),
        kind: "v2v",
        about: format!("between two {} ports", virt.name()),
        topology: Topology::pair(virt, virt),
        set: Set::Quick,
    };
    vec![of(Attachment::Memif), of(Attachment::VhostUser)]
}

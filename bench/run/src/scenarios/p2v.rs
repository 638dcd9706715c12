//! p2v: between an interface and a virtual machine or container.

use super::{Attachment, Scenario, Set, Topology};

pub(super) fn scenarios() -> Vec<Scenario> {
    let of = |virt: Attachment, set| Scenario {
        name: format!("p2v-{}", virt.name()),
        kind: "p2v",
        about: format!("between an interface (veth, AF_XDP) and a {} port", virt.name()),
        topology: Topology::pair(Attachment::Veth, virt),
        set,
    };
    vec![of(Attachment::Memif, Set::Full), of(Attachment::VhostUser, Set::Core)]
}

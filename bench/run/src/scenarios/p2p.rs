//! p2p: from one interface to another. Both are veth pairs, as machines without network cards have nothing else; the
//! generator and the switch use AF_XDP sockets at the ends.

use super::{Attachment, Scenario, Set, Topology};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario {
        name: "p2p".into(),
        kind: "p2p",
        about: "between two interfaces (veth, AF_XDP)".into(),
        topology: Topology::pair(Attachment::Veth, Attachment::Veth),
        set: Set::Quick,
    }]
}

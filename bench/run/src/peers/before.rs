//! An earlier program beside the present one: each peer `mswitch…` again, under a name of its own, so that both are
//! measured in the same rounds.

use std::path::Path;

use super::{Peer, Site, Switch, mswitch, ovs};
use crate::error::Result;
use crate::scenarios::Topology;

/// End of the names.
const SUFFIX: &str = "-before";

/// A peer `mswitch…` with an earlier program.
struct Before {
    peer: Box<dyn Peer>,
    name: String,
    about: String,
}

/// The peers `mswitch…` with an earlier program.
pub(crate) fn before(program: &Path) -> Vec<Box<dyn Peer>> {
    let of = |peer: Box<dyn Peer>| -> Box<dyn Peer> {
        let (name, about) = (suffixed(peer.name()), format!("an earlier program; {}", peer.about()));
        Box::new(Before { peer, name, about })
    };
    mswitch::peers(program).into_iter().chain(ovs::in_its_place(program)).map(of).collect()
}

/// Name of a peer's earlier program.
pub(crate) fn suffixed(peer: &str) -> String {
    format!("{peer}{SUFFIX}")
}

/// Whether a peer is an earlier program.
pub(crate) fn is_before(peer: &str) -> bool {
    peer.ends_with(SUFFIX)
}

impl Peer for Before {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> &str {
        &self.about
    }

    fn version(&self) -> Result<String> {
        self.peer.version()
    }

    fn supports(&self, topology: &Topology) -> bool {
        self.peer.supports(topology)
    }

    fn learns(&self) -> bool {
        self.peer.learns()
    }

    fn counts(&self) -> bool {
        self.peer.counts()
    }

    fn huge_pages(&self) -> u64 {
        self.peer.huge_pages()
    }

    fn commands(&self, site: &Site<'_>) -> Vec<String> {
        self.peer.commands(site)
    }

    fn start(&self, site: &Site<'_>) -> Result<Box<dyn Switch>> {
        self.peer.start(site)
    }
}

//! Random networks: both protocols make them trees that connect what is connected.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use spanning_tree::Protocol;

use crate::network::Network;

/// Nodes of a network: bridges and LANs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Bridge(usize),
    Lan(char),
}

/// Sets of connected nodes: the representative of each node. `None`: there is a loop.
struct Components(BTreeMap<Node, Node>);

impl Components {
    fn of(edges: &[(usize, char)]) -> (Self, bool) {
        let (mut it, mut has_loop) = (Self(BTreeMap::new()), false);
        for (bridge, lan) in edges {
            let (a, b) = (it.find(Node::Bridge(*bridge)), it.find(Node::Lan(*lan)));
            match a == b {
                true => has_loop = true,
                false => _ = it.0.insert(a, b),
            }
        }
        (it, has_loop)
    }

    fn find(&self, node: Node) -> Node {
        let mut node = node;
        while let Some(next) = self.0.get(&node) {
            node = *next;
        }
        node
    }
}

fn check(network: &Network) -> Result<(), TestCaseError> {
    let (tree, has_loop) = Components::of(&network.edges());
    prop_assert!(!has_loop, "loop in {:?}", network.edges());
    let (whole, _) = Components::of(&network.connections());
    let nodes: BTreeSet<Node> = network
        .connections()
        .iter()
        .flat_map(|(bridge, lan)| [Node::Bridge(*bridge), Node::Lan(*lan)])
        .collect();
    for a in &nodes {
        for b in &nodes {
            let is_connected = whole.find(*a) == whole.find(*b);
            prop_assert_eq!(is_connected, tree.find(*a) == tree.find(*b), "{:?} and {:?}", a, b);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn networks_become_trees(
        is_rapid: bool,
        bridges in prop::collection::vec("[a-h]{1,6}", 1..8),
        (bridge, lans) in (any::<prop::sample::Index>(), "[a-hX]{1,6}"),
    ) {
        let protocol = if is_rapid { Protocol::Rstp } else { Protocol::Stp };
        let words: Vec<&str> = bridges.iter().map(String::as_str).collect();
        let mut network = Network::new(protocol, &words);
        network.pass(120.0);
        check(&network)?;
        // Another network, from there.
        network.connect(bridge.index(words.len()), &lans);
        network.pass(200.0);
        check(&network)?;
    }

    /// Loops do not even last while the protocol is at work: never is there one for longer than a hello.
    #[test]
    fn rapid_networks_have_no_loops_meanwhile(bridges in prop::collection::vec("[a-e]{1,4}", 2..6)) {
        let words: Vec<&str> = bridges.iter().map(String::as_str).collect();
        let mut network = Network::new(Protocol::Rstp, &words);
        for _ in 0..240 {
            network.pass(0.25);
            let (_, has_loop) = Components::of(&network.edges());
            prop_assert!(!has_loop, "loop in {:?}", network.edges());
        }
    }
}

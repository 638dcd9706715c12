//! The networks of figures 17-4 to 17-7 of IEEE 802.1D-2004: both protocols find the same trees.

use spanning_tree::Protocol;

use crate::network::Network;

const BOTH: [Protocol; 2] = [Protocol::Stp, Protocol::Rstp];

/// Figures 17-4 and 17-5: two pairs of bridges in the middle, and others at the edge.
#[test]
fn figures_17_4_and_17_5() {
    let bridges = ["abec", "abdf", "cdljhg", "efnmki", "gi00", "hk00", "jm00", "ln00"];
    for protocol in BOTH {
        let mut network = Network::new(protocol, &bridges);
        network.pass(100.0);
        let mut expected = [
            "root",
            "F:1 B F F",
            "F:1 B F F F F",
            "F:1 B F F F F",
            "F:2 B F F",
            "F:2 B F F",
            "F:2 B F F",
            "F:2 B F F",
        ];
        network.check(&expected);
        // Two ports of a bridge in one LAN: a backup port.
        network.connect(7, "lnoo");
        network.pass(100.0);
        expected[7] = "F:2 B F B";
        network.check(&expected);
    }
}

/// Figure 17-6: a ring of six bridges with others' LANs.
#[test]
fn figure_17_6() {
    for protocol in BOTH {
        let mut network = Network::new(protocol, &["abl", "bcd", "def", "fgh", "jhi", "ljk"]);
        network.pass(100.0);
        network.check(&["root", "F:1 F F", "F:2 F F", "F:3 F B", "F:2 F F", "F:1 F F"]);
    }
}

/// Figure 17-7: two LANs between two bridges; which one is used is a matter of priorities.
#[test]
fn figure_17_7() {
    for protocol in BOTH {
        let mut network = Network::new(protocol, &["b", "abdfhgec", "ghjlnmki"]);
        network.pass(100.0);
        network.check(&["root", "F F:1 F F F F F F", "B F:2 F F F F F F"]);
        network.set_port_priority(1, 6, 112);
        network.pass(100.0);
        network.check(&["root", "F F:1 F F F F F F", "F:2 B F F F F F F"]);
    }
}

/// The example of IEEE 802.1D-1998 in figure 8-3, with costs of its own.
#[test]
fn bridges_prefer_cheap_paths() {
    let mut network = Network::new(Protocol::Stp, &["ab", "be", "be", "ae", "cad"]);
    for (bridge, port) in [(2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (4, 3)] {
        network.set_cost(bridge, port, 5);
    }
    network.pass(100.0);
    let shown: Vec<_> = (0..5).map(|bridge| network.shown(bridge)).collect();
    assert_eq!(shown, ["root", "F:10 B", "F:5 F", "F:5 B", "F F:10 F"]);
}

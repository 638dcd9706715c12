//! Bridges as text, as Open vSwitch has them.

use spanning_tree::Protocol;

use crate::network::Network;

#[test]
fn stp_is_shown() {
    let mut network = Network::new(Protocol::Stp, &["ab", "ab"]);
    network.pass(40.0);
    let text = "---- br0 ----\nRoot ID:\n  stp-priority  32768\n  stp-system-id   02:00:00:00:00:00\n  \
                stp-hello-time  2s\n  stp-max-age     20s\n  stp-fwd-delay   15s\n  root-port       p1\n  \
                root-path-cost  10\n\nBridge ID:\n  stp-priority  32768\n  stp-system-id   02:00:00:00:00:01\n  \
                stp-hello-time  2s\n  stp-max-age     20s\n  stp-fwd-delay   15s\n\n  \
                Interface  Role       State      Cost  Pri.Nbr \n  \
                ---------- ---------- ---------- ----- -------\n  \
                p1         root       forwarding 10    128.1\n  p2         alternate  blocking   10    128.2\n\n";
    assert_eq!(network.bridges[1].show("br0"), text);
    assert!(
        network.bridges[0].show("br0").contains("  stp-fwd-delay   15s\n  This bridge is the root\n\nBridge")
    );
    network.set_up(1, 2, false);
    network.pass(1.0);
    assert!(!network.bridges[1].show("br0").contains("p2"), "ports without a link are not shown");
}

#[test]
fn rstp_is_shown() {
    let mut network = Network::new(Protocol::Rstp, &["ab", "ab"]);
    network.pass(40.0);
    let text = "---- br0 ----\nRoot ID:\n  stp-priority    32768\n  stp-system-id   02:00:00:00:00:00\n  \
                stp-hello-time  2s\n  stp-max-age     20s\n  stp-fwd-delay   15s\n  root-port       p1\n  \
                root-path-cost  200000\n\nBridge ID:\n  stp-priority    32768\n  \
                stp-system-id   02:00:00:00:00:01\n  stp-hello-time  2s\n  stp-max-age     20s\n  \
                stp-fwd-delay   15s\n\n  Interface  Role       State      Cost     Pri.Nbr \n  \
                ---------- ---------- ---------- -------- -------\n  \
                p1         Root       Forwarding 200000   128.1\n  \
                p2         Alternate  Discarding 200000   128.2\n\n";
    assert_eq!(network.bridges[1].show("br0"), text);
    assert!(network.bridges[0].show("br0").contains("This bridge is the root"));
}

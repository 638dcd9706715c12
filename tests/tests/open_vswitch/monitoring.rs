//! Interfaces that BFD and CFM monitor, on the machine's own clock.

use std::time::Instant;

use e2e::open_vswitch::{Host, LIMIT};
use e2e::until;

/// Two bridges on a pair of patch ports.
fn pair(host: &Host) {
    host.vsctl(&["add-br", "br0", "--", "add-br", "br1"]);
    for (bridge, port, peer) in [("br0", "p0", "p1"), ("br1", "p1", "p0")] {
        let peer = format!("options:peer={peer}");
        host.vsctl(&["add-port", bridge, port, "--", "set", "interface", port, "type=patch", &peer]);
    }
}

#[test]
fn bfd_follows_the_link_and_tells_controllers() {
    let host = Host::new();
    let _daemon = host.start();
    pair(&host);
    for port in ["p0", "p1"] {
        host.vsctl(&["set", "interface", port, "bfd:enable=true", "bfd:min_tx=100", "bfd:min_rx=100"]);
    }
    let until_is = |state: &str| {
        until(&format!("BFD to be {state}"), LIMIT, || {
            Ok((host.get("Interface", "p0", "bfd_status:state") == state).then_some(()))
        })
        .unwrap();
    };
    let live = || host.ofctl(&["-O", "OpenFlow13", "dump-ports-desc", "br0"]).contains("LIVE");
    until_is("up");
    assert_eq!(host.get("Interface", "p0", "bfd_status:forwarding"), "true");
    until("the port to be live", LIMIT, || Ok(live().then_some(()))).unwrap();
    let shown = host.appctl(&["bfd/show", "p1"]).1;
    assert!(shown.contains("  Remote Session State: up\n"), "{shown}");
    // Flows do not hold up the sessions: they are ahead of the tables.
    host.ofctl(&["add-flow", "br1", "priority=9,actions=drop"]);
    let begin = Instant::now();
    host.vsctl(&["set", "interface", "p1", "bfd:enable=false"]);
    until_is("down");
    // Three intervals, and the time of the tools.
    assert!(begin.elapsed() < LIMIT / 2, "{:?}", begin.elapsed());
    assert_eq!(host.get("Interface", "p0", "bfd_status:diagnostic"), "Control Detection Time Expired");
    assert_eq!(host.get("Interface", "p1", "bfd_status"), "{}");
    host.vsctl(&["set", "interface", "p1", "bfd:enable=true"]);
    until_is("up");
    // One kind of monitoring that finds the link up suffices.
    host.vsctl(&["set", "interface", "p0", "cfm_mpid=1", "other_config:cfm_interval=100"]);
    host.until_is("p0", "cfm_fault_status", "[recv]");
    assert!(live());
}

#[test]
fn cfm_follows_the_link() {
    let host = Host::new();
    let _daemon = host.start();
    pair(&host);
    for (port, point) in [("p0", "cfm_mpid=1"), ("p1", "cfm_mpid=2")] {
        host.vsctl(&["set", "interface", port, point, "other_config:cfm_interval=100"]);
    }
    host.until_is("p0", "cfm_remote_mpids", "[2]");
    assert_eq!(host.get("Interface", "p0", "cfm_fault"), "false");
    host.vsctl(&["clear", "interface", "p1", "cfm_mpid"]);
    host.until_is("p0", "cfm_fault_status", "[recv]");
    assert_eq!(host.get("Interface", "p1", "cfm_fault"), "[]");
    assert!(host.appctl(&["cfm/show", "p0"]).1.contains("  fault: recv\n"));
}

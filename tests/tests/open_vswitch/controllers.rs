//! Bridges of the database with OpenFlow: controllers, `ovs-ofctl`, fail modes.

use e2e::open_vswitch::{Host, LIMIT};
use e2e::{ping_all, until};

#[test]
fn a_controller_of_the_database_runs_the_bridge() {
    let host = Host::new();
    let (a, _b) = (host.guest("va", "10.80.0.1/24"), host.guest("vb", "10.80.0.2/24"));
    let _daemon = host.start();
    let target = format!("unix:{}", host.path("controller").display());
    host.vsctl(&["add-br", "br0", "--", "set-fail-mode", "br0", "secure"]);
    host.vsctl(&["add-port", "br0", "va", "--", "add-port", "br0", "vb"]);
    assert!(!host.ofctl(&["dump-flows", "br0"]).contains("actions="), "without flows, nothing passes");
    host.vsctl(&["set-controller", "br0", &target, "--", "set", "controller", "br0", "max_backoff=1000"]);
    assert_eq!(host.get("Controller", "br0", "is_connected"), "false");
    a.run(&["ping", "-n", "-c", "1", "-W", "1", "10.80.0.2"]).unwrap_err();

    let mut controller = host.controller(&format!("p{target}"));
    host.until_connected("true");
    assert_eq!(host.get("Controller", "br0", "role"), "other");
    assert_eq!(host.get("Controller", "br0", "status:state"), "ACTIVE");
    ping_all(&a, "10.80.0.2", 3, "0.1").unwrap();
    assert!(host.ofctl(&["dump-flows", "br0"]).contains("in_port=1"), "the controller makes flows");
    let ports = host.ofctl(&["show", "br0"]);
    assert!(ports.contains("\n 1(va): ") && ports.contains("\n LOCAL(br0): "), "{ports}");

    controller.kill().unwrap();
    host.until_connected("false");
    assert!(host.get("Controller", "br0", "status:last_error").contains("closed"));
    host.vsctl(&["del-controller", "br0", "--", "del-fail-mode", "br0"]);
    until("a learning bridge", LIMIT, || {
        Ok(host.ofctl(&["dump-flows", "br0"]).contains("priority=0 actions=NORMAL").then_some(()))
    })
    .unwrap();
    ping_all(&a, "10.80.0.2", 1, "0.1").unwrap();
}

#[test]
fn a_bridge_that_only_learns_counts_its_packets_and_meets_new_flows_at_once() {
    let host = Host::new();
    let (a, _b) = (host.guest("va", "10.80.0.1/24"), host.guest("vb", "10.80.0.2/24"));
    let _daemon = host.start();
    host.vsctl(&["add-br", "br0", "--", "add-port", "br0", "va", "--", "add-port", "br0", "vb"]);
    let packets = || -> u64 {
        let flows = host.ofctl(&["dump-flows", "br0"]);
        let normal = flows.lines().find(|line| line.ends_with("actions=NORMAL")).unwrap();
        let count = normal.split_once("n_packets=").and_then(|(_, rest)| rest.split_once(','));
        count.unwrap().0.parse().unwrap()
    };
    ping_all(&a, "10.80.0.2", 3, "0.1").unwrap();
    let before = packets();
    assert!(before >= 6, "{before} packets: requests and replies count");
    host.ofctl(&["add-flow", "br0", "priority=9,actions=drop"]);
    a.run(&["ping", "-n", "-c", "1", "-W", "1", "10.80.0.2"]).unwrap_err();
    host.ofctl(&["--strict", "del-flows", "br0", "priority=9"]);
    ping_all(&a, "10.80.0.2", 3, "0.1").unwrap();
    assert!(packets() >= before + 6);
}

#[test]
fn flows_of_ovs_ofctl_forward_and_protocols_bound_versions() {
    let host = Host::new();
    let (a, _b) = (host.guest("va", "10.80.0.1/24"), host.guest("vb", "10.80.0.2/24"));
    let _daemon = host.start();
    host.vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "fail_mode=secure"]);
    let port = |name: &str, number: &str| {
        host.vsctl(&["add-port", "br0", name, "--", "set", "interface", name, number]);
    };
    port("va", "ofport_request=11");
    port("vb", "ofport_request=12");
    host.ofctl(&["add-flow", "br0", "in_port=11,actions=output:12"]);
    host.ofctl(&["-O", "OpenFlow14", "add-flow", "br0", "in_port=vb,actions=va"]);
    ping_all(&a, "10.80.0.2", 3, "0.1").unwrap();

    // A trace ends in the packet and the actions, also from a port that is not there.
    host.ofctl(&["add-flow", "br0", "in_port=77,dl_vlan=5,actions=strip_vlan,output:12"]);
    let (code, trace, error) =
        host.appctl(&["ofproto/trace", "br0", "in_port=77,dl_vlan=5,dl_src=02:00:00:00:00:07"]);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let end = "Final flow: in_port=77,vlan_tci=0x0000,dl_src=02:00:00:00:00:07,";
    assert!(trace.contains(end) && trace.contains("\nDatapath actions: pop_vlan,"), "{trace}");
    host.ofctl(&["del-flows", "br0", "in_port=77"]);

    host.vsctl(&["set", "bridge", "br0", "protocols=OpenFlow13"]);
    let (code, _, error) = host.tool("ovs-ofctl", &["dump-flows", "br0"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("peer supports version 0x04"), "{error}");
    let flows = host.ofctl(&["-O", "OpenFlow13", "--names", "dump-flows", "br0"]);
    assert!(flows.contains("in_port=va actions=output:vb"), "{flows}");
    ping_all(&a, "10.80.0.2", 1, "0.1").unwrap();

    // A controller that cannot be reached is one: its row says why, and the flows of the bridge without one go.
    let ofctl = |words: &[&str]| host.ofctl(&[&["-O", "OpenFlow13"], words].concat());
    ofctl(&["add-group", "br0", "group_id=1,type=all,bucket=output:12"]);
    host.vsctl(&["set-controller", "br0", "unix:/etc/x"]);
    let error = host.get("Controller", "br0", "status:last_error");
    assert!(error.contains("`/etc/x` is not in the run directory"), "{error}");
    assert!(!ofctl(&["dump-flows", "br0"]).contains("actions="));
    assert!(!ofctl(&["dump-groups", "br0"]).contains("group_id"));
    ofctl(&["add-flow", "br0", "in_port=11,actions=output:12"]);
    ofctl(&["add-flow", "br0", "in_port=12,actions=output:11"]);
    host.vsctl(&["set-controller", "br0", "unix:/etc/y"]);
    ping_all(&a, "10.80.0.2", 1, "0.1").unwrap();
    host.vsctl(&["del-controller", "br0"]);
    assert!(!ofctl(&["dump-flows", "br0"]).contains("actions="));
}

#[test]
fn the_log_has_messages_on_request_and_counts_changes_of_flows() {
    let host = Host::new();
    let _daemon = host.start();
    host.vsctl(&["add-br", "br0", "--", "set-fail-mode", "br0", "secure"]);
    host.ofctl(&["add-flow", "br0", "priority=1,actions=drop"]);
    assert!(!host.log().contains("|vconn|"), "no messages unless they are asked for");
    assert_eq!(host.appctl(&["vlog/set", "vconn:dbg"]).0, Some(0));
    host.ofctl(&["-O", "OpenFlow13", "add-flow", "br0", "in_port=7,actions=output:8"]);
    host.ofctl(&["-O", "OpenFlow13", "dump-flows", "br0"]);
    for line in [
        "sent (Success): OFPT_HELLO (OF1.5) (xid=0x0):\n version bitmap: 0x01, 0x02, 0x03, 0x04, 0x05, 0x06\n",
        "negotiated OpenFlow version 0x04 (we support version 0x06 and earlier, peer supports version 0x04)",
        ": ADD in_port=7 actions=output:8\n",
        "received: OFPST_FLOW request (OF1.3)",
        "n_bytes=0, in_port=7 actions=output:8\n",
    ] {
        assert!(host.log().contains(line), "{line}\n{}", host.log());
    }
    // The management socket's connections have numbers; `ovs-ofctl` may make several.
    let tells = |line: &str| {
        line.contains("|connmgr|INFO|br0<->unix#")
            && line.contains(": 1 flow_mods ")
            && line.ends_with(" (1 adds)")
    };
    let told = || host.log().lines().filter(|line| tells(line)).count();
    until("the end of connections", LIMIT, || Ok((told() == 2).then_some(())))
        .unwrap_or_else(|error| panic!("{error}: {}", host.log()));
}

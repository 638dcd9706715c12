//! Types and settings of interfaces: vhost-user and memif with their clients, TAP devices, VLAN modes, policing.

use std::process::Stdio;
use std::sync::atomic::AtomicBool;

use bench::port::PortSpec;
use bench::session::{Options, Session};
use e2e::open_vswitch::{Host, LIMIT};
use e2e::{Memory, Running, Testpmd, ping_all, until};

/// A column of an interface is this text.
fn assert_is(host: &Host, row: &str, column: &str, value: &str) {
    assert_eq!(host.get("Interface", row, column), value, "{row}.{column}");
}

#[test]
fn clients_of_vhost_user_and_memif_exchange_packets() {
    let host = Host::new();
    let _daemon = host.start();
    let types = host.get("Open_vSwitch", ".", "iface_types");
    for kind in ["dpdkvhostuser", "dpdkvhostuserclient", "memif", "tap"] {
        assert!(types.contains(kind), "{types}");
    }
    assert_eq!(host.get("Open_vSwitch", ".", "dpdk_initialized"), "false");
    host.vsctl(&["set", "open_vswitch", ".", "other_config:dpdk-init=true"]);
    assert_eq!(host.get("Open_vSwitch", ".", "dpdk_initialized"), "true");

    let (server, memif) = (host.path("s0"), host.path("m.sock"));
    let (server, memif) = (server.to_str().unwrap(), memif.to_str().unwrap());
    host.vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"]);
    host.vsctl(&["add-port", "br0", "s0", "--", "set", "interface", "s0", "type=dpdkvhostuser"]);
    let socket = format!("options:socket={memif}");
    let memif_type = ["type=memif", &socket, "options:id=3"];
    host.vsctl(&[&["add-port", "br0", "m0", "--", "set", "interface", "m0"], &memif_type[..]].concat());
    for (column, value) in
        [("link_state", "down"), ("status:mode", "server"), ("status:status", "disconnected")]
    {
        assert_is(&host, "s0", column, value);
    }
    assert_is(&host, "s0", "status:socket", server);

    let ports = vec![PortSpec::vhost_user(server, Default::default()), PortSpec::new(memif, 3)];
    let mut session = Session::connect(Options::new(ports)).unwrap();
    for name in ["s0", "m0"] {
        host.until_is(name, "link_state", "up");
        host.until_is(name, "status:status", "connected");
    }
    let report = session.run(&AtomicBool::new(false)).unwrap();
    assert!(report.ok, "{report}");
    drop(session);
    host.until_is("s0", "link_state", "down");
    host.until_is("m0", "status:status", "disconnected");
    host.vsctl(&["del-port", "s0"]);
    assert!(!std::fs::exists(server).unwrap());
}

#[test]
fn a_vhost_user_client_connects_again() {
    let host = Host::new();
    let guest = host.guest("va", "10.91.0.1/24");
    let _daemon = host.start();
    let path = host.path("guest.sock");
    let option = format!("options:vhost-server-path={}", path.display());
    host.vsctl(&["add-br", "br0", "--", "add-port", "br0", "va"]);
    let kind = "type=dpdkvhostuserclient";
    host.vsctl(&["add-port", "br0", "vm", "--", "set", "interface", "vm", kind, &option]);
    assert_is(&host, "vm", "status:mode", "client");
    for _ in 0..2 {
        host.until_is("vm", "link_state", "down");
        let device =
            format!("net_virtio_user0,path={},mac=02:00:00:00:00:01,queues=1,server=1", path.display());
        let mut testpmd = Testpmd::start(Memory::Common, &[device], &["--forward-mode=icmpecho"]).unwrap();
        testpmd.command("start").unwrap();
        host.until_is("vm", "link_state", "up");
        ping_all(&guest, "10.91.0.2", 3, "0.1").unwrap();
        testpmd.kill().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
    // What is missing is said where users look for it.
    let arguments = ["-t", "20", "add-port", "br0", "vn", "--", "set", "interface", "vn", kind];
    let (code, _, error) = host.tool("ovs-vsctl", &arguments);
    assert_eq!(code, Some(0));
    assert!(error.contains("a dpdkvhostuserclient interface needs options:vhost-server-path"), "{error}");
}

#[test]
fn tap_interfaces_are_devices_of_the_host() {
    let host = Host::new();
    let guest = host.guest("va", "10.80.0.1/24");
    let _daemon = host.start();
    host.vsctl(&["add-br", "br0", "--", "add-port", "br0", "va"]);
    let tap = ["type=tap", "mac=\"02:00:00:00:00:07\"", "mtu_request=1400"];
    host.vsctl(&[&["add-port", "br0", "t0", "--", "set", "interface", "t0"], &tap[..]].concat());
    host.netns.run(&["ip", "address", "add", "10.80.0.9/24", "dev", "t0"]).unwrap();
    ping_all(&guest, "10.80.0.9", 3, "0.1").unwrap();
    assert_is(&host, "t0", "mac_in_use", "02:00:00:00:00:07");
    assert_is(&host, "t0", "mtu", "1400");
    host.vsctl(&["del-port", "t0"]);
    host.netns.run(&["ip", "link", "show", "t0"]).unwrap_err();
}

/// Starts tcpdump in a namespace, which ends after some packets, and waits until it captures.
fn tcpdump(netns: &e2e::Netns, log: &std::path::Path, arguments: &[&str]) -> Running {
    let errors = std::fs::File::create(log).unwrap();
    let mut command = netns.command(&[&["tcpdump", "-l", "-n", "-i", "eth0"], arguments].concat());
    let running = Running::start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors)).unwrap();
    until("tcpdump to capture", LIMIT, || {
        Ok(std::fs::read_to_string(log)?.contains("listening on").then_some(()))
    })
    .unwrap();
    running
}

#[test]
fn a_native_tagged_port_sends_all_vlans_with_tags() {
    let host = Host::new();
    let (a, b) = (host.guest("va", "10.80.0.1/24"), host.guest("vb", "10.80.0.2/24"));
    let _daemon = host.start();
    host.vsctl(&["add-br", "br0", "--", "add-port", "br0", "va", "tag=7"]);
    host.vsctl(&["add-port", "br0", "vb", "tag=7", "vlan_mode=native-tagged"]);
    let seen = tcpdump(&b, &host.path("b.log"), &["-e", "-c", "1", "vlan", "7", "and", "arp"]);
    // b, which takes no tags, does not answer.
    a.run(&["ping", "-n", "-c", "1", "-W", "1", "10.80.0.2"]).unwrap_err();
    let seen = seen.output().unwrap();
    assert!(seen.contains("vlan 7") && seen.contains("who-has 10.80.0.2"), "{seen}");
    // What comes in without a tag belongs to the native VLAN.
    let seen = tcpdump(&a, &host.path("a.log"), &["-e", "-c", "1", "arp", "and", "src", "host", "10.80.0.2"]);
    b.run(&["ping", "-n", "-c", "1", "-W", "1", "10.80.0.1"]).unwrap_err();
    let seen = seen.output().unwrap();
    assert!(!seen.contains("vlan") && seen.contains("who-has 10.80.0.1"), "{seen}");

    let set = ["set", "port", "vb", "vlan_mode=dot1q-tunnel"];
    let (code, _, error) = host.tool("ovs-vsctl", &[&["-t", "20"], &set[..]].concat());
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(host.get("Interface", "vb", "error").contains("qinq-ethtype=802.1q"));
    host.vsctl(&["set", "port", "vb", "other_config:qinq-ethtype=802.1q"]);
    assert_is(&host, "vb", "error", "[]");
    ping_all(&a, "10.80.0.2", 1, "0.1").unwrap();
}

#[test]
fn incoming_packets_are_policed() {
    let host = Host::new();
    let (a, _b) = (host.guest("va", "10.80.0.1/24"), host.guest("vb", "10.80.0.2/24"));
    let _daemon = host.start();
    host.vsctl(&["add-br", "br0", "--", "add-port", "br0", "va", "--", "add-port", "br0", "vb"]);
    ping_all(&a, "10.80.0.2", 10, "0.01").unwrap();
    // 1 kbit/s: one of these fits into the burst.
    host.vsctl(&["set", "interface", "va", "ingress_policing_rate=1", "ingress_policing_burst=16"]);
    a.run(&["ping", "-n", "-s", "1400", "-i", "0.01", "-c", "10", "-W", "1", "10.80.0.2"]).map_or_else(
        |error| panic!("{error}"),
        |output| assert!(output.contains("10 packets transmitted, 1 received"), "{output}"),
    );
    host.vsctl(&["set", "interface", "va", "ingress_policing_rate=0"]);
    ping_all(&a, "10.80.0.2", 10, "0.01").unwrap();

    // A discipline that is not supported is stored, and the log says once that it is not.
    let qos = ["--", "--id=@q", "create", "qos", "type=linux-sfq", "queues:1=@u"];
    let queue = ["--", "--id=@u", "create", "queue", "other_config:max-rate=1000000"];
    host.vsctl(&[&["set", "port", "va", "qos=@q"], &qos[..], &queue[..]].concat());
    assert_eq!(host.get("QoS", &host.get("Port", "va", "qos"), "type"), "linux-sfq");
    host.vsctl(&["set", "interface", "vb", "external_ids:x=y"]);
    let note = "port va: QoS of type `linux-sfq` is not supported";
    assert_eq!(host.log().matches(note).count(), 1, "{}", host.log());
    ping_all(&a, "10.80.0.2", 1, "0.1").unwrap();
}

#[test]
fn the_mask_of_cpus_chooses_the_workers() {
    let host = Host::new();
    let _daemon = host.start();
    let workers = || {
        let shown = serde_json::from_str::<serde_json::Value>(&host.mswitch(&["worker", "show", "--json"]).1);
        let shown = shown.unwrap()["workers"].as_array().unwrap().clone();
        let mut cpus = Vec::from_iter(shown.iter().map(|worker| worker["cpu"].as_u64()));
        cpus.sort_unstable();
        cpus
    };
    assert_eq!(workers(), [None]);
    let mask = |value: &str| {
        host.vsctl(&["set", "open_vswitch", ".", &format!("other_config:pmd-cpu-mask={value}")]);
    };
    mask("0x3");
    assert_eq!(workers(), [Some(0), Some(1)]);
    // The worker of a CPU that is there serves, the other one is named.
    mask("0x8000000000000000000000000001");
    assert_eq!(workers(), [Some(0)]);
    assert!(host.log().contains("pmd-cpu-mask: CPU 111 is not online; online CPUs: "), "{}", host.log());
    mask("cpu0");
    assert_eq!(workers(), [None]);
    assert!(host.log().contains("pmd-cpu-mask: `cpu0` is not a hexadecimal number"), "{}", host.log());
    host.vsctl(&["remove", "open_vswitch", ".", "other_config", "pmd-cpu-mask"]);
    assert_eq!(workers(), [None]);
}

#[test]
fn interfaces_of_type_afxdp_have_its_sockets() {
    let host = Host::new();
    let (a, _b) = (host.guest("va", "10.93.0.1/24"), host.guest("vb", "10.93.0.2/24"));
    let _daemon = host.start();
    assert!(host.get("Open_vSwitch", ".", "iface_types").contains("afxdp"));
    host.vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"]);
    for name in ["va", "vb"] {
        host.vsctl(&["add-port", "br0", name, "--", "set", "interface", name, "type=afxdp"]);
        host.until_is(name, "link_state", "up");
        let shown = host.mswitch(&["port", "show", "br0", name]).1;
        assert!(shown.contains("af-xdp"), "{shown}");
    }
    ping_all(&a, "10.93.0.2", 3, "0.1").unwrap();
    let (code, shown, _) = host.appctl(&["dpif/show"]);
    assert_eq!(code, Some(0));
    assert!(shown.contains("(afxdp)"), "{shown}");
}

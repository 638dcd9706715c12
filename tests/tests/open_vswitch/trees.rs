//! Spanning trees with Open vSwitch's own daemon, and with the kernel's bridge, as neighbours.

use std::time::{Duration, Instant};

use e2e::open_vswitch::{Host, LIMIT};
use e2e::{Running, ping_all, until};

/// Time for a ring to heal: rapid, against three lost messages (6 s) or two delays (30 s).
const RAPID: Duration = Duration::from_secs(5);

/// A ring of three bridges: br0 and br1 of mswitch on a pair of patch ports p0 and p1, and br0 of Open vSwitch, which
/// is the root, at cables l0 and l1.
struct Ring {
    host: Host,
    other: Host,
    _daemons: [Running; 2],
}

impl Ring {
    fn new() -> Self {
        let (host, other) = (Host::new(), Host::new());
        host.connect("l0", &other);
        host.connect("l1", &other);
        let daemons = [host.start(), other.start_open_vswitch()];
        Self { host, other, _daemons: daemons }
    }

    /// Makes the bridges; `protocol`: `stp` or `rstp`.
    fn build(&self, protocol: &str, more: &[&str]) {
        let (enable, priority) =
            (format!("{protocol}_enable=true"), format!("other_config:{protocol}-priority=4096"));
        let set = |bridge| [&["--", "set", "bridge", bridge, enable.as_str()][..], more].concat();
        let root = [&["add-br", "br0"][..], &set("br0"), &["datapath_type=netdev", &priority]].concat();
        self.other
            .vsctl(&[&root[..], &["--", "add-port", "br0", "l0", "--", "add-port", "br0", "l1"]].concat());
        let bridges = [&["add-br", "br0"][..], &set("br0"), &["--", "add-br", "br1"], &set("br1")].concat();
        self.host.vsctl(&bridges);
        for (bridge, port, peer, cable) in [("br0", "p0", "p1", "l0"), ("br1", "p1", "p0", "l1")] {
            let peer = format!("options:peer={peer}");
            let patch = ["add-port", bridge, port, "--", "set", "interface", port, "type=patch", &peer];
            self.host.vsctl(&[&patch[..], &["--", "add-port", bridge, cable]].concat());
        }
    }

    /// Waits until the ports l0, l1, p0 and p1 have these states by the database.
    fn until_are(&self, key: &str, wanted: [&str; 4]) {
        let states = || ["l0", "l1", "p0", "p1"].map(|port| self.host.get("Port", port, key));
        until(&format!("{wanted:?}"), LIMIT, || Ok((states() == wanted).then_some(())))
            .unwrap_or_else(|error| panic!("{error}: {:?}; {}", states(), self.host.log()));
    }
}

#[test]
fn rstp_heals_a_ring_with_open_vswitch() {
    let ring = Ring::new();
    let (host, other) = (&ring.host, &ring.other);
    let (a, _b) = (host.guest("va", "10.80.0.1/24"), other.guest("vb", "10.80.0.2/24"));
    ring.build("rstp", &[]);
    for (host, guest) in [(host, "va"), (other, "vb")] {
        let edge = "other_config:rstp-port-admin-edge=true";
        host.vsctl(&["add-port", "br0", guest, "--", "set", "port", guest, edge]);
    }
    // The bridges' addresses decide which end of the patch is blocked.
    let key = "rstp_status:rstp_port_state";
    let is_closed = || {
        let states = ["l0", "l1", "p0", "p1"].map(|port| host.get("Port", port, key));
        let patch = [states[2].as_str(), states[3].as_str()];
        let is_cut = patch == ["Forwarding", "Discarding"] || patch == ["Discarding", "Forwarding"];
        let theirs = other.appctl(&["rstp/show", "br0"]).1;
        let forward = theirs.lines().filter(|line| line.contains("Designated Forwarding")).count();
        states[..2] == ["Forwarding", "Forwarding"] && is_cut && forward == 3
    };
    let shown = || {
        let ours = ["br0", "br1"].map(|bridge| host.appctl(&["rstp/show", bridge]).1).concat();
        other.appctl(&["rstp/show"]).1 + &ours
    };
    until("a tree", LIMIT, || Ok(is_closed().then_some(())))
        .unwrap_or_else(|error| panic!("{error}: {}", shown()));
    assert!(host.appctl(&["rstp/show", "br0"]).1.contains("  root-port       l0\n"));
    assert!(other.appctl(&["rstp/show", "br0"]).1.contains("This bridge is the root"));
    let root = host.get("Bridge", "br0", "rstp_status:rstp_root_id");
    assert_eq!(root, other.get("Bridge", "br0", "rstp_status:rstp_bridge_id"));
    ping_all(&a, "10.80.0.2", 3, "0.1").unwrap();

    let begin = Instant::now();
    host.netns.run(&["ip", "link", "set", "l0", "down"]).unwrap();
    ring.until_are(key, ["Discarding", "Forwarding", "Forwarding", "Forwarding"]);
    // Open vSwitch's flow cache leads to the former path for some time.
    let passes = || Ok(a.run(&["ping", "-n", "-c", "1", "-W", "1", "10.80.0.2"]).ok());
    until("a ping to pass", LIMIT, passes).unwrap();
    assert!(begin.elapsed() < RAPID, "{:?}", begin.elapsed());
    assert!(host.appctl(&["rstp/show", "br0"]).1.contains("  root-port       p0\n"));

    host.netns.run(&["ip", "link", "set", "l0", "up"]).unwrap();
    until("the tree of before", LIMIT, || Ok(is_closed().then_some(()))).unwrap();
    until("a ping to pass", LIMIT, passes).unwrap();
    // Without spanning trees there are no states; a port less keeps the ring open.
    host.vsctl(&["del-port", "br1", "l1"]);
    for bridge in ["br0", "br1"] {
        host.vsctl(&["set", "bridge", bridge, "rstp_enable=false"]);
        until("no status", LIMIT, || Ok((host.get("Bridge", bridge, "rstp_status") == "{}").then_some(())))
            .unwrap();
    }
    assert_eq!(host.get("Port", "p0", "rstp_status"), "{}");
    assert_eq!(host.appctl(&["rstp/show", "br0"]).2.lines().next(), Some("No such RSTP object"));
}

#[test]
fn stp_heals_a_ring_with_open_vswitch() {
    let ring = Ring::new();
    let (host, other) = (&ring.host, &ring.other);
    let (a, _b) = (host.guest("va", "10.80.0.1/24"), other.guest("vb", "10.80.0.2/24"));
    ring.build("stp", &["other_config:stp-forward-delay=4", "other_config:stp-max-age=6"]);
    host.vsctl(&["add-port", "br0", "va", "--", "set", "port", "va", "other_config:stp-enable=false"]);
    other.vsctl(&["add-port", "br0", "vb"]);
    let states = || ["l0", "l1", "p0", "p1"].map(|port| host.get("Port", port, "status:stp_state"));
    let is_closed = || {
        let states = states();
        let patch = [states[2].as_str(), states[3].as_str()];
        let is_cut = patch == ["forwarding", "blocking"] || patch == ["blocking", "forwarding"];
        states[..2] == ["forwarding", "forwarding"] && is_cut
    };
    until("a tree", 2 * LIMIT, || Ok(is_closed().then_some(())))
        .unwrap_or_else(|error| panic!("{error}: {:?}", states()));
    let passes = || Ok(a.run(&["ping", "-n", "-c", "1", "-W", "1", "10.80.0.2"]).ok());
    until("a ping to pass", LIMIT, passes).unwrap();
    let root = host.get("Bridge", "br0", "status:stp_designated_root");
    assert_eq!(root, other.get("Bridge", "br0", "status:stp_bridge_id"));
    host.netns.run(&["ip", "link", "set", "l0", "down"]).unwrap();
    ring.until_are("status:stp_state", ["disabled", "forwarding", "forwarding", "forwarding"]);
    until("a ping to pass", LIMIT, passes).unwrap();
    assert!(host.appctl(&["stp/show", "br0"]).1.contains("  root-port       p0\n"));
}

/// The kernel's bridge speaks STP; so does a bridge with RSTP to it.
#[test]
fn the_kernels_bridge_is_a_neighbour() {
    let host = Host::new();
    let kernel = e2e::Netns::new().unwrap();
    let bridge = [
        "ip",
        "link",
        "add",
        "kbr",
        "type",
        "bridge",
        "stp_state",
        "1",
        "forward_delay",
        "400",
        "hello_time",
        "100",
    ];
    kernel.run(&[&bridge[..], &["max_age", "600", "priority", "4096"]].concat()).unwrap();
    for cable in ["l0", "l1"] {
        let (here, there) = (host.netns.name(), kernel.name());
        let peer = ["type", "veth", "peer", "name", cable, "netns", there];
        e2e::output("ip", &[&["link", "add", cable, "netns", here][..], &peer].concat()).unwrap();
        kernel.run(&["ip", "link", "set", cable, "master", "kbr", "up"]).unwrap();
        host.netns.run(&["ip", "link", "set", cable, "up"]).unwrap();
    }
    kernel.run(&["ip", "address", "add", "10.80.0.9/24", "dev", "kbr"]).unwrap();
    kernel.run(&["ip", "link", "set", "kbr", "up"]).unwrap();
    let guest = host.guest("va", "10.80.0.1/24");
    let _daemon = host.start();
    host.vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "stp_enable=true"]);
    host.vsctl(&["add-port", "br0", "va", "--", "set", "port", "va", "other_config:stp-enable=false"]);
    host.vsctl(&["add-port", "br0", "l0", "--", "add-port", "br0", "l1"]);
    let are = |key: &str, wanted: [&str; 2]| {
        let states = || ["l0", "l1"].map(|port| host.get("Port", port, key));
        until(&format!("{wanted:?}"), LIMIT, || Ok((states() == wanted).then_some(())))
            .unwrap_or_else(|error| panic!("{error}: {:?}; {}", states(), host.log()));
    };
    // Twice the root's delay.
    are("status:stp_state", ["forwarding", "blocking"]);
    let root = host.get("Bridge", "br0", "status:stp_designated_root");
    assert!(root.starts_with("1000."), "{root}");
    assert_eq!(
        [host.get("Port", "l0", "status:stp_role"), host.get("Port", "l1", "status:stp_role")],
        ["root", "alternate"]
    );
    ping_all(&guest, "10.80.0.9", 3, "0.1").unwrap();
    assert!(host.ofctl(&["show", "br0"]).contains("STP_FORWARD"));
    // With RSTP the bridge notices that its neighbour does not know it.
    host.vsctl(&["set", "bridge", "br0", "rstp_enable=true"]);
    are("rstp_status:rstp_port_state", ["Forwarding", "Discarding"]);
    assert_eq!(host.get("Bridge", "br0", "status"), "{}");
    until("a ping to pass", LIMIT, || Ok(guest.run(&["ping", "-n", "-c", "1", "-W", "1", "10.80.0.9"]).ok()))
        .unwrap();
}

//! Bonds of two veth pairs, with Open vSwitch's own daemon at their other end: an independent LACP, and a bridge that
//! knows nothing of the bond.

use std::time::Instant;

use e2e::open_vswitch::{Host, LIMIT};
use e2e::{Netns, Running, ping_all, until};

/// A host with mswitch and one with Open vSwitch, joined by two links, and a guest at each.
struct Lab {
    host: Host,
    peer: Host,
    a: Netns,
    b: Netns,
    _daemons: [Running; 2],
}

impl Lab {
    fn new() -> Self {
        let (host, peer) = (Host::new(), Host::new());
        let (a, b) = (host.guest("va", "10.80.0.1/24"), peer.guest("vb", "10.80.0.2/24"));
        for (here, there) in [("x0", "x1"), ("y0", "y1")] {
            let veth = ["type", "veth", "peer", "name", there, "netns", peer.netns.name()];
            e2e::output("ip", &[&["link", "add", here, "netns", host.netns.name()], &veth[..]].concat())
                .unwrap();
            host.netns.run(&["ip", "link", "set", here, "up"]).unwrap();
            peer.netns.run(&["ip", "link", "set", there, "up"]).unwrap();
        }
        let mut stock = peer.command("/usr/lib/openvswitch-switch/ovs-vswitchd");
        let stock = Running::start(stock.args(["--pidfile", "-vconsole:off", "-vsyslog:off"])).unwrap();
        let daemons = [host.start(), stock];
        peer.vsctl(&["add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=netdev"]);
        peer.vsctl(&["add-port", "br1", "vb"]);
        host.vsctl(&["add-br", "br0", "--", "add-port", "br0", "va"]);
        Self { host, peer, a, b, _daemons: daemons }
    }

    fn shows(&self, line: &str) -> Option<()> {
        self.host.appctl(&["bond/show", "bond0"]).1.contains(line).then_some(())
    }

    fn until_shows(&self, line: &str) {
        until(line, LIMIT, || Ok(self.shows(line)))
            .unwrap_or_else(|error| panic!("{error}: {}", self.host.appctl(&["bond/show"]).1));
    }

    /// Pings the other guest until an answer comes, then five times in a row.
    fn ping(&self) {
        let once = || Ok(self.a.run(&["ping", "-n", "-c", "1", "-W", "1", "10.80.0.2"]).ok());
        until("an answer", LIMIT, once).unwrap();
        ping_all(&self.a, "10.80.0.2", 5, "0.02").unwrap();
    }

    /// Takes the peer's end of a link down; pings are soon answered again.
    fn lose(&self, link: &str) {
        let begin = Instant::now();
        self.peer.netns.run(&["ip", "link", "set", link, "down"]).unwrap();
        self.ping();
        assert!(begin.elapsed() < LIMIT / 4, "{:?}", begin.elapsed());
    }
}

#[test]
fn lacp_agrees_with_open_vswitch_and_a_lost_link_is_replaced() {
    let lab = Lab::new();
    let bond = ["x1", "y1", "bond_mode=balance-tcp", "lacp=passive", "other_config:lacp-time=fast"];
    lab.peer.vsctl(&[&["add-bond", "br1", "bond1"], &bond[..]].concat());
    let fast = ["x0", "y0", "bond_mode=balance-tcp", "lacp=active", "other_config:lacp-time=fast"];
    lab.host.vsctl(&[&["add-bond", "br0", "bond0"], &fast[..]].concat());
    let both =
        "member x0: enabled\n  active member\n  may_enable: true\n\nmember y0: enabled\n  may_enable: true\n";
    lab.until_shows(both);
    lab.ping();
    lab.host.until_is("x0", "lacp_current", "true");
    assert_eq!(
        lab.host.get("Port", "bond0", "bond_active_slave"),
        lab.host.get("Interface", "x0", "mac_in_use")
    );
    let lacp = lab.host.appctl(&["lacp/show", "bond0"]).1;
    assert!(lacp.starts_with("---- bond0 ----\n  status: active negotiated\n"), "{lacp}");
    let partner = "partner state: timeout aggregation synchronized collecting distributing\n";
    assert_eq!(lacp.matches(partner).count(), 2, "{lacp}");

    lab.lose("x1");
    lab.until_shows("member x0: disabled\n  may_enable: false\n");
    lab.ping();
    lab.peer.netns.run(&["ip", "link", "set", "x1", "up"]).unwrap();
    lab.until_shows("member x0: enabled\n");
    lab.lose("y1");
    lab.until_shows("member y0: disabled\n");
    lab.ping();
    assert_eq!(lab.host.appctl(&["bond/set-active-slave", "bond0", "y0"]).0, Some(2));
}

#[test]
fn one_link_is_used_where_the_peer_knows_of_no_bond() {
    let lab = Lab::new();
    lab.host.vsctl(&["add-bond", "br0", "bond0", "x0", "y0", "bond_mode=active-backup"]);
    lab.peer.vsctl(&["add-port", "br1", "x1", "--", "add-port", "br1", "y1"]);
    lab.until_shows("member x0: enabled\n  active member\n");
    lab.until_shows("member y0: enabled\n");
    lab.ping();
    lab.lose("x1");
    lab.until_shows("member y0: enabled\n  active member\n");
    lab.ping();
    lab.peer.netns.run(&["ip", "link", "set", "x1", "up"]).unwrap();
    lab.until_shows("member x0: enabled\n");
    // Both links bring what the peer floods, and one copy of it passes, in either mode.
    lab.a.run(&["sysctl", "-w", "net.ipv4.icmp_echo_ignore_broadcasts=0"]).unwrap();
    for mode in ["active-backup", "balance-slb"] {
        lab.host.vsctl(&["set", "port", "bond0", &format!("bond_mode={mode}")]);
        lab.until_shows(&format!("bond_mode: {mode}\n"));
        lab.ping();
        let pings = lab.b.run(&["ping", "-n", "-b", "-c", "5", "-i", "0.02", "10.80.0.255"]).unwrap();
        assert!(pings.contains(" 5 received,") && !pings.contains("DUP"), "{mode}: {pings}");
    }
}

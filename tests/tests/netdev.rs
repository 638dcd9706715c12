//! Netdev ports: existing interfaces, here veth pairs whose other ends are the hosts. The switch's ends lie in a
//! namespace of their own, which plays the machine that runs the switch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bench::pace::Rate;
use bench::session::{Options, Session};
use e2e::{Daemon, Netns, config, exclusive, long, ping_all, seconds, until};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(20);

/// Hosts `a` and `b` behind ports of one bridge, and a machine with the switch's ends `va` and `vb`.
struct Two {
    // Dropped in this order: the daemon, then namespaces.
    daemon: Daemon,
    a: Netns,
    b: Netns,
    machine: Netns,
}

const A4: &str = "10.78.0.1";
const B4: &str = "10.78.0.2";
const B6: &str = "fd78::2";

/// Adds a veth pair: `v{name}` at the machine, `eth0` in the namespace of the host, with its addresses.
fn veth(machine: &Netns, host: &Netns, name: &str, number: u32, mtu: u32) {
    let (end, mtu) = (format!("v{name}"), mtu.to_string());
    let add = ["ip", "link", "add", "name", &end, "mtu", &mtu, "type", "veth"];
    let peer = ["peer", "name", "eth0", "mtu", &mtu, "netns", host.name()];
    machine.run(&[&add[..], &peer[..]].concat()).unwrap();
    machine.run(&["ip", "link", "set", "dev", &end, "up"]).unwrap();
    for address in [format!("10.78.0.{number}/24"), format!("fd78::{number}/64")] {
        let add = ["ip", "addr", "add", &address, "dev", "eth0"];
        let add = if address.contains(':') { [&add[..], &["nodad"]].concat() } else { add.to_vec() };
        host.run(&add).unwrap();
    }
    host.run(&["ip", "link", "set", "dev", "eth0", "up"]).unwrap();
}

fn two_with(logic: &str, mtu: u32, more: &str) -> Two {
    let (machine, a, b) = (Netns::new().unwrap(), Netns::new().unwrap(), Netns::new().unwrap());
    veth(&machine, &a, "a", 1, mtu);
    veth(&machine, &b, "b", 2, mtu);
    let ports =
        config::netdev("a", "va", machine.name(), more) + &config::netdev("b", "vb", machine.name(), more);
    let daemon = Daemon::start(&(config::bridge("br0", logic) + &ports)).unwrap();
    for port in ["a", "b"] {
        daemon.wait_up("br0", port).unwrap();
    }
    Two { daemon, a, b, machine }
}

fn two() -> Two {
    two_with("learning", 1500, "")
}

impl Two {
    /// Packets dropped by the switch.
    fn dropped(&self) -> u64 {
        self.daemon.ports("br0").unwrap().iter().map(|port| port.dropped()).sum()
    }

    fn detail(&self, port: &str, name: &str) -> Option<String> {
        detail(&self.daemon, port, name)
    }
}

fn detail(daemon: &Daemon, port: &str, name: &str) -> Option<String> {
    let shown = daemon.json(&["port", "show", "br0", port]).unwrap();
    let details = shown["details"].as_array().unwrap();
    let found = details.iter().find(|detail| detail["name"] == name)?;
    Some(found["value"].as_str().unwrap().to_owned())
}

/// Pings without loss; the first answer may be slow, while switch and stacks learn addresses.
fn ping(from: &Netns, to: &str, count: u32) {
    ping_all(from, to, count, "0.01").unwrap();
}

#[test]
fn hosts_behind_veth_ping_each_other() {
    let two = two();
    let count = if long() { 1000 } else { 100 };
    ping(&two.a, B4, count);
    ping(&two.a, B6, count);
    ping(&two.b, A4, count);
}

#[test]
fn several_queues_and_jumbo_frames() {
    let two = two_with("static", 9000, "queues = 4\ndriver = \"af-packet\"");
    // 20 bytes of IPv4 and 8 of ICMP make one packet of the MTU, unfragmented.
    two.a.run(&["ping", "-c3", "-i0.1", "-W10", "-Mdo", "-s8972", B4]).unwrap();
    assert_eq!(two.detail("a", "mtu").as_deref(), Some("9000"));
    assert_eq!(two.detail("a", "queues").as_deref(), Some("4"));
    let report = iperf(&two, B4, &["-t", "1", "-P", "8"]);
    assert!(report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap() > 1e8, "{report}");
    let queues = two.daemon.port("br0", "a").unwrap().json()["queues"].clone();
    assert!(queues.as_array().is_none_or(|queues| queues.len() >= 4), "{queues}");
}

/// Runs iperf3 from a to b and returns its report.
fn iperf(two: &Two, to: &str, arguments: &[&str]) -> Value {
    let server = two.b.start(&["iperf3", "-s", "-1", "-B", to]).unwrap();
    until("iperf3 to listen", LIMIT, || Ok(two.b.run(&["ss", "-Hltn"])?.contains(":5201").then_some(())))
        .unwrap();
    let output = two.a.run(&[&["iperf3", "-J", "-c", to], arguments].concat()).unwrap();
    server.output().unwrap();
    serde_json::from_str(&output).unwrap()
}

#[test]
fn iperf3_moves_tcp_and_udp() {
    let _machine = exclusive();
    moves_tcp_and_udp(&two());
}

/// Asserts that TCP moves both ways and that nothing drops UDP. Returns iperf3's sum of the latter.
fn moves_tcp_and_udp(two: &Two) -> Value {
    let time = if long() { "10" } else { "1" };
    let directions: [(&str, &[&str]); 4] = [(B4, &[]), (B4, &["-R"]), (B6, &[]), (B6, &["-R"])];
    for (to, direction) in directions {
        let report = iperf(two, to, &[&["-t", time], direction].concat());
        let rate = report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();
        println!("{to} {direction:?}: {} Mbit/s", (rate / 1e6) as u64);
        assert!(rate > 1e8, "{to}: {rate} bit/s");
    }
    let by_kernel =
        || ["a", "b"].map(|port| two.detail(port, "kernel-drops").unwrap().parse::<u64>().unwrap());
    let before = (two.dropped(), by_kernel());
    let report = iperf(two, B4, &["-u", "-b", "20M", "-l", "1400", "-t", time]);
    let sum = &report["end"]["sum"];
    assert!(sum["packets"].as_u64().unwrap() > 1000, "{sum}");
    assert_eq!((two.dropped(), by_kernel()), before, "{sum}");
    sum.clone()
}

#[test]
fn large_tcp_segments_pass_unsegmented() {
    let _machine = exclusive();
    let two = two();
    assert!(two.detail("a", "offloads").unwrap().starts_with("csum,tso4,tso6"));
    for (to, filter) in [(B4, "ip and tcp and greater 3000"), (B6, "ip6 and tcp and greater 3000")] {
        let capture = ["tcpdump", "-n", "-e", "-l", "--immediate-mode", "-Q", "in", "-s", "128", "-c", "20"];
        let tcpdump = two.b.start(&[&capture[..], &["-i", "eth0", filter]].concat()).unwrap();
        iperf(&two, to, &["-t", "2"]);
        let frames = tcpdump.output().unwrap();
        assert_eq!(frames.lines().count(), 20, "{frames}");
    }
}

#[test]
fn vlan_tags_cross_an_interface() {
    let _machine = exclusive();
    let two = two_with_cable("");
    let capture = ["tcpdump", "-n", "-e", "-l", "--immediate-mode", "-s", "128", "-c", "20", "-i", "right"];
    let filter = ["vlan 10 and tcp and greater 3000"];
    let tcpdump = two.machine.start(&[&capture[..], &filter].concat()).unwrap();
    vlan_10_crosses_the_cable(&two);
    // Large segments were tagged too.
    let frames = tcpdump.output().unwrap();
    assert_eq!(frames.lines().filter(|line| line.contains("vlan 10")).count(), 20, "{frames}");
}

#[test]
fn vlan_tags_cross_an_interface_through_af_xdp() {
    let _machine = exclusive();
    vlan_10_crosses_the_cable(&two_with_cable("driver = \"af-xdp\""));
}

/// Hosts behind access ports of two bridges, with a cable between trunk ports: the kernel takes tags out of the frames
/// that arrive there. All ports have the keys in `more`.
fn two_with_cable(more: &str) -> Two {
    let (machine, a, b) = (Netns::new().unwrap(), Netns::new().unwrap(), Netns::new().unwrap());
    veth(&machine, &a, "a", 1, 1500);
    veth(&machine, &b, "b", 2, 1500);
    machine.run(&["ip", "link", "add", "name", "left", "type", "veth", "peer", "name", "right"]).unwrap();
    for end in ["left", "right"] {
        machine.run(&["ip", "link", "set", "dev", end, "up"]).unwrap();
    }
    let port = |name: &str, vlan: &str| {
        config::netdev(name, name, machine.name(), &format!("vlan = \"{vlan}\"\n{more}"))
    };
    let config = config::bridge("br0", "learning")
        + &port("va", "access:10")
        + &port("left", "trunk:10,20")
        + &config::bridge("br1", "learning")
        + &port("right", "trunk:10,20")
        + &port("vb", "access:10");
    let daemon = Daemon::start(&config).unwrap();
    for (bridge, port) in [("br0", "va"), ("br0", "left"), ("br1", "right"), ("br1", "vb")] {
        daemon.wait_up(bridge, port).unwrap();
    }
    Two { daemon, a, b, machine }
}

/// Asserts that pings and TCP cross the cable in VLAN 10, and nothing passes to another VLAN.
fn vlan_10_crosses_the_cable(two: &Two) {
    ping(&two.a, B4, 20);
    ping(&two.b, A4, 20);
    for (to, direction) in [(B4, "-4"), (B6, "-6"), (B4, "-R")] {
        let report = iperf(two, to, &["-t", "1", direction]);
        assert!(report["end"]["sum_received"]["bytes"].as_u64().unwrap() > 1_000_000, "{report}");
    }
    two.daemon.run(&["port", "set", "br1", "vb", "--vlan", "access:20"]).unwrap();
    let output = two.a.command(&["ping", "-c2", "-i0.1", "-W1", B4]).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
}

#[test]
fn every_size_arrives_at_half_the_capacity() {
    every_size_arrives("");
}

#[test]
fn every_size_arrives_at_half_the_capacity_through_af_xdp() {
    every_size_arrives("driver = \"af-xdp\"");
}

fn every_size_arrives(more: &str) {
    let _machine = exclusive();
    let machine = Netns::new().unwrap();
    machine.run(&["sysctl", "-q", "-w", "net.ipv6.conf.default.disable_ipv6=1"]).unwrap();
    let add = ["ip", "link", "add", "name", "left", "mtu", "9000", "type", "veth"];
    machine.run(&[&add[..], &["peer", "name", "right", "mtu", "9000"]].concat()).unwrap();
    for end in ["left", "right"] {
        machine.run(&["ip", "link", "set", "dev", end, "up"]).unwrap();
    }
    // From memif through one interface, and back in through the other.
    let config = config::bridge("br0", "static")
        + &config::memif("a", 0, "")
        + &config::netdev("left", "left", machine.name(), more)
        + &config::bridge("br1", "static")
        + &config::memif("b", 1, "")
        + &config::netdev("right", "right", machine.name(), more);
    let daemon = Daemon::start(&config).unwrap();
    daemon.wait_up("br0", "left").unwrap();
    daemon.wait_up("br1", "right").unwrap();
    let mut options = Options::new(vec![daemon.memif("memif", 0), daemon.memif("memif", 1)]);
    options.duration = seconds(3, 60);
    options.flows = 16;
    options.cpu = Some(1);
    options.sizes = "60-9014".parse().unwrap();
    options.segments = "1-8".parse().unwrap();
    options.rate = Rate::Half;
    options.least = 501;
    // On its own thread, which is pinned.
    let client =
        std::thread::spawn(move || Session::connect(options).unwrap().run(&AtomicBool::new(false)).unwrap());
    let report = client.join().unwrap();
    println!("{report}");
    assert!(report.ok, "{report}");
    assert!(report.received() > 1000, "{report}");
}

/// veth in native mode: packets as on a wire, 1,500 bytes and no checksum left to do.
fn over_xdp(mtu: u32) -> Two {
    two_with("learning", mtu, "driver = \"af-xdp\"")
}

#[test]
fn hosts_ping_each_other_through_af_xdp() {
    let two = over_xdp(1500);
    let driver = two.detail("a", "driver").unwrap();
    assert_eq!(driver, "af-xdp, native, copying (as configured)");
    let count = if long() { 1000 } else { 100 };
    ping(&two.a, B4, count);
    ping(&two.a, B6, count);
    ping(&two.b, A4, count);
}

/// macvlan has no native mode: the XDP program runs behind the driver. Like a network card, and unlike veth, it takes
/// frames of multicast groups and other stations only in promiscuous mode.
#[test]
fn hosts_reach_each_other_through_af_xdp_in_generic_mode() {
    let _machine = exclusive();
    let (machine, a, b) = (Netns::new().unwrap(), Netns::new().unwrap(), Netns::new().unwrap());
    let mut config = config::bridge("br0", "learning");
    for (host, name, number) in [(&a, "a", 1), (&b, "b", 2)] {
        veth(&machine, host, name, number, 1500);
        // As on a wire: generic XDP would see segments whole, which native XDP has veth cut.
        host.run(&["ethtool", "-K", "eth0", "tso", "off", "gso", "off"]).unwrap();
        let (end, above) = (format!("v{name}"), format!("m{name}"));
        let add = ["ip", "link", "add", "link", &end, "name", &above, "type", "macvlan", "mode", "passthru"];
        machine.run(&add).unwrap();
        machine.run(&["ip", "link", "set", "dev", &above, "up"]).unwrap();
        config += &config::netdev(name, &above, machine.name(), "driver = \"af-xdp\"");
    }
    let two = Two { daemon: Daemon::start(&config).unwrap(), a, b, machine };
    for port in ["a", "b"] {
        two.daemon.wait_up("br0", port).unwrap();
        let driver = two.detail(port, "driver").unwrap();
        assert_eq!(driver, "af-xdp, generic, copying (as configured)");
    }
    let promiscuity = || {
        let shown = two.machine.run(&["ip", "-d", "link", "show", "ma"]).unwrap();
        shown.split("promiscuity ").nth(1).unwrap().split(' ').next().unwrap().to_owned()
    };
    assert_eq!(promiscuity(), "1");
    ping(&two.a, B4, 100);
    ping(&two.a, B6, 100);
    let sum = moves_tcp_and_udp(&two);
    assert_eq!(sum["lost_packets"].as_u64(), Some(0), "{sum}");
    two.daemon.run(&["port", "del", "br0", "a"]).unwrap();
    assert_eq!(promiscuity(), "0");
}

#[test]
fn af_xdp_polls_the_interface_itself() {
    let two = two_with("learning", 1500, "driver = \"af-xdp\"\nbusy-poll = true");
    let shown = two.daemon.json(&["port", "show", "br0", "a"]).unwrap();
    assert!(shown["details"].to_string().contains(", busy polling"), "{shown}");
    ping(&two.a, B4, 100);
    iperf(&two, B4, &["-t", "2"]);
}

#[test]
fn af_xdp_carries_jumbo_frames() {
    let two = over_xdp(9000);
    two.a.run(&["ping", "-c3", "-i0.1", "-W10", "-Mdo", "-s8972", B4]).unwrap();
    ping(&two.a, B4, 10);
}

/// Hosts leave checksums undone, and AF_XDP does not say so.
#[test]
fn iperf3_moves_tcp_and_udp_through_af_xdp() {
    let _machine = exclusive();
    let sum = moves_tcp_and_udp(&over_xdp(1500));
    assert_eq!(sum["lost_packets"].as_u64(), Some(0), "{sum}");
}

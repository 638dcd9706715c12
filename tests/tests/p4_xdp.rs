//! A P4 program in the kernel: hosts behind veth interfaces talk by XDP, and the worker gets what cards cannot do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::cards::{connect, figure, port, taken, until_runs};
use e2e::iperf::measure;
use e2e::{Daemon, Netns, binary, config, ping_all, unique};

/// Hosts 10.79.0.1 and 10.79.0.2 behind veth interfaces, ports 1 and 2, and 10.79.0.3 behind a TAP, port 3.
struct Rig {
    // Dropped in this order: the daemon, then namespaces.
    daemon: Daemon,
    hosts: [Netns; 3],
    _machine: Netns,
}

/// An example's program.
fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/p4").join(name).canonicalize().unwrap()
}

impl Rig {
    fn start() -> Rig {
        let machine = Netns::new().unwrap();
        let hosts: [Netns; 3] = std::array::from_fn(|_| Netns::new().unwrap());
        let mut ports = String::new();
        for (number, host) in (1..).zip(hosts.iter().take(2)) {
            let end = format!("v{number}");
            connect(&machine, &end, host, &format!("10.79.0.{number}")).unwrap();
            ports += &port(&machine, &end, number);
        }
        ports += &config::tap("t3", &unique("t"), hosts[2].name(), &["10.79.0.3/24"], "p4-port = 3\n");
        let bridge = config::bridge("br0", &format!("p4:{}", example("acl.p4").display()));
        let daemon = Daemon::start(&(bridge + "params = { xdp = \"on\" }\n" + &ports)).unwrap();
        for port in ["v1", "v2", "t3"] {
            daemon.wait_up("br0", port).unwrap();
        }
        let rig = Rig { daemon, hosts, _machine: machine };
        rig.run(&["p4", "add", "br0", "rules hdr.ipv4.protocol=1 prio=10 => permit"]);
        rig.wire(1, 2);
        until_runs(&rig.daemon, "br0", "1, 2").unwrap();
        rig
    }

    fn run(&self, words: &[&str]) -> String {
        self.daemon.run(words).unwrap()
    }

    /// Connects two ports; the first may be connected already.
    fn wire(&self, one: u32, other: u32) {
        for (from, to) in [(one, other), (other, one)] {
            let entry = format!("wires std.ingress_port={from} => to(port={to})");
            if self.daemon.run(&["p4", "mod", "br0", &entry]).is_err() {
                self.run(&["p4", "add", "br0", &entry]);
            }
        }
    }

    fn figure(&self, name: &str) -> Option<String> {
        figure(&self.daemon, "br0", name).unwrap()
    }

    fn count(&self, name: &str) -> u64 {
        self.figure(name).unwrap().parse().unwrap()
    }

    fn taken(&self, port: &str) -> u64 {
        taken(&self.daemon, "br0", port).unwrap()
    }

    fn ping(&self, from: usize, to: usize, count: u32) {
        ping_all(&self.hosts[from - 1], &format!("10.79.0.{to}"), count, "0.01").unwrap();
    }
}

#[test]
fn packets_between_cards_never_reach_a_worker() {
    let rig = Rig::start();
    rig.ping(1, 2, 1);
    let before = (rig.taken("v1"), rig.taken("v2"), rig.count("sent to other interfaces"));
    rig.ping(1, 2, 100);
    assert_eq!((rig.taken("v1"), rig.taken("v2")), (before.0, before.1));
    assert!(rig.count("sent to other interfaces") >= before.2 + 200);

    // What the rules deny is dropped there, and what they permit is counted as if the worker had done it.
    let server = "10.79.0.2";
    let blocked = rig.hosts[0].run(&["timeout", "0.5", "bash", "-c", "echo >/dev/tcp/10.79.0.2/5201"]);
    blocked.unwrap_err();
    assert!(rig.count("dropped") > 0);
    let rule = "rules hdr.ipv4.protocol=6 hdr.ports.$valid$=1 hdr.ports.dst=5201..5201 prio=20 => permit";
    let answers = "rules hdr.ipv4.protocol=6 hdr.ipv4.src=10.79.0.2&&&255.255.255.255 prio=20 => permit";
    for rule in [rule, answers] {
        rig.run(&["p4", "add", "br0", rule]);
    }
    let arrived =
        measure(&rig.hosts[0], &rig.hosts[1], server, &[(5201, &["-t", "1", "-C", "cubic"])]).unwrap();
    assert!(arrived[0].mbits > 10.0, "{arrived:?}");
    assert_eq!((rig.taken("v1"), rig.taken("v2")), (before.0, before.1));
    let entries = rig.run(&["p4", "tables", "br0"]);
    let hits = |rule: &str| {
        let line = entries.lines().find(|line| line.contains(rule)).unwrap_or_else(|| panic!("{entries}"));
        let digits = line.split_once("packets=").unwrap().1.split(|c: char| !c.is_ascii_digit()).next();
        digits.unwrap().parse::<u64>().unwrap()
    };
    assert!(hits("5201..5201") > 1000, "{entries}");
}

#[test]
fn the_worker_has_what_cards_cannot_do() {
    let rig = Rig::start();
    // A TAP is no card: its packets pass the worker in both directions, and are not sent twice.
    rig.wire(1, 3);
    rig.ping(1, 3, 50);
    assert!(rig.count("handed to workers") >= 50);
    assert!(rig.taken("v1") >= 50);

    // An interface that goes away and comes back.
    rig.wire(1, 2);
    rig.ping(1, 2, 5);
    rig.run(&["port", "del", "br0", "v2"]);
    until_runs(&rig.daemon, "br0", "1").unwrap();
    rig.wire(1, 3);
    rig.ping(1, 3, 5);

    // Another logic gets all packets.
    rig.run(&["logic", "set", "br0", "learning"]);
    let before = rig.taken("v1");
    rig.ping(1, 3, 20);
    assert!(rig.taken("v1") >= before + 20);
}

#[test]
fn ports_with_limits_pass_the_worker() {
    let rig = Rig::start();
    rig.run(&["port", "set", "br0", "v1", "--police", "1Gbit"]);
    until_runs(&rig.daemon, "br0", "2").unwrap();
    let before = rig.taken("v1");
    rig.ping(1, 2, 20);
    assert!(rig.taken("v1") >= before + 20);
    rig.run(&["port", "set", "br0", "v1", "--police", "off"]);
    until_runs(&rig.daemon, "br0", "1, 2").unwrap();
}

#[test]
fn entries_that_a_card_cannot_hold_move_the_program_to_the_worker() {
    let rig = Rig::start();
    rig.ping(1, 2, 5);
    // Each with a mask of its own.
    for i in 0..130_u32 {
        let mask = 0x8000_0000 | i << 1;
        let rule = format!("rules hdr.ipv4.dst=0x80000000&&&{mask:#x} prio={} => deny", 100 + i);
        rig.run(&["p4", "add", "br0", &rule]);
    }
    let reason = rig.figure("runs in XDP").unwrap();
    let (place, what) = reason.split_once(": table ").unwrap();
    assert!(place.starts_with("no: acl.p4:"), "{reason}");
    assert!(what.starts_with("Filter.rules: entries with more than 128 different masks"), "{reason}");
    let before = rig.taken("v1");
    rig.ping(1, 2, 20);
    assert!(rig.taken("v1") >= before + 20);
}

#[test]
fn line_cards_in_the_kernel_are_one_switch() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary("mswitch", "MSWITCH_BIN").unwrap());
    command.args(["p4", "split"]).arg(example("acl.p4")).args(["--cards", "1", "2", "--output"]);
    assert!(command.arg(folder.path()).status().unwrap().success());

    let machine = Netns::new().unwrap();
    let hosts: [Netns; 2] = std::array::from_fn(|_| Netns::new().unwrap());
    // The fabric of two cards is a cable.
    machine.run(&["ip", "link", "add", "l1", "type", "veth", "peer", "name", "l2"]).unwrap();
    let mut text = String::new();
    for (number, host) in (1..).zip(&hosts) {
        let (end, link, other) = (format!("v{number}"), format!("l{number}"), 3 - number);
        machine.run(&["ip", "link", "set", &link, "up"]).unwrap();
        connect(&machine, &end, host, &format!("10.79.1.{number}")).unwrap();
        let program = folder.path().join(format!("card{number}.p4"));
        text += &config::bridge(&format!("card{number}"), &format!("p4:{}", program.display()));
        text += &format!("params = {{ xdp = \"on\", link = 500, behind-link = \"{other}\" }}\n");
        text += &(port(&machine, &end, number) + &port(&machine, &link, 500));
    }
    let daemon = Daemon::start(&text).unwrap();
    for number in [1, 2] {
        let card = format!("card{number}");
        until_runs(&daemon, &card, &format!("{number}, 500")).unwrap();
        daemon.run(&["p4", "add", &card, "rules hdr.ipv4.protocol=1 prio=10 => permit"]).unwrap();
        let wire = format!("wires std.ingress_port={number} => to(port={})", 3 - number);
        daemon.run(&["p4", "add", &card, &wire]).unwrap();
    }
    ping_all(&hosts[0], "10.79.1.2", 1, "0.01").unwrap();
    let before = [("card1", "v1"), ("card1", "l1"), ("card2", "v2"), ("card2", "l2")]
        .map(|(card, port)| (card, port, taken(&daemon, card, port).unwrap()));
    ping_all(&hosts[0], "10.79.1.2", 100, "0.01").unwrap();
    for (card, port, packets) in before {
        assert_eq!(taken(&daemon, card, port).unwrap(), packets, "{card} {port}");
    }
    let sent = figure(&daemon, "card1", "sent to other interfaces").unwrap().unwrap().parse::<u64>().unwrap();
    assert!(sent >= 200, "{sent}");
}

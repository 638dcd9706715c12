//! A P4 program in the kernel: hosts behind veth interfaces talk by XDP, and the worker gets what cards cannot do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use e2e::iperf::measure;
use e2e::{Daemon, Netns, config, ping_all, unique, until};

const LIMIT: Duration = Duration::from_secs(20);

/// Hosts 10.79.0.1 and 10.79.0.2 behind veth interfaces, ports 1 and 2, and 10.79.0.3 behind a TAP, port 3.
struct Rig {
    // Dropped in this order: the daemon, then namespaces.
    daemon: Daemon,
    hosts: [Netns; 3],
    _machine: Netns,
}

impl Rig {
    fn start() -> Rig {
        let machine = Netns::new().unwrap();
        let hosts: [Netns; 3] = std::array::from_fn(|_| Netns::new().unwrap());
        let mut ports = String::new();
        for (i, host) in hosts.iter().take(2).enumerate() {
            let (end, number) = (format!("v{}", i + 1), i + 1);
            machine
                .run(&[
                    "ip",
                    "link",
                    "add",
                    &end,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    "eth0",
                    "netns",
                    host.name(),
                ])
                .unwrap();
            machine.run(&["ip", "link", "set", &end, "up"]).unwrap();
            host.run(&["ip", "addr", "add", &format!("10.79.0.{number}/24"), "dev", "eth0"]).unwrap();
            host.run(&["ip", "link", "set", "eth0", "up"]).unwrap();
            // A veth takes packets from XDP only while its other end collects them, and XDP completes no checksums.
            host.run(&["ethtool", "-K", "eth0", "gro", "on", "tx", "off"]).unwrap();
            let more = format!("driver = \"af-xdp\"\np4-port = {number}\n");
            ports += &config::netdev(&end, &end, machine.name(), &more);
        }
        ports += &config::tap("t3", &unique("t"), hosts[2].name(), &["10.79.0.3/24"], "p4-port = 3\n");
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/p4/acl.p4");
        let bridge = config::bridge("br0", &format!("p4:{}", program.canonicalize().unwrap().display()));
        let daemon = Daemon::start(&(bridge + "params = { xdp = \"on\" }\n" + &ports)).unwrap();
        for port in ["v1", "v2", "t3"] {
            daemon.wait_up("br0", port).unwrap();
        }
        let rig = Rig { daemon, hosts, _machine: machine };
        rig.run(&["p4", "add", "br0", "rules hdr.ipv4.protocol=1 prio=10 => permit"]);
        rig.wire(1, 2);
        until("the program at both interfaces", LIMIT, || {
            Ok((rig.figure("runs in XDP").as_deref() == Some("yes, ports: 1, 2")).then_some(()))
        })
        .unwrap();
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

    /// A figure of the card, in `logic show`.
    fn figure(&self, name: &str) -> Option<String> {
        let shown = self.daemon.json(&["logic", "show", "br0"]).unwrap();
        let tables = shown["tables"].as_array().unwrap();
        let card = tables.iter().find(|table| table["name"] == "card")?;
        let rows = card["rows"].as_array().unwrap().iter().map(|row| {
            let cells = row["cells"].as_array().unwrap_or_else(|| row.as_array().unwrap());
            [0, 1].map(|i| cells[i].as_str().unwrap().to_owned())
        });
        rows.into_iter().find(|[figure, _]| figure == name).map(|[_, value]| value)
    }

    fn count(&self, name: &str) -> u64 {
        self.figure(name).unwrap().parse().unwrap()
    }

    /// Packets that workers took in from a port.
    fn taken(&self, port: &str) -> u64 {
        let shown = self.daemon.json(&["port", "show", "br0", port]).unwrap();
        shown["totals"]["rx"]["packets"].as_u64().unwrap_or_else(|| panic!("{shown}"))
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
    until("port 1 alone", LIMIT, || {
        Ok((rig.figure("runs in XDP").as_deref() == Some("yes, ports: 1")).then_some(()))
    })
    .unwrap();
    rig.wire(1, 3);
    rig.ping(1, 3, 5);
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
    assert!(
        reason.starts_with("no: table Filter.rules: entries with more than 128 different masks"),
        "{reason}"
    );
    let before = rig.taken("v1");
    rig.ping(1, 2, 20);
    assert!(rig.taken("v1") >= before + 20);
}

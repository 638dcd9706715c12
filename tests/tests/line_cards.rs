//! A P4 program split into line cards around a fabric: hosts at the cards' ports talk as at one switch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use e2e::iperf::measure;
use e2e::{Daemon, Netns, binary, config, ping_all, unique};

/// Hosts 192.0.2.1 to 192.0.2.3 at ports 1 to 3: two on the first card, one on the second.
struct Rig {
    // Dropped in this order: the daemon, then namespaces.
    daemon: Daemon,
    hosts: [Netns; 3],
    split: String,
}

impl Rig {
    fn start(program: &str) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/p4");
        let [program, case] = ["p4", "stf"].map(|kind| examples.join(program).with_extension(kind));
        let mut command = Command::new(binary("mswitch", "MSWITCH_BIN").unwrap());
        command.args(["p4", "split"]).arg(program).args(["--cards", "1-2", "3", "--test"]).arg(case);
        let output = command.arg("--output").arg(folder.path()).output().unwrap();
        let [split, errors] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{split}{errors}");

        let hosts: [Netns; 3] = std::array::from_fn(|_| Netns::new().unwrap());
        let port = |number: usize| {
            let address = format!("192.0.2.{number}/24");
            let more = format!("p4-port = {number}\n");
            let host = hosts[number - 1].name();
            config::tap(&format!("h{number}"), &unique("l"), host, &[&address], &more)
        };
        let written = std::fs::read_to_string(folder.path().join("switch.toml")).unwrap();
        let text = written.split_inclusive("p4-port = 500\n").enumerate().map(|(at, part)| match at {
            0 => part.to_owned() + &port(1) + &port(2),
            1 => part.to_owned() + &port(3),
            _ => part.to_owned(),
        });
        let daemon = Daemon::start(&text.collect::<String>()).unwrap();
        for (bridge, port) in [("card1", "h1"), ("card1", "h2"), ("card2", "h3")] {
            daemon.wait_up(bridge, port).unwrap();
        }
        Rig { daemon, hosts, split }
    }

    fn run(&self, words: &[&str]) {
        self.daemon.run(words).unwrap();
    }

    /// Packets that came from an element's link into the fabric.
    fn from(&self, element: &str) -> u64 {
        let shown = self.daemon.json(&["port", "show", "fabric", element]).unwrap();
        let packets = &shown["totals"]["rx"]["packets"];
        packets.as_u64().unwrap_or_else(|| panic!("{shown}"))
    }

    /// Whether TCP passes between two hosts, at whatever rate.
    fn carries_tcp(&self, from: usize, to: usize) {
        let address = format!("192.0.2.{to}");
        let arrived = measure(
            &self.hosts[from - 1],
            &self.hosts[to - 1],
            &address,
            &[(5201, &["-t", "1", "-C", "cubic"])],
        );
        let arrived = arrived.unwrap();
        assert!(arrived[0].mbits > 10.0, "{arrived:?}");
    }
}

#[test]
fn cards_are_one_switch() {
    let rig = Rig::start("l2");
    assert!(rig.split.contains("the cards do what the program does"), "{}", rig.split);
    // All stations are unknown: both cards flood, the first one to its own ports and through the fabric.
    for card in ["card1", "card2"] {
        rig.run(&["p4", "add", card, "multicast 1 ports=1,2,3"]);
    }
    ping_all(&rig.hosts[0], "192.0.2.3", 20, "0.01").unwrap();
    ping_all(&rig.hosts[2], "192.0.2.2", 20, "0.01").unwrap();
    rig.carries_tcp(1, 3);
    rig.carries_tcp(3, 2);

    // Known stations: the fabric carries only what is for another card.
    for (port, host) in (1..).zip(&rig.hosts) {
        let links = host.run(&["ip", "-o", "link", "show", "type", "tun"]).unwrap();
        let mac = &links.split_once("link/ether ").unwrap().1[..17];
        for card in ["card1", "card2"] {
            let entry = format!("destinations hdr.ethernet.dst={mac} => forward(port={port})");
            rig.run(&["p4", "add", card, &entry]);
        }
    }
    ping_all(&rig.hosts[0], "192.0.2.2", 1, "0.01").unwrap();
    let before = (rig.from("card1"), rig.from("card2"));
    ping_all(&rig.hosts[0], "192.0.2.2", 50, "0.005").unwrap();
    let local = (rig.from("card1") - before.0, rig.from("card2") - before.1);
    // Hosts ask for addresses now and then.
    assert!(local.0 < 20 && local.1 < 20, "{local:?}");
    let before = (rig.from("card1"), rig.from("card2"));
    ping_all(&rig.hosts[0], "192.0.2.3", 50, "0.005").unwrap();
    let carried = (rig.from("card1") - before.0, rig.from("card2") - before.1);
    assert!(carried.0 >= 50 && carried.1 >= 50, "{carried:?}");
    rig.carries_tcp(2, 3);
}

#[test]
fn shared_state_is_at_the_cpu() {
    let rig = Rig::start("heavy_hitters");
    assert!(rig.split.contains("register `Count.row0`"), "{}", rig.split);
    for (from, to) in [(1, 3), (3, 1)] {
        rig.run(&["p4", "add", "cpu", &format!("wires std.ingress_port={from} => to(port={to})")]);
    }
    ping_all(&rig.hosts[0], "192.0.2.3", 50, "0.005").unwrap();
    let registers = rig.daemon.run(&["p4", "registers", "cpu"]).unwrap();
    // Requests, and answers: two flows, each in two rows of the sketch, though they came to two cards.
    let counts = registers.lines().filter_map(|line| line.split_once("value=")?.1.parse::<u32>().ok());
    assert_eq!(counts.filter(|count| *count >= 50).count(), 4, "{registers}");
    rig.carries_tcp(1, 3);
    assert!(rig.from("cpu") > 100);

    // Without its port, a card sends nothing in its place to the fabric: only carriers leave through the link.
    rig.run(&["port", "del", "card2", "h3"]);
    rig.hosts[0].run(&["ping", "-n", "-c", "3", "-i", "0.05", "-W", "0.3", "192.0.2.3"]).unwrap_err();
    let before = rig.from("card2");
    rig.hosts[0].run(&["ping", "-n", "-c", "3", "-i", "0.05", "-W", "0.3", "192.0.2.3"]).unwrap_err();
    assert_eq!(rig.from("card2"), before);
}

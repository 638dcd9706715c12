//! A P4 program in the kernel: hosts behind veth interfaces talk by XDP, and the worker gets what cards cannot do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use e2e::cards::{connect, figure, port, taken, until_runs};
use e2e::iperf::measure;
use e2e::{Daemon, Netns, binary, config, ping_all, unique};

/// Hosts 10.79.0.1 and 10.79.0.2 behind veth interfaces, ports 1 and 2, and 10.79.0.3 behind a TAP, port 3. Bystanders,
/// 10.79.2.1 and 10.79.2.2, are at the interfaces of another bridge, which runs a program in XDP, too.
struct Rig {
    // Dropped in this order: the daemon, then namespaces.
    daemon: Daemon,
    hosts: [Netns; 3],
    bystanders: [Netns; 2],
    _machine: Netns,
}

/// Ends the bystanders' traffic also if the test panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The errors of a command that was refused.
fn refused(output: Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// An example's program.
fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/p4").join(name).canonicalize().unwrap()
}

impl Rig {
    fn start() -> Rig {
        Rig::with(&example("acl.p4"))
    }

    /// Starts with a program that has the tables `rules` and `wires`.
    fn with(program: &Path) -> Rig {
        let rig = Rig::idle(program);
        rig.run(&["p4", "add", "br0", "rules hdr.ipv4.protocol=1 prio=10 => permit"]);
        rig.wire(1, 2);
        until_runs(&rig.daemon, "br0", "1, 2").unwrap();
        rig
    }

    /// Starts without entries.
    fn idle(program: &Path) -> Rig {
        let machine = Netns::new().unwrap();
        let hosts: [Netns; 3] = std::array::from_fn(|_| Netns::new().unwrap());
        let bystanders: [Netns; 2] = std::array::from_fn(|_| Netns::new().unwrap());
        let ports = |hosts: &[Netns], name: &str, net: u32| {
            let ports = (1..).zip(hosts).map(|(number, host)| {
                let end = format!("{name}{number}");
                connect(&machine, &end, host, &format!("10.79.{net}.{number}")).unwrap();
                port(&machine, &end, number)
            });
            ports.collect::<String>()
        };
        let bridge = |name: &str, program: &Path| {
            config::bridge(name, &format!("p4:{}", program.display())) + "params = { xdp = \"on\" }\n"
        };
        let text = bridge("br0", program)
            + &ports(&hosts[..2], "v", 0)
            + &config::tap("t3", &unique("t"), hosts[2].name(), &["10.79.0.3/24"], "p4-port = 3\n")
            + &bridge("br1", &example("acl.p4"))
            + &ports(&bystanders, "b", 2);
        let daemon = Daemon::start(&text).unwrap();
        for port in ["v1", "v2", "t3"] {
            daemon.wait_up("br0", port).unwrap();
        }
        let rig = Rig { daemon, hosts, bystanders, _machine: machine };
        rig.run(&["p4", "add", "br1", "rules hdr.ipv4.protocol=1 prio=10 => permit"]);
        rig.wire_at("br1", 1, 2);
        until_runs(&rig.daemon, "br1", "1, 2").unwrap();
        rig
    }

    /// Switches XDP off and on for an example.
    fn reinstall(&self, name: &str) {
        let program = format!("p4:{}", example(name).display());
        for param in ["xdp=off", "xdp=on"] {
            self.run(&["logic", "set", "br0", &program, "--param", param]);
        }
    }

    /// Calls `fault` while hosts 1 and 2, and the bystanders, ping each other without loss.
    fn without_loss(&self, fault: impl FnOnce()) {
        let over = AtomicBool::new(false);
        let until_over = |from: &Netns, to: &str| {
            ping_all(from, to, 20, "0.01").unwrap();
            while !over.load(Ordering::Relaxed) {
                ping_all(from, to, 20, "0.01").unwrap();
            }
        };
        std::thread::scope(|scope| {
            let _over = Over(&over);
            scope.spawn(|| until_over(&self.bystanders[0], "10.79.2.2"));
            scope.spawn(|| until_over(&self.hosts[0], "10.79.0.2"));
            fault();
        });
        until_runs(&self.daemon, "br1", "1, 2").unwrap();
    }

    fn run(&self, words: &[&str]) -> String {
        self.daemon.run(words).unwrap()
    }

    /// Runs a command that must be refused; returns its errors.
    fn refused(&self, words: &[&str]) -> String {
        refused(self.daemon.cli(words).unwrap())
    }

    /// Connects two ports; the first may be connected already.
    fn wire(&self, one: u32, other: u32) {
        self.wire_at("br0", one, other);
    }

    fn wire_at(&self, bridge: &str, one: u32, other: u32) {
        for (from, to) in [(one, other), (other, one)] {
            let entry = format!("wires std.ingress_port={from} => to(port={to})");
            if self.daemon.run(&["p4", "mod", bridge, &entry]).is_err() {
                self.run(&["p4", "add", bridge, &entry]);
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

    /// Cells of registers that are not 0, in the order of values.
    fn registers(&self) -> Vec<u64> {
        let shown = self.run(&["p4", "registers", "br0"]);
        let values = shown.lines().filter_map(|line| line.split_once("value=")?.1.parse().ok());
        let mut values: Vec<u64> = values.collect();
        values.sort_unstable();
        values
    }

    /// A counter of the logic.
    fn counter(&self, name: &str) -> u64 {
        let shown = self.daemon.json(&["logic", "show", "br0"]).unwrap();
        let counters = shown["counters"].as_array().unwrap();
        let found = counters.iter().find(|counter| counter["name"] == name);
        found.and_then(|counter| counter["value"].as_u64()).unwrap_or_else(|| panic!("{shown}"))
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
    let rule = |i: u32| {
        // Each with a mask of its own.
        let mask = 0x8000_0000 | i << 1;
        format!("rules hdr.ipv4.dst=0x80000000&&&{mask:#x} prio={}", 100 + i)
    };
    rig.without_loss(|| {
        for i in 0..130_u32 {
            rig.run(&["p4", "add", "br0", &(rule(i) + " => deny")]);
        }
    });
    let reason = rig.figure("runs in XDP").unwrap();
    let (place, what) = reason.split_once(": table ").unwrap();
    assert!(place.starts_with("no: acl.p4:"), "{reason}");
    assert!(what.starts_with("Filter.rules: entries with more than 128 different masks"), "{reason}");
    let before = rig.taken("v1");
    rig.ping(1, 2, 20);
    assert!(rig.taken("v1") >= before + 20);

    // It stays there, with fewer entries too, until XDP is switched off and on.
    rig.without_loss(|| {
        for i in 0..10 {
            rig.run(&["p4", "del", "br0", &rule(i)]);
        }
        assert_eq!(rig.figure("runs in XDP"), Some(reason));
        rig.reinstall("acl.p4");
        until_runs(&rig.daemon, "br0", "1, 2").unwrap();
    });
    let before = rig.taken("v1");
    rig.ping(1, 2, 20);
    assert_eq!(rig.taken("v1"), before);
}

#[test]
fn a_full_map_moves_the_program_to_the_worker() {
    // A range is up to 62 entries of the map, which has room for 32 for each of the table's.
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(example("acl.p4")).unwrap();
    let text = text.replace("hdr.ipv4.dst: ternary", "hdr.ipv4.dst: range");
    let program = folder.path().join("ranges.p4");
    fs::write(&program, text.replace("size = 4096", "size = 4")).unwrap();
    let rig = Rig::with(&program);
    rig.without_loss(|| {
        for protocol in [2, 3, 4] {
            let rule =
                format!("rules hdr.ipv4.dst=0.0.0.1..255.255.255.254 hdr.ipv4.protocol={protocol} prio=20");
            rig.run(&["p4", "add", "br0", &(rule + " => deny")]);
        }
    });
    let reason = rig.figure("runs in XDP").unwrap();
    let (place, what) = reason.split_once(": table ").unwrap();
    assert!(place.starts_with("no: ranges.p4:"), "{reason}");
    assert_eq!(what, "Filter.rules: its map is full, which has 128 entries; a range takes several");
    let before = rig.taken("v1");
    rig.ping(1, 2, 20);
    assert!(rig.taken("v1") >= before + 20);
}

#[test]
fn what_cannot_be_split_or_installed_leaves_cards_running() {
    let rig = Rig::start();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("cards");
    let text = fs::read_to_string(example("acl.p4")).unwrap();
    // A program with a statement in place of the one that chooses the port, or with another line.
    let with = |name: &str, from: &str, to: &str| {
        let (program, changed) = (folder.path().join(name), text.replacen(from, to, 1));
        assert_ne!(changed, text, "{from}");
        let line = 1 + changed[..changed.find(to).unwrap()].matches('\n').count();
        fs::write(&program, changed).unwrap();
        (program, format!("{name}:{line}:"))
    };
    let port = "std.egress_spec = port;";
    let (program, card) = (format!("p4:{}", example("acl.p4").display()), rig.taken("v1"));
    rig.ping(1, 2, 1);
    rig.without_loss(|| {
        for ((program, place), what) in [
            (with("short.p4", port, "truncate(100);"), "a program with `truncate` cannot be split"),
            (
                with("port.p4", port, "std.ingress_port = port;"),
                "a program that sets `ingress_port` cannot be split",
            ),
            (
                with("control.p4", "header ipv4_t", "@controller_header(\"packet_in\")\nheader ipv4_t"),
                "a program with headers for controllers cannot be split",
            ),
        ] {
            let mut command = Command::new(binary("mswitch", "MSWITCH_BIN").unwrap());
            command.args(["p4", "split"]).arg(program).args(["--cards", "1", "2", "--output"]).arg(&output);
            let errors = refused(command.output().unwrap());
            assert!(errors.contains(&place) && errors.contains(what), "{errors}");
            assert!(!output.exists(), "{what}");
        }
        let (broken, place) = with("broken.p4", port, "std.egress_spec = ports;");
        let errors = rig.refused(&["logic", "set", "br0", &format!("p4:{}", broken.display())]);
        assert!(errors.contains(&place), "{errors}");
        for (param, what) in [("link=x", "link"), ("behind-link=2-", "behind-link"), ("xdp=2", "xdp")] {
            let errors =
                rig.refused(&["logic", "set", "br0", &program, "--param", "xdp=on", "--param", param]);
            assert!(errors.contains(what), "{errors}");
        }
    });
    until_runs(&rig.daemon, "br0", "1, 2").unwrap();
    assert_eq!(rig.taken("v1"), card);
}

#[test]
fn registers_count_each_packet_once_wherever_it_passes() {
    let rig = Rig::idle(&example("heavy_hitters.p4"));
    until_runs(&rig.daemon, "br0", "1, 2").unwrap();
    rig.wire(1, 2);
    // From interface to interface, no worker sees it.
    let before = (rig.taken("v1"), rig.taken("v2"));
    rig.ping(1, 2, 100);
    assert_eq!(rig.registers(), [100; 4], "two flows, in two rows");
    assert_eq!((rig.taken("v1"), rig.taken("v2")), before);

    // To another port, XDP finishes packets and the worker delivers them; answers meet the program in the worker.
    rig.wire(1, 3);
    rig.ping(1, 3, 70);
    assert_eq!(rig.registers(), [70, 70, 70, 70, 100, 100, 100, 100]);
    assert!(rig.count("finished for workers") >= 70);
    assert!(rig.taken("v1") >= before.0 + 70);
    assert_eq!(rig.count("handed to workers"), 0);

    // A controller writes what XDP reads, and gets digests from there.
    rig.wire(1, 2);
    let (digests, taken) = (rig.counter("upcalls"), rig.taken("v1"));
    rig.run(&["p4", "mod", "br0", "limits default => limit(packets=150)"]);
    rig.ping(1, 2, 100);
    assert_eq!(rig.registers(), [70, 70, 70, 70, 200, 200, 200, 200]);
    // One of each flow; the packets that made them pass the worker.
    assert_eq!((rig.counter("upcalls"), rig.taken("v1")), (digests + 2, taken + 1));
    for row in ["row0", "row1"] {
        rig.run(&["p4", "mod", "br0", &format!("register {row} value=0")]);
    }
    rig.ping(1, 2, 10);
    assert_eq!(rig.registers(), [10; 4]);

    // The next program of the same shape takes the registers over.
    rig.without_loss(|| {
        rig.reinstall("heavy_hitters.p4");
        until_runs(&rig.daemon, "br0", "1, 2").unwrap();
    });
    assert!(rig.registers().iter().all(|count| *count > 10));
}

#[test]
fn a_stateful_firewall_runs_in_xdp() {
    let rig = Rig::idle(&example("firewall.p4"));
    for entry in ["1 => to_outside(port=2)", "2 => to_inside(port=1)"] {
        rig.run(&["p4", "add", "br0", &format!("sides std.ingress_port={entry}")]);
    }
    until_runs(&rig.daemon, "br0", "1, 2").unwrap();
    let measured = |from: usize, to: usize| {
        let address = format!("10.79.0.{to}");
        measure(&rig.hosts[from - 1], &rig.hosts[to - 1], &address, &[(5201, &["-t", "1", "-C", "cubic"])])
    };
    let connect = ["timeout", "0.5", "bash", "-c", "echo >/dev/tcp/10.79.0.1/5201"];
    rig.hosts[1].run(&connect).unwrap_err();
    assert_eq!(rig.registers(), [0; 0]);
    let arrived = measured(1, 2).unwrap();
    assert!(arrived[0].mbits > 10.0, "{arrived:?}");
    // Two connections of iperf, each a bit in each row.
    assert_eq!(rig.registers(), [1; 4]);
    rig.hosts[1].run(&connect).unwrap_err();
    assert!(rig.count("dropped") > 0);
    assert_eq!((rig.taken("v1"), rig.taken("v2"), rig.count("handed to workers")), (0, 0, 0));
}

#[test]
fn xdp_and_the_worker_take_tokens_from_the_same_meter() {
    let folder = tempfile::tempdir().unwrap();
    let metered = "meter(1, MeterType.packets) rate;
        action permit() {
            bit<32> color;
            rate.execute_meter(0, color);
            if (color == 2) { mark_to_drop(std); exit; }
        }";
    let text = fs::read_to_string(example("acl.p4")).unwrap().replace("action permit() {}", metered);
    let program = folder.path().join("metered.p4");
    fs::write(&program, text).unwrap();
    let rig = Rig::with(&program);
    // Without rates, all are green.
    rig.ping(1, 2, 30);
    let answered = |to: usize, count: &str| {
        let address = format!("10.79.0.{to}");
        let words = ["-n", "-q", "-i", "0.01", "-W", "0.2", "-c", count, &address];
        let output = rig.hosts[0].command(&[&["ping"], &words[..]].concat()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (before, _) = text.split_once(" received").unwrap_or_else(|| panic!("{text}"));
        before.rsplit(' ').next().unwrap().parse::<u32>().unwrap()
    };
    // A request and its answer are two; in the time of the test, one or a few more come.
    rig.run(&["p4", "mod", "br0", "meter rate[0] cir=1 cburst=40 pir=1 pburst=40"]);
    let taken = (rig.taken("v1"), rig.taken("v2"));
    let passed = answered(2, "60");
    assert!((20..30).contains(&passed), "{passed}");
    assert_eq!((rig.taken("v1"), rig.taken("v2")), taken);
    // Requests that XDP has metered, and answers that the worker meters.
    rig.wire(1, 3);
    rig.run(&["p4", "mod", "br0", "meter rate[0] cir=1 cburst=40 pir=1 pburst=40"]);
    let passed = answered(3, "60");
    assert!((20..30).contains(&passed), "{passed}");
    assert!(rig.count("finished for workers") >= 20);
    let shown = rig.run(&["p4", "meters", "br0"]);
    assert!(shown.contains("cir=1 cburst=40 pir=1 pburst=40"), "{shown}");
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

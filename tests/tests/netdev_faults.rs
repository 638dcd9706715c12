//! Faults of netdev ports: interfaces that are missing, removed, renamed, down, moved, or belong to others; deleted
//! namespaces; a dying daemon. Bystanders on the same bridge lose nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use e2e::{Daemon, Netns, config, ping_all, unique, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(30);

/// A machine with the interface `va`, which is a port's; its other end is `eth0` of the host `a`, at 10.79.0.1. `c` and
/// `d` are bystanders at TAP ports of the same bridge, and `a` pings `c`.
struct Lab {
    daemon: Daemon,
    machine: Netns,
    a: Netns,
    c: Netns,
    d: Netns,
}

const A: &str = "10.79.0.1";
/// Address of the machine itself at `va`.
const MACHINE: &str = "10.79.0.9";
const C: &str = "10.79.0.3";
const D: &str = "10.79.0.4";

impl Lab {
    /// Starts a daemon with the port, whose interface exists if `present`.
    fn new(present: bool) -> Lab {
        let [machine, a, c, d] = [(); 4].map(|()| Netns::new().unwrap());
        if present {
            add_va(&machine, &a);
        }
        let ports = config::netdev("a", "va", machine.name(), "")
            + &config::tap("c", &unique("t"), c.name(), &[&format!("{C}/24")], "")
            + &config::tap("d", &unique("t"), d.name(), &[&format!("{D}/24")], "");
        let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
        daemon.wait_up("br0", "d").unwrap();
        Lab { daemon, machine, a, c, d }
    }

    /// Calls `fault` while the bystanders ping each other without loss.
    fn with_bystanders(&self, fault: impl FnOnce()) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let bystanders = scope.spawn(|| {
                let mut rounds = 0;
                while !over.load(Ordering::Relaxed) || rounds == 0 {
                    ping_all(&self.c, D, 20, "0.02").unwrap();
                    rounds += 1;
                }
            });
            let _over = Over(&over);
            fault();
            over.store(true, Ordering::Relaxed);
            bystanders.join().unwrap();
        });
    }

    fn wait_down(&self, reason: &str) {
        let found = self.daemon.wait_down("br0", "a", reason).unwrap();
        assert_eq!(found, reason);
    }

    fn wait_up(&self) {
        until("port a to come up", LIMIT, || Ok(self.daemon.port("br0", "a")?.is_up().then_some(())))
            .unwrap();
        self.passes();
    }

    /// Asserts that packets pass both ways.
    fn passes(&self) {
        ping_all(&self.a, C, 3, "0.05").unwrap();
    }

    fn refused(&self, arguments: &[&str]) -> String {
        refused(&self.daemon, arguments)
    }

    fn detail(&self, name: &str) -> String {
        let shown = self.daemon.json(&["port", "show", "br0", "a"]).unwrap();
        let details = shown["details"].as_array().unwrap();
        let found = details.iter().find(|detail| detail["name"] == name);
        found.unwrap_or_else(|| panic!("no {name}: {shown}"))["value"].as_str().unwrap().to_owned()
    }

    fn ip(&self, arguments: &str) {
        ip(&self.machine, arguments);
    }
}

/// Ends the bystanders also if the test panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn refused(daemon: &Daemon, arguments: &[&str]) -> String {
    let output = daemon.cli(arguments).unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap().trim_end().to_owned()
}

fn ip(netns: &Netns, arguments: &str) {
    netns.run(&[&["ip"], &arguments.split(' ').collect::<Vec<_>>()[..]].concat()).unwrap();
}

fn tc(netns: &Netns, arguments: &str) {
    netns.run(&[&["tc"], &arguments.split(' ').collect::<Vec<_>>()[..]].concat()).unwrap();
}

fn add_va(machine: &Netns, a: &Netns) {
    ip(machine, &format!("link add name va type veth peer name eth0 netns {}", a.name()));
    ip(machine, &format!("addr add {MACHINE}/24 dev va"));
    ip(machine, "link set dev va up");
    ip(a, &format!("addr add {A}/24 dev eth0"));
    ip(a, "link set dev eth0 up");
}

/// Returns whether the machine itself answers the host.
fn machine_answers(a: &Netns) -> bool {
    a.command(&["ping", "-n", "-c1", "-W1", MACHINE]).output().unwrap().status.success()
}

/// Waits until it does: after pings without an answer, the kernel pauses before it asks for the address again.
fn wait_machine_answers(a: &Netns) {
    until("the machine itself to answer", Duration::from_secs(5), || Ok(machine_answers(a).then_some(())))
        .unwrap();
}

fn missing(machine: &Netns) -> String {
    format!("interface `va` does not exist in network namespace `{}`; waiting for it", machine.name())
}

#[test]
fn a_missing_interface_is_awaited() {
    let lab = Lab::new(false);
    lab.wait_down(&missing(&lab.machine));
    // A name may be mistyped.
    let netns = lab.machine.name();
    let add = ["port", "add", "br0", "typo", "--type", "netdev", "--netns", netns];
    let added = lab.daemon.cli(&add).unwrap();
    let said = String::from_utf8(added.stderr).unwrap();
    let reason = format!("interface `typo` does not exist in network namespace `{netns}`; waiting for it");
    assert!(added.status.success() && said.contains(&format!("port `typo` is down: {reason}")), "{said}");
    lab.with_bystanders(|| {
        add_va(&lab.machine, &lab.a);
        lab.wait_up();
        lab.ip("link del dev va");
        lab.wait_down(&missing(&lab.machine));
        add_va(&lab.machine, &lab.a);
        lab.wait_up();
    });
    assert!(lab.detail("host").starts_with("cut off by nftables table netdev mswitch-if"));
}

/// Packets that wait for it are dropped; those of other ports pass.
#[test]
fn an_interface_that_goes_away_with_full_queues_harms_no_other() {
    let lab = Lab::new(true);
    lab.wait_up();
    lab.daemon.run(&["port", "set", "br0", "a", "--shape", "1Mbit", "--queueing", "strict"]).unwrap();
    let counter = |counter: &str| {
        let shown = lab.daemon.port("br0", "a").unwrap();
        shown.json()["classes"][0]["waiting"][counter].as_u64().unwrap()
    };
    let waiting = || counter("packets");
    let server = lab.a.start(&["iperf3", "-s"]).unwrap();
    let listens = || Ok(lab.a.run(&["ss", "-Hltn"])?.contains(":5201").then_some(()));
    until("iperf3 to listen", LIMIT, listens).unwrap();
    let flood = ["iperf3", "-u", "-b", "20M", "-t", "60", "-c", A];
    let flood = lab.c.start(&flood).unwrap();
    let is_full = || Ok((waiting() > 100 && counter("queue_full") > 100).then_some(()));
    until("the queue to be full", LIMIT, is_full).unwrap();
    lab.with_bystanders(|| {
        lab.ip("link del dev va");
        lab.wait_down(&missing(&lab.machine));
        assert_eq!(waiting(), 0);
    });
    drop((flood, server));
    add_va(&lab.machine, &lab.a);
    lab.wait_up();
}

#[test]
fn an_interface_that_is_down_or_has_no_carrier_recovers() {
    let lab = Lab::new(true);
    lab.wait_up();
    lab.with_bystanders(|| {
        lab.ip("link set dev va down");
        let netns = lab.machine.name();
        lab.wait_down(&format!(
            "interface `va` is set down in network namespace `{netns}`; `ip -n {netns} link set va up` sets it up"
        ));
        lab.ip("link set dev va up");
        lab.wait_up();
        ip(&lab.a, "link set dev eth0 down");
        lab.wait_down("interface `va` has no carrier: its cable is unplugged, or its peer is down");
        ip(&lab.a, "link set dev eth0 up");
        lab.wait_up();
        // Flapping costs bystanders nothing.
        for _ in 0..100 {
            lab.ip("link set dev va down");
            lab.ip("link set dev va up");
        }
        // The port may still be about to follow the last changes.
        until("packets to pass", LIMIT, || Ok(ping_all(&lab.a, C, 3, "0.05").ok())).unwrap();
    });
}

#[test]
fn a_renamed_interface_is_followed() {
    let lab = Lab::new(true);
    lab.wait_up();
    let index = lab.detail("index");
    lab.with_bystanders(|| {
        lab.ip("link set dev va down");
        lab.ip("link set dev va name other");
        lab.ip("link set dev other up");
        until("the new name to be shown", LIMIT, || Ok((lab.detail("interface") == "other").then_some(())))
            .unwrap();
        lab.wait_up();
    });
    assert_eq!(lab.detail("index"), index);
    assert!(!machine_answers(&lab.a), "the host's own stack still gets the packets");
    // An interface that takes the old name is another one.
    lab.ip("link add name va type veth peer name vz");
    lab.passes();
    assert_eq!(lab.detail("index"), index);
}

#[test]
fn a_changed_mtu_is_followed() {
    let lab = Lab::new(true);
    lab.wait_up();
    lab.with_bystanders(|| {
        lab.ip("link set dev va mtu 9000");
        ip(&lab.a, "link set dev eth0 mtu 9000");
        until("the new MTU to be shown", LIMIT, || Ok((lab.detail("mtu") == "9000").then_some(()))).unwrap();
        lab.passes();
        // The port learns it while the link is down.
        lab.ip("link set dev va down");
        lab.daemon.wait_down("br0", "a", "is set down").unwrap();
        lab.ip("link set dev va mtu 1000");
        until("the new MTU to be shown", LIMIT, || Ok((lab.detail("mtu") == "1000").then_some(()))).unwrap();
        lab.ip("link set dev va up");
        lab.wait_up();
        // A frame that the interface does not take is dropped, and those behind it are not.
        let dropped = || lab.daemon.port("br0", "a").unwrap().dropped();
        let before = dropped();
        let ping = ["ping", "-n", "-c2", "-i0.1", "-W1", "-s1400", A];
        let output = lab.c.command(&ping).output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        assert!(dropped() >= before + 2);
        lab.passes();
    });
}

/// The interface's queue is shaped to a rate far below the traffic.
#[test]
fn a_full_queue_of_an_interface_drops_and_counts() {
    let lab = Lab::new(true);
    lab.wait_up();
    lab.ip("addr flush dev va");
    // 3,000 bytes wait; packets beyond them are refused.
    tc(&lab.machine, "qdisc add dev va root tbf rate 1mbit burst 2000 limit 3000");
    let full = || {
        let port = lab.daemon.json(&["port", "stats", "br0", "a"]).unwrap();
        port["ports"][0]["totals"]["tx"]["drops"]["ring-full"].as_u64().unwrap_or(0)
    };
    assert_eq!(full(), 0);
    lab.with_bystanders(|| {
        let flood = ["ping", "-n", "-q", "-l", "300", "-c", "300", "-W", "1", "-s", "1000", A];
        let output = lab.c.command(&flood).output().unwrap();
        // Some come through.
        assert!(output.status.success(), "{output:?}");
    });
    assert!(full() > 100, "{}", full());
    tc(&lab.machine, "qdisc del dev va root");
    lab.passes();
}

/// The switch does not take packets for a while.
#[test]
fn packets_that_the_kernel_dropped_are_shown() {
    for driver in ["af-packet", "af-xdp"] {
        let lab = Lab::new(true);
        let path = lab.daemon.path("config.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.replace("interface = \"va\"", &format!("interface = \"va\"\ndriver = \"{driver}\""));
        std::fs::write(&path, text).unwrap();
        lab.daemon.run(&["config", "apply", &path]).unwrap();
        lab.wait_up();
        assert!(lab.detail("driver").starts_with(driver), "{}", lab.detail("driver"));
        assert_eq!(lab.detail("kernel-drops"), "0");
        let process = Pid::from_raw(lab.daemon.pid() as i32).unwrap();
        kill_process(process, Signal::STOP).unwrap();
        let flood = ["ping", "-n", "-q", "-l", "5000", "-c", "5000", "-W", "0.1", C];
        let output = lab.a.command(&flood).output();
        kill_process(process, Signal::CONT).unwrap();
        // Those that the ring held are answered.
        output.unwrap();
        until("drops to be shown", LIMIT, || Ok((lab.detail("kernel-drops") != "0").then_some(()))).unwrap();
        // The ring may still be full.
        until("packets to pass", LIMIT, || Ok(ping_all(&lab.a, C, 3, "0.05").ok())).unwrap();
    }
}

#[test]
fn an_interface_that_is_moved_away_is_awaited() {
    let lab = Lab::new(true);
    lab.wait_up();
    lab.with_bystanders(|| {
        lab.ip(&format!("link set dev va netns {}", lab.d.name()));
        lab.wait_down(&missing(&lab.machine));
        ip(&lab.d, &format!("link set dev va netns {}", lab.machine.name()));
        lab.ip("link set dev va up");
        lab.wait_up();
    });
}

#[test]
fn an_interface_of_a_kernel_bridge_is_refused() {
    let lab = Lab::new(true);
    lab.wait_up();
    lab.ip("link add name kbr type bridge");
    let netns = lab.machine.name().to_owned();
    let refusal = format!(
        "interface `va` belongs to bridge `kbr`; remove it there with `ip -n {netns} link set va nomaster`"
    );
    lab.with_bystanders(|| {
        lab.ip("link set dev va master kbr");
        lab.wait_down(&refusal);
    });
    lab.ip("link set dev va nomaster");
    lab.wait_up();
    // Before it is attached, the command says so.
    lab.daemon.run(&["port", "del", "br0", "a"]).unwrap();
    lab.ip("link set dev va master kbr");
    let add = ["port", "add", "br0", "va", "--type", "netdev", "--netns", lab.machine.name()];
    assert_eq!(lab.refused(&add), format!("mswitch: bridge \"br0\", port \"va\": {refusal}"));
    lab.ip("link set dev va nomaster");
    lab.daemon.run(&add).unwrap();
    lab.daemon.wait_up("br0", "va").unwrap();
    lab.passes();
}

/// The nftables table of an interface cannot be made: its name is taken.
#[test]
fn an_interface_whose_table_others_have_is_awaited() {
    let lab = Lab::new(true);
    lab.wait_up();
    let table = format!("mswitch-if{}", lab.detail("index"));
    lab.ip("link add name kbr type bridge");
    lab.with_bystanders(|| {
        lab.ip("link set dev va master kbr");
        lab.daemon.wait_down("br0", "a", "belongs to bridge `kbr`").unwrap();
        let add = || Ok(lab.machine.run(&["nft", "add", "table", "netdev", &table]).ok());
        until("the port to give its table up", LIMIT, add).unwrap();
        lab.ip("link set dev va nomaster");
        lab.wait_down(&format!(
            "interface `va` is in use by the owner of nftables table `netdev {table}`; remove it there, or stop that \
             process"
        ));
        lab.machine.run(&["nft", "delete", "table", "netdev", &table]).unwrap();
        lab.wait_up();
    });
}

#[test]
fn interfaces_of_no_use_and_missing_namespaces_are_refused() {
    let lab = Lab::new(true);
    let netns = lab.machine.name();
    assert_eq!(
        lab.refused(&["port", "add", "br0", "lo", "--type", "netdev", "--netns", netns]),
        "mswitch: bridge \"br0\", port \"lo\": interface `lo` is a loopback interface, which no other host is behind"
    );
    assert_eq!(
        lab.refused(&["port", "add", "br0", "x", "--type", "netdev", "--netns", "no-such-namespace"]),
        "mswitch: bridge \"br0\", port \"x\": network namespace `no-such-namespace`: /run/netns/no-such-namespace \
         does not exist; create it with `ip netns add no-such-namespace`"
    );
    assert_eq!(
        lab.refused(&["port", "add", "br0", "x", "--type", "netdev", "--driver", "dpdk"]),
        "mswitch: `--driver`: `dpdk` is unknown; expected one of `auto`, `af-packet`, `af-xdp`"
    );
    let tap = lab.refused(&["port", "add", "br0", "an-interface-with-a-long-name", "--type", "netdev"]);
    assert!(tap.contains("cannot be the name of a network interface: it is too long"), "{tap}");
}

#[test]
fn an_interface_has_one_port() {
    let mut lab = Lab::new(true);
    lab.wait_up();
    let netns = lab.machine.name().to_owned();
    let add = |netns: &str| {
        lab.refused(&["port", "add", "br0", "x", "--type", "netdev", "--interface", "va", "--netns", netns])
    };
    let same = add(&netns);
    assert!(same.contains("interface va in namespace") && same.contains("\"a\""), "{same}");
    // By another name of the namespace.
    assert_eq!(
        add(&format!("/run/netns/{netns}")),
        "mswitch: bridge \"br0\", port \"x\": interface `va` is attached to this switch already: port a of bridge br0"
    );
    // By another daemon.
    let other = config::bridge("br9", "learning") + &config::netdev("theirs", "va", &netns, "");
    let other = Daemon::start(&other).unwrap();
    let pid = lab.daemon.pid();
    lab.with_bystanders(|| {
        let reason = other.wait_down("br9", "theirs", "in use").unwrap();
        assert_eq!(
            reason,
            format!(
                "interface `va` is in use by mswitch, process {pid}, port a of bridge br0; remove it there, or stop \
                 that process"
            )
        );
        lab.passes();
    });
    lab.daemon.terminate().unwrap();
    until("the other daemon to have it", LIMIT, || Ok(other.port("br9", "theirs")?.is_up().then_some(())))
        .unwrap();
}

#[test]
fn a_deleted_namespace_ends_the_port_and_a_new_one_brings_it_back() {
    let mut lab = Lab::new(false);
    let name = unique("msd");
    e2e::output("ip", &["netns", "add", &name]).unwrap();
    lab.daemon.run(&["port", "del", "br0", "a"]).unwrap();
    let add = ["port", "add", "br0", "a", "--type", "netdev", "--interface", "va", "--netns", &name];
    let make = || {
        let peer = lab.a.name();
        let add =
            ["-n", &name, "link", "add", "name", "va", "type", "veth", "peer", "name", "eth0", "netns", peer];
        e2e::output("ip", &add).unwrap();
        e2e::output("ip", &["-n", &name, "link", "set", "dev", "va", "up"]).unwrap();
        ip(&lab.a, &format!("addr add {A}/24 dev eth0"));
        ip(&lab.a, "link set dev eth0 up");
    };
    make();
    lab.daemon.run(&add).unwrap();
    lab.wait_up();
    lab.with_bystanders(|| {
        // Packets both ways, as many as are answered.
        let load = lab.a.start(&["ping", "-n", "-q", "-f", C]).unwrap();
        let received = || lab.daemon.port("br0", "a").unwrap().received();
        let before = received();
        until("load to pass", LIMIT, || Ok((received() > before + 1000).then_some(()))).unwrap();
        e2e::output("ip", &["netns", "del", &name]).unwrap();
        lab.wait_down(&format!(
            "network namespace `{name}`: /run/netns/{name} does not exist; create it with `ip netns add {name}`"
        ));
        // Its interfaces ended with it.
        until("the peer to vanish", LIMIT, || {
            Ok((!lab.a.run(&["ip", "link"])?.contains("eth0")).then_some(()))
        })
        .unwrap();
        drop(load);
        e2e::output("ip", &["netns", "add", &name]).unwrap();
        make();
        lab.wait_up();
    });
    lab.daemon.terminate().unwrap();
    e2e::output("ip", &["netns", "del", &name]).unwrap();
}

#[test]
fn a_tap_port_follows_the_name_of_its_namespace() {
    let name = unique("mst");
    let ip = |arguments: &[&str]| e2e::output("ip", arguments).unwrap();
    ip(&["netns", "add", &name]);
    let interface = unique("t");
    let port = config::tap("a", &interface, &name, &["10.79.1.1/24"], "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &port)).unwrap();
    daemon.wait_up("br0", "a").unwrap();
    ip(&["netns", "del", &name]);
    ip(&["netns", "add", &name]);
    until("the interface to appear in the new namespace", LIMIT, || {
        Ok(e2e::output("ip", &["-n", &name, "addr", "show", "dev", &interface])
            .is_ok_and(|shown| shown.contains("10.79.1.1/24"))
            .then_some(()))
    })
    .unwrap();
    daemon.wait_up("br0", "a").unwrap();
    ip(&["netns", "del", &name]);
    let reason = format!(
        "network namespace `{name}`: /run/netns/{name} does not exist; create it with `ip netns add {name}`"
    );
    assert_eq!(daemon.wait_down("br0", "a", &reason).unwrap(), reason);
}

#[test]
fn the_machine_gets_its_interface_back_however_the_port_ends() {
    let mut lab = Lab::new(true);
    lab.wait_up();
    let addresses = |lab: &Lab| {
        // The kernel gives interfaces IPv6 addresses at times of its own.
        let show = |what: &[&str]| lab.machine.run(&[&["ip", "-4", "-o"], what].concat()).unwrap();
        show(&["addr"]) + &show(&["route"])
    };
    let before = addresses(&lab);
    assert!(before.contains(MACHINE), "the switch leaves addresses alone: {before}");
    assert!(!machine_answers(&lab.a));
    let promiscuity = |lab: &Lab| {
        let shown = lab.machine.run(&["ip", "-d", "link", "show", "va"]).unwrap();
        shown.split("promiscuity ").nth(1).unwrap().split(' ').next().unwrap().to_owned()
    };
    assert_eq!(promiscuity(&lab), "1");
    lab.daemon.run(&["port", "del", "br0", "a"]).unwrap();
    wait_machine_answers(&lab.a);
    assert_eq!((addresses(&lab), promiscuity(&lab)), (before.clone(), "0".into()));

    let add =
        ["port", "add", "br0", "a", "--type", "netdev", "--interface", "va", "--netns", lab.machine.name()];
    lab.daemon.run(&add).unwrap();
    lab.wait_up();
    assert!(!machine_answers(&lab.a));
    lab.daemon.kill().unwrap();
    // The kernel takes the shield away with the process.
    wait_machine_answers(&lab.a);
    assert_eq!((addresses(&lab), promiscuity(&lab)), (before, "0".into()));
    lab.daemon.restart().unwrap();
    until("the port to come up", LIMIT, || Ok(lab.daemon.port("br0", "a")?.is_up().then_some(()))).unwrap();
    assert!(!machine_answers(&lab.a));
}

#[test]
fn filters_of_others_stay() {
    let lab = Lab::new(true);
    lab.wait_up();
    lab.machine.run(&["tc", "qdisc", "add", "dev", "va", "clsact"]).unwrap();
    let before = lab.machine.run(&["tc", "qdisc", "show", "dev", "va"]).unwrap();
    lab.passes();
    lab.daemon.run(&["port", "del", "br0", "a"]).unwrap();
    assert_eq!(lab.machine.run(&["tc", "qdisc", "show", "dev", "va"]).unwrap(), before);
}

#[test]
fn driver_and_queues_change_while_the_port_is_open() {
    let lab = Lab::new(true);
    lab.wait_up();
    assert_eq!(
        lab.detail("driver"),
        "af-packet (chosen by auto: veth interfaces carry large segments uncut)"
    );
    let file = lab.daemon.path("config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let changed =
        text.replace("interface = \"va\"", "interface = \"va\"\nqueues = 3\ndriver = \"af-packet\"");
    std::fs::write(&file, changed).unwrap();
    lab.with_bystanders(|| {
        lab.daemon.run(&["config", "apply", &file]).unwrap();
        lab.wait_up();
    });
    assert_eq!(
        (lab.detail("driver"), lab.detail("queues")),
        ("af-packet (as configured)".into(), "3".into())
    );
    assert!(!lab.daemon.log().contains("reopened"), "{}", lab.daemon.log());
}

/// Applies a file in which port a has the driver af-xdp; returns the answer.
fn apply_af_xdp(lab: &Lab) -> std::process::Output {
    let text = std::fs::read_to_string(lab.daemon.path("config.toml")).unwrap();
    let file = lab.daemon.path("xdp.toml");
    std::fs::write(&file, text.replace("interface = \"va\"", "interface = \"va\"\ndriver = \"af-xdp\""))
        .unwrap();
    lab.daemon.cli(&["config", "apply", &file]).unwrap()
}

/// Index of the interface.
fn index(lab: &Lab) -> u32 {
    let link = lab.machine.run(&["ip", "-o", "link", "show", "va"]).unwrap();
    link.split(':').next().unwrap().parse().unwrap()
}

/// The XDP program of the interface.
fn program(lab: &Lab) -> u64 {
    let links = lab.machine.run(&["ip", "-j", "-d", "link", "show", "va"]).unwrap();
    let links: Value = serde_json::from_str(&links).unwrap();
    links[0]["xdp"]["prog"]["id"].as_u64().unwrap()
}

/// Attaching a program makes many cards lose their carrier.
#[test]
fn a_lost_carrier_leaves_the_xdp_program_attached() {
    let lab = Lab::new(true);
    lab.wait_up();
    let applied = apply_af_xdp(&lab);
    assert!(applied.status.success(), "{applied:?}");
    lab.passes();
    let before = program(&lab);
    ip(&lab.a, "link set dev eth0 down");
    lab.wait_down("interface `va` has no carrier: its cable is unplugged, or its peer is down");
    assert_eq!(program(&lab), before);
    ip(&lab.a, "link set dev eth0 up");
    lab.wait_up();
    lab.ip("link set dev va down");
    lab.daemon.wait_down("br0", "a", "is set down").unwrap();
    // The MTU is too large for the frames that the sockets have: they are opened anew when the link is up.
    lab.ip("link set dev va mtu 3000 up");
    lab.wait_up();
    assert_ne!(program(&lab), before);
    assert_eq!(lab.detail("mtu"), "3000");
}

#[test]
fn a_detached_xdp_program_is_attached_again() {
    let lab = Lab::new(true);
    lab.wait_up();
    let applied = apply_af_xdp(&lab);
    assert!(applied.status.success(), "{applied:?}");
    lab.passes();
    lab.with_bystanders(|| {
        assert!(bpf::syscall::detach_xdp(program(&lab) as u32).unwrap());
        // Asking for the port's state makes it look.
        lab.wait_down("interface `va`: somebody has detached its XDP program; retrying");
        lab.wait_up();
    });
    assert!(lab.detail("driver").starts_with("af-xdp, native"));
}

/// The refusal of an interface whose XDP program is another's.
const TAKEN: &str = "interface `va` has an XDP program already; find its owner with `bpftool net`, and stop it, or use \
                     `driver = \"af-packet\"`";

#[test]
fn an_interface_whose_xdp_program_is_replaced_is_awaited() {
    let lab = Lab::new(true);
    lab.wait_up();
    let applied = apply_af_xdp(&lab);
    assert!(applied.status.success(), "{applied:?}");
    let (index, ours) = (index(&lab), program(&lab));
    lab.with_bystanders(|| {
        assert!(bpf::syscall::detach_xdp(ours as u32).unwrap());
        let thief = lab.machine.enter(|| xsk::Program::attach(index, None)).unwrap().unwrap();
        lab.wait_down(TAKEN);
        assert_eq!(u64::from(thief.id().unwrap()), program(&lab));
        drop(thief);
        lab.wait_up();
    });
    assert!(lab.detail("driver").starts_with("af-xdp, native"));
}

#[test]
fn an_interface_with_another_xdp_program_is_refused() {
    let lab = Lab::new(true);
    lab.wait_up();
    let index = index(&lab);
    let other = lab.machine.enter(|| xsk::Program::attach(index, None)).unwrap().unwrap();
    lab.with_bystanders(|| {
        let applied = apply_af_xdp(&lab);
        assert_eq!(applied.status.code(), Some(1), "{applied:?}");
        let said = String::from_utf8(applied.stderr).unwrap();
        assert!(said.contains(TAKEN), "{said}");
        drop(other);
        let changed = || Ok(lab.detail("driver").starts_with("af-xdp").then_some(()));
        until("the driver to be changed", LIMIT, changed).unwrap();
        lab.wait_up();
    });
}

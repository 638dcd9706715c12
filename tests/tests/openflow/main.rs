//! Bridges with the logic `openflow`, driven by the real `ovs-ofctl`, by `mswitch openflow`, and by controllers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod flood;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use e2e::{Daemon, Netns, Running, config, ping_all, unique, until};
use openflow::message::{Body, FlowModCommand, Header, Hello, Versions};
use openflow::{Message, Version, text};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(20);

/// Guests `a`, `b` and `c` at ports 1, 2 and 3 of a bridge.
struct Rig {
    // Dropped in this order: the daemon, then its namespaces.
    daemon: Daemon,
    guests: [Netns; 3],
    /// The guests' interfaces.
    interfaces: [String; 3],
    _machine: Machine,
}

/// Shared by tests that run at the same time; a test that keeps all CPUs busy has it to itself.
static MACHINE: RwLock<()> = RwLock::new(());

/// A test's hold on the machine.
enum Machine {
    Shared(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>),
    Exclusive(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>),
}

/// Starts a rig; `more` has keys of the bridge and its `[bridge.openflow]`.
fn rig(logic: &str, more: &str) -> Rig {
    rig_on(Machine::Shared(MACHINE.read().unwrap_or_else(PoisonError::into_inner)), logic, more)
}

/// Starts a rig while no other test runs.
fn exclusive_rig(logic: &str, more: &str) -> Rig {
    rig_on(Machine::Exclusive(MACHINE.write().unwrap_or_else(PoisonError::into_inner)), logic, more)
}

fn rig_on(machine: Machine, logic: &str, more: &str) -> Rig {
    let guests: [Netns; 3] = std::array::from_fn(|_| Netns::new().unwrap());
    let interfaces: [String; 3] = std::array::from_fn(|_| unique("t"));
    let mut text = config::bridge("br0", logic) + more + "\n";
    for (((guest, interface), name), number) in guests.iter().zip(&interfaces).zip(["a", "b", "c"]).zip(1..) {
        let address = format!("10.79.0.{number}/24");
        let keys = format!("openflow-port = {number}\n");
        text += &config::tap(name, interface, guest.name(), &[&address], &keys);
    }
    let daemon = Daemon::start(&text).unwrap();
    let rig = Rig { daemon, guests, interfaces, _machine: machine };
    for name in ["a", "b", "c"] {
        rig.daemon.wait_up("br0", name).unwrap();
    }
    rig
}

impl Rig {
    /// `ovs-ofctl` in the daemon's folder, where the bridge is `br0`.
    fn ofctl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("ovs-ofctl");
        command.args(["-vOFF", "-t", "20"]).args(arguments);
        command
            .env("OVS_RUNDIR", self.daemon.folder())
            .current_dir(self.daemon.folder())
            .stdin(Stdio::null());
        command
    }

    /// Returns whether `ovs-ofctl` succeeds, and all that it prints.
    fn try_ofctl(&self, arguments: &[&str]) -> (bool, String) {
        let output =
            self.ofctl_command(arguments).output().expect("ovs-ofctl is installed (openvswitch-common)");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    fn ofctl(&self, arguments: &[&str]) -> String {
        let (done, text) = self.try_ofctl(arguments);
        assert!(done, "{arguments:?}: {text}");
        text
    }

    /// Starts `ovs-ofctl` with its output in a file of this name.
    fn ofctl_in_background(&self, file: &str, arguments: &[&str]) -> Running {
        let file = std::fs::File::create(self.daemon.path(file)).unwrap();
        let mut command = self.ofctl_command(arguments);
        Running::start(command.stdout(file.try_clone().unwrap()).stderr(file)).unwrap()
    }

    /// Waits until a file has this text.
    fn until_file(&self, file: &str, wanted: &str) {
        let read = || std::fs::read_to_string(self.daemon.path(file));
        let found =
            until(&format!("`{wanted}` in {file}"), LIMIT, || Ok(read()?.contains(wanted).then_some(())));
        found.unwrap_or_else(|error| panic!("{error}: {:?}", read()));
    }

    /// Whether `a` reaches the guest with this number within a second.
    fn pings(&self, number: u8) -> bool {
        self.pings_within(number, "1")
    }

    /// Whether a guest that is not to answer gives none: not waited for as long as for a good one.
    fn is_cut_off(&self, number: u8) -> bool {
        !self.pings_within(number, "0.3")
    }

    fn pings_within(&self, number: u8, seconds: &str) -> bool {
        let address = format!("10.79.0.{number}");
        // After a ping without an answer, the kernel would ask for the address again only after a while.
        let unanswered = ["to", &address, "nud", "incomplete", "nud", "failed"];
        self.guests[0].run(&[&["ip", "neigh", "flush"], &unanswered[..]].concat()).unwrap();
        self.guests[0].run(&["ping", "-n", "-c", "1", "-W", seconds, &address]).is_ok()
    }

    fn until_pings(&self, number: u8, reached: bool) {
        until(&format!("answers of guest {number}: {reached}"), LIMIT, || {
            Ok((self.pings(number) == reached).then_some(()))
        })
        .unwrap();
    }

    fn write(&self, file: &str, text: &str) -> String {
        let path = self.daemon.path(file);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Exit code and message of a refused command of `mswitch`.
    fn refused(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.daemon.cli(arguments).unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn connections(&self) -> Value {
        self.daemon.json(&["openflow", "controllers", "br0"]).unwrap()
    }

    /// Waits until the only controller is connected, or not.
    fn until_connected(&self, connected: bool) {
        until(&format!("the controller connected: {connected}"), LIMIT, || {
            Ok((self.connections()["controllers"][0]["connected"] == connected).then_some(()))
        })
        .unwrap();
    }
}

/// Without `-O`, and with it.
const VERSIONS: [&[&str]; 4] = [&[], &["-O", "OpenFlow13"], &["-O", "OpenFlow14"], &["-O", "OpenFlow15"]];

const SECURE: &str = "[bridge.openflow]\nfail-mode = \"secure\"\n";

#[test]
fn flows_carry_a_ping_and_stop_it() {
    let rig = rig("openflow", SECURE);
    let with = |version: &[&'static str], rest: &[&str]| rig.ofctl(&[version, rest].concat());
    for version in VERSIONS {
        assert!(rig.is_cut_off(2), "{version:?}: nothing passes without a flow");
        with(version, &["add-flow", "br0", "priority=5,arp,actions=FLOOD"]);
        with(version, &["add-flow", "br0", "in_port=1,ip,nw_dst=10.79.0.2,actions=output:2"]);
        with(version, &["add-flow", "br0", "in_port=2,ip,nw_dst=10.79.0.1,actions=output:1"]);
        assert!(rig.pings(2), "{version:?}");
        assert!(rig.is_cut_off(3), "{version:?}");
        let flows = with(version, &["dump-flows", "br0", "in_port=2"]);
        // More than one: a request that waited for an address while there was no flow leaves later.
        assert!(!flows.contains("n_packets=0,"), "{version:?}: {flows}");
        assert!(flows.contains("ip,in_port=2,nw_dst=10.79.0.1 actions=output:1"), "{version:?}: {flows}");
        let sums = with(version, &["dump-aggregate", "br0"]);
        assert!(sums.contains("flow_count=3"), "{version:?}: {sums}");
        with(version, &["mod-flows", "br0", "ip,in_port=1,actions=drop"]);
        assert!(rig.is_cut_off(2), "{version:?}");

        let file = rig.write(
            "flows",
            "priority=5,arp actions=FLOOD\nin_port=1,ip actions=output:3\nin_port=3,ip actions=output:1\n",
        );
        let (same, difference) = rig.try_ofctl(&[version, &["diff-flows", "br0", &file]].concat());
        assert!(!same && difference.contains("-ip,in_port=2"), "{version:?}: {difference}");
        with(version, &["replace-flows", "br0", &file]);
        with(version, &["diff-flows", "br0", &file]);
        assert!(rig.pings(3), "{version:?}");
        with(version, &["--strict", "del-flows", "br0", "ip,in_port=1"]);
        assert!(rig.is_cut_off(3), "{version:?}");
        with(version, &["del-flows", "br0"]);
        assert_eq!(with(version, &["--no-stats", "dump-flows", "br0"]).matches("actions").count(), 0);
    }
}

#[test]
fn the_switch_describes_itself_and_its_ports() {
    let rig = rig("openflow", "[bridge.openflow]\ndatapath-id = \"00000242ac110002\"\n");
    let shown = rig.ofctl(&["show", "br0"]);
    assert!(shown.contains("dpid:00000242ac110002"), "{shown}");
    for port in [" 1(a): ", " 2(b): ", " 3(c): "] {
        assert!(shown.contains(port), "{shown}");
    }
    for version in VERSIONS {
        let described = rig.ofctl(&[version, &["dump-desc", "br0"]].concat());
        assert!(described.contains("DP Description: br0"), "{described}");
        let ports = rig.ofctl(&[version, &["dump-ports-desc", "br0"]].concat());
        assert!(ports.contains("3(c): addr:"), "{ports}");
        let last = ports.split("3(c): ").nth(1).unwrap();
        assert!(last.contains("current:    10GB-FD") && last.contains("speed: 10000 Mbps now"), "{ports}");
    }
    // A link that goes down, and statistics of packets that only the fabric has seen.
    let down = |shown: &str| {
        let port = shown.split(" 2(b): ").nth(1).unwrap();
        port.split("speed:").next().unwrap().contains("LINK_DOWN")
    };
    assert!(!down(&shown), "{shown}");
    rig.daemon.run(&["port", "set", "br0", "b", "--admin", "down"]).unwrap();
    until("LINK_DOWN", LIMIT, || Ok(down(&rig.ofctl(&["show", "br0"])).then_some(()))).unwrap();
    rig.daemon.run(&["port", "set", "br0", "b", "--admin", "up"]).unwrap();
    until("a link", LIMIT, || Ok((!down(&rig.ofctl(&["show", "br0"]))).then_some(()))).unwrap();
    rig.until_pings(3, true);
    until("statistics", LIMIT, || {
        let ports = rig.ofctl(&["dump-ports", "br0", "1"]);
        Ok((!ports.contains("rx pkts=0,") && !ports.contains("tx pkts=0,")).then_some(()))
    })
    .unwrap();
}

#[test]
fn tables_have_names() {
    let rig = rig(
        "openflow",
        "[bridge.openflow]\nfail-mode = \"secure\"\ntables = { 0 = \"classify\", 10 = \"acl\" }\n",
    );
    let mswitch = |arguments: &[&str]| rig.daemon.run(&[&["openflow"], arguments].concat()).unwrap();
    mswitch(&["add-flow", "br0", "table=classify,arp,actions=FLOOD", "ip,actions=goto_table:acl"]);
    mswitch(&[
        "add-flow",
        "br0",
        "table=acl,in_port=1,ip,actions=output:2",
        "table=acl,in_port=2,ip,actions=output:1",
    ]);
    assert!(rig.pings(2) && rig.is_cut_off(3));
    for version in VERSIONS {
        let named = rig.ofctl(
            &[version, &["--names", "--no-stats", "dump-flows", "br0", "table=acl,in_port=a"]].concat(),
        );
        assert!(named.contains("table=acl, ip,in_port=a actions=output:b"), "{version:?}: {named}");
    }
    // Later versions have no names in statistics.
    let tables = rig.ofctl(&["dump-tables", "br0"]);
    assert!(tables.contains("table 10 (\"acl\")"), "{tables}");
    let features = rig.ofctl(&["-O", "OpenFlow13", "dump-table-features", "br0"]);
    assert!(
        features.contains("table 0 (\"classify\"):") && features.contains("tables 1...9: ditto"),
        "{features}"
    );
    let flows = mswitch(&["flows", "br0", "--no-stats", "table=acl"]);
    assert!(flows.contains("table=acl,priority=32768,ip,in_port=1 actions=output:2"), "{flows}");
    assert!(mswitch(&["flows", "br0"]).contains("actions=goto_table:acl"));
    let tables = mswitch(&["tables", "br0"]);
    assert!(tables.contains("   10  acl   "), "{tables}");
    let (code, text) = rig.refused(&["openflow", "add-flow", "br0", "table=alc,actions=drop"]);
    let expected = "`table=alc,actions=drop`: no table has the name `alc`; the named tables are `classify` (0), `acl` (10)";
    assert!(code == Some(2) && text.contains(expected), "{text}");

    // New names take effect, and connections stay.
    let mut monitor = rig.ofctl_in_background("watch", &["monitor", "br0", "watch:"]);
    rig.until_file("watch", "event=ADDED");
    let config = rig.daemon.run(&["config", "show"]).unwrap();
    let file = rig.write("named.toml", &config.replace("acl", "rules"));
    let differences = rig.daemon.differences(Some(&file)).unwrap();
    assert!(differences.contains("openflow.tables.10"), "{differences}");
    rig.daemon.run(&["config", "apply", &file]).unwrap();
    mswitch(&["add-flow", "br0", "table=rules,udp,actions=drop"]);
    rig.until_file("watch", "table=10 cookie=0 udp");
    let flows = mswitch(&["flows", "br0", "--no-stats", "udp"]);
    assert!(flows.contains("table=rules,priority=32768,udp"), "{flows}");
    monitor.terminate().unwrap();
}

#[test]
fn groups_and_meters_are_in_the_packets_way() {
    let rig = rig("openflow", SECURE);
    let of15 = |rest: &[&str]| rig.ofctl(&[&["-O", "OpenFlow15"], rest].concat());
    of15(&["add-group", "br0", "group_id=1,type=all,bucket=output:1,bucket=output:2"]);
    of15(&[
        "add-group",
        "br0",
        "group_id=2,type=ff,bucket=watch_port:3,output:3,bucket=watch_port:2,output:2",
    ]);
    of15(&["add-flow", "br0", "priority=5,arp,actions=FLOOD"]);
    of15(&["add-flow", "br0", "ip,in_port=2,actions=output:1"]);
    of15(&["add-flow", "br0", "ip,in_port=3,actions=output:1"]);
    of15(&["add-flow", "br0", "ip,in_port=1,actions=group:2"]);
    // The first live bucket leads to `c`; when its port goes down, the second one takes over.
    assert!(rig.pings(3) && rig.is_cut_off(2));
    rig.daemon.run(&["port", "set", "br0", "c", "--admin", "down"]).unwrap();
    rig.until_pings(2, true);
    let stats = of15(&["dump-group-stats", "br0", "group_id=2"]);
    assert!(stats.contains("group_id=2,") && !stats.contains("bucket1:packet_count=0,"), "{stats}");

    for version in ["OpenFlow13", "OpenFlow14", "OpenFlow15"] {
        let groups = rig.ofctl(&["-O", version, "dump-groups", "br0"]);
        assert!(groups.contains("group_id=1,type=all,bucket="), "{version}: {groups}");
        rig.ofctl(&["-O", version, "mod-group", "br0", "group_id=1,type=all,bucket=output:3"]);
        rig.ofctl(&["-O", version, "add-meter", "br0", "meter=1,pktps,bands=type=drop,rate=1"]);
        rig.ofctl(&["-O", version, "mod-meter", "br0", "meter=1,pktps,stats,bands=type=drop,rate=2"]);
        let meters = rig.ofctl(&["-O", version, "dump-meters", "br0"]);
        assert!(
            meters.contains("meter=1 pktps stats bands=") && meters.contains("rate=2"),
            "{version}: {meters}"
        );
        rig.ofctl(&["-O", version, "del-meters", "br0"]);
    }
    of15(&["insert-buckets", "br0", "group_id=1,command_bucket_id=last,bucket=bucket_id:9,actions=output:2"]);
    let groups = of15(&["dump-groups", "br0", "1"]);
    assert!(groups.contains("bucket_id:9,actions=output:2"), "{groups}");
    of15(&["remove-buckets", "br0", "group_id=1,command_bucket_id=9"]);
    assert!(!of15(&["dump-groups", "br0", "1"]).contains("bucket_id:9"));

    // A meter of one packet a second drops most of twenty pings within a second.
    of15(&["add-meter", "br0", "meter=7,pktps,burst,stats,bands=type=drop,rate=1,burst_size=1"]);
    of15(&["add-flow", "br0", "ip,in_port=1,actions=meter:7,output:2"]);
    let sent = rig.guests[0].command(&["ping", "-n", "-q", "-i", "0.05", "-c", "20", "-W", "1", "10.79.0.2"]);
    let output = { sent }.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let received: u32 = text.split(" received").next().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!((1..=10).contains(&received), "{text}");
    let stats = of15(&["meter-stats", "br0", "meter=7"]);
    assert!(!stats.contains("0: packet_count:0 "), "{stats}");
    of15(&["del-groups", "br0"]);
    assert!(!of15(&["dump-groups", "br0"]).contains("group_id"));
    let flows = of15(&["--no-stats", "dump-flows", "br0"]);
    assert!(!flows.contains("group:"), "{flows}");
}

#[test]
fn limits_and_their_use_are_shown() {
    let rig = rig("openflow", &format!("{SECURE}max-flows = 3\n"));
    let of15 = |rest: &[&str]| rig.ofctl(&[&["-O", "OpenFlow15"], rest].concat());
    of15(&["add-group", "br0", "group_id=1,type=all,bucket=output:1,bucket=output:2"]);
    of15(&["add-meter", "br0", "meter=7,pktps,bands=type=drop,rate=1"]);
    of15(&["add-flow", "br0", "table=4,ip,actions=output:1"]);
    for port in [1, 2] {
        rig.ofctl(&["add-flow", "br0", &format!("in_port={port},actions=output:3")]);
    }
    let (done, text) = rig.try_ofctl(&["add-flow", "br0", "in_port=3,actions=output:1"]);
    assert!(!done && text.contains("OFPFMFC_TABLE_FULL"), "{text}");
    let mut monitor = rig.ofctl_in_background("watch", &["monitor", "br0", "watch:"]);
    rig.until_file("watch", "event=ADDED");
    let shown = rig.connections();
    let limits = shown["limits"].as_array().unwrap();
    for (name, per, used, most) in [
        ("flows", "bridge", 3, 3),
        ("flows", "table", 2, 3),
        ("groups", "bridge", 1, 4_294_967_040_u64),
        ("buckets", "bridge", 2, 1_000_000),
        ("buckets", "group", 2, 4096),
        ("meters", "bridge", 1, 16_384),
        ("bands", "meter", 1, 8),
        ("ports", "bridge", 3, 4096),
        ("flow monitors", "connection", 1, 64),
        ("management connections", "bridge", 1, 64),
        ("controllers", "bridge", 0, 16),
        ("packets for controllers", "worker", 0, 256),
    ] {
        let wanted =
            serde_json::json!({ "name": name, "per": per, "used": used, "most": most, "bytes": false });
        assert!(limits.contains(&wanted), "{wanted}: {shown}");
    }
    let code = limits.iter().find(|limit| limit["name"] == "machine code").unwrap();
    assert!(code["used"].as_u64().unwrap() > 0 && code["bytes"] == true, "{code}");
    assert!(limits.iter().all(|limit| limit["used"].as_u64() <= limit["most"].as_u64()), "{shown}");
    let text = rig.daemon.run(&["openflow", "controllers", "br0"]).unwrap();
    let row = |line: &str| line.split_whitespace().eq(["flows", "bridge", "3", "3"]);
    assert!(text.lines().any(row), "{text}");
    monitor.terminate().unwrap();
}

/// ARP request of 02:…:09 for 10.79.0.1.
const ARP: &str = "ffffffffffff02000000000908060001080006040001020000000009 0a4f0009 000000000000 0a4f0001";

#[test]
fn monitors_see_flows_and_packets_and_packet_outs_leave() {
    let rig = rig("openflow", SECURE);
    let mut flows = rig.ofctl_in_background("watch", &["monitor", "br0", "watch:"]);
    let mut packets = rig.ofctl_in_background("packets", &["-O", "OpenFlow13", "monitor", "br0", "65534"]);
    // Until its connection is set up, `ovs-ofctl monitor` discards events.
    let mut priorities = 1..;
    until("an event for a flow", LIMIT, || {
        let flow = format!("priority={},icmp,actions=controller", priorities.next().unwrap_or_default());
        rig.ofctl(&["-O", "OpenFlow13", "add-flow", "br0", &flow]);
        let text = std::fs::read_to_string(rig.daemon.path("watch"))?;
        Ok(text.contains("icmp actions=CONTROLLER:65535").then_some(()))
    })
    .unwrap();
    let station = ["10.79.0.2", "lladdr", "02:00:00:00:00:77", "dev", &rig.interfaces[0]];
    rig.guests[0].run(&[&["ip", "neigh", "replace"], &station[..]].concat()).unwrap();
    until("a packet-in", LIMIT, || {
        rig.pings(2);
        let text = std::fs::read_to_string(rig.daemon.path("packets"))?;
        Ok(text.contains("nw_src=10.79.0.1,nw_dst=10.79.0.2").then_some(()))
    })
    .unwrap();
    rig.ofctl(&["del-flows", "br0"]);
    rig.until_file("watch", "event=DELETED");

    let before = rig.daemon.port("br0", "b").unwrap().delivered();
    let arp = ARP.replace(' ', "");
    for version in VERSIONS {
        let out = format!("in_port=controller packet={arp} actions=output:2");
        rig.ofctl(&[version, &["packet-out", "br0", &out]].concat());
    }
    until("four packets", LIMIT, || {
        Ok((rig.daemon.port("br0", "b")?.delivered() == before + 4).then_some(()))
    })
    .unwrap();
    // Through the tables, as a packet of port 3.
    rig.ofctl(&["add-flow", "br0", "in_port=3,arp,actions=output:1"]);
    let before = rig.daemon.port("br0", "a").unwrap().delivered();
    rig.ofctl(&["packet-out", "br0", &format!("in_port=3 packet={arp} actions=resubmit(,0)")]);
    until("one packet", LIMIT, || Ok((rig.daemon.port("br0", "a")?.delivered() == before + 1).then_some(())))
        .unwrap();
    flows.terminate().unwrap();
    packets.terminate().unwrap();
}

#[test]
fn bundles_are_all_or_nothing() {
    let rig = rig("openflow", SECURE);
    let bad = rig.write("bad", "in_port=1,actions=output:2\nin_port=2,actions=group:77\n");
    let good = rig.write("good", "in_port=1,actions=output:2\nin_port=2,actions=output:1\n");
    for version in ["OpenFlow13", "OpenFlow14", "OpenFlow15"] {
        let (done, text) = rig.try_ofctl(&["-O", version, "--bundle", "add-flows", "br0", &bad]);
        assert!(!done && text.contains("OFPBAC_BAD_OUT_GROUP"), "{version}: {text}");
        assert_eq!(rig.ofctl(&["dump-flows", "br0"]).matches("actions").count(), 0);
        rig.ofctl(&["-O", version, "--bundle", "add-flows", "br0", &good]);
        assert!(rig.pings(2));
        rig.ofctl(&["-O", version, "--bundle", "replace-flows", "br0", "/dev/null"]);
        assert!(rig.is_cut_off(2));
    }
    // The same with `mswitch`: a mistake in the text, and one that only the bridge finds.
    let (code, text) =
        rig.refused(&["openflow", "add-flow", "br0", "in_port=1,actions=output:2", "tcp=1,actions=drop"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("`tcp=1,actions=drop`: expected "), "{text}");
    let (code, text) = rig.refused(&["openflow", "add-flow", "br0", "--file", &bad]);
    assert_eq!(code, Some(1));
    let expected = format!(
        "{bad}:2: `in_port=2,actions=group:77`: refused with OFPBAC_BAD_OUT_GROUP; add the group first"
    );
    assert!(text.contains(&expected), "{text}");
    assert_eq!(rig.daemon.run(&["openflow", "flows", "br0"]).unwrap(), "no flows\n");
    rig.daemon.run(&["openflow", "add-flow", "br0", "--file", &good]).unwrap();
    assert!(rig.pings(2));
}

#[test]
fn the_command_line_speaks_as_ovs_ofctl_does() {
    let rig = rig("openflow", SECURE);
    let mswitch = |arguments: &[&str]| rig.daemon.run(&[&["openflow"], arguments].concat()).unwrap();
    mswitch(&[
        "add-group",
        "br0",
        "group_id=3,type=select,selection_method=hash,fields(ip_src,ip_dst),bucket=weight:5,output:1,bucket=output:2",
    ]);
    mswitch(&["add-meter", "br0", "meter=1,kbps,burst,bands=type=drop,rate=1000,burst_size=100"]);
    mswitch(&[
        "add-flow",
        "br0",
        "cookie=0x7,priority=9,ip,nw_src=10.0.0.0/8,actions=mod_nw_src:10.79.0.9,load:5->NXM_NX_REG0[],goto_table:2",
        "table=2,actions=meter:1,group:3",
        "table=2,priority=3,arp,idle_timeout=60,send_flow_rem,actions=FLOOD",
    ]);
    // Lines of theirs that describe the same, without the reply's title.
    let lines = |text: String| -> Vec<String> {
        let mut lines: Vec<_> =
            text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
        lines.retain(|line| !line.starts_with("OFPST_") && !line.starts_with("NXST_"));
        lines.sort();
        lines
    };
    let theirs = lines(rig.ofctl(&["-O", "OpenFlow14", "--no-stats", "dump-flows", "br0"]));
    let mut ours = lines(mswitch(&["flows", "br0", "--no-stats"]));
    // `ovs-ofctl` leaves the default priority out.
    ours.iter_mut().for_each(|line| *line = line.replace("priority=32768 ", ""));
    let words = |line: &String| {
        let mut words: Vec<_> =
            line.split([' ', ',']).filter(|word| !word.is_empty()).map(str::to_owned).collect();
        words.retain(|word| word != "priority=32768" && word != "table=0" && word != "cookie=0x0");
        words.sort();
        words
    };
    let all = |lines: &[String]| {
        let mut all: Vec<_> = lines.iter().map(words).collect();
        all.sort();
        all
    };
    assert_eq!(all(&ours), all(&theirs), "{ours:#?} {theirs:#?}");
    assert_eq!(
        lines(mswitch(&["groups", "br0"])),
        lines(rig.ofctl(&["-O", "OpenFlow15", "dump-groups", "br0"]))
    );
    assert_eq!(
        lines(mswitch(&["meters", "br0"])),
        lines(rig.ofctl(&["-O", "OpenFlow15", "dump-meters", "br0"]))
    );

    let flows = rig.daemon.json(&["openflow", "flows", "br0", "table=2"]).unwrap();
    let flows = flows.as_array().unwrap();
    assert_eq!(flows.len(), 2);
    let arp = flows.iter().find(|flow| flow["match"] == "arp").unwrap();
    assert_eq!((&arp["idle_timeout"], &arp["send_flow_removed"]), (&60.into(), &true.into()));
    let tables = rig.daemon.json(&["openflow", "tables", "br0"]).unwrap();
    assert_eq!((&tables[0]["flows"], &tables[1]["table"]), (&1.into(), &2.into()), "{tables}");
    let ports = mswitch(&["ports", "br0"]);
    assert!(ports.contains("     2  b "), "{ports}");

    mswitch(&["mod-flows", "br0", "table=2,arp,actions=drop"]);
    assert!(mswitch(&["flows", "br0", "arp"]).contains("arp actions=drop"));
    mswitch(&["insert-buckets", "br0", "group_id=3,bucket=bucket_id:7,output:3"]);
    mswitch(&["remove-buckets", "br0", "group_id=3,command_bucket_id=0"]);
    let groups = mswitch(&["groups", "br0"]);
    assert!(groups.contains("bucket_id:7,") && !groups.contains("bucket_id:0,"), "{groups}");
    mswitch(&["del-flows", "br0", "--strict", "table=2,priority=3,arp"]);
    mswitch(&["del-meters", "br0", "meter=1"]);
    mswitch(&["del-groups", "br0"]);
    mswitch(&["del-flows", "br0"]);
    assert_eq!(mswitch(&["flows", "br0"]), "no flows\n");
    assert_eq!(mswitch(&["groups", "br0", "--stats"]), "no groups\n");
    assert_eq!(mswitch(&["meters", "br0", "--stats"]), "no meters\n");

    // Flows in place of all others; equal ones stay.
    let wanted = [
        "in_port=1,ip,nw_dst=10.79.0.0/16,actions=output:2",
        "table=3,cookie=5,arp,actions=FLOOD",
        "actions=drop",
    ];
    rig.ofctl(&["add-flow", "br0", "cookie=9,udp,actions=drop"]);
    rig.ofctl(&["add-flow", "br0", "ip,nw_dst=10.79.0.0/16,in_port=1,actions=output:2"]);
    rig.ofctl(&["add-flow", "br0", "actions=NORMAL"]);
    let output = rig.daemon.cli(&[&["openflow", "diff-flows", "br0"], &wanted[..]].concat()).unwrap();
    let expected = "-cookie=0x9,priority=32768,udp actions=drop\n+table=3,cookie=5,arp,actions=FLOOD\n\
        -priority=32768 actions=NORMAL\n+actions=drop\n";
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()), (Some(1), expected));
    // The last of several flows with one match counts.
    mswitch(&[&["replace-flows", "br0", "actions=output:3"], &wanted[..]].concat());
    assert_eq!(mswitch(&[&["diff-flows", "br0"], &wanted[..]].concat()), "");
    let file = rig.write("wanted", &wanted.map(|flow| flow.to_owned() + "\n").concat());
    rig.ofctl(&["-O", "OpenFlow14", "diff-flows", "br0", &file]);
    let (code, text) =
        rig.refused(&["openflow", "replace-flows", "br0", "actions=NORMAL", "actions=group:5"]);
    assert!(
        code == Some(1) && text.contains("`actions=group:5`: refused with OFPBAC_BAD_OUT_GROUP"),
        "{text}"
    );
    assert_eq!(mswitch(&["diff-flows", "br0", "--file", &file]), "", "all or none");
    let (code, text) = rig.refused(&["openflow", "replace-flows", "br0"]);
    assert!(code == Some(2) && text.contains("no flow is named; name the wanted ones, or a file"), "{text}");

    let packet = format!("packet={}", ARP.replace(' ', ""));
    let before = ["a", "b"].map(|port| rig.daemon.port("br0", port).unwrap().delivered());
    mswitch(&["replace-flows", "br0", "in_port=3,arp,actions=output:1"]);
    mswitch(&[
        "packet-out",
        "br0",
        &format!("{packet} actions=output:2"),
        &format!("in_port=3,{packet},actions=TABLE"),
    ]);
    until("a packet each", LIMIT, || {
        let now = [rig.daemon.port("br0", "a")?.delivered(), rig.daemon.port("br0", "b")?.delivered()];
        Ok((now == before.map(|count| count + 1)).then_some(()))
    })
    .unwrap();
    let (code, text) = rig.refused(&["openflow", "packet-out", "br0", "actions=FLOOD"]);
    assert!(
        code == Some(2) && text.contains("`actions=FLOOD`: expected `packet=` with an Ethernet packet"),
        "{text}"
    );
    rig.daemon.run(&["logic", "set", "br0", "hub"]).unwrap();
    let (_, text) = rig.refused(&["openflow", "flows", "br0"]);
    assert!(text.contains("set `openflow`: mswitch logic set br0 openflow"), "{text}");
}

/// A controller on a Unix socket, which says hello and sends what it is told.
struct Controller {
    listener: UnixListener,
    path: String,
}

const VERSION: Version = Version::V1_3;

impl Controller {
    fn listen(rig: &Rig) -> Self {
        let path = rig.daemon.path("controller");
        let _ = std::fs::remove_file(&path);
        Self { listener: UnixListener::bind(&path).unwrap(), path }
    }

    /// Accepts the bridge's connection.
    fn accept(&self) -> Switch {
        Switch::greet(self.listener.accept().unwrap().0)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A bridge as its controller sees it.
struct Switch {
    stream: UnixStream,
}

impl Switch {
    /// Exchanges hellos.
    fn greet(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut switch = Switch { stream };
        let hello = Hello::new(Versions::from_iter([VERSION]));
        switch.send(1, Body::Hello(hello));
        assert!(matches!(switch.read().body, Body::Hello(_)));
        switch
    }

    fn send(&mut self, xid: u32, body: Body) {
        self.stream.write_all(&Message::new(VERSION, xid, body).encode().unwrap()).unwrap();
    }

    fn read(&mut self) -> Message {
        let mut bytes = vec![0; 8];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes.resize(usize::from(Header::peek(&bytes).unwrap().length), 0);
        self.stream.read_exact(&mut bytes[8..]).unwrap();
        Message::decode(&bytes).unwrap()
    }

    fn add(&mut self, flow: &str) {
        let flow = text::parse_flow(flow, FlowModCommand::Add, VERSION).unwrap();
        self.send(2, Body::FlowMod(Box::new(flow)));
        self.send(3, Body::BarrierRequest);
        loop {
            let message = self.read();
            match message.body {
                Body::BarrierReply => return,
                Body::Error(error) => panic!("{error:?}"),
                Body::EchoRequest(content) => self.send(message.xid, Body::EchoReply(content)),
                _ => {}
            }
        }
    }
}

#[test]
fn a_controller_dies_and_returns() {
    let standalone =
        "[bridge.openflow]\ncontrollers = [\"unix:{dir}/controller\"]\nprobe = 2\nmax-backoff = 1\n";
    let rig = rig("openflow", standalone);
    // It has not come yet: the bridge forwards on its own after three probe intervals.
    rig.until_pings(2, true);
    assert_eq!(rig.connections()["standalone"], true);

    let controller = Controller::listen(&rig);
    let mut switch = controller.accept();
    rig.until_connected(true);
    until("flows in force", LIMIT, || Ok((rig.connections()["standalone"] == false).then_some(()))).unwrap();
    switch.add("priority=5,arp,actions=FLOOD");
    switch.add("in_port=1,ip,actions=output:2");
    switch.add("in_port=2,ip,actions=output:1");
    assert!(rig.pings(2) && rig.is_cut_off(3), "only what the controller permits");

    // A copy of what it says, and what it is told.
    let mut snoop = rig.ofctl_in_background("snoop", &["snoop", "br0"]);
    until("a copied message", LIMIT, || {
        switch.add("priority=1,udp,actions=drop");
        let text = std::fs::read_to_string(rig.daemon.path("snoop"))?;
        Ok((text.contains("OFPT_FLOW_MOD (OF1.3)") && text.contains("OFPT_BARRIER_REPLY")).then_some(()))
    })
    .unwrap();
    snoop.terminate().unwrap();

    // It dies: its flows carry on at first, then the bridge forwards everything.
    drop((switch, controller));
    rig.until_connected(false);
    let error = rig.connections()["controllers"][0]["last_error"].as_str().unwrap().to_owned();
    assert!(!error.is_empty());
    rig.until_pings(3, true);
    // It returns, and finds its flows.
    let controller = Controller::listen(&rig);
    let mut switch = controller.accept();
    rig.until_pings(3, false);
    assert!(rig.pings(2));
    switch.add("priority=1,tcp,actions=drop");
    assert_eq!(rig.connections()["flows"], 5);
}

#[test]
fn a_secure_bridge_keeps_to_its_flows() {
    let secure =
        "[bridge.openflow]\ncontrollers = [\"unix:{dir}/controller\"]\nprobe = 1\nfail-mode = \"secure\"\n";
    let rig = rig("openflow", secure);
    let controller = Controller::listen(&rig);
    let mut switch = controller.accept();
    switch.add("priority=5,arp,actions=FLOOD");
    switch.add("in_port=1,ip,actions=output:2");
    switch.add("in_port=2,ip,actions=output:1");
    drop((switch, controller));
    rig.until_connected(false);
    let gone = std::time::Instant::now();
    // Beyond the time after which a standalone bridge forwards everything.
    while gone.elapsed() < Duration::from_secs(5) {
        assert!(rig.pings(2) && rig.is_cut_off(3));
    }
    // The mode changes, and so does the treatment; then back.
    rig.daemon.run(&["openflow", "set", "br0", "--fail-mode", "standalone"]).unwrap();
    rig.until_pings(3, true);
    rig.daemon.run(&["openflow", "set", "br0", "--fail-mode", "secure"]).unwrap();
    rig.until_pings(3, false);
}

#[test]
fn logics_are_replaced_while_packets_flow() {
    let rig = rig("learning", "");
    rig.until_pings(2, true);
    let pings = std::thread::scope(|scope| {
        let ping = scope.spawn(|| ping_all(&rig.guests[0], "10.79.0.2", 300, "0.01").unwrap());
        for _ in 0..10 {
            rig.daemon.run(&["logic", "set", "br0", "openflow"]).unwrap();
            // Without controllers, a visible flow forwards like a learning bridge.
            assert!(rig.ofctl(&["--no-stats", "dump-flows", "br0"]).contains("priority=0 actions=NORMAL"));
            rig.daemon.run(&["logic", "set", "br0", "learning"]).unwrap();
            assert!(!rig.daemon.folder().join("br0.mgmt").exists());
        }
        ping.join().unwrap()
    });
    assert!(!pings.contains("DUP!"), "{pings}");
}

/// The file of the bridge's flows.
fn kept(rig: &Rig) -> String {
    rig.connections()["kept"].as_str().unwrap().to_owned()
}

#[test]
fn flows_outlive_the_daemon_where_they_are_kept() {
    let mut rig = rig("openflow", &format!("{SECURE}keep-flows = true\n"));
    let mswitch =
        |rig: &Rig, arguments: &[&str]| rig.daemon.run(&[&["openflow"], arguments].concat()).unwrap();
    mswitch(&rig, &["add-group", "br0", "group_id=3,type=indirect,bucket=output:2"]);
    mswitch(&rig, &["add-meter", "br0", "meter=1,kbps,bands=type=drop,rate=100000"]);
    rig.ofctl(&["add-flow", "br0", "priority=5,arp,actions=FLOOD"]);
    mswitch(
        &rig,
        &[
            "add-flow",
            "br0",
            "ip,in_port=1,actions=meter:1,group:3",
            "cookie=7,ip,in_port=2,actions=output:1",
        ],
    );
    rig.ofctl(&["add-flow", "br0", "hard_timeout=600,udp,actions=drop"]);
    assert!(rig.pings(2) && rig.is_cut_off(3));
    let file = kept(&rig);
    assert!(file.starts_with(&rig.daemon.path("state/br0-")), "{file}");
    let shown = |rig: &Rig| {
        let [flows, groups, meters] =
            [&["flows", "br0", "--no-stats"][..], &["groups", "br0"], &["meters", "br0"]]
                .map(|list| mswitch(rig, list));
        (flows, groups, meters)
    };
    let before = shown(&rig);
    assert!(rig.daemon.terminate().unwrap().success());
    rig.daemon.restart().unwrap();
    assert_eq!(shown(&rig), before);
    rig.until_pings(2, true);
    assert!(rig.is_cut_off(3));
    let udp = rig.daemon.json(&["openflow", "flows", "br0", "udp"]).unwrap();
    assert!(udp[0]["duration_seconds"].as_f64().unwrap() > 0.5, "its hard timeout goes on: {udp}");

    // A crash loses what came in the last moments.
    let saved = std::fs::read(&file).unwrap();
    mswitch(&rig, &["add-flow", "br0", "tcp,actions=drop"]);
    until("a save", LIMIT, || Ok((std::fs::read(&file)? != saved).then_some(()))).unwrap();
    let before = shown(&rig);
    rig.daemon.kill().unwrap();
    rig.daemon.restart().unwrap();
    assert_eq!(shown(&rig), before);

    // A damaged file restores nothing, and says so.
    rig.daemon.terminate().unwrap();
    let mut damaged = std::fs::read(&file).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    rig.daemon.restart().unwrap();
    assert_eq!(mswitch(&rig, &["flows", "br0"]), "no flows\n");
    let expected = format!(
        "{file}: the file is damaged: its digest does not match its content; the bridge starts without its saved flows"
    );
    assert!(rig.daemon.log().contains(&expected), "{}", rig.daemon.log());

    // Flows go with the logic, and their file too.
    mswitch(&rig, &["add-flow", "br0", "tcp,actions=drop"]);
    until("a save", LIMIT, || Ok((std::fs::read(&file)?.len() < saved.len()).then_some(()))).unwrap();
    rig.daemon.run(&["logic", "set", "br0", "learning"]).unwrap();
    assert!(!std::path::Path::new(&file).exists());
    rig.daemon.run(&["logic", "set", "br0", "openflow"]).unwrap();
    assert_eq!(mswitch(&rig, &["flows", "br0"]), "no flows\n");
}

#[test]
fn controllers_are_replaced_without_dropping_others() {
    let rig =
        rig("openflow", "[bridge.openflow]\ncontrollers = [\"unix:{dir}/controller\"]\nmax-backoff = 1\n");
    let controller = Controller::listen(&rig);
    let mut switch = controller.accept();
    rig.until_connected(true);
    let config = rig.daemon.run(&["config", "show"]).unwrap();
    assert!(config.contains("\n[bridge.openflow]\ncontrollers = [\"unix:"), "{config}");
    let more = config.replace("controllers = [", "controllers = [\"ptcp:0:127.0.0.1\", ");
    let file = rig.write("more.toml", &more);
    let differences = rig.daemon.differences(Some(&file)).unwrap();
    assert!(differences.contains("openflow.controllers"), "{differences}");
    rig.daemon.run(&["config", "apply", &file]).unwrap();
    let controllers = rig.connections()["controllers"].clone();
    assert_eq!(controllers.as_array().unwrap().len(), 2, "{controllers}");
    assert!(controllers[0]["listens"].as_str().unwrap().starts_with("127.0.0.1:"), "{controllers}");
    // The first one was not disconnected.
    switch.add("priority=1,udp,actions=drop");
    // A whole target is removed, flows stay.
    rig.daemon.run(&["openflow", "set", "br0", "--no-controllers"]).unwrap();
    assert_eq!(rig.connections()["controllers"], serde_json::json!([]));
    assert!(rig.ofctl(&["dump-flows", "br0"]).contains("udp actions=drop"));
    let saved = rig.daemon.path("saved.toml");
    rig.daemon.run(&["config", "save", &saved]).unwrap();
    let saved = std::fs::read_to_string(saved).unwrap();
    assert!(saved.contains("max-backoff = 1") && !saved.contains("controllers"), "{saved}");

    // Versions and the id change with new connections, and flows stay.
    rig.daemon
        .run(&["openflow", "set", "br0", "--versions", "1.3", "--datapath-id", "0000000000000abc"])
        .unwrap();
    let (done, text) = rig.try_ofctl(&["-O", "OpenFlow10", "show", "br0"]);
    assert!(!done, "{text}");
    let shown = rig.ofctl(&["-O", "OpenFlow13", "show", "br0"]);
    assert!(shown.contains("dpid:0000000000000abc"), "{shown}");
    assert!(rig.ofctl(&["-O", "OpenFlow13", "dump-flows", "br0"]).contains("udp actions=drop"));
}

#[test]
fn mistakes_name_the_key_and_the_remedy() {
    let rig = rig("openflow", SECURE);
    for (keys, expected) in [
        ("controllers = [\"tcp:\"]", "`controllers`: `tcp:` has no host"),
        ("controllers = [\"unix:c\"]", "`controllers`: `c` is relative to the daemon's working directory"),
        (
            "fail-mode = \"closed\"",
            "`fail-mode`: `closed` is not a fail mode; expected `standalone` or `secure`",
        ),
        ("versions = [\"1.9\"]", "`versions`: `1.9` is not a version of OpenFlow; expected `1.0` to `1.5`"),
        ("datapath-id = \"7\"", "`datapath-id`: `7` is not a datapath id; expected 16 hexadecimal digits"),
        ("tables = { 254 = \"x\" }", "`tables`: `254` is not the number of a flow table; expected 0 to 253"),
        (
            "tables = { 0 = \"x\", 1 = \"x\" }",
            "`tables`: tables 0 and 1 have the same name; choose another one",
        ),
        (
            "tables = { 0 = 1 }",
            "`tables` holds an integer; expected names of tables such as { 0 = \"classify\"",
        ),
        ("probe = -1", "`probe`: -1 is out of range; expected 0 to 3600"),
        ("controler = []", "unknown key `controler`; did you mean `controllers`?"),
    ] {
        let text = format!("{}[bridge.openflow]\n{keys}\n", config::bridge("br0", "openflow"));
        let file = rig.write("wrong.toml", &text);
        let (_, message) = rig.refused(&["config", "check", &file]);
        assert!(message.contains("wrong.toml:5:") && message.contains(expected), "{message}");
    }
    // A socket that another process has: the change is refused, and the bridge stays as it was.
    let socket = rig.daemon.path("taken");
    let _taken = UnixListener::bind(&socket).unwrap();
    rig.daemon.run(&["bridge", "add", "br1"]).unwrap();
    let _mgmt = UnixListener::bind(rig.daemon.path("br1.mgmt")).unwrap();
    let (_, message) = rig.refused(&["logic", "set", "br1", "openflow"]);
    assert!(message.contains("br1.mgmt: another process listens on this socket; `management`"), "{message}");
    assert_eq!(rig.daemon.json(&["logic", "show", "br1"]).unwrap()["name"], "learning");
    let (_, message) = rig.refused(&["openflow", "set", "br0", "--controller", "10.0.0.1"]);
    assert!(message.contains("starts with no known kind"), "{message}");
    let (_, message) = rig.refused(&["logic", "set", "br0", "chain", "--param", "1=openflow"]);
    assert!(message.contains("openflow: it cannot be a stage of a chain"), "{message}");
}

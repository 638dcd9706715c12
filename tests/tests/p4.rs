//! P4 programs on bridges: hosts in namespaces, tables by name, a program replaced under traffic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::time::Duration;

use e2e::{Daemon, Netns, config, ping_all, unique, until};

const LIMIT: Duration = Duration::from_secs(20);

/// Forwards by destination address; addresses that the table does not know go to a multicast group.
const SWITCH: &str = r#"
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
struct headers_t { ethernet_t ethernet; }
struct metadata_t { }

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.ethernet); transition accept; }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    direct_counter(CounterType.packets_and_bytes) hits;
    action forward(bit<9> port) { hits.count(); standard.egress_spec = port; }
    action flood(bit<16> group) { hits.count(); standard.mcast_grp = group; }
    @name("stations") table stations {
        key = { hdr.ethernet.dst: exact @name("mac"); }
        actions = { forward; flood; }
        default_action = flood(1);
        counters = hits;
        size = 1024;
    }
    apply { stations.apply(); }
}

control Reflect(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.egress_port == standard.ingress_port) { mark_to_drop(standard); }
    }
}

control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.ethernet); } }

V1Switch(Parse(), Verify(), Forward(), Reflect(), Compute(), Deparse()) main;
"#;

struct Rig {
    // Dropped in this order: the daemon, then namespaces.
    daemon: Daemon,
    hosts: [Netns; 3],
}

impl Rig {
    /// Three hosts, 192.0.2.1 to 192.0.2.3, at ports 1 to 3 of a bridge that has no program yet.
    fn start(more: &str) -> Rig {
        let hosts: [Netns; 3] = std::array::from_fn(|_| Netns::new().unwrap());
        let mut text = config::bridge("br0", "p4") + more;
        for (i, host) in (1..).zip(&hosts) {
            let number = format!("p4-port = {i}\n");
            let address = format!("192.0.2.{i}/24");
            text += &config::tap(&format!("h{i}"), &unique("p"), host.name(), &[&address], &number);
        }
        let rig = Rig { daemon: Daemon::start(&text).unwrap(), hosts };
        for i in 1..=3 {
            rig.daemon.wait_up("br0", &format!("h{i}")).unwrap();
        }
        rig
    }

    /// Writes a program beside the daemon's files and returns the logic's name.
    fn program(&self, name: &str, text: &str) -> String {
        let path = self.daemon.path(name);
        fs::write(&path, text).unwrap();
        format!("p4:{path}")
    }

    fn run(&self, words: &[&str]) -> String {
        self.daemon.run(words).unwrap()
    }

    /// The MAC address of a host's interface.
    fn mac(&self, host: usize) -> String {
        let links = self.hosts[host].run(&["ip", "-o", "link", "show", "type", "tun"]).unwrap();
        links.split_once("link/ether ").unwrap().1[..17].to_owned()
    }
}

impl Rig {
    /// Loads the program and tells it of the hosts.
    fn forward(&self) -> String {
        let logic = self.program("switch.p4", SWITCH);
        self.run(&["logic", "set", "br0", &logic]);
        self.run(&["p4", "add", "br0", "multicast 1 ports=1,2,3"]);
        for host in 0..3 {
            let entry = format!("stations mac={} => forward(port={})", self.mac(host), host + 1);
            self.run(&["p4", "add", "br0", &entry]);
        }
        logic
    }

    fn dropped(&self, counter: &str) -> u64 {
        let shown = self.daemon.json(&["logic", "show", "br0"]).unwrap();
        let counters = shown["counters"].as_array().unwrap().iter();
        let named = |it: &&serde_json::Value| it["name"] == counter;
        let value = counters.clone().find(named).unwrap_or_else(|| panic!("no counter {counter}: {shown}"));
        value["value"].as_u64().or_else(|| value["value"].as_str()?.parse().ok()).unwrap()
    }

    /// Replies that a host sees to pings of another while `change` runs.
    fn ping_during(&self, change: impl FnOnce()) -> String {
        std::thread::scope(|scope| {
            let ping = scope.spawn(|| ping_all(&self.hosts[0], "192.0.2.2", 400, "0.005").unwrap());
            change();
            ping.join().unwrap()
        })
    }
}

#[test]
fn hosts_reach_each_other_through_tables() {
    let rig = Rig::start("");
    let before = rig.dropped("dropped_no_program");
    assert!(rig.hosts[0].run(&["ping", "-n", "-c", "1", "-W", "1", "192.0.2.2"]).is_err());
    assert!(rig.dropped("dropped_no_program") > before);
    rig.forward();
    for to in ["192.0.2.2", "192.0.2.3"] {
        ping_all(&rig.hosts[0], to, 5, "0.01").unwrap();
    }
    let tables = rig.run(&["p4", "tables", "br0", "stations"]);
    let hits = format!("stations mac={} packets=", rig.mac(1));
    assert!(tables.lines().any(|line| line.starts_with(&hits)), "{tables}");
    // A station that is sent to the wrong port is not reached.
    rig.run(&["p4", "mod", "br0", &format!("stations mac={} => forward(port=3)", rig.mac(1))]);
    assert!(rig.hosts[0].run(&["ping", "-n", "-c", "1", "-W", "1", "192.0.2.2"]).is_err());
}

#[test]
fn a_program_is_replaced_under_traffic_and_keeps_entries() {
    let rig = Rig::start("");
    let logic = rig.forward();
    ping_all(&rig.hosts[0], "192.0.2.2", 5, "0.01").unwrap();
    // The next program counts in a register, too.
    let counts = SWITCH
        .replace("    direct_counter", "    register<bit<32>>(1) seen;\n    direct_counter")
        .replace("    apply { stations", "    apply {\n        bit<32> n;\n        seen.read(n, 0);\n        seen.write(0, n + 1);\n        stations");
    assert_ne!(counts, SWITCH);
    rig.ping_during(|| {
        for text in [counts.as_str(), SWITCH, counts.as_str()] {
            rig.program("switch.p4", text);
            rig.run(&["logic", "set", "br0", &logic]);
        }
    });
    let register = rig.run(&["p4", "registers", "br0"]);
    assert!(register.starts_with("register seen[0] value="), "{register}");
    assert_eq!(rig.run(&["p4", "tables", "br0", "stations"]).lines().count(), 4);
}

#[test]
fn a_wrong_program_changes_nothing() {
    let rig = Rig::start("");
    let logic = rig.forward();
    rig.program("switch.p4", &SWITCH.replace("hdr.ethernet.dst: exact", "hdr.ethernet.dest: exact"));
    let error = rig.daemon.run(&["logic", "set", "br0", &logic]).unwrap_err().to_string();
    assert!(error.contains("switch.p4:") && error.contains("dest"), "{error}");
    ping_all(&rig.hosts[0], "192.0.2.2", 5, "0.01").unwrap();
    for (words, expected) in [
        (&["p4", "add", "br0", "station mac=1 => flood(1)"][..], "stations"),
        (&["p4", "add", "br0", "stations mac=1 => flod(group=1)"], "flood"),
        (&["p4", "del", "br0", "stations mac=1"], "stations"),
        (&["logic", "set", "br0", "p4:/no/such.p4"], "/no/such.p4"),
        (&["logic", "set", "br0", "p4", "--param", "cpu-port=0"], "from 1 to 4294967295"),
        (&["logic", "set", "br0", "p4", "--param", "cpu-prt=1"], "`cpu-port`"),
    ] {
        let error = rig.daemon.run(words).unwrap_err().to_string();
        assert!(error.contains(expected), "{words:?}: {error}");
    }
}

#[test]
fn another_cpu_port_keeps_entries_and_the_server() {
    let rig = Rig::start("");
    let logic = rig.forward();
    let socket = rig.daemon.path("br0.p4rt");
    rig.ping_during(|| {
        rig.run(&["logic", "set", "br0", &logic, "--param", "cpu-port=255"]);
        // A port cannot keep the number of the controllers.
        rig.run(&["logic", "set", "br0", &logic, "--param", "cpu-port=3"]);
    });
    assert!(fs::metadata(&socket).is_ok());
    assert_eq!(rig.run(&["p4", "tables", "br0", "stations"]).lines().count(), 4);
    assert!(rig.run(&["logic", "show", "br0"]).contains("cpu-port=3"));
    assert!(
        rig.hosts[0].run(&["ping", "-n", "-c", "1", "-W", "1", "192.0.2.3"]).is_err(),
        "it lost its number"
    );
}

#[test]
fn a_trace_shows_the_way_through_a_program() {
    let rig = Rig::start("");
    rig.forward();
    let (to, from) = (rig.mac(1).replace(':', ""), rig.mac(0).replace(':', ""));
    let packet = format!("{to}{from}88b5{}", "00".repeat(46));
    let trace = rig.run(&["trace", "br0", "--port", "h1", "--packet", &packet]);
    for part in ["start", "stations", "forward", "h2"] {
        assert!(trace.contains(part), "no {part} in:\n{trace}");
    }
}

/// The path of an example.
fn example(name: &str) -> String {
    format!("{}/../examples/p4/functions/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_function_of_a_native_module_makes_cookies_that_a_kernel_acknowledges() {
    let rig = Rig::start("");
    let [program, case] = ["syn_cookies.p4", "syn_cookies.stf"].map(example);
    let folder = rig.daemon.path("");
    let module = e2e::modules::native("examples/p4/functions/siphash.c", folder.as_ref(), &[]).unwrap();
    let module = module.strip_prefix("native:").unwrap();
    let passed = rig.run(&["p4", "test", &program, &case, "--functions", module]);
    assert!(passed.ends_with("passed, 6 packets\n"), "{passed}");

    let logic = format!("p4:{program}");
    let functions = |file: &str| {
        rig.daemon.run(&["logic", "set", "br0", &logic, "--param", &format!("functions={file}")])
    };
    for (error, expected) in [
        (
            rig.daemon.run(&["logic", "set", "br0", &logic]),
            "calls `siphash(out bit<64>, in bit<128>, in bit<104>)`",
        ),
        (functions("/no/such.so"), "/no/such.so"),
        (functions(&program), "not a shared object"),
    ] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    functions(module).unwrap();
    assert!(rig.run(&["logic", "show", "br0"]).contains(&format!("functions={module}")));
    rig.run(&["p4", "mod", "br0", "secret default => use(key=0x0123456789abcdef)"]);
    // Nobody has the address; the guard answers for it.
    let client = &rig.hosts[0];
    let link = client.run(&["ip", "-o", "link", "show", "type", "tun"]).unwrap();
    let link = link.split(": ").nth(1).unwrap();
    client.run(&["ip", "neigh", "add", "192.0.2.77", "lladdr", &rig.mac(1), "dev", link]).unwrap();
    let connect = || client.run(&["timeout", "20", "bash", "-c", "exec 3<>/dev/tcp/192.0.2.77/80"]);
    connect().unwrap();
    rig.run(&["p4", "mod", "br0", "secret default => use(key=5)"]);
    connect().unwrap();
    // Of both connections, the acknowledgment of the cookie reaches the server, which has another address.
    until("segments reach the server", LIMIT, || {
        let counters = rig.hosts[1].run(&["grep", "^Ip:", "/proc/net/snmp"])?;
        let lines: Vec<Vec<&str>> = counters.lines().map(|line| line.split(' ').collect()).collect();
        let at = lines[0].iter().position(|name| *name == "InAddrErrors").unwrap();
        Ok((lines[1][at].parse::<u64>().unwrap() >= 2).then_some(()))
    })
    .unwrap();
}

#[test]
fn numbers_of_ports_and_addresses_of_servers_are_configured() {
    let rig = Rig::start("[bridge.p4]\nlisten = [\"unix:{dir}/p4.sock\"]\ndevice-id = 7\n\n");
    let socket = rig.daemon.path("p4.sock");
    until("the socket", LIMIT, || Ok(fs::metadata(&socket).is_ok().then_some(()))).unwrap();
    let error = rig
        .daemon
        .run(&["port", "add", "br0", "h4", "--type", "tap", "--p4-port", "3", "--interface", &unique("p")])
        .unwrap_err()
        .to_string();
    assert!(error.contains("h3") && error.contains("p4-port"), "{error}");
    rig.run(&["logic", "set", "br0", "learning"]);
    until("the end of the socket", LIMIT, || Ok(fs::metadata(&socket).is_err().then_some(()))).unwrap();
    ping_all(&rig.hosts[0], "192.0.2.2", 5, "0.01").unwrap();
}

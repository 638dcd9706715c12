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

control Ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
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

control Egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.egress_port == standard.ingress_port) { mark_to_drop(standard); }
    }
}

control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.ethernet); } }

V1Switch(Parse(), Verify(), Ingress(), Egress(), Compute(), Deparse()) main;
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

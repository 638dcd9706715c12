//! The examples of `examples/modules`, each as WebAssembly and as a shared object.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use e2e::{Daemon, Netns, Running, config, modules, until};

const LIMIT: Duration = Duration::from_secs(30);

/// A bridge with this logic and hosts 10.94.0.1, 10.94.0.2 and so on, each in its own namespace on a port p0, p1 and so
/// on.
fn hosts(logic: &str, params: &str, count: usize, keys: &str) -> (Daemon, Vec<Netns>) {
    let netns: Vec<_> = (0..count).map(|_| Netns::new().unwrap()).collect();
    for netns in &netns {
        // IPv6 announcements would be flooded at any time.
        netns.run(&["sysctl", "-q", "-w", "net.ipv6.conf.default.disable_ipv6=1"]).unwrap();
    }
    let port = |(i, netns): (usize, &Netns)| {
        config::tap(&format!("p{i}"), "eth0", netns.name(), &[&format!("10.94.0.{}/24", i + 1)], keys)
    };
    let ports: String = netns.iter().enumerate().map(port).collect();
    let bridge = config::bridge("br0", logic) + &format!("params = {{ {params} }}\n");
    (Daemon::start(&(bridge + &ports)).unwrap(), netns)
}

fn kinds(source: &str) -> [String; 2] {
    let folder = Box::leak(Box::new(tempfile::tempdir().unwrap()));
    [modules::wasm(source, folder.path(), &[]).unwrap(), modules::native(source, folder.path(), &[]).unwrap()]
}

fn ping(netns: &Netns, to: &str) -> e2e::Result<String> {
    netns.run(&["ping", "-q", "-c", "3", "-i", "0.05", "-W", "1", to])
}

fn counter(daemon: &Daemon, name: &str) -> u64 {
    let shown = daemon.json(&["logic", "show", "br0"]).unwrap();
    let counters = shown["counters"].as_array().unwrap();
    counters.iter().find(|counter| counter["name"] == name).unwrap()["value"].as_u64().unwrap()
}

#[test]
fn learning_shows_its_table_and_forgets_on_command() {
    for logic in kinds("examples/modules/learning.c") {
        let (daemon, netns) = hosts(&logic, "ageing = \"60\"", 3, "");
        until("answers", LIMIT, || Ok(ping(&netns[0], "10.94.0.2").ok())).unwrap();
        let shown = daemon.json(&["logic", "show", "br0"]).unwrap();
        assert_eq!(shown["params"]["ageing"], "60", "{shown}");
        let table = &shown["tables"][0];
        assert_eq!(table["name"], "fdb");
        assert!(table["rows"].as_array().unwrap().len() >= 2, "{shown}");
        assert!(counter(&daemon, "learned") >= 2);
        // Traffic between two hosts does not reach a third one.
        let before = daemon.port("br0", "p2").unwrap().delivered();
        ping(&netns[0], "10.94.0.2").unwrap();
        assert!(daemon.port("br0", "p2").unwrap().delivered() - before < 6);
        let station = netns[0].run(&["cat", "/sys/class/net/eth0/address"]).unwrap();
        assert_eq!(
            daemon.run(&["logic", "call", "br0", "forget", station.trim()]).unwrap().trim(),
            "forgotten"
        );
        for (arguments, expected) in [
            (vec!["forget", "02:00:00:00:00:99"], "there is no such station"),
            (vec!["forget", "me"], "forget takes a MAC address"),
            (vec!["flush"], "has no command `flush`; its commands are: forget"),
        ] {
            let output = daemon.cli(&[vec!["logic", "call", "br0"], arguments].concat()).unwrap();
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.code() == Some(1) && error.contains(expected), "{error}");
        }
        let listed = daemon.run(&["logic", "list", &logic]).unwrap();
        assert!(listed.contains("ageing") && listed.contains("a learning bridge"), "{listed}");
    }
}

#[test]
fn octet_sends_to_the_port_named_by_the_last_octet() {
    let folder = tempfile::tempdir().unwrap();
    let in_rust = modules::wasm_from_rust("examples/modules/octet.rs", folder.path()).unwrap();
    for logic in kinds("examples/modules/octet.c").into_iter().chain([in_rust]) {
        let (daemon, netns) = hosts(&logic, "", 3, "");
        let address = |i: usize| netns[i].run(&["cat", "/sys/class/net/eth0/address"]).unwrap();
        // ARP is not forwarded.
        for (i, netns) in netns.iter().enumerate() {
            for other in (0..3).filter(|other| *other != i) {
                // Host 10.94.0.2 is behind port index 1; for this test its address is 10.94.1.1, and so on.
                let to = format!("10.94.1.{other}");
                netns
                    .run(&["ip", "neigh", "replace", &to, "lladdr", address(other).trim(), "dev", "eth0"])
                    .unwrap();
            }
            netns.run(&["ip", "addr", "add", &format!("10.94.1.{i}/24"), "dev", "eth0"]).unwrap();
        }
        until("answers", LIMIT, || Ok(ping(&netns[0], "10.94.1.2").ok())).unwrap();
        ping(&netns[2], "10.94.1.1").unwrap();
        drop(daemon);
    }
}

#[test]
fn balancer_distributes_round_robin() {
    for logic in kinds("examples/modules/balancer.c") {
        let (daemon, netns) = hosts(&logic, "from = \"p0\"", 3, "");
        let received = |i: usize| {
            netns[i]
                .run(&["cat", "/sys/class/net/eth0/statistics/rx_packets"])
                .unwrap()
                .trim()
                .parse::<u64>()
                .unwrap()
        };
        until("the ports", LIMIT, || {
            Ok((1..3).all(|i| daemon.wait_up("br0", &format!("p{i}")).is_ok()).then_some(()))
        })
        .unwrap();
        let before = [received(1), received(2)];
        // To a non-existent host, so that the receivers only count.
        netns[0]
            .run(&["ip", "neigh", "replace", "10.94.0.99", "lladdr", "02:00:00:00:00:99", "dev", "eth0"])
            .unwrap();
        let _ = netns[0].run(&["ping", "-q", "-c", "40", "-i", "0.01", "-W", "1", "10.94.0.99"]);
        let more = [received(1) - before[0], received(2) - before[1]];
        assert!(more.iter().all(|more| (18..30).contains(more)), "{more:?}");
        assert!(counter(&daemon, "spread") >= 40);
    }
}

#[test]
fn arp_answers_for_an_address() {
    for logic in kinds("examples/modules/arp.c") {
        let params = "address = \"10.94.0.77\", station = \"02:00:00:00:00:77\"";
        let (daemon, netns) = hosts(&logic, params, 2, "");
        let neighbour = || {
            let _ = ping(&netns[0], "10.94.0.77");
            let shown = netns[0].run(&["ip", "neigh", "show", "10.94.0.77"])?;
            Ok(shown.contains("02:00:00:00:00:77").then_some(()))
        };
        until("the answer", LIMIT, neighbour).unwrap();
        assert!(counter(&daemon, "answered") >= 1);
        until("other answers", LIMIT, || Ok(ping(&netns[0], "10.94.0.2").ok())).unwrap();
    }
}

#[test]
fn vlan_joins_two_vlans() {
    for logic in kinds("examples/modules/vlan.c") {
        // With VLANs assigned to the ports, then with tags in the packets.
        let (daemon, netns) = hosts(&logic, "a = \"10\", b = \"20\"", 2, "vlan = \"access:10\"");
        daemon.run(&["port", "set", "br0", "p1", "--vlan", "access:20"]).unwrap();
        until("answers across VLANs", LIMIT, || Ok(ping(&netns[0], "10.94.0.2").ok())).unwrap();
        drop(daemon);
        let (_daemon, netns) = hosts(&logic, "a = \"0\", b = \"20\"", 2, "");
        let mut ping = netns[0].command(&["ping", "-q", "-i", "0.05", "10.94.0.2"]);
        let _ping = Running::start(ping.stdout(Stdio::null())).unwrap();
        netns[1].run(&["timeout", "30", "tcpdump", "-c", "1", "-i", "eth0", "vlan", "20"]).unwrap();
    }
}

/// Sends a file over TCP in small segments: the joined segments are fewer, and the received bytes are the same.
#[test]
fn resegment_joins_tcp_segments() {
    let bytes: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(4 << 20).collect();
    for logic in kinds("examples/modules/resegment.c") {
        let (daemon, netns) = hosts(&logic, "", 2, "");
        for netns in &netns {
            netns
                .run(&["ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off", "gro", "off"])
                .unwrap();
        }
        until("answers", LIMIT, || Ok(ping(&netns[0], "10.94.0.2").ok())).unwrap();
        netns[0].run(&["ip", "route", "replace", "10.94.0.2/32", "dev", "eth0", "advmss", "300"]).unwrap();
        netns[1].run(&["ip", "route", "replace", "10.94.0.1/32", "dev", "eth0", "advmss", "300"]).unwrap();
        let dropped = || daemon.port("br0", "p0").unwrap().dropped();
        let before = dropped();
        let listener = netns[1].enter(|| TcpListener::bind("10.94.0.2:7000")).unwrap().unwrap();
        let received = std::thread::scope(|scope| {
            let listening = scope.spawn(|| {
                let mut received = Vec::new();
                listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
                received
            });
            let mut stream = netns[0].enter(|| TcpStream::connect("10.94.0.2:7000")).unwrap().unwrap();
            stream.write_all(&bytes).unwrap();
            drop(stream);
            listening.join().unwrap()
        });
        let differs = received.iter().zip(&bytes).position(|(received, sent)| received != sent);
        assert_eq!((received.len(), differs), (bytes.len(), None), "received length and first difference");
        let (joined, made) = (counter(&daemon, "joined"), counter(&daemon, "made"));
        assert!(joined > 1000 && made * 2 < joined, "{joined} segments became {made}");
        // Joined segments were forwarded inside others: none counts as dropped.
        assert_eq!(dropped(), before);
    }
}

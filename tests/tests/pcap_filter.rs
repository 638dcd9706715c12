//! `pcap-filter`: expressions drop, divert and change packets of real clients; the list is replaced under traffic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use e2e::frames::Sender;
use e2e::{Daemon, Netns, config, ping_all, unique, until};
use packet::Sum;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(20);

/// A frame from station 1 to station 2: a UDP or TCP packet with a payload of so many bytes.
fn frame(protocol: u8, port: u16, payload: usize) -> Vec<u8> {
    let mut ip = vec![0x45, 0];
    ip.extend((28 + payload as u16).to_be_bytes());
    ip.extend([0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = Sum::of(&ip).finish().to_be_bytes();
    ip[10..12].copy_from_slice(&sum);
    ip.extend(40_000u16.to_be_bytes());
    ip.extend(port.to_be_bytes());
    ip.extend([0; 4]);
    let payload = (0..payload).map(|i| i as u8);
    [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0].into_iter().chain(ip).chain(payload).collect()
}

/// A daemon with memif clients on ports `p0` to `p2`.
fn rig(rules: &[&str], more: &str) -> (Daemon, [Sender; 3]) {
    let mut text = config::bridge("br0", "pcap-filter") + "[bridge.params]\n" + more;
    for (number, rule) in (1..).zip(rules) {
        text += &format!("{number} = \"{rule}\"\n");
    }
    text.extend((0..3).map(|id| config::memif(&format!("p{id}"), id, "")));
    let daemon = Daemon::start(&text).unwrap();
    let clients = std::array::from_fn(|id| Sender::connect(&daemon, id as u32).unwrap());
    for id in 0..3 {
        daemon.wait_up("br0", &format!("p{id}")).unwrap();
    }
    (daemon, clients)
}

/// The next packets that a client receives.
fn next<const N: usize>(client: &mut Sender) -> [Vec<u8>; N] {
    let mut received = Vec::new();
    until("packets", LIMIT, || {
        received.extend(client.received());
        Ok((received.len() >= N).then_some(()))
    })
    .unwrap();
    received.try_into().unwrap_or_else(|received: Vec<_>| panic!("{} packets instead of {N}", received.len()))
}

/// Packets that each rule has kept, and those that none has.
fn hits(daemon: &Daemon) -> Vec<String> {
    let shown = daemon.json(&["logic", "show", "br0", "--table", "rules"]).unwrap();
    let table = shown["tables"][0]["rows"].as_array().unwrap().clone();
    table.iter().map(|row| row["cells"][1].as_str().unwrap().to_owned()).collect()
}

fn unmatched(daemon: &Daemon) -> Value {
    daemon.json(&["logic", "show", "br0"]).unwrap()["counters"][0]["value"].clone()
}

#[test]
fn expressions_drop_divert_and_change() {
    let rules = [
        "tcp port 23 -> drop",
        "udp port 53 -> set ttl 9, set mac-dst 02:00:00:00:00:03, set vlan 7, port p2",
        "less 700 and udp[400] = 0x88 -> drop",
        "udp[1000] = 0xe0 -> drop",
        "udp -> set dscp 46",
    ];
    let (daemon, [mut a, mut b, mut c]) = rig(&rules, "default = \"p1\"\n");
    for (protocol, port) in [(6, 23), (17, 53), (17, 54), (6, 24)] {
        a.send(&frame(protocol, port, 100)).unwrap();
    }
    // Bytes behind the private header of 128 bytes, and behind the 512 that it can have.
    a.send(&frame(17, 99, 600)).unwrap();
    a.send(&frame(17, 99, 1400)).unwrap();

    let [diverted] = next(&mut c);
    assert_eq!(diverted[..18], [2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 7, 8, 0]);
    assert_eq!((diverted[18 + 8], Sum::of(&diverted[18..38]).finish()), (9, 0), "TTL and its checksum");
    let [marked, plain] = next(&mut b);
    assert_eq!((marked[15], &marked[36..38]), (46 << 2, &[0, 54][..]));
    assert_eq!(plain, frame(6, 24, 100));
    assert!(c.received().is_empty() && b.received().is_empty());
    assert_eq!(hits(&daemon), ["1", "1", "1", "1", "1"]);
    assert_eq!(unmatched(&daemon), 2, "that of TCP, and that which was marked");
    assert_eq!(daemon.port("br0", "p0").unwrap().dropped(), 3);

    let traced = |packet: &str| daemon.run(&["trace", "br0", "--port", "p0", "--packet", packet]).unwrap();
    let text = traced("Ether()/IP(dst=\"10.0.0.2\")/UDP(dport=53)");
    assert!(text.contains("expression 2, `udp port 53`, keeps it: set ttl 9, "), "{text}");
    let text = traced("Ether()/IP(dst=\"10.0.0.2\")/TCP(dport=80)");
    assert!(text.contains("no expression keeps it") && text.contains("the default port, p1"), "{text}");
    assert_eq!(hits(&daemon), ["1", "1", "1", "1", "1"], "a trace counts nothing");
}

#[test]
fn rules_that_pass_end_the_list_and_later_ones_see_changes() {
    let rules = [
        "udp port 77 -> set mac-src 02:00:00:00:00:09, pass",
        "udp port 78 -> set vlan 9",
        "vlan 9 and udp port 78 -> set vlan 10, next",
        "vlan 10 and udp port 78 -> set dscp 8, pass",
        "udp port 79 -> set vlan 11",
        "vlan 11 -> set vlan 0",
        "udp -> set dscp 46",
    ];
    let (daemon, [mut a, mut b, _]) = rig(&rules, "default = \"p1\"\n");
    for port in [77, 78, 79] {
        a.send(&frame(17, port, 100)).unwrap();
    }
    let [passed, tagged, untagged] = next(&mut b);
    let mut expected = frame(17, 77, 100);
    expected[11] = 9;
    assert_eq!(passed, expected);
    assert_eq!((&tagged[12..16], tagged[19], &tagged[40..42]), (&[0x81, 0, 0, 10][..], 8 << 2, &[0, 78][..]));
    assert_eq!(
        (untagged[15], &untagged[36..38], untagged.len()),
        (46 << 2, &[0, 79][..], frame(17, 79, 100).len())
    );
    assert_eq!(hits(&daemon), ["1", "1", "1", "1", "1", "1", "1"]);
    assert_eq!(unmatched(&daemon), 1, "the one that was marked");
    let packet = "Ether()/IP(dst=\"10.0.0.2\")/UDP(dport=99)";
    let text = daemon.run(&["trace", "br0", "--port", "p0", "--packet", packet]).unwrap();
    assert!(text.contains("no further expression keeps it"), "{text}");
}

#[test]
fn wrong_rules_are_refused_with_their_place() {
    let (daemon, [mut a, mut b, _]) = rig(&["arp -> drop"], "default = \"p1\"\n");
    let refused = |rules: &[&str]| {
        let params =
            (1..).zip(rules).flat_map(|(number, rule)| ["--param".into(), format!("{number}={rule}")]);
        let params: Vec<String> = params.collect();
        let words = ["logic", "set", "br0", "pcap-filter"].into_iter();
        let words: Vec<_> = words.chain(params.iter().map(String::as_str)).collect();
        let output = daemon.cli(&words).unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = refused(&["arp -> drop", "tcp prot 23 -> drop"]);
    let expected = "parameter `2` of logic `pcap-filter`: syntax error\n\
                    mswitch:   tcp prot 23 -> drop\n\
                    mswitch:       ^\n";
    assert!(said.contains(expected), "{said}");
    assert!(refused(&["host 10.0.0.300 -> drop"]).contains("invalid IPv4 address '10.0.0.300'"));
    assert!(refused(&["arp -> dorp"]).contains("`dorp` is no action"));
    let sum = format!("len{} = 3 -> drop", "+len".repeat(250));
    let said = refused(&[sum.as_str(); 36]);
    assert!(said.contains("instructions together, more than 8192"), "{said}");
    // The list in use is the old one, and works.
    a.send(&frame(6, 23, 10)).unwrap();
    assert_eq!(next(&mut b), [frame(6, 23, 10)]);
    let shown = daemon.json(&["logic", "show", "br0"]).unwrap();
    assert_eq!(shown["params"], json!({"1": "arp -> drop", "default": "p1"}));
}

#[test]
fn a_chain_is_replaced_under_traffic_without_loss() {
    let guests: [Netns; 2] = std::array::from_fn(|_| Netns::new().unwrap());
    let mut text = config::bridge("br0", "chain")
        + "params = { 1 = \"pcap-filter '1=icmp[icmptype] = icmp-tstamp -> drop'\", 2 = \"learning\" }\n";
    for ((guest, name), address) in guests.iter().zip(["a", "b"]).zip(1..) {
        text += &config::tap(name, &unique("t"), guest.name(), &[&format!("10.79.0.{address}/24")], "");
    }
    let daemon = Daemon::start(&text).unwrap();
    let ping = |count: &str| {
        let command = ["ping", "-c", count, "-i", "0.01", "-W", "1", "10.79.0.2"];
        guests[0].command(&command).output().unwrap().status.success()
    };
    assert!(ping("1"));
    let set = |first: &str| {
        let first = format!("1=pcap-filter {first}");
        let words = ["logic", "set", "br0", "chain", "--param", &first, "--param", "2=learning"];
        daemon.run(&words).unwrap();
    };
    let pings = std::thread::scope(|scope| {
        let ping = scope.spawn(|| ping_all(&guests[0], "10.79.0.2", 120, "0.01").unwrap());
        for number in 0..12 {
            set(&format!("'1=udp port {number} or tcp -> drop' '2=icmp -> set ttl {}'", 100 + number));
        }
        ping.join().unwrap()
    });
    assert!(!pings.contains("DUP!"), "{pings}");
    assert!(pings.contains("ttl=1"), "the rules were in effect: {pings}");
    set("'1=icmp -> drop'");
    assert!(!ping("3"), "pings are dropped");
    let shown = daemon.json(&["logic", "show", "br0"]).unwrap();
    let tables = shown["tables"].as_array().unwrap();
    let rules = tables.iter().find(|table| table["name"] == "stage1_rules").unwrap();
    assert_eq!(rules["rows"][0]["cells"][1], "3", "{rules}");
}

//! `three-tuple`: packets of reserved endpoints between an uplink, the host and two stacks. The reservations are real:
//! sockets in a network namespace that has the addresses.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use fabric::port::VidSet;
use fabric::{DropReason, VlanMode};
use logic::{Logic, replace};
use packet::{Offload, Sum, Vid};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::rig::{Client, Rig, make};

/// The host's address, and one outside.
const HOST: [u8; 4] = [192, 0, 2, 1];
const AWAY: [u8; 4] = [198, 51, 100, 7];
const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const AWAY_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
/// Extension headers of IPv6: a fragment's, and destination options.
const FRAGMENT: u8 = 44;
const OPTIONS: u8 = 60;

/// A namespace with the host's addresses. Drop removes it.
struct Namespace(String);

impl Namespace {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("msw-tt-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let namespace = Self(name);
        let ip = |words: &str| {
            let words: Vec<_> = words.split(' ').map(|word| word.replace("NS", &namespace.0)).collect();
            let output = Command::new("ip").args(&words).output().unwrap();
            assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        ip("netns add NS");
        ip("-n NS link set lo up");
        ip("-n NS addr add 192.0.2.1/32 dev lo");
        ip("-n NS addr add 2001:db8::1/128 dev lo nodad");
        ip("-n NS link add wide type veth");
        ip("-n NS addr add 203.0.113.1/24 broadcast + dev wide");
        ip("-n NS link set wide up");
        namespace
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

/// A bridge with an uplink, the host's port and two stacks.
pub struct Site {
    // Dropped before the namespace.
    pub rig: Rig,
    pub logic: Arc<dyn Logic>,
    uplink: Client,
    host: Client,
    stacks: [Client; 2],
    namespace: Namespace,
}

fn logic(namespace: &Namespace, more: &[(&str, &str)]) -> Arc<dyn Logic> {
    let given = [("host", "host"), ("uplink", "uplink"), ("netns", &namespace.0)];
    make("three-tuple", &[&given[..], more].concat())
}

impl Site {
    fn new(more: &[(&str, &str)], vlan: &VlanMode) -> Self {
        let namespace = Namespace::new();
        let logic = logic(&namespace, more);
        let rig = Rig::new(1, logic.clone());
        let port = |name: &str| rig.port(name, vlan.clone());
        let (uplink, host, stacks) = (port("uplink"), port("host"), [port("s1"), port("s2")]);
        Self { rig, logic, uplink, host, stacks, namespace }
    }

    pub fn with_params(more: &[(&str, &str)]) -> Self {
        Self::new(more, &VlanMode::Transparent)
    }

    fn plain() -> Self {
        Self::with_params(&[("mac", "02:00:00:00:00:01")])
    }

    fn call(&self, line: &str) -> Result<String, String> {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        self.logic.call(&words).map_err(|error| error.to_string())
    }

    fn clients(&self) -> [&Client; 4] {
        [&self.uplink, &self.host, &self.stacks[0], &self.stacks[1]]
    }

    /// Sends frames from a port; returns what each of uplink, host and stacks got.
    fn send(&self, from: &Client, frames: &[Vec<u8>]) -> [Vec<Vec<u8>>; 4] {
        from.send_and_settle(frames.iter().cloned());
        self.clients().map(|client| client.take())
    }

    /// Asserts that a frame goes to these of uplink, host, stack 1 and stack 2, and that a trace says so before.
    fn expect(&self, from: &Client, frame: &[u8], to: &[usize]) {
        let traced = self.rig.switch.trace(from.at, frame, Offload::NONE).unwrap();
        let mut predicted: Vec<_> = traced.outputs.iter().map(|output| usize::from(output.port.0)).collect();
        predicted.sort_unstable();
        let got = self.send(from, &[frame.to_vec()]);
        let reached: Vec<_> = (0..4).filter(|port| !got[*port].is_empty()).collect();
        assert_eq!(reached, to, "{frame:02x?}");
        assert_eq!(predicted, to, "{frame:02x?}");
        assert!(got.iter().flatten().all(|out| out == frame));
    }

    fn refused(&self, stack: usize) -> u64 {
        self.rig.drops(&self.stacks[stack], DropReason::UnreservedSource)
    }

    fn counter(&self, name: &str) -> u64 {
        self.logic.counters().into_iter().find(|counter| counter.name == name).unwrap().value
    }
}

fn ethernet(from: [u8; 6], to: [u8; 6], kind: u16, body: &[u8]) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes(), body].concat()
}

fn ipv4(from: [u8; 4], to: [u8; 4], protocol: u8, fragmentation: u16, body: &[u8]) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend((20 + body.len() as u16).to_be_bytes());
    header.extend([0x12, 0x34]);
    header.extend(fragmentation.to_be_bytes());
    header.extend([64, protocol, 0, 0]);
    header.extend([from, to].concat());
    let sum = Sum::of(&header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [header, body.to_vec()].concat()
}

fn ports(from: u16, to: u16) -> Vec<u8> {
    [&from.to_be_bytes()[..], &to.to_be_bytes(), &[0, 16, 0, 0], &[9; 8]].concat()
}

/// A packet from outside to the host's address.
fn inward(protocol: u8, to: u16) -> Vec<u8> {
    ethernet(AWAY_MAC, HOST_MAC, 0x0800, &ipv4(AWAY, HOST, protocol, 0, &ports(5000, to)))
}

/// A packet from the host's address to the outside.
fn outward(protocol: u8, from: u16) -> Vec<u8> {
    ethernet(HOST_MAC, AWAY_MAC, 0x0800, &ipv4(HOST, AWAY, protocol, 0, &ports(from, 5000)))
}

fn inward6(to: u16) -> Vec<u8> {
    let body = ports(5000, to);
    let mut packet = vec![0x60, 0, 0, 0, 0, body.len() as u8, TCP, 64];
    packet.extend("2001:db8:1::7".parse::<std::net::Ipv6Addr>().unwrap().octets());
    packet.extend("2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
    ethernet(AWAY_MAC, HOST_MAC, 0x86dd, &[packet, body].concat())
}

fn arp(operation: u8, from: [u8; 6], address: [u8; 4]) -> Vec<u8> {
    arp_of(from, operation, from, address)
}

/// ARP whose sender field differs from the source of the frame.
fn arp_of(frame: [u8; 6], operation: u8, from: [u8; 6], address: [u8; 4]) -> Vec<u8> {
    let body = [&[0, 1, 8, 0, 6, 4, 0, operation][..], &from, &address, &[0; 6], &AWAY].concat();
    ethernet(frame, [0xff; 6], 0x0806, &body)
}

const HOST6: &str = "2001:db8::1";
const AWAY6: &str = "2001:db8:1::7";

/// An IPv6 packet of the host's MAC address.
fn outward6(from: &str, to: &str, next: u8, body: &[u8]) -> Vec<u8> {
    let octets = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let length = (body.len() as u16).to_be_bytes();
    let packet = [&[0x60, 0, 0, 0][..], &length, &[next, 255], &octets(from), &octets(to), body].concat();
    ethernet(HOST_MAC, AWAY_MAC, 0x86dd, &packet)
}

/// Header of a fragment that is not the last one.
fn fragment(next: u8, words: u16, id: u8) -> [u8; 8] {
    let [high, low] = (words << 3 | 1).to_be_bytes();
    [next, 0, high, low, 0, 0, 0, id]
}

/// Destination options that only fill: 8 bytes and eight more for each of `words`.
fn filler(next: u8, words: u8) -> Vec<u8> {
    [&[next, words][..], &vec![0; usize::from(words) * 8 + 6]].concat()
}

#[test]
fn reserved_endpoints_go_to_their_port_and_others_to_the_host() {
    let site = Site::plain();
    site.call("reserve s1 tcp 192.0.2.1 80").unwrap();
    site.call("reserve s2 udp 192.0.2.1 8000-8002").unwrap();
    site.call("reserve s2 tcp 2001:db8::1 443").unwrap();
    site.call("reserve s1 sctp 192.0.2.1 9").unwrap();
    let up = &site.uplink;
    for (frame, to) in [
        (inward(TCP, 80), 2),
        (inward(TCP, 81), 1),
        (inward(UDP, 80), 1),
        (inward(UDP, 8000), 3),
        (inward(UDP, 8002), 3),
        (inward(UDP, 8003), 1),
        (inward(SCTP, 9), 2),
        (inward(1, 80), 1),
        (inward6(443), 3),
        (inward6(444), 1),
        (arp(1, AWAY_MAC, AWAY), 1),
        (ethernet(AWAY_MAC, HOST_MAC, 0x88b5, &[0; 46]), 1),
    ] {
        site.expect(up, &frame, &[to]);
    }
    // Runs of a flow and changes between flows.
    let mixed: Vec<_> = [80, 80, 80, 81, 81, 80, 82, 80].map(|port| inward(TCP, port)).into();
    let [_, host, s1, _] = site.send(up, &mixed);
    assert_eq!((host.len(), s1.len()), (3, 5));
    // The host's own packets leave, and reach stacks that serve at another of its addresses.
    site.expect(&site.host, &outward(TCP, 81), &[0]);
    site.expect(&site.host, &inward(TCP, 80), &[2]);
    site.call("reserve s2 tcp 192.0.2.1 443").unwrap();
    site.call("release s1 tcp 192.0.2.1 80").unwrap();
    site.expect(up, &inward(TCP, 80), &[1]);
    site.expect(up, &inward(TCP, 443), &[3]);
}

#[test]
fn stacks_send_from_their_reservations_only() {
    let site = Site::plain();
    site.call("reserve s1 tcp 192.0.2.1 80-89").unwrap();
    site.call("reserve s2 tcp 192.0.2.1 443").unwrap();
    let [s1, s2] = &site.stacks;
    site.expect(s1, &outward(TCP, 80), &[0]);
    site.expect(s1, &outward(TCP, 89), &[0]);
    // To the other stack.
    let local = ethernet(HOST_MAC, HOST_MAC, 0x0800, &ipv4(HOST, HOST, TCP, 0, &ports(80, 443)));
    site.expect(s1, &local, &[3]);
    let mut corrupt = outward(TCP, 80);
    corrupt[24] ^= 1;
    let mut short = outward(TCP, 80);
    short.truncate(40);
    let refused = [
        outward(TCP, 90),
        outward(UDP, 80),
        outward(TCP, 443),
        ethernet(HOST_MAC, AWAY_MAC, 0x0800, &ipv4(AWAY, HOST, TCP, 0, &ports(80, 5000))),
        ethernet(AWAY_MAC, AWAY_MAC, 0x0800, &ipv4(HOST, AWAY, TCP, 0, &ports(80, 5000))),
        outward(1, 80),
        arp(2, HOST_MAC, HOST),
        arp(1, HOST_MAC, AWAY),
        arp(1, AWAY_MAC, HOST),
        ethernet(HOST_MAC, AWAY_MAC, 0x88b5, &[0; 46]),
    ];
    for (n, frame) in refused.iter().enumerate() {
        site.expect(s1, frame, &[]);
        assert_eq!(site.refused(0), n as u64 + 1);
    }
    for frame in [&corrupt, &short] {
        site.expect(s1, frame, &[]);
    }
    assert_eq!(site.rig.drops(s1, DropReason::Logic), 2);
    assert_eq!(site.refused(1), 0);
    let counts = ["unreserved_source", "foreign_mac", "other_protocol", "bad_ip_header", "unknown_fragment"];
    assert_eq!(counts.map(|name| site.counter(name)), [5, 2, 3, 2, 0]);
    let tables = site.logic.tables();
    let stacks = tables.iter().find(|table| table.name == "stacks").unwrap();
    assert_eq!(stacks.rows[0], ["s1", "10", "5", "2", "0", "3", "2"]);
    assert_eq!(stacks.rows[1], ["s2", "1", "0", "0", "0", "0", "0"]);
    site.expect(s1, &arp(1, HOST_MAC, HOST), &[0]);
    site.expect(s2, &outward(TCP, 443), &[0]);
}

#[test]
fn answers_of_neighbours_reach_the_host_and_all_stacks_with_reservations() {
    let site = Site::plain();
    site.call("reserve s1 tcp 192.0.2.1 80").unwrap();
    site.expect(&site.uplink, &arp(2, AWAY_MAC, AWAY), &[1, 2]);
    site.expect(&site.host, &arp(2, HOST_MAC, HOST), &[0]);
    site.call("reserve s2 tcp 192.0.2.1 81").unwrap();
    site.expect(&site.uplink, &arp(2, AWAY_MAC, AWAY), &[1, 2, 3]);
}

#[test]
fn the_hosts_mac_address_is_learned() {
    let site = Site::with_params(&[]);
    site.call("reserve s1 tcp 192.0.2.1 80").unwrap();
    assert!(site.call("mac").unwrap_err().contains("not known yet"));
    site.expect(&site.host, &outward(TCP, 81), &[0]);
    assert_eq!(site.call("mac").unwrap(), "02:00:00:00:00:01");
    // Another interface behind the host's port does not change it, the interface with the address does.
    let other = ethernet([2, 0, 0, 0, 0, 5], AWAY_MAC, 0x0800, &ipv4(AWAY, AWAY, TCP, 0, &ports(1, 2)));
    site.expect(&site.host, &other, &[0]);
    assert_eq!(site.call("mac").unwrap(), "02:00:00:00:00:01");
    site.expect(&site.host, &arp(1, [2, 0, 0, 0, 0, 5], HOST), &[0]);
    assert_eq!(site.call("mac").unwrap(), "02:00:00:00:00:05");
}

#[test]
fn fragments_follow_the_first_one() {
    let site = Site::plain();
    site.call("reserve s1 udp 192.0.2.1 80").unwrap();
    let [s1, s2] = &site.stacks;
    let inward = |fragmentation, body: &[u8]| {
        ethernet(AWAY_MAC, HOST_MAC, 0x0800, &ipv4(AWAY, HOST, UDP, fragmentation, body))
    };
    let outward = |fragmentation, body: &[u8]| {
        ethernet(HOST_MAC, AWAY_MAC, 0x0800, &ipv4(HOST, AWAY, UDP, fragmentation, body))
    };
    let later = [7; 16];
    site.expect(&site.uplink, &inward(2, &later), &[1]);
    site.expect(&site.uplink, &inward(0x2000, &ports(5000, 80)), &[2]);
    site.expect(&site.uplink, &inward(2, &later), &[2]);
    // The next packet of the same identification is the host's.
    site.expect(&site.uplink, &inward(0x2000, &ports(5000, 81)), &[1]);
    site.expect(&site.uplink, &inward(2, &later), &[1]);
    site.expect(s1, &outward(2, &later), &[]);
    site.expect(s1, &outward(0x2000, &ports(80, 5000)), &[0]);
    site.expect(s1, &outward(2, &later), &[0]);
    // Not for another stack, and not after a first fragment that was refused.
    site.expect(s2, &outward(2, &later), &[]);
    site.expect(s1, &outward(0x2000, &ports(81, 5000)), &[]);
    site.expect(s1, &outward(2, &later), &[]);
    assert_eq!((site.counter("unknown_fragment"), site.counter("unreserved_source")), (3, 1));
}

#[test]
fn every_first_fragment_of_ipv6_shows_its_ports() {
    let site = Site::plain();
    site.call("reserve s1 udp 2001:db8::1 80").unwrap();
    let s1 = &site.stacks[0];
    let send = |headers: &[&[u8]], to: &[usize]| {
        let next = if headers[0].len() == 8 { FRAGMENT } else { OPTIONS };
        site.expect(s1, &outward6(HOST6, AWAY6, next, &headers.concat()), to);
    };
    let (own, foreign) = (ports(80, 5000), ports(81, 5000));
    send(&[&fragment(UDP, 0, 9), &own], &[0]);
    send(&[&fragment(UDP, 2, 9), &[7; 16]], &[0]);
    // The ports lie behind the bytes that are looked at first, or at all.
    for words in [0, 8, 70] {
        let hidden = filler(UDP, words);
        send(&[&fragment(UDP, 0, 9), &own], &[0]);
        send(&[&fragment(OPTIONS, 0, 9), &hidden, &foreign], &[]);
    }
    send(&[&fragment(OPTIONS, 0, 8), &filler(UDP, 8), &own], &[0]);
    // All fragments have the next header of the first one.
    send(&[&fragment(OPTIONS, 11, 8), &[7; 16]], &[0]);
    // The ports of the reassembled packet are in the second fragment.
    send(&[&fragment(UDP, 0, 9), &own], &[0]);
    send(&[&fragment(OPTIONS, 0, 9), &filler(UDP, 2)], &[]);
    send(&[&fragment(UDP, 2, 9), &[7; 16]], &[]);
    // Fragments of a fragment.
    send(&[&fragment(UDP, 0, 9), &own], &[0]);
    send(&[&fragment(FRAGMENT, 0, 9), &fragment(UDP, 2, 7), &[7; 16]], &[]);
    send(&[&fragment(FRAGMENT, 0, 9), &fragment(UDP, 0, 7), &own], &[]);
}

#[test]
fn bytes_behind_the_ip_packet_are_no_ports() {
    let site = Site::plain();
    site.call("reserve s1 udp 192.0.2.1 80").unwrap();
    site.call("reserve s1 udp 2001:db8::1 80").unwrap();
    let s1 = &site.stacks[0];
    // `length` bytes of the packet belong to it.
    let v6 = |from: &str, to: &str, next: u8, body: &[u8], length: u8, ports: [u16; 2]| {
        let mut frame = outward6(from, to, next, &[body, &self::ports(ports[0], ports[1])].concat());
        frame[19] = length;
        frame
    };
    let options = filler(UDP, 0);
    for (next, body, length) in
        [(UDP, &[][..], 0), (UDP, &[], 3), (OPTIONS, &options, 8), (OPTIONS, &options, 11)]
    {
        site.expect(s1, &v6(HOST6, AWAY6, next, body, length, [80, 5000]), &[]);
        site.expect(&site.uplink, &v6(AWAY6, HOST6, next, body, length, [5000, 80]), &[1]);
    }
    site.expect(s1, &v6(HOST6, AWAY6, OPTIONS, &options, 12, [80, 5000]), &[0]);
    let v4 = |from, to, total: u8, ports: [u16; 2]| {
        let mut packet = ipv4(from, to, UDP, 0, &[&[1; 4][..], &self::ports(ports[0], ports[1])].concat());
        (packet[0], packet[3]) = (0x46, total);
        packet[10..12].fill(0);
        let sum = Sum::of(&packet[..24]).finish();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        ethernet(HOST_MAC, AWAY_MAC, 0x0800, &packet)
    };
    for total in [24, 27] {
        site.expect(s1, &v4(HOST, AWAY, total, [80, 5000]), &[]);
        site.expect(&site.uplink, &v4(AWAY, HOST, total, [5000, 80]), &[1]);
    }
    site.expect(s1, &v4(HOST, AWAY, 28, [80, 5000]), &[0]);
    site.expect(&site.uplink, &v4(AWAY, HOST, 28, [5000, 80]), &[2]);
}

#[test]
fn questions_to_neighbours_claim_no_foreign_mac_address() {
    let solicitation = |option: &[u8]| {
        let target = AWAY6.parse::<std::net::Ipv6Addr>().unwrap().octets();
        outward6(HOST6, AWAY6, 58, &[&[135, 0, 0, 0, 0, 0, 0, 0][..], &target, option].concat())
    };
    let claim = |mac: [u8; 6]| [&[1, 1][..], &mac].concat();
    let nonce = vec![14, 1, 1, 2, 3, 4, 5, 6];
    // Known from the start, and not known yet: then the frame and the message have to agree.
    for site in [Site::plain(), Site::with_params(&[])] {
        site.call("reserve s1 tcp 192.0.2.1 80").unwrap();
        site.call("reserve s1 tcp 2001:db8::1 80").unwrap();
        let s1 = &site.stacks[0];
        let (own, foreign) = (claim(HOST_MAC), claim(AWAY_MAC));
        for options in [vec![], own.clone(), [&nonce[..], &own].concat(), own.repeat(2)] {
            site.expect(s1, &solicitation(&options), &[0]);
        }
        let target = [&[2, 1][..], &AWAY_MAC].concat();
        // The last one cannot be read as a whole.
        let long = [&[14, 60][..], &[0; 478]].concat();
        for (first, second) in [
            (&foreign[..], &[][..]),
            (&nonce, &foreign),
            (&own, &foreign),
            (&own, &target),
            (&[14, 0], &foreign),
            (&[14, 2], &nonce),
            (&own, &[1]),
            (&long, &foreign),
        ] {
            site.expect(s1, &solicitation(&[first, second].concat()), &[]);
        }
        site.expect(s1, &arp_of(HOST_MAC, 1, AWAY_MAC, HOST), &[]);
        site.expect(s1, &arp_of(HOST_MAC, 1, HOST_MAC, HOST), &[0]);
    }
}

#[test]
fn icmp_errors_reach_the_stack_that_they_are_about() {
    let site = Site::plain();
    site.call("reserve s1 tcp 192.0.2.1 80").unwrap();
    let error = |port: u16| {
        let sent = ipv4(HOST, AWAY, TCP, 0x4000, &ports(port, 5000));
        let icmp = [&[3, 4, 0, 0, 0, 0, 5, 0], &sent[..28]].concat();
        ethernet(AWAY_MAC, HOST_MAC, 0x0800, &ipv4(AWAY, HOST, 1, 0, &icmp))
    };
    site.expect(&site.uplink, &error(80), &[2]);
    site.expect(&site.uplink, &error(81), &[1]);
}

#[test]
fn collisions_name_the_holder() {
    let site = Site::with_params(&[("max-ports", "20")]);
    site.call("reserve s1 tcp 192.0.2.1 80-89").unwrap();
    for (line, expected) in [
        ("reserve s2 tcp 192.0.2.1 85", "tcp 192.0.2.1 80-89 is reserved for port `s1` by an operator"),
        ("reserve s1 tcp 192.0.2.1 70-80", "tcp 192.0.2.1 80-89 is reserved for port `s1`"),
        ("reserve s3 tcp 192.0.2.1 90", "the bridge has no port `s3`"),
        ("reserve host tcp 192.0.2.1 90", "port `host` is the host port"),
        ("reserve uplink tcp 192.0.2.1 90", "port `uplink` is the uplink port"),
        ("reserve s2 tcp 192.0.2.2 90", "the host has no address 192.0.2.2"),
        ("reserve s2 tcp 192.0.2.1 100-110", "more than the 10 local ports that may still be reserved"),
        ("release s2 tcp 192.0.2.1 80-89", "port `s2` has no reservation of exactly tcp 192.0.2.1 80-89"),
        ("release s1 tcp 192.0.2.1 80", "has no reservation of exactly"),
        ("reserve s2 icmp 192.0.2.1 80", "`icmp` is not a protocol"),
        ("reserve s2", "`reserve s2` is not a request"),
        ("shut", "logic `three-tuple` has no command `shut`; its commands are: reserve, release, mac"),
    ] {
        let error = site.call(line).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    }
    site.call("reserve s2 udp 192.0.2.1 80-89").unwrap();
    // Removal of the port and loss of its client end its reservations.
    site.rig.switch.detach(site.stacks[0].at).unwrap();
    site.call("reserve s2 tcp 192.0.2.1 80-89").unwrap();
    site.rig.switch.remove_port(site.stacks[1].at).unwrap();
    assert!(site.logic.tables()[0].rows.is_empty());
    site.expect(&site.uplink, &inward(TCP, 80), &[1]);
}

#[test]
fn reservations_outlive_a_change_of_parameters() {
    let mut site = Site::plain();
    let of_bridge = |site: &Site, more: &[(&str, &str)]| {
        let fresh = logic(&site.namespace, more);
        fresh.set_bridge(&site.namespace.0);
        fresh
    };
    let set = |site: &mut Site, fresh: Arc<dyn Logic>| {
        let (rig, old) = (&site.rig, site.logic.clone());
        replace(&*old, &*fresh, || rig.switch.set_logic(rig.bridge, fresh.clone()))
            .map_err(|e| e.to_string())?;
        site.logic = fresh;
        Ok::<_, String>(())
    };
    let first = of_bridge(&site, &[]);
    set(&mut site, first).unwrap();
    site.call("reserve s1 tcp 192.0.2.1 80").unwrap();
    let next = of_bridge(&site, &[("max-ports", "5")]);
    set(&mut site, next).unwrap();
    site.expect(&site.uplink, &inward(TCP, 80), &[2]);
    assert!(site.call("reserve s1 tcp 192.0.2.1 81-86").unwrap_err().contains("`max-ports` is 5"));
    // What cannot take effect changes nothing.
    let elsewhere = make("three-tuple", &[("host", "host"), ("uplink", "uplink")]);
    elsewhere.set_bridge(&site.namespace.0);
    let error = set(&mut site, elsewhere).unwrap_err();
    assert!(
        error.contains("parameter `netns` cannot change while there are reservations, here 1"),
        "{error}"
    );
    site.expect(&site.uplink, &inward(TCP, 80), &[2]);
    // A stack that becomes the host's port loses its reservations.
    let moved = of_bridge(&site, &[]);
    let params = [("host", "s1"), ("uplink", "uplink"), ("netns", &site.namespace.0)];
    let other = make("three-tuple", &params);
    other.set_bridge(&site.namespace.0);
    set(&mut site, other).unwrap();
    assert!(site.logic.tables()[0].rows.is_empty());
    drop(moved);
    let hub = make("hub", &[]);
    set(&mut site, hub).unwrap();
    let fresh = of_bridge(&site, &[]);
    set(&mut site, fresh).unwrap();
    assert!(site.logic.tables()[0].rows.is_empty());
}

#[test]
fn vlans_of_ports_apply() {
    let vid = Vid::new(10).unwrap();
    let site = Site::new(&[("mac", "02:00:00:00:00:01")], &VlanMode::Access(vid));
    site.call("reserve s1 tcp 192.0.2.1 80").unwrap();
    site.expect(&site.uplink, &inward(TCP, 80), &[2]);
    site.expect(&site.stacks[0], &outward(TCP, 80), &[0]);
    site.expect(&site.stacks[0], &outward(TCP, 81), &[]);
    site.expect(&site.uplink, &arp(2, AWAY_MAC, AWAY), &[1, 2]);
    site.rig.set(&site.uplink, |settings| settings.vlan = VlanMode::Transparent);
    let frame = inward(TCP, 80);
    let tag = [&frame[..12], &[0x81, 0, 0, 10], &frame[12..]].concat();
    let got = site.send(&site.uplink, &[tag]);
    assert_eq!(got[2], [frame]);
}

#[test]
fn answers_leave_each_port_in_its_form() {
    let vid = Vid::new(10).unwrap();
    let plain = arp(2, AWAY_MAC, AWAY);
    let tagged = [&plain[..12], &[0x81, 0, 0, 10], &plain[12..]].concat();
    // In every combination of an uplink, a host and stacks with and without tags.
    for tags in 0..16u8 {
        let site = Site::new(&[("mac", "02:00:00:00:00:01")], &VlanMode::Access(vid));
        site.call("reserve s1 tcp 192.0.2.1 80").unwrap();
        site.call("reserve s2 tcp 192.0.2.1 81").unwrap();
        let form = |port: usize| if tags >> port & 1 == 1 { &tagged } else { &plain };
        for (port, client) in site.clients().into_iter().enumerate() {
            if tags >> port & 1 == 1 {
                let mut allowed = VidSet::empty();
                allowed.insert(10);
                site.rig.set(client, |settings| settings.vlan = VlanMode::Trunk { native: None, allowed });
            }
        }
        let got = site.send(&site.uplink, std::slice::from_ref(form(0)));
        assert_eq!(
            got,
            [vec![], vec![form(1).clone()], vec![form(2).clone()], vec![form(3).clone()]],
            "{tags:04b}"
        );
        // A stack in another VLAN gets nothing.
        site.rig.set(&site.stacks[0], |settings| settings.vlan = VlanMode::Access(Vid::new(11).unwrap()));
        let got = site.send(&site.uplink, std::slice::from_ref(form(0)));
        assert_eq!(got, [vec![], vec![form(1).clone()], vec![], vec![form(3).clone()]], "{tags:04b}");
    }
}

#[test]
fn only_addresses_of_the_host_are_reserved() {
    let site = Site::plain();
    let ip = |words: &[&str]| {
        let namespace = ["netns", "exec", &site.namespace.0];
        assert!(Command::new("ip").args([&namespace[..], words].concat()).status().unwrap().success());
    };
    let refused = |line: &str, expected: &str| {
        let error = site.call(line).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    };
    site.call("reserve s1 udp 203.0.113.1 80").unwrap();
    // Also where the kernel lets sockets have any address.
    for nonlocal in ["0", "1"] {
        for version in ["ipv4", "ipv6"] {
            ip(&["sysctl", "-qw", &format!("net.{version}.ip_nonlocal_bind={nonlocal}")]);
        }
        for protocol in ["tcp", "udp", "sctp"] {
            refused(
                &format!("reserve s1 {protocol} 203.0.113.255 80"),
                "203.0.113.255 is the broadcast address of a network of the host",
            );
            refused(&format!("reserve s1 {protocol} 203.0.113.7 80"), "the host has no address 203.0.113.7");
            refused(&format!("reserve s1 {protocol} 2001:db8::7 80"), "the host has no address 2001:db8::7");
        }
    }
}

#[test]
fn decisions_are_explained() {
    let site = Site::plain();
    site.call("reserve s1 tcp 192.0.2.1 80").unwrap();
    let told = |from: &Client, frame: &[u8]| {
        let traced = site.rig.switch.trace(from.at, frame, Offload::NONE).unwrap();
        traced.remarks[0].sentence(|port| ["uplink", "host", "s1", "s2"][usize::from(port.0)].to_owned())
    };
    let stack = &site.stacks[0];
    assert_eq!(told(&site.uplink, &inward(TCP, 80)), "its destination, tcp 192.0.2.1 80, is reserved for s1");
    let other = "its destination, tcp 192.0.2.1 81, is not reserved: it goes to host";
    assert_eq!(told(&site.uplink, &inward(TCP, 81)), other);
    assert_eq!(told(stack, &outward(UDP, 80)), "its source, udp 192.0.2.1 80, is not reserved for s1");
    let foreign = "its MAC address is not the host's, which s1 has to use";
    assert_eq!(told(stack, &arp(1, AWAY_MAC, HOST)), foreign);
    let asks = "it asks in the name of an address at which s1 has a reservation: it goes to uplink";
    assert_eq!(told(stack, &arp(1, HOST_MAC, HOST)), asks);
    let everyone = "it answers a neighbour's question: it goes to the host and all stacks";
    assert_eq!(told(&site.uplink, &arp(2, AWAY_MAC, AWAY)), everyone);
    assert_eq!(told(&site.host, &arp(1, HOST_MAC, HOST)), "no reservation concerns it: it goes to uplink");
}

/// A frame around the boundaries of what is reserved.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let address = prop::sample::select(vec![HOST, AWAY]);
    let mac = prop::sample::select(vec![HOST_MAC, AWAY_MAC]);
    let port = 79u16..=82;
    let fragmentation = prop::sample::select(vec![0, 0, 0, 0x4000, 0x2000, 2]);
    let protocol = prop::sample::select(vec![TCP, UDP, 1]);
    let fields = (mac, address.clone(), address, protocol, fragmentation, port.clone(), port);
    (fields, prop::option::weighted(0.2, (12usize..50, any::<u8>()))).prop_map(|(fields, change)| {
        let (mac, from, to, protocol, fragmentation, source, destination) = fields;
        let body = ipv4(from, to, protocol, fragmentation, &ports(source, destination));
        let mut frame = ethernet(mac, AWAY_MAC, 0x0800, &body);
        if let Some((at, value)) = change
            && let Some(byte) = frame.get_mut(at)
        {
            *byte = value;
        }
        frame
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Batches of any frames are decided as each frame alone, a trace predicts it, and no packet of a stack leaves
    /// from what it has not reserved.
    #[test]
    fn batches_traces_and_single_packets_agree(frames in vec((0usize..4, any_frame()), 1..60)) {
        let site = Site::plain();
        site.call("reserve s1 tcp 192.0.2.1 80").unwrap();
        site.call("reserve s2 udp 192.0.2.1 81").unwrap();
        for sender in 0..4 {
            let from = site.clients()[sender];
            let own: Vec<_> =
                frames.iter().filter(|(by, _)| *by == sender).map(|(_, frame)| frame.clone()).collect();
            let mut alone: [Vec<Vec<u8>>; 4] = Default::default();
            for frame in &own {
                let traced = site.rig.switch.trace(from.at, frame, Offload::NONE).unwrap();
                let got = site.send(from, std::slice::from_ref(frame));
                for (port, got) in got.into_iter().enumerate() {
                    let predicted = traced.outputs.iter().any(|output| usize::from(output.port.0) == port);
                    prop_assert_eq!(predicted, !got.is_empty());
                    if sender >= 2 && port < 2 && frame[20..22] == [0, 0] && frame[14] == 0x45 {
                        for out in &got {
                            let source = (out[23], u16::from_be_bytes([out[34], out[35]]));
                            prop_assert_eq!(source, [(TCP, 80), (UDP, 81)][sender - 2]);
                        }
                    }
                    alone[port].extend(got);
                }
            }
            // Fragments are left out: decisions about them depend on those before.
            let is_whole = |frame: &Vec<u8>| frame[20] & 0x3f == 0 && frame[21] == 0;
            let whole: Vec<_> = own.into_iter().filter(is_whole).collect();
            let alone = alone.map(|frames| frames.into_iter().filter(is_whole).collect::<Vec<_>>());
            prop_assert_eq!(site.send(from, &whole), alone);
        }
    }
}

use packet::checksum::{pseudo_header_v4, pseudo_header_v6};
use packet::{EtherType, IpVersion, Layers, MacAddr, Sum};
use proptest::prelude::*;

use super::*;
use crate::render::packet::contents;

fn bytes(text: &str) -> Vec<u8> {
    parse(text).unwrap_or_else(|failure| panic!("{text}: {failure}")).bytes
}

fn shown(text: &str) -> String {
    contents(&bytes(text))
}

fn refused(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

/// Checks the lengths and checksums of a frame.
fn check(frame: &[u8]) {
    let layers = Layers::parse(frame);
    let Some((version, l3)) = layers.ip.zip(layers.l3) else { return };
    let packet = &frame[usize::from(l3)..];
    let (payload, pseudo) = match version {
        IpVersion::V4 => {
            assert_eq!(Sum::of(&packet[..20]).finish(), 0, "header checksum");
            assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), packet.len());
            let (src, dst) = (packet[12..16].try_into().unwrap(), packet[16..20].try_into().unwrap());
            let payload = &packet[20..];
            (payload, pseudo_header_v4(src, dst, packet[9], payload.len() as u16))
        }
        IpVersion::V6 => {
            let payload = &packet[40..];
            assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])), payload.len());
            let (src, dst) = (packet[8..24].try_into().unwrap(), packet[24..40].try_into().unwrap());
            (payload, pseudo_header_v6(src, dst, packet[6], payload.len() as u32))
        }
    };
    let mut sum = pseudo;
    sum.add(payload);
    match layers.protocol {
        Some(1) => assert_eq!(Sum::of(payload).finish(), 0, "ICMP"),
        Some(6 | 58) => assert_eq!(sum.finish(), 0, "TCP or ICMPv6"),
        Some(17) => {
            assert_eq!(sum.finish(), 0, "UDP");
            assert_eq!(usize::from(u16::from_be_bytes([payload[4], payload[5]])), payload.len());
        }
        _ => {}
    }
}

#[test]
fn a_flow_is_a_packet() {
    let text = "in_port=vm1,dl_src=02:00:00:00:00:0a,dl_dst=02:00:00:00:00:0b,dl_vlan=10,dl_vlan_pcp=3,ip,\
                nw_src=10.0.0.1,nw_dst=10.0.0.2,tcp,tp_src=1234,tp_dst=80,nw_ttl=7,nw_tos=0x10";
    let typed = parse(text).unwrap();
    assert_eq!(typed.in_port.as_deref(), Some("vm1"));
    let header = "02000000000b 02000000000a 8100600a 0800 4510002800000000070600000a0000010a000002";
    let sums = hex::format(&typed.bytes[28..30]);
    assert_eq!(
        hex::format(&typed.bytes[..38]),
        header.replace(' ', "").replacen("07060000", &format!("0706{sums}"), 1)
    );
    assert_eq!(
        contents(&typed.bytes),
        "02:00:00:00:00:0a > 02:00:00:00:00:0b VLAN 10 IPv4 10.0.0.1.1234 > 10.0.0.2.80 TCP"
    );
    assert_eq!(typed.bytes.len(), 14 + 4 + 20 + 20);
    check(&typed.bytes);
}

#[test]
fn missing_fields_have_documented_values() {
    let mac = "02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff";
    for (text, expected) in [
        ("ip", "IPv4 192.0.2.1 > 192.0.2.2 protocol 253"),
        ("tcp", "IPv4 192.0.2.1.49152 > 192.0.2.2.80 TCP"),
        ("udp", "IPv4 192.0.2.1.49152 > 192.0.2.2.53 UDP"),
        ("icmp", "IPv4 192.0.2.1 > 192.0.2.2 ICMP"),
        ("ipv6", "IPv6 2001:db8::1 > 2001:db8::2 protocol 253"),
        ("ipv6,tcp", "IPv6 2001:db8::1.49152 > 2001:db8::2.80 TCP"),
        ("udp6", "IPv6 2001:db8::1.49152 > 2001:db8::2.53 UDP"),
        ("icmp6", "IPv6 2001:db8::1 > 2001:db8::2 ICMPv6"),
        ("icmp6,nd_target=fe80::7", "IPv6 2001:db8::1 > 2001:db8::2 ICMPv6"),
        ("arp", "ARP"),
        ("dl_type=0x88cc", "LLDP"),
        ("dl_vlan=7", "VLAN 7 EtherType 0x88b5"),
        ("vlan_tci=0x100a", "VLAN 10 EtherType 0x88b5"),
        ("vlan_tci=0x0000, tcp", "IPv4 192.0.2.1.49152 > 192.0.2.2.80 TCP"),
        ("nw_dst=10.0.0.2", "IPv4 192.0.2.1 > 10.0.0.2 protocol 253"),
        ("ipv6_dst=fd00::2 udp", "IPv6 2001:db8::1.49152 > fd00::2.53 UDP"),
        ("tp_dst=4789", "IPv4 192.0.2.1.49152 > 192.0.2.2.4789 UDP"),
        ("nw_proto=89", "IPv4 192.0.2.1 > 192.0.2.2 protocol 89"),
        ("icmp_type=0", "IPv4 192.0.2.1 > 192.0.2.2 ICMP"),
    ] {
        assert_eq!(shown(text), format!("{mac} {expected}"), "{text}");
        check(&bytes(text));
    }
    // An ARP request; its sender is the frame's source.
    let arp = hex::format(&bytes("arp,arp_tpa=10.0.0.2,dl_src=02:00:00:00:00:07"));
    assert_eq!(arp[28..], *"0001080006040001020000000007c0000201000000000000 0a000002".replace(' ', ""));
    assert_eq!(bytes("udp,len=1514").len(), 1514);
    check(&bytes("udp,len=1514"));
    let flags = |text: &str| bytes(&format!("tcp,tcp_flags={text}"))[47];
    assert_eq!(
        [flags("+syn-ack"), flags("+syn+ack"), flags("SA"), flags("0x12"), flags("18")],
        [2, 18, 18, 18, 18]
    );
}

#[test]
fn layers_and_flows_give_the_same_packet() {
    for (layers, flow) in [
        (
            r#"Ether(src="02:00:00:00:00:0a", dst='02:00:00:00:00:0b')/Dot1Q(vlan=10,prio=3)/IP(dst="10.0.0.2")/TCP(dport=80)"#,
            "dl_src=02:00:00:00:00:0a,dl_dst=02:00:00:00:00:0b,dl_vlan=10,dl_vlan_pcp=3,nw_dst=10.0.0.2,tcp,tp_dst=80",
        ),
        (
            "Ether(src=02:00:00:00:00:0a)/IP(src=10.0.0.1,ttl=1)/ICMP()",
            "dl_src=02:00:00:00:00:0a,nw_src=10.0.0.1,nw_ttl=1,icmp",
        ),
        ("IPv6(dst='fd00::2') / UDP(sport=1, dport=0x35)", "ipv6_dst=fd00::2,udp,udp_src=1,udp_dst=53"),
        (
            "Ether()/ARP(op='is-at', psrc='10.0.0.1', hwsrc='02:00:00:00:00:07')",
            "arp,arp_op=2,arp_spa=10.0.0.1,arp_sha=02:00:00:00:00:07",
        ),
        ("IP()/TCP(flags='SA')", "tcp,tcp_flags=+syn+ack"),
        ("IPv6()/ICMPv6ND_NS(tgt='fe80::7')", "icmp6,nd_target=fe80::7"),
        ("IPv6()/ICMPv6EchoRequest()", "icmp6"),
        ("Ether(type=0x88cc)", "dl_type=35020"),
    ] {
        assert_eq!(bytes(layers), bytes(flow), "{layers}");
    }
    let double = bytes("Ether()/Dot1Q(vlan=5)/Dot1Q(vlan=6)/IP()");
    assert_eq!(hex::format(&double[12..22]), "81000005810000060800");
    let raw = bytes(r#"IP()/UDP()/Raw(load=b"a\x00\"(")"#);
    assert_eq!(&raw[42..], b"a\0\"(");
    check(&raw);
    assert_eq!(bytes("IP()/UDP()/Raw('hello')")[42..], *b"hello");
}

#[test]
fn hexadecimal_digits_are_bytes() {
    assert_eq!(
        bytes("ffffffffffff 52:54:00:12:34:56 0806"),
        hex::parse("ffffffffffff5254001234560806").unwrap()
    );
    assert_eq!(
        refused("0g"),
        "mswitch: --packet: `g` is not a hexadecimal digit; expected pairs of 0 to 9 and a to f, optionally separated by spaces or colons"
    );
}

#[test]
fn mistakes_suggest_the_nearest_name() {
    for (text, expected) in [
        ("dl_scr=02:00:00:00:00:01", "unknown field `dl_scr`; did you mean `dl_src`?"),
        ("tcp,tcp_dest=80", "unknown field `tcp_dest`; did you mean `tcp_dst`?"),
        ("ip,tpc", "unknown protocol `tpc`; did you mean `tcp`?"),
        ("tcp,dl_src", "`dl_src` has no value; write `dl_src=VALUE`"),
        ("tcp,dl_src=", "`dl_src` has no value"),
        (
            "dl_src=02",
            "`dl_src`: `02` is not a MAC address: expected six pairs of hexadecimal digits, such as 52:54:00:12:34:56",
        ),
        (
            "nw_src=10.0.0.0/24",
            "`nw_src`: `10.0.0.0/24` has a mask; a packet has one value, such as 10.0.0.0",
        ),
        ("nw_src=10.0.0", "`nw_src`: `10.0.0` is not an IP address, such as 10.0.0.1 or 2001:db8::1"),
        ("tp_dst=+80", "`tp_dst`: `+80` is not a number from 0 to 65535"),
        ("dl_vlan=4096", "`dl_vlan`: `4096` is not a VLAN, a number from 0 to 4095"),
        ("tcp,udp", "`udp`: contradicts an earlier value"),
        ("nw_ttl=1,nw_ttl=2", "`nw_ttl`: contradicts an earlier value"),
        ("ipv6,nw_src=10.0.0.1", "10.0.0.1 is an IPv4 address, but the packet is IPv6; omit `ipv6`"),
        ("ip,nw_src=fd00::1", "fd00::1 is an IPv6 address, but the packet is not IPv6; write `ipv6`"),
        ("arp,tcp", "a transport protocol is given, but the packet is ARP; omit one of them"),
        ("icmp,tp_dst=80", "ports are given, but the protocol has none; write `tcp` or `udp`"),
        (
            "tcp,tcp_flags=+sin",
            "`tcp_flags`: `+sin` is not a set of TCP flags; write `+syn+ack`, `SA` or a number",
        ),
        ("tcp,len=10", "`len`: 10 bytes are too few; the headers and the payload take 54"),
        ("Ehter()/IP()", "unknown layer `Ehter`; did you mean `Ether`?"),
        ("Ether(scr='x')", "unsupported parameter `scr` of `Ether`; did you mean `src`?"),
        (
            "IP(dst='10.0.0')",
            "IP(dst=…): `nw_dst`: `10.0.0` is not an IP address, such as 10.0.0.1 or 2001:db8::1",
        ),
        ("Dot1Q(vlan=5000)", "Dot1Q(vlan=…): `5000` is not a number from 0 to 4095"),
        (
            "TCP()/IP()",
            "`IP` cannot follow `TCP`; the order is Ether, Dot1Q, then IP, IPv6 or ARP, then TCP, UDP or ICMP, then Raw",
        ),
        ("IP()/TCP(", "a value is missing in `TCP`"),
        ("IP(src='10.0.0.1", "a string in `IP` lacks its closing '"),
        ("IP()TCP()", "expected `/` in or after `IP`, found `T`"),
        ("Ether(02:00:00:00:00:01)", "`Ether` takes parameters by name, as NAME=VALUE"),
    ] {
        assert_eq!(refused(text), format!("mswitch: --packet: {expected}"), "{text}");
    }
    assert!(
        refused("colour=red")
            .starts_with("mswitch: --packet: unknown field `colour`; expected `in_port`, `dl_src`")
    );
}

/// Flows of consistent fields.
fn flow() -> impl Strategy<Value = String> {
    let mac = any::<[u8; 6]>().prop_map(|mac| MacAddr(mac).to_string());
    let ports = (any::<u16>(), any::<u16>()).prop_map(|(src, dst)| format!(",tp_src={src},tp_dst={dst}"));
    let transport = prop_oneof![
        (prop::sample::select(vec!["tcp", "udp"]), ports).prop_map(|(word, ports)| format!(",{word}{ports}")),
        (any::<u8>(), any::<u8>())
            .prop_map(|(kind, code)| format!(",icmp,icmp_type={kind},icmp_code={code}")),
    ];
    let addresses = prop_oneof![
        (any::<[u8; 4]>(), any::<[u8; 4]>()).prop_map(|(src, dst)| format!(
            ",nw_src={},nw_dst={}",
            std::net::Ipv4Addr::from(src),
            std::net::Ipv4Addr::from(dst)
        )),
        (any::<[u8; 16]>(), any::<[u8; 16]>()).prop_map(|(src, dst)| format!(
            ",ipv6_src={},ipv6_dst={}",
            std::net::Ipv6Addr::from(src),
            std::net::Ipv6Addr::from(dst)
        )),
    ];
    let tag = prop_oneof![Just(String::new()), (0u16..4096).prop_map(|vid| format!(",dl_vlan={vid}"))];
    let len = prop_oneof![Just(String::new()), (200u16..9000).prop_map(|len| format!(",len={len}"))];
    (mac.clone(), mac, tag, addresses, transport, len).prop_map(
        |(src, dst, tag, addresses, transport, len)| {
            format!("dl_src={src},dl_dst={dst}{tag}{addresses}{transport}{len}")
        },
    )
}

proptest! {
    #[test]
    fn every_packet_is_valid_and_has_its_fields(text in flow()) {
        let frame = bytes(&text);
        check(&frame);
        let layers = Layers::parse(&frame);
        prop_assert_eq!(layers.vlan_tags, u8::from(text.contains("dl_vlan=")));
        prop_assert_eq!(layers.ethertype == Some(EtherType::IPV6), text.contains("ipv6_src="));
        prop_assert!(layers.l4.is_some() && layers.protocol.is_some());
        let (dst, src) = packet::ether::addresses(&frame).unwrap();
        let prefix = format!("dl_src={src},dl_dst={dst}");
        prop_assert!(text.starts_with(&prefix), "{} {}", text, prefix);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in ".{0,80}") {
        _ = parse(&text);
    }

    /// Fragments of valid texts, in any order.
    #[test]
    fn any_mixture_is_parsed_or_refused(pieces in prop::collection::vec(prop::sample::select(vec![
        "Ether", "IP", "IPv6", "ARP", "TCP", "Raw", "Dot1Q", "(", ")", "/", ",", "=", "'", "\"", "b\"", "\\x", "src", "dst",
        "vlan", "load", "10.0.0.1", "fd00::1", "02:00:00:00:00:01", "4095", "65535", "0x", "-1", "tcp", "ipv6", "icmp",
        "dl_vlan=1", "len=65535", "len=70000", "nd_target=::1", "in_port=a", "tcp_flags=+syn-", " ", "é",
    ]), 0..20)) {
        if let Ok(typed) = parse(&pieces.concat()) && !typed.bytes.is_empty() && pieces.concat().contains(['=', '(']) {
            check(&typed.bytes);
        }
    }
}

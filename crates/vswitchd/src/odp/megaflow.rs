//! Megaflows as text: the parts of a packet that its way depends on, in the syntax of datapath flows and of matches.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use ofswitch::Dependency;
use packet::MacAddr;

use super::extract::fields;
use super::flow::{ARP, Flow, Fragment, ICMP, ICMPV6, IPV4, IPV6, MPLS, RARP, SCTP, TCP, UDP};
use super::hexadecimal;

/// What a packet's way depends on.
pub(crate) struct Megaflow {
    flow: Flow,
    masks: Masks,
}

/// The bits of a packet that matter.
#[derive(Clone)]
enum Masks {
    All,
    Some(Vec<Dependency>),
}

/// The fields that a list has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Detail {
    /// Those that matter.
    #[default]
    Brief,
    /// All, with their masks.
    Verbose,
}

/// A list of fields, with commas between them.
#[derive(Default)]
struct List(String, Detail);

impl List {
    /// An empty list with as much detail.
    fn part(&self) -> Self {
        Self(String::new(), self.1)
    }

    fn put(&mut self, text: &str) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0 += text;
    }

    /// A field of `bits` bits, unless none of them matters.
    fn field(&mut self, name: &str, value: &str, mask: u128, bits: u32, shown: impl Fn(u128) -> String) {
        match mask & ones(bits) {
            0 if self.1 == Detail::Brief => {}
            mask if mask == ones(bits) => self.put(&format!("{name}={value}")),
            mask => self.put(&format!("{name}={value}/{}", shown(mask))),
        }
    }

    fn number(&mut self, name: &str, value: u64, mask: u128, bits: u32) {
        self.field(name, &value.to_string(), mask, bits, hexadecimal);
    }

    fn hex(&mut self, name: &str, value: u64, mask: u128, bits: u32) {
        self.field(name, &hexadecimal(value.into()), mask, bits, hexadecimal);
    }

    fn mac(&mut self, name: &str, value: [u8; 6], mask: u128) {
        self.field(name, &MacAddr(value).to_string(), mask, 48, |mask| {
            let [.., a, b, c, d, e, f] = mask.to_be_bytes();
            MacAddr([a, b, c, d, e, f]).to_string()
        });
    }

    fn ipv4(&mut self, name: &str, value: [u8; 4], mask: u128) {
        let shown = |mask: u128| Ipv4Addr::from(mask as u32).to_string();
        self.field(name, &Ipv4Addr::from(value).to_string(), mask, 32, shown);
    }

    fn ipv6(&mut self, name: &str, value: [u8; 16], mask: u128) {
        let shown = |mask: u128| Ipv6Addr::from(mask).to_string();
        self.field(name, &Ipv6Addr::from(value).to_string(), mask, 128, shown);
    }

    /// A list in parentheses, unless it is empty.
    fn nested(&mut self, name: &str, list: &List) {
        if !list.0.is_empty() {
            self.put(&format!("{name}({})", list.0));
        }
    }
}

fn ones(bits: u32) -> u128 {
    u128::MAX >> (128 - bits.clamp(1, 128))
}

impl Megaflow {
    /// The megaflow of a packet.
    pub(crate) fn of(packet: &[u8], masks: Vec<Dependency>) -> Self {
        Self { flow: fields(packet), masks: Masks::Some(masks) }
    }

    /// The flow of exactly this packet.
    pub(crate) fn exactly(packet: &[u8]) -> Self {
        Self { flow: fields(packet), masks: Masks::All }
    }

    fn mask(&self, key: &str) -> u128 {
        match &self.masks {
            Masks::All => u128::MAX,
            Masks::Some(parts) => parts.iter().find(|part| part.key == key).map_or(0, |part| part.mask),
        }
    }

    /// Whether a packet agrees with it.
    pub(crate) fn has(&self, packet: &[u8]) -> bool {
        let other = Self { flow: fields(packet), masks: self.masks.clone() };
        self.identity() == other.identity()
    }

    /// What identifies it: the bits that matter.
    fn identity(&self) -> String {
        let Flow { eth_src, eth_dst, vlans, eth_type, mpls, ipv4_src, ipv4_dst, .. } = &self.flow;
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte));
        let flow = &self.flow;
        let tci = vlans.first().map_or(0, |(_, tci)| tci | 0x1000);
        let values = [
            ("eth_src", number(eth_src)),
            ("eth_dst", number(eth_dst)),
            ("vlan_tci", tci.into()),
            ("mpls", mpls.first().copied().unwrap_or(0).into()),
            ("ip_src", number(ipv4_src)),
            ("ip_dst", number(ipv4_dst)),
            ("ipv6_src", number(&flow.ipv6_src)),
            ("ipv6_dst", number(&flow.ipv6_dst)),
            ("ipv6_label", flow.ipv6_label.into()),
            ("nw_proto", flow.proto.into()),
            ("nw_tos", flow.tos.into()),
            ("nw_ttl", flow.ttl.into()),
            ("tp_src", flow.tp_src.into()),
            ("tp_dst", flow.tp_dst.into()),
            ("tcp_flags", flow.tcp_flags.into()),
            ("arp_op", flow.arp_op.into()),
            ("arp_spa", number(&flow.arp_spa)),
            ("arp_tpa", number(&flow.arp_tpa)),
            ("arp_sha", number(&flow.arp_sha)),
            ("arp_tha", number(&flow.arp_tha)),
            ("nd_target", number(&flow.nd_target)),
            ("nd_sll", number(&flow.nd_sll)),
            ("nd_tll", number(&flow.nd_tll)),
        ];
        // Tags, type and fragments always matter.
        let mut text = format!("{}|{eth_type:x}|{:?}", vlans.len(), flow.fragment);
        for (key, value) in values {
            let mask = self.mask(key);
            // Writing to a string does not fail.
            let _ = write!(text, "|{:x}/{mask:x}", value & mask);
        }
        text
    }

    /// As a datapath flow, of packets from a port of the datapath.
    pub(crate) fn datapath(&self, in_port: u32, detail: Detail) -> String {
        let flow = &self.flow;
        let mut all = List(String::new(), detail);
        // No packet has marks or the state of a connection, and none passes twice.
        let (before, after) = match (&self.masks, detail) {
            (Masks::All, Detail::Brief) => (
                "skb_mark(0),ct_state(-new-est-rel-rpl-inv-trk-snat-dnat),ct_zone(0),ct_mark(0),\
                 ct_label(0),",
                ",dp_hash(0)",
            ),
            (Masks::All, Detail::Verbose) => {
                ("skb_mark(0),ct_state(0/0xff),ct_zone(0),ct_mark(0),ct_label(0),", ",dp_hash(0)")
            }
            (Masks::Some(_), Detail::Verbose) => {
                ("skb_mark(0/0),ct_state(0/0),ct_zone(0/0),ct_mark(0/0),ct_label(0/0),", ",dp_hash(0/0)")
            }
            (Masks::Some(_), Detail::Brief) => ("", ""),
        };
        // Packets come without a queue; what sets one depends on that.
        let priority = match (self.mask("skb_priority"), detail) {
            (0, Detail::Brief) => "",
            (0, Detail::Verbose) => "skb_priority(0/0),",
            _ => "skb_priority(0),",
        };
        all.put(&format!("{priority}{before}recirc_id(0){after},in_port({in_port}),packet_type(ns=0,id=0)"));
        let mut eth = all.part();
        eth.mac("src", flow.eth_src, self.mask("eth_src"));
        eth.mac("dst", flow.eth_dst, self.mask("eth_dst"));
        all.nested("eth", &eth);
        let mut inner = all.part();
        inner.put(&format!("eth_type(0x{:04x})", flow.eth_type));
        self.network(&mut inner);
        let mut text = inner.0;
        for (at, (kind, tci)) in flow.vlans.iter().enumerate().rev() {
            let mask = if at == 0 { self.mask("vlan_tci") } else { 0 };
            text = format!("eth_type(0x{kind:04x}),vlan({}),encap({text})", tag(*tci, mask, detail));
        }
        all.put(&text);
        all.0
    }

    fn network(&self, all: &mut List) {
        let flow = &self.flow;
        let mut ip = all.part();
        let fragment = match flow.fragment {
            Fragment::No => "frag=no",
            Fragment::First => "frag=first",
            Fragment::Later => "frag=later",
        };
        match flow.eth_type {
            IPV4 => {
                ip.ipv4("src", flow.ipv4_src, self.mask("ip_src"));
                ip.ipv4("dst", flow.ipv4_dst, self.mask("ip_dst"));
                ip.number("proto", flow.proto.into(), self.mask("nw_proto"), 8);
                ip.hex("tos", flow.tos.into(), self.mask("nw_tos"), 8);
                ip.number("ttl", flow.ttl.into(), self.mask("nw_ttl"), 8);
                ip.put(fragment);
                all.nested("ipv4", &ip);
                self.transport(all);
            }
            IPV6 => {
                ip.ipv6("src", flow.ipv6_src, self.mask("ipv6_src"));
                ip.ipv6("dst", flow.ipv6_dst, self.mask("ipv6_dst"));
                ip.hex("label", flow.ipv6_label.into(), self.mask("ipv6_label"), 20);
                ip.number("proto", flow.proto.into(), self.mask("nw_proto"), 8);
                ip.hex("tclass", flow.tos.into(), self.mask("nw_tos"), 8);
                ip.number("hlimit", flow.ttl.into(), self.mask("nw_ttl"), 8);
                ip.put(fragment);
                all.nested("ipv6", &ip);
                self.transport(all);
            }
            ARP | RARP => {
                ip.ipv4("sip", flow.arp_spa, self.mask("arp_spa"));
                ip.ipv4("tip", flow.arp_tpa, self.mask("arp_tpa"));
                ip.number("op", flow.arp_op.into(), self.mask("arp_op"), 16);
                ip.mac("sha", flow.arp_sha, self.mask("arp_sha"));
                ip.mac("tha", flow.arp_tha, self.mask("arp_tha"));
                all.nested("arp", &ip);
            }
            kind if MPLS.contains(&kind) => {
                let (mask, entry) = (self.mask("mpls"), flow.mpls.first().copied().unwrap_or(0));
                let parts = [
                    ("label", entry >> 12, mask >> 12 & 0xf_ffff, 0xf_ffff, "0x"),
                    ("tc", entry >> 9 & 7, mask >> 9 & 7, 7, ""),
                    ("ttl", entry & 0xff, mask & 0xff, 0xff, "0x"),
                    ("bos", entry >> 8 & 1, mask >> 8 & 1, 1, ""),
                ];
                let is_exact = parts.iter().all(|(_, _, mask, full, _)| mask == full);
                for (name, value, mask, _, prefix) in parts {
                    let mask = if is_exact { String::new() } else { format!("/{prefix}{mask:x}") };
                    ip.put(&format!("{name}={value}{mask}"));
                }
                if mask != 0 {
                    all.nested("mpls", &ip);
                }
            }
            _ => {}
        }
    }

    fn transport(&self, all: &mut List) {
        let flow = &self.flow;
        let (src, dst) = (self.mask("tp_src"), self.mask("tp_dst"));
        let mut list = all.part();
        if flow.fragment == Fragment::Later {
            return;
        }
        let ports = |list: &mut List| {
            list.number("src", flow.tp_src.into(), src, 16);
            list.number("dst", flow.tp_dst.into(), dst, 16);
        };
        let kinds = |list: &mut List| {
            list.number("type", flow.tp_src.into(), src, 8);
            list.number("code", flow.tp_dst.into(), dst, 8);
        };
        match flow.proto {
            TCP => {
                ports(&mut list);
                all.nested("tcp", &list);
                match self.mask("tcp_flags") {
                    0 if all.1 == Detail::Brief => {}
                    0 => all.put("tcp_flags(0/0)"),
                    mask => all.put(&flags(flow.tcp_flags, mask as u16)),
                }
            }
            UDP => {
                ports(&mut list);
                all.nested("udp", &list);
            }
            SCTP => {
                ports(&mut list);
                all.nested("sctp", &list);
            }
            ICMP if flow.eth_type == IPV4 => {
                kinds(&mut list);
                all.nested("icmp", &list);
            }
            ICMPV6 if flow.eth_type == IPV6 => {
                kinds(&mut list);
                all.nested("icmpv6", &list);
                let mut nd = all.part();
                nd.ipv6("target", flow.nd_target, self.mask("nd_target"));
                nd.mac("sll", flow.nd_sll, self.mask("nd_sll"));
                nd.mac("tll", flow.nd_tll, self.mask("nd_tll"));
                all.nested("nd", &nd);
            }
            _ => {}
        }
    }

    /// As a match, of packets from a port of the bridge.
    pub(crate) fn matching(&self, in_port: &str) -> String {
        let flow = &self.flow;
        let is_ip = matches!(flow.eth_type, IPV4 | IPV6);
        let named = self.protocol();
        let mut all = List::default();
        all.put("recirc_id=0");
        if self.mask("skb_priority") != 0 {
            all.put("skb_priority=0");
        }
        all.put("eth");
        if let Some((name, _)) = named {
            all.put(name);
        }
        all.put(&format!("in_port={in_port}"));
        self.tags(&mut all);
        all.mac("dl_src", flow.eth_src, self.mask("eth_src"));
        all.mac("dl_dst", flow.eth_dst, self.mask("eth_dst"));
        if named.is_none() {
            all.put(&format!("dl_type=0x{:04x}", flow.eth_type));
        }
        match flow.eth_type {
            IPV4 => {
                all.ipv4("nw_src", flow.ipv4_src, self.mask("ip_src"));
                all.ipv4("nw_dst", flow.ipv4_dst, self.mask("ip_dst"));
            }
            IPV6 => {
                all.ipv6("ipv6_src", flow.ipv6_src, self.mask("ipv6_src"));
                all.ipv6("ipv6_dst", flow.ipv6_dst, self.mask("ipv6_dst"));
                let label = format!("0x{:05x}", flow.ipv6_label);
                all.field("ipv6_label", &label, self.mask("ipv6_label"), 20, |mask| format!("{mask:#x}"));
            }
            ARP | RARP => {
                all.ipv4("arp_spa", flow.arp_spa, self.mask("arp_spa"));
                all.ipv4("arp_tpa", flow.arp_tpa, self.mask("arp_tpa"));
                all.number("arp_op", flow.arp_op.into(), self.mask("arp_op"), 16);
                all.mac("arp_sha", flow.arp_sha, self.mask("arp_sha"));
                all.mac("arp_tha", flow.arp_tha, self.mask("arp_tha"));
            }
            _ => {}
        }
        if is_ip {
            if !named.is_some_and(|(_, has_protocol)| has_protocol) {
                all.number("nw_proto", flow.proto.into(), self.mask("nw_proto"), 8);
            }
            let tos = self.mask("nw_tos");
            if tos & 0xfc != 0 {
                all.put(&format!("nw_tos={}", flow.tos & 0xfc));
            }
            if tos & 3 != 0 {
                all.put(&format!("nw_ecn={}", flow.tos & 3));
            }
            all.number("nw_ttl", flow.ttl.into(), self.mask("nw_ttl"), 8);
            all.put(match flow.fragment {
                Fragment::No => "nw_frag=no",
                Fragment::First => "nw_frag=first",
                Fragment::Later => "nw_frag=later",
            });
        }
        if named.is_some_and(|(_, has_protocol)| has_protocol) && flow.fragment != Fragment::Later {
            self.ports(&mut all);
        }
        all.0
    }

    /// The name that stands for the type, and whether it stands for the protocol over IP too.
    fn protocol(&self) -> Option<(&'static str, bool)> {
        let all = self.mask("nw_proto") & 0xff == 0xff;
        Some(match (self.flow.eth_type, self.flow.proto) {
            (ARP, _) => ("arp", false),
            (RARP, _) => ("rarp", false),
            (IPV4, TCP) if all => ("tcp", true),
            (IPV4, UDP) if all => ("udp", true),
            (IPV4, SCTP) if all => ("sctp", true),
            (IPV4, ICMP) if all => ("icmp", true),
            (IPV6, TCP) if all => ("tcp6", true),
            (IPV6, UDP) if all => ("udp6", true),
            (IPV6, SCTP) if all => ("sctp6", true),
            (IPV6, ICMPV6) if all => ("icmp6", true),
            (IPV4, _) => ("ip", false),
            (IPV6, _) => ("ipv6", false),
            _ => return None,
        })
    }

    fn tags(&self, all: &mut List) {
        let mask = self.mask("vlan_tci");
        match self.flow.vlans.first() {
            _ if mask == 0 => {}
            None => all.field("vlan_tci", "0x0000", mask, 16, |mask| format!("0x{mask:04x}")),
            Some((_, tci)) => {
                all.number("dl_vlan", (tci & 0xfff).into(), mask, 12);
                all.number("dl_vlan_pcp", (tci >> 13).into(), mask >> 13, 3);
            }
        }
    }

    fn ports(&self, all: &mut List) {
        let flow = &self.flow;
        let (src, dst) = (self.mask("tp_src"), self.mask("tp_dst"));
        let port = |all: &mut List, name: &str, value: u16, mask: u128| {
            let (exact, partial) = (value.to_string(), format!("0x{value:x}"));
            let value = if mask & 0xffff == 0xffff { exact } else { partial };
            all.field(name, &value, mask, 16, |mask| format!("0x{mask:x}"));
        };
        match flow.proto {
            ICMP | ICMPV6 => {
                // In the fields of 16 bits that they share with ports, types and codes are partial.
                port(all, "icmp_type", flow.tp_src, src & 0xff);
                port(all, "icmp_code", flow.tp_dst, dst & 0xff);
                all.ipv6("nd_target", flow.nd_target, self.mask("nd_target"));
                all.mac("nd_sll", flow.nd_sll, self.mask("nd_sll"));
                all.mac("nd_tll", flow.nd_tll, self.mask("nd_tll"));
            }
            _ => {
                port(all, "tp_src", flow.tp_src, src);
                port(all, "tp_dst", flow.tp_dst, dst);
            }
        }
    }
}

/// A tag's parts that matter, and others that are not zero.
fn tag(tci: u16, mask: u128, detail: Detail) -> String {
    let mut list = List::default();
    let mut part = |name: &str, value: u16, mask: u128, bits: u32| {
        let mask = mask & ones(bits);
        if value == 0 && mask == 0 && detail == Detail::Brief {
            return;
        }
        let of = if mask == ones(bits) { String::new() } else { format!("/{mask:#x}") };
        list.put(&format!("{name}={value}{of}"));
    };
    part("vid", tci & 0xfff, mask, 12);
    part("pcp", tci >> 13, mask >> 13, 3);
    list.0
}

/// TCP flags: names, or with signs those under a mask.
fn flags(value: u16, mask: u16) -> String {
    const NAMES: [&str; 9] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];
    let is_exact = mask & 0xfff == 0xfff;
    let mut text = String::new();
    for (bit, name) in NAMES.iter().enumerate() {
        let (is_set, matters) = (value >> bit & 1 == 1, mask >> bit & 1 == 1);
        match (is_exact, is_set, matters) {
            (true, true, _) if text.is_empty() => text += name,
            (true, true, _) => text = text + "|" + name,
            (false, true, true) => text = text + "+" + name,
            (false, false, true) => text = text + "-" + name,
            _ => {}
        }
    }
    format!("tcp_flags({})", if text.is_empty() { "0" } else { &text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::odp;

    fn megaflow(text: &str, masks: &[(&'static str, u128)]) -> Megaflow {
        let packet = odp::packet(text, None).unwrap();
        let masks = masks.iter().map(|(key, mask)| Dependency { key, mask: *mask }).collect();
        Megaflow::of(&packet, masks)
    }

    const ICMP: &str = "in_port(1),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),eth_type(0x0800),\
                        ipv4(src=10.0.0.2,dst=10.0.0.1,proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)";

    #[test]
    fn only_what_matters_is_told() {
        let nothing = megaflow(ICMP, &[]);
        let datapath = "recirc_id(0),in_port(7),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(frag=no)";
        assert_eq!(nothing.datapath(7, Detail::Brief), datapath);
        assert_eq!(nothing.matching("7"), "recirc_id=0,eth,ip,in_port=7,nw_frag=no");
        let some = megaflow(ICMP, &[("ip_src", 0xffff_fffc), ("nw_proto", 0xff), ("tp_src", 0xff)]);
        assert_eq!(
            some.datapath(7, Detail::Brief),
            "recirc_id(0),in_port(7),packet_type(ns=0,id=0),eth_type(0x0800),\
             ipv4(src=10.0.0.2/255.255.255.252,proto=1,frag=no),icmp(type=8)"
        );
        assert_eq!(
            some.matching("7"),
            "recirc_id=0,eth,icmp,in_port=7,nw_src=10.0.0.2/255.255.255.252,nw_frag=no,icmp_type=0x8/0xff"
        );
        let tagged = megaflow(
            "in_port(1),eth(),eth_type(0x8100),vlan(vid=11,pcp=7),encap(eth_type(0x1234))",
            &[("vlan_tci", 0x1fff)],
        );
        assert!(
            tagged
                .datapath(1, Detail::Brief)
                .ends_with("eth_type(0x8100),vlan(vid=11,pcp=7/0x0),encap(eth_type(0x1234))")
        );
        assert_ne!(nothing.identity(), some.identity());
    }

    #[test]
    fn all_fields_are_told_with_their_masks() {
        let rest = "eth(src=50:54:00:00:00:09/00:00:00:00:00:00,dst=50:54:00:00:00:0a/00:00:00:00:00:00),\
                    eth_type(0x0800),ipv4(src=10.0.0.2/255.0.0.0,dst=10.0.0.1/0.0.0.0,proto=1/0,tos=0/0,ttl=64/0,\
                    frag=no),icmp(type=8/0,code=0/0)";
        assert_eq!(
            megaflow(ICMP, &[("ip_src", 0xff00_0000)]).datapath(7, Detail::Verbose),
            format!(
                "skb_priority(0/0),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),ct_mark(0/0),ct_label(0/0),recirc_id(0),\
                 dp_hash(0/0),in_port(7),packet_type(ns=0,id=0),{rest}"
            )
        );
        let exact = Megaflow::exactly(&odp::packet(ICMP, None).unwrap());
        let fields = ICMP.split_once("eth(").unwrap().1;
        for (detail, state) in
            [(Detail::Brief, "-new-est-rel-rpl-inv-trk-snat-dnat"), (Detail::Verbose, "0/0xff")]
        {
            assert_eq!(
                exact.datapath(7, detail),
                format!(
                    "skb_priority(0),skb_mark(0),ct_state({state}),ct_zone(0),ct_mark(0),ct_label(0),recirc_id(0),\
                     dp_hash(0),in_port(7),packet_type(ns=0,id=0),eth({fields}"
                )
            );
        }
        assert!(!exact.has(&odp::packet(&ICMP.replace("ttl=64", "ttl=63"), None).unwrap()));
    }

    #[test]
    fn packets_that_agree_in_what_matters_have_one_identity() {
        let other = ICMP.replace("10.0.0.2", "10.0.0.3").replace("ttl=64", "ttl=3");
        let mask = &[("ip_src", 0xffff_fffe)];
        let other = odp::packet(&other, None).unwrap();
        assert!(megaflow(ICMP, mask).has(&other));
        assert!(!megaflow(ICMP, &[("ip_src", 0xffff_ffff)]).has(&other));
    }

    #[test]
    fn flags_have_names() {
        assert_eq!(flags(0x12, 0xfff), "tcp_flags(syn|ack)");
        assert_eq!(flags(0x12, 0x13), "tcp_flags(-fin+syn+ack)");
        assert_eq!(flags(0, 0xfff), "tcp_flags(0)");
    }
}

//! Match fields as keys of the tables, and as places that actions read and write.
//!
//! A key may hold several fields (all registers of one `xxreg`; the ports of TCP, UDP and SCTP and the types of ICMP,
//! which the protocol tells apart), and each field is one range of bits of one key. So the value of a field is a slice of
//! its key's value, and overlapping fields are one condition.

use openflow::PortNo;
use openflow::field::FieldId;
use pipeline::ir::{BinOp, Expr, HeaderId};

use super::headers::{self, Headers};
use super::terms::{bit, both, concat, either, field, mux, resize, valid, var};
use super::vars::{METADATA, Vars};

/// A key of every table.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    /// Name.
    pub(crate) name: &'static str,
    /// Width, bits.
    pub(crate) width: u16,
    /// What lookups match.
    pub(crate) value: Expr,
}

/// Where a field is: a key, the lowest bit in it, bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) key: u32,
    pub(crate) low: u16,
    pub(crate) bits: u16,
}

/// The keys of all tables, and the fields in them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    pub(crate) list: Vec<Key>,
    spots: Vec<Option<Spot>>,
}

impl Keys {
    /// Where a field is; `None`: tables do not match it.
    pub(crate) fn spot(&self, id: FieldId) -> Option<Spot> {
        self.spots.get(id as usize).copied().flatten()
    }

    fn add(&mut self, name: &'static str, width: u16, value: Expr, fields: &[(FieldId, u16, u16)]) {
        let key = self.list.len() as u32;
        self.list.push(Key { name, width, value });
        for (id, low, bits) in fields {
            let at = *id as usize;
            if self.spots.len() <= at {
                self.spots.resize(at + 1, None);
            }
            if let Some(spot) = self.spots.get_mut(at) {
                *spot = Some(Spot { key, low: *low, bits: *bits });
            }
        }
    }

    /// Makes the keys.
    pub(super) fn new(h: &Headers, v: &Vars) -> Self {
        let mut keys = Keys::default();
        keys.metadata(v);
        keys.link(h, v);
        keys.network(h, v);
        keys.transport(h, v);
        keys
    }

    fn metadata(&mut self, v: &Vars) {
        use FieldId::*;
        // A 16-bit number of a reserved port is widened before it is matched.
        self.add("in_port", 32, var(v.match_port), &[(InPortOxm, 0, 32), (InPort, 0, 32)]);
        self.add("in_phy_port", 32, var(v.in_port), &[(InPhyPort, 0, 32)]);
        for id in METADATA {
            let Some(value) = v.fields.get(id) else { continue };
            let bits = id.field().bits;
            self.add(id.field().name, bits, var(*value), &[(*id, 0, bits)]);
        }
        self.add("tun_metadata", super::vars::TUNNEL_METADATA * 8, var(v.tunnel_metadata), &[]);
        const NAMES: [&str; 4] = ["xxreg0", "xxreg1", "xxreg2", "xxreg3"];
        for (i, (name, value)) in NAMES.into_iter().zip(v.registers).enumerate() {
            let n = i as u8;
            let mut parts = Vec::new();
            parts.extend(FieldId::xxreg(n).map(|id| (id, 0, 128)));
            parts.extend(
                (0..2).filter_map(|j| Some((FieldId::xreg(n * 2 + j)?, 64 * (1 - u16::from(j)), 64))),
            );
            parts
                .extend((0..4).filter_map(|j| Some((FieldId::reg(n * 4 + j)?, 32 * (3 - u16::from(j)), 32))));
            self.add(name, 128, var(value), &parts);
        }
    }

    /// Adds the field of the action set's output, whose value needs variables that are declared later.
    pub(super) fn add_actset_output(&mut self, set: Expr, port: Expr) {
        let value = mux(set, port, bit(32, PortNo::UNSET.0.into()));
        self.add("actset_output", 32, value, &[(FieldId::ActsetOutput, 0, 32)]);
    }

    fn link(&mut self, h: &Headers, v: &Vars) {
        use FieldId::*;
        use headers::{eth, mpls, pbb, vlan};
        self.add("eth_dst", 48, field(h.eth, eth::DST), &[(EthDst, 0, 48)]);
        self.add("eth_src", 48, field(h.eth, eth::SRC), &[(EthSrc, 0, 48)]);
        self.add("eth_type", 16, var(v.eth_type), &[(EthType, 0, 16)]);
        let tci = concat(concat(field(h.tag, vlan::PCP), bit(1, 1)), field(h.tag, vlan::VID));
        let tci = mux(valid(h.tag), tci, bit(16, 0));
        self.add("vlan_tci", 16, tci, &[(VlanTci, 0, 16), (VlanVid, 0, 13), (VlanPcp, 13, 3)]);
        let label = concat(
            concat(field(h.label, mpls::LABEL), field(h.label, mpls::TC)),
            concat(field(h.label, mpls::BOS), field(h.label, mpls::TTL)),
        );
        let parts = [(MplsLabel, 12, 20), (MplsTc, 9, 3), (MplsBos, 8, 1), (MplsTtl, 0, 8)];
        self.add("mpls", 32, label, &parts);
        self.add("pbb_isid", 24, field(h.pbb, pbb::ISID), &[(PbbIsid, 0, 24)]);
        self.add("pbb_uca", 1, field(h.pbb, pbb::UCA), &[(PbbUca, 0, 1)]);
    }

    fn network(&mut self, h: &Headers, v: &Vars) {
        use FieldId::*;
        use headers::{arp, ipv4, ipv6};
        self.add("ip_src", 32, field(h.ipv4, ipv4::SRC), &[(IpSrc, 0, 32)]);
        self.add("ip_dst", 32, field(h.ipv4, ipv4::DST), &[(IpDst, 0, 32)]);
        self.add("ipv6_src", 128, field(h.ipv6, ipv6::SRC), &[(Ipv6Src, 0, 128)]);
        self.add("ipv6_dst", 128, field(h.ipv6, ipv6::DST), &[(Ipv6Dst, 0, 128)]);
        self.add("ipv6_label", 20, field(h.ipv6, ipv6::LABEL), &[(Ipv6Label, 0, 20)]);
        self.add("ipv6_exthdr", 9, var(v.ext_headers), &[(Ipv6Exthdr, 0, 9)]);
        self.add("nw_proto", 8, var(v.nw_proto), &[(NwProto, 0, 8)]);
        let of4 = concat(field(h.ipv4, ipv4::DSCP), field(h.ipv4, ipv4::ECN));
        let of6 = concat(field(h.ipv6, ipv6::DSCP), field(h.ipv6, ipv6::ECN));
        let tos = mux(valid(h.ipv4), of4, of6);
        // The field has the whole byte, of which only the upper six bits are matched.
        self.add("nw_tos", 8, tos, &[(NwTos, 0, 8), (IpDscp, 2, 6), (NwEcn, 0, 2)]);
        let ttl = mux(valid(h.ipv4), field(h.ipv4, ipv4::TTL), field(h.ipv6, ipv6::TTL));
        self.add("nw_ttl", 8, ttl, &[(NwTtl, 0, 8)]);
        self.add("ip_frag", 2, var(v.ip_frag), &[(IpFrag, 0, 2)]);
        self.add("arp_op", 16, field(h.arp, arp::OP), &[(ArpOp, 0, 16)]);
        self.add("arp_spa", 32, field(h.arp, arp::SPA), &[(ArpSpa, 0, 32)]);
        self.add("arp_tpa", 32, field(h.arp, arp::TPA), &[(ArpTpa, 0, 32)]);
        self.add("arp_sha", 48, field(h.arp, arp::SHA), &[(ArpSha, 0, 48)]);
        self.add("arp_tha", 48, field(h.arp, arp::THA), &[(ArpTha, 0, 48)]);
    }

    fn transport(&mut self, h: &Headers, v: &Vars) {
        use FieldId::*;
        use headers::{icmp, nd, option, tcp, udp};
        // TCP, UDP and SCTP begin alike. Fragments have ports only if the switch is configured to match them.
        let chain = |tcp: Expr, udp: Expr, sctp: Expr, icmp: Expr, icmpv6: Expr| {
            let icmps = mux(valid(h.icmp), icmp, icmpv6);
            let found = mux(valid(h.tcp), tcp, mux(valid(h.udp), udp, mux(valid(h.sctp), sctp, icmps)));
            mux(hides_ports(v), bit(16, 0), found)
        };
        let icmp_part = |header: HeaderId, number| resize(field(header, number), 16);
        let first = chain(
            field(h.tcp, tcp::SRC),
            field(h.udp, udp::SRC),
            field(h.sctp, headers::sctp::SRC),
            icmp_part(h.icmp, icmp::TYPE),
            icmp_part(h.icmpv6, icmp::TYPE),
        );
        let second = chain(
            field(h.tcp, tcp::DST),
            field(h.udp, udp::DST),
            field(h.sctp, headers::sctp::DST),
            icmp_part(h.icmp, icmp::CODE),
            icmp_part(h.icmpv6, icmp::CODE),
        );
        let ports =
            [(TcpSrc, 0, 16), (UdpSrc, 0, 16), (SctpSrc, 0, 16), (IcmpType, 0, 8), (Icmpv6Type, 0, 8)];
        self.add("tp_src", 16, first, &ports);
        let ports =
            [(TcpDst, 0, 16), (UdpDst, 0, 16), (SctpDst, 0, 16), (IcmpCode, 0, 8), (Icmpv6Code, 0, 8)];
        self.add("tp_dst", 16, second, &ports);
        self.add("tcp_flags", 12, field(h.tcp, tcp::FLAGS), &[(TcpFlags, 0, 12)]);
        self.add("nd_target", 128, field(h.nd, nd::TARGET), &[(NdTarget, 0, 128)]);
        self.add("nd_reserved", 32, field(h.nd, nd::RESERVED), &[(NdReserved, 0, 32)]);
        let [one, two] = h.option;
        let is =
            |header: HeaderId, kind| both(valid(header), field(header, option::TYPE).equals(bit(8, kind)));
        let address = |kind| {
            let second = mux(is(two, kind), field(two, option::ADDRESS), bit(48, 0));
            mux(is(one, kind), field(one, option::ADDRESS), second)
        };
        self.add("nd_sll", 48, address(1), &[(NdSll, 0, 48)]);
        self.add("nd_tll", 48, address(2), &[(NdTll, 0, 48)]);
        let kind = mux(valid(one), field(one, option::TYPE), bit(8, 0));
        self.add("nd_options_type", 8, kind, &[(NdOptionsType, 0, 8)]);
    }
}

/// Whether the packet is a fragment whose ports are hidden: of later ones always, of first ones unless the switch is
/// configured to match them.
fn hides_ports(v: &Vars) -> Expr {
    let shown =
        var(v.kind).slice(crate::exec::MATCH_FRAGMENTS, crate::exec::MATCH_FRAGMENTS).equals(bit(1, 1));
    let later = var(v.ip_frag).slice(1, 1).equals(bit(1, 1));
    let any = var(v.ip_frag).op(BinOp::Ne, bit(2, 0));
    either(later, both(any, super::terms::not(shown)))
}

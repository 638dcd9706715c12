//! Writing fields: one program action per field, with a value and a mask, that keeps checksums right.
//!
//! A field that the packet lacks is left alone. Checksums are updated from old and new content; SCTP's, which has no such
//! update, is computed anew.

use std::collections::BTreeMap;

use openflow::field::FieldId;
use pipeline::ir::{ActionId, BinOp, Expr, HashKind, HeaderId, Item, LValue, Program, Stmt, Type};

use super::fields::Keys;
use super::headers::{Headers, arp, eth, icmp, ipv4, ipv6, mpls, nd, option, pbb, sctp, tcp, udp, vlan};
use super::terms::{
    bit, both, complement, concat, field, items, mux, not, place, set, set_field, valid, var, when,
};
use super::types;
use super::vars::{TUNNEL, Vars};

/// What depends on a header's field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sum {
    Nothing,
    /// The header's own checksum, a field of it.
    Own(u16),
    /// The IPv4 header's, and the transport's by its pseudo-header.
    Address4,
    /// The transport's by its pseudo-header.
    Address6,
    /// UDP's, which may be absent.
    Udp,
    /// SCTP's.
    Sctp,
    /// ICMPv6's.
    Icmpv6,
}

/// A header's field that a match field may be.
struct Target {
    header: HeaderId,
    number: u16,
    /// What completes the field to whole 16-bit words.
    before: Option<Expr>,
    after: Option<Expr>,
    sum: Sum,
    /// Besides validity.
    condition: Option<Expr>,
}

impl Target {
    fn new(header: HeaderId, number: u16, sum: Sum) -> Self {
        Target { header, number, before: None, after: None, sum, condition: None }
    }

    fn within(mut self, before: Option<Expr>, after: Option<Expr>) -> Self {
        (self.before, self.after) = (before, after);
        self
    }

    fn on(mut self, condition: Expr) -> Self {
        self.condition = Some(condition);
        self
    }

    /// The whole words, with this content of the field.
    fn words(&self, content: Expr) -> Vec<Item> {
        items(self.before.iter().cloned().chain([content]).chain(self.after.iter().cloned()).collect())
    }

    fn update(&self, h: &Headers, v: &Vars, new: Expr) -> Stmt {
        let old = field(self.header, self.number);
        let update = |header, number| {
            Stmt::UpdateChecksum(place(header, number), self.words(old.clone()), self.words(new.clone()))
        };
        let of_udp = || {
            let sum = || field(h.udp, udp::CHECKSUM);
            let zero = when(sum().equals(bit(16, 0)), vec![set_field(h.udp, udp::CHECKSUM, bit(16, 0xffff))]);
            let present = both(valid(h.udp), sum().op(BinOp::Ne, bit(16, 0)));
            when(present, vec![update(h.udp, udp::CHECKSUM), zero])
        };
        let transport = || [when(valid(h.tcp), vec![update(h.tcp, tcp::CHECKSUM)]), of_udp()];
        let mut body = match self.sum {
            Sum::Nothing | Sum::Sctp => vec![],
            Sum::Own(number) => vec![update(self.header, number)],
            Sum::Udp => vec![of_udp()],
            Sum::Icmpv6 => vec![update(h.icmpv6, icmp::CHECKSUM)],
            Sum::Address4 => [update(h.ipv4, ipv4::CHECKSUM)].into_iter().chain(transport()).collect(),
            Sum::Address6 => {
                let icmpv6 = when(valid(h.icmpv6), vec![update(h.icmpv6, icmp::CHECKSUM)]);
                transport().into_iter().chain([icmpv6]).collect()
            }
        };
        body.push(set_field(self.header, self.number, new));
        if self.sum == Sum::Sctp {
            body.extend(sctp_checksum(h, v));
        }
        let present = valid(self.header);
        when(self.condition.clone().map_or(present.clone(), |more| both(present, more)), body)
    }
}

/// Computes SCTP's checksum: CRC-32C, least significant byte first (RFC 9260, appendix A).
fn sctp_checksum(h: &Headers, v: &Vars) -> [Stmt; 2] {
    let head = [field(h.sctp, sctp::SRC), field(h.sctp, sctp::DST), field(h.sctp, sctp::TAG), bit(32, 0)];
    let mut input = items(head.to_vec());
    input.push(Item::Payload);
    let byte = |low: u16| var(v.hash).slice(low + 7, low);
    let swapped = concat(concat(byte(0), byte(8)), concat(byte(16), byte(24)));
    [Stmt::Hash(LValue::Var(v.hash), HashKind::Crc32c, input), set_field(h.sctp, sctp::CHECKSUM, swapped)]
}

/// The new content of something, by the action's parameters.
pub(super) fn merged(old: Expr) -> Expr {
    let (value, mask) = (Expr::Param(0), Expr::Param(1));
    old.op(BinOp::And, complement(mask.clone())).op(BinOp::Or, value.op(BinOp::And, mask))
}

/// Declares the actions, for all fields that actions may write.
pub(super) fn declare(
    p: &mut Program,
    h: &Headers,
    v: &Vars,
    keys: &Keys,
    tags: Tags,
) -> BTreeMap<FieldId, ActionId> {
    let mut actions = BTreeMap::new();
    let protocol = types::set_protocol(p, h, v);
    let mut add = |id: FieldId, bits: u16, body: Vec<Stmt>| {
        let ty = Type::Bit(bits);
        let name = format!("set_{}", id.field().name);
        actions.insert(id, p.add_action(&name, &[("value", ty), ("mask", ty)], body));
    };
    for id in [FieldId::Metadata, FieldId::PktMark].into_iter().chain(TUNNEL) {
        if let Some(target) = v.fields.get(&id) {
            add(id, id.field().bits, vec![set(*target, merged(var(*target)))]);
        }
    }
    for n in 0..16 {
        for id in [FieldId::reg(n), FieldId::xreg(n), FieldId::xxreg(n)].into_iter().flatten() {
            let Some(spot) = keys.spot(id) else { continue };
            let register = match spot.bits {
                32 => v.registers.get(usize::from(n / 4)),
                64 => v.registers.get(usize::from(n / 2)),
                _ => v.registers.get(usize::from(n)),
            };
            let Some(register) = register else { continue };
            let (high, low) = (spot.low + spot.bits - 1, spot.low);
            let part = LValue::Slice(Box::new(LValue::Var(*register)), high, low);
            add(id, spot.bits, vec![Stmt::Set(part, merged(var(*register).slice(high, low)))]);
        }
    }
    add(FieldId::InPort, 16, set_in_port(v));
    add(FieldId::InPortOxm, 32, vec![set(v.in_port, merged(var(v.in_port)))]);
    for (id, bits, targets) in header_fields(h) {
        let update = |target: &Target| target.update(h, v, merged(field(target.header, target.number)));
        add(id, bits, targets.iter().map(update).collect());
    }
    add(FieldId::VlanTci, 16, set_tci(h, keys, tags));
    // The bit above the id says that there is a tag: no more than a tag that is there can be changed.
    let vid = merged(concat(bit(1, 1), field(h.tag, vlan::VID))).slice(11, 0);
    add(FieldId::VlanVid, 13, vec![when(valid(h.tag), vec![set_field(h.tag, vlan::VID, vid)])]);
    let pcp = merged(field(h.tag, vlan::PCP));
    add(FieldId::VlanPcp, 3, vec![when(valid(h.tag), vec![set_field(h.tag, vlan::PCP, pcp)])]);
    add(FieldId::EthType, 16, types::set_eth_type(h, v));
    add(FieldId::MplsBos, 1, types::set_bottom(h));
    add(FieldId::NwProto, 8, protocol);
    actions
}

/// Actions that add and remove a tag.
#[derive(Clone, Copy)]
pub(super) struct Tags {
    pub(super) push: ActionId,
    pub(super) pop: ActionId,
}

/// Reserved ports have their number in 16 bits.
fn set_in_port(v: &Vars) -> Vec<Stmt> {
    let new = merged(var(v.in_port).slice(15, 0));
    let reserved = new.clone().op(BinOp::Ge, bit(16, 0xff00));
    vec![set(v.in_port, concat(mux(reserved, bit(16, 0xffff), bit(16, 0)), new))]
}

/// Tag control information: with the bit that says that there is a tag, adds one or changes the one that is there;
/// without it, removes the tag.
fn set_tci(h: &Headers, keys: &Keys, tags: Tags) -> Vec<Stmt> {
    let old = keys.spot(FieldId::VlanTci).and_then(|spot| keys.list.get(spot.key as usize));
    let new = || merged(old.map_or(bit(16, 0), |key| key.value.clone()));
    let add = when(not(valid(h.tag)), vec![Stmt::Do(tags.push, vec![bit(16, 0x8100)])]);
    // The value is computed from the packet as it was: the id last, since its bits are read for the priority.
    let change = vec![
        set_field(h.tag, vlan::PCP, new().slice(15, 13)),
        set_field(h.tag, vlan::VID, new().slice(11, 0)),
    ];
    let present = || new().slice(12, 12).equals(bit(1, 1));
    let remove = when(valid(h.tag), vec![Stmt::Do(tags.pop, vec![])]);
    vec![Stmt::If(present(), [vec![add], change].concat(), vec![remove])]
}

fn header_fields(h: &Headers) -> Vec<(FieldId, u16, Vec<Target>)> {
    use FieldId::*;
    let plain = |header, number| Target::new(header, number, Sum::Nothing);
    let ip = Sum::Own(ipv4::CHECKSUM);
    let dscp4 = || {
        let before = concat(field(h.ipv4, ipv4::VERSION), field(h.ipv4, ipv4::IHL));
        Target::new(h.ipv4, ipv4::DSCP, ip).within(Some(before), Some(field(h.ipv4, ipv4::ECN)))
    };
    let ecn4 = || {
        let before = concat(field(h.ipv4, ipv4::VERSION), field(h.ipv4, ipv4::IHL));
        Target::new(h.ipv4, ipv4::ECN, ip).within(Some(concat(before, field(h.ipv4, ipv4::DSCP))), None)
    };
    let ttl4 = Target::new(h.ipv4, ipv4::TTL, ip).within(None, Some(field(h.ipv4, ipv4::PROTOCOL)));
    let kind =
        |header, sum| Target::new(header, icmp::TYPE, sum).within(None, Some(field(header, icmp::CODE)));
    let code =
        |header, sum| Target::new(header, icmp::CODE, sum).within(Some(field(header, icmp::TYPE)), None);
    let address = |number: u64| {
        let of = |header| {
            let wanted = field(header, option::TYPE).equals(bit(8, number));
            Target::new(header, option::ADDRESS, Sum::Icmpv6).on(wanted)
        };
        h.option.into_iter().map(of).collect::<Vec<_>>()
    };
    let [first_option, _] = h.option;
    let option_kind = Target::new(first_option, option::TYPE, Sum::Icmpv6)
        .within(None, Some(field(first_option, option::LENGTH)));
    let own = Sum::Own(icmp::CHECKSUM);
    vec![
        (EthSrc, 48, vec![plain(h.eth, eth::SRC)]),
        (EthDst, 48, vec![plain(h.eth, eth::DST)]),
        (MplsLabel, 20, vec![plain(h.label, mpls::LABEL)]),
        (MplsTc, 3, vec![plain(h.label, mpls::TC)]),
        (MplsTtl, 8, vec![plain(h.label, mpls::TTL)]),
        (PbbIsid, 24, vec![plain(h.pbb, pbb::ISID)]),
        (PbbUca, 1, vec![plain(h.pbb, pbb::UCA)]),
        (IpSrc, 32, vec![Target::new(h.ipv4, ipv4::SRC, Sum::Address4)]),
        (IpDst, 32, vec![Target::new(h.ipv4, ipv4::DST, Sum::Address4)]),
        (Ipv6Src, 128, vec![Target::new(h.ipv6, ipv6::SRC, Sum::Address6)]),
        (Ipv6Dst, 128, vec![Target::new(h.ipv6, ipv6::DST, Sum::Address6)]),
        (Ipv6Label, 20, vec![plain(h.ipv6, ipv6::LABEL)]),
        (IpDscp, 6, vec![dscp4(), plain(h.ipv6, ipv6::DSCP)]),
        (NwEcn, 2, vec![ecn4(), plain(h.ipv6, ipv6::ECN)]),
        (NwTtl, 8, vec![ttl4, plain(h.ipv6, ipv6::TTL)]),
        (ArpOp, 16, vec![plain(h.arp, arp::OP)]),
        (ArpSpa, 32, vec![plain(h.arp, arp::SPA)]),
        (ArpTpa, 32, vec![plain(h.arp, arp::TPA)]),
        (ArpSha, 48, vec![plain(h.arp, arp::SHA)]),
        (ArpTha, 48, vec![plain(h.arp, arp::THA)]),
        (TcpSrc, 16, vec![Target::new(h.tcp, tcp::SRC, Sum::Own(tcp::CHECKSUM))]),
        (TcpDst, 16, vec![Target::new(h.tcp, tcp::DST, Sum::Own(tcp::CHECKSUM))]),
        (UdpSrc, 16, vec![Target::new(h.udp, udp::SRC, Sum::Udp)]),
        (UdpDst, 16, vec![Target::new(h.udp, udp::DST, Sum::Udp)]),
        (SctpSrc, 16, vec![Target::new(h.sctp, sctp::SRC, Sum::Sctp)]),
        (SctpDst, 16, vec![Target::new(h.sctp, sctp::DST, Sum::Sctp)]),
        (IcmpType, 8, vec![kind(h.icmp, own)]),
        (IcmpCode, 8, vec![code(h.icmp, own)]),
        (Icmpv6Type, 8, vec![kind(h.icmpv6, own)]),
        (Icmpv6Code, 8, vec![code(h.icmpv6, own)]),
        (NdTarget, 128, vec![Target::new(h.nd, nd::TARGET, Sum::Icmpv6)]),
        (NdReserved, 32, vec![Target::new(h.nd, nd::RESERVED, Sum::Icmpv6)]),
        (NdSll, 48, address(1)),
        (NdTll, 48, address(2)),
        (NdOptionsType, 8, vec![option_kind]),
    ]
}

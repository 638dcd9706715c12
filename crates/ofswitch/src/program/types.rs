//! Writing the fields that say which header follows: Ethernet type, protocol, bottom of the label stack.
//!
//! The standard's set-field action may write them. The headers behind stay as they were parsed until the packet is
//! parsed again; checksums follow the protocol, which is part of pseudo-headers.

use pipeline::ir::{BinOp, Expr, HeaderId, Program, Stmt};

use super::edits::set_type;
use super::headers::{EXTENSIONS, Headers, ext, icmp, ipv4, ipv6, mpls, snap, tcp, udp};
use super::parser::NO_TYPE;
use super::stores::merged;
use super::terms::{bit, both, either, field, items, not, place, set, set_field, valid, var, when};
use super::vars::Vars;

/// Writes the Ethernet type behind the VLAN tags, or in the SNAP header; frames without a type stay as they are.
pub(super) fn set_eth_type(h: &Headers, v: &Vars) -> Vec<Stmt> {
    let new = merged(var(v.eth_type));
    let in_snap = vec![set_field(h.snap, snap::TYPE, new.clone()), set(v.eth_type, new.clone())];
    let body = Stmt::If(valid(h.snap), in_snap, set_type(h, v, new));
    vec![when(var(v.eth_type).op(BinOp::Ne, bit(16, NO_TYPE)), vec![body])]
}

/// Writes the bottom-of-stack bit of the outermost label.
pub(super) fn set_bottom(h: &Headers) -> Vec<Stmt> {
    let new = merged(field(h.label, mpls::BOS));
    vec![when(valid(h.label), vec![set_field(h.label, mpls::BOS, new)])]
}

/// Writes the protocol: IPv4's, or that of the last IPv6 header.
pub(super) fn set_protocol(p: &Program, h: &Headers, v: &Vars) -> Vec<Stmt> {
    let (old, new) = (var(v.nw_proto), merged(var(v.nw_proto)));
    let update = |header, number, beside: Expr| {
        let words = |protocol: &Expr| items(vec![beside.clone(), protocol.clone()]);
        Stmt::UpdateChecksum(place(header, number), words(&old), words(&new))
    };
    let pseudo = |header, number| update(header, number, bit(8, 0));
    let mut of4 = vec![update(h.ipv4, ipv4::CHECKSUM, field(h.ipv4, ipv4::TTL))];
    of4.push(set_field(h.ipv4, ipv4::PROTOCOL, new.clone()));
    let icmpv6 = when(valid(h.icmpv6), vec![pseudo(h.icmpv6, icmp::CHECKSUM)]);
    let of6 = [vec![icmpv6], vec![set_next(p, h, &new)]].concat();

    let sum = || field(h.udp, udp::CHECKSUM);
    let all_ones = when(sum().equals(bit(16, 0)), vec![set_field(h.udp, udp::CHECKSUM, bit(16, 0xffff))]);
    let of_udp = when(
        both(valid(h.udp), sum().op(BinOp::Ne, bit(16, 0))),
        vec![pseudo(h.udp, udp::CHECKSUM), all_ones],
    );
    let body = vec![
        when(valid(h.tcp), vec![pseudo(h.tcp, tcp::CHECKSUM)]),
        of_udp,
        Stmt::If(valid(h.ipv4), of4, of6),
        set(v.nw_proto, new),
    ];
    // What is behind labels has no protocol that flows match.
    let is_ip = either(valid(h.ipv4), valid(h.ipv6));
    vec![when(both(is_ip, not(valid(h.label))), body)]
}

/// Writes the type of the next header in the last IPv6 header.
fn set_next(p: &Program, h: &Headers, new: &Expr) -> Stmt {
    let first = p.stacks.get(h.ext.index()).map_or(HeaderId(0), |stack| stack.first);
    let fixed = set_field(h.ipv6, ipv6::NEXT, new.clone());
    // Built from the outside in, the innermost header is asked first.
    (0..EXTENSIONS).fold(fixed, |outer, n| {
        let header = HeaderId(first.0 + n);
        Stmt::If(valid(header), vec![set_field(header, ext::NEXT, new.clone())], vec![outer])
    })
}

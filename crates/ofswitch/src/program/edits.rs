//! Program actions that add and remove headers, and copy TTLs.

use openflow::field::FieldId;
use pipeline::ir::{ActionId, Expr, HeaderId, Program, ReasonId, Stmt, Type};

use super::headers::{Headers, LABELS, TAGS, eth, ipv4, ipv6, mpls, pbb, vlan};
use super::terms::{bit, field, mux, set, set_field, valid, when};
use super::vars::Vars;

/// The actions. Pushes and `pop_mpls` have the Ethernet type as their parameter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edits {
    pub(crate) push_vlan: ActionId,
    pub(crate) pop_vlan: ActionId,
    pub(crate) push_mpls: ActionId,
    pub(crate) pop_mpls: ActionId,
    pub(crate) push_pbb: ActionId,
    pub(crate) pop_pbb: ActionId,
}

fn behind(header: HeaderId, n: u32) -> HeaderId {
    HeaderId(header.0 + n)
}

/// Sets the Ethernet type behind the VLAN tags.
pub(super) fn set_type(h: &Headers, v: &Vars, value: Expr) -> Vec<Stmt> {
    let innermost = (0..TAGS).fold(set_field(h.eth, eth::TYPE, value.clone()), |outer, n| {
        let tag = behind(h.tag, n);
        Stmt::If(valid(tag), vec![set_field(tag, vlan::TYPE, value.clone())], vec![outer])
    });
    // Built from the outside in, the innermost tag is asked first.
    vec![innermost, set(v.eth_type, value)]
}

/// Declares the actions. Packets without room for another header are dropped.
pub(super) fn declare(p: &mut Program, h: &Headers, v: &Vars, no_room: ReasonId) -> Edits {
    let ty = &[("eth_type", Type::Bit(16))];
    let kind = || Expr::Param(0);
    let former = behind(h.tag, 1);
    let copied = |number, width| mux(valid(former), field(former, number), bit(width, 0));
    let push_vlan = vec![
        when(valid(behind(h.tag, TAGS - 1)), vec![Stmt::Drop(no_room)]),
        Stmt::Push(h.vlan, 1),
        Stmt::SetValid(pipeline::ir::HeaderRef::Header(h.tag)),
        set_field(h.tag, vlan::TYPE, field(h.eth, eth::TYPE)),
        set_field(h.tag, vlan::PCP, copied(vlan::PCP, 3)),
        set_field(h.tag, vlan::VID, copied(vlan::VID, 12)),
        set_field(h.eth, eth::TYPE, kind()),
    ];
    let pop_vlan = vec![when(
        valid(h.tag),
        vec![set_field(h.eth, eth::TYPE, field(h.tag, vlan::TYPE)), Stmt::Pop(h.vlan, 1)],
    )];
    let former = behind(h.label, 1);
    // Values that nothing in the packet supplies are zero (OpenFlow 1.3, 5.10).
    let inner = mux(valid(h.ipv6), field(h.ipv6, ipv6::TTL), bit(8, 0));
    let inner = mux(valid(h.ipv4), field(h.ipv4, ipv4::TTL), inner);
    let copied = |number, other| mux(valid(former), field(former, number), other);
    let mut push_mpls = vec![
        when(valid(behind(h.label, LABELS - 1)), vec![Stmt::Drop(no_room)]),
        Stmt::Push(h.mpls, 1),
        Stmt::SetValid(pipeline::ir::HeaderRef::Header(h.label)),
        set_field(h.label, mpls::LABEL, copied(mpls::LABEL, bit(20, 0))),
        set_field(h.label, mpls::TC, copied(mpls::TC, bit(3, 0))),
        set_field(h.label, mpls::TTL, copied(mpls::TTL, inner)),
        set_field(h.label, mpls::BOS, mux(valid(former), bit(1, 0), bit(1, 1))),
    ];
    push_mpls.extend(set_type(h, v, kind()));
    let mut removal = set_type(h, v, kind());
    removal.extend([Stmt::Pop(h.mpls, 1), Stmt::Reparse]);
    let pop_mpls = vec![when(valid(h.label), removal)];
    let i_tag = |number, width| mux(valid(h.pbb), field(h.pbb, number), bit(width, 0));
    let push_pbb = vec![
        set_field(h.pushed, pbb::PCP, mux(valid(h.tag), field(h.tag, vlan::PCP), i_tag(pbb::PCP, 3))),
        set_field(h.pushed, pbb::ISID, i_tag(pbb::ISID, 24)),
        set_field(h.pushed, pbb::UCA, bit(1, 0)),
        set_field(h.pushed, pbb::DST, field(h.eth, eth::DST)),
        set_field(h.pushed, pbb::SRC, field(h.eth, eth::SRC)),
        set_field(h.pushed, pbb::TYPE, field(h.eth, eth::TYPE)),
        set_field(h.eth, eth::TYPE, kind()),
        Stmt::SetValid(pipeline::ir::HeaderRef::Header(h.pushed)),
        Stmt::Reparse,
    ];
    let mut removal = vec![
        set_field(h.eth, eth::DST, field(h.pbb, pbb::DST)),
        set_field(h.eth, eth::SRC, field(h.pbb, pbb::SRC)),
    ];
    removal.extend(set_type(h, v, field(h.pbb, pbb::TYPE)));
    removal.extend([Stmt::SetInvalid(pipeline::ir::HeaderRef::Header(h.pbb)), Stmt::Reparse]);
    let pop_pbb = vec![when(valid(h.pbb), removal)];
    Edits {
        push_vlan: p.add_action("push_vlan", ty, push_vlan),
        pop_vlan: p.add_action("pop_vlan", &[], pop_vlan),
        push_mpls: p.add_action("push_mpls", ty, push_mpls),
        pop_mpls: p.add_action("pop_mpls", ty, pop_mpls),
        push_pbb: p.add_action("push_pbb", ty, push_pbb),
        pop_pbb: p.add_action("pop_pbb", &[], pop_pbb),
    }
}

/// Copies of TTLs between the outermost label and what is behind it: outwards and inwards.
pub(super) fn copies(
    p: &mut Program,
    h: &Headers,
    stores: &std::collections::BTreeMap<FieldId, ActionId>,
) -> (ActionId, ActionId) {
    let second = behind(h.label, 1);
    let ip = mux(valid(h.ipv4), field(h.ipv4, ipv4::TTL), field(h.ipv6, ipv6::TTL));
    let from = mux(valid(second), field(second, mpls::TTL), ip);
    let outwards = vec![when(valid(h.label), vec![set_field(h.label, mpls::TTL, from)])];
    let ttl = || field(h.label, mpls::TTL);
    let store = stores.get(&FieldId::NwTtl).map(|action| Stmt::Do(*action, vec![ttl(), bit(8, 0xff)]));
    let inwards =
        Stmt::If(valid(second), vec![set_field(second, mpls::TTL, ttl())], store.into_iter().collect());
    let inwards = vec![when(valid(h.label), vec![inwards])];
    (p.add_action("copy_ttl_out", &[], outwards), p.add_action("copy_ttl_in", &[], inwards))
}

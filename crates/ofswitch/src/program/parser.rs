//! The parser: Ethernet to transport.
//!
//! `eth_type` is the type behind all VLAN tags, as the standard has it; 0x5ff for frames without one. What the parser does
//! not know, or cannot read because the packet is too short, stays payload.

use pipeline::ir::{
    BinOp, Case, Expr, HeaderId, HeaderRef, Keyset, ParserOp, ParserState, Program, Select, StackId, Target,
    Transition, Type,
};

use super::headers::{Headers, eth, ext, icmp, ipv4, ipv6, mpls, snap, vlan};
use super::terms::{bit, concat, field, mux, set, var, when};
use super::vars::Vars;

/// Value of `eth_type` for frames without one.
pub(super) const NO_TYPE: u64 = 0x5ff;

/// States, in the parser's order.
#[derive(Clone, Copy)]
enum State {
    Start,
    ByType,
    Tag,
    Llc,
    Snap,
    Mpls,
    Labelled,
    Inner4,
    Inner6,
    Pbb,
    Arp,
    ArpBody,
    Ipv4,
    Ipv4Fragment,
    Ipv4Payload,
    Ipv6,
    ByNext,
    HopByHop,
    Destination,
    Routing,
    Fragment,
    Authentication,
    Encrypted,
    NoNext,
    Tcp,
    Udp,
    Sctp,
    Icmp,
    Icmpv6,
    Discovery,
    DiscoveryBody,
    Option,
    Option2,
}

const STATES: usize = State::Option2 as usize + 1;

struct Builder<'a> {
    h: &'a Headers,
    v: &'a Vars,
    states: Vec<Option<ParserState>>,
}

fn to(state: State) -> Target {
    Target::State(state as u32)
}

fn extract(header: HeaderId) -> ParserOp {
    ParserOp::Extract(HeaderRef::Header(header), None)
}

fn last(stack: StackId, number: u16) -> Expr {
    Expr::Field(HeaderRef::Last(stack), number)
}

fn lookahead(width: u16, offset: u32) -> Expr {
    Expr::Lookahead(Type::Bit(width), offset)
}

/// Chooses by one value; other values end the parser.
fn choose(on: Expr, width: u16, cases: &[(u64, State)]) -> Transition {
    let case = |(value, state): &(u64, State)| Case {
        sets: vec![Keyset::Value(pipeline::ir::Constant::bit(width, *value))],
        to: to(*state),
    };
    let mut cases: Vec<Case> = cases.iter().map(case).collect();
    cases.push(Case { sets: vec![Keyset::Any], to: Target::Accept });
    Transition::Select(Select { on: vec![on], cases })
}

/// Declares the parser.
pub(super) fn declare(p: &mut Program, h: &Headers, v: &Vars) -> pipeline::ir::ParserId {
    let mut builder = Builder { h, v, states: vec![None; STATES] };
    builder.link();
    builder.internet();
    builder.extensions();
    builder.transport();
    let states = builder.states.into_iter().flatten().collect();
    p.add_parser("headers", states)
}

impl Builder<'_> {
    fn state(&mut self, state: State, name: &str, ops: Vec<ParserOp>, next: Transition) {
        if let Some(slot) = self.states.get_mut(state as usize) {
            *slot = Some(ParserState { name: name.to_owned(), ops, next });
        }
    }

    fn set_type(&self, value: Expr) -> ParserOp {
        ParserOp::Do(set(self.v.eth_type, value))
    }

    fn set_proto(&self, value: Expr) -> ParserOp {
        ParserOp::Do(set(self.v.nw_proto, value))
    }

    fn link(&mut self) {
        let (h, v) = (self.h, self.v);
        let reset = [v.eth_type, v.nw_proto, v.ip_frag, v.ext_headers];
        let widths = [16, 8, 2, 9];
        let mut ops: Vec<_> =
            reset.into_iter().zip(widths).map(|(id, width)| ParserOp::Do(set(id, bit(width, 0)))).collect();
        ops.push(extract(h.eth));
        ops.push(self.set_type(field(h.eth, eth::TYPE)));
        self.state(State::Start, "start", ops, Transition::To(to(State::ByType)));
        let by_type = vec![
            (0x8100, State::Tag),
            (0x88a8, State::Tag),
            (0x0800, State::Ipv4),
            (0x86dd, State::Ipv6),
            (0x0806, State::Arp),
            (0x8035, State::Arp),
            (0x8847, State::Mpls),
            (0x8848, State::Mpls),
            (0x88e7, State::Pbb),
        ];
        let mut next = choose(var(v.eth_type), 16, &by_type);
        if let Transition::Select(select) = &mut next {
            let short =
                Keyset::Range(pipeline::ir::Constant::bit(16, 0), pipeline::ir::Constant::bit(16, NO_TYPE));
            select.cases.insert(0, Case { sets: vec![short], to: to(State::Llc) });
        }
        self.state(State::ByType, "by_type", vec![], next);
        let ops =
            vec![ParserOp::Extract(HeaderRef::Next(h.vlan), None), self.set_type(last(h.vlan, vlan::TYPE))];
        self.state(State::Tag, "tag", ops, Transition::To(to(State::ByType)));
        let ops = vec![self.set_type(bit(16, NO_TYPE))];
        self.state(State::Llc, "llc", ops, choose(lookahead(48, 0), 48, &[(0xaaaa_0300_0000, State::Snap)]));
        let kind = field(h.snap, snap::TYPE);
        let known = kind.clone().op(BinOp::Gt, bit(16, NO_TYPE));
        let ops = vec![extract(h.snap), self.set_type(mux(known, kind, bit(16, NO_TYPE)))];
        let cases =
            [(0x0800, State::Ipv4), (0x86dd, State::Ipv6), (0x0806, State::Arp), (0x8035, State::Arp)];
        self.state(State::Snap, "snap", ops, choose(var(v.eth_type), 16, &cases));
        let ops = vec![ParserOp::Extract(HeaderRef::Next(h.mpls), None)];
        let next = choose(last(h.mpls, mpls::BOS), 1, &[(0, State::Mpls), (1, State::Labelled)]);
        self.state(State::Mpls, "mpls", ops, next);
        // Nothing behind the labels is matched; their TTL may be copied to the packet's.
        let next = choose(lookahead(4, 0), 4, &[(4, State::Inner4), (6, State::Inner6)]);
        self.state(State::Labelled, "labelled", vec![], next);
        let ops = vec![ParserOp::Extract(HeaderRef::Header(h.ipv4), Some(ipv4_options()))];
        self.state(State::Inner4, "inner_ipv4", ops, Transition::To(Target::Accept));
        self.state(State::Inner6, "inner_ipv6", vec![extract(h.ipv6)], Transition::To(Target::Accept));
        self.state(State::Pbb, "pbb", vec![extract(h.pbb)], Transition::To(Target::Accept));
        // Only ARP for IPv4 over Ethernet.
        let kind = lookahead(48, 0);
        self.state(State::Arp, "arp", vec![], choose(kind, 48, &[(0x0001_0800_0604, State::ArpBody)]));
        self.state(State::ArpBody, "arp_body", vec![extract(h.arp)], Transition::To(Target::Accept));
    }

    fn internet(&mut self) {
        let (h, v) = (self.h, self.v);
        let offset = field(h.ipv4, ipv4::OFFSET);
        let more = field(h.ipv4, ipv4::FLAGS).slice(0, 0).equals(bit(1, 1));
        let later = offset.clone().op(BinOp::Ne, bit(13, 0));
        let frag = mux(later, bit(2, 3), mux(more, bit(2, 1), bit(2, 0)));
        let ops = vec![
            ParserOp::Extract(HeaderRef::Header(h.ipv4), Some(ipv4_options())),
            self.set_proto(field(h.ipv4, ipv4::PROTOCOL)),
            ParserOp::Do(set(v.ip_frag, frag)),
        ];
        self.state(State::Ipv4, "ipv4", ops, Transition::To(to(State::Ipv4Fragment)));
        self.state(
            State::Ipv4Fragment,
            "ipv4_fragment",
            vec![],
            choose(offset, 13, &[(0, State::Ipv4Payload)]),
        );
        let next = choose(
            var(v.nw_proto),
            8,
            &[(6, State::Tcp), (17, State::Udp), (132, State::Sctp), (1, State::Icmp)],
        );
        self.state(State::Ipv4Payload, "ipv4_payload", vec![], next);
        let ops = vec![extract(h.ipv6), self.set_proto(field(h.ipv6, ipv6::NEXT))];
        self.state(State::Ipv6, "ipv6", ops, Transition::To(to(State::ByNext)));
        let next = choose(
            var(v.nw_proto),
            8,
            &[
                (0, State::HopByHop),
                (43, State::Routing),
                (44, State::Fragment),
                (50, State::Encrypted),
                (51, State::Authentication),
                (59, State::NoNext),
                (60, State::Destination),
                (6, State::Tcp),
                (17, State::Udp),
                (132, State::Sctp),
                (58, State::Icmpv6),
            ],
        );
        self.state(State::ByNext, "by_next", vec![], next);
    }

    /// Takes note of an extension header: its bit; repeated; behind one that should follow it.
    fn seen(&self, header: u64, before: u64) -> Vec<ParserOp> {
        let found = || var(self.v.ext_headers);
        let has = |bits: u64| found().op(BinOp::And, bit(9, bits)).op(BinOp::Ne, bit(9, 0));
        let add = |bits: u64| set(self.v.ext_headers, found().op(BinOp::Or, bit(9, bits)));
        let statements =
            [when(has(header), vec![add(1 << 7)]), when(has(before), vec![add(1 << 8)]), add(header)];
        statements.into_iter().map(ParserOp::Do).collect()
    }

    fn extensions(&mut self) {
        let (h, v) = (self.h, self.v);
        let (esp, auth, dest, frag, router, hop) = (2, 4, 8, 16, 32, 64);
        let length = || resize32(lookahead(8, 8));
        let body = |length: Expr| ParserOp::Extract(HeaderRef::Next(h.ext), Some(length));
        // Units of 8 bytes besides the first 8; of 4 bytes besides the first 8 for authentication.
        let options = || length().op(BinOp::Mul, bit(32, 64)).op(BinOp::Add, bit(32, 48));
        let next = || self.set_proto(last(h.ext, ext::NEXT));
        let again = Transition::To(to(State::ByNext));
        let all = esp | auth | dest | frag | router;
        let mut ops = self.seen(hop, all);
        ops.extend([body(options()), next()]);
        let mut routing = self.seen(router, esp | auth | frag);
        routing.extend([body(options()), next()]);
        let mut destination = self.seen(dest, 0);
        destination.extend([body(options()), next()]);
        let mut authentication = self.seen(auth, esp);
        let units = length().op(BinOp::Mul, bit(32, 32)).op(BinOp::Add, bit(32, 48));
        authentication.extend([body(units), next()]);
        let offset = lookahead(13, 16);
        let more = lookahead(1, 31).equals(bit(1, 1));
        let kind = mux(offset.op(BinOp::Ne, bit(13, 0)), bit(2, 3), mux(more, bit(2, 1), bit(2, 0)));
        let mut fragment = self.seen(frag, esp | auth);
        // What follows a later fragment's header is payload, whatever the header says: its protocol is the header's own.
        let later = var(v.ip_frag).equals(bit(2, 3));
        let follows = self.set_proto(mux(later, bit(8, 44), last(h.ext, ext::NEXT)));
        fragment.extend([ParserOp::Do(set(v.ip_frag, kind)), body(bit(32, 48)), follows]);
        self.state(State::HopByHop, "hop_by_hop", ops, again.clone());
        self.state(State::Routing, "routing", routing, again.clone());
        self.state(State::Destination, "destination", destination, again.clone());
        self.state(State::Authentication, "authentication", authentication, again);
        let next = choose(var(v.ip_frag), 2, &[(0, State::ByNext), (1, State::ByNext)]);
        self.state(State::Fragment, "fragment", fragment, next);
        let encrypted = self.seen(esp, 0);
        self.state(State::Encrypted, "encrypted", encrypted, Transition::To(Target::Accept));
        let none = self.seen(1, 0);
        self.state(State::NoNext, "no_next", none, Transition::To(Target::Accept));
    }

    fn transport(&mut self) {
        let h = self.h;
        let end = || Transition::To(Target::Accept);
        self.state(State::Tcp, "tcp", vec![extract(h.tcp)], end());
        self.state(State::Udp, "udp", vec![extract(h.udp)], end());
        self.state(State::Sctp, "sctp", vec![extract(h.sctp)], end());
        self.state(State::Icmp, "icmp", vec![extract(h.icmp)], end());
        let kind = concat(field(h.icmpv6, icmp::TYPE), field(h.icmpv6, icmp::CODE));
        let discovery = choose(kind, 16, &[(135 << 8, State::Discovery), (136 << 8, State::Discovery)]);
        self.state(State::Icmpv6, "icmpv6", vec![extract(h.icmpv6)], discovery);
        let body = Transition::To(to(State::DiscoveryBody));
        self.state(State::Discovery, "discovery", vec![], body);
        // An option with a link-layer address has 8 bytes.
        let an_option = |then| choose(lookahead(16, 0), 16, &[(0x0101, then), (0x0201, then)]);
        self.state(State::DiscoveryBody, "discovery_body", vec![extract(h.nd)], an_option(State::Option));
        let [one, two] = h.option;
        self.state(State::Option, "option", vec![extract(one)], an_option(State::Option2));
        self.state(State::Option2, "option2", vec![extract(two)], end());
    }
}

fn resize32(value: Expr) -> Expr {
    value.cast(Type::Bit(32))
}

/// Bits of an IPv4 header's options.
fn ipv4_options() -> Expr {
    let words = resize32(lookahead(4, 4)).op(BinOp::SatSub, bit(32, 5));
    words.op(BinOp::Mul, bit(32, 32))
}

//! The headers that the bridge parses, in the order in which they are emitted.

use pipeline::ir::{EmitRef, FieldType, HeaderId, HeaderRef, Program, StackId, Stmt, Type};

/// Header instances of the program. Field numbers are the constants in this module's submodules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Headers {
    pub(crate) eth: HeaderId,
    /// A PBB header that was just pushed: in front of the VLAN tags, until the packet is parsed again.
    pub(crate) pushed: HeaderId,
    pub(crate) vlan: StackId,
    pub(crate) tag: HeaderId,
    pub(crate) pbb: HeaderId,
    pub(crate) snap: HeaderId,
    pub(crate) mpls: StackId,
    pub(crate) label: HeaderId,
    pub(crate) arp: HeaderId,
    pub(crate) ipv4: HeaderId,
    pub(crate) ipv6: HeaderId,
    pub(crate) ext: StackId,
    pub(crate) tcp: HeaderId,
    pub(crate) udp: HeaderId,
    pub(crate) sctp: HeaderId,
    pub(crate) icmp: HeaderId,
    pub(crate) icmpv6: HeaderId,
    pub(crate) nd: HeaderId,
    pub(crate) options: StackId,
    pub(crate) option: [HeaderId; ND_OPTIONS as usize],
}

/// VLAN tags that the parser looks at.
pub(crate) const TAGS: u32 = 3;
/// MPLS labels that the parser looks at.
pub(crate) const LABELS: u32 = 3;
/// Neighbour discovery options that the parser looks at.
pub(crate) const ND_OPTIONS: u32 = 2;
/// IPv6 extension headers that the parser looks at.
pub(crate) const EXTENSIONS: u32 = 8;
/// Bits of an extension header's body at most.
pub(crate) const EXTENSION_BODY: u16 = 2032;

macro_rules! layouts {
    ($($layout:ident { $($field:ident: $width:literal),* $(; $rest:ident: $max:expr)? })*) => {$(
        pub(crate) mod $layout {
            #![allow(dead_code, non_upper_case_globals, reason = "numbers of all fields of a header, named as there")]
            #[allow(clippy::upper_case_acronyms, reason = "constants have the names")]
            #[repr(u16)]
            enum Order { $($field),* }
            $(pub(crate) const $field: u16 = Order::$field as u16;)*
            pub(super) fn fields() -> Vec<(&'static str, super::FieldType)> {
                let mut fields = vec![$((stringify!($field), super::FieldType::Scalar(super::Type::Bit($width)))),*];
                $(fields.push((stringify!($rest), super::FieldType::Varbit($max)));)?
                fields.shrink_to_fit();
                fields
            }
        }
    )*};
}

layouts! {
    eth { DST: 48, SRC: 48, TYPE: 16 }
    vlan { PCP: 3, DEI: 1, VID: 12, TYPE: 16 }
    pbb { PCP: 3, DEI: 1, UCA: 1, RESERVED: 3, ISID: 24, DST: 48, SRC: 48, TYPE: 16 }
    snap { LLC: 48, TYPE: 16 }
    mpls { LABEL: 20, TC: 3, BOS: 1, TTL: 8 }
    arp { HARDWARE: 16, PROTOCOL: 16, LENGTHS: 16, OP: 16, SHA: 48, SPA: 32, THA: 48, TPA: 32 }
    ipv4 {
        VERSION: 4, IHL: 4, DSCP: 6, ECN: 2, LENGTH: 16, ID: 16, FLAGS: 3, OFFSET: 13, TTL: 8, PROTOCOL: 8,
        CHECKSUM: 16, SRC: 32, DST: 32; OPTIONS: 320
    }
    ipv6 { VERSION: 4, DSCP: 6, ECN: 2, LABEL: 20, LENGTH: 16, NEXT: 8, TTL: 8, SRC: 128, DST: 128 }
    ext { NEXT: 8, LENGTH: 8; BODY: super::EXTENSION_BODY }
    tcp { SRC: 16, DST: 16, SEQ: 32, ACK: 32, OFFSET: 4, FLAGS: 12, WINDOW: 16, CHECKSUM: 16, URGENT: 16 }
    udp { SRC: 16, DST: 16, LENGTH: 16, CHECKSUM: 16 }
    sctp { SRC: 16, DST: 16, TAG: 32, CHECKSUM: 32 }
    icmp { TYPE: 8, CODE: 8, CHECKSUM: 16 }
    nd { RESERVED: 32, TARGET: 128 }
    option { TYPE: 8, LENGTH: 8, ADDRESS: 48 }
}

impl Headers {
    /// Declares the headers.
    pub(super) fn declare(p: &mut Program) -> Self {
        let eth_t = p.add_header_type("eth_t", &eth::fields());
        let vlan_t = p.add_header_type("vlan_t", &vlan::fields());
        let pbb_t = p.add_header_type("pbb_t", &pbb::fields());
        let snap_t = p.add_header_type("snap_t", &snap::fields());
        let mpls_t = p.add_header_type("mpls_t", &mpls::fields());
        let arp_t = p.add_header_type("arp_t", &arp::fields());
        let ipv4_t = p.add_header_type("ipv4_t", &ipv4::fields());
        let ipv6_t = p.add_header_type("ipv6_t", &ipv6::fields());
        let ext_t = p.add_header_type("ext_t", &ext::fields());
        let tcp_t = p.add_header_type("tcp_t", &tcp::fields());
        let udp_t = p.add_header_type("udp_t", &udp::fields());
        let sctp_t = p.add_header_type("sctp_t", &sctp::fields());
        let icmp_t = p.add_header_type("icmp_t", &icmp::fields());
        let nd_t = p.add_header_type("nd_t", &nd::fields());
        let option_t = p.add_header_type("option_t", &option::fields());
        let eth = p.add_header("eth", eth_t);
        let pushed = p.add_header("pushed", pbb_t);
        let vlan = p.add_stack("vlan", vlan_t, TAGS);
        let pbb = p.add_header("pbb", pbb_t);
        let snap = p.add_header("snap", snap_t);
        let mpls = p.add_stack("mpls", mpls_t, LABELS);
        let arp = p.add_header("arp", arp_t);
        let ipv4 = p.add_header("ipv4", ipv4_t);
        let ipv6 = p.add_header("ipv6", ipv6_t);
        let ext = p.add_stack("ext", ext_t, EXTENSIONS);
        let tcp = p.add_header("tcp", tcp_t);
        let udp = p.add_header("udp", udp_t);
        let sctp = p.add_header("sctp", sctp_t);
        let icmp = p.add_header("icmp", icmp_t);
        let icmpv6 = p.add_header("icmpv6", icmp_t);
        let nd = p.add_header("nd", nd_t);
        let options = p.add_stack("options", option_t, ND_OPTIONS);
        let first = |stack: StackId| p.stacks.get(stack.index()).map_or(HeaderId(0), |stack| stack.first);
        let (tag, label, option) = (first(vlan), first(mpls), first(options));
        let option = [option, HeaderId(option.0 + 1)];
        Headers {
            eth,
            pushed,
            vlan,
            tag,
            pbb,
            snap,
            mpls,
            label,
            arp,
            ipv4,
            ipv6,
            ext,
            tcp,
            udp,
            sctp,
            icmp,
            icmpv6,
            nd,
            options,
            option,
        }
    }

    /// The deparser's statements.
    pub(super) fn emit(&self) -> Vec<Stmt> {
        let one = |id| EmitRef::Header(HeaderRef::Header(id));
        let order = [
            one(self.eth),
            one(self.pushed),
            EmitRef::Stack(self.vlan),
            one(self.pbb),
            one(self.snap),
            EmitRef::Stack(self.mpls),
            one(self.arp),
            one(self.ipv4),
            one(self.ipv6),
            EmitRef::Stack(self.ext),
            one(self.tcp),
            one(self.udp),
            one(self.sctp),
            one(self.icmp),
            one(self.icmpv6),
            one(self.nd),
            EmitRef::Stack(self.options),
        ];
        order.into_iter().map(Stmt::Emit).collect()
    }
}

//! The fields of a packet that text describes.

/// EtherTypes.
pub(super) const IPV4: u16 = 0x0800;
pub(super) const ARP: u16 = 0x0806;
pub(super) const RARP: u16 = 0x8035;
pub(super) const IPV6: u16 = 0x86dd;
pub(super) const MPLS: [u16; 2] = [0x8847, 0x8848];
pub(super) const VLAN: [u16; 2] = [0x8100, 0x88a8];

/// Protocols over IP.
pub(super) const ICMP: u8 = 1;
pub(super) const IGMP: u8 = 2;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMPV6: u8 = 58;
pub(super) const SCTP: u8 = 132;

/// A fragment of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fragment {
    #[default]
    No,
    First,
    Later,
}

/// The fields of a packet; zeros unless given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Flow {
    /// Number of the port where the packet arrives; its meaning is the syntax's.
    pub(crate) in_port: Option<u32>,
    pub(crate) eth_src: [u8; 6],
    pub(crate) eth_dst: [u8; 6],
    /// Outermost first: type and tag.
    pub(crate) vlans: Vec<(u16, u16)>,
    /// The type behind all tags.
    pub(crate) eth_type: u16,
    /// Outermost first.
    pub(crate) mpls: Vec<u32>,
    pub(crate) ipv4_src: [u8; 4],
    pub(crate) ipv4_dst: [u8; 4],
    pub(crate) ipv6_src: [u8; 16],
    pub(crate) ipv6_dst: [u8; 16],
    pub(crate) ipv6_label: u32,
    pub(crate) proto: u8,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) fragment: Fragment,
    /// Ports, or type and code.
    pub(crate) tp_src: u16,
    pub(crate) tp_dst: u16,
    pub(crate) tcp_flags: u16,
    pub(crate) arp_op: u16,
    pub(crate) arp_spa: [u8; 4],
    pub(crate) arp_tpa: [u8; 4],
    pub(crate) arp_sha: [u8; 6],
    pub(crate) arp_tha: [u8; 6],
    pub(crate) nd_target: [u8; 16],
    pub(crate) nd_sll: [u8; 6],
    pub(crate) nd_tll: [u8; 6],
}

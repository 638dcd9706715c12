//! The match of version 1.0: twelve fields and a set of wildcards.

use crate::field::FieldId;
use crate::oxm::Oxm;
use crate::version::{Mac, PortNo, Version};
use crate::wire::{Coder, Record, Step};

bitflags::bitflags! {
    /// Fields that are not matched, and the number of address bits that are not.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct Wildcards10: u32 {
        /// Ingress port.
        const IN_PORT = 1;
        /// VLAN id.
        const DL_VLAN = 1 << 1;
        /// Ethernet source.
        const DL_SRC = 1 << 2;
        /// Ethernet destination.
        const DL_DST = 1 << 3;
        /// Ethernet type.
        const DL_TYPE = 1 << 4;
        /// IP protocol, or ARP operation.
        const NW_PROTO = 1 << 5;
        /// Source port, or ICMP type.
        const TP_SRC = 1 << 6;
        /// Destination port, or ICMP code.
        const TP_DST = 1 << 7;
        /// Number of low bits of the IP source that are not matched; 32 and more: all.
        const NW_SRC_BITS = 0x3f << 8;
        /// Number of low bits of the IP destination that are not matched; 32 and more: all.
        const NW_DST_BITS = 0x3f << 14;
        /// VLAN priority.
        const DL_VLAN_PCP = 1 << 20;
        /// DSCP.
        const NW_TOS = 1 << 21;
    }
}

impl Wildcards10 {
    /// Nothing is matched, as Open vSwitch writes it: 32 wildcarded address bits.
    pub const NOTHING: Wildcards10 = Wildcards10::from_bits_retain(0x0038_20ff);

    fn netmask(self, shift: u32) -> u32 {
        let bits = self.bits() >> shift & 0x3f;
        u32::MAX.checked_shl(bits).unwrap_or(0)
    }
    /// Mask of the IP source.
    pub fn source_mask(self) -> u32 {
        self.netmask(8)
    }
    /// Mask of the IP destination.
    pub fn destination_mask(self) -> u32 {
        self.netmask(14)
    }
}

/// A match in version 1.0.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Match10 {
    /// What is not matched.
    pub wildcards: Wildcards10,
    /// Ingress port.
    pub in_port: PortNo,
    /// Ethernet source.
    pub dl_src: Mac,
    /// Ethernet destination.
    pub dl_dst: Mac,
    /// VLAN id; 0xffff: no VLAN.
    pub dl_vlan: u16,
    /// VLAN priority.
    pub dl_vlan_pcp: u8,
    /// Ethernet type.
    pub dl_type: u16,
    /// DSCP in the upper 6 bits.
    pub nw_tos: u8,
    /// IP protocol, or low 8 bits of the ARP operation.
    pub nw_proto: u8,
    /// IPv4 source, or ARP sender.
    pub nw_src: u32,
    /// IPv4 destination, or ARP target.
    pub nw_dst: u32,
    /// Source port, or ICMP type.
    pub tp_src: u16,
    /// Destination port, or ICMP code.
    pub tp_dst: u16,
}

/// VLAN id that stands for packets without a tag.
const NO_VLAN: u16 = 0xffff;
/// Bit of the tag control information that says that there is a tag.
const TAGGED: u16 = 0x1000;

impl Default for Match10 {
    fn default() -> Self {
        Match10 {
            wildcards: Wildcards10::NOTHING,
            in_port: PortNo(0),
            dl_src: Mac::default(),
            dl_dst: Mac::default(),
            dl_vlan: 0,
            dl_vlan_pcp: 0,
            dl_type: 0,
            nw_tos: 0,
            nw_proto: 0,
            nw_src: 0,
            nw_dst: 0,
            tp_src: 0,
            tp_dst: 0,
        }
    }
}

impl Record for Match10 {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.flags32(&mut self.wildcards)?;
        c.port16(&mut self.in_port)?;
        c.bytes(&mut self.dl_src.0)?;
        c.bytes(&mut self.dl_dst.0)?;
        c.u16(&mut self.dl_vlan)?;
        c.u8(&mut self.dl_vlan_pcp)?;
        c.pad(1)?;
        c.u16(&mut self.dl_type)?;
        c.u8(&mut self.nw_tos)?;
        c.u8(&mut self.nw_proto)?;
        c.pad(2)?;
        c.u32(&mut self.nw_src)?;
        c.u32(&mut self.nw_dst)?;
        c.u16(&mut self.tp_src)?;
        c.u16(&mut self.tp_dst)
    }
}

impl Match10 {
    /// The match as NXM fields. Fields of protocols that are not matched are left out.
    pub fn to_fields(&self) -> Vec<Oxm> {
        let mut fields = Vec::new();
        let data_link = [
            (Wildcards10::IN_PORT, FieldId::InPort, u128::from(self.in_port.0 & 0xffff)),
            (Wildcards10::DL_DST, FieldId::EthDst, mac(self.dl_dst)),
            (Wildcards10::DL_SRC, FieldId::EthSrc, mac(self.dl_src)),
            (Wildcards10::DL_TYPE, FieldId::EthType, self.dl_type.into()),
        ];
        for (wildcard, field, value) in data_link {
            if !self.wildcards.contains(wildcard) {
                fields.push(Oxm::number(field, Version::V1_0, value));
            }
        }
        let (tci, mask) = self.vlan();
        push_masked(&mut fields, FieldId::VlanTci, tci.into(), mask.into(), 16);
        if !self.wildcards.contains(Wildcards10::DL_TYPE) {
            self.network_fields(&mut fields);
        }
        fields
    }

    /// Tag control information and its mask.
    fn vlan(&self) -> (u16, u16) {
        let vid = !self.wildcards.contains(Wildcards10::DL_VLAN);
        let pcp = !self.wildcards.contains(Wildcards10::DL_VLAN_PCP);
        if vid && self.dl_vlan == NO_VLAN {
            return (0, 0xffff);
        }
        let bits = |matched, bits: u16| if matched { bits } else { 0 };
        let mask = bits(vid || pcp, TAGGED) | bits(vid, 0x0fff) | bits(pcp, 0xe000);
        let tci = TAGGED | self.dl_vlan & 0x0fff | u16::from(self.dl_vlan_pcp & 7) << 13;
        (tci & mask, mask)
    }

    fn network_fields(&self, fields: &mut Vec<Oxm>) {
        let has = |wildcard| !self.wildcards.contains(wildcard);
        let exact = |fields: &mut Vec<Oxm>, field, value: u128| {
            fields.push(Oxm::number(field, Version::V1_0, value));
        };
        let (src_mask, dst_mask) = (self.wildcards.source_mask(), self.wildcards.destination_mask());
        let address = |fields: &mut Vec<Oxm>, field, value: u32, mask: u32| {
            push_masked(fields, field, (value & mask).into(), mask.into(), 32);
        };
        match self.dl_type {
            0x0806 | 0x8035 => {
                if has(Wildcards10::NW_PROTO) {
                    exact(fields, FieldId::ArpOp, self.nw_proto.into());
                }
                address(fields, FieldId::ArpSpa, self.nw_src, src_mask);
                address(fields, FieldId::ArpTpa, self.nw_dst, dst_mask);
            }
            0x0800 | 0x86dd => {
                if self.dl_type == 0x0800 {
                    address(fields, FieldId::IpSrc, self.nw_src, src_mask);
                    address(fields, FieldId::IpDst, self.nw_dst, dst_mask);
                }
                if has(Wildcards10::NW_TOS) {
                    exact(fields, FieldId::NwTos, (self.nw_tos & 0xfc).into());
                }
                if has(Wildcards10::NW_PROTO) {
                    exact(fields, FieldId::NwProto, self.nw_proto.into());
                    self.transport_fields(fields);
                }
            }
            _ => {}
        }
    }

    fn transport_fields(&self, fields: &mut Vec<Oxm>) {
        let (source, destination, bits) = match (self.nw_proto, self.dl_type) {
            (6, _) => (FieldId::TcpSrc, FieldId::TcpDst, 0xffff),
            (17, _) => (FieldId::UdpSrc, FieldId::UdpDst, 0xffff),
            (132, _) => (FieldId::SctpSrc, FieldId::SctpDst, 0xffff),
            (1, 0x0800) => (FieldId::IcmpType, FieldId::IcmpCode, 0xff),
            (58, 0x86dd) => (FieldId::Icmpv6Type, FieldId::Icmpv6Code, 0xff),
            _ => return,
        };
        if !self.wildcards.contains(Wildcards10::TP_SRC) {
            fields.push(Oxm::number(source, Version::V1_0, (self.tp_src & bits).into()));
        }
        if !self.wildcards.contains(Wildcards10::TP_DST) {
            fields.push(Oxm::number(destination, Version::V1_0, (self.tp_dst & bits).into()));
        }
    }

    /// The nearest match in version 1.0. What it cannot express is left out, so it may match more packets.
    pub fn from_fields(fields: &[Oxm]) -> Self {
        let mut fixed = Match10::default();
        for oxm in fields {
            if let Some(field) = oxm.field() {
                fixed.set(field.id, oxm);
            }
        }
        fixed
    }

    fn set(&mut self, id: FieldId, oxm: &Oxm) {
        let (value, mask) = (oxm.value_number(), oxm.mask_number());
        if mask == 0 {
            return;
        }
        let full = |bits: u32| mask & (u128::MAX >> (128 - bits)) == u128::MAX >> (128 - bits);
        let matched = match id {
            FieldId::InPort => {
                self.in_port = PortNo::from_16_bits(value as u16);
                Wildcards10::IN_PORT
            }
            FieldId::InPortOxm => {
                self.in_port = PortNo(value as u32);
                Wildcards10::IN_PORT
            }
            FieldId::EthSrc if full(48) => {
                self.dl_src = unmac(value);
                Wildcards10::DL_SRC
            }
            FieldId::EthDst if full(48) => {
                self.dl_dst = unmac(value);
                Wildcards10::DL_DST
            }
            FieldId::EthType => {
                self.dl_type = value as u16;
                Wildcards10::DL_TYPE
            }
            FieldId::VlanTci | FieldId::VlanVid => return self.set_vlan(value as u16, mask as u16),
            FieldId::VlanPcp => {
                self.dl_vlan_pcp = value as u8;
                Wildcards10::DL_VLAN_PCP
            }
            FieldId::NwTos => {
                self.nw_tos = value as u8;
                Wildcards10::NW_TOS
            }
            FieldId::IpDscp => {
                self.nw_tos = (value as u8) << 2;
                Wildcards10::NW_TOS
            }
            FieldId::NwProto | FieldId::ArpOp => {
                self.nw_proto = value as u8;
                Wildcards10::NW_PROTO
            }
            FieldId::IpSrc | FieldId::ArpSpa => {
                self.nw_src = value as u32;
                return self.set_netmask(8, mask as u32);
            }
            FieldId::IpDst | FieldId::ArpTpa => {
                self.nw_dst = value as u32;
                return self.set_netmask(14, mask as u32);
            }
            FieldId::TcpSrc | FieldId::UdpSrc | FieldId::SctpSrc if full(16) => {
                self.tp_src = value as u16;
                Wildcards10::TP_SRC
            }
            FieldId::TcpDst | FieldId::UdpDst | FieldId::SctpDst if full(16) => {
                self.tp_dst = value as u16;
                Wildcards10::TP_DST
            }
            FieldId::IcmpType | FieldId::Icmpv6Type => {
                self.tp_src = value as u16;
                Wildcards10::TP_SRC
            }
            FieldId::IcmpCode | FieldId::Icmpv6Code => {
                self.tp_dst = value as u16;
                Wildcards10::TP_DST
            }
            _ => return,
        };
        self.wildcards.remove(matched);
    }

    fn set_vlan(&mut self, tci: u16, mask: u16) {
        if mask & TAGGED != 0 && tci & TAGGED == 0 {
            self.dl_vlan = NO_VLAN;
            self.wildcards.remove(Wildcards10::DL_VLAN | Wildcards10::DL_VLAN_PCP);
            return;
        }
        if mask & 0x0fff == 0x0fff {
            self.dl_vlan = tci & 0x0fff;
            self.wildcards.remove(Wildcards10::DL_VLAN);
        }
        if mask & 0xe000 == 0xe000 {
            self.dl_vlan_pcp = (tci >> 13) as u8;
            self.wildcards.remove(Wildcards10::DL_VLAN_PCP);
        }
    }

    fn set_netmask(&mut self, shift: u32, mask: u32) {
        // A mask that is no prefix is widened to one.
        let bits = mask.leading_ones();
        let wild = 32 - bits;
        let all = Wildcards10::from_bits_retain(0x3f << shift);
        self.wildcards.remove(all);
        self.wildcards.insert(Wildcards10::from_bits_retain(wild << shift));
    }
}

pub(super) fn mac(address: Mac) -> u128 {
    address.0.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn unmac(number: u128) -> Mac {
    let [.., a, b, c, d, e, f] = number.to_be_bytes();
    Mac([a, b, c, d, e, f])
}

/// Adds a pattern of `bits` bits, unless nothing of it matters.
pub(super) fn push_masked(fields: &mut Vec<Oxm>, field: FieldId, value: u128, mask: u128, bits: u32) {
    let value = Oxm::number(field, Version::V1_0, value);
    match mask {
        0 => {}
        _ if mask == u128::MAX >> (128 - bits) => fields.push(value),
        _ => {
            let mask = Oxm::number(field, Version::V1_0, mask).value;
            fields.push(Oxm { mask: Some(mask), ..value });
        }
    }
}

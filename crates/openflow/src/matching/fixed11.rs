//! The match of version 1.1: a fixed structure with masks for addresses and metadata.

use super::fixed10::{mac, push_masked};
use crate::error::ErrorCode;
use crate::field::FieldId;
use crate::oxm::Oxm;
use crate::version::{Mac, PortNo, Version};
use crate::wire::{Coder, Record, Step};

bitflags::bitflags! {
    /// Fields that are not matched.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct Wildcards11: u32 {
        /// Ingress port.
        const IN_PORT = 1;
        /// VLAN id.
        const DL_VLAN = 1 << 1;
        /// VLAN priority.
        const DL_VLAN_PCP = 1 << 2;
        /// Ethernet type.
        const DL_TYPE = 1 << 3;
        /// DSCP.
        const NW_TOS = 1 << 4;
        /// IP protocol, or ARP operation.
        const NW_PROTO = 1 << 5;
        /// Source port, or ICMP type.
        const TP_SRC = 1 << 6;
        /// Destination port, or ICMP code.
        const TP_DST = 1 << 7;
        /// MPLS label.
        const MPLS_LABEL = 1 << 8;
        /// MPLS traffic class.
        const MPLS_TC = 1 << 9;
    }
}

/// A match in version 1.1. Set bits of a mask are *not* matched.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Match11 {
    /// Ingress port.
    pub in_port: PortNo,
    /// What is not matched.
    pub wildcards: Wildcards11,
    /// Ethernet source.
    pub dl_src: Mac,
    /// Mask of the Ethernet source.
    pub dl_src_mask: Mac,
    /// Ethernet destination.
    pub dl_dst: Mac,
    /// Mask of the Ethernet destination.
    pub dl_dst_mask: Mac,
    /// VLAN id; 0xfffe: any, 0xffff: none.
    pub dl_vlan: u16,
    /// VLAN priority.
    pub dl_vlan_pcp: u8,
    /// Ethernet type.
    pub dl_type: u16,
    /// DSCP in the upper 6 bits.
    pub nw_tos: u8,
    /// IP protocol, or ARP operation.
    pub nw_proto: u8,
    /// IPv4 source, or ARP sender.
    pub nw_src: u32,
    /// Mask of the source.
    pub nw_src_mask: u32,
    /// IPv4 destination, or ARP target.
    pub nw_dst: u32,
    /// Mask of the destination.
    pub nw_dst_mask: u32,
    /// Source port, or ICMP type.
    pub tp_src: u16,
    /// Destination port, or ICMP code.
    pub tp_dst: u16,
    /// MPLS label.
    pub mpls_label: u32,
    /// MPLS traffic class.
    pub mpls_tc: u8,
    /// Metadata.
    pub metadata: u64,
    /// Mask of the metadata.
    pub metadata_mask: u64,
}

impl Default for Match11 {
    fn default() -> Self {
        Match11 {
            in_port: PortNo(0),
            wildcards: Wildcards11::all(),
            dl_src: Mac::default(),
            dl_src_mask: Mac([0xff; 6]),
            dl_dst: Mac::default(),
            dl_dst_mask: Mac([0xff; 6]),
            dl_vlan: 0,
            dl_vlan_pcp: 0,
            dl_type: 0,
            nw_tos: 0,
            nw_proto: 0,
            nw_src: 0,
            nw_src_mask: u32::MAX,
            nw_dst: 0,
            nw_dst_mask: u32::MAX,
            tp_src: 0,
            tp_dst: 0,
            mpls_label: 0,
            mpls_tc: 0,
            metadata: 0,
            metadata_mask: u64::MAX,
        }
    }
}

impl Record for Match11 {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.port(&mut self.in_port)?;
        c.flags32(&mut self.wildcards)?;
        c.bytes(&mut self.dl_src.0)?;
        c.bytes(&mut self.dl_src_mask.0)?;
        c.bytes(&mut self.dl_dst.0)?;
        c.bytes(&mut self.dl_dst_mask.0)?;
        c.u16(&mut self.dl_vlan)?;
        c.u8(&mut self.dl_vlan_pcp)?;
        c.pad(1)?;
        c.u16(&mut self.dl_type)?;
        c.u8(&mut self.nw_tos)?;
        c.u8(&mut self.nw_proto)?;
        c.u32(&mut self.nw_src)?;
        c.u32(&mut self.nw_src_mask)?;
        c.u32(&mut self.nw_dst)?;
        c.u32(&mut self.nw_dst_mask)?;
        c.u16(&mut self.tp_src)?;
        c.u16(&mut self.tp_dst)?;
        c.u32(&mut self.mpls_label)?;
        c.u8(&mut self.mpls_tc)?;
        c.pad(3)?;
        c.u64(&mut self.metadata)?;
        c.u64(&mut self.metadata_mask)
    }
}

impl Match11 {
    /// The match as fields. Fields of protocols that are not matched are left out.
    ///
    /// # Errors
    /// `OFPBMC_BAD_VALUE` and `OFPBMC_BAD_FIELD` for values outside a field's range.
    pub fn to_fields(&self) -> Result<Vec<Oxm>, ErrorCode> {
        let has = |wildcard| !self.wildcards.contains(wildcard);
        let mut fields = Vec::new();
        if has(Wildcards11::IN_PORT) {
            let port = self.in_port.to_16_bits().ok_or(ErrorCode::BmcBadValue)?;
            fields.push(Oxm::number(FieldId::InPort, Version::V1_0, port.into()));
        }
        let mut masked = |field, value: u128, ignored: u128, bits: u32| {
            let mask = !ignored & (u128::MAX >> (128 - bits));
            push_masked(&mut fields, field, value & mask, mask, bits);
        };
        masked(FieldId::EthDst, mac(self.dl_dst), mac(self.dl_dst_mask), 48);
        masked(FieldId::EthSrc, mac(self.dl_src), mac(self.dl_src_mask), 48);
        masked(FieldId::Metadata, self.metadata.into(), self.metadata_mask.into(), 64);
        if has(Wildcards11::DL_VLAN) {
            let (mut tci, mut mask): (u16, u16) = match self.dl_vlan {
                0xffff => (0, 0xffff),
                0xfffe => (0x1000, 0x1000),
                vid @ 0..=0x0fff => (0x1000 | vid, 0x1fff),
                _ => return Err(ErrorCode::BmcBadValue),
            };
            if has(Wildcards11::DL_VLAN_PCP) && tci != 0 {
                if self.dl_vlan_pcp > 7 {
                    return Err(ErrorCode::BmcBadValue);
                }
                tci |= u16::from(self.dl_vlan_pcp) << 13;
                mask |= 0xe000;
            }
            push_masked(&mut fields, FieldId::VlanTci, tci.into(), mask.into(), 16);
        }
        if has(Wildcards11::DL_TYPE) {
            fields.push(Oxm::number(FieldId::EthType, Version::V1_0, self.dl_type.into()));
            self.network_fields(&mut fields)?;
        }
        Ok(fields)
    }

    fn network_fields(&self, fields: &mut Vec<Oxm>) -> Result<(), ErrorCode> {
        let has = |wildcard| !self.wildcards.contains(wildcard);
        let exact = |fields: &mut Vec<Oxm>, field, value: u128| {
            fields.push(Oxm::number(field, Version::V1_0, value));
        };
        let address = |fields: &mut Vec<Oxm>, field, value: u32, ignored: u32| {
            push_masked(fields, field, (value & !ignored).into(), (!ignored).into(), 32);
        };
        match self.dl_type {
            0x0806 | 0x8035 => {
                if has(Wildcards11::NW_PROTO) {
                    exact(fields, FieldId::ArpOp, self.nw_proto.into());
                }
                address(fields, FieldId::ArpSpa, self.nw_src, self.nw_src_mask);
                address(fields, FieldId::ArpTpa, self.nw_dst, self.nw_dst_mask);
            }
            0x0800 => {
                address(fields, FieldId::IpSrc, self.nw_src, self.nw_src_mask);
                address(fields, FieldId::IpDst, self.nw_dst, self.nw_dst_mask);
                if has(Wildcards11::NW_TOS) {
                    if self.nw_tos & 3 != 0 {
                        return Err(ErrorCode::BmcBadValue);
                    }
                    exact(fields, FieldId::NwTos, self.nw_tos.into());
                }
                if has(Wildcards11::NW_PROTO) {
                    exact(fields, FieldId::NwProto, self.nw_proto.into());
                    self.transport_fields(fields)?;
                }
            }
            0x8847 | 0x8848 => {
                if has(Wildcards11::MPLS_LABEL) {
                    exact(fields, FieldId::MplsLabel, self.mpls_label.into());
                }
                if has(Wildcards11::MPLS_TC) {
                    exact(fields, FieldId::MplsTc, self.mpls_tc.into());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn transport_fields(&self, fields: &mut Vec<Oxm>) -> Result<(), ErrorCode> {
        let (source, destination) = match self.nw_proto {
            1 => (FieldId::IcmpType, FieldId::IcmpCode),
            6 => (FieldId::TcpSrc, FieldId::TcpDst),
            17 => (FieldId::UdpSrc, FieldId::UdpDst),
            132 => (FieldId::SctpSrc, FieldId::SctpDst),
            _ => return Ok(()),
        };
        let sides =
            [(Wildcards11::TP_SRC, source, self.tp_src), (Wildcards11::TP_DST, destination, self.tp_dst)];
        for (wildcard, field, value) in sides {
            if self.wildcards.contains(wildcard) {
                continue;
            }
            if self.nw_proto == 1 && value > 0xff {
                return Err(ErrorCode::BmcBadField);
            }
            fields.push(Oxm::number(field, Version::V1_0, value.into()));
        }
        Ok(())
    }
}

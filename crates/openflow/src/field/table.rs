//! The table of all match fields.
//!
//! A row: name, aliases, bits and bytes, notation, masks, prerequisite, whether actions may set it, and its numbers and
//! names in the classes of OXM and NXM, each with the first version of the standard that has it.

use super::{Access, Field, Masks, Notation, Number, Prerequisite};
use crate::oxm::OxmId;
use crate::version::{Version, vendor};

const fn extension(class: u16, experimenter: u32, field: u8, name: &'static str) -> Number {
    Number { id: OxmId { class, experimenter, field }, name, since: Version::V1_0 }
}
const fn nxm0(field: u8, name: &'static str) -> Number {
    extension(0x0000, 0, field, name)
}
const fn nxm1(field: u8, name: &'static str) -> Number {
    extension(0x0001, 0, field, name)
}
const fn ericsson(field: u8, name: &'static str) -> Number {
    extension(0x1000, 0, field, name)
}
const fn nsh(field: u8, name: &'static str) -> Number {
    extension(OxmId::EXPERIMENTER, vendor::NSH, field, name)
}
const fn nicira(field: u8, name: &'static str) -> Number {
    extension(OxmId::EXPERIMENTER, vendor::NICIRA, field, name)
}
const fn oxm(field: u8, name: &'static str, since: Version) -> Number {
    Number { id: OxmId { class: OxmId::BASIC, experimenter: 0, field }, name, since }
}
const fn packet_reg(field: u8, name: &'static str, since: Version) -> Number {
    Number { id: OxmId { class: 0x8001, experimenter: 0, field }, name, since }
}
const fn onf(field: u8, name: &'static str, since: Version) -> Number {
    Number { id: OxmId { class: OxmId::EXPERIMENTER, experimenter: vendor::ONF, field }, name, since }
}

macro_rules! fields {
    ($($id:ident $name:literal [$($alias:literal),*] $bits:literal/$bytes:literal $notation:ident $masks:ident
       $prerequisite:ident $access:ident: $($class:ident($number:literal, $class_name:literal $(, $since:ident)?)),+;)*) => {
        /// A match field.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum FieldId { $(#[doc = concat!("`", $name, "`")] $id,)* }

        /// All fields, in the order of [`FieldId`].
        pub static FIELDS: &[Field] = &[$(
            Field {
                id: FieldId::$id,
                name: $name,
                aliases: &[$($alias),*],
                bits: $bits,
                bytes: $bytes,
                notation: Notation::$notation,
                masks: Masks::$masks,
                prerequisite: Prerequisite::$prerequisite,
                access: Access::$access,
                numbers: &[$($class($number, $class_name $(, Version::$since)?)),+],
            },
        )*];
    };
}

fields! {
    DpHash "dp_hash" [] 32/4 Hex Masked None ReadOnly: nxm1(35, "NXM_NX_DP_HASH"), nicira(0, "NXOXM_ET_DP_HASH");
    RecircId "recirc_id" [] 32/4 Decimal Exact None ReadOnly: nxm1(36, "NXM_NX_RECIRC_ID");
    PacketType "packet_type" [] 32/4 PacketType Exact None ReadOnly: oxm(44, "OXM_OF_PACKET_TYPE", V1_5);
    ConjId "conj_id" [] 32/4 Decimal Exact None ReadOnly: nxm1(37, "NXM_NX_CONJ_ID");
    TunId "tun_id" ["tunnel_id"] 64/8 Hex Masked None Settable: nxm1(16, "NXM_NX_TUN_ID"), oxm(38, "OXM_OF_TUNNEL_ID", V1_3);
    TunSrc "tun_src" [] 32/4 Ipv4 Masked None Settable: nxm1(31, "NXM_NX_TUN_IPV4_SRC");
    TunDst "tun_dst" [] 32/4 Ipv4 Masked None Settable: nxm1(32, "NXM_NX_TUN_IPV4_DST");
    TunIpv6Src "tun_ipv6_src" [] 128/16 Ipv6 Masked None Settable: nxm1(109, "NXM_NX_TUN_IPV6_SRC");
    TunIpv6Dst "tun_ipv6_dst" [] 128/16 Ipv6 Masked None Settable: nxm1(110, "NXM_NX_TUN_IPV6_DST");
    TunFlags "tun_flags" [] 1/2 TunnelFlags Masked None Settable: nxm1(104, "NXM_NX_TUN_FLAGS");
    TunGbpId "tun_gbp_id" [] 16/2 Decimal Masked None Settable: nxm1(38, "NXM_NX_TUN_GBP_ID");
    TunGbpFlags "tun_gbp_flags" [] 8/1 Hex Masked None Settable: nxm1(39, "NXM_NX_TUN_GBP_FLAGS");
    TunErspanIdx "tun_erspan_idx" [] 20/4 Hex Masked None Settable: nicira(11, "NXOXM_ET_ERSPAN_IDX");
    TunErspanVer "tun_erspan_ver" [] 4/1 Decimal Masked None Settable: nicira(12, "NXOXM_ET_ERSPAN_VER");
    TunErspanDir "tun_erspan_dir" [] 1/1 Decimal Masked None Settable: nicira(13, "NXOXM_ET_ERSPAN_DIR");
    TunErspanHwid "tun_erspan_hwid" [] 6/1 Hex Masked None Settable: nicira(14, "NXOXM_ET_ERSPAN_HWID");
    TunGtpuFlags "tun_gtpu_flags" [] 8/1 Hex Masked None ReadOnly: nicira(15, "NXOXM_ET_GTPU_FLAGS");
    TunGtpuMsgtype "tun_gtpu_msgtype" [] 8/1 Decimal Masked None ReadOnly: nicira(16, "NXOXM_ET_GTPU_MSGTYPE");
    TunMetadata0 "tun_metadata0" [] 992/124 Hex Masked None Settable: nxm1(40, "NXM_NX_TUN_METADATA0");
    TunMetadata1 "tun_metadata1" [] 992/124 Hex Masked None Settable: nxm1(41, "NXM_NX_TUN_METADATA1");
    TunMetadata2 "tun_metadata2" [] 992/124 Hex Masked None Settable: nxm1(42, "NXM_NX_TUN_METADATA2");
    TunMetadata3 "tun_metadata3" [] 992/124 Hex Masked None Settable: nxm1(43, "NXM_NX_TUN_METADATA3");
    TunMetadata4 "tun_metadata4" [] 992/124 Hex Masked None Settable: nxm1(44, "NXM_NX_TUN_METADATA4");
    TunMetadata5 "tun_metadata5" [] 992/124 Hex Masked None Settable: nxm1(45, "NXM_NX_TUN_METADATA5");
    TunMetadata6 "tun_metadata6" [] 992/124 Hex Masked None Settable: nxm1(46, "NXM_NX_TUN_METADATA6");
    TunMetadata7 "tun_metadata7" [] 992/124 Hex Masked None Settable: nxm1(47, "NXM_NX_TUN_METADATA7");
    TunMetadata8 "tun_metadata8" [] 992/124 Hex Masked None Settable: nxm1(48, "NXM_NX_TUN_METADATA8");
    TunMetadata9 "tun_metadata9" [] 992/124 Hex Masked None Settable: nxm1(49, "NXM_NX_TUN_METADATA9");
    TunMetadata10 "tun_metadata10" [] 992/124 Hex Masked None Settable: nxm1(50, "NXM_NX_TUN_METADATA10");
    TunMetadata11 "tun_metadata11" [] 992/124 Hex Masked None Settable: nxm1(51, "NXM_NX_TUN_METADATA11");
    TunMetadata12 "tun_metadata12" [] 992/124 Hex Masked None Settable: nxm1(52, "NXM_NX_TUN_METADATA12");
    TunMetadata13 "tun_metadata13" [] 992/124 Hex Masked None Settable: nxm1(53, "NXM_NX_TUN_METADATA13");
    TunMetadata14 "tun_metadata14" [] 992/124 Hex Masked None Settable: nxm1(54, "NXM_NX_TUN_METADATA14");
    TunMetadata15 "tun_metadata15" [] 992/124 Hex Masked None Settable: nxm1(55, "NXM_NX_TUN_METADATA15");
    TunMetadata16 "tun_metadata16" [] 992/124 Hex Masked None Settable: nxm1(56, "NXM_NX_TUN_METADATA16");
    TunMetadata17 "tun_metadata17" [] 992/124 Hex Masked None Settable: nxm1(57, "NXM_NX_TUN_METADATA17");
    TunMetadata18 "tun_metadata18" [] 992/124 Hex Masked None Settable: nxm1(58, "NXM_NX_TUN_METADATA18");
    TunMetadata19 "tun_metadata19" [] 992/124 Hex Masked None Settable: nxm1(59, "NXM_NX_TUN_METADATA19");
    TunMetadata20 "tun_metadata20" [] 992/124 Hex Masked None Settable: nxm1(60, "NXM_NX_TUN_METADATA20");
    TunMetadata21 "tun_metadata21" [] 992/124 Hex Masked None Settable: nxm1(61, "NXM_NX_TUN_METADATA21");
    TunMetadata22 "tun_metadata22" [] 992/124 Hex Masked None Settable: nxm1(62, "NXM_NX_TUN_METADATA22");
    TunMetadata23 "tun_metadata23" [] 992/124 Hex Masked None Settable: nxm1(63, "NXM_NX_TUN_METADATA23");
    TunMetadata24 "tun_metadata24" [] 992/124 Hex Masked None Settable: nxm1(64, "NXM_NX_TUN_METADATA24");
    TunMetadata25 "tun_metadata25" [] 992/124 Hex Masked None Settable: nxm1(65, "NXM_NX_TUN_METADATA25");
    TunMetadata26 "tun_metadata26" [] 992/124 Hex Masked None Settable: nxm1(66, "NXM_NX_TUN_METADATA26");
    TunMetadata27 "tun_metadata27" [] 992/124 Hex Masked None Settable: nxm1(67, "NXM_NX_TUN_METADATA27");
    TunMetadata28 "tun_metadata28" [] 992/124 Hex Masked None Settable: nxm1(68, "NXM_NX_TUN_METADATA28");
    TunMetadata29 "tun_metadata29" [] 992/124 Hex Masked None Settable: nxm1(69, "NXM_NX_TUN_METADATA29");
    TunMetadata30 "tun_metadata30" [] 992/124 Hex Masked None Settable: nxm1(70, "NXM_NX_TUN_METADATA30");
    TunMetadata31 "tun_metadata31" [] 992/124 Hex Masked None Settable: nxm1(71, "NXM_NX_TUN_METADATA31");
    TunMetadata32 "tun_metadata32" [] 992/124 Hex Masked None Settable: nxm1(72, "NXM_NX_TUN_METADATA32");
    TunMetadata33 "tun_metadata33" [] 992/124 Hex Masked None Settable: nxm1(73, "NXM_NX_TUN_METADATA33");
    TunMetadata34 "tun_metadata34" [] 992/124 Hex Masked None Settable: nxm1(74, "NXM_NX_TUN_METADATA34");
    TunMetadata35 "tun_metadata35" [] 992/124 Hex Masked None Settable: nxm1(75, "NXM_NX_TUN_METADATA35");
    TunMetadata36 "tun_metadata36" [] 992/124 Hex Masked None Settable: nxm1(76, "NXM_NX_TUN_METADATA36");
    TunMetadata37 "tun_metadata37" [] 992/124 Hex Masked None Settable: nxm1(77, "NXM_NX_TUN_METADATA37");
    TunMetadata38 "tun_metadata38" [] 992/124 Hex Masked None Settable: nxm1(78, "NXM_NX_TUN_METADATA38");
    TunMetadata39 "tun_metadata39" [] 992/124 Hex Masked None Settable: nxm1(79, "NXM_NX_TUN_METADATA39");
    TunMetadata40 "tun_metadata40" [] 992/124 Hex Masked None Settable: nxm1(80, "NXM_NX_TUN_METADATA40");
    TunMetadata41 "tun_metadata41" [] 992/124 Hex Masked None Settable: nxm1(81, "NXM_NX_TUN_METADATA41");
    TunMetadata42 "tun_metadata42" [] 992/124 Hex Masked None Settable: nxm1(82, "NXM_NX_TUN_METADATA42");
    TunMetadata43 "tun_metadata43" [] 992/124 Hex Masked None Settable: nxm1(83, "NXM_NX_TUN_METADATA43");
    TunMetadata44 "tun_metadata44" [] 992/124 Hex Masked None Settable: nxm1(84, "NXM_NX_TUN_METADATA44");
    TunMetadata45 "tun_metadata45" [] 992/124 Hex Masked None Settable: nxm1(85, "NXM_NX_TUN_METADATA45");
    TunMetadata46 "tun_metadata46" [] 992/124 Hex Masked None Settable: nxm1(86, "NXM_NX_TUN_METADATA46");
    TunMetadata47 "tun_metadata47" [] 992/124 Hex Masked None Settable: nxm1(87, "NXM_NX_TUN_METADATA47");
    TunMetadata48 "tun_metadata48" [] 992/124 Hex Masked None Settable: nxm1(88, "NXM_NX_TUN_METADATA48");
    TunMetadata49 "tun_metadata49" [] 992/124 Hex Masked None Settable: nxm1(89, "NXM_NX_TUN_METADATA49");
    TunMetadata50 "tun_metadata50" [] 992/124 Hex Masked None Settable: nxm1(90, "NXM_NX_TUN_METADATA50");
    TunMetadata51 "tun_metadata51" [] 992/124 Hex Masked None Settable: nxm1(91, "NXM_NX_TUN_METADATA51");
    TunMetadata52 "tun_metadata52" [] 992/124 Hex Masked None Settable: nxm1(92, "NXM_NX_TUN_METADATA52");
    TunMetadata53 "tun_metadata53" [] 992/124 Hex Masked None Settable: nxm1(93, "NXM_NX_TUN_METADATA53");
    TunMetadata54 "tun_metadata54" [] 992/124 Hex Masked None Settable: nxm1(94, "NXM_NX_TUN_METADATA54");
    TunMetadata55 "tun_metadata55" [] 992/124 Hex Masked None Settable: nxm1(95, "NXM_NX_TUN_METADATA55");
    TunMetadata56 "tun_metadata56" [] 992/124 Hex Masked None Settable: nxm1(96, "NXM_NX_TUN_METADATA56");
    TunMetadata57 "tun_metadata57" [] 992/124 Hex Masked None Settable: nxm1(97, "NXM_NX_TUN_METADATA57");
    TunMetadata58 "tun_metadata58" [] 992/124 Hex Masked None Settable: nxm1(98, "NXM_NX_TUN_METADATA58");
    TunMetadata59 "tun_metadata59" [] 992/124 Hex Masked None Settable: nxm1(99, "NXM_NX_TUN_METADATA59");
    TunMetadata60 "tun_metadata60" [] 992/124 Hex Masked None Settable: nxm1(100, "NXM_NX_TUN_METADATA60");
    TunMetadata61 "tun_metadata61" [] 992/124 Hex Masked None Settable: nxm1(101, "NXM_NX_TUN_METADATA61");
    TunMetadata62 "tun_metadata62" [] 992/124 Hex Masked None Settable: nxm1(102, "NXM_NX_TUN_METADATA62");
    TunMetadata63 "tun_metadata63" [] 992/124 Hex Masked None Settable: nxm1(103, "NXM_NX_TUN_METADATA63");
    Metadata "metadata" [] 64/8 Hex Masked None Settable: oxm(2, "OXM_OF_METADATA", V1_2);
    InPort "in_port" [] 16/2 Port16 Exact None Settable: nxm0(0, "NXM_OF_IN_PORT");
    InPortOxm "in_port_oxm" [] 32/4 Port Exact None Settable: oxm(0, "OXM_OF_IN_PORT", V1_2);
    InPhyPort "in_phy_port" [] 32/4 Port Exact InPort ReadOnly: oxm(1, "OXM_OF_IN_PHY_PORT", V1_2);
    ActsetOutput "actset_output" [] 32/4 Port Exact None ReadOnly: onf(43, "ONFOXM_ET_ACTSET_OUTPUT", V1_3), oxm(43, "OXM_OF_ACTSET_OUTPUT", V1_5);
    PktMark "pkt_mark" [] 32/4 Hex Masked None Settable: nxm1(33, "NXM_NX_PKT_MARK");
    CtState "ct_state" [] 32/4 CtState Masked None ReadOnly: nxm1(105, "NXM_NX_CT_STATE");
    CtZone "ct_zone" [] 16/2 Hex Exact None ReadOnly: nxm1(106, "NXM_NX_CT_ZONE");
    CtMark "ct_mark" [] 32/4 Hex Masked None Settable: nxm1(107, "NXM_NX_CT_MARK");
    CtLabel "ct_label" [] 128/16 Hex Masked None Settable: nxm1(108, "NXM_NX_CT_LABEL");
    CtNwProto "ct_nw_proto" [] 8/1 Decimal Exact Ct ReadOnly: nxm1(119, "NXM_NX_CT_NW_PROTO");
    CtNwSrc "ct_nw_src" [] 32/4 Ipv4 Masked Ct ReadOnly: nxm1(120, "NXM_NX_CT_NW_SRC");
    CtNwDst "ct_nw_dst" [] 32/4 Ipv4 Masked Ct ReadOnly: nxm1(121, "NXM_NX_CT_NW_DST");
    CtIpv6Src "ct_ipv6_src" [] 128/16 Ipv6 Masked Ct ReadOnly: nxm1(122, "NXM_NX_CT_IPV6_SRC");
    CtIpv6Dst "ct_ipv6_dst" [] 128/16 Ipv6 Masked Ct ReadOnly: nxm1(123, "NXM_NX_CT_IPV6_DST");
    CtTpSrc "ct_tp_src" [] 16/2 Decimal Masked Ct ReadOnly: nxm1(124, "NXM_NX_CT_TP_SRC");
    CtTpDst "ct_tp_dst" [] 16/2 Decimal Masked Ct ReadOnly: nxm1(125, "NXM_NX_CT_TP_DST");
    Reg0 "reg0" [] 32/4 Hex Masked None Settable: nxm1(0, "NXM_NX_REG0");
    Reg1 "reg1" [] 32/4 Hex Masked None Settable: nxm1(1, "NXM_NX_REG1");
    Reg2 "reg2" [] 32/4 Hex Masked None Settable: nxm1(2, "NXM_NX_REG2");
    Reg3 "reg3" [] 32/4 Hex Masked None Settable: nxm1(3, "NXM_NX_REG3");
    Reg4 "reg4" [] 32/4 Hex Masked None Settable: nxm1(4, "NXM_NX_REG4");
    Reg5 "reg5" [] 32/4 Hex Masked None Settable: nxm1(5, "NXM_NX_REG5");
    Reg6 "reg6" [] 32/4 Hex Masked None Settable: nxm1(6, "NXM_NX_REG6");
    Reg7 "reg7" [] 32/4 Hex Masked None Settable: nxm1(7, "NXM_NX_REG7");
    Reg8 "reg8" [] 32/4 Hex Masked None Settable: nxm1(8, "NXM_NX_REG8");
    Reg9 "reg9" [] 32/4 Hex Masked None Settable: nxm1(9, "NXM_NX_REG9");
    Reg10 "reg10" [] 32/4 Hex Masked None Settable: nxm1(10, "NXM_NX_REG10");
    Reg11 "reg11" [] 32/4 Hex Masked None Settable: nxm1(11, "NXM_NX_REG11");
    Reg12 "reg12" [] 32/4 Hex Masked None Settable: nxm1(12, "NXM_NX_REG12");
    Reg13 "reg13" [] 32/4 Hex Masked None Settable: nxm1(13, "NXM_NX_REG13");
    Reg14 "reg14" [] 32/4 Hex Masked None Settable: nxm1(14, "NXM_NX_REG14");
    Reg15 "reg15" [] 32/4 Hex Masked None Settable: nxm1(15, "NXM_NX_REG15");
    XReg0 "xreg0" [] 64/8 Hex Masked None Settable: packet_reg(0, "OXM_OF_PKT_REG0", V1_3);
    XReg1 "xreg1" [] 64/8 Hex Masked None Settable: packet_reg(1, "OXM_OF_PKT_REG1", V1_3);
    XReg2 "xreg2" [] 64/8 Hex Masked None Settable: packet_reg(2, "OXM_OF_PKT_REG2", V1_3);
    XReg3 "xreg3" [] 64/8 Hex Masked None Settable: packet_reg(3, "OXM_OF_PKT_REG3", V1_3);
    XReg4 "xreg4" [] 64/8 Hex Masked None Settable: packet_reg(4, "OXM_OF_PKT_REG4", V1_3);
    XReg5 "xreg5" [] 64/8 Hex Masked None Settable: packet_reg(5, "OXM_OF_PKT_REG5", V1_3);
    XReg6 "xreg6" [] 64/8 Hex Masked None Settable: packet_reg(6, "OXM_OF_PKT_REG6", V1_3);
    XReg7 "xreg7" [] 64/8 Hex Masked None Settable: packet_reg(7, "OXM_OF_PKT_REG7", V1_3);
    XxReg0 "xxreg0" [] 128/16 Hex Masked None Settable: nxm1(111, "NXM_NX_XXREG0");
    XxReg1 "xxreg1" [] 128/16 Hex Masked None Settable: nxm1(112, "NXM_NX_XXREG1");
    XxReg2 "xxreg2" [] 128/16 Hex Masked None Settable: nxm1(113, "NXM_NX_XXREG2");
    XxReg3 "xxreg3" [] 128/16 Hex Masked None Settable: nxm1(114, "NXM_NX_XXREG3");
    EthSrc "eth_src" ["dl_src"] 48/6 Mac Masked None Settable: nxm0(2, "NXM_OF_ETH_SRC"), oxm(4, "OXM_OF_ETH_SRC", V1_2);
    EthDst "eth_dst" ["dl_dst"] 48/6 Mac Masked None Settable: nxm0(1, "NXM_OF_ETH_DST"), oxm(3, "OXM_OF_ETH_DST", V1_2);
    EthType "eth_type" ["dl_type"] 16/2 Hex Exact None SetField: nxm0(3, "NXM_OF_ETH_TYPE"), oxm(5, "OXM_OF_ETH_TYPE", V1_2);
    VlanTci "vlan_tci" [] 16/2 Hex Masked None Settable: nxm0(4, "NXM_OF_VLAN_TCI");
    VlanVid "vlan_vid" [] 12/2 Decimal Masked None Settable: oxm(6, "OXM_OF_VLAN_VID", V1_2);
    VlanPcp "vlan_pcp" [] 3/1 Decimal Exact VlanVid Settable: oxm(7, "OXM_OF_VLAN_PCP", V1_2);
    MplsLabel "mpls_label" [] 20/4 Decimal Exact Mpls Settable: oxm(34, "OXM_OF_MPLS_LABEL", V1_2);
    MplsTc "mpls_tc" [] 3/1 Decimal Exact Mpls Settable: oxm(35, "OXM_OF_MPLS_TC", V1_2);
    MplsBos "mpls_bos" [] 1/1 Decimal Exact Mpls SetField: oxm(36, "OXM_OF_MPLS_BOS", V1_3);
    MplsTtl "mpls_ttl" [] 8/1 Decimal Exact Mpls Settable: nxm1(30, "NXM_NX_MPLS_TTL");
    PbbIsid "pbb_isid" [] 24/3 Hex Masked Pbb Settable: oxm(37, "OXM_OF_PBB_ISID", V1_3);
    PbbUca "pbb_uca" [] 1/1 Decimal Exact Pbb Settable: oxm(41, "OXM_OF_PBB_UCA", V1_4);
    IpSrc "ip_src" ["nw_src"] 32/4 Ipv4 Masked Ipv4 Settable: nxm0(7, "NXM_OF_IP_SRC"), oxm(11, "OXM_OF_IPV4_SRC", V1_2);
    IpDst "ip_dst" ["nw_dst"] 32/4 Ipv4 Masked Ipv4 Settable: nxm0(8, "NXM_OF_IP_DST"), oxm(12, "OXM_OF_IPV4_DST", V1_2);
    Ipv6Src "ipv6_src" [] 128/16 Ipv6 Masked Ipv6 Settable: nxm1(19, "NXM_NX_IPV6_SRC"), oxm(26, "OXM_OF_IPV6_SRC", V1_2);
    Ipv6Dst "ipv6_dst" [] 128/16 Ipv6 Masked Ipv6 Settable: nxm1(20, "NXM_NX_IPV6_DST"), oxm(27, "OXM_OF_IPV6_DST", V1_2);
    Ipv6Label "ipv6_label" [] 20/4 Hex Masked Ipv6 Settable: nxm1(27, "NXM_NX_IPV6_LABEL"), oxm(28, "OXM_OF_IPV6_FLABEL", V1_2);
    Ipv6Exthdr "ipv6_exthdr" [] 9/2 Hex Masked Ipv6 ReadOnly: oxm(39, "OXM_OF_IPV6_EXTHDR", V1_3);
    NwProto "nw_proto" ["ip_proto"] 8/1 Decimal Exact Ip SetField: nxm0(6, "NXM_OF_IP_PROTO"), oxm(10, "OXM_OF_IP_PROTO", V1_2);
    NwTos "nw_tos" [] 8/1 Decimal Exact Ip Settable: nxm0(5, "NXM_OF_IP_TOS");
    IpDscp "ip_dscp" [] 6/1 Decimal Exact Ip Settable: oxm(8, "OXM_OF_IP_DSCP", V1_2);
    NwEcn "nw_ecn" ["ip_ecn"] 2/1 Decimal Exact Ip Settable: nxm1(28, "NXM_NX_IP_ECN"), oxm(9, "OXM_OF_IP_ECN", V1_2);
    NwTtl "nw_ttl" [] 8/1 Decimal Exact Ip Settable: nxm1(29, "NXM_NX_IP_TTL");
    IpFrag "ip_frag" ["nw_frag"] 2/1 Frag Masked Ip ReadOnly: nxm1(26, "NXM_NX_IP_FRAG");
    ArpOp "arp_op" [] 16/2 Decimal Exact Arp Settable: nxm0(15, "NXM_OF_ARP_OP"), oxm(21, "OXM_OF_ARP_OP", V1_2);
    ArpSpa "arp_spa" [] 32/4 Ipv4 Masked Arp Settable: nxm0(16, "NXM_OF_ARP_SPA"), oxm(22, "OXM_OF_ARP_SPA", V1_2);
    ArpTpa "arp_tpa" [] 32/4 Ipv4 Masked Arp Settable: nxm0(17, "NXM_OF_ARP_TPA"), oxm(23, "OXM_OF_ARP_TPA", V1_2);
    ArpSha "arp_sha" [] 48/6 Mac Masked Arp Settable: nxm1(17, "NXM_NX_ARP_SHA"), oxm(24, "OXM_OF_ARP_SHA", V1_2);
    ArpTha "arp_tha" [] 48/6 Mac Masked Arp Settable: nxm1(18, "NXM_NX_ARP_THA"), oxm(25, "OXM_OF_ARP_THA", V1_2);
    TcpSrc "tcp_src" ["tp_src"] 16/2 Decimal Masked Tcp Settable: nxm0(9, "NXM_OF_TCP_SRC"), oxm(13, "OXM_OF_TCP_SRC", V1_2);
    TcpDst "tcp_dst" ["tp_dst"] 16/2 Decimal Masked Tcp Settable: nxm0(10, "NXM_OF_TCP_DST"), oxm(14, "OXM_OF_TCP_DST", V1_2);
    TcpFlags "tcp_flags" [] 12/2 TcpFlags Masked Tcp ReadOnly: nxm1(34, "NXM_NX_TCP_FLAGS"), onf(42, "ONFOXM_ET_TCP_FLAGS", V1_3), oxm(42, "OXM_OF_TCP_FLAGS", V1_5);
    UdpSrc "udp_src" [] 16/2 Decimal Masked Udp Settable: nxm0(11, "NXM_OF_UDP_SRC"), oxm(15, "OXM_OF_UDP_SRC", V1_2);
    UdpDst "udp_dst" [] 16/2 Decimal Masked Udp Settable: nxm0(12, "NXM_OF_UDP_DST"), oxm(16, "OXM_OF_UDP_DST", V1_2);
    SctpSrc "sctp_src" [] 16/2 Decimal Masked Sctp Settable: oxm(17, "OXM_OF_SCTP_SRC", V1_2);
    SctpDst "sctp_dst" [] 16/2 Decimal Masked Sctp Settable: oxm(18, "OXM_OF_SCTP_DST", V1_2);
    IcmpType "icmp_type" [] 8/1 Decimal Exact Icmpv4 Settable: nxm0(13, "NXM_OF_ICMP_TYPE"), oxm(19, "OXM_OF_ICMPV4_TYPE", V1_2);
    IcmpCode "icmp_code" [] 8/1 Decimal Exact Icmpv4 Settable: nxm0(14, "NXM_OF_ICMP_CODE"), oxm(20, "OXM_OF_ICMPV4_CODE", V1_2);
    Icmpv6Type "icmpv6_type" [] 8/1 Decimal Exact Icmpv6 Settable: nxm1(21, "NXM_NX_ICMPV6_TYPE"), oxm(29, "OXM_OF_ICMPV6_TYPE", V1_2);
    Icmpv6Code "icmpv6_code" [] 8/1 Decimal Exact Icmpv6 Settable: nxm1(22, "NXM_NX_ICMPV6_CODE"), oxm(30, "OXM_OF_ICMPV6_CODE", V1_2);
    NdTarget "nd_target" [] 128/16 Ipv6 Masked Nd Settable: nxm1(23, "NXM_NX_ND_TARGET"), oxm(31, "OXM_OF_IPV6_ND_TARGET", V1_2);
    NdSll "nd_sll" [] 48/6 Mac Masked NdSolicit Settable: nxm1(24, "NXM_NX_ND_SLL"), oxm(32, "OXM_OF_IPV6_ND_SLL", V1_2);
    NdTll "nd_tll" [] 48/6 Mac Masked NdAdvert Settable: nxm1(25, "NXM_NX_ND_TLL"), oxm(33, "OXM_OF_IPV6_ND_TLL", V1_2);
    NdReserved "nd_reserved" [] 32/4 Decimal Exact Nd Settable: ericsson(1, "ERICOXM_OF_ICMPV6_ND_RESERVED");
    NdOptionsType "nd_options_type" [] 8/1 Decimal Exact Nd Settable: ericsson(2, "ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE");
    NshFlags "nsh_flags" [] 8/1 Decimal Masked Nsh Settable: nsh(1, "NXOXM_NSH_FLAGS");
    NshMdtype "nsh_mdtype" [] 8/1 Decimal Exact Nsh ReadOnly: nsh(2, "NXOXM_NSH_MDTYPE");
    NshNp "nsh_np" [] 8/1 Decimal Exact Nsh ReadOnly: nsh(3, "NXOXM_NSH_NP");
    NshSpi "nsh_spi" ["nsp"] 24/4 Hex Exact Nsh Settable: nsh(4, "NXOXM_NSH_SPI");
    NshSi "nsh_si" ["nsi"] 8/1 Decimal Exact Nsh Settable: nsh(5, "NXOXM_NSH_SI");
    NshC1 "nsh_c1" [] 32/4 Hex Masked Nsh Settable: nsh(6, "NXOXM_NSH_C1");
    NshC2 "nsh_c2" [] 32/4 Hex Masked Nsh Settable: nsh(7, "NXOXM_NSH_C2");
    NshC3 "nsh_c3" [] 32/4 Hex Masked Nsh Settable: nsh(8, "NXOXM_NSH_C3");
    NshC4 "nsh_c4" [] 32/4 Hex Masked Nsh Settable: nsh(9, "NXOXM_NSH_C4");
    NshTtl "nsh_ttl" [] 8/1 Decimal Exact Nsh Settable: nsh(10, "NXOXM_NSH_TTL");
}

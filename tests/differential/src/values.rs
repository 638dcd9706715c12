//! Values of fields: few of each, so that packets meet matches.

use fastrand::Rng;
use openflow::field::{Field, FieldId, Masks, Notation, Prerequisite};

/// Station addresses.
pub const MACS: [u64; 5] =
    [0x0200_0000_0001, 0x0200_0000_0002, 0x0200_0000_0003, 0xffff_ffff_ffff, 0x0100_5e00_0001];
/// IPv4 addresses.
pub const IPV4: [u32; 5] = [0x0a00_0001, 0x0a00_0002, 0x0a01_0003, 0xc0a8_0101, 0xe000_0005];
/// IPv6 addresses.
pub const IPV6: [u128; 4] = [
    0xfe80_0000_0000_0000_0000_0000_0000_0001,
    0xfe80_0000_0000_0000_0000_0000_0000_0002,
    0x2001_0db8_0000_0000_0000_0000_0000_0001,
    0xff02_0000_0000_0000_0000_0001_ff00_0001,
];
/// Ports of TCP, UDP and SCTP.
pub const PORTS: [u16; 5] = [53, 80, 0x1234, 0xffff, 0];
/// VLAN ids.
pub const VLANS: [u16; 4] = [0, 1, 5, 0xfff];
/// MPLS labels.
pub const LABELS: [u32; 4] = [0, 7, 16, 0xf_ffff];
/// Times to live.
pub const TTLS: [u8; 5] = [0, 1, 2, 64, 255];
/// Types of ICMPv4.
pub const ICMP: [u8; 3] = [0, 3, 8];
/// Types of ICMPv6.
pub const ICMPV6: [u8; 3] = [128, 135, 136];
/// DSCP values.
pub const DSCPS: [u8; 4] = [0, 10, 46, 63];
/// Flags of TCP.
pub const TCP_FLAGS: [u16; 4] = [0x002, 0x012, 0x010, 0x1ff];

/// One of a list.
pub fn of<T: Copy>(random: &mut Rng, list: &[T]) -> T {
    list[random.usize(..list.len())]
}

/// A value of a field.
pub fn value(random: &mut Rng, field: &Field) -> u128 {
    match field.id {
        FieldId::VlanVid => of(random, &VLANS).into(),
        FieldId::VlanTci => (0x1000 | of(random, &VLANS) | of(random, &[0u16, 3, 7]) << 13).into(),
        FieldId::VlanPcp | FieldId::MplsTc => of(random, &[0u8, 3, 7]).into(),
        FieldId::MplsLabel => of(random, &LABELS).into(),
        FieldId::MplsBos => random.u8(..2).into(),
        FieldId::MplsTtl | FieldId::NwTtl => of(random, &TTLS).into(),
        FieldId::NwTos => u128::from(of(random, &DSCPS)) << 2,
        FieldId::IpDscp => of(random, &DSCPS).into(),
        FieldId::NwEcn => random.u8(..4).into(),
        FieldId::NwProto => of(random, &[1u8, 6, 17, 58, 132, 255]).into(),
        FieldId::EthType => of(random, &[0x0800u16, 0x86dd, 0x0806, 0x8847, 0x88b5]).into(),
        FieldId::ArpOp => of(random, &[1u8, 2, 255]).into(),
        FieldId::IcmpType => of(random, &ICMP).into(),
        FieldId::Icmpv6Type => of(random, &ICMPV6).into(),
        FieldId::IcmpCode | FieldId::Icmpv6Code => random.u8(..2).into(),
        FieldId::NdOptionsType => of(random, &[0u8, 1, 2]).into(),
        FieldId::TcpFlags => of(random, &TCP_FLAGS).into(),
        FieldId::Ipv6Label => of(random, &[0u32, 1, 0xabcde]).into(),
        FieldId::InPort | FieldId::InPortOxm | FieldId::ActsetOutput | FieldId::InPhyPort => {
            random.u8(1..=4).into()
        }
        _ => match (field.notation, field.prerequisite) {
            (Notation::Mac, _) => of(random, &MACS).into(),
            (Notation::Ipv4, _) => of(random, &IPV4).into(),
            (Notation::Ipv6, _) => of(random, &IPV6),
            (_, Prerequisite::Tcp | Prerequisite::Udp | Prerequisite::Sctp) => of(random, &PORTS).into(),
            _ => of(random, &[0u128, 1, 2, 0xdead_beef, 0x1_0000_0001, u128::MAX]) & ones(field),
        },
    }
}

/// All bits of a field.
pub fn ones(field: &Field) -> u128 {
    u128::MAX.checked_shr(128 - u32::from(field.bits)).unwrap_or(u128::MAX)
}

/// A mask of a field, neither all bits nor none.
fn mask(random: &mut Rng, field: &Field) -> u128 {
    let all = ones(field);
    let mask = match random.u8(..3) {
        // A prefix.
        0 => all & !(all >> random.u16(1..field.bits.max(2))),
        // All but one bit.
        1 => all & !(1 << random.u16(..field.bits)),
        _ => random.u128(..) & all,
    };
    if mask == 0 { all } else { mask }
}

/// A number in the field's notation.
pub fn text(field: &Field, number: u128) -> String {
    match field.notation {
        Notation::Mac => {
            let bytes = number.to_be_bytes();
            let parts: Vec<_> = bytes[10..].iter().map(|byte| format!("{byte:02x}")).collect();
            parts.join(":")
        }
        Notation::Ipv4 => std::net::Ipv4Addr::from(number as u32).to_string(),
        Notation::Ipv6 => std::net::Ipv6Addr::from(number).to_string(),
        Notation::Port | Notation::Port16 | Notation::Decimal => number.to_string(),
        _ => format!("{number:#x}"),
    }
}

/// A random value of a field, with a mask now and then if the field supports masks.
pub fn value_text(random: &mut Rng, field: &Field) -> String {
    if field.notation == Notation::Frag {
        return of(random, &["no", "yes", "first", "later", "not_later"]).to_owned();
    }
    let number = value(random, field);
    if field.masks == Masks::Masked && random.u8(..10) < 4 {
        let mask = mask(random, field);
        return format!("{}/{}", text(field, number & mask), text(field, mask));
    }
    text(field, number)
}

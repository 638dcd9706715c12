//! Match fields: names, lengths, masks, prerequisites, and their numbers in NXM and OXM.

mod table;

pub use table::{FIELDS, FieldId};

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::oxm::OxmId;
use crate::version::{PortNo, Version};

/// A match field.
#[derive(Debug)]
pub struct Field {
    /// The field's id.
    pub id: FieldId,
    /// The name in flows.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// Significant bits, the low ones.
    pub bits: u16,
    /// Bytes on the wire; the most of them for a field of variable length.
    pub bytes: usize,
    /// How values are written.
    pub notation: Notation,
    /// Masks.
    pub masks: Masks,
    /// What else must be matched for the field to exist.
    pub prerequisite: Prerequisite,
    /// Whether actions may change the field.
    pub access: Access,
    /// Numbers on the wire.
    pub numbers: &'static [Number],
}

/// A field's number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number {
    /// The number.
    pub id: OxmId,
    /// The name in the class, as actions write it.
    pub name: &'static str,
    /// The first version of the standard that has it; 1.0 for extensions.
    pub since: Version,
}

/// How a field's values are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notation {
    /// Decimal.
    Decimal,
    /// Hexadecimal.
    Hex,
    /// Ethernet address.
    Mac,
    /// IPv4 address.
    Ipv4,
    /// IPv6 address.
    Ipv6,
    /// Port number of 16 bits.
    Port16,
    /// Port number of 32 bits.
    Port,
    /// State of a connection.
    CtState,
    /// Fragment kind.
    Frag,
    /// TCP flags.
    TcpFlags,
    /// Tunnel flags.
    TunnelFlags,
    /// Namespace and type of a packet.
    PacketType,
}

/// Masks that a field supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Masks {
    /// All bits or none.
    Exact,
    /// Any.
    Masked,
}

/// Whether actions may change a field; each value permits what the ones before it do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Access {
    /// Only matches and reads.
    ReadOnly,
    /// The standard's set-field action alone may set it.
    SetField,
    /// Actions may set it.
    Settable,
}

/// What a match must have for a field to exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prerequisite {
    /// Nothing.
    None,
    /// The ingress port.
    InPort,
    /// A VLAN tag.
    VlanVid,
    /// `eth_type=0x8847` or `0x8848`.
    Mpls,
    /// `eth_type=0x88e7`.
    Pbb,
    /// `eth_type=0x0800`.
    Ipv4,
    /// `eth_type=0x86dd`.
    Ipv6,
    /// IPv4 or IPv6.
    Ip,
    /// `eth_type=0x0806` or `0x8035`.
    Arp,
    /// IP with `nw_proto=6`.
    Tcp,
    /// IP with `nw_proto=17`.
    Udp,
    /// IP with `nw_proto=132`.
    Sctp,
    /// IPv4 with `nw_proto=1`.
    Icmpv4,
    /// IPv6 with `nw_proto=58`.
    Icmpv6,
    /// Neighbour discovery: ICMPv6 with type 135 or 136 and code 0.
    Nd,
    /// Neighbour solicitation: type 135.
    NdSolicit,
    /// Neighbour advertisement: type 136.
    NdAdvert,
    /// A tracked, valid connection.
    Ct,
    /// `eth_type=0x894f`.
    Nsh,
}

impl FieldId {
    /// The field's description.
    pub fn field(self) -> &'static Field {
        // The macro makes id and row together: the table has one row per id, in order.
        &FIELDS[self as usize]
    }

    /// Register `n` of 32 bits (`reg0` to `reg15`).
    pub fn reg(n: u8) -> Option<Self> {
        Self::numbered(FieldId::Reg0, n, 16)
    }

    /// Register `n` of 64 bits (`xreg0` to `xreg7`).
    pub fn xreg(n: u8) -> Option<Self> {
        Self::numbered(FieldId::XReg0, n, 8)
    }

    /// Register `n` of 128 bits (`xxreg0` to `xxreg3`).
    pub fn xxreg(n: u8) -> Option<Self> {
        Self::numbered(FieldId::XxReg0, n, 4)
    }

    /// Tunnel metadata `n` (`tun_metadata0` to `tun_metadata63`).
    pub fn tun_metadata(n: u8) -> Option<Self> {
        Self::numbered(FieldId::TunMetadata0, n, 64)
    }

    fn numbered(first: FieldId, n: u8, count: u8) -> Option<Self> {
        if n >= count {
            return None;
        }
        FIELDS.get(first as usize + usize::from(n)).map(|field| field.id)
    }
}

/// Fields by their numbers on the wire: arrays for the classes that every flow has.
struct Numbers {
    nxm0: [Option<&'static Field>; 128],
    nxm1: [Option<&'static Field>; 128],
    basic: [Option<&'static Field>; 128],
    other: HashMap<OxmId, &'static Field>,
}

static BY_NUMBER: LazyLock<Numbers> = LazyLock::new(|| {
    let mut numbers =
        Numbers { nxm0: [None; 128], nxm1: [None; 128], basic: [None; 128], other: HashMap::new() };
    for field in FIELDS {
        for Number { id, .. } in field.numbers {
            let class = match id.class {
                0 => &mut numbers.nxm0,
                1 => &mut numbers.nxm1,
                OxmId::BASIC => &mut numbers.basic,
                _ => {
                    numbers.other.insert(*id, field);
                    continue;
                }
            };
            if let Some(place) = class.get_mut(usize::from(id.field)) {
                *place = Some(field);
            }
        }
    }
    numbers
});

/// Fields by their names and aliases.
static BY_NAME: LazyLock<HashMap<&'static str, &'static Field>> = LazyLock::new(|| {
    FIELDS
        .iter()
        .flat_map(|field| std::iter::once(&field.name).chain(field.aliases).map(move |name| (*name, field)))
        .collect()
});

impl Field {
    /// The field with a number on the wire.
    pub fn with_number(id: OxmId) -> Option<&'static Field> {
        let class = match id.class {
            0 => &BY_NUMBER.nxm0,
            1 => &BY_NUMBER.nxm1,
            OxmId::BASIC => &BY_NUMBER.basic,
            _ => return BY_NUMBER.other.get(&id).copied(),
        };
        class.get(usize::from(id.field)).copied().flatten()
    }

    /// The field with a name or alias.
    pub fn with_name(name: &str) -> Option<&'static Field> {
        BY_NAME.get(name).copied()
    }

    /// The field with a name or alias, or with the name of one of its numbers, such as `NXM_NX_REG0`.
    pub fn with_any_name(name: &str) -> Option<&'static Field> {
        let named = |field: &&Field| field.numbers.iter().any(|number| number.name == name);
        Field::with_name(name).or_else(|| FIELDS.iter().find(named))
    }

    /// The number to send in `version`: the newest that the version has, so NXM in 1.0 and OXM later.
    pub fn number_in(&self, version: Version) -> OxmId {
        let known = self.numbers.iter().filter(|number| number.since <= version);
        // A field without a number that old is sent as what it became later.
        known
            .max_by_key(|number| number.since)
            .or(self.numbers.first())
            .map(|number| number.id)
            .unwrap_or_default()
    }

    /// Whether values of the field may be shorter than [`Field::bytes`].
    pub fn is_variable(&self) -> bool {
        (FieldId::TunMetadata0..=FieldId::TunMetadata63).contains(&self.id)
    }

    /// Whether `len` is a length of the field's values.
    pub fn has_length(&self, len: usize) -> bool {
        if self.is_variable() { len <= self.bytes } else { len == self.bytes }
    }

    /// Whether `value` is one that the field can have.
    pub fn accepts(&self, value: &[u8]) -> bool {
        if !self.has_length(value.len()) {
            return false;
        }
        let number = || value.iter().fold(0u128, |number, byte| number << 8 | u128::from(*byte));
        match self.id {
            // The bit above the VLAN's id says that there is one.
            FieldId::VlanVid => number() <= 0x1fff,
            FieldId::NwTos => number() & 3 == 0,
            FieldId::ArpOp | FieldId::CtState => number() <= 0xff,
            FieldId::NshTtl => number() <= 63,
            FieldId::NshMdtype => matches!(number(), 1 | 2),
            FieldId::InPortOxm | FieldId::InPhyPort | FieldId::ActsetOutput => {
                PortNo(number() as u32).to_16_bits().is_some()
            }
            _ => usize::from(self.bits) >= self.bytes * 8 || number() >> self.bits == 0,
        }
    }
}

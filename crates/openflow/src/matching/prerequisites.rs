//! Prerequisites: fields exist only in packets that other fields say they are in.

use crate::field::{FieldId, Prerequisite};
use crate::oxm::Oxm;

/// What the fields of a match say so far.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    in_port: bool,
    /// VLAN tags that are there for sure.
    tags: u8,
    eth_type: Option<u128>,
    nw_proto: Option<u128>,
    icmpv6_type: Option<u128>,
    icmpv6_code: Option<u128>,
    later_fragment: bool,
    connection: bool,
}

/// States of a connection that only valid ones have: new, established, related, reply, source and destination NAT.
const VALID_STATES: u128 = 0xcf;
const INVALID: u128 = 0x10;
const TRACKED: u128 = 0x20;
/// Bit of a VLAN's field that says that there is one.
const VLAN_PRESENT: u128 = 0x1000;

impl Seen {
    /// What a match says.
    pub(crate) fn of(fields: &[Oxm]) -> Self {
        let mut seen = Seen::default();
        for oxm in fields {
            if let Some(field) = oxm.field() {
                seen.add(field.id, oxm);
            }
        }
        seen
    }

    /// An action set the outermost VLAN tag, or removed it if there was one.
    pub(crate) fn set_vlan(&mut self, tagged: bool) {
        self.tags = if tagged { self.tags.max(1) } else { 0 };
    }

    /// An action added a VLAN tag.
    pub(crate) fn push_vlan(&mut self) {
        self.tags = self.tags.saturating_add(1);
    }

    /// An action removed a VLAN tag.
    pub(crate) fn pop_vlan(&mut self) {
        self.tags = self.tags.saturating_sub(1);
    }

    /// An action changed the Ethernet type behind the tags: what follows is not known.
    pub(crate) fn set_payload(&mut self, eth_type: u16) {
        let Seen { in_port, tags, .. } = *self;
        *self = Seen { in_port, tags, eth_type: Some(eth_type.into()), ..Seen::default() };
    }

    /// An action removed a label in front of this Ethernet type.
    pub(crate) fn set_type(&mut self, eth_type: u16) {
        self.eth_type = Some(eth_type.into());
    }

    /// Takes note of a field.
    pub(crate) fn add(&mut self, id: FieldId, oxm: &Oxm) {
        let value = oxm.value_number();
        match id {
            FieldId::InPort | FieldId::InPortOxm => self.in_port = true,
            FieldId::VlanTci | FieldId::VlanVid => self.tags = u8::from(value & VLAN_PRESENT != 0),
            FieldId::EthType => self.eth_type = Some(value),
            FieldId::NwProto => self.nw_proto = Some(value),
            FieldId::Icmpv6Type => self.icmpv6_type = Some(value),
            FieldId::Icmpv6Code => self.icmpv6_code = Some(value),
            FieldId::IpFrag => self.later_fragment = value & 2 != 0,
            FieldId::CtState => {
                let known_valid =
                    value & TRACKED != 0 && oxm.mask_number() & INVALID != 0 && value & INVALID == 0;
                self.connection = value & VALID_STATES != 0 || known_valid;
            }
            _ => {}
        }
    }

    /// Whether a field with this prerequisite exists.
    pub(crate) fn fulfil(&self, prerequisite: Prerequisite) -> bool {
        let ethertype = |types: &[u128]| self.eth_type.is_some_and(|found| types.contains(&found));
        let transport = |protocol| {
            ethertype(&[0x0800, 0x86dd]) && self.nw_proto == Some(protocol) && !self.later_fragment
        };
        let icmpv6 = ethertype(&[0x86dd]) && self.nw_proto == Some(58);
        let discovery = |kinds: &[u128]| {
            // A code that is not matched is fine if it is 0 otherwise, which it is in all valid packets.
            icmpv6
                && self.icmpv6_type.is_some_and(|kind| kinds.contains(&kind))
                && self.icmpv6_code.unwrap_or(0) == 0
        };
        match prerequisite {
            Prerequisite::None => true,
            Prerequisite::InPort => self.in_port,
            Prerequisite::VlanVid => self.tags > 0,
            Prerequisite::Mpls => ethertype(&[0x8847, 0x8848]),
            Prerequisite::Pbb => ethertype(&[0x88e7]),
            Prerequisite::Ipv4 => ethertype(&[0x0800]),
            Prerequisite::Ipv6 => ethertype(&[0x86dd]),
            Prerequisite::Ip => ethertype(&[0x0800, 0x86dd]),
            Prerequisite::Arp => ethertype(&[0x0806, 0x8035]),
            Prerequisite::Nsh => ethertype(&[0x894f]),
            Prerequisite::Tcp => transport(6),
            Prerequisite::Udp => transport(17),
            Prerequisite::Sctp => transport(132),
            Prerequisite::Icmpv4 => ethertype(&[0x0800]) && self.nw_proto == Some(1),
            Prerequisite::Icmpv6 => icmpv6,
            Prerequisite::Nd => discovery(&[135, 136]),
            Prerequisite::NdSolicit => discovery(&[135]),
            Prerequisite::NdAdvert => discovery(&[136]),
            Prerequisite::Ct => self.connection,
        }
    }
}

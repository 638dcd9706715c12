//! From an OpenFlow match, as `ovs-ofctl` writes it, to the fields of a packet.

use openflow::field::FieldId;
use openflow::message::FlowModCommand;
use openflow::oxm::Oxm;
use openflow::{Version, text};

use super::flow::{Flow, Fragment};

/// Bit of a tag's field that says that there is a tag.
const PRESENT: u16 = 0x1000;

/// Parses a match. The number of its port is that of OpenFlow.
pub(super) fn flow(text: &str) -> Result<Flow, String> {
    let line = format!("{text}{}actions=drop", if text.trim().is_empty() { "" } else { "," });
    let parsed = text::parse_flow(&line, FlowModCommand::Add, Version::V1_5);
    let fields = parsed.map_err(|error| error.to_string())?.matching.to_fields();
    let fields = fields.map_err(|code| code.name().to_owned())?;
    let mut flow = Flow::default();
    fields.iter().for_each(|oxm| set(&mut flow, oxm));
    Ok(flow)
}

/// The last bytes of a value.
fn bytes<const N: usize>(number: u128) -> [u8; N] {
    let all = number.to_be_bytes();
    all.last_chunk().copied().unwrap_or([0; N])
}

fn set(flow: &mut Flow, oxm: &Oxm) {
    let Some(field) = oxm.field() else { return };
    let number = oxm.value_number() & oxm.mask_number();
    let word = number as u16;
    match field.id {
        FieldId::InPort | FieldId::InPortOxm => flow.in_port = Some(number as u32),
        FieldId::EthSrc => flow.eth_src = bytes(number),
        FieldId::EthDst => flow.eth_dst = bytes(number),
        FieldId::EthType => flow.eth_type = word,
        FieldId::VlanVid | FieldId::VlanTci if word & PRESENT != 0 => tag(flow, word & !PRESENT),
        FieldId::VlanPcp if number != 0 => tag(flow, word << 13),
        FieldId::MplsLabel => entry(flow, (number as u32) << 12),
        FieldId::MplsTc => entry(flow, (number as u32) << 9),
        FieldId::MplsBos => entry(flow, (number as u32) << 8),
        FieldId::MplsTtl => entry(flow, number as u32 & 0xff),
        FieldId::IpSrc => flow.ipv4_src = bytes(number),
        FieldId::IpDst => flow.ipv4_dst = bytes(number),
        FieldId::Ipv6Src => flow.ipv6_src = bytes(number),
        FieldId::Ipv6Dst => flow.ipv6_dst = bytes(number),
        FieldId::Ipv6Label => flow.ipv6_label = number as u32,
        FieldId::NwProto => flow.proto = number as u8,
        FieldId::NwTos => flow.tos |= number as u8 & 0xfc,
        FieldId::IpDscp => flow.tos |= (number as u8) << 2,
        FieldId::NwEcn => flow.tos |= number as u8 & 3,
        FieldId::NwTtl => flow.ttl = number as u8,
        FieldId::IpFrag => {
            flow.fragment = match number & 3 {
                0 => Fragment::No,
                1 => Fragment::First,
                _ => Fragment::Later,
            }
        }
        FieldId::TcpSrc | FieldId::UdpSrc | FieldId::SctpSrc | FieldId::IcmpType | FieldId::Icmpv6Type => {
            flow.tp_src = word;
        }
        FieldId::TcpDst | FieldId::UdpDst | FieldId::SctpDst | FieldId::IcmpCode | FieldId::Icmpv6Code => {
            flow.tp_dst = word;
        }
        FieldId::TcpFlags => flow.tcp_flags = word,
        FieldId::ArpOp => flow.arp_op = word,
        FieldId::ArpSpa => flow.arp_spa = bytes(number),
        FieldId::ArpTpa => flow.arp_tpa = bytes(number),
        FieldId::ArpSha => flow.arp_sha = bytes(number),
        FieldId::ArpTha => flow.arp_tha = bytes(number),
        FieldId::NdTarget => flow.nd_target = bytes(number),
        FieldId::NdSll => flow.nd_sll = bytes(number),
        FieldId::NdTll => flow.nd_tll = bytes(number),
        // Fields that a packet does not have when it arrives.
        _ => {}
    }
}

/// Adds bits to the tag, which is there from now on.
fn tag(flow: &mut Flow, bits: u16) {
    match flow.vlans.last_mut() {
        Some((_, tci)) => *tci |= bits,
        None => flow.vlans.push((super::flow::VLAN[0], bits)),
    }
}

/// Adds bits to the entry of MPLS, which is there from now on.
fn entry(flow: &mut Flow, bits: u32) {
    match flow.mpls.last_mut() {
        Some(entry) => *entry |= bits,
        None => flow.mpls.push(bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_become_fields() {
        let found =
            flow("in_port=1,dl_vlan=9,dl_vlan_pcp=2,tcp,nw_src=10.0.0.1,nw_ttl=64,tp_dst=80").unwrap();
        assert_eq!((found.in_port, found.eth_type, found.proto), (Some(1), 0x0800, 6));
        assert_eq!(found.vlans, [(0x8100, 2 << 13 | 9)]);
        assert_eq!((found.ipv4_src, found.ttl, found.tp_dst), ([10, 0, 0, 1], 64, 80));
        assert_eq!(flow("").unwrap(), Flow::default());
        assert!(flow("frob=1").is_err());
    }
}

//! One-line summary of a packet's headers.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use packet::ether::addresses;
use packet::{EtherType, IpVersion, Layers};

/// `52:54:00:00:00:01 > 52:54:00:00:00:02 IPv4 10.0.0.1.80 > 10.0.0.2.1024 TCP`.
pub(crate) fn contents(data: &[u8]) -> String {
    let Some((to, from)) = addresses(data) else { return format!("{} bytes without header", data.len()) };
    let layers = Layers::parse(data);
    let mut text = format!("{from} > {to}");
    if let Some(tag) = packet::ether::vlan_tag(data) {
        let _ = write!(text, " VLAN {}", tag.vid);
    }
    let ip = layers.ip.zip(layers.l3).and_then(|(version, l3)| ip(data, version, l3.into(), &layers));
    match (ip, layers.ethertype) {
        (Some(ip), _) => text + &ip,
        (None, Some(EtherType::ARP)) => text + " ARP",
        (None, Some(EtherType::LLDP)) => text + " LLDP",
        (None, Some(kind)) => text + &format!(" EtherType {kind}"),
        (None, None) => text + " LLC",
    }
}

fn ip(data: &[u8], version: IpVersion, l3: usize, layers: &Layers) -> Option<String> {
    let header = data.get(l3..)?;
    let (name, from, to) = match version {
        IpVersion::V4 => {
            let address =
                |at: usize| Some(Ipv4Addr::from(*header.get(at..)?.first_chunk::<4>()?).to_string());
            ("IPv4", address(12)?, address(16)?)
        }
        IpVersion::V6 => {
            let address =
                |at: usize| Some(Ipv6Addr::from(*header.get(at..)?.first_chunk::<16>()?).to_string());
            ("IPv6", address(8)?, address(24)?)
        }
    };
    let protocol = match layers.protocol {
        Some(1) => "ICMP".into(),
        Some(6) => "TCP".into(),
        Some(17) => "UDP".into(),
        Some(58) => "ICMPv6".into(),
        Some(other) => format!("protocol {other}"),
        None => "fragment".into(),
    };
    let ports = layers.l4.filter(|_| matches!(layers.protocol, Some(6 | 17))).and_then(|l4| {
        let ports = data.get(usize::from(l4)..)?.first_chunk::<4>()?;
        Some((u16::from_be_bytes([ports[0], ports[1]]), u16::from_be_bytes([ports[2], ports[3]])))
    });
    Some(match ports {
        Some((a, b)) => format!(" {name} {from}.{a} > {to}.{b} {protocol}"),
        None => format!(" {name} {from} > {to} {protocol}"),
    })
}

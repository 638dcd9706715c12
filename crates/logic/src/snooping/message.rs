//! Messages about groups: IGMP (RFC 1112, RFC 2236, RFC 3376) and MLD (RFC 2710, RFC 3810).
//!
//! The sources that a host wants of a group are ignored: a host that wants some joins the group.
//!
//! Invariant: messages that are malformed, or that routers would not accept, are ignored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::checksum::{Sum, pseudo_header_v6};
use packet::headers::{IPV6_LEN, protocol};
use packet::{IpVersion, Layers, MacAddr};

/// Kind of a packet for a snooping bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A router's query.
    Query,
    /// A query from the unspecified address, which need not come from where routers are (RFC 4541 §2.1.1).
    AnonymousQuery,
    /// A host's report.
    Report,
    /// A report too long to be read in full.
    LongReport,
    /// Anything else.
    Other,
    /// The kind cannot be told without more of the packet.
    TooShort,
}

/// A group that a host reports on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    /// The address of its packets, which several groups share.
    pub(super) mac: MacAddr,
    /// The group's own address.
    pub(super) address: IpAddr,
}

/// Change of a host's membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The host joins the group.
    Join,
    /// The host leaves the group.
    Leave,
}

/// Largest number of bytes that a bridge can see of a packet.
pub(super) const LOOK: usize = 512;

const IGMP_QUERY: u8 = 0x11;
const IGMP1_REPORT: u8 = 0x12;
const IGMP2_REPORT: u8 = 0x16;
const IGMP2_LEAVE: u8 = 0x17;
const IGMP3_REPORT: u8 = 0x22;
const MLD_QUERY: u8 = 130;
const MLD_REPORT: u8 = 131;
const MLD_DONE: u8 = 132;
const MLD2_REPORT: u8 = 143;

// Record types of IGMPv3 (RFC 3376 §4.2.12) and MLDv2 (RFC 3810 §5.2.12).
const IS_INCLUDE: u8 = 1;
const IS_EXCLUDE: u8 = 2;
const TO_INCLUDE: u8 = 3;
const TO_EXCLUDE: u8 = 4;
const ALLOW: u8 = 5;

/// Reads a packet of `len` bytes that begins with `header`; calls `change` with each group that a host reports on.
pub(super) fn read(header: &[u8], len: u32, change: impl FnMut(Group, Change)) -> Kind {
    let layers = Layers::parse(header);
    let found = match (layers.ip, layers.protocol) {
        (Some(IpVersion::V4), Some(protocol::IGMP)) => igmp(header, len, layers, change),
        (Some(IpVersion::V6), Some(protocol::ICMPV6)) => mld(header, len, layers, change),
        // Extension headers may continue where the copy ends.
        (Some(IpVersion::V6), None) if (header.len() as u32) < len && header.len() < LOOK => {
            Some(Kind::TooShort)
        }
        _ => None,
    };
    found.unwrap_or(Kind::Other)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// The message from `l4` to `end`, as far as it can be seen.
enum Extent<'a> {
    Whole(&'a [u8]),
    Front(&'a [u8]),
    TooShort,
}

fn extent(header: &[u8], len: u32, l4: usize, end: usize) -> Option<Extent<'_>> {
    if end as u64 > u64::from(len) {
        return None; // longer than the packet
    }
    if let Some(message) = header.get(l4..end) {
        return Some(Extent::Whole(message));
    }
    Some(if header.len() < LOOK { Extent::TooShort } else { Extent::Front(header.get(l4..)?) })
}

fn igmp(header: &[u8], len: u32, layers: Layers, mut change: impl FnMut(Group, Change)) -> Option<Kind> {
    if layers.fragment {
        return None;
    }
    let (l3, l4) = (usize::from(layers.l3?), usize::from(layers.l4?));
    let total = usize::from(u16::from_be_bytes(field(header, l3 + 2)?));
    let source = Ipv4Addr::from(field::<4>(header, l3 + 12)?);
    let (message, whole) = match extent(header, len, l4, l3 + total)? {
        Extent::Whole(message) if Sum::of(message).partial() == 0xffff => (message, true),
        Extent::Whole(_) => return None,
        Extent::Front(message) => (message, false),
        Extent::TooShort => return Some(Kind::TooShort),
    };
    let [kind, ..] = field::<8>(message, 0)?;
    let mut of = |bytes: [u8; 4], what| {
        if let Some(mac) = group_v4(bytes.into()) {
            change(Group { mac, address: Ipv4Addr::from(bytes).into() }, what);
        }
    };
    match kind {
        IGMP_QUERY if source.is_unspecified() => return Some(Kind::AnonymousQuery),
        IGMP_QUERY => return Some(Kind::Query),
        IGMP1_REPORT | IGMP2_REPORT => of(field(message, 4)?, Change::Join),
        IGMP2_LEAVE => of(field(message, 4)?, Change::Leave),
        IGMP3_REPORT => records::<4>(message, of),
        _ => return None,
    }
    Some(if whole { Kind::Report } else { Kind::LongReport })
}

fn mld(header: &[u8], len: u32, layers: Layers, mut change: impl FnMut(Group, Change)) -> Option<Kind> {
    if layers.fragment {
        return None;
    }
    let (l3, Some(l4)) = (usize::from(layers.l3?), layers.l4.map(usize::from)) else {
        return Some(Kind::TooShort);
    };
    // Tells messages about groups from other ICMPv6 cheaply.
    let [kind] = field(header, l4)?;
    if !matches!(kind, MLD_QUERY | MLD_REPORT | MLD_DONE | MLD2_REPORT) {
        return None;
    }
    let [high, low, _, hops] = field(header, l3 + 4)?;
    let length = u16::from_be_bytes([high, low]);
    let (source, destination) = (field::<16>(header, l3 + 8)?, field::<16>(header, l3 + 24)?);
    let from = Ipv6Addr::from(source);
    // From a neighbour (RFC 3810 §5.1.14, §5.2.13); only a querier must have an address already.
    let near = from.is_unicast_link_local() || from.is_unspecified() && kind != MLD_QUERY;
    if hops != 1 || !near {
        return None;
    }
    let end = l3 + IPV6_LEN + usize::from(length);
    let (message, whole) = match extent(header, len, l4, end)? {
        Extent::Whole(message) => {
            let mut sum = pseudo_header_v6(source, destination, protocol::ICMPV6, message.len() as u32);
            sum.add(message);
            if sum.partial() != 0xffff {
                return None;
            }
            (message, true)
        }
        Extent::Front(message) => (message, false),
        Extent::TooShort => return Some(Kind::TooShort),
    };
    let mut of = |bytes: [u8; 16], what| {
        if let Some(mac) = group_v6(bytes.into()) {
            change(Group { mac, address: Ipv6Addr::from(bytes).into() }, what);
        }
    };
    match kind {
        MLD_QUERY => return Some(Kind::Query),
        MLD_REPORT => of(field(message, 8)?, Change::Join),
        MLD_DONE => of(field(message, 8)?, Change::Leave),
        _ => records::<16>(message, of),
    }
    Some(if whole { Kind::Report } else { Kind::LongReport })
}

/// Reads the group records of an IGMPv3 or MLDv2 report: they differ only in the length of addresses.
fn records<const N: usize>(message: &[u8], mut of: impl FnMut([u8; N], Change)) {
    let count = field(message, 6).map_or(0, u16::from_be_bytes);
    let mut at = 8;
    for _ in 0..count {
        let (Some([kind, extra, high, low]), Some(group)) = (field(message, at), field::<N>(message, at + 4))
        else {
            return;
        };
        let sources = usize::from(u16::from_be_bytes([high, low]));
        match kind {
            IS_EXCLUDE | TO_EXCLUDE => of(group, Change::Join),
            IS_INCLUDE | TO_INCLUDE | ALLOW if sources > 0 => of(group, Change::Join),
            IS_INCLUDE | TO_INCLUDE => of(group, Change::Leave),
            // Blocking some sources, or an unknown record: the membership stays.
            _ => {}
        }
        at += 4 + N + sources * N + usize::from(extra) * 4;
    }
}

/// Returns the MAC address of an IPv4 group (RFC 1112 §6.4), if hosts can join it.
fn group_v4(group: Ipv4Addr) -> Option<MacAddr> {
    let [_, a, b, c] = group.octets();
    let mac = MacAddr([1, 0, 0x5e, a & 0x7f, b, c]);
    (group.is_multicast() && !is_local_v4(mac)).then_some(mac)
}

/// Returns the MAC address of an IPv6 group (RFC 2464 §7), if hosts can join it.
fn group_v6(group: Ipv6Addr) -> Option<MacAddr> {
    let [.., a, b, c, d] = group.octets();
    let mac = MacAddr([0x33, 0x33, a, b, c, d]);
    (group.is_multicast() && !is_all_nodes(mac)).then_some(mac)
}

/// Returns whether this is the address of a group 224.0.0.x, which goes to all hosts (RFC 4541 §2.1.2).
pub(super) fn is_local_v4(mac: MacAddr) -> bool {
    matches!(mac.0, [1, 0, 0x5e, 0, 0, _])
}

/// Returns whether this is the address of ff02::1, which goes to all hosts (RFC 4541 §3).
pub(super) fn is_all_nodes(mac: MacAddr) -> bool {
    mac.0 == [0x33, 0x33, 0, 0, 0, 1]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::snooping) fn igmp_packet(source: [u8; 4], mut message: Vec<u8>) -> Vec<u8> {
        message[2..4].fill(0);
        let sum = Sum::of(&message).finish();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        // With the router alert option (RFC 2113) that hosts add.
        let total = (24 + message.len()) as u16;
        let mut ip = vec![0x46, 0xc0];
        ip.extend(total.to_be_bytes());
        ip.extend([0, 0, 0x40, 0, 1, 2, 0, 0]);
        ip.extend(source);
        ip.extend([224, 0, 0, 22, 0x94, 4, 0, 0]);
        [&[1, 0, 0x5e, 0, 0, 22, 2, 0, 0, 0, 0, 1, 8, 0][..], &ip, &message].concat()
    }

    pub(in crate::snooping) fn mld_packet(source: &str, mut message: Vec<u8>) -> Vec<u8> {
        let (from, to): (Ipv6Addr, Ipv6Addr) = (source.parse().unwrap(), "ff02::16".parse().unwrap());
        message[2..4].fill(0);
        let mut sum = pseudo_header_v6(from.octets(), to.octets(), 58, message.len() as u32);
        sum.add(&message);
        let sum = sum.finish();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let length = ((8 + message.len()) as u16).to_be_bytes();
        let mut ip = vec![0x60, 0, 0, 0, length[0], length[1], 0, 1];
        ip.extend(from.octets());
        ip.extend(to.octets());
        // Hop-by-hop: router alert (RFC 2711).
        ip.extend([58, 0, 5, 2, 0, 0, 1, 0]);
        [&[0x33, 0x33, 0, 0, 0, 0x16, 2, 0, 0, 0, 0, 1, 0x86, 0xdd][..], &ip, &message].concat()
    }

    fn changes(packet: &[u8]) -> (Kind, Vec<(MacAddr, Change)>) {
        let mut found = Vec::new();
        let header = &packet[..packet.len().min(LOOK)];
        let kind = read(header, packet.len() as u32, |group, change| found.push((group.mac, change)));
        (kind, found)
    }

    fn v4(c: u8) -> MacAddr {
        MacAddr([1, 0, 0x5e, 1, 2, c])
    }

    fn v6(d: u8) -> MacAddr {
        MacAddr([0x33, 0x33, 0, 0, 1, d])
    }

    const ME: [u8; 4] = [10, 0, 0, 1];

    #[test]
    fn igmp_versions_1_and_2() {
        let message = |kind| igmp_packet(ME, vec![kind, 0, 0, 0, 239, 129, 2, 3]);
        assert_eq!(changes(&message(0x12)), (Kind::Report, vec![(v4(3), Change::Join)]));
        assert_eq!(changes(&message(0x16)), (Kind::Report, vec![(v4(3), Change::Join)]));
        assert_eq!(changes(&message(0x17)), (Kind::Report, vec![(v4(3), Change::Leave)]));
        assert_eq!(changes(&message(0x13)).0, Kind::Other);
        assert_eq!(changes(&message(0x11)).0, Kind::Query);
        assert_eq!(changes(&igmp_packet([0; 4], vec![0x11, 0, 0, 0, 0, 0, 0, 0])).0, Kind::AnonymousQuery);
        // Groups that go to all hosts.
        let local = igmp_packet(ME, vec![0x16, 0, 0, 0, 224, 0, 0, 251]);
        assert_eq!(changes(&local), (Kind::Report, vec![]));
    }

    fn record(kind: u8, group: &[u8], sources: usize) -> Vec<u8> {
        let mut record = vec![kind, 1, 0, sources as u8];
        record.extend(group);
        record.extend(vec![7; group.len() * sources + 4]);
        record
    }

    #[test]
    fn reports_with_records() {
        let kinds = [(1, 1), (2, 0), (3, 0), (4, 1), (5, 1), (6, 1), (1, 0), (3, 2)];
        let expected = |mac: fn(u8) -> MacAddr| {
            let join = |i| (mac(i), Change::Join);
            let leave = |i| (mac(i), Change::Leave);
            vec![join(0), join(1), leave(2), join(3), join(4), leave(6), join(7)]
        };
        let (mut igmp, mut mld) = (vec![0x22, 0, 0, 0, 0, 0, 0, 8], vec![143, 0, 0, 0, 0, 0, 0, 8]);
        for (i, (kind, sources)) in (0..).zip(kinds) {
            igmp.extend(record(kind, &[239, 1, 2, i], sources));
            mld.extend(record(kind, &[0xff, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, i], sources));
        }
        assert_eq!(changes(&igmp_packet(ME, igmp)), (Kind::Report, expected(v4)));
        assert_eq!(changes(&mld_packet("fe80::1", mld)), (Kind::Report, expected(v6)));
    }

    #[test]
    fn mld_version_1_and_queries() {
        let message = |kind| [&[kind, 0, 0, 0, 0, 0, 0, 0, 0xff, 5][..], &[0; 12], &[1, 3]].concat();
        assert_eq!(
            changes(&mld_packet("fe80::1", message(131))),
            (Kind::Report, vec![(v6(3), Change::Join)])
        );
        assert_eq!(changes(&mld_packet("::", message(132))), (Kind::Report, vec![(v6(3), Change::Leave)]));
        assert_eq!(changes(&mld_packet("fe80::1", message(130))).0, Kind::Query);
        // Queries from another subnet or the unspecified address are ignored.
        assert_eq!(changes(&mld_packet("fd00::1", message(130))).0, Kind::Other);
        assert_eq!(changes(&mld_packet("::", message(130))).0, Kind::Other);
        let mut routed = mld_packet("fe80::1", message(131));
        routed[21] = 2;
        assert_eq!(changes(&routed).0, Kind::Other);
        assert_eq!(changes(&mld_packet("fe80::1", message(135))).0, Kind::Other);
    }

    #[test]
    fn damaged_messages_are_ignored() {
        for packet in [
            igmp_packet(ME, vec![0x16, 0, 0, 0, 239, 1, 2, 3]),
            mld_packet("fe80::1", [&[131, 0, 0, 0, 0, 0, 0, 0, 0xff, 5][..], &[0; 14]].concat()),
        ] {
            let l4 = packet.len() - if packet[12] == 8 { 8 } else { 24 };
            for at in l4..packet.len() {
                let mut damaged = packet.clone();
                damaged[at] ^= 0x40;
                assert_eq!(changes(&damaged), (Kind::Other, vec![]), "byte {at}");
            }
            for end in 0..packet.len() {
                let (_, found) = changes(&packet[..end]);
                assert_eq!(found, [], "cut at {end}");
            }
        }
    }

    #[test]
    fn long_reports_are_read_as_far_as_can_be_seen() {
        let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, 100];
        (0..100).for_each(|i| message.extend([4, 0, 0, 0, 239, 1, 2, i]));
        let packet = igmp_packet(ME, message);
        assert_eq!(read(&packet[..128], packet.len() as u32, |_, _| ()), Kind::TooShort);
        let (kind, found) = changes(&packet);
        assert_eq!(kind, Kind::LongReport);
        assert!((50..60).contains(&found.len()), "{}", found.len());
    }
}

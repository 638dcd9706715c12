//! Interfaces that exist already: what a TAP port needs to know of one before it takes it.
//!
//! Everything is read in the network namespace of the calling thread.

use std::net::IpAddr;

use packet::ether::MacAddr;
use rustix::io::Errno;

use crate::netlink::{
    DONE, DUMP, ERROR, Message, Messages, REQUEST, ROOM, attributes, messages, number, receive, socket, text,
    text_of,
};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_TUN_TYPE: u16 = 3;
const IFLA_TUN_MULTI_QUEUE: u16 = 7;
const IFLA_TUN_NUM_QUEUES: u16 = 8;
const IFLA_TUN_NUM_DISABLED_QUEUES: u16 = 9;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// Length of an `ifinfomsg`.
const IFINFO: usize = 16;
/// Length of an `ifaddrmsg`.
const IFADDR: usize = 8;
/// `RT_SCOPE_UNIVERSE`: an address that is valid beyond its link.
const UNIVERSE: u8 = 0;

/// Kinds of interfaces that come in pairs.
const PAIRS: [&str; 3] = ["veth", "netkit", "vxcan"];

/// Alias of interfaces that the switch made and that outlive their port.
pub(super) const ALIAS: &str = "made by mswitch";

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Existing {
    pub(super) index: u32,
    pub(super) mac: Option<MacAddr>,
    pub(super) mtu: u32,
    /// Its longest segment, bytes.
    pub(super) gso_max_size: u32,
    /// An earlier port of a switch made it: it bears [`ALIAS`].
    pub(super) ours: bool,
    pub(super) kind: Kind,
}

/// Kind of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Tap {
        multi_queue: bool,
        /// Queues that processes hold; always 0 without `multi_queue`, because the kernel does not report them.
        held: u32,
    },
    Tun,
    /// Another kind, such as `veth`; empty for hardware.
    Other(String),
}

/// Returns the interface of this name, if there is one.
pub(super) fn find(name: &str) -> Result<Option<Existing>, Errno> {
    let mut request = Messages::default();
    request.begin(RTM_GETLINK, REQUEST, 1, &[0; IFINFO]).attribute(IFLA_IFNAME, &text(name));
    ask(&request)
}

/// Returns the interface with this index, if there is one.
pub(super) fn find_index(index: u32) -> Result<Option<Existing>, Errno> {
    let [i0, i1, i2, i3] = index.to_ne_bytes();
    let mut request = Messages::default();
    request.begin(RTM_GETLINK, REQUEST, 1, &[0, 0, 0, 0, i0, i1, i2, i3, 0, 0, 0, 0, 0, 0, 0, 0]);
    ask(&request)
}

/// Asks for one interface.
fn ask(request: &Messages) -> Result<Option<Existing>, Errno> {
    let socket = socket(None, 0)?;
    request.send(&socket)?;
    let mut room = vec![0; ROOM];
    let answer = messages(receive(&socket, &mut room)?).next();
    let Some(answer) = answer else { return Err(Errno::BADMSG) };
    match answer.kind {
        RTM_NEWLINK => read(&answer).ok_or(Errno::BADMSG).map(Some),
        ERROR => match answer.code().map(|code| Errno::from_raw_os_error(code.saturating_neg())) {
            Some(Errno::NODEV) => Ok(None),
            error => Err(error.unwrap_or(Errno::BADMSG)),
        },
        _ => Err(Errno::BADMSG),
    }
}

fn index_of(link: &Message<'_>) -> Option<u32> {
    let [_, _, _, _, i0, i1, i2, i3, ..] = *link.body.first_chunk::<IFINFO>()?;
    Some(u32::from_ne_bytes([i0, i1, i2, i3]))
}

fn read(link: &Message<'_>) -> Option<Existing> {
    let mut found = Existing {
        index: index_of(link)?,
        mac: None,
        mtu: 0,
        gso_max_size: 0,
        ours: false,
        kind: Kind::Other(String::new()),
    };
    for (kind, value) in link.attributes(IFINFO) {
        match kind {
            IFLA_ADDRESS => found.mac = value.try_into().ok().map(MacAddr),
            IFLA_MTU => found.mtu = number(value)?,
            IFLA_GSO_MAX_SIZE => found.gso_max_size = number(value)?,
            IFLA_IFALIAS => found.ours = text_of(value) == ALIAS,
            IFLA_LINKINFO => found.kind = read_kind(value),
            _ => {}
        }
    }
    Some(found)
}

fn read_kind(info: &[u8]) -> Kind {
    let value = |wanted| attributes(info).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let kind = value(IFLA_INFO_KIND).map(text_of).unwrap_or_default();
    if kind != "tun" {
        return Kind::Other(kind);
    }
    let data = value(IFLA_INFO_DATA).unwrap_or_default();
    let of = |wanted| attributes(data).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let byte = |wanted| of(wanted).and_then(|value| value.first().copied()).unwrap_or_default();
    let count = |wanted| of(wanted).and_then(number).unwrap_or_default();
    if i32::from(byte(IFLA_TUN_TYPE)) != libc::IFF_TAP {
        return Kind::Tun;
    }
    let held = count(IFLA_TUN_NUM_QUEUES).saturating_add(count(IFLA_TUN_NUM_DISABLED_QUEUES));
    Kind::Tap { multi_queue: byte(IFLA_TUN_MULTI_QUEUE) != 0, held }
}

/// Returns an address of the interface with this index through which other hosts may reach this one, if it has one.
pub(super) fn address(index: u32) -> Result<Option<IpAddr>, Errno> {
    let mut request = Messages::default();
    request.begin(RTM_GETADDR, REQUEST | DUMP, 1, &[0; IFADDR]);
    first(&request, RTM_NEWADDR, |message| read_address(message, index))
}

/// Returns the name of an interface that lies on the one with this index, such as a VLAN interface, if there is one.
pub(super) fn upper(index: u32) -> Result<Option<String>, Errno> {
    let mut request = Messages::default();
    request.begin(RTM_GETLINK, REQUEST | DUMP, 1, &[0; IFINFO]);
    first(&request, RTM_NEWLINK, |message| read_upper(message, index))
}

/// Returns the first thing that `read` finds in messages of this kind.
fn first<T>(
    request: &Messages,
    kind: u16,
    read: impl Fn(&Message<'_>) -> Option<T>,
) -> Result<Option<T>, Errno> {
    let socket = socket(None, 0)?;
    request.send(&socket)?;
    let (mut room, mut found) = (vec![0; ROOM], None);
    loop {
        for message in messages(receive(&socket, &mut room)?) {
            match message.kind {
                DONE => return Ok(found),
                ERROR => {
                    let code = message.code().unwrap_or_default().saturating_neg();
                    return Err(Errno::from_raw_os_error(code));
                }
                other if other == kind => found = found.or_else(|| read(&message)),
                _ => {}
            }
        }
    }
}

fn read_address(message: &Message<'_>, index: u32) -> Option<IpAddr> {
    let [_, _, _, scope, i0, i1, i2, i3] = *message.body.first_chunk::<IFADDR>()?;
    if u32::from_ne_bytes([i0, i1, i2, i3]) != index || scope != UNIVERSE {
        return None;
    }
    let value = |wanted| message.attributes(IFADDR).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    // With a peer, the first one is the peer's.
    let bytes = value(IFA_LOCAL).or_else(|| value(IFA_ADDRESS))?;
    match *bytes {
        [a, b, c, d] => Some(IpAddr::from([a, b, c, d])),
        _ => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
    }
}

/// Returns the link's name if it lies on the interface with this index. Interfaces of a pair name each other likewise,
/// and neither lies on the other.
fn read_upper(link: &Message<'_>, index: u32) -> Option<String> {
    let value = |wanted| link.attributes(IFINFO).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let lower = value(IFLA_LINK).and_then(number)?;
    let info = value(IFLA_LINKINFO).unwrap_or_default();
    let kind = attributes(info).find(|(kind, _)| *kind == IFLA_INFO_KIND).map(|(_, value)| text_of(value));
    let pair = kind.is_some_and(|kind| PAIRS.contains(&kind.as_str()));
    let elsewhere = value(IFLA_LINK_NETNSID).is_some();
    let lies_on_it = lower == index && index_of(link)? != index && !elsewhere && !pair;
    lies_on_it.then(|| value(IFLA_IFNAME).map(text_of).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(info: &[(u16, &[u8])], alias: &str) -> Option<Existing> {
        let mut fixed = [0; IFINFO];
        fixed[4] = 7;
        let mut message = Messages::default();
        message
            .begin(RTM_NEWLINK, 0, 1, &fixed)
            .attribute(IFLA_ADDRESS, &[2, 0, 0, 0, 0, 7])
            .attribute(IFLA_MTU, &1400_u32.to_ne_bytes())
            .attribute(IFLA_GSO_MAX_SIZE, &65536_u32.to_ne_bytes())
            .attribute(IFLA_IFALIAS, &text(alias))
            .nested(IFLA_LINKINFO, info);
        messages(message.as_bytes()).next().and_then(|message| read(&message))
    }

    /// Attributes of a TUN/TAP interface, as they lie in `IFLA_INFO_DATA`.
    fn tun(kind: libc::c_int, multi_queue: u8, held: u32) -> Vec<u8> {
        let mut message = Messages::default();
        message
            .begin(0, 0, 0, &[])
            .attribute(IFLA_TUN_TYPE, &[kind as u8])
            .attribute(IFLA_TUN_MULTI_QUEUE, &[multi_queue])
            .attribute(IFLA_TUN_NUM_QUEUES, &held.to_ne_bytes())
            .attribute(IFLA_TUN_NUM_DISABLED_QUEUES, &1_u32.to_ne_bytes());
        messages(message.as_bytes()).next().unwrap().body.to_vec()
    }

    #[test]
    fn kinds_and_their_details_are_read() {
        let kind = |name: &[u8], data: &[u8]| {
            link(&[(IFLA_INFO_KIND, name), (IFLA_INFO_DATA, data)], "").unwrap().kind
        };
        let tap = tun(libc::IFF_TAP, 1, 2);
        assert_eq!(kind(b"tun\0", &tap), Kind::Tap { multi_queue: true, held: 3 });
        assert_eq!(kind(b"tun\0", &tun(libc::IFF_TUN, 0, 0)), Kind::Tun);
        assert_eq!(kind(b"veth\0", &[]), Kind::Other("veth".to_owned()));
        let found = link(&[], ALIAS).unwrap();
        assert_eq!((found.index, found.mtu, found.gso_max_size, found.ours), (7, 1400, 65536, true));
        assert_eq!(found.mac, Some(MacAddr([2, 0, 0, 0, 0, 7])));
        assert_eq!(found.kind, Kind::Other(String::new()));
        assert!(!link(&[], "the operator's").unwrap().ours);
    }

    #[test]
    fn upper_interfaces_are_told_from_peers() {
        let upper = |kind: &[u8], own: u8, lower: u32, elsewhere: bool| {
            let mut fixed = [0; IFINFO];
            fixed[4] = own;
            let mut message = Messages::default();
            message
                .begin(RTM_NEWLINK, 0, 1, &fixed)
                .attribute(IFLA_IFNAME, b"x\0")
                .attribute(IFLA_LINK, &lower.to_ne_bytes())
                .nested(IFLA_LINKINFO, &[(IFLA_INFO_KIND, kind)]);
            if elsewhere {
                message.attribute(IFLA_LINK_NETNSID, &[0; 4]);
            }
            messages(message.as_bytes()).next().and_then(|message| read_upper(&message, 7))
        };
        assert_eq!(upper(b"vlan\0", 8, 7, false).as_deref(), Some("x"));
        assert_eq!(upper(b"vlan\0", 8, 6, false), None, "on another interface");
        assert_eq!(upper(b"vlan\0", 8, 7, true), None, "on an interface of another namespace");
        assert_eq!(upper(b"veth\0", 8, 7, false), None, "the other end of a pair");
        assert_eq!(upper(b"gre\0", 7, 7, false), None, "itself");
    }

    #[test]
    fn only_addresses_that_reach_beyond_the_link_count() {
        let address = |scope: u8, index: u8, value: &[u8]| {
            let mut message = Messages::default();
            message.begin(RTM_NEWADDR, 0, 1, &[0, 0, 0, scope, index, 0, 0, 0]).attribute(IFA_ADDRESS, value);
            messages(message.as_bytes()).next().and_then(|message| read_address(&message, 3))
        };
        assert_eq!(address(UNIVERSE, 3, &[10, 0, 0, 1]), Some([10, 0, 0, 1].into()));
        assert_eq!(address(UNIVERSE, 4, &[10, 0, 0, 1]), None);
        assert_eq!(address(253, 3, &[0xfe; 16]), None, "link-local");
        assert_eq!(address(UNIVERSE, 3, &[0xfd; 16]), Some([0xfd; 16].into()));
        assert_eq!(address(UNIVERSE, 3, &[0xfd; 5]), None, "malformed");
    }
}

//! Bonds as packets see them: which members admit a packet, and which one sends it.
//!
//! The control side decides and passes a [`View`] ([`crate::OpenFlow::set_bonds`]); here its members' names have become
//! ports. A port that the configuration puts into a bond takes part in nothing until the bond's view has come: two
//! members that forwarded on their own would be a loop.
//!
//! Invariants: no packet goes back to the bond that it came from, and a flood reaches a bond once; whatever a view
//! says, only ports that the configuration puts into the bond send for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use bond::view::{Admission, Loads, Output, View};
use bond::{BUCKETS, hash};
use fabric::PortIndex;
use logic::Key;
use packet::{MacAddr, ether};

/// The bonds of a bridge.
#[derive(Debug)]
pub(crate) struct Bonds {
    /// By port: its bond and the packets that it admits.
    members: Vec<Option<Member>>,
    bonds: Vec<Bond>,
    /// By port: whether LACPDUs are for the control side.
    takes_pdus: Vec<bool>,
    locks: Arc<Locks>,
}

/// A port as a member of a bond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    /// Number of the bond.
    pub(crate) bond: usize,
    pub(crate) admits: Admission,
}

#[derive(Debug)]
struct Bond {
    name: String,
    /// The port for which stations of the bond are learned.
    lead: PortIndex,
    sends: Sends,
    loads: Arc<Loads>,
}

/// The member that sends.
#[derive(Debug)]
enum Sends {
    Nothing,
    Port(PortIndex),
    BySource(u32, Box<[PortIndex; BUCKETS]>),
    ByFlow(u32, Box<[PortIndex; BUCKETS]>),
}

/// A place in a vector by port.
fn place<T: Clone>(of: &mut Vec<T>, port: PortIndex, none: T) -> Option<&mut T> {
    let at = usize::from(port.0);
    if of.len() <= at {
        of.resize(at + 1, none);
    }
    of.get_mut(at)
}

impl Bonds {
    /// Makes the bonds of the ports in `configured`, by bond, with the views that have come; `ports` are all ports by
    /// name. `None` if there is nothing to know.
    pub(crate) fn new(
        configured: &BTreeMap<&str, BTreeMap<&str, PortIndex>>,
        ports: &BTreeMap<&str, PortIndex>,
        views: &BTreeMap<String, View>,
        locks: &Arc<Locks>,
    ) -> Option<Box<Self>> {
        let mut all =
            Self { members: Vec::new(), bonds: Vec::new(), takes_pdus: Vec::new(), locks: locks.clone() };
        for (name, ports) in configured {
            all.add(name, ports, views.get(*name));
        }
        for view in views.values().filter(|view| view.takes_pdus) {
            for member in &view.members {
                let port = ports.get(member.name.as_str());
                if let Some(takes) = port.and_then(|port| place(&mut all.takes_pdus, *port, false)) {
                    *takes = true;
                }
            }
        }
        (!all.bonds.is_empty() || !all.takes_pdus.is_empty()).then(|| Box::new(all))
    }

    fn add(&mut self, name: &str, ports: &BTreeMap<&str, PortIndex>, view: Option<&View>) {
        let bond = self.bonds.len();
        let Some(lead) = ports.values().next() else { return };
        let view = view.filter(|view| view.output != Output::Plain);
        let member_of = |port: &str| view?.members.iter().find(|member| member.name == port);
        for (port, index) in ports {
            let admits = member_of(port).map(|member| member.admits).unwrap_or_default();
            if let Some(member) = place(&mut self.members, *index, None) {
                *member = Some(Member { bond, admits });
            }
        }
        let port = |member: usize| {
            let name = view.and_then(|view| view.members.get(member)).map(|member| member.name.as_str());
            name.and_then(|name| ports.get(name)).copied().unwrap_or(PortIndex::NONE)
        };
        let buckets = |members: &[Option<usize>; BUCKETS]| {
            let mut ports = Box::new([PortIndex::NONE; BUCKETS]);
            for (to, member) in ports.iter_mut().zip(members) {
                *to = member.map_or(PortIndex::NONE, port);
            }
            ports
        };
        let sends = match view.map(|view| &view.output) {
            None | Some(Output::Plain | Output::Nothing) => Sends::Nothing,
            Some(Output::Member(member)) => Sends::Port(port(*member)),
            Some(Output::BySource(basis, members)) => Sends::BySource(*basis, buckets(members)),
            Some(Output::ByFlow(basis, members)) => Sends::ByFlow(*basis, buckets(members)),
        };
        let loads = view.map(|view| view.loads.clone()).unwrap_or_default();
        self.bonds.push(Bond { name: name.to_owned(), lead: *lead, sends, loads });
    }

    /// A port as a member of a bond.
    #[inline]
    pub(crate) fn member(&self, port: PortIndex) -> Option<Member> {
        self.members.get(usize::from(port.0)).copied().flatten()
    }

    /// Whether LACPDUs that come in at a port are for the control side.
    #[inline]
    pub(crate) fn takes_pdus(&self, port: PortIndex) -> bool {
        self.takes_pdus.get(usize::from(port.0)).is_some_and(|takes| *takes)
    }

    /// Numbers of the bonds.
    pub(crate) fn numbers(&self) -> std::ops::Range<usize> {
        0..self.bonds.len()
    }

    /// The number of a bond by name.
    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.bonds.iter().position(|bond| bond.name == name)
    }

    /// The port for which stations of a bond are learned.
    pub(crate) fn lead(&self, bond: usize) -> Option<PortIndex> {
        self.bonds.get(bond).map(|bond| bond.lead)
    }

    /// Chooses the member of a bond that sends a frame of `len` bytes in a VLAN, and counts it if `counts`.
    pub(crate) fn choose(
        &self,
        bond: usize,
        frame: &[u8],
        vid: u16,
        len: u32,
        counts: bool,
    ) -> Option<PortIndex> {
        let bond = self.bonds.get(bond)?;
        let (bucket, ports) = match &bond.sends {
            Sends::Nothing => return None,
            Sends::Port(port) => return Some(*port).filter(|port| *port != PortIndex::NONE),
            Sends::BySource(basis, ports) => {
                let (_, src) = ether::addresses(frame)?;
                (hash::source(src, vid, *basis), ports)
            }
            Sends::ByFlow(basis, ports) => (hash::flow(frame, *basis), ports),
        };
        if counts {
            bond.loads.add(bucket, len);
        }
        ports.get(bucket).copied().filter(|port| *port != PortIndex::NONE)
    }

    /// Whether a packet that came from a member is the bond's own, come back: its sender is known at `port`.
    pub(crate) fn came_back(
        &self,
        member: Member,
        port: PortIndex,
        frame: &[u8],
        key: Key,
        now: u32,
    ) -> bool {
        let is_outside = self.member(port).is_none_or(|known| known.bond != member.bond);
        // A station that announces itself has moved to the other side.
        is_outside && (!is_gratuitous_arp(frame) || self.locks.are_locked(key, now))
    }

    /// Notes a packet from outside of all bonds: an announcement of its own may come back.
    pub(crate) fn note(&self, frame: &[u8], key: Key, now: u32) {
        if is_gratuitous_arp(frame) {
            self.locks.lock(key, now);
        }
    }
}

/// Stations that have announced themselves in front of a bond a moment ago, by hash. Two stations with one hash only
/// make a move of one of them be seen later.
#[derive(Debug)]
pub(crate) struct Locks(Box<[AtomicU32]>);

/// Time for which an announcement that comes from a bond is taken for one that has come back, seconds.
const LOCKED: u32 = 5;
const LOCKS: usize = 1024;

impl Default for Locks {
    fn default() -> Self {
        Self((0..LOCKS).map(|_| AtomicU32::new(0)).collect())
    }
}

impl Locks {
    fn slot(&self, key: Key) -> Option<&AtomicU32> {
        // Eight bits by hash; the rest tells neighbours apart.
        let hash = hash::source(key.mac(), key.vid(), 0) | usize::from(key.mac().0[5] & 3) << 8;
        self.0.get(hash % LOCKS)
    }

    fn lock(&self, key: Key, now: u32) {
        // 0 is an unused slot.
        self.slot(key).into_iter().for_each(|slot| slot.store(now.max(1), Relaxed));
    }

    fn are_locked(&self, key: Key, now: u32) -> bool {
        let since = self.slot(key).map_or(0, |slot| slot.load(Relaxed));
        since != 0 && now.saturating_sub(since) < LOCKED
    }
}

/// Whether a frame is an ARP message by which a station announces its own address (RFC 5227 §3).
fn is_gratuitous_arp(frame: &[u8]) -> bool {
    let is_broadcast = ether::addresses(frame).is_some_and(|(dst, _)| dst.is_broadcast());
    let at = if ether::vlan_tag(frame).is_some() { 16 } else { 12 };
    let field = |from: usize, len: usize| frame.get(at + from..at + from + len);
    if !is_broadcast || field(0, 2) != Some(&[0x08, 0x06][..]) {
        return false;
    }
    match field(8, 2) {
        Some([0, 2]) => true,
        // The sender's IP address is the one asked for.
        Some([0, 1]) => field(16, 4).is_some_and(|own| field(26, 4) == Some(own)),
        _ => false,
    }
}

/// Makes the frame that announces a station to a bond's peer: a reverse ARP request (RFC 903), as hypervisors send it.
pub(crate) fn announcement(station: MacAddr, tag: Option<u16>) -> Vec<u8> {
    let mut frame = [[0xff; 6], station.0].concat();
    if let Some(vid) = tag {
        frame.extend([0x81, 0x00]);
        frame.extend(vid.to_be_bytes());
    }
    frame.extend([0x80, 0x35, 0, 1, 0x08, 0x00, 6, 4, 0, 3]);
    for _ in 0..2 {
        frame.extend(station.0);
        frame.extend([0; 4]);
    }
    frame.resize(frame.len().max(60), 0);
    frame
}

#[cfg(test)]
mod tests {
    use bond::view::MemberView;

    use super::*;

    fn view(output: Output) -> View {
        let all = Admission { stations: true, groups: true, unless_moved: true };
        let member = |name: &str| MemberView { name: name.into(), is_live: true, admits: all };
        let members = vec![member("p1"), member("p2"), member("stranger")];
        View { name: "b".into(), members, output, takes_pdus: true, loads: Arc::default() }
    }

    fn bonds(views: &[View]) -> Box<Bonds> {
        let ports = BTreeMap::from([("p1", PortIndex(3)), ("p2", PortIndex(4))]);
        let all = BTreeMap::from([("p1", PortIndex(3)), ("p2", PortIndex(4)), ("stranger", PortIndex(5))]);
        let views = views.iter().map(|view| (view.name.clone(), view.clone())).collect();
        Bonds::new(&BTreeMap::from([("b", ports)]), &all, &views, &Arc::default()).unwrap()
    }

    fn frame(src: MacAddr) -> Vec<u8> {
        [&[2, 0, 0, 0, 0, 9][..], &src.0, &[0; 48]].concat()
    }

    #[test]
    fn a_bond_without_a_view_is_closed() {
        let bonds = bonds(&[]);
        let member = bonds.member(PortIndex(3)).unwrap();
        assert_eq!((member.admits, bonds.choose(0, &frame(MacAddr::ZERO), 0, 60, true)), Default::default());
        assert_eq!((bonds.member(PortIndex(5)), bonds.takes_pdus(PortIndex(3))), (None, false));
    }

    #[test]
    fn only_configured_ports_send() {
        let choose = |output| bonds(&[view(output)]).choose(0, &frame(MacAddr::ZERO), 0, 60, true);
        assert_eq!(choose(Output::Member(1)), Some(PortIndex(4)));
        assert_eq!(choose(Output::Member(2)), None);
        assert_eq!(choose(Output::Member(7)), None);
        assert_eq!(choose(Output::ByFlow(0, Box::new([Some(2); BUCKETS]))), None);
        assert_eq!(choose(Output::ByFlow(0, Box::new([Some(0); BUCKETS]))), Some(PortIndex(3)));
    }

    #[test]
    fn buckets_are_chosen_by_source() {
        let mut members = Box::new([Some(0); BUCKETS]);
        let station = MacAddr([2, 0, 0, 0, 0, 1]);
        members[hash::source(station, 7, 0)] = Some(1);
        let view = view(Output::BySource(0, members));
        let bonds = bonds(std::slice::from_ref(&view));
        assert_eq!(bonds.choose(0, &frame(station), 7, 60, true), Some(PortIndex(4)));
        assert_eq!(bonds.choose(0, &frame(station), 8, 60, false), Some(PortIndex(3)));
    }

    #[test]
    fn what_comes_back_is_told_from_what_has_moved() {
        let bonds = bonds(&[view(Output::Member(0))]);
        let member = bonds.member(PortIndex(3)).unwrap();
        let station = MacAddr([2, 0, 0, 0, 0, 1]);
        let key = Key::new(0, station);
        let mut arp = [[0xff; 6], station.0].concat();
        arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        arp.extend([&station.0[..], &[10, 0, 0, 1], &[0; 6], &[10, 0, 0, 1]].concat());
        let plain = frame(station);
        assert!(bonds.came_back(member, PortIndex(9), &plain, key, 100));
        assert!(!bonds.came_back(member, PortIndex(4), &plain, key, 100), "its other member");
        assert!(!bonds.came_back(member, PortIndex(9), &arp, key, 100));
        bonds.note(&plain, key, 100);
        assert!(!bonds.came_back(member, PortIndex(9), &arp, key, 100));
        bonds.note(&arp, key, 100);
        assert!(bonds.came_back(member, PortIndex(9), &arp, key, 104));
        assert!(!bonds.came_back(member, PortIndex(9), &arp, key, 105));
        // A request for another address, and half a message.
        *arp.last_mut().unwrap() = 2;
        assert!(!is_gratuitous_arp(&arp) && !is_gratuitous_arp(&arp[..20]));
    }

    #[test]
    fn announcements_are_reverse_arp() {
        let frame = announcement(MacAddr([2; 6]), None);
        assert_eq!((frame.len(), &frame[12..22]), (60, &[0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3][..]));
        assert_eq!(frame[22..42], [2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0]);
        assert_eq!(announcement(MacAddr([2; 6]), Some(5))[12..18], [0x81, 0, 0, 5, 0x80, 0x35]);
    }
}

//! Mirrors: copy the traffic of some ports to another port (SPAN; with a VLAN tag, RSPAN).
//!
//! A mirror copies incoming packets of its ports as they came in, before the logic sees them, and outgoing packets as
//! they go out. It copies a packet once: a packet that came in at a port of the mirror is not copied again where it
//! leaves. Copies are ordinary outputs: the destination port segments large ones if necessary, and refuses those that
//! are too long. The logic does not affect them, and the destination's VLAN settings only those that are sent into a
//! VLAN.
//!
//! Without a tag the destination port belongs to the mirror: it receives copies only, and packets from its client are
//! not switched. With a tag it stays an ordinary trunk, and the copies carry that tag. A mirror into a VLAN has all
//! ports that carry the VLAN as destinations, and copies neither packets of that VLAN nor frames that bridges keep to
//! themselves (IEEE 802.1Q, table 8-1).
//!
//! Invariants: a copy is a header version of its own (`state::MIRRORED`) and is never copied again; a bridge without
//! mirrors pays nothing, a batch at whose ports nothing is mirrored one check of each of its lists.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use packet::ether::{self, Vid, VlanTag, vlan_tag};

use crate::bridge::port::{PortIndex, VidSet, VlanEgress};
use crate::bridge::state::{BridgeState, PortEntry};
use crate::counters::{DropReason, QueueCounters};
use crate::lists::emit::emit;
use crate::lists::output::NIL;
use crate::lists::scratchpad::Scratchpad;
use crate::observe::explain::{Remark, Value};
use crate::observe::interest::Interest;
use crate::rx::record::state;
use crate::rx::{RxBatch, SOURCES};

/// Settings of a mirror. They name ports, which may be added later or come back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mirror {
    /// Its name.
    pub name: String,
    /// Ports whose packets are copied; empty: all but the destination port.
    pub from: Vec<String>,
    /// Directions to copy.
    pub what: Interest,
    /// Directions to copy by port, instead of `from` and `what`; ports that it lacks are not copied.
    pub by_port: Option<Vec<(String, Interest)>>,
    /// VLANs whose packets are copied, by the VLAN settings of the port at which a packet comes in or leaves; `None`:
    /// all, and those of no VLAN.
    pub vlans: Option<VidSet>,
    /// The destination port; empty with [`Mirror::into_vlan`].
    pub to: String,
    /// Tag added to copies.
    pub vlan: Option<Vid>,
    /// VLAN that copies are sent into, in the place of their own.
    pub into_vlan: Option<Vid>,
    /// Bytes of a copy at most, at least 14; `None`: copies are whole. Copies with work left to the receiver (segments,
    /// checksums) are whole, too.
    pub cut: Option<u32>,
}

/// Counters of a mirror.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// Counters of a mirror at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MirrorSnapshot {
    /// Packets, including those that the destination did not take.
    pub packets: u64,
    /// Their bytes, including the tag.
    pub bytes: u64,
}

impl Copied {
    pub(crate) fn snapshot(&self) -> MirrorSnapshot {
        MirrorSnapshot { packets: self.packets.load(Relaxed), bytes: self.bytes.load(Relaxed) }
    }
}

/// A port that receives copies.
struct Destination {
    at: PortIndex,
    to: PortEntry,
    /// Counters of the port's first queue.
    counters: Option<Arc<QueueCounters>>,
    form: Form,
}

/// What copies are at a destination.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The packet as it is.
    Same,
    /// With a tag in front of those that it has.
    Pushed(VlanTag),
    /// Without its outermost tag.
    Untagged,
    /// With another VLAN in its outermost tag, or a new tag.
    Moved(Vid),
}

/// A mirror in the state of a bridge.
struct MirrorTarget {
    to: Box<[Destination]>,
    into_vlan: Option<Vid>,
    cut: Option<u32>,
    /// Interest in each port, by index.
    interests: Box<[Interest]>,
    vlans: Option<VidSet>,
    copied: Arc<Copied>,
}

impl MirrorTarget {
    fn interest(&self, port: PortIndex) -> Interest {
        self.interests.get(usize::from(port.0)).copied().unwrap_or_default()
    }

    /// Whether version `v`, which comes in or leaves at a port, is copied by its VLAN.
    #[inline]
    fn selects(&self, rx: &RxBatch, bridge: &BridgeState, port: PortIndex, v: usize) -> bool {
        if self.vlans.is_none() && self.into_vlan.is_none() {
            return true;
        }
        // A port's frames have the same form in both directions.
        let header = rx.header(v);
        let vid = bridge.port(port).and_then(|entry| entry.settings.vlan.ingress(vlan_tag(header)));
        let is_selected = self.vlans.as_ref().is_none_or(|vlans| vid.is_some_and(|vid| vlans.contains(vid)));
        is_selected
            && self.into_vlan.is_none_or(|into| {
                let keeps = ether::addresses(header).is_some_and(|(dst, _)| ether::is_reserved_group(dst));
                vid != Some(into.get()) && !keeps
            })
    }

    /// Puts copies of version `v` on the lists of the mirror's destinations.
    fn copy(&self, rx: &mut RxBatch, pad: &mut Scratchpad, bridge: &BridgeState, v: usize) {
        // Destinations in a row that want the same form share it.
        let mut made: Option<(Form, usize)> = None;
        for to in &self.to {
            let copy = match made {
                Some((form, copy)) if form == to.form => copy,
                _ => match self.version(rx, v, to.form) {
                    Some(copy) => copy,
                    None => {
                        if let Some(counters) = to.counters.as_ref().filter(|_| !pad.rehearsal) {
                            counters.add_drop(DropReason::BatchLimit);
                        }
                        continue;
                    }
                },
            };
            if made.is_none() && !pad.rehearsal {
                self.copied.packets.fetch_add(1, Relaxed);
                self.copied.bytes.fetch_add(rx.records[copy].len().into(), Relaxed);
            }
            made = Some((to.form, copy));
            match to.to.lanes {
                0 => to.refuse(pad, rx.records[copy].packet),
                _ => emit(rx, pad, bridge, copy, &to.to, None),
            }
        }
    }

    /// Makes a copy of version `v`; `None` if there is no room.
    fn version(&self, rx: &mut RxBatch, v: usize, form: Form) -> Option<usize> {
        let copy = rx.copy_version(v)?;
        rx.records[copy].state |= state::MIRRORED;
        match form {
            Form::Same => {}
            Form::Pushed(tag) if !rx.push_vlan(copy, tag) => return None,
            Form::Pushed(_) => {}
            Form::Untagged => rx.pop_vlan(copy),
            Form::Moved(vid) => {
                let before = vlan_tag(rx.header(copy));
                if before.is_some() {
                    rx.pop_vlan(copy);
                }
                let tag = VlanTag { vid: vid.get(), ..before.unwrap_or_else(|| VlanTag::new(vid)) };
                if !rx.push_vlan(copy, tag) {
                    return None;
                }
            }
        }
        if let Some(cut) = self.cut
            && rx.records[copy].len() > cut
            && !rx.records[copy].has(state::OFFLOAD)
        {
            rx.replace_front(copy, &[], 0, cut);
        }
        Some(copy)
    }
}

impl Destination {
    /// Counts a copy of `packet` that a destination without queues cannot take, at the destination: the packet itself
    /// may well be delivered.
    #[cold]
    fn refuse(&self, pad: &mut Scratchpad, packet: u16) {
        if pad.rehearsal {
            pad.notes.copies_refused.push((self.at, self.to.closed));
        } else if let Some(counters) = &self.counters {
            counters.add_drop(self.to.closed);
        }
        pad.notes.journal.add(|| {
            let values = [Value::Port(self.at), Value::Text(self.to.obstacle())];
            Remark::new(packet, "the mirror's copy for {} is dropped, because the port {}", &values)
        });
    }
}

/// The mirrors in the state of a bridge.
pub(crate) struct Mirrors(Box<[MirrorTarget]>);

impl Mirrors {
    /// The mirrors whose destination exists; `counters` are those of a port's first queue. `None` if there are none.
    pub(crate) fn new(
        asked: &[(Mirror, Arc<Copied>)],
        ports: &[Option<PortEntry>],
        counters: impl Fn(PortIndex) -> Option<Arc<QueueCounters>>,
    ) -> Option<Self> {
        let target = |(mirror, copied): &(Mirror, Arc<Copied>)| {
            let entries = (0..).zip(ports).filter_map(|(i, entry)| Some((PortIndex(i), entry.as_ref()?)));
            let owned = |entry: &PortEntry| asked.iter().any(|(other, _)| other.owns(&entry.settings.name));
            let mut to: Vec<_> = entries
                .filter_map(|(at, entry)| {
                    let form = mirror.form(entry).filter(|_| mirror.into_vlan.is_none() || !owned(entry))?;
                    Some(Destination { at, to: entry.clone(), counters: counters(at), form })
                })
                .collect();
            // In a row, those of one form share a copy.
            to.sort_by_key(|to: &Destination| to.form == Form::Untagged);
            if to.is_empty() {
                return None;
            }
            let interest = |entry: &Option<PortEntry>| {
                entry.as_ref().map(|entry| mirror.interest(&entry.settings.name)).unwrap_or_default()
            };
            let interests = ports.iter().map(interest).collect();
            let (into_vlan, copied) = (mirror.into_vlan, copied.clone());
            let (vlans, cut) = (mirror.vlans.clone(), mirror.cut);
            Some(MirrorTarget { to: to.into(), into_vlan, cut, interests, vlans, copied })
        };
        let targets: Box<[MirrorTarget]> = asked.iter().filter_map(target).collect();
        (!targets.is_empty()).then_some(Self(targets))
    }

    /// Copies incoming packets. Called before the logic sees them.
    pub(crate) fn received(
        &self,
        rx: &mut RxBatch,
        pad: &mut Scratchpad,
        bridge: &BridgeState,
        ingress: PortIndex,
    ) {
        for target in self.0.iter().filter(|target| target.interest(ingress).received) {
            for v in 0..rx.packets {
                if target.selects(rx, bridge, ingress, v) {
                    target.copy(rx, pad, bridge, v);
                }
            }
        }
    }

    /// Copies outgoing packets. Called when all lists are complete.
    pub(crate) fn sent(
        &self,
        rx: &mut RxBatch,
        pad: &mut Scratchpad,
        bridge: &BridgeState,
        ingress: PortIndex,
    ) {
        for target in self.0.iter().filter(|target| !target.interest(ingress).received) {
            // The list that each packet is copied from: all its segments on that list are copied.
            let mut from = [NIL; SOURCES];
            for i in 0..pad.list_count() {
                let Some((lane, mut at)) = pad.list(i) else { break };
                let port = bridge.lane(lane as usize).map(|lane| lane.port);
                let Some(port) = port.filter(|port| target.interest(*port).sent) else { continue };
                // Copies on the same list follow later, in runs of their own or at the end of this one.
                while let Some(run) = pad.run(at) {
                    let mut v = u32::from(run.first);
                    while v < pad.run(at).map_or(0, |run| run.end()) {
                        let record = rx.records[v as usize];
                        if !record.has(state::MIRRORED)
                            && target.selects(rx, bridge, port, v as usize)
                            && let Some(from) = from.get_mut(usize::from(record.packet))
                        {
                            if *from == NIL {
                                *from = lane;
                            }
                            if *from == lane {
                                target.copy(rx, pad, bridge, v as usize);
                            }
                        }
                        v += 1;
                    }
                    at = pad.run(at).map_or(NIL, |run| run.next);
                }
            }
        }
    }
}

impl Mirror {
    /// The directions in which a port's packets are copied.
    fn interest(&self, port: &str) -> Interest {
        match &self.by_port {
            _ if port == self.to => Interest::default(),
            Some(by_port) => {
                by_port.iter().find(|(from, _)| from == port).map(|(_, what)| *what).unwrap_or_default()
            }
            None if self.from.is_empty() || self.from.iter().any(|from| from == port) => self.what,
            None => Interest::default(),
        }
    }

    /// What copies are at a port; `None`: it is no destination.
    fn form(&self, entry: &PortEntry) -> Option<Form> {
        let Some(into) = self.into_vlan else {
            let form = self.vlan.map_or(Form::Same, |vid| Form::Pushed(VlanTag::new(vid)));
            return (entry.settings.name == self.to).then_some(form);
        };
        match entry.settings.vlan.egress(into.get()) {
            VlanEgress::Refused => None,
            VlanEgress::Untagged => Some(Form::Untagged),
            VlanEgress::Tagged => Some(Form::Moved(into)),
        }
    }

    /// Whether this port is the mirror's destination and receives nothing else.
    pub fn owns(&self, port: &str) -> bool {
        self.vlan.is_none() && self.into_vlan.is_none() && self.to == port
    }
}

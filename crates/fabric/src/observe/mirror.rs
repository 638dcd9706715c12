//! Mirrors: copies of what passes at some ports, for one that looks on (SPAN; with a VLAN tag, RSPAN).
//!
//! A mirror copies what comes in at its ports as it came in, before the logic sees it, and what goes out as it goes out. It
//! copies a packet once: one that came in at a port of the mirror is not copied again where it leaves. Copies are outputs like
//! others: the port that they go to cuts what it does not take whole, and refuses what is too long for it. They are no
//! business of the logic's, nor of the VLAN settings of the port that they go to.
//!
//! Without a tag the port belongs to the mirror: it gets copies only, and nothing that its client sends is switched. With one
//! it is a trunk like before, and the copies are those packets that have the tag.
//!
//! Invariants: a copy is a header version of its own (`state::MIRRORED`) and is never copied again; a bridge without
//! mirrors pays nothing, a batch at whose ports nothing is mirrored a look at each of its lists.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use packet::ether::{Vid, VlanTag};

use crate::bridge::picture::{BridgeState, PortEntry};
use crate::bridge::port::PortIndex;
use crate::lists::emit::emit;
use crate::lists::output::NIL;
use crate::lists::scratchpad::Scratchpad;
use crate::observe::interest::Interest;
use crate::rx::record::state;
use crate::rx::{RxBatch, SOURCES};

/// A mirror as it is asked for. Ports go by their names, so that one may come later or come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// Its name.
    pub name: String,
    /// The ports whose packets are copied; empty: all but the one that the copies go to.
    pub from: Vec<String>,
    /// Which of their packets.
    pub what: Interest,
    /// Where the copies go.
    pub to: String,
    /// The tag that copies get.
    pub vlan: Option<Vid>,
}

/// What a mirror has copied.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// What a mirror has copied until now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MirrorSnapshot {
    /// Packets, whether the port then took them or not.
    pub packets: u64,
    /// Their bytes, the tag included.
    pub bytes: u64,
}

impl Copied {
    pub(crate) fn snapshot(&self) -> MirrorSnapshot {
        MirrorSnapshot { packets: self.packets.load(Relaxed), bytes: self.bytes.load(Relaxed) }
    }
}

/// A mirror in the picture.
struct MirrorTarget {
    to: PortEntry,
    tag: Option<VlanTag>,
    /// By port: what is copied of its packets.
    interests: Box<[Interest]>,
    copied: Arc<Copied>,
}

impl MirrorTarget {
    fn interest(&self, port: PortIndex) -> Interest {
        self.interests.get(usize::from(port.0)).copied().unwrap_or_default()
    }

    /// Puts a copy of version `v` on the list of the mirror's port.
    fn copy(&self, rx: &mut RxBatch, pad: &mut Scratchpad, bridge: &BridgeState, v: usize) {
        let Some(copy) = rx.copy_version(v) else { return };
        rx.records[copy].state |= state::MIRRORED;
        if let Some(tag) = self.tag
            && !rx.push_vlan(copy, tag)
        {
            return;
        }
        if !pad.rehearsal {
            self.copied.packets.fetch_add(1, Relaxed);
            self.copied.bytes.fetch_add(rx.records[copy].len().into(), Relaxed);
        }
        emit(rx, pad, bridge, copy, &self.to, None);
    }
}

/// The mirrors in a picture of a bridge.
pub(crate) struct Mirrors(Box<[MirrorTarget]>);

impl Mirrors {
    /// Those whose port is there. `None` if there are none.
    pub(crate) fn new(asked: &[(Mirror, Arc<Copied>)], ports: &[Option<PortEntry>]) -> Option<Self> {
        let target = |(mirror, copied): &(Mirror, Arc<Copied>)| {
            let to = ports.iter().flatten().find(|entry| entry.settings.name == mirror.to)?.clone();
            let interest = |entry: &Option<PortEntry>| match entry {
                Some(entry) if mirror.copies(&entry.settings.name) => mirror.what,
                _ => Interest::default(),
            };
            let interests = ports.iter().map(interest).collect();
            Some(MirrorTarget { to, tag: mirror.vlan.map(VlanTag::new), interests, copied: copied.clone() })
        };
        let targets: Box<[MirrorTarget]> = asked.iter().filter_map(target).collect();
        (!targets.is_empty()).then_some(Self(targets))
    }

    /// Copies what came in. Called before the logic sees it.
    pub(crate) fn received(
        &self,
        rx: &mut RxBatch,
        pad: &mut Scratchpad,
        bridge: &BridgeState,
        ingress: PortIndex,
    ) {
        for target in self.0.iter().filter(|target| target.interest(ingress).received) {
            for v in 0..rx.packets {
                target.copy(rx, pad, bridge, v);
            }
        }
    }

    /// Copies what goes out. Called when all lists stand.
    pub(crate) fn sent(
        &self,
        rx: &mut RxBatch,
        pad: &mut Scratchpad,
        bridge: &BridgeState,
        ingress: PortIndex,
    ) {
        for target in self.0.iter().filter(|target| !target.interest(ingress).received) {
            // The list that each packet is copied from: its segments on one list are all copied.
            let mut from = [NIL; SOURCES];
            for i in 0..pad.list_count() {
                let Some((lane, mut at)) = pad.list(i) else { break };
                if !bridge.lane(lane as usize).is_some_and(|lane| target.interest(lane.port).sent) {
                    continue;
                }
                // Copies that go to the same list lie behind, in runs of their own or at the end of this one.
                while let Some(run) = pad.run(at) {
                    let mut v = u32::from(run.first);
                    while v < pad.run(at).map_or(0, |run| run.end()) {
                        let record = rx.records[v as usize];
                        if !record.has(state::MIRRORED)
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
    fn copies(&self, port: &str) -> bool {
        port != self.to && (self.from.is_empty() || self.from.iter().any(|from| from == port))
    }

    /// Whether it is this port that copies go to, and nothing else.
    pub(crate) fn owns(&self, port: &str) -> bool {
        self.vlan.is_none() && self.to == port
    }
}

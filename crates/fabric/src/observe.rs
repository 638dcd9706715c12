//! Watching a bridge: every packet that enters or leaves a port, shown to those who asked.
//!
//! A worker asks once a batch whether its bridge has observers; without any, nothing else is different. With some it
//! asks each of them whether it picks this batch, and if one does, takes notes: the headers as they came in, before the
//! logic edits them, what was dropped and why, and which lists there were. When the batch has been delivered and its payload still lies where the sender put it, each observer is
//! that picked it is called once and looks at the packets of the ports that it cares for:
//!
//! - at its ingress port, as it came in, with where it went or why it went nowhere;
//! - at each egress port, in the header version and form that was sent there, or that the port refused.
//!
//! Invariants: nothing here allocates, but for a bridge that grew. The sender's memory is read only by
//! [`Sighting::copy`], each byte once if each is asked for once; whatever an observer decides by, it reads in its copy.

use std::ops::Range;
use std::sync::Arc;

use packet::ether;

use crate::bridge::{Aside, BridgeState, PortEntry};
use crate::clock;
use crate::counters::DropReason;
use crate::egress::Tools;
use crate::explain::{Journal, Remark};
use crate::output::Scratchpad;
use crate::port::PortIndex;
use crate::rx::{MAX_BATCH, OFFLOAD_COPY, RxBatch, Segment, read_range};
use crate::worker;

/// Packets that ports refused before they were on a list, kept of one batch; more are only counted.
const REFUSALS: usize = 1024;

/// What an observer wants to see of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Interest {
    /// Packets that come from its client.
    pub received: bool,
    /// Packets that go to its client, those that it could not take included.
    pub sent: bool,
    /// What the logic has to say about those that come from its client.
    pub explained: bool,
}

/// Is shown the packets of a bridge.
pub trait Observer: Send + Sync {
    /// What it wants to see of a port. Called from the control plane for every port of the bridge, in the order of their
    /// indexes, whenever the bridge changes; an index that is used again was not there in a change between.
    fn interest(&self, port: PortIndex, name: &str) -> Interest;

    /// Whether it wants to be shown the `packets` packets that came in at `ingress`: asked by worker `worker` before
    /// anything is noted of them. One that takes samples says no to most batches, which then cost little more than the
    /// question. The same rules hold as for [`Observer::observe`].
    fn picks(&self, _worker: usize, _ingress: PortIndex, _packets: usize) -> bool {
        true
    }

    /// One batch of worker `worker` that it picked. Called between delivery and the sender's getting its packets back: it must not
    /// block, allocate, or wait for anyone.
    fn observe(&self, worker: usize, batch: &Sightings<'_>);

    /// The bridge is gone: nothing more will be shown. Called from the control plane.
    fn bridge_removed(&self) {}
}

/// Which way a packet was going.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the port's client into the switch.
    In,
    /// To the port's client.
    Out,
}

/// A packet, as it was at one port.
pub struct Sighting<'a> {
    /// Which packet of its batch it is: the same where it came in and where it went.
    pub packet: u16,
    /// The port.
    pub port: PortIndex,
    /// Which way it was going there.
    pub way: Way,
    /// The port that it came from.
    pub ingress: PortIndex,
    /// The first port that it was sent to, if there was one; for [`Way::Out`], the port itself.
    pub egress: Option<PortIndex>,
    /// To how many queues it was delivered.
    pub deliveries: u32,
    /// Why it went no further, or not everywhere.
    pub dropped: Option<DropReason>,
    /// Whether it is a mirror's copy.
    pub mirrored: bool,
    header: &'a [u8],
    pieces: &'a [Segment],
    payload: Range<u32>,
    remarks: &'a [Remark],
}

impl Sighting<'_> {
    /// What was found and decided about it, in order, if that was asked for.
    pub fn remarks(&self) -> impl Iterator<Item = &Remark> {
        self.remarks.iter().filter(|remark| remark.packet == self.packet)
    }

    /// Bytes in all.
    pub fn len(&self) -> u32 {
        self.header.len() as u32 + (self.payload.end - self.payload.start)
    }

    /// Never true: every packet has a header.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the packet from byte `from` on into `out`; returns how many bytes that were. What the sender still has in
    /// its memory it may change until then.
    pub fn copy(&self, from: usize, out: &mut [u8]) -> usize {
        let whole = out.len().min((self.len() as usize).saturating_sub(from));
        let Some(out) = out.get_mut(..whole) else { return 0 };
        let private = self.header.get(from..).unwrap_or_default();
        let (own, rest) = out.split_at_mut(private.len().min(out.len()));
        own.copy_from_slice(&private[..own.len()]);
        if !rest.is_empty() {
            let behind = (from + own.len() - self.header.len()) as u32;
            read_range(self.pieces, self.payload.start + behind, rest);
        }
        whole
    }
}

/// What an observer is shown of one batch.
pub struct Sightings<'a> {
    /// When the batch was switched: nanoseconds since 1970-01-01 00:00:00 UTC.
    pub at: u64,
    /// Packets that ports refused and that are not shown, for they were too many.
    pub omitted: u32,
    eye: &'a Eye,
    watch: &'a Watch,
    rx: &'a RxBatch,
    pad: &'a Scratchpad,
    bridge: &'a BridgeState,
    ingress: PortIndex,
}

impl Sightings<'_> {
    /// How many packets came in, those that were held back included.
    pub fn packets(&self) -> usize {
        self.pad.notes.arrived
    }

    /// Packet `i` of those that came in; `None` beyond the last, and if the observer does not care for them.
    pub fn received(&self, i: usize) -> Option<Sighting<'_>> {
        let notes = &self.pad.notes;
        if i >= notes.arrived || !self.eye.interest(self.ingress).received {
            return None;
        }
        let (packet, fate, source) = (i as u16, notes.fates.get(i)?, self.rx.sources.get(i)?);
        let header = notes.headers.get(i)?.get(..usize::from(fate.header_len))?;
        Some(Sighting {
            packet,
            port: self.ingress,
            way: Way::In,
            ingress: self.ingress,
            egress: fate.egress,
            deliveries: fate.deliveries,
            dropped: fate.dropped,
            mirrored: false,
            header,
            pieces: self.rx.pieces(packet),
            payload: header.len() as u32..source.len,
            remarks: notes.journal.remarks(),
        })
    }

    /// The VLAN that a packet which came in belongs to, by its tag and its port's settings, and its priority (IEEE
    /// 802.1p); VLAN 0: none, or none that it may belong to.
    pub fn vlan(&self, received: &Sighting<'_>) -> (u16, u8) {
        let tag = ether::vlan_tag(received.header);
        let vlan = self.bridge.port(self.ingress).and_then(|port| port.settings.vlan.ingress(tag));
        (vlan.unwrap_or(0), tag.map_or(0, |tag| tag.pcp))
    }

    /// Calls `f` with each packet that came in, then with each that went out, in the order of their ports' lists.
    pub fn for_each(&self, mut f: impl FnMut(&Sighting<'_>)) {
        let notes = &self.pad.notes;
        (0..notes.arrived).filter_map(|i| self.received(i)).for_each(|seen| f(&seen));
        for (lane, head) in &notes.lists {
            if self.sends(*lane) {
                for node in self.pad.nodes_from(*head) {
                    self.show_output(*lane, node.version, node.refusal(), &mut f);
                }
            }
        }
        for refusal in &notes.refusals {
            if self.sends(refusal.lane) {
                self.show_output(refusal.lane, refusal.version, Some(refusal.reason), &mut f);
            }
        }
    }

    fn sends(&self, lane: u32) -> bool {
        self.watch.port_of(lane).is_some_and(|port| self.eye.interest(port).sent)
    }

    fn show_output(
        &self,
        lane: u32,
        version: u16,
        dropped: Option<DropReason>,
        f: &mut impl FnMut(&Sighting<'_>),
    ) {
        let Some(port) = self.watch.port_of(lane) else { return };
        let v = &self.rx.versions[usize::from(version)];
        f(&Sighting {
            packet: v.packet,
            port,
            way: Way::Out,
            ingress: self.ingress,
            egress: Some(port),
            deliveries: u32::from(dropped.is_none()),
            dropped,
            mirrored: v.mirrored,
            header: self.rx.header(usize::from(version)),
            pieces: self.rx.pieces(v.packet),
            payload: v.from..v.to,
            remarks: &[],
        });
    }
}

/// An observer, and what it wants to see of each port.
struct Eye {
    observer: Arc<dyn Observer>,
    interests: Box<[Interest]>,
}

impl Eye {
    fn interest(&self, port: PortIndex) -> Interest {
        self.interests.get(usize::from(port.0)).copied().unwrap_or_default()
    }
}

/// The observers in a picture of a bridge.
pub(crate) struct Watch {
    eyes: Box<[Eye]>,
    /// The port of each queue.
    ports_of_lanes: Box<[PortIndex]>,
    /// What any of them wants to see.
    interests: Box<[Interest]>,
}

impl Watch {
    /// None without observers.
    pub(crate) fn new<'a>(
        observers: impl Iterator<Item = &'a Arc<dyn Observer>>,
        ports: &[Option<PortEntry>],
    ) -> Option<Self> {
        let interest = |observer: &Arc<dyn Observer>, index, entry: &Option<PortEntry>| {
            entry
                .as_ref()
                .map_or(Interest::default(), |e| observer.interest(PortIndex(index), &e.settings.name))
        };
        let eyes: Box<[Eye]> = observers
            .map(|observer| Eye {
                observer: observer.clone(),
                interests: (0..).zip(ports).map(|(index, entry)| interest(observer, index, entry)).collect(),
            })
            .collect();
        let any = |index: u16| {
            let of_port = eyes.iter().map(|eye| eye.interest(PortIndex(index)));
            of_port.fold(Interest::default(), either)
        };
        let interests = (0..).zip(ports).map(|(index, _)| any(index)).collect();
        // Queues are numbered in the order of their ports.
        let lanes = (0..).zip(ports).flat_map(|(index, entry)| {
            let count = entry.as_ref().map_or(0, |entry| entry.lanes as usize);
            std::iter::repeat_n(PortIndex(index), count)
        });
        (!eyes.is_empty()).then(|| Self { ports_of_lanes: lanes.collect(), interests, eyes })
    }

    fn port_of(&self, lane: u32) -> Option<PortIndex> {
        self.ports_of_lanes.get(lane as usize).copied()
    }

    fn interest(&self, port: PortIndex) -> Interest {
        self.interests.get(usize::from(port.0)).copied().unwrap_or_default()
    }

    /// Asks who picks a batch, and what they want to see of its ingress port. `None` if nobody does.
    fn ask(&self, notes: &mut Notes, ingress: PortIndex, packets: usize) -> Option<Interest> {
        notes.picked.clear();
        notes.picked.reserve(self.eyes.len());
        let mut wanted = None;
        for eye in &self.eyes {
            let picked = eye.observer.picks(notes.worker, ingress, packets);
            notes.picked.push(picked);
            if picked {
                wanted = Some(either(wanted.unwrap_or_default(), eye.interest(ingress)));
            }
        }
        wanted
    }
}

/// What one or the other wants to see.
fn either(one: Interest, other: Interest) -> Interest {
    Interest {
        received: one.received || other.received,
        sent: one.sent || other.sent,
        explained: one.explained || other.explained,
    }
}

/// What became of a received packet.
#[derive(Debug, Clone, Copy, Default)]
struct Fate {
    header_len: u16,
    egress: Option<PortIndex>,
    deliveries: u32,
    /// The list that it was last found on: its segments on one list are one delivery.
    list: Option<u32>,
    dropped: Option<DropReason>,
}

/// A version that a port could not take.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    version: u16,
    lane: u32,
    reason: DropReason,
}

/// A worker's notes on the batch that it is at.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) worker: usize,
    taken: bool,
    at: Option<u64>,
    omitted: u32,
    /// Which observers picked the batch.
    picked: Vec<bool>,
    /// Headers as they came in, and what became of them, if somebody wants to see the ingress port.
    headers: Box<[[u8; OFFLOAD_COPY]]>,
    fates: Box<[Fate]>,
    lists: Vec<(u32, u32)>,
    refusals: Vec<Refusal>,
    /// What was held back where it came in, one after the other: why, and how many packets.
    held: Vec<(DropReason, u32)>,
    /// Packets that came in, those included.
    arrived: usize,
    wanted: Interest,
    pub(crate) journal: Journal,
}

impl Notes {
    /// Those of worker `index`.
    pub(crate) fn of_worker(index: usize) -> Self {
        Self {
            worker: index,
            // Of zeroes: no memory is used until somebody observes.
            headers: vec![[0; OFFLOAD_COPY]; MAX_BATCH].into(),
            fates: vec![Fate::default(); MAX_BATCH].into(),
            refusals: Vec::with_capacity(REFUSALS),
            held: Vec::with_capacity(4),
            journal: Journal::new(),
            ..Self::default()
        }
    }

    /// Whether this batch is observed.
    #[inline]
    pub(crate) fn are_taken(&self) -> bool {
        self.taken
    }

    /// Received packet `packet` was dropped.
    #[inline]
    pub(crate) fn dropped(&mut self, packet: u16, reason: DropReason) {
        if self.taken
            && let Some(fate) = self.fates.get_mut(usize::from(packet))
        {
            fate.dropped = Some(reason);
            self.journal.add(|| Remark::of_drop(packet, reason));
        }
    }

    /// Version `version` could not be put on the list of queue `lane`.
    #[inline]
    pub(crate) fn refused(&mut self, version: u16, lane: u32, reason: DropReason) {
        if !self.taken {
            return;
        }
        if self.refusals.len() < self.refusals.capacity() {
            self.refusals.push(Refusal { version, lane, reason });
        } else {
            self.omitted += 1;
        }
    }

    /// Before anything is done with a batch of whose ingress port this is `wanted`.
    pub(crate) fn begin(&mut self, wanted: Interest, lanes: usize) {
        self.taken = true;
        self.wanted = wanted;
        self.at = wanted.received.then(clock::since_epoch);
        self.omitted = 0;
        self.lists.clear();
        self.lists.reserve(lanes);
        self.refusals.clear();
        self.held.clear();
        self.arrived = 0;
        self.journal.begin(wanted.explained);
    }

    /// Packets were held back; they follow those of the batch.
    pub(crate) fn held(&mut self, reason: DropReason, count: u32) {
        if self.taken && self.held.len() < self.held.capacity() {
            self.held.push((reason, count));
        }
    }

    /// Before the logic sees the batch.
    pub(crate) fn arrived(&mut self, rx: &RxBatch) {
        if !self.taken {
            return;
        }
        if self.wanted.received {
            (0..rx.packets).for_each(|i| self.note_arrival(rx, i));
        }
        self.arrived = rx.packets;
        // Who held back last took from what the others had left.
        while let Some((reason, count)) = self.held.pop() {
            for _ in 0..count {
                self.note_arrival(rx, self.arrived);
                self.dropped(self.arrived as u16, reason);
                self.arrived += 1;
            }
        }
    }

    fn note_arrival(&mut self, rx: &RxBatch, i: usize) {
        let (Some(to), Some(fate)) = (self.headers.get_mut(i), self.fates.get_mut(i)) else { return };
        *fate = Fate::default();
        if self.wanted.received {
            let header = rx.header(i);
            if let Some(to) = to.get_mut(..header.len()) {
                to.copy_from_slice(header);
            }
            fate.header_len = header.len() as u16;
        }
    }

    /// The logic is done: what it said nothing about has no destination.
    pub(crate) fn forgotten(&mut self, rx: &RxBatch) {
        if self.wanted == Interest::default() {
            return;
        }
        for (i, handled) in (0..rx.packets as u16).zip(&rx.handled) {
            if !handled {
                self.dropped(i, DropReason::NoDestination);
            }
        }
    }

    /// What ports refused: version, queue and reason.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (u16, u32, DropReason)> {
        self.refusals.iter().map(|refusal| (refusal.version, refusal.lane, refusal.reason))
    }

    /// The batch has been delivered.
    fn end(&mut self) {
        self.taken = false;
        self.journal.open = false;
    }

    /// All lists stand: each queue and where its list starts.
    pub(crate) fn listed(&mut self, watch: &Watch, lists: impl Iterator<Item = (u32, u32)>) {
        let mut wanted = false;
        for (lane, head) in lists {
            wanted |= watch.port_of(lane).is_some_and(|port| watch.interest(port).sent);
            if self.lists.len() < self.lists.capacity() {
                self.lists.push((lane, head));
            }
        }
        if wanted && self.at.is_none() {
            self.at = Some(clock::since_epoch());
        }
    }
}

/// A worker's `forward` for a bridge that is mirrored, or observed.
pub(crate) fn forward(
    rx: &mut RxBatch,
    pad: &mut Scratchpad,
    tools: &mut Tools,
    bridge: &BridgeState,
    ingress: PortIndex,
    aside: &Aside,
) {
    match pick(pad, ingress, rx.packets, aside) {
        None if aside.mirrors.is_none() => worker::straight(rx, pad, tools, bridge, ingress),
        picked => decided(rx, pad, tools, bridge, ingress, picked, |rx, pad, bridge| {
            worker::detour(rx, pad, bridge, ingress);
        }),
    }
}

/// The same for packets that a logic originates.
pub(crate) fn originate(
    rx: &mut RxBatch,
    pad: &mut Scratchpad,
    tools: &mut Tools,
    bridge: &BridgeState,
    aside: &Aside,
) {
    let picked = pick(pad, PortIndex::NONE, 0, aside);
    decided(rx, pad, tools, bridge, PortIndex::NONE, picked, worker::wake);
}

/// Who is to be shown a batch, and what.
type Picked<'a> = Option<(&'a Watch, Interest)>;

fn pick<'a>(pad: &mut Scratchpad, ingress: PortIndex, packets: usize, aside: &'a Aside) -> Picked<'a> {
    let watch = aside.watch.as_ref()?;
    Some((watch, watch.ask(&mut pad.notes, ingress, packets)?))
}

/// Delivers what `decide` puts on the lists, with notes taken if somebody has picked the batch, and shown to them.
#[inline(never)]
fn decided(
    rx: &mut RxBatch,
    pad: &mut Scratchpad,
    tools: &mut Tools,
    bridge: &BridgeState,
    ingress: PortIndex,
    picked: Picked<'_>,
    decide: impl FnOnce(&mut RxBatch, &mut Scratchpad, &BridgeState),
) {
    let Some((watch, wanted)) = picked else {
        decide(rx, pad, bridge);
        return worker::deliver(rx, pad, tools, bridge);
    };
    pad.notes.begin(wanted, bridge.lane_count());
    decide(rx, pad, bridge);
    pad.note_lists(watch);
    worker::deliver(rx, pad, tools, bridge);
    pad.notes.end();
    if wanted.received {
        settle(rx, pad, watch);
    }
    let refused =
        pad.notes.refusals.iter().any(|r| watch.port_of(r.lane).is_some_and(|p| watch.interest(p).sent));
    let Some(at) = pad.notes.at.or_else(|| refused.then(clock::since_epoch)) else { return };
    for (eye, _) in watch.eyes.iter().zip(&pad.notes.picked).filter(|(_, picked)| **picked) {
        let (pad, omitted) = (&*pad, pad.notes.omitted);
        eye.observer
            .observe(pad.notes.worker, &Sightings { at, omitted, eye, watch, rx, pad, bridge, ingress });
    }
}

/// Where received packets went, by the lists as they are after delivery.
fn settle(rx: &RxBatch, pad: &mut Scratchpad, watch: &Watch) {
    let mut fates = std::mem::take(&mut pad.notes.fates);
    let mut went = |version: u16, lane: u32, refusal: Option<DropReason>| {
        // What a mirror copied is no delivery of the packet.
        let version = rx.versions.get(usize::from(version)).filter(|version| !version.mirrored);
        let Some(fate) = version.and_then(|v| fates.get_mut(usize::from(v.packet))) else { return };
        if fate.deliveries == 0 {
            fate.egress = watch.port_of(lane);
        }
        match refusal {
            Some(reason) => fate.dropped = Some(reason),
            None if fate.list != Some(lane) => {
                fate.list = Some(lane);
                fate.deliveries += 1;
            }
            None => {}
        }
    };
    for (lane, head) in &pad.notes.lists {
        for node in pad.nodes_from(*head) {
            went(node.version, *lane, node.refusal());
        }
    }
    for refusal in &pad.notes.refusals {
        went(refusal.version, refusal.lane, Some(refusal.reason));
    }
    pad.notes.fates = fates;
}

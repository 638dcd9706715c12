//! Observers: are shown the packets that enter or leave the ports of a bridge.
//!
//! A worker checks once a batch whether its bridge has observers; without any, that is the only cost. If an observer
//! looks at the ingress port, or the batch turns out to concern a port that one looks at, the worker asks each observer
//! whether it picks this batch. If one does, the worker takes notes (`notes.rs`): the headers as they came in, before
//! the logic edits them, drops and their reasons, and lists. When the batch has been delivered and its payload is still
//! in the sender's memory, each selected observer is called once and looks at the packets of the ports that it is
//! interested in:
//!
//! - at its ingress port, as it came in, with its destination or drop reason;
//! - at each egress port, in the header version and form that was sent there, or that the port refused.
//!
//! Invariants: nothing here allocates, except after a bridge has grown. Only [`Sighting::copy`] reads the sender's
//! memory, each byte once if each is asked for once; an observer decides by its own copy only.

use std::ops::Range;

use packet::ether;

use crate::bridge::port::{PortIndex, VlanMode};
use crate::counters::DropReason;
use crate::lists::scratchpad::Scratchpad;
use crate::observe::explain::Remark;
pub use crate::observe::interest::Interest;
use crate::observe::observers::{ObserverSlot, Observers};
use crate::rx::RxBatch;
use crate::rx::record::{Source, state};
use crate::worker::per_thread::Threads;

/// Is shown the packets of a bridge.
pub trait Observer: Send + Sync {
    /// Returns the packets of a port that it wants to see. Called by the control plane for every port of the bridge, in
    /// the order of their indexes, whenever the bridge changes; an index is reused only after a change without it.
    fn interest(&self, port: PortIndex, name: &str) -> Interest;

    /// Prepares the observer for these threads. Called by the control plane before everything else, and again before a
    /// worker is added, for more threads; then batches may be under way.
    fn prepare(&self, _threads: Threads) {}

    /// Decides whether to be shown the `packets` packets that came in at `ingress`: called by worker `worker` before it
    /// takes notes on them. An observer that samples refuses most batches, which then cost little more than this call.
    /// It may not be called for a batch that holds nothing any observer of the bridge wants to see. The rules of
    /// [`Observer::observe`] apply.
    fn picks(&self, _worker: usize, _ingress: PortIndex, _packets: usize) -> bool {
        true
    }

    /// Observes one batch of worker `worker` that it picked. Called after delivery and before the sender gets its
    /// packets back: it must not block, allocate, or wait.
    fn observe(&self, worker: usize, batch: &Sightings<'_>);

    /// The bridge was removed: nothing more will be shown. Called by the control plane.
    fn bridge_removed(&self) {}
}

/// Direction of a packet at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the port's client into the switch.
    In,
    /// To the port's client.
    Out,
}

/// A packet as it was at one port.
pub struct Sighting<'a> {
    /// Number of the packet in its batch: the same where it came in and where it went.
    pub packet: u16,
    /// The port.
    pub port: PortIndex,
    /// Direction at this port.
    pub way: Way,
    /// The port that it came from.
    pub ingress: PortIndex,
    /// The first port that it was sent to, if any; for [`Way::Out`], the port itself.
    pub egress: Option<PortIndex>,
    /// Number of queues that it was delivered to.
    pub deliveries: u32,
    /// Why it went no further, or not everywhere.
    pub dropped: Option<DropReason>,
    /// Whether it is a mirror's copy.
    pub mirrored: bool,
    header: &'a [u8],
    source: Source<'a>,
    payload: Range<u32>,
    remarks: &'a [Remark],
}

impl Sighting<'_> {
    /// The remarks on it, in order, if requested.
    pub fn remarks(&self) -> impl Iterator<Item = &Remark> {
        self.remarks.iter().filter(|remark| remark.packet == self.packet)
    }

    /// The front of the packet, as far as it is in memory that its sender cannot change.
    pub fn header(&self) -> &[u8] {
        self.header
    }

    /// Total length, bytes.
    pub fn len(&self) -> u32 {
        self.header.len() as u32 + (self.payload.end - self.payload.start)
    }

    /// Never true: every packet has a header.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the packet from byte `from` on into `out`; returns the number of bytes. Bytes in the sender's memory may
    /// change until then.
    pub fn copy(&self, from: usize, out: &mut [u8]) -> usize {
        let whole = out.len().min((self.len() as usize).saturating_sub(from));
        let Some(out) = out.get_mut(..whole) else { return 0 };
        let private = self.header.get(from..).unwrap_or_default();
        let (own, rest) = out.split_at_mut(private.len().min(out.len()));
        own.copy_from_slice(&private[..own.len()]);
        if !rest.is_empty() {
            let behind = (from + own.len() - self.header.len()) as u32;
            self.source.read(self.payload.start + behind, rest);
        }
        whole
    }
}

/// One batch as an observer is shown it.
pub struct Sightings<'a> {
    /// When the batch was switched: nanoseconds since 1970-01-01 00:00:00 UTC.
    pub at: u64,
    /// Packets refused by ports that are not shown because there were too many.
    pub omitted: u32,
    pub(crate) slot: &'a ObserverSlot,
    pub(crate) observers: &'a Observers,
    pub(crate) rx: &'a RxBatch,
    pub(crate) pad: &'a Scratchpad,
    /// The VLAN settings of the ingress port.
    pub(crate) vlan: Option<&'a VlanMode>,
    pub(crate) ingress: PortIndex,
}

impl Sightings<'_> {
    /// Number of packets that came in, including those dropped by rate limits.
    pub fn packets(&self) -> usize {
        self.pad.notes.arrived
    }

    /// Packet `i` of those that came in; `None` beyond the last, or if the observer is not interested in them.
    pub fn received(&self, i: usize) -> Option<Sighting<'_>> {
        let notes = &self.pad.notes;
        if i >= notes.arrived || !self.slot.interest(self.ingress).received {
            return None;
        }
        let (packet, fate, record) = (i as u16, notes.fates.get(i)?, self.rx.records.get(i)?);
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
            source: self.rx.source(record),
            payload: header.len() as u32..record.to,
            remarks: notes.journal.remarks(),
        })
    }

    /// The VLAN of a packet that came in, by its tag and its port's settings, and its priority (IEEE 802.1p); VLAN 0:
    /// none, or not admitted.
    pub fn vlan(&self, received: &Sighting<'_>) -> (u16, u8) {
        let tag = ether::vlan_tag(received.header);
        let vlan = self.vlan.and_then(|mode| mode.ingress(tag));
        (vlan.unwrap_or(0), tag.map_or(0, |tag| tag.pcp))
    }

    /// Calls `f` with each packet that came in, then with each that went out, in the order of their ports' lists.
    pub fn for_each(&self, mut f: impl FnMut(&Sighting<'_>)) {
        let notes = &self.pad.notes;
        (0..notes.arrived).filter_map(|i| self.received(i)).for_each(|seen| f(&seen));
        for (lane, head) in &notes.lists {
            if self.sends(*lane) {
                for (version, refusal) in self.pad.outputs_from(*head) {
                    self.show_output(*lane, version, refusal, &mut f);
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
        self.observers.port_of(lane).is_some_and(|port| self.slot.interest(port).sent)
    }

    fn show_output(
        &self,
        lane: u32,
        version: u16,
        dropped: Option<DropReason>,
        f: &mut impl FnMut(&Sighting<'_>),
    ) {
        let Some(port) = self.observers.port_of(lane) else { return };
        let record = &self.rx.records[usize::from(version)];
        f(&Sighting {
            packet: record.packet,
            port,
            way: Way::Out,
            ingress: self.ingress,
            egress: Some(port),
            deliveries: u32::from(dropped.is_none()),
            dropped,
            mirrored: record.has(state::MIRRORED),
            header: self.rx.header(usize::from(version)),
            source: self.rx.source(record),
            payload: record.from..record.to,
            remarks: &[],
        });
    }
}

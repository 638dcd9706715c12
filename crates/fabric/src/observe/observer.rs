//! Watching a bridge: every packet that enters or leaves a port, shown to those who asked.
//!
//! A worker asks once a batch whether its bridge has observers; without any, nothing else is different. If one looks at
//! the ingress port, or the batch turns out to concern a port that one looks at, the worker asks each of them whether it
//! picks this batch, and if one does, takes notes: the headers as they came in, before the logic edits them, what was dropped
//! and why, and which lists there were (`notes.rs`). When the batch has been delivered and its payload still lies where the
//! sender put it, each selected observer is called once and looks at the packets of the ports that it cares for:
//!
//! - at its ingress port, as it came in, with where it went or why it went nowhere;
//! - at each egress port, in the header version and form that was sent there, or that the port refused.
//!
//! Invariants: nothing here allocates, but for a bridge that grew. The sender's memory is read only by
//! [`Sighting::copy`], each byte once if each is asked for once; whatever an observer decides by, it reads in its copy.

use std::ops::Range;

use packet::ether;

use crate::bridge::port::{PortIndex, VlanMode};
use crate::counters::DropReason;
use crate::lists::scratchpad::Scratchpad;
use crate::observe::explain::Remark;
pub use crate::observe::interest::Interest;
use crate::observe::observers::{ObserverSlot, Watch};
use crate::rx::RxBatch;
use crate::rx::record::{Source, state};

/// Is shown the packets of a bridge.
pub trait Observer: Send + Sync {
    /// What it wants to see of a port. Called from the control plane for every port of the bridge, in the order of their
    /// indexes, whenever the bridge changes; an index that is used again was not there in a change between.
    fn interest(&self, port: PortIndex, name: &str) -> Interest;

    /// Whether it wants to be shown the `packets` packets that came in at `ingress`: asked by worker `worker` before
    /// anything is noted of them. One that takes samples says no to most batches, which then cost little more than the
    /// question. It may not be asked about a batch of which no observer of the bridge wants to see anything. The same rules hold
    /// as for [`Observer::observe`].
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
    source: Source<'a>,
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
            self.source.read(self.payload.start + behind, rest);
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
    pub(crate) slot: &'a ObserverSlot,
    pub(crate) watch: &'a Watch,
    pub(crate) rx: &'a RxBatch,
    pub(crate) pad: &'a Scratchpad,
    /// The VLAN settings of the ingress port.
    pub(crate) vlan: Option<&'a VlanMode>,
    pub(crate) ingress: PortIndex,
}

impl Sightings<'_> {
    /// How many packets came in, those that were held back included.
    pub fn packets(&self) -> usize {
        self.pad.notes.arrived
    }

    /// Packet `i` of those that came in; `None` beyond the last, and if the observer does not care for them.
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

    /// The VLAN that a packet which came in belongs to, by its tag and its port's settings, and its priority (IEEE
    /// 802.1p); VLAN 0: none, or none that it may belong to.
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
        self.watch.port_of(lane).is_some_and(|port| self.slot.interest(port).sent)
    }

    fn show_output(
        &self,
        lane: u32,
        version: u16,
        dropped: Option<DropReason>,
        f: &mut impl FnMut(&Sighting<'_>),
    ) {
        let Some(port) = self.watch.port_of(lane) else { return };
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

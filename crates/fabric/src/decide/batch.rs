//! The logic's view of a batch: its packets, their private headers, and the methods that send them on.

use std::net::IpAddr;

use packet::ether::{self, MacAddr, VlanTag};
use packet::offload::Offload;

use crate::bridge::port::{PortIndex, VlanMode};
use crate::bridge::state::{BridgeState, Destination, PortEntry, View};
use crate::clock;
use crate::counters::DropReason;
use crate::decide::chained::Packets;
use crate::lists::emit::emit;
use crate::lists::offloads;
use crate::lists::scratchpad::Scratchpad;
use crate::observe::explain::{Remark, Text, Value};
use crate::protect::policing::RateLimits;
use crate::protect::protection::{Claim, Security};
use crate::rx::arena::Arena;
use crate::rx::record::state;
use crate::rx::{HEADROOM, PULL_MAX, RxBatch};

/// A header version: one packet with one set of private header bytes. The received packets are versions too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionId(pub(crate) u16);

/// Lanes of ports on whose lists ranges of packets are put lane by lane.
const FEW_LANES: u32 = 4;

impl VersionId {
    /// The first packet of a batch.
    pub const FIRST: VersionId = VersionId(0);

    /// Number in the batch, which is also that of its slot in an [`Arena`].
    #[inline]
    pub fn number(self) -> usize {
        self.0.into()
    }
}

/// The packets of one batch and their destinations. See [`crate::SwitchLogic`].
pub struct Batch<'a> {
    pub(crate) rx: &'a mut RxBatch,
    pub(crate) pad: &'a mut Scratchpad,
    pub(crate) bridge: &'a BridgeState,
    /// Ports that these packets may go to.
    pub(crate) view: &'a View,
    pub(crate) ingress: PortIndex,
    /// Nanoseconds.
    pub(crate) now: u64,
    pub(crate) rehearsal: bool,
    /// Packets that earlier stages of a chain left undecided; `None` for the first or only logic.
    pub(crate) left: Option<&'a [(u16, u16)]>,
}

impl<'a> Batch<'a> {
    /// View of the packets of `rx`, which came from `ingress` and may go to the ports of `view`.
    #[inline(always)]
    pub(crate) fn new(
        rx: &'a mut RxBatch,
        pad: &'a mut Scratchpad,
        bridge: &'a BridgeState,
        view: &'a View,
        ingress: PortIndex,
    ) -> Self {
        let (now, rehearsal) = (clock::coarse_nanoseconds(), pad.rehearsal);
        Self { rx, pad, bridge, view, ingress, now, rehearsal, left: None }
    }

    /// The received packets, in order; for a later stage of a chain, those that no earlier stage has decided.
    #[inline]
    pub fn packets(&self) -> Packets<'a> {
        Packets::of(self.rx.packets, self.left)
    }

    /// Number and bytes of [`Batch::packets`], as they were received.
    #[inline]
    pub fn received(&self) -> (u64, u64) {
        if self.left.is_none() {
            return (self.rx.packets as u64, self.rx.bytes.saturating_sub(self.rx.removed_bytes));
        }
        self.packets().fold((0, 0), |(packets, bytes), v| (packets + 1, bytes + u64::from(self.len(v))))
    }

    /// The port they came from.
    #[inline]
    pub fn ingress(&self) -> PortIndex {
        self.ingress
    }

    /// The receive queue of that port that they came through, from 0.
    #[inline]
    pub fn ingress_queue(&self) -> u16 {
        self.rx.queue
    }

    /// The mark with which these packets were injected ([`crate::Injection::Marked`]); 0 for all others.
    #[inline]
    pub fn injection_mark(&self) -> u16 {
        self.rx.mark
    }

    /// Monotonic time, nanoseconds, on the clock of [`Batch::now`]. Costs a vDSO call each time.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        clock::nanoseconds()
    }

    /// Index of the calling worker; a rehearsal has one too, though it runs on another thread.
    #[inline]
    pub fn worker(&self) -> usize {
        self.pad.notes.worker
    }

    /// The version of this number, if it exists.
    #[inline]
    pub fn version(&self, number: usize) -> Option<VersionId> {
        (number < self.rx.used_versions).then_some(VersionId(number as u16))
    }

    /// Whether headers lie in this arena, each at [`Batch::start`] of the slot of its version's number.
    #[inline]
    pub fn is_in(&self, arena: Arena) -> bool {
        self.rx.slots.are_in(arena)
    }

    /// Start of a version's header in its slot, bytes.
    #[inline]
    pub fn start(&self, v: VersionId) -> usize {
        self.rx.records[usize::from(v.0)].start.into()
    }

    /// Moves the start of a version's header in its slot: forward, dropping bytes, or back, over the bytes already
    /// there. If it cannot start there, or no longer agrees with its offload metadata, the packet is dropped and
    /// counted; returns false then.
    pub fn set_start(&mut self, v: VersionId, start: usize) -> bool {
        let i = usize::from(v.0);
        let fits = u16::try_from(start).is_ok_and(|start| self.rx.set_start(i, start));
        if !fits {
            self.drop_output(v, DropReason::BatchLimit);
        }
        fits && self.still_describes(v)
    }

    /// Whether the port says something of any packet.
    #[inline]
    pub fn has_notes(&self) -> bool {
        self.rx.has_notes
    }

    /// What the port says of a received packet, which has the packet's form: [`RxBatch::end_packet_with_note`].
    #[inline]
    pub fn note(&self, v: VersionId) -> Option<&[u8]> {
        self.rx.note(usize::from(v.0))
    }

    /// Work left to do on a version.
    #[inline]
    pub fn offload(&self, v: VersionId) -> Offload {
        self.rx.offload(usize::from(v.0))
    }

    /// Checks that offload metadata still describes an edited header; if not, the packet is dropped and counted.
    pub fn still_describes(&mut self, v: VersionId) -> bool {
        let i = usize::from(v.0);
        let record = &self.rx.records[i];
        if !record.has(state::OFFLOAD)
            || self.rx.work[i].offload.validate(self.rx.header(i), record.len()).is_ok()
        {
            return true;
        }
        self.drop_output(v, DropReason::BadOffload);
        false
    }

    /// Creates a further version with the same bytes. `None` (counted) if the batch has too many.
    pub fn copy(&mut self, v: VersionId) -> Option<VersionId> {
        let Some(fresh) = self.rx.copy_version(usize::from(v.0)) else {
            self.drop_output(v, DropReason::BatchLimit);
            return None;
        };
        Some(VersionId(fresh as u16))
    }

    /// Monotonic time of this batch, seconds.
    #[inline]
    pub fn now(&self) -> u32 {
        clock::whole_seconds(self.now)
    }

    /// Monotonic time of this batch, nanoseconds: that of the clock's last tick, some milliseconds ago.
    #[inline]
    pub fn coarse_now_ns(&self) -> u64 {
        self.now
    }

    /// Whether this only predicts a packet's fate: nothing is sent, and nothing that outlives the batch may change.
    #[inline]
    pub fn is_rehearsal(&self) -> bool {
        self.rehearsal
    }

    /// Records a finding or decision about a packet, for [`crate::SwitchLogic::explain`]; `text` has a `{}` for each of
    /// up to four values. Costs one check unless an explanation was requested.
    #[inline]
    pub fn remark(&mut self, v: VersionId, text: &'static str, values: &[Value]) {
        let packet = self.rx.records[usize::from(v.0)].packet;
        self.pad.notes.journal.add(|| Remark::new(packet, text, values));
    }

    /// Ports that have a client and that these packets may go to, including the ingress port unless it is isolated.
    #[inline]
    pub fn live_ports(&self) -> &'a [PortIndex] {
        self.view.live()
    }

    /// Whether a port is among [`Batch::live_ports`].
    #[inline]
    pub fn reaches(&self, port: PortIndex) -> bool {
        self.view.port(port).is_some_and(|entry| entry.lanes > 0)
    }

    /// Packets that wait at a port for its receiver, as far as the port can tell: those that were delivered and that the
    /// receiver has not taken yet, and those in queues of the switch's own in front of it ([`Egress::depth`]). Packets of
    /// this batch do not count. In a rehearsal queues are empty.
    ///
    /// It takes the locks of the port's queues, looks at its client's memory, and may cost a system call: a logic asks
    /// once for a batch and a port, and remembers the answer.
    ///
    /// [`Egress::depth`]: crate::Egress::depth
    pub fn depth(&self, port: PortIndex) -> u32 {
        let Some(entry) = self.view.port(port).filter(|_| !self.rehearsal) else { return 0 };
        let lanes = (entry.first_lane..).take(entry.lanes as usize);
        let lanes = lanes.filter_map(|lane| self.bridge.lane(lane as usize));
        let depths = lanes.map(|lane| self.pad.activity.looking_at(&lane.client, || lane.depth()));
        depths.fold(0, u32::saturating_add)
    }

    /// All ports of the bridge by index, whether they take packets or not. For explanations: it walks all of them.
    pub fn ports(&self) -> impl Iterator<Item = PortIndex> + use<'a> {
        self.view.ports()
    }

    /// The reason for which a port takes none of these packets, in words that follow its name; `None` if it takes them.
    pub fn obstacle(&self, port: PortIndex) -> Option<Text> {
        match self.view.port(port) {
            Some(entry) => (entry.lanes == 0).then(|| entry.obstacle()),
            None => Some(Text::of("is not a port of this bridge")),
        }
    }

    /// The name of a port.
    pub fn name(&self, port: PortIndex) -> Option<&'a str> {
        self.bridge.port(port).map(|entry| entry.settings.name.as_str())
    }

    /// Security settings of the ingress port; `None`: all stations may send.
    #[inline]
    pub fn security(&self) -> Option<&'a Security> {
        let entry = self.bridge.port(self.ingress).filter(|entry| entry.violations.is_some())?;
        Some(&entry.settings.security)
    }

    /// The port that a station heard at the ingress port in VLAN `vid` belongs to.
    #[inline]
    pub fn claim(&self, vid: u16, mac: MacAddr) -> Claim {
        self.bridge.claim(self.ingress, vid, mac)
    }

    /// Whether any port has VLAN settings of its own; if none has, frames pass unchanged.
    #[inline]
    pub fn vlan_aware(&self) -> bool {
        self.bridge.vlan_aware()
    }

    /// The VLAN settings of a port.
    #[inline]
    pub fn vlan(&self, port: PortIndex) -> Option<&'a VlanMode> {
        self.bridge.port(port).map(|entry| &entry.settings.vlan)
    }

    /// Private header bytes of a version: the first 128 of the packet, fewer if it is shorter, more after
    /// [`Batch::pull`].
    #[inline]
    pub fn header(&self, v: VersionId) -> &[u8] {
        self.rx.header(usize::from(v.0))
    }

    /// Length of the whole packet, bytes.
    #[inline]
    pub fn len(&self, v: VersionId) -> u32 {
        self.rx.records[usize::from(v.0)].len()
    }

    /// Whether the batch holds no packet; a logic is never called with such a batch.
    pub fn is_empty(&self) -> bool {
        self.rx.is_empty()
    }

    /// Brings at least the first `n` bytes (at most 512) of a packet into its private header, as far as the packet
    /// goes. Returns how many are there. Only for a version that no output refers to.
    pub fn pull(&mut self, v: VersionId, n: usize) -> usize {
        let i = usize::from(v.0);
        let record = self.rx.records[i];
        let have = usize::from(record.header_len);
        let end = HEADROOM + PULL_MAX - usize::from(record.start);
        let more = n.min(end).saturating_sub(have).min(record.payload_len() as usize);
        if more == 0 || record.has(state::SENT) {
            return have;
        }
        let mut bytes = [0; PULL_MAX];
        let bytes = &mut bytes[..more.min(PULL_MAX)];
        self.rx.source(&record).read(record.from, bytes);
        let at = usize::from(record.start) + have;
        self.rx.slots[i].0[at..at + bytes.len()].copy_from_slice(bytes);
        self.rx.records[i].header_len += bytes.len() as u16;
        self.rx.records[i].from += bytes.len() as u32;
        have + bytes.len()
    }

    /// Copies the bytes of a packet that are still in its sender's memory to memory that no client can change: so what a
    /// logic reads is what is delivered. False if there is no room or an output refers to the version; the packet is
    /// dropped and counted then.
    pub fn keep(&mut self, v: VersionId) -> bool {
        let kept = self.rx.keep(usize::from(v.0));
        if !kept {
            self.drop_output(v, DropReason::BatchLimit);
        }
        kept
    }

    /// The bytes of a version behind its private header, after [`Batch::keep`]; `None` if they are in the sender's
    /// memory.
    #[inline]
    pub fn kept(&self, v: VersionId) -> Option<&[u8]> {
        self.rx.kept(usize::from(v.0))
    }

    /// Returns a version with the same bytes that may be edited: `v` itself while no output refers to it, otherwise a
    /// copy. `None` (counted) if the batch has too many versions.
    pub fn edit(&mut self, v: VersionId) -> Option<VersionId> {
        let i = usize::from(v.0);
        if !self.rx.records[i].has(state::SENT) {
            return Some(v);
        }
        let Some(fresh) = self.rx.copy_version(i) else {
            self.drop_output(v, DropReason::BatchLimit);
            return None;
        };
        Some(VersionId(fresh as u16))
    }

    /// The header bytes for editing; `None` while an output refers to this version: call [`Batch::edit`] first.
    pub fn header_mut(&mut self, v: VersionId) -> Option<&mut [u8]> {
        let i = usize::from(v.0);
        let record = self.rx.records[i];
        if record.has(state::SENT) {
            return None;
        }
        let start = usize::from(record.start);
        Some(&mut self.rx.slots[i].0[start..start + usize::from(record.header_len)])
    }

    /// Returns a version with `tag` as the outermost VLAN tag. `None` (counted) if there is no room.
    pub fn push_vlan(&mut self, v: VersionId, tag: VlanTag) -> Option<VersionId> {
        let v = self.edit(v)?;
        if !self.rx.push_vlan(usize::from(v.0), tag) {
            self.drop_output(v, DropReason::BatchLimit);
            return None;
        }
        Some(v)
    }

    /// Returns a version without the outermost VLAN tag, if there was one.
    pub fn pop_vlan(&mut self, v: VersionId) -> Option<VersionId> {
        let v = self.edit(v)?;
        self.rx.pop_vlan(usize::from(v.0));
        Some(v)
    }

    /// Makes of a version `head`, then bytes `from..to` of the version as it was; offsets of offload metadata move with
    /// the bytes from `from` on. Only for a version that no output refers to, and for bytes in front that are in its
    /// private header. If it does not fit, or no longer agrees with its offload metadata, the packet is dropped and
    /// counted; returns false then.
    pub fn replace_front(&mut self, v: VersionId, head: &[u8], from: u32, to: u32) -> bool {
        let fits = self.rx.replace_front(usize::from(v.0), head, from, to);
        if !fits {
            self.drop_output(v, DropReason::BatchLimit);
        }
        fits && self.still_describes(v)
    }

    /// Sends a version to a port. Sending to the ingress port is refused and counted; see [`Batch::reflect`].
    #[inline]
    pub fn send(&mut self, v: VersionId, port: PortIndex) {
        if port == self.ingress {
            return self.drop_output(v, DropReason::SamePort);
        }
        self.send_anywhere(v, port);
    }

    /// Sends a version to a port through transmit queue `queue`, instead of the one that the port chooses. A
    /// number beyond the port's queues means its last queue. If the port has limits by class, its classes are its
    /// queues, and the port chooses.
    pub fn send_to_queue(&mut self, v: VersionId, port: PortIndex, queue: u16) {
        if port == self.ingress {
            return self.drop_output(v, DropReason::SamePort);
        }
        match self.view.port(port) {
            Some(entry) if entry.lanes > 0 => {
                self.mark(v);
                let queue = (!entry.has_classes).then_some(queue);
                emit(self.rx, self.pad, self.bridge, usize::from(v.0), entry, queue);
            }
            closed => self.drop_closed(v, port, closed),
        }
    }

    /// Sets the traffic class of a version, for ports with classes ([`crate::protection::EgressLimits`]). By default it is
    /// that of the port where the packet came in ([`crate::protection::Classification`]), or that with which it left
    /// another bridge, or 0. Only for a version that no output refers to.
    pub fn set_class(&mut self, v: VersionId, class: u16) {
        let record = &mut self.rx.records[usize::from(v.0)];
        if !record.has(state::SENT) {
            record.class = class;
            self.rx.classes |= class;
        }
    }

    /// Returns the plain versions of a packet: its segments with complete checksums, or the version itself if no work
    /// is left. A logic that encapsulates asks for them first and puts its header in front of each, since offload
    /// metadata cannot describe headers within headers. `None` (counted) if the batch has too many versions, or the
    /// metadata does not describe the packet.
    pub fn make_plain(&mut self, v: VersionId) -> Option<impl Iterator<Item = VersionId> + use<>> {
        let i = usize::from(v.0);
        let versions = match self.rx.records[i].has(state::OFFLOAD) {
            false => v.0..v.0 + 1,
            true => match offloads::plain_versions(self.rx, i) {
                Ok(versions) => versions,
                Err(reason) => {
                    self.drop_output(v, reason);
                    return None;
                }
            },
        };
        Some(versions.map(VersionId))
    }

    /// Sends the received packets `first..end`, by number, to a port, as [`Batch::send`] one after the other. Costs
    /// little more than a single send if all are plain and the port takes each of them.
    #[inline]
    pub fn send_range(&mut self, first: u16, end: u16, port: PortIndex) {
        let end = end.min(self.rx.packets as u16);
        let destination = self.view.destination(port).steered(self.rx);
        let plain = !self.rx.offloads && self.rx.longest <= destination.max_frame;
        if first >= end {
            return;
        }
        if !plain || port == self.ingress || destination.lanes == 0 {
            return (first..end).for_each(|v| self.send(VersionId(v), port));
        }
        for record in &mut self.rx.records[usize::from(first)..usize::from(end)] {
            record.state |= state::SENT | state::HANDLED;
        }
        if destination.lanes == 1 {
            return self.pad.append_range(destination.lane, first, end);
        }
        if destination.lanes <= FEW_LANES {
            return self.spread(first, end, destination);
        }
        for v in first..end {
            let hash = packet::flow::hash(self.rx.header(v.into()));
            self.pad.append(destination.lane_of(hash), v);
        }
    }

    /// Puts the received packets `first..end` on the lists of a port's few lanes, by their flow hashes. Which lane is
    /// next cannot be predicted: so lanes are gathered first, and each list is extended once.
    fn spread(&mut self, mut first: u16, end: u16, destination: Destination) {
        while first < end {
            let until = end.min(first.saturating_add(64));
            let mut masks = [0u64; FEW_LANES as usize];
            for v in first..until {
                let hash = packet::flow::hash(self.rx.header(v.into()));
                let lane = destination.lane_of(hash) - destination.lane;
                for (mask, number) in masks.iter_mut().zip(0..) {
                    *mask |= u64::from(lane == number) << (v - first);
                }
            }
            for (mask, lane) in masks.iter().zip(destination.lane..) {
                self.pad.append_mask(lane, first, *mask);
            }
            first = until;
        }
    }

    /// Sends all packets that no earlier stage has decided to a port.
    #[inline]
    pub fn send_all(&mut self, port: PortIndex) {
        match self.left {
            None => self.send_range(0, self.rx.packets as u16, port),
            Some(left) => left.iter().for_each(|(first, end)| self.send_range(*first, *end, port)),
        }
    }

    /// Sends a version back to the port that it came from.
    pub fn reflect(&mut self, v: VersionId) {
        match self.bridge.port(self.ingress) {
            Some(entry) => self.output(v, entry),
            None => self.drop_output(v, DropReason::NoPort),
        }
    }

    #[inline(always)]
    fn send_anywhere(&mut self, v: VersionId, port: PortIndex) {
        let destination = self.view.destination(port).steered(self.rx);
        let record = &mut self.rx.records[usize::from(v.0)];
        // The plain case: a received packet without work left, to a port that has one queue and takes its length.
        if record.packet == v.0
            && !record.has(state::OFFLOAD)
            && record.len() <= destination.max_frame
            && destination.lanes == 1
        {
            record.state |= state::SENT | state::HANDLED;
            self.pad.append(destination.lane, v.0);
        } else {
            self.send_slowly(v, port);
        }
    }

    #[inline(never)]
    fn send_slowly(&mut self, v: VersionId, port: PortIndex) {
        match self.view.port(port) {
            Some(entry) if entry.lanes > 0 => self.output(v, entry),
            closed => self.drop_closed(v, port, closed),
        }
    }

    /// Drops a version that was for a port that takes nothing, or does not exist.
    #[cold]
    fn drop_closed(&mut self, v: VersionId, port: PortIndex, entry: Option<&PortEntry>) {
        if self.is_explained()
            && let Some(obstacle) = self.obstacle(port)
        {
            self.remark(v, "{} {}", &[Value::Port(port), Value::Text(obstacle)]);
        }
        self.drop_output(v, entry.map_or(DropReason::NoPort, |entry| entry.closed));
    }

    /// Sends a version to every live port but the ingress port. Without any such port, the packet stays undecided.
    pub fn broadcast(&mut self, v: VersionId) {
        for &port in self.view.live() {
            if port != self.ingress {
                self.send_anywhere(v, port);
            }
        }
    }

    /// Asks whether a packet to one station may be flooded because the station's port is unknown. If false, the ingress
    /// port has used up its storm control rate, and the packet was dropped and counted.
    #[inline]
    pub fn may_flood_unknown(&mut self, v: VersionId) -> bool {
        let rate_limits = self.bridge.port(self.ingress).and_then(|entry| entry.rate_limits.as_deref());
        let admits = |rate_limits: &RateLimits| match self.rehearsal {
            true => rate_limits.would_admit_unknown(self.len(v)),
            false => rate_limits.admits_unknown(self.len(v)),
        };
        if rate_limits.is_none_or(admits) {
            return true;
        }
        self.drop_output(v, DropReason::StormControl);
        false
    }

    /// Whether the received packet that this is a version of is still undecided.
    #[inline]
    pub fn is_open(&self, v: VersionId) -> bool {
        let packet = usize::from(self.rx.records[usize::from(v.0)].packet);
        packet < self.rx.packets && !self.rx.records[packet].has(state::HANDLED)
    }

    /// Creates a packet of these bytes, with the work left that `offload` describes. `None` (counted) if the batch has
    /// too many, the metadata does not describe the packet, or the length is out of range.
    pub fn originate(&mut self, bytes: &[u8], offload: Offload) -> Option<VersionId> {
        let Some(v) = self.rx.originate(bytes, offload) else {
            self.pad.drops.add(DropReason::BatchLimit, 1);
            return None;
        };
        let v = VersionId(v as u16);
        self.still_describes(v).then_some(v)
    }

    /// Copies a version's bytes from `from` on; returns their number. Bytes in the sender's memory may change until
    /// then.
    pub fn read(&self, v: VersionId, from: usize, out: &mut [u8]) -> usize {
        let (header, record) = (self.header(v), &self.rx.records[usize::from(v.0)]);
        let whole = out.len().min((record.len() as usize).saturating_sub(from));
        let Some(out) = out.get_mut(..whole) else { return 0 };
        let private = header.get(from..).unwrap_or_default();
        let (own, rest) = out.split_at_mut(private.len().min(whole));
        own.copy_from_slice(&private[..own.len()]);
        if !rest.is_empty() {
            let behind = (from + own.len() - header.len()) as u32;
            self.rx.source(record).read(record.from + behind, rest);
        }
        whole
    }

    /// Marks a packet as handled without an output, which is no drop: its content is stored, or went on in other
    /// packets.
    #[inline]
    pub fn consume(&mut self, v: VersionId) {
        self.mark(v);
    }

    /// Whether an explanation was requested; see [`Batch::remark`].
    #[inline]
    pub fn is_explained(&self) -> bool {
        self.pad.notes.journal.open
    }

    /// Drops a packet for a reason. Violations of port security are kept for events too.
    #[inline]
    pub fn discard(&mut self, v: VersionId, reason: DropReason) {
        if matches!(reason, DropReason::StationLimit | DropReason::SourceGuard) {
            self.note_violation(v, reason, |_| None);
        }
        self.drop_output(v, reason);
    }

    /// Drops a packet that source guard does not allow; `address` finds the refused address in its header, for events.
    #[cold]
    pub fn discard_source(&mut self, v: VersionId, address: impl FnOnce(&[u8]) -> Option<IpAddr>) {
        self.note_violation(v, DropReason::SourceGuard, address);
        self.drop_output(v, DropReason::SourceGuard);
    }

    #[cold]
    fn note_violation(
        &self,
        v: VersionId,
        reason: DropReason,
        address: impl FnOnce(&[u8]) -> Option<IpAddr>,
    ) {
        let Some(port) = self.bridge.port(self.ingress).filter(|_| !self.rehearsal) else { return };
        let Some(violations) = &port.violations else { return };
        violations.note(reason, || {
            let header = self.header(v);
            let (_, mac) = ether::addresses(header)?;
            let tag = ether::vlan_tag(header);
            let vid = port.settings.vlan.ingress(tag).or(tag.map(|tag| tag.vid));
            Some((mac, vid.unwrap_or(0), address(header)))
        });
    }

    fn mark(&mut self, v: VersionId) {
        let packet = usize::from(self.rx.records[usize::from(v.0)].packet);
        if packet < self.rx.packets {
            self.rx.records[packet].state |= state::HANDLED;
        }
    }

    #[cold]
    fn drop_output(&mut self, v: VersionId, reason: DropReason) {
        self.mark(v);
        self.pad.drop_packet(self.rx.records[usize::from(v.0)].packet, reason);
    }

    fn output(&mut self, v: VersionId, entry: &PortEntry) {
        self.mark(v);
        emit(self.rx, self.pad, self.bridge, usize::from(v.0), entry, None);
    }

    /// Counts packets that the logic left undecided.
    #[inline]
    pub(crate) fn finish(&mut self) {
        let received = &self.rx.records[..self.rx.packets];
        let forgotten = received.iter().filter(|record| !record.has(state::HANDLED)).count();
        if forgotten > 0 {
            self.pad.drops.add(DropReason::NoDestination, forgotten as u32);
        }
    }
}

//! A simple model of a batch: versions are byte vectors, and a list is the sequence of the versions sent.
//!
//! The model has no records, runs, slots or side tables. For segmentation and checksums it uses the same crate
//! `packet`, on contiguous bytes.

use fabric::rx::{EXTRA_VERSIONS, HEADER_COPY, HEADROOM, MAX_BATCH, MAX_ORIGINATED, PULL_MAX};
use fabric::{Caps, DropReason};
use packet::checksum::Sum;
use packet::ether::VLAN_TAG_LEN;
use packet::segment::{self, Plan};
use packet::{Gso, Offload, VlanTag, flow};

/// Bytes copied of packets with metadata, as in the fabric.
const OFFLOAD_COPY: usize = 192;
const VERSIONS: usize = MAX_BATCH + EXTRA_VERSIONS;
const MAX_PACKET: usize = 65_535;
const MIN_PACKET: usize = 14;

/// The properties of a port that matter to its packets.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Index of its first transmit queue, counted over all ports.
    pub first_lane: usize,
    /// Number of its transmit queues.
    pub lanes: usize,
    /// Offloads that it accepts.
    pub caps: Caps,
    /// Longest frame.
    pub max_frame: usize,
}

/// A version of a packet.
#[derive(Clone)]
pub struct Version {
    /// All bytes.
    pub bytes: Vec<u8>,
    /// Offloads that remain.
    pub offload: Offload,
    /// Number of private bytes.
    pub private: usize,
    /// Offset of the private bytes in their slot.
    pub start: usize,
    /// Whether the version has been sent and is immutable.
    pub sent: bool,
    /// The packet of this version.
    pub packet: usize,
    plain: Vec<usize>,
}

/// The model of a batch. See the module.
pub struct Model {
    ports: Vec<Shape>,
    ingress: Option<usize>,
    packets: usize,
    handled: Vec<bool>,
    originated: usize,
    /// All versions by number.
    pub versions: Vec<Version>,
    /// Non-empty lists in the order in which their queues were first used: the queue and its versions.
    pub lists: Vec<(usize, Vec<usize>)>,
    /// Drops counted at the ingress.
    pub drops: [u32; DropReason::ALL.len()],
    /// Number of frames above the MTU, by port.
    pub too_long: Vec<u64>,
}

impl Version {
    fn new(bytes: Vec<u8>, offload: Offload, packet: usize) -> Self {
        let private = bytes.len().min(if offload.is_none() { HEADER_COPY } else { OFFLOAD_COPY });
        Self { bytes, offload, private, start: HEADROOM, sent: false, packet, plain: Vec::new() }
    }

    /// Bytes that are copied at first.
    pub fn header(&self) -> &[u8] {
        &self.bytes[..self.private]
    }

    /// Whether the metadata still describes the packet.
    fn is_described(&self) -> bool {
        self.offload.is_none() || self.offload.validate(self.header(), self.bytes.len() as u32).is_ok()
    }

    fn shift(&mut self, by: i16) {
        if !self.offload.is_none() {
            self.offload.shift(by);
        }
    }
}

/// Metadata as the fabric stores it: without offloads, the other fields are cleared.
fn stored(offload: Offload) -> Offload {
    match offload.is_none() {
        true => Offload { csum_valid: offload.csum_valid, ..Offload::NONE },
        false => offload,
    }
}

impl Model {
    /// Creates a batch of these packets from port `ingress`, or an empty one without an ingress.
    pub fn new(ports: Vec<Shape>, ingress: Option<usize>, received: Vec<(Vec<u8>, Offload)>) -> Self {
        let packets = received.len();
        let version = |(i, (bytes, offload))| Version::new(bytes, stored(offload), i);
        Self {
            too_long: vec![0; ports.len()],
            ports,
            ingress,
            packets,
            handled: vec![false; packets],
            originated: 0,
            versions: received.into_iter().enumerate().map(version).collect(),
            lists: Vec::new(),
            drops: [0; DropReason::ALL.len()],
        }
    }

    /// Number of received packets.
    pub fn received(&self) -> usize {
        self.packets
    }

    /// Number of outputs on all lists.
    pub fn outputs(&self) -> usize {
        self.lists.iter().map(|(_, list)| list.len()).sum()
    }

    /// Packets without a decision.
    pub fn open(&self) -> Vec<usize> {
        (0..self.packets).filter(|packet| !self.handled[*packet]).collect()
    }

    /// Restores the order of the packets on each list, after several logics have decided.
    pub fn restore_order(&mut self) {
        for (_, list) in &mut self.lists {
            list.sort_by_key(|v| self.versions[*v].packet);
        }
    }

    /// Ends the logic's decisions.
    pub fn finish(&mut self) {
        let undecided = self.open().len() as u32;
        self.count(DropReason::NoDestination, undecided);
    }

    fn count(&mut self, reason: DropReason, n: u32) {
        self.drops[reason as usize] += n;
    }

    /// Marks a version's packet as decided.
    pub fn consume(&mut self, v: usize) {
        if let Some(handled) = self.handled.get_mut(self.versions[v].packet) {
            *handled = true;
        }
    }

    /// Drops a version.
    pub fn discard(&mut self, v: usize, reason: DropReason) {
        self.consume(v);
        self.count(reason, 1);
    }

    /// Sends a version to a port.
    pub fn send(&mut self, v: usize, port: usize) {
        match self.ingress == Some(port) {
            true => self.discard(v, DropReason::SamePort),
            false => self.output(v, port),
        }
    }

    /// Sends a version back to the ingress.
    pub fn reflect(&mut self, v: usize) {
        match self.ingress {
            Some(port) => self.output(v, port),
            None => self.discard(v, DropReason::NoPort),
        }
    }

    /// Sends a version to all ports with queues except the ingress.
    pub fn broadcast(&mut self, v: usize) {
        for port in 0..self.ports.len() {
            if self.ingress != Some(port) && self.ports[port].lanes > 0 {
                self.output(v, port);
            }
        }
    }

    fn output(&mut self, v: usize, port: usize) {
        self.consume(v);
        let (version, Some(shape)) = (&self.versions[v], self.ports.get(port).copied()) else {
            return self.count(DropReason::NoPort, 1);
        };
        let len = version.bytes.len();
        if shape.lanes == 0 {
            return self.count(DropReason::PortDown, 1);
        }
        if version.offload.is_none() {
            return self.append(v, len, port);
        }
        let Ok(normal) = version.offload.validate(version.header(), len as u32) else {
            return self.count(DropReason::BadOffload, 1);
        };
        self.versions[v].offload = normal;
        let (takes, frame) = match normal.gso {
            Gso::None => (true, len),
            Gso::Tcp4 => {
                (shape.caps.tso4, len.min(usize::from(normal.hdr_len) + usize::from(normal.gso_size)))
            }
            Gso::Tcp6 => {
                (shape.caps.tso6, len.min(usize::from(normal.hdr_len) + usize::from(normal.gso_size)))
            }
            Gso::Udp => (shape.caps.uso, len.min(usize::from(normal.hdr_len) + usize::from(normal.gso_size))),
        };
        if takes && shape.caps.csum {
            return self.append(v, frame, port);
        }
        if self.versions[v].plain.is_empty() {
            match self.plain(v) {
                Ok(made) => {
                    let first = self.versions.len();
                    self.versions[v].plain = (first..first + made.len()).collect();
                    self.versions.extend(made);
                }
                Err(reason) => return self.count(reason, 1),
            }
        }
        self.versions[v].sent = true;
        for segment in self.versions[v].plain.clone() {
            self.append(segment, self.versions[segment].bytes.len(), port);
        }
    }

    /// Returns the frames without remaining offloads.
    fn plain(&self, v: usize) -> Result<Vec<Version>, DropReason> {
        let room = VERSIONS - self.versions.len();
        let Version { bytes, offload, private, start, packet, .. } = &self.versions[v];
        let (len, bad) = (bytes.len() as u32, |_| DropReason::BadOffload);
        let version = |bytes: Vec<u8>, private, start| Version {
            private,
            start,
            ..Version::new(bytes, Offload::NONE, *packet)
        };
        if offload.gso == Gso::None {
            let mut summed = bytes.clone();
            segment::complete_checksum(&mut summed, offload, len, Sum::default()).map_err(bad)?;
            let made = vec![version(summed, *private, *start)];
            return if room == 0 { Err(DropReason::BatchLimit) } else { Ok(made) };
        }
        let plan = Plan::new(&bytes[..*private], len, offload).map_err(bad)?;
        if plan.count() as usize > room {
            return Err(DropReason::BatchLimit);
        }
        let one = |i| {
            let range = plan.payload(i);
            let payload = &bytes[range.start as usize..range.end as usize];
            let mut segment = vec![0; plan.header_len()];
            plan.write_header(i, bytes, &mut segment, Sum::of(payload)).map_err(bad)?;
            segment.extend(payload);
            let own = (range.end as usize).min(*private).saturating_sub(range.start as usize);
            let private = plan.header_len() + own;
            Ok(version(segment, private, HEADROOM.min(HEADROOM + PULL_MAX - private)))
        };
        (0..plan.count()).map(one).collect()
    }

    fn append(&mut self, v: usize, frame: usize, port: usize) {
        let Shape { first_lane, lanes, max_frame, .. } = self.ports[port];
        if frame > max_frame {
            self.too_long[port] += 1;
            return;
        }
        self.versions[v].sent = true;
        let hash = u64::from(flow::hash(self.versions[v].header()));
        let lane = first_lane + ((hash * lanes as u64) >> 32) as usize;
        match self.lists.iter_mut().find(|(other, _)| *other == lane) {
            Some((_, list)) => list.push(v),
            None => self.lists.push((lane, vec![v])),
        }
    }

    /// Creates a version with the same bytes.
    pub fn copy(&mut self, v: usize) -> Option<usize> {
        if self.versions.len() == VERSIONS {
            self.discard(v, DropReason::BatchLimit);
            return None;
        }
        let copy = Version { sent: false, plain: Vec::new(), ..self.versions[v].clone() };
        self.versions.push(copy);
        Some(self.versions.len() - 1)
    }

    /// Returns an editable version with the same bytes.
    pub fn edit(&mut self, v: usize) -> Option<usize> {
        if self.versions[v].sent { self.copy(v) } else { Some(v) }
    }

    /// Returns a version with one more tag.
    pub fn push_vlan(&mut self, v: usize, tag: VlanTag) -> Option<usize> {
        let v = self.edit(v)?;
        let version = &mut self.versions[v];
        let Some(start) = version.start.checked_sub(VLAN_TAG_LEN) else {
            self.discard(v, DropReason::BatchLimit);
            return None;
        };
        (version.start, version.private) = (start, version.private + VLAN_TAG_LEN);
        let [high, low] = tag.to_tci().to_be_bytes();
        version.bytes.splice(12..12, [0x81, 0, high, low]);
        version.shift(VLAN_TAG_LEN as i16);
        Some(v)
    }

    /// Returns a version without its outermost tag.
    pub fn pop_vlan(&mut self, v: usize) -> Option<usize> {
        let v = self.edit(v)?;
        let version = &mut self.versions[v];
        if version.private >= 18 && version.bytes[12..14] == [0x81, 0] {
            version.bytes.drain(12..16);
            (version.start, version.private) = (version.start + VLAN_TAG_LEN, version.private - VLAN_TAG_LEN);
            version.shift(-(VLAN_TAG_LEN as i16));
        }
        Some(v)
    }

    /// Makes more of a version private; returns the private length.
    pub fn pull(&mut self, v: usize, n: usize) -> usize {
        let version = &mut self.versions[v];
        if !version.sent {
            let most = n.min(HEADROOM + PULL_MAX - version.start).min(version.bytes.len());
            version.private = version.private.max(most);
        }
        version.private
    }

    /// Moves a version's start in its slot; `in_front` are the bytes in front of the old start. Returns whether it
    /// succeeded.
    pub fn set_start(&mut self, v: usize, start: usize, in_front: &[u8]) -> bool {
        let version = &mut self.versions[v];
        if version.sent || start + MIN_PACKET > version.start + version.private {
            self.discard(v, DropReason::BatchLimit);
            return false;
        }
        let by = version.start as i16 - start as i16;
        match version.start.checked_sub(start) {
            Some(more) => _ = version.bytes.splice(0..0, in_front[..more].iter().copied()),
            None => _ = version.bytes.drain(..start - version.start),
        }
        (version.start, version.private) = (start, version.private.wrapping_add_signed(by.into()));
        version.shift(by);
        if version.bytes.len() > MAX_PACKET {
            self.discard(v, DropReason::BatchLimit);
            return false;
        }
        self.still_describes(v)
    }

    fn still_describes(&mut self, v: usize) -> bool {
        let is_described = self.versions[v].is_described();
        if !is_described {
            self.discard(v, DropReason::BadOffload);
        }
        is_described
    }

    /// Creates a packet of the logic's own.
    pub fn originate(&mut self, bytes: &[u8], offload: Offload) -> Option<usize> {
        let fits = (MIN_PACKET..=MAX_PACKET).contains(&bytes.len());
        if !fits || self.originated == MAX_ORIGINATED || self.versions.len() == VERSIONS {
            self.count(DropReason::BatchLimit, 1);
            return None;
        }
        let packet = MAX_BATCH + self.originated;
        self.originated += 1;
        let private = bytes.len().min(PULL_MAX);
        let version = Version::new(bytes.to_vec(), stored(offload), packet);
        self.versions.push(Version { private, ..version });
        let v = self.versions.len() - 1;
        self.still_describes(v).then_some(v)
    }
}

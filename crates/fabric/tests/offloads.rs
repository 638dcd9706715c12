//! Packets with offload metadata: passed on whole to receivers that take them, made plain for those that do not.
//!
//! Expected plain packets are built here from the RFCs, without code of the switch: each segment is built anew and its
//! checksums are summed over its own bytes.
#![cfg(test)]
#![cfg(not(loom))]

mod support;

use std::sync::Arc;

use fabric::switch::PortRef;
use fabric::{Batch, Caps, DropReason, Egress, PortIndex, PortSettings, Switch, SwitchLogic};
use packet::{Gso, Offload, VlanTag};
use proptest::prelude::*;
use support::feed::{Feed, Sent};
use support::mem_ring::MemRing;
use support::rig::{self, Hub};
use support::{CallPort, Called, Lcg, wait_until};

#[derive(Clone, Debug)]
struct Spec {
    vlan_tags: usize,
    v6: bool,
    /// 32-bit words of IPv4 options, or 8-byte IPv6 destination options.
    ip_options: usize,
    tcp: bool,
    tcp_options: usize,
    flags: u8,
    sequence: u32,
    identification: u16,
    gso_size: u16,
    payload: usize,
    /// Requests only a checksum.
    csum_only: bool,
    seed: u64,
}

fn spec() -> impl Strategy<Value = Spec> {
    let shape =
        (0..=2usize, any::<bool>(), 0..=4usize, any::<bool>(), 0..=10usize, prop::bool::weighted(0.2));
    let payload = prop_oneof![1 => 0usize..200, 3 => 200usize..9000, 1 => 9000usize..65_300];
    let fields = (any::<u8>(), any::<u32>(), any::<u16>(), 1..9000u16, payload, any::<u64>());
    (shape, fields).prop_map(|((vlan_tags, v6, ip_options, tcp, tcp_options, csum_only), fields)| {
        let (flags, sequence, identification, gso_size, payload, seed) = fields;
        let gso_size = gso_size.max((payload / 256 + 1) as u16);
        Spec {
            vlan_tags,
            v6,
            ip_options,
            tcp,
            tcp_options,
            flags,
            sequence,
            identification,
            gso_size,
            payload,
            csum_only,
            seed,
        }
    })
}

/// RFC 1071, two bytes at a time.
fn add_words(data: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in data.chunks(2) {
        sum += u32::from(pair[0]) * 256 + u32::from(pair.get(1).copied().unwrap_or(0));
        sum = sum % 65_536 + sum / 65_536;
    }
    sum as u16
}

impl Spec {
    fn l3(&self) -> usize {
        14 + 4 * self.vlan_tags
    }

    fn l4(&self) -> usize {
        self.l3() + if self.v6 { 40 + 8 * self.ip_options } else { 20 + 4 * self.ip_options }
    }

    fn hdr(&self) -> usize {
        self.l4() + if self.tcp { 20 + 4 * self.tcp_options } else { 8 }
    }

    fn payload(&self) -> Vec<u8> {
        Lcg(self.seed).bytes(self.payload)
    }

    fn csum_offset(&self) -> usize {
        if self.tcp { 16 } else { 6 }
    }

    fn pseudo_header(&self, packet: &[u8]) -> Vec<u8> {
        let l3 = self.l3();
        let addresses = if self.v6 { &packet[l3 + 8..l3 + 40] } else { &packet[l3 + 12..l3 + 20] };
        let len = (packet.len() - self.l4()) as u16;
        [addresses, &[0, if self.tcp { 6 } else { 17 }], &len.to_be_bytes()].concat()
    }

    /// A packet of these headers that carries `payload`, segment `i` of the original, without transport checksum.
    fn build(&self, i: usize, payload: &[u8], last: bool) -> Vec<u8> {
        let mut bytes = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2];
        for tag in 0..self.vlan_tags {
            bytes.extend(if tag + 1 < self.vlan_tags { [0x88, 0xa8] } else { [0x81, 0x00] });
            bytes.extend([0x20, 0x64]);
        }
        bytes.extend(if self.v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
        let protocol = if self.tcp { 6 } else { 17 };
        let l4_len = self.hdr() - self.l4() + payload.len();
        if self.v6 {
            bytes.extend([0x60, 0x0a, 0xbc, 0xde]);
            bytes.extend(((8 * self.ip_options + l4_len) as u16).to_be_bytes());
            bytes.extend([if self.ip_options > 0 { 60 } else { protocol }, 64]);
            bytes.extend((0..32u8).map(|i| i.wrapping_mul(37)));
            for i in 0..self.ip_options {
                bytes.extend([if i + 1 < self.ip_options { 60 } else { protocol }, 0, 1, 4, 0, 0, 0, 0]);
            }
        } else {
            let l3 = bytes.len();
            bytes.extend([0x45 + self.ip_options as u8, 0x02]);
            bytes.extend(((20 + 4 * self.ip_options + l4_len) as u16).to_be_bytes());
            bytes.extend(self.identification.wrapping_add(i as u16).to_be_bytes());
            bytes.extend([0x40, 0, 64, protocol, 0, 0, 192, 168, 0, 1, 10, 1, 2, 3]);
            bytes.extend(vec![1; 4 * self.ip_options]);
            let sum = !add_words(&bytes[l3..]);
            bytes[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
        }
        bytes.extend([0x30, 0x39, 0x01, 0xbb]);
        if self.tcp {
            let mut flags = self.flags;
            if i > 0 {
                flags &= !0x80; // CWR: only in the first segment
            }
            if !last {
                flags &= !0x09; // FIN, PSH: only in the last segment
            }
            let sequence = self.sequence.wrapping_add(i as u32 * u32::from(self.gso_size));
            bytes.extend(sequence.to_be_bytes());
            bytes.extend([1, 2, 3, 4, (5 + self.tcp_options as u8) << 4, flags, 0xff, 0, 0, 0, 0, 0]);
            bytes.extend(vec![1; 4 * self.tcp_options]);
        } else {
            bytes.extend((l4_len as u16).to_be_bytes());
            bytes.extend([0, 0]);
        }
        bytes.extend(payload);
        bytes
    }

    fn with_checksum(&self, mut packet: Vec<u8>) -> Vec<u8> {
        let (l4, field) = (self.l4(), self.l4() + self.csum_offset());
        packet[field..field + 2].fill(0);
        let sum = !add_words(&[self.pseudo_header(&packet), packet[l4..].to_vec()].concat());
        let sum = if sum == 0 { 0xffff } else { sum };
        packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// As a guest sends it: the pseudo-header's sum in the checksum field.
    fn sent(&self) -> (Vec<u8>, Offload) {
        let mut packet = self.build(0, &self.payload(), true);
        let field = self.l4() + self.csum_offset();
        let partial = add_words(&self.pseudo_header(&packet));
        packet[field..field + 2].copy_from_slice(&partial.to_be_bytes());
        let gso = match (self.csum_only, self.tcp, self.v6) {
            (true, ..) => Gso::None,
            (_, true, false) => Gso::Tcp4,
            (_, true, true) => Gso::Tcp6,
            (_, false, _) => Gso::Udp,
        };
        let offload = Offload {
            gso,
            gso_size: if self.csum_only { 0 } else { self.gso_size },
            needs_csum: true,
            csum_start: self.l4() as u16,
            csum_offset: self.csum_offset() as u16,
            ..Offload::NONE
        };
        (packet, offload)
    }

    /// The remaining request once the packet is known to fit into one segment.
    fn gso(&self) -> Gso {
        if self.payload <= usize::from(self.gso_size) { Gso::None } else { self.sent().1.gso }
    }

    /// The packets that a receiver without offloads must receive.
    fn plain(&self) -> Vec<Vec<u8>> {
        let payload = self.payload();
        if self.gso() == Gso::None {
            return vec![self.with_checksum(self.sent().0)];
        }
        let n = payload.len().div_ceil(usize::from(self.gso_size));
        payload
            .chunks(usize::from(self.gso_size))
            .enumerate()
            .map(|(i, part)| self.with_checksum(self.build(i, part, i + 1 == n)))
            .collect()
    }

    /// The metadata that accompanies the packet to a receiver that takes it whole.
    fn passed_on(&self) -> Offload {
        let (_, offload) = self.sent();
        match self.gso() {
            Gso::None => Offload { gso: Gso::None, gso_size: 0, ..offload },
            _ => Offload { hdr_len: self.hdr() as u16, ..offload },
        }
    }
}

fn takes(caps: Caps, gso: Gso) -> bool {
    caps.csum
        && match gso {
            Gso::None => true,
            Gso::Tcp4 => caps.tso4,
            Gso::Tcp6 => caps.tso6,
            Gso::Udp => caps.uso,
        }
}

struct Rig {
    switch: Switch,
    feed: Arc<Feed>,
    from: PortRef,
    calls: Vec<(PortRef, Arc<CallPort>)>,
    ring: Arc<MemRing>,
}

/// Port 0 sends; one call port per entry of `to`; and a ring without offloads.
fn rig_of(logic: Arc<dyn SwitchLogic>, to: &[(Caps, u32)]) -> Rig {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", logic).unwrap();
    let (feed, home) = (Feed::new(), Arc::new(CallPort::default()));
    let (from, _) = rig::plug(&switch, bridge, "from", vec![feed.queue()], vec![home]);
    let calls = to
        .iter()
        .enumerate()
        .map(|(i, (caps, mtu))| {
            let at = switch.add_port(bridge, PortSettings::new(format!("call{i}"))).unwrap();
            let call = Arc::new(CallPort::default());
            let (mut attachment, _) = rig::attachment(vec![], vec![call.clone() as Arc<dyn Egress>]);
            (attachment.caps, attachment.mtu) = (*caps, *mtu);
            switch.attach(at, attachment).unwrap();
            (at, call)
        })
        .collect();
    let ring = MemRing::new(0, &[700; 1024]);
    rig::plug(&switch, bridge, "ring", vec![], vec![ring.tx()]);
    Rig { switch, feed, from, calls, ring }
}

impl Rig {
    fn send(&self, packets: impl IntoIterator<Item = Sent>) {
        let packets: Vec<_> = packets.into_iter().collect();
        let all = self.feed.returned() + packets.len() as u64;
        self.feed.send(packets);
        wait_until("all are returned", || self.feed.returned() == all);
    }
}

const ALL: Caps = Caps { csum: true, tso4: true, tso6: true, uso: true };
const NONE: Caps = Caps { csum: false, tso4: false, tso6: false, uso: false };

fn caps() -> impl Strategy<Value = Caps> {
    any::<[bool; 4]>().prop_map(|[csum, tso4, tso6, uso]| Caps { csum, tso4, tso6, uso })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// Flooded to receivers of every kind: each receives the packet whole with true metadata, or segments with correct
    /// checksums, and neighbouring packets keep their place.
    #[test]
    fn each_receiver_gets_what_it_takes(
        specs in prop::collection::vec(spec(), 1..4),
        some in prop::collection::vec(caps(), 2),
        cuts in prop::collection::vec(any::<usize>(), 0..64),
    ) {
        let kinds: Vec<_> = [ALL, NONE, NONE].into_iter().chain(some).map(|caps| (caps, 65_535)).collect();
        let rig = rig_of(Arc::new(Hub), &kinds);
        let between = support::frame(5, 64);
        let mut packets = Vec::new();
        for spec in &specs {
            let (bytes, offload) = spec.sent();
            packets.push(Sent::cut(&bytes, &cuts).with_offload(offload));
            packets.push(Sent::whole(&between));
        }
        rig.send(packets);
        for ((caps, _), (_, call)) in kinds.iter().zip(&rig.calls) {
            let mut wanted = Vec::new();
            for spec in &specs {
                if takes(*caps, spec.gso()) {
                    wanted.push(Called { bytes: spec.sent().0, offload: spec.passed_on() });
                } else {
                    let plain = |bytes| Called { bytes, offload: Offload::NONE };
                    wanted.extend(spec.plain().into_iter().map(plain));
                }
                wanted.push(Called { bytes: between.clone(), offload: Offload::NONE });
            }
            prop_assert_eq!(call.take(), wanted, "{:?}", caps);
        }
        let mut wanted = Vec::new();
        for spec in &specs {
            wanted.extend(spec.plain());
            wanted.push(between.clone());
        }
        let got = rig.ring.take(|| 700);
        // The ring may have been too small for the last of them; the packets that arrived are correct.
        prop_assert!(got.iter().all(|bytes| wanted.contains(bytes)));
        let lost = (wanted.len() - got.len()) as u64;
        let full: u64 = rig.ring_drops();
        prop_assert_eq!(lost, full);
        rig.ring.assert_no_wrongs();
        prop_assert_eq!(rig::all_drops(&rig.switch, rig.from), 0);
    }
}

impl Rig {
    fn ring_drops(&self) -> u64 {
        let ring = PortRef { port: fabric::PortIndex(1 + self.calls.len() as u16), ..self.from };
        rig::drops(&self.switch, ring, DropReason::RingFull)
    }
}

fn tso(payload: usize, gso_size: u16) -> Spec {
    Spec {
        vlan_tags: 0,
        v6: false,
        ip_options: 0,
        tcp: true,
        tcp_options: 3,
        flags: 0x99,
        sequence: 0xffff_ff00,
        identification: 0xfffe,
        gso_size,
        payload,
        csum_only: false,
        seed: 42,
    }
}

#[test]
fn metadata_that_lies_is_dropped_and_counted() {
    let rig = rig_of(Arc::new(Hub), &[(ALL, 65_535), (NONE, 65_535)]);
    let spec = tso(5000, 1448);
    let (bytes, good) = spec.sent();
    let bad = [
        Offload { csum_start: good.csum_start + 1, ..good },
        Offload { csum_offset: 6, ..good },
        Offload { csum_start: u16::MAX, csum_offset: u16::MAX, ..good },
        Offload { gso_size: 0, ..good },
        Offload { gso_size: 5, ..good },
        Offload { gso: Gso::Tcp6, ..good },
        Offload { gso: Gso::Udp, ..good },
        Offload { needs_csum: false, ..good },
        Offload { gso: Gso::None, csum_start: 14, csum_offset: 12, ..good },
        Offload { gso: Gso::None, csum_start: 0, csum_offset: 6, ..good },
        Offload { gso: Gso::None, csum_start: 5040, csum_offset: 2000, ..good },
    ];
    rig.send(bad.iter().map(|offload| Sent::whole(&bytes).with_offload(*offload)));
    // A packet shorter than its IP header states.
    rig.send([Sent::whole(&bytes[..bytes.len() - 1]).with_offload(good)]);
    let outputs = 3 * (bad.len() as u64 + 1);
    wait_until("all are counted", || rig::drops(&rig.switch, rig.from, DropReason::BadOffload) == outputs);
    assert_eq!(rig::all_drops(&rig.switch, rig.from), outputs);
    for (_, call) in &rig.calls {
        assert_eq!(call.take(), []);
    }
    assert_eq!(rig.ring.take(|| 700), [[0u8; 0]; 0]);
    // The next valid one passes.
    rig.send([Sent::whole(&bytes).with_offload(good)]);
    assert_eq!(rig.calls[0].1.take(), [Called { bytes, offload: spec.passed_on() }]);
    assert_eq!(rig.calls[1].1.take().len(), 4);
}

/// The MTU applies to the segments of a large packet, not to the packet.
#[test]
fn the_mtu_is_that_of_segments() {
    // 66 bytes of headers, 14 of them link: segments of an MTU of 1500 carry 1448 bytes. The fabric allows for two VLAN
    // tags on top.
    let rig = rig_of(Arc::new(Hub), &[(ALL, 1500), (NONE, 1500), (ALL, 1491), (NONE, 1491), (NONE, 512)]);
    let spec = tso(1448 * 3 + 100, 1448);
    let (bytes, offload) = spec.sent();
    rig.send([Sent::whole(&bytes).with_offload(offload)]);
    let whole = [Called { bytes: bytes.clone(), offload: spec.passed_on() }];
    let plain = spec.plain();
    let got: Vec<_> = rig.calls.iter().map(|(_, call)| call.take()).collect();
    assert_eq!(got[0], whole);
    assert_eq!(got[1].iter().map(|c| &c.bytes).collect::<Vec<_>>(), plain.iter().collect::<Vec<_>>());
    assert_eq!(got[2], []);
    // Only the last, shorter segment fits.
    assert_eq!(got[3].iter().map(|c| &c.bytes).collect::<Vec<_>>(), [&plain[3]]);
    assert_eq!(got[4].iter().map(|c| &c.bytes).collect::<Vec<_>>(), [&plain[3]]);
    // Counted at the ports that they do not fit.
    let too_long = || -> Vec<_> {
        rig.calls.iter().map(|(port, _)| rig::drops(&rig.switch, *port, DropReason::ExceedsMtu)).collect()
    };
    wait_until("all are counted", || too_long() == [0, 0, 1, 3, 3]);

    let spec = Spec { csum_only: true, ..tso(1600, 1) };
    let (bytes, offload) = spec.sent();
    rig.send([Sent::whole(&bytes).with_offload(offload)]);
    assert!(rig.calls.iter().all(|(_, call)| call.take().is_empty()));
    wait_until("all are counted", || too_long() == [1, 1, 2, 4, 4]);
}

/// Whole, then tagged, then untagged again, to receivers of both kinds: each receives the version that it was sent.
#[test]
fn versions_of_one_large_packet_keep_apart() {
    struct Tagger;
    impl SwitchLogic for Tagger {
        fn forward(&self, batch: &mut Batch<'_>) {
            for v in batch.packets() {
                batch.broadcast(v);
                let Some(tagged) = batch.push_vlan(v, VlanTag::from_tci(0x2064)) else { continue };
                batch.broadcast(tagged);
                let Some(popped) = batch.pop_vlan(tagged) else { continue };
                batch.broadcast(popped);
            }
        }
    }
    for spec in [
        tso(4000, 1000),
        Spec { v6: true, ip_options: 2, ..tso(4000, 1000) },
        Spec { tcp: false, ..tso(4000, 1000) },
        Spec { csum_only: true, ..tso(4000, 1) },
    ] {
        let rig = rig_of(Arc::new(Tagger), &[(ALL, 65_535), (NONE, 65_535)]);
        let (bytes, offload) = spec.sent();
        rig.send([Sent::cut(&bytes, &[20, 70, 90, 1000]).with_offload(offload)]);
        let tagged = Spec { vlan_tags: 1, ..spec.clone() };
        let versions = [&spec, &tagged, &spec];
        let whole: Vec<_> =
            versions.iter().map(|s| Called { bytes: s.sent().0, offload: s.passed_on() }).collect();
        assert_eq!(rig.calls[0].1.take(), whole);
        let plain: Vec<_> = versions.iter().flat_map(|s| s.plain()).collect();
        let got: Vec<_> = rig.calls[1].1.take().into_iter().map(|called| called.bytes).collect();
        assert_eq!(got, plain);
        assert_eq!(rig.ring.take(|| 700), plain);
    }
}

/// A logic that puts a header in front of packets has large ones segmented first; its other outputs of them are
/// unaffected.
#[test]
fn large_packets_are_cut_before_they_are_encapsulated() {
    const OUTER: [u8; 14] = [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x88, 0xe7];
    struct Encapsulator;
    impl SwitchLogic for Encapsulator {
        fn forward(&self, batch: &mut Batch<'_>) {
            for v in batch.packets() {
                for v in batch.make_plain(v).into_iter().flatten() {
                    assert!(batch.set_start(v, batch.start(v) - OUTER.len()));
                    batch.header_mut(v).unwrap()[..OUTER.len()].copy_from_slice(&OUTER);
                    batch.send(v, PortIndex(1));
                }
                if batch.offload(v) != Offload::NONE {
                    batch.send(v, PortIndex(2));
                }
            }
        }
    }
    for spec in
        [tso(4000, 1000), Spec { v6: true, ..tso(30_000, 1400) }, Spec { csum_only: true, ..tso(900, 1) }]
    {
        let rig = rig_of(Arc::new(Encapsulator), &[(ALL, 65_535), (NONE, 65_535)]);
        let (bytes, offload) = spec.sent();
        let plain = support::frame(5, 64);
        rig.send([Sent::cut(&bytes, &[20, 70, 90, 700]).with_offload(offload), Sent::whole(&plain)]);
        let outer = |inner: Vec<u8>| Called { bytes: [&OUTER[..], &inner].concat(), offload: Offload::NONE };
        let wanted: Vec<_> = spec.plain().into_iter().chain([plain]).map(outer).collect();
        assert_eq!(rig.calls[0].1.take(), wanted);
        let got: Vec<_> = rig.calls[1].1.take().into_iter().map(|called| called.bytes).collect();
        assert_eq!(got, spec.plain());
    }
}

/// Found by fuzzing: a header that filled its slot, tag included, was dropped instead of segmented.
#[test]
fn a_private_header_as_long_as_its_slot_is_cut() {
    struct Greedy;
    impl SwitchLogic for Greedy {
        fn forward(&self, batch: &mut Batch<'_>) {
            for v in batch.packets() {
                let Some(v) = batch.push_vlan(v, VlanTag::from_tci(0x2064)) else { continue };
                batch.pull(v, 1000);
                batch.broadcast(v);
            }
        }
    }
    let spec = tso(4000, 1000);
    let rig = rig_of(Arc::new(Greedy), &[(NONE, 65_535)]);
    let (bytes, offload) = spec.sent();
    rig.send([Sent::whole(&bytes).with_offload(offload)]);
    let plain = Spec { vlan_tags: 1, ..spec }.plain();
    let got: Vec<_> = rig.calls[0].1.take().into_iter().map(|called| called.bytes).collect();
    assert_eq!(got, plain);
    assert_eq!(rig.ring.take(|| 700), plain);
}

/// Receivers without offloads share one plain form: a hundred of them need no more versions than one.
#[test]
fn many_plain_receivers_share_the_segments() {
    let rig = rig_of(Arc::new(Hub), &[(NONE, 65_535); 100]);
    // 200 segments: a hundred copies of them would be ten times the versions of a batch.
    let spec = tso(200 * 100, 100);
    let (bytes, offload) = spec.sent();
    rig.send([Sent::whole(&bytes).with_offload(offload)]);
    let plain = spec.plain();
    for (_, call) in &rig.calls {
        let got: Vec<_> = call.take().into_iter().map(|called| called.bytes).collect();
        assert_eq!(got, plain);
    }
    assert_eq!(rig::all_drops(&rig.switch, rig.from), 0);
}

/// More segments than the versions of a batch: refused and counted, and no packet is sent in part.
#[test]
fn segments_beyond_the_bound_are_refused_and_counted() {
    let rig = rig_of(Arc::new(Hub), &[(NONE, 65_535)]);
    let spec = tso(250 * 10, 10);
    let (bytes, offload) = spec.sent();
    rig.send((0..20).map(|_| Sent::whole(&bytes).with_offload(offload)));
    let got = rig.calls[0].1.take();
    assert_eq!(got.len() % 250, 0, "whole packets only");
    let whole = got.len() as u64 / 250;
    assert!(whole < 20, "the batch was too small for this test");
    wait_until("the rest is counted", || {
        // Twice: for the call port and for the ring.
        rig::drops(&rig.switch, rig.from, DropReason::BatchLimit) == 2 * (20 - whole)
    });
    for (called, wanted) in got.iter().zip(spec.plain().iter().cycle()) {
        assert_eq!(&called.bytes, wanted);
    }
}

//! Packets with invalid offload headers, on a worker's path: parsed, validated, then passed on unchanged or segmented
//! and checksummed for a receiver without offloads.
//!
//! Invariants:
//! - No panic. A packet is delivered or counted as dropped, once.
//! - An invalid claim is dropped as `bad-offload`, and nothing of the packet is delivered.
//! - A receiver that accepts the packet gets it unchanged, with metadata in normal form.
//! - Any other receiver gets frames without remaining offloads, within its maximum length, with correct lengths and
//!   checksums; their payloads are the packet's, in order, and complete unless some frames were too long.
#![no_main]

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fabric::fuzzing::{Bridge, Port, Steps};
use fabric::rx::{BatchLimits, MAX_PACKET, MIN_PACKET};
use fabric::{
    Caps, DropReason, Egress, Fault, OutputList, PortIndex, PortSettings, QueueCounters, RxBatch, RxQueue,
    Tools,
};
use libfuzzer_sys::fuzz_target;
use packet::offload::MAX_SEGMENTS;
use packet::{Gso, IpVersion, Layers, Offload, virtio_net};
use ports::offload_header;
use support::Bytes;
use support::frame::{self, sum_of_words};

const LIMITS: BatchLimits = BatchLimits { packets: 64, bytes: 256 << 10 };
/// Bytes that workers copy of packets with metadata.
const PRIVATE: usize = 192;

thread_local! {
    static STEPS: RefCell<Option<Steps>> = const { RefCell::new(None) };
    /// Packets that the receiver got.
    static GIVEN: RefCell<Vec<(Vec<u8>, Offload)>> = const { RefCell::new(Vec::new()) };
}

fuzz_target!(|data: &[u8]| {
    let mut from = Bytes::new(data);
    let [takes, bound] = from.array();
    let caps = Caps { csum: takes & 1 != 0, tso4: takes & 2 != 0, tso6: takes & 4 != 0, uso: takes & 8 != 0 };
    let max_frame = if bound == 0 { MAX_PACKET + 22 } else { u32::from(bound) * 32 };
    let logic = match logic::build("static", &[("p0".into(), "p1".into())], &[]) {
        Ok(logic) => logic,
        Err(error) => panic!("{error}"),
    };
    let port = |name: &str, tx: Vec<Arc<dyn Egress>>| Port {
        up: true,
        settings: PortSettings::new(name.to_owned()),
        tx,
        caps,
        max_frame,
    };
    let bridge = Bridge::new(logic, vec![port("p0", vec![]), port("p1", vec![Arc::new(Take)])]);
    STEPS.with_borrow_mut(|steps| {
        let steps = steps.get_or_insert_with(|| match Steps::new(LIMITS) {
            Ok(steps) => steps,
            Err(error) => panic!("cannot create a worker: {error}"),
        });
        for _ in 0..4 {
            if from.is_empty() {
                break;
            }
            let frame = frame::read(&mut from);
            let mut header = virtio_net::encode(&frame.claim, 0);
            for _ in 0..from.below(8) {
                let [at, with] = from.array();
                header[usize::from(at) % virtio_net::HEADER_LEN] ^= with;
            }
            let claim = Offload { csum_valid: false, ..offload_header::of_header(&header) };
            one(steps, &bridge, &caps, max_frame, &frame.bytes, claim);
        }
    });
});

fn one(steps: &mut Steps, bridge: &Bridge, caps: &Caps, max_frame: u32, packet: &[u8], claim: Offload) {
    GIVEN.take();
    steps.set_limits(LIMITS);
    // Counted at the receiver.
    let refused = || {
        let at = DropReason::ALL.iter().position(|reason| *reason == DropReason::ExceedsMtu);
        let counters = bridge.counters().first().map(|counters| counters.snapshot());
        counters.zip(at).map_or(0, |(counters, at)| counters.drops[at])
    };
    let before = refused();
    let received = steps.receive(&mut Frame(Some((packet.to_vec(), claim))));
    assert_eq!(received, Ok(()));
    if steps.packets() > 0 {
        steps.load();
        steps.forward(bridge, PortIndex(0));
    }
    let drops = steps.take_drops();
    let dropped: u32 = DropReason::ALL.iter().map(|reason| drops.get(*reason)).sum();
    let (given, too_long) = (GIVEN.take(), (refused() - before) as usize);
    let len = packet.len() as u32;
    if !(MIN_PACKET..=MAX_PACKET).contains(&len) {
        assert!(given.is_empty() && dropped == 1, "{len} bytes: {dropped} drops");
        return;
    }
    let Ok(normal) = claim.validate(&packet[..packet.len().min(PRIVATE)], len) else {
        let bad = drops.get(DropReason::BadOffload);
        assert_eq!((given.len(), dropped, bad, too_long), (0, 1, 1, 0), "{claim:?}");
        return;
    };
    assert_eq!(dropped, 0, "{claim:?}");
    for (bytes, offload) in &given {
        let frame = match offload.gso {
            Gso::None => bytes.len() as u32,
            _ => (bytes.len() as u32).min(u32::from(offload.hdr_len) + u32::from(offload.gso_size)),
        };
        assert!(frame <= max_frame, "frame of {frame} bytes, at most {max_frame} allowed");
    }
    let takes = match normal.gso {
        Gso::None => normal.is_none() || caps.csum,
        Gso::Tcp4 => caps.csum && caps.tso4,
        Gso::Tcp6 => caps.csum && caps.tso6,
        Gso::Udp => caps.csum && caps.uso,
    };
    if takes {
        match given.as_slice() {
            [] => assert_eq!(too_long, 1),
            [(bytes, offload)] => assert!(bytes == packet && *offload == normal && too_long == 0),
            more => panic!("{} packets delivered for one", more.len()),
        }
        return;
    }
    assert!(given.iter().all(|(_, offload)| *offload == Offload::NONE));
    match normal.gso {
        Gso::None => match given.as_slice() {
            [] => assert_eq!(too_long, 1),
            [(bytes, _)] => summed(packet, bytes, &normal),
            more => panic!("{} packets delivered for one", more.len()),
        },
        _ => {
            assert!((2..=MAX_SEGMENTS as usize).contains(&(given.len() + too_long)));
            cut(packet, &given, &normal, too_long > 0);
        }
    }
}

/// Asserts that only the checksum has changed.
fn summed(packet: &[u8], bytes: &[u8], normal: &Offload) {
    assert_eq!(packet.len(), bytes.len());
    let start = usize::from(normal.csum_start);
    let field = start + usize::from(normal.csum_offset);
    for (at, (new, old)) in bytes.iter().zip(packet).enumerate() {
        assert!(new == old || (field..field + 2).contains(&at), "byte {at} changed");
    }
    // The field's previous value counts as the pseudo-header's sum.
    if normal.csum_offset.is_multiple_of(2) {
        let mut checked = bytes[start..].to_vec();
        checked.resize(checked.len().next_multiple_of(2), 0);
        checked.extend(&packet[field..field + 2]);
        assert_eq!(sum_of_words(&checked), 0xffff, "the checksum is wrong");
    }
}

/// Checks segments, some of which may be missing.
fn cut(packet: &[u8], given: &[(Vec<u8>, Offload)], normal: &Offload, some_missing: bool) {
    let (hdr, size) = (usize::from(normal.hdr_len), usize::from(normal.gso_size));
    let layers = Layers::parse(&packet[..packet.len().min(PRIVATE)]);
    let (l3, l4) = (usize::from(layers.l3.unwrap_or_default()), usize::from(layers.l4.unwrap_or_default()));
    let udp = normal.gso == Gso::Udp;
    let mut payload = Vec::new();
    for (i, (bytes, _)) in given.iter().enumerate() {
        let carried = bytes.len() - hdr;
        assert!(carried == size || carried < size && i + 1 == given.len(), "{carried} of {size} bytes");
        payload.extend(&bytes[hdr..]);
        let found = Layers::parse(bytes);
        assert_eq!((found.l2_len, found.l3, found.l4), (layers.l2_len, layers.l3, layers.l4));
        let number = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        match layers.ip {
            Some(IpVersion::V4) => {
                assert_eq!(number(l3 + 2), bytes.len() - l3);
                assert_eq!(sum_of_words(&bytes[l3..l4]), 0xffff, "the IPv4 header checksum is wrong");
            }
            _ => assert_eq!(number(l3 + 4), bytes.len() - l3 - 40),
        }
        assert!(!udp || number(l4 + 4) == bytes.len() - l4);
        // The sender's pseudo-header sum, without the packet's length, with this segment's length.
        let field = l4 + if udp { 6 } else { 16 };
        let (uncut, own) = (!((packet.len() - l4) as u16), (bytes.len() - l4) as u16);
        let mut checked = bytes[l4..].to_vec();
        checked.resize(checked.len().next_multiple_of(2), 0);
        checked.extend(packet[field..field + 2].iter().chain(&uncut.to_be_bytes()).chain(&own.to_be_bytes()));
        assert_eq!(sum_of_words(&checked), 0xffff, "segment {i}: the checksum is wrong");
    }
    if some_missing {
        // Only the last segment is shorter than the others.
        assert!(given.len() <= 1 && packet.ends_with(&payload));
    } else {
        assert!(payload == packet[hdr..], "{} of {} bytes", payload.len(), packet.len() - hdr);
    }
}

/// A receive queue with one packet in memory.
struct Frame(Option<(Vec<u8>, Offload)>);

impl RxQueue for Frame {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        let Some((bytes, claim)) = self.0.take() else { return Ok(()) };
        let Some(room) = batch.landing() else { return Ok(()) };
        let len = bytes.len().min(room.len());
        room[..len].copy_from_slice(&bytes[..len]);
        batch.landed(0, len, claim)
    }

    fn complete(&mut self, _: &mut Tools) -> Result<(), Fault> {
        Ok(())
    }

    fn set_signalled(&mut self, _: bool) {}

    fn signal(&self) -> BorrowedFd<'_> {
        unreachable!("fuzz targets do not sleep")
    }

    fn cheap_to_poll(&self) -> bool {
        true
    }
}

/// A receiver that records packets.
struct Take;

impl Egress for Take {
    fn deliver(&self, list: &mut OutputList<'_>, _: &QueueCounters, _: &mut Tools) -> Result<(), Fault> {
        list.for_each(|output| {
            let mut bytes = output.header().to_vec();
            output.for_each_payload(|at, n| {
                let start = bytes.len();
                bytes.resize(start + n, 0);
                // SAFETY: the source's landing memory, which is not written meanwhile; the address sanitizer checks its
                // size.
                unsafe { bytes[start..].as_mut_ptr().copy_from(at, n) };
            });
            GIVEN.with_borrow_mut(|given| given.push((bytes, output.offload())));
        });
        Ok(())
    }
}

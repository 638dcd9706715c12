//! Frames with metadata through a bridge, between ports in memory that differ in what they take.
//!
//! The way of a batch is the worker's own: private headers, the logic `learning` or `static`, versions, software
//! segmentation, lists, lanes.
//!
//! Held invariant:
//! - No panic, whatever the frames, the VLANs, the capabilities and the bounds.
//! - No port gets its own packet, nor one that is longer than it takes, nor metadata for jobs that it cannot do.
//! - Metadata that goes with a packet is its own normal form.
//! - What arrives with full checksums carries the payload that was sent: every payload byte of an output lies within
//!   what the source has.
#![no_main]

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric::fuzzing::{Picture, Port, Steps};
use fabric::port::VidSet;
use fabric::rx::BatchLimits;
use fabric::{
    Caps, Egress, Fault, OutputList, PortIndex, PortSettings, QueueCounters, RxBatch, RxQueue, SwitchLogic,
    Tools, VlanMode,
};
use libfuzzer_sys::fuzz_target;
use packet::{Gso, Offload, Vid};
use support::Bytes;
use support::frame::{self, Frame};

const LIMITS: BatchLimits = BatchLimits { packets: 64, bytes: 256 << 10 };

thread_local! {
    static STEPS: std::cell::RefCell<Option<Steps>> = const { std::cell::RefCell::new(None) };
}

fuzz_target!(|data: &[u8]| {
    let mut from = Bytes::new(data);
    let [logic, ports, packets] = from.array();
    let limits = BatchLimits { packets: usize::from(packets), bytes: usize::from(from.u16()) * 4 };
    let ingress = Arc::new(AtomicU64::new(0));
    let n = 2 + u16::from(ports % 5);
    let ports = (0..n).map(|index| port(index, &ingress, &mut from)).collect();
    let logic: Arc<dyn SwitchLogic> = match logic % 4 {
        0 => build("static", &[("p0", "p1")]),
        1 => build("learning", &[("max-stations", "2")]),
        _ => build("learning", &[]),
    };
    let picture = Picture::new(logic, ports);

    STEPS.with_borrow_mut(|steps| {
        let steps = steps.get_or_insert_with(|| match Steps::new(LIMITS) {
            Ok(steps) => steps,
            Err(error) => panic!("no worker: {error}"),
        });
        steps.set_limits(limits);
        for _ in 0..8 {
            if from.is_empty() {
                break;
            }
            let at = u16::from(from.u8()) % n;
            ingress.store(u64::from(at), Ordering::Relaxed);
            let frames = (0..1 + from.below(8)).map(|_| frame::read(&mut from)).collect();
            assert_eq!(steps.receive(&mut Source(frames)), Ok(()));
            if steps.packets() > 0 {
                steps.load();
                steps.forward(&picture, PortIndex(at));
            }
            steps.take_drops();
        }
    });
    assert!(picture.take_faults().is_empty());
});

fn build(name: &str, params: &[(&str, &str)]) -> Arc<dyn SwitchLogic> {
    let params: Vec<_> = params.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    match logic::build(name, &params) {
        Ok(logic) => logic,
        Err(error) => panic!("{error}"),
    }
}

fn port(index: u16, ingress: &Arc<AtomicU64>, from: &mut Bytes<'_>) -> Port {
    let [shape, vlan, mtu] = from.array();
    let caps = Caps { csum: shape & 1 != 0, tso4: shape & 2 != 0, tso6: shape & 4 != 0, uso: shape & 8 != 0 };
    let max_frame = if mtu == 0 { 65_535 + 22 } else { u32::from(mtu) * 32 };
    let mut settings = PortSettings::new(format!("p{index}"));
    let vid = Vid::new(u16::from(vlan >> 2) % 8);
    settings.vlan = match (vlan & 3, vid) {
        (1, Some(vid)) => VlanMode::Access(vid),
        (2, native) => {
            let mut allowed = VidSet::empty();
            (1..8).filter(|vid| vlan >> vid & 1 == 1).for_each(|vid| allowed.insert(vid));
            VlanMode::Trunk { native, allowed }
        }
        (3, native) => VlanMode::Trunk { native, allowed: VidSet::all() },
        _ => VlanMode::Transparent,
    };
    let up = shape & 0x80 == 0;
    let lanes = match shape >> 4 & 7 {
        _ if !up => 0,
        0 => 0,
        1 => 2,
        2 => 3,
        _ => 1,
    };
    let check = |_| Arc::new(Check { index, caps, max_frame, ingress: ingress.clone() }) as Arc<dyn Egress>;
    Port { up, settings, tx: (0..lanes).map(check).collect(), caps, max_frame }
}

/// Frames from memory.
struct Source(Vec<Frame>);

impl RxQueue for Source {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        for frame in self.0.drain(..) {
            if !batch.has_room() {
                break;
            }
            let Some(room) = batch.landing() else { break };
            let len = frame.bytes.len().min(room.len());
            room[..len].copy_from_slice(&frame.bytes[..len]);
            batch.landed(0, len, frame.claim)?;
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn set_signalled(&mut self, _: bool) {}

    fn signal(&self) -> BorrowedFd<'_> {
        unreachable!("nobody sleeps here")
    }

    fn cheap_to_poll(&self) -> bool {
        true
    }
}

/// A destination that looks at what it is given.
struct Check {
    index: u16,
    caps: Caps,
    max_frame: u32,
    ingress: Arc<AtomicU64>,
}

impl Egress for Check {
    fn deliver(&self, list: &mut OutputList<'_>, _: &QueueCounters, _: &mut Tools) -> Result<(), Fault> {
        assert!(!list.is_empty());
        assert_ne!(self.ingress.load(Ordering::Relaxed), u64::from(self.index), "its own packets");
        let mut n = 0;
        list.for_each(|output| {
            n += 1;
            let mut bytes = output.header().to_vec();
            output.for_each_payload(|at, n| {
                let start = bytes.len();
                bytes.resize(start + n, 0);
                // SAFETY: the source's landing memory, which nobody writes to meanwhile; its size is checked by the
                // address sanitizer.
                unsafe { bytes[start..].as_mut_ptr().copy_from(at, n) };
            });
            assert_eq!(bytes.len(), output.len() as usize);
            assert!(bytes.len() >= 14, "{} bytes are no frame", bytes.len());
            let offload = *output.offload();
            let (wanted, segment) = match offload.gso {
                Gso::None => (true, output.len()),
                Gso::Tcp4 => (self.caps.tso4, u32::from(offload.hdr_len + offload.gso_size)),
                Gso::Tcp6 => (self.caps.tso6, u32::from(offload.hdr_len + offload.gso_size)),
                Gso::Udp => (self.caps.uso, u32::from(offload.hdr_len) + u32::from(offload.gso_size)),
            };
            assert!(wanted && segment.min(output.len()) <= self.max_frame, "too long, or not what it takes");
            if !offload.is_none() {
                assert!(self.caps.csum, "a checksum that it cannot complete");
                assert_eq!(offload.validate(&bytes, output.len()), Ok(offload));
            } else {
                assert_eq!(Offload { csum_valid: false, ..offload }, Offload::NONE);
            }
        });
        assert_eq!(n, list.len());
        Ok(())
    }
}

//! Frames with metadata through a bridge between in-memory ports with different capabilities.
//!
//! A batch takes the worker's real path: private headers, policing and storm control, the logic `learning` or `static`,
//! versions, software segmentation, lists and transmit queues; the input may add a mirror and an observer.
//!
//! Invariants:
//! - No panic, for any frames, VLANs, capabilities and limits.
//! - No port gets its own packet except through a mirror, nor a packet above its maximum length, nor metadata for
//!   offloads that it lacks.
//! - Delivered metadata is in normal form.
//! - Outputs with complete checksums carry the sent payload: each payload byte lies within the source.
//! - An observer can copy exactly the packet that it sees.
//! - A trace predicts the packets delivered to ports, byte for byte and in order.
#![no_main]

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric::fuzzing::{Bridge, Port, Steps};
use fabric::port::VidSet;
use fabric::protection::{Limit, Source, Storm, Unit};
use fabric::rx::BatchLimits;
use fabric::{
    Caps, DropReason, Egress, Fault, Interest, Mirror, Observer, OutputList, PortIndex, PortSettings,
    QueueCounters, Sightings, SwitchLogic, Tools, TracedOutput, VlanMode,
};
use libfuzzer_sys::fuzz_target;
use packet::{Gso, Offload, Vid};
use support::Bytes;
use support::frame::{self, Frames};

const LIMITS: BatchLimits = BatchLimits { packets: 64, bytes: 256 << 10 };

thread_local! {
    static STEPS: RefCell<Option<Steps>> = const { RefCell::new(None) };
    /// Packets delivered to ports since the last check.
    static GIVEN: RefCell<Vec<(u16, Vec<u8>, Offload)>> = const { RefCell::new(Vec::new()) };
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
        2 => build("learning", &[("snooping", "on")]),
        _ => build("learning", &[]),
    };
    let [mirror, observer, explained] = from.array();
    let mirrors = if mirror == 0 { Vec::new() } else { vec![mirror_of(mirror, n, &mut from)] };
    let observers: &[Arc<dyn Observer>] =
        if observer == 0 { &[] } else { &[Arc::new(Look { observer, explained })] };
    let bridge = Bridge::observed(logic, ports, mirrors, observers);

    STEPS.with_borrow_mut(|steps| {
        let steps = steps.get_or_insert_with(|| match Steps::new(LIMITS) {
            Ok(steps) => steps,
            Err(error) => panic!("cannot create a worker: {error}"),
        });
        steps.set_limits(limits);
        for _ in 0..8 {
            if from.is_empty() {
                break;
            }
            let at = u16::from(from.u8()) % n;
            // A mirror's target may get copies of its own packets.
            ingress.store(if mirror == 0 { u64::from(at) } else { u64::MAX }, Ordering::Relaxed);
            let frames: Vec<_> = (0..1 + from.below(8)).map(|_| frame::read(&mut from)).collect();
            let traced = match frames.as_slice() {
                [one] if explained & 3 == 0 && one.bytes.len() <= 65_535 && limits.bytes > 0 => {
                    match bridge.trace(PortIndex(at), &one.bytes, one.claim) {
                        Ok(traced) => Some(traced),
                        Err(error) => panic!("{error}"),
                    }
                }
                _ => None,
            };
            GIVEN.take();
            assert_eq!(steps.receive(&mut Frames(frames)), Ok(()));
            if steps.packets() > 0 {
                steps.load();
                steps.forward(&bridge, PortIndex(at));
            }
            let drops = steps.take_drops();
            if let Some(traced) = traced {
                // Traced in the order in which they are named, and delivered list by list, in the order in which the
                // lists' queues are first named.
                let queue = |output: &TracedOutput| (output.port, output.queue);
                let first = |of: &&TracedOutput| traced.outputs.iter().position(|it| queue(it) == queue(of));
                let mut outputs: Vec<_> = traced.outputs.iter().collect();
                outputs.sort_by_key(first);
                let expected: Vec<_> = outputs
                    .into_iter()
                    .map(|output| (output.port.0, output.packet.clone(), output.offload))
                    .collect();
                assert_eq!(GIVEN.take(), expected, "{:?}", traced.remarks);
                for reason in DropReason::ALL {
                    let predicted = traced.drops.iter().filter(|predicted| *predicted == reason).count();
                    assert_eq!(
                        drops.get(*reason) as usize,
                        predicted,
                        "{}: {:?}",
                        reason.name(),
                        traced.remarks
                    );
                }
            }
        }
    });
    assert!(bridge.take_faults().is_empty());
});

fn build(name: &str, params: &[(&str, &str)]) -> Arc<dyn SwitchLogic> {
    let params: Vec<_> = params.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    match logic::build(name, &params, &[]) {
        Ok(logic) => logic,
        Err(error) => panic!("{error}"),
    }
}

/// A mirror of some ports.
fn mirror_of(shape: u8, ports: u16, from: &mut Bytes<'_>) -> Mirror {
    let [of, to, vid] = from.array();
    let from: Vec<_> = (0..ports).filter(|port| of >> port & 1 == 1).map(|port| format!("p{port}")).collect();
    let interest = |shape: u8| Interest { received: shape & 1 != 0, sent: shape & 2 != 0, explained: false };
    let by_port =
        from.iter().zip(0..).map(|(name, at)| (name.clone(), interest(shape >> (at % 2)))).collect();
    let mut vlans = VidSet::empty();
    (0..8).filter(|vid| of >> vid & 1 == 1).for_each(|vid| vlans.insert(vid));
    Mirror {
        name: "m".into(),
        from,
        what: interest(shape),
        by_port: (shape & 8 != 0).then_some(by_port),
        vlans: (shape & 16 != 0).then_some(vlans),
        to: format!("p{}", u16::from(to) % ports),
        vlan: Vid::new(u16::from(vid)),
        into_vlan: (shape & 32 != 0).then_some(Vid::new(u16::from(to))).flatten(),
        cut: (shape & 64 != 0).then_some(14 + u32::from(vid)),
    }
}

/// An observer that copies each packet that it sees.
struct Look {
    observer: u8,
    explained: u8,
}

impl Observer for Look {
    fn interest(&self, port: PortIndex, _: &str) -> Interest {
        let bit = |byte: u8| byte >> (port.0 % 8) & 1 == 1;
        Interest { received: bit(self.observer), sent: bit(!self.observer), explained: bit(self.explained) }
    }

    fn observe(&self, _: usize, batch: &Sightings<'_>) {
        batch.for_each(|seen| {
            let mut bytes = vec![0; seen.len() as usize + 1];
            assert_eq!(seen.copy(0, &mut bytes), seen.len() as usize);
            for remark in seen.remarks() {
                assert!(!remark.sentence(|port| port.0.to_string()).is_empty());
            }
        });
    }
}

/// A limit without a noticeable refill during one input.
fn limit(byte: u8) -> Option<Limit> {
    let burst = u64::from(byte & 0x3f) * 64;
    (byte >= 0xc0).then_some(Limit { unit: Unit::Bits, rate: 1, burst: Some(burst) })
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
        (3, Some(native)) if vlan & 0x20 != 0 => VlanMode::NativeTagged { native, allowed: VidSet::all() },
        (3, native) => VlanMode::Trunk { native, allowed: VidSet::all() },
        (0, Some(vid)) if vlan & 0x80 != 0 => VlanMode::Tunnel(vid),
        _ => VlanMode::Transparent,
    };
    let [police, broadcast, multicast, unknown, protection] = from.array();
    settings.police = limit(police);
    settings.storm =
        Storm { broadcast: limit(broadcast), multicast: limit(multicast), unknown: limit(unknown) };
    settings.isolated = protection & 1 != 0;
    settings.security.max_stations = (protection & 2 != 0).then_some(u32::from(protection >> 6));
    settings.security.sticky = protection & 4 != 0;
    if protection & 8 != 0 {
        settings.security.sources = vec![Source { address: [10, 0, 0, 0].into(), prefix: 8, mac: None }];
    }
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

/// A destination that checks its packets.
struct Check {
    index: u16,
    caps: Caps,
    max_frame: u32,
    ingress: Arc<AtomicU64>,
}

impl Egress for Check {
    fn deliver(&self, list: &mut OutputList<'_>, _: &QueueCounters, _: &mut Tools) -> Result<(), Fault> {
        assert!(!list.is_empty());
        assert_ne!(
            self.ingress.load(Ordering::Relaxed),
            u64::from(self.index),
            "a port received its own packets"
        );
        let mut n = 0;
        list.for_each(|output| {
            n += 1;
            let mut bytes = output.header().to_vec();
            output.for_each_payload(|at, n| {
                let start = bytes.len();
                bytes.resize(start + n, 0);
                // SAFETY: the source's landing memory, which is not written meanwhile; the address sanitizer checks its
                // size.
                unsafe { bytes[start..].as_mut_ptr().copy_from(at, n) };
            });
            assert_eq!(bytes.len(), output.len() as usize);
            GIVEN.with_borrow_mut(|given| given.push((self.index, bytes.clone(), output.offload())));
            assert!(bytes.len() >= 14, "a frame of {} bytes", bytes.len());
            let offload = output.offload();
            let (wanted, segment) = match offload.gso {
                Gso::None => (true, output.len()),
                Gso::Tcp4 => (self.caps.tso4, u32::from(offload.hdr_len + offload.gso_size)),
                Gso::Tcp6 => (self.caps.tso6, u32::from(offload.hdr_len + offload.gso_size)),
                Gso::Udp => (self.caps.uso, u32::from(offload.hdr_len) + u32::from(offload.gso_size)),
            };
            assert!(
                wanted && segment.min(output.len()) <= self.max_frame,
                "above the maximum length, or a missing capability"
            );
            if !offload.is_none() {
                assert!(self.caps.csum, "a partial checksum without the capability");
                assert_eq!(offload.validate(&bytes, output.len()), Ok(offload));
            } else {
                assert_eq!(Offload { csum_valid: false, ..offload }, Offload::NONE);
            }
        });
        assert_eq!(n, list.len());
        Ok(())
    }
}

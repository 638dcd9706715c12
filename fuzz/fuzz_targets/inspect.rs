//! Packets of a few flows through the logic `inspect`, with the state of flows; some of them damaged.
//!
//! The input chooses how gaps are handled and how many flows fit, then packets in batches: TCP segments of two
//! connections, in any order and with overlaps, datagrams, fragments, carriers, tags, raw bytes.
//!
//! Invariants:
//! - No panic, whatever the packets.
//! - A packet that is delivered is unchanged.
//! - A TCP segment or datagram with intact headers whose own payload has a pattern is never delivered.
//! - A trace predicts what happens to the next packet.
#![no_main]

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use fabric::fuzzing::{Bridge, Port, Steps};
use fabric::rx::BatchLimits;
use fabric::worker::Threads;
use fabric::{Caps, Egress, Fault, OutputList, PortIndex, PortSettings, QueueCounters, SwitchLogic, Tools};
use inspect::Inspect;
use libfuzzer_sys::fuzz_target;
use packet::Offload;
use support::Bytes;
use support::frame::{Frame, Frames};

const LIMITS: BatchLimits = BatchLimits { packets: 64, bytes: 256 << 10 };

/// A pattern that drops; its bytes are among those that payloads are made of.
const PATTERN: &[u8] = b"evil";

thread_local! {
    static STEPS: RefCell<Option<Steps>> = const { RefCell::new(None) };
}

type Given = Arc<Mutex<Vec<Vec<u8>>>>;

fuzz_target!(|data: &[u8]| {
    let mut from = Bytes::new(data);
    let [gaps, flows] = from.array();
    let given = Given::default();
    let bridge = bridge(gaps, flows, &given);
    STEPS.with_borrow_mut(|steps| {
        let steps = steps.get_or_insert_with(|| match Steps::new(LIMITS) {
            Ok(steps) => steps,
            Err(error) => panic!("cannot create a worker: {error}"),
        });
        for _ in 0..32 {
            if from.is_empty() {
                break;
            }
            let packets: Vec<_> = (0..1 + from.below(4)).map(|_| packet(&mut from)).collect();
            let traced = match &packets[..] {
                [(bytes, _)] if bytes.len() >= 14 => match bridge.trace(PortIndex(0), bytes, Offload::NONE) {
                    Ok(traced) => Some(traced.outputs.len()),
                    Err(error) => panic!("{error}"),
                },
                _ => None,
            };
            let frames =
                packets.iter().map(|(bytes, _)| Frame { bytes: bytes.clone(), claim: Offload::NONE });
            assert_eq!(steps.receive(&mut Frames(frames.collect())), Ok(()));
            if steps.packets() > 0 {
                steps.load();
                steps.forward(&bridge, PortIndex(0));
            }
            let delivered = std::mem::take(&mut *lock(&given));
            assert!(traced.is_none_or(|traced| traced == delivered.len()), "the trace predicts another fate");
            for bytes in &delivered {
                let sent = packets.iter().find(|(sent, _)| sent == bytes);
                let Some((_, payload)) = sent else { panic!("a packet has changed") };
                let has_pattern = payload.windows(PATTERN.len()).any(|part| part == PATTERN);
                assert!(!has_pattern, "a pattern has passed");
            }
        }
    });
});

fn bridge(gaps: u8, flows: u8, given: &Given) -> Bridge {
    let params = [
        ("1", "/evil/ -> drop"),
        ("2", "tcp port 80 /^v.*l/ -> drop"),
        ("3", "/li/i -> count"),
        ("4", "udp /v[il]v/ -> count"),
        ("default", "p1"),
        ("gaps", if gaps & 1 == 0 { "pass" } else { "drop" }),
        ("flows", if flows & 1 == 0 { "8" } else { "64" }),
    ];
    let params: Vec<_> =
        params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let logic = match Inspect::new(&params) {
        Ok(logic) => Arc::new(logic),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(logic.prepare(Threads::of(1)), Ok(()));
    let port = |number: usize| Port {
        up: true,
        settings: PortSettings::new(format!("p{number}")),
        tx: vec![Arc::new(Take(given.clone())) as Arc<dyn Egress>],
        caps: Caps::default(),
        max_frame: 65_535,
    };
    Bridge::new(logic, (0..3).map(port).collect())
}

/// A packet, and its payload if its headers are intact.
fn packet(from: &mut Bytes<'_>) -> (Vec<u8>, Vec<u8>) {
    let [kind, shape, seq, damage] = from.array();
    let len = usize::from(from.u8()) * if shape & 0x80 == 0 { 1 } else { 7 };
    let letters = from.slice(len.min(40)).to_vec();
    let mut payload: Vec<u8> = letters.iter().map(|byte| b"evil.LI\n"[usize::from(byte & 7)]).collect();
    if shape & 0x80 != 0 {
        // Behind the private header, and behind 512 bytes.
        let front = vec![b'.'; len];
        payload = [front, payload].concat();
    }
    let to_server = shape & 1 == 0;
    let ports = if to_server {
        [40_000 + u16::from(shape >> 1 & 1), 80]
    } else {
        [80, 40_000 + u16::from(shape >> 1 & 1)]
    };
    let mut l4 = ports.map(u16::to_be_bytes).concat();
    let (protocol, fragmentation) = match kind & 7 {
        0..=3 => {
            l4.extend((u32::MAX - 100).wrapping_add(seq.into()).to_be_bytes());
            l4.extend([0, 0, 0, 0, 0x50, 16 | kind >> 3 & 7, 1, 0, 0, 0, 0, 0]);
            (6, 0x4000)
        }
        4 | 5 => {
            l4.extend((8 + payload.len() as u16).to_be_bytes());
            l4.extend([0, 0]);
            (17, 0)
        }
        6 => {
            l4.extend([0, 99, 0, 0]);
            (17, 0x2000)
        }
        _ => {
            l4.clear();
            (17, 0x2000 | u16::from(seq))
        }
    };
    let is_fragment = fragmentation & 0x3fff != 0;
    let (source, destination) = if to_server { (1, 2) } else { (2, 1) };
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    match shape >> 2 & 7 {
        0 => frame.extend([0x81, 0, 0, 7]),
        1 => frame.extend([0x88, 0xb6, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]),
        2 => frame.extend([0x88, 0xa8, 0, 9, 0x81, 0, 0, 7]),
        _ => {}
    }
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((20 + l4.len() as u16 + payload.len() as u16).to_be_bytes());
    frame.extend([0, seq & 3]);
    frame.extend(fragmentation.to_be_bytes());
    frame.extend([64, protocol, 0, 0, 10, 0, 0, source, 10, 0, 0, destination]);
    frame.extend(l4);
    let start = frame.len();
    frame.extend(&payload);
    if damage & 0xc0 == 0xc0 {
        for _ in 0..damage & 3 {
            let [at, value] = from.array();
            if let Some(byte) = frame.get_mut(usize::from(at) % start.max(1)) {
                *byte = value;
            }
        }
        if damage & 0x20 != 0 {
            frame.truncate(14.max(usize::from(from.u8())));
        }
        return (frame, Vec::new());
    }
    if is_fragment { (frame, Vec::new()) } else { (frame, payload) }
}

/// A transmit queue that records packets.
struct Take(Given);

impl Egress for Take {
    fn deliver(&self, list: &mut OutputList<'_>, _: &QueueCounters, _: &mut Tools) -> Result<(), Fault> {
        let mut given = lock(&self.0);
        list.for_each(|output| {
            let mut bytes = output.header().to_vec();
            // SAFETY: each piece is readable until the batch ends.
            output.for_each_payload(|at, len| bytes.extend(unsafe { std::slice::from_raw_parts(at, len) }));
            given.push(bytes);
        });
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

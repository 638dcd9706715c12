//! Hostile content in the memory that a module shares with the switch: invalid lists, headers at arbitrary offsets,
//! meaningless numbers.
//!
//! The module follows a script, which is the input; batches are processed as in a worker.
//!
//! Invariants: no panic and no access out of bounds; frames delivered to ports have valid lengths.
#![no_main]

use std::cell::RefCell;
use std::sync::Arc;

use fabric::fuzzing::{Bridge, Port, Steps};
use fabric::port::VidSet;
use fabric::rx::BatchLimits;
use fabric::worker::Threads;
use fabric::{Caps, Egress, Fault, OutputList, PortIndex, PortSettings, QueueCounters, Tools, VlanMode};
use libfuzzer_sys::fuzz_target;
use modules::fuzzing::{Script, hostile};
use packet::Vid;
use support::Bytes;
use support::frame::{self, Frames};

const LIMITS: BatchLimits = BatchLimits { packets: 16, bytes: 256 << 10 };

thread_local! {
    static STEPS: RefCell<Option<Steps>> = const { RefCell::new(None) };
}

fuzz_target!(|data: &[u8]| {
    let mut from = Bytes::new(data);
    let [vlans, in_place] = from.array();
    let script = Script::default();
    let logic = match hostile(script.clone()) {
        Ok(logic) => logic,
        Err(error) => panic!("{error}"),
    };
    if let Err(error) = logic.prepare(Threads::of(1)) {
        panic!("{error}");
    }
    let bridge = Bridge::new(logic, (0..3).map(|index| port(index, vlans)).collect());
    STEPS.with_borrow_mut(|steps| {
        let steps = steps.get_or_insert_with(|| match Steps::new(LIMITS) {
            Ok(steps) => steps,
            Err(error) => panic!("cannot create a worker: {error}"),
        });
        for _ in 0..4 {
            let frames: Vec<_> = (0..1 + from.below(6)).map(|_| frame::read(&mut from)).collect();
            let len = usize::from(from.u8());
            if let Ok(mut script) = script.lock() {
                *script = from.slice(len).to_vec();
            }
            let mut queue = Frames(frames);
            let received = steps.receive(&mut queue);
            if steps.packets() > 0 {
                if in_place & 1 == 0 {
                    steps.load_for(&bridge)
                } else {
                    steps.load()
                }
                steps.forward(&bridge, PortIndex(0));
            }
            let _ = received.and_then(|()| steps.complete(&mut queue));
            if in_place & 2 != 0 {
                steps.wake(&bridge);
            }
        }
    });
});

fn port(index: u16, vlans: u8) -> Port {
    let mut settings = PortSettings::new(format!("p{index}"));
    let native = Vid::new(u16::from(vlans) % 8);
    settings.vlan = match (vlans >> (2 * index) & 3, native) {
        (1, Some(vid)) => VlanMode::Access(vid),
        (2, native) => VlanMode::Trunk { native, allowed: VidSet::all() },
        _ => VlanMode::Transparent,
    };
    let caps = Caps { csum: index == 1, tso4: index == 1, tso6: index == 1, uso: index == 1 };
    Port { up: true, settings, tx: vec![Arc::new(Look)], caps, max_frame: 65_535 + 22 }
}

/// Reads all bytes of each output.
struct Look;

impl Egress for Look {
    fn deliver(&self, list: &mut OutputList<'_>, _: &QueueCounters, _: &mut Tools) -> Result<(), Fault> {
        list.for_each(|output| {
            assert!((14..=65_535 + 22).contains(&output.len()), "{} bytes", output.len());
            let mut sum = output.header().iter().map(|byte| u64::from(*byte)).sum::<u64>();
            output.for_each_payload(|at, len| {
                // SAFETY: the payload lies in the batch's own memory, which nobody changes now.
                let bytes = unsafe { std::slice::from_raw_parts(at, len) };
                sum += bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            });
            std::hint::black_box(sum);
        });
        Ok(())
    }
}

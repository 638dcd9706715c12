//! The logic `learning` compared with a simple table of stations, over batches of frames among few stations.
//!
//! Frames come in runs of a flow, from changing ports, with and without tags, some of them too short for a tag. On its
//! fast path, the logic decides flows, not frames, and sends them in runs. The same batches also go through its general
//! path, that of [`SwitchLogic::explain`], and through both paths behind another logic that has dropped some frames.
//!
//! Invariants: each port gets the frames that the table predicts, in order, and drops are counted likewise.
#![no_main]

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use fabric::fuzzing::{Bridge, Port, Steps};
use fabric::rx::BatchLimits;
use fabric::{
    Batch, Caps, DropReason, Egress, Fault, OutputList, PortIndex, PortSettings, QueueCounters, Rest,
    SwitchLogic, Tools,
};
use libfuzzer_sys::fuzz_target;
use packet::Offload;
use support::Bytes;
use support::frame::{Frame, Frames};

const LIMITS: BatchLimits = BatchLimits { packets: 64, bytes: 256 << 10 };
/// Maximum length of ports with a limit.
const SHORT: usize = 60;

thread_local! {
    static STEPS: RefCell<Option<Steps>> = const { RefCell::new(None) };
}

/// Frames delivered to each port.
type Given = Arc<Mutex<Vec<Vec<Vec<u8>>>>>;

fuzz_target!(|data: &[u8]| {
    let mut from = Bytes::new(data);
    let [ports, shapes, held] = from.array();
    let n = 2 + usize::from(ports % 4);
    let kinds: Vec<_> = (0..n).map(|port| Shape::of(shapes >> (2 * (port % 4)))).collect();
    let mut paths = [false, true].map(|explains| Path::new(explains, &kinds, held));
    let mut table = Table::default();
    STEPS.with_borrow_mut(|steps| {
        let steps = steps.get_or_insert_with(|| match Steps::new(LIMITS) {
            Ok(steps) => steps,
            Err(error) => panic!("cannot create a worker: {error}"),
        });
        for _ in 0..16 {
            if from.is_empty() {
                break;
            }
            let ingress = usize::from(from.u8()) % n;
            let frames = frames(&mut from);
            let (given, drops, too_long) = table.switch(&frames, ingress, &kinds, held);
            for path in &mut paths {
                path.switch(steps, &frames, ingress, &given, &drops, &too_long);
            }
        }
    });
});

/// Kind of a port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    All,
    TwoQueues,
    ShortOnes,
    Nothing,
}

impl Shape {
    fn of(bits: u8) -> Self {
        [Self::All, Self::TwoQueues, Self::ShortOnes, Self::Nothing][usize::from(bits & 3)]
    }
}

/// Runs of frames between few stations.
fn frames(from: &mut Bytes<'_>) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for _ in 0..from.below(16) {
        let [stations, tag, len, times] = from.array();
        let station = |n: u8| match n & 15 {
            12 => [1, 0, 0x5e, 0, 0, 1],
            13 => [1, 0x80, 0xc2, 0, 0, 0x0e],
            14 => [0x33, 0x33, 0, 0, 0, 1],
            15 => [0xff; 6],
            n => [2, 0, 0, 0, 0, n & 3],
        };
        let mut frame = [station(stations), station(stations >> 4)].concat();
        match tag & 7 {
            0 | 1 => frame.extend([8, 0, tag, tag]),
            2 => frame.extend([0x88, 0xa8, 0, tag >> 5]),
            3 => frame.extend([0xff; 4]),
            // Also of the same VLAN with different priorities.
            _ => frame.extend([0x81, 0, tag << 1 & 0xf0, tag >> 6]),
        }
        let len = [14, 15, 16, 17, 18, 19, SHORT, SHORT + 1][usize::from(len & 7)];
        frame.resize(len, len as u8);
        for i in 0..1 + times % 4 {
            // Frames differ behind the parsed bytes.
            if let Some(last) = frame.get_mut(18..).and_then(<[u8]>::last_mut) {
                *last = last.wrapping_add(i);
            }
            frames.push(frame.clone());
        }
    }
    frames.truncate(LIMITS.packets);
    frames
}

/// Ports of the stations. No entry is evicted: at most 20 stations are known, far below a port's share of the logic's
/// table.
#[derive(Default)]
struct Table(HashMap<(u16, [u8; 6]), usize>);

/// Whether a preceding logic has dropped frame `i`.
fn is_held(held: u8, i: usize) -> bool {
    held >> (i % 8) & 1 == 1
}

impl Table {
    /// Returns the frames for each port, the drops, and the number of frames too long for each port.
    fn switch(
        &mut self,
        frames: &[Vec<u8>],
        ingress: usize,
        kinds: &[Shape],
        held: u8,
    ) -> (Vec<Vec<Vec<u8>>>, Vec<u32>, Vec<u64>) {
        let mut given = vec![Vec::new(); kinds.len()];
        let (mut drops, mut too_long) = (vec![0; DropReason::ALL.len()], vec![0; kinds.len()]);
        let mut put = |port: usize, frame: &Vec<u8>| match kinds[port] {
            Shape::ShortOnes if frame.len() > SHORT => too_long[port] += 1,
            _ => given[port].push(frame.clone()),
        };
        for (i, frame) in frames.iter().enumerate() {
            let mut drop = |reason: DropReason| drops[reason as usize] += 1;
            if is_held(held, i) {
                drop(DropReason::Logic);
                continue;
            }
            let (mut dst, mut src) = ([0; 6], [0; 6]);
            dst.copy_from_slice(&frame[..6]);
            src.copy_from_slice(&frame[6..12]);
            let is_tagged = frame.len() >= 18 && frame[12..14] == [0x81, 0];
            let vlan = if is_tagged { u16::from_be_bytes([frame[14], frame[15]]) & 0xfff } else { 0 };
            if src[0] & 1 == 0 {
                self.0.insert((vlan, src), ingress);
            }
            match self.0.get(&(vlan, dst)) {
                _ if dst[..5] == [1, 0x80, 0xc2, 0, 0] && dst[5] < 16 => drop(DropReason::ReservedGroup),
                Some(port) if *port == ingress => drop(DropReason::SamePort),
                Some(port) if kinds[*port] == Shape::Nothing => drop(DropReason::PortDown),
                Some(port) => put(*port, frame),
                None => {
                    let others =
                        (0..kinds.len()).filter(|port| *port != ingress && kinds[*port] != Shape::Nothing);
                    let others: Vec<_> = others.collect();
                    if others.is_empty() {
                        drop(DropReason::NoDestination);
                    }
                    others.into_iter().for_each(|port| put(port, frame));
                }
            }
        }
        (given, drops, too_long)
    }
}

/// One path of the logic, in a bridge of its own.
struct Path {
    bridge: Bridge,
    given: Given,
    /// By port: its kind, its first queue, and the number of frames that were too long so far.
    ports: Vec<(Shape, usize, u64)>,
}

impl Path {
    fn new(explains: bool, kinds: &[Shape], held: u8) -> Self {
        let logic = match logic::build("learning", &[("max-stations".into(), "1024".into())], &[]) {
            Ok(logic) => logic,
            Err(error) => panic!("{error}"),
        };
        let logic = Later { logic, explains, held };
        let given = Given::default();
        lock(&given).resize(kinds.len(), Vec::new());
        let (mut queues, mut known) = (0, Vec::new());
        let mut port = |(index, kind): (usize, &Shape)| {
            let lanes = match kind {
                Shape::Nothing => 0,
                Shape::TwoQueues => 2,
                _ => 1,
            };
            known.push((*kind, queues, 0));
            queues += lanes;
            let tx = (0..lanes).map(|_| Arc::new(Take { index, given: given.clone() }) as Arc<dyn Egress>);
            Port {
                up: true,
                settings: PortSettings::new(format!("p{index}")),
                tx: tx.collect(),
                caps: Caps::default(),
                max_frame: if *kind == Shape::ShortOnes { SHORT as u32 } else { 1518 },
            }
        };
        let ports = kinds.iter().enumerate().map(&mut port).collect();
        Self { bridge: Bridge::new(Arc::new(logic), ports), given, ports: known }
    }

    fn switch(
        &mut self,
        steps: &mut Steps,
        frames: &[Vec<u8>],
        ingress: usize,
        given: &[Vec<Vec<u8>>],
        drops: &[u32],
        too_long: &[u64],
    ) {
        let copy = |bytes: &Vec<u8>| Frame { bytes: bytes.clone(), claim: Offload::NONE };
        assert_eq!(steps.receive(&mut Frames(frames.iter().map(copy).collect())), Ok(()));
        assert_eq!(steps.packets(), frames.len());
        if frames.is_empty() {
            return;
        }
        steps.load();
        steps.forward(&self.bridge, PortIndex(ingress as u16));
        for (port, (given, is)) in given.iter().zip(lock(&self.given).iter_mut()).enumerate() {
            let mut is = std::mem::take(is);
            let mut given = given.clone();
            if self.ports[port].0 == Shape::TwoQueues {
                // The logic does not choose the queue of a flow.
                is.sort();
                given.sort();
            }
            assert!(is == given, "port {port} got {} frames, {} expected", is.len(), given.len());
        }
        let counted = steps.take_drops();
        for reason in DropReason::ALL {
            assert_eq!(counted.get(*reason), drops[*reason as usize], "{}", reason.name());
        }
        for ((kind, queue, so_far), too_long) in self.ports.iter_mut().zip(too_long) {
            *so_far += too_long;
            if *kind != Shape::Nothing {
                let is = self.bridge.counters()[*queue].snapshot();
                assert_eq!(is.drops[DropReason::ExceedsMtu as usize], *so_far);
            }
        }
    }
}

/// The logic behind another one that drops some frames.
struct Later {
    logic: Arc<dyn logic::Logic>,
    explains: bool,
    held: u8,
}

impl SwitchLogic for Later {
    fn forward(&self, batch: &mut Batch<'_>) {
        let decide = |batch: &mut Batch<'_>| match self.explains {
            true => assert!(self.logic.explain(batch)),
            false => self.logic.forward(batch),
        };
        if self.held == 0 {
            return decide(batch);
        }
        for v in batch.packets().filter(|v| is_held(self.held, v.number())) {
            batch.discard(v, DropReason::Logic);
        }
        let mut rest = Rest::default();
        if let Some(mut left) = batch.rest(&mut rest) {
            decide(&mut left);
        }
        batch.end_of_stages(rest);
    }
}

/// A transmit queue that records frames.
struct Take {
    index: usize,
    given: Given,
}

impl Egress for Take {
    fn deliver(&self, list: &mut OutputList<'_>, _: &QueueCounters, _: &mut Tools) -> Result<(), Fault> {
        let mut given = lock(&self.given);
        list.for_each(|output| {
            assert_eq!((output.payload_len(), output.offload()), (0, Offload::NONE));
            given[self.index].push(output.header().to_vec());
        });
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Batches with every kind of packet, a logic that makes any decisions in any order, and destinations that refuse some
//! outputs, compared with a [model](support::model) that works on bytes only.
//!
//! Packets come in one piece through the fast path, in several pieces, with metadata, and from the logic itself. The
//! logic sends single packets, ranges and all packets, floods, reflects, edits, copies, drops, and decides in several
//! stages. Destinations are functions that refuse by pattern, rings with too few or too small entries, and the switch's
//! own queues that drains empty.
//!
//! Invariants:
//! - The logic sees each version's header as in the model, after any operation.
//! - Each queue receives one list, in the order in which queues were first used, but for queues of one port, among which
//!   a range of packets is spread queue by queue: the model's versions in the model's order, byte for byte, with the
//!   model's metadata.
//! - After a refusal, the list keeps the other outputs in order. A ring's receiver gets each packet that fits; each
//!   other one is counted once.
//! - Packets that wait leave in order, unchanged, as far as the receiver has room; those without room are counted.
//! - Drops are counted at the place and with the reason of the model.
#![no_main]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric::fuzzing::{Bridge, Drainer, Port, Retaining, Steps};
use fabric::protection::{EgressLimits, Waiting};
use fabric::rx::{BatchLimits, MAX_PACKET, MIN_PACKET};
use fabric::{
    Batch, Caps, DropReason, Egress, Fault, Output, OutputList, PortIndex, PortSettings, QueueCounters, Rest,
    RxBatch, RxQueue, SwitchLogic, Tools, TxRing, VersionId,
};
use libfuzzer_sys::fuzz_target;
use packet::{Offload, VlanTag};
use support::Bytes;
use support::frame::{self, Frame};
use support::memory_ring::{Backing, MemoryRing};
use support::model::{Model, Shape};

const LIMITS: BatchLimits = BatchLimits { packets: 64, bytes: 256 << 10 };
const SLOT: usize = 2048;
const METADATA: usize = 12;

/// A packet on a list.
type Given = (Vec<u8>, Offload);

thread_local! {
    static STEPS: RefCell<Option<(Steps, Drainer)>> = const { RefCell::new(None) };
    /// Expected state of the current batch.
    static MODEL: RefCell<Option<Model>> = const { RefCell::new(None) };
    /// Expected lists of the queues, in order.
    static LISTS: RefCell<VecDeque<(usize, Vec<Given>)>> = const { RefCell::new(VecDeque::new()) };
}

fuzz_target!(|data: &[u8]| {
    let mut from = Bytes::new(data);
    let [ports, packets] = from.array();
    let limits = BatchLimits { packets: usize::from(packets), bytes: LIMITS.bytes };
    let mut world = World::new(2 + usize::from(ports % 4), &mut from);
    STEPS.with_borrow_mut(|idle| {
        let (steps, drainer) = idle.get_or_insert_with(|| match (Steps::new(LIMITS), Drainer::new(LIMITS)) {
            (Ok(steps), Ok(drainer)) => (steps, drainer),
            (Err(error), _) | (_, Err(error)) => panic!("cannot create a worker: {error}"),
        });
        steps.set_limits(limits);
        for _ in 0..8 {
            if from.is_empty() {
                break;
            }
            world.batch(steps, limits, &mut from);
            world.drain(drainer, from.u8());
        }
        world.drain(drainer, 0);
    });
});

/// A bridge and its transmit queues.
struct World {
    bridge: Bridge,
    shapes: Vec<Shape>,
    script: Arc<Mutex<Vec<u8>>>,
    /// Transmit queues by index.
    ends: Vec<Arc<End>>,
    drains: Vec<(Arc<End>, Retaining)>,
}

/// A queue has its end, and the end its queue.
impl Drop for World {
    fn drop(&mut self) {
        for (end, _) in &self.drains {
            end.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }
}

impl World {
    fn new(n: usize, from: &mut Bytes<'_>) -> Self {
        let script = Arc::<Mutex<Vec<u8>>>::default();
        let (mut shapes, mut ends, mut drains, mut ports) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for port in 0..n {
            let [shape, mtu] = from.array();
            let bit = |n: u8| shape >> n & 1 == 1;
            let caps = Caps { csum: bit(0), tso4: bit(1), tso6: bit(2), uso: bit(3) };
            let max_frame = if mtu == 0 { 65_535 + 22 } else { u32::from(mtu) * 16 };
            let lanes = [1, 1, 2, 0][usize::from(shape >> 6)];
            let first_lane = ends.len();
            let mut tx: Vec<Arc<dyn Egress>> = Vec::new();
            for lane in first_lane..first_lane + lanes {
                let end = Arc::new(End::new(lane, first_lane..first_lane + lanes, from));
                if let Kind::Queued { buffers } = &end.kind {
                    let waiting = Some(Waiting { buffers: *buffers });
                    let limits = EgressLimits { waiting, ..EgressLimits::default() };
                    match Retaining::new(limits, Arc::new(Leaving(end.clone()))) {
                        Ok(retaining) => {
                            *end.queue.lock().unwrap_or_else(PoisonError::into_inner) =
                                Some(retaining.queue());
                            drains.push((end.clone(), retaining));
                        }
                        Err(error) => panic!("cannot create a queue: {error}"),
                    }
                }
                tx.push(end.clone());
                ends.push(end);
            }
            shapes.push(Shape { first_lane, lanes, caps, max_frame: max_frame as usize });
            let settings = PortSettings::new(format!("p{port}"));
            ports.push(Port { up: true, settings, tx, caps, max_frame });
        }
        let bridge = Bridge::new(Arc::new(Scripted(script.clone())), ports);
        Self { bridge, shapes, script, ends, drains }
    }

    /// Receives and switches a batch, or wakes the logic.
    fn batch(&mut self, steps: &mut Steps, limits: BatchLimits, from: &mut Bytes<'_>) {
        let [at, n, post] = from.array();
        let ingress = usize::from(at) % self.shapes.len();
        let mut queue = Queue { limits, ..Queue::default() };
        for _ in 0..n % 12 {
            let [way, times] = from.array();
            let Frame { bytes, claim } = frame::read(from);
            // Runs of equal packets, and packets in pieces.
            for _ in 0..1 + times % 5 {
                queue.coming.push_back((way, bytes.clone(), claim));
            }
        }
        let len = 2 * usize::from(from.u8());
        *lock(&self.script) = from.slice(len).to_vec();
        self.ends.iter().for_each(|end| end.post(post.into()));

        let is_received = n < 0xf0;
        if is_received {
            assert_eq!(steps.receive(&mut queue), Ok(()));
        } else {
            queue.coming.clear();
        }
        let received = queue.added.iter().map(|(_, bytes, offload)| (bytes.clone(), *offload)).collect();
        let mut model = Model::new(self.shapes.clone(), is_received.then_some(ingress), received);
        for reason in [DropReason::Runt, DropReason::Oversize] {
            let wrong = |bytes: &Vec<u8>| match reason {
                DropReason::Runt => bytes.len() < MIN_PACKET as usize,
                _ => bytes.len() > MAX_PACKET as usize,
            };
            model.drops[reason as usize] = queue.left_out.iter().filter(|bytes| wrong(bytes)).count() as u32;
        }
        MODEL.set(Some(model));
        if !is_received {
            steps.wake(&self.bridge);
        } else if steps.packets() > 0 {
            steps.load();
            steps.forward(&self.bridge, PortIndex(ingress as u16));
        }
        assert!(LISTS.take().is_empty(), "a queue received no list");
        let Some(model) = MODEL.take() else { return };
        let drops = steps.take_drops();
        for reason in DropReason::ALL {
            assert_eq!(drops.get(*reason), model.drops[*reason as usize], "{}", reason.name());
        }
        for (shape, too_long) in self.shapes.iter().zip(&model.too_long) {
            if let Some(end) = self.ends.get(shape.first_lane).filter(|_| shape.lanes > 0) {
                lock(&end.counted).refuse(DropReason::ExceedsMtu, *too_long);
            }
        }
        for (end, counters) in self.ends.iter().zip(self.bridge.counters()) {
            let (counted, is) = (lock(&end.counted), counters.snapshot());
            assert_eq!((is.packets, is.bytes, is.drops), (counted.packets, counted.bytes, counted.drops));
        }
        assert!(self.bridge.take_faults().is_empty());
    }

    /// Runs the drains; `until` limits the packets that their receivers take, 0 means all.
    fn drain(&mut self, drainer: &mut Drainer, until: u8) {
        for (end, drain) in &mut self.drains {
            let may = if until == 0 { u32::MAX } else { u32::from(until % 16) };
            end.may_leave.store(may, Ordering::Relaxed);
            loop {
                let packets = drain.run(drainer, 0);
                let (mut left, mut arrived) = (lock(&end.left), lock(&end.arrived));
                let mut retained = lock(&end.retained);
                // A tag may have made a packet longer than the maximum: it is dropped when it is the next one.
                let mut expected = Vec::new();
                while let Some(given) = retained.front() {
                    let fits = given.0.len() <= MAX_PACKET as usize;
                    if fits && expected.len() == arrived.len() {
                        break;
                    }
                    let given = retained.pop_front();
                    match fits {
                        true => expected.extend(given),
                        false => left.refuse(DropReason::Oversize, 1),
                    }
                }
                assert!(
                    *arrived == expected,
                    "{} packets arrived, {} expected",
                    arrived.len(),
                    expected.len()
                );
                arrived.clear();
                if packets == 0 && drain.counters().snapshot().drops == left.drops {
                    break;
                }
            }
            let is_stopped = end.may_leave.load(Ordering::Relaxed) == 0;
            assert!(is_stopped || lock(&end.retained).is_empty(), "packets remain");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A receive queue: packets, each with a way to add it to the batch.
#[derive(Default)]
struct Queue {
    limits: BatchLimits,
    coming: VecDeque<(u8, Vec<u8>, Offload)>,
    /// Packets in the batch.
    added: Vec<(u8, Vec<u8>, Offload)>,
    /// Packets of invalid length.
    left_out: Vec<Vec<u8>>,
}

impl RxQueue for Queue {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        let is_packet = |len: usize| (MIN_PACKET as usize..=MAX_PACKET as usize).contains(&len);
        while batch.has_room() && !self.coming.is_empty() {
            let plain = |(way, _, claim): &(u8, Vec<u8>, Offload)| way & 1 == 0 && *claim == Offload::NONE;
            let most = self.coming.iter().take_while(|packet| plain(packet)).count();
            let piece = |i: usize| {
                let (_, bytes, _) = self.coming.get(i)?;
                Some((NonNull::from(bytes.as_slice()).cast(), bytes.len() as u32))
            };
            // SAFETY: the bytes stay in place on the heap until the batch is delivered.
            let added = unsafe { batch.add_plain(most, piece) };
            let so_far: usize = self.added.iter().map(|(_, bytes, _)| bytes.len()).sum();
            let mut expected = (0, so_far);
            for (_, bytes, _) in self.coming.iter().take(most) {
                let is_full = self.added.len() + expected.0 == self.limits.packets.clamp(1, 256);
                if is_full || expected.1 >= self.limits.bytes || !is_packet(bytes.len()) {
                    break;
                }
                expected = (expected.0 + 1, expected.1 + bytes.len());
            }
            assert_eq!(added, expected.0);
            self.added.extend(self.coming.drain(..added));
            if !batch.has_room() {
                break;
            }
            let Some((way, bytes, claim)) = self.coming.pop_front() else { break };
            let mut rest = bytes.as_slice();
            for i in 0..way >> 1 & 7 {
                let (piece, behind) = rest.split_at(rest.len().min(usize::from(way >> (i & 3)) * 3));
                // SAFETY: as above.
                unsafe { batch.add_segment(NonNull::from(piece).cast(), piece.len() as u32)? };
                rest = behind;
            }
            if way & 0x80 != 0 && bytes.len() % 3 == 0 {
                batch.abandon_packet();
                rest = &bytes;
            }
            // SAFETY: as above.
            unsafe { batch.add_segment(NonNull::from(rest).cast(), rest.len() as u32)? };
            batch.end_packet(claim);
            match is_packet(bytes.len()) {
                true => self.added.push((way, bytes, claim)),
                false => self.left_out.push(bytes),
            }
            assert_eq!(batch.len(), self.added.len());
        }
        Ok(())
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

/// A logic that follows the input and applies each operation to the model too.
struct Scripted(Arc<Mutex<Vec<u8>>>);

impl SwitchLogic for Scripted {
    fn forward(&self, batch: &mut Batch<'_>) {
        let script = lock(&self.0).clone();
        let mut script = Bytes::new(&script);
        MODEL.with_borrow_mut(|model| {
            let Some(model) = model else { return };
            stages(batch, model, &mut script);
            model.finish();
            // Sent versions are immutable.
            let given = |v: &usize| (model.versions[*v].bytes.clone(), model.versions[*v].offload);
            let lists = model.lists.iter().map(|(lane, list)| (*lane, list.iter().map(given).collect()));
            LISTS.set(lists.collect());
        });
    }

    fn wake(&self, batch: &mut Batch<'_>) {
        self.forward(batch);
    }
}

/// Several logics in a row, as in `chain`.
fn stages(batch: &mut Batch<'_>, model: &mut Model, script: &mut Bytes<'_>) {
    let mut rest = Rest::default();
    let (mut deciding, mut outputs) = (0, 0);
    decide(batch, model, script, None);
    for _ in 0..3 {
        deciding += usize::from(model.outputs() > outputs);
        outputs = model.outputs();
        let open = model.open();
        let Some(mut left) = batch.rest(&mut rest) else {
            assert!(open.is_empty());
            break;
        };
        assert!(left.packets().map(VersionId::number).eq(open.iter().copied()));
        decide(&mut left, model, script, Some(&open));
    }
    deciding += usize::from(model.outputs() > outputs);
    batch.end_of_stages(rest);
    if deciding > 1 {
        model.restore_order();
    }
    decide(batch, model, script, None);
}

/// Runs the operations of one stage; `open` are the packets offered to it, if not all.
fn decide(batch: &mut Batch<'_>, model: &mut Model, script: &mut Bytes<'_>, open: Option<&[usize]>) {
    while !script.is_empty() {
        let [choice, which, a, b] = script.array();
        let (number, port) = (usize::from(which), usize::from(a) % (2 + batch.live_ports().len()));
        let v = match (model.versions.len(), choice & 0x80) {
            (0, _) => None,
            (n, 0) => Some(number % n),
            (n, _) => Some(n - 1 - number % n),
        };
        let to = PortIndex(port as u16);
        if choice & 0x7f == 0x7f {
            return;
        }
        if choice % 21 == 20 {
            let len = usize::from(a) * usize::from(b) % 700;
            let bytes: Vec<u8> = script.slice(len % 40).iter().copied().cycle().take(len).collect();
            let offload = Offload { needs_csum: which & 1 == 1, csum_start: which.into(), ..Offload::NONE };
            let made = batch.originate(&bytes, offload);
            assert_eq!(made.map(VersionId::number), model.originate(&bytes, offload));
            continue;
        }
        let Some((n, v)) = v.and_then(|n| Some((n, batch.version(n)?))) else { continue };
        let same = |is: Option<VersionId>, model: Option<usize>| assert_eq!(is.map(VersionId::number), model);
        match choice % 21 {
            0..=2 => {
                batch.send(v, to);
                model.send(n, port);
            }
            3..=5 => {
                let (first, end) = (u16::from(which % 64), u16::from(which % 64 + b % 16));
                batch.send_range(first, end, to);
                for packet in usize::from(first)..usize::from(end).min(model.received()) {
                    model.send(packet, port);
                }
            }
            6 => {
                batch.send_all(to);
                let all = (0..model.received()).collect::<Vec<_>>();
                open.unwrap_or(&all).iter().for_each(|packet| model.send(*packet, port));
            }
            7 | 8 => {
                batch.broadcast(v);
                model.broadcast(n);
            }
            9 => {
                batch.reflect(v);
                model.reflect(n);
            }
            10 => {
                batch.discard(v, DropReason::Logic);
                model.discard(n, DropReason::Logic);
            }
            11 => {
                batch.consume(v);
                model.consume(n);
            }
            12 => same(batch.copy(v), model.copy(n)),
            13 | 14 => {
                let tag = VlanTag::from_tci(u16::from_le_bytes([a, b]));
                same(batch.push_vlan(v, tag), model.push_vlan(n, tag));
            }
            15 => same(batch.pop_vlan(v), model.pop_vlan(n)),
            16 | 17 => assert_eq!(batch.pull(v, usize::from(a) * 3), model.pull(n, usize::from(a) * 3)),
            18 => {
                let start = usize::from(a);
                let before = batch.start(v);
                let moved = batch.set_start(v, start);
                let more = before.saturating_sub(batch.start(v));
                let in_front = batch.header(v)[..more].to_vec();
                assert_eq!(moved, model.set_start(n, start, &in_front));
            }
            _ => {
                same(batch.edit(v), model.edit(n));
                if let Some(header) = batch.header_mut(v) {
                    let at = usize::from(a) % header.len();
                    header[at] ^= b;
                    assert!(!model.versions[n].sent);
                    model.versions[n].bytes[at] ^= b;
                } else {
                    assert!(model.versions[n].sent);
                }
            }
        }
        // After every operation.
        let version = &model.versions[n];
        assert!(batch.header(v) == version.header(), "version {n}");
        assert_eq!((batch.start(v), batch.len(v) as usize), (version.start, version.bytes.len()));
        assert_eq!(batch.offload(v), version.offload);
        let mut all = vec![0; version.bytes.len()];
        assert_eq!(batch.read(v, 0, &mut all), all.len());
        assert!(all == version.bytes, "version {n}");
        let is_open = version.packet < model.received() && model.open().contains(&version.packet);
        assert_eq!(batch.is_open(v), is_open);
    }
}

/// Expected counters.
#[derive(Default)]
struct Counted {
    packets: u64,
    bytes: u64,
    drops: [u64; DropReason::ALL.len()],
}

impl Counted {
    fn refuse(&mut self, reason: DropReason, n: u64) {
        self.drops[reason as usize] += n;
    }
}

/// Kind of a destination.
enum Kind {
    /// A function that refuses by these patterns.
    Function { patterns: [u8; 4] },
    /// A ring.
    Ring(Arc<MemoryRing<0>>, Box<TxRing<Backing<0>>>),
    /// A ring whose packets have a prefix.
    Prefixed(Arc<MemoryRing<METADATA>>, Box<TxRing<Backing<METADATA>>>),
    /// A queue where packets wait for a receiver.
    Queued { buffers: u32 },
}

/// A transmit queue and its expected state.
struct End {
    lane: usize,
    /// Queues of its port.
    lanes: Range<usize>,
    kind: Kind,
    queue: Mutex<Option<Arc<dyn Egress>>>,
    /// Expected counters of the queue.
    counted: Mutex<Counted>,
    /// Packets that wait in the queue, and the number that may leave.
    retained: Mutex<VecDeque<Given>>,
    may_leave: AtomicU32,
    /// Packets that have arrived behind the queue.
    arrived: Mutex<Vec<Given>>,
    /// Expected counters behind the queue.
    left: Mutex<Counted>,
}

impl End {
    fn new(lane: usize, lanes: Range<usize>, from: &mut Bytes<'_>) -> Self {
        let [kind, size, start] = from.array();
        let patterns = from.array();
        let capacities = |n: u8| -> Vec<u32> {
            let sizes = [2048, 0, 60, 1, 128, 700, 1536, 70_000];
            let chosen = |i: usize| sizes[usize::from(patterns[i & 3] >> ((i >> 2 & 1) * 4) & 7)];
            (0..1 << (n % 6)).map(chosen).collect()
        };
        // Near the wrap of the numbers.
        let start = u32::from(start).wrapping_sub(8);
        let kind = match kind % 4 {
            0 => Kind::Function { patterns },
            1 => {
                let ring = MemoryRing::new(&capacities(size), kind & 4 != 0, start);
                Kind::Ring(ring.clone(), Box::new(TxRing::new(Backing(ring), (), start)))
            }
            2 => {
                let ring = MemoryRing::new(&capacities(size), kind & 4 != 0, start);
                Kind::Prefixed(ring.clone(), Box::new(TxRing::new(Backing(ring), (), start)))
            }
            _ => Kind::Queued { buffers: 1 << (size % 7) },
        };
        Self {
            lane,
            lanes,
            kind,
            queue: Mutex::default(),
            counted: Mutex::default(),
            retained: Mutex::default(),
            may_leave: AtomicU32::new(0),
            arrived: Mutex::default(),
            left: Mutex::default(),
        }
    }

    /// Posts entries as the receiver of a ring.
    fn post(&self, n: usize) {
        match &self.kind {
            Kind::Ring(ring, _) => ring.post(n),
            Kind::Prefixed(ring, _) => ring.post(n),
            _ => {}
        }
    }
}

impl Egress for End {
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<(), Fault> {
        let list_of = |lists: &mut VecDeque<(usize, Vec<Given>)>| {
            let at = lists.iter().position(|(lane, _)| *lane == self.lane)?;
            let of_port = lists.iter().take(at).all(|(lane, _)| self.lanes.contains(lane));
            assert!(of_port, "wrong order of queues");
            lists.remove(at)
        };
        let Some((_, expected)) = LISTS.with_borrow_mut(list_of) else { panic!("an unexpected list") };
        assert!(!expected.is_empty());
        assert_list(list, &expected);
        match &self.kind {
            Kind::Function { patterns } => refuse(list, expected, *patterns),
            Kind::Ring(ring, tx) => self.fill(ring, &**tx, list, expected, counters, tools)?,
            Kind::Prefixed(ring, tx) => self.fill(ring, &**tx, list, expected, counters, tools)?,
            Kind::Queued { buffers } => {
                let queue = lock(&self.queue).clone();
                let Some(queue) = queue else { panic!("the queue is missing") };
                queue.deliver(list, counters, tools)?;
                let mut retained = lock(&self.retained);
                let needs = |bytes: &Vec<u8>| bytes.len().div_ceil(SLOT);
                let mut free =
                    *buffers as usize - retained.iter().map(|(bytes, _)| needs(bytes)).sum::<usize>();
                let mut taken = Vec::new();
                for given in expected {
                    if needs(&given.0) <= free {
                        free -= needs(&given.0);
                        taken.push(given);
                    } else {
                        lock(&self.counted).refuse(DropReason::QueueFull, 1);
                    }
                }
                assert_list(list, &taken);
                retained.extend(taken);
            }
        }
        Ok(())
    }
}

impl End {
    fn fill<const PREFIX: usize>(
        &self,
        ring: &MemoryRing<PREFIX>,
        tx: &TxRing<Backing<PREFIX>>,
        list: &mut OutputList<'_>,
        expected: Vec<Given>,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<(), Fault> {
        let before = ring.published();
        let fates = ring.expect(expected.iter().map(|(bytes, _)| bytes.len() as u32));
        tx.deliver(list, counters, tools)?;
        let (mut taken, mut entries) = (Vec::new(), Vec::new());
        let mut counted = lock(&self.counted);
        for (given, fate) in expected.into_iter().zip(fates) {
            match fate {
                Ok(n) => {
                    (counted.packets, counted.bytes) =
                        (counted.packets + 1, counted.bytes + given.0.len() as u64);
                    taken.push(given);
                    entries.push(n);
                }
                Err(reason) => counted.refuse(reason, 1),
            }
        }
        assert_list(list, &taken);
        let got = ring.take(before);
        assert_eq!(got.len(), taken.len());
        for (((n, bytes), expected), given) in got.iter().zip(entries).zip(&taken) {
            assert_eq!(*n, expected, "number of entries");
            let (front, packet) = bytes.split_at(PREFIX);
            assert!(packet == given.0, "received packet");
            assert!(
                front.is_empty()
                    || front[..2] == n.to_le_bytes() && front[2..].iter().all(|byte| *byte == 0xee)
            );
        }
        Ok(())
    }
}

/// All bytes of an output and its metadata.
fn whole(output: &Output<'_>) -> Given {
    let mut bytes = output.header().to_vec();
    output.for_each_payload(|at, n| {
        let start = bytes.len();
        bytes.resize(start + n, 0);
        // SAFETY: memory of the packet's sender, which is not written meanwhile; the address sanitizer knows its size.
        unsafe { bytes[start..].as_mut_ptr().copy_from(at, n) };
    });
    assert_eq!(bytes.len(), output.len() as usize);
    (bytes, output.offload())
}

/// Asserts the outputs of a list.
fn assert_list(list: &OutputList<'_>, expected: &[Given]) {
    let mut n = 0;
    list.for_each(|output| {
        assert!(expected.get(n).is_some_and(|expected| *expected == whole(output)), "output {n}");
        n += 1;
    });
    assert_eq!(n, expected.len());
}

/// Refuses outputs by these patterns, one pass for each.
fn refuse(list: &mut OutputList<'_>, mut expected: Vec<Given>, patterns: [u8; 4]) {
    for pattern in patterns.into_iter().take_while(|pattern| *pattern != 0) {
        if pattern == 0xff {
            list.refuse_rest(DropReason::RingFull);
            expected.clear();
        } else {
            let (mut n, mut kept) = (0, Vec::new());
            list.retain(|output| {
                assert!(expected.get(n).is_some_and(|expected| *expected == whole(output)), "output {n}");
                n += 1;
                match pattern >> (n % 8) & 1 {
                    0 => kept.push(n - 1),
                    _ => return Err(DropReason::RingFull),
                }
                Ok(())
            });
            assert_eq!(n, expected.len());
            expected = kept.into_iter().map(|i| expected[i].clone()).collect();
        }
        assert_list(list, &expected);
    }
}

/// The destination behind a queue, with room for as many packets as the input says.
struct Leaving(Arc<End>);

impl Egress for Leaving {
    fn deliver(&self, _: &mut OutputList<'_>, _: &QueueCounters, _: &mut Tools) -> Result<(), Fault> {
        panic!("a list that is not from its front");
    }

    fn deliver_front(
        &self,
        list: &mut OutputList<'_>,
        least: u32,
        _: &QueueCounters,
        _: &mut Tools,
    ) -> Result<u32, Fault> {
        if least > 0 {
            return Ok(0);
        }
        let room = self.0.may_leave.load(Ordering::Relaxed);
        let taken = room.min(list.len() as u32);
        self.0.may_leave.store(room - taken, Ordering::Relaxed);
        let mut given = Vec::new();
        list.for_each(|output| given.push(whole(output)));
        given.truncate(taken as usize);
        lock(&self.0.arrived).extend(given);
        Ok(taken)
    }
}

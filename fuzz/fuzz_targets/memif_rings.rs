//! Two hostile memif peers and a switch between them, in any combination of roles.
//!
//! The input is a list of operations. The peers push packets and post buffers like correct clients, write arbitrary
//! data anywhere in their memory (indices, flags, descriptors, payload), and truncate it; the switch takes batches.
//! Writes and deliveries of other workers also happen during a delivery (see [`support::rings`]). Queues, ring and path
//! of a batch are the real ones.
//!
//! Invariants:
//! - No panic; no access outside of the regions (guard pages end the process); no write to a peer's memory except to
//!   posted buffers and the ring fields that the switch owns ([`support::memory`]).
//! - A received packet has 14 to 65,535 bytes, the sum of its pieces; each piece lies in one region.
//! - No ring entry is filled twice, unposted or beyond its buffer, or published unfilled.
//! - A violation by a peer ends in a fault. Without violations there is no fault, and the delivered packets are a
//!   subsequence of the sent ones, byte for byte.
#![no_main]

use std::cell::RefCell;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use fabric::fuzzing::{Bridge, Port, Steps};
use fabric::rx::BatchLimits;
use fabric::{
    Batch, Caps, Egress, Fault, OutputList, PortIndex, PortSettings, QueueCounters, RingBacking, RxBatch,
    RxQueue, SwitchLogic, Tools, TxRing,
};
use libfuzzer_sys::fuzz_target;
use memif::RingParts;
use memif::client::{Direction, Layout};
use memif::message::{AddRing, RING_S2M};
use memif::ring::{Descriptor, FLAG_NEXT, HEADER_SIZE, Ring};
use packet::{Offload, VlanTag};
use ports::memif::fuzzing::{self, Role};
use rustix::event::{EventfdFlags, eventfd};
use support::Bytes;
use support::memory::ClientMemory;
use support::rings::{self, Allow, Meddled, Moment};

/// Sizes of a peer's regions: one for rings and buffers, and an unaligned one for payload.
const SIZES: [usize; 2] = [20_580, 8_189];
/// Offset of buffers in region 0, as in `Layout`.
const BUFFERS_AT: usize = 4096;
const BUFFERS_SIZE: usize = 16_384;
/// Most operations in an input.
const MOST: usize = 96;
const BATCH: BatchLimits = BatchLimits { packets: 64, bytes: 128 << 10 };

/// Source of a correct peer's payload; starts with a tagged frame.
static PAYLOAD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut payload: Vec<u8> = (0..SIZES[1]).map(|i| (i as u8).wrapping_mul(13) ^ (i >> 8) as u8).collect();
    payload[12..18].copy_from_slice(&[0x81, 0, 0, 5, 8, 0]);
    payload
});

type Shared<T> = Rc<RefCell<T>>;

thread_local! {
    /// Mapped once, zeroed for each input.
    static MEMORIES: [Shared<ClientMemory>; 2] = std::array::from_fn(|_| Rc::new(RefCell::new(ClientMemory::new(&SIZES))));
    /// Unused workers' scratch memory.
    static IDLE: RefCell<Vec<Steps>> = const { RefCell::new(Vec::new()) };
    static EVENT: OwnedFd = event();
}

fn event() -> OwnedFd {
    match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
        Ok(fd) => fd,
        Err(error) => panic!("cannot create an eventfd: {error}"),
    }
}

fuzz_target!(|data: &[u8]| {
    if let Some(mut world) = World::new(&mut Bytes::new(data)) {
        world.run();
    }
});

/// Calls `f` with a worker's scratch memory.
fn with_steps<R>(f: impl FnOnce(&mut Steps) -> R) -> R {
    let idle = IDLE.with_borrow_mut(Vec::pop);
    let mut steps = idle.unwrap_or_else(|| match Steps::new(BATCH) {
        Ok(steps) => steps,
        Err(error) => panic!("cannot create a worker: {error}"),
    });
    let result = f(&mut steps);
    IDLE.with_borrow_mut(|idle| idle.push(steps));
    result
}

/// A logic that floods each packet after edits chosen by the input.
struct Flood(u8);

impl SwitchLogic for Flood {
    fn forward(&self, batch: &mut Batch<'_>) {
        for v in batch.packets() {
            let mut v = v;
            if self.0 & 1 != 0 {
                batch.pull(v, 300);
            }
            if self.0 & 2 != 0 {
                let Some(popped) = batch.pop_vlan(v) else { continue };
                v = popped;
            }
            if self.0 & 4 != 0 {
                let Some(pushed) = batch.push_vlan(v, VlanTag::from_tci(7)) else { continue };
                v = pushed;
            }
            batch.broadcast(v);
            if self.0 & 8 != 0 {
                batch.reflect(v);
            }
        }
    }
}

/// A call port that records its packets.
#[derive(Default)]
struct Sink(Mutex<Vec<Vec<u8>>>);

impl Egress for Sink {
    fn deliver(&self, list: &mut OutputList<'_>, _: &QueueCounters, _: &mut Tools) -> Result<(), Fault> {
        let mut packets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.for_each(|output| {
            let mut packet = output.header().to_vec();
            output.for_each_payload(|at, n| {
                let start = packet.len();
                packet.resize(start + n, 0);
                // SAFETY: the sender's memory, mapped and accessed by this thread alone.
                unsafe { packet[start..].as_mut_ptr().copy_from(at, n) };
            });
            assert_eq!(packet.len(), output.len() as usize);
            packets.push(packet);
        });
        Ok(())
    }
}

/// Receive queue of another worker's port, for deliveries during a delivery.
struct Source(Vec<Vec<u8>>);

impl RxQueue for Source {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        for packet in self.0.drain(..) {
            let Some(room) = batch.landing() else { break };
            room[..packet.len()].copy_from_slice(&packet);
            batch.landed(0, packet.len(), Offload::NONE)?;
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

const SINK: usize = 0;
const OTHERS: PortIndex = PortIndex(3);

/// A peer: the fuzzer's side of a connection.
struct Peer {
    memory: Shared<ClientMemory>,
    role: Role,
    /// Ring from peer to switch.
    up: AddRing,
    /// Ring from switch to peer.
    down: AddRing,
    /// The peer's next entries in both rings.
    up_next: u16,
    down_next: u16,
    /// Index behind the last delivered packet within the sent ones.
    found: usize,
    rx: Option<Box<dyn RxQueue>>,
}

/// The queue to a peer over a ring with interference.
fn meddled(
    (backing, first): (impl RingBacking<Own = (), Entry = ()> + 'static, u32),
    allow: Allow,
) -> Arc<dyn Egress> {
    Arc::new(TxRing::new(Meddled::new(backing, first, allow), (), first))
}

impl Peer {
    /// Creates the peer and the switch's queue to it.
    fn new(
        memory: Shared<ClientMemory>,
        from: &mut Bytes<'_>,
        correct: &mut bool,
    ) -> Option<(Self, Arc<dyn Egress>)> {
        memory.borrow_mut().reset();
        let [choice, log2, size] = from.array();
        let log2 = 1 + log2 % 6;
        let start = from.u16();
        let (role, up, down, start) = if choice & 1 == 0 {
            let (mut s2m, mut m2s) = (0, 2048);
            if choice & 2 != 0 {
                // Anywhere, possibly overlapping.
                (s2m, m2s) = (u32::from(from.u16()), u32::from(from.u16()));
                *correct = false;
            }
            let ring = |flags, offset| AddRing {
                flags,
                index: 0,
                region: u16::from(choice & 2 != 0 && choice & 0x80 != 0),
                offset,
                log2_ring_size: log2,
                private_hdr_size: 0,
            };
            (Role::Server, ring(RING_S2M, s2m), ring(0, m2s), start)
        } else {
            let most = BUFFERS_SIZE as u32 / (2 << log2);
            let layout = Layout::new(1, 1, log2, 1 + u32::from(size) * 33 % most).ok()?;
            let (s2m, m2s) = (layout.ring(Direction::S2m, 0), layout.ring(Direction::M2s, 0));
            (Role::Client(layout, 0), m2s, s2m, 0)
        };
        let (up_ring, down_ring) = (memory.borrow().ring(&up)?, memory.borrow().ring(&down)?);
        for ring in [&up_ring, &down_ring] {
            allow_ring(&mut memory.borrow_mut(), ring, role, std::ptr::eq(ring, &up_ring));
        }
        let mut peer = Self { memory, role, up, down, up_next: start, down_next: start, found: 0, rx: None };
        for ring in [peer.up, peer.down] {
            peer.write_index(&ring, 6, start);
            peer.write_index(&ring, 64, start);
        }
        let parts =
            |ring| RingParts { ring, eventfd: EVENT.with(|fd| fd.try_clone().unwrap_or_else(|_| event())) };
        peer.rx = Some(fuzzing::rx(parts(up_ring), role));
        let memory = peer.memory.clone();
        let allow: Allow = Box::new(move |at: *const u8, len| memory.borrow_mut().allow(at, len));
        let ring = match role {
            Role::Server => meddled(fuzzing::served_tx(parts(down_ring)), allow),
            Role::Client(layout, queue) => meddled(fuzzing::own_tx(parts(down_ring), layout, queue), allow),
        };
        Some((peer, ring))
    }

    fn write_index(&self, ring: &AddRing, field: usize, value: u16) {
        self.poke(usize::from(ring.region), ring.offset as usize + field, &value.to_le_bytes());
    }

    fn read_index(&self, ring: &AddRing, field: usize) -> u16 {
        let at = ring.offset as usize + field;
        u16::from_le_bytes(self.memory.borrow().peek(usize::from(ring.region), at))
    }

    fn poke(&self, region: usize, at: usize, bytes: &[u8]) {
        self.memory.borrow_mut().poke(region, at, bytes);
    }

    fn slot(ring: &AddRing, index: u16) -> (usize, usize) {
        let slot = usize::from(index) & ((1 << ring.log2_ring_size) - 1);
        (usize::from(ring.region), ring.offset as usize + HEADER_SIZE + 16 * slot)
    }

    fn read_descriptor(&self, ring: &AddRing, index: u16) -> Descriptor {
        let (region, at) = Self::slot(ring, index);
        let d: [u8; 16] = self.memory.borrow().peek(region, at);
        Descriptor {
            flags: u16::from_le_bytes([d[0], d[1]]),
            region: u16::from_le_bytes([d[2], d[3]]),
            length: u32::from_le_bytes([d[4], d[5], d[6], d[7]]),
            offset: u32::from_le_bytes([d[8], d[9], d[10], d[11]]),
            metadata: 0,
        }
    }

    fn write_descriptor(&self, ring: &AddRing, index: u16, d: &Descriptor) {
        let (region, at) = Self::slot(ring, index);
        let words = [&d.flags.to_le_bytes()[..], &d.region.to_le_bytes(), &d.length.to_le_bytes()].concat();
        self.poke(region, at, &[&words[..], &d.offset.to_le_bytes(), &[0; 4]].concat());
    }

    /// Pushes a packet of one to twelve pieces if there is room for all.
    fn push(&mut self, from: &mut Bytes<'_>) {
        let pieces = 1 + from.u8() % 12;
        let (own, others) = match self.role {
            Role::Server => (6, 64),
            Role::Client(..) => (64, 6),
        };
        let room = match self.role {
            Role::Server => {
                let waiting = self.up_next.wrapping_sub(self.read_index(&self.up, others));
                (1u16 << self.up.log2_ring_size).saturating_sub(waiting)
            }
            Role::Client(..) => self.read_index(&self.up, others).wrapping_sub(self.up_next),
        };
        if room < u16::from(pieces) {
            return;
        }
        for i in 0..pieces {
            let flags = if i + 1 < pieces { FLAG_NEXT } else { 0 };
            let [offset, length] = [from.u16(), from.u16()];
            let d = match self.role {
                Role::Server => {
                    let offset = u32::from(offset) % (SIZES[1] as u32 - 1);
                    let length = 1 + u32::from(length) % (SIZES[1] as u32 - offset);
                    Descriptor { flags, region: 1, length, offset, metadata: 0 }
                }
                Role::Client(layout, _) => {
                    let buffer = self.read_descriptor(&self.up, self.up_next);
                    let length = 1 + u32::from(length) % layout.buffer_size();
                    let fill: Vec<u8> =
                        (0..length).map(|i| (i as u8).wrapping_mul(29) ^ offset as u8).collect();
                    self.poke(usize::from(buffer.region), buffer.offset as usize, &fill);
                    Descriptor { flags, length, ..buffer }
                }
            };
            self.write_descriptor(&self.up, self.up_next, &d);
            self.up_next = self.up_next.wrapping_add(1);
        }
        self.write_index(&self.up, own, self.up_next);
    }

    /// Takes delivered packets and posts further buffers.
    fn take(&mut self, from: &mut Bytes<'_>, sent: &[Vec<u8>], correct: bool, ordered: bool) {
        let [give, capacity] = from.array();
        let size = 1u16 << self.down.log2_ring_size;
        let produced = self.read_index(&self.down, if matches!(self.role, Role::Server) { 64 } else { 6 });
        let first = match self.role {
            Role::Server => self.down_next,
            Role::Client(..) => self.read_index(&self.down, 64),
        };
        if correct {
            self.compare(first, produced, sent, ordered);
        }
        match self.role {
            Role::Server => {
                // `down_next` is the end of the taken entries, `head` the end of the posted ones.
                self.down_next = produced;
                let head = self.read_index(&self.down, 6);
                let room = size.saturating_sub(head.wrapping_sub(produced));
                let stride = BUFFERS_SIZE >> self.down.log2_ring_size;
                let n = u16::from(give).min(room);
                for i in 0..n {
                    let index = head.wrapping_add(i);
                    let offset = BUFFERS_AT + usize::from(index & (size - 1)) * stride;
                    let length = 1 + usize::from(capacity) * 37 % stride;
                    let d =
                        Descriptor { length: length as u32, offset: offset as u32, ..Descriptor::default() };
                    self.write_descriptor(&self.down, index, &d);
                }
                self.write_index(&self.down, 6, head.wrapping_add(n));
            }
            Role::Client(..) => {
                self.write_index(&self.down, 64, produced);
                self.down_next = produced;
            }
        }
    }

    /// Asserts that the delivered packets are a subsequence of the sent ones, in order unless workers delivered
    /// concurrently.
    fn compare(&mut self, first: u16, end: u16, sent: &[Vec<u8>], ordered: bool) {
        let mut packet = Vec::new();
        for i in 0..end.wrapping_sub(first) {
            let d = self.read_descriptor(&self.down, first.wrapping_add(i));
            let (at, len) = (d.offset as usize, d.length as usize);
            self.memory.borrow().read(usize::from(d.region), at, len, &mut packet);
            if d.flags & FLAG_NEXT == 0 {
                let rest = if ordered { &sent[self.found..] } else { sent };
                match rest.iter().position(|sent| *sent == packet) {
                    Some(at) if ordered => self.found += at + 1,
                    Some(_) => {}
                    None => panic!("a packet of {} bytes was never sent", packet.len()),
                }
                packet.clear();
            }
        }
        assert!(packet.is_empty(), "an incomplete packet");
    }
}

/// Marks the fields of a ring that the switch may write.
fn allow_ring(memory: &mut ClientMemory, ring: &Ring, role: Role, up: bool) {
    let header = ring.desc_ptr(0).wrapping_sub(HEADER_SIZE);
    match role {
        Role::Server => memory.allow_always(header.wrapping_add(64), 2),
        Role::Client(..) => memory.allow_always(header.wrapping_add(6), 2),
    }
    if up {
        memory.allow_always(header.wrapping_add(4), 2);
    }
    for index in 0..ring.size() {
        let at = ring.desc_ptr(index);
        match role {
            Role::Client(..) => memory.allow_always(at, 16),
            Role::Server if !up => {
                memory.allow_always(at, 2);
                memory.allow_always(at.wrapping_add(4), 4);
            }
            Role::Server => {}
        }
    }
}

struct World<'f, 'd> {
    from: &'f mut Bytes<'d>,
    peers: [Peer; 2],
    bridge: Rc<Bridge>,
    sink: Arc<Sink>,
    limits: BatchLimits,
    /// Whether no rule has been violated.
    correct: bool,
    /// Whether no other worker delivers during a delivery.
    ordered: bool,
}

impl<'f, 'd> World<'f, 'd> {
    fn new(from: &'f mut Bytes<'d>) -> Option<Self> {
        rings::forget();
        let [edits, packets] = from.array();
        let limits = BatchLimits { packets: usize::from(packets % 65), bytes: usize::from(from.u16()) * 2 };
        let mut correct = true;
        let memories = MEMORIES.with(Clone::clone);
        let [a, b] = memories.map(|memory| Peer::new(memory, from, &mut correct));
        let ((a, to_a), (b, to_b)) = (a?, b?);
        if correct {
            a.poke(1, 0, &PAYLOAD);
            b.poke(1, 0, &PAYLOAD);
        }
        let sink = Arc::new(Sink::default());
        let port = |name: &str, egress: Arc<dyn Egress>| Port {
            up: true,
            settings: PortSettings::new(name),
            tx: vec![egress],
            caps: Caps::default(),
            max_frame: 65_535 + 22,
        };
        let ports = vec![
            port("sink", sink.clone()),
            port("a", to_a),
            port("b", to_b),
            port("others", Arc::new(Sink::default())),
        ];
        debug_assert_eq!(ports.len(), usize::from(OTHERS.0) + 1);
        let bridge = Rc::new(Bridge::new(Arc::new(Flood(edits)), ports));
        Some(Self { from, peers: [a, b], bridge, sink, limits, correct, ordered: true })
    }

    fn run(&mut self) {
        for _ in 0..MOST {
            if self.from.is_empty() {
                break;
            }
            let choice = self.from.u8();
            let peer = usize::from(choice >> 7);
            match choice % 16 {
                0..=2 => self.peers[peer].push(self.from),
                3 | 4 => {
                    let sent = self.sink.0.lock().unwrap_or_else(PoisonError::into_inner);
                    self.peers[peer].take(self.from, &sent, self.correct, self.ordered);
                }
                5..=8 => self.step(peer),
                9 => self.others(),
                10 => self.meddle(peer),
                11 => {
                    let write = Write::read(self.from, &self.peers[peer]);
                    self.correct = false;
                    write.apply(&mut self.peers[peer].memory.borrow_mut());
                }
                12 => {
                    let on = self.from.flag();
                    if let Some(rx) = &mut self.peers[peer].rx {
                        rx.set_signalled(on);
                    }
                }
                13 => self.peers[peer].push(self.from),
                14 => self.step(1 - peer),
                _ => {
                    let [rare, region, pages] = self.from.array();
                    // Remapping is slow, so one in 256 truncates.
                    if rare == 0xa5 {
                        self.correct = false;
                        let to = u64::from(pages % 4) * 4096;
                        self.peers[peer].memory.borrow_mut().truncate(usize::from(region), to);
                    }
                }
            }
        }
        rings::forget();
        for peer in &self.peers {
            peer.memory.borrow().check();
        }
        let faults = self.bridge.take_faults();
        assert!(!self.correct || faults.is_empty(), "faults without a violation: {faults:?}");
        for (lane, fault) in faults {
            assert!(lane != SINK && !fault.to_string().is_empty());
        }
    }

    /// Receives and forwards one batch of a peer.
    fn step(&mut self, peer: usize) {
        let Some(mut rx) = self.peers[peer].rx.take() else { return };
        let received = with_steps(|steps| {
            steps.set_limits(self.limits);
            let received = steps.receive(&mut *rx);
            steps.for_each_packet(|_, len, pieces| {
                assert!((14..=65_535).contains(&len) && (1..=64).contains(&pieces.len()));
                assert_eq!(len, pieces.iter().map(|piece| piece.1).sum::<u32>());
                for (at, len) in pieces {
                    self.peers[peer].memory.borrow().place(*at, *len as usize);
                }
            });
            if steps.packets() > 0 {
                steps.load();
                steps.forward(&self.bridge, PortIndex(1 + peer as u16));
            }
            steps.take_drops();
            received.and_then(|()| steps.complete(&mut *rx))
        });
        match received {
            // A failed queue is not used again.
            Err(fault) => {
                assert!(
                    !self.correct && !fault.to_string().is_empty(),
                    "a fault without a violation: {fault}"
                )
            }
            Ok(()) => self.peers[peer].rx = Some(rx),
        }
    }

    /// Another worker delivers between batches.
    fn others(&mut self) {
        deliver(&self.bridge, packets(self.from));
    }

    /// Schedules an interference for the next delivery.
    fn meddle(&mut self, peer: usize) {
        let [after, choice] = self.from.array();
        if choice % 3 == 0 {
            self.ordered = false;
            let (bridge, packets) = (self.bridge.clone(), packets(self.from));
            rings::schedule(
                after % 32,
                Box::new(move |moment| {
                    // At the other moments the ring is locked, and another worker would wait.
                    if moment == Moment::Filled {
                        deliver(&bridge, packets);
                    }
                }),
            );
        } else {
            self.correct = false;
            let write = Write::read(self.from, &self.peers[peer]);
            let memory = self.peers[peer].memory.clone();
            rings::schedule(after % 32, Box::new(move |_| write.apply(&mut memory.borrow_mut())));
        }
    }
}

fn packets(from: &mut Bytes<'_>) -> Vec<Vec<u8>> {
    (0..1 + from.below(4)).map(|i| vec![0xb0 | i as u8; 14 + usize::from(from.u16()) % 3000]).collect()
}

fn deliver(bridge: &Bridge, packets: Vec<Vec<u8>>) {
    with_steps(|steps| {
        steps.set_limits(BATCH);
        let received = steps.receive(&mut Source(packets));
        assert_eq!(received, Ok(()));
        steps.load();
        steps.forward(bridge, OTHERS);
    });
}

/// A peer's write to its memory.
struct Write {
    region: usize,
    at: usize,
    bytes: Vec<u8>,
}

impl Write {
    fn read(from: &mut Bytes<'_>, peer: &Peer) -> Self {
        let choice = from.u8();
        let ring = if choice & 0x40 == 0 { &peer.up } else { &peer.down };
        let (ring_region, ring_at) = (usize::from(ring.region), ring.offset as usize);
        match choice % 8 {
            // An index, arbitrary or near its current value.
            0..=2 => {
                let field = if choice & 0x20 == 0 { 6 } else { 64 };
                let value = match choice % 8 {
                    0 => from.u16(),
                    _ => peer.read_index(ring, field).wrapping_add_signed(i16::from(from.u8() as i8)),
                };
                Self { region: ring_region, at: ring_at + field, bytes: value.to_le_bytes().into() }
            }
            // One field of a descriptor, or all.
            3..=5 => {
                let (region, at) = Peer::slot(ring, u16::from(from.u8()));
                match choice % 8 {
                    3 => Self { region, at, bytes: from.array::<16>().into() },
                    4 => Self { region, at: at + from.below(12), bytes: from.array::<2>().into() },
                    _ => {
                        let [flags, of] = from.array();
                        let (length, offset) = (u32::from(from.u16()), u32::from(from.u16()));
                        let d = [&[flags, 0, of & 1, 0][..], &length.to_le_bytes(), &offset.to_le_bytes()]
                            .concat();
                        Self { region, at, bytes: d }
                    }
                }
            }
            6 => Self { region: ring_region, at: ring_at + from.below(8), bytes: from.array::<2>().into() },
            _ => Self { region: from.below(2), at: usize::from(from.u16()), bytes: from.array::<4>().into() },
        }
    }

    fn apply(&self, memory: &mut ClientMemory) {
        memory.poke(self.region, self.at, &self.bytes);
    }
}

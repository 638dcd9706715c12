//! Captures: stream copies of packets from the workers to clients.
//!
//! A capture observes a bridge ([`fabric::Observer`]). Each worker has a preallocated double buffer in it: the worker
//! writes one page while the capture's thread reads the other; the thread swaps them after a `pause`. A worker copies
//! the bytes that the filter may need, runs the filter on the copy, and copies the rest of matching packets. It never
//! waits: if its page is full, it only counts.
//!
//! Invariant: every packet that matches the filter is either reported or counted as missed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fabric::port::MAX_PORTS;
use fabric::rx::MAX_PACKET;
use fabric::switch::{BridgeId, ObserverId};
use fabric::worker::{PerThread, Threads};
use fabric::{DropReason, Interest, Observer, PortIndex, Sighting, Sightings, Switch, Way};
use metering::DoubleBuffer;
use packet::bpf::{Instruction, Program};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::refusal::Refusal;
use crate::state::{State, find, find_port};
use crate::{direction, proto};

/// Longest interval between swaps of the pages, and so about the maximum delay of a captured packet.
const INTERVAL: Duration = Duration::from_millis(50);
/// The interval at high packet rates.
const SHORT_INTERVAL: Duration = Duration::from_millis(5);
/// Interval between reports of counters while no packets match.
const COUNTER_INTERVAL: Duration = Duration::from_millis(500);
/// Capacity of a page in bytes of packets.
const PAGE: usize = 8 << 20;
/// Capacity of a page in packets.
const RECORDS: usize = PAGE / 128;
/// Number of bytes of a packet that are copied for the filter at first.
const FILTER_PREFIX: usize = 256;
/// Maximum number of port names in a capture.
const PORTS: usize = 2 * MAX_PORTS;
/// Approximate number of packet bytes per message of the reply.
const MESSAGE: usize = 1 << 20;
/// Maximum number of messages queued for the caller; later packets stay in the pages.
const QUEUE: usize = 4;

/// Id of a port that is unknown to the capture.
const NONE: u32 = u32::MAX;

/// The reply to a call.
pub type Batches = ReceiverStream<Result<proto::CaptureBatch, Status>>;

/// A packet in a page.
struct Record {
    port: u32,
    way: Way,
    at: u64,
    length: u32,
    /// Number of bytes kept; they follow those of the previous record.
    kept: u32,
    ingress: u32,
    egress: u32,
    deliveries: u32,
    dropped: Option<DropReason>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counters {
    seen: u64,
    kept: u64,
    missed: u64,
}

impl Counters {
    fn add(&mut self, other: &Counters) {
        self.seen += other.seen;
        self.kept += other.kept;
        self.missed += other.missed;
    }
}

struct Page {
    /// The capacity of a page plus one packet, so the filter can always examine a packet.
    bytes: Box<[u8]>,
    used: usize,
    records: Vec<Record>,
    /// Counters by port, since the capture started.
    counters: Box<[Counters]>,
}

impl Page {
    fn new() -> Self {
        // Zeroed memory is allocated by the kernel on first use.
        Self {
            bytes: vec![0; PAGE + MAX_PACKET as usize].into(),
            used: 0,
            records: Vec::with_capacity(RECORDS),
            counters: vec![Counters::default(); PORTS].into(),
        }
    }
}

/// The names that ports have or had, and their ids.
#[derive(Default)]
struct Names {
    by_name: BTreeMap<String, u32>,
    in_order: Vec<(String, bool)>,
}

struct Capture {
    /// The names of the captured ports; empty for all.
    ports: Vec<String>,
    interest: Interest,
    filter: Option<Program>,
    snaplen: usize,
    threads: PerThread<DoubleBuffer<Page>>,
    names: Mutex<Names>,
    /// The id of the port that currently has each index.
    ids: Box<[AtomicU32]>,
    bridge_removed: AtomicBool,
}

impl Capture {
    fn new(request: &proto::CaptureRequest) -> Result<Self, Refusal> {
        let interest =
            direction::parse(&request.direction).map_err(|error| Refusal::Other(error.to_string()))?;
        Ok(Self {
            ports: request.ports.clone(),
            interest,
            filter: filter(&request.filter)?,
            snaplen: match request.snaplen {
                0 => MAX_PACKET as usize,
                bytes => bytes.min(MAX_PACKET) as usize,
            },
            threads: PerThread::default(),
            names: Mutex::default(),
            ids: (0..MAX_PORTS).map(|_| AtomicU32::new(NONE)).collect(),
            bridge_removed: AtomicBool::new(false),
        })
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn id(&self, port: PortIndex) -> u32 {
        self.ids.get(usize::from(port.0)).map_or(NONE, |id| id.load(Ordering::Relaxed))
    }

    fn record(&self, page: &mut Page, at: u64, seen: &Sighting<'_>) {
        let port = self.id(seen.port);
        let Some(counters) = page.counters.get_mut(port as usize) else { return };
        counters.seen += 1;
        let length = seen.len();
        let room = page.bytes.get_mut(page.used..).and_then(|room| room.get_mut(..length as usize));
        let Some(room) = room else { return };
        let keep = room.len().min(self.snaplen);
        let mut copied = 0;
        if let Some(filter) = &self.filter {
            copied = seen.copy(0, &mut room[..FILTER_PREFIX.min(length as usize)]);
            let verdict = filter.keeps(&room[..copied], length).or_else(|_more| {
                copied += seen.copy(copied, &mut room[copied..]);
                filter.keeps(&room[..copied], length)
            });
            if verdict != Ok(true) {
                return;
            }
        }
        counters.kept += 1;
        if page.used + keep > PAGE || page.records.len() == page.records.capacity() {
            counters.missed += 1;
            return;
        }
        if copied < keep {
            seen.copy(copied, &mut room[copied..keep]);
        }
        page.used += keep;
        page.records.push(Record {
            port,
            way: seen.way,
            at,
            length,
            kept: keep as u32,
            ingress: self.id(seen.ingress),
            egress: seen.egress.map_or(NONE, |port| self.id(port)),
            deliveries: seen.deliveries,
            dropped: seen.dropped,
        });
    }
}

impl Observer for Capture {
    fn interest(&self, port: PortIndex, name: &str) -> Interest {
        let wanted = self.ports.is_empty() || self.ports.iter().any(|port| port == name);
        let mut names = self.names();
        let id = match names.by_name.get(name) {
            Some(id) => *id,
            None if names.in_order.len() < PORTS => {
                let id = names.in_order.len() as u32;
                names.by_name.insert(name.into(), id);
                names.in_order.push((name.into(), wanted));
                id
            }
            None => NONE,
        };
        // The fabric reuses an index only after all workers have forgotten its previous port.
        if let Some(slot) = self.ids.get(usize::from(port.0)) {
            slot.store(id, Ordering::Relaxed);
        }
        if wanted && id != NONE { self.interest } else { Interest::default() }
    }

    fn prepare(&self, threads: Threads) {
        let Ok(()) = self.threads.prepare(threads, |_| Ok::<_, Infallible>(DoubleBuffer::new(Page::new)));
    }

    fn observe(&self, worker: usize, batch: &Sightings<'_>) {
        // A page is always available. Without one, the packets would be neither counted nor reported, which keeps the
        // invariant.
        if let Some(mut page) = self.threads.get(worker).and_then(DoubleBuffer::write) {
            batch.for_each(|seen| self.record(&mut page, batch.at, seen));
        }
    }

    fn bridge_removed(&self) {
        self.bridge_removed.store(true, Ordering::Release);
    }
}

fn filter(code: &[proto::FilterInstruction]) -> Result<Option<Program>, Refusal> {
    if code.is_empty() {
        return Ok(None);
    }
    let instruction = |i: &proto::FilterInstruction| {
        let (code, jt, jf) =
            (u16::try_from(i.code).ok()?, u8::try_from(i.jt).ok()?, u8::try_from(i.jf).ok()?);
        Some(Instruction { code, jt, jf, k: i.k })
    };
    let invalid = |message: String| {
        Refusal::Other(format!(
            "{message}; expected a program of classic BPF, such as a compiled tcpdump expression"
        ))
    };
    let instructions: Option<Vec<_>> = code.iter().map(instruction).collect();
    let instructions =
        instructions.ok_or_else(|| invalid("a field of a filter instruction is out of range".into()))?;
    Ok(Some(Program::new(&instructions).map_err(|error| invalid(error.to_string()))?))
}

/// A running capture; dropping it ends the capture.
pub struct ActiveCapture {
    switch: Arc<Switch>,
    bridge: BridgeId,
    observer: ObserverId,
    capture: Arc<Capture>,
    name: String,
}

impl Drop for ActiveCapture {
    fn drop(&mut self) {
        // An error means that the bridge was removed, with its observers.
        let _ = self.switch.unobserve(self.bridge, self.observer);
    }
}

/// Starts a capture.
pub fn start(state: &State, request: &proto::CaptureRequest) -> Result<ActiveCapture, Refusal> {
    let switch = state.switch_handle();
    let bridge = {
        let bridges = state.bridges();
        for port in &request.ports {
            find_port(&bridges, &request.bridge, port)?;
        }
        find(&bridges, &request.bridge)?.id
    };
    let capture = Arc::new(Capture::new(request)?);
    let observer = switch.observe(bridge, capture.clone())?;
    Ok(ActiveCapture { switch, bridge, observer, capture, name: request.bridge.clone() })
}

/// Streams the captured packets until the caller disconnects. Holds `place` until then.
pub fn stream(active: ActiveCapture, place: OwnedSemaphorePermit) -> Batches {
    let (to, batches) = mpsc::channel(QUEUE);
    // A thread of its own, because it copies many bytes and blocks on a slow caller.
    tokio::task::spawn_blocking(move || {
        let _place = place;
        let mut reader = Reader::new(&active.capture);
        while !to.is_closed() {
            let bridge_removed = active.capture.bridge_removed.load(Ordering::Acquire);
            let (used, messages) = reader.read();
            for message in messages {
                if to.blocking_send(Ok(message)).is_err() {
                    return;
                }
            }
            if bridge_removed {
                let message = format!("the capture ended because bridge \"{}\" was removed", active.name);
                let _ = to.blocking_send(Err(Status::aborted(message)));
                return;
            }
            std::thread::sleep(pause(used));
        }
    });
    ReceiverStream::new(batches)
}

/// Returns the time until the next swap, after a page with `used` bytes was read. Balances few wake-ups against the
/// risk of a full page.
fn pause(used: usize) -> Duration {
    match used {
        0..0x2_0000 => INTERVAL,
        0x2_0000..0x20_0000 => SHORT_INTERVAL,
        _ => Duration::ZERO,
    }
}

/// The reading side of a capture.
struct Reader<'a> {
    capture: &'a Capture,
    /// The counters of each thread's pages when they were last read, by number of the thread.
    counted: BTreeMap<usize, [Vec<Counters>; 2]>,
    /// The counters last reported to the caller.
    reported: Vec<Counters>,
    reported_at: Instant,
}

impl<'a> Reader<'a> {
    fn new(capture: &'a Capture) -> Self {
        Self { capture, counted: BTreeMap::new(), reported: Vec::new(), reported_at: Instant::now() }
    }

    /// Reads and clears the pages. Returns the number of bytes in the fullest page, and the messages for the caller.
    fn read(&mut self) -> (usize, Vec<proto::CaptureBatch>) {
        let mut packets = Vec::new();
        let mut fullest = 0;
        for (thread, buffer) in self.capture.threads.iter() {
            let Some((which, mut page)) = buffer.swap() else { continue };
            let mut bytes = page.bytes.get(..page.used).unwrap_or_default();
            packets.extend(page.records.iter().filter_map(|record| {
                let (data, rest) = bytes.split_at_checked(record.kept as usize)?;
                bytes = rest;
                Some(packet(record, data))
            }));
            fullest = fullest.max(page.used);
            page.used = 0;
            page.records.clear();
            // Read after the swap, so the names include the ports of all packets in the page.
            let ports = self.capture.names().in_order.len();
            self.counted.entry(thread).or_default()[which] =
                page.counters.get(..ports).unwrap_or_default().to_vec();
        }
        // Each page is in order; with one worker, this finds nothing to sort.
        packets.sort_by_key(|packet| packet.at_nanoseconds);
        (fullest, self.messages(packets))
    }

    fn messages(&mut self, packets: Vec<proto::CapturedPacket>) -> Vec<proto::CaptureBatch> {
        let mut messages = Vec::new();
        let mut message = proto::CaptureBatch { ports: self.new_ports(), ..Default::default() };
        if !packets.is_empty() || self.reported_at.elapsed() >= COUNTER_INTERVAL {
            message.counters = self.new_counters();
        }
        let mut size = 0;
        for packet in packets {
            size += packet.data.len() + 64;
            message.packets.push(packet);
            if size >= MESSAGE {
                messages.push(std::mem::take(&mut message));
                size = 0;
            }
        }
        if message != proto::CaptureBatch::default() {
            messages.push(message);
        }
        messages
    }

    fn new_ports(&mut self) -> Vec<proto::CapturePort> {
        let names = self.capture.names();
        let new = (0..).zip(&names.in_order).skip(self.reported.len());
        let ports = new.map(|(id, (name, captured))| proto::CapturePort {
            id,
            name: name.clone(),
            captured: *captured,
        });
        let ports = ports.collect();
        self.reported.resize(names.in_order.len(), Counters::default());
        ports
    }

    fn new_counters(&mut self) -> Vec<proto::CaptureCounters> {
        self.reported_at = Instant::now();
        let mut now = vec![Counters::default(); self.reported.len()];
        for page in self.counted.values().flatten() {
            for (sum, counters) in now.iter_mut().zip(page) {
                sum.add(counters);
            }
        }
        let changed =
            (0..).zip(now.iter().zip(&self.reported)).filter(|(_, (now, reported))| now != reported);
        let counters = changed
            .map(|(port, (now, _))| proto::CaptureCounters {
                port,
                seen: now.seen,
                kept: now.kept,
                missed: now.missed,
            })
            .collect();
        self.reported = now;
        counters
    }
}

fn packet(record: &Record, data: &[u8]) -> proto::CapturedPacket {
    proto::CapturedPacket {
        port: record.port,
        outbound: record.way == Way::Out,
        at_nanoseconds: record.at,
        length: record.length,
        data: data.to_vec(),
        ingress: record.ingress,
        egress: (record.egress != NONE).then_some(record.egress),
        deliveries: record.deliveries,
        drop_reason: record.dropped.map(|reason| reason.name().into()).unwrap_or_default(),
    }
}

//! Captures: packets on their way from the workers to whoever asked to see them.
//!
//! A capture observes a bridge ([`fabric::Observer`]). Each worker has two `pages` of memory in it, made beforehand: it
//! writes to one while a thread of the capture's own reads the other; the two change places after a `pause`. A worker
//! copies what the filter may need, lets it decide on the copy, and copies the rest of what it keeps; when its page is full
//! it counts. It never waits.
//!
//! Invariant: what is shown, and what is counted as missed, are together what the filter kept.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fabric::port::MAX_PORTS;
use fabric::rx::MAX_PACKET;
use fabric::switch::{BridgeId, ObserverId};
use fabric::{DropReason, Interest, Observer, PortIndex, Sighting, Sightings, Switch, Way};
use packet::bpf::{Instruction, Program};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::pages::Pages;
use crate::refusal::Refusal;
use crate::state::{State, find, find_port};
use crate::{direction, proto};

/// After how long pages change places, at the latest: what a capture shows is at most about this old.
const ROUND: Duration = Duration::from_millis(50);
/// The same while there is much to read.
const QUICK_ROUND: Duration = Duration::from_millis(5);
/// How often counters are told when there is no packet to show.
const TELL: Duration = Duration::from_millis(500);
/// Bytes of packets that a page holds.
const PAGE: usize = 8 << 20;
/// Packets that a page holds.
const RECORDS: usize = PAGE / 128;
/// Bytes of a packet that are copied for the filter, before it asks for more.
const FRONT: usize = 256;
/// Ports, by name, that one capture can tell apart.
const PORTS: usize = 2 * MAX_PORTS;
/// Bytes of packets in one message of the reply, about.
const MESSAGE: usize = 1 << 20;
/// Messages that wait for the caller; what comes then stays in the pages.
const WAITING: usize = 4;

/// No port of this index.
const NONE: u32 = u32::MAX;

/// The reply to a call.
pub type Batches = ReceiverStream<Result<proto::CaptureBatch, Status>>;

/// A packet in a page.
struct Record {
    port: u32,
    way: Way,
    at: u64,
    length: u32,
    /// Bytes kept; they follow those of the record before.
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
    /// As long as a page, and one packet more: there is always room to look at one.
    bytes: Box<[u8]>,
    used: usize,
    records: Vec<Record>,
    /// By port, since the capture began.
    counters: Box<[Counters]>,
}

impl Page {
    fn new() -> Self {
        // Of zeroes: no memory is used before packets come.
        Self {
            bytes: vec![0; PAGE + MAX_PACKET as usize].into(),
            used: 0,
            records: Vec::with_capacity(RECORDS),
            counters: vec![Counters::default(); PORTS].into(),
        }
    }
}

/// The ports by the names that they have, or had.
#[derive(Default)]
struct Names {
    by_name: BTreeMap<String, u32>,
    in_order: Vec<(String, bool)>,
}

struct Capture {
    /// Empty: all.
    ports: Vec<String>,
    interest: Interest,
    filter: Option<Program>,
    snaplen: usize,
    workers: Box<[Pages<Page>]>,
    names: Mutex<Names>,
    /// The port of each index now.
    ids: Box<[AtomicU32]>,
    over: AtomicBool,
}

impl Capture {
    fn new(request: &proto::CaptureRequest, workers: usize) -> Result<Self, Refusal> {
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
            workers: (0..workers).map(|_| Pages::new(Page::new)).collect(),
            names: Mutex::default(),
            ids: (0..MAX_PORTS).map(|_| AtomicU32::new(NONE)).collect(),
            over: AtomicBool::new(false),
        })
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn id(&self, port: PortIndex) -> u32 {
        self.ids.get(usize::from(port.0)).map_or(NONE, |id| id.load(Ordering::Relaxed))
    }

    fn take(&self, page: &mut Page, at: u64, seen: &Sighting<'_>) {
        let port = self.id(seen.port);
        let Some(counters) = page.counters.get_mut(port as usize) else { return };
        counters.seen += 1;
        let length = seen.len();
        let room = page.bytes.get_mut(page.used..).and_then(|room| room.get_mut(..length as usize));
        let Some(room) = room else { return };
        let keep = room.len().min(self.snaplen);
        let mut have = 0;
        if let Some(filter) = &self.filter {
            have = seen.copy(0, &mut room[..FRONT.min(length as usize)]);
            let verdict = filter.keeps(&room[..have], length).or_else(|_more| {
                have += seen.copy(have, &mut room[have..]);
                filter.keeps(&room[..have], length)
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
        if have < keep {
            seen.copy(have, &mut room[have..keep]);
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
        // An index that is used again was not used for a while: workers have forgotten the port that had it.
        if let Some(slot) = self.ids.get(usize::from(port.0)) {
            slot.store(id, Ordering::Relaxed);
        }
        if wanted && id != NONE { self.interest } else { Interest::default() }
    }

    fn observe(&self, worker: usize, batch: &Sightings<'_>) {
        // There is a page always; if there were none, what is not counted is not shown either.
        if let Some(mut page) = self.workers.get(worker).and_then(Pages::to_write) {
            batch.for_each(|seen| self.take(&mut page, batch.at, seen));
        }
    }

    fn bridge_removed(&self) {
        self.over.store(true, Ordering::Release);
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
    let wrong = |message: String| {
        Refusal::Other(format!(
            "{message}; send what a compiler of tcpdump expressions makes, as `mswitch capture` does"
        ))
    };
    let instructions: Option<Vec<_>> = code.iter().map(instruction).collect();
    let instructions =
        instructions.ok_or_else(|| wrong("a field of a filter instruction is too large".into()))?;
    Ok(Some(Program::new(&instructions).map_err(|error| wrong(error.to_string()))?))
}

/// A capture that runs; dropping it ends it.
pub struct Begun {
    switch: Arc<Switch>,
    bridge: BridgeId,
    observer: ObserverId,
    capture: Arc<Capture>,
    name: String,
}

impl Drop for Begun {
    fn drop(&mut self) {
        // A bridge that is gone has no observers.
        let _ = self.switch.unobserve(self.bridge, self.observer);
    }
}

/// Begins what was asked for.
pub fn begin(state: &State, request: &proto::CaptureRequest) -> Result<Begun, Refusal> {
    let switch = state.switch_handle();
    let bridge = {
        let bridges = state.bridges();
        for port in &request.ports {
            find_port(&bridges, &request.bridge, port)?;
        }
        find(&bridges, &request.bridge)?.id
    };
    let capture = Arc::new(Capture::new(request, switch.threads())?);
    let observer = switch.observe(bridge, capture.clone())?;
    Ok(Begun { switch, bridge, observer, capture, name: request.bridge.clone() })
}

/// Shows what it sees until the caller hangs up. `place` is held as long.
pub fn follow(begun: Begun, place: OwnedSemaphorePermit) -> Batches {
    let (to, batches) = mpsc::channel(WAITING);
    // A thread of its own: it copies much, and waits for the caller.
    tokio::task::spawn_blocking(move || {
        let _place = place;
        let mut reader = Reader::new(&begun.capture);
        while !to.is_closed() {
            let over = begun.capture.over.load(Ordering::Acquire);
            let (used, messages) = reader.round();
            for message in messages {
                if to.blocking_send(Ok(message)).is_err() {
                    return;
                }
            }
            if over {
                let gone = format!("bridge \"{}\" was removed, and with it the capture ended", begun.name);
                let _ = to.blocking_send(Err(Status::aborted(gone)));
                return;
            }
            std::thread::sleep(pause(used));
        }
    });
    ReceiverStream::new(batches)
}

/// For how long to let the workers write after a page was found to hold `used` bytes: as few wake-ups as can be, and a page
/// that is full seldom.
fn pause(used: usize) -> Duration {
    match used {
        0..0x2_0000 => ROUND,
        0x2_0000..0x20_0000 => QUICK_ROUND,
        _ => Duration::ZERO,
    }
}

/// The reading side of a capture.
struct Reader<'a> {
    capture: &'a Capture,
    /// What each page of each worker had counted when it was last read.
    counted: Vec<[Vec<Counters>; 2]>,
    /// What the caller knows.
    told: Vec<Counters>,
    told_at: Instant,
}

impl<'a> Reader<'a> {
    fn new(capture: &'a Capture) -> Self {
        let counted = capture.workers.iter().map(|_| [Vec::new(), Vec::new()]).collect();
        Self { capture, counted, told: Vec::new(), told_at: Instant::now() }
    }

    /// Empties the pages; returns the bytes of the fullest and what there is to tell.
    fn round(&mut self) -> (usize, Vec<proto::CaptureBatch>) {
        let mut packets = Vec::new();
        let mut fullest = 0;
        for (pages, counted) in self.capture.workers.iter().zip(&mut self.counted) {
            let Some((which, mut page)) = pages.to_read() else { continue };
            let mut bytes = page.bytes.get(..page.used).unwrap_or_default();
            packets.extend(page.records.iter().filter_map(|record| {
                let (data, rest) = bytes.split_at_checked(record.kept as usize)?;
                bytes = rest;
                Some(packet(record, data))
            }));
            fullest = fullest.max(page.used);
            page.used = 0;
            page.records.clear();
            // After the page was taken: its packets' ports are among these.
            let ports = self.capture.names().in_order.len();
            counted[which] = page.counters.get(..ports).unwrap_or_default().to_vec();
        }
        if self.capture.workers.len() > 1 {
            packets.sort_by_key(|packet| packet.at_nanoseconds);
        }
        (fullest, self.messages(packets))
    }

    fn messages(&mut self, packets: Vec<proto::CapturedPacket>) -> Vec<proto::CaptureBatch> {
        let mut messages = Vec::new();
        let mut message = proto::CaptureBatch { ports: self.new_ports(), ..Default::default() };
        if !packets.is_empty() || self.told_at.elapsed() >= TELL {
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
        let new = (0..).zip(&names.in_order).skip(self.told.len());
        let ports = new.map(|(id, (name, captured))| proto::CapturePort {
            id,
            name: name.clone(),
            captured: *captured,
        });
        let ports = ports.collect();
        self.told.resize(names.in_order.len(), Counters::default());
        ports
    }

    fn new_counters(&mut self) -> Vec<proto::CaptureCounters> {
        self.told_at = Instant::now();
        let mut now = vec![Counters::default(); self.told.len()];
        for page in self.counted.iter().flatten() {
            for (sum, counters) in now.iter_mut().zip(page) {
                sum.add(counters);
            }
        }
        let changed = (0..).zip(now.iter().zip(&self.told)).filter(|(_, (now, told))| now != told);
        let counters = changed
            .map(|(port, (now, _))| proto::CaptureCounters {
                port,
                seen: now.seen,
                kept: now.kept,
                missed: now.missed,
            })
            .collect();
        self.told = now;
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

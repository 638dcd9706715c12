//! Traces: what a bridge does with a packet and why, for one that is only thought of or for those that come.
//!
//! Of a live trace the workers write down what their logic says, where packets went and their first bytes, into room that was
//! made beforehand; a task exchanges it now and then for an empty one, and reads it in peace. A worker never waits: who finds
//! the room taken, or full, counts.
//!
//! Invariant: a packet that is told of is told of wholly, but for outputs and remarks that found no room, whose number is told.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fabric::rx::MAX_BATCH;
use fabric::switch::{BridgeId, ObserverId};
use fabric::{DropReason, Interest, Observer, PortIndex, Remark, Sighting, Sightings, Switch, Way};
use packet::Offload;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::proto;
use crate::refusal::Refusal;
use crate::state::{Bridge, State, find, find_port};

/// Most packets of one live trace.
pub const MOST: u32 = 10_000;

/// How often a live trace is read.
const ROUND: Duration = Duration::from_millis(50);
/// Bytes shown of a packet.
const SHOWN: usize = 128;
/// Room for remarks and outputs, for each packet on average.
const EACH: usize = 8;

/// The reply to a call.
pub type Traces = ReceiverStream<Result<proto::Trace, Status>>;

/// What would become of a packet now.
pub fn once(state: &State, request: &proto::TracePacketRequest) -> Result<proto::Trace, Refusal> {
    let bridges = state.bridges();
    let port = find_port(&bridges, &request.bridge, &request.port)?;
    let bridge = find(&bridges, &request.bridge)?;
    // A trace calls the bridge's module, which would not return from that call either.
    if let Some(stuck) = state
        .stuck()
        .into_iter()
        .find(|stuck| stuck.bridge == request.bridge && bridge.logic.called_on(stuck.thread).is_some())
    {
        return Err(Refusal::Other(format!("cannot trace: {stuck}")));
    }
    let traced = state.switch().trace(port.at, &request.packet, Offload::NONE)?;
    let name = |port: PortIndex| name_of(bridge, port);
    let outputs = traced.outputs.into_iter().map(|output| proto::TraceOutput {
        port: name(output.port),
        queue: Some(output.queue.into()),
        length: output.packet.len() as u32,
        packet: output.packet,
        mirrored: output.mirrored,
        drop_reason: String::new(),
    });
    let refusals = traced.refusals.iter().map(|(port, reason)| proto::TraceOutput {
        port: name(*port),
        drop_reason: reason.name().into(),
        ..Default::default()
    });
    Ok(proto::Trace {
        port: request.port.clone(),
        length: request.packet.len() as u32,
        packet: request.packet.clone(),
        steps: traced.remarks.iter().map(|remark| remark.sentence(name)).collect(),
        outputs: outputs.chain(refusals).collect(),
        drops: traced.drops.iter().map(|reason| reason.name().into()).collect(),
        ..Default::default()
    })
}

fn name_of(bridge: &Bridge, index: PortIndex) -> String {
    let port = bridge.ports.iter().find(|(_, port)| port.at.port == index);
    port.map_or_else(|| format!("port {}", index.0), |(name, _)| name.clone())
}

/// The first bytes of a packet.
#[derive(Clone, Copy)]
struct Front {
    bytes: [u8; SHOWN],
    len: u32,
}

impl Front {
    fn of(seen: &Sighting<'_>) -> Self {
        let mut front = Self { bytes: [0; SHOWN], len: seen.len() };
        seen.copy(0, &mut front.bytes);
        front
    }

    fn to_vec(self) -> Vec<u8> {
        self.bytes.get(..SHOWN.min(self.len as usize)).unwrap_or_default().to_vec()
    }
}

/// A packet that came.
struct Arrival {
    at: u64,
    front: Front,
    dropped: Option<DropReason>,
}

/// What was sent of it, or not.
struct Departure {
    /// Which of the arrivals it is of.
    arrival: usize,
    port: PortIndex,
    front: Front,
    mirrored: bool,
    dropped: Option<DropReason>,
}

/// What workers write to, a whole batch at a time.
struct Room {
    arrivals: Vec<Arrival>,
    remarks: Vec<(usize, Remark)>,
    departures: Vec<Departure>,
    /// Remarks and departures that found no room.
    omitted: u64,
    /// Arrivals that are still wanted.
    wanted: usize,
}

struct Live {
    port: String,
    room: Mutex<Room>,
    /// Packets of the port that came while the room was taken.
    missed: AtomicU64,
    names: Mutex<Vec<(PortIndex, String)>>,
    over: AtomicBool,
}

impl Live {
    fn new(port: &str, wanted: usize) -> Self {
        let (missed, names, over) = Default::default();
        Self { port: port.into(), room: Mutex::new(Room::new(wanted)), missed, names, over }
    }

    fn names(&self) -> MutexGuard<'_, Vec<(PortIndex, String)>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has not been told yet, and whether that is all. `spare` is an empty room, and is one again.
    fn read(&self, spare: &mut Room) -> (Vec<proto::Trace>, bool) {
        let names = self.names().clone();
        let name = |port: PortIndex| {
            let found = names.iter().rev().find(|(index, _)| *index == port);
            found.map_or_else(|| format!("port {}", port.0), |(_, name)| name.clone())
        };
        {
            let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
            (spare.wanted, spare.omitted) = (room.wanted, room.omitted);
            std::mem::swap(&mut *room, spare);
        }
        let missed = self.missed.load(Relaxed);
        let new = spare.arrivals.drain(..).map(|arrival| proto::Trace {
            port: self.port.clone(),
            length: arrival.front.len,
            packet: arrival.front.to_vec(),
            drops: arrival.dropped.iter().map(|reason| reason.name().into()).collect(),
            at_nanoseconds: arrival.at,
            missed,
            omitted: spare.omitted,
            ..Default::default()
        });
        let mut new: Vec<_> = new.collect();
        for (of, remark) in spare.remarks.drain(..) {
            if let Some(trace) = new.get_mut(of) {
                trace.steps.push(remark.sentence(name));
            }
        }
        for departure in spare.departures.drain(..) {
            if let Some(trace) = new.get_mut(departure.arrival) {
                trace.outputs.push(proto::TraceOutput {
                    port: name(departure.port),
                    queue: None,
                    length: departure.front.len,
                    packet: departure.front.to_vec(),
                    mirrored: departure.mirrored,
                    drop_reason: departure.dropped.map_or("", DropReason::name).into(),
                });
            }
        }
        (new, spare.wanted == 0)
    }
}

impl Room {
    fn new(wanted: usize) -> Self {
        Self {
            arrivals: Vec::with_capacity(wanted),
            remarks: Vec::with_capacity(wanted * EACH),
            departures: Vec::with_capacity(wanted * EACH),
            omitted: 0,
            wanted,
        }
    }

    fn take(&mut self, batch: &Sightings<'_>) {
        // Where each packet of the batch is among the arrivals.
        let mut places = [usize::MAX; MAX_BATCH];
        batch.for_each(|seen| {
            let Some(place) = places.get_mut(usize::from(seen.packet)) else { return };
            if seen.way == Way::In && self.wanted > 0 {
                self.wanted -= 1;
                *place = self.arrivals.len();
                // What went wrong where it was to go is told with that.
                let dropped = seen.dropped.filter(|_| seen.egress.is_none());
                self.arrivals.push(Arrival { at: batch.at, front: Front::of(seen), dropped });
                for remark in seen.remarks() {
                    match self.remarks.len() < self.remarks.capacity() {
                        true => self.remarks.push((*place, *remark)),
                        false => self.omitted += 1,
                    }
                }
            } else if seen.way == Way::Out && *place != usize::MAX {
                if self.departures.len() == self.departures.capacity() {
                    self.omitted += 1;
                    return;
                }
                let (arrival, port, front) = (*place, seen.port, Front::of(seen));
                let (mirrored, dropped) = (seen.mirrored, seen.dropped);
                self.departures.push(Departure { arrival, port, front, mirrored, dropped });
            }
        });
    }
}

impl Observer for Live {
    fn interest(&self, port: PortIndex, name: &str) -> Interest {
        let mut names = self.names();
        names.retain(|(index, _)| *index != port);
        names.push((port, name.into()));
        let here = name == self.port;
        Interest { received: here, sent: true, explained: here }
    }

    fn observe(&self, _worker: usize, batch: &Sightings<'_>) {
        let mut came = 0;
        batch.for_each(|seen| came += u64::from(seen.way == Way::In));
        if came == 0 {
            return;
        }
        match self.room.try_lock() {
            Ok(mut room) => room.take(batch),
            Err(_) => _ = self.missed.fetch_add(came, Relaxed),
        }
    }

    fn bridge_removed(&self) {
        self.over.store(true, Relaxed);
    }
}

/// A live trace that runs; dropping it ends it.
pub struct Begun {
    switch: Arc<Switch>,
    bridge: BridgeId,
    observer: ObserverId,
    live: Arc<Live>,
    name: String,
    wanted: usize,
}

impl Drop for Begun {
    fn drop(&mut self) {
        // A bridge that is gone has no observers.
        let _ = self.switch.unobserve(self.bridge, self.observer);
    }
}

/// Begins to write down the next packets of a port.
pub fn begin(state: &State, request: &proto::TraceLiveRequest) -> Result<Begun, Refusal> {
    if !(1..=MOST).contains(&request.count) {
        let count = request.count;
        return Err(Refusal::Other(format!("{count} packets cannot be traced; expected 1 to {MOST}")));
    }
    let switch = state.switch_handle();
    let bridge = {
        let bridges = state.bridges();
        find_port(&bridges, &request.bridge, &request.port)?;
        find(&bridges, &request.bridge)?.id
    };
    let wanted = request.count as usize;
    let live = Arc::new(Live::new(&request.port, wanted));
    let observer = switch.observe(bridge, live.clone())?;
    Ok(Begun { switch, bridge, observer, live, name: request.bridge.clone(), wanted })
}

/// Tells of the packets until there were as many as asked for or the caller hangs up. `place` is held as long.
pub fn follow(begun: Begun, place: OwnedSemaphorePermit) -> Traces {
    let (to, traces) = mpsc::channel(64);
    tokio::spawn(async move {
        let mut round = tokio::time::interval(ROUND);
        let mut spare = Room::new(begun.wanted);
        loop {
            tokio::select! {
                _ = round.tick() => {}
                () = to.closed() => break,
            }
            let over = begun.live.over.load(Relaxed);
            let (new, done) = begun.live.read(&mut spare);
            for trace in new {
                if to.send(Ok(trace)).await.is_err() {
                    break;
                }
            }
            if done {
                break;
            }
            if over {
                let gone = format!("bridge \"{}\" was removed, and with it the trace ended", begun.name);
                let _ = to.send(Err(Status::aborted(gone))).await;
                break;
            }
        }
        // Taking the observer away waits for the workers.
        let _ = tokio::task::spawn_blocking(move || drop((begun, place))).await;
    });
    ReceiverStream::new(traces)
}

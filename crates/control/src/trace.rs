//! Traces: explain how a bridge handles a packet, hypothetical or received.
//!
//! In a live trace, the workers write the remarks of the logic, the outputs and the first bytes of each packet to a
//! preallocated `Log`. A task periodically swaps it for an empty one and reads it. A worker never waits: if the log is
//! locked or full, it only counts.
//!
//! Invariant: a reported packet is complete, except for remarks and outputs that did not fit, which are counted.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fabric::rx::MAX_BATCH;
use fabric::switch::{BridgeId, ObserverId, PortRef};
use fabric::{DropReason, Interest, Observer, PortIndex, Remark, Sighting, Sightings, Switch, Way};
use logic::MacTable;
use packet::{MacAddr, Offload};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::convert::down_reason;
use crate::desired::Desired;
use crate::proto;
use crate::refusal::Refusal;
use crate::state::{Bridge, State, find, find_port};

/// Maximum number of packets of a live trace.
pub const MAX_PACKETS: u32 = 10_000;

/// Interval at which a live trace is read.
const INTERVAL: Duration = Duration::from_millis(50);
/// Number of bytes reported of a packet.
const PREFIX: usize = 128;
/// Average number of remarks, and of outputs, per packet for which the log has capacity.
const PER_PACKET: usize = 8;

/// The reply to a call.
pub type Traces = ReceiverStream<Result<proto::Trace, Status>>;

/// Traces a hypothetical packet.
pub fn once(state: &State, request: &proto::TracePacketRequest) -> Result<proto::Trace, Refusal> {
    let at = find_port(&state.bridges(), &request.bridge, &request.port)?.at;
    trace(state, request, at)
}

/// Traces a hypothetical packet that comes from no port of a bridge.
pub fn from_nowhere(state: &State, bridge: &str, packet: &[u8]) -> Result<proto::Trace, Refusal> {
    let id = find(&state.bridges(), bridge)?.id;
    let request = proto::TracePacketRequest {
        bridge: bridge.into(),
        packet: packet.into(),
        ..proto::TracePacketRequest::default()
    };
    trace(state, &request, PortRef { bridge: id, port: PortIndex::NONE })
}

fn trace(state: &State, request: &proto::TracePacketRequest, at: PortRef) -> Result<proto::Trace, Refusal> {
    let bridges = state.bridges();
    let bridge = find(&bridges, &request.bridge)?;
    // A trace calls the bridge's module, which would not return from that call either.
    if let Some(stuck) = state
        .stuck()
        .into_iter()
        .find(|stuck| stuck.bridge == request.bridge && bridge.logic.called_on(stuck.thread).is_some())
    {
        return Err(Refusal::Other(format!("cannot trace: {stuck}")));
    }
    let traced = state.switch().trace(at, &request.packet, Offload::NONE)?;
    let name = |port: PortIndex| name_of(bridge, port);
    let outputs = traced.outputs.into_iter().map(|output| {
        let (port, mirrored) = (name(output.port), output.mirrored);
        // An interface that is down keeps its place in the fabric, and drops the packet itself.
        if let Some(detail) = bridge.ports.get(&port).and_then(down_reason) {
            let drop_reason = DropReason::PortDown.name().into();
            return proto::TraceOutput { port, mirrored, drop_reason, detail, ..Default::default() };
        }
        proto::TraceOutput {
            port,
            queue: Some(output.queue.into()),
            class: output.class.into(),
            length: output.packet.len() as u32,
            packet: output.packet,
            mirrored,
            ..Default::default()
        }
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

/// The first bytes of a packet, and its length.
#[derive(Clone, Copy)]
struct Prefix {
    bytes: [u8; PREFIX],
    len: u32,
}

impl Prefix {
    fn of(seen: &Sighting<'_>) -> Self {
        let mut prefix = Self { bytes: [0; PREFIX], len: seen.len() };
        seen.copy(0, &mut prefix.bytes);
        prefix
    }

    fn to_vec(self) -> Vec<u8> {
        self.bytes.get(..PREFIX.min(self.len as usize)).unwrap_or_default().to_vec()
    }
}

/// A received packet.
struct Input {
    at: u64,
    prefix: Prefix,
    dropped: Option<DropReason>,
}

/// A packet sent to a port, or dropped there.
struct Output {
    /// Index of its input.
    input: usize,
    port: PortIndex,
    prefix: Prefix,
    mirrored: bool,
    dropped: Option<DropReason>,
}

/// The records of a live trace. Workers append a whole batch at a time.
struct Log {
    inputs: Vec<Input>,
    /// Remarks, each with the index of its input.
    remarks: Vec<(usize, Remark)>,
    outputs: Vec<Output>,
    /// Remarks and outputs that did not fit.
    omitted: u64,
    /// Number of packets still to be traced.
    remaining: usize,
}

/// Indexes and names of ports; of several names of an index the last one is valid.
type Names = Vec<(PortIndex, String)>;

fn name_in(names: &Names, port: PortIndex) -> String {
    let found = names.iter().rev().find(|(index, _)| *index == port);
    found.map_or_else(|| format!("port {}", port.0), |(_, name)| name.clone())
}

struct Live {
    port: String,
    log: Mutex<Log>,
    /// Packets of the port received while the log was locked.
    missed: AtomicU64,
    names: Mutex<Names>,
    bridge_removed: AtomicBool,
}

impl Live {
    fn new(port: &str, count: usize) -> Self {
        let (missed, names, bridge_removed) = Default::default();
        Self { port: port.into(), log: Mutex::new(Log::new(count)), missed, names, bridge_removed }
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the new traces, and whether the trace is complete. `spare` is an empty log, and is empty again on
    /// return.
    fn read(&self, spare: &mut Log) -> (New, bool) {
        let names = self.names().clone();
        let name = |port| name_in(&names, port);
        {
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            (spare.remaining, spare.omitted) = (log.remaining, log.omitted);
            std::mem::swap(&mut *log, spare);
        }
        let missed = self.missed.load(Relaxed);
        let new = spare.inputs.drain(..).map(|input| proto::Trace {
            port: self.port.clone(),
            length: input.prefix.len,
            packet: input.prefix.to_vec(),
            drops: input.dropped.iter().map(|reason| reason.name().into()).collect(),
            at_nanoseconds: input.at,
            missed,
            omitted: spare.omitted,
            ..Default::default()
        });
        let mut new: Vec<_> = new.collect();
        let mut unknown = Vec::new();
        for (input, remark) in spare.remarks.drain(..) {
            if let Some(trace) = new.get_mut(input) {
                if let Some((mac, vid)) = logic::unknown_destination(&remark) {
                    unknown.push(Unknown { trace: input, step: trace.steps.len(), mac, vid });
                }
                trace.steps.push(remark.sentence(name));
            }
        }
        for output in spare.outputs.drain(..) {
            if let Some(trace) = new.get_mut(output.input) {
                trace.outputs.push(proto::TraceOutput {
                    port: name(output.port),
                    queue: None,
                    length: output.prefix.len,
                    packet: output.prefix.to_vec(),
                    mirrored: output.mirrored,
                    drop_reason: output.dropped.map_or("", DropReason::name).into(),
                    ..Default::default()
                });
            }
        }
        (New { traces: new, unknown }, spare.remaining == 0)
    }
}

/// A step that says that a destination is unknown.
struct Unknown {
    /// Indexes of the trace and of the step.
    trace: usize,
    step: usize,
    mac: MacAddr,
    vid: u16,
}

/// New traces, and the steps to complete from the state of the bridge: a worker has no time for it.
struct New {
    traces: Vec<proto::Trace>,
    unknown: Vec<Unknown>,
}

impl New {
    /// Whether [`New::add_reasons`] or [`New::add_vlans`] may add anything.
    fn is_incomplete(&self) -> bool {
        let down = |output: &proto::TraceOutput| output.drop_reason == DropReason::PortDown.name();
        !self.unknown.is_empty() || self.traces.iter().any(|trace| trace.outputs.iter().any(down))
    }

    /// Adds the reasons for which ports are down.
    fn add_reasons(&mut self, bridge: &Bridge) {
        for output in self.traces.iter_mut().flat_map(|trace| &mut trace.outputs) {
            if output.drop_reason == DropReason::PortDown.name() {
                output.detail = bridge.ports.get(&output.port).and_then(down_reason).unwrap_or_default();
            }
        }
    }

    /// Adds the other VLANs of unknown destinations.
    fn add_vlans(&mut self, table: &dyn MacTable, names: &Names) {
        let wanted: BTreeSet<_> = self.unknown.iter().map(|unknown| unknown.mac).collect();
        let mut entries = table.entries_of(&wanted);
        entries.sort_by_key(|entry| (entry.mac, entry.vid));
        for Unknown { trace, step, mac, vid } in &self.unknown {
            let from = entries.partition_point(|entry| entry.mac < *mac);
            let same = entries.iter().skip(from).take_while(|entry| entry.mac == *mac);
            let elsewhere = same.filter(|entry| entry.vid != *vid).map(|entry| {
                let port = name_in(names, entry.port);
                match entry.vid {
                    0 => format!("; it is at {port} without a VLAN"),
                    vid => format!("; it is at {port} in VLAN {vid}"),
                }
            });
            let steps = self.traces.get_mut(*trace).map(|trace| &mut trace.steps);
            if let (Some(found), Some(text)) =
                (elsewhere.take(1).next(), steps.and_then(|steps| steps.get_mut(*step)))
            {
                text.push_str(&found);
            }
        }
    }
}

impl Log {
    fn new(count: usize) -> Self {
        Self {
            inputs: Vec::with_capacity(count),
            remarks: Vec::with_capacity(count * PER_PACKET),
            outputs: Vec::with_capacity(count * PER_PACKET),
            omitted: 0,
            remaining: count,
        }
    }

    fn append(&mut self, batch: &Sightings<'_>) {
        // The indexes of the batch's packets among the inputs.
        let mut indexes = [usize::MAX; MAX_BATCH];
        batch.for_each(|seen| {
            let Some(index) = indexes.get_mut(usize::from(seen.packet)) else { return };
            if seen.way == Way::In && self.remaining > 0 {
                self.remaining -= 1;
                *index = self.inputs.len();
                // A drop at an output is reported with the output.
                let dropped = seen.dropped.filter(|_| seen.egress.is_none());
                self.inputs.push(Input { at: batch.at, prefix: Prefix::of(seen), dropped });
                for remark in seen.remarks() {
                    match self.remarks.len() < self.remarks.capacity() {
                        true => self.remarks.push((*index, *remark)),
                        false => self.omitted += 1,
                    }
                }
            } else if seen.way == Way::Out && *index != usize::MAX {
                if self.outputs.len() == self.outputs.capacity() {
                    self.omitted += 1;
                    return;
                }
                let (input, port, prefix) = (*index, seen.port, Prefix::of(seen));
                let (mirrored, dropped) = (seen.mirrored, seen.dropped);
                self.outputs.push(Output { input, port, prefix, mirrored, dropped });
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
        let mut received = 0;
        batch.for_each(|seen| received += u64::from(seen.way == Way::In));
        if received == 0 {
            return;
        }
        match self.log.try_lock() {
            Ok(mut log) => log.append(batch),
            Err(_) => _ = self.missed.fetch_add(received, Relaxed),
        }
    }

    fn bridge_removed(&self) {
        self.bridge_removed.store(true, Relaxed);
    }
}

/// A running live trace; dropping it ends the trace.
pub struct ActiveTrace {
    switch: Arc<Switch>,
    bridge: BridgeId,
    observer: ObserverId,
    live: Arc<Live>,
    name: String,
    count: usize,
}

impl Drop for ActiveTrace {
    fn drop(&mut self) {
        // An error means that the bridge was removed, with its observers.
        let _ = self.switch.unobserve(self.bridge, self.observer);
    }
}

/// Starts a live trace of the next packets of a port.
pub fn start(state: &State, request: &proto::TraceLiveRequest) -> Result<ActiveTrace, Refusal> {
    if !(1..=MAX_PACKETS).contains(&request.count) {
        let count = request.count;
        return Err(Refusal::Other(format!("cannot trace {count} packets; expected 1 to {MAX_PACKETS}")));
    }
    let switch = state.switch_handle();
    let bridge = {
        let bridges = state.bridges();
        find_port(&bridges, &request.bridge, &request.port)?;
        find(&bridges, &request.bridge)?.id
    };
    let count = request.count as usize;
    let live = Arc::new(Live::new(&request.port, count));
    let observer = switch.observe(bridge, live.clone())?;
    Ok(ActiveTrace { switch, bridge, observer, live, name: request.bridge.clone(), count })
}

/// Streams the traces until the requested number is reached or the caller disconnects. Holds `place` until then.
pub fn stream(trace: ActiveTrace, place: OwnedSemaphorePermit, desired: Arc<Desired>) -> Traces {
    let (to, traces) = mpsc::channel(64);
    tokio::spawn(async move {
        let mut interval = tokio::time::interval(INTERVAL);
        let mut spare = Log::new(trace.count);
        loop {
            tokio::select! {
                _ = interval.tick() => {}
                () = to.closed() => break,
            }
            let bridge_removed = trace.live.bridge_removed.load(Relaxed);
            let (mut new, done) = trace.live.read(&mut spare);
            if new.is_incomplete() {
                let (desired, name, live) = (desired.clone(), trace.name.clone(), trace.live.clone());
                let completed = tokio::task::spawn_blocking(move || {
                    let bridges = desired.state().bridges();
                    let Some(bridge) = bridges.get(&name) else { return new };
                    new.add_reasons(bridge);
                    let logic = bridge.logic.clone();
                    // Commands need not wait until a large table is searched.
                    drop(bridges);
                    if let Some(table) = logic.views().stations.filter(|_| !new.unknown.is_empty()) {
                        let names = live.names().clone();
                        new.add_vlans(table, &names);
                    }
                    new
                });
                let Ok(completed) = completed.await else { break };
                new = completed;
            }
            for packet in new.traces {
                if to.send(Ok(packet)).await.is_err() {
                    break;
                }
            }
            if done {
                break;
            }
            if bridge_removed {
                let message = format!("the trace ended because bridge \"{}\" was removed", trace.name);
                let _ = to.send(Err(Status::aborted(message))).await;
                break;
            }
        }
        // Removing the observer waits for the workers.
        let _ = tokio::task::spawn_blocking(move || drop((trace, place))).await;
    });
    ReceiverStream::new(traces)
}

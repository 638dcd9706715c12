//! A worker's steps one by one, without its thread: driven by fuzz targets (feature `fuzzing`).
//!
//! The steps are the worker's own functions; only the loop around them, which sleeps and wakes, is missing.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use packet::offload::Offload;

use crate::bridge::port::{Caps, PortIndex, PortSettings};
use crate::bridge::state::{BridgeState, Lane, PortEntry};
use crate::counters::{DropReason, Drops, QueueCounters};
use crate::decide::forward::{forward, originate};
use crate::decide::logic::SwitchLogic;
use crate::decide::steps::logic_view;
use crate::deliver::client::Client;
use crate::deliver::egress::Egress;
use crate::deliver::tools::Tools;
use crate::fault::Fault;
use crate::lists::scratchpad::Scratchpad;
use crate::observe::mirror::Mirror;
use crate::observe::observer::Observer;
use crate::observe::trace::{self, TraceError, Traced};
use crate::protect::policing::RateLimits;
use crate::protection::EgressLimits;
use crate::queueing::classes::Classes;
use crate::queueing::lane::{LaneQueues, Queued};
use crate::rx::{BatchLimits, MAX_BATCH, RxBatch, RxQueue};
use crate::wake::notifier::Notifier;
use crate::worker::tasks::Context;
use crate::worker::tasks::drain::Drain;
use crate::worker::thread_info::ThreadInfo;

/// A port of a [`Bridge`].
pub struct Port {
    /// Whether its packets are switched.
    pub up: bool,
    /// Settings as from the configuration; admin state and MTU are not used.
    pub settings: PortSettings,
    /// Transmit queues; none for a port that is down or whose client only sends.
    pub tx: Vec<Arc<dyn Egress>>,
    /// Offloads that it takes as they are.
    pub caps: Caps,
    /// Longest frame that it takes, in bytes with link header.
    pub max_frame: u32,
}

/// A bridge as workers see it, and the counters of its transmit queues.
pub struct Bridge {
    state: BridgeState,
    counters: Vec<Arc<QueueCounters>>,
    faults: Arc<Mutex<Vec<(usize, Fault)>>>,
}

impl Bridge {
    /// A bridge with these ports, numbered from 0. The logic is told of them.
    pub fn new(logic: Arc<dyn SwitchLogic>, ports: Vec<Port>) -> Self {
        Self::observed(logic, ports, Vec::new(), &[])
    }

    /// The same, with mirrors and observers.
    pub fn observed(
        logic: Arc<dyn SwitchLogic>,
        ports: Vec<Port>,
        mirrors: Vec<Mirror>,
        observers: &[Arc<dyn Observer>],
    ) -> Self {
        let faults = Arc::new(Mutex::new(Vec::new()));
        let (mut entries, mut lanes, mut counters, mut named) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (index, port) in (0u16..).zip(ports) {
            let (first_lane, settings) = (lanes.len() as u32, Arc::new(port.settings));
            for egress in port.tx {
                let (lane, faults, counter) = (lanes.len(), faults.clone(), Arc::<QueueCounters>::default());
                counters.push(counter.clone());
                let on_fault = Arc::new(move |fault| {
                    faults.lock().unwrap_or_else(PoisonError::into_inner).push((lane, fault));
                });
                let client = Client::new(u64::from(index) + 1, on_fault, vec![egress.clone()], None);
                lanes.push(Lane { port: PortIndex(index), egress, counters: counter, client });
            }
            named.push((PortIndex(index), settings.clone()));
            let (up, caps, max_frame) = (port.up, port.caps, port.max_frame);
            let lanes = lanes.len() as u32 - first_lane;
            let (closed, rate_limits) = (DropReason::PortDown, RateLimits::of(&settings, None));
            entries.push(Some(PortEntry {
                up,
                queues: 1,
                first_lane,
                lanes,
                caps,
                max_frame,
                closed,
                violations: settings.security.is_on().then(Arc::default),
                rate_limits,
                marks: None,
                has_classes: false,
                mirror: None,
                settings,
            }));
        }
        logic.ports_changed(&named);
        let mirrors: Vec<_> = mirrors.into_iter().map(|mirror| (mirror, Arc::default())).collect();
        let state = BridgeState::with_monitoring(logic, entries, lanes, &mirrors, observers.iter(), |_| None);
        Self { state: state.with_arenas(1), counters, faults }
    }

    /// Result of [`crate::Switch::trace`].
    pub fn trace(&self, ingress: PortIndex, packet: &[u8], offload: Offload) -> Result<Traced, TraceError> {
        trace::rehearse(&self.state, ingress, packet, offload)
    }

    /// Counters of all ports' transmit queues, in one sequence.
    pub fn counters(&self) -> &[Arc<QueueCounters>] {
        &self.counters
    }

    /// Transmit queues that have died since the last call, each with its fault.
    pub fn take_faults(&self) -> Vec<(usize, Fault)> {
        std::mem::take(&mut self.faults.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A worker's own memory.
pub struct Steps {
    batch: RxBatch,
    pad: Scratchpad,
    tools: Tools,
    /// Most bytes of a batch: the landing memory was allocated for this many.
    room: usize,
}

impl Steps {
    /// Creates the memory of a worker. Fails if a worker's creation would.
    pub fn new(limits: BatchLimits) -> io::Result<Self> {
        let tools = Tools::new(Notifier::new()?);
        let pad = Scratchpad::of_worker(0, tools.activity.clone());
        Ok(Self { batch: RxBatch::new(limits), pad, tools, room: limits.bytes })
    }

    /// Changes the limits of the next batch, up to those at creation.
    pub fn set_limits(&mut self, limits: BatchLimits) {
        let packets = limits.packets.clamp(1, MAX_BATCH);
        self.batch.limits = BatchLimits { packets, bytes: limits.bytes.min(self.room) };
    }

    /// Takes descriptors from a queue into an empty batch.
    pub fn receive(&mut self, queue: &mut dyn RxQueue) -> Result<(), Fault> {
        self.batch.clear();
        queue.receive(&mut self.batch)
    }

    /// Packets in the batch.
    pub fn packets(&self) -> usize {
        self.batch.len()
    }

    /// Calls `f` with the number, the length, and the pieces (address and length) of each packet.
    pub fn for_each_packet(&self, mut f: impl FnMut(usize, u32, &[(*const u8, u32)])) {
        let mut pieces = Vec::new();
        for i in 0..self.batch.packets {
            let record = &self.batch.records[i];
            let source = self.batch.source(record);
            pieces.clear();
            match source.pieces.is_empty() {
                true => pieces.push((source.at, record.to)),
                false => pieces.extend(source.pieces.iter().map(|piece| (piece.at, piece.len))),
            }
            f(i, record.to, &pieces);
        }
    }

    /// Copies the private headers.
    pub fn load(&mut self) {
        self.batch.load_headers();
    }

    /// The same, to where the bridge's logic wants them.
    pub fn load_for(&mut self, bridge: &Bridge) {
        if let Some(arena) = bridge.state.arena(0) {
            // SAFETY: this is the only worker, number 0, and `receive` empties the batch before the next one.
            unsafe { self.batch.keep_headers_in(arena) };
        }
        self.batch.load_headers();
    }

    /// Lets the logic decide and delivers. To be called once after [`Steps::load`].
    pub fn forward(&mut self, bridge: &Bridge, ingress: PortIndex) {
        forward(&mut self.batch, &mut self.pad, &mut self.tools, &bridge.state, ingress);
        self.tools.notifier.flush();
    }

    /// Lets the logic originate packets, as in [`SwitchLogic::wake`], and delivers them.
    pub fn wake(&mut self, bridge: &Bridge) {
        self.batch.clear();
        self.load_for(bridge);
        let logic = &bridge.state.logic;
        originate(&mut self.batch, &mut self.pad, &mut self.tools, &bridge.state, |batch| logic.wake(batch));
        self.tools.notifier.flush();
    }

    /// Calls a logic as a bridge calls its own and ignores its decisions, to measure the cost of the call alone.
    #[inline]
    pub fn ask<L: SwitchLogic + ?Sized>(&mut self, bridge: &Bridge, ingress: PortIndex, logic: &L) {
        if let Some(mut batch) = logic_view(&mut self.batch, &mut self.pad, &bridge.state, ingress) {
            logic.forward(&mut batch);
        }
    }

    /// The same with the bridge's own logic.
    #[inline]
    pub fn ask_own(&mut self, bridge: &Bridge, ingress: PortIndex) {
        self.ask(bridge, ingress, &*bridge.state.logic);
    }

    /// Returns a batch's descriptors to their sender, and notifies it.
    pub fn complete(&mut self, queue: &mut dyn RxQueue) -> Result<(), Fault> {
        let completed = queue.complete(&mut self.tools);
        self.tools.notifier.flush();
        completed
    }

    /// Drops since the last call before a transmit queue, by reason.
    pub fn take_drops(&mut self) -> Drops {
        let mut sum = Drops::default();
        for drops in [&mut self.batch.drops, &mut self.pad.drops] {
            let drops = std::mem::take(drops);
            for reason in DropReason::ALL {
                sum.add(*reason, drops.get(*reason));
            }
        }
        sum
    }
}

/// A transmit queue where packets wait, and the drain that empties it into a destination.
pub struct Retaining {
    queue: Arc<dyn Egress>,
    drain: Drain,
    counters: Arc<QueueCounters>,
}

impl Retaining {
    /// Queues by these limits. Fails if packets do not wait by them, or if the kernel has no eventfd left.
    pub fn new(limits: EgressLimits, egress: Arc<dyn Egress>) -> io::Result<Self> {
        let classes = Classes::of(Some(&Arc::new(limits)), None).ok_or(io::ErrorKind::InvalidInput)?;
        let (lane, counters) = (LaneQueues::new(&classes, egress.clone())?, Arc::<QueueCounters>::default());
        let queue = Arc::new(Queued::new(lane.clone()));
        let client = Client::new(1, Arc::new(|_| ()), vec![egress], None);
        let drain = Drain::new(lane, counters.clone(), client, 0);
        Ok(Self { queue, drain, counters })
    }

    /// The queue as a destination.
    pub fn queue(&self) -> Arc<dyn Egress> {
        self.queue.clone()
    }

    /// Lets the drain deliver a batch at time `now`; returns the number of packets.
    pub fn run(&mut self, drainer: &mut Drainer, now: u64) -> usize {
        let packets = self.drain.run(&mut drainer.0, now).packets;
        drainer.0.ring();
        packets
    }

    /// Counters of the drain.
    pub fn counters(&self) -> &QueueCounters {
        &self.counters
    }
}

/// A worker's memory for running drains.
pub struct Drainer(Context);

impl Drainer {
    /// Creates the memory of a worker. Fails if a worker's creation would.
    pub fn new(limits: BatchLimits) -> io::Result<Self> {
        Context::new(&ThreadInfo::new(0), Arc::default(), Arc::default(), limits).map(Self)
    }
}

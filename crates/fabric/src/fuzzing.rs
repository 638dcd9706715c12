//! A worker's steps one by one, without its thread: what fuzz targets drive (feature `fuzzing`).
//!
//! The steps are the worker's own functions; only the loop around them, which sleeps and wakes, is missing.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use packet::offload::Offload;

use crate::bridge::picture::{BridgeState, Lane, PortEntry};
use crate::bridge::port::{Caps, PortIndex, PortSettings};
use crate::counters::{DropReason, Drops, QueueCounters};
use crate::decide::forward::{forward, originate};
use crate::decide::logic::SwitchLogic;
use crate::decide::steps::seen;
use crate::deliver::client::Client;
use crate::deliver::egress::Egress;
use crate::deliver::queueing::{Queued, Retained};
use crate::deliver::tools::Tools;
use crate::fault::Fault;
use crate::lists::scratchpad::Scratchpad;
use crate::observe::mirror::Mirror;
use crate::observe::observer::Observer;
use crate::observe::trace::{self, TraceError, Traced};
use crate::protect::policing::Guards;
use crate::rx::{BatchLimits, MAX_BATCH, RxBatch, RxQueue};
use crate::wake::doorbell::EventBell;
use crate::wake::notifier::Notifier;
use crate::worker::post::Post;
use crate::worker::tasks::Context;
use crate::worker::tasks::drain::{Drain, Gate};

/// A port of a [`Picture`].
pub struct Port {
    /// Whether its packets are switched.
    pub up: bool,
    /// What would come from the configuration; admin state and MTU are not used.
    pub settings: PortSettings,
    /// Transmit queues; none of a port that is down or whose client only sends.
    pub tx: Vec<Arc<dyn Egress>>,
    /// What it takes as it is.
    pub caps: Caps,
    /// Longest frame it takes, bytes with link header.
    pub max_frame: u32,
}

/// A bridge as workers see it, and what its transmit queues have counted.
pub struct Picture {
    state: BridgeState,
    counters: Vec<Arc<QueueCounters>>,
    faults: Arc<Mutex<Vec<(usize, Fault)>>>,
}

impl Picture {
    /// A bridge with these ports, numbered from 0. The logic is told of them.
    pub fn new(logic: Arc<dyn SwitchLogic>, ports: Vec<Port>) -> Self {
        Self::watched(logic, ports, Vec::new(), &[])
    }

    /// The same, with mirrors and observers.
    pub fn watched(
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
            let (closed, guards) = (DropReason::PortDown, Guards::of(&settings, None));
            entries.push(Some(PortEntry {
                up,
                first_lane,
                lanes,
                caps,
                max_frame,
                closed,
                violations: settings.security.is_on().then(Arc::default),
                guards,
                settings,
            }));
        }
        logic.ports_changed(&named);
        let mirrors: Vec<_> = mirrors.into_iter().map(|mirror| (mirror, Arc::default())).collect();
        let state = BridgeState::with_aside(logic, entries, lanes, &mirrors, observers.iter()).with_arenas(1);
        Self { state, counters, faults }
    }

    /// What [`crate::Switch::trace`] would say.
    pub fn trace(&self, ingress: PortIndex, packet: &[u8], offload: Offload) -> Result<Traced, TraceError> {
        trace::rehearse(&self.state, ingress, packet, offload)
    }

    /// The counters of transmit queues, all ports' in one row.
    pub fn counters(&self) -> &[Arc<QueueCounters>] {
        &self.counters
    }

    /// Which transmit queues have died since the last call, and of what.
    pub fn take_faults(&self) -> Vec<(usize, Fault)> {
        std::mem::take(&mut self.faults.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A worker's own memory.
pub struct Steps {
    batch: RxBatch,
    pad: Scratchpad,
    tools: Tools,
    /// Bytes that a batch may have at most: the memory that lands packets was made for so many.
    room: usize,
}

impl Steps {
    /// Fails where a worker would.
    pub fn new(limits: BatchLimits) -> io::Result<Self> {
        let tools = Tools::new(Notifier::new()?);
        Ok(Self { batch: RxBatch::new(limits), pad: Scratchpad::of_worker(0), tools, room: limits.bytes })
    }

    /// Changes the bounds of the next batch, down from those at the start.
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

    /// Makes the private header copies.
    pub fn load(&mut self) {
        self.batch.load_headers();
    }

    /// The same, where the bridge's logic wants them to be.
    pub fn load_for(&mut self, picture: &Picture) {
        if let Some(arena) = picture.state.arena(0) {
            // SAFETY: this is the one that takes the part of worker 0, and `receive` empties the batch before the next one.
            unsafe { self.batch.keep_headers_in(arena) };
        }
        self.batch.load_headers();
    }

    /// Lets the logic decide and delivers. To be called once after [`Steps::load`].
    pub fn forward(&mut self, picture: &Picture, ingress: PortIndex) {
        forward(&mut self.batch, &mut self.pad, &mut self.tools, &picture.state, ingress);
        self.tools.notifier.flush();
    }

    /// Lets the logic originate packets, as when its time has come, and delivers them.
    pub fn wake(&mut self, picture: &Picture) {
        self.batch.clear();
        self.load_for(picture);
        let logic = &picture.state.logic;
        originate(&mut self.batch, &mut self.pad, &mut self.tools, &picture.state, |batch| logic.wake(batch));
        self.tools.notifier.flush();
    }

    /// Lets a logic see the batch as a bridge's own does, and does nothing with what it says: what that costs alone.
    #[inline]
    pub fn ask<L: SwitchLogic + ?Sized>(&mut self, picture: &Picture, ingress: PortIndex, logic: &L) {
        if let Some(mut batch) = seen(&mut self.batch, &mut self.pad, &picture.state, ingress) {
            logic.forward(&mut batch);
        }
    }

    /// The same of the bridge's own logic.
    #[inline]
    pub fn ask_own(&mut self, picture: &Picture, ingress: PortIndex) {
        self.ask(picture, ingress, &*picture.state.logic);
    }

    /// Gives a batch's descriptors back to their sender, and tells it.
    pub fn complete(&mut self, queue: &mut dyn RxQueue) -> Result<(), Fault> {
        let completed = queue.complete(&mut self.tools);
        self.tools.notifier.flush();
        completed
    }

    /// What was dropped before it reached a transmit queue since the last call, by reason.
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

/// A queue of retained packets, and the drain that empties it into a destination.
pub struct Retaining {
    queue: Arc<dyn Egress>,
    drain: Drain,
    counters: Arc<QueueCounters>,
}

impl Retaining {
    /// A queue of so many slots. Fails where the kernel has no eventfd left.
    pub fn new(slots: u32, gate: Box<dyn Gate>, egress: Arc<dyn Egress>) -> io::Result<Self> {
        let (ring, counters) = (Retained::new(slots, EventBell::new()?), Arc::<QueueCounters>::default());
        let queue = Arc::new(Queued::new(ring.clone()));
        let client = Client::new(1, Arc::new(|_| ()), vec![egress.clone()], None);
        let drain = Drain::new(ring, gate, egress, counters.clone(), client, 0);
        Ok(Self { queue, drain, counters })
    }

    /// The end that packets are delivered to.
    pub fn queue(&self) -> Arc<dyn Egress> {
        self.queue.clone()
    }

    /// Lets the drain deliver a batch at this time; returns its packets.
    pub fn run(&mut self, drainer: &mut Drainer, now: u64) -> usize {
        let packets = self.drain.run(&mut drainer.0, now).packets;
        drainer.0.ring();
        packets
    }

    /// What the drain has counted.
    pub fn counters(&self) -> &QueueCounters {
        &self.counters
    }
}

/// A worker's memory for running drains.
pub struct Drainer(Context);

impl Drainer {
    /// Fails where a worker would.
    pub fn new(limits: BatchLimits) -> io::Result<Self> {
        Context::new(&Post::new(0), limits).map(Self)
    }
}

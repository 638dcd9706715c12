//! Packets through the tables: for workers.
//!
//! A batch meets one map of ports and one view of the tables, loaded at its start. Nothing here allocates once a
//! worker's memory has grown, nothing waits: the locks are those of a worker's own memory, which only it takes.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, TryLockError};

use arc_swap::{ArcSwap, ArcSwapOption};
use codegen::{Effects, Fate, Views, Worker};
use fabric::doorbell::{Doorbell, ThreadBell};
use fabric::worker::PerThread;
use fabric::{Batch, DropReason, PortIndex, Rest, SwitchLogic, VersionId};
use logic::Learning;
use ofswitch::{OnlyFlow, Surroundings};
use openflow::PortNo;
use pipeline::interp::Received;

use crate::effect::EffectRef;
use crate::engine::Compiled;
use crate::execute::Executor;
use crate::headers::{WINDOW, needs_more};
use crate::ports::PortMap;
use crate::samples::Sampler;
use crate::tally::{Other, Tally, bump};
use crate::upcalls::{Purpose, Upcalls};

/// Mark of injected packets that go where the learning bridge sends them.
pub(crate) const NORMAL: u16 = 1;

/// Seconds between a worker's reports of packets that exceed a limit.
const REPORTS: u32 = 10;

/// The data path of a bridge.
pub(crate) struct Plane {
    pub(crate) ports: ArcSwap<PortMap>,
    pub(crate) compiled: Arc<Compiled>,
    /// Flags of all received packets.
    pub(crate) flags: AtomicU64,
    pub(crate) standalone: AtomicBool,
    /// Whether the control plane takes frames from some port ([`crate::intercept`]).
    pub(crate) intercepts: AtomicBool,
    /// Whether [`PortMap::bonds`] has something; standalone bridges look at nothing else.
    pub(crate) has_bonds: AtomicBool,
    /// The one flow that every packet meets, which does nothing but `NORMAL`.
    pub(crate) only_normal: ArcSwapOption<OnlyFlow>,
    /// Forwards packets for `NORMAL`, and all packets in standalone mode.
    pub(crate) learning: Learning,
    /// Takes packets that `sample` actions choose.
    pub(crate) sampler: ArcSwapOption<Box<dyn Sampler>>,
    pub(crate) locals: PerThread<Local>,
    /// Wakes the logic's thread.
    pub(crate) bell: Doorbell<ThreadBell>,
}

/// State of one worker.
#[derive(Debug)]
pub(crate) struct Local {
    memory: Mutex<Memory>,
    /// Whether its worker alone counts in [`pipeline::state::EntryStats::add_alone`].
    alone: bool,
    pub(crate) upcalls: Upcalls,
    pub(crate) tally: Tally,
    /// Second of the last report of a packet that exceeds a limit; 0: none yet. Only its worker writes it.
    reported: AtomicU32,
}

/// Memory that is used again for every batch.
#[derive(Debug)]
struct Memory {
    worker: Worker,
    effects: Effects,
    fates: Vec<Fate>,
    /// Packets that go through the tables.
    packets: Vec<VersionId>,
    random: u64,
}

impl Local {
    /// `number`: the thread's; `seed`: of the worker's random numbers.
    pub(crate) fn new(number: usize, seed: u64) -> Self {
        let alone = number == 0;
        let memory = Memory {
            worker: if alone { Worker::alone() } else { Worker::new() },
            effects: Effects::default(),
            fates: Vec::new(),
            packets: Vec::new(),
            random: seed,
        };
        let (upcalls, tally, reported) = (Upcalls::new(), Tally::new(), AtomicU32::new(0));
        Self { memory: Mutex::new(memory), alone, upcalls, tally, reported }
    }

    /// Whether a packet that exceeds a limit may be reported in this second; if so, none may for a while.
    pub(crate) fn may_report(&self, now: u32) -> bool {
        let last = self.reported.load(Relaxed);
        let may = last == 0 || now.saturating_sub(last) >= REPORTS;
        if may {
            self.reported.store(now.max(1), Relaxed);
        }
        may
    }
}

/// Consecutive packets for one port, which are sent together.
struct Run {
    first: u16,
    end: u16,
    port: PortIndex,
}

impl Run {
    const NONE: Run = Run { first: u16::MAX, end: u16::MAX, port: PortIndex::NONE };

    #[inline]
    fn add(&mut self, batch: &mut Batch<'_>, v: VersionId, port: PortIndex) {
        let number = v.number() as u16;
        if number == self.end && port == self.port {
            self.end += 1;
            return;
        }
        self.send(batch);
        *self = Run { first: number, end: number + 1, port };
    }

    #[inline]
    fn send(&mut self, batch: &mut Batch<'_>) {
        let Run { first, end, port } = std::mem::replace(self, Run::NONE);
        batch.send_range(first, end, port);
    }
}

/// Drops all packets of a batch.
fn discard_all(batch: &mut Batch<'_>, reason: DropReason, mut each: impl FnMut()) {
    for v in batch.packets() {
        each();
        batch.discard(v, reason);
    }
}

impl Plane {
    /// Whether the learning bridge has all packets of a batch.
    pub(crate) fn learns_only(&self, batch: &Batch<'_>) -> bool {
        self.standalone.load(Relaxed) || batch.injection_mark() == NORMAL
    }

    /// Forwards a batch; `now`: nanoseconds on the switch's clock.
    pub(crate) fn forward(&self, batch: &mut Batch<'_>, now: u64) {
        if self.intercepts(batch) {
            return self.forward_others(batch, now);
        }
        self.decide(batch, now);
    }

    /// Decides for a batch of which the control plane takes nothing.
    #[inline]
    pub(crate) fn decide(&self, batch: &mut Batch<'_>, now: u64) {
        let learns_only = self.learns_only(batch);
        if learns_only && !self.has_bonds.load(Relaxed) {
            return self.learning.forward(batch);
        }
        let Some(local) = self.locals.get(batch.worker()) else {
            return discard_all(batch, DropReason::LogicFault, || {});
        };
        let memory = &mut *match local.memory.try_lock() {
            Ok(memory) => memory,
            Err(TryLockError::Poisoned(memory)) => memory.into_inner(),
            // Only its worker uses this memory.
            Err(TryLockError::WouldBlock) => return discard_all(batch, DropReason::LogicFault, || {}),
        };
        let ports = self.ports.load();
        if learns_only {
            return self.forward_bonded(local, &ports, batch);
        }
        let Some(mut executor) = self.executor(batch, local, &ports) else { return };
        let has_taken = executor.take_pdus(batch);
        let flags = self.flags.load(Relaxed);
        if let Some(only) = &*self.only_normal.load()
            && flags == 0
            && !ports.is_restricted()
            && batch.security().is_none()
            && !batch.is_explained()
        {
            count(only, local, batch, now);
            return self.learning.forward(batch);
        }
        self.compiled.with_views(|views| match views {
            Some(views) => {
                if has_taken || !memory.follow_all(views, &mut executor, batch, flags, now) {
                    memory.choose(batch, has_taken);
                    memory.run(views, &mut executor, batch, flags, now);
                }
            }
            None => {
                memory.choose(batch, has_taken);
                memory.hand_over(&mut executor, batch);
            }
        });
        self.finish(&executor, batch, |learning, left| learning.forward(left));
    }

    /// Forwards a batch without flows in a bridge with bonds.
    pub(crate) fn forward_bonded(&self, local: &Local, ports: &PortMap, batch: &mut Batch<'_>) {
        let number = ports.number(batch.ingress()).unwrap_or_default();
        let mut executor = Executor { plane: self, local, ports, number, normal: false, has_upcalls: false };
        executor.take_pdus(batch);
        for v in batch.packets() {
            if batch.is_open(v) {
                executor.normal(batch, v);
            }
        }
        if executor.has_upcalls {
            self.bell.ring();
        }
    }

    /// The executor of a batch's effects; `None` if the ingress port admits no packet: all have been dropped.
    pub(crate) fn executor<'a>(
        &'a self,
        batch: &mut Batch<'_>,
        local: &'a Local,
        ports: &'a PortMap,
    ) -> Option<Executor<'a>> {
        let ingress = batch.ingress();
        // A trace may be of a packet from no port.
        let is_nowhere = ingress == PortIndex::NONE && batch.is_rehearsal();
        let number = if is_nowhere { Some(PortNo::ANY.0) } else { ports.number(ingress) };
        let Some(number) = number else {
            discard_all(batch, DropReason::PortDown, || {});
            return None;
        };
        if !is_nowhere && !ports.receives(ingress) {
            let counts = !batch.is_rehearsal();
            discard_all(batch, DropReason::Logic, || {
                if counts {
                    local.tally.drop_other(Other::PortConfiguration);
                }
            });
            return None;
        }
        Some(Executor { plane: self, local, ports, number, normal: false, has_upcalls: false })
    }

    /// Passes packets for `NORMAL` to the learning bridge, and wakes the thread for upcalls.
    pub(crate) fn finish(
        &self,
        executor: &Executor<'_>,
        batch: &mut Batch<'_>,
        learn: impl FnOnce(&Learning, &mut Batch<'_>),
    ) {
        if executor.normal {
            let mut rest = Rest::default();
            // `rest` notes the outputs so far.
            if let Some(mut left) = batch.rest(&mut rest) {
                learn(&self.learning, &mut left);
            }
            batch.end_of_stages(rest);
        }
        if executor.has_upcalls {
            self.bell.ring();
        }
    }
}

/// Counts a batch's packets for the flow that all of them meet.
fn count(only: &OnlyFlow, local: &Local, batch: &Batch<'_>, now: u64) {
    let (mut packets, mut bytes) = (0, 0);
    for v in batch.packets() {
        packets += 1;
        bytes += u64::from(batch.len(v));
    }
    let stats = &only.flow.stats;
    match local.alone {
        true => stats.add_alone(packets, bytes),
        false => stats.add(packets, bytes),
    }
    stats.last_hit.store(now, Relaxed);
    only.lookups.lookups.fetch_add(packets, Relaxed);
    only.lookups.hits.fetch_add(packets, Relaxed);
}

impl Memory {
    /// Collects the admitted packets, but for those that have been taken, and pulls the headers that the parser needs.
    fn choose(&mut self, batch: &mut Batch<'_>, has_taken: bool) {
        self.packets.clear();
        let security = batch.security();
        for v in batch.packets() {
            if has_taken && !batch.is_open(v) {
                continue;
            }
            if security.is_some_and(|security| !logic::admits(security, batch, v)) {
                continue;
            }
            let front = batch.header(v);
            if front.len() < batch.len(v) as usize && needs_more(front) {
                batch.pull(v, WINDOW);
            }
            self.packets.push(v);
        }
    }

    /// Sends a batch to the port that all packets of its ingress port leave to, if there is one.
    fn follow_all(
        &mut self,
        views: &Views,
        executor: &mut Executor<'_>,
        batch: &mut Batch<'_>,
        flags: u64,
        now: u64,
    ) -> bool {
        if batch.is_explained() || batch.security().is_some() {
            return false;
        }
        let size = || {
            let lens = batch.packets().map(|v| u64::from(batch.len(v)));
            lens.fold((0, 0), |(packets, bytes), len| (packets + 1, bytes + len))
        };
        let leaves = self.worker.follow_all(&views.load(), (executor.number, flags), size, now);
        if let Some(leaves) = leaves {
            executor.leave_all(batch, leaves.port);
        }
        leaves.is_some()
    }

    /// Runs the tables' code and executes its effects.
    fn run(
        &mut self,
        views: &Views,
        executor: &mut Executor<'_>,
        batch: &mut Batch<'_>,
        flags: u64,
        now: u64,
    ) {
        let Self { worker, effects, fates, packets, random } = self;
        effects.clear();
        fates.clear();
        {
            let (view, ports, number) = (views.load(), executor.ports, executor.number);
            let batch: &Batch<'_> = batch;
            let is_live = |number: u32| ports.is_live(number, batch);
            let mut surroundings = Surroundings { now, random, is_live: &is_live };
            let received = packets.iter().map(|v| Received {
                len: batch.len(*v),
                time: now,
                flags,
                ..Received::whole(batch.header(*v), number)
            });
            worker.run_batch(&view, &mut surroundings, received, effects, fates);
        }
        let (mut run, mut begin) = (Run::NONE, 0);
        let explained = batch.is_explained();
        for (v, fate) in packets.iter().zip(fates.iter()) {
            let list = match *fate {
                Fate::Leaves(_) => &[][..],
                Fate::Effects(end) => {
                    let list = effects.list().get(begin..end).unwrap_or_default();
                    begin = end;
                    list
                }
            };
            let plain = match (*fate, list) {
                _ if explained => None,
                (Fate::Leaves(leaves), _) => executor.plain_port(batch, leaves.port),
                (_, [effect]) => executor.plain(batch, *v, &EffectRef::of_code(effect, effects)),
                _ => None,
            };
            if let Some(port) = plain {
                run.add(batch, *v, port);
                continue;
            }
            run.send(batch);
            match *fate {
                Fate::Leaves(leaves) => {
                    let leaves = EffectRef::leaves(leaves.port, batch.len(*v));
                    executor.execute(batch, *v, std::iter::once(leaves));
                }
                Fate::Effects(_) => {
                    let list = list.iter().map(|effect| EffectRef::of_code(effect, effects));
                    executor.execute(batch, *v, list);
                }
            }
        }
        run.send(batch);
    }

    /// Hands the packets to the thread, which lets the interpreter run them.
    fn hand_over(&mut self, executor: &mut Executor<'_>, batch: &mut Batch<'_>) {
        for v in &self.packets {
            bump(&executor.local.tally.interpreted);
            executor.upcall(batch, *v, None, &[], || Purpose::Run);
        }
    }
}

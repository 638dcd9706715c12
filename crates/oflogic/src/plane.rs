//! Packets through the tables: for workers.
//!
//! A batch meets one map of ports and one view of the tables, loaded at its start. Nothing here allocates once a
//! worker's memory has grown, nothing waits: the locks are those of a worker's own memory, which only it takes.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, TryLockError};

use arc_swap::cache::Cache;
use arc_swap::{ArcSwap, ArcSwapOption};
use codegen::{Effects, Fate, View, Views, Worker};
use fabric::doorbell::{Doorbell, ThreadBell};
use fabric::worker::PerThread;
use fabric::{Batch, DropReason, PortIndex, Rest, SwitchLogic, VersionId};
use logic::Learning;
use match_action::{Compiled, Run, WINDOW};
use ofagent::SharedSwitch;
use ofswitch::{OnlyFlow, Surroundings};
use openflow::PortNo;
use pipeline::interp::Received;

use crate::effect::EffectRef;
use crate::execute::Executor;
use crate::headers::needs_more;
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
    pub(crate) ports: Arc<ArcSwap<PortMap>>,
    pub(crate) compiled: Arc<Compiled>,
    /// Flags of all received packets.
    pub(crate) flags: AtomicU64,
    pub(crate) standalone: AtomicBool,
    /// Whether the control plane takes frames from some port ([`crate::intercept`]), or there is a spanning tree.
    pub(crate) intercepts: AtomicBool,
    /// [`PortMap::restricts_all`]: standalone bridges look at nothing else.
    pub(crate) restricts_all: AtomicBool,
    /// The one flow that every packet meets, which does nothing but `NORMAL`.
    pub(crate) only_normal: Arc<ArcSwapOption<OnlyFlow>>,
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
    own: Mutex<Own>,
    /// Whether its worker alone counts in [`pipeline::state::EntryStats::add_alone`].
    alone: bool,
    pub(crate) upcalls: Upcalls,
    pub(crate) tally: Tally,
    /// Second of the last report of a packet that exceeds a limit; 0: none yet. Only its worker writes it.
    reported: AtomicU32,
}

/// What only its worker uses.
#[derive(Debug)]
struct Own {
    seen: Seen,
    memory: Memory,
}

/// What the control side has published, as the worker saw it last: whether there is something new it sees without a
/// locked instruction, of which a load of the original takes two.
#[derive(Debug)]
struct Seen {
    ports: Cache<Arc<ArcSwap<PortMap>>, Arc<PortMap>>,
    only_normal: Cache<Arc<ArcSwapOption<OnlyFlow>>, Option<Arc<OnlyFlow>>>,
    views: Cache<Arc<ArcSwapOption<Views>>, Option<Arc<Views>>>,
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
    pub(crate) fn new(plane: &Plane, number: usize, seed: u64) -> Self {
        let alone = number == 0;
        let memory = Memory {
            worker: if alone { Worker::alone() } else { Worker::new() },
            effects: Effects::default(),
            fates: Vec::new(),
            packets: Vec::new(),
            random: seed,
        };
        let seen = Seen {
            ports: Cache::new(plane.ports.clone()),
            only_normal: Cache::new(plane.only_normal.clone()),
            views: Cache::new(plane.compiled.views().clone()),
        };
        let (upcalls, tally, reported) = (Upcalls::default(), Tally::new(), AtomicU32::new(0));
        Self { own: Mutex::new(Own { seen, memory }), alone, upcalls, tally, reported }
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

    /// Forwards a batch of this switch.
    pub(crate) fn forward(&self, batch: &mut Batch<'_>, switch: &SharedSwitch) {
        if self.intercepts(batch) {
            return self.forward_others(batch, switch);
        }
        self.decide(batch, switch);
    }

    /// Decides for a batch of which the control plane takes nothing.
    #[inline]
    pub(crate) fn decide(&self, batch: &mut Batch<'_>, switch: &SharedSwitch) {
        let learns_only = self.learns_only(batch);
        if learns_only && !self.restricts_all.load(Relaxed) {
            return self.learning.forward(batch);
        }
        self.run(batch, switch, learns_only, false);
    }

    /// Learns addresses from a batch as its flows want it, and forwards nothing: for ports that are about to forward in
    /// a spanning tree.
    #[cold]
    pub(crate) fn learn(&self, batch: &mut Batch<'_>, switch: &SharedSwitch) {
        self.run(batch, switch, self.learns_only(batch), true);
    }

    /// Has the tables, or with `learns_only` the learning bridge, decide for a batch. `is_mute`: nothing is
    /// forwarded.
    #[inline]
    fn run(&self, batch: &mut Batch<'_>, switch: &SharedSwitch, learns_only: bool, is_mute: bool) {
        let Some(local) = self.locals.get(batch.worker()) else {
            return discard_all(batch, DropReason::LogicFault, || {});
        };
        let Own { seen, memory } = &mut *match local.own.try_lock() {
            Ok(own) => own,
            Err(TryLockError::Poisoned(own)) => own.into_inner(),
            // Only its worker uses it.
            Err(TryLockError::WouldBlock) => return discard_all(batch, DropReason::LogicFault, || {}),
        };
        let ports = seen.ports.load();
        if learns_only {
            return self.forward_each(local, ports, batch, is_mute);
        }
        let Some(mut executor) = self.executor(batch, local, ports) else { return };
        executor.is_mute = is_mute;
        let has_taken = executor.take_pdus(batch);
        let flags = self.flags.load(Relaxed);
        if let Some(only) = seen.only_normal.load()
            && flags == 0
            && !ports.is_restricted()
            && batch.security().is_none()
            && !batch.is_explained()
            && !is_mute
        {
            count(only, local, batch, switch.time_at(batch.coarse_now_ns()));
            return self.learning.forward(batch);
        }
        match seen.views.load() {
            Some(views) => {
                let (view, now) = (&views.load(), switch.now());
                let follows = !has_taken && is_plain(batch, &executor);
                if !follows || !memory.follow_all(view, &mut executor, batch, flags, now) {
                    let followed = match follows {
                        true => memory.follow_each(view, &mut executor, batch, flags, now),
                        false => 0,
                    };
                    memory.choose(batch, has_taken, followed);
                    if !memory.packets.is_empty() {
                        memory.run(view, &mut executor, batch, flags, now);
                    }
                }
            }
            None => {
                memory.choose(batch, has_taken, 0);
                memory.hand_over(&mut executor, batch);
            }
        }
        self.finish(&executor, batch, |learning, left| learning.forward(left));
    }

    /// Forwards a batch without flows in a bridge with bonds or blocked ports. `is_mute`: nothing is forwarded.
    pub(crate) fn forward_each(&self, local: &Local, ports: &PortMap, batch: &mut Batch<'_>, is_mute: bool) {
        let number = ports.number(batch.ingress()).unwrap_or_default();
        let mut executor = Executor::new(self, local, ports, number);
        executor.is_mute = is_mute;
        executor.take_pdus(batch);
        for v in batch.packets() {
            if !batch.is_open(v) {
                continue;
            }
            match is_mute {
                true => executor.learn(batch, v),
                false => executor.normal(batch, v),
            }
        }
        if is_mute {
            executor.close(batch);
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
        Some(Executor::new(self, local, ports, number))
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

/// Counts a batch's packets for the flow that all of them meet; `now`: nanoseconds on the switch's clock.
fn count(only: &OnlyFlow, local: &Local, batch: &Batch<'_>, now: u64) {
    let (packets, bytes) = batch.received();
    let stats = &only.flow.stats;
    if local.alone {
        stats.add_alone(packets, bytes);
        only.lookups.add_alone(packets, packets);
    } else {
        stats.add(packets, bytes);
        only.lookups.add(packets, packets);
    }
    stats.last_hit.store(now, Relaxed);
}

/// Whether all packets of a batch may go where their flows' ways lead them.
fn is_plain(batch: &Batch<'_>, executor: &Executor<'_>) -> bool {
    !batch.is_explained() && batch.security().is_none() && !executor.is_mute
}

impl Memory {
    /// Collects the admitted packets behind the first ones, but for those that have been taken, and pulls the headers that
    /// the parser needs.
    fn choose(&mut self, batch: &mut Batch<'_>, has_taken: bool, first: usize) {
        self.packets.clear();
        let security = batch.security();
        for v in batch.packets().skip(first) {
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
        view: &View,
        executor: &mut Executor<'_>,
        batch: &mut Batch<'_>,
        flags: u64,
        now: u64,
    ) -> bool {
        let leaves = self.worker.follow_all(view, (executor.number, flags), || batch.received(), now);
        if let Some(leaves) = leaves {
            executor.leave_all(batch, leaves.port);
        }
        leaves.is_some()
    }

    /// Sends the first packets of a batch where remembered ways lead them; returns their number.
    fn follow_each(
        &mut self,
        view: &View,
        executor: &mut Executor<'_>,
        batch: &mut Batch<'_>,
        flags: u64,
        now: u64,
    ) -> usize {
        let (mut run, mut left, mut followed) = (Run::NONE, batch.packets(), 0);
        loop {
            let packets = left.clone().map(|v| (batch.header(v), batch.len(v)));
            let Some(found) = self.worker.find_ways(view, (executor.number, flags), packets) else { break };
            followed += found.len();
            found.follow(now, |leaves| {
                if let Some(v) = left.next() {
                    executor.leave(batch, v, leaves.port, &mut run);
                }
            });
        }
        run.send(batch);
        followed
    }

    /// Runs the tables' code and executes its effects.
    fn run(&mut self, view: &View, executor: &mut Executor<'_>, batch: &mut Batch<'_>, flags: u64, now: u64) {
        let Self { worker, effects, fates, packets, random } = self;
        effects.clear();
        fates.clear();
        {
            let (ports, number) = (executor.ports, executor.number);
            let batch: &Batch<'_> = batch;
            let is_live = |number: u32| ports.is_live(number, batch);
            let mut surroundings = Surroundings { now, random, is_live: &is_live };
            let received = packets.iter().map(|v| Received {
                len: batch.len(*v),
                time: now,
                flags,
                ..Received::whole(batch.header(*v), number)
            });
            worker.run_batch(view, &mut surroundings, received, effects, fates);
        }
        let (mut run, mut begin) = (Run::NONE, 0);
        let is_plain = !batch.is_explained() && !executor.is_mute;
        for (v, fate) in packets.iter().zip(fates.iter()) {
            let list = match *fate {
                Fate::Leaves(leaves) if is_plain => {
                    executor.leave(batch, *v, leaves.port, &mut run);
                    continue;
                }
                Fate::Leaves(leaves) => {
                    let leaves = EffectRef::leaves(leaves.port, batch.len(*v));
                    executor.execute(batch, *v, std::iter::once(leaves));
                    continue;
                }
                Fate::Effects(end) => effects.list().get(begin..end).unwrap_or_default(),
            };
            begin += list.len();
            if is_plain
                && let [effect] = list
                && executor.sends(batch, *v, &EffectRef::of_code(effect, effects), &mut run)
            {
                continue;
            }
            run.send(batch);
            executor.execute(batch, *v, list.iter().map(|effect| EffectRef::of_code(effect, effects)));
        }
        run.send(batch);
    }

    /// Hands the packets to the thread, which lets the interpreter run them.
    fn hand_over(&mut self, executor: &mut Executor<'_>, batch: &mut Batch<'_>) {
        if executor.is_mute {
            // The interpreter would forward them.
            return executor.close(batch);
        }
        for v in &self.packets {
            bump(&executor.local.tally.interpreted);
            executor.upcall(batch, *v, None, &[], || Purpose::Run);
        }
    }
}

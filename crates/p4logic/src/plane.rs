//! Packets through the program: for workers.
//!
//! A batch meets one map of ports, one program and one view of its tables, loaded at its start. Nothing here allocates
//! once a worker's memory has grown, nothing waits: the locks are those of a worker's own memory, which only it takes.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, TryLockError};

use arc_swap::cache::Cache;
use arc_swap::{ArcSwap, ArcSwapOption};
use codegen::{Effects, Fate, Views, Worker};
use fabric::doorbell::{Doorbell, ThreadBell};
use fabric::worker::PerThread;
use fabric::{Batch, DropReason, PortIndex, VersionId};
use match_action::{Form, Run};
use pipeline::interp::Received;

use crate::effect::EffectRef;
use crate::execute::Executor;
use crate::ports::PortMap;
use crate::running::Running;
use crate::surroundings::{Queues, Surroundings};
use crate::tally::{Lost, Tally, bump};
use crate::upcalls::{Purpose, Upcalls};

/// The data path of a bridge.
pub(crate) struct Plane {
    pub(crate) ports: Arc<ArcSwap<PortMap>>,
    /// The program.
    pub(crate) running: Arc<ArcSwapOption<Running>>,
    pub(crate) locals: PerThread<Local>,
    /// Wakes the logic's thread.
    pub(crate) bell: Doorbell<ThreadBell>,
}

/// State of one worker.
#[derive(Debug)]
pub(crate) struct Local {
    own: Mutex<Own>,
    pub(crate) upcalls: Upcalls,
    pub(crate) tally: Tally,
}

/// What only its worker uses.
#[derive(Debug)]
struct Own {
    ports: Cache<Arc<ArcSwap<PortMap>>, Arc<PortMap>>,
    running: Cache<Arc<ArcSwapOption<Running>>, Option<Arc<Running>>>,
    views: SeenViews,
    memory: Memory,
}

/// Where views of the program that the worker saw last come from.
#[derive(Debug, Default)]
struct SeenViews {
    program: u64,
    views: Option<CachedViews>,
}

type CachedViews = Cache<Arc<ArcSwapOption<Views>>, Option<Arc<Views>>>;

impl SeenViews {
    /// Where a program's current view comes from; `None`: there is no code for it.
    #[inline]
    fn of(&mut self, running: &Running) -> Option<&Views> {
        if self.program != running.number {
            self.program = running.number;
            self.views = Some(Cache::new(running.compiled.views().clone()));
        }
        self.views.as_mut().and_then(|views| views.load().as_deref())
    }
}

/// Memory that is used again for every batch.
#[derive(Debug)]
struct Memory {
    worker: Worker,
    effects: Effects,
    fates: Vec<Fate>,
    /// Packets that go through the program.
    packets: Vec<VersionId>,
    /// Packets that go through it again, in plain versions.
    again: Vec<VersionId>,
    front: Vec<u8>,
    /// Depths of queues that the batch has asked for.
    depths: Vec<(u32, u32)>,
    random: u64,
}

impl Local {
    /// `number`: the thread's; `seed`: of the worker's random numbers.
    pub(crate) fn new(plane: &Plane, number: usize, seed: u64) -> Self {
        let memory = Memory {
            worker: if number == 0 { Worker::alone() } else { Worker::new() },
            effects: Effects::default(),
            fates: Vec::new(),
            packets: Vec::new(),
            again: Vec::new(),
            front: Vec::new(),
            depths: Vec::new(),
            random: seed,
        };
        let own = Own {
            ports: Cache::new(plane.ports.clone()),
            running: Cache::new(plane.running.clone()),
            views: SeenViews::default(),
            memory,
        };
        Self { own: Mutex::new(own), upcalls: Upcalls::default(), tally: Tally::default() }
    }
}

/// Drops all packets of a batch.
pub(crate) fn discard_all(batch: &mut Batch<'_>, reason: DropReason, mut each: impl FnMut()) {
    for v in batch.packets() {
        each();
        batch.discard(v, reason);
    }
}

impl Plane {
    /// Takes a batch through the program.
    pub(crate) fn forward(&self, batch: &mut Batch<'_>) {
        let Some(local) = self.locals.get(batch.worker()) else {
            return discard_all(batch, DropReason::LogicFault, || {});
        };
        let Own { ports, running, views, memory } = &mut *match local.own.try_lock() {
            Ok(own) => own,
            Err(TryLockError::Poisoned(own)) => own.into_inner(),
            // Only its worker uses it.
            Err(TryLockError::WouldBlock) => return discard_all(batch, DropReason::LogicFault, || {}),
        };
        let (ports, running) = (ports.load(), running.load().as_deref());
        let Some(mut executor) = self.executor(batch, local, ports, running) else { return };
        match views.of(executor.running) {
            Some(views) => {
                match batch.has_notes() {
                    true => memory.choose::<true>(batch, &mut executor),
                    false => memory.choose::<false>(batch, &mut executor),
                }
                memory.run(views, &mut executor, batch, true);
                if !memory.again.is_empty() {
                    memory.run_again(views, &mut executor, batch);
                }
            }
            None => memory.hand_over(&mut executor, batch),
        }
        if executor.has_upcalls {
            self.bell.ring();
        }
    }

    /// The executor of a batch's effects; `None` if there is no program or port for it: all packets have been dropped.
    pub(crate) fn executor<'a>(
        &self,
        batch: &mut Batch<'_>,
        local: &'a Local,
        ports: &'a PortMap,
        running: Option<&'a Running>,
    ) -> Option<Executor<'a>> {
        let Some(running) = running else {
            let counts = !batch.is_rehearsal();
            discard_all(batch, DropReason::Logic, || {
                if counts {
                    local.tally.lose(Lost::NoProgram);
                }
            });
            return None;
        };
        let ingress = batch.ingress();
        // Controllers' packets come from no port.
        let number = if ingress == PortIndex::NONE { Some(running.cpu_port) } else { ports.number(ingress) };
        let Some(number) = number else {
            discard_all(batch, DropReason::PortDown, || {});
            return None;
        };
        Some(Executor { local, ports, running, number, has_upcalls: false })
    }
}

/// Brings as many bytes of a packet as the program may read to where it can read them.
#[inline]
pub(crate) fn pull(batch: &mut Batch<'_>, v: VersionId, running: &Running) {
    let front = batch.header(v).len();
    if front < running.window && front < batch.len(v) as usize {
        batch.pull(v, running.window);
    }
}

impl Memory {
    /// Collects the admitted packets, and pulls what the program may read of them. With `NOTES`, XDP may have finished some:
    /// they leave.
    fn choose<const NOTES: bool>(&mut self, batch: &mut Batch<'_>, executor: &mut Executor<'_>) {
        self.packets.clear();
        self.again.clear();
        self.depths.clear();
        let security = batch.security();
        let wants_plain = executor.running.wants_plain.load(Relaxed);
        for v in batch.packets() {
            if NOTES && executor.finish(batch, v) {
                continue;
            }
            if security.is_some_and(|security| !logic::admits(security, batch, v)) {
                continue;
            }
            if wants_plain && !batch.offload(v).is_none() {
                self.again.push(v);
                continue;
            }
            pull(batch, v, executor.running);
            self.packets.push(v);
        }
    }

    /// Runs the program's code on the chosen packets and executes its effects. Packets whose offloads do not fit what it
    /// makes of them are left for [`Memory::run_again`]. `are_received`: the packets are received ones, not versions of
    /// such.
    fn run(&mut self, views: &Views, executor: &mut Executor<'_>, batch: &mut Batch<'_>, are_received: bool) {
        let Self { worker, effects, fates, packets, again, front, depths, random } = self;
        effects.clear();
        fates.clear();
        {
            let (view, ports, running) = (views.load(), executor.ports, executor.running);
            let now = if running.reads_time { batch.now_ns() } else { batch.coarse_now_ns() };
            let batch: &Batch<'_> = batch;
            let is_live = |number: u32| is_live(ports, running, batch, number);
            let depth = |number: u32| ports.index(number).map(|index| batch.depth(index));
            let queues = running.reads_depth.then_some(Queues { depth: &depth, known: depths });
            let functions = running.functions.as_deref();
            let mut surroundings = Surroundings { now, random, is_live: &is_live, functions, queues };
            let number = executor.number;
            let received = packets.iter().map(|v| Received {
                len: batch.len(*v),
                time: now,
                ..Received::whole(batch.header(*v), number)
            });
            worker.run_batch(&view, &mut surroundings, received, effects, fates);
        }
        let (mut run, mut begin) = (Run::NONE, 0);
        // Received packets are sent in runs.
        let is_plain = are_received && !batch.is_explained();
        for (v, fate) in packets.iter().zip(fates.iter()) {
            let list = match *fate {
                Fate::Leaves(_) => &[][..],
                Fate::Effects(end) => {
                    let list = effects.list().get(begin..end).unwrap_or_default();
                    begin = end;
                    list
                }
            };
            let is_sent = match (*fate, list) {
                _ if !is_plain => false,
                (Fate::Leaves(leaves), _) => {
                    let port = executor.plain_port(batch, leaves.port);
                    port.into_iter().for_each(|port| run.add(batch, *v, port));
                    port.is_some()
                }
                (_, [effect]) => executor.sends(batch, *v, &EffectRef::of_code(effect, effects), &mut run),
                _ => false,
            };
            if is_sent {
                continue;
            }
            run.send(batch);
            match *fate {
                Fate::Leaves(leaves) => {
                    let leaves = EffectRef::leaves(leaves, batch.len(*v));
                    executor.execute(batch, *v, std::iter::once(leaves));
                }
                Fate::Effects(_) => {
                    let list = list.iter().map(|effect| EffectRef::of_code(effect, effects));
                    match executor.describes(batch, *v, list.clone(), front) {
                        true => executor.execute(batch, *v, list),
                        false => again.push(*v),
                    }
                }
            }
        }
        run.send(batch);
    }

    /// Runs the program on the plain versions of packets that are to go through it in these.
    #[cold]
    fn run_again(&mut self, views: &Views, executor: &mut Executor<'_>, batch: &mut Batch<'_>) {
        executor.running.wants_plain.store(true, Relaxed);
        self.packets.clear();
        for v in std::mem::take(&mut self.again) {
            let Some(versions) = batch.make_plain(v) else { continue };
            for version in versions {
                pull(batch, version, executor.running);
                self.packets.push(version);
            }
        }
        self.run(views, executor, batch, false);
    }

    /// Hands the packets to the thread, which lets the interpreter run them.
    fn hand_over(&mut self, executor: &mut Executor<'_>, batch: &mut Batch<'_>) {
        let security = batch.security();
        for v in batch.packets() {
            if executor.finish(batch, v) {
                continue;
            }
            if security.is_some_and(|security| !logic::admits(security, batch, v)) {
                continue;
            }
            bump(&executor.local.tally.interpreted);
            let Some(plain) = batch.make_plain(v) else { continue };
            for version in plain {
                let whole = Form { head: &[], from: 0, to: batch.len(version) };
                executor.upcall(batch, version, &whole, Purpose::Run(executor.number));
            }
        }
    }
}

/// Whether a port can send.
pub(crate) fn is_live(ports: &PortMap, running: &Running, batch: &Batch<'_>, number: u32) -> bool {
    number == running.cpu_port || ports.index(number).is_some_and(|index| batch.reaches(index))
}

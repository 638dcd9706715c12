//! The switching threads and their helpers: shared state, start and end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Builder;

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::bridge::quiescence::Reclaim;
use crate::deliver::client::Clients;
use crate::rx::BatchLimits;
use crate::vital::Vital;
use crate::wake::doorbell::{Doorbell, ThreadBell};
use crate::wake::muted::MutedClients;
use crate::worker::aside::Aside;
use crate::worker::handle::{Commands, ThreadExit};
use crate::worker::janitor::Janitor;
use crate::worker::overrun::Overruns;
use crate::worker::per_thread::{MAX_WORKERS, STAND_INS};
use crate::worker::probe::Probers;
use crate::worker::run::{End, Runner, bring_back};
use crate::worker::state::WorkerState;
use crate::worker::tasks::Context;
use crate::worker::thread_info::ThreadInfo;
use crate::worker::watchdog::Watchdog;

/// Called at intervals while a worker is awake, on the watchdog's thread: it must return at once.
pub type LoadListener = Box<dyn Fn() + Send + Sync>;

/// State that all switching threads share; it outlives them.
pub(crate) struct ThreadGroup {
    pub(crate) reclaim: Arc<Reclaim>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) muted: Arc<MutedClients>,
    /// Rung by threads that wake.
    pub(crate) doorbell: Arc<Doorbell<ThreadBell>>,
    pub(crate) stopped: AtomicBool,
    pub(crate) overruns: Overruns,
    load_listener: OnceLock<LoadListener>,
    /// CPUs for workers that are not pinned: those on which the switch was started.
    pub(crate) unpinned: CpuSet,
    /// Where the watchdog runs.
    pub(crate) aside: Aside,
    /// Commands of worker 0, which ends last.
    pub(crate) first_worker: OnceLock<Arc<Commands>>,
    /// Number of workers.
    workers: AtomicUsize,
    /// Threads that the watchdog does not watch yet.
    unwatched: Mutex<Vec<Arc<ThreadInfo>>>,
    /// Stand-ins without a worker, by position.
    idle: Mutex<Vec<usize>>,
}

impl ThreadGroup {
    pub(crate) fn new(reclaim: Arc<Reclaim>) -> Arc<Self> {
        let idle = Mutex::new(Vec::with_capacity(STAND_INS));
        let (clients, muted, doorbell, stopped, overruns) = Default::default();
        let (load_listener, first_worker, workers, unwatched) = Default::default();
        let unpinned = sched_getaffinity(None).unwrap_or_else(|_| all_cpus());
        Arc::new(Self {
            reclaim,
            clients,
            muted,
            doorbell,
            stopped,
            overruns,
            load_listener,
            unpinned,
            aside: Aside::new(unpinned),
            first_worker,
            workers,
            unwatched,
            idle,
        })
    }

    /// A thread of the group, described by `info`.
    pub(crate) fn runner(
        self: &Arc<Self>,
        info: Arc<ThreadInfo>,
        limits: BatchLimits,
        who: String,
    ) -> std::io::Result<Runner> {
        let context = Context::new(&info, self.muted.clone(), self.clients.clone(), limits)?;
        let (reclaim, watchdog) = (self.reclaim.clone(), self.doorbell.clone());
        let vital = Vital::new(who, "the control plane would wait for it forever");
        Ok(Runner { info, context, reclaim, watchdog, vital })
    }

    /// The workers are these now, pinned to these CPUs; `None`: not pinned.
    pub(crate) fn workers_are(&self, cpus: impl ExactSizeIterator<Item = Option<usize>>) {
        self.workers.store(cpus.len(), Relaxed);
        self.aside.keep_from(cpus.flatten());
    }

    /// Sets the listener that is called at intervals while a worker is awake; only the first call has an effect.
    pub(crate) fn on_load(&self, listener: LoadListener) {
        let _ = self.load_listener.set(listener);
    }

    /// Calls the listener, if there are workers between which queues can move.
    pub(crate) fn tell_load(&self) {
        if let Some(listener) = self.load_listener.get()
            && self.workers.load(Relaxed) > 1
        {
            listener();
        }
    }

    /// Has the watchdog watch a thread from before it wakes on, in place of an earlier one with its number.
    pub(crate) fn watch(&self, info: Arc<ThreadInfo>) {
        self.unwatched().push(info);
    }

    /// Threads to watch since the last call.
    pub(crate) fn newly_watched(&self) -> Vec<Arc<ThreadInfo>> {
        std::mem::take(&mut *self.unwatched())
    }

    fn unwatched(&self) -> MutexGuard<'_, Vec<Arc<ThreadInfo>>> {
        self.unwatched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn idle(&self) -> MutexGuard<'_, Vec<usize>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn all_cpus() -> CpuSet {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    all
}

/// Threads beside the workers' own: stand-ins, the watchdog and its helpers.
pub(crate) struct SupportThreads {
    group: Arc<ThreadGroup>,
    threads: Vec<ThreadExit>,
}

impl SupportThreads {
    /// Starts them.
    pub(crate) fn start(group: &Arc<ThreadGroup>, limits: BatchLimits) -> std::io::Result<Self> {
        let (mut threads, mut inboxes) = (Vec::new(), Vec::new());
        for place in 0..STAND_INS {
            let (inbox, states) = sync_channel(1);
            let info = ThreadInfo::new(MAX_WORKERS + place);
            group.watch(info.clone());
            let runner = group.runner(info, limits, format!("stand-in {place}"))?;
            let group = group.clone();
            threads
                .push(spawn(&format!("mswitch-s{place}"), move || stand_in(&group, place, runner, &states))?);
            inboxes.push(inbox);
        }
        let (janitor, thread) = Janitor::start()?;
        threads.push(thread);
        let (probers, probing) = Probers::start()?;
        threads.extend(probing);
        let mut watchdog = Watchdog::new(group.clone(), inboxes, janitor, probers);
        threads.push(spawn("mswitch-watch", move || {
            let vital = Vital::new("the watchdog", "clients could hold workers up forever");
            let _guard = vital.guard();
            watchdog.run();
        })?);
        Ok(Self { group: group.clone(), threads })
    }
}

impl Drop for SupportThreads {
    fn drop(&mut self) {
        self.group.stopped.store(true, Relaxed);
        self.group.doorbell.ring();
        // When the watchdog ends, the inboxes and job queues close, which ends the other threads.
        let deadline = ThreadExit::soon();
        self.threads.iter().rev().for_each(|thread| thread.wait(deadline));
    }
}

/// Spawns a thread.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<ThreadExit> {
    let (ends, ended) = sync_channel(1);
    Builder::new().name(name.to_owned()).spawn(move || {
        let _ends: SyncSender<()> = ends;
        body();
    })?;
    Ok(ThreadExit::new(ended))
}

/// Body of a stand-in thread.
fn stand_in(group: &ThreadGroup, place: usize, mut runner: Runner, states: &Receiver<Box<WorkerState>>) {
    runner.info.occupy();
    loop {
        group.idle().push(place);
        let Ok(state) = states.recv() else { return };
        let commands = state.commands.clone();
        if let End::Relieved(left) = runner.serve(state) {
            bring_back(&commands, left);
        }
    }
}

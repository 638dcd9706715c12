//! The switching threads and their helpers: shared state, start and end.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Builder;

use crate::bridge::quiescence::Reclaim;
use crate::deliver::client::Clients;
use crate::rx::BatchLimits;
use crate::vital::Vital;
use crate::wake::doorbell::{Doorbell, ThreadBell};
use crate::wake::muted::MutedClients;
use crate::worker::handle::ThreadExit;
use crate::worker::janitor::Janitor;
use crate::worker::overrun::Overruns;
use crate::worker::probe::Probers;
use crate::worker::run::{End, Runner, bring_back};
use crate::worker::state::WorkerState;
use crate::worker::tasks::Context;
use crate::worker::thread_info::ThreadInfo;
use crate::worker::watchdog::Watchdog;

/// Called at intervals while a worker is awake, on the watchdog's thread: it must return at once.
pub type LoadListener = Box<dyn Fn() + Send + Sync>;

/// Stand-in threads: as many clients can hold workers up at once without effect on others.
pub(crate) const STAND_INS: usize = 3;

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
    /// Stand-ins without a worker, by position.
    idle: Mutex<Vec<usize>>,
}

impl ThreadGroup {
    pub(crate) fn new(reclaim: Arc<Reclaim>) -> Arc<Self> {
        let idle = Mutex::new(Vec::with_capacity(STAND_INS));
        let (clients, muted, doorbell, stopped, overruns, load_listener) = Default::default();
        Arc::new(Self { reclaim, clients, muted, doorbell, stopped, overruns, load_listener, idle })
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

    /// Sets the listener that is called at intervals while a worker is awake; only the first call has an effect.
    pub(crate) fn on_load(&self, listener: LoadListener) {
        let _ = self.load_listener.set(listener);
    }

    /// Calls the listener.
    pub(crate) fn tell_load(&self) {
        if let Some(listener) = self.load_listener.get() {
            listener();
        }
    }

    pub(crate) fn idle(&self) -> MutexGuard<'_, Vec<usize>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads beside the workers' own: stand-ins, the watchdog and its helpers.
pub(crate) struct SupportThreads {
    group: Arc<ThreadGroup>,
    threads: Vec<ThreadExit>,
}

impl SupportThreads {
    /// Starts them. `infos` describes all workers' threads, then the stand-ins.
    pub(crate) fn start(
        group: &Arc<ThreadGroup>,
        infos: &[Arc<ThreadInfo>],
        limits: BatchLimits,
    ) -> std::io::Result<Self> {
        let (mut threads, mut inboxes) = (Vec::new(), Vec::new());
        let stand_ins = infos.get(infos.len().saturating_sub(STAND_INS)..).unwrap_or_default();
        for (place, info) in stand_ins.iter().enumerate() {
            let (inbox, states) = sync_channel(1);
            let runner = group.runner(info.clone(), limits, format!("stand-in {place}"))?;
            let group = group.clone();
            threads
                .push(spawn(&format!("mswitch-s{place}"), move || stand_in(&group, place, runner, &states))?);
            inboxes.push(inbox);
        }
        let (janitor, thread) = Janitor::start()?;
        threads.push(thread);
        let (probers, probing) = Probers::start()?;
        threads.extend(probing);
        let mut watchdog = Watchdog::new(group.clone(), infos.to_vec(), inboxes, janitor, probers);
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

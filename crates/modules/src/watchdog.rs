//! Module supervision: one thread, the clock, advances the epoch that interrupts modules running too long; another
//! one, the supervisor, restarts those that failed and writes their log.
//!
//! The clock ticks while modules run and sleeps when none has run for a while, so that an idle switch stays idle.
//!
//! Invariant: the clock runs no module's code. Making an instance runs some, which ends only because the clock ticks.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use fabric::doorbell::{Doorbell, ThreadBell};
use fabric::vital::Vital;

use crate::log;
use crate::module::Inner;

/// Time between two ticks.
const TICK: Duration = Duration::from_micros(250);
/// Time between two looks for failed instances whose back-off is over.
const RESTART_INTERVAL: Duration = Duration::from_millis(20);
/// Ticks without work after which the thread sleeps.
const IDLE: u32 = 40;

/// See the module.
pub(crate) struct Watchdog {
    /// A module ran since the last tick.
    ran: AtomicBool,
    /// Modules that run outside of workers.
    running: AtomicUsize,
    failed: AtomicBool,
    /// A module failed since the listener was called.
    unreported: AtomicBool,
    /// Rung for the clock: a module runs.
    clock: Doorbell<ThreadBell>,
    /// Rung for the supervisor: there is something to do.
    supervisor: Doorbell<ThreadBell>,
    /// Advances the modules' epoch.
    tick: OnceLock<fn()>,
    /// Called after failures.
    listener: OnceLock<Box<dyn Fn() + Send + Sync>>,
    logics: Mutex<Vec<Weak<Inner>>>,
}

static WATCHDOG: Watchdog = Watchdog {
    ran: AtomicBool::new(false),
    running: AtomicUsize::new(0),
    failed: AtomicBool::new(false),
    unreported: AtomicBool::new(false),
    clock: Doorbell::new(ThreadBell::new()),
    supervisor: Doorbell::new(ThreadBell::new()),
    tick: OnceLock::new(),
    listener: OnceLock::new(),
    logics: Mutex::new(Vec::new()),
};

/// Sets the function that each tick calls; only the first call has an effect.
#[cfg(feature = "wasm")]
pub(crate) fn on_tick(tick: fn()) {
    let _ = WATCHDOG.tick.set(tick);
}

/// Sets the function that is called after modules have failed, on a thread that is not a worker's; only the first call
/// has an effect. [`logic::Logic::faults`] has the faults.
pub fn on_fault(listener: Box<dyn Fn() + Send + Sync>) {
    let _ = WATCHDOG.listener.set(listener);
}

/// Starts both threads, once.
pub(crate) fn start() -> std::io::Result<()> {
    static STARTED: Mutex<[bool; 2]> = Mutex::new([false; 2]);
    let threads: [(_, fn(), _); 2] = [
        ("mswitch-clock", || WATCHDOG.keep_time(), "modules that run for ever would not be interrupted"),
        ("mswitch-modules", || WATCHDOG.supervise(), "modules that failed would not be restarted"),
    ];
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    for (started, (name, work, why)) in started.iter_mut().zip(threads) {
        if !*started {
            std::thread::Builder::new().name(name.into()).spawn(move || {
                let vital = Vital::new(name, why);
                let _guard = vital.guard();
                work();
            })?;
            *started = true;
        }
    }
    Ok(())
}

/// Adds a logic whose instances are supervised.
pub(crate) fn watch(logic: Weak<Inner>) {
    let mut logics = WATCHDOG.logics.lock().unwrap_or_else(PoisonError::into_inner);
    logics.retain(|logic| logic.strong_count() > 0);
    logics.push(logic);
}

/// Notes that a module that can be interrupted runs on a worker.
#[cfg(feature = "wasm")]
#[inline]
pub(crate) fn runs() {
    if !WATCHDOG.ran.load(Ordering::Relaxed) {
        WATCHDOG.ran.store(true, Ordering::SeqCst);
        WATCHDOG.clock.ring();
    }
}

/// Notes that a module failed on a worker.
#[cold]
pub(crate) fn failed() {
    WATCHDOG.failed.store(true, Ordering::SeqCst);
    WATCHDOG.unreported.store(true, Ordering::SeqCst);
    called();
}

/// Takes note of the threads whose batches keep them for too long: a module that one of them is in serves no other
/// batch until it returns. Returns at once.
pub fn overran(threads: &[usize]) {
    let logics: Vec<_> = {
        let logics = WATCHDOG.logics.lock().unwrap_or_else(PoisonError::into_inner);
        logics.iter().filter_map(Weak::upgrade).collect()
    };
    logics.iter().for_each(|logic| logic.overran(threads));
}

/// Wakes the supervisor.
pub(crate) fn called() {
    WATCHDOG.supervisor.ring();
}

/// Keeps the clock ticking while `work` runs a module outside of workers.
pub(crate) fn during<T>(work: impl FnOnce() -> T) -> T {
    WATCHDOG.running.fetch_add(1, Ordering::SeqCst);
    WATCHDOG.clock.ring();
    let done = work();
    WATCHDOG.running.fetch_sub(1, Ordering::SeqCst);
    done
}

impl Watchdog {
    /// Whether a module runs, or ran since this was asked last.
    fn runs(&self) -> bool {
        self.ran.swap(false, Ordering::SeqCst) || self.running.load(Ordering::SeqCst) > 0
    }

    fn keep_time(&self) {
        let mut idle = 0;
        loop {
            idle = if self.runs() { 0 } else { idle + 1 };
            if idle > IDLE {
                idle = 0;
                self.clock.wait_for(|| self.runs().then_some(()));
            }
            std::thread::sleep(TICK);
            if let Some(tick) = self.tick.get() {
                tick();
            }
        }
    }

    /// Writes the modules' log, and restarts failed instances whose back-off is over.
    fn supervise(&self) {
        loop {
            self.supervisor.wait();
            log::write();
            if self.unreported.swap(false, Ordering::SeqCst)
                && let Some(listener) = self.listener.get()
            {
                listener();
            }
            if !self.failed.swap(false, Ordering::SeqCst) {
                continue;
            }
            let logics: Vec<_> = {
                let logics = self.logics.lock().unwrap_or_else(PoisonError::into_inner);
                logics.iter().filter_map(Weak::upgrade).collect()
            };
            // All of them: `any` would stop at the first that is not done.
            if logics.iter().filter(|logic| logic.restart()).count() > 0 {
                self.failed.store(true, Ordering::SeqCst);
                self.supervisor.ring();
                drop(logics);
                std::thread::sleep(RESTART_INTERVAL);
            }
        }
    }
}

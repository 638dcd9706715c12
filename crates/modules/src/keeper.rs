//! Who looks after modules. One thread, the clock, lets those see that time passes that can be ended when they run for too long;
//! another one, the mender, makes those anew that failed.
//!
//! The clock ticks while modules run and sleeps when none has run for a while, so that an idle switch stays idle.
//!
//! Invariant: the clock runs no module's code. To make an instance runs some, which only ends because the clock ticks.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use fabric::doorbell::{Doorbell, ThreadBell};

use crate::module::Inner;
use crate::words;

/// Time between two ticks.
const TICK: Duration = Duration::from_micros(250);
/// Time between two looks at whether a failed one is to be made anew.
const MENDING: Duration = Duration::from_millis(20);
/// Ticks without work after which the thread sleeps.
const IDLE: u32 = 40;

/// See the module.
pub(crate) struct Keeper {
    /// A module ran since the last tick.
    ran: AtomicBool,
    /// Modules that run outside of workers.
    running: AtomicUsize,
    failed: AtomicBool,
    /// Rung for the clock: a module runs.
    clock: Doorbell<ThreadBell>,
    /// Rung for the mender: there is something to do.
    mender: Doorbell<ThreadBell>,
    /// Lets modules see a tick.
    tick: OnceLock<fn()>,
    logics: Mutex<Vec<Weak<Inner>>>,
}

static KEEPER: Keeper = Keeper {
    ran: AtomicBool::new(false),
    running: AtomicUsize::new(0),
    failed: AtomicBool::new(false),
    clock: Doorbell::new(ThreadBell::new()),
    mender: Doorbell::new(ThreadBell::new()),
    tick: OnceLock::new(),
    logics: Mutex::new(Vec::new()),
};

/// Calls this for each tick; only the first one named is.
#[cfg(feature = "wasm")]
pub(crate) fn on_tick(tick: fn()) {
    let _ = KEEPER.tick.set(tick);
}

/// Starts both, once.
pub(crate) fn start() -> std::io::Result<()> {
    static STARTED: Mutex<[bool; 2]> = Mutex::new([false; 2]);
    let threads: [(_, fn()); 2] =
        [("mswitch-clock", || KEEPER.keep_time()), ("mswitch-mender", || KEEPER.mend())];
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    for (started, (name, work)) in started.iter_mut().zip(threads) {
        if !*started {
            std::thread::Builder::new().name(name.into()).spawn(work)?;
            *started = true;
        }
    }
    Ok(())
}

/// Looks after this logic's instances from now on.
pub(crate) fn watch(logic: Weak<Inner>) {
    let mut logics = KEEPER.logics.lock().unwrap_or_else(PoisonError::into_inner);
    logics.retain(|logic| logic.strong_count() > 0);
    logics.push(logic);
}

/// A module that can be ended runs on a worker now.
#[cfg(feature = "wasm")]
#[inline]
pub(crate) fn runs() {
    if !KEEPER.ran.load(Ordering::Relaxed) {
        KEEPER.ran.store(true, Ordering::SeqCst);
        KEEPER.clock.ring();
    }
}

/// A module failed on a worker.
#[cold]
pub(crate) fn failed() {
    KEEPER.failed.store(true, Ordering::SeqCst);
    called();
}

/// There is something for the mender to do.
pub(crate) fn called() {
    KEEPER.mender.ring();
}

/// Ticks while `work` runs a module elsewhere.
pub(crate) fn during<T>(work: impl FnOnce() -> T) -> T {
    KEEPER.running.fetch_add(1, Ordering::SeqCst);
    KEEPER.clock.ring();
    let done = work();
    KEEPER.running.fetch_sub(1, Ordering::SeqCst);
    done
}

impl Keeper {
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

    /// Writes what modules say, and makes anew what failed, when its time has come.
    fn mend(&self) {
        loop {
            self.mender.wait();
            words::write();
            if !self.failed.swap(false, Ordering::SeqCst) {
                continue;
            }
            let logics: Vec<_> = {
                let logics = self.logics.lock().unwrap_or_else(PoisonError::into_inner);
                logics.iter().filter_map(Weak::upgrade).collect()
            };
            // Every logic, also where one has something left.
            if logics.iter().filter(|logic| logic.restart()).count() > 0 {
                self.failed.store(true, Ordering::SeqCst);
                self.mender.ring();
                drop(logics);
                std::thread::sleep(MENDING);
            }
        }
    }
}

//! A module's instance for one worker, and its failures: the worker goes on without the instance, and the
//! [watchdog](crate::watchdog) restarts it, after a back-off that doubles with each failure.
//!
//! Invariant: only the thread that moved the state from `READY` to `BUSY` or from `FAILED` to `RESTARTING` uses the
//! instance. The fabric keeps the worker's headers in the window of the worker's first instance, which therefore stays
//! until the slot goes or gets [another worker](InstanceSlot::renew).

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fabric::{Arena, PortIndex};

use crate::abi::MAX_COUNTERS;
use crate::call::Shadow;
use crate::held_packets::HeldPackets;
use crate::log;
use crate::module::Runner;
use crate::window::Window;

const READY: u8 = 0;
const BUSY: u8 = 1;
const FAILED: u8 = 2;
const RESTARTING: u8 = 3;
const WITHDRAWN: u8 = 4;

/// Back-off after the first failure; it doubles with each.
const FIRST_BACK_OFF: Duration = Duration::from_millis(20);
/// Longest back-off.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(10);
/// Longest message that is kept, bytes.
const LONGEST_MESSAGE: usize = 1000;
/// Time without a failure after which the back-off starts over.
const FORGIVEN: Duration = Duration::from_secs(60);

/// A module's instance and the memory that goes with it.
pub(crate) struct Instance {
    pub(crate) runner: Box<dyn Runner>,
    /// The switch's records of the packets in the window.
    pub(crate) shadows: Vec<Shadow>,
    /// Held packets.
    pub(crate) held: HeldPackets,
    /// Room for the ports of a set.
    pub(crate) ports: Vec<PortIndex>,
}

struct Trouble {
    failures: u32,
    last: Instant,
    message: String,
    /// The first instance, once another one is in use.
    first: Option<Box<dyn Runner>>,
}

/// A worker's place for an instance, which outlives instances that fail.
pub(crate) struct InstanceSlot {
    state: AtomicU8,
    instance: UnsafeCell<Instance>,
    /// Address of the slots in the first instance's window.
    arena: AtomicPtr<u8>,
    /// The worker was removed.
    ended: AtomicBool,
    window: Mutex<Window>,
    /// Counters of earlier instances.
    counted: [AtomicU64; MAX_COUNTERS],
    failures: AtomicU32,
    trouble: Mutex<Option<Trouble>>,
}

// SAFETY: the instance is used as the invariant of the module says, everything else by atomics and locks.
unsafe impl Sync for InstanceSlot {}

impl InstanceSlot {
    pub(crate) fn new(instance: Instance) -> InstanceSlot {
        let window = instance.runner.window();
        InstanceSlot {
            state: AtomicU8::new(READY),
            instance: UnsafeCell::new(instance),
            arena: AtomicPtr::new(window.slots().as_ptr()),
            ended: AtomicBool::new(false),
            window: Mutex::new(window),
            counted: [const { AtomicU64::new(0) }; MAX_COUNTERS],
            failures: AtomicU32::new(0),
            trouble: Mutex::new(None),
        }
    }

    /// The fabric's memory for this worker's headers.
    #[inline]
    pub(crate) fn arena(&self) -> Option<Arena> {
        let at = NonNull::new(self.arena.load(Ordering::Relaxed))?;
        // SAFETY: the slots of a window are as long as an arena and aligned. The first instance, whose window this is,
        // lives until the slot is renewed, that is, until it is prepared for another worker with its number, or goes
        // with the logic. Each worker has a slot of its own, and a module sees its window only while it is called.
        Some(unsafe { Arena::new(at) })
    }

    /// Notes that the worker was removed.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Makes a new instance for another worker if the one before was removed: with it go what the module noted for that
    /// worker, the packets that it held, and the arena.
    pub(crate) fn renew(&self, make: impl FnOnce() -> Result<Instance, String>) -> Result<(), String> {
        if !self.ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        let before = self.state.load(Ordering::Relaxed);
        let takes =
            |to| self.state.compare_exchange(before, to, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if matches!(before, BUSY | RESTARTING) || !takes(RESTARTING) {
            return Err("the instance of a worker that was removed is in use; try again in a moment".into());
        }
        let fresh = make().inspect_err(|_| self.state.store(before, Ordering::Release))?;
        let mut trouble = self.trouble();
        let first = trouble.as_mut().and_then(|trouble| trouble.first.take());
        let (old, slots) = self.replace(fresh);
        self.arena.store(slots.as_ptr(), Ordering::Relaxed);
        self.ended.store(false, Ordering::Relaxed);
        self.state.store(READY, Ordering::Release);
        drop((trouble, old, first));
        Ok(())
    }

    /// Puts an instance in place of the present one, by the thread that set the state to `RESTARTING`. Returns the
    /// previous one and the address of the new one's slots.
    fn replace(&self, fresh: Instance) -> (Instance, NonNull<u8>) {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, counted) in self.counted.iter().enumerate() {
            counted.fetch_add(window.counter(i), Ordering::Relaxed);
        }
        *window = fresh.runner.window();
        // SAFETY: the state says that nobody else uses it.
        let old = std::mem::replace(unsafe { &mut *self.instance.get() }, fresh);
        (old, window.slots())
    }

    /// Uses the instance; `None` where it cannot be used now. It has failed if `work` does.
    #[inline]
    pub(crate) fn with<T>(
        &self,
        work: impl FnOnce(&mut Instance) -> Result<T, String>,
    ) -> Option<Result<T, String>> {
        if self.state.compare_exchange(READY, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return None;
        }
        // SAFETY: the state says that nobody else uses it.
        let done = work(unsafe { &mut *self.instance.get() });
        match &done {
            Ok(_) => self.state.store(READY, Ordering::Release),
            Err(message) => self.fail(message),
        }
        Some(done)
    }

    /// Whether a thread uses the instance at the moment.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.load(Ordering::Relaxed) == BUSY
    }

    /// Takes the instance out of use while another one of the module is stuck, or puts it back.
    pub(crate) fn withdraw(&self, stuck: bool) {
        let (from, to) = if stuck { (READY, WITHDRAWN) } else { (WITHDRAWN, READY) };
        let _ = self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }

    fn trouble(&self) -> MutexGuard<'_, Option<Trouble>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn fail(&self, message: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut trouble = self.trouble();
        let (now, message) = (Instant::now(), log::cut(message, LONGEST_MESSAGE).to_owned());
        *trouble = Some(match trouble.take() {
            Some(before) => {
                let failures =
                    if now.duration_since(before.last) > FORGIVEN { 1 } else { before.failures + 1 };
                Trouble { failures, last: now, message, ..before }
            }
            None => Trouble { failures: 1, last: now, message, first: None },
        });
        self.state.store(FAILED, Ordering::Release);
    }

    /// Whether the instance has failed and is not restarted yet.
    pub(crate) fn is_failed(&self) -> bool {
        matches!(self.state.load(Ordering::Relaxed), FAILED | RESTARTING)
    }

    /// Replaces a failed instance once its back-off is over. Returns whether there is something left to do.
    pub(crate) fn restart(&self, make: impl FnOnce() -> Result<Instance, String>) -> bool {
        if self.state.load(Ordering::Acquire) != FAILED {
            return false;
        }
        let back_off = match &*self.trouble() {
            Some(trouble) => {
                let back_off = FIRST_BACK_OFF.saturating_mul(1 << (trouble.failures - 1).min(16));
                back_off.min(LONGEST_BACK_OFF).saturating_sub(trouble.last.elapsed())
            }
            None => return false,
        };
        if !back_off.is_zero() {
            return true;
        }
        if self.state.compare_exchange(FAILED, RESTARTING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        // Without the lock: the module's start may not return, and the control plane reads the last failure.
        let made = make();
        let mut trouble = self.trouble();
        let Some(trouble) = trouble.as_mut() else { return false };
        match made {
            Ok(fresh) => {
                let (old, _) = self.replace(fresh);
                trouble.first.get_or_insert(old.runner);
                self.state.store(READY, Ordering::Release);
                false
            }
            Err(message) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                let message = log::cut(&message, LONGEST_MESSAGE).to_owned();
                (trouble.failures, trouble.last, trouble.message) =
                    (trouble.failures + 1, Instant::now(), message);
                self.state.store(FAILED, Ordering::Release);
                true
            }
        }
    }

    /// Counter `i` over all instances of the slot.
    pub(crate) fn counter(&self, i: usize) -> u64 {
        let window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.counted.get(i).map_or(0, |counted| counted.load(Ordering::Relaxed));
        before.wrapping_add(window.counter(i))
    }

    /// Sets the number of a parameter.
    pub(crate) fn set_value(&self, i: usize, number: u64) {
        self.window.lock().unwrap_or_else(PoisonError::into_inner).set_value_number(i, number);
    }

    /// Number of failures, failed restarts included.
    pub(crate) fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Time and message of the last failure.
    pub(crate) fn last_failure(&self) -> Option<(Instant, String)> {
        self.trouble().as_ref().map(|trouble| (trouble.last, trouble.message.clone()))
    }
}

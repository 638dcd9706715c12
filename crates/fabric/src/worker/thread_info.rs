//! Information on a switching thread: whether it works for a client, for which one, and whether it makes progress.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::counters::bump;
use crate::worker::activity::{ActiveClients, Activity};
use crate::worker::handoff::Handoff;
use crate::worker::state::WorkerState;

/// Information on one thread. See the module.
#[repr(align(128))]
pub(crate) struct ThreadInfo {
    /// Index among all switching threads.
    pub(crate) number: usize,
    /// Holds the worker's state while the thread does work that a client can hold up.
    pub(crate) handoff: Handoff<WorkerState>,
    /// Times that the thread has handed its worker's state off.
    begun: AtomicU64,
    pub(crate) activity: Arc<Activity>,
    thread: OnceLock<Thread>,
}

struct Thread {
    id: i32,
    /// `/proc/PID/task/TID/stat`, opened in advance.
    stat: Option<File>,
}

/// Work of a thread on behalf of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) begun: u64,
    pub(crate) clients: ActiveClients,
}

/// Sleep state of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// It runs, or waits for a CPU.
    None,
    Interruptible,
    /// As in a page fault.
    Uninterruptible,
}

impl ThreadInfo {
    pub(crate) fn new(number: usize) -> Arc<Self> {
        let (begun, activity, thread) = Default::default();
        Arc::new(Self { number, handoff: Handoff::new(), begun, activity, thread })
    }

    /// Registers the calling thread as the one described.
    pub(crate) fn occupy(&self) {
        // Without /proc, the watchdog cannot tell that the thread is blocked.
        let stat = File::open("/proc/thread-self/stat").ok();
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        let _ = self.thread.set(Thread { id, stat });
    }

    /// Pins the thread described to a CPU, or lets it run on those of `unpinned`. Fails before it has registered.
    pub(crate) fn pin(&self, cpu: Option<usize>, unpinned: &CpuSet) -> std::io::Result<()> {
        let thread = self.thread.get().and_then(|thread| rustix::thread::Pid::from_raw(thread.id));
        let thread = thread.ok_or(std::io::ErrorKind::NotFound)?;
        let set = match cpu {
            Some(cpu) if cpu >= CpuSet::MAX_CPU => {
                return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "no such CPU"));
            }
            Some(cpu) => {
                let mut only = CpuSet::new();
                only.set(cpu);
                only
            }
            None => *unpinned,
        };
        Ok(sched_setaffinity(Some(thread), &set)?)
    }

    /// Hands the worker's state off.
    #[inline]
    pub(crate) fn begin(&self, state: Box<WorkerState>) {
        bump(&self.begun, 1);
        self.handoff.put(state);
    }

    /// Times that the thread has handed its worker's state off.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    /// The current work, if a client can hold it up.
    pub(crate) fn work(&self) -> Option<Work> {
        let (begun, clients) = (self.begun(), self.activity.get());
        self.handoff.is_occupied().then_some(Work { begun, clients })
    }

    /// Whether the thread sleeps in the kernel, and whether uninterruptibly, as in a page fault.
    pub(crate) fn sleep(&self) -> Sleep {
        let mut stat = [0; 128];
        let read = self.thread.get().and_then(|thread| thread.stat.as_ref()?.read_at(&mut stat, 0).ok());
        let stat = stat.get(..read.unwrap_or(0)).unwrap_or_default();
        // proc_pid_stat(5): the state follows the name, which is in parentheses and may itself contain parentheses.
        let mut fields = stat.rsplit(|byte| *byte == b')').next().unwrap_or_default().iter();
        match fields.find(|byte| **byte != b' ') {
            Some(b'D') => Sleep::Uninterruptible,
            Some(b'S') => Sleep::Interruptible,
            _ => Sleep::None,
        }
    }

    /// CPU time of the thread so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        let Some(thread) = self.thread.get() else { return Duration::ZERO };
        // Clock of another thread of this process, see clock_getres(2): CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED.
        let clock = !thread.id << 3 | 4 | 2;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is valid for writes; the kernel rejects a clock that does not exist.
        if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
            return Duration::ZERO;
        }
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    }
}

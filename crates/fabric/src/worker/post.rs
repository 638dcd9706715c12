//! What others see of a thread that switches: whether it is at work for a client, whose, and whether it gets anywhere.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::counters::bump;
use crate::worker::desk::Desk;
use crate::worker::duty::Duty;
use crate::worker::site::{At, Site};

/// See the module.
#[repr(align(128))]
pub(crate) struct Post {
    /// Its number among all threads that switch.
    pub(crate) number: usize,
    /// Where its worker's duty lies while it does what a client can hold up.
    pub(crate) desk: Desk<Duty>,
    /// Times that it has left the duty there.
    begun: AtomicU64,
    pub(crate) site: Arc<Site>,
    thread: OnceLock<Thread>,
}

struct Thread {
    id: i32,
    /// `/proc/PID/task/TID/stat`, opened in advance.
    stat: Option<File>,
}

/// What a thread is at for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) begun: u64,
    pub(crate) at: At,
}

/// How a thread sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// It runs, or waits for a CPU.
    None,
    Interruptible,
    /// As in a page fault.
    Uninterruptible,
}

impl Post {
    pub(crate) fn new(number: usize) -> Arc<Self> {
        let (begun, site, thread) = Default::default();
        Arc::new(Self { number, desk: Desk::new(), begun, site, thread })
    }

    /// The calling thread is the one.
    pub(crate) fn occupy(&self) {
        // Without /proc nobody can say that it is blocked.
        let stat = File::open("/proc/thread-self/stat").ok();
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        let _ = self.thread.set(Thread { id, stat });
    }

    /// Leaves the duty on the desk.
    #[inline]
    pub(crate) fn begin(&self, duty: Box<Duty>) {
        bump(&self.begun, 1);
        self.desk.leave(duty);
    }

    /// Times that it has left the duty on its desk.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    /// What it is at, if that is something that a client can hold up.
    pub(crate) fn work(&self) -> Option<Work> {
        let (begun, at) = (self.begun(), self.site.get());
        self.desk.is_occupied().then_some(Work { begun, at })
    }

    /// Whether the thread sleeps in the kernel, and so that no signal wakes it, as in a page fault.
    pub(crate) fn sleep(&self) -> Sleep {
        let mut stat = [0; 128];
        let read = self.thread.get().and_then(|thread| thread.stat.as_ref()?.read_at(&mut stat, 0).ok());
        let stat = stat.get(..read.unwrap_or(0)).unwrap_or_default();
        // proc_pid_stat(5): the state follows the name, which is in parentheses and may hold some itself.
        let mut fields = stat.rsplit(|byte| *byte == b')').next().unwrap_or_default().iter();
        match fields.find(|byte| **byte != b' ') {
            Some(b'D') => Sleep::Uninterruptible,
            Some(b'S') => Sleep::Interruptible,
            _ => Sleep::None,
        }
    }

    /// The CPU time that the thread has had.
    pub(crate) fn cpu_time(&self) -> Duration {
        let Some(thread) = self.thread.get() else { return Duration::ZERO };
        // The clock of another thread of this process, as clock_getres(2) says: CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED.
        let clock = !thread.id << 3 | 4 | 2;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is valid for writes; a clock that does not exist is refused.
        if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
            return Duration::ZERO;
        }
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    }
}

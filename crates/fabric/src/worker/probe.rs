//! Probes: tell whether a client is punching its memory file, which blocks every thread that touches the file.
//!
//! A probe asks the kernel for the file's lock. That may take as long as the client likes: the client can hold the lock
//! for as long as a page that it writes from is withheld from it. So probes have threads of their own; when all of them
//! wait, more are started, up to a bound. Beyond that, no client is identified.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::deliver::client::Client;
use crate::worker::handle::ThreadExit;
use crate::worker::janitor::{Janitor, Job};
use crate::worker::thread_group::spawn;
use crate::worker::thread_info::{Sleep, ThreadInfo};

/// Initial number of probe threads.
const FEW: usize = 4;

/// Largest number of probe threads.
const MOST: usize = 64;

/// A probe that has used this much CPU time, or sleeps, waits for the file's lock: the kernel spins on a lock while its
/// holder runs.
const BUSY: Duration = Duration::from_millis(1);

/// A probe in progress.
pub(crate) struct Probe {
    pub(crate) client: Arc<Client>,
    progress: Arc<AtomicU8>,
    /// The probe's thread, and its CPU time before the probe.
    info: Arc<ThreadInfo>,
    cpu_time: Duration,
}

// Progress of a probe.
const BEGUN: u8 = 1;
const OVER: u8 = 2;

impl Probe {
    /// Whether the probe has ended: touching the memory does not block.
    pub(crate) fn is_over(&self) -> bool {
        self.progress.load(Relaxed) == OVER
    }

    /// Whether the probe waits: touching the memory blocks.
    pub(crate) fn waits(&self) -> bool {
        let busy = || self.info.cpu_time().saturating_sub(self.cpu_time) >= BUSY;
        self.progress.load(Relaxed) == BEGUN && (self.info.sleep() == Sleep::Uninterruptible || busy())
    }
}

/// A probe thread.
struct Prober {
    jobs: SyncSender<Job>,
    busy: Arc<AtomicBool>,
    info: Arc<ThreadInfo>,
}

impl Prober {
    fn start(place: usize) -> std::io::Result<(Self, ThreadExit)> {
        let (jobs, to_do) = sync_channel::<Job>(1);
        // Its number is never looked up.
        let info = ThreadInfo::new(usize::MAX);
        let its = info.clone();
        let thread = spawn(&format!("mswitch-probe{place}"), move || {
            its.occupy();
            to_do.iter().for_each(|job| job());
        })?;
        Ok((Self { jobs, busy: Arc::default(), info }, thread))
    }
}

/// The probe threads.
pub(crate) struct Probers {
    all: Arc<Mutex<Vec<Prober>>>,
    /// Another thread is being started.
    growing: Arc<AtomicBool>,
}

impl Probers {
    pub(crate) fn start() -> std::io::Result<(Self, Vec<ThreadExit>)> {
        let (all, threads): (Vec<_>, _) =
            (0..FEW).map(Prober::start).collect::<std::io::Result<Vec<_>>>()?.into_iter().unzip();
        Ok((Self { all: Arc::new(Mutex::new(all)), growing: Arc::default() }, threads))
    }

    /// Starts a probe of a client's memory. `None` if it shares none or no thread is free; in the latter case another
    /// thread is started, up to the bound.
    pub(crate) fn probe(&self, client: &Arc<Client>, janitor: &mut Janitor) -> Option<Probe> {
        let memory = client.memory.clone()?;
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(prober) = all.iter().find(|prober| !prober.busy.swap(true, Acquire)) else {
            if all.len() < MOST && !self.growing.swap(true, Acquire) {
                self.grow(all.len(), janitor);
            }
            return None;
        };
        let (progress, busy) = (Arc::new(AtomicU8::new(0)), prober.busy.clone());
        let its = progress.clone();
        let job = move || {
            its.store(BEGUN, Relaxed);
            memory.wait_for_holes();
            its.store(OVER, Relaxed);
            drop(memory);
            busy.store(false, Release);
        };
        let (info, cpu_time) = (prober.info.clone(), prober.info.cpu_time());
        // A thread that is not busy waits for the job.
        let _ = prober.jobs.send(Box::new(job));
        Some(Probe { client: client.clone(), progress, info, cpu_time })
    }

    fn grow(&self, place: usize, janitor: &mut Janitor) {
        let (all, growing) = (self.all.clone(), self.growing.clone());
        janitor.give(move || {
            if let Ok((prober, _)) = Prober::start(place) {
                all.lock().unwrap_or_else(PoisonError::into_inner).push(prober);
            }
            growing.store(false, Release);
        });
    }
}

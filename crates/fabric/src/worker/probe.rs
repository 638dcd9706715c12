//! Probes: is somebody making holes in a client's memory file, so that whoever touches it waits?
//!
//! A probe asks the kernel for the file's lock, which may last as long as the client likes: it can hold that lock for as long as a
//! page that it writes from is withheld from it. So probes have threads of their own, and where all of them wait there are more, up to a
//! bound. Beyond that nobody is found out.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::deliver::client::Client;
use crate::worker::crew::spawn;
use crate::worker::handle::Ended;
use crate::worker::janitor::{Janitor, Job};
use crate::worker::post::{Post, Sleep};

/// Threads for probes at first.
const FEW: usize = 4;

/// Threads for probes at most.
const MOST: usize = 64;

/// A probe has had so much CPU time, or is asleep, when its file's lock is taken. The kernel looks busily for a lock while who has
/// it runs.
const BUSY: Duration = Duration::from_millis(1);

/// A probe that was begun.
pub(crate) struct Probe {
    pub(crate) client: Arc<Client>,
    progress: Arc<AtomicU8>,
    /// The thread, and the CPU time that it had had before.
    post: Arc<Post>,
    cpu_time: Duration,
}

// The progress of a probe.
const BEGUN: u8 = 1;
const OVER: u8 = 2;

impl Probe {
    /// The memory does not make others wait.
    pub(crate) fn is_over(&self) -> bool {
        self.progress.load(Relaxed) == OVER
    }

    /// It does.
    pub(crate) fn waits(&self) -> bool {
        let busy = || self.post.cpu_time().saturating_sub(self.cpu_time) >= BUSY;
        self.progress.load(Relaxed) == BEGUN && (self.post.sleep() == Sleep::Uninterruptible || busy())
    }
}

/// A thread for probes.
struct Prober {
    jobs: SyncSender<Job>,
    busy: Arc<AtomicBool>,
    post: Arc<Post>,
}

impl Prober {
    fn start(place: usize) -> std::io::Result<(Self, Ended)> {
        let (jobs, to_do) = sync_channel::<Job>(1);
        // Nobody looks up its number.
        let post = Post::new(usize::MAX);
        let its = post.clone();
        let thread = spawn(&format!("mswitch-probe{place}"), move || {
            its.occupy();
            to_do.iter().for_each(|job| job());
        })?;
        Ok((Self { jobs, busy: Arc::default(), post }, thread))
    }
}

/// The threads for probes.
pub(crate) struct Probers {
    all: Arc<Mutex<Vec<Prober>>>,
    /// One more is being started.
    growing: Arc<AtomicBool>,
}

impl Probers {
    pub(crate) fn start() -> std::io::Result<(Self, Vec<Ended>)> {
        let (all, threads): (Vec<_>, _) =
            (0..FEW).map(Prober::start).collect::<std::io::Result<Vec<_>>>()?.into_iter().unzip();
        Ok((Self { all: Arc::new(Mutex::new(all)), growing: Arc::default() }, threads))
    }

    /// Begins a probe of a client's memory. `None`: it has none, or no thread is free, for which there will be one more if there
    /// may be.
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
        let (post, cpu_time) = (prober.post.clone(), prober.post.cpu_time());
        // One that is not busy waits for it.
        let _ = prober.jobs.send(Box::new(job));
        Some(Probe { client: client.clone(), progress, post, cpu_time })
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

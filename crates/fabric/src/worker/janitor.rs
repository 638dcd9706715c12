//! The janitor: runs jobs that the watchdog must not wait for, such as unmapping what a stuck thread used.

use std::collections::VecDeque;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use crate::worker::handle::ThreadExit;
use crate::worker::thread_group::spawn;

/// Capacity of the queue to the janitor.
const JOBS: usize = 64;

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The watchdog's handle of the janitor. See the module.
pub(crate) struct Janitor {
    jobs: SyncSender<Job>,
    /// Jobs that did not fit in the queue.
    backlog: VecDeque<Job>,
}

impl Janitor {
    pub(crate) fn start() -> std::io::Result<(Self, ThreadExit)> {
        let (jobs, to_do) = sync_channel::<Job>(JOBS);
        let thread = spawn("mswitch-janitor", move || to_do.iter().for_each(|job| job()))?;
        Ok((Self { jobs, backlog: VecDeque::new() }, thread))
    }

    /// Queues a job after the earlier ones. Never waits.
    pub(crate) fn give(&mut self, job: impl FnOnce() + Send + 'static) {
        self.backlog.push_back(Box::new(job));
        while let Some(job) = self.backlog.pop_front() {
            match self.jobs.try_send(job) {
                Ok(()) => {}
                Err(TrySendError::Full(job)) => return self.backlog.push_front(job),
                Err(TrySendError::Disconnected(_)) => return,
            }
        }
    }
}

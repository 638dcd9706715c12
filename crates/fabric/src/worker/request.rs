//! A caller's request for a task, which a worker answers between batches.
//!
//! The caller waits with a deadline; the worker may answer at that very moment. Invariant: a task is the worker's until
//! [`Reply::give`] has returned `Ok`, and the caller's from then on. A caller that gives up [closes](Transfer::close)
//! the request, which tells it whether the task has come after all; later the worker keeps the task (`loom_models`).

use std::mem::replace;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::sync::SpinLock;
use crate::worker::tasks::Task;

/// Passes one value to a receiver that may give up meanwhile. See the module.
pub(crate) struct Transfer<T>(SpinLock<Place<T>>);

enum Place<T> {
    Empty,
    Full(T),
    Closed,
}

impl<T> Transfer<T> {
    pub(crate) fn new() -> Self {
        Self(SpinLock::new(Place::Empty))
    }

    /// Gives the value to the receiver; returns it if the receiver has given up.
    pub(crate) fn give(&self, value: T) -> Result<(), T> {
        self.0.with(|place| match place {
            Place::Empty => {
                *place = Place::Full(value);
                Ok(())
            }
            Place::Full(_) | Place::Closed => Err(value),
        })
    }

    /// Takes the value if it was given; none can be given from now on.
    pub(crate) fn close(&self) -> Option<T> {
        match self.0.with(|place| replace(place, Place::Closed)) {
            Place::Full(value) => Some(value),
            Place::Empty | Place::Closed => None,
        }
    }
}

/// A worker's answer.
enum Answer {
    /// The task was given.
    Here,
    /// It does not exist.
    Absent,
    /// A relieved thread has it. If it is removed for good, it follows when it is returned; otherwise it stays.
    Lent,
}

/// The worker's end of a request.
#[derive(Clone)]
pub(crate) struct Reply {
    // Room for two answers: the worker must not block on sending.
    answers: SyncSender<Answer>,
    task: Arc<Transfer<Task>>,
}

impl Reply {
    /// Gives the caller the task; returns it if the caller has given up.
    pub(crate) fn give(&self, task: Task) -> Result<(), Task> {
        self.task.give(task)?;
        self.send(Answer::Here);
        Ok(())
    }

    /// Answers that the task does not exist.
    pub(crate) fn absent(&self) {
        self.send(Answer::Absent);
    }

    /// Answers that a relieved thread has the task.
    pub(crate) fn lent(&self) {
        self.send(Answer::Lent);
    }

    fn send(&self, answer: Answer) {
        // An error means that the caller has given up.
        let _ = self.answers.send(answer);
    }
}

/// The caller's end of a request for a task that is removed for good. A relieved thread may still have the task.
pub(crate) struct PendingTask {
    answers: Receiver<Answer>,
    task: Arc<Transfer<Task>>,
}

/// Makes both ends of a request.
pub(crate) fn request() -> (Reply, PendingTask) {
    let (sender, answers) = sync_channel(2);
    let task = Arc::new(Transfer::new());
    (Reply { answers: sender, task: task.clone() }, PendingTask { answers, task })
}

impl PendingTask {
    /// The worker's first answer. No answer in time means that the worker is stuck and no stand-in was free.
    pub(crate) fn answer(self, deadline: Instant) -> Result<Option<Task>, PendingTask> {
        match self.answers.recv_timeout(left(deadline)) {
            Ok(Answer::Here) => Ok(self.task.close()),
            Ok(Answer::Absent) => Ok(None),
            Ok(Answer::Lent) | Err(_) => Err(self),
        }
    }

    /// Waits for the task, up to `patience`.
    pub(crate) fn wait(self, patience: Duration) -> Option<Task> {
        let deadline = Instant::now() + patience;
        while let Ok(Answer::Lent) = self.answers.recv_timeout(left(deadline)) {}
        self.task.close()
    }
}

impl Drop for PendingTask {
    fn drop(&mut self) {
        // A task that has come is dropped here: dropping it is not a worker's job.
        drop(self.task.close());
    }
}

/// The caller's end of a request for a task that moves to another worker.
pub(crate) struct PendingMove(pub(crate) PendingTask);

/// The task stays at its worker: it did not come in time, or a relieved thread has it.
#[derive(Debug)]
pub(crate) struct Stays;

impl PendingMove {
    /// The task; `None` if it does not exist.
    pub(crate) fn answer(self, deadline: Instant) -> Result<Option<Task>, Stays> {
        match self.0.answers.recv_timeout(left(deadline)) {
            Ok(Answer::Absent) => Ok(None),
            Ok(Answer::Lent) => Err(Stays),
            // The task may have come since the deadline.
            Ok(Answer::Here) | Err(_) => self.0.task.close().map(Some).ok_or(Stays),
        }
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

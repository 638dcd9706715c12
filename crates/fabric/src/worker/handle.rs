//! The control plane's handle of a worker, and the commands that the worker executes between batches.

use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::counters::WorkerCounters;
use crate::wake::doorbell::EventBell;
use crate::wake::mailbox::Mailbox;
use crate::worker::activity::Signal;
use crate::worker::state::WorkerState;
use crate::worker::tasks::{Next, Task, Token};

/// Time to wait for a task that another thread has, before it stays where it is.
const MOMENT: Duration = Duration::from_millis(300);

/// A command to a worker.
pub(crate) enum Command {
    Add(Task),
    /// Removes a task and returns it: dropping it is not a worker's job.
    Remove(Token, SyncSender<Answer>),
    /// The same for a task that moves to another worker; a lent task stays.
    Move(Token, SyncSender<Answer>),
    /// A relieved thread returns the task that it kept.
    BringBack(Task, Next),
    /// The worker's own thread, which was relieved, is free again.
    HandBack(SyncSender<Box<WorkerState>>),
    /// Signals receivers that were skipped.
    Ring(Vec<Signal>),
    Stop,
}

/// Commands on their way to a worker.
pub(crate) type Commands = Mailbox<Command, EventBell>;

/// The control plane's handle of a worker.
pub(crate) struct WorkerHandle {
    /// CPU that the worker is pinned to, and that CPU's NUMA node.
    pub(crate) cpu: Option<usize>,
    pub(crate) node: Option<usize>,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) commands: Arc<Commands>,
    pub(crate) thread: ThreadExit,
}

/// Reports the end of a thread to a caller that waits with a deadline.
pub(crate) struct ThreadExit(Mutex<Receiver<()>>);

impl ThreadExit {
    /// At shutdown, threads stuck in a client's memory are left behind; they own what they use.
    const PATIENCE: Duration = Duration::from_secs(2);

    /// The thread holds the other end of `gone` until it ends.
    pub(crate) fn new(gone: Receiver<()>) -> Self {
        Self(Mutex::new(gone))
    }

    /// Deadline for threads that were told to end.
    pub(crate) fn soon() -> Instant {
        Instant::now() + Self::PATIENCE / 2
    }

    /// Deadline for an answer from a thread.
    pub(crate) fn deadline() -> Instant {
        Instant::now() + Self::PATIENCE
    }

    /// Waits for the thread until the deadline.
    pub(crate) fn wait(&self, deadline: Instant) {
        let gone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing is sent: the channel only closes.
        let _ = gone.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Answer to [`Command::Remove`] and [`Command::Move`].
pub(crate) enum Answer {
    /// The task, or `None` if it does not exist.
    Here(Option<Task>),
    /// A relieved thread has it; the task follows when it is returned.
    Lent,
}

/// A requested task that a relieved thread may still have.
pub(crate) struct PendingTask(Receiver<Answer>);

impl PendingTask {
    /// The worker's first answer. No answer in time means that the worker is stuck and no stand-in was free.
    pub(crate) fn answer(self, deadline: Instant) -> Result<Option<Task>, PendingTask> {
        match self.0.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Answer::Here(task)) => Ok(task),
            Ok(Answer::Lent) | Err(_) => Err(self),
        }
    }

    /// Waits for the task, up to `patience`.
    pub(crate) fn wait(self, patience: Duration) -> Option<Task> {
        let deadline = Instant::now() + patience;
        loop {
            match self.0.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Answer::Here(task)) => return task,
                Ok(Answer::Lent) => {}
                Err(_) => return None,
            }
        }
    }
}

impl WorkerHandle {
    /// Gives the worker a task.
    pub(crate) fn add(&self, task: Task) {
        self.commands.send(Command::Add(task));
    }

    /// Takes a task from the worker; returns after its last batch has completed, unless a client holds it up.
    pub(crate) fn take(&self, token: Token) -> Result<Option<Task>, PendingTask> {
        self.ask(token).answer(ThreadExit::deadline())
    }

    /// Takes a task that moves to another worker, if it comes within `patience`. `Err`: it does not, and stays here.
    pub(crate) fn try_to_move(&self, token: Token, patience: Duration) -> Result<Option<Task>, PendingTask> {
        let (reply, answer) = std::sync::mpsc::sync_channel(2);
        self.commands.send(Command::Move(token, reply));
        PendingTask(answer).answer(Instant::now() + patience)
    }

    /// Takes a task that moves to another worker. `Err`: a client holds it up, and it stays here. A task that another
    /// thread has for a moment for other reasons, such as a machine short of CPU, is waited for.
    pub(crate) fn take_to_move(&self, token: Token) -> Result<Option<Task>, PendingTask> {
        let end = Instant::now() + MOMENT;
        loop {
            match self.try_to_move(token, ThreadExit::PATIENCE) {
                Err(_) if Instant::now() < end => sleep(Duration::from_millis(1)),
                answered => return answered,
            }
        }
    }

    /// Requests a task that is to be removed.
    pub(crate) fn ask(&self, token: Token) -> PendingTask {
        // Room for both answers: the worker must not block on sending.
        let (reply, answer) = std::sync::mpsc::sync_channel(2);
        self.commands.send(Command::Remove(token, reply));
        PendingTask(answer)
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.commands.send(Command::Stop);
        self.thread.wait(ThreadExit::soon());
    }
}

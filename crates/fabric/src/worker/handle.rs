//! The control plane's end of a worker: the commands that it carries out between batches.

use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::counters::WorkerCounters;
use crate::wake::doorbell::EventBell;
use crate::wake::mailbox::Mailbox;
use crate::worker::duty::Duty;
use crate::worker::site::Signal;
use crate::worker::tasks::{Next, Task, Token};

/// How long a task that another thread has is waited for before it stays where it is.
const MOMENT: Duration = Duration::from_millis(300);

/// What is asked of a worker.
pub(crate) enum Command {
    Add(Task),
    /// Gives the task back, if it was there: what goes with it is no work for a worker.
    Remove(Token, SyncSender<Answer>),
    /// The same for a task that goes to another worker: one that is lent stays.
    Move(Token, SyncSender<Answer>),
    /// A thread that was relieved is done with the task that it had.
    BringBack(Task, Next),
    /// The worker's own thread, which was relieved, is free again.
    HandBack(SyncSender<Box<Duty>>),
    /// Signals receivers that were left out.
    Ring(Vec<Signal>),
    Stop,
}

/// Commands on their way to a worker.
pub(crate) type Commands = Mailbox<Command, EventBell>;

/// The control plane's end of a worker.
pub(crate) struct WorkerHandle {
    /// The CPU that it is pinned to, and that CPU's NUMA node.
    pub(crate) cpu: Option<usize>,
    pub(crate) node: Option<usize>,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) commands: Arc<Commands>,
    pub(crate) thread: Ended,
}

/// Says when a thread has ended, to who does not want to wait for ever.
pub(crate) struct Ended(Mutex<Receiver<()>>);

impl Ended {
    /// Threads that are stuck in a client's memory when the switch goes are left behind: they hold what they use.
    const PATIENCE: Duration = Duration::from_secs(2);

    /// The other end of `gone` goes with the thread.
    pub(crate) fn new(gone: Receiver<()>) -> Self {
        Self(Mutex::new(gone))
    }

    /// When to stop waiting for threads that were told to end.
    pub(crate) fn soon() -> Instant {
        Instant::now() + Self::PATIENCE / 2
    }

    /// When to stop waiting for what a thread was asked for.
    pub(crate) fn deadline() -> Instant {
        Instant::now() + Self::PATIENCE
    }

    /// Waits for the thread, for a while.
    pub(crate) fn wait(&self, deadline: Instant) {
        let gone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing is ever sent.
        let _ = gone.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// What a worker says to [`Command::Remove`].
pub(crate) enum Answer {
    /// The task; `None`: there is no such task.
    Here(Option<Task>),
    /// A thread that was relieved has it. The task follows when it is brought back.
    Lent,
}

/// A task that was asked for, and that perhaps a thread has which was relieved.
pub(crate) struct Lent(Receiver<Answer>);

impl Lent {
    /// What the worker says first. Without an answer in time, it is stuck and nobody could stand in for it.
    pub(crate) fn answer(self, deadline: Instant) -> Result<Option<Task>, Lent> {
        match self.0.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Answer::Here(task)) => Ok(task),
            Ok(Answer::Lent) | Err(_) => Err(self),
        }
    }

    /// Waits for it, for a while.
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

    /// Takes a task away from the worker; returns after its last batch has completed, unless a client holds that up.
    pub(crate) fn take(&self, token: Token) -> Result<Option<Task>, Lent> {
        self.ask(token).answer(Ended::deadline())
    }

    /// Takes a task away that goes to another worker. `Err`: a client holds it up, and it stays here. Moments in which another thread
    /// has it for other reasons, such as a machine that is short of CPU, are waited out.
    pub(crate) fn take_to_move(&self, token: Token) -> Result<Option<Task>, Lent> {
        let end = Instant::now() + MOMENT;
        loop {
            let (reply, answer) = std::sync::mpsc::sync_channel(2);
            self.commands.send(Command::Move(token, reply));
            match Lent(answer).answer(Ended::deadline()) {
                Err(_) if Instant::now() < end => sleep(Duration::from_millis(1)),
                answered => return answered,
            }
        }
    }

    /// Asks for a task that is to be taken away.
    pub(crate) fn ask(&self, token: Token) -> Lent {
        // Room for both answers: who sends them must not wait.
        let (reply, answer) = std::sync::mpsc::sync_channel(2);
        self.commands.send(Command::Remove(token, reply));
        Lent(answer)
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.commands.send(Command::Stop);
        self.thread.wait(Ended::soon());
    }
}

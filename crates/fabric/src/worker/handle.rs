//! The control plane's end of a worker: the commands that it carries out between batches.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use crate::counters::WorkerCounters;
use crate::wake::doorbell::EventBell;
use crate::wake::mailbox::Mailbox;
use crate::worker::tasks::{Task, Token};

/// What the control plane asks of a worker.
pub(crate) enum Command {
    Add(Task),
    /// Gives the task back, if it was there: what goes with it is no work for a worker.
    Remove(Token, SyncSender<Option<Task>>),
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
    pub(crate) thread: Option<std::thread::JoinHandle<()>>,
}

impl WorkerHandle {
    /// Gives the worker a task.
    pub(crate) fn add(&self, task: Task) {
        self.commands.send(Command::Add(task));
    }

    /// Takes a task away from the worker; returns after its last batch has completed.
    pub(crate) fn take(&self, token: Token) -> Option<Task> {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        self.commands.send(Command::Remove(token, reply));
        answer.recv().ok().flatten()
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.commands.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

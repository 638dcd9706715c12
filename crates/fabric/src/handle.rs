//! The control plane's end of a worker: the commands that it carries out between batches.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender};

use crate::alarm::Alarm;
use crate::counters::WorkerCounters;
use crate::intake::Intake;
use crate::sync::{AtomicBool, Ordering};

/// What the control plane asks of a worker.
pub(crate) enum Command {
    Add(Box<Intake>),
    AddAlarm(Box<Alarm>),
    /// Gives the alarm back, if it was there: what goes with it is no work for a worker.
    RemoveAlarm(u64, SyncSender<Option<Box<Alarm>>>),
    /// Gives the queue back, if it was there.
    Remove(u64, SyncSender<Option<Box<Intake>>>),
    Stop,
}

/// The control plane's end of a worker.
pub(crate) struct WorkerHandle {
    pub(crate) cpu: Option<usize>,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) commands: Sender<Command>,
    pub(crate) pending: Arc<AtomicBool>,
    pub(crate) wake: Arc<OwnedFd>,
    pub(crate) thread: Option<std::thread::JoinHandle<()>>,
}

impl WorkerHandle {
    pub(crate) fn send(&self, command: Command) {
        // A worker that has stopped needs no commands; what was sent is dropped with the channel.
        let _ = self.commands.send(command);
        self.pending.store(true, Ordering::Release);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    /// Takes a queue away from the worker; returns after its last batch has completed.
    pub(crate) fn take(&self, token: u64) -> Option<Box<Intake>> {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        self.send(Command::Remove(token, reply));
        answer.recv().ok().flatten()
    }

    /// Takes an alarm away from the worker; returns after the last time that it has gone off.
    pub(crate) fn take_alarm(&self, token: u64) -> Option<Box<Alarm>> {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        self.send(Command::RemoveAlarm(token, reply));
        answer.recv().ok().flatten()
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

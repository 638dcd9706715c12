//! The control plane's handle of a worker, and the commands that the worker executes between batches.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::thread::CpuSet;

use crate::counters::WorkerCounters;
use crate::wake::doorbell::EventBell;
use crate::wake::mailbox::Mailbox;
use crate::worker::activity::Signal;
use crate::worker::request::{PendingMove, PendingTask, Reply, Stays, request};
use crate::worker::state::WorkerState;
use crate::worker::tasks::{Next, Task, Token};
use crate::worker::thread_info::ThreadInfo;

/// Time to wait for a task that another thread has, before it stays where it is.
const MOMENT: Duration = Duration::from_millis(300);

/// A command to a worker.
pub(crate) enum Command {
    Add(Task),
    /// Removes a task and returns it: dropping it is not a worker's job.
    Remove(Token, Reply),
    /// The same for a task that moves to another worker; a lent task stays.
    Move(Token, Reply),
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
    pub(crate) info: Arc<ThreadInfo>,
    /// CPU that the worker is pinned to, and that CPU's NUMA node.
    pub(crate) cpu: Option<usize>,
    pub(crate) node: Option<usize>,
    /// CPUs that it runs on while it is not pinned.
    pub(crate) unpinned: CpuSet,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) commands: Arc<Commands>,
    /// Tells the worker's own thread, if it was relieved, not to wait for the state to be handed back.
    pub(crate) removed: Arc<AtomicBool>,
    pub(crate) thread: Arc<ThreadExit>,
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

    /// Whether the thread has ended.
    pub(crate) fn is_over(&self) -> bool {
        let gone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gone.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Waits for the thread until the deadline.
    pub(crate) fn wait(&self, deadline: Instant) {
        let gone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing is sent: the channel only closes.
        let _ = gone.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

impl WorkerHandle {
    /// Gives the worker a task.
    pub(crate) fn add(&self, task: Task) {
        self.commands.send(Command::Add(task));
    }

    /// Takes a task that moves to another worker, if it comes within `patience`.
    pub(crate) fn try_to_move(&self, token: Token, patience: Duration) -> Result<Option<Task>, Stays> {
        self.ask_to_move(token).answer(Instant::now() + patience)
    }

    /// Takes a task that moves to another worker. `Err`: a client holds it up, and it stays here. A task that another
    /// thread has for a moment for other reasons, such as a machine short of CPU, is waited for.
    pub(crate) fn take_to_move(&self, token: Token) -> Result<Option<Task>, Stays> {
        Ok(self.take_all_to_move(vec![token])?.pop())
    }

    /// The same for several tasks: all of them, or none.
    pub(crate) fn take_all_to_move(&self, mut tokens: Vec<Token>) -> Result<Vec<Task>, Stays> {
        let (end, mut taken) = (Instant::now() + MOMENT, Vec::new());
        loop {
            let deadline = ThreadExit::deadline();
            let asked: Vec<_> = tokens.drain(..).map(|token| (token, self.ask_to_move(token))).collect();
            for (token, asked) in asked {
                match asked.answer(deadline) {
                    Ok(task) => taken.extend(task),
                    Err(Stays) => tokens.push(token),
                }
            }
            if tokens.is_empty() {
                return Ok(taken);
            }
            if Instant::now() >= end {
                taken.into_iter().for_each(|task| self.add(task));
                return Err(Stays);
            }
            sleep(Duration::from_millis(1));
        }
    }

    fn ask_to_move(&self, token: Token) -> PendingMove {
        let (reply, pending) = request();
        self.commands.send(Command::Move(token, reply));
        PendingMove(pending)
    }

    /// Requests a task that is to be removed.
    pub(crate) fn ask(&self, token: Token) -> PendingTask {
        let (reply, pending) = request();
        self.commands.send(Command::Remove(token, reply));
        pending
    }

    /// Ends the worker, whose tasks have been taken, without waiting for its thread.
    pub(crate) fn end(&self) {
        self.removed.store(true, Relaxed);
        self.commands.send(Command::Stop);
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    use crate::bridge::published::PublishedBridge;
    use crate::bridge::quiescence::{Quiescence, Reclaim};
    use crate::bridge::state::BridgeState;
    use crate::decide::batch::Batch;
    use crate::decide::logic::SwitchLogic;
    use crate::rx::BatchLimits;
    use crate::worker::handle::ThreadExit;
    use crate::worker::per_thread::MAX_THREADS;
    use crate::worker::run::Pace;
    use crate::worker::start;
    use crate::worker::tasks::Task;
    use crate::worker::tasks::alarm::Alarm;
    use crate::worker::thread_group::ThreadGroup;
    use crate::worker::thread_info::ThreadInfo;

    struct Nothing;

    impl SwitchLogic for Nothing {
        fn forward(&self, _: &mut Batch<'_>) {}
    }

    /// The caller gives up at any moment, often while the worker answers.
    #[test]
    fn a_task_is_not_lost_when_the_caller_stops_waiting() {
        let quiescence = Arc::new(Quiescence::new(MAX_THREADS));
        let group = ThreadGroup::new(Arc::new(Reclaim::new(quiescence)));
        let (limits, info) = (BatchLimits::default(), ThreadInfo::new(0));
        let worker = start::worker(0, None, limits, Pace::default(), &group, &info).unwrap();
        let bridge = PublishedBridge::new(BridgeState::new(Arc::new(Nothing), Vec::new(), Vec::new()));
        let (bridge, long) = (Arc::new(bridge), Duration::from_secs(3600));
        worker.add(Task::Alarm(Box::new(Alarm::every(long, bridge, Arc::default(), 7))));
        let (mut came, mut stayed) = (0, 0);
        for i in 0..20_000 {
            match worker.try_to_move(7, Duration::from_nanos(i % 40_000)) {
                Ok(task) => {
                    came += 1;
                    worker.add(task.expect("the task was dropped"));
                }
                Err(_) => stayed += 1,
            }
        }
        assert!(came > 0 && stayed > 0, "{came} {stayed}");
        assert!(worker.take_to_move(7).unwrap().is_some());
        group.stopped.store(true, Relaxed);
        worker.end();
        worker.thread.wait(ThreadExit::soon());
        assert!(worker.thread.is_over());
    }
}

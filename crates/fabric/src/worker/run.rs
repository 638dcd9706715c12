//! A worker's thread. A worker owns *tasks* (`tasks/`) and runs each of their batches to completion.
//!
//! CPU follows load. A queue is *polled* while packets come, its sender told not to signal. After the queue has been
//! dry for [`Pace::linger`], the sender is asked to signal again and the queue is *watched* for another
//! [`Pace::watch`], because some clients publish a packet and read our request without a fence between; then it is
//! *asleep* and costs nothing. A task that waits for a time is not run before it. A worker whose tasks all sleep or
//! wait blocks in epoll, at most until the earliest of these times. While any task is awake, the worker asks epoll
//! every [`Pace::listen`] which other tasks were signalled. Under a light but steady load it
//! [rests](crate::worker::moderation) between rounds, and it polls through pauses of a
//! [dense](crate::worker::patience) one.
//!
//! Signals are edge-triggered and a client's eventfd is never read: whatever a client does to its blocking mode or
//! counter, the worker cannot block on it.
//!
//! A client can still hold a thread up where the thread touches the client's memory or signals it. During such work the
//! [worker's state](crate::worker::state) is [handed off](crate::worker::handoff), where the
//! [watchdog](crate::worker::watchdog) finds it.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll;
use rustix::thread::set_current_timer_slack;

use crate::bridge::quiescence::Reclaim;
use crate::clock;
use crate::counters::bump;
use crate::fault::Fault;
use crate::vital::Vital;
use crate::wake::doorbell::{Doorbell, ThreadBell};
use crate::worker::activity::Signal;
use crate::worker::handle::{Command, Commands};
use crate::worker::state::{AfterRun, WorkerState};
use crate::worker::tasks::{Context, Next, Task};
use crate::worker::thread_info::ThreadInfo;

/// When a worker stops polling, and turns to other queues.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Time a dry queue is polled before its sender is asked to signal.
    pub linger: Duration,
    /// Time it is watched after that.
    pub watch: Duration,
    /// Interval at which a busy worker asks which sleeping queues were signalled.
    pub listen: Duration,
    /// Time of a batch above which later ones of the same queue are smaller, so that others do not wait.
    pub turn: Duration,
    /// Usual upper limit of the time for which a worker lets packets gather under a light but steady load, which is added to
    /// a packet's way; up to ten thirds of it where such a rest takes much CPU time. Zero: never, and the worker does not
    /// poll through pauses of a dense load either.
    pub rest: Duration,
    /// Never ask for signals, never sleep.
    pub poll_forever: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            linger: Duration::from_micros(20),
            watch: Duration::from_micros(20),
            listen: Duration::from_micros(20),
            turn: Duration::from_micros(500),
            rest: Duration::from_micros(60),
            poll_forever: false,
        }
    }
}

/// A switching thread: a worker's own, or a stand-in.
pub(crate) struct Runner {
    pub(crate) info: Arc<ThreadInfo>,
    pub(crate) context: Context,
    pub(crate) reclaim: Arc<Reclaim>,
    /// Rung when this thread wakes.
    pub(crate) watchdog: Arc<Doorbell<ThreadBell>>,
    /// Aborts the process if this thread panics, before the panic drops what the thread owns: a drop could block.
    pub(crate) vital: Vital,
}

/// Why a thread stops serving.
pub(crate) enum End {
    /// The worker has ended.
    Stopped,
    /// The worker's own thread has the state again.
    HandedBack,
    /// Another thread took over. This one may still have a task to return.
    Relieved(Option<(Task, Next)>),
}

impl Runner {
    /// Serves until stopped, relieved or handed back; afterwards it uses nothing shared.
    pub(crate) fn serve(&mut self, state: Box<WorkerState>) -> End {
        self.context.counters = state.counters.clone();
        let vital = self.vital.clone();
        let _guard = vital.guard();
        // Rests are shorter than the kernel's usual tolerance, 50 µs. Refused, they become longer.
        let _ = set_current_timer_slack(Some(NonZeroU64::MIN));
        let end = self.rounds(state).unwrap_or_else(|end| end);
        if self.context.has_rings() {
            // Collected before this thread was relieved. The stand-in has signalled them too; a receiver signalled
            // twice looks twice.
            self.context.ring();
        }
        self.reclaim.quiescence.sleep(self.info.number);
        self.reclaim.quiescence.set_stuck(self.info.number, false);
        end
    }

    fn rounds(&mut self, mut state: Box<WorkerState>) -> Result<End, End> {
        self.wake_up();
        if !state.unsent.is_empty() {
            let unsent = std::mem::take(&mut state.unsent);
            state = self.signal(state, unsent)?;
        }
        let mut now = clock::cycles();
        let mut listened = now;
        loop {
            if state.has_commands() {
                state = self.run_commands(state)?;
            }
            self.reclaim.quiescence.pass(self.info.number);
            state.end_waits(now);

            let (mut i, mut dry) = (0, true);
            while let Some(&s) = state.awake.get(i) {
                let Some(mut task) = state.lend(s) else {
                    // A relieved thread has it.
                    state.awake.swap_remove(i);
                    continue;
                };
                let start = now;
                self.context.tools.smallest_ring = u32::MAX;
                let (back, ran) = self.relievable(state, |context| task.run(context, start));
                let Some(mine) = back else { return Err(End::Relieved(Some((task, ran.next)))) };
                state = mine;
                now = clock::cycles();
                #[cfg(feature = "slowdown")]
                if ran.packets > 0 {
                    now = clock::slow_down(start, now);
                }
                if ran.packets > 0 {
                    task.took(ran.packets, now.wrapping_sub(start), state.turn);
                }
                match state.put_back(s, task, ran, now) {
                    AfterRun::StayAwake => i += 1,
                    AfterRun::LeaveAwake => {
                        state.awake.swap_remove(i);
                    }
                    AfterRun::SetSignals(task, on, stays) => {
                        state = self.set_signalled(state, s, task, on, ran.next)?;
                        if stays {
                            i += 1;
                        } else {
                            state.awake.swap_remove(i);
                        }
                    }
                }
                if self.context.has_rings() {
                    // After the task: a slow signal must not hold up the sender of these packets.
                    let (back, ()) = self.relievable(state, Context::ring);
                    state = back.ok_or(End::Relieved(None))?;
                    now = clock::cycles();
                    if self.context.tools.notifier.take_woke() {
                        // Perhaps a task of this worker, for which the next packets are to find room.
                        listened = now.wrapping_sub(state.listen).wrapping_sub(1);
                    }
                }
                if ran.packets > 0 || ran.next != Next::Round {
                    let busy = now.wrapping_sub(start);
                    bump(&self.context.counters.busy_cycles, busy);
                    state.moderation.count(ran.packets, self.context.tools.smallest_ring, busy, now);
                    dry &= ran.packets == 0;
                }
            }

            if state.awake.is_empty() && !state.poll_forever {
                self.sleep(&mut state, now);
                state = self.wake_signalled(state)?;
                now = clock::cycles();
                listened = now;
            } else if dry && state.moderation.rests(now) {
                state.rest(now);
                bump(&self.context.counters.wakeups, 1);
                // Other queues may have been signalled meanwhile.
                state.listen(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
                state = self.wake_signalled(state)?;
                now = clock::cycles();
                listened = now;
            } else if now.wrapping_sub(listened) > state.listen {
                state.listen(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
                state = self.wake_signalled(state)?;
                now = clock::cycles();
                listened = now;
            } else if state.awake.is_empty() {
                core::hint::spin_loop();
                now = clock::cycles();
            }
        }
    }

    /// Runs `work`, in which a client can hold this thread up, with the worker's state handed off. Returns `None` in
    /// its place if another thread has taken over.
    #[inline]
    fn relievable<R>(
        &mut self,
        state: Box<WorkerState>,
        work: impl FnOnce(&mut Context) -> R,
    ) -> (Option<Box<WorkerState>>, R) {
        self.info.begin(state);
        let guard = self.vital.guard();
        let result = work(&mut self.context);
        std::mem::forget(guard);
        (self.info.handoff.take(), result)
    }

    /// The same for work on a task other than its run.
    #[inline]
    fn relievable_for<R>(
        &mut self,
        state: Box<WorkerState>,
        task: &mut Task,
        work: impl FnOnce(&mut Task) -> R,
    ) -> (Option<Box<WorkerState>>, R) {
        match task.client() {
            Some(client) => self.info.activity.enter(client),
            None => self.info.activity.leave(),
        }
        self.relievable(state, |_| work(task))
    }

    /// Signals receivers that another thread left to this one.
    fn signal(&mut self, state: Box<WorkerState>, receivers: Vec<Signal>) -> Result<Box<WorkerState>, End> {
        let (back, ()) = self.relievable(state, |context| {
            context.tools.notifier.add_all(receivers);
            context.ring();
        });
        back.ok_or(End::Relieved(None))
    }

    fn wake_up(&self) {
        self.reclaim.quiescence.wake(self.info.number);
        self.watchdog.ring();
    }

    /// Blocks until a task is signalled, a task's time has come, or a command arrives.
    fn sleep(&self, state: &mut WorkerState, now: u64) {
        self.reclaim.quiescence.sleep(self.info.number);
        if state.may_sleep(now) {
            state.listen(None);
            bump(&self.context.counters.wakeups, 1);
        }
        state.end_sleep();
        self.wake_up();
    }

    /// Enables or disables the signals of slot `s`'s task, which is lent, and puts it back.
    #[cold]
    fn set_signalled(
        &mut self,
        state: Box<WorkerState>,
        s: usize,
        mut task: Task,
        on: bool,
        next: Next,
    ) -> Result<Box<WorkerState>, End> {
        let (back, ()) = self.relievable_for(state, &mut task, |task| task.set_signalled(on));
        match back {
            Some(mut state) => {
                state.return_to(s, task);
                Ok(state)
            }
            None => Err(End::Relieved(Some((task, next)))),
        }
    }

    /// Wakes the tasks that were signalled.
    fn wake_signalled(&mut self, mut state: Box<WorkerState>) -> Result<Box<WorkerState>, End> {
        while let Some(s) = state.signalled.pop() {
            if state.wake(s)
                && let Some(task) = state.lend(s)
            {
                state = self.set_signalled(state, s, task, false, Next::Round)?;
            }
        }
        Ok(state)
    }

    /// Executes the pending commands.
    #[cold]
    fn run_commands(&mut self, mut state: Box<WorkerState>) -> Result<Box<WorkerState>, End> {
        state.take_commands();
        while let Some(command) = state.next_command() {
            match command {
                Command::Add(task) => state = self.add(state, task)?,
                Command::Remove(token, reply) => {
                    if let Some(mut task) = state.remove(token, &reply) {
                        let (back, ()) = self.unwatch(state, &mut task);
                        // The caller waits for this, or has given up waiting.
                        if let Err(task) = reply.give(task) {
                            self.reclaim.retire_later(task);
                        }
                        state = back.ok_or(End::Relieved(None))?;
                    }
                }
                Command::Move(token, reply) => {
                    if let Some((s, mut task)) = state.lend_to_move(token, &reply) {
                        let epoll = state.epoll.clone();
                        let (back, ()) = self.unwatch(state, &mut task);
                        let Some(mine) = back else {
                            // Another thread has the state, and in it the slot of the task, which stays.
                            reply.lent();
                            let next = watch(&epoll, s, &mut task);
                            return Err(End::Relieved(Some((task, next))));
                        };
                        state = mine;
                        state.release(s);
                        // The caller has given up waiting: the task stays.
                        if let Err(task) = reply.give(task) {
                            state = self.add(state, task)?;
                        }
                    }
                }
                Command::BringBack(task, next) => match state.bring_back(task, next) {
                    Ok(()) => {}
                    Err((mut task, requester)) => {
                        let (back, ()) = self.unwatch(state, &mut task);
                        if let Err(task) = requester.give(task) {
                            self.reclaim.retire_later(task);
                        }
                        state = back.ok_or(End::Relieved(None))?;
                    }
                },
                Command::HandBack(to) => match to.send(state) {
                    Ok(()) => return Err(End::HandedBack),
                    Err(unsent) => state = unsent.0,
                },
                Command::Ring(receivers) => state = self.signal(state, receivers)?,
                Command::Stop => return Err(End::Stopped),
            }
        }
        Ok(state)
    }

    fn add(&mut self, mut state: Box<WorkerState>, mut task: Task) -> Result<Box<WorkerState>, End> {
        let (s, epoll) = (state.reserve(task.token()), state.epoll.clone());
        let (back, next) = self.relievable_for(state, &mut task, |task| watch(&epoll, s, task));
        let Some(mut state) = back else { return Err(End::Relieved(Some((task, next)))) };
        state.return_to(s, task);
        state.admit(s, next);
        Ok(state)
    }

    /// Stops watching the doorbell of a task that leaves.
    fn unwatch(&mut self, state: Box<WorkerState>, task: &mut Task) -> (Option<Box<WorkerState>>, ()) {
        let epoll = state.epoll.clone();
        self.relievable_for(state, task, |task| {
            if let Some(doorbell) = task.doorbell() {
                let _ = epoll::delete(&epoll, doorbell);
            }
        })
    }
}

/// Watches the doorbell of a task that comes to slot `s`. Returns when it is to run. A client can hold the thread up.
fn watch(epoll: &OwnedFd, s: usize, task: &mut Task) -> Next {
    let ((data, flags), first) = (WorkerState::watched_as(s), task.first());
    let watched = task.doorbell().map_or(Ok(()), |doorbell| epoll::add(epoll, doorbell, data, flags));
    if let Err(error) = watched {
        task.fail(Fault::Notify(error));
        return Next::Never;
    }
    if first == Next::Round {
        // Packets may have arrived before epoll watched the doorbell.
        task.set_signalled(false);
    }
    first
}

/// Body of a worker's own thread: it serves, and takes over again after a stand-in has served for it.
pub(crate) fn work(runner: &mut Runner, mut state: Box<WorkerState>, stopped: impl Fn() -> bool) {
    let commands = state.commands.clone();
    while let End::Relieved(left) = runner.serve(state) {
        bring_back(&commands, left);
        let (to, handed_back) = sync_channel(1);
        commands.send(Command::HandBack(to));
        state = loop {
            // A worker that has meanwhile stopped does not answer.
            match handed_back.recv_timeout(Duration::from_millis(100)) {
                Ok(state) => break state,
                Err(_) if stopped() => return,
                Err(_) => {}
            }
        };
    }
}

/// Returns the task that a relieved thread kept.
pub(crate) fn bring_back(commands: &Commands, left: Option<(Task, Next)>) {
    if let Some((task, next)) = left {
        commands.send(Command::BringBack(task, next));
    }
}

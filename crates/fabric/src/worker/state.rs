//! State of a worker: its tasks, which of them are awake, and everything else that another thread needs to take over.
//!
//! One thread owns it at a time. The owner lends itself a task in order to run it. A thread that is relieved meanwhile
//! ([`crate::worker::watchdog`]) keeps that one task only, and returns it when it can.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::clock;
use crate::counters::WorkerCounters;
use crate::wake::doorbell::EventBell;
use crate::wake::notifier::MOST;
use crate::worker::activity::Signal;
use crate::worker::handle::{Command, Commands};
use crate::worker::moderation::Moderation;
use crate::worker::request::Reply;
use crate::worker::run::Pace;
use crate::worker::tasks::{Next, Ran, Task, Token};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Run every round; the sender does not signal.
    Polled,
    /// Run every round, since this time; the sender signals.
    Watched(u64),
    /// Not run until signalled.
    Asleep,
    /// Not run before its time, unless it is signalled, if its sender signals.
    Waiting { signals: bool },
    /// Failed: never run again, awaits removal.
    Dead,
}

struct Slot {
    token: Token,
    /// `None` while lent.
    task: Option<Task>,
    phase: Phase,
    last_packets: u64,
    /// Receives the task as soon as it is returned.
    requester: Option<Reply>,
}

/// State of a worker. See the module.
pub(crate) struct WorkerState {
    pub(crate) commands: Arc<Commands>,
    pub(crate) counters: Arc<WorkerCounters>,
    /// Commands taken from the mailbox and not yet executed.
    pending: VecDeque<Command>,
    /// Receivers that the previous thread has collected but may be late to signal.
    pub(crate) unsent: Vec<Signal>,
    /// Slots that were signalled, their tasks not yet told.
    pub(crate) signalled: Vec<usize>,
    /// The doorbell of `commands` rang while the worker was going to sleep, or `pending` holds commands.
    rung: bool,
    pub(crate) epoll: Arc<OwnedFd>,
    slots: Vec<Option<Slot>>,
    /// Slots that are polled or watched.
    pub(crate) awake: Vec<usize>,
    /// Waiting slots, by time.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// Wakes the worker at the earliest of these times.
    timer: OwnedFd,
    linger: u64,
    watch: u64,
    pub(crate) listen: u64,
    pub(crate) turn: u64,
    pub(crate) poll_forever: bool,
    pub(crate) moderation: Moderation,
}

// Event data other than slot numbers.
const COMMANDS: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

/// Edge-triggered: a client's descriptor is never read, so nothing that the client does to it can block a worker.
const EDGE: EventFlags = EventFlags::IN.union(EventFlags::ET);

/// Decision about a task after its run.
pub(crate) enum AfterRun {
    /// Keep it among the tasks that run every round.
    StayAwake,
    /// Remove it from them.
    LeaveAwake,
    /// Enable or disable its signals (first flag) before it returns to its slot; then keep it awake or not (second
    /// flag).
    SetSignals(Task, bool, bool),
}

impl WorkerState {
    /// State of a worker without tasks.
    pub(crate) fn new(pace: Pace) -> std::io::Result<Box<Self>> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let commands = Arc::new(Commands::new(EventBell::new()?));
        epoll::add(&epoll, commands.doorbell.bell(), EventData::new_u64(COMMANDS), EDGE)?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EDGE)?;
        Ok(Box::new(Self {
            commands,
            counters: Arc::default(),
            pending: VecDeque::new(),
            unsent: Vec::with_capacity(MOST),
            signalled: Vec::new(),
            rung: false,
            epoll,
            slots: Vec::new(),
            awake: Vec::new(),
            waiting: BinaryHeap::new(),
            timer,
            linger: clock::from_duration(pace.linger),
            watch: clock::from_duration(pace.watch),
            listen: clock::from_duration(pace.listen),
            turn: clock::from_duration(pace.turn),
            poll_forever: pace.poll_forever,
            moderation: Moderation::new(&pace),
        }))
    }

    /// Whether commands may be pending.
    #[inline]
    pub(crate) fn has_commands(&self) -> bool {
        self.rung || self.commands.doorbell.answer()
    }

    /// Takes the commands from the mailbox.
    pub(crate) fn take_commands(&mut self) {
        // Until all are executed, by whichever thread.
        self.rung = true;
        self.pending.extend(self.commands.take());
    }

    /// The next command taken from the mailbox.
    pub(crate) fn next_command(&mut self) -> Option<Command> {
        let command = self.pending.pop_front();
        self.rung = command.is_some();
        command
    }

    /// Prepares to sleep; returns whether the worker may block in epoll.
    pub(crate) fn may_sleep(&mut self, now: u64) -> bool {
        self.rung = self.commands.doorbell.arm();
        !self.rung && self.signalled.is_empty() && self.set_timer(now)
    }

    /// Ends the sleep.
    pub(crate) fn end_sleep(&mut self) {
        self.rung |= self.commands.doorbell.disarm();
    }

    /// Sets the timer for the earliest waiting task. Returns false if its time has come.
    fn set_timer(&self, now: u64) -> bool {
        let Some(Reverse((time, _))) = self.waiting.peek() else { return true };
        let Some(left) = time.checked_sub(now).filter(|left| *left > 0) else { return false };
        let left = clock::to_duration(left);
        let it_value =
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        // Valid times never fail; a worker without a timer polls.
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).is_ok()
    }

    /// Wakes the tasks whose time has come.
    #[inline]
    pub(crate) fn end_waits(&mut self, now: u64) {
        while let Some(Reverse((time, s))) = self.waiting.peek().copied()
            && time <= now
        {
            self.waiting.pop();
            if let Some(Some(slot)) = self.slots.get_mut(s) {
                slot.phase = match slot.phase {
                    Phase::Waiting { signals: true } => Phase::Watched(now),
                    _ => Phase::Polled,
                };
                slot.last_packets = now;
                self.awake.push(s);
            }
        }
    }

    /// Collects signalled slots; with `None`, blocks until there is an event.
    pub(crate) fn listen(&mut self, timeout: Option<&Timespec>) {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 64];
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, timeout) else {
            return; // interrupted
        };
        // Commands and the timer are checked in any case; their event data are not slot numbers.
        let slots = self.slots.len();
        self.signalled.extend(events.iter().map(|event| event.data.u64() as usize).filter(|s| *s < slots));
    }

    /// Blocks while packets gather: for a rest, or until a waiting task is due.
    pub(crate) fn rest(&mut self, now: u64) {
        let due = self.waiting.peek().map(|Reverse((time, _))| *time);
        self.moderation.rest(now, due);
    }

    /// Wakes slot `s`, which was signalled. Returns whether to disable its task's signals.
    pub(crate) fn wake(&mut self, s: usize) -> bool {
        let Some(Some(slot)) = self.slots.get_mut(s) else { return false };
        match slot.phase {
            Phase::Asleep => self.awake.push(s),
            // The signal may have cleared the sender's notification request; it is renewed before the task sleeps.
            Phase::Watched(_) => {}
            Phase::Waiting { signals: true } => {
                // Its time no longer counts; tasks that wait are few.
                self.waiting.retain(|Reverse((_, waiting))| *waiting != s);
                self.awake.push(s);
            }
            Phase::Polled | Phase::Waiting { .. } | Phase::Dead => return false,
        }
        slot.phase = Phase::Polled;
        slot.last_packets = clock::cycles();
        true
    }

    /// Takes the task out of slot `s`, to be [returned](WorkerState::return_to).
    #[inline]
    pub(crate) fn lend(&mut self, s: usize) -> Option<Task> {
        self.slots.get_mut(s)?.as_mut()?.task.take()
    }

    /// The lent tasks: the owner's, and those of relieved threads.
    pub(crate) fn lent(&self) -> impl Iterator<Item = Token> {
        self.slots.iter().flatten().filter(|slot| slot.task.is_none()).map(|slot| slot.token)
    }

    /// Returns the lent task to slot `s`.
    pub(crate) fn return_to(&mut self, s: usize, task: Task) {
        if let Some(Some(slot)) = self.slots.get_mut(s) {
            slot.task = Some(task);
        }
    }

    /// Returns the task to slot `s` after its run and decides how it goes on, unless its signals must be set first.
    #[inline]
    pub(crate) fn put_back(&mut self, s: usize, task: Task, ran: Ran, now: u64) -> AfterRun {
        let Some(Some(slot)) = self.slots.get_mut(s) else { return AfterRun::LeaveAwake };
        if ran.packets > 0 && ran.next == Next::Round && slot.phase == Phase::Polled {
            slot.last_packets = now;
            slot.task = Some(task);
            return AfterRun::StayAwake;
        }
        let (stays, signals) = match ran.next {
            Next::At(time) => {
                let watched = matches!(slot.phase, Phase::Watched(_));
                slot.phase = Phase::Waiting { signals: false };
                self.waiting.push(Reverse((time, s)));
                (false, watched.then_some(false))
            }
            Next::Before(time) => {
                slot.phase = Phase::Waiting { signals: true };
                self.waiting.push(Reverse((time, s)));
                (false, Some(true))
            }
            Next::Never => {
                slot.phase = Phase::Dead;
                (false, None)
            }
            Next::Round if ran.packets > 0 => {
                slot.last_packets = now;
                slot.phase = Phase::Polled;
                (true, Some(false))
            }
            Next::Round => match slot.phase {
                Phase::Polled if !task.is_cheap_to_poll() => {
                    slot.phase = Phase::Asleep;
                    (false, None)
                }
                Phase::Polled
                    if now.wrapping_sub(slot.last_packets) > self.linger
                        && !self.poll_forever
                        && !self.moderation.polls_on(now) =>
                {
                    slot.phase = Phase::Watched(now);
                    (true, Some(true))
                }
                Phase::Watched(since) if now.wrapping_sub(since) > self.watch => {
                    slot.phase = Phase::Asleep;
                    (false, None)
                }
                Phase::Polled | Phase::Watched(_) => (true, None),
                Phase::Asleep | Phase::Waiting { .. } | Phase::Dead => (false, None),
            },
        };
        if let Some(on) = signals {
            return AfterRun::SetSignals(task, on, stays);
        }
        slot.task = Some(task);
        if stays { AfterRun::StayAwake } else { AfterRun::LeaveAwake }
    }

    /// Reserves a slot for a new task, which runs once [admitted](WorkerState::admit).
    pub(crate) fn reserve(&mut self, token: Token) -> usize {
        let free = self.slots.iter().position(Option::is_none);
        let s = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[s] = Some(Slot {
            token,
            task: None,
            phase: Phase::Dead,
            last_packets: clock::cycles(),
            requester: None,
        });
        self.awake.reserve(self.slots.len());
        self.waiting.reserve(self.slots.len());
        s
    }

    /// Schedules slot `s`, whose task is new or returned, as `next` asks.
    pub(crate) fn admit(&mut self, s: usize, next: Next) {
        self.forget(s);
        let Some(Some(slot)) = self.slots.get_mut(s) else { return };
        slot.last_packets = clock::cycles();
        slot.phase = match next {
            Next::Never => Phase::Dead,
            // The doorbell of a task that comes is not armed.
            Next::At(time) | Next::Before(time) => {
                self.waiting.push(Reverse((time, s)));
                Phase::Waiting { signals: false }
            }
            Next::Round => {
                self.awake.push(s);
                Phase::Polled
            }
        };
    }

    /// Event data and flags for a slot's doorbell.
    pub(crate) fn watched_as(s: usize) -> (EventData, EventFlags) {
        (EventData::new_u64(s as u64), EDGE)
    }

    /// Empties slot `s`.
    pub(crate) fn release(&mut self, s: usize) {
        self.forget(s);
        if let Some(slot) = self.slots.get_mut(s) {
            *slot = None;
        }
    }

    fn forget(&mut self, s: usize) {
        self.awake.retain(|awake| *awake != s);
        self.waiting.retain(|Reverse((_, waiting))| *waiting != s);
        self.signalled.retain(|signalled| *signalled != s);
    }

    fn find(&self, token: Token) -> Option<usize> {
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(|slot| slot.token == token))
    }

    /// Removes a task for the caller that waits for `reply`, and returns it unless it is lent. A lent task is removed
    /// when it is returned.
    pub(crate) fn remove(&mut self, token: Token, reply: &Reply) -> Option<Task> {
        let Some(s) = self.find(token) else {
            reply.absent();
            return None;
        };
        let task = self.lend(s);
        if task.is_some() {
            self.release(s);
            return task;
        }
        self.forget(s);
        if let Some(Some(slot)) = self.slots.get_mut(s) {
            slot.phase = Phase::Dead;
            slot.requester = Some(reply.clone());
        }
        reply.lent();
        None
    }

    /// Takes a task that is to move out of its slot, for the caller that waits for `reply`. A lent task stays. The slot
    /// is [released](WorkerState::release) once the task has left.
    pub(crate) fn lend_to_move(&mut self, token: Token, reply: &Reply) -> Option<(usize, Task)> {
        let Some(s) = self.find(token) else {
            reply.absent();
            return None;
        };
        let task = self.lend(s);
        if task.is_none() {
            reply.lent();
        }
        Some((s, task?))
    }

    /// Takes back the task of a thread that was relieved. `Err`: it goes to the caller that asked for it.
    pub(crate) fn bring_back(&mut self, task: Task, next: Next) -> Result<(), (Task, Reply)> {
        // The slot is reserved until the task is back.
        let Some(s) = self.find(task.token()) else { return Ok(()) };
        match self.slots.get_mut(s).and_then(|slot| slot.as_mut()?.requester.take()) {
            Some(requester) => {
                self.release(s);
                Err((task, requester))
            }
            None => {
                self.return_to(s, task);
                self.admit(s, next);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bridge::published::PublishedBridge;
    use crate::bridge::state::BridgeState;
    use crate::decide::batch::Batch;
    use crate::decide::logic::SwitchLogic;
    use crate::worker::tasks::inject::{Inject, Injector};

    struct Nothing;

    impl SwitchLogic for Nothing {
        fn forward(&self, _: &mut Batch<'_>) {}
    }

    /// A worker with two tasks that were awake just now, and their slots.
    fn worker(bridge: &Arc<PublishedBridge>) -> (Box<WorkerState>, [usize; 2]) {
        let mut state = WorkerState::new(Pace::default()).unwrap();
        let slots = [1, 2].map(|token| {
            let task = Inject::new(&Injector::new().unwrap(), bridge.clone(), token);
            let s = state.reserve(token);
            state.return_to(s, Task::Inject(Box::new(task)));
            state.admit(s, Next::Round);
            s
        });
        (state, slots)
    }

    /// Ends a run of slot `s`'s task; returns whether the task is still polled.
    fn is_polled_after(state: &mut WorkerState, s: usize, packets: usize, now: u64) -> bool {
        let task = state.lend(s).unwrap();
        match state.put_back(s, task, Ran { packets, next: Next::Round }, now) {
            AfterRun::StayAwake => true,
            AfterRun::SetSignals(task, on, stays) => {
                assert!(stays);
                state.return_to(s, task);
                !on
            }
            AfterRun::LeaveAwake => false,
        }
    }

    #[test]
    fn dry_queues_are_polled_through_a_pause_of_a_dense_load() {
        let bridge = Arc::new(PublishedBridge::new(BridgeState::new(Arc::new(Nothing), vec![], vec![])));
        let micros = |n| clock::from_duration(Duration::from_micros(n));
        for dense in [false, true] {
            let (mut state, [busy, other]) = worker(&bridge);
            let mut now = clock::cycles() + micros(1000);
            for _ in 0..1000 {
                // 0.5 or 5 million packets a second, for half of the time.
                now += micros(20);
                let packets = if dense { 100 } else { 10 };
                assert!(is_polled_after(&mut state, busy, packets, now));
                state.moderation.count(packets, 256, micros(10), now);
                let rests = state.moderation.rests(now);
                assert!(!dense || !rests);
            }
            assert!(!is_polled_after(&mut state, other, 0, now), "the load is another queue's");
            assert!(is_polled_after(&mut state, busy, 0, now + micros(19)));
            assert_eq!(is_polled_after(&mut state, busy, 0, now + micros(21)), dense);
            assert_eq!(is_polled_after(&mut state, busy, 0, now + micros(5000)), dense);
            assert!(!is_polled_after(&mut state, busy, 0, now + micros(10_000)), "for too long");
        }
    }
}

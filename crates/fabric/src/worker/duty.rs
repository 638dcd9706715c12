//! A worker's duty: its tasks, which of them are awake, and what else one thread needs to go on where another one stopped.
//!
//! One thread has it at a time. It lends itself a task to run it; a thread that was relieved meanwhile
//! ([`crate::worker::watchdog`]) still has that one task and nothing else, and brings it back when it can.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::clock;
use crate::counters::WorkerCounters;
use crate::wake::doorbell::EventBell;
use crate::wake::notifier::MOST;
use crate::worker::handle::{Answer, Command, Commands};
use crate::worker::run::Pace;
use crate::worker::site::Signal;
use crate::worker::tasks::{Next, Ran, Task, Token};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Run every round; nobody signals.
    Polled,
    /// Run every round, since the time given; signals come.
    Watched(u64),
    /// Not run until signalled.
    Asleep,
    /// Not run before its time.
    Waiting,
    /// Not run any more; waits for removal.
    Dead,
}

struct Slot {
    token: Token,
    /// `None` while it is lent.
    task: Option<Task>,
    phase: Phase,
    last_packets: u64,
    /// Who wants the task as soon as it is brought back.
    claim: Option<SyncSender<Answer>>,
}

/// See the module.
pub(crate) struct Duty {
    pub(crate) commands: Arc<Commands>,
    pub(crate) counters: Arc<WorkerCounters>,
    /// Commands that were taken from the mailbox and not carried out yet.
    orders: VecDeque<Command>,
    /// Receivers that the thread before was about to signal, for it may be long in coming.
    pub(crate) rings: Vec<Signal>,
    /// Slots that were signalled, which their tasks were not told yet.
    pub(crate) signalled: Vec<usize>,
    /// Whether the doorbell of `commands` was rung while the worker was about to sleep, or there are such commands.
    rung: bool,
    pub(crate) epoll: Arc<OwnedFd>,
    slots: Vec<Option<Slot>>,
    /// Slots that are polled or watched.
    pub(crate) awake: Vec<usize>,
    /// Slots that wait, by their times.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// Wakes the worker at the earliest of these times.
    timer: OwnedFd,
    linger: u64,
    watch: u64,
    pub(crate) listen: u64,
    pub(crate) poll_forever: bool,
}

// What epoll says beside the numbers of slots.
const COMMANDS: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

/// How descriptors are watched: a client's is never read, so that nothing that it does to it can make a worker wait.
const EDGE: EventFlags = EventFlags::IN.union(EventFlags::ET);

/// How a task goes on that ran.
pub(crate) enum Settled {
    /// It is among those that are run every round.
    Stays,
    /// It is not.
    Goes,
    /// First it is to be told whether to ask for signals; after that it is among those, or not.
    Told(Task, bool, bool),
}

impl Duty {
    /// That of a worker without tasks.
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
            orders: VecDeque::new(),
            rings: Vec::with_capacity(MOST),
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
            poll_forever: pace.poll_forever,
        }))
    }

    /// Whether there are commands, or may be.
    #[inline]
    pub(crate) fn is_called(&self) -> bool {
        self.rung || self.commands.doorbell.answer()
    }

    /// Takes the commands from the mailbox.
    pub(crate) fn open_mail(&mut self) {
        // Until all are carried out, by whatever thread.
        self.rung = true;
        self.orders.extend(self.commands.take());
    }

    /// The next command that was taken from there.
    pub(crate) fn next_order(&mut self) -> Option<Command> {
        let order = self.orders.pop_front();
        self.rung = order.is_some();
        order
    }

    /// About to sleep: returns whether there is nothing to do until epoll says so.
    pub(crate) fn may_sleep(&mut self, now: u64) -> bool {
        self.rung = self.commands.doorbell.arm();
        !self.rung && self.signalled.is_empty() && self.set_timer(now)
    }

    /// The sleep is over.
    pub(crate) fn end_sleep(&mut self) {
        self.rung |= self.commands.doorbell.disarm();
    }

    /// Has the timer wake the worker when the next task's time has come. Returns false if it has come.
    fn set_timer(&self, now: u64) -> bool {
        let Some(Reverse((time, _))) = self.waiting.peek() else { return true };
        let Some(left) = time.checked_sub(now).filter(|left| *left > 0) else { return false };
        let left = clock::to_duration(left);
        let it_value =
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        // Fails for no time that there is; a worker that could not sleep until then polls.
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).is_ok()
    }

    /// Has the tasks run whose time has come.
    #[inline]
    pub(crate) fn end_waits(&mut self, now: u64) {
        while let Some(Reverse((time, s))) = self.waiting.peek().copied()
            && time <= now
        {
            self.waiting.pop();
            if let Some(Some(slot)) = self.slots.get_mut(s) {
                slot.phase = Phase::Polled;
                slot.last_packets = now;
                self.awake.push(s);
            }
        }
    }

    /// Asks who was signalled; with `None`, waits until somebody was.
    pub(crate) fn listen(&mut self, timeout: Option<&Timespec>) {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 64];
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, timeout) else {
            return; // interrupted
        };
        // Commands and the timer are looked at in any case: `slots` has no such numbers.
        let slots = self.slots.len();
        self.signalled.extend(events.iter().map(|event| event.data.u64() as usize).filter(|s| *s < slots));
    }

    /// Has slot `s` run, which was signalled. Returns whether its task is to be told that signals are not needed now.
    pub(crate) fn rouse(&mut self, s: usize) -> bool {
        let Some(Some(slot)) = self.slots.get_mut(s) else { return false };
        match slot.phase {
            Phase::Asleep => self.awake.push(s),
            // Who signals may have taken back the request to do so: it is made anew before the task sleeps.
            Phase::Watched(_) => {}
            Phase::Polled | Phase::Waiting | Phase::Dead => return false,
        }
        slot.phase = Phase::Polled;
        slot.last_packets = clock::cycles();
        true
    }

    /// Takes the task out of slot `s`, to be [returned](Duty::return_to).
    #[inline]
    pub(crate) fn lend(&mut self, s: usize) -> Option<Task> {
        self.slots.get_mut(s)?.as_mut()?.task.take()
    }

    /// Returns the task of slot `s`, which was lent.
    pub(crate) fn return_to(&mut self, s: usize, task: Task) {
        if let Some(Some(slot)) = self.slots.get_mut(s) {
            slot.task = Some(task);
        }
    }

    /// Returns the task of slot `s` after it ran, unless it is to be told something first, and decides how it goes on.
    #[inline]
    pub(crate) fn put_back(&mut self, s: usize, task: Task, ran: Ran, now: u64) -> Settled {
        let Some(Some(slot)) = self.slots.get_mut(s) else { return Settled::Goes };
        if ran.packets > 0 && ran.next == Next::Round && slot.phase == Phase::Polled {
            slot.last_packets = now;
            slot.task = Some(task);
            return Settled::Stays;
        }
        let (stays, signals) = match ran.next {
            Next::At(time) => {
                let watched = matches!(slot.phase, Phase::Watched(_));
                slot.phase = Phase::Waiting;
                self.waiting.push(Reverse((time, s)));
                (false, watched.then_some(false))
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
                Phase::Polled if !self.poll_forever && now.wrapping_sub(slot.last_packets) > self.linger => {
                    slot.phase = Phase::Watched(now);
                    (true, Some(true))
                }
                Phase::Watched(since) if now.wrapping_sub(since) > self.watch => {
                    slot.phase = Phase::Asleep;
                    (false, None)
                }
                Phase::Polled | Phase::Watched(_) => (true, None),
                Phase::Asleep | Phase::Waiting | Phase::Dead => (false, None),
            },
        };
        if let Some(on) = signals {
            return Settled::Told(task, on, stays);
        }
        slot.task = Some(task);
        if stays { Settled::Stays } else { Settled::Goes }
    }

    /// Makes a slot for a task that is about to be put there. It is run when it is [woken](Duty::admit).
    pub(crate) fn reserve(&mut self, token: Token) -> usize {
        let free = self.slots.iter().position(Option::is_none);
        let s = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[s] =
            Some(Slot { token, task: None, phase: Phase::Dead, last_packets: clock::cycles(), claim: None });
        self.awake.reserve(self.slots.len());
        self.waiting.reserve(self.slots.len());
        s
    }

    /// Has slot `s`, whose task is new or was brought back, run from now on as the task wants it.
    pub(crate) fn admit(&mut self, s: usize, next: Next) {
        self.forget(s);
        let Some(Some(slot)) = self.slots.get_mut(s) else { return };
        slot.last_packets = clock::cycles();
        slot.phase = match next {
            Next::Never => Phase::Dead,
            Next::At(time) => {
                self.waiting.push(Reverse((time, s)));
                Phase::Waiting
            }
            Next::Round => {
                self.awake.push(s);
                Phase::Polled
            }
        };
    }

    /// How a slot's doorbell is watched.
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

    /// Takes a task away, for who waits for `reply`: for good, also if it is lent now, or only if it is not. Returns it if it is
    /// here.
    pub(crate) fn remove(
        &mut self,
        token: Token,
        reply: &SyncSender<Answer>,
        for_good: bool,
    ) -> Option<Task> {
        let Some(s) = self.find(token) else {
            let _ = reply.send(Answer::Here(None));
            return None;
        };
        let task = self.lend(s);
        if task.is_some() {
            self.release(s);
            return task;
        }
        if for_good {
            self.forget(s);
            if let Some(Some(slot)) = self.slots.get_mut(s) {
                slot.phase = Phase::Dead;
                slot.claim = Some(reply.clone());
            }
        }
        let _ = reply.send(Answer::Lent);
        None
    }

    /// A thread that was relieved brings back the task that it had. `Err`: it goes to who wants it.
    pub(crate) fn bring_back(&mut self, task: Task, next: Next) -> Result<(), (Task, SyncSender<Answer>)> {
        // Its slot is there until it is back.
        let Some(s) = self.find(task.token()) else { return Ok(()) };
        match self.slots.get_mut(s).and_then(|slot| slot.as_mut()?.claim.take()) {
            Some(claim) => {
                self.release(s);
                Err((task, claim))
            }
            None => {
                self.return_to(s, task);
                self.admit(s, next);
                Ok(())
            }
        }
    }
}

//! Workers: the threads that switch. A worker owns *tasks* (`tasks/`) and runs each batch of theirs to completion.
//!
//! CPU follows load. A queue is *polled* while packets come, with its sender told not to signal. When it has
//! been dry for [`Pace::linger`] the sender is asked to signal again, and the queue is *watched* for
//! [`Pace::watch`] more, because clients exist that publish a packet and read our request without a fence
//! between; then it is left *asleep* and costs nothing. A task that waits for a time is not looked at before. A worker whose
//! tasks all sleep or wait blocks in epoll, until the earliest of these times at most. While any task is awake, epoll is asked
//! every [`Pace::listen`] who else was signalled.
//!
//! Signals are edge-triggered, so a client's eventfd is never read: whatever a client does to its blocking
//! mode or counter, the worker cannot wait on it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::bridge::quiescence::Quiescence;
use crate::clock;
use crate::counters::{WorkerCounters, bump};
use crate::fault::Fault;
use crate::rx::BatchLimits;
use crate::vital::Vital;
use crate::wake::doorbell::EventBell;
use crate::worker::handle::{Command, Commands, WorkerHandle};
use crate::worker::tasks::{Context, Next, Ran, Task, Token};

/// When a worker stops polling.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How long a dry queue is polled before its sender is asked to signal.
    pub linger: Duration,
    /// How long it is watched after that.
    pub watch: Duration,
    /// How often a busy worker asks which sleeping queues were signalled.
    pub listen: Duration,
    /// Never ask for signals, never sleep.
    pub poll_forever: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            linger: Duration::from_micros(20),
            watch: Duration::from_micros(20),
            listen: Duration::from_micros(20),
            poll_forever: false,
        }
    }
}

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
    task: Task,
    phase: Phase,
    last_packets: u64,
}

struct Worker {
    index: usize,
    quiescence: Arc<Quiescence>,
    commands: Arc<Commands>,
    /// Whether the doorbell of `commands` was rung while the worker was about to sleep.
    rung: bool,
    epoll: OwnedFd,
    slots: Vec<Option<Slot>>,
    /// Slots that are polled or watched.
    awake: Vec<usize>,
    /// Slots that wait, by their times.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// Wakes the worker at the earliest of these times.
    timer: OwnedFd,
    context: Context,
    linger: u64,
    watch: u64,
    listen: u64,
    poll_forever: bool,
}

// What epoll says beside the numbers of slots.
const COMMANDS: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

/// Starts worker `index`, pinned to `cpu` if given.
pub(crate) fn start(
    index: usize,
    cpu: Option<usize>,
    limits: BatchLimits,
    pace: Pace,
    quiescence: Arc<Quiescence>,
) -> std::io::Result<WorkerHandle> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let edge = EventFlags::IN | EventFlags::ET;
    let commands = Arc::new(Commands::new(EventBell::new()?));
    epoll::add(&epoll, commands.doorbell.bell(), EventData::new_u64(COMMANDS), edge)?;
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    epoll::add(&epoll, &timer, EventData::new_u64(TIMER), edge)?;
    let counters = Arc::new(WorkerCounters::default());
    let mut worker = Worker {
        index,
        quiescence,
        commands: commands.clone(),
        rung: false,
        epoll,
        slots: Vec::new(),
        awake: Vec::new(),
        waiting: BinaryHeap::new(),
        timer,
        context: Context::new(index, limits, counters.clone())?,
        linger: clock::from_duration(pace.linger),
        watch: clock::from_duration(pace.watch),
        listen: clock::from_duration(pace.listen),
        poll_forever: pace.poll_forever,
    };
    let (started, answer) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name(format!("mswitch-w{index}")).spawn(move || {
        let pinned = cpu.map_or(Ok(()), pin);
        let go = pinned.is_ok();
        let _ = started.send(pinned);
        if go {
            let who = format!("worker {}", worker.index);
            // Dropped before the worker: by then its tasks are as the panic left them, and dropping them could wait.
            let _vital = Vital::new(who, "the control plane would wait for it for ever");
            worker.run();
        }
    })?;
    match answer.recv() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            return Err(std::io::Error::new(
                error.kind(),
                format!("worker {index} cannot run on CPU {}: {error}", cpu.unwrap_or(0)),
            ));
        }
        Err(_) => return Err(std::io::Error::other(format!("worker {index} did not start"))),
    }
    let node = cpu.and_then(node_of);
    Ok(WorkerHandle { cpu, node, counters, commands, thread: Some(thread) })
}

fn pin(cpu: usize) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "no such CPU"));
    }
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// The NUMA node of a CPU, if the kernel knows of nodes.
fn node_of(cpu: usize) -> Option<usize> {
    let entries = std::fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}")).ok()?;
    let node = |name: std::ffi::OsString| name.to_str()?.strip_prefix("node")?.parse().ok();
    entries.flatten().find_map(|entry| node(entry.file_name()))
}

impl Worker {
    fn run(&mut self) {
        self.quiescence.wake(self.index);
        let mut now = clock::cycles();
        let mut listened = now;
        loop {
            if (self.commands.doorbell.answer() || self.rung) && !self.obey() {
                self.quiescence.sleep(self.index);
                return;
            }
            self.quiescence.pass(self.index);
            self.end_waits(now);

            let mut i = 0;
            while let Some(&s) = self.awake.get(i) {
                let start = now;
                let Some(Some(slot)) = self.slots.get_mut(s) else { break };
                let ran = slot.task.run(&mut self.context, now);
                now = clock::cycles();
                if ran.packets > 0 || ran.next != Next::Round {
                    bump(&self.context.counters.busy_cycles, now.wrapping_sub(start));
                }
                if self.keep_awake(s, ran, now) {
                    i += 1;
                } else {
                    self.awake.swap_remove(i);
                }
            }

            if self.awake.is_empty() && !self.poll_forever {
                self.sleep(now);
                now = clock::cycles();
                listened = now;
            } else if now.wrapping_sub(listened) > self.listen {
                self.listen(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
                now = clock::cycles();
                listened = now;
            } else if self.awake.is_empty() {
                core::hint::spin_loop();
                now = clock::cycles();
            }
        }
    }

    /// Blocks until a task is signalled, the time of one has come, or there is a command.
    fn sleep(&mut self, now: u64) {
        self.quiescence.sleep(self.index);
        self.rung = self.commands.doorbell.arm();
        if !self.rung && self.set_timer(now) {
            self.listen(None);
            bump(&self.context.counters.wakeups, 1);
        }
        self.rung |= self.commands.doorbell.disarm();
        self.quiescence.wake(self.index);
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
    fn end_waits(&mut self, now: u64) {
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

    /// Has the tasks run that were signalled.
    fn listen(&mut self, timeout: Option<&Timespec>) {
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 64];
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, timeout) else {
            return; // interrupted
        };
        for event in events.iter() {
            // Commands and the timer are looked at in any case: `slots` has no such numbers.
            let s = event.data.u64() as usize;
            let Some(Some(slot)) = self.slots.get_mut(s) else { continue };
            match slot.phase {
                Phase::Asleep => self.awake.push(s),
                // Who signals may have taken back the request to do so: it is made anew before the task sleeps.
                Phase::Watched(_) => {}
                Phase::Polled | Phase::Waiting | Phase::Dead => continue,
            }
            slot.phase = Phase::Polled;
            slot.last_packets = clock::cycles();
            slot.task.set_signalled(false);
        }
    }

    /// Whether slot `s` stays among those that are run every round, after its task ran.
    #[inline]
    fn keep_awake(&mut self, s: usize, ran: Ran, now: u64) -> bool {
        let Some(Some(slot)) = self.slots.get_mut(s) else { return false };
        match ran.next {
            Next::Round => {}
            Next::At(time) => {
                if let Phase::Watched(_) = slot.phase {
                    slot.task.set_signalled(false);
                }
                slot.phase = Phase::Waiting;
                self.waiting.push(Reverse((time, s)));
                return false;
            }
            Next::Never => {
                slot.phase = Phase::Dead;
                return false;
            }
        }
        if ran.packets > 0 {
            slot.last_packets = now;
            if slot.phase != Phase::Polled {
                slot.phase = Phase::Polled;
                slot.task.set_signalled(false);
            }
            return true;
        }
        match slot.phase {
            Phase::Polled if !slot.task.is_cheap_to_poll() => {
                slot.phase = Phase::Asleep;
                false
            }
            Phase::Polled => {
                if !self.poll_forever && now.wrapping_sub(slot.last_packets) > self.linger {
                    slot.task.set_signalled(true);
                    slot.phase = Phase::Watched(now);
                }
                true
            }
            Phase::Watched(since) if now.wrapping_sub(since) > self.watch => {
                slot.phase = Phase::Asleep;
                false
            }
            Phase::Watched(_) => true,
            Phase::Asleep | Phase::Waiting | Phase::Dead => false,
        }
    }

    /// Carries out what the control plane asked for. Returns false to stop.
    #[cold]
    fn obey(&mut self) -> bool {
        self.rung = false;
        for command in self.commands.take() {
            match command {
                Command::Add(task) => self.add(task),
                Command::Remove(token, reply) => {
                    let _ = reply.send(self.remove(token));
                }
                Command::Stop => return false,
            }
        }
        true
    }

    fn add(&mut self, mut task: Task) {
        let free = self.slots.iter().position(Option::is_none);
        let s = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let edge = EventFlags::IN | EventFlags::ET;
        if let Some(doorbell) = task.doorbell()
            && let Err(error) = epoll::add(&self.epoll, doorbell, EventData::new_u64(s as u64), edge)
        {
            return task.fail(Fault::Notify(error));
        }
        let phase = match task.first() {
            Next::Never => Phase::Dead,
            Next::At(time) => {
                self.waiting.push(Reverse((time, s)));
                Phase::Waiting
            }
            Next::Round => {
                // Packets may have come before anyone listened.
                task.set_signalled(false);
                self.awake.push(s);
                Phase::Polled
            }
        };
        self.slots[s] = Some(Slot { task, phase, last_packets: clock::cycles() });
        self.awake.reserve(self.slots.len());
        self.waiting.reserve(self.slots.len());
    }

    fn remove(&mut self, token: Token) -> Option<Task> {
        let s = self.slots.iter().position(|s| s.as_ref().is_some_and(|s| s.task.token() == token))?;
        self.awake.retain(|awake| *awake != s);
        self.waiting.retain(|Reverse((_, waiting))| *waiting != s);
        let slot = self.slots.get_mut(s)?.take()?;
        if let Some(doorbell) = slot.task.doorbell() {
            let _ = epoll::delete(&self.epoll, doorbell);
        }
        Some(slot.task)
    }
}

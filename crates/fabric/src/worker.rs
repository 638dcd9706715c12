//! Workers: the threads that switch. A worker owns receive queues and runs each batch to completion.
//!
//! CPU follows load. A queue is *polled* while packets come, with its sender told not to signal. When it has
//! been dry for [`Pace::linger`] the sender is asked to signal again, and the queue is *watched* for
//! [`Pace::watch`] more, because clients exist that publish a packet and read our request without a fence
//! between; then it is left *asleep* and costs nothing. A worker whose queues all sleep blocks in epoll with
//! no timeout. While any queue is awake, epoll is asked every [`Pace::listen`] who else has woken.
//!
//! Signals are edge-triggered, so a client's eventfd is never read: whatever a client does to its blocking
//! mode or counter, the worker cannot wait on it.
//!
//! A logic that wants to be called now and then has an alarm at every worker, a timer that wakes it as a queue does.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use crate::alarm::Alarm;
use crate::clock;
use crate::counters::{WorkerCounters, bump};
use crate::fault::Fault;
use crate::forward::{forward, originate};
use crate::handle::{Command, WorkerHandle};
use crate::intake::Intake;
use crate::nest::Nest;
use crate::notify::Notifier;
use crate::output::Scratchpad;
use crate::quiescence::Quiescence;
use crate::rx::{BatchLimits, RxBatch};
use crate::sync::{AtomicBool, Ordering};
use crate::tools::Tools;

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
    /// Looked at every round; its sender does not signal.
    Polled,
    /// Looked at every round until the time given; its sender signals.
    Watched(u64),
    /// Not looked at until signalled.
    Asleep,
    /// Its client broke the rules; waits for removal.
    Dead,
}

struct Slot {
    intake: Box<Intake>,
    phase: Phase,
    last_packets: u64,
}

struct Worker {
    index: usize,
    quiescence: Arc<Quiescence>,
    counters: Arc<WorkerCounters>,
    commands: Receiver<Command>,
    pending: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    epoll: OwnedFd,
    slots: Vec<Option<Slot>>,
    /// Slots that are polled or watched.
    awake: Vec<usize>,
    alarms: Vec<Option<Box<Alarm>>>,
    /// Those that went off.
    due: Vec<usize>,
    batch: RxBatch,
    pad: Scratchpad,
    tools: Tools,
    linger: u64,
    watch: u64,
    listen: u64,
    poll_forever: bool,
}

const WAKE: u64 = u64::MAX;
/// Marks an alarm's number.
const ALARM: u64 = 1 << 63;

/// Starts worker `index`, pinned to `cpu` if given.
pub(crate) fn start(
    index: usize,
    cpu: Option<usize>,
    limits: BatchLimits,
    pace: Pace,
    quiescence: Arc<Quiescence>,
) -> std::io::Result<WorkerHandle> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    epoll::add(&epoll, &*wake, EventData::new_u64(WAKE), EventFlags::IN | EventFlags::ET)?;
    let (commands, inbox) = channel();
    let pending = Arc::new(AtomicBool::new(false));
    let counters = Arc::new(WorkerCounters::default());
    let worker = Worker {
        index,
        quiescence,
        counters: counters.clone(),
        commands: inbox,
        pending: pending.clone(),
        wake: wake.clone(),
        epoll,
        slots: Vec::new(),
        awake: Vec::new(),
        alarms: Vec::new(),
        due: Vec::new(),
        batch: RxBatch::new(limits),
        pad: Scratchpad::of_worker(index),
        tools: Tools { notifier: Notifier::new()?, nest: Nest::of_worker(index, limits) },
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
    Ok(WorkerHandle { cpu, counters, commands, pending, wake, thread: Some(thread) })
}

fn pin(cpu: usize) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "no such CPU"));
    }
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

impl Worker {
    fn run(mut self) {
        self.quiescence.wake(self.index);
        let mut now = clock::cycles();
        let mut listened = now;
        loop {
            if self.pending.load(Ordering::Acquire) && !self.obey() {
                self.quiescence.sleep(self.index);
                return;
            }
            self.quiescence.pass(self.index);

            let mut i = 0;
            while let Some(&s) = self.awake.get(i) {
                let start = now;
                let packets = self.switch_batch(s);
                now = clock::cycles();
                if packets > 0 {
                    bump(&self.counters.busy_cycles, now.wrapping_sub(start));
                }
                if self.keep_awake(s, packets, now) {
                    i += 1;
                } else {
                    self.awake.swap_remove(i);
                }
            }

            if self.awake.is_empty() && !self.poll_forever {
                self.sleep();
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
            if !self.due.is_empty() {
                self.wake_logics();
                now = clock::cycles();
            }
        }
    }

    /// Blocks until a queue is signalled or a command comes.
    fn sleep(&mut self) {
        self.quiescence.sleep(self.index);
        // A command sent before this look is seen; one sent after it makes `wake` readable.
        if !self.pending.load(Ordering::Acquire) {
            self.listen(None);
            bump(&self.counters.wakeups, 1);
        }
        self.quiescence.wake(self.index);
    }

    /// Wakes the queues that were signalled.
    fn listen(&mut self, timeout: Option<&Timespec>) {
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 64];
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, timeout) else {
            return; // interrupted
        };
        for event in events.iter() {
            let data = event.data.u64();
            if data == WAKE {
                continue;
            }
            if data & ALARM != 0 {
                self.due.push((data & !ALARM) as usize);
                continue;
            }
            let s = data as usize;
            if let Some(Some(slot)) = self.slots.get_mut(s)
                && slot.phase == Phase::Asleep
            {
                slot.phase = Phase::Polled;
                slot.last_packets = clock::cycles();
                slot.intake.queue.set_signalled(false);
                self.awake.push(s);
            }
        }
    }

    /// Whether slot `s` stays among those looked at, after a look that found `packets`.
    #[inline]
    fn keep_awake(&mut self, s: usize, packets: usize, now: u64) -> bool {
        let Some(Some(slot)) = self.slots.get_mut(s) else { return false };
        if packets > 0 {
            slot.last_packets = now;
            if slot.phase != Phase::Polled && slot.phase != Phase::Dead {
                slot.phase = Phase::Polled;
                slot.intake.queue.set_signalled(false);
            }
            return slot.phase != Phase::Dead;
        }
        match slot.phase {
            Phase::Polled if !slot.intake.queue.cheap_to_poll() => {
                slot.phase = Phase::Asleep;
                false
            }
            Phase::Polled => {
                if !self.poll_forever && now.wrapping_sub(slot.last_packets) > self.linger {
                    slot.intake.queue.set_signalled(true);
                    slot.phase = Phase::Watched(now);
                }
                true
            }
            Phase::Watched(since) if now.wrapping_sub(since) > self.watch => {
                slot.phase = Phase::Asleep;
                false
            }
            Phase::Watched(_) => true,
            Phase::Asleep | Phase::Dead => false,
        }
    }

    /// Takes one batch from slot `s` and switches it. Returns its packets.
    #[inline]
    fn switch_batch(&mut self, s: usize) -> usize {
        let Some(Some(slot)) = self.slots.get_mut(s) else { return 0 };
        let intake = &mut *slot.intake;
        self.batch.clear();
        self.batch.queue = intake.number;
        let received = intake.queue.receive(&mut self.batch);
        let packets = self.batch.len();
        if packets > 0 {
            // SAFETY: this worker is awake and `bridge` does not outlive this function.
            let bridge = unsafe { intake.bridge.get() };
            if let Some(arena) = bridge.arena(self.index) {
                // SAFETY: it is this worker's own; this batch has it until it is emptied below, and no other batch of this
                // worker is loaded meanwhile.
                unsafe { self.batch.keep_headers_in(arena) };
            }
            self.batch.load_headers();
            self.tools.nest.begin();
            forward(&mut self.batch, &mut self.pad, &mut self.tools, bridge, intake.ingress);
            intake.counters.add_batch_alone(packets as u64, self.batch.bytes);
            bump(&self.counters.packets, packets as u64);
            bump(&self.counters.batches, 1);
        }
        intake.counters.add_drops(&mut self.batch.drops);
        intake.counters.add_drops(&mut self.pad.drops);
        if let Err(fault) = received.and_then(|()| intake.queue.complete(&mut self.tools)) {
            slot.phase = Phase::Dead;
            intake.dead = true;
            (intake.on_fault)(fault);
        }
        if !self.tools.notifier.is_empty() {
            self.tools.notifier.flush();
            self.counters.notifications.store(self.tools.notifier.told(), Ordering::Relaxed);
        }
        packets
    }

    /// Calls the logics whose time has come.
    #[cold]
    fn wake_logics(&mut self) {
        while let Some(due) = self.due.pop() {
            let Some(Some(alarm)) = self.alarms.get(due) else { continue };
            let start = clock::cycles();
            // A timer goes on only when it was read.
            if rustix::io::read(&alarm.timer, &mut [0; 8]).is_err() {
                continue;
            }
            // SAFETY: this worker is awake and `bridge` does not outlive this function.
            let bridge = unsafe { alarm.bridge.get() };
            self.batch.clear();
            self.batch.queue = 0;
            if let Some(arena) = bridge.arena(self.index) {
                // SAFETY: as in `switch_batch`.
                unsafe { self.batch.keep_headers_in(arena) };
            }
            self.batch.load_headers();
            self.tools.nest.begin();
            originate(&mut self.batch, &mut self.pad, &mut self.tools, bridge);
            alarm.counters.add_drops(&mut self.pad.drops);
            if !self.tools.notifier.is_empty() {
                self.tools.notifier.flush();
                self.counters.notifications.store(self.tools.notifier.told(), Ordering::Relaxed);
            }
            bump(&self.counters.busy_cycles, clock::cycles().wrapping_sub(start));
        }
    }

    /// Carries out what the control plane asked for. Returns false to stop.
    fn obey(&mut self) -> bool {
        // Acquires what was sent before `pending` was set; a plain store could pass the look at the channel.
        self.pending.swap(false, Ordering::AcqRel);
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.wake, &mut count);
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Add(intake) => self.add(intake),
                Command::AddAlarm(alarm) => self.add_alarm(alarm),
                Command::RemoveAlarm(token, reply) => {
                    let _ = reply.send(self.remove_alarm(token));
                }
                Command::Remove(token, reply) => {
                    let _ = reply.send(self.remove(token));
                }
                Command::Stop => return false,
            }
        }
        true
    }

    fn add(&mut self, mut intake: Box<Intake>) {
        let free = self.slots.iter().position(Option::is_none);
        let s = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let flags = EventFlags::IN | EventFlags::ET;
        if let Err(error) =
            epoll::add(&self.epoll, intake.queue.signal(), EventData::new_u64(s as u64), flags)
        {
            return (intake.on_fault)(Fault::Notify(error));
        }
        let phase = if intake.dead {
            Phase::Dead
        } else {
            // Packets may have come before anyone listened.
            intake.queue.set_signalled(false);
            self.awake.push(s);
            Phase::Polled
        };
        self.slots[s] = Some(Slot { intake, phase, last_packets: clock::cycles() });
    }

    fn add_alarm(&mut self, alarm: Box<Alarm>) {
        let free = self.alarms.iter().position(Option::is_none).unwrap_or(self.alarms.len());
        let (data, flags) = (EventData::new_u64(ALARM | free as u64), EventFlags::IN | EventFlags::ET);
        // Without it a logic is not woken; there is nobody else to tell.
        if epoll::add(&self.epoll, &alarm.timer, data, flags).is_ok() {
            if free == self.alarms.len() {
                self.alarms.push(None);
            }
            self.alarms[free] = Some(alarm);
            self.due.reserve(self.alarms.len());
        }
    }

    fn remove_alarm(&mut self, token: u64) -> Option<Box<Alarm>> {
        let there = |alarm: &&mut Option<Box<Alarm>>| alarm.as_ref().is_some_and(|a| a.token() == token);
        let alarm = self.alarms.iter_mut().find(there)?.take()?;
        let _ = epoll::delete(&self.epoll, alarm.timer.as_fd());
        Some(alarm)
    }

    fn remove(&mut self, token: u64) -> Option<Box<Intake>> {
        let s = self.slots.iter().position(|s| s.as_ref().is_some_and(|s| s.intake.token == token))?;
        self.awake.retain(|awake| *awake != s);
        let slot = self.slots.get_mut(s)?.take()?;
        let _ = epoll::delete(&self.epoll, slot.intake.queue.signal().as_fd());
        Some(slot.intake)
    }
}

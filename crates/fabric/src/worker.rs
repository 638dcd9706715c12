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
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::batch::Batch;
use crate::bridge::{BridgeState, PortEntry};
use crate::clock;
use crate::counters::{DropReason, QueueCounters, WorkerCounters, bump};
use crate::crossing::Nest;
use crate::egress::Tools;
use crate::fault::Fault;
use crate::notify::Notifier;
use crate::observe;
use crate::output::Scratchpad;
use crate::port::PortIndex;
use crate::quiescence::Quiescence;
use crate::rx::{BatchLimits, RxBatch, RxQueue};
use crate::sync::{AtomicBool, AtomicPtr, Ordering};

/// Told once when a client costs itself its port. Runs on a worker: it must not block or call the switch.
pub type OnFault = Arc<dyn Fn(Fault) + Send + Sync>;

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

/// Where workers find the current picture of a bridge.
pub(crate) struct BridgeCell(AtomicPtr<BridgeState>);

impl BridgeCell {
    pub(crate) fn new(state: BridgeState) -> Self {
        Self(AtomicPtr::new(Box::into_raw(Box::new(state))))
    }

    /// Publishes a picture. The returned old one may be dropped once all workers were quiescent.
    pub(crate) fn swap(&self, state: BridgeState) -> Box<BridgeState> {
        let old = self.0.swap(Box::into_raw(Box::new(state)), Ordering::AcqRel);
        // SAFETY: every pointer in the cell came from `Box::into_raw` and leaves it only here and in `drop`.
        unsafe { Box::from_raw(old) }
    }

    /// The current picture.
    ///
    /// # Safety
    /// The caller is a worker that is awake, and lets go of the reference before its next quiescent point; or it holds, for
    /// as long as the reference, the lock that whoever calls `swap` holds.
    pub(crate) unsafe fn get<'a>(&self) -> &'a BridgeState {
        // SAFETY: the pointer is valid until it was swapped out and all workers were quiescent after that.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }
}

impl Drop for BridgeCell {
    fn drop(&mut self) {
        let state = self.0.load(Ordering::Acquire);
        // SAFETY: as in `swap`; nobody has the cell any more.
        drop(unsafe { Box::from_raw(state) });
    }
}

/// A receive queue and where its packets belong.
pub(crate) struct Intake {
    pub(crate) queue: Box<dyn RxQueue>,
    pub(crate) bridge: Arc<BridgeCell>,
    pub(crate) ingress: PortIndex,
    /// Its number in its port.
    pub(crate) number: u16,
    pub(crate) counters: Arc<QueueCounters>,
    pub(crate) on_fault: OnFault,
    /// Names it among all queues of the switch.
    pub(crate) token: u64,
    /// Its client broke the rules: it is not used again, on whatever worker it is.
    pub(crate) dead: bool,
}

/// Lets a bridge's logic know that its time has come.
pub(crate) struct Alarm {
    /// Becomes readable then.
    timer: OwnedFd,
    bridge: Arc<BridgeCell>,
    /// Of packets that went nowhere.
    counters: Arc<QueueCounters>,
    token: u64,
}

impl Alarm {
    /// One that goes off every `period`.
    pub(crate) fn every(
        period: Duration,
        bridge: Arc<BridgeCell>,
        counters: Arc<QueueCounters>,
        token: u64,
    ) -> std::io::Result<Self> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let period = Timespec { tv_sec: period.as_secs() as i64, tv_nsec: i64::from(period.subsec_nanos()) };
        let times = Itimerspec { it_interval: period, it_value: period };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times)?;
        Ok(Self { timer, bridge, counters, token })
    }

    /// Tells the alarms of one logic from those of others.
    pub(crate) fn token(&self) -> u64 {
        self.token
    }
}

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
    commands: Sender<Command>,
    pending: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    thread: Option<std::thread::JoinHandle<()>>,
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
        let there = |alarm: &&mut Option<Box<Alarm>>| alarm.as_ref().is_some_and(|a| a.token == token);
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

/// Steps 3 to 5 of a packet's way: the logic decides, lists form, destinations are delivered to.
#[inline]
pub(crate) fn forward(
    batch: &mut RxBatch,
    pad: &mut Scratchpad,
    tools: &mut Tools,
    bridge: &BridgeState,
    ingress: PortIndex,
) {
    if let Some(aside) = bridge.aside() {
        return observe::forward(batch, pad, tools, bridge, ingress, aside);
    }
    straight(batch, pad, tools, bridge, ingress);
}

/// [`forward`] with nothing beside it: no mirror copies, and nobody looks on.
#[inline]
pub(crate) fn straight(
    batch: &mut RxBatch,
    pad: &mut Scratchpad,
    tools: &mut Tools,
    bridge: &BridgeState,
    ingress: PortIndex,
) {
    let up = bridge.port(ingress).filter(|port| port.up);
    if let Some(guards) = up.and_then(|port| port.guards.as_deref()) {
        guards.admit(batch, &mut pad.drops);
        if batch.is_empty() {
            return;
        }
    }
    match open_port(bridge, ingress) {
        Ok(port) => {
            pad.begin(bridge.lane_count());
            let mut packets = packets_of(batch, pad, bridge, ingress, port);
            bridge.logic.forward(&mut packets);
            packets.finish();
            deliver(batch, pad, tools, bridge);
        }
        Err(reason) => pad.drops.add(reason, batch.len() as u32),
    }
}

/// The same for a logic whose time has come: whatever it originates is delivered.
pub(crate) fn originate(batch: &mut RxBatch, pad: &mut Scratchpad, tools: &mut Tools, bridge: &BridgeState) {
    match bridge.aside() {
        Some(aside) => observe::originate(batch, pad, tools, bridge, aside),
        None => {
            wake(batch, pad, bridge);
            deliver(batch, pad, tools, bridge);
        }
    }
}

/// Lets the logic say what it originates.
pub(crate) fn wake(rx: &mut RxBatch, pad: &mut Scratchpad, bridge: &BridgeState) {
    pad.begin(bridge.lane_count());
    let (view, ingress) = (bridge.everywhere(), PortIndex::NONE);
    let mut packets =
        Batch { rx, pad, bridge, view, ingress, now: clock::seconds(), rehearsal: false, left: None };
    bridge.logic.wake(&mut packets);
    if let Some(mirrors) = bridge.aside().and_then(|aside| aside.mirrors.as_ref()) {
        mirrors.sent(rx, pad, bridge, ingress);
    }
}

/// The port, if it is up; else why its packets are dropped.
#[inline(always)]
fn open_port(bridge: &BridgeState, ingress: PortIndex) -> Result<&PortEntry, DropReason> {
    match bridge.port(ingress) {
        Some(port) if port.up => Ok(port),
        port => Err(port.map_or(DropReason::PortDown, |port| port.closed)),
    }
}

/// What the logic sees.
#[inline(always)]
fn packets_of<'a>(
    rx: &'a mut RxBatch,
    pad: &'a mut Scratchpad,
    bridge: &'a BridgeState,
    ingress: PortIndex,
    port: &PortEntry,
) -> Batch<'a> {
    let (view, now, rehearsal) = (bridge.view(port), clock::seconds(), pad.rehearsal);
    Batch { rx, pad, bridge, view, ingress, now, rehearsal, left: None }
}

/// What the logic would see of a batch from a port that is up.
#[cfg(feature = "fuzzing")]
#[inline(always)]
pub(crate) fn seen<'a>(
    rx: &'a mut RxBatch,
    pad: &'a mut Scratchpad,
    bridge: &'a BridgeState,
    ingress: PortIndex,
) -> Option<Batch<'a>> {
    let port = open_port(bridge, ingress).ok()?;
    pad.begin(bridge.lane_count());
    Some(packets_of(rx, pad, bridge, ingress, port))
}

/// Delivers all lists.
#[inline(always)]
pub(crate) fn deliver(batch: &RxBatch, pad: &mut Scratchpad, tools: &mut Tools, bridge: &BridgeState) {
    pad.deliver(batch, bridge, tools, |lane, fault| {
        if let Some(lane) = bridge.lane(lane) {
            (lane.on_fault)(fault);
        }
    });
}

/// The same as [`forward`] up to where lists are delivered, for bridges where more is done: mirrors' copies are put on the
/// lists, and notes are taken of what is dropped and, if they were begun so, of what the logic says. Returns false where it
/// was to say something and could not.
pub(crate) fn detour(
    batch: &mut RxBatch,
    pad: &mut Scratchpad,
    bridge: &BridgeState,
    ingress: PortIndex,
) -> bool {
    hold_back(batch, pad, bridge, ingress);
    pad.notes.arrived(batch);
    if batch.is_empty() {
        return true;
    }
    let port = match open_port(bridge, ingress) {
        Ok(port) => port,
        Err(reason) => {
            (0..batch.len() as u16).for_each(|packet| pad.drop_packet(packet, reason));
            return true;
        }
    };
    pad.begin(bridge.lane_count());
    let mirrors = bridge.aside().and_then(|aside| aside.mirrors.as_ref());
    if let Some(mirrors) = mirrors {
        mirrors.received(batch, pad, bridge, ingress);
    }
    let explained = pad.notes.journal.open;
    let mut packets = packets_of(batch, pad, bridge, ingress, port);
    let mut said = true;
    if explained {
        said = bridge.logic.explain(&mut packets);
    } else {
        bridge.logic.forward(&mut packets);
    }
    packets.finish();
    pad.notes.forgotten(batch);
    if let Some(mirrors) = mirrors {
        mirrors.sent(batch, pad, bridge, ingress);
    }
    said
}

/// Takes out of the batch what the port may not send now, but keeps it for those who look on.
fn hold_back(batch: &mut RxBatch, pad: &mut Scratchpad, bridge: &BridgeState, ingress: PortIndex) {
    let up = bridge.port(ingress).filter(|port| port.up);
    let Some(guards) = up.and_then(|port| port.guards.as_deref()) else { return };
    let Scratchpad { drops, notes, rehearsal, .. } = pad;
    let mut held = |reason, count| {
        drops.add(reason, count);
        notes.held(reason, count);
    };
    if *rehearsal {
        guards.rehearse(batch, held);
    } else {
        guards.hold_each(batch, true, &mut held);
    }
}

//! The watchdog: when a client holds a worker up, another thread takes over the worker's tasks.
//!
//! A check of a client's memory does not hold until the memory is used: the client can punch its file while a worker
//! copies, and the kernel then makes the worker wait, uninterruptibly, until the hole is made, half a second for some
//! GiB. Signals can cost as much: the kernel calls every watch of an eventfd in the context of the signalling thread,
//! and a client can have half a million watches. So a thread [hands off](crate::worker::handoff) its worker's
//! [state](crate::worker::state) during such work. Every [`PERIOD`] the watchdog checks whether a thread is still at
//! the same work and asleep in the kernel or, when it signals, busy signalling. If so:
//!
//! 1. a stand-in thread takes over the worker's state: all tasks but the one that the stuck thread runs;
//! 2. if another thread cannot get past the same client, that client is quarantined ([`Client::quarantine`]): no thread
//!    touches its memory or waits for a lock of its queues.
//!
//! A thread that copies from one client to another may be stuck in the memory of either. Two threads ask the kernel for
//! the locks of both clients' files; the lock of the file being punched is held ([probes](crate::worker::probe)).
//!
//! The stuck thread ends its batch and returns its task. No other thread has run that task meanwhile, so order is kept.
//! A worker's own thread takes the state back; it alone is pinned to the worker's CPU. Once the threads are back, the
//! client is served again: swapped-out memory and a machine short of CPU are not its fault. A client loses its port if
//! its memory was found punched for [`FAULT_AFTER`] looks, or over and over, or if it takes as long to signal. The port
//! is told, and the client's memory is taken away so that the thread comes out.
//!
//! A thread's being stuck decides only who waits for it: what it uses is kept until it has passed a quiescent point
//! ([`Reclaim`](crate::bridge::quiescence::Reclaim)). A thread that merely lost its CPU is not asleep, and is left
//! alone. The watchdog sleeps while all workers sleep.
//!
//! [`Client::quarantine`]: crate::deliver::client::Client::quarantine

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::SyncSender;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::counters::bump;
use crate::deliver::client::Client;
use crate::fault::Fault;
use crate::worker::handle::Command;
use crate::worker::janitor::Janitor;
use crate::worker::overrun::{self, Overrun};
use crate::worker::per_thread::MAX_THREADS;
use crate::worker::probe::{Probe, Probers};
use crate::worker::state::WorkerState;
use crate::worker::tasks::Token;
use crate::worker::thread_group::ThreadGroup;
use crate::worker::thread_info::{Sleep, ThreadInfo, Work};

/// Interval between looks. A worker is relieved at the second or third look.
const PERIOD: Duration = Duration::from_millis(1);

/// Interval at which the [listener to load](ThreadGroup::on_load) is called.
const LOAD_INTERVAL: Duration = Duration::from_millis(250);

/// Looks at sleeping workers before the watchdog sleeps too.
const LINGER: u32 = 20;

/// Looks at a stuck thread before its client's port is told.
const FAULT_AFTER: u32 = 20;

/// Times within [`MEMORY`] that a client is caught before its port is told, however short each was.
const STRIKES: u32 = 20;

/// Time for which the watchdog remembers a client that held a thread up.
const MEMORY: Duration = Duration::from_secs(10);

/// The watchdog's observations of a thread.
#[derive(Default)]
struct Seen {
    /// Its work at the last look.
    work: Option<Work>,
    /// Its CPU time at the last look.
    cpu_time: Duration,
    /// Set from when the thread is found stuck until it comes out.
    stuck: Option<Stuck>,
    /// When its batch was first seen.
    since: Option<Instant>,
    /// CPU time and sleep of its batch, page faults and signals aside.
    spent: Duration,
    /// Its batch [overruns](crate::worker::overrun).
    overruns: bool,
}

/// A thread that a client holds up.
struct Stuck {
    /// Current work: within one batch, several clients may hold it up one after the other.
    work: Work,
    /// Looks at which it was stuck there.
    looks: u32,
    /// Suspected clients: one, or the two between which it copies; empty until known.
    suspects: Vec<Arc<Client>>,
    /// Probes of the suspects' memory.
    probes: Vec<Probe>,
    /// The suspect's memory was found punched.
    proven: bool,
    /// The task that the thread keeps, once it is relieved.
    task: Option<Token>,
    /// A stand-in has taken its worker over.
    relieved: bool,
}

/// Progress since the last look of a thread still at the same work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It runs, or would if it had a CPU.
    Running,
    /// It slept throughout, in a way that does not show which client it waits for.
    Asleep,
    /// It slept throughout, as in a page fault.
    Faulting,
    /// It signalled throughout.
    Signalling,
}

/// A client that held threads up lately.
struct Offender {
    client: u64,
    strikes: u32,
    since: Instant,
}

/// The watchdog's thread. See the module.
pub(crate) struct Watchdog {
    group: Arc<ThreadGroup>,
    /// The threads, by number.
    infos: Vec<Option<Arc<ThreadInfo>>>,
    seen: Vec<Seen>,
    offenders: Vec<Offender>,
    inboxes: Vec<SyncSender<Box<WorkerState>>>,
    janitor: Janitor,
    probers: Probers,
}

impl Watchdog {
    /// Watches the group's threads. `inboxes` are those of the stand-ins among them.
    pub(crate) fn new(
        group: Arc<ThreadGroup>,
        inboxes: Vec<SyncSender<Box<WorkerState>>>,
        janitor: Janitor,
        probers: Probers,
    ) -> Self {
        let infos = vec![None; MAX_THREADS];
        let seen = infos.iter().map(|_| Seen::default()).collect();
        Self { group, infos, seen, offenders: Vec::with_capacity(64), inboxes, janitor, probers }
    }

    pub(crate) fn run(&mut self) {
        self.group.aside.occupy();
        let (mut quiet, mut told) = (0, Instant::now());
        while !self.group.stopped.load(Relaxed) {
            quiet = if self.is_needed() { 0 } else { quiet + 1 };
            if quiet > LINGER {
                let group = self.group.clone();
                group.doorbell.wait_for(|| (self.is_needed() || group.stopped.load(Relaxed)).then_some(()));
                quiet = 0;
            }
            let asleep = Instant::now();
            sleep(PERIOD);
            self.group.aside.looks(asleep.elapsed().saturating_sub(PERIOD));
            self.watch_new();
            for i in 0..self.infos.len() {
                self.check(i);
            }
            self.collect();
            if told.elapsed() >= LOAD_INTERVAL {
                told = Instant::now();
                self.group.tell_load();
            }
        }
    }

    /// Whether a thread is awake, or reclamation holds something for a stuck one.
    fn is_needed(&self) -> bool {
        self.group.reclaim.quiescence.is_any_awake() || self.group.reclaim.has_held()
    }

    /// Watches the threads that were started since the last look.
    fn watch_new(&mut self) {
        for info in self.group.newly_watched() {
            let i = info.number;
            // The earlier thread with this number has ended.
            self.came_back(i);
            if let (Some(place), Some(seen)) = (self.infos.get_mut(i), self.seen.get_mut(i)) {
                (*place, *seen) = (Some(info), Seen::default());
            }
        }
    }

    /// Drops what is no longer in use, on the janitor's thread: dropping may take time.
    fn collect(&mut self) {
        let garbage = self.group.reclaim.collect();
        if !garbage.is_empty() {
            self.janitor.give(move || drop(garbage));
        }
    }

    /// Checks whether thread `i` makes progress.
    fn check(&mut self, i: usize) {
        let (Some(Some(info)), Some(seen)) = (self.infos.get(i), self.seen.get_mut(i)) else { return };
        if let Some(stuck) = &seen.stuck {
            let left = if stuck.relieved {
                self.group.reclaim.quiescence.is_asleep(info.number)
            } else {
                !info.handoff.is_occupied()
            };
            let same = info.begun() == stuck.work.begun;
            return if same && !left { self.check_stuck(i) } else { self.came_back(i) };
        }
        let before = std::mem::replace(&mut seen.work, info.work());
        let still = before.zip(seen.work).filter(|(before, now)| before.begun == now.begun);
        let Some((earlier, work)) = still else {
            // The CPU time at the start of this work, or a little later.
            seen.cpu_time = seen.work.map_or(Duration::ZERO, |_| info.cpu_time());
            (seen.since, seen.spent) = (Some(Instant::now()), Duration::ZERO);
            return;
        };
        let progress = seen.progress(info, work);
        if progress == Progress::Running && seen.spent < overrun::LIMIT {
            return;
        }
        self.group.reclaim.quiescence.set_stuck(info.number, true);
        let (suspects, probes) = Default::default();
        seen.stuck =
            Some(Stuck { work, looks: 1, suspects, probes, proven: false, task: None, relieved: false });
        if earlier == work && progress != Progress::Running {
            self.find_suspects(i, progress);
        }
        self.note_overrun(i);
        self.relieve(i);
        self.group.overruns.settle(i);
    }

    /// Checks thread `i` again, which was stuck at the last look.
    fn check_stuck(&mut self, i: usize) {
        let (Some(Some(info)), Some(seen)) = (self.infos.get(i), self.seen.get_mut(i)) else { return };
        let clients = info.activity.get();
        let Some(stuck) = &mut seen.stuck else { return };
        if clients != stuck.work.clients {
            // It got past that client; the next obstacle may be another one.
            (stuck.work.clients, stuck.looks, stuck.proven) = (clients, 0, false);
            let past = (std::mem::take(&mut stuck.suspects), std::mem::take(&mut stuck.probes));
            let relieved = stuck.relieved;
            self.end_overrun(i);
            past.0.iter().for_each(|client| self.update_quarantine(client));
            self.janitor.give(move || drop(past));
            return self.send_skipped(i, relieved);
        }
        let work = stuck.work;
        let progress = seen.progress(info, work);
        self.note_overrun(i);
        let Some(seen) = self.seen.get_mut(i) else { return };
        // A thread that sleeps while it signals waits for something else.
        let counts = if work.clients.signalling {
            progress == Progress::Signalling
        } else {
            progress != Progress::Running && !seen.overruns
        };
        if counts {
            if let Some(stuck) = &mut seen.stuck {
                stuck.looks += 1;
            }
            self.find_suspects(i, progress);
        }
        self.find_culprit(i);
        let Some(stuck) = self.seen.get(i).and_then(|seen| seen.stuck.as_ref()) else { return };
        stuck.suspects.iter().for_each(|client| self.update_quarantine(client));
        let (relieved, sure) = (stuck.relieved, stuck.proven || stuck.work.clients.signalling);
        if let [one] = stuck.suspects.as_slice()
            && sure
            && stuck.looks >= FAULT_AFTER
        {
            let client = one.clone();
            self.disconnect(&client, work.clients.signalling);
        }
        if !relieved {
            self.relieve(i);
        } else if counts && work.clients.signalling {
            self.group.muted.mute(i, work.clients.to);
        }
        self.group.overruns.settle(i);
    }

    /// Finds the clients that thread `i` may be stuck with, unless they are known.
    fn find_suspects(&mut self, i: usize, progress: Progress) {
        let Some(stuck) = self.seen.get(i).and_then(|seen| seen.stuck.as_ref()) else { return };
        // A sleep other than a page fault's, or during a signal, does not show which client the thread waits for.
        if progress == Progress::Asleep
            || (progress == Progress::Faulting && stuck.work.clients.signalling)
            || stuck.proven
            || !stuck.probes.is_empty()
        {
            return;
        }
        let clients = stuck.work.clients;
        let suspects: Vec<_> = match stuck.suspects.as_slice() {
            [] => [clients.from, clients.to]
                .into_iter()
                .filter_map(|number| self.group.clients.get(number))
                .collect(),
            known => known.to_vec(),
        };
        let mut probes = Vec::new();
        if !clients.signalling {
            // A client without shared memory cannot be the one; the other must still be probed.
            let shares = || suspects.iter().filter(|client| client.memory.is_some());
            probes.extend(shares().filter_map(|client| self.probers.probe(client, &mut self.janitor)));
            if probes.len() < shares().count() {
                probes.clear();
            }
        }
        if let Some(stuck) = self.seen.get_mut(i).and_then(|seen| seen.stuck.as_mut()) {
            (stuck.suspects, stuck.probes) = (suspects.clone(), probes);
        }
        suspects.iter().for_each(|client| self.update_quarantine(client));
    }

    /// Quarantines a client that was found punching, or that a second thread cannot get past either; otherwise serves
    /// it. A single thread may be held up by something else for a moment, and quarantine costs a client packets. Several
    /// threads that sleep may all be held up by something else for a moment, unless the client shares memory.
    fn update_quarantine(&self, client: &Arc<Client>) {
        let suspected = |stuck: &Stuck| stuck.suspects.iter().any(|other| Arc::ptr_eq(other, client));
        let with_it =
            || self.seen.iter().filter_map(|seen| seen.stuck.as_ref()).filter(|stuck| suspected(stuck));
        // Such a thread spins on a lock for as long as the lock's holder is stuck.
        let spins = |(info, seen): (&Option<Arc<ThreadInfo>>, &Seen)| {
            let since = seen.work.filter(|work| seen.stuck.is_none() && work.clients.to == client.number);
            let same = |info: &Arc<ThreadInfo>| info.work() == since && info.sleep() == Sleep::None;
            since.is_some() && info.as_ref().is_some_and(same)
        };
        let waits = match with_it().count() {
            0 => false,
            2.. if client.memory.is_some() || with_it().all(|stuck| stuck.looks >= FAULT_AFTER) => true,
            _ => self.infos.iter().zip(&self.seen).any(spins),
        };
        client.quarantine(waits || with_it().any(|stuck| stuck.proven));
    }

    /// Identifies, among the suspects of thread `i`, the one whose memory blocks.
    fn find_culprit(&mut self, i: usize) {
        let Some(stuck) = self.seen.get_mut(i).and_then(|seen| seen.stuck.as_mut()) else { return };
        let mut waiting = stuck.probes.iter().filter(|probe| !probe.is_over());
        let culprit = match (waiting.next(), waiting.next()) {
            (Some(one), None) if one.waits() => one.client.clone(),
            // No memory is punched, or both are, or it is too early to tell.
            _ => return,
        };
        stuck.proven = true;
        let past = (
            std::mem::take(&mut stuck.probes),
            std::mem::replace(&mut stuck.suspects, vec![culprit.clone()]),
        );
        past.1.iter().for_each(|client| self.update_quarantine(client));
        self.janitor.give(move || drop(past));
        if self.strike(&culprit) >= STRIKES {
            self.disconnect(&culprit, false);
        }
    }

    /// Reports the fault to a client's port and takes the client's memory away.
    fn disconnect(&mut self, client: &Client, signalling: bool) {
        if client.is_abandoned() {
            return;
        }
        client.abandon(if signalling { Fault::Signal } else { Fault::Stalled });
        if let Some(memory) = client.memory.clone() {
            self.janitor.give(move || memory.take_away());
        }
    }

    /// Thread `i` is no longer stuck.
    fn came_back(&mut self, i: usize) {
        let Some(seen) = self.seen.get_mut(i) else { return };
        let Some(stuck) = seen.stuck.take() else { return };
        seen.work = None;
        self.end_overrun(i);
        let Some(Some(info)) = self.infos.get(i) else { return };
        if !stuck.relieved {
            // Otherwise the thread has cleared the mark itself.
            self.group.reclaim.quiescence.set_stuck(info.number, false);
        }
        stuck.suspects.iter().for_each(|client| self.update_quarantine(client));
        self.janitor.give(move || drop((stuck.suspects, stuck.probes)));
        self.send_skipped(i, stuck.relieved);
    }

    /// Reports the batch of thread `i` if it overruns.
    fn note_overrun(&mut self, i: usize) {
        let Some(seen) = self.seen.get_mut(i) else { return };
        if seen.spent >= overrun::LIMIT && !seen.overruns {
            seen.overruns = true;
            let since = seen.since.unwrap_or_else(Instant::now);
            let task = seen.stuck.as_ref().and_then(|stuck| stuck.task);
            self.group.overruns.begin(Overrun { thread: i, since, task, settled: false });
        }
    }

    /// The batch of thread `i` has ended, or is past the logic.
    fn end_overrun(&mut self, i: usize) {
        let Some(seen) = self.seen.get_mut(i) else { return };
        seen.spent = Duration::ZERO;
        if std::mem::take(&mut seen.overruns) {
            self.group.overruns.end(i);
        }
    }

    /// Signals the receivers that were skipped because of thread `i`, except those of abandoned clients. Worker 0 does
    /// that: the thread's own may have been removed meanwhile.
    fn send_skipped(&self, i: usize, relieved: bool) {
        let mut skipped = self.group.muted.unmute(i);
        skipped.retain(|(_, client)| {
            self.group.clients.get(*client).is_some_and(|client| !client.is_abandoned())
        });
        if let Some(worker) = self.group.first_worker.get()
            && relieved
            && !skipped.is_empty()
        {
            worker.send(Command::Ring(skipped));
        }
    }

    /// Gives the worker state of stuck thread `i` to a stand-in. Does nothing if the thread has meanwhile come out.
    fn relieve(&mut self, i: usize) {
        let Some(Some(info)) = self.infos.get(i) else { return };
        let others = self.seen.iter().filter_map(|seen| seen.stuck.as_ref()?.task);
        let kept: Vec<_> = others.collect();
        let Some(stuck) = self.seen.get_mut(i).and_then(|seen| seen.stuck.as_mut()) else { return };
        let Some(place) = self.group.idle().pop() else { return };
        let (Some(mut state), Some(inbox)) = (info.handoff.take(), self.inboxes.get(place)) else {
            return self.group.idle().push(place);
        };
        stuck.relieved = true;
        stuck.task = state.lent().find(|task| !kept.contains(task));
        self.group.overruns.set_task(i, stuck.task);
        bump(&state.counters.relieved, 1);
        // The receivers of earlier deliveries must not wait for the stuck thread, except the one that it is signalling
        // now. A receiver that is signalled twice looks twice.
        let clients = stuck.work.clients;
        let telling = |client| clients.signalling && clients.to == client && client != 0;
        if clients.signalling {
            self.group.muted.mute(i, clients.to);
        }
        state.unsent.extend(info.activity.pending().filter(|(_, client)| !telling(*client)));
        // An idle stand-in waits for it.
        let _ = inbox.send(state);
    }

    /// Records that a client held a thread up. Returns how often it did lately.
    fn strike(&mut self, client: &Client) -> u32 {
        self.offenders.retain(|offender| offender.since.elapsed() < MEMORY);
        if let Some(offender) = self.offenders.iter_mut().find(|offender| offender.client == client.number) {
            offender.strikes += 1;
            return offender.strikes;
        }
        self.offenders.push(Offender { client: client.number, strikes: 1, since: Instant::now() });
        1
    }
}

impl Seen {
    /// Progress of the thread since the last look.
    fn progress(&mut self, info: &ThreadInfo, work: Work) -> Progress {
        let cpu_time = info.cpu_time();
        let had = cpu_time.saturating_sub(std::mem::replace(&mut self.cpu_time, cpu_time));
        let progress = match info.sleep() {
            Sleep::Uninterruptible if had < PERIOD / 16 => Progress::Faulting,
            Sleep::Interruptible if had < PERIOD / 16 => Progress::Asleep,
            _ if work.clients.signalling && had >= PERIOD / 2 => Progress::Signalling,
            _ => Progress::Running,
        };
        self.spent += match progress {
            Progress::Asleep if !work.clients.signalling => PERIOD,
            Progress::Running if !work.clients.signalling => had,
            _ => Duration::ZERO,
        };
        progress
    }
}

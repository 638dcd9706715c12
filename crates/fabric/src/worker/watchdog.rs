//! The watchdog: when a client holds a worker up, another thread goes on with the worker's tasks.
//!
//! No check of a client's memory lasts until it is used: the client can punch its file while a worker copies, and the kernel
//! has the worker wait, uninterruptibly, until the hole is made, which takes half a second for some GiB. A signal can be as
//! expensive: the kernel calls everything that watches an eventfd, in the context of who signals, and a client can have half a million
//! watches. So a thread leaves its worker's [duty](crate::worker::duty) on its [desk](crate::worker::desk) while it does such things,
//! and the watchdog looks every [`PERIOD`] whether one is still at the same thing as before, and asleep in the kernel or, where
//! it signals, busy with that. Then
//!
//! 1. a thread that stands in gets the duty: all tasks but the one that the stuck thread runs;
//! 2. if another thread cannot get past the same client, the client is shunned ([`Client::shun`]): nobody touches its memory or
//!    waits for a lock of its queues.
//!
//! A thread that copies from one client to another may be stuck in the memory of either. Two threads ask the kernel for the locks
//! of both clients' files, of which the one is held that is being punched ([probes](crate::worker::probe)).
//!
//! The stuck thread ends its batch and brings its task back. No other thread has run that task meanwhile, so order is kept. A worker's own
//! thread gets the duty back; it alone is pinned to the worker's CPU. With the threads back the client is served again: memory that
//! was swapped out, or a machine that is short of CPU, is no crime. A client whose memory was found to be punched for [`FAULT_AFTER`],
//! or over and over, and one that takes so long to signal, costs itself its port: that is told, and the client's memory is taken
//! away, so that the thread comes out.
//!
//! Which threads are stuck decides nothing but who waits for them: what they use is kept until they have passed a quiescent point
//! ([`Reclaim`](crate::bridge::quiescence::Reclaim)). A thread that merely lost its CPU is not asleep, and is left alone. While all workers sleep, so does the
//! watchdog.
//!
//! [`Client::shun`]: crate::deliver::client::Client::shun

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::SyncSender;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::counters::bump;
use crate::deliver::client::Client;
use crate::fault::Fault;
use crate::worker::crew::Crew;
use crate::worker::duty::Duty;
use crate::worker::handle::{Command, Commands};
use crate::worker::janitor::Janitor;
use crate::worker::post::{Post, Sleep, Work};
use crate::worker::probe::{Probe, Probers};

/// How often the watchdog looks. A worker is relieved at the second or third look.
const PERIOD: Duration = Duration::from_millis(1);

/// Looks at sleeping workers before the watchdog sleeps too.
const LINGER: u32 = 20;

/// Looks at which a thread is stuck before its client's port is told.
const FAULT_AFTER: u32 = 20;

/// Times within [`MEMORY`] that a client is found out before its port is told, however short each was.
const STRIKES: u32 = 20;

/// How long the watchdog remembers who held a thread up.
const MEMORY: Duration = Duration::from_secs(10);

/// What the watchdog has seen of a thread.
#[derive(Default)]
struct Seen {
    /// What it was at when last looked at.
    work: Option<Work>,
    /// The CPU time that it had had then.
    cpu_time: Duration,
    /// How it is stuck, from when that was noticed until it comes out.
    stuck: Option<Stuck>,
}

/// A thread that a client holds up.
struct Stuck {
    /// What it is at now: in one batch it may be held up by several clients, one after the other.
    work: Work,
    /// Looks at which it was stuck there.
    looks: u32,
    /// Who it may be: one client, or two between which it copies; empty before that is known.
    suspects: Vec<Arc<Client>>,
    /// How those fare who wait for the suspects' memory.
    probes: Vec<Probe>,
    /// The suspect was found to have its memory punched.
    proven: bool,
    /// Another thread stands in, which takes these.
    relieved: Option<Arc<Commands>>,
}

/// How a thread fares that is at the same thing as at the look before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It runs, or would if it had a CPU.
    Running,
    /// It slept all the time, in a way that says nothing of who it waits for.
    Asleep,
    /// It slept all the time, as in a page fault.
    Faulting,
    /// It was busy signalling all the time.
    Signalling,
}

/// Who held threads up lately.
struct Record {
    client: u64,
    strikes: u32,
    since: Instant,
}

/// The watchdog's thread. See the module.
pub(crate) struct Watch {
    crew: Arc<Crew>,
    posts: Vec<Arc<Post>>,
    seen: Vec<Seen>,
    records: Vec<Record>,
    inboxes: Vec<SyncSender<Box<Duty>>>,
    janitor: Janitor,
    probers: Probers,
}

impl Watch {
    /// Looks after the threads at `posts`. Those of them that stand in have these inboxes.
    pub(crate) fn new(
        crew: Arc<Crew>,
        posts: Vec<Arc<Post>>,
        inboxes: Vec<SyncSender<Box<Duty>>>,
        janitor: Janitor,
        probers: Probers,
    ) -> Self {
        let seen = posts.iter().map(|_| Seen::default()).collect();
        Self { crew, posts, seen, records: Vec::with_capacity(64), inboxes, janitor, probers }
    }

    pub(crate) fn run(&mut self) {
        let mut quiet = 0;
        while !self.crew.stopped.load(Relaxed) {
            quiet = if self.is_needed() { 0 } else { quiet + 1 };
            if quiet > LINGER {
                let crew = self.crew.clone();
                crew.doorbell.wait_for(|| (self.is_needed() || crew.stopped.load(Relaxed)).then_some(()));
                quiet = 0;
            }
            sleep(PERIOD);
            for i in 0..self.posts.len() {
                self.look(i);
            }
            self.collect();
        }
    }

    /// Whether a thread is awake, or something is kept for one that was stuck.
    fn is_needed(&self) -> bool {
        let quiescence = &self.crew.reclaim.quiescence;
        self.posts.iter().any(|post| !quiescence.is_asleep(post.number)) || self.crew.reclaim.holds_any()
    }

    /// Has dropped what nobody uses any more: that may take its time.
    fn collect(&mut self) {
        let garbage = self.crew.reclaim.collect();
        if !garbage.is_empty() {
            self.janitor.give(move || drop(garbage));
        }
    }

    /// Looks whether thread `i` gets anywhere.
    fn look(&mut self, i: usize) {
        let (Some(post), Some(seen)) = (self.posts.get(i), self.seen.get_mut(i)) else { return };
        if let Some(stuck) = &seen.stuck {
            let left = if stuck.relieved.is_some() {
                self.crew.reclaim.quiescence.is_asleep(post.number)
            } else {
                !post.desk.is_occupied()
            };
            let same = post.begun() == stuck.work.begun;
            return if same && !left { self.look_again(i) } else { self.came_out(i) };
        }
        let before = std::mem::replace(&mut seen.work, post.work());
        let still = before.zip(seen.work).filter(|(before, now)| before.begun == now.begun);
        let Some((earlier, work)) = still else {
            // What it had when this began, or a little later.
            seen.cpu_time = seen.work.map_or(Duration::ZERO, |_| post.cpu_time());
            return;
        };
        let state = seen.state(post, work);
        if state == State::Running {
            return;
        }
        self.crew.reclaim.quiescence.set_stuck(post.number, true);
        let (suspects, probes) = Default::default();
        seen.stuck = Some(Stuck { work, looks: 1, suspects, probes, proven: false, relieved: None });
        if earlier == work {
            self.name(i, state);
        }
        self.relieve(i);
    }

    /// Looks at thread `i` again, which was stuck and is not back.
    fn look_again(&mut self, i: usize) {
        let (Some(post), Some(seen)) = (self.posts.get(i), self.seen.get_mut(i)) else { return };
        let at = post.site.get();
        let Some(stuck) = &mut seen.stuck else { return };
        if at != stuck.work.at {
            // It came past that client. What it is at now may be something else.
            (stuck.work.at, stuck.looks, stuck.proven) = (at, 0, false);
            let past = (std::mem::take(&mut stuck.suspects), std::mem::take(&mut stuck.probes));
            let relieved = stuck.relieved.clone();
            past.0.iter().for_each(|client| self.decide(client));
            self.janitor.give(move || drop(past));
            return self.make_up(i, relieved.as_deref());
        }
        let work = stuck.work;
        let state = seen.state(post, work);
        // Whoever sleeps while it signals waits for something else.
        let counts = if work.at.ringing { state == State::Signalling } else { state != State::Running };
        if counts {
            if let Some(stuck) = &mut seen.stuck {
                stuck.looks += 1;
            }
            self.name(i, state);
        }
        self.judge(i);
        let Some(stuck) = self.seen.get(i).and_then(|seen| seen.stuck.as_ref()) else { return };
        stuck.suspects.iter().for_each(|client| self.decide(client));
        let (relieved, sure) = (stuck.relieved.is_some(), stuck.proven || stuck.work.at.ringing);
        if let [one] = stuck.suspects.as_slice()
            && sure
            && stuck.looks >= FAULT_AFTER
        {
            let client = one.clone();
            self.punish(&client, work.at.ringing);
        }
        if !relieved {
            self.relieve(i);
        } else if counts && work.at.ringing {
            self.crew.hush.begin(i, work.at.to);
        }
    }

    /// Finds out who thread `i` may be stuck with, unless that is known.
    fn name(&mut self, i: usize, state: State) {
        let Some(stuck) = self.seen.get(i).and_then(|seen| seen.stuck.as_ref()) else { return };
        // In what sleeps in another way than page faults do, or sleeps while it signals, nobody knows who it waits for.
        if state == State::Asleep
            || (state == State::Faulting && stuck.work.at.ringing)
            || stuck.proven
            || !stuck.probes.is_empty()
        {
            return;
        }
        let at = stuck.work.at;
        let suspects: Vec<_> = match stuck.suspects.as_slice() {
            [] => [at.from, at.to].into_iter().filter_map(|number| self.crew.clients.get(number)).collect(),
            known => known.to_vec(),
        };
        let mut probes = Vec::new();
        if !at.ringing {
            // One without shared memory cannot be it; whether the other is has to be found out all the same.
            let shares = || suspects.iter().filter(|client| client.memory.is_some());
            probes.extend(shares().filter_map(|client| self.probers.probe(client, &mut self.janitor)));
            if probes.len() < shares().count() {
                probes.clear();
            }
        }
        if let Some(stuck) = self.seen.get_mut(i).and_then(|seen| seen.stuck.as_mut()) {
            (stuck.suspects, stuck.probes) = (suspects.clone(), probes);
        }
        suspects.iter().for_each(|client| self.decide(client));
    }

    /// Shuns a client if it was found out, or if another thread does not get past it either; else serves it. One thread alone may
    /// be held up by something else for a moment, and to be shunned costs a client packets.
    fn decide(&self, client: &Arc<Client>) {
        let is_it = |other: &Arc<Client>| Arc::ptr_eq(other, client);
        let stuck = self.seen.iter().filter_map(|seen| seen.stuck.as_ref());
        let with_it: Vec<_> = stuck.filter(|stuck| stuck.suspects.iter().any(is_it)).collect();
        // Such a one looks busily for a lock, as long as who has it is stuck.
        let waits = |(post, seen): (&Arc<Post>, &Seen)| {
            let since = seen.work.filter(|work| seen.stuck.is_none() && work.at.to == client.number);
            since.is_some() && post.work() == since
        };
        let others = with_it.len() + self.posts.iter().zip(&self.seen).filter(|at| waits(*at)).count();
        client.shun(!with_it.is_empty() && others > 1 || with_it.iter().any(|stuck| stuck.proven));
    }

    /// Looks whose memory makes others wait, of those that thread `i` may be stuck with.
    fn judge(&mut self, i: usize) {
        let Some(stuck) = self.seen.get_mut(i).and_then(|seen| seen.stuck.as_mut()) else { return };
        let mut waiting = stuck.probes.iter().filter(|probe| !probe.is_over());
        let culprit = match (waiting.next(), waiting.next()) {
            (Some(one), None) if one.waits() => one.client.clone(),
            // Nobody's is punched, or that of both is, or there was no time yet.
            _ => return,
        };
        stuck.proven = true;
        let past = (
            std::mem::take(&mut stuck.probes),
            std::mem::replace(&mut stuck.suspects, vec![culprit.clone()]),
        );
        past.1.iter().for_each(|client| self.decide(client));
        self.janitor.give(move || drop(past));
        if self.strike(&culprit) >= STRIKES {
            self.punish(&culprit, false);
        }
    }

    /// Has a client's port told, and its memory taken away.
    fn punish(&mut self, client: &Client, ringing: bool) {
        if client.is_abandoned() {
            return;
        }
        client.abandon(if ringing { Fault::Signal } else { Fault::Stalled });
        if let Some(memory) = client.memory.clone() {
            self.janitor.give(move || memory.take_away());
        }
    }

    /// Thread `i` is not stuck any more.
    fn came_out(&mut self, i: usize) {
        let (Some(post), Some(seen)) = (self.posts.get(i), self.seen.get_mut(i)) else { return };
        let Some(stuck) = seen.stuck.take() else { return };
        seen.work = None;
        if stuck.relieved.is_none() {
            // Else it has said so itself.
            self.crew.reclaim.quiescence.set_stuck(post.number, false);
        }
        stuck.suspects.iter().for_each(|client| self.decide(client));
        self.janitor.give(move || drop((stuck.suspects, stuck.probes)));
        self.make_up(i, stuck.relieved.as_deref());
    }

    /// Has the receivers signalled that were left out because of thread `i`.
    fn make_up(&self, i: usize, relieved: Option<&Commands>) {
        let mut left_out = self.crew.hush.end(i);
        // Whoever is not served any more is told nothing either.
        left_out.retain(|(_, client)| {
            self.crew.clients.get(*client).is_some_and(|client| !client.is_abandoned())
        });
        if let (Some(commands), false) = (relieved, left_out.is_empty()) {
            commands.send(Command::Ring(left_out));
        }
    }

    /// Gives the duty of thread `i`, which is stuck, to one that stands in. Does nothing if that came on meanwhile.
    fn relieve(&mut self, i: usize) {
        let Some(post) = self.posts.get(i) else { return };
        let Some(stuck) = self.seen.get_mut(i).and_then(|seen| seen.stuck.as_mut()) else { return };
        let Some(place) = self.crew.idle().pop() else { return };
        let (Some(mut duty), Some(inbox)) = (post.desk.take(), self.inboxes.get(place)) else {
            return self.crew.idle().push(place);
        };
        stuck.relieved = Some(duty.commands.clone());
        bump(&duty.counters.relieved, 1);
        // To whom it has delivered before is not to wait for it, but for the one that it is telling now. Who is told twice looks
        // twice.
        let at = stuck.work.at;
        let telling = |client| at.ringing && at.to == client && client != 0;
        if at.ringing {
            self.crew.hush.begin(i, at.to);
        }
        duty.rings.extend(post.site.rings().filter(|(_, client)| !telling(*client)));
        // An idle one waits for it.
        let _ = inbox.send(duty);
    }

    /// Notes that a client holds a thread up. Returns how often it did lately.
    fn strike(&mut self, client: &Client) -> u32 {
        self.records.retain(|record| record.since.elapsed() < MEMORY);
        if let Some(record) = self.records.iter_mut().find(|record| record.client == client.number) {
            record.strikes += 1;
            return record.strikes;
        }
        self.records.push(Record { client: client.number, strikes: 1, since: Instant::now() });
        1
    }
}

impl Seen {
    /// How the thread has fared since the last look.
    fn state(&mut self, post: &Post, work: Work) -> State {
        let cpu_time = post.cpu_time();
        let had = cpu_time.saturating_sub(std::mem::replace(&mut self.cpu_time, cpu_time));
        match post.sleep() {
            Sleep::Uninterruptible if had < PERIOD / 16 => State::Faulting,
            Sleep::Interruptible if had < PERIOD / 16 => State::Asleep,
            _ if work.at.ringing && had >= PERIOD / 2 => State::Signalling,
            _ => State::Running,
        }
    }
}

//! The watchdog: when a client holds a worker up, another thread goes on with the worker's tasks.
//!
//! No check of a client's memory lasts until it is used: the client can punch its file while a worker copies, and the kernel
//! has the worker wait, uninterruptibly, until the hole is made, which takes half a second for some GiB. A signal can be as
//! expensive: the kernel calls everything that watches an eventfd, in the context of who signals, and a client can have half a million
//! watches. So a thread leaves its worker's [duty](crate::worker::duty) on its [desk](crate::worker::desk) while it does such things,
//! and the watchdog looks every [`PERIOD`] whether one is still at the same thing as before and blocked in the kernel, or, where
//! it signals, busy with that. Then
//!
//! 1. the client's memory is not touched any more, and nobody waits for a lock of its queues ([`Client::abandon`]);
//! 2. a thread that stands in gets the duty: all tasks but the one that the stuck thread runs;
//! 3. the port is told of the fault, and the client's memory is taken away, so that the stuck thread comes out.
//!
//! The stuck thread ends its batch and brings its task back. No other thread has run that task meanwhile, so order is kept. A worker's own
//! thread gets the duty back; it alone is pinned to the worker's CPU. Which threads are stuck, and for how long, decides
//! nothing but who waits: what they use is kept until they have passed a quiescent point ([`Reclaim`]).
//!
//! A thread that merely lost its CPU is not blocked, and is left alone. While all workers sleep, so does the watchdog.
//!
//! [`Client::abandon`]: crate::deliver::client::Client::abandon

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, sleep};
use std::time::Duration;

use crate::bridge::quiescence::Reclaim;
use crate::counters::bump;
use crate::deliver::client::Clients;
use crate::fault::Fault;
use crate::rx::BatchLimits;
use crate::vital::Vital;
use crate::wake::doorbell::{Doorbell, ThreadBell};
use crate::worker::duty::Duty;
use crate::worker::handle::Ended;
use crate::worker::post::{Post, Sleep, Work};
use crate::worker::run::{End, Hand, bring_back};
use crate::worker::tasks::Context;

/// Threads that stand in: so many clients can hold workers up at once, and nobody else notices.
pub(crate) const STAND_INS: usize = 3;

/// How often the watchdog looks. A worker is relieved within two or three of these.
const PERIOD: Duration = Duration::from_millis(2);

/// Looks at sleeping workers before the watchdog sleeps too.
const LINGER: u32 = 10;

/// Jobs that wait for the janitor at most.
const JOBS: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

/// What all threads that switch have in common. Lives as long as they.
pub(crate) struct Crew {
    pub(crate) reclaim: Arc<Reclaim>,
    pub(crate) clients: Arc<Clients>,
    /// Rung by threads that wake.
    pub(crate) doorbell: Arc<Doorbell<ThreadBell>>,
    pub(crate) stopped: AtomicBool,
    /// Those that stand in for nobody, by their place in `inboxes`.
    idle: Mutex<Vec<usize>>,
}

impl Crew {
    pub(crate) fn new(reclaim: Arc<Reclaim>) -> Arc<Self> {
        let idle = Mutex::new(Vec::with_capacity(STAND_INS));
        let (clients, doorbell, stopped) = Default::default();
        Arc::new(Self { reclaim, clients, doorbell, stopped, idle })
    }

    /// A thread of the crew, which has this post.
    pub(crate) fn hand(self: &Arc<Self>, post: Arc<Post>, limits: BatchLimits) -> std::io::Result<Hand> {
        let context = Context::new(&post, limits, self.clients.clone())?;
        Ok(Hand { post, context, reclaim: self.reclaim.clone(), watchdog: self.doorbell.clone() })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<usize>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The watchdog, those that stand in, and the janitor, who does what may wait.
pub(crate) struct Watchdog {
    crew: Arc<Crew>,
    threads: Vec<Ended>,
}

impl Watchdog {
    /// Starts them. `posts` are those of all workers' threads, then those of the ones that stand in.
    pub(crate) fn start(crew: &Arc<Crew>, posts: &[Arc<Post>], limits: BatchLimits) -> std::io::Result<Self> {
        let (mut threads, mut inboxes) = (Vec::new(), Vec::new());
        let stand_ins = posts.get(posts.len().saturating_sub(STAND_INS)..).unwrap_or_default();
        for (place, post) in stand_ins.iter().enumerate() {
            let (inbox, duties) = sync_channel(1);
            let hand = crew.hand(post.clone(), limits)?;
            let crew = crew.clone();
            threads.push(spawn(&format!("mswitch-s{place}"), move || stand_in(&crew, place, hand, &duties))?);
            inboxes.push(inbox);
        }
        let (jobs, to_do) = sync_channel::<Job>(JOBS);
        threads.push(spawn("mswitch-janitor", move || to_do.iter().for_each(|job| job()))?);
        let seen = posts.iter().map(|_| Seen::default()).collect();
        let mut watch = Watch { crew: crew.clone(), posts: posts.to_vec(), seen, inboxes, jobs };
        threads.push(spawn("mswitch-watch", move || {
            let _vital = Vital::new("the watchdog", "clients could hold workers up for ever");
            watch.run();
        })?);
        Ok(Self { crew: crew.clone(), threads })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.crew.stopped.store(true, Relaxed);
        self.crew.doorbell.ring();
        // The watchdog ends, with it go the inboxes and the janitor's jobs, and so end the others.
        self.threads.iter().rev().for_each(Ended::wait);
    }
}

/// Starts a thread.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<Ended> {
    let (ends, ended) = sync_channel(1);
    Builder::new().name(name.to_owned()).spawn(move || {
        let _ends: SyncSender<()> = ends;
        body();
    })?;
    Ok(Ended::new(ended))
}

/// What a thread does that stands in for others.
fn stand_in(crew: &Crew, place: usize, mut hand: Hand, duties: &Receiver<Box<Duty>>) {
    hand.post.occupy();
    let _vital = Vital::new(format!("stand-in {place}"), "the control plane would wait for it for ever");
    loop {
        crew.idle().push(place);
        let Ok(duty) = duties.recv() else { return };
        let commands = duty.commands.clone();
        if let End::Relieved(left) = hand.serve(duty) {
            bring_back(&commands, left);
        }
    }
}

/// What the watchdog has seen of a thread.
#[derive(Default)]
struct Seen {
    /// What it was at when last looked at.
    work: Option<Work>,
    /// The CPU time that it had had then, if it is to be known.
    cpu_time: Option<Duration>,
    /// It is stuck, and there was nobody to stand in.
    stuck: bool,
}

struct Watch {
    crew: Arc<Crew>,
    posts: Vec<Arc<Post>>,
    seen: Vec<Seen>,
    inboxes: Vec<SyncSender<Box<Duty>>>,
    jobs: SyncSender<Job>,
}

impl Watch {
    fn run(&mut self) {
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
    fn collect(&self) {
        let garbage = self.crew.reclaim.collect();
        if !garbage.is_empty() {
            self.later(Box::new(move || drop(garbage)));
        }
    }

    fn later(&self, job: Job) {
        match self.jobs.try_send(job) {
            Ok(()) => {}
            // A janitor with so much to do is stuck itself; what it cannot be given is done here.
            Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => job(),
        }
    }

    /// Looks whether thread `i` gets anywhere.
    fn look(&mut self, i: usize) {
        let (Some(post), Some(seen)) = (self.posts.get(i), self.seen.get_mut(i)) else { return };
        let before = std::mem::take(seen);
        seen.work = post.work();
        let quiescence = &self.crew.reclaim.quiescence;
        let still = before.work.zip(seen.work).filter(|(before, now)| before.begun == now.begun);
        let Some((earlier, work)) = still else {
            if before.stuck {
                quiescence.set_stuck(post.number, false);
            }
            // What it had when this began, or a little later.
            seen.cpu_time = seen.work.map(|_| post.cpu_time());
            return;
        };
        seen.stuck = before.stuck;
        let cpu_time = post.cpu_time();
        let had = before.cpu_time.map(|before| cpu_time.saturating_sub(before));
        seen.cpu_time = Some(cpu_time);
        let sleep = post.sleep();
        let asleep = sleep != Sleep::None && had.is_some_and(|had| had < PERIOD / 16);
        let busy = work.ringing && had.is_some_and(|had| had >= PERIOD / 2);
        let held_up = asleep || busy;
        if held_up {
            seen.stuck = true;
            quiescence.set_stuck(post.number, true);
            let fault = if work.ringing { Fault::Signal } else { Fault::Stalled };
            // In what sleeps in another way than page faults do, or came past one client and is at another, it is not known
            // who it waits for.
            let known = earlier == work && (busy || sleep == Sleep::Uninterruptible);
            let client = if known { self.crew.clients.get(work.client) } else { None };
            if let Some(client) = &client {
                client.abandon();
            }
            self.relieve(i);
            if let Some(client) = client {
                client.fault(fault);
                if let Some(give_up) = client.give_up() {
                    self.later(Box::new(move || give_up()));
                }
            }
        }
    }

    /// Gives the duty of thread `i`, which is stuck, to one that stands in. Does nothing if that came on meanwhile.
    fn relieve(&mut self, i: usize) {
        let (Some(post), Some(seen)) = (self.posts.get(i), self.seen.get_mut(i)) else { return };
        let Some(place) = self.crew.idle().pop() else { return };
        let (Some(duty), Some(inbox)) = (post.desk.take(), self.inboxes.get(place)) else {
            return self.crew.idle().push(place);
        };
        // The thread itself says when it is not stuck any more.
        seen.stuck = false;
        bump(&duty.counters.relieved, 1);
        // An idle one waits for it.
        let _ = inbox.send(duty);
    }
}

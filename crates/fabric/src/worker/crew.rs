//! The threads that switch, and those beside them: what they have in common, and how they start and end.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use crate::bridge::quiescence::Reclaim;
use crate::deliver::client::Clients;
use crate::rx::BatchLimits;
use crate::vital::Vital;
use crate::wake::doorbell::{Doorbell, ThreadBell};
use crate::wake::hush::Hush;
use crate::worker::duty::Duty;
use crate::worker::handle::Ended;
use crate::worker::janitor::Janitor;
use crate::worker::post::Post;
use crate::worker::probe::Probers;
use crate::worker::run::{End, Hand, bring_back};
use crate::worker::tasks::Context;
use crate::worker::watchdog::Watch;

/// Threads that stand in: so many clients can hold workers up at once, and nobody else notices.
pub(crate) const STAND_INS: usize = 3;

/// What all threads that switch have in common. Lives as long as they.
pub(crate) struct Crew {
    pub(crate) reclaim: Arc<Reclaim>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) hush: Arc<Hush>,
    /// Rung by threads that wake.
    pub(crate) doorbell: Arc<Doorbell<ThreadBell>>,
    pub(crate) stopped: AtomicBool,
    /// Those that stand in for nobody, by their places.
    idle: Mutex<Vec<usize>>,
}

impl Crew {
    pub(crate) fn new(reclaim: Arc<Reclaim>) -> Arc<Self> {
        let idle = Mutex::new(Vec::with_capacity(STAND_INS));
        let (clients, hush, doorbell, stopped) = Default::default();
        Arc::new(Self { reclaim, clients, hush, doorbell, stopped, idle })
    }

    /// A thread of the crew, which has this post.
    pub(crate) fn hand(
        self: &Arc<Self>,
        post: Arc<Post>,
        limits: BatchLimits,
        who: String,
    ) -> std::io::Result<Hand> {
        let context = Context::new(&post, self.hush.clone(), self.clients.clone(), limits)?;
        let (reclaim, watchdog) = (self.reclaim.clone(), self.doorbell.clone());
        let vital = Vital::new(who, "the control plane would wait for it for ever");
        Ok(Hand { post, context, reclaim, watchdog, vital })
    }

    /// See the field.
    pub(crate) fn idle(&self) -> MutexGuard<'_, Vec<usize>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads beside the workers' own: those that stand in for them, the watchdog, and its helpers.
pub(crate) struct Reserve {
    crew: Arc<Crew>,
    threads: Vec<Ended>,
}

impl Reserve {
    /// Starts them. `posts` are those of all workers' threads, then those of the ones that stand in.
    pub(crate) fn start(crew: &Arc<Crew>, posts: &[Arc<Post>], limits: BatchLimits) -> std::io::Result<Self> {
        let (mut threads, mut inboxes) = (Vec::new(), Vec::new());
        let stand_ins = posts.get(posts.len().saturating_sub(STAND_INS)..).unwrap_or_default();
        for (place, post) in stand_ins.iter().enumerate() {
            let (inbox, duties) = sync_channel(1);
            let hand = crew.hand(post.clone(), limits, format!("stand-in {place}"))?;
            let crew = crew.clone();
            threads.push(spawn(&format!("mswitch-s{place}"), move || stand_in(&crew, place, hand, &duties))?);
            inboxes.push(inbox);
        }
        let (janitor, thread) = Janitor::start()?;
        threads.push(thread);
        let (probers, probing) = Probers::start()?;
        threads.extend(probing);
        let mut watch = Watch::new(crew.clone(), posts.to_vec(), inboxes, janitor, probers);
        threads.push(spawn("mswitch-watch", move || {
            let vital = Vital::new("the watchdog", "clients could hold workers up for ever");
            let _guard = vital.guard();
            watch.run();
        })?);
        Ok(Self { crew: crew.clone(), threads })
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        self.crew.stopped.store(true, Relaxed);
        self.crew.doorbell.ring();
        // The watchdog ends, with it go the inboxes and the jobs, and so end the others.
        let deadline = Ended::soon();
        self.threads.iter().rev().for_each(|thread| thread.wait(deadline));
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
    loop {
        crew.idle().push(place);
        let Ok(duty) = duties.recv() else { return };
        let commands = duty.commands.clone();
        if let End::Relieved(left) = hand.serve(duty) {
            bring_back(&commands, left);
        }
    }
}

//! A worker's thread. A worker owns *tasks* (`tasks/`) and runs each batch of theirs to completion.
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
//!
//! A client can hold a thread up all the same, where it touches the client's memory or signals it. Whenever a thread does that,
//! its worker's [duty](crate::worker::duty) lies on its [desk](crate::worker::desk), where the
//! [watchdog](crate::worker::watchdog) finds it.

use std::sync::Arc;
use std::sync::mpsc::{SendError, sync_channel};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll;

use crate::bridge::quiescence::Reclaim;
use crate::clock;
use crate::counters::bump;
use crate::fault::Fault;
use crate::vital::Vital;
use crate::wake::doorbell::{Doorbell, ThreadBell};
use crate::worker::duty::{Duty, Settled};
use crate::worker::handle::{Answer, Command, Commands};
use crate::worker::post::Post;
use crate::worker::site::Signal;
use crate::worker::tasks::{Context, Next, Task};

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

/// A thread that switches: a worker's own, or one that stands in.
pub(crate) struct Hand {
    pub(crate) post: Arc<Post>,
    pub(crate) context: Context,
    pub(crate) reclaim: Arc<Reclaim>,
    /// Rung when this thread wakes.
    pub(crate) watchdog: Arc<Doorbell<ThreadBell>>,
    /// Ends the process if this thread panics, before the panic drops what the thread has: that could wait.
    pub(crate) vital: Vital,
}

/// Why a thread does not serve any more.
pub(crate) enum End {
    /// The worker has ended.
    Stopped,
    /// The worker's own thread has the duty again.
    HandedBack,
    /// Another thread took the duty. This one still has a task, perhaps, which is to be brought back.
    Relieved(Option<(Task, Next)>),
}

impl Hand {
    /// Serves until something ends that; nothing shared is used after it.
    pub(crate) fn serve(&mut self, duty: Box<Duty>) -> End {
        self.context.counters = duty.counters.clone();
        let vital = self.vital.clone();
        let _guard = vital.guard();
        let end = self.rounds(duty).unwrap_or_else(|end| end);
        if self.context.has_rings() {
            // Collected before this thread was relieved. Who stands in has rung for them; who was told twice looks twice.
            self.context.ring();
        }
        self.reclaim.quiescence.sleep(self.post.number);
        self.reclaim.quiescence.set_stuck(self.post.number, false);
        end
    }

    fn rounds(&mut self, mut duty: Box<Duty>) -> Result<End, End> {
        self.awake();
        if !duty.rings.is_empty() {
            let rings = std::mem::take(&mut duty.rings);
            duty = self.signal(duty, rings)?;
        }
        let mut now = clock::cycles();
        let mut listened = now;
        loop {
            if duty.is_called() {
                duty = self.obey(duty)?;
            }
            self.reclaim.quiescence.pass(self.post.number);
            duty.end_waits(now);

            let mut i = 0;
            while let Some(&s) = duty.awake.get(i) {
                let Some(mut task) = duty.lend(s) else {
                    // A thread that was relieved has it.
                    duty.awake.swap_remove(i);
                    continue;
                };
                let start = now;
                let (back, ran) = self.apart(duty, |context| task.run(context, start));
                let Some(mine) = back else { return Err(End::Relieved(Some((task, ran.next)))) };
                duty = mine;
                now = clock::cycles();
                match duty.put_back(s, task, ran, now) {
                    Settled::Stays => i += 1,
                    Settled::Goes => {
                        duty.awake.swap_remove(i);
                    }
                    Settled::Told(task, on, stays) => {
                        duty = self.tell(duty, s, task, on, ran.next)?;
                        if stays {
                            i += 1;
                        } else {
                            duty.awake.swap_remove(i);
                        }
                    }
                }
                if self.context.has_rings() {
                    // After the task: who is expensive to signal must not hold up who sent the packets.
                    let (back, ()) = self.apart(duty, Context::ring);
                    duty = back.ok_or(End::Relieved(None))?;
                    now = clock::cycles();
                }
                if ran.packets > 0 || ran.next != Next::Round {
                    bump(&self.context.counters.busy_cycles, now.wrapping_sub(start));
                }
            }

            if duty.awake.is_empty() && !duty.poll_forever {
                self.sleep(&mut duty, now);
                duty = self.rouse(duty)?;
                now = clock::cycles();
                listened = now;
            } else if now.wrapping_sub(listened) > duty.listen {
                duty.listen(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
                duty = self.rouse(duty)?;
                now = clock::cycles();
                listened = now;
            } else if duty.awake.is_empty() {
                core::hint::spin_loop();
                now = clock::cycles();
            }
        }
    }

    /// Does `work`, in which a client can hold this thread up, while the duty lies on the desk. It is gone after that if
    /// another thread has taken it.
    #[inline]
    fn apart<R>(&mut self, duty: Box<Duty>, work: impl FnOnce(&mut Context) -> R) -> (Option<Box<Duty>>, R) {
        self.post.begin(duty);
        let guard = self.vital.guard();
        let result = work(&mut self.context);
        std::mem::forget(guard);
        (self.post.desk.take(), result)
    }

    /// The same, beside the task's run.
    #[inline]
    fn apart_for<R>(
        &mut self,
        duty: Box<Duty>,
        task: &mut Task,
        work: impl FnOnce(&mut Task) -> R,
    ) -> (Option<Box<Duty>>, R) {
        match task.client() {
            Some(client) => self.post.site.enter(client),
            None => self.post.site.leave(),
        }
        self.apart(duty, |_| work(task))
    }

    /// Signals receivers that another thread left to this one.
    fn signal(&mut self, duty: Box<Duty>, receivers: Vec<Signal>) -> Result<Box<Duty>, End> {
        let (back, ()) = self.apart(duty, |context| {
            context.tools.notifier.add_all(receivers);
            context.ring();
        });
        back.ok_or(End::Relieved(None))
    }

    fn awake(&self) {
        self.reclaim.quiescence.wake(self.post.number);
        self.watchdog.ring();
    }

    /// Blocks until a task is signalled, the time of one has come, or there is a command.
    fn sleep(&self, duty: &mut Duty, now: u64) {
        self.reclaim.quiescence.sleep(self.post.number);
        if duty.may_sleep(now) {
            duty.listen(None);
            bump(&self.context.counters.wakeups, 1);
        }
        duty.end_sleep();
        self.awake();
    }

    /// Tells the task of slot `s`, which is lent, whether to ask for signals, and puts it back.
    #[cold]
    fn tell(
        &mut self,
        duty: Box<Duty>,
        s: usize,
        mut task: Task,
        on: bool,
        next: Next,
    ) -> Result<Box<Duty>, End> {
        let (back, ()) = self.apart_for(duty, &mut task, |task| task.set_signalled(on));
        match back {
            Some(mut duty) => {
                duty.return_to(s, task);
                Ok(duty)
            }
            None => Err(End::Relieved(Some((task, next)))),
        }
    }

    /// Has the tasks run that were signalled.
    fn rouse(&mut self, mut duty: Box<Duty>) -> Result<Box<Duty>, End> {
        while let Some(s) = duty.signalled.pop() {
            if duty.rouse(s)
                && let Some(task) = duty.lend(s)
            {
                duty = self.tell(duty, s, task, false, Next::Round)?;
            }
        }
        Ok(duty)
    }

    /// Carries out what was asked for.
    #[cold]
    fn obey(&mut self, mut duty: Box<Duty>) -> Result<Box<Duty>, End> {
        duty.open_mail();
        while let Some(order) = duty.next_order() {
            match order {
                Command::Add(task) => duty = self.add(duty, task)?,
                Command::Remove(token, reply) => {
                    if let Some(mut task) = duty.remove(token, &reply, true) {
                        let (back, ()) = self.apart_unwatched(duty, &mut task);
                        // It waits for this, or has given up waiting.
                        if let Err(unsent) = reply.send(Answer::Here(Some(task))) {
                            self.reclaim.bury(unsent);
                        }
                        duty = back.ok_or(End::Relieved(None))?;
                    }
                }
                Command::Move(token, reply) => {
                    if let Some(mut task) = duty.remove(token, &reply, false) {
                        let (back, ()) = self.apart_unwatched(duty, &mut task);
                        let unsent = reply.send(Answer::Here(Some(task))).err();
                        duty = back.ok_or(End::Relieved(None))?;
                        // Who asked does not wait any more: it stays.
                        if let Some(SendError(Answer::Here(Some(task)))) = unsent {
                            duty = self.add(duty, task)?;
                        }
                    }
                }
                Command::BringBack(task, next) => match duty.bring_back(task, next) {
                    Ok(()) => {}
                    Err((mut task, claim)) => {
                        let (back, ()) = self.apart_unwatched(duty, &mut task);
                        if let Err(unsent) = claim.send(Answer::Here(Some(task))) {
                            self.reclaim.bury(unsent);
                        }
                        duty = back.ok_or(End::Relieved(None))?;
                    }
                },
                Command::HandBack(to) => match to.send(duty) {
                    Ok(()) => return Err(End::HandedBack),
                    Err(unsent) => duty = unsent.0,
                },
                Command::Ring(receivers) => duty = self.signal(duty, receivers)?,
                Command::Stop => return Err(End::Stopped),
            }
        }
        Ok(duty)
    }

    fn add(&mut self, mut duty: Box<Duty>, mut task: Task) -> Result<Box<Duty>, End> {
        let (s, first, epoll) = (duty.reserve(task.token()), task.first(), duty.epoll.clone());
        let (data, flags) = Duty::watched_as(s);
        let (back, next) = self.apart_for(duty, &mut task, |task| {
            let watched =
                task.doorbell().map_or(Ok(()), |doorbell| epoll::add(&epoll, doorbell, data, flags));
            if let Err(error) = watched {
                task.fail(Fault::Notify(error));
                return Next::Never;
            }
            if first == Next::Round {
                // Packets may have come before anyone listened.
                task.set_signalled(false);
            }
            first
        });
        let Some(mut duty) = back else { return Err(End::Relieved(Some((task, next)))) };
        duty.return_to(s, task);
        duty.admit(s, next);
        Ok(duty)
    }

    /// Stops watching the doorbell of a task that goes.
    fn apart_unwatched(&mut self, duty: Box<Duty>, task: &mut Task) -> (Option<Box<Duty>>, ()) {
        let epoll = duty.epoll.clone();
        self.apart_for(duty, task, |task| {
            if let Some(doorbell) = task.doorbell() {
                let _ = epoll::delete(&epoll, doorbell);
            }
        })
    }
}

/// What a worker's own thread does: it serves, and comes back to that after somebody stood in for it.
pub(crate) fn work(hand: &mut Hand, mut duty: Box<Duty>, stopped: impl Fn() -> bool) {
    let commands = duty.commands.clone();
    while let End::Relieved(left) = hand.serve(duty) {
        bring_back(&commands, left);
        let (to, handed_back) = sync_channel(1);
        commands.send(Command::HandBack(to));
        duty = loop {
            // A worker that was stopped meanwhile does not answer.
            match handed_back.recv_timeout(Duration::from_millis(100)) {
                Ok(duty) => break duty,
                Err(_) if stopped() => return,
                Err(_) => {}
            }
        };
    }
}

/// Gives back what a thread had when it was relieved.
pub(crate) fn bring_back(commands: &Commands, left: Option<(Task, Next)>) {
    if let Some((task, next)) = left {
        commands.send(Command::BringBack(task, next));
    }
}

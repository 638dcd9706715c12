//! The switch behind a lock, and a doorbell for each connection.
//!
//! Invariant: after any use of the switch, the doorbell of each connection with messages waiting, or closed by the
//! switch, has been rung. The lock is held for one message or one call of [`SharedSwitch::with`] at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ofswitch::{ConnectionId, ConnectionKind, Effect, Switch};
use openflow::Version;
use openflow::message::Role;
use tokio::sync::{Notify, watch};
use tokio::time::{Duration, Instant, sleep_until};

use crate::clock;
use crate::snoop::Snoopers;
use crate::talk::{Direction, Talk};

/// A switch that connections and packets share.
pub struct SharedSwitch {
    inner: Mutex<Inner>,
    /// The switch's name.
    name: String,
    pub(crate) snoopers: Snoopers,
    effects: Box<dyn Fn(Vec<Effect>) + Send + Sync>,
    /// Told when a controller says hello, changes roles, or goes.
    changes: watch::Sender<()>,
    /// Whether the switch needs ticks.
    needs_ticks: watch::Sender<bool>,
}

struct Inner {
    switch: Switch,
    lines: BTreeMap<ConnectionId, Line>,
    /// When the last controller went, or the switch was made.
    without_controller: Instant,
}

/// A connection as the lock's holder sees it.
struct Line {
    kind: ConnectionKind,
    doorbell: Arc<Notify>,
}

impl Inner {
    fn ring(&self) {
        for (id, line) in &self.lines {
            if self.switch.has_messages(*id) || self.switch.is_closed(*id) {
                line.doorbell.notify_one();
            }
        }
    }

    /// Controllers that have said hello, with their roles.
    fn controllers(&self) -> impl Iterator<Item = (ConnectionId, Role)> {
        let agreed = |id: &ConnectionId| self.switch.version(*id).is_some();
        let controllers = self.lines.iter().filter(|(_, line)| line.kind == ConnectionKind::Controller);
        controllers
            .map(|(id, _)| *id)
            .filter(agreed)
            .filter_map(|id| self.switch.role(id).map(|role| (id, role)))
    }
}

impl fmt::Debug for SharedSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSwitch").finish_non_exhaustive()
    }
}

impl SharedSwitch {
    /// Shares a switch. `effects` is called, without the lock, with what packets of controllers and tools cause.
    pub fn new(switch: Switch, effects: impl Fn(Vec<Effect>) + Send + Sync + 'static) -> Arc<Self> {
        let name = switch.name().to_owned();
        let inner = Inner { switch, lines: BTreeMap::new(), without_controller: Instant::now() };
        Arc::new(SharedSwitch {
            inner: Mutex::new(inner),
            name,
            snoopers: Snoopers::default(),
            effects: Box::new(effects),
            changes: watch::Sender::new(()),
            needs_ticks: watch::Sender::new(false),
        })
    }

    /// Nanoseconds on the clock that [`SharedSwitch::with`] goes by ([`clock`]).
    pub fn now(&self) -> u64 {
        clock::now()
    }

    /// Time on the switch's clock at a time of the machine's: see [`clock::at`].
    #[inline]
    pub fn time_at(&self, monotonic: u64) -> u64 {
        clock::at(monotonic)
    }

    /// Uses the switch, at a time in nanoseconds, and wakes the connections that messages wait for.
    ///
    /// Ports, packets and ticks go through here.
    pub fn with<R>(&self, run: impl FnOnce(&mut Switch, u64) -> R) -> R {
        self.with_monotonic(|switch, monotonic| run(switch, clock::at(monotonic)))
    }

    /// The same with the time of the machine's monotonic clock.
    fn with_monotonic<R>(&self, run: impl FnOnce(&mut Switch, u64) -> R) -> R {
        let mut inner = self.lock();
        let result = run(&mut inner.switch, clock::monotonic());
        let effects = inner.switch.take_effects();
        inner.ring();
        let needs_ticks = inner.switch.needs_ticks();
        self.needs_ticks.send_if_modified(|before| std::mem::replace(before, needs_ticks) != needs_ticks);
        drop(inner);
        if !effects.is_empty() {
            (self.effects)(effects);
        }
        result
    }

    /// Returns a receiver that is told when a controller says hello, changes roles, or goes; without controllers that
    /// passive targets accept.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Returns a receiver of whether the switch needs ticks.
    pub(crate) fn needs_ticks(&self) -> watch::Receiver<bool> {
        self.needs_ticks.subscribe()
    }

    /// Adds a connection to a peer of this name; `None`: the switch has too many.
    pub(crate) fn connect(self: &Arc<Self>, kind: ConnectionKind, peer: &str) -> Option<Connected> {
        let mut inner = self.lock();
        let id = inner.switch.connect(kind)?;
        let doorbell = Arc::new(Notify::new());
        inner.lines.insert(id, Line { kind, doorbell: doorbell.clone() });
        drop(inner);
        Some(Connected { shared: self.clone(), id, kind, doorbell, talk: Talk::new(peer.to_owned()) })
    }

    /// The controller to observe: the primary one, else an equal one, else a secondary one.
    pub(crate) fn leading_controller(&self) -> Option<ConnectionId> {
        let rank = |role| match role {
            Role::Primary => 0,
            Role::Equal | Role::NoChange => 1,
            Role::Secondary => 2,
        };
        self.lock().controllers().min_by_key(|(_, role)| rank(*role)).map(|(id, _)| id)
    }

    /// Whether a connection has not been dropped.
    pub(crate) fn is_connected(&self, id: ConnectionId) -> bool {
        self.lock().lines.contains_key(&id)
    }

    /// Time since when no controller is connected; `None`: one is.
    pub(crate) fn without_controller(&self) -> Option<Duration> {
        let inner = self.lock();
        let connected = inner.controllers().next().is_some();
        (!connected).then(|| inner.without_controller.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place in the switch; dropping it disconnects.
#[derive(Debug)]
pub(crate) struct Connected {
    shared: Arc<SharedSwitch>,
    id: ConnectionId,
    kind: ConnectionKind,
    doorbell: Arc<Notify>,
    talk: Talk,
}

/// What a connection may do next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Status {
    /// Its next request should be read.
    pub(crate) is_ready: bool,
    /// The switch has ended it.
    pub(crate) is_closed: bool,
    /// The version, once both sides have said hello.
    pub(crate) version: Option<Version>,
}

/// What became of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    /// The next one should be read.
    pub(crate) is_ready: bool,
    /// When it was processed: nanoseconds on the machine's monotonic clock.
    pub(crate) at: u64,
}

impl Connected {
    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    /// Waits until messages may wait for the connection.
    pub(crate) async fn rung(&self) {
        self.doorbell.notified().await;
    }

    /// Processes a message.
    pub(crate) fn receive(&self, message: &[u8]) -> Received {
        self.shared.snoopers.copy(self.id, message);
        self.talk.messages(Direction::Received, message);
        let (received, has_changed, agreed) = self.shared.with_monotonic(|switch, at| {
            let state = |switch: &Switch| (switch.version(self.id), switch.role(self.id));
            let before = state(switch);
            switch.receive(self.id, message, clock::at(at));
            let after = state(switch);
            let agreed = after.0.filter(|_| before.0.is_none()).map(|version| (version, switch.versions()));
            (Received { is_ready: switch.is_ready(self.id), at }, after != before, agreed)
        });
        if let Some((version, ours)) = agreed {
            self.talk.agreed(version, ours, message);
        }
        if has_changed && self.kind == ConnectionKind::Controller {
            self.shared.changes.send_replace(());
        }
        received
    }

    /// Notes the changes of flows that messages have made since the last call.
    pub(crate) fn note_changes(&self) {
        let counts = self.shared.lock().switch.take_flow_mods(self.id);
        self.talk.changed(counts);
    }

    /// Appends waiting messages to `out`, until it has `most` bytes or more.
    pub(crate) fn fetch(&self, out: &mut Vec<u8>, most: usize) -> Status {
        let old = out.len();
        let mut inner = self.shared.lock();
        while out.len() < most
            && let Some(message) = inner.switch.next_message(self.id)
        {
            self.shared.snoopers.copy(self.id, &message);
            out.extend_from_slice(&message);
        }
        let status = Status {
            is_ready: inner.switch.is_ready(self.id),
            is_closed: inner.switch.is_closed(self.id),
            version: inner.switch.version(self.id),
        };
        drop(inner);
        self.talk.messages(Direction::Sent, out.get(old..).unwrap_or_default());
        status
    }

    /// Copies a message that the switch does not know of to observers.
    pub(crate) fn copy(&self, message: &[u8]) {
        self.shared.snoopers.copy(self.id, message);
        self.talk.messages(Direction::Sent, message);
    }

    /// Waits until the line about changes of flows is due, and logs it.
    pub(crate) async fn report(&self) {
        match self.talk.due() {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
        self.talk.report(&self.shared.name);
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.talk.report(&self.shared.name);
        let mut inner = self.shared.lock();
        inner.lines.remove(&self.id);
        let is_controller = self.kind == ConnectionKind::Controller;
        if is_controller && inner.switch.version(self.id).is_some() {
            inner.without_controller = Instant::now();
        }
        inner.switch.disconnect(self.id);
        drop(inner);
        if is_controller {
            self.shared.changes.send_replace(());
        }
        self.shared.snoopers.forget(self.id);
    }
}

//! What happens in the switch, for whoever listens.
//!
//! Nobody is waited for: each listener has room for 4,096 events, and one that falls behind is told how many it
//! missed. Stations come and go on workers, which leave what they see in a queue of each MAC table; it is emptied
//! `BEAT` after `BEAT` while anybody listens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fabric::counters::QueueSnapshot;
use fabric::switch::{LinkChange, PortRef};
use fabric::{PortIndex, Violation};
use logic::FdbChange;
use ports::faults::Summary;
use tokio::sync::{Notify, broadcast};

use crate::author::Author;
use crate::convert::{key_changes, port_of};
use crate::desired::Desired;
use crate::diff::{Difference, KeyChange, Kind, Object};
use crate::proto::{Event, StuckModule};
use crate::reconcile::{Action, Outcome};
use crate::state::{Bridge, State};
use crate::stuck::Stuck;

/// Events that a listener may be behind.
const ROOM: usize = 4096;

/// How often stations' events are collected.
const BEAT: Duration = Duration::from_millis(100);

/// Beats between two looks for violations of port security: a port has at most one event for each reason in this time.
const LOOKS: u32 = 10;

/// The kinds of events, as in their `kind`.
pub const KINDS: &[&str] = &[
    "port-up",
    "port-down",
    "port-fault",
    "fdb-learned",
    "fdb-moved",
    "fdb-expired",
    "fdb-evicted",
    "fdb-limit",
    "port-security",
    "logic-stuck",
    "logic-resumed",
    "config",
    "command",
    "lost",
];

/// Where events are told.
pub struct Events {
    sender: broadcast::Sender<Event>,
    /// Somebody began to listen.
    came: Notify,
}

impl Default for Events {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(ROOM), came: Notify::new() }
    }
}

/// Nanoseconds since 1970.
pub(crate) fn nanoseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// An event of now.
fn event(kind: &str) -> Event {
    Event { at_unix_nanoseconds: nanoseconds(SystemTime::now()), kind: kind.into(), ..Event::default() }
}

/// An event of now about an object.
fn about(object: &Object, kind: &str) -> Event {
    let (bridge, port) = (object.bridge().unwrap_or_default().into(), port_of(object));
    Event { bridge, port, object: object.to_string(), ..event(kind) }
}

/// The event of something that was done, or could not be done.
fn outcome_event(outcome: &Outcome) -> Event {
    let Outcome { object, action, trouble } = outcome;
    let (reason, action) = (trouble.clone().unwrap_or_default(), action.name().into());
    Event { reason, action, ..about(object, "config") }
}

/// Events were lost.
pub fn lost(count: u64) -> Event {
    Event { lost: count, ..event("lost") }
}

impl Events {
    /// Listens from now on.
    pub fn listen(&self) -> broadcast::Receiver<Event> {
        let listener = self.sender.subscribe();
        self.came.notify_one();
        listener
    }

    fn tell(&self, event: Event) {
        // Without listeners there is nobody to tell.
        let _ = self.sender.send(event);
    }

    /// A port went up or down.
    pub fn link(&self, change: &LinkChange, reason: String) {
        let kind = if change.up { "port-up" } else { "port-down" };
        let (bridge, port) = (change.bridge.clone(), change.port.clone());
        self.tell(Event { bridge, port, reason, ..event(kind) });
    }

    /// A client cost its port a fault, or reached a limit.
    pub fn fault(&self, bridge: String, port: String, summary: Summary) {
        let last = summary.last;
        self.tell(Event {
            bridge,
            port,
            at_unix_nanoseconds: nanoseconds(last.at),
            reason: last.reason,
            client: last.client,
            limit: last.limit.map(|limit| limit.to_string()).unwrap_or_default(),
            faults: summary.total,
            ..event("port-fault")
        });
    }

    /// A module does not return from a batch, or has returned.
    pub fn stuck(&self, stuck: &Stuck, returned: bool) {
        let kind = if returned { "logic-resumed" } else { "logic-stuck" };
        let proto = StuckModule::from(stuck);
        let reason = if returned { proto.returned() } else { proto.text() };
        self.tell(Event { bridge: stuck.bridge.clone(), reason, ..event(kind) });
    }

    /// Changes of links were lost: they came faster than they could be told.
    pub fn links_lost(&self, count: u64) {
        self.tell(lost(count));
    }

    /// An operator changed the configuration.
    pub fn changes(&self, author: &Author, differences: &[Difference], outcomes: &[Outcome]) {
        let mut untold: Vec<_> = differences.iter().collect();
        for outcome in outcomes {
            let at = untold.iter().position(|difference| difference.object == outcome.object);
            let keys = at.map(|at| key_changes(&untold.remove(at).keys)).unwrap_or_default();
            self.tell(Event { by: author.to_string(), changes: keys, ..outcome_event(outcome) });
        }
        // The daemon's own settings change when it starts again.
        for Difference { object, kind, keys } in untold.into_iter().filter(|d| d.object != Object::Daemon) {
            let action = match kind {
                Kind::Added => Action::Add,
                Kind::Removed => Action::Remove,
                Kind::Changed => Action::Change,
            };
            let outcome = Outcome { object: object.clone(), action, trouble: None };
            let (by, changes) = (author.to_string(), key_changes(keys));
            self.tell(Event { by, changes, ..outcome_event(&outcome) });
        }
    }

    /// The daemon tried again what had failed.
    pub fn retries(&self, outcomes: &[Outcome]) {
        outcomes.iter().for_each(|outcome| self.tell(outcome_event(outcome)));
    }

    /// An operator had something done that is no configuration.
    pub fn command(&self, author: &Author, object: &Object, action: &str, changes: &[KeyChange]) {
        self.tell(Event {
            by: author.to_string(),
            action: action.into(),
            changes: key_changes(changes),
            ..about(object, "command")
        });
    }

    /// Collects what workers leave while anybody listens, for ever: stations' events at each beat, violations of port
    /// security now and then.
    pub async fn collect(self: Arc<Self>, desired: Arc<Desired>) {
        let mut watched = false;
        let mut beats = 0;
        let mut beat = tokio::time::interval(BEAT);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let fresh = !watched;
            if fresh {
                self.somebody().await;
                beats = 0;
            }
            beat.tick().await;
            watched = self.sender.receiver_count() > 0;
            let look = beats == 0;
            beats = (beats + 1) % LOOKS;
            let (this, desired) = (self.clone(), desired.clone());
            let told = move || {
                this.stations(desired.state(), watched);
                if look {
                    this.violations(desired.state(), fresh);
                }
            };
            let _ = tokio::task::spawn_blocking(told).await;
        }
    }

    /// Waits until somebody listens.
    async fn somebody(&self) {
        while self.sender.receiver_count() == 0 {
            self.came.notified().await;
        }
    }

    /// Tells what happened to stations, and whether to go on noting it.
    fn stations(&self, state: &State, watch: bool) {
        for (name, bridge) in state.bridges().iter() {
            let Some(table) = bridge.logic.views().stations else { continue };
            table.watch(watch);
            let (events, missed) = table.drain_events();
            if events.is_empty() && missed == 0 {
                continue;
            }
            let ports = names(bridge);
            for happened in events {
                let kind = match happened.change {
                    FdbChange::Learned => "fdb-learned",
                    FdbChange::Moved => "fdb-moved",
                    FdbChange::Evicted => "fdb-evicted",
                    FdbChange::Expired => "fdb-expired",
                    FdbChange::AtLimit => "fdb-limit",
                };
                self.tell(Event {
                    bridge: name.clone(),
                    port: ports.get(&happened.port).map(|port| (*port).to_owned()).unwrap_or_default(),
                    mac: happened.key.mac().to_string(),
                    vlan: happened.key.vid().into(),
                    ..event(kind)
                });
            }
            if missed > 0 {
                self.tell(Event { bridge: name.clone(), ..lost(missed) });
            }
        }
    }
}

impl Events {
    /// Tells which packets port security has dropped, at most one of each port and reason since the last call. `stale`
    /// ones, from before anybody listened, are discarded.
    fn violations(&self, state: &State, stale: bool) {
        for (name, bridge) in state.bridges().iter() {
            let Ok(found) = state.switch().take_violations(bridge.id) else { continue };
            if stale || found.is_empty() {
                continue;
            }
            let ports = names(bridge);
            for (port, Violation { reason, mac, vid }) in found {
                let counters = state.switch().counters(PortRef { bridge: bridge.id, port });
                let dropped = |queue: &QueueSnapshot| queue.drops.get(reason as usize).copied().unwrap_or(0);
                self.tell(Event {
                    bridge: name.clone(),
                    port: ports.get(&port).map(|port| (*port).to_owned()).unwrap_or_default(),
                    reason: reason.name().into(),
                    mac: mac.to_string(),
                    vlan: vid.into(),
                    dropped: counters.map(|port| port.rx.iter().map(dropped).sum()).unwrap_or(0),
                    ..event("port-security")
                });
            }
        }
    }
}

fn names(bridge: &Bridge) -> BTreeMap<PortIndex, &str> {
    bridge.ports.iter().map(|(name, port)| (port.at.port, name.as_str())).collect()
}

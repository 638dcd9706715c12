//! Events of the switch, streamed to listeners.
//!
//! The switch never waits for a listener: each has a queue of 4,096 events, and a listener that falls behind receives
//! the number of lost events. Workers put the events of stations into a queue of the MAC table, which is drained at
//! each `TICK` while there are listeners.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fabric::counters::QueueSnapshot;
use fabric::switch::{LinkChange, Moved, PortRef};
use fabric::{DropReason, PortIndex, RateLimit, Violation};
use logic::{Faults, FdbChange, Fixed};
use ports::faults::Summary;
use tokio::sync::{Notify, broadcast};

use crate::author::Author;
use crate::convert::{cpu_name, key_changes, port_of};
use crate::desired::Desired;
use crate::diff::{Difference, KeyChange, Kind, Object};
use crate::protection;
use crate::proto::{self, Event, StuckModule};
use crate::reconcile::{Action, Outcome};
use crate::state::{Bridge, State};
use crate::stuck::Stuck;

/// Capacity of a listener's queue.
const QUEUE: usize = 4096;

/// Interval at which the events of stations are collected.
const TICK: Duration = Duration::from_millis(100);

/// Ticks between two checks for violations of port security: a port has at most one event per reason in this time.
const VIOLATION_TICKS: u32 = 10;

/// Minimum time between two events of a rate limit of a port.
const LIMIT_PAUSE: Duration = Duration::from_secs(10);

/// The rate limits that had an event, and its time.
type Reported = BTreeMap<(PortRef, RateLimit), Instant>;

/// The kinds of events.
pub const KINDS: &[&str] = &[
    "port-up",
    "port-down",
    "queue-moved",
    "port-fault",
    "fdb-learned",
    "fdb-moved",
    "fdb-expired",
    "fdb-evicted",
    "fdb-limit",
    "fdb-conflict",
    "port-security",
    "storm-control",
    "policed",
    "logic-stuck",
    "logic-resumed",
    "logic-fault",
    "config",
    "command",
    "lost",
];

/// The source of events.
pub struct Events {
    sender: broadcast::Sender<Event>,
    /// Notified of each new listener.
    new_listener: Notify,
}

impl Default for Events {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(QUEUE), new_listener: Notify::new() }
    }
}

/// Returns nanoseconds since 1970-01-01 00:00 UTC.
pub(crate) fn nanoseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Creates an event with the current time.
fn event(kind: &str) -> Event {
    Event { at_unix_nanoseconds: nanoseconds(SystemTime::now()), kind: kind.into(), ..Event::default() }
}

/// Creates an event about an object with the current time.
fn about(object: &Object, kind: &str) -> Event {
    let (bridge, port) = (object.bridge().unwrap_or_default().into(), port_of(object));
    Event { bridge, port, object: object.to_string(), ..event(kind) }
}

/// Creates the event of a change that was made or failed.
fn outcome_event(outcome: &Outcome) -> Event {
    let Outcome { object, action, trouble } = outcome;
    let (reason, action) = (trouble.clone().unwrap_or_default(), action.name().into());
    Event { reason, action, ..about(object, "config") }
}

/// Creates the event for `count` lost events.
pub fn lost(count: u64) -> Event {
    Event { lost: count, ..event("lost") }
}

impl Events {
    /// Adds a listener, which receives all events from now on.
    pub fn listen(&self) -> broadcast::Receiver<Event> {
        let listener = self.sender.subscribe();
        self.new_listener.notify_one();
        listener
    }

    fn send(&self, event: Event) {
        // An error means that there are no listeners.
        let _ = self.sender.send(event);
    }

    /// Reports that a port went up or down.
    pub fn link(&self, change: &LinkChange, reason: String) {
        let kind = if change.up { "port-up" } else { "port-down" };
        let (bridge, port) = (change.bridge.clone(), change.port.clone());
        self.send(Event { bridge, port, reason, ..event(kind) });
    }

    /// Reports that a receive queue went to a less busy worker.
    pub fn queue_moved(&self, bridge: &str, port: &str, moved: &Moved) {
        let change = proto::KeyChange {
            key: format!("queue {}", moved.queue),
            from: cpu_name(moved.from),
            to: cpu_name(moved.to),
            default: None,
        };
        self.send(Event {
            bridge: bridge.into(),
            port: port.into(),
            reason: format!("the worker was {} % busy", moved.busy),
            changes: vec![change],
            ..event("queue-moved")
        });
    }

    /// Reports that a client caused a fault or reached a limit.
    pub fn fault(&self, bridge: String, port: String, summary: Summary) {
        let last = summary.last;
        self.send(Event {
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

    /// Reports that a module does not return from a batch, or has returned.
    pub fn stuck(&self, stuck: &Stuck, returned: bool) {
        let kind = if returned { "logic-resumed" } else { "logic-stuck" };
        let proto = StuckModule::from(stuck);
        let reason = if returned { proto.returned() } else { proto.text() };
        self.send(Event { bridge: stuck.bridge.clone(), reason, ..event(kind) });
    }

    /// Reports that a module has failed.
    pub fn module_fault(&self, bridge: String, faults: &Faults) {
        let at = SystemTime::now().checked_sub(faults.last.elapsed()).unwrap_or_else(SystemTime::now);
        self.send(Event {
            bridge,
            at_unix_nanoseconds: nanoseconds(at),
            reason: format!("{}: {}", faults.module, faults.reason),
            faults: faults.count,
            ..event("logic-fault")
        });
    }

    /// Reports link changes that were lost because they came faster than they could be reported.
    pub fn links_lost(&self, count: u64) {
        self.send(lost(count));
    }

    /// Reports changes of the configuration.
    pub fn changes(&self, author: &Author, differences: &[Difference], outcomes: &[Outcome]) {
        let mut unreported: Vec<_> = differences.iter().collect();
        for outcome in outcomes {
            let at = unreported.iter().position(|difference| difference.object == outcome.object);
            let keys = at.map(|at| key_changes(&unreported.remove(at).keys)).unwrap_or_default();
            self.send(Event { by: author.to_string(), changes: keys, ..outcome_event(outcome) });
        }
        // The daemon's own settings take effect only after a restart.
        for Difference { object, kind, keys } in unreported.into_iter().filter(|d| d.object != Object::Daemon)
        {
            let action = match kind {
                Kind::Added => Action::Add,
                Kind::Removed => Action::Remove,
                Kind::Changed => Action::Change,
            };
            let outcome = Outcome { object: object.clone(), action, trouble: None };
            let (by, changes) = (author.to_string(), key_changes(keys));
            self.send(Event { by, changes, ..outcome_event(&outcome) });
        }
    }

    /// Reports the results of retries by the daemon.
    pub fn retries(&self, outcomes: &[Outcome]) {
        outcomes.iter().for_each(|outcome| self.send(outcome_event(outcome)));
    }

    /// Reports a change of state that is not configuration, made by an operator.
    pub fn command(&self, author: &Author, object: &Object, action: &str, changes: &[KeyChange]) {
        self.send(Event {
            by: author.to_string(),
            action: action.into(),
            changes: key_changes(changes),
            ..about(object, "command")
        });
    }

    /// Collects the events of workers while there are listeners: events of stations at each tick, violations of port
    /// security and exceeded rate limits at every tenth tick. Never returns.
    pub async fn collect(self: Arc<Self>, desired: Arc<Desired>) {
        let reported = Arc::new(Mutex::new(Reported::new()));
        let mut watched = false;
        let mut ticks = 0;
        let mut interval = tokio::time::interval(TICK);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let fresh = !watched;
            if fresh {
                self.wait_for_listener().await;
                ticks = 0;
            }
            interval.tick().await;
            watched = self.sender.receiver_count() > 0;
            let check_violations = ticks == 0;
            ticks = (ticks + 1) % VIOLATION_TICKS;
            let (this, desired, reported) = (self.clone(), desired.clone(), reported.clone());
            let collect = move || {
                this.stations(desired.state(), watched);
                if check_violations {
                    let mut reported = reported.lock().unwrap_or_else(PoisonError::into_inner);
                    this.violations(desired.state(), fresh);
                    this.exceeded(desired.state(), fresh, &mut reported);
                }
            };
            let _ = tokio::task::spawn_blocking(collect).await;
        }
    }

    /// Waits until there is a listener.
    async fn wait_for_listener(&self) {
        while self.sender.receiver_count() == 0 {
            self.new_listener.notified().await;
        }
    }

    /// Reports the events of stations. `watch`: the MAC tables continue to record them.
    fn stations(&self, state: &State, watch: bool) {
        for (name, bridge) in state.bridges().iter() {
            let Some(table) = bridge.logic.views().stations else { continue };
            table.watch(watch);
            let (events, missed) = table.drain_events();
            if events.is_empty() && missed == 0 {
                continue;
            }
            let ports = names(bridge);
            for station in events {
                let kind = match station.change {
                    FdbChange::Learned => "fdb-learned",
                    FdbChange::Moved => "fdb-moved",
                    FdbChange::Evicted => "fdb-evicted",
                    FdbChange::Expired => "fdb-expired",
                    FdbChange::AtLimit => "fdb-limit",
                    FdbChange::Conflict(_) => "fdb-conflict",
                };
                let port_name = |port| ports.get(&port).map(|port| (*port).to_owned()).unwrap_or_default();
                let other = station.other.map(port_name).unwrap_or_default();
                let (from, owner, reason) = match station.change {
                    FdbChange::Conflict(Fixed::Static) => (String::new(), other, "static"),
                    FdbChange::Conflict(Fixed::Sticky) => (String::new(), other, "sticky"),
                    FdbChange::Conflict(Fixed::Listed) => (String::new(), other, "stations"),
                    _ => (other, String::new(), ""),
                };
                self.send(Event {
                    bridge: name.clone(),
                    port: port_name(station.port),
                    from,
                    owner,
                    reason: reason.into(),
                    mac: station.key.mac().to_string(),
                    vlan: station.key.vid().into(),
                    ..event(kind)
                });
            }
            if missed > 0 {
                self.send(Event { bridge: name.clone(), ..lost(missed) });
            }
        }
    }
}

impl Events {
    /// Reports packets dropped by port security, at most one for each port and reason since the last call. If `stale`,
    /// discards them: they were dropped before there was a listener.
    fn violations(&self, state: &State, stale: bool) {
        for (name, bridge) in state.bridges().iter() {
            let Ok(found) = state.switch().take_violations(bridge.id) else { continue };
            if stale || found.is_empty() {
                continue;
            }
            let ports = names(bridge);
            for (port, Violation { reason, mac, vid, address }) in found {
                self.send(Event {
                    bridge: name.clone(),
                    port: ports.get(&port).map(|port| (*port).to_owned()).unwrap_or_default(),
                    reason: reason.name().into(),
                    mac: mac.to_string(),
                    vlan: vid.into(),
                    address: address.map(|address| address.to_string()).unwrap_or_default(),
                    dropped: dropped(state, PortRef { bridge: bridge.id, port }, reason),
                    ..event("port-security")
                });
            }
        }
    }

    /// Reports rate limits that were exceeded, each at most once in [`LIMIT_PAUSE`]. If `stale`, discards them.
    fn exceeded(&self, state: &State, stale: bool, reported: &mut Reported) {
        let now = Instant::now();
        reported.retain(|_, at| now.duration_since(*at) < LIMIT_PAUSE);
        for (name, bridge) in state.bridges().iter() {
            let Ok(found) = state.switch().take_exceeded(bridge.id) else { continue };
            for (at, limit) in found {
                let at = PortRef { bridge: bridge.id, port: at };
                if stale || reported.contains_key(&(at, limit)) {
                    continue;
                }
                let Some((port_name, port)) = bridge.ports.iter().find(|(_, port)| port.at == at) else {
                    continue;
                };
                reported.insert((at, limit), now);
                let (key, reason) = match limit {
                    RateLimit::Police => ("police", DropReason::Policed),
                    RateLimit::Broadcast => ("storm-broadcast", DropReason::StormControl),
                    RateLimit::Multicast => ("storm-multicast", DropReason::StormControl),
                    RateLimit::Unknown => ("storm-unknown", DropReason::StormControl),
                };
                let value = protection::given(&port.config.settings).remove(key).unwrap_or_default();
                self.send(Event {
                    bridge: name.clone(),
                    port: port_name.clone(),
                    limit: format!("{key} = {value}"),
                    dropped: dropped(state, at, reason),
                    ..event(reason.name())
                });
            }
        }
    }
}

/// Returns the packets from a port's client dropped for a reason so far.
fn dropped(state: &State, at: PortRef, reason: DropReason) -> u64 {
    let of_queue = |queue: &QueueSnapshot| queue.drops.get(reason as usize).copied().unwrap_or(0);
    state.switch().counters(at).map(|port| port.rx.iter().map(of_queue).sum()).unwrap_or(0)
}

fn names(bridge: &Bridge) -> BTreeMap<PortIndex, &str> {
    bridge.ports.iter().map(|(name, port)| (port.at.port, name.as_str())).collect()
}

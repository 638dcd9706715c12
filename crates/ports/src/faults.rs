//! Faults of clients and the limits that they reached: one record for all port types.
//!
//! `port show`, events and the log report the last fault of each port, with the client's name. If a worker found the
//! fault, the port is also held off: each such fault has delayed a batch of others' packets, so the port admits no
//! client for a while, longer each time. A client that leaves without a fault is never held off.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use clientmem::Closer;
use fabric::Fault;
use tokio::sync::Notify;

/// Hold-off after the first fault. Each further fault of a client that harmed only itself adds as much; each of one
/// that delayed others doubles it.
const FIRST: Duration = Duration::from_millis(100);
/// Time without faults after which the next one counts as the first.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// Longest rest of a hold-off that a new client waits for; with more left, it is refused.
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// Time for which a limit that is reached repeatedly is recorded once.
const RECORD_INTERVAL: Duration = Duration::from_secs(60);

/// Default of the longest hold-off, seconds.
pub(crate) const DEFAULT_HOLD_OFF: u32 = 30;

/// Kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The client broke a rule of the protocol.
    Protocol,
    /// Shared memory was taken away.
    Memory,
    /// A worker was delayed in shared memory.
    Stall,
    /// A signal to the client failed, or delayed a worker.
    Signal,
    /// A limit of the port was reached.
    Limit,
}

impl Kind {
    /// Returns its name in replies and events.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Protocol => "protocol",
            Kind::Memory => "memory",
            Kind::Stall => "stall",
            Kind::Signal => "signal",
            Kind::Limit => "limit",
        }
    }
}

impl From<Fault> for Kind {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Memory => Kind::Memory,
            Fault::Stalled => Kind::Stall,
            Fault::Notify(_) | Fault::Signal => Kind::Signal,
            _ => Kind::Protocol,
        }
    }
}

/// Returns whether a fault delayed others before it was found.
fn holds_up_others(fault: Fault) -> bool {
    matches!(fault, Fault::Memory | Fault::Notify(_) | Fault::Stalled | Fault::Signal)
}

/// A limit that a client reached: the option that sets it, and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The option's name.
    pub option: &'static str,
    /// The value in effect.
    pub value: u64,
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} = {}", self.option, self.value)
    }
}

/// A fault on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Time of the fault.
    pub at: SystemTime,
    /// The client: its process, and its own name if known.
    pub client: String,
    /// Kind of the fault.
    pub kind: Kind,
    /// Description of the fault.
    pub reason: String,
    /// The limit, if one was reached.
    pub limit: Option<Limit>,
}

/// The faults of a port so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Number of faults.
    pub total: u64,
    /// The last fault.
    pub last: Report,
    /// Time left until the port admits clients again.
    pub hold_off: Duration,
}

/// Rung when a port records a fault. Clones share one alarm.
#[derive(Debug, Clone, Default)]
pub struct Alarm(Arc<Notify>);

impl Alarm {
    fn ring(&self) {
        self.0.notify_one();
    }

    /// Waits until it has been rung since the last call.
    pub async fn rung(&self) {
        self.0.notified().await;
    }
}

/// State of a port's hold-off.
#[derive(Debug)]
struct HoldOff {
    longest: Duration,
    pause: Duration,
    until: Option<Instant>,
}

impl HoldOff {
    fn fault(&mut self, now: Instant, holds_up_others: bool) {
        if self.until.is_none_or(|until| now.saturating_duration_since(until) > FORGET_AFTER) {
            self.pause = Duration::ZERO;
        }
        let longer = if holds_up_others { self.pause * 2 } else { self.pause + FIRST };
        self.pause = longer.max(FIRST).min(self.longest);
        self.until = Some(now + self.pause);
    }

    fn left(&self, now: Instant) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

#[derive(Debug)]
struct State {
    total: u64,
    last: Option<Report>,
    /// Time at which each limit was recorded.
    limits: Vec<(&'static str, Instant)>,
    hold_off: HoldOff,
}

/// Record of a port's faults. See the module's documentation.
#[derive(Debug)]
pub struct Faults {
    alarm: Alarm,
    state: Mutex<State>,
    lifted: Notify,
}

impl Faults {
    /// Makes an empty record; hold-offs last `longest` seconds at most.
    pub(crate) fn new(alarm: Alarm, longest: u32) -> Self {
        let longest = Duration::from_secs(longest.into());
        let hold_off = HoldOff { longest, pause: Duration::ZERO, until: None };
        let state = Mutex::new(State { total: 0, last: None, limits: Vec::new(), hold_off });
        Self { alarm, state, lifted: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a summary of the faults, if there were any.
    pub fn summary(&self) -> Option<Summary> {
        let state = self.state();
        let last = state.last.clone()?;
        Some(Summary { total: state.total, last, hold_off: state.hold_off.left(Instant::now()) })
    }

    fn record(&self, state: &mut State, client: &str, kind: Kind, reason: &str, limit: Option<Limit>) {
        state.total += 1;
        let (client, reason) = (client.to_owned(), reason.to_owned());
        state.last = Some(Report { at: SystemTime::now(), client, kind, reason, limit });
        self.alarm.ring();
    }

    /// Records a fault that a worker found, with the limit if one was reached, and holds the port off.
    pub fn found(&self, client: &str, fault: Fault, reason: &str, limit: Option<Limit>) {
        let mut state = self.state();
        state.hold_off.fault(Instant::now(), holds_up_others(fault));
        self.record(&mut state, client, fault.into(), reason, limit);
    }

    /// Records a refusal by the control plane, which delayed no other client.
    pub(crate) fn refused(&self, client: &str, reason: &str) {
        self.record(&mut self.state(), client, Kind::Protocol, reason, None);
    }

    /// Records that a client reached a limit, unless the same limit was recorded recently.
    pub fn reached(&self, client: &str, limit: Limit, reason: &str) {
        self.reached_at(Instant::now(), client, limit, reason);
    }

    fn reached_at(&self, now: Instant, client: &str, limit: Limit, reason: &str) {
        let mut state = self.state();
        state.limits.retain(|(_, at)| now.saturating_duration_since(*at) < RECORD_INTERVAL);
        if state.limits.iter().any(|(option, _)| *option == limit.option) {
            return;
        }
        state.limits.push((limit.option, now));
        self.record(&mut state, client, Kind::Limit, reason, Some(limit));
    }

    /// Records that too many descriptors of a client cannot be closed.
    pub(crate) fn unclosed(&self, client: &str, closer: &Closer, reason: &str) {
        let limit = Limit { option: "unclosed-descriptors", value: closer.limit() as u64 };
        self.reached(client, limit, reason);
    }

    /// Ends a hold-off and counts the next fault as the first: the operator has dealt with the client.
    pub fn lift(&self) {
        let mut state = self.state();
        state.hold_off.until = None;
        self.lifted.notify_waiters();
    }

    /// Returns the time left until the port admits clients.
    pub(crate) fn held_off(&self) -> Duration {
        self.state().hold_off.left(Instant::now())
    }

    /// Waits until the hold-off ends.
    pub(crate) async fn hold_off_ends(&self) {
        loop {
            let lifted = self.lifted.notified();
            tokio::pin!(lifted);
            // It may be lifted between the check and the wait.
            lifted.as_mut().enable();
            let left = self.held_off();
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = lifted => {}
            }
        }
    }

    /// Admits a client, after the rest of a hold-off if that is short; else returns the reason for refusing it.
    pub(crate) async fn admit(&self) -> Result<(), String> {
        let left = self.held_off();
        if left > LONGEST_WAIT {
            return Err(format!(
                "the port is held off for another {} s after repeated faults; `mswitch port set` ends it",
                left.as_secs() + 1
            ));
        }
        self.hold_off_ends().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold_off() -> HoldOff {
        HoldOff { longest: Duration::from_secs(30), pause: Duration::ZERO, until: None }
    }

    /// Returns the hold-offs of faults that follow each other at once.
    fn pauses(holds_up_others: bool, count: usize) -> Vec<u128> {
        let (mut hold_off, mut now) = (hold_off(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..count {
            hold_off.fault(now, holds_up_others);
            pauses.push(hold_off.left(now).as_millis());
            now += hold_off.left(now);
        }
        pauses
    }

    #[test]
    fn hold_offs_grow_while_faults_repeat() {
        assert_eq!(pauses(false, 4), [100, 200, 300, 400]);
        assert_eq!(pauses(false, 400).last(), Some(&30_000));
        assert_eq!(pauses(true, 5), [100, 200, 400, 800, 1600]);
        assert_eq!(pauses(true, 12).last(), Some(&30_000));
    }

    #[test]
    fn a_minute_without_faults_resets_the_hold_off() {
        let (mut hold_off, start) = (hold_off(), Instant::now());
        for _ in 0..20 {
            hold_off.fault(start, true);
        }
        assert_eq!(hold_off.left(start), Duration::from_secs(30));
        let still = start + Duration::from_secs(30) + FORGET_AFTER;
        hold_off.fault(still, true);
        assert_eq!(hold_off.left(still), Duration::from_secs(30));
        let later = still + Duration::from_secs(30) + FORGET_AFTER + FIRST;
        hold_off.fault(later, true);
        assert_eq!(hold_off.left(later), FIRST);
    }

    #[test]
    fn refusals_cause_no_hold_off() {
        let faults = Faults::new(Alarm::default(), 30);
        assert_eq!(faults.summary(), None);
        faults.refused("process 1", "unexpected INIT");
        let summary = faults.summary().unwrap();
        assert_eq!((summary.total, summary.hold_off), (1, Duration::ZERO));
        assert_eq!((summary.last.kind.name(), summary.last.client.as_str()), ("protocol", "process 1"));
        // Operators can disable hold-offs.
        let never = Faults::new(Alarm::default(), 0);
        never.found("process 1", Fault::Memory, "punched", None);
        assert_eq!(never.held_off(), Duration::ZERO);
    }

    #[test]
    fn a_limit_reached_repeatedly_is_recorded_once_a_minute() {
        let faults = Faults::new(Alarm::default(), 30);
        let (start, limit) = (Instant::now(), Limit { option: "message-rate", value: 1600 });
        for second in 0..120 {
            faults.reached_at(start + Duration::from_secs(second), "process 1", limit, "floods");
        }
        let summary = faults.summary().unwrap();
        assert_eq!((summary.total, summary.last.limit), (2, Some(limit)));
        faults.reached_at(start, "process 1", Limit { option: "other", value: 1 }, "floods");
        assert_eq!(faults.summary().unwrap().total, 3);
    }

    #[tokio::test]
    async fn early_clients_wait_or_are_refused_and_an_operator_ends_the_hold_off() {
        let alarm = Alarm::default();
        let faults = Faults::new(alarm.clone(), 30);
        assert_eq!(faults.admit().await, Ok(()));
        faults.found("process 1", Fault::Protocol, "ring 1: wrong", None);
        alarm.rung().await;
        assert!(faults.held_off() > Duration::ZERO);
        for _ in 0..10 {
            faults.found("process 1", Fault::Memory, "punched", None);
        }
        let refused = faults.admit().await.unwrap_err();
        assert!(refused.starts_with("the port is held off for another 30 s"), "{refused}");
        let waits = faults.hold_off_ends();
        tokio::pin!(waits);
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut waits).await.is_err());
        faults.lift();
        waits.await;
        assert_eq!(faults.admit().await, Ok(()));
        faults.found("process 1", Fault::Memory, "punched", None);
        assert!(faults.held_off() <= FIRST, "the next fault is the first again");
    }
}

//! What a connection says, for the log: its messages as text at the level of debugging, in the words and under the
//! module names of Open vSwitch, and from time to time how many changes of flows came.
//!
//! Nothing is written out as text unless the level asks for it. At most [`MOST_MESSAGES`] messages a minute are logged,
//! those of all connections together, so that no peer can fill the disk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ofswitch::FlowModCounts;
use openflow::message::{Header, Hello, Versions};
use openflow::text::{message_text, versions_text};
use openflow::{Version, message};
use tokio::time::{Duration, Instant};

use crate::clock;

/// The log's module of messages.
pub const LOG_OF_MESSAGES: &str = "vconn";

/// Messages of a minute that are logged, of all connections.
const MOST_MESSAGES: u32 = 600;

/// Time from the first change of flows to the line about those since.
const REPORT: Duration = Duration::from_secs(10);
/// Time between such lines at least.
const REPORT_AGAIN: Duration = Duration::from_secs(60);

/// Messages of all connections that may still be logged, and since when.
static BUDGET: Mutex<Option<(Instant, u32)>> = Mutex::new(None);

/// Direction of a message.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    Received,
    Sent,
}

/// A connection in the log.
#[derive(Debug)]
pub(crate) struct Talk {
    /// The peer.
    name: String,
    report: Mutex<Report>,
}

impl Talk {
    /// A connection to a peer of this name.
    pub(crate) fn new(peer: String) -> Self {
        Talk { name: peer, report: Mutex::default() }
    }

    /// Logs the messages in `bytes`, one after the other.
    pub(crate) fn messages(&self, direction: Direction, bytes: &[u8]) {
        if !tracing::enabled!(target: LOG_OF_MESSAGES, tracing::Level::DEBUG) {
            return;
        }
        let mut rest = bytes;
        while let Some(header) = Header::peek(rest) {
            let length = usize::from(header.length).clamp(message::HEADER, rest.len());
            let (message, others) = rest.split_at(length);
            rest = others;
            if !may_log() {
                return;
            }
            let (name, text) = (&self.name, message_text(message));
            match direction {
                Direction::Received => tracing::debug!(target: LOG_OF_MESSAGES, "{name}: received: {text}"),
                Direction::Sent => tracing::debug!(target: LOG_OF_MESSAGES, "{name}: sent (Success): {text}"),
            }
        }
    }

    /// Logs the version that both sides speak, after the peer's hello.
    pub(crate) fn agreed(&self, version: Version, ours: Versions, hello: &[u8]) {
        let Ok((header, hello)) = Hello::decode_any(hello) else { return };
        let (name, number) = (&self.name, version.number());
        let (ours, theirs) = (spoken(ours), spoken(hello.versions(header.version)));
        tracing::debug!(
            target: LOG_OF_MESSAGES,
            "{name}: negotiated OpenFlow version 0x{number:02x} (we support {ours}, peer supports {theirs})"
        );
    }

    /// Notes changes of flows.
    pub(crate) fn changed(&self, counts: FlowModCounts) {
        if counts != FlowModCounts::default() {
            self.lock().note(counts, clock::now(), Instant::now());
        }
    }

    /// When the line about them is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.lock().due
    }

    /// Logs how many changes of flows came since the last time. `bridge`: the switch's name.
    pub(crate) fn report(&self, bridge: &str) {
        let line = self.lock().take(clock::now());
        if let Some(line) = line {
            tracing::info!(target: "connmgr", "{bridge}<->{}: {line}", self.name);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names a peer without an address, as Open vSwitch does: by its number.
pub(crate) fn unnamed_peer() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("unix#{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Whether another message may be logged now.
fn may_log() -> bool {
    let mut budget = BUDGET.lock().unwrap_or_else(PoisonError::into_inner);
    let (since, left) = budget.get_or_insert_with(|| (Instant::now(), MOST_MESSAGES));
    if since.elapsed() >= Duration::from_secs(60) {
        (*since, *left) = (Instant::now(), MOST_MESSAGES);
    }
    let may = *left > 0;
    *left = left.saturating_sub(1);
    may
}

/// Versions in words.
fn spoken(versions: Versions) -> String {
    let (bits, newest) = (versions.0, versions.0.checked_ilog2());
    match newest {
        None => "no versions".into(),
        Some(newest) if bits.is_power_of_two() => format!("version 0x{newest:02x}"),
        Some(newest) if (bits >> 1 | 1).trailing_ones() == newest => {
            format!("version 0x{newest:02x} and earlier")
        }
        Some(_) => format!("versions {}", versions_text(versions)),
    }
}

/// Changes of flows since the last line about them.
#[derive(Debug, Default)]
struct Report {
    counts: FlowModCounts,
    /// Times of the first and the last one on the [`clock`].
    first: u64,
    last: u64,
    due: Option<Instant>,
    /// The next line comes no earlier.
    not_before: Option<Instant>,
}

impl Report {
    fn note(&mut self, counts: FlowModCounts, now: u64, instant: Instant) {
        if self.due.is_none() {
            let due = self.not_before.map_or(instant + REPORT, |not_before| not_before.max(instant + REPORT));
            (self.first, self.due) = (now, Some(due));
            self.not_before = Some(due + REPORT_AGAIN);
        }
        self.last = now;
        self.counts += counts;
    }

    fn take(&mut self, now: u64) -> Option<String> {
        self.due.take()?;
        let FlowModCounts { adds, deletes, modifications } = std::mem::take(&mut self.counts);
        let seconds = |from: u64, to: u64| to.saturating_sub(from) / 1_000_000_000;
        let (ago, interval) = (seconds(self.first, now), seconds(self.first, self.last));
        let when = match interval {
            _ if interval == ago => format!("in the last {ago} s"),
            0 => format!("{ago} s ago"),
            _ => format!("in the {interval} s starting {ago} s ago"),
        };
        let kinds = [(adds, "adds"), (deletes, "deletes"), (modifications, "modifications")];
        let kinds =
            kinds.into_iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}"));
        let kinds: Vec<_> = kinds.collect();
        Some(format!("{} flow_mods {when} ({})", adds + deletes + modifications, kinds.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn changes_of_flows_are_told_in_one_line() {
        let (mut report, start) = (Report::default(), Instant::now());
        assert_eq!((report.due, report.take(0)), (None, None));
        let some = |adds, deletes| FlowModCounts { adds, deletes, modifications: 0 };
        report.note(some(2, 0), SECOND, start);
        report.note(some(0, 1), SECOND, start);
        assert_eq!(report.due, Some(start + REPORT));
        assert_eq!(report.take(SECOND).unwrap(), "3 flow_mods in the last 0 s (2 adds, 1 deletes)");
        // The next line comes a minute after.
        report.note(some(1, 0), 2 * SECOND, start);
        assert_eq!(report.due, Some(start + REPORT + REPORT_AGAIN));
        report.note(some(1, 0), 5 * SECOND, start);
        assert_eq!(report.take(9 * SECOND).unwrap(), "2 flow_mods in the 3 s starting 7 s ago (2 adds)");
        report.note(some(1, 0), 2 * SECOND, start);
        assert_eq!(report.take(9 * SECOND).unwrap(), "1 flow_mods 7 s ago (1 adds)");
    }

    #[test]
    fn versions_are_told_in_words() {
        let spoken = |versions: &[Version]| super::spoken(versions.iter().copied().collect());
        assert_eq!(spoken(&Version::ALL), "version 0x06 and earlier");
        assert_eq!(spoken(&[Version::V1_3]), "version 0x04");
        assert_eq!(spoken(&[Version::V1_0]), "version 0x01");
        assert_eq!(spoken(&[Version::V1_0, Version::V1_3]), "versions 0x01, 0x04");
        assert_eq!(spoken(&[]), "no versions");
    }
}

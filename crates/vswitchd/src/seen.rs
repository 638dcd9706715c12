//! What packets of `netdev-dummy/receive` did lately, as `dpctl/dump-flows` of Open vSwitch shows its flow cache.
//!
//! No flow cache stands behind: before a packet is received, the switch tells what becomes of it and on which parts of the
//! packet that depends. Packets that agree in these are one entry. Other packets are not looked at.
//!
//! Invariant: the number of entries is bounded; those that no packet met for [`MAX_IDLE`] are gone.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use control::desired::Desired;
use unixctl::Commands;

use crate::follow::Numbers;
use crate::trace::Way;

/// Entries at most; further kinds of packets are not noted.
const MOST: usize = 10_000;

/// Time after which an entry goes that no packet met (the default of `other_config:max-idle`).
const MAX_IDLE: Duration = Duration::from_secs(10);

/// The module of its messages, after the one of Open vSwitch that has such messages.
pub(crate) const TARGET: &str = "dpif_netdev";

/// An entry.
struct Entry {
    bridge: String,
    /// The packets, as a datapath flow.
    flow: String,
    actions: String,
    /// Packets after the first, and their bytes.
    packets: u64,
    bytes: u64,
    /// When a packet met it last, and whether that was not the first; nanoseconds.
    met: u64,
    is_used: bool,
}

type Entries = BTreeMap<(u32, String), Entry>;

/// The entries.
#[derive(Clone)]
pub(crate) struct Seen {
    entries: Arc<Mutex<Entries>>,
    desired: Arc<Desired>,
    numbers: Arc<Mutex<Numbers>>,
}

impl Seen {
    /// Nothing has been seen yet.
    pub(crate) fn new(desired: &Arc<Desired>, numbers: &Arc<Mutex<Numbers>>) -> Self {
        Self { entries: Arc::default(), desired: desired.clone(), numbers: numbers.clone() }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a packet that an interface is about to receive.
    pub(crate) fn note(&self, interface: &str, packet: &[u8]) {
        let numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A packet that cannot be traced is received all the same.
        let Ok(way) = Way::of(&self.desired, &numbers, interface, packet) else { return };
        let key = (way.number, way.megaflow.identity());
        let now = ofagent::clock::now();
        let mut entries = self.entries();
        forget(&mut entries, now);
        if let Some(entry) = entries.get_mut(&key) {
            entry.packets += 1;
            entry.bytes += packet.len() as u64;
            (entry.met, entry.is_used, entry.actions) = (now, true, way.actions);
        } else if entries.len() < MOST {
            let flow = way.megaflow.datapath(way.number);
            tracing::debug!(target: TARGET, "flow_add: {flow}, actions:{}", way.actions);
            let (bridge, actions) = (way.bridge, way.actions);
            let entry = Entry { bridge, flow, actions, packets: 0, bytes: 0, met: now, is_used: false };
            entries.insert(key, entry);
        }
    }

    /// The entries of a bridge, or of all, a line each.
    fn dump(&self, bridge: Option<&str>) -> String {
        let now = ofagent::clock::now();
        let mut entries = self.entries();
        forget(&mut entries, now);
        let mut text = String::new();
        for entry in entries.values().filter(|entry| bridge.is_none_or(|bridge| bridge == entry.bridge)) {
            let Entry { flow, packets, bytes, actions, .. } = entry;
            let used = match entry.is_used {
                true => {
                    let since = Duration::from_nanos(now.saturating_sub(entry.met));
                    format!("{}.{:03}s", since.as_secs(), since.subsec_millis())
                }
                false => "never".to_owned(),
            };
            // Writing to a string does not fail.
            let _ = writeln!(text, "{flow}, packets:{packets}, bytes:{bytes}, used:{used}, actions:{actions}");
        }
        text
    }

    /// Adds the commands.
    pub(crate) fn add(&self, commands: &mut Commands) {
        let subject = self.clone();
        commands.add("dpctl/dump-flows", "[-m] [--names | --no-names] [dp]", 0..=4, move |_| {
            let flows = subject.dump(None);
            let head = if flows.is_empty() { "" } else { "flow-dump from the main thread:\n" };
            Ok(format!("{head}{flows}"))
        });
        let subject = self.clone();
        commands.add("dpif/dump-flows", "[-m] [--names | --no-names] bridge", 1..=3, move |words| {
            let bridge = words.last().map_or("", String::as_str);
            if !subject.desired.state().bridges().contains_key(bridge) {
                return Err("no such bridge".into());
            }
            Ok(subject.dump(Some(bridge)))
        });
        for name in ["dpctl/del-flows", "revalidator/purge"] {
            let subject = self.clone();
            commands.add(name, "", 0..=1, move |_| {
                subject.entries().clear();
                Ok(String::new())
            });
        }
    }
}

/// Removes entries that no packet met for long.
fn forget(entries: &mut Entries, now: u64) {
    let idle = MAX_IDLE.as_nanos() as u64;
    entries.retain(|_, entry| now.saturating_sub(entry.met) <= idle);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_entries_go() {
        let entry = |met| Entry {
            bridge: "br0".into(),
            flow: String::new(),
            actions: "drop".into(),
            packets: 0,
            bytes: 0,
            met,
            is_used: false,
        };
        let second = 1_000_000_000;
        let mut entries = Entries::from([((1, "a".into()), entry(0)), ((1, "b".into()), entry(5 * second))]);
        forget(&mut entries, 10 * second);
        assert_eq!(entries.len(), 2);
        forget(&mut entries, 11 * second);
        assert_eq!(entries.keys().map(|(_, key)| key.as_str()).collect::<Vec<_>>(), ["b"]);
    }
}

//! What packets of `netdev-dummy/receive` did lately, as `dpctl/dump-flows` of Open vSwitch shows its flow cache.
//!
//! No flow cache stands behind: before a packet is received, the switch tells what becomes of it and on which parts of
//! the packet that depends. Packets that agree in these are one entry. Other packets are not looked at.
//!
//! Invariant: the number of entries is bounded; those that no packet met for [`MAX_IDLE`] are gone.

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
    way: Way,
    /// Packets after the first, and their bytes.
    packets: u64,
    bytes: u64,
    /// When a packet met it last, and whether that was not the first; nanoseconds.
    met: u64,
    is_used: bool,
}

/// The entries.
#[derive(Clone)]
pub(crate) struct Seen {
    entries: Arc<Mutex<Vec<Entry>>>,
    desired: Arc<Desired>,
    numbers: Arc<Mutex<Numbers>>,
}

impl Seen {
    /// Nothing has been seen yet.
    pub(crate) fn new(desired: &Arc<Desired>, numbers: &Arc<Mutex<Numbers>>) -> Self {
        Self { entries: Arc::default(), desired: desired.clone(), numbers: numbers.clone() }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a packet that an interface is about to receive.
    pub(crate) fn note(&self, interface: &str, packet: &[u8]) {
        let numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A packet that cannot be traced is received all the same.
        let Ok(way) = Way::of(&self.desired, &numbers, interface, packet) else { return };
        let now = ofagent::clock::now();
        let mut entries = self.entries();
        forget(&mut entries, now);
        let mut own = entries.iter_mut().filter(|entry| entry.way.number == way.number);
        if let Some(entry) = own.find(|entry| entry.way.megaflow.has(packet)) {
            entry.packets += 1;
            entry.bytes += packet.len() as u64;
            // Flows may have changed since.
            (entry.met, entry.is_used, entry.way) = (now, true, way);
        } else if entries.len() < MOST {
            let flow = way.megaflow.datapath(way.number);
            tracing::debug!(target: TARGET, "flow_add: {flow}, actions:{}", way.actions);
            entries.push(Entry { way, packets: 0, bytes: 0, met: now, is_used: false });
        }
    }

    /// The entries of a bridge, or of all, a line each.
    fn dump(&self, bridge: Option<&str>) -> String {
        let now = ofagent::clock::now();
        let mut entries = self.entries();
        forget(&mut entries, now);
        let mut text = String::new();
        for entry in entries.iter().filter(|entry| bridge.is_none_or(|bridge| bridge == entry.way.bridge)) {
            let Entry { way, packets, bytes, .. } = entry;
            let (flow, actions) = (way.megaflow.datapath(way.number), &way.actions);
            let used = match entry.is_used {
                true => {
                    let since = Duration::from_nanos(now.saturating_sub(entry.met));
                    format!("{}.{:03}s", since.as_secs(), since.subsec_millis())
                }
                false => "never".to_owned(),
            };
            // Writing to a string does not fail.
            let _ =
                writeln!(text, "{flow}, packets:{packets}, bytes:{bytes}, used:{used}, actions:{actions}");
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
fn forget(entries: &mut Vec<Entry>, now: u64) {
    let idle = MAX_IDLE.as_nanos() as u64;
    entries.retain(|entry| now.saturating_sub(entry.met) <= idle);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::odp;

    #[test]
    fn idle_entries_go() {
        let entry = |number, met| Entry {
            way: Way {
                bridge: "br0".into(),
                number,
                megaflow: odp::Megaflow::of(&[], vec![]),
                actions: "drop".into(),
            },
            packets: 0,
            bytes: 0,
            met,
            is_used: false,
        };
        let second = 1_000_000_000;
        let mut entries = vec![entry(1, 0), entry(2, 5 * second)];
        forget(&mut entries, 10 * second);
        assert_eq!(entries.len(), 2);
        forget(&mut entries, 11 * second);
        assert_eq!(entries.iter().map(|entry| entry.way.number).collect::<Vec<_>>(), [2]);
    }
}

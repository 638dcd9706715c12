//! What packets of dummies did lately, as `dpctl/dump-flows` of Open vSwitch shows its flow cache.
//!
//! No flow cache stands behind: before a packet is received, the switch tells what becomes of it and on which parts of
//! the packet that depends. Packets that agree in these are one entry. Other interfaces' packets are not looked at.
//!
//! Invariant: the number of entries is bounded; those that no packet met for [`MAX_IDLE`] are gone.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use control::desired::Desired;
use tokio::time::MissedTickBehavior;
use tracing::Level;
use unixctl::Commands;

use crate::follow::Numbers;
use crate::odp::{Detail, Megaflow};
use crate::trace::Way;

/// Entries at most; further kinds of packets are not noted.
const MOST: usize = 10_000;

/// Time after which an entry goes that no packet met (the default of `other_config:max-idle`).
const MAX_IDLE: Duration = Duration::from_secs(10);

/// The modules of its messages, after those of Open vSwitch that have such messages: for new entries, and for others.
pub(crate) const DPIF_NETDEV: &str = "dpif_netdev";
pub(crate) const DPIF: &str = "dpif";

/// Time between two logs of all entries.
const LOG_INTERVAL: Duration = Duration::from_millis(500);

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

impl Entry {
    fn text(&self, now: u64, detail: Detail) -> String {
        let Self { way, packets, bytes, .. } = self;
        let (flow, actions) = (way.megaflow.datapath(way.number, detail), &way.actions);
        let used = match self.is_used {
            true => {
                let since = Duration::from_nanos(now.saturating_sub(self.met));
                format!("{}.{:03}s", since.as_secs(), since.subsec_millis())
            }
            false => "never".to_owned(),
        };
        format!("{flow}, packets:{packets}, bytes:{bytes}, used:{used}, actions:{actions}")
    }
}

/// Reads how much detail a command asks for.
fn detail(words: &[String]) -> Detail {
    let is_more = |word: &String| matches!(word.as_str(), "-m" | "--more");
    if words.iter().any(is_more) { Detail::Verbose } else { Detail::Brief }
}

/// The entries.
#[derive(Clone)]
pub(crate) struct Seen {
    entries: Arc<Mutex<Vec<Entry>>>,
    /// Whether each packet that differs from others is an entry of its own.
    is_exact: Arc<AtomicBool>,
    desired: Arc<Desired>,
    numbers: Arc<Mutex<Numbers>>,
    /// The datapath's name.
    datapath: &'static str,
}

impl Seen {
    /// Nothing has been seen yet in the datapath of that name.
    pub(crate) fn new(desired: &Arc<Desired>, numbers: &Arc<Mutex<Numbers>>, datapath: &'static str) -> Self {
        let (desired, numbers) = (desired.clone(), numbers.clone());
        Self { entries: Arc::default(), is_exact: Arc::default(), desired, numbers, datapath }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a packet that an interface is about to receive.
    pub(crate) fn note(&self, interface: &str, packet: &[u8]) {
        let numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A packet that cannot be traced is received all the same.
        let Ok(mut way) = Way::of(&self.desired, &numbers, interface, packet) else { return };
        if self.is_exact.load(Relaxed) {
            way.megaflow = Megaflow::exactly(packet);
        }
        let now = ofagent::clock::now();
        let mut entries = self.entries();
        forget(&mut entries, now);
        let mut own = entries.iter_mut().filter(|entry| entry.way.number == way.number);
        if let Some(entry) = own.find(|entry| entry.way.megaflow.has(packet)) {
            entry.packets += 1;
            entry.bytes += packet.len() as u64;
            if entry.way.actions != way.actions {
                let flow = way.megaflow.datapath(way.number, Detail::Verbose);
                tracing::debug!(target: DPIF, "{}: put[modify] {flow}, actions:{}", self.datapath, way.actions);
            }
            // Flows may have changed since.
            (entry.met, entry.is_used, entry.way) = (now, true, way);
        } else if entries.len() < MOST {
            let flow = way.megaflow.datapath(way.number, Detail::Brief);
            tracing::debug!(target: DPIF_NETDEV, "flow_add: {flow}, actions:{}", way.actions);
            entries.push(Entry { way, packets: 0, bytes: 0, met: now, is_used: false });
        }
    }

    /// The entries of a bridge, or of all, a line each.
    fn dump(&self, bridge: Option<&str>, detail: Detail) -> String {
        let now = ofagent::clock::now();
        let mut entries = self.entries();
        forget(&mut entries, now);
        let own = entries.iter().filter(|entry| bridge.is_none_or(|bridge| bridge == entry.way.bridge));
        own.fold(String::new(), |all, entry| all + &entry.text(now, detail) + "\n")
    }

    /// Logs all entries at times, while debugging messages of [`DPIF`] are wanted.
    pub(crate) async fn log(self) {
        let mut ticks = tokio::time::interval(LOG_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if tracing::enabled!(target: DPIF, Level::DEBUG) {
                let now = ofagent::clock::now();
                for entry in self.entries().iter() {
                    let text = entry.text(now, Detail::Verbose);
                    tracing::debug!(target: DPIF, "{}: flow_dump {text}", self.datapath);
                }
            }
        }
    }

    /// Adds the commands.
    pub(crate) fn add(&self, commands: &mut Commands) {
        let subject = self.clone();
        commands.add("dpctl/dump-flows", "[-m] [--names | --no-names] [dp]", 0..=4, move |words| {
            let flows = subject.dump(None, detail(words));
            let head = if flows.is_empty() { "" } else { "flow-dump from the main thread:\n" };
            Ok(format!("{head}{flows}"))
        });
        let subject = self.clone();
        commands.add("dpif/dump-flows", "[-m] [--names | --no-names] bridge", 1..=3, move |words| {
            let bridge = words.last().map_or("", String::as_str);
            if !subject.desired.state().bridges().contains_key(bridge) {
                return Err("no such bridge".into());
            }
            Ok(subject.dump(Some(bridge), detail(words)))
        });
        for name in ["dpctl/del-flows", "revalidator/purge"] {
            let subject = self.clone();
            commands.add(name, "", 0..=1, move |_| {
                subject.entries().clear();
                Ok(String::new())
            });
        }
        for (name, is_exact, done) in [
            ("upcall/disable-megaflows", true, "megaflows disabled"),
            ("upcall/enable-megaflows", false, "megaflows enabled"),
        ] {
            let subject = self.clone();
            commands.add(name, "", 0..=0, move |_| {
                subject.is_exact.store(is_exact, Relaxed);
                subject.entries().clear();
                Ok(done.into())
            });
        }
        // Entries always have all that is known of them.
        for (name, done) in [("upcall/disable-ufid", "disabled"), ("upcall/enable-ufid", "enabled")] {
            commands.add(name, "", 0..=0, move |_| Ok(format!("Datapath dumping tersely using UFID {done}")));
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

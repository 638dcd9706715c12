//! `qos/show`, `qos/show-types`: quality of service of interfaces (ovs-vswitchd(8)).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use control::desired::Desired;
use fabric::EgressQueueSnapshot;
use unixctl::{Commands, Reply};

use crate::plan::{Plan, PlannedQos, QOS_TYPES};

/// An interface in the database.
#[derive(Debug)]
struct Subject {
    bridge: String,
    qos: Option<PlannedQos>,
}

/// The interfaces of the plan in effect, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown(Arc<Mutex<BTreeMap<String, Subject>>>);

impl Shown {
    /// Follows a plan that has been applied.
    pub(crate) fn follow(&self, plan: &Plan) {
        let interfaces = plan.bridges.iter().flat_map(|bridge| {
            let its = bridge.interfaces.iter().filter(|interface| interface.port.is_ok());
            its.map(|interface| {
                let subject = Subject { bridge: bridge.name.clone(), qos: interface.qos.clone() };
                (interface.name.clone(), subject)
            })
        });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = interfaces.collect();
    }
}

/// Adds the commands.
pub(crate) fn add(commands: &mut Commands, desired: &Arc<Desired>, shown: &Shown) {
    let (subject, its) = (desired.clone(), shown.clone());
    commands.add("qos/show", "interface", 1..=1, move |words| show(&subject, &its, name(words)));
    let its = shown.clone();
    commands.add("qos/show-types", "interface", 1..=1, move |words| {
        let known = its.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(name(words));
        let types = QOS_TYPES.iter().map(|kind| format!("QoS type: {kind}\n"));
        if known { Ok(types.collect()) } else { Err(UNKNOWN.into()) }
    });
}

/// In the words that Open vSwitch has.
const UNKNOWN: &str = "no such interface";

fn name(words: &[String]) -> &str {
    words.first().map_or("", String::as_str)
}

fn show(desired: &Desired, shown: &Shown, interface: &str) -> Reply {
    let subjects = shown.0.lock().unwrap_or_else(PoisonError::into_inner);
    let subject = subjects.get(interface).ok_or(UNKNOWN)?;
    let Some(qos) = &subject.qos else { return Ok(format!("QoS not configured on {interface}\n")) };
    let state = desired.state();
    let place = state.bridges().get(&subject.bridge).and_then(|it| Some(it.ports.get(interface)?.at));
    let counters = place.and_then(|at| state.switch().counters(at).ok()).unwrap_or_default();
    Ok(text(interface, qos, &counters.egress))
}

/// Settings and counters of an interface.
fn text(interface: &str, qos: &PlannedQos, counters: &[EgressQueueSnapshot]) -> String {
    // Writing to a string does not fail.
    let mut text = format!("QoS: {interface} {}\n", qos.kind);
    for (key, value) in &qos.details {
        let _ = writeln!(text, "{key}: {value}");
    }
    for it in counters {
        let _ = match it.queue {
            0 => writeln!(text, "\nDefault:"),
            queue => writeln!(text, "\nQueue {queue}:"),
        };
        for (key, value) in qos.queues.get(&it.queue).into_iter().flatten() {
            let _ = writeln!(text, "  {key}: {value}");
        }
        for (key, value) in [("tx_packets", it.packets), ("tx_bytes", it.bytes), ("tx_errors", it.dropped())]
        {
            let _ = writeln!(text, "  {key}: {value}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn settings_and_counters_are_shown_as_open_vswitch_shows_them() {
        let qos = PlannedQos {
            kind: "linux-htb",
            details: [("max-rate", 10_000_000)].into(),
            queues: [(0, [("min-rate", 12_000)].into()), (7, [("min-rate", 1), ("priority", 2)].into())]
                .into(),
            limits: Default::default(),
            follows_link: false,
        };
        let counters = [(0, 1), (7, 5)].map(|(queue, packets)| EgressQueueSnapshot {
            queue,
            packets,
            bytes: packets * 60,
            policed: packets + 1,
            waiting: None,
            age: Duration::ZERO,
        });
        let expected = "QoS: p1 linux-htb\nmax-rate: 10000000\n\n\
            Default:\n  min-rate: 12000\n  tx_packets: 1\n  tx_bytes: 60\n  tx_errors: 2\n\n\
            Queue 7:\n  min-rate: 1\n  priority: 2\n  tx_packets: 5\n  tx_bytes: 300\n  tx_errors: 6\n";
        assert_eq!(text("p1", &qos, &counters), expected);
    }
}

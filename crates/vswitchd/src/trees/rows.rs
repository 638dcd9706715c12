//! What the database is told of spanning trees: `status` and `rstp_status` of bridges and ports, and ports' counters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use ovsdb::typed::Table;
use ovsdb::vswitch::{Bridge as BridgeRow, Port as PortRow};
use ovsdb::{Replica, Transaction, Uuid};
use spanning_tree::{Bridge, Counters, Millis};

use super::{Running, RunningPort, Trees, now};
use crate::answer::Draft;
use crate::plan::Plan;

/// Status of a row, by keys.
type Status = BTreeMap<String, String>;

/// A port's key whose value alone is no reason to write.
const SECONDS: &str = "stp_sec_in_state";

/// What rows tell.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Rows that tell something.
    bridges: BTreeSet<Uuid>,
    /// The same of ports, with their status of STP.
    ports: BTreeMap<Uuid, Status>,
    /// Whether rows were looked at that tell something from before a restart.
    has_looked: bool,
}

fn map<const N: usize>(keys: [(&str, String); N]) -> Status {
    keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn numbers<const N: usize>(keys: [(&str, u64); N]) -> BTreeMap<String, i64> {
    keys.into_iter().map(|(key, count)| (key.to_owned(), i64::try_from(count).unwrap_or(i64::MAX))).collect()
}

impl Running {
    /// Status of the bridge: of STP, and of RSTP.
    fn status(&self) -> (Status, Status) {
        match &self.tree {
            Bridge::Stp(tree) => {
                let status = tree.status();
                let keys = map([
                    ("stp_bridge_id", status.bridge.dotted()),
                    ("stp_designated_root", status.root.dotted()),
                    ("stp_root_path_cost", status.root_path_cost.to_string()),
                ]);
                (keys, Status::new())
            }
            Bridge::Rstp(tree) => {
                let status = tree.status();
                let keys = map([
                    ("rstp_bridge_id", status.bridge.dotted_with_extension()),
                    ("rstp_root_id", status.root.dotted_with_extension()),
                    ("rstp_root_path_cost", status.root_path_cost.to_string()),
                    ("rstp_designated_id", status.designated_bridge.dotted_with_extension()),
                    ("rstp_designated_port_id", format!("{:04x}", status.designated_port.0)),
                    ("rstp_bridge_port_id", format!("{:04x}", status.root_port.0)),
                ]);
                (Status::new(), keys)
            }
        }
    }

    /// Status of a port: of STP, and of RSTP.
    fn port_status(&self, port: &RunningPort, now: Millis) -> (Status, Status) {
        match &self.tree {
            Bridge::Stp(tree) => {
                let status = tree.port_status(port.number).map(|status| {
                    map([
                        ("stp_port_id", status.id.0.to_string()),
                        ("stp_state", status.state_name.to_owned()),
                        (SECONDS, (now.saturating_sub(port.since) / 1000).to_string()),
                        ("stp_role", status.role.name().to_owned()),
                    ])
                });
                (status.unwrap_or_default(), Status::new())
            }
            Bridge::Rstp(tree) => {
                let status = tree.port_status(port.number).map(|status| {
                    map([
                        ("rstp_port_id", format!("{:04x}", status.id.0)),
                        ("rstp_port_role", status.role.name().to_owned()),
                        ("rstp_port_state", status.state.name().to_owned()),
                        ("rstp_designated_bridge_id", status.designated_bridge.dotted_with_extension()),
                        ("rstp_designated_port_id", format!("{:04x}", status.designated_port.0)),
                        ("rstp_designated_path_cost", status.designated_path_cost.to_string()),
                    ])
                });
                (Status::new(), status.unwrap_or_default())
            }
        }
    }

    /// Counters of a port: of STP, and of RSTP.
    fn counters(&self, port: &RunningPort, now: Millis) -> (BTreeMap<String, i64>, BTreeMap<String, i64>) {
        let Counters { sent, received, errors } = self.tree.counters(port.number);
        match &self.tree {
            Bridge::Stp(_) => {
                let keys = [("stp_tx_count", sent), ("stp_rx_count", received), ("stp_error_count", errors)];
                (numbers(keys), BTreeMap::new())
            }
            Bridge::Rstp(tree) => {
                let since = tree.port_status(port.number).map_or(now, |status| status.since);
                let keys = [
                    ("rstp_tx_count", sent),
                    ("rstp_rx_count", received),
                    ("rstp_error_count", errors),
                    ("rstp_uptime", now.saturating_sub(since) / 1000),
                ];
                (BTreeMap::new(), numbers(keys))
            }
        }
    }
}

impl Trees {
    /// Adds the operations that make the rows of a plan tell the state; `statistics`: counters and times, too.
    pub(crate) fn write(
        &self,
        replica: &Replica,
        plan: &Plan,
        statistics: bool,
        transaction: &mut Transaction,
    ) {
        let now = now();
        let bridges = self.bridges();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = &mut *told;
        if !std::mem::replace(&mut told.has_looked, true) {
            told.bridges.extend(replica.rows(BridgeRow::INFO.name).map(|(uuid, _)| uuid));
            told.ports.extend(replica.rows(PortRow::INFO.name).map(|(uuid, _)| (uuid, Status::new())));
        }
        let (before, ports_before) = (std::mem::take(&mut told.bridges), std::mem::take(&mut told.ports));
        for planned in &plan.bridges {
            let Some(running) = bridges.get(&planned.name) else { continue };
            let (status, rapid) = running.status();
            let mut draft = Draft::new::<BridgeRow>(replica, planned.uuid);
            draft.set(&BridgeRow::STATUS, status);
            draft.set(&BridgeRow::RSTP_STATUS, rapid);
            draft.write(transaction);
            told.bridges.insert(planned.uuid);
            for port in running.ports.values() {
                let (mut status, rapid) = running.port_status(port, now);
                status.extend(planned.statuses.get(&port.uuid).cloned().unwrap_or_default());
                let last = ports_before.get(&port.uuid).filter(|last| !statistics && is_alike(last, &status));
                let status = last.cloned().unwrap_or(status);
                let mut draft = Draft::new::<PortRow>(replica, port.uuid);
                draft.set(&PortRow::STATUS, status.clone());
                draft.set(&PortRow::RSTP_STATUS, rapid);
                if statistics {
                    let (counters, rapid) = running.counters(port, now);
                    draft.set(&PortRow::STATISTICS, counters);
                    draft.set(&PortRow::RSTP_STATISTICS, rapid);
                }
                draft.write(transaction);
                told.ports.insert(port.uuid, status);
            }
        }
        // Rows that have nothing to tell any more.
        for uuid in before.difference(&told.bridges) {
            let mut draft = Draft::new::<BridgeRow>(replica, *uuid);
            draft.set(&BridgeRow::STATUS, Status::new());
            draft.set(&BridgeRow::RSTP_STATUS, Status::new());
            draft.write(transaction);
        }
        for uuid in ports_before.keys().filter(|uuid| !told.ports.contains_key(uuid)) {
            let others = plan.bridges.iter().find_map(|planned| planned.statuses.get(uuid)).cloned();
            let mut draft = Draft::new::<PortRow>(replica, *uuid);
            draft.set(&PortRow::STATUS, others.unwrap_or_default());
            draft.set(&PortRow::RSTP_STATUS, Status::new());
            draft.set(&PortRow::STATISTICS, BTreeMap::new());
            draft.set(&PortRow::RSTP_STATISTICS, BTreeMap::new());
            draft.write(transaction);
        }
    }
}

/// Whether two status differ in nothing but the seconds.
fn is_alike(one: &Status, other: &Status) -> bool {
    let without = |status: &Status| status.iter().filter(|(key, _)| *key != SECONDS).count();
    without(one) == without(other)
        && one.iter().filter(|(key, _)| *key != SECONDS).all(|(key, value)| other.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_alone_are_no_change() {
        let status =
            |state: &str, seconds: &str| map([("stp_state", state.into()), (SECONDS, seconds.into())]);
        assert!(is_alike(&status("blocking", "1"), &status("blocking", "2")));
        assert!(!is_alike(&status("blocking", "1"), &status("listening", "1")));
        assert!(
            !is_alike(&Status::new(), &status("blocking", "1")) && is_alike(&Status::new(), &Status::new())
        );
    }
}

//! Columns of the table `Interface` with the status of monitoring.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::vswitch::Interface;
use ovsdb::{Replica, Transaction};

use super::{Key, Status};
use crate::answer::Draft;
use crate::plan::Plan;

/// Adds the operations that write the status of a plan's interfaces; those that are not monitored have none.
pub(crate) fn write(
    replica: &Replica,
    plan: &Plan,
    statuses: &BTreeMap<Key, Status>,
    transaction: &mut Transaction,
) {
    for bridge in &plan.bridges {
        for interface in &bridge.interfaces {
            let status = statuses.get(&(bridge.name.clone(), interface.name.clone()));
            let Status { bfd, cfm } = status.cloned().unwrap_or_default();
            let mut draft = Draft::new::<Interface>(replica, interface.uuid);
            draft.set(&Interface::BFD_STATUS, bfd);
            let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            draft.set(&Interface::CFM_FAULT, cfm.as_ref().map(|cfm| !cfm.faults.is_empty()));
            draft.set(&Interface::CFM_FLAP_COUNT, cfm.as_ref().map(|cfm| number(cfm.flaps)));
            draft.set(&Interface::CFM_HEALTH, cfm.as_ref().and_then(|cfm| cfm.health).map(i64::from));
            let state = |is_up: bool| if is_up { "up".to_owned() } else { "down".to_owned() };
            let remote = cfm.as_ref().and_then(|cfm| cfm.remote_is_up).map(state);
            draft.set(&Interface::CFM_REMOTE_OPSTATE, remote);
            // The database has signed numbers of the same 64 bits.
            let remotes = cfm.iter().flat_map(|cfm| &cfm.remotes).map(|point| point.cast_signed());
            draft.set(&Interface::CFM_REMOTE_MPIDS, remotes.collect::<BTreeSet<_>>());
            draft.set(&Interface::CFM_FAULT_STATUS, cfm.map(|cfm| cfm.faults).unwrap_or_default());
            draft.write(transaction);
        }
    }
}

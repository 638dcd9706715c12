//! Counters of mirrors, for the column `Mirror.statistics`.

use std::collections::BTreeMap;

use control::state::State;
use ovsdb::vswitch::Mirror;
use ovsdb::{Replica, Transaction, Uuid};

use crate::answer::Draft;
use crate::plan::Plan;

/// Counters by row; mirrors that are not configured have none.
pub(crate) type Copied = BTreeMap<Uuid, BTreeMap<String, i64>>;

/// Returns the counters of a plan's mirrors.
pub(crate) fn copied(plan: &Plan, state: &State) -> Copied {
    let bridges = state.bridges();
    let mut copied = Copied::new();
    for bridge in &plan.bridges {
        let running = bridges.get(&bridge.name).and_then(|bridge| state.switch().mirrors(bridge.id).ok());
        for row in &bridge.mirrors {
            let mut mirrors = running.iter().flatten();
            let found = mirrors.find(|(mirror, _)| row.mirror.is_ok() && mirror.name == row.name);
            let counters = found.map(|(_, counters)| {
                [("tx_packets", counters.packets), ("tx_bytes", counters.bytes)]
                    .map(|(name, count)| (name.to_owned(), i64::try_from(count).unwrap_or(i64::MAX)))
                    .into()
            });
            copied.insert(row.uuid, counters.unwrap_or_default());
        }
    }
    copied
}

/// Adds the operations that write the counters.
pub(crate) fn write(replica: &Replica, copied: &Copied, transaction: &mut Transaction) {
    for (uuid, counters) in copied {
        let mut draft = Draft::new::<Mirror>(replica, *uuid);
        draft.set(&Mirror::STATISTICS, counters.clone());
        draft.write(transaction);
    }
}

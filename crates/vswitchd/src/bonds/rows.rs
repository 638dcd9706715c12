//! What the database is told of bonds: `Port.bond_active_slave` and `Interface.lacp_current`.

use std::collections::BTreeMap;

use ovsdb::vswitch::{Interface, Port};
use ovsdb::{Replica, Transaction, Uuid};
use packet::MacAddr;

use super::Bonds;
use crate::answer::Draft;
use crate::plan::Plan;

/// What is known of a plan's bonds.
#[derive(Debug, Default)]
pub(crate) struct BondFacts {
    /// Address of the active member, by row of the port.
    active: BTreeMap<Uuid, MacAddr>,
    /// Whether the partner is known, by row of the interface; `None` without LACP.
    current: BTreeMap<Uuid, Option<bool>>,
}

impl Bonds {
    /// Returns what is known of a plan's bonds.
    pub(crate) fn facts(&self, plan: &Plan) -> BondFacts {
        let bridges = self.bridges();
        let mut facts = BondFacts::default();
        for bridge in &plan.bridges {
            for interface in &bridge.interfaces {
                facts.current.insert(interface.uuid, None);
            }
            for planned in &bridge.bonds {
                let bond = bridges.get(&bridge.name).and_then(|bridge| bridge.bonds.get(&planned.name));
                let Some(bond) = bond.map(|it| &it.bond) else { continue };
                if bond.is_bond() && bond.active_address() != MacAddr::ZERO {
                    facts.active.insert(planned.uuid, bond.active_address());
                }
                for (name, member) in bond.lacp().into_iter().flat_map(|lacp| lacp.members()) {
                    let row = bridge.interfaces.iter().find(|interface| interface.name == *name);
                    let is_current = member.status != bond::lacp::Status::Defaulted;
                    facts.current.extend(row.map(|row| (row.uuid, Some(is_current))));
                }
            }
        }
        facts
    }
}

/// Adds the operations that make the rows tell the facts.
pub(crate) fn write(replica: &Replica, facts: &BondFacts, transaction: &mut Transaction) {
    for (uuid, mac) in &facts.active {
        let mut draft = Draft::new::<Port>(replica, *uuid);
        draft.set(&Port::BOND_ACTIVE_SLAVE, Some(mac.to_string()));
        draft.write(transaction);
    }
    for (uuid, current) in &facts.current {
        let mut draft = Draft::new::<Interface>(replica, *uuid);
        draft.set(&Interface::LACP_CURRENT, *current);
        draft.write(transaction);
    }
}

//! What the database is told of bonds: `Port.bond_active_slave` and `Interface.lacp_current`.

use std::collections::BTreeMap;
use std::sync::PoisonError;

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
    /// Whether the partner is known, by row of the interface, with LACP.
    current: BTreeMap<Uuid, bool>,
}

impl Bonds {
    /// Returns what is known of a plan's bonds.
    pub(crate) fn facts(&self, plan: &Plan) -> BondFacts {
        let bridges = self.bridges();
        let mut facts = BondFacts::default();
        for bridge in &plan.bridges {
            for planned in &bridge.bonds {
                let bond = bridges.get(&bridge.name).and_then(|bridge| bridge.bonds.get(&planned.name));
                let Some(bond) = bond.map(|it| &it.bond) else { continue };
                if bond.is_bond() && bond.active_address() != MacAddr::ZERO {
                    facts.active.insert(planned.uuid, bond.active_address());
                }
                for (name, member) in bond.lacp().into_iter().flat_map(|lacp| lacp.members()) {
                    let row = bridge.interfaces.iter().find(|interface| interface.name == *name);
                    let is_current = member.status != bond::lacp::Status::Defaulted;
                    facts.current.extend(row.map(|row| (row.uuid, is_current)));
                }
            }
        }
        facts
    }

    /// Adds the operations that make the rows tell the facts.
    pub(crate) fn write(
        &self,
        replica: &Replica,
        plan: &Plan,
        facts: &BondFacts,
        transaction: &mut Transaction,
    ) {
        for (uuid, mac) in &facts.active {
            let mut draft = Draft::new::<Port>(replica, *uuid);
            draft.set(&Port::BOND_ACTIVE_SLAVE, Some(mac.to_string()));
            draft.write(transaction);
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        // At first all interfaces are looked at: rows may tell something from before a restart.
        let told = told.get_or_insert_with(|| {
            let interfaces = plan.bridges.iter().flat_map(|bridge| &bridge.interfaces);
            interfaces.map(|interface| interface.uuid).collect()
        });
        told.extend(facts.current.keys());
        told.retain(|uuid| {
            let current = facts.current.get(uuid).copied();
            let mut draft = Draft::new::<Interface>(replica, *uuid);
            draft.set(&Interface::LACP_CURRENT, current);
            // A row that tells nothing, and has nothing to tell, is not looked at again.
            let stays = current.is_some() || draft.is_change();
            draft.write(transaction);
            stays
        });
    }
}

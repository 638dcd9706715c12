//! From the state of a plan's objects to the database: one transaction with what differs from the rows.
//!
//! The comparison is with the replica, never with what was sent: the server forgets ephemeral columns when it restarts.

use std::collections::BTreeMap;

use ovsdb::typed::{Column, Datum, Table};
use ovsdb::vswitch::{Bridge, Controller, Interface, OpenVSwitch, Port};
use ovsdb::{Replica, Row, Transaction, Uuid};

use crate::controllers::ControllerFacts;
use crate::dummy::Types;
use crate::facts::Facts;
use crate::numbers::NONE;
use crate::plan::{Plan, PlannedInterface};

/// Version of Open vSwitch whose place is taken.
const OVS_VERSION: &str = "3.1.0";

/// A row to write, compared with the one in the replica.
pub(crate) struct Draft<'a> {
    replica: &'a Replica,
    table: &'static str,
    uuid: Uuid,
    row: Row,
}

impl<'a> Draft<'a> {
    pub(crate) fn new<T: Table>(replica: &'a Replica, uuid: Uuid) -> Self {
        Self { replica, table: T::INFO.name, uuid, row: Row::new() }
    }

    /// Sets a column, if the server has it and it differs.
    pub(crate) fn set<T: Datum>(&mut self, column: &Column<T>, value: T) {
        if !self.replica.schema().has(self.table, column.name) {
            return;
        }
        let value = value.into_value();
        let present = self.replica.row(self.table, self.uuid).and_then(|row| row.get(column.name));
        if present != Some(&value) {
            self.row.insert(column.name.into(), value);
        }
    }

    /// Whether something is to be written.
    pub(crate) fn is_change(&self) -> bool {
        !self.row.is_empty()
    }

    pub(crate) fn write(self, transaction: &mut Transaction) {
        // A row that was deleted meanwhile has no state.
        if !self.row.is_empty() && self.replica.row(self.table, self.uuid).is_some() {
            transaction.update(self.table, self.uuid, self.row);
        }
    }
}

/// Returns the operations that make the rows tell the state. `configured` is the number of the configuration that has
/// been applied; `statistics`: counters and times are written, too.
pub(crate) fn operations(
    replica: &Replica,
    plan: &Plan,
    types: Types,
    facts: &[Facts],
    controllers: &BTreeMap<Uuid, ControllerFacts>,
    configured: i64,
    statistics: bool,
) -> Transaction {
    let mut transaction = Transaction::new();
    let mut facts = facts.iter();
    for bridge in &plan.bridges {
        let mut draft = Draft::new::<Bridge>(replica, bridge.uuid);
        if bridge.error.is_none() {
            draft.set(&Bridge::DATAPATH_ID, Some(bridge.datapath_id.to_string()));
            draft.set(&Bridge::DATAPATH_VERSION, "<built-in>".into());
        }
        draft.write(&mut transaction);
        // Spanning trees write those of their ports.
        let in_tree = |uuid: &Uuid| bridge.tree.iter().any(|tree| tree.has_row(*uuid));
        for (uuid, status) in bridge.statuses.iter().filter(|(uuid, _)| !in_tree(uuid)) {
            let mut draft = Draft::new::<Port>(replica, *uuid);
            draft.set(&Port::STATUS, status.clone());
            draft.write(&mut transaction);
        }
        for interface in &bridge.interfaces {
            let Some(facts) = facts.next() else { return transaction };
            write_interface(replica, interface, facts, statistics, &mut transaction);
        }
    }
    for (uuid, facts) in controllers {
        write_controller(replica, *uuid, facts, statistics, &mut transaction);
    }
    if let Some((root, _)) = plan.root {
        let names = |names: Vec<&str>| names.into_iter().map(|name| name.to_owned()).collect();
        let mut draft = Draft::new::<OpenVSwitch>(replica, root);
        draft.set(&OpenVSwitch::CUR_CFG, configured);
        draft.set(&OpenVSwitch::OVS_VERSION, Some(OVS_VERSION.into()));
        draft.set(&OpenVSwitch::DB_VERSION, Some(replica.schema().version.clone()));
        draft.set(&OpenVSwitch::DATAPATH_TYPES, names(types.datapaths()));
        draft.set(&OpenVSwitch::IFACE_TYPES, names(types.interfaces()));
        draft.set(&OpenVSwitch::DPDK_INITIALIZED, plan.dpdk);
        draft.write(&mut transaction);
    }
    transaction
}

fn write_controller(
    replica: &Replica,
    uuid: Uuid,
    facts: &ControllerFacts,
    statistics: bool,
    transaction: &mut Transaction,
) {
    let mut draft = Draft::new::<Controller>(replica, uuid);
    draft.set(&Controller::IS_CONNECTED, facts.is_connected);
    draft.set(&Controller::ROLE, facts.role.clone());
    // It has times, which alone are no reason to write.
    if statistics || !draft.row.is_empty() {
        draft.set(&Controller::STATUS, facts.status.clone());
    }
    draft.write(transaction);
}

fn write_interface(
    replica: &Replica,
    interface: &PlannedInterface,
    facts: &Facts,
    statistics: bool,
    transaction: &mut Transaction,
) {
    let state = |up: bool| Some(if up { "up".to_owned() } else { "down".to_owned() });
    let mut draft = Draft::new::<Interface>(replica, interface.uuid);
    draft.set(&Interface::ERROR, facts.error.clone());
    if facts.error.is_some() {
        draft.set(&Interface::OFPORT, Some(NONE));
        draft.set(&Interface::LINK_STATE, None);
        draft.set(&Interface::ADMIN_STATE, None);
        draft.set(&Interface::MAC_IN_USE, None);
        draft.set(&Interface::IFINDEX, None);
        draft.set(&Interface::MTU, None);
        draft.set(&Interface::LINK_SPEED, None);
        draft.set(&Interface::STATUS, BTreeMap::new());
        return draft.write(transaction);
    }
    draft.set(&Interface::OFPORT, Some(interface.number));
    draft.set(&Interface::LINK_STATE, state(facts.link_up));
    draft.set(&Interface::LINK_SPEED, facts.speed.filter(|_| facts.link_up));
    draft.set(&Interface::STATUS, facts.status.clone());
    match (&facts.device, interface.device) {
        (Some(device), _) => {
            draft.set(&Interface::ADMIN_STATE, state(device.admin_up));
            draft.set(&Interface::MAC_IN_USE, Some(device.mac.clone()));
            draft.set(&Interface::IFINDEX, device.index);
            draft.set(&Interface::MTU, device.mtu);
        }
        // Its device has gone to another namespace: the columns keep what was last known.
        (None, Some(_)) => {}
        (None, None) => draft.set(&Interface::ADMIN_STATE, state(true)),
    }
    if statistics {
        draft.set(&Interface::STATISTICS, facts.statistics.clone());
    }
    draft.write(transaction);
}

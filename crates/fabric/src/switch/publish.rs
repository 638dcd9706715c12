//! Publishing the state of a bridge to the workers.

use std::sync::Arc;

use super::{Bridge, Port, Switch};
use crate::bridge::port::{Caps, PortIndex};
use crate::bridge::state::{BridgeState, Lane, PortEntry};
use crate::counters::DropReason;
use crate::protect::egress_policing::Policed;
use crate::protect::marking::Marks;
use crate::queueing::lane::Queued;
use crate::worker::per_thread::MAX_THREADS;

impl Switch {
    /// Publishes a bridge's current state and waits until no worker, except stuck ones, uses the previous one.
    pub(super) fn publish(&self, bridge: &mut Bridge) {
        count_copies(bridge);
        let named: Vec<_> = (0u16..)
            .zip(&bridge.ports)
            .filter_map(|(i, port)| Some((PortIndex(i), port.as_ref()?.settings.clone())))
            .collect();
        bridge.logic.ports_changed(&named);
        let mut lanes = Vec::new();
        let ports = (0u16..)
            .zip(&bridge.ports)
            .map(|(i, port)| Some(port_entry(PortIndex(i), port.as_ref()?, &mut lanes)));
        let ports = ports.collect();
        let observers = bridge.observers.iter().map(|(_, observer)| observer);
        let (logic, mirrors) = (bridge.logic.clone(), &bridge.mirrors);
        let counters = |at: PortIndex| bridge.ports.get(usize::from(at.0))?.as_ref()?.tx.first().cloned();
        let state = BridgeState::with_monitoring(logic, ports, lanes, mirrors, observers, counters);
        let old = bridge.published.swap(state.with_arenas(MAX_THREADS));
        self.group.reclaim.retire(old);
    }
}

/// Gives the targets of mirrors the counters of a queue even before their first client, for copies that are dropped.
fn count_copies(bridge: &mut Bridge) {
    for port in bridge.ports.iter_mut().flatten().filter(|port| port.tx.is_empty()) {
        if bridge.mirrors.iter().any(|(mirror, _)| mirror.to == port.settings.name) {
            port.tx.push(Arc::default());
        }
    }
}

/// Largest link header on top of an MTU: Ethernet with two VLAN tags.
const LINK_HEADER: u32 = 14 + 4 + 4;

fn port_entry(at: PortIndex, port: &Port, lanes: &mut Vec<Lane>) -> PortEntry {
    let first_lane = lanes.len() as u32;
    let settings = port.settings.clone();
    let (mut up, mut queues, mut caps, mut max_frame) = (false, 0, Caps::default(), 0);
    if let Some(attached) = port.attached.as_ref().filter(|attached| settings.admin_up && !attached.down) {
        let mtu = if settings.mtu > 0 { settings.mtu.min(attached.mtu) } else { attached.mtu };
        (up, queues) = (true, attached.enabled);
        (caps, max_frame) = (attached.caps, mtu.saturating_add(LINK_HEADER));
        let queues = attached.queues.as_ref().map_or(&[][..], |queues| &queues.lanes);
        lanes.extend((0..).zip(&attached.tx).zip(&port.tx).map(|((i, egress), counters)| Lane {
            port: at,
            egress: match (queues.get::<usize>(i), &port.egress_policer) {
                (Some(queues), _) => Arc::new(Queued::new(queues.clone())),
                (None, Some(policer)) => Arc::new(Policed::new(egress.clone(), policer.clone())),
                (None, None) => egress.clone(),
            },
            counters: counters.clone(),
            client: attached.client.clone(),
        }));
    }
    PortEntry {
        up,
        queues,
        first_lane,
        lanes: lanes.len() as u32 - first_lane,
        caps,
        max_frame,
        closed: DropReason::PortDown,
        violations: settings.security.is_on().then(|| port.violations.clone()),
        rate_limits: port.rate_limits.clone(),
        marks: Marks::of(settings.egress.as_deref()),
        has_classes: settings.egress.is_some(),
        mirror: None,
        settings,
    }
}

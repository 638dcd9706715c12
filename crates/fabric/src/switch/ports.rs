//! Ports: adding, changing, removing; their counters.

use std::sync::Arc;

use super::attach::discard;
use super::queues::{Memory, Queues};
use super::{BridgeId, Port, PortRef, State, Switch, SwitchError, port_mut};
use crate::bridge::port::{MAX_PORTS, PortIndex, PortSettings};
use crate::counters::QueueSnapshot;
use crate::deliver::crossing::Inlet;
use crate::protect::egress_policing::{EgressPolicer, EgressQueueSnapshot};
use crate::protect::policing::{RateLimit, RateLimits};
use crate::protect::violations::Violation;
use crate::queueing::classes::Classes;

/// Counters of a port, by queue; they persist from client to client.
#[derive(Debug, Clone, Default)]
pub struct PortSnapshot {
    /// Whether traffic can pass.
    pub up: bool,
    /// From the client.
    pub rx: Vec<QueueSnapshot>,
    /// To the client.
    pub tx: Vec<QueueSnapshot>,
    /// Of the queues of its limits of packets to the client; none without such limits.
    pub egress: Vec<EgressQueueSnapshot>,
}

impl Port {
    fn snapshot(&self) -> PortSnapshot {
        PortSnapshot {
            up: self.is_up(),
            rx: self.rx.iter().map(|c| c.snapshot()).collect(),
            tx: self.tx.iter().map(|c| c.snapshot()).collect(),
            egress: match &self.classes {
                Some(classes) => classes.snapshot(),
                None => self.egress_policer.iter().flat_map(|policer| policer.snapshot()).collect(),
            },
        }
    }
}

impl Switch {
    /// The ports of a bridge.
    pub fn ports(&self, id: BridgeId) -> Result<Vec<PortIndex>, SwitchError> {
        let state = self.lock();
        let bridge = state.bridges.get(&id).ok_or(SwitchError::Gone("bridge"))?;
        Ok((0..).zip(&bridge.ports).filter(|(_, p)| p.is_some()).map(|(i, _)| PortIndex(i)).collect())
    }

    /// Adds a port without a client.
    pub fn add_port(&self, id: BridgeId, settings: PortSettings) -> Result<PortRef, SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&id).ok_or(SwitchError::Gone("bridge"))?;
        if bridge.ports.iter().flatten().any(|p| p.settings.name == settings.name) {
            return Err(SwitchError::PortExists(settings.name));
        }
        let at = bridge.ports.iter().position(Option::is_none).unwrap_or(bridge.ports.len());
        if at >= MAX_PORTS {
            return Err(SwitchError::TooManyPorts);
        }
        let rate_limits = RateLimits::of(&settings, None);
        let egress_policer = EgressPolicer::of(settings.egress.as_ref(), None);
        let classes = Classes::of(settings.egress.as_ref(), None);
        let (settings, violations) = (Arc::new(settings), Arc::default());
        let (rx, tx, pins) = Default::default();
        let (attached, suspended) = (None, false);
        let port = Port {
            settings,
            rate_limits,
            egress_policer,
            classes,
            violations,
            rx,
            tx,
            attached,
            pins,
            suspended,
        };
        if at == bridge.ports.len() {
            bridge.ports.push(Some(port));
        } else {
            bridge.ports[at] = Some(port);
        }
        self.publish(bridge);
        Ok(PortRef { bridge: id, port: PortIndex(at as u16) })
    }

    /// Changes a port's settings. Packets that wait at the port go on waiting if packets still wait there; else they are
    /// dropped (`port-down`).
    pub fn set_port(&self, at: PortRef, settings: PortSettings) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let State { bridges, next_token, workers, .. } = &mut *state;
        let memory = Memory::without(self.queue_memory, bridges, at);
        let bridge = bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        let port = port_mut(bridge, at.port)?;
        let was_up = port.is_up();
        let classes = Classes::of(settings.egress.as_ref(), port.classes.as_ref());
        let (mut added, mut removed) = (Vec::new(), None);
        if let Some(attached) = &mut port.attached {
            match (&classes, &mut attached.queues) {
                (Some(classes), Some(queues)) => queues.configure(classes, memory)?,
                (Some(classes), none) => {
                    let queues = none.insert(Queues::new(classes, &attached.tx, memory)?);
                    added = queues.start(&port.tx, &attached.client, attached.near, workers, next_token);
                }
                (None, queues) => removed = queues.take(),
            }
        }
        port.classes = classes;
        port.rate_limits = RateLimits::of(&settings, port.rate_limits.as_deref());
        port.egress_policer = EgressPolicer::of(settings.egress.as_ref(), port.egress_policer.as_ref());
        port.settings = Arc::new(settings);
        self.publish(bridge);
        for (worker, task) in added {
            workers.add(worker, task);
        }
        self.report_link(bridge, at.port, was_up);
        // No packet comes to wait there any more.
        let asked: Vec<_> =
            removed.iter().flat_map(|queues| &queues.drains).map(|it| workers.ask(*it)).collect();
        drop(state);
        discard(asked.into_iter().flatten());
        Ok(())
    }

    /// Changes the largest packet that a port's client takes, bytes without link header.
    pub fn set_client_mtu(&self, at: PortRef, mtu: u32) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        port_mut(bridge, at.port)?.attached.as_mut().ok_or(SwitchError::Gone("client"))?.mtu = mtu;
        self.publish(bridge);
        Ok(())
    }

    /// Sets the link of a port's client up or down. While it is down, the client stays attached, and packets from and to
    /// it are dropped (`port-down`).
    pub fn set_link(&self, at: PortRef, up: bool) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        let port = port_mut(bridge, at.port)?;
        let was_up = port.is_up();
        let down = &mut port.attached.as_mut().ok_or(SwitchError::Gone("client"))?.down;
        if std::mem::replace(down, !up) == up {
            self.publish(bridge);
            self.report_link(bridge, at.port, was_up);
        }
        Ok(())
    }

    /// A port's settings.
    pub fn settings(&self, at: PortRef) -> Result<PortSettings, SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        Ok(port_mut(bridge, at.port)?.settings.as_ref().clone())
    }

    /// Creates an inlet, through which packets that leave at another port enter as if a client of this port had sent
    /// them. They are dropped (`port-down`) while this port is down. The inlet keeps the bridge alive: whoever attached
    /// it detaches it when the port is removed.
    pub fn inlet(&self, at: PortRef) -> Result<Inlet, SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        let published = bridge.published.clone();
        let port = port_mut(bridge, at.port)?;
        if port.rx.is_empty() {
            port.rx.push(Arc::default());
        }
        let counters = port.rx.first().cloned().unwrap_or_default();
        Ok(Inlet::new(published, at.port, counters))
    }

    /// Removes a port, detaching its client first.
    pub fn remove_port(&self, at: PortRef) -> Result<(), SwitchError> {
        self.detach(at)?;
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        let slot = bridge.ports.get_mut(usize::from(at.port.0)).ok_or(SwitchError::Gone("port"))?;
        let port = slot.take().ok_or(SwitchError::Gone("port"))?;
        self.publish(bridge);
        bridge.logic.port_removed(at.port);
        drop(port);
        Ok(())
    }

    /// Takes the violations of port security at the ports of a bridge: for each port and reason, the first one since
    /// the last call.
    pub fn take_violations(&self, id: BridgeId) -> Result<Vec<(PortIndex, Violation)>, SwitchError> {
        let state = self.lock();
        let bridge = state.bridges.get(&id).ok_or(SwitchError::Gone("bridge"))?;
        let mut taken = Vec::new();
        for (i, port) in (0..).zip(&bridge.ports) {
            let violations = port.iter().flat_map(|port| port.violations.take());
            taken.extend(violations.map(|violation| (PortIndex(i), violation)));
        }
        Ok(taken)
    }

    /// Takes the rate limits that packets have exceeded at the ports of a bridge since the last call.
    pub fn take_exceeded(&self, id: BridgeId) -> Result<Vec<(PortIndex, RateLimit)>, SwitchError> {
        let state = self.lock();
        let bridge = state.bridges.get(&id).ok_or(SwitchError::Gone("bridge"))?;
        let mut taken = Vec::new();
        for (i, port) in (0..).zip(&bridge.ports) {
            let limits = port.iter().filter_map(|port| port.rate_limits.as_deref());
            taken.extend(limits.flat_map(RateLimits::take_exceeded).map(|limit| (PortIndex(i), limit)));
        }
        Ok(taken)
    }

    /// A port's counters; `None` if the port is gone, or if the switch is busy: for callers that hold a lock for which
    /// a logic may wait while the switch calls it.
    pub fn try_counters(&self, at: PortRef) -> Option<PortSnapshot> {
        let mut state = self.try_lock()?;
        let port = port_mut(state.bridges.get_mut(&at.bridge)?, at.port).ok()?;
        Some(port.snapshot())
    }

    /// A port's counters.
    pub fn counters(&self, at: PortRef) -> Result<PortSnapshot, SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        Ok(port_mut(bridge, at.port)?.snapshot())
    }
}

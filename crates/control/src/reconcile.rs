//! Makes the running state match the desired configuration, changing only the differences.
//!
//! A pass removes objects first, because new ones may need their resources; then it adds and changes bridges, ports and
//! stations. A failure is an [`Outcome`] with its reason and does not stop the pass. A port that cannot be opened is in
//! the switch nevertheless, down and with the reason. It is retried with exponential back-off, from one second to
//! [`SLOWEST_RETRY`].
//!
//! Invariant: a port that already matches its desired configuration is left unchanged.

use std::time::{Duration, Instant};

use fabric::Mirror;

use crate::accounting;
use crate::diff::Object;
use crate::host_port;
use crate::model::{BridgeConfig, Config, PortConfig};
use crate::refusal::Refusal;
use crate::sflow::Changed;
use crate::state::{Bridge, Bridges, OpenFailure, Port, State, discard, every};

/// Longest back-off between two attempts to open a port.
pub const SLOWEST_RETRY: Duration = Duration::from_secs(10);

const FIRST_RETRY: Duration = Duration::from_secs(1);

/// The failed ports that a pass retries. Ports whose options changed are always opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retries {
    /// No failed ports.
    None,
    /// Failed ports whose retry is due.
    Due,
    /// All failed ports.
    All,
}

/// A change of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It was added.
    Add,
    /// It was removed.
    Remove,
    /// It was changed in place.
    Change,
    /// It was closed and reopened, or its opening was retried.
    Reopen,
}

impl Action {
    /// Returns its name in replies and events.
    pub fn name(self) -> &'static str {
        match self {
            Action::Add => "add",
            Action::Remove => "remove",
            Action::Change => "change",
            Action::Reopen => "reopen",
        }
    }

    /// Its participle in the log.
    pub fn past(self) -> &'static str {
        match self {
            Action::Add => "added",
            Action::Remove => "removed",
            Action::Change => "changed",
            Action::Reopen => "reopened",
        }
    }
}

/// Result of a pass for one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The object.
    pub object: Object,
    /// The change.
    pub action: Action,
    /// The reason for a failure; `None` on success.
    pub trouble: Option<String>,
}

impl State {
    /// Makes one pass. See the module.
    pub fn reconcile(&self, wanted: &Config, retries: Retries) -> Vec<Outcome> {
        let mut bridges = self.bridges();
        let mut pass = Pass { state: self, retries, now: Instant::now(), outcomes: Vec::new() };
        pass.remove(&mut bridges, wanted);
        // Afterwards: the ports that were removed may have had queues pinned to a worker that goes, too.
        if let Some(done) = self.reconcile_workers(&wanted.daemon.workers) {
            pass.record(Object::Workers, Action::Change, done);
        }
        for bridge in &wanted.bridges {
            pass.bridge(&mut bridges, bridge);
        }
        for Changed { bridge, action, done } in self.sflow().follow(wanted, &bridges) {
            match bridge {
                None => pass.record(Object::Sflow, action, done),
                Some(name) => {
                    let done = done.map_err(|error| format!("sFlow: {error}"));
                    pass.record(Object::Bridge(name), Action::Change, done);
                }
            }
        }
        for accounting::Changed { bridge, done, .. } in self.accounting().follow(wanted, &bridges) {
            let done = done.map_err(|error| format!("NetFlow and IPFIX: {error}"));
            pass.record(Object::Bridge(bridge), Action::Change, done);
        }
        let outcomes = pass.outcomes;
        let unmet = outcomes.iter().filter(|outcome| match &outcome.object {
            Object::Port { bridge, port } => {
                !bridges.get(bridge).is_some_and(|bridge| bridge.ports.contains_key(port))
            }
            Object::Sflow => false,
            _ => true,
        });
        let unmet = unmet.filter_map(|outcome| Some((outcome.object.clone(), outcome.trouble.clone()?)));
        self.set_unmet(unmet.collect());
        outcomes
    }

    /// Returns the ports that could not be opened.
    pub(crate) fn failed_ports(&self) -> Vec<Object> {
        let bridges = self.bridges();
        let failed = every(&bridges).filter(|(_, _, port)| port.failure.is_some());
        failed.map(|(bridge, port, _)| Object::Port { bridge: bridge.into(), port: port.into() }).collect()
    }

    /// Returns the time of the next retry: of a failed port, or of another object that does not run as configured.
    pub fn next_retry(&self) -> Option<Instant> {
        let bridges = self.bridges();
        let ports = bridges.values().flat_map(|bridge| bridge.ports.values());
        let port = ports.filter_map(|port| port.failure.as_ref()).map(|failure| failure.next).min();
        let other = (!self.unmet().is_empty()).then(|| Instant::now() + SLOWEST_RETRY);
        port.into_iter().chain(other).min()
    }

    /// Returns whether a port has lost its backing resource, such as a deleted interface.
    pub fn has_lost(&self) -> bool {
        let bridges = self.bridges();
        let mut ports = bridges.values().flat_map(|bridge| bridge.ports.values());
        ports.any(|port| port.open.as_ref().is_some_and(|open| open.lost().is_some()))
    }
}

struct Pass<'a> {
    state: &'a State,
    retries: Retries,
    now: Instant,
    outcomes: Vec<Outcome>,
}

impl Pass<'_> {
    fn record<E: ToString>(&mut self, object: Object, action: Action, result: Result<(), E>) {
        let trouble = result.err().map(|error| error.to_string());
        self.outcomes.push(Outcome { object, action, trouble });
    }

    /// Removes objects that are not in `wanted`, and closes ports whose new options require reopening.
    fn remove(&mut self, bridges: &mut Bridges, wanted: &Config) {
        let unwanted: Vec<String> =
            bridges.keys().filter(|name| wanted.bridge(name).is_none()).cloned().collect();
        for name in unwanted {
            if let Some(bridge) = bridges.remove(&name) {
                let removed = self.state.remove_bridge(bridge);
                self.record(Object::Bridge(name), Action::Remove, removed);
            }
        }
        for bridge in &wanted.bridges {
            if let Some(running) = bridges.get_mut(&bridge.name) {
                self.remove_in(running, bridge);
            }
        }
    }

    fn remove_in(&mut self, running: &mut Bridge, wanted: &BridgeConfig) {
        self.remove_stations(running, wanted);
        let unwanted: Vec<String> =
            running.ports.keys().filter(|name| wanted.port(name).is_none()).cloned().collect();
        for name in unwanted {
            if let Some(port) = running.ports.remove(&name) {
                // The logic removes the port's stations, including static ones.
                running.stations.retain(|station| station.port != name);
                if let Some(openflow) = &running.openflow {
                    // Controllers hear that it is gone, and not first that its link is down.
                    openflow.logic().forget_port(port.at.port);
                }
                if let Some(p4) = &running.p4 {
                    p4.logic().forget_port(port.at.port);
                }
                let removed = self.state.remove_port(port);
                self.record(object(wanted, &name), Action::Remove, removed);
            }
        }
        for config in &wanted.ports {
            if let Some(port) = running.ports.get_mut(&config.settings.name) {
                self.change_options(port, config, wanted);
                self.close_lost(port);
            }
        }
    }

    /// Applies changed options to an open port. If it cannot take them while open, closes it so that it is reopened.
    fn change_options(&mut self, port: &mut Port, wanted: &PortConfig, bridge: &BridgeConfig) {
        if port.config.spec == wanted.spec {
            return;
        }
        let changed = port.open.as_ref().map(|open| open.reconfigure(&wanted.spec));
        match changed {
            Some(Err(error)) => {
                let name = &wanted.settings.name;
                return self.record(object(bridge, name), Action::Change, Err(error));
            }
            Some(Ok(true)) => {
                self.record::<String>(object(bridge, &wanted.settings.name), Action::Change, Ok(()))
            }
            Some(Ok(false)) | None => {
                match port.open.take() {
                    Some(open) => open.remove(Some(&wanted.spec)),
                    None => discard(port, Some(&wanted.spec)),
                }
                // Earlier failures do not apply to the new options.
                port.failure = None;
            }
        }
        port.config.spec = wanted.spec.clone();
    }

    /// Closes a port that lost its backing resource, so that it is reopened.
    fn close_lost(&mut self, port: &mut Port) {
        let Some(reason) = port.open.as_ref().and_then(|open| open.lost()) else { return };
        if let Some(open) = port.open.take() {
            open.close();
        }
        port.failure = Some(OpenFailure { message: reason, attempts: 0, next: self.now });
    }

    fn remove_stations(&mut self, running: &mut Bridge, wanted: &BridgeConfig) {
        let Some(table) = running.logic.views().stations else { return };
        for station in running.stations.extract_if(.., |station| !wanted.stations.contains(station)) {
            table.remove(station.vlan, station.mac);
            // A station that moves to another port is recorded when it is added there.
            if !wanted.stations.iter().any(|other| other.is(station.mac, station.vlan)) {
                let object =
                    Object::Station { bridge: wanted.name.clone(), vlan: station.vlan, mac: station.mac };
                self.outcomes.push(Outcome { object, action: Action::Remove, trouble: None });
            }
        }
    }

    fn bridge(&mut self, bridges: &mut Bridges, wanted: &BridgeConfig) {
        let object = || Object::Bridge(wanted.name.clone());
        match bridges.get_mut(&wanted.name) {
            None => match self.state.add_bridge(wanted, bridges) {
                Ok(bridge) => {
                    bridges.insert(wanted.name.clone(), bridge);
                    self.record::<Refusal>(object(), Action::Add, Ok(()));
                }
                Err(refusal) => return self.record(object(), Action::Add, Err(refusal)),
            },
            Some(running)
                if running.config != wanted.logic
                    || running.rebuild
                    || (self.retries == Retries::All && running.logic.is_outdated()) =>
            {
                running.rebuild = false;
                let changed = self.state.set_logic(running, wanted);
                self.record(object(), Action::Change, changed);
            }
            Some(_) => {}
        }
        let Some(running) = bridges.get_mut(&wanted.name) else { return };
        // A host port is open before the port whose addresses it takes.
        let (last, first): (Vec<_>, Vec<_>) =
            wanted.ports.iter().partition(|port| host_port::of(port).is_some());
        for port in first.into_iter().chain(last) {
            self.port(running, port, wanted);
        }
        self.add_stations(running, wanted);
        self.set_mirrors(running, wanted);
        if let Some(done) = self.state.follow_connections(running, wanted) {
            self.record(object(), Action::Change, done);
        }
    }

    fn set_mirrors(&mut self, running: &mut Bridge, wanted: &BridgeConfig) {
        if running.mirrors == wanted.mirrors {
            return;
        }
        let set = self.state.switch().set_mirrors(running.id, wanted.mirrors.clone());
        let before = match &set {
            Ok(()) => std::mem::replace(&mut running.mirrors, wanted.mirrors.clone()),
            Err(_) => running.mirrors.clone(),
        };
        let find =
            |mirrors: &[Mirror], name: &str| mirrors.iter().find(|mirror| mirror.name == name).cloned();
        let gone = before.iter().filter(|mirror| find(&wanted.mirrors, &mirror.name).is_none());
        for mirror in gone.chain(&wanted.mirrors) {
            let action = match (find(&before, &mirror.name), find(&wanted.mirrors, &mirror.name)) {
                (None, _) => Action::Add,
                (_, None) => Action::Remove,
                (old, new) if old == new => continue,
                _ => Action::Change,
            };
            let object = Object::Mirror { bridge: wanted.name.clone(), name: mirror.name.clone() };
            self.record(object, action, set.clone());
        }
    }

    fn port(&mut self, running: &mut Bridge, wanted: &PortConfig, bridge: &BridgeConfig) {
        let name = &wanted.settings.name;
        let mut action = Action::Reopen;
        if !running.ports.contains_key(name) {
            action = Action::Add;
            match self.state.switch().add_port(running.id, wanted.settings.clone()) {
                Ok(at) => {
                    let port = Port { at, config: wanted.clone(), open: None, failure: None };
                    running.ports.insert(name.clone(), port);
                }
                Err(error) => return self.record(object(bridge, name), action, Err(error)),
            }
        }
        let Some(port) = running.ports.get_mut(name) else { return };
        let facts =
            |config: &PortConfig| (config.openflow_port, config.p4_port, config.bond.clone(), config.in_tree);
        if facts(&port.config) != facts(wanted) {
            // The logic is told at the end of the pass.
            port.config.openflow_port = wanted.openflow_port;
            port.config.p4_port = wanted.p4_port;
            port.config.bond.clone_from(&wanted.bond);
            port.config.in_tree = wanted.in_tree;
            self.record::<Refusal>(object(bridge, name), Action::Change, Ok(()));
        }
        if port.config.settings != wanted.settings {
            // The client side of a port stops before the switch drops its packets, and starts after the switch accepts
            // them.
            let set_admin = |port: &Port, up| port.open.iter().for_each(|open| open.set_admin(up));
            if !wanted.settings.admin_up {
                set_admin(port, false);
            }
            let changed = self.state.switch().set_port(port.at, wanted.settings.clone());
            if changed.is_ok() {
                port.config.settings = wanted.settings.clone();
            }
            set_admin(port, port.config.settings.admin_up);
            self.record(object(bridge, name), Action::Change, changed);
        }
        if port.open.is_none() && self.is_due(port) {
            let opened = self.open(port);
            self.record(object(bridge, name), action, opened);
        }
    }

    fn is_due(&self, port: &Port) -> bool {
        match (&port.failure, self.retries) {
            (None, _) | (_, Retries::All) => true,
            (Some(failure), Retries::Due) => failure.next <= self.now,
            (Some(_), Retries::None) => false,
        }
    }

    fn open(&self, port: &mut Port) -> Result<(), String> {
        match self.state.open(port) {
            Ok(open) => {
                port.open = Some(open);
                port.failure = None;
                Ok(())
            }
            Err(message) => {
                let attempts = port.failure.as_ref().map_or(0, |failure| failure.attempts) + 1;
                let pause = FIRST_RETRY.saturating_mul(1 << (attempts - 1).min(10)).min(SLOWEST_RETRY);
                let next = Instant::now() + pause;
                port.failure = Some(OpenFailure { message: message.clone(), attempts, next });
                Err(message)
            }
        }
    }

    fn add_stations(&mut self, running: &mut Bridge, wanted: &BridgeConfig) {
        let Some(table) = running.logic.views().stations else { return };
        for station in &wanted.stations {
            if running.stations.contains(station) {
                continue;
            }
            let Some(port) = running.ports.get(&station.port) else { continue };
            let added = table.add_static(station.vlan, station.mac, port.at.port);
            if added.is_ok() {
                running.stations.push(station.clone());
            }
            let object =
                Object::Station { bridge: wanted.name.clone(), vlan: station.vlan, mac: station.mac };
            self.record(object, Action::Add, added);
        }
    }
}

fn object(bridge: &BridgeConfig, port: &str) -> Object {
    Object::Port { bridge: bridge.name.clone(), port: port.into() }
}

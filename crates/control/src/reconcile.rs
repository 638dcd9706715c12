//! Makes what runs match what is wanted, touching only what differs.
//!
//! One pass: what must go goes first, for it may hold what something new needs; then bridges, ports and stations come
//! and change. What cannot be done is an [`Outcome`] with its trouble and holds up nothing else. A port that cannot be
//! opened is in the switch all the same, down and with the reason, and is tried again: after a second, then ever less
//! often up to every [`SLOWEST_RETRY`].
//!
//! Invariant: a port that is wanted as it runs is not touched.

use std::time::{Duration, Instant};

use fabric::Mirror;

use crate::diff::Object;
use crate::model::{BridgeConfig, Config, PortConfig};
use crate::refusal::Refusal;
use crate::state::{Bridge, Bridges, Port, State, Trouble, every};

/// The longest time between two tries.
pub const SLOWEST_RETRY: Duration = Duration::from_secs(10);

const FIRST_RETRY: Duration = Duration::from_secs(1);

/// Which ports in trouble a pass tries again. Those that changed are always tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// None.
    Changes,
    /// Those whose time has come.
    Due,
    /// All.
    All,
}

/// What was done about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It was made.
    Add,
    /// It was removed.
    Remove,
    /// It was changed in place.
    Change,
    /// It was closed and opened anew, or tried again.
    Reopen,
}

impl Action {
    /// Its name in replies and events.
    pub fn name(self) -> &'static str {
        match self {
            Action::Add => "add",
            Action::Remove => "remove",
            Action::Change => "change",
            Action::Reopen => "reopen",
        }
    }
}

/// What a pass did about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The object.
    pub object: Object,
    /// What was to be done.
    pub action: Action,
    /// Why it could not be done.
    pub trouble: Option<String>,
}

impl State {
    /// One pass. See the module.
    pub fn reconcile(&self, wanted: &Config, effort: Effort) -> Vec<Outcome> {
        let mut bridges = self.bridges();
        let mut pass = Pass { state: self, effort, now: Instant::now(), outcomes: Vec::new() };
        pass.remove(&mut bridges, wanted);
        for bridge in &wanted.bridges {
            pass.bridge(&mut bridges, bridge);
        }
        if let Some((action, done)) = self.sflow().follow(wanted.sflow.as_ref(), &bridges) {
            pass.note(Object::Sflow, action, done);
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

    /// The ports that could not be opened.
    pub(crate) fn in_trouble(&self) -> Vec<Object> {
        let bridges = self.bridges();
        let failed = every(&bridges).filter(|(_, _, port)| port.trouble.is_some());
        failed.map(|(bridge, port, _)| Object::Port { bridge: bridge.into(), port: port.into() }).collect()
    }

    /// When the next port in trouble, or another object that does not run as configured, is to be tried again.
    pub fn next_retry(&self) -> Option<Instant> {
        let bridges = self.bridges();
        let ports = bridges.values().flat_map(|bridge| bridge.ports.values());
        let port = ports.filter_map(|port| port.trouble.as_ref()).map(|trouble| trouble.next).min();
        let other = (!self.unmet().is_empty()).then(|| Instant::now() + SLOWEST_RETRY);
        port.into_iter().chain(other).min()
    }

    /// Whether a port has lost what it had opened.
    pub fn has_lost(&self) -> bool {
        let bridges = self.bridges();
        let mut ports = bridges.values().flat_map(|bridge| bridge.ports.values());
        ports.any(|port| port.open.as_ref().is_some_and(|open| open.lost().is_some()))
    }
}

struct Pass<'a> {
    state: &'a State,
    effort: Effort,
    now: Instant,
    outcomes: Vec<Outcome>,
}

impl Pass<'_> {
    fn note<E: ToString>(&mut self, object: Object, action: Action, result: Result<(), E>) {
        let trouble = result.err().map(|error| error.to_string());
        self.outcomes.push(Outcome { object, action, trouble });
    }

    /// Removes what is not wanted, and closes what is wanted in a form that an open port cannot take.
    fn remove(&mut self, bridges: &mut Bridges, wanted: &Config) {
        let unwanted: Vec<String> =
            bridges.keys().filter(|name| wanted.bridge(name).is_none()).cloned().collect();
        for name in unwanted {
            if let Some(bridge) = bridges.remove(&name) {
                let removed = self.state.remove_bridge(bridge);
                self.note(Object::Bridge(name), Action::Remove, removed);
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
                // The logic forgets the stations behind it, static ones too.
                running.stations.retain(|station| station.port != name);
                let removed = self.state.remove_port(port);
                self.note(object(wanted, &name), Action::Remove, removed);
            }
        }
        for config in &wanted.ports {
            if let Some(port) = running.ports.get_mut(&config.settings.name) {
                self.change_options(port, config, wanted);
                self.notice_loss(port);
            }
        }
    }

    /// Gives an open port its type's options if it can take them; else closes it, to be opened with them.
    fn change_options(&mut self, port: &mut Port, wanted: &PortConfig, bridge: &BridgeConfig) {
        if port.config.spec == wanted.spec {
            return;
        }
        let changed = port.open.as_ref().map(|open| open.reconfigure(&wanted.spec));
        match changed {
            Some(Err(error)) => {
                let name = &wanted.settings.name;
                return self.note(object(bridge, name), Action::Change, Err(error));
            }
            Some(Ok(true)) => {
                self.note::<String>(object(bridge, &wanted.settings.name), Action::Change, Ok(()))
            }
            Some(Ok(false)) | None => {
                if let Some(open) = port.open.take() {
                    open.close();
                }
                // It is another port now: what was tried before says nothing of it.
                port.trouble = None;
            }
        }
        port.config.spec = wanted.spec.clone();
    }

    /// A port whose interface was taken away is closed, to be opened again.
    fn notice_loss(&mut self, port: &mut Port) {
        let Some(reason) = port.open.as_ref().and_then(|open| open.lost()) else { return };
        if let Some(open) = port.open.take() {
            open.close();
        }
        port.trouble = Some(Trouble { message: reason, tries: 0, next: self.now });
    }

    fn remove_stations(&mut self, running: &mut Bridge, wanted: &BridgeConfig) {
        let Some(table) = running.logic.views().stations else { return };
        for station in running.stations.extract_if(.., |station| !wanted.stations.contains(station)) {
            table.remove(station.vlan, station.mac);
            // One that moves is noted when it is added where it goes.
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
                    self.note::<Refusal>(object(), Action::Add, Ok(()));
                }
                Err(refusal) => return self.note(object(), Action::Add, Err(refusal)),
            },
            Some(running)
                if running.config != wanted.logic
                    || running.renew
                    || (self.effort == Effort::All && running.logic.is_outdated()) =>
            {
                running.renew = false;
                let changed = self.state.set_logic(running, wanted);
                self.note(object(), Action::Change, changed);
            }
            Some(_) => {}
        }
        let Some(running) = bridges.get_mut(&wanted.name) else { return };
        for port in &wanted.ports {
            self.port(running, port, wanted);
        }
        self.add_stations(running, wanted);
        self.set_mirrors(running, wanted);
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
            self.note(object, action, set.clone());
        }
    }

    fn port(&mut self, running: &mut Bridge, wanted: &PortConfig, bridge: &BridgeConfig) {
        let name = &wanted.settings.name;
        let mut action = Action::Reopen;
        if !running.ports.contains_key(name) {
            action = Action::Add;
            match self.state.switch().add_port(running.id, wanted.settings.clone()) {
                Ok(at) => {
                    let port = Port { at, config: wanted.clone(), open: None, trouble: None };
                    running.ports.insert(name.clone(), port);
                }
                Err(error) => return self.note(object(bridge, name), action, Err(error)),
            }
        }
        let Some(port) = running.ports.get_mut(name) else { return };
        if port.config.settings != wanted.settings {
            // A port that is to go down stops before packets from it would be dropped, and starts when they are not.
            let set_admin = |port: &Port, up| port.open.iter().for_each(|open| open.set_admin(up));
            if !wanted.settings.admin_up {
                set_admin(port, false);
            }
            let changed = self.state.switch().set_port(port.at, wanted.settings.clone());
            if changed.is_ok() {
                port.config.settings = wanted.settings.clone();
            }
            set_admin(port, port.config.settings.admin_up);
            self.note(object(bridge, name), Action::Change, changed);
        }
        if port.open.is_none() && self.is_due(port) {
            let opened = self.open(port);
            self.note(object(bridge, name), action, opened);
        }
    }

    fn is_due(&self, port: &Port) -> bool {
        match (&port.trouble, self.effort) {
            (None, _) | (_, Effort::All) => true,
            (Some(trouble), Effort::Due) => trouble.next <= self.now,
            (Some(_), Effort::Changes) => false,
        }
    }

    fn open(&self, port: &mut Port) -> Result<(), String> {
        match self.state.open(port) {
            Ok(open) => {
                port.open = Some(open);
                port.trouble = None;
                Ok(())
            }
            Err(message) => {
                let tries = port.trouble.as_ref().map_or(0, |trouble| trouble.tries) + 1;
                let pause = FIRST_RETRY.saturating_mul(1 << (tries - 1).min(10)).min(SLOWEST_RETRY);
                port.trouble =
                    Some(Trouble { message: message.clone(), tries, next: Instant::now() + pause });
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
            self.note(object, Action::Add, added);
        }
    }
}

fn object(bridge: &BridgeConfig, port: &str) -> Object {
    Object::Port { bridge: bridge.name.clone(), port: port.into() }
}

//! The bridges and ports that run: names on top of the fabric's indexes, and the clients' side of each port.
//!
//! Every change is made whole or not at all: what was done before a step that fails is undone. Calls block (a port
//! opens sockets, the fabric waits for its workers), so async tasks make them on threads for blocking work.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric::switch::{BridgeId, PortRef};
use fabric::{PortSettings, Switch, SwitchError, SwitchLogic, VlanMode};
use logic::{Logic, LogicError};
use ports::{Environment, Spec};

use crate::check::{self, Ours};
use crate::limits::{self, LimitError};
use crate::model::{BridgeConfig, LogicConfig, PortConfig, ValueError, check_name};

/// Why a request is refused. Messages name the thing and say what to do.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// No such bridge.
    #[error("there is no bridge \"{0}\"; `mswitch bridge list` shows those there are")]
    NoBridge(String),
    /// No such port.
    #[error("bridge \"{bridge}\" has no port \"{port}\"; `mswitch port list {bridge}` shows those it has")]
    NoPort {
        /// The bridge.
        bridge: String,
        /// The port.
        port: String,
    },
    /// The name is taken.
    #[error("there is a bridge \"{0}\" already; choose another name")]
    BridgeExists(String),
    /// The name is taken.
    #[error("bridge \"{bridge}\" has a port \"{port}\" already; choose another name")]
    PortExists {
        /// The bridge.
        bridge: String,
        /// The port.
        port: String,
    },
    /// Only one port can have it.
    #[error("bridge \"{bridge}\", port \"{port}\" has {what} already; two ports cannot share it")]
    Shared {
        /// The bridge of the port that has it.
        bridge: String,
        /// The port that has it.
        port: String,
        /// What it has.
        what: String,
    },
    /// A port that cannot be.
    #[error("bridge \"{bridge}\", port \"{port}\": {message}")]
    Port {
        /// The bridge.
        bridge: String,
        /// The port.
        port: String,
        /// Why.
        message: String,
    },
    /// A value that cannot be.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// A logic that cannot be.
    #[error(transparent)]
    Logic(#[from] LogicError),
    /// The fabric refused.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// Too many files.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// A bridge that runs.
pub struct Bridge {
    /// Its id in the fabric.
    pub id: BridgeId,
    /// Its logic.
    pub logic: Arc<dyn Logic>,
    /// Its ports by name.
    pub ports: BTreeMap<String, Port>,
}

/// A port that runs.
pub struct Port {
    /// Its place in the fabric.
    pub at: PortRef,
    /// Its type and options.
    pub spec: Spec,
    /// The clients' side.
    pub open: Box<dyn ports::Port>,
}

/// The bridges by name.
pub type Bridges = BTreeMap<String, Bridge>;

/// What `port set` changes; what is `None` stays.
#[derive(Debug, Clone, Default)]
pub struct PortChange {
    /// Whether traffic may pass.
    pub admin_up: Option<bool>,
    /// Largest packet.
    pub mtu: Option<u32>,
    /// VLAN membership.
    pub vlan: Option<VlanMode>,
}

/// Everything that runs. See the module.
pub struct State {
    switch: Arc<Switch>,
    environment: Environment,
    bridges: Mutex<Bridges>,
}

impl State {
    /// Nothing yet, on a running switch.
    pub fn new(environment: Environment) -> Self {
        Self { switch: environment.switch.clone(), environment, bridges: Mutex::default() }
    }

    /// The switch.
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// The bridges as they are; nothing changes while the guard lives.
    pub fn bridges(&self) -> MutexGuard<'_, Bridges> {
        self.bridges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a bridge with its ports.
    pub fn add_bridge(&self, config: &BridgeConfig) -> Result<(), Refusal> {
        check_name(&config.name)?;
        let logic = logic::build(&config.logic.name, &config.logic.params)?;
        {
            let mut bridges = self.bridges();
            if bridges.contains_key(&config.name) {
                return Err(Refusal::BridgeExists(config.name.clone()));
            }
            let id = self.switch.add_bridge(&config.name, logic.clone() as Arc<dyn SwitchLogic>)?;
            bridges.insert(config.name.clone(), Bridge { id, logic, ports: BTreeMap::new() });
        }
        for port in &config.ports {
            if let Err(refusal) = self.add_port(&config.name, port) {
                self.remove_bridge(&config.name)?;
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Removes a bridge and its ports.
    pub fn remove_bridge(&self, name: &str) -> Result<(), Refusal> {
        let mut bridges = self.bridges();
        let bridge = bridges.remove(name).ok_or_else(|| Refusal::NoBridge(name.into()))?;
        for port in bridge.ports.values() {
            port.open.close();
        }
        Ok(self.switch.remove_bridge(bridge.id)?)
    }

    /// Removes everything.
    pub fn clear(&self) {
        let names: Vec<String> = self.bridges().keys().cloned().collect();
        for name in names {
            if let Err(error) = self.remove_bridge(&name) {
                tracing::warn!(bridge = name, %error, "could not be removed");
            }
        }
    }

    /// Adds a port and opens it.
    pub fn add_port(&self, bridge: &str, config: &PortConfig) -> Result<(), Refusal> {
        let name = &config.settings.name;
        check_name(name)?;
        let mut bridges = self.bridges();
        let there = find(&bridges, bridge)?;
        if there.ports.contains_key(name) {
            return Err(Refusal::PortExists { bridge: bridge.into(), port: name.clone() });
        }
        let refused = |message: String| Refusal::Port { bridge: bridge.into(), port: name.clone(), message };
        check::options(&config.spec).map_err(|fault| refused(fault.message))?;
        let (what, _) = check::exclusive(&config.spec, name);
        let mut ours = Ours { process: Some(std::process::id()), ..Ours::default() };
        for (other_bridge, other, port) in every(&bridges) {
            if check::exclusive(&port.spec, other).0 == what {
                return Err(Refusal::Shared { bridge: other_bridge.into(), port: other.into(), what });
            }
            ours.sockets.extend(check::listens_on(&port.spec).map(Into::into));
        }
        check::in_use(&config.spec, &ours).map_err(|fault| refused(fault.message))?;
        limits::raise_for(every(&bridges).count() + 1)?;

        let at = self.switch.add_port(there.id, config.settings.clone())?;
        let open = match ports::open(&config.spec, at, &self.environment) {
            Ok(open) => open,
            Err(error) => {
                self.switch.remove_port(at)?;
                return Err(refused(error.to_string()));
            }
        };
        if let Some(bridge) = bridges.get_mut(bridge) {
            bridge.ports.insert(name.clone(), Port { at, spec: config.spec.clone(), open });
        }
        Ok(())
    }

    /// Changes a port's settings.
    pub fn set_port(&self, bridge: &str, name: &str, change: PortChange) -> Result<(), Refusal> {
        let bridges = self.bridges();
        let port = find_port(&bridges, bridge, name)?;
        let mut settings: PortSettings = self.switch.settings(port.at)?;
        if let Some(up) = change.admin_up {
            settings.admin_up = up;
        }
        if let Some(mtu) = change.mtu {
            settings.mtu = mtu;
        }
        if let Some(vlan) = change.vlan {
            settings.vlan = vlan;
        }
        Ok(self.switch.set_port(port.at, settings)?)
    }

    /// Removes a port and what it opened.
    pub fn remove_port(&self, bridge: &str, name: &str) -> Result<(), Refusal> {
        let mut bridges = self.bridges();
        find_port(&bridges, bridge, name)?;
        let Some(port) = bridges.get_mut(bridge).and_then(|bridge| bridge.ports.remove(name)) else {
            return Ok(());
        };
        port.open.close();
        Ok(self.switch.remove_port(port.at)?)
    }

    /// Replaces a bridge's logic.
    pub fn set_logic(&self, bridge: &str, config: &LogicConfig) -> Result<(), Refusal> {
        let logic = logic::build(&config.name, &config.params)?;
        let mut bridges = self.bridges();
        let there = bridges.get_mut(bridge).ok_or_else(|| Refusal::NoBridge(bridge.into()))?;
        self.switch.set_logic(there.id, logic.clone() as Arc<dyn SwitchLogic>)?;
        there.logic = logic;
        Ok(())
    }

    /// Moves a receive queue to the worker on `cpu`.
    pub fn pin(&self, bridge: &str, name: &str, queue: u16, cpu: usize) -> Result<(), Refusal> {
        let bridges = self.bridges();
        let port = find_port(&bridges, bridge, name)?;
        let refused = |message: String| Refusal::Port { bridge: bridge.into(), port: name.into(), message };
        self.switch.pin(port.at, queue, cpu).map_err(|error| match error {
            SwitchError::Gone("client") => {
                refused("it has no client, so there is no queue to pin; connect the client first".into())
            }
            SwitchError::Gone("queue") => refused(format!("it has no receive queue {queue}")),
            SwitchError::NoWorker(_, cpus) if cpus.is_empty() => Refusal::Other(
                "the workers are not pinned to CPUs; start the daemon with --workers CPULIST to pin them"
                    .into(),
            ),
            other => other.into(),
        })
    }

    /// Lets time pass for the logics that have something to age.
    pub fn tick(&self) {
        let logics: Vec<Arc<dyn Logic>> =
            self.bridges().values().map(|bridge| bridge.logic.clone()).collect();
        for logic in logics {
            if logic.fdb().is_some_and(|fdb| !fdb.is_empty()) {
                logic.tick(fabric::clock::seconds());
            }
        }
    }
}

/// Every port with its bridge's and its own name.
pub fn every(bridges: &Bridges) -> impl Iterator<Item = (&str, &str, &Port)> {
    bridges.iter().flat_map(|(bridge, there)| {
        there.ports.iter().map(move |(name, port)| (bridge.as_str(), name.as_str(), port))
    })
}

/// The bridge of this name.
pub fn find<'a>(bridges: &'a Bridges, name: &str) -> Result<&'a Bridge, Refusal> {
    bridges.get(name).ok_or_else(|| Refusal::NoBridge(name.into()))
}

/// The port of this name.
pub fn find_port<'a>(bridges: &'a Bridges, bridge: &str, name: &str) -> Result<&'a Port, Refusal> {
    let no_port = || Refusal::NoPort { bridge: bridge.into(), port: name.into() };
    find(bridges, bridge)?.ports.get(name).ok_or_else(no_port)
}

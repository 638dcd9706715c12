//! sFlow version 5: samples of packets and ports' counters, sent to collectors.
//!
//! The rooms, along a sample's way: [`settings`] says what is wanted, `sampler` picks packets on the workers, `exporter`
//! reads what they left and ports' counters, `wire` writes both as datagrams, `link` sends them. Here it is switched on
//! and off as the configuration says, and led after bridges and ports that come and go.
//!
//! A port's number (ifIndex) is 4,096 for each bridge with a lower number, its index in its bridge, and one. Bridges and
//! ports take the lowest number that is free and keep it, so the same file gives the same numbers at every start.

mod exporter;
mod link;
mod sampler;
pub mod settings;
mod wire;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric::Switch;
use fabric::switch::{BridgeId, ObserverId};

pub use link::CollectorReport;
pub use settings::{Collector, SflowChange, SflowConfig, SflowError};

use crate::reconcile::Action;
use crate::state::{Bridges, every};
use exporter::{Exporter, Roster, RosterPort};
use sampler::{BridgeSampler, Sampler, if_index};

/// sFlow export, on or off.
pub struct Sflow {
    switch: Arc<Switch>,
    running: Mutex<Option<Running>>,
}

/// How it is.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its settings.
    pub config: SflowConfig,
    /// The agent address, once it is known.
    pub agent: Option<IpAddr>,
    /// What became of datagrams, by collector.
    pub collectors: Vec<CollectorReport>,
    /// Packets sampled and sent.
    pub samples: u64,
    /// Counter samples sent.
    pub counter_samples: u64,
    /// Packets that were to be sampled while there was no room.
    pub dropped: u64,
    /// Number, bridge and name of each port.
    pub ports: Vec<(u32, String, String)>,
}

struct Running {
    config: SflowConfig,
    sampler: Arc<Sampler>,
    bridges: BTreeMap<BridgeId, Watched>,
    exporter: Exporter,
}

struct Watched {
    sampler: Arc<BridgeSampler>,
    observer: ObserverId,
}

impl Sflow {
    /// Off.
    pub fn new(switch: Arc<Switch>) -> Self {
        Self { switch, running: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it is, if it is on.
    pub fn report(&self) -> Option<Report> {
        let running = self.lock();
        let running = running.as_ref()?;
        let exported = running.exporter.exported();
        let roster = running.exporter.roster();
        let ports = roster.ports.iter();
        Some(Report {
            config: running.config.clone(),
            agent: exported.agent,
            collectors: exported.collectors,
            samples: exported.samples,
            counter_samples: exported.counter_samples,
            dropped: running.sampler.dropped(),
            ports: ports.map(|port| (port.if_index, port.bridge.clone(), port.port.clone())).collect(),
        })
    }

    /// How many of a bridge's observers are its own. While the bridges are locked it is neither more nor less.
    pub fn observes(&self, bridge: BridgeId) -> usize {
        let running = self.lock();
        usize::from(running.as_ref().is_some_and(|running| running.bridges.contains_key(&bridge)))
    }

    /// Makes it what is wanted, for these bridges. What was done, if anything was to be.
    pub(crate) fn follow(
        &self,
        wanted: Option<&SflowConfig>,
        bridges: &Bridges,
    ) -> Option<(Action, Result<(), String>)> {
        let mut running = self.lock();
        let action = match (running.as_ref(), wanted) {
            (None, None) => return None,
            (Some(_), None) => Some(Action::Remove),
            (None, Some(_)) => Some(Action::Add),
            (Some(running), Some(wanted)) => (running.config != *wanted).then_some(Action::Change),
        };
        let done = match wanted {
            Some(wanted) => {
                self.run(&mut running, wanted).map(|running| running.follow(&self.switch, bridges))
            }
            None => {
                if let Some(running) = running.take() {
                    running.end(&self.switch);
                }
                Ok(())
            }
        };
        action.map(|action| (action, done))
    }

    /// It runs with these settings.
    fn run<'a>(
        &self,
        running: &'a mut Option<Running>,
        wanted: &SflowConfig,
    ) -> Result<&'a mut Running, String> {
        let there = match running.take() {
            Some(there) => there,
            None => {
                let sampler = Arc::new(Sampler::new(self.switch.threads(), fastrand::u64(..)));
                let exporter = Exporter::start(self.switch.clone(), sampler.clone(), wanted.clone())
                    .map_err(|error| format!("cannot start its thread: {error}"))?;
                sampler.set(wanted.sampling, wanted.header);
                Running { config: wanted.clone(), sampler, bridges: BTreeMap::new(), exporter }
            }
        };
        let there = running.insert(there);
        if there.config != *wanted {
            there.sampler.set(wanted.sampling, wanted.header);
            there.exporter.configure(wanted.clone());
            there.config = wanted.clone();
        }
        Ok(there)
    }
}

impl Running {
    /// Samples the packets of every bridge there is.
    fn follow(&mut self, switch: &Switch, bridges: &Bridges) {
        // The observer of a bridge that is gone went with it.
        self.bridges.retain(|id, _| bridges.values().any(|bridge| bridge.id == *id));
        let mut roster = Roster::default();
        for bridge in bridges.values() {
            if !self.bridges.contains_key(&bridge.id) {
                let sampler = Arc::new(BridgeSampler::new(self.sampler.clone(), bridge.number));
                // It refuses only what is not there, and nothing goes while the bridges are ours.
                let Ok(observer) = switch.observe(bridge.id, sampler.clone()) else { continue };
                self.bridges.insert(bridge.id, Watched { sampler, observer });
            }
            if let Some(watched) = self.bridges.get(&bridge.id) {
                roster.bridges.insert(bridge.number, watched.sampler.clone());
            }
        }
        for (name, port_name, port) in every(bridges) {
            let Some(bridge) = bridges.get(name) else { continue };
            roster.ports.push(RosterPort {
                at: port.at,
                if_index: if_index(bridge.number, port.at.port),
                bridge: name.into(),
                port: port_name.into(),
                admin_up: port.config.settings.admin_up,
            });
        }
        roster.ports.sort_by_key(|port| port.if_index);
        self.exporter.follow(roster);
    }

    /// Samples nothing more, and sends what was sampled.
    fn end(self, switch: &Switch) {
        for (bridge, watched) in &self.bridges {
            // A bridge that is gone has no observers.
            let _ = switch.unobserve(*bridge, watched.observer);
        }
        drop(self.exporter);
    }
}

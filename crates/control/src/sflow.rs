//! sFlow version 5: exports samples of packets and of port counters to collectors.
//!
//! The path of a sample: `sampler` picks packets on the workers, `exporter` reads the samples and the counters of
//! ports, `wire` encodes both in datagrams, `collector` sends them; [`settings`] holds the configuration. This module
//! enables and disables one export, and follows bridges and ports that are added and removed; `exports` has all of them.
//!
//! The number of a port (ifIndex) is 4,096 times the number of its bridge, plus its index in the bridge, plus 1.
//! Bridges and ports take the lowest free number and keep it, so a file gives the same numbers at every start.

mod exporter;
mod exports;
mod sampler;
pub mod settings;
mod wire;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric::Switch;
use fabric::switch::{BridgeId, ObserverId};

pub(crate) use exports::Changed;
pub use exports::Exports;
pub use settings::{Collector, SflowChange, SflowConfig, SflowError};

pub use crate::collector::CollectorReport;
use crate::reconcile::Action;
use crate::state::{Bridges, every};
use exporter::{Exporter, Roster, RosterPort};
use sampler::{BridgeSampler, Sampler, if_index};

/// sFlow export, enabled or disabled.
pub struct Sflow {
    switch: Arc<Switch>,
    sub_agent: u32,
    running: Mutex<Option<Running>>,
}

/// The state of sFlow export.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its settings.
    pub config: SflowConfig,
    /// The agent address; `None` while it is unknown.
    pub agent: Option<IpAddr>,
    /// Delivery statistics by collector.
    pub collectors: Vec<CollectorReport>,
    /// Packet samples sent.
    pub samples: u64,
    /// Counter samples sent.
    pub counter_samples: u64,
    /// Packet samples lost because a page was full.
    pub dropped: u64,
    /// Number, bridge and name of the ports.
    pub ports: Vec<(u32, String, String)>,
}

struct Running {
    config: SflowConfig,
    sampler: Arc<Sampler>,
    bridges: BTreeMap<BridgeId, Sampled>,
    exporter: Exporter,
}

struct Sampled {
    sampler: Arc<BridgeSampler>,
    observer: ObserverId,
}

impl Sflow {
    /// Creates a disabled export. `sub_agent` tells its datagrams from those of other exports of the same agent.
    pub fn new(switch: Arc<Switch>, sub_agent: u32) -> Self {
        Self { switch, sub_agent, running: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns its state; `None` if it is disabled.
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

    /// Returns the number of its observers of a bridge. It does not change while the bridges are locked.
    pub fn observes(&self, bridge: BridgeId) -> usize {
        let running = self.lock();
        usize::from(running.as_ref().is_some_and(|running| running.bridges.contains_key(&bridge)))
    }

    /// Applies the desired settings to those of the bridges that the export `covers`. Returns the change and its result;
    /// `None` if nothing changed.
    pub(crate) fn follow(
        &self,
        wanted: Option<&SflowConfig>,
        bridges: &Bridges,
        covers: impl Fn(&str) -> bool,
    ) -> Option<(Action, Result<(), String>)> {
        let mut running = self.lock();
        let action = match (running.as_ref(), wanted) {
            (None, None) => return None,
            (Some(_), None) => Some(Action::Remove),
            (None, Some(_)) => Some(Action::Add),
            (Some(running), Some(wanted)) => (running.config != *wanted).then_some(Action::Change),
        };
        let result = match wanted {
            Some(wanted) => self
                .ensure_running(&mut running, wanted)
                .map(|running| running.follow(&self.switch, bridges, covers)),
            None => {
                if let Some(running) = running.take() {
                    running.stop(&self.switch);
                }
                Ok(())
            }
        };
        action.map(|action| (action, result))
    }

    /// Starts export, or applies new settings to the running one.
    fn ensure_running<'a>(
        &self,
        running: &'a mut Option<Running>,
        wanted: &SflowConfig,
    ) -> Result<&'a mut Running, String> {
        let mut export = match running.take() {
            Some(export) => export,
            None => {
                let sampler = Arc::new(Sampler::new(fastrand::u64(..)));
                let exporter =
                    Exporter::start(self.switch.clone(), sampler.clone(), wanted.clone(), self.sub_agent)
                        .map_err(|error| format!("cannot start the export thread: {error}"))?;
                sampler.set(wanted.sampling, wanted.header);
                Running { config: wanted.clone(), sampler, bridges: BTreeMap::new(), exporter }
            }
        };
        if export.config != *wanted {
            export.sampler.set(wanted.sampling, wanted.header);
            export.exporter.configure(wanted.clone());
            export.config = wanted.clone();
        }
        Ok(running.insert(export))
    }
}

impl Running {
    /// Samples the packets of the bridges that the export `covers`, and of no others.
    fn follow(&mut self, switch: &Switch, bridges: &Bridges, covers: impl Fn(&str) -> bool) {
        let covered: BTreeMap<_, _> = bridges
            .iter()
            .filter(|(name, _)| covers(name))
            .map(|(name, bridge)| (name.as_str(), bridge))
            .collect();
        self.bridges.retain(|id, sampled| {
            let stays = covered.values().any(|bridge| bridge.id == *id);
            if !stays {
                // A bridge that was removed took its observer with it.
                let _ = switch.unobserve(*id, sampled.observer);
            }
            stays
        });
        let mut roster = Roster::default();
        for bridge in covered.values() {
            if !self.bridges.contains_key(&bridge.id) {
                let sampler = Arc::new(BridgeSampler::new(self.sampler.clone(), bridge.number));
                // `observe` refuses only unknown bridges, and the caller holds the lock on the bridges.
                let Ok(observer) = switch.observe(bridge.id, sampler.clone()) else { continue };
                self.bridges.insert(bridge.id, Sampled { sampler, observer });
            }
            if let Some(sampled) = self.bridges.get(&bridge.id) {
                roster.bridges.insert(bridge.number, sampled.sampler.clone());
            }
        }
        for (name, port_name, port) in every(bridges) {
            let Some(bridge) = covered.get(name) else { continue };
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

    /// Stops sampling, and sends the remaining samples.
    fn stop(self, switch: &Switch) {
        for (bridge, sampled) in &self.bridges {
            // An error means that the bridge was removed, with its observers.
            let _ = switch.unobserve(*bridge, sampled.observer);
        }
        drop(self.exporter);
    }
}

//! The exports of all bridges.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fabric::Switch;
use fabric::switch::{BridgeId, ObserverId};
use metering::{Detail, Meter, Scope};
use ports::Spec;

use super::exporter::{ExportConfig, ExportReport, Exporter, Name, Roster, RosterPort};
use super::ipfix::Interface;
use super::samples::Samples;
use super::settings::AccountingConfig;
use crate::collector::CollectorReport;
use crate::model::Config;
use crate::openflow::device;
use crate::state::{Bridge, Bridges};

/// A change of a bridge's exports and its result.
pub(crate) struct Changed {
    pub(crate) bridge: String,
    pub(crate) done: Result<(), String>,
}

/// State of an export.
#[derive(Debug, Clone)]
pub struct Report {
    /// The bridge.
    pub bridge: String,
    /// `netflow`, `ipfix`, or `ipfix-` and the number of a set of collectors.
    pub export: String,
    /// Flows that have begun.
    pub flows: u64,
    /// Flows that ended early, because the cache was full.
    pub evicted: u64,
    /// Flows that last.
    pub current: u64,
    /// Packets that were accounted.
    pub packets: u64,
    /// Packets that were not, because more flows began than could be kept.
    pub missed: u64,
    /// Delivery statistics by collector.
    pub collectors: Vec<CollectorReport>,
}

/// NetFlow and IPFIX of all bridges.
pub struct Exports {
    switch: Arc<Switch>,
    bridges: Mutex<BTreeMap<String, Running>>,
}

/// A meter of a bridge; one of `sample` actions is no observer.
struct Metered {
    meter: Arc<Meter>,
    observer: Option<ObserverId>,
}

/// The exports of a bridge.
struct Running {
    id: BridgeId,
    config: AccountingConfig,
    exporter: Arc<Exporter>,
    meters: BTreeMap<Name, Metered>,
    logic: Weak<oflogic::OpenFlow>,
}

impl Exports {
    /// Creates disabled exports.
    pub fn new(switch: Arc<Switch>) -> Self {
        Self { switch, bridges: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Running>> {
        self.bridges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of observers of a bridge that are meters. It does not change while the bridges are locked.
    pub fn observes(&self, bridge: &str) -> usize {
        let bridges = self.lock();
        let meters = bridges.get(bridge).into_iter().flat_map(|running| running.meters.values());
        meters.filter(|metered| metered.observer.is_some()).count()
    }

    /// Returns the state of all exports.
    pub fn reports(&self) -> Vec<Report> {
        // Exporters may be waited for, and nobody is to wait for that.
        let exporters: Vec<_> =
            self.lock().iter().map(|(bridge, running)| (bridge.clone(), running.exporter.clone())).collect();
        let all = exporters.iter().flat_map(|(bridge, exporter)| {
            exporter.reports_now().into_iter().map(|report| describe(bridge, report))
        });
        all.collect()
    }

    /// Applies the desired settings to these bridges. Returns what changed.
    pub(crate) fn follow(&self, wanted: &Config, bridges: &Bridges) -> Vec<Changed> {
        let settings = |name: &str| {
            let config = wanted.bridge(name).map(|bridge| &bridge.accounting);
            config.filter(|config| **config != AccountingConfig::default())
        };
        let mut changes = Vec::new();
        let mut all = self.lock();
        let gone = all.extract_if(.., |name, running| {
            settings(name).is_none() || bridges.get(name).is_none_or(|bridge| bridge.id != running.id)
        });
        for (bridge, running) in gone.collect::<Vec<_>>() {
            running.stop(&self.switch);
            if bridges.contains_key(&bridge) && settings(&bridge).is_none() {
                changes.push(Changed { bridge, done: Ok(()) });
            }
        }
        for (name, bridge) in bridges {
            let Some(wanted) = settings(name) else { continue };
            let has_changed = all.get(name).is_none_or(|running| running.config != *wanted);
            let done = match all.get_mut(name) {
                Some(running) => {
                    running.follow(&self.switch, wanted, bridge);
                    Ok(())
                }
                None => Running::start(bridge).map(|mut running| {
                    running.follow(&self.switch, wanted, bridge);
                    all.insert(name.clone(), running);
                }),
            };
            if has_changed {
                changes.push(Changed { bridge: name.clone(), done });
            }
        }
        changes
    }
}

impl Running {
    fn start(bridge: &Bridge) -> Result<Self, String> {
        let exporter = Exporter::start(bridge.number + 1)
            .map_err(|error| format!("cannot start the export thread: {error}"))?;
        let (config, meters, logic) = Default::default();
        Ok(Self { id: bridge.id, config, exporter: Arc::new(exporter), meters, logic })
    }

    /// Makes the meters and exports that `wanted` asks for.
    fn follow(&mut self, switch: &Switch, wanted: &AccountingConfig, bridge: &Bridge) {
        let exports = exports(wanted);
        let gone = self.meters.extract_if(.., |name, metered| {
            exports.get(name).is_none_or(|config| scope(config) != metered.meter.scope())
        });
        for (_, Metered { observer, .. }) in gone {
            if let Some(observer) = observer {
                // A bridge that was removed took its observer with it.
                let _ = switch.unobserve(self.id, observer);
            }
        }
        for (name, config) in &exports {
            if self.meters.contains_key(name) {
                continue;
            }
            let scope = scope(config);
            let meter = Arc::new(Meter::new(scope, config.sampling(), config.limits().caches()));
            // `observe` refuses only unknown bridges, and the caller holds the lock on the bridges.
            let observes = scope.input || scope.output;
            let observer = observes.then(|| switch.observe(self.id, meter.clone()).ok()).flatten();
            self.meters.insert(*name, Metered { meter, observer });
        }
        self.exporter.follow(roster(bridge));
        if self.config != *wanted {
            let meter = |name: &Name| self.meters.get(name).map(|metered| metered.meter.clone());
            let configured =
                exports.into_iter().filter_map(|(name, config)| Some((name, (meter(&name)?, config))));
            self.exporter.configure(configured.collect());
            self.config = wanted.clone();
        }
        self.tell_logic(bridge);
    }

    /// Gives the bridge's logic what its `sample` actions and its statistics need.
    fn tell_logic(&mut self, bridge: &Bridge) {
        let Some(running) = &bridge.openflow else { return };
        let sets = self.meters.iter().filter_map(|(name, metered)| match name {
            Name::Set(number) => Some((*number, metered.meter.clone())),
            Name::Netflow | Name::Ipfix => None,
        });
        let samples = Samples { sets: sets.collect(), exporter: Arc::downgrade(&self.exporter) };
        self.logic = Arc::downgrade(running.logic());
        running.logic().set_sampler(Some(Box::new(samples)));
    }

    /// Stops accounting, and sends the remaining flows.
    fn stop(self, switch: &Switch) {
        for observer in self.meters.values().filter_map(|metered| metered.observer) {
            // An error means that the bridge was removed, with its observers.
            let _ = switch.unobserve(self.id, observer);
        }
        if let Some(logic) = self.logic.upgrade() {
            logic.set_sampler(None);
        }
        drop(self.exporter);
    }
}

/// Returns the exports that settings ask for.
fn exports(config: &AccountingConfig) -> BTreeMap<Name, ExportConfig> {
    let netflow = config.netflow.clone().map(|it| (Name::Netflow, ExportConfig::Netflow(it)));
    let ipfix = config.ipfix.clone().map(|it| (Name::Ipfix, ExportConfig::Ipfix(it)));
    let sets = config.sets.iter().map(|(number, it)| (Name::Set(*number), ExportConfig::Set(it.clone())));
    netflow.into_iter().chain(ipfix).chain(sets).collect()
}

fn scope(config: &ExportConfig) -> Scope {
    match config {
        ExportConfig::Netflow(_) => Scope { detail: Detail::Ipv4, input: true, output: false },
        ExportConfig::Ipfix(config) => {
            Scope { detail: Detail::Ethernet, input: config.input, output: config.output }
        }
        ExportConfig::Set(_) => Scope { detail: Detail::Ethernet, input: false, output: false },
    }
}

/// Returns the bridge's ports as collectors know them.
fn roster(bridge: &Bridge) -> Roster {
    let numbered = bridge.openflow.as_ref().map(|running| running.logic().ports()).unwrap_or_default();
    let numbers: BTreeMap<_, _> = numbered.into_iter().map(|port| (port.index, port.number)).collect();
    let entry = |(name, port): (&String, &crate::state::Port)| {
        let index = port.at.port;
        // Bridges that do not speak OpenFlow have ports with indexes only.
        let number = numbers.get(&index).map_or_else(|| Some(index.0 + 1), |number| number.to_16_bits());
        let number = port.config.openflow_port.or(number).unwrap_or(0);
        let interface = Interface { index: device_index(&port.config.spec, name), name: name.clone() };
        (index.0, RosterPort { number, interface })
    };
    bridge.ports.iter().map(entry).collect()
}

/// Returns the index of a port's network device; 0 if it has none in the daemon's network namespace.
fn device_index(spec: &Spec, port: &str) -> u32 {
    let device = device(spec, port).filter(|device| ports::is_interface_name(device));
    let text =
        device.and_then(|device| std::fs::read_to_string(format!("/sys/class/net/{device}/ifindex")).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn describe(bridge: &str, report: ExportReport) -> Report {
    Report {
        bridge: bridge.into(),
        export: match report.name {
            Name::Netflow => "netflow".into(),
            Name::Ipfix => "ipfix".into(),
            Name::Set(number) => format!("ipfix-{number}"),
        },
        flows: report.stats.flows,
        evicted: report.evicted,
        current: report.stats.current,
        packets: report.stats.packets,
        missed: report.missed.packets,
        collectors: report.collectors,
    }
}

//! From rows of the database to bridges and ports of the model.
//!
//! Rows that cannot be configured are left out, with the reason for the column `error` of their interface: a committed
//! transaction cannot be refused.
//!
//! Invariants:
//! - Each interface of a bridge in the database is in the plan once, whether it is configured or not.
//! - A plan depends on nothing but the rows, the port numbers that were given, the CPUs that are online, the addresses
//!   of interfaces that are agents of sFlow, and the links of network cards whose ports have queues.

mod accounting;
mod bonds;
mod kinds;
mod learning;
mod mirrors;
mod monitoring;
mod openflow;
mod policing;
mod qos;
mod rows;
mod sflow;
mod trees;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use control::accounting::AccountingConfig;
use control::model::{BridgeConfig, LogicConfig, MAX_MTU, PortConfig, check_mtu};
use control::openflow::OpenFlowConfig;
use control::openflow::settings::DatapathId;
use control::sflow::SflowConfig;
use fabric::PortSettings;
use ovsdb::typed::ReadError;
use ovsdb::vswitch::{self, Bridge, Interface, OpenVSwitch, Port, SSL};
use ovsdb::{Replica, Uuid};
use packet::ether::MacAddr;
use ports::Spec;

pub(crate) use self::bonds::PlannedBond;
pub(crate) use self::kinds::INTERFACE_TYPES;
use self::kinds::{Surroundings, kind_of};
pub(crate) use self::mirrors::PlannedMirror;
pub(crate) use self::monitoring::Monitoring;
use self::openflow::OpenFlowRows;
pub(crate) use self::openflow::PlannedController;
use self::qos::QosRows;
pub(crate) use self::qos::{PlannedQos, TYPES as QOS_TYPES};
use self::rows::Faults;
pub(crate) use self::trees::{PlannedTree, TreeSettings, numbers as tree_numbers};
use crate::dummy::Types;
use crate::numbers::{self, Wish};
use crate::vlan;

/// The bit of addresses that no manufacturer has assigned.
const LOCAL_BIT: u8 = 0x02;

/// The configuration that the database asks for.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// The row of the table `Open_vSwitch`, with the number of its configuration.
    pub(crate) root: Option<(Uuid, i64)>,
    pub(crate) bridges: Vec<PlannedBridge>,
    /// CPUs of the workers; none: one worker that is not pinned.
    pub(crate) workers: Vec<usize>,
    /// Interval at which counters are written.
    pub(crate) statistics_interval: Duration,
    /// Whether clients expect DPDK's interface types to be ready.
    pub(crate) dpdk: bool,
    /// What has no effect, for the log.
    pub(crate) warnings: Vec<String>,
    /// What is refused, for the log.
    pub(crate) errors: Vec<String>,
    /// What the switch does not have, for the log.
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct PlannedBridge {
    pub(crate) uuid: Uuid,
    pub(crate) name: String,
    pub(crate) datapath_id: DatapathId,
    /// Why it is not configured.
    pub(crate) error: Option<String>,
    pub(crate) openflow: OpenFlowConfig,
    pub(crate) controllers: Vec<PlannedController>,
    pub(crate) interfaces: Vec<PlannedInterface>,
    pub(crate) mirrors: Vec<PlannedMirror>,
    pub(crate) bonds: Vec<PlannedBond>,
    /// The spanning tree that it takes part in.
    pub(crate) tree: Option<PlannedTree>,
    /// What the status of each port says besides its state in the spanning tree.
    pub(crate) statuses: BTreeMap<Uuid, BTreeMap<String, String>>,
    /// sFlow export, or why there is none.
    pub(crate) sflow: Result<Option<SflowConfig>, String>,
    /// NetFlow and IPFIX.
    pub(crate) accounting: AccountingConfig,
    /// What is wrong with rows of NetFlow and IPFIX.
    pub(crate) accounting_errors: Vec<String>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct PlannedInterface {
    pub(crate) uuid: Uuid,
    pub(crate) name: String,
    pub(crate) number: i64,
    /// The network device of the host that belongs to it.
    pub(crate) device: Option<Device>,
    pub(crate) monitoring: Monitoring,
    /// Quality of service of its port.
    pub(crate) qos: Option<PlannedQos>,
    /// The port, or why there is none.
    pub(crate) port: Result<PortConfig, String>,
}

/// Who makes an interface's network device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    /// It exists, or is missing.
    Existing,
    /// The switch.
    Own,
}

impl PlannedBridge {
    /// Returns the bridge of the model; `None` if it is not configured.
    pub(crate) fn config(&self) -> Option<BridgeConfig> {
        if self.error.is_some() {
            return None;
        }
        let logic = LogicConfig { name: control::openflow::LOGIC.into(), params: Vec::new() };
        let ports = self.interfaces.iter().filter_map(|it| it.port.as_ref().ok().cloned()).collect();
        let mirrors = self.mirrors.iter().filter_map(|it| it.mirror.as_ref().ok().cloned()).collect();
        let openflow = self.openflow.clone();
        let sflow = self.sflow.clone().unwrap_or_default();
        let accounting = self.accounting.clone();
        Some(BridgeConfig {
            logic,
            openflow,
            ports,
            mirrors,
            sflow,
            accounting,
            ..BridgeConfig::new(&self.name)
        })
    }
}

/// The port numbers that were given in each bridge.
pub(crate) type GivenNumbers = BTreeMap<String, numbers::Given>;

/// Interfaces by name, with their bridges: for patch ports.
type Places<'a> = BTreeMap<&'a str, &'a str>;

struct Rows<'a> {
    types: Types,
    ports: BTreeMap<Uuid, Port>,
    interfaces: BTreeMap<Uuid, Interface>,
    mirrors: BTreeMap<Uuid, vswitch::Mirror>,
    qos: QosRows,
    sflow: BTreeMap<Uuid, vswitch::SFlow>,
    netflow: BTreeMap<Uuid, vswitch::NetFlow>,
    ipfix: BTreeMap<Uuid, vswitch::IPFIX>,
    sample_sets: BTreeMap<Uuid, vswitch::FlowSampleCollectorSet>,
    agents: sflow::Agents,
    faults: Faults,
    openflow: OpenFlowRows,
    rundir: &'a Path,
    /// The folder of the sockets of `dpdkvhostuser` interfaces, or why there is none.
    sockets: Result<PathBuf, String>,
}

impl Plan {
    /// Returns all ports, by bridge and name.
    pub(crate) fn ports(&self) -> BTreeSet<(String, String)> {
        let its = |bridge: &PlannedBridge| {
            let names = bridge.interfaces.iter().map(|it| it.name.clone());
            names.map(|name| (bridge.name.clone(), name)).collect::<Vec<_>>()
        };
        self.bridges.iter().flat_map(its).collect()
    }

    /// Whether the link of a network card whose port has queues has another rate than its queues share.
    pub(crate) fn is_outdated(&self) -> bool {
        let mut interfaces = self.bridges.iter().flat_map(|bridge| &bridge.interfaces);
        interfaces.any(|interface| {
            let is_card = interface.device == Some(Device::Existing);
            let follows = interface.qos.as_ref().filter(|qos| is_card && qos.follows_link);
            follows.is_some_and(|qos| qos.details.get("max-rate").copied() != qos::link_rate(&interface.name))
        })
    }

    /// Makes a plan for the rows of a replica, with sockets in `rundir`. `given` has the port numbers that were given in
    /// each bridge, and is kept up to date. Fails if the row of the table `Open_vSwitch` cannot be read: without it,
    /// no bridge is known.
    pub(crate) fn new(
        replica: &Replica,
        rundir: &Path,
        types: Types,
        given: &mut GivenNumbers,
    ) -> Result<Self, ReadError> {
        let Some(root) = OpenVSwitch::only(replica)? else { return Ok(Plan::default()) };
        let (mut faults, mut openflow_faults) = (Faults::new(), Faults::new());
        let bridges = rows::read::<Bridge>(replica, &mut faults);
        let exports = rows::read(replica, &mut faults);
        let rows = Rows {
            types,
            ports: rows::read(replica, &mut faults),
            interfaces: rows::read(replica, &mut faults),
            mirrors: rows::read(replica, &mut faults),
            qos: QosRows { qos: rows::read(replica, &mut faults), queues: rows::read(replica, &mut faults) },
            agents: sflow::agents(&exports),
            sflow: exports,
            netflow: rows::read(replica, &mut faults),
            ipfix: rows::read(replica, &mut faults),
            sample_sets: rows::read(replica, &mut faults),
            faults,
            openflow: OpenFlowRows {
                controllers: rows::read(replica, &mut openflow_faults),
                flow_tables: rows::read(replica, &mut openflow_faults),
                ssl: rows::read::<SSL>(replica, &mut openflow_faults)
                    .into_values()
                    .find(|row| root.ssl == Some(row.uuid)),
                bundle_idle: root.other_config.get("bundle-idle-timeout").and_then(|text| text.parse().ok()),
            },
            rundir,
            sockets: kinds::socket_folder(rundir, &root.other_config),
        };
        let mut bridges: Vec<_> = bridges.into_values().collect();
        bridges.retain(|bridge| root.bridges.contains(&bridge.uuid));
        // Names of sockets and files are made from them. As in Open vSwitch, nothing is written to their rows.
        let unsafe_names = bridges.extract_if(.., |bridge| bridge.name.contains(['/', '\\']));
        let ignored: Vec<_> = unsafe_names
            .map(|bridge| format!("ignoring bridge with invalid name `{}`", bridge.name))
            .collect();
        bridges.sort_by(|a, b| a.name.cmp(&b.name));
        let mut places = Places::new();
        for bridge in &bridges {
            for (_, interface) in rows.of(bridge) {
                places.entry(&interface.name).or_insert(&bridge.name);
            }
        }
        let mut taken = BTreeSet::new();
        given.retain(|name, _| bridges.iter().any(|bridge| bridge.name == *name));
        let planned = bridges.iter().map(|bridge| {
            let given = given.entry(bridge.name.clone()).or_default();
            rows.bridge(bridge, &places, &mut taken, given)
        });
        let bridges: Vec<_> = planned.collect();
        let dpdk = root.other_config.get("dpdk-init").is_some_and(|text| text == "true" || text == "try");
        let mut warnings: Vec<String> = openflow_faults.into_values().collect();
        let mut errors = Vec::new();
        warnings.extend(ignored);
        rows.warn(&bridges, &mut warnings, &mut errors);
        let (workers, mistakes) = workers::of(&root.other_config);
        warnings.extend(mistakes);
        let notes = rows.qos_notes().collect();
        let statistics_interval = statistics_interval(&root.other_config);
        let root = Some((root.uuid, root.next_cfg));
        Ok(Plan { root, bridges, workers, statistics_interval, dpdk, warnings, errors, notes })
    }
}

impl Rows<'_> {
    /// Returns the interfaces of a bridge with their ports.
    fn of<'a>(&'a self, bridge: &'a Bridge) -> impl Iterator<Item = (&'a Port, &'a Interface)> {
        let ports = bridge.ports.iter().filter_map(|uuid| self.ports.get(uuid));
        ports.flat_map(move |port| {
            port.interfaces.iter().filter_map(move |uuid| Some((port, self.interfaces.get(uuid)?)))
        })
    }

    fn bridge(
        &self,
        bridge: &Bridge,
        places: &Places<'_>,
        taken: &mut BTreeSet<String>,
        given: &mut numbers::Given,
    ) -> PlannedBridge {
        let name = bridge.name.clone();
        let kind = bridge.datapath_type.as_str();
        let unsupported = (!kind.is_empty() && !self.types.datapaths().contains(&kind))
            .then(|| format!("datapath type `{kind}` is not supported"));
        let error = self.faults.get(&bridge.uuid).cloned().or(unsupported);
        let mut found: Vec<_> = self.of(bridge).collect();
        // The order in which numbers are given.
        found.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        let wishes: Vec<_> = found
            .iter()
            .map(|(_, it)| Wish {
                name: &it.name,
                is_local: it.name == name,
                requested: it.ofport_request,
                present: it.ofport,
            })
            .collect();
        let mac = mac_of(bridge);
        let datapath = bridge.datapath_type.as_str();
        let types = self.types;
        let around = Surroundings { bridge: &name, mac, places, sockets: &self.sockets, datapath, types };
        let mut interfaces = Vec::new();
        for ((port, interface), number) in found.into_iter().zip(numbers::assign(&wishes, given)) {
            let mut config = match &error {
                Some(error) => Err(error.clone()),
                None if !taken.insert(interface.name.clone()) => {
                    Err(format!("interface {} is in the database more than once", interface.name))
                }
                None => self.port(port, interface, &around),
            };
            if let Ok(port) = &mut config {
                // The local port has its number by its name.
                port.openflow_port = u16::try_from(number).ok().filter(|_| number != numbers::LOCAL);
            }
            // Devices are looked up by their names in the file system.
            let device = match kind_of(&bridge.name, interface) {
                other if self.types.is_dummy(&bridge.datapath_type, other) => None,
                _ if !ports::is_interface_name(&interface.name) => None,
                "internal" | "tap" => Some(Device::Own),
                "afxdp" | "system" => Some(Device::Existing),
                _ => None,
            };
            let (uuid, name) = (interface.uuid, interface.name.clone());
            let monitoring = Monitoring::read(interface).0;
            let is_card = device == Some(Device::Existing) && port.qos.is_some();
            let link = is_card.then(|| qos::link_rate(&name)).flatten();
            let qos = self.qos.of(port, link).0;
            if let (Ok(config), Some(qos)) = (&mut config, &qos) {
                config.settings.egress = Some(Arc::new(qos.limits.clone()));
            }
            interfaces.push(PlannedInterface { uuid, name, number, device, monitoring, qos, port: config });
        }
        let datapath_id = datapath_id(bridge, mac);
        let (controllers, openflow) = self.openflow.settings(bridge, datapath_id, self.rundir);
        let mirrors = mirrors::of(self, bridge);
        let bonds = bonds::of(self, bridge, &interfaces, mac);
        let tree = trees::of(self, bridge, &interfaces, mac);
        for interface in &mut interfaces {
            if let Ok(port) = &mut interface.port {
                port.in_tree = tree.as_ref().is_some_and(|tree| tree.has(&interface.name));
            }
        }
        let ports = bridge.ports.iter().filter_map(|uuid| self.ports.get(uuid));
        let statuses = ports.map(|port| (port.uuid, self.status(port))).collect();
        let uuid = bridge.uuid;
        let sflow = sflow::of(self, bridge);
        let (accounting, accounting_errors) = accounting::of(self, bridge);
        PlannedBridge {
            uuid,
            datapath_id,
            name,
            error,
            openflow,
            controllers,
            interfaces,
            mirrors,
            bonds,
            tree,
            statuses,
            sflow,
            accounting,
            accounting_errors,
        }
    }

    fn port(
        &self,
        port: &Port,
        interface: &Interface,
        around: &Surroundings<'_>,
    ) -> Result<PortConfig, String> {
        if let Some(fault) = self.faults.get(&port.uuid).or_else(|| self.faults.get(&interface.uuid)) {
            return Err(fault.clone());
        }
        let mut settings = PortSettings::new(&interface.name);
        settings.vlan = vlan::mode(port)?;
        settings.police = policing::limit(interface).0;
        let spec = kinds::spec(interface, around)?;
        let mut config = PortConfig::new(settings, spec);
        config.bond = (port.interfaces.len() > 1).then(|| port.name.clone());
        // The MTU of an existing device is the operator's.
        if let (Some(mtu), false) = (interface.mtu_request, matches!(config.spec, Spec::Netdev(_))) {
            // Dummies may ask for more than the switch forwards, as in Open vSwitch.
            let most = if matches!(config.spec, Spec::Dummy(_)) { MAX_MTU.into() } else { i64::MAX };
            let mtu = mtu.min(most);
            config.set_mtu(check_mtu(mtu).map_err(|error| format!("mtu_request: {error}"))?);
        }
        Ok(config)
    }

    /// Adds warnings about settings of bridges without an effect.
    fn warn(&self, bridges: &[PlannedBridge], warnings: &mut Vec<String>, errors: &mut Vec<String>) {
        for bridge in bridges {
            let mut add = |text: String| warnings.push(format!("bridge {}: {text}", bridge.name));
            bridge.error.iter().for_each(|error| add(error.clone()));
            for controller in &bridge.controllers {
                let Err(error) = &controller.target else { continue };
                let row = self.openflow.controllers.get(&controller.uuid);
                let is_socket = |target: &str| target.starts_with("unix:") || target.starts_with("punix:");
                match row.is_some_and(|row| is_socket(&row.target)) {
                    // The words that Open vSwitch has.
                    true => errors.push(format!(
                        "bridge {}: Not adding Unix domain socket controller: {error}",
                        bridge.name
                    )),
                    false => add(error.clone()),
                }
            }
            for PlannedMirror { name, mirror, .. } in &bridge.mirrors {
                if let Err(error) = mirror {
                    add(format!("mirror {name}: {error}"));
                }
            }
            bridge.bonds.iter().flat_map(|bond| &bond.warnings).cloned().for_each(&mut add);
            errors.extend(bridge.tree.iter().flat_map(|tree| tree.wrong.clone()));
            bridge.sflow.as_ref().err().cloned().into_iter().for_each(&mut add);
            bridge.accounting_errors.iter().cloned().for_each(&mut add);
            for interface in &bridge.interfaces {
                let row = self.interfaces.get(&interface.uuid);
                row.and_then(|row| policing::limit(row).1).into_iter().for_each(&mut add);
                row.map(|row| Monitoring::read(row).1).into_iter().flatten().for_each(&mut add);
            }
        }
    }

    /// What is wrong with the quality of service of a port.
    fn qos_faults(&self, port: &Port) -> Vec<String> {
        let row = port.qos.and_then(|uuid| self.faults.get(&uuid)).cloned();
        row.into_iter().chain(self.qos.of(port, None).1).collect()
    }

    /// The status of a port.
    fn status(&self, port: &Port) -> BTreeMap<String, String> {
        let faults = self.qos_faults(port).join("; ");
        (!faults.is_empty()).then(|| (qos::STATUS_KEY.to_owned(), faults)).into_iter().collect()
    }

    /// The faults of all ports, for the log.
    fn qos_notes(&self) -> impl Iterator<Item = String> {
        self.ports.values().flat_map(|port| {
            self.qos_faults(port).into_iter().map(|fault| format!("port {}: {fault}", port.name))
        })
    }
}

/// Returns the address of a bridge's own interface: that of `hwaddr`, or one made from the row's UUID, which stays.
fn mac_of(bridge: &Bridge) -> MacAddr {
    let given = bridge.other_config.get("hwaddr").and_then(|text| text.parse::<MacAddr>().ok());
    given.filter(|mac| !mac.is_multicast() && *mac != MacAddr::ZERO).unwrap_or_else(|| {
        let [a, b, c, d, e, f, ..] = bridge.uuid.0;
        MacAddr([a & 0xfc | LOCAL_BIT, b, c, d, e, f])
    })
}

/// Returns the interval at which counters are written: `other_config:stats-update-interval` in milliseconds, five
/// seconds at least.
fn statistics_interval(other_config: &BTreeMap<String, String>) -> Duration {
    let milliseconds = other_config.get("stats-update-interval").and_then(|text| text.parse().ok());
    Duration::from_millis(milliseconds.unwrap_or(0)).max(Duration::from_secs(5))
}

fn datapath_id(bridge: &Bridge, mac: MacAddr) -> DatapathId {
    let given = bridge.other_config.get("datapath-id").map(String::as_str);
    let digits = given.map(|text| text.strip_prefix("0x").unwrap_or(text));
    let number = digits
        .filter(|digits| (1..=16).contains(&digits.len()))
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .filter(|number| *number != 0);
    let [a, b, c, d, e, f] = mac.0;
    DatapathId(number.unwrap_or(u64::from_be_bytes([0, 0, a, b, c, d, e, f])))
}

#[cfg(test)]
mod tests;

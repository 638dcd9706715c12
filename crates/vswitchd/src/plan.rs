//! From rows of the database to bridges and ports of the model.
//!
//! Rows that cannot be configured are left out, with the reason for the column `error` of their interface: a committed
//! transaction cannot be refused.
//!
//! Invariants:
//! - Each interface of a bridge in the database is in the plan once, whether it is configured or not.
//! - A plan depends on nothing but the rows.

mod openflow;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use control::model::{BridgeConfig, LogicConfig, PortConfig};
use control::openflow::OpenFlowConfig;
use control::openflow::settings::DatapathId;
use fabric::PortSettings;
use ovsdb::typed::{ReadError, Table};
use ovsdb::vswitch::{Bridge, Controller, FlowTable, Interface, OpenVSwitch, Port, SSL};
use ovsdb::{Replica, Uuid};
use packet::ether::MacAddr;
use ports::{Spec, netdev, patch, tap};

use self::openflow::OpenFlowRows;
pub(crate) use self::openflow::PlannedController;
use crate::numbers::{self, Wish};
use crate::vlan;

/// Types of interfaces, as `Open_vSwitch.iface_types` lists them.
pub(crate) const INTERFACE_TYPES: [&str; 3] = ["internal", "patch", "system"];

/// Types of datapaths, as `Open_vSwitch.datapath_types` lists them. Both are this switch.
pub(crate) const DATAPATH_TYPES: [&str; 2] = ["netdev", "system"];

/// The bit of addresses that no manufacturer has assigned.
const LOCAL_BIT: u8 = 0x02;

/// The configuration that the database asks for.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// The row of the table `Open_vSwitch`, with the number of its configuration.
    pub(crate) root: Option<(Uuid, i64)>,
    pub(crate) bridges: Vec<PlannedBridge>,
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
}

#[derive(Debug, PartialEq)]
pub(crate) struct PlannedInterface {
    pub(crate) uuid: Uuid,
    pub(crate) name: String,
    pub(crate) number: i64,
    /// The network device of the host that belongs to it.
    pub(crate) device: Option<Device>,
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
        let openflow = self.openflow.clone();
        Some(BridgeConfig { logic, openflow, ports, ..BridgeConfig::new(&self.name) })
    }
}

/// Interfaces by name, with their bridges: for patch ports.
type Places<'a> = BTreeMap<&'a str, &'a str>;

struct Rows<'a> {
    ports: BTreeMap<Uuid, Port>,
    interfaces: BTreeMap<Uuid, Interface>,
    openflow: OpenFlowRows,
    rundir: &'a Path,
}

impl Plan {
    /// Makes a plan for the rows of a replica, with sockets in `rundir`.
    pub(crate) fn new(replica: &Replica, rundir: &Path) -> Result<Self, ReadError> {
        let Some(root) = OpenVSwitch::only(replica)? else { return Ok(Plan::default()) };
        let rows = Rows {
            ports: Port::all(replica)?.into_iter().map(|port| (port.uuid, port)).collect(),
            interfaces: Interface::all(replica)?.into_iter().map(|it| (it.uuid, it)).collect(),
            openflow: OpenFlowRows {
                controllers: Controller::all(replica)?.into_iter().map(|row| (row.uuid, row)).collect(),
                flow_tables: FlowTable::all(replica)?.into_iter().map(|row| (row.uuid, row)).collect(),
                ssl: SSL::all(replica)?.into_iter().find(|row| root.ssl == Some(row.uuid)),
            },
            rundir,
        };
        let mut bridges = Bridge::all(replica)?;
        bridges.retain(|bridge| root.bridges.contains(&bridge.uuid));
        bridges.sort_by(|a, b| a.name.cmp(&b.name));
        let mut places = Places::new();
        for bridge in &bridges {
            for (_, interface) in rows.of(bridge) {
                places.entry(&interface.name).or_insert(&bridge.name);
            }
        }
        let mut taken = BTreeSet::new();
        let planned = bridges.iter().map(|bridge| rows.bridge(bridge, &places, &mut taken));
        Ok(Plan { root: Some((root.uuid, root.next_cfg)), bridges: planned.collect() })
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

    fn bridge(&self, bridge: &Bridge, places: &Places<'_>, taken: &mut BTreeSet<String>) -> PlannedBridge {
        let name = bridge.name.clone();
        let kind = bridge.datapath_type.as_str();
        let error = (!kind.is_empty() && !DATAPATH_TYPES.contains(&kind))
            .then(|| format!("datapath type `{kind}` is not supported"));
        let mut found: Vec<_> = self.of(bridge).collect();
        // The order in which numbers are given.
        found.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        let wishes: Vec<_> = found
            .iter()
            .map(|(_, it)| Wish {
                is_local: it.name == name,
                requested: it.ofport_request,
                present: it.ofport,
            })
            .collect();
        let mac = mac_of(bridge);
        let place = Place { bridge, mac, places };
        let mut interfaces = Vec::new();
        for ((port, interface), number) in found.into_iter().zip(numbers::assign(&wishes)) {
            let mut config = match &error {
                Some(error) => Err(error.clone()),
                None if !taken.insert(interface.name.clone()) => {
                    Err(format!("interface {} is in the database more than once", interface.name))
                }
                None => place.port(port, interface),
            };
            if let Ok(port) = &mut config {
                // The local port has its number by its name.
                port.openflow_port = u16::try_from(number).ok().filter(|_| number != numbers::LOCAL);
            }
            // Devices are looked up by their names in the file system.
            let device = match kind_of(bridge, interface) {
                _ if !ports::is_interface_name(&interface.name) => None,
                "internal" => Some(Device::Own),
                "system" => Some(Device::Existing),
                _ => None,
            };
            let (uuid, name) = (interface.uuid, interface.name.clone());
            interfaces.push(PlannedInterface { uuid, name, number, device, port: config });
        }
        let datapath_id = datapath_id(bridge, mac);
        let (controllers, openflow) = self.openflow.settings(bridge, datapath_id, self.rundir);
        PlannedBridge { uuid: bridge.uuid, datapath_id, name, error, openflow, controllers, interfaces }
    }
}

/// Returns an interface's type; that of the one with the bridge's name is always `internal`.
fn kind_of<'a>(bridge: &Bridge, interface: &'a Interface) -> &'a str {
    match interface.type_.as_str() {
        _ if interface.name == bridge.name => "internal",
        "" => "system",
        other => other,
    }
}

/// What a port's configuration depends on besides its rows.
struct Place<'a> {
    bridge: &'a Bridge,
    mac: MacAddr,
    places: &'a Places<'a>,
}

impl Place<'_> {
    fn port(&self, port: &Port, interface: &Interface) -> Result<PortConfig, String> {
        if port.interfaces.len() > 1 {
            return Err(format!("port {} has several interfaces; bonds are not supported", port.name));
        }
        let mut settings = PortSettings::new(&interface.name);
        settings.vlan = vlan::mode(port)?;
        let spec = self.spec(interface)?;
        let mtu = interface.mtu_request.and_then(|mtu| u32::try_from(mtu).ok());
        let mut config = PortConfig::new(settings, spec);
        if let (Some(mtu), Spec::Tap(_)) = (mtu, &config.spec) {
            config.set_mtu(mtu);
        }
        Ok(config)
    }

    fn spec(&self, interface: &Interface) -> Result<Spec, String> {
        let address = interface.mac.as_deref().and_then(|text| text.parse().ok());
        match kind_of(self.bridge, interface) {
            "system" => Ok(Spec::Netdev(netdev::Options::default())),
            "internal" => {
                let own = (interface.name == self.bridge.name).then_some(self.mac);
                Ok(Spec::Tap(tap::Options { mac: address.or(own), ..tap::Options::default() }))
            }
            "patch" => {
                let peer = interface.options.get("peer").ok_or("a patch port needs options:peer")?;
                // A peer that does not exist yet is in no bridge; the port waits for it.
                let bridge = self.places.get(peer.as_str()).copied().unwrap_or(&self.bridge.name);
                let peer = patch::Peer { bridge: bridge.into(), port: peer.clone() };
                Ok(Spec::Patch(patch::Options { peer }))
            }
            other => Err(format!("interface type `{other}` is not supported")),
        }
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

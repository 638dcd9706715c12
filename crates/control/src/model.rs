//! The model of a configuration: the daemon's settings, the bridges and their ports.

use std::path::{Path, PathBuf};

use fabric::{Mirror, PortSettings};
use packet::ether::MacAddr;
use ports::{Access, OpenError, Spec};

use crate::accounting::AccountingConfig;
use crate::metrics;
use crate::openflow::OpenFlowConfig;
use crate::p4::P4Config;
use crate::sflow::SflowConfig;

/// Default path of the control socket.
pub const DEFAULT_SOCKET: &str = "/run/mswitch/mswitch.sock";

/// Default logic of a bridge.
pub const DEFAULT_LOGIC: &str = "learning";

/// A whole configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// The daemon's own settings.
    pub daemon: DaemonConfig,
    /// The bridges.
    pub bridges: Vec<BridgeConfig>,
    /// sFlow export; `None` if it is disabled.
    pub sflow: Option<SflowConfig>,
}

impl Config {
    /// Returns the bridge with this name.
    pub fn bridge(&self, name: &str) -> Option<&BridgeConfig> {
        self.bridges.iter().find(|bridge| bridge.name == name)
    }

    /// Returns the port with this name.
    pub fn port(&self, bridge: &str, name: &str) -> Option<&PortConfig> {
        self.bridge(bridge)?.port(name)
    }

    /// Returns the part that belongs to an owner. Settings of the daemon and sFlow export are the operator's.
    pub fn of(&self, owner: Owner) -> Self {
        let bridges = self.bridges.iter().filter(|bridge| bridge.owner == owner).cloned().collect();
        match owner {
            Owner::Operator => Self { bridges, daemon: self.daemon.clone(), sflow: self.sflow.clone() },
            Owner::Database => Self { bridges, ..Self::default() },
        }
    }

    /// Returns the number of ports.
    pub fn ports(&self) -> usize {
        self.bridges.iter().map(|bridge| bridge.ports.len()).sum()
    }
}

/// The daemon's own settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DaemonConfig {
    /// The CPUs with a worker each; if empty, one worker that is not pinned.
    pub workers: Vec<usize>,
    /// Workers never sleep.
    pub poll: bool,
    /// The control socket; `None` for the default.
    pub socket: Option<PathBuf>,
    /// User that owns the control socket, by name or number.
    pub owner: Option<String>,
    /// Group of the control socket, by name or number.
    pub group: Option<String>,
    /// Octal access mode of the control socket; `None` for 0660.
    pub mode: Option<String>,
    /// Address at which metrics are served; `None` if they are not served.
    pub metrics: Option<metrics::Address>,
}

impl DaemonConfig {
    /// Returns the path of the control socket.
    pub fn socket(&self) -> &Path {
        self.socket.as_deref().unwrap_or(Path::new(DEFAULT_SOCKET))
    }

    /// Returns owner, group and mode of the control socket.
    pub fn access(&self) -> Result<Access, OpenError> {
        Access::read(self.owner.as_deref(), self.group.as_deref(), self.mode.as_deref())
    }
}

/// The source of a bridge, its ports and its settings: only edits from there may change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Owner {
    /// The operator: the configuration file and the control socket, which edit one configuration.
    #[default]
    Operator,
    /// The database of Open vSwitch.
    Database,
}

impl Owner {
    /// Returns its name in replies.
    pub fn name(self) -> &'static str {
        match self {
            Owner::Operator => "operator",
            Owner::Database => "database",
        }
    }
}

/// A bridge and its ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeConfig {
    /// Its name.
    pub name: String,
    /// Its logic, with parameters.
    pub logic: LogicConfig,
    /// Its ports.
    pub ports: Vec<PortConfig>,
    /// Static stations, for logics with a MAC table.
    pub stations: Vec<StationConfig>,
    /// Its mirrors.
    pub mirrors: Vec<Mirror>,
    /// Its OpenFlow connections.
    pub openflow: OpenFlowConfig,
    /// Its P4Runtime server.
    pub p4: P4Config,
    /// Its owner.
    pub owner: Owner,
    /// sFlow export of this bridge alone, in place of the switch's. Only a database has it.
    pub sflow: Option<SflowConfig>,
    /// NetFlow and IPFIX. Only a database has them.
    pub accounting: AccountingConfig,
}

impl BridgeConfig {
    /// Creates an empty bridge with the default logic.
    pub fn new(name: &str) -> Self {
        let (ports, stations, mirrors, openflow, p4, owner, sflow, accounting) = Default::default();
        let (name, logic) = (name.into(), LogicConfig::default());
        Self { name, logic, ports, stations, mirrors, openflow, p4, owner, sflow, accounting }
    }

    /// Returns the port with this name.
    pub fn port(&self, name: &str) -> Option<&PortConfig> {
        self.ports.iter().find(|port| port.settings.name == name)
    }

    /// Returns two ports that have the same number, if there are some, with the key of that number.
    pub fn same_number(&self) -> Option<(&'static str, &PortConfig, &PortConfig)> {
        let openflow: fn(&PortConfig) -> Option<u32> = |port| port.openflow_port.map(u32::from);
        [("openflow-port", openflow), ("p4-port", |port| port.p4_port.map(u32::from))].into_iter().find_map(
            |(key, number)| {
                let numbered = || self.ports.iter().filter(|port| number(port).is_some());
                numbered().enumerate().find_map(|(at, port)| {
                    let first = numbered().take(at).find(|first| number(first) == number(port))?;
                    Some((key, first, port))
                })
            },
        )
    }
}

/// A static entry of a bridge's filtering database (IEEE 802.1Q §8.8.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StationConfig {
    /// The station's address.
    pub mac: MacAddr,
    /// Its VLAN; 0 for none.
    pub vlan: u16,
    /// The name of its port.
    pub port: String,
}

impl StationConfig {
    /// Returns whether it has this address and VLAN.
    pub fn is(&self, mac: MacAddr, vlan: u16) -> bool {
        self.mac == mac && self.vlan == vlan
    }

    /// Checks that a station can have this address and VLAN.
    pub fn check(&self) -> Result<(), ValueError> {
        if self.mac.is_multicast() {
            return Err(ValueError::Group(self.mac));
        }
        check_vlan(self.vlan.into()).map(drop)
    }
}

/// A logic and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogicConfig {
    /// Its name.
    pub name: String,
    /// Its parameters.
    pub params: Vec<(String, String)>,
}

impl Default for LogicConfig {
    fn default() -> Self {
        Self { name: DEFAULT_LOGIC.into(), params: Vec::new() }
    }
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortConfig {
    /// The settings of all port types: name, admin state, MTU, VLANs, protections.
    pub settings: PortSettings,
    /// Its type and the type's own options.
    pub spec: Spec,
    /// Its number with logic `openflow`; `None`: the lowest free one.
    pub openflow_port: Option<u16>,
    /// Its number with a P4 program; `None`: the lowest free one from 1.
    pub p4_port: Option<u16>,
    /// The bond that it is a member of, with logic `openflow`; who owns the bridge looks after the bond.
    pub bond: Option<String>,
    /// Whether it takes part in the bridge's spanning tree, with logic `openflow`; who owns the bridge runs the
    /// protocol.
    pub in_tree: bool,
}

impl PortConfig {
    /// Creates a port. An MTU that only the type's options set becomes the port's MTU.
    pub fn new(settings: PortSettings, spec: Spec) -> Self {
        let mut port =
            Self { settings, spec, openflow_port: None, p4_port: None, bond: None, in_tree: false };
        match port.spec.mtu() {
            _ if port.settings.mtu != 0 => port.set_mtu(port.settings.mtu),
            Some(mtu) => port.set_mtu(mtu),
            None => {}
        }
        port
    }

    /// Sets the MTU; 0 means the maximum of the type. Types that control the client's interface set its MTU too.
    pub fn set_mtu(&mut self, mtu: u32) {
        self.settings.mtu = mtu;
        self.spec.set_mtu(mtu);
    }
}

/// Reasons for refusing a value that is common to all bridges or ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// An invalid name.
    #[error("`{0}` is not a name; expected 1 to 64 letters, digits, dots, underscores and dashes")]
    Name(String),
    /// An MTU out of range.
    #[error("invalid MTU {0}: expected {MIN_MTU} to {MAX_MTU}, or 0 for the maximum of the port type")]
    Mtu(i64),
    /// An invalid admin state.
    #[error("`{0}` is not an admin state; expected `up` or `down`")]
    Admin(String),
    /// A VLAN id out of range.
    #[error("{0} is not a VLAN id; expected 1 to 4094, or 0 for none")]
    Vlan(i64),
    /// An OpenFlow port number out of range.
    #[error("{0} is not an OpenFlow port number; expected 1 to {MAX_OPENFLOW_PORT}")]
    OpenFlowPort(i64),
    /// A P4 port number out of range.
    #[error("{0} is not a P4 port number; expected 0 to 65535")]
    P4Port(i64),
    /// A group address.
    #[error("{0} is a group address; expected the address of a station")]
    Group(MacAddr),
}

/// The smallest packet that every IPv4 host must accept (RFC 791).
pub const MIN_MTU: u32 = 68;

/// The largest packet that the fabric forwards, without the Ethernet header.
pub const MAX_MTU: u32 = 65_535 - 14;

/// Checks the name of a bridge or port.
pub fn check_name(name: &str) -> Result<(), ValueError> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if fits { Ok(()) } else { Err(ValueError::Name(name.into())) }
}

/// Checks an MTU; 0 means the maximum of the port type.
pub fn check_mtu(mtu: i64) -> Result<u32, ValueError> {
    u32::try_from(mtu)
        .ok()
        .filter(|mtu| *mtu == 0 || (MIN_MTU..=MAX_MTU).contains(mtu))
        .ok_or(ValueError::Mtu(mtu))
}

/// The largest OpenFlow port number that is not reserved.
pub const MAX_OPENFLOW_PORT: u16 = 0xfeff;

/// Checks the OpenFlow number of a port.
pub fn check_openflow_port(number: i64) -> Result<u16, ValueError> {
    u16::try_from(number)
        .ok()
        .filter(|number| (1..=MAX_OPENFLOW_PORT).contains(number))
        .ok_or(ValueError::OpenFlowPort(number))
}

/// Checks the P4 number of a port.
pub fn check_p4_port(number: i64) -> Result<u16, ValueError> {
    u16::try_from(number).map_err(|_| ValueError::P4Port(number))
}

/// Checks the VLAN of a station; 0 means none.
pub fn check_vlan(vlan: i64) -> Result<u16, ValueError> {
    u16::try_from(vlan).ok().filter(|vid| *vid <= 4094).ok_or(ValueError::Vlan(vlan))
}

/// Parses an admin state; true is up.
pub fn parse_admin(text: &str) -> Result<bool, ValueError> {
    match text {
        "up" => Ok(true),
        "down" => Ok(false),
        other => Err(ValueError::Admin(other.into())),
    }
}

/// Returns the name of an admin state.
pub fn format_admin(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["br0", "vm-1.left_2", &"x".repeat(64)] {
            assert_eq!(check_name(good), Ok(()));
        }
        for bad in ["", "a b", "ä", "a/b", &"x".repeat(65)] {
            assert_eq!(check_name(bad), Err(ValueError::Name(bad.into())));
        }
    }

    #[test]
    fn mtus() {
        assert_eq!(check_mtu(0), Ok(0));
        assert_eq!(check_mtu(65_521), Ok(65_521));
        for bad in [-1, 1, 67, 65_522, 1 << 40] {
            assert_eq!(check_mtu(bad), Err(ValueError::Mtu(bad)));
        }
    }
}

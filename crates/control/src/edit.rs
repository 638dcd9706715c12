//! Single changes of the configuration, as users request them.
//!
//! An edit changes only the model; [`crate::desired`] then makes the switch match. So a change has the same effect from
//! any interface, and a refused edit has no effect.

use std::collections::BTreeMap;

use fabric::worker::MAX_WORKERS;
use fabric::{Mirror, VlanMode};
use packet::ether::MacAddr;

use crate::check;
use crate::cpulist::{self, CpuListError, Listed};
use crate::host_port;
use crate::logics;
use crate::mirror;
use crate::model::{BridgeConfig, Config, LogicConfig, Owner, PortConfig, StationConfig, check_name};
use crate::openflow::settings::OpenFlowChange;
use crate::protection;
use crate::refusal::Refusal;
use crate::sflow::SflowChange;

/// A change of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Adds a bridge with its ports.
    AddBridge(Box<BridgeConfig>),
    /// Removes a bridge with its ports.
    RemoveBridge(String),
    /// Replaces a bridge's logic.
    SetLogic {
        /// The bridge.
        bridge: String,
        /// The new logic.
        logic: LogicConfig,
    },
    /// Adds a port to a bridge.
    AddPort {
        /// The bridge.
        bridge: String,
        /// The port.
        port: Box<PortConfig>,
    },
    /// Changes a port's settings.
    SetPort {
        /// The bridge.
        bridge: String,
        /// The port.
        port: String,
        /// The change.
        change: PortChange,
    },
    /// Removes a port.
    RemovePort {
        /// The bridge.
        bridge: String,
        /// The port.
        port: String,
    },
    /// Adds a static station; replaces an entry at another port.
    AddStation {
        /// The bridge.
        bridge: String,
        /// The station.
        station: StationConfig,
    },
    /// Adds a mirror.
    AddMirror {
        /// The bridge.
        bridge: String,
        /// The mirror.
        mirror: Mirror,
    },
    /// Removes a mirror.
    RemoveMirror {
        /// The bridge.
        bridge: String,
        /// The mirror's name.
        name: String,
    },
    /// Removes a static station.
    RemoveStation {
        /// The bridge.
        bridge: String,
        /// Its address.
        mac: MacAddr,
        /// Its VLAN; 0 for none.
        vlan: u16,
    },
    /// Changes a bridge's OpenFlow connections.
    SetOpenFlow {
        /// The bridge.
        bridge: String,
        /// The change.
        change: OpenFlowChange,
    },
    /// Enables sFlow export, or changes its settings.
    SetSflow(SflowChange),
    /// Disables sFlow export.
    RemoveSflow,
    /// Adds workers.
    AddWorkers(Vec<Listed>),
    /// Removes one worker from each of these CPUs; from a CPU that is there several times, as many.
    RemoveWorkers(Vec<usize>),
}

/// Fields that `port set` changes; `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortChange {
    /// Administrative state; true is up.
    pub admin_up: Option<bool>,
    /// Largest packet.
    pub mtu: Option<u32>,
    /// VLAN membership.
    pub vlan: Option<VlanMode>,
    /// Protections, by their keys in the file.
    pub protection: BTreeMap<String, String>,
}

impl Edit {
    /// Returns the bridge that it changes.
    fn bridge(&self) -> Option<&str> {
        match self {
            Edit::AddBridge(bridge) => Some(&bridge.name),
            Edit::RemoveBridge(name) => Some(name),
            Edit::SetLogic { bridge, .. }
            | Edit::AddPort { bridge, .. }
            | Edit::SetPort { bridge, .. }
            | Edit::RemovePort { bridge, .. }
            | Edit::AddStation { bridge, .. }
            | Edit::AddMirror { bridge, .. }
            | Edit::RemoveMirror { bridge, .. }
            | Edit::RemoveStation { bridge, .. }
            | Edit::SetOpenFlow { bridge, .. } => Some(bridge),
            Edit::SetSflow(_) | Edit::RemoveSflow | Edit::AddWorkers(_) | Edit::RemoveWorkers(_) => None,
        }
    }

    /// Applies the change, which the operator makes. After an error, `config` may be partly changed: pass a copy.
    pub fn apply(self, config: &mut Config) -> Result<(), Refusal> {
        let changed = self.bridge().and_then(|name| config.bridge(name));
        if let Some(BridgeConfig { name, owner: Owner::Database, .. }) = changed {
            return Err(Refusal::Database(name.clone()));
        }
        match self {
            Edit::AddBridge(bridge) => add_bridge(config, *bridge),
            Edit::RemoveBridge(name) => {
                find(config, &name)?;
                config.bridges.retain(|bridge| bridge.name != name);
                Ok(())
            }
            Edit::SetLogic { bridge, logic } => {
                check_logic(&logic)?;
                find(config, &bridge)?.logic = logic;
                Ok(())
            }
            Edit::AddPort { bridge, port } => add_port(config, &bridge, *port),
            Edit::SetPort { bridge, port, change } => set_port(find_port(config, &bridge, &port)?, change)
                .map_err(|message| Refusal::Port { bridge, port, message }),
            Edit::RemovePort { bridge, port } => {
                find_port(config, &bridge, &port)?;
                let bridge = find(config, &bridge)?;
                if let Some(user) = host_port::user(bridge, &port) {
                    let (bridge, user) = (bridge.name.clone(), &user.settings.name);
                    let message = format!(
                        "it has the addresses of port `{user}`; remove that port first, with \
                         `mswitch port del {bridge} {user}`"
                    );
                    return Err(Refusal::Port { bridge, port, message });
                }
                bridge.ports.retain(|there| there.settings.name != port);
                bridge.stations.retain(|station| station.port != port);
                mirror::forget_port(bridge, &port);
                Ok(())
            }
            Edit::AddStation { bridge, station } => {
                find_port(config, &bridge, &station.port)?;
                station.check()?;
                let stations = &mut find(config, &bridge)?.stations;
                stations.retain(|there| !there.is(station.mac, station.vlan));
                stations.push(station);
                Ok(())
            }
            Edit::AddMirror { bridge, mirror } => {
                let there = find(config, &bridge)?;
                mirror::check(there, &mirror).map_err(|error| Refusal::Mirror { bridge, error })?;
                there.mirrors.push(mirror);
                Ok(())
            }
            Edit::RemoveMirror { bridge, name } => {
                let there = find(config, &bridge)?;
                let at = there.mirrors.iter().position(|mirror| mirror.name == name);
                let error =
                    || Refusal::Mirror { bridge: bridge.clone(), error: mirror::unknown(there, &name) };
                let at = at.ok_or_else(error)?;
                there.mirrors.remove(at);
                Ok(())
            }
            Edit::RemoveStation { bridge, mac, vlan } => {
                find(config, &bridge)?.stations.retain(|station| !station.is(mac, vlan));
                Ok(())
            }
            Edit::SetOpenFlow { bridge, change } => {
                let openflow = &mut find(config, &bridge)?.openflow;
                change.apply(openflow);
                openflow.check_tls(true).map_err(|error| Refusal::Other(format!("`controllers`: {error}")))
            }
            Edit::SetSflow(change) => {
                config.sflow = Some(change.apply(config.sflow.as_ref())?);
                Ok(())
            }
            Edit::RemoveSflow => {
                config.sflow = None;
                Ok(())
            }
            Edit::AddWorkers(added) => add_workers(&mut config.daemon.workers, &added),
            Edit::RemoveWorkers(cpus) => remove_workers(&mut config.daemon.workers, &cpus),
        }
    }
}

fn add_workers(workers: &mut Vec<usize>, added: &[Listed]) -> Result<(), Refusal> {
    for Listed { cpu, workers: count, explicit } in added {
        let after = workers.iter().rposition(|there| there == cpu);
        if after.is_some() && !explicit {
            return Err(Refusal::Other(format!(
                "CPU {cpu} has a worker already; another one would share the CPU with it (for tests, `{cpu}x1` adds one)"
            )));
        }
        let at = after.map_or(workers.len(), |at| at + 1);
        workers.splice(at..at, std::iter::repeat_n(*cpu, *count));
    }
    match workers.len() {
        0..=MAX_WORKERS => Ok(()),
        many => Err(Refusal::Other(CpuListError::TooMany(many).to_string())),
    }
}

fn remove_workers(workers: &mut Vec<usize>, cpus: &[usize]) -> Result<(), Refusal> {
    for cpu in cpus {
        let at = workers.iter().rposition(|there| there == cpu).ok_or_else(|| match workers.as_slice() {
            [] => Refusal::Other(format!("no worker is pinned to CPU {cpu}, nor to another one")),
            _ => Refusal::Other(format!(
                "no worker runs on CPU {cpu}; CPUs with workers: {}",
                cpulist::format(workers)
            )),
        })?;
        workers.remove(at);
    }
    if workers.is_empty() {
        let message = "the last worker cannot be removed; add another one first, with `mswitch worker add`";
        return Err(Refusal::Other(message.into()));
    }
    Ok(())
}

fn find<'a>(config: &'a mut Config, name: &str) -> Result<&'a mut BridgeConfig, Refusal> {
    let found = config.bridges.iter_mut().find(|bridge| bridge.name == name);
    found.ok_or_else(|| Refusal::NoBridge(name.into()))
}

fn find_port<'a>(config: &'a mut Config, bridge: &str, name: &str) -> Result<&'a mut PortConfig, Refusal> {
    let found = find(config, bridge)?.ports.iter_mut().find(|port| port.settings.name == name);
    found.ok_or_else(|| Refusal::NoPort { bridge: bridge.into(), port: name.into() })
}

/// Checks that the logic exists and accepts the parameters.
fn check_logic(logic: &LogicConfig) -> Result<(), Refusal> {
    Ok(logics::check(&logic.name, &logic.params)?)
}

fn add_bridge(config: &mut Config, bridge: BridgeConfig) -> Result<(), Refusal> {
    check_name(&bridge.name)?;
    check_logic(&bridge.logic)?;
    if config.bridge(&bridge.name).is_some() {
        return Err(Refusal::BridgeExists(bridge.name));
    }
    let BridgeConfig { name, logic, ports, stations, mirrors, openflow, p4, owner, sflow, accounting } =
        bridge;
    config.bridges.push(BridgeConfig {
        logic,
        openflow,
        p4,
        owner,
        sflow,
        accounting,
        ..BridgeConfig::new(&name)
    });
    for port in ports {
        insert_port(config, &name, port)?;
    }
    check_host_ports(config, &name)?;
    for station in stations {
        Edit::AddStation { bridge: name.clone(), station }.apply(config)?;
    }
    for mirror in mirrors {
        Edit::AddMirror { bridge: name.clone(), mirror }.apply(config)?;
    }
    Ok(())
}

fn add_port(config: &mut Config, bridge: &str, mut port: PortConfig) -> Result<(), Refusal> {
    let refused = |error: host_port::HostPortError, port: &PortConfig| Refusal::Port {
        bridge: bridge.to_owned(),
        port: port.settings.name.clone(),
        message: error.to_string(),
    };
    let host = host_port::resolve(find(config, bridge)?, &mut port).map_err(|error| refused(error, &port))?;
    if let Some(host) = host {
        insert_port(config, bridge, host)?;
    }
    insert_port(config, bridge, port)?;
    check_host_ports(config, bridge)
}

fn check_host_ports(config: &mut Config, bridge: &str) -> Result<(), Refusal> {
    let there = find(config, bridge)?;
    there.ports.iter().try_for_each(|port| {
        host_port::check(there, port).map_err(|error| Refusal::Port {
            bridge: bridge.to_owned(),
            port: port.settings.name.clone(),
            message: error.to_string(),
        })
    })
}

fn insert_port(config: &mut Config, bridge: &str, port: PortConfig) -> Result<(), Refusal> {
    let name = port.settings.name.clone();
    check_name(&name)?;
    if find(config, bridge)?.port(&name).is_some() {
        return Err(Refusal::PortExists { bridge: bridge.into(), port: name });
    }
    check::options(&port.spec).map_err(|fault| Refusal::Port {
        bridge: bridge.into(),
        port: name.clone(),
        message: fault.message,
    })?;
    if let Some(resource) = check::exclusive(&port.spec, &name) {
        for there in &config.bridges {
            let has =
                |p: &&PortConfig| check::exclusive(&p.spec, &p.settings.name).as_ref() == Some(&resource);
            if let Some(other) = there.ports.iter().find(has) {
                let (bridge, port) = (there.name.clone(), other.settings.name.clone());
                return Err(Refusal::Shared { bridge, port, resource: resource.0 });
            }
        }
    }
    let there = find(config, bridge)?;
    there.ports.push(port);
    if let Some((key, first, _)) = there.same_number() {
        let message = format!("port \"{}\" has its `{key}`; choose another one", first.settings.name);
        return Err(Refusal::Port { bridge: bridge.into(), port: name, message });
    }
    Ok(())
}

fn set_port(port: &mut PortConfig, change: PortChange) -> Result<(), String> {
    let PortChange { admin_up, mtu, vlan, protection } = change;
    if let Some(up) = admin_up {
        port.settings.admin_up = up;
    }
    if let Some(mtu) = mtu {
        port.set_mtu(mtu);
    }
    if let Some(vlan) = vlan {
        port.settings.vlan = vlan;
    }
    protection::apply(&mut port.settings, &protection).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;

    fn memif(name: &str, id: &str) -> Box<PortConfig> {
        let own = [("path".into(), "/tmp/edit.sock".into()), ("id".into(), id.into())].into();
        Box::new(PortConfig::new(fabric::PortSettings::new(name), options::from_text("memif", &own).unwrap()))
    }

    fn bridge() -> Config {
        let mut config = Config::default();
        Edit::AddBridge(Box::new(BridgeConfig::new("br0"))).apply(&mut config).unwrap();
        Edit::AddPort { bridge: "br0".into(), port: memif("a", "0") }.apply(&mut config).unwrap();
        config
    }

    fn refused(config: &Config, edit: Edit) -> String {
        edit.apply(&mut config.clone()).unwrap_err().to_string()
    }

    #[test]
    fn duplicates_are_refused() {
        let config = bridge();
        let again = Edit::AddBridge(Box::new(BridgeConfig::new("br0")));
        assert!(refused(&config, again).contains("bridge \"br0\" already exists"));
        let again = Edit::AddPort { bridge: "br0".into(), port: memif("a", "1") };
        assert!(refused(&config, again).contains("already has a port \"a\""));
        let shared = Edit::AddPort { bridge: "br0".into(), port: memif("b", "0") };
        assert!(refused(&config, shared).contains("two ports cannot share it"));
    }

    #[test]
    fn missing_objects_are_named() {
        let config = bridge();
        for edit in [
            Edit::RemoveBridge("br1".into()),
            Edit::SetLogic { bridge: "br1".into(), logic: LogicConfig::default() },
            Edit::AddPort { bridge: "br1".into(), port: memif("b", "1") },
        ] {
            assert!(refused(&config, edit).contains("there is no bridge \"br1\""));
        }
        let station = StationConfig { mac: "02:00:00:00:00:01".parse().unwrap(), vlan: 0, port: "b".into() };
        for edit in [
            Edit::RemovePort { bridge: "br0".into(), port: "b".into() },
            Edit::SetPort { bridge: "br0".into(), port: "b".into(), change: PortChange::default() },
            Edit::AddStation { bridge: "br0".into(), station },
        ] {
            assert!(refused(&config, edit).contains("has no port \"b\""));
        }
    }

    #[test]
    fn a_mirror_of_a_bridge_without_mirrors_is_unknown() {
        let edit = Edit::RemoveMirror { bridge: "br0".into(), name: "m1".into() };
        assert_eq!(refused(&bridge(), edit), "bridge \"br0\": the bridge has no mirrors");
    }

    #[test]
    fn a_station_moves_to_the_port_added_last_and_is_removed_with_it() {
        let mut config = bridge();
        Edit::AddPort { bridge: "br0".into(), port: memif("b", "1") }.apply(&mut config).unwrap();
        for port in ["a", "b"] {
            let station =
                StationConfig { mac: "02:00:00:00:00:01".parse().unwrap(), vlan: 7, port: port.into() };
            Edit::AddStation { bridge: "br0".into(), station }.apply(&mut config).unwrap();
        }
        let stations = &config.bridges[0].stations;
        assert_eq!(stations.iter().map(|s| s.port.as_str()).collect::<Vec<_>>(), ["b"]);
        Edit::RemovePort { bridge: "br0".into(), port: "b".into() }.apply(&mut config).unwrap();
        assert_eq!(config, bridge());
    }

    #[test]
    fn a_host_port_is_added_with_its_user_and_stays_as_long() {
        let mut config = Config::default();
        Edit::AddBridge(Box::new(BridgeConfig::new("br0"))).apply(&mut config).unwrap();
        let add = |name: &str, host: &str| {
            let own = [("host".into(), host.into())].into();
            let spec = options::from_text("netdev", &own).unwrap();
            let port = Box::new(PortConfig::new(fabric::PortSettings::new(name), spec));
            Edit::AddPort { bridge: "br0".into(), port }
        };
        let remove = |port: &str| Edit::RemovePort { bridge: "br0".into(), port: port.into() };
        add("eth0", "").apply(&mut config).unwrap();
        let names = |config: &Config| {
            let ports = config.bridges[0].ports.iter();
            ports.map(|port| port.settings.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&config), ["br0-host", "eth0"]);
        assert_eq!(host_port::of(&config.bridges[0].ports[1]), Some("br0-host"));
        assert_eq!(
            refused(&config, add("eth1", "")),
            "bridge \"br0\", port \"eth1\": host: port `br0-host` has the addresses of port `eth0`; name another TAP port"
        );
        assert_eq!(
            refused(&config, remove("br0-host")),
            "bridge \"br0\", port \"br0-host\": it has the addresses of port `eth0`; remove that port first, with \
             `mswitch port del br0 eth0`"
        );
        remove("eth0").apply(&mut config).unwrap();
        add("eth1", "").apply(&mut config).unwrap();
        assert_eq!(names(&config), ["br0-host", "eth1"], "the host port is used again");
        // The order within a new bridge does not matter.
        let mut bridge = config.bridges[0].clone();
        bridge.name = "br1".into();
        bridge.ports.reverse();
        config.bridges.clear();
        Edit::AddBridge(Box::new(bridge)).apply(&mut config).unwrap();
        remove("br0-host").apply(&mut config.clone()).unwrap_err();
    }

    #[test]
    fn workers_are_added_and_removed_by_cpu() {
        let mut config = Config::default();
        let add = |text: &str| Edit::AddWorkers(cpulist::parse_listed(text).unwrap());
        add("2-3").apply(&mut config).unwrap();
        assert_eq!(config.daemon.workers, [2, 3]);
        assert_eq!(
            refused(&config, add("2")),
            "CPU 2 has a worker already; another one would share the CPU with it (for tests, `2x1` adds one)"
        );
        add("2x2,1").apply(&mut config).unwrap();
        assert_eq!(config.daemon.workers, [2, 2, 2, 3, 1], "equal CPUs are together, as in the file");
        assert_eq!(
            refused(&config, Edit::RemoveWorkers(vec![3, 3])),
            "no worker runs on CPU 3; CPUs with workers: 2x3,1"
        );
        Edit::RemoveWorkers(vec![2, 2, 3]).apply(&mut config).unwrap();
        assert_eq!(config.daemon.workers, [2, 1]);
        assert_eq!(
            refused(&config, Edit::RemoveWorkers(vec![2, 1])),
            "the last worker cannot be removed; add another one first, with `mswitch worker add`"
        );
        assert_eq!(refused(&config, add("0x127")), "129 workers; at most 128 are possible");
        assert_eq!(
            refused(&Config::default(), Edit::RemoveWorkers(vec![0])),
            "no worker is pinned to CPU 0, nor to another one"
        );
    }

    #[test]
    fn setting_the_mtu_of_a_tap_port_sets_both_ends() {
        let mut config = bridge();
        let tap = options::from_text("tap", &Default::default()).unwrap();
        let port = Box::new(PortConfig::new(fabric::PortSettings::new("t"), tap));
        Edit::AddPort { bridge: "br0".into(), port }.apply(&mut config).unwrap();
        let set = |mtu| Edit::SetPort {
            bridge: "br0".into(),
            port: "t".into(),
            change: PortChange { mtu: Some(mtu), ..PortChange::default() },
        };
        set(9000).apply(&mut config).unwrap();
        let port = config.bridges[0].port("t").unwrap();
        assert_eq!((port.settings.mtu, port.spec.mtu()), (9000, Some(9000)));
        set(0).apply(&mut config).unwrap();
        let port = config.bridges[0].port("t").unwrap();
        assert_eq!((port.settings.mtu, port.spec.mtu()), (0, None));
    }
}

//! From rows of the tables `Bridge` and `Port` to spanning trees.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::Uuid;
use ovsdb::vswitch::{Bridge, Port};
use packet::ether::MacAddr;
use spanning_tree::{MAX_PORTS, Protocol, rstp, stp};

use super::{PlannedInterface, Rows};

/// The spanning tree that a bridge takes part in.
#[derive(Debug, PartialEq)]
pub(crate) struct PlannedTree {
    pub(crate) settings: TreeSettings,
    pub(crate) ports: Vec<PlannedTreePort>,
    /// What cannot be used, for the log.
    pub(crate) wrong: Vec<String>,
}

/// Settings of a bridge.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TreeSettings {
    Stp(stp::Settings),
    Rstp(rstp::Settings),
}

/// A port that takes part.
#[derive(Debug, PartialEq)]
pub(crate) struct PlannedTreePort {
    /// The row of the table `Port`.
    pub(crate) uuid: Uuid,
    /// The name of its interface.
    pub(crate) name: String,
    /// The number that the configuration gives it.
    pub(crate) number: Option<u8>,
    /// Its settings; defaults of some follow the speed of its link.
    pub(crate) other_config: BTreeMap<String, String>,
}

impl PlannedTree {
    /// Whether a port takes part.
    pub(crate) fn has(&self, port: &str) -> bool {
        self.ports.iter().any(|it| it.name == port)
    }

    /// Whether a port takes part, by its row.
    pub(crate) fn has_row(&self, port: Uuid) -> bool {
        self.ports.iter().any(|it| it.uuid == port)
    }
}

impl TreeSettings {
    pub(crate) fn protocol(&self) -> Protocol {
        match self {
            Self::Stp(_) => Protocol::Stp,
            Self::Rstp(_) => Protocol::Rstp,
        }
    }
}

/// The names that a protocol has in the database and in messages.
fn names(protocol: Protocol) -> (&'static str, &'static str) {
    match protocol {
        Protocol::Stp => ("stp", "STP"),
        Protocol::Rstp => ("rstp", "RSTP"),
    }
}

/// Returns the spanning tree of a bridge, if it takes part in one. `interfaces` are those of the bridge, `mac` is its
/// address.
pub(super) fn of(
    rows: &Rows<'_>,
    bridge: &Bridge,
    interfaces: &[PlannedInterface],
    mac: MacAddr,
) -> Option<PlannedTree> {
    if !bridge.rstp_enable && !bridge.stp_enable {
        return None;
    }
    // As in Open vSwitch, RSTP comes first.
    let (settings, mut wrong) = if bridge.rstp_enable {
        let (settings, wrong) = rstp::Settings::read(&bridge.name, &bridge.other_config, mac);
        (TreeSettings::Rstp(settings), wrong)
    } else {
        let (settings, wrong) = stp::Settings::read(&bridge.name, &bridge.other_config, mac);
        (TreeSettings::Stp(settings), wrong)
    };
    let mirrors = bridge.mirrors.iter().filter_map(|uuid| rows.mirrors.get(uuid));
    let outputs: BTreeSet<Uuid> = mirrors.filter_map(|mirror| mirror.output_port).collect();
    let mut taken = BTreeSet::new();
    let mut ports = Vec::new();
    // The order in which numbers are given.
    let mut its: Vec<_> = interfaces.iter().filter(|it| it.port.is_ok() && it.name != bridge.name).collect();
    its.sort_by_key(|interface| interface.number);
    for interface in its {
        let of_port = |port: &&Port| port.interfaces.contains(&interface.uuid);
        let Some(port) = bridge.ports.iter().filter_map(|uuid| rows.ports.get(uuid)).find(of_port) else {
            continue;
        };
        let row = rows.interfaces.get(&interface.uuid);
        if outputs.contains(&port.uuid) || row.is_none_or(|row| row.type_ == "internal") {
            continue;
        }
        match planned(port, interface, settings.protocol(), &mut taken) {
            Ok(planned) => ports.extend(planned),
            Err(error) => wrong.push(format!("port {}: {error}", port.name)),
        }
    }
    for port in ports.drain(ports.len().min(MAX_PORTS.into())..) {
        let name = names(settings.protocol()).1;
        wrong.push(format!("port {}: too many {name} ports, disabling", port.name));
    }
    for port in &ports {
        wrong.extend(match settings {
            TreeSettings::Stp(_) => stp::PortSettings::read(&port.name, &port.other_config, 0).1,
            TreeSettings::Rstp(_) => rstp::PortSettings::read(&port.name, &port.other_config, 0).1,
        });
    }
    wrong.dedup();
    Some(PlannedTree { settings, ports, wrong })
}

/// Returns the port as one of the tree; `None`: it takes no part. `taken` has the numbers given so far.
fn planned(
    port: &Port,
    interface: &PlannedInterface,
    protocol: Protocol,
    taken: &mut BTreeSet<u8>,
) -> Result<Option<PlannedTreePort>, String> {
    let (key, name) = names(protocol);
    let other = &port.other_config;
    if other.get(&format!("{key}-enable")).is_some_and(|text| text.eq_ignore_ascii_case("false")) {
        return Ok(None);
    }
    if port.interfaces.len() > 1 {
        return Err(format!("cannot enable {name} on bonds, disabling"));
    }
    let number = match other.get(&format!("{key}-port-num")) {
        None => None,
        Some(text) => {
            let number = text.parse::<u8>().ok().filter(|number| *number > 0);
            let number = number.ok_or_else(|| format!("invalid {key}-port-num"))?;
            if !taken.insert(number) {
                return Err(format!("duplicate {key}-port-num {number}, disabling"));
            }
            Some(number)
        }
    };
    let (uuid, name, other_config) = (port.uuid, interface.name.clone(), other.clone());
    Ok(Some(PlannedTreePort { uuid, name, number, other_config }))
}

/// Gives each port a number: the one that the configuration gives it, that which it had, or the lowest that is free.
pub(crate) fn numbers(ports: &[PlannedTreePort], before: &BTreeMap<String, u8>) -> BTreeMap<String, u8> {
    let mut numbers: BTreeMap<String, u8> =
        ports.iter().filter_map(|port| Some((port.name.clone(), port.number?))).collect();
    let others = || ports.iter().filter(|port| port.number.is_none());
    for port in others() {
        let present = before.get(&port.name).filter(|number| !numbers.values().any(|taken| taken == *number));
        if let Some(number) = present {
            numbers.insert(port.name.clone(), *number);
        }
    }
    for port in others() {
        let free = (1..=MAX_PORTS).find(|number| !numbers.values().any(|taken| taken == number));
        if let (Some(number), false) = (free, numbers.contains_key(&port.name)) {
            numbers.insert(port.name.clone(), number);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, number: Option<u8>) -> PlannedTreePort {
        PlannedTreePort { uuid: Uuid([0; 16]), name: name.into(), number, other_config: BTreeMap::new() }
    }

    #[test]
    fn ports_keep_their_numbers() {
        let given = |numbers: &BTreeMap<String, u8>| numbers.values().copied().collect::<Vec<_>>();
        let first = numbers(&[port("b", None), port("c", None)], &BTreeMap::new());
        assert_eq!(given(&first), [1, 2]);
        let second = numbers(&[port("a", None), port("b", None), port("c", Some(7))], &first);
        assert_eq!(given(&second), [2, 1, 7], "a has the one that has become free");
        let third = numbers(&[port("a", None), port("b", None), port("c", Some(1))], &second);
        assert_eq!(given(&third), [2, 3, 1]);
        let many: Vec<_> = (0..300).map(|n| port(&format!("p{n}"), None)).collect();
        assert_eq!(numbers(&many, &BTreeMap::new()).len(), 255);
    }
}

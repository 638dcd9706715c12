//! What OpenFlow is told of ports: numbers, addresses, links, speeds.

use std::collections::BTreeSet;
use std::path::Path;

use fabric::Switch;
use oflogic::PortFacts;
use packet::ether::MacAddr;
use ports::Spec;

use super::identity::port_address;
use super::settings::DatapathId;
use crate::model::Owner;
use crate::state::{Bridge, Port};

/// Returns the facts about all ports of a bridge.
pub(crate) fn facts(
    switch: &Switch,
    name: &str,
    bridge: &Bridge,
    id: DatapathId,
    faulty: &BTreeSet<(String, String)>,
) -> Vec<PortFacts> {
    bridge.ports.values().map(|port| facts_of(switch, name, bridge.owner, port, id, faulty)).collect()
}

/// Returns the facts about a port of the bridge called `bridge`; `faulty` has bridges and ports.
///
/// As with Open vSwitch, a port of the host that has the bridge's name is the bridge's local port.
pub(crate) fn facts_of(
    switch: &Switch,
    bridge: &str,
    owner: Owner,
    port: &Port,
    id: DatapathId,
    faulty: &BTreeSet<(String, String)>,
) -> PortFacts {
    let name = &port.config.settings.name;
    let is_dummy = matches!(port.config.spec, Spec::Dummy(_));
    let own = port.open.as_ref().and_then(|open| open.address()).map(|mac| mac.0);
    PortFacts {
        index: port.at.port,
        number: port.config.openflow_port,
        is_local: name == bridge && matches!(port.config.spec, Spec::Tap(_) | Spec::Dummy(_)),
        address: own
            .or_else(|| address_of(&port.config.spec, name))
            .unwrap_or_else(|| port_address(id, name)),
        is_up: switch.counters(port.at).is_ok_and(|counters| counters.up),
        is_faulty: faulty.contains(&(bridge.to_owned(), name.clone())),
        // As with Open vSwitch, on which LACP over patch ports builds.
        keeps_link: owner == Owner::Database && matches!(port.config.spec, Spec::Patch(_)),
        speed: port.open.as_ref().and_then(|open| open.speed()).map_or(0, |speed| speed.saturating_mul(1000)),
        is_dummy,
        queues: queues_of(port, is_dummy),
        bond: port.config.bond.clone(),
        in_tree: port.config.in_tree,
    }
}

/// Returns the queues that a port's limits have, the default queue among them. Open vSwitch's dummies have that one
/// always, which its tests see.
fn queues_of(port: &Port, is_dummy: bool) -> Vec<u32> {
    let limits = port.config.settings.egress.as_deref();
    let default = (is_dummy || limits.is_some()).then_some(0);
    let listed = limits.into_iter().flat_map(|limits| limits.queues.keys().map(|queue| (*queue).into()));
    let queues: BTreeSet<u32> = default.into_iter().chain(listed).collect();
    queues.into_iter().collect()
}

/// Returns the name of a port's network device in the daemon's network namespace, if there is one.
pub(crate) fn device<'a>(spec: &'a Spec, port: &'a str) -> Option<&'a str> {
    let (interface, netns) = match spec {
        Spec::Tap(options) => (&options.interface, &options.netns),
        Spec::Netdev(options) => (&options.interface, &options.netns),
        Spec::Memif(_) | Spec::Pcap(_) | Spec::VhostUser(_) | Spec::Patch(_) | Spec::Dummy(_) => return None,
    };
    if netns.is_some() {
        return None;
    }
    Some(interface.as_deref().unwrap_or(port))
}

/// Returns the address of a port's network device in the daemon's network namespace, if there is one.
fn address_of(spec: &Spec, port: &str) -> Option<[u8; 6]> {
    let interface = device(spec, port)?;
    let text = std::fs::read_to_string(Path::new("/sys/class/net").join(interface).join("address")).ok()?;
    text.trim().parse::<MacAddr>().ok().map(|mac| mac.0)
}

//! The state of a plan's interfaces: of the ports in the switch, and of network devices in the host (sysfs).
//!
//! Calls block: they take the lock on the bridges and read files.

use std::collections::BTreeMap;

use control::state::{Port, State};
use fabric::switch::PortSnapshot;
use packet::ether::MacAddr;
use ports::{Link, Spec, Status};

use crate::plan::{Device, Plan, PlannedInterface};

/// What is known of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Why it does not work.
    pub(crate) error: Option<String>,
    pub(crate) link_up: bool,
    pub(crate) speed: Option<i64>,
    /// The network device; `None` if there is none, or if it is in another namespace.
    pub(crate) device: Option<DeviceFacts>,
    pub(crate) statistics: BTreeMap<String, i64>,
    /// State by the type of interface.
    pub(crate) status: BTreeMap<String, String>,
}

/// A network device of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeviceFacts {
    pub(crate) mac: String,
    pub(crate) index: Option<i64>,
    pub(crate) mtu: Option<i64>,
    pub(crate) admin_up: bool,
}

/// Interface flag: administratively up (`IFF_UP`).
const UP: u32 = 1;

/// MTU of Ethernet, that of dummies by default.
const MTU: i64 = 1500;

impl DeviceFacts {
    /// The device within this process that a dummy is; `mtu`: 0 if none is set.
    fn within(address: MacAddr, mtu: u32) -> Self {
        let mtu = if mtu == 0 { MTU } else { mtu.into() };
        Self { mac: address.to_string(), index: None, mtu: Some(mtu), admin_up: true }
    }

    fn read(name: &str) -> Option<Self> {
        let read = |file: &str| std::fs::read_to_string(format!("/sys/class/net/{name}/{file}")).ok();
        let number = |file: &str| read(file)?.trim().parse().ok();
        let mac = read("address")?.trim().to_owned();
        let flags =
            read("flags").and_then(|text| u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok());
        let admin_up = flags.is_some_and(|flags| flags & UP != 0);
        Some(Self { mac, index: number("ifindex"), mtu: number("mtu"), admin_up })
    }
}

/// Returns the facts about each interface of a plan, in its order. `refused` has reasons for ports that the model left
/// out, by bridge and port. Network devices are read unless `known` has earlier facts of the same plan, whose devices
/// have not changed.
pub(crate) fn of(
    plan: &Plan,
    state: &State,
    refused: &BTreeMap<(String, String), String>,
    known: Option<&[Facts]>,
) -> Vec<Facts> {
    let bridges = state.bridges();
    let mut all = Vec::new();
    for bridge in &plan.bridges {
        let running = bridges.get(&bridge.name);
        let first = all.len();
        for interface in &bridge.interfaces {
            let port = running.and_then(|running| running.ports.get(&interface.name));
            let counters = port.and_then(|port| state.switch().counters(port.at).ok());
            let refused = refused.get(&(bridge.name.clone(), interface.name.clone()));
            let device = match known.and_then(|known| known.get(all.len())) {
                Some(known) => known.device.clone(),
                None => interface.device.and_then(|_| DeviceFacts::read(&interface.name)),
            };
            all.push(interface_facts(interface, port, counters, refused, device));
        }
        let of_bridge = bridge.interfaces.iter().zip(all.iter_mut().skip(first));
        follow_mtu(&bridge.name, running.map(|running| &running.ports), of_bridge.collect());
    }
    all
}

/// Gives a dummy of a bridge's own, unless its MTU is set, the least MTU of the other ports, as Open vSwitch does.
fn follow_mtu(
    bridge: &str,
    ports: Option<&BTreeMap<String, Port>>,
    mut interfaces: Vec<(&PlannedInterface, &mut Facts)>,
) {
    let own = ports.and_then(|ports| ports.get(bridge)).map(|port| &port.config);
    if !own.is_some_and(|config| matches!(config.spec, Spec::Dummy(_)) && config.settings.mtu == 0) {
        return;
    }
    let others = interfaces.iter().filter(|(interface, _)| interface.name != bridge);
    let least = others.filter_map(|(_, facts)| facts.device.as_ref()?.mtu).min().unwrap_or(MTU);
    let found = interfaces.iter_mut().find(|(interface, _)| interface.name == bridge);
    if let Some(device) = found.and_then(|(_, facts)| facts.device.as_mut()) {
        device.mtu = Some(least);
    }
}

fn interface_facts(
    interface: &PlannedInterface,
    port: Option<&Port>,
    counters: Option<PortSnapshot>,
    refused: Option<&String>,
    device: Option<DeviceFacts>,
) -> Facts {
    let failed = match (&interface.port, port) {
        (Err(error), _) => Some(error.clone()),
        (Ok(_), None) => Some(refused.cloned().unwrap_or_else(|| "the port could not be added".into())),
        (Ok(_), Some(port)) => port.failure.as_ref().map(|failure| failure.message.clone()),
    };
    let open = port.and_then(|port| port.open.as_ref());
    let link_up = open.is_some_and(|open| open.status().link == Link::Up);
    // The words that Open vSwitch has, which tools look for. In a container, sysfs may show another namespace's
    // devices.
    let missing = (interface.device == Some(Device::Existing) && device.is_none() && !link_up)
        .then(|| format!("could not open network device {} (No such device)", interface.name));
    let mtu = port.map_or(0, |port| port.config.settings.mtu);
    let within = |address| DeviceFacts::within(address, mtu);
    let device = device.or_else(|| open.and_then(|open| open.address()).map(within));
    Facts {
        error: failed.or(missing),
        link_up,
        speed: open.and_then(|open| open.speed()).map(|megabits| i64::from(megabits) * 1_000_000),
        device,
        status: port.map(status).unwrap_or_default(),
        statistics: counters.map(|counters| statistics(&counters)).unwrap_or_default(),
    }
}

/// State of ports with a socket, in Open vSwitch's words where it has some.
fn status(port: &Port) -> BTreeMap<String, String> {
    let role = match &port.config.spec {
        Spec::VhostUser(options) if options.role == ports::vhost_user::Role::Client => "client",
        Spec::Memif(options) if options.role == ports::memif::Role::Client => "client",
        Spec::VhostUser(_) | Spec::Memif(_) => "server",
        _ => return BTreeMap::new(),
    };
    let Status { link, details } = port.open.as_ref().map(|open| open.status()).unwrap_or_default();
    let connected = if link == Link::Up { "connected" } else { "disconnected" };
    let details =
        details.into_iter().filter(|(name, _)| ["features", "id", "socket"].contains(&name.as_str()));
    let mut status: BTreeMap<_, _> = details.collect();
    status.insert("mode".into(), role.into());
    status.insert("status".into(), connected.into());
    status
}

/// Counters as the port's client sees them in Open vSwitch: received by the switch, sent by the switch.
fn statistics(counters: &PortSnapshot) -> BTreeMap<String, i64> {
    let mut statistics = BTreeMap::new();
    for (direction, queues) in [("rx", &counters.rx), ("tx", &counters.tx)] {
        let mut put = |name: &str, count: u64| {
            statistics.insert(format!("{direction}_{name}"), i64::try_from(count).unwrap_or(i64::MAX));
        };
        put("packets", queues.iter().map(|queue| queue.packets).sum());
        put("bytes", queues.iter().map(|queue| queue.bytes).sum());
        put("dropped", queues.iter().flat_map(|queue| queue.drops).sum());
    }
    statistics
}

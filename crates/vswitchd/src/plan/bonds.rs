//! From rows of the table `Port` to bonds, and to ports of one interface that speak LACP.

use std::collections::BTreeMap;

use bond::{LacpSettings, MemberSettings, Mode, Settings};
use ovsdb::Uuid;
use ovsdb::vswitch::{Bridge, Interface, Port};
use packet::ether::MacAddr;

use super::{PlannedInterface, Rows};

/// Interval at which load is moved if the row has none, and the shortest one, milliseconds.
const REBALANCE: u64 = 10_000;
const SHORTEST_REBALANCE: u64 = 1_000;

/// A bond of a bridge in the database, or a port of one interface that speaks LACP.
#[derive(Debug, PartialEq)]
pub(crate) struct PlannedBond {
    pub(crate) uuid: Uuid,
    pub(crate) name: String,
    pub(crate) settings: Settings,
    /// The interfaces that have ports.
    pub(crate) members: Vec<MemberSettings>,
    pub(crate) warnings: Vec<String>,
}

/// Returns the bonds of a bridge. `interfaces` are those of the bridge, `mac` is its address.
pub(super) fn of(
    rows: &Rows<'_>,
    bridge: &Bridge,
    interfaces: &[PlannedInterface],
    mac: MacAddr,
) -> Vec<PlannedBond> {
    let ports = bridge.ports.iter().filter_map(|uuid| rows.ports.get(uuid));
    let bonds = ports.filter(|port| !rows.faults.contains_key(&port.uuid)).filter_map(|port| {
        let mut warnings = Vec::new();
        let settings = settings(port, mac, &mut warnings);
        if !settings.is_bond && settings.lacp.is_none() {
            // A port of one interface has no use for the other columns.
            return None;
        }
        let its = interfaces.iter().filter(|it| port.interfaces.contains(&it.uuid) && it.port.is_ok());
        let members = its.filter_map(|it| Some(member(rows.interfaces.get(&it.uuid)?, it.number)));
        let (uuid, name, members) = (port.uuid, port.name.clone(), members.collect());
        Some(PlannedBond { uuid, name, settings, members, warnings })
    });
    bonds.collect()
}

fn settings(port: &Port, mac: MacAddr, warnings: &mut Vec<String>) -> Settings {
    let other = &port.other_config;
    let is_true = |name: &str| other.get(name).is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let is_bond = port.interfaces.len() > 1;
    let mut warn = |text: String| warnings.push(format!("port {}: {text}", port.name));
    let mode = port.bond_mode.as_deref().map_or(Some(Mode::default()), Mode::of_name);
    if is_bond && mode.is_none() {
        let given = port.bond_mode.as_deref().unwrap_or_default();
        warn(format!("unknown bond_mode `{given}`; using {}", Mode::default().name()));
    }
    if is_bond && port.bond_fake_iface {
        warn("bond_fake_iface has no effect".into());
    }
    match other.get("bond-detect-mode").map(String::as_str) {
        None | Some("carrier") => {}
        Some("miimon") => warn("other_config:bond-detect-mode=miimon looks at the carrier, too".into()),
        Some(other) => warn(format!("unknown other_config:bond-detect-mode `{other}`; using carrier")),
    }
    let (mode, fallback) = (mode.unwrap_or_default(), is_true("lacp-fallback-ab"));
    for name in ["bond-hash-basis", "bond-rebalance-interval", "lacp-system-priority"] {
        if let (Some(text), None) = (other.get(name), number(other, name)) {
            warn(format!("other_config:{name} `{text}` is not a number; using the default"));
        }
    }
    let mut delay = |column: &str, milliseconds: i64| {
        if is_bond && milliseconds < 0 {
            warn(format!("{column} is {milliseconds}; using 0"));
        }
        u64::try_from(milliseconds).unwrap_or_default()
    };
    let updelay = delay("bond_updelay", port.bond_updelay);
    let downdelay = delay("bond_downdelay", port.bond_downdelay);
    let lacp = lacp(port, mac, fallback, &mut warn);
    if is_bond && mode == Mode::BalanceTcp && lacp.is_none() {
        warn("bond_mode=balance-tcp needs LACP and carries nothing without it; set lacp=active".into());
    }
    let rebalance_interval = match number(other, "bond-rebalance-interval") {
        None => REBALANCE,
        Some(0) => 0,
        Some(given) => u64::try_from(given).unwrap_or_default().max(SHORTEST_REBALANCE),
    };
    let has_primary = mode == Mode::ActiveBackup || fallback;
    Settings {
        mode,
        is_bond,
        updelay,
        downdelay,
        rebalance_interval,
        // Negative numbers are those that have the same bits.
        basis: number(other, "bond-hash-basis").unwrap_or_default() as u32,
        primary: other.get("bond-primary").filter(|_| has_primary).cloned(),
        all_members_active: mode == Mode::BalanceSlb && is_true("all-members-active"),
        lb_output: mode == Mode::BalanceTcp && is_true("lb-output-action"),
        lacp,
        fallback,
        last_active: port.bond_active_slave.as_ref().and_then(|text| text.parse().ok()),
    }
}

fn lacp(port: &Port, mac: MacAddr, fallback: bool, warn: &mut impl FnMut(String)) -> Option<LacpSettings> {
    let active = match port.lacp.as_deref() {
        Some("active") => true,
        Some("passive") => false,
        None | Some("off") => return None,
        Some(other) => {
            warn(format!("unknown lacp `{other}`; expected active, passive or off"));
            return None;
        }
    };
    let other = &port.other_config;
    let system = match other.get("lacp-system-id") {
        None => mac,
        Some(text) => match text.parse() {
            Ok(system) if system != MacAddr::ZERO => system,
            _ => {
                warn(format!("other_config:lacp-system-id `{text}` is not an Ethernet address; LACP is off"));
                return None;
            }
        },
    };
    let given = number(other, "lacp-system-priority").and_then(positive);
    // Bonds come first among systems that say nothing of it.
    let default = if port.interfaces.len() > 1 { u16::MAX - 1 } else { u16::MAX };
    let fast = other.get("lacp-time").is_some_and(|text| text.eq_ignore_ascii_case("fast"));
    Some(LacpSettings { active, fast, system, priority: given.unwrap_or(default), fallback })
}

fn member(interface: &Interface, port: i64) -> MemberSettings {
    let given = |name: &str| number(&interface.other_config, name).and_then(positive);
    MemberSettings {
        name: interface.name.clone(),
        port_id: given("lacp-port-id").or(u16::try_from(port).ok()).unwrap_or_default(),
        port_priority: given("lacp-port-priority").unwrap_or(u16::MAX),
        key: given("lacp-aggregation-key").unwrap_or_default(),
    }
}

fn number(map: &BTreeMap<String, String>, name: &str) -> Option<i64> {
    map.get(name)?.trim().parse().ok()
}

fn positive(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    fn port(interfaces: u8, other_config: &[(&str, &str)]) -> Port {
        let interfaces = (0..interfaces).map(|n| Uuid([n; 16])).collect();
        Port { name: "b".into(), interfaces, other_config: map(other_config), ..Port::default() }
    }

    fn read(port: &Port) -> (Settings, Vec<String>) {
        let mut warnings = Vec::new();
        (settings(port, MacAddr([2; 6]), &mut warnings), warnings)
    }

    #[test]
    fn defaults_are_those_of_open_vswitch() {
        let (settings, warnings) = read(&port(2, &[]));
        let expected = Settings { is_bond: true, rebalance_interval: 10_000, ..Settings::default() };
        assert_eq!((settings, warnings), (expected, vec![]));
        let lacp =
            |interfaces| read(&Port { lacp: Some("active".into()), ..port(interfaces, &[]) }).0.lacp.unwrap();
        let expected = LacpSettings {
            active: true,
            fast: false,
            system: MacAddr([2; 6]),
            priority: 65534,
            fallback: false,
        };
        assert_eq!((lacp(2), lacp(1).priority), (expected, 65535));
    }

    #[test]
    fn columns_become_settings() {
        let other = [
            ("bond-rebalance-interval", "5"),
            ("bond-hash-basis", "-1"),
            ("bond-primary", "p1"),
            ("all-members-active", "true"),
            ("lacp-time", "FAST"),
            ("lacp-system-id", "02:00:00:00:00:07"),
            ("lacp-system-priority", "7"),
            ("lacp-fallback-ab", "true"),
            ("bond-detect-mode", "carrier"),
        ];
        let port = Port {
            bond_mode: Some("balance-slb".into()),
            bond_updelay: 100,
            bond_downdelay: -5,
            lacp: Some("passive".into()),
            bond_active_slave: Some("02:00:00:00:00:09".into()),
            ..port(2, &other)
        };
        let system = MacAddr([2, 0, 0, 0, 0, 7]);
        let lacp = LacpSettings { active: false, fast: true, system, priority: 7, fallback: true };
        let expected = Settings {
            mode: Mode::BalanceSlb,
            is_bond: true,
            updelay: 100,
            downdelay: 0,
            rebalance_interval: 1000,
            basis: u32::MAX,
            primary: Some("p1".into()),
            all_members_active: true,
            lb_output: false,
            lacp: Some(lacp),
            fallback: true,
            last_active: Some(MacAddr([2, 0, 0, 0, 0, 9])),
        };
        let warnings = vec!["port b: bond_downdelay is -5; using 0".into()];
        assert_eq!(read(&port), (expected, warnings));
    }

    #[test]
    fn values_that_are_none_are_named() {
        let other = [("lacp-system-id", "x"), ("bond-detect-mode", "y"), ("bond-hash-basis", "z")];
        let port = Port {
            bond_mode: Some("round-robin".into()),
            bond_fake_iface: true,
            lacp: Some("active".into()),
            ..port(2, &other)
        };
        let (settings, warnings) = read(&port);
        assert_eq!((settings.mode, settings.lacp, settings.basis), (Mode::ActiveBackup, None, 0));
        assert_eq!(
            warnings,
            [
                "port b: unknown bond_mode `round-robin`; using active-backup",
                "port b: bond_fake_iface has no effect",
                "port b: unknown other_config:bond-detect-mode `y`; using carrier",
                "port b: other_config:bond-hash-basis `z` is not a number; using the default",
                "port b: other_config:lacp-system-id `x` is not an Ethernet address; LACP is off",
            ]
        );
    }

    #[test]
    fn balance_tcp_asks_for_lacp() {
        let port = Port { bond_mode: Some("balance-tcp".into()), ..port(2, &[]) };
        let needs =
            "port b: bond_mode=balance-tcp needs LACP and carries nothing without it; set lacp=active";
        assert_eq!(read(&port).1, [needs]);
        assert!(read(&Port { lacp: Some("passive".into()), ..port }).1.is_empty());
    }

    #[test]
    fn members_have_numbers_and_keys() {
        let other_config =
            map(&[("lacp-port-id", "11"), ("lacp-port-priority", "0"), ("lacp-aggregation-key", "70000")]);
        let interface = Interface { name: "p1".into(), other_config, ..Interface::default() };
        let expected = MemberSettings { name: "p1".into(), port_id: 11, port_priority: 65535, key: 0 };
        assert_eq!(member(&interface, 5), expected);
        assert_eq!(member(&Interface::default(), 5).port_id, 5);
        assert_eq!(member(&Interface::default(), -1).port_id, 0);
    }
}

//! Bridges of a database in the desired configuration.
//!
//! A database's transaction has been committed when the daemon learns of it, so nothing can be refused as a whole: what
//! cannot be configured is left out and reported for the database to show.
//!
//! Invariant: the bridges added are those that [`Edit::AddBridge`](crate::edit::Edit) would accept.

use std::collections::BTreeMap;

use crate::check;
use crate::diff::Object;
use crate::logics;
use crate::mirror;
use crate::model::{BridgeConfig, Config, Owner, PortConfig, check_name};
use crate::refusal::Refusal;

/// Resources that only one port can have, with the bridge and the port.
type Taken = BTreeMap<String, (String, String)>;

/// Adds bridges of a database to a configuration. Returns bridges, ports and mirrors that are left out, with the reasons.
pub(crate) fn add(config: &mut Config, bridges: Vec<BridgeConfig>) -> Vec<(Object, Refusal)> {
    let mut refused = Vec::new();
    let mut taken = Taken::new();
    for bridge in &config.bridges {
        for port in &bridge.ports {
            if let Some((resource, _)) = check::exclusive(&port.spec, &port.settings.name) {
                taken.insert(resource, (bridge.name.clone(), port.settings.name.clone()));
            }
        }
    }
    for mut bridge in bridges {
        if let Err(refusal) = check_bridge(config, &bridge) {
            refused.push((Object::Bridge(bridge.name), refusal));
            continue;
        }
        let mut ports: Vec<PortConfig> = Vec::new();
        for port in std::mem::take(&mut bridge.ports) {
            let name = port.settings.name.clone();
            match check_port(&bridge.name, &port, &mut taken) {
                Ok(()) => ports.push(port),
                Err(refusal) => {
                    refused.push((Object::Port { bridge: bridge.name.clone(), port: name }, refusal));
                }
            }
        }
        let mirrors = std::mem::take(&mut bridge.mirrors);
        let mut bridge = BridgeConfig { ports, owner: Owner::Database, ..bridge };
        for mirror in mirrors {
            let (name, of) = (mirror.name.clone(), bridge.name.clone());
            match mirror::check(&bridge, &mirror) {
                Ok(()) => bridge.mirrors.push(mirror),
                Err(error) => {
                    let object = Object::Mirror { bridge: of.clone(), name };
                    refused.push((object, Refusal::Mirror { bridge: of, error }));
                }
            }
        }
        config.bridges.push(bridge);
    }
    refused
}

fn check_bridge(config: &Config, bridge: &BridgeConfig) -> Result<(), Refusal> {
    check_name(&bridge.name)?;
    if config.bridge(&bridge.name).is_some() {
        return Err(Refusal::BridgeExists(bridge.name.clone()));
    }
    Ok(logics::check(&bridge.logic.name, &bridge.logic.params)?)
}

fn check_port(bridge: &str, port: &PortConfig, taken: &mut Taken) -> Result<(), Refusal> {
    let name = port.settings.name.clone();
    check_name(&name)?;
    let refused = |message| Refusal::Port { bridge: bridge.into(), port: name.clone(), message };
    check::options(&port.spec).map_err(|fault| refused(fault.message))?;
    let Some((resource, _)) = check::exclusive(&port.spec, &name) else { return Ok(()) };
    if let Some((bridge, port)) = taken.get(&resource).cloned() {
        return Err(Refusal::Shared { bridge, port, resource });
    }
    taken.insert(resource, (bridge.into(), name));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fabric::PortSettings;

    use super::*;
    use crate::edit::Edit;
    use crate::options;

    fn bridge(name: &str, interfaces: &[&str]) -> BridgeConfig {
        let port = |name: &&str| {
            let spec = options::from_text("netdev", &BTreeMap::new()).unwrap();
            PortConfig::new(PortSettings::new(*name), spec)
        };
        BridgeConfig { ports: interfaces.iter().map(port).collect(), ..BridgeConfig::new(name) }
    }

    #[test]
    fn what_cannot_be_configured_is_left_out_and_named() {
        let mut config = Config { bridges: vec![bridge("own", &["eth0"])], ..Config::default() };
        let bridges = vec![
            bridge("own", &[]),
            bridge("a b", &[]),
            bridge("br0", &["eth0", "eth1", "x/y"]),
            bridge("br1", &["eth1", "eth2"]),
        ];
        let mut bridges = bridges;
        let mirror =
            |name: &str, to: &str| fabric::Mirror { name: name.into(), to: to.into(), ..Default::default() };
        // One is of a port that is left out.
        bridges[2].mirrors =
            [("m1", "eth0"), ("m2", "eth1"), ("m2", "eth1")].map(|(name, to)| mirror(name, to)).into();
        let refused = add(&mut config, bridges);
        let refused: Vec<String> =
            refused.iter().map(|(object, refusal)| format!("{object}: {refusal}")).collect();
        assert_eq!(
            refused,
            [
                "bridge \"own\": bridge \"own\" already exists; choose another name",
                "bridge \"a b\": `a b` is not a name; expected 1 to 64 letters, digits, dots, underscores and dashes",
                "bridge \"br0\", port \"eth0\": bridge \"own\", port \"eth0\" already has interface eth0 in the \
                 switch's namespace; two ports cannot share it",
                "bridge \"br0\", port \"x/y\": `x/y` is not a name; expected 1 to 64 letters, digits, dots, \
                 underscores and dashes",
                "bridge \"br0\", mirror \"m1\": bridge \"br0\": the bridge has no port `eth0`; expected `eth1`",
                "bridge \"br0\", mirror \"m2\": bridge \"br0\": the bridge already has a mirror `m2`; choose another name",
                "bridge \"br1\", port \"eth1\": bridge \"br0\", port \"eth1\" already has interface eth1 in the \
                 switch's namespace; two ports cannot share it",
            ]
        );
        let there =
            config.bridges.iter().map(|bridge| (bridge.name.as_str(), bridge.owner, bridge.ports.len()));
        let expected =
            [("own", Owner::Operator, 1), ("br0", Owner::Database, 1), ("br1", Owner::Database, 1)];
        assert!(there.eq(expected), "{config:?}");
        assert_eq!(config.bridges[1].mirrors, [mirror("m2", "eth1")]);
    }

    #[test]
    fn edits_of_the_operator_leave_a_databases_bridge_as_it_is() {
        let mut config = Config::default();
        add(&mut config, vec![bridge("br0", &["eth0"])]);
        let before = config.clone();
        for edit in [
            Edit::RemoveBridge("br0".into()),
            Edit::AddBridge(Box::new(BridgeConfig::new("br0"))),
            Edit::RemovePort { bridge: "br0".into(), port: "eth0".into() },
        ] {
            assert_eq!(
                edit.apply(&mut config).unwrap_err().to_string(),
                "bridge \"br0\" belongs to the database of Open vSwitch; change it with `ovs-vsctl`"
            );
        }
        assert_eq!(config, before);
        Edit::AddBridge(Box::new(bridge("br1", &["eth1"]))).apply(&mut config).unwrap();
        assert_eq!(config.of(Owner::Operator).bridges.len(), 1);
    }
}

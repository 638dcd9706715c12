//! Checks of mirrors, shared by `mirror add` and `[[bridge.mirror]]`.

use fabric::Mirror;
use packet::ether::Vid;

use crate::direction::NotADirection;
use crate::model::{BridgeConfig, ValueError, check_name};
use crate::suggest;

/// Reasons for refusing a mirror.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// An invalid name.
    #[error(transparent)]
    Name(ValueError),
    /// An unknown direction.
    #[error(transparent)]
    Direction(#[from] NotADirection),
    /// A VLAN id out of range.
    #[error("{0} is not a VLAN id; expected 1 to 4094, or no VLAN for untagged copies")]
    Vlan(i64),
    /// An unknown port.
    #[error("the bridge has no port `{0}`; {1}")]
    NoPort(String, String),
    /// The mirror's target is among its sources, which would be a loop.
    #[error("`{0}` receives the copies, so its own packets cannot be copied; remove it from `from`")]
    Own(String),
    /// A mirror of this name exists.
    #[error("the bridge already has a mirror `{0}`; choose another name")]
    Exists(String),
    /// An unknown mirror of a bridge without mirrors.
    #[error("the bridge has no mirrors")]
    NoMirrors,
    /// An unknown mirror.
    #[error("the bridge has no mirror `{0}`; {1}")]
    NoMirror(String, String),
}

/// Checks the VLAN of a mirror; 0 means none.
pub fn parse_vlan(vlan: i64) -> Result<Option<Vid>, MirrorError> {
    if vlan == 0 {
        return Ok(None);
    }
    u16::try_from(vlan).ok().and_then(Vid::new).map(Some).ok_or(MirrorError::Vlan(vlan))
}

/// Checks that a bridge can have this mirror in addition to its other mirrors.
pub fn check(bridge: &BridgeConfig, mirror: &Mirror) -> Result<(), MirrorError> {
    let ports: Vec<&str> = bridge.ports.iter().map(|port| port.settings.name.as_str()).collect();
    mistakes(bridge, &ports, mirror).into_iter().next().map_or(Ok(()), Err)
}

/// Returns the text that follows "the bridge has no port …".
pub fn other_ports(name: &str, ports: &[&str]) -> String {
    if ports.is_empty() { "add the port first".into() } else { suggest::instead(name, ports) }
}

/// All reasons why a bridge with these ports cannot have this mirror beside those that it has.
pub fn mistakes(bridge: &BridgeConfig, ports: &[&str], mirror: &Mirror) -> Vec<MirrorError> {
    let mut found: Vec<_> = check_name(&mirror.name).map_err(MirrorError::Name).err().into_iter().collect();
    if bridge.mirrors.iter().any(|other| other.name == mirror.name) {
        found.push(MirrorError::Exists(mirror.name.clone()));
    }
    let to = Some(&mirror.to).filter(|to| !mirror.from.contains(to) && mirror.into_vlan.is_none());
    let by_port = mirror.by_port.iter().flatten().map(|(name, _)| name);
    let named = mirror.from.iter().chain(by_port).chain(to);
    let missing = named.filter(|name| !ports.contains(&name.as_str()));
    found.extend(missing.map(|name| MirrorError::NoPort(name.clone(), other_ports(name, ports))));
    if mirror.from.contains(&mirror.to) {
        found.push(MirrorError::Own(mirror.to.clone()));
    }
    found
}

/// Returns the error for a mirror that the bridge lacks.
pub fn unknown(bridge: &BridgeConfig, name: &str) -> MirrorError {
    let names: Vec<&str> = bridge.mirrors.iter().map(|mirror| mirror.name.as_str()).collect();
    match names.is_empty() {
        true => MirrorError::NoMirrors,
        false => MirrorError::NoMirror(name.into(), suggest::instead(name, &names)),
    }
}

/// Removes a deleted port from a bridge's mirrors. Mirrors that lose their target or their last source are removed too.
pub fn forget_port(bridge: &mut BridgeConfig, port: &str) {
    bridge.mirrors.retain_mut(|mirror| {
        let copied_all = mirror.from.is_empty();
        mirror.from.retain(|from| from != port);
        mirror.to != port && (copied_all || !mirror.from.is_empty())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlan_is_checked() {
        assert_eq!((parse_vlan(0), parse_vlan(7)), (Ok(None), Ok(Vid::new(7))));
        for bad in [-1, 4095, 70_000] {
            assert_eq!(
                parse_vlan(bad).unwrap_err().to_string(),
                format!("{bad} is not a VLAN id; expected 1 to 4094, or no VLAN for untagged copies")
            );
        }
    }

    #[test]
    fn a_mirror_is_removed_with_its_target_or_its_last_source() {
        let mirror = |name: &str, from: &[&str], to: &str| Mirror {
            name: name.into(),
            from: from.iter().map(|port| port.to_string()).collect(),
            what: crate::direction::parse("both").unwrap(),
            to: to.into(),
            ..Mirror::default()
        };
        let mut bridge = BridgeConfig::new("br0");
        bridge.mirrors = vec![
            mirror("one", &["a"], "x"),
            mirror("two", &["a", "b"], "x"),
            mirror("to", &["b"], "a"),
            mirror("all", &[], "x"),
        ];
        forget_port(&mut bridge, "a");
        assert_eq!(bridge.mirrors, [mirror("two", &["b"], "x"), mirror("all", &[], "x")]);
    }
}

//! Host ports in the configuration: TAP ports that have the host's addresses while a netdev port has its interface.
//!
//! `mswitch port add --host` without a name means the TAP port `BRIDGE-host`, which is added if the bridge lacks it. In
//! the configuration the name is always written out.

use fabric::PortSettings;
use ports::netdev::Netns;
use ports::{Spec, tap};

use crate::model::{BridgeConfig, PortConfig};
use crate::suggest;

/// Longest name of an interface.
const MAX_NAME: usize = 15;

/// Reasons for refusing a host port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HostPortError {
    /// The bridge has no such port.
    #[error("host: the bridge has no port `{0}`; {1}")]
    NoPort(String, String),
    /// It is not a TAP port.
    #[error("host: `{0}` is a {1} port; only a TAP port can have the host's addresses")]
    Type(String, &'static str),
    /// It is in another namespace.
    #[error("host: port `{host}` is in {there}, this port in {here}; give both ports the same `netns`")]
    Namespace {
        /// The host port.
        host: String,
        /// Its namespace.
        there: String,
        /// The port's namespace.
        here: String,
    },
    /// Another port uses it.
    #[error("host: port `{0}` has the addresses of port `{1}`; name another TAP port")]
    Shared(String, String),
    /// The name of the host port that `--host` stands for is too long for an interface.
    #[error("host: `{0}` is too long for the name of an interface; add a TAP port and name it")]
    Long(String),
}

/// Returns the name of a port's host port.
pub(crate) fn of(port: &PortConfig) -> Option<&str> {
    match &port.spec {
        Spec::Netdev(options) => options.host.as_deref(),
        _ => None,
    }
}

/// Returns the port of a bridge that uses `name` as its host port.
pub(crate) fn user<'a>(bridge: &'a BridgeConfig, name: &str) -> Option<&'a PortConfig> {
    bridge.ports.iter().find(|port| of(port) == Some(name))
}

/// Writes out the name of a host port that is given without one. Returns the host port if the bridge lacks it.
pub(crate) fn resolve(
    bridge: &BridgeConfig,
    port: &mut PortConfig,
) -> Result<Option<PortConfig>, HostPortError> {
    let Spec::Netdev(options) = &mut port.spec else { return Ok(None) };
    if options.host.as_deref() != Some("") {
        return Ok(None);
    }
    let name = format!("{}-host", bridge.name);
    options.host = Some(name.clone());
    if bridge.port(&name).is_some() {
        return Ok(None);
    }
    if name.len() > MAX_NAME {
        return Err(HostPortError::Long(name));
    }
    let spec = Spec::Tap(tap::Options { netns: options.netns.clone(), ..tap::Options::default() });
    // In the same VLANs, so that the host reaches what it has reached before.
    let settings = PortSettings { vlan: port.settings.vlan.clone(), ..PortSettings::new(&name) };
    Ok(Some(PortConfig::new(settings, spec)))
}

/// Checks the host port of a port that the bridge has.
pub(crate) fn check(bridge: &BridgeConfig, port: &PortConfig) -> Result<(), HostPortError> {
    let Spec::Netdev(options) = &port.spec else { return Ok(()) };
    let Some(host) = options.host.as_deref() else { return Ok(()) };
    let Some(found) = bridge.port(host) else {
        let is_tap = |port: &&PortConfig| matches!(port.spec, Spec::Tap(_));
        let taps: Vec<&str> =
            bridge.ports.iter().filter(is_tap).map(|port| port.settings.name.as_str()).collect();
        let instead = match taps.is_empty() {
            true => "add a TAP port of this name".to_owned(),
            false => suggest::instead(host, &taps),
        };
        return Err(HostPortError::NoPort(host.to_owned(), instead));
    };
    let Spec::Tap(tap) = &found.spec else {
        return Err(HostPortError::Type(host.to_owned(), found.spec.type_name()));
    };
    if tap.netns != options.netns {
        let place = |netns: &Option<Netns>| match netns {
            Some(netns) => format!("namespace `{netns}`"),
            None => "the switch's namespace".to_owned(),
        };
        let (there, here) = (place(&tap.netns), place(&options.netns));
        return Err(HostPortError::Namespace { host: host.to_owned(), there, here });
    }
    let others = bridge.ports.iter().take_while(|other| other.settings.name != port.settings.name);
    match others.filter(|other| of(other) == Some(host)).last() {
        Some(other) => Err(HostPortError::Shared(host.to_owned(), other.settings.name.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;

    fn port(name: &str, kind: &str, more: &[(&str, &str)]) -> PortConfig {
        let more = more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        PortConfig::new(PortSettings::new(name), options::from_text(kind, &more).unwrap())
    }

    #[test]
    fn without_a_name_it_is_the_bridges_own() {
        let mut bridge = BridgeConfig::new("br0");
        let mut uplink = port("eth0", "netdev", &[("host", ""), ("netns", "blue")]);
        uplink.settings.vlan = crate::vlan::parse("access:10").unwrap();
        let host = resolve(&bridge, &mut uplink).unwrap().unwrap();
        assert_eq!((host.settings.name.as_str(), of(&uplink)), ("br0-host", Some("br0-host")));
        assert_eq!(host.settings.vlan, uplink.settings.vlan);
        bridge.ports = vec![uplink.clone(), host];
        assert_eq!(check(&bridge, &uplink), Ok(()));
        let mut again = port("eth0", "netdev", &[("host", "")]);
        assert_eq!(resolve(&bridge, &mut again), Ok(None), "it exists");
        let mut named = port("eth0", "netdev", &[("host", "x")]);
        assert_eq!(resolve(&bridge, &mut named), Ok(None));
        assert_eq!(of(&named), Some("x"));
        let long =
            resolve(&BridgeConfig::new("downstairs-bridge"), &mut port("a", "netdev", &[("host", "")]));
        assert_eq!(
            long.unwrap_err().to_string(),
            "host: `downstairs-bridge-host` is too long for the name of an interface; add a TAP port and name it"
        );
    }

    #[test]
    fn mistakes_name_the_remedy() {
        let mut bridge = BridgeConfig::new("br0");
        let refused = |bridge: &BridgeConfig, host: &str| {
            check(bridge, &port("eth0", "netdev", &[("host", host)])).unwrap_err().to_string()
        };
        assert_eq!(
            refused(&bridge, "host"),
            "host: the bridge has no port `host`; add a TAP port of this name"
        );
        bridge.ports = vec![
            port("hots", "tap", &[]),
            port("far", "tap", &[("netns", "blue")]),
            port("up", "patch", &[("peer", "br1/down")]),
            port("eth1", "netdev", &[("host", "hots")]),
        ];
        assert_eq!(
            refused(&bridge, "host"),
            "host: the bridge has no port `host`; did you mean `hots`? (expected `hots` or `far`)"
        );
        assert_eq!(
            refused(&bridge, "up"),
            "host: `up` is a patch port; only a TAP port can have the host's addresses"
        );
        assert_eq!(
            refused(&bridge, "far"),
            "host: port `far` is in namespace `blue`, this port in the switch's namespace; give both ports the same `netns`"
        );
        assert_eq!(
            refused(&bridge, "hots"),
            "host: port `hots` has the addresses of port `eth1`; name another TAP port"
        );
        assert_eq!(user(&bridge, "hots").unwrap().settings.name, "eth1");
    }
}

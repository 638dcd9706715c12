//! Options of a patch port.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::OpenError;

/// Options of a patch port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Options {
    /// The patch port at the other end, as `BRIDGE/PORT`, which must name this port as its peer.
    #[schemars(with = "String")]
    pub peer: Peer,
}

impl Options {
    /// Checks everything that can be checked without a switch.
    pub fn check(&self) -> Result<(), OpenError> {
        Ok(())
    }
}

/// A port by the names of its bridge and its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Peer {
    /// The bridge.
    pub bridge: String,
    /// The port's name.
    pub port: String,
}

impl FromStr for Peer {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        match text.split_once('/') {
            Some((bridge, port)) if !bridge.is_empty() && !port.is_empty() && !port.contains('/') => {
                Ok(Self { bridge: bridge.into(), port: port.into() })
            }
            _ => Err(OpenError(format!(
                "`{text}` is not a port of a bridge: BRIDGE/PORT is expected, such as br1/uplink"
            ))),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.bridge, self.port)
    }
}

impl TryFrom<String> for Peer {
    type Error = OpenError;

    fn try_from(text: String) -> Result<Self, OpenError> {
        text.parse()
    }
}

impl From<Peer> for String {
    fn from(peer: Peer) -> Self {
        peer.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_bridge_and_a_port() {
        let options: Options = toml::from_str("peer = \"br1/up.0\"").unwrap();
        assert_eq!((options.peer.bridge.as_str(), options.peer.port.as_str()), ("br1", "up.0"));
        assert_eq!(toml::to_string(&options).unwrap(), "peer = \"br1/up.0\"\n");
        for wrong in ["", "br1", "br1/", "/up", "br1/a/b"] {
            let error = toml::from_str::<Options>(&format!("peer = \"{wrong}\"")).unwrap_err();
            let expected = format!("`{wrong}` is not a port of a bridge: BRIDGE/PORT is expected");
            assert!(error.message().starts_with(&expected), "{error}");
        }
        assert_eq!(toml::from_str::<Options>("").unwrap_err().message(), "missing field `peer`");
    }
}

//! Options of a netdev port, and their checks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::netns::Netns;
use crate::{OpenError, interface_name};

/// Largest number of queues: sockets of a fanout group (the kernel's `PACKET_FANOUT_MAX` before Linux 5.19).
const MAX_QUEUES: u16 = 256;

/// Options of a netdev port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Options {
    /// Name of an existing interface; the port's name if not given. At most 15 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Network namespace of the interface; the switch's own if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub netns: Option<Netns>,
    /// TAP port of the same bridge, in the same namespace. While the switch has the interface, that port has the host's
    /// addresses, routes and neighbours of the interface; afterwards the interface has them again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Way to exchange packets with the interface; `auto` chooses, and `mswitch port show` shows the choice.
    pub driver: Driver,
    /// Queues in each direction of `af-packet`, 1 to 256. `af-xdp` has one for each receive queue of the interface.
    pub queues: u16,
    /// With `af-xdp`, the worker polls the interface itself instead of waiting for interrupts, as long as packets come.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub busy_poll: bool,
}

/// Way to exchange packets with an interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// The switch chooses.
    #[default]
    Auto,
    /// Packet sockets: any interface, large segments.
    AfPacket,
    /// AF_XDP sockets: packets as they come from the wire, past the kernel's stack.
    AfXdp,
}

impl std::fmt::Display for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Driver::Auto => "auto",
            Driver::AfPacket => "af-packet",
            Driver::AfXdp => "af-xdp",
        })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { interface: None, netns: None, host: None, driver: Driver::Auto, queues: 1, busy_poll: false }
    }
}

impl Options {
    /// Refuses values that no port can have.
    pub fn check(&self) -> Result<(), OpenError> {
        interface_name::check(self.interface.as_deref())?;
        if !(1..=MAX_QUEUES).contains(&self.queues) {
            return Err(OpenError(format!(
                "queues = {}: a netdev port has 1 to {MAX_QUEUES} queues",
                self.queues
            )));
        }
        if self.host.as_deref() == Some("") {
            return Err(OpenError(
                "host: it is empty; expected the name of a TAP port of the bridge".to_owned(),
            ));
        }
        Ok(())
    }

    /// Returns the interface's name for a port called `port`.
    pub(super) fn interface_name(&self, port: &str) -> Result<String, OpenError> {
        interface_name::of_port(self.interface.as_deref(), port)
    }
}

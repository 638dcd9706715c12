//! Netdev ports: interfaces that exist, such as network cards and veth, in any network namespace.
//!
//! A driver (`driver`) exchanges packets with the interface. While a port has an interface, a shield (`shield`) keeps
//! its packets from the host's own stack, and other ports from the interface. The link (`link`) follows the interface
//! through the namespace's notifications (`links`): it attaches the port to the switch while the interface can carry
//! traffic, and waits for an interface that is missing.
//!
//! With the option `host`, the host's addresses, routes and rules are at a host port meanwhile (`handover`).
//!
//! Invariants: nothing at the interface outlives the port or the process; the switch does not change its administrative
//! state, and its addresses only with `host`; a port that is closed attaches nothing any more.

mod af_packet;
mod af_xdp;
mod dhcp_rule;
mod driver;
mod ethtool;
mod handover;
mod link;
mod links;
mod options;
mod recovery;
mod shield;

use std::sync::Arc;

use fabric::switch::PortRef;

use crate::bounded::within;
use crate::guard::CLOSING;
use crate::host_ports::GIVE_BACK;
pub use crate::netns::Netns;
use crate::{Environment, OpenError, Port, Spec, Status};
use link::Inner;
pub(crate) use links::MtuWatch;
pub use links::Namespaces;
pub use options::{Driver, Options};
pub use recovery::recover;

/// Name of the detail with the packets that the kernel dropped before the switch could take them.
pub const KERNEL_DROPS: &str = "kernel-drops";

/// Attaches the interface to its port of the switch, or waits for it if it is missing or down.
pub fn open(options: &Options, at: PortRef, env: &Environment) -> Result<Box<dyn Port>, OpenError> {
    options.check()?;
    let settings = env.switch.settings(at).map_err(|error| OpenError(error.to_string()))?;
    let name = options.interface_name(&settings.name)?;
    let namespace = env.namespaces.get(options.netns.as_ref(), &env.runtime)?;
    let bridge = env.switch.bridge_name(at.bridge).unwrap_or_default();
    let owner = format!("port {} of bridge {bridge}", settings.name);
    let inner = Inner::open(namespace, name, owner, options.clone(), at, env)?;
    Ok(Box::new(NetdevPort(inner)))
}

struct NetdevPort(Arc<Inner>);

impl Port for NetdevPort {
    fn status(&self) -> Status {
        self.0.status()
    }

    fn speed(&self) -> Option<u32> {
        self.0.speed()
    }

    fn reconfigure(&self, spec: &Spec) -> Result<bool, OpenError> {
        match spec {
            Spec::Netdev(wanted) => self.0.reconfigure(wanted),
            _ => Ok(false),
        }
    }

    fn lost(&self) -> Option<String> {
        self.0.lost()
    }

    fn begin_close(&self) {
        self.0.begin_close();
    }

    fn close(&self) {
        if self.0.is_closed() {
            return;
        }
        let port = self.0.clone();
        // The kernel waits until no packet is under way in a socket.
        let limit = if port.has_host() { GIVE_BACK } else { CLOSING };
        if let Err(error) = within(limit, "mswitch-netdev", move || port.close()) {
            tracing::warn!(interface = self.0.name(), "detaching the interface: {error}");
        }
    }
}

impl Drop for NetdevPort {
    fn drop(&mut self) {
        self.close();
    }
}

//! memif ports: shared-memory interfaces of other processes, as server and as client.
//!
//! `options` holds the user's options, `sockets` listens and shakes hands, `dialer` connects to other servers, `link`
//! is an established connection (the same for both), `rings` are the queues of the data plane.

mod dialer;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod link;
mod options;
mod rings;
mod sockets;

use std::sync::Arc;

use fabric::switch::PortRef;

pub use options::{Options, Role};
pub use sockets::Sockets;

use crate::{Environment, OpenError, Port};

/// Opens a memif port.
pub fn open(options: &Options, at: PortRef, env: &Environment) -> Result<Box<dyn Port>, OpenError> {
    let settings = options.checked()?;
    let port = Arc::new(link::PortState::new(at, env.switch.clone(), settings, env.alarm.clone()));
    match options.role {
        Role::Server => sockets::open(options, port, env),
        Role::Client => Ok(dialer::open(port, env)),
    }
}

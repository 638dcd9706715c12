//! Notifications to the service manager: ready, stopping (sd_notify(3)).
//!
//! `NOTIFY_SOCKET` names the service manager's socket. Without it, no notification is sent.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A state of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The control socket answers and the configuration is applied.
    Ready,
    /// The daemon is shutting down.
    Stopping,
}

/// Notifies the service manager, if there is one. A failure is logged and otherwise ignored.
pub fn send(state: State) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let text = match state {
        State::Ready => "READY=1",
        State::Stopping => "STOPPING=1",
    };
    let sent = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        // The daemon does not wait for a service manager that does not read.
        socket.set_nonblocking(true)?;
        socket.send_to_addr(text.as_bytes(), &address)
    });
    if let Err(error) = sent {
        tracing::warn!(%error, "cannot notify the service manager of {text}");
    }
}

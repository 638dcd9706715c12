//! What the service manager is told: that the daemon is ready, that it stops (sd_notify(3)).
//!
//! Whoever started the daemon names a socket in `NOTIFY_SOCKET`, or nobody is told anything.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// What there is to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The control socket answers and the configuration is applied.
    Ready,
    /// Asked to stop.
    Stopping,
}

/// Tells the service manager, if there is one; that it does not listen is its own affair.
pub fn tell(state: State) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let text = match state {
        State::Ready => "READY=1",
        State::Stopping => "STOPPING=1",
    };
    let told = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        // Not even a manager that does not read makes the daemon wait.
        socket.set_nonblocking(true)?;
        socket.send_to_addr(text.as_bytes(), &address)
    });
    if let Err(error) = told {
        tracing::warn!(%error, "cannot tell the service manager: {text}");
    }
}

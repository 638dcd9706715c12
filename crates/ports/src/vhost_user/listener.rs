//! The server role: the switch listens, and serves one front-end after another.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use clientmem::ClientFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;
use vhost_user::socket::Listener;

use super::link::PortState;
use crate::guard::client;
use crate::log_limit::Admitted;
use crate::pace::CONNECTION;
use crate::watch::watch;
use crate::{Access, Environment, OpenError};

/// Time for which a connection waits for the present front-end to leave, before it is refused.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause after a failure to accept, for lack of descriptors or memory that other code must free.
const PAUSE: Duration = Duration::from_millis(100);

/// Makes the socket and waits for front-ends.
pub(super) fn start(
    access: Access,
    port: &Arc<PortState>,
    env: &Environment,
) -> Result<JoinHandle<()>, OpenError> {
    let path = &port.options.socket;
    let wrong = |what: &str, error| OpenError(format!("path: cannot {what} {}: {error}", path.display()));
    let listener =
        Listener::bind_with(path, port.guard.closer.clone()).map_err(|error| wrong("listen at", error))?;
    access.apply(path).map_err(|error| wrong("set mode, owner or group of", error))?;
    let _runtime = env.runtime.enter();
    let listener = watch(listener).map_err(|error| wrong("wait for connections at", error))?;
    Ok(env.runtime.spawn(run(listener, port.clone())))
}

async fn run(listener: AsyncFd<Listener>, port: Arc<PortState>) {
    loop {
        let control = tokio::select! {
            control = accept(&listener, &port) => control,
            () = port.closing() => return,
        };
        let admitted = tokio::select! {
            admitted = port.guard.faults.admit() => admitted,
            () = port.closing() => return,
        };
        if let Err(reason) = admitted {
            drop(control);
            if let Some(Admitted { suppressed }) = port.log.admit() {
                tracing::info!(
                    bridge = port.bridge(),
                    port = port.name(),
                    reason,
                    suppressed,
                    "vhost-user front-end refused"
                );
            }
            continue;
        }
        tokio::select! {
            () = port.serve(control) => {}
            never = refuse_others(&listener, &port) => match never {},
        }
    }
}

/// Waits for a connection.
async fn accept(listener: &AsyncFd<Listener>, port: &PortState) -> AsyncFd<ClientFd> {
    loop {
        let Ok(mut ready) = listener.readable().await else {
            // The runtime is shutting down.
            return std::future::pending().await;
        };
        match listener.get_ref().accept().and_then(watch) {
            Ok(control) => {
                port.guard.pace.spend(CONNECTION);
                port.guard.room(&client(control.get_ref(), "")).await;
                return control;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => ready.clear_ready(),
            Err(error) => {
                if let Some(Admitted { suppressed }) = port.log.admit() {
                    tracing::warn!(bridge = port.bridge(), port = port.name(), %error, suppressed, "cannot accept a vhost-user connection");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Refuses connections that come while a front-end has the port. One that comes as the present one leaves is served in
/// time.
async fn refuse_others(listener: &AsyncFd<Listener>, port: &PortState) -> std::convert::Infallible {
    loop {
        let Ok(mut ready) = listener.readable().await else {
            return std::future::pending().await;
        };
        // The connection that was announced may have been served since.
        if !is_waiting(listener.get_ref().as_fd()) {
            ready.clear_ready();
            continue;
        }
        // Nothing is taken from the backlog before the time is over: a connection that waits there may still be served.
        tokio::time::sleep(PATIENCE).await;
        drop(accept(listener, port).await);
        if let Some(Admitted { suppressed }) = port.log.admit() {
            let reason = "another front-end is connected";
            tracing::info!(
                bridge = port.bridge(),
                port = port.name(),
                reason,
                suppressed,
                "vhost-user front-end refused"
            );
        }
    }
}

/// Returns whether a connection waits to be accepted.
fn is_waiting(listener: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(listener, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

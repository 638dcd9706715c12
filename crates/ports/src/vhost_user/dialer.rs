//! The client role: the switch connects to a listening front-end, and reconnects when it is gone.

use std::sync::Arc;
use std::time::Duration;

use vhost_user::socket::dial;

use super::link::PortState;
use crate::watch::watch;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn run(port: Arc<PortState>) {
    loop {
        let dialed = dial(&port.options.socket).map(|socket| port.guard.closer.connection(socket));
        match dialed.and_then(watch) {
            Ok(control) => port.serve(control).await,
            Err(error) => {
                port.set_down(format!("cannot connect to {}: {error}", port.options.socket.display()));
            }
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = port.closing() => return,
        }
        tokio::select! {
            () = port.guard.faults.hold_off_ends() => {}
            () = port.closing() => return,
        }
    }
}

//! Connections that the agent makes: tried again and again, with back-off.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, sleep, timeout};

use crate::backoff::Backoff;
use crate::connection::{End, Stop, Stream, serve, stopped};
use crate::settings::Settings;
use crate::shared::SharedSwitch;
use crate::state::TargetState;
use crate::target::Target;
use crate::timers::Policy;

/// A target's connection, again and again, until `stop`.
pub(crate) async fn run(
    target: Target,
    shared: Arc<SharedSwitch>,
    settings: Arc<Settings>,
    state: Arc<TargetState>,
    mut stop: Stop,
) {
    let mut backoff = Backoff::new(settings.backoff_min, settings.backoff_max);
    let policy = Policy::active(&settings);
    loop {
        let dialed = tokio::select! {
            dialed = timeout(settings.limits.connect, dial(&target)) => dialed,
            () = stopped(&mut stop) => return,
        };
        let mut lasted = None;
        let error = match dialed {
            Ok(Ok(stream)) => {
                let start = Instant::now();
                let end = converse(&shared, stream, target.to_string(), &policy, &state, stop.clone()).await;
                lasted = Some(start.elapsed());
                end.to_string()
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no connection within {:?}", settings.limits.connect),
        };
        tracing::debug!(%target, error, "disconnected from controller");
        state.failed(error);
        let delay: Duration = backoff.after(lasted);
        tokio::select! {
            () = sleep(delay) => {}
            () = stopped(&mut stop) => return,
        }
    }
}

/// Serves a stream as a connection of the switch, shown as `peer`.
pub(crate) async fn converse(
    shared: &Arc<SharedSwitch>,
    stream: impl Stream,
    peer: String,
    policy: &Policy,
    state: &TargetState,
    stop: Stop,
) -> End {
    let Some(connected) = shared.connect(policy.kind) else { return End::TooMany };
    state.connected(connected.id(), peer);
    let end = serve(&connected, stream, policy, stop).await;
    state.disconnected(connected.id());
    end
}

async fn dial(target: &Target) -> io::Result<Box<dyn Stream>> {
    match target {
        Target::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream))
        }
        Target::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        Target::Ptcp { .. } | Target::Punix(_) => Err(io::ErrorKind::InvalidInput.into()),
    }
}

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
use crate::tls::{self, TlsError};

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
            dialed = timeout(settings.limits.connect, dial(&target, &settings)) => dialed,
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
    let Some(connected) = shared.connect(policy.kind, &peer) else { return End::TooMany };
    state.connected(connected.id(), peer);
    let end = serve(&connected, stream, policy, stop).await;
    state.disconnected(connected.id());
    end
}

async fn dial(target: &Target, settings: &Settings) -> io::Result<Box<dyn Stream>> {
    match target {
        Target::Tcp { host, port } => Ok(Box::new(dial_tcp(host, *port).await?)),
        Target::Ssl { host, port } => {
            let files = settings.tls.clone();
            let connector = blocking(move || files.ok_or(TlsError::NoFiles)?.connector()).await?;
            let stream = dial_tcp(host, *port).await?;
            Ok(Box::new(connector.connect(tls::unused_name(), stream).await?))
        }
        Target::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        Target::Ptcp { .. } | Target::Pssl { .. } | Target::Punix(_) => {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }
}

async fn dial_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Reads files away from the runtime's threads.
pub(crate) async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, TlsError> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(read).await?.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use ofswitch::Switch;
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixListener;
    use tokio::sync::watch;

    use super::*;

    #[tokio::test]
    async fn a_controller_that_fails_at_once_is_called_ever_more_rarely() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c");
        let listener = UnixListener::bind(&path).unwrap();
        let shared = SharedSwitch::new(Switch::new(ofswitch::Settings::default()), |_| ());
        let settings = Settings {
            backoff_min: Duration::from_millis(40),
            backoff_max: Duration::from_millis(160),
            ..Settings::default()
        };
        let (stop, stopping) = watch::channel(());
        let state = Arc::new(TargetState::new());
        let running = tokio::spawn(run(Target::Unix(path), shared, Arc::new(settings), state, stopping));
        let mut calls = vec![];
        for _ in 0..5 {
            let (mut stream, _) = listener.accept().await.unwrap();
            calls.push(Instant::now());
            // It says hello, and goes.
            stream.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).await.unwrap();
        }
        // A delay starts after the call before it, so that none is shorter than it should be.
        for (pair, least) in calls.windows(2).zip([40, 80, 160, 160]) {
            let delay = pair[1] - pair[0];
            assert!(delay >= Duration::from_millis(least), "{delay:?} instead of {least} ms");
        }
        drop(stop);
        running.await.unwrap();
    }
}

//! The daemon's life: takes its socket, starts the workers, applies the configuration, serves, and leaves nothing
//! behind.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fabric::worker::Pace;
use fabric::{Switch, SwitchOptions};
use ports::Environment;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::UnixListenerStream;

use crate::limits::{self, LimitError};
use crate::model::{Config, DEFAULT_SOCKET};
use crate::proto::switch_server::SwitchServer;
use crate::server::Server;
use crate::socket::{ControlSocket, SocketError};
use crate::state::{Refusal, State};

/// How often logics learn that time passes.
const TICK: Duration = Duration::from_secs(5);

/// How long callers may take to hear their last answer.
const GOODBYE: Duration = Duration::from_millis(500);

/// Why the daemon does not run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The control socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A bridge or port.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The limit of open files.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The workers.
    #[error("cannot start the workers: {0}")]
    Workers(std::io::Error),
    /// Anything else of the system.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What happened.
        error: std::io::Error,
    },
    /// The gRPC server.
    #[error("the control socket failed: {0}")]
    Serve(#[from] tonic::transport::Error),
}

/// Runs a daemon until SIGTERM, SIGINT or SIGHUP. `file` is where `config` came from.
pub fn run(config: &Config, file: Option<PathBuf>) -> Result<(), DaemonError> {
    let ports = config.bridges.iter().map(|bridge| bridge.ports.len()).sum();
    limits::raise_for(ports)?;
    let path = config.daemon.socket();
    // Held to the end: the file goes when this function returns.
    let (socket, listener) = ControlSocket::bind(path, path == std::path::Path::new(DEFAULT_SOCKET))?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("mswitch-control")
        .enable_all()
        .build()
        .map_err(|error| DaemonError::Io { what: "cannot start the control threads", error })?;
    let signals = {
        let _entered = runtime.enter();
        Signals::new().map_err(|error| DaemonError::Io { what: "cannot listen to signals", error })?
    };
    let switch = Arc::new(Switch::start(&switch_options(config)).map_err(DaemonError::Workers)?);
    let environment =
        Environment { switch, runtime: runtime.handle().clone(), sockets: ports::memif::Sockets::default() };
    let state = Arc::new(State::new(environment));
    let served = apply(&state, config).and_then(|()| {
        tracing::info!(
            socket = %socket.path().display(),
            workers = config.daemon.workers.len().max(1),
            bridges = config.bridges.len(),
            ports,
            "mswitch {} is ready",
            env!("CARGO_PKG_VERSION")
        );
        serve(&runtime, &state, listener, signals, file)
    });
    // Ports first, while their tasks still run; then tasks; then, with the last reference, the workers.
    state.clear();
    runtime.shutdown_timeout(GOODBYE);
    drop(state);
    drop(socket);
    served
}

fn switch_options(config: &Config) -> SwitchOptions {
    let workers = match config.daemon.workers.as_slice() {
        [] => vec![None],
        cpus => cpus.iter().copied().map(Some).collect(),
    };
    let pace = Pace { poll_forever: config.daemon.poll, ..Pace::default() };
    SwitchOptions { workers, pace, ..SwitchOptions::default() }
}

fn apply(state: &State, config: &Config) -> Result<(), DaemonError> {
    for bridge in &config.bridges {
        state.add_bridge(bridge)?;
    }
    Ok(())
}

fn serve(
    runtime: &Runtime,
    state: &Arc<State>,
    listener: UnixListener,
    mut signals: Signals,
    file: Option<PathBuf>,
) -> Result<(), DaemonError> {
    let server = Server::new(state.clone(), file);
    runtime.block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener)
            .map_err(|error| DaemonError::Io { what: "cannot serve the control socket", error })?;
        let ageing = tokio::spawn(tick(state.clone()));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = tonic::transport::Server::builder()
            .add_service(SwitchServer::new(server))
            .serve_with_incoming_shutdown(UnixListenerStream::new(listener), async {
                // An error means that the sender is gone, which is as good a reason to stop.
                let _ = stopped.await;
            });
        tokio::pin!(serving);
        let result = tokio::select! {
            result = &mut serving => result,
            name = signals.any() => {
                tracing::info!(signal = name, "stopping");
                let _ = stop.send(());
                // A caller that never hangs up does not keep the daemon.
                tokio::time::timeout(GOODBYE, &mut serving).await.unwrap_or(Ok(()))
            }
        };
        ageing.abort();
        Ok(result?)
    })
}

async fn tick(state: Arc<State>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let state = state.clone();
        // The table may be large and its lock busy.
        if tokio::task::spawn_blocking(move || state.tick()).await.is_err() {
            tracing::error!("a logic failed while ageing; this is a bug in mswitch");
        }
    }
}

/// What ends a daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn any(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}

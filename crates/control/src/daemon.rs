//! The daemon's life: takes its socket, starts the workers, applies the configuration, serves, and leaves nothing
//! behind.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fabric::switch::LinkChange;
use fabric::worker::Pace;
use fabric::{Switch, SwitchOptions};
use ports::bounded::within;
use ports::{Environment, OpenError};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt};

use crate::author::Author;
use crate::desired::Desired;
use crate::limits::{self, LimitError};
use crate::metrics::{Endpoint, EndpointError};
use crate::model::{Config, DEFAULT_SOCKET, DaemonConfig};
use crate::notify;
use crate::proto::switch_server::SwitchServer;
use crate::reconcile::Effort;
use crate::refusal::Refusal;
use crate::server::Server;
use crate::socket::{ControlSocket, SocketError};
use crate::state::{State, find_port};
use crate::{convert, file};

/// How often logics learn that time passes.
const TICK: Duration = Duration::from_secs(5);

/// How long callers may take to hear their last answer.
const GOODBYE: Duration = Duration::from_millis(500);

/// How long the daemon may take to end, and to close its ports decently, after it was told to.
const ENDING: Duration = Duration::from_secs(4);

/// Threads that clients and files may hold up at a time: at most one for each port, and some for those who ask.
const HELD_UP: usize = 4096;

/// Changes of links that may wait to be told.
const LINKS: usize = 4096;

/// The least time between looks for faults that were not told.
const FAULTS: Duration = Duration::from_millis(100);

/// How long to wait before accepting again when that failed: descriptors must be freed first.
const BREATH: Duration = Duration::from_millis(100);

/// Why the daemon does not run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The control socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Who may use the control socket.
    #[error("the control socket: {0}; see owner, group and mode in `[daemon]`")]
    Access(OpenError),
    /// The address for metrics.
    #[error(transparent)]
    Metrics(#[from] EndpointError),
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

/// Runs a daemon until SIGTERM or SIGINT. `config` is what `file` says, `settings` how the daemon runs: as there, unless
/// the command line said otherwise. SIGHUP applies the file anew.
pub fn run(config: &Config, settings: &DaemonConfig, file: Option<PathBuf>) -> Result<(), DaemonError> {
    let ports = config.ports();
    limits::raise_for(ports)?;
    let path = settings.socket();
    // Held to the end: the file goes when this function returns.
    let (socket, listener) = ControlSocket::bind(path, path == std::path::Path::new(DEFAULT_SOCKET))?;
    settings.access().and_then(|access| socket.restrict(&access)).map_err(DaemonError::Access)?;
    let metrics = settings.metrics.map(Endpoint::bind).transpose()?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(HELD_UP)
        .thread_name("mswitch-control")
        .enable_all()
        .build()
        .map_err(|error| DaemonError::Io { what: "cannot start the control threads", error })?;
    let signals = {
        let _entered = runtime.enter();
        Signals::new().map_err(|error| DaemonError::Io { what: "cannot listen to signals", error })?
    };
    let switch = Arc::new(Switch::start(&switch_options(settings)).map_err(DaemonError::Workers)?);
    let (changes, links) = tokio::sync::mpsc::channel(LINKS);
    let lost = Arc::new(AtomicU64::new(0));
    let links = Links { changes: links, lost: lost.clone() };
    // Clients decide how many there are.
    switch.on_link(Box::new(move |change| {
        if changes.try_send(change).is_err() {
            lost.fetch_add(1, Relaxed);
        }
    }));
    let overran = Arc::new(Notify::new());
    let bell = overran.clone();
    switch.on_overrun(Box::new(move |overruns| {
        modules::overran(&overruns.iter().map(|overrun| overrun.thread).collect::<Vec<_>>());
        bell.notify_one();
    }));
    let environment = Environment::new(switch, runtime.handle().clone());
    let state = Arc::new(State::new(environment));
    if let Some(metrics) = metrics {
        let address = metrics.address();
        tracing::info!(url = format!("http://{address}/metrics"), "serving metrics");
        if !address.is_loopback() {
            tracing::warn!(%address, "metrics can be read by everyone who reaches this address");
        }
        runtime.spawn(metrics.serve(state.clone()));
    }
    let desired = Arc::new(Desired::new(state.clone(), config.daemon.clone(), path.into()));
    let served =
        desired.replace(config.clone(), &Author::Start).map_err(DaemonError::from).and_then(|applied| {
            for (object, trouble) in applied.troubles() {
                tracing::warn!("{object}: {trouble}; it is tried again until it works");
            }
            tracing::info!(
                socket = %socket.path().display(),
                workers = settings.workers.len().max(1),
                bridges = config.bridges.len(),
                ports,
                "mswitch {} is ready",
                env!("CARGO_PKG_VERSION")
            );
            notify::tell(notify::State::Ready);
            serve(&runtime, &desired, listener, links, overran, signals, file.clone())
        });
    for stuck in state.stuck() {
        tracing::warn!("{stuck}");
    }
    end_in_time();
    if let Some(file) = file {
        let desired = desired.clone();
        // Reading the file may hang.
        let _ = within(GOODBYE, "mswitch-unsaved", move || tell_unsaved(&desired, &file));
    }
    state.begin_close();
    // Ports first, while their tasks still run; then tasks; then, with the last reference, the workers.
    state.reconcile(&Config::default(), Effort::Changes);
    runtime.shutdown_timeout(GOODBYE);
    drop((state, desired));
    drop(socket);
    served
}

/// Ends the process when it does not end by itself: a client may hold up a worker, or a file a thread of a port.
fn end_in_time() {
    let watch = std::thread::Builder::new().name("mswitch-end".into()).spawn(|| {
        std::thread::sleep(ENDING);
        // Not even a log that nobody reads delays it.
        let _ = within(GOODBYE, "mswitch-end", || {
            let after = ENDING.as_secs();
            tracing::error!(
                "not everything could be closed within {after} s; what is left ends with the process"
            );
        });
        std::process::exit(1);
    });
    if let Err(error) = watch {
        tracing::warn!(%error, "cannot watch over the end of the daemon");
    }
}

fn switch_options(settings: &DaemonConfig) -> SwitchOptions {
    let workers = match settings.workers.as_slice() {
        [] => vec![None],
        cpus => cpus.iter().copied().map(Some).collect(),
    };
    let pace = Pace { poll_forever: settings.poll, ..Pace::default() };
    SwitchOptions { workers, pace, ..SwitchOptions::default() }
}

fn serve(
    runtime: &Runtime,
    desired: &Arc<Desired>,
    listener: UnixListener,
    links: Links,
    overran: Arc<Notify>,
    mut signals: Signals,
    file: Option<PathBuf>,
) -> Result<(), DaemonError> {
    let server = Server::new(desired.clone(), file.clone());
    runtime.block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener)
            .map_err(|error| DaemonError::Io { what: "cannot serve the control socket", error })?;
        let mut tasks = JoinSet::new();
        tasks.spawn(tick(desired.clone()));
        tasks.spawn(desired.clone().keep());
        tasks.spawn(tell_links(desired.clone(), links));
        tasks.spawn(tell_faults(desired.clone()));
        tasks.spawn(tell_stuck(desired.clone(), overran));
        tasks.spawn(desired.events().clone().collect(desired.clone()));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = tonic::transport::Server::builder()
            .add_service(SwitchServer::new(server))
            .serve_with_incoming_shutdown(unhurried(UnixListenerStream::new(listener)), async {
                // An error means that the sender is gone, which is as good a reason to stop.
                let _ = stopped.await;
            });
        tokio::pin!(serving);
        let result = loop {
            tokio::select! {
                result = &mut serving => break result,
                wish = signals.any() => match wish {
                    Wish::Reload => {
                        let (desired, file) = (desired.clone(), file.clone());
                        tasks.spawn_blocking(move || reload(&desired, file.as_deref()));
                    }
                    Wish::Stop(name) => {
                        tracing::info!(signal = name, "stopping");
                        notify::tell(notify::State::Stopping);
                        let _ = stop.send(());
                        // A caller that never hangs up does not keep the daemon.
                        break tokio::time::timeout(GOODBYE, &mut serving).await.unwrap_or(Ok(()));
                    }
                },
            }
        };
        tasks.shutdown().await;
        Ok(result?)
    })
}

/// Reapplies the file and reports the runtime changes that it overrides.
fn reload(desired: &Desired, file: Option<&Path>) {
    let Some(file) = file else {
        tracing::warn!("SIGHUP: the daemon was started without a configuration file; nothing is changed");
        return;
    };
    let applied = file::text_of(file)
        .and_then(|text| desired.read(&text, file))
        .map_err(Refusal::from)
        .and_then(|parsed| {
            let notes = parsed.note_lines(file);
            desired.replace(parsed.config, &Author::Signal("SIGHUP")).map(|applied| (applied, notes))
        });
    let (applied, file_notes) = match applied {
        Ok(applied) => applied,
        Err(refusal) => {
            for line in refusal.to_string().lines() {
                tracing::error!("{line}");
            }
            tracing::error!("{} is not applied; nothing is changed", file.display());
            return;
        }
    };
    for (object, trouble) in applied.troubles() {
        tracing::warn!("{object}: {trouble}; it is tried again until it works");
    }
    for note in applied.notes().iter().chain(&file_notes) {
        tracing::warn!("{note}");
    }
    tracing::info!(differences = applied.differences.len(), "{} is applied", file.display());
}

/// Logs that changes are lost: the daemon ends, and the file does not have them.
fn tell_unsaved(desired: &Desired, file: &Path) {
    match desired.unsaved(file) {
        None | Some(0) => {}
        Some(1) => tracing::warn!("1 change is lost: it is not saved in {}", file.display()),
        Some(many) => tracing::warn!("{many} changes are lost: they are not saved in {}", file.display()),
    }
}

/// Passes on which ports went up and down. A port that lost what it had opened is seen to; clients that come and go as fast
/// as they can cost no look at the others.
async fn tell_links(desired: Arc<Desired>, mut links: Links) {
    while let Some(change) = links.changes.recv().await {
        let lost = links.lost.swap(0, Relaxed);
        if lost > 0 {
            desired.events().links_lost(lost);
        }
        let desired = desired.clone();
        let told = tokio::task::spawn_blocking(move || {
            let (reason, lost) =
                if change.up { (String::new(), false) } else { down(desired.state(), &change) };
            desired.events().link(&change, reason);
            if lost {
                desired.look();
            }
        });
        if told.await.is_err() {
            tracing::error!("an event could not be told; this is a bug in mswitch");
        }
    }
}

/// Tells what clients did wrong, and logs limits that they reached: each port logs the rest itself.
async fn tell_faults(desired: Arc<Desired>) {
    loop {
        desired.state().alarm().rung().await;
        let told = desired.clone();
        let told = tokio::task::spawn_blocking(move || {
            for (bridge, port, summary) in told.state().new_faults() {
                let last = &summary.last;
                // That of a MAC table is logged where it is found.
                if let Some(limit) = last.limit.filter(|limit| limit.option != "port-share") {
                    let (client, reason) = (&last.client, &last.reason);
                    tracing::warn!(bridge, port, client, reason, %limit, "a client reached a limit");
                }
                told.events().fault(bridge, port, summary);
            }
        });
        if told.await.is_err() {
            tracing::error!("a fault could not be told; this is a bug in mswitch");
        }
        tokio::time::sleep(FAULTS).await;
    }
}

/// Logs modules that do not return from a batch, and those that have returned after all, and tells them as events.
async fn tell_stuck(desired: Arc<Desired>, overran: Arc<Notify>) {
    loop {
        overran.notified().await;
        let desired = desired.clone();
        let told = tokio::task::spawn_blocking(move || {
            let (stuck, returned) = desired.state().changes_of_stuck();
            for stuck in &stuck {
                tracing::error!("{stuck}; the bridge's packets are dropped as logic-fault");
                desired.events().stuck(stuck, false);
            }
            for stuck in &returned {
                tracing::info!(module = stuck.module, bridge = stuck.bridge, "the module has returned");
                desired.events().stuck(stuck, true);
            }
        });
        if told.await.is_err() {
            tracing::error!("a stuck module could not be reported; this is a bug in mswitch");
        }
    }
}

/// Connections, with a pause after each that could not be accepted: there may be no descriptors for a while.
fn unhurried<T>(
    connections: impl Stream<Item = std::io::Result<T>>,
) -> impl Stream<Item = std::io::Result<T>> {
    connections.then(async |accepted| {
        if accepted.is_err() {
            tokio::time::sleep(BREATH).await;
        }
        accepted
    })
}

/// Why a port is down, as far as it is known already, and whether it lost what it had opened.
fn down(state: &State, change: &LinkChange) -> (String, bool) {
    let bridges = state.bridges();
    match find_port(&bridges, &change.bridge, &change.port) {
        Ok(port) => {
            let lost = port.open.as_ref().is_some_and(|open| open.lost().is_some());
            (convert::down_reason(port).unwrap_or_default(), lost)
        }
        Err(_) => ("the port was removed".into(), false),
    }
}

async fn tick(desired: Arc<Desired>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let desired = desired.clone();
        // The table may be large and its lock busy.
        if tokio::task::spawn_blocking(move || desired.state().tick()).await.is_err() {
            tracing::error!("a logic failed while ageing; this is a bug in mswitch");
        }
    }
}

/// Changes of links, and how many found no room.
struct Links {
    changes: Receiver<LinkChange>,
    lost: Arc<AtomicU64>,
}

/// What a signal asks for.
enum Wish {
    /// To end; the signal's name.
    Stop(&'static str),
    /// To apply the configuration file.
    Reload,
}

/// What ends a daemon, and what makes it read its file again.
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

    async fn any(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => Wish::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Wish::Stop("SIGINT"),
            _ = self.hangup.recv() => Wish::Reload,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn connections_that_cannot_be_accepted_are_not_tried_at_once() {
        let full = || Err(rustix::io::Errno::MFILE.into());
        let connections = unhurried(tokio_stream::iter([full(), Ok(1), full(), Ok(2)]));
        let begun = Instant::now();
        let accepted: Vec<_> = connections.filter_map(Result::ok).collect().await;
        assert_eq!(accepted, [1, 2]);
        assert!(begun.elapsed() >= 2 * BREATH, "{:?}", begun.elapsed());
    }
}

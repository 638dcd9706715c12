//! Life cycle of the daemon: binds its socket, starts the workers, applies the configuration, serves requests, and
//! cleans up when it stops.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fabric::switch::LinkChange;
use fabric::worker::Pace;
use fabric::{Switch, SwitchOptions};
use ports::bounded::within;
use ports::{Environment, HostPorts, OpenError};
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
use crate::reconcile::Retries;
use crate::refusal::Refusal;
use crate::server::Server;
use crate::socket::{ControlSocket, SocketError};
use crate::state::{State, find_port};
use crate::{convert, file, workers};

/// Interval between ticks of the logics.
const TICK: Duration = Duration::from_secs(5);

/// Time for callers to receive their last reply.
const GRACE_PERIOD: Duration = Duration::from_millis(500);

/// Time limit for a shutdown that closes all ports.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(4);

/// Maximum number of threads for blocking work: clients and files can block one thread per port, and calls need some.
const MAX_BLOCKING_THREADS: usize = 4096;

/// Capacity of the queue of link changes.
const LINK_QUEUE: usize = 4096;

/// Minimum interval between reports of faults.
const FAULT_INTERVAL: Duration = Duration::from_millis(100);

/// Minimum interval between reports of the faults of modules.
const MODULE_FAULT_INTERVAL: Duration = Duration::from_secs(1);

/// Back-off after a failed `accept`: file descriptors must be freed first.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Reasons for failing to run the daemon.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The control socket cannot be bound.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Access to the control socket cannot be restricted.
    #[error("control socket: {0}; check `owner`, `group` and `mode` in `[daemon]`")]
    Access(OpenError),
    /// The address for metrics cannot be bound.
    #[error(transparent)]
    Metrics(#[from] EndpointError),
    /// The configuration is refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The limit of open files is too low.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The workers cannot be started.
    #[error("cannot start the workers: {0}")]
    Workers(std::io::Error),
    /// Any other system error.
    #[error("{operation}: {error}")]
    Io {
        /// The failed operation.
        operation: &'static str,
        /// The cause.
        error: std::io::Error,
    },
    /// The gRPC server failed.
    #[error("the control socket failed: {0}")]
    Serve(#[from] tonic::transport::Error),
}

/// A further source of the desired configuration, which runs beside the control socket on the daemon's runtime. The
/// daemon stops when it ends.
pub type Source = Box<dyn FnOnce(Arc<Desired>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// Runs a daemon until SIGTERM or SIGINT. `config` is the contents of `file`; `settings` are its `[daemon]` settings
/// with the overrides of the command line, whose list of workers stays in effect if `keeps_workers`. SIGHUP reapplies
/// the file.
pub fn run(
    config: &Config,
    settings: &DaemonConfig,
    keeps_workers: bool,
    file: Option<PathBuf>,
) -> Result<(), DaemonError> {
    run_with(config, settings, keeps_workers, file, None)
}

/// [`run`] with a further source of the desired configuration.
pub fn run_with(
    config: &Config,
    settings: &DaemonConfig,
    keeps_workers: bool,
    file: Option<PathBuf>,
    source: Option<Source>,
) -> Result<(), DaemonError> {
    limits::raise_for(config)?;
    let path = settings.socket();
    // Kept until this function returns, which removes the socket's file.
    let (socket, listener) = ControlSocket::bind(path, path == std::path::Path::new(DEFAULT_SOCKET))?;
    settings.access().and_then(|access| socket.restrict(&access)).map_err(DaemonError::Access)?;
    let metrics = settings.metrics.map(Endpoint::bind).transpose()?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_name("mswitch-control")
        .enable_all()
        .build()
        .map_err(|error| DaemonError::Io { operation: "cannot start the control threads", error })?;
    let signals = {
        let _entered = runtime.enter();
        Signals::new()
            .map_err(|error| DaemonError::Io { operation: "cannot install signal handlers", error })?
    };
    let switch = Arc::new(Switch::start(&switch_options(settings)).map_err(DaemonError::Workers)?);
    let (changes, links) = tokio::sync::mpsc::channel(LINK_QUEUE);
    let lost = Arc::new(AtomicU64::new(0));
    let links = Links { changes: links, lost: lost.clone() };
    // The queue is bounded because clients determine the rate of link changes.
    switch.on_link(Box::new(move |change| {
        if changes.try_send(change).is_err() {
            lost.fetch_add(1, Relaxed);
        }
    }));
    let module_news = ModuleNews::default();
    let ModuleNews { overran, failed } = module_news.clone();
    modules::on_fault(Box::new(move || failed.notify_one()));
    switch.on_overrun(Box::new(move |overruns| {
        modules::overran(&overruns.iter().map(|overrun| overrun.thread).collect::<Vec<_>>());
        overran.notify_one();
    }));
    let journals = journals(path);
    let specs = config.bridges.iter().flat_map(|bridge| bridge.ports.iter().map(|port| &port.spec));
    ports::netdev::recover(&journals, specs);
    let environment = Environment {
        hosts: HostPorts::with_journals(&journals),
        ..Environment::new(switch, runtime.handle().clone())
    };
    let access = settings.access().map_err(DaemonError::Access)?;
    let state = Arc::new(State::new(environment).at(path, access));
    if let Some(metrics) = metrics {
        let address = metrics.address();
        tracing::info!(url = format!("http://{address}/metrics"), "serving metrics");
        if !address.is_loopback() {
            tracing::warn!(%address, "metrics are served without authentication: every host that reaches this address can read them");
        }
        runtime.spawn(metrics.serve(state.clone()));
    }
    if keeps_workers {
        state.workers.set_command_line(settings.workers.clone());
    }
    let desired = Arc::new(Desired::new(state.clone(), config.daemon.clone(), path.into()));
    let start = if file.is_some() { Desired::load } else { Desired::replace };
    let served =
        start(&desired, config.clone(), &Author::Start).map_err(DaemonError::from).and_then(|applied| {
            for (object, trouble) in applied.troubles() {
                tracing::warn!("{object}: {trouble}; retrying");
            }
            tracing::info!(
                socket = %socket.path().display(),
                workers = settings.workers.len().max(1),
                bridges = config.bridges.len(),
                ports = config.ports(),
                "mswitch {} is ready",
                env!("CARGO_PKG_VERSION")
            );
            notify::send(notify::State::Ready);
            serve(
                &runtime,
                &desired,
                listener,
                News { links, modules: module_news, signals },
                file.clone(),
                source,
            )
        });
    for stuck in state.stuck() {
        tracing::warn!("{stuck}");
    }
    limit_shutdown();
    if let Some(file) = file {
        let desired = desired.clone();
        // Reading the file may hang.
        let _ = within(GRACE_PERIOD, "mswitch-unsaved", move || report_unsaved(&desired, &file));
    }
    state.begin_close();
    // The ports are closed first, while their tasks still run; then the tasks end; dropping the last reference stops
    // the workers.
    state.reconcile(&Config::default(), Retries::None);
    runtime.shutdown_timeout(GRACE_PERIOD);
    drop((state, desired));
    drop(socket);
    served
}

/// Returns the beginning of the paths of journals of moved addresses: beside the control socket, with its name.
fn journals(socket: &Path) -> PathBuf {
    let mut path = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned()).into_os_string();
    path.push("-host-");
    path.into()
}

/// Exits the process if the shutdown takes too long: a client may block a worker, or a file may block a port's thread.
fn limit_shutdown() {
    let watchdog = std::thread::Builder::new().name("mswitch-exit".into()).spawn(|| {
        std::thread::sleep(SHUTDOWN_LIMIT);
        // A log whose reader has stopped must not delay the exit.
        let _ = within(GRACE_PERIOD, "mswitch-exit", || {
            let limit = SHUTDOWN_LIMIT.as_secs();
            tracing::error!(
                "shutdown did not finish within {limit} s; exiting without closing the remaining ports"
            );
        });
        std::process::exit(1);
    });
    if let Err(error) = watchdog {
        tracing::warn!(%error, "cannot limit the time of the shutdown");
    }
}

fn switch_options(settings: &DaemonConfig) -> SwitchOptions {
    let workers = workers::places(&settings.workers);
    let pace = Pace { poll_forever: settings.poll, ..Pace::default() };
    SwitchOptions { workers, pace, ..SwitchOptions::default() }
}

/// What a running daemon waits for.
struct News {
    links: Links,
    modules: ModuleNews,
    signals: Signals,
}

fn serve(
    runtime: &Runtime,
    desired: &Arc<Desired>,
    listener: UnixListener,
    news: News,
    file: Option<PathBuf>,
    source: Option<Source>,
) -> Result<(), DaemonError> {
    let News { links, modules: module_news, mut signals } = news;
    let server = Server::new(desired.clone(), file.clone());
    runtime.block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener)
            .map_err(|error| DaemonError::Io { operation: "cannot serve the control socket", error })?;
        let mut tasks = JoinSet::new();
        tasks.spawn(tick(desired.clone()));
        tasks.spawn(desired.clone().maintain());
        tasks.spawn(report_links(desired.clone(), links));
        tasks.spawn(report_faults(desired.clone()));
        tasks.spawn(report_stuck(desired.clone(), module_news.overran));
        tasks.spawn(report_module_faults(desired.clone(), module_news.failed));
        tasks.spawn(balance(desired.clone()));
        tasks.spawn(desired.events().clone().collect(desired.clone()));
        let mut sources = JoinSet::new();
        if let Some(source) = source {
            sources.spawn(source(desired.clone()));
        }
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = tonic::transport::Server::builder()
            .add_service(SwitchServer::new(server))
            .serve_with_incoming_shutdown(with_backoff(UnixListenerStream::new(listener)), async {
                // An error means that the sender was dropped, which also ends the server.
                let _ = stopped.await;
            });
        tokio::pin!(serving);
        let result = loop {
            tokio::select! {
                result = &mut serving => break result,
                Some(ended) = sources.join_next() => {
                    match ended {
                        // The source says itself what it ends for.
                        Ok(()) => tracing::debug!("stopping"),
                        Err(error) => tracing::error!("stopping: {error}; this is a bug in mswitch"),
                    }
                    notify::send(notify::State::Stopping);
                    let _ = stop.send(());
                    break tokio::time::timeout(GRACE_PERIOD, &mut serving).await.unwrap_or(Ok(()));
                }
                action = signals.next() => match action {
                SignalAction::Reload => {
                        let (desired, file) = (desired.clone(), file.clone());
                        tasks.spawn_blocking(move || reload(&desired, file.as_deref()));
                    }
                    SignalAction::Stop(name) => {
                        tracing::info!(signal = name, "stopping");
                        notify::send(notify::State::Stopping);
                        let _ = stop.send(());
                        // A caller that stays connected does not delay the shutdown.
                        break tokio::time::timeout(GRACE_PERIOD, &mut serving).await.unwrap_or(Ok(()));
                    }
                },
            }
        };
        sources.shutdown().await;
        tasks.shutdown().await;
        Ok(result?)
    })
}

/// Reapplies the file and reports the runtime changes that it overrides.
fn reload(desired: &Desired, file: Option<&Path>) {
    let Some(file) = file else {
        tracing::warn!("SIGHUP ignored: the daemon was started without a configuration file");
        return;
    };
    let applied = file::text_of(file)
        .and_then(|text| desired.read(&text, file))
        .map_err(Refusal::from)
        .and_then(|parsed| {
            let notes = parsed.note_lines(file);
            desired.load(parsed.config, &Author::Signal("SIGHUP")).map(|applied| (applied, notes))
        });
    let (applied, file_notes) = match applied {
        Ok(applied) => applied,
        Err(refusal) => {
            for line in refusal.to_string().lines() {
                tracing::error!("{line}");
            }
            tracing::error!("{} is not applied; the configuration is unchanged", file.display());
            return;
        }
    };
    for (object, trouble) in applied.troubles() {
        tracing::warn!("{object}: {trouble}; retrying");
    }
    for note in applied.notes().iter().chain(&file_notes) {
        tracing::warn!("{note}");
    }
    tracing::info!(differences = applied.differences.len(), "{} is applied", file.display());
}

/// Logs that changes are lost: the daemon ends, and the file does not have them.
fn report_unsaved(desired: &Desired, file: &Path) {
    match desired.unsaved(file) {
        Ok(0) => {}
        Ok(1) => tracing::warn!("1 change is lost: it is not saved in {}", file.display()),
        Ok(many) => tracing::warn!("{many} changes are lost: they are not saved in {}", file.display()),
        Err(error) => {
            for line in error.to_string().lines() {
                tracing::error!("{line}");
            }
            tracing::error!("the next start fails until {} is corrected", file.display());
        }
    }
}

/// Reports ports that go up and down as events. A port that lost its backing resource is reopened; other link changes
/// cause no reconciliation, so clients that reconnect in a loop do not burden the daemon.
async fn report_links(desired: Arc<Desired>, mut links: Links) {
    while let Some(change) = links.changes.recv().await {
        let lost = links.lost.swap(0, Relaxed);
        if lost > 0 {
            desired.events().links_lost(lost);
        }
        let desired = desired.clone();
        let reported = tokio::task::spawn_blocking(move || {
            let (reason, lost) =
                if change.up { (String::new(), false) } else { down(desired.state(), &change) };
            desired.events().link(&change, reason);
            desired.state().tell_link(&change.bridge, &change.port);
            if lost {
                desired.wake();
            }
        });
        if reported.await.is_err() {
            tracing::error!("cannot report a link change; this is a bug in mswitch");
        }
    }
}

/// Reports the faults of clients as events, and logs the limits that they reached. Ports log all other faults.
async fn report_faults(desired: Arc<Desired>) {
    loop {
        desired.state().alarm().rung().await;
        let desired_state = desired.clone();
        let reported = tokio::task::spawn_blocking(move || {
            for (bridge, port, summary) in desired_state.state().new_faults() {
                let last = &summary.last;
                // The share of a MAC table is logged by `State::tick`.
                if let Some(limit) = last.limit.filter(|limit| limit.option != "port-share") {
                    let (client, reason) = (&last.client, &last.reason);
                    tracing::warn!(bridge, port, client, reason, %limit, "a client reached a limit");
                }
                desired_state.events().fault(bridge, port, summary);
            }
        });
        if reported.await.is_err() {
            tracing::error!("cannot report a fault; this is a bug in mswitch");
        }
        tokio::time::sleep(FAULT_INTERVAL).await;
    }
}

/// Logs modules that do not return from a batch, and modules that have returned. Reports both as events.
async fn report_stuck(desired: Arc<Desired>, overran: Arc<Notify>) {
    loop {
        overran.notified().await;
        let desired = desired.clone();
        let reported = tokio::task::spawn_blocking(move || {
            let (stuck, returned) = desired.state().stuck_changes();
            for stuck in &stuck {
                tracing::error!("{stuck}; the bridge's packets are dropped as logic-fault");
                desired.events().stuck(stuck, false);
            }
            for stuck in &returned {
                tracing::info!(module = stuck.module, bridge = stuck.bridge, "the module has returned");
                desired.events().stuck(stuck, true);
            }
        });
        if reported.await.is_err() {
            tracing::error!("cannot report a stuck module; this is a bug in mswitch");
        }
    }
}

/// Reports faults of modules as events, the first one at once. The log has them already.
async fn report_module_faults(desired: Arc<Desired>, failed: Arc<Notify>) {
    loop {
        failed.notified().await;
        let desired = desired.clone();
        let reported = tokio::task::spawn_blocking(move || {
            for (bridge, faults) in desired.state().new_module_faults() {
                desired.events().module_fault(bridge, &faults);
            }
        });
        if reported.await.is_err() {
            tracing::error!("cannot report a fault of a module; this is a bug in mswitch");
        }
        tokio::time::sleep(MODULE_FAULT_INTERVAL).await;
    }
}

/// Adds a back-off after each failed `accept`: the daemon may be out of file descriptors for a while.
fn with_backoff<T>(
    connections: impl Stream<Item = std::io::Result<T>>,
) -> impl Stream<Item = std::io::Result<T>> {
    connections.then(async |accepted| {
        if accepted.is_err() {
            tokio::time::sleep(ACCEPT_BACKOFF).await;
        }
        accepted
    })
}

/// Returns the reason why a port is down, as far as known, and whether it lost its backing resource.
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
        // A MAC table can be large and its lock contended.
        if tokio::task::spawn_blocking(move || desired.state().tick()).await.is_err() {
            tracing::error!("the tick of a logic panicked; this is a bug in mswitch");
        }
    }
}

/// Moves receive queues to less busy workers, while the switch says that it has work.
async fn balance(desired: Arc<Desired>) {
    let switch = desired.state().switch();
    let due = Arc::new(Notify::new());
    let tell = due.clone();
    switch.on_load(Box::new(move || tell.notify_one()));
    loop {
        due.notified().await;
        let desired = desired.clone();
        // Moving a queue waits for its batch.
        if tokio::task::spawn_blocking(move || desired.state().balance(desired.events())).await.is_err() {
            tracing::error!("the balancing of workers panicked; this is a bug in mswitch");
        }
    }
}

/// Notified when modules are in trouble.
#[derive(Clone, Default)]
struct ModuleNews {
    /// A module does not return from a batch, or has returned.
    overran: Arc<Notify>,
    /// A module has failed.
    failed: Arc<Notify>,
}

/// Link changes, and the number lost because the queue was full.
struct Links {
    changes: Receiver<LinkChange>,
    lost: Arc<AtomicU64>,
}

/// Action requested by a signal.
enum SignalAction {
    /// Stop the daemon; the signal's name.
    Stop(&'static str),
    /// Reapply the configuration file.
    Reload,
}

/// The signals that the daemon handles.
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

    async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.terminate.recv() => SignalAction::Stop("SIGTERM"),
            _ = self.interrupt.recv() => SignalAction::Stop("SIGINT"),
            _ = self.hangup.recv() => SignalAction::Reload,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn failed_accept_is_followed_by_a_back_off() {
        let full = || Err(rustix::io::Errno::MFILE.into());
        let connections = with_backoff(tokio_stream::iter([full(), Ok(1), full(), Ok(2)]));
        let started = Instant::now();
        let accepted: Vec<_> = connections.filter_map(Result::ok).collect().await;
        assert_eq!(accepted, [1, 2]);
        assert!(started.elapsed() >= 2 * ACCEPT_BACKOFF, "{:?}", started.elapsed());
    }
}

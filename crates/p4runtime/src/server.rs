//! Start and shutdown of a server.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use p4switch::Device;
use socket_file::{SocketError, SocketFile};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Router;

use crate::connection::{Connection, Listener, accept, stopped};
use crate::gate::Gate;
use crate::listen::Listen;
use crate::service::Shared;
use crate::sessions::Counters;
use crate::settings::{Limits, Settings};
use crate::tls::TlsError;

/// Time for answers on their way when the server stops.
const GRACE: Duration = Duration::from_millis(500);
/// Bytes of a call's metadata.
const MAX_METADATA: u32 = 16 << 10;

/// Reasons why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The socket's file cannot be made.
    #[error("cannot listen on unix:{0}")]
    Unix(#[from] SocketError),
    /// The address cannot be used.
    #[error("cannot listen on {listen}: {error}")]
    Address {
        /// The address.
        listen: Listen,
        /// The reason.
        error: io::Error,
    },
    /// The certificates cannot be used.
    #[error("cannot use TLS: {0}")]
    Tls(#[from] TlsError),
    /// The settings name no device.
    #[error("the settings have no device id; expected at least one")]
    NoDevice,
}

/// A running server; dropping it ends it without notice to controllers.
pub struct Server {
    shared: Arc<Shared>,
    listening: Vec<Listen>,
    /// Nothing is accepted any more.
    closing: watch::Sender<bool>,
    /// Connections end.
    ended: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Server {
    /// Serves a device on a runtime.
    ///
    /// # Errors
    /// An address cannot be listened on, or a certificate cannot be used. Nothing runs then.
    pub fn start(runtime: &Handle, settings: Settings, device: Arc<dyn Device>) -> Result<Self, StartError> {
        let _runtime = runtime.enter();
        if settings.devices.is_empty() {
            return Err(StartError::NoDevice);
        }
        let tls = settings.tls.as_ref().map(|files| files.acceptor()).transpose()?;
        let opened: Vec<_> = settings
            .listen
            .iter()
            .map(|listen| open(listen, &settings, tls.as_ref()))
            .collect::<Result<_, _>>()?;
        let (listening, listeners): (_, Vec<_>) = opened.into_iter().unzip();
        let limits = settings.limits.clone();
        let shared = Shared::new(settings, device);
        let sessions = Arc::downgrade(&shared.sessions);
        shared.device.listen(Box::new(move |message, info| {
            sessions.upgrade().is_some_and(|sessions| sessions.deliver(message, info))
        }));
        let (closing, ended) = (watch::Sender::new(false), watch::Sender::new(false));
        let (accepted, connections) = mpsc::channel::<io::Result<Connection>>(1);
        let mut tasks = JoinSet::new();
        for listener in listeners {
            let stops = [closing.subscribe(), ended.subscribe()];
            tasks.spawn_on(accept(listener, limits.clone(), accepted.clone(), stops), runtime);
        }
        let serving = router(&limits, Gate::new(shared.clone()))
            .serve_with_incoming_shutdown(ReceiverStream::new(connections), stopped(closing.subscribe()));
        tasks.spawn_on(
            async move {
                if let Err(error) = serving.await {
                    tracing::error!("P4Runtime is not served any more: {error}");
                }
            },
            runtime,
        );
        Ok(Self { shared, listening, closing, ended, tasks })
    }

    /// Addresses that the server listens on, with the ports that the kernel chose.
    pub fn listening(&self) -> &[Listen] {
        &self.listening
    }

    /// Counters of the device's messages to controllers.
    pub fn counters(&self) -> Counters {
        self.shared.sessions.counters()
    }

    /// Ends streams with notice and connections, once answers on their way have been sent, and removes sockets' files.
    pub async fn shutdown(mut self) {
        self.closing.send_replace(true);
        self.shared.sessions.stop();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        // A connection that its client keeps does not delay the shutdown.
        let _ = tokio::time::timeout(GRACE, all).await;
        self.ended.send_replace(true);
        self.tasks.shutdown().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.sessions.stop();
        self.ended.send_replace(true);
    }
}

fn router(limits: &Limits, gate: Gate) -> Router {
    tonic::transport::Server::builder()
        .max_concurrent_streams(limits.calls)
        .http2_keepalive_interval(Some(limits.probe))
        .http2_keepalive_timeout(Some(limits.probe))
        .http2_max_header_list_size(MAX_METADATA)
        .add_service(gate)
}

/// Opens a listening socket.
fn open(
    listen: &Listen,
    settings: &Settings,
    tls: Option<&TlsAcceptor>,
) -> Result<(Listen, Listener), StartError> {
    let failed = |error| StartError::Address { listen: listen.clone(), error };
    match listen {
        Listen::Unix(path) => {
            let (file, listener) = SocketFile::listen(path, settings.access)?;
            let listener = tokio::net::UnixListener::from_std(listener).map_err(failed)?;
            Ok((listen.clone(), Listener::Unix { listener, _file: file }))
        }
        Listen::Tcp(address) => {
            let listener = TcpListener::bind(address).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
            Ok((Listen::Tcp(address), Listener::Tcp { listener, tls: tls.cloned() }))
        }
    }
}

//! Connections that the agent accepts: passive targets, the management socket and the snoop socket.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket_file::SocketFile;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::active::{blocking, converse};
use crate::backoff::Backoff;
use crate::connection::{Stop, Stream, stopped};
use crate::settings::Settings;
use crate::shared::SharedSwitch;
use crate::snoop;
use crate::state::TargetState;
use crate::talk::unnamed_peer;
use crate::target::Target;
use crate::timers::Policy;
use crate::tls::TlsError;

/// Pause after an error of `accept`, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Tls { listener: TcpListener, acceptor: TlsAcceptor },
    Unix { listener: UnixListener, _file: SocketFile },
}

impl Listener {
    async fn open(target: &Target, settings: &Settings) -> io::Result<Self> {
        match target {
            Target::Ptcp { port, host } => {
                let host = host.as_deref().unwrap_or("0.0.0.0");
                Ok(Listener::Tcp(TcpListener::bind((host, *port)).await?))
            }
            Target::Pssl { port, host } => {
                let files = settings.tls.clone();
                let acceptor = blocking(move || files.ok_or(TlsError::NoFiles)?.acceptor()).await?;
                let host = host.as_deref().unwrap_or("0.0.0.0");
                Ok(Listener::Tls { listener: TcpListener::bind((host, *port)).await?, acceptor })
            }
            Target::Punix(path) => {
                let (file, listener) = SocketFile::listen(path, settings.access).map_err(io::Error::other)?;
                Ok(Listener::Unix { listener: UnixListener::from_std(listener)?, _file: file })
            }
            Target::Tcp { .. } | Target::Ssl { .. } | Target::Unix(_) => {
                Err(io::ErrorKind::InvalidInput.into())
            }
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(listener) | Listener::Tls { listener, .. } => listener.local_addr().ok(),
            Listener::Unix { .. } => None,
        }
    }

    async fn accept(&self) -> io::Result<(Accepted, String)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok((Accepted::Plain(Box::new(stream)), format!("tcp:{peer}")))
            }
            Listener::Tls { listener, acceptor } => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok((Accepted::Tls(stream, acceptor.clone()), format!("ssl:{peer}")))
            }
            Listener::Unix { listener, .. } => {
                Ok((Accepted::Plain(Box::new(listener.accept().await?.0)), unnamed_peer()))
            }
        }
    }
}

/// A connection that was accepted.
enum Accepted {
    Plain(Box<dyn Stream>),
    /// Its TLS handshake is still to come.
    Tls(TcpStream, TlsAcceptor),
}

impl Accepted {
    /// Returns the stream, after the handshake.
    async fn open(self, limit: Duration) -> io::Result<Box<dyn Stream>> {
        match self {
            Accepted::Plain(stream) => Ok(stream),
            Accepted::Tls(stream, acceptor) => match timeout(limit, acceptor.accept(stream)).await {
                Ok(stream) => Ok(Box::new(stream?)),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            },
        }
    }
}

/// What becomes of the connections that a listener accepts.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    pub(crate) shared: Arc<SharedSwitch>,
    pub(crate) state: Arc<TargetState>,
    /// Connections that may be accepted besides those there are.
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) service: Service,
}

/// Kinds of connections that are accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Service {
    /// OpenFlow.
    Switch(Policy),
    /// Copies of a controller's messages, for an observer that stalls no longer than this.
    Snoop(Duration),
}

impl Door {
    async fn serve(self, accepted: Accepted, peer: String, mut stop: Stop) {
        let limit = match self.service {
            Service::Switch(policy) => policy.handshake,
            Service::Snoop(stall) => stall,
        };
        let opened = tokio::select! {
            opened = accepted.open(limit) => opened,
            () = stopped(&mut stop) => return,
        };
        let stream = match opened {
            Ok(stream) => stream,
            Err(error) => return self.state.failed(format!("TLS handshake with {peer}: {error}")),
        };
        match self.service {
            Service::Switch(policy) => {
                let end = converse(&self.shared, stream, peer, &policy, &self.state, stop).await;
                self.state.failed(end.to_string());
            }
            Service::Snoop(stall) => snoop::serve(&self.shared, stream, stall, stop).await,
        }
    }
}

/// Listens on a passive target until `stop`; tries again while it cannot.
pub(crate) async fn run(target: Target, door: Door, settings: Arc<Settings>, mut stop: Stop) {
    let mut backoff = Backoff::new(settings.backoff_min, settings.backoff_max);
    loop {
        match Listener::open(&target, &settings).await {
            Ok(listener) => {
                door.state.listens(listener.address());
                return accept(listener, door, stop).await;
            }
            Err(error) => {
                tracing::debug!(%target, %error, "cannot listen for controllers");
                door.state.failed(error.to_string());
            }
        }
        tokio::select! {
            () = sleep(backoff.after(None)) => {}
            () = stopped(&mut stop) => return,
        }
    }
}

/// Accepts connections until `stop`, and returns when the last of them has ended.
pub(crate) async fn accept(listener: Listener, door: Door, mut stop: Stop) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => match door.slots.clone().try_acquire_owned() {
                    Ok(slot) => {
                        let served = door.clone().serve(stream, peer, stop.clone());
                        connections.spawn(async move {
                            served.await;
                            drop(slot);
                        });
                    }
                    Err(_) => door.state.refused(),
                },
                Err(error) => {
                    door.state.failed(error.to_string());
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = stopped(&mut stop) => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

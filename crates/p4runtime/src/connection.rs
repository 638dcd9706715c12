//! Accepted connections: limits and handshakes, then bytes for HTTP/2.
//!
//! Invariant: a connection reaches HTTP/2 only once TLS, where configured, and HTTP/2's preface have been received, and
//! occupies a place until it ends.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket_file::SocketFile;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tonic::transport::server::Connected;

use crate::settings::Limits;

/// First bytes of each connection of HTTP/2 (RFC 9113).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Pause after an error of `accept`, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// A listening socket.
pub(crate) enum Listener {
    Tcp { listener: TcpListener, tls: Option<TlsAcceptor> },
    Unix { listener: UnixListener, _file: SocketFile },
}

/// What calls know of their connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// Places for streams.
    pub(crate) streams: Arc<Semaphore>,
    /// Places for reads.
    pub(crate) reads: Arc<Semaphore>,
}

/// A connection after its handshake.
pub(crate) struct Connection {
    bytes: Box<dyn Bytes>,
    /// The rest of the preface, which HTTP/2 reads again.
    preface: &'static [u8],
    peer: Peer,
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    _place: OwnedSemaphorePermit,
}

impl Listener {
    async fn accept(&self) -> io::Result<(Box<dyn Bytes>, Option<&TlsAcceptor>, String)> {
        match self {
            Listener::Tcp { listener, tls } => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok((Box::new(stream), tls.as_ref(), peer.to_string()))
            }
            Listener::Unix { listener, .. } => {
                Ok((Box::new(listener.accept().await?.0), None, "a process of this host".into()))
            }
        }
    }
}

/// Accepts connections until the first of `stops`; connections end at the second.
pub(crate) async fn accept(
    listener: Listener,
    limits: Limits,
    accepted: mpsc::Sender<io::Result<Connection>>,
    [closing, ended]: [watch::Receiver<bool>; 2],
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut opening = JoinSet::new();
    let mut pending = VecDeque::<AbortHandle>::new();
    loop {
        let (bytes, tls, peer) = tokio::select! {
            connection = listener.accept() => match connection {
                Ok(connection) => connection,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a P4Runtime connection");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
            Some(_) = opening.join_next() => continue,
            () = stopped(closing.clone()) => return,
        };
        pending.retain(|handshake| !handshake.is_finished());
        if pending.len() >= limits.handshakes
            && let Some(oldest) = pending.pop_front()
        {
            tracing::debug!("a P4Runtime connection is closed: newer ones wait for their handshakes");
            oldest.abort();
        }
        let Ok(place) = places.clone().try_acquire_owned() else {
            tracing::debug!(peer, "a P4Runtime connection is refused: {} are open", limits.connections);
            continue;
        };
        let known = Peer {
            streams: Arc::new(Semaphore::new(limits.connection_streams)),
            reads: Arc::new(Semaphore::new(limits.connection_reads)),
        };
        let (tls, accepted, limit) = (tls.cloned(), accepted.clone(), limits.handshake);
        let stopped = Box::pin(stopped(ended.clone()));
        pending.push_back(opening.spawn(async move {
            match timeout(limit, shake_hands(bytes, tls))
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            {
                Ok(bytes) => {
                    let connection =
                        Connection { bytes, preface: PREFACE, peer: known, stopped, _place: place };
                    // An error means that the server ends.
                    let _ = accepted.send(Ok(connection)).await;
                }
                Err(error) => tracing::debug!(peer, %error, "a P4Runtime connection failed"),
            }
        }));
    }
}

/// Completes TLS and receives HTTP/2's preface.
async fn shake_hands(bytes: Box<dyn Bytes>, tls: Option<TlsAcceptor>) -> io::Result<Box<dyn Bytes>> {
    let mut bytes = match tls {
        Some(tls) => Box::new(tls.accept(bytes).await?),
        None => bytes,
    };
    let mut preface = [0; PREFACE.len()];
    bytes.read_exact(&mut preface).await?;
    match preface == *PREFACE {
        true => Ok(bytes),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not speak HTTP/2")),
    }
}

/// Waits until the server stops.
pub(crate) async fn stopped(mut stop: watch::Receiver<bool>) {
    // An error means that the server is gone.
    let _ = stop.wait_for(|is_stopped| *is_stopped).await;
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // HTTP/2 always reads: this ends connections that their clients keep when the server stops.
        if self.stopped.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if self.preface.is_empty() {
            return Pin::new(&mut self.bytes).poll_read(context, buffer);
        }
        let (now, later) = self.preface.split_at(self.preface.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.preface = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.bytes.is_write_vectored()
    }
}

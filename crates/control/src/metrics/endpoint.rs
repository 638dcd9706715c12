//! The HTTP endpoint: `GET /metrics`, one request per connection, with limits on connections and their time.
//!
//! So idle, slow or numerous clients occupy only a few sockets for seconds, and do not slow down the switch.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::{Address, collect};
use crate::state::State;

/// Maximum number of concurrent scrapes; further connections wait to be accepted.
const MAX_SCRAPES: usize = 8;

/// Time limit for a scrape, including the transfer of the reply.
const SCRAPE_LIMIT: Duration = Duration::from_secs(10);

/// Time allowed for a client to send its request.
const REQUEST_LIMIT: Duration = Duration::from_secs(1);

/// Back-off after a failed `accept`: file descriptors must be freed first.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Reason for failing to serve metrics.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot serve metrics on {address}: {error}; choose another address with `metrics` in `[daemon]` or --metrics"
)]
pub struct EndpointError {
    address: Address,
    error: std::io::Error,
}

/// A bound address that does not serve yet.
#[derive(Debug)]
pub struct Endpoint {
    listener: TcpListener,
    address: Address,
}

impl Endpoint {
    /// Binds the address; port 0 means any free port.
    pub fn bind(address: Address) -> Result<Self, EndpointError> {
        let failed = |error| EndpointError { address, error };
        let listener = TcpListener::bind(address.0).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = Address(listener.local_addr().map_err(failed)?);
        Ok(Self { listener, address })
    }

    /// Returns the bound address.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Serves the metrics of `state` until the task is aborted.
    pub async fn serve(self, state: Arc<State>) {
        let address = self.address;
        let listener = match tokio::net::TcpListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%address, %error, "cannot serve metrics"),
        };
        let (started, places) = (SystemTime::now(), Arc::new(Semaphore::new(MAX_SCRAPES)));
        loop {
            // The semaphore is never closed.
            let Ok(place) = places.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((connection, _)) => {
                    let state = state.clone();
                    tokio::spawn(async move {
                        // Slow clients are disconnected without an error: only the client itself could receive one.
                        let _ =
                            tokio::time::timeout(SCRAPE_LIMIT, serve_connection(connection, state, started))
                                .await;
                        drop(place);
                    });
                }
                Err(_) => tokio::time::sleep(ACCEPT_BACKOFF).await,
            }
        }
    }
}

async fn serve_connection(connection: TcpStream, state: Arc<State>, started: SystemTime) {
    let service = service_fn(move |request| {
        let state = state.clone();
        async move { Ok::<_, Infallible>(answer(&request, state, started).await) }
    });
    // Errors are the client's: it disconnected, or its request is not valid HTTP.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_LIMIT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(connection), service)
        .await;
}

async fn answer(
    request: &Request<Incoming>,
    state: Arc<State>,
    started: SystemTime,
) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return reply(StatusCode::NOT_FOUND, "not found; mswitch serves its metrics at /metrics\n".into());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal =
            reply(StatusCode::METHOD_NOT_ALLOWED, "method not allowed; expected GET or HEAD\n".into());
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    // Waits for changes in progress, so it runs on a thread for blocking work.
    match tokio::task::spawn_blocking(move || collect::collect(&state, started)).await {
        Ok(Ok(text)) => reply(StatusCode::OK, text),
        Ok(Err(refusal)) => reply(StatusCode::INTERNAL_SERVER_ERROR, format!("{refusal}\n")),
        Err(error) => {
            reply(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}; this is a bug in mswitch\n"))
        }
    }
}

fn reply(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

//! The HTTP side: `GET /metrics`, one request a connection, few connections at a time and each only for so long.
//!
//! So a client that says nothing, reads slowly or comes in numbers costs a few sockets for seconds, and the switch's
//! own work nothing.

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

/// Scrapes at a time; more wait to be accepted.
const MOST: usize = 8;

/// How long one may take, the reading of the reply included.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a client may take to say what it wants.
const ASK: Duration = Duration::from_secs(1);

/// How long to wait before accepting again when that failed: descriptors must be freed first.
const BREATH: Duration = Duration::from_millis(100);

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot serve metrics on {address}: {error}; choose another address with `metrics` in `[daemon]` or --metrics"
)]
pub struct EndpointError {
    address: Address,
    error: std::io::Error,
}

/// A bound address that is not served yet.
#[derive(Debug)]
pub struct Endpoint {
    listener: TcpListener,
    address: Address,
}

impl Endpoint {
    /// Takes the address; its port 0 means any that is free.
    pub fn bind(address: Address) -> Result<Self, EndpointError> {
        let failed = |error| EndpointError { address, error };
        let listener = TcpListener::bind(address.0).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = Address(listener.local_addr().map_err(failed)?);
        Ok(Self { listener, address })
    }

    /// Where it is.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Serves the numbers of `state` until the task is aborted.
    pub async fn serve(self, state: Arc<State>) {
        let address = self.address;
        let listener = match tokio::net::TcpListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%address, %error, "metrics are not served"),
        };
        let (started, places) = (SystemTime::now(), Arc::new(Semaphore::new(MOST)));
        loop {
            // Never closed, so there always is a place to wait for.
            let Ok(place) = places.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((connection, _)) => {
                    let state = state.clone();
                    tokio::spawn(async move {
                        // Who is too slow is cut off; there is nobody to tell but them.
                        let _ = tokio::time::timeout(PATIENCE, converse(connection, state, started)).await;
                        drop(place);
                    });
                }
                Err(_) => tokio::time::sleep(BREATH).await,
            }
        }
    }
}

async fn converse(connection: TcpStream, state: Arc<State>, started: SystemTime) {
    let service = service_fn(move |request| {
        let state = state.clone();
        async move { Ok::<_, Infallible>(answer(&request, state, started).await) }
    });
    // An error is the client's: it left, or it does not speak HTTP.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(ASK)
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
        return reply(StatusCode::NOT_FOUND, "mswitch serves its metrics at /metrics\n".into());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal =
            reply(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are possible here\n".into());
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    // Waits for changes that are under way: not on a thread that others' sockets need.
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

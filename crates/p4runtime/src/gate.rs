//! Reception of requests, within the memory for them.
//!
//! A request is received whole before it is decoded: in time, within its length, and if it is long, within the bytes
//! that all requests share, as far as it has arrived. Decoding multiplies a request, by up to 200 if it is made for
//! that. So a long change is decoded only if it names a primary as its sender and has few enough updates, and a read
//! only if it names few entities, once it has its places.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http_body_util::{BodyExt, Full};
use p4runtime_proto::v1::Uint128;
use p4runtime_proto::v1::p4_runtime_server::{P4RuntimeServer, SERVICE_NAME};
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{Bytes, Service as Call};
use tonic::server::NamedService;

use crate::service::{Requester, Service, Shared};

/// Bytes of a message's header: whether it is compressed, and its length.
const HEADER: usize = 5;
/// Longest request that needs no share of the common bytes.
const SHORT: usize = 64 << 10;
/// Common bytes that a byte of a long request takes if anybody may send it.
const UNVERIFIED: usize = 32;
/// Unit of the common bytes.
const UNIT: usize = 1 << 10;

/// Kinds of calls with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Write,
    /// `SetForwardingPipelineConfig`.
    Program,
    Read,
    Other,
}

/// The service behind the gate.
#[derive(Clone)]
pub(crate) struct Gate {
    shared: Arc<Shared>,
    calls: P4RuntimeServer<Service>,
    streams: P4RuntimeServer<Service>,
    /// Units of the common bytes of changes, and of reads: those who only read do not hold up a primary.
    changes: Arc<Semaphore>,
    reads: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let limits = &shared.limits;
        let server = |limit| P4RuntimeServer::new(Service(shared.clone())).max_decoding_message_size(limit);
        let (calls, streams) = (server(limits.large_message.max(limits.message)), server(limits.message));
        // Any single request has room.
        let room = |bytes: usize| Arc::new(Semaphore::new(bytes.div_ceil(UNIT) + 1));
        let changes = room(limits.requests.max(limits.large_message));
        let reads = room(limits.requests.max(limits.message.saturating_mul(UNVERIFIED)));
        Self { shared, calls, streams, changes, reads }
    }

    /// Receives a request; returns it with its share of the common bytes.
    async fn receive(
        &self,
        request: Request<Body>,
        kind: Kind,
    ) -> Result<(Request<Body>, Option<OwnedSemaphorePermit>), Status> {
        let limits = &self.shared.limits;
        let (limit, factor) = match kind {
            Kind::Write | Kind::Program => (limits.large_message, 1),
            Kind::Read => (limits.message, UNVERIFIED),
            // None of them is longer.
            Kind::Other => (SHORT, 1),
        };
        let (head, mut body) = request.into_parts();
        let (mut received, mut share, mut length) = (Vec::new(), None, None);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| Status::cancelled(error.to_string()))?.into_data() else {
                continue;
            };
            received.extend_from_slice(&data);
            if length.is_none()
                && let Some([_, a, b, c, d]) = received.first_chunk::<HEADER>()
            {
                let bytes = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
                if bytes > limit {
                    return Err(Status::resource_exhausted(format!(
                        "the request has {bytes} bytes; expected at most {limit}"
                    )));
                }
                length = Some(bytes);
            }
            // Only bytes that have arrived are reserved, so a silent caller blocks no other.
            if received.len() > SHORT {
                let common = if kind == Kind::Read { &self.reads } else { &self.changes };
                grow(common, &mut share, received.len().saturating_mul(factor))?;
            }
            if received.len() > HEADER + length.unwrap_or_default() {
                return Err(Status::invalid_argument("the request is longer than its length says"));
            }
        }
        let message = received.get(HEADER..).unwrap_or_default();
        match kind {
            Kind::Write if share.is_some() => {
                self.authorize(message)?;
                check_updates(message, limits.updates)?;
            }
            Kind::Program if share.is_some() => self.authorize(message)?,
            Kind::Read => check_entities(message, limits.read_entities)?,
            Kind::Write | Kind::Program | Kind::Other => {}
        }
        Ok((Request::from_parts(head, Body::new(Full::new(Bytes::from(received)))), share))
    }

    fn authorize(&self, message: &[u8]) -> Result<(), Status> {
        let sender = Sender::decode(message).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let Sender { device_id, role_id, election_id, role } = sender;
        self.shared.authorize(&Requester::new(device_id, &role, role_id, election_id))
    }
}

/// Lets the share of a request grow to `bytes` of the common ones, if it is long.
fn grow(
    common: &Arc<Semaphore>,
    share: &mut Option<OwnedSemaphorePermit>,
    bytes: usize,
) -> Result<(), Status> {
    let held = share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
    let more = u32::try_from(bytes.div_ceil(UNIT).saturating_sub(held)).unwrap_or(u32::MAX);
    let full = |_| Status::resource_exhausted("too many long requests are on their way; try again later");
    let more = common.clone().try_acquire_many_owned(more).map_err(full)?;
    match share {
        Some(share) => share.merge(more),
        None => *share = Some(more),
    }
    Ok(())
}

fn check_updates(message: &[u8], limit: usize) -> Result<(), Status> {
    let count =
        Written::decode(message).map_err(|error| Status::invalid_argument(error.to_string()))?.updates.len();
    if count <= limit {
        return Ok(());
    }
    Err(Status::resource_exhausted(format!("the request has {count} updates; expected at most {limit}")))
}

fn check_entities(message: &[u8], limit: usize) -> Result<(), Status> {
    let count =
        Asked::decode(message).map_err(|error| Status::invalid_argument(error.to_string()))?.entities.len();
    if count <= limit {
        return Ok(());
    }
    Err(Status::resource_exhausted(format!("the request has {count} entities; expected at most {limit}")))
}

/// The entities of a `ReadRequest`, to be counted: their contents are skipped.
#[derive(Clone, PartialEq, Message)]
struct Asked {
    #[prost(message, repeated, tag = 2)]
    entities: Vec<()>,
}

/// The updates of a `WriteRequest`, likewise.
#[derive(Clone, PartialEq, Message)]
struct Written {
    #[prost(message, repeated, tag = 4)]
    updates: Vec<()>,
}

/// The fields that `Write` and `SetForwardingPipelineConfig` have in common.
#[derive(Clone, PartialEq, Message)]
struct Sender {
    #[prost(uint64, tag = 1)]
    device_id: u64,
    #[prost(uint64, tag = 2)]
    role_id: u64,
    #[prost(message, tag = 3)]
    election_id: Option<Uint128>,
    #[prost(string, tag = 6)]
    role: String,
}

impl Call<Request<Body>> for Gate {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default();
        if method == "StreamChannel" {
            return self.streams.call(request);
        }
        let kind = match method {
            "Write" => Kind::Write,
            "SetForwardingPipelineConfig" => Kind::Program,
            "Read" => Kind::Read,
            _ => Kind::Other,
        };
        let mut gate = self.clone();
        Box::pin(async move {
            let received = timeout(gate.shared.limits.receive, gate.receive(request, kind)).await;
            let late =
                |_| Err(Status::deadline_exceeded("the request did not arrive in time; try again later"));
            match received.unwrap_or_else(late) {
                Ok((mut request, share)) if kind == Kind::Read => {
                    match gate.shared.read_places(request.extensions().get(), share).await {
                        Ok(places) => request.extensions_mut().insert(places),
                        Err(status) => return Ok(status.into_http()),
                    };
                    gate.calls.call(request).await
                }
                Ok((request, share)) => {
                    let response = gate.calls.call(request).await;
                    drop(share);
                    response
                }
                Err(status) => Ok(status.into_http()),
            }
        })
    }
}

impl NamedService for Gate {
    const NAME: &'static str = SERVICE_NAME;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_grow_as_bytes_arrive_and_never_beyond_the_common_ones() {
        let common = Arc::new(Semaphore::new(10));
        let (mut first, mut second) = (None, None);
        grow(&common, &mut first, 4 * UNIT).unwrap();
        grow(&common, &mut first, 4 * UNIT + 1).unwrap();
        assert_eq!(common.available_permits(), 5);
        let refused = grow(&common, &mut second, 6 * UNIT).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        grow(&common, &mut second, 5 * UNIT).unwrap();
        drop(first);
        grow(&common, &mut second, 10 * UNIT).unwrap();
        drop(second);
        assert_eq!(common.available_permits(), 10);
    }
}

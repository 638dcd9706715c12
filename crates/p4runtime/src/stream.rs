//! One controller's stream: claims, packets and acknowledgements, in the order in which they come.

use std::sync::Arc;

use p4runtime_proto::v1::stream_message_request::Update as Request;
use p4runtime_proto::v1::stream_message_response::Update as Response;
use p4runtime_proto::v1::{
    DigestListAck, DigestListAckError, MasterArbitrationUpdate, PacketOut, PacketOutError, StreamError,
    StreamMessageRequest, StreamMessageResponse, StreamOtherError, stream_error,
};
use p4switch::{Failure, ObjectKind};
use prost::Message;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

use crate::role::RoleName;
use crate::service::{Shared, blocking};
use crate::sessions::{Claim, Seat, from_message};

/// Metadata fields of a packet, of which each takes more memory than its bytes on the wire.
const MAX_METADATA: usize = 256;

/// Serves a stream until it ends.
pub(crate) async fn serve(shared: Arc<Shared>, seat: Seat, mut requests: Streaming<StreamMessageRequest>) {
    let end = tokio::select! {
        end = converse(&shared, &seat, &mut requests) => end,
        () = seat.outbox().closed() => return,
    };
    match end {
        Ok(()) => seat.outbox().finish(Ok(())),
        Err(status) => seat.outbox().fail(status),
    }
}

async fn converse(
    shared: &Arc<Shared>,
    seat: &Seat,
    requests: &mut Streaming<StreamMessageRequest>,
) -> Result<(), Status> {
    let first = timeout(shared.limits.handshake, requests.message()).await.map_err(|_| {
        Status::deadline_exceeded("the stream has carried no message; claim a role first by `arbitration`")
    })??;
    let Some(first) = first else { return Ok(()) };
    let Some(Request::Arbitration(update)) = first.update else {
        return Err(Status::failed_precondition(
            "the first message of a stream claims a role by `arbitration`; this one does not",
        ));
    };
    let claim = claim(shared, &update, None)?;
    report_missing(shared, &claim).await?;
    claimed(shared, seat, claim.clone(), &update).await?;
    while let Some(message) = requests.message().await? {
        match message.update {
            Some(Request::Arbitration(update)) => {
                let again = self::claim(shared, &update, Some(&claim))?;
                claimed(shared, seat, again, &update).await?;
            }
            Some(Request::Packet(packet)) => send(shared, seat, &claim, packet).await,
            Some(Request::DigestAck(ack)) => acknowledge(shared, seat, &claim, ack).await,
            Some(Request::Other(other)) => {
                let failure = Failure::new(Code::Unimplemented, "the switch knows no such message");
                report(seat, failure, stream_error::Details::Other(StreamOtherError { other: Some(other) }));
            }
            None => {
                let failure = Failure::new(Code::InvalidArgument, "the message is empty");
                report(seat, failure, stream_error::Details::Other(StreamOtherError::default()));
            }
        }
    }
    Ok(())
}

/// Checks a claim's device and role; they have to be those that the stream has claimed `before`.
fn claim(shared: &Shared, update: &MasterArbitrationUpdate, before: Option<&Claim>) -> Result<Claim, Status> {
    if let Some(before) = before.filter(|before| before.device != update.device_id) {
        return Err(Status::failed_precondition(format!(
            "the stream is for device {}; open another one for device {}",
            before.device, update.device_id
        )));
    }
    shared.check_device(update.device_id)?;
    let name = RoleName::claimed(update.role.as_ref()).map_err(Status::invalid_argument)?;
    if let Some(before) = before.filter(|before| before.name != name) {
        return Err(Status::failed_precondition(format!(
            "the stream is for {}; open another one for {name}",
            before.name
        )));
    }
    shared.check_role(&name)?;
    let limits = shared.limits_of(&name).cloned();
    Ok(Claim { device: update.device_id, name, role: update.role.clone(), limits })
}

/// Logs the names in a role's limits that the program lacks: they are spelled wrong, or another program runs.
async fn report_missing(shared: &Arc<Shared>, claim: &Claim) -> Result<(), Status> {
    let Some(limits) = claim.limits.clone() else { return Ok(()) };
    let device = shared.device.clone();
    let missing = blocking(move || {
        let config = device.config();
        let info = config.as_ref().and_then(|config| config.p4info.as_ref());
        info.map(|info| limits.access.missing(info)).unwrap_or_default()
    });
    let missing = missing.await?;
    if !missing.is_empty() {
        tracing::warn!("the P4 program lacks objects listed for {}: {}", claim.name, missing.join(", "));
    }
    Ok(())
}

async fn claimed(
    shared: &Shared,
    seat: &Seat,
    claim: Claim,
    update: &MasterArbitrationUpdate,
) -> Result<(), Status> {
    if seat.claim(claim, update.election_id.map(from_message))? {
        // Writes of the primary before have run or are refused once this has its turn.
        drop(shared.turn.lock().await);
        seat.announce();
    }
    Ok(())
}

async fn send(shared: &Arc<Shared>, seat: &Seat, claim: &Claim, packet: PacketOut) {
    let device = shared.device.clone();
    let count = packet.metadata.len();
    if count > MAX_METADATA {
        let message = format!("the packet has {count} metadata fields; expected at most {MAX_METADATA}");
        let details = stream_error::Details::PacketOut(PacketOutError { packet_out: None });
        return report(seat, Failure::new(Code::InvalidArgument, message), details);
    }
    let (failure, packet) = match seat.is_primary() {
        false => (not_primary("send packets"), Some(packet)),
        true if claim.limits.as_ref().is_some_and(|limits| !limits.packets) => {
            let message = format!("{} may not send packets (`packet-in` is off)", claim.name);
            (Failure::new(Code::PermissionDenied, message), Some(packet))
        }
        true => match blocking(move || device.packet_out(&packet).map_err(|failure| (failure, packet))).await
        {
            Ok(Ok(())) => return,
            Ok(Err((failure, packet))) => (failure, Some(packet)),
            Err(bug) => (Failure::new(bug.code(), bug.message()), None),
        },
    };
    report(seat, failure, stream_error::Details::PacketOut(PacketOutError { packet_out: packet }));
}

async fn acknowledge(shared: &Arc<Shared>, seat: &Seat, claim: &Claim, ack: DigestListAck) {
    let (device, limits) = (shared.device.clone(), claim.limits.clone());
    let checked = move || {
        if let Some(limits) = limits {
            let config = device.config();
            let info = config.as_ref().and_then(|config| config.p4info.as_ref());
            if !info.is_some_and(|info| limits.access.has(info, ObjectKind::Digest, ack.digest_id)) {
                let message = format!("role {:?} does not have digest {}", limits.access.role, ack.digest_id);
                return Err(Failure::new(Code::PermissionDenied, message));
            }
        }
        device.acknowledge(&ack)
    };
    let failure = match seat.is_primary() {
        false => not_primary("acknowledge digests"),
        true => match blocking(checked).await {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure,
            Err(bug) => Failure::new(bug.code(), bug.message()),
        },
    };
    let details = DigestListAckError { digest_list_ack: Some(ack) };
    report(seat, failure, stream_error::Details::DigestListAck(details));
}

fn not_primary(what: &str) -> Failure {
    Failure::new(Code::PermissionDenied, format!("only a primary may {what}; this controller is not one"))
}

/// Reports a refused message. One that finds no room is left out: the specification allows it.
fn report(seat: &Seat, failure: Failure, details: stream_error::Details) {
    let error = StreamError {
        canonical_code: failure.code as i32,
        message: failure.message,
        details: Some(details),
        ..StreamError::default()
    };
    let message = StreamMessageResponse { update: Some(Response::Error(error)) };
    let bytes = message.encoded_len();
    let _ = seat.outbox().push(message, bytes);
}

//! The connection to the switch, as the primary of a role.

use p4runtime_proto::v1::get_forwarding_pipeline_config_request::ResponseType;
use p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient;
use p4runtime_proto::v1::stream_message_request::Update as Request;
use p4runtime_proto::v1::stream_message_response::Update as Response;
use p4runtime_proto::v1::{
    DigestList, DigestListAck, GetForwardingPipelineConfigRequest, MasterArbitrationUpdate, ReadRequest,
    Role, StreamMessageRequest, StreamMessageResponse, Uint128, Update, WriteRequest,
};
use p4runtime_proto::{rpc, v1};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use crate::Options;
use crate::cache::Change;
use crate::failure::{Failure, reason};
use crate::names::{Names, Reading};

/// Longest answer to a read: its parts are much shorter.
const MAX_ANSWER: usize = 64 << 20;
/// Longest status of a failed write, which has a result for each update.
const MAX_STATUS: u32 = 4 << 20;

/// The connection.
pub(crate) struct Switch {
    device: u64,
    role: String,
    election: Uint128,
    client: P4RuntimeClient<Channel>,
    requests: mpsc::Sender<StreamMessageRequest>,
    answers: Streaming<StreamMessageResponse>,
    names: Names,
}

/// Outcome of a write.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Updates that failed.
    pub(crate) failed: usize,
    /// Message of the first that failed.
    pub(crate) first: Option<String>,
    /// The role may have no more entries.
    pub(crate) is_full: bool,
}

impl Switch {
    /// Connects, and claims the role.
    pub(crate) async fn connect(options: &Options) -> Result<Self, Failure> {
        let failed = |error: &dyn std::error::Error| Failure::Connect {
            path: options.socket.clone(),
            error: reason(error),
        };
        let path = std::path::absolute(&options.socket)?;
        let endpoint = Endpoint::from_shared(format!("unix://{}", path.display())).map_err(|e| failed(&e))?;
        let endpoint = endpoint.http2_max_header_list_size(MAX_STATUS);
        let channel = endpoint.connect().await.map_err(|e| failed(&e))?;
        let mut client = P4RuntimeClient::new(channel).max_decoding_message_size(MAX_ANSWER);

        let election = Uint128 { high: 0, low: options.election };
        let (requests, stream) = mpsc::channel(16);
        let claim = MasterArbitrationUpdate {
            device_id: options.device,
            role: Some(Role { name: options.role.clone(), ..Role::default() }),
            election_id: Some(election),
            status: None,
        };
        // The channel has room.
        let _ = requests.try_send(StreamMessageRequest { update: Some(Request::Arbitration(claim)) });
        let taken = |election| Failure::Taken { role: options.role.clone(), election };
        let refused = |status: Status| match status.code() {
            // Both would have the same election id.
            Code::InvalidArgument if status.message().contains("is used by another") => {
                taken(format!(" with election id {}", options.election))
            }
            _ => Failure::from(status),
        };
        let mut answers =
            client.stream_channel(ReceiverStream::new(stream)).await.map_err(refused)?.into_inner();
        let first = answers.message().await.map_err(refused)?;
        let Some(Response::Arbitration(answer)) = first.and_then(|message| message.update) else {
            return Err(ended());
        };
        if answer.status.is_none_or(|status| status.code != Code::Ok as i32) {
            let election = answer.election_id.map(|id| format!(" with election id {}", id.low));
            return Err(taken(election.unwrap_or_default()));
        }
        let request = GetForwardingPipelineConfigRequest {
            device_id: options.device,
            response_type: ResponseType::P4infoAndCookie.into(),
        };
        let config = client.get_forwarding_pipeline_config(request).await?.into_inner().config;
        let info = config.and_then(|config| config.p4info).unwrap_or_default();
        let names = Names::new(&info)?;
        let (device, role) = (options.device, options.role.clone());
        Ok(Self { device, role, election, client, requests, answers, names })
    }

    /// Waits for the next list of digests.
    pub(crate) async fn digests(&mut self) -> Result<DigestList, Failure> {
        loop {
            match self.answers.message().await?.and_then(|message| message.update) {
                Some(Response::Digest(list)) if list.digest_id == self.names.digest() => return Ok(list),
                Some(Response::Arbitration(MasterArbitrationUpdate { status: Some(status), .. }))
                    if status.code != Code::Ok as i32 =>
                {
                    return Err(Failure::Taken { role: self.role.clone(), election: String::new() });
                }
                Some(Response::Error(error)) => return Err(Failure::Refused(error.message)),
                Some(_) => {}
                None => return Err(ended()),
            }
        }
    }

    /// Acknowledges a list of digests.
    pub(crate) async fn acknowledge(&self, list: &DigestList) -> Result<(), Failure> {
        let ack = DigestListAck { digest_id: list.digest_id, list_id: list.list_id };
        let message = StreamMessageRequest { update: Some(Request::DigestAck(ack)) };
        self.requests.send(message).await.map_err(|_| ended())
    }

    /// The program's names.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Has the switch send digests.
    pub(crate) async fn subscribe(&mut self) -> Result<(), Failure> {
        use p4runtime_proto::v1::update::Type;
        let insert = self.write_all(vec![self.names.subscription(Type::Insert)]).await?;
        if insert.failed == 0 {
            return Ok(());
        }
        // An agent before this one has inserted it.
        let modify = self.write_all(vec![self.names.subscription(Type::Modify)]).await?;
        match modify.first {
            None => Ok(()),
            Some(message) => Err(Failure::Refused(message)),
        }
    }

    /// Carries out changes.
    pub(crate) async fn change(&mut self, changes: &[Change]) -> Result<Written, Failure> {
        if changes.is_empty() {
            return Ok(Written::default());
        }
        let updates = changes.iter().map(|change| self.names.update(change)).collect();
        self.write_all(updates).await
    }

    /// Writes what can be written.
    async fn write_all(&mut self, updates: Vec<Update>) -> Result<Written, Failure> {
        let request = WriteRequest {
            device_id: self.device,
            role: self.role.clone(),
            election_id: Some(self.election),
            updates,
            ..WriteRequest::default()
        };
        let Err(status) = self.client.write(request).await else { return Ok(Written::default()) };
        let details = rpc::Status::decode(status.details()).map(|status| status.details).unwrap_or_default();
        if details.is_empty() {
            return Err(status.into());
        }
        let mut written = Written::default();
        for detail in details {
            let error = v1::Error::decode(&*detail.value).unwrap_or_default();
            match Code::from(error.canonical_code) {
                Code::Ok => continue,
                Code::PermissionDenied => return Err(Failure::Denied(error.message)),
                code => written.is_full |= code == Code::ResourceExhausted,
            }
            written.failed += 1;
            written.first.get_or_insert(error.message);
        }
        Ok(written)
    }

    /// Reads the cache, the generation and whether digests are sent.
    pub(crate) async fn read(&mut self) -> Result<Reading, Failure> {
        // Without a role: the current generation is another's to write.
        let request =
            ReadRequest { device_id: self.device, entities: self.names.wanted(), ..ReadRequest::default() };
        let mut parts = self.client.read(request).await?.into_inner();
        let mut reading = Reading::default();
        while let Some(part) = parts.message().await? {
            part.entities.into_iter().for_each(|entity| self.names.read(entity, &mut reading));
        }
        Ok(reading)
    }
}

fn ended() -> Failure {
    Failure::Closed("the switch has closed the stream".into())
}

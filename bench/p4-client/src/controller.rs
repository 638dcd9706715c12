//! A connection as the primary controller of a device.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use p4runtime_proto::v1::get_forwarding_pipeline_config_request::ResponseType;
use p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient;
use p4runtime_proto::v1::stream_message_request::Update as Request;
use p4runtime_proto::v1::stream_message_response::Update as Response;
use p4runtime_proto::v1::{
    GetForwardingPipelineConfigRequest, MasterArbitrationUpdate, StreamMessageRequest, Uint128,
};
use p4switch::Program;
use prost::bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};

use crate::encoded::Encoded;
use crate::failure::Failure;

/// A primary controller, as long as it is kept.
pub(crate) struct Controller {
    pub(crate) device: u64,
    pub(crate) election: Uint128,
    /// What runs there.
    pub(crate) program: Program,
    channel: Channel,
    _stream: mpsc::Sender<StreamMessageRequest>,
}

impl Controller {
    /// Connects, and becomes the primary.
    pub(crate) async fn connect(path: &Path, device: u64) -> Result<Self, Failure> {
        let failed = |error| Failure::Connect { path: path.to_owned(), error };
        let absolute = std::path::absolute(path)?;
        let endpoint = Endpoint::from_shared(format!("unix://{}", absolute.display())).map_err(failed)?;
        let channel = endpoint.connect().await.map_err(failed)?;
        let mut client = P4RuntimeClient::new(channel.clone()).max_decoding_message_size(usize::MAX);

        // The time, so that a later client takes over from an earlier one.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos());
        let election = Uint128 { high: (now >> 64) as u64, low: now as u64 };
        let (stream, requests) = mpsc::channel(1);
        let claim = MasterArbitrationUpdate {
            device_id: device,
            election_id: Some(election),
            ..MasterArbitrationUpdate::default()
        };
        // The channel has room for one.
        let _ = stream.try_send(StreamMessageRequest { update: Some(Request::Arbitration(claim)) });
        let mut answers = client.stream_channel(ReceiverStream::new(requests)).await?.into_inner();
        let first = answers.message().await?.and_then(|message| message.update);
        match first {
            Some(Response::Arbitration(MasterArbitrationUpdate { status: Some(status), .. }))
                if status.code == 0 => {}
            other => return Err(Failure::Backup(format!("{other:?}"))),
        }
        // Else packets for controllers would fill the connection's window.
        tokio::spawn(async move { while let Ok(Some(_)) = answers.message().await {} });

        let request =
            GetForwardingPipelineConfigRequest { device_id: device, response_type: ResponseType::All.into() };
        let config = client.get_forwarding_pipeline_config(request).await?.into_inner().config;
        let config = config.ok_or_else(|| Failure::Program(format!("device {device} has no program")))?;
        let program = Program::from_config(&config).map_err(|error| Failure::Program(error.to_string()))?;
        Ok(Self { device, election, program, channel, _stream: stream })
    }

    /// A call of `Write` with an encoded request.
    pub(crate) fn write(&self, request: Bytes) -> impl Future<Output = Result<(), Failure>> + Send + 'static {
        let mut client = Grpc::new(self.channel.clone());
        async move {
            client
                .ready()
                .await
                .map_err(|error| tonic::Status::unavailable(format!("the switch is gone: {error}")))?;
            let path = PathAndQuery::from_static("/p4.v1.P4Runtime/Write");
            client.unary(tonic::Request::new(request), path, Encoded).await?;
            Ok(())
        }
    }
}

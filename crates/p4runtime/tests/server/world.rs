//! A server and its controllers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use p4runtime::{Listen, Server, Settings};
use p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient;
use p4runtime_proto::v1::stream_message_request::Update as Request;
use p4runtime_proto::v1::stream_message_response::Update as Response;
use p4runtime_proto::v1::update::Type;
use p4runtime_proto::v1::{
    Entity, ForwardingPipelineConfig, MasterArbitrationUpdate, Role, StreamMessageRequest,
    StreamMessageResponse, TableEntry, Uint128, Update, WriteRequest, WriteResponse, entity,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use super::fake::Fake;

/// Time after which something that does not happen fails its test.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) type Client = P4RuntimeClient<Channel>;

pub(crate) struct World {
    pub(crate) device: Arc<Fake>,
    pub(crate) server: Server,
    pub(crate) socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl World {
    /// Starts a server on a Unix socket.
    pub(crate) fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("p4");
        let mut settings = Settings { listen: vec![Listen::Unix(socket.clone())], ..Settings::default() };
        change(&mut settings);
        let device = Arc::new(Fake::default());
        device.state.lock().unwrap().config = Some(Arc::new(ForwardingPipelineConfig::default()));
        let server = Server::start(&Handle::current(), settings, device.clone()).unwrap();
        Self { device, server, socket, _directory: directory }
    }

    /// Connects.
    pub(crate) async fn client(&self) -> Client {
        let endpoint = Endpoint::try_from(format!("unix:{}", self.socket.display())).unwrap();
        P4RuntimeClient::new(soon(endpoint.connect()).await.unwrap())
    }

    /// Connects and opens a stream.
    pub(crate) async fn controller(&self) -> Controller {
        Controller::open(self.client().await).await.unwrap()
    }

    /// Connects and claims the default role of device 1; takes the answer.
    pub(crate) async fn claimed(&self, election: u64) -> Controller {
        let mut controller = self.controller().await;
        controller.claim(1, None, Some(election.into())).await;
        controller.arbitration().await;
        controller
    }
}

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

pub(crate) struct Controller {
    pub(crate) client: Client,
    pub(crate) requests: mpsc::Sender<StreamMessageRequest>,
    pub(crate) answers: Streaming<StreamMessageResponse>,
}

impl Controller {
    pub(crate) async fn open(mut client: Client) -> Result<Self, Status> {
        let (requests, stream) = mpsc::channel(16);
        let answers = soon(client.stream_channel(ReceiverStream::new(stream))).await?.into_inner();
        Ok(Self { client, requests, answers })
    }

    pub(crate) async fn send(&self, update: Request) {
        soon(self.requests.send(StreamMessageRequest { update: Some(update) })).await.unwrap();
    }

    pub(crate) async fn claim(&self, device_id: u64, role: Option<Role>, election: Option<u128>) {
        let election_id = election.map(|id| Uint128 { high: (id >> 64) as u64, low: id as u64 });
        self.send(Request::Arbitration(MasterArbitrationUpdate {
            device_id,
            role,
            election_id,
            status: None,
        }))
        .await;
    }

    /// Returns the next message.
    pub(crate) async fn next(&mut self) -> Result<Response, Status> {
        let message = soon(self.answers.message()).await?.expect("the stream goes on");
        Ok(message.update.expect("the message has a content"))
    }

    /// Returns the next message, a notification of arbitration: its code, and the highest election id.
    pub(crate) async fn arbitration(&mut self) -> (Code, Option<u64>) {
        let update = self.full_arbitration().await;
        let status = update.status.unwrap();
        (Code::from(status.code), update.election_id.map(|id| id.low))
    }

    pub(crate) async fn full_arbitration(&mut self) -> MasterArbitrationUpdate {
        match self.next().await.unwrap() {
            Response::Arbitration(update) => update,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the status with which the stream ends.
    pub(crate) async fn end(&mut self) -> Status {
        loop {
            match soon(self.answers.message()).await {
                Ok(message) => assert!(message.is_some(), "the stream ends without a status"),
                Err(status) => return status,
            }
        }
    }

    /// Writes under an election id of the default role of device 1.
    pub(crate) async fn write(
        &mut self,
        election: u64,
        updates: Vec<Update>,
    ) -> Result<WriteResponse, Status> {
        let election_id = Some(Uint128 { high: 0, low: election });
        let request = WriteRequest { device_id: 1, election_id, updates, ..WriteRequest::default() };
        Ok(soon(self.client.write(request)).await?.into_inner())
    }
}

pub(crate) fn named(name: &str) -> Option<Role> {
    Some(Role { name: name.into(), ..Role::default() })
}

/// An entry of a table, told from others by its priority.
pub(crate) fn entry(table_id: u32, priority: i32) -> Entity {
    let entry = TableEntry { table_id, priority, ..TableEntry::default() };
    Entity { entity: Some(entity::Entity::TableEntry(entry)) }
}

pub(crate) fn insert(table_id: u32, priority: i32) -> Update {
    Update { r#type: Type::Insert as i32, entity: Some(entry(table_id, priority)) }
}

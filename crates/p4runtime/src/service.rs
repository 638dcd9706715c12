//! The calls of P4Runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use p4runtime_proto::v1::get_forwarding_pipeline_config_request::ResponseType;
use p4runtime_proto::v1::p4_runtime_server::P4Runtime;
use p4runtime_proto::v1::set_forwarding_pipeline_config_request::Action;
use p4runtime_proto::v1::write_request::Atomicity;
use p4runtime_proto::v1::{
    CapabilitiesRequest, CapabilitiesResponse, Entity, ForwardingPipelineConfig,
    GetForwardingPipelineConfigRequest, GetForwardingPipelineConfigResponse, ReadRequest, ReadResponse,
    SetForwardingPipelineConfigRequest, SetForwardingPipelineConfigResponse, StreamMessageRequest,
    StreamMessageResponse, Uint128, WriteRequest, WriteResponse,
};
use p4switch::{Device, InstallAction};
use prost::Message;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tonic::{Request, Response, Status, Streaming};

use crate::connection::Peer;
use crate::limited_role::LimitedRole;
use crate::outbox::{Outbox, Outgoing, Refused, Room};
use crate::role::RoleName;
use crate::sessions::{Sessions, from_message};
use crate::settings::{Limits, Settings};
use crate::stream;
use crate::write_error;

/// Version of P4Runtime.
const VERSION: &str = "1.5.0";

/// State shared by all calls.
pub(crate) struct Shared {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) limits: Limits,
    pub(crate) sessions: Arc<Sessions>,
    /// Writes and changes of the program take turns.
    pub(crate) turn: Arc<Mutex<()>>,
    devices: BTreeSet<u64>,
    roles: BTreeMap<String, Arc<LimitedRole>>,
    only_listed_roles: bool,
    writes: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

impl Shared {
    pub(crate) fn new(settings: Settings, device: Arc<dyn Device>) -> Arc<Self> {
        let limits = settings.limits;
        let sessions = Sessions::new(&limits);
        let place = |count| Arc::new(Semaphore::new(count));
        let (writes, reads, streams) = (place(limits.writes), place(limits.reads), place(limits.streams));
        let Settings { devices, only_listed_roles, .. } = settings;
        let roles = settings.roles.into_iter().map(|(name, role)| (name, Arc::new(role))).collect();
        let turn = Arc::default();
        Arc::new(Self {
            device,
            limits,
            sessions,
            turn,
            devices,
            roles,
            only_listed_roles,
            writes,
            reads,
            streams,
        })
    }

    /// Returns the limits of a role; `None` if it has full access.
    pub(crate) fn limits_of(&self, role: &RoleName) -> Option<&Arc<LimitedRole>> {
        match role {
            RoleName::Name(name) => self.roles.get(name),
            RoleName::Default | RoleName::Number(_) => None,
        }
    }

    /// Checks that controllers may claim a role.
    pub(crate) fn check_role(&self, role: &RoleName) -> Result<(), Status> {
        if !self.only_listed_roles || self.limits_of(role).is_some() {
            return Ok(());
        }
        let known: Vec<_> = self.roles.keys().map(|name| format!("{name:?}")).collect();
        let known = if known.is_empty() { "none is".into() } else { known.join(", ") };
        Err(Status::permission_denied(format!(
            "{role} is not listed in the switch's configuration (listed: {known})"
        )))
    }

    pub(crate) fn check_device(&self, device: u64) -> Result<(), Status> {
        if self.devices.contains(&device) {
            return Ok(());
        }
        let known: Vec<_> = self.devices.iter().map(u64::to_string).collect();
        Err(Status::not_found(format!("there is no device {device} here (expected {})", known.join(" or "))))
    }

    /// Checks that a request comes from a primary.
    pub(crate) fn authorize(&self, by: &Requester) -> Result<(), Status> {
        self.check_device(by.device)?;
        self.sessions.check(&by.role, by.election)
    }

    /// Waits for the places of a read.
    pub(crate) async fn read_places(
        &self,
        peer: Option<&Peer>,
        share: Option<OwnedSemaphorePermit>,
    ) -> Result<ReadPlaces, Status> {
        let own = peer.ok_or_else(no_connection)?.reads.clone();
        let own = own.acquire_owned().await.map_err(|_| closed())?;
        let place = self.reads.clone().acquire_owned().await.map_err(|_| closed())?;
        Ok(ReadPlaces(Arc::new([Some(own), Some(place), share])))
    }

    /// Waits for the turn of a request that changes the device.
    async fn turn(&self, by: &Requester) -> Result<Turn, Status> {
        self.authorize(by)?;
        let place = self.writes.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "{} writes wait for the switch, the most that it keeps; try again later",
                self.limits.writes
            ))
        })?;
        let turn = self.turn.clone().lock_owned().await;
        // Another controller may have become primary in the meantime.
        self.authorize(by)?;
        Ok(Turn { _turn: turn, _place: place })
    }
}

/// Places of a read, and its share of the common bytes, if it is long. They are free once all clones are dropped.
#[derive(Clone)]
pub(crate) struct ReadPlaces(
    #[allow(dead_code, reason = "kept until dropped")] Arc<[Option<OwnedSemaphorePermit>; 3]>,
);

/// The right to change the device.
struct Turn {
    _turn: OwnedMutexGuard<()>,
    _place: OwnedSemaphorePermit,
}

/// The controller that a request names as its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Requester {
    device: u64,
    role: RoleName,
    election: Option<u128>,
}

impl Requester {
    pub(crate) fn new(device: u64, role: &str, number: u64, election: Option<Uint128>) -> Self {
        Self { device, role: RoleName::new(role, number), election: election.map(from_message) }
    }
}

/// Runs a call of the device, which may block, on a thread for blocking work.
pub(crate) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(call)
        .await
        .map_err(|error| Status::internal(format!("the call failed: {error}; this is a bug in mswitch")))
}

/// The service.
#[derive(Clone)]
pub(crate) struct Service(pub(crate) Arc<Shared>);

#[tonic::async_trait]
impl P4Runtime for Service {
    async fn capabilities(
        &self,
        request: Request<CapabilitiesRequest>,
    ) -> Result<Response<CapabilitiesResponse>, Status> {
        match request.into_inner().device_id {
            // Unset: the server's own capabilities.
            0 => {}
            device => self.0.check_device(device)?,
        }
        let p4runtime_api_version = VERSION.into();
        Ok(Response::new(CapabilitiesResponse { p4runtime_api_version, experimental: None }))
    }

    #[allow(deprecated, reason = "controllers of version 1.2 send role numbers")]
    async fn write(&self, request: Request<WriteRequest>) -> Result<Response<WriteResponse>, Status> {
        let request = request.into_inner();
        let by = Requester::new(request.device_id, &request.role, request.role_id, request.election_id);
        let turn = self.0.turn(&by).await?;
        let atomicity = Atomicity::try_from(request.atomicity).map_err(|_| {
            Status::invalid_argument(format!("atomicity {} is unknown (expected 0 to 2)", request.atomicity))
        })?;
        let device = self.0.device.clone();
        let limit = self.0.limits.error_details;
        let limits = self.0.limits_of(&by.role).cloned();
        let written = blocking(move || {
            let access = limits.as_ref().map(|limits| &limits.access);
            let written = device.write(&request.updates, atomicity, access);
            // The turn ends here even if the caller has gone.
            drop(turn);
            written.map_err(|failure| write_error::status(failure, limit))
        });
        written.await?.map(|()| Response::new(WriteResponse {}))
    }

    #[allow(deprecated, reason = "controllers of version 1.2 send role numbers")]
    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<SetForwardingPipelineConfigResponse>, Status> {
        let request = request.into_inner();
        let by = Requester::new(request.device_id, &request.role, request.role_id, request.election_id);
        let turn = self.0.turn(&by).await?;
        if self.0.limits_of(&by.role).is_some() {
            return Err(Status::permission_denied(format!(
                "{} has limits and may not set the program; use a role without limits",
                by.role
            )));
        }
        let action = install_action(request.action, request.config.as_ref())?;
        let device = self.0.device.clone();
        let installed = blocking(move || {
            let installed = device.install(action, request.config.as_ref());
            drop(turn);
            installed
        });
        installed.await?.map_err(write_error::plain)?;
        Ok(Response::new(SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<GetForwardingPipelineConfigResponse>, Status> {
        let request = request.into_inner();
        self.0.check_device(request.device_id)?;
        let wanted = ResponseType::try_from(request.response_type).map_err(|_| {
            Status::invalid_argument(format!(
                "response type {} is unknown (expected 0 to 3)",
                request.response_type
            ))
        })?;
        let device = self.0.device.clone();
        let config = blocking(move || device.config()).await?;
        let config = config.map(|config| selected(&config, wanted));
        Ok(Response::new(GetForwardingPipelineConfigResponse { config }))
    }

    type ReadStream = Outgoing<ReadResponse>;

    async fn read(&self, mut request: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        self.0.check_device(request.get_ref().device_id)?;
        let places = request.extensions_mut().remove::<ReadPlaces>().ok_or_else(no_connection)?;
        let room = Room { messages: usize::MAX, bytes: self.0.limits.read_bytes };
        let (outbox, outgoing) = Outbox::new(room);
        tokio::spawn(read(self.0.clone(), request.into_inner(), outbox, places));
        Ok(Response::new(outgoing))
    }

    type StreamChannelStream = Outgoing<StreamMessageResponse>;

    async fn stream_channel(
        &self,
        request: Request<Streaming<StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let Limits { streams, connection_streams, .. } = self.0.limits;
        let peer = request.extensions().get::<Peer>().ok_or_else(no_connection)?;
        let own = peer.streams.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "the connection has {connection_streams} streams, the most that it may have; close one first"
            ))
        })?;
        let place = self.0.streams.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "{streams} streams are open, the most that the switch serves; close one first"
            ))
        })?;
        let (seat, mut outgoing) = self.0.sessions.open()?;
        outgoing.keep(own);
        outgoing.keep(place);
        tokio::spawn(stream::serve(self.0.clone(), seat, request.into_inner()));
        Ok(Response::new(outgoing))
    }
}

fn no_connection() -> Status {
    Status::internal("the call has no connection; this is a bug in mswitch")
}

fn closed() -> Status {
    Status::unavailable("the server is stopping")
}

/// Checks an action and whether it has a program where it needs one.
fn install_action(action: i32, config: Option<&ForwardingPipelineConfig>) -> Result<InstallAction, Status> {
    let action = Action::try_from(action)
        .map_err(|_| Status::invalid_argument(format!("action {action} is unknown (expected 1 to 5)")))?;
    let install = match action {
        Action::Unspecified => return Err(Status::invalid_argument("the request has no action")),
        Action::Verify => InstallAction::Verify,
        Action::VerifyAndSave => InstallAction::VerifyAndSave,
        Action::VerifyAndCommit => InstallAction::VerifyAndCommit,
        Action::Commit => InstallAction::Commit,
        Action::ReconcileAndCommit => InstallAction::ReconcileAndCommit,
    };
    let name = action.as_str_name();
    match (install, config) {
        (InstallAction::Commit, Some(_)) => Err(Status::invalid_argument(format!(
            "{name} takes the config that was saved; the request has another one"
        ))),
        (InstallAction::Commit, None) | (_, Some(_)) => Ok(install),
        (_, None) => Err(Status::invalid_argument(format!("{name} needs a config; the request has none"))),
    }
}

/// The parts of a config that a response of this type has.
fn selected(config: &ForwardingPipelineConfig, wanted: ResponseType) -> ForwardingPipelineConfig {
    let has_info = matches!(wanted, ResponseType::All | ResponseType::P4infoAndCookie);
    let has_program = matches!(wanted, ResponseType::All | ResponseType::DeviceConfigAndCookie);
    ForwardingPipelineConfig {
        p4info: config.p4info.clone().filter(|_| has_info),
        p4_device_config: if has_program { config.p4_device_config.clone() } else { vec![] },
        cookie: config.cookie,
    }
}

/// Reads entities. The reader keeps its places until it has taken all parts, closes the call, or stalls.
async fn read(
    shared: Arc<Shared>,
    request: ReadRequest,
    outbox: Arc<Outbox<ReadResponse>>,
    places: ReadPlaces,
) {
    let stall = shared.limits.stall;
    let slow = || {
        Status::deadline_exceeded(format!("nothing has been read for {} s; read again", stall.as_secs_f32()))
    };
    let (device, parts) = (shared.device.clone(), outbox.clone());
    let limits = shared.limits_of(&RoleName::new(&request.role, 0)).cloned();
    let done = blocking(move || {
        let mut is_slow = false;
        let config = limits.as_ref().and_then(|_| device.config());
        let info = config.as_ref().and_then(|config| config.p4info.as_ref());
        let done = device.read(&request.entities, &mut |mut entities| {
            if let Some(limits) = &limits {
                let own = |entity: &Entity| info.is_some_and(|info| limits.access.has_entity(info, entity));
                entities.retain(own);
                if entities.is_empty() {
                    return true;
                }
            }
            let part = ReadResponse { entities };
            let bytes = part.encoded_len();
            let pushed = parts.push_waiting(part, bytes, stall);
            is_slow |= pushed == Err(Refused::Full);
            pushed.is_ok()
        });
        (done, is_slow)
    });
    match done.await {
        Ok((_, true)) => outbox.fail(slow()),
        Ok((done, false)) => outbox.finish(done.map_err(write_error::plain)),
        Err(status) => outbox.fail(status),
    }
    let mut before = None;
    while let Some(progress) = outbox.progress() {
        if before == Some(progress) {
            outbox.fail(slow());
        }
        before = Some(progress);
        tokio::select! {
            () = tokio::time::sleep(stall) => {}
            () = outbox.drained() => {}
        }
    }
    drop(places);
}

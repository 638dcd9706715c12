//! A device without a data plane: it keeps entities, and sends packets back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use p4runtime_proto::v1::stream_message_response::Update as Message;
use p4runtime_proto::v1::update::Type;
use p4runtime_proto::v1::write_request::Atomicity;
use p4runtime_proto::v1::{
    DigestListAck, Entity, ForwardingPipelineConfig, PacketIn, PacketOut, StreamMessageResponse, TableEntry,
    Update, entity,
};
use p4switch::{Access, Code, Device, Failure, InstallAction, Listener, WriteFailure};

/// Entities in a part of an answer.
pub(crate) const PART: usize = 100;

/// The device.
#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) state: Mutex<State>,
    /// Writes wait while it is true.
    held: Mutex<bool>,
    released: Condvar,
    /// Writes that have started.
    started: tokio::sync::Notify,
    running: AtomicUsize,
    /// Most writes that ran at once.
    pub(crate) most_running: AtomicUsize,
    /// Parts that reads have emitted.
    pub(crate) emitted: AtomicUsize,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) config: Option<Arc<ForwardingPipelineConfig>>,
    pub(crate) actions: Vec<InstallAction>,
    pub(crate) entities: Vec<Entity>,
    pub(crate) packets: Vec<PacketOut>,
    listener: Option<Listener>,
}

impl Fake {
    /// Sends a message to controllers.
    pub(crate) fn emit(&self, message: Message) {
        let state = self.state.lock().unwrap();
        let info = state.config.as_ref().and_then(|config| config.p4info.clone()).unwrap_or_default();
        state.listener.as_ref().unwrap()(StreamMessageResponse { update: Some(message) }, &info);
    }

    /// Makes writes wait.
    pub(crate) fn hold(&self, is_held: bool) {
        *self.held.lock().unwrap() = is_held;
        self.released.notify_all();
    }

    /// Waits until one write more has started.
    pub(crate) async fn write_started(&self) {
        self.started.notified().await;
    }

    fn apply(state: &mut State, update: &Update) -> Result<(), Failure> {
        let Some(entity @ Entity { entity: Some(entity::Entity::TableEntry(entry)) }) = &update.entity else {
            return Err(Failure::new(Code::Unimplemented, "not a table entry"));
        };
        if entry.table_id == 0 {
            return Err(Failure::new(Code::InvalidArgument, "table_id is not set"));
        }
        let is_same = |other: &Entity| {
            matches!(&other.entity, Some(entity::Entity::TableEntry(TableEntry { table_id, r#match, priority, .. }))
                if (*table_id, r#match, *priority) == (entry.table_id, &entry.r#match, entry.priority))
        };
        let at = state.entities.iter().position(is_same);
        match (update.r#type(), at) {
            (Type::Insert, None) => state.entities.push(entity.clone()),
            (Type::Insert, Some(_)) => return Err(Failure::new(Code::AlreadyExists, "the entry exists")),
            (Type::Modify, Some(at)) => state.entities[at] = entity.clone(),
            (Type::Delete, Some(at)) => drop(state.entities.remove(at)),
            _ => return Err(Failure::new(Code::NotFound, "there is no such entry")),
        }
        Ok(())
    }
}

impl Device for Fake {
    fn write(
        &self,
        updates: &[Update],
        _atomicity: Atomicity,
        access: Option<&Access>,
    ) -> Result<(), WriteFailure> {
        self.most_running.fetch_max(self.running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        self.started.notify_one();
        let held = self.held.lock().unwrap();
        drop(self.released.wait_while(held, |is_held| *is_held).unwrap());
        self.running.fetch_sub(1, Ordering::SeqCst);
        let mut state = self.state.lock().unwrap();
        let Some(config) = state.config.clone() else {
            return Err(Failure::new(Code::FailedPrecondition, "there is no program").into());
        };
        let info = config.p4info.clone().unwrap_or_default();
        let permitted = |update| access.map_or(Ok(()), |access| access.check(&info, update));
        let apply = |update| permitted(update).and_then(|()| Self::apply(&mut state, update));
        let results: Vec<_> = updates.iter().map(apply).collect();
        if results.iter().all(Result::is_ok) { Ok(()) } else { Err(WriteFailure::Updates(results)) }
    }

    fn read(&self, entities: &[Entity], emit: &mut dyn FnMut(Vec<Entity>) -> bool) -> Result<(), Failure> {
        let Some(Entity { entity: Some(entity::Entity::TableEntry(wanted)) }) = entities.first() else {
            return Err(Failure::new(Code::InvalidArgument, "not a table entry"));
        };
        let wanted = |entity: &&Entity| {
            matches!(&entity.entity, Some(entity::Entity::TableEntry(entry))
                if [0, entry.table_id].contains(&wanted.table_id))
        };
        let found: Vec<_> = self.state.lock().unwrap().entities.iter().filter(wanted).cloned().collect();
        for part in found.chunks(PART) {
            if !emit(part.to_vec()) {
                return Ok(());
            }
            self.emitted.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    fn install(
        &self,
        action: InstallAction,
        config: Option<&ForwardingPipelineConfig>,
    ) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap();
        if config.is_some_and(|config| config.p4_device_config == b"wrong") {
            return Err(Failure::new(Code::InvalidArgument, "the program is wrong"));
        }
        state.actions.push(action);
        if action != InstallAction::Verify {
            state.config = config.cloned().map(Arc::new);
        }
        if action == InstallAction::VerifyAndCommit {
            state.entities.clear();
        }
        Ok(())
    }

    fn config(&self) -> Option<Arc<ForwardingPipelineConfig>> {
        self.state.lock().unwrap().config.clone()
    }

    fn packet_out(&self, packet: &PacketOut) -> Result<(), Failure> {
        if packet.payload.is_empty() {
            return Err(Failure::new(Code::InvalidArgument, "the packet is empty"));
        }
        self.state.lock().unwrap().packets.push(packet.clone());
        self.emit(Message::Packet(PacketIn {
            payload: packet.payload.clone(),
            metadata: packet.metadata.clone(),
        }));
        Ok(())
    }

    fn acknowledge(&self, ack: &DigestListAck) -> Result<(), Failure> {
        match ack.digest_id {
            1 => Ok(()),
            other => Err(Failure::new(Code::InvalidArgument, format!("there is no digest {other}"))),
        }
    }

    fn listen(&self, listener: Listener) {
        self.state.lock().unwrap().listener = Some(listener);
    }
}

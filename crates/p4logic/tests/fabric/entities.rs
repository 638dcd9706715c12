//! What controllers write to the program `ops`.

use p4runtime_proto::P4Info;
use p4runtime_proto::v1::action::Param;
use p4runtime_proto::v1::digest_entry::Config;
use p4runtime_proto::v1::entity::Entity as Kind;
use p4runtime_proto::v1::field_match::{Exact, FieldMatchType};
use p4runtime_proto::v1::packet_replication_engine_entry::Type as Engine;
use p4runtime_proto::v1::replica::PortKind;
use p4runtime_proto::v1::table_action::Type as ActionKind;
use p4runtime_proto::v1::update::Type;
use p4runtime_proto::v1::write_request::Atomicity;
use p4runtime_proto::v1::{
    Action, CloneSessionEntry, DigestEntry, Entity, FieldMatch, MulticastGroupEntry, PacketMetadata,
    PacketOut, PacketReplicationEngineEntry, Replica, TableAction, TableEntry, Update,
};
use p4switch::Device;

use crate::rig::Rig;

/// A value without leading zero bytes.
pub fn bytes(value: u64) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count().min(7);
    bytes[zeros..].to_vec()
}

fn update(ty: Type, kind: Kind) -> Update {
    Update { r#type: ty.into(), entity: Some(Entity { entity: Some(kind) }) }
}

/// An entry of the table `stations`: a station whose address ends with this byte is at a port.
pub fn station(info: &P4Info, ty: Type, station: u8, port: u64) -> Update {
    let table = info.tables.iter().filter_map(|table| table.preamble.as_ref());
    let table = { table }.find(|preamble| preamble.name.ends_with("stations")).unwrap();
    let action = info.actions.iter().filter_map(|action| action.preamble.as_ref());
    let action = { action }.find(|preamble| preamble.name.ends_with("forward")).unwrap();
    let exact = Exact { value: bytes(0x0200_0000_0000 + u64::from(station)) };
    let entry = TableEntry {
        table_id: table.id,
        r#match: vec![FieldMatch { field_id: 1, field_match_type: Some(FieldMatchType::Exact(exact)) }],
        action: Some(TableAction {
            r#type: Some(ActionKind::Action(Action {
                action_id: action.id,
                params: vec![Param { param_id: 1, value: bytes(port) }],
            })),
        }),
        ..TableEntry::default()
    };
    update(ty, Kind::TableEntry(entry))
}

fn replicas(list: &[(u64, u32)]) -> Vec<Replica> {
    let replica = |(port, instance): &(u64, u32)| Replica {
        instance: *instance,
        port_kind: Some(PortKind::Port(bytes(*port))),
        ..Replica::default()
    };
    list.iter().map(replica).collect()
}

fn engine(engine: Engine) -> Update {
    let entry = PacketReplicationEngineEntry { r#type: Some(engine) };
    update(Type::Insert, Kind::PacketReplicationEngineEntry(entry))
}

/// A multicast group with ports and numbers of copies.
pub fn group(id: u32, list: &[(u64, u32)]) -> Update {
    let replicas = replicas(list);
    engine(Engine::MulticastGroupEntry(MulticastGroupEntry {
        multicast_group_id: id,
        replicas,
        ..MulticastGroupEntry::default()
    }))
}

/// A clone session.
pub fn session(id: u32, list: &[(u64, u32)]) -> Update {
    let replicas = replicas(list);
    engine(Engine::CloneSessionEntry(CloneSessionEntry {
        session_id: id,
        replicas,
        ..CloneSessionEntry::default()
    }))
}

/// Lists of digests of so many each, which wait for so many milliseconds.
pub fn digests(info: &P4Info, most: i32, wait: i64) -> Update {
    let digest = info.digests.first().unwrap();
    let config =
        Config { max_timeout_ns: wait * 1_000_000, max_list_size: most, ack_timeout_ns: 600_000_000_000 };
    let digest_id = digest.preamble.as_ref().unwrap().id;
    update(Type::Insert, Kind::DigestEntry(DigestEntry { digest_id, config: Some(config) }))
}

/// A packet to a port.
pub fn packet_out(port: u64, payload: &[u8]) -> PacketOut {
    let metadata = |metadata_id, value| PacketMetadata { metadata_id, value: bytes(value) };
    PacketOut { payload: payload.to_vec(), metadata: vec![metadata(1, port), metadata(2, 0)] }
}

impl Rig {
    pub fn info(&self) -> P4Info {
        self.logic.config().unwrap().p4info.clone().unwrap()
    }

    /// Writes what is accepted.
    pub fn write(&self, updates: &[Update]) {
        self.logic.write(updates, Atomicity::ContinueOnError, None).unwrap();
    }
}

//! Roles with limits: what they may write, read and receive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use p4runtime::{LimitedRole, Settings};
use p4runtime_proto::v1::set_forwarding_pipeline_config_request::Action;
use p4runtime_proto::v1::stream_message_request::Update as Request;
use p4runtime_proto::v1::stream_message_response::Update as Response;
use p4runtime_proto::v1::{
    DigestList, DigestListAck, ForwardingPipelineConfig, IdleTimeoutNotification, PacketIn, PacketOut,
    ReadRequest, SetForwardingPipelineConfigRequest, TableEntry, Uint128, Update, WriteRequest,
};
use p4runtime_proto::{P4Info, rpc, v1};
use p4switch::{Access, ObjectKind};
use prost::Message;
use tonic::{Code, Status};

use super::world::{Controller, World, entry, insert, named, soon};

/// The tables `cache` (1) and `rules` (2), and the digests `hit_t` (1) and `other_t` (2).
fn info() -> P4Info {
    use p4::info::proto::{Digest, Preamble, Table};
    let preamble = |id, name: &str, alias: &str| {
        Some(Preamble { id, name: name.into(), alias: alias.into(), ..Default::default() })
    };
    P4Info {
        tables: vec![
            Table { preamble: preamble(1, "Ingress.cache", "cache"), ..Default::default() },
            Table { preamble: preamble(2, "Ingress.rules", "rules"), ..Default::default() },
        ],
        digests: vec![
            Digest { preamble: preamble(1, "hit_t", "hit_t"), ..Default::default() },
            Digest { preamble: preamble(2, "other_t", "other_t"), ..Default::default() },
        ],
        ..Default::default()
    }
}

fn cache() -> LimitedRole {
    let names = |name: &str| BTreeSet::from([name.to_owned()]);
    let objects = BTreeMap::from([(ObjectKind::Table, names("cache")), (ObjectKind::Digest, names("hit_t"))]);
    let access = Access { role: "cache".into(), objects, max_entries: Some(2), read_only: false };
    LimitedRole { access, packets: false, packet_rate: None }
}

/// A world whose role `cache` has limits.
fn world(role: LimitedRole, change: impl FnOnce(&mut Settings)) -> World {
    let world = World::new(|settings| {
        settings.roles.insert("cache".into(), role);
        change(settings);
    });
    let config = ForwardingPipelineConfig { p4info: Some(info()), ..Default::default() };
    world.device.state.lock().unwrap().config = Some(Arc::new(config));
    world
}

async fn claimed(world: &World, role: &str) -> Controller {
    let mut controller = world.controller().await;
    controller.claim(1, named(role), Some(1)).await;
    assert_eq!(controller.arbitration().await.0, Code::Ok);
    controller
}

async fn write(controller: &mut Controller, role: &str, updates: Vec<Update>) -> Result<(), Status> {
    let election_id = Some(Uint128 { high: 0, low: 1 });
    let request =
        WriteRequest { device_id: 1, role: role.into(), election_id, updates, ..Default::default() };
    soon(controller.client.write(request)).await.map(drop)
}

#[tokio::test]
async fn a_role_writes_its_own_tables() {
    let world = world(cache(), |_| ());
    let mut agent = claimed(&world, "cache").await;
    let refused = write(&mut agent, "cache", vec![insert(1, 1), insert(2, 1)]).await.unwrap_err();
    let details = rpc::Status::decode(refused.details()).unwrap().details;
    let errors: Vec<_> = details.iter().map(|any| v1::Error::decode(any.value.as_slice()).unwrap()).collect();
    let codes: Vec<_> = errors.iter().map(|error| Code::from(error.canonical_code)).collect();
    assert_eq!(codes, [Code::Ok, Code::PermissionDenied]);
    assert_eq!(errors[1].message, "role \"cache\" may not write table Ingress.rules (it has tables: cache)");
    // A role that is not listed has full access.
    let mut operator = claimed(&world, "operator").await;
    write(&mut operator, "operator", vec![insert(2, 1)]).await.unwrap();
    assert_eq!(world.device.state.lock().unwrap().entities.len(), 2);

    let set = |role: &str| SetForwardingPipelineConfigRequest {
        device_id: 1,
        role: role.into(),
        election_id: Some(Uint128 { high: 0, low: 1 }),
        action: Action::Verify.into(),
        config: Some(ForwardingPipelineConfig::default()),
        ..Default::default()
    };
    let refused = soon(agent.client.set_forwarding_pipeline_config(set("cache"))).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (
            Code::PermissionDenied,
            "role \"cache\" has limits and may not set the program; use a role without limits"
        )
    );
    soon(operator.client.set_forwarding_pipeline_config(set("operator"))).await.unwrap();
}

#[tokio::test]
async fn a_read_only_role_writes_nothing() {
    let mut role = cache();
    role.access.read_only = true;
    let world = world(role, |_| ());
    let mut agent = claimed(&world, "cache").await;
    let refused = write(&mut agent, "cache", vec![insert(1, 1)]).await.unwrap_err();
    assert_eq!(refused.message(), "1 of 1 update failed; first: update 1: role \"cache\" is read-only");
    assert_eq!(world.device.state.lock().unwrap().entities.len(), 0);
}

#[tokio::test]
async fn reads_are_whole_unless_they_name_the_role() {
    let world = world(cache(), |_| ());
    world.device.state.lock().unwrap().entities = vec![entry(1, 1), entry(2, 1), entry(2, 2)];
    let mut reader = world.client().await;
    for (role, expected) in [("", 3), ("cache", 1), ("unlisted", 3)] {
        let request = ReadRequest { device_id: 1, role: role.into(), entities: vec![entry(0, 0)] };
        let mut parts = soon(reader.read(request)).await.unwrap().into_inner();
        let mut count = 0;
        while let Some(part) = soon(parts.message()).await.unwrap() {
            count += part.entities.len();
        }
        assert_eq!(count, expected, "{role}");
    }
}

#[tokio::test]
async fn a_stream_has_the_messages_of_its_role() {
    let world = world(cache(), |_| ());
    let mut agent = claimed(&world, "cache").await;
    let mut operator = claimed(&world, "operator").await;
    let idle = |tables: &[u32]| {
        let entry = |table_id: &u32| TableEntry { table_id: *table_id, ..Default::default() };
        let table_entry = tables.iter().map(entry).collect();
        Response::IdleTimeoutNotification(IdleTimeoutNotification { table_entry, timestamp: 5 })
    };
    let digest = |digest_id| Response::Digest(DigestList { digest_id, ..Default::default() });
    let messages = [Response::Packet(PacketIn::default()), digest(2), idle(&[2]), idle(&[2, 1]), digest(1)];
    for message in &messages {
        world.device.emit(message.clone());
    }
    for message in messages {
        assert_eq!(operator.next().await.unwrap(), message);
    }
    assert_eq!(agent.next().await.unwrap(), idle(&[1]));
    assert_eq!(agent.next().await.unwrap(), digest(1));

    agent.send(Request::Packet(PacketOut { payload: vec![1], ..Default::default() })).await;
    agent.send(Request::DigestAck(DigestListAck { digest_id: 2, list_id: 1 })).await;
    for expected in
        ["role \"cache\" may not send packets (`packet-in` is off)", "role \"cache\" does not have digest 2"]
    {
        let Response::Error(error) = agent.next().await.unwrap() else { panic!("an error") };
        assert_eq!(
            (Code::from(error.canonical_code), &error.message[..]),
            (Code::PermissionDenied, expected)
        );
    }
    assert_eq!(world.device.state.lock().unwrap().packets.len(), 0);

    // With nobody else, a packet is for nobody.
    drop(operator);
    let before = world.server.counters();
    soon(async {
        while world.server.counters().unheard == before.unheard {
            world.device.emit(Response::Packet(PacketIn::default()));
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn packets_have_a_rate() {
    let world = world(LimitedRole { packets: true, packet_rate: Some(10), ..cache() }, |_| ());
    let mut agent = claimed(&world, "cache").await;
    const COUNT: u64 = 500;
    for number in 0..COUNT {
        world
            .device
            .emit(Response::Packet(PacketIn { payload: number.to_be_bytes().to_vec(), metadata: vec![] }));
    }
    let counters = world.server.counters();
    assert_eq!(counters.queued + counters.limited, COUNT);
    assert!(counters.queued >= 10 && counters.limited > 0, "{counters:?}");
    // Digests are not packets.
    world.device.emit(Response::Digest(DigestList { digest_id: 1, ..Default::default() }));
    for _ in 0..counters.queued {
        assert!(matches!(agent.next().await, Ok(Response::Packet(_))));
    }
    assert!(matches!(agent.next().await, Ok(Response::Digest(_))));
    agent.send(Request::Packet(PacketOut { payload: vec![1], ..Default::default() })).await;
    soon(async {
        while world.device.state.lock().unwrap().packets.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_new_stream_has_no_more_packets() {
    let world = world(LimitedRole { packets: true, packet_rate: Some(1), ..cache() }, |_| ());
    let start = std::time::Instant::now();
    for election in 1..=20 {
        let mut agent = world.controller().await;
        agent.claim(1, named("cache"), Some(election)).await;
        assert_eq!(agent.arbitration().await.0, Code::Ok);
        for _ in 0..10 {
            world.device.emit(Response::Packet(PacketIn::default()));
        }
    }
    let most = 2 + start.elapsed().as_secs();
    let counters = world.server.counters();
    assert!((1..=most).contains(&counters.queued), "{counters:?}, expected at most {most}");
}

#[tokio::test]
async fn only_listed_roles_can_be_claimed() {
    let world = world(cache(), |settings| settings.only_listed_roles = true);
    let _agent = claimed(&world, "cache").await;
    for (role, who) in [(named("other"), "role \"other\""), (None, "the default role")] {
        let mut controller = world.controller().await;
        controller.claim(1, role, Some(1)).await;
        let status = controller.end().await;
        let message = format!("{who} is not listed in the switch's configuration (listed: \"cache\")");
        assert_eq!((status.code(), status.message()), (Code::PermissionDenied, &message[..]));
    }
}

//! Calls: writes, reads, programs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use p4runtime_proto::v1::forwarding_pipeline_config::Cookie;
use p4runtime_proto::v1::get_forwarding_pipeline_config_request::ResponseType;
use p4runtime_proto::v1::set_forwarding_pipeline_config_request::Action;
use p4runtime_proto::v1::{
    CapabilitiesRequest, ForwardingPipelineConfig, GetForwardingPipelineConfigRequest, ReadRequest,
    SetForwardingPipelineConfigRequest, TableEntry, Uint128, Update, WriteRequest,
};
use p4runtime_proto::{P4Info, rpc, v1};
use p4switch::InstallAction;
use prost::Message;
use tonic::Code;

use super::fake::PART;
use super::world::{Controller, World, entry, insert, soon};

fn low(low: u64) -> Option<Uint128> {
    Some(Uint128 { high: 0, low })
}

#[tokio::test]
async fn only_a_primary_writes() {
    let world = World::new(|_| ());
    let mut controller = world.controller().await;
    let nobody = controller.write(1, vec![]).await.unwrap_err();
    assert_eq!(
        (nobody.code(), nobody.message()),
        (
            Code::PermissionDenied,
            "no controller has claimed the default role with an election id; open a stream and claim it first"
        )
    );
    controller.claim(1, None, Some(7)).await;
    controller.arbitration().await;
    let mut backup = world.claimed(6).await;
    controller.write(7, vec![insert(1, 1)]).await.unwrap();
    let request =
        WriteRequest { device_id: 1, election_id: low(7), updates: vec![insert(1, 2)], ..Default::default() };
    let role = WriteRequest { role: "unknown".into(), ..request.clone() };
    for (request, code, message) in [
        // The device's id comes first.
        (
            WriteRequest { device_id: 2, election_id: None, ..role.clone() },
            Code::NotFound,
            "there is no device 2 here (expected 0 or 1)",
        ),
        (
            role,
            Code::NotFound,
            "no controller has claimed role \"unknown\"; open a stream and claim it first",
        ),
        (
            WriteRequest { election_id: low(6), ..request.clone() },
            Code::PermissionDenied,
            "election id 6 is not that of the primary of the default role, which is 7",
        ),
        (
            WriteRequest { election_id: None, ..request.clone() },
            Code::PermissionDenied,
            "a request for the default role needs the election id of its primary",
        ),
        (
            WriteRequest { atomicity: 9, ..request.clone() },
            Code::InvalidArgument,
            "atomicity 9 is unknown (expected 0 to 2)",
        ),
    ] {
        let status = soon(backup.client.write(request)).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (code, message));
    }
    // By the device's other id.
    soon(backup.client.write(WriteRequest { device_id: 0, ..request })).await.unwrap();
    assert_eq!(world.device.state.lock().unwrap().entities.len(), 2);
    world.device.state.lock().unwrap().config = None;
    assert_eq!(controller.write(7, vec![]).await.unwrap_err().code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn a_failed_write_has_the_result_of_each_update() {
    let world = World::new(|_| ());
    let mut controller = world.claimed(1).await;
    let updates = vec![insert(1, 1), insert(1, 1), insert(2, 1), insert(0, 1), Update::default()];
    let status = controller.write(1, updates).await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    assert_eq!(status.message(), "3 of 5 updates failed; first: update 2: the entry exists");
    let details = rpc::Status::decode(status.details()).unwrap().details;
    let codes: Vec<_> =
        details.iter().map(|any| v1::Error::decode(any.value.as_slice()).unwrap().canonical_code).collect();
    assert_eq!(codes, [0, 6, 0, 3, 12]);
    assert_eq!(world.device.state.lock().unwrap().entities.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_run_one_after_the_other_within_their_limit() {
    let world = World::new(|settings| settings.limits.writes = 4);
    let controller = world.claimed(1).await;
    world.device.hold(true);
    let write = |priority| {
        let mut client = controller.client.clone();
        let request = WriteRequest {
            device_id: 1,
            election_id: low(1),
            updates: vec![insert(1, priority)],
            ..Default::default()
        };
        tokio::spawn(async move { client.write(request).await })
    };
    // The first that ends is the one that finds no place.
    let mut writes = tokio::task::JoinSet::new();
    for priority in 0..5 {
        writes.spawn(write(priority));
    }
    let refused = soon(writes.join_next()).await.unwrap().unwrap().unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "4 writes wait for the switch, the most that it keeps; try again later");
    world.device.hold(false);
    while let Some(written) = soon(writes.join_next()).await {
        written.unwrap().unwrap().unwrap();
    }
    assert_eq!(world.device.most_running.load(Ordering::SeqCst), 1);
    assert_eq!(world.device.state.lock().unwrap().entities.len(), 4);
}

#[tokio::test]
async fn programs_are_set_by_primaries_and_read_by_anyone() {
    let world = World::new(|_| ());
    world.device.state.lock().unwrap().config = None;
    let mut reader = world.client().await;
    let get = |device_id, response_type: ResponseType| GetForwardingPipelineConfigRequest {
        device_id,
        response_type: response_type as i32,
    };
    let none = soon(reader.get_forwarding_pipeline_config(get(1, ResponseType::All))).await.unwrap();
    assert_eq!(none.into_inner().config, None);
    let unknown = soon(reader.get_forwarding_pipeline_config(get(5, ResponseType::All))).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);

    let mut controller = world.claimed(3).await;
    let config = ForwardingPipelineConfig {
        p4info: Some(P4Info::default()),
        p4_device_config: b"program".to_vec(),
        cookie: Some(Cookie { cookie: 17 }),
    };
    let wrong = ForwardingPipelineConfig { p4_device_config: b"wrong".to_vec(), ..config.clone() };
    let commit = Action::VerifyAndCommit;
    for (action, election, config, expected) in [
        (commit as i32, 2, Some(&config), Err(Code::PermissionDenied)),
        (Action::Unspecified as i32, 3, Some(&config), Err(Code::InvalidArgument)),
        (6, 3, Some(&config), Err(Code::InvalidArgument)),
        (commit as i32, 3, None, Err(Code::InvalidArgument)),
        (Action::Commit as i32, 3, Some(&config), Err(Code::InvalidArgument)),
        (commit as i32, 3, Some(&wrong), Err(Code::InvalidArgument)),
        (Action::Verify as i32, 3, Some(&config), Ok(InstallAction::Verify)),
        (Action::VerifyAndSave as i32, 3, Some(&config), Ok(InstallAction::VerifyAndSave)),
        (Action::Commit as i32, 3, None, Ok(InstallAction::Commit)),
        (Action::ReconcileAndCommit as i32, 3, Some(&config), Ok(InstallAction::ReconcileAndCommit)),
        (commit as i32, 3, Some(&config), Ok(InstallAction::VerifyAndCommit)),
    ] {
        let request = SetForwardingPipelineConfigRequest {
            device_id: 1,
            election_id: low(election),
            action,
            config: config.cloned(),
            ..Default::default()
        };
        let set = soon(controller.client.set_forwarding_pipeline_config(request)).await;
        let done = world.device.state.lock().unwrap().actions.pop();
        assert_eq!(set.map(|_| done.unwrap()).map_err(|status| status.code()), expected, "{action}");
    }
    for (wanted, has_info, has_program) in [
        (ResponseType::All, true, true),
        (ResponseType::CookieOnly, false, false),
        (ResponseType::P4infoAndCookie, true, false),
        (ResponseType::DeviceConfigAndCookie, false, true),
    ] {
        let got = soon(reader.get_forwarding_pipeline_config(get(0, wanted))).await.unwrap();
        let got = got.into_inner().config.unwrap();
        assert_eq!(got.cookie, config.cookie);
        assert_eq!((got.p4info.is_some(), !got.p4_device_config.is_empty()), (has_info, has_program));
    }
}

#[tokio::test]
async fn the_version_is_told() {
    let world = World::new(|_| ());
    let mut client = world.client().await;
    for (device_id, is_known) in [(0, true), (1, true), (2, false)] {
        let told = soon(client.capabilities(CapabilitiesRequest { device_id })).await;
        let told =
            told.map(|answer| answer.into_inner().p4runtime_api_version).map_err(|status| status.code());
        assert_eq!(told, if is_known { Ok("1.5.0".into()) } else { Err(Code::NotFound) });
    }
}

async fn read(controller: &mut Controller, table: u32) -> Result<Vec<usize>, tonic::Status> {
    let request = ReadRequest { device_id: 1, entities: vec![entry(table, 0)], ..Default::default() };
    let mut parts = soon(controller.client.read(request)).await?.into_inner();
    let mut lengths = vec![];
    while let Some(part) = soon(parts.message()).await? {
        lengths.push(part.entities.len());
    }
    Ok(lengths)
}

#[tokio::test]
async fn reads_come_in_parts_and_need_no_stream() {
    let world = World::new(|_| ());
    let mut controller = world.controller().await;
    let entities = (0..250).map(|priority| entry(1, priority)).chain([entry(2, 1)]);
    world.device.state.lock().unwrap().entities = entities.collect();
    assert_eq!(read(&mut controller, 0).await.unwrap(), [PART, PART, 51]);
    assert_eq!(read(&mut controller, 2).await.unwrap(), [1]);
    assert_eq!(read(&mut controller, 3).await.unwrap(), [0_usize; 0]);
    let unknown = ReadRequest { device_id: 3, ..Default::default() };
    assert_eq!(soon(controller.client.read(unknown)).await.unwrap_err().code(), Code::NotFound);
    let request = ReadRequest { device_id: 1, ..Default::default() };
    let mut none = soon(controller.client.read(request)).await.unwrap().into_inner();
    assert_eq!(soon(none.message()).await.unwrap_err().code(), Code::InvalidArgument);
}

/// A table of which each part has about a megabyte.
fn large_table(world: &World) -> usize {
    let metadata = vec![0; 10_000];
    let large = |priority| {
        let entry = TableEntry { table_id: 1, priority, metadata: metadata.clone(), ..Default::default() };
        v1::Entity { entity: Some(v1::entity::Entity::TableEntry(entry)) }
    };
    const PARTS: usize = 40;
    world.device.state.lock().unwrap().entities = (0..(PARTS * PART) as i32).map(large).collect();
    PARTS
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_holds_a_bounded_amount_and_is_cut_off() {
    let world = World::new(|settings| {
        settings.limits.read_bytes = 4 << 20;
        settings.limits.stall = Duration::from_millis(300);
        settings.limits.connection_reads = 1;
    });
    let all = large_table(&world);
    let mut slow = world.client().await;
    let request = ReadRequest { device_id: 1, entities: vec![entry(1, 0)], ..Default::default() };
    let mut parts = soon(slow.read(request.clone())).await.unwrap().into_inner();
    let mut other = world.controller().await;
    assert_eq!(read(&mut other, 1).await.unwrap().len(), all);
    // The next read of the slow one's connection has a place once the first is cut off.
    let mut second = soon(slow.read(request)).await.unwrap().into_inner();
    let cut = loop {
        match soon(parts.message()).await {
            Ok(part) => assert!(part.is_some(), "the read goes to its end"),
            Err(status) => break status,
        }
    };
    assert_eq!(
        (cut.code(), cut.message()),
        (Code::DeadlineExceeded, "nothing has been read for 0.3 s; read again")
    );
    let mut count = 0;
    while soon(second.message()).await.unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, all);
    assert!(world.device.emitted.load(Ordering::SeqCst) < 3 * all, "the slow read has not taken everything");
}

#[tokio::test]
async fn long_requests_are_bounded_and_need_a_primary() {
    let world = World::new(|settings| {
        settings.limits.large_message = 1 << 20;
        settings.limits.message = 200_000;
    });
    let mut controller = world.claimed(1).await;
    let long = |bytes| {
        let entry = TableEntry { table_id: 1, metadata: vec![0; bytes], ..Default::default() };
        let entity = v1::Entity { entity: Some(v1::entity::Entity::TableEntry(entry)) };
        vec![Update { r#type: 1, entity: Some(entity) }]
    };
    controller.write(1, long(1_000_000)).await.unwrap();
    let refused = controller.write(2, long(1_000_000)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    // Of a byte each, they would take a thousand times as much memory.
    let refused = controller.write(1, vec![Update::default(); 300_000]).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "the request has 300000 updates; expected at most 262144");
    let refused = controller.write(1, long(2_000_000)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().ends_with("expected at most 1048576"), "{refused:?}");
    let entities = vec![entry(9, 0); 20_000];
    let request = ReadRequest { device_id: 1, entities, ..Default::default() };
    let refused = soon(controller.client.read(request)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "the request has 20000 entities; expected at most 16384");
    // A long read, and one that is too long.
    let entities = vec![entry(9, 0); 15_000];
    let request = ReadRequest { device_id: 1, entities, ..Default::default() };
    let mut none = soon(controller.client.read(request)).await.unwrap().into_inner();
    assert_eq!(soon(none.message()).await.unwrap(), None);
    let entities = vec![entry(1, 0); 100_000];
    let request = ReadRequest { device_id: 1, entities, ..Default::default() };
    let refused = soon(controller.client.read(request)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
}

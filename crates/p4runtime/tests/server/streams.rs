//! Streams: arbitration, packets, errors.

use p4runtime_proto::v1::stream_message_request::Update as Request;
use p4runtime_proto::v1::stream_message_response::Update as Response;
use p4runtime_proto::v1::{
    DigestList, DigestListAck, PacketIn, PacketMetadata, PacketOut, PacketOutError, Role,
    StreamMessageRequest, Uint128, WriteRequest, stream_error,
};
use prost_types::Any;
use tonic::Code;

use super::world::{Controller, World, insert, named, soon};

fn packet(payload: &[u8]) -> PacketOut {
    PacketOut { payload: payload.to_vec(), metadata: vec![] }
}

#[tokio::test]
async fn the_highest_election_id_is_primary() {
    let world = World::new(|_| ());
    let mut one = world.controller().await;
    one.claim(1, None, Some(5)).await;
    assert_eq!(one.arbitration().await, (Code::Ok, Some(5)));
    let mut two = world.controller().await;
    two.claim(1, None, Some(4)).await;
    assert_eq!(two.arbitration().await, (Code::AlreadyExists, Some(5)));
    two.claim(1, None, Some(6)).await;
    assert_eq!(one.arbitration().await, (Code::AlreadyExists, Some(6)));
    assert_eq!(two.arbitration().await, (Code::Ok, Some(6)));
    // The primary steps down: the role is vacant until somebody has the highest id again.
    two.claim(1, None, Some(1)).await;
    assert_eq!(one.arbitration().await, (Code::NotFound, Some(6)));
    assert_eq!(two.arbitration().await, (Code::NotFound, Some(6)));
    one.claim(1, None, Some(6)).await;
    assert_eq!(two.arbitration().await, (Code::AlreadyExists, Some(6)));
    assert_eq!(one.arbitration().await, (Code::Ok, Some(6)));
}

#[tokio::test]
async fn backups_learn_that_the_primary_is_gone() {
    let world = World::new(|_| ());
    let mut backup = world.claimed(1).await;
    let primary = world.claimed(9).await;
    assert_eq!(backup.arbitration().await, (Code::AlreadyExists, Some(9)));
    drop(primary);
    assert_eq!(backup.arbitration().await, (Code::NotFound, Some(9)));
    let refused = backup.write(1, vec![insert(1, 1)]).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(
        refused.message(),
        "the default role has no primary; claim it with an election id of at least 9"
    );
}

#[tokio::test]
async fn election_ids_have_128_bits() {
    let world = World::new(|_| ());
    let mut one = world.claimed(u64::MAX).await;
    let mut two = world.controller().await;
    two.claim(1, None, Some(1 << 64)).await;
    assert_eq!(one.arbitration().await.0, Code::AlreadyExists);
    assert_eq!(two.full_arbitration().await.election_id, Some(Uint128 { high: 1, low: 0 }));
}

#[tokio::test]
async fn an_election_id_is_used_once() {
    let world = World::new(|_| ());
    let mut one = world.claimed(5).await;
    let mut two = world.controller().await;
    two.claim(1, None, Some(5)).await;
    let status = two.end().await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(
        status.message(),
        "election id 5 of the default role is used by another controller; each controller needs its own"
    );
    // Its own may be repeated; another role's is another one.
    one.claim(1, None, Some(5)).await;
    assert_eq!(one.arbitration().await, (Code::Ok, Some(5)));
    let mut three = world.controller().await;
    three.claim(1, named("other"), Some(5)).await;
    assert_eq!(three.arbitration().await, (Code::Ok, Some(5)));
}

#[tokio::test]
async fn without_an_election_id_nobody_is_primary() {
    let world = World::new(|_| ());
    let mut one = world.controller().await;
    one.claim(1, None, None).await;
    assert_eq!(one.arbitration().await, (Code::NotFound, None));
    let mut two = world.controller().await;
    two.claim(1, None, None).await;
    assert_eq!(two.arbitration().await, (Code::NotFound, None));
    // Zero is an election id, the lowest one.
    two.claim(1, None, Some(0)).await;
    assert_eq!(one.arbitration().await, (Code::AlreadyExists, Some(0)));
    assert_eq!(two.arbitration().await, (Code::Ok, Some(0)));
}

#[tokio::test]
async fn answers_have_the_device_and_the_role_of_the_claim() {
    let world = World::new(|_| ());
    let mut zero = world.controller().await;
    zero.claim(0, named(""), Some(3)).await;
    let answer = zero.full_arbitration().await;
    assert_eq!((answer.device_id, answer.role), (0, named("")));
    // Device 1 is the same one.
    let mut one = world.controller().await;
    one.claim(1, None, Some(2)).await;
    let answer = one.full_arbitration().await;
    assert_eq!((answer.device_id, answer.role), (1, None));
    assert_eq!(answer.status.unwrap().code, Code::AlreadyExists as i32);
    #[allow(deprecated)]
    let number = Some(Role { id: 7, ..Role::default() });
    let mut numbered = world.controller().await;
    numbered.claim(1, number.clone(), Some(1)).await;
    let answer = numbered.full_arbitration().await;
    assert_eq!((answer.role, answer.status.unwrap().code), (number, Code::Ok as i32));
}

#[tokio::test]
async fn wrong_claims_end_the_stream() {
    let world = World::new(|_| ());
    let config = Some(Role { config: Some(Any { type_url: "x".into(), value: vec![] }), ..Role::default() });
    let long = "x".repeat(257);
    for (device, role, code, message) in [
        (2, None, Code::NotFound, "there is no device 2 here (expected 0 or 1)"),
        (
            1,
            config,
            Code::InvalidArgument,
            "role.config is set; the switch's configuration limits roles ([[bridge.p4.role]]): leave it unset",
        ),
        (1, named(&long), Code::InvalidArgument, "the role's name has 257 bytes; expected at most 256"),
    ] {
        let mut controller = world.controller().await;
        controller.claim(device, role, Some(1)).await;
        let status = controller.end().await;
        assert_eq!((status.code(), status.message()), (code, message));
    }
    let mut unclaimed = world.controller().await;
    unclaimed.send(Request::Packet(packet(b"x"))).await;
    assert_eq!(unclaimed.end().await.code(), Code::FailedPrecondition);
    for (device, role, message) in [
        (0, None, "the stream is for device 1; open another one for device 0"),
        (1, named("other"), "the stream is for the default role; open another one for role \"other\""),
    ] {
        let mut controller = world.claimed(1).await;
        controller.claim(device, role, Some(1)).await;
        let status = controller.end().await;
        assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, message));
    }
}

#[tokio::test]
async fn every_role_s_primary_receives_packets_in_their_order() {
    let world = World::new(|_| ());
    let mut primary = world.claimed(2).await;
    let mut backup = world.claimed(1).await;
    let mut other = world.controller().await;
    other.claim(1, named("other"), Some(1)).await;
    other.arbitration().await;
    for number in 0..100 {
        world.device.emit(Response::Packet(PacketIn { payload: vec![number], metadata: vec![] }));
    }
    world.device.emit(Response::Digest(DigestList { digest_id: 4, ..DigestList::default() }));
    for receiver in [&mut primary, &mut other] {
        for number in 0..100 {
            let Response::Packet(packet) = receiver.next().await.unwrap() else { panic!("a packet") };
            assert_eq!(packet.payload, [number]);
        }
        assert!(matches!(receiver.next().await, Ok(Response::Digest(DigestList { digest_id: 4, .. }))));
    }
    // The backup's next message is its turn.
    drop(primary);
    assert_eq!(backup.arbitration().await, (Code::NotFound, Some(2)));
    drop(other);
    let counters = world.server.counters();
    assert_eq!((counters.queued, counters.full, counters.unheard), (202, 0, 0));
}

#[tokio::test]
async fn a_slow_reader_loses_packets_and_nothing_else() {
    let world = World::new(|settings| settings.limits.queued_messages = 10);
    let mut primary = world.claimed(1).await;
    const COUNT: u64 = 1000;
    for number in 0..COUNT {
        let payload = [&number.to_be_bytes()[..], &[0; 120]].concat();
        world.device.emit(Response::Packet(PacketIn { payload, metadata: vec![] }));
    }
    let counters = world.server.counters();
    assert_eq!(counters.queued + counters.full, COUNT);
    assert!(counters.full > 0, "{counters:?}");
    // The notification comes although the queue is full.
    let _other = world.claimed(2).await;
    let mut numbers = vec![];
    loop {
        match primary.next().await.unwrap() {
            Response::Packet(packet) => {
                numbers.push(u64::from_be_bytes(*packet.payload.first_chunk().unwrap()));
            }
            Response::Arbitration(update) => break assert_eq!(update.status.unwrap().code, 6),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(numbers.len() as u64, counters.queued);
    assert!(numbers.is_sorted());
}

#[tokio::test]
async fn without_a_primary_packets_are_counted() {
    let world = World::new(|_| ());
    world.device.emit(Response::Packet(PacketIn::default()));
    assert_eq!(world.server.counters().unheard, 1);
}

async fn refused(controller: &mut Controller) -> (Code, String, stream_error::Details) {
    match controller.next().await.unwrap() {
        Response::Error(error) => (Code::from(error.canonical_code), error.message, error.details.unwrap()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn refused_messages_are_reported_and_the_stream_goes_on() {
    let world = World::new(|_| ());
    let mut primary = world.claimed(2).await;
    let mut backup = world.claimed(1).await;
    backup.send(Request::Packet(packet(b"abc"))).await;
    let (code, message, details) = refused(&mut backup).await;
    assert_eq!(
        (code, message.as_str()),
        (Code::PermissionDenied, "only a primary may send packets; this controller is not one")
    );
    let stream_error::Details::PacketOut(details) = details else { panic!("{details:?}") };
    assert_eq!(details.packet_out, Some(packet(b"abc")));
    let ack = |digest_id| DigestListAck { digest_id, list_id: 3 };
    backup.send(Request::DigestAck(ack(1))).await;
    assert_eq!(refused(&mut backup).await.0, Code::PermissionDenied);

    primary.send(Request::Packet(packet(b""))).await;
    let (code, message, _) = refused(&mut primary).await;
    assert_eq!((code, message.as_str()), (Code::InvalidArgument, "the packet is empty"));
    let metadata = vec![PacketMetadata::default(); 257];
    primary.send(Request::Packet(PacketOut { payload: b"x".to_vec(), metadata })).await;
    let (_, message, details) = refused(&mut primary).await;
    assert_eq!(message, "the packet has 257 metadata fields; expected at most 256");
    assert!(matches!(details, stream_error::Details::PacketOut(PacketOutError { packet_out: None })));
    primary.send(Request::DigestAck(ack(1))).await;
    primary.send(Request::DigestAck(ack(2))).await;
    let (code, message, details) = refused(&mut primary).await;
    assert_eq!((code, message.as_str()), (Code::InvalidArgument, "there is no digest 2"));
    let stream_error::Details::DigestListAck(details) = details else { panic!("{details:?}") };
    assert_eq!(details.digest_list_ack, Some(ack(2)));
    primary.send(Request::Other(Any::default())).await;
    let (code, _, details) = refused(&mut primary).await;
    assert_eq!(code, Code::Unimplemented);
    assert!(matches!(details, stream_error::Details::Other(_)));
    soon(primary.requests.send(StreamMessageRequest { update: None })).await.unwrap();
    assert_eq!(refused(&mut primary).await.0, Code::InvalidArgument);
    // The device of these tests sends packets back.
    for payload in [b"1", b"2"] {
        primary.send(Request::Packet(packet(payload))).await;
    }
    for payload in [b"1", b"2"] {
        let Response::Packet(packet) = primary.next().await.unwrap() else { panic!("a packet") };
        assert_eq!(packet.payload, payload);
    }
    assert_eq!(world.device.state.lock().unwrap().packets.len(), 2, "that of the backup was not sent");
}

#[tokio::test]
async fn a_new_primary_waits_for_the_write_that_runs() {
    let world = World::new(|_| ());
    let mut old = world.claimed(1).await;
    world.device.hold(true);
    let request = |election, priority| WriteRequest {
        device_id: 1,
        election_id: Some(Uint128 { high: 0, low: election }),
        updates: vec![insert(1, priority)],
        ..WriteRequest::default()
    };
    let [running, waiting] = [1, 2].map(|priority| {
        let mut client = old.client.clone();
        tokio::spawn(async move { client.write(request(1, priority)).await })
    });
    soon(world.device.write_started()).await;
    let mut new = world.controller().await;
    new.claim(1, None, Some(2)).await;
    assert_eq!(old.arbitration().await, (Code::AlreadyExists, Some(2)));
    world.device.hold(false);
    assert_eq!(new.arbitration().await, (Code::Ok, Some(2)));
    // One ran and went on; the other had not started, or came too late.
    let results = [soon(running).await.unwrap(), soon(waiting).await.unwrap()];
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    let refused = results.into_iter().find_map(Result::err).unwrap();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(refused.message(), "election id 1 is not that of the primary of the default role, which is 2");
    assert_eq!(world.device.state.lock().unwrap().entities.len(), 1);
}

#[tokio::test]
async fn streams_are_limited() {
    let world = World::new(|settings| {
        settings.limits.streams = 3;
        settings.limits.connection_streams = 2;
    });
    let client = world.client().await;
    let open = async |client: &super::world::Client| Controller::open(client.clone()).await;
    let mut own = vec![open(&client).await.unwrap(), open(&client).await.unwrap()];
    let status = open(&client).await.err().unwrap();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "the connection has 2 streams, the most that it may have; close one first");
    let other = world.client().await;
    own.push(open(&other).await.unwrap());
    let status = open(&other).await.err().unwrap();
    assert_eq!(status.message(), "3 streams are open, the most that the switch serves; close one first");
    // A place is free once its stream has ended.
    let mut ended = own.remove(0);
    ended.claim(9, None, None).await;
    assert_eq!(ended.end().await.code(), Code::NotFound);
    drop(ended);
    soon(async {
        while let Err(status) = open(&client).await {
            assert_eq!(status.code(), Code::ResourceExhausted);
        }
    })
    .await;
}

#[tokio::test]
async fn a_silent_stream_ends() {
    let world = World::new(|settings| settings.limits.handshake = std::time::Duration::from_millis(100));
    let mut silent = world.controller().await;
    assert_eq!(silent.end().await.code(), Code::DeadlineExceeded);
}

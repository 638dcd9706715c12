//! Controllers: entries, copies, packets in and out, digests.

use std::time::{Duration, UNIX_EPOCH};

use fabric::DropReason;
use fabric::port::Caps;
use p4runtime_proto::v1::entity::Entity;
use p4runtime_proto::v1::stream_message_response::Update as Told;
use p4runtime_proto::v1::update::Type;
use p4runtime_proto::v1::write_request::Atomicity;
use p4runtime_proto::v1::{DigestListAck, PacketOut, RegisterEntry, Update};
use p4switch::{Code, Device, InstallAction, WriteFailure};

use crate::entities::{digests, group, packet_out, session, station};
use crate::frames::{op, plain, udp};
use crate::rig::{ALL, By, L3, OPS, Rig, config, wait_for};

#[test]
fn after_a_write_no_packet_meets_the_entry_before() {
    for by in ALL {
        let rig = Rig::new(by, OPS);
        let info = rig.info();
        assert_eq!(rig.run(1, [plain(7, 0)]), [(); 4].map(|()| Vec::<Vec<u8>>::new()));
        for round in 0..20u8 {
            let ty = if round == 0 { Type::Insert } else { Type::Modify };
            let (now, before) = if round % 2 == 0 { (2, 3) } else { (3, 2) };
            rig.write(&[station(&info, ty, 7, now as u64)]);
            let got = rig.run(1, [plain(7, round)]);
            assert_eq!((got[now - 1].len(), got[before - 1].len()), (1, 0), "{by:?}");
        }
        rig.write(&[station(&info, Type::Delete, 7, 2)]);
        assert_eq!(rig.run(1, [plain(7, 0)]), [(); 4].map(|()| Vec::<Vec<u8>>::new()));
    }
}

#[test]
fn multicast_groups_make_copies() {
    for by in ALL {
        let rig = Rig::new(by, OPS);
        // A copy for the port that it came from, and two for one port.
        rig.write(&[group(5, &[(1, 1), (2, 2), (3, 3), (3, 4), (99, 5)])]);
        let got = rig.run(1, [op(3, 5, 0)]);
        let marked = |marks: &[u8]| marks.iter().map(|mark| op(3, 5, *mark)).collect::<Vec<_>>();
        assert_eq!(got, [marked(&[1]), marked(&[2]), marked(&[3, 4]), vec![]], "{by:?}");
        assert_eq!(rig.counter("dropped_no_port"), 1);
    }
}

#[test]
fn clones_are_as_the_packet_was_received() {
    for by in ALL {
        let rig = Rig::new(by, OPS);
        rig.write(&[session(9, &[(3, 1), (510, 2)])]);
        let got = rig.run(1, [op(4, 2, 0)]);
        assert_eq!((&got[1], &got[2]), (&vec![op(4, 2, 0x44)], &vec![op(4, 2, 0)]), "{by:?}");
        let [packet] = rig.packet_ins();
        assert_eq!(packet.payload, op(4, 2, 0));
    }
}

#[test]
fn packets_for_the_cpu_port_go_to_controllers() {
    for by in ALL {
        let rig = Rig::new(by, OPS);
        rig.run(3, [op(5, 0, 1), op(5, 0, 2)]);
        let packets = rig.packet_ins::<2>();
        for (packet, mark) in packets.iter().zip(1..) {
            assert_eq!(packet.payload, op(5, 0, mark), "{by:?}");
            let metadata: Vec<_> =
                packet.metadata.iter().map(|it| (it.metadata_id, it.value.clone())).collect();
            assert_eq!(metadata, [(1, vec![3]), (2, vec![0])]);
        }
        // Whole, however long.
        let mut long = op(5, 0, 3);
        long.resize(9000, 7);
        rig.run(3, [long.clone()]);
        assert_eq!(rig.packet_ins::<1>()[0].payload, long);
    }
}

#[test]
fn packets_of_controllers_enter_at_the_cpu_port() {
    for by in ALL {
        let rig = Rig::new(by, OPS);
        for (port, payload) in [(2, plain(7, 1)), (4, op(1, 0, 0)), (2, vec![5; 9000])] {
            rig.logic.packet_out(&packet_out(port, &payload)).unwrap();
            assert_eq!(rig.at(port as usize).take(1), [payload], "{by:?}");
        }
        // Back to where it came from: to controllers.
        rig.logic.packet_out(&packet_out(510, &plain(7, 2))).unwrap();
        assert_eq!(rig.packet_ins::<1>()[0].payload, plain(7, 2));
        assert!(rig.counter("injected") >= 4);
    }
}

#[test]
fn packets_that_cannot_be_sent_are_refused() {
    let rig = Rig::with(By::Code, 1, Caps::default());
    let send = |packet: &PacketOut| rig.logic.packet_out(packet).unwrap_err().code;
    assert_eq!(send(&packet_out(2, &plain(7, 1))), Code::FailedPrecondition);
    rig.install(OPS);
    assert_eq!(send(&packet_out(2, &[1, 2, 3])), Code::InvalidArgument);
    assert_eq!(send(&packet_out(2, &vec![0; 70_000])), Code::InvalidArgument);
    assert_eq!(send(&PacketOut { payload: plain(7, 1), metadata: vec![] }), Code::InvalidArgument);
    assert_eq!(rig.at(2).delivered(), 0);
}

#[test]
fn a_flood_of_packets_for_controllers_costs_no_memory() {
    let rig = Rig::new(By::Code, OPS);
    // The listener does not wait; here it stands for one that is slow.
    let gate = std::sync::Arc::new(std::sync::Mutex::new(()));
    let closed = gate.lock().unwrap();
    let listener = gate.clone();
    rig.logic.listen(Box::new(move |_, _| listener.lock().is_ok()));
    for _ in 0..20 {
        rig.at(1).send((0..100).map(|n| op(5, 0, n)));
        rig.at(1).settle();
    }
    let lost = rig.counter("upcalls_lost");
    assert!(lost >= 2000 - 256, "{lost}");
    assert_eq!(rig.drops(1, DropReason::ControllerQueue), lost);
    assert_eq!(rig.counter("upcalls") + lost, 2000);
    drop(closed);
    wait_for("the logic's thread", || rig.logic.is_settled().then_some(()));
}

#[test]
fn packets_that_no_controller_takes_are_counted() {
    let rig = Rig::new(By::Code, OPS);
    rig.logic.listen(Box::new(|_, _| false));
    rig.at(1).send((0..7).map(|n| op(5, 0, n)));
    rig.at(1).settle();
    wait_for("the logic's thread", || rig.logic.is_settled().then_some(()));
    assert_eq!(rig.counter("controllers_missed"), 7);
}

#[test]
fn without_a_program_controllers_are_refused() {
    let rig = Rig::with(By::Code, 1, Caps::default());
    let failure = match rig.logic.write(&[group(1, &[])], Atomicity::ContinueOnError, None) {
        Err(WriteFailure::Request(failure)) => failure,
        other => panic!("{other:?}"),
    };
    assert_eq!(failure.code, Code::FailedPrecondition);
    let failure = rig.logic.read(&[], &mut |_| true).unwrap_err();
    assert_eq!(failure.code, Code::FailedPrecondition);
}

#[test]
fn what_was_written_is_read() {
    let rig = Rig::new(By::Code, OPS);
    let info = rig.info();
    let updates: Vec<_> = (0..50).map(|n| station(&info, Type::Insert, n, 2)).collect();
    rig.write(&updates);
    let mut wanted = updates[0].entity.clone().unwrap();
    if let Some(Entity::TableEntry(entry)) = &mut wanted.entity {
        entry.r#match.clear();
        entry.action = None;
    }
    let mut read = Vec::new();
    rig.logic
        .read(&[wanted.clone()], &mut |part| {
            read.extend(part);
            true
        })
        .unwrap();
    assert_eq!(read.len(), 50);
    assert!(updates.iter().all(|update| read.contains(update.entity.as_ref().unwrap())));
    // A reader that wants no more gets no more.
    let mut parts = 0;
    rig.logic
        .read(&[wanted.clone(), wanted], &mut |_| {
            parts += 1;
            false
        })
        .unwrap();
    assert_eq!(parts, 1);
}

#[test]
fn a_read_ends_with_its_program() {
    let large = OPS.replace("register<bit<32>>(4) counts", "register<bit<32>>(5000) counts");
    let rig = Rig::new(By::Code, &large);
    let all = RegisterEntry {
        register_id: rig.info().registers[0].preamble.as_ref().unwrap().id,
        ..Default::default()
    };
    let all = p4runtime_proto::v1::Entity { entity: Some(Entity::RegisterEntry(all)) };
    let mut read = 0;
    // Between parts, others may change everything.
    let ended = rig.logic.read(std::slice::from_ref(&all), &mut |part| {
        if read == 0 {
            rig.install(L3);
        }
        read += part.len();
        true
    });
    assert_eq!(ended.unwrap_err().code, Code::Aborted);
    assert_eq!(read, 1000);
    rig.install(&large);
    let mut read = 0;
    rig.logic
        .read(&[all], &mut |part| {
            rig.write(&[group(5, &[(3, 3)])]);
            rig.write(&[Update { r#type: Type::Delete.into(), ..group(5, &[]) }]);
            read += part.len();
            true
        })
        .unwrap();
    assert_eq!(read, 5000);
}

#[test]
fn packets_of_a_program_that_is_gone_do_not_reach_controllers() {
    let rig = Rig::new(By::Code, OPS);
    let gate = std::sync::Arc::new(std::sync::Mutex::new(()));
    let closed = gate.lock().unwrap();
    let (listener, told) = (gate.clone(), std::sync::Arc::new(std::sync::Mutex::new(0)));
    let count = told.clone();
    rig.logic.listen(Box::new(move |_, _| {
        drop(listener.lock().unwrap());
        *count.lock().unwrap() += 1;
        true
    }));
    // The thread waits for the listener with the first one; the others wait for the thread.
    rig.at(1).send([op(5, 0, 0)]);
    rig.at(1).settle();
    wait_for("the logic's thread", || (rig.counter("upcalls") == 1).then_some(()));
    rig.at(1).send((1..=40).map(|n| op(5, 0, n)));
    rig.at(1).settle();
    rig.install(L3);
    rig.at(1).send([udp([10, 9, 0, 1], 64, 20)]);
    rig.at(1).settle();
    drop(closed);
    wait_for("the logic's thread", || rig.logic.is_settled().then_some(()));
    let told = *told.lock().unwrap();
    assert_eq!(told + rig.counter("upcalls_stale"), 42);
    assert!(rig.counter("upcalls_stale") >= 8, "the thread takes 32 at a time");
}

#[test]
fn digests_go_to_controllers_in_lists() {
    for by in ALL {
        let rig = Rig::new(by, OPS);
        let info = rig.info();
        rig.write(&[digests(&info, 2, 1)]);
        let from = |station: u8| {
            let mut packet = op(6, 2, 0);
            packet[11] = station;
            packet
        };
        // The second list is full, the third one is due after a moment; what was told already is not told again.
        let packets = [1, 2, 1, 3].map(from);
        assert_eq!(rig.run(4, packets.clone())[1], packets, "{by:?}");
        let mut told = Vec::new();
        while told.len() < 3 {
            match rig.told() {
                Told::Digest(list) => {
                    let time = Duration::from_nanos(u64::try_from(list.timestamp).unwrap());
                    let age = (UNIX_EPOCH + time).elapsed().unwrap();
                    assert!(age < Duration::from_secs(60), "nanoseconds since the epoch: {time:?}");
                    told.extend(list.data.iter().map(|data| format!("{data:?}")));
                    let ack = DigestListAck { digest_id: list.digest_id, list_id: list.list_id };
                    rig.logic.acknowledge(&ack).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(told.len(), 3);
        // Acknowledged, it is told again.
        rig.run(4, [from(1)]);
        assert!(matches!(rig.told(), Told::Digest(list) if told.contains(&format!("{:?}", list.data[0]))));
    }
}

#[test]
fn controllers_hear_of_idle_entries() {
    let program = OPS.replace("size = 1024;", "size = 1024; support_timeout = true;");
    for by in ALL {
        let rig = Rig::new(by, &program);
        let info = rig.info();
        let mut entry = station(&info, Type::Insert, 7, 2);
        if let Some(Entity::TableEntry(entry)) =
            entry.entity.as_mut().and_then(|entity| entity.entity.as_mut())
        {
            entry.idle_timeout_ns = 1_000_000;
        }
        rig.write(&[entry]);
        let idle = |rig: &Rig| match rig.told() {
            Told::IdleTimeoutNotification(idle) => idle.table_entry.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!(idle(&rig), 1, "{by:?}");
        // A packet that hits it begins a further time.
        assert_eq!(rig.run(1, [plain(7, 0)])[1].len(), 1);
        assert_eq!(idle(&rig), 1);
    }
}

#[test]
fn a_program_may_take_over_entries() {
    let rig = Rig::new(By::Code, OPS);
    let info = rig.info();
    rig.write(&[station(&info, Type::Insert, 7, 2), group(5, &[(3, 3)])]);
    rig.logic.install(InstallAction::ReconcileAndCommit, Some(&config(OPS))).unwrap();
    let got = rig.run(1, [plain(7, 0), op(3, 5, 0)]);
    assert_eq!((got[1].len(), got[2].len()), (1, 1));
    rig.logic.install(InstallAction::VerifyAndCommit, Some(&config(OPS))).unwrap();
    let got = rig.run(1, [plain(7, 0), op(3, 5, 0)]);
    assert_eq!((got[1].len(), got[2].len()), (0, 0));
}

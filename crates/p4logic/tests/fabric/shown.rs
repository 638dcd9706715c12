//! Traces, tables and counters.

use fabric::{DropReason, PortIndex, Traced};
use logic::Logic;
use p4runtime_proto::v1::update::Type;
use packet::Offload;

use crate::entities::station;
use crate::frames::{op, plain, udp};
use crate::rig::{ALL, By, L3, OPS, Rig};

fn sentences(traced: &Traced) -> Vec<String> {
    traced.remarks.iter().map(|remark| remark.sentence(|port| format!("p{}", port.0 + 1))).collect()
}

#[test]
fn a_trace_tells_of_each_step_and_changes_nothing() {
    for by in ALL {
        let rig = Rig::new(by, L3);
        let before = (rig.logic.counters(), rig.logic.tables()[0].clone());
        let traced = rig.switch.trace(rig.at(1).at, &udp([10, 0, 0, 200], 64, 30), Offload::NONE).unwrap();
        let said = sentences(&traced);
        assert_eq!(said[0], "it comes from port 1");
        let parts = [
            "parser state P.ipv4",
            "extract hdr.ip: 20 bytes at 14",
            "table MyIngress.routes: hdr.ip.dst=32w0xa0000c8, hit entry 2",
            "action MyIngress.route(9w3, 48w0x20000000003)",
            "hdr.ip.ttl = 0x3f",
            "it goes to p3",
        ];
        let places = parts.map(|part| said.iter().position(|said| said == part));
        assert!(places.is_sorted() && places[0].is_some(), "{places:?} in {said:#?}");
        assert!(!said.contains(&"hdr.ip is valid".to_owned()));
        let outputs: Vec<_> = traced.outputs.iter().map(|output| output.port).collect();
        assert_eq!(outputs, [PortIndex(2)]);
        let dropped = rig.switch.trace(rig.at(1).at, &udp([11, 0, 0, 1], 64, 30), Offload::NONE).unwrap();
        assert_eq!(dropped.drops, [DropReason::Logic]);
        let said = sentences(&dropped);
        assert!(said.contains(&"it is dropped: dropped by the program".to_owned()), "{said:#?}");
        assert_eq!((rig.logic.counters(), rig.logic.tables()[0].clone()), before, "{by:?}");
    }
}

#[test]
fn a_trace_leaves_registers_and_controllers_alone() {
    let rig = Rig::new(By::Code, OPS);
    for packet in [op(8, 2, 0), op(5, 0, 0)] {
        rig.switch.trace(rig.at(1).at, &packet, Offload::NONE).unwrap();
    }
    assert_eq!(rig.run(1, [op(8, 2, 9)])[1], [op(8, 2, 0)]);
    assert_eq!(rig.counter("upcalls"), 0);
    let rig = Rig::with(By::Code, 1, fabric::port::Caps::default());
    let traced = rig.switch.trace(rig.at(1).at, &op(0, 2, 0), Offload::NONE).unwrap();
    assert_eq!(sentences(&traced)[0], "the bridge has no P4 program");
    assert_eq!(traced.drops, [DropReason::Logic]);
}

#[test]
fn tables_show_their_entries_and_forms() {
    let rig = Rig::new(By::Code, OPS);
    let info = rig.info();
    rig.write(&(0..100).map(|n| station(&info, Type::Insert, n, 2)).collect::<Vec<_>>());
    rig.run(1, [plain(7, 0), plain(200, 0)]);
    let tables = rig.logic.tables();
    assert_eq!(tables[0].rows.len(), 1);
    let row = &tables[0].rows[0];
    assert_eq!(row[..3], ["MyIngress.stations", "100", "1024"]);
    assert_ne!(row[3], "interpreter");
    assert_eq!(row[5..7], ["2", "1"], "lookups and hits");
    assert_eq!(rig.figure("executed by"), "machine code");
    assert_eq!(rig.logic.table_sizes()[0].entries, 100);
    let rig = Rig::new(By::Interpreter, OPS);
    assert_eq!(rig.logic.tables()[0].rows[0][3], "interpreter");
    assert!(rig.figure("executed by").starts_with("interpreter: "));
}

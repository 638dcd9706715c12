//! Traces, tables and counters.

use fabric::{DropReason, PortIndex, Traced};
use logic::Logic;
use packet::Offload;

use crate::frames::{tagged, udp};
use crate::rig::{ALL, By, Rig};

fn sentences(traced: &Traced) -> Vec<String> {
    traced.remarks.iter().map(|remark| remark.sentence(|port| format!("p{}", port.0 + 1))).collect()
}

#[test]
fn a_trace_names_flows_and_changes_nothing() {
    for by in ALL {
        let rig = Rig::new(by);
        rig.add(&[
            "priority=5,in_port=1,actions=goto_table:3",
            "table=3,priority=9,udp,tp_dst=2000,actions=push_vlan:0x8100,set_field:4103->vlan_vid,output:2,CONTROLLER",
        ]);
        let before = (rig.counter("upcalls"), rig.logic.tables()[0].clone());
        let traced = rig.switch.trace(rig.at(1).at, &udp(), Offload::NONE).unwrap();
        let said = sentences(&traced);
        assert_eq!(said[0], "it comes from port 1");
        assert_eq!(said[1], "table 0: priority=5,in_port=1 actions=goto_table:3");
        assert!(
            said[2].starts_with("table 3: priority=9,udp,tp_dst=2000 actions=push_vlan:0x8100"),
            "{said:?}"
        );
        assert_eq!(said[3..], ["it goes to p2", "it goes to the controllers, reason 1"]);
        let outputs: Vec<_> =
            traced.outputs.iter().map(|output| (output.port, output.packet.clone())).collect();
        assert_eq!(outputs, [(PortIndex(1), tagged(&udp(), 7))]);
        let missed = rig.switch.trace(rig.at(2).at, &udp(), Offload::NONE).unwrap();
        assert_eq!(missed.drops, [DropReason::NoDestination]);
        assert_eq!(sentences(&missed)[1], "table 0: no flow matches");
        assert_eq!((rig.counter("upcalls"), rig.logic.tables()[0].clone()), before);
        assert_eq!(rig.counter("dropped_no_flow_matches"), 0);
        assert_eq!(rig.messages(), []);
    }
}

#[test]
fn tables_show_their_forms() {
    let rig = Rig::new(By::Code);
    rig.add(&["ip,actions=goto_table:2"]);
    for n in 0..100 {
        rig.add(&[&format!(
            "table=2,priority={},ip,nw_dst=10.0.{n}.0/{},actions=output:2",
            1 + n,
            20 + n % 12
        )]);
    }
    rig.run(1, [udp()]);
    let tables = rig.logic.tables();
    let rows: Vec<_> = tables[0].rows.iter().map(|row| row[..3].join(" ")).collect();
    assert_eq!(rows, ["0  2", "2  100"]);
    // Which structures there are is the code generator's affair.
    assert!(tables[0].rows.iter().all(|row| row[3] != "interpreter" && !row[4].is_empty()), "{tables:?}");
    assert_eq!(tables[0].rows[1][5..7], ["1", "1"]);
    assert_eq!(tables[1].rows[0], ["executed by", "machine code"]);
    let rig = Rig::new(By::Interpreter);
    rig.add(&["ip,actions=output:2"]);
    rig.run(1, [udp()]);
    assert_eq!(rig.logic.tables()[0].rows[0][3], "interpreter");
    assert_eq!(rig.counter("interpreted"), 2);
}

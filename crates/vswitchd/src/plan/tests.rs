use ofagent::FailMode;
use ovsdb::{Format, Row, TableInfo, Value, vswitch};
use serde_json::{Map, Value as Json, json};

use super::*;

/// A replica of the database with the given rows, by table.
fn replica(tables: &[(&str, Vec<(Uuid, Row)>)]) -> Replica {
    let schema = ovsdb::Schema {
        tables: vswitch::TABLES
            .iter()
            .map(|TableInfo { name, columns }| {
                let columns = columns.iter().map(|column| (column.name.to_owned(), column.column_type));
                ((*name).to_owned(), columns.collect())
            })
            .collect(),
        ..Default::default()
    };
    let updates: Map<String, Json> = tables
        .iter()
        .map(|(table, rows)| {
            let rows =
                rows.iter().map(|(uuid, row)| (uuid.to_string(), json!({"new": ovsdb::encode_row(row)})));
            ((*table).to_owned(), Json::Object(rows.collect()))
        })
        .collect();
    let mut replica = Replica::new(schema);
    replica.apply(Format::OldAndNew, &Json::Object(updates)).unwrap();
    replica
}

fn row(entries: &[(&str, Value)]) -> Row {
    entries.iter().map(|(column, value)| ((*column).to_owned(), value.clone())).collect()
}

fn map(entries: &[(&str, &str)]) -> Value {
    let atom = |text: &str| ovsdb::Atom::String(text.into());
    Value::Map(entries.iter().map(|(key, value)| (atom(key), atom(value))).collect())
}

fn set(uuids: &[Uuid]) -> Value {
    Value::Set(uuids.iter().map(|uuid| ovsdb::Atom::Uuid(*uuid)).collect())
}

const fn id(number: u8) -> Uuid {
    let mut bytes = [0; 16];
    bytes[0] = number;
    Uuid(bytes)
}

/// A bridge's name, its columns, and its interfaces by name.
type BridgeRows<'a> = (&'a str, Row, &'a [(&'a str, Row)]);

/// A database with bridges, each with interfaces: one port for each.
fn database(bridges: &[BridgeRows<'_>]) -> Replica {
    let (mut bridge_rows, mut ports, mut interfaces) = (vec![], vec![], vec![]);
    let mut next = 100;
    for ((name, columns, its), number) in bridges.iter().zip(1..) {
        let mut members = vec![];
        for (name, columns) in *its {
            let mut interface = columns.clone();
            interface.insert("name".into(), (*name).into());
            interfaces.push((id(next), interface));
            ports.push((id(next + 1), row(&[("name", (*name).into()), ("interfaces", set(&[id(next)]))])));
            members.push(id(next + 1));
            next += 2;
        }
        let mut bridge = columns.clone();
        bridge.extend(row(&[("name", (*name).into()), ("ports", set(&members))]));
        bridge_rows.push((id(number), bridge));
    }
    let all: Vec<_> = bridge_rows.iter().map(|(uuid, _)| *uuid).collect();
    let root = row(&[("bridges", set(&all)), ("next_cfg", 7i64.into())]);
    replica(&[
        ("Open_vSwitch", vec![(id(99), root)]),
        ("Bridge", bridge_rows),
        ("Port", ports),
        ("Interface", interfaces),
    ])
}

fn plan_of(replica: &Replica) -> Plan {
    Plan::new(replica, Path::new("/run/openvswitch")).unwrap()
}

/// The interfaces of a plan, as lines of name, number, and type or error.
fn lines(plan: &Plan) -> Vec<String> {
    let interfaces = plan.bridges.iter().flat_map(|bridge| &bridge.interfaces);
    interfaces
        .map(|it| {
            let port = it.port.as_ref().map(|port| port.spec.type_name().to_owned());
            format!("{} {} {}", it.name, it.number, port.unwrap_or_else(Clone::clone))
        })
        .collect()
}

#[test]
fn types_become_ports() {
    let peer = |name| row(&[("type", "patch".into()), ("options", map(&[("peer", name)]))]);
    let replica = database(&[
        (
            "br0",
            Row::new(),
            &[
                ("br0", row(&[("type", "internal".into())])),
                ("eth0", row(&[("ofport", 9i64.into())])),
                ("in0", row(&[("type", "internal".into())])),
                ("p0", peer("p1")),
                ("vx", row(&[("type", "vxlan".into())])),
            ],
        ),
        ("br1", Row::new(), &[("br1", Row::new()), ("eth0", Row::new()), ("p1", peer("p0"))]),
    ]);
    let plan = plan_of(&replica);
    assert_eq!(plan.root, Some((id(99), 7)));
    assert_eq!(
        lines(&plan),
        [
            "br0 65534 tap",
            "eth0 9 netdev",
            "in0 1 tap",
            "p0 2 patch",
            "vx 3 interface type `vxlan` is not supported",
            "br1 65534 tap",
            "eth0 1 interface eth0 is in the database more than once",
            "p1 2 patch",
        ]
    );
    let config = plan.bridges[0].config().unwrap();
    let numbers: Vec<_> = config.ports.iter().map(|port| port.openflow_port).collect();
    assert_eq!((config.logic.name.as_str(), numbers), ("openflow", vec![None, Some(9), Some(1), Some(2)]));
    let Spec::Patch(options) = &config.port("p0").unwrap().spec else { panic!("{config:?}") };
    assert_eq!(options.peer.to_string(), "br1/p1");
}

#[test]
fn names_that_no_device_can_have_are_not_looked_up() {
    let replica = database(&[("br0", Row::new(), &[("../../../tmp/x", Row::new()), ("eth0", Row::new())])]);
    let plan = plan_of(&replica);
    let devices: Vec<_> = plan.bridges[0].interfaces.iter().map(|it| it.device).collect();
    assert_eq!(devices, [None, Some(Device::Existing)]);
}

#[test]
fn a_bridge_has_an_address_and_an_id() {
    let other = |entries| row(&[("other_config", map(entries))]);
    let replica = database(&[
        ("br0", Row::new(), &[]),
        ("br1", other(&[("hwaddr", "02:00:00:00:00:07")]), &[]),
        ("br2", other(&[("datapath-id", "0000000000000abc")]), &[]),
        ("br3", other(&[("hwaddr", "03:00:00:00:00:07"), ("datapath-id", "no")]), &[]),
    ]);
    let plan = plan_of(&replica);
    let ids: Vec<_> = plan.bridges.iter().map(|bridge| bridge.datapath_id.to_string()).collect();
    assert_eq!(ids, ["0000020000000000", "0000020000000007", "0000000000000abc", "0000060000000000"]);
}

#[test]
fn what_is_not_supported_is_not_configured() {
    let replica = database(&[
        ("br0", row(&[("datapath_type", "other".into())]), &[("br0", Row::new())]),
        ("br1", row(&[("fail_mode", "secure".into())]), &[]),
    ]);
    let plan = plan_of(&replica);
    assert_eq!(lines(&plan), ["br0 65534 datapath type `other` is not supported"]);
    assert_eq!(plan.bridges[0].config(), None);
    let secure = plan.bridges[1].config().unwrap();
    assert_eq!(secure.openflow.fail_mode, FailMode::Secure, "nothing is forwarded without flows");
    assert_eq!(plan_of(&replica_without_root()), Plan::default());
}

fn replica_without_root() -> Replica {
    replica(&[])
}

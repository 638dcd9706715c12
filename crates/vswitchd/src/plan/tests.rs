use ofagent::FailMode;
use ovsdb::{ColumnType, Format, Row, TableInfo, Value, vswitch};
use serde_json::{Map, Value as Json, json};

use super::*;

/// A replica of the database with the given rows, by table.
fn replica(tables: &[(&str, Vec<(Uuid, Row)>)]) -> Replica {
    let schema = ovsdb::Schema {
        tables: vswitch::TABLES
            .iter()
            .map(|TableInfo { name, columns }| {
                // A server's columns may hold more values than expected.
                let columns = columns.iter().map(|column| {
                    let column_type = ColumnType { max: None, ..column.column_type };
                    (column.name.to_owned(), column_type)
                });
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
    Plan::new(replica, Path::new("/run/openvswitch"), Types::default(), &mut GivenNumbers::new()).unwrap()
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
                ("zt", row(&[("type", "tap".into())])),
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
            "zt 4 tap",
            "br1 65534 tap",
            "eth0 1 interface eth0 is in the database more than once",
            "p1 2 patch",
        ]
    );
    let config = plan.bridges[0].config().unwrap();
    let numbers: Vec<_> = config.ports.iter().map(|port| port.openflow_port).collect();
    let expected = vec![None, Some(9), Some(1), Some(2), Some(4)];
    assert_eq!((config.logic.name.as_str(), numbers), ("openflow", expected));
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

/// Columns of an interface with a type and options.
fn typed(kind: &str, options: &[(&str, &str)]) -> Row {
    row(&[("type", kind.into()), ("options", map(options))])
}

/// The database with one bridge and settings of the table `Open_vSwitch`.
fn with_settings(settings: &[(&str, &str)], interfaces: &[(&str, Row)]) -> Plan {
    let mut replica = database(&[("br0", Row::new(), interfaces)]);
    let change = json!({"Open_vSwitch": {id(99).to_string(): {
        "old": {},
        "new": ovsdb::encode_row(&row(&[
            ("bridges", set(&[id(1)])), ("next_cfg", 7i64.into()), ("other_config", map(settings)),
        ])),
    }}});
    replica.apply(Format::OldAndNew, &change).unwrap();
    plan_of(&replica)
}

#[test]
fn interfaces_with_sockets_have_the_paths_of_open_vswitch() {
    let interfaces = [
        ("c0", typed("dpdkvhostuserclient", &[("vhost-server-path", "/vm/c0"), ("n_rxq", "2")])),
        ("c1", typed("dpdkvhostuserclient", &[])),
        ("m0", typed("memif", &[("socket", "/vm/m"), ("id", "7"), ("role", "client")])),
        ("m1", typed("memif", &[("sokcet", "/vm/m")])),
        ("s0", typed("dpdkvhostuser", &[("path", "/etc/passwd"), ("queues", "2")])),
    ];
    let paths = |plan: &Plan| {
        let interfaces = plan.bridges[0].interfaces.iter();
        interfaces
            .map(|it| match it.port.as_ref().map(|port| &port.spec) {
                Ok(Spec::VhostUser(options)) => {
                    format!("{:?} {} {}", options.role, options.socket.display(), options.queues)
                }
                Ok(Spec::Memif(options)) => {
                    format!("{:?} {} {}", options.role, options.socket.display(), options.id)
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) => error.clone(),
            })
            .collect::<Vec<_>>()
    };
    let plan = with_settings(&[], &interfaces);
    assert!(!plan.dpdk);
    let [c0, c1, m0, m1, s0] = &paths(&plan)[..] else { panic!("{plan:?}") };
    assert_eq!(c0, "Client /vm/c0 16");
    assert_eq!(c1, "a dpdkvhostuserclient interface needs options:vhost-server-path");
    assert_eq!(m0, "Client /vm/m 7");
    assert!(m1.starts_with("options: unknown key `sokcet`"), "{m1}");
    assert_eq!(s0, "Server /run/openvswitch/s0 2");

    let settings = [("dpdk-init", "true"), ("vhost-sock-dir", "/vhost")];
    let plan = with_settings(&settings, &interfaces);
    assert!(plan.dpdk);
    assert_eq!(paths(&plan)[4], "Server /run/openvswitch/vhost/s0 2");
    let plan = with_settings(&[("vhost-sock-dir", "../vhost")], &interfaces);
    let expected = "other_config:vhost-sock-dir is `../vhost`; expected a folder inside /run/openvswitch";
    assert_eq!(paths(&plan)[4], expected);
}

#[test]
fn rows_of_mirrors_become_mirrors() {
    let vlans = |vids: &[i64]| Value::Set(vids.iter().map(|vid| ovsdb::Atom::Integer(*vid)).collect());
    // Ports of interfaces a, b and c.
    let [a, b, c] = [101, 103, 105].map(id);
    let rows = [
        ("all", row(&[("select_all", true.into()), ("output_port", set(&[c]))])),
        (
            "some",
            row(&[
                ("select_src_port", set(&[a, b])),
                ("select_dst_port", set(&[b])),
                ("select_vlan", vlans(&[5])),
                ("output_port", set(&[c])),
                ("snaplen", 100i64.into()),
            ]),
        ),
        ("none", row(&[("output_port", set(&[c]))])),
        ("vlan", row(&[("output_vlan", 7i64.into())])),
        ("lost", Row::new()),
        ("away", row(&[("output_port", set(&[id(42)]))])),
    ];
    let mut numbered = vec![];
    for ((name, columns), number) in rows.into_iter().zip(200..) {
        let mut columns: Row = columns;
        columns.insert("name".into(), name.into());
        numbered.push((id(number), columns));
    }
    let mirrors: Vec<_> = numbered.iter().map(|(uuid, _)| *uuid).collect();
    let interfaces = [("a", Row::new()), ("b", Row::new()), ("c", Row::new())];
    let mut replica = database(&[("br0", row(&[("mirrors", set(&mirrors))]), &interfaces)]);
    let rows = numbered.iter().map(|(uuid, row)| (uuid.to_string(), json!({"new": ovsdb::encode_row(row)})));
    let rows: Map<String, Json> = rows.collect();
    replica.apply(Format::OldAndNew, &json!({ "Mirror": rows })).unwrap();
    let plan = plan_of(&replica);
    let config = plan.bridges[0].config().unwrap();
    let [all, some, none, vlan] = &config.mirrors[..] else { panic!("{config:?}") };
    assert_eq!((all.to.as_str(), &all.from, &all.by_port, &all.vlans), ("c", &vec![], &None, &None));
    let by_port = some.by_port.clone().unwrap();
    let directions = by_port.iter().map(|(port, what)| (port.as_str(), what.received, what.sent));
    assert!(directions.eq([("a", true, false), ("b", true, true)]), "{some:?}");
    let vlans = some.vlans.clone().unwrap();
    assert!(vlans.contains(5) && !vlans.contains(0));
    assert_eq!(none.by_port, Some(vec![]), "nothing is copied, but c is the mirror's");
    assert_eq!((all.cut, some.cut), (None, Some(100)));
    assert_eq!((vlan.to.as_str(), vlan.into_vlan), ("", packet::ether::Vid::new(7)));
    assert_eq!(
        plan.warnings,
        [
            "bridge br0: mirror lost: it has neither output_port nor output_vlan",
            "bridge br0: mirror away: output_port is not a port of the bridge",
        ]
    );
}

#[test]
fn a_row_that_cannot_be_read_fails_alone() {
    let numbers = Value::Set([1, 2].map(ovsdb::Atom::Integer).into());
    let texts = Value::Set(["x", "y"].map(|text| ovsdb::Atom::String(text.into())).into());
    let interfaces = [("a", row(&[("mtu_request", numbers)])), ("b", Row::new())];
    let replica = database(&[
        ("br0", Row::new(), &interfaces),
        ("br1", row(&[("datapath_type", texts)]), &[("c", Row::new())]),
    ]);
    assert_eq!(
        lines(&plan_of(&replica)),
        [
            "a 1 column `Interface.mtu_request` holds [\"set\",[1,2]]",
            "b 2 netdev",
            "c 1 column `Bridge.datapath_type` holds [\"set\",[\"x\",\"y\"]]",
        ]
    );
}

#[test]
fn qos_and_policing_warn_of_what_has_no_effect() {
    let policed = [("ingress_policing_rate", 1i64.into()), ("ingress_policing_kpkts_rate", 1i64.into())];
    let mut replica = database(&[("br0", Row::new(), &[("a", row(&policed))])]);
    let change = json!({
        "QoS": {id(50).to_string(): {"new": {"type": "linux-sfq"}}},
        "Port": {id(101).to_string(): {"old": {}, "new": ovsdb::encode_row(&row(&[
            ("name", "a".into()), ("interfaces", set(&[id(100)])), ("qos", set(&[id(50)])),
        ]))}},
    });
    replica.apply(Format::OldAndNew, &change).unwrap();
    let plan = plan_of(&replica);
    let port = plan.bridges[0].config().unwrap().ports.remove(0);
    assert_eq!(port.settings.police.unwrap().rate, 1000);
    assert_eq!(port.settings.egress, None);
    assert_eq!(
        plan.warnings,
        ["bridge br0: interface a: ingress_policing_kpkts_rate has no effect beside ingress_policing_rate"]
    );
    // Open vSwitch says nothing of it, and a warning would be news to its users.
    let fault = "QoS of type `linux-sfq` is not supported; \
        expected linux-htb, linux-hfsc, egress-policer, trtcm-policer or linux-noop";
    assert_eq!(plan.notes, [format!("port a: {fault}")]);
    let status = [("qos_error".to_owned(), fault.to_owned())];
    assert_eq!(plan.bridges[0].statuses, [(id(101), status.into())].into());
}

#[test]
fn bridges_take_part_in_spanning_trees() {
    use spanning_tree::Protocol;
    let port = |number: u8, name: &str, interfaces: &[u8], keys: &[(&str, &str)]| {
        let interfaces = set(&interfaces.iter().map(|number| id(*number)).collect::<Vec<_>>());
        (id(number), row(&[("name", name.into()), ("interfaces", interfaces), ("other_config", map(keys))]))
    };
    let interface = |number: u8, name: &str, kind: &str| {
        (id(number), row(&[("name", name.into()), ("type", kind.into())]))
    };
    let with = |columns: &[(&str, Value)]| {
        let ports = [port(20, "br0", &[10], &[])].into_iter().chain([
            port(21, "p1", &[11], &[("stp-port-num", "7"), ("rstp-path-cost", "x")]),
            port(22, "p2", &[12], &[("stp-enable", "false")]),
            port(23, "p3", &[13], &[("stp-port-num", "7")]),
            port(24, "vlan9", &[14], &[]),
            port(25, "bond0", &[15, 16], &[]),
        ]);
        let ports: Vec<_> = ports.collect();
        let all = set(&ports.iter().map(|(uuid, _)| *uuid).collect::<Vec<_>>());
        let bridge = row(&[&[("name", "br0".into()), ("ports", all)], columns].concat());
        let names = ["br0", "p1", "p2", "p3", "vlan9", "m1", "m2"];
        let kinds = ["internal", "", "", "", "internal", "", ""];
        let interfaces =
            (10..).zip(names).zip(kinds).map(|((number, name), kind)| interface(number, name, kind));
        let root = row(&[("bridges", set(&[id(1)]))]);
        plan_of(&replica(&[
            ("Open_vSwitch", vec![(id(99), root)]),
            ("Bridge", vec![(id(1), bridge)]),
            ("Port", ports),
            ("Interface", interfaces.collect()),
        ]))
    };
    let tree = |plan: &Plan| {
        let tree = plan.bridges[0].tree.as_ref()?;
        let ports: Vec<_> = tree.ports.iter().map(|port| (port.name.clone(), port.number)).collect();
        let closed =
            plan.bridges[0].interfaces.iter().filter(|it| it.port.as_ref().is_ok_and(|port| port.in_tree));
        assert_eq!(
            closed.map(|it| it.name.clone()).collect::<BTreeSet<_>>(),
            ports.iter().map(|it| it.0.clone()).collect()
        );
        Some((tree.settings.protocol(), ports))
    };
    assert_eq!(tree(&with(&[])), None);
    let plan = with(&[("stp_enable", true.into())]);
    assert_eq!(tree(&plan), Some((Protocol::Stp, vec![("p1".into(), Some(7))])));
    let expected =
        ["port bond0: cannot enable STP on bonds, disabling", "port p3: duplicate stp-port-num 7, disabling"];
    assert_eq!(plan.errors.iter().collect::<BTreeSet<_>>(), expected.map(str::to_owned).iter().collect());
    // With both, RSTP.
    let plan = with(&[("stp_enable", true.into()), ("rstp_enable", true.into())]);
    let names = ["p1", "p2", "p3"].map(|name| (name.to_owned(), None));
    assert_eq!(tree(&plan), Some((Protocol::Rstp, names.to_vec())));
    assert!(plan.errors.contains(&"port p1: rstp-path-cost `x` is not a number; using the default".into()));
}

//! The control side: versions, roles, filters, timeouts, limits, errors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use ofswitch::{ConnectionKind, Limits, Settings, Switch};
use openflow::message::{
    Body, BundleAdd, BundleControl, BundleControlKind, BundleFlags, FlowModCommand, Hello, PortConfig,
    PortMod, Role, RoleMessage, TableConfig, TableMod, TableModProperty, Vacancy, Versions,
};
use openflow::multipart::{Multipart, Reply, Request};
use openflow::{Mac, Message, PortNo, Version, text};
use support::{SECOND, World, connect, udp};

#[test]
fn the_newest_common_version_is_spoken() {
    let mut switch =
        Switch::new(Settings { versions: vec![Version::V1_0, Version::V1_3], ..Settings::default() });
    let id = switch.connect(ConnectionKind::Controller).unwrap();
    let hello = Hello::new(Versions::from_iter([Version::V1_3, Version::V1_5]));
    switch.receive(id, &Message::new(Version::V1_5, 1, Body::Hello(hello)).encode().unwrap(), 0);
    switch.next_message(id).unwrap();
    let echo = |version| Message::new(version, 9, Body::EchoRequest(vec![1, 2])).encode().unwrap();
    switch.receive(id, &echo(Version::V1_3), 0);
    let reply = Message::decode(&switch.next_message(id).unwrap()).unwrap();
    assert_eq!((reply.xid, reply.body), (9, Body::EchoReply(vec![1, 2])));
    switch.receive(id, &echo(Version::V1_0), 0);
    let reply = Message::decode(&switch.next_message(id).unwrap()).unwrap();
    let Body::Error(error) = reply.body else { panic!("{reply:?}") };
    assert_eq!(error.code(Version::V1_0).unwrap().name(), "OFPBRC_BAD_VERSION");
}

#[test]
fn without_a_common_version_the_connection_ends() {
    let mut switch = Switch::new(Settings { versions: vec![Version::V1_3], ..Settings::default() });
    let id = switch.connect(ConnectionKind::Controller).unwrap();
    let hello = Hello::new(Versions::from_iter([Version::V1_0]));
    switch.receive(id, &Message::new(Version::V1_0, 1, Body::Hello(hello)).encode().unwrap(), 0);
    switch.next_message(id).unwrap();
    let Body::Error(error) = Message::decode(&switch.next_message(id).unwrap()).unwrap().body else {
        panic!()
    };
    assert_eq!(error.code(Version::V1_0).unwrap().name(), "OFPHFC_INCOMPATIBLE");
    assert!(switch.is_closed(id));
}

#[test]
fn errors_repeat_what_they_refuse() {
    let mut world = World::new(Version::V1_3);
    let request = [4, 14, 0, 12, 0, 0, 0, 9, 0, 0, 0, 0];
    world.switch.receive(world.connection, &request, 0);
    let messages = world.messages();
    let [Message { xid: 9, body: Body::Error(error), .. }] = messages.as_slice() else {
        panic!("{messages:?}")
    };
    assert_eq!(
        (error.code(Version::V1_3).unwrap().name(), &error.data[..]),
        ("OFPBRC_BAD_LEN", &request[..])
    );
    world.flow_mod(FlowModCommand::Add, "actions=resubmit(,254)");
    assert_eq!(world.errors(), ["OFPBRC_BAD_TABLE_ID"]);
    world.flow_mod(FlowModCommand::Add, "table=254,actions=drop");
    // As in Open vSwitch, which has flows of its own there.
    assert_eq!(world.errors(), ["OFPBRC_EPERM"]);
}

fn role(role: Role, generation_id: u64) -> Body {
    Body::RoleRequest(RoleMessage { role, short_id: 0, generation_id })
}

#[test]
fn there_is_one_primary_controller() {
    let mut world = World::new(Version::V1_4);
    world.send(role(Role::Primary, 5));
    let first = world.connection;
    world.messages();
    world.connection = connect(&mut world.switch, Version::V1_4);
    world.send(role(Role::Primary, 4));
    assert_eq!(world.errors(), ["OFPRRFC_STALE"]);
    world.send(role(Role::Primary, 6));
    let replies = world.messages();
    let [Message { body: Body::RoleReply(reply), .. }] = replies.as_slice() else { panic!("{replies:?}") };
    assert_eq!((reply.role, reply.generation_id), (Role::Primary, 6));
    // The first one is told, and may only read from now on.
    world.connection = first;
    let told = world.messages();
    assert!(
        matches!(&told[..], [Message { body: Body::RoleStatus(status), .. }] if status.role == Role::Secondary)
    );
    world.flow_mod(FlowModCommand::Add, "actions=drop");
    assert_eq!(world.errors(), ["OFPBRC_IS_SECONDARY"]);
    world.send(Body::MultipartRequest(Multipart { more: false, content: Request::Desc }));
    assert_eq!(world.errors(), [""; 0]);
}

#[test]
fn timeouts_are_told() {
    let mut world = World::new(Version::V1_3);
    world.add("send_flow_rem,idle_timeout=5,cookie=0x1,in_port=1,actions=output:2");
    world.add("send_flow_rem,hard_timeout=7,cookie=0x2,in_port=2,actions=output:1");
    world.add("idle_timeout=5,cookie=0x3,in_port=3,actions=output:1");
    world.now = 4 * SECOND;
    world.packet(1, &udp());
    world.switch.tick(8 * SECOND);
    let removed: Vec<_> = world
        .messages()
        .into_iter()
        .map(|message| match message.body {
            Body::FlowRemoved(removed) => {
                (removed.cookie, removed.reason, removed.stats.packets(), removed.stats.duration().unwrap().0)
            }
            body => panic!("{body:?}"),
        })
        .collect();
    assert_eq!(removed, [(2, 1, Some(0), 8)]);
    world.switch.tick(9 * SECOND);
    assert_eq!(world.messages().len(), 0, "a flow is there to the very end of its time");
    world.switch.tick(9 * SECOND + 1);
    let removed = world.messages();
    assert!(
        matches!(&removed[..], [Message { body: Body::FlowRemoved(r), .. }] if r.cookie == 1 && r.reason == 0 && r.stats.packets() == Some(1))
    );
    assert_eq!(world.switch.flow_count(), 0);
}

#[test]
fn counters_survive_what_does_not_reset_them() {
    let mut world = World::new(Version::V1_3);
    let packets = |world: &mut World| {
        let request = openflow::multipart::FlowStatsRequest {
            table_id: 0xff,
            out_port: PortNo::ANY,
            out_group: openflow::version::group::ANY,
            ..Default::default()
        };
        world.send(Body::MultipartRequest(Multipart { more: false, content: Request::Aggregate(request) }));
        match world.messages().pop().unwrap().body {
            Body::MultipartReply(Multipart { content: Reply::Aggregate(sums), .. }) => {
                sums.0.packets().unwrap()
            }
            body => panic!("{body:?}"),
        }
    };
    world.add("actions=output:2");
    world.packet(1, &udp());
    world.flow_mod(FlowModCommand::Modify, "actions=output:3");
    assert_eq!(packets(&mut world), 1);
    world.add("actions=output:4");
    assert_eq!(packets(&mut world), 1);
    world.add("reset_counts,actions=output:4");
    assert_eq!(packets(&mut world), 0);
}

#[test]
fn idle_ages_survive_replacements_and_idle_timeouts_start_anew() {
    let mut world = World::new(Version::V1_5);
    let idle = |world: &mut World| {
        let request = openflow::multipart::FlowStatsRequest {
            table_id: 0xff,
            out_port: PortNo::ANY,
            out_group: openflow::version::group::ANY,
            ..Default::default()
        };
        world.send(Body::MultipartRequest(Multipart { more: false, content: Request::Flow(request) }));
        let Body::MultipartReply(Multipart { content: Reply::Flow(flows), .. }) =
            world.messages().pop().unwrap().body
        else {
            panic!()
        };
        let of = |stat: &openflow::stats::Stat| match stat {
            openflow::stats::Stat::IdleTime(seconds, _) => Some(*seconds),
            _ => None,
        };
        flows.iter().flat_map(|flow| &flow.stats.0).find_map(of)
    };
    world.add("idle_timeout=10,actions=output:2");
    world.packet(1, &udp());
    world.now += 6 * SECOND;
    for flow in ["idle_timeout=10,actions=output:3", "reset_counts,idle_timeout=10,actions=output:4"] {
        world.add(flow);
        assert_eq!(idle(&mut world), Some(6), "{flow}");
    }
    world.flow_mod(FlowModCommand::Modify, "reset_counts,actions=output:2");
    assert_eq!(idle(&mut world), Some(6));
    world.now += 6 * SECOND;
    world.switch.tick(world.now);
    assert_eq!(idle(&mut world), Some(12), "it is there");
    // A packet in the instant of the replacement counts.
    world.add("idle_timeout=10,actions=output:3");
    world.packet(1, &udp());
    world.now += SECOND;
    assert_eq!(idle(&mut world), Some(1));
    world.now += 10 * SECOND;
    world.switch.tick(world.now);
    assert_eq!(idle(&mut world), None);
}

#[test]
fn full_tables_refuse_or_evict() {
    let mut world = World::with(Version::V1_4, Limits { flows_per_table: 4, ..Limits::default() });
    let table = |config, properties| Body::TableMod(TableMod { table_id: 0, config, properties });
    let thresholds = TableModProperty::Vacancy(Vacancy { down: 30, up: 60, current: 0 });
    world.send(table(TableConfig::VACANCY_EVENTS, vec![thresholds]));
    for port in 1..5 {
        world.flow_mod(
            FlowModCommand::Add,
            &format!("send_flow_rem,hard_timeout=60,importance={port},in_port={port},actions=drop"),
        );
    }
    // Three of four are used: a quarter is free.
    let told = world.messages();
    assert!(matches!(&told[..], [Message { body: Body::TableStatus(status), .. }] if status.reason == 3));
    world.flow_mod(FlowModCommand::Add, "importance=9,in_port=5,actions=drop");
    assert_eq!(world.errors(), ["OFPFMFC_TABLE_FULL"]);
    world.send(table(TableConfig::EVICTION, vec![TableModProperty::Eviction(2)]));
    world.flow_mod(FlowModCommand::Add, "importance=0,in_port=5,actions=drop");
    assert_eq!(world.errors(), ["OFPFMFC_TABLE_FULL"]);
    world.flow_mod(FlowModCommand::Add, "importance=9,in_port=5,actions=drop");
    let told = world.messages();
    assert!(matches!(&told[..], [Message { body: Body::FlowRemoved(r), .. }] if r.reason == 5));
    assert_eq!(world.switch.flow_count(), 4);
    assert!(world.switch.is_consistent());
}

#[test]
fn the_first_vacancy_event_depends_on_the_free_space() {
    let mut world = World::with(Version::V1_4, Limits { flows_per_table: 10, ..Limits::default() });
    let table = |config, properties| Body::TableMod(TableMod { table_id: 0, config, properties });
    let thresholds = TableModProperty::Vacancy(Vacancy { down: 20, up: 80, current: 0 });
    (1..=3).for_each(|port| world.add(&format!("in_port={port},actions=drop")));
    // 70 % are free, less than the upper threshold: what comes next is that it is exceeded.
    world.send(table(TableConfig::VACANCY_EVENTS, vec![thresholds]));
    (4..=10).for_each(|port| world.add(&format!("in_port={port},actions=drop")));
    let reasons = |world: &mut World| -> Vec<u8> {
        let reason = |message: Message| match message.body {
            Body::TableStatus(status) => Some(status.reason),
            _ => None,
        };
        world.messages().into_iter().filter_map(reason).collect()
    };
    assert_eq!(reasons(&mut world), [0; 0]);
    (1..=9).for_each(|port| world.flow_mod(FlowModCommand::Delete, &format!("in_port={port}")));
    assert_eq!(reasons(&mut world), [4]);
    (1..=9).for_each(|port| world.flow_mod(FlowModCommand::Add, &format!("in_port={port},actions=drop")));
    assert_eq!(reasons(&mut world), [3]);
}

#[test]
fn changes_of_flows_are_counted_once_they_take_effect() {
    let mut world = World::new(Version::V1_4);
    world.add("in_port=1,actions=2");
    world.flow_mod(FlowModCommand::Modify, "actions=3");
    world.flow_mod(FlowModCommand::Add, "table=254,actions=2");
    world.send(control(1, BundleControlKind::OpenRequest));
    add_to(&mut world, 1, "in_port=2,actions=output:2");
    add_to(&mut world, 1, "in_port=3,actions=output:2");
    let counts = world.switch.take_flow_mods(world.connection);
    assert_eq!((counts.adds, counts.modifications, counts.deletes), (1, 1, 0));
    world.send(control(1, BundleControlKind::CommitRequest));
    world.flow_mod(FlowModCommand::DeleteStrict, "in_port=2");
    let counts = world.switch.take_flow_mods(world.connection);
    assert_eq!((counts.adds, counts.modifications, counts.deletes), (2, 0, 1));
    assert_eq!(world.switch.take_flow_mods(world.connection), Default::default());
}

#[test]
fn tables_tell_which_fields_they_match_and_set() {
    use openflow::field::{Field, FieldId};
    use openflow::message::{FieldIds, TableFeature};
    let mut world = World::new(Version::V1_3);
    world.send(Body::MultipartRequest(Multipart { more: false, content: Request::TableFeatures(vec![]) }));
    let tables = match world.messages().remove(0).body {
        Body::MultipartReply(Multipart { content: Reply::TableFeatures(tables), .. }) => tables,
        body => panic!("{body:?}"),
    };
    let names = |wanted: &dyn Fn(&TableFeature) -> Option<&FieldIds>| -> Vec<&str> {
        let ids = tables[0].properties.iter().find_map(wanted).unwrap();
        ids.0.iter().filter_map(|header| header.field().map(|field: &Field| field.name)).collect()
    };
    let matched = names(&|feature| match feature {
        TableFeature::Match(ids) => Some(ids),
        _ => None,
    });
    let set = names(&|feature| match feature {
        TableFeature::ApplySetField(ids) => Some(ids),
        _ => None,
    });
    for name in ["reg0", "tun_dst", "tun_metadata63", "ct_state", "eth_type", "tcp_flags"] {
        assert!(matched.contains(&name), "{name}");
    }
    for name in ["reg15", "tun_dst", "tun_metadata63", "in_port_oxm", "nw_tos"] {
        assert!(set.contains(&name), "{name}");
    }
    // What marks connections, and what says which header follows, is not offered.
    for name in ["ct_mark", "eth_type", "nw_proto", "tcp_flags"] {
        assert!(!set.contains(&name), "{name}");
    }
    let mut world = World::new(Version::V1_2);
    world.send(Body::MultipartRequest(Multipart { more: false, content: Request::Table }));
    let tables = match world.messages().remove(0).body {
        Body::MultipartReply(Multipart { content: Reply::Table(tables), .. }) => tables,
        body => panic!("{body:?}"),
    };
    let bit = |id: FieldId| 1u64 << id.field().number_in(Version::V1_2).field;
    let (first, last) = (&tables[0], tables.last().unwrap());
    assert_eq!(first.match_fields & bit(FieldId::MplsLabel), bit(FieldId::MplsLabel));
    assert_eq!(first.apply_setfields & bit(FieldId::EthType), 0);
    assert_eq!((first.instructions & 2, last.instructions & 2), (2, 0), "no table follows the last one");
}

fn control(bundle: u32, kind: BundleControlKind) -> Body {
    Body::BundleControl(BundleControl { bundle, kind, flags: BundleFlags::ATOMIC, properties: vec![] })
}

fn add_to(world: &mut World, bundle: u32, flow: &str) {
    let flow = text::parse_flow(flow, FlowModCommand::Add, world.version).unwrap();
    let message = Message::new(world.version, 77, Body::FlowMod(Box::new(flow))).encode().unwrap();
    let add = BundleAdd { bundle, flags: BundleFlags::ATOMIC, message, trailing: vec![] };
    let bytes = Message::new(world.version, 77, Body::BundleAdd(add)).encode().unwrap();
    world.switch.receive(world.connection, &bytes, world.now);
}

#[test]
fn bundles_take_effect_as_a_whole() {
    let limits = Limits { bundle_messages: 3, bundles: 1, ..Limits::default() };
    let mut world = World::with(Version::V1_4, limits);
    world.send(control(1, BundleControlKind::OpenRequest));
    add_to(&mut world, 1, "in_port=1,actions=output:2");
    add_to(&mut world, 1, "in_port=2,actions=output:1");
    assert_eq!((world.errors(), world.switch.flow_count()), (vec![], 0));
    world.send(control(2, BundleControlKind::OpenRequest));
    assert_eq!(world.errors(), ["OFPBFC_OUT_OF_BUNDLES"]);
    world.send(control(1, BundleControlKind::CommitRequest));
    assert_eq!((world.errors(), world.switch.flow_count()), (vec![], 2));
    world.send(control(1, BundleControlKind::CommitRequest));
    assert_eq!(world.errors(), ["OFPBFC_BAD_ID"]);
    world.send(control(3, BundleControlKind::OpenRequest));
    (0..4).for_each(|_| add_to(&mut world, 3, "actions=drop"));
    assert_eq!(world.errors(), ["OFPBFC_MSG_TOO_MANY"]);
    world.send(control(3, BundleControlKind::DiscardRequest));
    assert_eq!((world.errors(), world.switch.flow_count()), (vec![], 2));
    world.send(control(4, BundleControlKind::OpenRequest));
    add_to(&mut world, 4, "in_port=3,actions=drop");
    add_to(&mut world, 4, "check_overlap,actions=drop");
    world.send(control(4, BundleControlKind::CommitRequest));
    assert_eq!(world.errors(), ["OFPFMFC_OVERLAP", "OFPBFC_MSG_FAILED"]);
    assert_eq!(world.switch.flow_count(), 2);
    assert!(world.switch.is_consistent());
}

#[test]
fn ports_do_as_they_are_configured() {
    let mut world = World::new(Version::V1_3);
    world.add("actions=flood");
    let configure = |number: u32, address: u8, config: PortConfig| {
        Body::PortMod(PortMod {
            number: PortNo(number),
            address: Mac([2, 0, 0, 0, 0, address]),
            config,
            mask: config,
            properties: vec![],
        })
    };
    world.send(configure(2, 9, PortConfig::PORT_DOWN));
    world.send(configure(9, 9, PortConfig::PORT_DOWN));
    assert_eq!(world.errors(), ["OFPPMFC_BAD_HW_ADDR", "OFPPMFC_BAD_PORT"]);
    world.send(configure(2, 2, PortConfig::NO_FLOOD));
    world.send(configure(3, 3, PortConfig::NO_FWD));
    let told = world.messages();
    assert!(told.iter().all(|message| matches!(message.body, Body::PortStatus(_))) && told.len() == 2);
    let ports: Vec<_> =
        world.packet(1, &udp()).into_iter().map(|l| l.split(": ").next().unwrap().to_owned()).collect();
    assert_eq!(ports, ["drop", "4"]);
    world.send(configure(1, 1, PortConfig::NO_RECV));
    assert_eq!(world.packet(1, &udp()), ["drop: the port is configured to receive nothing"]);
}

#[test]
fn a_buffered_packet_meets_the_flow_it_came_for() {
    let mut world = World::new(Version::V1_0);
    world.packet(1, &[udp(), vec![0; 200]].concat());
    let messages = world.messages();
    let [Message { body: Body::PacketIn(packet), .. }] = messages.as_slice() else { panic!("{messages:?}") };
    assert_eq!((packet.data.len(), packet.total_len), (128, 246));
    let mut flow =
        text::parse_flow("in_port=1,actions=output:3", FlowModCommand::Add, Version::V1_0).unwrap();
    flow.buffer_id = packet.buffer_id;
    world.send(Body::FlowMod(Box::new(flow)));
    let effects: Vec<_> = world.switch.take_effects().iter().map(support::show).collect();
    assert!(
        matches!(effects.as_slice(), [one] if one.starts_with("3: ") && one.len() == 3 + 2 * 246),
        "{effects:?}"
    );
}

#[test]
fn fragments_are_dropped_if_configured() {
    let mut world = World::new(Version::V1_3);
    world.add("actions=output:2");
    let mut fragment = udp();
    fragment[21] = 1;
    assert!(world.packet(1, &fragment)[0].starts_with("2: "));
    world.send(Body::SetConfig(openflow::message::SwitchConfig { flags: 1, miss_send_len: 128 }));
    assert_eq!(world.packet(1, &fragment), ["drop: IP fragment"]);
}

#[test]
fn a_secondary_controller_changes_neither_tables_nor_fragments() {
    use openflow::message::SwitchConfig;
    let mut world = World::new(Version::V1_3);
    let features =
        |wanted| Body::MultipartRequest(Multipart { more: false, content: Request::TableFeatures(wanted) });
    world.send(features(vec![]));
    let tables = match world.messages().remove(0).body {
        Body::MultipartReply(Multipart { content: Reply::TableFeatures(tables), .. }) => tables,
        body => panic!("{body:?}"),
    };
    world.send(role(Role::Secondary, 1));
    world.messages();
    world.send(features(vec![tables[0].clone()]));
    assert_eq!(world.errors(), ["OFPBRC_IS_SECONDARY"]);
    world.send(features(vec![]));
    assert_eq!(world.errors(), [""; 0]);
    world.send(Body::SetConfig(SwitchConfig { flags: 1, miss_send_len: 77 }));
    world.send(Body::GetConfigRequest);
    let messages = world.messages();
    let [Message { body: Body::GetConfigReply(config), .. }] = messages.as_slice() else {
        panic!("{messages:?}")
    };
    assert_eq!((config.flags, config.miss_send_len), (0, 77));
}

#[test]
fn a_request_of_several_messages_is_answered_once() {
    let mut world = World::new(Version::V1_3);
    let features =
        |more, wanted| Body::MultipartRequest(Multipart { more, content: Request::TableFeatures(wanted) });
    world.send(features(false, vec![]));
    let tables: Vec<_> = world
        .messages()
        .into_iter()
        .flat_map(|message| match message.body {
            Body::MultipartReply(Multipart { content: Reply::TableFeatures(tables), .. }) => tables,
            body => panic!("{body:?}"),
        })
        .collect();
    let named = |at: usize, name: &str| {
        let mut table = tables[at].clone();
        table.name = openflow::Text(name.as_bytes().to_vec());
        table
    };
    // All messages of a request have its number.
    let send = |world: &mut World, xid, body| {
        let bytes = Message::new(Version::V1_3, xid, body).encode().unwrap();
        world.switch.receive(world.connection, &bytes, 0);
        world.messages().len()
    };
    assert_eq!(send(&mut world, 7, features(true, vec![named(0, "zero")])), 0);
    assert_eq!(world.switch.table_names().len(), 0, "nothing changes before the end");
    assert!(send(&mut world, 7, features(false, vec![named(1, "one")])) > 1);
    assert_eq!(world.switch.table_names().into_values().collect::<Vec<_>>(), ["zero", "one"]);
    // Another request begins anew, and none grows without end.
    assert_eq!(send(&mut world, 8, features(true, vec![named(0, "other")])), 0);
    send(&mut world, 9, features(false, vec![]));
    assert_eq!(world.switch.table_names()[&0], "zero");
    (0..31).for_each(|_| assert_eq!(send(&mut world, 10, features(true, vec![])), 0));
    let bytes = Message::new(Version::V1_3, 10, features(true, vec![])).encode().unwrap();
    world.switch.receive(world.connection, &bytes, 0);
    assert_eq!(world.errors(), ["OFPBRC_MULTIPART_BUFFER_OVERFLOW"]);
}

#[test]
fn a_packet_out_to_the_tables_that_misses_goes_to_old_controllers() {
    use openflow::action::{Action, Output};
    let mut world = World::new(Version::V1_0);
    let output = |port| Action::Output(Output { port, max_len: 0 });
    world.send(Body::PacketOut(openflow::message::PacketOut {
        buffer_id: openflow::version::NO_BUFFER,
        in_port: PortNo(1),
        actions: vec![output(PortNo::TABLE), output(PortNo(3))],
        data: udp(),
        ..Default::default()
    }));
    let messages = world.messages();
    let [Message { body: Body::PacketIn(packet), .. }] = messages.as_slice() else { panic!("{messages:?}") };
    assert_eq!((packet.reason, packet.in_port), (0, PortNo(1)));
    // What follows the output takes place all the same.
    let effects: Vec<_> = world.switch.take_effects().iter().map(support::show).collect();
    assert!(matches!(&effects[..], [one] if one.starts_with("3: ")), "{effects:?}");
}

#[test]
fn a_refused_request_makes_none_of_its_monitors() {
    use openflow::multipart::{MonitorFlags, MonitorRequest};
    let mut world = World::new(Version::V1_4);
    let one = |monitor, command| MonitorRequest {
        monitor,
        command,
        flags: MonitorFlags::ADD,
        table_id: 0xff,
        out_port: PortNo::ANY,
        out_group: openflow::version::group::ANY,
        ..MonitorRequest::default()
    };
    // The second one changes a monitor that does not exist.
    let request = Request::FlowMonitor(vec![one(1, 0), one(2, 1)]);
    world.send(Body::MultipartRequest(Multipart { more: false, content: request }));
    assert_eq!(world.errors().len(), 1);
    world.add("actions=drop");
    assert_eq!(world.messages(), []);
}

#[test]
fn long_reports_of_monitors_come_in_several_messages() {
    use openflow::multipart::{MonitorFlags, MonitorRequest};
    let mut world = World::new(Version::V1_4);
    let request = MonitorRequest {
        flags: MonitorFlags::REMOVED | MonitorFlags::INSTRUCTIONS | MonitorFlags::NO_ABBREV,
        table_id: 0xff,
        out_port: PortNo::ANY,
        out_group: openflow::version::group::ANY,
        ..MonitorRequest::default()
    };
    let request = Request::FlowMonitor(vec![request]);
    world.send(Body::MultipartRequest(Multipart { more: false, content: request }));
    let long = vec!["output:2"; 1000].join(",");
    for n in 0..16 {
        world.add(&format!("priority={n},actions={long}"));
    }
    world.messages();
    world.flow_mod(FlowModCommand::Delete, "");
    let priorities: Vec<u16> = world
        .messages()
        .into_iter()
        .flat_map(|message| match message.body {
            Body::MultipartReply(Multipart { content: Reply::FlowMonitor(updates), .. }) => updates,
            body => panic!("{body:?}"),
        })
        .map(|update| match update {
            openflow::multipart::FlowUpdate::Full { priority, .. } => priority,
            update => panic!("{update:?}"),
        })
        .collect();
    assert_eq!(priorities, (0..16).collect::<Vec<u16>>());
    assert_eq!(world.switch.dropped_messages(world.connection), 0);
}

#[test]
fn modifications_release_the_packet_that_they_name() {
    let mut world = World::new(Version::V1_0);
    world.packet(1, &[0; 200]);
    let messages = world.messages();
    let [Message { body: Body::PacketIn(packet), .. }] = messages.as_slice() else { panic!("{messages:?}") };
    let mut flow = text::parse_flow("actions=output:3", FlowModCommand::Modify, Version::V1_0).unwrap();
    flow.buffer_id = packet.buffer_id;
    world.send(Body::FlowMod(Box::new(flow)));
    assert_eq!(world.errors(), [""; 0]);
    let effects: Vec<_> = world.switch.take_effects().iter().map(support::show).collect();
    assert!(matches!(&effects[..], [one] if one.starts_with("3: ")), "{effects:?}");
}

#[test]
fn a_bundle_with_a_bad_packet_out_fails() {
    let mut world = World::new(Version::V1_4);
    let control = |kind| {
        let flags = BundleFlags::ATOMIC;
        Body::BundleControl(BundleControl { bundle: 1, kind, flags, properties: vec![] })
    };
    let mut bundle = |packet: &openflow::message::PacketOut| {
        world.send(control(BundleControlKind::OpenRequest));
        let flow = text::parse_flow("actions=drop", FlowModCommand::Add, Version::V1_4).unwrap();
        for (xid, body) in [(70, Body::FlowMod(Box::new(flow))), (71, Body::PacketOut(packet.clone()))] {
            let inner = Message::new(Version::V1_4, xid, body).encode().unwrap();
            let add = BundleAdd { bundle: 1, flags: BundleFlags::ATOMIC, message: inner, trailing: vec![] };
            let bytes = Message::new(Version::V1_4, xid, Body::BundleAdd(add)).encode().unwrap();
            world.switch.receive(world.connection, &bytes, 0);
        }
        world.send(control(BundleControlKind::CommitRequest));
        (world.errors(), world.switch.flow_count())
    };
    let output = openflow::action::Output { port: PortNo(3), max_len: 0 };
    let good = openflow::message::PacketOut {
        buffer_id: openflow::version::NO_BUFFER,
        in_port: PortNo(1),
        actions: vec![openflow::action::Action::Output(output)],
        data: udp(),
        ..Default::default()
    };
    let short = openflow::message::PacketOut { data: vec![0; 13], ..good.clone() };
    assert_eq!(bundle(&short), (vec!["OFPBRC_BAD_PACKET", "OFPBFC_MSG_FAILED"], 0));
    let gone = openflow::message::PacketOut { buffer_id: 7, data: vec![], ..good.clone() };
    assert_eq!(bundle(&gone), (vec!["OFPBRC_BUFFER_UNKNOWN", "OFPBFC_MSG_FAILED"], 0));
    assert_eq!(bundle(&good), (vec![], 1));
}

#[test]
fn old_versions_ask_for_expired_packets_by_configuration() {
    use openflow::message::SwitchConfig;
    let mut world = World::new(Version::V1_2);
    world.add("ip,actions=dec_ttl,output:2");
    let mut expired = udp();
    expired[22] = 1;
    for (flags, wanted) in [(0, 0), (4, 1), (0, 0)] {
        world.send(Body::SetConfig(SwitchConfig { flags, miss_send_len: 128 }));
        world.packet(1, &expired);
        let packets = world.messages();
        assert_eq!(packets.len(), wanted, "{packets:?}");
        world.send(Body::GetConfigRequest);
        let messages = world.messages();
        assert!(
            matches!(&messages[..], [Message { body: Body::GetConfigReply(config), .. }] if config.flags == flags)
        );
    }
}

//! Writes: what each kind of entity accepts, and the codes with which the rest is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use p4runtime_proto::v1::update::Type::{Delete, Insert, Modify};
use p4runtime_proto::v1::{
    Action, ActionProfileGroup, ActionProfileMember, CounterEntry, DigestEntry, DirectCounterEntry, Entity,
    FieldMatch, Index, MeterEntry, MulticastGroupEntry, PacketReplicationEngineEntry, RegisterEntry, Replica,
    TableAction, TableEntry, Update, ValueSetEntry, ValueSetMember, action, action_profile_group,
    digest_entry, entity::Entity as Kind, field_match, field_match::FieldMatchType,
    packet_replication_engine_entry::Type as Pre, replica::PortKind, table_action, write_request::Atomicity,
};
use p4switch::{Code, Switch, WriteFailure, text};
use support::{all, entries, lines, of_text, put, read, refused, switch, update, write};

fn table_entry(switch: &Switch, line: &str) -> TableEntry {
    match text::parse(switch.program(), line).unwrap().entity {
        Some(Kind::TableEntry(entry)) => entry,
        other => panic!("{other:?}"),
    }
}

/// The code of an entry that is changed before it is written.
fn code(
    switch: &mut Switch,
    kind: p4runtime_proto::v1::update::Type,
    line: &str,
    change: impl Fn(&mut TableEntry),
) -> Code {
    let mut entry = table_entry(switch, line);
    change(&mut entry);
    let before = all(switch);
    let refusal = write(switch, update(kind, Kind::TableEntry(entry))).expect_err(line);
    assert_eq!(all(switch), before);
    refusal.0
}

#[test]
fn entries_are_inserted_modified_and_deleted() {
    let mut switch = switch();
    put(&mut switch, Insert, "exact_t a=1 wide=0x10 => forward(port=3)");
    assert_eq!(entries(&switch, "exact_t"), ["exact_t a=1 wide=0x10 => forward(port=3)"]);
    assert_eq!(
        refused(&mut switch, Insert, "exact_t a=1 wide=0x10 => forward(port=4)").0,
        Code::AlreadyExists
    );
    put(&mut switch, Modify, "exact_t a=1 wide=0x10 cookie=0x7 metadata=0x0102 => set(mac=1, delta=255)");
    let modified =
        "exact_t a=1 wide=0x10 cookie=0x7 metadata=0x0102 => set(mac=00:00:00:00:00:01, delta=255)";
    assert_eq!(entries(&switch, "exact_t"), [modified]);
    assert_eq!(refused(&mut switch, Modify, "exact_t a=2 wide=1 => forward(port=4)").0, Code::NotFound);
    assert_eq!(refused(&mut switch, Delete, "exact_t a=2 wide=1").0, Code::NotFound);
    put(&mut switch, Delete, "exact_t a=1 wide=16");
    assert!(entries(&switch, "exact_t").is_empty());
}

#[test]
fn a_full_table_takes_no_more() {
    let mut switch = switch();
    for a in 0..4 {
        put(&mut switch, Insert, &format!("exact_t a={a} wide=0 => count()"));
    }
    let (code, message) = refused(&mut switch, Insert, "exact_t a=9 wide=0 => count()");
    assert_eq!((code, &message[..]), (Code::ResourceExhausted, "table ingress.exact_t: full: its size is 4"));
}

#[test]
fn conditions_have_their_kind_and_form() {
    let mut switch = switch();
    let exact = "exact_t a=1 wide=1 => count()";
    let set = |value: FieldMatchType| {
        move |entry: &mut TableEntry| entry.r#match[0].field_match_type = Some(value.clone())
    };
    let exactly = |value: &[u8]| FieldMatchType::Exact(field_match::Exact { value: value.to_vec() });
    assert_eq!(code(&mut switch, Insert, exact, set(exactly(&[1, 0]))), Code::OutOfRange);
    assert_eq!(code(&mut switch, Insert, exact, set(exactly(&[]))), Code::OutOfRange);
    assert_eq!(
        code(&mut switch, Insert, exact, |e| e.r#match[0].field_match_type = None),
        Code::InvalidArgument
    );
    assert_eq!(code(&mut switch, Insert, exact, |e| drop(e.r#match.pop())), Code::InvalidArgument);
    assert_eq!(code(&mut switch, Insert, exact, |e| e.r#match[0].field_id = 9), Code::InvalidArgument);
    assert_eq!(
        code(&mut switch, Insert, exact, |e| e.r#match[1] = e.r#match[0].clone()),
        Code::InvalidArgument
    );
    assert_eq!(code(&mut switch, Insert, exact, |e| e.table_id = 1), Code::NotFound);
    assert_eq!(code(&mut switch, Insert, exact, |e| e.table_id = 0), Code::InvalidArgument);

    let lpm = |value: &[u8], prefix_len| {
        FieldMatchType::Lpm(field_match::Lpm { value: value.to_vec(), prefix_len })
    };
    let line = "lpm_t b=10.0.0.0/8 => drop()";
    for wrong in
        [lpm(&[10, 0, 0, 0], 0), lpm(&[10, 0, 0, 1], 31), lpm(&[10], 33), lpm(&[10], -1), exactly(&[1])]
    {
        assert_eq!(code(&mut switch, Insert, line, set(wrong.clone())), Code::InvalidArgument, "{wrong:?}");
    }
    let ternary = |value: &[u8], mask: &[u8]| {
        FieldMatchType::Ternary(field_match::Ternary { value: value.to_vec(), mask: mask.to_vec() })
    };
    let line = "ternary_t src_addr=1 prio=1 => drop()";
    for wrong in [ternary(&[1], &[2]), ternary(&[0], &[0])] {
        assert_eq!(code(&mut switch, Insert, line, set(wrong.clone())), Code::InvalidArgument, "{wrong:?}");
    }
    let range = |low: &[u8], high: &[u8]| {
        FieldMatchType::Range(field_match::Range { low: low.to_vec(), high: high.to_vec() })
    };
    let line = "ternary_t l4_port=1..2 prio=1 => drop()";
    for wrong in [range(&[2], &[1]), range(&[0], &[255, 255])] {
        assert_eq!(code(&mut switch, Insert, line, set(wrong.clone())), Code::InvalidArgument, "{wrong:?}");
    }
}

#[test]
fn any_encoding_of_a_number_names_the_same_entry() {
    let mut switch = switch();
    put(&mut switch, Insert, "exact_t a=1 wide=1 => count()");
    let mut entry = table_entry(&switch, "exact_t a=1 wide=1 => count()");
    let value = vec![0, 0, 0, 1];
    entry.r#match[0].field_match_type = Some(FieldMatchType::Exact(field_match::Exact { value }));
    entry.r#match.swap(0, 1);
    let refusal = write(&mut switch, update(Insert, Kind::TableEntry(entry.clone()))).unwrap_err();
    assert_eq!(refusal.0, Code::AlreadyExists);
    write(&mut switch, update(Delete, Kind::TableEntry(entry))).unwrap();
}

#[test]
fn priorities_are_where_they_belong() {
    let mut switch = switch();
    let invalid = Code::InvalidArgument;
    assert_eq!(refused(&mut switch, Insert, "ternary_t kind=1 => drop()").0, invalid);
    assert_eq!(refused(&mut switch, Insert, "lpm_t b=1/32 prio=1 => drop()").0, invalid);
    let negative = |entry: &mut TableEntry| entry.priority = -1;
    assert_eq!(code(&mut switch, Insert, "ternary_t kind=1 => drop()", negative), invalid);
    put(&mut switch, Insert, "ternary_t kind=1 prio=1 => drop()");
    put(&mut switch, Insert, "ternary_t kind=1 prio=2 => forward(port=1)");
    put(&mut switch, Insert, "ternary_t prio=3 => forward(port=1)");
    assert_eq!(entries(&switch, "ternary_t kind=1").len(), 2);
    assert_eq!(entries(&switch, "ternary_t kind=1 prio=2").len(), 1);
    assert_eq!(entries(&switch, "ternary_t prio=3"), ["ternary_t prio=3 => forward(port=1)"]);
}

#[test]
fn actions_are_those_of_the_table() {
    let mut switch = switch();
    let line = "exact_t a=1 wide=1 => forward(port=3)";
    let change = |change: fn(&mut Action)| {
        move |entry: &mut TableEntry| match entry.action.as_mut().and_then(|action| action.r#type.as_mut()) {
            Some(table_action::Type::Action(action)) => change(action),
            other => panic!("{other:?}"),
        }
    };
    let invalid = Code::InvalidArgument;
    assert_eq!(code(&mut switch, Insert, line, change(|a| a.action_id = 1)), invalid);
    assert_eq!(code(&mut switch, Insert, line, change(|a| a.params.clear())), invalid);
    assert_eq!(code(&mut switch, Insert, line, change(|a| a.params.push(a.params[0].clone()))), invalid);
    let extra = |a: &mut Action| a.params.push(action::Param { param_id: 9, value: vec![1] });
    assert_eq!(code(&mut switch, Insert, line, change(extra)), invalid);
    assert_eq!(code(&mut switch, Insert, line, change(|a| a.params[0].value = vec![2, 0])), Code::OutOfRange);
    assert_eq!(code(&mut switch, Insert, line, |entry| entry.action = None), invalid);
    assert_eq!(
        code(&mut switch, Insert, line, |entry| entry.action = Some(TableAction { r#type: None })),
        invalid
    );
    let member = || Some(TableAction { r#type: Some(table_action::Type::ActionProfileMemberId(1)) });
    assert_eq!(code(&mut switch, Insert, line, |entry| entry.action = member()), invalid);
    assert_eq!(refused(&mut switch, Insert, "exact_t a=1 wide=1 => drop()").0, Code::PermissionDenied);
    assert_eq!(refused(&mut switch, Modify, "exact_t default => learn()").0, Code::PermissionDenied);
    put(&mut switch, Insert, "exact_t a=1 wide=1 => learn()");
}

#[test]
fn defaults_are_modified_and_restored() {
    let mut switch = switch();
    assert_eq!(entries(&switch, "exact_t default"), ["exact_t default => drop()"]);
    put(&mut switch, Modify, "exact_t default cookie=0x5 metadata=0x01 => forward(port=9)");
    assert_eq!(
        entries(&switch, "exact_t default"),
        ["exact_t default cookie=0x5 metadata=0x01 => forward(port=9)"]
    );
    put(&mut switch, Modify, "exact_t default");
    assert_eq!(entries(&switch, "exact_t default"), ["exact_t default => drop()"]);
    let invalid = Code::InvalidArgument;
    assert_eq!(refused(&mut switch, Insert, "exact_t default => drop()").0, invalid);
    assert_eq!(refused(&mut switch, Delete, "exact_t default").0, invalid);
    assert_eq!(refused(&mut switch, Modify, "exact_t default prio=1 => drop()").0, invalid);
    assert_eq!(refused(&mut switch, Modify, "exact_t default a=1 => drop()").0, invalid);
    assert_eq!(refused(&mut switch, Modify, "exact_t default idle=1s => drop()").0, invalid);
    assert_eq!(refused(&mut switch, Modify, "lpm_t default => drop()").0, Code::PermissionDenied);
    put(&mut switch, Modify, "keyless_t default => forward(port=1)");
    assert_eq!(refused(&mut switch, Insert, "keyless_t => forward(port=1)").0, invalid);
}

#[test]
fn entries_of_the_program_are_fixed_or_not() {
    let mut switch = switch();
    let constant = ["const_t a=1 => forward(port=1) # constant", "const_t a=2 => forward(port=2) # constant"];
    assert_eq!(entries(&switch, "const_t"), constant);
    for kind in [Insert, Modify, Delete] {
        assert_eq!(refused(&mut switch, kind, "const_t a=1 => forward(port=3)").0, Code::PermissionDenied);
    }
    assert_eq!(entries(&switch, "initial_t"), ["initial_t a=7 => forward(port=7)"]);
    put(&mut switch, Modify, "initial_t a=7 => forward(port=8)");
    put(&mut switch, Delete, "initial_t a=7");
    let constant = |entry: &mut TableEntry| entry.is_const = true;
    assert_eq!(
        code(&mut switch, Insert, "initial_t a=7 => forward(port=8)", constant),
        Code::InvalidArgument
    );
}

#[test]
fn timeouts_are_where_the_program_has_them() {
    let mut switch = switch();
    put(&mut switch, Insert, "exact_t a=1 wide=0x1 idle=5s => count()");
    assert_eq!(entries(&switch, "exact_t"), ["exact_t a=1 wide=0x1 idle=5s => count()"]);
    assert_eq!(refused(&mut switch, Insert, "lpm_t b=1 idle=5s => drop()").0, Code::InvalidArgument);
    let negative = |entry: &mut TableEntry| entry.idle_timeout_ns = -1;
    assert_eq!(code(&mut switch, Modify, "exact_t a=1 wide=1 => count()", negative), Code::InvalidArgument);
    let elapsed = |entry: &mut TableEntry| entry.time_since_last_hit = Some(Default::default());
    assert_eq!(code(&mut switch, Modify, "exact_t a=1 wide=1 => count()", elapsed), Code::InvalidArgument);
    put(&mut switch, Modify, "exact_t a=1 wide=1 => count()");
    assert_eq!(entries(&switch, "exact_t"), ["exact_t a=1 wide=0x1 => count()"]);
}

#[test]
fn direct_counters_and_meters_are_set_with_the_entry_and_alone() {
    let mut switch = switch();
    put(&mut switch, Insert, "exact_t a=1 wide=0x1 packets=3 bytes=300 => count()");
    let counters = |switch: &Switch| lines(switch, Kind::DirectCounterEntry(Default::default()));
    assert_eq!(counters(&switch), ["exact_t a=1 wide=0x1 packets=3 bytes=300"]);
    put(&mut switch, Modify, "exact_t a=1 wide=1 => forward(port=1)");
    assert_eq!(counters(&switch), ["exact_t a=1 wide=0x1 packets=3 bytes=300"]);
    assert_eq!(
        entries(&switch, "exact_t packets=0"),
        ["exact_t a=1 wide=0x1 packets=3 bytes=300 => forward(port=1)"]
    );
    let direct = DirectCounterEntry {
        table_entry: Some(table_entry(&switch, "exact_t a=1 wide=1")),
        data: Some(Default::default()),
    };
    for kind in [Insert, Delete] {
        let refusal = write(&mut switch, update(kind, Kind::DirectCounterEntry(direct.clone()))).unwrap_err();
        assert_eq!(refusal.0, Code::InvalidArgument);
    }
    write(&mut switch, update(Modify, Kind::DirectCounterEntry(direct))).unwrap();
    assert_eq!(counters(&switch), ["exact_t a=1 wide=0x1 packets=0 bytes=0"]);
    assert_eq!(refused(&mut switch, Insert, "lpm_t b=1 packets=1 => drop()").0, Code::InvalidArgument);

    put(&mut switch, Insert, "ternary_t kind=1 prio=1 cir=10 cburst=5 pir=20 pburst=6 => drop()");
    let meters = |switch: &Switch| lines(switch, Kind::DirectMeterEntry(Default::default()));
    assert_eq!(meters(&switch), ["ternary_t kind=1 prio=1 cir=10 cburst=5 pir=20 pburst=6"]);
    assert_eq!(
        refused(&mut switch, Modify, "ternary_t kind=1 prio=1 cir=10 => drop()").0,
        Code::InvalidArgument
    );
    put(&mut switch, Modify, "ternary_t kind=1 prio=1 => drop()");
    assert_eq!(meters(&switch), ["ternary_t kind=1 prio=1"]);
}

fn group(profile: u32, id: u32, max_size: i32, members: &[(u32, i32)]) -> Kind {
    let member = |(member_id, weight): &(u32, i32)| action_profile_group::Member {
        member_id: *member_id,
        weight: *weight,
        watch_kind: None,
    };
    Kind::ActionProfileGroup(ActionProfileGroup {
        action_profile_id: profile,
        group_id: id,
        members: members.iter().map(member).collect(),
        max_size,
    })
}

fn profile_id(switch: &Switch, name: &str) -> u32 {
    let profiles = &switch.program().info.action_profiles;
    let found =
        profiles.iter().filter_map(|profile| profile.preamble.as_ref()).find(|p| p.name.ends_with(name));
    found.unwrap().id
}

#[test]
fn members_are_used_by_entries_and_groups() {
    let mut switch = switch();
    assert_eq!(refused(&mut switch, Insert, "member_t a=1 => member 5").0, Code::NotFound);
    put(&mut switch, Insert, "member hops 5 => forward(port=1)");
    assert_eq!(refused(&mut switch, Insert, "member hops 5 => forward(port=1)").0, Code::AlreadyExists);
    put(&mut switch, Insert, "member_t a=1 => member 5");
    assert_eq!(refused(&mut switch, Insert, "member_t a=2 => group 5").0, Code::InvalidArgument);
    assert_eq!(refused(&mut switch, Delete, "member hops 5").0, Code::FailedPrecondition);
    put(&mut switch, Modify, "member hops 5 => drop()");
    for id in 6..9 {
        put(&mut switch, Insert, &format!("member hops {id} => drop()"));
    }
    assert_eq!(refused(&mut switch, Insert, "member hops 9 => drop()").0, Code::ResourceExhausted);
    put(&mut switch, Modify, "member_t a=1 => member 6");
    put(&mut switch, Delete, "member hops 5");
    put(&mut switch, Delete, "member_t a=1");
    put(&mut switch, Delete, "member hops 6");
    let members = lines(&switch, Kind::ActionProfileMember(Default::default()));
    assert_eq!(members, ["member hops 7 => drop()", "member hops 8 => drop()"]);
}

#[test]
fn groups_have_members_weights_and_sizes() {
    let mut switch = switch();
    let ways = profile_id(&switch, "ways");
    for id in 1..4 {
        put(&mut switch, Insert, &format!("member ways {id} => forward(port={id})"));
    }
    let mut code = |kind, group| write(&mut switch, update(kind, group)).map_err(|(code, _)| code);
    let invalid = Err(Code::InvalidArgument);
    assert_eq!(code(Insert, group(ways, 1, 8, &[(1, 1), (2, 0)])), invalid);
    assert_eq!(code(Insert, group(ways, 1, 8, &[(1, 1), (1, 1)])), invalid);
    assert_eq!(code(Insert, group(ways, 1, 9, &[(1, 1)])), invalid);
    assert_eq!(code(Insert, group(ways, 1, 0, &[(1, 1)])), invalid);
    assert_eq!(code(Insert, group(ways, 0, 8, &[(1, 1)])), invalid);
    assert_eq!(code(Insert, group(ways, 1, 8, &[(9, 1)])), Err(Code::NotFound));
    assert_eq!(code(Insert, group(ways, 1, 3, &[(1, 4)])), Err(Code::ResourceExhausted));
    assert_eq!(code(Insert, group(ways, 1, 8, &[(1, 1), (2, 7)])), Ok(()));
    assert_eq!(code(Modify, group(ways, 1, 7, &[(1, 1)])), invalid);
    assert_eq!(code(Modify, group(ways, 2, 8, &[(1, 1)])), Err(Code::NotFound));
    assert_eq!(code(Insert, group(ways, 2, 8, &[(1, 8)])), Ok(()));
    assert_eq!(code(Insert, group(ways, 3, 8, &[(1, 1)])), Err(Code::ResourceExhausted), "16 in all");
    assert_eq!(code(Modify, group(ways, 2, 8, &[(1, 7)])), Ok(()));
    assert_eq!(code(Insert, group(ways, 3, 8, &[(1, 1)])), Ok(()));
    put(&mut switch, Insert, "group_t a=1 => group 1");
    assert_eq!(refused(&mut switch, Delete, "member ways 2").0, Code::FailedPrecondition);
    let gone = write(&mut switch, update(Delete, group(ways, 1, 0, &[]))).unwrap_err();
    assert_eq!(gone.0, Code::FailedPrecondition);
    put(&mut switch, Modify, "group_t a=1 => member 3");
    write(&mut switch, update(Delete, group(ways, 1, 0, &[]))).unwrap();
    put(&mut switch, Delete, "member ways 2");
    let groups = lines(&switch, Kind::ActionProfileGroup(Default::default()));
    assert_eq!(groups, ["group ways 2 members=1*7 max_size=8", "group ways 3 members=1*1 max_size=8"]);
}

#[test]
fn sets_of_actions_go_with_their_entry() {
    let mut switch = switch();
    let line = "group_t a=1 => forward(port=1) weight=2 | drop() weight=1 watch=4";
    put(&mut switch, Insert, line);
    assert_eq!(entries(&switch, "group_t"), [line]);
    assert!(lines(&switch, Kind::ActionProfileMember(Default::default())).is_empty());
    assert!(lines(&switch, Kind::ActionProfileGroup(Default::default())).is_empty());
    assert_eq!(refused(&mut switch, Insert, "member ways 1 => drop()").0, Code::InvalidArgument);
    assert_eq!(refused(&mut switch, Insert, "group_t a=2 => drop() weight=9").0, Code::InvalidArgument);
    assert_eq!(refused(&mut switch, Insert, "group_t a=2 => drop() weight=0").0, Code::InvalidArgument);
    for a in 2..5 {
        put(&mut switch, Insert, &format!("group_t a={a} => drop() weight=4"));
    }
    assert_eq!(refused(&mut switch, Insert, "group_t a=5 => drop() weight=2").0, Code::ResourceExhausted);
    put(&mut switch, Modify, "group_t a=1 => drop() weight=4");
    for a in 1..5 {
        put(&mut switch, Delete, &format!("group_t a={a}"));
    }
    put(&mut switch, Insert, "member ways 1 => drop()");
    assert_eq!(refused(&mut switch, Insert, "group_t a=1 => drop() weight=1").0, Code::InvalidArgument);
}

#[test]
fn arrays_are_only_modified() {
    let mut switch = switch();
    put(&mut switch, Modify, "counter seen[3] packets=4 bytes=500");
    put(&mut switch, Modify, "counter never_seen packets=4 bytes=500");
    put(&mut switch, Modify, "meter police[1] cir=1 cburst=2 pir=3 pburst=4");
    put(&mut switch, Modify, "register answer[2] value=0xfffff");
    put(&mut switch, Modify, "register offset[0] value=0x80");
    for (kind, line) in
        [(Insert, "counter seen[3]"), (Delete, "meter police[1]"), (Insert, "register answer[2] value=1")]
    {
        assert_eq!(refused(&mut switch, kind, line).0, Code::InvalidArgument, "{line}");
    }
    for line in ["counter seen[8]", "meter police[4]", "register answer[4] value=1"] {
        assert_eq!(refused(&mut switch, Modify, line).0, Code::OutOfRange, "{line}");
    }
    for line in ["counter seen[-1]", "register answer[0]", "counter seen[1] packets=-1"] {
        assert_eq!(refused(&mut switch, Modify, line).0, Code::InvalidArgument, "{line}");
    }
    let id = |entity: Entity| match entity.entity {
        Some(Kind::CounterEntry(entry)) => Kind::CounterEntry(CounterEntry { data: None, ..entry }),
        Some(Kind::MeterEntry(entry)) => Kind::MeterEntry(MeterEntry { config: None, ..entry }),
        Some(Kind::RegisterEntry(entry)) => Kind::RegisterEntry(RegisterEntry { data: None, ..entry }),
        other => panic!("{other:?}"),
    };
    let lines_of = |line| lines(&switch, id(text::parse(switch.program(), line).unwrap()));
    assert_eq!(lines_of("counter seen[3]"), ["counter seen[3] packets=4 bytes=500"]);
    assert_eq!(lines_of("counter seen").len(), 8);
    assert_eq!(lines_of("counter never_seen[0]"), ["counter never_seen[0] packets=4 bytes=0"]);
    assert_eq!(lines_of("meter police[1]"), ["meter police[1] cir=1 cburst=2 pir=3 pburst=4"]);
    assert_eq!(lines_of("register answer")[2], "register answer[2] value=0xfffff");
    assert_eq!(lines_of("register offset[0]"), ["register offset[0] value=128"]);
    let index = Some(Index { index: 1 });
    assert_eq!(
        read(&switch, Kind::CounterEntry(CounterEntry { counter_id: 0, index, data: None })).len(),
        12
    );
}

#[test]
fn replicas_are_distinct() {
    let mut switch = switch();
    put(&mut switch, Insert, "multicast 1 ports=1,2,2/1 metadata=0x01");
    put(&mut switch, Insert, "clone 5 ports=510 class=2 length=128");
    let replication = |switch: &Switch| lines(switch, Kind::PacketReplicationEngineEntry(Default::default()));
    let expected = ["multicast 1 ports=1,2,2/1 metadata=0x01", "clone 5 ports=510 class=2 length=128"];
    assert_eq!(replication(&switch), expected);
    let invalid = Code::InvalidArgument;
    for line in
        ["multicast 0 ports=1", "multicast 2 ports=1,1", "multicast 2 ports=1/65536", "clone 0 ports=1"]
    {
        assert_eq!(refused(&mut switch, Insert, line).0, invalid, "{line}");
    }
    assert_eq!(refused(&mut switch, Insert, "clone 6 ports=1 class=256").0, Code::OutOfRange);
    assert_eq!(refused(&mut switch, Insert, "multicast 1 ports=1").0, Code::AlreadyExists);
    assert_eq!(refused(&mut switch, Modify, "multicast 2 ports=1").0, Code::NotFound);
    assert_eq!(refused(&mut switch, Delete, "clone 6").0, Code::NotFound);
    put(&mut switch, Modify, "multicast 1 ports=");
    put(&mut switch, Delete, "clone 5");
    assert_eq!(replication(&switch), ["multicast 1 ports="]);
    let port_kind = Some(PortKind::Port(vec![0, 0, 0, 0, 7]));
    let long = MulticastGroupEntry {
        multicast_group_id: 3,
        replicas: vec![Replica { port_kind, instance: 0, backup_replicas: vec![] }],
        metadata: vec![],
    };
    let entry = PacketReplicationEngineEntry { r#type: Some(Pre::MulticastGroupEntry(long)) };
    write(&mut switch, update(Insert, Kind::PacketReplicationEngineEntry(entry))).unwrap();
    assert_eq!(replication(&switch)[1], "multicast 3 ports=7");
}

#[test]
fn value_sets_and_digests_are_configured() {
    let mut switch = switch();
    let info = switch.program().info.clone();
    let set = info.value_sets[0].preamble.as_ref().unwrap().id;
    let member = |value: u8| ValueSetMember {
        r#match: vec![FieldMatch {
            field_id: 1,
            field_match_type: Some(FieldMatchType::Exact(field_match::Exact { value: vec![value] })),
        }],
    };
    let entry = |count: u8| {
        Kind::ValueSetEntry(ValueSetEntry { value_set_id: set, members: (0..count).map(member).collect() })
    };
    write(&mut switch, update(Modify, entry(4))).unwrap();
    assert_eq!(read(&switch, Kind::ValueSetEntry(Default::default())), [Entity { entity: Some(entry(4)) }]);
    assert_eq!(write(&mut switch, update(Modify, entry(5))).unwrap_err().0, Code::ResourceExhausted);
    assert_eq!(write(&mut switch, update(Insert, entry(1))).unwrap_err().0, Code::InvalidArgument);

    let digest_id = info.digests[0].preamble.as_ref().unwrap().id;
    let entry = |max_list_size| {
        let config = digest_entry::Config { max_timeout_ns: 5, max_list_size, ack_timeout_ns: 7 };
        Kind::DigestEntry(DigestEntry { digest_id, config: Some(config) })
    };
    assert_eq!(write(&mut switch, update(Modify, entry(2))).unwrap_err().0, Code::NotFound);
    write(&mut switch, update(Insert, entry(2))).unwrap();
    assert_eq!(write(&mut switch, update(Insert, entry(2))).unwrap_err().0, Code::AlreadyExists);
    assert_eq!(write(&mut switch, update(Modify, entry(-1))).unwrap_err().0, Code::InvalidArgument);
    assert_eq!(read(&switch, Kind::DigestEntry(Default::default())), [Entity { entity: Some(entry(2)) }]);
    write(&mut switch, update(Delete, entry(2))).unwrap();
    assert!(read(&switch, Kind::DigestEntry(Default::default())).is_empty());
}

#[test]
fn updates_go_on_or_are_taken_back() {
    let lines = [
        (Insert, "lpm_t b=1 => drop()"),
        (Insert, "member ways 1 => drop()"),
        (Insert, "lpm_t b=1 => drop()"),
        (Insert, "group_t a=1 => member 1"),
        (Delete, "member ways 1"),
    ];
    let mut switch = switch();
    let updates: Vec<_> = lines.iter().map(|(kind, line)| of_text(&switch, *kind, line)).collect();
    let codes = |result: Result<(), WriteFailure>| match result {
        Err(WriteFailure::Updates(results)) => results
            .iter()
            .map(|result| result.as_ref().map_err(|failure| failure.code).copied())
            .collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let start = all(&switch);
    for atomicity in [Atomicity::RollbackOnError, Atomicity::DataplaneAtomic] {
        let aborted = Err(Code::Aborted);
        let expected = [aborted, aborted, Err(Code::AlreadyExists), aborted, aborted];
        assert_eq!(codes(switch.write(&updates, atomicity, 0)), expected);
        assert_eq!(all(&switch), start);
        assert_eq!(switch.state().generation(), 0);
    }
    let expected = [Ok(()), Ok(()), Err(Code::AlreadyExists), Ok(()), Err(Code::FailedPrecondition)];
    assert_eq!(codes(switch.write(&updates, Atomicity::ContinueOnError, 0)), expected);
    assert_eq!(switch.state().generation(), 1, "one bundle");
    assert_eq!(entries(&switch, "lpm_t").len(), 1);
    put(&mut switch, Delete, "group_t a=1");
    put(&mut switch, Delete, "member ways 1");
    put(&mut switch, Delete, "lpm_t b=1");
    assert_eq!(all(&switch), start);
}

#[test]
fn updates_without_a_type_or_entity_are_refused() {
    let mut switch = switch();
    let invalid = Code::InvalidArgument;
    let empty = Update { r#type: Insert.into(), entity: None };
    assert_eq!(write(&mut switch, empty).unwrap_err().0, invalid);
    let mut update = of_text(&switch, Insert, "lpm_t b=1 => drop()");
    update.r#type = 0;
    assert_eq!(write(&mut switch, update).unwrap_err().0, invalid);
    let external = support::update(Insert, Kind::ExternEntry(Default::default()));
    assert_eq!(write(&mut switch, external).unwrap_err().0, Code::Unimplemented);
    let member =
        Kind::ActionProfileMember(ActionProfileMember { action_profile_id: 9, ..Default::default() });
    assert_eq!(write(&mut switch, support::update(Insert, member)).unwrap_err().0, Code::NotFound);
}

//! Writes of a role: only to its own objects, and no more entries than it may have.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use p4runtime_proto::v1::update::Type::{Delete, Insert, Modify};
use p4runtime_proto::v1::{Update, write_request::Atomicity};
use p4switch::{Access, Code, ObjectKind, Switch, WriteFailure};
use support::{entries, of_text, put, switch};

fn access(objects: &[(ObjectKind, &str)], max_entries: Option<u64>) -> Access {
    let mut access = Access { role: "agent".into(), max_entries, ..Access::default() };
    for (kind, name) in objects {
        access.objects.entry(*kind).or_default().insert((*name).into());
    }
    access
}

/// The results of a write: code and message of what fails.
fn write(
    switch: &mut Switch,
    access: &Access,
    updates: &[Update],
    atomicity: Atomicity,
) -> Vec<Option<(Code, String)>> {
    match switch.write_as(access, updates, atomicity, 0) {
        Ok(()) => vec![None; updates.len()],
        Err(WriteFailure::Updates(results)) => {
            results.into_iter().map(|result| result.err().map(|f| (f.code, f.message))).collect()
        }
        Err(WriteFailure::Request(failure)) => panic!("{failure}"),
    }
}

fn codes(results: Vec<Option<(Code, String)>>) -> Vec<Code> {
    results.into_iter().map(|result| result.map_or(Code::Ok, |(code, _)| code)).collect()
}

#[test]
fn a_role_writes_its_objects() {
    let mut switch = switch();
    let role = access(
        &[
            (ObjectKind::Table, "exact_t"),
            (ObjectKind::Table, "ingress.keyless_t"),
            (ObjectKind::Counter, "seen"),
            (ObjectKind::ActionProfile, "hops"),
        ],
        None,
    );
    let updates = [
        of_text(&switch, Insert, "exact_t a=1 wide=1 => forward(port=3)"),
        of_text(&switch, Insert, "lpm_t b=10.0.0.0/8 => forward(port=3)"),
        of_text(&switch, Modify, "keyless_t default => forward(port=3)"),
        of_text(&switch, Modify, "counter seen[3] packets=10 bytes=1000"),
        of_text(&switch, Modify, "counter never_seen[3] packets=10"),
        of_text(&switch, Insert, "member hops 5 => forward(port=1)"),
        of_text(&switch, Insert, "member ways 5 => forward(port=1)"),
        of_text(&switch, Insert, "multicast 1 ports=1,2"),
        of_text(&switch, Modify, "register answer[0] value=42"),
    ];
    let results = write(&mut switch, &role, &updates, Atomicity::ContinueOnError);
    assert_eq!(
        results[1].as_ref().unwrap().1,
        "role \"agent\" may not write table ingress.lpm_t (it has tables: exact_t, ingress.keyless_t)"
    );
    assert_eq!(
        results[8].as_ref().unwrap().1,
        "role \"agent\" may not write register ingress.answer (it has registers: none)"
    );
    let denied = Code::PermissionDenied;
    let expected = [Code::Ok, denied, Code::Ok, Code::Ok, denied, Code::Ok, denied, denied, denied];
    assert_eq!(codes(results), expected);
    // With one of another's, nothing is written.
    let updates = [
        of_text(&switch, Delete, "exact_t a=1 wide=1"),
        of_text(&switch, Insert, "lpm_t b=10.0.0.0/8 => forward(port=3)"),
    ];
    let results = write(&mut switch, &role, &updates, Atomicity::RollbackOnError);
    assert_eq!(codes(results), [Code::Aborted, denied]);
    assert_eq!(entries(&switch, "exact_t").len(), 1);

    let reads = Access { read_only: true, ..role };
    let updates = [of_text(&switch, Delete, "exact_t a=1 wide=1")];
    let results = write(&mut switch, &reads, &updates, Atomicity::ContinueOnError);
    assert_eq!(results, [Some((denied, "role \"agent\" is read-only".into()))]);
}

#[test]
fn a_role_has_so_many_entries() {
    let mut switch = switch();
    let role = access(&[(ObjectKind::Table, "lpm_t"), (ObjectKind::ActionProfile, "hops")], Some(3));
    // Those of others count.
    put(&mut switch, Insert, "lpm_t b=10.0.0.0/8 => forward(port=3)");
    put(&mut switch, Insert, "exact_t a=1 wide=1 => forward(port=3)");
    let insert = |switch: &Switch, number| {
        of_text(switch, Insert, &format!("lpm_t b=10.{number}.0.0/16 => forward(port=3)"))
    };
    let updates = [
        of_text(&switch, Insert, "member hops 5 => forward(port=1)"),
        insert(&switch, 1),
        insert(&switch, 2),
        // What is there may be changed, and makes room when it goes.
        of_text(&switch, Modify, "lpm_t b=10.1.0.0/16 => forward(port=4)"),
        of_text(&switch, Delete, "member hops 5"),
        insert(&switch, 3),
        insert(&switch, 4),
    ];
    let results = write(&mut switch, &role, &updates, Atomicity::ContinueOnError);
    assert_eq!(
        results[2].as_ref().unwrap().1,
        "role \"agent\" has 3 entries of 3 that it may have; delete some first"
    );
    let full = Code::ResourceExhausted;
    assert_eq!(codes(results), [Code::Ok, Code::Ok, full, Code::Ok, Code::Ok, Code::Ok, full]);
    assert_eq!(entries(&switch, "lpm_t").len(), 3);

    // A smaller limit than what is there: nothing more.
    let smaller = Access { max_entries: Some(1), ..role };
    let updates = [insert(&switch, 9), of_text(&switch, Delete, "lpm_t b=10.1.0.0/16"), insert(&switch, 9)];
    let results = write(&mut switch, &smaller, &updates, Atomicity::ContinueOnError);
    assert_eq!(codes(results), [full, Code::Ok, full]);
}

#[test]
fn sets_of_actions_count_with_their_members() {
    let mut switch = switch();
    let role = access(&[(ObjectKind::Table, "group_t")], Some(4));
    let set = "group_t a=1 => forward(port=1) weight=1 | forward(port=2) weight=1";
    let insert = of_text(&switch, Insert, set);
    // An entry, its group and two members.
    assert_eq!(codes(write(&mut switch, &role, &[insert], Atomicity::ContinueOnError)), [Code::Ok]);
    let second = of_text(&switch, Insert, "group_t a=2 => forward(port=1) weight=1 | drop() weight=1");
    let results = write(&mut switch, &role, &[second], Atomicity::ContinueOnError);
    assert_eq!(codes(results), [Code::ResourceExhausted]);
}

#[test]
fn names_that_a_program_lacks_are_reported() {
    let role = access(
        &[(ObjectKind::Table, "exact_t"), (ObjectKind::Table, "rules"), (ObjectKind::Digest, "x")],
        None,
    );
    assert_eq!(role.missing(&switch().program().info), ["table rules", "digest x"]);
}

use super::*;
use crate::{LacpSettings, OperateError};

fn members(names: &[&str]) -> Vec<MemberSettings> {
    let member = |(name, port_id): (&&str, u16)| MemberSettings {
        name: (*name).into(),
        port_id,
        port_priority: 65535,
        key: 0,
    };
    names.iter().zip(1..).map(member).collect()
}

fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

fn settings(mode: Mode) -> Settings {
    Settings { mode, is_bond: true, ..Settings::default() }
}

/// A bond whose members' links are up since time 0.
fn bond(settings: Settings, names: &[&str]) -> Bond {
    let mut bond = Bond::new("b", settings.clone());
    bond.configure(settings, &members(names), 0);
    names.iter().zip(1..).for_each(|(name, n)| bond.set_link(name, true, mac(n), 0));
    bond.run(0);
    bond
}

fn set(bond: &mut Bond, name: &str, up: bool, now: Millis) -> Outcome {
    let address = bond.members[name].address;
    bond.set_link(name, up, address, now);
    bond.run(now)
}

fn admitted(bond: &Bond) -> Vec<(bool, bool)> {
    bond.view().members.iter().map(|it| (it.admits.stations, it.admits.groups)).collect()
}

#[test]
fn one_member_is_active_and_another_takes_over() {
    let mut bond = bond(settings(Mode::ActiveBackup), &["x", "y"]);
    assert_eq!((bond.view().output, bond.active_address()), (Output::Member(0), mac(1)));
    assert_eq!(admitted(&bond), [(true, true), (false, false)]);
    let outcome = set(&mut bond, "x", false, 10);
    assert!(outcome.announce);
    assert_eq!(
        outcome.events,
        ["member x: link state down", "member x: disabled", "bond b: active member is now y"]
    );
    assert_eq!(bond.view().output, Output::Member(1));
    // It stays there.
    assert!(!set(&mut bond, "x", true, 20).announce);
    assert_eq!(bond.view().output, Output::Member(1));
    set(&mut bond, "y", false, 30);
    set(&mut bond, "x", false, 40);
    assert_eq!((bond.view().output, bond.active_address()), (Output::Nothing, MacAddr::ZERO));
}

#[test]
fn a_primary_comes_back() {
    let primary = Settings { primary: Some("y".into()), ..settings(Mode::ActiveBackup) };
    let mut bond = bond(primary.clone(), &["x", "y"]);
    assert_eq!(bond.view().output, Output::Member(1));
    set(&mut bond, "y", false, 10);
    assert_eq!(bond.view().output, Output::Member(0));
    set(&mut bond, "y", true, 20);
    assert_eq!(bond.view().output, Output::Member(1));
    // As far as it is a member.
    bond.configure(primary, &members(&["x"]), 30);
    bond.run(30);
    assert_eq!(bond.view().output, Output::Member(0));
    assert!(bond.show(0, 30).contains("active-backup primary: y (no such member)\n"));
}

#[test]
fn the_member_that_was_active_before_a_restart_is_again() {
    let bond = bond(Settings { last_active: Some(mac(2)), ..settings(Mode::ActiveBackup) }, &["x", "y"]);
    assert_eq!(bond.view().output, Output::Member(1));
}

#[test]
fn links_have_to_stay_up_or_down_for_a_while() {
    let mut bond =
        bond(Settings { updelay: 100, downdelay: 50, ..settings(Mode::ActiveBackup) }, &["x", "y"]);
    // Without an enabled member the delay is skipped.
    assert_eq!(bond.view().output, Output::Member(0));
    assert_eq!(bond.members["y"].changes, Some(100));
    assert!(bond.show(0, 40).contains("member y: disabled\n  updelay expires in 60 ms\n"));
    bond.run(100);
    assert!(bond.members["y"].is_enabled);
    set(&mut bond, "x", false, 200);
    assert_eq!((bond.view().output, bond.next_due()), (Output::Member(0), Some(250)));
    set(&mut bond, "x", true, 249);
    assert_eq!(bond.next_due(), None);
    set(&mut bond, "x", false, 300);
    bond.run(350);
    assert_eq!(bond.view().output, Output::Member(1));
}

#[test]
fn buckets_are_spread_and_used_ones_stay() {
    let mut bond = bond(settings(Mode::BalanceSlb), &["x", "y"]);
    let Output::BySource(0, buckets) = bond.view().output else { panic!() };
    let of =
        |buckets: &[Option<usize>; BUCKETS], member| buckets.iter().filter(|it| **it == Some(member)).count();
    assert_eq!((of(&buckets, 0), of(&buckets, 1)), (128, 128));
    bond.view().loads.add(7, 1000);
    let before = buckets[7];
    let (own, other) = if before == Some(0) { ("x", "y") } else { ("y", "x") };
    set(&mut bond, other, false, 10);
    set(&mut bond, other, true, 20);
    let Output::BySource(0, buckets) = bond.view().output else { panic!() };
    assert_eq!(buckets[7], before);
    assert!(of(&buckets, 0) >= 127 && of(&buckets, 1) >= 127, "{buckets:?}");
    // A disabled member keeps none.
    set(&mut bond, own, false, 30);
    let Output::BySource(0, buckets) = bond.view().output else { panic!() };
    assert_eq!(buckets[7], before.map(|member| 1 - member));
    assert_eq!(admitted(&bond).iter().filter(|it| **it == (true, true)).count(), 1);
    assert!(bond.view().members.iter().all(|member| member.admits.unless_moved));
}

#[test]
fn load_is_moved_until_members_carry_about_the_same() {
    let mut bond = bond(Settings { rebalance_interval: 1000, ..settings(Mode::BalanceSlb) }, &["x", "y"]);
    let of = |bond: &Bond, name: &str| {
        (0..BUCKETS).filter(|n| bond.buckets[*n].member.as_deref() == Some(name)).collect::<Vec<_>>()
    };
    let (heavy, light) = (of(&bond, "x"), of(&bond, "y"));
    let loads = bond.view().loads;
    heavy[..10].iter().for_each(|bucket| loads.add(*bucket, 1_000_000));
    light[..2].iter().for_each(|bucket| loads.add(*bucket, 1_000_000));
    bond.run(999);
    assert_eq!(of(&bond, "x"), heavy);
    let outcome = bond.run(1000);
    assert_eq!(outcome.events.len(), 4, "{:?}", outcome.events);
    let load = |bond: &Bond, name| of(bond, name).iter().map(|n| bond.buckets[*n].load).sum::<u64>();
    assert_eq!((load(&bond, "x"), load(&bond, "y")), (3_000_000, 3_000_000));
    assert!(bond.show(0, 1500).contains("next rebalance: 500 ms\n"));
    // One large bucket is not moved to and fro.
    bond.buckets.iter_mut().for_each(|bucket| bucket.load = 0);
    loads.add(heavy[9], 9_000_000);
    assert!(bond.run(2000).events.is_empty());
}

#[test]
fn balance_tcp_carries_nothing_without_lacp() {
    let bond = bond(settings(Mode::BalanceTcp), &["x", "y"]);
    assert_eq!(bond.view().output, Output::Nothing);
    assert_eq!(admitted(&bond), [(false, false), (false, false)]);
}

#[test]
fn lacp_decides_which_members_carry_packets() {
    let lacp = |system: u8| LacpSettings {
        active: true,
        fast: true,
        system: mac(system),
        priority: 1,
        fallback: false,
    };
    let make =
        |system| bond(Settings { lacp: Some(lacp(system)), ..settings(Mode::BalanceTcp) }, &["x", "y"]);
    let (mut a, mut b) = (make(10), make(20));
    for now in (0..1500).step_by(100) {
        let sent = [a.run(now).frames, b.run(now).frames];
        for ((name, frame), to_b) in sent
            .into_iter()
            .zip([true, false])
            .flat_map(|(sent, to_b)| sent.into_iter().map(move |frame| (frame, to_b)))
        {
            if to_b { b.receive(&name, &frame, now) } else { a.receive(&name, &frame, now) }
        }
    }
    assert!(matches!(a.view().output, Output::ByFlow(0, buckets) if buckets.iter().all(Option::is_some)));
    assert_eq!(admitted(&a), [(true, true), (true, true)]);
    assert!(a.view().takes_pdus && a.view().members.iter().all(|member| member.is_live));
    // Without a word from the partner nothing is carried in the end.
    (1500..9000).step_by(100).for_each(|now| _ = a.run(now));
    assert_eq!((a.view().output, admitted(&a)), (Output::Nothing, vec![(false, false); 2]));
    // With fallback one member carries everything.
    let fallback = LacpSettings { fallback: true, ..lacp(10) };
    let settings = Settings { lacp: Some(fallback), fallback: true, ..settings(Mode::BalanceTcp) };
    a.configure(settings, &members(&["x", "y"]), 9000);
    a.run(9000);
    assert_eq!((a.view().output, admitted(&a)), (Output::Member(0), vec![(true, true), (false, false)]));
}

#[test]
fn operators_choose() {
    let mut bond = bond(settings(Mode::BalanceSlb), &["x", "y"]);
    assert_eq!((bond.choose("y"), bond.choose("y")), (Ok(true), Ok(false)));
    assert_eq!(bond.choose("z"), Err(OperateError::NoMember));
    bond.migrate("300", "y").unwrap();
    assert_eq!(bond.buckets[300 % BUCKETS].member.as_deref(), Some("y"));
    assert_eq!(bond.migrate("3x", "y"), Err(OperateError::BadHash));
    bond.force("y", false).unwrap();
    assert_eq!(bond.migrate("3", "y"), Err(OperateError::MigrateDisabled));
    assert_eq!(bond.choose("y"), Err(OperateError::ActiveDisabled));
    // Its link says otherwise.
    bond.run(10);
    assert!(bond.members["y"].is_enabled);
    bond.settings.mode = Mode::ActiveBackup;
    assert_eq!(bond.migrate("3", "y"), Err(OperateError::NotSlb));
}

#[test]
fn texts_are_those_of_open_vswitch() {
    let bond = bond(settings(Mode::BalanceSlb), &["x", "y"]);
    assert_eq!(
        bond.show(3, 0),
        "---- b ----\nbond_mode: balance-slb\nbond may use recirculation: no, Recirc-ID : -1\nbond-hash-basis: 0\n\
         lb_output action: disabled, bond-id: -1\nall members active: false\nupdelay: 0 ms\ndowndelay: 0 ms\n\
         lacp_status: off\nlacp_fallback_ab: false\nactive-backup primary: <none>\n\
         active member mac: 02:00:00:00:00:01(x)\n\nmember x: enabled\n  active member\n  may_enable: true\n\n\
         member y: enabled\n  may_enable: true\n\n"
    );
    assert_eq!(bond.list(3), "b\tbalance-slb\t3\tx, y\n");
    assert_eq!(bond.show_lacp(), None);
}

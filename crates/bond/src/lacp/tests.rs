use packet::MacAddr;
use proptest::prelude::*;

use super::*;

fn settings(system: u8, active: bool) -> LacpSettings {
    LacpSettings {
        active,
        fast: true,
        system: MacAddr([2, 0, 0, 0, 0, system]),
        priority: 65534,
        fallback: false,
    }
}

fn members(names: &[&str]) -> Vec<MemberSettings> {
    let member = |(name, port_id): (&&str, u16)| MemberSettings {
        name: (*name).into(),
        port_id,
        port_priority: 65535,
        key: 0,
    };
    names.iter().zip(1..).map(member).collect()
}

fn lacp(system: u8, active: bool, names: &[&str]) -> Lacp {
    let mut lacp = Lacp::new(settings(system, active));
    lacp.configure(settings(system, active), &members(names), 0);
    names.iter().for_each(|name| lacp.set_link(name, true, 0));
    lacp
}

/// Lets systems talk from `from` to `to` over the links between members of the same name that are not in `cut`.
fn talk(a: &mut Lacp, b: &mut Lacp, from: Millis, to: Millis, cut: &[&str]) {
    for now in (from..=to).step_by(100) {
        let sent = [a.run(now), b.run(now)];
        let [by_a, by_b] = sent;
        let pass = |sent: Vec<(String, Pdu)>, to: &mut Lacp| {
            for (name, pdu) in sent.iter().filter(|(name, _)| !cut.contains(&name.as_str())) {
                to.receive(name, &pdu.frame(MacAddr::ZERO), now);
            }
        };
        pass(by_a, b);
        pass(by_b, a);
    }
}

fn enabled(lacp: &Lacp) -> Vec<&str> {
    lacp.members.keys().map(String::as_str).filter(|name| lacp.may_enable(name)).collect()
}

#[test]
fn a_partner_that_contradicts_is_answered_three_times_a_second() {
    let mut one = lacp(1, true, &["x"]);
    let mut sent = Vec::new();
    for now in (0..10_000).step_by(10) {
        // It never knows what it was told.
        let actor = Info { system: MacAddr([2, 0, 0, 0, 0, 9]), ..Info::default() };
        let pdu = Pdu { actor, partner: Info::default() };
        one.receive("x", &pdu.frame(MacAddr::ZERO), now);
        sent.extend(one.run(now).iter().map(|_| now));
    }
    assert!(sent.len() >= 28, "{sent:?}");
    for window in sent.windows(MOST + 1) {
        assert!(window[MOST] - window[0] >= FAST, "{window:?}");
    }
    // What is held back is due once it may be sent.
    assert!(one.next_due().is_some_and(|due| due <= 11_000), "{:?}", one.next_due());
}

#[test]
fn two_systems_agree_and_a_silent_link_is_given_up() {
    let (mut a, mut b) = (lacp(1, true, &["x", "y"]), lacp(2, false, &["x", "y"]));
    talk(&mut a, &mut b, 0, 1000, &[]);
    assert_eq!((enabled(&a), enabled(&b)), (vec!["x", "y"], vec!["x", "y"]));
    let actor = a.actor(&a.members["x"]);
    let all = State::TIMEOUT | State::AGGREGATION | State::SYNCHRONIZATION;
    assert_eq!(actor.state, all | State::ACTIVITY | State::COLLECTING | State::DISTRIBUTING);
    assert_eq!((actor.key, a.key(), a.members["y"].partner.port), (1, Some(1), 2));
    // Three intervals of a second without a word, and three more.
    talk(&mut a, &mut b, 1100, 4500, &["y"]);
    assert_eq!((enabled(&a), a.members["y"].status), (vec!["x"], Status::Expired));
    talk(&mut a, &mut b, 4600, 8000, &["y"]);
    assert_eq!((a.members["y"].status, a.members["y"].is_attached), (Status::Defaulted, false));
    assert_eq!(
        a.members["y"].counters,
        Counters { expired: 1, defaulted: 1, link_changes: 1, ..a.members["y"].counters }
    );
    talk(&mut a, &mut b, 8100, 40_000, &[]);
    assert_eq!(enabled(&a), ["x", "y"]);
    assert_eq!(a.members["x"].status, Status::Current);
}

#[test]
fn a_link_that_comes_back_is_used_at_once() {
    let (mut a, mut b) = (lacp(1, true, &["x", "y"]), lacp(2, true, &["x", "y"]));
    talk(&mut a, &mut b, 0, 1000, &[]);
    // Just before the next LACPDUs would be due.
    a.set_link("y", false, 1100);
    talk(&mut a, &mut b, 1100, 1100, &[]);
    assert_eq!(enabled(&a), ["x"]);
    a.set_link("y", true, 1200);
    talk(&mut a, &mut b, 1200, 1300, &[]);
    assert_eq!(enabled(&a), ["x", "y"]);
}

#[test]
fn passive_systems_wait() {
    let (mut a, mut b) = (lacp(1, false, &["x"]), lacp(2, false, &["x"]));
    talk(&mut a, &mut b, 0, 40_000, &[]);
    assert!(!a.is_negotiated() && a.members["x"].counters.sent == 0);
}

#[test]
fn a_member_with_another_partner_is_left_out() {
    let mut a = lacp(1, true, &["x", "y"]);
    let (mut b, mut c) = (lacp(2, true, &["x"]), lacp(3, true, &["y"]));
    talk(&mut a, &mut b, 0, 1000, &["y"]);
    talk(&mut a, &mut c, 1100, 2000, &["x"]);
    assert_eq!((enabled(&a), enabled(&c)), (vec!["x"], vec![]));
    // Once the first partner has gone, the second has its turn.
    talk(&mut a, &mut c, 2100, 12_000, &["x"]);
    assert_eq!((enabled(&a), enabled(&c)), (vec!["y"], vec!["y"]));
}

#[test]
fn a_loop_is_no_partner() {
    let (mut a, mut b) = (lacp(1, true, &["x"]), lacp(1, true, &["x"]));
    talk(&mut a, &mut b, 0, 2000, &[]);
    assert!(!a.members["x"].is_attached && !a.is_negotiated());
}

#[test]
fn without_a_partner_fallback_attaches() {
    let mut a = Lacp::new(LacpSettings { fallback: true, ..settings(1, true) });
    a.configure(a.settings.clone(), &members(&["x", "y"]), 0);
    a.set_link("x", true, 0);
    a.run(100);
    assert!(!a.may_enable("x"), "it may still answer");
    a.run(4000);
    assert!(a.may_enable("x") && !a.is_negotiated());
    // A partner on the other link takes precedence.
    let mut b = lacp(2, true, &["y"]);
    a.set_link("y", true, 4000);
    talk(&mut a, &mut b, 4100, 6000, &[]);
    assert_eq!((enabled(&a), a.is_negotiated()), (vec!["y"], true));
}

#[test]
fn removed_members_are_forgotten() {
    let mut a = lacp(1, true, &["x", "y"]);
    a.configure(a.settings.clone(), &members(&["x", "y"])[1..], 0);
    assert_eq!((a.members.len(), a.key()), (1, Some(2)));
    a.configure(a.settings.clone(), &[], 0);
    assert_eq!(a.key(), None);
    a.receive("x", &[], 0);
}

proptest! {
    /// What comes from the network: LACPDUs with any contents, some of them damaged.
    #[test]
    fn attached_members_have_one_partner(
        pdus: Vec<(bool, u8, u8, u8, u8, Option<(usize, u8)>)>,
        fallback: bool,
    ) {
        let mut a = Lacp::new(LacpSettings { fallback, ..settings(1, true) });
        a.configure(a.settings.clone(), &members(&["x", "y"]), 0);
        ["x", "y"].iter().for_each(|name| a.set_link(name, true, 0));
        for ((on_x, system, key, state, priority, damage), now) in pdus.into_iter().zip((0..).step_by(700)) {
            let actor = Info {
                system_priority: priority.into(),
                system: MacAddr([2, 0, 0, 0, 0, system % 4]),
                key: u16::from(key % 2),
                state: State::from_bits_retain(state),
                ..Info::default()
            };
            let mut frame = Pdu { actor, partner: Info::default() }.frame(MacAddr::ZERO);
            if let Some((at, value)) = damage {
                let at = at % frame.len();
                frame[at] = value;
            }
            a.receive(if on_x { "x" } else { "y" }, &frame, now);
            let sent = a.run(now);
            prop_assert!(sent.len() <= 2);
            prop_assert!(a.next_due().is_some_and(|due| due > now));
            let partners: std::collections::BTreeSet<_> = a
                .members
                .values()
                .filter(|member| member.is_attached)
                .map(|member| (member.partner.system, member.partner.key))
                .collect();
            prop_assert!(partners.len() <= 1, "{:?}", partners);
        }
    }
}

//! Failures, neighbours of the other protocol, changes of the topology, and times.

use spanning_tree::{Bridge, Flush, PortState, Protocol, rstp};

use crate::network::{Network, address};

/// A ring of three bridges: the second port of the last one is blocked.
fn ring(protocol: Protocol) -> Network {
    let mut network = Network::new(protocol, &["ab", "ac", "bc"]);
    network.pass(60.0);
    network.check(&["root", "F:1 F", "F:1 B"]);
    network
}

#[test]
fn stp_waits_twice_the_forward_delay() {
    let mut network = Network::new(Protocol::Stp, &["ab", "ab"]);
    network.pass(2.0);
    network.check(&["Li Li", "Li:1 B"]);
    network.pass(13.0);
    network.check(&["Le Le", "Le:1 B"]);
    network.pass(14.5);
    network.check(&["Le Le", "Le:1 B"]);
    network.pass(0.5);
    network.check(&["root", "F:1 B"]);
}

#[test]
fn rstp_forwards_at_once_where_neighbours_agree() {
    let mut network = Network::new(Protocol::Rstp, &["ab", "ac", "bc"]).point_to_point();
    network.pass(0.25);
    // Costs are of links of 100 Mbit/s, so a hop is the same.
    network.check(&["root", "F:1 F", "F:1 B"]);
}

#[test]
fn rstp_replaces_a_link_at_once() {
    let mut network = Network::new(Protocol::Rstp, &["ab", "ac", "bc"]).point_to_point();
    network.pass(10.0);
    network.set_up(2, 1, false);
    network.set_up(0, 2, false);
    network.pass(0.25);
    network.check(&["root", "F:1 F", "D F:2"]);
    network.set_up(2, 1, true);
    network.set_up(0, 2, true);
    network.pass(0.25);
    network.check(&["root", "F:1 F", "F:1 B"]);
}

#[test]
fn rstp_notices_silent_neighbours_after_three_hellos() {
    let mut network = Network::new(Protocol::Rstp, &["ab", "ac", "bc"]).point_to_point();
    network.pass(10.0);
    // The link stays up and carries nothing.
    network.connect(0, "a0");
    let mut network = network.point_to_point();
    network.pass(3.5);
    network.check(&["root", "F:1 F", "F:1 B"]);
    network.pass(3.0);
    // The former root port has no neighbour that could agree.
    network.check(&["root", "F:1 F", "Li F:2"]);
    network.pass(3.0);
    network.check(&["root", "F:1 F", "F F:2"]);
}

#[test]
fn stp_replaces_a_silent_link_after_age_and_delays() {
    let mut network = ring(Protocol::Stp);
    network.connect(0, "a0");
    network.pass(16.0);
    network.check(&["root", "F:1 F", "F:1 B"]);
    network.pass(5.0);
    network.check(&["root", "F:1 F", "F Li:2"]);
    network.pass(30.0);
    network.check(&["root", "F:1 F", "F F:2"]);
}

#[test]
fn another_root_takes_over() {
    for protocol in [Protocol::Stp, Protocol::Rstp] {
        let mut network = ring(protocol);
        network.configure(2, 0x7000);
        network.pass(60.0);
        network.check(&["F F:1", "B F:1", "root"]);
        // It goes away.
        network.set_up(2, 1, false);
        network.set_up(2, 2, false);
        network.connect(0, "a0");
        network.connect(1, "a0");
        network.pass(100.0);
        network.check(&["root", "F:1 F", "root"]);
    }
}

#[test]
fn changes_of_the_topology_reach_all_bridges() {
    for protocol in [Protocol::Stp, Protocol::Rstp] {
        let mut network = Network::new(protocol, &["ab", "ac0", "bc"]);
        network.pass(120.0);
        network.flushes.clear();
        network.pass(30.0);
        assert_eq!(network.flushes, [], "nothing changes");
        let now = network.now;
        network.bridges[2].change_topology(now);
        network.pass(3.0);
        match protocol {
            // The first bridge when it detects the change, and when the root has told of it.
            Protocol::Stp => assert_eq!(network.flushes, [Flush::All, Flush::All, Flush::All, Flush::All]),
            // Each port but the one over which the change is known.
            Protocol::Rstp => {
                assert!(network.flushes.contains(&Flush::Ports(vec![1])), "{:?}", network.flushes)
            }
        }
        network.flushes.clear();
        network.pass(60.0);
        let again = network.flushes.len();
        assert_eq!(again, if protocol == Protocol::Stp { 6 } else { 0 }, "each delay while it changes");
    }
}

#[test]
fn rstp_speaks_stp_with_old_neighbours() {
    let stp = Network::new(Protocol::Stp, &["a"]);
    let mut network = Network::new(Protocol::Rstp, &["ab", "ab"]).point_to_point();
    network.bridges[0] = stp.bridges.into_iter().next().unwrap();
    network.connect(0, "ab");
    network.pass(60.0);
    assert_eq!([network.shown(0), network.shown(1)], ["root", "F:200000 B"]);
    let Bridge::Rstp(it) = &network.bridges[1] else { unreachable!() };
    assert_eq!(it.port_status(1).unwrap().role, rstp::Role::Root);
    // The root's bridge hears of changes by the old messages.
    network.flushes.clear();
    let now = network.now;
    network.bridges[1].change_topology(now);
    network.pass(2.5);
    assert!(network.flushes.contains(&Flush::All), "{:?}", network.flushes);
}

#[test]
fn a_port_without_a_bridge_is_an_edge() {
    let mut network = Network::new(Protocol::Rstp, &["0"]).point_to_point();
    network.pass(2.75);
    assert_eq!(network.state(0, 1), PortState::Listening);
    network.pass(0.5);
    assert_eq!(network.state(0, 1), PortState::Forwarding);
    assert_eq!(network.flushes, [], "an edge changes no topology");
}

#[test]
fn an_operator_can_make_a_port_an_edge_or_switch_it_off() {
    let keys =
        |all: &[(&str, &str)]| all.iter().map(|(key, text)| (key.to_string(), text.to_string())).collect();
    let mut bridge = rstp::Bridge::new(rstp::Settings::read("", &keys(&[]), address(1)).0, 0);
    let set = |bridge: &mut rstp::Bridge, now, all: &[(&str, &str)]| {
        let port = rstp::PortSettings::read("p", &keys(all), 0).0;
        bridge.configure(rstp::Settings::read("", &keys(&[]), address(1)).0, [(1, port)].into(), now);
        bridge.set_link(1, true, address(1), now);
        bridge.run(now);
    };
    set(&mut bridge, 0, &[("rstp-port-admin-edge", "true")]);
    assert_eq!(bridge.state(1), PortState::Forwarding);
    set(&mut bridge, 100, &[("rstp-admin-port-state", "false")]);
    assert_eq!(bridge.state(1), PortState::Disabled);
    assert_eq!(bridge.port_status(1).unwrap().role, rstp::Role::Disabled);
    set(&mut bridge, 200, &[("rstp-port-auto-edge", "false")]);
    bridge.run(19_000);
    assert_eq!(bridge.state(1), PortState::Listening, "for the greatest age");
}

#[test]
fn rstp_in_its_old_version_waits_like_stp() {
    let mut bridges: Vec<_> = Vec::new();
    for number in 0..2 {
        let keys = [("rstp-force-protocol-version".to_owned(), "0".to_owned())].into();
        let settings = rstp::Settings::read("", &keys, address(number)).0;
        let mut bridge = rstp::Bridge::new(settings.clone(), 0);
        let port = rstp::PortSettings::read("p", &Default::default(), 0).0;
        bridge.configure(settings, [(1, port)].into(), 0);
        bridge.set_link(1, true, address(number), 0);
        bridges.push(bridge);
    }
    for now in (0..60_000).step_by(500) {
        for from in 0..2 {
            let outcome = bridges[from].run(now);
            for (_, frame) in outcome.frames {
                assert_ne!(frame[20], 2, "no RST BPDU");
                bridges[1 - from].receive(1, &frame, now).unwrap();
            }
        }
        let expected = now >= 36_000;
        if now < 34_000 || expected {
            assert_eq!(bridges[1].state(1).forwards(), expected, "{now}");
        }
    }
}

#[test]
fn messages_are_limited() {
    for protocol in [Protocol::Stp, Protocol::Rstp] {
        let mut network = ring(protocol);
        network.frames = 0;
        for round in 0..40 {
            // A bridge that changes its mind all the time.
            network.configure(2, if round % 2 == 0 { 0x7000 } else { 0x9000 });
            network.pass(0.25);
        }
        // Six ports for ten seconds: one message a second each, and six at once with RSTP.
        assert!(network.frames <= 6 * (10 + 7 + 2), "{protocol:?}: {}", network.frames);
    }
}

//! Refusals: nothing moves, or everything returns, and the message names the object and the remedy.
#![allow(clippy::unwrap_used, clippy::panic)]

mod lab;

use std::path::Path;

use hostnet::{Handover, Snapshot, guardian};
use lab::{Lab, assert_same, until};

/// Returns the errors of a daemon that cannot begin.
fn refusal(lab: &Lab) -> String {
    lab.daemon().errors()
}

#[test]
fn interfaces_that_cannot_move_alone_are_refused() {
    let lab = Lab::plain();
    let before = lab.dump();
    lab.host.sh("ip link add name switch type bridge; ip link set eth0 master switch");
    assert_eq!(
        refusal(&lab),
        "interface `eth0` belongs to `switch`, so its traffic is not its own; free it with `ip link set eth0 nomaster`"
    );
    lab.host.sh("ip link del switch; ip link add link eth0 name eth0.7 type macvlan");
    assert_eq!(
        refusal(&lab),
        "macvlan interface `eth0.7` lies on `eth0` and would be cut off; remove it with `ip link del eth0.7`, and \
         create it on the host port afterwards"
    );
    lab.host.sh("ip link del eth0.7");
    assert_same(&before, &lab.dump());
    assert!(!lab.has_files());
}

#[test]
fn wrong_names_and_places_are_refused() {
    let lab = Lab::plain();
    let journal = lab.journal();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            lab.host.enter();
            let begin = |source: &str, target: &str, journal: &Path| {
                Handover::begin(source, target, journal, guardian::command()).unwrap_err().to_string()
            };
            assert_eq!(
                begin("eth9", "host0", &journal),
                "interface `eth9` does not exist in this network namespace; `ip link` lists the interfaces"
            );
            assert_eq!(
                begin("eth0", "a-name-that-is-too-long", &journal),
                "interface `a-name-that-is-too-long` does not exist in this network namespace; `ip link` lists the interfaces"
            );
            assert_eq!(
                begin("eth0", "eth0", &journal),
                "interface `eth0` cannot take over its own addresses; name another interface as the host port"
            );
            assert_eq!(
                begin("lo", "host0", &journal),
                "interface `lo` is not an Ethernet interface; only those have addresses that can move"
            );
            assert_eq!(
                begin("eth0", "host0", Path::new("/run/mswitch-no-such/eth0.journal")),
                "journal /run/mswitch-no-such/eth0.journal: No such file or directory (os error 2); create its \
                 directory"
            );
            let failing = |program: &str| {
                let command = std::process::Command::new(program);
                Handover::begin("eth0", "host0", &journal, command).unwrap_err().to_string()
            };
            assert_eq!(failing("true"), "cannot start the guardian process: it ended at once");
            assert_eq!(
                failing("/no/such/program"),
                "cannot start the guardian process: No such file or directory (os error 2)"
            );
        });
    });
    assert!(!lab.has_files());
    // The journal of another namespace is not applied here.
    let mut daemon = lab.daemon();
    daemon.kill_guardian();
    until("the guardian has ended", || lab::is_gone(daemon.guardian));
    daemon.kill();
    daemon.child.wait().unwrap();
    let error = hostnet::recover(&journal).unwrap_err().to_string();
    assert!(error.contains("it belongs to the network namespace with inode "), "{error}");
    assert!(
        error.ends_with("which `lsns -t net` lists, or remove the file if the namespace is gone"),
        "{error}"
    );
    assert!(lab.recover().starts_with("Restored("));
}

#[test]
fn an_error_midway_is_rolled_back() {
    let lab = Lab::rich();
    // A route whose gateway no prefix reaches any more: the kernel keeps it, and would not take it again.
    lab.host.sh("ip addr add 10.9.0.1/24 dev eth0 noprefixroute
         ip route add 10.9.0.0/24 dev eth0
         ip route add 10.99.0.0/16 via 10.9.0.254
         ip route del 10.9.0.0/24");
    let before = lab.dump();
    let mut daemon = lab.daemon();
    assert_eq!(daemon.say("commit"), [""; 0]);
    assert_eq!(
        daemon.errors(),
        "cannot add route 10.99.0.0/16 via 10.9.0.254 to `host0`: Network is unreachable (Nexthop has invalid gateway); \
         no address of the interface reaches the gateway: add the route with `onlink`, or remove it"
    );
    assert_same(&before, &lab.dump());
    assert!(!lab.has_files());
    assert_eq!(lab.recover(), "Nothing");
}

#[test]
fn an_error_while_preparing_is_rolled_back() {
    let lab = Lab::rich();
    lab.host.sh("ip link del host0; ip tuntap add dev host0 mode tap; ip link set eth0 mtu 65535");
    let before = lab.dump();
    assert_eq!(
        refusal(&lab),
        "cannot set the MTU of `host0` to 65535: Invalid argument (mtu greater than device maximum)"
    );
    assert_same(&before, &lab.dump());
    assert!(!lab.has_files());
}

#[test]
fn what_the_host_port_received_meanwhile_moves_back() {
    let lab = Lab::plain();
    let mut daemon = lab.daemon();
    assert_eq!(daemon.say("commit"), ["done commit"]);
    lab.host.sh("ip addr add 10.0.77.1/24 dev host0; ip route add 10.78.0.0/16 via 10.0.0.254
         ip route replace default via 10.0.0.253 dev host0; ip rule add iif host0 lookup 100 pref 1005");
    assert_eq!(daemon.say("release"), ["done release"]);
    daemon.say("finish");
    let now = lab.host.sh("ip addr show dev eth0; ip route; ip rule");
    for fact in [
        "inet 10.0.77.1/24 scope global eth0",
        "10.78.0.0/16 via 10.0.0.254 dev eth0",
        "default via 10.0.0.253 dev eth0",
        "1005:\tfrom all iif eth0 lookup 100",
    ] {
        assert!(now.contains(fact), "{fact}: {now}");
    }
    assert!(!now.contains("default via 10.0.0.254"), "{now}");
    assert_eq!(lab.host.sh("ip -4 addr show dev host0"), "");
}

#[test]
fn a_client_that_looks_after_the_interface_is_followed() {
    let lab = Lab::plain();
    let mut daemon = lab.daemon();
    assert_eq!(daemon.say("commit"), ["done commit"]);
    assert_eq!(daemon.say("follow"), ["0 objects", "done follow"]);
    // A DHCP client renews its lease, and gets another address as well.
    lab.host.sh("ip addr add 10.0.0.1/24 brd + dev eth0 valid_lft 3600 preferred_lft 1800
         ip addr add 10.0.78.1/24 dev eth0; ip route add 10.79.0.0/16 via 10.0.78.254");
    let followed = daemon.say("follow");
    assert!(followed[0].ends_with(" objects") && followed[0] != "0 objects", "{followed:?}");
    assert_eq!(lab.host.sh("ip -4 addr show dev eth0"), "");
    let now = lab.host.sh("ip addr show dev host0; ip route");
    for fact in ["10.0.78.1/24", "10.79.0.0/16 via 10.0.78.254 dev host0", "valid_lft 3"] {
        assert!(now.contains(fact), "{fact}: {now}");
    }
    assert_eq!(daemon.say("follow"), ["0 objects", "done follow"]);
    // The journal has learned it as well.
    daemon.kill();
    until("the address returns", || lab.host.sh("ip -4 addr show dev eth0").contains("10.0.78.1/24"));
    until("the route returns", || lab.host.sh("ip route").contains("10.79.0.0/16 via 10.0.78.254 dev eth0"));
}

#[test]
fn a_prefix_that_was_removed_stays_removed() {
    let lab = Lab::plain();
    lab.host.sh("ip addr add 10.0.60.1/24 dev eth0; ip route del 10.0.60.0/24");
    let routes = || lab.host.sh("ip route");
    let before = routes();
    let mut daemon = lab.daemon();
    assert_eq!(daemon.say("commit"), ["done commit"]);
    assert_eq!(routes(), before.replace("eth0", "host0"));
    assert_eq!(daemon.say("release"), ["done release"]);
    assert_eq!(routes(), before);
}

#[test]
fn changes_of_the_interface_are_reported() {
    let lab = Lab::plain();
    std::thread::scope(|scope| {
        let test = scope.spawn(|| {
            lab.host.enter();
            let handover = lab.handover();
            // The end of duplicate address detection is a change of the address.
            lab.settle();
            let mut changes = handover.changes().unwrap();
            let mut reports = |script: &str| {
                lab.host.sh(script);
                changes.take()
            };
            assert!(!reports("ip addr add 10.0.70.1/24 dev eth1; ip route add 10.71.0.0/16 dev host0"));
            assert!(reports("ip addr add 10.0.73.1/24 dev host0"));
            assert!(reports("ip addr add 10.0.72.1/24 dev eth0"));
            assert!(!reports("true"));
            assert!(reports("ip -6 route add fd77::/64 dev eth0"));
            assert!(!reports("ip addr del 10.0.72.1/24 dev eth0"));
            handover.release().unwrap().finish().unwrap();
        });
        test.join().unwrap();
    });
    assert!(!lab.has_files());
}

#[test]
fn a_snapshot_prints_as_the_command_would() {
    let lab = Lab::rich();
    let snapshot = std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            lab.host.enter();
            Snapshot::of("eth0").unwrap()
        });
        read.join().unwrap()
    });
    let lines: Vec<String> = snapshot.objects.iter().map(ToString::to_string).collect();
    for line in [
        "address 10.0.0.1/24",
        "address 192.168.7.1 peer 192.168.7.2/32",
        "address 2001:db8::1/64 nodad",
        "neighbour 10.0.0.77 lladdr 02:00:00:00:00:77 permanent",
        "neighbour 10.0.0.78 lladdr 02:00:00:00:00:78 noarp",
        "neighbour 10.0.0.88 proxy",
        "rule 1001: from 10.0.0.2/32 to 10.50.0.0/16 oif eth0 lookup 2000",
        "route default via 10.99.0.1 table 2000",
        "route 10.52.0.0/16 with 2 next hops",
        "route 10.62.0.0/16 via 2001:db8::fe",
        "route 2001:db8:40::/48 via 2001:db8::fe src 2001:db8::2 metric 1024",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line}: {lines:#?}");
    }
    assert!(lines.iter().any(|line| line.starts_with("address 10.0.5.5/24 valid for 3")));
    assert_eq!(snapshot.link.mtu, 1450);
    assert_eq!(snapshot.link.mac.unwrap().to_string(), "02:00:00:00:00:01");
    assert_eq!((snapshot.link.ipv4["proxy_arp"], snapshot.link.ipv6["accept_ra"]), (1, 0));
}

//! Moving and giving back, compared by what `ip` lists before and after.
#![allow(clippy::unwrap_used, clippy::panic)]

mod lab;

use hostnet::Recovered;

use lab::{Lab, assert_same};

#[test]
fn everything_moves_and_returns() {
    let lab = Lab::rich();
    let before = lab.dump();
    let mut daemon = lab.daemon();
    assert_eq!(daemon.say("commit"), ["done commit"]);
    let eth0 = lab.host.sh(
        "ip -br addr show dev eth0; ip route show table all dev eth0; ip -6 route show table main dev eth0",
    );
    assert!(!eth0.contains("10.") && !eth0.contains("db8"), "{eth0}");
    assert!(!lab.host.sh("ip rule; ip -6 rule").contains("eth0"));
    assert_eq!(daemon.say("release"), ["done release"]);
    daemon.say("finish");
    assert_eq!(daemon.errors(), "");
    assert_same(&before, &lab.dump());
    assert!(!lab.has_files());
}

#[test]
fn settings_that_its_owner_changes_meanwhile_stay() {
    let lab = Lab::plain();
    let mut daemon = lab.daemon();
    assert_eq!(daemon.say("commit"), ["done commit"]);
    lab.host.sh("ip link set eth0 mtu 1400; echo 1 > /proc/sys/net/ipv4/conf/eth0/arp_ignore");
    assert_eq!(daemon.say("release"), ["done release"]);
    assert!(lab.host.sh("ip link show dev eth0").contains("mtu 1400"));
    assert_eq!(lab.host.sh("cat /proc/sys/net/ipv4/conf/eth0/arp_ignore").trim(), "1");
    assert!(lab.host.sh("ip route").contains("default via 10.0.0.254 dev eth0"));
    // An interface that was set down stays down: it has its addresses, and no routes, as after `ip link set eth0 down`.
    let mut daemon = lab.daemon();
    assert_eq!(daemon.say("commit"), ["done commit"]);
    lab.host.sh("ip link set eth0 down");
    assert_eq!(daemon.say("release"), ["done release"]);
    assert_eq!(daemon.say("finish"), [""; 0]);
    assert_eq!(daemon.errors(), "");
    assert!(lab.host.sh("ip link show dev eth0").contains("state DOWN"));
    lab.host.sh("ip link set eth0 up");
    let now = lab.host.sh("ip addr show dev eth0; ip route");
    for fact in ["10.0.0.1/24", "2001:db8::1/64", "10.0.0.0/24 dev eth0"] {
        assert!(now.contains(fact), "{fact}: {now}");
    }
}

#[test]
fn a_host_port_has_its_settings_back_although_nobody_waits_for_that() {
    let lab = Lab::plain();
    let before = lab.dump();
    std::thread::scope(|scope| {
        let test = scope.spawn(|| {
            lab.host.enter();
            let released = lab.handover().release().unwrap();
            assert!(matches!(released.recovered(), Recovered::Restored(_)));
            assert!(lab.host.sh("ip link show dev host0").contains("02:00:00:00:00:01"));
            drop(released);
        });
        test.join().unwrap();
    });
    assert_same(&before, &lab.dump());
}

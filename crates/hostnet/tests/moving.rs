//! Moving and giving back, compared by what `ip` lists before and after.
#![allow(clippy::unwrap_used, clippy::panic)]

mod lab;

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

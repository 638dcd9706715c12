//! A daemon with the capabilities and restrictions of its service, not those of root.
#![allow(clippy::unwrap_used, clippy::panic)]

mod lab;

use lab::{Lab, assert_same, until};

/// Read-only settings, as `ProtectKernelTunables=yes` makes them.
const READ_ONLY: &str = "mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys; exec \"$@\"";

#[test]
fn a_user_with_one_capability_moves_and_its_guardian_restores() {
    let lab = Lab::rich();
    let before = lab.dump();
    std::os::unix::fs::chown(lab.directory(), Some(65534), Some(65534)).unwrap();
    let as_service = "exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all,+net_admin \
                      --ambient-caps=-all,+net_admin --bounding-set=-all,+net_admin --no-new-privs \"$@\"";
    for crash in [false, true] {
        let mut daemon = lab.daemon_by(as_service);
        assert_eq!(daemon.say("commit"), ["done commit"]);
        if crash {
            daemon.kill();
            until("the journal is removed", || !lab.has_files());
        } else {
            assert_eq!(daemon.say("release"), ["done release"]);
            daemon.say("finish");
            assert_eq!(daemon.errors(), "");
        }
        assert_same(&before, &lab.dump());
    }
}

#[test]
fn without_the_capability_nothing_moves() {
    let lab = Lab::plain();
    let before = lab.dump();
    let daemon = lab.daemon_by("exec setpriv --bounding-set=-net_admin --inh-caps=-net_admin \"$@\"");
    assert_eq!(
        daemon.errors(),
        "cannot set net.ipv6.conf.host0.addr_gen_mode to 1: Operation not permitted; CAP_NET_ADMIN is needed"
    );
    assert!(!lab.has_files());
    assert_same(&before, &lab.dump());
}

#[test]
fn read_only_settings_matter_only_where_they_differ() {
    let lab = Lab::plain();
    let before = lab.dump();
    let mut daemon = lab.daemon_by(READ_ONLY);
    assert_eq!(daemon.say("commit"), ["done commit"]);
    assert_eq!(daemon.say("release"), ["done release"]);
    daemon.say("finish");
    assert_eq!(daemon.errors(), "");
    assert_same(&before, &lab.dump());
    lab.host.sh("echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_ra");
    let before = lab.dump();
    let daemon = lab.daemon_by(READ_ONLY);
    assert_eq!(
        daemon.errors(),
        "cannot set net.ipv6.conf.host0.accept_ra to 0: Read-only file system; the service needs \
         ReadWritePaths=/proc/sys/net"
    );
    assert_same(&before, &lab.dump());
    assert!(!lab.has_files());
}

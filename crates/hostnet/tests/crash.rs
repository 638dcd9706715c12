//! Crashes: the guardian gives everything back within a second; after the death of both, `recover` does.
#![allow(clippy::unwrap_used, clippy::panic)]

mod lab;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lab::{Daemon, Lab, assert_same, until};

/// What the guardian promises.
const PROMISE: Duration = Duration::from_secs(1);

/// Measures the time until the host has its address and default route at `eth0`.
fn time_to_return(lab: &Lab, start: Instant) -> Duration {
    until("the address and the routes return", || {
        lab.host.succeeds(
            "test -n \"$(ip -4 addr show dev eth0 to 10.0.0.1)\" -a -n \"$(ip route show default dev eth0)\"",
        )
    });
    start.elapsed()
}

#[test]
fn the_guardian_restores_within_a_second() {
    let lab = Lab::rich();
    let before = lab.dump();
    let mut daemon = lab.daemon();
    assert_eq!(daemon.say("commit"), ["done commit"]);
    let guardian = daemon.guardian;
    let start = Instant::now();
    daemon.kill();
    let took = time_to_return(&lab, start);
    println!("restored {took:?} after SIGKILL");
    assert!(took < PROMISE, "{took:?}");
    until("the guardian ends", || lab::is_gone(guardian));
    let errors = daemon.errors();
    assert!(
        errors.starts_with("mswitch guardian: the daemon ended; interface `eth0` has its addresses"),
        "{errors}"
    );
    assert_same(&before, &lab.dump());
    assert!(!lab.has_files());
    assert_eq!(lab.recover(), "Nothing");
}

#[test]
fn the_guardian_restores_when_the_host_port_dies_with_the_daemon() {
    let lab = Lab::rich();
    let before = lab.host_dump();
    lab.host.sh("ip link del host0");
    // It vanishes with the process that holds it, and with it everything on it.
    let tap = lab.tap("host0");
    let mut daemon = lab.daemon();
    assert_eq!(daemon.say("commit"), ["done commit"]);
    assert!(lab.host.sh("ip addr show dev host0").contains("inet 10.0.0.1/24"));
    let start = Instant::now();
    drop(tap);
    daemon.kill();
    let took = time_to_return(&lab, start);
    println!("restored {took:?} after the host port's death");
    assert!(took < PROMISE, "{took:?}");
    until("the journal is removed", || !lab.has_files());
    assert_same(&before, &lab.host_dump());
}

/// Kills the guardian, then the daemon.
fn kill_both(daemon: &mut Daemon) {
    daemon.kill_guardian();
    until("the guardian has ended", || lab::is_gone(daemon.guardian));
    daemon.kill();
    daemon.child.wait().unwrap();
}

#[test]
fn recovery_after_the_death_of_both() {
    for gone in [false, true] {
        let lab = Lab::rich();
        let before = if gone { lab.host_dump() } else { lab.dump() };
        let mut daemon = lab.daemon();
        assert_eq!(daemon.say("commit"), ["done commit"]);
        kill_both(&mut daemon);
        if gone {
            lab.host.sh("ip link del host0");
        } else {
            assert_eq!(lab.host.sh("ip -4 addr show dev eth0"), "");
        }
        assert!(lab.recover().starts_with("Restored(Interface { index: "));
        assert_same(&before, &if gone { lab.host_dump() } else { lab.dump() });
        assert_eq!(lab.recover(), "Nothing");
        assert!(!lab.has_files());
    }
}

#[test]
fn a_removed_interface_takes_its_addresses_along() {
    let lab = Lab::rich();
    let mut daemon = lab.daemon();
    assert_eq!(daemon.say("commit"), ["done commit"]);
    lab.host.sh("ip link del eth0");
    assert_eq!(daemon.say("release"), ["done release"]);
    daemon.say("finish");
    assert_eq!(daemon.errors(), "");
    // The host port has its own addresses and routes only.
    assert_eq!(lab.host.sh("ip -4 -o addr show dev host0 | awk '{print $4}'").trim(), "10.200.0.1/24");
    let routes = lab.host.sh("ip -4 route show dev host0");
    assert!(routes.contains("10.201.0.0/16 via 10.200.0.2") && !routes.contains("default"), "{routes}");
    assert!(!lab.host.sh("ip -6 addr show dev host0").contains("2001:db8"));
    assert!(!lab.has_files());
}

#[test]
fn recovery_finds_a_renamed_interface_and_forgets_one_that_is_gone() {
    let lab = Lab::rich();
    let crash = |lab: &Lab| {
        let mut daemon = lab.daemon();
        assert_eq!(daemon.say("commit"), ["done commit"]);
        kill_both(&mut daemon);
    };
    crash(&lab);
    lab.host.sh("ip link set eth0 down; ip link set eth0 name lan0; ip link set lan0 up; ip link del host0");
    let recovered = lab.recover();
    assert!(recovered.contains("name: \"lan0\""), "{recovered}");
    let now = lab.host.sh("ip addr show dev lan0; ip route; ip rule");
    for fact in [
        "10.0.0.1/24",
        "lan0:web",
        "2001:db8::1/64",
        "default via 10.0.0.254 dev lan0",
        "iif lan0 lookup 100",
    ] {
        assert!(now.contains(fact), "{fact}: {now}");
    }
    let lab = Lab::rich();
    crash(&lab);
    lab.host.sh("ip link del eth0; ip link del host0");
    let recovered = lab.recover();
    assert!(recovered.starts_with("Gone("), "{recovered}");
    // The rule that named the host port before stays.
    let rules = lab.host.sh("ip rule");
    assert!(
        rules.contains("999:\tfrom all to 10.200.0.0/24 iif host0")
            && !rules.contains("iif host0 lookup 100")
    );
    assert!(!lab.has_files());
}

#[test]
fn recovery_finds_a_renamed_host_port() {
    let lab = Lab::plain();
    let mut daemon = lab.daemon();
    assert_eq!(daemon.say("commit"), ["done commit"]);
    kill_both(&mut daemon);
    lab.host.sh("ip link set host0 down; ip link set host0 name h1; ip link set h1 up");
    let recovered = lab.recover();
    assert!(recovered.starts_with("Restored("), "{recovered}");
    assert!(lab.host.sh("ip -4 addr show dev eth0").contains("10.0.0.1/24"));
    assert_eq!(lab.host.sh("ip -4 addr show dev h1"), "");
    assert!(lab.host.sh("ip link show dev h1").contains("02:00:00:00:00:99"));
    assert!(!lab.has_files());
}

#[test]
fn what_the_host_port_has_received_survives_it() {
    let lab = Lab::plain();
    lab.host.sh("ip addr add 10.0.5.5/24 dev eth0 valid_lft 600 preferred_lft 600");
    let mut daemon = lab.daemon();
    assert_eq!(daemon.say("commit"), ["done commit"]);
    // A DHCP client of the host port renews a lease, and gets another address as well.
    lab.host.sh("ip addr change 10.0.5.5/24 dev host0 valid_lft 3600 preferred_lft 1800
         ip addr add 10.0.6.6/24 dev host0; ip route add 10.66.0.0/16 via 10.0.6.254");
    assert_eq!(daemon.say("follow"), ["0 objects", "done follow"]);
    kill_both(&mut daemon);
    lab.host.sh("ip link del host0");
    assert!(lab.recover().starts_with("Restored("));
    let now = lab.host.sh("ip -o addr show dev eth0; ip route");
    let lease = now.lines().find(|line| line.contains("10.0.5.5/24")).unwrap();
    let valid = lease.split("valid_lft ").nth(1).unwrap().split("sec").next().unwrap();
    assert!(valid.parse::<u32>().unwrap() > 3500, "{lease}");
    for fact in ["10.0.6.6/24", "10.66.0.0/16 via 10.0.6.254 dev eth0"] {
        assert!(now.contains(fact), "{fact}: {now}");
    }
}

#[test]
fn a_dropped_handover_leaves_no_zombie() {
    let lab = Lab::plain();
    let before = lab.dump();
    std::thread::scope(|scope| {
        let test = scope.spawn(|| {
            lab.host.enter();
            let handover = lab.handover();
            let guardian = PathBuf::from(format!("/proc/{}", handover.guardian()));
            assert!(guardian.exists());
            drop(handover);
            until("the guardian is gone", || !guardian.exists());
        });
        test.join().unwrap();
    });
    assert_same(&before, &lab.dump());
    assert!(!lab.has_files());
}

#[test]
fn a_log_that_nobody_reads_does_not_hold_up_the_guardian() {
    let lab = Lab::plain();
    // A pipe that is full.
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
    while rustix::io::write(&writer, &[b'x'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::empty()).unwrap();
    let mut daemon = lab.daemon_with(writer.into());
    assert_eq!(daemon.say("commit"), ["done commit"]);
    daemon.kill();
    until("the guardian ends", || lab::is_gone(daemon.guardian));
    assert!(lab.host.sh("ip -4 addr show dev eth0").contains("10.0.0.1/24"));
    assert!(!lab.has_files());
    drop(reader);
}

#[test]
fn a_route_whose_gateway_nothing_reaches_returns() {
    let lab = Lab::plain();
    lab.host.sh("ip addr add 10.9.0.1/24 dev eth0 noprefixroute
         ip route add 10.9.0.0/24 dev eth0
         ip route add 10.99.0.0/16 via 10.9.0.254
         ip route del 10.9.0.0/24");
    let mut daemon = lab.daemon();
    kill_both(&mut daemon);
    lab.host.sh("ip addr flush dev eth0");
    assert!(lab.recover().starts_with("Restored("));
    let routes = lab.host.sh("ip route");
    assert!(routes.contains("10.99.0.0/16 via 10.9.0.254 dev eth0 onlink"), "{routes}");
    assert!(routes.contains("default via 10.0.0.254 dev eth0 \n"), "{routes}");
}

#[test]
fn a_live_daemon_is_not_recovered_from() {
    let lab = Lab::plain();
    let mut daemon = lab.daemon();
    assert_eq!(daemon.say("commit"), ["done commit"]);
    assert_eq!(
        lab.recover(),
        format!(
            "journal {}: its guardian is alive, so the daemon that moved the addresses still runs; stop that daemon",
            lab.journal().display()
        )
    );
    let second = lab.daemon();
    assert_eq!(
        second.errors(),
        format!(
            "journal {}: it exists already, from a move that was not undone; recover first",
            lab.journal().display()
        )
    );
    assert_eq!(daemon.say("release"), ["done release"]);
}

#[test]
fn signals_that_end_services_leave_the_guardian_alone() {
    let lab = Lab::plain();
    let mut daemon = lab.daemon();
    assert_eq!(daemon.say("commit"), ["done commit"]);
    let guardian = daemon.guardian;
    let stat = |field: usize| {
        let stat = std::fs::read_to_string(format!("/proc/{guardian}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().split(' ').nth(field).unwrap().to_owned()
    };
    // Process group and session are its own.
    assert_eq!([stat(2), stat(3)], [guardian.to_string(), guardian.to_string()]);
    let status = std::fs::read_to_string(format!("/proc/{guardian}/status")).unwrap();
    let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    println!("{} {} {}", line("VmRSS"), line("RssAnon"), line("Threads"));
    assert_eq!(line("Threads"), "Threads:\t1");
    // CAP_NET_ADMIN and CAP_DAC_OVERRIDE.
    assert_eq!(line("CapEff"), "CapEff:\t0000000000001002");
    let switches = || {
        let status = std::fs::read_to_string(format!("/proc/{guardian}/status")).unwrap();
        status.lines().find(|line| line.starts_with("voluntary")).unwrap().to_owned()
    };
    until("the guardian sleeps", || stat(0) == "S");
    let asleep = switches();
    for signal in ["TERM", "INT", "HUP", "QUIT"] {
        lab.host.sh(&format!("kill -{signal} {guardian}"));
    }
    assert_eq!(stat(0), "S");
    assert_eq!(switches(), asleep, "the guardian woke up");
    let start = Instant::now();
    daemon.kill();
    assert!(time_to_return(&lab, start) < PROMISE);
}

#[test]
fn a_guardian_that_dies_is_replaced() {
    let lab = Lab::plain();
    let before = lab.dump();
    let mut daemon = lab.daemon();
    assert_eq!(daemon.say("commit"), ["done commit"]);
    daemon.kill_guardian();
    until("the guardian has ended", || lab::is_gone(daemon.guardian));
    let answer = daemon.say("guard");
    assert!(
        answer[0].starts_with("guardian ") && answer[0] != format!("guardian {}", daemon.guardian),
        "{answer:?}"
    );
    let start = Instant::now();
    daemon.kill();
    assert!(time_to_return(&lab, start) < PROMISE);
    until("the journal is removed", || !lab.has_files());
    assert_same(&before, &lab.dump());
}

#[test]
fn a_daemon_that_ends_without_releasing_is_a_dead_daemon() {
    let lab = Lab::plain();
    let before = lab.dump();
    let mut daemon = lab.daemon();
    assert_eq!(daemon.say("commit"), ["done commit"]);
    let errors = daemon.errors();
    assert!(
        errors.starts_with("mswitch guardian: the daemon ended; interface `eth0` has its addresses"),
        "{errors}"
    );
    assert_same(&before, &lab.dump());
}

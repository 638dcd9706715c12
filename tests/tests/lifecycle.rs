//! The daemon's lifecycle: start, end, restart, and cleanup.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bench::session::{Options, Session};
use e2e::{Daemon, Netns, Running, binary, config, unique, until};

const LIMIT: Duration = Duration::from_secs(20);

struct Rig {
    daemon: Daemon,
    netns: Netns,
    interface: String,
}

fn rig() -> Rig {
    let (netns, interface) = (Netns::new().unwrap(), unique("t"));
    let ports = config::tap("tap", &interface, netns.name(), &["10.77.0.1/24"], "")
        + &config::memif("a", 0, "")
        + &config::memif("b", 1, "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    Rig { daemon, netns, interface }
}

impl Rig {
    fn has_interface(&self) -> bool {
        self.netns.run(&["ip", "-o", "link"]).unwrap().contains(&self.interface)
    }

    fn has(&self, socket: &str) -> bool {
        Path::new(&self.daemon.path(socket)).exists()
    }

    fn traffic_passes(&self) {
        let options = Options::new(vec![self.daemon.memif("memif", 0), self.daemon.memif("memif", 1)]);
        let report = Session::connect(options).unwrap().run(&AtomicBool::new(false)).unwrap();
        assert!(report.ok, "{report}");
    }
}

#[test]
fn sigterm_removes_interfaces_and_sockets() {
    let mut rig = rig();
    assert!(rig.has_interface() && rig.has("memif") && rig.has("ctl"));
    rig.traffic_passes();
    let status = rig.daemon.terminate().unwrap();
    assert!(status.success(), "{status}: {}", rig.daemon.log());
    assert!(!rig.has_interface());
    assert!(!rig.has("memif") && !rig.has("ctl"));
    // The daemon can start again.
    rig.daemon.restart().unwrap();
    rig.traffic_passes();
}

/// `mswitch events` ends with a message when the daemon ends.
#[test]
fn watching_events_ends_with_the_daemon() {
    let mut rig = rig();
    let errors = rig.daemon.folder().join("errors");
    let mut events = rig.daemon.command(&["events"]).unwrap();
    events.stdout(std::fs::File::create(rig.daemon.folder().join("events")).unwrap());
    let mut events = Running::start(events.stderr(std::fs::File::create(&errors).unwrap())).unwrap();
    // It is watching once it prints an event.
    until("`mswitch events` to print an event", LIMIT, || {
        rig.daemon.run(&["bridge", "add", "x"])?;
        rig.daemon.run(&["bridge", "del", "x"])?;
        Ok(std::fs::metadata(rig.daemon.folder().join("events"))
            .is_ok_and(|file| file.len() > 0)
            .then_some(()))
    })
    .unwrap();
    rig.daemon.kill().unwrap();
    let status = until("`mswitch events` to end", LIMIT, || events.ended()).unwrap();
    let stderr = std::fs::read_to_string(&errors).unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(stderr.contains("the daemon has ended"), "{stderr}");
    let output = rig.daemon.cli(&["events", "--kind", "port-dwn"]).unwrap();
    assert_eq!(output.status.code(), Some(1), "the daemon is not running");
    rig.daemon.restart().unwrap();
    let output = rig.daemon.cli(&["events", "--kind", "port-dwn"]).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("unknown kind of events `port-dwn`; did you mean `port-down`"), "{stderr}");
}

#[test]
fn a_restart_cleans_up_after_a_kill() {
    let mut rig = rig();
    rig.traffic_passes();
    rig.daemon.kill().unwrap();
    assert!(rig.has("memif") && rig.has("ctl"), "the killed daemon's sockets are gone");
    rig.daemon.restart().unwrap();
    assert!(rig.has_interface());
    rig.traffic_passes();
    assert!(rig.daemon.terminate().unwrap().success());
    assert!(!rig.has_interface() && !rig.has("memif") && !rig.has("ctl"));
}

#[test]
fn a_second_daemon_on_the_socket_is_refused() {
    let rig = rig();
    let output = std::process::Command::new(binary("mswitch", "MSWITCH_BIN").unwrap())
        .args(["daemon", "--socket", &rig.daemon.path("ctl")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(&rig.daemon.pid().to_string()), "no process id in: {stderr}");
    rig.traffic_passes();
}

#[test]
fn adding_and_deleting_ports_does_not_disturb_traffic() {
    let rig = rig();
    let mut options = Options::new(vec![rig.daemon.memif("memif", 0), rig.daemon.memif("memif", 1)]);
    options.rate = bench::pace::Rate::Pps(5000.0);
    options.duration = std::time::Duration::from_secs(3600);
    let traffic = bench::session::Background::start(options).unwrap();
    let socket = rig.daemon.path("more");
    for round in 0..10 {
        let name = format!("more{round}");
        rig.daemon.run(&["port", "add", "br0", &name, "--type", "memif", "--path", &socket]).unwrap();
        rig.daemon.run(&["bridge", "add", "br1", "--logic", "static"]).unwrap();
        rig.daemon.run(&["port", "del", "br0", &name]).unwrap();
        rig.daemon.run(&["bridge", "del", "br1"]).unwrap();
    }
    let report = traffic.stop().unwrap();
    assert!(report.ok, "{report}");
    assert!(!rig.has("more"));
}

//! `ovs-vswitchd` of mswitch with the real `ovsdb-server`, `ovs-vsctl` and `ovs-appctl`, each test in folders and
//! namespaces of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod accounting;
mod bonds;
mod cni;
mod controllers;
mod faults;
mod interfaces;
mod mirrors;
mod monitoring;
mod qos;
mod sflow;
mod stations;
mod trees;

use std::path::Path;

use e2e::{Running, ping_all, until};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use e2e::open_vswitch::{Host, LIMIT};

fn until_gone(paths: &[&Path]) {
    until(&format!("the end of {paths:?}"), LIMIT, || {
        Ok(paths.iter().all(|path| !path.exists()).then_some(()))
    })
    .unwrap();
}

#[test]
fn a_bridge_made_by_ovs_vsctl_carries_pings() {
    let host = Host::new();
    let (a, _b) = (host.guest("va", "10.80.0.1/24"), host.guest("vb", "10.80.0.2/24"));
    let _daemon = host.start();
    host.vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "other_config:datapath-id=00000000000000ab"]);
    host.vsctl(&["add-port", "br0", "va", "--", "add-port", "br0", "vb"]);
    ping_all(&a, "10.80.0.2", 3, "0.1").unwrap();

    // The bridge's own interface is one of the host.
    host.netns.run(&["ip", "address", "add", "10.80.0.9/24", "dev", "br0"]).unwrap();
    ping_all(&a, "10.80.0.9", 1, "0.1").unwrap();

    let mac = host.netns.run(&["cat", "/sys/class/net/va/address"]).unwrap();
    host.until_is("va", "link_state", "up");
    for (row, column, value) in [
        ("br0", "ofport", "65534"),
        ("va", "ofport", "1"),
        ("vb", "ofport", "2"),
        ("va", "error", "[]"),
        ("va", "mac_in_use", mac.trim()),
        ("va", "admin_state", "up"),
        ("va", "mtu", "1500"),
    ] {
        assert_eq!(host.get("Interface", row, column), value, "{row}.{column}");
    }
    assert_eq!(host.get("Bridge", "br0", "datapath_id"), "00000000000000ab");
    assert_eq!(host.vsctl(&["iface-to-br", "vb"]).trim(), "br0");
    assert!(host.vsctl(&["show"]).contains("ovs_version: \"3.1.0\""));
    let stations = host.appctl(&["fdb/show", "br0"]).1;
    assert!(stations.starts_with(" port  VLAN  MAC                Age\n"), "{stations}");
    assert!(stations.contains("LOCAL     0  ") && stations.contains("\n    1     0  "), "{stations}");

    // A VLAN separates, and joins.
    host.vsctl(&["set", "port", "va", "tag=7"]);
    a.run(&["ping", "-n", "-c", "1", "-W", "1", "10.80.0.2"]).unwrap_err();
    host.vsctl(&["set", "port", "vb", "tag=7"]);
    until("a ping in the VLAN", LIMIT, || Ok(a.run(&["ping", "-n", "-c", "1", "-W", "1", "10.80.0.2"]).ok()))
        .unwrap();

    // The database owns the bridge.
    let refusal =
        "mswitch: bridge \"br0\" belongs to the database of Open vSwitch; change it with `ovs-vsctl`\n";
    assert_eq!(host.mswitch(&["port", "del", "br0", "va"]), (Some(1), String::new(), refusal.into()));
    assert!(host.mswitch(&["bridge", "show", "br0"]).1.contains("\nowner     the database of Open vSwitch"));
    assert!(
        !host.mswitch(&["config", "show"]).1.contains("br0"),
        "it is not in the operator's configuration"
    );
    let (code, _, error) = host.mswitch(&["bridge", "add", "own"]);
    assert_eq!(code, Some(0), "{error}");

    host.vsctl(&["del-port", "va"]);
    assert_eq!(host.vsctl(&["list-ports", "br0"]), "vb\n");
    a.run(&["ping", "-n", "-c", "1", "-W", "1", "10.80.0.2"]).unwrap_err();
    host.vsctl(&["del-br", "br0"]);
    assert_eq!(host.vsctl(&["list-br"]), "");
    host.netns.run(&["ip", "link", "show", "br0"]).unwrap_err();
    assert!(host.mswitch(&["bridge", "list"]).1.contains("own"), "the operator's bridge stays");
}

#[test]
fn an_interface_that_is_missing_is_reported_and_found_when_it_appears() {
    let host = Host::new();
    let _daemon = host.start();
    host.vsctl(&["add-br", "br0"]);
    let (code, _, error) = host.tool("ovs-vsctl", &["-t", "20", "add-port", "br0", "later"]);
    assert_eq!(code, Some(0));
    let expected =
        "Error detected while setting up 'later': could not open network device later (No such device)";
    assert!(error.contains(expected), "{error}");
    assert_eq!(host.get("Interface", "later", "ofport"), "-1");
    let guest = host.guest("later", "10.80.0.1/24");
    host.until_is("later", "ofport", "1");
    host.until_is("later", "link_state", "up");
    assert_eq!(host.get("Interface", "later", "error"), "[]");
    guest.run(&["ip", "link", "del", "eth0"]).unwrap();
    host.until_is("later", "ofport", "-1");

    // What is not supported is said where users look for it, and the rest works.
    let (code, _, error) = host.tool(
        "ovs-vsctl",
        &["-t", "20", "add-port", "br0", "g0", "--", "set", "interface", "g0", "type=gre"],
    );
    assert_eq!(code, Some(0));
    assert!(error.contains("interface type `gre` is not supported"), "{error}");
}

#[test]
fn patch_ports_join_bridges_and_requested_numbers_are_kept() {
    let mut host = Host::new();
    let (a, _b) = (host.guest("va", "10.80.0.1/24"), host.guest("vb", "10.80.0.2/24"));
    let mut daemon = host.start();
    let patch = |bridge: &'static str, name: &'static str, peer: &'static str| {
        ["--", "add-port", bridge, name, "--", "set", "interface", name, "type=patch", peer]
    };
    host.vsctl(&["add-br", "br0", "--", "add-br", "br1"]);
    host.vsctl(&["add-port", "br0", "va", "--", "set", "interface", "va", "ofport_request=42"]);
    let patches = [patch("br0", "p0", "options:peer=p1"), patch("br1", "p1", "options:peer=p0")].concat();
    host.vsctl(&[&["add-port", "br1", "vb"], &patches[..]].concat());
    ping_all(&a, "10.80.0.2", 1, "0.1").unwrap();
    let numbers = |host: &Host| ["va", "p0", "vb", "p1"].map(|name| host.get("Interface", name, "ofport"));
    let before = numbers(&host);
    assert_eq!(before[0], "42");

    // A daemon that starts finds the configuration, and the numbers.
    daemon.terminate().unwrap();
    until_gone(&[&host.path("ovs-vswitchd.pid"), &host.path("mswitch.sock")]);
    a.run(&["ping", "-n", "-c", "1", "-W", "1", "10.80.0.2"]).unwrap_err();
    host.stop_server();
    host.start_server();
    let _daemon = host.start();
    until("pings after the restart", LIMIT, || {
        Ok(a.run(&["ping", "-n", "-c", "1", "-W", "1", "10.80.0.2"]).ok())
    })
    .unwrap();
    host.until_is("p1", "link_state", "up");
    assert_eq!(numbers(&host), before);
}

#[test]
fn traffic_goes_on_while_the_database_is_away() {
    let mut host = Host::new();
    let (a, _b) = (host.guest("va", "10.80.0.1/24"), host.guest("vb", "10.80.0.2/24"));
    let _daemon = host.start();
    host.vsctl(&["add-br", "br0", "--", "add-port", "br0", "va", "--", "add-port", "br0", "vb"]);
    ping_all(&a, "10.80.0.2", 1, "0.1").unwrap();
    for _ in 0..3 {
        host.stop_server();
        ping_all(&a, "10.80.0.2", 5, "0.02").unwrap();
        host.start_server();
        // Ephemeral columns went with the server.
        host.until_is("va", "link_state", "up");
        assert_eq!(host.get("Bridge", "br0", "datapath_version"), "<built-in>");
        ping_all(&a, "10.80.0.2", 5, "0.02").unwrap();
    }
    host.vsctl(&["del-port", "va"]);
}

#[test]
fn a_second_daemon_waits_for_the_lock() {
    let host = Host::new();
    let mut first = host.start();
    host.vsctl(&["add-br", "br0"]);
    // In a run directory of its own; in the same one, the control socket is in use.
    let folder = tempfile::tempdir().unwrap();
    let remote = format!("unix:{}", host.path("db.sock").display());
    let log = folder.path().join("log");
    let mut command = host.vswitchd();
    command.args([&remote, "-vconsole:off", &format!("--log-file={}", log.display())]);
    let _second = Running::start(command.env("OVS_RUNDIR", folder.path())).unwrap();
    let log_has = |text: &str| {
        until(&format!("`{text}` in the log"), LIMIT, || {
            Ok(std::fs::read_to_string(&log).unwrap_or_default().contains(text).then_some(()))
        })
        .unwrap();
    };
    log_has("|ERR|another ovs-vswitchd process is running, disabling this process");
    host.vsctl(&["add-br", "br1"]);
    assert!(!std::fs::read_to_string(&log).unwrap().contains("br0"));
    first.terminate().unwrap();
    log_has("bridge \"br0\" added");
    host.vsctl(&["add-br", "br2"]);
}

#[test]
fn the_daemon_detaches_is_monitored_and_exits_on_request() {
    let host = Host::new();
    let start = || {
        let mut command = host.vswitchd();
        let output = command.args(["--detach", "--monitor", "--pidfile", "--log-file"]).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, output, errors) = start();
    assert_eq!((code, output.as_str()), (Some(0), ""), "{errors}");
    let pid = host.pid();
    let _end = End(&host);
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    assert_eq!(comm, "ovs-vswitchd\n");
    let version = host.appctl(&["version"]);
    assert_eq!(version.0, Some(0));
    assert!(version.1.contains("Open vSwitch") && version.1.ends_with(" 3.1.0\n"), "{version:?}");
    let unknown = host.appctl(&["frobnicate"]);
    assert!(unknown.0 == Some(2) && unknown.2.contains("is not a valid command"), "{unknown:?}");
    host.vsctl(&["add-br", "br0"]);

    let (code, _, errors) = start();
    assert_eq!(code, Some(1));
    assert!(errors.contains(&format!("already running as pid {pid}, aborting")), "{errors}");

    // A crash: the monitor starts it again.
    kill_process(Pid::from_raw(pid).unwrap(), Signal::ABORT).unwrap();
    until("another daemon", LIMIT, || {
        let next = std::fs::read_to_string(host.path("ovs-vswitchd.pid")).unwrap_or_default();
        Ok(next.trim().parse().ok().filter(|next: &i32| *next != pid))
    })
    .unwrap();
    host.vsctl(&["add-br", "br1"]);

    std::fs::rename(host.path("ovs-vswitchd.log"), host.path("old.log")).unwrap();
    assert_eq!(host.appctl(&["vlog/reopen"]).0, Some(0));
    let socket = format!("ovs-vswitchd.{}.ctl", host.pid());
    assert!(host.path(&socket).exists());
    assert_eq!(host.appctl(&["exit"]), (Some(0), String::new(), String::new()));
    until_gone(&[&host.path("ovs-vswitchd.pid"), &host.path(&socket), &host.path("mswitch.sock")]);
    assert!(host.path("ovs-vswitchd.log").exists());
}

/// Ends a detached daemon, also after a failed test.
struct End<'a>(&'a Host);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.0.present_pid()).filter(|pid| test_kill_process(*pid).is_ok());
        if let Some(pid) = pid {
            // Best effort.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

//! TAP ports whose interface outlives them or exists before them: persistent ones, TAPs made by others, and interfaces
//! of other kinds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Output;
use std::time::Duration;

use e2e::{Daemon, Memory, Netns, Testpmd, config, exclusive, output, ping_all, until};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(20);

/// Two hosts at one bridge: `host`, whose interface the tests are about, and `peer` behind a plain TAP port.
struct Rig {
    // Dropped in this order: the daemon, then namespaces.
    daemon: Daemon,
    host: Netns,
    peer: Netns,
}

const HOST: &str = "10.79.0.1";
const PEER: &str = "10.79.0.2";

/// Starts a daemon with the peer's port, and another one of this text, in which `{host}` stands for the namespace.
fn rig(port: &str) -> Rig {
    let (host, peer) = (Netns::new().unwrap(), Netns::new().unwrap());
    let ports = config::tap("peer", "eth0", peer.name(), &["10.79.0.2/24"], "")
        + &port.replace("{host}", host.name());
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    Rig { daemon, host, peer }
}

/// The interface of the host, as `ip` describes it; `None` if there is none.
fn link(netns: &Netns, name: &str) -> Option<Value> {
    let all: Value = serde_json::from_str(&netns.run(&["ip", "-j", "-d", "link"]).unwrap()).unwrap();
    all.as_array().unwrap().iter().find(|link| link["ifname"] == name).cloned()
}

/// What a switch may not change of an interface.
fn settings(netns: &Netns, name: &str) -> Value {
    let link = link(netns, name).unwrap();
    let keys = ["ifindex", "address", "mtu", "gso_max_size", "txqlen", "ifalias", "promiscuity"];
    let mut found: serde_json::Map<String, Value> =
        keys.iter().map(|key| ((*key).to_owned(), link[key].clone())).collect();
    found.insert("up".into(), link["flags"].as_array().unwrap().contains(&"UP".into()).into());
    found.insert("addresses".into(), addresses(netns, name).into());
    found.into()
}

fn addresses(netns: &Netns, name: &str) -> Vec<String> {
    let text = netns.run(&["ip", "-o", "addr", "show", "dev", name, "scope", "global"]).unwrap();
    let mut all: Vec<_> =
        text.lines().filter_map(|line| line.split_whitespace().nth(3)).map(str::to_owned).collect();
    all.sort_unstable();
    all
}

/// Opens a TAP of one queue in the namespace, as QEMU does; the interface vanishes with the file.
fn hold(netns: &Netns, name: &str) -> File {
    let open = || {
        let file = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
        let file = file.unwrap();
        // SAFETY: an `ifreq` is bytes, integers and a pointer; all zeroes is one.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes an `ifreq`.
        assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) }, 0);
        file
    };
    netns.enter(open).unwrap()
}

/// Has the kernel refuse IPv6 addresses of an interface.
fn refuse_ipv6(netns: &Netns, name: &str) {
    let set = format!("echo 1 >/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
    netns.run(&["sh", "-e", "-c", &set]).unwrap();
}

impl Rig {
    /// Applies a configuration with the peer's port, and another one of this text.
    fn apply(&self, port: &str) -> Output {
        let ports = config::tap("peer", "eth0", self.peer.name(), &["10.79.0.2/24"], "")
            + &port.replace("{host}", self.host.name());
        let file = self.daemon.path("config.toml");
        std::fs::write(&file, config::bridge("br0", "learning") + &ports).unwrap();
        self.daemon.cli(&["config", "apply", &file]).unwrap()
    }

    fn detail(&self, port: &str, name: &str) -> Option<String> {
        let shown = self.daemon.json(&["port", "show", "br0", port]).unwrap();
        let found = shown["details"].as_array().unwrap().iter().find(|detail| detail["name"] == name)?;
        Some(found["value"].as_str().unwrap().to_owned())
    }

    /// Adds port `tap0` of type tap in the host's namespace. Returns the notes of the command, or its refusal.
    fn add(&self, more: &[&str]) -> Result<String, String> {
        let add = ["port", "add", "br0", "tap0", "--type", "tap", "--netns", self.host.name()];
        let output = self.daemon.cli(&[&add[..], more].concat()).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(stderr) } else { Err(stderr) }
    }

    fn ping(&self) {
        self.daemon.wait_up("br0", "tap0").unwrap();
        ping_all(&self.peer, HOST, 10, "0.01").unwrap();
    }

    /// As `ping`, after the interface may have been made anew, with another MAC address.
    fn ping_anew(&self) {
        self.peer.run(&["ip", "neigh", "flush", "all"]).unwrap();
        self.ping();
    }

    /// Moves 200 MB between peer and host each way by TCP, in large segments.
    fn transfer(&self, host: &Netns) {
        for direction in [&[][..], &["-R"]] {
            let server = host.start(&["iperf3", "-s", "-1", "-B", HOST]).unwrap();
            until("iperf3 to listen", LIMIT, || {
                Ok(host.run(&["ss", "-Hltn"])?.contains(":5201").then_some(()))
            })
            .unwrap();
            let client = ["iperf3", "-J", "-n", "200M", "-c", HOST];
            let report: Value =
                serde_json::from_str(&self.peer.run(&[&client[..], direction].concat()).unwrap()).unwrap();
            server.output().unwrap();
            let received = report["end"]["sum_received"]["bytes"].as_u64().unwrap();
            assert!(received >= 199_000_000, "{report}");
        }
        for port in self.daemon.ports("br0").unwrap() {
            let totals = &port.json()["totals"];
            for reason in ["bad-offload", "exceeds-mtu", "oversize", "device"] {
                for direction in ["rx", "tx"] {
                    assert!(totals[direction]["drops"][reason].is_null(), "{reason}: {totals}");
                }
            }
            // Acknowledgements included.
            let bytes = totals["rx"]["bytes"].as_u64().unwrap();
            assert!(bytes / port.received() > 3000, "segments were cut: {totals}");
        }
    }

    fn has_interface(&self) -> bool {
        link(&self.host, "tap0").is_some()
    }
}

#[test]
fn a_persistent_interface_and_its_services_survive_the_daemon() {
    let mut rig = rig(&config::tap("tap0", "tap0", "{host}", &["10.79.0.1/24"], "persist = true"));
    // An address and a route of the operator, and a service that is bound to an address of the interface.
    rig.host.run(&["ip", "addr", "add", "10.80.0.1/24", "dev", "tap0"]).unwrap();
    rig.host.run(&["ip", "route", "add", "10.81.0.0/16", "via", PEER]).unwrap();
    let service = rig.host.enter(|| TcpListener::bind((HOST, 7000)).unwrap()).unwrap();
    let answer = |rig: &Rig| {
        let mut client = rig.peer.enter(|| TcpStream::connect((HOST, 7000)).unwrap()).unwrap();
        service.accept().unwrap().0.write_all(b"here").unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "here");
    };
    let before = settings(&rig.host, "tap0");
    assert_eq!(before["addresses"], serde_json::json!(["10.79.0.1/24", "10.80.0.1/24"]));
    rig.ping();
    answer(&rig);
    for kill in [false, true] {
        match kill {
            true => rig.daemon.kill().unwrap(),
            false => assert!(rig.daemon.terminate().unwrap().success(), "{}", rig.daemon.log()),
        }
        assert_eq!(settings(&rig.host, "tap0"), before, "after the daemon's end, killed: {kill}");
        rig.daemon.restart().unwrap();
        rig.ping();
        answer(&rig);
        assert_eq!(settings(&rig.host, "tap0"), before, "after the daemon's start, killed: {kill}");
        let routes = rig.host.run(&["ip", "route"]).unwrap();
        assert!(routes.contains("10.81.0.0/16 via 10.79.0.2"), "{routes}");
    }
    let lifetime = rig.detail("tap0", "lifetime").unwrap();
    assert_eq!(lifetime, "remains when the daemon ends; `port del` removes it");
    rig.daemon.run(&["port", "del", "br0", "tap0"]).unwrap();
    assert!(!rig.has_interface());
}

#[test]
fn persistence_follows_the_configuration() {
    let text = config::tap("tap0", "tap0", "{host}", &["10.79.0.1/24"], "");
    let mut rig = rig(&text);
    let before = settings(&rig.host, "tap0");
    let apply = |rig: &Rig, port: &str| assert!(rig.apply(port).status.success(), "{}", rig.daemon.log());
    // On and off while the port is open: the interface stays the same.
    apply(&rig, &(text.clone() + "persist = true\n"));
    assert_eq!(settings(&rig.host, "tap0")["ifindex"], before["ifindex"]);
    assert_eq!(link(&rig.host, "tap0").unwrap()["linkinfo"]["info_data"]["persist"], true);
    // Other queues need another interface, which is persistent too.
    apply(&rig, &(text.clone() + "persist = true\nqueues = 2\n"));
    rig.ping();
    let remade = link(&rig.host, "tap0").unwrap();
    assert_ne!(remade["ifindex"], before["ifindex"]);
    assert_eq!(remade["linkinfo"]["info_data"]["persist"], true);
    // Its queues may be fewer, and other options change without another interface.
    apply(&rig, &(text.clone() + "persist = true\noffloads = false\n"));
    rig.ping();
    assert_eq!(link(&rig.host, "tap0").unwrap()["ifindex"], remade["ifindex"]);
    // The next daemon finds the interface, but is not to keep it.
    rig.daemon.terminate().unwrap();
    assert!(rig.has_interface());
    let file = std::fs::read_to_string(rig.daemon.path("config.toml")).unwrap();
    std::fs::write(rig.daemon.path("config.toml"), file.replace("persist = true\n", "")).unwrap();
    rig.daemon.restart().unwrap();
    rig.ping();
    assert_eq!(link(&rig.host, "tap0").unwrap()["ifindex"], remade["ifindex"]);
    rig.daemon.terminate().unwrap();
    assert!(!rig.has_interface());
}

#[test]
fn options_that_are_withdrawn_leave_a_persistent_interface() {
    let text = |addresses: &[&str], more: &str| {
        config::tap("tap0", "tap0", "{host}", addresses, &format!("persist = true\n{more}"))
    };
    let rig = rig(&text(&["10.79.0.1/24", "10.82.0.1/24"], "mtu = 1400"));
    rig.host.run(&["ip", "addr", "add", "10.80.0.1/24", "dev", "tap0"]).unwrap();
    let before = settings(&rig.host, "tap0");
    assert_eq!(before["mtu"], 1400);
    assert!(rig.apply(&text(&["10.79.0.1/24", "10.83.0.1/24"], "")).status.success(), "{}", rig.daemon.log());
    rig.ping();
    let now = settings(&rig.host, "tap0");
    // The operator's address stays.
    assert_eq!(now["addresses"], serde_json::json!(["10.79.0.1/24", "10.80.0.1/24", "10.83.0.1/24"]));
    assert_eq!((&now["ifindex"], &now["mtu"]), (&before["ifindex"], &1500.into()));
    // A MAC address cannot be withdrawn from an interface: another one is made.
    let mac = "mac = \"52:54:00:00:00:0b\"";
    assert!(rig.apply(&text(&["10.79.0.1/24"], mac)).status.success(), "{}", rig.daemon.log());
    let now = settings(&rig.host, "tap0");
    assert_eq!((&now["ifindex"], &now["address"]), (&before["ifindex"], &"52:54:00:00:00:0b".into()));
    assert!(rig.apply(&text(&["10.79.0.1/24"], "")).status.success(), "{}", rig.daemon.log());
    let now = settings(&rig.host, "tap0");
    assert_ne!(now["ifindex"], before["ifindex"]);
    assert_ne!(now["address"], "52:54:00:00:00:0b");
    rig.ping_anew();
}

/// The interface waits for its port to reopen, but not for one that is removed, or has another interface.
#[test]
fn a_persistent_interface_does_not_outlive_a_port_that_cannot_be_reopened() {
    let text = |name: &str, more: &[&str]| {
        config::tap("tap0", name, "{host}", &[&["10.79.0.1/24"], more].concat(), "persist = true")
    };
    let rig = rig(&text("tap0", &[]));
    type End = (&'static str, fn(&Rig));
    let ends: [End; 3] = [
        ("the port is removed", |rig| drop(rig.daemon.run(&["port", "del", "br0", "tap0"]).unwrap())),
        ("the bridge is removed", |rig| drop(rig.daemon.run(&["bridge", "del", "br0"]).unwrap())),
        ("it has another interface", |rig| {
            let other = config::tap("tap0", "tap1", "{host}", &["10.79.0.1/24"], "persist = true");
            assert!(rig.apply(&other).status.success(), "{}", rig.daemon.log());
        }),
    ];
    for (end, make) in ends {
        assert!(rig.apply(&text("tap0", &[])).status.success(), "{}", rig.daemon.log());
        rig.ping_anew();
        let before = settings(&rig.host, "tap0");
        refuse_ipv6(&rig.host, "tap0");
        rig.apply(&text("tap0", &["10.82.0.1/24", "fd79::9/64"]));
        rig.daemon.wait_down("br0", "tap0", "cannot add address fd79::9/64").unwrap();
        assert_eq!(settings(&rig.host, "tap0"), before, "{end}: a refused change leaves no address behind");
        make(&rig);
        assert!(!rig.has_interface(), "{end}");
    }
}

#[test]
fn an_interface_whose_alias_the_operator_changes_is_his() {
    let text = config::tap("tap0", "tap0", "{host}", &["10.79.0.1/24"], "persist = true");
    let rig = rig(&text);
    rig.ping();
    rig.host.run(&["ip", "link", "set", "dev", "tap0", "alias", "mine"]).unwrap();
    let before = settings(&rig.host, "tap0");
    // Neither the end of persistence nor that of the port removes it.
    assert!(rig.apply(&text.replace("persist = true", "")).status.success(), "{}", rig.daemon.log());
    rig.daemon.run(&["port", "del", "br0", "tap0"]).unwrap();
    let now = settings(&rig.host, "tap0");
    assert_eq!((&now["ifindex"], &now["ifalias"]), (&before["ifindex"], &"mine".into()));
}

#[test]
fn a_renamed_persistent_interface_is_not_left_behind() {
    let text = config::tap("tap0", "tap0", "{host}", &["10.79.0.1/24"], "persist = true\n");
    let rig = rig(&text);
    rig.ping();
    let before = settings(&rig.host, "tap0");
    let rename = |to: &str, from: &str| {
        rig.host.run(&["ip", "link", "set", "dev", from, "down"]).unwrap();
        rig.host.run(&["ip", "link", "set", "dev", from, "name", to]).unwrap();
        rig.host.run(&["ip", "link", "set", "dev", to, "up"]).unwrap();
    };
    // The configuration may follow the new name.
    rename("moved", "tap0");
    assert!(rig.apply(&text.replace("interface = \"tap0\"", "interface = \"moved\"")).status.success());
    rig.ping();
    assert_eq!(settings(&rig.host, "moved")["ifindex"], before["ifindex"]);
    // If it does not, the port makes another one, and the renamed one goes.
    rename("lost", "moved");
    let text = text.replace("persist = true", "persist = true\noffloads = false");
    let text = text.replace("interface = \"tap0\"", "interface = \"moved\"");
    assert!(rig.apply(&text).status.success(), "{}", rig.daemon.log());
    rig.ping_anew();
    assert_ne!(settings(&rig.host, "moved")["ifindex"], before["ifindex"]);
    assert!(link(&rig.host, "lost").is_none());
}

/// As after a change of the file while the daemon is stopped.
#[test]
fn a_persistent_interface_of_one_queue_is_made_anew_for_several() {
    let mut rig = rig(&config::tap("tap0", "tap0", "{host}", &["10.79.0.1/24"], "persist = true\n"));
    let before = settings(&rig.host, "tap0");
    rig.daemon.terminate().unwrap();
    let path = rig.daemon.path("config.toml");
    let file = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, file.replace("persist = true\n", "persist = true\nqueues = 2\n")).unwrap();
    rig.daemon.restart().unwrap();
    rig.ping();
    assert_ne!(settings(&rig.host, "tap0")["ifindex"], before["ifindex"]);
    assert_eq!(rig.detail("tap0", "queues").as_deref(), Some("2"));
    assert_eq!(link(&rig.host, "tap0").unwrap()["linkinfo"]["info_data"]["persist"], true);
}

#[test]
fn a_tap_made_by_others_is_used_and_left_as_it_was() {
    let rig = rig("");
    let ip = |arguments: &[&str]| rig.host.run(&[&["ip"], arguments].concat()).unwrap();
    for queues in ["1", "2"] {
        let add = ["tuntap", "add", "dev", "tap0", "mode", "tap"];
        ip(&if queues == "1" { add.to_vec() } else { [&add[..], &["multi_queue"]].concat() });
        ip(&["link", "set", "dev", "tap0", "mtu", "1400", "address", "52:54:00:00:00:07", "alias", "vm 7"]);
        ip(&["link", "set", "dev", "tap0", "up"]);
        ip(&["addr", "add", "10.79.0.1/24", "dev", "tap0"]);
        let before = settings(&rig.host, "tap0");
        let notes = rig.add(&["--queues", queues]).unwrap();
        let expected = "interface `tap0` existed already: the port uses it, and leaves it in place";
        assert!(notes.contains(expected), "{notes}");
        rig.ping();
        let now = settings(&rig.host, "tap0");
        for key in ["ifindex", "address", "mtu", "addresses", "ifalias", "up"] {
            assert_eq!(now[key], before[key], "{key}");
        }
        let detail = |name| rig.detail("tap0", name).unwrap();
        assert_eq!(detail("lifetime"), "made by others; remains when the port is removed");
        assert_eq!((detail("mtu"), detail("queues")), ("1400".to_owned(), queues.to_owned()));
        // The owner's changes are followed.
        ip(&["link", "set", "dev", "tap0", "mtu", "1300"]);
        until("the switch to follow the MTU", LIMIT, || {
            Ok((rig.detail("tap0", "mtu").as_deref() == Some("1300")).then_some(()))
        })
        .unwrap();
        ip(&["link", "set", "dev", "tap0", "mtu", "1400"]);
        // Options change what they name.
        rig.daemon.run(&["port", "set", "br0", "tap0", "--mtu", "1450"]).unwrap();
        assert_eq!(settings(&rig.host, "tap0")["mtu"], 1450);
        rig.daemon.run(&["port", "set", "br0", "tap0", "--mtu", "1400"]).unwrap();
        // The owner may set it down; the switch says so and waits.
        ip(&["link", "set", "dev", "tap0", "down"]);
        rig.daemon.wait_down("br0", "tap0", "is set down").unwrap();
        ip(&["link", "set", "dev", "tap0", "up"]);
        ip(&["addr", "replace", "10.79.0.1/24", "dev", "tap0"]);
        rig.ping();
        rig.daemon.run(&["port", "del", "br0", "tap0"]).unwrap();
        assert_eq!(settings(&rig.host, "tap0"), before);
        ip(&["link", "del", "dev", "tap0"]);
    }
}

/// Options given for a TAP that others made add to it, and `persist` does not make it the switch's.
#[test]
fn a_tap_made_by_others_takes_the_given_options() {
    let mut rig = rig("");
    rig.host.run(&["ip", "tuntap", "add", "dev", "tap0", "mode", "tap"]).unwrap();
    rig.host.run(&["ip", "addr", "add", "10.79.0.1/24", "dev", "tap0"]).unwrap();
    let options = ["--addresses", "10.79.0.1/24,10.82.0.1/24", "--mac", "52:54:00:00:00:08", "--mtu", "9000"];
    let notes = rig.add(&[&options[..], &["--persist"]].concat()).unwrap();
    assert!(notes.contains("port `tap0` is down: interface `tap0` is set down"), "{notes}");
    // It was down, and is its owner's to set up.
    rig.daemon.wait_down("br0", "tap0", "is set down").unwrap();
    rig.host.run(&["ip", "link", "set", "dev", "tap0", "up"]).unwrap();
    rig.ping();
    let now = settings(&rig.host, "tap0");
    assert_eq!(now["addresses"], serde_json::json!(["10.79.0.1/24", "10.82.0.1/24"]));
    assert_eq!((&now["address"], &now["mtu"]), (&"52:54:00:00:00:08".into(), &9000.into()));
    rig.daemon.run(&["port", "del", "br0", "tap0"]).unwrap();
    assert!(rig.has_interface());
    rig.daemon.terminate().unwrap();
    assert!(rig.has_interface());
}

#[test]
fn a_refused_option_leaves_a_tap_made_by_others_as_it_was() {
    let rig = rig("");
    let ip = |arguments: &[&str]| rig.host.run(&[&["ip"], arguments].concat()).unwrap();
    ip(&["tuntap", "add", "dev", "tap0", "mode", "tap"]);
    ip(&["link", "set", "dev", "tap0", "mtu", "1400", "address", "52:54:00:00:00:07", "up"]);
    ip(&["addr", "add", "10.79.0.1/24", "dev", "tap0"]);
    refuse_ipv6(&rig.host, "tap0");
    let before = settings(&rig.host, "tap0");
    let addresses = "10.79.0.1/24,10.82.0.1/24,fd79::9/64";
    let options = ["--addresses", addresses, "--mac", "52:54:00:00:00:08", "--mtu", "1300"];
    let refused = rig.add(&options).unwrap_err();
    assert!(refused.contains("cannot add address fd79::9/64"), "{refused}");
    assert_eq!(settings(&rig.host, "tap0"), before);
}

#[test]
fn a_veth_end_is_attached_as_a_netdev_port_would() {
    let rig = rig("");
    let pod = Netns::new().unwrap();
    let veth =
        ["ip", "link", "add", "name", "tap0", "type", "veth", "peer", "name", "eth0", "netns", pod.name()];
    rig.host.run(&veth).unwrap();
    rig.host.run(&["ip", "link", "set", "dev", "tap0", "up"]).unwrap();
    pod.run(&["ip", "addr", "add", "10.79.0.1/24", "dev", "eth0"]).unwrap();
    pod.run(&["ip", "link", "set", "dev", "eth0", "up"]).unwrap();
    let before = settings(&rig.host, "tap0");
    // Nothing of it is the switch's to configure.
    for (option, value) in [("addresses", "10.79.0.9/24"), ("mac", "52:54:00:00:00:09"), ("offloads", "off")]
    {
        let refused = rig.add(&[&format!("--{option}"), value]).unwrap_err();
        let expected =
            format!("{option}: interface `tap0` exists already as a veth, which the switch attaches but");
        assert!(refused.contains(&expected), "{refused}");
    }
    let notes = rig.add(&["--queues", "2"]).unwrap();
    assert!(notes.contains("is a veth: attached as `--type netdev` would"), "{notes}");
    rig.ping();
    let detail = |name| rig.detail("tap0", name).unwrap();
    assert_eq!(detail("attached-as"), "netdev: the interface is a veth");
    assert!(detail("driver").starts_with("af-packet"), "{}", detail("driver"));
    assert_eq!(detail("queues"), "2");
    // An MTU is a limit of the switch only, and changes while the port is open.
    rig.daemon.run(&["port", "set", "br0", "tap0", "--mtu", "1000"]).unwrap();
    rig.peer.run(&["ping", "-c1", "-W10", "-Mdo", "-s900", HOST]).unwrap();
    let too_long = || {
        let totals = rig.daemon.port("br0", "tap0").unwrap().json()["totals"].clone();
        totals["tx"]["drops"]["exceeds-mtu"].as_u64().unwrap_or_default()
    };
    let before_it = too_long();
    rig.peer.run(&["ping", "-c1", "-W1", "-Mdo", "-s1100", HOST]).unwrap_err();
    assert_eq!(too_long(), before_it + 1);
    rig.daemon.run(&["port", "del", "br0", "tap0"]).unwrap();
    assert_eq!(settings(&rig.host, "tap0"), before);
}

#[test]
fn tcp_passes_a_tap_made_by_others() {
    let _machine = exclusive();
    let rig = rig("");
    let ip =
        |line: &str| rig.host.run(&[&["ip"], &line.split(' ').collect::<Vec<_>>()[..]].concat()).unwrap();
    ip("tuntap add dev tap0 mode tap");
    ip("link set dev tap0 up");
    ip("addr add 10.79.0.1/24 dev tap0");
    rig.add(&[]).unwrap();
    rig.ping();
    rig.transfer(&rig.host);
}

#[test]
fn tcp_passes_a_veth_end() {
    let _machine = exclusive();
    let rig = rig("");
    let ip =
        |line: &str| rig.host.run(&[&["ip"], &line.split(' ').collect::<Vec<_>>()[..]].concat()).unwrap();
    let pod = Netns::new().unwrap();
    ip(&format!("link add name tap0 type veth peer name eth0 netns {}", pod.name()));
    ip("link set dev tap0 up");
    pod.run(&["ip", "addr", "add", "10.79.0.1/24", "dev", "eth0"]).unwrap();
    pod.run(&["ip", "link", "set", "dev", "eth0", "up"]).unwrap();
    rig.add(&[]).unwrap();
    rig.ping();
    rig.transfer(&pod);
}

/// As the TAP of a VM: its process has the other end.
#[test]
fn a_tap_that_a_process_holds_connects_the_process() {
    let rig = rig("");
    let mac = "02:00:00:00:00:0a";
    let device = [format!("net_tap0,iface=tap0,mac={mac}")];
    let start = || Testpmd::start(Memory::Common, &device, &["--forward-mode=icmpecho"]);
    let mut vm = rig.host.enter(start).unwrap().unwrap();
    vm.command("start").unwrap();
    until("the interface to appear", LIMIT, || Ok(rig.has_interface().then_some(()))).unwrap();
    let note = rig.add(&[]).unwrap();
    assert!(note.contains("existed already and is a TAP of process"), "{note}");
    rig.ping();
    let shown = rig.detail("tap0", "attached-as").unwrap();
    assert!(shown.contains("(dpdk-testpmd)"), "{shown}");
    rig.daemon.run(&["port", "del", "br0", "tap0"]).unwrap();
    assert!(rig.has_interface());
}

/// As above, with the usual TAP of a VM: the kernel does not report the holders of a TAP of one queue.
#[test]
fn a_tap_of_one_queue_that_a_process_holds_connects_the_process() {
    let rig = rig("");
    let mut vm = hold(&rig.host, "tap0");
    rig.host.run(&["ip", "link", "set", "dev", "tap0", "up"]).unwrap();
    for queues in ["1", "2"] {
        let note = rig.add(&["--queues", queues]).unwrap();
        let holder = format!("existed already and is a TAP of process {} (", std::process::id());
        assert!(note.contains(&holder), "{note}");
        rig.daemon.wait_up("br0", "tap0").unwrap();
        // Older frames are not from the peer's request.
        let mut frame = [0; 2048];
        while vm.read(&mut frame).is_ok() {}
        until("the peer's ARP request to reach the process", LIMIT, || {
            let _ = rig.peer.run(&["ping", "-c1", "-W1", HOST]);
            let mut arrived = false;
            while let Ok(len) = vm.read(&mut frame) {
                arrived |= frame[12..14] == [8, 6] && frame[..len].get(38..42) == Some(&[10, 79, 0, 1]);
            }
            Ok(arrived.then_some(()))
        })
        .unwrap();
        rig.daemon.run(&["port", "del", "br0", "tap0"]).unwrap();
        assert!(rig.has_interface());
    }
}

#[test]
fn an_interface_that_a_port_cannot_have_is_refused_with_the_remedy() {
    let rig = rig("");
    let ip = |arguments: &[&str]| rig.host.run(&[&["ip"], arguments].concat()).unwrap();
    let netns = rig.host.name();
    let refused = |more: &[&str], expected: &str| {
        let error = rig.add(more).unwrap_err();
        assert!(error.contains(expected), "expected `{expected}` in: {error}");
    };
    // Held by another process. This one holds the TAP of the same name in another namespace.
    let elsewhere = Netns::new().unwrap();
    let _vm = hold(&elsewhere, "tap0");
    let holder =
        Daemon::start(&(config::bridge("br0", "hub") + &config::tap("t", "tap0", netns, &[], ""))).unwrap();
    let pid = holder.pid();
    refused(
        &[],
        &format!(
            "interface `tap0` exists already, held by process {pid} (mswitch); to connect that process to the bridge, \
             attach the interface with `--type netdev`; to take its place, stop it with `kill {pid}`"
        ),
    );
    drop(holder);
    until("the holder's interface to vanish", LIMIT, || Ok(link(&rig.host, "tap0").is_none().then_some(())))
        .unwrap();

    ip(&["tuntap", "add", "dev", "tap0", "mode", "tun"]);
    refused(&[], "is a TUN interface, which carries no Ethernet frames");
    ip(&["link", "del", "dev", "tap0"]);

    ip(&["tuntap", "add", "dev", "tap0", "mode", "tap"]);
    refused(
        &["--queues", "4"],
        &format!(
            "has one queue, not 4; leave `queues` at 1, or remove the interface with `ip -n {netns} link del tap0`"
        ),
    );
    assert!(rig.has_interface());
    ip(&["link", "del", "dev", "tap0"]);

    refused(&["--interface", "lo"], "interface `lo` is a loopback interface");

    // A netdev port would cut the host off, or take the interface from the kernel's bridge.
    ip(&["link", "add", "name", "tap0", "type", "veth", "peer", "name", "other"]);
    ip(&["addr", "add", "10.83.0.1/24", "dev", "tap0"]);
    refused(
        &[],
        "has the host's address 10.83.0.1, which would be cut off; attach it with `--type netdev --host`",
    );
    ip(&["addr", "flush", "dev", "tap0"]);
    ip(&["link", "add", "link", "tap0", "name", "tap0.7", "type", "macvlan"]);
    refused(&[], "interface `tap0` exists already and carries interface `tap0.7`, which would be cut off");
    ip(&["link", "del", "dev", "tap0.7"]);
    ip(&["link", "add", "name", "kbr", "type", "bridge"]);
    ip(&["link", "set", "dev", "tap0", "master", "kbr"]);
    refused(
        &[],
        &format!(
            "interface `tap0` belongs to bridge `kbr`; remove it there with `ip -n {netns} link set tap0 nomaster`"
        ),
    );
    assert!(rig.daemon.port("br0", "tap0").is_err(), "a refused port remains");
}

/// A TAP in a bridge of the kernel may have the switch at its other end: that connects the bridges.
#[test]
fn a_tap_in_a_bridge_of_the_kernel_connects_both() {
    let rig = rig("");
    for line in [
        "tuntap add dev tap0 mode tap",
        "link add name kbr type bridge",
        "link set dev tap0 master kbr up",
        "addr add 10.79.0.1/24 dev kbr",
        "link set dev kbr up",
    ] {
        output("ip", &[&["-n", rig.host.name()], &line.split(' ').collect::<Vec<_>>()[..]].concat()).unwrap();
    }
    rig.add(&[]).unwrap();
    rig.ping();
    rig.daemon.run(&["port", "del", "br0", "tap0"]).unwrap();
    assert_eq!(link(&rig.host, "tap0").unwrap()["master"], "kbr");
}

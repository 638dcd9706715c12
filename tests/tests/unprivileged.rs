//! The daemon without root, as packaging/mswitch.service starts it: with exactly the unit's capabilities, each of which
//! it needs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bench::port::PortSpec;
use bench::session::{Options, Session};
use e2e::{Netns, Service, config, unique, until};

const LIMIT: Duration = Duration::from_secs(30);

/// Value of a key in the unit.
fn unit_value(key: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/mswitch.service");
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("the unit has no {key}")).to_owned()
}

fn capabilities() -> Vec<String> {
    unit_value("AmbientCapabilities").split_whitespace().map(str::to_owned).collect()
}

/// Two TAP ports in namespaces, two existing interfaces, and two memif ports, one with a socket of another user.
fn everything(a: &Netns, b: &Netns) -> String {
    for name in ["veth", "xdp"] {
        let peer = format!("{name}-peer");
        let veth = ["link", "add", "name", name, "type", "veth", "peer", "name", &peer];
        b.run(&[&["ip"], &veth[..]].concat()).unwrap();
        for end in [name, &peer] {
            b.run(&["ip", "link", "set", "dev", end, "up"]).unwrap();
        }
    }
    let access = "owner = \"root\"\ngroup = \"root\"\nmode = \"0600\"";
    "[daemon]\ngroup = \"root\"\n".to_owned()
        + &config::bridge("br0", "learning")
        + &config::tap("a", &unique("t"), a.name(), &["10.77.0.1/24"], "mtu = 1400")
        + &config::tap("b", &unique("t"), b.name(), &["10.77.0.2/24"], "mtu = 1400")
        + &config::memif("c", 0, access)
        + &config::memif("d", 1, "")
        + &config::tap("h", "host0", b.name(), &[], "")
        + &config::netdev("e", "veth", b.name(), "host = \"h\"")
        + &config::netdev("f", "xdp", b.name(), "driver = \"af-xdp\"")
}

#[test]
fn the_unit_keeps_what_host_ports_need() {
    assert_eq!(unit_value("RuntimeDirectoryPreserve"), "yes");
    assert!(unit_value("ReadWritePaths").split(' ').any(|path| path == "/proc/sys/net"));
    // Guardians are sent SIGTERM, which they ignore until the addresses are back.
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/mswitch.service");
    assert!(!std::fs::read_to_string(path).unwrap().contains("KillMode"), "control-group is the default");
}

/// The packet memory of AF_XDP sockets is locked, some megabytes for each queue of a card.
#[test]
fn the_unit_does_not_limit_locked_memory() {
    assert_eq!(unit_value("LimitMEMLOCK"), "infinity");
}

#[test]
fn the_capabilities_of_the_unit_are_sufficient() {
    assert_eq!(unit_value("AmbientCapabilities"), unit_value("CapabilityBoundingSet"));
    let (a, b) = (Netns::new().unwrap(), Netns::new().unwrap());
    let mut service = Service::start(&everything(&a, &b), &capabilities()).unwrap();
    service.wait_ready().unwrap();

    let status = std::fs::read_to_string(format!("/proc/{}/status", service.pid())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        line.unwrap().split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!((field("Uid"), field("NoNewPrivs")), (Service::USER.to_string(), "1".into()));
    let effective = u64::from_str_radix(&field("CapEff"), 16).unwrap();
    assert_eq!(effective.count_ones() as usize, capabilities().len(), "{status}");

    for name in ["veth", "xdp"] {
        assert!(!service.log().contains(&format!("interface `{name}`")), "{}", service.log());
    }
    assert!(service.log().contains("at its host port now"), "{}", service.log());
    a.run(&["ping", "-q", "-c", "20", "-i", "0.02", "-W", "5", "10.77.0.2"]).unwrap();
    let socket = service.folder().join("memif").display().to_string();
    let options = Options::new(vec![PortSpec::new(&socket, 0), PortSpec::new(&socket, 1)]);
    let report = Session::connect(options).unwrap().run(&AtomicBool::new(false)).unwrap();
    assert!(report.ok, "{report}");

    assert!(service.terminate().unwrap().success(), "{}", service.log());
    assert!(!Path::new(&socket).exists(), "{}", service.log());
}

#[test]
fn each_capability_of_the_unit_is_necessary() {
    let (a, b) = (Netns::new().unwrap(), Netns::new().unwrap());
    let config = everything(&a, &b);
    for capability in capabilities() {
        let others: Vec<String> = capabilities().into_iter().filter(|other| *other != capability).collect();
        let service = Service::start(&config, &others).unwrap();
        let expected = match capability.as_str() {
            "CAP_NET_ADMIN" => "making a TAP interface needs CAP_NET_ADMIN",
            "CAP_NET_RAW" => "opening a packet socket needs CAP_NET_RAW",
            "CAP_SYS_ADMIN" => "entering it needs CAP_SYS_ADMIN",
            "CAP_CHOWN" => "cannot set mode, owner or group of",
            other => panic!("unexpected capability {other}"),
        };
        // The daemon retries a failed port, so it keeps running.
        let logged = || Ok(service.log().contains(expected).then_some(()));
        until(&format!("the error without {capability}"), LIMIT, logged)
            .unwrap_or_else(|error| panic!("{error}: {}", service.log()));
    }
}

#[test]
fn inaccessible_files_are_named_in_the_error() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    let path = secret.path().display().to_string();
    let ports = config::port("in", "pcap", &format!("read = \"{path}\""))
        + &config::port("out", "pcap", &format!("write = \"{path}\""))
        + &config::port("own", "pcap", "write = \"{dir}/own\"");
    let service = Service::start(&(config::bridge("br0", "learning") + &ports), &capabilities()).unwrap();
    for operation in ["read", "write"] {
        let expected = format!(
            "cannot {operation} {path}: Permission denied (os error 13); allow it for user {}, which",
            Service::USER
        );
        until("the error", LIMIT, || Ok(service.log().contains(&expected).then_some(())))
            .unwrap_or_else(|error| panic!("{error}: {}", service.log()));
    }
    let own = std::fs::metadata(service.folder().join("own")).unwrap();
    assert_eq!(own.permissions().mode() & 0o777, 0o640);
}

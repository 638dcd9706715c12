//! Netdev ports with a host port: the host's addresses move to the bridge and back, while connections go on.
//!
//! The host is a namespace with the interface `eth0`, a veth end; its neighbour is the other end. The daemon runs in
//! the host's namespace, or in another one with `netns`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use e2e::{Daemon, Netns, Running, config, exclusive, one_of, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(20);
/// Longest interruption of a connection by a command.
const PLANNED: Duration = Duration::from_secs(1);
/// Longest interruption by the death of the daemon: the guardian's second, and a retransmission.
const CRASH: Duration = Duration::from_millis(1500);

const HOST4: &str = "10.79.0.1";
const HOST6: &str = "fd79::1";

/// Configuration of the host.
const SETUP: &str = "
    ip addr add 10.79.0.1/24 brd + dev eth0
    ip addr add 10.79.0.2/24 brd + dev eth0 label eth0:web
    ip addr add 10.79.5.5/24 dev eth0 valid_lft 3600 preferred_lft 1800
    ip addr add fd79::1/64 dev eth0 nodad
    ip addr add fd79:5::1/64 dev eth0 nodad noprefixroute
    ip link set eth0 up
    ip route add default via 10.79.0.254 metric 100
    ip route add 10.80.0.0/16 via 10.79.0.253 src 10.79.0.2 mtu 1400
    ip route add 10.81.0.0/16 via 10.79.0.254 table 100
    ip -6 route add default via fd79::fe
    ip rule add oif eth0 from 10.79.0.2 lookup 100 pref 1000
    ip rule add iif eth0 to 10.99.0.0/16 prohibit pref 1001
    ip neigh add 10.79.0.77 lladdr 02:00:00:00:00:77 dev eth0 nud permanent
";

/// Runs systemd-networkd for a host that it configures, as in a container: with directories of its own, and without
/// udev, which a read-only `/sys` tells it.
const NETWORKD: &str = "
    mkdir -p /run/systemd
    mount -t tmpfs none /run/systemd
    mkdir -p /run/systemd/network /run/systemd/netif
    chown systemd-network: /run/systemd/netif
    mount -o remount,bind,ro /sys
    echo lxc >/run/systemd/container
    cat >/run/systemd/network/eth0.network <<END
[Match]
Name=eth0
[Network]
Address=10.79.0.1/24
Address=fd79::1/64
Gateway=10.79.0.254
IPv6AcceptRA=no
[Route]
Destination=10.80.0.0/16
Gateway=10.79.0.253
[RoutingPolicyRule]
From=10.79.0.1
Table=100
Priority=1000
END
    exec /lib/systemd/systemd-networkd
";

/// A host and its neighbour.
struct Lab {
    host: Netns,
    peer: Netns,
}

impl Lab {
    fn new() -> Self {
        let lab = Self::unconfigured();
        lab.host.run(&["sh", "-e", "-c", SETUP]).unwrap();
        lab.wait_link_local();
        lab
    }

    /// The host has an interface that is down.
    fn unconfigured() -> Self {
        let lab = Self { host: Netns::new().unwrap(), peer: Netns::new().unwrap() };
        let add = ["ip", "link", "add", "name", "eth0", "address", "02:00:00:00:00:01", "type", "veth"];
        let peer = ["peer", "name", "p0", "address", "02:00:00:00:00:fe", "netns", lab.peer.name()];
        lab.host.run(&[&add[..], &peer[..]].concat()).unwrap();
        lab.peer.run(&["ip", "link", "set", "p0", "up"]).unwrap();
        lab.peer.run(&["ip", "addr", "add", "10.79.0.254/24", "dev", "p0"]).unwrap();
        lab.peer.run(&["ip", "addr", "add", "fd79::fe/64", "dev", "p0", "nodad"]).unwrap();
        lab
    }

    /// Waits until the kernel has added link-local addresses, and their duplicate address detection has ended.
    fn wait_link_local(&self) {
        for (netns, interface) in [(&self.host, "eth0"), (&self.peer, "p0")] {
            until("link-local addresses to be usable", LIMIT, || {
                let show = ["ip", "-6", "addr", "show", "dev", interface, "scope", "link", "-tentative"];
                Ok((!netns.run(&show)?.is_empty()).then_some(()))
            })
            .unwrap();
        }
    }

    /// Starts systemd-networkd for the host, and waits until it configures the interface. It goes on doing so if the
    /// switch moves the addresses.
    fn networkd(&self) -> Running {
        let users = std::fs::read_to_string("/etc/passwd").unwrap();
        assert!(
            std::path::Path::new("/lib/systemd/systemd-networkd").exists()
                && users.contains("\nsystemd-network:"),
            "the test needs systemd-networkd and its user: install the package `systemd`"
        );
        let mut command = self.host.command(&["unshare", "--mount", "sh", "-e", "-c", NETWORKD]);
        let networkd = Running::start(&mut command).unwrap();
        // As the process sees it: the directory is mounted for it alone.
        let links = format!("/proc/{}/root/run/systemd/netif/links", networkd.pid());
        until("networkd to configure the interface", LIMIT, || {
            let files = std::fs::read_dir(&links).into_iter().flatten().flatten();
            let mut states = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
            Ok(states.any(|state| state.contains("ADMIN_STATE=configur")).then_some(()))
        })
        .unwrap();
        networkd
    }

    /// A daemon in the host's namespace with a bridge.
    fn daemon(&self) -> Daemon {
        Daemon::start_at(&self.host, &config::bridge("br0", "learning")).unwrap()
    }

    /// Returns the configuration of the host without its host port, and without what time changes.
    fn dump(&self) -> Vec<(&'static str, Vec<String>)> {
        let commands = [
            "ip -j -d addr",
            "ip -j -d -4 route show table all",
            "ip -j -d -6 route show table all",
            "ip -j -d rule",
            "ip -j -d -6 rule",
            "ip -j neigh show nud permanent",
        ];
        let dump = |command: &'static str| {
            let text = self.host.run(&command.split(' ').collect::<Vec<_>>()).unwrap();
            let mut value: Value = serde_json::from_str(&text).unwrap();
            without_time(&mut value);
            let all = value.as_array().unwrap().iter().map(ToString::to_string);
            let mut all: Vec<_> = all.filter(|entry| !entry.contains("br0-host")).collect();
            if command.contains("-6 route") {
                // Listed in the order of a tree.
                all.sort();
            }
            (command, all)
        };
        commands.map(dump).into()
    }

    /// Waits until the configuration is as before: the kernel adds local routes of IPv6 addresses with a delay.
    fn assert_same(&self, before: &Dump) {
        let same =
            until("the configuration", Duration::from_secs(2), || Ok((before == self.dump()).then_some(())));
        if same.is_err() {
            assert_same(before, &self.dump());
        }
    }

    /// Returns the interface that has an address.
    fn place(&self, address: &str) -> Option<String> {
        self.places(address).into_iter().next()
    }

    /// Returns the interfaces that have an address.
    fn places(&self, address: &str) -> Vec<String> {
        let all: Value = serde_json::from_str(&self.host.run(&["ip", "-j", "addr"]).unwrap()).unwrap();
        let has = |link: &&Value| link["addr_info"].to_string().contains(&format!("\"{address}\""));
        let found = all.as_array().unwrap().iter().filter(has);
        found.map(|link| link["ifname"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until an address is at an interface.
    fn wait_place(&self, address: &str, interface: &str) {
        until(&format!("{address} to be at {interface}"), LIMIT, || {
            Ok((self.place(address).as_deref() == Some(interface)).then_some(()))
        })
        .unwrap();
    }

    fn flows(&self) -> Vec<Flow> {
        vec![
            Flow::start(self, "IPv4, back and forth", HOST4, true),
            Flow::start(self, "IPv6, back and forth", HOST6, true),
            Flow::start(self, "IPv4, from the host", HOST4, false),
        ]
    }
}

/// Replaces lifetimes, after checking that they are near what was set, and counters.
fn without_time(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(without_time),
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                match name.as_str() {
                    "valid_life_time" | "preferred_life_time" | "expires" => {
                        let seconds = value.as_u64().unwrap();
                        let set = [0, 1800, 3600, u64::from(u32::MAX)];
                        let near = set.iter().find(|set| (seconds..seconds + 60).contains(*set));
                        *value = (*near.unwrap_or_else(|| panic!("{name} is {seconds}"))).into();
                    }
                    "used" | "cache" | "metrics_cache" => *value = Value::Null,
                    _ => without_time(value),
                }
            }
        }
        _ => {}
    }
}

type Dump = [(&'static str, Vec<String>)];

/// Fails with the differences of two dumps.
fn assert_same(before: &Dump, after: &Dump) {
    for ((command, before), (_, after)) in before.iter().zip(after) {
        let lost: Vec<_> = before.iter().filter(|line| !after.contains(line)).collect();
        let new: Vec<_> = after.iter().filter(|line| !before.contains(line)).collect();
        assert!(lost.is_empty() && new.is_empty(), "{command}\nlost: {lost:#?}\nnew: {new:#?}");
        assert_eq!(before, after, "{command}: the order differs");
    }
}

const BLOCK: usize = 4096;

/// A connection from the neighbour to the host over which blocks go back and forth, or only from the host.
struct Flow {
    name: &'static str,
    blocks: Arc<AtomicU64>,
    /// Longest time between two blocks since it was last asked for.
    gap: Arc<Mutex<(Instant, Duration)>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

fn enter(netns: &str) {
    let file = std::fs::File::open(format!("/run/netns/{netns}")).unwrap();
    let kind = Some(rustix::thread::LinkNameSpaceType::Network);
    rustix::thread::move_into_link_name_space(file.as_fd(), kind).unwrap();
}

fn read_block(stream: &mut TcpStream, buffer: &mut [u8]) -> bool {
    match stream.read_exact(buffer) {
        Ok(()) => true,
        Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => false,
        Err(error) => panic!("{error}"),
    }
}

impl Flow {
    /// Starts a connection to `address` of the host.
    fn start(lab: &Lab, name: &'static str, address: &str, echo: bool) -> Self {
        let address: IpAddr = address.parse().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, at) = std::sync::mpsc::channel();
        let (host, peer) = (lab.host.name().to_owned(), lab.peer.name().to_owned());
        let ended = stop.clone();
        let server = std::thread::spawn(move || {
            enter(&host);
            let listener = TcpListener::bind(SocketAddr::new(address, 0)).unwrap();
            ready.send(listener.local_addr().unwrap()).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            let mut buffer = vec![0; BLOCK];
            while !ended.load(Relaxed) {
                if echo && !read_block(&mut stream, &mut buffer) || stream.write_all(&buffer).is_err() {
                    return;
                }
            }
        });
        let to = at.recv_timeout(LIMIT).unwrap();
        let blocks = Arc::new(AtomicU64::new(0));
        let gap = Arc::new(Mutex::new((Instant::now(), Duration::ZERO)));
        let (counted, longest, ended) = (blocks.clone(), gap.clone(), stop.clone());
        let client = std::thread::spawn(move || {
            enter(&peer);
            let mut stream = TcpStream::connect(to).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            let (mut buffer, sent) = (vec![0; BLOCK], vec![7; BLOCK]);
            while !ended.load(Relaxed) {
                if echo {
                    assert!(stream.write_all(&sent).is_ok() || ended.load(Relaxed), "the connection ended");
                }
                if !read_block(&mut stream, &mut buffer) {
                    assert!(ended.load(Relaxed), "the connection ended");
                    return;
                }
                counted.fetch_add(1, Relaxed);
                let mut longest = longest.lock().unwrap();
                let now = Instant::now();
                *longest = (now, longest.1.max(now - longest.0));
            }
        });
        let flow = Self { name, blocks, gap, stop, threads: vec![server, client] };
        flow.progress();
        flow
    }

    /// Waits until blocks have passed that were not on their way before.
    fn progress(&self) {
        let before = self.blocks.load(Relaxed);
        until(&format!("{} to go on", self.name), LIMIT, || {
            assert!(self.threads.iter().all(|thread| !thread.is_finished()), "{} has failed", self.name);
            Ok((self.blocks.load(Relaxed) > before + 100).then_some(()))
        })
        .unwrap();
    }

    fn end(mut self) {
        self.stop.store(true, Relaxed);
        for thread in std::mem::take(&mut self.threads) {
            thread.join().unwrap();
        }
    }
}

/// A test that fails leaves no traffic to the tests after it.
impl Drop for Flow {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

/// Waits until all connections go on; prints and returns their longest interruption since the last call.
fn longest(flows: &[Flow], what: &str) -> Duration {
    flows.iter().for_each(Flow::progress);
    let gap = |flow: &Flow| {
        let gap = std::mem::take(&mut flow.gap.lock().unwrap().1);
        println!("{what}: {}: longest gap {gap:?}", flow.name);
        gap
    };
    flows.iter().map(gap).max().unwrap_or_default()
}

/// Waits until all connections go on, and checks their longest interruption.
fn check(flows: &[Flow], what: &str, limit: Duration) {
    let gap = longest(flows, what);
    assert!(gap < limit, "{what}: {gap:?}");
}

fn detail(daemon: &Daemon, port: &str, name: &str) -> Option<String> {
    let shown = daemon.json(&["port", "show", "br0", port]).unwrap();
    let found = shown["details"].as_array()?.iter().find(|detail| detail["name"] == name)?.clone();
    Some(found["value"].as_str().unwrap().to_owned())
}

/// The guardian's process number, as `port show` names it.
fn guardian(daemon: &Daemon) -> u32 {
    let host = detail(daemon, "eth0", "host").unwrap();
    let pid = host.strip_prefix("addresses are at port br0-host, guardian pid ");
    pid.unwrap_or_else(|| panic!("{host}")).parse().unwrap()
}

fn kill(process: u32) {
    let process = Pid::from_raw(process.try_into().unwrap()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
}

fn journals(daemon: &Daemon) -> usize {
    let entries = std::fs::read_dir(daemon.folder()).unwrap();
    entries.filter(|entry| entry.as_ref().unwrap().path().display().to_string().contains("-host-")).count()
}

fn attach(daemon: &Daemon, more: &[&str]) {
    daemon.run(&[&["port", "add", "br0", "eth0", "--type", "netdev", "--host"], more].concat()).unwrap();
}

fn refused(daemon: &Daemon, words: &[&str]) -> String {
    let output = daemon.cli(words).unwrap();
    assert!(!output.status.success(), "{words:?}");
    String::from_utf8(output.stderr).unwrap().trim().to_owned()
}

fn attach_and_detach(driver: &str) {
    let _machine = exclusive();
    let lab = Lab::new();
    let daemon = lab.daemon();
    let before = lab.dump();
    let flows = lab.flows();
    check(&flows, "quiet", PLANNED);
    for round in 0..2 {
        attach(&daemon, &["--driver", driver]);
        daemon.wait_up("br0", "eth0").unwrap();
        check(&flows, "attach", PLANNED);
        for address in [HOST4, HOST6, "10.79.0.2", "10.79.5.5"] {
            assert_eq!(lab.place(address).as_deref(), Some("br0-host"), "{address}");
        }
        assert_eq!(journals(&daemon), 2, "a journal and its lock");
        guardian(&daemon);
        let user = detail(&daemon, "br0-host", "host");
        assert_eq!(user.as_deref(), Some("has the addresses of port eth0 of bridge br0"));
        lab.peer.run(&["ping", "-c", "3", "-i", "0.05", "-W", "5", HOST4]).unwrap();
        let received = daemon.port("br0", "eth0").unwrap().received();
        assert!(received > 100, "packets pass the switch: {received}");
        daemon.run(&["port", "del", "br0", "eth0"]).unwrap();
        check(&flows, "detach", PLANNED);
        lab.assert_same(&before);
        assert_eq!(journals(&daemon), 0);
        assert_eq!(detail(&daemon, "br0-host", "host"), None);
        if round == 0 {
            assert!(daemon.port("br0", "br0-host").unwrap().is_up(), "it stays, and is used again");
        }
    }
    flows.into_iter().for_each(Flow::end);
    let log = daemon.log();
    assert!(log.contains("routes, 2 rules, "), "{log}");
    assert!(log.contains("the host has its addresses back"), "{log}");
}

#[test]
fn connections_survive_attaching_and_detaching() {
    attach_and_detach("af-packet");
}

#[test]
fn connections_survive_attaching_and_detaching_with_af_xdp() {
    attach_and_detach("af-xdp");
}

#[test]
fn the_guardian_gives_everything_back_when_the_daemon_dies() {
    let _machine = exclusive();
    let lab = Lab::new();
    let mut daemon = lab.daemon();
    let before = lab.dump();
    let flows = lab.flows();
    for driver in ["af-packet", "af-xdp"] {
        one_of(3, || {
            attach(&daemon, &["--driver", driver]);
            daemon.wait_up("br0", "eth0").unwrap();
            check(&flows, "attach", LIMIT);
            daemon.kill().unwrap();
            let killed = Instant::now();
            lab.wait_place(HOST4, "eth0");
            println!("kill -9, {driver}: {HOST4} is back after {:?}", killed.elapsed());
            let gap = longest(&flows, "kill -9");
            until("the journal to go", LIMIT, || Ok((journals(&daemon) == 0).then_some(()))).unwrap();
            lab.assert_same(&before);
            let message = "mswitch guardian: the daemon ended; interface `eth0` has its addresses and routes back after ";
            assert!(daemon.log().contains(message), "{}", daemon.log());
            daemon.restart().unwrap();
            if gap < CRASH { Ok(()) } else { Err(format!("{gap:?}")) }
        })
        .unwrap();
    }
    flows.into_iter().for_each(Flow::end);
}

#[test]
fn the_next_start_recovers_when_daemon_and_guardian_die() {
    let _machine = exclusive();
    let lab = Lab::new();
    let mut daemon = lab.daemon();
    let before = lab.dump();
    let flows = lab.flows();
    attach(&daemon, &[]);
    daemon.wait_up("br0", "eth0").unwrap();
    check(&flows, "attach", PLANNED);
    kill_both(&mut daemon);
    until("the host port to go", LIMIT, || Ok(lab.place(HOST4).is_none().then_some(()))).unwrap();
    daemon.restart().unwrap();
    lab.assert_same(&before);
    assert_eq!(journals(&daemon), 0);
    let restored = "interface `eth0` has its addresses and routes back: a daemon and its guardian had died";
    assert!(daemon.log().contains(restored), "{}", daemon.log());
    check(&flows, "restart", LIMIT);
    flows.into_iter().for_each(Flow::end);
}

/// A persistent host port is there when the daemon has died, with the host's addresses, which must not stay.
#[test]
fn a_persistent_host_port_gives_everything_back() {
    let _machine = exclusive();
    let lab = Lab::new();
    let before = lab.dump();
    let flows = lab.flows();
    let port = "name = \"br0-host\"\ntype = \"tap\"\npersist = true\n";
    let bridge = config::bridge("br0", "learning") + "[[bridge.port]]\n" + port;
    let mut daemon = Daemon::start_at(&lab.host, &bridge).unwrap();
    let nothing_at_the_host_port = || {
        let addresses = lab.host.run(&["ip", "addr", "show", "dev", "br0-host", "scope", "global"]).unwrap();
        assert!(!addresses.contains("inet"), "{addresses}");
        for family in ["-4", "-6"] {
            let show = ["ip", family, "route", "show", "table", "all", "dev", "br0-host"];
            let routes = lab.host.run(&show).unwrap();
            let own = |route: &&str| !route.contains("fe80::") && !route.contains("ff00::");
            assert_eq!(routes.lines().filter(own).collect::<Vec<_>>(), Vec::<&str>::new());
        }
    };
    for both in [false, true] {
        attach(&daemon, &[]);
        daemon.wait_up("br0", "eth0").unwrap();
        check(&flows, "attach", LIMIT);
        assert_eq!(lab.place(HOST4).as_deref(), Some("br0-host"));
        match both {
            false => daemon.kill().unwrap(),
            true => kill_both(&mut daemon),
        }
        if !both {
            until("the journal to go", LIMIT, || Ok((journals(&daemon) == 0).then_some(()))).unwrap();
            lab.assert_same(&before);
            nothing_at_the_host_port();
            check(&flows, "kill -9", LIMIT);
        }
        daemon.restart().unwrap();
        lab.assert_same(&before);
        assert_eq!(journals(&daemon), 0);
        nothing_at_the_host_port();
        check(&flows, "restart", LIMIT);
    }
    assert!(daemon.terminate().unwrap().success());
    nothing_at_the_host_port();
    flows.into_iter().for_each(Flow::end);
}

/// Kills the guardian and the daemon before the daemon starts another guardian.
fn kill_both(daemon: &mut Daemon) {
    let guardian = guardian(daemon);
    let pid = Pid::from_raw(daemon.pid().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    kill(guardian);
    daemon.kill().unwrap();
}

#[test]
fn a_configured_host_port_in_another_namespace_is_used_again_after_each_end() {
    let _machine = exclusive();
    let lab = Lab::new();
    let before = lab.dump();
    let flows = lab.flows();
    let ports = config::tap("br0-host", "br0-host", lab.host.name(), &[], "")
        + &config::netdev("eth0", "eth0", lab.host.name(), "host = \"br0-host\"");
    let mut daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    daemon.wait_up("br0", "eth0").unwrap();
    check(&flows, "start", PLANNED);
    assert_eq!(lab.place(HOST4).as_deref(), Some("br0-host"));
    assert!(daemon.terminate().unwrap().success(), "{}", daemon.log());
    lab.assert_same(&before);
    check(&flows, "SIGTERM", PLANNED);
    daemon.restart().unwrap();
    lab.wait_place(HOST4, "br0-host");
    check(&flows, "start", PLANNED);
    kill_both(&mut daemon);
    daemon.restart().unwrap();
    lab.wait_place(HOST4, "br0-host");
    check(&flows, "restart after the death of both", LIMIT);
    // The whole configuration goes and returns.
    let saved = std::fs::read_to_string(daemon.path("config.toml")).unwrap();
    std::fs::write(daemon.path("config.toml"), config::bridge("br0", "learning")).unwrap();
    let applied = daemon.run(&["config", "apply", &daemon.path("config.toml")]).unwrap();
    assert!(applied.contains("eth0"), "{applied}");
    lab.assert_same(&before);
    std::fs::write(daemon.path("config.toml"), saved).unwrap();
    daemon.run(&["config", "apply", &daemon.path("config.toml")]).unwrap();
    lab.wait_place(HOST4, "br0-host");
    // The host port is opened anew with other options, and has the addresses again.
    let changed = std::fs::read_to_string(daemon.path("config.toml")).unwrap();
    let changed = changed.replace("addresses = []", "queues = 2");
    std::fs::write(daemon.path("config.toml"), changed).unwrap();
    daemon.run(&["config", "apply", &daemon.path("config.toml")]).unwrap();
    lab.wait_place(HOST4, "br0-host");
    check(&flows, "changes of the configuration", LIMIT);
    assert_eq!(daemon.differences(None).unwrap(), "");
    drop(daemon);
    lab.assert_same(&before);
    flows.into_iter().for_each(Flow::end);
}

/// An interface that existed before is attached as a netdev port, which cannot have the addresses.
#[test]
fn a_tap_port_with_an_existing_interface_is_no_host_port() {
    let lab = Lab::new();
    lab.host.run(&["ip", "link", "add", "name", "v0", "type", "veth", "peer", "name", "v1"]).unwrap();
    let daemon = lab.daemon();
    daemon.run(&["port", "add", "br0", "v0", "--type", "tap"]).unwrap();
    daemon.cli(&["port", "add", "br0", "eth0", "--type", "netdev", "--host", "v0"]).unwrap();
    let why = "port `v0` cannot have the host's addresses, because interface `v0` existed already and is a veth; give the \
               port another `interface`";
    daemon.wait_down("br0", "eth0", why).unwrap();
    // Once it has another one, the addresses move.
    daemon.run(&["port", "del", "br0", "eth0"]).unwrap();
    daemon.run(&["port", "del", "br0", "v0"]).unwrap();
    daemon.run(&["port", "add", "br0", "v0", "--type", "tap", "--interface", "host0"]).unwrap();
    daemon.run(&["port", "add", "br0", "eth0", "--type", "netdev", "--host", "v0"]).unwrap();
    daemon.wait_up("br0", "eth0").unwrap();
    assert_eq!(lab.place(HOST4).as_deref(), Some("host0"));
}

/// It configures the interface when it starts and whenever the carrier returns; the switch moves that.
#[test]
fn systemd_networkd_and_the_switch_get_along() {
    let _machine = exclusive();
    let lab = Lab::unconfigured();
    let networkd = lab.networkd();
    lab.wait_place(HOST4, "eth0");
    lab.wait_place(HOST6, "eth0");
    lab.wait_link_local();
    until("duplicate address detection to end", LIMIT, || {
        let tentative = ["ip", "-6", "addr", "show", "dev", "eth0", "tentative"];
        Ok(lab.host.run(&tentative)?.is_empty().then_some(()))
    })
    .unwrap();
    let before = lab.dump();
    let daemon = lab.daemon();
    let flows = vec![Flow::start(&lab, "IPv4", HOST4, true), Flow::start(&lab, "IPv6", HOST6, true)];
    attach(&daemon, &[]);
    daemon.wait_up("br0", "eth0").unwrap();
    check(&flows, "attach", PLANNED);
    let moved = || {
        let at_host_port = [HOST4, HOST6].iter().all(|address| lab.places(address) == ["br0-host"]);
        let rules = lab.host.run(&["ip", "rule"])?;
        Ok((at_host_port && rules.matches("from 10.79.0.1 lookup 100").count() == 1).then_some(()))
    };
    until("the addresses to be at the host port", LIMIT, moved).unwrap();
    lab.peer.run(&["ip", "link", "set", "p0", "down"]).unwrap();
    daemon.wait_down("br0", "eth0", "carrier").unwrap();
    lab.peer.run(&["ip", "link", "set", "p0", "up"]).unwrap();
    daemon.wait_up("br0", "eth0").unwrap();
    // The neighbour lost its own IPv6 address with its link.
    let again = lab.peer.run(&["ip", "addr", "replace", "fd79::fe/64", "dev", "p0", "nodad"]);
    again.unwrap();
    until("the addresses to be at the host port after the carrier is back", LIMIT, moved).unwrap();
    check(&flows, "carrier", LIMIT);
    drop(networkd);
    let _networkd = lab.networkd();
    until("the addresses to be at the host port after networkd's restart", LIMIT, moved).unwrap();
    check(&flows, "networkd's restart", LIMIT);
    daemon.run(&["port", "del", "br0", "eth0"]).unwrap();
    check(&flows, "detach", PLANNED);
    lab.assert_same(&before);
    flows.into_iter().for_each(Flow::end);
}

#[test]
fn what_appears_at_the_interface_moves_and_a_dead_guardian_is_replaced() {
    let lab = Lab::new();
    let daemon = lab.daemon();
    attach(&daemon, &[]);
    daemon.wait_up("br0", "eth0").unwrap();
    // As a DHCP client does that stays with the interface.
    lab.host.run(&["ip", "addr", "add", "10.79.0.9/24", "dev", "eth0"]).unwrap();
    lab.wait_place("10.79.0.9", "br0-host");
    let first = guardian(&daemon);
    kill(first);
    until("another guardian", LIMIT, || Ok((guardian(&daemon) != first).then_some(()))).unwrap();
    let second = guardian(&daemon);
    assert!(std::path::Path::new(&format!("/proc/{second}")).exists());
    // The host port is deleted and made anew.
    lab.host.run(&["ip", "link", "del", "br0-host"]).unwrap();
    until("another guardian", LIMIT, || {
        let host = detail(&daemon, "eth0", "host").unwrap_or_default();
        Ok((host.starts_with("addresses are at") && !host.ends_with(&second.to_string())).then_some(()))
    })
    .unwrap();
    assert_eq!(lab.place(HOST4).as_deref(), Some("br0-host"));
    lab.peer.run(&["ping", "-c", "3", "-i", "0.05", "-W", "5", HOST4]).unwrap();
    // The interface loses its carrier: nothing returns.
    lab.peer.run(&["ip", "link", "set", "p0", "down"]).unwrap();
    daemon.wait_down("br0", "eth0", "no carrier").unwrap();
    assert_eq!(lab.place(HOST4).as_deref(), Some("br0-host"));
    lab.peer.run(&["ip", "link", "set", "p0", "up"]).unwrap();
    daemon.wait_up("br0", "eth0").unwrap();
    lab.peer.run(&["ping", "-c", "8", "-i", "0.2", "-W", "5", HOST4]).unwrap();
    // A client takes its time between an address and a route through it.
    let slowly =
        "ip addr add 10.79.33.1/24 dev eth0; sleep 0.1; ip route add 10.83.0.0/16 via 10.79.33.254 dev eth0";
    lab.host.run(&["sh", "-e", "-c", slowly]).unwrap();
    until("the route to move", LIMIT, || {
        let route = lab.host.run(&["ip", "route", "show", "10.83.0.0/16"])?;
        Ok(route.contains("via 10.79.33.254 dev br0-host").then_some(()))
    })
    .unwrap();
    // The interface is removed: its addresses are gone, as without a switch.
    lab.host.run(&["ip", "link", "del", "eth0"]).unwrap();
    daemon.wait_down("br0", "eth0", "interface `eth0` does not exist").unwrap();
    until("the addresses to go", LIMIT, || Ok(lab.place(HOST4).is_none().then_some(()))).unwrap();
    until("the port to say so", LIMIT, || Ok(detail(&daemon, "eth0", "host").is_none().then_some(())))
        .unwrap();
    assert_eq!(journals(&daemon), 0);
}

/// A DHCP client of the host port, whose interface goes with the daemon.
#[test]
fn a_lease_that_was_renewed_at_the_host_port_survives_the_daemon() {
    let lab = Lab::new();
    let mut daemon = lab.daemon();
    attach(&daemon, &[]);
    daemon.wait_up("br0", "eth0").unwrap();
    let journal = || {
        let entries = std::fs::read_dir(daemon.folder()).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        let journal = paths.find(|path| path.extension().is_some_and(|end| end == "journal")).unwrap();
        std::fs::metadata(journal).unwrap().ino()
    };
    let before = journal();
    let renew = ["ip", "addr", "change", "10.79.5.5/24", "dev", "br0-host"];
    lab.host.run(&[&renew[..], &["valid_lft", "36000", "preferred_lft", "36000"]].concat()).unwrap();
    until("the journal to follow", LIMIT, || Ok((journal() != before).then_some(()))).unwrap();
    daemon.kill().unwrap();
    lab.wait_place("10.79.5.5", "eth0");
    let shown = lab.host.run(&["ip", "-o", "addr", "show", "dev", "eth0", "to", "10.79.5.5"]).unwrap();
    let seconds = shown.split("valid_lft ").nth(1).unwrap().split("sec").next().unwrap();
    assert!(seconds.parse::<u32>().unwrap() > 35_000, "{shown}");
}

#[test]
fn a_refused_port_leaves_the_host_port_alone_until_the_next_attempt() {
    let lab = Lab::new();
    let daemon = lab.daemon();
    attach(&daemon, &[]);
    daemon.wait_up("br0", "eth0").unwrap();
    let ip = |command: &str| lab.host.run(&command.split(' ').collect::<Vec<_>>()).unwrap();
    ip("ip link add name kbr type bridge");
    ip("ip link set eth0 master kbr");
    daemon.wait_down("br0", "eth0", "belongs to bridge").unwrap();
    lab.wait_place(HOST4, "eth0");
    // A route that the host port does not take.
    ip("ip addr add 10.90.0.1/24 dev eth0");
    ip("ip route add 10.91.0.0/16 via 10.90.0.9");
    ip("ip route del 10.90.0.0/24 dev eth0");
    ip("ip link set eth0 nomaster");
    daemon.wait_down("br0", "eth0", "no address of the interface reaches the gateway").unwrap();
    // Each attempt changes the host port's MAC address and back; attempts are 5 s apart.
    let monitor = lab.host.command(&["timeout", "2", "ip", "-o", "monitor", "link"]).output().unwrap();
    let changes = String::from_utf8(monitor.stdout).unwrap();
    let changes = changes.lines().filter(|line| line.contains("br0-host")).count();
    assert!(changes < 40, "{changes} changes within 2 s");
    ip("ip route del 10.91.0.0/16");
    daemon.wait_up("br0", "eth0").unwrap();
    assert_eq!(lab.place(HOST4).as_deref(), Some("br0-host"));
}

#[test]
fn an_interface_of_another_port_is_refused_with_its_name() {
    let lab = Lab::new();
    let daemon = lab.daemon();
    attach(&daemon, &[]);
    daemon.wait_up("br0", "eth0").unwrap();
    let guardian = guardian(&daemon);
    let netns = lab.host.name();
    daemon.run(&["port", "add", "br0", "h2", "--type", "tap", "--netns", netns]).unwrap();
    let add = ["port", "add", "br0", "x", "--type", "netdev", "--interface", "eth0", "--netns", netns];
    assert_eq!(
        refused(&daemon, &[&add[..], &["--host", "h2"]].concat()),
        "mswitch: bridge \"br0\", port \"x\": interface `eth0` is attached to this switch already: port eth0 of bridge \
         br0"
    );
    assert_eq!(guardian, self::guardian(&daemon));
    assert_eq!(lab.place(HOST4).as_deref(), Some("br0-host"));
}

#[test]
fn an_mtu_that_is_set_while_the_host_port_has_another_one_holds_afterwards() {
    let lab = Lab::new();
    let ports = config::tap("br0-host", "br0-host", lab.host.name(), &[], "mtu = 1400")
        + &config::netdev("eth0", "eth0", lab.host.name(), "host = \"br0-host\"");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    daemon.wait_up("br0", "eth0").unwrap();
    let mtu = || {
        let link = lab.host.run(&["ip", "-o", "link", "show", "br0-host"]).unwrap();
        let shown = detail(&daemon, "br0-host", "mtu").unwrap();
        (link.split("mtu ").nth(1).unwrap().split(' ').next().unwrap().to_owned(), shown)
    };
    assert_eq!(mtu(), ("1500".to_owned(), "1500".to_owned()));
    let file = daemon.path("config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("mtu = 1400", "mtu = 1300")).unwrap();
    daemon.run(&["config", "apply", &file]).unwrap();
    assert_eq!(mtu(), ("1500".to_owned(), "1500".to_owned()));
    assert_eq!(lab.place(HOST4).as_deref(), Some("br0-host"));
    daemon.run(&["port", "del", "br0", "eth0"]).unwrap();
    assert_eq!(mtu(), ("1300".to_owned(), "1300".to_owned()));
}

#[test]
fn refusals_leave_everything_as_it_was() {
    let lab = Lab::new();
    let daemon = lab.daemon();
    let before = lab.dump();
    let add = ["port", "add", "br0", "eth0", "--type", "netdev"];
    let host = |name: &'static str| [&add[..], &["--host", name]].concat();
    assert_eq!(
        refused(&daemon, &host("x")),
        "mswitch: bridge \"br0\", port \"eth0\": host: the bridge has no port `x`; add a TAP port of this name"
    );
    daemon.run(&["port", "add", "br0", "m", "--type", "memif", "--path", &daemon.path("m.sock")]).unwrap();
    assert_eq!(
        refused(&daemon, &host("m")),
        "mswitch: bridge \"br0\", port \"eth0\": host: `m` is a memif port; only a TAP port can have the host's addresses"
    );
    // An interface on the interface would be cut off.
    lab.host.run(&["ip", "link", "add", "link", "eth0", "name", "eth0.7", "type", "macvlan"]).unwrap();
    assert_eq!(
        refused(&daemon, &[&add[..], &["--host"]].concat()),
        "mswitch: bridge \"br0\", port \"eth0\": the host's addresses: macvlan interface `eth0.7` lies on `eth0` and would \
         be cut off; remove it with `ip link del eth0.7`, and create it on the host port afterwards"
    );
    assert!(daemon.port("br0", "br0-host").is_err(), "the host port was not there before");
    lab.host.run(&["ip", "link", "del", "eth0.7"]).unwrap();
    lab.assert_same(&before);
    assert_eq!(journals(&daemon), 0);
    // Midway: a route whose gateway is gone cannot be added at the host port.
    lab.host.run(&["ip", "addr", "add", "10.90.0.1/24", "dev", "eth0"]).unwrap();
    lab.host.run(&["ip", "route", "add", "10.91.0.0/16", "via", "10.90.0.9"]).unwrap();
    lab.host.run(&["ip", "route", "del", "10.90.0.0/24", "dev", "eth0"]).unwrap();
    let with_route = lab.dump();
    let message = refused(&daemon, &[&add[..], &["--host"]].concat());
    assert!(
        message.contains("no address of the interface reaches the gateway: add the route with `onlink`"),
        "{message}"
    );
    lab.assert_same(&with_route);
    assert_eq!(journals(&daemon), 0);
    lab.host.run(&["ip", "route", "del", "10.91.0.0/16"]).unwrap();
    lab.host.run(&["ip", "addr", "del", "10.90.0.1/24", "dev", "eth0"]).unwrap();
    attach(&daemon, &[]);
    assert_eq!(
        refused(&daemon, &["port", "del", "br0", "br0-host"]),
        "mswitch: bridge \"br0\", port \"br0-host\": it has the addresses of port `eth0`; remove that port first, with \
         `mswitch port del br0 eth0`"
    );
    drop(daemon);
    lab.assert_same(&before);
}

//! The host's stack on TAP ports, and independent programs on TAP and memif ports.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::host::{ECHO_PORT, HostReport};
use bench::port::Rings;
use e2e::{Daemon, Memory, Netns, Testpmd, config, exclusive, long, ping_all, unique, until};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(20);

/// Two namespaces on one bridge.
struct Two {
    // Dropped in this order: interfaces, then namespaces.
    daemon: Daemon,
    a: Netns,
    b: Netns,
    interface_a: String,
    interface_b: String,
}

impl Two {
    /// Packets dropped by the switch.
    fn dropped(&self) -> u64 {
        self.daemon.ports("br0").unwrap().iter().map(|port| port.dropped()).sum()
    }

    /// Packets lost outside the switch, for lack of room in a's interface or in a socket of b.
    fn lost_elsewhere(&self) -> u64 {
        let file = format!("/sys/class/net/{}/statistics/tx_dropped", self.interface_a);
        let not_sent: u64 = self.a.run(&["cat", &file]).unwrap().trim().parse().unwrap();
        let counters = self.b.run(&["cat", "/proc/net/snmp"]).unwrap();
        let mut udp = counters.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let (names, values) = (udp.next().unwrap(), udp.next().unwrap());
        let mut columns = names.split(' ').zip(values.split(' '));
        let (_, not_read) = columns.find(|(name, _)| *name == "RcvbufErrors").unwrap();
        not_sent + not_read.parse::<u64>().unwrap()
    }
}

const B4: &str = "10.77.0.2";
const B6: &str = "fd77::2";

fn two(logic: &str, more: &str) -> Two {
    let (a, b) = (Netns::new().unwrap(), Netns::new().unwrap());
    let (interface_a, interface_b) = (unique("t"), unique("t"));
    let ports = config::tap("a", &interface_a, a.name(), &["10.77.0.1/24", "fd77::1/64"], more)
        + &config::tap("b", &interface_b, b.name(), &["10.77.0.2/24", "fd77::2/64"], more);
    let daemon = Daemon::start(&(config::bridge("br0", logic) + &ports)).unwrap();
    Two { daemon, a, b, interface_a, interface_b }
}

/// Pings without loss; the first answer may be slow, while switch and stacks learn addresses.
fn ping(from: &Netns, to: &str, count: u32) {
    ping_all(from, to, count, "0.01").unwrap();
}

#[test]
fn namespaces_ping_each_other() {
    let two = two("learning", "");
    let count = if long() { 1000 } else { 100 };
    ping(&two.a, B4, count);
    ping(&two.a, B6, count);
    ping(&two.b, "10.77.0.1", count);
}

#[test]
fn namespaces_ping_through_a_static_bridge_and_without_offloads() {
    ping(&two("static", "").a, B4, 20);
    ping(&two("learning", "offloads = false").a, B6, 20);
    ping(&two("learning", "queues = 2\nmtu = 9000").a, B4, 20);
}

/// Runs iperf3 from a to b and returns its report.
fn iperf(two: &Two, to: &str, arguments: &[&str]) -> Value {
    let server = two.b.start(&["iperf3", "-s", "-1", "-B", to]).unwrap();
    until("iperf3 to listen", LIMIT, || Ok(two.b.run(&["ss", "-Hltn"])?.contains(":5201").then_some(())))
        .unwrap();
    let output = two.a.run(&[&["iperf3", "-J", "-c", to], arguments].concat()).unwrap();
    server.output().unwrap();
    serde_json::from_str(&output).unwrap()
}

#[test]
fn iperf3_moves_tcp_and_udp() {
    let _machine = exclusive();
    let two = two("learning", "");
    let time = if long() { "10" } else { "2" };
    let directions: [(&str, &[&str]); 4] = [(B4, &[]), (B4, &["-R"]), (B6, &[]), (B6, &["-R"])];
    for (to, direction) in directions {
        let report = iperf(&two, to, &[&["-t", time], direction].concat());
        let rate = report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();
        assert!(rate > 1e8, "{to}: {rate} bit/s");
    }
    let before = (two.dropped(), two.lost_elsewhere());
    let report = iperf(&two, B4, &["-u", "-b", "20M", "-l", "1400", "-t", time]);
    let sum = &report["end"]["sum"];
    assert!(sum["packets"].as_u64().unwrap() > 1000, "{sum}");
    let lost = sum["lost_packets"].as_u64().unwrap();
    // iperf3's socket overflows when iperf3 is not scheduled for a while.
    let elsewhere = two.lost_elsewhere() - before.1;
    assert!(lost <= elsewhere && two.dropped() == before.0, "{sum}; {elsewhere} were lost elsewhere");
}

#[test]
fn large_tcp_segments_pass_unsegmented() {
    let _machine = exclusive();
    let two = two("learning", "");
    for (to, filter) in [(B4, "ip and tcp and greater 3000"), (B6, "ip6 and tcp and greater 3000")] {
        let capture = [
            "tcpdump",
            "-n",
            "-e",
            "-l",
            "--immediate-mode",
            "-Q",
            "in",
            "-s",
            "128",
            "-c",
            "20",
            "-i",
            &two.interface_b,
            filter,
        ];
        let tcpdump = two.b.start(&capture).unwrap();
        iperf(&two, to, &["-t", "3"]);
        let frames = tcpdump.output().unwrap();
        assert_eq!(frames.lines().count(), 20, "{frames}");
    }
}

#[test]
fn a_namespace_pings_testpmd() {
    let netns = Netns::new().unwrap();
    let ports = config::tap("host", &unique("t"), netns.name(), &["10.77.0.1/24"], "")
        + &config::memif("dpdk", 0, "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let device = format!("net_memif0,role=client,socket={},socket-abstract=no,id=0", daemon.path("memif"));
    let mut testpmd = Testpmd::start(Memory::Common, &[device], &["--forward-mode=icmpecho"]).unwrap();
    testpmd.command("start").unwrap();
    daemon.wait_up("br0", "dpdk").unwrap();
    // testpmd answers for any address.
    ping(&netns, "10.77.0.99", if long() { 1000 } else { 100 });
}

/// Sends `count` bytes and expects the same bytes back.
fn echo(to: SocketAddr, count: usize) {
    let stream = TcpStream::connect_timeout(&to, LIMIT).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    let mut data = vec![0; count];
    fastrand::Rng::with_seed(7).fill(&mut data);
    std::thread::scope(|scope| {
        scope.spawn(|| (&stream).write_all(&data).unwrap());
        let mut back = vec![0; count];
        (&stream).read_exact(&mut back).unwrap();
        assert!(back == data, "the echoed bytes differ");
    });
}

#[test]
fn a_client_without_offloads_receives_segmented_packets() {
    let _machine = exclusive();
    let netns = Netns::new().unwrap();
    let taps = config::tap("host", &unique("t"), netns.name(), &["10.77.0.1/24", "fd77::1/64"], "");
    let ports = taps + &config::memif("small", 0, "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (seen, spec) = (stop.clone(), daemon.memif("memif", 0));
    let addresses = ["10.77.0.3/24", "fd77::3/64"].map(|address| address.parse().unwrap());
    let host =
        std::thread::spawn(move || bench::host::serve(&spec, Rings::default(), &addresses, 1500, &seen));
    daemon.wait_up("br0", "small").unwrap();
    ping(&netns, "10.77.0.3", 10);
    ping(&netns, "fd77::3", 10);
    let count = if long() { 64 << 20 } else { 4 << 20 };
    netns.enter(|| echo(SocketAddr::new("10.77.0.3".parse().unwrap(), ECHO_PORT), count)).unwrap();
    netns.enter(|| echo(SocketAddr::new("fd77::3".parse().unwrap(), ECHO_PORT), count)).unwrap();
    stop.store(true, Ordering::Relaxed);
    let report: HostReport = host.join().unwrap().unwrap();
    assert_eq!((report.oversized, report.bad_checksums), (0, 0), "{report:?}");
    assert!(report.good_checksums > 1000, "{report:?}");
    // The TAP's stack left segmentation to the switch; otherwise this test would prove nothing.
    assert!(report.longest == 1514, "{report:?}");
    assert_eq!(report.echoed_bytes, 2 * count as u64, "{report:?}");
}

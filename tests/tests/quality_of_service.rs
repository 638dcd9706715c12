//! Quality of service with real senders: rates, classes and weights hold between namespaces on TAP ports, a better class
//! loses nothing to a flood, and commands show it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use e2e::frames::Sender;
use e2e::{Daemon, Netns, config, exclusive, iperf, unique, until};

const A: &str = "10.95.0.1";
const B: &str = "10.95.0.2";

/// Namespaces at p1 and p2.
struct Rig {
    // Dropped in this order: interfaces, then namespaces.
    daemon: Daemon,
    a: Netns,
    b: Netns,
}

impl Rig {
    /// With these keys of the ports.
    fn start(p1: &str, p2: &str) -> Rig {
        let (a, b) = (Netns::new().unwrap(), Netns::new().unwrap());
        let tap = |name, netns: &Netns, address: &str, more: &str| {
            config::tap(name, &unique("t"), netns.name(), &[&format!("{address}/24")], more)
        };
        let ports = tap("p1", &a, A, p1) + &tap("p2", &b, B, p2);
        let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
        Rig { daemon, a, b }
    }

    fn measure(&self, senders: &[(u16, &[&str])]) -> Vec<iperf::Arrived> {
        iperf::measure(&self.a, &self.b, B, senders).unwrap()
    }

    /// A counter of a class of packets to b.
    fn class(&self, class: usize, counter: &str) -> u64 {
        let port = self.daemon.port("br0", "p2").unwrap();
        let of = &port.json()["classes"][class];
        let found = of.get(counter).or_else(|| of["waiting"].get(counter));
        found.and_then(|count| count.as_u64()).unwrap_or_else(|| panic!("no {counter} in {}", port.json()))
    }
}

/// Whether a rate in Mbit/s is that of a limit, within 5 %; on a machine that is busy with other tests, as far as it can
/// be told there.
#[track_caller]
fn assert_rate(found: f64, expected: f64) {
    let (least, most) = if e2e::long() { (0.95, 1.05) } else { (0.7, 1.1) };
    assert!((least * expected..most * expected).contains(&found), "{found} Mbit/s instead of {expected}");
}

/// TCP's payload of a frame.
const TCP: f64 = 1448.0 / 1514.0;
/// UDP's, of datagrams of 1,448 bytes.
const UDP: f64 = 1448.0 / 1490.0;

#[test]
fn tcp_gets_the_rate_of_its_shaper_and_a_better_class_loses_nothing_to_a_flood() {
    let _alone = exclusive();
    let rig = Rig::start("trust = \"dscp\"\n", "shape = \"20Mbit\"\n");
    assert_rate(rig.measure(&[(5201, &["-t", "3"])])[0].mbits, 20.0 * TCP);
    // Segments of up to 64 KiB.
    assert!(rig.class(1, "waited") > 100);
    // A flood of five times the rate, and a call of 2 Mbit/s in expedited forwarding. iperf3's own connections are best
    // effort.
    let flood: &[&str] = &["-u", "-b", "100M", "-t", "4", "-l", "1448", "-S", "0x20"];
    let call: &[&str] = &["-u", "-b", "2M", "-t", "2", "-l", "200", "-S", "0xb8"];
    let arrived = rig.measure(&[(5201, flood), (5202, call)]);
    assert_eq!(arrived[1].lost, 0);
    assert_rate(arrived[1].mbits, 2.0);
    assert!(arrived[0].lost > 5000, "{arrived:?}");
    assert!(rig.class(0, "queue_full") > 5000);
    assert_eq!(rig.class(5, "queue_full"), 0);
}

#[test]
fn classes_share_by_weight_and_change_while_packets_flow() {
    let _alone = exclusive();
    let rig = Rig::start("trust = \"dscp\"\n", "shape = \"16Mbit\"\nqueueing = \"1,1,3,1,1,1,1,1\"\n");
    // CS1 is class 0, CS2 class 2; iperf3's own connections are in class 1.
    let flood = |tos| ["-u", "-b", "40M", "-t", "3", "-O", "1", "-l", "1448", "-S", tos];
    let (background, better) = (flood("0x20"), flood("0x40"));
    let shares =
        |senders: &[(u16, &[&str])]| rig.measure(senders).iter().map(|it| it.mbits).collect::<Vec<_>>();
    let both = shares(&[(5201, &background), (5202, &better)]);
    assert_rate(both[0], 4.0 * UDP);
    assert_rate(both[1], 12.0 * UDP);
    let set = |flags: &[&str]| rig.daemon.run(&[&["port", "set", "br0", "p2"], flags].concat()).unwrap();
    set(&["--queueing", "strict", "--class-min", "0:6Mbit", "--class-max", "2:8Mbit"]);
    let both = shares(&[(5201, &background), (5202, &better)]);
    assert_rate(both[0], 8.0 * UDP);
    assert_rate(both[1], 8.0 * UDP);
    set(&["--queueing", "off"]);
    assert!(shares(&[(5202, &["-u", "-b", "40M", "-t", "1", "-l", "1448"])])[0] > 20.0);
    assert_eq!(rig.daemon.port("br0", "p2").unwrap().json()["classes"].as_array().map(Vec::len), Some(0));
}

/// Early drops keep a queue short that TCP would fill; marks (ECN) do so without a loss.
#[test]
fn early_drop_keeps_tcp_from_filling_its_queue() {
    let _alone = exclusive();
    let rig = Rig::start("", "shape = \"20Mbit\"\n");
    for netns in [&rig.a, &rig.b] {
        netns.run(&["sysctl", "-qw", "net.ipv4.tcp_ecn=1", "net.ipv4.tcp_congestion_control=reno"]).unwrap();
        // Segments that wait are packets of the link.
        netns.run(&["bash", "-c", "ethtool -K $(ls /sys/class/net | grep -v lo) tso off gso off"]).unwrap();
    }
    let stream = |early_drop: &str| {
        let set = ["port", "set", "br0", "p2", "--early-drop", early_drop];
        rig.daemon.run(&set).unwrap();
        let counters = || ["queue_full", "early_drop", "marked"].map(|counter| rig.class(0, counter));
        let before = counters();
        let rate = rig.measure(&[(5201, &["-t", "3"])])[0].mbits;
        let after = counters();
        assert_rate(rate, 20.0 * TCP);
        [0, 1, 2].map(|at| after[at] - before[at])
    };
    let [full, early, marked] = stream("off");
    assert!(full > 0 && early == 0 && marked == 0, "{full} {early} {marked}");
    let [full, early, marked] = stream("20..200 10% ecn");
    assert!(full == 0 && early == 0 && marked > 0, "{full} {early} {marked}");
    let [full, early, marked] = stream("20..200 10%");
    assert!(full == 0 && early > 0 && marked == 0, "{full} {early} {marked}");
}

/// Packets that a client's ring holds (`Rings::default`).
const RING: u64 = 1024;

/// A client that takes nothing has its own queue full; others lose nothing.
#[test]
fn a_stuck_receiver_fills_only_its_own_queue() {
    let station = |last: u8, port: &str| {
        format!("[[bridge.station]]\nmac = \"02:00:00:00:00:{last:02x}\"\nport = \"{port}\"\n")
    };
    let queues = "queueing = \"strict\"\n";
    let text = config::bridge("br0", "learning")
        + &config::memif("source", 0, "")
        + &config::memif("stuck", 1, queues)
        + &config::memif("other", 2, queues)
        + &station(1, "stuck")
        + &station(2, "other");
    let daemon = Daemon::start(&text).unwrap();
    let [mut source, mut stuck, mut other] = [0, 1, 2].map(|id| Sender::connect(&daemon, id).unwrap());
    let packet = |to: u8, number: u16| {
        let [high, low] = number.to_be_bytes();
        [&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, 9, 0x88, 0xb5, high, low][..], &[0; 44]].concat()
    };
    let counter = |port: &str, counter: &str| {
        let shown = daemon.port("br0", port).unwrap();
        shown.json()["classes"][0]["waiting"][counter].as_u64().unwrap()
    };
    let waiting = |port: &str| counter(port, "packets");
    let dropped = |port: &str| counter(port, "queue_full");
    for number in 0..1800 {
        source.send(&packet(1, number)).unwrap();
        if number % 60 == 0 {
            source.send(&packet(2, number)).unwrap();
            let arrived = until("the other's packet", Duration::from_secs(20), || Ok(other.received().pop()));
            assert_eq!(arrived.unwrap(), packet(2, number));
        }
    }
    assert_eq!((waiting("stuck"), waiting("other")), (512, 0));
    assert_eq!((dropped("stuck"), dropped("other")), (1800 - 512 - RING, 0));
    // What waited arrives, in order, once the client takes packets again.
    let mut arrived = Vec::new();
    until("the packets that waited", Duration::from_secs(20), || {
        arrived.append(&mut stuck.received());
        Ok((waiting("stuck") == 0).then_some(()))
    })
    .unwrap();
    arrived.append(&mut stuck.received());
    let expected = (0..).map(|number| packet(1, number)).take(512 + RING as usize);
    assert!(arrived.iter().eq(&expected.collect::<Vec<_>>()), "{}", arrived.len());
}

#[test]
fn commands_show_classes_and_refuse_contradictions() {
    let rig = Rig::start("class = 6\n", "queueing = \"drr\"\nearly-drop = \"100..300 10% ecn\"\n");
    e2e::ping_all(&rig.a, B, 3, "0.05").unwrap();
    assert!(rig.class(6, "packets") >= 3);
    let shown = rig.daemon.run(&["port", "show", "br0", "p2"]).unwrap();
    for text in ["\nquality of service\n", "queueing", "drr", "early-drop", "100..300 10% ecn", "MEAN WAIT"] {
        assert!(shown.contains(text), "{shown}");
    }
    let stats = rig.daemon.run(&["port", "stats", "br0", "p2", "--queues"]).unwrap();
    assert!(stats.lines().any(|line| line.starts_with("br0     p2        6")), "{stats}");
    let set = |flags: &[&str]| {
        let output = rig.daemon.cli(&[&["port", "set", "br0", "p2"], flags].concat()).unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(set(&["--class-min", "7:1Mbit"]).contains("add `shape`"));
    assert!(set(&["--queueing", "1,2"]).contains("is for 2 of the 8 classes; expected `strict`"));
    let memory = set(&["--queue-buffers", "65536"]);
    assert!(memory.contains("of memory"), "{memory}");
    // What was refused has changed nothing.
    assert_eq!(rig.daemon.run(&["port", "show", "br0", "p2"]).unwrap().lines().next(), shown.lines().next());
    e2e::ping_all(&rig.a, B, 3, "0.05").unwrap();
}

//! Quality of service: rates of ports and queues, measured by `iperf3`, and what tools say of them.

use e2e::open_vswitch::{Host, LIMIT};
use e2e::{Netns, Running, iperf, until};

/// The guests' addresses.
const A: &str = "10.94.0.1";
const B: &str = "10.94.0.2";

/// A daemon with a bridge br0 and guests at va and vb.
struct Rig {
    host: Host,
    a: Netns,
    b: Netns,
    _daemon: Running,
}

impl Rig {
    fn new() -> Self {
        let host = Host::new();
        let guest = |name, address: &str| host.guest(name, &format!("{address}/24"));
        let (a, b) = (guest("va", A), guest("vb", B));
        let daemon = host.start();
        host.vsctl(&["add-br", "br0", "--", "add-port", "br0", "va", "--", "add-port", "br0", "vb"]);
        Self { host, a, b, _daemon: daemon }
    }

    /// Gives vb quality of service.
    fn set_qos(&self, arguments: &[&str]) {
        let set = ["set", "port", "vb", "qos=@new", "--", "--id=@new", "create", "qos"];
        self.host.vsctl(&[&set, arguments].concat());
    }

    /// Sends from a to b by `iperf3` at several ports at once; returns Mbit/s that arrived at each.
    fn measured<const N: usize>(&self, senders: [(u16, &[&str]); N]) -> [f64; N] {
        let arrived = iperf::measure(&self.a, &self.b, B, &senders).unwrap();
        std::array::from_fn(|i| arrived[i].mbits)
    }

    /// A number that `qos/show` has of a queue.
    fn shown(&self, queue: &str, key: &str) -> u64 {
        let (code, text, error) = self.host.appctl(&["qos/show", "vb"]);
        assert_eq!((code, error.as_str()), (Some(0), ""));
        let mut lines =
            text.lines().skip_while(|line| *line != queue).skip(1).take_while(|line| !line.is_empty());
        let number = lines.find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": ")?.parse().ok());
        number.unwrap_or_else(|| panic!("{key} of {queue} in {text}"))
    }
}

/// More than the limits let pass, for two seconds after a first one, in which buckets are emptied.
const UDP: &[&str] = &["-u", "-b", "50M", "-t", "2", "-O", "1"];

/// Whether a rate in Mbit/s is that of a limit, within 5 %; on a machine that is busy with other tests, as far as it can
/// be told there: a sender may pause for longer than packets wait.
#[track_caller]
fn assert_limited(found: f64, limit: f64) {
    let (least, most) = if e2e::long() { (0.95, 1.05) } else { (0.6, 1.2) };
    assert!((least * limit..most * limit).contains(&found), "{found} Mbit/s instead of {limit}");
}

#[test]
fn a_port_sends_at_its_maximum_rate() {
    let rig = Rig::new();
    let host = &rig.host;
    assert_eq!(host.appctl(&["qos/show", "vb"]).1, "QoS not configured on vb\n");
    // As Open vSwitch's FAQ has it.
    rig.set_qos(&[
        "type=linux-htb",
        "other-config:max-rate=10000000",
        "queues:123=@q",
        "queues:234=@r",
        "--",
        "--id=@q",
        "create",
        "queue",
        "other-config:max-rate=4000000",
        "--",
        "--id=@r",
        "create",
        "queue",
        "other-config:max-rate=2000000",
    ]);
    let [tcp] = rig.measured([(5201, &["-t", "4"])]);
    assert!((5.0..11.0).contains(&tcp), "{tcp} Mbit/s by TCP");
    let [udp] = rig.measured([(5201, UDP)]);
    // What iperf3 counts is without 42 of 1,490 bytes of headers.
    assert_limited(udp, 10.0 * 1448.0 / 1490.0);

    // A change and a queue take effect while packets flow.
    host.ofctl(&["add-flow", "br0", "priority=9,udp,tp_dst=5201,actions=enqueue:2:123"]);
    let [queue] = rig.measured([(5201, UDP)]);
    assert_limited(queue, 4.0 * 1448.0 / 1490.0);
    assert_eq!(rig.shown("Queue 123:", "max-rate"), 4_000_000);
    assert_eq!(rig.shown("Queue 234:", "tx_packets"), 0);
    let policed = rig.shown("Queue 123:", "tx_errors");
    assert!(policed > 1000, "{policed} packets exceeded the queue's rate");
    // The last of them may still wait for their turn when the sender ends.
    until("the same counters by both tools", LIMIT, || {
        let [policed, packets, bytes] =
            ["tx_errors", "tx_packets", "tx_bytes"].map(|key| rig.shown("Queue 123:", key));
        let stats = host.ofctl(&["-O", "OpenFlow13", "queue-stats", "br0", "vb", "123"]);
        let expected = format!(" queue 123: bytes={bytes}, pkts={packets}, errors={policed}, duration=");
        assert!(!stats.contains("duration=?"), "{stats}");
        Ok(stats.contains(&expected).then_some(()))
    })
    .unwrap();
    let (_, unknown, error) = host.tool("ovs-ofctl", &["-t", "20", "queue-stats", "br0", "vb", "9"]);
    assert!(unknown.contains("OFPQOFC_BAD_QUEUE"), "{unknown}{error}");
    let config = host.ofctl(&["queue-get-config", "br0", "vb"]);
    for queue in ["queue 0:", "queue 123:", "queue 234:"] {
        assert!(config.contains(queue), "{config}");
    }

    // Without it, everything passes.
    host.vsctl(&["clear", "port", "vb", "qos"]);
    assert_eq!(host.appctl(&["qos/show", "vb"]).1, "QoS not configured on vb\n");
    let [udp] = rig.measured([(5201, &["-u", "-b", "50M", "-t", "1"])]);
    assert!(udp > 15.0, "{udp} Mbit/s without a limit");
}

#[test]
fn queues_get_what_they_are_guaranteed() {
    let rig = Rig::new();
    rig.set_qos(&[
        "type=linux-htb",
        "other-config:max-rate=10000000",
        "queues:3=@three",
        "queues:7=@seven",
        "--",
        "--id=@three",
        "create",
        "queue",
        "other-config:min-rate=3000000",
        "--",
        "--id=@seven",
        "create",
        "queue",
        "other-config:min-rate=7000000",
    ]);
    for (port, queue) in [(5203, 3), (5207, 7)] {
        let flow = format!("priority=9,udp,tp_dst={port},actions=set_queue:{queue},normal");
        rig.host.ofctl(&["add-flow", "br0", &flow]);
    }
    let net = 1448.0 / 1490.0;
    let [three, seven] = rig.measured([(5203, UDP), (5207, UDP)]);
    assert_limited(three, 3.0 * net);
    assert_limited(seven, 7.0 * net);
    // The other queue floods, and this one loses nothing.
    let [three, seven] = rig.measured([(5203, &["-u", "-b", "2500K", "-t", "2", "-O", "1"]), (5207, UDP)]);
    assert!(three > 2.0, "{three} of 2.5 Mbit/s");
    assert_limited(seven, 7.5 * net);
}

#[test]
fn other_disciplines_police_mark_or_are_refused() {
    let rig = Rig::new();
    let host = &rig.host;
    let status = || host.get("Port", "vb", "status");
    rig.set_qos(&["type=linux-sfq", "other-config:perturb=10"]);
    let error = "QoS of type `linux-sfq` is not supported; \
        expected linux-htb, linux-hfsc, egress-policer, trtcm-policer or linux-noop";
    assert_eq!(status(), format!("{{qos_error=\"{error}\"}}"));
    assert!(host.log().contains("|INFO|port vb: QoS of type `linux-sfq` is not supported"), "{}", host.log());
    let types =
        "QoS type: linux-htb\nQoS type: linux-hfsc\nQoS type: egress-policer\nQoS type: trtcm-policer\n";
    assert_eq!(host.appctl(&["qos/show-types", "vb"]).1, types);
    let (code, _, error) = host.appctl(&["qos/show", "frob"]);
    assert!(code == Some(2) && error.starts_with("no such interface"), "{error}");
    let free = || rig.a.run(&["ping", "-n", "-c", "1", "-W", "1", B]).ok();
    until("a ping", LIMIT, || Ok(free())).unwrap();

    // In bytes of IP packets.
    rig.set_qos(&["type=egress-policer", "other-config:cir=1250000", "other-config:cbs=20000"]);
    assert_eq!(status(), "{}");
    let [udp] = rig.measured([(5201, UDP)]);
    assert_limited(udp, 10.0 * 1448.0 / 1476.0);
    let (_, text, _) = host.appctl(&["qos/show", "vb"]);
    assert!(
        text.starts_with("QoS: vb egress-policer\ncbs: 20000\ncir: 1250000\n\nDefault:\n  tx_packets: "),
        "{text}"
    );

    // Packets of queue 5 are expedited; what is not in a queue stays as it is.
    rig.set_qos(&["type=linux-hfsc", "queues:5=@q", "--", "--id=@q", "create", "queue", "dscp=46"]);
    host.ofctl(&["add-flow", "br0", "priority=9,icmp,actions=set_queue:5,normal"]);
    let seen = |filter: &str, from: &[&str]| {
        let mut capture = rig.b.start(&["tcpdump", "-lnvi", "eth0", "-c", "1", filter]).unwrap();
        until("a packet", LIMIT, || {
            // tcpdump ends when it has seen one.
            rig.a.run(from).ok();
            capture.ended()
        })
        .unwrap();
        capture.output().unwrap()
    };
    let ping = ["ping", "-n", "-c", "1", "-W", "1", B];
    let marked = seen("icmp[icmptype]=icmp-echo", &ping);
    assert!(marked.contains("tos 0xb8"), "{marked}");
    host.ofctl(&["del-flows", "br0", "icmp"]);
    let plain = seen("icmp[icmptype]=icmp-echo", &ping);
    assert!(plain.contains("tos 0x0"), "{plain}");
}

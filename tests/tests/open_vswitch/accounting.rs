//! NetFlow and IPFIX with a real collector: `nfcapd` receives, `nfdump` tells what it got (Debian package nfdump).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;

use e2e::open_vswitch::{Host, LIMIT};
use e2e::{Netns, Running, ping_all, until};

/// Length of an Ethernet header.
const ETHERNET: u64 = 14;

/// A running `nfcapd`.
struct Collector<'a> {
    host: &'a Host,
    folder: PathBuf,
    _program: Running,
}

/// Packets and bytes.
type Counts = (u64, u64);

impl<'a> Collector<'a> {
    /// Starts it; files with flows are complete after 2 seconds.
    fn start(host: &'a Host, port: &str) -> Self {
        let folder = host.path(port);
        std::fs::create_dir(&folder).unwrap();
        let mut command = host.command("nfcapd");
        command.args(["-b", "127.0.0.1", "-p", port, "-t", "2"]).arg("-w").arg(&folder);
        let program = Running::start(&mut command).unwrap();
        let collector = Self { host, folder, _program: program };
        until("nfcapd to listen", LIMIT, || {
            let sockets = host.netns.run(&["cat", "/proc/net/udp"])?;
            Ok(sockets.contains(&format!(":{:04X} ", port.parse::<u16>().unwrap())).then_some(()))
        })
        .unwrap();
        collector
    }

    /// The flows that it has written, in these fields of nfdump.
    fn flows(&self, fields: &str) -> Vec<Vec<String>> {
        let folder = self.folder.to_str().unwrap();
        let format = format!("fmt:{fields}");
        let (_, text, _) = self.host.tool("nfdump", &["-q", "-N", "-R", folder, "-o", &format]);
        // Without flows, it says so.
        let lines = text.lines().filter(|line| line.contains(','));
        lines.map(|line| line.split(',').map(|field| field.trim().to_owned()).collect()).collect()
    }

    /// Sums of flows from a source by protocol, destination and destination port.
    fn sums(&self, source: &str) -> BTreeMap<(String, String, String), Counts> {
        let mut sums = BTreeMap::new();
        for flow in self.flows("%sa,%pr,%da,%dp,%pkt,%byt") {
            let [from, protocol, to, port, packets, bytes] = &flow[..] else { panic!("{flow:?}") };
            if from != source {
                continue;
            }
            let sum: &mut Counts = sums.entry((protocol.clone(), to.clone(), port.clone())).or_default();
            *sum = (sum.0 + packets.parse::<u64>().unwrap(), sum.1 + bytes.parse::<u64>().unwrap());
        }
        sums
    }

    /// Waits until the sum of a flow is this; more than that never is.
    fn until(&self, source: &str, protocol: &str, to: &str, port: &str, wanted: Counts) {
        let key = (protocol.to_owned(), to.to_owned(), port.to_owned());
        until(&format!("{wanted:?} of {key:?}"), LIMIT, || {
            Ok((self.sums(source).get(&key) == Some(&wanted)).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error}: {:?}; {}", self.sums(source), self.host.log()));
    }
}

/// A counter of a namespace's kernel.
fn kernel(guest: &Netns, file: &str, protocol: &str, name: &str) -> u64 {
    let text = guest.run(&["cat", file]).unwrap();
    let prefix = format!("{protocol}: ");
    let lines: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
    let at = lines[0].split(' ').position(|word| word == name).unwrap();
    lines[1].split(' ').nth(at).unwrap().parse().unwrap()
}

/// Sends datagrams of 100 bytes.
fn send_udp(guest: &Netns, to: &str, count: usize) {
    guest
        .enter(|| {
            let any = if to.starts_with('[') { "[::]:5000" } else { "0.0.0.0:5000" };
            let socket = UdpSocket::bind(any).unwrap();
            (0..count).for_each(|_| _ = socket.send_to(&[7; 100], to).unwrap());
        })
        .unwrap();
}

/// A connection that sends 1,000 bytes and is closed by both ends.
fn connect_tcp(from: &Netns, to: &Netns, address: &str) {
    let listener = to.enter(|| TcpListener::bind(address).unwrap()).unwrap();
    let mut client = from.enter(|| TcpStream::connect(address).unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&[1; 1000]).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(server.read_to_end(&mut Vec::new()).unwrap(), 1000);
    drop(server);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

#[test]
fn collectors_get_exactly_the_packets_and_bytes_of_a_bridge() {
    let host = Host::new();
    let (a, b) = (host.guest("va", "10.80.0.1/24"), host.guest("vb", "10.80.0.2/24"));
    for (guest, address) in [(&a, "fd80::1/64"), (&b, "fd80::2/64")] {
        guest.run(&["ip", "address", "add", address, "dev", "eth0", "nodad"]).unwrap();
    }
    let _daemon = host.start();
    let (netflow, ipfix) = (Collector::start(&host, "5566"), Collector::start(&host, "4739"));
    host.vsctl(&["add-br", "br0", "--", "add-port", "br0", "va", "--", "add-port", "br0", "vb"]);
    // The switch knows both stations, so each packet goes to one port.
    ping_all(&a, "10.80.0.2", 1, "0.1").unwrap();
    let tcp_before = kernel(&a, "/proc/net/snmp", "Tcp", "OutSegs");
    let netflow_row = ["create", "NetFlow", "targets=\"127.0.0.1:5566\"", "active_timeout=1", "engine_id=3"];
    host.vsctl(
        &[&["--", "--id=@nf"], &netflow_row[..], &["--", "set", "bridge", "br0", "netflow=@nf"]].concat(),
    );
    let ipfix_row = [
        "create",
        "IPFIX",
        "targets=\"127.0.0.1\"",
        "sampling=1",
        "cache_active_timeout=1",
        "cache_max_flows=1000",
        "obs_domain_id=7",
        "other_config:enable-output-sampling=false",
    ];
    host.vsctl(
        &[&["--", "--id=@fix"], &ipfix_row[..], &["--", "set", "bridge", "br0", "ipfix=@fix"]].concat(),
    );

    a.run(&["ping", "-n", "-q", "-c", "3", "-i", "0.1", "-s", "72", "10.80.0.2"]).unwrap();
    send_udp(&a, "10.80.0.2:7777", 5);
    send_udp(&a, "[fd80::2]:7777", 4);
    connect_tcp(&a, &b, "10.80.0.2:8080");
    let segments = kernel(&a, "/proc/net/snmp", "Tcp", "OutSegs") - tcp_before;
    assert!(segments >= 4, "{segments}");

    // NetFlow counts whole frames, IPFIX packets of IP. The unreachable ports' errors are flows from the other guest.
    let from = "10.80.0.1";
    netflow.until(from, "1", "10.80.0.2", "8.0", (3, 3 * (100 + ETHERNET)));
    netflow.until(from, "17", "10.80.0.2", "7777", (5, 5 * (128 + ETHERNET)));
    ipfix.until(from, "1", "10.80.0.2", "8.0", (3, 300));
    ipfix.until(from, "17", "10.80.0.2", "7777", (5, 5 * 128));
    ipfix.until("fd80::1", "17", "fd80::2", "7777", (4, 4 * 148));
    let tcp = ("6".to_owned(), "10.80.0.2".to_owned(), "8080".to_owned());
    until("the connection's segments", LIMIT, || {
        let counts = [&netflow, &ipfix].map(|it| it.sums(from).get(&tcp).copied().unwrap_or_default());
        Ok((counts.map(|(packets, _)| packets) == [segments; 2]).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error}, {segments}: {:?} {:?}", netflow.sums(from), ipfix.sums(from)));
    let [frames, packets] = [&netflow, &ipfix].map(|it| it.sums(from)[&tcp].1);
    assert_eq!(frames, packets + segments * ETHERNET);
    assert!(packets > 1000 + segments * 40, "1,000 bytes, headers and options");

    // Interfaces are OpenFlow's numbers in NetFlow, and the host's in IPFIX.
    let interfaces = |collector: &Collector<'_>| {
        let flows = collector.flows("%sa,%in,%out");
        flows.into_iter().find(|flow| flow[0] == from).map(|flow| (flow[1].clone(), flow[2].clone()))
    };
    assert_eq!(interfaces(&netflow), Some(("1".into(), "2".into())));
    let index = host.netns.run(&["cat", "/sys/class/net/va/ifindex"]).unwrap();
    assert_eq!(interfaces(&ipfix).map(|(input, _)| input), Some(index.trim().to_owned()));

    // The counters that ovs-ofctl shows.
    let shown = host.ofctl(&["dump-ipfix-bridge", "br0"]);
    assert!(shown.contains("NXST_IPFIX_BRIDGE reply") && !shown.contains("ipv4 ok=0"), "{shown}");

    let shown = host.appctl(&["accounting/show"]).1;
    assert!(shown.contains("br0 netflow: ") && shown.contains("\n  127.0.0.1:5566: "), "{shown}");
    assert!(shown.contains(" packets accounted, 0 missed\n"), "{shown}");

    // A mistake is named, and the rest works; removal takes effect.
    host.vsctl(&["set", "netflow", ".", "targets=\"nowhere:1\""]);
    assert!(host.log().contains("bridge br0: NetFlow: `nowhere:1` is not a collector"), "{}", host.log());
    host.vsctl(&["clear", "bridge", "br0", "netflow", "--", "clear", "bridge", "br0", "ipfix"]);
    let (_, shown, _) = host.tool("ovs-ofctl", &["dump-ipfix-bridge", "br0"]);
    assert!(shown.contains("NXST_NOT_CONFIGURED"), "{shown}");
    ping_all(&a, "10.80.0.2", 1, "0.1").unwrap();
}

#[test]
fn packets_that_sample_actions_choose_go_to_their_collectors() {
    let host = Host::new();
    let (a, _b) = (host.guest("va", "10.80.0.1/24"), host.guest("vb", "10.80.0.2/24"));
    let _daemon = host.start();
    let collector = Collector::start(&host, "4740");
    host.vsctl(&["add-br", "br0", "--", "add-port", "br0", "va", "--", "add-port", "br0", "vb"]);
    ping_all(&a, "10.80.0.2", 1, "0.1").unwrap();
    host.vsctl(&[
        "--",
        "--id=@br",
        "get",
        "Bridge",
        "br0",
        "--",
        "--id=@fix",
        "create",
        "IPFIX",
        "targets=\"127.0.0.1:4740\"",
        "--",
        "create",
        "Flow_Sample_Collector_Set",
        "id=7",
        "bridge=@br",
        "ipfix=@fix",
    ]);
    let sample = "sample(probability=65535,collector_set_id=7,obs_domain_id=11,obs_point_id=12)";
    let other = "sample(probability=65535,collector_set_id=8)";
    host.ofctl(&["add-flow", "br0", &format!("udp,tp_dst=7777,actions={sample},{other},normal")]);
    send_udp(&a, "10.80.0.2:7777", 6);
    send_udp(&a, "10.80.0.2:7778", 6);
    collector.until("10.80.0.1", "17", "10.80.0.2", "7777", (6, 6 * 128));
    let ports: Vec<_> = collector.flows("%sp,%dp").into_iter().map(|flow| flow[1].clone()).collect();
    assert_eq!(ports, ["7777"; 6], "each packet is a flow, and no other was sampled");
    let shown = host.ofctl(&["dump-ipfix-flow", "br0"]);
    assert!(shown.contains("id   7: flows=6, current flows=0, sampled pkts=6, ipv4 ok=6,"), "{shown}");

    host.vsctl(&["--all", "destroy", "Flow_Sample_Collector_Set"]);
    let (_, shown, _) = host.tool("ovs-ofctl", &["dump-ipfix-flow", "br0"]);
    assert!(shown.contains("NXST_NOT_CONFIGURED"), "{shown}");
    send_udp(&a, "10.80.0.2:7777", 1);
    ping_all(&a, "10.80.0.2", 1, "0.1").unwrap();
}

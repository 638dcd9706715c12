//! `mswitch trace`: a trace predicts the switch's handling of a packet from a real client and changes no state; live
//! traces explain received packets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use control::client::{Client, connect};
use control::{hex, proto};
use e2e::frames::Sender;
use e2e::{Daemon, Netns, config, long, unique, until};
use fastrand::Rng;
use serde_json::Value;
use tokio::runtime::Runtime;

const LIMIT: Duration = Duration::from_secs(20);
const PORTS: u32 = 4;

/// A daemon with a test client on each port, unless the port is administratively down.
struct Rig {
    daemon: Daemon,
    clients: Vec<Sender>,
    runtime: Runtime,
    api: Client,
}

impl Rig {
    fn start(logic: &str, keys: &[&str], more: &str) -> Rig {
        let ports: String =
            (0..).zip(keys).map(|(id, keys)| config::memif(&format!("p{id}"), id, keys)).collect();
        let daemon = Daemon::start(&(config::bridge("br0", logic) + &ports + more)).unwrap();
        let clients = (0..PORTS).map(|id| Sender::connect(&daemon, id).unwrap()).collect();
        for (id, _) in (0..PORTS).zip(keys).filter(|(_, keys)| !keys.contains("admin")) {
            daemon.wait_up("br0", &format!("p{id}")).unwrap();
        }
        let runtime = Runtime::new().unwrap();
        let api = runtime.block_on(connect(&daemon.folder().join("ctl"))).unwrap();
        Rig { daemon, clients, runtime, api }
    }

    fn trace(&mut self, port: usize, packet: &[u8]) -> proto::Trace {
        let request = proto::TracePacketRequest {
            bridge: "br0".into(),
            port: format!("p{port}"),
            packet: packet.to_vec(),
        };
        self.runtime.block_on(self.api.trace_packet(request)).unwrap().into_inner()
    }

    fn ports(&mut self) -> Vec<proto::Port> {
        let request = proto::ListPortsRequest { bridge: "br0".into(), ..Default::default() };
        self.runtime.block_on(self.api.list_ports(request)).unwrap().into_inner().ports
    }

    fn fdb(&mut self) -> Vec<(u32, String, String)> {
        let request = proto::ListFdbRequest { bridge: "br0".into(), ..Default::default() };
        // `static` has no table.
        let Ok(fdb) = self.runtime.block_on(self.api.list_fdb(request)) else { return Vec::new() };
        let entries = fdb.into_inner().entries.into_iter();
        let mut entries: Vec<_> = entries.map(|entry| (entry.vlan, entry.mac, entry.port)).collect();
        entries.sort();
        entries
    }
}

/// Random packets of a few stations and groups, in a few VLANs, short and long.
fn random_packet(rng: &mut Rng) -> Vec<u8> {
    let station = |rng: &mut Rng| [2, 0, 0, 0, 0, rng.u8(1..8)];
    let to = match rng.u8(0..8) {
        0 => [0xff; 6],
        1 => [1, 0, 0x5e, 1, 2, rng.u8(0..3)],
        2 if rng.bool() => [1, 0x80, 0xc2, 0, 0, rng.u8(0..17)],
        _ => station(rng),
    };
    let mut packet = [to, station(rng)].concat();
    if rng.u8(0..3) == 0 {
        packet.extend([0x81, 0, rng.u8(0..8) << 5, rng.u8(0..5)]);
    }
    packet.extend([0x88, 0xb5]);
    let len = *rng.choice(&[46, 46, 200, 1480, 1600, 3000]).unwrap_or(&46);
    packet.extend((0..len).map(|_| rng.u8(..)));
    packet
}

/// Traces, sends and compares one packet after the other. `settings` are those of the ports.
fn check_predictions(logic: &str, settings: &[&str], more: &str, seed: u64) {
    let mut rig = Rig::start(logic, settings, more);
    let mut rng = Rng::with_seed(seed);
    let (mut dropped, mut sent) = (0, 0);
    let packets = if long() { 1000 } else { 300 };
    for number in 0..packets {
        let (from, packet) = (rng.usize(0..PORTS as usize), random_packet(&mut rng));
        let before = (rig.ports(), rig.fdb());
        let trace = rig.trace(from, &packet);
        assert_eq!((rig.ports(), rig.fdb()), before, "packet {number}: tracing changed state");
        rig.clients[from].send(&packet).unwrap();
        for (i, client) in rig.clients.iter_mut().enumerate() {
            let name = format!("p{i}");
            let taken = |output: &&proto::TraceOutput| output.port == name && output.drop_reason.is_empty();
            let predicted: Vec<_> =
                trace.outputs.iter().filter(taken).map(|output| output.packet.clone()).collect();
            sent += predicted.len();
            assert_eq!(client.received(), predicted, "packet {number} at {name}: {trace:#?}");
        }
        let after = rig.ports();
        for (i, (before, after)) in before.0.iter().zip(&after).enumerate() {
            let (before, after) = (before.totals.clone().unwrap(), after.totals.clone().unwrap());
            let more = |before: Option<proto::QueueCounters>, after: Option<proto::QueueCounters>| {
                let (before, after) = (before.unwrap().drops, after.unwrap().drops);
                let mut reasons = Vec::new();
                for (reason, count) in after {
                    let new = count - before.get(&reason).copied().unwrap_or(0);
                    reasons.extend(std::iter::repeat_n(reason, new as usize));
                }
                reasons
            };
            let mut predicted = if i == from { trace.drops.clone() } else { Vec::new() };
            predicted.sort();
            dropped += predicted.len();
            assert_eq!(more(before.rx, after.rx), predicted, "packet {number}: {trace:#?}");
            let refused = trace.outputs.iter().filter(|output| output.port == format!("p{i}"));
            let refused: Vec<_> = refused
                .map(|output| output.drop_reason.clone())
                .filter(|reason| !reason.is_empty())
                .collect();
            assert_eq!(more(before.tx, after.tx), refused, "packet {number}: {trace:#?}");
        }
    }
    // Without drops and deliveries, the comparison would prove nothing.
    assert!(dropped > packets / 50 && sent > packets / 5, "{dropped} drops, {sent} packets");
}

const SETTINGS: [&str; PORTS as usize] = [
    "",
    "vlan = \"trunk:1-3\"\nmtu = 1500\n",
    "vlan = \"trunk:1-4,native:2\"\nmax-stations = 3\n",
    "mtu = 1000\n",
];

#[test]
fn traces_predict_learning() {
    check_predictions("learning", &SETTINGS, "", 1);
}

#[test]
fn traces_predict_static() {
    check_predictions("static", &SETTINGS, "", 2);
}

#[test]
fn traces_predict_a_mirror() {
    let mirror = "[[bridge.mirror]]\nname = \"m\"\nfrom = [\"p0\", \"p1\"]\nto = \"p3\"\n";
    check_predictions("learning", &["", "", "", ""], mirror, 3);
}

#[test]
fn a_trace_is_printed_as_text_and_json() {
    let rig = Rig::start("learning", &["", "vlan = \"access:7\"\n", "", ""], "");
    let arp = "ffffffffffff 020000000001 0806 0001";
    let text = rig.daemon.run(&["trace", "br0", "--port", "p1", "--packet", arp]).unwrap();
    let expected = [
        "from p1: 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff ARP, 16 bytes",
        "  1. it belongs to VLAN 7",
        "  2. its source, 02:00:00:00:00:01, is new, and would be learned at p1",
        "  3. it is for a group, ff:ff:ff:ff:ff:ff",
        "  => p0, queue 0: 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff VLAN 7 ARP, 20 bytes",
    ];
    assert_eq!(text.lines().take(5).collect::<Vec<_>>(), expected, "{text}");
    let json = rig.daemon.json(&["trace", "br0", "--port", "p1", "--packet", arp]).unwrap();
    assert_eq!(json["outputs"][0]["packet"], "ffffffffffff0200000000018100000708060001", "{json}");
    assert_eq!(json["steps"][0], "it belongs to VLAN 7");
    assert_eq!(json["packet"], hex::format(&hex::parse(arp).unwrap()));
}

#[test]
fn a_trace_explains_why_a_packet_is_dropped() {
    let rig = Rig::start(
        "learning",
        &[
            "vlan = \"access:10\"\n",
            "vlan = \"access:20\"\n",
            "admin = \"down\"\nvlan = \"access:30\"\n",
            "vlan = \"trunk:20,30\"\n",
        ],
        "",
    );
    let trace = |packet: &str| rig.daemon.run(&["trace", "br0", "--packet", packet]).unwrap();
    let text =
        trace("in_port=p0,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,tcp,nw_dst=10.0.0.2,tp_dst=80");
    let expected = "from p0: 02:00:00:00:00:01 > 02:00:00:00:00:02 IPv4 192.0.2.1.49152 > 10.0.0.2.80 TCP, 54 bytes\n\
                    \x20 1. it belongs to VLAN 10\n\
                    \x20 2. its source, 02:00:00:00:00:01, is new, and would be learned at p0\n\
                    \x20 3. its destination, 02:00:00:00:00:02, is unknown\n\
                    \x20 4. it is flooded\n\
                    \x20 5. VLAN 10 has no other port here; p1 is access:20\n\
                    \x20 6. p2 is access:30\n\
                    \x20 7. p3 is trunk:20,30\n\
                    \x20 8. dropped (no-destination): It had nowhere to go: no other port of its VLAN was up, or the logic left it undecided.\n\
                    \x20 => dropped: no-destination\n";
    assert_eq!(text, expected);
    let text = trace("in_port=p0,dl_vlan=20");
    assert!(
        text.contains(
            "  1. p0 is access:10: tagged packets, here of VLAN 20, may not enter\n  2. dropped (vlan): "
        ),
        "{text}"
    );
    let text = trace("in_port=p3,dl_vlan=30");
    assert!(text.contains("no other port of VLAN 30 can take it; p2 is administratively down\n"), "{text}");
}

#[test]
fn a_packet_can_be_written_as_text() {
    let rig = Rig::start("learning", &["", "", "", ""], "");
    let run = |arguments: &[&str]| rig.daemon.run(&[&["trace", "br0"], arguments].concat()).unwrap();
    let flow = run(&["--packet", "in_port=p0,dl_vlan=10,ip,nw_dst=10.0.0.2,tcp,tp_dst=80"]);
    let layers = "Ether()/Dot1Q(vlan=10)/IP(dst=\"10.0.0.2\")/TCP(dport=80)";
    assert_eq!(run(&["--port", "p0", "--packet", layers]), flow);
    assert!(flow.starts_with(
        "from p0: 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff VLAN 10 IPv4 192.0.2.1.49152 > 10.0.0.2.80 TCP, 58 bytes\n"
    ));
    let refusal_of = |arguments: &[&str]| refusal(&rig.daemon, &[&["trace", "br0"], arguments].concat());
    assert_eq!(
        refusal_of(&["--packet", "in_port=p0,tpc"]),
        "mswitch: --packet: unknown protocol `tpc`; did you mean `tcp`?\n"
    );
    assert_eq!(refusal_of(&["--packet", "tcp"]), "mswitch: the ingress port is missing; add --port PORT\n");
    assert_eq!(
        refusal_of(&["--port", "p1", "--packet", "in_port=p0,tcp"]),
        "mswitch: --port names `p1`, and `in_port` names `p0`; name one ingress port\n"
    );
}

/// Error message of a command that must fail.
fn refusal(daemon: &Daemon, arguments: &[&str]) -> String {
    let output = daemon.cli(arguments).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn invalid_traces_are_refused() {
    let rig = Rig::start("learning", &["", "", "", ""], "");
    let trace = |port, packet| refusal(&rig.daemon, &["trace", "br0", "--port", port, "--packet", packet]);
    assert!(trace("p9", "00").contains("has no port \"p9\""));
    assert!(trace("p0", "0g").contains("`g` is not a hexadecimal digit"));
    assert!(trace("p0", "012").contains("odd number of hexadecimal digits (3)"));
    let gone = refusal(&rig.daemon, &["trace", "br9", "--port", "p0", "--live", "1"]);
    assert!(gone.contains("there is no bridge \"br9\""), "{gone}");
    let short = rig.daemon.run(&["trace", "br0", "--port", "p0", "--packet", "0011"]).unwrap();
    assert!(short.ends_with("  => dropped: runt\n"), "{short}");
    let long = "00".repeat(65_536);
    let mut api = rig.api.clone();
    let request = proto::TracePacketRequest {
        bridge: "br0".into(),
        port: "p0".into(),
        packet: hex::parse(&long).unwrap(),
    };
    let refused = rig.runtime.block_on(api.trace_packet(request)).unwrap();
    assert_eq!(refused.into_inner().drops, ["oversize"]);
    let request = proto::TraceLiveRequest { bridge: "br0".into(), port: "p0".into(), count: 10_001 };
    let refused = rig.runtime.block_on(api.trace_live(request)).unwrap_err();
    assert_eq!(refused.message(), "cannot trace 10001 packets; expected 1 to 10000");
}

#[test]
fn live_packets_are_explained_as_they_arrive() {
    let (a, b) = (Netns::new().unwrap(), Netns::new().unwrap());
    let ports = config::tap("a", &unique("t"), a.name(), &["10.81.0.1/24"], "")
        + &config::tap("b", &unique("t"), b.name(), &["10.81.0.2/24"], "")
        + &config::memif("vm1", 0, "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let ping = || a.run(&["ping", "-q", "-i", "0.01", "-W", "5", "-c", "20", "10.81.0.2"]).unwrap();
    ping();
    let count = 8;
    let trace =
        daemon.command(&["trace", "br0", "--port", "a", "--live", &count.to_string(), "--json"]).unwrap();
    let mut trace = trace;
    let file = daemon.folder().join("live");
    let mut process = e2e::Running::start(trace.stdout(std::fs::File::create(&file).unwrap())).unwrap();
    // It reports packets that arrive while it watches, and ends by itself.
    let status = until("the trace to end", LIMIT, || {
        ping();
        process.ended()
    });
    assert!(status.unwrap().success());
    let text = std::fs::read_to_string(&file).unwrap();
    let traces: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(traces.len(), count);
    let echo = traces.iter().find(|trace| trace["packet"].as_str().unwrap()[24..28] == *"0800").unwrap();
    let steps: Vec<_> = echo["steps"].as_array().unwrap().iter().map(|step| step.as_str().unwrap()).collect();
    assert!(steps[0].ends_with("is known at a"), "{steps:?}");
    assert!(steps[1].starts_with("its destination") && steps[1].ends_with("is at b"), "{steps:?}");
    assert_eq!(echo["outputs"][0]["port"], "b");
    assert_eq!(echo["outputs"][0]["packet"], echo["packet"]);
    assert_eq!((&echo["length"], &echo["drops"]), (&98.into(), &serde_json::json!([])));

    // The trace ends with its bridge.
    let mut trace = daemon.command(&["trace", "br0", "--port", "vm1", "--live", "1"]).unwrap();
    let errors = daemon.folder().join("errors");
    let mut process = e2e::Running::start(
        trace.stdout(std::process::Stdio::null()).stderr(std::fs::File::create(&errors).unwrap()),
    )
    .unwrap();
    until("the trace to start", LIMIT, || {
        let bridge = daemon.json(&["bridge", "show", "br0"])?;
        Ok((bridge["observers"] == 1).then_some(()))
    })
    .unwrap();
    daemon.cli(&["bridge", "del", "br0"]).unwrap();
    let status = until("the trace to end with its bridge", LIMIT, || process.ended());
    assert_eq!(status.unwrap().code(), Some(1));
    let stderr = std::fs::read_to_string(&errors).unwrap();
    assert!(stderr.contains("the trace ended because bridge \"br0\" was removed"), "{stderr}");
}

/// Starts a live trace of one packet of a port, repeats `act` until it has ended, and returns its text.
fn live(daemon: &Daemon, port: &str, mut act: impl FnMut()) -> String {
    let file = daemon.folder().join("one");
    let mut trace = daemon.command(&["trace", "br0", "--port", port, "--live", "1"]).unwrap();
    let mut process = e2e::Running::start(trace.stdout(std::fs::File::create(&file).unwrap())).unwrap();
    let status = until("the trace to end", LIMIT, || {
        act();
        process.ended()
    });
    assert!(status.unwrap().success());
    std::fs::read_to_string(&file).unwrap()
}

#[test]
fn a_trace_names_a_port_whose_link_is_down() {
    let [a, b] = [0; 2].map(|_| Netns::new().unwrap());
    let interface = unique("t");
    let ports = config::tap("a", &unique("t"), a.name(), &["10.81.0.1/24"], "")
        + &config::tap("b", &interface, b.name(), &[], "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    b.run(&["ip", "link", "set", &interface, "down"]).unwrap();
    let reason = daemon.wait_down("br0", "b", "is set down").unwrap();
    let expected = format!("\n  => b, dropped: port-down ({reason})\n");
    let text = daemon.run(&["trace", "br0", "--packet", "in_port=a,arp"]).unwrap();
    assert!(text.ends_with(&expected), "{text}");
    let text = live(&daemon, "a", || {
        // The neighbour does not answer.
        let _ = a.command(&["ping", "-c", "1", "-W", "0.1", "10.81.0.2"]).output();
    });
    assert!(text.ends_with(&expected[expected.find(", dropped").unwrap()..]), "{text}");
}

#[test]
fn a_live_trace_names_the_other_vlan_of_a_destination() {
    let mut rig = Rig::start("learning", &["vlan = \"access:10\"\n", "vlan = \"access:20\"\n", "", ""], "");
    let packet = |to, from| [&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5][..], &[0; 46]].concat();
    rig.clients[1].send(&packet(9, 2)).unwrap();
    let Rig { daemon, clients, .. } = &mut rig;
    let text = live(daemon, "p0", || clients[0].send(&packet(2, 1)).unwrap());
    assert!(
        text.contains("its destination, 02:00:00:00:00:02, is unknown; it is at p1 in VLAN 20\n"),
        "{text}"
    );
}

//! The generator of the benchmarks: its counts against those of the switch, of testpmd, of the verifying client, and of
//! a peer that commits faults.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bench::packet::{Headers, Route, Verdict, Writer};
use bench::port::{Client, PortSpec, Rings, connect};
use e2e::{Daemon, Generator, Memory, Testpmd, config, exclusive, until};
use packet::MacAddr;
use serde_json::Value;

/// The run in the packets' stamps.
const RUN: u16 = 77;

/// Two bridges of two ports each: `a` and `x`, `y` and `b`. Whatever connects `x` and `y` is part of the way.
fn two_bridges() -> Daemon {
    let wired = |name: &str, from: &str, to: &str| {
        config::bridge(name, "static") + &format!("params = {{ {from} = \"{to}\" }}\n")
    };
    let first = wired("br0", "a", "x") + &config::memif("a", 0, "") + &config::memif("x", 1, "");
    let second = wired("br1", "y", "b") + &config::memif("y", 2, "") + &config::memif("b", 3, "");
    Daemon::start(&(first + &second)).unwrap()
}

/// One bridge that joins `a` and `b`.
fn one_bridge(a: &str, b: &str) -> Daemon {
    Daemon::start(&(config::bridge("br0", "static") + "params = { a = \"b\" }\n" + a + b)).unwrap()
}

fn memif(daemon: &Daemon, id: u32) -> String {
    format!("memif:{},id={id}", daemon.path("memif"))
}

/// A field that is a number.
fn number(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path} in {report}"))
}

fn count(report: &Value, path: &str) -> u64 {
    number(report, path) as u64
}

fn assert_ok(report: &Value) {
    assert_eq!(report.pointer("/ok"), Some(&Value::Bool(true)), "{report}");
}

#[test]
fn counts_agree_with_the_switch() {
    let _machine = exclusive();
    let daemon = one_bridge(&config::memif("a", 0, ""), &config::memif("b", 1, ""));
    let ports = [memif(&daemon, 0), memif(&daemon, 1)];
    let arguments = ["send", "--port", &ports[0], "--port", &ports[1], "--cpu", "1", "--announce", "no"];
    let paced = ["--warm-up", "0", "--seconds", "1", "--rate", "20k", "--in-flight", "256"];
    let checked = ["--flows", "50", "--order", "uniform", "--size", "64-1500", "--rtt", "--verify"];
    let report = Generator::run(&[&arguments[..], &paced, &checked].concat()).unwrap();
    assert_ok(&report);
    for (from, name) in ["a", "b"].into_iter().enumerate() {
        let direction = |field: &str| count(&report, &format!("/directions/{from}/{field}"));
        let (sent, received) = (direction("sent"), direction("received"));
        assert!(sent > 1000 && sent == received, "{report}");
        let port = daemon.port("br0", name).unwrap();
        assert_eq!((port.received(), port.dropped()), (sent, 0), "{}", port.json());
        assert_eq!(port.delivered(), count(&report, &format!("/directions/{}/received", from ^ 1)));
        let times = ["min", "p50", "p90", "p99", "p999", "max"];
        let times = times.map(|time| number(&report, &format!("/directions/{from}/rtt_ns/{time}")));
        assert!(times.is_sorted() && times[0] > 100.0 && times[5] < 1e9, "{times:?}");
        assert!(direction("rtt_ns/count") > 100, "{report}");
    }
}

#[test]
fn learning_switches_flood_nothing_after_announcements() {
    let _machine = exclusive();
    let ports: String = (0..3).map(|id| config::memif(&format!("v{id}"), id, "")).collect();
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let ports = [0, 1, 2].map(|id| memif(&daemon, id));
    let ports = ["--port", &ports[0], "--port", &ports[1], "--port", &ports[2], "--direction", "0:1,1:0"];
    let load =
        ["--macs", "500", "--order", "zipf", "--rate", "20k", "--seconds", "0.5", "--in-flight", "256"];
    let report = Generator::run(&[&["send", "--cpu", "1"], &ports[..], &load].concat()).unwrap();
    assert_ok(&report);
    assert!(count(&report, "/directions/0/received") > 500, "{report}");
    // Flooded packets would arrive there too.
    assert_eq!(count(&report, "/ports/2/received_by_queue/0"), 0, "{report}");
}

#[test]
fn virtio_user_devices_at_full_speed() {
    let _machine = exclusive();
    let daemon = one_bridge(&config::vhost_user("a", ""), &config::vhost_user("b", ""));
    let ports = ["a", "b"].map(|name| format!("virtio-user:{}", daemon.path(&format!("{name}.sock"))));
    let ports = ["--port", &ports[0], "--port", &ports[1], "--cpu", "1"];
    let load = ["--rate", "10%", "--trial", "0.3", "--warm-up", "0.1", "--seconds", "0.5"];
    let report = Generator::run(&[&["send"], &ports[..], &load].concat()).unwrap();
    for direction in 0..2 {
        let field = |name: &str| number(&report, &format!("/directions/{direction}/{name}"));
        assert!(field("maximum_pps") > 10_000.0 && field("received") > 1000.0, "{report}");
        assert!((field("offered_pps") / field("maximum_pps") - 0.1).abs() < 1e-6, "{report}");
        assert_eq!(field("duplicated") + field("reordered") + field("corrupted"), 0.0, "{report}");
    }
    assert!(number(&report, "/core/cycles_per_packet") > 10.0, "{report}");
}

/// What a faulty peer did to packets.
#[derive(Debug, Default)]
struct Faults {
    passed: u64,
    dropped: u64,
    duplicated: u64,
    swapped: u64,
    changed: u64,
}

/// Passes packets on, drops some, sends some twice or after the next one, and changes a byte of others. All arrive
/// unchanged, as the verifying client's format says.
fn commit_faults(
    mut from: Box<dyn Client>,
    mut to: Box<dyn Client>,
    stop: Arc<AtomicBool>,
) -> JoinHandle<Faults> {
    std::thread::spawn(move || {
        let route = Route {
            source: MacAddr::from_u64(0x0200_0000_0001),
            destination: MacAddr::from_u64(0x0200_0000_0002),
            reflected: false,
        };
        let mut writer = Writer::new(RUN, Headers::Udp, &[route]);
        let (mut faults, mut packet, mut held) = (Faults::default(), Vec::new(), None);
        let mut send = |packet: &[u8]| {
            while !to.push(0, &[packet]) {
                std::thread::yield_now();
            }
            to.flush(0);
        };
        while !stop.load(Ordering::Relaxed) {
            if !from.pop(0, &mut packet) {
                from.refill(0);
                std::thread::yield_now();
                continue;
            }
            let number = faults.passed;
            assert_eq!(writer.read(&packet), Verdict::Good { flow: 0, sequence: number });
            faults.passed += 1;
            match number % 100 {
                10 => faults.dropped += 1,
                20 => {
                    send(&packet);
                    send(&packet);
                    faults.duplicated += 1;
                }
                30 => {
                    held = Some(packet.clone());
                    faults.swapped += 1;
                }
                40 => {
                    packet[70] ^= 4;
                    send(&packet);
                    faults.changed += 1;
                }
                _ => send(&packet),
            }
            if let Some(held) = held.take_if(|_| number % 100 == 31) {
                send(&held);
            }
        }
        faults
    })
}

#[test]
fn faults_of_a_switch_are_counted() {
    let _machine = exclusive();
    let daemon = two_bridges();
    let stop = Arc::new(AtomicBool::new(false));
    let client = |id| connect(&daemon.memif("memif", id), Rings::default()).unwrap();
    let peer = commit_faults(client(1), client(2), stop.clone());
    let ports = [memif(&daemon, 0), memif(&daemon, 3)];
    let ports = ["--port", &ports[0], "--port", &ports[1], "--one-way", "--announce", "no", "--cpu", "1"];
    let load = ["--rate", "2k", "--seconds", "1", "--warm-up", "0", "--size", "100-300", "--run", "77"];
    let report = Generator::run(&[&["send", "--verify", "--rtt"], &ports[..], &load].concat()).unwrap();
    stop.store(true, Ordering::Relaxed);
    let faults = peer.join().unwrap();
    let field = |name: &str| count(&report, &format!("/directions/0/{name}"));
    assert_eq!(field("sent"), faults.passed, "{report}");
    assert!(faults.passed > 500, "{faults:?}");
    assert_eq!(field("lost"), faults.dropped + faults.changed, "{faults:?} {report}");
    assert_eq!(field("duplicated"), faults.duplicated, "{faults:?} {report}");
    assert_eq!(field("reordered"), faults.swapped, "{faults:?} {report}");
    assert_eq!(field("corrupted"), faults.changed, "{faults:?} {report}");
    assert_eq!(report.pointer("/ok"), Some(&Value::Bool(false)), "{report}");
}

#[test]
fn packets_of_the_verifying_client_are_received() {
    /// Fewer than the ring of a paused generator holds.
    const PACKETS: u64 = 1000;
    let _machine = exclusive();
    let daemon = one_bridge(&config::memif("a", 0, ""), &config::memif("b", 1, ""));
    let port = memif(&daemon, 1);
    let generator = Generator::start(&["receive", "--verify", "--port", &port, "--cpu", "1"]).unwrap();
    daemon.wait_up("br0", "b").unwrap();
    let spec: PortSpec = daemon.memif("memif", 0);
    let mut client = connect(&spec, Rings::default()).unwrap();
    daemon.wait_up("br0", "a").unwrap();
    let route = Route { source: spec.address(0), destination: spec.address(1), reflected: false };
    let writer = Writer::new(RUN, Headers::Udp, &[route; 3]);
    let mut packet = Vec::new();
    for number in 0..PACKETS {
        writer.write((number % 3) as u16, number / 3, 60 + number as usize, &mut packet);
        if number == PACKETS / 2 {
            packet[59] ^= 1;
        }
        until("room for a packet", Duration::from_secs(10), || Ok(client.push(0, &[&packet]).then_some(())))
            .unwrap();
        client.flush(0);
    }
    until("all packets to pass", Duration::from_secs(10), || {
        Ok((daemon.port("br0", "b")?.delivered() == PACKETS).then_some(()))
    })
    .unwrap();
    let report = generator.stop().unwrap();
    assert_eq!(count(&report, "/directions/0/received"), PACKETS - 1, "{report}");
    assert_eq!(count(&report, "/directions/0/corrupted"), 1, "{report}");
    assert_eq!(count(&report, "/run"), u64::from(RUN), "{report}");
    let faults = ["duplicated", "reordered", "stale"].map(|f| count(&report, &format!("/directions/0/{f}")));
    assert_eq!(faults, [0; 3], "{report}");
}

#[test]
fn a_function_joins_two_bridges() {
    let _machine = exclusive();
    let daemon = two_bridges();
    let function = [memif(&daemon, 1), memif(&daemon, 2)];
    let function = Generator::start(&["vnf", "--port", &function[0], "--port", &function[1]]).unwrap();
    daemon.wait_up("br0", "x").unwrap();
    daemon.wait_up("br1", "y").unwrap();
    let ports = [memif(&daemon, 0), memif(&daemon, 3)];
    let ports = ["--port", &ports[0], "--port", &ports[1], "--cpu", "1", "--announce", "no"];
    let load = ["--rate", "4k", "--seconds", "1", "--warm-up", "0", "--in-flight", "256", "--verify"];
    let report = Generator::run(&[&["send"], &ports[..], &load].concat()).unwrap();
    assert_ok(&report);
    let function = function.stop().unwrap();
    for port in 0..2 {
        let sent = count(&report, &format!("/directions/{port}/sent"));
        let fields = ["received", "forwarded", "dropped"];
        let counts = fields.map(|field| count(&function, &format!("/ports/{port}/{field}")));
        assert!(sent > 100, "{report}");
        assert_eq!(counts, [sent, sent, 0], "{report} {function}");
    }
}

#[test]
fn testpmd_counts_what_the_generator_counts() {
    const TESTPMD: &str = "02:00:00:00:77:01";
    let _machine = exclusive();
    let daemon = one_bridge(&config::memif("a", 0, ""), &config::memif("b", 1, ""));
    let device = format!("net_memif0,role=client,socket={},socket-abstract=no,id=1", daemon.path("memif"));
    let mut testpmd = Testpmd::start(Memory::Common, &[device], &["--forward-mode=macswap"]).unwrap();
    testpmd.command("start").unwrap();
    daemon.wait_up("br0", "b").unwrap();
    let port = memif(&daemon, 0);
    let load =
        ["--rate", "5k", "--seconds", "1", "--warm-up", "0", "--in-flight", "256", "--verify", "--rtt"];
    let arguments = ["send", "--port", &port, "--to", TESTPMD];
    let report = Generator::run(&[&arguments[..], &load].concat()).unwrap();
    assert_ok(&report);
    let sent = count(&report, "/directions/0/sent");
    assert!(sent > 100 && count(&report, "/directions/0/received") == sent, "{report}");
    testpmd.command("show port stats 0\nquit").unwrap();
    testpmd.wait_for("Bye").unwrap();
    let output = testpmd.output().unwrap();
    let counted = |name: &str| {
        let mut words = output.split_whitespace().skip_while(|word| *word != name);
        words.nth(1).and_then(|number| number.parse().ok())
    };
    assert_eq!((counted("RX-packets:"), counted("TX-packets:")), (Some(sent), Some(sent)), "{output}");
}

#[test]
fn runs_end_cleanly() {
    let _machine = exclusive();
    let output = |arguments: &[&str]| {
        let output = Generator::output(arguments).unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, errors) = output(&["send", "--port", "memif:/nowhere/x", "--size", "59"]);
    assert!(code == Some(2) && errors.contains("--size 59"), "{code:?} {errors}");
    let daemon = one_bridge(&config::memif("a", 0, ""), &config::memif("b", 1, ""));
    let absent = memif(&daemon, 9);
    let (code, errors) = output(&["send", "--port", &absent, "--connect", "0.2"]);
    assert!(code == Some(1) && errors.contains("not connected after 0.2 s"), "{code:?} {errors}");
    // A signal ends the run, which is reported.
    let ports = [memif(&daemon, 0), memif(&daemon, 1)];
    let arguments = ["send", "--port", &ports[0], "--port", &ports[1], "--rate", "1k", "--seconds", "100"];
    let generator = Generator::start(&arguments).unwrap();
    let folder = format!("/run/dpdk/mswitch-generator-{}", generator.pid());
    until("packets", Duration::from_secs(10), || {
        Ok((daemon.port("br0", "a")?.received() > 1000).then_some(()))
    })
    .unwrap();
    assert!(std::fs::exists(&folder).unwrap(), "{folder}");
    let report = generator.stop().unwrap();
    assert_eq!(report.pointer("/interrupted"), Some(&Value::Bool(true)), "{report}");
    assert!(!std::fs::exists(&folder).unwrap(), "{folder}");
    drop(daemon);
    // The end of the switch is a failure, and what arrived before is reported. DPDK's memif driver unmaps rings in a
    // thread of its own, also while they are read: a crash there, which is rare, is not what is tested here.
    let errors = (0..3).map(|_| end_of_the_switch()).find(|errors| !errors.contains("signal: 11")).unwrap();
    assert!(errors.contains("exit status: 1") && errors.contains("\"ok\":false"), "{errors}");
}

/// Stops the switch while the generator sends; returns what the generator says.
fn end_of_the_switch() -> String {
    let mut daemon = one_bridge(&config::memif("a", 0, ""), &config::memif("b", 1, ""));
    let ports = [memif(&daemon, 0), memif(&daemon, 1)];
    let arguments = ["send", "--port", &ports[0], "--port", &ports[1], "--rate", "1k", "--seconds", "100"];
    let generator = Generator::start(&arguments).unwrap();
    until("packets", Duration::from_secs(10), || {
        Ok((daemon.port("br0", "a")?.received() > 1000).then_some(()))
    })
    .unwrap();
    daemon.terminate().unwrap();
    generator.report().unwrap_err().0
}

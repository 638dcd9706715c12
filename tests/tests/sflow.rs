//! sFlow export: datagrams compared with the traffic by tshark, changes at run time, unreachable collectors and refused
//! settings.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bench::pace::Rate;
use bench::session::{Background, Options, Session};
use e2e::{Daemon, Netns, Running, config, exclusive, output, until};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(30);
const USUAL_PORT: u16 = 6343;

/// A daemon in its own namespace, with two memif ports in VLAN 7 and a third one without a client.
struct Rig {
    daemon: Daemon,
    netns: Netns,
}

fn rig(more: &str) -> Rig {
    let netns = Netns::new().unwrap();
    let ports: String =
        (0..3).map(|id| config::memif(&format!("p{id}"), id, "vlan = \"access:7\"")).collect();
    let text = format!("[daemon]\nmetrics = \"9101\"\n{more}\n{}{ports}", config::bridge("br0", "learning"));
    let daemon = netns.enter(|| Daemon::start(&text)).unwrap().unwrap();
    Rig { daemon, netns }
}

impl Rig {
    fn options(&self, pps: f64, time: Duration) -> Options {
        let mut options = Options::new(vec![self.daemon.memif("memif", 0), self.daemon.memif("memif", 1)]);
        options.sizes = "64-1400".parse().unwrap();
        options.rate = Rate::Pps(pps);
        options.duration = time;
        options
    }

    fn show(&self) -> Value {
        self.daemon.json(&["sflow", "show"]).unwrap()
    }

    /// Error message of a command that must fail.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.daemon.cli(arguments).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

/// A sample as collectors see it.
#[derive(Debug, Clone, PartialEq)]
enum Sample {
    Flow(Flow),
    Counters { sequence: u32, source: u32, packets_in: u32, packets_out: u32, bytes_in: u64, name: String },
}

#[derive(Debug, Clone, PartialEq)]
struct Flow {
    sequence: u32,
    source: u32,
    rate: u32,
    pool: u32,
    drops: u32,
    input: u32,
    output: u32,
    length: u32,
    header: Vec<u8>,
    vlans: Option<(u32, u32)>,
}

struct Datagram {
    agent: Ipv4Addr,
    sequence: u32,
    samples: Vec<Sample>,
}

/// Parser of XDR words.
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        bytes
    }

    fn word(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes(4).try_into().unwrap())
    }

    fn opaque(&mut self) -> &'a [u8] {
        let count = self.word() as usize;
        let bytes = self.bytes(count.next_multiple_of(4));
        &bytes[..count]
    }

    /// Reads this many records as pairs of format and content.
    fn framed(&mut self, count: u32) -> Vec<(u32, Words<'a>)> {
        let all = (0..count).map(|_| (self.word(), Words(self.opaque()))).collect();
        assert!(self.0.is_empty(), "{} trailing bytes", self.0.len());
        all
    }
}

fn read(datagram: &[u8]) -> Datagram {
    assert!(datagram.len() <= 1400, "{} bytes", datagram.len());
    let mut words = Words(datagram);
    assert_eq!((words.word(), words.word()), (5, 1), "version 5, an IPv4 agent");
    let agent = Ipv4Addr::from_bits(words.word());
    assert_eq!(words.word(), 0, "sub-agent");
    let (sequence, _uptime, count) = (words.word(), words.word(), words.word());
    let samples = words.framed(count).into_iter().map(|(format, words)| sample(format, words)).collect();
    Datagram { agent, sequence, samples }
}

fn sample(format: u32, mut words: Words<'_>) -> Sample {
    let (sequence, source) = (words.word(), words.word());
    if format == 2 {
        let count = words.word();
        let mut records: BTreeMap<u32, Words<'_>> = words.framed(count).into_iter().collect();
        let generic = records.get_mut(&1).unwrap();
        let index = generic.word();
        assert_eq!(index, source);
        generic.bytes(20);
        let bytes_in = (u64::from(generic.word()) << 32) | u64::from(generic.word());
        let packets_in = generic.word();
        generic.bytes(20 + 8);
        let packets_out = generic.word();
        let name = String::from_utf8(records.get_mut(&1005).unwrap().opaque().to_vec()).unwrap();
        return Sample::Counters { sequence, source, packets_in, packets_out, bytes_in, name };
    }
    assert_eq!(format, 1);
    let (rate, pool, drops) = (words.word(), words.word(), words.word());
    let (input, output, count) = (words.word(), words.word(), words.word());
    let mut records: BTreeMap<u32, Words<'_>> = words.framed(count).into_iter().collect();
    let sampled = records.get_mut(&1).unwrap();
    assert_eq!(sampled.word(), 1, "Ethernet");
    let length = sampled.word();
    assert_eq!(sampled.word(), 0, "stripped");
    let header = sampled.opaque().to_vec();
    let vlans = records.get_mut(&1001).map(|switch| {
        let source = switch.word();
        switch.word();
        (source, switch.word())
    });
    Sample::Flow(Flow { sequence, source, rate, pool, drops, input, output, length, header, vlans })
}

/// A collector that records its datagrams.
struct Collector {
    datagrams: Arc<Mutex<Vec<Vec<u8>>>>,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Collector {
    fn at(netns: &Netns, port: u16) -> Collector {
        let socket = netns.enter(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        // A large buffer holds datagrams while the thread below does not run.
        set_socket_recv_buffer_size_force(&socket, 16 << 20).unwrap();
        let (datagrams, over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (kept, ended) = (datagrams.clone(), over.clone());
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while !ended.load(Ordering::Relaxed) {
                if let Ok(length) = socket.recv(&mut buffer) {
                    kept.lock().unwrap().push(buffer[..length].to_vec());
                }
            }
        });
        Collector { datagrams, over, thread: Some(thread) }
    }

    fn read(&self) -> Vec<Datagram> {
        self.datagrams.lock().unwrap().iter().map(|datagram| read(datagram)).collect()
    }

    fn flows(&self) -> Vec<Flow> {
        let samples = self.read().into_iter().flat_map(|datagram| datagram.samples);
        samples.filter_map(|sample| if let Sample::Flow(flow) = sample { Some(flow) } else { None }).collect()
    }

    /// The last counters of each port, by name: packets in, packets out, bytes in.
    fn counters(&self) -> BTreeMap<String, (u32, u32, u64)> {
        let samples = self.read().into_iter().flat_map(|datagram| datagram.samples);
        let counters = samples.filter_map(|sample| match sample {
            Sample::Counters { packets_in, packets_out, bytes_in, name, .. } => {
                Some((name, (packets_in, packets_out, bytes_in)))
            }
            Sample::Flow(_) => None,
        });
        counters.collect()
    }

    /// Number of counter samples, of all ports.
    fn counter_samples(&self) -> usize {
        let samples = self.read().into_iter().flat_map(|datagram| datagram.samples);
        samples.filter(|sample| matches!(sample, Sample::Counters { .. })).count()
    }

    fn wait_for(&self, samples: &str, mut enough: impl FnMut(&[Flow]) -> bool) {
        until(samples, LIMIT, || Ok(enough(&self.flows()).then_some(()))).unwrap();
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Asserts that numbers are 1, 2, 3 and so on.
fn assert_consecutive(series: &str, numbers: impl IntoIterator<Item = u32>) {
    for (expected, number) in (1..).zip(numbers) {
        assert_eq!(number, expected, "{series}");
    }
}

/// Asserts that `count` of `packets` is plausible for sampling at one in `rate`: within five standard deviations.
fn assert_plausible(count: usize, packets: u64, rate: u32) {
    let (chance, count) = (1.0 / f64::from(rate), count as f64);
    let mean = packets as f64 * chance;
    let deviation = (mean * (1.0 - chance)).sqrt();
    assert!((count - mean).abs() <= 5.0 * deviation, "{count} of {packets} packets at 1 in {rate}");
}

fn stats(rig: &Rig) -> BTreeMap<String, (u32, u32, u64)> {
    let number = |value: &Value| value.as_u64().unwrap();
    let stats = rig.daemon.json(&["port", "stats", "br0"]).unwrap();
    let port = |port: &Value| {
        let (rx, tx) = (&port["totals"]["rx"], &port["totals"]["tx"]);
        let name = format!("br0/{}", port["name"].as_str().unwrap());
        (name, (number(&rx["packets"]) as u32, number(&tx["packets"]) as u32, number(&rx["bytes"])))
    };
    stats["ports"].as_array().unwrap().iter().map(port).collect()
}

/// Fields of each packet in a file, as lists of values from tshark. Sampled packets are not dissected: their random
/// ports would be taken for protocols.
fn tshark(file: &str, filter: &str, fields: &[&str]) -> Vec<Vec<Vec<String>>> {
    let mut arguments = vec!["-n", "-o", "sflow.enable_dissection:FALSE", "-r", file, "-Y", filter];
    arguments.extend(["-T", "fields", "-E", "aggregator=,"]);
    for field in fields {
        arguments.extend(["-e", field]);
    }
    let values = |text: &str| text.split(',').filter(|value| !value.is_empty()).map(str::to_owned).collect();
    let text = output("tshark", &arguments).unwrap();
    text.lines().map(|line| line.split('\t').map(values).collect()).collect()
}

#[test]
fn tshark_agrees_with_the_traffic() {
    const RATE: u32 = 20;
    let _machine = exclusive();
    let rig = rig("");
    let collector = Collector::at(&rig.netns, USUAL_PORT);
    let (wire, packets) = (rig.daemon.path("wire.pcapng"), rig.daemon.path("packets.pcapng"));
    let listen = ["tshark", "-q", "-i", "lo", "-f", "udp port 6343", "-w", &wire];
    let mut command = rig.netns.command(&listen);
    let mut listener = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
    // A capture of every packet runs beside it; observers are independent.
    let mut command = rig
        .daemon
        .command(&["capture", "br0", "--direction", "in", "--snaplen", "128", "--write", &packets])
        .unwrap();
    let mut capture = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
    for file in [&wire, &packets] {
        let started = || Ok(std::fs::metadata(file).is_ok_and(|meta| meta.len() > 100).then_some(()));
        until("tshark and the capture to start", LIMIT, started).unwrap();
    }

    let sampling = RATE.to_string();
    rig.daemon
        .run(&["sflow", "set", "--collectors", "127.0.0.1", "--sampling", &sampling, "--polling", "1"])
        .unwrap();
    let mut options = rig.options(6000.0, Duration::from_secs(3));
    options.least = 15_001;
    let report = Session::connect(options).unwrap().run(&AtomicBool::new(false)).unwrap();
    assert!(report.ok, "{report}");
    let stats = stats(&rig);
    until("the final counters", LIMIT, || Ok((collector.counters() == stats).then_some(()))).unwrap();
    // Counters follow earlier samples, and samples taken while counters are read precede the next ones.
    let polls = collector.counter_samples().div_ceil(stats.len()) + 1;
    until("the next counters", LIMIT, || {
        Ok((collector.counter_samples() >= polls * stats.len()).then_some(()))
    })
    .unwrap();
    let flows = collector.flows();
    let shown = until("all samples to be counted", LIMIT, || {
        Ok(Some(rig.show()).filter(|shown| shown["samples"].as_u64() == Some(flows.len() as u64)))
    })
    .unwrap();
    let metrics =
        "curl -sSf --max-time 10 http://127.0.0.1:9101/metrics | tee /dev/stderr | promtool check metrics";
    let metrics = rig.netns.command(&["sh", "-c", metrics]).output().unwrap();
    let scrape = String::from_utf8_lossy(&metrics.stderr);
    assert!(metrics.status.success(), "{scrape}");
    rig.daemon.run(&["sflow", "off"]).unwrap();
    assert_eq!(rig.show()["enabled"], false);

    let datagrams = collector.read();
    assert_consecutive("datagrams", datagrams.iter().map(|datagram| datagram.sequence));
    assert!(datagrams.iter().all(|datagram| datagram.agent == Ipv4Addr::LOCALHOST));
    assert_eq!(collector.flows(), flows, "samples after sFlow was switched off");
    let sent: u64 = stats.values().map(|(received, ..)| u64::from(*received)).sum();
    assert!(sent > 30_000, "{sent}");
    assert_plausible(flows.len(), sent, RATE);
    assert!(scrape.contains(&format!("\nmswitch_sflow_samples_total {}\n", flows.len())), "{scrape}");
    assert!(scrape.contains("\nmswitch_sflow_errors_total{collector=\"127.0.0.1:6343\"} 0\n"), "{scrape}");

    // Ports 0 and 1 have the interface indices 1 and 2.
    let ports = shown["ports"].as_array().unwrap();
    let index_and_name =
        |port: &Value| (port["if_index"].as_u64().unwrap(), port["port"].as_str().unwrap().to_owned());
    assert_eq!(
        ports.iter().map(index_and_name).collect::<Vec<_>>(),
        [(1, "p0".into()), (2, "p1".into()), (3, "p2".into())]
    );
    for (source, name) in [(1, "br0/p0"), (2, "br0/p1")] {
        let from: Vec<&Flow> = flows.iter().filter(|flow| flow.source == source).collect();
        assert_plausible(from.len(), stats[name].0.into(), RATE);
        assert_consecutive("samples of a port", from.iter().map(|flow| flow.sequence));
        assert!(from.is_sorted_by_key(|flow| flow.pool) && from.last().unwrap().pool <= stats[name].0);
        for flow in from {
            assert_eq!((flow.rate, flow.drops, flow.input, flow.output), (RATE, 0, source, 3 - source));
            assert_eq!(flow.vlans, Some((7, 7)));
            assert_eq!(flow.header.len() as u32, flow.length.min(128));
        }
        let counters =
            datagrams.iter().flat_map(|datagram| &datagram.samples).filter_map(|sample| match sample {
                Sample::Counters { sequence, source: from, .. } if *from == source => Some(*sequence),
                _ => None,
            });
        assert_consecutive("counter samples of a port", counters);
    }

    // Each sampled header is the start of a captured packet of the same length.
    assert!(capture.terminate().unwrap().success());
    let captured = captured(&std::fs::read(&packets).unwrap());
    assert_eq!(captured.len() as u64, sent, "captured packets");
    let captured: BTreeSet<_> = captured.into_iter().collect();
    assert!(captured.len() as u64 > sent - 100, "packets must be unique apart from announcements");
    for flow in &flows {
        assert!(captured.contains(&(flow.length, flow.header.clone())), "{flow:?} was never sent");
    }

    // Compare tshark's view of the wire, once its file is complete.
    until("the last datagram in the file", LIMIT, || {
        let lines = output("tshark", &["-n", "-r", &wire, "-Y", "sflow"]).unwrap_or_default();
        Ok((lines.lines().count() == datagrams.len()).then_some(()))
    })
    .unwrap();
    assert!(listener.terminate().unwrap().success());
    let all = tshark(&wire, "sflow", &["sflow_245.sampletype", "sflow_245.vlan.in"]);
    assert_eq!(all.len(), datagrams.len());
    let kinds: Vec<&String> = all.iter().flat_map(|packet| &packet[0]).collect();
    let flow_samples = kinds.iter().filter(|kind| kind.as_str() == "1").count();
    let counter_samples = kinds.iter().filter(|kind| kind.as_str() == "2").count();
    assert_eq!((flow_samples, flow_samples + counter_samples), (flows.len(), kinds.len()));
    assert_eq!(all.iter().flat_map(|packet| &packet[1]).filter(|vlan| *vlan == "7").count(), flows.len());
    let malformed =
        tshark(&wire, "_ws.malformed || _ws.expert || !sflow", &["frame.number", "_ws.expert.message"]);
    assert!(malformed.is_empty(), "{malformed:?}");
    let fields = ["sflow_245.ifindex", "sflow_245.ifinpkt", "sflow_245.ifoutpkt", "sflow_245.ifinoct"];
    let counters = tshark(&wire, "sflow_245.sampletype == 2", &fields);
    // Earlier samples may have filled a datagram, so one poll can span two.
    let of = |field: usize, back: usize| -> u64 {
        let values = counters.iter().flat_map(|packet| &packet[field]);
        values.rev().nth(back).unwrap().parse().unwrap()
    };
    for (i, name) in ["br0/p0", "br0/p1", "br0/p2"].iter().enumerate() {
        let of = |field| of(field, 2 - i);
        let (received, delivered, bytes) = stats[*name];
        let expected = (i as u64 + 1, received.into(), delivered.into(), bytes);
        assert_eq!((of(0), of(1), of(2), of(3)), expected, "{name}");
    }
}

/// Length and first 128 bytes of each packet in a pcapng file.
fn captured(file: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (mut at, mut found) = (0, Vec::new());
    while at < file.len() {
        // Enhanced packet block: interface, time, captured and original length, data.
        if word(at) == 6 {
            let (captured, length) = (word(at + 20) as usize, word(at + 24));
            found.push((length, file[at + 28..at + 28 + captured.min(128)].to_vec()));
        }
        at += word(at + 4) as usize;
    }
    found
}

#[test]
fn settings_change_under_traffic() {
    let _machine = exclusive();
    let rig = rig("[sflow]\ncollectors = [\"127.0.0.1\"]\nsampling = 100\nheader = 64\npolling = 0\n");
    let collector = Collector::at(&rig.netns, USUAL_PORT);
    let traffic = Background::start(rig.options(2000.0, Duration::from_secs(3600))).unwrap();
    collector.wait_for("samples with the settings of the file", |flows| flows.len() > 10);
    assert!(collector.flows().iter().all(|flow| flow.rate == 100 && flow.header.len() <= 64));
    assert_eq!(rig.daemon.run(&["config", "diff"]).unwrap(), "no differences\n");
    let bridges = rig.daemon.json(&["bridge", "list"]).unwrap();
    assert_eq!(bridges["bridges"][0]["observers"], 0, "sFlow does not count as an observer");

    rig.daemon.run(&["sflow", "set", "--sampling", "3", "--header", "96", "--agent", "192.0.2.7"]).unwrap();
    collector.wait_for("samples at another rate", |flows| {
        flows.iter().filter(|flow| flow.rate == 3 && flow.header.len() > 64).count() > 500
    });
    let flows = collector.flows();
    let first = flows.iter().position(|flow| flow.rate == 3).unwrap();
    assert!(flows[first..].iter().all(|flow| flow.rate == 3), "the new rate applies to all later samples");
    assert_eq!(collector.read().last().unwrap().agent, Ipv4Addr::new(192, 0, 2, 7));
    assert_consecutive("datagrams", collector.read().iter().map(|datagram| datagram.sequence));
    let diff = rig.daemon.differences(None).unwrap();
    assert_eq!(
        diff,
        "~ sflow\n    agent: 192.0.2.7 -> auto (default)\n    header: 96 -> 64\n    sampling: 3 -> 100\n"
    );

    // Saved, switched off, and switched on again by the file.
    let saved = rig.daemon.path("saved.toml");
    rig.daemon.run(&["config", "save", &saved]).unwrap();
    rig.daemon.run(&["sflow", "off"]).unwrap();
    let received = collector.datagrams.lock().unwrap().len();
    assert!(!rig.daemon.run(&["config", "show"]).unwrap().contains("sflow"));
    let dry = rig.daemon.run(&["config", "apply", &saved, "--dry-run"]).unwrap();
    assert!(dry.starts_with("+ sflow\n    agent: 192.0.2.7\n    collectors: 127.0.0.1:6343\n"), "{dry}");
    assert_eq!(rig.show()["enabled"], false);
    rig.daemon.run(&["config", "apply", &saved]).unwrap();
    // The last samples were sent before sFlow was switched off, but may have been read later.
    let (numbers, restart) = until("samples again", LIMIT, || {
        let numbers: Vec<u32> = collector.read().iter().map(|datagram| datagram.sequence).collect();
        let restart = (received..numbers.len()).find(|at| numbers[*at] == 1);
        Ok(restart.filter(|restart| numbers.len() > restart + 3).map(|restart| (numbers, restart)))
    })
    .unwrap();
    assert_consecutive("datagrams until it was off", numbers[..restart].iter().copied());
    assert_eq!(numbers[restart..restart + 3], [1, 2, 3], "a new exporter counts from 1");

    // A new bridge is sampled, and its ports have indices of their own.
    rig.daemon.run(&["bridge", "add", "br1"]).unwrap();
    let path = rig.daemon.path("other");
    rig.daemon.run(&["port", "add", "br1", "x", "--type", "memif", "--path", &path]).unwrap();
    let numbers = |shown: &Value| -> Vec<u64> {
        let ports = shown["ports"].as_array().unwrap();
        ports.iter().map(|port| port["if_index"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers(&rig.show()), [1, 2, 3, 4097]);
    rig.daemon.run(&["port", "del", "br0", "p2"]).unwrap();
    assert_eq!(numbers(&rig.show()), [1, 2, 4097], "remaining ports keep their indices");
    rig.daemon.run(&["bridge", "del", "br1"]).unwrap();
    assert_eq!(numbers(&rig.show()), [1, 2]);

    let report = traffic.stop().unwrap();
    assert!(report.ok, "{report}");
}

#[test]
fn an_unreachable_collector_disturbs_no_traffic() {
    let _machine = exclusive();
    // The first collector does not listen; the second has no route.
    let rig = rig("[sflow]\ncollectors = [\"127.0.0.1:7777\", \"203.0.113.9\"]\nsampling = 1\npolling = 1\n");
    let traffic = Background::start(rig.options(2000.0, Duration::from_secs(3600))).unwrap();
    let shown = until("errors of both collectors", LIMIT, || {
        let shown = rig.show();
        let errors = |i: usize| shown["collectors"][i]["errors"].as_u64().unwrap();
        Ok((errors(0) > 3 && errors(1) > 3).then_some(shown))
    })
    .unwrap();
    let error = |i: usize| shown["collectors"][i]["last_error"].as_str().unwrap().to_owned();
    assert_eq!(error(0), "connection refused; check that the collector is running");
    assert!(error(1).starts_with("unreachable: Network is unreachable"), "{}", error(1));
    assert!(error(1).ends_with("; check `ip route`"), "{}", error(1));
    let text = rig.daemon.run(&["sflow", "show"]).unwrap();
    assert!(text.contains("ago: connection refused"), "{text}");
    let log = rig.daemon.log();
    assert!(log.contains("sFlow: 203.0.113.9:6343: sending to collector failed (unreachable: "), "{log}");
    assert_eq!(log.matches("sFlow: 127.0.0.1:7777: ").count(), 1, "logged once a minute: {log}");

    // Collectors are served as soon as they listen and a route exists.
    let collector = Collector::at(&rig.netns, 7777);
    collector.wait_for("samples", |flows| flows.len() > 100);
    rig.netns.run(&["ip", "address", "add", "203.0.113.9/32", "dev", "lo"]).unwrap();
    let other = {
        let socket = rig.netns.enter(|| UdpSocket::bind(("203.0.113.9", USUAL_PORT)).unwrap()).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let mut buffer = [0; 2000];
        let length = socket.recv(&mut buffer).unwrap();
        read(&buffer[..length])
    };
    assert!(!other.samples.is_empty());

    let report = traffic.stop().unwrap();
    assert!(report.ok, "{report}");
}

#[test]
fn every_packet_under_load_is_sampled_or_counted() {
    let _machine = exclusive();
    let rig = rig("[sflow]\ncollectors = [\"127.0.0.1\"]\nsampling = 1\nheader = 512\npolling = 0\n");
    let collector = Collector::at(&rig.netns, USUAL_PORT);
    // More samples than an idle exporter's pages can hold.
    let mut options = rig.options(40_000.0, Duration::from_secs(2));
    options.allow_loss = true;
    let report = Session::connect(options).unwrap().run(&AtomicBool::new(false)).unwrap();
    assert!(report.ok, "{report}");
    let received: u64 = stats(&rig).values().map(|(received, ..)| u64::from(*received)).sum();
    let count = |shown: &Value, key: &str| shown[key].as_u64().unwrap();
    let shown = until("every packet to be sampled or counted", LIMIT, || {
        Ok(Some(rig.show()).filter(|shown| count(shown, "samples") + count(shown, "dropped") == received))
    })
    .unwrap();
    println!("{received} packets, {} sampled, {} dropped", shown["samples"], shown["dropped"]);
    let mut drops = BTreeMap::new();
    for flow in collector.flows() {
        assert!(flow.header.len() <= 512);
        drops.insert(flow.source, flow.drops);
    }
    assert!(drops.values().map(|drops| u64::from(*drops)).sum::<u64>() <= count(&shown, "dropped"));
}

#[test]
fn samples_name_the_output_ports() {
    const SEVERAL: u32 = 2 << 30;
    const DISCARDED: u32 = 1 << 30;
    let _machine = exclusive();
    let rig = rig("[sflow]\ncollectors = [\"127.0.0.1\"]\nsampling = 1\npolling = 0\n");
    let collector = Collector::at(&rig.netns, USUAL_PORT);
    // On return, all ports are down again and every packet has been sampled.
    let run = |options: Options| {
        let ports: Vec<_> = (0..options.ports.len()).map(|id| format!("p{id}")).collect();
        let mut session = Session::connect(options).unwrap();
        ports.iter().for_each(|port| drop(rig.daemon.wait_up("br0", port).unwrap()));
        let report = session.run(&AtomicBool::new(false)).unwrap();
        assert!(report.ok, "{report}");
        drop(session);
        ports.iter().for_each(|port| drop(rig.daemon.wait_down("br0", port, "").unwrap()));
        let sent: u64 = stats(&rig).values().map(|(received, ..)| u64::from(*received)).sum();
        collector.wait_for("every packet", |flows| flows.len() as u64 == sent);
    };
    // Announcements are broadcasts to all three other ports; other packets are unicast.
    rig.daemon
        .run(&[
            "port",
            "add",
            "br0",
            "p3",
            "--type",
            "memif",
            "--path",
            &rig.daemon.path("memif"),
            "--id",
            "3",
            "--vlan",
            "access:7",
        ])
        .unwrap();
    let mut options = rig.options(200.0, Duration::from_millis(500));
    options.ports.extend([2, 3].map(|id| rig.daemon.memif("memif", id)));
    options.least = 1;
    run(options);
    let flows = collector.flows();
    let flooded = |flow: &Flow| flow.output == SEVERAL | 3 && flow.vlans == Some((7, 7));
    assert!(flows.iter().any(flooded), "no packet to three ports: {flows:?}");
    for (input, output) in [(1, 2), (2, 1), (3, 4), (4, 3)] {
        let found = flows.iter().any(|flow| (flow.input, flow.output) == (input, output));
        assert!(found, "no packet from port {input} to port {output} alone: {flows:?}");
    }
    // A packet to a port without a client is dropped, with the general reason (256) and without a VLAN.
    rig.daemon.run(&["logic", "set", "br0", "static", "--param", "p0=p2", "--param", "p1=p0"]).unwrap();
    let before = flows.len();
    let mut options = rig.options(200.0, Duration::from_millis(500));
    (options.allow_loss, options.announce) = (true, false);
    // A sender that was not scheduled for a while sends too little in its time, so it runs again.
    until("both directions", LIMIT, || {
        run(options.clone());
        let flows = collector.flows();
        let from = |source| flows[before..].iter().filter(|flow| flow.source == source).count();
        Ok((from(1) > 50 && from(2) > 50).then_some(()))
    })
    .unwrap();
    for flow in &collector.flows()[before..] {
        match flow.source {
            1 => assert_eq!((flow.output, flow.vlans), (DISCARDED | 256, Some((7, 0))), "{flow:?}"),
            _ => assert_eq!((flow.output, flow.vlans), (1, Some((7, 7))), "{flow:?}"),
        }
    }
}

#[test]
fn invalid_settings_are_refused() {
    let rig = rig("");
    let set = |arguments: &[&str]| rig.refused(&[&["sflow", "set"], arguments].concat());
    let needed =
        "sFlow needs a collector: name one with `collectors` in `[sflow]`, or with `--collectors 192.0.2.9`";
    assert!(set(&["--sampling", "7"]).contains(needed));
    for (arguments, expected) in [
        (
            ["--collectors", "x.example"],
            "`x.example` is not a collector; expected an IP address such as 192.0.2.9",
        ),
        (["--agent", "eth0"], "`eth0` is not an agent address; expected the IP address of this switch"),
        (["--sampling", "0"], "a sampling rate of 1 in 0 is out of range; expected 1 to 1000000000"),
        (
            ["--polling", "86401"],
            "a polling interval of 86401 s is out of range; expected 1 to 86400, or 0 for no counters",
        ),
        (["--header", "513"], "a header of 513 bytes is out of range; expected 14 to 512"),
    ] {
        let message = set(&[&["--collectors", "192.0.2.1"], &arguments[..]].concat());
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
    let twice = set(&["--collectors", "192.0.2.1", "--collectors", "192.0.2.1:6343"]);
    assert!(twice.contains("collector 192.0.2.1:6343 is listed twice; list it once"), "{twice}");
    assert_eq!(rig.show()["enabled"], false, "nothing was changed");
    let off = rig.daemon.run(&["sflow", "show"]).unwrap();
    assert_eq!(off, "sFlow is off; `mswitch sflow set --collectors ADDRESS` switches it on\n");
    rig.daemon.run(&["sflow", "off"]).unwrap();
}

//! Metrics for Prometheus: the daemon and Debian's Prometheus in a network namespace of their own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bench::pace::Rate;
use bench::session::{Background, Options, Session};
use e2e::{Daemon, Netns, Running, config, exclusive, until};
use serde_json::Value;

/// A port number alone means loopback. In its own namespace the port is free.
const METRICS: &str = "9101";
const URL: &str = "http://127.0.0.1:9101/metrics";
const PROMETHEUS: &str = "127.0.0.1:9090";

struct Rig {
    // Dropped in this order: the daemon, then its namespace.
    daemon: Daemon,
    netns: Netns,
}

fn rig(ports: u32) -> Rig {
    let netns = Netns::new().unwrap();
    let ports: String = (0..ports).map(|id| config::memif(&format!("p{id}"), id, "")).collect();
    let text = format!("[daemon]\nmetrics = \"{METRICS}\"\n{}{ports}", config::bridge("br0", "learning"));
    let daemon = netns.enter(|| Daemon::start(&text)).unwrap().unwrap();
    Rig { daemon, netns }
}

impl Rig {
    fn scrape(&self) -> String {
        self.netns.run(&["curl", "-sSf", "--max-time", "10", URL]).unwrap()
    }

    fn options(&self) -> Options {
        Options::new(vec![self.daemon.memif("memif", 0), self.daemon.memif("memif", 1)])
    }

    /// Exchanges more than a hundred packets in each direction, and disconnects the senders.
    fn traffic(&self) {
        let mut options = self.options();
        options.least = 101;
        let report = Session::connect(options).unwrap().run(&AtomicBool::new(false)).unwrap();
        assert!(report.ok, "{report}");
        for port in ["p0", "p1"] {
            self.daemon.wait_down("br0", port, "").unwrap();
        }
    }
}

/// Parses the samples of a scrape.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect()
}

#[test]
fn promtool_accepts_a_scrape() {
    let rig = rig(2);
    rig.traffic();
    let mut promtool = rig.netns.command(&["promtool", "check", "metrics"]);
    promtool.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().unwrap();
    promtool.stdin.take().unwrap().write_all(rig.scrape().as_bytes()).unwrap();
    let verdict = promtool.wait_with_output().unwrap();
    let output = String::from_utf8_lossy(&[verdict.stdout, verdict.stderr].concat()).into_owned();
    assert!(verdict.status.success() && output.is_empty(), "{}: {output}", verdict.status);
}

#[test]
fn a_scrape_agrees_with_port_stats() {
    let rig = rig(3);
    rig.traffic();
    let text = rig.scrape();
    let metrics = samples(&text);
    let stats = rig.daemon.json(&["port", "stats"]).unwrap();
    let of_ports = |text: &str| {
        let lines = text.lines().filter(|line| line.starts_with("mswitch_port_"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of_ports(&rig.scrape()), of_ports(&text), "counters changed between the scrapes");
    let ports = stats["ports"].as_array().unwrap();
    assert_eq!(ports.len(), 3);
    for port in ports {
        let labels = format!("{{bridge=\"br0\",port={}}}", port["name"]);
        for (direction, totals) in [("receive", &port["totals"]["rx"]), ("transmit", &port["totals"]["tx"])] {
            for (metric, field) in [
                ("packets", "packets"),
                ("bytes", "bytes"),
                ("batches", "batches"),
                ("dropped_packets", "dropped"),
            ] {
                let name = format!("mswitch_port_{direction}_{metric}_total{labels}");
                assert_eq!(Some(metrics[name.as_str()]), totals[field].as_f64(), "{name}\n{text}");
            }
        }
        let up = metrics[format!("mswitch_port_up{labels}").as_str()];
        assert_eq!(up, f64::from(u8::from(port["link"] == "up")), "{port}");
    }
    assert!(metrics["mswitch_port_receive_packets_total{bridge=\"br0\",port=\"p0\"}"] > 100.0, "{text}");
    assert!(metrics["mswitch_worker_busy_seconds_total{worker=\"0\"}"] > 0.0, "{text}");
    assert!(metrics["mswitch_bridge_fdb_learned_total{bridge=\"br0\"}"] >= 2.0, "{text}");
}

/// Starts Prometheus with the daemon as its only target.
fn prometheus(rig: &Rig) -> Running {
    let file = rig.daemon.path("prometheus.yml");
    let text = "global: { scrape_interval: 250ms }\nscrape_configs:\n\
                - { job_name: mswitch, static_configs: [ { targets: [ '127.0.0.1:9101' ] } ] }\n";
    std::fs::write(&file, text).unwrap();
    let log = std::fs::File::create(rig.daemon.path("prometheus.log")).unwrap();
    let storage = format!("--storage.tsdb.path={}", rig.daemon.path("prometheus"));
    let (config, listen) = (format!("--config.file={file}"), format!("--web.listen-address={PROMETHEUS}"));
    let mut command = rig.netns.command(&["prometheus", &config, &storage, &listen]);
    Running::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log)).unwrap()
}

/// Answer of Prometheus to a query: the value of the only series, if it exists.
fn query(rig: &Rig, expression: &str) -> Option<f64> {
    let url = format!("http://{PROMETHEUS}/api/v1/query");
    let expression = format!("query={expression}");
    let curl = ["curl", "-sS", "--max-time", "5", "-G", &url, "--data-urlencode", &expression];
    // The connection fails until Prometheus serves.
    let reply: Value = serde_json::from_str(&rig.netns.run(&curl).ok()?).ok()?;
    reply["data"]["result"][0]["value"][1].as_str()?.parse().ok()
}

#[test]
fn prometheus_sees_counters_grow() {
    let _machine = exclusive();
    let rig = rig(2);
    let mut options = rig.options();
    options.duration = Duration::from_secs(3600);
    let traffic = Background::start(options).unwrap();
    let mut prometheus = prometheus(&rig);

    let patience = Duration::from_secs(60);
    let counter = "mswitch_port_transmit_packets_total{job=\"mswitch\",bridge=\"br0\",port=\"p1\"}";
    let first =
        until("Prometheus to scrape", patience, || Ok(query(&rig, counter).filter(|count| *count > 0.0)))
            .unwrap();
    until("the counter to grow", patience, || Ok(query(&rig, counter).filter(|count| *count > first)))
        .unwrap();
    let rate = format!("rate({counter}[5s])");
    until("a rate near the sender's 1,000 a second", patience, || {
        Ok(query(&rig, &rate).filter(|rate| (500.0..1500.0).contains(rate)))
    })
    .unwrap();
    assert_eq!(query(&rig, "up{job=\"mswitch\"}"), Some(1.0));
    assert_eq!(query(&rig, "mswitch_port_up{port=\"p0\"}"), Some(1.0));

    assert!(prometheus.terminate().unwrap().success());
    let report = traffic.stop().unwrap();
    assert!(report.ok, "{report}");
}

/// Scrapes a thousand ports repeatedly, beside traffic that must not lose a packet.
#[test]
fn scraping_a_thousand_ports_does_not_disturb_traffic() {
    const SCRAPES: u32 = 20;
    let _machine = exclusive();
    let rig = rig(1000);
    let before = rig.daemon.cpu_time().unwrap();
    for _ in 0..SCRAPES {
        assert!(rig.scrape().contains("mswitch_port_up{bridge=\"br0\",port=\"p999\"} 0"));
    }
    let each = (rig.daemon.cpu_time().unwrap() - before) / SCRAPES;
    println!("{} KiB and {each:?} of CPU time a scrape", rig.scrape().len() / 1024);
    assert!(each < Duration::from_millis(100), "{each:?} of CPU time a scrape");

    let mut options = rig.options();
    options.rate = Rate::Pps(2000.0);
    options.duration = Duration::from_secs(3600);
    let traffic = Background::start(options).unwrap();
    for _ in 0..SCRAPES {
        rig.scrape();
    }
    let report = traffic.stop().unwrap();
    assert!(report.ok, "{report}");
}

#[test]
fn other_requests_get_an_error_and_stalled_ones_time_out() {
    let rig = rig(1);
    let status = |arguments: &[&str]| {
        let curl = ["curl", "-sS", "--max-time", "10", "-o", "/dev/null", "-w", "%{http_code}"];
        rig.netns.run(&[&curl, arguments].concat()).unwrap()
    };
    assert_eq!(status(&[URL]), "200");
    assert_eq!(status(&["-I", URL]), "200");
    assert_eq!(status(&["-X", "POST", URL]), "405");
    assert_eq!(status(&["http://127.0.0.1:9101/"]), "404");

    let send = |bytes: &[u8]| {
        let mut connection = TcpStream::connect(("127.0.0.1", 9101)).unwrap();
        connection.write_all(bytes).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        connection
    };
    rig.netns
        .enter(|| {
            let mut silent: Vec<_> = (0..20).map(|_| send(b"GET /metr")).collect();
            let mut complete = send(b"GET /metrics HTTP/1.0\r\n\r\n");
            let mut reply = String::new();
            complete.read_to_string(&mut reply).unwrap();
            assert!(reply.contains(" 200 OK") && reply.contains("mswitch_build_info"), "{reply}");
            // The connection ends, with or without an error.
            let _ = silent[0]
                .read_to_end(&mut Vec::new())
                .map_err(|e| assert_ne!(e.kind(), std::io::ErrorKind::WouldBlock));
        })
        .unwrap();
}

#[test]
fn an_address_in_use_is_named() {
    let rig = rig(1);
    let refusal = |arguments: &[&str]| {
        let program = e2e::binary("mswitch", "MSWITCH_BIN").unwrap();
        let socket = rig.daemon.path("other");
        let line = [&[program.to_str().unwrap(), "daemon", "--socket", &socket], arguments].concat();
        let output = rig.netns.command(&line).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let taken = refusal(&["--metrics", METRICS]);
    assert!(taken.contains("cannot serve metrics on 127.0.0.1:9101: Address already in use"), "{taken}");
    assert!(taken.contains("choose another address with `metrics` in `[daemon]` or --metrics"), "{taken}");
    let wrong = refusal(&["--metrics", "everywhere"]);
    assert!(wrong.contains("--metrics: `everywhere` is not an address for metrics"), "{wrong}");
}

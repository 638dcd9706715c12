//! Graphs of functions: chained logics and patched bridges, with the host's stack at their ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::{Duration, Instant};

use e2e::{Daemon, Netns, config, exclusive, ping_all, seconds, unique, until};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(20);

/// Pings without loss.
fn ping(from: &Netns, to: &str, count: u32) {
    ping_all(from, to, count, "0.01").unwrap();
}

/// The graph of docs/graph.toml, with each TAP in a namespace of its own.
struct Graph {
    // Dropped in this order: interfaces, then namespaces.
    daemon: Daemon,
    client: Netns,
    left: Netns,
    _right: Netns,
    host: Netns,
}

impl Graph {
    fn start() -> Graph {
        let [client, left, right, host] = std::array::from_fn(|_| Netns::new().unwrap());
        let mut text = include_str!("../../docs/graph.toml").to_owned();
        for (name, netns) in [("client", &client), ("left", &left), ("right", &right), ("host", &host)] {
            let tap = format!("name = \"{name}\"\ntype = \"tap\"\n");
            assert!(text.contains(&tap), "docs/graph.toml has no TAP port {name}");
            text = text.replace(&tap, &format!("{tap}netns = \"{}\"\n", netns.name()));
        }
        let daemon = Daemon::start(&text).unwrap();
        Graph { daemon, client, left, _right: right, host }
    }

    /// Packets sent by one end of the patch and received by the other, for both directions.
    fn crossed(&self) -> [(u64, u64); 2] {
        let up = self.daemon.port("access", "uplink").unwrap();
        let down = self.daemon.port("core", "access").unwrap();
        [(up.delivered(), down.received()), (down.delivered(), up.received())]
    }

    /// Waits until at least `least` packets have crossed in each direction and both ends count the same. Namespaces
    /// send announcements at any time, also between two readings.
    fn wait_crossed(&self, least: u64) {
        let same = |(out, into): &(u64, u64)| out == into && *out >= least;
        until("both sides of the patch to count the same", LIMIT, || {
            Ok(self.crossed().iter().all(same).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error}: {:?}", self.crossed()));
    }
}

/// Runs iperf3 over TCP and returns bits a second.
fn iperf(from: &Netns, to: &Netns, address: &str, arguments: &[&str]) -> f64 {
    let server = to.start(&["iperf3", "-s", "-1", "-B", address]).unwrap();
    until("iperf3 to listen", LIMIT, || Ok(to.run(&["ss", "-Hltn"])?.contains(":5201").then_some(())))
        .unwrap();
    let output = from.run(&[&["iperf3", "-J", "-c", address], arguments].concat()).unwrap();
    server.output().unwrap();
    let report: Value = serde_json::from_str(&output).unwrap();
    report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap()
}

#[test]
fn one_file_composes_a_graph() {
    let _machine = exclusive();
    let graph = Graph::start();
    ping(&graph.client, "10.9.0.1", 20);
    ping(&graph.host, "10.9.0.2", 20);
    ping(&graph.left, "10.9.1.2", 20);
    graph.wait_crossed(40);

    // TCP in both directions; segments arrive unsegmented.
    let large = "ip and tcp and greater 3000";
    let tcpdump =
        ["tcpdump", "-n", "-e", "-l", "--immediate-mode", "-Q", "in", "-s", "128", "-c", "20", "-i", "host"];
    let tcpdump = graph.host.start(&[&tcpdump[..], &[large]].concat()).unwrap();
    let time = seconds(2, 10).as_secs().to_string();
    for direction in [&[][..], &["-R"]] {
        let rate = iperf(&graph.client, &graph.host, "10.9.0.1", &[&["-t", &time], direction].concat());
        assert!(rate > 1e8, "{direction:?}: {rate} bit/s");
        println!("{direction:?}: {rate} bit/s");
    }
    let frames = tcpdump.output().unwrap();
    assert_eq!(frames.lines().count(), 20, "{frames}");
    graph.wait_crossed(40);
    let stations = graph.daemon.run(&["fdb", "show", "core"]).unwrap();
    assert!(stations.contains("access") && stations.contains("host"), "{stations}");
    let shown = graph.daemon.run(&["port", "show", "access", "uplink"]).unwrap();
    assert!(shown.contains("core/access"), "{shown}");
}

#[test]
fn a_patch_is_down_while_its_peer_is_missing() {
    let graph = Graph::start();
    let daemon = &graph.daemon;
    ping(&graph.client, "10.9.0.1", 5);
    daemon.run(&["port", "del", "core", "access"]).unwrap();
    let reason = daemon.wait_down("access", "uplink", "there is no patch port core/access").unwrap();
    assert_eq!(reason, "there is no patch port core/access; add it with peer = \"access/uplink\"");
    ping(&graph.left, "10.9.1.2", 5);
    daemon.run(&["port", "add", "core", "access", "--type", "patch", "--peer", "access/elsewhere"]).unwrap();
    daemon.wait_down("access", "uplink", "core/access names access/elsewhere as its peer").unwrap();
    daemon.run(&["port", "del", "core", "access"]).unwrap();
    daemon.run(&["port", "add", "core", "access", "--type", "patch", "--peer", "access/uplink"]).unwrap();
    daemon.wait_up("access", "uplink").unwrap();
    daemon.wait_up("core", "access").unwrap();
    ping(&graph.client, "10.9.0.1", 5);
    daemon.run(&["port", "set", "core", "access", "--admin", "down"]).unwrap();
    daemon.wait_down("access", "uplink", "its peer core/access is administratively down").unwrap();
    daemon.run(&["port", "set", "core", "access", "--admin", "up"]).unwrap();
    daemon.wait_up("access", "uplink").unwrap();
    ping(&graph.client, "10.9.0.1", 5);
    // Delete a whole bridge and add it again.
    daemon.run(&["bridge", "del", "core"]).unwrap();
    daemon.wait_down("access", "uplink", "there is no patch port core/access").unwrap();
    ping(&graph.left, "10.9.1.2", 5);

    let refused = |arguments: &[&str]| {
        let output = daemon.cli(arguments).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let error = refused(&["port", "add", "access", "x", "--type", "patch", "--peer", "core"]);
    assert!(error.contains("`core` is not a port of a bridge: BRIDGE/PORT is expected"), "{error}");
    let error = refused(&["port", "add", "access", "x", "--type", "patch"]);
    assert!(error.contains("`--peer` is missing: required for a patch port"), "{error}");
    let error = refused(&["port", "add", "access", "x", "--type", "patch", "--peer", "core/access"]);
    assert!(error.contains("the connection to core/access"), "{error}");
    let error = refused(&["logic", "set", "access", "chain", "--param", "1=chain 1=hub"]);
    assert!(error.contains("a logic other than `chain`"), "{error}");
}

/// Packets that a port dropped because of a loop.
fn loop_drops(daemon: &Daemon, bridge: &str, port: &str) -> u64 {
    let port = daemon.port(bridge, port).unwrap();
    port.json()["totals"]["tx"]["drops"]["loop"].as_u64().unwrap_or(0)
}

/// Two hubs connected by two cables: packets circulate until they reach the hop limit.
#[test]
fn a_loop_is_bounded_and_affects_no_other_bridge() {
    let _machine = exclusive();
    let [a, b, x, y] = std::array::from_fn(|_| Netns::new().unwrap());
    let tap = |name: &str, netns: &Netns, address: &str| {
        config::tap(name, &unique("t"), netns.name(), &[address], "")
    };
    let patch = |name: &str, peer: &str| config::port(name, "patch", &format!("peer = \"{peer}\""));
    let text = config::bridge("one", "hub")
        + &tap("a", &a, "10.8.0.1/24")
        + &patch("p", "two/p")
        + &patch("q", "two/q")
        + &config::bridge("two", "hub")
        + &tap("b", &b, "10.8.0.2/24")
        + &patch("p", "one/p")
        + &patch("q", "one/q")
        + &config::bridge("aside", "learning")
        + &tap("x", &x, "10.8.1.1/24")
        + &tap("y", &y, "10.8.1.2/24");
    let daemon = Daemon::start(&text).unwrap();
    // Everything arrives, although several times.
    let neighbour = |netns: &Netns| netns.run(&["ping", "-q", "-c", "3", "-i", "0.2", "-W", "5", "10.8.0.2"]);
    let output = neighbour(&a).unwrap();
    assert!(output.contains(" 0% packet loss") && output.contains("duplicates"), "{output}");
    let drops =
        || ["one", "two"].map(|bridge| loop_drops(&daemon, bridge, "p") + loop_drops(&daemon, bridge, "q"));
    let before = drops();
    assert!(before.iter().sum::<u64>() > 0, "{before:?}");

    // During a flood into the loop, the other bridge loses nothing.
    let flood = a.start(&["ping", "-q", "-f", "-w", "2", "-b", "10.8.0.255"]).unwrap();
    ping(&x, "10.8.1.2", 100);
    let _ = flood.output();
    assert!(drops() > before);
    // No packet circulates any more: the daemon sleeps.
    let (start, cpu) = (Instant::now(), daemon.cpu_time().unwrap());
    let idle = until("a second without traffic to cost less than 50 ms", LIMIT, || {
        let (now, used) = (Instant::now(), daemon.cpu_time()?);
        std::thread::sleep(Duration::from_secs(1));
        let cost = (daemon.cpu_time()? - used).div_f64(now.elapsed().as_secs_f64());
        Ok((cost < Duration::from_millis(50)).then_some(cost))
    });
    println!("{:?} of {:?}, idle {idle:?}", daemon.cpu_time().unwrap() - cpu, start.elapsed());
    idle.unwrap();
}

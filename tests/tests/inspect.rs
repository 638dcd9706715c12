//! `inspect`: patterns in the payloads of real connections, in front of a learning bridge, and on a bridge of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use e2e::{Daemon, Netns, config, unique, until};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(20);
/// A connection without an answer for so long is cut.
const SILENCE: Duration = Duration::from_secs(3);
const SERVER: &str = "10.79.0.2:5001";

/// A client and a server at TAP ports `a` and `b`.
struct Pair {
    daemon: Daemon,
    client: Netns,
    server: Netns,
}

impl Pair {
    fn new(logic: &str, params: &str) -> Self {
        let [client, server] = std::array::from_fn(|_| Netns::new().unwrap());
        let mut text = config::bridge("br0", logic) + &format!("[bridge.params]\n{params}\n");
        for ((guest, name), address) in [&client, &server].into_iter().zip(["a", "b"]).zip(1..) {
            text += &config::tap(name, &unique("t"), guest.name(), &[&format!("10.79.0.{address}/24")], "");
        }
        let daemon = Daemon::start(&text).unwrap();
        Self { daemon, client, server }
    }

    /// Starts a server that returns each byte.
    fn serve(&self) {
        let listener = self.server.enter(|| TcpListener::bind(SERVER).unwrap()).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = stream.read(&mut bytes) {
                        if stream.write_all(&bytes[..count]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
    }

    fn connect(&self) -> TcpStream {
        let address: SocketAddr = SERVER.parse().unwrap();
        let stream = self.client.enter(|| TcpStream::connect_timeout(&address, LIMIT).unwrap()).unwrap();
        stream.set_read_timeout(Some(SILENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// A counter of the bridge's logic.
    fn counter(&self, name: &str) -> u64 {
        let shown = self.daemon.json(&["logic", "show", "br0"]).unwrap();
        let counters = shown["counters"].as_array().unwrap();
        counters.iter().find(|counter| counter["name"] == name).unwrap()["value"].as_u64().unwrap()
    }

    /// Cells of a table of the bridge's logic.
    fn rows(&self, table: &str) -> Vec<Vec<String>> {
        let shown = self.daemon.json(&["logic", "show", "br0"]).unwrap();
        let tables = shown["tables"].as_array().unwrap();
        let table = tables.iter().find(|shown| shown["name"] == table).unwrap();
        let cells = |row: &Value| {
            let cells = row["cells"].as_array().unwrap();
            cells.iter().map(|cell| cell.as_str().unwrap().to_owned()).collect()
        };
        table["rows"].as_array().unwrap().iter().map(cells).collect()
    }
}

/// Sends bytes and waits for their return.
fn echo(stream: &mut TcpStream, bytes: &[u8]) -> Result<(), ErrorKind> {
    stream.write_all(bytes).map_err(|error| error.kind())?;
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).map_err(|error| error.kind())?;
    assert_eq!(back, bytes);
    Ok(())
}

#[test]
fn a_pattern_in_two_writes_ends_its_connection_and_no_other() {
    let pair = Pair::new(
        "chain",
        "1 = \"inspect '1=tcp port 5001 /evil[0-9]/ -> drop' '2=/hello/i -> count'\"\n2 = \"learning\"",
    );
    pair.serve();
    let (mut bad, mut bystander) = (pair.connect(), pair.connect());
    // Large writes arrive as large segments, which the switch hands on as they are.
    let bulk = vec![b'.'; 300_000];
    let mut writer = bystander.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| writer.write_all(&bulk).unwrap());
        let mut back = vec![0; bulk.len()];
        bystander.read_exact(&mut back).unwrap();
        assert!(back == bulk);
    });
    echo(&mut bad, b"HELLO, ev").unwrap();
    echo(&mut bystander, b"an ev").unwrap();
    assert!(pair.rows("stage1_flows").iter().all(|row| row[4] == "-"));
    assert!(echo(&mut bad, b"il7 follows").is_err(), "the pattern has passed");
    for _ in 0..5 {
        echo(&mut bystander, b"il and more").unwrap();
    }
    let rules = pair.rows("stage1_rules");
    assert_eq!(rules[0], ["1", "1", "1", "tcp port 5001 /evil[0-9]/", "drop"]);
    // The greeting, and its echo.
    assert_eq!(rules[1][1..3], ["2", "1"]);
    let flows = pair.rows("stage1_flows");
    let own = format!("{}", bad.local_addr().unwrap());
    let cut: Vec<_> = flows.iter().filter(|row| row[4] == "1").collect();
    assert_eq!(cut.len(), 1, "{flows:?}");
    assert_eq!(cut[0][1..4], ["tcp", own.as_str(), SERVER], "{flows:?}");

    // The same rules in another order of stages keep the verdict; the connection stays cut.
    let first = "1=inspect flows=4096 '1=tcp port 5001 /evil[0-9]/ -> drop' '2=/hello/i -> count'";
    pair.daemon.run(&["logic", "set", "br0", "chain", "--param", first, "--param", "2=learning"]).unwrap();
    assert!(pair.rows("stage1_flows").iter().any(|row| row[4] == "1"));
    assert!(echo(&mut bad, b"still there?").is_err());
    echo(&mut bystander, b"still there?").unwrap();
}

#[test]
fn gaps_that_are_dropped_do_not_stop_a_connection() {
    // One of 16 segments of the client is lost in front of the stage, by its identification; repeated ones have others.
    let params = "1 = \"pcap-filter '1=tcp dst port 5001 and ip[4:2] & 15 = 7 -> drop'\"
                  2 = \"inspect gaps=drop '1=/evil/ -> drop'\"
                  3 = \"learning\"";
    let pair = Pair::new("chain", params);
    let devices = pair.client.run(&["ip", "-o", "-4", "addr", "show", "up"]).unwrap();
    let device = devices.lines().find(|line| line.contains("10.79.0.1")).unwrap();
    let device = device.split_whitespace().nth(1).unwrap();
    pair.client.run(&["ip", "link", "set", device, "gso_max_segs", "1"]).unwrap();
    pair.serve();
    let mut stream = pair.connect();
    let bulk = vec![b'.'; 200_000];
    let mut writer = stream.try_clone().unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| writer.write_all(&bulk).unwrap());
        let mut back = vec![0; bulk.len()];
        stream.read_exact(&mut back).unwrap();
        assert!(back == bulk);
    });
    assert!(pair.counter("stage2_dropped_gaps") > 0);
    assert!(pair.counter("stage2_scanned_bytes") >= 2 * bulk.len() as u64, "both directions");
}

#[test]
fn datagrams_are_diverted_and_rules_replaced() {
    let pair = Pair::new("inspect", "default = \"b\"\n1 = \"udp port 5001 /^probe/ -> port lab\"");
    // One direction suffices for UDP: the neighbour is known.
    let line = |netns: &Netns| netns.run(&["ip", "-o", "link"]).unwrap();
    let (client, server) = (line(&pair.client), line(&pair.server));
    let device = |text: &str| {
        let line = text.lines().find(|line| !line.contains("LOOPBACK")).unwrap();
        line.split_whitespace().nth(1).unwrap().trim_end_matches(':').to_owned()
    };
    let address = {
        let line = server.lines().find(|line| !line.contains("LOOPBACK")).unwrap();
        line.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).unwrap().to_owned()
    };
    let neighbour = [
        "ip",
        "neigh",
        "replace",
        "10.79.0.2",
        "lladdr",
        &address,
        "dev",
        &device(&client),
        "nud",
        "permanent",
    ];
    pair.client.run(&neighbour).unwrap();
    let receiver = pair.server.enter(|| UdpSocket::bind(SERVER).unwrap()).unwrap();
    receiver.set_read_timeout(Some(SILENCE)).unwrap();
    let sender = || {
        let socket = pair.client.enter(|| UdpSocket::bind("10.79.0.1:0").unwrap()).unwrap();
        socket.connect(SERVER).unwrap();
        socket
    };
    let (one, other) = (sender(), sender());
    let mut bytes = [0; 64];
    let mut received =
        || receiver.recv(&mut bytes).map(|count| bytes[..count].to_vec()).map_err(|error| error.kind());
    one.send(b"a probe").unwrap();
    assert_eq!(received().unwrap(), b"a probe");
    other.send(b"probe").unwrap();
    one.send(b"next").unwrap();
    assert_eq!(received().unwrap(), b"next", "the probe went elsewhere, where nobody is yet");
    until("the diverted packet", LIMIT, || Ok((pair.rows("rules")[0][1] == "1").then_some(()))).unwrap();
    assert_eq!(pair.counter("diverted"), 1);

    let refused = |rule: &str| {
        let output = pair.daemon.cli(&["logic", "set", "br0", "inspect", "--param", rule]).unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = refused("1=udp /pro(be/ -> drop");
    let expected = "parameter `1` of logic `inspect`: unclosed group\n\
                    mswitch:   udp /pro(be/ -> drop\n\
                    mswitch:           ^\n";
    assert!(said.contains(expected), "{said}");
    // The list in use is the old one.
    one.send(b"more").unwrap();
    assert_eq!(received().unwrap(), b"more");
    let packet = "Ether()/IP(dst=\"10.79.0.2\")/UDP(dport=5001)/Raw(\"probe\")";
    let text = pair.daemon.run(&["trace", "br0", "--port", "a", "--packet", packet]).unwrap();
    assert!(text.contains("matches up to byte 5 of the payload: port lab"), "{text}");
    pair.daemon
        .run(&["logic", "set", "br0", "inspect", "--param", "default=b", "--param", "1=/next/ -> drop"])
        .unwrap();
    other.send(b"probe").unwrap();
    assert_eq!(received().unwrap(), b"probe", "other rules keep no verdict");
}

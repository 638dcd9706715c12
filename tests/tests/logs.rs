//! Log lines and events that clients can cause.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use bench::session::{Options, Session};
use e2e::frames::Sender;
use e2e::{Daemon, Running, config, until};

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn violations_of_port_security_are_events() {
    let ports = config::memif("a", 0, "max-stations = 1\nvlan = \"access:7\"\n")
        + &config::memif("b", 1, "sources = [\"10.0.0.5\"]\n");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let mut clients = [0, 1].map(|id| Sender::connect(&daemon, id).unwrap());
    for name in ["a", "b"] {
        daemon.wait_up("br0", name).unwrap();
    }
    let frame = |station: u8| [&[0xff; 6][..], &[2, 0, 0, 0, 0, station], &[0x88, 0xb5], &[0; 46]].concat();
    clients[0].send(&frame(1)).unwrap();

    let mut watch = daemon.command(&["events", "--kind", "port-security", "--json"]).unwrap();
    let file = daemon.folder().join("events");
    let mut watch = Running::start(watch.stdout(std::fs::File::create(&file).unwrap())).unwrap();
    let mut sent = 0;
    let mut next = |client: &mut Sender, packet: &[u8], reason: &str| {
        until("the event of the violation", LIMIT, || {
            sent += 1;
            client.send(packet)?;
            let text = std::fs::read_to_string(&file)?;
            let events = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            Ok(events.into_iter().find(|event| event["reason"] == reason))
        })
        .unwrap()
    };
    let event = next(&mut clients[0], &frame(2), "station-limit");
    assert_eq!(
        (&event["kind"], &event["bridge"], &event["port"]),
        (&"port-security".into(), &"br0".into(), &"a".into())
    );
    assert_eq!((&event["mac"], &event["vlan"]), (&"02:00:00:00:00:02".into(), &7.into()));
    assert!(event["dropped"].as_u64().is_some_and(|dropped| dropped > 0), "{event}");
    let ip = [&[0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 6, 10, 0, 0, 1][..], &[0; 26]].concat();
    let stranger = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 3], &[8, 0], &ip].concat();
    let event = next(&mut clients[1], &stranger, "source-guard");
    assert_eq!(
        (&event["port"], &event["mac"], &event["vlan"]),
        (&"b".into(), &"02:00:00:00:00:03".into(), &0.into())
    );
    assert_eq!(event["address"], "10.0.0.6");

    // At most one event a second for each port and reason.
    let start = std::time::Instant::now();
    let before = std::fs::read_to_string(&file).unwrap().lines().count();
    for _ in 0..2000 {
        clients[0].send(&frame(4)).unwrap();
    }
    let seconds = start.elapsed().as_secs() as usize;
    let more = std::fs::read_to_string(&file).unwrap().lines().count() - before;
    assert!(more <= seconds + 2, "{more} events in {seconds} s");
    watch.kill().unwrap();
}

/// Events of some kinds while `act` is repeated, until one of them is `wanted`.
fn event(
    daemon: &Daemon,
    kinds: &[&str],
    mut act: impl FnMut(),
    wanted: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    let kinds = kinds.iter().flat_map(|kind| ["--kind", kind]);
    let arguments: Vec<_> = ["events", "--json"].into_iter().chain(kinds).collect();
    let file = daemon.folder().join("some-events");
    let mut watch = daemon.command(&arguments).unwrap();
    let mut watch = Running::start(watch.stdout(std::fs::File::create(&file).unwrap())).unwrap();
    let found = until("the event", LIMIT, || {
        act();
        let text = std::fs::read_to_string(&file)?;
        let events = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        Ok(events.into_iter().find(&wanted))
    });
    watch.kill().unwrap();
    found.unwrap()
}

#[test]
fn exceeded_rate_limits_are_events() {
    let keys = "police = \"2pps burst 1\"\nstorm-broadcast = \"1pps burst 1\"\n";
    let ports = config::memif("a", 0, keys) + &config::memif("b", 1, "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let mut client = Sender::connect(&daemon, 0).unwrap();
    daemon.wait_up("br0", "a").unwrap();
    for (kind, to, limit) in
        [("storm-control", 0xff, "storm-broadcast = 1pps burst 1"), ("policed", 2, "police = 2pps burst 1")]
    {
        let frame = [&[to; 6][..], &[2, 0, 0, 0, 0, 1], &[0x88, 0xb5], &[0; 46]].concat();
        let found = event(&daemon, &[kind], || client.send(&frame).unwrap(), |_| true);
        assert_eq!(
            (&found["kind"], &found["port"], &found["limit"]),
            (&kind.into(), &"a".into(), &limit.into())
        );
        assert!(found["dropped"].as_u64().is_some_and(|dropped| dropped > 0), "{found}");
    }
}

#[test]
fn stations_at_the_wrong_port_are_events() {
    let listed = "stations = [\"02:00:00:00:00:01\"]\n";
    let ports = config::memif("a", 0, listed) + &config::memif("b", 1, "") + &config::memif("c", 2, "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let mut clients = [0, 1, 2].map(|id| Sender::connect(&daemon, id).unwrap());
    for name in ["a", "b", "c"] {
        daemon.wait_up("br0", name).unwrap();
    }
    let frame = |station: u8| [&[0xff; 6][..], &[2, 0, 0, 0, 0, station], &[0x88, 0xb5], &[0; 46]].concat();
    let conflict = |found: &serde_json::Value| found["kind"] == "fdb-conflict";
    let found = event(&daemon, &["fdb-conflict"], || clients[1].send(&frame(1)).unwrap(), conflict);
    assert_eq!(
        (&found["port"], &found["owner"], &found["reason"], &found["mac"]),
        (&"b".into(), &"a".into(), &"stations".into(), &"02:00:00:00:00:01".into())
    );

    let mut turn = 1;
    let moved = |found: &serde_json::Value| found["port"] == "c";
    let found = event(
        &daemon,
        &["fdb-moved"],
        || {
            turn = 3 - turn;
            clients[turn].send(&frame(5)).unwrap();
        },
        moved,
    );
    assert_eq!((&found["from"], &found["mac"]), (&"b".into(), &"02:00:00:00:00:05".into()));

    // A static entry for a station that is somewhere else.
    clients[2].send(&frame(6)).unwrap();
    let notes = |mac: &str, port: &str| {
        let output = daemon.cli(&["fdb", "add", "br0", mac, "--port", port]).unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let note = notes("02:00:00:00:00:06", "b");
    let start = "mswitch: note: station 02:00:00:00:00:06 was heard ";
    assert!(
        note.starts_with(start) && note.ends_with(" s ago at port c; its packets now go to port b\n"),
        "{note}"
    );
    assert_eq!(notes("02:00:00:00:00:07", "b"), "");
    assert_eq!(
        notes("02:00:00:00:00:01", "b"),
        "mswitch: note: port a lists station 02:00:00:00:00:01 in `stations`; the static entry at port b comes first\n"
    );
    assert_eq!(
        notes("02:00:00:00:00:06", "c"),
        "mswitch: note: station 02:00:00:00:00:06 had a static entry at port b; its packets now go to port c\n"
    );
}

/// Number of log lines about memif clients.
fn lines(daemon: &Daemon) -> usize {
    daemon.log().lines().filter(|line| line.contains("memif ")).count()
}

#[test]
fn a_reconnecting_client_does_not_fill_the_log() {
    let ports = config::memif("a", 0, "") + &config::memif("b", 1, "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let reconnect = || {
        let options = Options::new(vec![daemon.memif("memif", 0), daemon.memif("memif", 1)]);
        drop(Session::connect(options).unwrap());
        daemon.wait_down("br0", "a", "closed").unwrap();
        daemon.wait_down("br0", "b", "closed").unwrap();
    };
    for _ in 0..10 {
        reconnect();
    }
    // Without a limit: two ports with two lines each a round, so forty.
    let count = lines(&daemon);
    assert!((20..30).contains(&count), "{count} lines: {}", daemon.log());
    until("a line with the number of suppressed lines", Duration::from_secs(30), || {
        reconnect();
        Ok(daemon.log().contains("suppressed=").then_some(()))
    })
    .unwrap();
}

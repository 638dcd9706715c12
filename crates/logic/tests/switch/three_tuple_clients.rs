//! Clients of `three-tuple`'s socket: requests, limits, and what ends reservations.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::rig::wait_for;
use crate::three_tuple::Site;

struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(path: &str) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(BufReader::new(stream))
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// The next answer; empty at the end of the connection.
    fn answer(&mut self) -> String {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            // It ends with a reset if requests were left unread.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => String::new(),
            read => read.map(|_| line).unwrap(),
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\n").as_bytes());
        self.answer()
    }
}

/// A site with a socket in a folder of its own.
fn site() -> (Site, String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reserve").display().to_string();
    (Site::with_params(&[("socket", &path), ("mac", "02:00:00:00:00:01")]), path, folder)
}

fn reservations(site: &Site) -> usize {
    site.logic.tables()[0].rows.len()
}

#[test]
fn requests_are_answered_line_by_line() {
    let (site, path, _folder) = site();
    let mut client = Client::connect(&path);
    assert_eq!(client.ask("mac"), "ok 02:00:00:00:00:01\n");
    assert_eq!(client.ask("reserve s1 tcp 192.0.2.1 80-89"), "ok\n");
    assert_eq!(
        client.ask("reserve s1 tcp 192.0.2.1"),
        "error `reserve s1 tcp 192.0.2.1` is not a request: `reserve PORT PROTOCOL ADDRESS LOCAL-PORTS`, \
         `release PORT PROTOCOL ADDRESS LOCAL-PORTS` or `mac` is expected\n"
    );
    client.send(b"\xff\nreserve s2 udp 192.0.2.1 53\nre");
    assert_eq!(client.answer(), "error the request is not UTF-8 text\n");
    assert_eq!(client.answer(), "ok\n");
    client.send(b"lease s2 udp 192.0.2.1 53\n");
    assert_eq!(client.answer(), "ok\n");
    let mut other = Client::connect(&path);
    let refused = other.ask("release s1 tcp 192.0.2.1 80-89");
    assert_eq!(refused, "error port `s1` has no reservation of exactly tcp 192.0.2.1 80-89 by this client\n");
    assert_eq!(reservations(&site), 1);
    client.send(&[b'x'; 300]);
    assert_eq!(client.answer(), "error the request is longer than 256 bytes\n");
    assert_eq!(client.answer(), "");
    wait_for("the reservation to end", || reservations(&site) == 0);
    assert_eq!(other.ask("reserve s2 tcp 192.0.2.1 80"), "ok\n");
}

#[test]
fn a_flood_of_requests_is_slowed_down_and_others_are_served() {
    let (site, path, _folder) = site();
    let mut flood = Client::connect(&path);
    let start = Instant::now();
    let requests: String = (1..=80).map(|port| format!("reserve s1 tcp 192.0.2.1 {port}\n")).collect();
    flood.send(requests.as_bytes());
    let mut other = Client::connect(&path);
    assert_eq!(other.ask("reserve s2 udp 192.0.2.1 53"), "ok\n");
    let answers: Vec<_> = (0..80).map(|_| flood.answer()).collect();
    // 32 at once, the others at 100 a second.
    assert!(start.elapsed() >= Duration::from_millis(400), "{:?}", start.elapsed());
    let (granted, refused) = answers.split_at(64);
    assert!(granted.iter().all(|answer| answer == "ok\n"));
    let limit = "error this client has 64 reservations, as many as it may have\n";
    assert!(refused.iter().all(|answer| answer == limit), "{refused:?}");
    assert_eq!(reservations(&site), 65);
    // Requests of a client that has gone are not carried out.
    flood.send(&b"release s1 tcp 192.0.2.1 1\n".repeat(1000));
    drop(flood);
    wait_for("the reservations to end", || reservations(&site) == 1);
    assert_eq!(other.ask("reserve s1 tcp 192.0.2.1 1"), "ok\n");
}

#[test]
fn ranges_cost_time_that_others_do_not_pay() {
    let (_site, path, _folder) = site();
    let (mut greedy, mut other) = (Client::connect(&path), Client::connect(&path));
    let start = Instant::now();
    assert_eq!(other.ask("reserve s2 tcp 192.0.2.1 6400"), "ok\n");
    let refused = greedy.ask("reserve s1 tcp 192.0.2.1 1-6400");
    assert!(refused.starts_with("error tcp 192.0.2.1 6400 is reserved for port `s2`"), "{refused}");
    assert_eq!(other.ask("mac"), "ok 02:00:00:00:00:01\n");
    greedy.send(b"mac\n");
    assert_eq!(greedy.answer(), "ok 02:00:00:00:00:01\n");
    // As many requests as 6400 / 64, of which 32 were free.
    assert!(start.elapsed() >= Duration::from_millis(600), "{:?}", start.elapsed());
}

#[test]
fn connections_are_bounded() {
    let (_site, path, _folder) = site();
    let mut clients: Vec<_> = (0..64).map(|_| Client::connect(&path)).collect();
    for client in &mut clients {
        assert_eq!(client.ask("mac"), "ok 02:00:00:00:00:01\n");
    }
    let mut late = Client::connect(&path);
    let refused = late.answer();
    assert!(refused.starts_with("error too many connections: 64 of 64"), "{refused}");
    assert_eq!(late.answer(), "");
    clients.pop();
    wait_for("a place", || Client::connect(&path).ask_if_open("mac").is_some());
}

impl Client {
    /// As [`Client::ask`]; `None` if the connection is refused.
    fn ask_if_open(&mut self, line: &str) -> Option<String> {
        let _ = self.0.get_mut().write_all(format!("{line}\n").as_bytes());
        let mut answer = String::new();
        self.0.read_line(&mut answer).ok().filter(|_| answer.starts_with("ok "))?;
        Some(answer)
    }
}

#[test]
fn the_socket_ends_with_the_logic() {
    let (site, path, _folder) = site();
    let mut client = Client::connect(&path);
    assert_eq!(client.ask("reserve s1 tcp 192.0.2.1 80"), "ok\n");
    site.rig.switch.set_logic(site.rig.bridge, crate::rig::make("hub", &[])).unwrap();
    drop(site.logic);
    assert!(!std::path::Path::new(&path).exists());
    assert_eq!(client.answer(), "");
}

#[test]
fn workers_and_other_logics_come_before_the_first_port() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reserve").display().to_string();
    let logic = |socket: &str| {
        let given = [("host", "a"), ("uplink", "b"), ("socket", socket), ("mac", "02:00:00:00:00:01")];
        let logic = crate::rig::make("three-tuple", &given);
        logic.set_bridge(&path);
        logic
    };
    let rig = crate::rig::Rig::new(1, logic(&path));
    rig.switch.add_worker(None).unwrap();
    rig.switch.set_logic(rig.bridge, logic(&path)).unwrap();
    rig.switch.add_worker(None).unwrap();
    assert_eq!(Client::connect(&path).ask("mac"), "ok 02:00:00:00:00:01\n");
    let other = folder.path().join("other").display().to_string();
    rig.switch.set_logic(rig.bridge, logic(&other)).unwrap();
    assert!(!std::path::Path::new(&path).exists());
    assert_eq!(Client::connect(&other).ask("mac"), "ok 02:00:00:00:00:01\n");
}

#[test]
fn a_socket_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let path = file.display().to_string();
    let logic = crate::rig::make("three-tuple", &[("host", "a"), ("uplink", "b"), ("socket", &path)]);
    let rig = crate::rig::Rig::new(1, crate::rig::make("hub", &[]));
    let error = rig.switch.set_logic(rig.bridge, logic).unwrap_err().to_string();
    assert!(error.contains(&format!("{path}: a file that is not a socket is in the way")), "{error}");
}

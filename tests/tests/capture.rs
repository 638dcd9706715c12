//! `mswitch capture`, read by tshark: live, filtered, truncated, counted, in file rings, and with a comment for each
//! packet.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bench::pace::Rate;
use bench::port::Rings;
use bench::session::{Options, Session};
use e2e::{Daemon, Netns, Running, config, exclusive, output, ping_all, unique, until};

const LIMIT: Duration = Duration::from_secs(20);

/// Two namespaces, `a` and `b`, on one bridge.
fn two(more: &str) -> (Daemon, Netns, Netns) {
    let (a, b) = (Netns::new().unwrap(), Netns::new().unwrap());
    let ports = config::tap("a", &unique("t"), a.name(), &["10.79.0.1/24"], "")
        + &config::tap("b", &unique("t"), b.name(), &["10.79.0.2/24"], "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports + more)).unwrap();
    (daemon, a, b)
}

fn ping(from: &Netns, to: &str, count: u32) {
    ping_all(from, to, count, "0.01").unwrap();
}

/// Number of captures and traces that watch `br0`.
fn observers(daemon: &Daemon) -> u64 {
    daemon.json(&["bridge", "show", "br0"]).unwrap()["observers"].as_u64().unwrap()
}

fn wait_observers(daemon: &Daemon, count: u64) {
    let watched = || Ok((observers(daemon) == count).then_some(()));
    until(&format!("{count} observers"), LIMIT, watched).unwrap();
}

/// A running capture.
struct Capture {
    process: Running,
    file: std::path::PathBuf,
    errors: std::path::PathBuf,
}

impl Capture {
    /// Starts a capture to a file of this name in the daemon's folder.
    fn to_file(daemon: &Daemon, name: &str, arguments: &[&str]) -> Capture {
        let (file, errors) = (daemon.folder().join(name), daemon.folder().join(format!("{name}.errors")));
        let path = file.display().to_string();
        let mut command =
            daemon.command(&[&["capture", "br0", "--write", &path], arguments].concat()).unwrap();
        command.stdout(Stdio::null()).stderr(std::fs::File::create(&errors).unwrap());
        let process = Running::start(&mut command).unwrap();
        Capture { process, file, errors }
    }

    /// Starts a capture to a file and waits until it watches: until its first interface blocks follow the section
    /// header of 60 bytes.
    fn watching(daemon: &Daemon, name: &str, arguments: &[&str]) -> Capture {
        let mut capture = Capture::to_file(daemon, name, arguments);
        until("the capture to start", LIMIT, || {
            assert!(capture.process.ended()?.is_none(), "{}", capture.errors());
            Ok(std::fs::metadata(&capture.file).is_ok_and(|meta| meta.len() > 100).then_some(()))
        })
        .unwrap();
        capture
    }

    fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default()
    }

    /// Ends the capture with SIGTERM.
    fn end(&mut self) -> String {
        assert!(self.process.terminate().unwrap().success(), "{}", self.errors());
        self.errors()
    }

    /// Waits until the capture has ended by itself.
    fn ended(&mut self) -> String {
        assert!(self.process.wait(LIMIT).unwrap().success(), "{}", self.errors());
        self.errors()
    }
}

/// Fields of each packet of a file, as tshark prints them.
fn tshark(file: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let path = file.display().to_string();
    let mut arguments = vec!["-n", "-r", &path, "-T", "fields"];
    for field in fields {
        arguments.extend(["-e", field]);
    }
    let text = output("tshark", &arguments).unwrap();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// tshark's output lines, fed live by a capture.
struct Live {
    capture: Running,
    tshark: Child,
    lines: mpsc::Receiver<String>,
}

impl Live {
    fn start(daemon: &Daemon, arguments: &[&str], fields: &[&str]) -> Live {
        let mut command = daemon.command(&[&["capture", "br0", "--write", "-"], arguments].concat()).unwrap();
        let (from, to) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let capture = Running::start(command.stdout(to).stderr(Stdio::null())).unwrap();
        // As users do: fed through a pipe, flushed after each packet.
        let mut command = Command::new("tshark");
        command.args(["-n", "-l", "-r", "-", "-T", "fields"]);
        for field in fields {
            command.args(["-e", field]);
        }
        // tshark alone holds the pipe's end; otherwise it would not see the end of the capture.
        let from: OwnedFd = from;
        let mut tshark = command.stdin(from).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (send, lines) = mpsc::channel();
        let stdout: ChildStdout = tshark.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        Live { capture, tshark, lines }
    }

    /// Waits for a matching line during the capture.
    fn wait_for(&mut self, matches: impl Fn(&str) -> bool) {
        let deadline = std::time::Instant::now() + LIMIT;
        let mut last = String::new();
        while let Ok(line) =
            self.lines.recv_timeout(deadline.saturating_duration_since(std::time::Instant::now()))
        {
            if matches(&line) {
                assert!(self.capture.ended().unwrap().is_none(), "the capture has ended");
                return;
            }
            last = line;
        }
        panic!("no matching line from tshark; last: {last}");
    }

    /// Ends the capture; tshark must then end with success.
    fn end(mut self) {
        assert!(self.capture.terminate().unwrap().success());
        until("tshark to end", LIMIT, || Ok(self.tshark.try_wait()?))
            .map(|status| assert!(status.success()))
            .unwrap();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.tshark.kill();
        let _ = self.tshark.wait();
    }
}

#[test]
fn a_tap_port_is_captured_live_under_iperf3() {
    let _machine = exclusive();
    let (daemon, a, b) = two("");
    let arguments = ["--port", "a", "--filter", "tcp port 5201", "--snaplen", "120"];
    let mut live =
        Live::start(&daemon, &arguments, &["frame.interface_name", "tcp.dstport", "frame.comment"]);
    let server = b.start(&["iperf3", "-s", "-1", "-B", "10.79.0.2"]).unwrap();
    until("iperf3 to listen", LIMIT, || Ok(b.run(&["ss", "-Hltn"])?.contains(":5201").then_some(())))
        .unwrap();
    let client = a.start(&["iperf3", "-c", "10.79.0.2", "-t", "4"]).unwrap();
    live.wait_for(|line| line == "a\t5201\tin a, out b");
    live.wait_for(|line| line.starts_with("a\t") && line.ends_with("\tin b, out a"));
    client.output().unwrap();
    server.output().unwrap();
    live.end();
}

#[test]
fn a_memif_port_is_captured_live_under_iperf3() {
    let _machine = exclusive();
    let (daemon, a, b) = two(&config::memif("m", 0, ""));
    let stop = Arc::new(AtomicBool::new(false));
    let (seen, spec) = (stop.clone(), daemon.memif("memif", 0));
    let addresses = ["10.79.0.3/24".parse().unwrap()];
    let host =
        std::thread::spawn(move || bench::host::serve(&spec, Rings::default(), &addresses, 1500, &seen));
    daemon.wait_up("br0", "m").unwrap();
    let fields =
        ["frame.interface_name", "frame.packet_flags_direction", "ip.src", "ip.dst", "frame.comment"];
    let mut live = Live::start(&daemon, &["--port", "m", "--filter", "icmp"], &fields);
    let server = b.start(&["iperf3", "-s", "-1", "-B", "10.79.0.2"]).unwrap();
    until("iperf3 to listen", LIMIT, || Ok(b.run(&["ss", "-Hltn"])?.contains(":5201").then_some(())))
        .unwrap();
    let client = a.start(&["iperf3", "-c", "10.79.0.2", "-t", "4"]).unwrap();
    ping(&a, "10.79.0.3", 100);
    live.wait_for(|line| {
        line == "m\t2\t10.79.0.1\t10.79.0.3\tin a, out m"
            || line == "m\t0x00000002\t10.79.0.1\t10.79.0.3\tin a, out m"
    });
    live.wait_for(|line| line.starts_with("m\t") && line.ends_with("\t10.79.0.3\t10.79.0.1\tin m, out a"));
    client.output().unwrap();
    server.output().unwrap();
    live.end();
    stop.store(true, Ordering::Relaxed);
    host.join().unwrap().unwrap();
}

/// Two memif ports, and the options of a verifying client between them.
fn verifying_client(workers: &str, rate: f64, seconds: u64) -> (Daemon, Options) {
    let ports = config::memif("x", 0, "") + &config::memif("y", 1, "");
    let daemon = Daemon::start_with(&(config::bridge("br0", "learning") + &ports), workers).unwrap();
    let mut options = Options::new(vec![daemon.memif("memif", 0), daemon.memif("memif", 1)]);
    options.rate = Rate::Pps(rate);
    options.sizes = "60-9000".parse().unwrap();
    options.segments = "1-4".parse().unwrap();
    options.duration = Duration::from_secs(seconds);
    (daemon, options)
}

fn check_captured_once(workers: &str) {
    let _machine = exclusive();
    let (daemon, mut options) = verifying_client(workers, 2000.0, 2);
    // At most one frame in ten is large: 5 MB a second are captured, so a page has room for a reader's stall of over a
    // second.
    options.sizes = [["60-300"; 9].join(","), "60-9000".into()].join(",").parse().unwrap();
    options.least = 251;
    let mut capture = Capture::watching(&daemon, "all.pcapng", &[]);
    let report = Session::connect(options).unwrap().run(&AtomicBool::new(false)).unwrap();
    assert!(report.ok, "{report}");
    let counted = ["x", "y"].map(|name| daemon.port("br0", name).unwrap());
    let expected: u64 = counted.iter().map(|port| port.received() + port.delivered()).sum();
    assert!(report.received() == report.sent() && report.received() > 500, "{report}");
    assert!(expected >= 2 * report.received(), "{report}");
    let fields = ["frame.interface_name", "frame.packet_flags_direction", "frame.len", "frame.cap_len"];
    // The last packets arrive with a short delay.
    let mut packets = Vec::new();
    until("all packets to be in the file", LIMIT, || {
        packets = tshark(&capture.file, &fields);
        Ok((packets.len() as u64 >= expected).then_some(()))
    })
    .unwrap();
    let errors = capture.end();
    assert!(
        errors.contains(&format!("{expected} packets captured of {expected} seen, on 2 ports")),
        "{errors}"
    );
    assert_eq!(packets.len() as u64, expected);
    for port in &counted {
        let name = port.json()["name"].as_str().unwrap();
        let of = |direction: &str| {
            packets
                .iter()
                .filter(|packet| packet[0] == name && packet[1].trim_start_matches("0x0000000") == direction)
                .count()
        };
        assert_eq!((of("1") as u64, of("2") as u64), (port.received(), port.delivered()), "{name}");
    }
    assert!(packets.iter().all(|packet| packet[2] == packet[3]), "a packet is truncated");
}

#[test]
fn every_packet_is_captured_once() {
    check_captured_once("0");
}

#[test]
fn every_packet_of_two_workers_is_captured_once() {
    check_captured_once("0-1");
}

#[test]
fn a_stalled_reader_loses_only_captured_packets() {
    let _machine = exclusive();
    let (daemon, options) = verifying_client("0", 10_000.0, 3);
    let mut capture = Capture::watching(&daemon, "some.pcapng", &[]);
    capture.process.signal(rustix::process::Signal::STOP).unwrap();
    let report = Session::connect(options).unwrap().run(&AtomicBool::new(false)).unwrap();
    capture.process.signal(rustix::process::Signal::CONT).unwrap();
    assert!(report.ok, "the data plane lost packets: {report}");
    let counted = ["x", "y"].map(|name| daemon.port("br0", name).unwrap());
    let passed: u64 = counted.iter().map(|port| port.received() + port.delivered()).sum();
    // First the retained packets arrive, then the number of missed ones.
    until("the capture to notice", LIMIT, || {
        Ok(capture.errors().contains("the capture cannot keep up").then_some(()))
    })
    .unwrap();
    let mut last = 0;
    until("the capture to catch up", LIMIT, || {
        let packets = tshark(&capture.file, &["frame.number"]).len();
        Ok((std::mem::replace(&mut last, packets) == packets).then_some(()))
    })
    .unwrap();
    let errors = capture.end();
    let number = |before: &str| -> u64 {
        let words: Vec<_> = errors.split_whitespace().collect();
        let at = words.windows(2).rposition(|pair| format!("{} {}", pair[0], pair[1]).starts_with(before));
        words[at.unwrap_or_else(|| panic!("{before}: {errors}")) - 1].parse().unwrap()
    };
    let (shown, missed) = (number("packets captured"), number("packets missing"));
    assert_eq!(shown, tshark(&capture.file, &["frame.number"]).len() as u64);
    assert!(missed > 0);
    assert_eq!(shown + missed, passed, "{errors}");
    assert!(errors.contains(&format!("of {passed} seen")), "{errors}");
}

#[test]
fn filter_direction_snap_length_and_count_apply() {
    let (daemon, a, _b) = two("");
    ping(&a, "10.79.0.2", 1);
    let arguments =
        ["--port", "a", "--direction", "in", "--filter", "icmp", "--snaplen", "60", "--count", "3"];
    let mut capture = Capture::watching(&daemon, "three.pcapng", &arguments);
    ping(&a, "10.79.0.2", 20);
    let errors = capture.ended();
    assert!(errors.contains("3 packets captured of "), "{errors}");
    let fields = ["frame.interface_name", "frame.len", "frame.cap_len", "icmp.type", "frame.comment"];
    assert_eq!(tshark(&capture.file, &fields), vec![["a", "98", "60", "8", "in a, out b"]; 3]);

    // The other direction: replies only, at the other port.
    let arguments =
        ["--port", "b", "--direction", "in", "--filter", "icmp[icmptype] = icmp-echoreply", "--count", "2"];
    let mut capture = Capture::watching(&daemon, "replies.pcapng", &arguments);
    ping(&a, "10.79.0.2", 20);
    capture.ended();
    let fields = ["frame.interface_name", "ip.src", "icmp.type"];
    assert_eq!(tshark(&capture.file, &fields), vec![["b", "10.79.0.2", "0"]; 2]);

    // As text and as JSON.
    let mut command = daemon.command(&["capture", "br0", "--filter", "icmp", "--count", "2"]).unwrap();
    let text_capture = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::null())).unwrap();
    let mut command =
        daemon.command(&["capture", "br0", "--filter", "icmp", "--count", "1", "--json"]).unwrap();
    let json_capture = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::null())).unwrap();
    wait_observers(&daemon, 2);
    let pings = a.start(&["ping", "-q", "-i", "0.1", "-c", "200", "10.79.0.2"]).unwrap();
    let text = text_capture.output().unwrap();
    assert!(
        text.contains(" a in  ") && text.contains(" IPv4 10.79.0.1 > 10.79.0.2 ICMP, 98 bytes (in a, out b)"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 2, "{text}");
    let json: serde_json::Value = serde_json::from_str(&json_capture.output().unwrap()).unwrap();
    assert_eq!((&json["length"], &json["drop_reason"]), (&98.into(), &"".into()), "{json}");
    drop(pings);
}

#[test]
fn drops_are_shown_with_their_reason() {
    let (daemon, a, _b) = two(&config::memif("m", 0, ""));
    ping(&a, "10.79.0.2", 1);
    // A destination port with a small MTU, and one outside the sender's VLAN.
    daemon.run(&["port", "set", "br0", "b", "--mtu", "500"]).unwrap();
    let mut capture = Capture::watching(&daemon, "long.pcapng", &["--filter", "icmp", "--count", "2"]);
    a.run(&["ping", "-q", "-c", "1", "-W", "1", "-s", "1000", "10.79.0.2"]).unwrap_err();
    capture.ended();
    let fields = ["frame.interface_name", "frame.comment"];
    let expected = [["a", "in a, out b, dropped: exceeds-mtu"], ["b", "in a, out b, dropped: exceeds-mtu"]];
    assert_eq!(tshark(&capture.file, &fields), expected);

    daemon.run(&["port", "set", "br0", "a", "--vlan", "trunk:10"]).unwrap();
    let mut capture = Capture::watching(&daemon, "vlan.pcapng", &["--filter", "icmp", "--count", "1"]);
    a.run(&["ping", "-q", "-c", "1", "-W", "1", "10.79.0.2"]).unwrap_err();
    capture.ended();
    assert_eq!(tshark(&capture.file, &fields), [["a", "in a, dropped: vlan"]]);
}

#[test]
fn a_file_ring_keeps_the_newest_packets() {
    let (daemon, a, _b) = two("");
    ping(&a, "10.79.0.2", 1);
    // Requests only, whose numbers are in order, received and delivered, until the 200th.
    let requests = "icmp[icmptype] = icmp-echo";
    let ring = ["--ring-size", "16K", "--ring-files", "3", "--filter", requests, "--count", "400"];
    let mut capture = Capture::to_file(&daemon, "ring.pcapng", &ring);
    let first = daemon.folder().join("ring-0000.pcapng");
    until("the capture to start", LIMIT, || {
        Ok(std::fs::metadata(&first).is_ok_and(|meta| meta.len() > 100).then_some(()))
    })
    .unwrap();
    ping_all(&a, "10.79.0.2", 220, "0.005").unwrap();
    capture.ended();
    let mut numbers = Vec::new();
    for file in 0..3 {
        let path = daemon.folder().join(format!("ring-{file:04}.pcapng"));
        assert!(std::fs::metadata(&path).unwrap().len() < 17 << 10);
        let packets = tshark(&path, &["icmp.seq", "frame.interface_name"]);
        assert!(!packets.is_empty() && packets.iter().all(|packet| packet[1] == "a" || packet[1] == "b"));
        numbers.extend(packets.iter().map(|packet| packet[0].parse::<u32>().unwrap()));
    }
    assert!(!daemon.folder().join("ring-0003.pcapng").exists());
    // The oldest files were overwritten; the newest packets are complete.
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers[0] > 1 && *numbers.last().unwrap() == 200, "{numbers:?}");
    assert_eq!(numbers.len() as u32, 200 - numbers[0] + 1, "{numbers:?}");
}

#[test]
fn captures_end_with_their_bridge() {
    let (daemon, a, _b) = two("");
    ping(&a, "10.79.0.2", 1);
    for _ in 0..5 {
        // Killed, not terminated.
        let mut capture = Capture::watching(&daemon, "x.pcapng", &[]);
        ping(&a, "10.79.0.2", 5);
        capture.process.kill().unwrap();
    }
    ping(&a, "10.79.0.2", 5);

    let mut capture = Capture::watching(&daemon, "end.pcapng", &["--port", "a"]);
    daemon.run(&["bridge", "add", "br1"]).unwrap();
    daemon.run(&["bridge", "del", "br0"]).unwrap();
    assert_eq!(capture.process.wait(LIMIT).unwrap().code(), Some(1));
    let errors = capture.errors();
    assert!(errors.contains("the capture ended because bridge \"br0\" was removed"), "{errors}");
    tshark(&capture.file, &["frame.number"]);
}

/// The switch forgets a killed capture and one whose reader has gone.
#[test]
fn dead_captures_are_removed() {
    let (daemon, a, _b) = two("");
    let wait_for = |count| wait_observers(&daemon, count);
    let mut killed = Capture::watching(&daemon, "killed.pcapng", &[]);
    wait_for(1);
    assert!(daemon.run(&["bridge", "show", "br0"]).unwrap().contains("observed  by 1 captures"));
    killed.process.kill().unwrap();
    wait_for(0);
    let live = Live::start(&daemon, &[], &["frame.number"]);
    wait_for(1);
    ping(&a, "10.79.0.2", 5);
    drop(live);
    wait_for(0);
    let mut trace = daemon.command(&["trace", "br0", "--port", "a", "--live", "10000"]).unwrap();
    let mut trace = Running::start(trace.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
    wait_for(1);
    trace.kill().unwrap();
    wait_for(0);
}

#[test]
fn a_port_added_later_is_captured() {
    let (daemon, a, _b) = two("");
    let mut capture = Capture::watching(&daemon, "late.pcapng", &["--filter", "arp or icmp"]);
    let late = Netns::new().unwrap();
    let (interface, netns) = (unique("t"), late.name().to_owned());
    let port = ["port", "add", "br0", "late", "--type", "tap", "--interface", &interface, "--netns", &netns];
    daemon.run(&[&port[..], &["--addresses", "10.79.0.9/24"]].concat()).unwrap();
    ping(&a, "10.79.0.9", 3);
    until("the new port's packets", LIMIT, || {
        let packets = tshark(&capture.file, &["frame.interface_name", "frame.comment"]);
        Ok(packets.iter().any(|packet| packet[0] == "late" && packet[1] == "in late, out a").then_some(()))
    })
    .unwrap();
    capture.end();
}

#[test]
fn invalid_captures_are_refused_with_the_reason() {
    let (daemon, _a, _b) = two("");
    let refused = |arguments: &[&str]| {
        let output = daemon.cli(&[&["capture"], arguments].concat()).unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (arguments, expected) in [
        (&["br9"][..], "there is no bridge \"br9\""),
        (&["br0", "--port", "z"], "bridge \"br0\" has no port \"z\""),
        (&["br0", "--filter", "tcp prot 80"], "--filter `tcp prot 80`: "),
        (&["br0", "--filter", "tcp prot 80"], "`man 7 pcap-filter` describes the language"),
        (&["br0", "--write", "/no/such/folder/x"], "cannot write /no/such/folder/x: No such file"),
        (
            &["br0", "--write", "-", "--ring-size", "1M", "--ring-files", "2"],
            "a ring of files cannot be written to standard output",
        ),
        (&["br0", "--write", "/dev/full"], "No space left on device"),
    ] {
        let errors = refused(arguments);
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
    }
    for arguments in
        [&["--ring-size", "1M"][..], &["--direction", "up"], &["--count", "0"], &["--write", "x", "--json"]]
    {
        let output = daemon.cli(&[&["capture", "br0"], arguments].concat()).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

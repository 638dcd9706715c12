//! pcap ports: replayed files and recordings.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use e2e::{Daemon, Netns, Running, config, exclusive, one_of, output, ping_all, unique, until};
use fastrand::Rng;

const LIMIT: Duration = Duration::from_secs(60);

/// Time in nanoseconds, and bytes.
type Frame = (u64, Vec<u8>);

/// Distinct frames of these sizes, this many nanoseconds apart.
fn frames(sizes: impl Iterator<Item = usize>, apart: u64) -> Vec<Frame> {
    let mut rng = Rng::with_seed(1);
    let frame = |(i, size): (usize, usize)| {
        let mut frame = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 7, 0x88, 0xb5];
        frame.extend((i as u32).to_be_bytes());
        frame.resize_with(size, || rng.u8(..));
        (1_700_000_000_000_000_000 + i as u64 * apart, frame)
    };
    sizes.enumerate().map(frame).collect()
}

/// A big-endian pcap file with nanoseconds.
fn classic(frames: &[Frame]) -> Vec<u8> {
    let mut file = Vec::new();
    for number in [0xa1b2_3c4d_u32, 2 << 16 | 4, 0, 0, 65_535, 1] {
        file.extend(number.to_be_bytes());
    }
    for (at, data) in frames {
        let len = data.len() as u32;
        for number in [(at / 1_000_000_000) as u32, (at % 1_000_000_000) as u32, len, len] {
            file.extend(number.to_be_bytes());
        }
        file.extend(data);
    }
    file
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().unwrap())
}

/// Frames that the switch has recorded.
fn recorded(path: &str) -> Vec<Frame> {
    let bytes = std::fs::read(path).unwrap();
    let (mut at, mut frames) = (0, Vec::new());
    while at < bytes.len() {
        let block = &bytes[at..at + word(&bytes, at + 4) as usize];
        if word(block, 0) == 6 {
            let time = u64::from(word(block, 12)) << 32 | u64::from(word(block, 16));
            frames.push((time, block[28..28 + word(block, 20) as usize].to_vec()));
        }
        at += block.len();
    }
    frames
}

fn bytes(frames: &[Frame]) -> Vec<&[u8]> {
    frames.iter().map(|(_, data)| data.as_slice()).collect()
}

/// A bridge on which `replay` sends `{dir}/in` to `rec`, which writes `{dir}/out`. `replay` starts administratively
/// down.
fn bridge_config(more: &str) -> String {
    config::bridge("br0", "static")
        + &config::port("replay", "pcap", &format!("read = \"{{dir}}/in\"\nadmin = \"down\"\n{more}"))
        + &config::port("rec", "pcap", "write = \"{dir}/out\"")
}

/// Starts a daemon that replays these frames to a recording as soon as the port is set up.
fn start_daemon(frames: &[Frame], more: &str) -> Daemon {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in");
    std::fs::write(&file, classic(frames)).unwrap();
    let daemon =
        Daemon::start(&bridge_config(more).replace("{dir}/in", &file.display().to_string())).unwrap();
    assert_eq!(detail(&daemon, "replay", "replay"), "not started, paused");
    // The port keeps the file open.
    drop(folder);
    daemon
}

fn admin(daemon: &Daemon, port: &str, to: &str) {
    daemon.run(&["port", "set", "br0", port, "--admin", to]).unwrap();
}

/// Value of a detail in `port show`.
fn detail(daemon: &Daemon, port: &str, name: &str) -> String {
    let port = daemon.port("br0", port).unwrap();
    let details = port.json()["details"].as_array().cloned().unwrap_or_default();
    let found = details.iter().find(|detail| detail["name"] == name);
    found.and_then(|detail| detail["value"].as_str()).unwrap_or_default().to_owned()
}

fn wait_detail(daemon: &Daemon, port: &str, name: &str, value: &str) {
    let mut last = String::new();
    until(&format!("{name} of {port} to be `{value}`"), LIMIT, || {
        last = detail(daemon, port, name);
        Ok((last == value).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error}; last seen: `{last}`"));
}

/// Waits until this many frames are in the file of `rec`.
fn wait_recorded(daemon: &Daemon, frames: u64) {
    until(&format!("{frames} recorded frames"), LIMIT, || {
        Ok(detail(daemon, "rec", "recorded").starts_with(&format!("{frames} frames,")).then_some(()))
    })
    .unwrap_or_else(|error| {
        let stats = daemon.run(&["port", "stats"]).unwrap();
        panic!("{error}; recorded: {}\n{stats}", detail(daemon, "rec", "recorded"))
    });
}

#[test]
fn replayed_frames_arrive_unaltered() {
    // In both formats; tshark converts to pcapng.
    let sent = frames((14..1514).step_by(7), 100_000);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("in.pcap"), classic(&sent)).unwrap();
    output("tshark", &["-r", &path("in.pcap"), "-F", "pcapng", "-w", &path("in.pcapng")]).unwrap();
    for file in ["in.pcap", "in.pcapng"] {
        let (netns, interface) = (Netns::new().unwrap(), unique("t"));
        let ports = config::port("replay", "pcap", &format!("read = \"{}\"\nadmin = \"down\"", path(file)))
            + &config::tap("a", &interface, netns.name(), &[], "");
        let daemon = Daemon::start(&(config::bridge("br0", "static") + &ports)).unwrap();
        let (received, count) = (path(&format!("{file}.received")), sent.len().to_string());
        let mut command = netns.command(&[
            "tcpdump",
            "-Q",
            "in",
            "--immediate-mode",
            "-U",
            "-B",
            "65536",
            "-Z",
            "root",
            "-i",
        ]);
        command.args([&interface, "-c", &count, "-w", &received]);
        let log = std::fs::File::create(path("log")).unwrap();
        let mut tcpdump = Running::start(command.stdin(Stdio::null()).stderr(log)).unwrap();
        until("tcpdump to listen", LIMIT, || {
            Ok(std::fs::read_to_string(path("log"))?.contains("listening on").then_some(()))
        })
        .unwrap();
        admin(&daemon, "replay", "up");
        assert!(tcpdump.wait(LIMIT).unwrap().success());
        let (received, mut at) = (std::fs::read(received).unwrap(), 24);
        for (i, (_, frame)) in sent.iter().enumerate() {
            let len = word(&received, at + 8) as usize;
            assert!(received[at + 16..at + 16 + len] == frame[..], "{file}: frame {i}");
            at += 16 + len;
        }
        assert_eq!(at, received.len());
        wait_detail(&daemon, "replay", "replay", "finished");
        assert_eq!(daemon.port("br0", "replay").unwrap().dropped(), 0);
    }
}

/// Lateness of each frame relative to the first, in microseconds, in their order.
fn lateness(received: &[Frame], due: impl Fn(usize) -> f64) -> Vec<f64> {
    let since = |i: usize| (received[i].0 - received[0].0) as f64;
    (0..received.len()).map(|i| (since(i) - due(i)) / 1e3).collect()
}

/// Whether frames with this lateness kept their times: the smallest lateness of each quarter of the replay is about
/// equal, so no frame is early and no quarter slow, and half of the frames are late by less than `most` microseconds
/// more. A busy machine delays many of them, including the first.
fn check_times(late: &[f64], most: f64) -> Result<(), String> {
    let mut sorted = late.to_vec();
    sorted.sort_by(f64::total_cmp);
    let quarters =
        late.chunks(late.len() / 4).map(|quarter| quarter.iter().copied().fold(f64::INFINITY, f64::min));
    let apart = quarters.fold(0.0, |apart: f64, least| apart.max(least - sorted[0]));
    let half = sorted[late.len() / 2] - sorted[0];
    if apart < 500.0 && half < most {
        return Ok(());
    }
    Err(format!("quarters are {apart} us apart, half within {half} us; late by {late:?}"))
}

#[test]
fn recorded_times_are_kept() {
    let _machine = exclusive();
    let mut rng = Rng::with_seed(3);
    let mut sent = frames([60; 60].into_iter(), 0);
    for i in 1..sent.len() {
        sent[i].0 = sent[i - 1].0 + rng.u64(0..40_000_000);
    }
    for (speed, factor) in [("recorded", 1.0), ("2x", 2.0)] {
        one_of(3, || {
            let daemon = start_daemon(&sent, &format!("speed = \"{speed}\""));
            let start = Instant::now();
            admin(&daemon, "replay", "up");
            wait_recorded(&daemon, 60);
            let took = start.elapsed();
            let received = recorded(&daemon.path("out"));
            assert_eq!(bytes(&received), bytes(&sent));
            let due = |i: usize| (sent[i].0 - sent[0].0) as f64 / factor;
            let whole = Duration::from_nanos(due(59) as u64);
            assert!(took > whole - Duration::from_millis(5), "{speed}: {took:?}, too early");
            // The mean pause between two frames.
            check_times(&lateness(&received, due), 20_000.0).map_err(|error| format!("{speed}: {error}"))?;
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn given_rates_are_kept() {
    let _machine = exclusive();
    let sent = frames([125; 1000].into_iter(), 0);
    for speed in ["2000pps", "2Mbit"] {
        one_of(3, || {
            let daemon = start_daemon(&sent, &format!("speed = \"{speed}\""));
            admin(&daemon, "replay", "up");
            wait_recorded(&daemon, 1000);
            let received = recorded(&daemon.path("out"));
            assert_eq!(bytes(&received), bytes(&sent));
            // Half a millisecond each.
            check_times(&lateness(&received, |i| i as f64 * 5e5), 5_000.0)
                .map_err(|error| format!("{speed}: {error}"))
        })
        .unwrap();
    }
}

#[test]
fn full_speed_replay_loses_no_frame() {
    let _machine = exclusive();
    let sent = frames((0..200_000).map(|i| 60 + i % 200), 0);
    let daemon = start_daemon(&sent, "speed = \"full\"");
    admin(&daemon, "replay", "up");
    wait_detail(&daemon, "replay", "replay", "finished");
    assert_eq!(detail(&daemon, "replay", "replayed"), "200000 frames");
    let (replay, rec) = (daemon.port("br0", "replay").unwrap(), daemon.port("br0", "rec").unwrap());
    assert_eq!((replay.received(), replay.dropped()), (200_000, 0));
    // A disk may be slower than the switch: frames without room are counted, and the others are recorded in order.
    assert_eq!(rec.delivered() + rec.dropped(), 200_000);
    wait_recorded(&daemon, rec.delivered());
    let received = recorded(&daemon.path("out"));
    let mut rest = sent.iter();
    for (i, (_, frame)) in received.iter().enumerate() {
        assert!(
            rest.any(|(_, other)| other == frame),
            "frame {i} of the recording was not sent in this order"
        );
    }
}

#[test]
fn recordings_equal_the_replayed_file() {
    // As many frames as the recording holds without its writer, of all lengths that TAPs and wires carry.
    let sent = frames((0..4000).map(|i| 14 + i * 7 % 1500), 0);
    let mut daemon = start_daemon(&sent, "speed = \"full\"");
    admin(&daemon, "replay", "up");
    wait_recorded(&daemon, 4000);
    assert_eq!(bytes(&recorded(&daemon.path("out"))), bytes(&sent));
    // More than the ring, which holds the frames of a 2 s stall of the writer; and the largest frames.
    let sent = frames((0..5000).map(|i| if i % 1000 == 0 { 65_535 } else { 60 + i % 64 }), 0);
    drop(std::mem::replace(&mut daemon, start_daemon(&sent, "speed = \"2000pps\"")));
    admin(&daemon, "replay", "up");
    wait_recorded(&daemon, 5000);
    assert!(bytes(&recorded(&daemon.path("out"))) == bytes(&sent));
}

#[test]
fn a_file_is_replayed_in_a_loop() {
    let sent = frames([60, 100, 1514].into_iter(), 1_000_000);
    let daemon = start_daemon(&sent, "loop = 3");
    admin(&daemon, "replay", "up");
    wait_detail(&daemon, "replay", "replay", "finished, 3 rounds");
    wait_recorded(&daemon, 9);
    let three: Vec<Frame> = (0..3).flat_map(|_| sent.clone()).collect();
    assert_eq!(bytes(&recorded(&daemon.path("out"))), bytes(&three));

    // Without end, until the port is deleted, which takes effect at once.
    std::fs::write(daemon.path("again"), classic(&sent)).unwrap();
    daemon.run(&["port", "del", "br0", "replay"]).unwrap();
    let path = daemon.path("again");
    let add = ["port", "add", "br0", "replay", "--type", "pcap", "--read", &path, "--loop", "forever"];
    daemon.run(&[&add[..], &["--speed", "full"]].concat()).unwrap();
    until("100,000 replayed frames", LIMIT, || {
        Ok((daemon.port("br0", "replay")?.received() > 100_000).then_some(()))
    })
    .unwrap();
    let shown = daemon.run(&["port", "show", "br0", "replay"]).unwrap();
    assert!(shown.contains(", forever"), "{shown}");
    daemon.run(&["port", "del", "br0", "replay"]).unwrap();
    assert_eq!(threads(&daemon, "mswitch-replay"), BTreeMap::new());
}

/// The daemon's threads of this name and the number of their context switches.
fn threads(daemon: &Daemon, name: &str) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for task in std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap().flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if read("comm").trim_end() == name {
            let switches = read("status");
            let switches = switches.lines().filter(|line| line.contains("ctxt_switches"));
            let count = switches.map(|line| line.split_whitespace().last().unwrap().parse::<u64>().unwrap());
            found.insert(task.file_name().to_string_lossy().into_owned(), count.sum());
        }
    }
    found
}

#[test]
fn idle_replays_and_recordings_sleep() {
    let daemon = start_daemon(&frames([60; 10].into_iter(), 0), "");
    admin(&daemon, "replay", "up");
    wait_detail(&daemon, "replay", "replay", "finished");
    wait_recorded(&daemon, 10);
    // Waiting for its second frame, which is due in an hour.
    std::fs::write(daemon.path("slow"), classic(&frames([60; 2].into_iter(), 3_600_000_000_000))).unwrap();
    daemon.run(&["bridge", "add", "br1"]).unwrap();
    daemon.run(&["port", "add", "br1", "slow", "--type", "pcap", "--read", &daemon.path("slow")]).unwrap();
    until("the first frame", LIMIT, || Ok((daemon.port("br1", "slow")?.received() == 1).then_some(())))
        .unwrap();
    let slept = || [threads(&daemon, "mswitch-replay"), threads(&daemon, "mswitch-record")];
    let all = |now: &[BTreeMap<String, u64>; 2]| now.iter().map(BTreeMap::len).collect::<Vec<_>>();
    let (wakeups, before) = (daemon.wakeups().unwrap(), slept());
    assert_eq!(all(&before), [2, 1]);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(slept(), before, "threads woke up");
    assert_eq!(daemon.wakeups().unwrap(), wakeups, "workers woke up");
}

#[test]
fn a_paused_replay_resumes_without_loss() {
    let sent = frames([60; 2500].into_iter(), 0);
    let daemon = start_daemon(&sent, "speed = \"1000pps\"");
    // Six pauses, or fewer if the replay runs far ahead of the commands: a second's worth of frames must remain after
    // the last one.
    let (mut pauses, mut stopped) = (0, 0);
    while pauses < 6 && stopped < 1300 {
        admin(&daemon, "replay", "up");
        until("more frames", LIMIT, || {
            Ok((daemon.port("br0", "replay")?.received() > stopped + 150).then_some(()))
        })
        .unwrap();
        admin(&daemon, "replay", "down");
        stopped = daemon.port("br0", "replay").unwrap().received();
        assert_eq!(detail(&daemon, "replay", "replay"), "running, paused");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(daemon.port("br0", "replay").unwrap().received(), stopped, "the paused replay continues");
        pauses += 1;
    }
    assert!(pauses >= 3, "{pauses} pauses, the last one after {stopped} frames");
    admin(&daemon, "replay", "up");
    wait_recorded(&daemon, 2500);
    assert!(bytes(&recorded(&daemon.path("out"))) == bytes(&sent));
    wait_detail(&daemon, "replay", "replay", "finished");
    assert_eq!(daemon.port("br0", "replay").unwrap().dropped(), 0);
}

#[test]
fn a_finished_replay_restarts_when_set_up_again() {
    let sent = frames([60; 5].into_iter(), 0);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in");
    std::fs::write(&file, classic(&sent)).unwrap();
    let daemon = Daemon::start(&bridge_config("").replace("{dir}/in", &file.display().to_string())).unwrap();
    for round in 1..=3 {
        admin(&daemon, "replay", "up");
        wait_recorded(&daemon, round * 5);
        wait_detail(&daemon, "replay", "replay", "finished");
        admin(&daemon, "replay", "down");
    }
    assert_eq!(detail(&daemon, "replay", "replayed"), "15 frames");
}

#[test]
fn a_broken_file_takes_the_port_down_until_it_is_fixed() {
    let sent = frames([60; 5].into_iter(), 0);
    let whole = classic(&sent);
    let (path, broken) = (tempfile::NamedTempFile::new().unwrap(), &whole[..24 + 2 * 76 + 40]);
    std::fs::write(path.path(), broken).unwrap();
    let shown = path.path().display().to_string();
    let daemon = Daemon::start(&bridge_config("").replace("{dir}/in", &shown)).unwrap();
    admin(&daemon, "replay", "up");
    let reason = daemon.wait_down("br0", "replay", "frame 3").unwrap();
    let expected =
        format!("{shown}: frame 3, at byte 176 of the file: the file ends in the middle of the frame");
    assert_eq!(reason, expected);
    // The frames before the error have arrived.
    wait_recorded(&daemon, 2);
    assert_eq!(detail(&daemon, "replay", "replay"), "failed");
    assert!(daemon.port("br0", "rec").unwrap().is_up());

    // Another error, then a correct file.
    std::fs::write(path.path(), "text").unwrap();
    daemon.wait_down("br0", "replay", "so it is neither pcap nor pcapng").unwrap();
    std::fs::write(path.path(), &whole).unwrap();
    daemon.wait_up("br0", "replay").unwrap();
    wait_recorded(&daemon, 7);
    let expected: Vec<_> = [&sent[..2], &sent].concat();
    assert_eq!(bytes(&recorded(&daemon.path("out"))), bytes(&expected));
}

#[test]
fn a_missing_file_is_waited_for() {
    let keys = "read = \"{dir}/in\"";
    let daemon =
        Daemon::start(&(config::bridge("br0", "static") + &config::port("replay", "pcap", keys))).unwrap();
    daemon.wait_down("br0", "replay", "/in: no such file").unwrap();
    std::fs::write(daemon.path("new"), classic(&frames([60; 5].into_iter(), 0))).unwrap();
    std::fs::rename(daemon.path("new"), daemon.path("in")).unwrap();
    until("the file to be replayed", LIMIT, || {
        Ok((detail(&daemon, "replay", "replayed") == "5 frames").then_some(()))
    })
    .unwrap();
}

#[test]
fn invalid_files_are_refused_with_the_reason() {
    let daemon = Daemon::start(&config::bridge("br0", "static")).unwrap();
    let path = |name: &str| daemon.path(name);
    let mut cooked = classic(&frames([60].into_iter(), 0));
    cooked[23] = 113;
    std::fs::write(path("cooked"), cooked).unwrap();
    std::fs::write(path("text"), "a text").unwrap();
    std::fs::write(path("good"), classic(&frames([60].into_iter(), 0))).unwrap();
    output("mkfifo", &[path("pipe")]).unwrap();
    std::os::unix::fs::symlink(path("out"), path("link")).unwrap();
    daemon.run(&["port", "add", "br0", "rec", "--type", "pcap", "--write", &path("out")]).unwrap();
    for (flags, expected) in [
        (vec![], "neither `read` nor `write` is set; name the file to replay".to_owned()),
        // A relative path is resolved by the command.
        (
            vec!["--read", "in"],
            format!("cannot read {}: no such file", std::path::absolute("in").unwrap().display()),
        ),
        (vec!["--read", "/no/file"], "cannot read /no/file: no such file".into()),
        (vec!["--read", "/tmp"], "/tmp is not a regular file; only regular files can be replayed".into()),
        (
            vec!["--read", "PIPE"],
            format!("{} is not a regular file; only regular files can be replayed", path("pipe")),
        ),
        (
            vec!["--read", "TEXT"],
            format!("{}: frame 1, at byte 0 of the file: the file begins with", path("text")),
        ),
        (
            vec!["--read", "COOKED"],
            "the frame's link type is 113 (Linux cooked capture); only Ethernet (1)".into(),
        ),
        (
            vec!["--read", "GOOD", "--speed", "fast"],
            "`fast` is not a speed; expected `recorded`, `2x`".into(),
        ),
        (vec!["--read", "GOOD", "--loop", "0"], "expected 1 to 4294967295 rounds, or `forever`".into()),
        (vec!["--write", "/no/file"], "write: /no is not a directory; create it first".into()),
        (vec!["--write", "TEXT"], format!("{} exists and is not a whole pcapng file", path("text"))),
        (
            vec!["--write", "PIPE"],
            format!("{} is not a regular file; only regular files can be recorded to", path("pipe")),
        ),
        (vec!["--write", "OUT"], "has the recording ".into()),
        (
            vec!["--write", "LINK"],
            "is being written by another port or process; record to another file".into(),
        ),
        (vec!["--write", "GOOD", "--snaplen", "3"], "snaplen: 3 is out of range, must be 14 to 65535".into()),
    ] {
        let flags: Vec<String> = flags
            .iter()
            .map(|flag| match *flag {
                name @ ("PIPE" | "TEXT" | "COOKED" | "GOOD" | "OUT" | "LINK") => path(&name.to_lowercase()),
                other => other.to_owned(),
            })
            .collect();
        let mut arguments = vec!["port", "add", "br0", "x", "--type", "pcap"];
        arguments.extend(flags.iter().map(String::as_str));
        let refused = daemon.cli(&arguments).unwrap();
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{flags:?}: {errors}");
        assert!(errors.contains(&expected), "{flags:?}: {errors}");
    }
    assert_eq!(std::fs::read_to_string(path("text")).unwrap(), "a text", "a refused file is unchanged");
    assert_eq!(daemon.ports("br0").unwrap().len(), 1);
}

/// Fields of each packet of a file, as tshark prints them.
fn tshark(file: &str, options: &[&str], fields: &[&str]) -> Vec<Vec<String>> {
    let mut arguments = [&["-n", "-r", file], options, &["-T", "fields"]].concat();
    for field in fields {
        arguments.extend(["-e", field]);
    }
    let text = output("tshark", &arguments).unwrap();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

#[test]
fn recordings_continue_after_a_restart() {
    let (netns, interface) = (Netns::new().unwrap(), unique("t"));
    let keys = "write = \"{dir}/out.pcapng\"\nsnaplen = 40\nmode = \"0604\"\ngroup = \"1\"";
    let ports = config::tap("a", &interface, netns.name(), &["10.80.0.1/24"], "")
        + &config::port("rec", "pcap", keys);
    let mut daemon = Daemon::start(&(config::bridge("br0", "static") + &ports)).unwrap();
    let file = daemon.path("out.pcapng");
    // The requested address is behind the snap length, so requests are counted.
    let fields = ["frame.len", "frame.cap_len", "frame.interface_name", "frame.packet_flags_direction"];
    let send_request = |before: usize| {
        netns.run(&["ping", "-q", "-c", "1", "-W", "1", "10.80.0.2"]).unwrap_err();
        until("tshark to show the request", LIMIT, || {
            let found = tshark(&file, &["-Y", "arp"], &fields);
            assert!(found.iter().all(|packet| packet == &["42", "40", "rec", "0x00000002"]), "{found:?}");
            Ok((found.len() > before).then_some(found.len()))
        })
        .unwrap()
    };
    let first = send_request(0);
    let metadata = std::fs::metadata(&file).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o604);
    assert_eq!(std::os::unix::fs::MetadataExt::gid(&metadata), 1);
    let times = tshark(&file, &[], &["frame.time_epoch"]);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let last: f64 = times.last().unwrap()[0].parse().unwrap();
    assert!((now - 30.0..now).contains(&last), "recorded at {last}, current time {now}");

    // After SIGTERM, SIGKILL and restarts, the recording continues in the same file.
    assert!(daemon.terminate().unwrap().success());
    daemon.restart().unwrap();
    daemon.wait_up("br0", "rec").unwrap();
    let second = send_request(first);
    daemon.kill().unwrap();
    daemon.restart().unwrap();
    daemon.wait_up("br0", "rec").unwrap();
    send_request(second);
}

#[test]
fn recorded_segments_are_cut_and_checksummed() {
    let (netns, interface) = (Netns::new().unwrap(), unique("t"));
    let ports = config::tap("a", &interface, netns.name(), &["10.80.1.1/24"], "")
        + &config::port("rec", "pcap", "write = \"{dir}/out\"");
    let daemon = Daemon::start(&(config::bridge("br0", "static") + &ports)).unwrap();
    let mac = "02:00:00:00:00:99";
    netns.run(&["ip", "neigh", "add", "10.80.1.2", "lladdr", mac, "dev", &interface]).unwrap();
    // One segment of 20,000 bytes to be cut into pieces of 1,000, with checksums to be computed.
    netns
        .enter(|| {
            let socket = std::net::UdpSocket::bind("10.80.1.1:7").unwrap();
            let size: libc::c_int = 1000;
            // SAFETY: the option takes an `int`, which `size` is.
            let set = unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_UDP,
                    libc::UDP_SEGMENT,
                    (&raw const size).cast(),
                    size_of::<libc::c_int>() as u32,
                )
            };
            assert_eq!(set, 0);
            socket.send_to(&[7; 20_000], "10.80.1.2:9").unwrap();
        })
        .unwrap();
    let checked = ["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-Y", "udp.port == 9"];
    let found = until("the segments", LIMIT, || {
        let fields = ["frame.len", "udp.checksum.status", "ip.checksum.status"];
        let found = tshark(&daemon.path("out"), &checked, &fields);
        Ok((found.len() == 20).then_some(found))
    })
    .unwrap();
    assert!(found.iter().all(|packet| packet == &["1042", "1", "1"]), "{found:?}");
}

#[test]
fn a_mirror_to_a_recording_keeps_all_packets() {
    let (a, b) = (Netns::new().unwrap(), Netns::new().unwrap());
    let ports = config::tap("a", &unique("t"), a.name(), &["10.80.3.1/24"], "")
        + &config::tap("b", &unique("t"), b.name(), &["10.80.3.2/24"], "")
        + &config::port("rec", "pcap", "write = \"{dir}/out\"");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    daemon.run(&["mirror", "add", "br0", "m", "--from", "a", "--to", "rec"]).unwrap();
    a.run(&["ping", "-q", "-c", "50", "-i", "0.01", "-W", "5", "10.80.3.2"]).unwrap();
    let mut found = Vec::new();
    until("both directions of all pings", LIMIT, || {
        found = tshark(&daemon.path("out"), &["-Y", "icmp"], &["icmp.type", "icmp.seq"]);
        Ok((found.len() >= 100).then_some(()))
    })
    .unwrap();
    // Each once and in order; an answer may come after the next request.
    let numbers: Vec<_> = (1..=50).map(|number| number.to_string()).collect();
    for kind in ["8", "0"] {
        let of_kind: Vec<_> =
            found.iter().filter(|packet| packet[0] == kind).map(|packet| &packet[1]).collect();
        assert_eq!(of_kind, numbers.iter().collect::<Vec<_>>(), "{found:?}");
    }
    let at = |kind: &str, number: &String| {
        found.iter().position(|packet| packet[0] == kind && packet[1] == *number)
    };
    assert!(numbers.iter().all(|number| at("8", number) < at("0", number)), "{found:?}");
}

#[test]
fn a_full_disk_takes_the_port_down_and_loses_no_recorded_frame() {
    let folder = tempfile::tempdir().unwrap();
    let mount = |options: &str| {
        output("mount", &["-t", "tmpfs", "-o", options, "tmpfs", &folder.path().display().to_string()])
            .map(drop)
    };
    mount("size=256k").unwrap();
    let sent = frames([1000; 1000].into_iter(), 0);
    let out = folder.path().join("out").display().to_string();
    let daemon = {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), classic(&sent)).unwrap();
        let keys = bridge_config("speed = \"full\"").replace("{dir}/in", &file.path().display().to_string());
        Daemon::start(&keys.replace("{dir}/out", &out)).unwrap()
    };
    admin(&daemon, "replay", "up");
    let reason = daemon.wait_down("br0", "rec", "No space left on device").unwrap();
    assert!(reason.starts_with(&format!("cannot write {out}: ")), "{reason}");
    wait_detail(&daemon, "replay", "replay", "finished");
    let rec = daemon.port("br0", "rec").unwrap();
    mount("remount,size=4m").unwrap();
    daemon.wait_up("br0", "rec").unwrap();
    wait_recorded(&daemon, rec.delivered());
    let received = recorded(&out);
    assert_eq!(bytes(&received), bytes(&sent[..received.len()]));
    assert!(received.len() > 200, "{}", received.len());
    drop(daemon);
    output("umount", &[folder.path()]).unwrap();
}

#[test]
fn other_ports_lose_nothing_while_pcap_ports_come_and_go() {
    let _machine = exclusive();
    let (a, b) = (Netns::new().unwrap(), Netns::new().unwrap());
    let ports = config::tap("a", &unique("t"), a.name(), &["10.80.2.1/24"], "")
        + &config::tap("b", &unique("t"), b.name(), &["10.80.2.2/24"], "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    a.run(&["ping", "-q", "-c", "1", "-W", "5", "10.80.2.2"]).unwrap();
    std::fs::write(daemon.path("in"), classic(&frames([60; 50].into_iter(), 10_000))).unwrap();
    let (read, write) = (daemon.path("in"), daemon.path("out"));
    std::thread::scope(|scope| {
        let pings = scope.spawn(|| ping_all(&a, "10.80.2.2", 600, "0.005").unwrap());
        for _ in 0..8 {
            let add = ["port", "add", "br0", "x", "--type", "pcap", "--loop", "forever"];
            daemon.run(&[&add[..], &["--read", &read, "--write", &write]].concat()).unwrap();
            until(
                "the port to send",
                LIMIT,
                || Ok((daemon.port("br0", "x")?.received() > 100).then_some(())),
            )
            .unwrap();
            daemon.run(&["port", "del", "br0", "x"]).unwrap();
        }
        pings.join().unwrap();
    });
    assert!(Path::new(&write).exists());
}

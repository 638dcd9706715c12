//! `mswitch top` on terminals of several sizes, compared with the screen that a user sees.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bench::session::{Background, Options};
use e2e::{Daemon, Running, binary, config, exclusive, one_of, until};
use rustix::process::Signal;
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

const LIMIT: Duration = Duration::from_secs(30);
const LONG: &str = "a-virtual-machine-with-a-name-that-is-long";

/// A viewer on its own terminal.
struct Viewer {
    process: Running,
    /// Keyboard input.
    keys: File,
    terminal: OwnedFd,
    /// Settings of the terminal before the viewer started.
    settings: Termios,
    screen: Arc<Mutex<vt100::Parser>>,
}

fn winsize(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn pseudo_terminal() -> (OwnedFd, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: the two descriptors are written to live variables; no name, settings or size is asked for.
    let opened = unsafe { libc::openpty(&mut ours, &mut theirs, none, std::ptr::null(), std::ptr::null()) };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: openpty has just created both descriptors, so they have no other owner.
    unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

impl Viewer {
    fn start(daemon: &Daemon, rows: u16, columns: u16, arguments: &[&str]) -> Viewer {
        let (ours, theirs) = pseudo_terminal();
        tcsetwinsize(&ours, winsize(rows, columns)).unwrap();
        let settings = tcgetattr(&theirs).unwrap();
        let end = || Stdio::from(theirs.try_clone().unwrap());
        // A session of its own on this terminal, so that a new size is signalled.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(binary("mswitch", "MSWITCH_BIN").unwrap()).arg("top").args(arguments);
        command.arg("--socket").arg(daemon.path("ctl"));
        command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
        let process = Running::start(&mut command).unwrap();
        drop(command);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let keys = File::from(ours);
        let (mut output, shown) = (keys.try_clone().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Fails when the other end is closed.
            while let Ok(n @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..n]);
            }
        });
        Viewer { process, keys, terminal: theirs, settings, screen }
    }

    fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    fn resize(&self, rows: u16, columns: u16) {
        self.screen.lock().unwrap().screen_mut().set_size(rows, columns);
        tcsetwinsize(&self.keys, winsize(rows, columns)).unwrap();
    }

    /// Lines of the screen, none of which may be too long.
    fn lines(&self) -> Vec<String> {
        let parser = self.screen.lock().unwrap();
        let screen = parser.screen();
        let (rows, columns) = screen.size();
        for row in 0..rows {
            assert!(!screen.row_wrapped(row), "line {row} is too long: {}", screen.contents());
        }
        screen.rows(0, columns).collect()
    }

    /// Waits until the screen matches.
    fn await_screen<T>(&mut self, content: &str, wanted: impl Fn(&[String]) -> Option<T>) -> T {
        let found = until(content, LIMIT, || match self.process.ended()? {
            Some(status) => Err(e2e::Error::new(format!("mswitch top ended, {status}"))),
            None => Ok(wanted(&self.lines())),
        });
        found.unwrap_or_else(|error| panic!("{error}: {:#?}", self.lines()))
    }

    /// Waits for a successful end that restores the terminal.
    fn assert_ends(mut self) {
        let status = self.process.wait(LIMIT).unwrap();
        assert_eq!(status.code(), Some(0), "{:#?}", self.lines());
        let now = tcgetattr(&self.terminal).unwrap();
        assert_eq!(now.local_modes, self.settings.local_modes);
        assert_eq!(now.input_modes, self.settings.input_modes);
        assert_eq!(now.output_modes, self.settings.output_modes);
        let restored = || {
            let parser = self.screen.lock().unwrap();
            !parser.screen().alternate_screen() && !parser.screen().hide_cursor()
        };
        until("the screen to be restored", LIMIT, || Ok(restored().then_some(()))).unwrap();
    }
}

/// Cell of a line under a right-aligned title.
fn cell(lines: &[String], line: &str, title: &str) -> Option<String> {
    let header = lines.iter().find(|line| line.contains(title))?;
    let end = header[..header.find(title)?].chars().count() + title.chars().count();
    let before: String = line.chars().take(end).collect();
    Some(before.rsplit("  ").next()?.trim().to_owned())
}

/// Parses numbers such as `1.02 k`.
fn number(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let times = match unit {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * times)
}

struct Rig {
    daemon: Daemon,
    traffic: Background,
}

/// Two ports that send each other 1,000 packets a second, and a third one in another bridge that is down.
fn rig() -> Rig {
    let text = config::bridge("br0", "learning")
        + &config::memif("a", 0, "")
        + &config::memif(LONG, 1, "")
        + &config::bridge("other", "learning")
        + &config::memif("lonely", 2, "");
    let daemon = Daemon::start(&text).unwrap();
    let mut options = Options::new(vec![daemon.memif("memif", 0), daemon.memif("memif", 1)]);
    options.duration = Duration::from_secs(3600);
    let traffic = Background::start(options).unwrap();
    Rig { daemon, traffic }
}

impl Rig {
    fn end(self) {
        let report = self.traffic.stop().unwrap();
        assert!(report.ok, "{report}");
    }
}

/// Line of the port of this name, possibly shortened, if its rates match the traffic.
fn with_traffic(lines: &[String], name: &str) -> Option<String> {
    let is_it = |word: &str| match word.strip_suffix('…') {
        Some(begin) => name.starts_with(begin),
        None => word == name,
    };
    let line = lines.iter().find(|line| line.split_whitespace().take(2).any(is_it))?;
    for title in ["RX PKT/S", "TX PKT/S"] {
        number(&cell(lines, line, title)?).filter(|rate| (500.0..1500.0).contains(rate))?;
    }
    // At least 60 bytes a packet.
    number(&cell(lines, line, "RX BIT/S")?).filter(|rate| (2e5..2e6).contains(rate))?;
    Some(line.clone())
}

#[test]
fn eighty_columns_show_ports_rates_and_workers() {
    let _machine = exclusive();
    let rig = rig();
    let mut viewer = Viewer::start(&rig.daemon, 24, 80, &[]);
    let (lines, port, long) = viewer.await_screen("rates", |lines| {
        let port = with_traffic(lines, "a")?;
        let long = with_traffic(lines, LONG)?;
        Some((lines.to_vec(), port, long))
    });
    assert!(lines[0].contains("2 of 3 ports up"), "{lines:#?}");
    assert!(port.contains("  up "), "{port}");
    assert!(long.contains('…') && !long.contains(LONG), "{long}");
    assert!(lines.iter().any(|line| line.contains("lonely") && line.contains("down")), "{lines:#?}");
    assert!(lines[23].starts_with("q quit  p pause  s sort: RX PKT/S  r reverse"), "{lines:#?}");
    let worker = lines.iter().position(|line| line.contains("WORKER")).unwrap() + 1;
    let packets = cell(&lines, &lines[worker], "PKT/S").unwrap();
    assert!(number(&packets).is_some_and(|rate| (1000.0..3000.0).contains(&rate)), "{lines:#?}");
    for title in ["WAKE-UPS/S", "CYCLES/PKT", "PKT/BATCH"] {
        let cell = cell(&lines, &lines[worker], title).unwrap();
        assert!(number(&cell).is_some_and(|value| value > 0.0), "{title}: {cell}: {lines:#?}");
    }

    viewer.press(b"b");
    viewer.await_screen("only br0's ports", |lines| {
        (lines[0].contains("br0, 2 of 2") && !lines.iter().any(|line| line.contains("lonely"))).then_some(())
    });
    viewer.press(b"bp");
    viewer.await_screen("a pause", |lines| {
        (lines[0].contains("other, 0 of 1") && lines[0].contains("PAUSED")).then_some(())
    });
    viewer.press(b"bs");
    viewer.await_screen("another order", |lines| {
        lines.iter().any(|line| line.contains("▼RX BIT/S")).then_some(())
    });
    viewer.resize(10, 50);
    viewer.await_screen("the smaller screen", |lines| {
        (lines.len() == 10 && lines[9].starts_with("q quit") && !lines[9].contains("bridge")).then_some(())
    });
    viewer.press(b"q");
    viewer.assert_ends();
    rig.end();
}

#[test]
fn two_hundred_columns_show_everything() {
    let _machine = exclusive();
    let rig = rig();
    let mut viewer = Viewer::start(&rig.daemon, 50, 200, &["--interval", "0.5"]);
    let (lines, long) =
        viewer.await_screen("rates", |lines| Some((lines.to_vec(), with_traffic(lines, LONG)?)));
    assert!(long.starts_with("br0 ") && long.contains("memif"), "{long}");
    let lonely = lines.iter().find(|line| line.contains("lonely")).unwrap();
    assert!(lonely.starts_with("other ") && lonely.contains("no client has connected yet"), "{lonely}");
    assert!(lines[49].starts_with("q quit"), "{lines:#?}");
    viewer.press(b"q");
    viewer.assert_ends();
    rig.end();
}

#[test]
fn every_exit_restores_the_terminal() {
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &config::memif("a", 0, ""))).unwrap();
    let started = || {
        let mut viewer = Viewer::start(&daemon, 24, 80, &["br0"]);
        viewer.await_screen("the footer", |lines| lines[23].starts_with("q quit").then_some(()));
        assert!(viewer.screen.lock().unwrap().screen().alternate_screen());
        viewer
    };
    let mut interrupted = started();
    interrupted.press(b"\x03");
    interrupted.assert_ends();
    let terminated = started();
    terminated.process.signal(Signal::TERM).unwrap();
    terminated.assert_ends();
}

#[test]
fn without_a_terminal_once_prints_a_table() {
    let _machine = exclusive();
    let rig = rig();
    let refused = rig.daemon.cli(&["top"]).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("needs a terminal; `mswitch top --once` prints one table"), "{message}");
    let message =
        String::from_utf8_lossy(&rig.daemon.cli(&["top", "br9", "--once"]).unwrap().stderr).into_owned();
    assert!(message.contains("there is no bridge \"br9\""), "{message}");

    one_of(5, || {
        let text = rig.daemon.run(&["top", "--once"]).unwrap();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        with_traffic(&lines, LONG).map(drop).ok_or(text)
    })
    .unwrap();
    one_of(5, || {
        let json = rig.daemon.json(&["top", "br0", "--once", "--interval", "0.5"]).unwrap();
        assert_eq!(json["ports"].as_array().unwrap().len(), 2);
        let rate = json["ports"][0]["rx"]["packets_per_second"].as_f64().unwrap();
        let wakeups = json["workers"][0]["wakeups_per_second"].as_f64().unwrap();
        if (500.0..1500.0).contains(&rate) && wakeups > 0.0 { Ok(()) } else { Err(json.to_string()) }
    })
    .unwrap();
    rig.end();
}

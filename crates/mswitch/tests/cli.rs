//! Runs the binary: a daemon in a temporary directory, and every command against it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy exempts test functions, but not their helpers")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(30);

fn mswitch() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mswitch"));
    command.env_remove("MSWITCH_SOCKET").env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An interface name that no other test of this or another process uses.
fn interface() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("ms{}t{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn interface_exists(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).exists()
}

/// A directory with a configuration. The blank in its name shows that paths are not URLs.
struct Fixture {
    dir: TempDir,
    tap: String,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("mswitch cli ").tempdir().unwrap();
        let fixture = Self { dir, tap: interface() };
        fixture.configure("");
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a configuration: a bridge with a memif port and a TAP port, then `more`.
    fn configure(&self, more: &str) {
        let text = format!(
            "[daemon]\nsocket = {:?}\n\n[[bridge]]\nname = \"br0\"\n\n\
             [[bridge.port]]\nname = \"vm1\"\ntype = \"memif\"\npath = {:?}\n\n\
             [[bridge.port]]\nname = \"host\"\ntype = \"tap\"\ninterface = \"{}\"\n{more}",
            self.path("control.sock"),
            self.path("vm1.sock"),
            self.tap,
        );
        std::fs::write(self.path("config.toml"), text).unwrap();
    }

    fn daemon(&self) -> Command {
        let mut command = mswitch();
        command.arg("daemon").arg("--config").arg(self.path("config.toml"));
        command
    }

    /// Runs a client command.
    fn run(&self, line: &str) -> Output {
        let mut command = mswitch();
        command.arg("--socket").arg(self.path("control.sock")).args(line.split_whitespace());
        command.output().unwrap()
    }

    /// Runs a command that must succeed; returns its output.
    fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Like `ok`, with a path that may contain blanks.
    fn ok_with(&self, words: &[&str], path: &Path) -> String {
        let mut command = mswitch();
        command.arg("--socket").arg(self.path("control.sock")).args(words).arg(path);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Returns the differences that `config diff` prints with exit code 1.
    fn differs(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), String::new()), "{line}");
        text(&output.stdout)
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{line} --json"))).unwrap()
    }

    /// Runs a command that must be refused; returns its errors.
    fn refused(&self, line: &str) -> String {
        let output = self.run(line);
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {complaint}");
        assert!(complaint.lines().all(|line| line.starts_with("mswitch: ")), "{line}: {complaint}");
        complaint
    }
}

/// A running daemon, killed on drop.
struct Daemon {
    child: Child,
    log: Receiver<String>,
}

impl Daemon {
    fn start(fixture: &Fixture) -> Self {
        Self::spawn(fixture.daemon())
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (lines, log) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = lines.send(line);
            }
        });
        let daemon = Self { child, log };
        daemon.await_line("is ready");
        daemon
    }

    /// Waits for a line of the log. Returns it with the lines before it since the last call.
    fn await_line(&self, wanted: &str) -> Vec<String> {
        let deadline = Instant::now() + TIMEOUT;
        let mut seen = Vec::new();
        while let Ok(line) = self.log.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            let found = line.contains(wanted);
            seen.push(line);
            if found {
                return seen;
            }
        }
        panic!("the daemon did not log {wanted:?} but {seen:#?}");
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&mut self, signal: Signal) -> std::process::ExitStatus {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_reading_command_prints_text_and_json() {
    let fixture = Fixture::new();
    let daemon = Daemon::start(&fixture);

    let status = fixture.ok("status");
    assert!(status.contains(&format!("process {}", daemon.pid())), "{status}");
    assert!(status.contains("br0 vm1: no client has connected yet"), "{status}");
    assert!(status.lines().count() <= 12, "{status}");
    let status = fixture.json("status");
    assert_eq!(status["pid"], daemon.pid());
    assert_eq!((&status["bridges"], &status["ports"]), (&1.into(), &2.into()));
    assert_eq!(status["down"][0]["port"], "vm1");
    assert_eq!(status["config_file"], fixture.path("config.toml").display().to_string());

    assert!(fixture.ok("bridge list").contains("learning"));
    assert_eq!(fixture.json("bridge list")["bridges"][0]["name"], "br0");
    assert!(fixture.ok("bridge show br0").contains("MAC table"));
    assert_eq!(fixture.json("bridge show br0")["logic"]["params"]["ageing"], "300");

    assert!(fixture.ok("port list").contains(&"no client has connected yet".to_owned()));
    assert_eq!(fixture.json("port list br0")["ports"].as_array().unwrap().len(), 2);
    let show = fixture.ok("port show br0 host");
    assert!(show.contains(&fixture.tap) && show.contains("rx0"), "{show}");
    let show = fixture.json("port show br0 host");
    assert_eq!((&show["type"], &show["link"], &show["admin"]), (&"tap".into(), &"up".into(), &"up".into()));
    assert_eq!(show["options"]["interface"], fixture.tap);
    assert_eq!(show["rx_queues"].as_array().unwrap().len(), 1);

    assert!(fixture.ok("port stats").contains("BATCHES"));
    assert!(fixture.ok("port stats br0 host --queues").contains("tx0"));
    let stats = fixture.json("port stats br0 vm1");
    assert_eq!(stats["ports"][0]["totals"]["rx"]["packets"], 0);
    assert!(fixture.ok("port stats --watch --count 1").contains("pps"));
    let rates = fixture.json("port stats br0 --watch --count 1");
    assert!(rates[0]["packets_per_second"].is_number(), "{rates}");

    assert!(fixture.ok("worker show").contains("WAKE-UPS"));
    let workers = fixture.json("worker show --interval 0.05");
    assert_eq!(workers["workers"][0]["queues"][0]["port"], "host");
    assert!(workers["workers"][0]["busy_share"].as_f64().unwrap() <= 1.0);

    assert!(fixture.ok("logic list").contains("ageing"));
    assert_eq!(fixture.json("logic list")["logics"][1]["name"], "static");
    assert!(fixture.ok("logic show br0").contains("learning"));
    assert_eq!(fixture.json("logic show br0")["name"], "learning");

    fixture.ok("fdb show br0");
    assert!(fixture.json("fdb show br0")["entries"].is_array());
    let file = fixture.path("config.toml");
    let check = mswitch().args(["config", "check", "--json"]).arg(&file).output().unwrap();
    let check: Value = serde_json::from_slice(&check.stdout).unwrap();
    assert_eq!(
        (&check["ok"], &check["ports"]),
        (&true.into(), &2.into()),
        "sockets of the daemon itself are no mistake"
    );

    // With `--socket`, the same holds for a file without a control socket.
    let whole = std::fs::read_to_string(&file).unwrap();
    let bare = fixture.path("bare.toml");
    std::fs::write(&bare, &whole[whole.find("[[bridge]]").unwrap()..]).unwrap();
    let check = mswitch().args(["config", "check"]).arg(&bare).output().unwrap();
    assert!(text(&check.stderr).contains("is in use by process"), "{}", text(&check.stderr));
    assert!(fixture.ok_with(&["config", "check"], &bare).contains("no mistakes; bridges: 1, ports: 2"));
}

#[test]
fn ports_and_bridges_come_and_go() {
    let fixture = Fixture::new();
    let _daemon = Daemon::start(&fixture);
    let socket = fixture.path("second.sock");

    fixture.ok("bridge add br1 --logic learning --param ageing=60");
    assert_eq!(fixture.json("logic show br1")["params"]["ageing"], "60");
    let mut add = mswitch();
    add.env("MSWITCH_SOCKET", fixture.path("control.sock"));
    add.args([
        "port",
        "add",
        "br1",
        "vm2",
        "--type",
        "memif",
        "--opt",
        "id=5",
        "--vlan",
        "access:10",
        "--path",
    ]);
    let added = add.arg(&socket).output().unwrap();
    assert!(added.status.success(), "{}", text(&added.stderr));
    assert!(socket.exists());
    let port = fixture.json("port show br1 vm2");
    assert_eq!((&port["vlan"], &port["options"]["id"]), (&"access:10".into(), &"5".into()));

    fixture.ok("port set br1 vm2 --admin down --mtu 1400 --vlan trunk:10,20-29");
    let port = fixture.json("port show br1 vm2");
    assert_eq!((&port["mtu"], &port["vlan"]), (&1400.into(), &"trunk:10,20-29".into()));
    assert_eq!((&port["admin"], &port["reason"]), (&"down".into(), &"set down by the administrator".into()));
    fixture.ok("port set br1 vm2 --admin up");
    assert_eq!(fixture.json("port show br1 vm2")["mtu"], 1400, "other settings are unchanged");

    let tap = interface();
    fixture.ok(&format!("port add br1 t --type tap --interface {tap} --mtu 9000 --addresses 10.213.0.1/30"));
    assert!(interface_exists(&tap));
    fixture.ok("port del br1 t");
    assert!(!interface_exists(&tap));

    let set = fixture.run("logic set br1 static --param vm2=other");
    let note = "mswitch: note: bridge br1 has no port `other` yet\n";
    assert_eq!((set.status.code(), text(&set.stderr)), (Some(0), note.to_owned()));
    let shown = fixture.json("logic show br1");
    assert_eq!(
        (&shown["params"]["vm2"], &shown["missing_ports"]),
        (&"other".into(), &Value::from(vec!["other"]))
    );
    fixture.ok("bridge del br1");
    assert!(!socket.exists());
    assert_eq!(fixture.json("bridge list")["bridges"].as_array().unwrap().len(), 1);
}

#[test]
fn commands_may_be_repeated() {
    let fixture = Fixture::new();
    let _daemon = Daemon::start(&fixture);
    for _ in 0..2 {
        assert_eq!(fixture.ok("bridge add br1 --may-exist"), "");
        assert_eq!(fixture.ok("port add br1 p --type memif --path @mswitch-may-exist --may-exist"), "");
    }
    assert_eq!(
        fixture.refused("port add br1 p --type pcap --write /tmp/x --may-exist"),
        "mswitch: bridge \"br1\" has a port \"p\" of type memif, not pcap; remove it with `mswitch port del br1 p`, or \
         choose another name\n"
    );
    let shared = fixture.refused("port add br1 q --type memif --path @mswitch-may-exist --may-exist");
    assert!(shared.contains("two ports cannot share it"), "{shared}");
    for _ in 0..2 {
        assert_eq!(fixture.ok("port del br1 p --if-exists"), "");
    }
    for _ in 0..2 {
        assert_eq!(fixture.ok("bridge del br1 --if-exists"), "");
    }
    assert!(fixture.refused("bridge del br1").contains("there is no bridge \"br1\""));
}

#[test]
fn totals_keep_the_counters_of_removed_ports() {
    let fixture = Fixture::new();
    let _daemon = Daemon::start(&fixture);
    // A capture of one broadcast.
    let numbers = [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1, 1_700_000_000, 0, 60, 60];
    let frame = [[0xff; 6], [2, 0, 0, 0, 0, 9], [0x88, 0xb5, 0, 0, 0, 0]].concat();
    let trace: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).chain(frame).collect();
    std::fs::write(fixture.path("trace.pcap"), [trace, vec![0; 42]].concat()).unwrap();
    fixture.ok("bridge add br1");
    fixture
        .ok_with(&["port", "add", "br1", "replay", "--type", "pcap", "--read"], &fixture.path("trace.pcap"));
    let received = |line: &str| fixture.json(line)["totals"]["rx"]["packets"].as_u64().unwrap_or_default();
    let deadline = Instant::now() + TIMEOUT;
    while received("port show br1 replay") == 0 {
        assert!(Instant::now() < deadline, "{}", fixture.ok("port show br1 replay"));
    }
    let before = received("status");
    fixture.ok("port del br1 replay");
    assert!(before >= 1 && received("status") >= before, "{before}");
    fixture
        .ok_with(&["port", "add", "br1", "replay", "--type", "pcap", "--read"], &fixture.path("trace.pcap"));
    while received("port show br1 replay") == 0 {
        assert!(Instant::now() < deadline, "{}", fixture.ok("port show br1 replay"));
    }
    fixture.ok("bridge del br1");
    assert!(received("status") > before, "{before}");
    assert_eq!(fixture.json("status")["ports"], 2);
}

#[test]
fn mac_tables() {
    let fixture = Fixture::new();
    let _daemon = Daemon::start(&fixture);
    fixture.ok("fdb add br0 02:00:00:00:00:01 --port vm1 --vlan 7");
    let entries = fixture.json("fdb show br0")["entries"].clone();
    let mine = entries.as_array().unwrap().iter().find(|e| e["mac"] == "02:00:00:00:00:01").unwrap();
    assert_eq!((&mine["vlan"], &mine["port"], &mine["static"]), (&7.into(), &"vm1".into(), &true.into()));
    assert!(fixture.ok("fdb flush br0").ends_with(" flushed\n"));
    assert!(fixture.ok("fdb show br0").contains("02:00:00:00:00:01"), "static addresses stay");
    assert_eq!(
        fixture.refused("fdb del br0 02:00:00:00:00:01 --vlan 0"),
        "mswitch: bridge \"br0\" has no address 02:00:00:00:00:01 in VLAN 0; it is in VLAN 7: add `--vlan 7`\n"
    );
    assert_eq!(
        fixture.refused("fdb del br0 02:00:00:00:00:09"),
        "mswitch: bridge \"br0\" has no address 02:00:00:00:00:09; `mswitch fdb show br0` lists its addresses\n"
    );
    fixture.ok("fdb add br0 02:00:00:00:00:01 --port vm1 --vlan 8");
    assert_eq!(
        fixture.refused("fdb del br0 02:00:00:00:00:01"),
        "mswitch: bridge \"br0\" has address 02:00:00:00:00:01 in the VLANs 7, 8; name one with `--vlan`\n"
    );
    let shown = |filter: &str| {
        let found = fixture.json(&format!("fdb show br0 {filter}"))["entries"].clone();
        let found = found.as_array().unwrap().iter().map(|entry| entry["vlan"].clone());
        found.collect::<Vec<_>>()
    };
    assert_eq!(shown("02:00:00:00:00:01"), [7, 8]);
    assert_eq!(shown("--vlan 8"), [8]);
    assert_eq!(shown("--port vm1 --vlan 7"), [7]);
    assert_eq!(shown("02:00:00:00:00:01 --port host"), [0; 0]);
    assert!(fixture.ok("fdb flush br0 --vlan 8").ends_with(" flushed\n"));
    assert_eq!(shown("--vlan 8"), [8], "static addresses stay");
    fixture.ok("fdb del br0 02:00:00:00:00:01 --vlan 8");
    assert_eq!(
        fixture.refused("events nowhere"),
        "mswitch: there is no bridge \"nowhere\"; `mswitch bridge list` lists the bridges\n"
    );
    assert!(
        fixture
            .refused("fdb del br0 02:00:00:00:00:01 --vlan 7 --port host")
            .contains("in VLAN 7 at port \"host\";")
    );
    fixture.ok("fdb del br0 02:00:00:00:00:01 --port vm1");
    assert!(fixture.refused("fdb add br0 zz --port vm1").contains("is not a MAC address"));
    assert!(fixture.refused("fdb add br0 02:00:00:00:00:01 --vlan 5000 --port vm1").contains("1 to 4094"));
    fixture.ok("logic set br0 static");
    assert!(fixture.refused("fdb show br0").contains("has no MAC table"));
}

#[test]
fn refusals_name_the_remedy() {
    let fixture = Fixture::new();
    assert!(fixture.refused("status").contains("start one with `mswitch daemon --socket "));
    let _daemon = Daemon::start(&fixture);
    for (line, expected) in [
        ("bridge add br0", "bridge \"br0\" already exists"),
        ("bridge add a/b", "`a/b` is not a name; expected 1 to 64"),
        ("bridge add br1 --logic lerning", "did you mean `learning`?"),
        ("bridge add br1 --param ageing=1 --param ageing=2", "`ageing` is given twice"),
        ("bridge del br9", "there is no bridge \"br9\"; `mswitch bridge list` lists"),
        ("port show br0 vm9", "bridge \"br0\" has no port \"vm9\"; `mswitch port list br0` lists"),
        ("port add br0 vm1 --type tap", "already has a port \"vm1\""),
        (
            "port add br0 x --type vhost",
            "unknown port type `vhost`; expected `memif`, `tap`, `netdev`, `pcap`, `vhost-user` or `patch`",
        ),
        (
            "port add br0 x --type dpdkvhostuserclient --path /tmp/a",
            "unknown port type `dpdkvhostuserclient`; it is `vhost-user` with the role `client` here: \
             `--type vhost-user --role client`",
        ),
        (
            "port set br0 vm1 --vlan 10",
            "`10` is not a VLAN setting (an access port has `access:10`); expected",
        ),
        (
            "port add br0 x --type memif",
            "`--path` is missing: the socket of a memif port (`--socket` is the daemon's control socket)",
        ),
        ("port add br0 x --type patch", "`--peer` is missing: required for a patch port"),
        (
            "port add br0 x --type tap --path /tmp/a",
            "`--path`: a tap port has no such option; expected `--interface`, `--queues`, `--mac`, `--netns`, `--addresses`, \
             `--offloads` or `--persist`",
        ),
        (
            "port add br0 x --type tap --opt adresses=10.0.0.1/24",
            "unknown key `adresses`; did you mean `addresses`?",
        ),
        ("port add br0 x --type memif --path /no/dir/a", "/no/dir is not a directory"),
        (
            "port add br0 x --type memif --path /tmp/a --id many",
            "`--id`: `many` is not a whole number from 0 to 4294967295",
        ),
        ("port set br0 vm1 --mtu 9", "invalid MTU 9: expected 68 to 65521"),
        ("port set br0 vm1 --vlan access:0", "`0` is not a VLAN"),
        ("port set br0 vm1 --police fast", "port \"vm1\": `police`: `fast` is not a rate; expected `off`"),
        ("port add br0 x --type tap --offloads maybe", "`--offloads`: `maybe` is neither `on` nor `off`"),
        ("port add br0 x --type tap --opt queues=x", "`queues`: `x` is not a whole number from 0 to 65535"),
        ("port set br0 vm1 --isolated yes", "`isolated`: `yes` is neither `on` nor `off`"),
        ("logic set br0 nothing", "there is no logic `nothing`"),
        ("logic set br0 /tmp/mine.wasm", "did you mean `wasm:/tmp/mine.wasm`?"),
        ("worker pin br0 vm1 0 0", "the worker is not pinned to a CPU; `mswitch worker add CPULIST`"),
        ("worker add 0-", "`0-` is not a CPU list; expected numbers and ranges"),
        ("worker remove 0", "no worker is pinned to CPU 0, nor to another one"),
    ] {
        let complaint = fixture.refused(line);
        assert!(complaint.contains(expected), "{line}: {complaint}");
    }
    assert_eq!(fixture.json("port list")["ports"].as_array().unwrap().len(), 2, "nothing has changed");
}

#[test]
fn wrong_usage_is_2() {
    for line in [
        "",
        "no-such-command",
        "bridge add",
        "port add br0 vm1",
        "port set br0 vm1 --admin sideways",
        "port set br0 vm1",
        "port set br0 vm1 --netns blue",
        "sflow set",
        "config diff --socket /no/such/socket",
        "port stats --count 3",
        "bridge add br0 --param x",
        "worker pin br0 vm1 zero 0",
        "daemon --no-such-flag",
    ] {
        let output = mswitch().args(line.split_whitespace()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {}", text(&output.stderr));
    }
    for line in ["--help", "--version", "port add --help"] {
        assert!(mswitch().args(line.split_whitespace()).output().unwrap().status.success(), "{line}");
    }
}

#[test]
fn a_second_daemon_names_the_process_that_holds_the_socket() {
    let fixture = Fixture::new();
    let daemon = Daemon::start(&fixture);
    let output = fixture.daemon().output().unwrap();
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains(&format!("is in use by process {} (mswitch)", daemon.pid())), "{complaint}");
    fixture.ok("status");

    // The same file with another control socket: the sockets of its ports are in use.
    let mut other = fixture.daemon();
    let output = other.arg("--socket").arg(fixture.path("other.sock")).output().unwrap();
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("port \"vm1\"") && complaint.contains("is in use by process"), "{complaint}");
    assert!(!fixture.path("other.sock").exists());
    fixture.ok("status");
}

#[test]
fn sigterm_and_sigint_leave_nothing() {
    for signal in [Signal::TERM, Signal::INT] {
        let fixture = Fixture::new();
        let mut daemon = Daemon::start(&fixture);
        assert!(fixture.path("vm1.sock").exists() && interface_exists(&fixture.tap));
        // A silent connection does not delay the shutdown.
        let _silent = std::os::unix::net::UnixStream::connect(fixture.path("control.sock")).unwrap();
        assert!(daemon.signal(signal).success());
        assert!(!fixture.path("control.sock").exists());
        assert!(!fixture.path("vm1.sock").exists());
        assert!(!interface_exists(&fixture.tap));
    }
}

#[test]
fn after_kill_9_the_next_start_cleans_up() {
    let fixture = Fixture::new();
    let mut daemon = Daemon::start(&fixture);
    daemon.signal(Signal::KILL);
    assert!(fixture.path("control.sock").exists() && fixture.path("vm1.sock").exists());
    assert!(fixture.refused("status").contains("no daemon is listening"));
    let daemon = Daemon::start(&fixture);
    assert_eq!(fixture.json("status")["pid"], daemon.pid());
    assert!(interface_exists(&fixture.tap));
}

#[test]
fn a_configuration_with_mistakes_changes_nothing() {
    let fixture = Fixture::new();
    fixture.configure("mtu = 9\ncolour = \"red\"\n[[bridge]]\nname = \"br0\"\n");
    for mut command in [fixture.daemon(), {
        let mut check = mswitch();
        check.args(["config", "check"]).arg(fixture.path("config.toml"));
        check
    }] {
        let output = command.output().unwrap();
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        let file = fixture.path("config.toml");
        for (position, expected) in [
            ("16:7", "bridge \"br0\", port \"host\": invalid MTU 9: expected"),
            ("17:1", "bridge \"br0\", port \"host\": unknown key `colour`"),
            ("19:8", "bridge \"br0\": the file already has a bridge of this name in line 5"),
        ] {
            let expected = format!("mswitch: {}:{position}: {expected}", file.display());
            assert!(complaint.contains(&expected), "{complaint}\n{expected}");
        }
        assert!(!fixture.path("control.sock").exists() && !fixture.path("vm1.sock").exists());
        assert!(!interface_exists(&fixture.tap));
    }
}

/// Waits until a command prints something.
fn await_answer(fixture: &Fixture, line: &str, wanted: &str) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let output = text(&fixture.run(line).stdout);
        if output.contains(wanted) {
            return;
        }
        assert!(Instant::now() < deadline, "{line} does not print {wanted:?} but {output}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A network namespace that can come and go.
struct Netns(String);

impl Netns {
    fn name() -> Self {
        Self(interface())
    }

    fn ip(&self, verb: &str) -> bool {
        Command::new("ip").args(["netns", verb, &self.0]).output().unwrap().status.success()
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        self.ip("del");
    }
}

#[test]
fn a_port_that_cannot_be_opened_is_reported_and_healed() {
    let fixture = Fixture::new();
    let netns = Netns::name();
    fixture.configure(&format!("netns = \"{}\"\n", netns.0));
    let _daemon = Daemon::start(&fixture);
    let port = fixture.json("port show br0 host");
    assert_eq!(port["link"], "down");
    let reason = port["reason"].as_str().unwrap();
    assert!(reason.contains(&format!("create it with `ip netns add {}`", netns.0)), "{reason}");
    assert!(fixture.ok("status").contains(reason), "the status names it");
    assert_eq!(
        fixture.json("port show br0 vm1")["reason"],
        "no client has connected yet",
        "other ports are unaffected"
    );

    // The cause is removed.
    let mut events = mswitch();
    events.arg("--socket").arg(fixture.path("control.sock"));
    events.args(["events", "br0", "--kind", "config", "--kind", "port-up", "--json"]).stdout(Stdio::piped());
    let mut events = events.spawn().unwrap();
    let (sender, seen) = channel();
    let lines = BufReader::new(events.stdout.take().unwrap()).lines().map_while(Result::ok);
    std::thread::spawn(move || {
        for line in lines {
            let _ = sender.send(serde_json::from_str::<Value>(&line).unwrap());
        }
    });
    // Events before the subscription are not sent.
    let deadline = Instant::now() + TIMEOUT;
    for mtu in [1400, 1500].iter().cycle() {
        fixture.ok(&format!("port set br0 vm1 --mtu {mtu}"));
        if seen.recv_timeout(Duration::from_millis(50)).is_ok() {
            break;
        }
        assert!(Instant::now() < deadline, "no events");
    }
    assert!(netns.ip("add"));
    await_answer(&fixture, "port show br0 host", "up");
    let healed = std::iter::from_fn(|| seen.recv_timeout(TIMEOUT).ok())
        .find(|event| event["kind"] == "config" && event["port"] == "host" && event["reason"] == "");
    assert_eq!(healed.unwrap()["action"], "reopen");
    events.kill().unwrap();
    events.wait().unwrap();

    // A deleted interface is recreated.
    let output = Command::new("ip").args(["-n", &netns.0, "link", "del", &fixture.tap]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let exists = || {
        let there = Command::new("ip").args(["-n", &netns.0, "link", "show", &fixture.tap]).output().unwrap();
        there.status.success()
    };
    let deadline = Instant::now() + TIMEOUT;
    while !exists() {
        assert!(Instant::now() < deadline, "{}", fixture.ok("port show br0 host"));
        std::thread::sleep(Duration::from_millis(20));
    }
    await_answer(&fixture, "port show br0 host", "up");
}

/// A subscription to events of some kinds, as JSON.
struct Watch {
    child: Child,
    events: Receiver<Value>,
}

impl Watch {
    fn start(fixture: &Fixture, kinds: &[&str]) -> Self {
        let mut command = mswitch();
        command.arg("--socket").arg(fixture.path("control.sock")).args(["events", "--json"]);
        command.args(kinds.iter().flat_map(|kind| ["--kind", *kind])).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, events) = channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        std::thread::spawn(move || {
            for line in lines {
                let _ = sender.send(serde_json::from_str::<Value>(&line).unwrap());
            }
        });
        let watch = Self { child, events };
        // Events before the subscription are not sent.
        let deadline = Instant::now() + TIMEOUT;
        for mtu in [1400, 1500].iter().cycle() {
            fixture.ok(&format!("port set br0 vm1 --mtu {mtu}"));
            if watch.events.recv_timeout(Duration::from_millis(50)).is_ok() {
                break;
            }
            assert!(Instant::now() < deadline, "no events");
        }
        fixture.ok("port set br0 vm1 --mtu 68");
        watch.find(|event| event["changes"][0]["to"] == "68");
        watch
    }

    fn find(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let next = || self.events.recv_timeout(TIMEOUT).ok();
        std::iter::from_fn(next).find(wanted).unwrap()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn changes_are_logged_and_sent_as_events_with_author_and_values() {
    let fixture = Fixture::new();
    let daemon = Daemon::start(&fixture);
    let watch = Watch::start(&fixture, &["config", "command"]);
    let user = rustix::process::geteuid().as_raw();
    for (line, logged, action, changes) in [
        (
            "port set br0 vm1 --mtu 9000 --vlan access:7",
            "bridge \"br0\", port \"vm1\" changed: mtu: 68 -> 9000, vlan: transparent (default) -> access:7",
            "change",
            serde_json::json!([
                { "key": "mtu", "from": "68", "to": "9000", "default": null },
                { "key": "vlan", "from": "", "to": "access:7", "default": "transparent" }
            ]),
        ),
        (
            "fdb add br0 02:00:00:00:00:01 --port vm1 --vlan 7",
            "bridge \"br0\", station 02:00:00:00:00:01, VLAN 7 added: mac: 02:00:00:00:00:01, port: vm1, vlan: 7",
            "add",
            serde_json::json!([
                { "key": "mac", "from": "", "to": "02:00:00:00:00:01", "default": null },
                { "key": "port", "from": "", "to": "vm1", "default": null },
                { "key": "vlan", "from": "", "to": "7", "default": null }
            ]),
        ),
        (
            "fdb flush br0 --port vm1",
            "bridge \"br0\", port \"vm1\": flush (stations: 1 -> 1)",
            "flush",
            serde_json::json!([{ "key": "stations", "from": "1", "to": "1", "default": null }]),
        ),
        (
            "port del br0 vm1",
            "bridge \"br0\", port \"vm1\" removed: mtu: 9000, name: vm1, path: ",
            "remove",
            Value::Null,
        ),
    ] {
        fixture.ok(line);
        let log = daemon.await_line(logged);
        let last = log.last().unwrap();
        assert!(last.contains(" INFO ") && last.contains("by=process "), "{last}");
        assert!(last.ends_with(&format!(" (mswitch), user {user}")), "{last}");
        let event = watch.find(|event| event["action"] == action);
        let by = event["by"].as_str().unwrap();
        assert!(last.ends_with(&format!("by={by}")), "{last}: {event}");
        if !changes.is_null() {
            assert_eq!(event["changes"], changes, "{event}");
        }
    }
}

#[test]
fn a_verbose_log_has_no_lines_of_libraries() {
    let fixture = Fixture::new();
    let mut verbose = fixture.daemon();
    verbose.env("RUST_LOG", "debug");
    let daemon = Daemon::spawn(verbose);
    fixture.ok("status");
    fixture.refused("bridge del nowhere");
    let log = daemon.await_line("DEBUG refused: there is no bridge \"nowhere\"");
    assert!(log.iter().all(|line| !line.contains("frame=")), "HTTP/2: {log:#?}");
    drop(daemon);

    let mut named = fixture.daemon();
    named.env("RUST_LOG", "info,h2=debug");
    let daemon = Daemon::spawn(named);
    fixture.ok("status");
    daemon.await_line("frame=");
}

#[test]
fn reasons_for_drops_are_explained_without_a_daemon() {
    let run = |arguments: &[&str]| mswitch().args(["port", "reasons"]).args(arguments).output().unwrap();
    let all = text(&run(&[]).stdout);
    assert!(all.starts_with("runt (counted in rx)\n  It was shorter than an Ethernet header.\n"), "{all}");
    let one = text(&run(&["policed"]).stdout);
    assert_eq!(
        one,
        "policed (counted in rx)\n  It exceeded the rate limit of the port where it came in.\n  \
         `mswitch port set --police` and `--police-burst` change the limit.\n"
    );
    let json: Value = serde_json::from_slice(&run(&["vlan", "--json"]).stdout).unwrap();
    assert_eq!((&json[0]["name"], &json[0]["counted"]), (&"vlan".into(), &"rx".into()));
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/drops.md");
    assert_eq!(text(&run(&["--markdown"]).stdout), std::fs::read_to_string(docs).unwrap());
    let unknown = run(&["vlam"]);
    assert_eq!(unknown.status.code(), Some(1));
    let complaint = text(&unknown.stderr);
    assert!(
        complaint.starts_with("mswitch: unknown reason `vlam`; did you mean `vlan`? (expected `runt`, "),
        "{complaint}"
    );
    let help = mswitch().args(["port", "stats", "--help"]).output().unwrap();
    assert!(text(&help.stdout).contains("`mswitch port reasons` explains the reasons for drops"));
}

#[test]
fn a_file_is_applied_compared_and_saved() {
    let fixture = Fixture::new();
    let mut daemon = Daemon::start(&fixture);
    assert_eq!(fixture.ok("config diff"), "no differences\n");
    let running = fixture.ok("config show");
    assert!(running.contains("name = \"vm1\""), "{running}");

    // The command line and the file drift apart.
    fixture.ok("port set br0 vm1 --vlan access:7");
    fixture.ok("fdb add br0 02:00:00:00:00:01 --port vm1 --vlan 7");
    fixture.ok("bridge add br1 --logic static");
    let differences: Value = serde_json::from_str(&fixture.differs("config diff --json")).unwrap();
    let mut found: Vec<_> = differences["differences"].as_array().unwrap().iter().collect();
    found.sort_by_key(|difference| difference["object"].as_str());
    let found: Vec<_> =
        found.iter().map(|d| (d["kind"].as_str().unwrap(), d["object"].as_str().unwrap())).collect();
    assert_eq!(
        found,
        [
            ("changed", "bridge \"br0\", port \"vm1\""),
            ("removed", "bridge \"br0\", station 02:00:00:00:00:01, VLAN 7"),
            ("removed", "bridge \"br1\""),
        ]
    );
    let text_of = fixture.differs("config diff");
    assert!(
        text_of.contains("~ bridge \"br0\", port \"vm1\"\n    vlan: access:7 -> transparent (default)\n"),
        "{text_of}"
    );

    // A saved file does not differ. The default is the daemon's file.
    let copy = fixture.path("copy.toml");
    assert!(fixture.ok_with(&["config", "save"], &copy).starts_with("saved to "));
    assert_eq!(fixture.ok_with(&["config", "diff"], &copy), "no differences\n");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&copy).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "it may hold secrets");
    std::os::unix::fs::chown(&copy, Some(0), Some(65_534)).unwrap();
    std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    use std::os::unix::fs::MetadataExt;
    let saved = || {
        fixture.ok_with(&["config", "save"], &copy);
        let meta = std::fs::metadata(&copy).unwrap();
        (meta.gid(), meta.mode() & 0o777)
    };
    assert_eq!(saved(), (65_534, 0o644), "readers of the file keep their access");
    let secret = fixture.path("secret.sock");
    fixture
        .ok_with(&["port", "add", "br0", "hidden", "--type", "memif", "--secret", "key", "--path"], &secret);
    assert_eq!(saved(), (65_534, 0o640), "others cannot read secrets");
    fixture.ok("port del br0 hidden");
    saved();

    // A dry run changes nothing; applying the old file reverts the changes.
    let file = fixture.path("config.toml");
    let dry = fixture.ok_with(&["config", "apply", "--dry-run"], &file);
    let summary = format!("dry run: {} was not applied\n", file.display());
    assert!(dry.contains("- bridge \"br1\"\n") && dry.ends_with(&summary), "{dry}");
    assert!(fixture.ok("bridge list").contains("br1"));
    // The default is the daemon's file.
    let applied = fixture.ok("config apply");
    let summary = format!("{} was applied: 1 changed, 2 removed\n", file.display());
    assert!(applied.contains("- bridge \"br1\"\n") && applied.ends_with(&summary), "{applied}");
    assert!(!fixture.ok("bridge list").contains("br1"));
    assert_eq!(fixture.ok("config diff"), "no differences\n");
    // The bridge has learned the host's own address.
    assert!(!fixture.ok("fdb show br0").contains("02:00:00:00:00:01"));

    // A station outlives its bridge's logic.
    fixture.ok("fdb add br0 02:00:00:00:00:02 --port vm1");
    fixture.ok("logic set br0 learning --param ageing=7");
    assert!(fixture.ok("fdb show br0").contains("02:00:00:00:00:02"));

    // SIGHUP applies the file and logs the changes; a file with mistakes changes nothing.
    kill_process(Pid::from_child(&daemon.child), Signal::HUP).unwrap();
    daemon.await_line("bridge \"br0\" changed: params.ageing: 7 -> not set by=SIGHUP");
    daemon.await_line("is applied");
    assert_eq!(fixture.ok("config diff"), "no differences\n");
    std::fs::write(&file, "[[bridge]]\nnam = \"br0\"\n").unwrap();
    kill_process(Pid::from_child(&daemon.child), Signal::HUP).unwrap();
    daemon.await_line("unknown key `nam`; did you mean `name`?");
    daemon.await_line("the configuration is unchanged");
    assert!(fixture.ok("port list br0").contains("vm1"));
    let trouble = fixture.run("config diff");
    let complaint = text(&trouble.stderr);
    assert_eq!(trouble.status.code(), Some(2), "as in diff(1)");
    assert!(complaint.contains("2:1: ") && complaint.contains("unknown key `nam`"), "{complaint}");
    assert!(daemon.signal(Signal::TERM).success());
}

#[test]
fn a_saved_file_keeps_its_comments_and_its_place() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let fixture = Fixture::new();
    fixture.configure("# The host's own port.\nmtu = 9000 # jumbo frames\n\n# The end.\n");
    // Daemon and commands run in different directories, and the daemon gets a relative path.
    let (file, run) = (fixture.path("config.toml"), fixture.path("run"));
    std::fs::create_dir(&run).unwrap();
    let before = std::fs::read_to_string(&file).unwrap();
    std::os::unix::fs::chown(&file, Some(65_534), Some(65_534)).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let mut command = mswitch();
    command.current_dir(&run).args(["daemon", "--config", "../config.toml"]);
    let daemon = Daemon::spawn(command);
    let shown = std::fs::canonicalize(&run).unwrap().join("../config.toml").display().to_string();
    assert_eq!(fixture.json("status")["config_file"], shown);
    let elsewhere = |words: &[&str]| {
        let mut command = mswitch();
        command.arg("--socket").arg(fixture.path("control.sock")).args(words).current_dir("/");
        let output = command.output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };

    // Without a path the daemon's own file is edited.
    fixture.ok("port set br0 host --mtu 1400");
    fixture.ok("bridge add br1");
    assert_eq!(elsewhere(&["config", "save"]), (Some(0), format!("saved to {shown}\n"), String::new()));
    let after = std::fs::read_to_string(&file).unwrap();
    let expected = before.replace("mtu = 9000 #", "mtu = 1400 #") + "\n[[bridge]]\nname = \"br1\"\n";
    assert_eq!(after, expected);
    let meta = std::fs::metadata(&file).unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o777), (65_534, 65_534, 0o640));
    assert_eq!(elsewhere(&["config", "diff"]).0, Some(0));

    // A path is relative to the command's directory; a note says that the daemon's file is unchanged.
    let other = fixture.path("other.toml");
    let mut save = mswitch();
    save.arg("--socket").arg(fixture.path("control.sock")).args(["config", "save", "other.toml"]);
    let output = save.current_dir(fixture.dir.path()).output().unwrap();
    assert_eq!(text(&output.stdout), format!("saved to {}\n", other.display()));
    let note = format!("mswitch: note: the daemon starts from {shown}, which is unchanged\n");
    assert_eq!(text(&output.stderr), note);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
    assert_eq!(std::fs::metadata(&other).unwrap().mode() & 0o777, 0o600);

    // A symbolic link stays.
    let link = fixture.path("link.toml");
    std::os::unix::fs::symlink(&other, &link).unwrap();
    fixture.ok("bridge del br1");
    fixture.ok_with(&["config", "save"], &link);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(!std::fs::read_to_string(&other).unwrap().contains("br1"));

    // A file with a mistake cannot be edited: a backup is made.
    let broken = "# hello\n[[bridge]]\nname = br0\n";
    std::fs::write(&other, broken).unwrap();
    let (code, out, notes) = elsewhere(&["config", "save", &other.display().to_string()]);
    assert_eq!((code, out), (Some(0), format!("saved to {}\n", other.display())));
    let expected = format!(
        "mswitch: note: the file was rewritten without its comments, because line 3 has a mistake: `br0`: texts need \
         quotes: write `name = \"br0\"`; the original is {}.bak\n",
        other.display()
    );
    assert!(notes.starts_with(&expected), "{notes}");
    assert_eq!(std::fs::read_to_string(fixture.path("other.toml.bak")).unwrap(), broken);
    assert_eq!(fixture.ok_with(&["config", "diff"], &other), "no differences\n");

    // The error has no temporary name.
    let (code, out, complaint) = elsewhere(&["config", "save", "/proc/mswitch.toml"]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert_eq!(complaint, "mswitch: /proc/mswitch.toml: cannot write the file: entity not found\n");
    drop(daemon);
}

/// The note of `config apply` with another file than the daemon's own.
fn lasts_until_the_daemon_stops(fixture: &Fixture) -> String {
    format!(
        "mswitch: note: this lasts until the daemon stops: it starts from {}, which is unchanged; `mswitch config save` \
         writes the running configuration there\n",
        fixture.path("config.toml").display()
    )
}

#[test]
fn applying_another_file_says_how_long_it_lasts() {
    let fixture = Fixture::new();
    let _daemon = Daemon::start(&fixture);
    let other = fixture.path("other.toml");
    std::fs::copy(fixture.path("config.toml"), &other).unwrap();
    let apply = |words: &[&str], path: &Path| {
        let mut command = mswitch();
        command.arg("--socket").arg(fixture.path("control.sock")).args(words).arg(path);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        (text(&output.stdout), text(&output.stderr))
    };
    assert_eq!(apply(&["config", "apply"], &other).1, lasts_until_the_daemon_stops(&fixture));
    assert_eq!(apply(&["config", "apply", "--dry-run"], &other).1, "");
    assert_eq!(apply(&["config", "apply"], &fixture.path("config.toml")).1, "");
    let json: Value = serde_json::from_str(&apply(&["config", "apply", "--json"], &other).0).unwrap();
    assert!(json["notes"][0].as_str().unwrap().starts_with("this lasts until the daemon stops: "), "{json}");
}

#[test]
fn saving_reports_the_edits_of_the_file_that_it_replaces() {
    let fixture = Fixture::new();
    fixture.configure("mtu = 9000\n");
    let _daemon = Daemon::start(&fixture);
    let file = fixture.path("config.toml");
    let read = || std::fs::read_to_string(&file).unwrap();
    let save = || {
        let output = fixture.run("config save");
        assert_eq!(text(&output.stdout), format!("saved to {}\n", file.display()));
        text(&output.stderr)
    };
    // Commands and edits of the same file.
    fixture.ok("port set br0 host --vlan access:7");
    assert_eq!(save(), "", "nobody edited the file");
    fixture.ok("port set br0 host --vlan access:8");
    let edited = read().replace("mtu = 9000", "mtu = 1400") + "\n[[bridge]]\nname = \"br1\"\n";
    std::fs::write(&file, &edited).unwrap();
    let backup = fixture.path("config.toml.bak");
    let note = |text: &str| format!("mswitch: note: {text}\n");
    let notes = [
        format!(
            "the file had edits that were never applied, and the running configuration replaced them; the original is {}",
            backup.display()
        ),
        "bridge \"br1\" removed: name: br1".into(),
        "bridge \"br0\", port \"host\" changed: mtu: 1400 -> 9000".into(),
    ];
    assert_eq!(save(), notes.map(|text| note(&text)).concat());
    assert_eq!(std::fs::read_to_string(&backup).unwrap(), edited);
    assert!(read().contains("mtu = 9000") && read().contains("access:8") && !read().contains("br1"));

    // Edits that were applied are not lost.
    std::fs::write(&file, read().replace("mtu = 9000", "mtu = 1400")).unwrap();
    fixture.ok("config apply");
    fixture.ok("port set br0 host --mtu 9000");
    assert_eq!(save(), "");
    assert!(!fixture.path("config.toml.bak2").exists());

    // A failed save leaves no trace.
    fixture.ok("port set br0 host --vlan access:9");
    let before = read();
    let mut failing = Command::new("sh");
    failing.args(["-c", "ulimit -f 0; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_mswitch"), "--socket"]);
    failing.arg(fixture.path("control.sock")).args(["config", "save"]);
    assert!(!failing.output().unwrap().status.success());
    assert_eq!(read(), before);
    assert_eq!(save(), "", "nobody edited the file");
    assert!(!fixture.path("config.toml.bak2").exists());

    // A file that is missing, or not a text, is written anew and counts as saved.
    fixture.ok("port set br0 host --vlan access:10");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(save(), "");
    fixture.ok("port set br0 host --vlan access:11");
    assert_eq!(save(), "");
    std::fs::write(&file, [0xff]).unwrap();
    fixture.ok("port set br0 host --vlan access:12");
    assert!(save().contains("it is not UTF-8"));
    fixture.ok("port set br0 host --vlan access:13");
    assert_eq!(save(), "");
    assert!(read().contains("access:13") && !fixture.path("config.toml.bak3").exists());
}

#[test]
fn status_shows_that_the_next_start_would_fail() {
    let fixture = Fixture::new();
    let mut daemon = Daemon::start(&fixture);
    let file = fixture.path("config.toml");
    let text_of = std::fs::read_to_string(&file).unwrap();
    assert!(fixture.json("status")["config_error"].is_null());
    std::fs::write(&file, text_of.replace("type = \"tap\"", "type = \"tap\"\nmtu = \"big\"")).unwrap();
    let error = "line 15: bridge \"br0\", port \"host\": ";
    let shown = fixture.ok("status");
    let line = shown.lines().nth(2).unwrap_or_default();
    assert!(line.starts_with(&format!("  broken {error}")), "{shown}");
    let next = format!("; the next start fails; see `mswitch config check '{}'`", file.display());
    assert!(line.ends_with(&next), "{shown}");
    let json = fixture.json("status");
    assert!(json["config_error"].as_str().unwrap().starts_with(error), "{json}");
    assert!(daemon.signal(Signal::TERM).success());
    daemon.await_line(&format!("the next start fails until {} is corrected", file.display()));
}

#[test]
fn former_names_are_accepted_with_a_note() {
    let fixture = Fixture::new();
    let text_of = std::fs::read_to_string(fixture.path("config.toml")).unwrap();
    let former = fixture.path("former.toml");
    std::fs::write(&former, text_of.replace("path = ", "socket = ")).unwrap();
    let note = |text: &str| format!("mswitch: note: {text}\n");
    let in_file = format!(
        "{}:10:1: bridge \"br0\", port \"vm1\": `socket` is now called `path`; rename it",
        former.display()
    );
    let check = mswitch().args(["config", "check"]).arg(&former).output().unwrap();
    assert_eq!(check.status.code(), Some(0));
    assert_eq!(text(&check.stderr), note(&in_file));
    let json = mswitch().args(["config", "check", "--json"]).arg(&former).output().unwrap();
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["notes"][0]["line"], &json["notes"][0]["port"]), (&10.into(), &"vm1".into()));

    std::fs::copy(&former, fixture.path("config.toml")).unwrap();
    let _daemon = Daemon::start(&fixture);
    let said = |line: &str| {
        let output = fixture.run(line);
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stderr)
    };
    for line in ["config diff", "config apply"] {
        let mut command = mswitch();
        command.arg("--socket").arg(fixture.path("control.sock")).args(line.split(' ')).arg(&former);
        let output = command.output().unwrap();
        let mut notes = note(&in_file);
        if line == "config apply" {
            // It changes the running switch only.
            notes += &lasts_until_the_daemon_stops(&fixture);
        }
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), notes), "{line}");
    }
    let tap = interface();
    assert_eq!(
        said(&format!("port add br0 t --type tap --interface {tap} --address 10.213.0.5/30")),
        note("`--address` is now called `--addresses`")
    );
    assert_eq!(fixture.json("port show br0 t")["options"]["addresses"], "10.213.0.5/30");
    assert_eq!(
        said("port add br0 m --type memif --opt socket=@mswitch-former"),
        note("`socket` is now called `path`")
    );
    assert_eq!(fixture.json("port show br0 m")["options"]["path"], "@mswitch-former");
    assert_eq!(said("sflow set --collector 127.0.0.1"), note("`--collector` is now called `--collectors`"));
    let twice = fixture.refused("port add br0 n --type memif --opt socket=@a --path @b");
    assert_eq!(twice, "mswitch: `path` is given twice, once by its former name; give it once\n");
}

#[test]
fn relative_paths_start_at_the_command_s_directory() {
    let fixture = Fixture::new();
    let _daemon = Daemon::start(&fixture);
    std::fs::create_dir(fixture.path("here")).unwrap();
    let add = |words: &[&str]| {
        let mut command = mswitch();
        command
            .arg("--socket")
            .arg(fixture.path("control.sock"))
            .args(words)
            .current_dir(fixture.path("here"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    };
    add(&["port", "add", "br0", "m", "--type", "memif", "--path", "m.sock"]);
    add(&["port", "add", "br0", "r", "--type", "pcap", "--write", "r.pcapng"]);
    for (port, key, name) in [("m", "path", "m.sock"), ("r", "write", "r.pcapng")] {
        let path = fixture.path("here").join(name);
        assert!(path.exists(), "{}", path.display());
        assert_eq!(
            fixture.json(&format!("port show br0 {port}"))["options"][key],
            path.display().to_string()
        );
    }
    let mut set = mswitch();
    set.arg("--socket").arg(fixture.path("control.sock")).current_dir(fixture.path("here"));
    let refused = set.args(["logic", "set", "br0", "wasm:my.wasm"]).output().unwrap();
    let complaint = text(&refused.stderr);
    assert!(complaint.contains(&fixture.path("here").join("my.wasm").display().to_string()), "{complaint}");
}

#[test]
fn a_missing_file_has_no_position() {
    for command in ["check", "apply", "diff"] {
        let fixture = Fixture::new();
        let _daemon = (command != "check").then(|| Daemon::start(&fixture));
        let output = fixture.run(&format!("config {command} /no/such/file.toml"));
        let expected =
            "mswitch: /no/such/file.toml: cannot read the file: No such file or directory (os error 2)\n";
        assert_eq!(text(&output.stderr), expected);
        assert_eq!(output.status.code(), Some(if command == "diff" { 2 } else { 1 }));
    }
}

#[test]
fn the_file_of_a_daemon_comes_before_the_environment() {
    let fixture = Fixture::new();
    let other = fixture.path("other.sock");
    let mut command = fixture.daemon();
    command.env("MSWITCH_SOCKET", &other);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let warning = format!(
        "the control socket is {}, as the file says; MSWITCH_SOCKET names {}, where commands do not reach this daemon",
        fixture.path("control.sock").display(),
        other.display()
    );
    let first = lines.next().unwrap_or_default();
    assert!(first.ends_with(&warning), "{first}");
    assert!(lines.any(|line| line.contains("is ready")));
    assert!(fixture.path("control.sock").exists() && !other.exists());
    // The option comes before both.
    child.kill().unwrap();
    child.wait().unwrap();
    let mut command = fixture.daemon();
    command.env("MSWITCH_SOCKET", fixture.path("third.sock")).arg("--socket").arg(&other);
    let _daemon = Daemon::spawn(command);
    assert!(other.exists() && !fixture.path("third.sock").exists());
    // Commands take it from the environment, and their usage does not show it.
    let mut command = mswitch();
    assert!(command.env("MSWITCH_SOCKET", &other).arg("status").output().unwrap().status.success());
    let wrong = mswitch().env("MSWITCH_SOCKET", &other).args(["port", "add", "br0"]).output().unwrap();
    let wrong = text(&wrong.stderr);
    assert!(wrong.contains("Usage: mswitch port add --type <TYPE> <BRIDGE> <PORT>"), "{wrong}");
}

/// Without permissions, messages name the user and the remedy.
#[test]
fn errors_of_permissions_have_a_remedy() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let nobody = 65534;
    let fixture = Fixture::new();
    std::fs::set_permissions(fixture.dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let run = |arguments: &[&str]| {
        let output = mswitch().uid(nobody).gid(nobody).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    let file = fixture.path("config.toml");
    let file = file.to_str().unwrap();
    assert_eq!(
        run(&["config", "check", file]),
        format!(
            "mswitch: {file}: cannot read the file: permission denied for user {nobody}; permit that user to read the \
             file and to enter its directories, or run mswitch as root\n"
        )
    );
    let socket = fixture.path("other.sock");
    let socket = socket.to_str().unwrap();
    let refused = run(&["daemon", "--socket", socket]);
    let line = format!(
        "mswitch: cannot listen on {socket}: permission denied; run as root, or choose a path in a directory of your \
         own with --socket\n"
    );
    assert!(refused.ends_with(&line), "{refused}");
}

#[test]
fn the_manual_has_headings_of_a_word() {
    let fixture = Fixture::new();
    let pages = fixture.path("man1");
    assert!(mswitch().arg("man").arg(&pages).status().unwrap().success());
    let page = std::fs::read_to_string(pages.join("mswitch-port-set.1")).unwrap();
    assert!(page.lines().any(|line| line == ".SH PROTECTION"), "{page}");
    // Options with their values, required ones without brackets.
    let synopsis = page.lines().skip_while(|line| *line != ".SH SYNOPSIS").nth(1).unwrap();
    assert!(synopsis.starts_with("\\fBmswitch port set\\fR [\\fB\\-\\-"), "{synopsis}");
    assert!(synopsis.contains(" [\\fB\\-\\-mtu\\fR \\fIBYTES\\fR] "), "{synopsis}");
    assert!(synopsis.ends_with(" \\fIBRIDGE\\fR \\fIPORT\\fR"), "{synopsis}");
    let add = std::fs::read_to_string(pages.join("mswitch-port-add.1")).unwrap();
    assert!(add.contains(" \\fB\\-\\-type\\fR \\fITYPE\\fR "), "{add}");
    assert!(page.ends_with(".SH \"SEE ALSO\"\n\\fBmswitch\\-port\\fR(1), \\fBmswitch\\fR(1)\n"), "{page}");
    assert!(page.contains(".SH ENVIRONMENT\n.TP\nMSWITCH_SOCKET\n"), "{page}");
}

#[test]
fn a_daemon_without_its_file_says_what_to_do() {
    let output = mswitch().args(["daemon", "--config", "/no/such/file.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected =
        "mswitch: cannot read /no/such/file.toml: no such file; create it, or start without --config\n";
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn without_a_file_of_its_own_a_daemon_asks_for_one() {
    let fixture = Fixture::new();
    let mut command = mswitch();
    command.arg("daemon").arg("--socket").arg(fixture.path("control.sock"));
    let _daemon = Daemon::spawn(command);
    for verb in ["apply", "save"] {
        assert_eq!(
            fixture.refused(&format!("config {verb}")),
            format!(
                "mswitch: the daemon was started without a configuration file; name the file: \
                 `mswitch config {verb} FILE`\n"
            )
        );
    }
}

/// What a command that succeeds prints on standard error.
fn noted(fixture: &Fixture, line: &str) -> String {
    let output = fixture.run(line);
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    text(&output.stderr)
}

#[test]
fn settings_of_the_daemon_wait_for_its_next_start() {
    let fixture = Fixture::new();
    let daemon = Daemon::start(&fixture);
    let file = fixture.path("config.toml");
    let before = std::fs::read_to_string(&file).unwrap();
    let edited =
        before.replace("[daemon]\n", "[daemon]\nmetrics = \"9091\" # for Prometheus\nworkers = \"0\"\n");
    std::fs::write(&file, &edited).unwrap();

    let mut apply = mswitch();
    apply.arg("--socket").arg(fixture.path("control.sock")).args(["config", "apply"]).arg(&file);
    let output = apply.output().unwrap();
    let notes = "mswitch: note: `metrics` of the daemon takes effect at its next start\n";
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), notes.to_owned()));
    let applied = format!("\n{} was applied: 1 changed\n", file.display());
    assert!(text(&output.stdout).ends_with(&applied), "{output:?}");
    assert_eq!(fixture.json("worker show")["workers"][0]["cpu"], 0, "workers do not wait");
    let log = daemon.await_line("takes effect at the next start");
    let last = log.last().unwrap();
    assert!(
        last.contains("daemon: takes effect at the next start: metrics: not set -> 127.0.0.1:9091"),
        "{last}"
    );
    assert!(log.iter().all(|line| !line.contains("daemon changed")), "{log:#?}");

    // They are no unsaved change, and saving another change leaves them alone.
    assert_eq!(fixture.json("status")["unsaved"], 0);
    fixture.ok("port set br0 vm1 --mtu 1400");
    assert_eq!(fixture.json("status")["unsaved"], 1);
    fixture.ok("config save");
    assert_eq!(fixture.json("status")["unsaved"], 0);
    let saved = std::fs::read_to_string(&file).unwrap();
    assert_eq!(saved.replace("mtu = 1400\n", ""), edited);
    assert!(saved.contains("mtu = 1400\n"), "{saved}");
}

#[test]
fn changes_that_are_not_saved_are_shown_and_missed() {
    let fixture = Fixture::new();
    let mut daemon = Daemon::start(&fixture);
    assert!(!fixture.ok("status").contains("unsaved"));
    fixture.ok("port set br0 vm1 --mtu 1400");
    fixture.ok("bridge add br1");
    let line = "\nunsaved  2 changes; see `mswitch config diff`, `mswitch config save`\n";
    assert!(fixture.ok("status").contains(line), "{}", fixture.ok("status"));
    assert!(daemon.signal(Signal::TERM).success());
    let lost = format!("2 changes are lost: they are not saved in {}", fixture.path("config.toml").display());
    let log = daemon.await_line(&lost);
    assert!(log.last().unwrap().contains(" WARN "), "{log:#?}");
}

#[test]
fn a_port_s_stations_and_mirrors_are_named_when_they_go_with_it() {
    let fixture = Fixture::new();
    let _daemon = Daemon::start(&fixture);
    let socket = fixture.path("third.sock");
    fixture.ok_with(&["port", "add", "br0", "third", "--type", "memif", "--path"], &socket);
    for line in [
        "fdb add br0 02:00:00:00:00:01 --port vm1",
        "fdb add br0 02:00:00:00:00:02 --port vm1 --vlan 7",
        "mirror add br0 less --from vm1,third --to host --vlan 9",
        "mirror add br0 gone --from vm1 --to host --vlan 9",
    ] {
        assert_eq!(noted(&fixture, line), "", "{line}");
    }
    assert_eq!(
        noted(&fixture, "port del br0 vm1"),
        "mswitch: note: static station 02:00:00:00:00:01 went with port vm1\n\
         mswitch: note: static station 02:00:00:00:00:02, VLAN 7, went with port vm1\n\
         mswitch: note: mirror gone went with port vm1\n\
         mswitch: note: mirror less no longer copies from port vm1\n"
    );
    assert_eq!(noted(&fixture, "port del br0 third"), "mswitch: note: mirror less went with port third\n");
}

#[test]
fn a_station_outside_its_port_s_vlans_is_noted() {
    let fixture = Fixture::new();
    let station =
        |n| format!("[[bridge.station]]\nmac = \"02:00:00:00:00:{n:02}\"\nport = \"host\"\nvlan = 20\n");
    fixture.configure(&format!("vlan = \"access:10\"\n{}{}{}", station(7), station(8), station(9)));
    let output = mswitch().args(["config", "check"]).arg(fixture.path("config.toml")).output().unwrap();
    let note = format!(
        "mswitch: note: {}:20:8: bridge \"br0\": port host is access:10, so packets to the station in VLAN 20 are dropped \
         (and in 2 more places)\n",
        fixture.path("config.toml").display()
    );
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), note);
    let _daemon = Daemon::start(&fixture);
    assert_eq!(noted(&fixture, "fdb add br0 02:00:00:00:00:01 --port host"), "");
    let entries = fixture.json("fdb show br0")["entries"].clone();
    let mine = entries.as_array().unwrap().iter().find(|e| e["mac"] == "02:00:00:00:00:01").unwrap();
    assert_eq!(mine["vlan"], 10, "that of the access port");
    for (line, vlan) in [("--vlan 20", "in VLAN 20"), ("--vlan 0", "without a VLAN")] {
        assert_eq!(
            noted(&fixture, &format!("fdb add br0 02:00:00:00:00:02 --port host {line}")),
            format!("mswitch: note: port host is access:10, so packets to the station {vlan} are dropped\n")
        );
    }
}

#[test]
fn a_burst_belongs_to_the_present_rate() {
    let fixture = Fixture::new();
    let _daemon = Daemon::start(&fixture);
    assert!(
        fixture.refused("port set br0 vm1 --police-burst 64KiB").contains("`police`: the port has no rate"),
        "there is no rate yet"
    );
    for (line, shown, json) in [
        ("--police 20Mbit", "20Mbit (burst 625kB, default)", "20Mbit"),
        ("--police-burst 64KiB", "20Mbit (burst 64KiB)", "20Mbit burst 64KiB"),
        ("--police 30Mbit", "30Mbit (burst 937500B, default)", "30Mbit"),
    ] {
        fixture.ok(&format!("port set br0 vm1 {line}"));
        let show = fixture.ok("port show br0 vm1");
        let line = show.lines().find_map(|line| line.trim().strip_prefix("police ")).unwrap();
        assert_eq!(line.trim(), shown, "{show}");
        assert_eq!(fixture.json("port show br0 vm1")["protection"]["police"], json);
    }
}

#[test]
fn a_saved_file_has_the_types_of_the_reference() {
    let fixture = Fixture::new();
    let _daemon = Daemon::start(&fixture);
    fixture
        .ok("port set br0 vm1 --max-stations 3 --stations 02:00:00:00:00:01,02:00:00:00:00:02 --isolated on");
    for (name, text) in [("new.toml", None), ("empty.toml", Some(""))] {
        let file = fixture.path(name);
        text.inspect(|text| std::fs::write(&file, text).unwrap());
        fixture.ok_with(&["config", "save"], &file);
        let saved = std::fs::read_to_string(&file).unwrap();
        assert!(saved.starts_with("[daemon]\n"), "{saved}");
        for line in [
            "max-stations = 3\n",
            "stations = [\"02:00:00:00:00:01\", \"02:00:00:00:00:02\"]\n",
            "isolated = true\n",
        ] {
            assert!(saved.contains(line), "{line}: {saved}");
        }
        assert_eq!(fixture.ok_with(&["config", "diff"], &file), "no differences\n");
    }
}

#[test]
fn the_log_names_the_bridge_of_a_client_s_port() {
    let fixture = Fixture::new();
    let daemon = Daemon::start(&fixture);
    let socket = fixture.path("guest.sock");
    fixture.ok_with(&["port", "add", "br0", "guest", "--type", "vhost-user", "--path"], &socket);
    drop(std::os::unix::net::UnixStream::connect(&socket).unwrap());
    let log = daemon.await_line("vhost-user front-end ");
    assert!(log.last().unwrap().contains("bridge=\"br0\" port=\"guest\""), "{log:#?}");
}

#[test]
fn a_command_that_sets_nothing_is_wrong_usage() {
    for (line, name) in [
        ("port set br0 vm1", "`--admin up` (`mswitch port set --help` lists them)"),
        ("sflow set", "`--collectors 192.0.2.9` (`mswitch sflow set --help` lists them)"),
    ] {
        let output = mswitch().args(line.split(' ')).output().unwrap();
        let expected = format!("mswitch: nothing to set; name a setting, such as {name}\n");
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), expected), "{line}");
    }
}

#[test]
fn a_patch_port_without_a_peer_is_noted() {
    let fixture = Fixture::new();
    fixture.configure("[[bridge.port]]\nname = \"up\"\ntype = \"patch\"\npeer = \"core/down\"\n");
    let file = fixture.path("config.toml");
    let output = mswitch().args(["config", "check"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "a peer may be added while the switch runs");
    let note = format!(
        "mswitch: note: {}:19:8: bridge \"br0\", port \"up\": `peer`: this file has no bridge `core`; expected `br0`. The \
         port stays down until core/down is added\n",
        file.display()
    );
    assert_eq!(text(&output.stderr), note);
    // The daemon's log has the note too.
    let mut child = fixture.daemon().stderr(Stdio::piped()).spawn().unwrap();
    let log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let said: Vec<String> = log.take_while(|line| !line.contains("is ready")).collect();
    let _daemon = Daemon { child, log: channel().1 };
    assert!(said.iter().any(|line| line.contains("`peer`: this file has no bridge `core`")), "{said:#?}");
}

#[test]
fn part_of_a_configuration_can_fail() {
    let fixture = Fixture::new();
    let daemon = Daemon::start(&fixture);
    let netns = Netns::name();
    fixture.configure(&format!("netns = \"{}\"\n[[bridge]]\nname = \"br1\"\n", netns.0));
    let mut apply = mswitch();
    apply
        .arg("--socket")
        .arg(fixture.path("control.sock"))
        .args(["config", "apply"])
        .arg(fixture.path("config.toml"));
    let output = apply.output().unwrap();
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    let expected = format!("mswitch: bridge \"br0\", port \"host\": network namespace `{}`: ", netns.0);
    assert!(complaint.starts_with(&expected) && complaint.contains("the daemon retries"), "{complaint}");
    assert!(fixture.ok("bridge list").contains("br1"), "the other changes are applied");
    assert!(!interface_exists(&fixture.tap), "the port was closed, to be opened in the other namespace");
    assert!(netns.ip("add"));
    await_answer(&fixture, "port show br0 host", "up");

    // A refused command leaves nothing behind.
    let complaint = fixture.refused("port add br1 x --type tap --netns no-such-namespace");
    assert!(
        complaint.contains("bridge \"br1\", port \"x\": network namespace `no-such-namespace`"),
        "{complaint}"
    );
    assert_eq!(fixture.json("port list br1")["ports"].as_array().unwrap().len(), 0);
    assert_eq!(fixture.ok("config diff"), "no differences\n");
    drop(daemon);
}

#[test]
fn the_mtu_of_a_tap_is_its_interface_s() {
    let fixture = Fixture::new();
    let _daemon = Daemon::start(&fixture);
    let mtu = || std::fs::read_to_string(format!("/sys/class/net/{}/mtu", fixture.tap)).unwrap();
    let index = || std::fs::read_to_string(format!("/sys/class/net/{}/ifindex", fixture.tap)).unwrap();
    let before = (mtu(), index());
    for (set, expected) in [("9000", "9000\n"), ("1280", "1280\n"), ("0", "1500\n")] {
        fixture.ok(&format!("port set br0 host --mtu {set}"));
        assert_eq!(mtu(), expected);
    }
    assert_eq!((mtu(), index()), before, "the interface is the same");
}

#[test]
fn flags_of_the_daemon() {
    let fixture = Fixture::new();
    let bad =
        mswitch().args(["daemon", "--workers", "9999", "--socket"]).arg(fixture.path("s")).output().unwrap();
    assert_eq!(bad.status.code(), Some(1));
    assert!(
        text(&bad.stderr).contains("--workers: CPU 9999 is not online; online CPUs: "),
        "{}",
        text(&bad.stderr)
    );
    let no_dir = mswitch().args(["daemon", "--socket", "/no/such/dir/s"]).output().unwrap();
    assert_eq!(no_dir.status.code(), Some(1));
    assert!(text(&no_dir.stderr).contains("the directory /no/such/dir does not exist"));
}

#[test]
fn the_journal_gets_priorities_instead_of_times() {
    use std::os::unix::fs::MetadataExt;
    let fixture = Fixture::new();
    let file = std::fs::File::create(fixture.path("journal")).unwrap();
    let meta = file.metadata().unwrap();
    let log = |stream: String| {
        let mut daemon = fixture.daemon();
        let start = std::fs::read_to_string(fixture.path("journal")).unwrap().len();
        daemon.env("JOURNAL_STREAM", stream).stderr(file.try_clone().unwrap());
        let mut child = daemon.spawn().unwrap();
        let deadline = Instant::now() + TIMEOUT;
        while !fixture.run("status").status.success() {
            assert!(
                Instant::now() < deadline && child.try_wait().unwrap().is_none(),
                "the daemon does not serve"
            );
        }
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success());
        std::fs::read_to_string(fixture.path("journal")).unwrap().split_off(start)
    };
    let ours = log(format!("{}:{}", meta.dev(), meta.ino()));
    assert!(
        ours.lines().any(|line| line.starts_with("<6>mswitch ") && line.contains(" is ready socket=")),
        "{ours}"
    );
    assert!(ours.lines().all(|line| line.starts_with('<')), "{ours}");
    let elsewhere = log(format!("{}:{}", meta.dev(), meta.ino() + 1));
    assert!(elsewhere.contains(" INFO mswitch ") && !elsewhere.contains('<'), "{elsewhere}");
}

#[test]
fn the_service_manager_is_notified() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let abstract_name = format!("mswitch-notify-{}", std::process::id());
    let fixture = Fixture::new();
    let path = fixture.path("notify");
    for (name, manager) in [
        (path.display().to_string(), UnixDatagram::bind(&path)),
        (
            format!("@{abstract_name}"),
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&abstract_name).unwrap()),
        ),
    ] {
        let manager = manager.unwrap();
        manager.set_read_timeout(Some(TIMEOUT)).unwrap();
        let heard = || {
            let mut bytes = [0; 64];
            let n = manager.recv(&mut bytes).unwrap();
            text(&bytes[..n])
        };
        let mut daemon = fixture.daemon().env("NOTIFY_SOCKET", &name).stderr(Stdio::null()).spawn().unwrap();
        assert_eq!(heard(), "READY=1");
        fixture.ok("status");
        kill_process(Pid::from_child(&daemon), Signal::TERM).unwrap();
        assert_eq!(heard(), "STOPPING=1");
        assert!(daemon.wait().unwrap().success());
    }
}

#[test]
fn the_control_socket_gets_owner_group_and_mode_of_the_file() {
    use std::os::unix::fs::MetadataExt;
    let fixture = Fixture::new();
    let config = std::fs::read_to_string(fixture.path("config.toml")).unwrap();
    let with = |keys: &str| {
        std::fs::write(
            fixture.path("config.toml"),
            config.replace("[daemon]\n", &format!("[daemon]\n{keys}")),
        )
        .unwrap();
    };
    with("owner = \"nobody\"\ngroup = \"nogroup\"\nmode = \"0600\"\n");
    let _daemon = Daemon::start(&fixture);
    let meta = std::fs::metadata(fixture.path("control.sock")).unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o777), (65_534, 65_534, 0o600));
    fixture.ok("status");
    with("owner = \"nobody-here\"\n");
    let check = mswitch().args(["config", "check"]).arg(fixture.path("config.toml")).output().unwrap();
    let complaint = text(&check.stderr);
    assert!(
        complaint.contains("owner: there is no user \"nobody-here\"; give a name or a number"),
        "{complaint}"
    );
}

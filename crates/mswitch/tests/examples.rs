//! Runs every example in the help of every command.
//!
//! Examples are shell lines, run in the order of the commands. The daemon has the bridge `br0` and its ports `vm1`
//! (memif) and `host` (TAP, with unanswered broadcast pings); there is a namespace `blue`. The test replaces paths
//! below /run/mswitch and /etc/mswitch, and the name `blue`, by its own. Two commands do not end by themselves:
//! `mswitch daemon` gets a signal when it is ready, and `mswitch top` gets a `q`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy exempts test functions, but not their helpers")]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const MSWITCH: &str = env!("CARGO_BIN_EXE_mswitch");

/// Returns the help of a command, as on a wide terminal.
fn help(command: &[String]) -> String {
    let output = Command::new(MSWITCH).args(command).arg("--help").env("COLUMNS", "1000").output().unwrap();
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the lines of a section of a help text.
fn part<'h>(help: &'h str, title: &str) -> Vec<&'h str> {
    let lines = help.lines().skip_while(|line| *line != title).skip(1);
    lines.take_while(|line| line.starts_with("  ")).map(str::trim).collect()
}

/// Returns the commands without subcommands, in the order of the help.
fn commands(above: Vec<String>) -> Vec<Vec<String>> {
    let text = help(&above);
    let below = part(&text, "Commands:");
    if below.is_empty() {
        return vec![above];
    }
    let names = below.iter().filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.flat_map(|name| commands([above.clone(), vec![name.into()]].concat())).collect()
}

/// Environment of the examples: a directory and two network namespaces.
struct Fixture {
    dir: TempDir,
    home: String,
    blue: String,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::Builder::new().prefix("mswitch-examples-").tempdir().unwrap();
        let id = std::process::id();
        let fixture = Fixture { dir, home: format!("msx{id}h"), blue: format!("msx{id}b") };
        for folder in ["etc", "run"] {
            std::fs::create_dir(fixture.path(folder)).unwrap();
        }
        let config = "[daemon]\nworkers = \"0\"\nsocket = \"/run/mswitch/mswitch.sock\"\n\n[[bridge]]\nname = \"br0\"\n\n\
                      [[bridge.port]]\nname = \"vm1\"\ntype = \"memif\"\npath = \"/run/mswitch/vm1.sock\"\n\n\
                      [[bridge.port]]\nname = \"host\"\ntype = \"tap\"\naddresses = [\"10.213.77.1/24\"]\n";
        std::fs::write(fixture.path("etc/mswitch.toml"), fixture.own(config)).unwrap();
        // A capture of one broadcast.
        let numbers = [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1, 1_700_000_000, 0, 60, 60];
        let frame = [[0xff; 6], [2, 0, 0, 0, 0, 9], [0x88, 0xb5, 0, 0, 0, 0]].concat();
        let trace: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).chain(frame).collect();
        std::fs::write(fixture.path("etc/trace.pcap"), [trace, vec![0; 42]].concat()).unwrap();
        let program = include_str!("../../../examples/p4/router.p4");
        std::fs::write(fixture.path("etc/router.p4"), program).unwrap();
        let cases = include_str!("../../../examples/p4/router.stf");
        std::fs::write(fixture.path("etc/router.stf"), cases).unwrap();
        // The same program as p4c writes it for BMv2.
        let compiled = include_str!("../../bmv2/tests/programs/router.json");
        std::fs::write(fixture.path("etc/router.json"), compiled).unwrap();
        let info =
            Command::new(MSWITCH).args(["p4", "info"]).arg(fixture.path("etc/router.p4")).output().unwrap();
        std::fs::write(fixture.path("etc/router.p4info.txtpb"), info.stdout).unwrap();
        for name in [&fixture.home, &fixture.blue] {
            assert!(Command::new("ip").args(["netns", "add", name]).status().unwrap().success());
        }
        assert!(fixture.shell("ip link set lo up").status().unwrap().success());
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Replaces paths and names in a text by the test's own.
    fn own(&self, text: &str) -> String {
        let dir = self.dir.path().display();
        text.replace("/run/mswitch/", &format!("{dir}/run/"))
            .replace("/etc/mswitch/", &format!("{dir}/etc/"))
            .replace("blue", &self.blue)
    }

    /// A shell line in the first namespace, limited to two minutes.
    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("ip");
        let script = format!("set -euo pipefail; {}", self.own(line));
        command.args(["netns", "exec", &self.home, "timeout", "120", "bash", "-c", &script]);
        let programs = PathBuf::from(MSWITCH);
        let path = format!("{}:{}", programs.parent().unwrap().display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("MSWITCH_SOCKET", self.path("run/mswitch.sock")).env_remove("RUST_LOG");
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Runs a line that starts a daemon, and waits until it is ready.
    fn daemon(&self, line: &str) -> Process {
        let mut child = self.shell(line).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut said = Vec::new();
        while !said.last().is_some_and(|line: &String| line.contains("is ready")) {
            said.push(log.next().unwrap_or_else(|| panic!("{line}: the daemon ended: {said:#?}")));
        }
        // Later lines of the log must not meet a closed pipe.
        std::thread::spawn(move || log.for_each(drop));
        Process(child)
    }

    /// Runs an example to its end.
    fn run(&self, line: &str) -> Output {
        if line.starts_with("mswitch top") && !line.contains("--once") {
            let viewer = format!("script -qec '{line}' /dev/null");
            let mut child = self.shell(&viewer).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            child.stdin.as_mut().unwrap().write_all(b"q").unwrap();
            return child.wait_with_output().unwrap();
        }
        self.shell(line).output().unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        for name in [&self.home, &self.blue] {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// A program that runs until it gets a signal.
struct Process(Child);

impl Process {
    fn end(&mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        let status = self.0.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

#[test]
fn every_example_works() {
    let mut examples = Vec::new();
    for command in commands(Vec::new()) {
        let text = help(&command);
        let lines = part(&text, "Examples:");
        let typed = format!("mswitch {}", command.join(" "));
        assert!(!lines.is_empty(), "the help of `{typed}` has no examples; see `examples!` in cli.rs");
        for line in lines {
            assert!(line.contains(&typed), "an example of `{typed}` is not about it: {line}");
            assert!(line.chars().count() <= 96, "would be broken on a terminal of 100 columns: {line}");
            examples.push(line.to_owned());
        }
    }
    assert!(examples.len() >= 30, "{examples:#?}");

    // Benchmarks take minutes and the whole machine; tests/tests/bench.rs of mswitch-e2e runs them.
    examples.retain(|line| !line.starts_with("mswitch bench ") || line.ends_with("--list"));

    let fixture = Fixture::new();
    let (daemons, others): (Vec<_>, Vec<_>) =
        examples.into_iter().partition(|line| line.starts_with("mswitch daemon"));
    for line in daemons {
        fixture.daemon(&line).end();
    }
    let _daemon = fixture.daemon("exec mswitch daemon --config /etc/mswitch/mswitch.toml");
    let mut pings = fixture.shell("exec ping -b -i 0.02 10.213.77.255");
    let _pings = Process(pings.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    // Events for `mswitch events`: the host is learned repeatedly. While the bridge is removed, flushing fails.
    let mut forgetting = fixture.shell("while sleep 0.5; do mswitch fdb flush br0 || true; done");
    let _forgetting = Process(forgetting.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    for line in others {
        let output = fixture.run(&line);
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{line}: {}\n{}{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        );
    }

    // groff and the shells accept the output of the examples of `man` and `completion`.
    let accepts = |line: &str| {
        let output = fixture.shell(line).stderr(Stdio::piped()).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && complaint.is_empty(), "{line}: {complaint}");
        String::from_utf8(output.stdout).unwrap()
    };
    let page = accepts("groff -man -Tascii -ww -P-cbou man1/mswitch-port-add.1");
    for expected in ["mswitch port add", "--vlan", "EXAMPLES", "mswitch port add br0 vm2 --type memif --path"]
    {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    // Header and footer: page and manual, program with version, date of the second example.
    let words =
        |line: Option<&str>| line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(page.lines().next()), "mswitch-port-add(1) mswitch manual mswitch-port-add(1)");
    let footer = concat!("mswitch ", env!("CARGO_PKG_VERSION"), " 2026-11-23 mswitch-port-add(1)");
    assert_eq!(words(page.lines().rfind(|line| !line.trim().is_empty())), footer);
    let pages = accepts("for page in man1/*.1; do groff -man -Tascii -ww $page >/dev/null; echo $page; done");
    assert!(pages.contains("man1/mswitch.1\n") && pages.lines().count() > 30, "{pages}");
    // Every page that a page refers to exists.
    let references = accepts("groff -man -Tascii -P-cbou man1/*.1 | grep -o 'mswitch[a-z-]*(1)' | sort -u");
    for reference in references.lines() {
        let file = format!("man1/{}.1", reference.trim_end_matches("(1)"));
        assert!(fixture.path(&file).exists(), "a page refers to {reference}, which does not exist");
    }
    assert!(!references.contains("help"), "{references}");
    let completed = "COMP_LINE='mswitch po' COMP_POINT=10; _mswitch mswitch po mswitch; echo ${COMPREPLY[*]}";
    assert_eq!(accepts(&format!("source <(mswitch completion bash); {completed}")), "port\n");
    let completed = "fish --no-config -c 'source mswitch.fish; complete -C \"mswitch port st\"'";
    assert!(accepts(completed).starts_with("stats\t"));
    accepts("mswitch completion zsh >_mswitch; zsh -n _mswitch");
}

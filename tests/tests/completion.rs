//! Shell completion in bash, zsh and fish, with a running daemon and without one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use e2e::{Daemon, binary, config, modules, until};
use rustix::process::{Pid, Signal, kill_process};

const LIMIT: Duration = Duration::from_secs(60);

/// Time allowed for a shell and the daemon's half second, on a machine busy with other tests.
const QUICK: Duration = Duration::from_secs(10);

/// Completes `$LINE` as a shell does at a TAB, with the script loaded as users load it.
const BASH: &str = r#"
    source <(mswitch completion bash)
    COMP_LINE=$LINE COMP_POINT=${#LINE}
    # The words as readline splits them: at blanks, and at = and : too.
    read -ra COMP_WORDS <<<"${LINE//[=:]/ & }"
    [[ $LINE == *' ' ]] && COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    compopt() { echo "compopt $*"; }
    _mswitch mswitch "${LINE##*[ =:]}" ''
    printf '%s\n' "${COMPREPLY[@]}""#;
const ZSH: &str = r#"
    # The completion system needs a terminal; its input is printed instead.
    compdef() { : }
    _describe() { print -rl -- ${(P)3} }
    source <(mswitch completion zsh)
    words=("${(@s: :)LINE}") CURRENT=$#words
    _mswitch"#;
const FISH: &str = "mswitch completion fish | source; complete --do-complete $LINE";

struct Shell<'p> {
    program: &'static str,
    script: &'static str,
    socket: &'p str,
}

impl Shell<'_> {
    fn bash(socket: &str) -> Shell<'_> {
        Shell { program: "bash", script: BASH, socket }
    }

    fn output(&self, line: &str) -> Output {
        let programs = binary("mswitch", "MSWITCH_BIN").unwrap();
        let path = format!("{}:{}", programs.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(self.program);
        match self.program {
            "bash" => command.arg("--norc"),
            "zsh" => command.arg("--no-rcs"),
            _ => command.arg("--no-config"),
        };
        command.arg("-c").arg(self.script).env("LINE", line).env("PATH", path);
        command.env("MSWITCH_SOCKET", self.socket).stdin(Stdio::null()).output().unwrap()
    }

    /// Completes a line and returns the candidates; standard error must be empty.
    fn candidates(&self, line: &str) -> Vec<String> {
        let output = self.output(line);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{}: {line}", self.program);
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// Waits for these candidates: on a busy machine, the daemon may not answer within the time limit of one TAB.
    fn completes(&self, line: &str, wanted: &[&str]) {
        let mut last = Vec::new();
        let found = until("candidates", LIMIT, || {
            last = self.candidates(line);
            Ok((last == wanted).then_some(()))
        });
        found.unwrap_or_else(|error| {
            panic!("{error}: {}: `{line}`: found {last:?}, expected {wanted:?}", self.program)
        });
    }
}

fn daemon() -> Daemon {
    let patch = |name, peer| config::port(name, "patch", &format!("peer = \"{peer}\"\n"));
    let config = config::bridge("br0", "learning")
        + &config::memif("vm1", 1, "")
        + &config::memif("vm2", 2, "")
        + &patch("up", "lab/down")
        + &config::bridge("lab", "static")
        + &config::memif("probe", 3, "")
        + &patch("down", "br0/up");
    let daemon = Daemon::start(&config).unwrap();
    daemon.run(&["mirror", "add", "br0", "watch", "--from", "vm1", "--to", "vm2"]).unwrap();
    daemon
}

#[test]
fn bash_completes_names_of_the_running_daemon() {
    let daemon = daemon();
    let socket = daemon.path("ctl");
    let shell = Shell::bash(&socket);
    for (line, wanted) in [
        ("mswitch br", &["bridge"][..]),
        ("mswitch comp", &["completion"]),
        ("mswitch bridge show ", &["br0", "lab"]),
        ("mswitch port list l", &["lab"]),
        ("mswitch port show br0 ", &["up", "vm1", "vm2"]),
        ("mswitch port show lab p", &["probe"]),
        ("mswitch port show br0 --j", &["--json"]),
        // A new port's name is not completed.
        ("mswitch port add br0 v", &[]),
        ("mswitch capture br0 --port v", &["vm1", "vm2"]),
        ("mswitch capture br0 --port=v", &["vm1", "vm2"]),
        ("mswitch trace --port pr", &["probe"]),
        ("mswitch fdb flush br0 --port vm", &["vm1", "vm2"]),
        ("mswitch mirror add br0 new --to v", &["vm1", "vm2"]),
        ("mswitch mirror del br0 ", &["watch"]),
        ("mswitch events --kind port-", &["port-up", "port-down", "port-fault", "port-security"]),
        // Types and their options.
        ("mswitch port add br0 x --type netdev --driver ", &["auto", "af-packet", "af-xdp"]),
        ("mswitch port add br0 x --type ", &["memif", "tap", "netdev", "pcap", "vhost-user", "patch"]),
        ("mswitch port add br0 x --type tap --ne", &["--netns"]),
        ("mswitch port add br0 x --type memif --ne", &[]),
        ("mswitch port add br0 x --type memif --opt ring", &["compopt -o nospace", "ring-size="]),
        ("mswitch port add br0 x --type patch --peer ", &["br0/up", "lab/down"]),
        ("mswitch port set br0 vm1 --admin ", &["up", "down"]),
        ("mswitch port set br0 vm1 --isolated o", &["on", "off"]),
        // Logics and their parameters.
        ("mswitch logic set br0 le", &["learning"]),
        ("mswitch logic set br0 wa", &["compopt -o nospace", "wasm:"]),
        ("mswitch logic set br0 learning --param age", &["compopt -o nospace", "ageing="]),
        ("mswitch logic set br0 learning --param snooping=", &["on", "off"]),
        (
            "mswitch bridge add new --logic learning --param snoop",
            &["snooping=on", "snooping=off", "snooping-timeout="],
        ),
        ("mswitch logic set lab static --param pr", &["probe=down", "probe=probe"]),
        ("mswitch logic show br0 --table st", &["stations"]),
    ] {
        shell.completes(line, wanted);
    }
}

/// A module describes its parameters and commands itself.
#[test]
fn bash_completes_parameters_and_commands_of_a_module() {
    let daemon = daemon();
    let module = modules::native("examples/modules/learning.c", daemon.folder(), &[]).unwrap();
    daemon.run(&["logic", "set", "lab", &module]).unwrap();
    let socket = daemon.path("ctl");
    let shell = Shell::bash(&socket);
    shell.completes("mswitch logic call lab ", &["forget"]);
    shell.completes("mswitch logic call lab forget 5", &[]);
    shell
        .completes(&format!("mswitch logic set br0 {module} --param ag"), &["compopt -o nospace", "ageing="]);
    // In a chain, the stage's number is a word of its own.
    let stage = format!("1={module}");
    daemon.run(&["logic", "set", "lab", "chain", "--param", &stage, "--param", "2=hub"]).unwrap();
    shell.completes("mswitch logic call lab ", &["1"]);
    shell.completes("mswitch logic call lab 1 ", &["forget"]);
    shell.completes("mswitch logic call lab 2 f", &[]);
    shell.completes("mswitch logic set br0 chain --param 1=le", &["learning"]);
    shell.completes("mswitch logic set br0 chain --param 1=hub --param 2=st", &["static"]);
    shell.completes(
        "mswitch logic set br0 chain --param 1=hub --param ",
        &[
            "2=learning",
            "2=static",
            "2=hub",
            "2=middlebox",
            "2=three-tuple",
            "2=dummy",
            "2=pcap-filter",
            "2=inspect",
            "2=wasm:",
            "2=native:",
        ],
    );
    shell.completes("mswitch logic set br0 chain --param 1='le", &["learning"]);
    shell.completes("mswitch logic set br0 chain --param 1='learning age", &[]);
}

#[test]
fn bash_completes_files() {
    let daemon = daemon();
    std::fs::write(daemon.folder().join("my firewall.wasm"), b"").unwrap();
    let socket = daemon.path("ctl");
    let shell = Shell::bash(&socket);
    let folder = daemon.folder().display().to_string();
    std::fs::write(daemon.folder().join("my notes.txt"), b"").unwrap();
    shell.completes(
        &format!("mswitch logic set br0 wasm:{folder}/my"),
        &[&format!("{folder}/my\\ firewall.wasm")],
    );
    shell.completes(
        &format!("mswitch logic set br0 'wasm:{folder}/my"),
        &[&format!("wasm:{folder}/my firewall.wasm")],
    );
    shell.completes(&format!("mswitch config check {folder}/conf"), &[&format!("{folder}/config.toml")]);
}

#[test]
fn zsh_and_fish_complete_with_descriptions() {
    let daemon = daemon();
    let socket = daemon.path("ctl");
    let zsh = Shell { program: "zsh", script: ZSH, socket: &socket };
    zsh.completes("mswitch port show br0 vm", &["vm1:memif", "vm2:memif"]);
    zsh.completes(
        "mswitch logic set br0 wasm",
        &["wasm\\::a WebAssembly module: sandboxed, in any language"],
    );
    let fish = Shell { program: "fish", script: FISH, socket: &socket };
    fish.completes("mswitch port show br0 vm", &["vm1\tmemif", "vm2\tmemif"]);
    fish.completes("mswitch fdb fl", &["flush\tForget learned addresses"]);
}

/// `--socket` on the line takes precedence over the environment.
#[test]
fn the_socket_on_the_line_takes_precedence() {
    let daemon = daemon();
    let line = format!("mswitch --socket {} bridge show l", daemon.path("ctl"));
    Shell::bash("/nowhere/mswitch.sock").completes(&line, &["lab"]);
}

#[test]
fn without_an_answer_completion_is_silent_and_quick() {
    let options = ["--json", "--socket", "--help"];
    let quickly = |socket: &str| {
        let start = Instant::now();
        assert_eq!(Shell::bash(socket).candidates("mswitch port show br0 "), options);
        assert_eq!(Shell::bash(socket).candidates("mswitch port show br0 v"), [""; 0]);
        assert!(start.elapsed() < QUICK, "{:?}", start.elapsed());
    };
    let daemon = daemon();
    let socket = daemon.path("ctl");
    // A daemon that accepts connections but does not answer.
    let pid = Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    quickly(&socket);
    kill_process(pid, Signal::CONT).unwrap();
    drop(daemon);
    // No daemon.
    assert!(!Path::new(&socket).exists());
    quickly(&socket);
}

//! All at once: correct and hostile clients, reconfiguration, other logics, captures, traces and restarts in random
//! order, for 20 s, or 30 minutes in long runs, while two pairs of bystanders verify each packet that they exchange.
//!
//! The steps and their pauses follow from a seed alone; each step is printed. `MSWITCH_SEED` sets the seed; the default
//! is 1, and in long runs 1, 2 and 3 in turn. The daemon runs in a memory cgroup: if it leaks clients' memory, it is
//! killed and the test fails. The attack by a thread that punches its memory and hardly ever runs is left out
//! (`attacks` has it): while it goes on, the kernel lets no process that touches the memory end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bench::port::{Device, PortSpec};
use e2e::impact::{Bystanders, Footprint};
use e2e::{Cgroup, Daemon, Running, config, exclusive, long, seconds};
use fastrand::Rng;

/// Memory limit of the daemon: attacks make it touch 2 GiB of a client's memory first, which is charged to it.
const MEMORY: u64 = 3 << 30;
/// Memory that the allocator keeps beyond a tenth of the initial footprint: captures of a flood settle at 75 MiB,
/// however many.
const SLACK: u64 = 128 << 20;
/// Limit of an attacker's port: its packets to unknown stations are flooded to all ports, whose rings are not sized for
/// them.
const STORM: &str = "storm-unknown = \"1000pps\"\n";
/// Time allowed for a command and for the end of the daemon.
const LIMIT: Duration = Duration::from_secs(5);
/// Ports that are added and deleted.
const PORTS: usize = 4;
/// Longest pause between two steps, in milliseconds.
const PAUSE: u64 = 600;

const ATTACKS: [&str; 29] = [
    "punch",
    "punch-rings",
    "punch-sent",
    "punch-pieces",
    "linger",
    "linger-many",
    "linger-nested",
    "linger-unread",
    "watch-call",
    "watch-kick",
    "watch-nested",
    "await-call",
    "kick",
    "keep-rings",
    "reconnect",
    "keep-regions",
    "keep-silent",
    "truncate",
    "truncate-again",
    "empty",
    "sparse",
    "stations",
    "stations-tagged",
    "restart",
    "toggle",
    "log",
    "memory",
    "flood",
    "flood-noise",
];
const KINDS: [&str; 2] = ["memif", "vhost-user"];

/// One step. Ports and kinds are given by index.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    /// Start an attacker in place of the previous one.
    Attack {
        attack: &'static str,
        kind: usize,
    },
    /// Kill the attacker.
    Kill {
        kind: usize,
    },
    /// Connect or disconnect two correct clients.
    Extra {
        connect: bool,
    },
    AddPort {
        port: usize,
    },
    SetPort {
        port: usize,
        setting: [&'static str; 2],
    },
    DeletePort {
        port: usize,
    },
    /// Replace the logic.
    Logic {
        share: u32,
    },
    /// Start a capture of this many packets, and kill the previous one.
    Capture {
        packets: u32,
    },
    Trace,
    Flush,
    /// Terminate or kill the daemon, and restart it.
    Restart {
        kill: bool,
    },
}

/// Sequence of steps and pauses, determined by the seed.
struct Plan {
    random: Rng,
    ports: [bool; PORTS],
    extra: bool,
}

impl Plan {
    fn new(seed: u64) -> Plan {
        Plan { random: Rng::with_seed(seed), ports: [false; PORTS], extra: false }
    }
}

impl Iterator for Plan {
    type Item = (Action, Duration);

    fn next(&mut self) -> Option<(Action, Duration)> {
        let random = &mut self.random;
        let (port, kind) = (random.usize(..PORTS), random.usize(..KINDS.len()));
        let settings = [
            ["--mtu", "1400"],
            ["--mtu", "0"],
            ["--admin", "down"],
            ["--admin", "up"],
            ["--police", "1000pps"],
        ];
        let action = match random.u32(..100) {
            0..30 => Action::Attack { attack: ATTACKS[random.usize(..ATTACKS.len())], kind },
            30..40 => Action::Kill { kind },
            40..48 => {
                self.extra = !self.extra;
                Action::Extra { connect: self.extra }
            }
            48..68 => match (self.ports[port], random.bool()) {
                (false, _) => {
                    self.ports[port] = true;
                    Action::AddPort { port }
                }
                (true, false) => Action::SetPort { port, setting: settings[random.usize(..settings.len())] },
                (true, true) => {
                    self.ports[port] = false;
                    Action::DeletePort { port }
                }
            },
            68..76 => Action::Logic { share: random.u32(50..90) },
            76..84 => Action::Capture { packets: random.u32(1..100_000) },
            84..90 => Action::Trace,
            90..93 => Action::Flush,
            _ => {
                // Ports added at run time end with the daemon.
                self.ports = [false; PORTS];
                Action::Restart { kill: random.bool() }
            }
        };
        Some((action, Duration::from_millis(self.random.u64(..PAUSE))))
    }
}

/// The daemon and all clients.
struct Chaos {
    daemon: Daemon,
    group: Cgroup,
    pairs: Vec<Bystanders>,
    extra: Option<Bystanders>,
    attackers: [Option<Killed>; KINDS.len()],
    capture: Option<Killed>,
}

/// A process killed on drop.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Chaos {
    fn start() -> Chaos {
        let station =
            |mac: &str, port: &str| format!("[[bridge.station]]\nmac = \"{mac}\"\nport = \"{port}\"\n");
        let configuration = config::bridge("br0", "learning")
            + &config::memif("left", 0, "")
            + &config::memif("right", 1, "")
            + &config::vhost_user("vleft", "")
            + &config::vhost_user("vright", "")
            + &config::memif("bad-memif", 2, STORM)
            + &config::vhost_user("bad", STORM)
            + &config::memif("feed-memif", 3, "")
            + &config::memif("feed", 4, "")
            // A socket of its own: at one that it shares, a client of another port can keep newcomers waiting.
            + &config::port("extra", "memif", "path = \"{dir}/extra\"\n")
            + &config::vhost_user("vextra", "")
            // The attackers' packets are not flooded while their ports are down.
            + &station("02:00:00:00:0b:01", "bad-memif")
            + &station("02:00:00:00:0b:02", "bad")
            + &station("02:00:00:00:0f:01", "feed-memif")
            + &station("02:00:00:00:0f:02", "feed");
        let daemon = Daemon::start(&configuration).unwrap();
        let group = Cgroup::new(MEMORY).unwrap();
        group.add(daemon.pid()).unwrap();
        let pairs = vec![
            Bystanders::start("memif", daemon.memif("memif", 0), daemon.memif("memif", 1)).unwrap(),
            Bystanders::start("vhost-user", front_end(&daemon, "vleft"), front_end(&daemon, "vright"))
                .unwrap(),
        ];
        Chaos { daemon, group, pairs, extra: None, attackers: [None, None], capture: None }
    }

    /// Runs the command line client, which must succeed within the limit.
    fn command(&self, arguments: &[&str]) {
        let mut command = self.daemon.command(arguments).unwrap();
        let mut client = Running::start(command.stdout(Stdio::null())).unwrap();
        let status = client.wait(LIMIT).unwrap();
        assert!(status.success(), "{arguments:?}: {status}: {}", self.daemon.log());
    }

    fn run(&mut self, action: &Action) {
        match action {
            Action::Attack { attack, kind } => {
                self.attackers[*kind] = None;
                let mut command = Command::new(env!("CARGO_BIN_EXE_attacker"));
                command.args([attack, KINDS[*kind]]).arg(self.daemon.folder());
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                self.attackers[*kind] = Some(Killed(command.spawn().unwrap()));
            }
            Action::Kill { kind } => self.attackers[*kind] = None,
            Action::Extra { connect: true } => {
                let (left, right) = (self.daemon.memif("extra", 0), front_end(&self.daemon, "vextra"));
                self.extra = Some(Bystanders::start("the additional clients", left, right).unwrap());
            }
            Action::Extra { connect: false } => self.dismiss(),
            Action::AddPort { port } => {
                let (name, id) = (name(*port), (10 + port).to_string());
                let socket = self.daemon.path(if port % 2 == 0 { "memif" } else { &name });
                let kind = KINDS[port % 2];
                let add = ["port", "add", "br0", &name, "--type", kind, "--path", &socket];
                match kind {
                    "memif" => self.command(&[&add[..], &["--id", &id]].concat()),
                    _ => self.command(&add),
                }
            }
            Action::SetPort { port, setting } => {
                self.command(&[&["port", "set", "br0", &name(*port)][..], setting].concat());
            }
            Action::DeletePort { port } => self.command(&["port", "del", "br0", &name(*port)]),
            Action::Logic { share } => {
                self.command(&["logic", "set", "br0", "learning", "--param", &format!("port-share={share}")]);
            }
            Action::Capture { packets } => {
                self.capture = None;
                let (file, count) = (self.daemon.path("capture.pcapng"), packets.to_string());
                let mut command =
                    self.daemon.command(&["capture", "br0", "--count", &count, "--write", &file]).unwrap();
                command.stdout(Stdio::null()).stderr(Stdio::null());
                self.capture = Some(Killed(command.spawn().unwrap()));
            }
            Action::Trace => {
                let packet = "02000000b500 020000000001 88b5";
                self.command(&["trace", "br0", "--port", "bad", "--packet", packet]);
            }
            Action::Flush => self.command(&["fdb", "flush", "br0", "--port", "bad"]),
            Action::Restart { kill } => self.restart(*kill),
        }
    }

    fn restart(&mut self, kill: bool) {
        assert!(self.daemon.is_running().unwrap(), "the daemon ended: {}", self.daemon.log());
        self.dismiss();
        self.pairs.iter().for_each(Bystanders::daemon_restarts);
        match kill {
            true => self.daemon.kill().unwrap(),
            false => self.end(),
        }
        self.daemon.restart().unwrap();
        self.group.add(self.daemon.pid()).unwrap();
        self.pairs.iter().for_each(|pair| pair.recover().unwrap());
    }

    /// Disconnects the additional clients, which must have lost nothing.
    fn dismiss(&mut self) {
        if let Some(pair) = self.extra.take() {
            pair.finish().unwrap();
        }
    }

    /// SIGTERM ends the daemon in every state.
    fn end(&mut self) {
        let start = Instant::now();
        let status = self.daemon.terminate().unwrap();
        let took = start.elapsed();
        assert!(status.success(), "{status}: {}", self.daemon.log());
        assert!(took < LIMIT, "it took {took:?} to end");
    }

    fn finish(mut self, before: Footprint) {
        self.attackers = [None, None];
        self.capture = None;
        self.dismiss();
        for port in (0..PORTS).map(name) {
            if self.daemon.port("br0", &port).is_ok() {
                self.command(&["port", "del", "br0", &port]);
            }
        }
        before.wait_back(self.daemon.pid(), SLACK).unwrap();
        for pair in self.pairs.drain(..) {
            pair.finish().unwrap();
        }
        assert!(self.daemon.is_running().unwrap(), "the daemon ended: {}", self.daemon.log());
        self.end();
    }
}

fn name(port: usize) -> String {
    format!("x{port}")
}

fn front_end(daemon: &Daemon, port: &str) -> PortSpec {
    let device = Device { mergeable: true, ..Device::default() };
    PortSpec::vhost_user(&daemon.path(&format!("{port}.sock")), device)
}

#[test]
fn a_plan_is_determined_by_its_seed() {
    let steps = |seed| Plan::new(seed).take(1_000).collect::<Vec<_>>();
    assert_eq!(steps(1), steps(1));
    assert_ne!(steps(1), steps(2));
}

#[test]
fn only_restarts_disturb_bystanders() {
    let _machine = exclusive();
    let given =
        std::env::var("MSWITCH_SEED").ok().map(|seed| seed.parse().expect("MSWITCH_SEED is a number"));
    let seeds = match given {
        Some(seed) => vec![seed],
        None if long() => vec![1, 2, 3],
        None => vec![1],
    };
    for seed in seeds {
        run(seed);
    }
}

fn run(seed: u64) {
    println!("MSWITCH_SEED={seed}");
    let mut chaos = Chaos::start();
    let before = Footprint::of(chaos.daemon.pid()).unwrap();
    let start = Instant::now();
    for (number, (action, pause)) in Plan::new(seed).enumerate() {
        if start.elapsed() > seconds(12, 1800) {
            break;
        }
        let memory = chaos.group.used().unwrap() >> 20;
        let at = start.elapsed().as_secs_f64();
        println!("{at:8.3} s, {memory} MiB, step {number}: {action:?}, then {pause:?}");
        chaos.run(&action);
        std::thread::sleep(pause);
        for pair in &chaos.pairs {
            pair.exchange(1).unwrap();
        }
        assert!(chaos.daemon.is_running().unwrap(), "the daemon ended: {}", chaos.daemon.log());
    }
    let worst: Vec<_> = chaos.pairs.iter().map(|pair| pair.worst().unwrap()).collect();
    println!("longest round trips: {worst:?}");
    chaos.finish(before);
}

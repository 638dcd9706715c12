//! Comparison of an attack with its baseline.
//!
//! On one bridge, a daemon with one worker has a pair of bystanders on memif, another on vhost-user, and the attacker
//! with its partner. In the baseline phase, the attacker does everything except the attack: it connects, its partner
//! floods it, as many threads compute; an attack that takes CPUs away by itself does so without the switch.
//!
//! An attack may extend the longest round trip by 10 ms, and no answer of the control socket may take a second. A virtual
//! machine can lose its CPU for that long, so a failed attack is repeated together with its baseline, at most [`ATTEMPTS`]
//! times; an attack that succeeds in each of them fails the test.
//!
//! Criteria that do not depend on time hold in each attempt: no packet is lost, duplicated, reordered or altered, the
//! daemon keeps running and releases its memory, a correct client can use the port afterwards, and SIGTERM ends the
//! daemon within 5 s during the attack.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bench::port::{Device, PortSpec};
use e2e::impact::{Bystanders, Footprint, Operator};
use e2e::{Daemon, HugePages, config, exclusive, until};

/// Time that an attack may add to the longest round trip.
const ROUND_TRIP: Duration = Duration::from_millis(10);
/// The same for signals that half a million watches extend to 10 ms and more: the switch notices the first one when it
/// is over, and two more prove the attack. The kernel signals with interrupts disabled, so each signal blocks a CPU for
/// every process.
const LONG_SIGNAL: Duration = Duration::from_millis(40);
/// Longest round trip of a baseline above which another one is measured; the best of three counts.
const NOISE: Duration = Duration::from_millis(25);
/// Slowest answer of the control socket.
const ANSWER: Duration = Duration::from_secs(1);
/// Limit of the attacker's port: its packets to unknown stations are flooded to all ports, whose rings are not sized
/// for them.
const STORM: &str = "storm-unknown = \"1000pps\"\n";
/// Freed memory that the allocator keeps for threads that the control plane starts on demand.
const SLACK: u64 = 8 << 20;
/// Time allowed for SIGTERM to end the daemon.
const END: Duration = Duration::from_secs(5);
/// Attempts, each with a baseline and an attack.
const ATTEMPTS: usize = 3;
/// Rounds that a phase waits for.
const ROUNDS: u64 = 3;
/// Time limit for these rounds.
const LONGEST: Duration = Duration::from_secs(4);
const LIMIT: Duration = Duration::from_secs(60);
/// Huge pages for attacks that need them.
const HUGE_PAGES: u64 = 256;

/// One attack over one protocol.
pub(crate) struct Trial {
    attack: String,
    kind: &'static str,
    daemon: Daemon,
    pairs: Vec<Bystanders>,
}

/// Measurements of a phase.
struct Impact {
    /// Longest round trip of each pair.
    round_trips: Vec<Duration>,
    answer: Duration,
}

impl Impact {
    fn longest(&self) -> Duration {
        self.round_trips.iter().copied().max().unwrap_or_default()
    }
}

/// A running attacker. Drop kills it.
struct Attacker {
    child: Child,
    rounds: Arc<AtomicU64>,
}

/// Runs an attack over one protocol and asserts its impact.
pub(crate) fn run(attack: &str, kind: &'static str) {
    let _machine = exclusive();
    let _pages = attack.contains("huge").then(|| HugePages::reserve(HUGE_PAGES).unwrap());
    Trial::start(attack, kind).run();
}

impl Trial {
    fn start(attack: &str, kind: &'static str) -> Trial {
        let bad = match kind {
            "memif" => config::memif("bad", 2, STORM),
            _ => config::vhost_user("bad", STORM),
        };
        let ports = config::bridge("br0", "learning")
            + &config::memif("left", 0, "")
            + &config::memif("right", 1, "")
            + &config::vhost_user("vleft", "")
            + &config::vhost_user("vright", "")
            + &config::memif("feed", feed(kind), "")
            + &bad
            // The attacker's packets are not flooded while its port is down.
            + &format!("[[bridge.station]]\nmac = \"{}\"\nport = \"bad\"\n", station(kind));
        let daemon = Daemon::start(&ports).unwrap();
        let vhost_user = |name: &str| {
            let device = Device { mergeable: true, ..Device::default() };
            PortSpec::vhost_user(&daemon.path(&format!("{name}.sock")), device)
        };
        let pairs = vec![
            Bystanders::start("memif", daemon.memif("memif", 0), daemon.memif("memif", 1)).unwrap(),
            Bystanders::start("vhost-user", vhost_user("vleft"), vhost_user("vright")).unwrap(),
        ];
        Trial { attack: attack.to_string(), kind, daemon, pairs }
    }

    fn attacker(&self, baseline: bool) -> Attacker {
        let mut command = Command::new(env!("CARGO_BIN_EXE_attacker"));
        command.args([&self.attack, self.kind]).arg(self.daemon.folder());
        if baseline {
            command.arg("baseline");
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let rounds = Arc::new(AtomicU64::new(0));
        let count = rounds.clone();
        std::thread::spawn(move || {
            for _ in lines.lines().map_while(Result::ok) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Attacker { child, rounds }
    }

    /// Runs a phase with the attack or its baseline; the attacker is gone afterwards.
    fn phase(&self, baseline: bool) -> Impact {
        self.pairs.iter().for_each(|pair| pair.reset().unwrap());
        let operator = Operator::start(&self.daemon);
        let mut attacker = self.attacker(baseline);
        attacker.wait(1);
        let time = if e2e::long() { Duration::from_secs(5) } else { Duration::from_millis(400) };
        let start = Instant::now();
        until("a phase to end", LIMIT, || {
            attacker.check();
            let (spent, rounds) = (start.elapsed(), attacker.rounds.load(Ordering::Relaxed));
            Ok((spent > time && (rounds >= ROUNDS || spent > LONGEST)).then_some(()))
        })
        .unwrap();
        drop(attacker);
        let round_trips = self.pairs.iter().map(|pair| pair.worst().unwrap()).collect();
        Impact { round_trips, answer: operator.worst().unwrap() }
    }

    /// Runs an attack and its baseline; the error names the excess.
    fn attempt(&self) -> Result<(), String> {
        let mut baseline = self.phase(true);
        let pid = self.daemon.pid();
        // Footprint after a correct client.
        let before = Footprint::of(pid).unwrap();
        let attack = self.phase(false);
        before.wait_back(pid, SLACK).unwrap();
        let name = format!("{} over {}", self.attack, self.kind);
        println!(
            "{name}: round trips {:?}, baseline {:?}; answer {:?}, baseline {:?}",
            attack.round_trips, baseline.round_trips, attack.answer, baseline.answer
        );
        if attack.answer >= ANSWER {
            return Err(format!("{name}: the control socket took {:?} to answer", attack.answer));
        }
        let most = if self.attack == "watch-call" { LONG_SIGNAL } else { ROUND_TRIP };
        if attack.longest() <= most {
            // It has added no more, whatever the baseline.
            return Ok(());
        }
        for _ in 0..2 {
            if baseline.longest() > NOISE {
                baseline = [baseline, self.phase(true)].into_iter().min_by_key(Impact::longest).unwrap();
            }
        }
        let pairs = ["memif", "vhost-user"].iter().zip(&baseline.round_trips).zip(&attack.round_trips);
        for ((pair, baseline), worst) in pairs {
            if *worst > *baseline + most {
                return Err(format!("{name}: round trip of {worst:?} on {pair}, baseline {baseline:?}"));
            }
        }
        Ok(())
    }

    fn run(mut self) {
        e2e::one_of(ATTEMPTS, || self.attempt()).unwrap();
        // A correct client can use the port afterwards.
        let bad = match self.kind {
            "memif" => self.daemon.memif("memif", 2),
            _ => PortSpec::vhost_user(&self.daemon.path("bad.sock"), Device::default()),
        };
        Bystanders::start("the next", bad, self.daemon.memif("memif", feed(self.kind)))
            .unwrap()
            .finish()
            .unwrap();
        let mut attacker = self.attacker(false);
        attacker.wait(1);
        for pair in self.pairs.drain(..) {
            pair.finish().unwrap();
        }
        assert!(self.daemon.is_running().unwrap(), "the daemon ended: {}", self.daemon.log());
        let start = Instant::now();
        if self.attack.contains("starved") {
            // The process exists until its last thread has left the page fault, which waits for a thread of the
            // attacker that hardly ever runs. The daemon no longer answers, so a new one can be started.
            self.daemon.request_end().unwrap();
            until("the daemon to stop answering", END, || {
                Ok(self
                    .daemon
                    .cli(&["port", "list"])
                    .is_ok_and(|output| !output.status.success())
                    .then_some(()))
            })
            .unwrap();
            assert!(start.elapsed() < END, "it took {:?} to end", start.elapsed());
            drop(attacker);
            self.daemon.wait().unwrap();
            return;
        }
        let status = self.daemon.terminate().unwrap();
        let took = start.elapsed();
        assert!(status.success(), "{status}: {}", self.daemon.log());
        assert!(took < END, "it took {took:?} to end");
    }
}

/// Id of the partner's port.
fn feed(kind: &str) -> u32 {
    if kind == "memif" { 3 } else { 4 }
}

/// The attacker's station.
fn station(kind: &str) -> &'static str {
    if kind == "memif" { "02:00:00:00:0b:01" } else { "02:00:00:00:0b:02" }
}

impl Attacker {
    /// Waits until this many rounds have started.
    fn wait(&mut self, rounds: u64) {
        until("the attacker to attack", LIMIT, || {
            self.check();
            Ok((self.rounds.load(Ordering::Relaxed) >= rounds).then_some(()))
        })
        .unwrap();
    }

    fn check(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "the attacker gave up: {ended:?}");
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        // Best effort.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

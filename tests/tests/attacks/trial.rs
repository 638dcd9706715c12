//! How an attack is judged.
//!
//! A daemon with one worker has on one bridge a pair of bystanders on memif, another on vhost-user, and the attacker with
//! its partner. First the attacker does all but its deed: it connects, its partner floods it, as many threads compute; where
//! the deed takes CPUs away by itself, it does that without the switch.
//! The longest round trip of that undisturbed phase is what the attack is measured against: in the attack's phase, it may
//! be 10 ms longer, and no answer of the control socket may take a second. A virtual machine can lose its CPU for that
//! long by itself, so a phase that fails is tried again with its undisturbed phase, [`ATTEMPTS`] times at most; an attack
//! that works once in each of them fails. Nothing is ever forgiven that does not depend on time: packets that are lost,
//! doubled, reordered or altered, a daemon that ends, memory that is not given back, a port that no honest client can
//! have afterwards, and a daemon that does not end within 5 s of SIGTERM while the attack goes on.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bench::port::{Device, PortSpec};
use e2e::judges::{Bystanders, Footprint, Operator};
use e2e::{Daemon, HugePages, config, exclusive, seconds, until};

/// What an attack may add to the longest round trip.
const ROUND_TRIP: Duration = Duration::from_millis(10);
/// The same for signals that half a million watches make last 10 ms and more: the first one is noticed when it is over, and the
/// second one is proof. The kernel signals with interrupts disabled, so each takes a CPU away from everybody.
const LONG_SIGNAL: Duration = Duration::from_millis(30);
/// A longest round trip of an undisturbed phase that calls for another one: the best of three counts.
const NOISE: Duration = Duration::from_millis(25);
/// Slowest answer of the control socket.
const ANSWER: Duration = Duration::from_secs(1);
/// Of the attacker's port: its packets to unknown stations go to everybody, whose rings are not made for that.
const STORM: &str = "storm-unknown = \"1000pps\"\n";
/// What the allocator keeps of freed memory for the threads that the control plane starts when it has work.
const SLACK: u64 = 8 << 20;
/// Time in which SIGTERM ends the daemon.
const END: Duration = Duration::from_secs(5);
/// Undisturbed phases and attacks, until one attack is not noticed.
const ATTEMPTS: usize = 3;
/// Deeds that are begun in a phase, if they do not take too long.
const DEEDS: u64 = 3;
/// How long a phase waits for them.
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

/// What the judges saw in a phase.
struct Seen {
    /// Longest round trip of each pair.
    round_trips: Vec<Duration>,
    answer: Duration,
}

impl Seen {
    fn longest(&self) -> Duration {
        self.round_trips.iter().copied().max().unwrap_or_default()
    }
}

/// A running attacker. Dropping it kills it.
struct Attacker {
    child: Child,
    deeds: Arc<AtomicU64>,
}

/// Judges an attack over one protocol.
pub(crate) fn judge(attack: &str, kind: &'static str) {
    let _machine = exclusive();
    let _pages = attack.contains("huge").then(|| HugePages::reserve(HUGE_PAGES).unwrap());
    Trial::start(attack, kind).judge();
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
            // What is for the attacker stays away from the others also while its port is down.
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

    fn attacker(&self, calm: bool) -> Attacker {
        let mut command = Command::new(env!("CARGO_BIN_EXE_attacker"));
        command.args([&self.attack, self.kind]).arg(self.daemon.folder());
        if calm {
            command.arg("calm");
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let deeds = Arc::new(AtomicU64::new(0));
        let count = deeds.clone();
        std::thread::spawn(move || {
            for _ in lines.lines().map_while(Result::ok) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Attacker { child, deeds }
    }

    /// A phase in which the attacker does its deed, or is calm; it is gone afterwards.
    fn phase(&self, calm: bool) -> Seen {
        self.pairs.iter().for_each(|pair| pair.reset().unwrap());
        let operator = Operator::start(&self.daemon);
        let mut attacker = self.attacker(calm);
        attacker.wait(1);
        let start = Instant::now();
        until("a phase to end", LIMIT, || {
            attacker.check();
            let (enough, deeds) = (start.elapsed() > seconds(1, 5), attacker.deeds.load(Ordering::Relaxed));
            Ok((enough && (deeds >= DEEDS || start.elapsed() > LONGEST)).then_some(()))
        })
        .unwrap();
        drop(attacker);
        let round_trips = self.pairs.iter().map(|pair| pair.worst().unwrap()).collect();
        Seen { round_trips, answer: operator.worst().unwrap() }
    }

    /// Compares an attack with its harmless double; what is wrong with it.
    fn attempt(&self) -> Result<(), String> {
        let mut calm = self.phase(true);
        for _ in 0..2 {
            if calm.longest() > NOISE {
                calm = [calm, self.phase(true)].into_iter().min_by_key(Seen::longest).unwrap();
            }
        }
        let pid = self.daemon.pid();
        // What the daemon has after a client that did nothing wrong.
        let before = Footprint::of(pid).unwrap();
        let attack = self.phase(false);
        before.wait_back(pid, SLACK).unwrap();
        let name = format!("{} over {}", self.attack, self.kind);
        println!(
            "{name}: round trips {:?}, undisturbed {:?}; answer {:?}, undisturbed {:?}",
            attack.round_trips, calm.round_trips, attack.answer, calm.answer
        );
        for ((pair, calm), worst) in
            ["memif", "vhost-user"].iter().zip(&calm.round_trips).zip(&attack.round_trips)
        {
            let most = if self.attack == "watch-call" { LONG_SIGNAL } else { ROUND_TRIP };
            if *worst > *calm + most {
                return Err(format!("{name}: a bystander on {pair} waited {worst:?}, undisturbed {calm:?}"));
            }
        }
        match attack.answer < ANSWER {
            true => Ok(()),
            false => Err(format!("{name}: the control socket answered after {:?}", attack.answer)),
        }
    }

    fn judge(mut self) {
        e2e::one_of(ATTEMPTS, || self.attempt()).unwrap();
        // An honest client has the port afterwards.
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
            // The kernel keeps a process until its last thread has left the page fault, and that one waits for a thread of the
            // attacker's that hardly ever runs. Nobody can ask the daemon for anything any more, and so another can be started.
            self.daemon.ask_to_end().unwrap();
            until("the daemon to answer nobody", END, || {
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

/// The number of the partner's port.
fn feed(kind: &str) -> u32 {
    if kind == "memif" { 3 } else { 4 }
}

/// The attacker's station.
fn station(kind: &str) -> &'static str {
    if kind == "memif" { "02:00:00:00:0b:01" } else { "02:00:00:00:0b:02" }
}

impl Attacker {
    /// Waits until it has begun its deed so often.
    fn wait(&mut self, deeds: u64) {
        until("the attacker to attack", LIMIT, || {
            self.check();
            Ok((self.deeds.load(Ordering::Relaxed) >= deeds).then_some(()))
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
        // Nobody is left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

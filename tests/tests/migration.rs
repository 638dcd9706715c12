//! Live migration of guests between two QEMUs, each on a port of the same bridge.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use e2e::{Daemon, Guest, GuestConfig, Netns, Running, config, exclusive, long, output, until};
use rustix::process::{Signal, setpriority_process};

/// Time allowed for a guest; QEMU translates its instructions, which is slow on a busy machine.
const BOOT: Duration = Duration::from_secs(150);

/// Time without answers allowed beyond the downtime that QEMU reports, and number of migrations, whose median counts.
/// The destination translates the guest's code again, and other load on the machine adds delay: only a long run on a
/// quiet machine can resolve tens of milliseconds.
fn bound() -> (Duration, usize) {
    if long() { (Duration::from_millis(50), 5) } else { (Duration::from_secs(2), 1) }
}

/// Script of the guest: receives a file and prints its hash.
const SCRIPT: &str = "ip addr add 10.92.0.1/24 dev eth0; ip link set eth0 up; echo booted\n\
    echo received: $(nc -l -p 5000 | md5sum)\nsleep 100000";

/// A QEMU at a port, as source or destination.
fn start_qemu(daemon: &Daemon, port: &str, device: &str, incoming: bool) -> Guest {
    let config = GuestConfig {
        socket: daemon.path(&format!("{port}.sock")).into(),
        mac: "52:54:00:00:00:01".into(),
        script: SCRIPT.into(),
        // Small: when QEMU starts to track writes, a translated guest pauses for 0.7 ms for each megabyte.
        megabytes: 96,
        device: device.into(),
        incoming,
        ..GuestConfig::default()
    };
    Guest::start(&config).unwrap()
}

/// Pings the guest a hundred times a second and records the times of its answers.
struct Pings {
    process: Running,
    answers: tempfile::NamedTempFile,
}

impl Pings {
    fn start(from: &Netns) -> Pings {
        let answers = tempfile::NamedTempFile::new().unwrap();
        let mut ping = from.command(&["ping", "-n", "-D", "-i", "0.01", "10.92.0.1"]);
        ping.stdin(Stdio::null()).stdout(File::create(answers.path()).unwrap());
        Pings { process: Running::start(&mut ping).unwrap(), answers }
    }

    /// Times of the answers, in seconds since the epoch.
    fn times(&self) -> Vec<f64> {
        let text = std::fs::read_to_string(self.answers.path()).unwrap();
        // [1763795000.123456] 64 bytes from 10.92.0.1: icmp_seq=1 ttl=64 time=0.5 ms
        let answers = text.lines().filter(|line| line.contains("icmp_seq=") && line.contains("time="));
        answers.filter_map(|line| line.strip_prefix('[')?.split_once(']')?.0.parse().ok()).collect()
    }

    /// Waits for `count` answers from now on.
    fn wait(&self, count: usize) {
        let before = self.times().len();
        until("answers to pings", BOOT, || Ok((self.times().len() >= before + count).then_some(()))).unwrap();
    }

    /// The longest gap between two answers since the start.
    fn longest_gap(mut self) -> Duration {
        self.process.signal(Signal::INT).unwrap();
        self.process.wait(Duration::from_secs(10)).unwrap();
        let times = self.times();
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        Duration::from_secs_f64(gaps.fold(0.0, f64::max))
    }
}

/// Sends a file to the guest, slowly until `hurry` is set, its last MiB only then; counts the sent bytes.
fn send(file: &[u8], sent: &AtomicUsize, hurry: &AtomicBool) {
    let mut stream = TcpStream::connect("10.92.0.1:5000").unwrap();
    stream.set_write_timeout(Some(BOOT)).unwrap();
    for chunk in file.chunks(128 * 1024) {
        until("the migration to end", BOOT, || {
            let may = sent.load(Ordering::SeqCst) + (1 << 20) < file.len() || hurry.load(Ordering::SeqCst);
            Ok(may.then_some(()))
        })
        .unwrap();
        stream.write_all(chunk).unwrap();
        sent.fetch_add(chunk.len(), Ordering::SeqCst);
        if !hurry.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn migrate(device: &str) {
    let _machine = exclusive();
    // Raises the priority of this thread's processes, so that other load does not count as time of the migration.
    setpriority_process(None, -19).unwrap();
    let blue = Netns::new().unwrap();
    let ports = config::vhost_user("g1", "")
        + &config::vhost_user("g2", "")
        + &config::tap("blue", "eth0", blue.name(), &["10.92.0.9/24"], "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let mut source = start_qemu(&daemon, "g1", device, false);
    source.wait_for("booted", BOOT).unwrap();
    until("the guest to answer", BOOT, || {
        Ok(blue.run(&["ping", "-q", "-c", "20", "-i", "0.05", "-W", "5", "10.92.0.1"]).ok().map(drop))
    })
    .unwrap();

    // Migrate during pings.
    let (mut at, mut excess) = ("g1", Vec::new());
    let (grace, migrations) = bound();
    for _ in 0..migrations {
        at = if at == "g1" { "g2" } else { "g1" };
        let mut destination = start_qemu(&daemon, at, device, true);
        let pings = Pings::start(&blue);
        pings.wait(20);
        let migration = source.migrate(&mut destination, BOOT).unwrap();
        pings.wait(50);
        let gap = pings.longest_gap();
        println!("{device}: {:?} without answers, {migration:?}", gap);
        excess.push(gap.saturating_sub(migration.downtime));
        source = destination;
    }
    excess.sort_unstable();
    assert!(excess[migrations / 2] <= grace, "time without answers beyond the downtime: {excess:?}");

    // Migrate during a file transfer.
    let file: Vec<u8> = {
        let mut random = fastrand::Rng::with_seed(7);
        (0..if long() { 200 << 20 } else { 20 << 20 }).map(|_| random.u8(..)).collect()
    };
    let (sent, hurry) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut destination = start_qemu(&daemon, if at == "g1" { "g2" } else { "g1" }, device, true);
    std::thread::scope(|scope| {
        scope.spawn(|| blue.enter(|| send(&file, &sent, &hurry)).unwrap());
        until("the transfer to start", BOOT, || Ok((sent.load(Ordering::SeqCst) > 1 << 20).then_some(())))
            .unwrap();
        let start = Instant::now();
        let migration = source.migrate(&mut destination, BOOT).unwrap();
        let then = sent.load(Ordering::SeqCst);
        println!("{device}: {migration:?} ({:?}) with {then} of {} bytes sent", start.elapsed(), file.len());
        assert!(then < file.len(), "the transfer ended before the migration");
        hurry.store(true, Ordering::SeqCst);
    });
    let received = destination.wait_for("received:", BOOT).unwrap();
    std::fs::write(daemon.path("file"), &file).unwrap();
    let sum = output("md5sum", &[daemon.path("file")]).unwrap();
    assert_eq!(sum.split(' ').next(), received.split(' ').next());
}

#[test]
fn a_guest_with_split_rings_migrates() {
    migrate("");
}

#[test]
fn a_guest_with_packed_rings_migrates() {
    migrate(",packed=on");
}

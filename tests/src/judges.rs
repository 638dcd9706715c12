//! Judges of attacks: what bystanders and operators notice while a client misbehaves.
//!
//! - [`Bystanders`]: two honest clients that exchange 1,000 round trips a second through the bridge and the worker of the
//!   attacker. Packets carry numbers and content that follows from them; a packet that is lost, doubled, reordered or
//!   altered fails the pair. The longest round trip is recorded. Sending goes on while an answer is outstanding, so that a
//!   stall cannot hide behind the packets that were not sent during it.
//! - [`Operator`]: asks the daemon for its ports over and over, on a new connection each time, and records the slowest
//!   answer.
//! - [`Footprint`]: memory and descriptors that the daemon holds.
//!
//! The judges run on threads of the test; an attacker is a process of its own, because what it does to its memory and its
//! descriptors must not stop the judges. The daemon's worker has CPU 0 to itself; the attackers and the judges share CPU
//! 1, where bystanders run with real-time priority: an attacker that merely computes delays neither, so that what is
//! measured is the switch. A bystander that was not run for some time (a virtual machine's CPU is taken away for tens of
//! milliseconds) knows this by how late its own timer was, and does not count that time against the switch.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bench::port::{Client, PortSpec, Rings, check_connected, sleep};
use control::proto::ListPortsRequest;
use packet::MacAddr;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::{Daemon, Error, Result, until};

/// The CPU of judges and attackers; the daemon's worker has CPU 0.
pub const CPU: usize = 1;
/// Time between two packets of a bystander.
const INTERVAL: Duration = Duration::from_millis(1);
/// Pause between two questions of the operator.
const PAUSE: Duration = Duration::from_millis(5);
/// A packet or an answer that takes longer is lost.
const LIMIT: Duration = Duration::from_secs(20);
/// Packets that have not returned, at most: after a stall, what is due comes in bursts that rings hold.
const UNDER_WAY: usize = 200;
/// How late a timer may be before the lateness counts as time in which the bystander did not run.
const LATE: Duration = Duration::from_millis(1);
/// Packets of others that are taken at once.
const FLOODED: usize = 256;
/// A wait for packets that took less was none, and how many of these there may be in a row.
const NO_WAIT: Duration = Duration::from_micros(20);
const MOST_BUSY: u32 = 100;
/// Above the attackers', below the kernel's own threads'.
const PRIORITY: i32 = 10;

/// Ethertype of experiments on a local network.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// The number of packets by which bystanders find each other before they count.
const GREETING: u64 = u64::MAX;
/// Longest frame of a bystander.
const LONGEST: u64 = 1500;

/// Pins the calling thread to the CPU of judges and attackers. Has no effect on a machine with one CPU.
pub fn pin() {
    let mut cpus = CpuSet::new();
    cpus.set(CPU);
    // One CPU: worker, judges and attackers share it.
    let _ = sched_setaffinity(None, &cpus);
}

/// Gives the calling thread real-time priority, where that is allowed.
fn prefer() {
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the structure is valid for the call, which reads it; 0 is the calling thread. Where it is refused, the
    // undisturbed phase suffers like the other.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
}

/// A pair of honest clients with their own thread.
#[derive(Debug)]
pub struct Bystanders {
    name: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Packets sent by the one.
    sent: AtomicU64,
    /// Answers that it received.
    returned: AtomicU64,
    /// Longest round trip, nanoseconds.
    worst: AtomicU64,
    /// Restarts of the daemon that were announced, and those after which both are connected again.
    restarts: AtomicU64,
    recovered: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Shared {
    fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Bystanders {
    /// Connects both and waits until the first packets have returned.
    pub fn start(name: &str, left: PortSpec, right: PortSpec) -> Result<Bystanders> {
        let shared = Arc::new(Shared::default());
        let mut pair = Pair {
            left: End::connect(left)?,
            right: End::connect(right)?,
            shared: shared.clone(),
            sent: 0,
            under_way: VecDeque::new(),
            late: Duration::ZERO,
        };
        pair.meet()?;
        let thread = std::thread::spawn(move || {
            pin();
            prefer();
            if let Err(error) = pair.run() {
                *pair.shared.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            }
        });
        let pair = Bystanders { name: name.to_string(), shared, thread: Some(thread) };
        pair.exchange(50)?;
        Ok(pair)
    }

    /// Waits until so many more packets have returned.
    pub fn exchange(&self, packets: u64) -> Result<()> {
        let goal = self.shared.returned.load(Ordering::Relaxed) + packets;
        self.wait(goal)
    }

    /// Forgets round trips that were measured so far, after those under way have ended.
    pub fn reset(&self) -> Result<()> {
        self.worst().map(drop)
    }

    /// The longest round trip since the last call, after those under way have ended.
    pub fn worst(&self) -> Result<Duration> {
        self.wait(self.shared.sent.load(Ordering::Relaxed))?;
        Ok(Duration::from_nanos(self.shared.worst.swap(0, Ordering::Relaxed)))
    }

    /// Announces that the daemon ends now and another starts: connections may end, and packets under way be lost.
    pub fn daemon_restarts(&self) {
        self.shared.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until both have found the new daemon.
    pub fn recover(&self) -> Result<()> {
        until(&format!("the bystanders on {} to come back", self.name), 2 * LIMIT, || {
            if let Some(failure) = self.shared.failure() {
                return Err(Error(format!("{}: {failure}", self.name)));
            }
            let [announced, done] =
                [&self.shared.restarts, &self.shared.recovered].map(|n| n.load(Ordering::Relaxed));
            Ok((announced == done).then_some(()))
        })
    }

    /// Packets that have returned.
    pub fn returned(&self) -> u64 {
        self.shared.returned.load(Ordering::Relaxed)
    }

    fn wait(&self, goal: u64) -> Result<()> {
        until(&format!("packet {goal} of {} to return", self.name), 2 * LIMIT, || {
            match self.shared.failure() {
                Some(failure) => Err(Error(format!("{}: {failure}", self.name))),
                None => Ok((self.returned() >= goal).then_some(())),
            }
        })
    }

    /// Ends the exchange after all packets have returned; fails if one was lost, doubled, reordered or altered.
    pub fn finish(mut self) -> Result<()> {
        self.stop();
        self.shared.failure().map_or(Ok(()), |failure| Err(Error(format!("{}: {failure}", self.name))))
    }

    fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            *self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some("it panicked".into());
        }
    }
}

impl Drop for Bystanders {
    fn drop(&mut self) {
        self.stop();
    }
}

/// One bystander.
#[derive(Debug)]
struct End {
    client: Box<dyn Client>,
    spec: PortSpec,
    mac: MacAddr,
    /// The number of the next packet that it should receive.
    next: u64,
    /// Packets may be missing before the next one: the daemon has been restarted.
    gap: bool,
}

impl End {
    fn connect(spec: PortSpec) -> Result<End> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mac = spec.mac.unwrap_or(MacAddr::from_u64(0x0200_0000_b500 + number));
        let client = connect(&spec)?;
        Ok(End { client, spec, mac, next: 0, gap: false })
    }

    /// Sends packet `number`; false while there is no room.
    fn send(&mut self, to: MacAddr, number: u64) -> bool {
        let sent = self.client.push(0, &[&frame(to, self.mac, number)]);
        self.client.flush(0);
        sent
    }

    /// Greets the other; what has come of it is in `receive`.
    fn greet(&mut self, to: MacAddr) {
        // No room: those before are still on their way.
        self.send(to, GREETING);
    }

    /// Whether something of `from` has come.
    fn hears(&mut self, from: MacAddr, packet: &mut Vec<u8>) -> bool {
        let mut heard = false;
        while self.client.pop(0, packet) {
            heard |= packet.get(6..12) == Some(&from.0);
        }
        self.client.refill(0);
        heard
    }

    /// The number of the next packet of `from` that has come. Other packets are flooded by others and do not matter.
    fn receive(&mut self, from: MacAddr, packet: &mut Vec<u8>) -> Result<Option<u64>> {
        for _ in 0..FLOODED {
            if !self.client.pop(0, packet) {
                break;
            }
            self.client.refill(0);
            if packet.get(6..14) != Some(&[&from.0[..], &ETHERTYPE].concat()) {
                continue;
            }
            if packet.get(14..22) == Some(&GREETING.to_be_bytes()) {
                continue;
            }
            let found = packet.get(14..22).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
            let number = match found {
                Some(found) if self.gap && found > self.next => found,
                _ => self.next,
            };
            if *packet != frame(self.mac, from, number) {
                return Err(Error(format!("packet {found:?} in place of {number}, or with other content")));
            }
            self.next = number + 1;
            self.gap = false;
            return Ok(Some(number));
        }
        self.client.refill(0);
        Ok(None)
    }
}

/// A client of a port, as soon as the daemon takes one.
fn connect(spec: &PortSpec) -> Result<Box<dyn Client>> {
    until("the port to take a bystander", LIMIT, || Ok(bench::port::connect(spec, Rings::default()).ok()))
}

/// Frame `number` between two stations.
fn frame(to: MacAddr, from: MacAddr, number: u64) -> Vec<u8> {
    let length = (60 + number % (LONGEST - 60)) as usize;
    let mut frame = [&to.0[..], &from.0, &ETHERTYPE, &number.to_be_bytes()].concat();
    frame.extend((frame.len()..length).map(|at| (at as u64 ^ number) as u8));
    frame
}

#[derive(Debug)]
struct Pair {
    left: End,
    right: End,
    shared: Arc<Shared>,
    /// Packets sent.
    sent: u64,
    /// Packets that have not returned: number, when it was sent, and how late this thread had been by then in all.
    under_way: VecDeque<(u64, Instant, Duration)>,
    late: Duration,
}

impl Pair {
    /// Both greet each other until they have heard of each other: the switch knows both then.
    fn meet(&mut self) -> Result<()> {
        let Pair { left, right, .. } = self;
        let (mut packet, mut heard) = (Vec::new(), (false, false));
        until("the bystanders to hear each other", LIMIT, || {
            left.greet(right.mac);
            right.greet(left.mac);
            heard.0 |= left.hears(right.mac, &mut packet);
            heard.1 |= right.hears(left.mac, &mut packet);
            Ok((heard == (true, true)).then_some(()))
        })
    }

    /// Connects both to another daemon.
    fn recover(&mut self, restarts: u64) -> Result<()> {
        for end in [&mut self.left, &mut self.right] {
            end.client = connect(&end.spec)?;
            end.gap = true;
        }
        self.meet()?;
        self.under_way.clear();
        // Whatever was sent before is not waited for.
        self.shared.returned.store(self.sent, Ordering::Relaxed);
        self.shared.recovered.store(restarts, Ordering::Relaxed);
        Ok(())
    }

    fn run(&mut self) -> Result<()> {
        let mut due = Instant::now();
        let mut packet = Vec::new();
        let mut busy = 0;
        loop {
            let now = Instant::now();
            let stop = self.shared.stop.load(Ordering::Relaxed);
            while !stop
                && due <= now
                && self.under_way.len() < UNDER_WAY
                && self.left.send(self.right.mac, self.sent)
            {
                self.under_way.push_back((self.sent, now, self.late));
                due += INTERVAL;
                self.sent += 1;
                self.shared.sent.store(self.sent, Ordering::Relaxed);
            }
            while let Some(number) = self.right.receive(self.left.mac, &mut packet)? {
                until("room for an answer", LIMIT, || {
                    Ok(self.right.send(self.left.mac, number).then_some(()))
                })?;
            }
            while let Some(number) = self.left.receive(self.right.mac, &mut packet)? {
                self.returned(number)?;
            }
            match self.under_way.front() {
                Some((_, at, _)) if at.elapsed() > LIMIT => {
                    return Err(Error(format!(
                        "packet {} is lost: the other received {}",
                        self.left.next, self.right.next
                    )));
                }
                None if stop => return Ok(()),
                _ => {}
            }
            let restarts = self.shared.restarts.load(Ordering::Relaxed);
            let ends = [&mut self.left, &mut self.right];
            let connected = ends.into_iter().try_for_each(|end| check_connected(&mut *end.client, &end.spec));
            if self.shared.recovered.load(Ordering::Relaxed) == restarts {
                connected?;
            } else if connected.is_err() {
                self.recover(restarts)?;
                due = Instant::now();
            }
            let timeout = match stop {
                true => INTERVAL,
                // As many packets under way as may be: until one returns.
                false => due.saturating_duration_since(Instant::now()).max(INTERVAL / 10),
            };
            // Real-time priority must not take the CPU from everybody else while something floods the bystanders.
            if busy > MOST_BUSY {
                std::thread::sleep(INTERVAL / 10);
                busy = 0;
            }
            let asleep = Instant::now();
            sleep([&mut self.left.client, &mut self.right.client].into_iter(), timeout)?;
            busy = if asleep.elapsed() < NO_WAIT { busy + 1 } else { 0 };
            let late = asleep.elapsed().saturating_sub(timeout);
            if late > LATE {
                self.late += late;
            }
        }
    }

    fn returned(&mut self, number: u64) -> Result<()> {
        let asked = self.under_way.pop_front().filter(|(first, ..)| *first == number);
        let (_, at, late) = asked.ok_or_else(|| Error(format!("answer {number}, which is not due")))?;
        let took = at.elapsed().saturating_sub(self.late - late).as_nanos() as u64;
        self.shared.worst.fetch_max(took, Ordering::Relaxed);
        self.shared.returned.store(number + 1, Ordering::Relaxed);
        Ok(())
    }
}

/// Somebody who asks the daemon for its ports over and over.
#[derive(Debug)]
pub struct Operator {
    shared: Arc<Questions>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Questions {
    stop: AtomicBool,
    start: Instant,
    /// When the question that is not answered was asked, nanoseconds since the start; 0 between two questions.
    asked: AtomicU64,
    worst: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Operator {
    /// Begins to ask.
    pub fn start(daemon: &Daemon) -> Operator {
        let shared = Arc::new(Questions {
            stop: AtomicBool::new(false),
            start: Instant::now(),
            asked: AtomicU64::new(0),
            worst: AtomicU64::new(0),
            failure: Mutex::new(None),
        });
        let (questions, socket) = (shared.clone(), daemon.folder().join("ctl"));
        let thread = std::thread::spawn(move || {
            if let Err(error) = questions.ask(&socket) {
                *questions.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            }
        });
        Operator { shared, thread: Some(thread) }
    }

    /// The slowest answer since the last call; a question that is not answered yet counts with the time since it was asked.
    pub fn worst(&self) -> Result<Duration> {
        if let Some(failure) = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            return Err(Error(format!("the control socket: {failure}")));
        }
        let worst = self.shared.worst.swap(0, Ordering::Relaxed);
        let pending = match self.shared.asked.load(Ordering::Relaxed) {
            0 => 0,
            asked => self.shared.now().saturating_sub(asked),
        };
        Ok(Duration::from_nanos(worst.max(pending)))
    }
}

impl Questions {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn ask(&self, socket: &Path) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        while !self.stop.load(Ordering::Relaxed) {
            let asked = self.now().max(1);
            self.asked.store(asked, Ordering::Relaxed);
            let answer = runtime.block_on(async {
                let answer = tokio::time::timeout(LIMIT, async {
                    let mut client =
                        control::client::connect(socket).await.map_err(|e| Error(e.to_string()))?;
                    client.list_ports(ListPortsRequest::default()).await.map_err(|e| Error(e.to_string()))
                });
                answer.await.map_err(|_| Error(format!("no answer within {} s", LIMIT.as_secs())))?
            });
            answer?;
            self.worst.fetch_max(self.now() - asked, Ordering::Relaxed);
            self.asked.store(0, Ordering::Relaxed);
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it has to say was asked for, or is of no interest any more.
            let _ = thread.join();
        }
    }
}

/// What a daemon holds.
#[derive(Debug, Clone, Copy)]
pub struct Footprint {
    /// Bytes: resident memory, huge pages included, and what memory files take whose descriptors are open.
    pub memory: u64,
    /// Open descriptors.
    pub descriptors: usize,
}

impl Footprint {
    /// What a process holds now.
    pub fn of(pid: u32) -> Result<Footprint> {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let kib = |line: &str| line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
        let counted = ["Rss:", "Shared_Hugetlb:", "Private_Hugetlb:"];
        let resident: u64 = rollup
            .lines()
            .filter(|line| counted.iter().any(|name| line.starts_with(name)))
            .filter_map(kib)
            .sum();
        let (mut files, mut descriptors) = (Vec::new(), 0);
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
            descriptors += 1;
            // One that was closed meanwhile holds nothing.
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            if is_memory(&target)
                && let Ok(file) = fs::metadata(entry.path())
            {
                files.push((file.dev(), file.ino(), file.blocks() * 512));
            }
        }
        files.sort_unstable();
        files.dedup();
        let held: u64 = files.iter().map(|(_, _, bytes)| bytes).sum();
        Ok(Footprint { memory: (resident << 10) + held, descriptors })
    }

    /// Waits until a process holds no more than it did before: memory within 10 % and `slack` bytes, no descriptor more.
    pub fn wait_back(self, pid: u32, slack: u64) -> Result<Footprint> {
        let most = self.memory + self.memory / 10 + slack;
        let mut last = self;
        let back = until("memory and descriptors to be given back", LIMIT, || {
            last = Footprint::of(pid)?;
            Ok((last.memory <= most && last.descriptors <= self.descriptors).then_some(last))
        });
        back.map_err(|error| {
            let mib = |bytes: u64| bytes >> 20;
            Error(format!(
                "{error}: {} MiB and {} descriptors, before {} MiB and {}",
                mib(last.memory),
                last.descriptors,
                mib(self.memory),
                self.descriptors
            ))
        })
    }
}

/// Whether a descriptor's target is memory.
fn is_memory(target: &Path) -> bool {
    let target = target.to_string_lossy();
    ["/memfd:", "/dev/shm/", "/dev/hugepages/", "/anon_hugepage"]
        .iter()
        .any(|start| target.starts_with(start))
}

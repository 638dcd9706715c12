//! Impact of attacks: measures how a misbehaving client affects bystanders and operators.
//!
//! - [`Bystanders`]: two correct clients that exchange 1,000 round trips a second through the attacker's bridge and
//!   worker. Packets carry numbers and content derived from them; a packet that is lost, duplicated, reordered or
//!   altered fails the pair. The longest round trip is recorded. Sending continues while an answer is outstanding, so
//!   that a stall cannot hide behind packets that were not sent during it.
//! - [`Operator`]: lists the daemon's ports over and over, on a new connection each time, and records the slowest
//!   answer.
//! - [`Footprint`]: memory and descriptors that the daemon holds.
//!
//! Bystanders and operator run on threads of the test; an attacker is a process of its own, so that its effects on its
//! own memory and descriptors do not stop them. The daemon's worker has CPU 0 to itself; the test and the attackers
//! share CPU 1, where bystanders run with real-time priority: an attacker that only computes does not delay them, so
//! the switch alone is measured. A virtual machine can lose its CPU for tens of milliseconds; a bystander notices this
//! by the lateness of its own timer and does not count that time against the switch.

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

/// CPU of the measuring threads and the attackers; the daemon's worker has CPU 0.
pub const CPU: usize = 1;
/// Time between two packets of a bystander.
const INTERVAL: Duration = Duration::from_millis(1);
/// Pause between two requests of the operator.
const PAUSE: Duration = Duration::from_millis(5);
/// Time after which a packet or an answer counts as lost.
const LIMIT: Duration = Duration::from_secs(20);
/// Most packets in flight: after a stall, overdue packets come in bursts that rings can hold.
const MOST_IN_FLIGHT: usize = 200;
/// Lateness of a timer above which it counts as time that the bystander did not run.
const LATE: Duration = Duration::from_millis(1);
/// Flooded packets taken at once.
const FLOODED: usize = 256;
/// Duration below which a wait for packets did not sleep, and most such waits in a row.
const NO_WAIT: Duration = Duration::from_micros(20);
const MOST_BUSY: u32 = 100;
/// Above the attackers' priority, below the kernel threads'.
const PRIORITY: i32 = 10;

/// Ethertype for local experiments.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Number in the packets by which bystanders find each other before the measurement.
const GREETING: u64 = u64::MAX;
/// Longest frame of a bystander.
const LONGEST: u64 = 1500;

/// Pins the calling thread to the CPU of the measuring threads and attackers. Has no effect on a machine with one CPU.
pub fn pin() {
    let mut cpus = CpuSet::new();
    cpus.set(CPU);
    // With one CPU, worker, measuring threads and attackers share it.
    let _ = sched_setaffinity(None, &cpus);
}

/// Gives the calling thread real-time priority, if permitted.
fn raise_priority() {
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the structure is valid for the call, which reads it; 0 is the calling thread. If the call is refused,
    // baseline and attack suffer alike.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
}

/// A pair of correct clients with their own thread.
#[derive(Debug)]
pub struct Bystanders {
    name: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Packets sent by the left end.
    sent: AtomicU64,
    /// Answers received by the left end.
    returned: AtomicU64,
    /// Longest round trip, nanoseconds.
    worst: AtomicU64,
    /// Announced restarts of the daemon, and restarts after which both ends are connected again.
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
    /// Connects both ends and waits until the first packets have returned.
    pub fn start(name: &str, left: PortSpec, right: PortSpec) -> Result<Bystanders> {
        let shared = Arc::new(Shared::default());
        let mut pair = Pair {
            left: End::connect(left)?,
            right: End::connect(right)?,
            shared: shared.clone(),
            sent: 0,
            in_flight: VecDeque::new(),
            late: Duration::ZERO,
        };
        pair.meet()?;
        let thread = std::thread::spawn(move || {
            pin();
            raise_priority();
            if let Err(error) = pair.run() {
                *pair.shared.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            }
        });
        let pair = Bystanders { name: name.to_string(), shared, thread: Some(thread) };
        pair.exchange(50)?;
        Ok(pair)
    }

    /// Waits until this many more packets have returned.
    pub fn exchange(&self, packets: u64) -> Result<()> {
        let goal = self.shared.returned.load(Ordering::Relaxed) + packets;
        self.wait(goal)
    }

    /// Discards earlier measurements, after packets in flight have returned.
    pub fn reset(&self) -> Result<()> {
        self.worst().map(drop)
    }

    /// Longest round trip since the last call, after packets in flight have returned.
    pub fn worst(&self) -> Result<Duration> {
        self.wait(self.shared.sent.load(Ordering::Relaxed))?;
        Ok(Duration::from_nanos(self.shared.worst.swap(0, Ordering::Relaxed)))
    }

    /// Announces a restart of the daemon: connections may end and packets in flight may be lost.
    pub fn daemon_restarts(&self) {
        self.shared.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until both ends are connected to the new daemon.
    pub fn recover(&self) -> Result<()> {
        until(&format!("the bystanders on {} to reconnect", self.name), 2 * LIMIT, || {
            if let Some(failure) = self.shared.failure() {
                return Err(Error(format!("{}: {failure}", self.name)));
            }
            let [announced, done] =
                [&self.shared.restarts, &self.shared.recovered].map(|n| n.load(Ordering::Relaxed));
            Ok((announced == done).then_some(()))
        })
    }

    /// Number of packets that have returned.
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

    /// Ends the exchange after all packets have returned; fails if one was lost, duplicated, reordered or altered.
    pub fn finish(mut self) -> Result<()> {
        self.stop();
        self.shared.failure().map_or(Ok(()), |failure| Err(Error(format!("{}: {failure}", self.name))))
    }

    fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            *self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner) =
                Some("its thread panicked".into());
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
    /// Number of the next expected packet.
    next: u64,
    /// Whether packets may be missing before the next one, after a restart of the daemon.
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

    /// Sends packet `number`; returns false if there is no room.
    fn send(&mut self, to: MacAddr, number: u64) -> bool {
        let sent = self.client.push(0, &[&frame(to, self.mac, number)]);
        self.client.flush(0);
        sent
    }

    /// Greets the other end; `has_heard` receives its greeting.
    fn greet(&mut self, to: MacAddr) {
        // No room means that earlier greetings are still in flight.
        self.send(to, GREETING);
    }

    /// Whether a packet of `from` has arrived.
    fn has_heard(&mut self, from: MacAddr, packet: &mut Vec<u8>) -> bool {
        let mut heard = false;
        while self.client.pop(0, packet) {
            heard |= packet.get(6..12) == Some(&from.0);
        }
        self.client.refill(0);
        heard
    }

    /// Number of the next packet of `from`. Packets that others flood are ignored.
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
                return Err(Error(format!("packet {found:?} instead of {number}, or with altered content")));
            }
            self.next = number + 1;
            self.gap = false;
            return Ok(Some(number));
        }
        self.client.refill(0);
        Ok(None)
    }
}

/// Connects a client to a port, as soon as the daemon accepts one.
fn connect(spec: &PortSpec) -> Result<Box<dyn Client>> {
    until("the port to accept a bystander", LIMIT, || Ok(bench::port::connect(spec, Rings::default()).ok()))
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
    /// Packets in flight: number, send time, and total lateness of this thread at that time.
    in_flight: VecDeque<(u64, Instant, Duration)>,
    late: Duration,
}

impl Pair {
    /// Lets both ends greet each other until each has heard the other; the switch has learned both by then.
    fn meet(&mut self) -> Result<()> {
        let Pair { left, right, .. } = self;
        let (mut packet, mut heard) = (Vec::new(), (false, false));
        until("the bystanders to hear each other", LIMIT, || {
            left.greet(right.mac);
            right.greet(left.mac);
            heard.0 |= left.has_heard(right.mac, &mut packet);
            heard.1 |= right.has_heard(left.mac, &mut packet);
            Ok((heard == (true, true)).then_some(()))
        })
    }

    /// Reconnects both ends to the new daemon.
    fn recover(&mut self, restarts: u64) -> Result<()> {
        for end in [&mut self.left, &mut self.right] {
            end.client = connect(&end.spec)?;
            end.gap = true;
        }
        self.meet()?;
        self.in_flight.clear();
        // Earlier packets are not waited for.
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
                && self.in_flight.len() < MOST_IN_FLIGHT
                && self.left.send(self.right.mac, self.sent)
            {
                self.in_flight.push_back((self.sent, now, self.late));
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
            match self.in_flight.front() {
                Some((_, at, _)) if at.elapsed() > LIMIT => {
                    return Err(Error(format!(
                        "packet {} is lost; the other end expects {}",
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
                // With the most packets in flight: until one returns.
                false => due.saturating_duration_since(Instant::now()).max(INTERVAL / 10),
            };
            // A flood to the bystanders must not let their real-time priority monopolise the CPU.
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
                // To send in a burst what was due meanwhile would take time of its own.
                due += late;
            }
        }
    }

    fn returned(&mut self, number: u64) -> Result<()> {
        let request = self.in_flight.pop_front().filter(|(first, ..)| *first == number);
        let (_, at, late) = request.ok_or_else(|| Error(format!("unexpected answer {number}")))?;
        let took = at.elapsed().saturating_sub(self.late - late).as_nanos() as u64;
        self.shared.worst.fetch_max(took, Ordering::Relaxed);
        self.shared.returned.store(number + 1, Ordering::Relaxed);
        Ok(())
    }
}

/// An operator that lists the daemon's ports over and over.
#[derive(Debug)]
pub struct Operator {
    shared: Arc<Requests>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Requests {
    stop: AtomicBool,
    start: Instant,
    /// Time of the unanswered request, in nanoseconds since the start; 0 between two requests.
    request: AtomicU64,
    worst: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Operator {
    /// Starts sending requests.
    pub fn start(daemon: &Daemon) -> Operator {
        let shared = Arc::new(Requests {
            stop: AtomicBool::new(false),
            start: Instant::now(),
            request: AtomicU64::new(0),
            worst: AtomicU64::new(0),
            failure: Mutex::new(None),
        });
        let (requests, socket) = (shared.clone(), daemon.folder().join("ctl"));
        let thread = std::thread::spawn(move || {
            if let Err(error) = requests.ask(&socket) {
                *requests.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            }
        });
        Operator { shared, thread: Some(thread) }
    }

    /// Slowest answer since the last call; an unanswered request counts with the time since it was sent.
    pub fn worst(&self) -> Result<Duration> {
        if let Some(failure) = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            return Err(Error(format!("the control socket: {failure}")));
        }
        let worst = self.shared.worst.swap(0, Ordering::Relaxed);
        let pending = match self.shared.request.load(Ordering::Relaxed) {
            0 => 0,
            request => self.shared.now().saturating_sub(request),
        };
        Ok(Duration::from_nanos(worst.max(pending)))
    }
}

impl Requests {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn ask(&self, socket: &Path) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        while !self.stop.load(Ordering::Relaxed) {
            let request = self.now().max(1);
            self.request.store(request, Ordering::Relaxed);
            let answer = runtime.block_on(async {
                let answer = tokio::time::timeout(LIMIT, async {
                    let mut client =
                        control::client::connect(socket).await.map_err(|e| Error(e.to_string()))?;
                    client.list_ports(ListPortsRequest::default()).await.map_err(|e| Error(e.to_string()))
                });
                answer.await.map_err(|_| Error(format!("no answer within {} s", LIMIT.as_secs())))?
            });
            answer?;
            self.worst.fetch_max(self.now() - request, Ordering::Relaxed);
            self.request.store(0, Ordering::Relaxed);
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The failure has been read, or is of no interest any more.
            let _ = thread.join();
        }
    }
}

/// Resources that a daemon holds.
#[derive(Debug, Clone, Copy)]
pub struct Footprint {
    /// Bytes: resident memory, huge pages included, and the space used by open memory files.
    pub memory: u64,
    /// Open descriptors.
    pub descriptors: usize,
}

impl Footprint {
    /// Resources that a process holds now.
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
            // A descriptor closed meanwhile holds nothing.
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

    /// Waits until a process holds no more than before: memory within 10 % and `slack` bytes, and no more descriptors.
    pub fn wait_back(self, pid: u32, slack: u64) -> Result<Footprint> {
        let most = self.memory + self.memory / 10 + slack;
        let mut last = self;
        let back = until("memory and descriptors to be released", LIMIT, || {
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

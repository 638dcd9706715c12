//! A switch with senders and receivers in memory, and the measurement of an interval of its work.
//!
//! Receivers are ports 0, 1, …, senders follow. Work is measured by the CPU time of the workers' threads, so that a
//! worker that has lost its CPU for a while does not count as slow.

use std::error::Error;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fabric::rx::BatchLimits;
use fabric::switch::PortRef;
use fabric::{
    AttachOptions, Attachment, Caps, DropReason, Egress, Placement, PortSettings, RxQueue, Switch,
    SwitchLogic, SwitchOptions,
};

use crate::replay::{Packets, Replay, Valve};

/// An experiment fails with a message for its user.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Time between opening the valves and the measurement: caches are warm then.
pub(crate) const WARM_UP: Duration = Duration::from_millis(20);

/// A sender.
pub struct Sender {
    /// Packets that it repeats.
    pub packets: Source,
    /// Packets of a batch.
    pub burst: usize,
    /// CPU whose worker serves it.
    pub cpu: usize,
}

/// A port with several queues, each of which repeats the same packets.
pub struct Rings {
    /// Packets.
    pub packets: Arc<Packets>,
    /// Packets of a batch.
    pub burst: usize,
    /// Number of queues, which go to the workers in turn.
    pub count: usize,
}

/// Packets of a sender.
pub enum Source {
    /// The same again and again.
    Repeated(Arc<Packets>),
    /// The same, but for their numbers.
    Numbered(Packets),
}

/// Work done in an interval.
#[derive(Debug, Clone, Copy)]
pub struct Interval {
    /// Packets received from senders.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Batches.
    pub batches: u64,
    /// Packets dropped on the way.
    pub drops: u64,
    /// Mean CPU time of a worker.
    pub cpu: Duration,
    /// Time passed.
    pub wall: Duration,
}

impl Interval {
    /// Packets delivered in a second of a worker's CPU time, all workers together; 0 if they had none.
    pub fn rate(&self) -> f64 {
        if self.cpu.is_zero() {
            return 0.0;
        }
        self.packets.saturating_sub(self.drops) as f64 / self.cpu.as_secs_f64()
    }

    /// Share of the time in which the workers had their CPUs.
    pub fn share(&self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64()
    }
}

/// Anything whose work can be measured.
pub trait Subject {
    /// Lets it work for a while, and measures that.
    fn run(&self, time: Duration) -> Result<Interval>;
}

/// The switch and its ports.
pub struct Rig {
    switch: Switch,
    senders: Vec<PortRef>,
    /// Of all queues of all senders.
    valves: Vec<Arc<Valve>>,
    receivers: Vec<PortRef>,
    /// The workers' threads.
    threads: Vec<i32>,
}

/// Queues of a sender's port.
struct Feed {
    queues: Vec<Box<dyn RxQueue>>,
    cpu: Option<usize>,
}

impl Rig {
    /// Starts a switch with a worker on each of `cpus`.
    pub fn new(
        cpus: &[usize],
        logic: Arc<dyn SwitchLogic>,
        receivers: Vec<Arc<dyn Egress>>,
        senders: Vec<Sender>,
    ) -> Result<Self> {
        let burst = senders.iter().map(|sender| sender.burst).max().unwrap_or(1);
        let mut valves = Vec::new();
        let feeds = senders.into_iter().map(|sender| {
            let valve = Valve::new()?;
            valves.push(valve.clone());
            let queue: Box<dyn RxQueue> = Box::new(match sender.packets {
                Source::Repeated(packets) => Replay::new(packets, valve, sender.burst),
                Source::Numbered(packets) => Replay::numbered(packets, valve, sender.burst),
            });
            Ok(Feed { queues: vec![queue], cpu: Some(sender.cpu) })
        });
        let feeds = feeds.collect::<Result<Vec<_>>>()?;
        Self::start(cpus, logic, receivers.into_iter().map(|ring| vec![ring]).collect(), feeds, valves, burst)
    }

    /// Starts a switch with a worker on each of `cpus`, and two ports with so many rings each.
    pub fn with_rings(
        cpus: &[usize],
        logic: Arc<dyn SwitchLogic>,
        receiver: Vec<Arc<dyn Egress>>,
        sender: &Rings,
    ) -> Result<Self> {
        let valves = (0..sender.count).map(|_| Valve::new()).collect::<std::io::Result<Vec<_>>>()?;
        let queue = |valve: &Arc<Valve>| -> Box<dyn RxQueue> {
            Box::new(Replay::new(sender.packets.clone(), valve.clone(), sender.burst))
        };
        let feed = Feed { queues: valves.iter().map(queue).collect(), cpu: None };
        Self::start(cpus, logic, vec![receiver], vec![feed], valves, sender.burst)
    }

    fn start(
        cpus: &[usize],
        logic: Arc<dyn SwitchLogic>,
        receivers: Vec<Vec<Arc<dyn Egress>>>,
        senders: Vec<Feed>,
        valves: Vec<Arc<Valve>>,
        burst: usize,
    ) -> Result<Self> {
        // One at a time, since new threads are taken for this switch's.
        static STARTING: Mutex<()> = Mutex::new(());
        let starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let before = workers()?;
        // Bounded in packets alone.
        let usual = BatchLimits::default();
        let batch = BatchLimits { packets: burst, bytes: usual.bytes.max(burst * 2048) };
        let workers_cpus = cpus.iter().copied().map(Some).collect();
        let options = SwitchOptions { workers: workers_cpus, batch, ..SwitchOptions::default() };
        let switch = Switch::start(&options)?;
        let threads: Vec<_> = workers()?.into_iter().filter(|thread| !before.contains(thread)).collect();
        drop(starting);
        if threads.len() != cpus.len() {
            return Err(format!("{} workers' threads for {} workers", threads.len(), cpus.len()).into());
        }
        let bridge = switch.add_bridge("experiment", logic)?;
        let add = |name: String, rx, tx, cpu: Option<usize>| -> Result<PortRef> {
            let port = switch.add_port(bridge, PortSettings::new(name))?;
            let attachment =
                Attachment { rx, tx, caps: Caps::default(), mtu: 65_535, on_fault: Arc::new(|_| ()) };
            switch.attach_with(
                port,
                attachment,
                AttachOptions { placement: Placement { cpu, node: None }, ..AttachOptions::default() },
            )?;
            Ok(port)
        };
        let receivers = (0..).zip(receivers).map(|(i, tx)| add(format!("to{i}"), Vec::new(), tx, None));
        let receivers = receivers.collect::<Result<Vec<_>>>()?;
        let senders =
            (0..).zip(senders).map(|(i, feed)| add(format!("from{i}"), feed.queues, Vec::new(), feed.cpu));
        let senders = senders.collect::<Result<Vec<_>>>()?;
        Ok(Self { switch, senders, valves, receivers, threads })
    }

    /// Waits until the counters stand still, after the senders have been stopped.
    pub fn settle(&self) -> Result<()> {
        let mut before = self.look()?;
        loop {
            std::thread::sleep(WARM_UP);
            let now = self.look()?;
            if (now.packets, now.drops) == (before.packets, before.drops) {
                return Ok(());
            }
            before = now;
        }
    }

    /// Packets that were dropped since the start.
    pub fn drops(&self) -> Result<u64> {
        Ok(self.look()?.drops)
    }

    fn look(&self) -> Result<Look> {
        let mut look =
            Look { at: Instant::now(), cpu: Duration::ZERO, packets: 0, bytes: 0, batches: 0, drops: 0 };
        for thread in &self.threads {
            look.cpu += cpu_time(*thread)?;
        }
        for port in &self.senders {
            for queue in self.switch.counters(*port)?.rx {
                look.packets += queue.packets;
                look.bytes += queue.bytes;
                look.batches += queue.batches;
                look.drops += DropReason::ALL.iter().map(|reason| queue.drops[*reason as usize]).sum::<u64>();
            }
        }
        for port in &self.receivers {
            for queue in self.switch.counters(*port)?.tx {
                look.drops += queue.drops.iter().sum::<u64>();
            }
        }
        Ok(look)
    }
}

impl Subject for Rig {
    fn run(&self, time: Duration) -> Result<Interval> {
        for valve in &self.valves {
            valve.open()?;
        }
        std::thread::sleep(WARM_UP);
        let before = self.look()?;
        std::thread::sleep(time);
        let after = self.look()?;
        for valve in &self.valves {
            valve.close();
        }
        let cpu = (after.cpu - before.cpu) / self.threads.len().max(1) as u32;
        Ok(Interval {
            packets: after.packets - before.packets,
            bytes: after.bytes - before.bytes,
            batches: after.batches - before.batches,
            drops: after.drops - before.drops,
            cpu,
            wall: after.at - before.at,
        })
    }
}

struct Look {
    at: Instant,
    cpu: Duration,
    packets: u64,
    bytes: u64,
    batches: u64,
    drops: u64,
}

/// Threads of this process that are workers.
fn workers() -> Result<Vec<i32>> {
    let mut workers = Vec::new();
    for entry in fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        // Threads may end meanwhile.
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if name
            .strip_prefix("mswitch-w")
            .is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
        {
            workers.push(entry.file_name().to_string_lossy().parse()?);
        }
    }
    Ok(workers)
}

/// CPU time of a thread of this process.
pub(crate) fn cpu_time(thread: i32) -> Result<Duration> {
    // clock_getres(2): CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED.
    let clock = !thread << 3 | 4 | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes; the kernel rejects a clock that does not exist.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec)?))
}

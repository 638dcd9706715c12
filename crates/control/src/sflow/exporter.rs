//! Sends what was sampled: a thread that empties the workers' pages, reads ports' counters when it is time, and makes
//! datagrams of both.
//!
//! It waits for nobody but the workers' current batch, and nobody waits for it: a sample that it was too slow for is
//! counted where it was dropped. A sample is on its way within [`IDLE`].

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fabric::Switch;
use fabric::counters::{DropReason, QueueSnapshot};
use fabric::switch::PortRef;

use super::link::{CollectorReport, Link};
use super::sampler::{BridgeSampler, Record, Sampler, port_of};
use super::settings::SflowConfig;
use super::wire::{COMPACT_END, Counters, Direction, Flow, Form, Head, Samples};

/// How long pages fill while there is little in them.
const IDLE: Duration = Duration::from_millis(200);
/// The same when they were found rather full.
const BUSY: Duration = Duration::from_millis(5);
/// From which share of a page on it is rather full.
const FULL: f32 = 0.1;
/// Datagrams that are sent in one go: more could find the collector's buffer full.
const BURST: u32 = 32;
/// The pause after so many.
const BREATH: Duration = Duration::from_millis(1);

/// Time for the last samples to be sent.
const ENDING: Duration = Duration::from_secs(2);

/// A port, for its counters.
#[derive(Debug, Clone)]
pub(super) struct RosterPort {
    pub(super) at: PortRef,
    pub(super) if_index: u32,
    pub(super) bridge: String,
    pub(super) port: String,
    pub(super) admin_up: bool,
}

/// The bridges and ports that there are.
#[derive(Default)]
pub(super) struct Roster {
    pub(super) ports: Vec<RosterPort>,
    pub(super) bridges: BTreeMap<u32, Arc<BridgeSampler>>,
}

/// What was exported.
#[derive(Debug, Clone, Default)]
pub(super) struct Exported {
    pub(super) agent: Option<IpAddr>,
    pub(super) collectors: Vec<CollectorReport>,
    /// Packets.
    pub(super) samples: u64,
    /// Ports' counters.
    pub(super) counter_samples: u64,
}

/// What the thread is told.
struct Orders {
    config: SflowConfig,
    roster: Arc<Roster>,
    changed: bool,
    stop: bool,
}

struct Shared {
    orders: Mutex<Orders>,
    told: Condvar,
    exported: Mutex<Exported>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread. Dropping this sends what was sampled and ends it.
pub(super) struct Exporter {
    shared: Arc<Shared>,
    /// Nothing is ever sent: the sender goes with the thread.
    ended: Receiver<()>,
}

impl Exporter {
    pub(super) fn start(
        switch: Arc<Switch>,
        sampler: Arc<Sampler>,
        config: SflowConfig,
    ) -> std::io::Result<Self> {
        let orders = Orders { config, roster: Arc::default(), changed: true, stop: false };
        let shared =
            Arc::new(Shared { orders: Mutex::new(orders), told: Condvar::new(), exported: Mutex::default() });
        let export = Export::new(switch, sampler, shared.clone());
        let (alive, ended) = channel();
        std::thread::Builder::new().name("mswitch-sflow".into()).spawn(move || {
            let _alive = alive;
            export.run();
        })?;
        Ok(Self { shared, ended })
    }

    /// Goes on with other settings.
    pub(super) fn configure(&self, config: SflowConfig) {
        let mut orders = lock(&self.shared.orders);
        orders.config = config;
        orders.changed = true;
        self.shared.told.notify_one();
    }

    /// Other bridges and ports.
    pub(super) fn follow(&self, roster: Roster) {
        lock(&self.shared.orders).roster = Arc::new(roster);
    }

    pub(super) fn roster(&self) -> Arc<Roster> {
        lock(&self.shared.orders).roster.clone()
    }

    pub(super) fn exported(&self) -> Exported {
        lock(&self.shared.exported).clone()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        lock(&self.shared.orders).stop = true;
        self.shared.told.notify_one();
        // One that is held up, by a worker that is stuck, ends when it can.
        let _ = self.ended.recv_timeout(ENDING);
    }
}

/// Samples sent of one port.
#[derive(Debug, Default)]
struct Sequences {
    flows: u32,
    counters: u32,
}

/// The thread's own.
struct Export {
    switch: Arc<Switch>,
    sampler: Arc<Sampler>,
    shared: Arc<Shared>,
    config: Option<SflowConfig>,
    roster: Arc<Roster>,
    out: Out,
    sequences: BTreeMap<u32, Sequences>,
    polled: Option<Instant>,
}

impl Export {
    fn new(switch: Arc<Switch>, sampler: Arc<Sampler>, shared: Arc<Shared>) -> Self {
        let (roster, out, sequences) = (Arc::default(), Out::new(), BTreeMap::new());
        Self { switch, sampler, shared, config: None, roster, out, sequences, polled: None }
    }

    fn run(mut self) {
        let mut pause = Duration::ZERO;
        loop {
            let stop = self.wait(pause);
            self.out.connect();
            let full = self.flows();
            if self.is_due() {
                self.counters();
            }
            self.out.flush();
            *lock(&self.shared.exported) = self.out.exported();
            if stop {
                return;
            }
            pause = if full > FULL { BUSY } else { IDLE };
        }
    }

    /// Waits for so long, or for other orders, and takes those. Returns whether to end.
    fn wait(&mut self, pause: Duration) -> bool {
        let orders = lock(&self.shared.orders);
        let idle = |orders: &mut Orders| !orders.stop && !orders.changed;
        let waited = self.shared.told.wait_timeout_while(orders, pause, idle);
        let (mut orders, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut orders.changed) {
            self.out.configure(&orders.config);
            self.config = Some(orders.config.clone());
        }
        self.roster = orders.roster.clone();
        orders.stop
    }

    fn form(&self) -> Form {
        let last = self.roster.ports.iter().map(|port| port.if_index).max();
        if last.is_some_and(|last| last >= COMPACT_END) { Form::Expanded } else { Form::Compact }
    }

    /// Sends what was sampled; how full the fullest page was.
    fn flows(&mut self) -> f32 {
        let form = self.form();
        let (roster, sequences, out) = (&self.roster, &mut self.sequences, &mut self.out);
        self.sampler.drain(|record: &Record, header| {
            let (bridge, port) = port_of(record.port);
            // What a bridge left that is gone is of nobody's port any more.
            let Some((pool, drops)) = roster.bridges.get(&bridge).map(|sampler| sampler.totals(port)) else {
                return;
            };
            let sequence = &mut sequences.entry(record.port).or_default().flows;
            *sequence = sequence.wrapping_add(1);
            let flow = Flow {
                port: record.port,
                sequence: *sequence,
                rate: record.rate,
                pool: pool as u32,
                drops: drops as u32,
                output: record.output,
                length: record.length,
                header,
                vlan: record.vlan,
            };
            out.add(|samples| samples.add_flow(form, &flow));
            out.samples += 1;
        })
    }

    fn is_due(&self) -> bool {
        let Some(config) = self.config.as_ref().filter(|config| config.polling > 0) else { return false };
        // Ports are not there yet when the thread starts.
        !self.roster.ports.is_empty()
            && self.polled.is_none_or(|at| at.elapsed() >= Duration::from_secs(config.polling.into()))
    }

    /// Sends every port's counters.
    fn counters(&mut self) {
        self.polled = Some(Instant::now());
        let (form, roster) = (self.form(), self.roster.clone());
        let there: std::collections::BTreeSet<u32> = roster.ports.iter().map(|port| port.if_index).collect();
        self.sequences.retain(|if_index, _| there.contains(if_index));
        for port in &roster.ports {
            // One that was just removed has none.
            let Ok(counted) = self.switch.counters(port.at) else { continue };
            let sequence = &mut self.sequences.entry(port.if_index).or_default().counters;
            *sequence = sequence.wrapping_add(1);
            let counters = Counters {
                port: port.if_index,
                name: &format!("{}/{}", port.bridge, port.port),
                sequence: *sequence,
                admin_up: port.admin_up,
                up: counted.up,
                rx: direction(&counted.rx),
                tx: direction(&counted.tx),
            };
            self.out.add(|samples| samples.add_counters(form, &counters));
            self.out.counter_samples += 1;
        }
    }
}

/// Drops that are the packet's own fault.
const ERRORS: [DropReason; 3] = [DropReason::Runt, DropReason::Oversize, DropReason::BadOffload];

fn direction(queues: &[QueueSnapshot]) -> Direction {
    let mut sum = Direction::default();
    for queue in queues {
        sum.packets += queue.packets;
        sum.bytes += queue.bytes;
        for (reason, dropped) in DropReason::ALL.iter().zip(queue.drops) {
            let error = ERRORS.contains(reason);
            *(if error { &mut sum.errors } else { &mut sum.discards }) += dropped;
        }
    }
    sum
}

/// Samples on their way out.
struct Out {
    started: Instant,
    /// As it is set.
    agent: Option<IpAddr>,
    /// The address that datagrams went out from first.
    source: Option<IpAddr>,
    links: Vec<Link>,
    pending: Samples,
    sequence: u32,
    in_a_go: u32,
    samples: u64,
    counter_samples: u64,
}

impl Out {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            agent: None,
            source: None,
            links: Vec::new(),
            pending: Samples::default(),
            sequence: 0,
            in_a_go: 0,
            samples: 0,
            counter_samples: 0,
        }
    }

    /// Collectors that stay keep their sockets and counts.
    fn configure(&mut self, config: &SflowConfig) {
        let mut before = std::mem::take(&mut self.links);
        for collector in &config.collectors {
            let there = before.iter().position(|link| link.collector() == *collector);
            self.links.push(there.map_or_else(|| Link::new(*collector), |at| before.swap_remove(at)));
        }
        self.agent = config.agent;
    }

    fn connect(&mut self) {
        self.in_a_go = 0;
        for link in &mut self.links {
            let source = link.connect();
            // An agent keeps its address, or collectors would take it for another.
            self.source = self.source.or(source);
        }
    }

    /// Adds a sample, after sending what leaves no room for it.
    fn add(&mut self, mut add: impl FnMut(&mut Samples) -> bool) {
        if !add(&mut self.pending) {
            self.flush();
            // A sample alone always has room.
            add(&mut self.pending);
        }
    }

    fn agent(&self) -> Option<IpAddr> {
        self.agent.or(self.source)
    }

    fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        self.sequence = self.sequence.wrapping_add(1);
        // Without a way to any collector nobody will see which agent it was.
        let agent = self.agent().unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED));
        let uptime = self.started.elapsed().as_millis() as u32;
        let datagram = self.pending.finish(&Head { agent, sequence: self.sequence, uptime });
        for link in &mut self.links {
            link.send(&datagram);
        }
        self.in_a_go += 1;
        if self.in_a_go.is_multiple_of(BURST) {
            std::thread::sleep(BREATH);
        }
    }

    fn exported(&self) -> Exported {
        Exported {
            agent: self.agent(),
            collectors: self.links.iter().map(|link| link.report().clone()).collect(),
            samples: self.samples,
            counter_samples: self.counter_samples,
        }
    }
}

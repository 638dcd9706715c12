//! The export thread: reads the workers' pages, polls the counters of ports, and sends both in datagrams.
//!
//! It waits only for the workers' current batch; no worker waits for it. If it is too slow, the sampler counts the
//! dropped samples. A sample is sent within [`IDLE`].

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fabric::Switch;
use fabric::counters::{DropReason, QueueSnapshot};
use fabric::switch::PortRef;

use super::sampler::{BridgeSampler, Record, Sampler, port_of};
use super::settings::SflowConfig;
use super::wire::{COMPACT_END, Counters, Direction, Flow, Form, Head, Samples};
use crate::collector::{CollectorReport, Connection};

/// Interval between reads of the pages at low sample rates.
const IDLE: Duration = Duration::from_millis(200);
/// The interval at high sample rates.
const BUSY: Duration = Duration::from_millis(5);
/// Fill level of a page above which the sample rate counts as high.
const BUSY_LEVEL: f32 = 0.1;
/// Number of datagrams sent without a pause: more could overflow the collector's buffer.
const BURST: u32 = 32;
/// Pause after a burst.
const BURST_PAUSE: Duration = Duration::from_millis(1);

/// Time limit for sending the last samples.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// A port whose counters are exported.
#[derive(Debug, Clone)]
pub(super) struct RosterPort {
    pub(super) at: PortRef,
    pub(super) if_index: u32,
    pub(super) bridge: String,
    pub(super) port: String,
    pub(super) admin_up: bool,
}

/// The current bridges and ports.
#[derive(Default)]
pub(super) struct Roster {
    pub(super) ports: Vec<RosterPort>,
    pub(super) bridges: BTreeMap<u32, Arc<BridgeSampler>>,
}

/// Statistics of the export.
#[derive(Debug, Clone, Default)]
pub(super) struct Exported {
    pub(super) agent: Option<IpAddr>,
    pub(super) collectors: Vec<CollectorReport>,
    /// Packet samples sent.
    pub(super) samples: u64,
    /// Counter samples sent.
    pub(super) counter_samples: u64,
}

/// Input of the thread.
struct Control {
    config: SflowConfig,
    roster: Arc<Roster>,
    changed: bool,
    stop: bool,
}

struct Shared {
    control: Mutex<Control>,
    wake: Condvar,
    exported: Mutex<Exported>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handle of the thread. Dropping it sends the remaining samples and stops the thread.
pub(super) struct Exporter {
    shared: Arc<Shared>,
    /// Disconnected when the thread ends; nothing is ever sent.
    ended: Receiver<()>,
}

impl Exporter {
    pub(super) fn start(
        switch: Arc<Switch>,
        sampler: Arc<Sampler>,
        config: SflowConfig,
        sub_agent: u32,
    ) -> std::io::Result<Self> {
        let control = Control { config, roster: Arc::default(), changed: true, stop: false };
        let shared = Arc::new(Shared {
            control: Mutex::new(control),
            wake: Condvar::new(),
            exported: Mutex::default(),
        });
        let export = Export::new(switch, sampler, shared.clone(), sub_agent);
        let (alive, ended) = channel();
        std::thread::Builder::new().name("mswitch-sflow".into()).spawn(move || {
            let _alive = alive;
            export.run();
        })?;
        Ok(Self { shared, ended })
    }

    /// Applies new settings.
    pub(super) fn configure(&self, config: SflowConfig) {
        let mut control = lock(&self.shared.control);
        control.config = config;
        control.changed = true;
        self.shared.wake.notify_one();
    }

    /// Sets the current bridges and ports.
    pub(super) fn follow(&self, roster: Roster) {
        lock(&self.shared.control).roster = Arc::new(roster);
    }

    pub(super) fn roster(&self) -> Arc<Roster> {
        lock(&self.shared.control).roster.clone()
    }

    pub(super) fn exported(&self) -> Exported {
        lock(&self.shared.exported).clone()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        lock(&self.shared.control).stop = true;
        self.shared.wake.notify_one();
        // A thread that waits for a stuck worker ends later.
        let _ = self.ended.recv_timeout(STOP_LIMIT);
    }
}

/// Sequence numbers of the samples of a port.
#[derive(Debug, Default)]
struct Sequences {
    flows: u32,
    counters: u32,
}

/// State of the thread.
struct Export {
    switch: Arc<Switch>,
    sampler: Arc<Sampler>,
    shared: Arc<Shared>,
    config: Option<SflowConfig>,
    roster: Arc<Roster>,
    output: Output,
    sequences: BTreeMap<u32, Sequences>,
    polled: Option<Instant>,
}

impl Export {
    fn new(switch: Arc<Switch>, sampler: Arc<Sampler>, shared: Arc<Shared>, sub_agent: u32) -> Self {
        let (roster, output, sequences) = (Arc::default(), Output::new(sub_agent), BTreeMap::new());
        Self { switch, sampler, shared, config: None, roster, output, sequences, polled: None }
    }

    fn run(mut self) {
        let mut pause = Duration::ZERO;
        loop {
            let stop = self.wait(pause);
            self.output.connect();
            let level = self.flows();
            if self.is_due() {
                self.counters();
            }
            self.output.flush();
            *lock(&self.shared.exported) = self.output.exported();
            if stop {
                return;
            }
            pause = if level > BUSY_LEVEL { BUSY } else { IDLE };
        }
    }

    /// Waits for `pause` or until the settings change, and applies changes. Returns whether to stop.
    fn wait(&mut self, pause: Duration) -> bool {
        let control = lock(&self.shared.control);
        let idle = |control: &mut Control| !control.stop && !control.changed;
        let waited = self.shared.wake.wait_timeout_while(control, pause, idle);
        let (mut control, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut control.changed) {
            self.output.configure(&control.config);
            self.config = Some(control.config.clone());
        }
        self.roster = control.roster.clone();
        control.stop
    }

    fn form(&self) -> Form {
        let last = self.roster.ports.iter().map(|port| port.if_index).max();
        if last.is_some_and(|last| last >= COMPACT_END) { Form::Expanded } else { Form::Compact }
    }

    /// Sends the packet samples. Returns the fill level of the fullest page.
    fn flows(&mut self) -> f32 {
        let form = self.form();
        let (roster, sequences, output) = (&self.roster, &mut self.sequences, &mut self.output);
        self.sampler.drain(|record: &Record, header| {
            let (bridge, port) = port_of(record.port);
            // Discard the samples of a removed bridge.
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
            output.add(|samples| samples.add_flow(form, &flow));
            output.samples += 1;
        })
    }

    fn is_due(&self) -> bool {
        let Some(config) = self.config.as_ref().filter(|config| config.polling > 0) else { return false };
        // The roster is empty when the thread starts.
        !self.roster.ports.is_empty()
            && self.polled.is_none_or(|at| at.elapsed() >= Duration::from_secs(config.polling.into()))
    }

    /// Sends the counters of all ports.
    fn counters(&mut self) {
        self.polled = Some(Instant::now());
        let (form, roster) = (self.form(), self.roster.clone());
        let current: std::collections::BTreeSet<u32> =
            roster.ports.iter().map(|port| port.if_index).collect();
        self.sequences.retain(|if_index, _| current.contains(if_index));
        for port in &roster.ports {
            // An error means that the port was just removed.
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
            self.output.add(|samples| samples.add_counters(form, &counters));
            self.output.counter_samples += 1;
        }
    }
}

/// Reasons for drops that sFlow counts as errors: the packet itself is invalid.
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

/// Sends samples to the collectors.
struct Output {
    sub_agent: u32,
    started: Instant,
    /// The configured agent address.
    agent: Option<IpAddr>,
    /// The source address of the first datagrams.
    source: Option<IpAddr>,
    connections: Vec<Connection>,
    pending: Samples,
    sequence: u32,
    /// Datagrams sent in this pass.
    sent: u32,
    samples: u64,
    counter_samples: u64,
}

impl Output {
    fn new(sub_agent: u32) -> Self {
        Self {
            sub_agent,
            started: Instant::now(),
            agent: None,
            source: None,
            connections: Vec::new(),
            pending: Samples::default(),
            sequence: 0,
            sent: 0,
            samples: 0,
            counter_samples: 0,
        }
    }

    /// Applies settings. Unchanged collectors keep their sockets and statistics.
    fn configure(&mut self, config: &SflowConfig) {
        let mut before = std::mem::take(&mut self.connections);
        for collector in &config.collectors {
            let at = before.iter().position(|connection| connection.collector() == collector.0);
            let connection =
                at.map_or_else(|| Connection::new("sFlow", collector.0), |at| before.swap_remove(at));
            self.connections.push(connection);
        }
        self.agent = config.agent;
    }

    fn connect(&mut self) {
        self.sent = 0;
        for connection in &mut self.connections {
            let source = connection.connect();
            // The agent address identifies the switch to collectors, so it must not change.
            self.source = self.source.or(source);
        }
    }

    /// Adds a sample. If the datagram is full, sends it first.
    fn add(&mut self, mut add: impl FnMut(&mut Samples) -> bool) {
        if !add(&mut self.pending) {
            self.flush();
            // A single sample always fits.
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
        // The address is unknown only if no collector is connected: then the datagram is not sent.
        let agent = self.agent().unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED));
        let uptime = self.started.elapsed().as_millis() as u32;
        let datagram =
            self.pending.finish(&Head { agent, sub_agent: self.sub_agent, sequence: self.sequence, uptime });
        for connection in &mut self.connections {
            connection.send(&datagram);
        }
        self.sent += 1;
        if self.sent.is_multiple_of(BURST) {
            std::thread::sleep(BURST_PAUSE);
        }
    }

    fn exported(&self) -> Exported {
        Exported {
            agent: self.agent(),
            collectors: self.connections.iter().map(|connection| connection.report().clone()).collect(),
            samples: self.samples,
            counter_samples: self.counter_samples,
        }
    }
}

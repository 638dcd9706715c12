//! The export thread of a bridge: reads the workers' pages, keeps the flows, and sends those that end.
//!
//! It waits only for the workers' current batch; no worker waits for it. If it is too slow, meters count what they
//! miss. A flow is sent within [`IDLE`] and [`EXPIRY`] of its end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fabric::PortIndex;
use metering::{Entry, Meter, Missed, NOWHERE, SEVERAL};
use openflow::multipart::IpfixStats;

use super::cache::{Cache, End, Limits};
use super::ipfix::{self, Interface, Record, has_known_transport};
use super::netflow;
use super::settings::{CacheConfig, IpfixConfig, MAX_FLOWS, NETFLOW_FLOWS, NetflowConfig};
use crate::collector::{CollectorReport, Connection};

/// Interval between reads of the pages while few flows begin.
const IDLE: Duration = Duration::from_millis(200);
/// The interval while many do.
const BUSY: Duration = Duration::from_millis(5);
/// Fill level of a page above which many flows begin.
const BUSY_LEVEL: f32 = 0.1;
/// Interval between searches for flows that have ended.
const EXPIRY: Duration = Duration::from_millis(250);
/// Datagrams sent without a pause: more could overflow the collector's buffer.
const BURST: u32 = 32;
/// Pause after a burst.
const BURST_PAUSE: Duration = Duration::from_millis(1);
/// Time limit for sending the last flows.
const STOP_LIMIT: Duration = Duration::from_secs(2);
/// Time limit for statistics that are up to date.
const ANSWER_LIMIT: Duration = Duration::from_millis(200);

/// An export of a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name {
    /// NetFlow.
    Netflow,
    /// IPFIX of the bridge's packets.
    Ipfix,
    /// IPFIX of the packets that `sample` actions choose for a set of collectors.
    Set(u32),
}

/// Settings of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExportConfig {
    Netflow(NetflowConfig),
    Ipfix(IpfixConfig),
    Set(CacheConfig),
}

impl ExportConfig {
    fn collectors(&self) -> &[SocketAddr] {
        match self {
            ExportConfig::Netflow(config) => &config.collectors,
            ExportConfig::Ipfix(config) => &config.cache.collectors,
            ExportConfig::Set(config) => &config.collectors,
        }
    }

    fn protocol(&self) -> &'static str {
        match self {
            ExportConfig::Netflow(_) => "NetFlow",
            ExportConfig::Ipfix(_) | ExportConfig::Set(_) => "IPFIX",
        }
    }

    /// Limits of the cache.
    pub(super) fn limits(&self) -> Limits {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let of_cache = |config: &CacheConfig| Limits {
            active: Some(nanoseconds(Duration::from_secs(config.active_timeout.into()))),
            flows: config.max_flows.min(MAX_FLOWS) as usize,
        };
        match self {
            ExportConfig::Netflow(config) => {
                Limits { active: config.active_timeout.map(nanoseconds), flows: NETFLOW_FLOWS }
            }
            ExportConfig::Ipfix(config) => of_cache(&config.cache),
            ExportConfig::Set(config) => of_cache(config),
        }
    }

    /// One packet in this many is counted by the meter.
    pub(super) fn sampling(&self) -> u32 {
        match self {
            ExportConfig::Ipfix(config) => config.sampling,
            ExportConfig::Netflow(_) | ExportConfig::Set(_) => 1,
        }
    }
}

/// A port as collectors know it.
#[derive(Debug, Clone, Default)]
pub(super) struct RosterPort {
    /// Its OpenFlow number.
    pub(super) number: u16,
    pub(super) interface: Interface,
}

/// The ports of the bridge.
pub(super) type Roster = BTreeMap<u16, RosterPort>;

/// State of an export.
#[derive(Debug, Clone)]
pub(super) struct ExportReport {
    pub(super) name: Name,
    pub(super) stats: IpfixStats,
    /// Flows that ended early, because the cache was full.
    pub(super) evicted: u64,
    pub(super) missed: Missed,
    pub(super) collectors: Vec<CollectorReport>,
}

/// Input of the thread.
#[derive(Default)]
struct Control {
    wanted: BTreeMap<Name, (Arc<Meter>, ExportConfig)>,
    roster: Arc<Roster>,
    changed: bool,
    /// Number of times that statistics were asked for.
    asked: u64,
    stop: bool,
}

/// Output of the thread.
#[derive(Default)]
struct Told {
    reports: Vec<ExportReport>,
    /// Value of [`Control::asked`] that the reports answer.
    answered: u64,
}

#[derive(Default)]
struct Shared {
    control: Mutex<Control>,
    wake: Condvar,
    told: Mutex<Told>,
    answer: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handle of the thread. Dropping it sends the remaining flows and stops the thread.
pub(super) struct Exporter {
    shared: Arc<Shared>,
    /// Disconnected when the thread ends; nothing is ever sent. The lock makes it shareable.
    ended: Mutex<Receiver<()>>,
}

impl Exporter {
    /// Starts the thread, without exports. `process` is its number for collectors.
    pub(super) fn start(process: u32) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread =
            Thread { shared: shared.clone(), process, exports: BTreeMap::new(), roster: Arc::default() };
        let (alive, ended) = channel();
        std::thread::Builder::new().name("mswitch-flows".into()).spawn(move || {
            let _alive = alive;
            thread.run();
        })?;
        Ok(Self { shared, ended: Mutex::new(ended) })
    }

    /// Applies settings. An export that is no longer among them sends its flows and ends.
    pub(super) fn configure(&self, wanted: BTreeMap<Name, (Arc<Meter>, ExportConfig)>) {
        let mut control = lock(&self.shared.control);
        control.wanted = wanted;
        control.changed = true;
        self.shared.wake.notify_one();
    }

    /// Sets the current ports.
    pub(super) fn follow(&self, roster: Roster) {
        lock(&self.shared.control).roster = Arc::new(roster);
    }

    /// Returns the state of the exports with all packets that were switched before; if the thread is busy, without the
    /// latest ones.
    pub(super) fn reports_now(&self) -> Vec<ExportReport> {
        let asked = {
            let mut control = lock(&self.shared.control);
            control.asked += 1;
            self.shared.wake.notify_one();
            control.asked
        };
        let told = lock(&self.shared.told);
        let waited = self.shared.answer.wait_timeout_while(told, ANSWER_LIMIT, |told| told.answered < asked);
        waited.unwrap_or_else(PoisonError::into_inner).0.reports.clone()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        lock(&self.shared.control).stop = true;
        self.shared.wake.notify_one();
        // A thread that waits for a stuck worker ends later.
        let _ = lock(&self.ended).recv_timeout(STOP_LIMIT);
    }
}

/// State of the thread.
struct Thread {
    shared: Arc<Shared>,
    process: u32,
    exports: BTreeMap<Name, Export>,
    roster: Arc<Roster>,
}

impl Thread {
    fn run(mut self) {
        let mut pause = Duration::ZERO;
        let (mut answered, mut expired) = (0, Instant::now());
        loop {
            let (stop, asked) = self.wait(pause, answered);
            let expires = expired.elapsed() >= EXPIRY;
            if expires {
                expired = Instant::now();
            }
            let mut fullest: f32 = 0.0;
            for export in self.exports.values_mut() {
                fullest = fullest.max(export.pass(&self.roster, expires));
                if stop {
                    export.end(&self.roster);
                }
            }
            answered = asked;
            let reports = self.exports.iter().map(|(name, export)| export.report(*name)).collect();
            *lock(&self.shared.told) = Told { reports, answered };
            self.shared.answer.notify_all();
            if stop {
                return;
            }
            pause = if fullest > BUSY_LEVEL { BUSY } else { IDLE };
        }
    }

    /// Waits for `pause`, until settings change or until more was asked than `answered`, and applies changes. Returns
    /// whether to stop, and what was asked.
    fn wait(&mut self, pause: Duration, answered: u64) -> (bool, u64) {
        let control = lock(&self.shared.control);
        let idle = |control: &mut Control| !control.stop && !control.changed && control.asked == answered;
        let waited = self.shared.wake.wait_timeout_while(control, pause, idle);
        let (mut control, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let wanted = std::mem::take(&mut control.changed).then(|| control.wanted.clone());
        self.roster = control.roster.clone();
        let (stop, asked) = (control.stop, control.asked);
        drop(control);
        if let Some(wanted) = wanted {
            self.apply(wanted);
        }
        (stop, asked)
    }

    fn apply(&mut self, wanted: BTreeMap<Name, (Arc<Meter>, ExportConfig)>) {
        self.exports.retain(|name, export| {
            let stays = wanted.contains_key(name);
            if !stays {
                export.pass(&self.roster, false);
                export.end(&self.roster);
            }
            stays
        });
        for (name, (meter, config)) in wanted {
            match self.exports.get_mut(&name) {
                Some(export) => export.configure(meter, config, &self.roster),
                None => _ = self.exports.insert(name, Export::new(meter, config, self.process)),
            }
        }
    }
}

/// The protocol of an export.
enum Wire {
    Netflow(netflow::Encoder),
    Ipfix(ipfix::Encoder),
}

impl Wire {
    fn new(config: &ExportConfig, process: u32) -> Self {
        match config {
            ExportConfig::Netflow(config) => {
                Wire::Netflow(netflow::Encoder::new(config.engine, fabric::clock::since_epoch()))
            }
            ExportConfig::Ipfix(IpfixConfig { cache, .. }) | ExportConfig::Set(cache) => {
                Wire::Ipfix(ipfix::Encoder::new(settings(cache), process))
            }
        }
    }

    fn configure(&mut self, config: &ExportConfig) {
        match (self, config) {
            (Wire::Netflow(encoder), ExportConfig::Netflow(config)) => encoder.engine = config.engine,
            (
                Wire::Ipfix(encoder),
                ExportConfig::Ipfix(IpfixConfig { cache, .. }) | ExportConfig::Set(cache),
            ) => {
                encoder.configure(settings(cache));
            }
            // An export keeps its protocol.
            _ => {}
        }
    }

    fn flush(&mut self, now: u64, send: impl FnMut(&[u8])) {
        match self {
            Wire::Netflow(encoder) => encoder.flush(now, send),
            Wire::Ipfix(encoder) => encoder.flush(now, send),
        }
    }
}

fn settings(cache: &CacheConfig) -> ipfix::Settings {
    ipfix::Settings {
        template_interval: cache.template_interval.into(),
        statistics_interval: cache.statistics_interval.into(),
        virtual_id: cache.virtual_id.clone(),
    }
}

/// An export and its flows.
struct Export {
    meter: Arc<Meter>,
    config: ExportConfig,
    cache: Cache,
    output: Output,
    stats: IpfixStats,
    /// What earlier meters missed.
    missed_before: Missed,
}

/// Sends flows that have ended.
struct Output {
    wire: Wire,
    /// Observation domain and point, unless flows have theirs.
    observation: Option<[u32; 2]>,
    sender: Sender,
    /// Whether a record was made in this pass.
    made: bool,
}

impl Export {
    fn new(meter: Arc<Meter>, config: ExportConfig, process: u32) -> Self {
        let output = Output {
            wire: Wire::new(&config, process),
            observation: observation(&config),
            sender: Sender::default(),
            made: false,
        };
        let cache = Cache::new(config.limits());
        let (stats, missed_before) = Default::default();
        let mut export = Self { meter, config, cache, output, stats, missed_before };
        export.set();
        export
    }

    /// Applies new settings; `meter` may be another one.
    fn configure(&mut self, meter: Arc<Meter>, config: ExportConfig, roster: &Roster) {
        if Arc::ptr_eq(&meter, &self.meter) && config == self.config {
            return;
        }
        self.pass(roster, false);
        if !Arc::ptr_eq(&meter, &self.meter) {
            self.missed_before = self.missed();
            self.meter = meter;
        }
        self.cache.set(config.limits());
        if !config.limits().caches() {
            self.end(roster);
        }
        self.output.wire.configure(&config);
        self.output.observation = observation(&config);
        self.config = config;
        self.set();
    }

    fn set(&mut self) {
        self.meter.set(self.config.sampling(), self.config.limits().caches());
        self.output.sender.configure(self.config.protocol(), self.config.collectors());
    }

    fn missed(&self) -> Missed {
        let missed = self.meter.missed();
        Missed {
            packets: self.missed_before.packets.wrapping_add(missed.packets),
            octets: self.missed_before.octets.wrapping_add(missed.octets),
        }
    }

    /// Reads the pages and sends the flows that end. Returns the fill level of the fullest page.
    fn pass(&mut self, roster: &Roster, expires: bool) -> f32 {
        let (now, missed) = (fabric::clock::since_epoch(), self.missed());
        let Self { meter, cache, output, stats, .. } = self;
        output.sender.connect();
        let level = meter.drain(|entry| {
            count(stats, entry);
            cache.add(&entry.key, &entry.counts, |flow, end| output.add(flow, end, roster, now));
        });
        if expires {
            cache.expire(now, |flow, end| output.add(flow, end, roster, now));
        }
        output.flush(missed, now);
        level
    }

    /// Ends all flows.
    fn end(&mut self, roster: &Roster) {
        let (now, missed) = (fabric::clock::since_epoch(), self.missed());
        let Self { cache, output, .. } = self;
        cache.end(|flow, end| output.add(flow, end, roster, now));
        output.flush(missed, now);
    }

    fn report(&self, name: Name) -> ExportReport {
        let (sent, send_errors) = self.output.sender.sent();
        let collectors = if let Name::Set(number) = name { number } else { u32::MAX };
        let (flows, current) = (self.cache.begun(), self.cache.len() as u64);
        let stats = IpfixStats { flows, current, sent, send_errors, collectors, ..self.stats };
        let collectors = self.output.sender.connections.iter().map(|it| it.report().clone()).collect();
        ExportReport { name, stats, evicted: self.cache.evicted(), missed: self.missed(), collectors }
    }
}

fn observation(config: &ExportConfig) -> Option<[u32; 2]> {
    match config {
        ExportConfig::Ipfix(config) => Some([config.domain, config.point]),
        ExportConfig::Netflow(_) | ExportConfig::Set(_) => None,
    }
}

/// Counts sampled packets as Open vSwitch does: packets of IP whose transport protocol records cannot describe are
/// errors.
fn count(stats: &mut IpfixStats, entry: &Entry) {
    let packets = entry.counts.samples;
    stats.packets += packets;
    match (entry.key.ip_version, has_known_transport(&entry.key)) {
        (4, true) => stats.ipv4 += packets,
        (6, true) => stats.ipv6 += packets,
        (4, false) => {
            (stats.errors, stats.ipv4_errors) = (stats.errors + packets, stats.ipv4_errors + packets)
        }
        (6, false) => {
            (stats.errors, stats.ipv6_errors) = (stats.errors + packets, stats.ipv6_errors + packets)
        }
        _ => {}
    }
}

impl Output {
    fn add(&mut self, flow: &Entry, end: End, roster: &Roster, now: u64) {
        self.made = true;
        let Entry { key, counts } = flow;
        let sender = &mut self.sender;
        let send = |datagram: &[u8]| sender.send(datagram);
        match &mut self.wire {
            Wire::Netflow(encoder) => {
                let number = |port: PortIndex| roster.get(&port.0).map_or(0, |port| port.number);
                let output = match key.egress {
                    NOWHERE => netflow::NOWHERE,
                    SEVERAL => netflow::SEVERAL,
                    port => number(port),
                };
                encoder.add(flow, number(key.ingress), output, now, send);
            }
            Wire::Ipfix(encoder) => {
                let unknown = Interface::default();
                let interface =
                    |port: PortIndex| roster.get(&port.0).map_or(&unknown, |port| &port.interface);
                let [domain, point] = self.observation.unwrap_or(key.observation);
                let (input, output) = (interface(key.ingress), interface(key.egress));
                encoder.add(&Record { key, counts, end, domain, point, input, output }, now, send);
            }
        }
    }

    fn flush(&mut self, missed: Missed, now: u64) {
        if !std::mem::take(&mut self.made) {
            return;
        }
        let sender = &mut self.sender;
        if let Wire::Ipfix(encoder) = &mut self.wire {
            encoder.tell(missed, now, |datagram| sender.send(datagram));
        }
        self.wire.flush(now, |datagram| sender.send(datagram));
    }
}

/// Sends datagrams to all collectors.
#[derive(Default)]
struct Sender {
    connections: Vec<Connection>,
    /// Datagrams in this pass.
    burst: u32,
    /// Datagrams and errors of collectors that are no longer among them.
    before: (u64, u64),
}

impl Sender {
    /// Sets the collectors. Those that stay keep their sockets and statistics.
    fn configure(&mut self, protocol: &'static str, collectors: &[SocketAddr]) {
        let mut before = std::mem::take(&mut self.connections);
        for collector in collectors {
            let at = before.iter().position(|connection| connection.collector() == *collector);
            let connection =
                at.map_or_else(|| Connection::new(protocol, *collector), |at| before.swap_remove(at));
            self.connections.push(connection);
        }
        for gone in before {
            self.before.0 += gone.report().datagrams;
            self.before.1 += gone.report().errors;
        }
        self.connect();
    }

    fn connect(&mut self) {
        self.burst = 0;
        for connection in &mut self.connections {
            // Its source address is not needed.
            let _ = connection.connect();
        }
    }

    fn send(&mut self, datagram: &[u8]) {
        self.connections.iter_mut().for_each(|connection| connection.send(datagram));
        self.burst += 1;
        if self.burst.is_multiple_of(BURST) {
            std::thread::sleep(BURST_PAUSE);
        }
    }

    /// Datagrams sent, and those that could not be.
    fn sent(&self) -> (u64, u64) {
        let reports = self.connections.iter().map(Connection::report);
        reports.fold(self.before, |sum, report| (sum.0 + report.datagrams, sum.1 + report.errors))
    }
}

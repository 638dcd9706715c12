//! Sending and verifying: all ports of a run on one thread.
//!
//! Except at full speed, a session never has more packets in flight to a port than that port has buffers for: whatever
//! the thread's scheduling, only the switch can lose a packet.
//!
//! Invariants:
//! - A packet counts as sent once it is in a ring that the switch can see.
//! - Packets of one flow use one queue, in the order of their numbers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use packet::MacAddr;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::pace::{Pacer, Rate};
use crate::packet::{Headers, Route, Verdict, Writer, announcement};
use crate::port::{Client, Error, PortSpec, Rings, check_connected, connect, sleep};
use crate::rate_samples::RateSamples;
use crate::report::{Direction, PortReport, Report};
use crate::shape::{MAX_DESCRIPTORS, Segments, Sizes};
use crate::tracker::Tracker;

/// Maximum number of packets that a port sends, or a queue takes, per turn.
const BURST: usize = 32;
/// Time allowed for announcements to arrive.
const ANNOUNCE_LIMIT: Duration = Duration::from_secs(10);
/// Time without arrivals after which packets in flight count as lost, where loss is expected.
const QUIET_IF_LOSSY: Duration = Duration::from_millis(500);
/// The same where loss is a fault: on a busy machine a peer may pause that long.
const QUIET_IF_LOSSLESS: Duration = Duration::from_secs(2);
/// Time to wait for duplicates once all packets have arrived.
const DUPLICATE_WAIT: Duration = Duration::from_millis(20);
/// Time allowed for the switch to empty the rings at the end.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// Maximum time for measuring capacity; at most half of the time of the run itself.
const TRIAL: Duration = Duration::from_secs(2);
/// Interval between checks of the connections.
const HOUSEKEEPING: Duration = Duration::from_millis(100);

/// Senders and receivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Ports 0 and 1 to each other, 2 and 3, and so on.
    Pairs,
    /// Port 0 to port 1, 2 to 3, and so on.
    OneWay,
    /// Each port to this address, whose owner returns every packet with the addresses swapped.
    Reflected(MacAddr),
}

/// Traffic to send, and its parameters.
#[derive(Debug, Clone)]
pub struct Options {
    /// The ports.
    pub ports: Vec<PortSpec>,
    /// The rings of each.
    pub rings: Rings,
    /// Senders and receivers.
    pub traffic: Traffic,
    /// Headers of the packets.
    pub headers: Headers,
    /// Lengths of the packets.
    pub sizes: Sizes,
    /// Number of pieces of each packet.
    pub segments: Segments,
    /// Number of flows in each direction.
    pub flows: u16,
    /// Sending rate of each port.
    pub rate: Rate,
    /// Duration.
    pub duration: Duration,
    /// Minimum number of packets to receive in each direction, even beyond the duration.
    pub least: u64,
    /// Whether ports announce themselves first, so that a learning switch does not flood.
    pub announce: bool,
    /// Whether loss is accepted.
    pub allow_loss: bool,
    /// Poll for packets instead of sleeping until the switch signals some.
    pub poll: bool,
    /// The CPU to run on.
    pub cpu: Option<usize>,
    /// Seed for random sizes and pieces.
    pub seed: u64,
}

impl Options {
    /// Returns options for short packets in pairs at 1,000 per second for one second.
    pub fn new(ports: Vec<PortSpec>) -> Options {
        Options {
            ports,
            rings: Rings::default(),
            traffic: Traffic::Pairs,
            headers: Headers::Udp,
            sizes: Sizes::fixed(64),
            segments: Segments::ONE,
            flows: 4,
            rate: Rate::Pps(1000.0),
            duration: Duration::from_secs(1),
            least: 0,
            announce: true,
            allow_loss: false,
            poll: false,
            cpu: None,
            seed: 1,
        }
    }

    /// Returns sender, receiver and destination address for every direction.
    fn directions(&self) -> Result<Vec<(usize, usize, MacAddr)>, Error> {
        let count = self.ports.len();
        if count == 0 {
            return Err(Error::Options("no ports".to_string()));
        }
        if let Traffic::Reflected(mac) = self.traffic {
            return Ok((0..count).map(|port| (port, port, mac)).collect());
        }
        if !count.is_multiple_of(2) {
            return Err(Error::Options(format!("{count} ports cannot be paired, expected an even number")));
        }
        let both = self.traffic == Traffic::Pairs;
        let senders = (0..count).filter(|port| both || port.is_multiple_of(2));
        let to = |port: usize| port ^ 1;
        Ok(senders.map(|port| (port, to(port), self.ports[to(port)].address(to(port)))).collect())
    }
}

/// Packets of one direction whose order must not change.
#[derive(Debug, Default)]
struct Flow {
    direction: usize,
    queue: usize,
    sent: u64,
    tracker: Tracker,
    corrupted: u64,
    misdelivered: u64,
    bytes: u64,
}

/// One port during a run.
#[derive(Debug)]
struct Port {
    spec: PortSpec,
    mac: MacAddr,
    client: Box<dyn Client>,
    /// Range of the flows that it sends.
    flows: std::ops::Range<usize>,
    next_flow: usize,
    pacer: Pacer,
    random: fastrand::Rng,
    /// Buffers of this port that are, as far as is known, filled or about to be.
    in_flight: usize,
    last_arrival: Instant,
    heard: Vec<MacAddr>,
    counts: PortReport,
}

/// Connected ports that have learned each other's addresses.
#[derive(Debug)]
pub struct Session {
    options: Options,
    directions: Vec<(usize, usize, MacAddr)>,
    writer: Writer,
    rate_samples: RateSamples,
    ports: Vec<Port>,
    flows: Vec<Flow>,
    packet: Vec<u8>,
    cuts: Vec<usize>,
    next_check: Instant,
}

impl Session {
    /// Connects all ports, and waits for their announcements.
    pub fn connect(options: Options) -> Result<Session, Error> {
        let directions = options.directions()?;
        let per_direction = usize::from(options.flows.max(1));
        if directions.len() * per_direction > usize::from(u16::MAX) {
            return Err(Error::Options("more than 65535 flows".to_string()));
        }
        let longest = options.sizes.longest();
        let cut = options.ports.iter().any(|port| port.device.is_none());
        if cut && longest.div_ceil(options.rings.buffer_size.max(1) as usize) > MAX_DESCRIPTORS {
            return Err(Error::Options(format!("{longest} bytes need more than {MAX_DESCRIPTORS} buffers")));
        }
        let now = Instant::now();
        let mut ports = Vec::new();
        for (index, spec) in options.ports.iter().enumerate() {
            let client = connect(spec, options.rings)?;
            let first = directions.iter().position(|(from, ..)| *from == index);
            let flows = first.map_or(0..0, |d| d * per_direction..(d + 1) * per_direction);
            ports.push(Port {
                spec: spec.clone(),
                mac: spec.address(index),
                next_flow: flows.start,
                flows,
                pacer: Pacer::new(Some(1.0)),
                random: fastrand::Rng::with_seed(options.seed.wrapping_add(index as u64)),
                in_flight: 0,
                last_arrival: now,
                heard: Vec::new(),
                counts: PortReport { received_by_queue: vec![0; client.queues().1], ..PortReport::default() },
                client,
            });
        }
        let mut flows = Vec::new();
        let mut routes = Vec::new();
        for (direction, (from, _, destination)) in directions.iter().enumerate() {
            let reflected = matches!(options.traffic, Traffic::Reflected(_));
            let queues = ports[*from].client.queues().0.max(1);
            for flow in 0..per_direction {
                flows.push(Flow { direction, queue: flow % queues, ..Flow::default() });
                routes.push(Route { source: ports[*from].mac, destination: *destination, reflected });
            }
        }
        let writer = Writer::new(fastrand::u16(..), options.headers, &routes);
        let (packet, cuts) = (Vec::new(), Vec::new());
        let mut session = Session {
            options,
            directions,
            writer,
            rate_samples: RateSamples::new(now, 0),
            ports,
            flows,
            packet,
            cuts,
            next_check: now,
        };
        session.announce()?;
        Ok(session)
    }

    /// Sends for the configured duration, or until `stop` is set; then waits for packets in flight.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<Report, Error> {
        if let Some(cpu) = self.options.cpu {
            let mut set = CpuSet::new();
            set.set(cpu);
            sched_setaffinity(None, &set)
                .map_err(|e| Error::System { operation: "cannot run on that CPU", source: e.into() })?;
        }
        let senders = self.ports.iter().filter(|port| !port.flows.is_empty()).count().max(1);
        let mut capacity = None;
        let (pps, allow_loss) = match self.options.rate {
            Rate::Max => (None, self.options.allow_loss),
            Rate::Pps(pps) => (Some(pps), self.options.allow_loss),
            Rate::Half => {
                let seconds = self.load(None, TRIAL.min(self.options.duration / 2), 0, stop)?;
                let pps = self.report(seconds, None).directions.iter().map(|d| d.received_pps).sum::<f64>();
                if pps < 1.0 {
                    return Err(Error::Options(
                        "no packet arrived during the capacity measurement".to_string(),
                    ));
                }
                capacity = Some(pps);
                self.reset();
                (Some(pps / 2.0 / senders as f64), self.options.allow_loss)
            }
        };
        let seconds = self.load(pps, self.options.duration, self.options.least, stop)?;
        let mut report = self.report(seconds, capacity);
        report.ok = report.faults() == 0 && report.sent() > 0 && (allow_loss || report.lost() == 0);
        Ok(report)
    }

    /// Resets all counts; packets still in flight become foreign.
    fn reset(&mut self) {
        self.writer.next_run();
        for flow in &mut self.flows {
            *flow = Flow { direction: flow.direction, queue: flow.queue, ..Flow::default() };
        }
        for port in &mut self.ports {
            port.in_flight = 0;
            port.counts =
                PortReport { received_by_queue: vec![0; port.client.queues().1], ..PortReport::default() };
        }
    }

    /// Broadcasts from every port until each receiver has heard its sender.
    fn announce(&mut self) -> Result<(), Error> {
        if !self.options.announce || matches!(self.options.traffic, Traffic::Reflected(_)) {
            return Ok(());
        }
        let start = Instant::now();
        let mut next = start;
        loop {
            let missing = self.directions.iter().find(|(from, to, _)| {
                // The reverse direction counts too: the switch must know the receiver before packets are sent to it.
                let hears = |to: usize, from: usize| self.ports[to].heard.contains(&self.ports[from].mac);
                !hears(*to, *from) || !hears(*from, *to)
            });
            let Some((from, to, _)) = missing.copied() else { return Ok(()) };
            let now = Instant::now();
            if now.duration_since(start) > ANNOUNCE_LIMIT {
                return Err(Error::NotAnnounced { from, to, seconds: ANNOUNCE_LIMIT.as_secs() });
            }
            if now >= next {
                next = now + HOUSEKEEPING;
                for port in &mut self.ports {
                    port.client.push(0, &[&announcement(port.mac)]);
                    port.client.flush(0);
                }
            }
            self.receive(now);
            self.housekeeping(now)?;
            sleep(clients(&mut self.ports), HOUSEKEEPING / 10)?;
        }
    }

    /// Runs one phase of sending and receiving. Returns the seconds spent on sending.
    fn load(
        &mut self,
        pps: Option<f64>,
        duration: Duration,
        least: u64,
        stop: &AtomicBool,
    ) -> Result<f64, Error> {
        let poll = self.options.poll || pps.is_none();
        for port in &mut self.ports {
            port.pacer = Pacer::new(pps);
        }
        let start = Instant::now();
        self.rate_samples = RateSamples::new(start, self.directions.len());
        loop {
            let now = Instant::now();
            let over = now.duration_since(start) >= duration && self.received().iter().all(|n| *n >= least);
            if over || stop.load(Ordering::Relaxed) {
                break;
            }
            let mut busy = 0;
            for port in 0..self.ports.len() {
                busy += self.send(port, now, pps.is_some());
            }
            busy += self.receive(now);
            self.housekeeping(now)?;
            if self.rate_samples.is_due(now) {
                let received = self.received();
                self.rate_samples.note(now, &received);
            }
            if busy == 0 {
                self.pause(poll)?;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        self.drain(pps.is_some())?;
        Ok(seconds)
    }

    /// Returns the number of packets received, by direction.
    fn received(&self) -> Vec<u64> {
        let mut received = vec![0; self.directions.len()];
        for flow in &self.flows {
            received[flow.direction] += flow.tracker.unique;
        }
        received
    }

    /// Waits until the next packet is due or has arrived.
    fn pause(&mut self, poll: bool) -> Result<(), Error> {
        let next = self.ports.iter().filter(|p| !p.flows.is_empty()).map(|p| p.pacer.wait()).min();
        // Due, but without room: room comes with arriving packets, or without notice.
        let next = next.filter(|wait| !wait.is_zero()).unwrap_or(Duration::from_micros(200));
        if poll || next < Duration::from_micros(20) {
            std::thread::yield_now();
            return Ok(());
        }
        sleep(clients(&mut self.ports), next.min(HOUSEKEEPING))
    }

    /// Returns the time without arrivals after which packets in flight count as lost.
    fn loss_timeout(&self, bounded: bool) -> Duration {
        if bounded && !self.options.allow_loss { QUIET_IF_LOSSLESS } else { QUIET_IF_LOSSY }
    }

    /// Receives until no packet is in flight any more.
    fn drain(&mut self, bounded: bool) -> Result<(), Error> {
        let start = Instant::now();
        let mut last = start;
        loop {
            let now = Instant::now();
            if self.receive(now) > 0 {
                last = now;
            }
            let sent: u64 = self.flows.iter().map(|f| f.sent).sum();
            let unique: u64 = self.flows.iter().map(|f| f.tracker.unique).sum();
            let taken = self.ports.iter_mut().all(|port| port.client.unsent() == 0);
            let quiet = now.duration_since(last) > self.loss_timeout(bounded);
            let complete = unique == sent && now.duration_since(last) > DUPLICATE_WAIT;
            if taken && (quiet || complete) || now.duration_since(start) > DRAIN_LIMIT {
                return Ok(());
            }
            self.housekeeping(now)?;
            sleep(clients(&mut self.ports), DUPLICATE_WAIT / 2)?;
        }
    }

    /// Sends the packets due at one port. Returns their number.
    fn send(&mut self, index: usize, now: Instant, bounded: bool) -> usize {
        let port = &mut self.ports[index];
        if port.flows.is_empty() {
            return 0;
        }
        let due = port.pacer.due(now, BURST);
        let piece = port.client.piece();
        let loss_timeout = self.loss_timeout(bounded);
        let mut count = 0;
        while count < due {
            let port = &mut self.ports[index];
            let flow = &mut self.flows[port.next_flow];
            let length = self.options.sizes.draw(&mut port.random);
            self.options.segments.draw(&mut port.random, length, piece, &mut self.cuts);
            let (_, to, _) = self.directions[flow.direction];
            let receiver = &mut self.ports[to];
            let buffers = receiver.client.buffers(length);
            if bounded {
                let room = receiver.client.room() * 3 / 4;
                if receiver.in_flight > 0 && receiver.in_flight + buffers > room {
                    if now.duration_since(receiver.last_arrival) > loss_timeout {
                        receiver.in_flight = 0;
                    }
                    break;
                }
            }
            let port = &mut self.ports[index];
            self.writer.write(port.next_flow as u16, flow.sent, length, &mut self.packet);
            let (client, queue) = (&mut port.client, flow.queue);
            let pushed = match self.cuts.as_slice() {
                [] => client.push(queue, &[&self.packet]),
                cuts => {
                    let mut pieces: [&[u8]; MAX_DESCRIPTORS] = [&[]; MAX_DESCRIPTORS];
                    let mut rest = self.packet.as_slice();
                    let mut at = 0;
                    for (piece, cut) in pieces.iter_mut().zip(cuts) {
                        (*piece, rest) = rest.split_at(cut - at);
                        at = *cut;
                    }
                    pieces[cuts.len()] = rest;
                    client.push(queue, &pieces[..=cuts.len()])
                }
            };
            if !pushed {
                break;
            }
            flow.sent += 1;
            count += 1;
            port.next_flow += 1;
            if port.next_flow == port.flows.end {
                port.next_flow = port.flows.start;
            }
            self.ports[to].in_flight += buffers;
        }
        if count > 0 {
            let port = &mut self.ports[index];
            for queue in 0..port.client.queues().0 {
                port.client.flush(queue);
            }
            port.pacer.sent(count);
        }
        count
    }

    /// Takes and verifies received packets, some from each queue. Returns their number.
    fn receive(&mut self, now: Instant) -> usize {
        let Session { directions, writer, ports, flows, packet, .. } = self;
        let mut count = 0;
        for (index, port) in ports.iter_mut().enumerate() {
            let mut arrived = 0;
            for number in 0..port.client.queues().1 {
                let mut popped = 0;
                while popped < 2 * BURST && port.client.pop(number, packet) {
                    popped += 1;
                    port.in_flight = port.in_flight.saturating_sub(port.client.buffers(packet.len()));
                    match writer.read(packet) {
                        Verdict::Good { flow, sequence } => {
                            let flow = &mut flows[usize::from(flow)];
                            if directions[flow.direction].1 == index {
                                flow.tracker.arrived(sequence);
                                flow.bytes += packet.len() as u64;
                                port.counts.received_by_queue[number] += 1;
                            } else {
                                flow.misdelivered += 1;
                            }
                        }
                        Verdict::Corrupted { flow: Some(flow) } => flows[usize::from(flow)].corrupted += 1,
                        Verdict::Corrupted { flow: None } => port.counts.corrupted += 1,
                        Verdict::Announcement(mac) => {
                            if !port.heard.contains(&mac) {
                                port.heard.push(mac);
                            }
                        }
                        Verdict::Foreign => port.counts.foreign += 1,
                    }
                }
                if popped > 0 {
                    port.client.refill(number);
                }
                arrived += popped;
            }
            if arrived > 0 {
                port.last_arrival = now;
            }
            count += arrived;
        }
        count
    }

    fn housekeeping(&mut self, now: Instant) -> Result<(), Error> {
        if now < self.next_check {
            return Ok(());
        }
        self.next_check = now + HOUSEKEEPING;
        self.ports.iter_mut().try_for_each(|port| check_connected(&mut *port.client, &port.spec))
    }

    fn report(&mut self, seconds: f64, capacity_pps: Option<f64>) -> Report {
        let mut directions: Vec<Direction> = self
            .directions
            .iter()
            .map(|&(from, to, _)| Direction { from, to, ..Direction::default() })
            .collect();
        for flow in &self.flows {
            let sums = &mut directions[flow.direction];
            sums.sent += flow.sent;
            sums.received += flow.tracker.unique;
            sums.duplicated += flow.tracker.duplicated;
            sums.reordered += flow.tracker.reordered;
            sums.stale += flow.tracker.stale;
            sums.corrupted += flow.corrupted;
            sums.misdelivered += flow.misdelivered;
            sums.received_bytes += flow.bytes;
        }
        for (direction, sums) in directions.iter_mut().enumerate() {
            sums.median_pps = self.rate_samples.median(direction);
            sums.lost = sums.sent.saturating_sub(sums.received);
            sums.sent_pps = sums.sent as f64 / seconds.max(1e-9);
            sums.received_pps = sums.received as f64 / seconds.max(1e-9);
        }
        let ports = self.ports.iter_mut().map(|port| PortReport {
            malformed: port.client.malformed(),
            unsent: port.client.unsent(),
            ..port.counts.clone()
        });
        Report { ok: false, seconds, capacity_pps, directions, ports: ports.collect() }
    }
}

fn clients(ports: &mut [Port]) -> impl Iterator<Item = &mut Box<dyn Client>> {
    ports.iter_mut().map(|port| &mut port.client)
}

/// A session on a separate thread that runs until it is stopped.
#[derive(Debug)]
pub struct Background {
    stop: std::sync::Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<Report, Error>>,
}

impl Background {
    /// Connects, and starts sending.
    pub fn start(options: Options) -> Result<Background, Error> {
        let mut session = Session::connect(options)?;
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = std::thread::spawn(move || session.run(&seen));
        Ok(Background { stop, thread })
    }

    /// Whether the session still runs: it ends by itself on errors and after its duration.
    pub fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Stops sending, waits for packets in flight, and returns the report.
    pub fn stop(self) -> Result<Report, Error> {
        self.stop.store(true, Ordering::Relaxed);
        self.wait()
    }

    /// Waits for the end of the duration, and returns the report.
    pub fn wait(self) -> Result<Report, Error> {
        self.thread
            .join()
            .unwrap_or_else(|_| Err(Error::Options("the session's thread panicked".to_string())))
    }
}

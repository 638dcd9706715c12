//! Sends and verifies: all ports of a run on one thread.
//!
//! Unless told to send as fast as possible, a session never has more packets under way to a port than that port has
//! buffers for: whatever the thread's scheduling, a packet that is lost was lost by the switch.
//!
//! Invariants:
//! - A packet counts as sent when it is in a ring that the switch can see.
//! - Packets of one flow go through one queue, in the order of their numbers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use packet::MacAddr;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::pace::{Pacer, Rate};
use crate::packet::{Headers, Route, Verdict, Writer, announcement};
use crate::port::{Client, Error, PortSpec, Rings, check_connected, connect, sleep};
use crate::report::{Direction, PortReport, Report};
use crate::shape::{MAX_DESCRIPTORS, Segments, Sizes};
use crate::steady::Steady;
use crate::tracker::Tracker;

/// The most packets that a port sends, or a queue takes, before others have their turn.
const BURST: usize = 32;
/// How long announcements may take to get through.
const ANNOUNCE_LIMIT: Duration = Duration::from_secs(10);
/// How long nothing must have arrived to take what is under way for lost, where loss is expected.
const QUIET: Duration = Duration::from_millis(500);
/// The same where it would be a fault: a peer on a busy machine may not run for as long as that.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long is looked for packets that arrive twice, when all have arrived.
const AFTERMATH: Duration = Duration::from_millis(20);
/// How long the switch may take to empty the rings at the end.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// How long capacity is tried out, at most, and no longer than half of the time that is then measured.
const TRIAL: Duration = Duration::from_secs(2);
/// How often connections are looked at.
const HOUSEKEEPING: Duration = Duration::from_millis(100);

/// Who sends to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Ports 0 and 1 to each other, 2 and 3, and so on.
    Pairs,
    /// Port 0 to port 1, 2 to 3, and so on.
    OneWay,
    /// Each port to this address, whose owner sends everything back with the addresses swapped.
    Reflected(MacAddr),
}

/// What to send, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The ports.
    pub ports: Vec<PortSpec>,
    /// The rings of each.
    pub rings: Rings,
    /// Who sends to whom.
    pub traffic: Traffic,
    /// What packets look like.
    pub headers: Headers,
    /// How long they are.
    pub sizes: Sizes,
    /// In how many pieces.
    pub segments: Segments,
    /// How many flows in each direction.
    pub flows: u16,
    /// How fast each port sends.
    pub rate: Rate,
    /// How long.
    pub duration: Duration,
    /// Packets to receive in each direction, however much longer that takes.
    pub least: u64,
    /// Whether ports announce themselves first, so that a learning switch floods nothing.
    pub announce: bool,
    /// Whether loss is no failure.
    pub allow_loss: bool,
    /// Poll for packets instead of sleeping until the switch signals some.
    pub poll: bool,
    /// The CPU to run on.
    pub cpu: Option<usize>,
    /// What sizes and pieces are drawn from.
    pub seed: u64,
}

impl Options {
    /// Short packets in pairs at 1,000 a second for a second.
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

    /// Sender, receiver, and the address sent to, for every direction.
    fn directions(&self) -> Result<Vec<(usize, usize, MacAddr)>, Error> {
        let count = self.ports.len();
        if count == 0 {
            return Err(Error::Options("no ports".to_string()));
        }
        if let Traffic::Reflected(mac) = self.traffic {
            return Ok((0..count).map(|port| (port, port, mac)).collect());
        }
        if !count.is_multiple_of(2) {
            return Err(Error::Options(format!("{count} ports do not make pairs")));
        }
        let both = self.traffic == Traffic::Pairs;
        let senders = (0..count).filter(|port| both || port.is_multiple_of(2));
        let to = |port: usize| port ^ 1;
        Ok(senders.map(|port| (port, to(port), self.ports[to(port)].address(to(port)))).collect())
    }
}

/// Packets of one direction that must stay in order.
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

/// One port at work.
#[derive(Debug)]
struct Port {
    spec: PortSpec,
    mac: MacAddr,
    client: Box<dyn Client>,
    /// The flows it sends: their range among all.
    flows: std::ops::Range<usize>,
    next_flow: usize,
    pacer: Pacer,
    random: fastrand::Rng,
    /// Buffers of this port that are, as far as is known, filled or about to be.
    under_way: usize,
    last_arrival: Instant,
    heard: Vec<MacAddr>,
    counts: PortReport,
}

/// Ports that are connected and know each other.
#[derive(Debug)]
pub struct Session {
    options: Options,
    directions: Vec<(usize, usize, MacAddr)>,
    writer: Writer,
    steady: Steady,
    ports: Vec<Port>,
    flows: Vec<Flow>,
    packet: Vec<u8>,
    cuts: Vec<usize>,
    next_check: Instant,
}

impl Session {
    /// Connects all ports and lets them announce themselves.
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
                under_way: 0,
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
            steady: Steady::new(now, 0),
            ports,
            flows,
            packet,
            cuts,
            next_check: now,
        };
        session.announce()?;
        Ok(session)
    }

    /// Sends for as long as the options say, or until `stop` is set; then waits for what is under way.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<Report, Error> {
        if let Some(cpu) = self.options.cpu {
            let mut set = CpuSet::new();
            set.set(cpu);
            sched_setaffinity(None, &set)
                .map_err(|e| Error::System { what: "cannot run on that CPU", source: e.into() })?;
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
                    return Err(Error::Options("nothing arrived while trying out the capacity".to_string()));
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

    /// Forgets all counts; packets still under way will be foreign.
    fn reset(&mut self) {
        self.writer.next_run();
        for flow in &mut self.flows {
            *flow = Flow { direction: flow.direction, queue: flow.queue, ..Flow::default() };
        }
        for port in &mut self.ports {
            port.under_way = 0;
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
            let deaf = self.directions.iter().find(|(from, to, _)| {
                // The way back is wanted too: the receiver must be known before anything is sent to it.
                let hears = |to: usize, from: usize| self.ports[to].heard.contains(&self.ports[from].mac);
                !hears(*to, *from) || !hears(*from, *to)
            });
            let Some((from, to, _)) = deaf.copied() else { return Ok(()) };
            let now = Instant::now();
            if now.duration_since(start) > ANNOUNCE_LIMIT {
                return Err(Error::Deaf { from, to, seconds: ANNOUNCE_LIMIT.as_secs() });
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

    /// One phase of sending and receiving. Returns for how many seconds was sent.
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
        self.steady = Steady::new(start, self.directions.len());
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
            if self.steady.is_due(now) {
                let received = self.received();
                self.steady.note(now, &received);
            }
            if busy == 0 {
                self.pause(poll)?;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        self.drain(pps.is_some())?;
        Ok(seconds)
    }

    /// Packets that have arrived, by direction.
    fn received(&self) -> Vec<u64> {
        let mut received = vec![0; self.directions.len()];
        for flow in &self.flows {
            received[flow.direction] += flow.tracker.unique;
        }
        received
    }

    /// Nothing to do just now.
    fn pause(&mut self, poll: bool) -> Result<(), Error> {
        let next = self.ports.iter().filter(|p| !p.flows.is_empty()).map(|p| p.pacer.wait()).min();
        // Due but not possible: there is no room. Room comes with packets that arrive, or without notice.
        let next = next.filter(|wait| !wait.is_zero()).unwrap_or(Duration::from_micros(200));
        if poll || next < Duration::from_micros(20) {
            std::thread::yield_now();
            return Ok(());
        }
        sleep(clients(&mut self.ports), next.min(HOUSEKEEPING))
    }

    /// How long nothing must have arrived to take what is under way for lost.
    fn patience(&self, bounded: bool) -> Duration {
        if bounded && !self.options.allow_loss { PATIENCE } else { QUIET }
    }

    /// Receives until nothing is under way any more.
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
            let quiet = now.duration_since(last) > self.patience(bounded);
            let complete = unique == sent && now.duration_since(last) > AFTERMATH;
            if taken && (quiet || complete) || now.duration_since(start) > DRAIN_LIMIT {
                return Ok(());
            }
            self.housekeeping(now)?;
            sleep(clients(&mut self.ports), AFTERMATH / 2)?;
        }
    }

    /// Sends what is due at one port. Returns how many packets.
    fn send(&mut self, index: usize, now: Instant, bounded: bool) -> usize {
        let port = &mut self.ports[index];
        if port.flows.is_empty() {
            return 0;
        }
        let due = port.pacer.due(now, BURST);
        let piece = port.client.piece();
        let patience = self.patience(bounded);
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
                if receiver.under_way > 0 && receiver.under_way + buffers > room {
                    if now.duration_since(receiver.last_arrival) > patience {
                        receiver.under_way = 0;
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
            self.ports[to].under_way += buffers;
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

    /// Takes and verifies what has arrived, some from each queue. Returns how many packets.
    fn receive(&mut self, now: Instant) -> usize {
        let Session { directions, writer, ports, flows, packet, .. } = self;
        let mut count = 0;
        for (index, port) in ports.iter_mut().enumerate() {
            let mut arrived = 0;
            for number in 0..port.client.queues().1 {
                let mut popped = 0;
                while popped < 2 * BURST && port.client.pop(number, packet) {
                    popped += 1;
                    port.under_way = port.under_way.saturating_sub(port.client.buffers(packet.len()));
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
            sums.median_pps = self.steady.median(direction);
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

/// A session on a thread of its own that runs until it is stopped.
#[derive(Debug)]
pub struct Background {
    stop: std::sync::Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<Report, Error>>,
}

impl Background {
    /// Connects, and starts to send.
    pub fn start(options: Options) -> Result<Background, Error> {
        let mut session = Session::connect(options)?;
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = std::thread::spawn(move || session.run(&seen));
        Ok(Background { stop, thread })
    }

    /// Whether it runs still: it ends by itself on errors and when its time is over.
    pub fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Stops sending, waits for what is under way, and tells what happened.
    pub fn stop(self) -> Result<Report, Error> {
        self.stop.store(true, Ordering::Relaxed);
        self.wait()
    }

    /// Waits until the time is over, and tells what happened.
    pub fn wait(self) -> Result<Report, Error> {
        self.thread
            .join()
            .unwrap_or_else(|_| Err(Error::Options("the session's thread panicked".to_string())))
    }
}

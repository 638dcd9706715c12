//! Which packets are sampled, on the workers that switch them.
//!
//! Between two samples a worker skips a random number of packets, drawn so that each packet is sampled with the same
//! chance, whatever came before it (a geometric distribution): no pattern in the traffic, on however many ports, can
//! match the sampling. A batch that ends before the next sample costs two additions. One that does not is noted
//! ([`fabric::Observer::picks`]) and what is sampled copied to the worker's page ([`crate::pages`]), which the exporter
//! reads.
//!
//! Invariant: a packet counts to its port's pool once, and each that is picked is either in a page or among the port's
//! drops.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use fabric::port::MAX_PORTS;
use fabric::{Interest, Observer, PortIndex, Sighting, Sightings};

use super::settings::MAX_HEADER;
use super::wire::Destination;
use crate::pages::Pages;

/// Samples that a page holds.
const RECORDS: usize = 2048;
/// Bytes of packets that a page holds.
const BYTES: usize = RECORDS * 128;
/// Ports whose tallies are made at a time.
const GROUP: usize = 64;

/// The number of a port, from 1: its index in its bridge, above 4,096 for each bridge with a lower number.
pub(super) fn if_index(bridge: u32, port: PortIndex) -> u32 {
    bridge.wrapping_mul(MAX_PORTS as u32).wrapping_add(u32::from(port.0)).wrapping_add(1)
}

/// The bridge's number and the port in it.
pub(super) fn port_of(if_index: u32) -> (u32, PortIndex) {
    let at = if_index.wrapping_sub(1);
    (at / MAX_PORTS as u32, PortIndex((at % MAX_PORTS as u32) as u16))
}

/// How many packets to skip before the next sample when one in `rate` is; `random` is from 0 to 1, without 1.
fn skip(rate: u32, random: f64) -> u64 {
    let chance = 1.0 / f64::from(rate.max(1));
    ((-random).ln_1p() / (-chance).ln_1p()) as u64
}

/// A sample in a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) port: u32,
    pub(super) rate: u32,
    pub(super) length: u32,
    /// Bytes kept; they follow those of the record before.
    kept: u32,
    pub(super) output: Destination,
    pub(super) vlan: (u16, u8),
}

struct Page {
    bytes: Box<[u8]>,
    used: usize,
    records: Vec<Record>,
}

impl Page {
    fn new() -> Self {
        // Of zeroes: no memory is used before samples come.
        Self { bytes: vec![0; BYTES].into(), used: 0, records: Vec::with_capacity(RECORDS) }
    }

    /// Keeps a sample if there is room.
    fn keep(&mut self, seen: &Sighting<'_>, limit: usize, record: Record) -> bool {
        let length = limit.min(seen.len() as usize);
        let room = self.bytes.get_mut(self.used..).and_then(|room| room.get_mut(..length));
        let (Some(room), true) = (room, self.records.len() < self.records.capacity()) else { return false };
        let kept = seen.copy(0, room);
        self.used += kept;
        self.records.push(Record { kept: kept as u32, ..record });
        true
    }
}

/// What only one worker writes. Of lines of its own.
#[repr(align(128))]
struct Worker {
    /// Packets to skip before the next sample.
    left: AtomicU64,
    /// The rate that they were drawn for; 0: none were.
    rate: AtomicU32,
    random: AtomicU64,
    dropped: AtomicU64,
    pages: Pages<Page>,
}

impl Worker {
    fn draw(&self, rate: u32) -> u64 {
        let mut random = fastrand::Rng::with_seed(self.random.load(Relaxed));
        let skipped = skip(rate, random.f64());
        self.random.store(random.get_seed(), Relaxed);
        skipped
    }

    /// Whether one of the next `packets` is a sample; if not, they are skipped.
    fn picks(&self, packets: u64, rate: u32) -> bool {
        let mut left = self.left.load(Relaxed);
        if self.rate.load(Relaxed) != rate {
            // What is left of another rate means nothing; each packet's chance is independent of the past.
            left = self.draw(rate);
            self.rate.store(rate, Relaxed);
        }
        let picks = left < packets;
        self.left.store(if picks { left } else { left - packets }, Relaxed);
        picks
    }

    /// Calls `f` with the place of each sample among `packets` of which some are.
    fn samples(&self, packets: u64, mut f: impl FnMut(usize)) {
        let rate = self.rate.load(Relaxed);
        let mut at = self.left.load(Relaxed);
        while at < packets {
            f(at as usize);
            at = at.saturating_add(1).saturating_add(self.draw(rate));
        }
        self.left.store(at - packets, Relaxed);
    }
}

/// Adds to a counter that only this thread writes.
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

/// What all bridges share: the rate, and the workers' pages.
pub(super) struct Sampler {
    rate: AtomicU32,
    header: AtomicU32,
    workers: Box<[Worker]>,
}

impl Sampler {
    /// For so many workers; `seed` decides which packets are sampled.
    pub(super) fn new(workers: usize, seed: u64) -> Self {
        let mut seeds = fastrand::Rng::with_seed(seed);
        let worker = |_| Worker {
            left: AtomicU64::new(0),
            rate: AtomicU32::new(0),
            random: AtomicU64::new(seeds.u64(..)),
            dropped: AtomicU64::new(0),
            pages: Pages::new(Page::new),
        };
        let workers = (0..workers).map(worker).collect();
        Self { rate: AtomicU32::new(1), header: AtomicU32::new(MAX_HEADER), workers }
    }

    /// Samples one packet in `rate` from now on, and `header` bytes of it.
    pub(super) fn set(&self, rate: u32, header: u32) {
        self.rate.store(rate.max(1), Relaxed);
        self.header.store(header.min(MAX_HEADER), Relaxed);
    }

    /// Empties the pages: calls `f` with each sample and its bytes. Returns how full the fullest was, from 0 to 1.
    pub(super) fn drain(&self, mut f: impl FnMut(&Record, &[u8])) -> f32 {
        let mut fullest = 0;
        for worker in &self.workers {
            // The other one may hold what was written before pages changed places last: then it comes next time.
            let Some((_, mut page)) = worker.pages.to_read() else { continue };
            let mut bytes = page.bytes.get(..page.used).unwrap_or_default();
            for record in &page.records {
                let Some((header, rest)) = bytes.split_at_checked(record.kept as usize) else { break };
                bytes = rest;
                f(record, header);
            }
            fullest = fullest.max(page.records.len());
            page.used = 0;
            page.records.clear();
        }
        fullest as f32 / RECORDS as f32
    }

    /// Samples that found no room.
    pub(super) fn dropped(&self) -> u64 {
        self.workers.iter().map(|worker| worker.dropped.load(Relaxed)).sum()
    }
}

/// What one worker has counted at a port.
#[derive(Debug, Default)]
struct Tally {
    pool: AtomicU64,
    drops: AtomicU64,
}

/// The tallies of a group of ports, by worker.
type Group = Box<[[Tally; GROUP]]>;

/// Samples the packets of one bridge.
pub(super) struct BridgeSampler {
    shared: Arc<Sampler>,
    number: u32,
    /// Made when the first port of a group comes.
    groups: Box<[OnceLock<Group>]>,
}

impl BridgeSampler {
    /// Of the bridge with this number.
    pub(super) fn new(shared: Arc<Sampler>, number: u32) -> Self {
        let groups = (0..MAX_PORTS.div_ceil(GROUP)).map(|_| OnceLock::new()).collect();
        Self { shared, number, groups }
    }

    fn tally(&self, worker: usize, port: PortIndex) -> Option<&Tally> {
        let port = usize::from(port.0);
        self.groups.get(port / GROUP)?.get()?.get(worker)?.get(port % GROUP)
    }

    /// Packets of a port that could have been sampled, and samples that found no room.
    pub(super) fn totals(&self, port: PortIndex) -> (u64, u64) {
        let tallies = (0..self.shared.workers.len()).filter_map(|worker| self.tally(worker, port));
        tallies.fold((0, 0), |(pool, drops), tally| {
            (pool.wrapping_add(tally.pool.load(Relaxed)), drops.wrapping_add(tally.drops.load(Relaxed)))
        })
    }

    fn record(&self, batch: &Sightings<'_>, seen: &Sighting<'_>, rate: u32) -> Record {
        let output = match (seen.deliveries, seen.egress) {
            (0, _) | (_, None) => Destination::Nowhere(seen.dropped),
            (1, Some(port)) => Destination::Port(if_index(self.number, port)),
            (several, Some(_)) => Destination::Several(several),
        };
        let port = if_index(self.number, seen.ingress);
        Record { port, rate, length: seen.len(), kept: 0, output, vlan: batch.vlan(seen) }
    }
}

impl Observer for BridgeSampler {
    fn interest(&self, port: PortIndex, _: &str) -> Interest {
        if let Some(group) = self.groups.get(usize::from(port.0) / GROUP) {
            let tallies = || std::array::from_fn(|_| Tally::default());
            group.get_or_init(|| self.shared.workers.iter().map(|_| tallies()).collect());
        }
        Interest { received: true, ..Interest::default() }
    }

    fn picks(&self, worker: usize, ingress: PortIndex, packets: usize) -> bool {
        let (Some(tally), Some(worker)) = (self.tally(worker, ingress), self.shared.workers.get(worker))
        else {
            return false;
        };
        add(&tally.pool, packets as u64);
        worker.picks(packets as u64, self.shared.rate.load(Relaxed))
    }

    fn observe(&self, index: usize, batch: &Sightings<'_>) {
        let Some(worker) = self.shared.workers.get(index) else { return };
        let (rate, header) = (worker.rate.load(Relaxed), self.shared.header.load(Relaxed) as usize);
        let mut page = worker.pages.to_write();
        worker.samples(batch.packets() as u64, |i| {
            let Some(seen) = batch.received(i) else { return };
            let record = self.record(batch, &seen, rate);
            let kept = page.as_mut().is_some_and(|page| page.keep(&seen, header, record));
            if !kept {
                add(&worker.dropped, 1);
                if let Some(tally) = self.tally(index, seen.ingress) {
                    add(&tally.drops, 1);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests;

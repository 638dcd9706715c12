//! Samples packets on the workers.
//!
//! A batch without a sample costs two additions ([`Draw`]). A batch with samples is recorded
//! ([`fabric::Observer::picks`]), and the sampled packets are copied to the worker's page ([`DoubleBuffer`]),
//! which the exporter reads.
//!
//! Invariant: a packet counts once in the pool of its port, and every sample is either in a page or in the drops of the
//! port.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use fabric::port::MAX_PORTS;
use fabric::worker::{PerThread, Threads};
use fabric::{Interest, Observer, PortIndex, Sighting, Sightings};
use metering::{DoubleBuffer, Draw};

use super::settings::MAX_HEADER;
use super::wire::Destination;

/// Capacity of a page in samples.
const RECORDS: usize = 2048;
/// Capacity of a page in bytes of packets.
const BYTES: usize = RECORDS * 128;
/// Number of ports whose tallies are allocated together.
const GROUP: usize = 64;

/// Returns the number of a port: 4,096 times the number of its bridge, plus its index in the bridge, plus 1.
pub(super) fn if_index(bridge: u32, port: PortIndex) -> u32 {
    bridge.wrapping_mul(MAX_PORTS as u32).wrapping_add(u32::from(port.0)).wrapping_add(1)
}

/// Returns the bridge's number and the port's index for a number.
pub(super) fn port_of(if_index: u32) -> (u32, PortIndex) {
    let at = if_index.wrapping_sub(1);
    (at / MAX_PORTS as u32, PortIndex((at % MAX_PORTS as u32) as u16))
}

/// A sample in a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) port: u32,
    pub(super) rate: u32,
    pub(super) length: u32,
    /// Number of bytes kept; they follow those of the previous record.
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
        // Zeroed memory is allocated by the kernel on first use.
        Self { bytes: vec![0; BYTES].into(), used: 0, records: Vec::with_capacity(RECORDS) }
    }

    /// Stores a sample. Returns false if the page is full.
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

/// State that only one worker writes, on its own cache lines.
#[repr(align(128))]
struct Worker {
    draw: Draw,
    dropped: AtomicU64,
    pages: DoubleBuffer<Page>,
}

/// Adds to a counter that only this thread writes.
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

/// State shared by all bridges: the rate and the workers' pages.
pub(super) struct Sampler {
    rate: AtomicU32,
    header: AtomicU32,
    seed: u64,
    threads: PerThread<Worker>,
}

impl Sampler {
    /// Creates the state; `seed` seeds the random numbers.
    pub(super) fn new(seed: u64) -> Self {
        let (rate, header) = (AtomicU32::new(1), AtomicU32::new(MAX_HEADER));
        Self { rate, header, seed, threads: PerThread::default() }
    }

    /// Makes the pages of threads that have none.
    fn prepare(&self, threads: Threads) {
        let worker = |number: usize| {
            Ok::<_, Infallible>(Worker {
                draw: Draw::new(self.seed.wrapping_add(number as u64)),
                dropped: AtomicU64::new(0),
                pages: DoubleBuffer::new(Page::new),
            })
        };
        let Ok(()) = self.threads.prepare(threads, worker);
    }

    /// Sets the rate to 1 in `rate`, and the number of bytes per sample to `header`.
    pub(super) fn set(&self, rate: u32, header: u32) {
        self.rate.store(rate.max(1), Relaxed);
        self.header.store(header.min(MAX_HEADER), Relaxed);
    }

    /// Reads and clears the pages: calls `f` with each sample and its bytes. Returns the fill level of the fullest
    /// page, from 0 to 1.
    pub(super) fn drain(&self, mut f: impl FnMut(&Record, &[u8])) -> f32 {
        let mut fullest = 0;
        for (_, worker) in self.threads.iter() {
            // The other page may hold samples written before the last swap; these are read next time.
            let Some((_, mut page)) = worker.pages.swap() else { continue };
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

    /// Returns the number of samples lost because a page was full.
    pub(super) fn dropped(&self) -> u64 {
        self.threads.iter().map(|(_, worker)| worker.dropped.load(Relaxed)).sum()
    }
}

/// Counters of a worker at a port.
#[derive(Debug, Default)]
struct Tally {
    pool: AtomicU64,
    drops: AtomicU64,
}

/// The tallies of a thread, by group of ports; a group is allocated when its first port is added.
struct Tallies(Box<[OnceLock<Box<[Tally; GROUP]>>]>);

impl Tallies {
    fn new() -> Self {
        Self((0..MAX_PORTS.div_ceil(GROUP)).map(|_| OnceLock::new()).collect())
    }

    fn add_group(&self, group: usize) {
        if let Some(group) = self.0.get(group) {
            group.get_or_init(|| Box::new(std::array::from_fn(|_| Tally::default())));
        }
    }

    /// The groups that are allocated.
    fn groups(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().filter(|(_, group)| group.get().is_some()).map(|(number, _)| number)
    }

    fn get(&self, port: PortIndex) -> Option<&Tally> {
        let port = usize::from(port.0);
        self.0.get(port / GROUP)?.get()?.get(port % GROUP)
    }
}

/// Samples the packets of a bridge.
pub(super) struct BridgeSampler {
    shared: Arc<Sampler>,
    number: u32,
    tallies: PerThread<Tallies>,
}

impl BridgeSampler {
    /// Creates the sampler of the bridge with this number.
    pub(super) fn new(shared: Arc<Sampler>, number: u32) -> Self {
        Self { shared, number, tallies: PerThread::default() }
    }

    fn tally(&self, worker: usize, port: PortIndex) -> Option<&Tally> {
        self.tallies.get(worker)?.get(port)
    }

    /// Returns the number of packets of a port that could have been sampled, and the number of its samples lost because
    /// a page was full.
    pub(super) fn totals(&self, port: PortIndex) -> (u64, u64) {
        let tallies = self.tallies.iter().filter_map(|(_, tallies)| tallies.get(port));
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
        self.tallies.iter().for_each(|(_, tallies)| tallies.add_group(usize::from(port.0) / GROUP));
        Interest { received: true, ..Interest::default() }
    }

    fn prepare(&self, threads: Threads) {
        self.shared.prepare(threads);
        let tallies = |_| {
            let tallies = Tallies::new();
            let others = self.tallies.iter().next();
            others.iter().flat_map(|(_, other)| other.groups()).for_each(|group| tallies.add_group(group));
            Ok::<_, Infallible>(tallies)
        };
        let Ok(()) = self.tallies.prepare(threads, tallies);
    }

    fn picks(&self, worker: usize, ingress: PortIndex, packets: usize) -> bool {
        let (Some(tally), Some(worker)) = (self.tally(worker, ingress), self.shared.threads.get(worker))
        else {
            return false;
        };
        add(&tally.pool, packets as u64);
        worker.draw.picks(packets as u64, self.shared.rate.load(Relaxed))
    }

    fn observe(&self, index: usize, batch: &Sightings<'_>) {
        let Some(worker) = self.shared.threads.get(index) else { return };
        let (rate, header) = (worker.draw.rate(), self.shared.header.load(Relaxed) as usize);
        let mut page = worker.pages.write();
        worker.draw.samples(batch.packets() as u64, |i| {
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

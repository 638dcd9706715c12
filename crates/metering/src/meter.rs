//! Counts packets into flows on the workers.
//!
//! A meter of a bridge is an observer: it is shown batches after delivery, so it knows where packets went. A meter of
//! `sample` actions is given single packets by the OpenFlow logic. Both write the worker's page
//! ([`DoubleBuffer`]), which the exporter reads.
//!
//! Invariant: a packet is in a page, in the counters of what was missed, or was not sampled.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use fabric::rx::MAX_BATCH;
use fabric::worker::{PerThread, Threads};
use fabric::{Interest, Observer, PortIndex, Sighting, Sightings};

use crate::counts::Counts;
use crate::double_buffer::DoubleBuffer;
use crate::key::{ANYWHERE, Detail, Facts, NOWHERE, SEVERAL, Way};
use crate::page::{ENTRIES, Entry, Page};
use crate::sampling::Draw;

/// Packets that a meter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// Kind of packets, and the fields by which their flows differ.
    pub detail: Detail,
    /// Packets where they come in.
    pub input: bool,
    /// Packets where they leave.
    pub output: bool,
}

/// Packets that were to be counted and found no place, and their octets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Missed {
    /// Packets.
    pub packets: u64,
    /// Octets of their IP packets; see [`Facts::octets`].
    pub octets: u64,
}

/// State that only one worker writes, on its own cache lines.
#[repr(align(128))]
struct Worker {
    draw: Draw,
    /// The rate at which the current batch was picked.
    rate: AtomicU32,
    missed: MissedCounters,
    pages: DoubleBuffer<Page>,
}

#[derive(Default)]
struct MissedCounters {
    packets: AtomicU64,
    octets: AtomicU64,
}

impl MissedCounters {
    fn add(&self, counts: &Counts) {
        self.packets.fetch_add(counts.packets, Relaxed);
        self.octets.fetch_add(counts.octets, Relaxed);
    }
}

/// See the module.
pub struct Meter {
    scope: Scope,
    /// One packet in this many is counted.
    rate: AtomicU32,
    /// Whether packets of a flow are added up.
    merges: AtomicBool,
    threads: PerThread<Worker>,
    /// Packets that come from no worker.
    aside: Mutex<Page>,
    missed_aside: MissedCounters,
}

impl Meter {
    /// Makes a meter; for `rate` and `merges` see [`Meter::set`].
    pub fn new(scope: Scope, rate: u32, merges: bool) -> Self {
        Self {
            scope,
            rate: AtomicU32::new(rate.max(1)),
            merges: AtomicBool::new(merges),
            threads: PerThread::default(),
            aside: Mutex::new(Page::new()),
            missed_aside: MissedCounters::default(),
        }
    }

    /// Returns the packets that it counts.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Counts one packet in `rate`, which stands for all of them, and adds packets of a flow up, or not.
    pub fn set(&self, rate: u32, merges: bool) {
        self.rate.store(rate.max(1), Relaxed);
        self.merges.store(merges, Relaxed);
    }

    /// Makes the pages of threads that have none.
    pub fn prepare(&self, threads: Threads) {
        let worker = |_| {
            let (draw, missed) = (Draw::new(fastrand::u64(..)), MissedCounters::default());
            let (rate, pages) = (AtomicU32::new(1), DoubleBuffer::new(Page::new));
            Ok::<_, Infallible>(Worker { draw, rate, missed, pages })
        };
        let Ok(()) = self.threads.prepare(threads, worker);
    }

    /// Reads and clears the pages. Returns the fill level of the fullest one, from 0 to 1.
    pub fn drain(&self, mut f: impl FnMut(&Entry)) -> f32 {
        let mut fullest = 0;
        let mut read = |page: &mut Page| {
            fullest = fullest.max(page.entries().len());
            page.entries().iter().for_each(&mut f);
            page.clear();
        };
        for (_, worker) in self.threads.iter() {
            // The other page may hold flows written before the last swap; these are read next time.
            if let Some((_, mut page)) = worker.pages.swap() {
                read(&mut page);
            }
        }
        read(&mut self.aside.lock().unwrap_or_else(PoisonError::into_inner));
        fullest as f32 / ENTRIES as f32
    }

    /// Returns what found no place because a page was full.
    pub fn missed(&self) -> Missed {
        let all = self.threads.iter().map(|(_, worker)| &worker.missed).chain([&self.missed_aside]);
        all.fold(Missed::default(), |sum, missed| Missed {
            packets: sum.packets.wrapping_add(missed.packets.load(Relaxed)),
            octets: sum.octets.wrapping_add(missed.octets.load(Relaxed)),
        })
    }

    /// Counts a packet that a `sample` action chose, on thread `thread`, or on one that is no worker.
    pub fn sample(&self, thread: Option<usize>, facts: &Facts, counts: &Counts) {
        let merges = self.merges.load(Relaxed);
        match thread.and_then(|thread| self.threads.get(thread)) {
            Some(worker) => {
                let mut page = worker.pages.write();
                let kept = page.as_mut().is_some_and(|page| page.count(&facts.key, counts, merges));
                if !kept {
                    worker.missed.add(counts);
                }
            }
            None => {
                let mut page = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
                if !page.count(&facts.key, counts, merges) {
                    self.missed_aside.add(counts);
                }
            }
        }
    }

    /// Reads a packet of a batch; `None` if it is not for this meter.
    #[inline]
    fn read(&self, seen: &Sighting<'_>, at: u64) -> Option<(Facts, Counts)> {
        if seen.mirrored {
            return None;
        }
        let mut facts = Facts::read(seen.header(), seen.len(), self.scope.detail)?;
        let key = &mut facts.key;
        key.ingress = seen.ingress;
        match seen.way {
            fabric::observe::Way::Out => (key.way, key.egress) = (Way::Out, seen.port),
            // The place where a flow comes in says nothing about where it leaves, if that is observed, too.
            fabric::observe::Way::In if self.scope.detail == Detail::Ethernet => key.egress = ANYWHERE,
            fabric::observe::Way::In => {
                key.egress = match (seen.deliveries, seen.egress) {
                    (0, _) | (_, None) => NOWHERE,
                    (1, Some(port)) => port,
                    (_, Some(_)) => SEVERAL,
                }
            }
        }
        let counts = Counts::of_packet(at, seen.len(), facts.octets, facts.tcp_flags, seen.deliveries == 0);
        Some((facts, counts))
    }
}

/// Packets of a batch, as a bitmap.
struct Chosen([u64; MAX_BATCH.div_ceil(64)]);

impl Chosen {
    fn add(&mut self, packet: usize) {
        if let Some(word) = self.0.get_mut(packet / 64) {
            *word |= 1 << (packet % 64);
        }
    }

    fn has(&self, packet: u16) -> bool {
        let packet = usize::from(packet);
        self.0.get(packet / 64).is_some_and(|word| word >> (packet % 64) & 1 != 0)
    }
}

impl Observer for Meter {
    fn interest(&self, _: PortIndex, _: &str) -> Interest {
        Interest { received: self.scope.input, sent: self.scope.output, explained: false }
    }

    fn prepare(&self, threads: Threads) {
        Meter::prepare(self, threads);
    }

    fn picks(&self, worker: usize, _: PortIndex, packets: usize) -> bool {
        let Some(worker) = self.threads.get(worker) else { return false };
        let rate = self.rate.load(Relaxed);
        worker.rate.store(rate, Relaxed);
        rate == 1 || worker.draw.picks(packets as u64, rate)
    }

    fn observe(&self, index: usize, batch: &Sightings<'_>) {
        let Some(worker) = self.threads.get(index) else { return };
        let (rate, merges) = (worker.rate.load(Relaxed), self.merges.load(Relaxed));
        let mut page = worker.pages.write();
        let mut count = |seen: &Sighting<'_>| {
            let Some((facts, mut counts)) = self.read(seen, batch.at) else { return };
            if rate > 1 {
                counts = counts.scaled(rate.into());
            }
            let kept = page.as_mut().is_some_and(|page| page.count(&facts.key, &counts, merges));
            if !kept {
                worker.missed.add(&counts);
            }
        };
        let received = |packet: usize| {
            if let Some(seen) = batch.received(packet) {
                count(&seen);
            }
        };
        match (rate > 1, self.scope.output) {
            (false, false) => (0..batch.packets()).for_each(received),
            (true, false) => worker.draw.samples(batch.packets() as u64, received),
            (false, true) => batch.for_each(count),
            (true, true) => {
                let mut chosen = Chosen([0; _]);
                worker.draw.samples(batch.packets() as u64, |packet| chosen.add(packet));
                batch.for_each(|seen| {
                    if chosen.has(seen.packet) {
                        count(seen);
                    }
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::tests::{frame, ipv4};

    fn facts(port: u16) -> (Facts, Counts) {
        let mut udp = port.to_be_bytes().to_vec();
        udp.resize(8, 0);
        let bytes = frame(&[], 0x0800, &ipv4(17, &udp));
        let facts = Facts::read(&bytes, bytes.len() as u32, Detail::Ipv4).unwrap();
        (facts, Counts::of_packet(1, 42, facts.octets, 0, false))
    }

    fn meter() -> Meter {
        let meter = Meter::new(Scope { detail: Detail::Ipv4, input: false, output: false }, 1, true);
        meter.prepare(Threads::of(2));
        meter
    }

    #[test]
    fn packets_of_all_threads_are_drained_once() {
        let meter = meter();
        for thread in [Some(0), Some(1), None, Some(1), Some(77)] {
            let (facts, counts) = facts(1);
            meter.sample(thread, &facts, &counts);
        }
        let mut packets = Vec::new();
        meter.drain(|entry| packets.push(entry.counts.packets));
        // The thread that does not exist is none.
        assert_eq!(packets, [1, 2, 2]);
        meter.drain(|_| panic!("drained twice"));
        assert_eq!(meter.missed(), Missed::default());
    }

    #[test]
    fn what_finds_no_place_is_counted() {
        let meter = meter();
        meter.set(1, false);
        let (facts, counts) = facts(1);
        (0..ENTRIES + 3).for_each(|_| meter.sample(Some(0), &facts, &counts));
        (0..ENTRIES + 2).for_each(|_| meter.sample(None, &facts, &counts));
        assert_eq!(meter.missed(), Missed { packets: 5, octets: 5 * 28 });
        let mut drained = 0;
        assert_eq!(meter.drain(|_| drained += 1), 1.0);
        assert_eq!(drained, 2 * ENTRIES);
    }

    #[test]
    fn chosen_packets_are_found() {
        let mut chosen = Chosen([0; _]);
        [0, 63, 64, MAX_BATCH - 1, MAX_BATCH].into_iter().for_each(|packet| chosen.add(packet));
        let found: Vec<_> = (0..=u16::MAX).filter(|packet| chosen.has(*packet)).collect();
        assert_eq!(found, [0, 63, 64, MAX_BATCH as u16 - 1]);
    }
}

//! Ingress policing: storm control and rate limits, applied before the logic sees a batch, and then the classes of the
//! packets that are left ([`Classification`]).
//!
//! A port with neither has no [`RateLimits`]; checking for that is all it pays, once a batch.
//!
//! Invariant: a batch within the limits pays one compare-exchange for each limit; only a batch that exceeds one is
//! examined packet by packet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use packet::ether;

use crate::bridge::port::PortSettings;
use crate::clock;
use crate::counters::{DropReason, Drops};
use crate::protect::bucket::Bucket;
use crate::protect::protection::{Classification, Limit};
use crate::rx::RxBatch;

/// A limit that a port may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RateLimit {
    /// Of all packets.
    Police,
    /// Of broadcasts.
    Broadcast,
    /// Of multicasts.
    Multicast,
    /// Of packets to unknown stations.
    Unknown,
}

impl RateLimit {
    const ALL: [RateLimit; 4] =
        [RateLimit::Police, RateLimit::Broadcast, RateLimit::Multicast, RateLimit::Unknown];
}

/// The limits that were exceeded, for events.
#[derive(Debug, Default)]
struct Exceeded([AtomicBool; RateLimit::ALL.len()]);

impl Exceeded {
    fn note(&self, limit: RateLimit) {
        // The load spares workers the write while nobody takes the limits.
        if let Some(exceeded) = self.0.get(limit as usize)
            && !exceeded.load(Relaxed)
        {
            exceeded.store(true, Relaxed);
        }
    }

    fn take(&self) -> impl Iterator<Item = RateLimit> {
        let all = RateLimit::ALL.into_iter().zip(&self.0);
        all.filter(|(_, exceeded)| exceeded.load(Relaxed) && exceeded.swap(false, Relaxed))
            .map(|(limit, _)| limit)
    }
}

/// Selects packets by header.
type Which = fn(&[u8]) -> bool;

/// The limits of one port, shared by all of its queues.
#[derive(Debug, Default)]
pub(crate) struct RateLimits {
    police: Option<Arc<Bucket>>,
    broadcast: Option<Arc<Bucket>>,
    multicast: Option<Arc<Bucket>>,
    unknown: Option<Arc<Bucket>>,
    classification: Option<Arc<Classification>>,
    exceeded: Exceeded,
}

impl RateLimits {
    /// Takes the limits that were exceeded since the last call.
    pub(crate) fn take_exceeded(&self) -> impl Iterator<Item = RateLimit> {
        self.exceeded.take()
    }

    /// The limits that the settings ask for, if any. Unchanged limits keep their buckets: changing another setting
    /// fills none.
    pub(crate) fn of(settings: &PortSettings, before: Option<&RateLimits>) -> Option<Arc<RateLimits>> {
        let storm = settings.storm;
        let (wanted, there) = ([settings.police, storm.broadcast, storm.multicast, storm.unknown], before);
        if wanted.iter().all(Option::is_none) && settings.classification.is_none() {
            return None;
        }
        let there = |which: fn(&RateLimits) -> &Option<Arc<Bucket>>| {
            there.and_then(|rate_limits| which(rate_limits).as_ref())
        };
        let [police, broadcast, multicast, unknown] = wanted;
        Some(Arc::new(RateLimits {
            police: bucket(police, there(|rate_limits| &rate_limits.police)),
            broadcast: bucket(broadcast, there(|rate_limits| &rate_limits.broadcast)),
            multicast: bucket(multicast, there(|rate_limits| &rate_limits.multicast)),
            unknown: bucket(unknown, there(|rate_limits| &rate_limits.unknown)),
            classification: settings.classification.clone(),
            exceeded: Exceeded::default(),
        }))
    }

    /// Removes packets beyond the limits from the batch. Packets that storm control drops do not count against the
    /// port's rate.
    #[cold]
    pub(crate) fn admit(&self, batch: &mut RxBatch, drops: &mut Drops) {
        self.hold_each(batch, false, |reason, held| drops.add(reason, held));
    }

    /// The same, but keeps removed packets behind the rest of the batch for observers, and reports their number to
    /// `held`.
    pub(crate) fn hold_each(&self, batch: &mut RxBatch, shown: bool, mut held: impl FnMut(DropReason, u32)) {
        let now = clock::cycles();
        for (bucket, which, limit, reason) in self.each() {
            let count = hold(batch, shown, bucket, now, which);
            if count > 0 {
                self.exceeded.note(limit);
                held(reason, count);
            }
        }
        self.classify(batch);
    }

    fn classify(&self, batch: &mut RxBatch) {
        if let Some(classification) = &self.classification {
            classification.apply(batch);
        }
    }

    /// Predicts the result of [`RateLimits::hold_each`] now, without taking tokens: for a batch of one.
    pub(crate) fn rehearse(&self, batch: &mut RxBatch, mut held: impl FnMut(DropReason, u32)) {
        let now = clock::cycles();
        for (bucket, which, _, reason) in self.each() {
            let count = batch.retain(true, |header, len| !which(header) || bucket.has_for_packet(now, len));
            if count > 0 {
                held(reason, count);
            }
        }
        self.classify(batch);
    }

    /// The limits in their order: bucket, packet selector, limit and drop reason.
    fn each(&self) -> impl Iterator<Item = (&Bucket, Which, RateLimit, DropReason)> {
        let storm = DropReason::StormControl;
        [
            (&self.broadcast, is_broadcast as Which, RateLimit::Broadcast, storm),
            (&self.multicast, is_multicast, RateLimit::Multicast, storm),
            (&self.police, |_| true, RateLimit::Police, DropReason::Policed),
        ]
        .into_iter()
        .filter_map(|(bucket, which, limit, reason)| Some((bucket.as_deref()?, which, limit, reason)))
    }

    /// Takes tokens for another packet of `len` bytes that is flooded because its destination's port is unknown.
    pub(crate) fn admits_unknown(&self, len: u32) -> bool {
        let admitted = self.unknown.as_ref().is_none_or(|bucket| bucket.take_packet(clock::cycles(), len));
        if !admitted {
            self.exceeded.note(RateLimit::Unknown);
        }
        admitted
    }

    /// Whether [`RateLimits::admits_unknown`] would succeed.
    pub(crate) fn would_admit_unknown(&self, len: u32) -> bool {
        self.unknown.as_ref().is_none_or(|bucket| bucket.has_for_packet(clock::cycles(), len))
    }
}

fn bucket(wanted: Option<Limit>, there: Option<&Arc<Bucket>>) -> Option<Arc<Bucket>> {
    let wanted = wanted?;
    Some(match there {
        Some(bucket) if *bucket.limit() == wanted => bucket.clone(),
        _ => Arc::new(Bucket::new(wanted)),
    })
}

fn is_broadcast(header: &[u8]) -> bool {
    ether::addresses(header).is_some_and(|(destination, _)| destination.is_broadcast())
}

fn is_multicast(header: &[u8]) -> bool {
    ether::addresses(header)
        .is_some_and(|(destination, _)| destination.is_multicast() && !destination.is_broadcast())
}

/// Removes packets that `which` selects and for which the bucket has no tokens; returns their number.
fn hold(batch: &mut RxBatch, shown: bool, bucket: &Bucket, now: u64, which: Which) -> u32 {
    let asked = (0..batch.len()).filter(|i| which(batch.header(*i)));
    let tokens: u64 = asked.map(|i| bucket.cost(batch.records[i].len())).sum();
    if tokens == 0 || bucket.take(now, tokens) {
        return 0;
    }
    batch.retain(shown, |header, len| !which(header) || bucket.take_packet(now, len))
}

//! What is held back where packets come in, before the logic sees them: storm control and policing.
//!
//! A port without limits has no [`Guards`], and looking whether it has is all that it pays, once a batch.
//!
//! Invariant: a batch that fits the limits pays one compare-exchange for each; only one that does not is looked at packet
//! by packet.

use std::sync::Arc;

use packet::ether;

use crate::bridge::port::PortSettings;
use crate::clock;
use crate::counters::{DropReason, Drops};
use crate::protect::bucket::Bucket;
use crate::protect::protection::Limit;
use crate::rx::RxBatch;

/// Whether a packet with this header is meant.
type Which = fn(&[u8]) -> bool;

/// The limits of one port, shared by all of its queues.
#[derive(Debug, Default)]
pub(crate) struct Guards {
    police: Option<Arc<Bucket>>,
    broadcast: Option<Arc<Bucket>>,
    multicast: Option<Arc<Bucket>>,
    unknown: Option<Arc<Bucket>>,
}

impl Guards {
    /// The limits that the settings ask for, if any. One that was there before goes on where it is: a change of
    /// something else fills no bucket.
    pub(crate) fn of(settings: &PortSettings, before: Option<&Guards>) -> Option<Arc<Guards>> {
        let storm = settings.storm;
        let (wanted, there) = ([settings.police, storm.broadcast, storm.multicast, storm.unknown], before);
        if wanted.iter().all(Option::is_none) {
            return None;
        }
        let there =
            |which: fn(&Guards) -> &Option<Arc<Bucket>>| there.and_then(|guards| which(guards).as_ref());
        let [police, broadcast, multicast, unknown] = wanted;
        Some(Arc::new(Guards {
            police: bucket(police, there(|guards| &guards.police)),
            broadcast: bucket(broadcast, there(|guards| &guards.broadcast)),
            multicast: bucket(multicast, there(|guards| &guards.multicast)),
            unknown: bucket(unknown, there(|guards| &guards.unknown)),
        }))
    }

    /// Takes out of the batch what the port may not send now. What storm control drops costs the port none of its rate.
    #[cold]
    pub(crate) fn admit(&self, batch: &mut RxBatch, drops: &mut Drops) {
        self.hold_each(batch, false, |reason, held| drops.add(reason, held));
    }

    /// The same, with what is held back kept behind the rest of the batch for observers: `held` is told how many.
    pub(crate) fn hold_each(&self, batch: &mut RxBatch, shown: bool, mut held: impl FnMut(DropReason, u32)) {
        let now = clock::cycles();
        for (bucket, which, reason) in self.each() {
            let count = hold(batch, shown, bucket, now, which);
            if count > 0 {
                held(reason, count);
            }
        }
    }

    /// What [`Guards::hold_each`] would do now, without anything being taken: for a batch of one.
    pub(crate) fn rehearse(&self, batch: &mut RxBatch, mut held: impl FnMut(DropReason, u32)) {
        let now = clock::cycles();
        for (bucket, which, reason) in self.each() {
            let count = batch.retain(true, |header, len| !which(header) || bucket.has_for_packet(now, len));
            if count > 0 {
                held(reason, count);
            }
        }
    }

    /// The limits in their order: each one's bucket, which packets it is for, and why they are dropped.
    fn each(&self) -> impl Iterator<Item = (&Bucket, Which, DropReason)> {
        let storm = DropReason::StormControl;
        [
            (&self.broadcast, is_broadcast as Which, storm),
            (&self.multicast, is_multicast, storm),
            (&self.police, |_| true, DropReason::Policed),
        ]
        .into_iter()
        .filter_map(|(bucket, which, reason)| Some((bucket.as_deref()?, which, reason)))
    }

    /// Whether another packet of `len` bytes may be flooded because nobody knows where its destination is.
    pub(crate) fn admits_unknown(&self, len: u32) -> bool {
        self.unknown.as_ref().is_none_or(|bucket| bucket.take_packet(clock::cycles(), len))
    }

    /// Whether it might be, without its being.
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

/// Lets through what the bucket has tokens for, of the packets whose header is `which`; how many it did not.
fn hold(batch: &mut RxBatch, shown: bool, bucket: &Bucket, now: u64, which: Which) -> u32 {
    let asked = (0..batch.len()).filter(|i| which(batch.header(*i)));
    let tokens: u64 = asked.map(|i| bucket.cost(batch.records[i].len())).sum();
    if tokens == 0 || bucket.take(now, tokens) {
        return 0;
    }
    batch.retain(shown, |header, len| !which(header) || bucket.take_packet(now, len))
}

//! What is held back where packets come in, before the logic sees them: storm control and policing.
//!
//! A port without limits has no [`Guards`], and looking whether it has is all that it pays, once a batch.
//!
//! Invariant: a batch that fits the limits pays one compare-exchange for each; only one that does not is looked at packet
//! by packet.

use std::sync::Arc;

use packet::ether;

use crate::bucket::Bucket;
use crate::clock;
use crate::counters::{DropReason, Drops};
use crate::port::PortSettings;
use crate::protection::Limit;
use crate::rx::RxBatch;

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
        let now = clock::cycles();
        if let Some(bucket) = &self.broadcast {
            hold(batch, drops, bucket, now, DropReason::StormControl, is_broadcast);
        }
        if let Some(bucket) = &self.multicast {
            let is_multicast = |header: &[u8]| is_group(header) && !is_broadcast(header);
            hold(batch, drops, bucket, now, DropReason::StormControl, is_multicast);
        }
        if let Some(bucket) = &self.police {
            hold(batch, drops, bucket, now, DropReason::Policed, |_| true);
        }
    }

    /// Whether another packet of `len` bytes may be flooded because nobody knows where its destination is.
    pub(crate) fn admits_unknown(&self, len: u32) -> bool {
        self.unknown.as_ref().is_none_or(|bucket| bucket.take_packet(clock::cycles(), len))
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

fn is_group(header: &[u8]) -> bool {
    ether::addresses(header).is_some_and(|(destination, _)| destination.is_multicast())
}

/// Lets through what the bucket has tokens for, of the packets whose header is `which`.
fn hold(
    batch: &mut RxBatch,
    drops: &mut Drops,
    bucket: &Bucket,
    now: u64,
    reason: DropReason,
    which: impl Fn(&[u8]) -> bool,
) {
    let asked = (0..batch.len()).filter(|i| which(batch.header(*i)));
    let tokens: u64 = asked.map(|i| bucket.cost(batch.versions[i].len())).sum();
    if tokens == 0 || bucket.take(now, tokens) {
        return;
    }
    let dropped = batch.retain(|header, len| !which(header) || bucket.take_packet(now, len));
    drops.add(reason, dropped);
}

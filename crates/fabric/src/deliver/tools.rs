//! Tools that a worker lends to a delivery.

use std::sync::Arc;

use crate::counters::QueueCounters;
use crate::deliver::egress::Egress;
use crate::deliver::levels::NestedBatches;
use crate::fault::Fault;
use crate::lists::output::{OutputList, RunPool};
use crate::sync::{Ordering, fence};
use crate::wake::notifier::Notifier;
use crate::worker::activity::Activity;

/// Tools that a worker lends to a delivery.
pub struct Tools {
    /// Collects receivers to notify after the batch.
    pub notifier: Notifier,
    /// Set by a delivery whose receiver may wait for a signal: [`Egress::notify`] must follow.
    pub published: bool,
    /// Entries of the smallest ring that the packets of the present batch came from or went to so far.
    pub smallest_ring: u32,
    /// Nested batches, for packets that go on in another bridge.
    pub(crate) nested: NestedBatches,
    /// Publishes whose memory the thread touches.
    pub(crate) activity: Arc<Activity>,
    /// Lists sorted by class, for a destination where packets wait; made when first needed, and lent to the delivery.
    pub(crate) sorted: Option<Box<RunPool>>,
}

impl Tools {
    /// Tools of a thread that is no worker: packets do not go on in another bridge.
    pub fn new(notifier: Notifier) -> Self {
        let activity = notifier.activity().clone();
        Self {
            notifier,
            published: false,
            smallest_ring: u32::MAX,
            nested: NestedBatches::default(),
            activity,
            sorted: None,
        }
    }

    /// Delivers a list to one destination, and has its receiver signalled.
    pub fn deliver(
        &mut self,
        to: &(impl Egress + ?Sized),
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
    ) -> Result<(), Fault> {
        self.published = false;
        let delivered = to.deliver(list, counters, self);
        if self.published {
            fence(Ordering::SeqCst);
            to.notify(self);
        }
        delivered
    }
}

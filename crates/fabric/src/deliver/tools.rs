//! Tools that a worker lends to a delivery.

use std::sync::Arc;

use crate::deliver::levels::NestedBatches;
use crate::wake::notifier::Notifier;
use crate::worker::activity::Activity;

/// Tools that a worker lends to a delivery.
pub struct Tools {
    /// Collects receivers to notify after the batch.
    pub notifier: Notifier,
    /// Nested batches, for packets that go on in another bridge.
    pub(crate) nested: NestedBatches,
    /// Publishes whose memory the thread touches.
    pub(crate) activity: Arc<Activity>,
}

impl Tools {
    /// Tools of a thread that is no worker: packets do not go on in another bridge.
    pub fn new(notifier: Notifier) -> Self {
        let activity = notifier.activity().clone();
        Self { notifier, nested: NestedBatches::default(), activity }
    }
}

//! What a worker lends to a delivery.

use std::sync::Arc;

use crate::deliver::levels::Nest;
use crate::wake::notifier::Notifier;
use crate::worker::site::Site;

/// What a worker lends to a delivery.
pub struct Tools {
    /// Collects receivers to notify after the batch.
    pub notifier: Notifier,
    /// For what goes on in another bridge.
    pub(crate) nest: Nest,
    /// Whose memory is at hand.
    pub(crate) site: Arc<Site>,
}

impl Tools {
    /// Those of a thread that is no worker: nothing goes on in another bridge.
    pub fn new(notifier: Notifier) -> Self {
        let site = notifier.site().clone();
        Self { notifier, nest: Nest::default(), site }
    }
}

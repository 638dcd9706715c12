//! What a worker lends to a delivery.

use crate::deliver::levels::Nest;
use crate::wake::notifier::Notifier;

/// What a worker lends to a delivery.
pub struct Tools {
    /// Collects receivers to notify; one system call tells all of them after the batch.
    pub notifier: Notifier,
    /// For what goes on in another bridge.
    pub(crate) nest: Nest,
}

impl Tools {
    /// Those of a thread that is no worker: nothing goes on in another bridge.
    pub fn new(notifier: Notifier) -> Self {
        Self { notifier, nest: Nest::default() }
    }
}

//! A mailbox: messages of the control plane to a worker, and the doorbell that announces them.

use crate::sync::SpinLock;
use crate::wake::doorbell::{Bell, Doorbell};

/// Messages for one receiver. See the module.
pub(crate) struct Mailbox<T, B> {
    messages: SpinLock<Vec<T>>,
    pub(crate) doorbell: Doorbell<B>,
}

impl<T, B: Bell> Mailbox<T, B> {
    pub(crate) fn new(bell: B) -> Self {
        Self { messages: SpinLock::new(Vec::new()), doorbell: Doorbell::new(bell) }
    }

    /// Adds a message and rings.
    pub(crate) fn send(&self, message: T) {
        self.messages.with(|messages| messages.push(message));
        self.doorbell.ring();
    }

    /// Takes all messages, in the order of arrival. For a receiver that was rung.
    pub(crate) fn take(&self) -> Vec<T> {
        self.messages.with(std::mem::take)
    }
}

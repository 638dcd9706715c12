//! Priority vectors and the times that go with them (§17.5, §17.6).

use crate::bpdu::{Message, Ticks};
use crate::{BridgeId, PortId};

/// A priority vector; the lowest is the best. The number of the receiving port, its last component, is compared where
/// vectors of several ports meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Priority {
    pub(super) root: BridgeId,
    pub(super) cost: u32,
    pub(super) bridge: BridgeId,
    pub(super) port: PortId,
}

impl Priority {
    /// The vector of a bridge that is the root.
    pub(super) fn of_bridge(id: BridgeId) -> Self {
        Self { root: id, cost: 0, bridge: id, port: PortId::default() }
    }

    pub(super) fn of(message: &Message) -> Self {
        Self { root: message.root, cost: message.cost, bridge: message.bridge, port: message.port }
    }

    /// Whether it is superior to another one: better, or from the same port, whatever that said before (§17.6).
    pub(super) fn is_superior(&self, other: &Self) -> bool {
        let is_of_same_port =
            self.bridge.address() == other.bridge.address() && self.port.number() == other.port.number();
        self < other || is_of_same_port && self != other
    }
}

/// Times of a vector, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Times {
    pub(super) message_age: u16,
    pub(super) max_age: u16,
    pub(super) hello_time: u16,
    pub(super) forward_delay: u16,
}

impl Times {
    pub(super) fn of(message: &Message) -> Self {
        Self {
            message_age: message.message_age.seconds(),
            max_age: message.max_age.seconds(),
            // Shorter ones would have information expire between two messages (§17.21.12).
            hello_time: message.hello_time.seconds().max(1),
            forward_delay: message.forward_delay.seconds(),
        }
    }

    pub(super) fn write(&self, message: &mut Message) {
        message.message_age = Ticks::of_seconds(self.message_age);
        message.max_age = Ticks::of_seconds(self.max_age);
        message.hello_time = Ticks::of_seconds(self.hello_time);
        message.forward_delay = Ticks::of_seconds(self.forward_delay);
    }
}

//! Queues: their configuration.

use crate::error::ErrorCode;
use crate::property::{Padded16, properties};
use crate::version::{PortNo, Version};
use crate::wire::{Coder, Record, Step};

/// A queue's rate in tenths of a per cent of the port's; more than 1000: none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct QueueRate(
    /// The rate.
    pub Padded16,
);

impl Record for QueueRate {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        if c.version() >= Version::V1_4 {
            return c.record(&mut self.0);
        }
        c.pad(4)?;
        c.u16(&mut self.0.value)?;
        self.0.padded = true;
        c.pad(6)
    }
}

properties! {
    /// A property of a queue.
    pub enum QueueProperty {
        /// Guaranteed rate.
        1 => MinRate(QueueRate),
        /// Highest rate, since version 1.1.
        2 => MaxRate(QueueRate),
    }
}

/// A queue.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Queue {
    /// The queue's number.
    pub queue: u32,
    /// Its port, since version 1.2.
    pub port: PortNo,
    /// Properties.
    pub properties: Vec<QueueProperty>,
}

impl Record for Queue {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        let version = c.version();
        let len_at = if version >= Version::V1_2 { 8 } else { 4 };
        c.entry(len_at, ErrorCode::BrcBadLen, |c| {
            if version >= Version::V1_4 {
                c.port(&mut self.port)?;
            }
            c.u32(&mut self.queue)?;
            if (Version::V1_2..=Version::V1_3).contains(&version) {
                c.port(&mut self.port)?;
            }
            c.pad(if version >= Version::V1_2 { 8 } else { 4 })?;
            c.list(&mut self.properties)
        })
    }
}

/// Asks for the queues of a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct QueueGetConfigRequest(
    /// The port.
    pub PortNo,
);

impl Record for QueueGetConfigRequest {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.port(&mut self.0)?;
        c.pad(if c.version() == Version::V1_0 { 2 } else { 4 })
    }
}

/// The queues of a port.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct QueueGetConfigReply {
    /// The port.
    pub port: PortNo,
    /// Its queues.
    pub queues: Vec<Queue>,
}

impl Record for QueueGetConfigReply {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.port(&mut self.port)?;
        c.pad(if c.version() == Version::V1_0 { 6 } else { 4 })?;
        c.list(&mut self.queues)
    }
}

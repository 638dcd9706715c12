//! Bundles: changes that take effect together. And requests that are forwarded to other controllers.

use crate::error::{DecodeError, ErrorCode};
use crate::message::Message;
use crate::property::Property;
use crate::wire::{Coder, Record, Step, layout, numbers};

numbers! {
    /// What to do with a bundle.
    pub enum BundleControlKind: u16 / u16 else BfcBadType {
        /// Opens a bundle.
        #[default]
        OpenRequest = 0,
        /// The bundle is open.
        OpenReply = 1,
        /// Closes a bundle for additions.
        CloseRequest = 2,
        /// The bundle is closed.
        CloseReply = 3,
        /// Applies a bundle.
        CommitRequest = 4,
        /// The bundle is applied.
        CommitReply = 5,
        /// Drops a bundle.
        DiscardRequest = 6,
        /// The bundle is dropped.
        DiscardReply = 7,
    }
}

bitflags::bitflags! {
    /// Options of a bundle.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct BundleFlags: u16 {
        /// All of it or nothing, and no packet sees part of it.
        const ATOMIC = 1;
        /// In the order of addition.
        const ORDERED = 1 << 1;
        /// At a time, since version 1.5.
        const TIME = 1 << 2;
    }
}

/// Opens, closes, applies or drops a bundle.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct BundleControl {
    /// The bundle.
    pub bundle: u32,
    /// What to do.
    pub kind: BundleControlKind,
    /// Options.
    pub flags: BundleFlags,
    /// Properties.
    pub properties: Vec<Property>,
}

layout!(BundleControl { bundle: u32, kind: record, flags: flags16, properties: list });

/// Adds a message to a bundle.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct BundleAdd {
    /// The bundle.
    pub bundle: u32,
    /// Options, the same as the bundle's.
    pub flags: BundleFlags,
    /// The message, encoded.
    pub message: Vec<u8>,
    /// What follows the message: padding and properties.
    pub trailing: Vec<u8>,
}

impl BundleAdd {
    /// Decodes the message in it.
    pub fn inner(&self) -> Result<Message, DecodeError> {
        Message::decode(&self.message)
    }
}

impl Record for BundleAdd {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u32(&mut self.bundle)?;
        c.pad(2)?;
        c.flags16(&mut self.flags)?;
        c.rest(&mut self.message)?;
        if !C::READS {
            return c.rest(&mut self.trailing);
        }
        let len = match self.message.get(2..4) {
            Some(&[high, low]) => usize::from(u16::from_be_bytes([high, low])),
            _ => 0,
        };
        c.refuse_if(len < 8 || len > self.message.len(), ErrorCode::BfcMsgBadLen)?;
        self.trailing = self.message.split_off(len);
        Ok(())
    }
}

/// A request that another controller sent.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct RequestForward(
    /// The request, encoded.
    pub Vec<u8>,
);

impl RequestForward {
    /// Decodes the request.
    pub fn inner(&self) -> Result<Message, DecodeError> {
        Message::decode(&self.0)
    }
}

impl Record for RequestForward {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.rest(&mut self.0)
    }
}

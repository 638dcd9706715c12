//! Actions that send packets to controllers.

use super::Content;
use crate::error::ErrorCode;
use crate::property::{Bytes, Padded16, Present, properties};
use crate::wire::{Coder, Step};

/// Sends the packet to a controller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Controller {
    /// Bytes to send at most.
    pub max_len: u16,
    /// The controller's id.
    pub controller_id: u16,
    /// The reason to state.
    pub reason: u8,
}

impl Content for Controller {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u16(&mut self.max_len)?;
        c.u16(&mut self.controller_id)?;
        c.u8(&mut self.reason)?;
        c.pad(1)
    }
}

properties! {
    /// A property of [`Controller2`].
    pub enum ControllerProperty {
        /// Bytes to send at most. Default: all.
        0 => MaxLen(Padded16),
        /// The controller's id. Default: 0.
        1 => ControllerId(Padded16),
        /// The reason to state. Default: an action.
        2 => Reason(u8),
        /// Data to send along.
        3 => UserData(Bytes),
        /// The packet pauses until the controller resumes it.
        4 => Pause(Present),
        /// A meter for the packet.
        5 => MeterId(u32),
    }
}

/// Sends the packet to a controller, with user data or a continuation.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Controller2(
    /// The properties.
    pub Vec<ControllerProperty>,
);

impl Content for Controller2 {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.zeros(6, ErrorCode::NxBrcMustBeZero)?;
        c.list(&mut self.0)
    }
}

/// Controllers that get packets whose TTL expires.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct DecTtlIds(
    /// The controllers' ids.
    pub Vec<u16>,
);

impl Content for DecTtlIds {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        let mut count = self.0.len() as u16;
        c.u16(&mut count)?;
        c.zeros(4, ErrorCode::NxBrcMustBeZero)?;
        c.counted(&mut self.0, count.into())
    }
}

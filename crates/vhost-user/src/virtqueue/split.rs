//! The device's side of a split virtqueue.

use std::ptr::NonNull;

use super::area::Area;
use super::{Chain, Config, ConfigError, Published, QueueError};
use crate::memory::GuestMemory;

#[derive(Debug)]
pub(super) struct Split {
    descriptors: Area,
}

#[expect(unused_variables, clippy::todo, reason = "the next commit")]
impl Split {
    /// # Safety
    ///
    /// As [`super::Virtqueue::new`].
    pub(super) unsafe fn new(config: &Config) -> Result<Split, ConfigError> {
        // SAFETY: the caller's promise.
        Ok(Split { descriptors: unsafe { Area::new(config.areas.descriptors) } })
    }
    pub(super) fn available(&mut self) -> Result<u16, QueueError> {
        todo!()
    }
    pub(super) fn take(&mut self, memory: &GuestMemory, chain: &mut Chain) -> Result<bool, QueueError> {
        todo!()
    }
    pub(super) fn untake(&mut self, slots: u16) {
        todo!()
    }
    pub(super) fn give_back(&mut self, id: u16, slots: u16, len: u32) {
        todo!()
    }
    pub(super) fn publish(&mut self) -> Published {
        todo!()
    }
    pub(super) fn written(&self, published: Published) -> [(NonNull<u8>, usize); 3] {
        todo!()
    }
    pub(super) fn set_kicks(&mut self, on: bool) {
        todo!()
    }
    pub(super) fn wants_call(&mut self) -> bool {
        todo!()
    }
    pub(super) fn base(&self) -> u32 {
        todo!()
    }
}

//! What packets cause, in memory that the caller keeps from batch to batch.

use std::ops::Range;

use pipeline::interp::{self, Dropped, Exit};
use pipeline::ir::{Constant, DigestId, TableId};
use pipeline::state::EntryId;

use crate::shortcut::Leaves;

/// A packet that leaves: bytes of [`Effects::bytes`], then bytes `from..to` of the received packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Its new bytes, in [`Effects::bytes`].
    pub head: Range<usize>,
    /// First byte of the received packet that follows.
    pub from: u32,
    /// End of these bytes.
    pub to: u32,
}

/// Something that happens to a packet or because of it: the counterpart of [`interp::Effect`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A packet leaves.
    Output {
        /// Where to.
        to: Exit,
        /// The packet.
        packet: Packet,
        /// Traffic class, if the program chose one.
        class: Option<u8>,
        /// Egress queue, if the program chose one.
        queue: Option<u16>,
    },
    /// A packet goes to the controller.
    Controller {
        /// Reason.
        reason: u8,
        /// The packet.
        packet: Packet,
        /// Most bytes that the controller wants.
        limit: Option<u16>,
        /// The statement's data, in [`Effects::bytes`].
        data: Range<usize>,
        /// Table that was looked up last, and the entry hit.
        origin: Option<(TableId, Option<EntryId>)>,
    },
    /// Values go to the control plane.
    Digest {
        /// Kind.
        digest: DigestId,
        /// Values.
        values: Vec<Constant>,
    },
    /// A packet is dropped.
    Drop(Dropped),
}

/// What becomes of a packet of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It leaves as it came, in no class that the program has chosen. The list has nothing of it.
    Leaves(Leaves),
    /// Effects in the list. Here they end; they begin where the list ended for the packet before.
    Effects(usize),
}

/// A list of effects.
#[derive(Debug, Default)]
pub struct Effects {
    pub(crate) list: Vec<Effect>,
    pub(crate) bytes: Vec<u8>,
}

impl Effects {
    /// Forgets all effects; keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
    }

    /// Effects, in order.
    pub fn list(&self) -> &[Effect] {
        &self.list
    }

    /// Bytes of a range that an effect names.
    pub fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }

    /// Adds an effect, which is made where it will be: one that is made first and then moved costs a stall, because its
    /// parts are still on their way to memory when they are read as larger words.
    #[inline]
    pub(crate) fn add(&mut self, make: impl FnOnce() -> Effect) {
        self.list.extend(std::iter::once_with(make));
    }

    /// The fate of a packet whose effects end the list.
    #[inline]
    pub(crate) fn fate(&self) -> Fate {
        Fate::Effects(self.list.len())
    }

    /// Keeps the bytes that `write` writes, `most` at most, to the address that it is given; it returns their number.
    #[inline]
    pub(crate) fn keep_written(&mut self, most: usize, write: impl FnOnce(*mut u8) -> usize) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.reserve(most);
        let len = write(self.bytes.spare_capacity_mut().as_mut_ptr().cast());
        debug_assert!(len <= most);
        // SAFETY: there is room for `most` bytes, and so many as `write` says were written.
        unsafe { self.bytes.set_len(start + len.min(most)) };
        start..self.bytes.len()
    }

    pub(crate) fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// Returns the effects as the interpreter reports them.
    pub fn to_interp(&self) -> Vec<interp::Effect> {
        let form = |packet: &Packet| interp::Form {
            head: self.bytes(&packet.head).to_vec(),
            from: packet.from,
            to: packet.to,
        };
        let effect = |effect: &Effect| match effect {
            Effect::Output { to, packet, class, queue } => {
                interp::Effect::Output { to: *to, packet: form(packet), class: *class, queue: *queue }
            }
            Effect::Controller { reason, packet, limit, data, origin } => interp::Effect::Controller {
                reason: *reason,
                packet: form(packet),
                limit: *limit,
                data: self.bytes(data).to_vec(),
                origin: *origin,
            },
            Effect::Digest { digest, values } => {
                interp::Effect::Digest { digest: *digest, values: values.clone() }
            }
            Effect::Drop(reason) => interp::Effect::Drop(*reason),
        };
        self.list.iter().map(effect).collect()
    }

    /// Returns the effects of each packet of a batch as the interpreter reports them, given the packets' lengths.
    pub fn to_interp_each(
        &self,
        fates: &[Fate],
        lens: impl IntoIterator<Item = u32>,
    ) -> Vec<Vec<interp::Effect>> {
        let mut all = self.to_interp().into_iter();
        let mut done = 0;
        let of = |(fate, len): (&Fate, u32)| match *fate {
            Fate::Leaves(Leaves { port, queue }) => {
                let packet = interp::Form { head: vec![], from: 0, to: len };
                let queue = queue.then_some(0);
                vec![interp::Effect::Output { to: Exit::Port(port), packet, class: None, queue }]
            }
            Fate::Effects(end) => {
                let count = end.saturating_sub(done);
                done = end;
                all.by_ref().take(count).collect()
            }
        };
        fates.iter().zip(lens).map(of).collect()
    }
}

//! Delivering: the contract of a destination and the list of outputs it is given.

use packet::offload::Offload;

use crate::counters::{DropReason, QueueCounters};
use crate::fault::Fault;
use crate::output::{NIL, Node};
use crate::rx::{RxBatch, Version, for_each_piece};
use crate::tools::Tools;

/// A transmit queue of a port. Any worker may call it, several at once.
pub trait Egress: Send + Sync {
    /// Delivers what can be delivered now, in order, and counts both that and the rest. Never waits for the
    /// receiver. What it does not deliver it refuses in the list ([`OutputList::retain`]), for whoever observes the
    /// bridge. On an error the queue is dead: the port goes down.
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<(), Fault>;
}

/// One packet in one header version, as a destination sees it.
pub struct Output<'a> {
    // Bytes are looked up when asked for: reserving needs no more than lengths.
    batch: &'a RxBatch,
    version: &'a Version,
    v: u16,
}

impl<'a> Output<'a> {
    /// Bytes in all.
    #[inline]
    pub fn len(&self) -> u32 {
        self.version.len()
    }

    /// Never true: every packet has a header.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Offload metadata that goes with it.
    #[inline]
    pub fn offload(&self) -> &Offload {
        &self.version.offload
    }

    /// Private header bytes.
    #[inline]
    pub fn header(&self) -> &'a [u8] {
        self.batch.header(usize::from(self.v))
    }

    /// Bytes that still lie with the sender.
    #[inline]
    pub fn payload_len(&self) -> u32 {
        self.version.to - self.version.from
    }

    /// Calls `f` with each stretch of payload in order. The memory is the sender's and may change.
    #[inline]
    pub fn for_each_payload(&self, f: impl FnMut(*const u8, usize)) {
        for_each_piece(self.batch.pieces(self.version.packet), self.version.from, self.version.to, f);
    }
}

/// The outputs for one destination, in order.
pub struct OutputList<'a> {
    pub(crate) batch: &'a RxBatch,
    pub(crate) nodes: &'a mut [Node],
    pub(crate) head: u32,
    pub(crate) count: u32,
}

impl OutputList<'_> {
    /// Outputs in the list.
    #[inline]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether the list is empty; the fabric never delivers an empty one.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Calls `f` with each output that was not refused; what `f` refuses is not shown again.
    #[inline]
    pub fn retain(&mut self, mut f: impl FnMut(&Output<'_>) -> Result<(), DropReason>) {
        let mut at = self.head;
        while at != NIL {
            let node = self.nodes[at as usize];
            if !node.is_refused()
                && let Err(reason) = f(&output(self.batch, node.version))
            {
                self.nodes[at as usize].refuse(reason);
            }
            at = node.next;
        }
    }

    /// Refuses all that was not refused yet.
    #[cold]
    pub fn refuse_rest(&mut self, reason: DropReason) {
        self.retain(|_| Err(reason));
    }

    /// Calls `f` with each output that was not refused.
    #[inline]
    pub fn for_each(&self, mut f: impl FnMut(&Output<'_>)) {
        let mut at = self.head;
        while let Some(output) = self.next(&mut at) {
            f(&output);
        }
    }

    /// Calls `f` with each output that was not refused, and the one that comes after it.
    #[inline]
    pub fn for_each_and_next(&self, mut f: impl FnMut(&Output<'_>, Option<&Output<'_>>)) {
        let mut at = self.head;
        let mut next = self.next(&mut at);
        while let Some(output) = next {
            next = self.next(&mut at);
            f(&output, next.as_ref());
        }
    }

    /// The first output from node `at` on that was not refused; `at` is then the node after it.
    #[inline(always)]
    pub(crate) fn next(&self, at: &mut u32) -> Option<Output<'_>> {
        while *at != NIL {
            let node = self.nodes[*at as usize];
            *at = node.next;
            if !node.is_refused() {
                return Some(output(self.batch, node.version));
            }
        }
        None
    }
}

#[inline(always)]
fn output(batch: &RxBatch, v: u16) -> Output<'_> {
    Output { batch, version: &batch.versions[usize::from(v)], v }
}

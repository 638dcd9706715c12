//! Packets on their way from a worker to the logic's thread, which takes them to the switch.
//!
//! Each worker has a fixed number of slots, whose memory is used again. A packet that finds none free is dropped and
//! counted: a port that floods the controllers costs no memory and holds up no worker. Some slots are kept for frames
//! of link protocols, whose links would count as broken without them.

use crossbeam_queue::ArrayQueue;
use fabric::PortIndex;
use pipeline::ir::{Constant, DigestId};

/// Slots of a worker, and those of them that only frames of link protocols take.
pub(crate) const SLOTS: usize = 256;
const KEPT: usize = 32;

/// Reason for an upcall.
#[derive(Debug, Clone, Default)]
pub(crate) enum Purpose {
    /// Send it to controllers.
    Controllers { reason: u8, limit: Option<u16> },
    /// Process a digest of it.
    Digest(DigestId, Vec<Constant>),
    /// Give it to the control plane, as received at a port.
    Intercepted(PortIndex),
    /// It is for the control side: a frame of Slow Protocols.
    Pdu,
    /// It is for the control side: a frame of the spanning tree.
    Bpdu,
    /// Log how it exceeds a limit.
    Failed,
    /// Run the program on it.
    #[default]
    Run,
}

/// A packet with its purpose.
#[derive(Debug, Default)]
pub(crate) struct Upcall {
    pub(crate) purpose: Purpose,
    /// OpenFlow number of the port that it came from.
    pub(crate) port: u32,
    pub(crate) packet: Vec<u8>,
    /// The program's data for controllers.
    pub(crate) data: Vec<u8>,
    /// The packet as it was received, if it pauses.
    pub(crate) received: Vec<u8>,
}

/// The slots of a worker.
#[derive(Debug)]
pub(crate) struct Upcalls {
    free: ArrayQueue<Box<Upcall>>,
    filled: ArrayQueue<Box<Upcall>>,
}

impl Upcalls {
    pub(crate) fn new() -> Self {
        let (free, filled) = (ArrayQueue::new(SLOTS), ArrayQueue::new(SLOTS));
        (0..SLOTS).for_each(|_| drop(free.push(Box::default())));
        Self { free, filled }
    }

    /// Fills a slot; false if none is free. Only the worker takes free slots, so that frames of link protocols always
    /// find theirs.
    pub(crate) fn push(&self, is_of_link: bool, fill: impl FnOnce(&mut Upcall)) -> bool {
        if !is_of_link && self.free.len() <= KEPT {
            return false;
        }
        let Some(mut slot) = self.free.pop() else { return false };
        slot.packet.clear();
        slot.data.clear();
        slot.received.clear();
        fill(&mut slot);
        // There are as many places as slots.
        self.filled.push(slot).is_ok()
    }

    /// Whether no packet is waiting or being processed.
    pub(crate) fn are_idle(&self) -> bool {
        self.free.is_full()
    }

    /// Filled slots.
    pub(crate) fn waiting(&self) -> usize {
        self.filled.len()
    }

    pub(crate) fn pop(&self) -> Option<Box<Upcall>> {
        self.filled.pop()
    }

    /// Gives a slot back.
    pub(crate) fn release(&self, slot: Box<Upcall>) {
        // There are as many places as slots.
        let _ = self.free.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_bounded_and_used_again() {
        let upcalls = Upcalls::new();
        let push = |n: u32| upcalls.push(true, |slot| slot.port = n);
        let others = (SLOTS - KEPT) as u32;
        assert!((0..others).all(|n| upcalls.push(false, |slot| slot.port = n)));
        assert!(!upcalls.push(false, |_| {}));
        assert!((others..SLOTS as u32).all(push));
        assert!(!push(1));
        let first = upcalls.pop().unwrap();
        assert_eq!(first.port, 0);
        assert!(!push(2));
        upcalls.release(first);
        assert!(push(3));
        let rest: Vec<u32> = std::iter::from_fn(|| upcalls.pop()).map(|slot| slot.port).collect();
        assert_eq!((rest.len(), rest[0], rest[SLOTS - 1]), (SLOTS, 1, 3));
    }
}

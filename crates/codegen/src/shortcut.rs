//! Shortcuts: a packet whose way follows from the one entry that it hits needs no code if another has shown the way
//! ([`crate::special::decided`]).
//!
//! A shortcut is a hint: it is one word, written and read without order, and names the code and the ingress port that
//! it holds for. It goes with its entry's record: a changed entry has a new one.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pipeline::interp::Exit;

use crate::code::Code;
use crate::runtime::Effect;

/// Bits of the word: from 32 on the code's id, from 16 on the ingress port, bit 31 whether the program chose queue 0,
/// from 0 on the egress port. Ids are never 0.
const CODE: u32 = 32;
const INGRESS: u32 = 16;
const QUEUE: u64 = 1 << 31;
/// In place of an ingress port: all but the egress port. Larger port numbers are never kept.
const OTHERS: u32 = 0x7fff;

/// The outcome of an entry's packets, if it is known.
#[derive(Debug, Default)]
pub(crate) struct Shortcut(AtomicU64);

/// A packet leaves as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaves {
    /// The port that it leaves to.
    pub port: u32,
    /// Whether the program chose queue 0.
    pub queue: bool,
}

impl Leaves {
    /// The outcome that an effect on a packet of so many bytes is, if it is one that can be kept.
    pub(crate) fn of(effect: &Effect, len: u32) -> Option<Self> {
        let Effect::Output { to: Exit::Port(port), packet, class: None, queue: queue @ (None | Some(0)) } =
            effect
        else {
            return None;
        };
        let is_whole = packet.head.is_empty() && packet.from == 0 && packet.to == len;
        is_whole.then_some(Self { port: *port, queue: queue.is_some() })
    }
}

impl Shortcut {
    /// The outcome of a packet from an ingress port in this code.
    #[inline]
    pub(crate) fn get(&self, code: &Code, ingress: u32) -> Option<Leaves> {
        let word = self.0.load(Relaxed);
        if word >> CODE != code.id {
            return None;
        }
        let (from, port) = ((word >> INGRESS) as u32 & OTHERS, u32::from(word as u16));
        let holds = if from == OTHERS { ingress != port } else { ingress == from };
        holds.then_some(Leaves { port, queue: word & QUEUE != 0 })
    }

    /// Keeps the outcome of a packet from an ingress port in this code.
    pub(crate) fn keep(&self, code: &Code, ingress: u32, leaves: Leaves) {
        let (Ok(id), Ok(port)) = (u32::try_from(code.id), u16::try_from(leaves.port)) else { return };
        let from = match code.uses_ingress {
            true if ingress >= OTHERS => return,
            true => ingress,
            false => OTHERS,
        };
        let queue = if leaves.queue { QUEUE } else { 0 };
        let word = u64::from(id) << CODE | u64::from(from) << INGRESS | queue | u64::from(port);
        if self.0.load(Relaxed) != word {
            self.0.store(word, Relaxed);
        }
    }
}

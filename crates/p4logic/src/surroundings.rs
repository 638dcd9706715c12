//! What surrounds a program: ports and their queues, clock, random numbers, functions.

use pipeline::env::{Env, Functions, Queue};
use pipeline::ir::{Constant, Extern};

/// The environment of a batch.
pub(crate) struct Surroundings<'a> {
    /// Nanoseconds on the monotonic clock.
    pub(crate) now: u64,
    /// State of the random numbers.
    pub(crate) random: &'a mut u64,
    /// Whether a port can send.
    pub(crate) is_live: &'a dyn Fn(u32) -> bool,
    /// Functions that the program declares.
    pub(crate) functions: Option<&'a dyn Functions>,
    /// Queues of ports; without them, all are empty.
    pub(crate) queues: Option<Queues<'a>>,
}

/// Queues of ports, for programs that look at them.
pub(crate) struct Queues<'a> {
    /// Packets that wait at a port, if there is one.
    pub(crate) depth: &'a dyn Fn(u32) -> Option<u32>,
    /// Depths at ports that the batch has asked for: all its packets see the same.
    pub(crate) known: &'a mut Vec<(u32, u32)>,
}

impl Env for Surroundings<'_> {
    fn now(&mut self) -> u64 {
        self.now
    }

    /// splitmix64: programs choose ways and sample by these numbers, which need not be secret.
    fn random(&mut self) -> u64 {
        *self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn is_live(&self, port: u32) -> bool {
        (self.is_live)(port)
    }

    /// P4 programs do not flood: multicast groups name their ports.
    fn ports(&self, _ingress: u32, _flood: bool) -> Vec<u32> {
        vec![]
    }

    fn call(&mut self, function: &Extern, args: &[Constant], results: &mut [Constant]) -> bool {
        self.functions.is_some_and(|functions| functions.call(function, args, results))
    }

    /// A packet enters its queue and the program sees it in one moment. What it will wait is not known.
    fn queue(&mut self, port: u32, _class: u8) -> Queue {
        let Some(queues) = &mut self.queues else { return Queue::default() };
        let found = queues.known.iter().find(|(known, _)| *known == port).map(|(_, depth)| *depth);
        let look = || {
            let depth = (queues.depth)(port)?;
            queues.known.push((port, depth));
            Some(depth)
        };
        let depth = found.or_else(look).unwrap_or(0);
        Queue { enqueue_depth: depth, dequeue_depth: depth, delay: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_are_asked_once_a_batch_and_remembered_only_of_ports() {
        let asked = std::cell::Cell::new(0);
        let depth = |port| {
            asked.set(asked.get() + 1);
            (port == 1).then_some(7)
        };
        let (mut random, mut known) = (0, vec![]);
        let queues = Some(Queues { depth: &depth, known: &mut known });
        let mut surroundings =
            Surroundings { now: 0, random: &mut random, is_live: &|_| true, functions: None, queues };
        assert_eq!([1, 1, 2, 3].map(|port| surroundings.queue(port, 0).enqueue_depth), [7, 7, 0, 0]);
        assert_eq!((asked.get(), known), (3, vec![(1, 7)]));
    }
}

//! Queues of packets, each of which is the slot of its arrival.

use std::collections::VecDeque;

use crate::Arbiter;
use crate::demand::Demand;
use crate::matching::Matching;

/// Called with the input, the output and the slot of arrival of a packet that leaves.
pub(super) type Left<'a> = &'a mut dyn FnMut(usize, usize, u32);

/// Packets that wait.
pub(super) trait Queues {
    fn arrive(&mut self, input: usize, output: usize, slot: u32);

    /// Takes out the packets that leave in this slot.
    fn leave(&mut self, slot: u32, random: &mut fastrand::Rng, left: Left<'_>);

    /// Returns the slot of arrival of the oldest packet.
    fn oldest(&self) -> Option<u32>;
}

/// A queue for each input and output, and an arbiter.
pub(super) struct VirtualOutputQueues<'a> {
    ports: usize,
    arbiter: &'a mut dyn Arbiter,
    queues: Vec<VecDeque<u32>>,
    demand: Demand,
}

impl<'a> VirtualOutputQueues<'a> {
    pub(super) fn new(ports: usize, arbiter: &'a mut dyn Arbiter) -> Self {
        Self { ports, arbiter, queues: vec![VecDeque::new(); ports * ports], demand: Demand::new(ports) }
    }
}

impl Queues for VirtualOutputQueues<'_> {
    fn arrive(&mut self, input: usize, output: usize, slot: u32) {
        if let Some(queue) = self.queues.get_mut(input * self.ports + output) {
            queue.push_back(slot);
        }
    }

    fn leave(&mut self, slot: u32, _: &mut fastrand::Rng, left: Left<'_>) {
        for (at, queue) in self.queues.iter().enumerate() {
            let waited = queue.front().map_or(0, |since| slot - since);
            let weight = (queue.len() as u32).saturating_add(waited);
            self.demand.set(at / self.ports, at % self.ports, weight);
        }
        let mut matching = Matching::default();
        self.arbiter.extend(&self.demand, &mut matching);
        for (input, output) in matching.pairs() {
            let queue = self.queues.get_mut(input * self.ports + output);
            if let Some(since) = queue.and_then(VecDeque::pop_front) {
                left(input, output, since);
            }
        }
    }

    fn oldest(&self) -> Option<u32> {
        self.queues.iter().filter_map(VecDeque::front).min().copied()
    }
}

/// A queue for each input.
pub(super) struct Fifo {
    queues: Vec<VecDeque<(usize, u32)>>,
}

impl Fifo {
    pub(super) fn new(ports: usize) -> Self {
        Self { queues: vec![VecDeque::new(); ports] }
    }
}

impl Queues for Fifo {
    fn arrive(&mut self, input: usize, output: usize, slot: u32) {
        if let Some(queue) = self.queues.get_mut(input) {
            queue.push_back((output, slot));
        }
    }

    fn leave(&mut self, _: u32, random: &mut fastrand::Rng, left: Left<'_>) {
        // As they are before any packet leaves: a queue sends one packet in a slot.
        let wanted: Vec<_> =
            self.queues.iter().map(|queue| queue.front().map(|(output, _)| *output)).collect();
        for output in 0..self.queues.len() {
            let contend =
                |(input, wanted): (usize, &Option<usize>)| (*wanted == Some(output)).then_some(input);
            let inputs: Vec<usize> = wanted.iter().enumerate().filter_map(contend).collect();
            let Some(input) = random.choice(inputs) else { continue };
            if let Some((_, since)) = self.queues.get_mut(input).and_then(VecDeque::pop_front) {
                left(input, output, since);
            }
        }
    }

    fn oldest(&self) -> Option<u32> {
        self.queues.iter().filter_map(|queue| queue.front().map(|(_, since)| *since)).min()
    }
}

/// A queue for each output.
pub(super) struct OutputQueues {
    queues: Vec<VecDeque<(usize, u32)>>,
}

impl OutputQueues {
    pub(super) fn new(ports: usize) -> Self {
        Self { queues: vec![VecDeque::new(); ports] }
    }
}

impl Queues for OutputQueues {
    fn arrive(&mut self, input: usize, output: usize, slot: u32) {
        if let Some(queue) = self.queues.get_mut(output) {
            queue.push_back((input, slot));
        }
    }

    fn leave(&mut self, _: u32, _: &mut fastrand::Rng, left: Left<'_>) {
        for (output, queue) in self.queues.iter_mut().enumerate() {
            if let Some((input, since)) = queue.pop_front() {
                left(input, output, since);
            }
        }
    }

    fn oldest(&self) -> Option<u32> {
        self.queues.iter().filter_map(|queue| queue.front().map(|(_, since)| *since)).min()
    }
}

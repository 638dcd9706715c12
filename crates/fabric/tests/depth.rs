//! Depths of queues as logics see them: what waits in a port's rings and in the switch's own queues in front of them.
#![cfg(test)]
#![cfg(not(loom))]

mod support;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use fabric::protection::{EgressLimits, Limit, Scheme, Unit, Waiting};
use fabric::switch::PortRef;
use fabric::{Batch, Egress, PortIndex, PortSettings, Switch, SwitchLogic};
use packet::offload::Offload;
use support::feed::{Feed, Sent};
use support::mem_ring::MemRing;
use support::{CallPort, frame, rig, wait_until};

/// Sends all packets to port 1, by the queue in their first byte, and records what waits there before each batch.
#[derive(Default)]
struct Asking {
    depths: Mutex<Vec<u32>>,
}

impl SwitchLogic for Asking {
    fn forward(&self, batch: &mut Batch<'_>) {
        self.depths.lock().unwrap().push(batch.depth(PortIndex(1)));
        for v in batch.packets() {
            batch.send_to_queue(v, PortIndex(1), batch.header(v)[0].into());
        }
    }

    fn explain(&self, batch: &mut Batch<'_>) -> bool {
        self.forward(batch);
        true
    }
}

/// A bridge whose port 0 sends.
struct Lab {
    switch: Switch,
    logic: Arc<Asking>,
    feed: Arc<Feed>,
    to: PortRef,
}

impl Lab {
    /// Port 1 has these queues.
    fn new(tx: Vec<Arc<dyn Egress>>) -> Self {
        let (switch, logic) = (rig::switch(1), Arc::<Asking>::default());
        let bridge = switch.add_bridge("b", logic.clone()).unwrap();
        let feed = Feed::new();
        rig::plug(&switch, bridge, "from", vec![feed.queue()], vec![Arc::new(CallPort::default())]);
        let to = switch.add_port(bridge, PortSettings::new("to")).unwrap();
        let (attachment, _) = rig::attachment(vec![], tx);
        switch.attach(to, attachment).unwrap();
        Self { switch, logic, feed, to }
    }

    /// Sends a batch of packets through a queue; returns what waits before it.
    fn send(&self, queue: u8, packets: u64) -> u32 {
        let packet = |id| {
            let mut bytes = frame(id, 64);
            bytes[0] = queue;
            Sent::whole(&bytes)
        };
        let returned = self.feed.returned();
        self.feed.send((0..packets).map(packet));
        wait_until("all are returned", || self.feed.returned() == returned + packets);
        // The first one tells: a worker may take them in several batches.
        self.logic.depths.lock().unwrap().drain(..).next().unwrap()
    }
}

#[test]
fn a_ring_is_as_deep_as_its_receiver_is_late() {
    let ring = MemRing::new(u32::MAX - 10, &[2048; 64]);
    let lab = Lab::new(vec![ring.tx()]);
    for waiting in 0..30 {
        assert_eq!(lab.send(0, 1), waiting);
    }
    assert_eq!(ring.take(|| 2048).len(), 30);
    assert_eq!(lab.send(0, 5), 0);
    assert_eq!(lab.send(0, 1), 5);
    // No deeper than it is, whatever is dropped in front of it.
    (0..7).for_each(|_| _ = lab.send(0, 10));
    assert_eq!(lab.send(0, 1), 64);
    // A receiver that breaks the rules.
    ring.index_fault.store(true, Ordering::Release);
    assert_eq!(lab.send(0, 1), 0);
}

#[test]
fn the_queues_of_a_port_count_together() {
    let rings = [MemRing::new(0, &[2048; 16]), MemRing::new(7, &[2048; 8])];
    let lab = Lab::new(rings.iter().map(|ring| ring.tx() as Arc<dyn Egress>).collect());
    assert_eq!([lab.send(0, 3), lab.send(1, 2), lab.send(0, 1)], [0, 3, 5]);
    rings[0].take(|| 2048);
    assert_eq!(lab.send(0, 1), 2);
    lab.switch.detach(lab.to).unwrap();
    assert_eq!(lab.send(0, 1), 0);
}

#[test]
fn a_limited_port_is_as_deep_as_its_ring() {
    let ring = MemRing::new(0, &[2048; 16]);
    let lab = Lab::new(vec![ring.tx()]);
    let total = Limit { unit: Unit::Bits, rate: 1, burst: Some(100_000) };
    let limits = EgressLimits { scheme: Scheme::Shares { total: Some(total) }, ..EgressLimits::default() };
    let settings = PortSettings { egress: Some(Arc::new(limits)), ..lab.switch.settings(lab.to).unwrap() };
    lab.switch.set_port(lab.to, settings).unwrap();
    assert_eq!([lab.send(0, 3), lab.send(0, 1)], [0, 3]);
}

#[test]
fn packets_that_wait_at_the_port_count_and_those_behind_them() {
    let ring = MemRing::new(0, &[2048; 4]);
    let lab = Lab::new(vec![ring.tx()]);
    let limits = EgressLimits { waiting: Some(Waiting { buffers: 64 }), ..EgressLimits::default() };
    let settings = PortSettings { egress: Some(Arc::new(limits)), ..lab.switch.settings(lab.to).unwrap() };
    lab.switch.set_port(lab.to, settings).unwrap();
    assert_eq!([lab.send(0, 3), lab.send(0, 3), lab.send(0, 1)], [0, 3, 6]);
    // Those of a list that do not fit together wait together, until the drain delivers what fits.
    wait_until("the ring is full", || ring.published() == 4);
    assert_eq!(lab.send(0, 1), 7);
    assert_eq!(ring.take(|| 2048).len(), 4);
    wait_until("the others follow", || ring.published() == 8);
    assert_eq!(lab.send(0, 1), 4);
}

#[test]
fn to_a_packet_that_is_only_traced_queues_are_empty() {
    let ring = MemRing::new(0, &[2048; 16]);
    let lab = Lab::new(vec![ring.tx()]);
    lab.send(0, 5);
    let from = PortRef { port: PortIndex(0), ..lab.to };
    lab.switch.trace(from, &frame(1, 64), Offload::NONE).unwrap();
    assert_eq!(*lab.logic.depths.lock().unwrap(), [0]);
    lab.logic.depths.lock().unwrap().clear();
    assert_eq!(lab.send(0, 1), 5);
}

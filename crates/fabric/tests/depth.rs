//! Depths of queues as logics see them: what waits in a port's rings and in the switch's own queues in front of them.
#![cfg(test)]
#![cfg(not(loom))]

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fabric::protection::{EgressLimits, Limit, Scheme, Unit};
use fabric::switch::PortRef;
use fabric::{
    AttachOptions, Batch, Egress, Opening, PortIndex, PortSettings, Queueing, Switch, SwitchLogic, clock,
};
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
    /// Port 1 has these queues, perhaps behind queues of the switch.
    fn new(tx: Vec<Arc<dyn Egress>>, queueing: Option<Queueing>) -> Self {
        let (switch, logic) = (rig::switch(1), Arc::<Asking>::default());
        let bridge = switch.add_bridge("b", logic.clone()).unwrap();
        let feed = Feed::new();
        rig::plug(&switch, bridge, "from", vec![feed.queue()], vec![Arc::new(CallPort::default())]);
        let to = switch.add_port(bridge, PortSettings::new("to")).unwrap();
        let (attachment, _) = rig::attachment(vec![], tx);
        switch.attach_with(to, attachment, AttachOptions { queueing, ..AttachOptions::default() }).unwrap();
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
    let lab = Lab::new(vec![ring.tx()], None);
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
    let lab = Lab::new(rings.iter().map(|ring| ring.tx() as Arc<dyn Egress>).collect(), None);
    assert_eq!([lab.send(0, 3), lab.send(1, 2), lab.send(0, 1)], [0, 3, 5]);
    rings[0].take(|| 2048);
    assert_eq!(lab.send(0, 1), 2);
    lab.switch.detach(lab.to).unwrap();
    assert_eq!(lab.send(0, 1), 0);
}

#[test]
fn a_limited_port_is_as_deep_as_its_ring() {
    let ring = MemRing::new(0, &[2048; 16]);
    let lab = Lab::new(vec![ring.tx()], None);
    let total = Limit { unit: Unit::Bits, rate: 1, burst: Some(100_000) };
    let limits = EgressLimits { scheme: Scheme::Shares { total: Some(total) }, queues: BTreeMap::new() };
    let settings = PortSettings { egress: Some(Arc::new(limits)), ..lab.switch.settings(lab.to).unwrap() };
    lab.switch.set_port(lab.to, settings).unwrap();
    assert_eq!([lab.send(0, 3), lab.send(0, 1)], [0, 3]);
}

/// Opens when the test says so.
struct Gate(Arc<AtomicBool>);

impl fabric::Gate for Gate {
    fn opening(&mut self, now: u64, _: u32, _: u16) -> Opening {
        match self.0.load(Ordering::SeqCst) {
            true => Opening::Now,
            false => Opening::At(now + clock::from_duration(Duration::from_micros(200))),
        }
    }
}

#[test]
fn packets_in_the_switchs_own_queue_count_and_those_behind_it() {
    let (ring, is_open) = (MemRing::new(0, &[2048; 16]), Arc::new(AtomicBool::new(false)));
    let gate = is_open.clone();
    let queueing = Queueing { slots: 64, gate: Box::new(move |_| Box::new(Gate(gate.clone()))) };
    let lab = Lab::new(vec![ring.tx()], Some(queueing));
    assert_eq!([lab.send(0, 3), lab.send(0, 1)], [0, 3]);
    is_open.store(true, Ordering::SeqCst);
    wait_until("they are behind the queue", || ring.published() == 4);
    is_open.store(false, Ordering::SeqCst);
    // The worker ends its drain, and then takes the next packet.
    assert_eq!([lab.send(0, 1), lab.send(0, 1)], [4, 5]);
    ring.take(|| 2048);
    assert_eq!(lab.send(0, 1), 2);
}

#[test]
fn to_a_packet_that_is_only_traced_queues_are_empty() {
    let ring = MemRing::new(0, &[2048; 16]);
    let lab = Lab::new(vec![ring.tx()], None);
    lab.send(0, 5);
    let from = PortRef { port: PortIndex(0), ..lab.to };
    lab.switch.trace(from, &frame(1, 64), Offload::NONE).unwrap();
    assert_eq!(*lab.logic.depths.lock().unwrap(), [0]);
    lab.logic.depths.lock().unwrap().clear();
    assert_eq!(lab.send(0, 1), 5);
}

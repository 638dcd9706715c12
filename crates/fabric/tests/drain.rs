//! The switch's own queues: packets are copied once, keep their order, are counted, and are dropped when there is no
//! room.
#![cfg(test)]
#![cfg(not(loom))]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fabric::switch::{BridgeId, PortRef};
use fabric::{
    AttachOptions, Attachment, Batch, Caps, DropReason, Egress, Fault, Gate, Open, Opening, OutputList,
    PortIndex, PortSettings, QueueCounters, Queueing, Switch, SwitchLogic, Tools, clock,
};
use packet::VlanTag;
use packet::offload::{Gso, Offload};
use support::feed::{Feed, Sent};
use support::mem_ring::MemRing;
use support::rig::{self, ByFirstByte, Faults};
use support::{CallPort, frame, id_of, wait_until};

/// Attaches a destination behind queues of so many slots.
fn plug(
    switch: &Switch,
    bridge: BridgeId,
    tx: Vec<Arc<dyn Egress>>,
    slots: u32,
    gate: impl Fn() -> Box<dyn Gate> + Send + Sync + 'static,
) -> (PortRef, Faults) {
    let port = switch.add_port(bridge, PortSettings::new("to")).unwrap();
    let (attachment, faults) = rig::attachment(vec![], tx);
    let caps = Caps { csum: true, tso4: true, ..Caps::default() };
    let queueing = Some(Queueing { slots, gate: Box::new(move |_| gate()) });
    let options = AttachOptions { queueing, ..AttachOptions::default() };
    switch.attach_with(port, Attachment { caps, ..attachment }, options).unwrap();
    (port, faults)
}

/// A sending port of a bridge whose logic uses a packet's first byte as destination.
fn sender(switch: &Switch, bridge: BridgeId, name: &str) -> Arc<Feed> {
    let feed = Feed::new();
    rig::plug(switch, bridge, name, vec![feed.queue()], vec![Arc::new(CallPort::default())]);
    feed
}

fn packet(to: PortRef, id: u64, len: usize) -> Vec<u8> {
    let mut bytes = frame(id, len);
    bytes[0] = to.port.0 as u8;
    bytes
}

/// Opens when the test says so.
struct TestGate(Arc<AtomicBool>);

impl Gate for TestGate {
    fn opening(&mut self, now: u64, _: u32, _: u16) -> Opening {
        match self.0.load(Ordering::SeqCst) {
            true => Opening::Now,
            false => Opening::At(now + clock::from_duration(Duration::from_micros(200))),
        }
    }
}

fn ids(packets: &[Vec<u8>]) -> Vec<u64> {
    packets.iter().map(|packet| id_of(packet)).collect()
}

fn taken(port: &CallPort) -> Vec<Vec<u8>> {
    port.take().into_iter().map(|called| called.bytes).collect()
}

#[test]
fn packets_of_two_workers_arrive_whole_in_order_and_once() {
    const EACH: u64 = 3000;
    let switch = rig::switch(2);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let out = Arc::new(CallPort::default());
    let (to, _) = plug(&switch, bridge, vec![out.clone()], 1 << 14, || Box::new(Open));
    let feeds = [sender(&switch, bridge, "a"), sender(&switch, bridge, "b")];
    let len = |id: u64| if id % 500 == 7 { 65_000 } else { 14 + (id * 37 % 3000) as usize };
    for first in (0..EACH).step_by(50) {
        for (sender, feed) in (0..).zip(&feeds) {
            // The feed overwrites returned packets, which reveals a packet that is copied too late.
            let ids = (first..first + 50).map(|i| sender * EACH + i);
            feed.send(ids.map(|id| Sent::cut(&packet(to, id, len(id)), &[len(id) / 3, len(id) / 2])));
        }
        wait_until("the senders have their packets back", || {
            feeds.iter().all(|feed| feed.returned() == first + 50)
        });
    }
    wait_until("all packets are there", || out.got.lock().unwrap().len() as u64 == 2 * EACH);
    let got = taken(&out);
    for (bytes, id) in got.iter().zip(ids(&got)) {
        assert!(*bytes == packet(to, id, len(id)), "packet {id} differs");
    }
    for sender in 0..2 {
        let own: Vec<_> = ids(&got).into_iter().filter(|id| id / EACH == sender).collect();
        assert_eq!(own, (sender * EACH..(sender + 1) * EACH).collect::<Vec<_>>());
    }
    let counters = switch.counters(to).unwrap();
    let bytes: usize = got.iter().map(Vec::len).sum();
    assert_eq!((counters.tx[0].packets, counters.tx[0].bytes), (2 * EACH, bytes as u64));
    assert_eq!(rig::all_drops(&switch, to), 0);
}

#[test]
fn a_ring_port_behind_a_queue_is_delivered_to_and_notified() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let ring = MemRing::new(3, &[4096; 64]);
    let (to, _) = plug(&switch, bridge, vec![ring.tx()], 256, || Box::new(Open));
    let feed = sender(&switch, bridge, "a");
    let mut got = Vec::new();
    for id in 0..500 {
        feed.send([Sent::whole(&packet(to, id, 60 + id as usize))]);
        wait_until("the packet arrives", || {
            got.extend(ring.take(|| 4096));
            got.len() as u64 == id + 1
        });
    }
    assert!(got.iter().zip(0..).all(|(bytes, id)| *bytes == packet(to, id, 60 + id as usize)));
    ring.assert_no_wrongs();
}

#[test]
fn metadata_stays_with_its_packet() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let out = Arc::new(CallPort::default());
    let (to, _) = plug(&switch, bridge, vec![out.clone()], 64, || Box::new(Open));
    let feed = sender(&switch, bridge, "a");
    let mut segment = packet(to, 9, 54 + 60_000);
    segment[12..14].copy_from_slice(&[8, 0]);
    segment[14] = 0x45;
    segment[16..18].copy_from_slice(&60_040u16.to_be_bytes());
    segment[20..24].copy_from_slice(&[0, 0, 64, 6]);
    segment[46] = 0x50;
    let asked = Offload {
        gso: Gso::Tcp4,
        needs_csum: true,
        gso_size: 1400,
        csum_start: 34,
        csum_offset: 16,
        ..Offload::NONE
    };
    let expected = asked.validate(&segment, segment.len() as u32).unwrap();
    feed.send([Sent::whole(&segment).with_offload(expected), Sent::whole(&packet(to, 10, 60))]);
    wait_until("both are there", || out.got.lock().unwrap().len() == 2);
    let got = out.take();
    assert!(got[0].bytes == segment, "the segment differs");
    assert_eq!([got[0].offload, got[1].offload], [expected, Offload::NONE]);
}

/// Found by fuzzing: the packet was examined again and again, and counted each time, wherever the worker counted next.
#[test]
fn a_packet_that_a_tag_made_too_long_is_dropped_once() {
    struct Tagger;
    impl SwitchLogic for Tagger {
        fn forward(&self, batch: &mut Batch<'_>) {
            for v in batch.packets() {
                let to = PortIndex(u16::from(batch.header(v)[0]));
                if let Some(v) = batch.push_vlan(v, VlanTag::from_tci(5)) {
                    batch.send(v, to);
                }
            }
        }
    }
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(Tagger)).unwrap();
    let out = Arc::new(CallPort::default());
    let (to, _) = plug(&switch, bridge, vec![out.clone()], 64, || Box::new(Open));
    let feed = Feed::new();
    let (from, _) = rig::plug(&switch, bridge, "a", vec![feed.queue()], vec![Arc::new(CallPort::default())]);
    feed.send([Sent::whole(&packet(to, 1, 65_535))]);
    wait_until("it is counted", || rig::drops(&switch, to, DropReason::Oversize) == 1);
    feed.send([Sent::whole(&packet(to, 2, 60))]);
    wait_until("the next is there", || rig::packets(&switch, to).1 == 1);
    assert_eq!(out.take().len(), 1);
    assert_eq!((rig::all_drops(&switch, to), rig::all_drops(&switch, from)), (1, 0));
}

#[test]
fn a_full_queue_drops_the_newest_and_counts_them() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let (out, open) = (Arc::new(CallPort::default()), Arc::new(AtomicBool::new(false)));
    let gate_open = open.clone();
    let (to, _) = plug(&switch, bridge, vec![out.clone()], 16, move || Box::new(TestGate(gate_open.clone())));
    let feed = sender(&switch, bridge, "a");
    feed.send((0..40).map(|id| Sent::whole(&packet(to, id, 100))));
    // The sender has its memory back although nothing was delivered.
    wait_until("the sender has its packets back", || feed.returned() == 40);
    wait_until("drops are counted", || rig::drops(&switch, to, DropReason::RingFull) == 24);
    assert_eq!((rig::packets(&switch, to).1, out.take().len()), (0, 0));
    open.store(true, Ordering::SeqCst);
    wait_until("the rest is there", || rig::packets(&switch, to).1 == 16);
    assert_eq!(ids(&taken(&out)), (0..16).collect::<Vec<_>>());
    // There is room again, also for packets that take several slots.
    feed.send([Sent::whole(&packet(to, 50, 30_000))]);
    wait_until("it is there", || rig::packets(&switch, to).1 == 17);
    assert_eq!(taken(&out), [packet(to, 50, 30_000)]);
    assert_eq!(rig::all_drops(&switch, to), 24);
}

/// Lets a packet through at intervals, and records the times.
struct Paced {
    every: u64,
    next: u64,
    times: Arc<Mutex<Vec<u64>>>,
}

impl Gate for Paced {
    fn opening(&mut self, now: u64, _: u32, _: u16) -> Opening {
        if now < self.next {
            return Opening::At(self.next);
        }
        self.next = now + self.every;
        self.times.lock().unwrap().push(now);
        Opening::Now
    }
}

#[test]
fn a_drain_is_run_again_at_its_time_and_sleeps_until_then() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let (out, times) = (Arc::new(CallPort::default()), Arc::<Mutex<Vec<u64>>>::default());
    let (every, noted) = (clock::from_duration(Duration::from_millis(5)), times.clone());
    let gate = move || -> Box<dyn Gate> { Box::new(Paced { every, next: 0, times: noted.clone() }) };
    let (to, _) = plug(&switch, bridge, vec![out.clone()], 64, gate);
    let feed = sender(&switch, bridge, "a");
    feed.send((0..20).map(|id| Sent::whole(&packet(to, id, 100))));
    wait_until("the first is there", || rig::packets(&switch, to).1 >= 1);
    wait_until("the sender's queue sleeps", || feed.wants_signal());
    wait_until("all are there", || rig::packets(&switch, to).1 == 20);
    assert_eq!(ids(&taken(&out)), (0..20).collect::<Vec<_>>());
    let times = times.lock().unwrap().clone();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= every), "{times:?}");
    // It slept in between: a worker that polls looks thousands of times in 5 ms, also at the queue beside it.
    let wakeups = switch.workers()[0].counters.wakeups;
    assert!(wakeups >= 10, "woken {wakeups} times");
}

#[test]
fn packets_left_when_the_client_goes_are_dropped_and_counted() {
    let switch = rig::switch(2);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let (out, shut) = (Arc::new(CallPort::default()), Arc::new(AtomicBool::new(false)));
    let gate_open = shut.clone();
    let (to, _) = plug(&switch, bridge, vec![out.clone()], 64, move || Box::new(TestGate(gate_open.clone())));
    let feed = sender(&switch, bridge, "a");
    feed.send((0..5).map(|id| Sent::whole(&packet(to, id, 3000))));
    wait_until("the sender has its packets back", || feed.returned() == 5);
    switch.detach(to).unwrap();
    shut.store(true, Ordering::SeqCst);
    assert_eq!(rig::drops(&switch, to, DropReason::PortDown), 5);
    feed.send([Sent::whole(&packet(to, 6, 100))]);
    wait_until("the sender has its packets back", || feed.returned() == 6);
    assert_eq!((out.take().len(), Arc::strong_count(&out)), (0, 1));
}

/// A client that breaks the rules.
struct Broken;

impl Egress for Broken {
    fn deliver(&self, _: &mut OutputList<'_>, _: &QueueCounters, _: &mut Tools) -> Result<(), Fault> {
        Err(Fault::Protocol)
    }
}

#[test]
fn a_fault_behind_a_queue_is_reported_once() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let (to, faults) = plug(&switch, bridge, vec![Arc::new(Broken)], 64, || Box::new(Open));
    let feed = sender(&switch, bridge, "a");
    feed.send([Sent::whole(&packet(to, 1, 100))]);
    wait_until("the fault is reported", || faults.seen() == [Fault::Protocol]);
    feed.send([Sent::whole(&packet(to, 2, 100))]);
    wait_until("the sender has its packets back", || feed.returned() == 2);
    switch.detach(to).unwrap();
    assert_eq!(faults.seen(), [Fault::Protocol]);
}

/// Uses a packet's first byte as destination and its second as class.
struct Classes;

impl SwitchLogic for Classes {
    fn forward(&self, batch: &mut Batch<'_>) {
        for v in batch.packets() {
            let [port, class, ..] = *batch.header(v).first_chunk::<2>().unwrap();
            batch.set_class(v, u16::from(class) << 8 | 1);
            batch.send(v, PortIndex(port.into()));
        }
    }
}

/// Records the class of each packet that leaves.
struct Noted(Arc<Mutex<Vec<(u32, u16)>>>);

impl Gate for Noted {
    fn opening(&mut self, _: u64, bytes: u32, class: u16) -> Opening {
        self.0.lock().unwrap().push((bytes, class));
        Opening::Now
    }
}

#[test]
fn a_gate_is_told_the_class_that_the_logic_gave_a_packet() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(Classes)).unwrap();
    let (out, seen) = (Arc::new(CallPort::default()), Arc::<Mutex<Vec<(u32, u16)>>>::default());
    let noted = seen.clone();
    let (to, _) = plug(&switch, bridge, vec![out.clone()], 64, move || Box::new(Noted(noted.clone())));
    let feed = sender(&switch, bridge, "a");
    let classes = [7u8, 0, 3, 255];
    feed.send(classes.iter().zip(0u64..).map(|(class, id)| {
        let mut bytes = packet(to, id, 100 + id as usize);
        bytes[1] = *class;
        Sent::whole(&bytes)
    }));
    wait_until("all are there", || rig::packets(&switch, to).1 == 4);
    assert_eq!(*seen.lock().unwrap(), [(100, 0x701), (101, 1), (102, 0x301), (103, 0xff01)]);
}

//! Limits of what leaves through a port: every way out meets them, queues are told apart, and the rest passes in order.
#![cfg(test)]
#![cfg(not(loom))]

mod support;

use std::sync::{Arc, Mutex};

use fabric::protection::{EgressLimits, Limit, QueueLimits, Scheme, Unit};
use fabric::switch::{BridgeId, PortRef};
use fabric::{
    Attachment, Batch, Caps, DropReason, Egress, Injection, Interest, Mirror, Observer, PortIndex,
    PortSettings, Sightings, Switch, SwitchLogic, Way,
};
use packet::dscp;
use packet::offload::Offload;
use support::feed::{Feed, Sent};
use support::rig::{self, Hub};
use support::{CallPort, frame, id_of, wait_until};

/// Broadcasts packets in the class that their second byte has, or sends them back if their first byte is 0xff.
struct Classes;

impl SwitchLogic for Classes {
    fn forward(&self, batch: &mut Batch<'_>) {
        for v in batch.packets() {
            let [first, class, ..] = *batch.header(v).first_chunk::<2>().unwrap();
            if class > 0 {
                batch.set_class(v, class.into());
            }
            match first {
                0xff => batch.reflect(v),
                _ => batch.broadcast(v),
            }
        }
    }
}

struct Client {
    at: PortRef,
    feed: Arc<Feed>,
    port: Arc<CallPort>,
}

impl Client {
    fn new(switch: &Switch, bridge: BridgeId, name: &str, queues: usize) -> Self {
        let (feed, port) = (Feed::new(), Arc::new(CallPort::default()));
        let tx: Vec<Arc<dyn Egress>> = (0..queues).map(|_| port.clone() as Arc<dyn Egress>).collect();
        let at = switch.add_port(bridge, PortSettings::new(name)).unwrap();
        let attachment = Attachment {
            rx: vec![feed.queue()],
            tx,
            caps: Caps::default(),
            mtu: 9000,
            on_fault: Arc::new(|fault| panic!("{fault}")),
        };
        switch.attach(at, attachment).unwrap();
        Self { at, feed, port }
    }

    fn send(&self, packets: impl IntoIterator<Item = Vec<u8>>) {
        let packets: Vec<_> = packets.into_iter().map(|packet| Sent::whole(&packet)).collect();
        let done = self.feed.returned() + packets.len() as u64;
        self.feed.send(packets);
        wait_until("the packets were switched", || self.feed.returned() == done);
    }

    fn take(&self) -> Vec<u64> {
        self.port.take().iter().map(|called| id_of(&called.bytes)).collect()
    }
}

/// Lets so many bytes pass, and no more while the test runs.
fn once(bytes: u64) -> Limit {
    Limit { unit: Unit::Bits, rate: 1, burst: Some(bytes) }
}

fn limit(switch: &Switch, at: PortRef, limits: EgressLimits) {
    let settings = PortSettings { egress: Some(Arc::new(limits)), ..switch.settings(at).unwrap() };
    switch.set_port(at, settings).unwrap();
}

fn total(bytes: u64) -> EgressLimits {
    EgressLimits { scheme: Scheme::Shares { total: Some(once(bytes)) }, ..EgressLimits::default() }
}

fn queues(of: impl IntoIterator<Item = (u16, QueueLimits)>) -> EgressLimits {
    EgressLimits { queues: of.into_iter().collect(), ..EgressLimits::default() }
}

/// A packet of 100 bytes in a class.
fn packet(class: u8, id: u64) -> Vec<u8> {
    let mut bytes = frame(id, 100);
    (bytes[0], bytes[1]) = (0, class);
    bytes
}

fn policed(switch: &Switch, at: PortRef) -> u64 {
    rig::drops(switch, at, DropReason::EgressPoliced)
}

/// Number, packets that left and packets that did not, of each queue.
fn counts(switch: &Switch, at: PortRef) -> Vec<(u16, u64, u64)> {
    switch.counters(at).unwrap().egress.iter().map(|it| (it.queue, it.packets, it.policed)).collect()
}

/// Records what was refused, and what left.
#[derive(Default)]
struct Watch(Mutex<Vec<(u64, Option<DropReason>)>>);

impl Observer for Watch {
    fn interest(&self, _: PortIndex, name: &str) -> Interest {
        Interest { received: false, sent: name == "b", explained: false }
    }

    fn observe(&self, _: usize, sightings: &Sightings<'_>) {
        sightings.for_each(|seen| {
            let mut header = [0; 14];
            seen.copy(0, &mut header);
            if seen.way == Way::Out {
                self.0.lock().unwrap().push((id_of(&header), seen.dropped));
            }
        });
    }
}

#[test]
fn what_exceeds_a_limit_is_dropped_counted_and_shown() {
    for transmit_queues in [1, 3] {
        let switch = rig::switch(1);
        let bridge = switch.add_bridge("br", Arc::new(Classes)).unwrap();
        let a = Client::new(&switch, bridge, "a", 1);
        let (b, c) =
            (Client::new(&switch, bridge, "b", transmit_queues), Client::new(&switch, bridge, "c", 1));
        limit(&switch, b.at, total(550));
        a.send((0..10).map(|id| packet(0, id)));
        assert_eq!((b.take().len(), policed(&switch, b.at)), (5, 5), "of all transmit queues together");
        assert_eq!((c.take().len(), policed(&switch, c.at)), (10, 0), "another port has no limit");
        assert_eq!(counts(&switch, b.at), [(0, 5, 5)]);
        assert_eq!(switch.counters(c.at).unwrap().egress, []);
        // Without the limit, everything passes again.
        let settings = PortSettings { egress: None, ..switch.settings(b.at).unwrap() };
        switch.set_port(b.at, settings).unwrap();
        a.send((0..10).map(|id| packet(0, id)));
        assert_eq!(b.take().len(), 10);
    }
}

#[test]
fn those_that_pass_keep_their_order_and_observers_see_the_others() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("br", Arc::new(Classes)).unwrap();
    let (a, b) = (Client::new(&switch, bridge, "a", 1), Client::new(&switch, bridge, "b", 1));
    let queue = |bytes| QueueLimits { maximum: Some(once(bytes)), ..QueueLimits::default() };
    limit(&switch, b.at, queues([(1, queue(250)), (2, queue(10_000)), (0, queue(100))]));
    let watch = Arc::new(Watch::default());
    switch.observe(bridge, watch.clone()).unwrap();
    a.send((0..9).map(|id| packet((id % 3) as u8, id)));
    // Of queue 0 the first packet passes, of queue 1 the first two, of queue 2 all.
    assert_eq!(b.take(), [0, 1, 2, 4, 5, 8]);
    assert_eq!(counts(&switch, b.at), [(0, 1, 2), (1, 2, 1), (2, 3, 0)]);
    let mut seen = watch.0.lock().unwrap().clone();
    seen.sort_unstable_by_key(|(id, _)| *id);
    let refused = |id: u64| [3, 6, 7].contains(&id).then_some(DropReason::EgressPoliced);
    assert_eq!(seen, (0..9).map(|id| (id, refused(id))).collect::<Vec<_>>());
}

#[test]
fn every_way_out_meets_the_limit() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("br", Arc::new(Classes)).unwrap();
    let (a, b) = (Client::new(&switch, bridge, "a", 1), Client::new(&switch, bridge, "b", 1));
    limit(&switch, a.at, total(200));
    // Sent back.
    a.send((0..3).map(|id| {
        let mut bytes = packet(0, id);
        bytes[0] = 0xff;
        bytes
    }));
    assert_eq!((a.take().len(), policed(&switch, a.at)), (2, 1));
    // Injected, in a class.
    let open = QueueLimits::default();
    limit(&switch, a.at, queues([(7, open.clone())]));
    let (injector, to) = (switch.injector(bridge).unwrap(), Injection::To(vec![a.at.port]));
    injector.inject_in_class(&packet(0, 1), Offload::NONE, 7, to).unwrap();
    wait_until("the packet left", || counts(&switch, a.at) == [(0, 2, 1), (7, 1, 0)]);
    // A mirror's copies, in the class of what they are copies of.
    let c = Client::new(&switch, bridge, "c", 1);
    limit(&switch, c.at, queues([(7, QueueLimits { maximum: Some(once(200)), ..open })]));
    let what = Interest { received: false, sent: true, explained: false };
    let mirror =
        Mirror { name: "m".into(), from: vec!["b".into()], what, to: "c".into(), ..Mirror::default() };
    switch.set_mirrors(bridge, vec![mirror]).unwrap();
    a.send((0..3).map(|id| packet(7, id)));
    assert_eq!(b.take(), [0, 1, 2]);
    assert_eq!(c.take(), [0, 1]);
    assert_eq!(counts(&switch, c.at), [(0, 0, 0), (7, 2, 1)]);
}

#[test]
fn a_class_goes_through_patch_ports() {
    let switch = rig::switch(1);
    let first = switch.add_bridge("one", Arc::new(Classes)).unwrap();
    // This logic sets no classes.
    let second = switch.add_bridge("two", Arc::new(Hub)).unwrap();
    let (near, far) = (Client::new(&switch, first, "near", 1), Client::new(&switch, second, "far", 1));
    let [out, into] = [(first, "out"), (second, "in")]
        .map(|(bridge, name)| switch.add_port(bridge, PortSettings::new(name)).unwrap());
    for (at, peer) in [(out, into), (into, out)] {
        let tx: Vec<Arc<dyn Egress>> = vec![Arc::new(switch.inlet(peer).unwrap())];
        let (caps, on_fault) = (Caps::default(), Arc::new(|_| {}));
        switch.attach(at, Attachment { rx: vec![], tx, caps, mtu: 9000, on_fault }).unwrap();
    }
    limit(&switch, far.at, queues([(5, QueueLimits { maximum: Some(once(300)), ..QueueLimits::default() })]));
    near.send((0..5).map(|id| packet(5, id)).chain([packet(0, 9)]));
    assert_eq!(far.take(), [0, 1, 2, 9]);
    assert_eq!(counts(&switch, far.at), [(0, 1, 0), (5, 3, 2)]);
    // The patch port itself.
    limit(&switch, out, total(100));
    near.send([packet(0, 1), packet(0, 2)]);
    assert_eq!((far.take(), policed(&switch, out)), (vec![1], 1));
}

#[test]
fn a_queue_marks_its_packets_and_no_others() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("br", Arc::new(Classes)).unwrap();
    let (a, b) = (Client::new(&switch, bridge, "a", 1), Client::new(&switch, bridge, "b", 1));
    let c = Client::new(&switch, bridge, "c", 1);
    limit(&switch, b.at, queues([(3, QueueLimits { dscp: Some(46), ..QueueLimits::default() })]));
    let ip = |class: u8| {
        let mut bytes = packet(class, 1);
        bytes[12..14].copy_from_slice(&[0x08, 0]);
        bytes[14..34].fill(0);
        (bytes[14], bytes[17], bytes[22]) = (0x45, 86, 64);
        bytes
    };
    for packets in [vec![ip(3)], vec![ip(0), ip(3), ip(4)]] {
        let classes: Vec<u8> = packets.iter().map(|packet| packet[1]).collect();
        a.send(packets);
        let codes = |client: &Client| {
            client.port.take().iter().map(|called| dscp::of(&called.bytes).unwrap()).collect::<Vec<_>>()
        };
        let marked = |class: &u8| if *class == 3 { 46 } else { 0 };
        assert_eq!(codes(&b), classes.iter().map(marked).collect::<Vec<_>>());
        assert_eq!(codes(&c), vec![0; classes.len()], "the other port gets it as it is");
    }
    // What is no IP packet stays as it is.
    a.send([packet(3, 5)]);
    assert_eq!(b.port.take()[0].bytes, packet(3, 5));
}

//! Observers: what they are shown of each packet, what they are not, and their coming and going under traffic.
#![cfg(test)]
#![cfg(not(loom))]

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fabric::protection::{Limit, Unit};
use fabric::switch::{BridgeId, PortRef};
use fabric::{
    Attachment, Batch, Caps, DropReason, Egress, Interest, Observer, PortIndex, PortSettings, Sightings,
    Switch, SwitchError, SwitchLogic, Value, VlanMode, Way,
};
use packet::checksum::pseudo_header_v4;
use packet::ether::{Vid, VlanTag};
use packet::offload::{Gso, Offload};
use support::feed::{Feed, Sent};
use support::mem_ring::MemRing;
use support::rig::{self, ByFirstByte, Hub};
use support::{CallPort, frame, wait_until};

/// A packet as it was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    port: u16,
    way: Way,
    ingress: u16,
    egress: Option<u16>,
    deliveries: u32,
    dropped: Option<DropReason>,
    bytes: Vec<u8>,
}

/// Records what it is shown of some ports.
struct Scribe {
    interest: Box<dyn Fn(&str) -> Interest + Send + Sync>,
    shown: Mutex<Vec<Shown>>,
    times: Mutex<Vec<u64>>,
    removed: AtomicBool,
}

const ALL: Interest = Interest { received: true, sent: true, explained: false };

impl Scribe {
    fn of(interest: impl Fn(&str) -> Interest + Send + Sync + 'static) -> Arc<Self> {
        let (shown, times, removed) = Default::default();
        Arc::new(Self { interest: Box::new(interest), shown, times, removed })
    }

    fn of_all() -> Arc<Self> {
        Self::of(|_| ALL)
    }

    fn wait_for(&self, count: usize) -> Vec<Shown> {
        wait_until("enough was shown", || self.shown.lock().unwrap().len() >= count);
        std::mem::take(&mut *self.shown.lock().unwrap())
    }
}

impl Observer for Scribe {
    fn interest(&self, _: PortIndex, name: &str) -> Interest {
        (self.interest)(name)
    }

    fn observe(&self, worker: usize, batch: &Sightings<'_>) {
        assert_eq!((worker, batch.omitted), (0, 0));
        self.times.lock().unwrap().push(batch.at);
        batch.for_each(|seen| {
            // In two parts, like an observer that examines the front first.
            let mut bytes = vec![0; seen.len() as usize + 9];
            let front = bytes.len().min(70);
            let n = seen.copy(0, &mut bytes[..front]);
            let n = n + seen.copy(n, &mut bytes[n..]);
            bytes.truncate(n);
            assert_eq!(n as u32, seen.len());
            self.shown.lock().unwrap().push(Shown {
                port: seen.port.0,
                way: seen.way,
                ingress: seen.ingress.0,
                egress: seen.egress.map(|port| port.0),
                deliveries: seen.deliveries,
                dropped: seen.dropped,
                bytes,
            });
        });
    }

    fn bridge_removed(&self) {
        self.removed.store(true, Ordering::Release);
    }
}

/// A bridge with a sender, port 0, and call ports behind it.
struct Rig {
    switch: Switch,
    bridge: BridgeId,
    feed: Arc<Feed>,
    ports: Vec<(PortRef, Arc<CallPort>)>,
}

fn rig(logic: Arc<dyn SwitchLogic>, receivers: usize) -> Rig {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", logic).unwrap();
    let feed = Feed::new();
    let home: Arc<dyn Egress> = Arc::new(CallPort::default());
    rig::plug(&switch, bridge, "0", vec![feed.queue()], vec![home]);
    let ports = (1..=receivers)
        .map(|i| {
            let port = Arc::new(CallPort::default());
            (rig::plug(&switch, bridge, &i.to_string(), vec![], vec![port.clone()]).0, port)
        })
        .collect();
    Rig { switch, bridge, feed, ports }
}

fn to(port: u8, id: u64, len: usize) -> Vec<u8> {
    let mut bytes = frame(id, len);
    bytes[0] = port;
    bytes
}

#[test]
fn packets_are_shown_where_they_come_in_and_where_they_leave() {
    let rig = rig(Arc::new(ByFirstByte), 2);
    let scribe = Scribe::of_all();
    rig.switch.observe(rig.bridge, scribe.clone()).unwrap();
    let packet = to(2, 1, 900);
    rig.feed.send([Sent::cut(&packet, &[3, 130, 500])]);
    let expected = |port, way| Shown {
        port,
        way,
        ingress: 0,
        egress: Some(2),
        deliveries: 1,
        dropped: None,
        bytes: packet.clone(),
    };
    assert_eq!(scribe.wait_for(2), [expected(0, Way::In), expected(2, Way::Out)]);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let shown = scribe.times.lock().unwrap()[0];
    assert!(now.as_nanos() as u64 - shown < 60_000_000_000, "{shown}");
}

#[test]
fn every_drop_has_its_reason() {
    let rig = rig(Arc::new(ByFirstByte), 1);
    // Port 2 has room for one packet, port 3 takes only short ones, port 4 is down.
    let full = MemRing::new(0, &[2048]);
    rig::plug(&rig.switch, rig.bridge, "2", vec![], vec![full.tx()]);
    let (mut short, _) = rig::attachment(vec![], vec![Arc::new(CallPort::default()) as Arc<dyn Egress>]);
    short.mtu = 100;
    let three = rig.switch.add_port(rig.bridge, PortSettings::new("3")).unwrap();
    rig.switch.attach(three, short).unwrap();
    rig.switch.add_port(rig.bridge, PortSettings::new("4")).unwrap();
    let scribe = Scribe::of_all();
    rig.switch.observe(rig.bridge, scribe.clone()).unwrap();

    let of = |shown: &[Shown]| {
        let brief = |s: &Shown| (s.port, s.way, s.egress, s.deliveries, s.dropped.map(DropReason::name));
        shown.iter().map(brief).collect::<Vec<_>>()
    };
    rig.feed.send([Sent::whole(&to(2, 1, 60)), Sent::whole(&to(2, 2, 60))]);
    let two = of(&scribe.wait_for(4));
    for expected in [
        (0, Way::In, Some(2), 1, None),
        (0, Way::In, Some(2), 0, Some("ring-full")),
        (2, Way::Out, Some(2), 1, None),
        (2, Way::Out, Some(2), 0, Some("ring-full")),
    ] {
        assert!(two.contains(&expected), "{expected:?} is not in {two:?}");
    }
    rig.feed.send([Sent::whole(&to(3, 3, 300))]);
    let long =
        [(0, Way::In, Some(3), 0, Some("exceeds-mtu")), (3, Way::Out, Some(3), 0, Some("exceeds-mtu"))];
    assert_eq!(of(&scribe.wait_for(2)), long);
    rig.feed.send([Sent::whole(&to(4, 4, 60))]);
    assert_eq!(of(&scribe.wait_for(1)), [(0, Way::In, None, 0, Some("port-down"))]);
    rig.feed.send([Sent::whole(&to(0, 5, 60))]);
    assert_eq!(of(&scribe.wait_for(1)), [(0, Way::In, None, 0, Some("same-port"))]);

    struct Silence;
    impl SwitchLogic for Silence {
        fn forward(&self, _: &mut Batch<'_>) {}
    }
    rig.switch.set_logic(rig.bridge, Arc::new(Silence)).unwrap();
    rig.feed.send([Sent::whole(&to(1, 6, 60))]);
    assert_eq!(of(&scribe.wait_for(1)), [(0, Way::In, None, 0, Some("no-destination"))]);

    let zero = PortRef { port: PortIndex(0), ..three };
    let mut settings = rig.switch.settings(zero).unwrap();
    settings.admin_up = false;
    rig.switch.set_port(zero, settings).unwrap();
    rig.feed.send([Sent::whole(&to(1, 7, 60))]);
    assert_eq!(of(&scribe.wait_for(1)), [(0, Way::In, None, 0, Some("port-down"))]);
}

/// Sends to port 1, and with a tag to port 2.
struct Tagging;

impl SwitchLogic for Tagging {
    fn forward(&self, batch: &mut Batch<'_>) {
        for v in batch.packets() {
            if batch.len(v) < 400 {
                batch.send(v, PortIndex(1));
            }
            let tag = VlanTag { vid: 7, ..VlanTag::default() };
            if let Some(tagged) = batch.push_vlan(v, tag) {
                batch.send(tagged, PortIndex(2));
            }
        }
    }
}

#[test]
fn each_port_sees_its_own_form() {
    let rig = rig(Arc::new(Tagging), 2);
    let scribe = Scribe::of_all();
    rig.switch.observe(rig.bridge, scribe.clone()).unwrap();
    // The longer one is edited in place: the packet must still be shown as it came in.
    for (len, deliveries, egress) in [(300, 2, 1), (500, 1, 2)] {
        let packet = frame(9, len);
        rig.feed.send([Sent::whole(&packet)]);
        let shown = scribe.wait_for(1 + deliveries as usize);
        assert_eq!((shown[0].way, shown[0].deliveries, shown[0].egress), (Way::In, deliveries, Some(egress)));
        assert_eq!(shown[0].bytes, packet);
        for (port, receiver) in &rig.ports {
            let got = receiver.take();
            let seen: Vec<_> = shown.iter().filter(|s| s.way == Way::Out && s.port == port.port.0).collect();
            assert_eq!(seen.len(), got.len());
            for (seen, got) in seen.iter().zip(&got) {
                assert_eq!(seen.bytes, got.bytes);
            }
        }
    }
}

#[test]
fn segments_are_shown_as_they_left() {
    let rig = rig(Arc::new(Hub), 1);
    let whole = Arc::new(CallPort::default());
    let (attachment, _) = rig::attachment(vec![], vec![whole.clone() as Arc<dyn Egress>]);
    let caps = Caps { csum: true, tso4: true, tso6: true, uso: true };
    let port = rig.switch.add_port(rig.bridge, PortSettings::new("whole")).unwrap();
    rig.switch.attach(port, Attachment { caps, ..attachment }).unwrap();
    let scribe = Scribe::of_all();
    rig.switch.observe(rig.bridge, scribe.clone()).unwrap();

    let payload = 3000u16;
    let mut packet = vec![2; 12];
    packet.extend([8, 0, 0x45, 0]);
    packet.extend((40 + payload).to_be_bytes());
    packet.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend([0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    let pseudo = pseudo_header_v4([10, 0, 0, 1], [10, 0, 0, 2], 6, 20 + payload).partial();
    packet[50..52].copy_from_slice(&pseudo.to_be_bytes());
    packet.extend((0..payload).map(|i| i as u8));
    let offload = Offload {
        gso: Gso::Tcp4,
        needs_csum: true,
        gso_size: 1000,
        csum_start: 34,
        csum_offset: 16,
        hdr_len: 54,
        ..Offload::NONE
    };
    rig.feed.send([Sent::whole(&packet).with_offload(offload)]);
    let shown = scribe.wait_for(5);
    assert_eq!((shown[0].way, shown[0].deliveries), (Way::In, 2));
    let segments: Vec<_> = rig.ports[0].1.take().into_iter().map(|called| called.bytes).collect();
    assert_eq!(segments.len(), 3);
    let at = |port: u16| {
        let out = shown.iter().filter(|s| s.way == Way::Out && s.port == port);
        out.map(|s| s.bytes.clone()).collect::<Vec<_>>()
    };
    assert_eq!(at(1), segments);
    assert_eq!(at(2), [packet]);
}

#[test]
fn packets_of_no_interest_are_not_shown() {
    let rig = rig(Arc::new(Hub), 2);
    let only = |name: &'static str, interest| {
        Scribe::of(move |n| if n == name { interest } else { Interest::default() })
    };
    let sent = only("2", Interest { sent: true, ..Interest::default() });
    let received = only("0", Interest { received: true, sent: false, ..Interest::default() });
    let none = Scribe::of(|_| Interest::default());
    let all = Scribe::of_all();
    for scribe in [&sent, &received, &none, &all] {
        rig.switch.observe(rig.bridge, scribe.clone()).unwrap();
    }
    for id in 0..100 {
        rig.feed.send([Sent::whole(&frame(id, 60))]);
    }
    assert_eq!(all.wait_for(300).len(), 300);
    let (sent, received) = (sent.wait_for(100), received.wait_for(100));
    assert!(sent.len() == 100 && sent.iter().all(|s| (s.port, s.way) == (2, Way::Out)));
    assert!(received.len() == 100 && received.iter().all(|s| (s.port, s.way) == (0, Way::In)));
    assert_eq!(received[0].deliveries, 2, "also to ports of no interest");
    assert!(none.shown.lock().unwrap().is_empty());
}

/// Looks at packets that port 2 sends, and counts how often it is asked.
struct OfTwo {
    asked: AtomicU64,
    scribe: Arc<Scribe>,
}

impl Observer for OfTwo {
    fn interest(&self, port: PortIndex, name: &str) -> Interest {
        self.scribe.interest(port, name)
    }

    fn picks(&self, _: usize, _: PortIndex, _: usize) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn observe(&self, worker: usize, batch: &Sightings<'_>) {
        self.scribe.observe(worker, batch);
    }
}

#[test]
fn an_observer_of_one_port_sees_its_packets_and_is_not_asked_about_others() {
    let rig = rig(Arc::new(ByFirstByte), 1);
    // Port 2 has room for one packet of at most 100 bytes.
    let full = MemRing::new(0, &[2048]);
    let (mut short, _) = rig::attachment(vec![], vec![full.tx()]);
    short.mtu = 100;
    let two = rig.switch.add_port(rig.bridge, PortSettings::new("2")).unwrap();
    rig.switch.attach(two, short).unwrap();
    let scribe = Scribe::of(|name| Interest { sent: name == "2", ..Interest::default() });
    let observer = Arc::new(OfTwo { asked: AtomicU64::new(0), scribe: scribe.clone() });
    rig.switch.observe(rig.bridge, observer.clone()).unwrap();

    for id in 0..20 {
        rig.feed.send([Sent::whole(&to(1, id, 60))]);
    }
    wait_until("all were switched", || rig.feed.returned() == 20);
    assert_eq!((observer.asked.load(Ordering::Relaxed), rig.ports[0].1.take().len()), (0, 20));

    let seen = |id, len, dropped: Option<DropReason>| Shown {
        port: 2,
        way: Way::Out,
        ingress: 0,
        egress: Some(2),
        deliveries: u32::from(dropped.is_none()),
        dropped,
        bytes: to(2, id, len),
    };
    // One at a time, for each path that a packet can take to it; the last batch bypasses it again.
    for (id, len, dropped) in
        [(20, 60, None), (21, 300, Some(DropReason::ExceedsMtu)), (22, 60, Some(DropReason::RingFull))]
    {
        rig.feed.send([Sent::whole(&to(2, id, len))]);
        assert_eq!(scribe.wait_for(1), [seen(id, len, dropped)]);
    }
    rig.feed.send([Sent::whole(&to(1, 23, 60))]);
    wait_until("the last was switched", || rig.feed.returned() == 24);
    assert_eq!((observer.asked.load(Ordering::Relaxed), scribe.shown.lock().unwrap().len()), (3, 0));
}

#[test]
fn observers_come_and_go_under_traffic() {
    let rig = rig(Arc::new(Hub), 1);
    let mut sent = 0;
    for _ in 0..50 {
        let scribe = Scribe::of_all();
        let id = rig.switch.observe(rig.bridge, scribe.clone()).unwrap();
        rig.feed.send((sent..sent + 40).map(|id| Sent::whole(&frame(id, 60))));
        sent += 40;
        wait_until("something is shown", || !scribe.shown.lock().unwrap().is_empty());
        rig.switch.unobserve(rig.bridge, id).unwrap();
        let shown = scribe.shown.lock().unwrap().len();
        assert_eq!(Arc::strong_count(&scribe), 1, "no worker uses it any more");
        rig.feed.send([Sent::whole(&frame(sent, 60))]);
        sent += 1;
        wait_until("all were switched", || rig.feed.returned() == sent);
        assert_eq!(scribe.shown.lock().unwrap().len(), shown);
        assert_eq!(rig.switch.unobserve(rig.bridge, id), Err(SwitchError::Gone("observer")));
    }
    assert_eq!(rig.ports[0].1.take().len() as u64, sent, "observing loses nothing");
}

#[test]
fn an_observer_is_told_of_new_ports_and_of_removal() {
    let rig = rig(Arc::new(Hub), 0);
    let scribe = Scribe::of(|name| if name == "late" { ALL } else { Interest::default() });
    rig.switch.observe(rig.bridge, scribe.clone()).unwrap();
    let late: Arc<dyn Egress> = Arc::new(CallPort::default());
    rig::plug(&rig.switch, rig.bridge, "late", vec![], vec![late]);
    rig.feed.send([Sent::whole(&frame(1, 60))]);
    assert_eq!(scribe.wait_for(1)[0].port, 1);
    assert!(!scribe.removed.load(Ordering::Acquire));
    rig.switch.remove_bridge(rig.bridge).unwrap();
    assert!(scribe.removed.load(Ordering::Acquire));
    assert_eq!(Arc::strong_count(&scribe), 1);
}

#[test]
fn packets_held_back_at_ingress_are_shown_with_the_reason() {
    let rig = rig(Arc::new(ByFirstByte), 2);
    let at = PortRef { bridge: rig.bridge, port: PortIndex(0) };
    let once = |burst| Some(Limit { unit: Unit::Packets, rate: 1, burst: Some(burst) });
    let mut settings = PortSettings { police: once(3), ..PortSettings::new("0") };
    settings.storm.broadcast = once(1);
    rig.switch.set_port(at, settings).unwrap();
    let scribe = Scribe::of_all();
    rig.switch.observe(rig.bridge, scribe.clone()).unwrap();
    let everyone = |id| {
        let mut bytes = frame(id, 100 + id as usize);
        bytes[..6].fill(0xff);
        bytes
    };
    // Broadcasts, which go nowhere here, between packets for port 1.
    let packets: Vec<_> = (0..8).map(|id| if id % 2 == 0 { everyone(id) } else { to(1, id, 100) }).collect();
    rig.feed.send(packets.iter().map(|packet| Sent::cut(packet, &[30])));
    let shown = scribe.wait_for(10);
    let came: Vec<_> = shown.iter().filter(|seen| seen.way == Way::In).collect();
    let of = |reason| -> Vec<u64> {
        let mut ids: Vec<_> = came
            .iter()
            .filter(|seen| seen.dropped == reason)
            .map(|seen| support::id_of(&seen.bytes))
            .collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(of(Some(DropReason::StormControl)), [2, 4, 6]);
    assert_eq!(of(Some(DropReason::Policed)), [5, 7]);
    assert_eq!(of(None), [1, 3]);
    for seen in &came {
        assert_eq!(
            seen.bytes,
            packets[support::id_of(&seen.bytes) as usize],
            "a packet is shown as it came in"
        );
    }
    let delivered: Vec<_> = rig.ports[0].1.take().into_iter().map(|called| called.bytes).collect();
    assert_eq!(delivered, [packets[1].clone(), packets[3].clone()]);
}

/// Sends everything to port 1, and remarks on it.
struct Talker;

impl SwitchLogic for Talker {
    fn forward(&self, batch: &mut Batch<'_>) {
        batch.packets().for_each(|v| batch.send(v, PortIndex(1)));
    }

    fn explain(&self, batch: &mut Batch<'_>) -> bool {
        for v in batch.packets() {
            let len = Value::Number(batch.len(v).into());
            batch.remark(v, "{} bytes go to {}", &[len, Value::Port(PortIndex(1))]);
        }
        self.forward(batch);
        true
    }
}

/// Remarks on packets of port 0, and the ports where they left.
#[derive(Default)]
struct Listener(Mutex<Vec<(u16, String)>>);

impl Observer for Listener {
    fn interest(&self, _: PortIndex, name: &str) -> Interest {
        Interest { received: name == "0", sent: true, explained: name == "0" }
    }

    fn observe(&self, _: usize, batch: &Sightings<'_>) {
        batch.for_each(|seen| {
            let mut heard = self.0.lock().unwrap();
            heard
                .extend(seen.remarks().map(|r| (seen.packet, r.sentence(|port| format!("port {}", port.0)))));
            if seen.way == Way::Out {
                heard.push((seen.packet, format!("out at {}", seen.port.0)));
            }
        });
    }
}

#[test]
fn a_logic_explains_itself_on_request() {
    let rig = rig(Arc::new(Talker), 2);
    let listener = Arc::new(Listener::default());
    let id = rig.switch.observe(rig.bridge, listener.clone()).unwrap();
    rig.feed.send([Sent::whole(&frame(1, 100)), Sent::whole(&frame(2, 200))]);
    wait_until("both were explained", || listener.0.lock().unwrap().len() == 4);
    let heard = std::mem::take(&mut *listener.0.lock().unwrap());
    let expected =
        [(0, "100 bytes go to port 1"), (1, "200 bytes go to port 1"), (0, "out at 1"), (1, "out at 1")];
    assert_eq!(heard, expected.map(|(packet, text)| (packet, text.to_owned())));
    rig.switch.unobserve(rig.bridge, id).unwrap();
    // A rehearsal sends nothing; a logic without rehearsals is reported.
    let at = PortRef { bridge: rig.bridge, port: PortIndex(0) };
    let traced = rig.switch.trace(at, &frame(3, 300), Offload::NONE).unwrap();
    assert_eq!(traced.outputs[0].packet, frame(3, 300));
    rig.switch.set_logic(rig.bridge, Arc::new(Hub)).unwrap();
    let refused = rig.switch.trace(at, &frame(3, 300), Offload::NONE).unwrap_err();
    assert!(refused.to_string().contains("does not support tracing"), "{refused}");
    assert_eq!(rig.ports[0].1.take().len(), 2);
}

/// Picks every second batch, and records what it was asked, what it picked and what it was shown.
#[derive(Default)]
struct Picky {
    asked: Mutex<Vec<(usize, bool)>>,
    shown: Mutex<Vec<Vec<u8>>>,
    vlans: Mutex<Vec<(u16, u8)>>,
}

impl Observer for Picky {
    fn interest(&self, _: PortIndex, _: &str) -> Interest {
        Interest { received: true, ..Interest::default() }
    }

    fn picks(&self, worker: usize, ingress: PortIndex, packets: usize) -> bool {
        assert_eq!((worker, ingress), (0, PortIndex(0)));
        let mut asked = self.asked.lock().unwrap();
        let picked = asked.len() % 2 == 1;
        asked.push((packets, picked));
        picked
    }

    fn observe(&self, _: usize, batch: &Sightings<'_>) {
        assert_eq!(self.asked.lock().unwrap().last(), Some(&(batch.packets(), true)), "it was asked before");
        assert!(batch.received(batch.packets()).is_none());
        for i in 0..batch.packets() {
            let seen = batch.received(i).unwrap();
            let mut bytes = vec![0; seen.len() as usize];
            seen.copy(0, &mut bytes);
            assert_eq!((seen.way, seen.ingress, seen.egress), (Way::In, PortIndex(0), Some(PortIndex(1))));
            self.vlans.lock().unwrap().push(batch.vlan(&seen));
            self.shown.lock().unwrap().push(bytes);
        }
    }
}

#[test]
fn an_observer_is_shown_the_batches_that_it_picked() {
    const PACKETS: u64 = 60;
    let rig = rig(Arc::new(Hub), 1);
    let (picky, all) = (Arc::new(Picky::default()), Scribe::of_all());
    rig.switch.observe(rig.bridge, picky.clone()).unwrap();
    // Another observer sees everything.
    let scribe = rig.switch.observe(rig.bridge, all.clone()).unwrap();
    for id in 0..PACKETS {
        if id == PACKETS / 2 {
            wait_until("half was switched", || rig.feed.returned() == id);
            assert_eq!(all.shown.lock().unwrap().len() as u64, 2 * id);
            rig.switch.unobserve(rig.bridge, scribe).unwrap();
        }
        rig.feed.send([Sent::whole(&frame(id, 60 + id as usize))]);
    }
    wait_until("all were switched", || rig.feed.returned() == PACKETS);
    let asked = picky.asked.lock().unwrap();
    assert_eq!(asked.iter().map(|(packets, _)| *packets as u64).sum::<u64>(), PACKETS, "each batch once");
    let (mut at, mut expected) = (0, Vec::new());
    for (packets, picked) in asked.iter() {
        let batch = at..at + *packets as u64;
        at = batch.end;
        expected.extend(batch.filter(|_| *picked).map(|id| frame(id, 60 + id as usize)));
    }
    assert!(!expected.is_empty());
    assert_eq!(*picky.shown.lock().unwrap(), expected);
    assert_eq!(
        rig.ports[0].1.take().len() as u64,
        PACKETS,
        "batches that were not picked are switched all the same"
    );
}

#[test]
fn a_packet_belongs_to_the_vlan_of_its_port() {
    let rig = rig(Arc::new(Hub), 1);
    let picky = Arc::new(Picky::default());
    rig.switch.observe(rig.bridge, picky.clone()).unwrap();
    let mut tagged = frame(1, 60);
    // Priority 5, VLAN 7.
    tagged[12..16].copy_from_slice(&[0x81, 0, 0xa0, 7]);
    let zero = PortRef { port: PortIndex(0), ..rig.ports[0].0 };
    let vlan = |mode: VlanMode, bytes: &[u8]| {
        let mut settings = rig.switch.settings(zero).unwrap();
        settings.vlan = mode;
        rig.switch.set_port(zero, settings).unwrap();
        // One of two batches is picked.
        for _ in 0..2 {
            let sent = rig.feed.returned();
            rig.feed.send([Sent::whole(bytes)]);
            wait_until("it was switched", || rig.feed.returned() == sent + 1);
        }
        picky.vlans.lock().unwrap().pop()
    };
    let seven = Vid::new(7).unwrap();
    assert_eq!(vlan(VlanMode::Transparent, &frame(1, 60)), Some((0, 0)));
    assert_eq!(vlan(VlanMode::Transparent, &tagged), Some((7, 5)));
    assert_eq!(vlan(VlanMode::Access(seven), &frame(1, 60)), Some((7, 0)));
    assert_eq!(vlan(VlanMode::Access(seven), &tagged), Some((0, 5)), "refused");
}

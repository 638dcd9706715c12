//! Packets of the control plane: through a bridge's logic or straight to ports, in order, counted, refused when too
//! many.
#![cfg(test)]
#![cfg(not(loom))]

mod support;

use std::sync::{Arc, Mutex};

use fabric::switch::{BridgeId, PortRef};
use fabric::{
    Batch, DropReason, Egress, Fault, INJECT_ROOM, InjectError, Injection, Interest, Observer, OutputList,
    PortIndex, PortSettings, QueueCounters, Sightings, Switch, SwitchError, SwitchLogic, Tools, Way,
};
use packet::offload::{Gso, Offload};
use support::rig::{self, Hub};
use support::{CallPort, frame, id_of, wait_until};

/// A bridge with call ports.
struct Rig {
    switch: Switch,
    bridge: BridgeId,
    ports: Vec<(PortRef, Arc<CallPort>)>,
}

impl Rig {
    fn new(logic: Arc<dyn SwitchLogic>, ports: usize) -> Self {
        let switch = rig::switch(2);
        let bridge = switch.add_bridge("b", logic).unwrap();
        let plug = |i| {
            let port = Arc::new(CallPort::default());
            (rig::plug(&switch, bridge, &format!("p{i}"), vec![], vec![port.clone()]).0, port)
        };
        let ports = (0..ports).map(plug).collect();
        Self { switch, bridge, ports }
    }

    fn inject(&self, bytes: &[u8], to: Injection) {
        self.switch.inject(self.bridge, bytes, Offload::NONE, to).unwrap();
    }

    fn port(&self, i: usize) -> PortIndex {
        self.ports[i].0.port
    }

    /// Waits until so many packets were taken from the queue.
    fn wait_taken(&self, packets: u64) {
        let injector = self.switch.injector(self.bridge).unwrap();
        wait_until("all packets are taken", || injector.counters().packets == packets);
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.switch.injector(self.bridge).unwrap().counters().drops[reason as usize]
    }

    /// The packets that port `i` received since the last call.
    fn take(&self, i: usize) -> Vec<Vec<u8>> {
        self.ports[i].1.take().into_iter().map(|called| called.bytes).collect()
    }
}

/// Drops everything.
struct Deaf;

impl SwitchLogic for Deaf {
    fn forward(&self, batch: &mut Batch<'_>) {
        batch.packets().for_each(|v| batch.discard(v, DropReason::Logic));
    }
}

#[test]
fn the_logic_sees_packets_as_if_a_port_had_sent_them() {
    let rig = Rig::new(Arc::new(Hub), 3);
    let packets: Vec<_> = (0..100).map(|id| frame(id, 60 + 650 * id as usize)).collect();
    for packet in &packets {
        rig.inject(packet, Injection::At(rig.port(1)));
    }
    wait_until("all packets are there", || rig.ports[2].1.got.lock().unwrap().len() == 100);
    rig.wait_taken(100);
    assert_eq!((rig.take(0), rig.take(1), rig.take(2)), (packets.clone(), vec![], packets.clone()));
    let counters = rig.switch.injector(rig.bridge).unwrap().counters();
    assert_eq!(counters.bytes, packets.iter().map(|packet| packet.len() as u64).sum::<u64>());
    assert_eq!(counters.drops.iter().sum::<u64>(), 0);
    // The port's own queues did not send them.
    assert!(rig.switch.counters(rig.ports[1].0).unwrap().rx.is_empty());
}

#[test]
fn packets_straight_to_ports_skip_the_logic() {
    let rig = Rig::new(Arc::new(Deaf), 4);
    let down = rig.switch.add_port(rig.bridge, PortSettings::new("down")).unwrap();
    let (first, second, third, fourth) = (frame(1, 60), frame(2, 9000), frame(3, 70), frame(4, 80));
    rig.inject(&first, Injection::To(vec![rig.port(0), rig.port(2)]));
    rig.inject(&second, Injection::To(vec![rig.port(0), rig.port(2)]));
    rig.inject(&third, Injection::To(vec![rig.port(2), down.port, PortIndex(77)]));
    rig.inject(&fourth, Injection::To(vec![]));
    rig.inject(&first, Injection::At(rig.port(0)));
    rig.inject(&first, Injection::At(down.port));
    rig.wait_taken(6);
    assert_eq!(rig.take(0), [first.clone(), second.clone()]);
    assert_eq!(rig.take(2), [first, second, third]);
    assert!(rig.take(1).is_empty() && rig.take(3).is_empty());
    let reasons = [DropReason::PortDown, DropReason::NoPort, DropReason::NoDestination, DropReason::Logic];
    assert_eq!(reasons.map(|reason| rig.drops(reason)), [2, 1, 1, 1]);
}

/// Sends packets to the port of their mark.
struct Marks;

impl SwitchLogic for Marks {
    fn forward(&self, batch: &mut Batch<'_>) {
        let port = PortIndex(batch.injection_mark());
        batch.packets().for_each(|v| batch.send(v, port));
    }
}

#[test]
fn the_logic_sees_the_marks_of_packets() {
    let rig = Rig::new(Arc::new(Marks), 3);
    let [marked, plain] = [frame(1, 60), frame(2, 60)];
    rig.inject(&marked, Injection::Marked(rig.port(1), 2));
    rig.inject(&plain, Injection::At(rig.port(1)));
    rig.inject(&marked, Injection::Marked(rig.port(1), 2));
    rig.wait_taken(3);
    assert_eq!((rig.take(2), rig.take(0)), (vec![marked.clone(), marked], vec![plain]));
}

/// Sends packets from no port, and those only, to port 2.
struct FromNowhere;

impl SwitchLogic for FromNowhere {
    fn forward(&self, batch: &mut Batch<'_>) {
        if batch.ingress() == PortIndex::NONE {
            batch.packets().for_each(|v| batch.send(v, PortIndex(2)));
        }
    }
}

#[test]
fn the_logic_decides_for_packets_from_no_port() {
    let rig = Rig::new(Arc::new(FromNowhere), 3);
    let packet = frame(1, 60);
    rig.inject(&packet, Injection::Logic);
    rig.inject(&frame(2, 60), Injection::At(rig.port(1)));
    rig.wait_taken(2);
    assert_eq!(rig.take(2), [packet]);
    assert_eq!(rig.drops(DropReason::NoDestination), 1);
}

#[test]
fn segments_pass_whole_and_metadata_is_checked() {
    let rig = Rig::new(Arc::new(Hub), 1);
    let big = Arc::new(CallPort::default());
    let at = rig.switch.add_port(rig.bridge, PortSettings::new("big")).unwrap();
    let (attachment, _) = rig::attachment(vec![], vec![big.clone()]);
    let caps = fabric::Caps { csum: true, tso4: true, ..fabric::Caps::default() };
    rig.switch.attach(at, fabric::Attachment { caps, ..attachment }).unwrap();

    // Ethernet, IPv4, TCP, and 40,000 bytes.
    let mut segment = vec![0; 54 + 40_000];
    segment[12..14].copy_from_slice(&[8, 0]);
    segment[14] = 0x45;
    segment[16..18].copy_from_slice(&40_040u16.to_be_bytes());
    segment[23] = 6;
    segment[46] = 0x50;
    let offload = Offload {
        gso: Gso::Tcp4,
        needs_csum: true,
        gso_size: 1448,
        csum_start: 34,
        csum_offset: 16,
        ..Offload::NONE
    };
    let inject = |offload| rig.switch.inject(rig.bridge, &segment, offload, Injection::To(vec![at.port]));
    inject(offload).unwrap();
    rig.wait_taken(1);
    let got = big.take();
    assert_eq!((got.len(), &got[0].bytes, got[0].offload.gso_size), (1, &segment, 1448));
    let wrong = Offload { csum_start: 33, ..offload };
    assert!(matches!(inject(wrong), Err(SwitchError::Inject(InjectError::Offload(_)))));
    rig.wait_taken(1);
}

#[test]
fn invalid_packets_are_refused() {
    let rig = Rig::new(Arc::new(Hub), 1);
    for len in [0, 13, 65_536] {
        let refused = rig.switch.inject(rig.bridge, &vec![0; len], Offload::NONE, Injection::At(rig.port(0)));
        assert_eq!(refused, Err(SwitchError::Inject(InjectError::Length(len))));
    }
    let injector = rig.switch.injector(rig.bridge).unwrap();
    assert_eq!(injector.counters(), Default::default());
    rig.switch.remove_bridge(rig.bridge).unwrap();
    let refused = injector.inject(&frame(1, 60), Offload::NONE, Injection::At(PortIndex(0)));
    assert_eq!(refused, Err(InjectError::Gone));
}

/// A call port that blocks until the test releases it.
#[derive(Default)]
struct Barred {
    bar: Mutex<()>,
    port: CallPort,
}

impl Egress for Barred {
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<(), Fault> {
        let _bar = self.bar.lock().unwrap();
        self.port.deliver(list, counters, tools)
    }
}

#[test]
fn a_full_queue_refuses_and_counts_and_the_rest_stays_in_order() {
    let rig = Rig::new(Arc::new(Deaf), 0);
    let barred = Arc::new(Barred::default());
    let (at, _) = rig::plug(&rig.switch, rig.bridge, "barred", vec![], vec![barred.clone()]);
    let injector = rig.switch.injector(rig.bridge).unwrap();
    let bar = barred.bar.lock().unwrap();
    let mut taken = Vec::new();
    let mut refused = 0;
    // More than the queue and a batch hold.
    for id in 0..2 * INJECT_ROOM as u64 {
        match injector.inject(&frame(id, 60), Offload::NONE, Injection::To(vec![at.port])) {
            Ok(()) => taken.push(id),
            Err(error) => {
                assert_eq!(error, InjectError::Full);
                refused += 1;
            }
        }
    }
    assert!(taken.len() >= INJECT_ROOM && refused > 0);
    drop(bar);
    rig.wait_taken(taken.len() as u64);
    let ids: Vec<_> = barred.port.take().iter().map(|called| id_of(&called.bytes)).collect();
    assert_eq!(ids, taken);
    assert_eq!(rig.drops(DropReason::RingFull), refused);
    // There is room again.
    rig.inject(&frame(0, 60), Injection::To(vec![at.port]));
    rig.wait_taken(taken.len() as u64 + 1);
}

/// Records where packets came in and went out.
#[derive(Default)]
struct Notes(Mutex<Vec<(u64, PortIndex, Way)>>);

impl Observer for Notes {
    fn interest(&self, _: PortIndex, _: &str) -> Interest {
        Interest { received: true, sent: true, ..Interest::default() }
    }

    fn observe(&self, _: usize, batch: &Sightings<'_>) {
        batch.for_each(|seen| {
            let mut header = [0; 14];
            seen.copy(0, &mut header);
            self.0.lock().unwrap().push((id_of(&header), seen.port, seen.way));
        });
    }
}

#[test]
fn observers_see_injected_packets() {
    let rig = Rig::new(Arc::new(Hub), 2);
    let notes = Arc::new(Notes::default());
    rig.switch.observe(rig.bridge, notes.clone()).unwrap();
    rig.inject(&frame(1, 60), Injection::At(rig.port(0)));
    rig.inject(&frame(2, 60), Injection::To(vec![rig.port(0)]));
    rig.wait_taken(2);
    rig.switch.settle();
    let seen = notes.0.lock().unwrap().clone();
    assert_eq!(seen, [(1, rig.port(0), Way::In), (1, rig.port(1), Way::Out), (2, rig.port(0), Way::Out)]);
}

#[test]
fn threads_that_inject_at_once_lose_nothing() {
    const EACH: u64 = 2000;
    let rig = Rig::new(Arc::new(Deaf), 1);
    let to = rig.port(0);
    let injector = rig.switch.injector(rig.bridge).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let injector = &injector;
            scope.spawn(move || {
                for id in thread * EACH..(thread + 1) * EACH {
                    let packet = frame(id, 60 + id as usize % 900);
                    while injector.inject(&packet, Offload::NONE, Injection::To(vec![to])).is_err() {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    rig.wait_taken(3 * EACH);
    let got = rig.take(0);
    let mut ids: Vec<_> = got.iter().map(|packet| id_of(packet)).collect();
    assert!(got.iter().zip(&ids).all(|(packet, id)| *packet == frame(*id, 60 + *id as usize % 900)));
    for thread in 0..3 {
        let own: Vec<_> = ids.iter().filter(|id| **id / EACH == thread).collect();
        assert!(own.is_sorted(), "out of order");
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..3 * EACH).collect::<Vec<_>>());
}

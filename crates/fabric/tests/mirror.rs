//! Mirrors: which packets they copy, in which form and how often, and the ownership of ports.
#![cfg(test)]
#![cfg(not(loom))]

mod support;

use std::sync::{Arc, Mutex};

use fabric::port::VidSet;
use fabric::switch::{BridgeId, PortRef};
use fabric::{
    Attachment, Batch, Caps, DropReason, Interest, Mirror, MirrorSnapshot, Observer, PortIndex, PortSettings,
    Sightings, Switch, SwitchLogic, Way,
};
use packet::checksum::pseudo_header_v4;
use packet::ether::{Vid, VlanTag};
use packet::offload::{Gso, Offload};
use support::feed::{Feed, Sent};
use support::rig::{self, ByFirstByte, Hub};
use support::{CallPort, frame, wait_until};

/// A bridge of four ports with a client each.
struct Rig {
    switch: Switch,
    bridge: BridgeId,
    feeds: Vec<Arc<Feed>>,
    ports: Vec<(PortRef, Arc<CallPort>)>,
}

impl Rig {
    fn new(logic: Arc<dyn SwitchLogic>) -> Self {
        let switch = rig::switch(1);
        let bridge = switch.add_bridge("b", logic).unwrap();
        let (mut feeds, mut ports) = (Vec::new(), Vec::new());
        for i in 0..4 {
            let (feed, port) = (Feed::new(), Arc::new(CallPort::default()));
            let name = i.to_string();
            ports.push((rig::plug(&switch, bridge, &name, vec![feed.queue()], vec![port.clone()]).0, port));
            feeds.push(feed);
        }
        Self { switch, bridge, feeds, ports }
    }

    fn mirror(&self, from: &[&str], what: Interest, to: &str, vlan: Option<u16>) {
        let mirror = Mirror {
            name: "m".into(),
            from: from.iter().map(|name| name.to_string()).collect(),
            what,
            to: to.into(),
            vlan: vlan.and_then(Vid::new),
            ..Mirror::default()
        };
        self.switch.set_mirrors(self.bridge, vec![mirror]).unwrap();
    }

    /// Sends from a port and waits until the switch is done.
    fn send(&self, from: usize, packets: impl IntoIterator<Item = Sent>) {
        let packets: Vec<_> = packets.into_iter().collect();
        let done = self.feeds[from].returned() + packets.len() as u64;
        self.feeds[from].send(packets);
        wait_until("the packets were switched", || self.feeds[from].returned() == done);
    }

    fn take(&self, port: usize) -> Vec<Vec<u8>> {
        self.ports[port].1.take().into_iter().map(|called| called.bytes).collect()
    }

    fn copied(&self) -> MirrorSnapshot {
        self.switch.mirrors(self.bridge).unwrap()[0].1
    }
}

const RECEIVED: Interest = Interest { received: true, sent: false, explained: false };
const SENT: Interest = Interest { received: false, sent: true, explained: false };
const BOTH: Interest = Interest { received: true, sent: true, explained: false };
const NOTHING: Vec<Vec<u8>> = Vec::new();

fn to(port: u8, id: u64, len: usize) -> Vec<u8> {
    let mut bytes = frame(id, len);
    bytes[0] = port;
    bytes
}

fn tagged(bytes: &[u8], vid: u16) -> Vec<u8> {
    let tci = VlanTag::new(Vid::new(vid).unwrap()).to_tci().to_be_bytes();
    [&bytes[..12], &[0x81, 0], &tci, &bytes[12..]].concat()
}

/// Pushes a tag onto everything and sends it to port 1, then pulls beyond the private header.
struct Editor;

impl SwitchLogic for Editor {
    fn forward(&self, batch: &mut Batch<'_>) {
        for v in batch.packets() {
            let whole = (batch.len(v) as usize).min(512);
            assert_eq!(batch.pull(v, whole), whole, "mirroring does not restrict the logic");
            if let Some(v) = batch.push_vlan(v, VlanTag::new(Vid::new(7).unwrap())) {
                batch.send(v, PortIndex(1));
            }
        }
    }
}

#[test]
fn directions_differ_by_port_and_vlans_select() {
    let rig = Rig::new(Arc::new(ToOne));
    let by_port = Some(vec![("0".into(), RECEIVED), ("1".into(), SENT)]);
    let mirror = Mirror { name: "m".into(), to: "3".into(), by_port, ..Mirror::default() };
    rig.switch.set_mirrors(rig.bridge, vec![mirror.clone()]).unwrap();
    let plain = frame(1, 60);
    rig.send(0, [Sent::whole(&plain)]);
    assert_eq!(rig.take(3).len(), 1, "copied once, though selected where it comes in and where it leaves");
    rig.send(2, [Sent::whole(&plain)]);
    assert_eq!(rig.take(3).len(), 1, "selected where it leaves");

    let mut vlans = VidSet::empty();
    vlans.insert(7);
    rig.switch.set_mirrors(rig.bridge, vec![Mirror { vlans: Some(vlans), ..mirror.clone() }]).unwrap();
    for from in [0, 2] {
        rig.send(from, [&plain, &tagged(&plain, 7), &tagged(&plain, 8)].map(|bytes| Sent::whole(bytes)));
        assert_eq!(rig.take(3), [tagged(&plain, 7)]);
    }

    let nothing = Mirror { by_port: Some(Vec::new()), ..mirror };
    rig.switch.set_mirrors(rig.bridge, vec![nothing]).unwrap();
    rig.send(0, [Sent::whole(&plain)]);
    assert_eq!(rig.take(3), NOTHING);
}

#[test]
fn copies_go_into_a_vlan_and_are_cut() {
    let rig = Rig::new(Arc::new(ToOne));
    let (from, into) = (vec!["0".to_string()], Vid::new(9));
    let mirror = Mirror { name: "m".into(), from, what: RECEIVED, into_vlan: into, ..Mirror::default() };
    rig.switch.set_mirrors(rig.bridge, vec![mirror.clone()]).unwrap();
    let plain = frame(1, 300);
    rig.send(0, [Sent::whole(&plain)]);
    for port in [0, 2, 3] {
        assert_eq!(rig.take(port), [tagged(&plain, 9)], "port {port}: the copy, in its VLAN");
    }
    assert_eq!(rig.take(1).len(), 2, "the packet and its copy");
    assert_eq!(rig.copied(), MirrorSnapshot { packets: 1, bytes: 304 });
    // The VLAN takes the place of the packet's own; packets of that VLAN are not copied.
    rig.send(0, [Sent::whole(&tagged(&plain, 7)), Sent::whole(&tagged(&plain, 9))]);
    assert_eq!(rig.take(3), [tagged(&plain, 9)]);
    assert_eq!(rig.take(1).len(), 3);

    let cut = Mirror { to: "3".into(), into_vlan: None, cut: Some(64), ..mirror };
    rig.switch.set_mirrors(rig.bridge, vec![cut]).unwrap();
    rig.send(0, [Sent::whole(&plain), Sent::whole(&frame(2, 60))]);
    assert_eq!(rig.take(3), [plain[..64].to_vec(), frame(2, 60)]);
    assert_eq!(rig.take(1), [plain, frame(2, 60)]);
}

#[test]
fn incoming_packets_are_copied_as_they_came_in() {
    let rig = Rig::new(Arc::new(Editor));
    rig.mirror(&["0"], RECEIVED, "3", None);
    let packets = [frame(1, 400), frame(2, 60)];
    rig.send(0, packets.iter().map(|packet| Sent::cut(packet, &[20, 200])));
    assert_eq!(rig.take(1), packets.each_ref().map(|packet| tagged(packet, 7)));
    assert_eq!(rig.take(3), packets);
    assert_eq!(rig.copied(), MirrorSnapshot { packets: 2, bytes: 460 });
    rig.send(2, [Sent::whole(&packets[0])]);
    assert_eq!((rig.take(1).len(), rig.take(3)), (1, NOTHING), "another port's packets are not copied");
}

/// Sends everything to port 1.
struct ToOne;

impl SwitchLogic for ToOne {
    fn forward(&self, batch: &mut Batch<'_>) {
        for v in batch.packets() {
            batch.send(v, PortIndex(1));
        }
    }

    fn explain(&self, batch: &mut Batch<'_>) -> bool {
        self.forward(batch);
        true
    }
}

#[test]
fn copies_for_a_port_without_a_client_count_there() {
    let rig = Rig::new(Arc::new(ToOne));
    let target = rig.switch.add_port(rig.bridge, PortSettings::new("target")).unwrap();
    rig.mirror(&["0"], RECEIVED, "target", None);
    let source = rig.ports[0].0;
    let dropped = |at| {
        let counters = rig.switch.counters(at).unwrap();
        [counters.rx, counters.tx].map(|queues| -> u64 {
            queues.iter().map(|queue| queue.drops[DropReason::PortDown as usize]).sum()
        })
    };
    let packet = to(1, 7, 60);
    rig.send(0, [Sent::whole(&packet)]);
    assert_eq!((rig.take(1), rig.copied()), (vec![packet.clone()], MirrorSnapshot { packets: 1, bytes: 60 }));
    assert_eq!((dropped(source), dropped(target)), ([0, 0], [0, 1]));
    let traced = rig.switch.trace(source, &packet, Offload::NONE).unwrap();
    let steps: Vec<_> =
        traced.remarks.iter().map(|remark| remark.sentence(|port| port.0.to_string())).collect();
    let step = "the mirror's copy for 4 is dropped, because the port has no client";
    assert!(steps.iter().any(|said| said == step), "{steps:?}");
    assert_eq!((traced.drops, dropped(target)), (vec![], [0, 1]), "a trace counts nothing");
}

#[test]
fn outgoing_packets_are_copied_once_as_they_go_out() {
    let rig = Rig::new(Arc::new(Editor));
    rig.mirror(&["1"], BOTH, "3", Some(99));
    let packet = frame(1, 400);
    rig.send(0, [Sent::whole(&packet)]);
    let out = tagged(&packet, 7);
    assert_eq!((rig.take(1), rig.take(3)), (vec![out.clone()], vec![tagged(&out, 99)]));

    let rig = Rig::new(Arc::new(Hub));
    rig.mirror(&[], BOTH, "3", None);
    rig.send(0, [Sent::whole(&packet)]);
    assert_eq!((rig.take(1), rig.take(2)), (vec![packet.clone()], vec![packet.clone()]));
    assert_eq!(rig.take(3), vec![packet.clone()], "it came in at a port of the mirror and left at two");
    rig.mirror(&["1", "2"], SENT, "3", None);
    rig.send(0, [Sent::whole(&packet)]);
    assert_eq!((rig.take(1).len(), rig.take(2).len(), rig.take(3)), (1, 1, vec![packet.clone()]));
    rig.send(1, [Sent::whole(&packet)]);
    assert_eq!((rig.take(0).len(), rig.take(2).len(), rig.take(3)), (1, 1, vec![packet]));
}

#[test]
fn a_port_belongs_to_its_mirror_unless_copies_are_tagged() {
    let rig = Rig::new(Arc::new(Hub));
    let packet = frame(1, 100);
    rig.mirror(&["1"], BOTH, "3", None);
    rig.send(0, [Sent::whole(&packet)]);
    assert_eq!(rig.take(3), vec![packet.clone()], "the copy, but not the flooded packet");
    rig.take(1);
    rig.send(3, [Sent::whole(&packet)]);
    assert_eq!((rig.take(0), rig.take(1)), (NOTHING, NOTHING));
    assert_eq!(rig::drops(&rig.switch, rig.ports[3].0, DropReason::MirrorPort), 1);

    rig.mirror(&["1"], BOTH, "3", Some(5));
    rig.send(0, [Sent::whole(&packet)]);
    assert_eq!(rig.take(3), [packet.clone(), tagged(&packet, 5)]);
    rig.send(3, [Sent::whole(&packet)]);
    assert_eq!(rig.take(0), vec![packet.clone()]);
    rig.take(3);

    rig.switch.set_mirrors(rig.bridge, vec![]).unwrap();
    rig.send(0, [Sent::whole(&packet)]);
    assert_eq!(rig.take(3), [packet]);
}

#[test]
fn nothing_can_be_sent_to_a_mirrors_port() {
    let rig = Rig::new(Arc::new(ByFirstByte));
    rig.mirror(&["1"], BOTH, "3", None);
    rig.send(0, [Sent::whole(&to(3, 1, 100))]);
    assert_eq!(rig.take(3), NOTHING);
    assert_eq!(rig::drops(&rig.switch, rig.ports[0].0, DropReason::MirrorPort), 1);
}

#[test]
fn ports_go_by_name_and_may_come_later() {
    let rig = Rig::new(Arc::new(ByFirstByte));
    rig.mirror(&["0", "later"], RECEIVED, "watcher", None);
    let packet = to(1, 1, 100);
    rig.send(0, [Sent::whole(&packet)]);
    assert_eq!(rig.copied(), MirrorSnapshot::default());
    let watcher = Arc::new(CallPort::default());
    let (at, _) = rig::plug(&rig.switch, rig.bridge, "watcher", vec![], vec![watcher.clone()]);
    rig.send(0, [Sent::whole(&packet)]);
    assert_eq!(watcher.take().len(), 1);
    rig.switch.remove_port(at).unwrap();
    rig.send(0, [Sent::whole(&packet)]);
    assert_eq!((rig.copied().packets, rig.take(1).len()), (1, 3));
}

/// An IPv4/TCP packet with `payload` bytes of data to be segmented.
fn large(payload: usize) -> (Vec<u8>, Offload) {
    let mut bytes = vec![0; 54 + payload];
    bytes[0] = 1;
    bytes[5] = 1;
    bytes[11] = 2;
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14] = 0x45;
    bytes[16..18].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
    bytes[22] = 64;
    bytes[23] = 6;
    bytes[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    bytes[46] = 0x50;
    let sum = pseudo_header_v4([10, 0, 0, 1], [10, 0, 0, 2], 6, (20 + payload) as u16);
    bytes[50..52].copy_from_slice(&sum.partial().to_be_bytes());
    let offload = Offload {
        needs_csum: true,
        csum_start: 34,
        csum_offset: 16,
        gso: Gso::Tcp4,
        gso_size: 1000,
        hdr_len: 54,
        ..Offload::NONE
    };
    (bytes, offload)
}

#[test]
fn large_segments_are_cut_for_a_port_that_takes_none() {
    let rig = Rig::new(Arc::new(ByFirstByte));
    // Port 1 takes them whole; the mirror's port does not.
    let whole = Arc::new(CallPort::default());
    rig.switch.detach(rig.ports[1].0).unwrap();
    let caps = Caps { csum: true, tso4: true, tso6: true, uso: true };
    let (attachment, _faults) = rig::attachment(vec![], vec![whole.clone()]);
    rig.switch.attach(rig.ports[1].0, Attachment { caps, ..attachment }).unwrap();
    rig.mirror(&["1"], SENT, "3", Some(9));
    let (bytes, offload) = large(2500);
    rig.send(0, [Sent::cut(&bytes, &[100, 1000]).with_offload(offload)]);
    assert_eq!(whole.take()[0].bytes.len(), bytes.len());
    let copies = rig.take(3);
    assert_eq!(copies.iter().map(Vec::len).collect::<Vec<_>>(), [1058, 1058, 558]);
    assert!(copies.iter().all(|copy| copy[12..16] == [0x81, 0, 0, 9]));
    let payload: Vec<u8> = copies.iter().flat_map(|copy| copy[58..].to_vec()).collect();
    assert_eq!(payload, bytes[54..]);
    // All segments of a packet that left segmented are copied, too.
    rig.mirror(&["2"], SENT, "3", None);
    let (mut bytes, offload) = large(2500);
    bytes[0] = 2;
    rig.send(0, [Sent::whole(&bytes).with_offload(offload)]);
    assert_eq!(rig.take(2), rig.take(3));
}

#[derive(Default)]
struct Counter(Mutex<Vec<Seen>>);

/// Port, direction, deliveries and egress.
type Seen = (u16, Way, u32, Option<u16>);

impl Observer for Counter {
    fn interest(&self, _: PortIndex, _: &str) -> Interest {
        BOTH
    }

    fn observe(&self, _: usize, batch: &Sightings<'_>) {
        batch.for_each(|seen| {
            let egress = seen.egress.map(|port| port.0);
            self.0.lock().unwrap().push((seen.port.0, seen.way, seen.deliveries, egress));
        });
    }
}

#[test]
fn copies_are_shown_but_are_no_deliveries() {
    let rig = Rig::new(Arc::new(ByFirstByte));
    let counter = Arc::new(Counter::default());
    rig.switch.observe(rig.bridge, counter.clone()).unwrap();
    rig.mirror(&["0"], BOTH, "3", None);
    rig.send(0, [Sent::whole(&to(1, 1, 100))]);
    let mut seen = std::mem::take(&mut *counter.0.lock().unwrap());
    seen.sort_by_key(|seen| seen.0);
    assert_eq!(seen, [(0, Way::In, 1, Some(1)), (1, Way::Out, 1, Some(1)), (3, Way::Out, 1, Some(3))]);
}

#[test]
fn a_longer_packet_than_the_port_takes_is_counted_there() {
    let rig = Rig::new(Arc::new(ByFirstByte));
    let settings = PortSettings { mtu: 500, ..PortSettings::new("3") };
    rig.switch.set_port(rig.ports[3].0, settings).unwrap();
    rig.mirror(&["0"], RECEIVED, "3", None);
    rig.send(0, [Sent::whole(&to(1, 1, 900))]);
    assert_eq!((rig.take(1).len(), rig.take(3)), (1, NOTHING));
    assert_eq!(rig::drops(&rig.switch, rig.ports[3].0, DropReason::ExceedsMtu), 1);
}

/// Sends a packet of so many bytes to port 1 on each wake-up, and forwards everything else there too.
struct Beats {
    len: usize,
    times: std::sync::atomic::AtomicU64,
}

impl SwitchLogic for Beats {
    fn forward(&self, batch: &mut Batch<'_>) {
        for v in batch.packets() {
            batch.send(v, PortIndex(1));
        }
    }

    fn period(&self) -> Option<std::time::Duration> {
        Some(std::time::Duration::from_millis(1))
    }

    fn wake(&self, batch: &mut Batch<'_>) {
        assert_eq!((batch.packets().count(), batch.ingress()), (0, PortIndex::NONE));
        let v = batch.originate(&frame(9, self.len), Offload::NONE).unwrap();
        batch.send(v, PortIndex(1));
        // Reflecting without an ingress port and originating impossible packets have no effect.
        batch.reflect(v);
        assert!(batch.originate(&[0; 13], Offload::NONE).is_none());
        self.times.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn originated_packets_are_delivered_mirrored_and_observed() {
    for len in [60, 512, 513, 9000, 65_535] {
        let logic = Arc::new(Beats { len, times: Default::default() });
        let times = || logic.times.load(std::sync::atomic::Ordering::Relaxed);
        let rig = Rig::new(logic.clone());
        wait_until("it was woken", || times() >= 3);
        wait_until("packets have come", || rig.take(1).iter().any(|packet| *packet == frame(9, len)));
        rig.mirror(&["1"], SENT, "3", None);
        wait_until("copies have come", || rig.take(3).iter().any(|copy| *copy == frame(9, len)));
        let lost = || rig.switch.originated(rig.bridge).unwrap().drops;
        wait_until("the undelivered packets are counted", || {
            lost()[DropReason::NoPort as usize] > 0 && lost()[DropReason::BatchLimit as usize] > 0
        });
        // Its successor, which wants no wake-ups, gets none, and neither does it.
        rig.switch.set_logic(rig.bridge, Arc::new(Hub)).unwrap();
        let then = times();
        rig.take(1);
        rig.send(0, [Sent::whole(&frame(1, 60))]);
        assert_eq!((rig.take(1), times()), (vec![frame(1, 60)], then));
    }
}

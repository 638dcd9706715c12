//! Connected bridges: packets cross whole and in order and are counted on both sides, and loops end.
#![cfg(test)]
#![cfg(not(loom))]

mod support;

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use fabric::arena::ARENA_LEN;
use fabric::crossing::{MAX_CROSSINGS, MAX_DEPTH};
use fabric::protection::{Limit, Unit};
use fabric::switch::{BridgeId, PortRef};
use fabric::{
    Arena, Attachment, Batch, Caps, DropReason, Egress, Interest, Mirror, Observer, PortIndex, PortSettings,
    Sightings, Switch, SwitchLogic, Way,
};
use packet::checksum::pseudo_header_v4;
use packet::ether::{Vid, VlanTag};
use packet::offload::{Gso, Offload};
use support::feed::{Feed, Sent};
use support::rig::{self, Hub};
use support::{CallPort, Lcg, frame, id_of, wait_until};

const ALL: Caps = Caps { csum: true, tso4: true, tso6: true, uso: true };

/// A port with a client.
struct Client {
    at: PortRef,
    feed: Arc<Feed>,
    port: Arc<CallPort>,
}

impl Client {
    fn new(switch: &Switch, bridge: BridgeId, name: &str) -> Self {
        let (feed, port) = (Feed::new(), Arc::new(CallPort::default()));
        let at = switch.add_port(bridge, PortSettings::new(name)).unwrap();
        let (attachment, _) = rig::attachment(vec![feed.queue()], vec![port.clone()]);
        switch.attach(at, Attachment { caps: ALL, ..attachment }).unwrap();
        Self { at, feed, port }
    }

    /// Sends and waits until the switch is done.
    fn send(&self, packets: impl IntoIterator<Item = Sent>) {
        let packets: Vec<_> = packets.into_iter().collect();
        let done = self.feed.returned() + packets.len() as u64;
        self.feed.send(packets);
        wait_until("the packets were switched", || self.feed.returned() == done);
    }

    fn take(&self) -> Vec<Vec<u8>> {
        self.port.take().into_iter().map(|called| called.bytes).collect()
    }
}

fn way_into(switch: &Switch, at: PortRef) -> Attachment {
    let tx: Vec<Arc<dyn Egress>> = vec![Arc::new(switch.inlet(at).unwrap())];
    Attachment { rx: vec![], tx, caps: ALL, mtu: 65_521, on_fault: Arc::new(|_| {}) }
}

/// Connects two bridges. Returns the port in the first and the port in the second.
fn join(switch: &Switch, a: BridgeId, b: BridgeId, name: &str) -> (PortRef, PortRef) {
    let [a, b] = [(a, "a"), (b, "b")]
        .map(|(bridge, side)| switch.add_port(bridge, PortSettings::new(format!("{name}{side}"))).unwrap());
    switch.attach(a, way_into(switch, b)).unwrap();
    switch.attach(b, way_into(switch, a)).unwrap();
    (a, b)
}

fn bridges<const N: usize>(switch: &Switch, logic: impl Fn() -> Arc<dyn SwitchLogic>) -> [BridgeId; N] {
    std::array::from_fn(|i| switch.add_bridge(&format!("b{i}"), logic()).unwrap())
}

fn drops(switch: &Switch, at: PortRef, reason: DropReason) -> u64 {
    rig::drops(switch, at, reason)
}

#[test]
fn packets_cross_whole_and_are_counted_on_both_sides() {
    let switch = rig::switch(1);
    let [first, second] = bridges(&switch, || Arc::new(Hub));
    let (near, far) = (Client::new(&switch, first, "near"), Client::new(&switch, second, "far"));
    let (out, into) = join(&switch, first, second, "p");
    let mut random = Lcg(3);
    let mut sent = Vec::new();
    for len in [14, 60, 127, 128, 129, 600, 1514, 65_521, 65_535] {
        let packet = frame(sent.len() as u64, len);
        // In up to 64 pieces, also when none of them ends with the private header.
        let cuts: Vec<_> = (0..random.below(64)).map(|_| random.below(len + 1)).collect();
        near.send([Sent::cut(&packet, &cuts)]);
        let tail: Vec<_> = (0..63).map(|i| len - len.min(i * (len / 70 + 1))).collect();
        near.send([Sent::cut(&packet, &tail)]);
        sent.extend([packet.clone(), packet]);
    }
    assert_eq!(far.take(), sent);
    assert!(near.take().is_empty());
    let bytes = sent.iter().map(|packet| packet.len() as u64).sum::<u64>();
    let (tx, rx) =
        (switch.counters(out).unwrap().tx[0].clone(), switch.counters(into).unwrap().rx[0].clone());
    assert_eq!((tx.packets, tx.bytes), (sent.len() as u64, bytes));
    assert_eq!(tx, rx);
    far.send([Sent::whole(&frame(99, 300))]);
    assert_eq!(near.take(), [frame(99, 300)]);
    assert_eq!((rig::packets(&switch, out), rig::packets(&switch, into)), ((1, 18), (18, 1)));
}

/// Pulls as much as possible into the private header, and pushes tags.
struct Long(u16);

impl SwitchLogic for Long {
    fn forward(&self, batch: &mut Batch<'_>) {
        for v in batch.packets() {
            let whole = (batch.len(v) as usize).min(512);
            assert!(batch.pull(v, whole) >= whole);
            batch.broadcast(v);
            let tagged = (0..self.0).try_fold(v, |v, i| batch.push_vlan(v, VlanTag::new(Vid::new(i + 1)?)));
            if let Some(tagged) = tagged.filter(|tagged| *tagged != v) {
                batch.broadcast(tagged);
            }
        }
    }
}

fn tagged(bytes: &[u8], vids: std::ops::RangeInclusive<u16>) -> Vec<u8> {
    vids.fold(bytes.to_vec(), |bytes, vid| {
        let tci = VlanTag::new(Vid::new(vid).unwrap()).to_tci().to_be_bytes();
        [&bytes[..12], &[0x81, 0], &tci, &bytes[12..]].concat()
    })
}

#[test]
fn headers_of_any_length_cross_unchanged() {
    for tags in [0, 1, 3, 15] {
        let switch = rig::switch(1);
        let first = switch.add_bridge("first", Arc::new(Long(tags))).unwrap();
        let second = switch.add_bridge("second", Arc::new(Long(0))).unwrap();
        let (near, other) = (Client::new(&switch, first, "near"), Client::new(&switch, first, "other"));
        join(&switch, first, second, "p");
        let far = Client::new(&switch, second, "far");
        for len in [60, 300, 500, 512, 513, 1400] {
            let packet = frame(1, len);
            near.send([Sent::cut(&packet, &[20, 130, 140, 505])]);
            let mut expected = vec![packet.clone()];
            if tags > 0 {
                expected.push(tagged(&packet, 1..=tags));
            }
            assert_eq!(far.take(), expected, "{tags} tags, {len} bytes");
            assert_eq!(other.take(), expected, "{tags} tags, {len} bytes, in the first bridge");
        }
    }
}

/// Overwrites the first bytes of the packets that it sends on.
struct Scribbler;

impl SwitchLogic for Scribbler {
    fn forward(&self, batch: &mut Batch<'_>) {
        for v in batch.packets() {
            batch.header_mut(v).unwrap()[..6].fill(7);
            batch.broadcast(v);
        }
    }
}

#[test]
fn edits_of_one_bridge_are_invisible_to_the_other() {
    let switch = rig::switch(1);
    let first = switch.add_bridge("first", Arc::new(Hub)).unwrap();
    let second = switch.add_bridge("second", Arc::new(Scribbler)).unwrap();
    let near = Client::new(&switch, first, "near");
    join(&switch, first, second, "p");
    // Its list follows that of the patch.
    let after = Client::new(&switch, first, "after");
    let far = Client::new(&switch, second, "far");
    near.send([Sent::whole(&frame(1, 200))]);
    assert_eq!(after.take(), [frame(1, 200)]);
    assert_eq!(far.take(), [[&[7; 6], &frame(1, 200)[6..]].concat()]);
}

#[test]
fn large_segments_cross_uncut() {
    let switch = rig::switch(1);
    let [first, second] = bridges(&switch, || Arc::new(Hub));
    let (near, far) = (Client::new(&switch, first, "near"), Client::new(&switch, second, "far"));
    join(&switch, first, second, "p");
    let (packet, offload) = tcp(40_000);
    near.send([Sent::cut(&packet, &[100, 3000, 20_000]).with_offload(offload)]);
    let got = far.port.take();
    assert_eq!(got.len(), 1);
    assert_eq!((&got[0].bytes, got[0].offload), (&packet, offload));
}

/// A TCP packet with so many bytes of data to be segmented and summed.
fn tcp(data: usize) -> (Vec<u8>, Offload) {
    let mut packet = frame(1, 14 + 20 + 20 + data);
    packet[12..14].copy_from_slice(&[8, 0]);
    let len = (40 + data) as u16;
    packet[14..34].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet[16..18].copy_from_slice(&len.to_be_bytes());
    packet[46] = 0x50;
    let sum = pseudo_header_v4([10, 0, 0, 1], [10, 0, 0, 2], 6, len - 20);
    packet[50..52].copy_from_slice(&(!sum.finish()).to_be_bytes());
    let offload = Offload {
        gso: Gso::Tcp4,
        gso_size: 1448,
        hdr_len: 54,
        needs_csum: true,
        csum_start: 34,
        csum_offset: 16,
        ..Offload::NONE
    };
    (packet, offload)
}

#[test]
fn packets_cross_at_most_max_depth_times() {
    let switch = rig::switch(1);
    let all: [_; MAX_DEPTH + 2] = bridges(&switch, || Arc::new(Hub));
    let clients = all.map(|bridge| Client::new(&switch, bridge, "client"));
    let joints: Vec<_> = all.windows(2).map(|pair| join(&switch, pair[0], pair[1], "p")).collect();
    clients[0].send([Sent::whole(&frame(1, 1000))]);
    for (i, client) in clients.iter().enumerate() {
        assert_eq!(client.take().len(), usize::from((1..=MAX_DEPTH).contains(&i)), "bridge {i}");
    }
    let last = joints[MAX_DEPTH].0;
    assert_eq!((drops(&switch, last, DropReason::Loop), rig::all_drops(&switch, last)), (1, 1));
    assert_eq!(rig::packets(&switch, last), (0, 0));
}

#[test]
fn loops_end_and_meshes_stay_small() {
    for (pairs, packets) in [(2, 1), (3, 50), (12, 1), (12, 100)] {
        let switch = rig::switch(1);
        let [first, second, bypass] = bridges(&switch, || Arc::new(Hub));
        let joints: Vec<_> = (0..pairs).map(|i| join(&switch, first, second, &i.to_string())).collect();
        let near = Client::new(&switch, first, "near");
        let far = Client::new(&switch, second, "far");
        let (x, y) = (Client::new(&switch, bypass, "x"), Client::new(&switch, bypass, "y"));
        let batches = |switch: &Switch| switch.workers()[0].counters.batches;
        let before = batches(&switch);
        near.send((0..packets).map(|i| Sent::whole(&frame(i, 60))));
        let taken = batches(&switch) - before;
        let ends = || joints.iter().flat_map(|(a, b)| [*a, *b]);
        let lost: u64 = ends().map(|at| drops(&switch, at, DropReason::Loop)).sum();
        let crossed: u64 = ends().map(|at| rig::packets(&switch, at).1).sum();
        assert_eq!(crossed, ends().map(|at| rig::packets(&switch, at).0).sum::<u64>());
        assert!(lost > 0 && crossed <= u64::from(MAX_CROSSINGS) * taken, "{lost} {crossed} {taken}");
        if pairs == 2 {
            // Each copy takes its own path until it has crossed the maximum number of times.
            assert_eq!((lost, crossed), (2, 2 * MAX_DEPTH as u64));
        }
        assert!(far.take().len() as u64 >= 2 * packets);
        near.take();
        x.send([Sent::whole(&frame(9, 60))]);
        assert_eq!(y.take(), [frame(9, 60)]);
    }
}

/// Sends each packet to port 1 three times, each time with another tag.
struct Thrice;

impl SwitchLogic for Thrice {
    fn forward(&self, batch: &mut Batch<'_>) {
        for v in batch.packets() {
            let mut v = v;
            for vid in 1..=3 {
                batch.send(v, PortIndex(1));
                v = batch.push_vlan(v, VlanTag::new(Vid::new(vid).unwrap())).unwrap();
            }
        }
    }
}

#[test]
fn lists_longer_than_a_batch_cross_in_order() {
    let switch = rig::switch(1);
    let first = switch.add_bridge("first", Arc::new(Thrice)).unwrap();
    let second = switch.add_bridge("second", Arc::new(Hub)).unwrap();
    let near = Client::new(&switch, first, "near");
    join(&switch, first, second, "p");
    let far = Client::new(&switch, second, "far");
    let packets: Vec<_> = (0..400).map(|i| frame(i, 60 + i as usize)).collect();
    near.send(packets.iter().map(|packet| Sent::cut(packet, &[30, 130])));
    let expected: Vec<_> = packets
        .iter()
        .flat_map(|packet| [packet.clone(), tagged(packet, 1..=1), tagged(packet, 1..=2)])
        .collect();
    assert!(far.take() == expected);
}

#[test]
fn settings_of_the_receiving_port_apply() {
    let switch = rig::switch(1);
    let [first, second] = bridges(&switch, || Arc::new(Hub));
    let near = Client::new(&switch, first, "near");
    let (out, into) = join(&switch, first, second, "p");
    let far = Client::new(&switch, second, "far");
    let mut settings = switch.settings(into).unwrap();
    settings.police = Some(Limit { unit: Unit::Packets, rate: 1, burst: Some(5) });
    switch.set_port(into, settings.clone()).unwrap();
    near.send((0..9).map(|i| Sent::whole(&frame(i, 60))));
    assert_eq!(far.take().iter().map(|packet| id_of(packet)).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!((drops(&switch, into, DropReason::Policed), rig::all_drops(&switch, out)), (4, 0));
    // Down: arriving packets are counted at their ingress.
    switch.set_port(into, PortSettings { admin_up: false, police: None, ..settings.clone() }).unwrap();
    near.send([Sent::whole(&frame(1, 60))]);
    assert_eq!((far.take().len(), drops(&switch, into, DropReason::PortDown)), (0, 1));
    // Longer than the sending port allows.
    switch.set_port(into, PortSettings { police: None, ..settings }).unwrap();
    let mut settings = switch.settings(out).unwrap();
    settings.mtu = 500;
    switch.set_port(out, settings).unwrap();
    near.send([Sent::whole(&frame(1, 600))]);
    assert_eq!((far.take().len(), drops(&switch, out, DropReason::ExceedsMtu)), (0, 1));
}

/// Records which packets it saw at which port and in which direction.
#[derive(Default)]
struct Watcher(Mutex<Vec<(PortIndex, Way, Option<DropReason>)>>);

impl Observer for Watcher {
    fn interest(&self, _: PortIndex, _: &str) -> Interest {
        Interest { received: true, sent: true, explained: false }
    }

    fn observe(&self, worker: usize, batch: &Sightings<'_>) {
        assert_eq!(worker, 0);
        batch.for_each(|seen| {
            let mut bytes = vec![0; seen.len() as usize];
            seen.copy(0, &mut bytes);
            assert_eq!(bytes, frame(1, 700));
            self.0.lock().unwrap().push((seen.port, seen.way, seen.dropped));
        });
    }
}

#[test]
fn both_bridges_are_observed_and_mirrored() {
    let switch = rig::switch(1);
    let [first, second] = bridges(&switch, || Arc::new(Hub));
    let near = Client::new(&switch, first, "near");
    let (out, into) = join(&switch, first, second, "p");
    let (far, mirror_port) =
        (Client::new(&switch, second, "far"), Client::new(&switch, second, "mirror_port"));
    let watcher = Arc::new(Watcher::default());
    for bridge in [first, second] {
        switch.observe(bridge, watcher.clone()).unwrap();
    }
    let what = Interest { received: true, sent: false, explained: false };
    let mirror = Mirror {
        name: "m".into(),
        from: vec!["pb".into()],
        what,
        to: "mirror_port".into(),
        ..Mirror::default()
    };
    switch.set_mirrors(second, vec![mirror]).unwrap();
    near.send([Sent::cut(&frame(1, 700), &[50, 300])]);
    assert_eq!((far.take(), mirror_port.take()), (vec![frame(1, 700)], vec![frame(1, 700)]));
    // The second bridge is done first.
    let seen = std::mem::take(&mut *watcher.0.lock().unwrap());
    let expected = [
        (into.port, Way::In, None),
        (mirror_port.at.port, Way::Out, None),
        (far.at.port, Way::Out, None),
        (near.at.port, Way::In, None),
        (out.port, Way::Out, None),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn long_headers_are_shown_where_they_enter() {
    let switch = rig::switch(1);
    let first = switch.add_bridge("first", Arc::new(Long(0))).unwrap();
    let second = switch.add_bridge("second", Arc::new(Hub)).unwrap();
    let near = Client::new(&switch, first, "near");
    let (_, into) = join(&switch, first, second, "p");
    let far = Client::new(&switch, second, "far");
    let watcher = Arc::new(Watcher::default());
    switch.observe(second, watcher.clone()).unwrap();
    near.send([Sent::cut(&frame(1, 700), &[50, 300])]);
    let seen = std::mem::take(&mut *watcher.0.lock().unwrap());
    assert_eq!(seen, [(into.port, Way::In, None), (far.at.port, Way::Out, None)]);
}

#[test]
fn observers_see_where_a_loop_ends() {
    let switch = rig::switch(1);
    let [first, second] = bridges(&switch, || Arc::new(Hub));
    let near = Client::new(&switch, first, "near");
    join(&switch, first, second, "p");
    join(&switch, first, second, "q");
    let watcher = Arc::new(Watcher::default());
    switch.observe(first, watcher.clone()).unwrap();
    near.send([Sent::whole(&frame(1, 700))]);
    let seen = watcher.0.lock().unwrap();
    assert_eq!(
        seen.iter().filter(|(_, way, why)| *way == Way::Out && *why == Some(DropReason::Loop)).count(),
        2
    );
}

/// Memory for headers that this logic supplies to one worker.
struct Supplied {
    at: Arena,
    inside: AtomicU64,
}

impl Supplied {
    fn layout() -> Layout {
        Layout::from_size_align(ARENA_LEN, 64).unwrap()
    }

    fn new() -> Self {
        // SAFETY: the layout's size is not zero.
        let at = NonNull::new(unsafe { std::alloc::alloc_zeroed(Self::layout()) }).unwrap();
        // SAFETY: the memory is freed when no bridge has the logic, and only worker 0 receives its address.
        Self { at: unsafe { Arena::new(at) }, inside: AtomicU64::new(0) }
    }
}

impl Drop for Supplied {
    fn drop(&mut self) {
        // SAFETY: it came from `alloc_zeroed` with this layout.
        unsafe { std::alloc::dealloc(self.at.at().as_ptr(), Self::layout()) };
    }
}

impl SwitchLogic for Supplied {
    fn arena(&self, worker: usize) -> Option<Arena> {
        (worker == 0).then_some(self.at)
    }

    fn forward(&self, batch: &mut Batch<'_>) {
        assert!(batch.is_in(self.at));
        for v in batch.packets() {
            self.inside.fetch_add(1, Relaxed);
            batch.broadcast(v);
        }
    }
}

#[test]
fn headers_in_a_logics_arena_are_not_overwritten_by_nested_batches() {
    let switch = rig::switch(1);
    let (own, other) = (Arc::new(Supplied::new()), Arc::new(Supplied::new()));
    let first = switch.add_bridge("first", own.clone()).unwrap();
    let second = switch.add_bridge("second", other.clone()).unwrap();
    let near = Client::new(&switch, first, "near");
    let (p, q) = (join(&switch, first, second, "p"), join(&switch, first, second, "q"));
    let (after, far) = (Client::new(&switch, first, "after"), Client::new(&switch, second, "far"));
    near.send((0..3).map(|i| Sent::whole(&frame(i, 100 + i as usize))));
    let packets: Vec<_> = (0..3).map(|i| frame(i, 100 + i as usize)).collect();
    assert_eq!((after.take(), far.take()), (packets.clone(), [packets.clone(), packets].concat()));
    assert_eq!((own.inside.load(Relaxed), other.inside.load(Relaxed)), (3, 6));
    assert_eq!([p.1, q.1].map(|at| drops(&switch, at, DropReason::Loop)), [3, 3]);
    far.send([Sent::whole(&frame(9, 60))]);
    assert_eq!(after.take(), [frame(9, 60), frame(9, 60)]);
}

/// Two streams through a middle bridge that is removed and added again; a third stream bypasses it.
#[test]
fn bridges_come_and_go_under_traffic() {
    let switch = rig::switch(2);
    let [left, right, bypass] = bridges(&switch, || Arc::new(Hub));
    let (a, b) = (Client::new(&switch, left, "a"), Client::new(&switch, right, "b"));
    let (here, there) = (Client::new(&switch, left, "here"), Client::new(&switch, right, "there"));
    let (x, y) = (Client::new(&switch, bypass, "x"), Client::new(&switch, bypass, "y"));
    let stop = AtomicBool::new(false);
    let stream = |from: &Client, base: u64| {
        let mut sent = 0;
        while !stop.load(Relaxed) {
            from.send((sent..sent + 20).map(|i| Sent::cut(&frame(base + i, 200), &[40, 150])));
            sent += 20;
        }
        sent
    };
    let sent = std::thread::scope(|scope| {
        let streams = [(&a, 0), (&b, BEYOND), (&x, 0)];
        let streams = streams.map(|(client, base)| scope.spawn(move || stream(client, base)));
        for round in 0..150 {
            let middle = switch.add_bridge("middle", Arc::new(Hub)).unwrap();
            let joints = [join(&switch, left, middle, "l"), join(&switch, middle, right, "r")];
            // Some traffic passes.
            wait_until("packets cross", || joints.iter().all(|(_, into)| rig::packets(&switch, *into).0 > 0));
            if round % 3 == 0 {
                switch.set_logic(middle, Arc::new(Scribbler)).unwrap();
            }
            if round % 2 == 0 {
                switch.remove_bridge(middle).unwrap();
                [joints[0].0, joints[1].1].iter().for_each(|at| switch.remove_port(*at).unwrap());
            } else {
                [joints[0].0, joints[1].1].iter().for_each(|at| switch.remove_port(*at).unwrap());
                switch.remove_bridge(middle).unwrap();
            }
        }
        stop.store(true, Relaxed);
        streams.map(|stream| stream.join().unwrap())
    });
    // Streams that bypass the middle bridge lose nothing and stay in order; streams that cross it stay in order.
    let ids = |client: &Client| client.take().iter().map(|packet| id_of(packet)).collect::<Vec<_>>();
    assert_eq!(ids(&y), Vec::from_iter(0..sent[2]));
    for (client, from, other) in [(&here, 0, 1), (&there, 1, 0)] {
        let (own, crossed): (Vec<_>, Vec<_>) = ids(client).into_iter().partition(|id| id / BEYOND == from);
        assert_eq!(own, Vec::from_iter(from * BEYOND..from * BEYOND + sent[from as usize]));
        assert!(crossed.is_sorted_by(|a, b| a < b) && !crossed.is_empty());
        assert!(crossed.iter().all(|id| id / BEYOND == other && id % BEYOND < sent[other as usize]));
    }
    for client in [&a, &b, &x, &here, &there] {
        assert_eq!(rig::all_drops(&switch, client.at), 0);
    }
}

/// Packets of the second stream have numbers from here on.
const BEYOND: u64 = 1 << 32;

//! The fabric against a naive model: every packet, every decision, every ring, byte for byte and in order.
#![cfg(test)]
#![cfg(not(loom))]

mod support;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use fabric::rx::EXTRA_VERSIONS;
use fabric::switch::{BridgeId, PortRef};
use fabric::{Batch, DropReason, Egress, Fault, PortIndex, PortSettings, Switch, SwitchLogic, VersionId};
use packet::VlanTag;
use proptest::prelude::*;
use support::feed::{Feed, Sent};
use support::mem_ring::MemRing;
use support::rig::{self, ByFirstByte, Hub};
use support::{CallPort, Lcg, frame, id_of, wait_until};

/// An action of the scripted logic on a packet's current version.
#[derive(Debug, Clone)]
enum Op {
    Send(u16),
    Broadcast,
    Reflect,
    Discard,
    Edit { at: u16, byte: u8 },
    Push(u16),
    Pop,
    Pull(usize),
}

#[derive(Debug, Clone)]
struct Packet {
    len: usize,
    tagged: bool,
    cuts: Vec<usize>,
    ops: Vec<Op>,
}

impl Packet {
    fn bytes(&self, id: u64) -> Vec<u8> {
        let mut bytes = frame(id, self.len);
        let tagged: &[u8] = if self.tagged { &[0x81, 0x00] } else { &[0x08, 0x00] };
        bytes[12..14].copy_from_slice(tagged);
        bytes
    }

    fn sent(&self, id: u64) -> Sent {
        Sent::cut(&self.bytes(id), &self.cuts)
    }
}

fn op(ports: u16) -> impl Strategy<Value = Op> {
    prop_oneof![
        // Two indices beyond the last port: one without a client, one that does not exist.
        6 => (0..ports + 2).prop_map(Op::Send),
        2 => Just(Op::Broadcast),
        1 => Just(Op::Reflect),
        1 => Just(Op::Discard),
        3 => (any::<u16>(), any::<u8>()).prop_map(|(at, byte)| Op::Edit { at, byte }),
        2 => any::<u16>().prop_map(Op::Push),
        2 => Just(Op::Pop),
        1 => (0usize..600).prop_map(Op::Pull),
    ]
}

fn packet(ports: u16) -> impl Strategy<Value = Packet> {
    let len = prop_oneof![
        1 => Just(14usize), 6 => 14usize..260, 4 => 260usize..3000, 1 => 3000usize..65_536, 1 => Just(65_535usize)
    ];
    let cuts = prop_oneof![
        2 => Just(Vec::new()),
        2 => prop::collection::vec(any::<usize>(), 1..64),
        // All of it near the front, within the header copy.
        1 => prop::collection::vec(0usize..160, 1..64),
    ];
    let ops = prop_oneof![
        8 => prop::collection::vec(op(ports), 0..8),
        // More tags than there is headroom for.
        1 => prop::collection::vec(any::<u16>().prop_map(Op::Push), 14..20).prop_map(move |mut ops| {
            ops.push(Op::Broadcast);
            ops
        }),
    ];
    (len, any::<bool>(), cuts, ops).prop_map(|(len, tagged, cuts, ops)| Packet { len, tagged, cuts, ops })
}

/// Index of the byte that an edit changes, of `n` private ones: not in the source address, which identifies the packet.
fn edit_offset(at: u16, n: usize) -> usize {
    let i = usize::from(at) % (n - 6);
    if i < 6 { i } else { i + 6 }
}

/// Executes the script of each packet.
#[derive(Default)]
struct Script {
    ops: RwLock<HashMap<u64, Vec<Op>>>,
    /// Packets without a script.
    strangers: AtomicU64,
}

impl Script {
    fn expect(&self, id: u64, packet: &Packet) {
        self.ops.write().unwrap().insert(id, packet.ops.clone());
    }

    fn run(batch: &mut Batch<'_>, mut v: VersionId, ops: &[Op]) -> Option<()> {
        for op in ops {
            match *op {
                Op::Send(port) => batch.send(v, PortIndex(port)),
                Op::Broadcast => batch.broadcast(v),
                Op::Reflect => batch.reflect(v),
                Op::Discard => batch.discard(v, DropReason::ReservedGroup),
                Op::Edit { at, byte } => {
                    v = batch.edit(v)?;
                    let header = batch.header_mut(v)?;
                    let at = edit_offset(at, header.len());
                    header[at] = byte;
                }
                Op::Push(tci) => v = batch.push_vlan(v, VlanTag::from_tci(tci))?,
                Op::Pop => v = batch.pop_vlan(v)?,
                Op::Pull(n) => {
                    v = batch.edit(v)?;
                    batch.pull(v, n);
                }
            }
        }
        Some(())
    }
}

impl SwitchLogic for Script {
    fn forward(&self, batch: &mut Batch<'_>) {
        let scripts = self.ops.read().unwrap();
        for v in batch.packets() {
            match scripts.get(&id_of(batch.header(v))) {
                Some(ops) => drop(Script::run(batch, v, ops)),
                None => drop(self.strangers.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }
}

/// A port as the model knows it.
#[derive(Clone)]
struct PortModel {
    /// Transmit queues; none if it has no client.
    queues: usize,
    max_frame: usize,
}

type Tally = HashMap<DropReason, u64>;

/// Expected fate of one packet: outputs by (port, queue), and drops. Drops count at the ingress, except those by MTU,
/// which count at the destination.
fn expected(
    packet: &Packet,
    id: u64,
    ingress: usize,
    ports: &[PortModel],
    drops: &mut Tally,
) -> Vec<(usize, usize, Vec<u8>)> {
    let mut outputs = Vec::new();
    let mut bytes = packet.bytes(id);
    let mut private = bytes.len().min(128);
    let mut headroom = 64usize;
    let mut mentioned = false;
    let mut count = |reason| *drops.entry(reason).or_default() += 1;
    for op in &packet.ops {
        let to: Vec<usize> = match *op {
            Op::Send(port) if usize::from(port) == ingress => {
                count(DropReason::SamePort);
                mentioned = true;
                continue;
            }
            Op::Send(port) => vec![usize::from(port)],
            Op::Broadcast => (0..ports.len()).filter(|p| *p != ingress && ports[*p].queues > 0).collect(),
            Op::Reflect => vec![ingress],
            Op::Discard => {
                count(DropReason::ReservedGroup);
                mentioned = true;
                continue;
            }
            Op::Edit { at, byte } => {
                bytes[edit_offset(at, private)] = byte;
                continue;
            }
            Op::Push(tci) => {
                if headroom < 4 {
                    count(DropReason::BatchLimit);
                    return outputs;
                }
                bytes.splice(12..12, [0x81, 0x00, (tci >> 8) as u8, tci as u8]);
                (headroom, private) = (headroom - 4, private + 4);
                continue;
            }
            Op::Pop => {
                if private >= 18 && bytes[12..14] == [0x81, 0x00] {
                    bytes.drain(12..16);
                    (headroom, private) = (headroom + 4, private - 4);
                }
                continue;
            }
            Op::Pull(n) => {
                private = private.max(n.min(64 + 512 - headroom).min(bytes.len()));
                continue;
            }
        };
        mentioned |= !to.is_empty();
        for port in to {
            match ports.get(port) {
                None => count(DropReason::NoPort),
                Some(port) if port.queues == 0 => count(DropReason::PortDown),
                Some(port) if bytes.len() > port.max_frame => count(DropReason::ExceedsMtu),
                Some(model) => {
                    let hash = u64::from(packet::flow::hash(&bytes[..private]));
                    let queue = (hash * model.queues as u64) >> 32;
                    outputs.push((port, queue as usize, bytes.clone()));
                }
            }
        }
    }
    if !mentioned {
        count(DropReason::NoDestination);
    }
    outputs
}

/// A ring as the model sees it: capacities of posted buffers, and packets delivered.
#[derive(Default)]
struct RingModel {
    posted: VecDeque<u32>,
    packets: Vec<Vec<u8>>,
    used: usize,
    full: u64,
}

impl RingModel {
    fn push(&mut self, packet: Vec<u8>) {
        let mut room = 0;
        let fits = self.posted.iter().position(|capacity| {
            room += *capacity as usize;
            room >= packet.len()
        });
        match fits {
            Some(last) => {
                self.posted.drain(..=last);
                self.used += last + 1;
                self.packets.push(packet);
            }
            None => self.full += 1,
        }
    }
}

/// Buffer capacities of a ring, drawn from these.
#[derive(Debug, Clone)]
struct Sizes(Vec<u32>);

impl Sizes {
    fn draw(&self, random: &mut Lcg) -> u32 {
        self.0[random.below(self.0.len())]
    }
}

fn sizes() -> impl Strategy<Value = Sizes> {
    prop_oneof![
        Just(Sizes(vec![2048])),
        Just(Sizes(vec![65_540])),
        Just(Sizes(vec![1, 3, 7, 64, 200])),
        prop::collection::vec(1u32..4000, 1..6).prop_map(Sizes),
        Just(Sizes(vec![1, 128, 70_000])),
    ]
}

#[derive(Debug, Clone)]
struct Destination {
    size_log: u32,
    start: u32,
    sizes: Sizes,
    queues: usize,
    mtu: u32,
}

fn destination() -> impl Strategy<Value = Destination> {
    let start = prop_oneof![Just(0u32), any::<u32>(), (u32::MAX - 40)..=u32::MAX];
    let mtu = prop_oneof![3 => Just(65_535u32), 1 => Just(1500u32), 1 => 68u32..3000];
    (1u32..8, start, sizes(), 1usize..4, mtu).prop_map(|(size_log, start, sizes, queues, mtu)| Destination {
        size_log,
        start,
        sizes,
        queues,
        mtu,
    })
}

struct Port {
    at: PortRef,
    rings: Vec<Arc<MemRing>>,
    models: Vec<RingModel>,
}

fn plug(
    switch: &Switch,
    bridge: BridgeId,
    name: &str,
    feeds: &[Arc<Feed>],
    to: &Destination,
    random: &mut Lcg,
) -> Port {
    let n = 1 << to.size_log;
    let (mut rings, mut models) = (Vec::new(), Vec::new());
    for _ in 0..to.queues {
        let capacities: Vec<_> = (0..n).map(|_| to.sizes.draw(random)).collect();
        rings.push(MemRing::new(to.start, &capacities));
        models.push(RingModel { posted: capacities.into(), ..RingModel::default() });
    }
    let tx = rings.iter().map(|ring| ring.tx() as Arc<dyn Egress>).collect();
    let at = switch.add_port(bridge, PortSettings::new(name)).unwrap();
    let (mut attachment, _) = rig::attachment(feeds.iter().map(Feed::queue).collect(), tx);
    attachment.mtu = to.mtu;
    switch.attach(at, attachment).unwrap();
    Port { at, rings, models }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// One sender, and receivers that look only between rounds: contents, order, ring drops and every counter match the
    /// model exactly, however the packets form batches.
    #[test]
    fn one_sender_is_the_model_exactly(
        destinations in prop::collection::vec(destination(), 1..5),
        rounds in prop::collection::vec(prop::collection::vec(packet(5), 1..40), 1..4),
        lands in prop::bool::weighted(0.25),
        seed in any::<u64>(),
    ) {
        let random = &mut Lcg(seed);
        let switch = rig::switch(1);
        let script = Arc::new(Script::default());
        let bridge = switch.add_bridge("b", script.clone()).unwrap();
        let feed = if lands { Feed::landing() } else { Feed::new() };
        let mut ports: Vec<Port> = Vec::new();
        for (i, to) in destinations.iter().enumerate() {
            let feeds = if i == 0 { std::slice::from_ref(&feed) } else { &[] };
            ports.push(plug(&switch, bridge, &format!("p{i}"), feeds, to, random));
        }
        let call = Arc::new(CallPort::default());
        let (call_at, _) = rig::plug(&switch, bridge, "call", vec![], vec![call.clone()]);
        switch.add_port(bridge, PortSettings::new("nobody")).unwrap();
        let call_index = ports.len();
        let mut view: Vec<_> = destinations
            .iter()
            .map(|to| PortModel { queues: to.queues, max_frame: to.mtu as usize + 22 })
            .collect();
        view.push(PortModel { queues: 1, max_frame: 65_535 + 22 });
        view.push(PortModel { queues: 0, max_frame: 0 });

        let (mut drops, mut sent, mut sent_bytes, mut called) = (Tally::new(), 0u64, 0u64, 0u64);
        for (round, packets) in rounds.iter().enumerate() {
            let mut calls = Vec::new();
            for (i, packet) in packets.iter().enumerate() {
                let id = (round << 16 | i) as u64;
                script.expect(id, packet);
                for (port, queue, bytes) in expected(packet, id, 0, &view, &mut drops) {
                    match ports.get_mut(port) {
                        Some(port) => port.models[queue].push(bytes),
                        None => calls.push(bytes),
                    }
                }
                sent_bytes += packet.len as u64;
            }
            feed.send(packets.iter().enumerate().map(|(i, packet)| packet.sent((round << 16 | i) as u64)));
            sent += packets.len() as u64;
            wait_until("the round is returned", || feed.returned() == sent);
            for (to, port) in destinations.iter().zip(&mut ports) {
                for (ring, model) in port.rings.iter().zip(&mut port.models) {
                    let got = ring.take(|| {
                        let capacity = to.sizes.draw(random);
                        model.posted.push_back(capacity);
                        capacity
                    });
                    prop_assert_eq!(&got, &std::mem::take(&mut model.packets));
                    ring.assert_no_wrongs();
                }
            }
            let got: Vec<_> = call.take().into_iter().map(|called| called.bytes).collect();
            called += got.len() as u64;
            prop_assert_eq!(got, calls);
        }

        // A queue's counters are written after its packets were returned.
        wait_until("the counters agree", || {
            rig::packets(&switch, ports[0].at).0 == sent
                && at_ingress(&drops)
                    == switch.counters(ports[0].at).unwrap().rx[0].drops.iter().sum::<u64>()
        });
        prop_assert_eq!(script.strangers.load(Ordering::Relaxed), 0);
        prop_assert_eq!(switch.counters(ports[0].at).unwrap().rx[0].bytes, sent_bytes);
        let exceeding: u64 = ports.iter().map(|port| port.at).chain([call_at]).map(too_long(&switch)).sum();
        prop_assert_eq!(exceeding, drops.remove(&DropReason::ExceedsMtu).unwrap_or(0));
        for reason in DropReason::ALL {
            let counted = switch.counters(ports[0].at).unwrap().rx[0].drops[*reason as usize];
            prop_assert_eq!(counted, drops.get(reason).copied().unwrap_or(0), "{}", reason.name());
        }
        for port in &ports {
            let counters = switch.counters(port.at).unwrap();
            for (queue, model) in counters.tx.iter().zip(&port.models) {
                prop_assert_eq!(queue.drops[DropReason::RingFull as usize], model.full);
                let others = queue.drops.iter().sum::<u64>() - queue.drops[DropReason::ExceedsMtu as usize];
                prop_assert_eq!(others, model.full);
            }
        }
        prop_assert_eq!(rig::packets(&switch, call_at).1, called);
        prop_assert_eq!(call_index, destinations.len());
    }
}

/// Drops of a tally that count at the ingress.
fn at_ingress(drops: &Tally) -> u64 {
    drops.iter().filter(|(reason, _)| **reason != DropReason::ExceedsMtu).map(|(_, n)| n).sum()
}

/// Packets that were too long for a port.
fn too_long(switch: &Switch) -> impl Fn(PortRef) -> u64 + '_ {
    |port| rig::drops(switch, port, DropReason::ExceedsMtu)
}

/// Checks that a port received from one feed the expected packets, in order, except for drops.
fn check_flow(expected: &[Vec<u8>], queues: &[Vec<&Vec<u8>>]) -> Result<u64, String> {
    let mut left: HashMap<&[u8], i64> = HashMap::new();
    for bytes in expected {
        *left.entry(bytes).or_default() += 1;
    }
    let mut got = 0;
    for queue in queues {
        let mut rest = expected.iter();
        for bytes in queue {
            if !rest.any(|e| &e == bytes) {
                return Err(format!("packet {:#x} is unknown, changed or out of order", id_of(bytes)));
            }
            let n = left.entry(bytes).or_default();
            *n -= 1;
            if *n < 0 {
                return Err(format!("packet {:#x} came twice", id_of(bytes)));
            }
            got += 1;
        }
    }
    Ok(expected.len() as u64 - got)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Many senders on two workers into the same rings, which receivers empty meanwhile: order per (rx queue, tx
    /// queue), contents, and sent = received + counted drops.
    #[test]
    fn many_senders_agree_with_the_model(
        destinations in prop::collection::vec(destination(), 3),
        feeds_each in 1usize..3,
        packets in prop::collection::vec(packet(3), 20..120),
        workers in 1usize..3,
        seed in any::<u64>(),
    ) {
        let random = &mut Lcg(seed);
        let switch = rig::switch(workers);
        let script = Arc::new(Script::default());
        let bridge = switch.add_bridge("b", script.clone()).unwrap();
        let feeds: Vec<Vec<Arc<Feed>>> =
            destinations.iter().map(|_| (0..feeds_each).map(|_| Feed::new()).collect()).collect();
        let ports: Vec<Port> = destinations
            .iter()
            .zip(&feeds)
            .enumerate()
            .map(|(i, (to, feeds))| plug(&switch, bridge, &format!("p{i}"), feeds, to, random))
            .collect();
        switch.add_port(bridge, PortSettings::new("nobody")).unwrap();
        let mut view: Vec<_> = destinations
            .iter()
            .map(|to| PortModel { queues: to.queues, max_frame: to.mtu as usize + 22 })
            .collect();
        view.push(PortModel { queues: 0, max_frame: 0 });

        // Packet i enters through feed i modulo the number of feeds.
        let all: Vec<_> = feeds.iter().enumerate().flat_map(|(p, fs)| fs.iter().map(move |f| (p, f))).collect();
        let id_in = |i: usize| ((i % all.len()) << 32 | i) as u64;
        let mut drops: Vec<Tally> = vec![Tally::new(); ports.len()];
        let mut outputs = vec![vec![Vec::new(); ports.len()]; all.len()];
        for (i, packet) in packets.iter().enumerate() {
            let (ingress, _) = all[i % all.len()];
            script.expect(id_in(i), packet);
            for (port, _, bytes) in expected(packet, id_in(i), ingress, &view, &mut drops[ingress]) {
                outputs[i % all.len()][port].push(bytes);
            }
        }

        let done = AtomicBool::new(false);
        let mut got: Vec<Vec<Vec<Vec<u8>>>> = std::thread::scope(|scope| {
            let receivers: Vec<_> = ports
                .iter()
                .zip(&destinations)
                .map(|(port, to)| {
                    let (done, mut random) = (&done, Lcg(u64::from(random.next())));
                    scope.spawn(move || {
                        let mut got = vec![Vec::new(); port.rings.len()];
                        let mut last = false;
                        while !last {
                            last = done.load(Ordering::Acquire);
                            for (ring, got) in port.rings.iter().zip(&mut got) {
                                got.extend(ring.take(|| to.sizes.draw(&mut random)));
                            }
                            std::thread::yield_now();
                        }
                        got
                    })
                })
                .collect();
            for (burst, part) in packets.chunks(7).enumerate() {
                for (i, packet) in part.iter().enumerate() {
                    let i = burst * 7 + i;
                    all[i % all.len()].1.send([packet.sent(id_in(i))]);
                }
            }
            for (f, (_, feed)) in all.iter().enumerate() {
                let sent = (f..packets.len()).step_by(all.len()).count() as u64;
                wait_until("a feed's packets are returned", || feed.returned() == sent);
            }
            done.store(true, Ordering::Release);
            receivers.into_iter().map(|receiver| receiver.join().unwrap()).collect()
        });

        for (p, port) in ports.iter().enumerate() {
            let mut lost = 0;
            for (f, outputs) in outputs.iter().enumerate() {
                let queues: Vec<Vec<_>> = got[p]
                    .iter()
                    .map(|queue| queue.iter().filter(|bytes| id_of(bytes) >> 32 == f as u64).collect())
                    .collect();
                match check_flow(&outputs[p], &queues) {
                    Ok(n) => lost += n,
                    Err(wrong) => prop_assert!(false, "feed {} to port {}: {}", f, p, wrong),
                }
            }
            let full = rig::drops(&switch, port.at, DropReason::RingFull);
            prop_assert_eq!(lost, full, "sent = received + drops, port {}", p);
            let received = got[p].iter().map(|queue| queue.len() as u64).sum::<u64>();
            wait_until("the drops are counted", || {
                rig::all_drops(&switch, port.at) - full - too_long(&switch)(port.at) == at_ingress(&drops[p])
            });
            prop_assert_eq!(rig::packets(&switch, port.at).1, received);
            for ring in &port.rings {
                ring.assert_no_wrongs();
            }
            got[p].clear();
        }
    }
}

/// The switch, the feed, its port, and the rings with theirs.
type Small = (Switch, Arc<Feed>, PortRef, Vec<(PortRef, Arc<MemRing>)>);

/// A bridge of one feed (port 0) and one ring (port 1) per list of capacities.
fn small(logic: Arc<dyn SwitchLogic>, rings: &[&[u32]]) -> Small {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", logic).unwrap();
    let feed = Feed::new();
    let home: Arc<dyn Egress> = MemRing::new(0, &[2048; 4]).tx();
    let (from, _) = rig::plug(&switch, bridge, "from", vec![feed.queue()], vec![home]);
    let rings = rings
        .iter()
        .enumerate()
        .map(|(i, capacities)| {
            let ring = MemRing::new(u32::MAX, capacities);
            (rig::plug(&switch, bridge, &format!("to{i}"), vec![], vec![ring.tx()]).0, ring)
        })
        .collect();
    (switch, feed, from, rings)
}

#[test]
fn a_full_ring_lets_smaller_packets_pass_in_order() {
    let (switch, feed, _, rings) = small(Arc::new(Hub), &[&[100, 100, 100, 100]]);
    let (port, ring) = &rings[0];
    let lens = [150, 201, 60, 101, 100, 14];
    feed.send((0..).zip(lens).map(|(id, len)| Sent::whole(&frame(id, len))));
    wait_until("all are returned", || feed.returned() == lens.len() as u64);
    // 150 takes two buffers; 201 needs three of two; 60 takes one; 101 needs two of one; 100 takes the last.
    let got: Vec<_> = ring.take(|| 100).iter().map(Vec::len).collect();
    assert_eq!(got, [150, 60, 100]);
    assert_eq!(rig::drops(&switch, *port, DropReason::RingFull), 3);
    ring.assert_no_wrongs();
    // Failed packets leave nothing behind: the ring can be filled again.
    feed.send((10..14).map(|id| Sent::whole(&frame(id, 100))));
    wait_until("all are returned", || feed.returned() == 10);
    assert_eq!(ring.take(|| 100), (10..14).map(|id| frame(id, 100)).collect::<Vec<_>>());
}

#[test]
fn the_largest_packet_in_the_most_pieces_crosses() {
    let (_switch, feed, _, rings) = small(Arc::new(Hub), &[&[65_535], &[1024; 64]]);
    let bytes = frame(1, 65_535);
    let cuts: Vec<_> = (1..64).map(|i| i * 1000 + 17).collect();
    feed.send([Sent::cut(&bytes, &cuts)]);
    wait_until("it is returned", || feed.returned() == 1);
    for (_, ring) in &rings {
        assert_eq!(ring.take(|| 1024), [bytes.as_slice()]);
        ring.assert_no_wrongs();
    }
}

#[test]
fn a_packet_in_too_many_pieces_costs_its_sender_the_port() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(Hub)).unwrap();
    let (bad, good, ring) = (Feed::new(), Feed::new(), MemRing::new(0, &[2048; 8]));
    let home = || MemRing::new(0, &[2048; 8]).tx() as Arc<dyn Egress>;
    let (_, bad_faults) = rig::plug(&switch, bridge, "bad", vec![bad.queue()], vec![home()]);
    let (_, good_faults) = rig::plug(&switch, bridge, "good", vec![good.queue()], vec![home()]);
    rig::plug(&switch, bridge, "to", vec![], vec![ring.tx()]);
    let bytes = frame(7, 2000);
    bad.send([Sent::whole(&frame(1, 64)), Sent::cut(&bytes, &(1..65).collect::<Vec<_>>())]);
    wait_until("the fault is reported", || !bad_faults.seen().is_empty());
    assert_eq!(bad_faults.seen(), [Fault::Chain { max: 64 }]);
    good.send([Sent::whole(&frame(2, 64))]);
    wait_until("the other's is returned", || good.returned() == 1);
    assert_eq!(ring.take(|| 2048), [frame(1, 64), frame(2, 64)], "packets before the fault are delivered");
    assert_eq!(good_faults.seen(), []);
}

#[test]
fn runts_and_giants_are_counted_and_stop_nothing() {
    let (switch, feed, from, rings) = small(Arc::new(Hub), &[&[65_535; 4]]);
    feed.send([
        Sent::whole(&[1; 13]),
        Sent::whole(&frame(1, 14)),
        Sent::cut(&[2; 65_536], &[30_000]),
        Sent::whole(&frame(2, 65_535)),
        Sent::whole(&[]),
    ]);
    wait_until("all are returned", || feed.returned() == 5);
    assert_eq!(rings[0].1.take(|| 1), [frame(1, 14), frame(2, 65_535)]);
    assert_eq!(rig::drops(&switch, from, DropReason::Runt), 2);
    assert_eq!(rig::drops(&switch, from, DropReason::Oversize), 1);
}

#[test]
fn a_port_gets_its_own_packet_back_only_by_reflection() {
    struct Mirror;
    impl SwitchLogic for Mirror {
        fn forward(&self, batch: &mut Batch<'_>) {
            for v in batch.packets() {
                let home = batch.ingress();
                batch.send(v, home);
                batch.broadcast(v);
                if batch.header(v)[0] == 1 {
                    batch.reflect(v);
                }
            }
        }
    }
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(Mirror)).unwrap();
    let (feed, home, other) = (Feed::new(), MemRing::new(0, &[100; 4]), MemRing::new(0, &[100; 4]));
    let (port, _) = rig::plug(&switch, bridge, "a", vec![feed.queue()], vec![home.tx()]);
    rig::plug(&switch, bridge, "b", vec![], vec![other.tx()]);
    let packets: Vec<_> = [0, 1]
        .into_iter()
        .map(|kind| {
            let mut bytes = frame(kind, 60);
            bytes[0] = kind as u8;
            bytes
        })
        .collect();
    feed.send(packets.iter().map(|bytes| Sent::whole(bytes)));
    wait_until("both are returned", || feed.returned() == 2);
    assert_eq!(home.take(|| 100), packets[1..]);
    assert_eq!(other.take(|| 100), packets);
    wait_until("both are counted", || rig::drops(&switch, port, DropReason::SamePort) == 2);
}

#[test]
fn a_flood_without_receivers_is_counted() {
    let (switch, feed, from, _) = small(Arc::new(Hub), &[]);
    feed.send([Sent::whole(&frame(1, 60))]);
    wait_until("it is returned", || feed.returned() == 1);
    wait_until("it is counted", || rig::drops(&switch, from, DropReason::NoDestination) == 1);
    assert_eq!(rig::all_drops(&switch, from), 1);
}

#[test]
fn versions_beyond_the_bound_are_refused_and_counted() {
    /// Sends each packet to port 1 again and again, each time with a different first byte.
    struct Forks {
        made: AtomicU64,
        refused: AtomicU64,
    }
    impl SwitchLogic for Forks {
        fn forward(&self, batch: &mut Batch<'_>) {
            for v in batch.packets() {
                for i in 0..2 * EXTRA_VERSIONS {
                    let Some(fork) = batch.edit(v) else {
                        self.refused.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    batch.header_mut(fork).unwrap()[0] = i as u8;
                    batch.send(fork, PortIndex(1));
                    self.made.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
    let forks = Arc::new(Forks { made: AtomicU64::new(0), refused: AtomicU64::new(0) });
    let (switch, feed, from, rings) = small(forks.clone(), &[&[64; 4096]]);
    let bytes = frame(9, 64);
    feed.send([Sent::whole(&bytes)]);
    wait_until("it is returned", || feed.returned() == 1);
    let (made, refused) = (forks.made.load(Ordering::Relaxed), forks.refused.load(Ordering::Relaxed));
    assert!(made >= EXTRA_VERSIONS as u64 && refused > 0, "{made} made, {refused} refused");
    let got = rings[0].1.take(|| 64);
    assert_eq!(got.len() as u64, made);
    for (i, packet) in got.iter().enumerate() {
        assert_eq!((packet[0], &packet[1..]), (i as u8, &bytes[1..]));
    }
    wait_until("all refusals are counted", || rig::drops(&switch, from, DropReason::BatchLimit) == refused);
}

#[test]
fn pulling_gives_as_much_as_there_is_and_never_more_than_512() {
    struct Puller(Mutex<Vec<String>>);
    impl SwitchLogic for Puller {
        fn forward(&self, batch: &mut Batch<'_>) {
            for v in batch.packets() {
                let whole = frame(id_of(batch.header(v)), batch.len(v) as usize);
                let check = |ok: bool, what: &str| {
                    if !ok {
                        self.0.lock().unwrap().push(format!("{what}, packet of {}", whole.len()));
                    }
                };
                check(batch.header(v) == &whole[..whole.len().min(128)], "the header");
                if id_of(batch.header(v)) >= 100 {
                    batch.send(v, PortIndex(1));
                    check(batch.pull(v, 512) == whole.len().min(128), "pull on a version that was sent");
                    check(
                        batch.header(v).len() == whole.len().min(128),
                        "header length of a version that was sent",
                    );
                    check(batch.header_mut(v).is_none(), "edit of a version that was sent");
                    continue;
                }
                for n in [0, 100, 129, 300, 512, 10_000] {
                    let got = batch.pull(v, n);
                    check(got == batch.header(v).len(), "the returned length");
                    check(got >= n.min(512).min(whole.len()) && got <= 512, "the pulled length");
                    check(batch.header(v) == &whole[..got], "the header after pull");
                    check(batch.len(v) as usize == whole.len(), "the length");
                }
                batch.send(v, PortIndex(1));
            }
        }
    }
    let puller = Arc::new(Puller(Mutex::default()));
    let (_switch, feed, _, rings) = small(puller.clone(), &[&[2048; 16]]);
    let lens = [14, 127, 128, 129, 511, 512, 513, 2000];
    let packets: Vec<_> = (0..).zip(lens).chain((100..).zip(lens)).map(|(id, len)| frame(id, len)).collect();
    feed.send(packets.iter().zip(0..).map(|(bytes, i)| Sent::cut(bytes, &[40 * i, 131, 130])));
    wait_until("all are returned", || feed.returned() == packets.len() as u64);
    assert_eq!(*puller.0.lock().unwrap(), [""; 0]);
    assert_eq!(rings[0].1.take(|| 1), packets);
}

/// The sender rewrites its packet while the logic decides: the bytes decided on are the bytes delivered.
#[test]
fn the_bytes_decided_on_are_the_bytes_sent() {
    struct Shared(*mut u8, usize);
    // SAFETY: the test keeps the memory alive and accesses it only from the logic, on the worker.
    unsafe impl Send for Shared {}
    // SAFETY: as above.
    unsafe impl Sync for Shared {}
    struct Racer(Shared);
    impl SwitchLogic for Racer {
        fn forward(&self, batch: &mut Batch<'_>) {
            // SAFETY: see `Shared`; the fabric holds no reference into client memory.
            unsafe { std::ptr::write_bytes(self.0.0, 0xBB, self.0.1) };
            for v in batch.packets() {
                batch.send(v, PortIndex(0));
            }
        }
    }
    struct Lender(Arc<Feed>, Shared, bool);
    impl fabric::RxQueue for Lender {
        fn receive(&mut self, batch: &mut fabric::RxBatch) -> Result<(), Fault> {
            if !std::mem::replace(&mut self.2, true)
                && let Some(at) = std::ptr::NonNull::new(self.1.0)
            {
                // SAFETY: see `Shared`.
                unsafe { batch.add_segment(at, self.1.1 as u32)? };
                batch.end_packet(packet::Offload::NONE);
            }
            Ok(())
        }
        fn complete(&mut self, _: &mut fabric::Tools) -> Result<(), Fault> {
            self.0.returned.store(1, Ordering::Release);
            Ok(())
        }
        fn set_signalled(&mut self, _: bool) {}
        fn signal(&self) -> std::os::fd::BorrowedFd<'_> {
            static DEVICE: std::sync::OnceLock<std::os::fd::OwnedFd> = std::sync::OnceLock::new();
            use std::os::fd::AsFd;
            DEVICE
                .get_or_init(|| rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap())
                .as_fd()
        }
        fn cheap_to_poll(&self) -> bool {
            true
        }
    }
    let before = frame(3, 400);
    let mut memory = before.clone();
    let (at, len) = (memory.as_mut_ptr(), memory.len());
    let feed = Feed::new();
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(Racer(Shared(at, len)))).unwrap();
    let ring = MemRing::new(0, &[2048; 4]);
    let home: Arc<dyn Egress> = MemRing::new(0, &[2048; 4]).tx();
    let lender = Lender(feed.clone(), Shared(at, len), false);
    rig::plug(&switch, bridge, "to", vec![], vec![ring.tx()]);
    rig::plug(&switch, bridge, "from", vec![Box::new(lender)], vec![home]);
    wait_until("it is returned", || feed.returned() == 1);
    let [got] = &ring.take(|| 1)[..] else { panic!("one packet was sent") };
    assert_eq!(got[..128], before[..128]);
    assert_eq!(got[128..], [0xBB; 272]);
    drop(switch);
    drop(memory);
}

/// Unicast and flooded packets for one destination keep the order of arrival.
#[test]
fn unicast_and_flooded_packets_stay_interleaved() {
    struct Alternating;
    impl SwitchLogic for Alternating {
        fn forward(&self, batch: &mut Batch<'_>) {
            for v in batch.packets() {
                match id_of(batch.header(v)) % 3 {
                    0 => batch.broadcast(v),
                    n => batch.send(v, PortIndex(n as u16)),
                }
            }
        }
    }
    let (_switch, feed, _, rings) = small(Arc::new(Alternating), &[&[100; 256], &[100; 256]]);
    feed.send((0..200).map(|id| Sent::whole(&frame(id, 60))));
    wait_until("all are returned", || feed.returned() == 200);
    for (i, (_, ring)) in rings.iter().enumerate() {
        let wanted = (0..200).filter(|id| id % 3 == 0 || id % 3 == i as u64 + 1);
        assert_eq!(ring.take(|| 100), wanted.map(|id| frame(id, 60)).collect::<Vec<_>>());
    }
}

/// The limits of a batch hold in packets and in bytes.
#[test]
fn batches_are_bounded_in_packets_and_in_bytes() {
    use fabric::rx::BatchLimits;
    struct Measure(Mutex<Vec<(usize, u64)>>);
    impl SwitchLogic for Measure {
        fn forward(&self, batch: &mut Batch<'_>) {
            let bytes = batch.packets().map(|v| u64::from(batch.len(v))).sum();
            self.0.lock().unwrap().push((batch.packets().count(), bytes));
        }
    }
    let measure = Arc::new(Measure(Mutex::default()));
    let batch = BatchLimits { packets: 16, bytes: 10_000 };
    let options = fabric::SwitchOptions { batch, ..fabric::SwitchOptions::default() };
    let switch = Switch::start(&options).unwrap();
    let bridge = switch.add_bridge("b", measure.clone()).unwrap();
    let (feed, home) = (Feed::new(), MemRing::new(0, &[2048; 4]));
    feed.publish((0..100).map(|id| Sent::whole(&frame(id, 60))));
    feed.publish((100..120).map(|id| Sent::whole(&frame(id, 6000))));
    feed.publish((120..124).map(|id| Sent::whole(&frame(id, 65_535))));
    rig::plug(&switch, bridge, "a", vec![feed.queue()], vec![home.tx()]);
    wait_until("all are returned", || feed.returned() == 124);
    let batches = measure.0.lock().unwrap();
    assert_eq!(batches.iter().map(|b| b.0).sum::<usize>(), 124);
    assert!(batches.iter().all(|(packets, _)| *packets <= 16), "{batches:?}");
    // Only the packet that crosses the limit exceeds it.
    assert!(batches.iter().all(|(_, bytes)| *bytes < 10_000 + 65_535), "{batches:?}");
    assert!(batches.contains(&(2, 12_000)) && batches.contains(&(1, 65_535)), "{batches:?}");
}

/// A receiver that takes back posted buffers cannot make the switch use a ring beyond its end.
#[test]
fn a_receiver_that_rewinds_its_index_loses_its_port() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let (feed, ring, other) = (Feed::new(), MemRing::new(0, &[64; 32]), MemRing::new(0, &[64; 32]));
    let home: Arc<dyn Egress> = MemRing::new(0, &[64; 4]).tx();
    rig::plug(&switch, bridge, "from", vec![feed.queue()], vec![home]);
    let (_, faults) = rig::plug(&switch, bridge, "liar", vec![], vec![ring.tx()]);
    let (_, other_faults) = rig::plug(&switch, bridge, "other", vec![], vec![other.tx()]);
    let to = |port: u8, id| {
        let mut bytes = frame(id, 60);
        bytes[0] = port;
        bytes
    };
    // Eight are posted; one packet makes the switch look at all of them.
    ring.rewind(24);
    feed.send([Sent::whole(&to(1, 0))]);
    wait_until("one is published", || ring.published() == 1);
    // Six are taken back, which leaves a valid index, but one behind the entries already viewed.
    ring.rewind(6);
    feed.send((1..32).map(|id| Sent::whole(&to(1, id))).chain([Sent::whole(&to(2, 32))]));
    wait_until("they are returned", || feed.returned() == 33);
    ring.assert_no_wrongs();
    assert!(ring.published() <= 8, "{} entries used of 8 posted", ring.published());
    assert!(matches!(faults.seen()[..], [Fault::RingIndex { .. }]), "{:?}", faults.seen());
    assert_eq!(other.take(|| 64), [to(2, 32)]);
    assert_eq!(other_faults.seen(), []);
}

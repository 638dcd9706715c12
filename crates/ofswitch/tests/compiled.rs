//! Flows as machine code, against the interpreter: random flows and packets, before and after the code is specialised.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::{Arc, Mutex};

use codegen::{Effects, Engine, Options, Worker};
use ofswitch::{ConnectionId, ConnectionKind, Follower, LIMITS, PortCounters, Settings, Switch};
use openflow::message::{Body, FlowModCommand, Hello, PortConfig, Versions};
use openflow::text::parse_flow;
use openflow::{Message, PortNo, Version};
use pipeline::fuzzing::World;
use pipeline::interp::{self, Received};
use pipeline::ir::ActionId;
use pipeline::state::{Bundle, State};

const VERSION: Version = Version::V1_3;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn of<'t>(&mut self, list: &[&'t str]) -> &'t str {
        list[self.below(list.len())]
    }
}

const MATCHES: &[&str] = &[
    "",
    "in_port=1",
    "in_port=2",
    "dl_dst=02:00:00:00:00:01",
    "dl_src=02:00:00:00:00:02/ff:ff:00:00:00:00",
    "ip",
    "ip,nw_dst=10.0.0.0/8",
    "ip,nw_dst=10.0.0.1",
    "ip,nw_src=10.0.0.2,nw_tos=16",
    "udp,tp_dst=80",
    "udp,tp_src=0x50/0xfff0",
    "tcp,tcp_flags=0x2/0x2",
    "icmp,icmp_type=8",
    "ipv6,ipv6_dst=fe80::1",
    "icmp6,icmpv6_type=135,nd_target=fe80::1",
    "arp,arp_op=1,arp_tpa=10.0.0.1",
    "dl_vlan=5",
    "vlan_tci=0",
    "mpls,mpls_label=7",
    "ip,ip_frag=no",
    "ip,ip_frag=yes",
    "metadata=0x1/0xf",
    "reg0=3",
    "dl_vlan=5,ip,nw_proto=17",
];

const ACTIONS: &[&str] = &[
    "output:2",
    "output:3,output:in_port",
    "flood",
    "normal",
    "controller",
    "drop",
    "set_field:02:00:00:00:00:07->eth_dst,output:2",
    "dec_ttl,output:3",
    "output:2,push_vlan:0x8100,set_field:4101->vlan_vid,output:3",
    "pop_vlan,output:2",
    "load:3->NXM_NX_REG0[],output:2",
    "write_actions(output:4),goto_table:TABLE",
    "write_metadata:1/0xf,goto_table:TABLE",
    "goto_table:TABLE",
    "set_field:10.0.0.9->ip_dst,goto_table:TABLE",
    "set_queue:3,output:2",
    "resubmit(,TABLE),output:3",
    "push_mpls:0x8847,set_field:7->mpls_label,output:2",
];

fn flow(random: &mut Random) -> String {
    let table = random.below(4);
    let actions = loop {
        let actions = random.of(ACTIONS);
        if table < 3 || !actions.contains("TABLE") {
            break actions.replace("TABLE", &(table + 1).to_string());
        }
    };
    let (priority, matches) = (random.below(5), random.of(MATCHES));
    format!("table={table},priority={priority},{matches},actions={actions}").replace(",,", ",")
}

fn packet(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, random.below(3) as u8, 2, 0, 0, 0, 0, random.below(3) as u8];
    for _ in 0..random.below(3) {
        bytes.extend([0x81, 0, 0, 5]);
    }
    let kind = random.below(6);
    match kind {
        0..3 => {
            let protocol = [6, 17, 1, 132][random.below(4)];
            let fragment = [0, 0, 0, 0x20, 1][random.below(5)];
            let words = 5 + random.below(2) as u8;
            bytes.extend([8, 0, 0x40 | words, [0, 16][random.below(2)], 0, 60, 0, 1, fragment, 0]);
            bytes.extend([
                random.below(3) as u8,
                protocol,
                0,
                0,
                10,
                0,
                0,
                2,
                10,
                0,
                0,
                random.below(3) as u8,
            ]);
            bytes.extend(vec![1; usize::from(words - 5) * 4]);
            bytes.extend([0, [80, 8][random.below(2)], 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2]);
        }
        3 => {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, [58, 17, 0, 44][random.below(4)], 64]);
            bytes.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            bytes.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            bytes.extend([[135, 58][random.below(2)], 0, 0, 0, 0, 0, 0, 0]);
            bytes.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 0, 0, 0, 0, 1]);
        }
        4 => {
            bytes.extend([
                8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1,
            ]);
        }
        _ => bytes.extend([0x88, 0x47, 0, 0, 0x70 | random.below(2) as u8, 64, 0, 0, 0x71, 64, 0x45, 0]),
    }
    if random.below(3) > 0 {
        bytes.resize(bytes.len().max(60), 0);
    } else {
        bytes.truncate(14 + random.below(bytes.len()));
    }
    bytes
}

/// The program of flows in the interpreter and as code, each with a state of its own.
struct Pair {
    switches: [(Switch, ConnectionId); 2],
    engine: Arc<Mutex<Engine>>,
    worker: Worker,
}

/// Keeps the engine in step with its switch.
#[derive(Debug)]
struct Following(Arc<Mutex<Engine>>);

impl Follower for Following {
    fn applied(&mut self, state: &State, bundle: &Bundle) {
        self.0.lock().unwrap().follow(state, bundle).unwrap();
    }

    fn forgotten(&mut self, actions: &[ActionId]) {
        self.0.lock().unwrap().forget(actions);
    }

    fn configured(&mut self, _: &[(PortNo, PortConfig)]) {}

    fn flags(&mut self, flags: u64) {
        self.0.lock().unwrap().expect_flags(flags);
    }

    fn counters(&mut self, _: PortNo) -> Option<PortCounters> {
        None
    }
}

impl Pair {
    fn new() -> Self {
        let mut switches = [0; 2].map(|_| {
            let mut switch = Switch::new(Settings::default());
            let id = switch.connect(ConnectionKind::Service).unwrap();
            let hello = Message::new(VERSION, 1, Body::Hello(Hello::new(Versions::from_iter([VERSION]))));
            switch.receive(id, &hello.encode().unwrap(), 0);
            (switch, id)
        });
        let followed = &mut switches[1].0;
        let options = Options { limits: LIMITS, ..Options::default() };
        let engine = Arc::new(Mutex::new(Engine::new(followed.state(), options).unwrap()));
        followed.set_follower(|_| Box::new(Following(engine.clone())));
        Self { switches, engine, worker: Worker::new() }
    }

    fn flow_mod(&mut self, text: &str, command: FlowModCommand) {
        let flow = parse_flow(text, command, VERSION).unwrap_or_else(|error| panic!("{text}: {error}"));
        let message = Message::new(VERSION, 2, Body::FlowMod(Box::new(flow))).encode().unwrap();
        self.switches.iter_mut().for_each(|(switch, id)| switch.receive(*id, &message, 0));
    }

    fn is_specialised(&self) -> bool {
        self.engine.lock().unwrap().is_specialised()
    }

    fn check(&mut self, packets: &[(u32, Vec<u8>)], flows: &[String]) {
        let received: Vec<_> = packets.iter().map(|(port, bytes)| Received::whole(bytes, *port)).collect();
        let world = || World { now: 1_000_000, seed: 7 };
        let (mut effects, mut fates) = (Effects::default(), vec![]);
        let views = self.engine.lock().unwrap().views();
        let batch = received.iter().copied();
        self.worker.run_batch(&views.load(), &mut world(), batch, &mut effects, &mut fates);
        let found = effects.to_interp_each(&fates, received.iter().map(|packet| packet.len));
        for (received, found) in received.iter().zip(found) {
            let outcome = interp::run(self.switches[0].0.state(), &mut world(), received, &LIMITS, false);
            let canonical = |effects: &[interp::Effect]| -> Vec<_> {
                effects.iter().map(|effect| effect.clone().canonical(received)).collect()
            };
            assert_eq!(
                canonical(&found),
                canonical(&outcome.effects),
                "specialised: {}, flows: {flows:#?}, packet: {:x?}",
                self.is_specialised(),
                received.visible
            );
        }
        assert_eq!(self.counts(0), self.counts(1), "flows: {flows:#?}");
    }

    fn counts(&self, i: usize) -> Vec<String> {
        let state = self.switches[i].0.state();
        let tables = (0..state.program().tables.len()).map(pipeline::ir::TableId::at);
        let of_table = |id| {
            let table = state.table(id)?;
            let entries: Vec<_> = table.entries().map(|entry| (entry.id, entry.stats.hits())).collect();
            Some(format!("{:?} {entries:?}", table.lookups()))
        };
        tables.filter_map(of_table).collect()
    }
}

#[test]
fn random_flows_agree() {
    let mut pair = Pair::new();
    let mut random = Random(1);
    let mut specialised = 0;
    for _ in 0..60 {
        pair.flow_mod("", FlowModCommand::Delete);
        let flows: Vec<_> = (0..1 + random.below(14)).map(|_| flow(&mut random)).collect();
        let (early, late) = flows.split_at(flows.len() / 2);
        for some in [early, late] {
            some.iter().for_each(|flow| pair.flow_mod(flow, FlowModCommand::Add));
            for _ in 0..2 {
                let packets: Vec<_> =
                    (0..16).map(|_| (1 + random.below(3) as u32, packet(&mut random))).collect();
                // Packets of the second batch may follow those of the first.
                (0..2).for_each(|_| pair.check(&packets, &flows));
                let mut others = packets.clone();
                for (_, bytes) in &mut others {
                    let at = random.below(bytes.len().max(1));
                    bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8));
                    if random.below(8) == 0 {
                        bytes.truncate(random.below(bytes.len() + 1));
                    }
                }
                (0..2).for_each(|_| pair.check(&others, &flows));
                specialised += usize::from(pair.is_specialised());
                pair.engine.lock().unwrap().improve();
            }
        }
    }
    assert!(pair.worker.remembered() > 200, "{} packets went remembered ways", pair.worker.remembered());
    assert!(pair.worker.unparsed() > 100, "{} packets were not parsed", pair.worker.unparsed());
    assert!(specialised > 30, "{specialised} of 240 batches ran specialised code");
}

#[test]
fn packets_that_are_resubmitted_run_specialised_code_and_go_remembered_ways() {
    let mut pair = Pair::new();
    let flows = [
        "actions=resubmit(,1),resubmit(,2)",
        "table=1,ip,actions=load:7->NXM_NX_REG0[],resubmit(,3)",
        "table=2,reg0=7,actions=output:2",
        "table=3,udp,actions=output:3",
    ]
    .map(str::to_owned);
    flows.iter().for_each(|flow| pair.flow_mod(flow, FlowModCommand::Add));
    pair.engine.lock().unwrap().improve();
    let one = packet(&mut Random(5));
    let packets: Vec<_> = (0..16).map(|_| (1, one.clone())).collect();
    (0..4).for_each(|_| pair.check(&packets, &flows));
    assert!(pair.is_specialised());
    assert!(pair.worker.remembered() >= 32, "{}", pair.worker.remembered());
}

//! Flow tables as machine code, against the interpreter: two switches that get the same messages and packets.
//!
//! Invariants:
//! - Effects of packets and counters of entries are those of the interpreter: by code for any flows, by code that is
//!   specialised for these, and after flows were changed, learned and removed.
//! - Both switches send the same replies, and agree on what may be changed.
//! - What is not compiled has a reason: stack or code above the limits, nothing else.
#![no_main]

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use codegen::{Code, Effects, Engine, Options, Unsupported, Worker};
use libfuzzer_sys::fuzz_target;
use ofswitch::{
    ConnectionId, ConnectionKind, Follower, LIMITS, Limits, PortCounters, PortInfo, Settings, Switch,
};
use openflow::message::{
    Body, FlowModCommand, GroupModCommand, Hello, MeterModCommand, PortConfig, Versions,
};
use openflow::{Message, PortNo, Version, text};
use pipeline::fuzzing::World;
use pipeline::interp::{self, Effect, Form, Received};
use pipeline::ir::{ActionId, GroupTableId, TableId};
use pipeline::state::{Bundle, State};
use support::Bytes;
use support::flows::{self, Theme};

/// Small tables, so that an input takes milliseconds.
fn small() -> Limits {
    Limits {
        flows_per_table: 48,
        flows: 96,
        groups: 4,
        buckets: 4,
        meters: 3,
        bands: 2,
        bundles: 1,
        conjunctions: 48,
        buffers: 2,
        ..Limits::default()
    }
}
/// Messages and packets of an input.
const TURNS: usize = 32;
/// Bytes of a message that the input spells out.
const RAW: usize = 512;
/// Times that code is specialised for an input before its end.
const SPECIALISATIONS: usize = 1;
/// As in the data path, but for the memory that an input may take.
const OPTIONS: Options = Options { limits: LIMITS, code: 16 << 20, stack: 1 << 20 };

/// Code of the program, which takes longer to compile than all flows.
static PROGRAM: LazyLock<Arc<Code>> = LazyLock::new(|| {
    let switch = Switch::new(Settings::default());
    Arc::new(codegen::compile(switch.state().program(), &OPTIONS).unwrap_or_else(|error| panic!("{error}")))
});

/// Generated code that follows a switch; without an engine after changes that it refused.
#[derive(Debug)]
struct Compiled {
    engine: Option<Engine>,
    flags: u64,
}

#[derive(Debug)]
struct Following(Arc<Mutex<Compiled>>);

fn lock(compiled: &Mutex<Compiled>) -> MutexGuard<'_, Compiled> {
    compiled.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Follower for Following {
    fn applied(&mut self, state: &State, bundle: &Bundle) {
        let mut compiled = lock(&self.0);
        match compiled.engine.as_mut().map(|engine| engine.follow(state, bundle)) {
            None | Some(Ok(())) => {}
            Some(Err(Unsupported::Stack { .. } | Unsupported::Code { .. })) => compiled.engine = None,
            Some(Err(other)) => panic!("{other}"),
        }
    }

    fn forgotten(&mut self, actions: &[ActionId]) {
        lock(&self.0).engine.iter_mut().for_each(|engine| engine.forget(actions));
    }

    fn configured(&mut self, _: &[(PortNo, PortConfig)]) {}

    fn flags(&mut self, flags: u64) {
        let mut compiled = lock(&self.0);
        compiled.flags = flags;
        compiled.engine.iter_mut().for_each(|engine| engine.expect_flags(flags));
    }

    fn counters(&mut self, _: PortNo) -> Option<PortCounters> {
        None
    }
}

/// A switch whose packets the interpreter runs, and one whose packets run code.
struct Pair {
    switches: [(Switch, ConnectionId); 2],
    compiled: Arc<Mutex<Compiled>>,
    worker: Worker,
    version: Version,
    now: u64,
}

impl Pair {
    fn new(version: Version) -> Self {
        let mut switches = [(); 2].map(|()| {
            let mut switch = Switch::new(Settings { limits: small(), ..Settings::default() });
            for number in 1..=4 {
                let (name, address) = (format!("p{number}"), [2, 0, 0, 0, 1, number as u8]);
                let port = PortInfo::new(PortNo(number), name, address);
                switch.set_port(port, 0).unwrap_or_else(|error| panic!("{error}"));
            }
            let Some(id) = switch.connect(ConnectionKind::Service) else { panic!("no connection") };
            (switch, id)
        });
        let engine = Engine::with_code(switches[1].0.state(), PROGRAM.clone(), OPTIONS);
        let engine = Some(engine.unwrap_or_else(|error| panic!("{error}")));
        let compiled = Arc::new(Mutex::new(Compiled { engine, flags: 0 }));
        switches[1].0.set_follower(|_| Box::new(Following(compiled.clone())));
        let mut pair = Self { switches, compiled, worker: Worker::new(), version, now: 1_000_000 };
        pair.send(Body::Hello(Hello::new(Versions::from_iter([version]))));
        pair
    }

    fn send(&mut self, body: Body) {
        // Versions lack some messages and fields.
        if let Ok(bytes) = Message::new(self.version, 1, body).encode() {
            self.receive(&bytes);
        }
    }

    /// Gives both a message, and compares what they reply and do.
    fn receive(&mut self, message: &[u8]) {
        let now = self.now;
        let [one, other] = self.switches.each_mut().map(|(switch, id)| {
            switch.receive(*id, message, now);
            let mut replies = vec![];
            while let Some(reply) = switch.next_message(*id) {
                replies.push(reply);
            }
            (replies, switch.take_effects())
        });
        assert_eq!(one, other);
    }

    fn flow_mod(&mut self, flow: &str, command: FlowModCommand) {
        // Versions lack some fields and actions, and fields may exclude each other.
        if let Ok(flow) = text::parse_flow(flow, command, self.version) {
            self.send(Body::FlowMod(Box::new(flow)));
        }
    }

    /// Runs two batches of a packet on both, and compares the effects: those behind the first may follow its way, and
    /// the second batch may find it without a parser. What it teaches is learned by both.
    fn run(&mut self, port: u32, packet: &[u8]) {
        let compiled = lock(&self.compiled);
        let Some(engine) = &compiled.engine else { return };
        let received = Received { flags: compiled.flags, time: self.now, ..Received::whole(packet, port) };
        let world = || World { now: self.now, seed: 7 };
        let (state, mut of_interpreter, mut of_code) = (self.switches[0].0.state(), world(), world());
        let outcomes = [(); 4].map(|()| interp::run(state, &mut of_interpreter, &received, &LIMITS, false));
        let (mut effects, mut fates) = (Effects::default(), vec![]);
        for _ in 0..2 {
            let batch = [received; 2];
            self.worker.run_batch(&engine.views().load(), &mut of_code, batch, &mut effects, &mut fates);
        }
        drop(compiled);
        let whole = |effects: Vec<Effect>| -> Vec<_> {
            effects.into_iter().map(|effect| with_bytes(effect, &received)).collect()
        };
        let found = effects.to_interp_each(&fates, [received.len; 4]).into_iter().map(whole);
        let expected = outcomes.map(|outcome| whole(outcome.effects));
        assert_eq!(found.collect::<Vec<_>>(), expected);
        let expected = expected.concat();
        for effect in expected {
            if let Effect::Digest { digest, values } = effect {
                let now = self.now;
                for (switch, _) in &mut self.switches {
                    switch.process_digest(digest, &values, now);
                }
            }
        }
    }

    fn check(&mut self, packets: &[(u32, Vec<u8>)]) {
        for (port, packet) in packets {
            self.run(*port, packet);
        }
        if lock(&self.compiled).engine.is_some() {
            let [one, other] = self.switches.each_ref().map(|(switch, _)| counts(switch.state()));
            assert_eq!(one, other);
        }
    }

    fn specialise(&mut self) {
        lock(&self.compiled).engine.iter_mut().for_each(|engine| _ = engine.improve());
    }
}

/// An effect with all bytes of its packet as new ones, whatever form it has.
fn with_bytes(mut effect: Effect, received: &Received<'_>) -> Effect {
    if let Effect::Output { packet, .. } | Effect::Controller { packet, .. } = &mut effect {
        *packet = Form { head: packet.bytes(received), from: 0, to: 0 };
    }
    effect
}

/// Counters of tables, their entries and groups.
fn counts(state: &State) -> Vec<String> {
    let program = state.program();
    let tables = (0..program.tables.len()).filter_map(|i| state.table(TableId::at(i)));
    let used = tables.filter(|table| !table.is_empty() || table.lookups() != (0, 0));
    let entries = used.map(|table| {
        let hits: Vec<_> = table.entries().map(|entry| (entry.id, entry.stats.hits())).collect();
        format!("{:?} {hits:?}", table.lookups())
    });
    let groups = (0..program.groups.len()).flat_map(|i| state.groups(GroupTableId::at(i)));
    let groups = groups.map(|(number, group)| format!("{number} {:?} {:?}", group.stats, group.bucket_stats));
    entries.chain(groups).collect()
}

fn run(data: &[u8]) {
    let mut input = Bytes::new(data);
    let version = Version::ALL[input.below(Version::ALL.len())];
    let theme = Theme::read(&mut input);
    let mut pair = Pair::new(version);
    for flow in flows::base(&mut input, theme) {
        pair.flow_mod(&flow, FlowModCommand::Add);
    }
    let mut packets = vec![];
    let mut specialisations = 0;
    for _ in 0..TURNS {
        if input.is_empty() {
            break;
        }
        match input.u8() % 16 {
            0..=4 => pair.flow_mod(&flows::flow(&mut input, theme), FlowModCommand::Add),
            5 => {
                for flow in flows::alike(&mut input) {
                    pair.flow_mod(&flow, FlowModCommand::Add);
                }
            }
            6 => pair.flow_mod(&flows::flow(&mut input, theme), FlowModCommand::Modify),
            7 => {
                let (matches, _) = flows::matching(&mut input, theme);
                pair.flow_mod(&matches, FlowModCommand::Delete);
            }
            8 | 9 => {
                let command = if input.flag() { GroupModCommand::Add } else { GroupModCommand::Modify };
                if let Ok(group) = text::parse_group(&flows::group(&mut input, theme), command, version) {
                    pair.send(Body::GroupMod(group));
                }
            }
            10 => {
                if let Ok(meter) = text::parse_meter(&flows::meter(&mut input), MeterModCommand::Add) {
                    pair.send(Body::MeterMod(meter));
                }
            }
            11 => {
                let message_type = input.u8();
                let len = usize::from(input.u16()) % RAW;
                let body = input.slice(len);
                let len = (body.len() + 8) as u16;
                let header = [version.number(), message_type];
                pair.receive(&[&header, &len.to_be_bytes()[..], &[0, 0, 0, 1], body].concat());
            }
            12 => {
                pair.check(&packets);
                if specialisations < SPECIALISATIONS {
                    specialisations += 1;
                    pair.specialise();
                    pair.check(&packets);
                }
            }
            13 => {
                pair.now += u64::from(input.u8()) * 100_000_000;
                let now = pair.now;
                pair.switches.iter_mut().for_each(|(switch, _)| switch.tick(now));
            }
            _ => packets.push((1 + input.below(3) as u32, flows::packet(&mut input, theme))),
        }
    }
    packets.push((1, vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 20]));
    pair.check(&packets);
    pair.specialise();
    pair.check(&packets);
    pair.flow_mod("", FlowModCommand::Delete);
    pair.check(&packets);
    assert!(pair.switches.iter().all(|(switch, _)| switch.is_consistent()));
}

// Compiled before the first input, whose time is limited.
fuzz_target!(init: { LazyLock::force(&PROGRAM); }, |data: &[u8]| run(data));

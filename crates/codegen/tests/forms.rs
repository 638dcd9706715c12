//! Tables of hosts or of routes, with a few other entries beside them: the form that they get, and that every single
//! change is met by the next packet.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;

use codegen::Form;
use pipeline::interp::{Effect, Exit, Limits, Received};
use pipeline::ir::{EntryResult, TableId};
use pipeline::state::{EntryId, Update};
use pipeline::{Checked, text};
use support::Pair;

/// A flow table in the manner of OpenFlow: any mask on any key.
const PROGRAM: &str = "program forms {
  header h_t { kind: bit<16>; host: bit<16>; dst: bit<32>; } instance h: h_t;
  action to(port: bit<32>) { send current port $port; }
  table t { key kind: ternary = h.kind; key host: ternary = h.host; key dst: ternary = h.dst; actions to; size 1000; }
  parser p { state start { extract h; goto accept; } }
  block control { apply t; }
  stage s { parser p; control control; }
}";

struct Rig {
    pair: Pair,
    program: Checked,
}

impl Rig {
    fn new() -> Self {
        let program = Checked::new(text::parse(PROGRAM).unwrap_or_else(|error| panic!("{error}"))).unwrap();
        Self { pair: Pair::new(&program, Limits::default()), program }
    }

    fn update(&mut self, update: Update) {
        assert!(self.pair.apply(vec![update]));
    }

    fn insert(&mut self, priority: u32, condition: &str, port: u32) -> EntryId {
        let entry = format!("entry priority {priority} {{ {condition} }} -> to(32w{port});");
        let entry = text::parse_entry(&self.program, TableId(0), &entry, &|_| None).unwrap();
        self.update(Update::Insert(TableId(0), entry));
        let entries = self.pair.compiled.table(TableId(0)).unwrap().entries();
        entries.map(|entry| entry.id).max_by_key(|id| id.0).unwrap()
    }

    fn route(&mut self, priority: u32, dst: u32, len: u32, port: u32) -> EntryId {
        let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
        let dst = dst & mask;
        self.insert(priority, &format!("kind: 16w0x800 &&& 16w0xffff; dst: 32w{dst} &&& 32w{mask};"), port)
    }

    fn redirect(&mut self, id: EntryId, port: u32) {
        let like = self.pair.compiled.table(TableId(0)).unwrap().get(id).unwrap().entry.clone();
        let other = format!("entry priority 1 {{ }} -> to(32w{port});");
        let result = text::parse_entry(&self.program, TableId(0), &other, &|_| None).unwrap().result;
        assert!(matches!(result, EntryResult::Action(_)));
        self.update(Update::Modify(TableId(0), pipeline::ir::Entry { result, ..like }));
    }

    fn form(&self) -> Form {
        self.pair.engine.table(TableId(0)).unwrap().form
    }

    /// Port that a packet leaves by, in code as in the interpreter, alone and in a batch.
    fn port(&mut self, kind: u16, host: u16, dst: u32) -> Option<u32> {
        let packet = [&kind.to_be_bytes()[..], &host.to_be_bytes(), &dst.to_be_bytes()].concat();
        let alone = self.pair.check(&Received::whole(&packet, 7));
        let batch = self.pair.check_batch(&[Received::whole(&packet, 7), Received::whole(&packet, 8)]);
        assert_eq!(batch, [alone.clone(), alone.clone()].concat());
        match alone[..] {
            [Effect::Output { to: Exit::Port(port), .. }] => Some(port),
            _ => None,
        }
    }
}

#[test]
fn routes_with_arp_and_a_last_entry_are_prefixes() {
    let mut rig = Rig::new();
    let miss = rig.insert(0, "", 1);
    let arp = rig.insert(40_000, "kind: 16w0x806 &&& 16w0xffff;", 2);
    for i in 0..600u32 {
        let len = 8 + i % 25;
        rig.route(len, 0x8000_0000 | i.wrapping_mul(0x9e37_79b9), len, 100 + i);
    }
    let short = rig.route(9, 0x0a00_0000, 9, 10);
    let long = rig.route(24, 0x0a01_0200, 24, 11);
    assert_eq!(rig.form(), Form::Prefix);
    assert_eq!(rig.port(0x800, 0, 0x0a01_0203), Some(11));
    assert_eq!(rig.port(0x800, 0, 0x0a01_0303), Some(10));
    assert_eq!(rig.port(0x806, 0, 0x0a01_0203), Some(2));
    assert_eq!(rig.port(0x86dd, 0, 0x0a01_0203), Some(1));
    for (id, port) in [(miss, 21), (arp, 22), (short, 23), (long, 24)] {
        rig.redirect(id, port);
    }
    assert_eq!(rig.port(0x800, 0, 0x0a01_0203), Some(24));
    assert_eq!(rig.port(0x800, 0, 0x0a01_0303), Some(23));
    assert_eq!(rig.port(0x806, 0, 0x0a01_0203), Some(22));
    assert_eq!(rig.port(0x86dd, 0, 0x0a01_0203), Some(21));
    // What precedes all routes, one by one.
    let first = rig.insert(50_000, "host: 16w5 &&& 16w0xffff;", 31);
    let drop_net = rig.route(60_000, 0x0a00_0000, 8, 32);
    assert_eq!((rig.port(0x800, 5, 0x0a01_0203), rig.port(0x800, 5, 0x0b01_0203)), (Some(32), Some(31)));
    assert_eq!(rig.form(), Form::Prefix);
    for id in [drop_net, first, miss] {
        rig.update(Update::Delete(TableId(0), id));
    }
    assert_eq!(rig.port(0x800, 5, 0x0a01_0203), Some(24));
    assert_eq!(rig.port(0x86dd, 5, 0x0a01_0203), None);
    assert_eq!(rig.form(), Form::Prefix);
    // An entry between the routes.
    let middle = rig.insert(16, "host: 16w6 &&& 16w0xffff;", 33);
    assert_eq!(rig.form(), Form::Classifier);
    assert_eq!((rig.port(0x800, 6, 0x0a01_0203), rig.port(0x800, 6, 0x0a01_0303)), (Some(24), Some(33)));
    rig.update(Update::Delete(TableId(0), middle));
    assert_eq!(rig.port(0x800, 6, 0x0a01_0303), Some(23));
    // It is considered again when it has changed as often as it has entries.
    for _ in 0..700 {
        let id = rig.route(32, 0x0c00_0001, 32, 5);
        rig.update(Update::Delete(TableId(0), id));
    }
    assert_eq!(rig.form(), Form::Prefix);
    assert_eq!(
        (rig.port(0x800, 6, 0x0a01_0303), rig.port(0x800, 6, 0x0c00_0001)),
        (Some(23), rig.port(0x800, 6, 0x0c00_0002))
    );
    // An equal condition below changes nothing, and one above takes over.
    let below = rig.route(23, 0x0a01_0200, 24, 6);
    assert_eq!(rig.port(0x800, 6, 0x0a01_0203), Some(24));
    rig.route(25, 0x0a01_0200, 24, 7);
    assert_eq!(rig.port(0x800, 6, 0x0a01_0203), Some(7));
    rig.update(Update::Delete(TableId(0), below));
    assert_eq!(rig.port(0x800, 6, 0x0a01_0203), Some(7));
}

#[test]
fn hosts_with_a_last_entry_are_a_hash() {
    let mut rig = Rig::new();
    let hosts: Vec<_> =
        (0..40).map(|host| rig.insert(10, &format!("host: 16w{host} &&& 16w0xffff;"), 100 + host)).collect();
    assert_eq!(rig.form(), Form::Exact);
    let miss = rig.insert(0, "", 1);
    let first = rig.insert(20, "kind: 16w0x88cc &&& 16w0xffff;", 2);
    assert_eq!(rig.form(), Form::Exact);
    let (_, reason) = rig.pair.engine.table(TableId(0)).unwrap().describe();
    assert!(reason.ends_with(", but for 2"), "{reason}");
    assert_eq!((rig.port(0x800, 7, 0), rig.port(0x800, 70, 0)), (Some(107), Some(1)));
    assert_eq!((rig.port(0x88cc, 7, 0), rig.port(0x88cc, 70, 0)), (Some(2), Some(2)));
    rig.redirect(hosts[7], 3);
    rig.redirect(miss, 4);
    assert_eq!((rig.port(0x800, 7, 0), rig.port(0x800, 70, 0)), (Some(3), Some(4)));
    for id in [miss, first, hosts[7]] {
        rig.update(Update::Delete(TableId(0), id));
    }
    assert_eq!((rig.port(0x88cc, 8, 0), rig.port(0x800, 7, 0)), (Some(108), None));
    // Nine others are too many.
    for kind in 1..=9 {
        rig.insert(30, &format!("kind: 16w{kind} &&& 16w0xffff;"), kind);
    }
    assert_eq!(rig.form(), Form::Classifier);
    assert_eq!((rig.port(9, 8, 0), rig.port(10, 8, 0)), (Some(9), Some(108)));
}

#[test]
fn hosts_that_are_small_numbers_are_an_array() {
    let mut rig = Rig::new();
    let memory = |rig: &Rig| rig.pair.engine.table(TableId(0)).unwrap().memory;
    let host =
        |rig: &mut Rig, host: u32, port| rig.insert(10, &format!("dst: 32w{host} &&& 32w0xffffffff;"), port);
    let hosts: Vec<_> = (0..40).map(|i| host(&mut rig, i, 100 + i)).collect();
    assert_eq!((rig.form(), memory(&rig)), (Form::Exact, 64 * 4));
    assert_eq!((rig.port(1, 1, 39), rig.port(1, 1, 40), rig.port(1, 1, u32::MAX)), (Some(139), None, None));
    // A change within the array, and one for which it has to be longer.
    rig.redirect(hosts[39], 7);
    host(&mut rig, 40, 140);
    assert_eq!((rig.port(1, 1, 39), rig.port(1, 1, 40)), (Some(7), Some(140)));
    let far = host(&mut rig, 1000, 8);
    assert_eq!((rig.form(), memory(&rig)), (Form::Exact, 1024 * 4));
    assert_eq!((rig.port(1, 1, 1000), rig.port(1, 1, 999)), (Some(8), None));
    rig.update(Update::Delete(TableId(0), far));
    assert_eq!((rig.port(1, 1, 1000), rig.port(1, 1, 38)), (None, Some(138)));
    // A large number makes it a hash.
    host(&mut rig, 65_536, 9);
    assert_eq!(rig.form(), Form::Exact);
    assert!(memory(&rig) > 1024 * 4);
    assert_eq!(
        (rig.port(1, 1, 65_536), rig.port(1, 1, 0), rig.port(1, 1, 38)),
        (Some(9), Some(100), Some(138))
    );
    // Two equal conditions are no hash, and no array.
    rig.insert(11, "dst: 32w3 &&& 32w0xffffffff;", 11);
    assert_eq!((rig.form(), rig.port(1, 1, 3)), (Form::Classifier, Some(11)));
}

#[test]
fn a_table_that_grows_entry_by_entry_publishes_few_views() {
    let program = PROGRAM.replace("size 1000", "size 20000");
    let program = Checked::new(text::parse(&program).unwrap_or_else(|error| panic!("{error}"))).unwrap();
    let mut pair = Pair::new(&program, Limits::default());
    let views = pair.engine.views();
    let current = || Arc::as_ptr(&views.load());
    let (mut last, mut published) = (current(), 0);
    for i in 0..20_000u32 {
        let dst = i.wrapping_mul(0x9e37_79b9);
        let entry = format!("entry priority 1 {{ dst: 32w{dst} &&& 32w0xffffffff; }} -> to(32w{i});");
        let entry = text::parse_entry(&program, TableId(0), &entry, &|_| None).unwrap();
        assert!(pair.apply(vec![Update::Insert(TableId(0), entry)]));
        published += usize::from(i >= 100 && current() != last);
        last = current();
    }
    assert_eq!(pair.engine.table(TableId(0)).unwrap().form, Form::Exact);
    // One for each doubling; each forks the table's structure.
    assert!(published < 12, "{published}");
}

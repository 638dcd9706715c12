//! Packets while tables change: bundles are seen whole, and neither changes of form nor structures that are built anew
//! meanwhile lose an entry.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use codegen::{Effect, Effects, Engine, Form, Options, Worker};
use pipeline::fuzzing::World;
use pipeline::interp::{self, Exit, Limits, Received};
use pipeline::ir::TableId;
use pipeline::state::{State, Update};
use pipeline::{Checked, text};
use support::Pair;

/// Two tables that each say which bundle they are of; a packet that meets two different ones is dropped.
const PROGRAM: &str = "program two {
  header h_t { a: bit<32>; }
  instance h: h_t;
  var left: bit<32>;
  var right: bit<32>;
  reason torn;
  action set_left(v: bit<32>) { left = $v; }
  action set_right(v: bit<32>) { right = $v; }
  table first { key a: ternary = h.a; actions set_left; size 100000; }
  table second { key a: ternary = h.a; actions set_right; size 100000; }
  parser p { state start { extract h; goto accept; } }
  block control {
    apply first;
    apply second;
    if (left != right) { drop torn; }
    send current port left;
  }
  stage s { parser p; control control; }
}";

fn entry(state: &State, table: u32, text: &str) -> pipeline::ir::Entry {
    text::parse_entry(state.program(), TableId(table), text, &|_| None).unwrap()
}

/// Entries for the packet's key.
fn version(state: &State, n: u32) -> [pipeline::ir::Entry; 2] {
    let of = |table, action| {
        entry(
            state,
            table,
            &format!("entry priority 5 {{ a: 32w7 &&& 32w0xffffffff; }} -> {action}(32w{n});"),
        )
    };
    [of(0, "set_left"), of(1, "set_right")]
}

#[test]
fn packets_meet_whole_bundles_while_forms_change() {
    let program = text::parse(PROGRAM).unwrap_or_else(|error| panic!("{error}"));
    let mut state = State::new(Checked::new(program).unwrap());
    let [left, right] = version(&state, 1);
    state.apply(vec![Update::Insert(TableId(0), left), Update::Insert(TableId(1), right)], 0).unwrap();
    let mut engine = Engine::new(&state, Options::default()).unwrap();
    let views = engine.views();
    let (started, done) = (AtomicBool::new(false), AtomicBool::new(false));
    // The last version that was complete.
    let complete = AtomicU32::new(1);
    let mut forms = std::collections::HashSet::new();
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let (mut worker, mut effects, mut fates) = (Worker::new(), Effects::default(), vec![]);
            let mut world = World { now: 0, seed: 1 };
            let (mut last, mut packets) = (0, 0u64);
            let received = Received::whole(&[0, 0, 0, 7], 1);
            loop {
                let ending = done.load(Ordering::Acquire);
                last = last.max(complete.load(Ordering::Acquire));
                effects.clear();
                fates.clear();
                let view = views.load();
                worker.run_batch(&view, &mut world, [received; 8], &mut effects, &mut fates);
                drop(view);
                for effect in effects.to_interp_each(&fates, [received.len; 8]).concat() {
                    let interp::Effect::Output { to: Exit::Port(port), .. } = effect else {
                        panic!("{effect:?}")
                    };
                    // Versions only grow, and none is met that was replaced before the batch; a missing entry would be
                    // 0.
                    assert!(port >= last && port > 0, "{port} after {last}");
                    last = port;
                    packets += 1;
                }
                started.store(true, Ordering::Release);
                if ending {
                    return (last, packets);
                }
            }
        });
        while !started.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let mut follow = |state: &mut State, updates| {
            let bundle = state.apply(updates, 0).unwrap();
            engine.follow(state, &bundle).unwrap();
            for table in 0..2 {
                forms.insert(engine.table(TableId(table)).unwrap().form);
            }
        };
        for n in 2..400u32 {
            let [left, right] = version(&state, n);
            follow(&mut state, vec![Update::Modify(TableId(0), left), Update::Modify(TableId(1), right)]);
            complete.store(n, Ordering::Release);
            // Others, alone: tables grow through their forms, and shrink again.
            let other = n % 50;
            let mask = if other < 20 { 0xffff_ffffu32 } else { 0xffff_ff0f };
            let text = format!("entry priority 3 {{ a: 32w{:#x} &&& 32w{mask:#x}; }}", (n + 256) << 8 & mask);
            let table = n % 2;
            let action = if table == 0 { "set_left" } else { "set_right" };
            let other_entry = entry(&state, table, &format!("{text} -> {action}(32w0);"));
            follow(&mut state, vec![Update::Insert(TableId(table), other_entry)]);
            if other == 0 {
                for table in 0..2 {
                    let all = state.table(TableId(table)).unwrap().entries();
                    let ids: Vec<_> =
                        all.filter(|entry| entry.entry.priority == 3).map(|entry| entry.id).collect();
                    for id in ids {
                        follow(&mut state, vec![Update::Delete(TableId(table), id)]);
                    }
                }
            }
        }
        done.store(true, Ordering::Release);
        let (last, packets) = worker.join().unwrap();
        assert_eq!(last, 399);
        assert!(packets > 0);
    });
    assert!(
        forms.contains(&Form::Scan) && forms.contains(&Form::Exact) && forms.contains(&Form::Classifier),
        "{forms:?}"
    );
}

#[test]
fn a_worker_may_hold_a_view_longer_than_the_engine_lives() {
    let program = text::parse(PROGRAM).unwrap_or_else(|error| panic!("{error}"));
    let mut state = State::new(Checked::new(program).unwrap());
    let mut engine = Engine::new(&state, Options::default()).unwrap();
    let [left, right] = version(&state, 3);
    let bundle =
        state.apply(vec![Update::Insert(TableId(0), left), Update::Insert(TableId(1), right)], 0).unwrap();
    engine.follow(&state, &bundle).unwrap();
    let views = engine.views();
    let view = views.load();
    let ids: Vec<_> = state.table(TableId(0)).unwrap().entries().map(|entry| entry.id).collect();
    let bundle = state.apply(ids.into_iter().map(|id| Update::Delete(TableId(0), id)).collect(), 0).unwrap();
    engine.follow(&state, &bundle).unwrap();
    drop((engine, state));
    let mut effects = Effects::default();
    let received = Received::whole(&[0, 0, 0, 7], 1);
    Worker::new().run(&view, &mut World { now: 0, seed: 1 }, &received, &mut effects);
    assert!(matches!(effects.list(), [Effect::Output { to: Exit::Port(3), .. }]), "{:?}", effects.list());
}

/// A table of a form, as a controller changes it: ports by key, and what is in the table.
struct Changing {
    kind: &'static str,
    state: State,
    engine: Engine,
    ports: BTreeMap<u32, u32>,
    worker: Worker,
}

impl Changing {
    fn new(kind: &'static str, form: Form, keys: &[u32]) -> Self {
        let matched = match kind {
            "numbers" | "exact" => "exact",
            "lpm" => "lpm",
            _ => "ternary",
        };
        let program = TERNARY.replace("ternary = ", &format!("{matched} = "));
        let program = text::parse(&program).unwrap_or_else(|error| panic!("{error}"));
        let mut state = State::new(Checked::new(program).unwrap());
        if kind == "mixed" {
            // All other keys.
            let miss = entry(&state, 0, "entry priority 1 { } -> to(32w5);");
            state.apply(vec![Update::Insert(TableId(0), miss)], 0).unwrap();
        }
        let engine = Engine::new(&state, Options::default()).unwrap();
        let mut changing = Self { kind, state, engine, ports: BTreeMap::new(), worker: Worker::new() };
        changing.change(keys, Update::Insert, 0);
        let table = changing.engine.table(TableId(0)).unwrap();
        assert_eq!((table.form, table.others), (form, usize::from(kind == "mixed")), "{kind}");
        changing
    }

    fn entry(&self, key: u32, port: u32) -> pipeline::ir::Entry {
        let condition = match self.kind {
            "numbers" | "exact" => format!("entry {{ a: 32w{key}; }}"),
            "lpm" => format!("entry {{ a: 32w{key}/{}; }}", 31 + key % 2),
            "mixed" => format!("entry priority 2 {{ a: 32w{key} &&& 32w{}; }}", u32::MAX),
            _ => format!("entry priority 1 {{ a: 32w{key} &&& 32w{}; }}", 0x00ff_ffff - (key + 1) % 2),
        };
        entry(&self.state, 0, &format!("{condition} -> to(32w{port});"))
    }

    /// Inserts or modifies entries in one bundle, all with ports of this version.
    fn change(&mut self, keys: &[u32], update: fn(TableId, pipeline::ir::Entry) -> Update, version: u32) {
        let changed: Vec<_> = keys.iter().map(|key| (*key, key + 1000 * version)).collect();
        let updates = changed.iter().map(|(key, port)| update(TableId(0), self.entry(*key, *port)));
        self.apply(updates.collect());
        self.ports.extend(changed);
    }

    fn delete(&mut self, keys: &[u32]) {
        let of = |key: &u32| {
            let entry = self.entry(*key, 0);
            Update::DeleteMatch(TableId(0), entry.matches, entry.priority)
        };
        self.apply(keys.iter().map(of).collect());
        keys.iter().for_each(|key| _ = self.ports.remove(key));
    }

    fn apply(&mut self, updates: Vec<Update>) {
        let bundle = self.state.apply(updates, 0).unwrap();
        self.engine.follow(&self.state, &bundle).unwrap();
    }

    /// Compares the ports that a view leads to with those that it should.
    fn check(&mut self, view: &codegen::View, ports: &BTreeMap<u32, u32>, keys: &[u32], when: &str) {
        for key in keys {
            let (bytes, mut effects) = (key.to_be_bytes(), Effects::default());
            self.worker.run(view, &mut World { now: 0, seed: 1 }, &Received::whole(&bytes, 1), &mut effects);
            let found = match effects.list() {
                [Effect::Output { to: Exit::Port(port), .. }] => Some(*port),
                _ => None,
            };
            let expected = ports.get(key).copied().or((self.kind == "mixed").then_some(5));
            assert_eq!(found, expected, "{}, key {key}, {when}", self.kind);
        }
    }
}

#[test]
fn a_view_stays_as_it_was_for_as_long_as_it_is_held_however_many_bundles_follow() {
    for (kind, form, step) in [
        ("numbers", Form::Exact, 3),
        ("exact", Form::Exact, 99_999),
        ("lpm", Form::Prefix, 3),
        ("ternary", Form::Classifier, 3),
        ("mixed", Form::Exact, 99_999),
    ] {
        let keys: Vec<u32> = (1..41).map(|i| i * step).collect();
        let mut table = Changing::new(kind, form, &keys);
        let (views, mut held) = (table.engine.views(), vec![]);
        for n in 5..65u32 {
            // Some bundles come while nothing is held, others while one or several views are.
            if n % 6 < 2 {
                held.push((views.load(), table.ports.clone(), n + n % 4));
            }
            held.retain(|(.., until)| *until >= n);
            match n % 5 {
                0 => table.delete(&keys[..5]),
                1 => table.change(&keys[..5], Update::Insert, n),
                2 => {
                    // A single change may be met under older views, too.
                    held.clear();
                    table.change(&keys[7..8], Update::Modify, n);
                }
                _ => table.change(&keys[5 + n as usize % 7..15], Update::Modify, n),
            }
            for (view, ports, until) in &held {
                table.check(view, ports, &keys, &format!("held until {until}, after {n}"));
            }
            let ports = table.ports.clone();
            table.check(&views.load(), &ports, &keys, &format!("after {n}"));
        }
    }
}

/// The second table's actions say which ran; a hit without one leaves by port 0.
const ACTIONS: &str = "program actions {
  header h_t { a: bit<32>; }
  instance h: h_t;
  var port: bit<32>;
  reason missed;
  action one(v: bit<32>) { port = $v; }
  action two(v: bit<32>) { port = $v; }
  table first { key a: exact = h.a; actions one, two; size 100; }
  table second { key a: exact = h.a; actions one, two; size 100; }
  parser p { state start { extract h; goto accept; } }
  block control {
    apply first;
    port = 32w0;
    apply second { miss { drop missed; } };
    send current port port;
  }
  stage s { parser p; control control; }
}";

#[test]
fn an_older_views_specialised_code_never_meets_an_action_that_it_does_not_know() {
    let program = text::parse(ACTIONS).unwrap_or_else(|error| panic!("{error}"));
    let mut state = State::new(Checked::new(program).unwrap());
    let insert = |state: &State, table: u32, key: u32, action: &str| {
        let text = format!("entry {{ a: 32w{key}; }} -> {action}(32w{});", key + 1);
        Update::Insert(TableId(table), entry(state, table, &text))
    };
    let both = (0..20).flat_map(|key| [(0, key), (1, key)]);
    let updates = both.map(|(table, key)| insert(&state, table, key, "one")).collect();
    state.apply(updates, 0).unwrap();
    let mut engine = Engine::new(&state, Options::default()).unwrap();
    assert!(engine.is_specialised());
    let views = engine.views();
    let updates = [insert(&state, 0, 60, "two"), insert(&state, 1, 70, "two")];
    let mut follow = |update| {
        let bundle = state.apply(vec![update], 0).unwrap();
        engine.follow(&state, &bundle).unwrap();
        engine.is_specialised()
    };
    let (old, mut worker) = (views.load(), Worker::new());
    let mut end = |view: &codegen::View, key: u32| {
        let mut effects = Effects::default();
        let bytes = key.to_be_bytes();
        worker.run(view, &mut World { now: 0, seed: 1 }, &Received::whole(&bytes, 1), &mut effects);
        match effects.list() {
            [Effect::Output { to: Exit::Port(port), .. }] => Some(*port),
            _ => None,
        }
    };
    assert_eq!((end(&old, 7), end(&old, 70)), (Some(8), None));
    // The first table's new action ends the specialised code: nothing but the older view objects to the second's.
    for update in updates {
        assert!(!follow(update));
    }
    assert_eq!((end(&old, 7), end(&old, 70)), (Some(8), None));
    assert_eq!((end(&views.load(), 7), end(&views.load(), 70)), (Some(8), Some(71)));
}

const TERNARY: &str = "program ternary {
  header h_t { a: bit<32>; } instance h: h_t;
  action to(port: bit<32>) { send current port $port; }
  table t { key a: ternary = h.a; actions to; size 100000; }
  parser p { state start { extract h; goto accept; } }
  block control { apply t; }
  stage s { parser p; control control; }
}";

/// Entries that the table is built of at first.
const BUILT: u32 = 1200;
/// Entries with which it has outgrown that.
const GROWN: u32 = 4 * BUILT + 100;

/// An entry for the `n`th key, or for it and another one.
fn ternary(pair: &Pair, n: u32, port: u32) -> pipeline::ir::Entry {
    let mask = if n.is_multiple_of(2) { u32::MAX } else { u32::MAX - 1 };
    let text = format!("entry priority {} {{ a: 32w{} &&& 32w{mask}; }} -> to(32w{port});", n % 7 + 1, n * 2);
    entry(&pair.interpreted, 0, &text)
}

fn insert(pair: &mut Pair, n: u32) {
    let entry = ternary(pair, n, n + 1);
    assert!(pair.apply(vec![Update::Insert(TableId(0), entry)]));
}

fn modify(pair: &mut Pair, n: u32, by: u32) {
    let entry = ternary(pair, n, n + by);
    assert!(pair.apply(vec![Update::Modify(TableId(0), entry)]));
}

fn delete(pair: &mut Pair, numbers: impl Iterator<Item = u32>) {
    let gone: Vec<_> = numbers.map(|n| ternary(pair, n, 0).matches).collect();
    let all = pair.interpreted.table(TableId(0)).unwrap().entries();
    let ids = all.filter(|installed| gone.contains(&installed.entry.matches)).map(|installed| installed.id);
    let updates: Vec<_> = ids.map(|id| Update::Delete(TableId(0), id)).collect();
    assert_eq!(updates.len(), gone.len());
    for update in updates {
        assert!(pair.apply(vec![update]));
    }
}

/// A table that has outgrown its structure.
fn grown() -> Pair {
    let program = Checked::new(text::parse(TERNARY).unwrap_or_else(|error| panic!("{error}"))).unwrap();
    let mut pair = Pair::new(&program, Limits::default());
    let built = (0..BUILT).map(|n| Update::Insert(TableId(0), ternary(&pair, n, n + 1))).collect();
    assert!(pair.apply(built));
    (BUILT..GROWN).for_each(|n| insert(&mut pair, n));
    assert_eq!(pair.engine.table(TableId(0)).unwrap().form, Form::Classifier);
    pair
}

#[test]
fn a_structure_that_is_built_anew_misses_no_change_meanwhile() {
    let mut pair = grown();
    let [mut old, mut rebuild] = [(); 2].map(|()| pair.engine.rebuild(TableId(0)).unwrap());
    old.build();
    assert!(!pair.engine.install_table(old).unwrap(), "another one was begun");
    // More changes than the engine repeats itself, one kind beside the other.
    delete(&mut pair, 0..50);
    (100..150).for_each(|n| modify(&mut pair, n, 100_000));
    (GROWN..GROWN + 50).for_each(|n| insert(&mut pair, n));
    rebuild.build();
    let mut behind = pair.engine.install_table(rebuild).unwrap_err();
    // Changes of what has changed before.
    delete(&mut pair, GROWN..GROWN + 10);
    (0..10).for_each(|n| insert(&mut pair, n));
    (105..115).for_each(|n| modify(&mut pair, n, 200_000));
    behind.catch_up();
    assert!(pair.engine.install_table(behind).unwrap());
    assert!(pair.engine.rebuild(TableId(0)).is_none(), "it is new");
    delete(&mut pair, 200..210);
    (0..2 * (GROWN + 60)).for_each(|key| _ = pair.check(&Received::whole(&key.to_be_bytes(), 1)));
}

#[test]
fn a_structure_that_is_built_anew_is_of_no_use_to_a_table_of_another_form() {
    let mut pair = grown();
    let mut rebuild = pair.engine.rebuild(TableId(0)).unwrap();
    let all = pair.interpreted.table(TableId(0)).unwrap().entries();
    let most: Vec<_> = all.map(|installed| Update::Delete(TableId(0), installed.id)).skip(3).collect();
    assert!(pair.apply(most));
    assert_eq!(pair.engine.table(TableId(0)).unwrap().form, Form::Scan);
    rebuild.build();
    assert!(!pair.engine.install_table(rebuild).unwrap());
    (0..100u32).for_each(|key| _ = pair.check(&Received::whole(&key.to_be_bytes(), 1)));
}

#[test]
fn a_structure_whose_table_changes_all_the_time_is_given_up() {
    let mut pair = grown();
    let mut rebuild = pair.engine.rebuild(TableId(0)).unwrap();
    rebuild.build();
    let mut rounds = 0;
    while let Err(mut behind) = {
        // More than the engine repeats itself, however long it has tried.
        (0..1100).for_each(|n| modify(&mut pair, n, 1000 * (rounds + 2)));
        pair.engine.install_table(rebuild)
    } {
        behind.catch_up();
        rebuild = behind;
        rounds += 1;
        assert!(rounds < 100);
    }
    assert!(pair.engine.rebuild(TableId(0)).is_some(), "it is stale as before");
}

//! The example programs of crate `pipeline`, with many random entries and changes: code against the interpreter, every
//! form of tables, actions defined at run time.
//!
//! `MSWITCH_CODEGEN_ROUNDS` sets the number of changes and packets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;

use codegen::Form;
use pipeline::bits::Bits;
use pipeline::env::Env;
use pipeline::fuzzing::World;
use pipeline::interp::{Effect, Limits, Received};
use pipeline::ir::{
    ActionCall, ActionId, Constant, Entry, EntryResult, GroupTableId, KeyMatch, Match, MatchKind, MeterId,
    TableId, Type,
};
use pipeline::state::{Bucket, EntryId, Group, GroupKind, Rates, State, Update};
use pipeline::{Checked, text, validate};
use support::Pair;

const ROUTER: &str = include_str!("../../pipeline/tests/programs/router.txt");
const FIVE_TABLES: &str = include_str!("../../pipeline/tests/programs/five_tables.txt");

const ACTIONS: [&str; 9] = [
    "action classify(metadata: bit<64>, mask: bit<64>) {
        metadata = ((metadata & ~($mask)) | ($metadata & $mask)); goto table1;
    }",
    "action keep_push_vid(vid: bit<12>) { kept_push = true; kept_set_vid = true; kept_vid = $vid; goto table2; }",
    "action tagged() { goto table2; }",
    "action keep_output(port: bit<32>) { kept_output = true; kept_port = $port; goto table3; }",
    "action keep_group(id: bit<32>) { kept_group = true; kept_group_id = ($id & 32w3); goto table3; }",
    "action metered(id: bit<8>) { meter color = rates[($id & 8w3)]; if (color == 2w2) { drop meter; } goto table4; }",
    "action clear() { kept_push = false; kept_group = false; kept_output = false; }",
    "action end() { }",
    "action output2(a: bit<32>, vid: bit<12>, b: bit<32>) {
        send current port $a; call push_vlan; vlan[0].vid = $vid; send current port $b;
    }",
];

struct Random(World);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0.random() % n
    }

    /// A value that packets have too, with some probability.
    fn value(&mut self, width: u16) -> Bits {
        let n = self.below(12);
        let value = match width {
            48 => 0x0200_0000_0000 | n,
            32 => 0x0a00_0000 | self.below(3) << 16 | n,
            16 => [0x800, 0x86dd, 0x8100, 0x806, 53, 80, 443, n][self.below(8) as usize],
            8 => [6, 17, n][self.below(3) as usize],
            128 => return Bits::from_u64(128, 0xfd00).shl(112).or(&Bits::from_u64(128, n << 60 | n)),
            _ => n,
        };
        Bits::from_u64(width, value)
    }

    fn mask(&mut self, width: u16) -> Bits {
        let len = [width, width, width / 2, width.saturating_sub(4), 1][self.below(5) as usize];
        let prefix = Bits::ones(width).shl((width - len).into());
        if self.below(4) == 0 { prefix.shr(2) } else { prefix }
    }

    fn call(&mut self, state: &State, id: ActionId) -> ActionCall {
        let params = &state.action(id).unwrap().params;
        let args =
            params.iter().map(|param| Constant::of(param.ty, &Bits::from_u64(64, self.below(16)))).collect();
        ActionCall { action: id, args }
    }

    fn entry(&mut self, state: &State, table: usize) -> Entry {
        let (program, schema) = (state.program(), &state.program().tables[table]);
        let mut matches = Vec::new();
        for (i, key) in schema.keys.iter().enumerate() {
            let width = validate::expr_type(program, &key.value).map_or(1, Type::width);
            let (value, mask) = (self.value(width), self.mask(width));
            let is = match key.kind {
                MatchKind::Exact => KeyMatch::Exact(value),
                _ if self.below(3) == 0 => continue,
                MatchKind::Optional => KeyMatch::Exact(value),
                MatchKind::Lpm => {
                    let len = [width, width / 2, width - 4, width / 4][self.below(4) as usize];
                    KeyMatch::Prefix(value.and(&Bits::ones(width).shl((width - len).into())), len)
                }
                MatchKind::Ternary => KeyMatch::Mask(value.and(&mask), mask),
                MatchKind::Range => {
                    let other = self.value(width);
                    KeyMatch::Range(value.clone().min(other.clone()), value.max(other))
                }
            };
            matches.push(Match { key: i as u32, is });
        }
        let mut actions = schema.actions.clone();
        if schema.open {
            let first = program.actions.len();
            actions.extend((first..first + ACTIONS.len()).map(ActionId::at));
        }
        // The router's first actions let packets pass.
        let any = schema.open || self.below(5) == 0;
        let id = actions[if any { self.below(actions.len() as u64) as usize } else { 0 }];
        let priority = if schema.has_priority() { self.below(6) as u32 } else { 0 };
        let result = EntryResult::Action(self.call(state, id));
        Entry { matches: matches.into(), priority, result, idle: 0, hard: 0, cookie: 0 }
    }

    fn put(&mut self, bytes: &mut Vec<u8>, width: u16) {
        let value = self.value(width);
        bytes.extend(value.to_bytes());
    }

    fn packet(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.put(&mut bytes, 48);
        self.put(&mut bytes, 48);
        for _ in 0..[0, 0, 0, 1, 2][self.below(5) as usize] {
            bytes.extend([0x81, 0]);
            bytes.extend((self.below(16) as u16).to_be_bytes());
        }
        if self.below(3) == 0 {
            bytes.extend([
                0x86,
                0xdd,
                0x60,
                0,
                0,
                0,
                0,
                8,
                [6, 17, 58][self.below(3) as usize],
                self.below(4) as u8,
            ]);
            self.put(&mut bytes, 128);
            self.put(&mut bytes, 128);
        } else {
            bytes.extend([8, [0, 0, 0, 6][self.below(4) as usize]]);
            let options = [0, 0, 0, 1, 2][self.below(5) as usize];
            let start = bytes.len();
            bytes.extend([
                0x45 + options,
                0,
                0,
                32,
                0,
                1,
                0,
                0,
                self.below(5) as u8,
                [6, 17, 1][self.below(3) as usize],
                0,
                0,
            ]);
            self.put(&mut bytes, 32);
            self.put(&mut bytes, 32);
            bytes.extend((0..4 * options).map(|i| i + 1));
            if self.below(8) > 0 {
                let sum = packet::checksum::Sum::of(&bytes[start..]).finish();
                bytes[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
            }
        }
        self.put(&mut bytes, 16);
        self.put(&mut bytes, 16);
        bytes.extend(vec![0xab; self.below(40) as usize]);
        if self.below(6) == 0 {
            bytes.truncate(self.below(60) as usize);
        }
        bytes
    }
}

fn rounds() -> u64 {
    std::env::var("MSWITCH_CODEGEN_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(160)
}

/// Adds, changes and removes entries, alone and in bundles, and runs packets in between.
fn churn(pair: &mut Pair, random: &mut Random, tables: usize) -> (BTreeSet<(usize, String)>, Vec<Effect>) {
    let (mut forms, mut effects) = (BTreeSet::new(), Vec::new());
    for round in 0..rounds() {
        let table = random.below(tables as u64) as usize;
        let mut bundle = Vec::new();
        for _ in 0..[1, 1, 1, 1, 5, 40][random.below(6) as usize] {
            let entries: Vec<EntryId> =
                pair.interpreted.table(TableId::at(table)).unwrap().entries().map(|entry| entry.id).collect();
            let pick = |random: &mut Random| {
                entries.get(random.below(entries.len().max(1) as u64) as usize).copied()
            };
            // Tables grow, and shrink later.
            let delete = if round % 80 < 50 { 1 } else { 7 };
            let update = match random.below(10) {
                n if n < delete => pick(random).map(|id| Update::Delete(TableId::at(table), id)),
                9 => pick(random).map(|id| {
                    let installed =
                        pair.interpreted.table(TableId::at(table)).unwrap().get(id).unwrap().clone();
                    let result = random.entry(&pair.interpreted, table).result;
                    Update::Modify(TableId::at(table), Entry { result, ..installed.entry.clone() })
                }),
                _ => Some(Update::Insert(TableId::at(table), random.entry(&pair.interpreted, table))),
            };
            bundle.extend(update);
        }
        // A bundle fails as a whole if entries collide.
        if !pair.apply(bundle.clone()) {
            for update in bundle {
                pair.apply(vec![update]);
            }
        }
        let packets: Vec<_> =
            (0..4).map(|_| (random.packet(), random.below(6) as u32, random.below(1 << 32) as u32)).collect();
        let batch: Vec<_> = packets
            .iter()
            .map(|(bytes, port, hash)| Received { flow_hash: *hash, ..Received::whole(bytes, *port) })
            .collect();
        effects.extend(pair.check_batch(&batch));
        pair.advance(1_000_000);
        let info = pair.engine.table(TableId::at(table)).unwrap();
        assert_eq!(info.entries, pair.compiled.table(TableId::at(table)).unwrap().len());
        forms.insert((table, format!("{:?}", info.form)));
        if round % 20 == 0 {
            pair.engine.improve();
            pair.check_state();
        }
    }
    pair.check_state();
    (forms, effects)
}

fn outputs(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::Output { .. })).count()
}

#[test]
fn the_router_agrees() {
    let program = Checked::new(text::parse(ROUTER).unwrap()).unwrap();
    let mut pair = Pair::new(&program, Limits::default());
    let mut random = Random(World { now: 0, seed: 3 });
    let (forms, effects) = churn(&mut pair, &mut random, program.tables.len());
    assert!(outputs(&effects) > 20, "{} of {}", outputs(&effects), effects.len());
    let has = |table: usize, form: Form| forms.contains(&(table, format!("{form:?}")));
    assert!(has(0, Form::Scan) && has(0, Form::Classifier), "{forms:?}");
    assert!(has(2, Form::Prefix) && has(3, Form::Prefix) && has(4, Form::Exact), "{forms:?}");
}

#[test]
fn five_tables_agree() {
    let program = Checked::new(text::parse(FIVE_TABLES).unwrap()).unwrap();
    let mut pair = Pair::new(&program, Limits::default());
    let actions = ACTIONS.iter().chain(&[
        "action bucket_vid(vid: bit<12>, port: bit<32>) { vlan[0].vid = $vid; send current port $port; }",
        "action bucket_pop(port: bit<32>) { call pop_vlan; send current port $port; }",
    ]);
    for action in actions {
        let action = text::parse_action(&program, action).unwrap();
        assert_eq!(pair.interpreted.define(action.clone()), pair.compiled.define(action));
    }
    let mut random = Random(World { now: 0, seed: 5 });
    for id in 0..4 {
        let first = program.actions.len() + ACTIONS.len();
        let mut bucket = |action: usize| Bucket {
            weight: 1 + random.below(3) as u32,
            watch_port: [None, Some(3), Some(4)][random.below(3) as usize],
            watch_group: None,
            call: random.call(&pair.interpreted, ActionId::at(first + action)),
        };
        let kind = [GroupKind::All, GroupKind::Select, GroupKind::Failover, GroupKind::Indirect][id as usize];
        let group = Group { kind, buckets: vec![bucket(0), bucket(1), bucket(0)] };
        assert!(pair.apply(vec![Update::Group(GroupTableId(0), id, Some(group))]));
        let rates = Rates::Single { rate: 300, burst: 20, excess: 0 };
        assert!(pair.apply(vec![Update::Meter(MeterId(0), id, Some(rates))]));
    }
    let (forms, effects) = churn(&mut pair, &mut random, program.tables.len());
    assert!(outputs(&effects) > 20, "{} of {}", outputs(&effects), effects.len());
    assert!((0..5).all(|table| forms.contains(&(table, "Classifier".into()))), "{forms:?}");
}

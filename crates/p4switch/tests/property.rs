//! Random writes, valid and not: the state is as a plain model says, and nothing panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;

use p4runtime_proto::v1::update::Type;
use p4runtime_proto::v1::{Entity, Update, entity::Entity as Kind, write_request::Atomicity};
use p4switch::{Code, Switch, WriteFailure, text};
use proptest::prelude::*;
use support::{all, entries, switch};

/// An update of the model: a table's entry, a member, or an entry that refers to one.
#[derive(Debug, Clone)]
struct Step {
    kind: Type,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// Key and port.
    Prefix(u8, u16),
    /// Number and port.
    Member(u8, u16),
    /// Key and member.
    Reference(u8, u8),
}

impl Step {
    fn line(&self) -> String {
        match self.what {
            What::Prefix(key, port) => format!("lpm_t b=10.0.0.{key}/32 => forward(port={port})"),
            What::Member(id, port) => format!("member hops {id} => forward(port={port})"),
            What::Reference(key, member) => format!("member_t a={key} => member {member}"),
        }
    }

    fn update(&self, switch: &Switch) -> Update {
        Update {
            r#type: self.kind.into(),
            entity: Some(text::parse(switch.program(), &self.line()).unwrap()),
        }
    }
}

/// What should be there.
#[derive(Debug, Clone, Default)]
struct Model {
    prefixes: BTreeMap<u8, u16>,
    members: BTreeMap<u8, u16>,
    references: BTreeMap<u8, u8>,
}

impl Model {
    fn apply(&mut self, step: &Step) -> Result<(), Code> {
        match step.what {
            What::Prefix(key, port) => change(&mut self.prefixes, step.kind, key, port, usize::MAX),
            What::Member(id, port) => {
                if step.kind == Type::Delete
                    && self.members.contains_key(&id)
                    && self.references.values().any(|member| *member == id)
                {
                    return Err(Code::FailedPrecondition);
                }
                change(&mut self.members, step.kind, id, port, 4)
            }
            What::Reference(key, member) => {
                let exists = self.references.contains_key(&key);
                if step.kind == Type::Modify && !exists {
                    return Err(Code::NotFound);
                }
                if step.kind != Type::Delete && !self.members.contains_key(&member) {
                    return Err(Code::NotFound);
                }
                change(&mut self.references, step.kind, key, member, 8)
            }
        }
    }

    fn lines(&self) -> [Vec<String>; 2] {
        let prefix =
            |(key, port): (&u8, &u16)| format!("lpm_t b=0xa0000{key:02x}/32 => forward(port={port})");
        let reference = |(key, member): (&u8, &u8)| format!("member_t a={key} => member {member}");
        [self.prefixes.iter().map(prefix).collect(), self.references.iter().map(reference).collect()]
    }
}

fn change<V>(map: &mut BTreeMap<u8, V>, kind: Type, key: u8, value: V, most: usize) -> Result<(), Code> {
    match (kind, map.contains_key(&key)) {
        (Type::Insert, true) => Err(Code::AlreadyExists),
        (Type::Insert, false) if map.len() >= most => Err(Code::ResourceExhausted),
        (Type::Modify | Type::Delete, false) => Err(Code::NotFound),
        (Type::Delete, true) => {
            map.remove(&key);
            Ok(())
        }
        _ => {
            map.insert(key, value);
            Ok(())
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let what = prop_oneof![
        (0..6_u8, 0..512_u16).prop_map(|(key, port)| What::Prefix(key, port)),
        (0..6_u8, 0..512_u16).prop_map(|(id, port)| What::Member(id, port)),
        (0..10_u8, 0..6_u8).prop_map(|(key, member)| What::Reference(key, member)),
    ];
    let kind = prop_oneof![2 => Just(Type::Insert), 1 => Just(Type::Modify), 1 => Just(Type::Delete)];
    prop::collection::vec((kind, what).prop_map(|(kind, what)| Step { kind, what }), 1..12)
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_state_is_the_models(batches in prop::collection::vec((steps(), any::<bool>()), 1..12)) {
        let mut switch = switch();
        let mut model = Model::default();
        for (steps, atomic) in batches {
            let updates: Vec<_> = steps.iter().map(|step| step.update(&switch)).collect();
            let mut after = model.clone();
            let expected: Vec<_> = steps.iter().map(|step| after.apply(step)).collect();
            let fails = expected.iter().any(Result::is_err);
            let atomicity = if atomic { Atomicity::DataplaneAtomic } else { Atomicity::ContinueOnError };
            match switch.write(&updates, atomicity, 0) {
                Ok(()) => prop_assert!(!fails),
                Err(WriteFailure::Updates(results)) => {
                    let found: Vec<_> = results.into_iter().map(|result| result.map_err(|f| f.code)).collect();
                    prop_assert!(fails);
                    match atomic {
                        false => prop_assert_eq!(found, expected),
                        true => prop_assert_eq!(
                            found.iter().position(|result| *result != Err(Code::Aborted)),
                            expected.iter().position(Result::is_err)
                        ),
                    }
                }
                Err(WriteFailure::Request(failure)) => prop_assert!(false, "{}", failure),
            }
            if !(atomic && fails) {
                model = after;
            }
            let [prefixes, references] = model.lines();
            prop_assert_eq!(sorted(entries(&switch, "lpm_t")), sorted(prefixes));
            prop_assert_eq!(sorted(entries(&switch, "member_t")), sorted(references));
        }
    }

    /// What can be read is text that reads as the same.
    #[test]
    fn text_is_read_as_it_was_written(
        a in any::<u8>(), wide in any::<u128>(), b in any::<u32>(), mask in any::<u32>(), length in 1..=32_u32,
        low in any::<u16>(), high in any::<u16>(), prio in 1..i32::MAX, port in 0..512_u16, mac in 0..1_u64 << 48,
        delta in any::<u8>(), cookie in any::<u64>(), metadata in prop::collection::vec(any::<u8>(), 0..4),
        idle in 0..i64::MAX,
    ) {
        let mut switch = switch();
        let hex: String = metadata.iter().map(|byte| format!("{byte:02x}")).collect();
        let (low, high) = (low.min(high), low.max(high));
        for line in [
            format!("exact_t a={a} wide={wide} cookie={cookie} metadata=0x{hex} idle={idle}ns => set({mac}, {delta})"),
            format!("lpm_t b={b}/{length} => forward(port={port})"),
            format!("ternary_t src_addr={b}&&&{mask} l4_port={low}..{high} kind={a} prio={prio} => drop()"),
            format!("group_t a={a} => drop() weight=2 | forward({port}) weight=1 watch={b}"),
            format!("multicast {prio} ports={port},{b}/7"),
        ] {
            support::put(&mut switch, Type::Insert, &line);
        }
        for line in [format!("register answer[1] value={}", b >> 12), format!("register offset[1] value={delta}")] {
            support::put(&mut switch, Type::Modify, &line);
        }
        for entity in all(&switch) {
            let prints = matches!(
                entity.entity,
                Some(Kind::TableEntry(ref entry)) if !entry.is_const
            ) || matches!(
                entity.entity,
                Some(Kind::RegisterEntry(_) | Kind::CounterEntry(_) | Kind::MeterEntry(_))
                    | Some(Kind::PacketReplicationEngineEntry(_))
            );
            if prints {
                let line = text::print(switch.program(), &entity);
                prop_assert_eq!(text::parse(switch.program(), &line), Ok(entity), "{}", line);
            }
        }
    }

    #[test]
    fn no_text_panics(line in "[a-z_=>()0-9\\[\\]/&.,*|# \"-]{0,60}") {
        let switch = switch();
        let program = switch.program();
        let _ = text::parse(program, &line);
        let _ = text::parse(program, &format!("ternary_t {line}"));
        let _ = text::parse(program, &format!("exact_t a=1 => {line}"));
        prop_assert_eq!(text::print(program, &Entity::default()), "");
    }
}

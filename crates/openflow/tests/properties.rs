//! Properties of the codec: values survive a round trip, and bytes decode to something that does, or to an error.
#![allow(clippy::unwrap_used)]

use openflow::action::{
    Action, Bundle, Controller2, ControllerProperty, CtFlags, HashFields, Learn, LearnDestination,
    LearnSource, LearnSpec, Nat, NatFlags, NatRange, Nest, Note, Output, RegLoad, RegMove, ResubmitTable,
    SetField, Stack, Track, Zone,
};
use openflow::field::{FIELDS, Field};
use openflow::instruction::{Instruction, Instructions};
use openflow::matching::{Match, Match10, check_fields};
use openflow::message::{Body, FlowMod, FlowModCommand, Form};
use openflow::oxm::{Oxm, OxmHeader, Subfield};
use openflow::property::{Bytes, Padded16};
use openflow::text::parse_flow;
use openflow::{Message, PortNo, Version};
use proptest::prelude::*;

fn version() -> impl Strategy<Value = Version> {
    prop::sample::select(Version::ALL.to_vec())
}

fn field() -> impl Strategy<Value = &'static Field> {
    (0..FIELDS.len()).prop_map(|n| &FIELDS[n])
}

/// A known field with any value and mask, or an unknown one.
fn oxm(version: Version) -> impl Strategy<Value = Oxm> {
    (field(), any::<[u8; 124]>(), any::<[u8; 124]>(), any::<bool>(), 0..20usize).prop_map(
        move |(field, value, mask, masked, short)| {
            let len = if field.is_variable() { short * 4 } else { field.bytes };
            let mut oxm = Oxm::exact(field.id, version, &value[..len]);
            if short == 0 {
                // Class of nobody.
                oxm.id.class = 0x1234;
                oxm.id.experimenter = 0;
            }
            oxm.mask = masked.then(|| mask[..len].into());
            oxm
        },
    )
}

fn port16() -> impl Strategy<Value = PortNo> {
    any::<u16>().prop_map(PortNo::from_16_bits)
}

fn part(version: Version) -> impl Strategy<Value = Subfield> {
    (field(), 0..1024u16, 1..65u16)
        .prop_map(move |(field, offset, bits)| Subfield::part(field.id, version, offset, bits))
}

/// A part of a field of a class that fits into 32 bits.
fn short_part(version: Version) -> impl Strategy<Value = Subfield> {
    part(version).prop_filter("class of 32 bits", |part| part.header.wire_len() == 4)
}

fn learn_spec(version: Version) -> impl Strategy<Value = LearnSpec> {
    let header = || short_part(version).prop_map(|part| (part.header, part.offset));
    let source = prop_oneof![
        header().prop_map(|(header, offset)| LearnSource::Field(header, offset)),
        Just(LearnSource::Immediate(Vec::new())),
    ];
    let destination = prop_oneof![
        header().prop_map(|(header, offset)| LearnDestination::Match(header, offset)),
        header().prop_map(|(header, offset)| LearnDestination::Load(header, offset)),
        Just(LearnDestination::Output),
    ];
    (1..1024u16, source, destination, any::<u8>()).prop_map(|(bits, mut source, destination, byte)| {
        if destination == LearnDestination::Output && !matches!(source, LearnSource::Field(..)) {
            source = LearnSource::Field(OxmHeader { length: 2, ..OxmHeader::default() }, 0);
        }
        if let LearnSource::Immediate(value) = &mut source {
            *value = vec![byte; usize::from(bits).div_ceil(16) * 2];
        }
        LearnSpec { bits, source, destination }
    })
}

fn nat() -> impl Strategy<Value = Nat> {
    let address = prop::option::of(any::<u32>().prop_map(Into::into));
    let address6 = prop::option::of(any::<u128>().prop_map(Into::into));
    let port = || prop::option::of(any::<u16>());
    (any::<u16>(), address.clone(), address, address6.clone(), address6, port(), port()).prop_map(
        |(flags, ipv4_min, ipv4_max, ipv6_min, ipv6_max, port_min, port_max)| Nat {
            flags: NatFlags::from_bits_retain(flags),
            range: NatRange { ipv4_min, ipv4_max, ipv6_min, ipv6_max, port_min, port_max },
        },
    )
}

/// An action that every version has, or that the version has.
fn action(version: Version) -> impl Strategy<Value = Action> {
    let leaf = prop_oneof![
        (port16(), any::<u16>()).prop_map(|(port, max_len)| Action::Output(Output { port, max_len })),
        any::<u32>().prop_map(Action::Group),
        any::<u32>().prop_map(Action::SetQueue),
        any::<u16>().prop_map(Action::SetVlanVid),
        any::<u16>().prop_map(Action::PushMpls),
        any::<u64>().prop_map(Action::SetTunnel64),
        Just(Action::Exit),
        oxm(version).prop_map(|oxm| Action::SetField(SetField(oxm))),
        (short_part(version), any::<u64>())
            .prop_map(|(destination, value)| Action::RegLoad(RegLoad { destination, value })),
        (part(version), part(version)).prop_map(|(source, mut destination)| {
            destination.bits = source.bits;
            Action::RegMove(RegMove { source, destination })
        }),
        part(version).prop_map(|part| Action::StackPush(Stack(part))),
        (port16(), any::<u8>())
            .prop_map(|(in_port, table)| Action::ResubmitTable(ResubmitTable { in_port, table })),
        prop::collection::vec(any::<u8>(), 0..30).prop_map(|mut note| {
            // Padding up to the action's end belongs to the note.
            note.resize((note.len() + 10).next_multiple_of(8) - 10, 0);
            Action::Note(Note(note))
        }),
        (prop::collection::vec(port16(), 0..9), any::<u16>(), any::<u16>()).prop_map(
            |(members, algorithm, basis)| Action::Bundle(Bundle {
                algorithm,
                basis,
                fields: HashFields::NwDst,
                members
            })
        ),
        (prop::collection::vec(learn_spec(version), 0..6), any::<u64>(), any::<u8>()).prop_map(
            |(specs, cookie, table)| Action::Learn(Learn { specs, cookie, table, ..Learn::default() })
        ),
        (prop::collection::vec(any::<u8>(), 0..20), any::<u16>(), any::<bool>()).prop_map(
            |(data, value, padded)| Action::Controller2(Controller2(vec![
                ControllerProperty::UserData(Bytes(data)),
                ControllerProperty::MaxLen(Padded16 { value, padded }),
                ControllerProperty::Reason(3),
            ]))
        ),
        nat().prop_map(Action::Nat),
    ];
    let version_has = move |action: &Action| action.exists_in(version);
    leaf.prop_filter("in this version", version_has).prop_recursive(4, 16, 4, move |inner| {
        let actions = prop::collection::vec(inner, 0..4);
        let zone = prop_oneof![
            any::<u16>().prop_map(Zone::Id),
            short_part(version).prop_map(Zone::Field).prop_filter("not a header of zeros", |zone| {
                !matches!(zone, Zone::Field(part) if part.header == OxmHeader::default())
            }),
        ];
        prop_oneof![
            actions.clone().prop_map(|actions| Action::Clone(Nest(actions))),
            (actions, zone, any::<u16>(), any::<u8>()).prop_map(|(actions, zone, flags, recirculate)| {
                Action::Track(Track {
                    actions,
                    zone,
                    recirculate,
                    flags: CtFlags::from_bits_retain(flags),
                    helper: 21,
                })
            }),
        ]
    })
}

fn instructions(version: Version) -> BoxedStrategy<Instructions> {
    let actions = prop::collection::vec(action(version), 0..5).boxed();
    if version == Version::V1_0 {
        return actions.prop_map(Instructions::apply).boxed();
    }
    (actions.clone(), actions, any::<u8>(), any::<(u64, u64)>(), any::<bool>())
        .prop_map(|(apply, write, table, (value, mask), clear)| {
            let mut list = vec![
                Instruction::ApplyActions(apply),
                Instruction::WriteActions(write),
                Instruction::WriteMetadata { value, mask },
                Instruction::GotoTable(table),
            ];
            if clear {
                list.insert(1, Instruction::ClearActions);
            }
            Instructions(list)
        })
        .boxed()
}

fn flow_mod() -> impl Strategy<Value = Message> {
    version().prop_flat_map(|version| {
        let fields = prop::collection::vec(oxm(version), 0..8);
        let fields = (fields, instructions(version), any::<u64>(), any::<[u16; 4]>(), port16(), any::<u32>());
        fields.prop_map(move |(fields, instructions, cookie, [idle, hard, priority, _], out_port, xid)| {
            let flow = FlowMod {
                cookie,
                command: FlowModCommand::ModifyStrict,
                idle_timeout: idle,
                hard_timeout: hard,
                priority,
                out_port,
                matching: Match::Fields(fields),
                instructions,
                ..FlowMod::default()
            };
            Message::new(version, xid, Body::FlowMod(Box::new(flow)))
        })
    })
}

/// A recorded message, whose bytes are changed in up to four places.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let corpus: Vec<String> = Version::ALL
        .iter()
        .flat_map(|version| {
            let path = format!("{}/tests/corpus/openflow1{}.hex", env!("CARGO_MANIFEST_DIR"), *version as u8);
            let text = std::fs::read_to_string(path).unwrap();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5);
    (prop::sample::select(corpus), changes, any::<prop::sample::Index>(), any::<bool>()).prop_map(
        |(line, changes, end, cut)| {
            let pairs = line.as_bytes().chunks_exact(2);
            let mut bytes: Vec<u8> = pairs
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect();
            for (place, byte) in changes {
                let at = place.index(bytes.len());
                bytes[at] = byte;
            }
            if cut {
                bytes.truncate(end.index(bytes.len()).max(8));
            }
            let len = bytes.len() as u16;
            bytes[2..4].copy_from_slice(&len.to_be_bytes());
            bytes
        },
    )
}

/// What decodes encodes, and what it encodes to is stable.
fn survives(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(message) = Message::decode(bytes) else { return Ok(()) };
    let encoded = message.encode().map_err(|error| TestCaseError::fail(format!("{error}: {message:?}")))?;
    let again =
        Message::decode(&encoded).map_err(|error| TestCaseError::fail(format!("{error}: {message:?}")))?;
    prop_assert_eq!(&again, &message);
    prop_assert_eq!(again.encode(), Ok(encoded));
    // A check ends with a verdict, whatever the message.
    let _ = message.check();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn flow_mods_round_trip(message in flow_mod()) {
        let bytes = message.encode().unwrap();
        prop_assert_eq!(Message::decode(&bytes).unwrap(), message);
    }

    #[test]
    fn damaged_messages_decode_stably_or_are_refused(bytes in damaged()) {
        survives(&bytes)?;
    }

    #[test]
    fn random_bodies_decode_stably_or_are_refused(
        version in 1..7u8,
        kind in 0..36u8,
        body in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..200),
    ) {
        let mut bytes = vec![version, kind, 0, (body.len() + 8) as u8, 0, 0, 0, 1];
        bytes[2] = ((body.len() + 8) >> 8) as u8;
        bytes.extend(body);
        survives(&bytes)?;
    }

    #[test]
    fn texts_are_read_or_refused(
        version in version(),
        words in prop::collection::vec(
            prop_oneof![
                prop::sample::select(vec![
                    "tcp", "ip6", "tp_src", "nw_src", "=", "/", "(", ")", "[", "]", "..", "->", ":", ",", "actions=",
                    "ct", "clone", "learn", "nat", "exec", "load", "NXM_NX_REG0", "0xff", "65536", "-", "+est",
                    "fe80::1", "10.0.0.1/33", "resubmit", "set_field", "vlan_vid", "output", "note", "bundle",
                ])
                .prop_map(str::to_owned),
                ".{0,3}",
            ],
            0..24,
        ),
    ) {
        let text = words.concat();
        if let Ok(flow) = parse_flow(&text, FlowModCommand::Add, version) {
            // What is read is a flow, if its values fit into the wire's fields.
            let message = Message::new(version, 1, Body::FlowMod(Box::new(flow)));
            if let Ok(bytes) = message.encode() {
                prop_assert_eq!(Message::decode(&bytes).unwrap(), message);
            }
        }
    }

    #[test]
    fn fixed_matches_mean_the_same_as_their_fields(bytes in prop::collection::vec(any::<u8>(), 40)) {
        // A flow-mod of version 1.0 with any match and no action.
        let mut message = vec![1, 14, 0, 72, 0, 0, 0, 1];
        message.extend(&bytes);
        message.extend([0; 24]);
        let decoded = Message::decode(&message).unwrap();
        let Body::FlowMod(flow) = decoded.body else { panic!("not a flow-mod") };
        let fields = flow.matching.to_fields().unwrap();
        prop_assert_eq!(check_fields(&fields), Ok(()), "{:?}", fields);
        let again = Match10::from_fields(&fields).to_fields();
        prop_assert_eq!(again, fields);
    }
}

#[test]
fn a_match_by_fields_is_an_extension_in_version_1_0() {
    let flow = FlowMod { matching: Match::Fields(Vec::new()), ..FlowMod::default() };
    let message = Message::new(Version::V1_0, 1, Body::FlowMod(Box::new(flow.clone())));
    assert_eq!(message.form, Form::Nicira);
    let fixed = FlowMod { matching: Match::Fixed10(Match10::default()), ..flow };
    let message = Message::new(Version::V1_0, 1, Body::FlowMod(Box::new(fixed)));
    assert_eq!(message.form, Form::Standard);
}

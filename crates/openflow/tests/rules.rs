//! Rules of the protocol, one by one: negotiation, errors, unknown contents, limits.
#![allow(clippy::unwrap_used)]

use openflow::action::{Action, Nest, Output};
use openflow::error::{EncodeError, ErrorCode, reply};
use openflow::field::{FIELDS, Field, FieldId};
use openflow::instruction::{Instruction, Instructions};
use openflow::matching::{Match, check_fields};
use openflow::message::{Body, FlowMod, FlowModCommand, Hello, Role, RoleMessage, SelectionMethod, Versions};
use openflow::oxm::{Oxm, OxmId};
use openflow::{MAX_DEPTH, Message, PortNo, Version, text};

#[test]
fn the_newest_common_version_is_chosen() {
    let ours: Versions = [Version::V1_0, Version::V1_3, Version::V1_4].into_iter().collect();
    let hello = Message::new(Version::V1_5, 0, Body::Hello(Hello::new(ours))).encode().unwrap();
    let (header, hello) = Hello::decode_any(&hello).unwrap();
    assert_eq!(hello.versions(header.version), ours);
    // Version 7 does not exist yet; without a bitmap, all versions up to it are meant.
    let (header, hello) = Hello::decode_any(&[7, 0, 0, 8, 0, 0, 0, 1]).unwrap();
    assert_eq!(hello.versions(header.version).newest_common(ours), Some(Version::V1_4));
    let (header, hello) = Hello::decode_any(&[3, 0, 0, 8, 0, 0, 0, 1]).unwrap();
    assert_eq!(hello.versions(header.version).newest_common(ours), Some(Version::V1_0));
}

#[test]
fn a_hello_with_junk_is_kept_as_it_came() {
    let bytes = [4, 0, 0, 19, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 0x12, 0xaa, 0xbb, 0xcc];
    let message = Message::decode(&bytes).unwrap();
    assert_eq!(message.encode().unwrap(), bytes);
    let Body::Hello(hello) = message.body else { panic!("not a hello") };
    assert_eq!(hello.trailing, [0xaa, 0xbb, 0xcc]);
    assert_eq!(hello.versions(4), Versions(0x12));
}

#[test]
fn errors_have_each_versions_numbers() {
    let request = [1, 14, 0, 8, 0, 0, 0, 9];
    // Version 1.0 has no code for it: Nicira's vendor error.
    let old = reply(ErrorCode::BmcBadPrereq, &request, Version::V1_0).encode().unwrap();
    assert_eq!(old[8..], [0xb0, 0xc2, 0, 0, 0, 0, 0x23, 0x20, 0, 1, 1, 4, 1, 14, 0, 8, 0, 0, 0, 9]);
    let request = [4, 14, 0, 8, 0, 0, 0, 9];
    let standard = reply(ErrorCode::BmcBadPrereq, &request, Version::V1_3).encode().unwrap();
    assert_eq!(standard[8..], [0, 4, 0, 9, 4, 14, 0, 8, 0, 0, 0, 9]);
    let extension = reply(ErrorCode::NxBrcMustBeZero, &request, Version::V1_3).encode().unwrap();
    assert_eq!(extension[8..], [0xff, 0xff, 0, 4, 0, 0, 0x23, 0x20, 4, 14, 0, 8, 0, 0, 0, 9]);
    for (bytes, code) in [(standard, ErrorCode::BmcBadPrereq), (extension, ErrorCode::NxBrcMustBeZero)] {
        let Body::Error(error) = Message::decode(&bytes).unwrap().body else { panic!("not an error") };
        assert_eq!(error.code(Version::V1_3), Some(code));
    }
}

#[test]
fn every_code_has_numbers_that_lead_back_to_it_or_to_one_that_shares_them() {
    for code in ErrorCode::ALL {
        assert!(Version::ALL.iter().any(|version| code.to_wire(*version).is_some()), "{code}");
        for version in Version::ALL {
            let Some(numbers) = code.to_wire(version) else { continue };
            let found = ErrorCode::from_wire(version, numbers).unwrap();
            assert_eq!(found.to_wire(version), Some(numbers), "{code} in {version}");
        }
    }
}

#[test]
fn every_field_is_found_by_its_numbers_and_names() {
    for field in FIELDS {
        assert_eq!(FIELDS[field.id as usize].name, field.name);
        assert!(std::ptr::eq(Field::with_name(field.name).unwrap(), field), "{}", field.name);
        for number in field.numbers {
            assert!(std::ptr::eq(Field::with_number(number.id).unwrap(), field), "{}", field.name);
        }
        assert!(usize::from(field.bits) <= field.bytes * 8, "{}", field.name);
    }
    assert_eq!(FieldId::reg(15).unwrap().field().name, "reg15");
    assert_eq!(FieldId::reg(16), None);
    assert_eq!(FieldId::tun_metadata(63).unwrap().field().name, "tun_metadata63");
}

fn flow(fields: Vec<Oxm>, instructions: Vec<Instruction>) -> Message {
    let flow = FlowMod {
        matching: Match::Fields(fields),
        instructions: Instructions(instructions),
        out_port: PortNo::ANY,
        ..FlowMod::default()
    };
    Message::new(Version::V1_3, 7, Body::FlowMod(Box::new(flow)))
}

#[test]
fn unknown_contents_are_kept_and_refused() {
    let unknown =
        Oxm { id: OxmId { class: 0x8000, experimenter: 0, field: 99 }, value: [1, 2][..].into(), mask: None };
    let cases = [
        (flow(vec![unknown], vec![]), ErrorCode::BmcBadField),
        (flow(vec![], vec![Instruction::Unknown(99, vec![0; 4])]), ErrorCode::BicUnknownInst),
        (flow(vec![], vec![Instruction::Unknown(0xffff, vec![0, 0, 0, 9])]), ErrorCode::BicBadExperimenter),
        (apply(vec![Action::Unknown(99, vec![1, 2, 3, 4])]), ErrorCode::BacBadType),
        (
            apply(vec![Action::Unknown(0xffff, vec![0, 0, 0, 9, 5, 5, 5, 5, 6, 6, 6, 6])]),
            ErrorCode::BacBadVendor,
        ),
        (
            apply(vec![Action::Unknown(0xffff, vec![0, 0, 0x23, 0x20, 0x70, 0, 0, 0, 0, 0, 0, 0])]),
            ErrorCode::BacBadVendorType,
        ),
        (Message::new(Version::V1_3, 7, Body::Experimenter(9, vec![1, 2, 3])), ErrorCode::BrcBadVendor),
    ];
    for (message, code) in cases {
        let bytes = message.encode().unwrap();
        assert_eq!(Message::decode(&bytes).unwrap(), message);
        assert_eq!(message.check(), Err(code));
    }
}

fn apply(actions: Vec<Action>) -> Message {
    flow(vec![], vec![Instruction::ApplyActions(actions)])
}

#[test]
fn lists_of_actions_nest_to_a_limit() {
    let nested = |depth| {
        let mut actions = vec![Action::Output(Output { port: PortNo(1), max_len: 0 })];
        for _ in 1..depth {
            actions = vec![Action::Clone(Nest(actions))];
        }
        apply(actions)
    };
    let deepest = nested(MAX_DEPTH);
    assert_eq!(Message::decode(&deepest.encode().unwrap()).unwrap(), deepest);
    assert_eq!(nested(MAX_DEPTH + 1).encode(), Err(EncodeError::Refused(ErrorCode::BacTooMany)));
    // The same on the wire: 3,000 clones within each other.
    let mut bytes = vec![4, 13, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1];
    let len = 3000u16 * 16;
    bytes.extend(len.to_be_bytes());
    bytes.extend([0; 6]);
    for level in 0..3000 {
        bytes.extend([0xff, 0xff]);
        bytes.extend((len - level * 16).to_be_bytes());
        bytes.extend([0, 0, 0x23, 0x20, 0, 42, 0, 0, 0, 0, 0, 0]);
    }
    let total = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    assert_eq!(Message::decode(&bytes).unwrap_err().code, ErrorCode::BacTooMany);
}

#[test]
fn a_spec_of_reserved_bits_is_refused() {
    // A learning action whose only spec has nothing but a reserved bit.
    let mut bytes =
        vec![4, 13, 0, 64, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 40, 0, 0, 0, 0, 0, 0];
    bytes.extend([0xff, 0xff, 0, 40, 0, 0, 0x23, 0x20, 0, 16]);
    bytes.extend([0; 22]);
    bytes.extend([0x40, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Message::decode(&bytes).unwrap_err().code, ErrorCode::BacBadArgument);
}

#[test]
fn what_a_version_lacks_does_not_encode() {
    let meter = flow(vec![], vec![Instruction::Meter(1)]);
    assert!(meter.encode().is_ok());
    let newer = Message { version: Version::V1_5, ..meter };
    assert!(matches!(newer.encode(), Err(EncodeError::Inexpressible(_, Version::V1_5))));
    let long = Message::new(Version::V1_3, 1, Body::EchoRequest(vec![0; 65_528]));
    assert_eq!(long.encode(), Err(EncodeError::TooLong));
    let port = Action::Output(Output { port: PortNo(70_000), max_len: 0 });
    let old = FlowMod { instructions: Instructions::apply(vec![port]), ..FlowMod::default() };
    let old = Message::new(Version::V1_0, 1, Body::FlowMod(Box::new(old)));
    assert!(matches!(old.encode(), Err(EncodeError::Inexpressible(_, Version::V1_0))));
}

#[test]
fn roles_have_other_numbers_as_an_extension() {
    let role = RoleMessage { role: Role::Primary, ..RoleMessage::default() };
    let message = Message::new(Version::V1_0, 1, Body::RoleRequest(role));
    let bytes = message.encode().unwrap();
    assert_eq!(bytes[8..], [0, 0, 0x23, 0x20, 0, 0, 0, 10, 0, 0, 0, 1]);
    assert_eq!(Message::decode(&bytes).unwrap(), message);
}

#[test]
fn a_selection_method_is_a_property() {
    let method = SelectionMethod {
        method: "hash".into(),
        parameter: 7,
        fields: vec![Oxm::number(FieldId::IpSrc, Version::V1_5, 0xffff_ffff)],
    };
    let property = method.to_property();
    assert_eq!(SelectionMethod::from_property(&property), Some(Ok(method)));
}

#[test]
fn prerequisites_come_before_what_needs_them() {
    let number = |field, value| Oxm::number(field, Version::V1_3, value);
    let eth_type = number(FieldId::EthType, 0x0800);
    let protocol = number(FieldId::NwProto, 6);
    let port = number(FieldId::TcpDst, 80);
    assert_eq!(check_fields(&[eth_type.clone(), protocol.clone(), port.clone()]), Ok(()));
    assert_eq!(
        check_fields(&[eth_type.clone(), port.clone(), protocol.clone()]),
        Err(ErrorCode::BmcBadPrereq)
    );
    let again = [eth_type.clone(), protocol.clone(), port.clone(), port];
    assert_eq!(check_fields(&again), Err(ErrorCode::BmcDupField));
    let vid = |value| number(FieldId::VlanVid, value);
    let pcp = number(FieldId::VlanPcp, 3);
    assert_eq!(check_fields(&[vid(0x1005), pcp.clone()]), Ok(()));
    assert_eq!(check_fields(&[vid(0), pcp]), Err(ErrorCode::BmcBadPrereq));
    // Packets other than Ethernet are not supported.
    assert_eq!(check_fields(&[number(FieldId::PacketType, 0)]), Ok(()));
    assert_eq!(check_fields(&[number(FieldId::PacketType, 0x0001_0800)]), Err(ErrorCode::BmcBadValue));
    let outside = Oxm::masked(FieldId::Metadata, Version::V1_3, &[1; 8], &[0; 8]);
    assert_eq!(check_fields(&[outside]), Err(ErrorCode::BmcBadWildcards));
    let partial = Oxm::masked(FieldId::EthType, Version::V1_3, &[8, 0], &[0xff, 0]);
    assert_eq!(check_fields(&[partial]), Err(ErrorCode::BmcBadMask));
}

/// Code with which a flow, as text, is refused.
fn refusal(flow: &str) -> Option<&'static str> {
    let flow = text::parse_flow(flow, FlowModCommand::Add, Version::V1_3).unwrap();
    let message = Message::new(Version::V1_3, 1, Body::FlowMod(Box::new(flow)));
    message.check().err().map(|code| code.name())
}

#[test]
fn action_sets_are_checked_as_what_actions_before_them_leave() {
    const INCONSISTENT: Option<&str> = Some("OFPBAC_MATCH_INCONSISTENT");
    for (flow, expected) in [
        // Another action of the set may make packets suit.
        ("actions=write_actions(dec_ttl,output:1)", None),
        ("actions=dec_ttl,output:1", INCONSISTENT),
        ("actions=write_actions(set_field:1.2.3.4->ip_src)", INCONSISTENT),
        ("actions=push_mpls:0x8847,write_actions(set_field:7->mpls_label)", None),
        // What no action set has goes first.
        ("actions=dec_ttl,write_actions(note:01)", Some("OFPBAC_BAD_TYPE")),
        ("actions=dec_ttl,mod_nw_ecn:7", Some("OFPBAC_BAD_ARGUMENT")),
    ] {
        assert_eq!(refusal(flow), expected, "{flow}");
    }
}

#[test]
fn actions_on_tags_ask_for_a_tag() {
    const INCONSISTENT: Option<&str> = Some("OFPBAC_MATCH_INCONSISTENT");
    for (flow, expected) in [
        ("actions=set_field:0x1005->vlan_tci,pop_vlan", None),
        ("actions=load:1->NXM_OF_VLAN_TCI[12],pop_vlan", None),
        ("vlan_vid=0x1000/0x1000,actions=set_field:0->vlan_tci,pop_vlan", INCONSISTENT),
        ("mpls,vlan_vid=0x1000/0x1000,actions=pop_mpls:0x0800,pop_vlan", None),
        ("vlan_vid=0x1000/0x1000,actions=push_vlan:0x8100,pop_vlan,pop_vlan", None),
        ("vlan_vid=0x1000/0x1000,actions=pop_vlan,pop_vlan", INCONSISTENT),
        ("actions=load:1->OXM_OF_VLAN_VID[0]", INCONSISTENT),
        ("actions=set_field:1/1->vlan_vid", INCONSISTENT),
        ("vlan_vid=0x1000/0x1000,actions=set_field:1/1->vlan_vid", None),
    ] {
        assert_eq!(refusal(flow), expected, "{flow}");
    }
}

#[test]
fn registers_of_several_widths_are_matched_once() {
    for (flow, expected) in [
        ("reg1=1,xreg0=1,actions=drop", Some("OFPBMC_DUP_FIELD")),
        ("xreg5=1,xxreg2=1,actions=drop", Some("OFPBMC_DUP_FIELD")),
        ("reg2=1,xreg0=1,actions=drop", None),
        ("xreg0=0x100000000/0xf00000000,xxreg1=1,actions=drop", None),
    ] {
        assert_eq!(refusal(flow), expected, "{flow}");
    }
}

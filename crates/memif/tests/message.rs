//! Tests the encoding of messages with the protocol's numbers and with arbitrary bytes.
#![allow(clippy::unwrap_used)]

use memif::message::{
    AddRegion, AddRing, DecodeError, Hello, Init, MESSAGE_SIZE, Message, RING_S2M, Secret, VERSION,
};
use proptest::prelude::*;

/// Asserts that the encoded message has these fields (offset, bytes) and zeros elsewhere.
fn assert_bytes(message: &Message, fields: &[(usize, &[u8])]) {
    let mut expected = [0u8; MESSAGE_SIZE];
    for (at, field) in fields {
        expected[*at..*at + field.len()].copy_from_slice(field);
    }
    assert_eq!(message.encode(), expected, "{message:?}");
    assert_eq!(Message::decode(&expected).as_ref(), Ok(message));
}

#[test]
fn layouts() {
    assert_bytes(&Message::Ack, &[(0, &[1])]);
    let hello = Hello {
        name: "sw".into(),
        min_version: VERSION,
        max_version: 0x0201,
        max_region: 255,
        max_m2s_ring: 7,
        max_s2m_ring: 8,
        max_log2_ring_size: 14,
    };
    assert_bytes(
        &Message::Hello(hello),
        &[(0, &[2]), (2, b"sw"), (34, &[0, 2, 1, 2, 255, 0, 7, 0, 8, 0, 14])],
    );
    let init = Init {
        version: VERSION,
        id: 0x0403_0201,
        mode: 2,
        secret: Secret::new("hush").unwrap(),
        name: "vnf".into(),
    };
    assert_bytes(&Message::Init(init), &[(0, &[3]), (2, &[0, 2, 1, 2, 3, 4, 2]), (9, b"hush"), (33, b"vnf")]);
    let region = AddRegion { index: 3, size: 0x0807_0605_0403_0201 };
    assert_bytes(&Message::AddRegion(region), &[(0, &[4]), (2, &[3, 0, 1, 2, 3, 4, 5, 6, 7, 8])]);
    let ring = AddRing {
        flags: RING_S2M,
        index: 2,
        region: 3,
        offset: 0x0403_0201,
        log2_ring_size: 10,
        private_hdr_size: 5,
    };
    assert!(ring.is_s2m());
    assert_bytes(&Message::AddRing(ring), &[(0, &[5]), (2, &[1, 0, 2, 0, 3, 0, 1, 2, 3, 4, 10, 5, 0])]);
    assert_bytes(&Message::Connect { if_name: "a".into() }, &[(0, &[6]), (2, b"a")]);
    assert_bytes(&Message::Connected { if_name: "b".into() }, &[(0, &[7]), (2, b"b")]);
    let disconnect = Message::Disconnect { code: 258, reason: "bye".into() };
    assert_bytes(&disconnect, &[(0, &[8]), (2, &[2, 1]), (6, b"bye")]);
}

#[test]
fn unknown_types_are_named() {
    for number in [0u16, 9, 0x0100, u16::MAX] {
        let mut bytes = [0; MESSAGE_SIZE];
        bytes[..2].copy_from_slice(&number.to_le_bytes());
        let error = Message::decode(&bytes).unwrap_err();
        assert_eq!(error, DecodeError::UnknownType(number));
        assert_eq!(error.to_string(), format!("unknown message type {number}"));
    }
}

#[test]
fn text_is_cut_between_characters_and_before_nul() {
    let cut = |name: &str| match Message::decode(&Message::Connect { if_name: name.into() }.encode()) {
        Ok(Message::Connect { if_name }) => if_name,
        other => format!("{other:?}"),
    };
    assert_eq!(cut(&"x".repeat(40)), "x".repeat(31));
    // The 31st byte is the first half of a two-byte character.
    assert_eq!(cut(&format!("{}é", "x".repeat(30))), "x".repeat(30));
    assert_eq!(cut("before\0after"), "before");
}

#[test]
fn text_without_nul_or_with_garbage_is_made_printable() {
    let mut bytes = [b'x'; MESSAGE_SIZE];
    bytes[..6].copy_from_slice(&[8, 0, 0, 0, 0, 0]);
    assert_eq!(Message::decode(&bytes), Ok(Message::disconnect("x".repeat(96))));
    bytes[6..12].copy_from_slice(b"a\x1b[\xff\n\0");
    assert_eq!(Message::decode(&bytes), Ok(Message::disconnect("a\u{fffd}[\u{fffd}\u{fffd}")));
}

#[test]
fn secrets() {
    assert!(Secret::new("").is_none());
    assert!(Secret::new("a\0b").is_none());
    assert!(Secret::new(&"x".repeat(24)).is_none());
    let secret = Secret::new(&"x".repeat(23)).unwrap();
    assert!(secret.matches(&secret));
    assert!(!secret.matches(&Secret::new("x").unwrap()));
    assert!(!secret.matches(&Secret::default()));
    assert!(Secret::default().is_empty());
    assert_eq!(format!("{secret:?}"), "Secret(...)");
}

fn text(max: usize) -> impl Strategy<Value = String> {
    proptest::string::string_regex(&format!("[ -~]{{0,{max}}}")).unwrap()
}

fn message() -> impl Strategy<Value = Message> {
    let numbers = (any::<u16>(), any::<u16>(), any::<u16>(), any::<u32>(), any::<u8>(), any::<u16>());
    prop_oneof![
        Just(Message::Ack),
        (text(31), numbers, any::<u16>()).prop_map(|(name, n, m)| Message::Hello(Hello {
            name,
            min_version: n.0,
            max_version: n.1,
            max_region: n.2,
            max_m2s_ring: n.5,
            max_s2m_ring: m,
            max_log2_ring_size: n.4,
        })),
        (text(31), numbers, any::<[u8; 24]>()).prop_map(|(name, n, secret)| Message::Init(Init {
            version: n.0,
            id: n.3,
            mode: n.4,
            secret: Secret(secret),
            name,
        })),
        (any::<u16>(), any::<u64>()).prop_map(|(index, size)| Message::AddRegion(AddRegion { index, size })),
        numbers.prop_map(|n| Message::AddRing(AddRing {
            flags: n.0,
            index: n.1,
            region: n.2,
            offset: n.3,
            log2_ring_size: n.4,
            private_hdr_size: n.5,
        })),
        text(31).prop_map(|if_name| Message::Connect { if_name }),
        text(31).prop_map(|if_name| Message::Connected { if_name }),
        (any::<u32>(), text(95)).prop_map(|(code, reason)| Message::Disconnect { code, reason }),
    ]
}

proptest! {
    #[test]
    fn round_trip(message in message()) {
        prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
    }

    #[test]
    fn any_bytes_decode_or_are_refused(
        kind in 0u8..12,
        bytes in prop::collection::vec(any::<u8>(), MESSAGE_SIZE),
    ) {
        let mut bytes: [u8; MESSAGE_SIZE] = bytes.try_into().unwrap();
        bytes[..2].copy_from_slice(&[kind, 0]);
        if let Ok(message) = Message::decode(&bytes) {
            prop_assert!((1..=8).contains(&kind));
            let text = match &message {
                Message::Hello(m) => &m.name,
                Message::Init(m) => &m.name,
                Message::Connect { if_name } | Message::Connected { if_name } => if_name,
                Message::Disconnect { reason, .. } => reason,
                _ => "",
            };
            prop_assert!(!text.chars().any(char::is_control));
            // Every decoded message survives another round trip.
            let again = Message::decode(&message.encode());
            prop_assert_eq!(again.map(|m| m.type_name()), Ok(message.type_name()));
        } else {
            prop_assert!(!(1..=8).contains(&kind));
        }
    }

    #[test]
    fn any_type_number(number in any::<u16>()) {
        let mut bytes = [0; MESSAGE_SIZE];
        bytes[..2].copy_from_slice(&number.to_le_bytes());
        prop_assert_eq!(Message::decode(&bytes).is_ok(), (1..=8).contains(&number));
    }
}

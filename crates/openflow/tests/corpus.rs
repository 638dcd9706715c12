//! Messages that Open vSwitch put on the wire, recorded by `corpus/record.py`: each decodes, passes the checks and
//! encodes to the same bytes.
#![allow(clippy::unwrap_used)]
use std::path::Path;

use openflow::message::{Body, GroupMod};
use openflow::{Message, Version};

/// The recorded messages of a version.
fn recorded(version: Version) -> Vec<Vec<u8>> {
    let name = format!("tests/corpus/openflow1{}.hex", version as u8);
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    text.lines().map(from_hex).collect()
}

fn from_hex(line: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
    line.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

#[test]
fn recorded_messages_round_trip() {
    for version in Version::ALL {
        let messages = recorded(version);
        assert!(messages.len() > 100, "{version}: {} messages", messages.len());
        for bytes in messages {
            let message = Message::decode(&bytes).unwrap_or_else(|error| panic!("{error}: {bytes:02x?}"));
            assert_eq!(message.encode().as_ref(), Ok(&bytes), "{message:?}");
        }
    }
}

#[test]
fn recorded_requests_pass_the_checks() {
    for version in Version::ALL {
        for bytes in recorded(version) {
            let message = Message::decode(&bytes).unwrap();
            assert_eq!(message.check(), Ok(()), "{message:?}");
            if let Body::BundleAdd(add) = &message.body {
                let inner = add.inner().unwrap();
                assert_eq!(inner.check(), Ok(()), "{inner:?}");
                assert_eq!(inner.encode().as_ref(), Ok(&add.message));
            }
        }
    }
}

#[test]
fn truncated_messages_are_refused() {
    for version in Version::ALL {
        for bytes in recorded(version) {
            for len in 8..bytes.len() {
                let mut short = bytes[..len].to_vec();
                short[2..4].copy_from_slice(&(len as u16).to_be_bytes());
                // What decodes nevertheless ends where a list may end.
                if let Ok(message) = Message::decode(&short) {
                    assert_eq!(message.encode().as_ref(), Ok(&short));
                }
            }
        }
    }
}

#[test]
fn every_version_has_every_kind_of_change() {
    for version in Version::ALL {
        let messages: Vec<Message> =
            recorded(version).iter().map(|bytes| Message::decode(bytes).unwrap()).collect();
        let has = |wanted: fn(&Body) -> bool| messages.iter().any(|message| wanted(&message.body));
        assert!(has(|body| matches!(body, Body::FlowMod(_))), "{version}");
        assert!(
            has(|body| matches!(body, Body::GroupMod(GroupMod { buckets, .. }) if !buckets.is_empty())),
            "{version}"
        );
        assert!(has(|body| matches!(body, Body::PacketOut(_))), "{version}");
        assert!(has(|body| matches!(body, Body::PacketIn(_) | Body::PacketIn2(_))), "{version}");
        assert!(has(|body| matches!(body, Body::MultipartReply(_))), "{version}");
        assert!(has(|body| matches!(body, Body::PortStatus(_))), "{version}");
        assert!(version < Version::V1_3 || has(|body| matches!(body, Body::MeterMod(_))), "{version}");
        assert!(version < Version::V1_3 || has(|body| matches!(body, Body::BundleAdd(_))), "{version}");
    }
}

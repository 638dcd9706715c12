//! Lists of match fields, OXM and NXM: as a match of version 1.3, and in Nicira's form of version 1.0.
//!
//! Invariants:
//! - No panic, neither in decoding nor in the checks.
//! - What decodes encodes to the same bytes: fields have no padding.
//! - A match that passes the checks says the same by the nearest fixed match, or more: that has no further field.
#![no_main]

use libfuzzer_sys::fuzz_target;
use openflow::Message;
use openflow::matching::{Match, Match10};
use openflow::message::Body;

fuzz_target!(|data: &[u8]| {
    let fields = &data[..data.len().min(4096)];
    let padding = vec![0; fields.len().next_multiple_of(8) - fields.len()];
    // The request for statistics of flows, which ends with its match.
    let mut extension =
        vec![1, 16, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0, 0x23, 0x20, 0, 0, 0, 0, 0, 0, 0, 0];
    extension.extend([0xff, 0xff]);
    extension.extend((fields.len() as u16).to_be_bytes());
    extension.extend([0xff, 0, 0, 0]);
    round_trip(extension, fields, &padding);
    let mut standard = vec![4, 18, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0];
    standard.extend([0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    standard.extend([0; 16]);
    standard.extend([0, 1]);
    standard.extend((fields.len() as u16 + 4).to_be_bytes());
    let padding = vec![0; (fields.len() + 4).next_multiple_of(8) - fields.len() - 4];
    round_trip(standard, fields, &padding);
});

fn round_trip(mut message: Vec<u8>, fields: &[u8], padding: &[u8]) {
    message.extend_from_slice(fields);
    message.extend_from_slice(padding);
    let len = message.len() as u16;
    message[2..4].copy_from_slice(&len.to_be_bytes());
    let Ok(decoded) = Message::decode(&message) else { return };
    assert_eq!(decoded.encode().as_ref(), Ok(&message));
    let _ = decoded.check();
    let Body::MultipartRequest(request) = decoded.body else { panic!("not a request") };
    let openflow::multipart::Request::Flow(request) = request.content else { panic!("not for flows") };
    if request.matching.check().is_ok() {
        let fields = request.matching.to_fields().expect("a list is one already");
        let fixed = Match::Fixed10(Match10::from_fields(&fields));
        assert_eq!(fixed.check(), Ok(()));
        assert!(fixed.to_fields().expect("fixed fields are in range").len() <= fields.len() + 1);
    }
}

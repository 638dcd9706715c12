//! OpenFlow messages with arbitrary content, of every version and kind. Header and length are corrected so that the
//! fuzzer need not find them.
//!
//! Invariants:
//! - No panic, neither in decoding nor in the checks.
//! - What decodes encodes; the encoding decodes to the same message, and encodes to itself.
//! - An error's reply encodes, decodes to the same code's numbers, and repeats the request's start.
#![no_main]

use libfuzzer_sys::fuzz_target;
use openflow::error::{MAX_OFFENDING, reply};
use openflow::message::Body;
use openflow::{Message, Version};

fuzz_target!(|data: &[u8]| {
    let mut message = data.to_vec();
    message.resize(message.len().clamp(8, 65_535), 0);
    let len = message.len() as u16;
    if let [version, _, high, low, ..] = message.as_mut_slice() {
        *version = *version % 6 + 1;
        [*high, *low] = len.to_be_bytes();
    }
    match Message::decode(&message) {
        Ok(decoded) => {
            let encoded = decoded.encode().expect("what decodes encodes");
            let again = Message::decode(&encoded).expect("the encoding decodes");
            assert_eq!(again, decoded);
            assert_eq!(again.encode().as_ref(), Ok(&encoded));
            if let Err(code) = decoded.check() {
                refuse(code, &message);
            }
        }
        Err(error) => {
            assert!(error.at <= message.len());
            refuse(error.code, &message);
        }
    }
});

fn refuse(code: openflow::error::ErrorCode, request: &[u8]) {
    let answer = reply(code, request, Version::V1_3);
    let bytes = answer.encode().expect("an error encodes");
    let decoded = Message::decode(&bytes).expect("an error decodes");
    assert_eq!(decoded, answer);
    let Body::Error(error) = decoded.body else { panic!("not an error") };
    assert_eq!(error.data, request[..request.len().min(MAX_OFFENDING)]);
}

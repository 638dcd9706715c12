//! Lists of actions in every version, and of instructions: as what a flow-mod ends with.
//!
//! Invariants:
//! - No panic, neither in decoding nor in the checks, however deep lists nest.
//! - What decodes encodes; the encoding decodes to the same actions, and encodes to itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use openflow::Message;
use openflow::action::check_list;
use openflow::message::Body;

fuzz_target!(|data: &[u8]| {
    let [version, rest @ ..] = data else { return };
    let version = version % 6 + 1;
    let list = &rest[..rest.len().min(60_000)];
    let mut message = vec![version, 13, 0, 0, 0, 0, 0, 1];
    // A packet-out without a packet.
    message.extend([0xff; 4]);
    match version {
        1 => message.extend([0, 1]),
        6 => {}
        _ => message.extend([0, 0, 0, 1]),
    }
    message.extend((list.len() as u16).to_be_bytes());
    match version {
        1 => {}
        6 => message.extend([0, 0, 0, 1, 0, 4, 0, 0, 0, 0]),
        _ => message.extend([0; 6]),
    }
    message.extend_from_slice(list);
    let len = message.len() as u16;
    message[2..4].copy_from_slice(&len.to_be_bytes());
    let Ok(decoded) = Message::decode(&message) else { return };
    let encoded = decoded.encode().expect("what decodes encodes");
    let again = Message::decode(&encoded).expect("the encoding decodes");
    assert_eq!(again, decoded);
    assert_eq!(again.encode().as_ref(), Ok(&encoded));
    let Body::PacketOut(packet) = &decoded.body else { panic!("not a packet-out") };
    let _ = check_list(&packet.actions, decoded.version, &[]);
    let _ = decoded.check();
});

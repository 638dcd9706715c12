//! What Open vSwitch refuses, recorded by `corpus/refusals.py`: the codec refuses the same requests with the same codes.
//!
//! Open vSwitch has a state, and meets the first of several errors where the codec may meet another one. The test names
//! the codes that come from the state and bounds the rest.
#![allow(clippy::unwrap_used)]

use openflow::error::{ErrorCode, ErrorNumbers};
use openflow::{Message, Version};

/// Codes that depend on the switch's tables, groups, meters, ports and bundles, on its abilities, or on earlier
/// messages.
fn depends_on_state(code: ErrorCode) -> bool {
    use ErrorCode as E;
    let prefixes = ["OFPBFC", "OFPQOFC", "NXTTMFC"];
    prefixes.iter().any(|prefix| code.name().starts_with(prefix))
        || matches!(
            code,
            E::BrcBadType
                | E::BrcBadStat
                | E::BrcEperm
                | E::BrcBufferUnknown
                | E::BacBadOutGroup
                | E::FmfcBadCommand
                | E::GmfcGroupExists
                | E::GmfcUnknownGroup
                | E::MmfcBadBand
                | E::MmfcInvalidMeter
                | E::MmfcMeterExists
                | E::MmfcUnknownMeter
                | E::NxFmfcInvalidTlvField
        )
}

/// The numbers of a recorded error: type and code, and for extensions who defines them.
fn numbers(verdict: &str) -> ErrorNumbers {
    let word = |at: usize| u16::from_str_radix(&verdict[at..at + 4], 16).unwrap();
    let vendor = |at: usize| u32::from_str_radix(&verdict[at..at + 8], 16).unwrap();
    match word(0) {
        0xb0c2 => ErrorNumbers { vendor: vendor(8), kind: word(16), code: word(20) },
        0xffff => ErrorNumbers { vendor: vendor(8), kind: word(4), code: 0 },
        kind => ErrorNumbers { vendor: 0, kind, code: word(4) },
    }
}

/// What a version can say of a code: several codes may share numbers.
fn as_sent(code: ErrorCode, version: Version) -> ErrorNumbers {
    code.to_wire(version).or_else(|| ErrorCode::NxBrcUnencodableError.to_wire(version)).unwrap()
}

#[test]
fn refusals_are_those_of_open_vswitch() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/refusals.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let (mut same, mut lenient, mut strict, mut other) = (0, Vec::new(), Vec::new(), Vec::new());
    for line in text.lines() {
        let (request, verdict) = line.split_once(' ').unwrap();
        let pairs = request.as_bytes().chunks_exact(2);
        let request: Vec<u8> =
            pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect();
        let version = Version::from_number(request[0]).unwrap();
        let ours = match Message::decode(&request) {
            Ok(message) => message.check().err(),
            Err(error) => Some(error.code),
        };
        let theirs = (verdict != "accepted").then(|| numbers(verdict));
        let state =
            theirs.and_then(|numbers| ErrorCode::from_wire(version, numbers)).is_some_and(depends_on_state);
        match (ours, theirs) {
            (None, None) => same += 1,
            (Some(code), Some(numbers)) if as_sent(code, version) == numbers => same += 1,
            _ if state => {}
            (None, Some(numbers)) => lenient.push(format!("{numbers:?} {line}")),
            (Some(code), None) => strict.push(format!("{code} {line}")),
            (Some(code), Some(numbers)) => other.push(format!("{code} {numbers:?} {line}")),
        }
    }
    println!("same {same}, lenient {}, strict {}, other code {}", lenient.len(), strict.len(), other.len());
    let all = same + lenient.len() + strict.len() + other.len();
    assert!(all > 2000, "{all} requests");
    // Each in a hundred.
    assert!(lenient.len() * 100 < all, "accepted here only:\n{}", lenient.join("\n"));
    assert!(strict.len() * 100 < all, "refused here only:\n{}", strict.join("\n"));
    assert!(other.len() * 100 < 3 * all, "refused with another code:\n{}", other.join("\n"));
}

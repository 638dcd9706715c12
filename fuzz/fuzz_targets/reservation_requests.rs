//! A hostile client of the logic `three-tuple`: bytes on its socket, in pieces of any length.
//!
//! Invariants:
//! - No panic; the splitter holds at most one line of the permitted length.
//! - Lines come out as they went in, whatever the pieces.
//! - A request means the same after it is written and read again; it names at least one port, and no port 0.
//! - Errors are printable.
#![no_main]

use libfuzzer_sys::fuzz_target;
use logic::three_tuple::request::{Lines, MAX_LINE, Request};
use support::Bytes;

fuzz_target!(|data: &[u8]| {
    let mut from = Bytes::new(data);
    let piece = 1 + usize::from(from.u8());
    let rest = from.slice(data.len());
    let mut expected = rest.split(|byte| *byte == b'\n');
    let mut lines = Lines::default();
    let mut bytes = rest;
    loop {
        assert!(lines.room() <= MAX_LINE + 1);
        match lines.next_line() {
            Ok(Some(line)) => {
                assert_eq!(expected.next(), Some(&line[..]));
                check(&line);
            }
            Ok(None) if bytes.is_empty() => return,
            Ok(None) => {
                let (now, later) = bytes.split_at(piece.min(lines.room()).min(bytes.len()));
                lines.push(now);
                bytes = later;
            }
            Err(error) => {
                assert!(expected.next().is_some_and(|line| line.len() > MAX_LINE));
                assert!(!error.to_string().contains('\n'));
                return;
            }
        }
    }
});

fn check(line: &[u8]) {
    match Request::parse(line) {
        Ok(request) => {
            let again = request.to_string();
            assert_eq!(Request::parse(again.as_bytes()), Ok(request.clone()));
            if let Request::Reserve { endpoints, .. } | Request::Release { endpoints, .. } = request {
                assert!(endpoints.ports.count() >= 1 && endpoints.ports.iter().all(|port| port > 0));
                assert!(!endpoints.address.is_unspecified() && !endpoints.address.is_loopback());
            }
        }
        Err(error) => assert!(!error.to_string().contains(char::is_control)),
    }
}

//! Capture files with arbitrary content.
//!
//! Invariants:
//! - No panic, and the reader ends: each frame consumes bytes of the file.
//! - A frame has as many bytes as its header says, or none if the fabric does not support its length; all bytes are in
//!   the file.
//! - A truncated file starts with the same frames.
#![no_main]

use fabric::rx::MAX_PACKET;
use libfuzzer_sys::fuzz_target;
use ports::pcap::reader::{Frame, Reader};

fuzz_target!(|data: &[u8]| {
    let all = read(data);
    let taken: usize = all.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(taken <= data.len() && all.len() <= data.len());
    let half = data.get(..data.len() / 2).unwrap_or_default();
    assert!(all.starts_with(&read(half)));
});

/// Reads the frames up to the end or to the first error.
fn read(file: &[u8]) -> Vec<(Frame, Vec<u8>)> {
    let Ok(mut reader) = Reader::new(file) else { return Vec::new() };
    let (mut frames, mut data) = (Vec::new(), Vec::new());
    while let Ok(Some(frame)) = reader.next(&mut data) {
        let expected = if frame.len > MAX_PACKET { 0 } else { frame.len };
        assert_eq!(data.len(), expected as usize);
        frames.push((frame, data.clone()));
    }
    frames
}

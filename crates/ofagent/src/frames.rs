//! Framing: complete messages out of a stream.
//!
//! Invariant: the buffer holds less than one message (64 KiB) and one read.

use openflow::message::{HEADER, Header};

/// A header with a length that is shorter than a header: the next message cannot be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadLength(pub(crate) Vec<u8>);

/// Bytes received.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    /// Bytes of messages already returned.
    taken: usize,
}

impl Frames {
    /// Appends what was read.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken.min(self.bytes.len()));
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether [`Frames::next`] returns a message or an error.
    pub(crate) fn has_next(&self) -> bool {
        let rest = self.rest();
        Header::peek(rest).is_some_and(|header| rest.len() >= usize::from(header.length))
    }

    /// Returns the next complete message.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, BadLength> {
        let rest = self.bytes.get(self.taken..).unwrap_or_default();
        let Some(header) = Header::peek(rest) else { return Ok(None) };
        let length = usize::from(header.length);
        if length < HEADER {
            return Err(BadLength(rest.get(..HEADER).unwrap_or_default().to_vec()));
        }
        let message = rest.get(..length);
        if message.is_some() {
            self.taken += length;
        }
        Ok(message)
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_however_they_arrive() {
        let stream = [1, 2, 0, 8, 0, 0, 0, 1, 1, 2, 0, 10, 0, 0, 0, 2, 7, 7, 1, 2, 0, 8, 0, 0, 0, 3];
        for size in 1..=stream.len() {
            let mut frames = Frames::default();
            let mut found = vec![];
            for part in stream.chunks(size) {
                frames.push(part);
                while let Some(message) = frames.next().unwrap() {
                    found.push(message.len());
                }
                assert!(!frames.has_next());
            }
            assert_eq!(found, [8, 10, 8], "in parts of {size}");
        }
    }

    #[test]
    fn a_length_below_a_header_is_an_error() {
        let mut frames = Frames::default();
        frames.push(&[1, 2, 0, 7, 0, 0, 0]);
        assert_eq!(frames.next(), Ok(None));
        frames.push(&[9]);
        assert!(frames.has_next());
        assert_eq!(frames.next(), Err(BadLength(vec![1, 2, 0, 7, 0, 0, 0, 9])));
    }
}

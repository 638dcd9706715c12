//! Splits a stream into JSON objects: JSON-RPC 1.0 has no framing (RFC 7047 §4).
//!
//! Only strings and brackets are looked at; whether the text between them is JSON is for the parser to say.
//!
//! Invariants:
//! - Each byte is looked at once, however the stream arrives.
//! - The buffer holds at most one message of the greatest size and one read.

/// Reasons why a stream cannot be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// A message begins with another byte than `{`.
    #[error("expected a message that begins with `{{`, found byte 0x{0:02x}")]
    NotAnObject(u8),
    /// A message exceeds the greatest size.
    #[error("a message has more than {0} bytes")]
    TooLong(usize),
}

/// The bytes received, and the place reached in them.
#[derive(Debug)]
pub struct Splitter {
    bytes: Vec<u8>,
    /// Where the current message starts.
    start: usize,
    /// The first byte not looked at yet.
    next: usize,
    /// Open brackets and braces.
    depth: usize,
    in_string: bool,
    after_backslash: bool,
    limit: usize,
}

impl Splitter {
    /// Creates a splitter for messages of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let (bytes, start, next, depth, in_string, after_backslash) = Default::default();
        Self { bytes, start, next, depth, in_string, after_backslash, limit }
    }

    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start.min(self.bytes.len()));
        self.next -= self.start;
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete message. After an error, the rest of the stream has no meaning.
    pub fn next_message(&mut self) -> Result<Option<&[u8]>, SplitError> {
        while let Some(&byte) = self.bytes.get(self.next) {
            if self.depth == 0 && byte != b'{' {
                if !byte.is_ascii_whitespace() {
                    return Err(SplitError::NotAnObject(byte));
                }
                self.next += 1;
                self.start = self.next;
                continue;
            }
            self.next += 1;
            if self.next - self.start > self.limit {
                return Err(SplitError::TooLong(self.limit));
            }
            if self.in_string {
                self.look_at_string(byte);
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth -= 1,
                _ => {}
            }
            if self.depth == 0 {
                let begin = std::mem::replace(&mut self.start, self.next);
                return Ok(self.bytes.get(begin..self.next));
            }
        }
        Ok(None)
    }

    fn look_at_string(&mut self, byte: u8) {
        match byte {
            _ if self.after_backslash => self.after_backslash = false,
            b'\\' => self.after_backslash = true,
            b'"' => self.in_string = false,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(stream: &[u8], size: usize, limit: usize) -> Result<Vec<String>, SplitError> {
        let mut splitter = Splitter::new(limit);
        let mut messages = vec![];
        for part in stream.chunks(size.max(1)) {
            splitter.push(part);
            while let Some(message) = splitter.next_message()? {
                messages.push(String::from_utf8_lossy(message).into_owned());
            }
        }
        Ok(messages)
    }

    #[test]
    fn messages_are_found_however_they_arrive() {
        let messages = [r#"{}"#, r#"{"a":"}{\"\\"}"#, r#"{"b":[{"c":[]},"]"]}"#];
        let stream = format!(" {}\n{}{}  {{\"unfinished\":[", messages[0], messages[1], messages[2]);
        for size in 1..=stream.len() {
            assert_eq!(split(stream.as_bytes(), size, 100).unwrap(), messages, "in parts of {size}");
        }
    }

    #[test]
    fn other_streams_are_refused() {
        assert_eq!(split(b"{} x", 1, 100), Err(SplitError::NotAnObject(b'x')));
        assert_eq!(split(b"[]", 1, 100), Err(SplitError::NotAnObject(b'[')));
        assert_eq!(split(b"}", 1, 100), Err(SplitError::NotAnObject(b'}')));
        assert_eq!(split(br#"{"a":1}"#, 3, 7), Ok(vec![r#"{"a":1}"#.into()]));
        assert_eq!(split(br#"{"a":12}"#, 3, 7), Err(SplitError::TooLong(7)));
    }

    proptest! {
        #[test]
        fn the_parts_do_not_matter(stream in "[{}\\[\\]\"\\\\a ]{0,40}", size in 1..9usize) {
            prop_assert_eq!(split(stream.as_bytes(), size, 20), split(stream.as_bytes(), 1000, 20));
        }
    }
}

//! Remarks: a logic's explanation of its decisions, made on request ([`crate::SwitchLogic::explain`]).
//!
//! A remark is plain data: a text with placeholders for ports, addresses and numbers. So a worker records it without
//! allocating, and the reader fills in the names of ports.
//!
//! Invariant: nothing here allocates while packets pass; remarks that do not fit are counted.

use std::fmt::{self, Write};

use packet::ether::MacAddr;

use crate::bridge::port::PortIndex;
use crate::counters::DropReason;

/// Remarks kept of one batch.
const REMARKS: usize = 1024;

/// Most values in a remark.
pub const VALUES: usize = 4;

/// A short text that is not known at compile time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text {
    bytes: [u8; Text::MAX],
    len: u8,
}

impl Text {
    /// Maximum length, bytes.
    pub const MAX: usize = 62;

    /// The first [`Text::MAX`] of these bytes.
    pub fn new(from: &[u8]) -> Self {
        let mut text = Self { bytes: [0; Self::MAX], len: from.len().min(Self::MAX) as u8 };
        text.bytes.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        text
    }

    /// The first [`Text::MAX`] bytes of a value's `Display`, with `...` as the last three where it is longer. Allocates
    /// nothing.
    pub fn of(value: impl fmt::Display) -> Self {
        let mut text = Self { bytes: [0; Self::MAX], len: 0 };
        if write!(text, "{value}").is_err()
            && let Some(end) = text.bytes.last_chunk_mut()
        {
            *end = *b"...";
        }
        text
    }
}

impl fmt::Write for Text {
    /// Fails where the text is full; the bytes that fit are kept.
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let free = self.bytes.get_mut(usize::from(self.len)..).unwrap_or_default();
        let fits = free.len().min(more.len());
        free.iter_mut().zip(more.bytes()).for_each(|(to, from)| *to = from);
        self.len += fits as u8;
        if fits < more.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

impl fmt::Display for Text {
    /// Shows bytes that are not UTF-8 as replacement characters, and escapes control characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        for letter in String::from_utf8_lossy(bytes).chars() {
            match letter.is_control() {
                true => write!(f, "{}", letter.escape_default())?,
                false => write!(f, "{letter}")?,
            }
        }
        Ok(())
    }
}

/// A value that a remark names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    #[default]
    None,
    /// A port.
    Port(PortIndex),
    /// A station or group.
    Mac(MacAddr),
    /// A number.
    Number(u64),
    /// A word of the logic's own.
    Word(&'static str),
    /// Text of a logic from outside.
    Text(Text),
}

/// A step of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remark {
    /// The packet of the batch that it is about.
    pub(crate) packet: u16,
    /// The stage of a chain that made it: number and name of the logic.
    pub stage: Option<(u16, Text)>,
    /// Finding or action, with `{}` for each value.
    pub text: &'static str,
    /// The values, in the order of their placeholders.
    pub values: [Value; VALUES],
}

impl Remark {
    pub(crate) fn new(packet: u16, text: &'static str, named: &[Value]) -> Self {
        let mut values = [Value::None; VALUES];
        values.iter_mut().zip(named).for_each(|(value, named)| *value = *named);
        Self { packet, stage: None, text, values }
    }

    pub(crate) fn of_drop(packet: u16, reason: DropReason) -> Self {
        Self::new(packet, "dropped ({}): {}", &[Value::Word(reason.name()), Value::Word(reason.meaning())])
    }

    /// The remark as a sentence, with the ports' names.
    pub fn sentence(&self, name: impl Fn(PortIndex) -> String) -> String {
        let mut pieces = self.text.split("{}");
        let mut sentence =
            self.stage.map(|(number, name)| format!("stage {number}, {name}: ")).unwrap_or_default();
        sentence.push_str(pieces.next().unwrap_or_default());
        for (piece, value) in pieces.zip(&self.values) {
            match value {
                Value::None => {}
                Value::Port(port) => sentence.push_str(&name(*port)),
                Value::Mac(mac) => sentence.push_str(&mac.to_string()),
                Value::Number(number) => sentence.push_str(&number.to_string()),
                Value::Word(word) => sentence.push_str(word),
                Value::Text(text) => sentence.push_str(&text.to_string()),
            }
            sentence.push_str(piece);
        }
        sentence
    }
}

/// The remarks on one batch.
#[derive(Default)]
pub(crate) struct Journal {
    remarks: Vec<Remark>,
    pub(crate) open: bool,
    pub(crate) omitted: u32,
    /// The stage of a chain that the next remarks come from.
    pub(crate) stage: Option<(u16, Text)>,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self { remarks: Vec::with_capacity(REMARKS), ..Self::default() }
    }

    /// Begins a batch, whose remarks are kept if `open`.
    pub(crate) fn begin(&mut self, open: bool) {
        self.remarks.clear();
        self.open = open;
        self.omitted = 0;
        self.stage = None;
    }

    #[inline]
    pub(crate) fn add(&mut self, remark: impl FnOnce() -> Remark) {
        if !self.open {
            return;
        }
        if self.remarks.len() < self.remarks.capacity() {
            self.remarks.push(Remark { stage: self.stage, ..remark() });
        } else {
            self.omitted += 1;
        }
    }

    pub(crate) fn remarks(&self) -> &[Remark] {
        &self.remarks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_take_their_places() {
        let values = [Value::Mac(MacAddr([2, 0, 0, 0, 0, 1])), Value::Port(PortIndex(3)), Value::Number(7)];
        let remark = Remark::new(0, "{} is at {} in VLAN {}", &values);
        assert_eq!(remark.sentence(|port| format!("p{}", port.0)), "02:00:00:00:00:01 is at p3 in VLAN 7");
        assert_eq!(Remark::new(0, "plain", &[]).sentence(|_| String::new()), "plain");
        let text = Value::Text(Text::new(b"tab\there\xff"));
        assert_eq!(Remark::new(0, "<{}>", &[text]).sentence(|_| String::new()), "<tab\\there\u{fffd}>");
        assert_eq!(Remark::new(0, "{}{}{}{}{}", &[Value::Word("a")]).sentence(|_| String::new()), "a");
    }

    #[test]
    fn a_text_that_is_too_long_says_so() {
        assert_eq!(Text::of("short").to_string(), "short");
        assert_eq!(Text::of("x".repeat(Text::MAX)).to_string(), "x".repeat(Text::MAX));
        let long = Text::of(format_args!("{}{}", "x".repeat(60), "yyy")).to_string();
        assert_eq!(long, format!("{}...", "x".repeat(59)));
    }

    #[test]
    fn remarks_beyond_the_room_are_counted() {
        let mut journal = Journal::new();
        journal.add(|| Remark::new(0, "closed", &[]));
        assert!(journal.remarks().is_empty());
        journal.begin(true);
        let room = journal.remarks.capacity();
        (0..room + 5).for_each(|_| journal.add(|| Remark::new(0, "x", &[])));
        assert_eq!((journal.remarks().len(), journal.omitted), (room, 5));
        journal.begin(true);
        assert!(journal.remarks().is_empty());
    }
}

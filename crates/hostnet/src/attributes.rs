//! Netlink attributes, kept as the kernel sent them.
//!
//! An object is moved by sending the attributes that the kernel reported for it, so attributes that this crate does
//! not interpret survive a move too. The journal holds values as hexadecimal text.
//!
//! Invariant: reading attributes never panics, whatever their bytes; a malformed list is an error.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{
    DecodeError, Emitable, NLA_F_NESTED, NLA_F_NET_BYTEORDER, NLA_TYPE_MASK, Nla, NlasIterator,
};
use serde::{Deserialize, Serialize};

/// One attribute: its kind, with the kernel's flags for nesting and byte order, and its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Attribute {
    kind: u16,
    #[serde(with = "hex")]
    value: Vec<u8>,
}

impl Nla for Attribute {
    fn value_len(&self) -> usize {
        self.value.len()
    }

    fn kind(&self) -> u16 {
        self.kind
    }

    fn emit_value(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.value);
    }
}

/// An ordered list of attributes; a kind occurs at most once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attributes(Vec<Attribute>);

impl Attributes {
    /// Parses a list of attributes, such as the part of a message behind its header.
    pub fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut list = Self::default();
        for attribute in NlasIterator::new(bytes) {
            let attribute = attribute?;
            let mut kind = attribute.kind();
            if attribute.nested_flag() {
                kind |= NLA_F_NESTED;
            }
            if attribute.network_byte_order_flag() {
                kind |= NLA_F_NET_BYTEORDER;
            }
            list.set(kind, attribute.value());
        }
        Ok(list)
    }

    /// Appends the attributes to a message.
    pub fn emit(&self, message: &mut Vec<u8>) {
        let list = self.0.as_slice();
        let start = message.len();
        message.resize(start + list.buffer_len(), 0);
        list.emit(&mut message[start..]);
    }

    /// Returns the value of an attribute.
    pub fn get(&self, kind: u16) -> Option<&[u8]> {
        let kind = kind & NLA_TYPE_MASK;
        self.0
            .iter()
            .find(|attribute| attribute.kind & NLA_TYPE_MASK == kind)
            .map(|found| found.value.as_slice())
    }

    /// Sets the value of an attribute, in place or at the end.
    pub fn set(&mut self, kind: u16, value: &[u8]) {
        let value = value.to_vec();
        let found =
            self.0.iter_mut().find(|attribute| attribute.kind & NLA_TYPE_MASK == kind & NLA_TYPE_MASK);
        match found {
            Some(attribute) => attribute.value = value,
            None => self.0.push(Attribute { kind, value }),
        }
    }

    /// Removes an attribute.
    pub fn remove(&mut self, kind: u16) {
        self.0.retain(|attribute| attribute.kind & NLA_TYPE_MASK != kind & NLA_TYPE_MASK);
    }

    /// Keeps only attributes of these kinds.
    pub fn retain(&mut self, kinds: &[u16]) {
        self.0.retain(|attribute| kinds.contains(&(attribute.kind & NLA_TYPE_MASK)));
    }

    /// Returns a number of 8, 16 or 32 bits in the machine's byte order.
    pub fn number(&self, kind: u16) -> Option<u32> {
        match *self.get(kind)? {
            [a] => Some(a.into()),
            [a, b] => Some(u16::from_ne_bytes([a, b]).into()),
            [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d])),
            _ => None,
        }
    }

    /// Sets a number of 32 bits.
    pub fn set_number(&mut self, kind: u16, value: u32) {
        self.set(kind, &value.to_ne_bytes());
    }

    /// Returns an IPv4 or IPv6 address.
    pub fn ip(&self, kind: u16) -> Option<IpAddr> {
        ip(self.get(kind)?)
    }

    /// Returns a string; the kernel ends strings with a zero.
    pub fn text(&self, kind: u16) -> Option<String> {
        let value = self.get(kind)?;
        let value = value.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    /// Sets a string.
    pub fn set_text(&mut self, kind: u16, text: &str) {
        let mut value = text.as_bytes().to_vec();
        value.push(0);
        self.set(kind, &value);
    }

    /// Returns the attributes nested in an attribute; a malformed list reads as absent.
    pub fn nested(&self, kind: u16) -> Option<Self> {
        Self::parse(self.get(kind)?).ok()
    }

    /// Sets an attribute that nests others.
    pub fn set_nested(&mut self, kind: u16, nested: &Self) {
        let mut value = Vec::new();
        nested.emit(&mut value);
        self.remove(kind);
        self.set(kind | NLA_F_NESTED, &value);
    }
}

/// Reads an address of 4 or 16 bytes.
pub(crate) fn ip(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(v4).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| Ipv6Addr::from(v6).into())
}

/// Reads a number of 32 bits in the machine's byte order at an offset.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

mod hex {
    use std::fmt::Write;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        serializer.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits: Option<Vec<u8>> =
            text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
        match digits {
            Some(digits) if digits.len() % 2 == 0 => {
                Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
            }
            _ => Err(D::Error::custom(format!("`{text}` is not an even number of hexadecimal digits"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn attributes_survive_a_round_trip(list in btree_map(1_u16..0x3fff, vec(any::<u8>(), 0..40), 0..10)) {
            let mut attributes = Attributes::default();
            for (kind, value) in &list {
                attributes.set(*kind, value);
            }
            let mut bytes = Vec::new();
            attributes.emit(&mut bytes);
            prop_assert_eq!(&Attributes::parse(&bytes).unwrap(), &attributes);
            let text = serde_json::to_string(&attributes).unwrap();
            prop_assert_eq!(serde_json::from_str::<Attributes>(&text).unwrap(), attributes);
        }

        #[test]
        fn arbitrary_bytes_are_parsed_or_refused(bytes in vec(any::<u8>(), 0..80)) {
            if let Ok(attributes) = Attributes::parse(&bytes) {
                for kind in 0..32 {
                    let _ = (attributes.number(kind), attributes.ip(kind), attributes.text(kind));
                    let _ = attributes.nested(kind);
                }
            }
        }
    }

    #[test]
    fn values_are_read_by_their_length() {
        let mut attributes = Attributes::default();
        attributes.set_number(1, 7);
        attributes.set(2, &[9]);
        attributes.set(3, &[10, 0, 0, 1]);
        attributes.set_text(4, "eth0");
        assert_eq!(attributes.number(1), Some(7));
        assert_eq!(attributes.number(2), Some(9));
        assert_eq!(attributes.ip(3), Some("10.0.0.1".parse().unwrap()));
        assert_eq!(attributes.text(4).as_deref(), Some("eth0"));
        assert_eq!(attributes.number(4), None);
        attributes.retain(&[2]);
        assert_eq!(attributes.number(1), None);
    }

    #[test]
    fn a_journal_with_odd_hexadecimal_is_refused() {
        let error = serde_json::from_str::<Attributes>(r#"[{"kind":1,"value":"abc"}]"#).unwrap_err();
        assert!(
            error.to_string().starts_with("`abc` is not an even number of hexadecimal digits"),
            "{error}"
        );
    }
}

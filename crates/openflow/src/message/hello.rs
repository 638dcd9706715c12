//! Hello: the first message, with the versions that a side speaks.

use crate::error::{DecodeError, ErrorCode};
use crate::message::Header;
use crate::property::properties;
use crate::version::Version;
use crate::wire::{Coder, Reader, Record, Step};

/// A set of versions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Versions(
    /// Bit `n` stands for the version with number `n`.
    pub u32,
);

impl Versions {
    /// Whether the set has a version.
    pub fn contains(self, version: Version) -> bool {
        self.0 & 1 << version.number() != 0
    }

    /// The newest version in both sets.
    pub fn newest_common(self, other: Versions) -> Option<Version> {
        Version::ALL.into_iter().rev().find(|version| self.contains(*version) && other.contains(*version))
    }
}

impl FromIterator<Version> for Versions {
    fn from_iter<I: IntoIterator<Item = Version>>(versions: I) -> Self {
        Versions(versions.into_iter().fold(0, |bits, version| bits | 1 << version.number()))
    }
}

/// Versions as a bitmap of any length.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct VersionBitmap(
    /// Words of 32 versions each.
    pub Vec<u32>,
);

impl Record for VersionBitmap {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.list(&mut self.0)
    }
}

properties! {
    /// An element of a hello.
    pub enum HelloElement {
        /// The versions that the sender speaks.
        1 => Versions(VersionBitmap),
    }
}

/// Body of a hello.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Hello {
    /// Elements.
    pub elements: Vec<HelloElement>,
    /// What follows the last well-formed element. The standard asks to ignore it.
    pub trailing: Vec<u8>,
}

impl Hello {
    /// The hello of a side that speaks `versions`. Its header has the newest one.
    pub fn new(versions: Versions) -> Self {
        let elements = vec![HelloElement::Versions(VersionBitmap(vec![versions.0]))];
        Hello { elements, trailing: Vec::new() }
    }

    /// The versions that the sender of a hello speaks: its bitmap's, or those up to its header's.
    pub fn versions(&self, header: u8) -> Versions {
        let bitmap = self.elements.iter().find_map(|element| match element {
            HelloElement::Versions(bitmap) => bitmap.0.first(),
            HelloElement::Other(_) => None,
        });
        match bitmap {
            // Versions from 0x80 on are experimental; 0 is none.
            Some(bits) => Versions(bits & !1),
            None => Version::ALL.into_iter().filter(|version| version.number() <= header).collect(),
        }
    }

    /// Decodes a hello of any version, known or not, and returns its header too.
    ///
    /// # Errors
    /// The message is no hello, or its length is wrong.
    pub fn decode_any(message: &[u8]) -> Result<(Header, Self), DecodeError> {
        let header = Header::decode(message)?;
        if header.kind != 0 {
            return Err(DecodeError { code: ErrorCode::BrcBadType, at: 1 });
        }
        let mut hello = Hello::default();
        let body = message.get(8..).unwrap_or_default();
        hello.walk(&mut Reader::new(body, Version::V1_0, ErrorCode::BrcBadLen))?;
        Ok((header, hello))
    }
}

impl Record for Hello {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        if !C::READS {
            c.list(&mut self.elements)?;
            return c.rest(&mut self.trailing);
        }
        c.rest(&mut self.trailing)?;
        while !self.trailing.is_empty() {
            let mut reader = Reader::new(&self.trailing, c.version(), ErrorCode::BrcBadLen);
            let mut element = HelloElement::default();
            if element.walk(&mut reader).is_err() {
                break;
            }
            let walked = reader.offset();
            self.elements.push(element);
            self.trailing.drain(..walked);
        }
        Ok(())
    }
}

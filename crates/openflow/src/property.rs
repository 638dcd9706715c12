//! Properties: the TLVs that extend messages since version 1.3, and Nicira's `controller2` and packet-in.
//!
//! A list of properties is a list of an enumeration with a variant per known type. What is unknown is kept as a
//! [`Property`], and so is a known type with an unusual length, so that every list encodes to the bytes it came from.
//! [`PropertyKind::check`] then says what a switch replies.

use crate::error::ErrorCode;
use crate::wire::{Coder, Record, Step};

/// Property type of experimenters.
pub const EXPERIMENTER: u16 = 0xffff;

/// A property of any type.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Property {
    /// The type.
    pub kind: u16,
    /// What follows type and length.
    pub body: Vec<u8>,
}

impl Property {
    /// An experimenter's property: who defines it, its type there, its content.
    pub fn experimenter(experimenter: u32, kind: u32, content: &[u8]) -> Self {
        let mut body = experimenter.to_be_bytes().to_vec();
        body.extend_from_slice(&kind.to_be_bytes());
        body.extend_from_slice(content);
        Property { kind: EXPERIMENTER, body }
    }

    /// The parts of an experimenter's property: who defines it, its type there, its content.
    pub fn as_experimenter(&self) -> Option<(u32, u32, &[u8])> {
        if self.kind != EXPERIMENTER {
            return None;
        }
        let (experimenter, rest) = self.body.split_first_chunk()?;
        let (kind, content) = rest.split_first_chunk()?;
        Some((u32::from_be_bytes(*experimenter), u32::from_be_bytes(*kind), content))
    }

    /// The reply to a property that the receiver does not know.
    pub fn refusal(&self) -> ErrorCode {
        match (self.kind, self.as_experimenter()) {
            (EXPERIMENTER, None) => ErrorCode::BpcBadLen,
            (EXPERIMENTER, Some(_)) => ErrorCode::BpcBadExperimenter,
            _ => ErrorCode::BpcBadType,
        }
    }
}

impl Record for Property {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.padded_entry(2, ErrorCode::BpcBadLen, |c| {
            c.u16(&mut self.kind)?;
            c.pad(2)?;
            c.rest(&mut self.body)
        })
    }
}

/// An enumeration of properties.
pub trait PropertyKind {
    /// Refuses a property of unknown type, or of a known type with a wrong length.
    fn check(&self) -> Result<(), ErrorCode>;
}

/// Refuses a list with an unknown property in it.
pub fn check_all<P: PropertyKind>(properties: &[P]) -> Result<(), ErrorCode> {
    properties.iter().try_for_each(PropertyKind::check)
}

/// A 16-bit value in 16 or, with padding, 32 bits. The standard and Open vSwitch pad, both forms are accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Padded16 {
    /// The value.
    pub value: u16,
    /// Whether padding follows.
    pub padded: bool,
}

impl Padded16 {
    /// A value in the standard's form.
    pub fn new(value: u16) -> Self {
        Padded16 { value, padded: true }
    }
}

impl Record for Padded16 {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u16(&mut self.value)?;
        self.padded = if C::READS { c.left() >= 2 } else { self.padded };
        if self.padded { c.pad(2) } else { Ok(()) }
    }
}

/// Defines an enumeration of properties, each with its type and a record.
macro_rules! properties {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$doc:meta])* $kind:literal => $variant:ident($record:ty),)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $($(#[$doc])* $variant($record),)*
            /// A property of unknown type, or one with an unusual length.
            Other($crate::property::Property),
        }

        impl Default for $name {
            fn default() -> Self {
                $name::Other(Default::default())
            }
        }

        impl $crate::property::PropertyKind for $name {
            fn check(&self) -> Result<(), $crate::error::ErrorCode> {
                match self {
                    $name::Other(property) => Err(match property.kind {
                        $($kind => $crate::error::ErrorCode::BpcBadLen,)*
                        _ => property.refusal(),
                    }),
                    _ => Ok(()),
                }
            }
        }

        impl $crate::wire::Record for $name {
            fn walk<C: $crate::wire::Coder>(&mut self, c: &mut C) -> $crate::wire::Step {
                use $crate::property::Property;
                use $crate::wire::Reader;
                if C::READS {
                    let mut raw = Property::default();
                    $crate::wire::Record::walk(&mut raw, c)?;
                    // A record that does not fill its property is kept as it came.
                    let mut body = Reader::new(&raw.body, c.version(), $crate::error::ErrorCode::BpcBadLen);
                    $(if raw.kind == $kind {
                        let mut record = <$record>::default();
                        if $crate::wire::Record::walk(&mut record, &mut body).and_then(|()| body.finish()).is_ok() {
                            *self = $name::$variant(record);
                            return Ok(());
                        }
                        *self = $name::Other(raw);
                        return Ok(());
                    })*
                    *self = $name::Other(raw);
                    return Ok(());
                }
                let mut kind = match self {
                    $($name::$variant(_) => $kind,)*
                    $name::Other(property) => return $crate::wire::Record::walk(property, c),
                };
                c.padded_entry(2, $crate::error::ErrorCode::BpcBadLen, |c| {
                    c.u16(&mut kind)?;
                    c.pad(2)?;
                    match self {
                        $($name::$variant(record) => $crate::wire::Record::walk(record, c),)*
                        $name::Other(_) => Ok(()),
                    }
                })
            }
        }
    };
}
pub(crate) use properties;

/// A 64-bit value behind padding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Aligned64(
    /// The value.
    pub u64,
);

impl Record for Aligned64 {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.pad(4)?;
        c.u64(&mut self.0)
    }
}

/// Match fields up to the property's end.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Fields(
    /// The fields.
    pub Vec<crate::oxm::Oxm>,
);

impl Record for Fields {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.list(&mut self.0)
    }
}

/// Bytes up to the property's end.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Bytes(
    /// The bytes.
    pub Vec<u8>,
);

impl Record for Bytes {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.rest(&mut self.0)
    }
}

/// A property without content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Present;

impl Record for Present {
    fn walk<C: Coder>(&mut self, _c: &mut C) -> Step {
        Ok(())
    }
}

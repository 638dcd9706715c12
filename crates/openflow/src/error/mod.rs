//! Error codes, and the messages that carry them.
//!
//! An [`ErrorCode`] has a meaning; its numbers depend on the version ([`ErrorCode::to_wire`]). Versions before 1.2 wrap
//! an extension's error into Nicira's vendor error, later ones into an experimenter error.

mod table;

pub use table::ErrorCode;

use crate::message::{Body, Message};
use crate::version::{Version, vendor};
use crate::wire::{Coder, Record, Step};

/// Bytes of a refused request that the error message repeats, at most. The standard asks for 64 at least.
pub const MAX_OFFENDING: usize = 1024;

/// Error type of experimenter errors since version 1.2.
const EXPERIMENTER: u16 = 0xffff;
/// Error type of Nicira's errors before version 1.2.
const NICIRA_VENDOR: u16 = 0xb0c2;

/// Who defines an error's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Space {
    Standard,
    Nicira,
    Onf,
}

impl Space {
    fn vendor(self) -> u32 {
        match self {
            Space::Standard => 0,
            Space::Nicira => vendor::NICIRA,
            Space::Onf => vendor::ONF,
        }
    }
}

/// Numbers of an error in some version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErrorNumbers {
    /// Who defines the numbers; 0: the standard.
    pub vendor: u32,
    /// The error's type; an extension's error since version 1.2 has only this.
    pub kind: u16,
    /// The error's code.
    pub code: u16,
}

impl ErrorCode {
    /// The numbers in `version`, or `None` if the version cannot express the error.
    pub fn to_wire(self, version: Version) -> Option<ErrorNumbers> {
        let (space, _, _, kind, code) =
            self.spans().iter().find(|(_, first, last, ..)| (*first..=*last).contains(&version))?;
        Some(ErrorNumbers { vendor: space.vendor(), kind: *kind, code: *code })
    }

    /// The error with some numbers in `version`: the first one if several share them.
    pub fn from_wire(version: Version, numbers: ErrorNumbers) -> Option<Self> {
        ErrorCode::ALL.iter().copied().find(|code| code.to_wire(version) == Some(numbers))
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a walk over the wire format stopped.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The input is wrong at a position.
    Malformed { code: ErrorCode, at: usize },
    /// A receiver would refuse the output.
    Refused(ErrorCode),
    /// The version has no encoding for a value.
    Inexpressible(&'static str),
    /// A length exceeds 65,535 bytes.
    TooLong,
}

/// A message that cannot be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{code} at byte {at}")]
pub struct DecodeError {
    /// The error to reply with.
    pub code: ErrorCode,
    /// Position in the message.
    pub at: usize,
}

impl DecodeError {
    /// The reply to a refused `request` in `version`, or in the request's own if that is known.
    ///
    /// It repeats the request's transaction id and up to [`MAX_OFFENDING`] of its bytes.
    pub fn reply(&self, request: &[u8], version: Version) -> Message {
        reply(self.code, request, version)
    }
}

impl From<Fault> for DecodeError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Malformed { code, at } => DecodeError { code, at },
            Fault::Refused(code) => DecodeError { code, at: 0 },
            Fault::Inexpressible(_) | Fault::TooLong => DecodeError { code: ErrorCode::BrcBadLen, at: 0 },
        }
    }
}

/// A message that cannot be encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeError {
    /// The version has no encoding for a value.
    #[error("{1} cannot express {0}")]
    Inexpressible(&'static str, Version),
    /// A receiver would refuse the message.
    #[error("a receiver would refuse the message: {0}")]
    Refused(ErrorCode),
    /// The message, or an entry in it, exceeds 65,535 bytes.
    #[error("longer than a message can be (65535 bytes)")]
    TooLong,
}

impl EncodeError {
    /// The public form of a fault while encoding for `version`.
    pub(crate) fn new(fault: Fault, version: Version) -> Self {
        match fault {
            Fault::Inexpressible(what) => EncodeError::Inexpressible(what, version),
            Fault::Refused(code) | Fault::Malformed { code, .. } => EncodeError::Refused(code),
            Fault::TooLong => EncodeError::TooLong,
        }
    }
}

/// The error message that refuses `request` with `code`: in the request's version if that is known, else in `version`.
///
/// It repeats the request's transaction id and up to [`MAX_OFFENDING`] of its bytes. A code without numbers in that
/// version is replaced by `NXBRC_UNENCODABLE_ERROR`.
pub fn reply(code: ErrorCode, request: &[u8], version: Version) -> Message {
    let version = request.first().and_then(|number| Version::from_number(*number)).unwrap_or(version);
    let xid = request.get(4..8).and_then(|xid| xid.try_into().ok()).map_or(0, u32::from_be_bytes);
    let data = request.get(..MAX_OFFENDING).unwrap_or(request).to_vec();
    let numbers = code
        .to_wire(version)
        .or_else(|| ErrorCode::NxBrcUnencodableError.to_wire(version))
        .unwrap_or_default();
    Message::new(version, xid, Body::Error(ErrorMessage { numbers, data }))
}

/// Body of an error message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ErrorMessage {
    /// What is wrong.
    pub numbers: ErrorNumbers,
    /// The start of the refused request; for a failed hello, a text.
    pub data: Vec<u8>,
}

impl ErrorMessage {
    /// The error's meaning, if known.
    pub fn code(&self, version: Version) -> Option<ErrorCode> {
        ErrorCode::from_wire(version, self.numbers)
    }
}

impl Record for ErrorMessage {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        let wraps = c.version() < Version::V1_2;
        let ErrorNumbers { vendor, kind, code } = &mut self.numbers;
        let extension = *vendor != 0;
        let mut outer_kind = match extension {
            false => *kind,
            true if wraps => NICIRA_VENDOR,
            true => EXPERIMENTER,
        };
        let mut outer_code = match extension {
            false => *code,
            true if wraps => 0,
            true => *kind,
        };
        c.u16(&mut outer_kind)?;
        c.u16(&mut outer_code)?;
        match outer_kind {
            // A vendor error that is cut short stays a plain one, and so does an experimenter error of nobody.
            NICIRA_VENDOR if wraps && outer_code == 0 && (extension || c.left() >= 8) => {
                c.u32(vendor)?;
                c.u16(kind)?;
                c.u16(code)?;
                c.refuse_if(*vendor == 0, ErrorCode::BrcBadVendor)?;
            }
            EXPERIMENTER if !wraps && (extension || c.left() >= 4) => {
                *kind = outer_code;
                c.u32(vendor)?;
                c.refuse_if(*vendor == 0, ErrorCode::BrcBadVendor)?;
            }
            _ => (*kind, *code) = (outer_kind, outer_code),
        }
        c.rest(&mut self.data)
    }
}

//! Reads capture files frame by frame: pcap and pcapng, of any size and content.
//!
//! Files are untrusted: every length is checked before use, content that is not needed is skipped without being stored,
//! and a file that breaks the format ends with a [`ReadError`] that names the place. Nothing here panics, and no file
//! makes it use more memory than its interfaces need, at most 65,536 in a section.

mod classic;
mod ng;
mod source;
#[cfg(test)]
mod tests;

use std::io::Read;

use fabric::rx::MAX_PACKET;

use source::{Problem, Source};

/// The link type of Ethernet, in both formats.
const ETHERNET: u16 = 1;
/// Longest frame that libpcap captures, bytes (`MAXIMUM_SNAPLEN`); a larger length is invalid.
const MAX_CAPTURED: u32 = 262_144;
/// Largest number of interfaces in a section.
const MAX_INTERFACES: usize = 65_536;

/// Error in a file, and its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("frame {frame}, at byte {offset} of the file: {problem}")]
pub struct ReadError {
    /// Number of the frame to be read, from 1.
    frame: u64,
    /// Offset of the error.
    offset: u64,
    problem: String,
}

/// A frame of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Time of capture, nanoseconds since 1970-01-01 00:00:00 UTC; some frames have none.
    pub at: Option<u64>,
    /// Captured length, bytes.
    pub len: u32,
    /// Original length, bytes.
    pub original: u32,
}

enum Format {
    Classic(classic::Classic),
    Ng(ng::Ng),
}

/// A file that is being read.
pub struct Reader<R> {
    source: Source<R>,
    format: Format,
    frames: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the head of a file.
    pub fn new(file: R) -> Result<Self, ReadError> {
        let mut source = Source::new(file);
        let format = Self::head(&mut source).map_err(|problem| ReadError {
            frame: 1,
            offset: 0,
            problem: problem.0,
        })?;
        Ok(Self { source, format, frames: 0 })
    }

    fn head(source: &mut Source<R>) -> Result<Format, Problem> {
        let mut magic = [0; 4];
        source.exact(&mut magic, "the file's head")?;
        Ok(match magic {
            ng::SECTION_HEADER => Format::Ng(ng::Ng::new(source)?),
            [0x1f, 0x8b, ..] => {
                return Err(Problem("the file is compressed; unpack it with `gunzip`".into()));
            }
            [0x28, 0xb5, 0x2f, 0xfd] => {
                return Err(Problem("the file is compressed; unpack it with `unzstd`".into()));
            }
            magic => Format::Classic(classic::Classic::new(magic, source)?),
        })
    }

    /// Reads the next frame, its bytes into `data`; `None` at the end of the file. One that is longer than the fabric
    /// moves is counted, but `data` stays empty.
    pub fn next(&mut self, data: &mut Vec<u8>) -> Result<Option<Frame>, ReadError> {
        let mut offset = self.source.offset();
        let read = match &mut self.format {
            Format::Classic(classic) => classic.next(&mut self.source, data),
            Format::Ng(ng) => ng.next(&mut self.source, data, &mut offset),
        };
        let frame = self.frames + 1;
        match read {
            Ok(Some(found)) => {
                self.frames = frame;
                Ok(Some(found))
            }
            Ok(None) => Ok(None),
            Err(problem) => Err(ReadError { frame, offset, problem: problem.0 }),
        }
    }
}

/// Byte order of a file's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        }
    }

    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Order::Little => u32::from_le_bytes(bytes),
            Order::Big => u32::from_be_bytes(bytes),
        }
    }

    fn i64(self, bytes: [u8; 8]) -> i64 {
        match self {
            Order::Little => i64::from_le_bytes(bytes),
            Order::Big => i64::from_be_bytes(bytes),
        }
    }
}

/// Reads the `len` bytes of a frame, or skips them if the fabric cannot move the frame.
fn body<R: Read>(source: &mut Source<R>, len: u32, data: &mut Vec<u8>) -> Result<(), Problem> {
    data.clear();
    if len > MAX_CAPTURED {
        return Err(Problem(format!(
            "the frame's length is {len} bytes, above the maximum of {MAX_CAPTURED}; the file is damaged"
        )));
    }
    if len > MAX_PACKET {
        return source.skip(u64::from(len), "the frame");
    }
    data.resize(len as usize, 0);
    source.exact(data, "the frame")
}

/// Refuses link types other than Ethernet.
fn check_link_type(link_type: u16) -> Result<(), Problem> {
    let name = match link_type {
        ETHERNET => return Ok(()),
        0 | 108 => " (loopback)",
        101 | 228 | 229 => " (IP without link header)",
        105 | 127 => " (802.11)",
        113 | 276 => " (Linux cooked capture)",
        189 | 220 => " (USB)",
        _ => "",
    };
    Err(Problem(format!("the frame's link type is {link_type}{name}; only Ethernet (1) can be replayed")))
}

//! Capture files, read frame by frame: pcap and pcapng, of any size, whatever they hold.
//!
//! Files are somebody else's: every length is checked before it is believed, what is not needed is skipped without
//! being stored, and a file that breaks the format ends with a [`Broken`] that says where. Nothing here panics, and no
//! file makes it use more memory than its interfaces need, of which there may be 65,536 in a section.

mod classic;
mod ng;
mod source;
#[cfg(test)]
mod tests;

use std::io::Read;

use fabric::rx::MAX_PACKET;

use source::{Source, Trouble};

/// The link type of Ethernet, in both formats.
const ETHERNET: u16 = 1;
/// The most bytes of a frame that libpcap captures (`MAXIMUM_SNAPLEN`); a length beyond is none.
const MAX_CAPTURED: u32 = 262_144;
/// Most interfaces of a section.
const MAX_INTERFACES: usize = 65_536;

/// What is wrong with a file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("frame {frame}, at byte {offset} of the file: {problem}")]
pub struct Broken {
    /// The frame that was to be read, from 1.
    frame: u64,
    /// Where what is wrong begins.
    offset: u64,
    problem: String,
}

/// A frame of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// When it was captured, nanoseconds since 1970-01-01 00:00:00 UTC; some have no time.
    pub at: Option<u64>,
    /// Bytes that were captured.
    pub len: u32,
    /// Bytes that it had.
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
    pub fn new(file: R) -> Result<Self, Broken> {
        let mut source = Source::new(file);
        let format =
            Self::head(&mut source).map_err(|problem| Broken { frame: 1, offset: 0, problem: problem.0 })?;
        Ok(Self { source, format, frames: 0 })
    }

    fn head(source: &mut Source<R>) -> Result<Format, Trouble> {
        let mut magic = [0; 4];
        source.exact(&mut magic, "the file's head")?;
        Ok(match magic {
            ng::SECTION_HEADER => Format::Ng(ng::Ng::new(source)?),
            [0x1f, 0x8b, ..] => {
                return Err(Trouble("the file is compressed; unpack it with `gunzip`".into()));
            }
            [0x28, 0xb5, 0x2f, 0xfd] => {
                return Err(Trouble("the file is compressed; unpack it with `unzstd`".into()));
            }
            magic => Format::Classic(classic::Classic::new(magic, source)?),
        })
    }

    /// Reads the next frame, its bytes into `data`; `None` at the end of the file. One that is longer than the fabric
    /// moves is counted, but `data` stays empty.
    pub fn next(&mut self, data: &mut Vec<u8>) -> Result<Option<Frame>, Broken> {
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
            Err(problem) => Err(Broken { frame, offset, problem: problem.0 }),
        }
    }
}

/// How a file writes numbers.
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

/// Reads the `len` bytes of a frame, or leaves them out if the fabric cannot move them.
fn body<R: Read>(source: &mut Source<R>, len: u32, data: &mut Vec<u8>) -> Result<(), Trouble> {
    data.clear();
    if len > MAX_CAPTURED {
        return Err(Trouble(format!(
            "the frame claims to have {len} bytes, and none has more than {MAX_CAPTURED}; the file is damaged"
        )));
    }
    if len > MAX_PACKET {
        return source.skip(u64::from(len), "the frame");
    }
    data.resize(len as usize, 0);
    source.exact(data, "the frame")
}

/// Refuses what is not Ethernet.
fn check_link_type(link_type: u16) -> Result<(), Trouble> {
    let name = match link_type {
        ETHERNET => return Ok(()),
        0 | 108 => " (loopback)",
        101 | 228 | 229 => " (IP without link header)",
        105 | 127 => " (802.11)",
        113 | 276 => " (Linux cooked capture)",
        189 | 220 => " (USB)",
        _ => "",
    };
    Err(Trouble(format!("the frame's link type is {link_type}{name}; only Ethernet (1) can be replayed")))
}

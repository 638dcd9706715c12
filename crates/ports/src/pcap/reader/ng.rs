//! The pcapng format (draft-ietf-opsawg-pcapng): sections of blocks.
//!
//! Each section has its own byte order and interfaces, each interface its link type and unit of time. Blocks without a
//! frame are skipped by their length.

use std::io::Read;

use super::source::{Problem, Source};
use super::{Frame, MAX_INTERFACES, Order, body, check_link_type};

/// First bytes of every section, in either byte order.
pub(super) const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const OPTION_END: u16 = 0;
const OPTION_RESOLUTION: u16 = 9;
const OPTION_OFFSET: u16 = 14;

/// Bytes around a block's body: kind and length before it, length after it.
const FRAMING: u32 = 12;

const BLOCK: &str = "a block";

/// An interface of a section.
struct Interface {
    link_type: u16,
    /// Largest number of bytes of a frame in a simple packet block; 0: all.
    snaplen: u32,
    /// Time resolution as in the option: a power of ten, or of two if the highest bit is set, that divides a second.
    resolution: u8,
    /// Seconds to add.
    offset: i64,
}

impl Interface {
    /// Converts a time in units of the interface to nanoseconds.
    fn nanoseconds(&self, time: u64) -> u64 {
        const SECOND: u128 = 1_000_000_000;
        let exponent = u32::from(self.resolution & 0x7f);
        let time = u128::from(time);
        let since = match self.resolution & 0x80 {
            // Less than 2^94 before the shift.
            0x80 => (time * SECOND).checked_shr(exponent).unwrap_or(0),
            _ if exponent <= 9 => time * 10u128.pow(9 - exponent),
            _ => 10u128.checked_pow(exponent - 9).map_or(0, |unit| time / unit),
        };
        let offset = i128::from(self.offset) * SECOND as i128;
        let at = i128::try_from(since).unwrap_or(i128::MAX).saturating_add(offset);
        u64::try_from(at.max(0)).unwrap_or(u64::MAX)
    }
}

/// State of reading: the current section.
pub(super) struct Ng {
    order: Order,
    interfaces: Vec<Interface>,
}

/// The rest of a block.
struct Block<'a, R> {
    source: &'a mut Source<R>,
    order: Order,
    left: u32,
}

impl<R: Read> Block<'_, R> {
    fn take(&mut self, n: u32) -> Result<(), Problem> {
        self.left = self
            .left
            .checked_sub(n)
            .ok_or_else(|| Problem("a block's contents are longer than the block".into()))?;
        Ok(())
    }

    fn u16(&mut self) -> Result<u16, Problem> {
        self.take(2)?;
        Ok(self.order.u16(self.source.bytes(BLOCK)?))
    }

    fn u32(&mut self) -> Result<u32, Problem> {
        self.take(4)?;
        Ok(self.order.u32(self.source.bytes(BLOCK)?))
    }

    fn skip(&mut self, n: u32) -> Result<(), Problem> {
        self.take(n)?;
        self.source.skip(u64::from(n), BLOCK)
    }

    fn frame(&mut self, len: u32, data: &mut Vec<u8>) -> Result<(), Problem> {
        self.take(len)?;
        body(self.source, len, data)
    }

    /// Skips the rest, and compares the length at the end with `total`, the one at the start.
    fn end(&mut self, total: u32) -> Result<(), Problem> {
        self.skip(self.left)?;
        let behind = self.order.u32(self.source.bytes(BLOCK)?);
        if behind != total {
            return Err(Problem(format!(
                "a block's length is {total} at its start and {behind} at its end; the file is damaged"
            )));
        }
        Ok(())
    }
}

fn check_length(total: u32) -> Result<u32, Problem> {
    total.checked_sub(FRAMING).filter(|_| total.is_multiple_of(4)).ok_or_else(|| {
        Problem(format!("a block's length is {total} bytes; expected a multiple of 4, at least {FRAMING}"))
    })
}

impl Ng {
    /// Reads the rest of the first section's header.
    pub(super) fn new<R: Read>(source: &mut Source<R>) -> Result<Self, Problem> {
        let mut ng = Self { order: Order::Little, interfaces: Vec::new() };
        ng.section(source)?;
        Ok(ng)
    }

    /// Reads a section header after its kind.
    fn section<R: Read>(&mut self, source: &mut Source<R>) -> Result<(), Problem> {
        let total: [u8; 4] = source.bytes(BLOCK)?;
        self.order = match source.bytes(BLOCK)? {
            [0x4d, 0x3c, 0x2b, 0x1a] => Order::Little,
            [0x1a, 0x2b, 0x3c, 0x4d] => Order::Big,
            [a, b, c, d] => {
                return Err(Problem(format!(
                    "a section's byte-order magic is {a:02x} {b:02x} {c:02x} {d:02x}; expected 1a 2b 3c 4d in either order"
                )));
            }
        };
        self.interfaces.clear();
        let total = self.order.u32(total);
        let mut block = Block { source, order: self.order, left: check_length(total)? };
        block.take(4)?; // The byte order, which was read above.
        let (major, minor) = (block.u16()?, block.u16()?);
        if major != 1 {
            return Err(Problem(format!("unsupported pcapng version {major}.{minor}; expected 1.0")));
        }
        block.end(total)
    }

    /// Reads on to the next frame; `offset` becomes the beginning of the last block read.
    pub(super) fn next<R: Read>(
        &mut self,
        source: &mut Source<R>,
        data: &mut Vec<u8>,
        offset: &mut u64,
    ) -> Result<Option<Frame>, Problem> {
        loop {
            *offset = source.offset();
            if source.at_end()? {
                return Ok(None);
            }
            let kind = source.bytes(BLOCK)?;
            if kind == SECTION_HEADER {
                self.section(source)?;
                continue;
            }
            let kind = self.order.u32(kind);
            let total = self.order.u32(source.bytes(BLOCK)?);
            let mut block = Block { source, order: self.order, left: check_length(total)? };
            let frame = match kind {
                INTERFACE_DESCRIPTION => {
                    let interface = interface(&mut block)?;
                    if self.interfaces.len() == MAX_INTERFACES {
                        return Err(Problem(format!("a section has more than {MAX_INTERFACES} interfaces")));
                    }
                    self.interfaces.push(interface);
                    None
                }
                ENHANCED_PACKET => {
                    let interface = block.u32()?;
                    Some(self.packet(interface, &mut block, data)?)
                }
                OBSOLETE_PACKET => {
                    let interface = block.u16()?;
                    block.u16()?; // Number of packets lost.
                    Some(self.packet(interface.into(), &mut block, data)?)
                }
                SIMPLE_PACKET => Some(self.simple(&mut block, data)?),
                _ => None,
            };
            block.end(total)?;
            if frame.is_some() {
                return Ok(frame);
            }
        }
    }

    fn interface(&self, number: u32) -> Result<&Interface, Problem> {
        let found = usize::try_from(number).ok().and_then(|number| self.interfaces.get(number));
        let found = found.ok_or_else(|| {
            let count = self.interfaces.len();
            Problem(format!("the frame is of interface {number}, but only {count} are described"))
        })?;
        check_link_type(found.link_type)?;
        Ok(found)
    }

    /// Reads a packet with time and lengths.
    fn packet<R: Read>(
        &self,
        interface: u32,
        block: &mut Block<'_, R>,
        data: &mut Vec<u8>,
    ) -> Result<Frame, Problem> {
        let (high, low, len, original) = (block.u32()?, block.u32()?, block.u32()?, block.u32()?);
        let at = self.interface(interface)?.nanoseconds(u64::from(high) << 32 | u64::from(low));
        block.frame(len, data)?;
        Ok(Frame { at: Some(at), len, original })
    }

    /// Reads a packet of the first interface that has only its original length.
    fn simple<R: Read>(&self, block: &mut Block<'_, R>, data: &mut Vec<u8>) -> Result<Frame, Problem> {
        let original = block.u32()?;
        let snaplen = match self.interface(0)?.snaplen {
            0 => u32::MAX,
            snaplen => snaplen,
        };
        let len = original.min(snaplen);
        block.frame(len, data)?;
        Ok(Frame { at: None, len, original })
    }
}

/// Reads an interface description.
fn interface<R: Read>(block: &mut Block<'_, R>) -> Result<Interface, Problem> {
    let link_type = block.u16()?;
    block.u16()?;
    let snaplen = block.u32()?;
    let mut interface = Interface { link_type, snaplen, resolution: 6, offset: 0 };
    while block.left >= 4 {
        let (code, len) = (block.u16()?, block.u16()?);
        let padded = u32::from(len).next_multiple_of(4);
        match (code, len) {
            (OPTION_END, _) => break,
            (OPTION_RESOLUTION, 1) => {
                block.take(padded)?;
                let [resolution, ..]: [u8; 4] = block.source.bytes(BLOCK)?;
                interface.resolution = resolution;
            }
            (OPTION_OFFSET, 8) => {
                block.take(padded)?;
                interface.offset = block.order.i64(block.source.bytes(BLOCK)?);
            }
            _ => block.skip(padded)?,
        }
    }
    Ok(interface)
}

//! The classic format (draft-ietf-opsawg-pcap): a file header, then frames, each after its time and lengths.

use std::io::Read;

use super::source::{Problem, Source};
use super::{Frame, Order, body, check_link_type};

/// Contents of the file header.
pub(super) struct Classic {
    order: Order,
    /// Unit of the fraction, nanoseconds.
    unit: u64,
}

impl Classic {
    /// Reads the rest of the file header.
    pub(super) fn new<R: Read>(magic: [u8; 4], source: &mut Source<R>) -> Result<Self, Problem> {
        let (order, unit) = match magic {
            [0xd4, 0xc3, 0xb2, 0xa1] => (Order::Little, 1_000),
            [0xa1, 0xb2, 0xc3, 0xd4] => (Order::Big, 1_000),
            [0x4d, 0x3c, 0xb2, 0xa1] => (Order::Little, 1),
            [0xa1, 0xb2, 0x3c, 0x4d] => (Order::Big, 1),
            [a, b, c, d] => {
                return Err(Problem(format!(
                    "the file begins with {a:02x} {b:02x} {c:02x} {d:02x}, so it is neither pcap nor pcapng"
                )));
            }
        };
        let what = "the file's head";
        let major = order.u16(source.bytes(what)?);
        let minor = order.u16(source.bytes(what)?);
        if major != 2 {
            return Err(Problem(format!("unsupported pcap version {major}.{minor}; expected 2.4")));
        }
        // Time zone, accuracy and longest frame: the first two are always zero, and frames have their own lengths.
        source.skip(12, what)?;
        // The bits above the type describe the frame check sequence.
        check_link_type(order.u32(source.bytes(what)?) as u16)?;
        Ok(Self { order, unit })
    }

    pub(super) fn next<R: Read>(
        &mut self,
        source: &mut Source<R>,
        data: &mut Vec<u8>,
    ) -> Result<Option<Frame>, Problem> {
        if source.at_end()? {
            return Ok(None);
        }
        let mut number = || Ok(self.order.u32(source.bytes("the frame's head")?));
        let (seconds, fraction, len, original) = (number()?, number()?, number()?, number()?);
        body(source, len, data)?;
        let at = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.unit;
        Ok(Some(Frame { at: Some(at), len, original }))
    }
}

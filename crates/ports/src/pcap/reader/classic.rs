//! The classic format (draft-ietf-opsawg-pcap): a head, then frames, each with time and lengths in front.

use std::io::Read;

use super::source::{Source, Trouble};
use super::{Frame, Order, body, check_link_type};

/// What the head said.
pub(super) struct Classic {
    order: Order,
    /// Nanoseconds in the unit of the fraction.
    unit: u64,
}

impl Classic {
    /// Reads the rest of the head.
    pub(super) fn new<R: Read>(magic: [u8; 4], source: &mut Source<R>) -> Result<Self, Trouble> {
        let (order, unit) = match magic {
            [0xd4, 0xc3, 0xb2, 0xa1] => (Order::Little, 1_000),
            [0xa1, 0xb2, 0xc3, 0xd4] => (Order::Big, 1_000),
            [0x4d, 0x3c, 0xb2, 0xa1] => (Order::Little, 1),
            [0xa1, 0xb2, 0x3c, 0x4d] => (Order::Big, 1),
            [a, b, c, d] => {
                return Err(Trouble(format!(
                    "the file begins with {a:02x} {b:02x} {c:02x} {d:02x}, as neither pcap nor pcapng does"
                )));
            }
        };
        let what = "the file's head";
        let major = order.u16(source.bytes(what)?);
        let minor = order.u16(source.bytes(what)?);
        if major != 2 {
            return Err(Trouble(format!("the file is of version {major}.{minor} of pcap; 2.4 is known")));
        }
        // Time zone, accuracy and longest frame: nobody sets the first two, and frames have their own lengths.
        source.skip(12, what)?;
        // Above the type are notes about the frame check sequence.
        check_link_type(order.u32(source.bytes(what)?) as u16)?;
        Ok(Self { order, unit })
    }

    pub(super) fn next<R: Read>(
        &mut self,
        source: &mut Source<R>,
        data: &mut Vec<u8>,
    ) -> Result<Option<Frame>, Trouble> {
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

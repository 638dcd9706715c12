//! The class that packets get where they come in, by their headers or by the port: before the logic, which may choose
//! another one.
//!
//! Sources: IEEE 802.1Q 6.9 and table 8-5 (priority code points; 1, background, is below 0, best effort), RFC 2474 and
//! RFC 8622 (code points of IP packets, of which CS1 and LE are below best effort).

use packet::{dscp, ether};

use crate::protection::{Classification, Trust};
use crate::rx::RxBatch;

impl Classification {
    /// The class of a packet that begins with `header`.
    pub fn class_of(&self, header: &[u8]) -> u16 {
        let by_dscp = || self.dscp.get(usize::from(dscp::of(header)?)).copied();
        let by_pcp = || self.pcp.get(usize::from(ether::vlan_tag(header)?.pcp)).copied();
        let trusted = match self.trust {
            Trust::Nothing => None,
            Trust::Pcp => by_pcp(),
            Trust::Dscp => by_dscp(),
            Trust::DscpThenPcp => by_dscp().or_else(by_pcp),
        };
        trusted.unwrap_or(self.default).into()
    }

    /// Gives the packets of a batch that has come in their classes.
    #[cold]
    pub(crate) fn apply(&self, batch: &mut RxBatch) {
        for v in 0..batch.len() {
            let class = self.class_of(batch.header(v));
            if let Some(record) = batch.records.get_mut(v) {
                record.class = class;
                batch.classes |= class;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(tci: Option<u16>, dscp: Option<u8>) -> Vec<u8> {
        let mut frame = vec![2; 12];
        if let Some(tci) = tci {
            frame.extend([0x81, 0]);
            frame.extend(tci.to_be_bytes());
        }
        match dscp {
            Some(dscp) => {
                frame.extend([8, 0, 0x45, dscp << 2, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0]);
                frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            }
            None => frame.extend([8, 6, 0, 1]),
        }
        frame
    }

    #[test]
    fn classes_come_from_trusted_headers_or_the_port() {
        let by = |trust| Classification { trust, default: 3, ..Classification::default() };
        let tagged = |pcp: u16| frame(Some(pcp << 13 | 7), Some(46));
        let plain = frame(None, Some(46));
        for (trust, of_tagged, of_plain) in
            [(Trust::Nothing, 3, 3), (Trust::Pcp, 6, 3), (Trust::Dscp, 5, 5), (Trust::DscpThenPcp, 5, 5)]
        {
            let by = by(trust);
            assert_eq!((by.class_of(&tagged(6)), by.class_of(&plain)), (of_tagged, of_plain), "{trust:?}");
        }
        assert_eq!(by(Trust::DscpThenPcp).class_of(&frame(Some(2 << 13), None)), 2);
        assert_eq!(by(Trust::DscpThenPcp).class_of(&frame(None, None)), 3);
        // A tag of priority only (VID 0) counts.
        assert_eq!(by(Trust::Pcp).class_of(&frame(Some(4 << 13), None)), 4);
    }

    #[test]
    fn background_is_below_best_effort() {
        let by = Classification::default();
        assert_eq!(by.pcp, [1, 0, 2, 3, 4, 5, 6, 7]);
        let of = |code: usize| by.dscp[code];
        // Default, LE, CS1, AF11, AF41, EF, CS6, CS7.
        assert_eq!([0, 1, 8, 10, 34, 46, 48, 56].map(of), [1, 0, 0, 1, 4, 5, 6, 7]);
    }
}

//! Packets as text, in the two syntaxes of Open vSwitch's tools: that of datapath flows, such as
//! `in_port(1),eth(src=…,dst=…),eth_type(0x0800),ipv4(…)`, and that of OpenFlow matches.
//!
//! - `flow`: the fields of a packet; `parse`: datapath flows; `matching`: matches; `compose`: from fields to bytes;
//!   `actions`: from a change of bytes to datapath actions; `sequence`: all of a packet; `show`: from bytes to a match;
//!   `extract`: from bytes to fields; `megaflow`: the fields that matter, in either syntax.

mod actions;
mod compose;
mod extract;
mod flow;
mod matching;
mod megaflow;
mod parse;
mod sequence;
mod show;

pub(crate) use megaflow::{Detail, Megaflow};
pub(crate) use sequence::Sequence;
pub(crate) use show::matching;

/// Bytes of the longest packet of the fabric.
const MOST_BYTES: usize = 65_535;

/// A number with its prefix, which zero does without.
fn hexadecimal(number: u128) -> String {
    if number == 0 { "0".into() } else { format!("{number:#x}") }
}

/// Returns the packet that a datapath flow describes, at least `length` bytes long.
pub(crate) fn packet(text: &str, length: Option<usize>) -> Result<Vec<u8>, String> {
    if length.is_some_and(|length| length > MOST_BYTES) {
        return Err(format!("packets have at most {MOST_BYTES} bytes"));
    }
    let flow = parse::flow(text)?;
    let mut bytes = compose::packet(&flow, length.is_none());
    match length {
        Some(length) if length < bytes.len() => {
            return Err(format!("the headers take {} bytes, more than {length}", bytes.len()));
        }
        Some(length) => compose::expand(&mut bytes, &flow, length),
        None => {}
    }
    Ok(bytes)
}

/// A packet that text describes.
pub(crate) struct Described {
    /// Number of its ingress port: that of the datapath, or of OpenFlow.
    pub(crate) in_port: Option<u32>,
    pub(crate) packet: Vec<u8>,
}

/// Reads a packet in either syntax; attributes of datapath flows have parentheses.
pub(crate) fn described(text: &str) -> Result<Described, String> {
    let flow = if text.contains('(') { parse::flow(text)? } else { matching::flow(text)? };
    Ok(Described { in_port: flow.in_port, packet: compose::packet(&flow, true) })
}

#[cfg(test)]
mod tests {
    #[test]
    fn packets_have_bounds() {
        let packet = |length| super::packet("in_port(1),eth()", Some(length));
        assert_eq!(packet(65_535).map(|packet| packet.len()), Ok(65_535));
        assert_eq!(packet(usize::MAX), Err("packets have at most 65535 bytes".into()));
    }
}

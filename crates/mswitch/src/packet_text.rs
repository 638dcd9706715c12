//! Packets as text: hexadecimal digits, flows as in `ovs-appctl ofproto/trace`, layers as in scapy.
//!
//! ```text
//! ffffffffffff 525400123456 0806
//! in_port=vm1,dl_vlan=10,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80
//! Ether(dst="52:54:00:00:00:02")/Dot1Q(vlan=10)/IP(dst="10.0.0.2")/TCP(dport=80)
//! ```
//!
//! - [`flow`] reads the second, [`scapy`] the third; both fill in [`fields`];
//! - [`frame`] builds the shortest packet with these fields, with correct lengths and checksums.
//!
//! The command line parses packets, not the daemon: the control socket takes only bytes, so the daemon parses no text
//! of its callers, and programs build packets with their own libraries.

mod fields;
mod flow;
mod frame;
mod scapy;

use control::hex;

use crate::failure::Failure;
use fields::Fields;

/// A packet that was written as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Typed {
    /// Ingress port, if the text names it.
    pub(crate) in_port: Option<String>,
    /// The frame, from the destination address on.
    pub(crate) bytes: Vec<u8>,
}

/// Parses a packet in any of the notations.
pub(crate) fn parse(text: &str) -> Result<Typed, Failure> {
    let read = if text.contains('(') {
        scapy::read(text)
    } else if text.contains(['=', ',']) || fields::is_word(text.trim()) {
        flow::read(text)
    } else {
        let bytes = hex::parse(text).map_err(|error| Failure::new(format_args!("--packet: {error}")))?;
        return Ok(Typed { in_port: None, bytes });
    };
    let typed = read.and_then(|fields| {
        let bytes = frame::build(&fields)?;
        Ok(Typed { in_port: fields.in_port, bytes })
    });
    typed.map_err(|problem| Failure::new(format_args!("--packet: {problem}")))
}

/// A message with the value found and the value expected.
type Problem = String;

/// The fields of a text.
type Read = Result<Fields, Problem>;

/// Suggests the nearest name, or else lists all names.
fn instead(wrong: &str, known: &[&str]) -> String {
    match control::suggest::nearest(wrong, known) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("expected {}", control::suggest::one_of(known)),
    }
}

#[cfg(test)]
mod tests;

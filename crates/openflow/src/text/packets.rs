//! Packets to send, read from text.

use super::ParseError;
use super::parse::split;
use super::parse_actions::parse_actions;
use super::parse_fields::port;
use crate::message::PacketOut;
use crate::version::{NO_BUFFER, PortNo, Version};

/// Bytes of an Ethernet header.
const HEADER: usize = 14;

/// Reads a packet to send, as the argument of `ovs-ofctl packet-out`: `in_port=PORT packet=HEX actions=ACTIONS`. Without
/// a port, the packet comes from the controller.
///
/// # Errors
/// The text is not a packet with actions, or the version lacks one of them.
pub fn parse_packet_out(text: &str, version: Version) -> Result<PacketOut, ParseError> {
    let mut packet = PacketOut { buffer_id: NO_BUFFER, in_port: PortNo::CONTROLLER, ..PacketOut::default() };
    let (head, actions) = text.split_once("actions=").ok_or_else(|| ParseError::new("actions", "nothing"))?;
    for item in split(head, &[',', ' ', '\t']) {
        match item.split_once('=') {
            Some(("in_port", name)) => packet.in_port = port(name)?,
            Some(("packet", digits)) => packet.data = bytes(digits)?,
            _ => return Err(ParseError::new("`in_port=`, `packet=` or `actions=`", item)),
        }
    }
    if packet.data.len() < HEADER {
        let found = format!("{} bytes", packet.data.len());
        return Err(ParseError::new("`packet=` with an Ethernet packet in hexadecimal", &found));
    }
    packet.actions = parse_actions(actions, version)?;
    Ok(packet)
}

/// Bytes in hexadecimal.
fn bytes(text: &str) -> Result<Vec<u8>, ParseError> {
    let wrong = || ParseError::new("pairs of hexadecimal digits", text);
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let pairs = (0..digits.len()).step_by(2).map(|at| digits.get(at..at + 2).unwrap_or_default());
    pairs.map(|pair| u8::from_str_radix(pair, 16).map_err(|_| wrong())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Action, Output};

    const ARP: &str = "ffffffffffff0200000000090806";

    #[test]
    fn packets_have_a_port_and_actions() {
        let parsed = |text: &str| parse_packet_out(text, Version::V1_4);
        let packet = parsed(&format!("in_port=3, packet={ARP} actions=output:2,NORMAL")).unwrap();
        assert_eq!((packet.in_port, packet.data.len(), packet.actions.len()), (PortNo(3), 14, 2));
        assert!(matches!(packet.actions[0], Action::Output(Output { port: PortNo(2), .. })));
        let packet = parsed(&format!("packet=0x{ARP},actions=drop")).unwrap();
        assert_eq!(
            (packet.in_port, packet.buffer_id, packet.actions.len()),
            (PortNo::CONTROLLER, NO_BUFFER, 0)
        );
        for (text, expected) in [
            ("packet=00", "expected actions, found `nothing`"),
            ("actions=NORMAL", "expected `packet=` with an Ethernet packet in hexadecimal, found `0 bytes`"),
            ("packet=0é actions=NORMAL", "expected pairs of hexadecimal digits, found `0é`"),
            ("packet=+0 actions=NORMAL", "expected pairs of hexadecimal digits, found `+0`"),
            ("ip actions=NORMAL", "expected `in_port=`, `packet=` or `actions=`, found `ip`"),
        ] {
            assert_eq!(parsed(text).unwrap_err().to_string(), expected);
        }
    }
}

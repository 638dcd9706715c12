//! One line per captured packet.

use std::fmt::Write;
use std::io;

use control::hex;
use control::proto::CapturedPacket;
use serde::Serialize;

use super::Ports;
use crate::render::packet::contents;

/// Ingress port, egress ports and drop reason of a packet.
pub(super) fn comment(packet: &CapturedPacket, ports: &Ports) -> String {
    let mut text = format!("in {}", ports.name(packet.ingress));
    match (packet.egress, packet.deliveries) {
        (_, 2..) => {
            let _ = write!(text, ", out {} ports", packet.deliveries);
        }
        (Some(egress), _) => {
            let _ = write!(text, ", out {}", ports.name(egress));
        }
        (None, _) => {}
    }
    if !packet.drop_reason.is_empty() {
        let _ = write!(text, ", dropped: {}", packet.drop_reason);
    }
    text
}

/// `12:00:00.123456 vm1 in  52:54:00:00:00:01 > 52:54:00:00:00:02 IPv4 10.0.0.1.80 > 10.0.0.2.1024 TCP, 54 bytes (...)`;
/// the time of day is UTC.
pub(super) fn text(packet: &CapturedPacket, ports: &Ports) -> String {
    let (seconds, rest) = (packet.at_nanoseconds / 1_000_000_000, packet.at_nanoseconds % 1_000_000_000);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let way = if packet.outbound { "out" } else { "in " };
    let (at, headers) = (ports.name(packet.port), contents(&packet.data));
    let (length, micros, comment) = (packet.length, rest / 1000, comment(packet, ports));
    format!(
        "{hour:02}:{minute:02}:{second:02}.{micros:06} {at} {way} {headers}, {length} bytes ({comment})\n"
    )
}

/// The line for programs.
#[derive(Serialize)]
struct Json<'a> {
    at_nanoseconds: u64,
    port: &'a str,
    direction: &'a str,
    ingress: &'a str,
    egress: Option<&'a str>,
    deliveries: u32,
    drop_reason: &'a str,
    length: u32,
    /// Hexadecimal.
    data: String,
}

pub(super) fn json(packet: &CapturedPacket, ports: &Ports) -> io::Result<String> {
    let line = serde_json::to_string(&Json {
        at_nanoseconds: packet.at_nanoseconds,
        port: ports.name(packet.port),
        direction: if packet.outbound { "out" } else { "in" },
        ingress: ports.name(packet.ingress),
        egress: packet.egress.map(|port| ports.name(port)),
        deliveries: packet.deliveries,
        drop_reason: &packet.drop_reason,
        length: packet.length,
        data: hex::format(&packet.data),
    })?;
    Ok(line + "\n")
}

#[cfg(test)]
mod tests {
    use control::proto::{CaptureBatch, CapturePort};

    use super::*;

    fn ports() -> Ports {
        let mut ports = Ports::default();
        let port = |id, name: &str| CapturePort { id, name: name.into(), captured: true };
        ports.learn(&CaptureBatch { ports: vec![port(0, "vm1"), port(1, "vm2")], ..Default::default() });
        ports
    }

    #[test]
    fn comments_name_ingress_egress_and_drop_reason() {
        let ports = ports();
        let comment = |egress, deliveries, reason: &str| {
            let drop_reason = reason.into();
            super::comment(&CapturedPacket { egress, deliveries, drop_reason, ..Default::default() }, &ports)
        };
        assert_eq!(comment(Some(1), 1, ""), "in vm1, out vm2");
        assert_eq!(comment(Some(1), 3, ""), "in vm1, out 3 ports");
        assert_eq!(comment(None, 0, "no-destination"), "in vm1, dropped: no-destination");
        assert_eq!(comment(Some(1), 0, "ring-full"), "in vm1, out vm2, dropped: ring-full");
    }

    #[test]
    fn a_line_for_people() {
        let mut data =
            vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 7, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0];
        data.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 53, 4, 0, 0, 8, 0, 0]);
        let packet = CapturedPacket {
            at_nanoseconds: (86_400 * 3 + 3600 + 61) * 1_000_000_000 + 5_000,
            length: 46,
            data,
            egress: Some(1),
            deliveries: 1,
            ..Default::default()
        };
        assert_eq!(
            text(&packet, &ports()),
            "01:01:01.000005 vm1 in  02:00:00:00:00:01 > 02:00:00:00:00:02 VLAN 7 IPv4 10.0.0.1.53 > 10.0.0.2.1024 UDP, \
             46 bytes (in vm1, out vm2)\n"
        );
        let json: serde_json::Value = serde_json::from_str(&json(&packet, &ports()).unwrap()).unwrap();
        assert_eq!(
            (&json["port"], &json["direction"], &json["egress"]),
            (&"vm1".into(), &"in".into(), &"vm2".into())
        );
        assert!(json["data"].as_str().unwrap().starts_with("020000000002"), "{json}");
    }

    #[test]
    fn short_and_random_packets_are_shown() {
        for data in [vec![], vec![0; 13], vec![0xff; 14], vec![8; 60]] {
            text(&CapturedPacket { data, ..Default::default() }, &Ports::default());
        }
    }
}

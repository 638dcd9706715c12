//! `mswitch trace`.

use std::fmt::Write;

use control::proto;

use super::logic::printable;
use super::packet::contents;

/// A packet's way from its ingress port to its egress ports.
pub(crate) fn text(trace: &proto::Trace) -> String {
    let mut text = format!("from {}: {}, {} bytes\n", trace.port, contents(&trace.packet), trace.length);
    for (number, step) in (1..).zip(&trace.steps) {
        line(&mut text, &format!("{number:>3}. {step}"));
    }
    for reason in &trace.drops {
        line(&mut text, &format!("  => dropped: {reason}"));
    }
    for output in &trace.outputs {
        line(&mut text, &format!("  => {}", departure(trace, output)));
    }
    if trace.drops.is_empty() && trace.outputs.is_empty() {
        line(&mut text, "  => nowhere");
    }
    text
}

fn line(text: &mut String, line: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{line}");
}

fn departure(trace: &proto::Trace, output: &proto::TraceOutput) -> String {
    let mut text = output.port.clone();
    if let Some(queue) = output.queue {
        let _ = write!(text, ", queue {queue}");
    }
    if output.mirrored {
        text += ", a mirror's copy";
    }
    if output.length > 0 {
        let same = output.packet == trace.packet && output.length == trace.length;
        text += &match same {
            true => ": unchanged".into(),
            false => format!(": {}, {} bytes", contents(&output.packet), output.length),
        };
    }
    if !output.drop_reason.is_empty() {
        let _ = write!(text, ", dropped: {}", output.drop_reason);
        if !output.detail.is_empty() {
            let _ = write!(text, " ({})", printable(&output.detail));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_before_outputs() {
        let packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5, 0, 0];
        let mut tagged = packet.clone();
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        let output = |port: &str, packet: &[u8]| proto::TraceOutput {
            port: port.into(),
            queue: Some(0),
            length: packet.len() as u32,
            packet: packet.to_vec(),
            ..Default::default()
        };
        let refused =
            proto::TraceOutput { port: "c".into(), drop_reason: "exceeds-mtu".into(), ..Default::default() };
        let down = proto::TraceOutput {
            port: "e".into(),
            drop_reason: "port-down".into(),
            detail: "set down by the administrator".into(),
            ..Default::default()
        };
        let copy = proto::TraceOutput { mirrored: true, queue: None, ..output("d", &tagged) };
        let mut trace = proto::Trace {
            port: "vm1".into(),
            length: 16,
            packet: packet.clone(),
            steps: vec!["it is flooded".into()],
            outputs: vec![output("a", &packet), output("b", &tagged), refused, copy, down],
            ..Default::default()
        };
        assert_eq!(
            text(&trace),
            "from vm1: 02:00:00:00:00:01 > 02:00:00:00:00:02 EtherType 0x88b5, 16 bytes\n\
             \x20 1. it is flooded\n\
             \x20 => a, queue 0: unchanged\n\
             \x20 => b, queue 0: 02:00:00:00:00:01 > 02:00:00:00:00:02 VLAN 7 EtherType 0x88b5, 20 bytes\n\
             \x20 => c, dropped: exceeds-mtu\n\
             \x20 => d, a mirror's copy: 02:00:00:00:00:01 > 02:00:00:00:00:02 VLAN 7 EtherType 0x88b5, 20 bytes\n\
             \x20 => e, dropped: port-down (set down by the administrator)\n"
        );
        trace.outputs.clear();
        assert!(text(&trace).ends_with("  => nowhere\n"));
        trace.drops = vec!["vlan".into()];
        assert!(text(&trace).ends_with("  => dropped: vlan\n"));
    }
}

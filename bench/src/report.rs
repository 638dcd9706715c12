//! What a run found, for people and for programs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Whether nothing happened that should not: see [`Report::faults`].
    pub ok: bool,
    /// How long packets were sent, in seconds.
    pub seconds: f64,
    /// Packets a second that all ports together received when sending as fast as possible, if that was tried.
    pub capacity_pps: Option<f64>,
    /// Every direction in which packets were sent.
    pub directions: Vec<Direction>,
    /// Every port.
    pub ports: Vec<PortReport>,
}

/// Packets from one port to another.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Direction {
    /// The sending port's place on the command line.
    pub from: usize,
    /// The receiving port's.
    pub to: usize,
    /// Packets put into the sender's rings.
    pub sent: u64,
    /// Different packets that arrived unchanged.
    pub received: u64,
    /// Packets that did not.
    pub lost: u64,
    /// Packets that arrived again.
    pub duplicated: u64,
    /// Packets that arrived after a later one of their flow.
    pub reordered: u64,
    /// Packets that arrived so late that they are either of the two.
    pub stale: u64,
    /// Packets that arrived changed.
    pub corrupted: u64,
    /// Packets that arrived at another port, too or only.
    pub misdelivered: u64,
    /// Bytes received, in good packets.
    pub received_bytes: u64,
    /// Packets sent a second.
    pub sent_pps: f64,
    /// Packets received a second.
    pub received_pps: f64,
    /// Packets received a second in half of the tenths of a second at least: what one pause does not lower.
    pub median_pps: f64,
}

/// What one port saw.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PortReport {
    /// Good packets by receive queue.
    pub received_by_queue: Vec<u64>,
    /// Changed packets whose flow is not known.
    pub corrupted: u64,
    /// Packets of others: not counted against the switch.
    pub foreign: u64,
    /// How often the switch broke the rules of the rings.
    pub malformed: u64,
    /// Packets still in the sender's rings at the end, not taken by the switch.
    pub unsent: u64,
}

impl Direction {
    /// Packets received a second, however the machine was used otherwise: a pause lowers the mean, much else to do the median.
    pub fn kept_pps(&self) -> f64 {
        self.received_pps.max(self.median_pps)
    }
}

impl Report {
    /// What went wrong, loss aside.
    pub fn faults(&self) -> u64 {
        let directions = self
            .directions
            .iter()
            .map(|d| d.duplicated + d.reordered + d.stale + d.corrupted + d.misdelivered);
        directions.sum::<u64>() + self.ports.iter().map(|p| p.corrupted + p.malformed).sum::<u64>()
    }

    /// Packets that did not arrive.
    pub fn lost(&self) -> u64 {
        self.directions.iter().map(|d| d.lost).sum()
    }

    /// Packets sent.
    pub fn sent(&self) -> u64 {
        self.directions.iter().map(|d| d.sent).sum()
    }

    /// Packets received.
    pub fn received(&self) -> u64 {
        self.directions.iter().map(|d| d.received).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(pps) = self.capacity_pps {
            writeln!(f, "capacity: {} packets/s received by all ports together", thousands(pps as u64))?;
        }
        for d in &self.directions {
            writeln!(
                f,
                "port {} to port {}: sent {}, received {}, lost {}, duplicated {}, reordered {}, stale {}, \
                 corrupted {}, misdelivered {}; {} packets/s, {:.2} Gbit/s received",
                d.from,
                d.to,
                thousands(d.sent),
                thousands(d.received),
                thousands(d.lost),
                d.duplicated,
                d.reordered,
                d.stale,
                d.corrupted,
                d.misdelivered,
                thousands(d.received_pps as u64),
                d.received_bytes as f64 * 8e-9 / self.seconds.max(1e-9),
            )?;
        }
        for (index, port) in self.ports.iter().enumerate() {
            writeln!(
                f,
                "port {index}: received by queue {:?}, corrupted beyond recognition {}, malformed {}, \
                 not taken by the switch {}, foreign {}",
                port.received_by_queue, port.corrupted, port.malformed, port.unsent, port.foreign
            )?;
        }
        write!(f, "{} in {:.2} s", if self.ok { "ok" } else { "FAILED" }, self.seconds)
    }
}

/// A number with its digits in groups of three.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 1234567].map(thousands), ["0", "999", "1 000", "1 234 567"]);
    }
}

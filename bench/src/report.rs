//! Results of a run, for people and for programs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Results of the whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Whether the run was free of errors: see [`Report::faults`].
    pub ok: bool,
    /// Duration of sending, in seconds.
    pub seconds: f64,
    /// Packets per second that all ports together received at full speed, if that was measured.
    pub capacity_pps: Option<f64>,
    /// Every direction in which packets were sent.
    pub directions: Vec<Direction>,
    /// Every port.
    pub ports: Vec<PortReport>,
}

/// Packets from one port to another.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Direction {
    /// Index of the sending port on the command line.
    pub from: usize,
    /// Index of the receiving port.
    pub to: usize,
    /// Packets put into the sender's rings.
    pub sent: u64,
    /// Distinct packets that arrived unchanged.
    pub received: u64,
    /// Packets that did not arrive unchanged.
    pub lost: u64,
    /// Packets that arrived more than once.
    pub duplicated: u64,
    /// Packets that arrived after a later one of their flow.
    pub reordered: u64,
    /// Packets that arrived too late to tell duplicates from reordered ones.
    pub stale: u64,
    /// Packets that arrived changed.
    pub corrupted: u64,
    /// Packets that arrived at a wrong port, additionally or only.
    pub misdelivered: u64,
    /// Bytes received, in good packets.
    pub received_bytes: u64,
    /// Packets sent per second.
    pub sent_pps: f64,
    /// Packets received per second.
    pub received_pps: f64,
    /// Median of the packets per second received in each tenth of a second, which one pause does not lower.
    pub median_pps: f64,
}

/// Results of one port.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PortReport {
    /// Good packets by receive queue.
    pub received_by_queue: Vec<u64>,
    /// Changed packets of unknown flow.
    pub corrupted: u64,
    /// Packets of other senders: not counted against the switch.
    pub foreign: u64,
    /// Protocol violations of the switch on the rings.
    pub malformed: u64,
    /// Packets still in the sender's rings at the end, not taken by the switch.
    pub unsent: u64,
}

impl Direction {
    /// Returns the larger of mean and median receive rate: a pause lowers the mean, a longer disturbance the median.
    pub fn sustained_pps(&self) -> f64 {
        self.received_pps.max(self.median_pps)
    }
}

impl Report {
    /// Returns the number of errors, apart from loss.
    pub fn faults(&self) -> u64 {
        let directions = self
            .directions
            .iter()
            .map(|d| d.duplicated + d.reordered + d.stale + d.corrupted + d.misdelivered);
        directions.sum::<u64>() + self.ports.iter().map(|p| p.corrupted + p.malformed).sum::<u64>()
    }

    /// Returns the number of lost packets.
    pub fn lost(&self) -> u64 {
        self.directions.iter().map(|d| d.lost).sum()
    }

    /// Returns the number of packets sent.
    pub fn sent(&self) -> u64 {
        self.directions.iter().map(|d| d.sent).sum()
    }

    /// Returns the number of packets received.
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
                "port {index}: received by queue {:?}, corrupted of unknown flow {}, malformed {}, \
                 not taken by the switch {}, foreign {}",
                port.received_by_queue, port.corrupted, port.malformed, port.unsent, port.foreign
            )?;
        }
        write!(f, "{} in {:.2} s", if self.ok { "ok" } else { "FAILED" }, self.seconds)
    }
}

/// Formats a number with its digits in groups of three.
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

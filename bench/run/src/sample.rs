//! Samples: what was measured, once, at one point of the benchmark.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::generator::Rtt;

/// Load of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Load {
    /// Clients are connected and send nothing.
    Idle,
    /// So many packets per second in each direction: what a sleeping switch meets.
    Rate(u32),
    /// Percent of the rate received at saturation, the R⁺ of the literature.
    Share(u8),
    /// As many packets as the switch accepts.
    Saturation,
}

impl fmt::Display for Load {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Load::Idle => out.pad("idle"),
            Load::Rate(rate) => out.pad(&format!("{rate}/s")),
            Load::Share(percent) => out.pad(&format!("{percent}%")),
            Load::Saturation => out.pad("max"),
        }
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Load, String> {
        match text {
            "idle" => Ok(Load::Idle),
            "max" => Ok(Load::Saturation),
            _ => {
                let percent = text.strip_suffix('%').and_then(|digits| digits.parse().ok());
                let rate = text.strip_suffix("/s").and_then(|digits| digits.parse().ok());
                percent
                    .map(Load::Share)
                    .or(rate.map(Load::Rate))
                    .ok_or_else(|| format!("unknown load `{text}` (expected idle, 1000/s, 50% or max)"))
            }
        }
    }
}

impl TryFrom<String> for Load {
    type Error = String;

    fn try_from(text: String) -> Result<Load, String> {
        text.parse()
    }
}

impl From<Load> for String {
    fn from(load: Load) -> String {
        load.to_string()
    }
}

/// What is measured, apart from the peer: peers are compared at the same task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Task {
    /// Name of the scenario.
    pub scenario: String,
    /// Lengths of packets: `64`, `imix`, `64K`.
    pub size: String,
    /// Directions in which packets are sent: 1 or 2.
    pub ways: u8,
    /// The load.
    pub load: Load,
}

impl fmt::Display for Task {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.size.bytes().all(|byte| byte.is_ascii_digit()) { " B" } else { "" };
        let ways = if self.ways == 1 { "one way" } else { "both ways" };
        write!(out, "{}, {}{unit}, {ways}, {}", self.scenario, self.size, self.load)
    }
}

/// A sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// What was measured.
    #[serde(flatten)]
    pub task: Task,
    /// Which peer.
    pub peer: String,
    /// Round, from 1.
    pub round: u32,
    /// Times that it was tried, earlier ones of a continued benchmark included; 0 if a switch that does not start kept it
    /// from being tried.
    #[serde(default = "once")]
    pub attempts: u32,
    /// What came out.
    #[serde(flatten)]
    pub outcome: Outcome,
}

fn once() -> u32 {
    1
}

/// What came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Figures.
    Measured(Box<Figures>),
    /// Reason why there are none.
    Failed(String),
}

impl Sample {
    /// Whether both are of the same task, peer and round.
    pub fn replaces(&self, other: &Sample) -> bool {
        (&self.task, &self.peer, self.round) == (&other.task, &other.peer, other.round)
    }

    /// The figures, if there are any.
    pub fn figures(&self) -> Option<&Figures> {
        match &self.outcome {
            Outcome::Measured(figures) => Some(figures),
            Outcome::Failed(_) => None,
        }
    }
}

/// Numbers of packets of the measured time, with both directions added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packets {
    /// Accepted by the ports.
    pub sent: u64,
    /// Accepted and not arrived.
    pub lost: u64,
    /// Due and not sent, because a port did not accept those before in time.
    pub skipped: u64,
    /// Arrived again.
    pub duplicated: u64,
    /// Arrived after later ones of their flow; `None` if it cannot be told.
    pub reordered: Option<u64>,
}

/// Share of packets, lost or not sent, above which a share of R⁺ does not count as met.
const TOLERANCE: f64 = 0.001;
/// The same for a rate, which is that of a time with a beginning and an end.
const RATE_TOLERANCE: f64 = 0.01;

/// Figures of a sample. Rates are per second, with both directions added up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Packets that the ports accepted.
    pub sent_pps: f64,
    /// Packets that arrived unchanged.
    pub received_pps: f64,
    /// Mean length of a packet in bytes, without frame check sequence.
    pub mean_size: f64,
    /// Round-trip times of the first direction.
    pub rtt_ns: Option<Rtt>,
    /// Cycles of the switch's thread for forwarding a packet once, without empty polls.
    pub cycles_per_packet: Option<f64>,
    /// Packets in a batch of the switch.
    pub packets_per_batch: Option<f64>,
    /// Share of the switch's thread that was not empty polling or sleep.
    pub busy_share: Option<f64>,
    /// CPUs that the switch's process used.
    pub switch_cpus: Option<f64>,
    /// CPUs that everything on the machine used, the generator included.
    pub machine_cpus: Option<f64>,
    /// CPUs that other virtual machines took.
    pub stolen_cpus: Option<f64>,
    /// Mean frequency of the machine's CPUs in MHz after the measured time, as the kernel told it.
    #[serde(default)]
    pub frequency_mhz: Option<f64>,
    /// Rate that the generator was to send; `None` at saturation.
    #[serde(default)]
    pub offered_pps: Option<f64>,
    /// What became of the packets; `None` in reports of earlier versions.
    #[serde(default)]
    pub packets: Option<Packets>,
    /// Whether the generator paced its packets: the rates are then its own.
    pub paced: bool,
    /// Whether the generator may have been the limit.
    pub generator_near_ceiling: bool,
}

impl Figures {
    /// Bits of packets received per second, without frame check sequence.
    pub fn received_bps(&self) -> f64 {
        self.received_pps * self.mean_size * 8.0
    }

    /// Share of the accepted packets that did not arrive.
    pub fn loss(&self) -> Option<f64> {
        let packets = self.packets.filter(|packets| packets.sent > 0)?;
        Some(packets.lost as f64 / packets.sent as f64)
    }

    /// Whether a paced load was not what it should be: more than 0.1 % of its packets were lost or not sent in time, or
    /// its rate was missed by more than 1 %.
    pub fn missed(&self) -> bool {
        let skipped = self.packets.is_some_and(|packets| {
            packets.skipped as f64 > TOLERANCE * (packets.sent + packets.skipped) as f64
        });
        let slow = self.offered_pps.is_some_and(|offered| self.sent_pps < (1.0 - RATE_TOLERANCE) * offered);
        self.paced && (skipped || slow || self.loss().is_some_and(|loss| loss > TOLERANCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_missed_by_loss_or_by_its_rate() {
        let packets = |lost, skipped| Some(Packets { sent: 10_000, lost, skipped, ..Packets::default() });
        let figures = |sent_pps, packets| Figures {
            sent_pps,
            offered_pps: Some(1e6),
            packets,
            paced: true,
            ..Figures::default()
        };
        assert!(!figures(0.995e6, packets(10, 10)).missed());
        assert!(figures(1e6, packets(11, 0)).missed());
        assert!(figures(1e6, packets(0, 11)).missed());
        assert!(figures(0.98e6, packets(0, 0)).missed());
        let saturated = Figures { paced: false, offered_pps: None, ..figures(1e6, packets(5000, 0)) };
        assert!(!saturated.missed());
        assert_eq!(saturated.loss(), Some(0.5));
        assert_eq!(Figures::default().loss(), None);
    }

    #[test]
    fn samples_survive_the_journal() {
        let task = |load| Task { scenario: "v2v-memif".into(), size: "64".into(), ways: 2, load };
        for load in [Load::Idle, Load::Rate(1000), Load::Share(50), Load::Saturation] {
            let figures = Figures { received_pps: 1.5e6, switch_cpus: Some(0.25), ..Figures::default() };
            for outcome in [Outcome::Measured(Box::new(figures)), Outcome::Failed("died".into())] {
                let sample = Sample { task: task(load), peer: "ovs".into(), round: 3, attempts: 2, outcome };
                let text = serde_json::to_string(&sample).unwrap();
                assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), sample, "{text}");
            }
        }
        assert_eq!(task(Load::Share(10)).to_string(), "v2v-memif, 64 B, both ways, 10%");
        assert!("fast".parse::<Load>().is_err());
    }
}

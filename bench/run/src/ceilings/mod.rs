//! Limits of the machine: what no switch on it can exceed, and what a sleeping one must pay.
//!
//! | module | idea |
//! | --- | --- |
//! | `copying` | bandwidth of memcpy, in the second-level cache and beyond the last one |
//! | `waking` | time from a write to an eventfd to the thread that it wakes |

mod copying;
mod waking;

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::cpus::Cpus;
use crate::error::{Error, Result};
use crate::generator::Generator;
use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::machine::Machine;

pub use waking::WakeUp;

/// Limits of a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Bytes per second that memcpy copies within the second-level cache.
    pub copy_l2: f64,
    /// The same, in memory larger than all caches.
    pub copy_memory: f64,
    /// Waking a thread on another CPU through an eventfd.
    pub wake_up: WakeUp,
    /// Packets of 64 bytes per second over one hop of memif without a switch, one CPU at either end.
    pub hop_pps: f64,
    /// The generator's own ceiling, by size: packets per second, both directions added up, and cycles for each.
    pub generator: Vec<GeneratorCeiling>,
}

/// The generator without a switch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GeneratorCeiling {
    /// Size of packets.
    pub size: String,
    /// Packets per second, both directions added up.
    pub pps: f64,
    /// Cycles for sending and receiving a packet.
    pub cycles_per_packet: f64,
}

/// `mswitch bench ceilings`: measures the limits, in a laboratory of their own.
pub fn measure(interrupt: &Interrupt) -> Result<Ceilings> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::new("the generator needs root: huge pages, pinned threads; use sudo"));
    }
    let (cpus, generator) = (Cpus::choose()?, Generator::find()?);
    let lab = Lab::open(interrupt)?;
    generator.probe(&lab, cpus.generator)?;
    Ceilings::measure(&lab, &Machine::look(), cpus, &generator, 1.0)
}

impl Ceilings {
    /// Measures all of them; takes some ten seconds.
    pub fn measure(
        lab: &Lab,
        machine: &Machine,
        cpus: Cpus,
        generator: &Generator,
        seconds: f64,
    ) -> Result<Ceilings> {
        let interrupt = lab.interrupt();
        let (l2, last) = (machine.l2_kib.unwrap_or(512), machine.last_level_kib.unwrap_or(32 << 10));
        // Source and destination take half of the cache; or four times the largest one, within reason.
        let copy_l2 = copying::bandwidth(cpus.switch, (l2 << 10) as usize / 4, interrupt)?;
        let beyond = ((last << 10) as usize).saturating_mul(2).clamp(64 << 20, 512 << 20);
        let copy_memory = copying::bandwidth(cpus.switch, beyond, interrupt)?;
        let wake_up = waking::measure(cpus, interrupt)?;
        let hop = generator.hop(lab, cpus, seconds)?;
        let mut ceilings =
            Ceilings { copy_l2, copy_memory, wake_up, hop_pps: hop.sent_pps(), generator: Vec::new() };
        for size in ["64", "imix", "1518"] {
            let options = ["--size", size, "--seconds", &seconds.to_string(), "--warm-up", "0.1"];
            let report = generator.ceiling(lab, cpus.generator, &options)?;
            ceilings.generator.push(GeneratorCeiling {
                size: size.into(),
                pps: report.received_pps(),
                cycles_per_packet: report.core.cycles_per_packet,
            });
        }
        Ok(ceilings)
    }

    /// Lines for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<42} {value}");
        };
        line("memcpy in the second-level cache", format!("{:.1} GB/s", self.copy_l2 / 1e9));
        line("memcpy beyond the last-level cache", format!("{:.1} GB/s", self.copy_memory / 1e9));
        let wake = &self.wake_up;
        let micro = |ns: f64| ns / 1e3;
        line(
            "waking a thread through an eventfd",
            format!(
                "{:.1} µs (99 %: {:.1} µs); the write {:.1} µs",
                micro(wake.p50_ns),
                micro(wake.p99_ns),
                micro(wake.write_ns)
            ),
        );
        line("one hop of memif without a switch, 64 B", format!("{:.1} Mpps", self.hop_pps / 1e6));
        for ceiling in &self.generator {
            line(
                &format!("generator without a switch, {}", ceiling.size),
                format!("{:.1} Mpps, {:.0} cycles per packet", ceiling.pps / 1e6, ceiling.cycles_per_packet),
            );
        }
        text
    }
}

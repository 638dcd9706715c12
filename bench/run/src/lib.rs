//! Benchmarks of software switches, each beside the others: what `mswitch bench` does.
//!
//! | module | idea |
//! | --- | --- |
//! | [`scenarios`] | which ports a switch has, and what it connects; one file each |
//! | [`peers`] | the switches; one file each |
//! | [`settings`] | what is measured, how long and how often |
//! | `preflight` | what can be known before the start is checked before the start |
//! | [`run`](mod@run) | rounds in which the peers take turns |
//! | [`unit`](mod@unit) | one peer, started for one scenario and measured |
//! | [`generator`] | the traffic generator, and its report |
//! | [`process_clock`] | the CPU time of a process |
//! | [`cpu_time`] | CPU time of exactly the measured time |
//! | [`sample`] | what was measured, once |
//! | [`journal`] | every sample on disk, to continue after an interruption |
//! | [`statistics`] | medians, spreads, rank tests |
//! | [`report`] | JSON, Markdown, HTML with plots |
//! | [`list`] | scenarios and peers, with what is missing |
//! | [`compare`] | what changed between two reports |
//! | [`plot`] | bars and lines as SVG |
//! | [`ceilings`] | limits of the machine |
//! | [`lab`] | processes, namespaces, files, huge pages; removed whatever happens |
//! | [`network`] | veth pairs between the switch and its clients |
//! | [`machine`], [`cpus`] | where it runs |
//! | `fingerprint` | builds of a program |
//! | [`interrupt`] | Ctrl-C |
//!
//! Invariant: nothing that a benchmark starts or makes outlives it; what a killed one leaves, the next one removes.

pub mod ceilings;
pub mod compare;
pub mod cpu_time;
pub mod cpus;
mod error;
mod fingerprint;
pub mod generator;
pub mod interrupt;
pub mod journal;
pub mod lab;
pub mod list;
pub mod machine;
pub mod network;
pub mod peers;
pub mod plot;
mod preflight;
pub mod process_clock;
pub mod report;
pub mod run;
pub mod sample;
pub mod scenarios;
pub mod settings;
pub mod statistics;
pub mod unit;

pub use error::{Error, Result};
pub use interrupt::Interrupt;

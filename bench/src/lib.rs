//! Clients that load a switch through memif or vhost-user and verify its behaviour.
//!
//! | module | idea |
//! | --- | --- |
//! | [`packet`](mod@packet) | packets whose every byte is determined by flow and sequence number |
//! | [`shape`] | packet lengths and numbers of pieces |
//! | [`pace`] | pacing of sent packets |
//! | [`tracker`] | arrivals of a flow: late, duplicate, missing |
//! | [`port`] | one client: memif, or vhost-user |
//! | [`session`] | ports that exchange packets and verify them |
//! | `rate_samples` | packets received in each tenth of a second |
//! | [`report`] | results of a run |
//! | [`echo`] | a client that returns every packet |
//! | [`host`] | a client with an IP stack: answers pings, serves TCP |
//! | [`idle`] | many idle clients |
//! | [`cpu`] | the CPU time of a process |
//!
//! Invariant: no verdict depends on the output of another tool; every verified value is computed here twice.

pub mod echo;
pub mod host;
pub mod idle;
pub mod pace;
pub mod packet;
pub mod port;
mod rate_samples;
pub mod report;
pub mod session;
pub mod shape;
pub mod tracker;

pub use bench_run::process_clock as cpu;

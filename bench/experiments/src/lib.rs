//! Experiments on the fabric with ports in the same process, which need no CPU of their own: the experiments of the
//! mSwitch paper (sections 4 and 5) that have many ports or destinations, and copies of large packets.
//!
//! - `replay.rs`: senders, queues that repeat prepared packets;
//! - `sink.rs`: receivers, rings that are drained for nothing; `audit.rs`: their checks;
//! - `logics.rs`: logics that decide by the packet's address alone, VALE's scan among them;
//! - `memory.rs`: huge pages for both;
//! - `rig.rs`: a switch with senders and receivers, and the measurement of an interval;
//! - `bare_copy.rs`: copies without a switch, to compare with;
//! - `plots.rs`, `report.rs`: pictures in the form of the paper's figures, and the report around them;
//! - `samples.rs`: repeated, interleaved measurements, their medians and ratios;
//! - `experiments/`: one file each.

pub mod audit;
pub mod bare_copy;
pub mod experiments;
pub mod logics;
mod memory;
pub mod plots;
pub mod replay;
pub mod report;
pub mod rig;
pub mod samples;
pub mod sink;

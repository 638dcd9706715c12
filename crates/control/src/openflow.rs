//! Bridges with the logic `openflow`: what is theirs besides ports.
//!
//! [`settings`] has `[bridge.openflow]`, `running` the connections of a bridge that follows it, `identity` the numbers
//! that tell bridges and ports apart, `kept` flows that outlive the daemon, `ports` what OpenFlow is told of ports,
//! `report` what is shown, `describe` the logic's description.

mod describe;
mod identity;
mod kept;
mod ports;
mod report;
mod running;
pub mod settings;

pub use settings::OpenFlowConfig;

pub(crate) use describe::{describe, with_openflow};
pub(crate) use ports::{facts, facts_of};
pub(crate) use running::{Flows, Place, Running};

/// Name of the logic.
pub const LOGIC: &str = "openflow";

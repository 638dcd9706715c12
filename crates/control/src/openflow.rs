//! Bridges with the logic `openflow`: what is theirs besides ports.
//!
//! [`settings`] has `[bridge.openflow]`, `running` the connections of a bridge that follows it, `identity` the numbers
//! that tell bridges and ports apart, `kept` flows that outlive the daemon, `ports` what OpenFlow is told of ports,
//! `monitored` the monitoring of links, `report` what is shown, `describe` the logic's description.

mod describe;
mod identity;
mod kept;
mod monitored;
mod ports;
mod report;
mod running;
pub mod settings;

pub use monitored::MonitoredPort;
pub use settings::OpenFlowConfig;

pub(crate) use describe::{describe, with_openflow};
pub(crate) use ports::{device, facts, facts_of};
pub(crate) use running::{Flows, Place, Running};

/// Name of the logic.
pub const LOGIC: &str = "openflow";
